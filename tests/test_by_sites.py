"""Plans between sites, each as if it were one accelerator, and what they lead to inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from heldout import network
from heldout_networks import KINDS as KINDS_OF_NETWORKS
from stretto.bounds import bounds
from stretto.model.arrays import Ragged
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.messages import message_count, messages_of
from stretto.model.plan import COPY, REDUCE, Plan, make_plan
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.by_sites.contraction import Contraction, cut_in_order
from stretto.planners.by_sites.expansion import Expansion, Tree, binomial, star
from stretto.planners.by_sites.messages import Messages
from stretto.planners.by_sites.parts import Crossing
from stretto.schedule.best import completion_s
from stretto.schedule.trees import divide
from stretto.schedule.ways import ways_of
from stretto.topologies import load_topology, with_messages
from stretto.verify import verify

KINDS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
INSIDE, NIC, FAR = (100e9, 0.5e-6), (10e9, 1e-6), (5e9, 50e-6)


def planned(net: Topology, kind: str, size: int, ranks=None, effort="quick", several_chunks=True, **options) -> Plan:
    """The plan of by-sites, verified."""
    work = Workload((make_collective(kind, net, size, ranks=ranks),))
    plan = run_planner("by-sites", net, work, effort=effort, several_chunks=several_chunks, options=options)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    return plan


def random_sites(seed: int) -> tuple[Topology, list[int]]:
    """2 to 4 sites of 1 to 4 GPUs on a switch or joined directly, and two thirds of the GPUs, or all. Some GPUs of each are
    joined to GPUs of other sites, to a switch or each site to a router of its own; messages cost in two of three."""
    rng = np.random.default_rng(seed)
    kinds: list[int] = [SWITCH]
    links: dict[tuple[int, int], tuple[float, float]] = {}
    sites, between = [], seed % 3

    def join(a: int, b: int, link: tuple[float, float]) -> None:
        links[a, b] = links[b, a] = link

    for size in [2, *rng.integers(1, 5, int(rng.integers(1, 4))).tolist()]:
        gpus = [*range(len(kinds), len(kinds) + size)]
        kinds += [ACCELERATOR] * size + [SWITCH, ROUTER]
        for a, b in product(gpus, gpus):
            join(a, b if b > a and seed % 2 else gpus[-1] + 1, INSIDE)
        for v in rng.permutation(gpus)[: int(rng.integers(1, 3))].tolist():
            if between == 0:
                join(v, 0, NIC)
            elif between == 1:
                join(v, gpus[-1] + 2, NIC)
            for others in sites:
                if between == 2:
                    join(v, int(rng.choice(others)), FAR)
                elif between == 1:
                    join(gpus[-1] + 2, others[-1] + 2, FAR)
        sites.append(gpus)
    columns = [(a, b, *link) for (a, b), link in sorted(links.items())]
    net = make_topology("sites", kinds, columns, message_s=[(0.0, 2e-6, 20e-6)[int(rng.integers(3))]] * len(columns))
    kept = [gpus if seed % 4 == 0 else rng.permutation(gpus)[: max(1, 2 * len(gpus) // 3)] for gpus in sites]
    return net, np.concatenate(kept).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [6, 7, 8])
def test_plans_on_random_sites(kind, seed):
    net, ranks = random_sites(seed)
    n = len(ranks)
    for size, several_chunks in ((12 * n * n, True), (3001 * n * n, False)):
        plan = planned(net, kind, size, ranks, several_chunks=several_chunks)
        assert several_chunks or message_count(plan) == plan.transfer_count


@pytest.mark.parametrize("seed", [39, 82, 99, 136])
def test_parts_of_a_sum_leave_a_site_after_it_is_whole(seed):
    """As greedy plans it."""
    net, ranks = random_sites(seed)
    planned(net, "allreduce", 500_000 * len(ranks), ranks, planner="greedy")


def crossings(plan: Plan) -> list[tuple[int, int]]:
    """The sites of the two ends of each message between sites, one for each receiver."""
    site = np.unique(np.array(plan.topology.sites), return_inverse=True)[1].ravel()
    sent = sent_messages(plan)
    ends = zip(site[sent.src[sent.dst.owners]].tolist(), site[sent.dst.values].tolist(), strict=True)
    return sorted((a, b) for a, b in ends if a != b)


def test_follows_the_plan_between_sites():
    """A ring of three sites: each sends to the next one only."""
    plan = planned(load_topology("sites:3,4"), "allgather", 12_000, planner="ring")
    assert (plan.meta["between"], plan.meta["sites"]) == ("ring", 3)
    assert set(crossings(plan)) == {(0, 1), (1, 2), (2, 0)}


def test_trees_inside_sites_are_also_tried_for_chunks_that_are_not_cut():
    """In two parts stars end sooner, but a tree in each site ends sooner still if nothing is cut."""
    net, ranks = network("datacenters:924197:some?message=20us")
    plan = planned(net, "allgather", 1_000, ranks, effort="normal")
    assert (plan.meta["inside"], plan.meta["parts"]) == ("binomial", 1)


def test_pieces_too_small_for_more_parts_are_left_whole():
    net = with_messages(KINDS_OF_NETWORKS["datacenters"](np.random.default_rng(401)), 20e-6)
    plan = planned(net, "allgather", 168, effort="normal")
    assert plan.workload.chunk_count == len(plan.workload.collectives[0].ranks)


def test_the_cost_of_handling_is_measured_by_sites_of_ranks_that_receive():
    """Site 0 is slow or cut off, and outside of the collective or its root."""
    net = load_topology("sites:3,2?message=0")
    sites = np.unique(net.sites, return_inverse=True)[1].ravel()
    into = (sites[net.dst] == 0) & net.is_accelerator[net.dst] & ~net.is_accelerator[net.src]
    slow = replace(net, bandwidth=np.where(into, 1e3, net.bandwidth))
    columns = np.stack((net.src, net.dst, net.bandwidth, net.latency_s), axis=1)
    cut_off = make_topology("cut off", net.kind.tolist(), columns[~into])
    others = net.accelerators[sites[net.accelerators] > 0].tolist()
    outside, root = make_collective("allreduce", net, 12_000, ranks=others), make_collective("broadcast", net, 12_000)
    asked = [(net, outside), (slow, outside), (cut_off, outside), (cut_off, root)]
    costs_s = [Contraction.of(each, sites).handled(c, 3e-4).message_s.max() for each, c in asked]
    assert 0 < costs_s[0] < np.inf and costs_s == [costs_s[0]] * 4


def test_where_messages_are_free_it_makes_thousands_and_no_more():
    plan = planned(load_topology("sites:4,4?message=0"), "allreduce", 64_000_000, effort="normal")
    assert message_count(plan) <= 10_000
    assert completion_s(plan) <= 1.01 * bounds(plan.topology, plan.workload)[0].seconds


def test_a_plan_that_would_take_too_long_is_made_of_fewer_chunks(monkeypatch):
    net = KINDS_OF_NETWORKS["regions"](np.random.default_rng(4))
    counts = []
    for times in (8.0, 1e-3):
        monkeypatch.setattr("stretto.planners.by_sites.planner.LONGEST_TIMES", times)
        counts.append(message_count(planned(net, "allreduce", 64_000_000, effort="normal")))
    assert counts[1] < counts[0] / 4


def test_what_a_site_has_crosses_in_one_message():
    plan = planned(load_topology("sites:3,4?message=20us"), "allgather", 12_000)
    assert len(set(crossings(plan))) == len(crossings(plan)) <= 6


def expanded(spec: str, kind: str, size: int, planner: str, tree: Tree, parts: int = 1) -> Plan:
    """A plan between sites as a plan of all ranks, in ready-order and verified."""
    return followed(spec, kind, size, lambda net, work: run_planner(planner, net, work, effort="quick"), tree, parts)


def followed(
    spec: str, kind: str, size: int, between: Callable[[Topology, Workload], Plan], tree: Tree, parts: int = 1
) -> Plan:
    """The same of any plan between sites."""
    topology = load_topology(spec)
    net = Contraction.of(topology, np.unique(topology.sites, return_inverse=True)[1])
    c = make_collective(kind, topology, size)
    work, of = net.workload(c)
    crossing = Crossing.of(between(net.topology, work)).in_parts(parts)
    fine, own = cut_in_order(c, crossing.plan.workload.collectives[0], of)
    plan = Expansion(net, topology, fine, crossing, own, ways_of(topology).one, tree).plan(several_chunks=True)[0]
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    return plan


def sent_messages(plan: Plan) -> Plan:
    """Messages as transfers."""
    messages = messages_of(plan)
    return plan if messages is None else messages.merged


def test_a_message_between_sites_may_carry_a_sum_and_a_copy():
    """Of two sites each sums one chunk: site 0 sends what it gives to one sum with the other sum, which is whole."""

    def between(net: Topology, work: Workload) -> Plan:
        cut = Workload((divide(work.collectives[0], 2)[0],))
        ways = Ragged.of([ways_of(net).one(a, b) for a, b in ((1, 0), (0, 1), (0, 1), (1, 0))])
        return make_plan(
            net, cut, "ready-order", chunk=[1, 0, 1, 0], src=[1, 0, 0, 1], op=[REDUCE, REDUCE, COPY, COPY],
            dst=Ragged.single(np.array([0, 1, 1, 0])), route=ways, depends=Ragged.of([[], [], [0], [1]]), message=[0, 1, 1, 2],
        )  # fmt: skip

    plan = followed("sites:2,3?message=20us", "allreduce", 6_000, between, star)
    assert Counter(plan.op.tolist()) == {REDUCE: 10, COPY: 10}


def test_ranks_of_a_site_share_its_work():
    sent = sent_messages(expanded("sites:3,8?message=2us", "allreduce", 64_000_000, "symmetric", star, parts=4))
    count = Counter([*sent.src.tolist(), *sent.dst.values.tolist()])
    assert max(count.values()) <= 1.5 * np.mean([count[v] for v in sent.topology.accelerators.tolist()])


@pytest.mark.parametrize(
    ("kind", "planner", "direct"),
    [
        ("allgather", "shortest-path", 0),
        ("allreduce", "contributions", 0),
        ("alltoall", "shortest-path", 7),
        ("broadcast", "shortest-path", 0),
    ],
)
def test_doors_have_few_messages_by_binomial_trees(kind, planner, direct):
    """In a site of 8 GPUs at most log2(8) each of what leaves and of what comes, besides those from rank to rank."""
    sent = sent_messages(expanded("sites:2,8?message=20us", kind, 8_000, planner, binomial))
    site = np.unique(sent.topology.sites, return_inverse=True)[1]
    inside = site[sent.src] == site[sent.dst.values]
    for ends in (sent.src, sent.dst.values):
        assert np.bincount(ends[inside]).max() <= 2 * 3 + direct


def test_work_of_a_node_is_that_of_its_own_links():
    """A link of 100 GB/s leads to a switch, one of 10 GB/s on from it."""
    net = make_topology("slower", [ACCELERATOR, ACCELERATOR, SWITCH], [(0, 2, *INSIDE), (2, 1, *NIC)])
    messages = Messages(net, make_collective("broadcast", net, 1_000_000), ways_of(net).one)
    messages.near(np.array([0]), 0, 1, COPY, [])
    assert messages.work_s[:2] == [1e-5, 1e-4]


def test_what_is_brought_begins_so_early_that_it_is_there_when_it_is_due():
    net = make_topology("slower", [ACCELERATOR, ACCELERATOR, SWITCH], [(0, 2, *INSIDE), (2, 1, *NIC)])
    messages = Messages(net, make_collective("broadcast", net, 1_000_000), ways_of(net).one)
    for due in ((1e-3, 3), (2e-5, 3)):
        messages.near(np.array([0]), 0, 1, COPY, [], due=due)
    _, start_s, seconds = messages.plan(several_chunks=False)
    assert start_s.tolist() == pytest.approx([1e-3 - 3e-5, 0]) and not seconds.any()


@pytest.mark.parametrize("kind", ["allreduce", "allgather"])
def test_what_a_door_sends_late_is_due_late(kind, monkeypatch):
    due, near = [], Messages.near
    monkeypatch.setattr(Messages, "near", lambda *given, **named: due.append(named.get("due")) or near(*given, **named))
    plan = expanded("sites:3,4?message=20us", kind, 12_000_000, "scale-ccl", star, parts=4)
    brought = [each for each in due if each is not None]
    # of four pieces of a site each part is one, of a sum each part is of all
    assert len({at for at, _ in brought}) > 1 and {count for _, count in brought} == {
        3 if kind == "allreduce" else 1
    }, plan.meta


@pytest.mark.parametrize(("kind", "tree"), [*product(["allgather", "alltoall", "broadcast"], [star, binomial])])
def test_no_rank_gets_a_chunk_twice(kind, tree):
    plan = expanded("sites:3,8", kind, 576_000, "shortest-path", tree, parts=2)
    gets = [*zip(plan.chunk[plan.dst.owners].tolist(), plan.dst.values.tolist(), strict=True)]
    assert len(set(gets)) == len(gets)


def test_in_a_star_each_rank_brings_to_every_door_only_what_it_held():
    """A door that has got all sends none of it to the next door."""
    plan = expanded("sites:4,4", "allgather", 192_000, "mtegcca", star, parts=2)
    holder, site = plan.workload.collectives[0].chunk_holders.values[plan.chunk], np.array(plan.topology.sites)
    target = plan.dst.values[plan.dst.offsets[:-1]]
    brought = (site[plan.src] == site[target]) & (site[plan.src] == site[holder])
    assert (plan.src[brought] == holder[brought]).all()


def test_a_site_without_ranks():
    net = load_topology("sites:3,4")
    plan = planned(net, "allreduce", 8_000, [v for v in net.accelerators.tolist() if net.sites[v] != net.sites[0]])
    assert {int(v) for v in plan.src} <= set(plan.workload.collectives[0].ranks.tolist())


@pytest.mark.parametrize(
    ("spec", "kind", "size", "words"),
    [
        ("ring:6", "allgather", 600, "its ranks are not in several sites or servers"),
        ("ndv2:2", "allgather", 1600, "no link or switch joins gpu7 and gpu0, which are in one site"),
    ],
)
def test_refuses(spec, kind, size, words):
    with pytest.raises(Unsupported, match=words):
        planned(load_topology(spec), kind, size)


def test_refuses_chunks_that_pieces_of_ranks_are_too_small_for():
    net = load_topology("sites:3,4")
    between = Contraction.of(net, np.unique(net.sites, return_inverse=True)[1])
    work, of = between.workload(make_collective("allgather", net, 48))
    crossing = Crossing.of(run_planner("ring", between.topology, work)).in_parts(8)
    with pytest.raises(Unsupported, match="too small for the chunks of the plan between sites"):
        cut_in_order(make_collective("allgather", net, 12), crossing.plan.workload.collectives[0], of)


@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
def test_pieces_lie_in_chunks_between_sites_one_after_the_other(kind):
    net = load_topology("sites:3,4")
    between = Contraction.of(net, np.unique(net.sites, return_inverse=True)[1])
    c = make_collective(kind, net, 144_000)
    work, of = between.workload(c)
    cut = Crossing.of(run_planner("paths" if kind == "alltoall" else "ring", between.topology, work)).in_parts(3)
    (whole,) = cut.plan.workload.collectives
    fine, own = cut_in_order(c, whole, of)
    assert own.rows == whole.chunk_count
    used = np.flatnonzero(own.lengths)
    scale = fine.chunk_bytes[own.values].sum() / whole.chunk_bytes[used].sum()
    for k in used:  # of a chunk with 4 / 3 or 16 / 3 pieces the first and the last may go on
        pieces = fine.chunk_piece[own[k]]
        assert fine.chunk_bytes[own[k]].sum() == pytest.approx(scale * whole.chunk_bytes[k], abs=1)
        assert set(of[pieces]) == {whole.chunk_piece[k]}
        assert len(pieces) <= (7 if kind == "alltoall" else 3)
        assert (fine.chunk_bytes[own[k]] == c.piece_bytes[pieces])[1:-1].all()


def test_chunks_of_a_message_that_costs_nothing_follow_each_other():
    """Were they to share a link at equal rates, one might not fit beside the others by a rounding, and wait for all."""
    net = load_topology("sites:2,4?message=0")
    plan = planned(net, "allgather", 80_003)
    site = np.array(net.sites)
    between = site[plan.src] != site[plan.dst.values]
    starts, ends = plan.start_s[between], plan.finish_s[between]
    far = np.argmax(plan.topology.latency_s[plan.route.take(np.flatnonzero(between)).values.reshape(-1, 3)], axis=1)
    link = plan.route.take(np.flatnonzero(between)).values.reshape(-1, 3)[np.arange(len(far)), far]
    for each in np.unique(link):
        order = np.argsort(starts[link == each])
        assert (starts[link == each][order][1:] >= ends[link == each][order][:-1] - 1e-12).all()


@pytest.mark.parametrize(("message_s", "several_chunks"), [(0.0, True), (20e-6, False), (20e-6, True)])
def test_chunks_of_a_message_take_its_time_one_after_the_other_unless_they_go_together(message_s, several_chunks):
    """Of 100, 200 and 300 bytes, in the 6 s that begin with second 1."""
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 1e9, 0.0)], message_s=[message_s])
    ends = Ragged.single(np.zeros(3, dtype=np.int64)), Ragged.single(np.ones(3, dtype=np.int64))
    c = Collective.uncut("remainder", np.arange(2, dtype=np.int32), 600, np.array([100, 200, 300]), *ends)
    messages = Messages(net, c, ways_of(net).one)
    messages.send(np.arange(3), 0, [1], [0], COPY, [], between=(1.0, 6.0))
    plan, start_s, seconds = messages.plan(several_chunks)
    together = message_s > 0 and several_chunks
    assert message_count(plan) == (1 if together else 3)
    assert start_s == pytest.approx([1, 1, 1] if together else [1, 2, 4])
    assert seconds == pytest.approx([6, 6, 6] if together else [1, 2, 3])


def test_refuses_to_copy_a_sum_that_is_not_whole():
    """As greedy does among 12 cloud regions: a copy replaces what a site has already given away, and is replaced."""
    net = KINDS_OF_NETWORKS["regions"](np.random.default_rng(573852))
    net = replace(net, message_s=np.full(net.link_count, 20e-6))
    with pytest.raises(Unsupported, match="before the sum is whole"):
        planned(net, "allreduce", 168, planner="greedy")


def test_refuses_a_planner_that_is_none():
    with pytest.raises(InputError, match="there is no planner 'nosuch'"):
        planned(load_topology("sites:3,4"), "allgather", 1200, planner="nosuch")


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter"])
def test_equal_calls_give_equal_plans(kind):
    net, ranks = random_sites(4)
    first, second = (planned(net, kind, 13_000 * len(ranks), ranks) for _ in range(2))
    assert first.digest() == second.digest()
