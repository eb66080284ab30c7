"""The simulator: the physics, one fact at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import ring
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY, REDUCE, make_plan
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, make_topology
from stretto.model.variants import storing
from stretto.simulate import simulate
from stretto.verify import verify
from test_verify import plan_of, timed, two_chunks, work_of

US = 1e-6


def approx(*values: float):
    return pytest.approx(list(values), rel=1e-12)


def test_a_transfer_arrives_after_its_size_and_its_latency():
    # 1000 bytes at 1e9 bytes/s and 1 us
    net = ring(3)
    timeline = simulate(plan_of(net, work_of(net, "multicast", 1000, receivers=[1]), [(0, COPY, (0, 1), [])]))
    assert timeline.finish_s.tolist() == approx(1 * US)
    assert timeline.completion_s == pytest.approx(2 * US)


def test_a_store_and_forward_node_waits_for_the_whole_chunk():
    net = ring(3)
    plan = plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 1), []), (0, COPY, (1, 2), [0])])
    assert simulate(plan).start_s.tolist() == approx(0, 2 * US)


def test_a_switch_adds_its_latency_and_no_transmission():
    links = [(0, 2, 1e9, US), (2, 1, 1e9, 3 * US), (1, 2, 1e9, US), (2, 0, 1e9, US)]
    net = make_topology("switched", [ACCELERATOR, ACCELERATOR, SWITCH], links)
    timeline = simulate(plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 2, 1), [])]))
    assert timeline.completion_s == pytest.approx(5 * US)
    assert timeline.hop_offset_s.tolist() == approx(0, US)


def test_a_pipe_runs_at_the_speed_of_its_slowest_link():
    links = [(0, 2, 4e9, 0), (2, 1, 1e9, 0), (1, 2, 1e9, 0), (2, 0, 1e9, 0)]
    net = make_topology("switched", [ACCELERATOR, ACCELERATOR, SWITCH], links)
    timeline = simulate(plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 2, 1), [])]))
    assert timeline.finish_s.tolist() == approx(1 * US)


def cut_through(first: float, second: float):
    """1000 bytes through a router, over links of these bytes/s."""
    links = [(0, 2, first, US), (2, 1, second, US), (1, 2, 1e9, US), (2, 0, 1e9, US)]
    net = make_topology("routed", [ACCELERATOR, ACCELERATOR, ROUTER], links)
    return simulate(plan_of(net, work_of(net, "broadcast", 1000), [(0, COPY, (0, 2), []), (0, COPY, (2, 1), [0])]))


def test_a_router_forwards_from_the_first_byte():
    assert cut_through(1e9, 0.5e9).start_s.tolist() == approx(0, US)


def test_a_router_that_stores_forwards_what_has_come_whole():
    through = cut_through(1e9, 1e9)
    net = through.plan.topology
    plan = replace(through.plan, topology=storing(replace(net, kind=np.array([0, 0, SWITCH], dtype=np.int8))))
    assert through.start_s.tolist() == approx(0, US)
    assert verify(plan).ok and simulate(plan).start_s.tolist() == approx(0, 2 * US)
    early = replace(plan, sharing="timed", start_s=through.start_s, finish_s=through.finish_s)
    assert verify(early).finding.code == "before-dependency"


def test_no_byte_leaves_a_router_before_it_came():
    timeline = cut_through(0.5e9, 1e9)
    assert timeline.finish_s.tolist() == approx(2 * US, 3 * US)
    assert timeline.start_s.tolist() == approx(0, 2 * US)


def test_a_multicast_arrives_at_each_receiver_after_its_own_way():
    links = [(0, 3, 1e9, US), (3, 1, 1e9, US), (3, 2, 1e9, 5 * US), (1, 3, 1e9, 0), (2, 3, 1e9, 0), (3, 0, 1e9, 0)]
    net = make_topology("star", [0, 0, 0, SWITCH], links)
    plan = make_plan(
        net, work_of(net, "broadcast", 1000), "ready-order", chunk=[0], src=[0], dst=Ragged.of([[1, 2]]),
        route=Ragged.of([[0, 1, 2]]), depends=Ragged.of([[]]),
    )  # fmt: skip
    assert simulate(plan).arrival_s.tolist() == approx(3 * US, 7 * US)


def test_in_ready_order_a_link_serves_first_come_first():
    plan = replace(two_chunks([0.0, 0.0], 1e-6), sharing="ready-order", start_s=None, finish_s=None)
    assert simulate(plan).start_s.tolist() == approx(0, 0.5 * US)


def test_a_timed_transfer_starts_at_its_time():
    assert simulate(timed([1e-6, 9e-6], [2e-6, 10e-6])).start_s.tolist() == approx(1 * US, 9 * US)


def test_a_timed_transfer_waits_until_it_is_ready():
    assert simulate(timed([0.0, 0.5e-6], [1e-6, 1.5e-6])).start_s.tolist() == approx(0, 2 * US)


def test_a_timed_transfer_waits_for_room_on_its_link():
    assert simulate(two_chunks([0.0, 0.0], 5e-7)).start_s.tolist() == approx(0, 0.5 * US)


def test_timed_transfers_at_half_speed_share_a_link():
    assert simulate(two_chunks([0.0, 0.0], 1e-6)).start_s.tolist() == approx(0, 0)


def test_nothing_starts_before_its_collective():
    net = ring(3)
    work = Workload((make_collective("broadcast", net, 1000, start_s=1.0),))
    timeline = simulate(plan_of(net, work, [(0, COPY, (0, 1), []), (0, COPY, (0, 2), [])]))
    assert timeline.start_s.tolist() == approx(1.0, 1.0)
    assert timeline.completions_s.tolist() == pytest.approx([2 * US], rel=1e-9)
    assert timeline.completion_s == pytest.approx(1.0 + 2 * US)


def test_completion_counts_only_what_ranks_want():
    net = ring(4)
    rows = [(0, COPY, (0, 1), []), (0, COPY, (1, 2), [0])]
    work = work_of(net, "multicast", 1000, receivers=[1])
    assert simulate(plan_of(net, work, rows)).completion_s == pytest.approx(2 * US)


def test_a_sum_is_sent_on_when_its_last_part_has_come():
    net = ring(3)
    rows = [(0, REDUCE, (2, 1), []), (0, REDUCE, (1, 0), [0])]
    assert simulate(plan_of(net, work_of(net, "reduce", 1000), rows)).start_s.tolist() == approx(0, 2 * US)


def test_the_use_of_links_is_bytes_over_what_they_could_have_carried():
    timeline = simulate(timed([0.0, 2e-6], [1e-6, 3e-6]))
    used = timeline.link_use[timeline.link_bytes > 0]
    assert used.tolist() == approx(0.25, 0.25)


def test_compiled_and_interpreted_runs_agree_on_a_crowded_link(monkeypatch):
    net = ring(3)
    work = work_of(net, "broadcast", 3001, chunks=7)
    rows = [(c, COPY, (0, 1), []) for c in range(7)] + [(c, COPY, (1, 2), [c]) for c in range(7)]
    plan = plan_of(net, work, rows)
    half = replace(plan, sharing="timed", start_s=np.zeros(14), finish_s=np.full(14, 1e-6))
    runs = []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        runs.append((simulate(plan).start_s.tolist(), simulate(half).start_s.tolist()))
    assert runs[0] == runs[1]
