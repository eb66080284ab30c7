"""The page's data: what it shows is what the timeline says."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest

from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import COPY, Plan, Ragged, make_plan
from stretto.model.timeline import Timeline
from stretto.model.topology import Topology, make_topology
from stretto.planners import run_planner
from stretto.report import write_page
from stretto.report.columns import pack_columns, unpack_columns
from stretto.report.critical import critical_path
from stretto.report.data import BINS, page_data
from stretto.report.drawing import write_svg
from stretto.report.hops import home_nodes
from stretto.report.layout import positions
from stretto.simulate import simulate
from stretto.topologies import load_topology


def run(net: Topology, shard: int = 100_000, chunks: int = 1) -> Timeline:
    work = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    return simulate(run_planner("mtegcca", net, work))


def data(timeline: Timeline) -> dict:
    return page_data(timeline, bounds(timeline.plan.topology, timeline.plan.workload))


def unpack(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


@pytest.mark.parametrize("spec", ["ndv2:4", "zoo:Abilene", "sites:2,3"])
def test_the_use_of_a_link_over_time_adds_up_to_its_use(spec):
    timeline = run(load_topology(spec))
    page = data(timeline)
    bins = unpack(page["links"]["bins"], "u1").reshape(-1, BINS) / 255
    assert bins.mean(axis=1) == pytest.approx(timeline.link_use, abs=0.5 / 255)


def test_delivery_ends_with_everything_at_completion():
    timeline = run(random_network(4))
    page = data(timeline)["delivered"]
    n = len(timeline.plan.topology.accelerators)
    assert page["total"] == n * (n - 1) * 100_000
    assert unpack(page["bytes"], "f8")[-1] == page["total"]
    assert unpack(page["t"], "f8")[-1] == timeline.completion_s


def test_where_the_time_went_tells_messages_from_bytes():
    timeline = run(load_topology("ring:4?bandwidth=1GB/s&latency=1us&message=3us"), shard=1000)
    spent = critical_path(timeline)
    assert spent["message"] == pytest.approx(3 * spent["busy"])
    assert spent["latency"] + spent["busy"] + spent["message"] == pytest.approx(timeline.completion_s, rel=1e-9)
    assert page_data(timeline, bounds(timeline.plan.topology, timeline.plan.workload))["message"] == "3 us"


@pytest.mark.parametrize("spec", ["ndv2:4", "zoo:Abilene", "sites:2,3", "dgx2:2", "torus:4x4"])
def test_where_the_time_went_adds_up_to_the_completion(spec):
    timeline = run(load_topology(spec), chunks=2)
    spent = critical_path(timeline)
    assert spent["latency"] + spent["busy"] + spent["idle"] == pytest.approx(timeline.completion_s, rel=1e-9)
    assert spent["complete"]


def over_a_router(first: float, second: float) -> Timeline:
    """1 MB from 0 over a router to 1, as two transfers, over links of so many GB/s, of 1 and 2 ms."""
    links = [(0, 2, first * 1e9, 1e-3), (2, 1, second * 1e9, 2e-3), (1, 0, 1e9, 0.0)]
    net = make_topology("router", [0, 0, 1], links)
    work = Workload((make_collective("broadcast", net, 1_000_000),))
    chunk, none = [0, 0], [[], [0]]
    plan = make_plan(net, work, "ready-order", chunk=chunk, src=[0, 2], dst=Ragged.of([[2], [1]]),
                     route=Ragged.of([[0], [1]]), depends=Ragged.of(none))  # fmt: skip
    return simulate(plan)


@pytest.mark.parametrize("speeds", [(1.0, 1.0), (1.0, 4.0), (4.0, 1.0)])
def test_what_cuts_through_a_router_waits_for_latency_and_not_for_the_sending_before(speeds):
    timeline = over_a_router(*speeds)
    spent = critical_path(timeline)
    assert timeline.completion_s == pytest.approx(4e-3)  # the slower link's 1 ms, and 1 and 2 ms of latency
    assert spent["busy"] == pytest.approx(1e-3)
    assert spent["latency"] == pytest.approx(3e-3)
    assert sum(row["latency"] for row in spent["links"]) == pytest.approx(3e-3)


def twice(net: Topology) -> Plan:
    """Everyone's MB straight to everyone, and at the end the first once more."""
    timeline = run(net)
    plan = timeline.plan
    again = int(np.argmax(timeline.arrival_s))
    rows = range(plan.transfer_count)
    dst, route, depends = ([r[i] for i in rows] for r in (plan.dst, plan.route, plan.depends))
    return make_plan(
        net, plan.workload, "ready-order",
        chunk=[*plan.chunk, plan.chunk[0]], src=[*plan.src, plan.src[0]],
        dst=Ragged.of([*dst, dst[0]]), route=Ragged.of([*route, route[0]]),
        depends=Ragged.of([*depends, [again]]),
    )  # fmt: skip


