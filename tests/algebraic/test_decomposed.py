"""Stages of an algebraic problem: which they are, what they find, and what is claimed of them."""

from dataclasses import dataclass, replace

import casadi as ca
import numpy as np
import pytest

from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.routes import Decomposed, LocalSearch
from igpe.core.box import Box
from igpe.core.status import Status

X = np.linspace(0.1, 4.0, 25)
ROUTE = LocalSearch(trials=64, starts=6)
TRUTH = {"a": 1.2, "b": 0.8, "c": 2.0, "d": 0.5}


def saturation(a, b, c, d, x):
    """Depends on a and b alone."""
    return a * x / (b + x)


def mixture(a, b, c, d, x):
    """Depends on all."""
    return a * x / (b + x) - c * ca.exp(-d * x)


def line(a, b, c, d, x):
    """Linear in c and d."""
    return c * x + d * b


def product(a, b, c, d, x):
    """Of a and b only their product can be seen."""
    return a * b * x


def regression(*formulas, noise=0.0, names="abcd", lower=0.1):
    """Slopes of the formulas at the truth, with noise of its own in each."""
    random = np.random.default_rng(3)
    known, p = ca.SX.sym("x"), ca.SX.sym("p", len(names))
    by_name = dict(zip(names, ca.vertsplit(p), strict=True))
    pieces = []
    for formula in formulas:
        slope = formula(*(by_name.get(n, 0) for n in "abcd"), known)
        predict = ca.Function("predict", [known, p], [slope])
        truth = [TRUTH.get(n, 1.0) for n in names]
        exact = np.array([float(predict(x, truth)) for x in X])
        target = exact + noise * random.normal(size=len(X))
        pieces.append(Contribution(predict, X[None], None, target, np.full(len(X), 2.0)))
    n = len(names)
    return Regression(
        Box(tuple(names), np.full(n, lower), np.full(n, 5.0)), tuple(pieces), "", False
    )


@dataclass(frozen=True)
class Claiming:
    """A local search that claims a share of its objective as proven."""

    share: float

    def estimate(self, regression):
        """As in `Route.estimate`."""
        found = ROUTE.estimate(regression)
        claimed = replace(
            found.estimate,
            status=Status.OPTIMAL_WITHIN_GAP,
            lower_bound=self.share * found.estimate.objective,
        )
        return found._replace(estimate=claimed)


def cost(whole, parameters):
    """The whole sum of squares there."""
    return whole.linearised(whole.box.vector(parameters)).cost


@pytest.mark.parametrize("order", [(saturation, mixture), (mixture, saturation)])
def test_the_smallest_stage_comes_first_and_exact_data_give_the_truth(order):
    answer, lost, _ = Decomposed(ROUTE).estimate(regression(*order))
    assert lost == ()
    assert [tuple(stage.parameters) for stage in answer.trail] == [("a", "b"), ("c", "d")]
    assert answer.parameters == pytest.approx(TRUTH, rel=1e-6)
    assert list(answer.parameters) == list("abcd")


def test_the_objective_is_that_of_the_whole_problem_at_the_combined_point():
    whole = regression(mixture, saturation, line, noise=0.05)
    answer, _, _ = Decomposed(ROUTE).estimate(whole)
    assert answer.objective == pytest.approx(cost(whole, answer.parameters), rel=1e-10)
    assert answer.objective > ROUTE.estimate(whole).estimate.objective


def test_only_the_bound_of_a_stage_that_holds_nothing_is_claimed():
    whole = regression(mixture, saturation, noise=0.05)
    answer, _, _ = Decomposed(Claiming(1.0)).estimate(whole)
    first, second = answer.trail
    assert first.lower_bound > 0
    assert second.lower_bound > 0
    assert answer.lower_bound == first.lower_bound
    best = ROUTE.estimate(whole).estimate.objective
    assert answer.lower_bound <= best < first.lower_bound + second.lower_bound
    assert answer.status is Status.STAGED
    assert answer.gap > 0


def test_stages_without_a_common_parameter_prove_the_whole():
    def other(a, b, c, d, x):
        return c * ca.exp(-d * x)

    whole = regression(saturation, other, noise=0.05)
    answer, _, _ = Decomposed(Claiming(1.0)).estimate(whole)
    assert len(answer.trail) == 2
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.lower_bound == pytest.approx(cost(whole, answer.parameters), rel=1e-10)


def test_nothing_is_claimed_where_no_stage_proves_anything():
    answer, _, _ = Decomposed(ROUTE).estimate(regression(saturation, mixture, noise=0.05))
    assert answer.lower_bound == -np.inf
    assert answer.status is Status.BEST_OF_SEVERAL


def test_what_does_not_fall_apart_goes_to_the_route():
    whole = regression(mixture)
    alone, found = ROUTE.estimate(whole), Decomposed(ROUTE).estimate(whole)
    assert found.estimate.parameters == alone.estimate.parameters
    assert found.estimate.method == alone.estimate.method
    assert found.estimate.trail == ()


def test_a_stage_that_does_not_determine_its_parameters_grows():
    def rest(a, b, c, d, x):
        return a * x**2 + c * ca.exp(-d * x)

    answer, lost, _ = Decomposed(ROUTE).estimate(regression(product, rest))
    assert lost == ()
    assert answer.parameters == pytest.approx(TRUTH, rel=1e-6)


def test_a_stage_that_became_linear_is_solved_by_convexity():
    answer, lost, _ = Decomposed(ROUTE).estimate(regression(saturation, line, noise=0.01))
    assert lost == ()
    first, second = answer.trail
    assert (first.status, second.status) == (Status.BEST_OF_SEVERAL, Status.GLOBAL_BY_CONVEXITY)
    assert (answer.status, answer.lower_bound) == (Status.BEST_OF_SEVERAL, -np.inf)


def test_what_no_slope_depends_on_and_what_the_last_does_not_determine_is_named():
    answer, lost, _ = Decomposed(ROUTE).estimate(regression(saturation, names="abe"))
    assert lost == ("e",)
    assert answer.parameters == pytest.approx({"a": 1.2, "b": 0.8}, rel=1e-6)
    answer, lost, _ = Decomposed(ROUTE).estimate(regression(product))
    assert lost == ("a", "b", "c", "d")
    assert answer.objective == pytest.approx(0.0, abs=1e-15)


def test_a_failed_stage_fails_the_whole():
    def nowhere(a, b, c, d, x):
        return a * x / (b + x) + c * d * ca.sqrt(-x)

    whole = regression(saturation, nowhere)
    answer, lost, _ = Decomposed(ROUTE).estimate(whole)
    assert (answer.status, answer.objective, lost) == (Status.FAILED, np.inf, ("c", "d"))
    assert answer.trail[0].parameters == pytest.approx({"a": 1.2, "b": 0.8}, rel=1e-6)


def test_the_seed_reaches_the_route():
    assert Decomposed(ROUTE).seeded(5).route == ROUTE.seeded(5)
    assert Decomposed(Claiming(0.5)).seeded(5) == Decomposed(Claiming(0.5))
