"""What the jobs of an algorithm (:mod:`.waves`) ask of links: messages, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int8, Int64, Ragged
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from .algorithms import Algorithm, Lowered, lower
from .scheduling_problem import SchedulingProblem, route_numbers
from .waves import Jobs, Waves
from .ways import Ways

MOST_LINKS = 32
"""Links that list schedules of jobs heed, at most: the busiest ones, and those that are busiest in a job, with any
number of bytes."""

SLICES = (1, 2, 3, 4, 6, 8)
"""Numbers of slices that are tried."""

SPLITS = (1, 2, 3, 4)
"""Into how many parts that go different ways each message may be divided."""

ROUNDING = 1e-9
"""Share by which loads of links differ that are alike but for rounding."""


class Candidate(NamedTuple):
    """An algorithm in which all sums come before all copies."""

    algorithm: Algorithm
    phase: Int64  # int64[steps], whether each goes inside servers or across: a number for those that follow each other;
    # -1 for those that bring blocks to where the algorithm begins, or sums on from where it ends
    direct: Bool  # bool[steps], whether a step waits for no other one of its phase
    carried: Sequence[tuple[int, ...]] | None = None
    """For each step of sums the earlier ones of which it sends on what they brought, and -1 if also what a rank had at
    first; None: every step sends all that is there."""

    def least_s(self, topology: Topology, c: Collective, ways: Ways) -> float:
        """Seconds that it takes at least, however its steps overlap; about as many where messages of a step are unlike.
        Infinite if partners are not joined.

        The busiest link carries a message for each step. And what goes farthest passes all steps, but of a phase of
        direct steps only one. Where messages are unlike, the slowest ones of several steps need not follow each other.
        """
        piece, nodes = int(c.piece_bytes.max()), self.algorithm.nodes(c.ranks)
        block_bytes = piece / self.algorithm.blocks(c.kind, len(c.ranks), piece)
        steps, n = self.algorithm.steps(c.kind, len(c.ranks), piece), len(nodes)
        blocks = np.stack([np.bincount(s.src * n + s.dst, minlength=n * n) for s in steps])
        pairs = np.flatnonzero(blocks.any(axis=0))
        lanes = ways.lanes(nodes[np.stack(np.divmod(pairs, n), axis=1)], alone=c.traits.rooted)
        blocks = blocks[:, pairs]
        routes = lanes[0]
        if not routes.lengths.all():
            return np.inf
        asked_s = np.zeros((len(lanes), topology.link_count))
        for lane, each in enumerate(lanes):
            link, owner = each.values, each.owners
            busy_s = (blocks > 0).sum(axis=0)[owner] * topology.message_s[link]
            busy_s += (blocks.sum(axis=0) * block_bytes)[owner] / topology.bandwidth[link]
            asked_s[lane] = np.bincount(link, busy_s, topology.link_count)
        busiest_s = min(asked_s[np.arange(slices) % len(lanes)].mean(axis=0).max() for slices in SLICES)
        link = routes.values
        alone_s = routes.reduced(np.maximum, topology.message_s[link]) + topology.route_latency_s(routes)
        lead_s = np.where(blocks > 0, alone_s, 0.0).max(axis=1)
        phases = np.stack([self.phase, [step.op for step in steps]])
        of_phase = np.unique(phases, axis=1, return_inverse=True)[1].ravel()
        path_s = np.zeros(int(of_phase.max()) + 1)
        np.maximum.at(path_s, of_phase[self.direct], lead_s[self.direct])
        np.add.at(path_s, of_phase[~self.direct], lead_s[~self.direct])
        return float(max(busiest_s, path_s.sum()))


class Loads(NamedTuple):
    """What jobs ask of links. Links that are at most as busy as another one in every job of every lane are left out."""

    message_s: Float64  # float64[splits, lanes, jobs, links], for what messages cost, by how they are divided
    byte_s: Float64  # float64[lanes, jobs, links], for the bytes of all data
    lag_s: Float64  # float64[jobs], from senders to receivers
    depends: Ragged  # for each job those that end before it begins
    block_bytes: float

    @property
    def jobs(self) -> int:
        return len(self.lag_s)

    @property
    def splits(self) -> list[int]:
        """Into how many parts messages may be divided: more only if all jobs of a slice then take less in turn."""
        kept, least_s = list[int](), np.inf
        for split in SPLITS[: len(self.byte_s)]:
            in_turn_s = self._busy_s(np.ones(1), split).max(axis=1).sum()
            if in_turn_s < least_s:
                kept.append(split)
                least_s = in_turn_s
        return kept

    def busiest_s(self, slices: int, split: int) -> float:
        """How long the busiest link is busy, where each message is divided among some ways."""
        return float(self._busy_s(np.full(slices, 1 / slices), split).sum(axis=0).max())

    def problem(self, shares: Float64, split: int) -> SchedulingProblem:
        """The jobs of slices with these shares of the data, slice by slice; each takes as long as its busiest link.

        Args:
            split: into how many parts each message is divided, which go different ways.
        """
        slices, (_, jobs, links) = len(shares), self.byte_s.shape
        busy_s = self._busy_s(shares, split)
        seconds = busy_s.max(axis=1)
        # a further link of each job, which it does not fill: list schedules take jobs over the same links for alike
        own = np.tile(np.eye(jobs, dtype=np.bool_), (slices, 1))
        used = np.hstack((busy_s > 0, own))
        route = Ragged.from_lengths(used.sum(axis=1), np.nonzero(used)[1].astype(np.int32))
        share = np.hstack((busy_s / seconds[:, None], np.zeros_like(own, dtype=np.float64)))[used]
        before = (self.depends.values + jobs * np.arange(slices)[:, None]).ravel().astype(np.int32)
        depends = Ragged.from_lengths(np.tile(self.depends.lengths, slices), before)
        lag_s, delay_s = np.tile(self.lag_s, slices), np.zeros(len(route.values))
        return SchedulingProblem(route, links + jobs, seconds, lag_s, delay_s, share, depends, depends.turned())

    def _busy_s(self, shares: Float64, split: int) -> Float64:
        """float64[slices * jobs, links], how long the jobs of slices keep each link busy."""
        part = np.repeat(shares / split, split)
        most = (np.ceil(part * self.block_bytes) + 1) / self.block_bytes  # chunks are cut at whole bytes
        lane = lanes_of(len(shares), split, len(self.byte_s))
        busy_s = self.message_s[SPLITS.index(split)][lane] + most[:, None, None] * self.byte_s[lane]
        each_s: Float64 = busy_s.reshape(len(shares), split, self.jobs, -1).sum(axis=1)
        return each_s.reshape(len(shares) * self.jobs, -1)


@dataclass(frozen=True)
class JobLoads:
    """An algorithm's waves on a network, and what each asks of links.

    Attributes:
        summary: what the algorithm does.
        blocks: of each piece.
        pair: int64[transfers], the number of the sender and receiver of each.
        lanes: the routes for each number, in each lane (:mod:`.ways`). One slice after the other goes in the next lane;
            with a root, where lanes gain little and most pairs send, there is one.
        alone: bool[splits, lanes, numbers], whether the part in a lane is a message of its own: of the parts into which
            a message is divided, none in a lane before goes the same way.
        forwards: int8[transfers], 1 for those without what their senders had at first; None if none is.
        job, sent: int64[messages], for each message of a job of a single wave the job, and the number of the pair.
        sent_blocks: int64[messages].
    """

    topology: Topology
    summary: str
    waves: Waves
    blocks: int
    block_bytes: float
    pair: Int64
    lanes: list[Ragged]
    alone: Bool
    forwards: Int8 | None
    job: Int64
    sent: Int64
    sent_blocks: Int64

    @classmethod
    def of(cls, topology: Topology, candidate: Candidate, c: Collective, ways: Ways) -> JobLoads:
        lowered, nodes, forwards = lower(candidate.algorithm, Workload((c,))), topology.node_count, None
        if candidate.carried is not None:
            lowered, forwards = _carrying(lowered, candidate.carried)
        waves = Waves.of(lowered, candidate.phase, nodes)
        pairs, pair = np.unique(lowered.src.astype(np.int64) * nodes + lowered.dst, return_inverse=True)
        lanes = ways.lanes(np.stack(np.divmod(pairs, nodes), axis=1), alone=c.traits.rooted)
        blocks = lowered.workload.chunk_count // c.piece_count
        messages, count = np.unique(waves.jobs.of * len(pairs) + pair.ravel(), return_counts=True)
        job, sent = np.divmod(messages, len(pairs))
        block_bytes = float(c.piece_bytes.max()) / blocks
        return cls(
            topology, candidate.algorithm.summary, waves, blocks, block_bytes, pair.ravel(), lanes, _alone(lanes),
            forwards, job, sent, count,
        )  # fmt: skip

    def joined(self, waves: int) -> tuple[Jobs, Loads]:
        """The jobs where waves are joined until this many are left, and what these ask of links."""
        number = self.waves.joined(waves)
        jobs, topology = self.waves.coarser(number), self.topology
        messages, which = np.unique(number[self.job] * self.pairs + self.sent, return_inverse=True)
        job, pair = np.divmod(messages, self.pairs)
        blocks = np.bincount(which.ravel(), self.sent_blocks)
        count, links = len(jobs.depends.lengths), topology.link_count
        splits = len(self.alone)
        message_s, byte_s = (np.empty((*shape, len(self.lanes), count * links)) for shape in ((splits,), ()))
        for lane, routes in enumerate(self.lanes):
            hops = routes.take(pair)
            link, owner = hops.values, hops.owners
            use = job[owner] * links + link
            byte_s[lane] = np.bincount(use, blocks[owner] * self.block_bytes / topology.bandwidth[link], count * links)
            for split, alone in enumerate(self.alone[:, lane]):
                sent_s = np.where(alone[pair][owner], topology.message_s[link], 0.0)
                message_s[split, lane] = np.bincount(use, sent_s, count * links)
        lag_s = np.maximum.reduceat(
            topology.route_latency_s(self.lanes[0])[pair], np.searchsorted(job, np.arange(count))
        )
        asked = np.concatenate((message_s[:1], byte_s[None], message_s[1:]))
        kept = _decisive(asked.reshape(-1, links), len(self.lanes) * count)
        kept = kept.reshape(1 + splits, len(self.lanes), count, -1)
        message_s, byte_s = np.delete(kept, 1, axis=0), kept[1]
        return jobs, Loads(message_s, byte_s, lag_s, jobs.depends, self.block_bytes)

    @property
    def pairs(self) -> int:
        """How many pairs of a sender and a receiver there are."""
        return self.lanes[0].rows


def lanes_of(slices: int, split: int, lanes: int) -> Int64:
    """int64[slices * split], the lane of each part of each slice: all parts of one are in different lanes."""
    return np.arange(slices * split) % (lanes // split * split)


def _alone(lanes: list[Ragged]) -> Bool:
    """See :class:`JobLoads`."""
    splits = SPLITS[: len(lanes)]
    number = route_numbers(Ragged.concatenate(lanes)).reshape(len(lanes), -1)
    alone = np.ones((len(splits), *number.shape), dtype=np.bool_)
    for split, lane in zip(splits, alone, strict=True):
        for later in range(len(lanes)):
            for earlier in range(later - later % split, later):
                lane[later] &= number[later] != number[earlier]
    return alone


def _carrying(lowered: Lowered, carried: Sequence[tuple[int, ...]]) -> tuple[Lowered, Int8]:
    """Sums that send on only what some steps brought, and which of them leave out what their senders had at first."""
    steps = np.zeros((len(carried), len(carried) + 1), dtype=np.bool_)  # the last column is of what was there at first
    for row, brought in zip(steps, carried, strict=True):
        row[list(brought)] = True
    step, depends = lowered.group, lowered.depends
    kept = steps[step[depends.owners], step[depends.values]]
    chosen = Ragged.from_lengths(np.bincount(depends.owners[kept], minlength=len(step)), depends.values[kept])
    return lowered._replace(depends=chosen), (~steps[step, -1]).astype(np.int8)


def _decisive(asked: Float64, jobs: int) -> Float64:
    """The columns of float64[2 * jobs or more, links], messages and bytes of jobs of all lanes, that are not at most as
    large as another one everywhere; of many the largest ones, and for each job those that are largest with some share
    of the bytes."""
    alike = {column.tobytes(): k for k, column in enumerate(np.ascontiguousarray(asked.T))}
    every = asked[:, list(alike.values())]
    largest = np.argsort(-every.sum(axis=0), kind="stable")[:MOST_LINKS]
    columns = every[:, list(dict.fromkeys([*largest.tolist(), *_busiest(every[:jobs], every[jobs : 2 * jobs])]))]
    below = (columns[:, :, None] <= (1 + ROUNDING) * columns[:, None, :]).all(axis=0)
    place = np.arange(columns.shape[1])
    # of columns that are alike the first one stays
    return columns[:, ~(below & ~(below.T & (place[:, None] <= place))).any(axis=1)]


def _busiest(message_s: Float64, byte_s: Float64) -> list[int]:
    """The columns that exceed in some row all columns with more bytes there in messages, or the other way round."""
    order = np.lexsort((-byte_s, -message_s), axis=1)
    sorted_s = np.take_along_axis(byte_s, order, axis=1)
    before_s = np.maximum.accumulate(sorted_s, axis=1)[:, :-1]
    exceeds = np.pad(sorted_s[:, 1:] > (1 + ROUNDING) * before_s, ((0, 0), (1, 0)), constant_values=True)
    return list(dict.fromkeys(order[exceeds].tolist()))
