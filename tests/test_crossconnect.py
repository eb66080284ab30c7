"""Cross-connect lists: replayed, they join at every moment what the plan needs."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from stretto.formats import exporters
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def timeline_of(spec: str, planner: str, kind: str):
    net = load_topology(spec)
    return simulate(run_planner(planner, net, Workload((make_collective(kind, net, 4_000_000),))))


@pytest.mark.parametrize("spec", ["optical:8,2?initial=xor1", "optical:8,3"])
def test_a_replay_joins_what_every_transfer_needs(spec, tmp_path):
    timeline = timeline_of(spec, "rabenseifner+swot", "allreduce")
    path = tmp_path / "x.json"
    exporters()["cross-connects"].write(timeline, str(path))
    document = json.loads(path.read_text())
    plan = timeline.plan
    for switch in document["switches"]:
        joined = {tuple(c) for c in switch["initial"]}
        states = [(0.0, joined)]
        for turn in switch["turns"]:
            assert {tuple(c) for c in turn["break"]} <= joined
            joined = (joined - {tuple(c) for c in turn["break"]}) | {tuple(c) for c in turn["make"]}
            assert {tuple(c) for c in turn["keep"]} <= joined
            assert turn["slack_s"] is None or turn["slack_s"] >= 0
            states.append((turn["end_s"], joined))
        for k in np.flatnonzero(plan.plane == switch["switch"]):
            at = [s for when, s in states if when <= timeline.start_s[k] * (1 + 1e-9)][-1]
            assert (int(plan.src[k]), int(plan.dst[k][0])) in at


def test_the_csv_has_a_row_a_circuit_made_or_broken(tmp_path):
    timeline = timeline_of("optical:8,2?initial=xor1&latency=0us", "rabenseifner+swot", "allreduce")
    path = tmp_path / "x.csv"
    exporters()["cross-connects-csv"].write(timeline, str(path))
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == timeline.plan.turns.count * 16
    assert {r["action"] for r in rows} == {"break", "make"}


def test_a_plan_without_planes_has_nothing_to_cross_connect(tmp_path):
    with pytest.raises(InputError, match="has no optical planes"):
        exporters()["cross-connects"].write(timeline_of("fullmesh:4", "ring", "allreduce"), str(tmp_path / "x"))
