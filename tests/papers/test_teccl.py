"""TE-CCL and the exact model against the optimal values that were established for them.

The values (fewest epochs, with the smaller horizon infeasible) are for TE-CCL's own epochs and
rounding; see docs/contributors/planners/teccl.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, InputError
from stretto.model.plan import REDUCE
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.planners.teccl.copies import CopyModel
from stretto.planners.teccl.epochs import epoch_seconds, in_epochs, initial_state
from stretto.simulate import simulate
from stretto.solvers import solve
from stretto.topologies import load_topology
from stretto.verify import verify

CASES = [
    # spec, shard bytes, chunks, mode, fewest epochs, epoch, alpha counted
    ("dgx1", 62_500_000, 1, "fast", 3, 1.25e-3, True),
    ("dgx1", 62_500_000, 2, "fast", 5, 0.625e-3, True),
    ("dgx1", 62_500_000, 4, "fast", 10, 0.3125e-3, True),
    ("dgx1", 25_000, 1, "fast", 7, 0.5e-6, True),
    ("amd:1", 62_500_000, 1, "fast", 14, 312.5e-6, False),
    ("ndv2:2", 62_500_000, 1, "slow", 10, 5e-3, True),
    ("dgx2:2", 31_250_000, 1, "slow", 4, 2.5e-3, True),
]


def network(spec, alpha):
    net = load_topology(spec)
    return net if alpha else replace(net, latency_s=np.zeros_like(net.latency_s))


@pytest.mark.parametrize(("spec", "shard", "chunks", "mode", "epochs", "epoch_s", "alpha"), CASES)
def test_the_fewest_epochs_are_found_and_proven(spec, shard, chunks, mode, epochs, epoch_s, alpha):
    net = network(spec, alpha)
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("teccl", net, workload, options={"mode": mode, "epochs": "from-heuristic"}, time_limit_s=120)
    assert (plan.meta["epochs"], plan.meta["proven"]) == (epochs, True)
    assert plan.meta["epoch_s"] == pytest.approx(epoch_s)
    assert plan.meta["reported_s"] == pytest.approx(epochs * epoch_s)
    assert verify(plan).ok


@pytest.mark.parametrize(("spec", "shard", "chunks", "mode", "epochs", "epoch_s", "alpha"), CASES[:5])
def test_one_epoch_less_is_infeasible_for_highs_alone(spec, shard, chunks, mode, epochs, epoch_s, alpha):
    net = network(spec, alpha)
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    size = float(workload.chunk_bytes.max())
    grid = in_epochs(net, size, epoch_seconds(net, size, mode))
    state = initial_state(net, workload, grid.seconds)
    wanted = np.ones_like(state.held) & ~state.held
    for horizon, possible in ((epochs - 1, False), (epochs, True)):
        model = CopyModel(grid, horizon, state, wanted)
        found = solve(model.model, first=True).status == "optimal" if model.possible else False
        assert found is possible


def test_its_own_search_for_a_horizon_ends_at_the_same_epochs():
    net = load_topology("dgx1")
    workload = Workload((make_collective("allgather", net, shard_bytes=62_500_000),))
    plan = run_planner("teccl", net, workload)
    assert plan.meta["epochs"] == 3
    # 6 coarse epochs twice (3 x 2 hops), then the fewest fine ones
    assert [a["epochs"] for a in plan.meta["attempts"]][:2] == [6, 6]


def test_a_horizon_that_is_too_short_says_by_how_much():
    net = load_topology("dgx1")
    workload = Workload((make_collective("allgather", net, shard_bytes=62_500_000),))
    with pytest.raises(Infeasible, match=r"2 epochs .* at least 3 are needed, and \d+ do"):
        run_planner("teccl", net, workload, options={"epochs": "2"})


def test_the_papers_objective_is_average_completion_and_not_makespan():
    # one epoch more than the fewest: the sum of met demand is what it maximises
    net = load_topology("dgx1")
    workload = Workload((make_collective("allgather", net, shard_bytes=62_500_000),))
    plan = run_planner("teccl", net, workload, options={"objective": "paper", "epochs": "5"})
    assert 3 <= plan.meta["epochs"] <= 5
    assert plan.meta["gap"] <= 1e-4


def test_alpha_is_dropped_where_it_is_a_tenth_of_an_epoch_and_else_rounded_up():
    net = load_topology("dgx1")
    size = 25_000.0
    slow, fast = in_epochs(net, size, 7.1e-6), in_epochs(net, size, 0.5e-6)
    assert set((slow.delay - slow.window).tolist()) == {0}
    assert set((fast.delay - fast.window).tolist()) == {2}  # 0.7 us of alpha in epochs of 0.5 us


def test_epochs_are_no_shorter_than_a_200th_of_alpha():
    net = load_topology("ndv2:4")
    assert epoch_seconds(net, 31.25, "fast") == pytest.approx(0.7e-6 / 200)


def test_a_switch_sends_on_in_the_epoch_in_which_a_chunk_is_there():
    # 3 others' chunks through one link a rank: 3 epochs, not 4; the plan takes no less
    net = load_topology("star:4?latency=0us")
    workload = Workload((make_collective("allgather", net, shard_bytes=10**6),))
    plan = run_planner("teccl", net, workload)
    assert plan.meta["epochs"] == 3
    assert simulate(plan).completion_s == pytest.approx(plan.meta["reported_s"])


def test_without_switch_copies_every_receiver_costs_a_send():
    net = load_topology("star:4?latency=0us")
    workload = Workload((make_collective("broadcast", net, 10**6),))
    one, many = (
        run_planner("teccl", net, workload, options={"switch_copy": flag, "epochs": "6"}).meta["epochs"]
        for flag in (True, False)
    )
    assert (one, many) == (1, 3)


def test_alltoall_without_copies_reaches_the_bound_on_ndv2():
    net = load_topology("ring:6")
    workload = Workload((make_collective("alltoall", net, 6 * 10**6),))
    plan = run_planner("teccl", net, workload)
    assert plan.meta["proven"]
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.25 * plan.meta["reported_s"]


def test_where_everyone_has_what_he_wants_nothing_is_sent():
    net = load_topology("ring:3")
    work = Workload((make_collective("multicast", net, 3000, root=1, receivers=[1]),))
    plan = run_planner("teccl", net, work)
    assert plan.transfer_count == 0 and plan.meta["proven"]


def test_rounds_bring_everything_everywhere():
    net = load_topology("torus:3x3")
    workload = Workload((make_collective("allgather", net, 9 * 10**6),))
    plan = run_planner("teccl", net, workload, options={"astar": True, "mode": "slow"})
    assert verify(plan).ok
    assert plan.meta["rounds"] >= 1


@pytest.mark.parametrize(("kind", "of"), [("reduce", ["broadcast"]), ("reducescatter", ["allgather"]),
                                         ("allreduce", ["allgather", "allgather"])])  # fmt: skip
def test_sums_take_the_epochs_of_the_copies_that_they_invert(kind, of):
    net = load_topology("dgx1")
    # a chunk of 6 MB each
    sizes = {"broadcast": 6 * 10**6, "reduce": 6 * 10**6, "allgather": 48 * 10**6, "reducescatter": 48 * 10**6}

    def made(kind, chunks=1):
        work = Workload((make_collective(kind, net, sizes.get(kind, 48 * 10**6), chunks=chunks),))
        return run_planner("teccl", net, work, options={"epochs": "from-heuristic"})

    plan = made(kind, 8 if kind == "allreduce" else 1)
    assert verify(plan).ok
    assert plan.meta["phases"] == len(of)
    assert plan.meta["proven"]
    assert plan.meta["reported_s"] == pytest.approx(sum(made(k).meta["reported_s"] for k in of))


@pytest.mark.parametrize("spec", ["star:4", "sites:2,3", "fattree:2"])
def test_sums_pass_through_switches_and_routers_and_are_not_made_there(spec):
    net = load_topology(spec)
    work = Workload((make_collective("allreduce", net, 3600, start_s=1e-3),))
    plan = run_planner("teccl", net, work, options={"mode": "slow", "epochs": "from-heuristic"})
    assert verify(plan).ok
    sums = plan.op == REDUCE
    assert (net.kind[plan.src[sums]] == ACCELERATOR).all()
    assert (net.kind[plan.dst.take(np.flatnonzero(sums)).values] == ACCELERATOR).all()
    assert plan.start_s.min() >= 1e-3


def test_a_round_is_longer_than_a_passage_through_several_switches():
    # 1 + 10 + 10 epochs from end to end, more than a round's 15
    joined = [(0, 2, 1e8), (2, 3, 1e7), (3, 4, 1e7), (4, 1, 1e8)]
    links = [(a, b, width, 0.0) for s, d, width in joined for a, b in ((s, d), (d, s))]
    net = make_topology("chain", [ACCELERATOR] * 2 + [SWITCH] * 3, links)
    plan = run_planner("teccl", net, Workload((make_collective("allgather", net, 2000),)), options={"astar": True})
    assert verify(plan).ok
    assert plan.meta["rounds"] == 1


def test_a_round_leaves_links_alone_that_an_earlier_one_keeps_busy():
    net = make_topology("pair", [ACCELERATOR] * 3, [(0, 1, 1e8, 0.0), (1, 2, 1e9, 0.0), (2, 0, 1e9, 0.0)])
    work = Workload((make_collective("broadcast", net, 1000, root=0),))
    epochs = in_epochs(net, 1000.0, 1e-6)
    assert epochs.window.tolist() == [10, 1, 1]
    state = replace(initial_state(net, work, epochs.seconds), begun=[(0, -4)])  # so busy until epoch 6
    wanted = np.zeros_like(state.held)
    wanted[0, 1:] = True
    for horizon, status in ((6 + 10 + 1, "optimal"), (6 + 10, "infeasible")):
        model = CopyModel(epochs, horizon, state, wanted)
        assert solve(model.model, solver="cp-sat", time_limit_s=60.0).status == status


def test_sums_in_rounds():
    net = load_topology("torus:3x3")
    work = Workload((make_collective("reducescatter", net, 9 * 10**6),))
    plan = run_planner("teccl", net, work, options={"astar": True, "mode": "slow"})
    assert verify(plan).ok


def test_sums_with_copies_beside_them():
    net = load_topology("ring:4")
    work = Workload(tuple(make_collective(kind, net, 4000) for kind in ("allreduce", "alltoall")))
    plan = run_planner("teccl", net, work, options={"mode": "slow", "epochs": "from-heuristic"})
    assert verify(plan).ok
    assert plan.meta["phases"] == 3


def test_collectives_on_a_wan_of_uneven_links():
    net, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=1)
    plan = run_planner("teccl", net, work, options={"mode": "slow", "epochs": "from-heuristic"}, time_limit_s=20)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= plan.meta["reported_s"]


def test_sums_without_copying_are_refused():
    net = load_topology("ring:4")
    work = Workload((make_collective("allreduce", net, 4000),))
    with pytest.raises(InputError, match="sums need it"):
        run_planner("teccl", net, work, options={"copy": "false"})


@pytest.mark.parametrize(("shard", "chunks", "slots"), [(25_000, 1, 7), (62_500_000, 1, 5), (62_500_000, 2, 6)])
@pytest.mark.parametrize("solver", ["cp-sat", "highs"])
def test_equations_1_to_14_by_two_solvers(shard, chunks, slots, solver):
    net = load_topology("dgx1")
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("milp-allgather", net, workload, options={"solver": solver})
    assert (plan.meta["slots"], plan.meta["proven"]) == (slots, True)


def test_no_mtegcca_plan_in_slots_has_fewer_slots_than_the_exact_model():
    net = load_topology("torus:3x3")
    workload = Workload((make_collective("allgather", net, 9 * 10**6),))
    exact = run_planner("milp-allgather", net, workload).meta
    plan = run_planner("mtegcca", net, workload, options={"time": "slots"})
    assert exact["slots"] <= plan.meta["slots"]


def test_a_switch_that_does_not_replicate_sends_each_copy_by_itself():
    rows = [(v, 4, 1e9, 0.0) for v in range(4)] + [(4, v, 1e9, 0.0) for v in range(4)]
    net = make_topology("star", [0] * 4 + [2], rows, replicates=[False] * 5)
    workload = Workload((make_collective("broadcast", net, 10**6),))
    plan = run_planner("teccl", net, workload)
    assert verify(plan).ok
    assert plan.meta["epochs"] == 3


def test_the_smallest_pieces_are_not_lost_in_a_solvers_tolerance():
    net = load_topology("dgx1")
    workload = Workload((make_collective("scatter", net, 8 * 10**9), make_collective("gather", net, 64)))
    assert verify(run_planner("teccl", net, workload)).ok


def test_the_linear_program_charges_the_latency_after_a_slow_switch():
    rows = [(0, 2, 100e9, 0.0), (1, 2, 100e9, 0.0), (2, 0, 12.5e9, 100e-6), (2, 1, 12.5e9, 100e-6)]
    net = make_topology("slow", [0, 0, 2], rows)
    plan = run_planner("teccl", net, Workload((make_collective("alltoall", net, 2 * 10**6),)))
    assert plan.meta["reported_s"] >= 100e-6


def test_little_effort_ends_every_search_at_the_same_place():
    net = load_topology("ndv2:2")
    workload = Workload((make_collective("allgather", net, 10**9),))
    options = {"epochs": "from-heuristic"}
    plans = [run_planner("teccl", net, workload, options=options, effort="quick") for _ in range(2)]
    assert [plan.meta["proven"] for plan in plans] == [False, False]
    assert plans[0].digest() == plans[1].digest()


@pytest.mark.parametrize("kind", ["allgather", "alltoall", "reducescatter"])
def test_where_little_effort_finds_no_schedule_the_other_planners_plan_is_the_answer(kind):
    net = load_topology("sites:2,3")
    workload = Workload((make_collective(kind, net, 1_000_003),))
    plan = run_planner("teccl", net, workload, effort="quick")
    assert plan.meta["proven"] is False
    assert verify(plan).ok


def test_when_time_is_up_the_plan_at_hand_is_the_answer():
    net = load_topology("ndv2:2")
    workload = Workload((make_collective("allgather", net, 10**9),))
    options = {"objective": "paper", "epochs": "from-heuristic"}
    plans = [run_planner("teccl", net, workload, options=options, time_limit_s=0.01)]
    plans += [run_planner("milp-allgather", net, workload, time_limit_s=0.01)]
    assert [(plan.meta["proven"], plan.meta["stopped"]) for plan in plans] == [(False, True)] * 2


@pytest.mark.parametrize(
    "options", [{"gap": -3.0}, {"epochs": "²"}, {"epoch_multiplier": 1e300}, {"astar": True, "epochs": "3"}]
)
def test_options_that_make_no_sense_are_refused(options):
    net = load_topology("dgx1")
    with pytest.raises(InputError):
        run_planner("teccl", net, Workload((make_collective("allgather", net, 8000),)), options=options)
