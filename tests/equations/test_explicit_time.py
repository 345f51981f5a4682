"""Explicit time is integrated as it is written, however small, large or saturated its terms."""

import math
from itertools import pairwise

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.core.errors import ModelError
from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def one_state(rule, last, *, start=1.0, unknowns=("k",), second=None):
    """dx = rule with an input T = 600, beside y' = second."""

    def build(times):
        m = over_time(times, "x y", "T", **dict.fromkeys(unknowns, (0, None)))
        m.rate = pyo.Constraint(m.t, rule=rule)
        m.other = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == (second or (lambda *_: 0))(m, t))
        return m

    times = np.linspace(0, last, 6)
    table = pd.DataFrame({"time": times, "x": start + 0 * times})
    run = Experiment(table, start={"x": start, "y": 1.0}, inputs={"T": 600.0})
    return Problem(build, parameters=list(unknowns), experiments=run)


def residuals(problem):
    """The equations that were read, as a function of t, dx, x, z, u, p and the start values."""
    (system,) = compiled(problem).systems
    return ca.Function("F", list(system.symbols.vectors), [system.residual])


def simulated(problem, values, last):
    times = np.linspace(0, last, 9)
    return times, igpe.simulate(problem, values, times=times)["x"].to_numpy()


def integrated(slope, times, start=1.0):
    way = {"method": "LSODA", "rtol": 1e-9, "atol": 1e-12 * start, "t_eval": times}
    return solve_ivp(slope, (0, times[-1]), [start], **way).y[0]


def arrhenius(m, t):
    return m.dx[t] == -m.k0 * pyo.exp(-80000 / (8.314 * m.T[t])) * pyo.exp(-m.kd * t) * m.x[t]


def test_a_factor_that_vanishes_at_small_temperatures():
    problem = one_state(arrhenius, 20, unknowns=("k0", "kd"))
    k0, kd = 5e6, 0.2
    times, x = simulated(problem, {"k0": k0, "kd": kd}, 20)
    rate = k0 * np.exp(-80000 / (8.314 * 600))
    true = np.exp(-rate * (1 - np.exp(-kd * times)) / kd)
    assert x == pytest.approx(true, rel=1e-4)
    verdicts = igpe.check(problem)
    assert "not identifiable" not in str(verdicts).lower()


@pytest.mark.parametrize("last", [1000.0, 5000.0, 50000.0])
@pytest.mark.parametrize("other", [None, lambda m, t: -pyo.exp(-m.E / m.T[t]) * m.y[t]])
def test_a_catalyst_that_deactivates(last, other):
    """Alone, and beside an equation that vanishes."""
    law = lambda m, t: m.dx[t] == -m.a * pyo.exp(-m.b * t) * m.x[t]  # noqa: E731
    a, b = 2 / last, 2 / last
    problem = one_state(law, last, unknowns=("a", "b", "E"), second=other)
    times, x = simulated(problem, {"a": a, "b": b, "E": 5000.0}, last)
    assert x == pytest.approx(np.exp(-a * (1 - np.exp(-b * times)) / b), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-9, 2.4e-6, 1.0, 1e9])
def test_a_source_beside_a_term_of_another_size(scale):
    def rule(m, t):
        source = m.a * pyo.sin(m.b * t) ** 2
        return m.dx[t] == scale * (source - m.k * (m.x[t] / scale) ** 2)

    problem = one_state(rule, 8, start=scale, unknowns=("a", "b", "k"))
    a, b, k = 1.3, 0.9, 0.7
    times, x = simulated(problem, {"a": a, "b": b, "k": k}, 8)
    true = integrated(lambda t, x: a * np.sin(b * t) ** 2 - k * x**2, times)
    assert x / scale == pytest.approx(true, abs=1e-4)


def test_a_short_pulse_is_in_the_equations():
    problem = one_state(
        lambda m, t: m.dx[t] == m.c * pyo.exp(-(((t - 0.5) / 1e-3) ** 2)), 1, unknowns=("c",)
    )
    f = residuals(problem)
    for t in (0.0, 0.4999, 0.5, 0.501):
        slope = -float(f(t, [0, 0], [0, 0], [], 600, 2.0, [1, 1])[0])
        assert slope == pytest.approx(2 * math.exp(-(((t - 0.5) / 1e-3) ** 2)), abs=1e-300)


