"""Plans made again where messages cost more, and timed where they cost what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.rows import ends_at_nodes
from stretto.model.targets import TARGETS
from stretto.planners import registry, run_planner
from stretto.planners.run import plan_by
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.resizing import timed_again
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

EFFORT = "0.3"


@pytest.fixture(scope="module")
def case():
    """A mesh, its AllReduce, and what forest plans for no target."""
    net = assume_messages(load_topology("mesh:4x4"))
    work = Workload((make_collective("allreduce", net, 64_000_000),))
    return net, work, run_planner("forest", net, work, effort=EFFORT)


def test_chunks_of_trees_side_by_side_take_turns_when_a_plan_is_timed_again(case):
    # by when chunks set out alone, the plan ends at 1.07 of the first one
    net, work, plan = case
    costly = replace(net, message_s=np.full(net.link_count, 8e-6))
    coarse = run_planner("forest", costly, work, effort=EFFORT)
    again = timed_again(coarse, net, coarse.workload, Budget())
    assert verify(again).ok
    assert completion_s(again) <= 1.05 * completion_s(plan)


def test_a_plan_is_made_again_in_between_where_few_messages_end_much_later():
    # where messages cost 3.5 us the plan has few enough of them and ends 4 % later, where they cost 2.6 us 2.5 %
    net = assume_messages(load_topology("ring:8"))
    work = Workload((make_collective("broadcast", net, 64_000_000),))
    finest = run_planner("forest", net, work, effort="0.1")
    most = int(ends_at_nodes(finest).max() / 1.7)
    fitted = run_planner("forest", net, work, effort="0.1", target=replace(TARGETS["nccl-p2p"], messages=most))
    assert ends_at_nodes(fitted).max() <= most
    assert completion_s(fitted) <= 1.03 * completion_s(finest)


def test_a_plan_that_is_made_again_gets_the_effort_of_the_first(monkeypatch):
    registry.registered()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry.registered()))
    steps: list[float] = []

    @registry.register("halves", collectives=("broadcast",), topologies="any", paper="none", messages=True)
    def halves(request):
        """Spends half of the effort on a plan of eight parts."""
        steps.append(request.budget.left)
        request.budget.charge(request.budget.left / 2)
        return plan_by("greedy", replace(request, budget=Budget()), parts=8)

    net = assume_messages(load_topology("line:3"))
    work = Workload((make_collective("broadcast", net, 1_000_000),))
    with pytest.raises(Unsupported, match="messages of a rank"):
        run_planner("halves", net, work, effort="quick", target=replace(TARGETS["nccl-p2p"], messages=4))
    assert len(steps) > 1
    assert set(steps) == {steps[0]}
