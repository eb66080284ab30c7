"""Plans made again where messages cost more, and timed where they cost what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.rows import ends_at_nodes
from stretto.model.targets import TARGETS
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import registry, run_planner
from stretto.planners.fixed.planner import plan_algorithm
from stretto.planners.registry import Request
from stretto.planners.run import plan_by
from stretto.schedule.algorithms import DISSEMINATION
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.resizing import tapered, timed_again
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


def uneven(message_s: float):
    """Five ranks around a switch and beside each other, by links that are unlike."""
    pairs = [(0, 2, 1e9), (0, 5, 1e11), (1, 4, 1e11), (1, 5, 2e9), (2, 5, 2e9), (3, 4, 2e9), (3, 5, 1e9), (4, 5, 1e9)]
    links = [(a, b, width, 1e-6) for x, y, width in pairs for a, b in ((x, y), (y, x))]
    return make_topology("uneven", [ACCELERATOR] * 5 + [SWITCH], links, message_s=np.full(len(links), message_s))


@pytest.fixture(scope="module")
def in_messages():
    """A timed plan whose messages carry several chunks, and share links."""
    net = uneven(5e-5)
    request = Request(net, Workload((make_collective("allreduce", net, 5_000_000, chunks=2),)))
    plan = plan_algorithm(DISSEMINATION, request, timed=True)
    assert plan.sharing == "timed" and message_count(plan) < plan.transfer_count
    return plan


def test_chunks_that_arrive_together_in_a_message_keep_their_sizes(in_messages):
    assert tapered(in_messages, Budget()) is in_messages


@pytest.mark.parametrize("message_s", [1e-6, 1e-3])
def test_messages_of_several_chunks_are_timed_again_as_messages(in_messages, message_s):
    again = timed_again(in_messages, uneven(message_s), in_messages.workload, Budget())
    assert verify(again).ok
    assert message_count(again) == message_count(in_messages)


def test_a_plan_for_processes_that_send_several_chunks_in_a_message_is_right():
    net = uneven(1e-6)
    work = Workload((make_collective("allreduce", net, 5_000_000, chunks=2),))
    assert verify(run_planner("hierarchical", net, work, target=TARGETS["torch"])).ok
