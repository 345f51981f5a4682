"""The neighbourhood of an optimum: no point in it is below its bound, nor any part of the proof."""

from functools import cache
from itertools import pairwise

import brute_force
import casadi as ca
import numpy as np
import pytest
from brute_force import SETTINGS, Case
from test_growth import parts

from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.bounds.bound import best_linear
from igpe.algebraic.bounds.columns import root
from igpe.algebraic.bounds.neighbourhood import Bound, Gap, Growth, Surroundings, neighbourhood
from igpe.algebraic.bounds.separable import Axis, ParameterPair, Span
from igpe.algebraic.bounds.separate import separate
from igpe.algebraic.bounds.taylor.expansion import Derivatives, expanded, missed, over_box, scaled
from igpe.algebraic.projected import Projected
from igpe.core.box import Box as Bounds

POINTS = 150
MODELS = (
    "COPS methanol, slopes", "methanol, slopes", "urethane, slopes", "urethane, integrals",
    "arrhenius 3", "michaelis 2", "exponential 3", "hill 2", "hill 3", "shared 2", "shared 3",
    "arrhenius 2, any sign", "michaelis 2, any sign", "two equilibria",
)  # fmt: skip


@cache
def solved(name):
    """A problem, the theta of its optimum and the sum of squares there."""
    one = Case(name, brute_force.regressions()[name], SETTINGS[0])
    found, box = Projected(gap=1e-2).estimate(one.regression).estimate, one.regression.box
    p = box.vector({**box.mapping(0 * box.lower), **found.parameters})
    return one.problem, one.separated.theta(p), found.objective


def square(problem, theta):
    """The least sum of squares at one theta."""
    found = best_linear(problem, problem.values(theta[None])[0])
    return np.inf if found is None else found[1]


def points(radius, scale, theta, problem, rng):
    """z with |z| <= radius, most of them at the edge, as far as theta is within the axes."""
    lower, upper = brute_force.root_ends(problem)
    for _ in range(POINTS):
        z = rng.normal(size=len(theta))
        z *= radius * rng.choice([1.0, rng.random(), 1e-3]) / np.linalg.norm(z)
        there = theta + scale @ z
        if not ((lower <= there) & (there <= upper)).all():
            there = np.clip(there, lower, upper)
            z = np.linalg.solve(scale, there - theta)
        if np.linalg.norm(z) <= radius:
            yield z, there


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("away", [0.0, 1e-3, 3e-2])
def test_no_point_of_a_neighbourhood_is_below_its_bound(name, away):
    """Also around points that are no optimum."""
    problem, best, objective = solved(name)
    rng = np.random.default_rng([MODELS.index(name), int(1e4 * away)])
    theta, size = best * (1 + away * rng.uniform(-1, 1, len(best))), np.sum(problem.target**2)
    for goal in (1 - 1e-6, 0.9, 0.3):
        found = neighbourhood(problem, theta, goal * objective)
        assert found is not None or away > 0
        if found is None:
            continue
        assert found.lower_bound >= goal * objective
        scale = np.linalg.inv(found.whiten)
        for _, there in points(found.radius, scale, found.theta, problem, rng):
            assert square(problem, there) >= found.lower_bound - 1e-12 * size
        assert found.covers(found.theta - found.half, found.theta + found.half)
        assert not found.covers(found.theta - 1.1 * found.half / found.share, found.theta)


@pytest.mark.parametrize("name", MODELS)
def test_the_sum_of_squares_grows_as_is_proved(name):
    """lower - gradient |z| + left |z|^2 is below it at every z: a bound far from tight says so."""
    bound, problem, theta, rng = bounded(name)
    radius = bound.hopeless()
    while bound.proved(radius)[0] == 0:
        radius /= 1.1
    size, tight = np.sum(problem.target**2), 0
    for part in (1.0, 0.2):
        for z, there in points(part * radius, bound.given.scale, theta, problem, rng):
            length = float(np.linalg.norm(z))
            left, lower = bound.proved(max(length, 1e-9 * radius))
            proved = left * length**2 - bound._gradient() * length
            grown = square(problem, there) - lower
            assert grown >= proved - 1e-12 * size
            tight += proved > 0.5 * grown
    assert tight > POINTS / 4


