"""The checker's edges: unknown exponents, rates that overflow, and what is no number."""

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import containment
import numpy as np
import pyomo.environ as pyo
import pytest
from one_state import one_state

import igpe
from igpe.proofs.checker import confirm
from igpe.proofs.checker.confirm import Boxes, BoxRows, Effort, _order, value_at
from igpe.proofs.checker.experiments import replays

TIMES = np.linspace(0.25, 2.0, 6)


INTERVALS, STEP = (containment.K[n] for n in ("intervals", "step"))
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_powers_of_intervals_contain_powers_and_the_zero_below_them() -> None:
    rng = np.random.default_rng(5)
    bases, exponents = (-2.0, 0.0, 1e-9, 0.3, 1.0, 4.0), (-1.5, 0.0, 0.5, 1.0, 3.0)
    for _ in range(500):
        b, n = np.sort(rng.choice(bases, 2)), np.sort(rng.choice(exponents, 2))
        low, high = INTERVALS.power(*b, *n)
        for x, y in product((*b, b.mean()), (*n, n.mean())):
            assert low <= (x**y if x > 0 else float(y == 0)) <= high
    for ends in ((math.nan, 1.0), (0.5, math.nan)):
        assert not np.isfinite(INTERVALS.power(*ends, 1.0, 2.0)[1])
        assert not np.isfinite(INTERVALS.power(0.5, 1.0, *ends)[1])


def test_a_power_that_jumps_at_zero_has_no_slope() -> None:
    for exponent, finite in ((0.0, False), (-1.0, False), (1.25, True), (2.5, True)):
        by_base, _ = INTERVALS._power_slopes(-1e-3, 2.0, exponent, exponent)
        assert np.isfinite(by_base).all() == finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_an_operation_on_what_is_no_number_bounds_nothing_that_it_does_not_know(
    name: str, bad: float
) -> None:
    for place, others in product(range(4), product((-2.0, 1.0), repeat=4)):
        ends = [min(others[:2]), max(others[:2]), min(others[2:]), max(others[2:])]
        ends[place] = bad
        low, high = getattr(INTERVALS, name)(*(np.float64(v) for v in ends))
        assert low <= high
        if math.isnan(bad):
            assert low == -math.inf or high == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_step_is_proved_with_what_is_no_number(bad: float) -> None:
    solves = containment.K["step"].solves
    good = np.array([[0.1, 0.2], [0.0, -3.0]]), *(np.array([v, v]) for v in (1e-3, 1e-2, 1e-1))
    assert solves(*good)
    for k, given in enumerate(good):
        broken = [v.copy() for v in good]
        broken[k].flat[0] = bad
        if not (k == 3 and bad == math.inf):  # a tube that is wide is no fault
            assert not solves(*broken), k
        assert given.flat[0] == given.flat[0]


@pytest.mark.parametrize("seed", range(10))
def test_powers_of_polynomials(seed: int) -> None:
    assert containment.of_powers(seed) == 0


def problem(law: Callable[[Any, Any], Any], bounds: dict[str, Any], y: Any) -> igpe.Problem:
    return one_state(law, bounds, (TIMES, y), sigma=0.02)


def saturated(upper: float) -> igpe.Problem:
    y = np.exp(-0.5 * TIMES) + 0.02 * np.array([1, -1, 1, 1, -1, 0])
    return problem(lambda m, x: -pyo.exp(m.a) * x, {"a": (-3.0, upper)}, y)


def after(experiment: Any, p: np.ndarray, x: np.ndarray, begin: float, end: float) -> np.ndarray:
    """Ranges of the states by coarse steps; nothing if they are not known."""
    x, tape, wide = x.copy(), experiment.program.sharp, np.empty(x.shape)
    f = STEP.slopes_of(tape)
    for a, b in pairwise(np.linspace(begin, end, 5)):
        INTERVALS.ranges_of_leaves(tape, (a, b), x, p, np.zeros((0, 2)), f.v)
        length = INTERVALS.subtract(b, b, a, a)
        if not STEP.coarse_step(f, x, length, tape.is_smooth, wide) < np.inf:
            return np.array([[math.nan, math.nan]])
    return x


