"""Steps of an algorithm cut into waves, so that the dimensions of a grid work at the same time.

On a grid each dimension is a phase: a step of the next one begins when all data has passed this one, and the links of
the other dimension are idle meanwhile. But a rank can send on inside its server what has come from one other server
while the rest is under way, and its own data at once. So the blocks that a step sends are cut into *waves* by the step
of the phase before that brought them. For sums, which are copies with time reversed, by the step of the next phase that
takes them away. A step of a wave is a *job*: each rank sends one message for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int32, Int64, Ragged, offsets_of
from ..model.plan import REDUCE
from .algorithms import Lowered


class Jobs(NamedTuple):
    """The jobs of an algorithm, in the order of its steps.

    Attributes:
        of: int64[transfers], the job of each transfer.
        depends: for each job those that end before it begins.
    """

    of: Int64
    depends: Ragged


@dataclass(frozen=True)
class Waves:
    """An algorithm's transfers, each wave of a step a job.

    Attributes:
        lowered: the transfers; one for each block that a step sends from a rank to another.
        jobs: of single waves.
        step, wave: int64[jobs], of these.
    """

    lowered: Lowered
    jobs: Jobs
    step: Int64
    wave: Int64

    @classmethod
    def of(cls, lowered: Lowered, phase: Int64, nodes: int) -> Waves:
        """The waves of an algorithm in which all sums come before all copies.

        Args:
            phase: int64[steps]; the steps of a phase follow each other. What steps below 0 bring, or of sums take away,
                makes no wave of its own.
            nodes: of the network.
        """
        rows = np.split(np.arange(len(lowered.chunk)), offsets_of(np.bincount(lowered.group))[1:-1])
        sums = sum(lowered.op[each[0]] == REDUCE for each in rows)
        wave = np.zeros(len(lowered.chunk), dtype=np.int64)
        _number(wave, rows[:sums][::-1], phase[:sums][::-1], lowered.chunk, lowered.dst, lowered.src, nodes)
        _number(wave, rows[sums:], phase[sums:], lowered.chunk, lowered.src, lowered.dst, nodes)
        count = int(wave.max()) + 1
        keys, of = np.unique(lowered.group * count + wave, return_inverse=True)
        jobs = _jobs(of.ravel(), of.ravel()[lowered.depends.owners], of.ravel()[lowered.depends.values])
        return cls(lowered, jobs, keys // count, keys % count)

    @property
    def count(self) -> int:
        """How many waves a step has, at most."""
        return int(self.wave.max()) + 1

    def joined(self, waves: int) -> Int64:
        """int64[jobs], a number for each where neighbouring waves are joined until this many are left, of about as many
        transfers each."""
        several = np.bincount(self.step) > 1
        share = np.bincount(self.wave, np.bincount(self.jobs.of) * several[self.step], self.count)
        middle = (np.cumsum(share) - share / 2) / max(float(share.sum()), 1.0)
        place = np.minimum(middle * waves, waves - 1).astype(np.int64)
        number: Int64 = np.unique(self.step * waves + place[self.wave], return_inverse=True)[1].ravel()
        return number

    def coarser(self, joined: Int64) -> Jobs:
        """Jobs that are joined, see :meth:`joined`."""
        depends = self.jobs.depends
        return _jobs(joined[self.jobs.of], joined[depends.owners], joined[depends.values])


def _jobs(of: Int64, owner: Int64, value: Int64) -> Jobs:
    """Jobs by what waits for what: pairs of jobs, any number of times."""
    count = int(of.max()) + 1
    pairs = np.unique(owner * count + value)
    return Jobs(of, Ragged.from_lengths(np.bincount(pairs // count, minlength=count), pairs % count))


def _number(wave: Int64, rows: list[Int64], phase: Int64, chunk: Int32, src: Int32, dst: Int32, nodes: int) -> None:
    """Write the wave of each transfer of some steps: the step of an earlier phase that brought its block.

    Args:
        rows: of each step its transfers.
        src, dst: swapped for sums, whose steps come in reverse.
    """
    places = (int(chunk.max()) + 1) * nodes
    brought_in, brought_by = np.full(places, -1), np.zeros(places, dtype=np.int64)
    within = np.zeros(places, dtype=np.int64)  # the wave of the transfer that brought a block to a node
    for number, (each, own) in enumerate(zip(rows, phase.tolist(), strict=True), start=1):
        here, there = (chunk[each].astype(np.int64) * nodes + end[each] for end in (src, dst))
        wave[each] = np.where(brought_in[here] == own, within[here], brought_by[here])
        within[there], brought_in[there], brought_by[there] = wave[each], own, number * (own >= 0)
