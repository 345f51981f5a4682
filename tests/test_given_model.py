"""A model that is given itself, in place of a function that builds it."""

import pickle

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import ModelError, ProblemError

TIMES = np.linspace(1.0, 8.0, 8)
NOISE = 0.002 * np.random.default_rng(1).standard_normal(8)
TABLE = pd.DataFrame({"time": TIMES, "c": np.exp(-0.3 * TIMES) + NOISE})


def decaying(law=None, points=(0, 10)):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=points)
    m.k, m.c = pyo.Var(bounds=(0.01, 10)), pyo.Var(m.t)
    m.dc = dae.DerivativeVar(m.c)
    m.c[m.t.first()].fix(1.0)
    if law is not None:
        m.law = pyo.Constraint(m.t, rule=law)
    return m


def first_order(m, t):
    return m.dc[t] == -m.k * m.c[t]


def pose(model, table=TABLE, parameters=("k",), start_time=0.0, **given):
    run = igpe.Experiment(table, start_time=start_time, **given)
    return igpe.Problem(model, parameters=parameters, experiments=run)


def estimated(problem):
    return igpe.estimate(problem, certify=False).parameters["k"]


def test_a_model_and_a_function_are_the_same_problem():
    m = decaying(first_order)
    by_function = pose(lambda times: decaying(first_order, times))
    assert estimated(pose(m)) == estimated(by_function) == pytest.approx(0.3, rel=0.01)
    assert list(m.t) == [0, 10]
    assert len(m.c) == len(m.law) == 2
    assert m.k.value is None


def test_parameters_may_be_the_models_own():
    m = decaying(first_order)
    assert estimated(pose(m, parameters=[m.k])) == estimated(pose(m))
    bounds = pyo.ComponentMap([(m.k, (0.1, 1))])
    assert pose(m, parameters=bounds).box.upper.tolist() == [1.0]
    assert pose(m, parameters=[m.k]).parameters == ("k",)


def test_later_changes_of_the_model_do_not_reach_the_problem():
    m = decaying(first_order)
    problem = pose(m)
    m.c[0].fix(5.0)
    assert igpe.simulate(problem, {"k": 0.3}, TIMES)["c"][0] == pytest.approx(np.exp(-0.3))


def test_pickle_keeps_it():
    k = []
    problem = pose(decaying(lambda m, t: first_order(m, t) if not k else None))  # no module has it
    assert estimated(pickle.loads(pickle.dumps(problem))) == estimated(problem)


def test_a_rule_may_hold_components_of_the_original():
    m = decaying()
    k = m.k
    m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == -k * m.c[t])
    assert estimated(pose(m)) == pytest.approx(0.3, rel=0.01)


def test_what_is_fixed_at_all_its_times_is_fixed():
    m = decaying()
    m.u = pyo.Var(m.t, initialize=2.0)
    m.u.fix()
    m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == -m.k * m.u[t] * m.c[t])
    assert estimated(pose(m)) == pytest.approx(0.15, rel=0.01)


def test_blocks_and_points_in_space():
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(bounds=(0, 3)), dae.ContinuousSet(bounds=(0, 1))
    m.k, m.c = pyo.Var(bounds=(0.01, 10)), pyo.Var(m.t, m.x)
    m.rod = pyo.Block()
    m.rod.by_t, m.rod.by_x = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)

    @m.rod.Constraint(m.t, m.x)
    def balance(rod, t, x):
        flow = rod.by_t[t, x] == -rod.by_x[t, x] - m.k * m.c[t, x]
        return pyo.Constraint.Skip if x == 0 else flow

    m.inlet = pyo.Constraint(m.t, rule=lambda m, t: m.c[t, 0] == 1)

    def posed(model):
        times = np.linspace(0.5, 3, 6)
        run = igpe.Experiment(
            pd.DataFrame({"time": times, "c[1]": 0.5}), start={"c": 0.0}, start_time=0.0
        )
        return igpe.Problem(model, parameters=["k"], experiments=run, space={"x": 10})

    with pytest.raises(ModelError, match=r"rod.balance.*first argument.*function model\(times\)"):
        posed(m)
    m.rod.del_component("balance")

    @m.rod.Constraint(m.t, m.x)
    def own(rod, t, x):
        whole = rod.model()
        flow = rod.by_t[t, x] == -rod.by_x[t, x] - whole.k * whole.c[t, x]
        return pyo.Constraint.Skip if x == 0 else flow

    outlet = igpe.simulate(posed(m), {"k": 0.5}, [3.0])["c[1]"][0]
    assert outlet == pytest.approx((1 + 0.05) ** -10, rel=0.01)


