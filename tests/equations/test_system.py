"""A model's equations as one experiment uses them: roles, forms of indexing, time, starts."""

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo import dae

from igpe.core.errors import ModelError
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import initial_value_problem
from igpe.equations.reading.read import read_systems
from igpe.equations.system import System
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.problem import Problem


def blank(times: Any) -> Any:
    """A with slope dA, parameter k, input feed; no equation yet."""
    m = over_time(times, "A", "feed", k=(0, 5))
    return m


def with_rule(rule: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A builder with this differential equation."""

    def build(times: Any) -> Any:
        m = blank(times)
        m.rate = pyo.Constraint(m.t, rule=rule)
        return m

    return build


def problem_of(builder: Any, *, measured: Any = ("A",), **settings: Any) -> Problem:
    """The builder's problem on four times, with parameter k."""
    times = np.array([0.0, 1.0, 2.0, 4.0])
    table = pd.DataFrame({"time": times, **{n: times + 1 for n in measured}})
    parameters = settings.pop("parameters", ["k"])
    run = Experiment(table, **{"start": {"A": 1.0}, **settings})
    return Problem(builder, parameters=parameters, experiments=run)


def system_of(builder: Any, **settings: Any) -> System:
    """The system of `problem_of`."""
    problem = problem_of(builder, **settings)
    return read_systems(problem, problem.experiments)[0]


def slopes(builder: Any, t: float, x: Any, q: Any, **settings: Any) -> Any:
    """The slopes the initial value problem says, at numbers."""
    problem = problem_of(builder, **settings)
    run = problem.experiments[0]
    ivp = initial_value_problem(problem, run, read_systems(problem, [run])[0])
    a, b = ivp.input_segment(t)
    f = ca.Function("f", [ivp.t, ivp.x, ivp.u, ivp.q], [ivp.f])
    return np.asarray(f(t, x, a + b * t, q)).ravel()


TIME_RULES: dict[str, tuple[Any, Callable[[float], float]]] = {
    "exp": (lambda m, t: m.dA[t] == -m.k * m.A[t] * pyo.exp(-t), lambda t: np.exp(-t)),
    "polynomial": (lambda m, t: m.dA[t] == -m.k * m.A[t] * (t**2 + 1), lambda t: t**2 + 1),
    "divided": (lambda m, t: m.dA[t] == -m.k * m.A[t] / (t + 2), lambda t: 1 / (t + 2)),
    "other side": (lambda m, t: m.dA[t] / (1 + t) == -m.k * m.A[t], lambda t: 1 + t),
    "skipped at first": (
        lambda m, t: pyo.Constraint.Skip if t == 0 else m.dA[t] == -m.k * m.A[t] * pyo.exp(-t),
        lambda t: np.exp(-t),
    ),
    "Expr_if": (
        lambda m, t: m.dA[t] == -m.k * m.A[t] * pyo.Expr_if(IF=m.A[t] > 0, THEN=t, ELSE=0),
        lambda t: t,
    ),
    "a pair of sides": (lambda m, t: (m.dA[t], -m.k * m.A[t] * (1 + t)), lambda t: 1 + t),
    "no time": (lambda m, t: m.dA[t] == -m.k * m.A[t], lambda t: 1.0),
}


@pytest.mark.parametrize("name", list(TIME_RULES))
@pytest.mark.parametrize("t", [0.0, 0.3, 3.9])
def test_explicit_time_is_kept(name: str, t: float) -> None:
    rule, factor = TIME_RULES[name]
    assert slopes(with_rule(rule), t, 2.0, 0.7) == pytest.approx([-1.4 * factor(t)], rel=1e-13)


def test_time_in_an_expression_is_kept() -> None:
    def with_expression(times: Any) -> Any:
        m = blank(times)
        m.ramp = pyo.Expression(m.t, rule=lambda m, t: pyo.sin(t))
        m.heat = pyo.Expression(m.t, rule=lambda m, t: m.k * m.ramp[t])
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.heat[t] * m.A[t])
        return m

    assert slopes(with_expression, 1.3, 2.0, 0.7) == pytest.approx([-1.4 * np.sin(1.3)])
    problem = problem_of(with_expression, measured=("heat",))
    ivp = compiled(problem).initial_value_problem(0)
    heat = ca.Function("h", [ivp.t, ivp.q], [ivp.measured])
    assert float(heat(1.3, 0.7)) == pytest.approx(0.7 * np.sin(1.3))


def _indexed(times: Any, *, time_first: bool) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.S = pyo.Set(initialize=["a", "b"])
    sets = (m.t, m.S) if time_first else (m.S, m.t)
    m.c = pyo.Var(*sets)
    m.dc = dae.DerivativeVar(m.c, wrt=m.t)
    m.k = pyo.Var(m.S, bounds=(0, 5))

    def rule(m: Any, i: Any, j: Any) -> Any:
        s = j if time_first else i
        return m.dc[i, j] == -m.k[s] * m.c[i, j] * (1 + (i if time_first else j))

    m.rate = pyo.Constraint(*sets, rule=rule)
    return m


