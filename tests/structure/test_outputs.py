"""Measured quantities that are no states: solved for states, and differentiated."""

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.elimination import inverted
from igpe.structure.identifiability import Access
from igpe.structure.structure import analyse

TRUE = {"k1": 0.7, "k2": 0.3, "gain": 2.5, "offset": 0.4}
TIMES = np.linspace(0.0, 6.0, 25)
SIGNALS = {
    "conductivity": lambda m, t: m.gain * m.A[t],
    "calibrated": lambda m, t: m.offset + m.gain * m.B[t],
    "total": lambda m, t: 1.2 * m.A[t] + 1.6 * m.B[t],
    "logarithm": lambda m, t: pyo.log(m.A[t]),
    "absorbance": lambda m, t: 1 - pyo.exp(-2 * m.B[t]),
    "drifting": lambda m, t: m.A[t] + 0.1 * t,
    "ratio": lambda m, t: m.B[t] / m.A[t],
    "heat": lambda m, t: m.k1 * m.A[t],
}


def chain(times):
    """A -> B -> ...; nothing of it is measured as it is."""
    m = over_time(times, "A B", "level", **dict.fromkeys(TRUE, (0.01, 10)))
    for name, rule in SIGNALS.items():
        m.add_component(name, pyo.Expression(m.t, rule=rule))
    m.sight = pyo.Constraint(m.t, rule=lambda m, t: 3 * m.level[t] == m.A[t] ** 2 + m.B[t])
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    return m


def signals(a, b, t):
    """What is measured where A and B are known."""
    return {
        "conductivity": 2.5 * a,
        "calibrated": 0.4 + 2.5 * b,
        "total": 1.2 * a + 1.6 * b,
        "logarithm": np.log(a),
        "absorbance": 1 - np.exp(-2 * b),
        "drifting": a + 0.1 * t,
        "ratio": b / a,
        "heat": 0.7 * a,
        "level": (a**2 + b) / 3,
        "A": a,
        "B": b,
    }


def trajectory(times):
    done = solve_ivp(
        lambda t, x: [-0.7 * x[0], 0.7 * x[0] - 0.3 * x[1]],
        (0, 7),
        [1.0, 0.2],
        t_eval=times,
        rtol=1e-12,
        atol=1e-14,
    )
    return done.y


def measuring(*names, parameters=("k1", "k2"), noise=0.0):
    values = signals(*trajectory(TIMES), TIMES)
    random = np.random.default_rng(3)
    table = pd.DataFrame({n: values[n] + noise * random.standard_normal(25) for n in names})
    table.insert(0, "time", TIMES)
    start = {"A": igpe.Unknown(0, 5), "B": igpe.Unknown(0, 5)}
    run = igpe.Experiment(table, start=start, start_time=0.0)

    def model(times):
        m = chain(times)
        for name in set(TRUE) - set(parameters):
            m.component(name).fix(TRUE[name])
        return m

    return igpe.Problem(model, parameters=list(parameters), experiments=run)


CASES = [
    (("conductivity", "calibrated"), ("k1", "k2", "gain", "offset")),
    (("conductivity", "total"), ("k1", "k2")),
    (("logarithm", "absorbance"), ("k1", "k2")),
    (("drifting", "ratio"), ("k1", "k2")),
    (("A", "total"), ("k1", "k2")),
    (("heat", "level"), ("k1", "k2")),
]


@pytest.mark.parametrize(("measured", "parameters"), CASES)
def test_slopes_and_states_from_outputs_are_those_of_the_trajectory(measured, parameters):
    """At the truth and with exact data, beside differences of an independent integration."""
    structure = analyse(measuring(*measured, parameters=parameters))
    posed, step = structure.reduced[0].posed, 1e-4
    at = np.array([1.7 - step, 1.7, 1.7 + step])
    states = trajectory(at)
    values = signals(*states, at)
    known = [[TRUE.get(n, np.nan) for n in posed.q_names]]
    known += [[values[n][1] for n in posed.data_names], 1.7, []]
    symbols = [posed.q, posed.data, posed.time, posed.inputs]
    assert {*structure.slopes[0]} == {*measured}
    for name, slope in structure.slopes[0].items():
        predicted = float(ca.Function("f", symbols, [slope])(*known))
        difference = (values[name][2] - values[name][0]) / (2 * step)
        assert predicted == pytest.approx(difference, rel=1e-6)
    for name, state in structure.states[0].items():
        value = float(ca.Function("f", symbols, [state])(*known))
        assert value == pytest.approx(states["AB".index(name)][1], rel=1e-8)
    assert {*structure.states[0]} == {"A", "B"} - {*measured}


@pytest.mark.slow
@pytest.mark.parametrize(("measured", "parameters"), [CASES[0], CASES[2]])
def test_step_3_estimates_from_outputs_alone(measured, parameters):
    result = igpe.estimate(measuring(*measured, parameters=parameters, noise=1e-4))
    assert result.certificates  # of the algebraic problems
    for name in ("k1", "k2"):
        assert result.parameters[name] == pytest.approx(TRUE[name], rel=0.02)


def test_start_values_behind_a_gain_wait_for_the_gain():
    """A = conductivity / gain: the start follows once step 3 knows the gain, which it does here."""
    found = analyse(measuring("heat", "calibrated", parameters=("k1", "k2", "offset")))
    assert found["A(t0)"].reach is Access.SMOOTHING
    assert found["B(t0)"].reach is Access.SMOOTHING
    unknown = analyse(measuring("conductivity", parameters=("k1", "gain")))
    assert unknown["A(t0)"].reach is Access.DYNAMIC  # the gain cancels in the slope
    assert unknown["gain"].reach is Access.DYNAMIC


def test_an_equation_is_inverted_where_that_is_unique():
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    for equation, inverse in (
        (ca.log(2 * x + 1) - y, (ca.exp(y) - 1) / 2),
        (3 / ca.sqrt(x) - y, (3 / y) ** 2),
        (y - (1 - ca.exp(-x)), -ca.log(1 - y)),
    ):
        both = ca.Function("f", [y], [inverted(equation, x, squares=True), inverse])
        solved, known = both(0.37)
        assert float(solved) == pytest.approx(float(known), rel=1e-12)
    for equation in (x**2 - y, ca.sin(x) - y, x * ca.exp(x) - y, ca.fabs(x) - y):
        assert inverted(equation, x, squares=True) is None
    assert inverted(ca.sqrt(x) - y, x) is None  # y may be negative


def test_the_inverse_of_a_logarithm_has_no_logarithms_or_overflow():
    """log r = log k - E / T + n log c: the rate is right at c = 0, and for large exponents."""
    r, k, c, e, n = (ca.SX.sym(name) for name in "rkcen")
    logs = ca.log(k) / 2 - e + n * ca.log(c) + 2 * ca.log(k)
    rate = ca.Function("f", [k, c, e, n], [inverted(logs - ca.log(2 * r) - (-e + 1), r)])
    assert float(rate(3.0, 0.0, 900.0, 1.5)) == 0.0
    known = 3**2.5 * 2**1.5 / 2 * np.exp(-1)
    assert float(rate(3.0, 2.0, 900.0, 1.5)) == pytest.approx(known, rel=1e-12)
