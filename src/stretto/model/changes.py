"""Bandwidths that change with time: right-continuous steps of links, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import Bool, Float64, Int32, Int64, offsets_of
from .errors import InputError
from .units import BANDWIDTHS, LONGEST_S


@dataclass(frozen=True, eq=False)
class Changes:
    """Steps of links, by link and then by moment. Build them with :func:`make_changes`.

    Before its first step a link has the bandwidth of the topology.

    Attributes:
        link: int32[steps], ascending.
        at_s: float64[steps], seconds, increasing for each link.
        bandwidth: float64[steps], bytes/s from then on; 0 while the link has failed.
    """

    link: Int32
    at_s: Float64
    bandwidth: Float64

    def __len__(self) -> int:
        return len(self.link)

    def offsets(self, links: int) -> Int64:
        """int64[links + 1], where the steps of each link begin."""
        return offsets_of(np.bincount(self.link, minlength=links))

    @cached_property
    def moments_s(self) -> Float64:
        """float64[moments], when some link changes, ascending."""
        return np.unique(self.at_s)

    def widths(self, first: Float64) -> Float64:
        """float64[moments, links], the bandwidth of each link from each moment on.

        Args:
            first: float64[links], bytes/s before any step.
        """
        table = np.full((len(self.moments_s), len(first)), np.nan)
        table[np.searchsorted(self.moments_s, self.at_s), self.link] = self.bandwidth
        before = first
        for row in table:
            np.copyto(row, before, where=np.isnan(row))
            before = row
        return table

    def best(self, first: Float64) -> Float64:
        """float64[links], the largest bandwidth that each link ever has, bytes/s; arguments as for :meth:`widths`."""
        most = first.copy()
        at_once = self.link[self.at_s <= 0]
        most[at_once] = self.bandwidth[self.at_s <= 0]
        np.maximum.at(most, self.link, self.bandwidth)
        return most

    def carried_bytes(self, first: Float64, until_s: float) -> Float64:
        """float64[links], the bytes that each link could carry from time zero on; arguments as for :meth:`widths`."""
        at = np.minimum(self.at_s, until_s)
        before = np.concatenate((np.zeros(1), self.bandwidth[:-1]))
        begins = np.ones(len(self), dtype=np.bool_)
        begins[1:] = self.link[1:] != self.link[:-1]
        before[begins] = first[self.link[begins]]
        carried: Float64 = first * until_s
        np.add.at(carried, self.link, (self.bandwidth - before) * (until_s - at))
        return carried

    def of_links(self, links: Int32 | Int64 | Bool) -> Changes:
        """The steps of some links, which are numbered anew in this order."""
        kept = np.flatnonzero(links) if links.dtype == np.bool_ else np.asarray(links, dtype=np.int64)
        if not len(self):
            return self
        bounds = self.offsets(int(max(kept.max(initial=0), self.link.max())) + 1)
        lengths = bounds[kept + 1] - bounds[kept]
        rows = np.repeat(bounds[kept] - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())
        new = np.repeat(np.arange(len(kept)), lengths).astype(np.int32)
        return Changes(new, self.at_s[rows], self.bandwidth[rows])

    def since(self, at_s: float) -> Changes:
        """The steps as seen from a later moment: moments count from there, and the last step before it is at zero."""
        if not len(self):
            return self
        past = self.at_s <= at_s
        kept = np.ones(len(self), dtype=np.bool_)
        kept[:-1] = ~(past[1:] & (self.link[1:] == self.link[:-1]))
        return Changes(self.link[kept], np.maximum(self.at_s[kept] - at_s, 0.0), self.bandwidth[kept])

    def scaled(self, time: float, bandwidth: float) -> Changes:
        """The same steps with moments times ``time``, and bandwidths times ``bandwidth``."""
        return Changes(self.link, self.at_s * time, self.bandwidth * bandwidth)

    def to_json(self) -> list[dict[str, Any]]:
        """The list under ``changes`` in a topology file (docs: topologies), lossless."""
        rows = zip(self.at_s.tolist(), self.link.tolist(), self.bandwidth.tolist(), strict=True)
        return [{"at_s": at, "link": link, "bandwidth_Bps": width} for at, link, width in rows]


NO_CHANGES = Changes(np.zeros(0, dtype=np.int32), np.zeros(0), np.zeros(0))
"""Every link keeps its bandwidth."""


def changes_of_table(at_s: Float64, bandwidth: Float64) -> Changes:
    """The changes of links that all change at the same moments.

    Args:
        at_s: float64[moments], increasing. bandwidth: float64[moments, links], bytes/s from each moment on.
    """
    moments, links = bandwidth.shape
    rows = np.column_stack((np.repeat(at_s, links), np.tile(np.arange(links), moments), bandwidth.ravel()))
    return make_changes(rows, links)


def make_changes(rows: Iterable[tuple[float, int, float]] | Float64, links: int, where: str | None = None) -> Changes:
    """Check and sort steps.

    Args:
        rows: ``(seconds, link, bytes/s from then on)``, in any order; or an array with such rows.
        links: how many links there are.
    Raises:
        InputError: a link that does not exist, a moment outside of zero to a year, a bandwidth that is neither 0 nor
            from 1 to 1e18 B/s, or two steps of one link at one moment.
    """
    table = np.array(rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.float64).reshape(-1, 3)
    at_s, link, width = table.T

    def fail(bad: Bool, message: str) -> None:
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise InputError(f"change {k} (of link {link[k]:g} at {at_s[k]:g} s) {message}", where)

    slowest, fastest = BANDWIDTHS
    fail(~((link >= 0) & (link < links) & (link == np.floor(link))), f"is of no link: there are {links}")
    fail(~((at_s >= 0) & (at_s <= LONGEST_S)), "needs a moment from zero to a year")
    fail(~(((width >= slowest) & (width <= fastest)) | (width == 0)), "needs a bandwidth of 0, or 1 B/s to 1e18 B/s")
    order = np.lexsort((at_s, link))
    twice = np.zeros(len(table), dtype=np.bool_)
    twice[order[1:]] = (link[order][1:] == link[order][:-1]) & (at_s[order][1:] == at_s[order][:-1])
    fail(twice, "is the second one of that link at that moment; keep one")
    return Changes(link[order].astype(np.int32), at_s[order].copy(), width[order].copy()) if len(table) else NO_CHANGES
