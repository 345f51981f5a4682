"""Equations and inequalities in the condensed problem, against dense ones and SciPy's solver."""

import numpy as np
import pytest
from chain_zoo import Ricker, dense, flat, keeping, point_of, random_chained, space_of
from scipy.optimize import minimize

from igpe.core.status import Status
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import Chained, Limits
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton, descend
from igpe.numerics.least_squares.proposal import (
    Rows,
    inverse,
    missed_length,
    proposal,
    simplified,
)


def random_limits(rng, chain, count, low, high):
    """`count` constraints, each on the unknowns and two nodes of the chain."""
    n_k, n_x, n = chain.drift.shape
    return Limits(
        value=rng.normal(size=count),
        low=np.full(count, low),
        high=np.full(count, high),
        by_unknown=rng.normal(size=(count, n)),
        row=np.repeat(np.arange(count), 2),
        owner=rng.integers(0, n_k, 2 * count),
        by_node=rng.normal(size=(2 * count, n_x)),
    )


def limited(seed, low, high, counts=(1, 0, 1)):
    rng = np.random.default_rng(100 + seed)
    at = random_chained(seed)
    chains = [
        c._replace(limits=random_limits(rng, c, k, low, high)) if k else c
        for c, k in zip(at.chains, counts, strict=True)
    ]
    return Chained(tuple(chains), at.free)


def dense_limits(at):
    """Values, bounds and matrix of all constraints over (q, all nodes in a row)."""
    n = at.free.jacobian.shape[1]
    width = n + sum(c.gap.size for c in at.chains)
    rows, first = [np.zeros((0, width))], n
    for c in at.chains:
        if c.limits is not None:
            n_x = c.gap.shape[1]
            block = np.zeros((len(c.limits.value), width))
            block[:, :n] = c.limits.by_unknown
            for i, k, by in zip(c.limits.row, c.limits.owner, c.limits.by_node, strict=True):
                block[i, first + k * n_x : first + (k + 1) * n_x] += by
            rows.append(block)
        first += c.gap.size
    value, low, high = (
        np.concatenate([getattr(m, name) for m in at.limits]) for name in ("value", "low", "high")
    )
    return value, low, high, np.vstack(rows)


@pytest.mark.parametrize("seed", range(6))
def test_a_step_under_equations_is_that_of_the_dense_problem(seed):
    at = limited(seed, 0.3, 0.3)
    residual, matrix, gaps, links = dense(at)
    value, low, _, rows = dense_limits(at)
    known = keeping(residual, matrix, np.concatenate([gaps, value - low]), np.vstack([links, rows]))
    step = proposal(at, point_of(at, seed), space_of(at))
    assert flat(step.move) == pytest.approx(known, rel=1e-7, abs=1e-8)
    assert step.active.shape == (2, 3)


@pytest.mark.parametrize("seed", range(6))
def test_a_step_under_inequalities_costs_what_a_general_solver_finds(seed):
    at = limited(seed, -0.2, 0.3)
    residual, matrix, gaps, links = dense(at)
    value, low, high, rows = dense_limits(at)
    step = proposal(at, point_of(at, seed), space_of(at))
    z = flat(step.move)
    assert gaps + links @ z == pytest.approx(0.0, abs=1e-8)
    assert (value + rows @ z >= low - 1e-7).all()
    assert (value + rows @ z <= high + 1e-7).all()
    # over what meeting leaves free: z = known + null y
    null = np.linalg.svd(links)[2][len(links) :].T
    known = -np.linalg.lstsq(links, gaps, rcond=None)[0]
    m, r, c, v = matrix @ null, residual + matrix @ known, rows @ null, value + rows @ known
    best = minimize(
        lambda y: np.sum((r + m @ y) ** 2),
        np.zeros(null.shape[1]),
        jac=lambda y: 2 * m.T @ (r + m @ y),
        constraints=[
            {"type": "ineq", "fun": lambda y: v + c @ y - low, "jac": lambda y: c},
            {"type": "ineq", "fun": lambda y: high - v - c @ y, "jac": lambda y: -c},
        ],
        method="SLSQP",
        options={"ftol": 1e-7, "maxiter": 300},
    )
    assert best.success
    assert np.sum((residual + matrix @ z) ** 2) == pytest.approx(best.fun, rel=1e-6)


