"""Times that no plan can beat, and what makes them so.

Four kinds of reason. A *latency path*: what a rank wants is held far away. A *cut*: bytes that a
set of nodes lacks must all enter it over the links that lead in, none of them before it can have
come there, and the last must still travel on to every rank inside that wants it; what enters late serves few, and
what enters early is not yet a sum of all (:mod:`stretto.bounds.reach`). A cut around one node is its ingress, around
all but one its egress. A *flow*: what is not copied uses up bandwidth on all its way (:mod:`stretto.bounds.lengths`).
*Parts*: each byte of an AllReduce must be received 2 (k - 1) times by the k parts of a network
(:mod:`stretto.bounds.parts`), over links none of which can serve that all the time (:mod:`stretto.bounds.windows`).
On request, for seconds of CPU, *prices* of links at each time (:mod:`stretto.bounds.expanded`), and of an AllReduce's
crossings from one server to another (:mod:`stretto.bounds.covers`).

All bounds hold with multicast inside switches, all but those of an AllReduce also with sums there, and, unless
``chunk_bytes`` is given, however finely the data is cut. The cuts tried are the bottleneck of each collective, found
exactly by max-flows (:mod:`stretto.bounds.exact`), and, since latency may make another one decide, those of sites, of
servers (nodes joined by faster links than those between them), of single nodes and of pairs; every cut where there
are few nodes.
"""

from __future__ import annotations

from ..model.collective import Workload
from ..model.topology import Topology
from .check import check_covers, check_cut, check_expanded, check_lengths, check_parts, check_reach, check_windows
from .concurrent import ConcurrentFlow, concurrent_flow
from .covers import Covers, covers_bound
from .cuts import cut_bounds, turned_cut_bounds
from .exact import Bottleneck, bottleneck
from .expanded import Expanded, expanded_bound
from .latency import distances, latency_path
from .lengths import Lengths, best_lengths, length_bound
from .model import Bound
from .parts import Parts, best_parts, parts_bound
from .reach import Reach, reach_bound
from .trees import TreeRates, tree_rates
from .upgrade import Upgrade, best_upgrade
from .windows import Windows, windows

__all__ = [
    "Bottleneck", "Bound", "ConcurrentFlow", "Covers", "Expanded", "Lengths", "Parts", "Reach", "TreeRates", "Upgrade",
    "Windows", "best_lengths", "best_parts", "best_upgrade", "bottleneck", "bounds", "check_covers", "check_cut",
    "check_expanded", "check_lengths", "check_parts", "check_reach", "check_windows", "concurrent_flow", "covers_bound",
    "distances", "expanded_bound", "reach_bound", "tree_rates", "windows",
]  # fmt: skip


def bounds(
    topology: Topology, workload: Workload, chunk_bytes: float | None = None, *, whole_chunks: bool = False
) -> tuple[Bound, ...]:
    """Lower bounds on when the last collective of a workload completes, the best first.

    One bound of each kind is given.

    Args:
        chunk_bytes: if given, bounds for plans that move indivisible chunks of (at least) that
            size, which accelerators store before they forward them.
        whole_chunks: bounds for plans that move the workload's own chunks, none cut further: each
            is stored before it is forwarded, and crosses a cut over one link.
    """
    if whole_chunks:
        chunk_bytes = float(workload.chunk_bytes.min())
    near = distances(topology, 0.0)
    far = near if chunk_bytes is None else distances(topology, chunk_bytes)
    best: dict[str, Bound] = {}
    for bound in (
        latency_path(topology, workload, far, chunk_bytes or 0.0),
        *cut_bounds(topology, workload, near, far, whole_chunks),
        *turned_cut_bounds(topology, workload, chunk_bytes or 0.0, whole_chunks),
        *(length_bound(topology, c) for c in workload.collectives),
        *(parts_bound(topology, c, near) for c in workload.collectives),
    ):
        if bound is not None and (bound.kind not in best or bound.seconds > best[bound.kind].seconds):
            best[bound.kind] = bound
    return tuple(sorted(best.values(), key=lambda b: -b.seconds))
