"""Integration against independent solutions, sensitivities against differences."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from zoo import ZOO

from igpe.equations.initial_value import initial_value_problem
from igpe.equations.system import read_system
from igpe.experiment import Experiment, Unknown
from igpe.inputs import steps
from igpe.integrators.sundials import Sundials
from igpe.problem import Problem
from igpe.status import Status


def simulation(problem, times, *, sensitivities=True, method=Sundials()):
    """The first experiment's problem, made ready."""
    run = problem.experiments[0]
    ivp = initial_value_problem(problem, run, read_system(problem, run))
    return method.prepare(ivp, times, sensitivities=sensitivities)


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


@pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)
@pytest.mark.parametrize("sensitivities", [True, False])
def test_the_zoo_as_simulated_elsewhere(case, sensitivities):
    problem = case.problem()
    made = simulation(problem, case.times, sensitivities=sensitivities)
    came = made.run(problem.box.vector(case.truth))
    assert came.status is Status.CONVERGED
    assert came.reached == case.times[-1]
    exact = case.data()[list(case.measured)].to_numpy()
    assert came.measured == pytest.approx(exact, rel=2e-6, abs=2e-7)


@pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)
def test_sensitivities_against_central_differences(case):
    problem = case.problem()
    made = simulation(problem, case.times, method=Sundials(rtol=1e-11, atol=1e-13))
    q = problem.box.vector(case.near)
    came = made.run(q)
    for i in range(len(q)):
        h = 1e-4 * q[i] * np.eye(len(q))[i]
        up, down = made.run(q + h), made.run(q - h)
        for exact, high, low in (
            (came.measured_by_unknown, up.measured, down.measured),
            (came.by_unknown, up.states, down.states),
        ):
            central = (high - low) / (2 * h[i])
            assert exact[:, :, i] == pytest.approx(central, rel=1e-5, abs=1e-5 * abs(central).max())


def test_an_unknown_start_and_an_unknown_of_zero():
    problem = one_state(lambda m, t: -m.k * m.x[t], start=Unknown(0, 5))
    made = simulation(problem, [0.0, 1.0, 2.0])
    t = np.array([0.0, 1.0, 2.0])
    came = made.run(np.array([0.7, 3.0]))
    assert came.states[:, 0] == pytest.approx(3 * np.exp(-0.7 * t), rel=1e-7)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-3 * t * np.exp(-0.7 * t), rel=1e-6)
    assert came.by_unknown[:, 0, 1] == pytest.approx(np.exp(-0.7 * t), rel=1e-6)
    still = made.run(np.array([0.0, 3.0]))
    assert still.by_unknown[:, 0, 0] == pytest.approx(-3 * t, rel=1e-7, abs=1e-12)


def test_inputs_that_jump_against_the_exact_solution():
    feed = steps([0.0, 0.5, 1.25], [1.0, -3.0, 10.0])
    problem = one_state(lambda m, t: m.u[t] - m.k * m.x[t], inputs={"u": feed})
    times = np.array([0.0, 0.3, 0.5, 1.0, 1.25, 1.7, 2.0])
    came = simulation(problem, times).run(np.array([0.8]))

    def exact(k, end):
        x, begin = 1.0, 0.0
        for stop, u in zip([0.5, 1.25, 9.0], feed.values, strict=True):
            length = max(min(end, stop) - begin, 0.0)
            x = u / k + (x - u / k) * np.exp(-k * length)
            begin = max(begin, min(end, stop))
        return x

    assert came.states[:, 0] == pytest.approx([exact(0.8, t) for t in times], rel=1e-7)
    central = [(exact(0.8 + 1e-6, t) - exact(0.8 - 1e-6, t)) / 2e-6 for t in times]
    assert came.by_unknown[:, 0, 0] == pytest.approx(central, rel=1e-6, abs=1e-8)


def test_linear_inputs_and_functions_of_time_against_the_exact_solution():
    ramp = pd.Series([0.0, 1.0, 0.0], index=[0.0, 1.0, 2.0])
    problem = one_state(lambda m, t: m.u[t] + 0 * m.k, inputs={"u": ramp}, start=0.0)
    came = simulation(problem, [0.5, 1.0, 1.5, 2.0, 3.0]).run(np.array([1.0]))
    assert came.states[:, 0] == pytest.approx([0.125, 0.5, 0.875, 1.0, 1.0], rel=1e-7)
    smooth = {"u": pyo.cos}
    problem = one_state(lambda m, t: m.k * m.u[t], inputs=smooth, start=0.0)
    came = simulation(problem, [1.0, 2.0]).run(np.array([2.0]))
    assert came.states[:, 0] == pytest.approx(2 * np.sin([1.0, 2.0]), rel=1e-7)


