"""Ranks that are given no topology find one whose truth is known: namespaces with shaped links."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from stretto import emulator
from stretto.choose.better import better_plan
from stretto.choose.library import Library, joined_by_one_switch
from stretto.choose.requests import Shape
from stretto.measure.ladder import Widening
from stretto.model.measurements import Lanes, Measured, Pair, Survey
from stretto.model.plan import Plan
from stretto.model.topology import SWITCH, Topology
from stretto.runtime.channel import Channel
from stretto.topologies import load_topology

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto.torch import measuring  # noqa: E402
from stretto.torch.measuring import Known  # noqa: E402

RANKS, WAN = 8, 4e6


def measured(value: float) -> Pair:
    return Pair(Measured(value, value, value), None, {1: Measured(1e9, 1e9, None)})


def found(*ranks_of_sites: list[int]) -> Survey:
    """What ranks may have measured of each other, each site by a link of its own to each other one."""
    ranks = sorted(v for site in ranks_of_sites for v in site)
    pairs = {(a, b): measured(1.0 + a) for a in ranks for b in ranks if a != b}
    ways = [(a, b) for a in range(len(ranks_of_sites)) for b in range(len(ranks_of_sites)) if a != b]
    return Survey(len(ranks), pairs, [*ranks_of_sites], between={way: Measured(5e6, 5e6, None) for way in ways})


def test_groups_of_a_world_remember_all_that_they_have_measured_and_quorums_those_that_are_there():
    known = {forgets: Known(forgets=forgets) for forgets in (False, True)}
    for each in known.values():
        each.keep(0, ["own", "a", "b"], found([0], [1], [2]))
        each.keep(0, ["own", "c"], found([0], [1]))
    assert [*known[False].pairs] == [*known[False].between] == ["a", "b", "c"]
    assert [*known[True].pairs] == [*known[True].between] == ["c"]


def test_ranks_of_one_machine_measure_nothing_unless_their_sites_have_names(monkeypatch):
    surveyed = []
    monkeypatch.setattr(measuring, "survey", lambda *_, **__: surveyed.append(1) or found([0], [1]))
    for sites, measures in ((("", ""), False), (("x", "x"), False), (("x", ""), False), (("x", "y"), True)):
        del surveyed[:]
        here, there = socket.socketpair()
        rows = [["a", {}, {}, {}, sites[0]], ["b", {}, {}, {}, sites[1]]]
        share = partial(lambda rows, name, value: rows if name == "known" else [value] * 2, rows)
        widening = Widening(lambda *_: None, partial(lambda sock, rank: [sock], here), lambda *_: None)
        net = measuring.measure(0, 2, widening, share, 30.0, Known(sites[0]))
        assert bool(surveyed) is measures is not (net.name == joined_by_one_switch(2).name)
        here.close()
        there.close()


def two_sites(congestion: str) -> Survey:
    """Two sites of two ranks, 25 MB/s inside and 4 MB/s between them after 50 ms, by two connections a pair."""
    ways = [(a, b) for a in range(4) for b in range(4) if a != b]
    pairs = {(a, b): (1e-5, 25e6) if a // 2 == b // 2 else (0.05, 2e6) for a, b in ways}
    return Survey(
        4,
        {way: Pair(Measured(late, late, None), None, {1: Measured(rate, rate, None)}) for way, (late, rate) in pairs.items()},
        [[0, 1], [2, 3]],
        between={way: Measured(4e6, 4e6, None) for way in ((0, 1), (1, 0))},
        lanes={(0, 0): Lanes(), (0, 1): Lanes(2, congestion, 4e6), (1, 1): Lanes()},
    )  # fmt: skip


def measured_as(survey: Survey, ranks: int, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """The network that a group of ranks of sites with names makes of what it has measured."""
    monkeypatch.setattr(measuring, "survey", lambda *_, **__: survey)
    at = {v: i for i, site in enumerate(survey.sites) for v in site}
    rows = [[f"{v}", {}, {}, {}, f"{at[v]}"] for v in range(ranks)]
    with socket.socket() as sock:
        widening = Widening(lambda *_: None, lambda rank: [sock], lambda *_: None)
        answers = {"known": rows}
        return measuring.measure(
            0, ranks, widening, lambda name, value: answers.get(name, [value] * ranks), 30.0, Known("0")
        )


def most_crossings(plan: Plan, sites: Sequence[int]) -> int:
    """The most transfers between sites that wait for one another."""
    count: list[int] = []
    for row in range(plan.transfer_count):
        crosses = sites[plan.src[row]] != sites[plan.dst[row][0]]
        count.append(crosses + max((count[before] for before in plan.depends[row].tolist()), default=0))
    return max(count)


def test_what_crosses_a_link_that_loses_packets_takes_a_round_trip_longer(monkeypatch):
    monkeypatch.setenv("STRETTO_CACHE", "")
    for congestion, latency_s in (("", 0.05), ("cubic", 0.05), ("bbr", 0.15)):
        net = measured_as(two_sites(congestion), 4, monkeypatch)
        assert net.latency_s.max() == pytest.approx(latency_s)
        assert net.latency_s.min() == pytest.approx(5e-6), "inside the sites nothing is lost"


def test_no_sum_crosses_a_link_that_loses_packets_after_what_it_waits_for_has_crossed(monkeypatch):
    monkeypatch.setenv("STRETTO_CACHE", "")
    net = measured_as(two_sites("bbr"), 4, monkeypatch)
    plan = better_plan(Library(net, range(4), 0, message_s=5e-5).request(Shape.of("allreduce", 16_000_000, 0)))
    assert plan is not None
    assert most_crossings(plan, [0, 0, 1, 1]) == 1


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_a_wan_is_measured_as_two_sites_and_the_whole_link_that_their_pairs_share():
    from stretto.torch.links import Links

    net = load_topology("sites:2,4?bandwidth=40MB/s&router_bandwidth=40MB/s&wan_bandwidth=4MB/s&wan_latency=0s")
    nodes, store = net.accelerators.tolist(), torch.distributed.HashStore()
    libraries = [Library(None, range(RANKS), rank) for rank in range(RANKS)]
    all_done = threading.Barrier(RANKS)
    protected: list[bool] = []

    def measure(rank: int) -> None:
        place = places[nodes[rank]]
        emulator.enter(place.argument)  # a namespace is a thread's own
        links = Links(store, libraries[rank], place.host, measures=True, timeout_s=60)
        protected.append(all(isinstance(c.sock, Channel) for c in links.mesh().connections))
        all_done.wait(60)
        links.close()

    with emulator.built(net) as places, ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(measure, range(RANKS)))
    assert protected == [True] * RANKS  # between machines frames are authenticated, unless somebody says otherwise
    for found in (library.topology for library in libraries):
        assert found.name == "8 ranks in 2 sites, as measured"
        site = {int(a): int(b) for a, b in zip(found.src, found.dst) if a < RANKS}
        assert site[0] == site[1] == site[2] == site[3] != site[4] == site[5] == site[6] == site[7]
        across = found.bandwidth[(found.kind[found.src] == SWITCH) & (found.kind[found.dst] == SWITCH)]
        assert len(across) == 2
        # four pairs share the link, so that one alone shows at most about a quarter of it
        assert (across > 0.5 * WAN).all() and (across < 1.2 * WAN).all(), across
