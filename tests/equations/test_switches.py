"""Jumps at known times are held inputs; those that unknowns or states decide become modes."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import ModelError, Unsupported
from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import linear_input, step_input
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 2.0, 5)


def posed(rule, *, measured=None, start=1.0, feed=1.0, times=TIMES):
    """x' = rule with unknowns a, k, n; y' = -b y; z is implicit in k y; w = 2 feed."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.y, m.z, m.w, m.feed = (pyo.Var(m.t, initialize=1.0) for _ in range(5))
        m.dx, m.dy = dae.DerivativeVar(m.x), dae.DerivativeVar(m.y)
        m.a, m.b, m.k, m.n = (pyo.Var(bounds=(0, 5)) for _ in range(4))
        m.late = pyo.Param(initialize=0.75, mutable=True)
        m.of_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == rule(m, t))
        m.of_y = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == -m.b * m.y[t])
        m.of_z = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] + m.z[t] ** 3 == m.k * m.y[t])
        m.of_w = pyo.Constraint(m.t, rule=lambda m, t: m.w[t] == 2 * m.feed[t])
        if measured:
            m.h = pyo.Expression(m.t, rule=measured)
        return m

    names = ("x", "h") if measured else ("x",)
    table = pd.DataFrame({"time": times} | {n: 1.0 + 0 * times for n in names})
    run = Experiment(table, start={"x": start, "y": 1.0}, inputs={"feed": feed})
    return Problem(build, parameters=["a", "b", "k", "n"], experiments=run)


