"""Which network a process group plans for, and that every rank plans alike."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from stretto.choose.better import better_plan
from stretto.choose.kept import packed
from stretto.choose.library import Library, joined_by_one_switch, joined_by_sites
from stretto.choose.quick import QUICK_STEPS, STEPS_A_TRANSFER, quick_plan
from stretto.choose.requests import PlanRequest, Shape
from stretto.choose.tuning import Range, Tuning, digest_of
from stretto.measure.survey import Party, survey
from stretto.model.kinds import KINDS
from stretto.model.topology import SWITCH
from stretto.planners import asked_by, run_planner
from stretto.runtime.probe import QUICK, rounds
from stretto.schedule.best import completion_s
from stretto.topologies import load_topology
from stretto.topologies.measured import sites_of
from stretto.verify import verify
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


def test_ports_of_ranks_carry_what_links_between_sites_do():
    net = joined_by_sites(2, {(0, 1): (0.02, 5e5)}, {(0, 1): 4e6, (1, 0): 4e6}, sites=[[0], [1]])
    assert set(net.bandwidth.tolist()) == {4e6}


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


@pytest.mark.parametrize("kind", KINDS)
def test_routers_are_the_networks_matter(kind):
    net = load_topology("sites:2,2")
    plan = Library(net, range(4), 0).recipe(kind, 1 << 22).program.plan
    assert {*plan.src.tolist(), *plan.dst.values.tolist()} <= {*net.accelerators.tolist()}
    assert verify(plan).ok


def test_every_rank_makes_the_same_first_plan_without_numba():
    program = """
        import sys
        from stretto.choose.library import Library
        from stretto.topologies import load_topology
        for spec in ("sites:2,4", "ring:5"):
            net = load_topology(spec)
            libraries = [Library(net, range(len(net.accelerators)), rank) for rank in (0, 3)]
            for kind in ("allreduce", "allgather", "broadcast", "gather"):
                for size in (100, 1 << 24):
                    one, other = (library.recipe(kind, size, root=1).digest for library in libraries)
                    assert one == other, (spec, kind, size)
        assert "numba" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_the_planners_of_the_first_plan_are_asked_while_steps_are_left(monkeypatch):
    asked = []

    def noted(spec, topology, workload, **more):
        plan = run_planner(spec, topology, workload, **more)
        asked.append((spec, plan.transfer_count))
        return plan

    monkeypatch.setattr("stretto.choose.quick.run_planner", noted)
    for ranks in (8, 64):
        asked.clear()
        Library(None, range(ranks), 0).recipe("allreduce", 1 << 24)
        fixed = [count for spec, count in asked if spec != "symmetric"]
        assert asked[0][0] == "symmetric" and sum(fixed) * STEPS_A_TRANSFER <= QUICK_STEPS
    assert len(fixed) < 3  # among 8 ranks all are asked, among 64 those with few transfers


def test_a_shape_has_a_name_that_says_all():
    shape = Shape.of("reduce", 5000, 3)
    assert shape == Shape("reduce", 8192, 3) == Shape.named(shape.name)
    assert Shape.named("reduce-8192") is Shape.named("nothing-1-2") is Shape.named("reduce-8192-x") is None


def test_equal_requests_and_no_others_have_one_name():
    net, other = load_topology("sites:2,2"), load_topology("sites:2,2?bandwidth=2GB/s")
    shape = Shape("allreduce", 1 << 20, 0)
    names = [Library(t, range(4), r, effort=e).request(shape).name
             for t, r, e in ((net, 0, "normal"), (net, 3, "normal"), (other, 0, "normal"), (net, 0, "quick"))]  # fmt: skip
    assert names[0] == names[1] and len({*names}) == 3
    again = PlanRequest.from_json(json.loads(json.dumps(Library(net, range(4), 0).request(shape).to_json())))
    assert again.name == names[0]


def test_the_better_plan_is_by_auto_or_by_the_planner_of_the_table():
    net = load_topology("ring:4")
    table = Tuning("ring:4", digest_of(net), 5, 0, True, (Range("allreduce", 0, None, "ring", 4, ((1000, 1.0),)),))
    library = Library(net, range(4), 0, table)
    assert library.request(Shape("allgather", 1 << 20, 0)).planner == "auto"
    of_table = library.request(Shape("allreduce", 1 << 20, 0))
    assert (of_table.planner, of_table.chunks, of_table.seed, of_table.effort) == ("ring", 4, 5, "thorough")
    assert Library(net, [0, 1], 0, table).request(Shape("allreduce", 1 << 20, 0)).planner == "auto"


