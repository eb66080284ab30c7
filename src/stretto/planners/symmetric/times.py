"""When the representatives' transfers start: a list schedule over orbits of links.

An image of a transfer under each element goes at the same time, so a link is busy with all images that cross it. Of the
transfers that wait for a link the one with the longest chain after it goes first, of equal ones that of the first part.
So sums along a rail come before copies along it, and inside a server goes first what a rail waits for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int8, Int64, Ragged
from ...model.plan import COPY, REDUCE
from ...model.symmetry import Symmetry
from ...schedule.dispatch import IDLE, starts_by_chain
from ...schedule.moments import among, ends, path_delays
from .routes import Routes
from .transfers import Transfers


class Table(NamedTuple):
    """The routes from element 0, then those to it."""

    outward: Routes
    inward: Routes

    def of(self, transfers: Transfers) -> Int64:
        """int64[transfers], the place of each transfer's route."""
        place: Int64 = transfers.step + np.where(transfers.op == REDUCE, self.outward.links.rows, 0)
        return place

    @property
    def links(self) -> Ragged:
        return Ragged.concatenate([r.links for r in self])

    def routes(self, transfers: Transfers) -> Ragged:
        """The route of each transfer, from or to element 0: each is one that the group maps to that of the transfer."""
        return self.links.take(self.of(transfers))


class Times(NamedTuple):
    start_s: Float64
    finish_s: Float64
    completion_s: float


def schedule(
    symmetry: Symmetry, route: Ragged, op: Int8, depends: Ragged, part: Int64, size_bytes: Int64,
    *, roughly: bool = False,
) -> Times:  # fmt: skip
    """Starts and ends of transfers.

    Sums alone are copies with time reversed. Where both occur, two ways are tried: all together, and the copies after
    the last sum.

    Args:
        symmetry: the group of whose images links carry all.
        route: the links of each transfer, or links that the group maps to these.
        op, depends: of each transfer.
        part: int64[transfers], the part of the data of which each is.
        size_bytes: int64[transfers].
        roughly: whether one way is tried only, and links are not shared.
    """
    work = _Work.of(symmetry, route, depends, part, size_bytes)
    sums, copies = np.flatnonzero(op == REDUCE), np.flatnonzero(op == COPY)
    start, seconds = work.starts(backward=not len(copies), share=not roughly)
    if not roughly and len(sums) and len(copies) and work.end_s(start, seconds) > IDLE * work.busiest_s:
        first, then = work.of_rows(sums), work.of_rows(copies)
        sum_start, sum_seconds = first.starts(backward=True)
        copy_start, copy_seconds = then.starts(backward=False)
        half_s = first.end_s(sum_start, sum_seconds)
        if half_s + then.end_s(copy_start, copy_seconds) < work.end_s(start, seconds):
            start[sums], seconds[sums] = sum_start, sum_seconds
            start[copies], seconds[copies] = half_s + copy_start, copy_seconds
    finish = ends(start, seconds)
    return Times(start, finish, work.end_s(start, seconds))


class _Work(NamedTuple):
    """Transfers over orbits of links, as :func:`~stretto.schedule.dispatch.starts_by_chain` takes them."""

    route: Ragged
    busy_s: Float64
    lag_s: Float64
    delay_s: Float64
    depends: Ragged
    part: Int64

    @classmethod
    def of(cls, symmetry: Symmetry, route: Ragged, depends: Ragged, part: Int64, size_bytes: Int64) -> _Work:
        t, link, size = symmetry.topology, route.values, size_bytes[route.owners]
        busy_s = symmetry.copies[link] * (size / t.bandwidth[link] + t.message_s[link])
        orbit = np.unique(symmetry.link_orbits[link], return_inverse=True)[1].reshape(-1)
        delay_s, lag_s = path_delays(t, route)
        return cls(route.with_values(orbit), busy_s, lag_s, delay_s, depends, part)

    def of_rows(self, rows: Int64) -> _Work:
        """Some of the transfers."""
        hops = self.route.with_values(np.arange(len(self.busy_s))).take(rows).values
        return _Work(
            self.route.take(rows), self.busy_s[hops], self.lag_s[rows], self.delay_s[hops],
            among(self.depends, rows), self.part[rows],
        )  # fmt: skip

    @property
    def busiest_s(self) -> float:
        """For how long the busiest orbit of links is busy."""
        return float(np.bincount(self.route.values, self.busy_s).max())

    def starts(self, backward: bool, share: bool = True) -> tuple[Float64, Float64]:
        return starts_by_chain(*self, backward=backward, share=share)

    def end_s(self, start: Float64, seconds: Float64) -> float:
        """When the last transfer arrives."""
        return float((start + seconds + self.lag_s).max())
