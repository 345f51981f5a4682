"""The separable problem is the posed one: residuals, exchange of parameters, bounds, way back."""

import brute_force
import casadi as ca
import numpy as np
import pytest

from igpe.algebraic.base import Contribution
from igpe.algebraic.bounds.separate import exchanges, product_bounds, separate, sum_bounds
from igpe.core.box import Box
from igpe.equations.operations import UnknownOperation

RNG = np.random.default_rng(2)
T = RNG.uniform(-1, 1, 30)
KNOWN = np.vstack([T, *RNG.uniform(0.2, 1.0, (2, 30))])


def piece(rate, n, known=KNOWN, combine=None):
    """Residuals of a rate of (known, p) with n parameters."""
    k, p = ca.SX.sym("k", len(known)), ca.SX.sym("p", n)
    predict = ca.Function("f", [k, p], [rate(k, p)])
    m = known.shape[1] if combine is None else len(combine)
    return Contribution(predict, known, combine, RNG.normal(size=m), RNG.uniform(0.1, 5, m))


def box(*bounds):
    lower, upper = np.array(bounds, dtype=float).T
    return Box(tuple(f"p{i}" for i in range(len(bounds))), lower, upper)


def arrhenius(k, a, e):
    return a * ca.exp(-e * k[0])


def apart(pieces, bounds, **more):
    """The separated problem, after comparing its residuals with the posed ones at many points."""
    found = separate(pieces, bounds, **more)
    high = np.minimum(bounds.upper, bounds.lower + 50)
    for _ in range(25):
        p = RNG.uniform(np.where(bounds.lower == 0, 1e-3, bounds.lower), high)
        posed = np.asarray(ca.vertcat(*(one.symbolic(p) for one in pieces))).ravel()[found.order]
        residual = found.residual(p)
        finite = np.isfinite(posed)
        size = np.abs(posed[finite]).max(initial=1.0)
        assert residual[finite] == pytest.approx(posed[finite], rel=1e-9, abs=1e-9 * size)
    return found


def new_values(found, p):
    """theta and beta of old parameters."""
    new = p.copy()
    for e in found.exchanges:
        new[list(e.old)] = e.to_new(p)
    return new[list(found.nonlinear)], new[list(found.linear)]


def keeps(found, p):
    """The new parameters are within all bounds of the new problem, and lead back."""
    theta, beta = new_values(found, p)
    problem, room = found.problem, 1 + 1e-12
    for a, x in zip(problem.axes, theta, strict=True):
        assert a.lower <= x <= a.upper
    assert (problem.lower <= beta).all()
    assert (beta <= problem.upper).all()
    for r in problem.ratios:
        assert r.low * beta[r.first] <= beta[r.second] * room
        assert beta[r.second] <= r.high * beta[r.first] * room
    for d in problem.differences:
        slack = 1e-12 * (abs(theta[d.first]) + abs(theta[d.second]))
        assert d.low - slack <= theta[d.second] - theta[d.first] <= d.high + slack
    assert found.parameters(theta, beta) == pytest.approx(p, rel=1e-9)


URETHANE = box((0, 100), (0, 100), (20, 200), (1, 10), (1, 10), (1, 10))


def urethane(k, p):
    """k1, k2 and k3 = k2/kc, each Arrhenius: p = k1, k2, kc, E1, E2, dh."""
    k2, kc = arrhenius(k, p[1], p[4]), arrhenius(k, p[2], p[5])
    return arrhenius(k, p[0], p[3]) * k[1] - k2 * k[2] + k2 / kc


def test_the_quotient_of_arrhenius_constants_is_exchanged():
    found = apart([piece(urethane, 6)], URETHANE)
    assert found.linear == (0, 1, 2)
    assert found.nonlinear == (3, 4, 5)
    product, difference = found.exchanges
    assert (product.product, difference.product) == (True, False)
    assert product.vectors == (((1, 1.0),), ((1, 1.0), (2, -1.0)))
    assert difference.vectors == (((4, 1.0),), ((4, 1.0), (5, -1.0)))
    (ratio,), (gap,) = found.problem.ratios, found.problem.differences
    assert (ratio.first, ratio.second, ratio.low, ratio.high) == (2, 1, 20.0, 200.0)
    assert (gap.first, gap.second, gap.low, gap.high) == (2, 1, 1.0, 10.0)
    assert found.problem.upper[2] == pytest.approx(5.0)
    for _ in range(50):
        keeps(found, RNG.uniform(URETHANE.lower, URETHANE.upper))
    for corner in ([100, 100, 20, 1, 1, 1], [1, 100, 200, 10, 10, 1], [1, 1, 20, 1, 1, 10]):
        keeps(found, np.array(corner, dtype=float))


