"""Slopes and algebraic variables by elimination are those of a numerical solution."""

import pickle

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from scipy.optimize import fsolve
from zoo import every_case

from igpe.equations.compiled import compiled
from igpe.equations.elimination import LARGEST_SYMBOLIC, AtPoint, solve_all, solve_for
from igpe.equations.symbols import stack
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


@every_case
def test_the_residual_vanishes_at_what_elimination_says(case):
    problem = case.problem()
    system = compiled(problem).systems[0]
    solved = solve_all(system.residual, system.unknowns)
    y = stack(system.unknowns[j] for j in solved.implicit)
    inserted = ca.substitute(system.residual, system.unknowns, stack(solved.expressions))
    symbols = system.symbols
    known = [symbols.t, symbols.x, symbols.u, symbols.p, symbols.s]
    function = ca.Function("r", [*known, y], [inserted, solved.remaining])
    random = np.random.default_rng(3)
    point = [random.uniform(0.5, 1.5, v.shape) for v in known]

    def remaining(values):
        return np.asarray(function(*point, values)[1]).ravel()

    implicit = fsolve(remaining, np.ones(y.numel()), xtol=1e-13) if y.numel() else np.zeros(0)
    residual = np.asarray(function(*point, implicit)[0]).ravel()
    assert residual == pytest.approx(np.zeros(len(residual)), abs=1e-11)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_linear_blocks_up_to_the_limit_are_solved_by_symbols(n):
    random = np.random.default_rng(n)
    matrix, right = random.normal(size=(n, n)) + 3 * np.eye(n), random.normal(size=n)
    x = ca.SX.sym("x", n)
    solved = solve_all(ca.DM(matrix) @ x - ca.DM(right), x)
    if n > LARGEST_SYMBOLIC:
        assert sorted(solved.implicit) == list(range(n))
        return
    assert solved.implicit == ()
    found = np.asarray(ca.evalf(stack(solved.expressions))).ravel()
    assert found == pytest.approx(np.linalg.solve(matrix, right), rel=1e-12)


def test_a_chain_is_solved_in_order_and_a_part_alone():
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p")
    residual = ca.vertcat(x[2] - x[0] * x[1], x[0] - p, x[1] - 2 * x[0] ** 2)
    solved = solve_all(residual, x)
    function = ca.Function("f", [p], [stack(solved.expressions)])
    assert np.asarray(function(3.0)).ravel() == pytest.approx([3.0, 18.0, 54.0])
    part = solve_for(residual, x, [1, 2], [1, 0])
    assert np.asarray(ca.Function("f", [p], [stack(part.expressions)])(3.0)).ravel().tolist() == [
        18.0,
        3.0,
    ]


def test_a_nonlinear_equation_stays_implicit_and_what_needs_it_uses_its_unknown():
    x = ca.SX.sym("x", 2)
    solved = solve_all(ca.vertcat(x[0] ** 3 + x[0] - 10, x[1] - 5 * x[0]), x)
    assert solved.implicit == (0,)
    assert ca.is_equal(solved.expressions[0], x[0])
    assert float(ca.Function("f", [x[0]], [solved.expressions[1]])(2.0)) == 10.0
    assert float(ca.Function("f", [x[0]], [solved.remaining])(2.0)) == 0.0


def test_a_difference_quotient_is_eliminated_from_what_stays_implicit():
    """Its neighbour may tell one root from another by bounds or value: only that one is left."""
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p")
    slope, value, other = x[0], x[1], x[2]
    residual = ca.vertcat(2 * slope - (value - 1), p * slope + value**3 - other, other - value**2)
    assert len(solve_all(residual, x).implicit) == 3
    assert solve_all(residual, x, {0}).implicit == (1, 2)
    solved = solve_all(residual, x, {0, 2})
    assert solved.implicit == (1,)
    at = ca.Function("f", [x, p], [stack(solved.expressions), solved.remaining])
    expressions, remaining = at([0.0, 3.0, 0.0], 2.0)
    assert np.asarray(expressions).ravel().tolist() == [1.0, 3.0, 9.0]
    assert float(remaining) == 2.0 * 1.0 + 27.0 - 9.0


def coupled(times):
    """Two slopes that stand in both equations."""
    m = over_time(times, "x y", a=(0, 9), b=(0, 9))
    m.one = pyo.Constraint(m.t, rule=lambda m, t: m.a * m.dx[t] + m.b * m.dy[t] == -m.x[t])
    m.two = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] - m.y[t] * m.dy[t] == 1 + t)
    return m


def test_implicit_slopes_are_those_of_the_linear_system():
    table = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": [1.0, 2.0, 3.0]})
    run = Experiment(table, start={"x": 1.0, "y": 2.0})
    problem = Problem(coupled, parameters=["a", "b"], experiments=run)
    ivp = compiled(problem).initial_value_problem(0)
    assert ivp.implicit == ()
    a, b, x, y, t = 2.0, 0.7, 1.3, 0.4, 1.1
    found = ca.Function("f", [ivp.t, ivp.x, ivp.q], [ivp.f])(t, [x, y], [a, b])
    wanted = np.linalg.solve([[a, b], [1.0, -y]], [-x, 1 + t])
    assert np.asarray(found).ravel() == pytest.approx(wanted, rel=1e-13)


def test_functions_of_points_are_those_of_casadi_and_survive_pickling() -> None:
    x, y, none = ca.SX.sym("x", 3), ca.SX.sym("y"), ca.SX.sym("none", 0)
    rows = [ca.densify(e) for e in (x * y, ca.jacobian(x**2, x), none)]
    function = ca.Function("f", [x, y, none], rows)
    point = np.array([1.0, 2.0, 3.0]), 0.5, np.zeros(0)
    for one in (AtPoint(function), pickle.loads(pickle.dumps(AtPoint(function)))):
        first = one(*point)
        one(np.zeros(3), 0.0, np.zeros(0))  # does not change what was returned
        for got, wanted in zip(first, function(*point), strict=True):
            assert np.array_equal(got, np.asarray(wanted).reshape(got.shape))
            assert got.shape == wanted.shape
