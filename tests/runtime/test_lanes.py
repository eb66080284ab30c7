"""How many connections a pair needs where flows are capped or packets are lost: namespaces whose truth is known."""

from __future__ import annotations

import pytest

from stretto import emulator
from stretto.emulator import Rough
from stretto.measure.ladder import LADDER, LOSSY, _apart, _Climb, _directions
from stretto.model.measurements import Measured, Pair
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
    return asked, climb.lanes


def test_the_ladder_ends_where_more_connections_carry_no_more():
    asked, lanes = steps(lambda n, _: min(n, 3) * 1e6)
    assert asked == [(1, ""), (1, LOSSY), (2, ""), (4, ""), (8, "")] and lanes == (4, "", 3e6)
    asked, lanes = steps(lambda n, _: 1e6, usable=False)
    assert asked == [(1, ""), (2, "")] and lanes == (1, "", 1e6)
    asked, lanes = steps(lambda n, name: n * 1e6 if name else 1e5)
    assert [n for n, _ in asked] == [1, *LADDER] and lanes == (16, LOSSY, 16e6)


def test_flows_whose_caps_add_up_to_the_link_get_room_unless_several_pairs_share_it():
    def capped(n, _):
        return min(n, 8) * 0.5e6

    assert steps(capped)[1] == (16, "", 4e6)
    assert steps(capped, flows=2)[1] == (8, "", 4e6)
    assert steps(lambda n, _: min(n, 3) * 1e6, flows=3)[1] == (4, "", 3e6)


def test_a_pair_climbs_in_its_slower_direction_and_in_both_if_they_differ():
    def pair(rate):
        return Pair(Measured(0.02, 0.02, 0.02), None, {1: Measured(rate, rate, rate)})

    assert _directions({(0, 1): pair(2e6), (1, 0): pair(1.9e6)}, 0, 1) == (True,)
    assert _directions({(0, 1): pair(1.9e6), (1, 0): pair(2e6)}, 0, 1) == (False,)
    assert _directions({(0, 1): pair(2e6), (1, 0): pair(1e6)}, 0, 1) == (False, True)


def test_what_was_chosen_by_one_direction_is_measured_once_more_in_both():
    climb = _Climb(False, falls=(True,))
    for connections, carried in ((1, 1e6), (2, 2e6), (4, 2.95e6), (8, 3e6)):
        assert climb.connections == connections and not climb.ended
        climb.took(0.0, carried)
    assert (climb.connections, climb.falls, climb.ended) == (4, (False, True), False)
    climb.took(3.1e6, 2.8e6)
    assert climb.ended and climb.lanes == (4, "", 3.1e6)


def test_each_lane_is_kept_to_little_more_than_its_share():
    assert lane_rate(4e6, 16) == CATCH_UP * 0.25e6


def test_lanes_whose_limit_holds_them_back_may_send_faster():
    limit = CATCH_UP * 2e6
    assert raised(limit, 5_000_000, 2.0) == CATCH_UP * limit  # a link that gives more than was measured
    assert raised(limit, 4_200_000, 2.0) == limit  # as measured
    assert raised(limit, 1_000_000, 0.2) == limit  # what the kernel took at once


def test_pairs_that_share_a_rank_climb_one_after_another():
    assert _apart([(0, 1), (0, 2), (2, 3), (1, 3)]) == [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]


def test_segments_of_lanes_grow_with_the_transfer_and_end_between_elements():
    assert lane_segment(100, 4) == LEAST_LANE_SEGMENT and lane_segment(1 << 34, 4) == MOST_LANE_SEGMENT
    assert lane_segment(16_000_000, 4) == 16_000_000 // (4 * LANE_PARTS) // 64 * 64
