"""Algorithms among ranks and idle accelerators as if all were ranks."""

from __future__ import annotations

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.planners.fixed import hierarchical, overlaps
from stretto.planners.fixed.overlaps import _at_once
from stretto.planners.fixed.wider import MOST_NODES, wider
from stretto.schedule.carriers import MOST_BLOCKS, carriers
from stretto.schedule.job_loads import JobLoads
from stretto.schedule.overlapping import overlapped
from stretto.schedule.ways import Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ("allgather", "reducescatter", "allreduce", "alltoall")
UNEVEN = [0, 1, 2, 8, 9, 16, 21, 24]
"""Ranks in four servers of eight: three, two, two and one."""

SOME = [("h100:4?message=20us", UNEVEN), ("torus:3x3x3?message=2us", None), ("amd:2?message=2us", [0, 1, 2, 17, 20])]
"""Networks, and the places of the accelerators that are ranks; every second one if not said."""


def collective(spec, kind, size, places=None):
    """The collective among accelerators at some places, or among every second one."""
    net = load_topology(spec)
    ranks = net.accelerators[::2] if places is None else net.accelerators[places]
    return net, make_collective(kind, net, size, ranks=ranks)


def candidates(net, c):
    for wide in wider(net, c):
        for each in _at_once(net, wide.c, wide.cells, Ways(net)):
            yield from ((each, made) for made in wide.candidates([each]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("spec", "places"),
    [("h100:4?message=20us", UNEVEN), ("torus:3x3x3?message=2us", None), ("mesh:3x4?message=2us", [0, 1, 2, 7, 11])],
)
def test_every_rank_ends_with_what_it_wants_and_nothing_useless_is_sent(spec, places, kind):
    net, c = collective(spec, kind, 1_000_000, places)
    ranks, checked = len(c.ranks), 0
    for _, each in candidates(net, c):
        parts, steps = each.algorithm.blocks(kind, ranks, 1), each.algorithm.steps(kind, ranks)
        if each.carried is not None:
            continue  # the next test has these
        checked += 1
        count = parts * {"allreduce": 1, "alltoall": ranks**2}.get(kind, ranks)
        piece, block = np.arange(count) // parts, np.arange(count)
        has = np.zeros((count, ranks + len(each.algorithm.relays)), dtype=object)
        if kind in ("allreduce", "reducescatter"):
            has[:, :ranks] = [1 << rank for rank in range(ranks)]
        else:
            has[block, piece // ranks if kind == "alltoall" else piece] = 1
        at_first = has.copy()
        for step in steps:
            assert len(step.block)
            sent = has[step.block, step.src]
            for b, dst, what in zip(step.block.tolist(), step.dst.tolist(), sent, strict=True):
                assert what, "something is sent"
                assert step.op == COPY or not has[b, dst] & what, "nothing is added twice"
                assert kind == "allreduce" or step.op != COPY or not at_first[b, dst], "nothing comes to whom had it"
                has[b, dst] = what if step.op == COPY else has[b, dst] | what
        if kind == "alltoall":
            assert (has[block, piece % ranks] == 1).all()
        elif kind == "reducescatter":
            assert (has[block, piece] == (1 << ranks) - 1).all()
        else:
            assert (has[:, :ranks] == ((1 << ranks) - 1 if kind == "allreduce" else 1)).all()
        sends = {(b, v) for step in steps for b, v in zip(step.block.tolist(), step.src.tolist(), strict=True)}
        comes = {(b, v) for step in steps for b, v in zip(step.block.tolist(), step.dst.tolist(), strict=True)}
        assert all(move in sends for move in comes if move[1] >= ranks), "relays send on what they get"
    assert checked


def test_whole_sums_by_idle_accelerators_verify():
    for spec, places in (("h100:4?message=20us", UNEVEN), ("amd:2?message=2us", [0, 1, 2, 17, 20])):
        net, c = collective(spec, "allreduce", 1_000, places)
        ways = Ways(net)
        found = [each for _, each in candidates(net, c) if each.carried is not None]
        assert found
        for each in found:
            assert verify(overlapped(net, c, [each], ways, np.inf).plan(Workload((c,)))).ok


@pytest.mark.parametrize(
    ("spec", "places", "kind", "size"),
    [(*among, kind, size) for among, kind, size in one_in(4, SOME, KINDS, [98, 101, 300, 1_000, 64_000, 16_000_000])],
)
def test_plans_verify(spec, places, kind, size):
    net, c = collective(spec, kind, size, places)
    plan = run_planner("hierarchical", net, Workload((c,)), effort="quick")
    assert verify(plan).ok, "also where a piece has fewer bytes than it could have blocks"
    assert simulate(plan).completion_s >= bounds(net, Workload((c,)))[0].seconds


@pytest.mark.parametrize("places", [UNEVEN, [0], [0, 8, 16, 24], list(range(12))])
def test_blocks_are_shared_out_evenly_and_come_from_near(places):
    net = load_topology("h100:4?message=20us")
    c = make_collective("allgather", net, 1_000_000, ranks=net.accelerators[[*places, 31]])
    (wide,) = wider(net, c)
    nodes, ranks = len(wide.c.ranks), len(c.ranks)
    server = np.searchsorted(net.accelerators, wide.c.ranks) // 8
    for each in wide.how:
        assert each.blocks <= MOST_BLOCKS and len(each.carrier) == ranks * each.blocks
        at = np.repeat(np.arange(ranks), each.blocks)
        for step in each.moves:
            assert (at[step.block] == step.src).all()
            at[step.block] = step.dst
        assert (at == each.carrier).all()
    own, *shared = wide.how
    assert own.blocks == 1 and not own.moves
    count = np.bincount(shared[-1].carrier, minlength=nodes)
    assert count.max() == -(-ranks * shared[-1].blocks // nodes)
    if len(shared) > 1:  # servers have unequal numbers of ranks
        home = np.repeat(server[:ranks], shared[0].blocks)
        assert (server[shared[0].carrier] == home).all()
        count = np.bincount(shared[0].carrier, minlength=nodes)
        here = np.bincount(server[:ranks], minlength=4) * shared[0].blocks
        assert (count <= -(-here // 8)[server]).all()
        assert all(np.ptp(count[server == each]) <= 1 for each in np.unique(server[:ranks]))
    # as many blocks as may stay in their servers do
    room = 8 * (-(-ranks * shared[-1].blocks // nodes))
    left = np.maximum(np.bincount(server[:ranks], minlength=4) * shared[-1].blocks - room, 0).sum()
    assert (server[shared[-1].carrier] != np.repeat(server[:ranks], shared[-1].blocks)).sum() == left


def test_where_a_way_leaves_the_accelerators_nothing_is_shared_out():
    """GPU 2 of a line is no relay here, and the rank has no other way to relay 3."""
    net = load_topology("line:4?message=2us")
    c = make_collective("allgather", net, 1_000_000, ranks=net.accelerators[:2])
    assert [each.blocks for each in carriers(net, c, net.accelerators[[0, 1, 3]], [])] == [1]
    assert len([*carriers(net, c, net.accelerators, [])]) == 2


@pytest.mark.parametrize(("kind", "size", "most"), [
    ("allgather", 256_000_000, 0.4), ("reducescatter", 256_000_000, 0.4), ("allgather", 64_000, 0.9),
    ("alltoall", 1_000_000, 0.8), ("allreduce", 1_000, 0.9),
])  # fmt: skip
def test_ports_of_idle_accelerators_are_used(kind, size, most, monkeypatch):
    """Servers have 3, 2, 2 and 1 ranks, and a NIC for each of 8 GPUs."""
    net, c = collective("h100:4?message=2us", kind, size, UNEVEN)

    def completion_s():
        hierarchical._estimated.cache_clear()
        return simulate(run_planner("hierarchical", net, Workload((c,)))).completion_s

    among_all_s = completion_s()
    for module in (hierarchical, overlaps):
        monkeypatch.setattr(module, "wider", lambda topology, c: [])
    alone_s = completion_s()
    hierarchical._estimated.cache_clear()
    assert among_all_s < most * alone_s


def test_no_more_accelerators_than_that_take_part():
    net, c = collective("h100:4?message=2us", "allreduce", 1_000_000, UNEVEN)
    (wide,) = wider(net, c)
    assert len(wide.c.ranks) == 32 <= MOST_NODES
    assert not wider(net, make_collective("allreduce", net, 1_000_000))
    large, c = collective("h100:36?message=2us", "allreduce", 1_000_000, [0, 1, 280])
    assert [len(each.c.ranks) for each in wider(large, c)] == [16]  # of two servers
    large, c = collective("h100:36?message=2us", "allreduce", 1_000_000)
    assert not wider(large, c)


def test_idle_servers_and_single_switches_take_no_part():
    for spec, places in (
        ("h100:4?message=2us", [0, 1, 3]),
        ("star:8?message=2us", [0, 1, 3]),
        ("dgx2?message=2us", [0]),
    ):
        net, c = collective(spec, "allgather", 1_000_000, [*places, 5])
        assert not wider(net, c)
    net, c = collective("h100:4?message=2us", "allgather", 1_000_000, [0, 1, 8])
    (wide,) = wider(net, c)
    assert sorted(wide.c.ranks) == [*net.accelerators[:16]]


def test_large_tori_are_not_searched_for_their_symmetry(monkeypatch):
    net, c = collective("torus:8x8x8?message=2us", "allgather", 1_000_000, range(6))
    monkeypatch.setattr("stretto.planners.fixed.wider.neighbours", None)
    assert not wider(net, c)


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_the_order_in_which_ranks_are_given_may_name_their_rails(kind):
    """On rails places count. Where they are in another order in each server, ranks of a rail have the same place."""
    net = load_topology("h100:4?message=2us")
    order = np.random.default_rng(0).permuted(np.arange(32).reshape(4, 8), axis=1)
    places = np.argsort(order, axis=1)
    ends = []
    for ranks in (np.arange(32), (places + 8 * np.arange(4)[:, None]).ravel()):
        # GPU ``ranks[k]`` is at the rail that GPU k is at in the network itself
        name = np.arange(net.node_count)
        name[net.accelerators] = net.accelerators[ranks]
        links = zip(name[net.src].tolist(), name[net.dst].tolist(), net.bandwidth, net.latency_s, strict=True)
        kinds = [ACCELERATOR if is_one else SWITCH for is_one in net.is_accelerator.tolist()]
        renamed = make_topology("renamed", kinds, [*links], message_s=net.message_s)
        c = make_collective(kind, renamed, 16_000_000, ranks=net.accelerators[ranks])
        ends.append(simulate(run_planner("hierarchical", renamed, Workload((c,)))).completion_s)
    assert ends[0] == pytest.approx(ends[1])


def test_jobs_wait_for_the_blocks_that_are_brought_to_carriers():
    net, c = collective("h100:4?message=20us", "allgather", 16_000_000, UNEVEN)
    ways = Ways(net)
    seen = 0
    for _, each in candidates(net, c):
        if "carry" in each.algorithm.summary:
            waves = JobLoads.of(net, each, c, ways).waves
            brings = each.phase[waves.step] < 0
            assert brings.any() and not waves.wave[brings].any()
            others = waves.jobs.depends.owners[brings[waves.jobs.depends.values]]
            assert not brings[others].all(), "jobs wait for them"
            first = each.phase[waves.step] == each.phase[each.phase >= 0].min()
            assert not waves.wave[first].any(), "what they bring is sent with what was there"
            seen += 1
    assert seen
