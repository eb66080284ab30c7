"""The solver layer: one model, several solvers, one answer."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.errors import InputError
from stretto.solvers import Model, solve


def knapsack() -> Model:
    """Most worth of 11, 20 and 5 within a weight of 7 for 3, 6 and 2: the first and the last twice."""
    model = Model()
    x = model.columns(3, 0, 2, [-11, -20, -5], integer=True)
    model.rows(1, -np.inf, 7, (0, x, [3, 6, 2]))
    return model


@pytest.mark.parametrize("solver", ["highs", "cp-sat", "cbc"])
def test_solvers_agree_on_the_optimum(solver):
    found = solve(knapsack(), solver=solver)
    assert (found.status, found.objective, found.gap) == ("optimal", -22.0, 0.0)
    assert found.x.tolist() == [2, 0, 0]
    assert (found.columns, found.rows) == (3, 1)


@pytest.mark.parametrize("solver", ["highs", "cp-sat", "cbc"])
def test_an_impossible_model_is_infeasible(solver):
    model = knapsack()
    model.rows(1, 8, np.inf, (0, np.arange(3), [3, 6, 2]))
    found = solve(model, solver=solver)
    assert (found.status, found.x, found.gap) == ("infeasible", None, None)


def test_entries_on_one_place_add_up():
    model = Model()
    x = model.columns(1, 0, 10, -1)
    model.rows(1, -np.inf, 6, (0, x, 1.0), (0, x, 2.0))
    assert solve(model).x.tolist() == [2.0]


def test_a_start_may_be_given_whether_feasible_or_not():
    model = Model()
    x = model.columns(4, integer=True)
    model.rows(1, 2, 2, (0, x, 1.0))
    for solver in ("highs", "cp-sat", "cbc"):
        for start in ([0, 1, 0, 1.0], [1, 1, 1, 1.0]):
            assert solve(model, solver=solver, first=True, start=np.array(start)).x.round().sum() == 2


def hard() -> Model:
    """Thirty knapsacks over sixty items, which take some seconds to solve."""
    rng = np.random.default_rng(1)
    model = Model()
    x = model.columns(60, cost=rng.integers(-99, -1, 60), integer=True)
    for _ in range(30):
        model.rows(1, -np.inf, 300, (0, x, rng.integers(1, 40, 60)))
    return model


def test_a_solver_that_gives_up_says_so():
    assert solve(hard(), time_limit_s=0.0).status in ("unknown", "feasible")


def test_what_cannot_be_solved_is_refused_by_name():
    with pytest.raises(InputError, match="no solver"):
        solve(knapsack(), solver="abacus")
    model = Model()
    model.columns(1, cost=0.5)
    with pytest.raises(InputError, match="integer columns"):
        solve(model, solver="cp-sat")


def test_gurobi_is_named_where_it_is_missing():
    pytest.importorskip("highspy")
    try:
        import gurobipy  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="Gurobi is not installed"):
            solve(knapsack(), solver="gurobi")


@pytest.mark.parametrize(("solver", "effort"), [("highs", 0.1), ("cp-sat", 1e-3)])
def test_a_search_limited_in_counted_work_ends_at_the_same_place(solver, effort):
    first, second = (solve(hard(), solver=solver, gap=0.0, effort=effort) for _ in range(2))
    assert first.status in ("unknown", "feasible")
    assert (first.status, first.objective, first.bound) == (second.status, second.objective, second.bound)


@pytest.mark.parametrize("solver", ["highs", "cp-sat"])
def test_a_solution_tells_the_effort_that_it_took(solver):
    solution = solve(hard(), solver=solver, gap=0.0, effort=0.1)
    assert 0 < solution.effort <= 0.2


def test_more_effort_gives_no_looser_bound():
    bounds = [solve(hard(), gap=0.0, effort=effort).bound for effort in (0.01, 0.1, 1.0)]
    assert bounds == sorted(bounds) and bounds[0] < bounds[-1]


def test_a_linear_program_is_limited_by_its_iterations():
    rng = np.random.default_rng(2)
    model = Model()
    x = model.columns(50, 0.0, np.inf, rng.random(50))
    for _ in range(50):
        model.rows(1, 1.0, np.inf, (0, x, rng.random(50)))
    assert solve(model, effort=0.0).status in ("unknown", "feasible")
    assert solve(model, effort=1.0).status == "optimal"


def test_an_interior_point_is_as_good_as_a_vertex():
    rng = np.random.default_rng(3)
    model = Model()
    x = model.columns(40, 0.0, np.inf, rng.random(40) + 0.1)
    for _ in range(60):
        model.rows(1, 1.0, np.inf, (0, x, rng.random(40)))
    assert model.entry_count == 60 * 40
    vertex, inside = solve(model), solve(model, interior=True)
    assert inside.status == "optimal"
    assert inside.objective == pytest.approx(vertex.objective, rel=1e-6)
    assert inside.effort == pytest.approx(solve(model, interior=True, effort=1.0).effort) and inside.effort > 0
    assert solve(model, interior=True, effort=0.0).status in ("unknown", "feasible")
