"""Exact data of a known solution give the parameters back, whatever form the problem has."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.losses import L1, NormalPrior
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 3.0, 13)
FIT = Collocation()


def decay(times: Iterable[float]) -> Any:
    """dA/dt = -k A + u, with everything that tests may need and otherwise fix."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, initialize=1.0)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var(bounds=(0, 10), initialize=1.0)
    m.A0 = pyo.Var(bounds=(0, 10), initialize=1.0)
    m.u = pyo.Param(m.t, mutable=True, default=0.0)
    m.scale = pyo.Var(bounds=(0, 10), initialize=1.0)
    m.scale.fix()
    m.signal = pyo.Expression(m.t, rule=lambda m, t: m.scale * m.A[t])
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.u[t])
    m.own = pyo.Objective(expr=m.k)
    return m


def table(values: Any, name: str = "A", times: Any = TIMES) -> pd.DataFrame:
    return pd.DataFrame({"time": times, name: values})


def estimate(problem: Problem, start: Mapping[str, float]) -> Mapping[str, float]:
    found = FIT.estimate(problem, start)
    assert found.status is Status.CONVERGED
    assert "Radau" in found.method
    return found.parameters


def close(truth: Mapping[str, float]) -> Any:
    return pytest.approx(truth, rel=1e-4, abs=1e-8)


def test_two_experiments_share_one_parameter_and_have_one_each() -> None:
    runs = [
        Experiment(table(np.exp(-0.8 * TIMES)), name="a", start={"A": 1.0}),
        Experiment(table(3 * 2 * np.exp(-0.8 * TIMES), "signal"), name="b", start={"A": 2.0}),
    ]

    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.scale.unfix()
        return m

    problem = Problem(model, parameters=["k", "scale"], experiments=runs, local=["scale"])
    start = {"k": 0.5, "scale@a": 1.0, "scale@b": 1.5}
    found = FIT.estimate(problem, start)
    assert found.parameters["k"] == pytest.approx(0.8, rel=1e-4)
    assert found.parameters["scale@b"] == pytest.approx(3.0, rel=1e-4)
    fixed = problem.fixing({"k": 0.8, "scale@a": 1.0})
    assert estimate(fixed, {"scale@b": 1.0}) == close({"scale@b": 3.0})


def test_unknown_start_value() -> None:
    run = Experiment(table(2.5 * np.exp(-0.8 * TIMES)), start={"A": Unknown(0.1, 9.0)})
    problem = Problem(decay, parameters=["k"], experiments=run)
    assert estimate(problem, {"k": 0.5, "A(t0)": 1.0}) == close({"k": 0.8, "A(t0)": 2.5})
    assert estimate(problem.fixing({"A(t0)": 2.5}), {"k": 0.5}) == close({"k": 0.8})


def test_start_given_by_a_parameter() -> None:
    run = Experiment(table(2.5 * np.exp(-0.8 * TIMES)), start={"A": "A0"})
    problem = Problem(decay, parameters=["k", "A0"], experiments=run)
    assert estimate(problem, {"k": 0.5, "A0": 1.0}) == close({"k": 0.8, "A0": 2.5})


def test_start_condition_of_the_model_stays_unless_the_experiment_gives_one() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.begins = pyo.Constraint(expr=m.A[m.t.first()] == 2 * m.A0)
        return m

    values = table(2.5 * np.exp(-0.8 * TIMES))
    problem = Problem(model, parameters=["k", "A0"], experiments=Experiment(values))
    assert estimate(problem, {"k": 0.5, "A0": 1.0}) == close({"k": 0.8, "A0": 1.25})
    given = Experiment(values, start={"A": 2.5})
    problem = Problem(model, parameters=["k"], experiments=given).fixing({})
    assert estimate(problem, {"k": 0.5}) == close({"k": 0.8})


def test_fixed_start_of_the_model_stays() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.A[m.t.first()].fix(2.5)
        return m

    run = Experiment(table(2.5 * np.exp(-0.8 * TIMES)))
    assert estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.5}) == close({
        "k": 0.8
    })


def test_input_with_a_jump_off_the_measured_times() -> None:
    jump, k = 1.1, 0.8
    later = np.maximum(TIMES - jump, 0.0)
    exact = np.exp(-k * TIMES) + 2.0 / k * (1 - np.exp(-k * later))
    run = Experiment(
        table(exact), start={"A": 1.0}, inputs={"u": step_input([0.0, jump], [0.0, 2.0])}
    )
    assert estimate(Problem(decay, parameters=["k"], experiments=run), {"k": 0.5}) == close({
        "k": k
    })