def test_a_rate_that_overflows_is_bounded_by_levels() -> None:
    (experiment,) = replays(saturated(900.0))
    x = after(experiment, np.array([[400.0, 900.0]]), np.ones((1, 2)), 0.0, TIMES[0])
    assert x[0, 0] <= 0.0 <= x[0, 1] < 1e-6


def test_a_state_that_rises_at_once_is_bounded_by_its_equilibrium() -> None:
    """x' = a (5 - x)^3 - x / 9 from 1, so fast that no series in time gets far."""
    given = problem(lambda m, x: m.a * (5 - x) ** 3 - x / 9, {"a": (1e3, 1e6)}, 0 * TIMES + 1)
    (experiment,) = replays(given)
    x = np.ones((1, 2))
    for begin, t in zip((0.0, *TIMES[:-1]), TIMES, strict=True):
        x = after(experiment, np.array([[1e3, 1e6]]), x, begin, t)
    assert 1e3 * (5 - x[0, 0]) ** 3 >= x[0, 0] / 9  # it is not above the lowest equilibrium
    assert x[0, 0] > 2.0
    assert 4.98 < x[0, 1] < 9.0


@pytest.mark.parametrize(("begin", "toward"), [(0.0, 5.0), (5.0, 0.0), (-1.0, 2.0)])
@pytest.mark.parametrize("rate", [6.0, 12.0, 40.0])
def test_a_state_that_is_on_its_way_is_bounded_on_both_sides(
    begin: float, toward: float, rate: float
) -> None:
    """x' = a (c - x), a known within a third: levels hold it, and follow it more than half way."""
    given = problem(lambda m, x: m.a * (toward - x), {"a": (0.0, 60.0)}, 0 * TIMES + 1)
    (experiment,) = replays(given)
    x, ends = np.full((1, 2), begin), (rate, 4 * rate / 3)
    for a, t in zip((0.0, *TIMES[:-1]), TIMES, strict=True):
        x = after(experiment, np.array([ends]), x, a, t)
        exact = [toward + (begin - toward) * math.exp(-r * t) for r in ends]
        assert x[0, 0] <= min(exact) <= max(exact) <= x[0, 1]
        late = x[0, 0] if toward > begin else x[0, 1]
        assert abs(late - toward) <= abs(begin - toward) * (0.1 + 1 / (1 + rate * t / 3))


def test_a_state_that_nothing_stops_is_not_bounded() -> None:
    """x' = a x: faces that are moved are left again."""
    given = problem(lambda m, x: m.a * x, {"a": (1.0, 300.0)}, 0 * TIMES + 1)
    (experiment,) = replays(given)
    x = after(experiment, np.array([[1.0, 300.0]]), np.ones((1, 2)), 0.0, 2.0)
    assert not np.isfinite(x).any()


@pytest.mark.parametrize("seed", range(6))
def test_levels_contain_the_solution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    law = problem(lambda m, x: -m.k * x**m.n, {"k": (0.1, 9.0), "n": (0.3, 3.0)}, 0 * TIMES + 1)
    (experiment,) = replays(law)
    k, n = np.sort(rng.uniform(0.1, 9.0, 2)), np.sort(rng.uniform(0.3, 3.0, 2))
    x = np.ones((1, 2))
    for begin, t in zip((0.0, *TIMES[:-1]), TIMES, strict=True):
        x = after(experiment, np.array([k, n]), x, begin, t)
        for a, b in product((*k, k.mean()), (*n, n.mean())):
            left = 1 - (1 - b) * a * t
            exact = max(left, 0.0) ** (1 / (1 - b)) if b < 1 else left ** (-1 / (b - 1))
            assert x[0, 0] <= exact <= x[0, 1]


