"""Any time scale, states of any size or none, data over decades: integrated as exactly."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import every_method, one_state, simulation
from ode import ode, over_time
from scipy.optimize import brentq

from igpe.core.status import Status
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


@every_method
@pytest.mark.parametrize("span", [1e-12, 5e-10, 1e-6, 1e6, 1e12])
def test_any_time_scale(span, method):
    times = span * np.array([0.0, 0.4, 1.0])
    problem = one_state(lambda m, t: -m.k * m.x[t] / span, times=times)
    came = simulation(problem, times, method=method()).run(np.array([2.0]))
    exact = np.exp(-2 * times / span)
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-7)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-times / span * exact, rel=1e-6, abs=1e-12)


@every_method
def test_outputs_over_many_decades(method):
    times = np.array([0.0, *np.logspace(-14, 1, 16), 10.0 + 1e-10, 12.0])
    problem = one_state(lambda m, t: 1 - m.k * m.x[t], start=0.0, times=times)
    came = simulation(problem, times, method=method()).run(np.array([1.0]))
    assert came.states[:, 0] == pytest.approx(-np.expm1(-times), rel=1e-6, abs=0)


@every_method
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_states_of_any_size_are_as_exact(size, method):
    times = np.array([0.0, 0.5, 1.0, 2.0])
    problem = one_state(lambda m, t: -m.k * m.x[t] ** 2 / size, start=size, times=times)
    came = simulation(problem, times, method=method()).run(np.array([1.5]))
    assert came.states[:, 0] / size == pytest.approx(1 / (1 + 1.5 * times), rel=1e-6)
    slope = -times / (1 + 1.5 * times) ** 2
    assert came.by_unknown[:, 0, 0] / size == pytest.approx(slope, rel=1e-6, abs=1e-9)


@every_method
def test_a_decay_over_decades_measured_with_a_relative_error(method):
    """The smallest standard deviation bounds the absolute tolerance, so rtol rules throughout."""
    times = np.linspace(0.0, 30.0, 16)
    exact = np.exp(-times)
    run = Experiment(
        pd.DataFrame({"time": times, "x": exact}), start={"x": 1.0}, sigma={"x": 0.01 * exact}
    )
    built = one_state(lambda m, t: -m.k * m.x[t]).model
    came = simulation(
        Problem(built, parameters=["k"], experiments=run), times, method=method()
    ).run(np.ones(1))
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-5, abs=0)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-times * exact, rel=1e-5, abs=0)


@every_method
def test_what_rests_moves_nothing_even_where_the_slope_is_infinite(method):
    """sqrt(x) at x = 0: its derivative by k is 0, and that of + k is 1."""

    def build(times):
        m = one_state(lambda m, t: m.k - 0 * m.x[t]).model(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: pyo.sqrt(m.x[t]) + m.k)
        return m

    run = Experiment(pd.DataFrame({"time": [0.0, 4.0], "y": [1.0, 3.0]}), start={"x": 0.0})
    problem = Problem(build, parameters=["k"], experiments=run)
    came = simulation(problem, [0.0, 4.0], method=method()).run(np.ones(1))
    assert came.measured_by_unknown[:, 0, 0] == pytest.approx([1.0, 2.0], rel=1e-6)


@every_method
def test_a_reaction_of_unknown_order_that_starts_at_nothing(method):
    build = ode(
        {"A": lambda m, t: -2 * m.A[t], "B": lambda m, t: 2 * m.A[t] - m.k * m.B[t] ** m.n},
        k=(0, 5),
        n=(0.5, 3),
    )

    times = np.linspace(0.0, 4.0, 5)
    run = Experiment(
        pd.DataFrame({"time": times, "B": 1.0 + 0 * times}), start={"A": 1.0, "B": 0.0}
    )
    problem = Problem(build, parameters=["k", "n"], experiments=run)
    made, q = simulation(problem, times, method=method()), np.array([0.5, 1.5])
    came = made.run(q)
    assert came.status is Status.CONVERGED
    for i, h in enumerate(1e-4 * np.eye(2)):
        central = (made.run(q + h).measured - made.run(q - h).measured) / 2e-4
        assert came.measured_by_unknown[:, :, i] == pytest.approx(central, rel=1e-4, abs=1e-5)


def driven(lower, upper):
    """x' = a (1 - x) + b sin(7 t): dx/db does not depend on b."""

    def build(times):
        m = over_time(times, "x", a=(None, None), b=(None, None))
        rule = lambda m, t: m.dx[t] == m.a * (1 - m.x[t]) + m.b * pyo.sin(7 * t)  # noqa: E731
        m.rate = pyo.Constraint(m.t, rule=rule)
        return m

    run = Experiment(
        pd.DataFrame({"time": [1.0, 4.0], "x": [1.0, 1.0]}), start={"x": 1.0}, start_time=0
    )
    return Problem(build, parameters={"a": (0, 10), "b": (lower, upper)}, experiments=run)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize(
    ("lower", "upper"), [(-10, 10), (1e-20, np.inf), (-np.inf, np.inf), (-1e30, 1e30), (0, 1e6)]
)
def test_sensitivities_to_unknowns_near_zero(lower, upper, method):
    """b = 1e-8 to 1e-20 is as exact as b = 0."""
    times = np.array([1.0, 4.0])
    # the solution of s' = -s + sin(7 t), s(0) = 0
    exact = (np.sin(7 * times) - 7 * np.cos(7 * times) + 7 * np.exp(-times)) / 50
    made = simulation(driven(lower, upper), times, method=method())
    for b in (0.0, 1e-8, 1e-12, 1e-20, 1e-3, 1.0):
        came = made.run(np.array([1.0, b]))
        assert came.by_unknown[:, 0, 1] == pytest.approx(exact, rel=1e-5)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize(("trace", "is_measured"), [(1e-16, True), (1e-20, False), (1e-30, True)])
