"""Replanning: what was delivered stays, what can be served is, what cannot is named."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from networks import random_network, ring
from stretto.bounds import bounds
from stretto.choose.holdings import held_after
from stretto.choose.replan import replan
from stretto.formats.native import read_plan, write_plan
from stretto.formats.telemetry import parse_telemetry
from stretto.model.arrays import Ragged
from stretto.model.changes import make_changes
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import Plan, make_plan
from stretto.model.telemetry import Telemetry, updated
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def made(net: Topology, kind: str = "allgather", chunks: int = 2, planner: str = "scale-ccl", size: int = 5040) -> Plan:
    return run_planner(planner, net, Workload((make_collective(kind, net, size, chunks=chunks),)), effort="quick")


def held_at(plan: Plan, t: float) -> set[tuple[int, int]]:
    """The (chunk, accelerator) pairs there at a time, straight from the timeline."""
    timeline, holders = simulate(plan), plan.workload.chunk_holders
    pairs = set(zip(holders.owners.tolist(), holders.values.tolist()))
    for owner, node, when in zip(plan.dst.owners.tolist(), plan.dst.values.tolist(), timeline.arrival_s.tolist()):
        if when <= t and plan.topology.kind[node] == ACCELERATOR:
            pairs.add((int(plan.chunk[owner]), node))
    return pairs


def old_chunks(plan: Plan) -> list[list[int]]:
    """For each chunk of a rest the chunks of the old plan that are in its piece."""
    bases = np.cumsum([0, *(len(c.piece_bytes) for c in plan.workload.collectives)])
    return [plan.meta["pieces"][base + piece] for c, base in zip(plan.workload.collectives, bases.tolist())
            for piece in c.chunk_piece.tolist()]  # fmt: skip


def pairs_of(plan: Plan, lists: Ragged) -> set[tuple[int, int]]:
    """The (chunk of the old plan, node) pairs of lists of a rest."""
    old = old_chunks(plan)
    return {(chunk, v) for c, v in zip(lists.owners.tolist(), lists.values.tolist()) for chunk in old[c]}


def spread(net: Topology, down: frozenset[int], nodes: set[int]) -> set[int]:
    """Where one comes from these nodes over the links that are up."""
    reached = set(nodes)
    while True:
        more = {int(b) for i, (a, b) in enumerate(zip(net.src, net.dst)) if i not in down and a in reached} - reached
        if not more:
            return reached
        reached |= more


@given(seed=st.integers(0, 10_000), when=st.floats(0, 1.1), kill=st.integers(0, 8), dead=st.booleans())
def test_random_links_killed_at_random_times_leave_every_reachable_rank_with_everything(seed, when, kill, dead):
    rng = random.Random(seed)
    net = load_topology("sites:3,3?connectivity=0.7") if seed % 3 == 0 else random_network(seed)
    kind = rng.choice(["allgather", "broadcast", "alltoall", "scatter"])
    plan = made(net, kind)
    at_s = when * simulate(plan).completion_s
    down = frozenset(rng.sample(range(net.link_count), min(kill, net.link_count - 1)))
    gone = frozenset({rng.randrange(net.node_count)} if dead else ())
    down_too = down | {i for i in range(net.link_count) if net.src[i] in gone or net.dst[i] in gone}
    if len(down_too) == net.link_count:
        return
    result = replan(plan, Telemetry(at_s=at_s, links_down=down, nodes_down=gone))

    has = {(c, v) for c, v in held_at(plan, at_s) if v not in gone}
    lost = {(int(c), int(v)) for c, v in result.lost}
    ends = set(has)
    if result.plan is not None:
        assert verify(result.plan).ok
        # nothing is planned from where it is not
        assert pairs_of(result.plan, result.plan.workload.chunk_holders) <= has
        ends |= pairs_of(result.plan, result.plan.workload.chunk_wanted)
    wanted = plan.workload.chunk_wanted
    for chunk, node in zip(wanted.owners.tolist(), wanted.values.tolist()):
        reach = spread(net, down_too, {v for c, v in has if c == chunk})
        assert ((chunk, node) in ends) == (node in reach and node not in gone)
        assert ((chunk, node) in lost) == ((chunk, node) not in ends)


def test_nothing_delivered_is_sent_again():
    net = load_topology("sites:3,4?connectivity=0.5")
    plan = made(net, size=3 * 10**9)
    half = simulate(plan).completion_s / 2
    result = replan(plan, Telemetry(at_s=half))
    assert result.plan is not None
    assert result.delivered == len(held_at(plan, half))
    old = [chunk for [chunk] in old_chunks(result.plan)]
    sent = {(old[c], int(v)) for c, v in zip(result.plan.chunk[result.plan.dst.owners], result.plan.dst.values)}
    assert not sent & held_at(plan, half)
    assert simulate(result.plan).completion_s < simulate(plan).completion_s


def test_a_slower_link_is_used_less():
    net = load_topology("sites:3,4")
    plan = made(net, chunks=4)
    link = next(i for i in range(net.link_count) if net.link_name(i) == "s0.router0→s1.router0")
    result = replan(plan, Telemetry(bandwidth={link: 1e9}, latency_s={link: 0.05}))
    assert result.plan is not None and verify(result.plan).ok
    assert result.plan.topology.bandwidth[link] == 1e9
    assert simulate(result.plan).link_bytes[link] < simulate(plan).link_bytes[link]


def test_where_nothing_has_happened_the_collective_is_what_it_was():
    plan = made(load_topology("sites:2,3"))
    result = replan(plan, Telemetry())
    assert result.plan is not None
    assert result.plan.digest() == plan.digest()
    assert replan(plan, Telemetry(at_s=1.0)).plan is None


def contributions(plan: Plan, t: float) -> dict[tuple[int, int], list[int]]:
    """The contributions in each sum at each node at a time, with repetition, by following what has arrived in order."""
    work, timeline = plan.workload, simulate(plan)
    holders = work.chunk_holders
    held = {(c, v): [v] for c, v in zip(holders.owners.tolist(), holders.values.tolist())}
    arrival = iter(timeline.arrival_s.tolist())
    for k in range(plan.transfer_count):
        chunk = int(plan.chunk[k])
        sent = [v for src in plan.sources[k].tolist() for v in held.get((chunk, src), [])]
        for node in plan.dst[k].tolist():
            if next(arrival) <= t:
                held[chunk, node] = sent + (held.get((chunk, node), []) if plan.op[k] else [])
    return held


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 10_000), when=st.floats(0, 1.1), kill=st.integers(0, 3))
def test_sums_go_on_from_partial_sums_that_have_each_contribution_once(seed, when, kill):
    rng = random.Random(seed)
    net = load_topology("sites:3,3?connectivity=0.7") if seed % 3 == 0 else random_network(seed)
    kind, planner = rng.choice(["allreduce", "reducescatter", "reduce"]), rng.choice(["scale-ccl", "greedy", "auto"])
    plan = made(net, kind, planner=planner)
    at_s = when * simulate(plan).completion_s
    down = frozenset(rng.sample(range(net.link_count), min(kill, net.link_count - 1)))
    everyone = {int(v) for v in plan.workload.collectives[0].ranks}
    try:
        news, other = Telemetry(at_s=at_s, links_down=down), rng.choice([None, "greedy", "scale-ccl"])
        result = replan(plan, news, planner=other, effort="quick")
    except Unsupported as error:
        # some rank cannot reach some other
        assert "cut off" in str(error)
        assert any(not everyone <= spread(net, down, {v}) for v in everyone)
        return
    sums, wanted = contributions(plan, at_s), plan.workload.chunk_wanted
    complete = {pair for pair, parts in sums.items() if sorted(parts) == sorted(everyone) and len(parts) > 1}
    lost = {(int(c), int(v)) for c, v in result.lost}
    for chunk, node in lost:
        assert node not in spread(net, down, {v for c, v in complete if c == chunk})
    left = set(zip(wanted.owners.tolist(), wanted.values.tolist())) - complete - lost
    if result.plan is None:
        assert not left
        return
    assert verify(result.plan).ok
    rest = result.plan.workload
    for chunk, number in [(c, k) for c, numbers in enumerate(old_chunks(result.plan)) for k in numbers]:
        holders = [int(v) for v in rest.chunk_holders[chunk]]
        if rest.chunk_reduces[chunk]:
            assert sorted(v for h in holders for v in sums[number, h]) == sorted(everyone)
        else:
            assert {(number, h) for h in holders} <= complete
    assert pairs_of(result.plan, rest.chunk_wanted) == left
    assert simulate(result.plan).completion_s >= bounds(result.plan.topology, rest)[0].seconds * (1 - 1e-9)


def test_half_an_allreduce_ends_sooner_than_a_new_one_and_where_a_link_failed_sooner_than_as_planned():
    net = load_topology("sites:3,3")
    plan = made(net, "allreduce", planner="auto", size=60_000_000)
    wan = next(i for i in range(net.link_count) if net.link_name(i) == "s0.router0→s1.router0")
    news = Telemetry(at_s=simulate(plan).completion_s / 2, bandwidth={wan: float(net.bandwidth[wan]) / 20})
    result = replan(plan, news)
    assert result.plan is not None and verify(result.plan).ok
    assert result.as_planned_s is not None and result.anew_s is not None
    assert simulate(result.plan).completion_s < min(result.as_planned_s, result.anew_s)


def test_partial_sums_that_overlap_are_refused():
    """Each rank of a ring has sent its own contribution on, so each holds two, and no two sums are disjoint."""
    net = ring(3)
    work = Workload((make_collective("allreduce", net, 6),))
    links = [next(i for i in range(net.link_count) if (net.src[i], net.dst[i]) == (v, (v + 1) % 3)) for v in range(3)]
    plan = make_plan(
        net, work, "ready-order", chunk=[0] * 3, src=[0, 1, 2], op=[1] * 3, dst=Ragged.single([1, 2, 0]),
        route=Ragged.single(links), depends=Ragged.empty(3),
    )  # fmt: skip
    with pytest.raises(Unsupported, match="overlap"):
        held_after(plan, np.ones(3, dtype=np.bool_), np.ones(3, dtype=np.bool_))


def test_a_link_that_is_down_stays_down_for_the_old_plan_too():
    net = ring(3)
    plan = made(net)
    carries = int(plan.route.values[0])
    later = make_changes([(2.0, carries, 1e9)], net.link_count)
    plan = replace(plan, topology=replace(net, changes=later))
    assert replan(plan, Telemetry(links_down=frozenset({carries}))).as_planned_s is None


def test_a_sum_without_a_contribution_is_refused():
    plan = made(load_topology("sites:2,3"), "allreduce")
    assert replan(plan, Telemetry(links_down=frozenset({0}))).plan is not None
    with pytest.raises(Unsupported, match=r"needs s0\.gpu1"):
        replan(plan, Telemetry(nodes_down=frozenset({1})))
    with pytest.raises(Unsupported, match="partial sums"):
        replan(plan, Telemetry(held={0: (0,)}))


def test_a_partial_sum_that_a_router_sends_on_holds_nothing_else_that_came_to_the_router():
    # 0 and 1 send to router 3, which sends each contribution on to 2 by itself
    links = [(0, 3, 1e6, 0.0), (1, 3, 1e6, 0.0), (3, 2, 1e6, 0.0), *((2, v, 1e6, 0.0) for v in (0, 1))]
    net = make_topology("joined", [ACCELERATOR] * 3 + [ROUTER], [*links, (0, 2, 1e6, 0.0), (1, 2, 1e6, 0.0)])
    work = Workload((make_collective("reduce", net, 1_000_000, root=2),))
    number = {link: i for i, link in enumerate(zip(net.src.tolist(), net.dst.tolist()))}
    plan = make_plan(
        net, work, "timed", chunk=[0] * 4, src=[0, 1, 3, 3], op=[1] * 4, dst=Ragged.single([3, 3, 2, 2]),
        route=Ragged.single([number[way] for way in ((0, 3), (1, 3), (3, 2), (3, 2))]),
        depends=Ragged.of([[], [], [0], [1]]), start_s=[0.0, 0.0, 1.0, 2.0], finish_s=[1.0, 1.0, 2.0, 3.0],
    )  # fmt: skip
    assert verify(plan).ok
    result = replan(plan, Telemetry(at_s=2.5), planner="greedy")
    assert result.delivered == 0 and result.plan is not None
    assert sorted(result.plan.workload.chunk_holders[0].tolist()) == [1, 2]


def test_rests_keep_weights_and_a_new_plan_counts_starts_from_the_news_on():
    net = ring(4)
    work = Workload(
        tuple(make_collective(kind, net, 4_000_000, start_s=at, weight=w)
              for kind, at, w in (("allgather", 0.0, 3.0), ("allreduce", 0.0, 5.0), ("broadcast", 1.0, 7.0)))
    )  # fmt: skip
    plan = run_planner("jobs", net, work, effort="quick")
    result = replan(plan, Telemetry(at_s=0.003), effort="quick")
    assert result.plan is not None
    weights = {c.kind: c.weight for c in result.plan.workload.collectives}
    assert weights.pop("broadcast") == 7.0
    assert {*weights.values()} <= {3.0, 5.0} and weights
    assert result.anew_s is not None and result.anew_s < simulate(plan).completion_s


def test_all_may_begin_anew():
    net = load_topology("sites:3,4?km=50")
    plan = run_planner("auto", net, Workload((make_collective("allreduce", net, 240_000_000),)), effort="normal")
    slow = {"src": "s0.router0", "dst": "s1.router0", "bandwidth": "1GB/s"}
    news = parse_telemetry({"at": "1ms", "links": [slow]}, net, plan.workload.chunk_count, "news")
    kept, anew = replan(plan, news), replan(plan, news, anew=True)
    assert kept.plan is not None and anew.plan is not None and verify(anew.plan).ok
    assert [c.kind for c in anew.plan.workload.collectives] == ["allreduce"]
    assert simulate(anew.plan).completion_s == kept.anew_s
    assert anew.anew_s is None and anew.as_planned_s == kept.as_planned_s
    with pytest.raises(InputError, match="begins anew"):
        replan(plan, Telemetry(held={0: (0,)}), anew=True)


def test_what_ranks_say_they_hold_counts_instead_of_the_simulation():
    plan = made(ring(4), chunks=1)
    result = replan(plan, Telemetry(held=dict.fromkeys(range(3), (0, 1, 2, 3))))
    assert result.plan is not None
    assert result.plan.workload.collectives[0].kind == "remainder"
    assert sorted(result.plan.dst.values) == [3, 3, 3]


def test_another_planner_can_finish_what_one_began():
    net = random_network(3)
    plan = made(net, planner="mtegcca")
    at_s = simulate(plan).completion_s / 2
    for planner in (None, "scale-ccl"):
        result = replan(plan, Telemetry(at_s=at_s), planner=planner)
        assert result.plan is not None and verify(result.plan).ok
        assert result.plan.meta["planner"] == (planner or "mtegcca")
        completion = simulate(result.plan).completion_s
        assert completion >= bounds(result.plan.topology, result.plan.workload)[0].seconds * (1 - 1e-12)


def test_the_plan_of_a_remainder_survives_its_file(tmp_path):
    plan = made(load_topology("sites:2,3"))
    again = replan(plan, Telemetry(at_s=simulate(plan).completion_s / 2)).plan
    assert again is not None
    for name in ("p.parquet", "p.json"):
        write_plan(again, str(tmp_path / name))
        assert read_plan(str(tmp_path / name)).digest() == again.digest()


def test_no_link_left_is_refused():
    net = ring(3)
    with pytest.raises(InputError, match="no link is left"):
        updated(net, Telemetry(links_down=frozenset(range(net.link_count))))


def test_a_telemetry_file_says_all_of_it():
    net = load_topology("sites:2,2")
    news = parse_telemetry(
        {
            "at": "3ms",
            "links": [
                {"src": "s0.router0", "dst": "s1.router0", "bandwidth": "5GB/s", "latency": "2ms"},
                {"src": "s0.gpu0", "dst": "s0.gpu1", "down": True},
            ],
            "down": ["s1.gpu0"],
            "held": {"s0.gpu0": [0, 1]},
        },
        net,
        4,
        "t.json",
    )
    wan = next(i for i in range(net.link_count) if net.link_name(i) == "s0.router0→s1.router0")
    assert (news.at_s, news.bandwidth, news.latency_s) == (0.003, {wan: 5e9}, {wan: 0.002})
    assert [net.link_name(i) for i in news.links_down] == ["s0.gpu0→s0.gpu1"]
    assert {net.names[v] for v in news.nodes_down} == {"s1.gpu0"}
    assert news.held == {0: (0, 1)}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "must be an object"),
        ({"link": []}, "'link' is not known"),
        ({"links": {}}, "must be a list"),
        ({"links": [{"src": "s0.gpu0", "dst": "nobody"}]}, "t.json, link 0: there is no node 'nobody'"),
        ({"links": [{"src": "s0.gpu0", "dst": "s1.gpu0"}]}, "no link s0.gpu0→s1.gpu0"),
        ({"links": [{"src": "s0.gpu0", "dst": "s0.gpu1", "bandwidth": "fast"}]}, "link 0"),
        ({"links": [{"src": "s0.gpu0", "dst": "s0.gpu1", "down": "yes"}]}, "true or false"),
        ({"down": ["s9"]}, "no node 's9'"),
        ({"at": True}, "no quantity"),
        ({"held": []}, "'held'"),
        ({"held": {"s0.gpu0": [4]}}, "the chunks that 's0.gpu0' holds .* from 0 to 3"),
    ],
)
def test_a_wrong_telemetry_file_is_named_with_its_place(data, words):
    with pytest.raises(InputError, match=words):
        parse_telemetry(data, load_topology("sites:2,2"), 4, "t.json")


def test_what_links_carried_is_read_and_changes_no_network():
    topology = load_topology("line:2")
    a, b = topology.names
    said = [{"src": a, "dst": b, "carried": 0}, {"src": b, "dst": a, "carried": "3MB/s"}]
    news = parse_telemetry({"links": said}, topology, 0, "t.json")
    assert news.carried == {0: 0.0, 1: 3e6}
    assert updated(topology, news).bandwidth.tolist() == topology.bandwidth.tolist()


def test_later_news_of_what_a_link_carried_replaces_earlier_news():
    first, second = Telemetry(carried={0: 1.0, 1: 2.0}), Telemetry(carried={1: 3.0})
    assert first.then(second).carried == {0: 1.0, 1: 3.0}


def test_a_link_carries_nothing_negative():
    a, b = load_topology("line:2").names
    with pytest.raises(InputError, match=r"t\.json, link 0: 'carried' must be a finite number, zero or more"):
        parse_telemetry({"links": [{"src": a, "dst": b, "carried": -1}]}, load_topology("line:2"), 0, "t.json")
