"""Every target, for every kind that it runs: the default plan can be exported, or run, as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import stretto as st
from msccl_executor import check
from mscclpp_executor import execute
from stretto.formats import Size, exporters, importers
from stretto.formats.steps import parts_of
from stretto.model.chunks import covering, equal_parts, in_equal_parts, weighted
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.rows import ends_at_nodes, nodes_in
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.planners.registry import Request
from stretto.planners.run import plan_by
from stretto.runtime.local import run_local
from stretto.schedule.effort import Budget
from stretto.schedule.fitting import seen_by_target
from stretto.schedule.kept import Kept
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

NETS = ("zoo:Napnet", "sites:2,2")
"""Uneven links, on which sums are unlike and chunks uneven; and routers that store."""
EFFORT = "0.05"


@pytest.fixture(scope="module")
def planned():
    """The default plan for a target, made once for each case."""
    plans = {}

    def plan(target: str, net: str, kind: str):
        key = target, net, kind
        if key not in plans:
            plans[key] = st.plan(kind, net, size="4MB", target=target, effort=EFFORT)
            verdict = verify(plans[key])
            assert verdict.ok, verdict.finding
        return plans[key]

    return plan


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("kind", TARGETS["msccl"].kinds)
def test_a_plan_for_msccl_computes_its_collective(net, kind, planned, tmp_path):
    plan = planned("msccl", net, kind)
    path = tmp_path / "plan.xml"
    exporters()["msccl"].write(simulate(plan), str(path))
    c = plan.workload.collectives[0]
    check(path.read_text(), kind, len(c.ranks), parts_of(c, TARGETS["msccl"]).number, 0)


@pytest.mark.parametrize("kind", TARGETS["mscclpp"].kinds)
def test_a_plan_for_mscclpp_computes_its_collective(kind, planned, tmp_path):
    plan = planned("mscclpp", "zoo:Napnet", kind)
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(plan), str(path))
    c = plan.workload.collectives[0]
    n, k = len(c.ranks), parts_of(c, TARGETS["mscclpp"]).number
    rows = k if c.traits.whole or kind == "allgather" else n * k
    inputs = [np.random.default_rng(r).integers(0, 10**6, (rows, 3)) for r in range(n)]
    outputs, total = execute(json.loads(path.read_text()), inputs, 0), sum(inputs)
    for r, output in enumerate(outputs):
        wanted = {
            "allgather": lambda: np.concatenate(inputs),
            "allreduce": lambda: total,
            "reduce": lambda r=r, output=output: total if r == 0 else output,
            "broadcast": lambda: inputs[0],
            "reducescatter": lambda r=r: total[r * k : (r + 1) * k],
            "alltoall": lambda r=r: np.concatenate([i[r * k : (r + 1) * k] for i in inputs]),
        }[kind]()
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("kind", TARGETS["torch"].kinds)
def test_a_plan_for_torch_runs_among_the_ranks(kind, planned):
    plan = planned("torch", "sites:2,2", kind)
    assert not run_local(plan, seed=1).wrong


@pytest.mark.parametrize("kind", TARGETS["nccl-p2p"].kinds)
def test_a_plan_for_sends_and_receives_is_of_the_ranks_alone(kind, planned):
    plan = planned("nccl-p2p", "sites:2,2", kind)
    assert (plan.dst.lengths == 1).all() and plan.sharing in TARGETS["nccl-p2p"].sharing
    assert {*plan.src.tolist(), *plan.dst.values.tolist()} <= {*plan.workload.collectives[0].ranks.tolist()}


@pytest.mark.parametrize("kind", TARGETS["chakra"].kinds)
def test_a_plan_for_chakra_is_read_back_as_it_was(kind, planned, tmp_path):
    plan = planned("chakra", "zoo:Napnet", kind)
    exporters()["chakra"].write(simulate(plan), str(tmp_path / "x"))
    back = importers()["chakra"].read(str(tmp_path / "x"), plan.topology, Size(4_000_000, None))
    assert verify(back).ok and back.transfer_count == plan.transfer_count
    assert sorted(back.size_bytes.tolist()) == sorted(plan.size_bytes.tolist())


def test_the_same_request_gives_the_same_plan_and_names_its_target(tmp_path):
    one, other = (st.plan("allreduce", "dgx1", size="4MB", target="msccl", effort=EFFORT) for _ in range(2))
    assert one.digest() == other.digest() and one.summary()["target"] == "msccl"
    assert not one.workload.collectives[0].evenly_cut, "chunks cover several parts"
    exporters()["msccl"].write(simulate(one), str(tmp_path / "x"))
    check(
        (tmp_path / "x").read_text(), "allreduce", 8, parts_of(one.workload.collectives[0], TARGETS["msccl"]).number, 0
    )


def test_fewer_messages_are_planned_where_a_target_takes_fewer():
    net = st.topology("ring:4")
    work = Workload((make_collective("broadcast", net, 1_000_000),))
    busiest = [
        int(ends_at_nodes(run_planner("forest", net, work, effort=EFFORT, target=target)).max())
        for target in (TARGETS["msccl"], replace(TARGETS["msccl"], messages=40))
    ]
    assert busiest[0] > 40 >= busiest[1]


def test_programs_are_made_to_run_at_once_where_that_costs_little():
    net = st.topology("ring:4")

    def busiest(at_once: int) -> int:
        target = replace(TARGETS["mscclpp"], messages_at_once=at_once)
        work = Workload((make_collective("broadcast", net, 1_000_000),))
        return int(ends_at_nodes(run_planner("forest", net, work, effort=EFFORT, target=target)).max())

    finest = busiest(10**6)
    assert finest > 1500 >= busiest(1500)
    assert busiest(40) == finest, "where fewer messages cost more than 2 %, the plan stays as it is"


def test_plans_that_are_kept_are_those_that_are_made_again():
    net, kept = assume_messages(st.topology("dgx2:1")), Kept()
    work = Workload((make_collective("allreduce", net, 4_000_000),))
    for name in ("nccl-p2p", "msccl", "mscclpp"):
        alone, shared = (
            run_planner("auto", net, work, effort=EFFORT, target=TARGETS[name], kept=each) for each in (None, kept)
        )
        assert alone.digest() == shared.digest()


def test_what_a_target_asks_takes_nothing_from_what_planners_may_try():
    net = assume_messages(st.topology("dgx1"))
    work = Workload((make_collective("broadcast", net, 64_000_000),))
    tried = [
        [
            (each["planner"], "refused" in each)
            for each in run_planner("auto", net, work, effort="0.2", target=t).meta["tried"]
        ]
        for t in (None, TARGETS["chakra"])
    ]
    assert tried[0] == tried[1]


@pytest.mark.parametrize(
    ("made_for", "says"),
    [("msccl", "the plan was made for msccl; plan for the target mscclpp"), (None, "; plan for the target mscclpp")],
)
def test_a_plan_that_a_format_cannot_express_names_the_target_to_plan_for(made_for, says, tmp_path):
    net = st.topology("ring:3")
    cut = covering(make_collective("broadcast", net, 9973), 9973, np.array([311, 5, 9657]))
    plan = run_planner("shortest-path", net, Workload((cut,)))
    plan = plan.noted({**plan.meta, "target": made_for} if made_for else plan.meta)
    with pytest.raises(Unsupported, match=f"of different sizes.*{says}"):
        exporters()["mscclpp"].write(simulate(plan), str(tmp_path / "x"))


@pytest.mark.parametrize(("kind", "last"), [("broadcast", True), ("reduce", False)])
def test_chunks_are_smaller_where_they_are_passed_on_behind_a_slow_link(kind, last):
    net = st.topology("sites:2,8")
    plan = st.plan(kind, net, size="16MB", planner="forest", target="nccl-p2p")
    sizes = plan.workload.collectives[0].chunk_bytes
    assert sizes.sum() == 16_000_000 and verify(plan).ok
    order = np.argsort([plan.finish_s[plan.chunk == k].max() for k in range(len(sizes))])
    small, large = sizes[order][[-1, 0] if last else [0, -1]]
    assert small * 4 <= large
    even = st.plan(kind, net, size="16MB", planner="forest")
    assert simulate(plan).completion_s < 0.95 * simulate(even).completion_s


@pytest.mark.parametrize(
    ("target", "kind", "net", "size", "error", "says"),
    [
        ("msccl", "scatter", "dgx1", "1MB", Unsupported, "does not run scatter.*these run it: torch, nccl-p2p"),
        ("msccl", "allreduce,allgather", "dgx1", "1MB", Unsupported, "plan each of the 2 by itself"),
        ("nccl-p2p", "alltoall", "optical:4,1", "1MB", Unsupported, "optical planes; these do: torch"),
        ("mscclpp", "allgather", "dgx1", "64", InputError, "pieces of 8 bytes.*16 bytes or more; raise the size"),
        ("nccl", "allgather", "dgx1", "64", InputError, "no target 'nccl'; did you mean nccl-p2p"),
    ],
)
def test_what_a_target_can_never_run_is_refused_before_planning(target, kind, net, size, error, says, monkeypatch):
    monkeypatch.setattr("stretto.planners.run._plan", None)  # nothing is planned
    with pytest.raises(error, match=says):
        st.plan(kind, net, size=size, target=target)


def test_ranks_that_only_others_join_are_refused_before_planning():
    with pytest.raises(InputError, match=r"only over accelerators outside the collective.*make them ranks"):
        st.plan("allgather", "line:3", size="1MB", ranks=[0, 2], target="nccl-p2p")


def test_chunks_move_to_the_nearest_edges_and_stay_in_order():
    whole = make_collective("broadcast", st.topology("ring:3"), 1000)
    uneven = covering(whole, 1000, np.array([310, 5, 685]))
    cut = in_equal_parts(uneven, 16)
    parts = equal_parts(cut, 1, 16)
    assert parts.number == 16 and parts.covered.tolist() == [5, 1, 10]
    large = covering(make_collective("broadcast", st.topology("ring:3"), 10**9), 10**9, np.array([7, 10**9 - 7]))
    assert equal_parts(large, 1, 10**9) is None, "not found, after a bounded search"
    assert weighted(uneven, np.array([1.0, 1e-6, 1.0])) is None, "a chunk would be empty"
    assert weighted(whole, np.ones(1)).chunk_bytes.tolist() == [1000]
    assert weighted(uneven, 1000 / 3 / uneven.chunk_bytes).chunk_bytes.tolist() == [333, 334, 333]
    assert in_equal_parts(uneven, 2) is None and equal_parts(uneven, 100, 16) is None


def test_the_fewest_equal_parts_are_found():
    rng = np.random.default_rng(5)
    whole = make_collective("allgather", st.topology("ring:3"), 3 * 6007)
    piece_bytes = int(whole.piece_bytes[0])
    for number in [*rng.integers(4, 1500, 50).tolist(), *range(1020, 1036)]:
        edges = [np.sort(rng.choice(np.arange(1, number), 3, replace=False)) for _ in range(3)]
        ends = [np.append(np.rint(each * piece_bytes / number).astype(np.int64), piece_bytes) for each in edges]
        uneven = covering(whole, piece_bytes, np.concatenate([np.diff(each, prepend=0) for each in ends]))
        begin = uneven.chunk_offset.astype(np.float64)
        least = next(
            n for n in range(4, number + 1)
            if (np.abs(begin - np.rint(begin * n / piece_bytes) * piece_bytes / n) < 1).all()
        )  # fmt: skip
        parts = equal_parts(uneven, 1, piece_bytes)
        assert parts.number == least
        assert np.bincount(uneven.chunk_piece, parts.covered).tolist() == [least] * 3


def test_a_lane_that_tells_of_a_message_has_ended_the_sums_before_it(tmp_path):
    """On a mesh a lane sums, then only says that a message has come, and others take both to be over."""
    net = assume_messages(st.topology("mesh:3x3"))
    work = Workload((make_collective("allreduce", net, 16_000_000),))
    plan = run_planner("forest", net, work, effort=EFFORT, target=TARGETS["mscclpp"])
    exporters()["mscclpp"].write(simulate(plan), str(tmp_path / "plan.json"))
    k = parts_of(plan.workload.collectives[0], TARGETS["mscclpp"]).number
    inputs = [np.random.default_rng(r).integers(0, 10**6, (k, 3)) for r in range(9)]
    for output in execute(json.loads((tmp_path / "plan.json").read_text()), inputs, 0):
        np.testing.assert_array_equal(output, sum(inputs))


def test_sums_that_wait_for_copies_are_not_put_before_all_copies():
    """In the quickest AllReduce of a kilobyte on a ring sums wait for copies; its chunks are tried in other sizes."""
    net = assume_messages(st.topology("ring:8"))
    work = Workload((make_collective("allreduce", net, 1000),))
    assert verify(run_planner("greedy", net, work, effort="0.2", target=TARGETS["nccl-p2p"])).ok


def test_a_sum_that_is_written_at_two_ranks_at_once_may_go_through_a_slot_of_its_own(tmp_path):
    net = assume_messages(st.topology("dgx2:2"))
    work = Workload((make_collective("allreduce", net, 1000),))
    plan = run_planner("greedy", net, work, effort="0.5", target=TARGETS["mscclpp"])
    exporters()["mscclpp"].write(simulate(plan), str(tmp_path / "plan.json"))


def test_a_plan_with_a_few_chunks_too_many_is_cut_coarser():
    """Trees of 64 chunks, where 1 KB has 62 parts of 16 bytes: one chunk alone would take 2.26 times as long."""
    net = assume_messages(st.topology("zoo:Cesnet"))
    work = Workload((make_collective("broadcast", net, 1000),))
    target = TARGETS["mscclpp"]
    finer_s = simulate(run_planner("forest", net, work)).completion_s
    plan = run_planner("forest", net, work, target=target)
    assert parts_of(plan.workload.collectives[0], target).number <= 62
    assert simulate(plan).completion_s <= 1.05 * finer_s


def test_a_plan_that_is_made_again_for_a_target_takes_no_effort_from_other_planners():
    net = assume_messages(st.topology("zoo:Cesnet"))
    work = Workload((make_collective("broadcast", net, 1000),))
    spent = []
    for name in ("nccl-p2p", "mscclpp"):  # the first plan has 64 chunks, too many for mscclpp
        target, budget = TARGETS[name], Budget(1e7)
        seen = seen_by_target(target, net, work)
        plan_by("forest", Request(seen, work, budget=budget, target=target))
        spent.append(budget.spent)
    assert spent[0] == spent[1] > 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("scale-ccl", "alltoall"), ("greedy", "broadcast"), ("mtegcca", "allreduce"), ("forest", "broadcast"),
     ("hierarchical", "allreduce"), ("auto", "alltoall")],
)  # fmt: skip
def test_no_planner_stores_at_accelerators_outside_the_collective_that_routes_may_pass(name, kind):
    net = load_topology("sites:2,3?message=20us" if name == "hierarchical" else "zoo:Abilene?message=20us")
    net = replace(net, transit=np.ones(net.node_count, dtype=np.bool_))
    ranks = [0, 1, 4, 5] if name == "hierarchical" else [0, 2, 3, 5, 7, 10]
    work = Workload((make_collective(kind, net, 1_000_000, ranks=ranks),))
    plan = run_planner(name, net, work, effort="quick", target=TARGETS["torch"])
    assert verify(plan).ok
    assert set(nodes_in(plan).tolist()) <= set(ranks)
