"""All messages of the collectives that run at the same time, each with what it waits for.

The pattern is the same for every order of the machines; only the nodes behind the rank numbers change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int64, Ragged
from .traffic import Phase, Traffic


class Share(NamedTuple):
    """A collective's part in a stage."""

    ranks: Int64  # int64[ranks of the collective], their numbers among all ranks
    traffic: Traffic


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages by collective, phase, time and place in the phase.

    Attributes:
        src, dst: int64[messages], numbers among all ranks.
        size_bytes: int64[messages].
        round: int64[messages], the time among those of all phases of its collective; earlier ones are served first.
        depends: for each message the earlier ones that it waits for.
        before: int64[messages], the same message of its phase the time before, -1 for none.
        sending: int64[messages], the number of the message among those of all phases, the same each time.
        collective: int64[messages].
    """

    src: Int64
    dst: Int64
    size_bytes: Int64
    round: Int64
    depends: Ragged
    before: Int64
    sending: Int64
    collective: Int64

    @property
    def count(self) -> int:
        return len(self.src)

    @cached_property
    def kinds(self) -> tuple[Int64, Int64]:
        """Messages that go from one rank to another with the same size: the first of each kind, and each one's kind."""
        begun = np.flatnonzero(self.before < 0)
        once = np.stack((self.src[begun], self.dst[begun], self.size_bytes[begun]), axis=1)
        _, first, kind = np.unique(once, axis=0, return_index=True, return_inverse=True)
        return begun[first], kind.ravel()[self.sending]


def expand(shares: Sequence[Share]) -> Messages:
    """The messages of collectives that begin together."""
    columns: list[tuple[Int64, ...]] = []
    waits: list[tuple[Int64, Int64]] = []
    base = sendings = 0
    for number, share in enumerate(shares):
        rounds = 0
        ended = Frontier(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for p in share.traffic.phases:
            k, m = np.divmod(np.arange(p.times * len(p.src)), len(p.src))
            before = np.where(k > 0, base + np.arange(len(k)) - len(p.src), -1)
            columns.append((
                share.ranks[p.src][m], share.ranks[p.dst][m], p.size_bytes[m], rounds + k, before, sendings + m,
                np.full(len(k), number),
            ))  # fmt: skip
            waits += _waits(p, base, ended)
            ended = _frontier(p, base + (p.times - 1) * len(p.src), ended)
            base += len(k)
            sendings += len(p.src)
            rounds += p.times
    src, dst, size, turn, before, sending, collective = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    waiting, awaited = (np.concatenate(column) for column in zip(*waits, strict=True))
    return Messages(src, dst, size, turn, Ragged.grouped(waiting, awaited, base), before, sending, collective)


class Frontier(NamedTuple):
    """The messages after which each rank goes on to the next phase, by rank."""

    rank: Int64  # int64[rows], ascending
    message: Int64


def _waits(p: Phase, base: int, ended: Frontier) -> list[tuple[Int64, Int64]]:
    """Rows (waiting, awaited) of a phase whose first message has the index ``base``."""
    rows = []
    k = np.arange(p.times)[:, None]
    late = k >= p.lag
    count = len(p.src)
    rows.append(((base + k * count + p.waiting)[late], (base + (k - p.lag) * count + p.awaited)[late]))
    low, high = (np.searchsorted(ended.rank, p.src, side=side) for side in ("left", "right"))
    lengths = high - low
    waiting = np.repeat(np.arange(count), lengths)
    place = np.arange(len(waiting)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    awaited = ended.message[low[waiting] + place]
    rows.append(((base + k * count + waiting).ravel(), np.tile(awaited, p.times)))
    return rows


def _frontier(p: Phase, last: int, before: Frontier) -> Frontier:
    """What each rank sends and receives the last time of a phase whose last time begins at the message ``last``."""
    rank, message = np.concatenate((p.src, p.dst)), np.tile(last + np.arange(len(p.src)), 2)
    idle = ~np.isin(before.rank, rank)
    rank, message = np.concatenate((rank, before.rank[idle])), np.concatenate((message, before.message[idle]))
    order = np.lexsort((message, rank))
    return Frontier(rank[order], message[order])