def test_a_power_is_as_sharp_at_a_point_as_a_product() -> None:
    """Its logarithm varies faster in time than the states; steps are short enough for it."""
    k, n, t = 0.7, 0.98, np.array([1.0, 4.0])
    data = t, np.zeros(2)
    given = one_state(lambda m, x: -m.k * x**m.n, {"k": (0.01, 10), "n": (0, 2)}, data, sigma=1.0)
    low, high = value_at(replays(given), np.array([k, n]))
    exact = (((1 - (1 - n) * k * t) ** (1 / (1 - n))) ** 2).sum()
    assert low <= exact <= high
    assert high - low < 1e-9 * exact


def root(given: igpe.Problem, point: list[float], gap: float = 1e-3) -> dict[str, object]:
    """A certificate that leaves all work to the checker."""
    lower, upper = given.box.lower.tolist(), given.box.upper.tolist()
    objective = value_at(replays(given), np.array(point))[1]
    return {
        "format": "igpe dynamic certificate 1",
        "unknowns": list(given.box.names),
        "lower": lower,
        "upper": upper,
        "point": point,
        "objective": objective,
        "lower_bound": objective * (1 - gap),
        "tree": [{"lower": lower, "upper": upper, "reason": "open", "children": []}],
    }


def test_a_whole_range_of_rates_that_overflow_is_verified() -> None:
    given = saturated(900.0)
    found = igpe.verify(root(given, [-0.6992133], gap=1e-2), given, seconds=3000.0)
    assert found.verdict is igpe.proofs.Verdict.VERIFIED


def rows(count: int = 1) -> BoxRows:
    """One residual near 3 on the whole box: above a cut of 4 beyond doubt."""
    c = np.zeros((3, 1, count))
    c[0] = 3.0
    return BoxRows(c, np.full((1, count), 0.1), np.zeros(count), np.zeros((1, count)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_bound_comes_from_what_is_no_number(bad: float) -> None:
    boxes = Boxes.around(np.array([[0.0]]), np.array([[1.0]]))
    ends = np.array([[0.0]]), np.array([[1.0]])
    assert confirm.least(rows(), boxes, *ends)[0] > 8
    for place in range(3):
        given = rows()
        given.c[place, 0, 0] = bad
        assert confirm.least(given, boxes, *ends)[0] == 0
    for value in (bad, math.nan):
        given = rows()
        given.e[0, 0] = value
        if not value < 0:
            assert confirm.least(given, boxes, *ends)[0] == 0


def test_a_sum_that_is_no_number_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = saturated(2.0)
    tree = root(given, [-0.55])

    def nothing(experiments: object, boxes: Boxes, effort: object, cut: float) -> BoxRows:
        n = len(boxes)
        c = np.full((3, 1, n), math.nan)
        return BoxRows(c, np.full((1, n), math.nan), np.full(n, math.nan), np.zeros((1, n)))

    monkeypatch.setattr(confirm, "everything", nothing)
    found = igpe.verify(tree, given, seconds=0.3)
    assert found.verdict is igpe.proofs.Verdict.NOT_CONFIRMED


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["objective", "lower_bound", "lower", "upper", "point"])
def test_a_certificate_with_what_is_no_number_is_refused(name: str, bad: float) -> None:
    given = saturated(2.0)
    tree = root(given, [-0.55])
    tree[name] = [bad] if isinstance(tree[name], list) else bad
    with pytest.raises(igpe.errors.DataError, match="finite"):
        igpe.verify(tree, given)


@pytest.mark.parametrize(
    ("spread", "order", "of_many"), [(2.0, 6, 4), (0.3, 6, 4), (1e-3, 9, 8), (0.0, 12, 12)]
)
def test_narrow_boxes_take_higher_orders(spread: float, order: int, of_many: int) -> None:
    center, half = np.array([3.0, 0.0]), np.array([3.0 * spread, 0.0])
    assert _order(Effort(), center, half, many_terms=False) == order
    assert _order(Effort(), center, half, many_terms=True) == of_many