def test_a_plan_that_is_not_better_is_not_taken():
    net = load_topology("ring:4")
    asked = Library(net, range(4), 0).request(Shape("allgather", 1 << 20, 0))
    assert better_plan(replace(asked, planner="shortest-path")) is None
    narrow = Library(load_topology("sites:2,2"), range(4), 0).request(Shape("allreduce", 1 << 24, 0))
    better = better_plan(replace(narrow, planner="greedy", effort="quick"))
    assert better is None or completion_s(better) < completion_s(quick_plan(narrow))


def test_a_rank_that_is_given_a_plan_loads_nothing_for_it(tmp_path):
    pairs = {(a, b): (1e-3, 1e7) if a < 8 <= b else (1e-5, 1e9) for b in range(16) for a in range(b)}
    sites = joined_by_sites(16, pairs)
    for name, net in {"two sites": sites, "one switch": None}.items():
        made = Library(net, range(16), 1)
        for kind in KINDS:
            for size in (1 << 12, 1 << 20, 1 << 25):
                shape = Shape.of(kind, size, 0)
                Path(tmp_path, f"{name}-{shape.name}").write_bytes(packed(shape.name, made.first_plan(shape)))
    program = (
        "import pathlib, sys\n"
        "import stretto.runtime.native.inputs\n"
        "from stretto.choose.kept import unpacked\n"
        "from stretto.choose.library import Library\n"
        "before = {*sys.modules}\n"
        "for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    plan = unpacked(file.read_bytes(), file.name.partition('-')[2])\n"
        "    recipe = Library(plan.topology, range(16), 1).recipe_of(plan)\n"
        "    recipe.digest, recipe.program.steps\n"
        "print(sorted({*sys.modules} - before))\n"
    )
    process = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert process.stdout == "[]\n", process.stderr


def test_where_the_planner_by_symmetry_refuses_the_first_plan_is_still_one_for_the_network():
    at = [rank * 2 // 64 for rank in range(64)]
    pairs = {(a, b): (1e-4, 1e9) if at[a] == at[b] else (1e-3, 5e7) for a, b in combinations(range(64), 2)}
    net = joined_by_sites(64, pairs, sites=[list(range(32)), list(range(32, 64))])
    plan = Library(net, range(64), 0).first_plan(Shape.of("broadcast", 1 << 12, 0))
    assert plan.topology.name == net.name and verify(plan).ok


def test_the_search_for_a_symmetry_that_does_not_serve_is_paid_for(monkeypatch):
    from stretto.choose import quick

    asked: list[tuple[str, float]] = []
    places = {entry.name: entry for entry in asked_by("library")}

    def noted(planner, request):
        asked.append((planner, quick._steps(places[planner], request)))
        return ask(planner, request)

    ask = quick._ask
    monkeypatch.setattr(quick, "_ask", noted)
    net = uneven_sites(3, 4)
    Library(net, range(7), 0).first_plan(Shape.of("allreduce", 1 << 28, 0))
    assert asked[0][0] == "symmetric"
    made = [steps for planner, steps in asked if planner != "swot"]
    assert len(made) > 3
    assert sum(made) <= QUICK_STEPS


@pytest.mark.parametrize("sizes", [(15, 16), (7, 8, 8, 8)])
def test_a_large_sum_among_an_odd_number_of_ranks_goes_around_a_ring_at_first(sizes):
    ranks = sum(sizes)
    library = Library(uneven_sites(*sizes), range(ranks), 0)
    plan = library.first_plan(Shape.of("allreduce", 1 << 28, 0))
    assert plan.meta["planner"] == "ring"
    # each way between two sites crosses (ranks - 1) / ranks of the data, twice
    assert completion_s(plan) < 1.1 * 2 * (1 << 28) / 5e7
    assert library.first_plan(Shape.of("allreduce", 1 << 12, 0)).meta["planner"] != "ring"


def uneven_sites(*sizes):
    """A measured network of sites with so many ranks."""
    at = [site for site, size in enumerate(sizes) for _ in range(size)]
    pairs = {(a, b): (1e-4, 1e9) if at[a] == at[b] else (1e-3, 5e7) for a, b in combinations(range(len(at)), 2)}
    return joined_by_sites(len(at), pairs, sites=[[r for r in range(len(at)) if at[r] == s] for s in range(len(sizes))])
