"""How a spec such as ``planner+refiner`` is read and run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from networks import ring
from stretto import planners
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.planners import Option, refiner, run_planner

NET = ring(3)
WORK = Workload((make_collective("allgather", NET, 30),))


@pytest.fixture
def _refiners(monkeypatch):
    """Two refiners that note their options in the plan."""
    planners.registered()
    monkeypatch.setattr(planners.registry, "_ENTRIES", dict(planners.registry._ENTRIES))
    for name in ("first", "second"):
        options = (Option("depth", int, 1, ""), Option(f"only_{name}", int, 0, ""))

        def note(plan, *, seed, time_limit_s, progress, name=name, **own):
            return replace(plan, meta={**plan.meta, name: {**own, "seed": seed}})

        refiner(name, collectives=("allgather",), topologies="any", paper="none", options=options)(note)


@pytest.mark.usefixtures("_refiners")
def test_each_option_goes_to_the_stages_that_declare_it():
    options = {"depth": "3", "only_second": "4", "rounds": 0}
    plan = run_planner("mtegcca+first+second", NET, WORK, seed=5, options=options)
    assert plan.meta["first"] == {"depth": 3, "seed": 5}
    assert plan.meta["second"] == {"depth": 3, "only_second": 4, "seed": 5}
    assert plan.meta["planner"] == "mtegcca+first+second"


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
    with pytest.raises(InputError, match="has no option 'width'; it has depth, "):
        run_planner("mtegcca+first", NET, WORK, options={"width": 1})


@pytest.mark.usefixtures("_refiners")
def test_a_refiner_refuses_the_collectives_that_it_does_not_serve():
    work = Workload((make_collective("broadcast", NET, 30),))
    with pytest.raises(Unsupported, match="first does not serve broadcast"):
        run_planner("mtegcca+first", NET, work)
