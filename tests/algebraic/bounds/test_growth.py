"""Every term of the proof of neighbourhoods, where it is the one that counts.

The columns are quadratic in theta: second derivatives are the same everywhere, so radii may be as
large as we like, until a term of any order is the largest. Each bound is then nearly attained by
some problem, and a term that is missing, or half as large, is seen.
"""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from repeated import repeated
from scipy.optimize import minimize_scalar

from igpe.algebraic.bounds.bound import best_linear
from igpe.algebraic.bounds.neighbourhood import Bound, Growth, Neighbourhood
from igpe.algebraic.bounds.separable import Axis, ColumnBlock, Separable
from igpe.algebraic.bounds.taylor.expansion import (
    Derivatives,
    at_point,
    differences,
    expanded,
    over_box,
)

LENGTHS = np.logspace(-2, 3, 6)
NEAR = 0.8  # of a bound: it is nearly attained
ROWS = 5
WHERE = {"no radius": (0.0, 0.0), "of the sum": (0.0, 1.0), "of columns": (1.0, 0.0)}


def quadratic(rng, n_linear, n_axes=1, ends=(-np.inf, np.inf)):
    """A problem with random columns that are quadratic in theta."""
    theta, width = ca.SX.sym("theta", n_axes), 1 + n_axes + n_axes**2
    known = ca.SX.sym("k", width * (1 + n_linear))
    terms = ca.vertcat(1, theta, ca.vec(theta @ theta.T) / 2)
    columns = [known[k * width : (k + 1) * width].T @ terms for k in range(1 + n_linear)]
    places, target = rng.normal(size=(width * (1 + n_linear), ROWS)), rng.normal(size=(1, ROWS))
    block = ColumnBlock(
        ca.horzcat(*columns), known, theta, places, None, target, rng.uniform(0.5, 2, (1, ROWS))
    )
    bounds = (np.full(n_linear, float(e)) for e in ends)
    return Separable((block,), (Axis(-1e9, 1e9, False),) * n_axes, *bounds)


def bounds(rng, problem, radius=(0.0, 0.0), spoilt=0.0, theta=None):
    """A `Bound` whose curvatures are at an edge of their enclosures.

    radius  of the curvatures of columns, and of their sum
    spoilt  how far beta^ and B are from the best
    """
    theta = np.zeros(len(problem.axes)) if theta is None else theta
    around = expanded(problem, theta, Derivatives(problem).at(theta))
    free = np.concatenate([[False], around.ends.free])
    factors = around.factors + spoilt * free * rng.normal(size=len(free))
    follow = around.follow + spoilt * free[:, None] * rng.normal(size=around.follow.shape)
    slope = -(np.tensordot(factors, around.at.slope, axes=1) + follow.T @ around.at.value)
    residual = problem.target - factors @ around.at.value
    around = replace(around, factors=factors, follow=follow, slope=slope, residual=residual)
    scale = np.triu(rng.uniform(0.5, 2, (len(theta), len(theta))))
    growth = Growth.of(around, np.zeros(len(theta), dtype=bool), scale)
    exact = at_point(around.at, growth.directions, factors)
    width = np.concatenate([np.full(len(factors), radius[0]), [radius[1]]])[:, None, None]
    width = width * rng.random(exact.middle.shape[1:]) * np.ones_like(exact.middle)
    moved = exact.middle + width * rng.choice([-1.0, 1.0], (len(exact.middle), len(width[0]), 1, 1))
    nothing = np.zeros(len(factors)), np.zeros((len(factors), len(theta)))
    return Bound(growth, exact._replace(middle=moved, radius=width), nothing)


