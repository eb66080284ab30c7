"""Measurements over links that are known: namespaces with shaped links, and connections of this process."""

from __future__ import annotations

import itertools
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from stretto import emulator
from stretto.model.errors import PeerFailed
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.runtime import probe
from stretto.runtime.probe import Effort
from stretto.runtime.streams import STEPS, Arrival, rate, received, stream
from stretto.topologies import load_topology
from stretto.topologies.measured import links_of, shape_of
from surveys import surveyed

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
EFFORT = Effort(echoes=10, batches=8, seconds=0.3, most_bytes=1 << 40, trials=2, shared=True)

HOSTS = {"a": (4e6, 4e6), "b": (2.5e6, 4e6), "c": (4e6, 3e6), "d": (5e6, 5e6)}
"""What each host sends and receives at most, bytes/s; a, b and c are one site, d is another."""
WAN, WAN_S = 2e6, 6e-3


def two_sites():
    near, away = 4, 5
    links = [(v, near, HOSTS[name][0], 0.0) for v, name in enumerate("abc")]
    links += [(near, v, HOSTS[name][1], 0.0) for v, name in enumerate("abc")]
    links += [(3, away, HOSTS["d"][0], 0.0), (away, 3, HOSTS["d"][1], 0.0)]
    links += [(near, away, WAN, WAN_S), (away, near, WAN, WAN_S)]
    return make_topology("known", [ACCELERATOR] * 4 + [SWITCH] * 2, links)


@NEEDS_NAMESPACES
def test_hosts_find_their_own_links_and_the_one_that_they_share_within_5_percent():
    survey = surveyed(two_sites(), EFFORT)
    assert survey.sites == [[0, 1, 2], [3]]
    found = {(link.src, link.dst): link for link in links_of(survey, "abcd", shape_of(survey))}
    known = {(name, "site0"): HOSTS[name][0] for name in "abc"} | {("site0", name): HOSTS[name][1] for name in "abc"}
    known |= {("site0", "d"): WAN, ("d", "site0"): WAN}
    assert {ends: link.bandwidth.value for ends, link in found.items()} == pytest.approx(known, rel=0.05)
    assert found["site0", "d"].latency_s.value == pytest.approx(WAN_S, rel=0.05)
    assert found["d", "site0"].latency_s.value == pytest.approx(WAN_S, rel=0.05)
    # what a message costs processes on this machine, however many others use it
    costs = [pair.message_s.value for pair in survey.pairs.values() if pair.message_s is not None]
    assert len(costs) == 12 and all(1e-7 < cost < 1e-3 for cost in costs)


@NEEDS_NAMESPACES
def test_several_connections_reach_what_one_reaches_on_a_link_of_ones_own():
    net = load_topology("fullmesh:2?bandwidth=4MB/s&latency=8ms")
    survey = surveyed(net, Effort(echoes=10, seconds=0.4, most_bytes=1 << 40, connections=(1, 4)))
    for pair in survey.pairs.values():
        assert pair.latency_s.value == pytest.approx(8e-3, rel=0.05)
        assert {count: m.value for count, m in pair.bandwidth.items()} == pytest.approx({1: 4e6, 4: 4e6}, rel=0.05)
        assert pair.rate.low <= pair.rate.value <= pair.rate.high


@NEEDS_NAMESPACES
def test_packets_take_the_latency_of_their_direction():
    net = make_topology("uneven", [ACCELERATOR] * 2, [(0, 1, 4e6, 4e-3), (1, 0, 4e6, 12e-3)])
    survey = surveyed(net, Effort(echoes=10, most_bytes=1 << 16, trials=1))
    assert survey.pairs[0, 1].latency_s.value == pytest.approx(8e-3, rel=0.05)
    assert "stretto" not in subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout


