"""Plans in which links inside servers and across them are busy at the same time, in few messages."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.messages import message_count, messages_of
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.planners.fixed.overlaps import _candidates
from stretto.schedule.job_loads import MOST_LINKS, SPLITS, JobLoads, Loads, _decisive
from stretto.schedule.overlapping import _in_slices, _scheduled, overlapped
from stretto.schedule.ways import Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

RAILS = "h100:4?message=20us"
KINDS = ("allgather", "reducescatter", "allreduce", "alltoall")


def found(spec: str, kind: str, size: int, within_s: float = np.inf):
    """The overlap on a network, and its workload."""
    net = load_topology(spec)
    c = make_collective(kind, net, size)
    ways = Ways(net)
    candidates = list(_candidates(net, c, [], ways))
    return overlapped(net, c, candidates, ways, within_s), Workload((c,)), candidates, ways


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_ends_when_the_schedule_of_its_jobs_does(kind):
    overlap, workload, *_ = found(RAILS, kind, 64_000_000)
    plan = overlap.plan(workload)
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(overlap.end_s, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_job_of_a_slice_is_one_message_from_each_rank(kind):
    overlap, workload, *_ = found(RAILS, kind, 64_000_000)
    plan = overlap.plan(workload)
    assert message_count(plan) == 32 * len(overlap.start_s) < plan.transfer_count


def three_spines():
    """Four ranks, each under a leaf of its own, with a link of a third of its width to each of three spines."""
    rows = [(v, 4 + v, 1e9, 1e-6) for v in range(4)]
    rows += [(4 + leaf, 8 + spine, 0.33e9, 1e-6) for leaf in range(4) for spine in range(3)]
    both = [*rows, *((b, a, *rest) for a, b, *rest in rows)]
    return make_topology("spines", [ACCELERATOR] * 4 + [SWITCH] * 7, both, message_s=[1e-5] * len(both))


@pytest.mark.parametrize("kind", KINDS)
def test_messages_go_over_all_spines_at_the_same_time(kind):
    """In so little data slices would cost more messages than they gain."""
    net = three_spines()
    c, ways = make_collective(kind, net, 1_000_000), Ways(net)
    overlap = overlapped(net, c, list(_candidates(net, c, [], ways)), ways, np.inf)
    plan = overlap.plan(Workload((c,)))
    assert overlap.split == 3 and overlap.summary.endswith("of 1 slice over 3 ways each")
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(overlap.end_s, rel=1e-4)  # a part has up to a byte more


def test_parts_that_go_the_same_way_are_one_message():
    """Pods of two H100 servers have spine links of half a NIC's width. Inside a server there is one way."""
    overlap, workload, *_ = found("h100:4?pod=2&spines=4&message=1us", "allgather", 256_000_000)
    plan = overlap.plan(workload)
    assert verify(plan).ok and overlap.split == 2
    sent = messages_of(plan).merged
    pairs = np.stack((sent.group, sent.src, sent.dst.values), axis=1)
    times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    own_server = sent.src // 9 == sent.dst.values // 9  # a switch and its eight GPUs
    count = times[2][times[1].ravel()]
    assert (count[own_server] == 1).all() and (count[~own_server] <= 2).all() and (count[~own_server] == 2).any()
    case = overlap.case
    first = np.unique(overlap.jobs.of * case.pairs + case.pair, return_index=True)[1]
    counted = case.alone[SPLITS.index(2), overlap.lanes].sum(axis=0)[case.pair[first]]
    assert counted.sum() == message_count(plan)


