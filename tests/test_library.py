"""Which network a process group plans for, and that every rank plans alike."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from stretto.choose.library import Library, joined_by_one_switch, joined_by_sites
from stretto.measure.survey import Party, survey
from stretto.model.topology import SWITCH
from stretto.planners import run_planner
from stretto.runtime.probe import QUICK, rounds
from stretto.topologies import load_topology
from stretto.topologies.measured import sites_of
from surveys import Board


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_everyone_meets_everyone_and_nobody_two_at_once(ranks):
    met = [pair for some in rounds(ranks) for pair in some]
    assert sorted(met) == [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
    for some in rounds(ranks):
        assert len({v for pair in some for v in pair}) == 2 * len(some)


def test_a_survey_finds_every_pair_in_both_directions():
    ends = {(a, b): socket.socketpair() for a in range(4) for b in range(a + 1, 4)}
    mine = [{b if v == a else a: [pair[v == b]] for (a, b), pair in ends.items() if v in (a, b)} for v in range(4)]
    board = Board(4)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda v: survey(Party(v, 4, mine[v], board.of(v), 30.0), QUICK), range(4)))
    assert all(each == found[0] for each in found)
    assert sorted(found[0].pairs) == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert all(p.rate.value > 0 and p.latency_s.value > 0 for p in found[0].pairs.values())
    for pair in ends.values():
        for end in pair:
            end.close()


def test_slow_pairs_are_links_between_sites():
    # ranks 0, 2 and 1, 3 are near each other; one near pair was measured badly
    pairs = {(a, b): (1e-3, 1e7) if (a + b) % 2 else (1e-5, 1e9) for a in range(6) for b in range(a + 1, 6)}
    pairs[0, 2] = (1e-4, 2e7)
    net = joined_by_sites(6, pairs)
    assert (net.kind == SWITCH).sum() == 2
    between = [(w, t) for a, b, w, t in zip(net.src, net.dst, net.bandwidth, net.latency_s) if a >= 6 and b >= 6]
    assert between == [(1e7, 1e-3)] * 2
    at = {int(v): int(w) for v, w in zip(net.src, net.dst) if v < 6}
    assert at[0] == at[2] == at[4] != at[1] == at[3] == at[5]


def test_many_pairs_at_once_say_what_the_link_between_two_sites_has():
    pairs = {(a, b): (1e-3, 1e7) if a < 3 <= b else (1e-5, 1e9) for a in range(6) for b in range(a + 1, 6)}
    net = joined_by_sites(6, pairs, {(0, 1): 2.9e7, (1, 0): 3.1e7})
    assert [w for a, b, w in zip(net.src, net.dst, net.bandwidth) if a >= 6 and b >= 6] == [2.9e7, 3.1e7]


def test_ranks_as_fast_but_far_away_are_another_site():
    pairs = {(a, b): (0.02, 9e8) if a < 2 <= b else (1e-4, 1e9) for a in range(4) for b in range(a + 1, 4)}
    assert sites_of(4, pairs) == [[0, 1], [2, 3]]


def test_pairs_that_are_alike_are_one_switch():
    pairs = {(a, b): (1e-5 * (1 + a), 1e9 / (1 + b % 3)) for a in range(4) for b in range(a + 1, 4)}
    assert joined_by_sites(4, pairs).name == joined_by_one_switch(4).name


def test_a_narrow_link_between_sites_is_crossed_once_each_way():
    narrow = {(a, b): (1e-3, 1e7) if a < 4 <= b else (1e-5, 1e8) for a in range(8) for b in range(a + 1, 8)}
    library = Library(None, range(8), 0)
    library.learn(joined_by_sites(8, narrow))
    plan = library.recipe("allreduce", 16 << 20).program.plan
    crossed = plan.size_bytes[[(a < 4) and (b >= 4) for a, b in zip(plan.src, plan.dst.values)]].sum()
    assert crossed <= 1.05 * (16 << 20)  # a ring carries 7/4 of the buffer


def test_a_planner_that_needs_routers_is_asked_once(monkeypatch):
    asked = []

    def noted(spec, *arguments, **more):
        asked.append(spec)
        return run_planner(spec, *arguments, **more)

    monkeypatch.setattr("stretto.choose.tuning.run_planner", noted)
    net = load_topology("sites:2,2")
    Library(net, range(4), 0).recipe("allreduce", 1 << 22)
    assert asked.count("scale-ccl") == 1 and asked.count("ring") == 2