def bounded(name, share=0.3):
    """A `Bound` over a box around an optimum."""
    problem, theta, objective = solved(name)
    derivatives = Derivatives(problem)
    around = expanded(problem, theta, derivatives.at(theta))
    lower, upper = brute_force.root_ends(problem)
    held = ((theta <= lower) & (around.gradient > 0)) | ((theta >= upper) & (around.gradient < 0))
    radius = neighbourhood(problem, theta, 0.9 * objective).radius * share
    growth = Growth.of(around, held, scaled(around, held, radius))
    width = radius * np.linalg.norm(growth.scale, axis=1)
    low = np.stack([theta, np.maximum(theta - width, lower)])
    high = np.stack([theta, np.minimum(theta + width, upper)])
    enclosed = [(f, f.enclosed(low, high)) for f in derivatives.families]
    curvature = over_box(enclosed, 1, growth.directions, around.factors, len(theta))
    bound = Bound(growth, curvature, missed(enclosed, around.at))
    bound.hopeless = lambda: radius
    return bound, problem, theta, np.random.default_rng(MODELS.index(name))


@pytest.mark.parametrize("name", MODELS)
def test_every_part_of_the_proof_bounds_what_it_is_about(name):
    """q along all directions, its length, the tested columns along rho, the columns themselves."""
    bound, problem, theta, rng = bounded(name)
    radius, size = bound.hopeless(), np.linalg.norm(problem.target)
    room = {"rest": size, "along": size * bound.sizes, "tested": size**2, "columns": 1.0}
    nearest = dict.fromkeys(room, 0.0)
    for z, _ in points(radius, bound.given.scale, theta, problem, rng):
        for part, (found, most) in parts(bound, problem, z).items():
            assert (found <= most + 1e-12 * room[part]).all(), part
            if np.linalg.norm(z) > 0.5 * radius:
                nearest[part] = max(nearest[part], np.max(found / (most + 1e-300)))
    # they are bounds, not merely large
    assert nearest["rest"] > 0.01
    assert nearest["along"] > 0.02
    assert nearest["columns"] > 0.05


@pytest.mark.parametrize("name", ["shared 3", "urethane, slopes", "hill 3"])
def test_derivatives_are_those_of_differences(name):
    problem, theta, _ = solved(name)
    at, step = Derivatives(problem).at(theta), 1e-4 * np.abs(theta)
    shape = (1 + problem.n_linear, len(theta), len(problem.target))
    slope, curvature = np.zeros(shape), np.zeros((*shape[:2], *shape[1:]))
    values = lambda *moves: problem.values(sum(moves, theta)[None])[0].T  # noqa: E731
    for i, a in enumerate(np.diag(step)):
        slope[:, i] = (values(a) - values(-a)) / (2 * step[i])
        for j, b in enumerate(np.diag(step)):
            mixed = values(a, b) - values(a, -b) - values(-a, b) + values(-a, -b)
            curvature[:, i, j] = mixed / (4 * step[i] * step[j])
    for found, wanted in ((at.slope, slope), (at.curvature, curvature)):
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_no_neighbourhood_where_there_is_none():
    problem, theta, objective = solved("michaelis 2")
    assert neighbourhood(problem, theta, 1.01 * objective) is None
    assert neighbourhood(problem, 3 * theta, 0.999 * objective) is None
    assert neighbourhood(problem, theta, 0.9 * objective, worth=objective * 10) is None
    strange = Case("", brute_force.strange_functions(), SETTINGS[0]).problem
    assert neighbourhood(strange, np.array([1.2, 0.8]), 0.0) is None  # the slope of fabs is sign


