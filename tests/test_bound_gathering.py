"""The bound of what ranks gather and give away in messages, beside the best of all schedules of small cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds, gathering
from stretto.bounds.gathering import gathering_bound, groups_of
from stretto.bounds.gathering_places import Places
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def network(spec: str):
    """A network whose switches do not copy."""
    net = load_topology(spec)
    return replace(net, replicates=np.zeros(net.node_count, dtype=bool))


def routes(net):
    """For each two ranks that links or switches join, the links of the way."""
    out = {v: [e for e in range(net.link_count) if net.src[e] == v] for v in range(net.node_count)}
    found = {}
    for a in net.accelerators.tolist():
        for e in out[a]:
            if not net.is_switch[net.dst[e]]:
                found[a, int(net.dst[e])] = [e]
            for f in out[int(net.dst[e])] if net.is_switch[net.dst[e]] else ():
                if net.dst[f] != a:
                    found[a, int(net.dst[f])] = [e, f]
    return found


def servers(links, switched=()):
    """A network of ranks, of which links (a, b, bytes/s) join some both ways, and a switch that copies not some others."""
    n = 1 + max(v for one in (*links, *switched) for v in one[:-1])
    rows = [(a, b, width, 2e-6) for x, y, width in links for a, b in ((x, y), (y, x))]
    rows += [(a, b, width, 2e-6) for v, width in switched for a, b in ((v, n), (n, v))]
    net = make_topology("servers", [ACCELERATOR] * n + [SWITCH] * bool(switched), rows)
    return replace(
        net, replicates=np.zeros(net.node_count, dtype=bool), message_s=np.full(net.link_count, 20e-6)
    )  # fmt: skip


def planned_s(net, work) -> float:
    """When a plan ends. Four times the effort makes plans for the random networks below 2 % shorter on average, and
    those that end near the bound no shorter."""
    return simulate(run_planner("auto", net, work, effort="0.05")).completion_s


SERVERS = {
    "a server of two and one of one": servers([(0, 1, 9e9), (0, 2, 1e9)]),
    "a server of two and one of one at a switch": servers([(0, 1, 9e9)], [(1, 1e9), (2, 1e9)]),
    "two servers of two": servers([(0, 1, 9e9), (2, 3, 9e9), (0, 2, 1e9)]),
}


class Ways:
    """The ways between ranks, in plain numbers, which a search needs many times.

    Attributes:
        links: of each way.
        latency_s: of each way, seconds.
        busy_s: of each way, for how long a message of so many pieces keeps its links busy.
        into: by rank, the ways that lead to it.
    """

    def __init__(self, net, size: float, most: int) -> None:
        self.links = routes(net)
        message_s, bandwidth, latency_s = net.message_s.tolist(), net.bandwidth.tolist(), net.latency_s.tolist()
        self.latency_s = {way: sum(latency_s[e] for e in links) for way, links in self.links.items()}
        self.busy_s = {
            way: [max(message_s[e] + count * size / bandwidth[e] for e in links) for count in range(most + 1)]
            for way, links in self.links.items()
        }
        self.into = {b: [way for way in self.links if way[1] == b] for b in net.accelerators.tolist()}


class Search:
    """The best of all schedules of an AllGather or an AllToAll: every order of messages, each with any pieces."""

    def __init__(self, net, kind: str, size: float) -> None:
        ranks, self.link_count = net.accelerators.tolist(), net.link_count
        self.pieces = (
            [(h, w) for h in ranks for w in ranks if h != w] if kind == "alltoall" else [(h, None) for h in ranks]
        )
        wants = {(w, p) for p, (h, w) in enumerate(self.pieces)} if kind == "alltoall" else set()
        self.wants = wants or {(v, p) for v in ranks for p, (h, _) in enumerate(self.pieces) if h != v}
        self.ways = Ways(net, size, len(self.pieces))
        # by rank, for each link that leads to it: for how long many pieces in one message keep it busy, and its latency
        self.last = {
            b: [
                (
                    e,
                    [
                        float(net.message_s[e] + count * size / net.bandwidth[e])
                        for count in range(len(self.pieces) + 1)
                    ],
                    float(net.latency_s[e]),
                )
                for e in sorted({self.ways.links[way][-1] for way in ways})
            ]
            for b, ways in self.ways.into.items()
        }
        self.best = np.inf
        self.seen = set()  # of schedules that differ in the order of messages that start at once, one is followed

    def run(self) -> float:
        at = {(h, p): 0.0 for p, (h, _) in enumerate(self.pieces)}
        self._search(at, dict.fromkeys(range(self.link_count), 0.0), 0.0)
        return self.best

    def _search(self, at, free, last) -> None:
        state = frozenset(at.items()), tuple(free.values()), last
        if state in self.seen:
            return
        self.seen.add(state)
        missing = self.wants - at.keys()
        if not missing:
            self.best = min(self.best, max(at[want] for want in self.wants))
            return
        if any(self._earliest(b, [w for w, _ in missing].count(b), free, last) >= self.best for b, _ in missing):
            return
        for (a, b), links in self.ways.links.items():
            new = [p for v, p in at if v == a and (b, p) not in at]
            for count in range(1, len(new) + 1):
                cost = self.ways.busy_s[a, b][count]
                for sent in combinations(new, count):
                    start = max([at[a, p] for p in sent] + [free[e] for e in links])
                    if start < last:  # schedules in the order in which messages start
                        continue
                    end = start + cost + self.ways.latency_s[a, b]
                    if end >= self.best:
                        continue
                    self._search(at | {(b, p): end for p in sent}, free | dict.fromkeys(links, start + cost), start)

    def _earliest(self, rank, count, free, last) -> float:
        """When a rank has so many more pieces at the earliest: a link to it carries its part of them, in one message."""
        part = -(-count // len(self.last[rank]))
        return min(max(free[e], last) + busy_s[part] + latency_s for e, busy_s, latency_s in self.last[rank])


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("line:3", "allgather"), ("star:3", "allgather"), ("fullmesh:3", "allgather"), ("star:4", "allgather"),
     ("line:3", "alltoall"), ("star:3", "alltoall")],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.3, 3.0])
def test_no_schedule_of_a_small_case_beats_it(spec, kind, share):
    """``share`` is what the bytes of a piece take, as a share of what a message costs."""
    net = network(f"{spec}?bandwidth=1GB/s&latency=2us&message=20us")
    piece = round(share * 20e-6 * 1e9)
    work = Workload((make_collective(kind, net, piece * len(net.accelerators)),))
    optimum_s = Search(net, kind, piece).run()
    assert bounds(net, work)[0].seconds <= optimum_s * (1 + 1e-9)
    found = gathering_bound(net, work, 1e-9 + 20e-6)
    assert found is not None and found.seconds <= optimum_s


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
@pytest.mark.parametrize("share", [0.3, 3.0])
def test_no_schedule_among_small_servers_beats_it(name, kind, share):
    net = SERVERS[name]
    if kind == "alltoall" and len(net.accelerators) > 3:
        pytest.skip("too many pieces for a search")
    piece = round(share * 20e-6 * 1e9)
    work = Workload((make_collective(kind, net, piece * len(net.accelerators)),))
    optimum_s = Search(net, kind, piece).run()
    assert bounds(net, work)[0].seconds <= optimum_s * (1 + 1e-9)
    for from_s in (20e-6, 70e-6, 200e-6):
        found = gathering_bound(net, work, from_s)
        assert found is None or found.seconds <= optimum_s * (1 + 1e-9)


class SearchOfSums:
    """The best of all schedules of an AllReduce or a Reduce among three ranks: every order of messages, each with any
    blocks.

    It may do more than plans can: contributions that come twice count once.
    """

    def __init__(self, net, blocks: int, size: float, best: float, wanting) -> None:
        self.ways, self.link_count, self.best, self.wanting = Ways(net, size, blocks), net.link_count, best, wanting
        self.sets = [c for n in range(1, blocks + 1) for c in combinations(range(blocks), n)]
        self.seen = set()
        self.ranks = net.accelerators.tolist()
        self.all = sum(1 << v for v in self.ranks)

    def run(self, blocks: int) -> float:
        came = {(v, b): ((0.0, 1 << v),) for v in self.ranks for b in range(blocks)}
        self._search(came, dict.fromkeys(range(self.link_count), 0.0), 0.0)
        return self.best

    def _search(self, came, free, last) -> None:
        state = tuple(map(frozenset, came.values())), tuple(free.values()), last
        if state in self.seen:
            return
        self.seen.add(state)
        whole = {slot: self._by(events, np.inf) for slot, events in came.items()}
        missing = {v for (v, _), each in whole.items() if v in self.wanting and each != self.all}
        if not missing:
            ends = (at for (v, _), events in came.items() if v in self.wanting for at, _ in events)
            self.best = min(self.best, max(ends))
            return
        if any(self._soonest(v, free, last) >= self.best for v in missing):
            return
        for (a, b), links in self.ways.links.items():
            first = max([last] + [free[e] for e in links])
            for sent in self.sets:
                cost = self.ways.busy_s[a, b][len(sent)]
                for start in {max(at, first) for block in sent for at, _ in came[a, block]}:
                    end = start + cost + self.ways.latency_s[a, b]
                    if end >= self.best:
                        continue
                    brought = {block: self._by(came[a, block], start) for block in sent}
                    if all(each & ~whole[b, block] for block, each in brought.items()):
                        more = {(b, block): (*came[b, block], (end, each)) for block, each in brought.items()}
                        self._search(came | more, free | dict.fromkeys(links, start + cost), start)

    def _by(self, events, time):
        """The ranks whose contributions have come by some time, as bits."""
        found = 0
        for at, each in events:
            if at <= time:
                found |= each
        return found

    def _soonest(self, rank, free, last) -> float:
        return min(
            max([last] + [free[e] for e in self.ways.links[way]]) + self.ways.busy_s[way][1] + self.ways.latency_s[way]
            for way in self.ways.into[rank]
        )


@pytest.mark.parametrize(
    ("spec", "blocks", "share"),
    [("star:3", 1, 3.0), ("star:3", 2, 0.3), ("line:3", 1, 3.0), ("fullmesh:3", 1, 3.0)],
)
@pytest.mark.parametrize("kind", ["allreduce", "reduce"])
def test_no_schedule_of_sums_of_a_small_case_beats_it(spec, blocks, share, kind):
    net = network(f"{spec}?bandwidth=1GB/s&latency=2us&message=20us")
    block = round(share * 20e-6 * 1e9)
    work = Workload((make_collective(kind, net, blocks * block),))
    (c,) = work.collectives
    soonest_s = planned_s(net, work) * (1 + 1e-9)
    optimum_s = SearchOfSums(net, blocks, block, soonest_s, set(c.ranks[c.wanted.values])).run(blocks)
    found = gathering_bound(net, work, 1e-9 + 20e-6)
    assert found is not None and 0.5 * optimum_s < found.seconds <= optimum_s


@pytest.mark.parametrize("name", [*SERVERS][:2])
@pytest.mark.parametrize(("blocks", "share"), [(1, 3.0), (2, 0.3)])
@pytest.mark.parametrize("kind", ["allreduce", "reduce"])
def test_no_schedule_of_sums_among_small_servers_beats_it(name, blocks, share, kind):
    net = SERVERS[name]
    block = round(share * 20e-6 * 1e9)
    work = Workload((make_collective(kind, net, blocks * block),))
    (c,) = work.collectives
    soonest_s = planned_s(net, work) * (1 + 1e-9)
    optimum_s = SearchOfSums(net, blocks, block, soonest_s, set(c.ranks[c.wanted.values])).run(blocks)
    assert bounds(net, work)[0].seconds <= optimum_s * (1 + 1e-9)
    for from_s in (20e-6, 70e-6, 200e-6):
        found = gathering_bound(net, work, from_s)
        assert found is None or found.seconds <= optimum_s * (1 + 1e-9)


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_sums_of_many_grow_as_in_halving_and_exchanging(size):
    net = network("star:16?bandwidth=25GB/s&latency=0.5us&message=20us")
    work = Workload((make_collective("allreduce", net, size),))
    plan_s = simulate(run_planner("hierarchical", net, work)).completion_s
    found = gathering_bound(net, work, 5e-5)
    assert found is not None and 0.75 * plan_s <= found.seconds <= plan_s


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
@pytest.mark.parametrize("size", ["100KB", "1MB", "10MB"])
def test_on_a_star_halving_and_doubling_is_nearly_as_fast(kind, size):
    net = network("star:8?bandwidth=25GB/s&latency=0.5us&message=20us")
    work = Workload((make_collective(kind, net, {"100KB": 10**5, "1MB": 10**6, "10MB": 10**7}[size]),))
    plan_s = simulate(run_planner("hierarchical", net, work)).completion_s
    best = bounds(net, work)[0]
    assert best.kind == "messages"
    assert 0.95 * plan_s <= best.seconds <= plan_s


def test_what_all_steps_of_time_prove_counts_where_longer_steps_would_be_too_coarse():
    net = network("star:3?bandwidth=1GB/s&latency=0&message=20us")
    work = Workload((make_collective("allgather", net, 12_000_000),))  # 8 ms for what a rank lacks
    found = gathering_bound(net, work, 80 * 20e-6)
    # few steps are tried first, and then as many as cover 1.1 times what these proved
    assert found is not None and found.seconds == pytest.approx(1.1 * 1.6 * 80 * 20e-6, rel=0.01)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall"])
@pytest.mark.parametrize("spec", ["sites:2,3?message=20us", "sites:2,2?message=300us"])
def test_no_plan_beats_it_where_routers_pass_data_on(spec, kind):
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, 1_000_000),))
    completion_s = simulate(run_planner("greedy", net, work, effort="quick")).completion_s
    for from_s in (completion_s / 3, completion_s):
        found = gathering_bound(net, work, from_s)
        assert found is None or found.seconds <= completion_s * (1 + 1e-9)


def test_routers_do_not_keep_it_from_counting():
    net = load_topology("sites:2,3?message=300us")
    assert gathering_bound(net, Workload((make_collective("allgather", net, 1000),)), 1e-6) is not None


def test_what_few_links_bring_into_a_server_bounds_what_each_of_its_ranks_has(monkeypatch):
    """A rank beside the NIC has no more of the far server than came over that, however it asks its neighbours."""
    net = two_servers()
    work = Workload((make_collective("allgather", net, 64_000),))
    found = gathering_bound(net, work, 5e-6)
    monkeypatch.setattr(gathering, "groups_of", lambda net: np.zeros((0, net.node_count), dtype=bool))
    alone = gathering_bound(net, work, 5e-6)
    assert found is not None and alone is not None and found.seconds > 1.1 * alone.seconds


def two_servers():
    """Two servers of four ranks at a switch of 150 GB/s, and one rank of each joined to another one by 25 GB/s."""
    kinds = [ACCELERATOR] * 8 + [SWITCH] * 3
    rows = [(v, 8 + v // 4, 150e9, 0.5e-6) for v in range(8)] + [(4 * s, 10, 25e9, 1.3e-6) for s in range(2)]
    net = make_topology("two servers", kinds, [*rows, *((b, a, *rest) for a, b, *rest in rows)])
    return replace(net, message_s=np.full(net.link_count, 2e-6))


@pytest.mark.parametrize("spec", ["h100:2", "ndv2:2", "star:5", "sites:2,3", "torus:3x3"])
def test_places_that_look_alike_have_equally_much(spec):
    net = load_topology(f"{spec}?message=20us")
    inside = groups_of(net)
    places = Places.of(net, inside, turned=False)
    rng = np.random.default_rng(0)
    own = (
        np.where(rng.random(len(places.into)) < 0.3, 2.0, 1.0)[:, None]
        if spec == "star:5"
        else np.ones((len(places.into), 1))
    )
    merged, its, became = places.alike(own)
    for each in (None, 3.0):
        run = [
            one.counts(had[:, 0], 9.0, 100, 1e-6) if each is None
            else one.bytes(had[:, 0] * 1e4, 1e5, 100, 1e-6, np.full((100, len(had)), each))
            for one, had in ((places, own), (merged, its))
        ]  # fmt: skip
        assert len(merged.into) <= len(places.into)
        np.testing.assert_allclose(run[1][:, became], run[0])


@pytest.mark.parametrize("kind", ["alltoall", "allgather", "allreduce"])
@pytest.mark.parametrize("spec", ["star:4", "sites:2,2", "ndv2:2"])
def test_both_speeds_of_the_kernel_give_the_same_bound(spec, kind, monkeypatch):
    net = load_topology(f"{spec}?message=20us")
    found = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        found.add(gathering_bound(net, Workload((make_collective(kind, net, 100_000),)), 4e-5))
    assert len(found) == 1 and None not in found


@pytest.mark.parametrize("kind", ["alltoall", "allgather", "reducescatter"])
def test_no_plan_beats_it_where_routes_may_pass_through_a_rank(kind):
    net = load_topology("fullmesh:4?message=50us")
    net = replace(net, transit=np.arange(4) == 3)
    work = Workload((make_collective(kind, net, 97),))
    completion_s = simulate(run_planner("shortest-path", net, work)).completion_s
    assert bounds(net, work)[0].seconds <= completion_s * (1 + 1e-9)


def with_random_costs(spec: str, seed: int, copies: bool):
    """A network whose links are all unlike, and whose switches and routers copy or not."""
    rng, net = np.random.default_rng(seed), load_topology(spec)
    return replace(
        net, bandwidth=rng.uniform(1e9, 9e9, net.link_count), latency_s=rng.uniform(0, 9e-6, net.link_count),
        message_s=rng.uniform(5e-6, 40e-6, net.link_count), replicates=(net.is_switch | net.is_router) & copies,
    )  # fmt: skip


@pytest.mark.parametrize(("seed", "copies"), one_in(2, range(8), [False, True]))
def test_no_plan_of_a_random_network_beats_it(seed, copies):
    specs = ["ring:5", "star:6", "fullmesh:4", "torus:2x3", "hypercube:3", "line:4", "sites:2,3", "fattree:2"]
    net = with_random_costs(specs[seed], seed, copies)
    for kind in ("allgather", "reducescatter", "alltoall", "gather", "scatter", "allreduce", "reduce"):
        for size in (2_000, 200_000):
            work = Workload((make_collective(kind, net, size),))
            completion_s = planned_s(net, work)
            for from_s in (completion_s / 4, completion_s):
                found = gathering_bound(net, work, from_s)
                assert found is None or found.seconds <= completion_s
