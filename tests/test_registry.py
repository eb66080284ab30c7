"""How a spec such as ``planner+refiner`` is read and run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from networks import ring
from stretto import planners
from stretto.choose.replan import replan
from stretto.choose.tuning import read_tuning, to_json, tune
from stretto.cli import app
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.telemetry import Telemetry
from stretto.planners import Option, find, refiner, run_planner
from stretto.topologies import load_topology
from stretto.verify import verify

NET = ring(3)
WORK = Workload((make_collective("allgather", NET, 30),))


@pytest.fixture
def _refiners(monkeypatch):
    """Two refiners that note their options in the plan."""
    planners.registered()
    monkeypatch.setattr(planners.registry, "_ENTRIES", dict(planners.registry._ENTRIES))
    for name in ("first", "second"):
        options = (Option("depth", int, 1, ""), Option(f"only_{name}", int, 0, ""))

        def note(plan, request, *, name=name, **values):
            return replace(plan, meta={**plan.meta, name: {**values, "seed": request.seed}})

        refiner(name, collectives=("allgather",), topologies="any", paper="none", options=options)(note)


@pytest.mark.usefixtures("_refiners")
def test_each_option_goes_to_the_stages_that_declare_it():
    options = {"depth": "3", "only_second": "4", "rounds": 0}
    plan = run_planner("mtegcca+first+second", NET, WORK, seed=5, options=options)
    assert plan.meta["first"] == {"depth": 3, "seed": 5}
    assert plan.meta["second"] == {"depth": 3, "only_second": 4, "seed": 5}
    assert plan.meta["planner"] == "mtegcca+first+second"


def test_a_whole_number_is_as_good_as_the_real_one_that_an_option_is():
    # else kernels would be compiled again for it
    plans = [run_planner("scale-ccl", NET, WORK, options={"rules": "paper", "occupancy": w}) for w in (1, 1.0, "1")]
    assert [type(plan.meta["options"]["occupancy"]) for plan in plans] == [float] * 3


@pytest.mark.usefixtures("_refiners")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("first", "first refines a plan; name a planner before it"),
        ("mtegcca+mtegcca", "mtegcca is a planner; only refiners come after"),
        ("mtegcca+third", "there is no planner 'third'"),
    ],
)
def test_a_spec_in_the_wrong_order_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        run_planner(spec, NET, WORK)


@pytest.mark.usefixtures("_refiners")
def test_an_option_of_no_stage_is_refused():
    with pytest.raises(InputError, match=r"has no option 'width'; did you mean depth\?"):
        run_planner("mtegcca+first", NET, WORK, options={"width": 1})


@pytest.mark.usefixtures("_refiners")
def test_a_refiner_refuses_the_collectives_that_it_does_not_serve():
    work = Workload((make_collective("broadcast", NET, 30),))
    with pytest.raises(Unsupported, match="first does not serve broadcast"):
        run_planner("mtegcca+first", NET, work)


STAR = """
from stretto.model.arrays import Ragged
from stretto.model.plan import make_plan
from stretto.planners import Candidate, Request, per_delivery, refiner, register

@register("star", collectives=("broadcast",), topologies="a link to each rank", paper="none",
          auto=Candidate(per_delivery(0)), tune=5)
def star(request: Request):
    '''Straight from the root.'''
    links = [i for i, a in enumerate(request.topology.src) if a == 0]
    return make_plan(request.topology, request.workload, "ready-order", chunk=[0] * len(links), src=[0] * len(links),
                     dst=Ragged.single(request.topology.dst[links]), route=Ragged.single(links),
                     depends=Ragged.empty(len(links)))

@refiner("same", collectives=("broadcast", "allgather"), topologies="any", paper="none")
def same(plan, request: Request):
    '''Nothing else.'''
    return plan
