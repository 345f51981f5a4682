"""Houska et al. (2012), Carbonell et al. (2016), Peifer & Timmer (2007): their examples.

A few realisations of each; `benchmarks/multiple_shooting.py` prints all figures beside the papers'.
"""

import importlib

import calcium
import fitzhugh_nagumo
import henon_heiles
import numpy as np
import pendulum
import pytest
import rikitake

import igpe
from igpe.core.estimates import Horizon
from igpe.numerics.covariance import uncertainty
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.soft_links import SoftLinks

pytestmark = pytest.mark.paper
ONCE = igpe.search.Restarts(count=0)


def one_search(intervals, **settings):
    """A single continuation, without the retries that chi squared asks for."""
    links = (SoftLinks(),)
    return igpe.MultipleShooting(
        intervals=intervals, finer=1, links=links, restarts=ONCE, **settings
    )


def objective_at_truth(problem, truth):
    """Of the fit that begins there."""
    return igpe.SingleShooting(igpe.integrators.Automatic()).estimate(problem, truth).objective


def reaches_the_best(example, method, seeds):
    """From the published start, as good an optimum as from the truth."""
    for seed in range(seeds):
        problem = example.problem(seed, seed)
        found = method.estimate(problem, example.START)
        assert found.status is igpe.Status.CONVERGED
        assert found.objective <= objective_at_truth(problem, example.TRUTH) * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [1, 7, 9])
def test_the_pendulum_from_random_starts(intervals):
    prepared = igpe.MultipleShooting(intervals=intervals).prepare(pendulum.problem())
    random = np.random.default_rng(501)
    for length, alpha in random.uniform((0.05, 0.0), (2.0, 4.0), (20, 2)):
        start = {"l": length, "alpha": alpha, "phi(t0)": 0.0, "omega(t0)": 0.0}
        found = prepared.estimate(start)
        assert found.objective == pytest.approx(pendulum.OBJECTIVE, rel=1e-5)
        for name, (value, _) in pendulum.PUBLISHED.items():
            assert found.parameters[name] == pytest.approx(value, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [50, 20, 10, 5])
def test_fitzhugh_nagumo_from_the_published_start(intervals):
    reaches_the_best(fitzhugh_nagumo, one_search(intervals, unobserved={"R": 0.0}), 4)


def test_fitzhugh_nagumo_takes_few_iterations():
    method = igpe.MultipleShooting(intervals=50, unobserved={"R": 0.0})
    found = method.estimate(fitzhugh_nagumo.problem(), fitzhugh_nagumo.START)
    assert found.objective == pytest.approx(fitzhugh_nagumo.OBJECTIVE, rel=1e-6)
    assert sum(h.iterations for h in found.trail if isinstance(h, Horizon)) <= 16


@pytest.mark.parametrize("intervals", [50, 20, 10])
def test_henon_heiles_where_the_start_explodes(intervals):
    reaches_the_best(henon_heiles, one_search(intervals), 5)


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [50, 25, 15, 10])
def test_rikitake_with_fewer_and_fewer_nodes(intervals):
    method = igpe.MultipleShooting(intervals=intervals)
    for seed in range(3):
        problem = rikitake.problem(seed)
        found = method.estimate(problem, rikitake.START)
        best = objective_at_truth(problem, rikitake.TRUTH)
        assert found.status.usable
        assert found.objective <= best * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calcium_from_random_starts(seed):
    problem = calcium.problem(seed)
    best = objective_at_truth(problem, calcium.TRUTH)
    prepared = one_search(17).prepare(problem)
    random = np.random.default_rng(502 + seed)
    for _ in range(8):
        found = prepared.estimate({n: random.uniform() for n in calcium.TRUTH})
        assert found.status is igpe.Status.CONVERGED
        assert found.objective <= best * (1 + 1e-4)
        if seed == 0:
            assert dict(found.parameters) == pytest.approx(calcium.OPTIMUM, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bellman", "gas_oil_cracking", "methanol", "lotka_volterra", "robertson", "urethane"]
)
def test_the_other_published_models_from_anywhere(name):
    """A start anywhere in the box, or decades from the truth."""
    model = importlib.import_module(name)
    problem = model.problem()
    box, random = problem.box, np.random.default_rng(507)
    if box.bounded:
        start = box.mapping(box.sobol(4, 1)[3])
    else:
        start = {n: model.OPTIMUM[n] * 10 ** random.uniform(-0.5, 0.5) for n in box.names}
    found = igpe.MultipleShooting().estimate(problem, start)
    assert found.status.usable
    assert found.objective == pytest.approx(model.OBJECTIVE, rel=1e-5)


@pytest.mark.slow
def test_errors_of_calcium_hold_the_truth():
    """Standard deviations as they are, so that z = (estimate - truth) / error is normal."""
    z = []
    for seed in range(6):
        problem = calcium.problem(seed)
        fit = igpe.MultipleShooting(intervals=17).prepare(problem).fit(calcium.TRUTH)
        held = on_bounds(fit.x, fit.at, problem.box)
        told = uncertainty(fit.x, fit.at.residual, fit.at.jacobian, held=held, sigma_known=True)
        z += list((fit.x - problem.box.vector(calcium.TRUTH)) / told.standard_error)
    assert 0.75 < np.std(z) < 1.25  # of 90
    assert abs(np.mean(z)) < 0.4
