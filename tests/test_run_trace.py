"""The trace of a run on optical planes: figure 5 of the SWOT paper, row by row."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.report.picture import planes_picture
from stretto.report.run_trace import RANKS, write_run
from stretto.simulate import simulate
from stretto.topologies import load_topology


@pytest.fixture(scope="module")
def timeline():
    net = load_topology("optical:8,2?initial=xor1&latency=0us")
    return simulate(run_planner("rabenseifner+swot", net, Workload((make_collective("allreduce", net, 40_000_000),))))


def rows(timeline, waits, tmp_path) -> dict[str, list[tuple[str, float, float]]]:
    path = tmp_path / "run.json"
    write_run(timeline, waits, str(path))
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[tuple[str, float, float]]] = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X":
            found[names[e["pid"], e["tid"]]].append((e["name"], e["ts"], e["ts"] + e["dur"]))
    return found


def test_planes_relay_each_other_as_in_the_paper(timeline, tmp_path):
    found = rows(timeline, [], tmp_path)
    turns = {p: [(round(a), round(b)) for name, a, b in found[f"plane {p}"] if name == "turns"] for p in (0, 1)}
    ups = {p: [name for name, _, _ in found[f"plane {p}"] if name.endswith(" up")] for p in (0, 1)}
    # one plane goes C1, C2, C1 and skips C3, the other goes C1, C3, C1 and skips C2; they never turn together
    assert sorted(turns.values()) == [[(100, 300), (900, 1100)], [(300, 500), (700, 900)]]
    assert sorted(ups.values()) == [["C1 up", "C2 up", "C1 up"], ["C1 up", "C3 up", "C1 up"]]
    for p in (0, 1):
        steps = [(a, b) for name, a, b in found[f"plane {p}"] if name.startswith("step ")]
        assert all(b <= begin + 1e-6 or end <= a + 1e-6 for a, b in steps for begin, end in turns[p])


def test_each_port_shows_what_it_sent_and_when_it_waited(timeline, tmp_path):
    plan = timeline.plan
    own = plan.plane == 1
    own[: plan.turns.before[plan.turns.plane == 1][-1]] = False
    k = int(own.nonzero()[0][0])  # the first after the plane's last turn
    begin = float(timeline.start_s[k])
    found = rows(timeline, [(k, begin - 3e-5, begin - 1e-5), (k, begin - 2e-5, begin)], tmp_path)
    port = found[f"gpu{plan.src[k]} on plane 1"]
    waits = [(round(a, 3), round(b, 3)) for name, a, b in port if name.startswith("waits")]
    assert waits == [(round(begin * 1e6 - 30, 3), round(begin * 1e6, 3))]
    sent = sum(int(name.split(", ")[1].split()[0]) for name, _, _ in port if name.startswith("chunk "))
    assert sent == plan.size_bytes[(plan.src == plan.src[k]) & (plan.plane == 1)].sum()
    spans = sorted((a, b) for _, a, b in port)
    assert all(b <= a + 1e-6 for (_, b), (a, _) in pairwise(spans))


def test_what_overlaps_at_a_port_is_on_rows_of_its_own(timeline, tmp_path):
    k = int((timeline.plan.plane == 1).nonzero()[0][0])
    begin, end = float(timeline.start_s[k]), float(timeline.finish_s[k])
    write_run(timeline, [(k, begin, (begin + end) / 2)], str(tmp_path / "run.json"))
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"]:
        if e["ph"] == "X" and e["pid"] == RANKS:
            spans.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    assert len(spans) == len({(int(v), int(p)) for v, p in zip(timeline.plan.src, timeline.plan.plane)}) + 1
    assert all(b <= a + 1e-6 for row in spans.values() for (_, b), (a, _) in pairwise(sorted(row)))


def test_the_picture_says_what_it_marks(timeline):
    drawn = planes_picture(timeline, 1e-3, "simulated")
    assert "simulated 1 ms" in drawn
    assert drawn.count("<title>turns</title>") == 4
