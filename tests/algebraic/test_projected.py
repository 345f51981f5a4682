"""The proving route of step 3: what it finds, what it proves, and when it leaves it to others."""

from dataclasses import dataclass, replace
from typing import Any

import brute_force
import casadi as ca
import kinetic_family
import numpy as np
import pytest

from igpe.algebraic.base import Contribution, Regression, RouteResult
from igpe.algebraic.bounds.search import ProjectedSearch
from igpe.algebraic.projected import BRIEF, GlobalSolver, Projected
from igpe.core.box import Box
from igpe.core.estimates import Estimate
from igpe.core.status import Status

X = np.linspace(0.1, 5.0, 20)[None]


@dataclass(frozen=True)
class Elsewhere:
    """A route that says that it was asked."""

    def estimate(self, _: Regression) -> RouteResult:
        return RouteResult(Estimate({}, 1.0, Status.BEST_OF_SEVERAL, "elsewhere"), ())


def regression(rate: Any, lower: Any, upper: Any, truth: Any, noise: float = 0.02) -> Regression:
    k, p = ca.SX.sym("k"), ca.SX.sym("p", len(lower))
    predict = ca.Function("f", [k, p], [rate(k, p)])
    exact = np.array([float(predict(x, truth)) for x in X[0]])
    target = exact + noise * np.std(exact) * np.random.default_rng(0).normal(size=len(exact))
    box = Box(tuple("abcd"[: len(lower)]), np.array(lower, float), np.array(upper, float))
    return Regression(
        box, (Contribution(predict, X, None, target, np.ones(len(target))),), "", False
    )


def michaelis(
    lower: Any = (0.0, 0.01), upper: Any = (10.0, 10.0), noise: float = 0.02
) -> Regression:
    return regression(lambda k, p: p[0] * k / (p[1] + k), lower, upper, (2.0, 0.5), noise)


def test_it_agrees_with_scip() -> None:
    mine = Projected(gap=1e-6, absolute=0.0).estimate(michaelis()).estimate
    other = GlobalSolver(time_limit=20.0).estimate(michaelis()).estimate
    assert mine.status is other.status is Status.OPTIMAL_WITHIN_GAP
    assert mine.objective == pytest.approx(other.objective, rel=1e-6)
    assert mine.parameters == pytest.approx(other.parameters, rel=1e-4)
    assert mine.lower_bound <= mine.objective
    assert mine.gap <= 1e-6 * (1 + 1e-9)
    assert other.lower_bound <= mine.objective * (1 + 1e-9)
    assert mine.lower_bound <= other.objective * (1 + 1e-9)


@pytest.mark.parametrize("name", ["COPS methanol, slopes", "methanol, slopes", "urethane, slopes"])
def test_published_models_reach_their_gap(name: str) -> None:
    one = brute_force.regressions()[name]
    answer, lost, _ = Projected(gap=1e-3).estimate(one)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert 0 <= answer.gap <= 1e-3 * (1 + 1e-9)
    at = one.linearised(one.box.vector(answer.parameters)) if not lost else None
    assert at is None or at.cost == pytest.approx(answer.objective, rel=1e-9)
    assert "projected branch and bound" in answer.method


@pytest.mark.parametrize("exchange", [False, True])
def test_with_and_without_exchange_the_same_optimum(exchange: bool) -> None:
    answer = Projected(exchange=exchange, gap=1e-3).estimate(brute_force.two_equilibria()).estimate
    best = Projected(gap=1e-5, exchange=False).estimate(brute_force.two_equilibria()).estimate
    assert answer.objective == pytest.approx(best.objective, rel=1e-8)
    assert answer.lower_bound <= best.objective


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("family", kinetic_family.FAMILIES)
def test_no_local_search_finds_less_than_what_is_proved(family: str, seed: int) -> None:
    one = kinetic_family.problem(family, 2, 40, seed)
    answer = Projected(gap=1e-2, time_limit=3.0).estimate(one).estimate
    search = Projected().search
    for p in one.box.sobol(32, seed):
        fit = search.fit(one.linearised, p, one.box)
        assert fit.at is None or fit.cost >= answer.lower_bound * (1 - 1e-9)
        assert fit.at is None or fit.cost >= answer.objective * (1 - 1e-2)


