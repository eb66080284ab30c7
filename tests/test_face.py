"""The face of the package: ``import stretto as st``."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import stretto as st
from stretto.model.telemetry import Telemetry

OLD_PATHS = (
    "from stretto.topology import Topology, make_topology",
    "from stretto.collective import Collective, Workload, make_collective",
    "from stretto.demand import alltoallv, demand_of",
    "from stretto.workloads import expert_demand, uneven_allreduce, wan_workload",
    "from stretto.plan import Plan, Ragged, make_plan",
    "from stretto.replan import Replanned, replan",
    "from stretto.tuning import Range, Tuning, read_tuning, tune",
    "from stretto.verify import Finding, Verdict, verify",
    "from stretto.simulate import simulate",
    "from stretto.timeline import Timeline",
    "from stretto.telemetry import Telemetry",
    "from stretto.errors import InputError, StrettoError",
)
USE = """
import stretto as st
net = st.topology("ring:4")
plan = st.plan("allgather", net, size="4KB", planner="mtegcca")
assert st.verify(plan).ok and st.simulate(plan).completion_s > 0
assert all(callable(f) for f in (st.topology, st.collective, st.plan, st.verify, st.simulate))
assert st.collective("allgather", net, 4000).size_bytes == 4000
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def net() -> st.Topology:
    return st.topology("ndv2:2")


@pytest.fixture(scope="module")
def ring(net) -> st.Plan:
    return st.plan("allreduce", net, size="1MB", planner="ring")


@pytest.mark.parametrize("order", ["face first", "modules first", "one by one"])
def test_functions_of_the_face_and_modules_of_the_same_name_live_together(order):
    modules = "\n".join(OLD_PATHS)
    programs = {
        "face first": USE + modules + USE,
        "modules first": modules + USE + modules,
        "one by one": "\n".join(path + USE for path in OLD_PATHS),
    }
    run(programs[order])


@pytest.mark.parametrize("name", ["verify", "simulate", "topology", "collective", "plan", "replan"])
def test_a_name_of_the_face_is_its_function_after_its_module_was_imported(name):
    run(
        f"import stretto, sys, importlib\nmodule = importlib.import_module('stretto.{name}')\n"
        f"from stretto import {name}\nassert callable({name}) and stretto.{name} is {name}\n"
        f"import stretto.{name}\nassert stretto.{name} is {name} and sys.modules['stretto.{name}'] is module"
    )


def test_a_moved_module_is_the_module_that_it_names_today():
    run(
        "import stretto.topology, stretto.model.topology, sys\n"
        "new = sys.modules['stretto.model.topology']\nassert sys.modules['stretto.topology'] is new\n"
        "assert new.__spec__.name == new.__name__ == 'stretto.model.topology'"
    )


def test_importing_the_package_imports_nothing_else():
    slow = "('numpy', 'numba', 'pandas', 'pyarrow', 'typer')"
    assert run(f"import sys, stretto\nprint([m for m in {slow} if m in sys.modules])") == "[]\n"
    assert (
        run("import sys, stretto as st\nst.plan\nprint([m for m in ('pandas', 'numba', 'typer') if m in sys.modules])")
        == "[]\n"
    )


def test_the_face_is_listed_for_completion():
    assert {"plan", "topology", "compare", "load", "Plan", "InputError"} <= set(dir(st))
    assert all(getattr(st, name) for name in st.__all__)
    assert not hasattr(st, "oracle")
    assert st.errors.InputError is st.InputError


def test_a_topology_is_a_spec_a_file_an_object_or_itself(tmp_path, net):
    links = [{"src": a, "dst": 1 - a, "bandwidth_GBps": 1, "latency_us": 1} for a in (0, 1)]
    pair = {"nodes": [{"id": 0}, {"id": 1}], "links": links}
    path = tmp_path / "net.json"
    path.write_text(json.dumps(pair))
    assert st.topology(path).link_count == st.topology(str(path)).link_count == 2
    assert st.topology(pair).bandwidth.tolist() == [1e9, 1e9]
    assert st.topology(net) is net
    assert (
        st.topology("ring:4", bandwidth="25GB/s").bandwidth[0] == st.topology("ring:4?bandwidth=25e9B/s").bandwidth[0]
    )
    assert st.topology("ring:4?latency=1us", bandwidth=25e9).bandwidth[0] == 25e9
    from stretto.topologies import load_topology

    plain = load_topology("ring:4")
    assert isinstance(st.topology(plain), st.Topology) and st.topology(plain).src is plain.src


