"""Step 3's regressions: derivatives, the linear route and the local one."""

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.routes import LinearRoute, LocalSearch
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.numerics.covariance import determined

RANDOM = np.random.default_rng(6)


def box(n, lower=-10.0, upper=10.0):
    """n parameters with the same bounds."""
    return Box(tuple("abcdef"[:n]), np.full(n, lower), np.full(n, upper))


def linear_piece(matrix, target, weight=None, combine=None):
    """Slopes that are rows of the matrix times p."""
    known, p = ca.SX.sym("known", matrix.shape[1]), ca.SX.sym("p", matrix.shape[1])
    predict = ca.Function("predict", [known, p], [ca.dot(known, p)])
    weight = np.ones(len(target)) if weight is None else weight
    return Contribution(predict, matrix.T, combine, target, weight)


def curved_piece(x, target):
    """Slopes a x / (b + x)."""
    known, p = ca.SX.sym("x"), ca.SX.sym("p", 2)
    predict = ca.Function("predict", [known, p], [p[0] * known / (p[1] + known)])
    return Contribution(predict, x[None], None, target, np.full(len(x), 3.0))


@pytest.mark.parametrize("combined", [False, True])
def test_the_derivative_of_a_piece_against_central_differences(combined):
    x = np.linspace(0.1, 4.0, 9)
    piece = curved_piece(x, RANDOM.normal(size=9))
    if combined:
        mix = RANDOM.normal(size=(3, 3))
        piece = Contribution(piece.predict, piece.known, mix, np.ones(3), np.arange(1.0, 4.0))
    p, h = np.array([1.2, 0.8]), 1e-6
    one = regression([piece], box(2), linear=False)
    at = one.linearised(p)
    central = [
        (one.linearised(p + e).residual - one.linearised(p - e).residual) / (2 * h)
        for e in h * np.eye(2)
    ]
    assert one.cost(p) == pytest.approx(at.cost, rel=1e-14)
    assert at.jacobian == pytest.approx(np.array(central).T, rel=1e-7, abs=1e-8)
    symbol = ca.SX.sym("p", 2)
    said = ca.Function("r", [symbol], [piece.symbolic(symbol)])(p)
    assert np.asarray(said).ravel() == pytest.approx(at.residual, rel=1e-13)
    f = p[0] * x / (p[1] + x)
    wanted = piece.target - ((piece.combine * f.reshape(3, 3)).sum(axis=1) if combined else f)
    assert at.residual == pytest.approx(piece.weight * wanted, rel=1e-13)


def regression(pieces, unknowns, *, linear):
    """A regression of those pieces."""
    return Regression(unknowns, tuple(pieces), "made up", linear)


def test_pieces_at_the_same_places_are_computed_together():
    x = np.linspace(0.1, 4.0, 9)
    one, mix = curved_piece(x, RANDOM.normal(size=9)), RANDOM.normal(size=(3, 3))
    twin = Contribution(one.predict, one.known, mix, np.ones(3), np.arange(1.0, 4.0))
    other = curved_piece(x + 1, RANDOM.normal(size=9))
    pieces, p = [one, other, twin], np.array([1.2, 0.8])
    at = regression(pieces, box(2), linear=False).linearised(p)
    alone = [regression([piece], box(2), linear=False).linearised(p) for piece in pieces]
    assert at.residual == pytest.approx(np.concatenate([a.residual for a in alone]), rel=1e-14)
    assert at.jacobian == pytest.approx(np.vstack([a.jacobian for a in alone]), rel=1e-14)


def test_a_sum_of_squares_and_its_symbols():
    first = linear_piece(RANDOM.normal(size=(4, 2)), np.ones(4))
    second = linear_piece(RANDOM.normal(size=(3, 2)), np.zeros(3))
    whole = regression([first, second], box(2), linear=True)
    p = np.array([0.3, -2.0])
    at = whole.linearised(p)
    symbol, residual = whole.symbolic()
    assert np.asarray(ca.Function("r", [symbol], [residual])(p)).ravel() == pytest.approx(
        at.residual
    )


def test_a_point_without_numbers_is_none():
    whole = regression([curved_piece(np.array([1.0]), np.ones(1))], box(2), linear=False)
    assert whole.linearised(np.array([1.0, -1.0])) is None
    assert whole.cost(np.array([1.0, -1.0])) == np.inf