def parts(bound, problem, z):
    """What is bounded at z and its bounds, each (n,)."""
    given, e, t = bound.given, bound.given.by_z, float(np.linalg.norm(z)) + 1e-300
    theta = given.around.theta + given.scale @ z
    phi = problem.values(theta[None])[0].T
    rho = problem.target - (e.factors + e.follow @ z + z @ bound.bending @ z) @ phi
    q = rho - e.residual - z @ e.slope
    most = t**2 * (bound.rest + t * (bound.rest_by_z + t * bound.rest_by_z2))
    along = np.abs(given.directions @ q - np.einsum("a,dab,b->d", z, bound.quadratic, z))
    error = t**2 * (bound.error + t * (bound.error_by_z + t * bound.error_by_z2))
    tested, k = given.tests.T @ phi[1:] @ rho, len(given.mix)
    weight = np.linalg.norm(given.mix, axis=1)[e.ends.sign != 0]
    total = np.linalg.norm(tested[:k]) + np.maximum(tested[k:], 0) @ weight
    c0, c1 = bound.tested(t)
    least = np.linalg.svd(given.mix.T @ phi[1:], compute_uv=False)[-1] if k else 1.0
    return {
        "rest": (np.linalg.norm(q), most),
        "along": (along, error),
        "tested": (total, c0 + c1 * t),
        "columns": (1 - least, bound.kappa(t)),
    }


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (3.0, np.inf), (-np.inf, -3.0)])
@pytest.mark.parametrize("n_linear", [0, 1, 2])
def test_every_part_is_bounded_and_nearly_attained(where, ends, n_linear):
    """From where terms of the lowest order count to where those of the highest do."""
    rng, nearest = np.random.default_rng(n_linear), {}
    for _ in range(25):
        problem = quadratic(rng, n_linear, ends=ends)
        bound = bounds(rng, problem, WHERE[where])
        for z in np.concatenate([LENGTHS, -LENGTHS]):
            t = abs(z)
            room = 1e-11 * (1 + t) ** 4 * np.abs(bound.given.around.factors).sum()
            for name, (found, most) in parts(bound, problem, np.array([z])).items():
                assert (found <= most * (1 + 1e-9) + room).all(), (name, z)
                near = np.max(np.where(most > 1e3 * room, found / (most + 1e-300), 0))
                nearest[name, t] = max(nearest.get((name, t), 0), near)
    for t in (LENGTHS[0], LENGTHS[-1]):
        assert nearest["rest", t] > NEAR
        if where == "of the sum" or n_linear == 2:  # elsewhere there is nothing but rounding
            assert nearest["along", t] > NEAR
        if n_linear == 2:
            assert nearest["tested", t] > NEAR
    assert n_linear == 0 or nearest["columns", LENGTHS[0]] > 0.6


@pytest.mark.parametrize("n_linear", [0, 1, 2])
@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (3.0, np.inf), (-np.inf, -3.0)])
@pytest.mark.parametrize("spoilt", [0.0, 0.01, 0.3])
@repeated(8, 25)
def test_nothing_of_the_optimum_is_trusted(n_linear, ends, spoilt, repetitions):
    """The growth is proved whatever beta^, B and T are; it is nearly attained if they are good."""
    rng, nearest = np.random.default_rng(n_linear), 0.0
    for _ in range(repetitions):
        problem = quadratic(rng, n_linear, ends=ends)
        least = minimize_scalar(lambda x, p=problem: square(p, np.array([x])), bounds=(-3, 3))
        theta = np.array([least.x])
        bound = bounds(rng, problem, spoilt=spoilt, theta=theta)
        for z in np.concatenate([x := np.logspace(-3, 0.5, 8), -x]):
            left, lower = bound.proved(abs(z))
            if lower == 0:
                continue
            here, there = least.fun, square(problem, theta + bound.given.scale @ np.array([z]))
            gradient = bound._gradient()
            proved = lower + gradient**2 / (4 * left) + left * z**2 - gradient * abs(z)
            assert there >= max(lower, proved) - 1e-10 * here
            if there > here * (1 + 1e-6):
                nearest = max(nearest, (proved - here) / (there - here))
    assert nearest > NEAR or spoilt > 0


def square(problem, theta):
    return best_linear(problem, problem.values(theta[None])[0])[1]