def test_sizes_are_text_or_numbers(net):
    sizes = [
        st.collective("allreduce", net, size).size_bytes for size in ("64MB", 64_000_000, 6.4e7, np.int64(64_000_000))
    ]
    assert sizes == [64_000_000] * 4
    assert st.collective("allgather", net, shard="1MB").size_bytes == 16_000_000


def test_several_collectives_and_ranks_by_name_or_number():
    net = st.topology("fullmesh:4")
    by_text = st.plan("allreduce,allgather", net, "4KB", planner="shortest-path")
    by_list = st.plan(["allreduce", st.collective("allgather", net, 4000)], net, 4000, planner="shortest-path")
    assert by_text.digest() == by_list.digest()
    assert st.workload("allgather", net, "4KB", ranks=["gpu1", "gpu3"]).collectives[0].ranks.tolist() == [1, 3]
    assert st.workload("broadcast", net, "4KB", ranks=[3, 1], root=1).collectives[0].root == 1
    assert st.workload("alltoallv", net, demand=np.full((4, 4), 8)).collectives[0].size_bytes == 32


def test_a_plan_answers_and_is_kept(ring, tmp_path):
    assert ring.verify() and st.verify(ring).ok
    assert ring.simulate().completion_s == st.simulate(ring).completion_s >= ring.bound().seconds
    assert st.bound(ring) == st.bound("allreduce", ring.topology, "1MB") == ring.bound()
    for name in ("plan.json", "plan.parquet"):
        ring.save(tmp_path / name)
        again = st.load(tmp_path / name)
        assert isinstance(again, st.Plan) and again.digest() == ring.digest()
    for name, start in (("page.html", "<!doctype html>"), ("picture.svg", "<svg")):
        ring.report(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)


def test_a_plan_of_the_planners_is_taken_by_the_functions_of_the_face(net):
    from stretto.planners import run_planner

    plain = run_planner("ring", net, st.workload("allreduce", net, "1MB"))
    assert st.verify(plain).ok and st.simulate(plain).completion_s >= st.bound(plain).seconds
    assert st.compare([plain])[0]["planner"] == "ring"


def test_a_wrong_plan_says_so(ring, tmp_path):
    from dataclasses import replace

    wrong = replace(ring, chunk=np.zeros_like(ring.chunk))
    assert isinstance(wrong, st.Plan) and not wrong.verify()
    assert "not correct" in repr(wrong.verify()) and "not correct" in wrong._repr_html_()
    with pytest.raises(st.StrettoError, match="not correct"):
        wrong.report(tmp_path / "page.html")


def test_a_plan_as_a_table(ring):
    table = ring.to_pandas()
    assert len(table) == len(ring.dst.values)
    assert table["arrival_s"].max() == pytest.approx(ring.simulate().completion_s)
    assert {"transfer", "chunk", "op", "src", "dst", "size_bytes", "route", "depends", "start_s"} <= set(table.columns)


def test_a_comparison_is_a_table(net):
    import pandas

    table = st.compare("allreduce", net, size=["1MB", 2_000_000], planner="ring,milp-allgather")
    assert len(table) == 4 and [row["size_bytes"] for row in table] == [10**6, 10**6, 2 * 10**6, 2 * 10**6]
    frame = pandas.DataFrame(table)
    assert frame.equals(table.to_pandas())
    assert frame["failed"].notna().tolist() == [False, True, False, True]
    assert [plan is None for plan in table.plans] == [False, True, False, True]
    assert "no plan by milp-allgather: milp-allgather does not serve allreduce" in repr(table)
    assert "<table>" in table._repr_html_()
    assert st.compare("allgather", net, shard="1MB", planner="ring", chunks=[1, 2])[1]["chunks"] == 2


