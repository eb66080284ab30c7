"""Times that no plan can beat, and what makes them so.

Four kinds of reason, of which :func:`bounds` gives one bound each:

- A *latency path* (``latency``): what a rank wants is held far away.
- A *cut* (``cuts``): all bytes that a set of nodes lacks must enter it over the links that lead in. No byte can enter
  before it can have come there, and the last one must still travel on to every rank inside that wants it. A byte that
  enters late can serve only few ranks, and one that enters early is not yet a sum of all (``reach``). A cut around one
  node is called its ingress, a cut around all nodes but one that node's egress.
- A *flow* (``lengths``): data that is not copied uses up bandwidth on every link of its way.
- *Parts* (``parts``): if a network is divided into k parts, these must receive each byte of an AllReduce 2 (k - 1)
  times, over links that can serve for that only a part of the time (``windows``). Backwards in time that is what they
  must send.

Two more take up to seconds of CPU and are computed on request only: *covers*, prices of an AllReduce's crossings from
one server to another (``covers``), and *copies*, how many ranks a late message into a set can still serve (``copies``).

All bounds hold where switches copy. Those of an AllReduce assume that switches do not sum; the others hold even if they
did. A switch that sums is taken for a router, which stores and sums (``Topology.relaying``): a transfer from several
sources is then several transfers, which cross each link no sooner than its own. So all bounds hold there, too. Unless
``chunk_bytes`` is given, all hold however finely the data is cut.

Where bandwidths change with time, a link counts as good as it ever is, and cuts are also bounded by what their links
carry in time (``changing``).

Where messages cost, bounds count one for each node on the way that stores it, as latency; and one that crosses a cut,
as latency or as bytes (``messages``). The larger bound counts. To hear from many ranks takes messages one after the
other (``growth``); so do copies where switches do not copy. A message may carry chunks of several pieces. Where nodes
on the way store, few large messages are late and many small ones take room (``storing``).

Which cuts are tried: the bottleneck of each collective, found exactly by max-flows (``exact``); and, since latency may
make another cut decide, those around sites, servers (nodes joined by faster links than those between them), what the
switches of lower tiers join, single nodes and pairs; where there are few nodes, every cut (``candidates``).

Among more than ``MOST_SEARCHED`` ranks of which many look alike, all bounds come from the network's symmetry instead of
a search, from one rank of each orbit (``block_bounds``): cuts (``blocks``), their reach (``block_reach``), parts
(``block_parts``) and windows (``block_windows``).

Several collectives are also bounded together, by flow and by parts (``together``), and their mean completion is bounded
(:func:`mean_bound`, ``jobs``).

The other files: ``model`` has the class of a bound, ``check`` recomputes bounds from their certificates. ``trees`` says
how fast AllReduce can be by trees, ``upgrade`` which link is worth widening. ``telling`` counts the ranks that messages
tell in some time, ``feeding`` what one node must send into several servers, and ``backlog`` what these lack of it.
``direct`` says what pairs of ranks cost that have messages of their own, or data that is stored on the way.
``gathering`` asks when few messages can have brought what ranks and servers want, ``late`` when they have what leaves
servers late, and ``gathering_places`` and ``kernel_gathering`` compute it.
``concurrent`` and ``kernel_concurrent`` find paths for data that is not copied.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from ..model.collective import Workload
from ..model.reach import refuse_unreachable
from ..model.topology import Topology
from .block_bounds import MOST_SEARCHED, bounds_by_blocks
from .changing import integral_bounds
from .check import check_covers, check_cut, check_lengths, check_parts, check_reach, check_windows
from .concurrent import ConcurrentFlow, concurrent_flow
from .copies import Copies, copies_bound
from .covers import Covers, covers_bound
from .cuts import cut_bounds, turned_cut_bounds
from .direct import direct_bound
from .exact import Bottleneck, bottleneck
from .gathering import gathering_bound
from .growth import growth_bound, growth_of_copies
from .jobs import least_mean
from .latency import delayed_between_stores, distances, latency_path, with_message_latency
from .lengths import Lengths, best_lengths, length_bound
from .messages import without_messages
from .model import Bound
from .parts import Parts, best_parts, both_ways, parts_bound
from .reach import Reach, reach_bound
from .storing import storing_bound
from .together import joined_pairs, parts_together
from .trees import TreeRates, tree_rates, tree_rates_within
from .upgrade import Upgrade, best_upgrade
from .windows import Windows, windows

__all__ = [
    "MOST_SEARCHED", "Bottleneck", "Bound", "ConcurrentFlow", "Copies", "Covers", "Lengths", "Parts", "Reach",
    "TreeRates", "Upgrade", "Windows",
    "best_lengths", "best_parts", "best_upgrade", "both_ways", "bottleneck", "bounds", "check_covers", "check_cut",
    "check_lengths", "check_parts", "check_reach", "check_windows", "concurrent_flow", "copies_bound", "covers_bound",
    "distances", "mean_bound", "reach_bound", "tree_rates", "tree_rates_within", "windows",
]  # fmt: skip


def mean_bound(topology: Topology, workload: Workload) -> Bound:
    """A time that the mean completion of collectives since their starts, by their weights, is not below."""
    found: dict[object, float] = {}
    for c in workload.collectives:
        key = (c.alike, c.start_s)
        if key not in found:
            found[key] = bounds(topology, Workload((c,)))[0].seconds - c.start_s
    return least_mean(topology, workload, np.array([found[c.alike, c.start_s] for c in workload.collectives]))


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
    Raises:
        InputError: no path leads from a holder to a rank that wants what it holds.
    """
    if chunk_bytes is not None or whole_chunks:
        refuse_unreachable(topology, workload.collectives)
        return _bounds(topology, workload, chunk_bytes, whole_chunks)
    asked, known = _LAST.get(topology, (None, ()))
    if asked is None or not asked.promises_as(workload):
        refuse_unreachable(topology, workload.collectives)
        known = _bounds(topology, workload, None, False)
        _LAST[topology] = workload, known
    return known