def test_growth_from_any_trace(trace, is_measured, method):
    """x' = k x (1 - x), x(0) = trace."""

    def build(times):
        m = one_state(lambda m, t: m.k * m.x[t] * (1 - m.x[t])).model(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: 2 * m.x[t])
        return m

    times = np.linspace(5.0, 100.0, 20)
    table = pd.DataFrame({
        "time": times,
        "x" if is_measured else "y": 1 / (1 + 1e16 * np.exp(-times)),
    })
    run = Experiment(table, start={"x": trace}, start_time=0)
    problem = Problem(build, parameters=["k"], experiments=run)
    came = simulation(problem, times, method=method()).run(np.array([1.0]))
    exact = 1 / (1 + (1 / trace - 1) * np.exp(-times))
    assert came.status is Status.CONVERGED
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(("low", "first"), [(1e-16, 0.1), (1e-3, -0.1)])
def test_an_implicit_variable_over_decades(low, first):
    """[H+] in a titration: H - 1e-14 / H = excess; beyond its lower bound there is no solution."""

    def build(times):
        m = over_time(times, "excess", k=None)
        m.H = pyo.Var(m.t, bounds=(low, 10))
        m.fed = pyo.Constraint(m.t, rule=lambda m, t: m.dexcess[t] == -m.k)
        m.acid = pyo.Constraint(
            m.t, rule=lambda m, t: m.H[t] + m.H[t] ** 3 == 1e-14 / m.H[t] + m.excess[t]
        )
        m.pH = pyo.Expression(m.t, rule=lambda m, t: -pyo.log10(m.H[t]))
        return m

    times = np.linspace(0.0, 2.0, 9)
    run = Experiment(pd.DataFrame({"time": times, "pH": 7.0}), start={"excess": first}, sigma=0.01)
    problem = Problem(build, parameters=["k"], experiments=run)
    came = simulation(problem, times, method=Sundials()).run(np.array([0.1]))
    if low > 1e-8:
        assert came.status is not Status.CONVERGED
        assert "H = 1e-13 is not between 0.001 and 10" in came.reason
        return

    def exact(k, t):
        return -brentq(lambda u: _titrated(10.0**u) - (0.1 - k * t), -15, 1, xtol=1e-14)

    ends = [[exact(k, t) for t in times] for k in (0.1, 0.1 - 1e-7, 0.1 + 1e-7)]
    assert came.measured[:, 0] == pytest.approx(ends[0], abs=1e-6)
    slope = (np.array(ends[2]) - ends[1])[times != 1] / 2e-7
    assert came.measured_by_unknown[times != 1, 0, 0] == pytest.approx(slope, rel=1e-4)


def _titrated(H):
    return H + H**3 - 1e-14 / H
