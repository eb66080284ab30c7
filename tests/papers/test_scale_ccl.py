"""SCALE-CCL's worked example and rules, section 4 of the paper."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from heldout_networks import KINDS as KINDS_OF_NETWORKS
from networks import partial_sums, random_network
from stretto.bounds import bounds
from stretto.kernels.pipes import Lists
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import Unsupported
from stretto.model.kinds import EVERY_KIND
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.scale_ccl.kernel_forwarding import Holdings, Queues, Reading
from stretto.planners.scale_ccl.kernel_scheduling import resolve_duplicates, schedule_subchunk
from stretto.planners.scale_ccl.kernel_states import HELD, LACKS_WANTED
from stretto.planners.scale_ccl.kernel_transmission import enqueue, idle_links
from stretto.planners.scale_ccl.published import sites_of
from stretto.planners.scale_ccl.task import task_of
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

UNIT = 10**9 // 4  # the paper's "256 MB": 20 ms on a WAN link


def gathered(spec: str, chunks: int = 1, shard: int = UNIT, **options: object) -> Plan:
    net = load_topology(spec)
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("scale-ccl", net, workload, options=options)
    assert verify(plan).ok
    return plan


def over_bound(plan: Plan) -> float:
    return simulate(plan).completion_s / bounds(plan.topology, plan.workload)[0].seconds


BR0, BR1, GPU0, GPU1, GPU2, GPU3 = range(6)
FIGURE_7 = {(BR0, GPU0): [0, 1], (BR0, GPU3): [0, 1], (BR1, GPU0): [2, 3], (BR1, GPU3): [2, 3], (GPU1, GPU0): [3]}
"""The queues Q1 to Q5 of figure 7(a)."""


def figure_7(gpu_bandwidth: float, by_figure: bool) -> tuple[int, list[list[int]]]:
    """What Algorithm 1 sends from BR0 to GPU0, and what it leaves in Q1 to Q5. GPU0 holds subchunk 0."""
    both = [(r, g, 12.5e9) for r in (BR0, BR1) for g in (GPU0, GPU3)]
    both += [(a, b, gpu_bandwidth) for a, b in ((GPU0, GPU1), (GPU1, GPU2), (GPU2, GPU3))]
    links = [(*ends, width, 0.7e-6) for a, b, width in both for ends in ((a, b), (b, a))]
    net = make_topology("figure 7", [ROUTER] * 2 + [ACCELERATOR] * 4, links)
    work = Workload((make_collective("allgather", net, shard_bytes=UNIT),))
    task = task_of(net, work, through_routers=False)
    pipes, nodes = task.network.columns, net.node_count
    came = np.full(4 * nodes, LACKS_WANTED, dtype=np.int32)
    came[GPU0] = HELD
    pipe_of = {(u, v): k for k, (u, v) in enumerate(zip(pipes.src, pipes.dst, strict=True))}
    queued = np.zeros((4, len(pipes.src)), dtype=np.bool_)
    queues = Queues(np.full(len(pipes.src), -1), np.full(len(pipes.src), -1), np.zeros(len(pipes.src)), np.zeros(nodes))
    queued_chunk: list[int] = []
    following: list[int] = []
    for ends, subchunks in FIGURE_7.items():
        for b in subchunks:
            enqueue(pipe_of[ends], b, queues.head, queues.tail, queued_chunk, following)
            queued[b, pipe_of[ends]] = True
    holdings = Holdings(came, queued, np.zeros(len(task.goals.goal)), np.zeros((4, nodes), dtype=np.int64))
    sends = schedule_subchunk(
        pipe_of[BR0, GPU0], 0.0, pipes, Lists(*task.network.into), task.places, sites_of(task), task.chunks,
        task.goals, Reading(2.0, 0.5, 1.0, True, True, by_figure), holdings,
        idle_links(net.link_count, task.share), queues, queued_chunk, following,
    )  # fmt: skip
    return sends, [np.flatnonzero(queued[:, pipe_of[ends]]).tolist() for ends in FIGURE_7]


def test_figure_7_with_its_bandwidths_leaves_all_five_queues_as_drawn():
    # 12.5 GB/s from routers, 50 GB/s between accelerators; 1 leaves Q1 to be sent
    assert figure_7(50e9, by_figure=True) == (1, [[], [0], [2], [3], [3]])


def test_figure_7_does_not_depend_on_how_fast_accelerators_are():
    assert figure_7(50e9, by_figure=True) == figure_7(12.5e9, by_figure=True) == figure_7(5e9, by_figure=True)


def test_figure_7_read_with_all_duplicates_has_its_first_four_queues_only_with_equal_bandwidths():
    assert figure_7(12.5e9, by_figure=False) == (1, [[], [0], [2], [3], []])
    assert figure_7(50e9, by_figure=False) == (1, [[], [0], [2], [], [3]])


def test_algorithm_1_lines_14_to_19_a_duplicate_goes_where_it_is_through_first():
    both = Ragged.of([[7], [7]])
    for wait, cost, queue in (([0.0, 3.0], [2.0, 1.0], 0), ([0.0, 0.5], [2.0, 1.0], 1)):
        kept, _ = resolve_duplicates(
            both.offsets, both.values.astype(np.int64), np.ones(2, np.bool_), np.array(wait), np.array(cost)
        )
        assert kept.tolist() == [queue == 0, queue == 1]


def test_algorithm_1_line_13_what_only_one_queue_holds_takes_its_time_first():
    queues = Ragged.of([[1, 2], [2]])
    kept, turn = resolve_duplicates(
        queues.offsets, queues.values.astype(np.int64), np.ones(3, np.bool_), np.zeros(2), np.ones(3)
    )
    assert kept.tolist() == [True, False, True]
    assert turn[0] < turn[2]


def work(kind: str, net: Topology, size: int, chunks: int, root: int) -> Workload:
    if kind == "alltoallv":
        n = len(net.accelerators)
        sizes = [[(3 * i + 5 * j) % 7 * (i != j) * size for j in range(n)] for i in range(n)]
        return Workload((alltoallv(net, sizes, chunks=chunks),))
    if kind == "partial-sums":
        return Workload((partial_sums(net, size, chunks),))
    receivers = range(1, len(net.accelerators), 2) if kind == "multicast" else None
    return Workload((make_collective(kind, net, size, chunks=chunks, root=root, receivers=receivers),))


READINGS = [
    dict(zip(("forwarding", "receivers", "duplicates"), values, strict=True))
    for values in product(("every-site", "one-site"), ("siblings", "all"), ("figure", "all"))
]
"""Every way in which the options read what the paper leaves open."""


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: " ".join(reading.values()))
@pytest.mark.parametrize("spec", ["sites:3,4?connectivity=0.5&km=50", "sites:4,2?wan=line", "sites:2,4?routers=2"])
def test_section_4_1_the_wan_never_falls_idle_before_its_last_transmission(spec, reading):
    plan = gathered(spec, rules="paper", **reading)
    net = plan.topology
    wan = np.flatnonzero((net.kind[net.src] == ROUTER) & (net.kind[net.dst] == ROUTER))
    rows = [k for k in range(plan.transfer_count) if np.isin(plan.route[k], wan).any()]
    line = simulate(plan)
    busy_until = line.start_s[rows].min()
    for start, finish in sorted(zip(line.start_s[rows], line.finish_s[rows], strict=True)):
        assert start <= busy_until + 2e-3  # the delay of the WAN and of routers
        busy_until = max(busy_until, finish)


def test_section_5_2_the_plain_arrangement_takes_the_papers_time_and_one_more_hop_inside_a_site():
    # the paper: 4 x 20 ms at the bottleneck, 250 us, and two hops of 5 ms inside a site; connectivity 0.5 has three
    plan = gathered("sites:3,4?connectivity=0.5&km=50", rules="paper")
    assert simulate(plan).completion_s == pytest.approx(4 * 20e-3 + 250e-6 + 3 * 5e-3, abs=5e-6)


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: " ".join(reading.values()))
@pytest.mark.parametrize("kind", EVERY_KIND)
@settings(max_examples=examples(4))
@given(seed=st.integers(0, 10_000), chunks=st.integers(1, 2), root=st.integers(0, 2))
def test_the_papers_rules_serve_every_collective_and_claim_what_the_simulator_says(reading, kind, seed, chunks, root):
    net = random_network(seed)
    plan = run_planner("scale-ccl", net, work(kind, net, 5040, chunks, root), options={"rules": "paper", **reading})
    assert verify(plan).ok
    np.testing.assert_allclose(simulate(plan).start_s, plan.start_s, rtol=1e-9, atol=1e-18)


def test_section_4_2_a_chunk_crosses_the_wan_once_for_each_other_site():
    for rules in ("eager", "paper"):
        plan = gathered("sites:3,4?connectivity=0.5", rules=rules)
        net = plan.topology
        wan = (net.kind[net.src] == ROUTER) & (net.kind[net.dst] == ROUTER)
        assert wan[plan.route.values].sum() == 12 * 2


def test_section_3_routers_cut_through_and_accelerators_store():
    # 1 MB through two routers at 1 GB/s is 1 ms and three latencies; through accelerators 3 ms
    for middle, seconds in ((ROUTER, 1e-3), (ACCELERATOR, 3e-3)):
        links = [(a, b, 1e9, 1e-6) for v in range(3) for a, b in ((v, v + 1), (v + 1, v))]
        net = make_topology("line", [ACCELERATOR, middle, middle, ACCELERATOR], links)
        c = make_collective("broadcast", net, 10**6, ranks=[0, 3])
        plan = run_planner("scale-ccl", net, Workload((c,)))
        assert verify(plan).ok
        assert simulate(plan).completion_s == pytest.approx(seconds + 3e-6)


def test_section_5_1_the_heaviest_cell_of_table_1_is_near_the_bound():
    assert over_bound(gathered("sites:3,4?connectivity=0.5&km=150", chunks=8)) < 1.02


@pytest.mark.parametrize("connectivity", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 16, 256])
def test_the_grid_of_section_5_stays_within_a_tenth_of_the_bound(connectivity, chunks, size):
    spec = f"sites:3,4?connectivity={connectivity}&km=100"
    assert over_bound(gathered(spec, chunks, size * 10**9 // 1024)) < 1.10


@pytest.mark.parametrize("connectivity", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("chunks", [4, 8])
def test_accelerators_share_routers_that_each_is_joined_to_one_of_them(connectivity, chunks):
    spec = f"sites:3,4?routers=3&attached=1&seed=1&connectivity={connectivity}&km=100"
    assert over_bound(gathered(spec, chunks, 256 * 10**9 // 1024)) < 1.10


def test_more_subchunks_come_nearer_to_the_bound():
    ratios = [over_bound(gathered("sites:3,4?connectivity=0.5", c)) for c in (1, 2, 4, 8)]
    assert ratios == sorted(ratios, reverse=True)


def test_split_chunks_flow_as_chunks_that_were_given_so():
    given, split = gathered("sites:3,4", 4), gathered("sites:3,4", split=4)
    assert split.workload.chunk_count == given.workload.chunk_count
    assert simulate(split).completion_s == pytest.approx(simulate(given).completion_s)


def test_the_planner_halves_chunks_while_that_pays():
    spec = "sites:3,4?routers=3&attached=1&seed=1&connectivity=0.5"
    plan = gathered(spec, split=0)
    assert verify(plan).ok
    assert over_bound(plan) < 1.10 < over_bound(gathered(spec))


def test_our_rules_are_no_worse_than_the_papers():
    for spec in ("sites:3,4?connectivity=0.5", "sites:2,6?connectivity=0.7", "sites:4,3", "sites:4,2?wan=ring"):
        ours, papers = (simulate(gathered(spec, 2, rules=r)).completion_s for r in ("eager", "paper"))
        assert ours <= papers * (1 + 1e-9)


def three_uneven_sites(wan: tuple[float, float, float]) -> Topology:
    """Sites of four GPUs and two routers; two GPUs have a border link of 12.5 GB/s each."""
    links = [(s + a, s + b, 50e9, 0.7e-6) for s in (0, 6, 12) for a, b in combinations(range(4), 2)]
    links += [(s + k, s + 4 + k, 12.5e9, 0.7e-6) for s in (0, 6, 12) for k in range(2)]
    for (a, b), width in zip(combinations((4, 10, 16), 2), wan, strict=True):
        links += [(a + r, b + r, width * 1e9, 250e-6) for r in range(2)]
    kinds = 3 * ([ACCELERATOR] * 4 + [ROUTER] * 2)
    return make_topology("uneven", kinds, [(x, y, *more) for a, b, *more in links for x, y in ((a, b), (b, a))])


def test_sums_share_border_links_between_unlike_wan_links():
    # a border link that is held whole at the 5 GB/s of one WAN link makes this 2.4 times the bound
    net = three_uneven_sites((25, 5, 5))
    plan = run_planner("scale-ccl", net, Workload((make_collective("reducescatter", net, shard_bytes=UNIT, chunks=4),)))
    assert verify(plan).ok
    np.testing.assert_allclose(simulate(plan).start_s, plan.start_s, rtol=1e-9, atol=1e-18)
    assert over_bound(plan) < 1.05


def test_sums_take_a_second_way_where_the_shortest_is_full():
    net = three_uneven_sites((5, 25, 25))
    plan = run_planner("scale-ccl", net, Workload((make_collective("reducescatter", net, shard_bytes=UNIT, chunks=4),)))
    used = np.unique(plan.route.values)
    assert np.isin(np.flatnonzero(net.bandwidth == 5e9), used).all()
    assert over_bound(plan) < 1.3


def test_both_speeds_share_links_alike(monkeypatch):
    net = three_uneven_sites((5, 12.5, 25))
    work = Workload((make_collective("allreduce", net, 12 * UNIT, chunks=12),))
    digests = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        digests.add(run_planner("scale-ccl", net, work).digest())
    assert len(digests) == 1


def test_several_routers_share_what_leaves_a_site():
    plan = gathered("sites:2,4?routers=2")
    net = plan.topology
    carried = np.bincount(plan.route.values, minlength=net.link_count)
    wan = (net.kind[net.src] == ROUTER) & (net.kind[net.dst] == ROUTER)
    assert carried[wan].tolist() == [2, 2, 2, 2]


def test_both_speeds_give_the_papers_rules_the_same_plan(monkeypatch):
    digests = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        digests.add(gathered("sites:3,3?connectivity=0.7", 2, rules="paper").digest())
    assert len(digests) == 1


def test_section_4_2_the_buffer_of_a_router_decides_which_of_two_gets_a_chunk():
    blind, heeds = (
        simulate(gathered("sites:2,4?routers=2", rules="paper", occupancy=w)).completion_s for w in (0, 0.5)
    )
    assert heeds < 0.6 * blind


def test_what_takes_minutes_through_switches_is_refused_before_it_begins():
    """488 GPUs on rails: each way to a GPU is compared with those from all others, 70 s for a chunk."""
    net = KINDS_OF_NETWORKS["rails"](np.random.default_rng(410314))
    work = Workload((make_collective("broadcast", net, 10**9),))
    with pytest.raises(Unsupported, match=r"scale-ccl's events .* would take about \d+ s of CPU"):
        run_planner("scale-ccl", net, work, effort="normal")