_LAST: WeakKeyDictionary[Topology, tuple[Workload, tuple[Bound, ...]]] = WeakKeyDictionary()
"""What was last bounded on a topology: a plan is judged by the bounds that its planner has asked for."""


def _bounds(
    topology: Topology,
    workload: Workload,
    chunk_bytes: float | None,
    whole_chunks: bool,
    waits: Topology | None = None,
) -> tuple[Bound, ...]:
    """:func:`bounds`, computed.

    Args:
        waits: where messages cost nothing since they are counted as bytes, the network where they cost: those before
            and after one that crosses a cut take time there.
    """
    if chunk_bytes is None and not whole_chunks:
        found = bounds_by_blocks(topology, workload)
        if found is not None:
            kinds = {bound.kind: bound for bound in sorted(found, key=lambda bound: bound.seconds)}
            return tuple(sorted(kinds.values(), key=lambda bound: -bound.seconds))
    given, topology = topology, delayed_between_stores(topology.at_best).relaying
    if whole_chunks:
        chunk_bytes = float(workload.chunk_bytes.min())
    delayed = given.at_best.delayed.relaying
    crossed = with_message_latency(given.at_best).relaying
    waits = given.at_best.relaying if waits is None else waits
    best: dict[str, Bound] = {}
    for bound in (
        latency_path(delayed, workload, distances(delayed, chunk_bytes or 0.0), chunk_bytes or 0.0),
        *cut_bounds(crossed, workload, waits, chunk_bytes or 0.0, whole_chunks),
        *turned_cut_bounds(crossed, workload, waits, chunk_bytes or 0.0, whole_chunks),
        *(length_bound(topology, c) for c in joined_pairs(workload)),
        *(parts_bound(topology, c, distances(topology, 0.0)) for c in workload.collectives),
        *parts_together(topology, workload),
    ):
        if bound is not None and (bound.kind not in best or bound.seconds > best[bound.kind].seconds):
            best[bound.kind] = bound
    heavier = None if chunk_bytes is not None else without_messages(given.at_best, workload)
    for bound in _bounds(*heavier, None, False, given.at_best.relaying) if heavier else ():
        if bound.kind not in best or bound.seconds > best[bound.kind].seconds:
            best[bound.kind] = replace(bound, witness=f"{bound.witness}, with messages counted as bytes")
    known_s = max((bound.seconds for bound in best.values()), default=0.0)
    stored = storing_bound(given.at_best, workload, known_s) if chunk_bytes is None else None
    best |= {stored.kind: stored} if stored is not None else {}
    if not given.changes:
        growths = growth_bound(given, workload, known_s), growth_of_copies(given, workload, known_s)
        for growth in (*growths, direct_bound(given, workload, known_s) if chunk_bytes is None else None):
            if growth is not None and (growth.kind not in best or growth.seconds > best[growth.kind].seconds):
                best[growth.kind] = growth
        known_s = max((bound.seconds for bound in best.values()), default=0.0)
        gathered = gathering_bound(given, workload, known_s) if chunk_bytes is None else None
        best |= {gathered.kind: gathered} if gathered is not None else {}
    integrals = integral_bounds(given, workload, tuple(best.values())) if given.changes else []
    if given.changes:
        at_best = ", if each link always had the largest bandwidth that it ever has"
        best = {kind: replace(bound, witness=bound.witness + at_best) for kind, bound in best.items()}
    for bound in integrals:
        if bound.kind not in best or bound.seconds > best[bound.kind].seconds:
            best[bound.kind] = bound
    return tuple(sorted(best.values(), key=lambda b: -b.seconds))
