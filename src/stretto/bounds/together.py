"""Bounds of several collectives together, which each of them alone does not show.

*Flow.* What is not copied uses bandwidth on every link of its way, whichever collective it is of. So collectives whose
pieces go from one rank to another are joined to one (:func:`joined_pairs`), and bounded as one (:mod:`.lengths`).

*Parts.* Divide the nodes that add into parts. If ranks of an AllReduce are in k of them, each byte of it is received at
least 2 (k - 1) times by parts: let r be the part that first has all contributions. Before that, k - 1 other parts have
each sent a message of their own, and some part, with ranks of it or without, has received that. After it, k - 1 parts
with ranks each receive something (:mod:`.parts`). The receipts of all collectives must fit into what can enter all
parts.

Of collectives that start one after the other, those from some start on are bounded together, for each start.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Bool, Int32, Ragged
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from .model import Bound
from .parts import partitions

MOST_ALONE = 4
"""Collectives that are bounded by themselves, too: those of the most bytes. Among their pairs of ranks alone, a search
may find better lengths than among all pairs."""


def joined_pairs(workload: Workload) -> list[Collective]:
    """Collectives whose pieces have one holder and one receiver each, joined to one for each start; and a few alone."""
    single = [c for c in workload.collectives if not c.reduces and (_ones(c.holders) and _ones(c.wanted))]
    starts = sorted({c.start_s for c in single})
    joined = [_joined([c for c in single if c.start_s >= start_s], start_s) for start_s in starts]
    alone = sorted(single, key=lambda c: -int(c.piece_bytes.sum()))[:MOST_ALONE] if len(single) > 1 else []
    return [*joined, *(c for c in alone if all(c is not other for other in joined))]


def _ones(lists: Ragged) -> bool:
    return bool((lists.lengths == 1).all())


def _joined(collectives: list[Collective], start_s: float) -> Collective:
    if len(collectives) == 1:
        return collectives[0]
    ranks = np.unique(np.concatenate([c.ranks for c in collectives]))
    places = [np.searchsorted(ranks, c.ranks) for c in collectives]
    holders, wanted = (
        Ragged.single(np.concatenate([at[getattr(c, name).values] for c, at in zip(collectives, places, strict=True)]))
        for name in ("holders", "wanted")
    )
    sizes = np.concatenate([c.piece_bytes for c in collectives])
    whole = Collective.uncut("alltoallv", ranks, int(sizes.sum()), sizes, holders, wanted)
    return replace(whole, start_s=start_s)


def parts_together(topology: Topology, workload: Workload) -> list[Bound]:
    """The best bound by parts of several AllReduces, for each start; none if there are not several."""
    sums = [c for c in workload.collectives if c.traits.reduces_to_all]
    if len(sums) < 2 or topology.planes:
        return []
    found = partitions(topology, np.unique(np.concatenate([c.ranks for c in sums])), alone=True)
    bounds = []
    for start_s in sorted({c.start_s for c in sums}):
        later = [c for c in sums if c.start_s >= start_s]
        tried = [_bound(topology, later, start_s, inside) for inside in found] if len(later) > 1 else []
        bounds += [max(tried, key=lambda bound: bound.seconds)] if tried else []
    return bounds


def _bound(topology: Topology, sums: list[Collective], start_s: float, inside: Bool) -> Bound:
    received = sum(2.0 * (_parts_of(inside, c.ranks) - 1) * c.size_bytes for c in sums)
    entering = inside[:, topology.dst] & ~inside[:, topology.src]
    width = float((entering.sum(axis=0) * topology.bandwidth).sum())
    words = f"{len(sums)} collectives together: each byte must be received twice by all parts with ranks of it but one"
    links = np.flatnonzero(entering.any(axis=0))
    seconds = start_s + (received / width if width else 0.0)
    return Bound(seconds, "parts", words, tuple(range(topology.node_count)), tuple(links.tolist()))


def _parts_of(inside: Bool, ranks: Int32) -> int:
    """How many parts have some of the ranks."""
    return int(inside[:, ranks].any(axis=1).sum())
