"""How many epochs a schedule needs: a lower bound, and what another planner's plan takes."""

from __future__ import annotations

import math

import numpy as np

from ...kernels import at_speed
from ...kernels.paths import all_pairs
from ...model.arrays import Bool, Float64, Int64
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Send
from .epochs import NEVER, Epochs, State, cuts_through


def most_hops(topology: Topology) -> int:
    """The most links on a shortest path between two nodes."""
    work = float(topology.node_count) * topology.link_count
    hops = at_speed(all_pairs, work)(*topology.out_links, topology.dst.astype(np.int64), np.ones(topology.link_count))
    return max(int(hops[np.isfinite(hops)].max()), 1)


def fewest_epochs(epochs: Epochs, state: State, wanted: Bool) -> int:
    """A number of epochs below which there is no schedule of whole chunks.

    By the fastest paths; by what the links into each node, and into each site, can carry; and by what can still be
    spread inside a site. A node gets a chunk either straight from the site's border, or from another node of the site
    that had it whole, at least ``inside_epochs`` before. So what enters the site in the last ``inside_epochs`` has to
    come straight, and of that the node gets no more than its links for that carry in that time.
    """
    topology, nodes = epochs.topology, np.arange(epochs.topology.node_count)
    earliest = epochs.earliest(state)
    least = int(earliest[:, nodes][wanted].max(initial=0))
    first = earliest.min(axis=0)[epochs.places.origin]
    stores = ~topology.is_switch & ~cuts_through(topology)
    for inside in _groups(topology):
        lacks: Bool = wanted & ~state.held[:, inside].any(axis=1, keepdims=True)
        into = np.flatnonzero(inside[topology.dst] & ~inside[topology.src])
        begins = epochs.delay[into] + first[into] - 1
        asked = int(lacks[:, inside].any(axis=1).sum())
        while asked > _carried(epochs, into, least - begins):
            least += 1
        for v in np.flatnonzero(inside & lacks.any(axis=0)).tolist():
            inside_epochs = int(epochs.between[np.flatnonzero(inside & stores & (nodes != v)), v].min(initial=NEVER))
            links = topology.in_links[v].astype(np.int64)
            straight = links[~(inside & stores)[topology.src[links]]]
            late = _carried(epochs, straight, np.full(len(straight), inside_epochs))
            while int(lacks[:, v].sum()) > _carried(epochs, into, least - inside_epochs - begins) + late:
                least += 1
    return least


def _carried(epochs: Epochs, links: Int64, room: Int64) -> int:
    """The chunks that links carry in all, each in the epochs in which it may start them."""
    return int((epochs.capacity[links] * -(-np.maximum(0, room) // epochs.window[links])).sum())


def fewest_epochs_of_flow(epochs: Epochs, arrival: Int64, sources: Int64, demand: Float64) -> int:
    """A number of epochs below which there is no flow of fractions that are not copied.

    Args:
        arrival: int64[sources, nodes], the first epoch in which anything of a source can be at a node.
        demand: float64[sources, nodes], chunks.
    """
    topology, least = epochs.topology, int(arrival[demand > 0].max(initial=0))
    for inside in _groups(topology):
        asked = float(demand[~inside[sources]][:, inside].sum())
        into = inside[topology.dst] & ~inside[topology.src]
        width = float(epochs.per_epoch[into].sum())
        if asked > 0 and width > 0:
            least = max(least, math.ceil(asked / width - 1e-6 + int(epochs.delay[into].min()) - 1))
    return least


def _groups(topology: Topology) -> list[Bool]:
    """bool[nodes] each: every node, and every site where there are several."""
    groups, names = list(np.eye(topology.node_count, dtype=np.bool_)), np.array(topology.sites)
    sites = sorted({site for site in topology.sites if site})
    return groups + [names == site for site in sites] if len(sites) > 1 else groups


def schedule_of(plan: Plan, epochs: Epochs) -> list[Send]:
    """The transfers of another planner's plan as a solution of the program, from which a solver can start.

    They keep their order, and each starts as early as TE-CCL's rules allow.
    """
    topology, places = plan.topology, epochs.places
    order = np.argsort(plan.start_s, kind="stable") if plan.start_s is not None else np.arange(plan.transfer_count)
    used: list[dict[int, int]] = [{} for _ in range(topology.link_count)]
    there: list[dict[int, int]] = [{} for _ in range(plan.transfer_count)]  # the epoch at each place
    release = np.ceil(plan.workload.chunk_start_s / epochs.seconds - 1e-9).astype(np.int64)
    sends: list[Send] = []

    def fits(link: int, k: int) -> bool:
        window, taken = int(epochs.window[link]), used[link]
        near = range(k - window + 1, k + window)
        counts = [taken.get(e, 0) for e in near]
        return all(sum(counts[i : i + window]) < epochs.capacity[link] for i in range(window))

    for t in map(int, order):
        chunk, route = int(plan.chunk[t]), plan.route[t].tolist()
        ahead = {int(p): 0 for p in np.flatnonzero(places.node == plan.src[t])}
        for i in route:
            starts = ahead[int(places.origin[i])]
            ahead |= {int(p[i]): starts + int(after[i]) for p, after in places.landings if p[i] >= 0}
        begins = {i: ahead[int(places.origin[i])] for i in route}
        first = {int(places.origin[i]) for i in route if topology.src[i] == plan.src[t]}
        k = max((there[int(d)][p] for d in plan.depends[t] for p in first), default=int(release[chunk]))
        while not all(fits(i, k + begins[i]) for i in route):
            k += 1
        for i in route:
            at = k + begins[i]
            used[i][at] = used[i].get(at, 0) + 1
            sends.append(Send(at, at + int(epochs.delay[i]), chunk, i))
        there[t] = {p: k + late for p, late in ahead.items()}
    return sends
