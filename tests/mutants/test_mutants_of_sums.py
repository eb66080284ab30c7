"""Ways of damaging a plan that sums: each must be rejected, and for the right reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_mutants import code

from joins import in_one_pass, in_two_steps, two_levels
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import Plan, make_plan
from stretto.model.targets import find_target
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.topologies import assume_messages, load_topology


def leave_a_source_out(plan: Plan) -> Plan:
    return replace(plan, other_src=Ragged.of([[1, 2]]))


def count_a_source_twice(plan: Plan) -> Plan:
    return replace(plan, other_src=Ragged.of([[1, 2, 3, 2]]))


def leave_a_source_and_its_link_out(plan: Plan) -> Plan:
    route = [link for link in plan.route[0].tolist() if plan.topology.src[link] != 3]
    return replace(plan, other_src=Ragged.of([[1, 2]]), route=Ragged.of([route]))


def stop_before_all_have_met(plan: Plan) -> Plan:
    return replace(plan, route=Ragged.of([plan.route[0][:5].tolist()]))


def send_a_part_of_the_sum_down(plan: Plan) -> Plan:
    # node 5 sends down what nodes 2 and 3 have sent, before it has met the rest
    links = plan.route[0].tolist()
    early = [link for link in links[6:] if plan.topology.src[link] == 5]
    return replace(plan, route=Ragged.of([links[:4] + early + [link for link in links[4:] if link not in early]]))


def send_on_before_the_last_has_come(plan: Plan) -> Plan:
    links = plan.route[0].tolist()
    return replace(plan, route=Ragged.of([[links[0], links[4], *links[1:4], *links[5:]]]))


def without(flag: str, node: int):
    def damage(plan: Plan) -> Plan:
        flags = getattr(plan.topology, flag).copy()
        flags[node] = False
        return replace(plan, topology=replace(plan.topology, **{flag: flags}))

    damage.__name__ = f"without_{flag}_at_{node}"
    return damage


def sum_what_is_not_summed(plan: Plan) -> Plan:
    workload = Workload((make_collective("broadcast", plan.topology, 10**6),))
    return replace(plan, workload=workload)


def send_again(plan: Plan) -> Plan:
    """A second pass sums the sums of the first."""
    twice = {name: Ragged.concatenate([getattr(plan, name)] * 2) for name in ("dst", "route", "other_src")}
    columns = {name: np.tile(getattr(plan, name), 2) for name in ("chunk", "src", "op")}
    start = np.array([0.0, 1.0])
    return replace(plan, **twice, **columns, depends=Ragged.of([[], [0]]), start_s=start, finish_s=start + 1e-3)


def hurry_the_sum(plan: Plan) -> Plan:
    return replace(plan, finish_s=plan.finish_s * 0.99)


SUM_MUTANTS = {
    leave_a_source_out: "route",
    count_a_source_twice: "source-twice",
    leave_a_source_and_its_link_out: "incomplete",
    stop_before_all_have_met: "apart",
    send_a_part_of_the_sum_down: "route-loop",
    send_on_before_the_last_has_come: "route-loop",
    without("reduces", 4): "no-reduction",
    without("reduces", 6): "no-reduction",
    without("replicates", 5): "no-replication",
    without("transit", 5): "no-transit",
    sum_what_is_not_summed: "not-held",
    send_again: "incomplete",
    hurry_the_sum: "speed",
}


@pytest.mark.parametrize("damage", SUM_MUTANTS, ids=lambda f: f.__name__)
def test_a_damaged_sum_is_rejected_for_the_right_reason(damage):
    plan = in_one_pass(two_levels(), parts=1)
    assert code(plan) == "ok"
    assert code(damage(plan)) == SUM_MUTANTS[damage]


def test_copies_of_one_chunk_are_not_summed():
    plan = in_one_pass(two_levels(), parts=1)
    everybody = replace(plan.workload.collectives[0], kind="allreduce", reduces=False)
    assert code(replace(plan, workload=Workload((everybody,)))) in {"promise", "reduce-of-copy"}


@pytest.mark.parametrize(("source", "early_s"), [(1, 1e-6), (2, 1e-3)])
def test_a_sum_that_starts_before_its_source_has_all_is_found(source, early_s):
    plan = in_two_steps()
    assert code(plan) == "ok"
    if source == 2:
        # what arrives at a further source counts as what arrives at the first
        order = Ragged.of([[], [1, 3]])
        plan = replace(plan, src=np.array([0, 2], np.int32), other_src=order)
        assert code(plan) == "ok"
    start = plan.start_s - [0.0, early_s]
    assert code(replace(plan, start_s=start, finish_s=start + 1e-3)) == "before-dependency"


def test_two_sums_at_one_moment_on_one_tree_are_found():
    plan = in_one_pass(two_levels(), parts=2)
    assert code(plan) == "ok"
    start = np.zeros(2)
    both = replace(plan, start_s=start, finish_s=start + plan.finish_s[0])
    assert code(both) == "capacity"


def test_a_sum_that_uses_a_link_on_the_way_in_and_out_is_found():
    # both accelerators hang on switch 2, which sums by way of switch 3: over 2→3, and again over 2→3→2
    links = [(0, 2, 1e9, 0), (1, 3, 1e9, 0), (2, 3, 1e9, 0), (3, 2, 1e9, 0), (2, 0, 1e9, 0), (3, 1, 1e9, 0),
             (3, 4, 1e9, 0), (4, 2, 1e9, 0)]  # fmt: skip
    kinds = [ACCELERATOR] * 2 + [SWITCH] * 3
    net = make_topology("loop", kinds, links, reduces=[False] * 2 + [True] * 3)
    workload = Workload((make_collective("allreduce", net, 1000),))
    route = [0, 2, 1, 6, 7, 2, 4, 5]
    plan = make_plan(
        net, workload, "timed", chunk=[0], src=[0], other_src=Ragged.of([[1]]), dst=Ragged.of([[0, 1]]),
        route=Ragged.of([route]), depends=Ragged.empty(1), start_s=[0.0], finish_s=[1e-6],
    )  # fmt: skip
    assert code(plan) == "route-loop"


def on_a_ring() -> Plan:
    """Sums of pairs that walk on a ring of 6: at the third hop ranks forward what came at the second."""
    net = costing(assume_messages(load_topology("ring:6")), find_target("torch").message_s)
    work = Workload((make_collective("allreduce", net, 4000),))
    return run_planner("greedy", net, work, target=find_target("torch"))


def with_flag(plan: Plan, k: int, flag: int) -> Plan:
    assert plan.forwards is not None
    return replace(plan, forwards=np.where(np.arange(plan.transfer_count) == k, flag, plan.forwards).astype(np.int8))


def with_depends(plan: Plan, k: int, waits: list[int]) -> Plan:
    lists = [plan.depends[i].tolist() for i in range(plan.transfer_count)]
    return replace(plan, depends=Ragged.of([*lists[:k], waits, *lists[k + 1 :]]))


def test_what_a_transfer_forwards_is_held_to_what_others_brought():
    plan = on_a_ring()
    assert plan.forwards is not None and code(plan) == "ok"
    k = int(np.flatnonzero(plan.forwards)[-1])
    first = int(np.flatnonzero(plan.depends.lengths == 0)[0])
    came = [w for w in range(k) if plan.chunk[w] == plan.chunk[k] and plan.dst[w][0] == plan.src[k]]
    assert code(with_flag(plan, k, 0)) == "incomplete"  # its receiver has what the rank holds besides
    assert code(with_flag(plan, first, 1)) == "not-held"
    assert code(with_depends(plan, k, [])) == "missing-dependency"
    assert code(with_depends(plan, k, came[:1])) == "incomplete"  # it forwards what its receiver has
    assert code(with_depends(plan, k, came)) == "incomplete"
    assert code(replace(plan, forwards=None)) == "incomplete"