REFUSED = {
    "an unknown alone": (lambda m, t: pyo.Expr_if(m.n >= 1, m.a, 0), "'of_x'", "unknown 'n'"),
    "floor": (lambda m, t: -pyo.floor(m.k * m.y[t]), "'of_x'", "floor"),
}
MOVED = {
    "an unknown time": lambda m, t: pyo.Expr_if(t < m.k, m.a, 0),
    "a state": lambda m, t: pyo.Expr_if(m.y[t] < 0.5, m.a, 0),
    "a range": lambda m, t: pyo.Expr_if(pyo.inequality(0.1, m.y[t], 0.5), m.a, 0),
    "implicit": lambda m, t: pyo.Expr_if(m.z[t] < 0.5, m.a, 0),
    "nested": lambda m, t: pyo.Expr_if(t < 1, pyo.Expr_if(t < m.k, 1, 2), 0),
    "within if": lambda m, t: pyo.Expr_if(m.x[t] < 1, 1, 2) if t < 1 else 0.0,
    "branches that only nearly meet": (
        lambda m, t: pyo.Expr_if(m.x[t] > 1, m.x[t] ** 2, 2.001 * m.x[t] - 1)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_jump_that_is_no_comparison_in_time_is_refused(name):
    rule, *fragments = REFUSED[name]
    with pytest.raises(ModelError) as caught:
        compiled(posed(rule))
    assert [f for f in (*fragments, "smooth transition") if f not in str(caught.value)] == []


@pytest.mark.parametrize("name", MOVED)
def test_a_jump_that_is_moved_is_seen(name):
    found = compiled(posed(MOVED[name]))
    assert found.switching == (True,)
    with pytest.raises(Unsupported, match="This method cannot follow events"):
        found.initial_value_problem(0)
    ivp = found.initial_value_problem(0, switching=True)
    assert ivp.switching is not None
    assert ivp.implicit == ("z",)


def test_a_jump_of_what_is_measured_is_moved_too():
    rule = lambda m, t: pyo.Expr_if(m.x[t] < 1, 1, m.n)  # noqa: E731
    assert compiled(posed(lambda m, t: -m.a * m.x[t], measured=rule)).switching == (True,)


def test_an_unknown_start_counts():
    rule = lambda m, t: pyo.Expr_if(m.x[0] < 0.5, -1.0, -2.0)  # noqa: E731
    with pytest.raises(ModelError, match=r"unknown 'x\(t0\)'"):
        compiled(posed(rule, start=Unknown(0.5, 2)))
    compiled(posed(rule))


KINKS = {
    "max": lambda m, t: pyo.Expr_if(m.x[t] > 0, m.x[t], 0),
    "beyond a threshold": lambda m, t: -pyo.Expr_if(m.x[t] > m.k, m.a * (m.x[t] - m.k), 0),
    "the larger of two": lambda m, t: pyo.Expr_if(m.x[t] ** 2 >= m.y[t], m.x[t] ** 2, m.y[t]),
    "tangent": lambda m, t: pyo.Expr_if(m.x[t] > 1, m.x[t] ** 2, 2 * m.x[t] - 1),
    "ramp from an unknown time": lambda m, t: pyo.Expr_if(t > m.k, t - m.k, 0),
    "abs": lambda m, t: abs(m.x[t] - m.k),
    "power": lambda m, t: -m.k * m.x[t] ** m.n,
}


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_no_jump(name):
    compiled(posed(KINKS[name]))


def test_a_held_unknown_is_a_known_time():
    problem = posed(lambda m, t: pyo.Expr_if(t < m.k, m.a, 0))
    held = compiled(problem.fixing({"k": 0.75}))
    assert "k" not in held.initial_value_problem(0).unknowns
    assert held.switching == (False,)
    by_state = posed(lambda m, t: pyo.Expr_if(m.x[t] < m.k, 1, 2))
    assert compiled(by_state.fixing({"k": 1.0})).switching == (True,)


KNOWN = {
    "Expr_if": lambda m, t: pyo.Expr_if(t >= 0.75, m.a, 2.0),
    "if": lambda m, t: m.a if t >= 0.75 else 2.0,
    "nested": lambda m, t: pyo.Expr_if(t >= 0.75, pyo.Expr_if(t < 9, m.a, 7), 2.0),
    "a Param": lambda m, t: pyo.Expr_if(t >= m.late, m.a, 2.0),
    "a Param within if": lambda m, t: m.a if t >= pyo.value(m.late) else 2.0,
    "an input": lambda m, t: pyo.Expr_if(m.feed[t] >= 0.75, m.a, 2.0),
    "what an input defines": lambda m, t: pyo.Expr_if(m.w[t] >= 1.5, m.a, 2.0),
}
"""x' = a from 0.75 on, 2 before."""


FEEDS = {
    "function": lambda t: t,
    "ramp": linear_input([0.0, 2.0], [0.0, 2.0]),
    "steps": step_input([0.0, 0.75], [0.0, 1.0]),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("feed", FEEDS)
def test_a_jump_at_a_known_time_is_integrated(name, feed):
    problem = posed(KNOWN[name], feed=FEEDS[feed])
    values = {"a": 0.5, "b": 1.0, "k": 1.0, "n": 1.0}
    x = igpe.simulate(problem, values, times=[0.0, 0.5, 1.0, 2.0])["x"]
    assert x.to_numpy() == pytest.approx([1.0, 2.0, 2.625, 3.125], abs=2e-5)


@pytest.mark.parametrize("instant", [1.0, 5.0, 50.0])
def test_an_unknown_time_is_known_where_it_has_a_value(instant):
    problem = posed(
        lambda m, t: pyo.Expr_if(t < 10 * m.k, 1, 0), start=0.0, times=np.array([0.0, 20, 40, 60])
    )
    values = {"a": 1.0, "b": 1.0, "k": instant / 10, "n": 1.0}
    times = np.array([0.0, 20.0, 40.0, 60.0, 80.0])
    x = igpe.simulate(problem, values, times=times)["x"]
    assert x.to_numpy() == pytest.approx(np.minimum(times, instant), abs=1e-4 * instant)
    said = "Step 3 does not support conditions that depend on unknowns or states ("
    assert said in str(igpe.check(problem))


def test_what_holds_at_the_first_time_alone_moves_nothing():
    truth = {"a": 2.0, "b": 1.0, "k": 1.0, "n": 1.0}
    for rule in (
        lambda m, t: pyo.Expr_if(t > 0, m.a, 0.0),
        lambda m, t: m.a if t > 0 else 0.0,
        lambda m, t: 0.0 if t == m.t.first() else m.a,
    ):
        simulated = igpe.simulate(posed(rule), truth, TIMES)
        assert simulated["x"].to_numpy() == pytest.approx(1.0 + 2.0 * TIMES, rel=1e-6)
