"""The search: boxes cover, the gap it closes is right, and what it says when it is stopped."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import least_squares

from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.bounds import search as search_module
from igpe.algebraic.bounds.bound import Cells, best_linear, root
from igpe.algebraic.bounds.search import ProjectedSearch, SearchLimits
from igpe.algebraic.bounds.separable import Axis, ParameterPair
from igpe.algebraic.bounds.separate import separate
from igpe.core.box import Box as Bounds
from igpe.core.status import Status

LIMITS = SearchLimits(gap=1e-3, absolute=1e-12, time_limit=8.0)


def regression(rate, known, lower, upper, truth, *, noise=0.02, seed=0):
    """Values at the truth with noise, places (n_known, m)."""
    k, p = ca.SX.sym("k", known.shape[0]), ca.SX.sym("p", len(lower))
    predict = ca.Function("f", [k, p], [rate(k, p)])
    exact = predict.map(known.shape[1])(known, np.tile(np.array(truth)[:, None], known.shape[1]))
    exact = exact.full().ravel()
    target = exact + noise * np.std(exact) * np.random.default_rng(seed).normal(size=len(exact))
    box = Bounds(tuple(f"p{i}" for i in range(len(lower))), np.array(lower), np.array(upper))
    return Regression(
        box, (Contribution(predict, known, None, target, np.ones(len(target))),), "", False
    )


def michaelis(lower=(0.0, 0.01), upper=(10.0, 10.0), **more):
    """p0 x / (p1 + x)."""
    return regression(
        lambda k, p: p[0] * k / (p[1] + k), np.linspace(0.1, 5, 20)[None], lower, upper,
        (2.0, 0.5), **more,
    )  # fmt: skip


def two_exponentials(**more):
    """Parameters of any sign, and a cancelling pair of columns."""
    return regression(
        lambda k, p: p[0] * ca.exp(-p[2] * k) + p[1] * ca.exp(-p[3] * k),
        np.linspace(0, 3, 25)[None], (-10.0, -10.0, 0.1, 1.5), (10.0, 10.0, 1.5, 9.0),
        (2.0, -1.0, 0.6, 4.0), **more,
    )  # fmt: skip


def brute(one):
    """The best of many bounded local searches by SciPy."""
    box, found = one.box, []
    low, high = np.maximum(box.lower, -1e3), np.minimum(box.upper, 1e3)
    for p in np.random.default_rng(1).uniform(low, high, (40, len(box))):
        fit = least_squares(
            lambda q: one.linearised(q).residual, p, bounds=(box.lower, box.upper),
            xtol=1e-14, ftol=1e-14, gtol=1e-14,
        )  # fmt: skip
        found.append(2 * fit.cost)
    return min(found)


def searched(one, objective, limits=LIMITS, *, trial=None, change=lambda p: p):
    """A search of a regression; the trial finds the best linear parameters at its theta."""
    problem = change(separate(one.pieces, one.box).problem)

    def local(theta):
        found = best_linear(problem, problem.values(theta[None])[0])
        return np.inf if found is None else found[1]

    return ProjectedSearch(problem, local if trial is None else trial).run(objective, limits)


@pytest.mark.parametrize("make", [michaelis, two_exponentials])
@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_the_closed_gap_holds_what_scipy_finds(make, noise):
    one = make(noise=noise)
    best = brute(one)
    found = searched(one, best)
    assert found.status is Status.OPTIMAL_WITHIN_GAP
    assert (1 - 1.01e-3) * best <= found.lower_bound <= best * (1 + 1e-9)
    assert found.left == 0


@pytest.mark.parametrize("make", [michaelis, two_exponentials])
def test_a_bad_objective_is_improved_by_trials_and_the_bound_stays_valid(make):
    one = make()
    best = brute(one)
    found = searched(one, 100 * best)
    assert found.objective < 1.5 * best
    assert found.lower_bound <= best * (1 + 1e-9)
    assert found.lower_bound > 0


def test_an_objective_that_does_not_exist_is_not_proved():
    """Above what is reachable: closed at once. Below: the bound says no more than is true."""
    one = michaelis()
    best = brute(one)
    found = searched(one, 0.5 * best, trial=lambda _: np.inf)
    assert found.lower_bound <= best


@pytest.mark.parametrize("patience", [0.0, np.inf])
def test_a_search_whose_bound_stays_zero_ends_before_its_time(patience):
    one = two_exponentials()
    limits = SearchLimits(1e-3, 0.0, np.inf, 200, patience)
    found = searched(one, brute(one), limits)
    assert found.status is not Status.TIME_LIMIT
    assert (found.boxes == 0) == (patience == 0.0)


@pytest.mark.parametrize(("boxes", "seconds"), [(20, 20.0), (10**6, 0.02), (10**6, 0.0)])
def test_a_limit_leaves_a_valid_bound(boxes, seconds):
    one = two_exponentials()
    best = brute(one)
    limits = SearchLimits(1e-9, 0.0, seconds, boxes)
    found = searched(one, best, limits, trial=lambda _: np.inf)
    assert found.status in (Status.TIME_LIMIT, Status.ITERATION_LIMIT)
    assert 0 <= found.lower_bound <= best * (1 + 1e-9)
    assert found.left > 0


def test_cells_of_which_nothing_is_known_turn_by_their_width_alone():
    """Errors beyond the largest number overflow in no sum: that would print a warning."""
    cells = Cells(np.ones((4, 1, 1)), np.full(4, 1e308), np.ones(1, dtype=bool))
    turns = search_module._turns(cells, cells.usable, np.array([1.0, 3.0]))
    assert turns == pytest.approx([0.5, 1.5])


@pytest.mark.parametrize("where", ["bound", "axis_to_halve"])
@pytest.mark.parametrize("call", [1, 2, 7, 20])
def test_ctrl_c_anywhere_leaves_a_valid_bound(where, call, monkeypatch):
    """Also with an objective so large that a lost box would show as a bound above the optimum."""
    one = two_exponentials()
    best = brute(one)
    real, calls = getattr(search_module, where), []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(search_module, where, interrupted)
    found = searched(one, 1.001 * best, trial=lambda _: np.inf)
    assert found.status is Status.INTERRUPTED
    assert found.lower_bound <= best
    assert found.left > 0


def test_ctrl_c_in_a_trial():
    def trial(_):
        raise KeyboardInterrupt

    one = two_exponentials()
    best = brute(one)
    found = searched(one, 2 * best, trial=trial)
    assert found.status is Status.INTERRUPTED
    assert found.lower_bound <= best


def test_the_same_seed_makes_the_same_boxes():
    one = two_exponentials()
    assert len({searched(one, 1.0) for _ in range(3)}) == 1


def test_exact_data_close_the_absolute_gap():
    one = michaelis(noise=0.0)
    size = float(one.pieces[0].target @ one.pieces[0].target)
    found = searched(one, 1e-20, replace(LIMITS, absolute=1e-9 * size))
    assert found.status is Status.OPTIMAL_WITHIN_GAP
    assert 0 <= found.lower_bound <= 1e-20
    found = searched(one, 1e-3 * size, replace(LIMITS, absolute=1e-6 * size))
    assert found.objective < 1e-5 * size


@pytest.mark.parametrize("lower", [0.0, -np.inf])
def test_linear_parameters_without_bounds(lower):
    one = michaelis(lower=(lower, 0.01), upper=(np.inf, 10.0))
    best = brute(one)
    found = searched(one, best)
    assert found.status is Status.OPTIMAL_WITHIN_GAP
    assert found.lower_bound <= best * (1 + 1e-9)


@pytest.mark.slow
def test_differences_drop_only_what_breaks_them():
    """theta_1 - theta_0 >= 3.5: the optimum (0.6, 4.0) is outside, the best lies on that bound."""
    one = two_exponentials()

    def bounded(problem, low, high):
        return replace(problem, differences=(ParameterPair(0, 1, low, high),))

    free, problem = brute(one), separate(one.pieces, one.box).problem
    for low, high in ((0.0, 3.0), (3.6, 8.0), (0.0, 8.9)):
        box = one.box
        best = np.inf
        for a in np.linspace(box.lower[2], box.upper[2], 40):
            least, most = max(a + low, box.lower[3]), min(a + high, box.upper[3])
            for b in np.linspace(least, most, 20) if least <= most else ():
                solved = best_linear(problem, problem.values(np.array([[a, b]]))[0])
                best = min(best, solved[1])
        found = searched(
            one, best, SearchLimits(1e-2, 1e-12, 1.0), trial=lambda _: np.inf,
            change=lambda p, low=low, high=high: bounded(p, low, high),
        )  # fmt: skip
        assert found.lower_bound <= best * (1 + 1e-9)
        assert found.lower_bound >= 0.9 * free


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logarithmic", [False, True])
def test_cells_cover_the_axis_at_every_level(seed, logarithmic):
    rng = np.random.default_rng(seed)
    lower = float(rng.choice([0.0, 1e-9, 0.3, -2.0]))
    axis = Axis(lower, lower + 10 ** rng.uniform(-6, 6), logarithmic and lower >= 0)
    for level in (0, 1, 5, 9):
        index = np.arange(2**level)
        low, high = axis.ends(np.full(len(index), level), index)
        assert (low[0], high[-1]) == (axis.lower, axis.upper)
        assert (low[1:] == high[:-1]).all()
        assert (low <= high).all()
        deeper = axis.ends(np.full(2 * len(index), level + 1), np.arange(2 * len(index)))
        assert (deeper[0][::2] == low).all()
        assert (deeper[1][1::2] == high).all()


def test_halves_and_signs_cover_a_box():
    one = two_exponentials()
    problem = separate(one.pieces, one.box).problem
    whole = root(problem)
    left, right = whole.halves(1, 1)
    (low, high), (left_low, left_high), (right_low, right_high) = (
        b.ends(problem) for b in (whole, left, right)
    )
    assert (left_low == low).all()
    assert (right_high == high).all()
    assert left_high[1] == right_low[1]
    minus, plus = whole.signs(0)
    assert (minus.lower[0], minus.upper[0]) == (-10.0, 0.0)
    assert (plus.lower[0], plus.upper[0]) == (0.0, 10.0)


def test_a_problem_that_cannot_be_divided_ends():
    """All parameters linear: one box; its bound is the least squares' optimum up to rounding."""
    x = np.linspace(0.1, 2, 80)[None]
    one = regression(lambda k, p: p[0] * k + p[1] * k**2, x, (0.0, 0.0), (9.0, 9.0), (1.0, 2.0))
    best = brute(one)
    found = searched(one, best)
    assert found.boxes == 1
    assert found.lower_bound == pytest.approx(best, rel=1e-3)
    assert found.lower_bound <= best * (1 + 1e-9)


def test_rows_that_are_known_nowhere_at_first():
    """All of them are infinite on the whole box."""
    x = np.linspace(0.1, 5, 100)[None]
    one = regression(
        lambda k, p: p[0] * k / p[1] + p[1] * k**2, x, (0.0, 0.0), (10.0, 10.0), (2.0, 0.5)
    )
    best = brute(one)
    found = searched(one, best, SearchLimits(1e-2, 1e-12, 5.0))
    assert 0 <= found.lower_bound <= best * (1 + 1e-9)


def test_all_linear_parameters_fixed_at_zero():
    one = michaelis(lower=(0.0, 0.01), upper=(0.0, 10.0))
    d = one.pieces[0].target
    found = searched(one, float(d @ d))
    assert found.lower_bound == pytest.approx(float(d @ d), rel=1e-3)