REFUSED = {
    "math": lambda m, t: math.exp(-t),
    "a pulse by math that is 0 at all times read": lambda m, t: math.exp(
        -(((t - 0.512) / 1e-3) ** 2)
    ),
    "float": lambda m, t: float(t),
    "numpy": lambda m, t: np.interp(t, [0, 1], [0, 1]),
    "a table by time": lambda m, t: {u: u**2 for u in m.t}[t],
    "if about what is computed": lambda m, t: 1 if pyo.sin(t) > 0.5 else 0,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name):
    rule = REFUSED[name]
    problem = one_state(lambda m, t: m.dx[t] == -m.k * m.x[t] + rule(m, t), 1)
    with pytest.raises(ModelError, match="'rate' changes with time in a way that igpe"):
        compiled(problem)


def test_members_that_were_changed_are_not_read_by_their_rule():
    problem = one_state(lambda m, t: m.dx[t] == -m.k * m.x[t] * t, 1)
    given = problem.model

    def changed(times):
        m = given(times)
        for t in m.t:
            m.rate[t].set_value(m.dx[t] == -m.k * m.x[t] * (1 + t))
        return m

    problem = Problem(changed, parameters=["k"], experiments=problem.experiments)
    with pytest.raises(ModelError, match="changed after its rule"):
        compiled(problem)


PULSES = {
    "a dose": (lambda m, t: m.dx[t] == -m.k * m.x[t] + (10 if t == 0.4 else 0), True),
    "Expr_if": (lambda m, t: m.dx[t] == -m.k * m.x[t] + pyo.Expr_if(t == 0.4, 9, 0), True),
    "a removed pole": (
        lambda m, t: m.dx[t] == -m.k * m.x[t] + (1 if t == 0.4 else pyo.sin(t - 0.4) / (t - 0.4)),
        False,
    ),
    "the middle of a step": (
        lambda m, t: m.dx[t] == -m.k * m.x[t] + (0 if t < 0.4 else 2 if t > 0.4 else 1),
        False,
    ),
    "the last time": (lambda m, t: m.dx[t] == -m.k * m.x[t] + (1 if t == m.t.last() else 0), False),
}


@pytest.mark.parametrize(("rule", "is_said"), PULSES.values(), ids=PULSES)
def test_a_dose_at_one_instant_is_said_to_have_no_effect(rule, is_said):
    said = [w for w in igpe.check(one_state(rule, 1)).warnings if "at the time 0.4 alone" in w]
    assert len(said) == is_said


SHAPES = {
    "another factor": lambda m, t: m.dx[t] == (-m.k if t < 0.4 else -2 * m.k) * m.x[t],
    "another sum": lambda m, t: m.dx[t] == (-m.k * m.x[t] if t < 0.4 else -m.k * m.x[t] + t),
    "another equation": lambda m, t: (
        m.dx[t] == -m.k * m.x[t] if t <= 0.4 else m.dx[t] == -m.k * m.x[t] ** 2
    ),
    "a pair": lambda m, t: (m.dx[t], -m.k * m.x[t] * (t if 0.2 < t <= 0.6 else 0)),
    "one instant": lambda m, t: m.dx[t] == -m.k * m.x[t] * (3 if t == 0.4 else 1),
    "doses": lambda m, t: m.dx[t] == -m.k * m.x[t] + sum(1 for d in (0.1, 0.4, 7.0) if t >= d),
    "NumPy's numbers": lambda m, t: m.dx[t] == np.float64(2) * t * m.k * int(np.float64(0.4) < t),
    "searchsorted": lambda m, t: m.dx[t] == -m.k * float(np.searchsorted([0.4, 0.8], t)) * m.x[t],
    "skipped at both ends": lambda m, t: (
        pyo.Constraint.Skip if t in (0, m.t.last()) else m.dx[t] == -m.k * m.x[t] * t
    ),
    "turned": lambda m, t: m.dx[t] + m.k * m.x[t] * (1 if t < 0.4 else t) == 0,
}


