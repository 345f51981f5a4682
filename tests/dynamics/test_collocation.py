"""Exact data of a known solution give the parameters back, whatever form the problem has."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from pyomo import dae

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.losses import L1, NormalPrior
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 3.0, 13)
DECAY = np.exp(-0.8 * TIMES)
FIT = Collocation()


def decay(times, change=lambda m: None):
    """dA/dt = -k A + u, with everything that tests may need and otherwise fix."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, initialize=1.0)
    m.dA = dae.DerivativeVar(m.A)
    m.k, m.A0, m.scale = (pyo.Var(bounds=(0, 10), initialize=1.0) for _ in range(3))
    m.u = pyo.Param(m.t, mutable=True, default=0.0)
    m.scale.fix()
    m.signal = pyo.Expression(m.t, rule=lambda m, t: m.scale * m.A[t])
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.u[t])
    m.own = pyo.Objective(expr=m.k)
    change(m)
    return m


def changed(change):
    return lambda times: decay(times, change)


def chain(times):
    """A -> B -> C with B at rate r, algebraic; equations are skipped at the first time."""
    m = over_time(times, "A B", "r", k1=(0, 10), k2=(0, 10))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.r[t] == m.k1 * m.A[t])

    def balance(m, t):
        return pyo.Constraint.Skip if t == m.t.first() else m.dA[t] == -m.r[t]

    m.balance_A = pyo.Constraint(m.t, rule=balance)
    m.balance_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.r[t] - m.k2 * m.B[t])
    return m


def spring_up_to(most):
    slopes = {"x": lambda m, t: m.v[t], "v": lambda m, t: -(m.w**2) * m.x[t]}
    return ode(slopes, w=(0.1, most))


spring = spring_up_to(20.0)


def periodic(times):
    m = spring(times)
    m.period = pyo.Constraint(expr=m.x[m.t.first()] == m.x[m.t.last()])
    return m


def twice(m):
    m.begins = pyo.Constraint(expr=m.A[m.t.first()] == 2 * m.A0)


def fixed_start(m):
    m.A[m.t.first()].fix(2.5)


def params(m):
    m.loss = pyo.Param(initialize=1.0, mutable=True)
    m.gain = pyo.Param(initialize=1.0, mutable=True)
    m.seen = pyo.Expression(m.t, rule=lambda m, t: m.gain * m.A[t])
    m.rate.deactivate()
    m.rate_2 = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.loss * m.A[t])


def undefined_at_the_start(m):
    m.odd = pyo.Var(m.t, initialize=1.0)
    m.dodd = dae.DerivativeVar(m.odd)
    m.rate_2 = pyo.Constraint(m.t, rule=lambda m, t: m.dodd[t] == m.k * (1 - m.A[t]) / (1 - m.A[t]))


def floor(m):
    m.floor = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0.2)


def growing(m):
    m.rate.deactivate()
    m.grows = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.k)


def discretised(times):
    m = decay([t for t in times if t in TIMES])
    scheme = pyo.TransformationFactory("dae.collocation")
    scheme.apply_to(m, wrt=m.t, nfe=len(m.t) - 1, ncp=4, scheme="LAGRANGE-RADAU")
    return m


def table(values, name="A", times=TIMES):
    return pd.DataFrame({"time": times, name: values})


def posed(builder=decay, data=DECAY, name="A", *, times=TIMES, parameters=("k",), of=(), **run):
    run = Experiment(table(data, name, times), **({"start": {"A": 1.0}} | run))
    return Problem(builder, parameters=parameters, experiments=run, **dict(of))


def of_chain():
    exact = 1.5 / (0.6 - 1.5) * (np.exp(-1.5 * TIMES) - np.exp(-0.6 * TIMES))
    exact[[0, 3, 7]] = np.nan
    return posed(chain, exact, "B", parameters=("k1", "k2"), start={"A": 1.0, "B": 0.0})


def of_rate():
    data = 1.5 * np.exp(-1.5 * TIMES)
    problem = posed(chain, data, "r", parameters=("k1", "k2"), start={"A": 1.0, "B": 0.0})
    return problem.fixing({"k2": 0.6})


