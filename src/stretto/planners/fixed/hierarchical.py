"""hierarchical: halving and doubling inside servers and across them, with all chunks of a step in few messages.

Where messages cost as much as bytes, what counts is in how many steps all ranks hear from all. Halving and doubling
takes 2 log n steps of one message each, which carry half of the data, then a quarter, and so on. In a cluster the
largest of them should stay inside a server, and those across servers should follow the rails, or go around a ring
where rails are narrow from switch to switch. So the ranks are cells of a grid, servers along one dimension and the
places in a server along the other, and each dimension has an algorithm of its own (:mod:`stretto.schedule.grid_steps`).
Where servers are uneven, or few of their ranks reach other servers, data goes by gateways
(:mod:`stretto.schedule.by_servers`). Servers are what faster links join, or sites; without any, the grid has one
dimension. On a torus, where ranks are joined to neighbours alone, all ranks send to these alike (:mod:`.neighbours`).
Where only some accelerators are ranks, idle ones may take part (:mod:`.wider`). In an AllReduce the last steps of
halving may be left out, and whole sums exchanged in their place, which takes fewer steps. Of all these algorithms those
are planned that end first if one step began after another. A Broadcast or Reduce always goes by gateways, a part of the
data by each. Of its algorithms those are planned that end first if each message began when its data is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product, starmap
from math import inf, prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int32, Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.algorithms import ALL_PAIRS, BINOMIAL, DISSEMINATION, Algorithm, Step, dissemination, exchange
from ...schedule.best import best, completion_s
from ...schedule.branching import sent
from ...schedule.by_servers import APART, AT_ONCE, CHAIN, EXCHANGE, Gateways
from ...schedule.cutting import messages_cost
from ...schedule.grid_steps import exchanged_last, on_grid
from ...schedule.pipes import build_network
from ...schedule.servers import gateways, grids, server_labels, too_many
from ...schedule.spreading import ways_in_turn
from ...schedule.ways import Ways, ways_of
from .. import Candidate, Request, over_links, register
from .hops import Hop
from .neighbours import lines_of, neighbours, product_among
from .overlaps import MOST_DIRECT, few_steps, fits, overlaps
from .planner import pairless, plan_algorithm
from .wider import wider

BETWEEN_SERVERS = {
    "allgather": (DISSEMINATION.name, "ring"),
    "reducescatter": (DISSEMINATION.name, "ring"),
    "alltoall": (DISSEMINATION.name, "pairwise"),
    "allreduce": (DISSEMINATION.name, "ring", EXCHANGE.name),
}
"""Algorithms between gateways; one of few steps, one of few bytes."""

FROM_ROOT = (BINOMIAL.name, DISSEMINATION.name, CHAIN, APART)
"""The same from the root's server to all others, or backwards."""

ROOTED = ("broadcast", "reduce")

MOST_COPIES = 300_000
"""Copies of blocks to ranks in a Broadcast or Reduce, at most. Planning 512 blocks for 512 GPUs takes 4 s of CPU
(``stretto plan broadcast -t h100:64 --size 16MB -p hierarchical``)."""

SPREAD_AT_ONCE = ("allgather", "alltoall", "reducescatter", "allreduce", "broadcast")
"""Collectives in which gateways may copy what they have to all ranks of their server in one message, by switches."""

OVERLAPPED = 12
"""Algorithms whose phases are tried at the same time: those that end first, step after step, by an estimate in which
messages are divided among equally quick ways."""

PLANNED = 5
"""Algorithms that are planned step after step: those that end first by an estimate. With 3, AllReduce of 64 KB on
``servers:33665?message=2us`` (benchmarks/heldout.py -t) takes 2 % longer; 8 change nothing there."""

RANK_STEPS, DELIVERY_STEPS, PAIR_STEPS = 4_000.0, 18.0, 36.0
"""Steps for each rank and for each delivery; the last for those of an AllToAll, whose blocks go by several ranks. With
a message of 1 us AllGather of 16 MB on h100:16 takes 0.8 s of CPU, and on fattree:8, where ways are several, 2.4 s
(128 ranks, 0.8 million steps)."""

