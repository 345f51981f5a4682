"""The global route of step 3: what it gives to the solver, and what it believes of the answer."""

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
import pytest

import igpe
from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.global_solver import centred, centred_bounds, from_centred, to_centred
from igpe.core.box import Box
from igpe.solvers.base import Answer, solve_confirmed

GAS = 8.314  # J/(mol K)
TRUTH = np.array([3e7, 6e4])  # 1/s, J/mol


def regression(predict: Any, box: Box, truth: np.ndarray, noise: float = 0.03) -> Regression:
    """Values of predict(u, p) at 300 to 400 with relative noise."""
    u, p = ca.SX.sym("u", 1), ca.SX.sym("p", len(box))
    function = ca.Function("f", [u, p], [predict(u, p)])
    places = np.linspace(300.0, 400.0, 12)[None]
    exact = np.array([float(function(t, truth)) for t in places[0]])
    values = exact * (1 + noise * np.random.default_rng(1).normal(size=len(exact)))
    weight = np.full(len(values), 1 / np.std(values))
    return Regression(box, (Contribution(function, places, None, values, weight),), "test", False)


def arrhenius(lower: float = 0.0, upper: float = 1e10) -> Regression:
    box = Box(("k", "E"), np.array([lower, 1e4]), np.array([upper, 1.2e5]))
    return regression(lambda u, p: p[0] * ca.exp(-p[1] / (GAS * u)), box, TRUTH)


def test_a_rate_constant_at_infinite_temperature_is_proved_in_seconds() -> None:
    """As written, the bound is still 0 after 20 s and 20000 nodes."""
    found = igpe.algebraic.GlobalSolver(time_limit=20.0).estimate(arrhenius())
    assert found.estimate.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.estimate.gap == pytest.approx(0.0, abs=1e-3)
    assert found.estimate.parameters["E"] == pytest.approx(TRUTH[1], rel=0.02)


def test_the_box_of_the_rate_constant_still_binds() -> None:
    """With k below its free optimum the best point lies on that bound."""
    one = arrhenius(upper=1e7)
    found = igpe.algebraic.GlobalSolver(time_limit=20.0).estimate(one)
    assert found.estimate.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.estimate.parameters["k"] == pytest.approx(1e7, rel=1e-6)
    free = igpe.algebraic.GlobalSolver(time_limit=20.0).estimate(arrhenius())
    assert found.estimate.lower_bound > free.estimate.objective


def test_centred_residuals_are_the_same_in_other_parameters() -> None:
    one = arrhenius()
    p, residual = one.symbolic()
    new, centrings = centred(residual, p, one.box, TRUTH)
    assert [(c.factor, c.energy) for c in centrings] == [(0, 1)]
    before, after = ca.Function("a", [p], [residual]), ca.Function("b", [p], [new])
    low, high = centred_bounds(centrings, one.box)
    for point in one.box.sobol(8, 1):
        moved = to_centred(centrings, point)
        assert np.array(after(moved)) == pytest.approx(np.array(before(point)), rel=1e-8)
        assert from_centred(centrings, moved) == pytest.approx(point, rel=1e-12)
        assert ((low <= moved) & (moved <= high)).all()


@pytest.mark.parametrize(
    "predict",
    [
        lambda u, p: p[0] * ca.exp(-p[1] / (GAS * u)) + 1e-3 * p[0],  # k also alone
        lambda u, p: p[0] ** 2 * ca.exp(-p[1] / (GAS * u)),  # as a square
        lambda u, p: p[0] * ca.exp(-p[1] / (GAS * u)) + ca.exp(-p[1] / (GAS * u)),  # E also alone
        lambda u, p: p[0] * p[1] / u,  # no exponential
        lambda u, p: p[0] * ca.exp(-p[0] * p[1] / u),  # nor one that is linear
    ],
)
def test_where_it_would_not_be_exact_nothing_is_centred(predict: Any) -> None:
    box = Box(("k", "E"), np.array([0.5, 1e3]), np.array([2.0, 5e3]))
    p, residual = regression(predict, box, np.array([1.0, 2e3])).symbolic()
    new, centrings = centred(residual, p, box, np.array([1.0, 2e3]))
    assert centrings == []
    assert new is residual


def test_two_reactions_are_centred_apart() -> None:
    def predict(u: Any, p: Any) -> Any:
        return p[0] * ca.exp(-p[1] / u) - p[2] * ca.exp(-p[3] / u)

    box = Box(tuple("aEbF"), np.array([0.0, 1e3, 0.0, 1e3]), np.array([1e4, 9e3, 1e4, 9e3]))
    truth = np.array([1e3, 3e3, 1e3, 4e3])
    p, residual = regression(predict, box, truth).symbolic()
    _, centrings = centred(residual, p, box, truth)
    assert sorted((c.factor, c.energy) for c in centrings) == [(0, 1), (2, 3)]


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
    found = igpe.algebraic.GlobalSolver(solver=wrong, witness=wrong).estimate(arrhenius())
    assert found.estimate.lower_bound <= found.estimate.objective


def test_a_gap_that_is_open_after_all_is_not_called_closed() -> None:
    wide = Says(Answer(CLOSED, 1.0, 0.2))
    found = igpe.algebraic.GlobalSolver(solver=wide, witness=wide).estimate(arrhenius())
    assert found.estimate.status is igpe.Status.BEST_OF_SEVERAL
    assert found.estimate.gap == pytest.approx(0.8, rel=1e-3)


def test_where_the_solver_fails_the_local_search_answers() -> None:
    missing = igpe.solvers.AmplProgram("no-such-solver")
    found = igpe.algebraic.GlobalSolver(solver=missing, witness=missing).estimate(arrhenius())
    assert found.estimate.status is igpe.Status.BEST_OF_SEVERAL
    assert found.estimate.lower_bound == -np.inf
    assert missing.install in found.estimate.method


def test_a_limit_on_nodes_leaves_the_bound_that_was_reached() -> None:
    few = igpe.solvers.Scip(feasibility=1e-7, options=(("limits/nodes", 1),))
    found = igpe.algebraic.GlobalSolver(solver=few).estimate(arrhenius())
    assert found.estimate.status is igpe.Status.ITERATION_LIMIT
    assert 0.0 <= found.estimate.lower_bound < found.estimate.objective