"""
SPOKES = load_topology("fullmesh:4")
SPREAD = Workload((make_collective("broadcast", SPOKES, 3000),))


@pytest.fixture
def file(monkeypatch, tmp_path):
    """A file in the working directory that registers a planner and a refiner."""
    planners.registered()
    monkeypatch.setattr(planners.registry, "_ENTRIES", dict(planners.registry._ENTRIES))
    monkeypatch.setattr(planners.registry, "_FILES", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(STAR)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("spec", ["mine.py:star", "mine.py:star+mine.py:same", "shortest-path+mine.py:same"])
def test_a_planner_and_a_refiner_in_a_file_of_their_own_are_run(file, spec):
    plan = run_planner(spec, SPOKES, SPREAD)
    assert verify(plan).ok
    assert plan.meta["planner"] == spec
    assert run_planner(spec.replace("mine.py", str(file)), SPOKES, SPREAD).digest() == plan.digest()


def test_planning_does_not_count_the_time_in_which_code_is_loaded(file):
    slow = "    from stretto.kernels import LOADING\n    LOADING.wall_s += 1000.0\n    links ="
    file.write_text(STAR.replace("    links =", slow, 1))
    plan = run_planner(f"{file}:star", SPOKES, SPREAD)
    assert plan.meta["loading_s"] == pytest.approx(1000.0)
    assert plan.meta["planning_s"] < -900


def test_auto_asks_a_planner_in_a_file_once_it_is_imported(file):
    find("mine.py:star")
    assert run_planner("auto", SPOKES, SPREAD).meta["chosen"] == "star"


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        (STAR, "yours.py:star", "yours.py: there is no such file"),
        (STAR, "mine.py:sun", "mine.py: it registers no planner 'sun'; it registers star, same"),
        (STAR, "mine.py", "name a planner in it, mine.py:NAME"),
        ("x = 1", "mine.py:star", "mine.py: it registers no planner; decorate a function"),
        ("import nothing_like_this", "mine.py:star", "mine.py: it cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(0)", "mine.py:star", "it cannot be imported: SystemExit"),
        (STAR.replace('"star"', '"ring"'), "mine.py:ring", "two planners are called 'ring'"),
        (STAR + "1 / 0", "mine.py:star", "ZeroDivisionError"),
    ],
)
def test_a_file_without_the_planner_is_refused(file, text, spec, message):
    file.write_text(text)
    before = set(planners.registered())
    with pytest.raises(InputError, match=message):
        run_planner(spec, SPOKES, SPREAD)
    if spec != "mine.py:sun":
        assert set(planners.registered()) == before


def test_the_command_line_takes_a_planner_in_a_file(file):
    command = ["compare", "broadcast", "-t", "fullmesh:4", "--size", "3KB", "-p", "auto,mine.py:star", "--json"]
    rows = json.loads(CliRunner().invoke(app, command).stdout)["rows"]
    # files are imported before the first plan, so the order of -p does not matter
    assert [(row["planner"], row.get("chosen")) for row in rows] == [("auto", "star"), ("mine.py:star", None)]
    tuned = CliRunner().invoke(app, ["tune", "broadcast", "-t", "fullmesh:4", "-p", "mine.py:star,ring", "--json"])
    assert {r["planner"] for r in json.loads(tuned.stdout)["ranges"]} == {"mine.py:star"}


def test_data_does_not_import_files(file, tmp_path):
    plan = run_planner("shortest-path", SPOKES, SPREAD)
    again = replan(replace(plan, meta={"planner": "mine.py:star"}), Telemetry())
    assert again.plan.meta["planner"] == "auto"
    table = to_json(tune("fullmesh:4", ["broadcast"], [1000], planners=["ring", "shortest-path"]))
    table["ranges"][0]["planner"] = "mine.py:star"
    (tmp_path / "table.json").write_text(json.dumps(table))
    with pytest.raises(InputError, match="can only name planners of packages"):
        read_tuning(str(tmp_path / "table.json"))
    assert "star" not in planners.registered()


def test_these_planners_are_asked_by_default():
    asked = {role: {entry.name for entry in planners.asked_by(role)} for role in ("auto", "tune", "library")}
    both = {"scale-ccl", "mtegcca", "forest", "swot", "birkhoff", "shortest-path"}
    assert asked["tune"] == both | {"ring", "pairwise", "nccl-tree"}
    assert asked["auto"] == both | {
        "greedy",
        "paths",
        "bundles",
        "by-sites",
        "contributions",
        "switch-trees",
        "by-dimension",
        "hierarchical",
        "jobs",
        "rounds",
        "rs-ag",
        "symmetric",
    }
    algorithms = {"all-pairs", "ring", "recursive-doubling", "rabenseifner", "binomial"}
    assert asked["library"] == {"symmetric", "shortest-path", "swot", *algorithms}


def test_one_fixed_algorithm_and_the_library_load_no_planners_that_they_do_not_ask():
    program = (
        "import sys\nfrom stretto.planners import asked_by, find, registered\n"
        "found = find('ring').name,\n"
        "print('stretto.planners.symmetric' in sys.modules)\n"
        "found = *found, {e.name for e in asked_by('library')}\n"
        "print('stretto.planners.forest' in sys.modules)\n"
        "registered()\n"
        "print(found == ('ring', {e.name for e in asked_by('library')}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_planners_that_are_asked_together_have_places_of_their_own():
    for role in ("tune", "library"):
        entries = planners.asked_by(role)
        places = [getattr(e, role) for e in entries]
        assert places == sorted(set(places))
        assert entries


def test_no_list_of_planners_stands_outside_the_registry():
    """Studies of papers are data of those papers, and a planner's own folder says what it is made of."""
    source = Path(planners.__file__).parents[1]
    names = set(planners.registered())
    for file in source.rglob("*.py"):
        part = file.relative_to(source).parts
        if part[0] == "studies" or (part[0] == "planners" and len(part) > 2):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                values = node.keys if isinstance(node, ast.Dict) else node.elts
                listed = [v.value for v in values if isinstance(v, ast.Constant) and v.value in names]
                assert len(listed) < 2, (file, listed)


@pytest.mark.usefixtures("_refiners")
def test_a_planner_that_returns_no_plan_is_named():
    @planners.register("forgetful", collectives=("allgather",), topologies="any", paper="none")
    def forgetful(request):
        """Returns nothing."""

    with pytest.raises(InputError, match="forgetful returned NoneType, not a plan"):
        run_planner("forgetful", NET, Workload((make_collective("allgather", NET, 300),)))


@pytest.mark.usefixtures("_refiners")
def test_what_is_registered_as_none_is_as_if_not_given():
    depth = Option("depth", int, 1, "")

    @refiner(
        "plain", collectives=("allgather",), topologies="any", paper="none", serves=None, transfers=None,
        options=[depth], alone=["ring"],
    )  # fmt: skip
    def plain(plan, request, *, depth=1):
        """Nothing else."""
        return plan

    assert verify(run_planner("plain", NET, WORK)).ok
    assert (find("plain").alone, find("plain").options) == (("ring",), (depth,))


@pytest.mark.parametrize(("word", "hint"), [("serve", r"did you mean serves\?"), ("run", "'run'; there are exact, ")])
def test_a_field_that_there_is_not_is_refused_where_it_is_given(word, hint):
    with pytest.raises(TypeError, match=hint):
        planners.register("misspelt", collectives=("allgather",), topologies="any", paper="none", **{word: None})