STEP = DECAY + 2.5 * (1 - np.exp(-0.8 * np.maximum(TIMES - 1.1, 0.0)))
SUMS = np.arange(0, 1.01, 0.1)  # with 0.30000000000000004
STEP_AT = np.exp(-0.8 * SUMS) + 2.5 * (1 - np.exp(-0.8 * np.maximum(SUMS - 0.3, 0.0)))


def of_jump():
    return posed(data=STEP, inputs={"u": step_input([0.0, 1.1], [0.0, 2.0])})


def of_spring():
    times = np.linspace(0, np.pi, 13)
    noisy = np.cos(2 * times) + 0.02 * np.random.default_rng(1).standard_normal(13)
    return posed(periodic, noisy, "x", times=times, parameters=("w",), start={"x": 1.0, "v": 0.0})


def of_prior():
    prior = {"priors": {"k": NormalPrior(1.0, 0.5)}}
    more = {"start": {"A": 0.0}, "start_time": 0.0, "sigma": 0.5}
    return posed(changed(growing), [2.0], times=[1.0], of=prior, **more)


def fast(m):
    m.k.setub(1e7)


K = {"k": 0.5}, {"k": 0.8}
UNKNOWN = {"start": {"A": Unknown(0.1, 9.0)}}
FORMS = {
    "unknown start": (lambda: posed(data=2.5 * DECAY, **UNKNOWN), {"k": 0.5, "A(t0)": 1.0},
                      {"k": 0.8, "A(t0)": 2.5}),
    "held start": (lambda: posed(data=2.5 * DECAY, **UNKNOWN).fixing({"A(t0)": 2.5}), *K),
    "start by a parameter": (
        lambda: posed(data=2.5 * DECAY, parameters=("k", "A0"), start={"A": "A0"}),
        {"k": 0.5, "A0": 1.0}, {"k": 0.8, "A0": 2.5}),
    "start condition": (
        lambda: posed(changed(twice), 2.5 * DECAY, parameters=("k", "A0"), start={}),
        {"k": 0.5, "A0": 1.0}, {"k": 0.8, "A0": 1.25}),
    "start instead of a condition": (
        lambda: posed(changed(twice), 2.5 * DECAY, start={"A": 2.5}), *K),
    "fixed start": (lambda: posed(changed(fixed_start), 2.5 * DECAY, start={}), *K),
    "jump off the measured times": (of_jump, *K),
    "function of time": (
        lambda: posed(data=DECAY * (1 + TIMES), inputs={"u": lambda t: pyo.exp(-0.8 * t)}), *K),
    "mutable params": (
        lambda: posed(changed(params), 3 * DECAY, "seen",
                      parameters={"loss": (0, 5), "gain": (0, 9)}),
        {"loss": 1.2, "gain": 2.0}, {"loss": 0.8, "gain": 3.0}),
    "unmeasured state, missing values": (
        of_chain, {"k1": 1.2, "k2": 0.5}, {"k1": 1.5, "k2": 0.6}),
    "algebraic at the start": (of_rate, {"k1": 1.2}, {"k1": 1.5}),
    "undefined at the start": (
        lambda: posed(changed(undefined_at_the_start), 0.8 * TIMES, "odd",
                      start={"A": 1.0, "odd": 0.0}), *K),
    "inequality over time": (
        lambda: posed(changed(floor)), {"k": 0.4}, {"k": -np.log(0.2) / 3.0}),
    "periodicity": (of_spring, {"w": 1.9}, {"w": 2.0}),
    "prior": (of_prior, {"k": 1.0}, {"k": 1.5}),
    "times of the model": (lambda: posed(lambda t: decay([*t, 1.234, 4.0])), *K),
    "times of the model alone": (lambda: posed(lambda _: decay(TIMES)), *K),
    "times that differ from the model's by rounding": (
        lambda: posed(lambda t: decay(sorted({*t, 0.3, 0.6})), STEP_AT,
                      times=SUMS, inputs={"u": step_input([0.0, 0.3], [0.0, 2.0])}), *K),
    "microseconds": (
        lambda: posed(changed(fast), times=TIMES * 1e-6), {"k": 5e5}, {"k": 8e5}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_exact_data_give_the_parameters_back(name):
    make, start, truth = FORMS[name]
    found = FIT.estimate(make(), start)
    assert found.status is Status.CONVERGED
    assert "Radau" in found.method
    assert found.parameters == pytest.approx(truth, rel=1e-4, abs=1e-8)


def test_two_experiments_share_one_parameter_and_have_one_each():
    runs = [
        Experiment(table(DECAY), name="a", start={"A": 1.0}),
        Experiment(table(3 * 2 * DECAY, "signal"), name="b", start={"A": 2.0}),
    ]
    model = changed(lambda m: m.scale.unfix())
    problem = Problem(model, parameters=["k", "scale"], experiments=runs, local=["scale"])
    found = FIT.estimate(problem, {"k": 0.5, "scale@a": 1.0, "scale@b": 1.5})
    assert found.parameters["k"] == pytest.approx(0.8, rel=1e-4)
    assert found.parameters["scale@b"] == pytest.approx(3.0, rel=1e-4)
    fixed = FIT.estimate(problem.fixing({"k": 0.8, "scale@a": 1.0}), {"scale@b": 1.0})
    assert fixed.parameters == pytest.approx({"scale@b": 3.0}, rel=1e-4)


def test_the_model_is_lent_and_the_problem_unchanged():
    problem = posed()
    m = problem.instance.model

    def state():
        variables = m.component_data_objects(pyo.Var)
        components = [c.name for c in m.component_objects()]
        return [(v.name, v.value, v.fixed, v.bounds) for v in variables], components

    before = state()
    FIT.estimate(problem, {"k": 0.5})
    assert state() == before
    assert m.own.active


def test_refinement_stops_moving_and_its_trail_is_kept():
    stiff = np.array([0.0, 1.0, 2.0, 3.0])
    problem = posed(data=np.exp(-4.0 * stiff), times=stiff)
    found = FIT.estimate(problem, {"k": 3.0})
    assert found.status is Status.CONVERGED
    assert found.parameters["k"] == pytest.approx(4.0, rel=1e-4)
    assert len(found.trail) >= 1
    assert found.iterations > found.trail[-1].iterations > 0
    once = Collocation(max_refinements=0).estimate(problem, {"k": 3.0})
    assert once.status is Status.ITERATION_LIMIT
    assert abs(once.parameters["k"] - 4.0) > abs(found.parameters["k"] - 4.0)


def test_each_start_has_its_estimate_and_only_good_ones_are_refined():
    problem = posed(spring, np.sin(2 * TIMES), "x", parameters=("w",), start={"x": 0.0, "v": "w"})

    def course(w):
        return lambda n, t: {"x": np.sin(w * t), "v": w * np.cos(w * t)}[n]

    starts = [{"w": 1.9}, {"w": 6.0}, {"w": 2.1}]
    found = FIT.estimate_each(problem, starts, [[course(s["w"])] for s in starts])
    assert len(found) == 3
    assert found[0].parameters["w"] == pytest.approx(2.0, rel=1e-4)
    assert found[2].parameters == found[0].parameters
    assert found[0].trail
    if found[1].objective > 1e-3:
        assert not found[1].trail
    assert FIT.estimate_each(problem, []) == []


def test_a_models_own_discretisation_of_time_is_not_used():
    found = FIT.estimate(posed(discretised), {"k": 0.5})
    assert found.parameters == pytest.approx({"k": 0.8}, rel=1e-6)
    assert found.trail


def test_time_limit_and_infeasible_are_statuses():
    found = Collocation(time_limit=0.0).estimate(posed(), {"k": 0.5})
    assert found.status is Status.TIME_LIMIT

    def never(m):
        m.never = pyo.Constraint(expr=m.A[m.t.last()] >= 5.0)

    found = FIT.estimate(posed(changed(never)), {"k": 0.5})
    assert not found.status.usable
    assert found.parameters == {"k": 0.5}


def test_the_estimate_is_not_worse_than_the_start():
    """Measurements are too rare for a guess of the trajectories; those of the start are better."""
    times = np.linspace(0.1, 6.0, 20)
    data = pd.DataFrame({"time": times, "x": np.cos(20 * times)})
    run = Experiment(data, start={"x": 1.0, "v": 0.0}, start_time=0.0, sigma=0.02)
    problem = Problem(spring_up_to(30.0), parameters=["w"], experiments=run)
    assert FIT.estimate(problem, {"w": 20.0}).parameters["w"] == pytest.approx(20.0, rel=1e-3)


def test_other_losses_are_refused():
    with pytest.raises(Unsupported, match="least squares"):
        FIT.estimate(posed(of={"loss": L1()}), {"k": 0.5})


STEP_TIMES = np.linspace(0.25, 3.0, 12)
STEPPED = np.where(
    STEP_TIMES < 1,
    np.exp(-0.8 * STEP_TIMES),
    np.exp(-0.8 * STEP_TIMES) + 0.5 / 0.8 * (1 - np.exp(0.8 - 0.8 * STEP_TIMES)),
)


def stepped(times, inflow, change=lambda m: None):
    """dA/dt = -k A + inflow(m, t), with a constraint, which only Pyomo's equations can keep."""
    m = decay(times)
    m.on = pyo.Param(mutable=True, initialize=1)
    m.feed = pyo.Param(mutable=True, initialize=9.0)
    del m.rate
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + inflow(m, t))
    m.path = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] <= 9)
    change(m)
    return m


