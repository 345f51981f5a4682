"""Active constraints in the statistics of `igpe.estimate`."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.tangent import tangent
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 3.0, 13)


def decaying(*, end=None, ends=None, path=None, bound=None, stray=False):
    """dA = -k A, with constraints at the end, with the start, over time, and a bound of A."""

    def builder(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A = pyo.Var(m.t, initialize=1.0, bounds=(bound, None))
        m.dA = dae.DerivativeVar(m.A)
        m.k = pyo.Var(bounds=(0.01, 10), initialize=1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        first, last = m.t.first(), m.t.last()
        if end:
            m.end = pyo.Constraint(expr=m.A[last] <= end)
        if ends:
            m.ends = pyo.Constraint(expr=m.A[last] == ends * m.A[first])
        if path:
            m.path = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] <= path)
        if stray:
            m.z = pyo.Var(m.t, bounds=(0, 1))
            m.tied = pyo.Constraint(expr=m.z[last] >= m.A[last] - 1)
        return m

    return builder


def posed(**constraints):
    noise = 0.05 * np.random.default_rng(0).normal(size=len(TIMES))
    data = pd.DataFrame({"time": TIMES, "A": 2 * np.exp(-0.8 * TIMES) + noise})
    run = Experiment(data, start={"A": Unknown(0, 5)}, sigma=0.05)
    return Problem(decaying(**constraints), parameters=["k"], experiments=run)


X = np.array([0.9, 1.8])


@pytest.mark.parametrize("constraint", [{"end": 1.8 * np.exp(-2.7)}, {"ends": 0.1}])
def test_rows_against_the_exact_derivative(constraint):
    found = tangent(posed(**constraint), X)
    decay = np.exp(-3 * X[0])
    known = [-3 * X[1] * decay, decay]
    if "ends" in constraint:
        known[1] -= 0.1
    assert found.rows == pytest.approx(np.array([known]), rel=1e-6)
    assert found.known == set(constraint)


def test_what_is_not_active_or_holds_over_time_gives_no_rows():
    assert tangent(posed(end=1.0), X).rows.shape == (0, 2)
    found = tangent(posed(path=1.8), X)
    assert found.rows.shape == (0, 2)
    assert found.known == set()


def test_what_the_equations_do_not_determine_is_told_not_to_be_known():
    assert tangent(posed(stray=True), X).known == set()


def test_an_equation_between_start_and_end_takes_one_degree():
    free, tied = (igpe.estimate(posed(**c)) for c in ({}, {"ends": 0.1}))
    assert tied.degrees == free.degrees + 1
    (k, start), loose = tied.estimates, free.estimates[1]
    assert k.value == pytest.approx(np.log(10) / 3, rel=1e-5)
    assert k.standard_error == pytest.approx(0.0, abs=1e-6)
    assert 0 < start.standard_error < loose.standard_error
    assert not any("ignore the constraints" in note for note in tied.notes)


@pytest.mark.parametrize(
    ("constraint", "name"), [({"path": 1.8}, "path at 0"), ({"bound": 0.3}, "A >= 0.3 at 3")]
)
def test_what_holds_the_optimum_over_time_is_named_and_takes_one_degree(constraint, name):
    free, held = (igpe.estimate(posed(**c)) for c in ({}, constraint))
    assert held.status is igpe.Status.CONVERGED
    assert (held.active, free.active) == ((name,), ())
    assert name in held.verdict["optimum"]
    start, k = held.parameters["A(t0)"], held.parameters["k"]
    edge = start / 1.8 if "path" in constraint else start * np.exp(-3 * k) / 0.3
    assert edge == pytest.approx(1.0, rel=1e-4)
    assert held.degrees == free.degrees + 1
    assert held.adequacy.lacks
    assert not any("ignore the constraints" in note for note in held.notes)
    assert f"Active: {name}. Without this constraint, the model would fit better." in str(held)


def test_a_contact_between_measurements_is_named_with_what_lies_beyond():
    """B of A -> B -> C is largest between two measurements; its bound is below some of them."""

    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.B = pyo.Var(m.t), pyo.Var(m.t, bounds=(0, 0.5))
        m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
        m.k1, m.k2 = pyo.Var(bounds=(0.001, 10)), pyo.Var(bounds=(0.001, 10))
        m.a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
        m.b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
        return m

    t = np.array([0.5, 1, 2, 3, 4, 6, 8, 10.0])
    a, b = np.exp(-0.3 * t), 1.5 * (np.exp(-0.1 * t) - np.exp(-0.3 * t))
    noise = 0.01 * np.random.default_rng(22).standard_normal((2, 8))
    data = pd.DataFrame({"time": t, "A": a + noise[0], "B": b + noise[1]})
    run = Experiment(data, start={"A": 1.0, "B": 0.0}, start_time=0.0, sigma=0.01)
    problem = Problem(model, parameters=["k1", "k2"], experiments=run)
    result = igpe.estimate(problem)
    assert result.status is igpe.Status.CONVERGED
    assert result.active[0].startswith("B <= 0.5 at ")
    assert result.adequacy.lacks
    assert "4 measurements of B lie outside of the bounds" in str(result)
    assert result.verdict["parameters"].endswith("k1 and k2 linked by active constraints")
    assert not any(advice in str(result.details) for advice in ("igpe.profile", "Run igpe.certify"))
    for door in (igpe.profile, igpe.predict, igpe.bootstrap):
        with pytest.raises(igpe.errors.Unsupported, match="violates the bounds of B"):
            door(problem, result)
    for proof in (igpe.certify, igpe.certify_region):
        with pytest.raises(igpe.errors.Unsupported, match=r"some are active: B <= 0\.5 at"):
            proof(problem, result)
    kept = igpe.profile(problem, result, ["k2"], method=igpe.Collocation())["k2"]
    k2 = result.estimates[1]
    assert (k2.lower, k2.upper) == pytest.approx((kept.lower, kept.upper), rel=5e-3)


def test_a_state_that_decays_towards_its_bound_holds_no_search_that_ended_early():
    """Away from an optimum anything seems to hold the fit; A >= 0 does not."""
    data = pd.DataFrame({"time": 10 * TIMES, "A": 2 * np.exp(-8 * TIMES) + 0.01})
    run = Experiment(data, start={"A": Unknown(0, 5)}, sigma=0.05)
    problem = Problem(decaying(bound=0.0), parameters=["k"], experiments=run)
    residuals = Residuals(problem, Automatic())
    for x in (np.array([0.6, 1.9]), np.array([1.2, 2.2])):
        assert tangent(problem, x, residuals(x)).active == ()


def test_unknowns_that_bounds_of_states_hold_have_the_one_sided_intervals_of_the_profile():
    """dA = -k A, of which only A >= 0.1 at the end lets k go no further."""
    data = pd.DataFrame({"time": TIMES, "A": np.exp(-1.1 * TIMES)})
    run = Experiment(data, start={"A": 1.0}, sigma=0.05)
    problem = Problem(decaying(bound=0.1), parameters=["k"], experiments=run)
    result = igpe.estimate(problem)
    assert result.active == ("A >= 0.1 at 3",)
    (k,) = result.estimates
    assert np.isnan(k.standard_error)
    assert k.upper == pytest.approx(k.value)
    kept = igpe.profile(problem, result, method=igpe.Collocation())["k"]
    assert k.lower == pytest.approx(kept.lower, rel=5e-3)
    assert result.verdict["parameters"] == "k held by active constraints"
    assert "at constraint" in str(result)
    assert "±" not in str(result.details).partition("Fit")[0]