def test_messages_are_divided_only_where_jobs_then_take_less():
    """Of little data a message costs more than its bytes, four parts share three spines, and on rails there is one way."""
    for net, size, splits in ((three_spines(), 64_000_000, [1, 2, 3]), (three_spines(), 6_400, [1])):
        c, ways = make_collective("allgather", net, size), Ways(net)
        for candidate in _candidates(net, c, [], ways):
            case = JobLoads.of(net, candidate, c, ways)
            assert case.joined(1)[1].splits == splits
    net = load_topology(RAILS)
    c, ways = make_collective("allgather", net, 64_000_000), Ways(net)
    candidate = next(iter(_candidates(net, c, [], ways)))
    assert JobLoads.of(net, candidate, c, ways).joined(1)[1].splits == [1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("net", [load_topology(RAILS), three_spines()], ids=["rails", "spines"])
def test_no_schedule_ends_before_what_its_algorithm_needs_at_least(net, kind):
    c, ways = make_collective(kind, net, 16_000_000), Ways(net)
    candidates = list(_candidates(net, c, [], ways))
    assert candidates
    for candidate in candidates:
        case = JobLoads.of(net, candidate, c, ways)
        for waves in (1, case.waves.count):
            for slices, split in product((1, 3), SPLITS[: len(case.lanes)]):
                made = _scheduled(case, *case.joined(waves), split, np.full(slices, 1 / slices), np.inf, 1)
                assert candidate.least_s(net, c, ways) <= made.end_s * (1 + 1e-9)


def test_a_reducescatter_ends_as_early_as_an_allgather():
    """It is one with time reversed. One phase after another takes 1,085 us."""
    ends = [simulate(planned(RAILS, kind, 256_000_000)).completion_s for kind in ("allgather", "reducescatter")]
    assert ends[1] <= ends[0] * (1 + 1e-6) and ends[1] < 0.7 * 1085e-6


def test_where_bytes_decide_a_cluster_is_busy_inside_and_across():
    """The bytes of an AllReduce of 1 GB keep both kinds of links busy for 3.9 ms, one after the other for 7.8."""
    assert simulate(planned("h100:4?message=1us", "allreduce", 1_000_000_000)).completion_s < 1.06 * 3.9e-3


def test_small_data_is_not_cut():
    plan = planned(RAILS, "allgather", 3_200)
    assert message_count(plan) == 32 * 8 and plan.workload.chunk_count == 32


def test_slices_may_have_unlike_shares_and_cover_each_piece():
    overlap, workload, *_ = found("h100:4?message=1us", "allgather", 64_000_000)
    (c,) = overlap.plan(workload).workload.collectives
    sizes = c.chunk_bytes.reshape(32, -1)
    assert sizes.sum(axis=1).tolist() == [2_000_000] * 32
    assert sizes[0] / sizes[0].sum() == pytest.approx(overlap.shares, rel=1e-5)


def test_no_slice_of_a_block_has_over_a_byte_more_than_its_share():
    c = make_collective("reducescatter", load_topology("fullmesh:9"), 62_801_416)
    shares = np.array([1, 2, 3, 3, 2, 1]) / 12
    more = _in_slices(c, 1, shares).chunk_bytes.reshape(9, -1) - shares * c.piece_bytes.max()
    assert more.max() <= 1


def test_none_is_found_where_none_ends_early_enough():
    overlap, *_ = found(RAILS, "allreduce", 64_000_000)
    assert found(RAILS, "allreduce", 64_000_000, within_s=overlap.end_s)[0] is None


def test_links_are_not_overfull_where_bytes_come_to_them_at_unlike_times():
    """Routes of one job lead through one switch, those of another one through three, to the same link."""
    plan = planned("fattree:4?message=0.1us", "alltoall", 32_639)
    assert plan.sharing == "timed"


def test_every_job_has_a_link_where_only_the_busiest_ones_are_heeded():
    asked = np.eye(2 * MOST_LINKS)
    assert _decisive(np.vstack((asked, 0 * asked)), len(asked)).any(axis=1)[: len(asked)].all()


def test_of_many_links_a_job_has_those_that_are_busiest_with_less_data():
    """One link carries more bytes, another one more messages, and a share of the data takes longer there."""
    others = 20 * np.eye(2 * MOST_LINKS)
    message_s, byte_s = (
        np.vstack(([*pair, *0 * others[0]], np.pad(others, ((0, 0), (2, 0))))) for pair in ((1, 5), (10, 5))
    )
    asked = _decisive(np.vstack((message_s, byte_s)), len(message_s))
    kept = asked[: len(message_s)] + 0.1 * asked[len(message_s) :]
    assert kept[0].max() == 5.5


def test_jobs_over_the_same_links_are_not_alike():
    """They may be over them after unlike latencies."""
    lag_s, busy_s = np.array([1e-6, 2e-6]), np.ones((1, 2, 1))
    waits = Ragged.of([[], []])
    problem = Loads(busy_s[None], busy_s, lag_s, waits, block_bytes=1e6).problem(np.array([0.5, 0.5]), 1)
    assert problem.alike.tolist() == [0, 1, 0, 1]


def planned(spec: str, kind: str, size: int):
    net = load_topology(spec)
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, size),)))
    assert verify(plan).ok
    return plan