@pytest.mark.parametrize(
    "inflow",
    [
        lambda m, t: pyo.Expr_if(t > 1, 0.5, 0.0),
        lambda m, t: pyo.Expr_if(t <= 1, 0.0, pyo.Expr_if(m.on == 1, 0.5, m.A[t])),
        lambda m, t: m.feed,
    ],
    ids=["condition on time", "condition on a parameter", "input without time"],
)
@pytest.mark.parametrize("is_discretised", [False, True])
def test_constraints_change_nothing_in_how_equations_are_read(inflow, is_discretised):
    """Pyomo's writer takes the first branch of a known condition, and one value of an input."""

    def discretise(m):
        if is_discretised:
            pyo.TransformationFactory("dae.finite_difference").apply_to(m, wrt=m.t, nfe=2)

    data = pd.DataFrame({"time": STEP_TIMES, "A": STEPPED})
    inputs = {"feed": step_input([0.0, 1.0], [0.0, 0.5])}
    run = Experiment(data, start={"A": 1.0}, start_time=0.0, sigma=0.01, inputs=inputs)
    problem = Problem(
        lambda times: stepped(times, inflow, discretise), parameters=["k"], experiments=run
    )
    found = FIT.estimate(problem, {"k": 0.5})
    assert found.status is Status.CONVERGED
    assert found.parameters["k"] == pytest.approx(0.8, rel=1e-4)


def test_an_input_without_time_in_a_constraint_without_time_is_refused():
    def end(m):
        m.end = pyo.Constraint(expr=m.A[m.t.last()] <= m.feed + 9)

    data = pd.DataFrame({"time": STEP_TIMES, "A": STEPPED})
    inputs = {"feed": step_input([0.0, 1.0], [0.0, 0.5])}
    run = Experiment(data, start={"A": 1.0}, start_time=0.0, sigma=0.01, inputs=inputs)
    problem = Problem(
        lambda times: stepped(times, lambda m, t: m.feed, end), parameters=["k"], experiments=run
    )
    with pytest.raises(Unsupported, match="'end' contains the input 'feed', which changes"):
        FIT.estimate(problem, {"k": 0.5})


def test_a_constraint_that_sums_over_the_times_of_the_mesh_is_refused():
    def total(m):
        m.total = pyo.Constraint(expr=sum(m.A[t] for t in m.t) <= 9)

    with pytest.raises(Unsupported, match="'total' depends on the times at which igpe builds"):
        FIT.estimate(posed(changed(total)), {"k": 0.5})
