"""Iterated search: the same for the same seed, and what ends it."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from zoo import CASES

from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.search.multistart import IteratedSearch, _continued, _mixed, _redrawn, _Search
from igpe.dynamics.shooting.single_shooting import PreparedShooting
from igpe.numerics.least_squares.base import Fit, Linearised
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

SHORT = {"starts": 12, "patience": 6, "most": 12, "finalists": 1}


def test_the_same_seed_gives_the_same():
    problem = CASES["consecutive"].problem(noise=0.05)
    first, second = (IteratedSearch(**SHORT, seed=5).estimate(problem, {}) for _ in "12")
    assert first.parameters == second.parameters
    assert first.reached == second.reached


def test_starts_that_agree_end_it():
    problem = CASES["consecutive"].problem(noise=0.05)
    found = IteratedSearch(starts=10, agreeing=2, finalists=1).estimate(problem, {})
    assert found.method.startswith("best of 10 rough searches")
    longer = IteratedSearch(starts=10, agreeing=11, patience=3, finalists=1).estimate(problem, {})
    assert longer.method.startswith("best of 13 rough searches")
    given = IteratedSearch(starts=10, agreeing=2, finalists=1).estimate(
        problem, CASES["consecutive"].near
    )
    assert given.method.startswith("best of 11 rough searches")


def test_returns_to_the_best_optimum_end_it():
    problem = CASES["consecutive"].problem(noise=0.05)
    found = IteratedSearch(starts=10, agreeing=11, finalists=1).estimate(problem, {})
    count = len(found.reached) - 1  # less the finalist
    assert 25 <= count < 40  # patience alone would take 310


def test_an_explained_optimum_that_starts_agree_on_ends_it_after_a_part_of_the_work():
    method = IteratedSearch(starts=40, agreeing=41, finalists=1, work=8_000_000)
    explained, refuted = (len(method.estimate(_known(s), {}).reached) for s in (1.0, 1e-4))
    assert 4 <= explained < refuted


def _known(sigma):
    """Two reactions, measured with errors of about 0.05."""
    case = CASES["consecutive"]
    run = Experiment(case.data(0.05, 0), start=case.start, start_time=0.0, sigma=sigma)
    return Problem(case.builder, parameters=list(case.truth), experiments=[run])


@pytest.mark.parametrize(
    ("met", "patience", "searches"),
    [(1, 6, 23), (5, 2, 15), (1, 200, 30)],  # patience, doubled or not; work
)
def test_a_best_optimum_that_few_searches_reached_ends_it_later(met, patience, searches):
    """Random starts end at ten optima, `met` modified ones at a better one, the rest elsewhere."""
    box = CASES["consecutive"].problem().box
    problem, residuals = (
        SimpleNamespace(box=box, sigma_estimated=False, sigma_known=False),
        SimpleNamespace(work=0),
    )
    costs = itertools.chain(range(20, 10, -1), [7.0] * met, itertools.repeat(9.0))

    def fit(_):
        residuals.work += 10
        at = Linearised(np.zeros(1), np.ones((1, 2)), offset=next(costs))
        return Fit(box.middle, at, Status.CONVERGED, 1)

    rough = SimpleNamespace(problem=problem, residuals=residuals, fit=fit)
    search = _Search(IteratedSearch(starts=10, agreeing=5, patience=patience, work=300), rough)
    search.run([])
    assert len(search.reached) == searches


def judged(box, *, sigma_estimated=False, sigma_known=False):
    """What tells how the objective of a problem is judged."""
    plain = {"loss": SimpleNamespace(is_squares=True), "is_censored": False, "has_spectra": False}
    return SimpleNamespace(
        box=box, sigma_estimated=sigma_estimated, sigma_known=sigma_known, **plain
    )


@pytest.mark.parametrize(
    ("known", "costs", "searches"),
    [
        (True, (55.0, 54.8, 54.7, 54.65, 54.6), 1),  # creeps, and errors explain it
        (True, (155.0, 154.8, 154.7, 154.65, 154.6), 4),  # they do not
        (True, (60.0, 58.0, 57.0, 55.0, 54.9), 4),
        (False, (55.0, 54.8, 54.7, 54.65, 54.6), 4),
    ],
)
def test_a_search_that_creeps_at_an_explained_fit_is_not_gone_on_with(known, costs, searches):
    box = CASES["consecutive"].problem().box
    at = [Linearised(np.full(60, np.sqrt(cost / 60)), np.ones((60, 2))) for cost in costs]
    fits = [Fit(box.middle, one, Status.ITERATION_LIMIT, 1) for one in at]
    more = iter(fits[1:])
    problem = judged(box, sigma_known=known)
    prepared = SimpleNamespace(problem=problem, fit=lambda _: next(more))
    assert _continued(prepared, fits[0], 4).cost == pytest.approx(costs[searches])


@pytest.mark.parametrize(
    ("costs", "kind", "kept"),
    [
        ((12, 10.001, 10), "squares", [2, 0]),
        ((-251.0, -251.7, -252.1), "likelihood", [2, 0]),
        ((12, 10.3, 10), "chi squared", [2, 1, 0]),
        ((12, 10.3, 10), "squares", [2, 1, 0]),
    ],
)
def test_ends_with_one_objective_count_as_one_optimum(costs, kind, kept):
    """Squares by a thousandth, likelihoods by a half."""
    box = CASES["consecutive"].problem().box
    problem = judged(box, sigma_estimated=kind == "likelihood", sigma_known=kind == "chi squared")
    at = [Linearised(np.zeros(1), np.ones((1, 2)), offset=cost) for cost in costs]
    fits = iter([Fit(np.full(2, k), one, Status.CONVERGED, 1) for k, one in enumerate(at)])
    rough = SimpleNamespace(problem=problem, residuals=None, fit=lambda _: next(fits))
    search = _Search(IteratedSearch(), rough)
    for _ in at:
        search._search(box.middle)
    assert [fit.x[0] for fit in search.pool] == kept
    assert search.reached == pytest.approx(costs)


def test_half_of_the_unknowns_is_redrawn_or_fewer():
    n, random = 10, np.random.default_rng(0)
    children = [_redrawn(np.zeros(n), np.ones(n), random) for _ in range(200)]
    counts = {int(c.sum()) for c in children}
    assert counts == {1, 2, 5}  # round(10/16), 10/8, 10/4, 10/2
    assert all(set(c) <= {0.0, 1.0} for c in children)


def test_mixed_starts_lie_between_two_optima_and_beside_them():
    box = Box(("k", "y"), np.array([1e-6, -10.0]), np.array([1e6, 2.0]), frozenset({"k"}))
    one, other, random = np.array([1e-2, 0.0]), np.array([1e2, 1.0]), np.random.default_rng(0)
    points = np.array([_mixed(one, other, random, box) for _ in range(2000)])
    decades = np.log10(points[:, 0])
    assert decades.min() == pytest.approx(-4, abs=0.05)  # half of the four decades on each side
    assert decades.max() == pytest.approx(4, abs=0.05)
    assert decades.mean() == pytest.approx(0, abs=0.2)
    assert points[:, 1].min() == pytest.approx(-0.5, abs=0.01)
    assert points[:, 1].max() == pytest.approx(1.5, abs=0.01)
    narrow = Box(("k", "y"), np.array([1e-3, 0.0]), np.array([1e3, 1.0]), frozenset({"k"}))
    inside = np.array([_mixed(one, other, random, narrow) for _ in range(200)])
    assert ((inside >= narrow.lower) & (inside <= narrow.upper)).all()


def test_an_interrupted_search_ends_also_where_few_steps_are_not_enough(monkeypatch):
    monkeypatch.setattr("igpe.dynamics.shooting.residuals.FINISH", 1)
    searched = _Search._search

    def search(self, start):
        searched(self, start)
        if self.pool:
            raise KeyboardInterrupt

    monkeypatch.setattr(_Search, "_search", search)
    one = IteratedSearch(**SHORT).estimate(CASES["consecutive"].problem(), {})
    assert one.status is Status.INTERRUPTED
    assert np.isfinite(one.objective)


def test_an_interrupt_before_the_first_search_ends_is_one(monkeypatch):
    def fit(self, start):
        raise KeyboardInterrupt

    monkeypatch.setattr(PreparedShooting, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        IteratedSearch(**SHORT).estimate(CASES["consecutive"].problem(), {})