def _blocks(times: Any) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.a, m.b = pyo.Var(m.t), pyo.Var(m.t)
    m.da, m.db = dae.DerivativeVar(m.a), dae.DerivativeVar(m.b)
    m.k = pyo.Var(["a", "b"], bounds=(0, 5))

    def cell(b: Any, t: float) -> None:
        m = b.model()
        b.r = pyo.Var(["a", "b"])
        b.rate = pyo.Constraint(["a", "b"], rule=lambda b, s: b.r[s] == m.k[s] * _of(m, s)[t])
        b.use = pyo.Constraint(["a", "b"], rule=lambda b, s: _slope(m, s)[t] == -b.r[s])

    m.cell = pyo.Block(m.t, rule=cell)
    return m


def _of(m: Any, s: str) -> Any:
    return m.a if s == "a" else m.b


def _slope(m: Any, s: str) -> Any:
    return m.da if s == "a" else m.db


@pytest.mark.parametrize("time_first", [True, False])
def test_time_may_be_the_first_or_the_last_index(time_first: bool) -> None:
    found = slopes(
        lambda times: _indexed(times, time_first=time_first),
        3.0,
        [2.0, 3.0],
        [0.5, 0.1],
        measured=("c[a]", "c[b]"),
        start={"c[a]": 1.0, "c[b]": 2.0},
    )
    assert found == pytest.approx([-4.0, -1.2])


def test_blocks_over_time_are_read() -> None:
    settings: dict[str, Any] = {"measured": ("a", "b"), "start": {"a": 1.0, "b": 2.0}}
    assert slopes(_blocks, 3.0, [2.0, 3.0], [0.5, 0.1], **settings) == pytest.approx([-1.0, -0.3])
    assert set(system_of(_blocks, **settings).symbols.algebraics) == {"cell.r[a]", "cell.r[b]"}


def _roles(times: Any) -> Any:
    m = blank(times)
    m.gain = pyo.Param(mutable=True, initialize=3.0)
    m.fixed = pyo.Var(m.t, initialize=2.0)
    m.fixed.fix()
    m.idle, m.B = pyo.Var(m.t), pyo.Var(m.t)
    m.rate = pyo.Constraint(
        m.t, rule=lambda m, t: m.dA[t] == m.gain * m.feed[t] - m.k * m.fixed[t] * m.B[t]
    )
    m.double = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] == 2 * m.A[t])
    return m


def test_every_variable_has_its_role() -> None:
    symbols = system_of(_roles, inputs={"feed": 1.0}).symbols
    assert (symbols.states, symbols.algebraics) == (("A",), ("B",))
    assert (symbols.inputs, symbols.parameters) == (("feed",), ("k",))


INPUTS: dict[str, tuple[Any, float]] = {
    "number": (1.5, 1.5),
    "numpy number": (np.float32(1.5), 1.5),
    "Series": (pd.Series([0.0, 4.0], index=[0.0, 4.0]), 3.0),
    "step_input": (step_input([0.0, 3.0], [5.0, 7.0]), 7.0),
    "function": (lambda t: pyo.exp(-t) + t, np.exp(-3.0) + 3.0),
    "constant function": (lambda t: 4, 4.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(INPUTS))
def test_inputs_over_time_and_scalar_ones(name: str) -> None:
    given, number = INPUTS[name]
    found = slopes(_roles, 3.0, 2.0, 0.5, inputs={"feed": given})
    assert found == pytest.approx([3 * number - 4.0], rel=1e-13)
    scalar = slopes(_roles, 3.0, 2.0, 0.5, inputs={"feed": 1.0, "gain": given})
    assert scalar == pytest.approx([number - 4.0], rel=1e-13)


STARTS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], float]] = {
    "number": (lambda m: None, {"A": 3.0}, 3.0),
    "parameter": (lambda m: None, {"A": "k"}, 0.5),
    "fixed": (lambda m: m.A[0].fix(4.0), {}, 4.0),
    "equation": (lambda m: m.add_component("s", pyo.Constraint(expr=m.A[0] == 2 * m.k)), {}, 1.0),
    "scaled equation": (
        lambda m: m.add_component("s", pyo.Constraint(expr=1 + m.k * m.A[0] == 2)),
        {},
        2.0,
    ),
    "data before model": (lambda m: m.A[0].fix(4.0), {"A": 3.0}, 3.0),
}


