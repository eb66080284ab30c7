"""The verifier: right plans pass, and what makes a plan wrong is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import ring, star
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import COPY, REDUCE, Plan, make_plan
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.verify import verify


def plan_of(net: Topology, work: Workload, rows: list[tuple], sharing: str = "ready-order") -> Plan:
    """A plan from rows (chunk, op, nodes of the route, depends); the last node of the route receives."""
    link = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst))}
    return make_plan(
        net,
        work,
        sharing,
        chunk=[r[0] for r in rows],
        op=[r[1] for r in rows],
        src=[r[2][0] for r in rows],
        dst=Ragged.of([[r[2][-1]] for r in rows]),
        route=Ragged.of([[link[a, b] for a, b in zip(r[2], r[2][1:])] for r in rows]),
        depends=Ragged.of([r[3] for r in rows]),
    )


def code(plan: Plan) -> str:
    finding = verify(plan).finding
    return finding.code if finding else "ok"


def work_of(net: Topology, kind: str, size: int = 8, **more) -> Workload:
    return Workload((make_collective(kind, net, size, **more),))


def test_a_chain_of_copies_is_a_broadcast():
    net = ring(4)
    rows = [(0, COPY, (0, 1), []), (0, COPY, (1, 2), [0]), (0, COPY, (0, 3), [])]
    assert code(plan_of(net, work_of(net, "broadcast"), rows)) == "ok"


def test_a_rank_left_out_is_named():
    net = ring(4)
    finding = verify(plan_of(net, work_of(net, "broadcast"), [(0, COPY, (0, 1), [])])).finding
    assert finding is not None
    assert (finding.code, finding.node, finding.chunk) == ("incomplete", 2, 0)
    assert finding.message == "gpu2 never gets chunk 0"


def test_a_node_cannot_send_what_it_does_not_have():
    net = ring(3)
    assert code(plan_of(net, work_of(net, "broadcast"), [(0, COPY, (1, 2), [])])) == "not-held"


def test_a_forward_must_depend_on_what_brought_the_chunk():
    net = ring(3)
    rows = [(0, COPY, (0, 1), []), (0, COPY, (1, 2), [])]
    assert code(plan_of(net, work_of(net, "broadcast"), rows)) == "missing-dependency"


def test_a_tree_of_sums_is_a_reduce():
    net = ring(4)
    rows = [(0, REDUCE, (2, 1), []), (0, REDUCE, (1, 0), [0]), (0, REDUCE, (3, 0), [])]
    assert code(plan_of(net, work_of(net, "reduce"), rows)) == "ok"


def test_a_contribution_summed_twice_is_found():
    net = ring(4)
    rows = [(0, REDUCE, (2, 1), []), (0, REDUCE, (1, 0), [0]), (0, REDUCE, (2, 3), []), (0, REDUCE, (3, 0), [2])]
    assert code(plan_of(net, work_of(net, "reduce"), rows)) == "incomplete"


def test_a_contribution_summed_2_to_the_64_times_more_is_found():
    """Nodes 0 and 1 double what they have 63 times; fingerprints of 64 bits cannot tell their sum from nothing."""
    net = make_topology("full", [0] * 4, [(a, b, 1e9, 0.0) for a in range(4) for b in range(4) if a != b])
    doubled = [(COPY, (0, 1)), (REDUCE, (1, 0))] * 63
    steps = [(COPY, (0, 3)), *doubled, (COPY, (0, 1)), (REDUCE, (0, 2)), (REDUCE, (1, 2)), (REDUCE, (3, 2))]
    rows = [(0, op, nodes, list(range(k))) for k, (op, nodes) in enumerate(steps)]
    assert code(plan_of(net, work_of(net, "reduce", ranks=[0, 2], root=1), rows)) == "incomplete"


def test_a_contribution_left_out_of_a_sum_is_found():
    net = ring(4)
    rows = [(0, REDUCE, (1, 0), []), (0, REDUCE, (3, 0), [])]
    assert code(plan_of(net, work_of(net, "reduce"), rows)) == "incomplete"


def test_a_sum_sent_on_before_all_has_come_is_incomplete():
    net = ring(4)
    rows = [(0, REDUCE, (2, 1), []), (0, REDUCE, (1, 0), []), (0, REDUCE, (3, 0), [])]
    assert code(plan_of(net, work_of(net, "reduce"), rows)) == "incomplete"


def test_reduce_then_broadcast_is_an_allreduce():
    net = ring(3)
    rows = [(0, REDUCE, (1, 0), []), (0, REDUCE, (2, 0), []), (0, COPY, (0, 1), [0, 1]), (0, COPY, (0, 2), [0, 1])]
    assert code(plan_of(net, work_of(net, "allreduce"), rows)) == "ok"


def test_a_router_passes_partial_sums_on_but_does_not_add_them():
    links = [(a, b, 1e9, 0.0) for v in (0, 1, 2) for a, b in ((v, 3), (3, v))]
    first = [(0, REDUCE, (1, 3), []), (0, REDUCE, (2, 3), [])]
    alone, summed = [(0, REDUCE, (3, 0), [0]), (0, REDUCE, (3, 0), [1])], [(0, REDUCE, (3, 0), [0, 1])]
    for transit in (True, False):
        net = make_topology("hub", [ACCELERATOR] * 3 + [ROUTER], links, transit=[False] * 3 + [transit])
        assert code(plan_of(net, work_of(net, "reduce"), first + alone)) == "ok"
        assert code(plan_of(net, work_of(net, "reduce"), first + summed)) == ("no-reduction" if transit else "ok")


def test_exchanging_partial_sums_is_an_allreduce():
    # recursive doubling: in each step two ranks send each other what they have by then
    net = make_topology("full", [0] * 4, [(a, b, 1e9, 0.0) for a in range(4) for b in range(4) if a != b])
    first = [(0, REDUCE, (v, v ^ 1), []) for v in range(4)]
    second = [(0, REDUCE, (v, v ^ 2), [v ^ 1]) for v in range(4)]
    assert code(plan_of(net, work_of(net, "allreduce"), first + second)) == "ok"


def test_what_is_in_the_buffer_by_dependency_must_be_named():
    # transfer 2 waits for transfer 1 and so for 0, both of which add to what it sends
    net = make_topology("full", [0] * 4, [(a, b, 1e9, 0.0) for a in range(4) for b in range(4) if a != b])
    rows = [(0, REDUCE, (1, 2), []), (0, REDUCE, (3, 2), [0]), (0, REDUCE, (2, 0), [1])]
    assert code(plan_of(net, work_of(net, "reduce"), rows)) == "missing-dependency"
    assert code(plan_of(net, work_of(net, "reduce"), [*rows[:2], (0, REDUCE, (2, 0), [0, 1])])) == "ok"


def test_two_unordered_copies_of_a_chunk_are_a_race():
    net = ring(4)
    rows = [(0, COPY, (0, 1), []), (0, COPY, (0, 3), []), (0, COPY, (1, 2), [0]), (0, COPY, (3, 2), [1])]
    assert code(plan_of(net, work_of(net, "broadcast"), rows)) == "unordered-writes"


def test_a_chunk_that_is_not_summed_cannot_be_reduced():
    net = ring(3)
    assert code(plan_of(net, work_of(net, "broadcast"), [(0, REDUCE, (0, 1), [])])) == "reduce-of-copy"


def test_no_route_passes_through_an_accelerator():
    net = ring(4)
    assert code(plan_of(net, work_of(net, "broadcast"), [(0, COPY, (0, 1, 2), [])])) == "no-transit"


def test_a_route_passes_through_a_switch():
    net = star(3)
    rows = [(0, COPY, (0, 3, v), []) for v in (1, 2)]
    assert code(plan_of(net, work_of(net, "broadcast"), rows)) == "ok"


def test_nothing_ends_at_a_switch():
    net = star(3)
    assert code(plan_of(net, work_of(net, "broadcast"), [(0, COPY, (0, 3), [])])) == "receiver"


def multicast(net: Topology, route: list[tuple[int, int]], dst: list[int]) -> Plan:
    link = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst))}
    route_links = Ragged.of([[link[pair] for pair in route]])
    work = work_of(net, "broadcast")
    empty = Ragged.of([[]])
    return make_plan(
        net, work, "ready-order", chunk=[0], src=[0], dst=Ragged.of([dst]), route=route_links, depends=empty
    )


def test_a_switch_that_replicates_may_branch():
    assert code(multicast(star(3), [(0, 3), (3, 1), (3, 2)], [1, 2])) == "ok"


def test_a_switch_that_does_not_replicate_may_not_branch():
    assert code(multicast(star(3, replicates=False), [(0, 3), (3, 1), (3, 2)], [1, 2])) == "no-replication"


@pytest.mark.parametrize(
    ("route", "dst", "expected"),
    [
        ([(3, 1), (0, 3)], [1], "route"),
        ([(0, 3), (3, 0)], [0], "route-loop"),
        ([(0, 3), (3, 1)], [2], "route-misses-receiver"),
        ([(0, 3), (3, 1), (3, 2)], [1], "route-loose-end"),
        ([(0, 3), (3, 1)], [1, 1], "receiver-twice"),
        ([(0, 3), (3, 1)], [], "no-receiver"),
    ],
)
def test_a_broken_route_is_named(route, dst, expected):
    assert code(multicast(star(3), route, dst)) == expected


def test_a_router_replicates_and_keeps():
    links = [(a, b, 1e9, 0.0) for v in (0, 1, 2) for a, b in ((v, 3), (3, v))]
    net = make_topology("routed", [ACCELERATOR] * 3 + [ROUTER], links)
    rows = [(0, COPY, (0, 3), []), (0, COPY, (3, 1), [0]), (0, COPY, (3, 2), [0])]
    assert code(plan_of(net, work_of(net, "broadcast"), rows)) == "ok"


def timed(start: list[float], finish: list[float]) -> Plan:
    """A broadcast of 1000 bytes from 0 to 1 to 2 over links of 1e9 bytes/s and 1 us."""
    net = ring(3)
    plan = plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 1), []), (0, COPY, (1, 2), [0])])
    return replace(plan, sharing="timed", start_s=np.array(start), finish_s=np.array(finish))


def test_a_timed_plan_that_waits_for_arrival_is_right():
    assert code(timed([0.0, 2e-6], [1e-6, 3e-6])) == "ok"


def test_a_start_before_arrival_is_found():
    finding = verify(timed([0.0, 1.9e-6], [1e-6, 2.9e-6])).finding
    assert finding is not None
    assert (finding.code, finding.transfer, finding.time_s) == ("before-dependency", 1, 1.9e-6)


def test_a_transfer_faster_than_its_link_is_found():
    assert code(timed([0.0, 2e-6], [0.9e-6, 3e-6])) == "speed"


def test_a_transfer_that_ends_before_it_starts_is_found():
    assert code(timed([0.0, 2e-6], [-1e-6, 3e-6])) in ("speed", "duration")


def test_a_start_before_the_collective_is_found():
    net = ring(3)
    work = Workload((make_collective("broadcast", net, 1000, start_s=1.0),))
    plan = plan_of(net, work, [(0, COPY, (0, 1), []), (0, COPY, (0, 2), [])])
    early = replace(plan, sharing="timed", start_s=np.array([0.5, 1.0]), finish_s=np.array([0.6, 1.1]))
    assert code(early) == "before-start"


def two_chunks(starts: list[float], seconds: float) -> Plan:
    """Two chunks of 500 bytes from 0 to 1 over one link of 1e9 bytes/s."""
    net = make_topology("pair", [0, 0], [(0, 1, 1e9, 1e-6), (1, 0, 1e9, 1e-6)])
    work = work_of(net, "broadcast", 1000, chunks=2)
    plan = plan_of(net, work, [(0, COPY, (0, 1), []), (1, COPY, (0, 1), [])])
    start = np.array(starts)
    return replace(plan, sharing="timed", start_s=start, finish_s=start + seconds)


def test_a_link_serves_one_after_the_other():
    assert code(two_chunks([0.0, 5e-7], 5e-7)) == "ok"


def test_a_link_may_be_shared_at_half_speed():
    assert code(two_chunks([0.0, 0.0], 1e-6)) == "ok"


def test_a_link_that_carries_too_much_is_found():
    finding = verify(two_chunks([0.0, 4e-7], 5e-7)).finding
    assert finding is not None
    assert (finding.code, finding.link, finding.transfer) == ("capacity", 0, 1)
    assert finding.time_s == pytest.approx(4e-7)


def test_a_cut_through_node_forwards_from_the_first_byte():
    links = [(0, 2, 1e9, 1e-6), (2, 1, 1e9, 1e-6), (1, 2, 1e9, 1e-6), (2, 0, 1e9, 1e-6)]
    net = make_topology("routed", [ACCELERATOR, ACCELERATOR, ROUTER], links)
    plan = plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 2), []), (0, COPY, (2, 1), [0])])

    def at(second: float, seconds: float = 1e-6) -> str:
        start = np.array([0.0, second])
        return code(replace(plan, sharing="timed", start_s=start, finish_s=start + [1e-6, seconds]))

    assert at(1e-6) == "ok"
    assert at(0.9e-6) == "before-dependency"


def test_a_collective_that_promises_less_than_its_kind_is_found():
    net = ring(3)
    work = work_of(net, "allgather", 9)
    c = work.collectives[0]
    empty = make_plan(
        net, Workload((replace(c, wanted=c.holders),)), "ready-order", chunk=[], src=[], dst=Ragged.of([]),
        route=Ragged.of([]), depends=Ragged.of([]),
    )  # fmt: skip
    assert code(empty) == "promise"


def test_chunks_that_leave_a_gap_are_found():
    net = ring(3)
    c = make_collective("broadcast", net, 9, chunks=3)
    holey = replace(c, chunk_offset=np.array([0, 3, 7]))
    plan = plan_of(net, Workload((holey,)), [(i, COPY, (0, v), []) for i in range(3) for v in (1, 2)])
    assert code(plan) == "cover"


def test_a_dependency_on_a_later_transfer_cannot_be_built():
    net = ring(3)
    with pytest.raises(InputError, match="not before it"):
        plan_of(net, work_of(net, "broadcast"), [(0, COPY, (0, 1), [1]), (0, COPY, (0, 2), [])])
