"""Errors that Taylor models carry along directions contain what they should."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cases import Integrated, monomials
from lotka_volterra import problem as lotka_volterra
from plain import plain

from igpe.proofs.prover.enclosure import BoxBounds, BoxEnclosure, polynomials
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import Writer, linear_parts
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import BoxSearch

K = plain()
INTEGRATION = K["integration"]


@pytest.mark.parametrize("seed", range(12))
def test_directions_after_a_step_reach_as_far_as_all_errors(seed: int) -> None:
    """Of convex sets one is in the other if it reaches no further along any axis."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    algebra = K["taylor"].algebra(2, n, 2)
    first = algebra.size - algebra.errors
    x = rng.normal(size=(n, algebra.size)) * 10.0 ** rng.integers(-9, 1, algebra.size)
    new = rng.normal(size=(n, 5)) * 10.0 ** rng.integers(-9, 1, 5)
    y, before, scale = 1e-4 * rng.random(n), x.copy(), 10.0 ** rng.integers(-2, 3, n)
    used = INTEGRATION.transport(algebra, x, y, new, scale)
    assert (x[:, :first] == before[:, :first]).all()
    assert (x[:, used:] == 0).all()
    every = np.concatenate([before[:, first:], new, np.diag(y)], axis=1)
    axes = np.concatenate([np.eye(n), rng.normal(size=(50, n))])
    far, near = (np.abs(axes @ part).sum(axis=1) for part in (x[:, first:], every))
    assert (near <= far * (1 + 1e-13)).all()
    assert (far <= 3 * n * near).all()  # and it is not much larger


def test_what_is_no_number_is_carried_along() -> None:
    algebra = K["taylor"].algebra(1, 2, 1)
    for bad in (np.nan, np.inf):
        x, new = np.zeros((2, algebra.size)), np.zeros((2, 1))
        new[0, 0] = bad
        with np.errstate(all="ignore"):
            INTEGRATION.transport(algebra, x, np.zeros(2), new, np.ones(2))
        assert not np.isfinite(x).all()


def _network(number: float) -> Any:
    """a b + 2 c, c - number a b, and their difference twice."""
    writer = Writer()
    a, b, c = (writer.put(ops.STATE, i) for i in range(3))
    product, two, given = writer.product(a, b), writer.put(ops.CONST, number=2.0), number
    one = writer.put(ops.ADD, product, writer.put(ops.MUL, two, c))
    multiple = writer.put(ops.MUL, product, writer.put(ops.CONST, number=given))
    other = writer.put(ops.SUB, c, multiple)
    both = writer.put(ops.MUL, two, writer.put(ops.NEG, writer.put(ops.SUB, other, one)))
    return writer.finished([one, other, both]), product, c


def test_slopes_are_sums_of_fluxes() -> None:
    tape, product, c = _network(3.0)
    parts = linear_parts(tape)
    assert set(parts.atoms) == {c, product}
    order = [parts.atoms.tolist().index(k) for k in (product, c)]
    assert parts.weight[:, order].tolist() == [[1, 2], [-3, 1], [8, 2]]
    assert set(parts.between) == {k for k in range(len(tape.op)) if tape.op[k] in (5, 6, 9)} | {
        k for k in range(len(tape.op)) if tape.op[k] == ops.MUL and k != product
    }


@pytest.mark.parametrize("number", [1e300, 1e90])
def test_slopes_with_huge_constants_are_not_taken_apart_beyond_them(number: float) -> None:
    """Products of such constants have no double."""
    tape, *_ = _network(number)
    chain = Writer.of(tape)
    place = int(tape.results[1])
    for _ in range(5):
        place = chain.put(ops.MUL, chain.put(ops.CONST, number=number), place)
    parts = linear_parts(chain.finished([place]))
    assert np.isfinite(parts.weight).all()
    assert (np.abs(parts.weight) <= 1e100).all()


def test_slopes_with_tiny_constants_are_not_taken_apart_beyond_them() -> None:
    """A product of such constants is 0 as a double, and the error of its flux would be lost."""
    chain = Writer()
    place = chain.put(ops.STATE, 0)
    for _ in range(2):
        place = chain.put(ops.MUL, chain.put(ops.CONST, number=1e-200), place)
    assert (linear_parts(chain.finished([place])).weight != 0).all()


