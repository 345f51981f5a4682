"""Where a model itself says that states start: fixed values, equations at the first time, lists."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe

TIMES = np.linspace(0.5, 3.0, 6)
DECAY, FIRST = 0.7, 2.0


def decay(times):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.z, m.k, m.z0 = pyo.Var(m.t), pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.dz = dae.DerivativeVar(m.z)
    return m


def rate(m, t):
    return m.dz[t] == -m.k * m.z[t]


def skipped_at_first(m, t):
    return pyo.Constraint.Skip if t == m.t.first() else rate(m, t)


def in_a_list(times):
    m = decay(times)
    m.rate = pyo.Constraint(m.t, rule=skipped_at_first)
    m.init = pyo.ConstraintList()
    m.init.add(m.z[0] == m.z0)
    return m


def alone(times):
    m = decay(times)
    m.rate = pyo.Constraint(m.t, rule=rate)
    m.init = pyo.Constraint(expr=m.z[0] == m.z0)
    return m


def over_the_first_time(times):
    m = decay(times)
    m.rate = pyo.Constraint(m.t, rule=rate)
    m.init = pyo.Constraint(
        m.t, rule=lambda m, t: m.z[t] == m.z0 if t == 0 else pyo.Constraint.Skip
    )
    return m


def in_place_of_the_balance(times):
    m = decay(times)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.z0 if t == 0 else rate(m, t))
    return m


@pytest.mark.parametrize("model", [in_a_list, alone, over_the_first_time, in_place_of_the_balance])
def test_an_equation_at_the_first_time_is_the_start(model):
    data = pd.DataFrame({"time": TIMES, "z": FIRST * np.exp(-DECAY * TIMES)})
    run = igpe.Experiment(data, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(model, parameters=["k", "z0"], experiments=run)
    found = igpe.simulate(problem, {"k": DECAY, "z0": FIRST}, TIMES)
    assert found["z"].to_numpy() == pytest.approx(data["z"].to_numpy(), rel=1e-6)
    estimate = igpe.estimate(problem, certify=False)
    assert estimate.parameters == pytest.approx({"k": DECAY, "z0": FIRST}, rel=1e-4)


def closed_by_a_sum(times):
    """All three have derivatives; the balance of the last is replaced by the sum."""
    m = pyo.ConcreteModel()
    m.t, m.s = dae.ContinuousSet(initialize=times), pyo.Set(initialize=["A", "B", "C"])
    m.c, m.k = pyo.Var(m.t, m.s), pyo.Var(bounds=(0, 10))
    m.dc = dae.DerivativeVar(m.c)
    m.A = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t, "A"] == -m.k * m.c[t, "A"])
    m.B = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t, "B"] == 0.5 * m.k * m.c[t, "A"])
    m.sum = pyo.Constraint(m.t, rule=lambda m, t: sum(m.c[t, s] for s in m.s) == 1)
    m.init = pyo.Constraint(m.s, rule=lambda m, s: m.c[0, s] == (1.0 if s == "A" else 0.0))
    return m


def test_what_has_a_derivative_that_no_equation_uses_is_no_state():
    data = pd.DataFrame({"time": TIMES, "c[C]": TIMES})
    run = igpe.Experiment(data, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(closed_by_a_sum, parameters=["k"], experiments=run)
    assert list(problem.instance.states) == ["c[A]", "c[B]"]
    found = igpe.simulate(problem, {"k": DECAY}, TIMES)
    exact = 0.5 * (1 - np.exp(-DECAY * TIMES))
    assert found["c[C]"].to_numpy() == pytest.approx(exact, rel=1e-6)


def of_the_dynopt_guide(times):
    """Pyomo's examples/dae/Parameter_Estimation.py: both start values are the parameters."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x1, m.x2 = pyo.Var(m.t), pyo.Var(m.t)
    m.p1, m.p2 = pyo.Var(bounds=(-1.5, 1.5)), pyo.Var(bounds=(-1.5, 1.5))
    m.dx1, m.dx2 = dae.DerivativeVar(m.x1), dae.DerivativeVar(m.x2)
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dx1[t] == m.x2[t])
    m.other = pyo.Constraint(m.t, rule=lambda m, t: m.dx2[t] == 1 - 2 * m.x2[t] - m.x1[t])

    @m.ConstraintList()
    def init(m):
        yield m.x1[0] == m.p1
        yield m.x2[0] == m.p2

    return m


def test_the_parameters_of_dynopts_example_are_those_of_linear_least_squares():
    """x1 = 1 + (a + b t) exp(-t) with a = p1 - 1, b = p2 + a: linear in the parameters."""
    times, x1 = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.264, 0.594, 0.801, 0.959])
    columns = np.exp(-times)[:, None] * np.column_stack([np.ones(4), times])
    a, b = np.linalg.lstsq(columns, x1 - 1, rcond=None)[0]
    data = pd.DataFrame({"time": times, "x1": x1})
    problem = igpe.Problem(
        of_the_dynopt_guide,
        parameters=["p1", "p2"],
        experiments=igpe.Experiment(data, start_time=0.0, sigma="equal"),
    )
    found = igpe.estimate(problem, certify=False)
    assert found.parameters == pytest.approx({"p1": 1 + a, "p2": b - a}, abs=1e-5)


def with_a_profile(times):
    """Pyomo's examples/dae/simulator_dae_multindex_example.py: A <=> B <=> C, p1 jumps at 0.5."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.p1 = pyo.Param(m.t, mutable=True, initialize=4.0)
    m.p2, m.p3, m.p4 = (pyo.Var(bounds=(1, 100)) for _ in range(3))
    m.za, m.zb, m.zc = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.dza, m.dzb = dae.DerivativeVar(m.za), dae.DerivativeVar(m.zb)
    m.one = pyo.Constraint(m.t, rule=lambda m, t: m.dza[t] == -m.p1[t] * m.za[t] + m.p2 * m.zb[t])
    m.two = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dzb[t] == m.p1[t] * m.za[t] - (m.p2 + m.p3) * m.zb[t] + m.p4 * m.zc[t],
    )
    m.three = pyo.Constraint(m.t, rule=lambda m, t: m.za[t] + m.zb[t] + m.zc[t] == 1)
    m.init = pyo.ConstraintList()
    m.init.add(m.za[0] == 1)
    m.init.add(m.zb[0] == 0)
    return m


def test_the_batch_reactor_of_pyomos_simulator_is_estimated():
    times, truth = np.linspace(0.05, 1.0, 20), {"p2": 2.0, "p3": 40.0, "p4": 20.0}

    def posed(data):
        inputs = {"p1": igpe.step_input([0.0, 0.5], [4.0, 1.0])}
        run = igpe.Experiment(data, start_time=0.0, sigma=1e-3, inputs=inputs)
        return igpe.Problem(with_a_profile, parameters=list(truth), experiments=run)

    names = ["za", "zb", "zc"]
    empty = pd.DataFrame({"time": times} | dict.fromkeys(names, times))
    exact = igpe.simulate(posed(empty), truth, times)[["time", *names]]
    found = igpe.estimate(posed(exact), certify=False)
    assert found.parameters == pytest.approx(truth, rel=1e-3)
