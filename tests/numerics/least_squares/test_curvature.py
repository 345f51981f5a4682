"""What Gauss-Newton leaves out, and unknowns sought in logarithms."""

import numpy as np
import pytest
from scipy.optimize import minimize

from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised, Logarithms
from igpe.numerics.least_squares.gauss_newton import Curvature, GaussNewton
from igpe.problem.problem_checks import with_logarithms


def box(lower, upper, **more):
    return Box(("a", "b"), np.array(lower, dtype=float), np.array(upper, dtype=float), **more)


def valley(x):
    """Like Brown and Dennis (More, Garbow & Hillstrom 16), in two unknowns: large residuals."""
    t = np.arange(1, 21) / 5
    one = x[0] + t * x[1] - np.exp(t)
    return Linearised(one**2 + 3.0, 2 * one[:, None] * np.column_stack([np.ones_like(t), t]))


@pytest.mark.parametrize("curvature", [False, True])
def test_large_residuals(curvature):
    search = GaussNewton(curvature=curvature, max_iterations=400)
    found = search.fit(valley, np.array([1.0, 1.0]), box([-100, -100], [100, 100]))
    best = minimize(lambda x: valley(x).cost, found.x + 0.1, method="Nelder-Mead")
    assert found.status is Status.CONVERGED
    assert found.cost == pytest.approx(best.fun, rel=1e-8)


def test_it_learns_a_constant_curvature():
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])

    def at(x):
        """A gradient matrix x that no residual's slope shows: J'J is the identity."""
        return Linearised(matrix @ x, np.eye(2))

    model = Curvature(2, wanted=True)
    steps = np.random.default_rng(0).normal(size=(40, 2))
    x = np.zeros(2)
    for step in steps:
        model.learn(at(x), step, at(x + step))
        x = x + step
    assert model.matrix == pytest.approx(matrix - np.eye(2), abs=1e-6)


def test_nothing_is_learnt_unless_wanted():
    model = Curvature(1, wanted=False)
    one = Linearised(np.array([1.0]), np.array([[1.0]]))
    model.learn(one, np.array([0.5]), Linearised(np.array([0.3]), np.array([[2.0]])))
    assert not model.matrix.any()


def decades(x):
    """Both unknowns lie decades from where the search begins."""
    return Linearised(np.log(x / np.array([1e-6, 1e5])), np.diag(1 / x))


def test_logarithms_reach_across_decades_and_come_back():
    wide = box([1e-8, 1e-8], [1e8, 1e8], logarithmic=frozenset({"a", "b"}))
    found = GaussNewton().fit(decades, np.array([1.0, 1.0]), wide)
    assert found.x == pytest.approx([1e-6, 1e5], rel=1e-8)
    assert found.at.jacobian == pytest.approx(np.diag(1 / found.x))
    assert found.iterations <= 12


def test_slopes_by_logarithms_against_a_difference():
    way = Logarithms(box([1e-3, -5], [1e3, 5], logarithmic=frozenset({"a"})))

    def plain(x):
        return Linearised(np.array([x[0] ** 2 * x[1]]), np.array([[2 * x[0] * x[1], x[0] ** 2]]))

    seen, u, h = way.seen(plain), np.array([0.7, 1.5]), 1e-6
    differences = [
        (seen(u + h * e).residual - seen(u - h * e).residual) / (2 * h) for e in np.eye(2)
    ]
    assert seen(u).jacobian.ravel() == pytest.approx(np.ravel(differences), rel=1e-6)


def test_an_optimum_on_a_bound_is_the_bound():
    tight = box([1e-5, 1e-5], [1e3, 1e3], logarithmic=frozenset({"a", "b"}))
    found = GaussNewton().fit(decades, np.array([1.0, 1.0]), tight)
    assert found.x.tolist() == [1e-5, 1e3]


def test_starts_are_spread_over_decades():
    wide = box([1e-5, 1e-5], [1e5, 1e5], logarithmic=frozenset({"a"}))
    points = np.log10(wide.sobol(256, 0))
    assert np.mean(points[:, 0]) == pytest.approx(0.0, abs=0.1)
    assert np.mean(points[:, 1]) > 0.5  # half of them evenly between the bounds
    assert wide.select(["b"]).logarithmic == frozenset()


@pytest.mark.parametrize(
    ("names", "lower", "says"),
    [(["a"], 0.0, "needs positive, finite bounds"), (["c"], 1.0, "not among the unknowns")],
)
def test_bounds_and_names_that_do_not_fit(names, lower, says):
    with pytest.raises(ProblemError, match=says):
        with_logarithms(box([lower, 1.0], [10.0, 10.0]), names)
