"""Tables of the best planner for each range of sizes, and who uses them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from stretto.choose.better import better_plan
from stretto.choose.library import from_environment
from stretto.choose.requests import Shape
from stretto.choose.tuning import CROSSING, KEPT_WITHIN, read_tuning, to_json, tune
from stretto.cli import app
from stretto.formats import exporters
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology

NET = "star:8"
SIZES = (1000, 100_000, 10_000_000)
CANDIDATES = ("ring", "shortest-path")


@pytest.fixture(scope="module")
def table():
    return tune(NET, ["allreduce", "allgather"], SIZES, planners=CANDIDATES, chunks=(1,))


@pytest.fixture(scope="module")
def file(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("tuning") / "table.json"
    command = ["tune", "allreduce,allgather", "-t", NET, "--sizes", "1KB,100KB,10MB", "-p", ",".join(CANDIDATES),
               "--chunks", "1", "-o", str(path)]  # fmt: skip
    assert CliRunner().invoke(app, command).exit_code == 0
    return str(path)


def completion(planner, kind, size):
    net = assume_messages(load_topology(NET))
    return simulate(run_planner(planner, net, Workload((make_collective(kind, net, size),)))).completion_s


def test_ranges_cover_all_sizes_without_a_gap(table):
    for kind in ("allreduce", "allgather"):
        own = [r for r in table.ranges if r.collective == kind]
        assert own[0].from_bytes == 0 and own[-1].to_bytes is None
        assert all(a.to_bytes == b.from_bytes for a, b in pairwise(own))


def test_each_size_has_the_planner_that_ends_first(table):
    for kind in ("allreduce", "allgather"):
        for size in SIZES:
            times = {p: completion(p, kind, size) for p in CANDIDATES}
            assert times[table.find(kind, size).planner] <= KEPT_WITHIN * min(times.values())
    assert {r.planner for r in table.ranges if r.collective == "allreduce"} == set(CANDIDATES)


def test_they_change_places_where_one_becomes_better(table):
    first, second = (r for r in table.ranges if r.collective == "allreduce")
    edge = second.from_bytes
    before, after = round(edge / CROSSING**1.5), round(edge * CROSSING**1.5)
    assert completion(first.planner, "allreduce", before) < completion(second.planner, "allreduce", before)
    assert completion(second.planner, "allreduce", after) < completion(first.planner, "allreduce", after)


def test_a_table_is_read_as_it_was_written(table, file):
    assert read_tuning(file) == table


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d.pop("ranges"), "no table"),
        (lambda d: d["ranges"][0].pop("planner"), "no table of `stretto tune`: 'planner' is missing"),
        (lambda d: d.update(stretto_tuning=2), "version 2"),
        (lambda d: d["ranges"][0].update(collective="all"), "no table"),
        (lambda d: d["ranges"][0].update(measured=[]), "no table"),
        (lambda d: d.update(root="0"), "another type"),
    ],
)
def test_a_damaged_table_is_refused(damage, words, file, tmp_path):
    with open(file) as whole:
        data = json.load(whole)
    damage(data)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=words):
        read_tuning(str(path))


def test_pytorchs_backend_asks_the_planner_of_the_table(file, monkeypatch):
    asked = []

    def spy(name, *rest, **more):
        asked.append(name)
        return run_planner(name, *rest, **more)

    monkeypatch.setattr("stretto.choose.better.run_planner", spy)
    monkeypatch.setenv("STRETTO_TOPOLOGY", NET)
    monkeypatch.setenv("STRETTO_TUNING", file)
    library = from_environment(range(8), 0, 8, 0.0)
    for size in (1000, 5_000_000):
        better_plan(library.request(Shape.of("allreduce", size, 0)))
    assert asked == [read_tuning(file).find("allreduce", size).planner for size in (4096, 8_388_608)]
    assert len(set(asked)) == 2
    # the table is for all eight
    assert from_environment(range(4), 0, 8, 0.0).request(Shape.of("allreduce", 1000, 0)).planner == "auto"


def test_a_table_of_another_topology_is_refused(file, monkeypatch):
    monkeypatch.setenv("STRETTO_TUNING", file)
    with pytest.raises(InputError, match="STRETTO_TOPOLOGY=star:8"):
        from_environment(range(8), 0, 8, 0.0)
    monkeypatch.setenv("STRETTO_TOPOLOGY", "star:8?bandwidth=1GB/s")
    with pytest.raises(InputError, match="tuned for star:8"):
        from_environment(range(8), 0, 8, 0.0)


def test_plans_that_others_than_ranks_run_can_be_left_out():
    star = "sites:2,2"
    some = tune(star, ["allgather"], [10_000], planners=("scale-ccl", "ring"), chunks=(1,), ranks_only=True)
    assert {r.planner for r in some.ranges} == {"ring"}
    assert tune(star, ["allgather"], [10_000], planners=("scale-ccl", "ring"), chunks=(1,)).ranges[0].planner != "ring"


def test_a_table_for_a_target_has_plans_that_the_target_can_run(tmp_path):
    made = tune("dgx1", ["alltoall"], [4_000_000], planners=["paths"], target="msccl")
    path = tmp_path / "table.json"
    path.write_text(json.dumps(to_json(made)))
    plan = read_tuning(str(path)).plan(load_topology("dgx1"), "alltoall", 4_000_000)
    assert plan.meta["target"] == "msccl" and not plan.workload.collectives[0].evenly_cut
    exporters()["msccl"].check(simulate(plan))
    path.write_text(path.read_text().replace('"target": "msccl"', '"target": "mscl"'))
    with pytest.raises(InputError, match="no target 'mscl'; did you mean msccl"):
        read_tuning(str(path))


def test_a_collective_that_nobody_serves_says_why():
    with pytest.raises(StrettoError, match="ring does not serve"):
        tune(NET, ["alltoall"], [1000], planners=("ring",))


def test_plan_takes_the_planner_of_the_table(table, file):
    for size in (1000, 10_000_000):
        command = ["plan", "allreduce", "-t", NET, "--size", str(size), "--tuning", file, "--json"]
        assert json.loads(CliRunner().invoke(app, command).stdout)["planner"] == table.find("allreduce", size).planner


def test_a_table_that_says_nothing_of_a_collective_names_what_it_has(file):
    done = CliRunner().invoke(app, ["plan", "broadcast", "-t", NET, "--size", "1KB", "--tuning", file])
    assert isinstance(done.exception, InputError) and "allreduce, allgather" in str(done.exception)


def test_what_is_in_no_range_is_not_found(table):
    assert replace(table, ranges=()).find("allreduce", 5) is None


def test_planes_get_planners_that_turn_them():
    table = tune("optical:8,2", ["alltoall"], [4_000_000])
    assert table.ranges[0].planner in ("swot", "birkhoff")
