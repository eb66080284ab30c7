"""How many connections a pair needs where flows are capped or packets are lost: namespaces whose truth is known."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshes import CREDENTIALS, Threads, wrong
from stretto import emulator
from stretto.emulator import Rough
from stretto.measure.ladder import LADDER, LOSSY, _apart, _Climb
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.planners import run_planner
from stretto.runtime.congestion import look_again, rate_of_bbr, use_congestion
from stretto.runtime.connect import join, narrow
from stretto.runtime.mesh import FIRST_LANE
from stretto.runtime.pacing import (
    CATCH_UP,
    LANE_PARTS,
    LEAST_LANE_SEGMENT,
    MOST_LANE_SEGMENT,
    lane_rate,
    lane_segment,
    raised,
)
from stretto.runtime.probe import QUICK
from stretto.topologies import load_topology
from surveys import surveyed

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
LINK = 4e6


def congestion_controls() -> list[str]:
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        return file.read().split()


@NEEDS_NAMESPACES
def test_one_flow_gets_its_cap_and_the_connections_that_are_chosen_get_the_link():
    net = load_topology(f"line:2?bandwidth={LINK:.0f}B/s&latency=2ms")
    found = surveyed(net, QUICK, rough={(0, 1): Rough(cap=LINK / 8)}, widens=True)
    (lanes,) = found.lanes.values()
    # of 256 KiB the first 50 ms, the queue of a flow, are not held to the cap
    assert all(pair.rate.value < LINK / 5 for pair in found.pairs.values())
    assert lanes.connections >= 8 and lanes.rate == pytest.approx(LINK, rel=0.1)


@NEEDS_NAMESPACES
@pytest.mark.skipif(LOSSY not in congestion_controls(), reason=f"the kernel has no {LOSSY}")
def test_a_link_that_loses_packets_is_filled_by_a_congestion_control_that_does_not_slow_down():
    net = load_topology(f"line:2?bandwidth={LINK:.0f}B/s&latency=10ms")
    found = surveyed(net, QUICK, rough={(0, 1): Rough(loss=0.02, packet_bytes=1500)}, widens=True)
    (lanes,) = found.lanes.values()
    assert lanes.congestion == LOSSY and lanes.rate > 0.85 * LINK


def steps(rates, usable: bool = True, flows: int = 1):
    """What a pair measures, and what it then uses, where ``rates`` has bytes/s by connections and congestion control."""
    climb, asked = _Climb(usable, flows), []
    while not climb.ended:
        asked.append((climb.connections, climb.congestion))
        climb.took(*[rates(*asked[-1])] * 2)
    return asked, climb.chosen.lanes


def test_a_few_numbers_of_connections_are_tried_and_as_many_are_kept_as_are_needed():
    most = LADDER[-1]
    assert steps(lambda n, _: 1e6) == ([(1, ""), (1, LOSSY), (most, ""), (1, "")], (1, "", 1e6))
    asked, lanes = steps(lambda n, _: min(n, 3) * 1e6)
    assert asked == [(1, ""), (1, LOSSY), (most, ""), (4, "")] and lanes == (4, "", 3e6)
    asked, lanes = steps(lambda n, name: min(n * 1e6, 4e6) if name else 1e5 * n)
    assert asked == [(1, ""), (1, LOSSY), (most, LOSSY), (8, LOSSY)] and lanes == (8, LOSSY, 4e6)
    asked, lanes = steps(lambda n, name: 4e6 if name else 1e5 * n)
    assert asked == [(1, ""), (1, LOSSY), (most, LOSSY), (1, LOSSY)] and lanes == (1, LOSSY, 4e6)
    assert steps(lambda n, name: n * 1e6 if name else 1e5)[1] == (most, LOSSY, 16e6)


def test_twice_as_many_are_tried_where_fewer_than_expected_is_carried():
    carried = {1: 1e6, 2: 1.6e6, 4: 2.5e6, 8: 2.9e6, 16: 3e6}
    asked, lanes = steps(lambda n, _: carried[n], usable=False)
    assert asked == [(1, ""), (16, ""), (4, ""), (8, "")] and lanes == (8, "", 2.9e6)


def test_most_connections_are_measured_once_more_where_they_carry_less_than_one():
    most = LADDER[-1]
    for second, enough in ((8e6, most), (0.5e6, 1)):
        climb, asked = _Climb(False), []
        for rate in (1e6, 0.3e6, second):  # a machine that is busy with something else shows in the second stream
            climb.took(rate, rate)
            asked.append((climb.connections, climb.kept))
        assert asked == [(most, False), (most, False), (enough, True)]


def steps_where_packets_are_lost(*rates):
    """What one connection measures next after each of these rates, all of which lost packets."""
    climb, asked = _Climb(True), []
    for rate in rates:
        climb.took(rate, rate, lost=True)
        asked.append((climb.connections, climb.congestion))
    return asked


def test_the_default_is_measured_again_where_packets_are_lost_as_it_begins_with_the_window_of_a_link_that_loses_none():
    most = LADDER[-1]
    assert steps_where_packets_are_lost(3.8e6, 0.7e6, 3.9e6) == [(1, ""), (1, LOSSY), (most, LOSSY)]


def test_bbr_is_measured_again_before_it_is_given_up_where_packets_are_lost():
    again = [(1, ""), (1, LOSSY), (1, LOSSY)]
    assert steps_where_packets_are_lost(0.7e6, 0.7e6, 0.1e6, 3.9e6) == [*again, (LADDER[-1], LOSSY)]
    assert steps_where_packets_are_lost(0.7e6, 0.7e6, 0.1e6, 0.7e6) == [*again, (LADDER[-1], "")]


def test_streams_that_differ_by_little_do_not_decide_for_bbr():
    assert steps(lambda n, name: (0.5e6 if name else 0.46e6) * min(n, 8))[1].congestion == ""


@pytest.mark.skipif(LOSSY not in congestion_controls(), reason=f"the kernel has no {LOSSY}")
def test_bbr_begins_anew_for_each_measurement_and_where_it_knows_of_less_than_a_lane_may_send():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        there, _ = listener.accept()

        def send_something():
            sock.sendall(bytes(1 << 16))
            left = 1 << 16
            while left:
                left -= len(there.recv(left))
            assert rate_of_bbr(sock) > 0

        use_congestion([sock], LOSSY)
        send_something()
        use_congestion([sock], LOSSY)
        assert rate_of_bbr(sock) == 0
        send_something()
        look_again(sock, rate_of_bbr(sock))
        assert rate_of_bbr(sock) > 0
        look_again(sock, 2 * rate_of_bbr(sock))
        assert rate_of_bbr(sock) == 0
        there.close()


def test_flows_whose_caps_add_up_to_the_link_get_room_unless_several_pairs_share_it():
    def capped(n, _):
        return min(n, 8) * 0.5e6

    assert steps(capped)[1] == (16, "", 4e6)
    assert steps(capped, flows=2)[1] == (8, "", 4e6)
    assert steps(lambda n, _: min(n, 3) * 1e6, flows=3)[1] == (4, "", 3e6)


def test_what_was_chosen_by_one_direction_is_measured_in_both():
    climb = _Climb(False, falls=True)
    for connections, carried in ((1, 1e6), (16, 3e6)):
        assert climb.connections == connections and climb.direction
        climb.took(0.0, carried)
    climb.took(0.0, 2.9e6)
    assert (climb.connections, climb.direction, climb.ended) == (4, False, False)
    climb.took(3.1e6, 0.0)
    assert climb.ended and climb.chosen == ((4, "", 3.1e6), (3.1e6, 2.9e6))


def test_where_several_pairs_send_at_once_one_of_them_measures_one_direction():
    climb = _Climb(False, flows=2, falls=True)
    for carried in (1e6, 3e6):
        climb.took(0.0, carried)
    assert climb.connections == 2 and climb.kept and climb.direction
    climb.took(0.0, 2e6)
    assert climb.connections == 4 and not climb.ended  # two carry less than was seen
    climb.took(0.0, 2.9e6)
    assert climb.ended and climb.chosen == ((4, "", 2.9e6), (0.0, 2.9e6))


def test_each_lane_is_kept_to_little_more_than_its_share():
    assert lane_rate(4e6, 16) == CATCH_UP * 0.25e6


def test_lanes_whose_limit_holds_them_back_may_send_faster():
    limit = CATCH_UP * 2e6
    assert raised(limit, 5_000_000, 2.0) == CATCH_UP * limit  # a link that gives more than was measured
    assert raised(limit, 4_200_000, 2.0) == limit  # as measured
    assert raised(limit, 1_000_000, 0.2) == limit  # what the kernel took at once


def test_lanes_that_are_not_needed_are_closed_and_the_rest_goes_on():
    made = Threads(2, subflows=1, lanes=5)
    try:
        for node, mesh in made.meshes.items():
            narrow(mesh, 1 - node, 2)
        net = load_topology("fullmesh:2")
        plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 1 << 20),)))
        assert not wrong(plan, made.run(plan))
        assert [len(mesh.connections) for mesh in made.meshes.values()] == [2, 2]
    finally:
        made.close()


def test_handshakes_of_many_connections_wait_for_the_network_together():
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as own:
        silent.settimeout(30)
        addresses = {0: ("127.0.0.1", silent.getsockname()[1]), 1: ("127.0.0.1", own.getsockname()[1])}
        lanes = {0: range(FIRST_LANE, FIRST_LANE + 15)}
        with ThreadPoolExecutor(1) as pool:
            names = {0: "rank 0", 1: "rank 1"}
            calling = pool.submit(join, 1, own, addresses, names, CREDENTIALS, timeout_s=30, subflows=lanes)
            callers = [silent.accept()[0] for _ in range(15)]  # all call before any is answered
            silent.close()
            for sock in callers:
                sock.close()
            with pytest.raises(PeerFailed, match="rank 0"):
                calling.result()


def test_pairs_that_share_a_rank_climb_one_after_another():
    assert _apart([(0, 1), (0, 2), (2, 3), (1, 3)]) == [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]


def test_segments_of_lanes_grow_with_the_transfer_and_end_between_elements():
    assert lane_segment(100, 4) == LEAST_LANE_SEGMENT and lane_segment(1 << 34, 4) == MOST_LANE_SEGMENT
    assert lane_segment(16_000_000, 4) == 16_000_000 // (4 * LANE_PARTS) // 64 * 64