@pytest.mark.parametrize("weighted", [False, True])
def test_linear_is_least_squares(weighted):
    matrix, target = RANDOM.normal(size=(12, 3)) * [1.0, 1e4, 1e-3], RANDOM.normal(size=12)
    weight = RANDOM.uniform(0.1, 3.0, 12) if weighted else np.ones(12)
    wide = Box(("a", "b", "c"), np.full(3, -1e9), np.full(3, 1e9))
    whole = regression([linear_piece(matrix, target, weight)], wide, linear=True)
    answer, lost, _ = LinearRoute().estimate(whole)
    p, cost, *_ = np.linalg.lstsq(weight[:, None] * matrix, weight * target, rcond=None)
    assert lost == ()
    assert wide.vector(answer.parameters) == pytest.approx(p, rel=1e-8)
    assert answer.objective == pytest.approx(cost[0], rel=1e-10)
    assert (answer.status, answer.gap) == (Status.GLOBAL_BY_CONVEXITY, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_linear_within_bounds_against_another_method(seed):
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(15, 4)), 3 * random.normal(size=15)
    tight = Box(
        tuple("abcd"), np.array([-0.1, 0.2, -np.inf, 0.0]), np.array([0.1, 0.3, 0.4, np.inf])
    )
    whole = regression([linear_piece(matrix, target)], tight, linear=True)
    answer, lost, _ = LinearRoute().estimate(whole)
    reference = lsq_linear(matrix, target, (tight.lower, tight.upper), method="trf", tol=1e-14)
    p = tight.vector(answer.parameters)
    assert lost == ()
    assert (p == tight.clip(p)).all()
    assert answer.objective == pytest.approx(2 * reference.cost, rel=1e-8)
    assert p == pytest.approx(reference.x, abs=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e8, 1e-8])
def test_what_the_data_do_not_determine_is_named_and_left_out(scale):
    column = RANDOM.normal(size=(10, 1))
    other = RANDOM.normal(size=(10, 1))
    matrix = np.hstack([column, scale * other, 2 * other, np.zeros((10, 1))])
    whole = regression([linear_piece(matrix, 3 * column.ravel())], box(4), linear=True)
    answer, lost, _ = LinearRoute().estimate(whole)
    assert lost == ("b", "c", "d")
    assert answer.parameters == pytest.approx({"a": 3.0}, rel=1e-8)


def test_fewer_data_than_parameters():
    whole = regression([linear_piece(np.array([[1.0, 0.0, 1.0]]), np.ones(1))], box(3), linear=True)
    answer, lost, _ = LinearRoute().estimate(whole)
    assert lost == ("a", "b", "c")
    assert answer.objective == pytest.approx(0.0, abs=1e-20)
    assert determined(np.zeros((3, 2))).tolist() == [False, False]


def test_linear_without_numbers_fails_as_a_status():
    whole = regression([linear_piece(np.array([[np.nan]]), np.ones(1))], box(1), linear=True)
    answer, lost, _ = LinearRoute().estimate(whole)
    assert (answer.status, answer.objective, lost) == (Status.FAILED, np.inf, ("a",))


def test_local_finds_the_known_optimum():
    x = np.linspace(0.1, 4.0, 15)
    unknowns = box(2, 0.01, 10.0)
    whole = regression([curved_piece(x, 1.2 * x / (0.8 + x))], unknowns, linear=False)
    answer, lost, _ = LocalSearch().estimate(whole)
    assert (answer.status, lost) == (Status.BEST_OF_SEVERAL, ())
    assert answer.parameters == pytest.approx({"a": 1.2, "b": 0.8}, rel=1e-7)
    assert answer.lower_bound == -np.inf


def wave(x):
    """Slopes sin(a x): many local optima."""
    known, p = ca.SX.sym("x"), ca.SX.sym("p")
    predict = ca.Function("predict", [known, p], [ca.sin(p * known)])
    return Contribution(predict, x[None], None, np.sin(7.3 * x), np.ones(len(x)))


def test_local_searches_where_there_are_many_optima():
    whole = regression([wave(np.linspace(0, 3, 25))], box(1, 0.0, 20.0), linear=False)
    answer, *_ = LocalSearch().estimate(whole)
    assert answer.parameters["a"] == pytest.approx(7.3, rel=1e-7)
    again, *_ = LocalSearch().estimate(whole)
    assert again.parameters == answer.parameters


def test_local_keeps_what_lies_on_a_bound_and_leaves_out_the_undetermined():
    x = np.linspace(0.1, 4.0, 15)
    whole = regression([curved_piece(x, 1.2 * x / (0.8 + x))], box(2, 1.0, 10.0), linear=False)
    answer, lost, _ = LocalSearch().estimate(whole)
    assert lost == ()
    assert answer.parameters["b"] == pytest.approx(1.0, rel=1e-8)
    ratio = linear_piece(np.ones((5, 1)), np.ones(5))
    p = ca.SX.sym("p", 2)
    known = ca.SX.sym("x")
    predict = ca.Function("predict", [known, p], [known * p[0] * p[1]])
    twins = Contribution(predict, ratio.known, None, np.full(5, 6.0), np.ones(5))
    answer, lost, _ = LocalSearch().estimate(regression([twins], box(2, 0.5, 10.0), linear=False))
    assert lost == ("a", "b")
    assert dict(answer.parameters) == {}
    assert answer.objective == pytest.approx(0.0, abs=1e-12)


def test_local_fails_as_a_status_where_nothing_can_be_computed():
    nothing = linear_piece(np.array([[np.nan]]), np.ones(1))
    answer, lost, _ = LocalSearch().estimate(regression([nothing], box(1), linear=False))
    assert (answer.status, answer.objective, lost) == (Status.FAILED, np.inf, ("a",))