@pytest.mark.parametrize(
    "one",
    [
        regression(lambda k, p: p[0] * ca.erf(p[1] * k), (0, 0), (5, 5), (2, 1)),
        regression(lambda k, p: p[0] * k + 2 * (p[1] > k), (0, 0), (10, 10), (2, 2), 0.0),
        regression(lambda k, p: p[0] * k + ca.floor(p[1]), (0, 0), (10, 10), (2, 2.5), 0.0),
        michaelis(upper=(10.0, np.inf)),
        michaelis(lower=(0.0, -np.inf)),
    ],
    ids=["erf", "comparison", "floor", "no upper of theta", "no lower of theta"],
)
def test_what_it_cannot_prove_it_leaves_to_the_other_route(one: Regression) -> None:
    answer = Projected(otherwise=Elsewhere()).estimate(one).estimate
    assert answer.method == "elsewhere"


def test_nothing_that_can_be_evaluated_goes_elsewhere() -> None:
    one = michaelis()
    nothing = replace(one.pieces[0], target=np.full(20, np.nan))
    answer = Projected(otherwise=Elsewhere()).estimate(replace(one, pieces=(nothing,))).estimate
    assert answer.method == "elsewhere"


def test_a_ratio_without_an_upper_bound() -> None:
    one = brute_force.two_equilibria()
    upper = one.box.upper.copy()
    upper[1] = np.inf
    answer = Projected(time_limit=5.0).estimate(replace(one, box=replace(one.box, upper=upper)))
    assert answer.estimate.objective < np.inf
    assert answer.estimate.lower_bound <= answer.estimate.objective


def test_what_the_data_do_not_determine_is_left_out() -> None:
    one = regression(
        lambda k, p: p[0] * p[2] * k / (p[1] + k), (0.1, 0.01, 0.1), (10, 10, 10), (2, 0.5, 1)
    )
    answer, lost, _ = Projected().estimate(one)
    assert set(lost) == {"a", "c"}
    assert answer.parameters == pytest.approx({"b": 0.5}, rel=0.2)
    assert answer.gap <= 1e-4
    nowhere = regression(lambda k, p: p[0] * k, (0, 0), (5, 5), (2, 1))
    answer, lost, _ = Projected().estimate(nowhere)
    assert lost == ("b",)


def test_other_optima_are_reported() -> None:
    """exp(-a k) + exp(-b k): two optima, one the other's mirror image."""
    one = regression(
        lambda k, p: ca.exp(-p[0] * k) + 0.5 * ca.exp(-p[1] * k), (0.1, 0.1), (9, 9), (0.3, 4.0)
    )
    answer, lost, others = Projected(gap=1e-3, starts=12).estimate(one)
    assert lost == ()
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.parameters == pytest.approx({"a": 0.3, "b": 4.0}, rel=0.3)
    assert all(o.objective >= answer.objective and o.lower_bound == -np.inf for o in others)


def test_exact_data_are_proved_to_the_absolute_gap() -> None:
    one = michaelis(noise=0.0)
    answer = Projected().estimate(one).estimate
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.parameters == pytest.approx({"a": 2.0, "b": 0.5}, rel=1e-5)
    assert 0 <= answer.lower_bound <= answer.objective


def test_a_time_limit_of_nothing_still_answers() -> None:
    one = kinetic_family.problem("shared", 3, 60, seed=0)
    answer = Projected(time_limit=0.0, gap=1e-9).estimate(one).estimate
    assert answer.status is Status.TIME_LIMIT
    assert answer.lower_bound >= 0
    assert np.isfinite(answer.objective)


def test_the_same_seed_gives_the_same_answer() -> None:
    one = kinetic_family.problem("hill", 2, 40, seed=0)
    first, second = (Projected(gap=1e-2).estimate(one).estimate for _ in range(2))
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)
    other = Projected(gap=1e-2).seeded(5)
    assert (other.seed, other.otherwise) == (5, GlobalSolver().seeded(5))
    assert other.estimate(one).estimate.objective == pytest.approx(first.objective, rel=1e-8)


@pytest.mark.parametrize("is_deficient", [False, True])
def test_a_proof_is_brief_where_only_combinations_are_determined(monkeypatch, is_deficient) -> None:
    """Of a product the best factors are many, and boxes around them never close."""
    one = michaelis()
    if is_deficient:
        rate = lambda k, p: p[0] * k / (p[1] * p[2] + k)  # noqa: E731
        one = regression(rate, (0.0, 0.1, 0.1), (10.0, 9.0, 9.0), (2.0, 0.5, 1.0))
    asked = []
    run = ProjectedSearch.run

    def seen(self, objective, limits):
        asked.append(limits)
        return run(self, objective, limits)

    monkeypatch.setattr(ProjectedSearch, "run", seen)
    found = Projected(exchange=False).estimate(one).estimate
    assert (asked[0].boxes <= 1 + BRIEF) == is_deficient
    assert found.status is not Status.TIME_LIMIT  # which is much longer
