"""A fit that the data refute is searched for again."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
import igpe.pipeline
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.search.iterated_search import IteratedSearch
from igpe.dynamics.shooting.refine import Refined, refine
from igpe.dynamics.shooting.residuals import Residuals

TIMES = np.linspace(0.1, 4.0, 30)


def swinging(times):
    """x = a sin(w t): many local optima in w."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x = pyo.Var(m.t)
    m.dx = dae.DerivativeVar(m.x)
    m.a, m.w = pyo.Var(bounds=(0.1, 5)), pyo.Var(bounds=(0.01, 20))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.a * m.w * pyo.cos(m.w * t))
    return m


def problem(values):
    noisy = values + 0.02 * np.random.default_rng(4).standard_normal(30)
    table = pd.DataFrame({"time": TIMES, "x": noisy})
    run = igpe.Experiment(table, start={"x": 0.0}, start_time=0.0, sigma=0.02)
    return igpe.Problem(swinging, parameters=["a", "w"], experiments=run)


@pytest.fixture
def stuck(monkeypatch):
    """The searches before end at a poor local optimum."""

    def poor(steps, settings):
        residuals = Residuals(steps.problem, settings.integrator)
        start = Estimate({"a": 0.3, "w": 1.0}, np.inf, Status.CONVERGED, "a poor search")
        best = refine(steps.problem, residuals, start)
        paths = [steps.paths[0]._replace(corrected=best.estimate)]
        return steps._replace(best=best, paths=paths, others=())

    monkeypatch.setattr(igpe.pipeline, "with_other_optima", poor)


def test_the_right_optimum_is_found(stuck):
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert result.parameters == pytest.approx({"a": 1.5, "w": 7.0}, rel=0.02)
    assert result.adequacy.verdict == "adequate"
    assert "further search" in result.seconds


def test_a_wrong_model_gets_a_note():
    result = igpe.estimate(problem(np.sqrt(TIMES)))
    assert result.adequacy.lacks
    assert any("nothing better was met. The model may be wrong." in n for n in result.notes)


def test_a_fit_that_is_not_refuted_is_left_alone():
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert "further search" not in result.seconds


@pytest.fixture
def lost(monkeypatch):
    """The searches before end where the model cannot be integrated."""

    def nowhere(steps, settings):
        failed = Estimate({"a": 0.3, "w": 1.0}, np.inf, Status.ITERATION_LIMIT, "a poor search")
        paths = [steps.paths[0]._replace(corrected=failed)]
        return steps._replace(best=Refined(failed, None), paths=paths, others=())

    monkeypatch.setattr(igpe.pipeline, "with_other_optima", nowhere)


def test_a_fit_that_cannot_be_integrated_is_searched_for_again(lost):
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert result.parameters == pytest.approx({"a": 1.5, "w": 7.0}, rel=0.02)


def test_of_a_fit_that_cannot_be_integrated_no_errors_are_known(lost, monkeypatch):
    monkeypatch.setattr(igpe.pipeline, "with_further_search", lambda steps, settings: (steps, ""))
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert [p.remark for p in result.estimates] == ["", ""]
    assert all(np.isinf(p.upper) for p in result.estimates)
    words = "errors unknown: the model could not be integrated at the estimate"
    assert result.verdict["parameters"] == words


def test_what_step_4_searched_already_is_not_searched_again(monkeypatch):
    """Algebra reaches none of eight unknowns: step 4 made the search of which this is a part."""
    searches = []

    class Once(IteratedSearch):
        def estimate(self, problem, start, profiles=()):
            searches.append(len(problem.box))
            return IteratedSearch(starts=2, most=0, finalists=1).estimate(problem, start)

    monkeypatch.setattr("igpe.dynamics.search.complement.IteratedSearch", Once)
    monkeypatch.setattr("igpe.estimation.equally_good.FURTHER", Once())

    def hidden(times):
        """Four states that grow alike, of which the sum is measured."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.i = pyo.Set(initialize=range(4))
        m.x = pyo.Var(m.i, m.t)
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)
        m.k = pyo.Var(m.i, bounds=(0.1, 5))
        m.s = pyo.Var(m.i, bounds=(0.1, 5))
        m.rate = pyo.Constraint(
            m.i, m.t, rule=lambda m, i, t: m.dx[i, t] == -m.k[i] * m.x[i, t] ** 2
        )
        m.sum = pyo.Var(m.t)
        m.summed = pyo.Constraint(m.t, rule=lambda m, t: m.sum[t] == sum(m.x[i, t] for i in m.i))
        return m

    data = pd.DataFrame({"time": TIMES, "sum": np.sin(3 * TIMES) + 3})
    start = {f"x[{i}]": f"s[{i}]" for i in range(4)}
    run = igpe.Experiment(data, start=start, start_time=0.0, sigma=0.02)
    unknowns = [f"{n}[{i}]" for n in "ks" for i in range(4)]
    result = igpe.estimate(igpe.Problem(hidden, parameters=unknowns, experiments=run))
    assert result.adequacy.lacks
    assert searches == [8]
    assert any("searched for from 40 scattered starts" in note for note in result.notes)
