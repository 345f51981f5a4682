"""Backward lifting on bounds of states and unknowns, at time limits, and what it refuses."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from test_backward_lifting import both, direct

from igpe.core import deadline
from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

pytestmark = pytest.mark.skipif(not compiler(), reason="needs a C compiler")

T, K, H = np.linspace(0.0, 3.0, 13), 0.9, 0.4
FAR = {"k": 0.5, "h": 2.0}


def posed(bounds=(None, None), *, k=(0, 5), start=1.0, others=None, noise=0.02):
    """A -> B -> with errors of 0.02; `others` adds constraints, `bounds` are those of A."""

    def builder(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.B = pyo.Var(m.t, bounds=bounds), pyo.Var(m.t)
        m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
        m.k, m.h = pyo.Var(bounds=k), pyo.Var(bounds=(0, 5))
        m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.then = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t] - m.h * m.B[t])
        if others is not None:
            others(m)
        return m

    random = np.random.default_rng(0)
    a = np.exp(-K * T) + noise * random.normal(size=len(T))
    b = K / (H - K) * (np.exp(-K * T) - np.exp(-H * T)) + noise * random.normal(size=len(T))
    run = Experiment(
        pd.DataFrame({"time": T, "A": a, "B": b}), start={"A": start, "B": 0.0}, sigma=0.02
    )
    return Problem(builder, parameters=["k", "h"], experiments=run)


@pytest.mark.parametrize("intervals", [4, 30])
@pytest.mark.parametrize("bounds", [(0.2, None), (0.3, 1.0)])
def test_an_optimum_on_the_bound_of_a_state_is_that_of_gauss_newton(bounds, intervals):
    """Nodes that are moved back inside do not meet; Gauss-Newton goes on from there."""
    back, gauss = both(posed(bounds), FAR, intervals=intervals)
    free, _ = both(posed(), FAR, intervals=intervals)
    assert back.status is gauss.status is Status.CONVERGED
    assert back.objective == pytest.approx(gauss.objective, rel=1e-8)
    assert back.objective > 10 * free.objective
    assert back.parameters == pytest.approx(gauss.parameters, rel=1e-5)
    assert any("A >= " in note for note in back.notes)
    assert back.trail[-1].iterations < BackwardLifting().max_iterations


def test_iterates_on_bounds_are_kept_once_each():
    found = direct(BackwardLifting(), record=True).estimate(posed((0.2, None)), FAR)
    horizon = found.trail[-1]
    assert len(horizon.iterates) == horizon.iterations + 1
    assert horizon.iterates[-1].objective == pytest.approx(found.objective, rel=1e-6)


@pytest.mark.parametrize(("k", "start"), [((0, 0.6), 5.0), ((1.2, 5), 0.0), ((0, 0.6), 0.6)])
def test_an_optimum_on_the_bound_of_a_parameter(k, start):
    """From either side, from outside, and from the bound itself."""
    back, gauss = both(posed(k=k), {"k": start, "h": 2.0})
    assert back.status is gauss.status is Status.CONVERGED
    assert back.parameters["k"] == gauss.parameters["k"] == min(k, key=lambda v: abs(v - K))
    assert back.parameters["h"] == pytest.approx(gauss.parameters["h"], rel=1e-5)
    assert back.objective == pytest.approx(gauss.objective, rel=1e-9)
    assert any("k lies on its bound" in note for note in back.notes)


def test_constraints_of_the_model_are_refused_by_name():
    def periodic(m):
        m.sum = pyo.Constraint(expr=m.A[m.t.last()] + m.B[m.t.last()] == 0.5)

    def limited(m):
        m.least = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.5)

    for others, name in ((periodic, "sum"), (limited, "least")):
        problem = posed(others=others)
        wanted = rf"the problem has \['{name}'\]\. Use the default search of MultipleShooting"
        with pytest.raises(Unsupported, match=wanted):
            MultipleShooting(search=BackwardLifting()).estimate(problem, FAR)
        with pytest.raises(Unsupported, match=r"GeneralisedGaussNewton\(\)"):
            direct(BackwardLifting()).prepare(problem)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(None, None), (0.2, None)])
@pytest.mark.parametrize("links", [(), MultipleShooting().links[:1]])
def test_at_a_time_limit_it_tells_the_best_so_far(monkeypatch, links, bounds):
    """On a clock that goes on by a second at each look: what has not met has not converged."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(deadline.time, "perf_counter", lambda: float(next(ticks)))
    ended = []
    for limit in (1e-9, *range(2, 20)):
        method = direct(BackwardLifting(), time_limit=limit, links=links, intervals=4, record=True)
        found = method.estimate(posed(bounds), FAR)
        ended.append(found.status)
        if found.status is not Status.TIME_LIMIT:
            break
        assert np.isfinite(found.objective)
        told = f"The time limit of {limit:g} s ended the search; a longer search may find better"
        explained = found.objective <= Restarts().explained(2 * len(T))
        assert explained is not any(note.startswith(told) for note in found.notes)
        matched = [h for h in found.trail if h.method.startswith("exact matching")]
        assert all(h.iterates[-1].gap < 1e-3 for h in matched if h.status is Status.CONVERGED)
    assert len(ended) > 5
    assert ended[-1] in {Status.CONVERGED, Status.TIME_LIMIT}
