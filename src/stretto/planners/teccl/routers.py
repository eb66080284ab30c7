"""Routers that cut through and store, in the program of chunks that are copied.

TE-CCL has nodes that store, which cost an epoch on each hop, and switches, which store nothing. A border router is
neither: it sends a chunk on while it is still coming, over some links at once and over others later. So what comes to
a router in epoch k may leave it in epoch k. Then a chunk could go round among routers within one epoch, each having it
from another and none from outside. :func:`forbid_cycles` forbids that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.topology import SWITCH, Topology
from ...schedule.asap import Send
from ...solvers import Model
from .epochs import Epochs, cuts_through

HOW = ("cut-through", "store", "switch")
"""What a router is in the program: itself, TE-CCL's node that stores, or TE-CCL's switch."""


def routers_as(topology: Topology, how: str) -> Topology:
    """The topology as the program is to see its routers. A plan for it is one for the topology itself."""
    cuts = cuts_through(topology)
    if how == "store":
        return replace(topology, transit=topology.transit & ~cuts)
    if how == "switch":
        return replace(topology, kind=np.where(cuts, SWITCH, topology.kind).astype(np.int8))
    return topology


@dataclass(frozen=True, eq=False)
class Cycles:
    """The links by which a chunk could come back to a place in the epoch in which it left it."""

    link: Int64  # [arcs]
    origin: Int64  # [arcs], the place that sends
    place: Int64  # [arcs], the place where the chunk is in the same epoch
    size: Int64  # [arcs], the number of places that can reach each other in no epoch, these two among them
    reverse: Int64  # [arcs], the arc from ``place`` to ``origin``, -1 for none


def cycles_of(epochs: Epochs) -> Cycles:
    """The arcs between places that reach each other in no epoch: all of them are routers."""
    places, between = epochs.places, epochs.between
    mutual: Bool = (between == 0) & (between.T == 0)
    arcs: list[tuple[int, int, int]] = []
    for place, after in places.landings:
        at_once = np.flatnonzero((place >= 0) & (after == 0))
        arcs += [
            (i, int(places.origin[i]), int(place[i])) for i in at_once.tolist() if mutual[places.origin[i], place[i]]
        ]
    link, origin, place = np.array(arcs, dtype=np.int64).reshape(-1, 3).T
    number = {pair: a for a, pair in enumerate(zip(origin.tolist(), place.tolist(), strict=True))}
    back = [number.get((v, u), -1) for u, v in number]
    return Cycles(link, origin, place, mutual.sum(axis=1)[origin], np.array(back, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Depths:
    """Columns D[q, p]: by how many links of an epoch's way a chunk comes to a place, among those that may be cycles."""

    cycles: Cycles
    column: Int64  # [chunks, places], -1 where the place is on no cycle

    def start(self, sends: Sequence[Send], x: Float64) -> None:
        """Set the columns for a schedule."""
        arc = {int(i): a for a, i in enumerate(self.cycles.link)}
        used = [(s.chunk, arc[s.link]) for s in sends if s.link in arc]
        for _ in range(int(self.cycles.size.max(initial=1)) - 1):
            for q, a in used:
                u, v = self.cycles.origin[a], self.cycles.place[a]
                x[self.column[q, v]] = min(x[self.column[q, u]] + 1, self.cycles.size[a] - 1)


def forbid_cycles(model: Model, epochs: Epochs, chunk: Int64, link: Int64, flow: Int64, chunks: int) -> Depths:
    """Add rows by which no chunk goes round among places that reach each other in no epoch.

    Let m be the number of such places, X[u, v] the sum over the epochs of the flow from place u to place v (at most 1,
    since v gets a chunk once), and D a whole number from 0 to m - 1 for each place. The rows of Miller, Tucker and
    Zemlin, made stronger by Desrochers and Laporte (Operations Research Letters 10, 1991),

        D[u] - D[v] + m X[u, v] + (m - 2) X[v, u] <= m - 1,

    say D[v] >= D[u] + 1 where u sends to v: impossible round a cycle. Every schedule without cycles meets them: the
    flows of a chunk are a forest, in which D is the depth.

    Args:
        chunk, link, flow: int64[flows], what each flow is of, its link, and its column.
        chunks: the number of chunks.
    """
    cycles = cycles_of(epochs)
    column = np.full((chunks, len(epochs.places.node)), -1, dtype=np.int64)
    arc_of = np.full(epochs.topology.link_count, -1, dtype=np.int64)
    arcs = len(cycles.link)
    arc_of[cycles.link] = np.arange(arcs)
    arc = arc_of[link]
    inside = arc >= 0
    arc, flow, of = arc[inside], flow[inside], chunk[inside]
    rows, at = np.unique(of * arcs + arc, return_inverse=True)
    if not len(rows):
        return Depths(cycles, column)
    q, a = np.divmod(rows, arcs)
    size, origin, place = cycles.size[a], cycles.origin[a], cycles.place[a]
    used = np.zeros(column.shape, dtype=np.bool_)
    used[q, origin] = used[q, place] = True
    most = np.zeros(column.shape[1])
    most[cycles.origin] = cycles.size - 1
    column[used] = model.columns(int(used.sum()), upper=most[np.nonzero(used)[1]], integer=True)
    # each flow is also in the row of the arc that goes back, if that has one
    back = cycles.reverse[arc]
    key = np.where((back >= 0) & (cycles.size[arc] > 2), of * arcs + back, -1)
    where = np.minimum(np.searchsorted(rows, key), len(rows) - 1)
    both = rows[where] == key
    model.rows(
        len(rows), -np.inf, size - 1,
        (column[q, origin], 1.0), (column[q, place], -1.0),
        (at, flow, size[at]), (where[both], flow[both], (size[where] - 2)[both]),
    )  # fmt: skip
    return Depths(cycles, column)