def test_spans_cover_and_cut_what_they_are_of():
    span = Span(3, 5, 2)
    for halvings in range(4):
        parts = span.parts(halvings)
        assert sum(p.width for p in parts) == span.width
        axis = Axis(0.0, 10.0, True)
        ends = [axis.ends(*(np.array(x) for x in p)) for p in parts]
        assert all(a[1] == b[0] for a, b in pairwise(ends))
        whole = axis.ends(*(np.array(x) for x in span))
        assert (ends[0][0], ends[-1][1]) == whole
    assert span.cut(4, (11, 12)) == (Span(4, 10, 1), Span(4, 11, 1), Span(4, 12, 2))
    assert span.cut(4, (0, 12)) == (None, Span(4, 10, 2), Span(4, 12, 2))
    assert span.cut(4, (12, 12)) == (Span(4, 10, 2), None, Span(4, 12, 2))


@pytest.mark.parametrize(
    "axis", [Axis(-2.0, 3.0, False), Axis(0.1, 9.0, True), Axis(0.0, 9.0, True)]
)
def test_the_coordinate_of_a_parameter(axis):
    for t in (0.0, 1e-3, 0.4, 1.0):
        assert axis.coordinate(axis.at(t)) == pytest.approx(t, abs=1e-12)


def test_pairs_that_bind_are_only_relaxed():
    """A difference the optimum breaks: the bound holds for all theta, so for those that keep it."""
    problem, theta, objective = solved("exponential 3")
    tied = problem.__class__(
        problem.blocks, problem.axes, problem.lower, problem.upper, (),
        (ParameterPair(0, 1, 5.0, 9.0),),
    )  # fmt: skip
    found = neighbourhood(tied, theta, 0.9 * objective)
    assert found is not None
    assert found.lower_bound <= objective


@pytest.mark.parametrize("linear", [False, True])
def test_without_linear_parameters_that_are_free(linear):
    """None at all, and one that the data would make negative."""
    k, p = ca.SX.sym("k"), ca.SX.sym("p", 2)
    other = -p[1] * k if linear else 0.5 * ca.exp(-p[1] * k)
    rate, known = ca.exp(-p[0] * k) + other, np.linspace(0.1, 5, 30)[None]
    noise = 0.02 * np.random.default_rng(0).normal(size=30)
    target = np.exp(-0.3 * known[0]) + (0.005 * known[0] if linear else 0.5 * np.exp(-4 * known[0]))
    piece = Contribution(ca.Function("f", [k, p], [rate]), known, None, target + noise, np.ones(30))
    bounds = np.array([0.1, 0.0 if linear else 1.0]), np.array([9.0, 9.0])
    one = Regression(Bounds(("a", "b"), *bounds), (piece,), "", False)
    answer, separated = Projected(gap=1e-2).estimate(one).estimate, separate((piece,), one.box)
    at = {"b": 0.0, **answer.parameters}  # what does nothing is left out
    assert not linear or at["b"] < 1e-12
    problem, theta = separated.problem, separated.theta(one.box.vector(at))
    found = neighbourhood(problem, theta, 0.99 * answer.objective)
    assert found is not None
    scale, rng = np.linalg.inv(found.whiten), np.random.default_rng(0)
    for _, there in points(found.radius, scale, found.theta, problem, rng):
        assert square(problem, there) >= found.lower_bound * (1 - 1e-12)


@pytest.mark.parametrize("name", ["michaelis 2", "shared 3", "urethane, slopes"])
def test_a_box_is_cut_into_parts_that_are_all_of_it(name):
    problem, theta, objective = solved(name)
    around = Surroundings(problem, lambda: theta)
    gap = Gap(objective, 0.9999 * objective, 0.5 * objective)
    assert around.pieces(root(problem), gap) == ()  # it has not looked yet
    around.look(root(problem), gap)
    pieces = around.pieces(root(problem), gap._replace(lower=0.997 * objective))
    assert len(pieces) > len(theta)
    assert sum(np.prod([s.width for s in p.spans]) for p in pieces) == pytest.approx(1, rel=1e-12)
    assert all(p.holds(problem, theta) == (p is pieces[-1]) for p in pieces)
    assert around.lower_bound(pieces[-1]) >= gap.goal
    assert not any(around.lower_bound(p) for p in pieces[:-1])