def test_a_copy_that_comes_again_was_delivered_when_it_came_first():
    net = load_topology("fullmesh:3")
    once, again = (data(t)["delivered"] for t in (run(net), simulate(twice(net))))
    assert again["total"] == once["total"]
    assert unpack(again["bytes"], "f8").tolist() == unpack(once["bytes"], "f8").tolist()
    assert unpack(again["t"], "f8").tolist() == pytest.approx(unpack(once["t"], "f8").tolist())


@pytest.mark.parametrize(("spec", "kind", "planner"), [
    ("optical:8,2", "allreduce", "swot"), ("optical:8,4", "alltoall", "birkhoff"), ("optical:8,2", "allreduce", "ring"),
    ("optical:8,3?dims=2x2x2", "allreduce", "by-dimension"),
])  # fmt: skip
def test_where_the_time_went_adds_up_on_planes(spec, kind, planner):
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, 8_000_000),))
    timeline = simulate(run_planner(planner, net, work))
    path = data(timeline)["path"]
    assert path["latency"] + path["busy"] + path["idle"] == pytest.approx(timeline.completion_s, rel=1e-9)
    assert sum(row["latency"] for row in path["links"]) == pytest.approx(path["latency"], rel=1e-9)


def test_a_wan_with_small_messages_spends_its_time_on_latency():
    spent = critical_path(run(load_topology("zoo:Abilene"), shard=1000))
    assert spent["latency"] > 0.99 * (spent["busy"] + spent["idle"] + spent["latency"])


def test_too_many_transfers_are_shown_by_slices_of_time(monkeypatch):
    timeline = run(load_topology("torus:4x4"))
    assert data(timeline)["hops"] is not None
    monkeypatch.setattr("stretto.report.hops.MOST_HOPS", 200)
    assert data(timeline)["hops"] is None


@pytest.mark.parametrize("spec", ["torus:12x12", "zoo:Abilene", "dgx2:2"])
def test_the_page_has_every_hop_of_a_plan(spec):
    timeline = run(load_topology(spec), chunks=2)
    plan, packed = timeline.plan, data(timeline)["hops"]
    found, tick = unpack_columns(packed), packed["tick"]
    for name, column in (
        ("chunk", plan.chunk), ("link", plan.route.values), ("hops", plan.route.lengths), ("source", plan.src),
        ("receiver", plan.dst.values), ("before", plan.depends.owners - plan.depends.values),
    ):  # fmt: skip
        assert found[name].tolist() == column.tolist(), name
    lasts = timeline.finish_s - timeline.start_s
    assert found["start"] * tick == pytest.approx(timeline.start_s, abs=0.02 * lasts.min())
    assert found["lasts"] * tick == pytest.approx(lasts, rel=0.02)
    end = found["start"] + found["lasts"]
    assert (end[plan.dst.owners] + found["late"]) * tick == pytest.approx(timeline.arrival_s, abs=0.02 * lasts.min())
    assert np.array(packed["sizes"])[found["size"]].tolist() == plan.size_bytes.tolist()
    # a million transfers take less than 20 MB
    assert len(json.dumps(packed)) < 20 * plan.transfer_count + 2_000


