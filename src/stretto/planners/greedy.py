"""Greedy matching, searched: every collective at small and middle sizes, where latency and order decide.

Chunks are matched to links event by event, the earliest arrival first and the rarest chunk of those that are there
(:mod:`stretto.kernels.matching`; TACOS, Won et al., MICRO 2024, is the nearest relative). What ties leave open is
searched (:mod:`.greedy_search`). Sums are the same backwards in time; AllReduce is both, or an exchange
(:mod:`.exchange`). How finely chunks are cut is tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import thread_time as clock

import numpy as np

from ..bounds import bounds, distances
from ..collective import KINDS, Collective, Workload
from ..errors import InputError
from ..plan import Plan
from ..topology import ACCELERATOR, Topology
from . import Option, Progress, register
from .crossed import crossed
from .dispatch import completion, dispatched, justified
from .exchange import MOST_RANKS, exchanged
from .exchange_clusters import in_clusters
from .exchange_crossings import in_crossings
from .exchange_exact import in_fewest_hops
from .exchange_products import in_product
from .greedy_search import Search, effort
from .inversion import plan_in_phases
from .lowering import divide

MOST_WORK = 40_000
"""Chunks are not cut further where one try would take more work, unless it does so uncut."""

LEAST_GAIN = 0.005
"""Cutting goes on as long as one of the last two steps brought the completion so much nearer."""

QUICK_TRIES = 6
"""How many solutions are tried with each number of parts."""

EXCHANGES = 1
"""How many shapes of exchanges of each kind are cut finer for an AllReduce."""

NEAR = 1.02
"""An exchange that ends after so many times the bound is good enough where hops do not decide."""

ASK_ABOVE, HOPS_DECIDE = 1.05, 0.5
"""Where the longest way alone takes such a share of the bound, hops decide: an exchange that ends after so many times
the bound is good enough, and else the exact model of the fewest hops is asked."""

CLUSTERS_ABOVE = 1.15
"""Where hops decide, an AllReduce by clusters is tried if exchanges end later than so many times the bound; else it is
tried first, and others if it ends later."""

CROSS_WHERE = 0.4
"""Sums of parts of clusters cross where the longest way alone takes such a share of the bound."""

CROSS_ABOVE = 1.05
"""Other trees outward than inward are tried where an AllReduce ends later than so many times the bound."""

HOPEFUL = 1.1
"""What ends later than so many times what an exchange takes, or would with finer chunks, is not searched further."""

HOPELESS = 1.4
"""Where some link would be busy for so many times the bound an exchange is not looked at further."""

OPTIONS = (
    Option("parts", int, 0, "cut every chunk into so many more; 0 chooses"),
    Option("work", int, 300_000, "how many deliveries the search may try"),
    Option("tries", int, 2_000, "how many solutions it may try"),
)


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if workload.chunk_reduces.any() and not topology.transit[topology.kind != ACCELERATOR].all():
        return "it sums over ways through switches and routers, and one of these may not be passed through"
    return None


@register(
    "greedy",
    collectives=(*KINDS, "multicast"),
    topologies="any without planes",
    paper="our own; greedy matching as in TACOS, MICRO 2024",
    options=OPTIONS,
    serves=_unserved,
)
def greedy(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    parts: int = 0,
    work: int = 300_000,
    tries: int = 2_000,
) -> Plan:
    """Chunks matched to links, earliest arrival first, and the order of what ties searched.

    Args:
        seed: of the search.
        time_limit_s: of CPU time, after which the best so far is returned; an exchange that has begun is finished.
            The search counts its work, so that without a limit (or within it) equal requests give equal plans.
        parts: into how many parts each chunk is cut, 0 to choose. An AllReduce's is cut for each rank before.
        work, tries: how many deliveries are tried in all, and how many solutions, with the best number of parts.
    Returns:
        A timed plan.
    Raises:
        InputError: ``parts``, ``work`` or ``tries`` is negative. Infeasible: some rank has no path from a source.
    """
    for name, value in (("parts", parts), ("work", work), ("tries", tries)):
        if value < 0:
            raise InputError(f"{value} is below 0", f"--option {name}")
    until_s = math.inf if time_limit_s is None else clock() + time_limit_s
    if parts:
        return _planned(topology, workload, parts, Search(work, tries, seed, until_s))
    meeting = _meeting(topology, workload, seed, until_s)
    if meeting is not None and (meeting[1] or clock() > until_s):
        return meeting[0]
    meets_s = math.inf if meeting is None else _ends(meeting[0])
    tried: dict[int, tuple[float, Plan]] = {}
    for count in _counts(topology, workload):
        if tried and clock() > until_s:
            break
        if progress is not None:
            progress(len(tried), len(tried) + 1, f"{count} parts")
        plan = _planned(topology, workload, count, Search(work // 20, QUICK_TRIES, seed, until_s))
        tried[count] = _ends(plan), plan
        last = [t[0] for t in tried.values()]
        if len(last) > 2 and min(last[-2:]) > min(last[:-2]) * (1 - LEAST_GAIN):
            break
        # what chunks wait for each other is halved with them
        if len(last) > 1 and 2 * last[-1] - last[-2] > HOPEFUL * meets_s:
            break
    best = min(tried, key=lambda count: tried[count][0])
    plans = [tried[best][1]]
    hopeful = tried[best][0] < HOPEFUL * meets_s
    if hopeful and 2 * effort(topology, plans[0].workload) <= work and clock() <= until_s:
        plans.append(_planned(topology, workload, best, Search(work, tries, seed, until_s)))
    if hopeful and (workload.chunk_reduces & (workload.chunk_wanted.lengths > 1)).any():
        # copies need not wait for all sums
        plan = min(plans, key=_ends)
        plans.append(dispatched(plan, np.zeros(plan.workload.chunk_count)))
        if _may_gain(topology, workload, min(map(_ends, plans)), meets_s) and clock() <= until_s:
            plans.append(crossed(topology, plan.workload, Search(work // 20, 1, seed, until_s)))
    if meeting is not None:
        plans.append(meeting[0])
    found = min(plans, key=_ends)
    return justified(found) if 0 < found.transfer_count <= work else found


def _meeting(topology: Topology, workload: Workload, seed: int, until_s: float) -> tuple[Plan, bool] | None:
    """An AllReduce by exchange, and whether nothing else need be tried: it is near the bound, or sooner than any by way
    of one rank."""
    c = workload.collectives[0]
    if len(workload.collectives) > 1 or c.kind != "allreduce" or len(c.ranks) > MOST_RANKS:
        return None
    found = bounds(topology, workload)
    bound, far = found[0].seconds, next((b.seconds for b in found if b.kind == "latency path"), 0.0)
    hops_decide = far >= HOPS_DECIDE * bound
    plan = in_product(topology, workload) if hops_decide else in_clusters(topology, workload)
    if hops_decide and plan is not None and not _late(plan, ASK_ABOVE * bound):
        return plan, True
    if hops_decide or _late(plan, CLUSTERS_ABOVE * bound):
        plan = _sooner(plan, exchanged(topology, workload, EXCHANGES, seed, HOPELESS * bound, until_s))
    if hops_decide and _late(plan, ASK_ABOVE * bound) and clock() <= until_s:
        plan = _sooner(plan, in_fewest_hops(topology, workload, seed))
    if far >= CROSS_WHERE * bound and _late(plan, CLUSTERS_ABOVE * bound) and clock() <= until_s:
        plan = _sooner(plan, in_crossings(topology, workload))
    if hops_decide and _late(plan, CLUSTERS_ABOVE * bound) and clock() <= until_s:
        plan = _sooner(plan, in_clusters(topology, workload))
    near = ASK_ABOVE if hops_decide else NEAR
    return None if plan is None else (plan, _ends(plan) <= max(near * bound, _rooted_s(topology, c)))


def _rooted_s(topology: Topology, c: Collective) -> float:
    """Seconds before which no sum comes to one rank and from there to all."""
    far = distances(topology, 0.0)[np.ix_(c.ranks, c.ranks)]
    return float((far.max(axis=0) + far.max(axis=1)).min())


def _sooner(*plans: Plan | None) -> Plan | None:
    """What ends first of what there is."""
    return min((plan for plan in plans if plan is not None), key=_ends, default=None)


def _late(plan: Plan | None, by_s: float) -> bool:
    return plan is None or _ends(plan) > by_s


def _may_gain(topology: Topology, workload: Workload, end_s: float, meets_s: float) -> bool:
    """Whether a single AllReduce may end much sooner than it does, and an exchange does not end much sooner."""
    if len(workload.collectives) > 1 or workload.collectives[0].kind != "allreduce":
        return False
    return CROSS_ABOVE * bounds(topology, workload)[0].seconds < end_s < HOPEFUL * meets_s


def _ends(plan: Plan) -> float:
    return completion(plan) if plan.transfer_count else 0.0


def _counts(topology: Topology, workload: Workload) -> Iterator[int]:
    """1, 2, 4, ... as far as work and bytes allow."""
    least = effort(topology, _finer(workload, 1))
    count = 1
    while count == 1 or (least * count <= MOST_WORK and count <= int(workload.chunk_bytes.max())):
        yield count
        count *= 2


def _finer(workload: Workload, parts: int) -> Workload:
    """Every chunk cut, what everyone wants summed into a part a rank before."""
    each = ((c, parts * (len(c.ranks) if c.kind == "allreduce" else 1)) for c in workload.collectives)
    return Workload(tuple(divide(c, count)[0] for c, count in each))


def _planned(topology: Topology, workload: Workload, parts: int, search: Search) -> Plan:
    plan = plan_in_phases(topology, _finer(workload, parts), search, mirrored=True)
    plan.meta["parts"] = parts
    return plan