def test_without_exchange_the_quotient_is_nonlinear():
    found = apart([piece(urethane, 6)], URETHANE, exchange=False)
    assert (found.linear, found.nonlinear) == ((0, 1), (2, 3, 4, 5))
    assert found.problem.ratios == found.problem.differences == ()


@pytest.mark.parametrize(
    ("rate", "n"),
    [
        (lambda k, p: urethane(k, p) + p[2] * k[1], 6),  # kc also alone
        (lambda k, p: urethane(k, p) + ca.exp(-p[2] * k[0]), 6),  # kc also in an exponent
        (lambda k, p: urethane(k, p) + ca.tanh(p[1]), 6),  # k2 also in a function
        (lambda k, p: urethane(k, p) + k[1] * p[1] * p[2], 6),  # a third monomial of two
        (lambda k, p: urethane(k, p) + k[1] * p[0] / p[2], 6),  # kc with two others
    ],
)
def test_where_old_parameters_occur_otherwise_nothing_is_exchanged(rate, n):
    found = apart([piece(rate, n)], URETHANE)
    assert all(2 not in e.old or len(e.vectors) == 3 for e in found.exchanges if e.product)
    for _ in range(20):
        keeps(found, RNG.uniform(URETHANE.lower, URETHANE.upper))


def test_parameters_that_may_be_negative_are_not_exchanged():
    """A quotient's bounds would not be those of its parts."""
    bounds = box((0, 100), (-1, 100), (20, 200), (1, 10), (1, 10), (1, 10))
    assert not any(e.product for e in separate([piece(urethane, 6)], bounds).exchanges)


def test_energies_whose_rates_differ_are_not_exchanged():
    def rate(k, p):
        return p[0] * ca.exp(-p[1] * k[0] + p[2] * k[1]) + p[3] * ca.exp(-p[1] * k[0])

    found = apart([piece(rate, 4)], box((0, 5), (0, 2), (0, 2), (0, 5)))
    assert found.exchanges == ()


def test_a_lower_bound_of_zero_leaves_the_quotient_without_an_upper_one():
    bounds = box((0, 100), (0, 100), (0, 200), (1, 10), (1, 10), (1, 10))
    found = apart([piece(urethane, 6)], bounds)
    assert found.problem.upper[2] == np.inf
    assert found.problem.ratios[0].low == 0.0


def test_two_quotients_of_one_constant():
    found = apart(
        [piece(lambda k, p: p[0] * k[1] - p[0] / p[1] * k[2] + p[0] / p[2] * k[0], 3)],
        box((0, 10), (1, 5), (2, 7)),
    )
    assert len(found.problem.ratios) == 2
    for _ in range(20):
        keeps(found, RNG.uniform(found.box.lower, found.box.upper))


def test_known_exchanges():
    alone, over = ((0, 1.0),), ((0, 1.0), (1, -1.0))
    (one,) = exchanges([alone, over], [0, 1], product=True)
    assert one.back == ((0,), (0, 1))
    assert one.to_old(np.array([6.0, 2.0])).tolist() == [6.0, 3.0]
    (other,) = exchanges([((1, 1.0),), ((0, 1.0), (1, 1.0))], [0, 1], product=True)
    assert set(other.vectors) == {((1, 1.0),), ((0, 1.0), (1, 1.0))}
    assert exchanges([alone, over], [0], product=True) == []
    assert exchanges([over], [0, 1], product=True) == []
    assert exchanges([((0, 2.0), (1, 1.0)), ((1, 1.0),)], [0, 1], product=True) == []
    assert exchanges([alone, ((1, 1.0),)], [0, 1], product=True) == []


@pytest.mark.parametrize("bounds", [product_bounds, sum_bounds])
def test_bounds_of_new_parameters_hold_every_value(bounds):
    for _ in range(200):
        old = {i: tuple(np.sort(RNG.uniform(0, 9, 2) * (RNG.random(2) > 0.2))) for i in range(3)}
        vector = tuple((i, float(a)) for i, a in enumerate(RNG.choice([-2, -1, 1, 2], 3)))
        low, high = bounds(vector, old)
        for _ in range(10):
            x = [RNG.uniform(*old[i]) or 1e-12 for i in range(3)]
            if bounds is sum_bounds:
                assert low - 1e-11 <= sum(a * x[i] for i, a in vector) <= high + 1e-11
            elif all(lo < hi for lo, hi in old.values()):
                assert low <= np.prod([x[i] ** a for i, a in vector]) <= high


def test_bounds_of_a_sum_that_cancels_are_outward():
    """0.1 + 0.2 - 0.3 is 2.8e-17 exactly and 5.6e-17 in floating point."""
    vector = ((0, 1.0), (1, 1.0), (2, -1.0))
    low, _ = sum_bounds(vector, {0: (0.1, 1.0), 1: (0.2, 1.0), 2: (0.1, 0.3)})
    assert low <= 2.7e-17