@pytest.mark.parametrize("rule", SHAPES.values(), ids=SHAPES)
def test_conditions_on_known_times_are_read(rule):
    problem = one_state(rule, 1)
    read = residuals(problem)
    for t in (0.1, 0.1 + 1e-12, 0.3, 0.4, 0.4 + 1e-12, 0.6, 0.61, 0.8, 0.9):
        m = problem.model([0.0, t, 1.0])
        m.dx[t], m.x[t], m.k.value = 0.3, 1.7, 0.9
        body = pyo.Constraint(expr=rule(m, t))
        body.construct()
        true = pyo.value(body.body) - pyo.value(body.upper)
        value = read(t, [0.3, 0.2], [1.7, 1.0], [], [], 0.9, [1, 1])[0]
        assert float(value) == pytest.approx(true, abs=1e-14), t


@pytest.mark.parametrize("inside", [0.5, 1.9999])
def test_a_branch_on_time_between_the_reading_places_is_read(inside):
    problem = one_state(
        lambda m, t: m.dx[t] == -m.k * m.x[t] + (20 if inside <= t <= inside + 1e-3 else 0), 2
    )
    times = (inside - 1e-6, inside, inside + 1e-3, inside + 1.0001e-3, 3)
    read = residuals(problem)
    found = [float(read(t, [0, 0], [1, 1], [], [], 0.25, [1, 1])[0]) for t in times]
    assert found == pytest.approx([0.25, -19.75, -19.75, 0.25, 0.25])


COMPUTED = {
    "a ramp by max": (lambda t: max(t - 0.5, 0), (0.5,)),
    "a ramp that ends": (lambda t: min(max(t - 0.2, 0) / 0.3, 1), (0.2, 0.5)),
    "if about a multiple": (lambda t: 1.0 if 2 * t < 0.7 else 3.0, (0.35,)),
    "a window": (lambda t: 4.0 if 0.2 < t / 2 < 0.3 else 1.0, (0.4, 0.6)),
    "a saw": (lambda t: 4 * (t % 0.4), (0.4, 0.8)),
    "stairs": (lambda t: t // 0.3, (0.3, 0.6, 0.9)),
    "math.floor": (lambda t: math.floor(3.5 * t), (1 / 3.5, 2 / 3.5, 3 / 3.5)),
    "from a number": (lambda t: max(1 - 2 * t, 0) + (1.5 - (1 - t)) / (2 - t), (0.5,)),
    "numpy": (lambda t: np.exp(-t) * np.maximum(t, 0.5), (0.5,)),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_rules_may_compute_with_the_time_before_they_ask_about_it(name):
    factor, cuts = COMPUTED[name]
    problem = one_state(lambda m, t: m.dx[t] == -m.k * m.x[t] * factor(t), 1)
    _, x = simulated(problem, {"k": 2.0}, 1)
    ends, area = [0, *cuts, 1], 0.0
    for a, b in pairwise(ends):  # Gauss's rule, inside each piece
        nodes, weights = np.polynomial.legendre.leggauss(6)
        at = (a + b) / 2 + (b - a) / 2 * nodes
        area += (b - a) / 2 * sum(w * factor(float(t)) for w, t in zip(weights, at, strict=True))
    assert x[-1] == pytest.approx(math.exp(-2 * area), rel=1e-6)


def test_an_equation_that_is_turned_round_at_some_times_is_the_same():
    """`m.y[t] == m.k * t` at t = 1 is `m.k == m.y[t]` to Python, as m.k is a ScalarVar."""

    def build(times):
        m = over_time(times, "x", "y", k=(0, 5))
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] == m.k * t)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.y[t])
        return m

    table = pd.DataFrame({"time": [0.0, 0.5, 1.0], "x": 1.0})
    problem = Problem(build, parameters=["k"], experiments=Experiment(table, start={"x": 0.0}))
    assert igpe.simulate(problem, {"k": 2.0}, [1.0])["x"].item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["A", "x[A]"])