def faulty(module: ModuleType, name: str, change: Callable[..., None]) -> Callable[..., Any]:
    """A kernel whose outputs are changed."""
    kernel = getattr(module, name)

    def broken(*given: Any) -> Any:
        found = kernel(*given)
        change(*given)
        return found

    return broken


def _no_new(model: Any, linear: Any, h: float, y: Any, new: Any) -> None:
    new[:] = 0.0


def _no_old(algebra: Any, x: Any, y: Any, new: Any, scale: Any) -> None:
    x[:, algebra.size - algebra.errors :] = 0.0


def _no_flow(algebra: Any, *given: Any) -> None:
    out = given[4]
    out[:, algebra.size - algebra.errors :] = 0.0


FAULTS = {"directed": _no_new, "transport": _no_old, "arrive": _no_flow}


def outside(boxes: int) -> int:
    """How many points' residuals are not in what kernels that are not compiled say of boxes."""
    problem = lotka_volterra()
    given = posed(problem)
    enclosure, truth = BoxEnclosure(given, 1, 3), Integrated(problem, given)
    (run,) = enclosure.models
    rng, wrong = np.random.default_rng(1), 0
    middle = np.array([3.2434, 0.9209])
    for _ in range(boxes):
        width = 10.0 ** rng.uniform(-5, -4, 2) * middle
        lower, upper = middle - width, middle + width
        enclosure._clear(lower, upper)
        p = polynomials(lower, upper, enclosure.divides, 1)
        ranges = np.stack([lower, upper], axis=1)
        with np.errstate(all="ignore"):
            INTEGRATION.integrate(run, p, ranges, 0.3, 300, 1e300)
        for _ in range(2):
            at = lower + (upper - lower) * rng.random(2)
            away = np.abs(truth(at) - enclosure.rows.c @ monomials(enclosure, lower, upper, at))
            wrong += int((away > enclosure.rows.error + 1e-10).sum())
    return wrong


def test_residuals_are_enclosed() -> None:
    assert outside(2) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_directions_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INTEGRATION, name, faulty(INTEGRATION, name, FAULTS[name]))
    assert outside(2) > 0


def test_where_a_model_broke_monomials_of_every_degree_count() -> None:
    """Axis 1 moves the states by its cube alone, axis 0 a little by itself."""
    enclosure = BoxEnclosure(posed(lotka_volterra()), 3)
    (run,) = enclosure.models
    algebra = run.slope.algebra
    factors, x = algebra.factors.tolist(), np.zeros((2, algebra.size))
    x[0, factors.index([0, -1, -1])], x[0, factors.index([1, 1, 1])] = 1.0, 5.0
    assert INTEGRATION._broke(run, x) == INTEGRATION.BROKE
    assert run.spread[1] == pytest.approx(5 * run.spread[0])


def test_errors_that_overflow_are_infinite_without_a_warning() -> None:
    """Warnings are errors in tests."""
    given = posed(lotka_volterra())
    enclosure = BoxEnclosure(given, 3)
    enclosure.examine(given.lower, given.upper, np.inf)
    enclosure.rows.error[:] = 1e200
    assert enclosure._box_bounds(given.lower, given.upper, 0.0, rows=0).is_drowned


@pytest.mark.parametrize("axis", [0, 1])
def test_a_box_whose_model_broke_is_split_along_what_moves_states_most(axis: int) -> None:
    def broke(low: Any, high: Any, *_: Any, **more: Any) -> BoxBounds:
        done = float(high[axis] < 1.0) * 2.0
        far, near = np.eye(2)[axis], np.eye(2)[1 - axis]
        return BoxBounds(done, low, high, near, 9, np.zeros(0), np.nan, spread=far)

    enclosure: Any = _Enclosure(broke)
    found = BoxSearch(enclosure, 1.0, np.zeros(2), np.ones(2), is_weighed=True)
    found._next()
    children = [found.tree[k] for k in found.tree[0].children]
    assert [bool(child.upper[axis] < 1.0) for child in children] == [True, False]
    assert all(child.upper[1 - axis] == 1.0 for child in children)


class _Enclosure:
    """Of bounds that are given."""

    def __init__(self, examine: Callable[..., BoxBounds]) -> None:
        self.examine = examine
