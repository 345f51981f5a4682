"""Which unknowns decide a condition of the model; our own conditions do not count."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

from igpe.equations.initial_value import initial_value_problem
from igpe.equations.switches import switching
from igpe.equations.system import read_system
from igpe.experiment import Experiment, Unknown
from igpe.problem import Problem

TIMES = np.linspace(0.0, 2.0, 5)


def posed(rule, *, measured=None, fixed=None, start=1.0):
    """x' = rule with unknowns a, k, n; y' = -b y; z is implicit in k y."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.y, m.z = (pyo.Var(m.t, initialize=1.0) for _ in range(3))
        m.dx, m.dy = dae.DerivativeVar(m.x), dae.DerivativeVar(m.y)
        m.a, m.b, m.k, m.n = (pyo.Var(bounds=(0, 5)) for _ in range(4))
        m.of_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == rule(m, t))
        m.of_y = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == -m.b * m.y[t])
        m.of_z = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] + m.z[t] ** 3 == m.k * m.y[t])
        if measured:
            m.h = pyo.Expression(m.t, rule=measured)
        return m

    names = ("x", "h") if measured else ("x",)
    table = pd.DataFrame({"time": TIMES} | {n: 1.0 + 0 * TIMES for n in names})
    run = Experiment(table, start={"x": start, "y": 1.0})
    problem = Problem(build, parameters=["a", "b", "k", "n"], experiments=run).fixing(fixed or {})
    return initial_value_problem(problem, run, read_system(problem, run))


def test_a_smooth_model_has_none():
    assert switching(posed(lambda m, t: -m.a * m.x[t] + m.k * pyo.exp(-m.n * m.y[t]))) == ()


def test_directly_and_through_the_states():
    decided = posed(lambda m, t: pyo.Expr_if(m.x[t] < m.k, m.a, 0.1 * m.a))
    assert switching(decided) == ("a", "k")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda m, t: m.y[t] < 0.5, ("b",)),
        (lambda m, t: m.z[t] < 0.5, ("b", "k")),
        (lambda m, t: m.n >= 1, ("n",)),
        (lambda m, t: pyo.inequality(0.1, m.y[t], 0.5), ("b",)),
    ],
    ids=["state", "implicit", "unknown", "range"],
)
def test_conditions(condition, expected):
    assert switching(posed(lambda m, t: pyo.Expr_if(condition(m, t), m.a, 0.0))) == expected


def test_a_state_that_depends_on_another():
    through = posed(lambda m, t: pyo.Expr_if(m.x[t] > 0.5, m.a, 0.0) - m.n * m.y[t])
    assert switching(through) == ("a", "b", "n")


def test_a_condition_of_what_is_measured():
    smooth = {"rule": lambda m, t: -m.a * m.x[t]}
    decided = posed(smooth["rule"], measured=lambda m, t: pyo.Expr_if(m.x[t] < m.k, 1.0, m.n))
    assert switching(decided) == ("a", "k")


def test_a_floor_is_a_condition():
    assert switching(posed(lambda m, t: -pyo.floor(m.k * m.y[t]))) == ("b", "k")


def test_what_is_held_does_not_count():
    rule = lambda m, t: pyo.Expr_if(m.y[t] < m.k, m.a, 0.0)  # noqa: E731
    assert switching(posed(rule)) == ("b", "k")
    assert switching(posed(rule, fixed={"b": 1.0})) == ("k",)
    assert switching(posed(rule, fixed={"b": 1.0, "k": 1.0})) == ()


def test_unknown_start_values_count():
    decided = posed(lambda m, t: pyo.Expr_if(m.x[t] < 0.5, -1.0, -2.0), start=Unknown(0.5, 2))
    assert switching(decided) == ("x(t0)",)


def test_powers_with_unknown_exponents_are_no_conditions():
    assert switching(posed(lambda m, t: -m.k * m.x[t] ** m.n)) == ()
    twice = posed(lambda m, t: -m.k * m.x[t] ** m.n + m.y[t] ** m.n + (m.x[t] * m.y[t]) ** m.a)
    assert switching(twice) == ()


def test_what_looks_like_such_a_power_and_jumps():
    jumps = posed(lambda m, t: pyo.Expr_if(m.y[t] > 0, m.y[t], 1.0))
    assert switching(jumps) == ("b",)
    jumps = posed(lambda m, t: pyo.Expr_if(m.y[t] > 0, m.y[t] ** m.n, 1.0))
    assert switching(jumps) == ("b",)
    jumps = posed(lambda m, t: pyo.Expr_if(m.y[t] > 0, m.y[t] ** 1.5, 1.0) + m.x[t] ** m.n)
    assert switching(jumps) == ("b",)
