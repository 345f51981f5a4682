"""The global route of step 3: what it gives to the solver, and what it believes of the answer."""

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe
from igpe.algebraic.base import Contribution, Regression
from igpe.core.box import Box
from igpe.solvers.base import Answer, solve_confirmed

TRUTH = np.array([2.0, 0.5])


def michaelis(upper: float = 10.0) -> Regression:
    """Values of a u / (b + u) with noise."""
    u, p = ca.SX.sym("u", 1), ca.SX.sym("p", 2)
    function = ca.Function("f", [u, p], [p[0] * u / (p[1] + u)])
    places = np.linspace(0.1, 4.0, 12)[None]
    exact = np.array([float(function(t, TRUTH)) for t in places[0]])
    values = exact * (1 + 0.03 * np.random.default_rng(1).normal(size=len(exact)))
    weight = np.full(len(values), 1 / np.std(values))
    box = Box(("a", "b"), np.array([0.0, 0.01]), np.array([upper, 10.0]))
    return Regression(box, (Contribution(function, places, None, values, weight),), "test", False)


def test_a_gap_is_closed_inside_the_bounds() -> None:
    """With a below its free optimum the best point lies on that bound."""
    free, bound = (igpe.algebraic.GlobalSolver().estimate(michaelis(u)) for u in (10.0, 1.8))
    for found in (free, bound):
        assert found.estimate.status is igpe.Status.OPTIMAL_WITHIN_GAP
        assert found.estimate.gap == pytest.approx(0.0, abs=1e-3)
    assert free.estimate.parameters["b"] == pytest.approx(TRUTH[1], rel=0.1)
    assert bound.estimate.parameters["a"] == pytest.approx(1.8, rel=1e-6)
    assert bound.estimate.lower_bound > free.estimate.objective


@dataclass
class Says:
    """A solver with prepared answers; keeps the time limits it was given."""

    answer: Answer
    limits: list[float | None] = field(default_factory=list)
    install: str = "never missing"

    def available(self) -> bool:
        return True

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        self.limits.append(time_limit)
        return self.answer


CLOSED = igpe.Status.OPTIMAL_WITHIN_GAP


def test_a_closed_gap_is_as_good_as_the_weaker_of_two_bounds() -> None:
    one, other = Says(Answer(CLOSED, 2.0, 1.9)), Says(Answer(CLOSED, 1.5, 1.4))
    for first, second in ((one, other), (other, one)):
        both = solve_confirmed(first, second, pyo.ConcreteModel(), 10.0)
        assert (both.status, both.objective, both.lower_bound) == (CLOSED, 1.5, 1.4)


def test_a_witness_that_does_not_close_the_gap_leaves_it_open() -> None:
    slow = Says(Answer(igpe.Status.TIME_LIMIT, np.nan, 0.5))
    both = solve_confirmed(Says(Answer(CLOSED, 2.0, 1.9)), slow, pyo.ConcreteModel(), None)
    assert (both.status, both.lower_bound) == (igpe.Status.TIME_LIMIT, 0.5)
    assert slow.limits == [None]


def test_an_open_gap_needs_no_witness() -> None:
    witness = Says(Answer(CLOSED))
    answer = Answer(igpe.Status.TIME_LIMIT, 2.0, 1.0)
    assert solve_confirmed(Says(answer), witness, pyo.ConcreteModel(), 5.0) == answer
    assert witness.limits == []


def test_a_bound_above_the_incumbent_is_not_believed() -> None:
    wrong = Says(Answer(CLOSED, 1.0, 5.0))
    found = igpe.algebraic.GlobalSolver(solver=wrong, witness=wrong).estimate(michaelis())
    assert found.estimate.lower_bound <= found.estimate.objective


def test_a_gap_that_is_open_after_all_is_not_called_closed() -> None:
    wide = Says(Answer(CLOSED, 1.0, 0.2))
    found = igpe.algebraic.GlobalSolver(solver=wide, witness=wide).estimate(michaelis())
    assert found.estimate.status is igpe.Status.BEST_OF_SEVERAL
    assert found.estimate.gap == pytest.approx(0.8, rel=1e-3)


def test_where_the_solver_fails_the_local_search_answers() -> None:
    missing = igpe.solvers.AmplProgram("no-such-solver")
    found = igpe.algebraic.GlobalSolver(solver=missing, witness=missing).estimate(michaelis())
    assert found.estimate.status is igpe.Status.BEST_OF_SEVERAL
    assert found.estimate.lower_bound == -np.inf
    assert missing.install in found.estimate.method


def test_a_limit_on_nodes_leaves_the_bound_that_was_reached() -> None:
    few = igpe.solvers.Scip(feasibility=1e-7, options=(("limits/nodes", 1),))
    found = igpe.algebraic.GlobalSolver(solver=few).estimate(michaelis())
    assert found.estimate.status is igpe.Status.ITERATION_LIMIT
    assert 0.0 <= found.estimate.lower_bound < found.estimate.objective


def test_a_condition_on_a_measured_state_is_estimated_without_a_solver() -> None:
    """Drying: the rate is constant until a critical moisture, which is unknown."""

    def model(times: Any) -> Any:
        m = over_time(times, "X", R=(0, 2), Xc=(0.1, 3))
        m.drying = pyo.Constraint(
            m.t,
            rule=lambda m, t: m.dX[t] == -pyo.Expr_if(m.X[t] > m.Xc, m.R, m.R * m.X[t] / m.Xc),
        )
        return m

    times = np.linspace(0, 60, 25)
    exact = np.where(times < 25, 3 - 0.08 * times, np.exp(-0.08 * (times - 25)))
    table = pd.DataFrame({"time": times, "X": exact + 0.01 * np.sin(7.0 * np.arange(25))})
    run = igpe.Experiment(table, start={"X": 3.0}, sigma=0.01)
    result = igpe.estimate(igpe.Problem(model, parameters=["R", "Xc"], experiments=run))
    assert result.parameters == pytest.approx({"R": 0.08, "Xc": 1.0}, rel=0.05)
    assert "nothing is proved" in str(result.details)
