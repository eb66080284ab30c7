"""When the representatives' transfers start: a list schedule over orbits of links.

An image of a transfer under each element goes at the same time, so a link is busy with all images that cross it. Of the
transfers that wait for a link the one with the longest chain after it goes first, of equal ones that of the first part.
So sums along a rail come before copies along it, and inside a server goes first what a rail waits for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.plan import REDUCE
from ...schedule.dispatch import starts_by_chain
from ...schedule.moments import ends
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

    Args:
        part: int64[transfers], the part of the data of which each is.
        size_bytes: int64[transfers].
    """
    symmetry, t = table.outward.symmetry, table.outward.symmetry.topology
    place = table.of(transfers)
    links = table.links
    entries = links.with_values(np.arange(len(links.values))).take(place)
    link, size = links.values[entries.values], size_bytes[entries.owners]
    busy_s = symmetry.copies[link] * (size / t.bandwidth[link] + t.message_s[link])
    seconds = entries.reduced(np.maximum, busy_s)
    delay_s = table.joined("delay_s")[entries.values]
    lag_s = table.joined("latency_s")[place]
    orbit = np.unique(symmetry.link_orbits[link], return_inverse=True)[1].reshape(-1)
    share = busy_s / seconds[entries.owners]
    start = starts_by_chain(entries.with_values(orbit), seconds, lag_s, delay_s, share, transfers.depends, part)
    finish = ends(start, seconds)
    return Times(start, finish, float((finish + lag_s).max()))
