"""When the representatives' transfers start: a list schedule over orbits of links.

An image of a transfer under each element goes at the same time, so a link is busy with all images that cross it. Of the
transfers that wait for a link the one with the longest chain after it goes first, of equal ones that of the first part.
So sums along a rail come before copies along it, and inside a server goes first what a rail waits for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.plan import COPY, REDUCE
from ...schedule.dispatch import IDLE, starts_by_chain
from ...schedule.moments import among, ends
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

    def joined(self, name: str) -> Float64:
        """A column of both."""
        return np.concatenate([getattr(r, name) for r in self])


class Times(NamedTuple):
    start_s: Float64
    finish_s: Float64
    completion_s: float


def schedule(table: Table, transfers: Transfers, part: Int64, size_bytes: Int64) -> Times:
    """Starts and ends of transfers.

    Sums alone are copies with time reversed. Where both occur, two ways are tried: all together, and the copies after
    the last sum.

    Args:
        part: int64[transfers], the part of the data of which each is.
        size_bytes: int64[transfers].
    """
    work = _Work.of(table, transfers, part, size_bytes)
    sums, copies = np.flatnonzero(transfers.op == REDUCE), np.flatnonzero(transfers.op == COPY)
    start, seconds = work.starts(backward=not len(copies))
    if len(sums) and len(copies) and work.end_s(start, seconds) > IDLE * work.busiest_s:
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
    def of(cls, table: Table, transfers: Transfers, part: Int64, size_bytes: Int64) -> _Work:
        symmetry, t = table.outward.symmetry, table.outward.symmetry.topology
        place, links = table.of(transfers), table.links
        entries = links.with_values(np.arange(len(links.values))).take(place)
        link, size = links.values[entries.values], size_bytes[entries.owners]
        busy_s = symmetry.copies[link] * (size / t.bandwidth[link] + t.message_s[link])
        orbit = np.unique(symmetry.link_orbits[link], return_inverse=True)[1].reshape(-1)
        lag_s, delay_s = table.joined("latency_s")[place], table.joined("delay_s")[entries.values]
        return cls(entries.with_values(orbit), busy_s, lag_s, delay_s, transfers.depends, part)

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

    def starts(self, backward: bool) -> tuple[Float64, Float64]:
        return starts_by_chain(*self, backward=backward)

    def end_s(self, start: Float64, seconds: Float64) -> float:
        """When the last transfer arrives."""
        return float((start + seconds + self.lag_s).max())