@pytest.mark.parametrize("n_axes", [1, 2])
def test_second_derivatives_of_a_box_are_enclosed(n_axes):
    """v . phi'' and |phi''| of columns and their sum, at points of a box, nearly attained."""
    rng = np.random.default_rng(n_axes)
    theta, k = ca.SX.sym("theta", n_axes), ca.SX.sym("k", 2)
    terms = [ca.exp(2 * theta[0]) * k[0], theta[-1] ** 4 * k[1] + theta[0] * theta[-1] ** 2]
    block = ColumnBlock(
        ca.horzcat(*terms), k, theta, rng.normal(size=(2, ROWS)), None, np.ones((1, ROWS)),
        np.ones((1, ROWS)),
    )  # fmt: skip
    axes = (Axis(-9.0, 9.0, False),) * n_axes
    problem = Separable((block,), axes, np.full(1, -np.inf), np.full(1, np.inf))
    low, high = np.full(n_axes, 0.3), np.full(n_axes, 0.9)
    derivatives, factors = Derivatives(problem), np.array([1.0, -2.0])
    v = rng.normal(size=(4, ROWS))
    enclosed = [(f, f.enclosed(low[None], high[None])) for f in derivatives.families]
    box, nearest = over_box(enclosed, 0, v, factors, n_axes), np.zeros(3)
    for unit in np.vstack([np.zeros(n_axes), np.ones(n_axes), rng.random((50, n_axes))]):
        at = derivatives.at(low + unit * (high - low))
        exact = at_point(at, v, factors)
        apart = np.abs(exact.middle - box.middle)
        assert (apart <= box.radius * (1 + 1e-9) + 1e-12).all()
        assert (exact.norm <= box.norm * (1 + 1e-9)).all()
        near = apart / (box.radius + 1e-9)
        nearest = np.maximum(nearest, [near[:, :-1].max(), near[:, -1].max(), (exact.norm / (box.norm + 1e-300)).max()])  # fmt: skip  # noqa: E501
    assert (nearest > NEAR).all(), nearest


def test_a_box_is_covered_if_all_its_corners_are_inside():
    rng, covered = np.random.default_rng(0), 0
    whiten = np.array([[2.0, -3.0], [0.0, 0.5]])
    one = Neighbourhood(np.array([1.0, -2.0]), whiten, np.ones(2), 1.0, 0.7, 0.0)
    for _ in range(2000):
        low = one.theta + np.linalg.solve(whiten, rng.uniform(-0.7, 0.7, 2))
        high = low + rng.choice([0.0, 1e-3, 0.3], 2) * rng.random(2)
        corners = np.array([(a, b) for a in (low[0], high[0]) for b in (low[1], high[1])])
        farthest = np.linalg.norm((corners - one.theta) @ whiten.T, axis=1).max()
        if one.covers(low, high):
            assert farthest <= 0.7
            covered += 1
        middle = (low + high) / 2
        far = np.linalg.norm(whiten @ (middle - one.theta))
        assert one.covers(middle, middle) == (far <= 0.7)
    assert 200 < covered < 1800
    edge = one.theta + np.linalg.solve(whiten, [0.7 * (1 - 1e-9), 0.0])
    assert not one.covers(edge, edge)  # by less than whiten and T may miss being inverse


@pytest.mark.parametrize("width", [0.0, 1e-8, 1e-6, 1.0])
@pytest.mark.parametrize("low", [3.0, -3.0 - 1.0])
def test_held_linear_parameters_are_on_their_ends(low, width):
    """Else what is left of them has no sign."""
    problem = quadratic(np.random.default_rng(0), 2, ends=(low, low + width))
    at = Derivatives(problem).at(np.array([0.1]))
    found = expanded(problem, np.array([0.1]), at)
    beta, (free, sign) = found.factors[1:], found.ends
    assert (beta[sign > 0] == low).all()
    assert (beta[sign < 0] == low + width).all()
    assert (free[sign == 0] == (width > 0)).all()
    assert free.any() == (width in (1e-8, 1e-6))


def test_an_inner_linear_parameter_near_its_end_is_held_there():
    """The best one is a little above its end."""
    rng = np.random.default_rng(1)
    problem, theta = quadratic(rng, 2), np.array([0.1])
    best = best_linear(problem, problem.values(theta[None])[0])[0]
    near = replace(problem, lower=best - 1e-8 * np.abs(best))
    found = expanded(near, theta, Derivatives(near).at(theta))
    assert (found.ends.sign == 1).all()
    assert (found.factors[1:] == near.lower).all()


@pytest.mark.parametrize("n_axes", [1, 3])
def test_differences_are_about_the_derivatives(n_axes):
    problem = quadratic(np.random.default_rng(0), 2, n_axes)
    problem = replace(problem, axes=(Axis(0.0, 1.0, False),) * n_axes)
    for theta in (np.zeros(n_axes), np.linspace(0.2, 1, n_axes)):
        exact, found = Derivatives(problem).at(theta), differences(problem, theta)
        for wanted, value in zip(exact, found, strict=True):
            assert np.abs(value - wanted).max() <= 2e-3 * np.abs(wanted).max()