RATES = {
    "linear": (lambda k, p: p[0] * k[0] + p[1] * k[1] + k[2], 3),
    "michaelis": (lambda k, p: p[0] * k[1] / (p[1] + k[1]) + p[2], 3),
    "same K twice": (lambda k, p: (p[0] * k[1] - p[1] * k[2]) / (1 + k[1] / p[2]), 3),
    "hidden linear": (lambda k, p: (p[0] * k[0] + p[1] + k[1]) / (p[2] + ca.sin(p[2]) + k[2]), 3),
    "products out": (lambda k, p: (p[0] + k[1]) * (p[1] + k[2]) * p[2], 3),
    "square": (lambda k, p: (p[0] - p[1] * k[1]) ** 2 / (1 + p[2]), 3),
    "powers": (lambda k, p: p[0] * k[1] ** p[1] + (p[2] * k[2]) ** 0.5, 3),
    "nowhere": (lambda k, p: p[0] * k[1], 3),
    "no linear": (lambda k, p: ca.exp(-p[0] * p[1] * k[1]) + p[2] ** 2, 3),
    "cancelling": (lambda k, p: p[0] * p[1] / p[0] * k[1] + p[2], 3),
    "temperature squared": (lambda k, p: p[0] * ca.exp(-p[1] * k[0]) * ca.exp(p[2] * k[0] ** 2), 3),
}


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("name", RATES)
def test_the_residuals_are_the_same(name, exchange):
    rate, n = RATES[name]
    found = apart([piece(rate, n)], box(*[(0.1, 5)] * n), exchange=exchange)
    assert sorted(found.linear + found.nonlinear) == list(range(n))
    theta = RNG.uniform(0.1, 5, len(found.nonlinear))
    (columns,) = found.problem.values(theta[None])
    assert columns.shape == (30, 1 + len(found.linear))


def test_several_groups_of_places_with_quadratures_and_the_order_of_residuals():
    other = RNG.uniform(0.2, 1.0, (3, 12))
    combine = RNG.normal(size=(4, 3))
    first, second = (
        (lambda k, p: arrhenius(k, p[0], p[1])),
        (lambda k, p: p[0] * k[1] / (p[1] + k[2])),
    )
    pieces = [
        piece(first, 2), piece(second, 2, other, combine), piece(second, 2),
        piece(first, 2, other, combine), piece(first, 2, other),
    ]  # fmt: skip
    found = apart(pieces, box((0, 3), (0.1, 4)))
    assert len(found.problem.blocks) == 3
    assert sorted(found.order) == list(range(30 + 4 + 30 + 4 + 12))


@pytest.mark.parametrize("name", ["COPS methanol, integrals", "urethane, integrals"])
def test_published_models_are_the_same_problem(name):
    one = brute_force.regressions()[name]
    found = separate(one.pieces, one.box)
    middle = (one.box.lower + one.box.upper) / 2
    posed = one.linearised(middle).residual[found.order]
    assert found.residual(middle) == pytest.approx(posed, rel=1e-8, abs=1e-8 * np.abs(posed).max())


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_enclosures_of_weighted_columns_hold_their_values(combined, sign):
    known = RNG.uniform(0.2, 1.0, (3, 12))
    combine = RNG.normal(size=(4, 3)) if combined else None
    one = piece(
        lambda k, p: p[0] * k[1] / (p[1] + k[2]) - arrhenius(k, 1.0, p[1]), 2, known, combine
    )
    one = Contribution(one.predict, one.known, one.combine, one.target, sign * one.weight)
    problem = separate([one], box((0, 3), (0.1, 4))).problem
    for k in range(2):
        (f,) = problem.enclosures((k,), np.array([[0.5]]), np.array([[0.7]]))
        assert (f.e >= 0).all()
        low, high = f.range()
        for theta in np.linspace(0.5, 0.7, 9):
            value = problem.values(np.array([[theta]]))[0, :, k]
            assert (low[0] - 1e-13 <= value).all()
            assert (value <= high[0] + 1e-13).all()


@pytest.mark.parametrize(
    "rate",
    [
        lambda k, p: p[0] * k[1] + 2 * (p[1] > k[1]),
        lambda k, p: p[0] * k[1] + ca.sign(p[1] - 1) * k[2],
        lambda k, p: p[0] * k[1] + ca.floor(p[1]) * k[2],
        lambda k, p: ca.if_else(p[1] > k[1], p[0], 2 * p[0]),
        lambda k, p: p[0] * k[1] + ca.fmin(p[1], k[2]),
        lambda k, p: p[0] * ca.erf(p[1] * k[1]),
        lambda k, p: p[0] * ca.fmod(k[1], 0.3) + p[1],
    ],
)
def test_operations_without_enclosure_are_refused_also_where_their_derivative_is_zero(rate):
    with pytest.raises(UnknownOperation):
        separate([piece(rate, 2)], box((0, 10), (0, 10)))