def test_without_pandas_a_table_says_what_to_install(ring, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(st.StrettoError, match=r"pip install 'stretto\[pandas\]'"):
        ring.to_pandas()


@pytest.mark.parametrize("spec", ["ndv2:2", "optical:8,2", "zoo:Abilene", "fattree:4"])
def test_what_is_shown_is_short_and_well_formed(spec):
    net = st.topology(spec)
    planner = "pairwise+swot" if net.planes else "scale-ccl"
    plan = st.plan("alltoall", net, shard="64KB", planner=planner)
    shown = [
        net,
        plan,
        plan.verify(),
        plan.simulate(),
        plan.bound(),
        plan.workload,
        plan.workload.collectives[0],
        plan.turns,
    ]
    for value in (*shown, *net.planes):
        assert repr(value).startswith("<") and len(repr(value)) < 400 and repr(value).count("\n") < 4
    for value in (net, plan, st.compare([plan])):
        page = ElementTree.fromstring(f"<div>{value._repr_html_()}</div>")
        assert "".join(page.itertext()).strip()
    assert ("<svg" in net._repr_html_()) and len(net._repr_html_()) < 60_000
    assert ("<svg" in plan._repr_html_()) and len(plan._repr_html_()) < 60_000


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (lambda: st.topology("rign:4"), "did you mean ring"),
        (lambda: st.plan("allgatter", "ring:4", "1KB"), "did you mean allgather"),
        (lambda: st.plan("allgather", "ring:4"), "size of the full buffer or one rank's shard"),
        (lambda: st.plan("allgather", "ring:4", "much"), "not a size"),
        (lambda: st.plan("allgather", "ring:4", "1KB", ranks=["gpu9", "gpu1"]), "no node 'gpu9'"),
        (lambda: st.plan("alltoallv", "ring:4", "1KB"), "needs a matrix"),
        (lambda: st.plan("alltoall", "ring:4", demand=np.eye(4)), "has no matrix"),
        (lambda: st.plan("allgather", "ring:4", "1KB", planner="oracle"), "no planner 'oracle'"),
        (lambda: st.plan("allgather", "ring:4", "1KB", planner="ring", options={"x": 1}), "no option 'x'"),
        (lambda: st.plan("allgather", "ring:4", "1KB", time_limit="soon"), "not a time"),
        (lambda: st.plan("allgather", "ring:4", "1KB", effort="heroic"), "of effort"),
        (lambda: st.load("none.parquet"), "cannot be read"),
        (lambda: st.bound("allgather"), "give the topology"),
    ],
)  # fmt: skip
def test_an_error_names_what_is_wrong_and_no_flag(request_, words):
    with pytest.raises(st.InputError, match=words) as caught:
        request_()
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "request_"),
    [
        (["allreduce", "-t", "ndv2:2", "--size", "1MB"], lambda: st.plan("allreduce", "ndv2:2", size="1MB")),
        (
            ["allgather,broadcast", "-t", "ring:6", "--shard", "4KB", "--chunks", "2", "--root", "3", "-p", "shortest-path"],
            lambda: st.plan("allgather,broadcast", "ring:6", shard=4000, chunks=2, root=3, planner="shortest-path"),
        ),
        (
            ["allgather", "-t", "dgx1", "--shard", "1MB", "-p", "mtegcca", "--option", "tree=nearest", "--seed", "5"],
            lambda: st.plan("allgather", "dgx1", shard="1MB", planner="mtegcca", options={"tree": "nearest"}, seed=5),
        ),
    ],
)  # fmt: skip
def test_the_command_line_and_the_library_make_the_same_plan(command, request_, tmp_path):
    from typer.testing import CliRunner

    from stretto.cli import app

    path = tmp_path / "plan.json"
    done = CliRunner().invoke(app, ["plan", *command, "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert st.load(path).digest() == request_().digest()


def test_news_of_a_network_are_a_file_what_it_holds_or_telemetry(tmp_path):
    plan = st.plan("allgather", "ring:4", shard="1MB", planner="mtegcca")
    news = {"at": "10us", "links": [{"src": "gpu0", "dst": "gpu1", "bandwidth": "1GB/s"}]}
    (tmp_path / "news.json").write_text(json.dumps(news))
    (slow,) = np.flatnonzero((plan.topology.src == 0) & (plan.topology.dst == 1))
    given = (tmp_path / "news.json", news, Telemetry(at_s=1e-5, bandwidth={int(slow): 1e9}))
    rests = [st.replan(plan, each).plan for each in given]
    assert len({rest.digest() for rest in rests}) == 1
    assert rests[0].verify() and rests[0].topology.bandwidth[slow] == 1e9
    assert st.replan(plan, news, at=plan.simulate().completion_s).plan is None
    with pytest.raises(st.InputError, match="there is no node 'x'"):
        st.replan(plan, {"down": ["x"]})
