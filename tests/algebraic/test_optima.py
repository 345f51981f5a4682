"""Several good optima of step 3: found, told apart from valleys, corrected and reported."""

import casadi as ca
import numpy as np
import pandas as pd
import pytest
from ode import ode

import igpe
from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.routes import LocalSearch, distinct, route_result
from igpe.algebraic.step import estimate_algebraic, smooth_measurements
from igpe.core.box import Box
from igpe.core.estimates import Estimate
from igpe.numerics.optima import spread
from igpe.structure.structure import analyse

LOCAL = LocalSearch(trials=64, starts=12)


def regression(slope, x, target, box):
    """Slopes that an expression of x and p predicts."""
    known, p = ca.SX.sym("x"), ca.SX.sym("p", len(box))
    predict = ca.Function("predict", [known, p], [slope(known, p)])
    piece = Contribution(predict, x[None], None, target, np.ones(len(x)))
    return Regression(box, (piece,), "made up", False)


def box(n, lower, upper):
    return Box(tuple("abcdef"[:n]), np.full(n, lower), np.full(n, upper))


X = np.linspace(0.1, 4.0, 25)
NOISE = 0.02 * np.random.default_rng(5).standard_normal(len(X))


def sum_of_two(p, x):
    """Two exponentials that may change places."""
    return np.exp(-p[0] * x) + np.exp(-p[1] * x)


TWINS = regression(
    lambda x, p: ca.exp(-p[0] * x) + ca.exp(-p[1] * x),
    X,
    sum_of_two([0.5, 3.0], X) + NOISE,
    box(2, 0.01, 10.0),
)


def test_exchangeable_parameters_are_two_optima():
    fits = LOCAL.fits(TWINS)
    assert len(fits) == 2
    assert fits[0].x == pytest.approx(fits[1].x[::-1], rel=1e-5)
    assert sorted(fits[0].x) == pytest.approx([0.5, 3.0], rel=0.2)
    answer = LOCAL.estimate(TWINS)
    assert answer.estimate.objective == fits[0].cost
    (other,) = answer.others
    assert TWINS.box.vector(other.parameters) == pytest.approx(fits[1].x)
    assert other.objective == fits[1].cost


def test_a_worse_optimum_is_kept_with_its_objective():
    """p^2 = 4 decides for -2 or 2, and 0.1 p = 1 for 2: residuals 0.8 there and 1.2 at -2."""
    wells = regression(
        lambda x, p: ca.if_else(x < 1, (p**2 - 4), 0.1 * p), np.array([0.0, 2.0]),
        np.array([0.0, 1.0]), box(1, -5.0, 5.0),
    )  # fmt: skip
    best, other = LOCAL.fits(wells)
    assert best.x[0] == pytest.approx(2.0, abs=0.02)
    assert other.x[0] == pytest.approx(-2.0, abs=0.02)
    assert other.cost / best.cost == pytest.approx(2.25, abs=0.05)


def test_an_optimum_far_worse_is_left_out():
    wells = regression(
        lambda x, p: ca.if_else(x < 1, (p**2 - 4), 0.499 * p), np.array([0.0, 2.0]),
        np.array([0.0, 1.0]), box(1, -5.0, 5.0),
    )  # fmt: skip
    (best,) = LOCAL.fits(wells)
    assert best.x[0] == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_curved_valley_is_one_optimum(noise):
    """Only the product is determined: the starts end all along a hyperbola."""
    valley = regression(lambda x, p: p[0] * p[1] * x, X, 6 * X + noise * NOISE, box(2, 0.5, 20.0))
    assert len(LOCAL.fits(valley)) == 1


def test_a_valley_with_a_slight_slope_is_one_optimum(monkeypatch):
    """The product, and the sum so weakly that the starts stop where they meet the valley."""
    target = np.append(6 * X + NOISE, 1e-4 * 5.0)
    rough = LocalSearch(trials=64, starts=12, search=igpe_search(1e-2))
    valley = regression(
        lambda x, p: ca.if_else(x < 0, 1e-4 * (p[0] + p[1]), p[0] * p[1] * x),
        np.append(X, -1.0), target, box(2, 0.5, 20.0),
    )  # fmt: skip
    assert len(rough.fits(valley)) == 1
    monkeypatch.setattr("igpe.algebraic.routes.distinct", lambda _, fits: fits)
    assert np.ptp([fit.x[0] for fit in rough.fits(valley)]) > 1.0


def igpe_search(tolerance):
    """Gauss-Newton that stops early."""
    return LocalSearch().search.__class__(tolerance=tolerance)


