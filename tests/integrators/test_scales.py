"""Any time scale, states of any size, measurements over decades: integrated as exactly."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

from igpe.equations.initial_value import initial_value_problem
from igpe.equations.system import read_system
from igpe.experiment import Experiment
from igpe.integrators.sundials import Sundials
from igpe.problem import Problem


def simulation(problem, times):
    """The first experiment's problem, made ready."""
    run = problem.experiments[0]
    ivp = initial_value_problem(problem, run, read_system(problem, run))
    return Sundials().prepare(ivp, times, sensitivities=True)


def one_state(rule, *, start=1.0, inputs=None, times=(0.0, 1.0, 2.0)):
    """A problem with the state x, parameter k, input u."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.u = pyo.Var(m.t), pyo.Param(m.t, mutable=True, default=0.0)
        m.dx = dae.DerivativeVar(m.x)
        m.k = pyo.Var(bounds=(0, 5))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == rule(m, t))
        return m

    table = pd.DataFrame({"time": times, "x": np.ones(len(times))})
    run = Experiment(table, start={"x": start}, inputs=inputs or {})
    return Problem(build, parameters=["k"], experiments=run)


@pytest.mark.parametrize("span", [1e-12, 5e-10, 1e-6, 1e6, 1e12])
def test_any_time_scale(span):
    times = span * np.array([0.0, 0.4, 1.0])
    problem = one_state(lambda m, t: -m.k * m.x[t] / span, times=times)
    came = simulation(problem, times).run(np.array([2.0]))
    exact = np.exp(-2 * times / span)
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-7)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-times / span * exact, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("span", [1e-11, 1e9])
def test_inputs_and_explicit_time_on_any_time_scale(span):
    feed = pd.Series([0.0, 1.0, 0.0], index=span * np.array([0.0, 1.0, 2.0]))
    times = span * np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    problem = one_state(
        lambda m, t: (m.k * m.u[t] + t / span) / span, inputs={"u": feed}, times=times, start=0.0
    )
    came = simulation(problem, times).run(np.array([1.0]))
    by_feed = np.array([0, 0.125, 0.5, 0.875, 1.0])
    assert came.states[:, 0] == pytest.approx(by_feed + (times / span) ** 2 / 2, rel=1e-7)


def test_outputs_over_many_decades():
    times = np.array([0.0, *np.logspace(-14, 1, 16), 10.0 + 1e-10, 12.0])
    problem = one_state(lambda m, t: 1 - m.k * m.x[t], start=0.0, times=times)
    came = simulation(problem, times).run(np.array([1.0]))
    assert came.states[:, 0] == pytest.approx(-np.expm1(-times), rel=1e-6, abs=0)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_states_of_any_size_are_as_exact(size):
    times = np.array([0.0, 0.5, 1.0, 2.0])
    problem = one_state(lambda m, t: -m.k * m.x[t] ** 2 / size, start=size, times=times)
    came = simulation(problem, times).run(np.array([1.5]))
    assert came.states[:, 0] / size == pytest.approx(1 / (1 + 1.5 * times), rel=1e-6)
    slope = -times / (1 + 1.5 * times) ** 2
    assert came.by_unknown[:, 0, 0] / size == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_a_decay_over_decades_measured_with_a_relative_error():
    """The smallest standard deviation bounds the absolute tolerance, so rtol rules throughout."""
    times = np.linspace(0.0, 30.0, 16)
    exact = np.exp(-times)
    run = Experiment(
        pd.DataFrame({"time": times, "x": exact}), start={"x": 1.0}, sigma={"x": 0.01 * exact}
    )
    built = one_state(lambda m, t: -m.k * m.x[t]).model
    came = simulation(Problem(built, parameters=["k"], experiments=run), times).run(np.ones(1))
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-5, abs=0)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-times * exact, rel=1e-5, abs=0)
