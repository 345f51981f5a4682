"""Where a model itself says that states start: fixed values, equations at the first time, lists."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo import dae

import igpe
from igpe.core.errors import ProblemError

TIMES = np.linspace(0.5, 3.0, 6)
DECAY, FIRST = 0.7, 2.0


def decay(times):
    m = over_time(times, "z", k=(0, 10), z0=(0, 10))
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


@pytest.mark.parametrize("value", [lambda m: 0.1 * m.k, {0.0: 1.0}])
def test_a_function_or_a_table_is_no_start_of_a_single_state(value):
    data = pd.DataFrame({"time": TIMES, "z": FIRST * np.exp(-DECAY * TIMES)})
    run = igpe.Experiment(data, start={"z": value}, start_time=0.0)
    with pytest.raises(igpe.errors.ProblemError, match=r"'z' is a single state.*m\.x\[0\] =="):
        igpe.Problem(alone, parameters=["k"], experiments=run)


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


def begins_at_inputs(times):
    m = decay(times)
    m.A0, m.feed = pyo.Param(mutable=True), pyo.Param(m.t, mutable=True, default=9.0)
    m.rate = pyo.Constraint(m.t, rule=rate)
    m.start = pyo.Constraint(expr=m.z[m.t.first()] == m.A0 + m.feed[m.t.first()])
    return m


def test_a_start_condition_has_each_experiments_inputs_at_the_start():
    """The parameter A0 has no number of its own, and `feed` another one."""
    sizes = {"a": 1.0, "b": 2.0}
    runs = [
        igpe.Experiment(
            pd.DataFrame({"time": TIMES, "z": (size + 3) * np.exp(-DECAY * TIMES)}),
            name=name,
            start_time=0.0,
            inputs={"A0": size, "feed": pd.Series([3.0, 4.0], index=[0.0, 3.0])},
            sigma=0.01,
        )
        for name, size in sizes.items()
    ]
    problem = igpe.Problem(begins_at_inputs, parameters=["k"], experiments=runs)
    found = igpe.simulate(problem, {"k": DECAY}, TIMES).set_index("experiment")["z"]
    for run in runs:
        assert found[run.name].to_numpy() == pytest.approx(run.measurements.value, rel=1e-6)
    free = {"feed": igpe.planning.Levels((0.0, 1.0), 0, 5)}
    with pytest.raises(igpe.errors.ProblemError, match="the start condition 'start' contains it"):
        igpe.design(problem, {"k": DECAY}, free=free, times=TIMES)


def test_a_start_value_that_names_an_input_says_what_to_write():
    data = pd.DataFrame({"time": TIMES, "z": np.exp(-TIMES)})
    run = igpe.Experiment(data, start_time=0.0, start={"z": "A0"}, inputs={"A0": 1.0})
    with pytest.raises(igpe.errors.ProblemError, match=r"m\.z\[m\.t\.first\(\)\] == m\.A0"):
        igpe.Problem(begins_at_inputs, parameters=["k"], experiments=run)


def contradicting(condition):
    def build(times):
        m = over_time(times, "z y", k=(0, 10))
        m.rate = pyo.Constraint(m.t, rule=rate)
        m.other = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == m.k * m.z[t])
        m.z[0].fix(0.7)
        m.y[0].fix(0.3)
        m.j = pyo.Constraint(expr=condition(m))
        return m

    table = pd.DataFrame({"time": TIMES, "z": 0.7 * np.exp(-DECAY * TIMES)})
    return igpe.Problem(build, parameters=["k"], experiments=igpe.Experiment(table))


@pytest.mark.parametrize(
    "condition", [lambda m: m.z[0] == 0.5, lambda m: m.z[0] + m.y[0] == 2, lambda m: m.y[0] == 0]
)
def test_a_condition_that_contradicts_the_start_is_named(condition):
    with pytest.raises(ProblemError, match=r"'j', .*, contradicts the start values"):
        contradicting(condition)


@pytest.mark.parametrize(
    "condition",
    [
        lambda m: m.z[0] + m.y[0] == 1,
        lambda m: m.z[0] == m.k,
        lambda m: m.z[0] <= 0.5,
        lambda m: m.z[0] == 0.1 + 0.6,
    ],
)
def test_a_condition_that_holds_or_is_of_unknowns_is_none(condition):
    contradicting(condition)


@pytest.mark.parametrize("last", [False, True])
def test_a_condition_ties_a_start_that_nothing_measured_depends_on(last):
    """Of a start and another quantity the sum is 1; z alone is measured."""

    def model(times):
        m = over_time(times, "z w", k=(0, 10))
        m.rate = pyo.Constraint(m.t, rule=rate)
        m.growth = pyo.Constraint(m.t, rule=lambda m, t: m.dw[t] == m.k * m.z[t])
        m.sum = pyo.Constraint(expr=m.z[0] + m.w[m.t.last() if last else 0] == 1)
        return m

    table = pd.DataFrame({"time": TIMES, "z": 0.3 * np.exp(-DECAY * TIMES)})
    start = dict.fromkeys(["z", "w"], igpe.Unknown(0, 5))
    run = igpe.Experiment(table, start=start, start_time=0.0, sigma=0.01)
    found = igpe.estimate(igpe.Problem(model, parameters=["k"], experiments=run)).parameters
    grown = 0.3 * (1 - np.exp(-DECAY * TIMES[-1])) if last else 0.0
    assert found["w(t0)"] == pytest.approx(0.7 - grown, rel=1e-3)