def test_packed_columns_come_back():
    columns = {
        "negative": np.array([-(2**30), 2**30, -1, 0, 1]), "none": np.zeros(0, np.int64), "zeros": np.zeros(9, np.int64),
        "rising": np.arange(100_000) * 7, "random": np.random.default_rng(0).integers(-(2**30), 2**30, 1000),
    }  # fmt: skip
    found = unpack_columns(json.loads(json.dumps(pack_columns(columns))))
    assert {name: c.tolist() for name, c in found.items()} == {name: c.tolist() for name, c in columns.items()}


def test_a_sum_comes_from_where_it_is_complete():
    """Each of 4 ranks owns the sum of one chunk of a ring's AllReduce, and copies start there."""
    net = load_topology("ring:4")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 4_000_000),)))
    home = home_nodes(plan)
    assert len(set(home.tolist())) == 4
    for chunk in range(plan.workload.chunk_count):
        copies = np.flatnonzero((plan.chunk == chunk) & (plan.op == COPY))
        assert home[chunk] == plan.src[copies[0]]


def test_text_from_a_topology_cannot_leave_its_place(tmp_path):
    name = "</script><script>alert(1)</script>"
    net = make_topology(name, [0, 0], [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)], names=["<b>", "{{js}}"])
    timeline = run(net)
    write_page(str(tmp_path / "p.html"), [timeline], [bounds(net, timeline.plan.workload)])
    text = (tmp_path / "p.html").read_text()
    assert "alert(1)</script>" not in text
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    page = json.loads(found[1])
    assert page["plans"][0]["topology"] == name
    assert page["plans"][0]["names"] == ["<b>", "{{js}}"]


def test_the_page_needs_nothing_from_elsewhere(tmp_path):
    timeline = run(load_topology("ndv2:2"))
    write_page(str(tmp_path / "p.html"), [timeline], [bounds(timeline.plan.topology, timeline.plan.workload)])
    text = (tmp_path / "p.html").read_text()
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize("spec", ["zoo:HiberniaIreland", "ndv2:4", "sites:3,4"])
def test_every_node_is_drawn_in_the_picture(spec):
    at = positions(load_topology(spec))
    assert np.isfinite(at).all()
    assert (at > -0.1).all()
    assert (at < 1.1).all()


def test_nodes_without_places_are_put_in_circles():
    at = positions(random_network(3))
    assert len({tuple(row.round(6)) for row in at}) == len(at)


def test_a_drawing_is_an_svg_with_every_node(tmp_path):
    net = load_topology("sites:2,3")
    write_svg(net, str(tmp_path / "n.svg"))
    text = (tmp_path / "n.svg").read_text()
    assert all(name in text for name in net.names)
    with pytest.raises(InputError, match="svg"):
        write_svg(net, str(tmp_path / "n.png"))


def test_planes_are_drawn_by_their_first_circuits(tmp_path):
    write_svg(load_topology("optical:8,2?initial=xor1"), str(tmp_path / "planes.svg"))
    assert (tmp_path / "planes.svg").read_text().count("stroke-dasharray") == 4
    write_svg(load_topology("optical:8,2"), str(tmp_path / "free.svg"))
    assert (tmp_path / "free.svg").read_text().count("<circle") == 8


def test_the_use_of_a_link_that_changes_is_of_what_it_can_carry():
    """Both ways of a cable at half from the middle of a transfer on: the link is always full."""
    net = make_topology("pair", [0, 0], [(0, 1, 1e6, 0.0), (1, 0, 1e6, 0.0)], changes=[(0.5, 0, 5e5), (0.5, 1, 5e5)])
    timeline = run(net, shard=1_000_000)
    assert timeline.completion_s == pytest.approx(1.5)
    assert timeline.link_use == pytest.approx([1, 1])
    page = data(timeline)
    assert unpack(page["changes"]["at"], "f8").tolist() == [0.5, 0.5]
    assert unpack(page["changes"]["bandwidth"], "f8").tolist() == [5e5, 5e5]