class Closed(Ricker):
    """The map with the last value tied to the first node, and an upper limit of a node."""

    def __init__(self, share, most=np.inf, **settings):
        super().__init__(**settings)
        self.share, self.most = share, most

    def __call__(self, point):
        at = super().__call__(point)
        if at is None:
            return None
        (chain,) = at.chains
        last = chain.residual[-1] + self.data[-1]
        limits = Limits(
            value=np.array([last**2 - self.share * point.unknowns[2], point.nodes[0][4, 0]]),
            low=np.array([0.0, -np.inf]),
            high=np.array([0.0, self.most]),
            by_unknown=np.array([2 * last * chain.by_unknown[-1], np.zeros(3)]),
            row=np.array([0, 0, 1]),
            owner=np.array([self.count - 1, 0, 4]),
            by_node=np.array([[2 * last * chain.by_node[-1, 0]], [-self.share], [1.0]]),
        )
        limits.by_unknown[0, 2] = 0.0  # the start is the first node
        return Chained((chain._replace(limits=limits),), at.free)

    def known(self, start):
        """The optimum by a general solver, in the unknowns alone."""

        def kept(q):
            s = self.course(q)
            return np.array([s[-1] ** 2 - self.share * q[2]])

        return minimize(
            lambda q: np.sum((self.course(q) - self.data) ** 2),
            start,
            method="SLSQP",
            bounds=[(0.5, 9.0), (0.5, 5.0), (0.01, 1.0)],
            constraints=[
                {"type": "eq", "fun": kept},
                {"type": "ineq", "fun": lambda q: min(self.most, 99.0) - self.course(q)[4]},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )


@pytest.mark.parametrize("most", [np.inf, 1.55])
def test_nonlinear_constraints_between_first_and_last(most):
    ricker = Closed(12.0, most, noise=0.03)
    start = (3.0, 1.5, 0.2)
    found = GeneralisedGaussNewton().fit(ricker, ricker.start(start), ricker.space())
    known = ricker.known(found.point.unknowns)
    assert found.status is Status.CONVERGED
    assert found.at.cost == pytest.approx(known.fun, rel=1e-6)
    assert found.point.unknowns == pytest.approx(known.x, rel=1e-4)
    course = ricker.course(found.point.unknowns)
    assert course[-1] ** 2 == pytest.approx(12.0 * found.point.unknowns[2], abs=1e-10)
    assert course[4] <= most + 1e-9
    assert len(found.active) == 1 + (most < 2)
    free = GeneralisedGaussNewton().fit(Ricker(noise=0.03), ricker.start(start), ricker.space())
    assert found.at.cost > 1.01 * free.at.cost


@pytest.mark.parametrize("is_bounded", [False, True])
def test_the_level_falls_as_in_a_linear_problem_for_a_small_share(is_bounded):
    ricker = Closed(6.0, 1.0, noise=0.03)
    space, point = ricker.space(), ricker.start((3.0, 1.5, 0.2))
    if is_bounded:
        ricker = Ricker((3.0, 1.5, 0.2), noise=0.05)
        space = ricker.space(lower=(7.7, -np.inf, -np.inf))
        point = space.clip(ricker.start((7.8, 4.0, 0.2)))
    step = proposal(ricker(point), point, space)
    assert len(step.inverse.active) > 0 if is_bounded else len(step.active) == 2
    for share in (1e-3, 1e-4):
        there = simplified(step, ricker(point.moved(step.move, share)), share)
        off = there.minus(step.move, 1 - share).length(step.size)
        assert off < 30 * share**2 * step.length**2  # what is forgotten leaves share * length


def test_where_whole_steps_circle_shorter_ones_descend():
    ricker = Closed(10.0, 1.2, noise=0.03)
    method = GeneralisedGaussNewton(max_iterations=200)
    space, start = ricker.space(), ricker.start((3.0, 1.5, 0.2))
    found = method.fit(ricker, start, space)
    assert found.status is Status.CONVERGED
    known = ricker.known(found.point.unknowns)
    assert found.at.cost == pytest.approx(known.fun, rel=1e-6)
    begin = space.clip(start)
    ended = descend(ricker, (begin, ricker(begin)), space, method._rests, 200)
    assert ended.rests
    assert ended.at.cost == pytest.approx(found.at.cost, rel=1e-9)


def test_a_descent_without_a_way_says_so():
    ricker = Closed(10.0, noise=0.03)
    start = ricker.start((3.0, 1.5, 0.2))

    def only_here(point):
        return ricker(point) if np.array_equal(point.unknowns, start.unknowns) else None

    space = ricker.space()
    ended = descend(only_here, (start, ricker(start)), space, lambda *_: False, 5)
    assert not ended.rests
    assert ended.iterations == 0
    assert ended.point is start


def free_rows(matrix, low, high):
    """Bounds that are never met, and constraints at the end."""
    n, k = matrix.shape[1], len(matrix)
    return Rows(
        matrix=np.vstack([np.eye(n), matrix]),
        offset=np.zeros(n + k),
        low=np.concatenate([np.full(n, -1.0), low]),
        high=np.concatenate([np.full(n, 1.0), high]),
        hard=np.arange(n + k) < n,
        limits=k,
    )


@pytest.mark.parametrize("seed", range(8))
def test_equations_bounds_and_inequalities_together(seed):
    rng = np.random.default_rng(seed)
    at = Linearised(4 * rng.normal(size=12), rng.normal(size=(12, 5)))
    matrix = rng.normal(size=(4, 5))
    low = np.array([0.1, -0.2, -0.1, -np.inf])
    high = np.array([0.1, -0.2, 0.1, 0.2])
    rows = free_rows(matrix, low, high)
    found = inverse(at, np.array([1.0, 10.0, 0.1, 1.0, 3.0]), rows)
    known = minimize(
        lambda d: np.sum((at.residual + at.jacobian @ d) ** 2),
        np.zeros(5),
        jac=lambda d: 2 * at.jacobian.T @ (at.residual + at.jacobian @ d),
        bounds=[(-1, 1)] * 5,
        constraints=[
            {"type": "eq", "fun": lambda d: matrix[:2] @ d - low[:2]},
            {"type": "ineq", "fun": lambda d: matrix[2] @ d + 0.1},
            {"type": "ineq", "fun": lambda d: high[2:] - matrix[2:] @ d},
        ],
        method="SLSQP",
        options={"ftol": 1e-11, "maxiter": 300},
    )
    assert known.success
    d = found.change
    assert np.sum((at.residual + at.jacobian @ d) ** 2) == pytest.approx(known.fun, rel=1e-6)
    assert matrix[:2] @ d == pytest.approx(low[:2], abs=1e-10)
    assert found.reached == pytest.approx(rows.matrix[found.active] @ d, abs=1e-9)
    again = found.again(at.residual, found.reached)
    assert again == pytest.approx(d, abs=1e-9)
    half = found.again(at.residual, 0.5 * found.reached)
    assert rows.matrix[found.active] @ half == pytest.approx(0.5 * found.reached, abs=1e-9)


def test_an_equation_determines_what_no_residual_does():
    rng = np.random.default_rng(0)
    column = rng.normal(size=(8, 1))
    at = Linearised(rng.normal(size=8), np.hstack([column, 2 * column, np.zeros((8, 1))]))
    rows = free_rows(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]), [0.1, 0.4], [0.1, 0.4])
    found = inverse(at, np.ones(3), rows)
    assert found.change[[0, 2]] == pytest.approx([0.1, 0.2])
    assert found.held == 0
    best = np.linalg.lstsq(2 * column, -at.residual - 0.1 * column[:, 0], rcond=None)[0]
    assert found.change[1] == pytest.approx(best[0])


