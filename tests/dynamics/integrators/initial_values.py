"""Initial value problems for the tests of integrators, and the integrators they are run with."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

needs_compiler = pytest.mark.skipif(not compiler(), reason="needs a C compiler")
every_method = pytest.mark.parametrize(
    "method",
    [Sundials, pytest.param(RungeKutta, marks=needs_compiler), LockStep],
    ids=lambda m: m.__name__,
)


def posed(problem):
    """The initial value problem of the first experiment."""
    return compiled(problem).initial_value_problem(0)


def simulation(problem, times, *, sensitivities=True, method=Sundials()):
    """The first experiment's problem, made ready."""
    return method.simulation(posed(problem), times, sensitivities=sensitivities)


def one_state(rule, *, start=1.0, inputs=None, times=(0.0, 1.0, 2.0)):
    """A problem with the state x, parameter k, input u."""

    def build(times):
        m = over_time(times, "x", k=(0, 5))
        m.u = pyo.Param(m.t, mutable=True, default=0.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == rule(m, t))
        return m

    table = pd.DataFrame({"time": times, "x": np.ones(len(times))})
    run = Experiment(table, start={"x": start}, inputs=inputs or {})
    return Problem(build, parameters=["k"], experiments=run)


def robertson():
    """Robertson's stiff kinetics, with its conservation as an explicit algebraic equation."""

    def build(times):
        m = over_time(times, "a b", "c", k=(0.001, 1))
        m.gain = pyo.Expression(m.t, rule=lambda m, t: m.k * m.a[t] - 1e4 * m.b[t] * m.c[t])
        m.rate_a = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == -m.gain[t])
        m.rate_b = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == m.gain[t] - 3e7 * m.b[t] ** 2)
        m.all = pyo.Constraint(m.t, rule=lambda m, t: m.a[t] + m.b[t] + m.c[t] == 1)
        return m

    table = pd.DataFrame({"time": [0.4, 40.0], "a": [0.98517, 0.71583]})
    run = Experiment(table, start={"a": 1.0, "b": 0.0}, start_time=0.0)
    return Problem(build, parameters=["k"], experiments=run)
