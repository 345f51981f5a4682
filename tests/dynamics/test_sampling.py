"""Which fits oscillate between the measurements, and when others are preferred to them."""

import numpy as np
import pandas as pd
import pytest
from ode import ode
from zoo import CASES

import igpe
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.search.engine import Attempt, Restarts, distinct_points, ranked
from igpe.dynamics.shooting.incremental_shooting import SamplingDensity
from igpe.numerics.least_squares.base import Fit, Linearised

OMEGA = 2 * np.pi


oscillator = ode({"x": lambda m, t: m.v[t], "v": lambda m, t: -(m.w**2) * m.x[t]}, w=(None, None))
"""x'' = -w^2 x."""


def seldom(sigma, bounds):
    """Measured about once a period, at uneven times: only the true frequency fits."""
    random = np.random.default_rng(1)
    times = np.sort(np.arange(1, 31) + 0.12 * random.standard_normal(30))
    table = pd.DataFrame({
        "time": times,
        "x": np.cos(OMEGA * times) + 0.02 * random.standard_normal(30),
    })
    run = igpe.Experiment(table, start={"x": 1.0, "v": 0.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(oscillator, parameters={"w": bounds}, experiments=run)


@pytest.mark.parametrize("bounds", [(0.1, 20.0), (None, None)])
@pytest.mark.parametrize("sigma", [None, 0.02, 0.3])
def test_the_only_fit_is_kept_though_it_oscillates(sigma, bounds):
    found = igpe.IncrementalShooting().estimate(seldom(sigma, bounds), {"w": OMEGA})
    assert found.parameters["w"] == pytest.approx(OMEGA, rel=1e-4)
    assert any("oscillates between the measurements" in note for note in found.notes)


def overnight(sigma):
    """A decay measured for ten minutes and once the next morning."""
    times = np.r_[np.arange(1, 11.0), 1440.0]
    values = np.exp(-0.1 * times) + 0.01 * np.random.default_rng(0).standard_normal(11)
    table = pd.DataFrame({"time": times, "A": values})
    run = igpe.Experiment(table, start={"A": 1.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(CASES["decay"].builder, parameters={"k": (0, 10)}, experiments=run)


@pytest.mark.parametrize("sigma", [None, 0.01])
def test_a_decay_does_not_oscillate_overnight(sigma):
    problem = overnight(sigma)
    found = igpe.IncrementalShooting().estimate(problem, {"k": 0.1})
    assert found.parameters["k"] == pytest.approx(0.0998, rel=1e-2)
    assert found.notes == ()
    prepared = igpe.IncrementalShooting().prepare(problem)
    assert not SamplingDensity(prepared.residuals.runs[0]).too_sparse(np.array([0.1]))


def attempt(cost, *, sparse=False, status=Status.CONVERGED, x=1.0):
    at = Linearised(np.array([np.sqrt(cost)]), np.ones((1, 1)))
    return Attempt(Fit(np.array([x]), at, status, 1), sparse=sparse)


def test_what_oscillates_gives_way_only_to_what_fits_as_well():
    perfect, near, far = attempt(20.0, sparse=True), attempt(29.0), attempt(90.0)
    assert ranked([far, perfect, near], gate=100.0) == [near, perfect, far]
    assert ranked([far, perfect], gate=100.0) == [perfect, far]
    unknown = [attempt(20.0, sparse=True), attempt(20.1), attempt(20.3)]
    assert ranked(unknown[::2], np.inf)[0] is unknown[0]
    assert ranked(unknown, np.inf)[0] is unknown[1]
    broken = attempt(0.0, status=Status.FAILED)
    assert ranked([broken, far], gate=100.0)[0] is far


def line(lower=-np.inf, upper=np.inf):
    return Box(("k",), np.array([lower]), np.array([upper]))


def test_further_starts_are_others():
    starts = []

    def bad(start):
        starts.append(float(start[0]))
        return attempt(1e6, x=float(start[0]) + len(starts))  # none agree

    Restarts(count=5).run(bad, np.zeros(1), line(), gate=10.0)
    assert len(set(starts)) == 6
    assert all(0 < s <= 1 for s in starts[1:])
    starts.clear()
    Restarts(count=5).run(bad, np.zeros(1), line(0.0, 0.0), gate=10.0)
    assert starts == [0.0]  # there is nowhere else


def test_places_that_came_before_are_left_out():
    same = iter([np.zeros(1), np.ones(1), np.ones(1), np.full(1, 2.0)])
    assert [float(p[0]) for p in distinct_points(same, np.zeros(1))] == [1.0, 2.0]


def test_from_zero_where_nothing_moves_the_search_goes_elsewhere():
    """x' = k^2 ...: no residual depends on k at 0."""

    model = ode({"x": lambda m, t: m.k**2 - 0.1 * m.x[t]}, k=(None, None))

    t = np.linspace(1, 10, 10)
    table = pd.DataFrame({"time": t, "x": 5 * (1 - np.exp(-0.1 * t))})
    run = igpe.Experiment(table, start={"x": 0.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(model, parameters=["k"], experiments=run)
    found = igpe.IncrementalShooting().estimate(problem, {"k": 0.0})
    assert found.objective < 1.0
    assert found.parameters["k"] == pytest.approx(np.sqrt(0.5), rel=1e-3)