def test_a_state_with_a_reference_goes_by_either_name(name):
    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.k = pyo.Var(m.t, ["A"]), pyo.Var(bounds=(0, 5))
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)
        m.A = pyo.Reference(m.x[:, "A"])
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t, "A"] == -m.k * m.A[t])
        return m

    table = pd.DataFrame({"time": [0.0, 0.5, 1.0], name: 1.0})
    problem = Problem(build, parameters=["k"], experiments=Experiment(table, start={name: 1.0}))
    found = igpe.simulate(problem, {"k": 2.0}, [1.0])[name].item()
    assert found == pytest.approx(math.exp(-2), rel=1e-6)


def test_a_power_of_a_state_that_begins_at_zero_is_integrated():
    def build(times):
        m = over_time(times, "a x", k=(0, 5))
        m.feed = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == 0.0011 - m.k * m.a[t])
        rule = lambda m, t: m.dx[t] == 0.03 * m.a[t] - 0.0088 * m.x[t] ** 0.7  # noqa: E731
        m.rate = pyo.Constraint(m.t, rule=rule)
        return m

    times = np.linspace(0, 1000, 5)
    run = Experiment(pd.DataFrame({"time": times, "x": 1.0}), start={"a": 0.0, "x": 0.0})
    found = igpe.simulate(Problem(build, parameters=["k"], experiments=run), {"k": 0.01}, times)

    def slope(_, v):
        return [0.0011 - 0.01 * v[0], 0.03 * v[0] - 0.0088 * max(v[1], 0) ** 0.7]

    true = solve_ivp(slope, (0, 1000), [0, 0], "LSODA", times, rtol=1e-9, atol=1e-14).y[1]
    assert found["x"].to_numpy() == pytest.approx(true, rel=1e-5, abs=1e-12)


def test_a_condition_that_changes_at_the_last_measured_time():
    """What is measured there is what Pyomo computes there."""
    problem = one_state(lambda m, t: m.dx[t] == -m.k * m.x[t], 1)

    def model(times):
        m = problem.model(times)
        m.seen = pyo.Expression(m.t, rule=lambda m, t: pyo.Expr_if(t >= 1, 3.0, 1.0) * m.x[t])
        return m

    data = pd.DataFrame({"time": [0.5, 1.0], "seen": [0.6, 1.1]})
    run = Experiment(data, start={"x": 1.0, "y": 1.0}, inputs={"T": 600.0})
    last = Problem(model, parameters=["k"], experiments=run)
    y = igpe.simulate(last, {"k": 1.0}, times=[0.5, 1.0])["seen"]
    assert y.to_numpy() == pytest.approx([np.exp(-0.5), 3 * np.exp(-1)], rel=1e-6)


def test_equations_in_a_list_are_refused_for_what_they_are():
    def model(times):
        m = over_time(times, "x", k=(0, 5))
        m.all = pyo.ConstraintList()
        for t in m.t:
            m.all.add(m.dx[t] == -m.k * m.x[t])
        return m

    data = pd.DataFrame({"time": [0.5, 1.0], "x": [0.6, 0.4]})
    problem = Problem(model, parameters=["k"], experiments=Experiment(data, start={"x": 1.0}))
    with pytest.raises(ModelError, match=r"'all\[1\]' contains a derivative but is not indexed"):
        compiled(problem)


def _immutable(m):
    m.feed = pyo.Param(m.t, initialize=lambda m, t: 1 + t)


def _mutable(m):
    m.feed = pyo.Param(m.t, initialize=lambda m, t: 1 + t, mutable=True)


def _fixed(m):
    m.feed = pyo.Var(m.t)
    for t in m.t:
        m.feed[t].fix(1 + t)


@pytest.mark.parametrize("add", [_immutable, _mutable, _fixed])
def test_numbers_over_time_are_refused_by_name(add):
    def build(times):
        m = over_time(times, "x", k=(0, 5))
        add(m)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.feed[t] - m.k * m.x[t])
        return m

    table = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": 1.0})
    problem = Problem(build, parameters=["k"], experiments=Experiment(table, start={"x": 1.0}))
    with pytest.raises(ModelError, match=r"'rate' .*depend on time, .* 'feed'\. Write"):
        compiled(problem)