def test_a_message_costs_the_time_from_one_to_the_next(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(probe.time, "perf_counter", lambda: 1e-3 * next(clock))
    sender, receiver = socket.socketpair()
    with sender, receiver, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(probe._send_messages, sender, 3)
        cost = probe._receive_messages(receiver, 3)
        sending.result()
    assert [*cost] == pytest.approx([1e-3] * 3)


def pair_of_sockets() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        calling = socket.create_connection(door.getsockname())
        return calling, door.accept()[0]


def test_streams_end_with_every_byte_received_and_can_turn_round():
    here, there = pair_of_sockets()
    conditions = {"seconds": 10.0, "most_bytes": 3_000_001, "timeout_s": 10.0, "names": {(0, 0): "peer"}}
    with here, there, ThreadPoolExecutor(1) as pool:
        for source, sink in ((here, there), (there, here)) * 2:
            sending = pool.submit(stream, {(0, 0): source}, {}, **conditions)
            came = stream({}, {(0, 0): sink}, **conditions)
            assert sending.result() == {} and came[0, 0].total_bytes == 3_000_001
            assert received(came.values(), 10.0, 0.0).curve == []  # too short to look at in parts


@pytest.mark.parametrize("gone", [True, False])
def test_a_peer_that_is_gone_or_silent_is_named(gone):
    here, there = pair_of_sockets()
    conditions = {"seconds": 1.0, "most_bytes": 1 << 20, "timeout_s": 0.1, "names": {(3, 0): "rank 3"}}
    with here, there:
        if gone:
            there.close()
        with pytest.raises(PeerFailed, match=r"rank 3: it (went|was) silent"):
            stream({}, {(3, 0): here}, **conditions)


def arrivals(jumps: list[tuple[float, float, int]], began: float = 100.0) -> Arrival:
    """One second and a half of a connection with 2 MB/s, which brings nothing from one moment to another, and then what
    was held back."""
    moments = [began + 0.01 + k * 2e-3 for k in range(750)]
    rows = []
    for moment in moments:
        since = moment - began
        held = next((start for start, end, _ in jumps if start < since < end), None)
        rows.append((moment, int(2e6 * (since if held is None else held))))
    return Arrival(began, moments[-1], rows, rows[-1][1], rows[-1][1])


def test_a_rate_is_not_that_of_bytes_that_were_held_back():
    clean, held = arrivals([]), arrivals([(0.38, 0.45, 0), (0.9, 0.99, 0)])
    for each in (clean, held):
        value, low, high = rate([received([each], 1.0, 5e-3)], 1.0)
        assert value == pytest.approx(2e6, rel=0.01) and low <= value <= high
    curve = received([held], 1.0, 5e-3).curve
    assert len(curve) == STEPS + 1 and curve == sorted(curve)


def test_a_rate_is_not_too_fast_where_packets_waited_at_the_beginning_of_what_counts():
    # a busy machine delivers nothing from 0.38 to 0.62 s, then all at once: the link is no faster for that
    value, low, _ = rate([received([arrivals([(0.38, 0.62, 0)])], 1.0, 5e-3)], 1.0)
    assert value == pytest.approx(2e6, rel=0.01) and low <= value


def test_a_short_stream_that_was_faster_than_the_echoes_is_not_infinitely_fast():
    # echoes say 3 ms each way, but all was here 2 ms after it was asked for, the first byte after 1 ms
    one = Arrival(asked_at=1.0, ended_at=1.002, total=64, total_bytes=64_000, first_at=1.001)
    assert rate([received([one], 1.0, 3e-3)], 1.0)[0] == pytest.approx(64_000 / 1e-3)
    at_once = replace(one, first_at=one.ended_at)
    assert rate([received([at_once], 1.0, 3e-3)], 1.0)[0] == pytest.approx(64_000 / 2e-3)
    assert rate([received([one], 1.0, 0.25e-3)], 1.0)[0] == pytest.approx(64_000 / 1.5e-3)


def test_rates_of_several_receivers_add_up_though_they_take_turns():
    one, other = arrivals([(0.4, 0.7, 0)]), arrivals([(0.7, 0.95, 0)])
    parts = [received([each], 1.0, 5e-3) for each in (one, other, *[arrivals([])] * 2)]
    assert rate(parts, 1.0)[0] == pytest.approx(8e6, rel=0.1)
    assert rate([], 1.0) == (0.0, 0.0, 0.0)
