"""Costs alone: of integrations without derivatives, the same as those with them."""

import numpy as np
import pytest
from test_estimated_sigma import problem as with_unknown_errors
from zoo import CASES

import igpe
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.simulation import simulate_all

needs_compiler = pytest.mark.skipif(not compiler(), reason="needs a C compiler")


def with_prior():
    case = CASES["consecutive"]
    run = igpe.Experiment(case.data(), start=dict(case.problem().experiments[0].start), sigma=0.1)
    prior = {"k1": igpe.losses.Prior("gamma", (20.0, 0.05))}
    return igpe.Problem(case.builder, parameters=[*case.truth], experiments=run, priors=prior)


POSED = {
    "squares": CASES["consecutive"].problem,
    "unknown errors": with_unknown_errors,
    "prior": with_prior,
}


@pytest.mark.parametrize("name", POSED)
def test_a_cost_alone_is_that_of_the_residuals(name):
    problem = POSED[name]()
    residuals = Residuals(problem, Automatic(1e-10, 1e-12))
    for x in problem.box.sobol(3, 1):
        assert residuals.cost(x) == pytest.approx(residuals(x).cost, rel=1e-6)


@needs_compiler
def test_it_integrates_no_derivatives():
    problem = CASES["consecutive"].problem()
    residuals, x = Residuals(problem, Automatic()), problem.box.sobol(1, 1)[0]
    residuals.cost(x)
    alone = residuals.work
    residuals(x)
    assert residuals.work - alone > alone


@needs_compiler
def test_a_search_that_was_interrupted_after_trials_ends_with_derivatives():
    problem = CASES["consecutive"].problem()
    residuals, x = Residuals(problem, Automatic()), problem.box.sobol(1, 1)[0]
    cost = residuals.cost(x)
    fit = residuals.best_fit()
    assert fit.status is Status.INTERRUPTED
    assert fit.cost == pytest.approx(cost, rel=1e-5)
    assert fit.at.jacobian.shape[1] == len(x)


@needs_compiler
def test_reports_compile_nothing_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = CASES["consecutive"]
    problem, times = case.problem(), np.array(case.times)
    Residuals(problem, Automatic())
    before = len(list((tmp_path / "igpe").glob("*.so")))
    ((_, run),) = simulate_all(problem, Automatic(), case.truth, (times,))
    assert before
    assert len(list((tmp_path / "igpe").glob("*.so"))) == before
    assert run.measured[:, 0] == pytest.approx(case.data()[case.measured[0]].to_numpy(), rel=1e-5)
