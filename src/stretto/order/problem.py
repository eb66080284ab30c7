"""What is searched: machines, the stages of a step, and how many GPUs the machine of each number must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..model.arrays import Int64
from .kernel_cost import Kinds, Net, Rows
from .kernel_local import Entries, Phases
from .messages import Messages, Share, expand
from .network import Machines
from .traffic import Phase, Traffic

MOST_SIMULATED = 30_000
"""Messages of a stage that are simulated one by one; the simulator takes about 0.1 s of CPU for them. Of longer stages
it runs the first times of each phase (:mod:`.judge`)."""

MOST_WAITING = 100
"""Times of a message that the simulator lets wait on a link at once: its work grows with their square."""

MOST_EXACT = 9
"""Machines up to which all orders are looked at."""

MOST_SIMULATED_EXACT = 300_000
"""The same messages where all orders are looked at, so that what is proven is proven of the simulator's time."""

MOST_FOLLOWED = 1_500_000
"""Messages of a stage that are followed by the bound of an order, about 20 ns of CPU each."""

FEWEST_TIMES = 4
"""Times of a phase that are simulated at least."""

MOST_LOADS = 8_000_000
"""Loads (phases times links) that the local search keeps; where there are more phases, neighbours count as one."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Collectives that run at the same time. The stages of a step run one after the other.

    Attributes:
        name: as reports call it: "dp", or the collective.
        shares: the collectives, each by the ranks that take part and what the library sends.
    """

    name: str
    shares: tuple[Share, ...]

    @cached_property
    def message_count(self) -> int:
        """Messages in all."""
        return sum(share.traffic.messages for share in self.shares)

    @cached_property
    def messages(self) -> Messages:
        """All messages."""
        return expand(self.shares)

    def most_times(self, most_messages: int) -> int:
        """How often a phase may be sent so that there are no more messages than that; 0 for as often as it is."""
        if self.message_count <= most_messages:
            return 0
        once = sum(len(p.src) for share in self.shares for p in share.traffic.phases)
        return max(FEWEST_TIMES, most_messages // once)

    def simulated_times(self, most_messages: int) -> int:
        """How often a phase is simulated at most; 0 for as often as it is."""
        most = self.most_times(most_messages)
        if any(_floods(p) for share in self.shares for p in share.traffic.phases):
            return min(most, MOST_WAITING) if most else MOST_WAITING
        return most

    def cut(self, most_times: int, halved: int | None = None) -> Stage:
        """The stage with no phase sent more than ``most_times``, and the phase ``halved`` at most half as often."""
        if not most_times:
            return self
        shares = []
        for share in self.shares:
            phases = tuple(
                replace(p, times=min(p.times, most_times // 2 if i == halved else most_times))
                for i, p in enumerate(share.traffic.phases)
            )
            shares.append(Share(share.ranks, Traffic(share.traffic.algorithm, phases)))
        return Stage(self.name, tuple(shares))


@dataclass(frozen=True, eq=False)
class Problem:
    """An order to be found.

    Attributes:
        seats: int64[machines], how many GPUs the machine of each number has: an order exchanges machines of one size.
        inside: int64[GPUs of the largest machine], the GPU of each number in a machine.
    """

    machines: Machines
    stages: tuple[Stage, ...]
    seats: Int64
    inside: Int64

    def of_stage(self, stage: Stage) -> Problem:
        """The same machines with one stage."""
        return replace(self, stages=(stage,))

    @cached_property
    def simulated(self) -> Problem:
        """The problem with those times of each phase that are simulated."""
        times = [stage.simulated_times(self.most_simulated) for stage in self.stages]
        if not any(times):
            return self
        return replace(self, stages=tuple(stage.cut(most) for stage, most in zip(self.stages, times)))

    @property
    def most_simulated(self) -> int:
        """Messages of a stage that are simulated one by one."""
        return MOST_SIMULATED_EXACT if self.machines.count <= MOST_EXACT else MOST_SIMULATED

    @cached_property
    def place(self) -> tuple[Int64, Int64]:
        """int64[ranks] twice: the number of each rank's machine, and its number in the machine."""
        number = np.repeat(np.arange(len(self.seats)), self.seats)
        return number, np.arange(len(number)) - np.repeat(np.cumsum(self.seats) - self.seats, self.seats)

    def nodes(self, order: Int64) -> Int64:
        """int64[ranks], the accelerator of each rank."""
        number, place = self.place
        return self.net.gpu[order[number], place]

    @cached_property
    def net(self) -> Net:
        """The machines and links as kernels read them."""
        m, t = self.machines, self.machines.topology
        gpu = np.full((m.count, int(m.counts.max())), -1, dtype=np.int64)
        for i, nodes in enumerate(m.gpus):
            gpu[i, : len(nodes)] = nodes[self.inside[self.inside < len(nodes)]]
        return Net(gpu, m.row, m.table, t.dst.astype(np.int64), t.bandwidth, t.latency_s, t.message_s)

    def _ends(self, src: Int64, dst: Int64) -> tuple[Int64, Int64, Int64, Int64]:
        number, place = self.place
        return number[src], place[src], number[dst], place[dst]

    @cached_property
    def kinds(self) -> Kinds:
        """Messages of one pair of ranks and size, all times of all phases."""
        columns, counts, begin = [], [], [0]
        for stage in self.stages:
            sent = [(s.ranks[p.src], s.ranks[p.dst], p.size_bytes, p.times) for s, p in _phases(stage)]
            rows = np.concatenate([np.stack((a, b, size), axis=1) for a, b, size, _ in sent])
            times = np.concatenate([np.full(len(a), float(count)) for a, _, _, count in sent])
            kinds, kind = np.unique(rows, axis=0, return_inverse=True)
            columns.append(kinds)
            counts.append(np.bincount(kind.ravel(), weights=times))
            begin.append(begin[-1] + len(kinds))
        src, dst, size = np.concatenate(columns).T
        return Kinds(*self._ends(src, dst), size.astype(np.float64), np.concatenate(counts), np.array(begin))

    @cached_property
    def rows(self) -> Rows:
        """All messages, each by its kind."""
        kinds, befores, lengths, depends, begin = [], [], [], [], [0]
        first_kind = 0
        for stage in self.stages:
            m = stage.messages
            first, kind = m.kinds
            kinds.append(kind + first_kind)
            befores.append(np.where(m.before >= 0, m.before + begin[-1], -1))
            lengths.append(m.depends.lengths)
            depends.append(m.depends.values.astype(np.int64) + begin[-1])
            begin.append(begin[-1] + m.count)
            first_kind += len(first)
        offsets = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
        return Rows(np.concatenate(kinds), np.concatenate(befores), offsets, np.concatenate(depends), np.array(begin))

    @cached_property
    def entries(self) -> tuple[Entries, Phases]:
        """The messages of each phase as the local search reads them."""
        links = self.machines.topology.link_count
        columns: list[list[Int64]] = []
        times: list[float] = []
        lag: list[float] = []
        depth: list[float] = []
        count: list[float] = []
        for stage in self.stages:
            most = max(len(share.traffic.phases) for share in stage.shares)
            width = -(-most // max(1, MOST_LOADS // (links * len(self.stages))))
            for first in range(0, most, width):
                parts = [
                    (share.ranks, p) for share in stage.shares for p in share.traffic.phases[first : first + width]
                ]
                number = len(times)
                columns += [
                    [np.full(len(p.src), number), *self._ends(ranks[p.src], ranks[p.dst]), p.size_bytes]
                    for ranks, p in parts
                ]
                times.append(float(max(p.times for _, p in parts)))
                lag.append(min((float(p.lag[p.lag > 0].min(initial=p.times)) % p.times for _, p in parts)))
                depth.append(float(max(_depth(p) for _, p in parts) - 1))
                count.append(float(sum(len(p.src) for _, p in parts)))
        phase, src, src_gpu, dst, dst_gpu, size = (np.concatenate(column) for column in zip(*columns, strict=True))
        touching = np.concatenate((src, dst))
        by_number = np.argsort(touching, kind="stable")
        offsets = np.concatenate(([0], np.cumsum(np.bincount(touching, minlength=len(self.seats)))))
        ids = np.tile(np.arange(len(src)), 2)[by_number]
        entries = Entries(phase, src, src_gpu, dst, dst_gpu, size.astype(np.float64), offsets, ids)
        return entries, Phases(np.array(times), np.array(lag), np.array(depth), np.array(count))


def _floods(p: Phase) -> bool:
    """Whether some message is ready for all of its many times at once."""
    return p.times > MOST_WAITING and len(np.unique(p.waiting[p.lag > 0])) < len(p.src)


def _phases(stage: Stage) -> Sequence[tuple[Share, Phase]]:
    return [(share, p) for share in stage.shares for p in share.traffic.phases]


def _depth(p: Phase) -> int:
    """Messages of the longest chain of those that wait for each other within one time."""
    level = np.ones(len(p.src), dtype=np.int64)
    within = p.lag == 0
    for waiting, awaited in sorted(zip(p.waiting[within].tolist(), p.awaited[within].tolist())):
        level[waiting] = max(level[waiting], level[awaited] + 1)
    return int(level.max())