def test_a_finite_escape_is_a_status_that_says_how_far():
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)  # x = 1 / (1 - k t)
    times = np.array([0.0, 0.25, 0.5, 0.75, 1.5, 2.0])
    came = simulation(problem, times).run(np.array([1.0]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reached == 0.75
    assert came.states[:4, 0] == pytest.approx(1 / (1 - times[:4]), rel=1e-6)
    assert np.isnan(came.states[4:]).all()
    assert np.isnan(came.measured[4:]).all()
    again = simulation(problem, times).run(np.array([0.25]))
    assert again.status is Status.CONVERGED


def test_a_break_down_before_the_first_output_reaches_only_the_start():
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)
    came = simulation(problem, [1.5, 2.0]).run(np.array([1.0]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)
    assert np.isnan(came.states).all()


def test_a_right_hand_side_without_a_number_is_a_status():
    problem = one_state(lambda m, t: -pyo.sqrt(m.x[t] - m.k))
    came = simulation(problem, [0.5, 1.0]).run(np.array([3.0]))
    assert came.status is Status.INTEGRATION_BROKE


@pytest.mark.parametrize("times", [[0.0], [0.0, 1.0], [1.0], [0.0, 1e-9, 2.0]])
def test_times_may_contain_the_start_and_nothing_else(times):
    problem = one_state(lambda m, t: -m.k * m.x[t])
    came = simulation(problem, times).run(np.array([0.5]))
    assert came.status is Status.CONVERGED
    assert came.reached == times[-1]
    assert came.measured[:, 0] == pytest.approx(np.exp(-0.5 * np.array(times)), rel=1e-7)
    assert came.measured_by_unknown.shape == (len(times), 1, 1)


def test_the_start_of_a_dae_is_consistent():
    case = next(c for c in ZOO if c.name == "dimer")
    came = simulation(case.problem(), [0.0, 1e-6]).run(np.array([0.6, 0.5]))
    root = (np.sqrt(1 + 8 * 0.5 * 3.0) - 1) / (4 * 0.5)
    assert came.implicit[0, 0] == pytest.approx(root, rel=1e-9)
    by_K = ((1 + 24 * 0.5) ** -0.5 * 12 * 2 - 4 * (np.sqrt(13.0) - 1)) / (4 * 0.5**2 * 4)
    assert came.measured_by_unknown[0, 1] == pytest.approx([0.0, by_K], rel=1e-8, abs=1e-10)


def robertson(times):
    """Robertson's stiff kinetics, with its conservation as an algebraic equation."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.a, m.b, m.c = (pyo.Var(m.t) for _ in range(3))
    m.da, m.db = dae.DerivativeVar(m.a), dae.DerivativeVar(m.b)
    m.k = pyo.Var(bounds=(0.001, 1))
    m.gain = pyo.Expression(m.t, rule=lambda m, t: m.k * m.a[t] - 1e4 * m.b[t] * m.c[t])
    m.rate_a = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == -m.gain[t])
    m.rate_b = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == m.gain[t] - 3e7 * m.b[t] ** 2)
    m.all = pyo.Constraint(m.t, rule=lambda m, t: m.a[t] + m.b[t] + m.c[t] == 1)
    return m


def test_stiff_kinetics_as_published():
    """Hairer & Wanner's problem ROBER at 0.4 and 40 (reference of the SUNDIALS manual)."""
    table = pd.DataFrame({"time": [0.4, 40.0], "a": [0.98517, 0.71583]})
    run = Experiment(table, start={"a": 1.0, "b": 0.0}, start_time=0.0)
    problem = Problem(robertson, parameters=["k"], experiments=run)
    came = simulation(problem, [0.4, 40.0]).run(np.array([0.04]))
    published = [[9.8517e-01, 3.3864e-05], [7.1583e-01, 9.1855e-06]]
    assert came.states == pytest.approx(np.array(published), rel=1e-5)


def branches(bounds, initial, *, size=1.0, times=(0.0, 0.5, 1.5)):
    """dx = k z, z^2 = x size: z has two branches; on the lower sqrt(x) falls linearly."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.z = pyo.Var(m.t), pyo.Var(m.t, bounds=bounds, initialize=initial)
        m.dx = dae.DerivativeVar(m.x)
        m.k = pyo.Var(bounds=(0, 5))
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


def test_what_rests_moves_nothing_even_where_the_slope_is_infinite():
    """sqrt(x) at x = 0: its derivative by k is 0, and that of + k is 1."""

    def build(times):
        m = one_state(lambda m, t: m.k - 0 * m.x[t]).model(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: pyo.sqrt(m.x[t]) + m.k)
        return m

    run = Experiment(pd.DataFrame({"time": [0.0, 4.0], "y": [1.0, 3.0]}), start={"x": 0.0})
    came = simulation(Problem(build, parameters=["k"], experiments=run), [0.0, 4.0]).run(np.ones(1))
    assert came.measured_by_unknown[:, 0, 0] == pytest.approx([1.0, 2.0], rel=1e-6)


def test_a_reaction_of_unknown_order_that_starts_at_nothing():
    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.B = pyo.Var(m.t), pyo.Var(m.t)
        m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
        m.k, m.n = pyo.Var(bounds=(0, 5)), pyo.Var(bounds=(0.5, 3))
        m.fall = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -2 * m.A[t])
        m.rise = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == 2 * m.A[t] - m.k * m.B[t] ** m.n)
        return m

    times = np.linspace(0.0, 4.0, 5)
    run = Experiment(
        pd.DataFrame({"time": times, "B": 1.0 + 0 * times}), start={"A": 1.0, "B": 0.0}
    )
    problem = Problem(build, parameters=["k", "n"], experiments=run)
    made, q = simulation(problem, times), np.array([0.5, 1.5])
    came = made.run(q)
    assert came.status is Status.CONVERGED
    for i, h in enumerate(1e-4 * np.eye(2)):
        central = (made.run(q + h).measured - made.run(q - h).measured) / 2e-4
        assert came.measured_by_unknown[:, :, i] == pytest.approx(central, rel=1e-4, abs=1e-5)
