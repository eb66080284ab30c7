"""Whether ranks add up in one order: by expressions, and by the bits that programs leave."""

from __future__ import annotations

import pytest

from stretto.lower.alike import sums_alike
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.targets import find_target
from stretto.planners import run_planner
from stretto.topologies import load_topology


def plan_of(planner: str, ranks: int, kind: str = "allreduce", **more):
    net = load_topology(f"fullmesh:{ranks}")
    return run_planner(planner, net, Workload((make_collective(kind, net, 1 << 12),)), **more)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_fixed_algorithms_add_up_in_one_order_and_direct_exchanges_of_more_than_two_ranks_do_not(ranks):
    for planner in ("ring", "recursive-doubling", "rabenseifner"):
        assert sums_alike(plan_of(planner, ranks)), planner
    assert sums_alike(plan_of("greedy", ranks)) is (ranks == 2)  # each rank adds what comes to what it has
    assert sums_alike(plan_of("greedy", ranks, "reducescatter"))


def test_a_plan_for_processes_of_pytorch_adds_up_in_one_order():
    torch = find_target("torch")
    with pytest.raises(Unsupported, match="all must end with the same bits"):
        plan_of("greedy", 3, target=torch)
    assert sums_alike(plan_of("auto", 3, target=torch))
    assert not sums_alike(plan_of("auto", 3))