def test_an_inequality_moves_what_no_residual_determines_if_it_must():
    at = Linearised(np.array([1.0]), np.array([[1.0, 0.0]]))
    rows = free_rows(np.array([[0.0, 1.0]]), [0.3], [np.inf])
    assert inverse(at, np.ones(2), rows).change == pytest.approx([-1.0, 0.3])


def test_equations_that_contradict_each_other_are_missed_alike():
    at = Linearised(np.array([1.0]), np.array([[1.0, 0.5]]))
    rows = free_rows(np.array([[1.0, 0.0], [1.0, 0.0]]), [0.2, 0.4], [0.2, 0.4])
    assert inverse(at, np.ones(2), rows).change[0] == pytest.approx(0.3)


def test_equations_give_way_to_bounds():
    at = Linearised(np.array([1.0, 0.5]), np.eye(2))
    for wanted in ([1.0, 0.0], [1.0, 1e-3]):
        rows = free_rows(np.array([wanted]), [3.0], [3.0])
        found = inverse(at, np.ones(2), rows)
        assert found.change[0] == pytest.approx(1.0)
        assert (np.abs(found.change) <= 1 + 1e-9).all()


def test_how_much_is_missed_is_relative_to_what_moves_it():
    at = limited(0, 0.3, 0.3)
    size = space_of(at).size
    (first, second) = at.limits
    told = [
        np.max(m.missed / m.scale(size.unknowns, size.nodes[k]))
        for m, k in ((first, 0), (second, 2))
    ]
    assert missed_length(at, size) == pytest.approx(max(told))
    nothing = first._replace(by_unknown=0 * first.by_unknown, by_node=0 * first.by_node)
    assert nothing.scale(size.unknowns, size.nodes[0]) == pytest.approx(1.0)