def test_starts_are_spread_and_the_best_is_among_them():
    points = np.random.default_rng(2).uniform(size=(200, 2)) * [1.0, 1e6]
    near_a_corner = np.argsort(np.hypot(points[:, 0], 1e-6 * points[:, 1]))
    ordered = [points[i] for i in near_a_corner]
    chosen = spread(ordered, 12)
    assert (chosen[0], len(chosen), len(set(chosen))) == (0, 12, 12)
    assert max(ordered[i][0] for i in chosen) > 0.5
    assert max(ordered[i][0] for i in range(12)) < 0.3
    assert spread(ordered[:3], 12) == [0, 1, 2]


def test_an_answer_leaves_the_same_optimum_out_of_the_others():
    one, two = LOCAL.fits(TWINS)
    said = Estimate({}, one.cost, igpe.Status.TIME_LIMIT, "search", 0.1)
    answer = route_result(TWINS, distinct(TWINS, [two, one, one]), said, 0.0)
    assert len(answer.others) == 1
    assert answer.estimate.lower_bound == 0.1
    assert answer.estimate.status is igpe.Status.TIME_LIMIT
    assert route_result(TWINS, [one], said, 0.0).others == ()


symmetric = ode({"x": lambda m, t: m.a * m.b - (m.a + m.b) * m.x[t]}, a=(0.1, 5), b=(0.1, 5))
"""x' = a b - (a + b) x: a and b may change places, slope by slope and on the dynamics."""


def run(routes):
    """Thirty times, noise of 1 %, truth a, b = 1, 2."""
    t = np.linspace(0.1, 3.0, 30)
    exact = 2 / 3 + (0.1 - 2 / 3) * np.exp(-3 * t)
    data = pd.DataFrame({"time": t, "x": exact + 0.01 * np.random.default_rng(0).normal(size=30)})
    experiment = igpe.Experiment(data, start={"x": 0.1}, start_time=0.0)
    problem = igpe.Problem(symmetric, parameters=["a", "b"], experiments=[experiment])
    return igpe.estimate(
        problem, igpe.Settings(ladder=(igpe.smoothing.GcvSpline(),), routes=routes)
    )


def test_both_optima_are_corrected_and_reported():
    result = run(igpe.algebraic.RouteSelection(proven=LocalSearch()))
    twins = {c.origin: c for c in result.candidates}
    assert set(twins) >= {
        "slopes of smoothed data",
        "second local optimum of slopes of smoothed data",
    }
    one, two = (c.corrected for c in twins.values() if "integrated" not in c.origin)
    assert (one["a"], one["b"]) == pytest.approx((two["b"], two["a"]), rel=1e-4)
    assert "2 sets of values explain the data equally well" in str(result)
    assert "cannot tell these sets apart" in " ".join(str(result.details).split())


def test_what_the_settings_have_no_room_for_is_said():
    few = run(igpe.algebraic.RouteSelection(proven=LocalSearch(), most=0))
    assert {c.origin for c in few.candidates} == {
        "slopes of smoothed data",
        "integrated slopes of smoothed data",
        "incremental shooting",
    }
    assert any("2 other local optima from step 3 came close" in n for n in few.notes)


lopsided = ode({"x": lambda m, t: -(m.k**2) * m.x[t], "y": lambda m, t: 0.005 * m.k}, k=(-2, 2))
"""x tells k up to its sign, y tells the sign weakly."""


@pytest.mark.parametrize(("factor", "further"), [(1.01, 0), (3.0, 1)])
def test_the_factor_decides_which_optima_become_candidates(factor, further):
    t = np.linspace(0.1, 3.0, 30)
    x, y = 0.01 * np.random.default_rng(0).normal(size=(2, 30)) + [np.exp(-t), 0.005 * t]
    run = igpe.Experiment(pd.DataFrame({"time": t, "x": x, "y": y}), start={"x": 1.0, "y": 0.0})
    problem = igpe.Problem(lopsided, parameters=["k"], experiments=[run])
    curves = [smooth_measurements(problem, igpe.smoothing.GcvSpline())]
    routes = igpe.algebraic.RouteSelection(proven=LocalSearch(), factor=factor)
    first, *others = estimate_algebraic(problem, analyse(problem), curves, routes)
    slopes = [o for o in others if o.origin == "second local optimum of slopes of smoothed data"]
    assert len(slopes) == further
    assert first.parameters["k"] == pytest.approx(1.0, abs=0.05)
    for one in slopes:
        assert one.parameters["k"] == pytest.approx(-1.0, abs=0.05)
        ((_, answer),) = one.answers
        ((_, best),) = first.answers
        assert 1.01 < answer.estimate.objective / best.estimate.objective <= 3.0