OVERLAP_GAINS = 0.5
"""What a plan takes at least, about, as a share of what its algorithm takes step after step: phases may overlap."""

DECIDED = 0.9
"""Completion of a plan whose phases overlap, as a multiple of that of the first algorithm step after step, up to which
no other algorithm is planned so."""


def _refusal(topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    reason = over_links(topology, workload)
    if reason is None and len(workload.collectives) > 1:
        reason = "it plans one collective at a time"
    reason = reason or too_many(topology)
    if reason is None:
        (c,) = workload.collectives
        if not any(_algorithms(topology, c, ways_of(topology))) and not _goes_to_neighbours(topology, c):
            reason = "no link or switch joins the ranks that would exchange data"
    return reason


def _goes_to_neighbours(topology: Topology, c: Collective) -> bool:
    """Whether data may go from neighbour to neighbour alone."""
    served = c.kind in BETWEEN_SERVERS and c.is_whole and messages_cost(topology)
    if not served or not topology.store_and_forward[c.ranks].all():
        return False
    every = (c.ranks, *(wide.c.ranks for wide in wider(topology, c)))
    return any(neighbours(topology, ranks) or product_among(topology, ranks) for ranks in every)


def _steps(request: Request) -> float:
    """Steps that the routes of all ranks, the estimates of all algorithms and the plans of some take, about."""
    first = request.workload.collectives[0]
    each = PAIR_STEPS if first.traits.pieces == "pair" else DELIVERY_STEPS
    nodes = np.array([len(first.ranks), *(len(wide.c.ranks) for wide in wider(request.topology, first))])
    return float((RANK_STEPS * nodes + each * request.deliveries * (nodes / nodes[0]) ** 2).sum())


class _Estimate(NamedTuple):
    """When an algorithm ends, seconds, about: step after step, in a message a pair; and if each message is divided
    among equally quick ways, as where the data is in slices."""

    in_turn_s: float
    divided_s: float
    algorithm: Algorithm


@lru_cache(maxsize=1)
def _estimated(topology: Topology, c: Collective) -> list[_Estimate]:
    """The algorithms that serve a collective; the soonest first."""
    ways = ways_of(topology)
    algorithms = list(_algorithms(topology, c, ways))
    coarse = [a for a in algorithms if _blocks(a, c) * c.chunk_count <= c.piece_bytes.min() * len(c.piece_bytes)]
    ends = []
    for algorithm in coarse or algorithms:
        if c.traits.rooted:
            in_turn_s = divided_s = _when_ready_s(algorithm, topology, c, ways)
        else:
            in_turn_s, divided_s = _in_turn_s(algorithm, topology, c, ways)
        ends.append(_Estimate(in_turn_s, divided_s, algorithm))
    return sorted(ends, key=lambda end: end.in_turn_s)


def _least_s(request: Request) -> float:
    """Seconds that a plan takes at least, about; 0 where that is not known: where all ranks look alike, in an AllToAll
    among neighbours, and on grids with relays or with unlike links along a dimension."""
    topology, (c,) = request.topology, request.workload.collectives
    estimated = _estimated(topology, c)
    least_s = OVERLAP_GAINS * min((each.divided_s for each in estimated), default=inf)
    if not _goes_to_neighbours(topology, c):
        return least_s
    grid = None if c.traits.pieces == "pair" or wider(topology, c) else product_among(topology, c.ranks)
    if grid is None or neighbours(topology, c.ranks) is not None:
        return 0.0
    lines, are_alike = lines_of(topology, grid, c.ranks)
    if not are_alike:
        return 0.0
    return min(least_s, *(way.least_s for way in ways_in_turn(grid, c.kind, lines, c.size_bytes / len(c.ranks))))


@register(
    "hierarchical",
    collectives=(*BETWEEN_SERVERS, *ROOTED),
    topologies="where ranks of a server are joined, some of them with other servers; tori and meshes; without planes",
    paper="Rabenseifner, ICCS 2004; Bruck et al., IEEE TPDS 1997",
    messages=True,
    serves=_refusal,
    auto=Candidate(
        _steps,
        leads=True,
        few_messages=True,
        asked=lambda r: r.several_chunks and messages_cost(r.topology),
        least_s=_least_s,
    ),
)
def hierarchical(request: Request) -> Plan:
    """Halving and doubling inside servers and across them, several chunks in a message.

    Returns:
        A plan in ready-order, or with times where messages of a step share links. Its ``meta["algorithm"]`` says which
        algorithm it follows.
    """
    (c,) = request.workload.collectives
    ways, estimated = ways_of(request.topology), _estimated(request.topology, c)
    soonest = [each.algorithm for each in estimated]
    divided = [each.algorithm for each in sorted(estimated, key=lambda each: each.divided_s)]
    plans = [_in_turn(soonest[0], request, ways)] if soonest else []
    plans += overlaps(request, ways, divided[:OVERLAPPED], completion_s(plans[0]) if plans else inf)
    if soonest and completion_s(plans[-1]) > DECIDED * completion_s(plans[0]):
        plans += [_in_turn(algorithm, request, ways) for algorithm in soonest[1:PLANNED]]
    if not plans:
        reason = "from neighbour to neighbour it needs messages of several chunks, and a byte or more for each rank"
        raise Unsupported(f"hierarchical does not serve {request.topology.name}: {reason}")
    return best(plans)


def _in_turn(algorithm: Algorithm, request: Request, ways: Ways) -> Plan:
    """The plan of an algorithm, step after step."""
    plan = plan_algorithm(algorithm, request, ways, timed=True)
    return plan.noted(plan.meta | {"algorithm": algorithm.summary})


def _blocks(algorithm: Algorithm, c: Collective) -> int:
    """The blocks of each piece."""
    return algorithm.blocks(c.kind, len(c.ranks), int(c.piece_bytes.max()))


def _in_turn_s(algorithm: Algorithm, topology: Topology, c: Collective, ways: Ways) -> tuple[float, float]:
    """Seconds that an algorithm takes if each step begins when the one before it has ended, in a message a pair; and if
    each message is divided among equally quick ways."""
    total_s = np.zeros(2)
    for _, lanes, each_s, _ in _messages(algorithm, topology, c, ways):
        each = zip(lanes, each_s, strict=True)
        busy_s = np.stack([np.bincount(lane.values, lane_s, topology.link_count) for lane, lane_s in each])
        total_s += (busy_s[0].max(), busy_s.mean(axis=0).max()) + topology.route_latency_s(lanes[0]).max()
    return float(total_s[0]), float(total_s[1])


def _when_ready_s(algorithm: Algorithm, topology: Topology, c: Collective, ways: Ways) -> float:
    """Seconds that an algorithm takes if each message begins when its blocks are there and earlier steps have left its
    links; all messages of a step that share a link end together there."""
    come_s = np.zeros((_blocks(algorithm, c), len(algorithm.nodes(c.ranks))))
    free_s = np.zeros(topology.link_count)
    for step, (routes,), (each_s,), of in _messages(algorithm, topology, c, ways):
        ready_s, link = np.zeros(routes.rows), routes.values
        np.maximum.at(ready_s, of, come_s[step.block, step.src])
        first_s = np.full(topology.link_count, np.inf)
        np.minimum.at(first_s, link, ready_s[routes.owners])
        used = np.unique(link)
        free_s[used] = np.maximum(free_s, first_s)[used] + np.bincount(link, each_s, topology.link_count)[used]
        np.maximum.at(free_s, link, ready_s[routes.owners] + each_s)
        end_s = np.maximum.reduceat(free_s[link], routes.offsets[:-1]) + topology.route_latency_s(routes)
        np.maximum.at(come_s, (step.block, step.dst), end_s[of])
    return float(come_s.max())


def _messages(
    algorithm: Algorithm, topology: Topology, c: Collective, ways: Ways
) -> Iterator[tuple[Step, list[Ragged], list[Float64], Int64]]:
    """Each step of an algorithm, the ways of its messages, the seconds that these take on every link of their ways, and
    the message of each row. Ways and seconds are given for each lane in which messages may go; with a root for one."""
    n, piece, nodes = len(c.ranks), int(c.piece_bytes.max()), algorithm.nodes(c.ranks)
    block_bytes = piece / _blocks(algorithm, c)
    for step in algorithm.steps(c.kind, n, piece, max(c.root, 0)):
        if algorithm.at_once:
            routes, blocks, of = sent(step, nodes, ways.to_all)
            lanes = [routes]
        else:
            sends, of, blocks = np.unique(step.src * len(nodes) + step.dst, return_inverse=True, return_counts=True)
            pairs = nodes[np.stack(np.divmod(sends, len(nodes)), axis=1)]
            lanes = ways.lanes(pairs, alone=c.traits.rooted)
        each_s = [
            topology.message_s[lane.values] + blocks[lane.owners] * block_bytes / topology.bandwidth[lane.values]
            for lane in lanes
        ]
        yield step, lanes, each_s, of


def _algorithms(topology: Topology, c: Collective, ways: Ways) -> Iterator[Algorithm]:
    """The algorithms that serve a collective on a network."""
    kind = c.kind
    if c.traits.reduces_to_all and pairless(EXCHANGE, topology, c, ways) is None:
        yield EXCHANGE
    work = float(len(topology.accelerators)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    labels = server_labels(topology, network, c.ranks)
    spreads = (False, True) if kind in SPREAD_AT_ONCE and topology.replicates.any() else (False,)
    if c.traits.rooted:
        ranks = np.arange(len(c.ranks))
        lanes = np.sort(np.roll(ranks, -c.root)[: max(1, MOST_COPIES // len(ranks))])
        alone = Gateways([ranks], lanes[:, None], len(ranks))
        for servers in (alone, *gateways(topology, network, c.ranks, labels, cells=True)):
            for algorithm in _rooted(_leading(servers, c, ways), c, [AT_ONCE] if spreads[-1] else []):
                if pairless(algorithm, topology, c, ways) is None:
                    yield algorithm
        return
    for algorithm in _on_grids(topology, c, grids(c.ranks, labels), ways):
        if pairless(algorithm, topology, c, ways) is None:
            yield algorithm
    for wide in wider(topology, c):
        for algorithm in wide.algorithms(_on_grids(topology, wide.c, wide.cells, ways)):
            if pairless(algorithm, topology, c, ways) is None:
                yield algorithm
    for servers in gateways(topology, network, c.ranks, labels):
        lane = np.concatenate((c.ranks, np.array(servers.relays, dtype=c.ranks.dtype)))[servers.gateway[0]]
        hop = Hop.of(lane, topology, ways)
        few = _lines(c, len(lane), False, hop)[-1]
        tried = [(name, tuple[int, ...]()) for name in dict.fromkeys((few, *BETWEEN_SERVERS[kind]))]
        if c.traits.reduces_to_all and (groups := hop.groups(len(lane), c.size_bytes / len(servers.gateway))):
            tried.append((EXCHANGE.name, groups))
        for (between, among), at_once in product(tried, spreads):
            algorithm = servers.algorithm(kind, between, at_once, among)
            if pairless(algorithm, topology, c, ways) is None:
                yield algorithm


def _on_grids(topology: Topology, c: Collective, cells: Iterable[tuple[Int64, int]], ways: Ways) -> Iterator[Algorithm]:
    """The algorithms on grids of the numbers of ranks."""
    for rank, across in cells:
        if not all(_joined_beside(c.ranks[np.moveaxis(rank, d, 0)], ways) for d in range(rank.ndim)):
            continue
        first = [c.ranks[np.moveaxis(rank, d, 0).reshape(count, -1)[:, 0]] for d, count in enumerate(rank.shape)]
        hops = [Hop.of(line, topology, ways) for line in first]
        around = np.stack((c.ranks, np.roll(c.ranks, -1)), axis=1)
        rings = rank.ndim == 1 and all(starmap(ways.join, around.tolist())) and ways.are_several(around)
        choices = [_lines(c, count, d == across or rings, hops[d]) for d, count in enumerate(rank.shape)]
        yield from (on_grid(c.kind, rank.shape, rank.ravel(), 1, lines).algorithm for lines in product(*choices))
        if c.traits.reduces_to_all:
            yield from _exchanges(rank, hops, c)


def _leading(servers: Gateways, c: Collective, ways: Ways) -> Gateways:
    """The lanes that lead from the root's server to all others, or backwards if the root sums up."""
    nodes = np.concatenate((c.ranks, np.array(servers.relays, dtype=c.ranks.dtype)))[servers.gateway]
    home = servers.home(c.root)
    away = np.delete(nodes, home, axis=1)
    ends = np.stack((np.broadcast_to(nodes[:, [home]], away.shape), away), axis=-1).reshape(-1, 2)
    joined = np.array([ways.join(a, b) for a, b in (ends[:, ::-1] if c.reduces else ends).tolist()], dtype=np.bool_)
    return replace(servers, gateway=servers.gateway[joined.reshape(away.shape).all(axis=1)])


def _rooted(servers: Gateways, c: Collective, at_once: Sequence[str]) -> Iterator[Algorithm]:
    """Broadcast or Reduce by gateways, if there are any."""
    lanes, count = servers.gateway.shape
    across = FROM_ROOT[: None if count > 2 else 1]  # else all are the same
    direct = [ALL_PAIRS.name, *at_once] if max(map(len, servers.servers)) <= MOST_DIRECT else []
    for between, inside in product(across if lanes else (), (DISSEMINATION.name, *direct)):
        if lanes * (count if between == DISSEMINATION.name else 1) * len(c.ranks) <= MOST_COPIES:
            yield servers.rooted(c.kind, c.root, between, inside)


def _exchanges(rank: Int64, hops: Sequence[Hop], c: Collective) -> Iterator[Algorithm]:
    """AllReduce on a grid, for each number of ranks that may exchange whole sums at the end.

    These are all of the last dimensions, and of the one before them a part or all.
    """
    for d, count in enumerate(rank.shape):
        powers = [1 << k for k in range(1, count.bit_length()) if count % (1 << k) == 0]
        for last in dict.fromkeys((*powers, count)):
            first = [n for n in (*rank.shape[:d], count // last) if n > 1]
            parted = np.moveaxis(rank.reshape(*rank.shape[:d], last, count // last, -1), d, d + 1)
            grid = parted.reshape(*first, -1)
            each_bytes = c.size_bytes / prod(first)
            sizes = (last, *rank.shape[d + 1 :])
            parts = [hop.groups(n, each_bytes) for hop, n in zip(hops[d:], sizes, strict=True)]
            among = exchange([n for part in reversed(parts) for n in part]) if all(parts) else EXCHANGE
            yield exchanged_last(grid.shape, grid.ravel(), [few_steps("allreduce", n) for n in first], among)


def _joined_beside(node: Int32, ways: Ways) -> bool:
    """Whether the nodes at places 0 and 1, 2 and 3, ... of lines are joined one way: partners in every algorithm.

    Args:
        node: int32[places, lines] or int32[places].
    """
    even = len(node) // 2 * 2
    first, second = node[:even:2].ravel(), node[1:even:2].ravel()
    return all(ways.join(a, b) or ways.join(b, a) for a, b in zip(first.tolist(), second.tolist(), strict=True))


def _lines(c: Collective, count: int, rings: bool, hop: Hop) -> list[str]:
    """The algorithms in a line of ``count`` ranks.

    Args:
        rings: whether it may also be a ring, which passes narrow links between switches less often.
    """
    moved_bytes = c.piece_bytes.max() * len(c.ranks) / count if c.traits.pieces == "pair" else 0.0
    found = [few_steps(c.kind, count), dissemination(hop.radix(count, moved_bytes)).name]
    return list(dict.fromkeys(found + ["ring"] * (rings and fits("ring", c.kind, count))))