@pytest.mark.parametrize("mutable", [False, True])
@pytest.mark.parametrize("slope", [0, 1])
def test_the_rule_of_a_param_gives_its_values_at_further_times(mutable, slope):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(bounds=(0, 2))
    m.c, m.k = pyo.Var(m.t), pyo.Var(bounds=(0, 5))
    m.dc = dae.DerivativeVar(m.c)
    m.f = pyo.Param(m.t, initialize=lambda m, t: 2 + slope * t, mutable=mutable)
    m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == -m.k * m.f[t] * m.c[t])
    times = np.linspace(0.2, 2.0, 10)
    data = pd.DataFrame({"time": times, "c": np.exp(-1.4 * times)})
    run = igpe.Experiment(data, start={"c": 1.0}, start_time=0.0)
    posed = igpe.Problem(m, parameters=["k"], experiments=run)
    if slope:
        with pytest.raises(ModelError, match=r"numbers that depend on time, for example .* 'f'"):
            igpe.check(posed)
        return
    result = igpe.estimate(posed, certify=False)
    assert result.parameters["k"] == pytest.approx(0.7, rel=1e-6)


def test_tables_in_rules_are_refused_where_times_are_added():
    held = {0: 1.0, 10: 2.0}
    m = decaying(lambda m, t: m.dc[t] == -m.k * held[t] * m.c[t])
    with pytest.raises(ModelError, match=r"law.*at 1.0: KeyError.*inputs"):
        pose(m)
    m = decaying()
    m.u = pyo.Param(m.t, initialize=held)
    m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == -m.k * m.u[t] * m.c[t])
    with pytest.raises(ModelError, match=r"Param value is undefined.*Pass tabulated data"):
        pose(m)


def test_a_measurement_after_the_models_end_is_refused():
    late = pd.DataFrame({"time": [1.0, 12.0], "c": [0.7, 0.03]})
    with pytest.raises(ModelError, match=r"from 0 to 10, but the time 12.*bounds=\(0, 12\)"):
        pose(decaying(first_order), late)


@pytest.mark.parametrize("given", ["model", "function"])
def test_start_values_of_an_earlier_time_are_refused(given):
    """c = 1 at the model's time 0 is not c = 1 where an experiment begins at 0.5."""

    def build(times):
        return decaying(first_order, [0.0, *times])

    model = decaying(first_order) if given == "model" else build
    with pytest.raises(ProblemError, match=r"'c'.*at its first time, 0, but .* begins at 0.5"):
        pose(model, start_time=0.5)
    assert estimated(pose(model, start_time=0.5, start={"c": 0.86})) > 0


def test_a_model_that_begins_later_asks_for_the_start_time():
    table = TABLE[TABLE["time"] >= 3]
    with pytest.raises(ModelError, match=r"refer to 2, pass Experiment\(start_time=2\)"):
        pose(decaying(first_order, (2, 10)), table)
    with pytest.raises(ModelError, match=r"Give its ends .*bounds=\(0, 10\)"):
        pose(decaying(first_order, (2, 10)))


def tube(*names):
    m = pyo.ConcreteModel()
    for name in names:
        m.add_component(name, dae.ContinuousSet(bounds=(0, 10 if name == "t" else 1)))
    m.k, m.c = pyo.Var(bounds=(0, 10)), pyo.Var(m.t, m.x)
    m.dc, m.dx = dae.DerivativeVar(m.c, wrt=m.t), dae.DerivativeVar(m.c, wrt=m.x)
    return m


@pytest.mark.parametrize("names", ["tx", "xt"])
def test_a_grid_is_asked_for_space(names):
    with pytest.raises(ModelError, match=r"space=\{'x': 50\}"):
        pose(tube(*names))


def test_a_set_that_no_derivative_is_by_is_asked_a_grid():
    m = decaying(first_order)
    m.z = dae.ContinuousSet(bounds=(0, 10))
    with pytest.raises(ModelError, match=r"space=\{'z': 50\}"):
        pose(m)


def test_time_in_space_is_named():
    run = igpe.Experiment(TABLE.rename(columns={"c": "c[1]"}), start_time=0.0)
    with pytest.raises(ModelError, match=r"takes 'x' for time since space= contains \['t'\]"):
        igpe.Problem(tube("t", "x"), parameters=["k"], experiments=run, space={"t": 20})


def test_a_discretised_model_has_no_builder():
    m = decaying(first_order)
    pyo.TransformationFactory("dae.finite_difference").apply_to(m, nfe=3)
    with pytest.raises(ModelError, match="Pass the model as it is before") as error:
        pose(m)
    assert "builder" not in str(error.value)