@pytest.mark.parametrize("name", list(STARTS))
def test_start_values(name: str) -> None:
    change, start, number = STARTS[name]

    def build(times: Any) -> Any:
        m = with_rule(lambda m, t: m.dA[t] == -m.k * m.A[t])(times)
        change(m)
        return m

    problem = problem_of(build, start=start)
    ivp = compiled(problem).initial_value_problem(0)
    assert float(ca.Function("s", [ivp.q], [ivp.start])(0.5)) == pytest.approx(number)


def test_an_unknown_start_value_is_an_unknown_of_its_name() -> None:
    problem = problem_of(
        with_rule(lambda m, t: m.dA[t] == -m.k * m.A[t]), start={"A": Unknown(0, 9)}
    )
    ivp = compiled(problem).initial_value_problem(0)
    assert ivp.unknowns == ("k", "A(t0)")
    held = problem.fixing({"k": 0.3})
    ivp = compiled(held).initial_value_problem(0)
    assert ivp.unknowns == ("A(t0)",)
    assert float(ca.Function("f", [ivp.x], [ivp.f])(2.0)) == pytest.approx(-0.6)


def solved(builder: Any) -> System:
    times = [0.0, 1.0, 2.0]
    data = pd.DataFrame({"time": times, "x": [1.0, 0.5, 0.2]})
    problem = Problem(builder, parameters=["k"], experiments=Experiment(data))
    return read_systems(problem, problem.experiments)[0]


def decay_as(change: Callable[[Any], Any], rule: Any = None) -> Callable[[Any], Any]:
    def build(times: Any) -> Any:
        m = over_time(times, "x", k=(0, 5))
        m.rate = pyo.Constraint(m.t, rule=rule or (lambda m, t: m.dx[t] == -m.k * m.x[t]))
        m.x[m.t.first()].fix(1.0)
        change(m)
        return m

    return build


def feasible_at_first(m: Any, t: float) -> Any:
    return pyo.Constraint.Feasible if t == m.t.first() else m.dx[t] == -m.k * m.x[t]


def sparse(m: Any) -> None:
    m.y = pyo.Var(["used", "not"], m.t, dense=False)
    m.dy = dae.DerivativeVar(m.y, wrt=m.t)


@pytest.mark.parametrize(
    "builder",
    [
        decay_as(lambda m: None, feasible_at_first),
        decay_as(sparse),
        decay_as(lambda m: setattr(m, "other", pyo.Reference(m.k))),
    ],
)
def test_forms_that_pyomo_takes_are_read(builder: Any) -> None:
    assert solved(builder).symbols.states == ("x",)


def second_derivative(m: Any) -> None:
    m.ddx = dae.DerivativeVar(m.dx)


def two_of_one_text(m: Any) -> None:
    m.y = pyo.Var([1, "1"], m.t)


@pytest.mark.parametrize(
    ("builder", "says"),
    [
        (decay_as(second_derivative), "'ddx' is a higher-order or mixed derivative"),
        (decay_as(two_of_one_text), r"Two quantities are called 'y\[1\]'"),
        (
            decay_as(lambda m: None, lambda m, t: m.dx[t] <= -m.k * m.x[t]),
            "No equation over time contains the derivative of 'x'",
        ),
    ],
)
def test_what_is_missing_or_has_one_name_twice_is_said(builder: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        solved(builder)


def total(m: Any) -> None:
    """Two initial conditions hold two states each, the second of which is known by the first."""
    m.y, m.z = pyo.Var(m.t), pyo.Var(m.t)
    m.dy, m.dz = dae.DerivativeVar(m.y), dae.DerivativeVar(m.z)
    for slope in ("dy", "dz"):
        rule = pyo.Constraint(m.t, rule=lambda m, t, s=slope: getattr(m, s)[t] == m.k * m.x[t])
        m.add_component(f"rate_{slope}", rule)
    first = m.t.first()
    m.ratio = pyo.Constraint(expr=m.z[first] == 3 * m.y[first] + m.k)
    m.sum = pyo.Constraint(expr=m.x[first] + m.y[first] == 1.5)


@pytest.mark.parametrize(("start", "y"), [({}, 0.5), ({"x": 1.25}, 0.25), ({"x": "k"}, -0.5)])
def test_initial_conditions_on_two_states(start: Any, y: float) -> None:
    data = pd.DataFrame({"time": [0.0, 1.0], "z": [3.5, 4.0]})
    run = Experiment(data, start=start)
    problem = Problem(decay_as(total), parameters=["k"], experiments=run)
    ivp = compiled(problem).initial_value_problem(0)
    found = np.asarray(ca.Function("start", [ivp.q], [ivp.start])([2.0])).ravel()
    x = 1.5 - y
    assert dict(zip(ivp.states, found, strict=True)) == pytest.approx({
        "x": x,
        "y": y,
        "z": 3 * y + 2.0,
    })