def test_input_as_function_of_time() -> None:
    exact = np.exp(-0.8 * TIMES) * (1 + TIMES)
    run = Experiment(table(exact), start={"A": 1.0}, inputs={"u": lambda t: pyo.exp(-0.8 * t)})
    assert estimate(Problem(decay, parameters=["k"], experiments=run), {"k": 0.5}) == close({
        "k": 0.8
    })


def test_mutable_param_as_parameter() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.loss = pyo.Param(initialize=1.0, mutable=True)
        m.gain = pyo.Param(initialize=1.0, mutable=True)
        m.seen = pyo.Expression(m.t, rule=lambda m, t: m.gain * m.A[t])
        m.rate.deactivate()
        m.rate_2 = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.loss * m.A[t])
        return m

    run = Experiment(table(3 * np.exp(-0.8 * TIMES), "seen"), start={"A": 1.0})
    problem = Problem(model, parameters={"loss": (0, 5), "gain": (0, 9)}, experiments=run)
    assert estimate(problem, {"loss": 1.2, "gain": 2.0}) == close({"loss": 0.8, "gain": 3.0})


def chain(times: Iterable[float]) -> Any:
    """A -> B -> C with B at rate r, algebraic; equations are skipped at the first time."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B, m.r = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t)
    m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
    m.k1, m.k2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.r[t] == m.k1 * m.A[t])

    def balance(m: Any, t: float) -> Any:
        return pyo.Constraint.Skip if t == m.t.first() else m.dA[t] == -m.r[t]

    m.balance_A = pyo.Constraint(m.t, rule=balance)
    m.balance_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.r[t] - m.k2 * m.B[t])
    return m


def test_index_one_dae_with_unmeasured_state_and_missing_values() -> None:
    k1, k2 = 1.5, 0.6
    exact = k1 / (k2 - k1) * (np.exp(-k1 * TIMES) - np.exp(-k2 * TIMES))
    exact[[0, 3, 7]] = np.nan
    run = Experiment(table(exact, "B"), start={"A": 1.0, "B": 0.0})
    problem = Problem(chain, parameters=["k1", "k2"], experiments=run)
    assert estimate(problem, {"k1": 1.2, "k2": 0.5}) == close({"k1": k1, "k2": k2})


def test_algebraic_variable_measured_at_the_start() -> None:
    run = Experiment(table(1.5 * np.exp(-1.5 * TIMES), "r"), start={"A": 1.0, "B": 0.0})
    problem = Problem(chain, parameters=["k1", "k2"], experiments=run).fixing({"k2": 0.6})
    assert estimate(problem, {"k1": 1.2}) == close({"k1": 1.5})


def test_right_hand_side_may_be_undefined_at_the_start() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.odd = pyo.Var(m.t, initialize=1.0)
        m.dodd = dae.DerivativeVar(m.odd)
        m.rate_2 = pyo.Constraint(
            m.t, rule=lambda m, t: m.dodd[t] == m.k * (1 - m.A[t]) / (1 - m.A[t])
        )
        return m

    run = Experiment(table(0.8 * TIMES, "odd"), start={"A": 1.0, "odd": 0.0})
    assert estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.5}) == close({
        "k": 0.8
    })


def test_inequality_over_time_is_kept() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.floor = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0.2)
        return m

    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    found = estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.4})
    assert found["k"] == pytest.approx(-np.log(0.2) / 3.0, rel=1e-4)


def test_periodicity_is_kept() -> None:
    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.v = pyo.Var(m.t), pyo.Var(m.t)
        m.dx, m.dv = dae.DerivativeVar(m.x), dae.DerivativeVar(m.v)
        m.w = pyo.Var(bounds=(0.5, 5.0))
        m.moves = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.v[t])
        m.springs = pyo.Constraint(m.t, rule=lambda m, t: m.dv[t] == -(m.w**2) * m.x[t])
        m.period = pyo.Constraint(expr=m.x[m.t.first()] == m.x[m.t.last()])
        return m

    period = 2 * np.pi / 2.0
    times = np.linspace(0, period, 13)
    noisy = np.cos(2 * times) + 0.02 * np.random.default_rng(1).standard_normal(13)
    run = Experiment(table(noisy, "x", times), start={"x": 1.0, "v": 0.0})
    found = estimate(Problem(model, parameters=["w"], experiments=run), {"w": 1.9})
    assert found["w"] == pytest.approx(2.0, rel=1e-4)


def test_prior_pulls_like_a_measurement() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.rate.deactivate()
        m.grows = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.k)
        return m

    run = Experiment(table([2.0], times=[1.0]), start={"A": 0.0}, start_time=0.0, sigma=0.5)
    priors = {"k": NormalPrior(1.0, 0.5)}
    problem = Problem(model, parameters=["k"], experiments=run, priors=priors)
    assert estimate(problem, {"k": 1.0}) == close({"k": 1.5})


def test_the_model_is_lent_and_the_problem_unchanged() -> None:
    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    problem = Problem(decay, parameters=["k"], experiments=run)
    m = problem.instance.model
    before = [(v.name, v.value, v.fixed, v.bounds) for v in m.component_data_objects(pyo.Var)]
    components = [c.name for c in m.component_objects()]
    estimate(problem, {"k": 0.5})
    after = [(v.name, v.value, v.fixed, v.bounds) for v in m.component_data_objects(pyo.Var)]
    assert after == before
    assert [c.name for c in m.component_objects()] == components
    assert m.own.active


def test_refinement_stops_moving_and_its_trail_is_kept() -> None:
    stiff = np.array([0.0, 1.0, 2.0, 3.0])
    run = Experiment(table(np.exp(-4.0 * stiff), times=stiff), start={"A": 1.0})
    problem = Problem(decay, parameters=["k"], experiments=run)
    found = FIT.estimate(problem, {"k": 3.0})
    assert found.status is Status.CONVERGED
    assert found.parameters["k"] == pytest.approx(4.0, rel=1e-4)
    assert len(found.trail) >= 1
    once = Collocation(max_refinements=0).estimate(problem, {"k": 3.0})
    assert once.status is Status.ITERATION_LIMIT
    assert abs(once.parameters["k"] - 4.0) > abs(found.parameters["k"] - 4.0)


def test_each_start_has_its_estimate_and_only_good_ones_are_refined() -> None:
    run = Experiment(table(np.sin(2.0 * TIMES), "x"), start={"x": 0.0, "v": "w"})

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.v = pyo.Var(m.t), pyo.Var(m.t)
        m.dx, m.dv = dae.DerivativeVar(m.x), dae.DerivativeVar(m.v)
        m.w = pyo.Var(bounds=(0.1, 20.0))
        m.moves = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.v[t])
        m.springs = pyo.Constraint(m.t, rule=lambda m, t: m.dv[t] == -(m.w**2) * m.x[t])
        return m

    problem = Problem(model, parameters=["w"], experiments=run)

    def course(w: float) -> Any:
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


def test_time_limit_is_a_status() -> None:
    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    problem = Problem(decay, parameters=["k"], experiments=run)
    found = Collocation(time_limit=0.0).estimate(problem, {"k": 0.5})
    assert found.status is Status.TIME_LIMIT


def test_infeasible_is_a_status() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.never = pyo.Constraint(expr=m.A[m.t.last()] >= 5.0)
        return m

    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    problem = Problem(model, parameters=["k"], experiments=run)
    found = FIT.estimate(problem, {"k": 0.5})
    assert not found.status.usable
    assert found.parameters == {"k": 0.5}


def test_other_losses_are_refused() -> None:
    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    problem = Problem(decay, parameters=["k"], experiments=run, loss=L1())
    with pytest.raises(Unsupported, match="least squares"):
        FIT.estimate(problem, {"k": 0.5})


def test_times_of_the_models_own_become_edges() -> None:
    def model(times: Iterable[float]) -> Any:
        return decay([*times, 1.234, 4.0])

    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    assert estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.5}) == close({
        "k": 0.8
    })


def test_a_model_keeps_its_own_discretisation() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay([t for t in times if t in TIMES])
        scheme = pyo.TransformationFactory("dae.collocation")
        scheme.apply_to(m, wrt=m.t, nfe=len(m.t) - 1, ncp=4, scheme="LAGRANGE-RADAU")
        return m

    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    found = FIT.estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.5})
    assert found.parameters == close({"k": 0.8})
    assert "12 elements" in found.method
    assert found.trail == ()


def test_a_model_that_ignores_the_times_is_discretised_on_its_own() -> None:
    def model(times: Iterable[float]) -> Any:
        return decay(TIMES)

    run = Experiment(table(np.exp(-0.8 * TIMES)), start={"A": 1.0})
    found = FIT.estimate(Problem(model, parameters=["k"], experiments=run), {"k": 0.5})
    assert found.parameters == close({"k": 0.8})


def test_a_horizon_of_microseconds() -> None:
    def model(times: Iterable[float]) -> Any:
        m = decay(times)
        m.k.setub(1e7)
        return m

    run = Experiment(table(np.exp(-8e5 * TIMES * 1e-6), times=TIMES * 1e-6), start={"A": 1.0})
    found = estimate(Problem(model, parameters=["k"], experiments=run), {"k": 5e5})
    assert found == close({"k": 8e5})
