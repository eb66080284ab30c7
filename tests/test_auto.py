"""The default planner: what it tries, when it stops, and what it says."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from stretto.bounds import bounds
from stretto.cli import app
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def work(net, kind, shard):
    return Workload((make_collective(kind, net, shard_bytes=shard),))


def test_it_stops_where_a_plan_is_near_the_bound():
    net = load_topology("ndv2:2")
    plan = run_planner("auto", net, work(net, "allgather", 10**8))
    assert [t["planner"] for t in plan.meta["tried"]] == ["forest"]
    assert plan.meta["chosen"] == "forest"


def test_small_messages_try_others_and_keep_the_best():
    net = load_topology("dgx1")
    request = work(net, "allreduce", 1000)
    plan = run_planner("auto", net, request)
    given = {t["planner"]: t["completion_s"] for t in plan.meta["tried"] if "completion_s" in t}
    assert len(given) > 2
    assert simulate(plan).completion_s == pytest.approx(min(given.values()))
    assert given[plan.meta["chosen"]] == min(given.values())


def test_two_runs_are_one_plan():
    net = load_topology("dgx1")
    plans = [run_planner("auto", net, work(net, "allreduce", 10**6)) for _ in range(2)]
    assert plans[0].digest() == plans[1].digest()


def test_plan_uses_it_and_says_what_it_tried():
    done = CliRunner().invoke(app, ["plan", "allgather", "-t", "ndv2:2", "--shard", "16MB", "--json"])
    data = json.loads(done.stdout)
    assert data["planner"] == "auto"
    assert data["chosen"] in {t["planner"] for t in data["tried"]}


def test_optical_planes_get_a_plan_that_hides_turns():
    net = load_topology("optical:8,2")
    done = {
        name: simulate(run_planner(name, net, work(net, "allreduce", 1_000_000))).completion_s
        for name in ("auto", "swot", "ring")
    }
    assert done["auto"] <= done["swot"] < done["ring"]


def test_a_fair_allreduce_among_many_is_not_searched_further():
    net = load_topology("mesh:5x5")
    request = work(net, "allreduce", 64 * 10**6)
    plan = run_planner("auto", net, request)
    assert [t["planner"] for t in plan.meta["tried"]] == ["forest"]
    assert 1.005 < simulate(plan).completion_s / bounds(net, request)[0].seconds <= 1.05


def test_a_candidate_for_which_bytes_are_too_few_leaves_it_to_the_others():
    net = load_topology("ring:7")
    few = Workload((make_collective("allreduce", net, 7, chunks=5),))  # `ring` would cut them into 35
    with pytest.raises(InputError, match="too few for 35 chunks"):
        run_planner("ring", net, few)
    assert verify(run_planner("auto", net, few)).ok
