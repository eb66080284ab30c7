"""Checks of certificates: each recomputes a bound from its certificate, in the few lines that a reader would write.

They share no code with the searches that found the certificates. A cut, for instance, needs no search to be believed:
add up what must enter it, and how fast it can.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import inf

import numpy as np

from ..model.collective import Collective
from ..model.topology import Topology


def check_cut(topology: Topology, collective: Collective, inside: set[int]) -> Fraction:
    """The least seconds in which all that the nodes inside lack can enter, by bandwidth alone."""
    load = 0
    for piece, size in enumerate(collective.piece_bytes.tolist()):
        holders = {int(collective.ranks[r]) for r in collective.holders[piece]}
        wanted = {int(collective.ranks[r]) for r in collective.wanted[piece]}
        lacking = holders - inside if collective.reduces else not holders & inside
        if wanted & inside and lacking:
            load += size
    width = Fraction(0)
    for a, b, bandwidth in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist(), strict=True):
        if a not in inside and b in inside:
            width += Fraction(bandwidth)
    return Fraction(load) / width


def check_lengths(topology: Topology, collective: Collective, length: list[int]) -> Fraction:
    """The least seconds in which links of these lengths can carry every piece over its distance."""
    links = list(zip(topology.src.tolist(), topology.dst.tolist(), length, strict=True))
    sent: dict[int, list[tuple[int, int]]] = {}
    for piece, size in enumerate(collective.piece_bytes.tolist()):
        (holder,), (receiver,) = collective.holders[piece], collective.wanted[piece]
        sent.setdefault(int(collective.ranks[holder]), []).append((size, int(collective.ranks[receiver])))
    needed = 0
    for source, pieces in sent.items():
        far, nearer = {source: 0}, True
        while nearer:
            nearer = False
            for a, b, way in links:
                if a in far and far[a] + way < far.get(b, far[a] + way + 1):
                    far[b], nearer = far[a] + way, True
        needed += sum(size * far[receiver] for size, receiver in pieces)
    room = sum(Fraction(w) * way for w, way in zip(topology.bandwidth.tolist(), length, strict=True))
    return Fraction(needed) / room


def check_reach(
    topology: Topology, collective: Collective, inside: set[int], holders: set[int], receivers: set[int]
) -> float:
    """The least seconds in which links into a set can serve every receiver with each holder's contribution or piece.

    What goes from one rank to another one may cross as soon as any of it could, until none of it could arrive. A
    byte may hold anything that has come to the beginning of its link; in a switch, which does not sum, only what
    one node has sent there. The time is found by bisection.
    """
    links, far = _links(topology), _far(topology)
    ranks = collective.ranks.tolist()
    alone = not collective.reduces and bool((collective.wanted.lengths == 1).all())
    size = 0
    for piece, its in enumerate(collective.piece_bytes.tolist()):
        wanted = not alone or ranks[int(collective.wanted[piece][0])] in receivers
        size += its if wanted and any(ranks[r] in holders for r in collective.holders[piece]) else 0
    senders = [v for v in far if topology.adds[v]]
    hinges = []
    for (a, b, latency), bandwidth in zip(links, topology.bandwidth.tolist(), strict=True):
        if a in inside or b not in inside:
            continue
        if not collective.reduces:
            held = [min(far[u].get(a, inf) for u in holders)]
        elif not topology.adds[a]:
            by_sender = [sorted(far[u].get(s, inf) + far[s].get(a, inf) for u in holders) for s in senders]
            held = [min(times) for times in zip(*by_sender, strict=True)]
        else:
            held = [far[u].get(a, inf) for u in holders]
        onward = [far[b].get(v, inf) for v in receivers]
        hinges += [(t + latency + s, bandwidth) for t in held for s in ([min(onward)] if alone else onward)]
    needed = size * (1 if alone else len(receivers)) * (len(holders) if collective.reduces else 1)
    return collective.start_s + _halved(hinges, needed)


def check_parts(topology: Topology, collective: Collective, parts: list[set[int]]) -> Fraction:
    """The least seconds in which the buffer of an AllReduce can enter the parts: twice for each part but one."""
    width = Fraction(0)
    storing: set[int] = set()
    for inside in parts:
        assert inside & set(collective.ranks.tolist()), "a part without a rank needs nothing"
        here = {v for v in inside if topology.adds[v]}
        assert not here & storing, "parts share a node"
        storing |= here
        for a, b, bandwidth in zip(topology.src, topology.dst, topology.bandwidth.tolist(), strict=True):
            if a not in inside and b in inside:
                width += Fraction(bandwidth)
    assert storing == set(np.flatnonzero(topology.adds).tolist()), "a node that could sum is in no part"
    return 2 * (len(parts) - 1) * collective.size_bytes / width


def check_windows(
    topology: Topology, collective: Collective, parts: list[set[int]], first: list[int], last: list[int]
) -> float:
    """The least seconds in which links into the parts of an AllReduce, each in its window, can carry what they must.

    Args:
        first, last: for each part a rank in it whose contribution takes longest to leave, and one that is served last.
    """
    links, far = _links(topology), _far(topology)
    ranks, every = set(collective.ranks.tolist()), range(len(parts))
    alone = {v for v in range(topology.node_count) if topology.is_router[v] and sum(v in part for part in parts) == 1}
    home = {v: q for q in every for v in parts[q] if topology.adds[v] or v in alone}
    left = []
    for q in every:
        heads = {b for a, b, _ in links if home.get(a) == q and home.get(b) != q}
        others = ranks - parts[q]
        left.append(max(min(far[b][w] for b in heads) for w in others) if heads <= set(home) else 0.0)
    has_sent = sorted(min(far[first[q]].get(v, inf) for v in home if home[v] != q) for q in every)[-2]
    comes = {b for a, b, _ in links if b in home and home.get(a) != home[b]}
    must_get = sorted(min(far[v].get(last[q], inf) for v in comes if home[v] == q) for q in every)[-2]
    hinges = []
    for (a, b, latency), bandwidth in zip(links, topology.bandwidth.tolist(), strict=True):
        for p in every:
            if a in parts[p] or b not in parts[p]:
                continue
            senders = [home[a]] if a in home else [q for q in every if q != p]
            sent = min(far[first[q]][a] for q in senders)
            reached = max(min(far[u][v] for v in parts[p] if v in home) for u in ranks - parts[p])
            on = [0.0] if b in home else [more for c, _, more in links if c == b]  # until it is stored
            within = [(d, more) for c, d, more in links if c == b and d in parts[p]]
            had = 0.0
            if b in home:
                had = max(0.0, reached - latency, has_sent - latency)
            elif topology.is_switch[b] and within and all(d in home for d, _ in within):
                had = max(0.0, max(reached, has_sent) - latency - max(more for _, more in within))
            opens = max(min(sent, had), min(far[u][a] for u in ranks))
            closes = latency + min(max(min(left[q] for q in senders), must_get + min(on)), far[b].get(last[p], inf))
            hinges.append((opens + closes, bandwidth))
    return collective.start_s + _halved(hinges, 2 * (len(parts) - 1) * collective.size_bytes)


def check_covers(
    topology: Topology,
    collective: Collective,
    sides: tuple[set[int], set[int]],
    early: tuple[list[float], dict[int, list[int]], list[int]],
    late: tuple[list[float], dict[int, list[int]], list[int]],
) -> float:
    """Seconds before which links have no room for the cheapest crossings of each byte: those that carry or serve all.

    Args:
        sides: S1 and S2 of :mod:`.covers`.
        early, late: the moments at which prices change, the prices of each link, the ranks to be covered.
    """
    first, last = sides
    (early_s, early_price, holders), (late_s, late_price, receivers) = early, late
    assert last <= first and not first & set(holders) and set(receivers) <= last, "what is to be covered is elsewhere"
    assert set(holders) | set(receivers) <= set(collective.ranks.tolist()), "no rank"
    links, far = _links(topology), _far(topology)
    before, after = _far(topology, set(far) - first), _far(topology, last)
    senders = [v for v in far if topology.adds[v]]
    sets: tuple[dict[int, int], dict[int, int]] = {}, {}
    enters: tuple[list[int], list[int]] = [], []
    spent, hinges = 0.0, []
    for e, ((a, b, latency), bandwidth) in enumerate(zip(links, topology.bandwidth.tolist(), strict=True)):
        if a not in first and b in first:
            enters[0].append(e)
            by = [a] if topology.adds[a] else senders
            for j, (begin, end) in enumerate(pairwise(early_s)):
                spent += bandwidth * early_price[e][j] * (end - begin)
                for s in by:
                    held = [before[u].get(s, inf) + before[s].get(a, inf) < end - 1e-13 for u in holders]
                    bits = sum(1 << k for k, there in enumerate(held) if there)
                    sets[0][bits] = min(sets[0].get(bits, early_price[e][j]), early_price[e][j])
        if a not in last and b in last:
            enters[1].append(e)
            for j, (begin, end) in enumerate(zip(late_s, [*late_s[1:], inf], strict=True)):
                hinges.append((begin, bandwidth * (late_price[e][j] - (late_price[e][j - 1] if j else 0))))
                bits = sum(1 << k for k, v in enumerate(receivers) if latency + after[b].get(v, inf) < end - 1e-13)
                sets[1][bits] = min(sets[1].get(bits, late_price[e][j]), late_price[e][j])
    costs = [inf, inf]
    for side, elements in enumerate((holders, receivers)):
        cheapest = {0: 0}
        for bits, price in sets[side].items():
            for state, paid in list(cheapest.items()):
                cheapest[state | bits] = min(cheapest.get(state | bits, paid + price), paid + price)
        costs[side] = cheapest.get((1 << len(elements)) - 1, inf)
    begin = early_s[-1] + min(
        0.0 if e == f else links[e][2] + far[links[e][1]].get(links[f][0], inf) for e in enters[0] for f in enters[1]
    )
    needed = collective.size_bytes * min(costs) - spent
    return collective.start_s + _halved([(begin + at, rate) for at, rate in hinges if rate], max(needed, 0.0))


def _links(topology: Topology) -> list[tuple[int, int, float]]:
    return list(zip(topology.src.tolist(), topology.dst.tolist(), topology.latency_s.tolist(), strict=True))


def _far(topology: Topology, among: set[int] | None = None) -> dict[int, dict[int, float]]:
    """Least seconds from each node to those that it reaches, over all nodes or only ``among`` some."""
    far = {v: {v: 0.0} for v in range(topology.node_count)}
    links = [own for own in _links(topology) if among is None or {own[0], own[1]} <= among]
    nearer = True
    while nearer:
        nearer = False
        for a, b, latency in links:
            for known in far.values():
                if a in known and known[a] + latency < known.get(b, inf):
                    known[b] = known[a] + latency
                    nearer = True
    return far


def _halved(hinges: list[tuple[float, float]], needed: float) -> float:
    """When links have carried a number of bytes, each at its bandwidth from its own moment on; by bisection."""
    hinges = [hinge for hinge in hinges if hinge[0] < inf]
    low, high = 0.0, max(at for at, _ in hinges) + needed / min(bandwidth for _, bandwidth in hinges)
    for _ in range(100):
        middle = (low + high) / 2
        served = sum(bandwidth * (middle - at) for at, bandwidth in hinges if at < middle)
        low, high = (low, middle) if served >= needed else (middle, high)
    return low
