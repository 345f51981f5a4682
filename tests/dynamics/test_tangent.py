"""Active constraints in the statistics of `igpe.estimate`."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.dynamics.likelihood import tangent
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 3.0, 13)


def decaying(*, end=None, ends=None, path=None, stray=False):
    """dA = -k A, with constraints at the end, with the start, and over time."""

    def builder(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A = pyo.Var(m.t, initialize=1.0)
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


def test_paths_are_said_to_be_left_out():
    told = igpe.estimate(posed(path=1.8))
    assert any("ignore the constraints ['path']" in note for note in told.notes)
