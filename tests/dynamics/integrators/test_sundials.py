"""IDAS and implicit algebraic variables: their start, their bounds, their size."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import simulation
from ode import ode, over_time
from scipy.integrate import solve_ivp
from zoo import CASES

import igpe
from igpe.core.status import Status
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def test_the_start_of_a_dae_is_consistent():
    case = CASES["dimer"]
    came = simulation(case.problem(), [0.0, 1e-6]).run(np.array([0.6, 0.5]))
    root = (np.sqrt(1 + 8 * 0.5 * 3.0) - 1) / (4 * 0.5)
    assert came.implicit[0, 0] == pytest.approx(root, rel=1e-9)
    by_K = ((1 + 24 * 0.5) ** -0.5 * 12 * 2 - 4 * (np.sqrt(13.0) - 1)) / (4 * 0.5**2 * 4)
    assert came.measured_by_unknown[0, 1] == pytest.approx([0.0, by_K], rel=1e-8, abs=1e-10)


def branches(bounds, initial, *, size=1.0, times=(0.0, 0.5, 1.5)):
    """dx = k z, z^2 = x size: z has two branches; on the lower sqrt(x) falls linearly."""

    def build(times):
        m = over_time(times, "x", k=(0, 5))
        m.z = pyo.Var(m.t, bounds=bounds, initialize=initial)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.k * m.z[t])
        m.root = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] ** 2 == m.x[t] * size)
        return m

    run = Experiment(
        pd.DataFrame({"time": times, "x": np.full(len(times), size)}), start={"x": size}
    )
    return Problem(build, parameters=["k"], experiments=run)


@pytest.mark.parametrize(
    ("bounds", "initial", "sign"),
    [
        ((-10, 0), -1.0, -1),
        ((-10, 0), None, -1),
        ((-10, 0), 0.0, -1),
        ((None, None), -1.0, -1),
        ((None, -1e-3), 5.0, -1),
        ((0, None), -1.0, 1),
        ((None, None), None, 1),
    ],
)
def test_the_algebraic_root_is_that_of_the_model(bounds, initial, sign):
    times = np.array([0.0, 0.5, 1.5])
    came = simulation(branches(bounds, initial), times).run(np.array([0.8]))
    assert came.implicit[:, 0] == pytest.approx(sign + 0.4 * times, rel=1e-6)
    assert came.by_unknown[:, 0, 0] == pytest.approx(times * (sign + 0.4 * times), rel=1e-6)


def test_a_root_outside_the_bounds_is_a_status():
    came = simulation(branches((2.0, 10.0), 3.0), [0.0, 1.0]).run(np.array([0.8]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)


def test_algebraic_variables_of_any_size():
    problem = branches((-1e-8, 0), -1e-9, size=1e-9)
    times = np.array([0.0, 0.5, 1.5])
    came = simulation(problem, times).run(np.array([0.8]))
    assert came.implicit[:, 0] / 1e-9 == pytest.approx(-1 + 0.4 * times, rel=1e-6)


def test_an_algebraic_variable_may_leave_zero_quickly():
    """A rectifier: a diode, and a capacitor with its load."""
    times = np.linspace(0.1, 1.0, 10)

    def rectifier(times):
        m = over_time(times, "V", C=(0.05, 5), G=(0.01, 5), Is=(1e-6, 0.1))
        m.i = pyo.Var(m.t, bounds=(-1, 10), initialize=0.0)

        def diode(m, t):
            drop = 5 * pyo.sin(3 * t) - m.V[t] - 0.4 * m.i[t]
            return m.i[t] == m.Is * (pyo.exp(drop / 0.1) - 1)

        m.charge = pyo.Constraint(m.t, rule=lambda m, t: m.C * m.dV[t] == m.i[t] - m.G * m.V[t])
        m.diode = pyo.Constraint(m.t, rule=diode)
        return m

    data = Experiment(pd.DataFrame({"time": times, "V": 0.0}), start={"V": 0.0}, start_time=0.0)
    problem = Problem(rectifier, parameters=["C", "G", "Is"], experiments=data)
    rough, fine = (Sundials(rtol=r, atol=r / 100) for r in (1e-7, 1e-9))
    x = np.array([0.55463, 0.33969, 0.0039444])
    came, close = (simulation(problem, times, method=m).run(x) for m in (fine, rough))
    assert came.status is Status.CONVERGED
    assert came.states == pytest.approx(close.states, rel=1e-4)


def test_an_exponential_of_another_state_may_be_a_state():
    """A stirred tank with r = k exp(-12.5/T) as a state, which grows to 1e18."""
    tau, T_in, heat, cooling = 0.675, 0.688, 0.784, 0.747

    def slope(t, c, T, r, sin):
        loss = cooling * (2 * T - 0.857 - 0.057 * sin(0.5 * t))
        dT = (T_in - T) / (2 * tau) + 0.0286 * heat * r * c - loss
        return (1 - c) / (2 * tau) - 2 * r * c, dT, 12.5 * r / T**2 * dT

    def part(i):
        return lambda m, t: slope(t, m.c[t], m.T[t], m.r[t], pyo.sin)[i]

    build = ode({name: part(i) for i, name in enumerate("cTr")}, c0=(0, 1))
    start = {"c": "c0", "T": 0.187, "r": 0.234}
    data = pd.DataFrame({"time": [0.0, 10.0, 20.0], "T": [0.2, 0.5, 0.5]})
    given = Problem(build, parameters=["c0"], experiments=Experiment(data, start=start))
    run = igpe.simulate(given, {"c0": 0.49}, integrator=igpe.integrators.Sundials())
    by_scipy = solve_ivp(
        lambda t, x: slope(t, *x, np.sin), (0, 20), [0.49, 0.187, 0.234],
        "LSODA", rtol=1e-10, atol=1e-24,
    )  # fmt: skip
    assert by_scipy.y[2].max() > 1e16
    assert run["T"].iloc[-1] == pytest.approx(by_scipy.y[1, -1], rel=1e-6)
    assert run["r"].iloc[-1] == pytest.approx(by_scipy.y[2, -1], rel=1e-3)
