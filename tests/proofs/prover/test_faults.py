"""What is no number decides nothing: faults planted in every kernel that prunes or accepts.

Each test gives a kernel ends that are nan, infinite or crossed, one after the other, and asks that
nothing is cut off, no bound rises and no step is accepted.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from plain import plain

K = plain()
NAN, INF = math.nan, math.inf
BAD = (NAN, INF, -INF)
T = K["tape"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def f(*values: float) -> tuple[Any, ...]:
    """NumPy's doubles, which divide by zero as compiled code does."""
    return tuple(np.float64(v) for v in values)


def contains(found: tuple[float, float], low: float, high: float) -> bool:
    return bool(found[0] <= low and high <= found[1])


@pytest.mark.parametrize("op", [T.ADD, T.SUB, T.MUL, T.DIV, T.SQUARE])
@pytest.mark.parametrize("place", range(4))
def test_an_operation_on_what_is_no_number_is_the_whole_line(op: int, place: int) -> None:
    for others in product((-2.0, 0.0, 1.0, INF), repeat=4):
        ends = [min(others[:2]), max(others[:2]), min(others[2:]), max(others[2:])]
        ends[place] = NAN
        if op == T.SQUARE and place > 1:
            continue
        low, high = K["intervals"].between(op, *f(*ends))
        nonnegative = place % 2 or op == T.SUB  # which the other ends tell
        assert low == -INF or (low == 0.0 and nonnegative), ends
        assert high == INF, ends


def test_a_quotient_by_what_overflowed_is_not_zero() -> None:
    assert K["intervals"].between(T.DIV, *f(1.0, 2.0, NAN, INF)) == (-INF, INF)


def test_an_end_that_is_infinite_is_no_value() -> None:
    times = K["intervals"].times
    assert contains(times(*f(0.0, 1.0, 2.0, INF)), 0.0, 1e300)
    assert contains(times(*f(0.0, 0.0, -INF, INF)), 0.0, 0.0)
    assert contains(times(*f(-INF, INF, 0.0, INF)), -1e300, 1e300)
    low, high = K["intervals"].outward(*f(INF, INF))
    assert math.isfinite(low)
    assert high == INF


@pytest.mark.parametrize("kind", [T.EXP, T.LOG, T.POWER, T.SIN, T.COS])
def test_a_function_of_what_is_no_number_has_no_range(kind: int) -> None:
    for low, high in ((NAN, 1.0), (1.0, NAN), (NAN, NAN), (2.0, 1.0)):
        found = K["intervals"].of_function(kind, 0.5, *f(low, high))
        assert K["intervals"].outward(*found) == (-INF, INF)


def test_an_exponential_that_overflows_keeps_its_lower_bound() -> None:
    low, high = K["intervals"].of_function(T.EXP, 0.0, *f(1.0, 900.0))
    assert low == pytest.approx(math.e)
    assert high == INF
    low, high = K["intervals"].of_function(T.EXP, 0.0, *f(800.0, 900.0))
    assert low < 1.7e308
    assert high == INF


def test_powers_with_unknown_exponents_are_in_their_ranges() -> None:
    rng = np.random.default_rng(3)
    ends = (-1.0, 0.0, 1e-300, 1e-3, 0.5, 1.0, 1.5, 1e3, 1e300)
    exponents = (-700.0, -2.0, -0.5, 0.0, 0.3, 1.0, 2.5, 900.0)
    for _ in range(3000):
        b0, b1 = np.sort(rng.choice(ends, 2))
        n0, n1 = np.sort(rng.choice(exponents, 2))
        low, high = K["intervals"].of_power(b0, b1, n0, n1)
        for b, n in product((b0, b1, 0.5 * (b0 + b1)), (n0, n1, 0.5 * (n0 + n1))):
            if b > 0:
                logarithm = n * math.log(b)  # of values that are no doubles as well
                above = -INF if high == 0 else INF if high == INF else math.log(high)
                below = -INF if low <= 0 else math.log(low)
                assert below - 1e-9 <= logarithm <= max(above, math.log(1e-300)) + 1e-9
            else:
                assert low <= 0.0 <= float(n == 0) <= high
    for bad in product((NAN, 0.5), repeat=4):
        if any(map(math.isnan, bad)):
            found = K["intervals"].of_power(*f(*bad))
            assert K["intervals"].outward(*found) == (-INF, INF)


def rows(m: int = 3, n: int = 2, degree: int = 2) -> tuple[Any, Any]:
    """Residuals near zero on [-1, 1]^2: nothing can be cut off, no bound be proved."""
    algebra = K["taylor"].algebra(n, 1, degree)
    made = K["rows"].rows(m, algebra)
    K["rows"].clear(made)
    made.c[:, 1 : 1 + n] = [[1.0, 0.3], [0.2, 1.0], [1.0, 1.0]]
    made.error[:] = 0.01
    for i in range(m):
        K["rows"].note(made, i, *f(-2.01, 2.01))
    return algebra, made


CUT = 8.0  # of the sum of squares: at corners of the box it is reached


def is_kept(made: Any) -> bool:
    """Whether nothing of the box was cut off."""
    return bool((made.delta[:, 0] <= -1.0).all() and (made.delta[:, 1] >= 1.0).all())


@pytest.mark.parametrize("bad", BAD)
def test_a_residual_with_such_an_end_proves_nothing(bad: float) -> None:
    for low, high in ((bad, 1.0), (-1.0, bad), (bad, bad), (1.0, -1.0)):
        _, made = rows()
        K["rows"].note(made, 0, *f(low, high))
        honest = low <= high  # such as (-inf, 1)
        assert honest or (made.low[0], made.high[0]) == (-2.01, 2.01)
        assert K["rows"].total(made) == 0.0 or (honest and math.isinf(bad))


def faults() -> list[tuple[str, tuple[int, ...]]]:
    _, made = rows()
    return [
        (name, place)
        for name in ("c", "error", "square")
        for place in np.ndindex(getattr(made, name).shape)
    ]


@pytest.mark.parametrize(("name", "place"), faults())
def test_a_row_that_is_no_number_cuts_nothing_off(name: str, place: tuple[int, ...]) -> None:
    for bad in BAD[:2]:
        algebra, made = rows()
        getattr(made, name)[place] = bad
        if name == "square" and bad == INF:  # what is infinite is above every cut
            continue
        K["rows"].narrow(algebra, made, place[0], CUT)
        assert (made.delta[:, 0] <= made.delta[:, 1]).all()
        if name != "square" or np.isnan(bad):
            assert is_kept(made)
        assert K["rows"].left(made) > 0


@pytest.mark.parametrize(("name", "place"), faults())
def test_no_bound_comes_from_what_is_no_number(name: str, place: tuple[int, ...]) -> None:
    for bad in BAD[:2]:
        algebra, made = rows()
        if name == "square" and bad == INF:
            continue
        getattr(made, name)[place] = bad
        u = np.ones(3)
        assert not K["rows"].by_multipliers(algebra, made, u) > 0
        assert not K["rows"].joint_bound(algebra, made, CUT, np.zeros(3)) > 0
        assert (made.delta[:, 0] <= made.delta[:, 1]).all()


def test_multipliers_that_are_no_numbers_prove_nothing() -> None:
    for k, bad in product(range(3), BAD):
        algebra, made = rows()
        made.c[:, 0] = 5.0
        u = np.ones(3)
        u[k] = bad
        assert not K["rows"].by_multipliers(algebra, made, u) > 0
        K["rows"].contract(algebra, made, 1e6, u, np.zeros(2))
        assert (made.delta[:, 0] <= made.delta[:, 1]).all()


@pytest.mark.parametrize("bad", [NAN])
def test_a_contraction_by_what_is_no_number_is_none(bad: float) -> None:
    for ends in ((bad, 0.5), (-0.5, bad), (bad, bad), (0.2, bad)):
        _, made = rows()
        K["rows"].shrink(made, 0, *f(*ends))
        assert is_kept(made)


def test_a_width_that_is_no_number_is_not_empty() -> None:
    for place in np.ndindex(2, 2):
        _, made = rows()
        made.delta[place] = NAN
        assert K["rows"].left(made) > 0
    _, made = rows()
    made.delta[0] = 1.0, -1.0
    assert K["rows"].left(made) < 0


def decay() -> Any:
    """x' = -p x as a tape."""
    numbers = [(T.STATE, 0, 0), (T.PARAMETER, 0, 0), (T.MUL, 0, 1), (T.NEG, 2, 0)]
    op, a, b = (np.array(c) for c in zip(*numbers, strict=True))
    return T.OpTape(
        op, a, b, np.zeros(4), np.array([3]), np.zeros(0, int), np.zeros(0), np.zeros(0, int),
        np.full(4, 1000), np.ones((1, 4), bool), True,
    )  # fmt: skip


@pytest.mark.parametrize("states", range(4))
def test_lists_for_faces_have_one_layout(states: int) -> None:
    """With another one kernels would be compiled again, which takes a minute."""
    writer = T.Writer()
    results = [
        writer.product(writer.put(T.STATE, i), writer.put(T.PARAMETER, 0)) for i in range(states)
    ]
    lists = T.faces(writer.finished([*results, writer.put(T.TIME)]))
    assert all(one.flags.c_contiguous and one.dtype == np.int64 for one in lists)


@pytest.mark.parametrize("where", ["now", "p", "slope"])
def test_no_step_is_accepted_with_what_is_no_number(where: str) -> None:
    tape = decay()
    choices = (False, False), (True, False), (False, True)
    for k, bad, (falling, last) in product(range(2), (NAN, INF, -INF), choices):
        given = {
            "now": np.array([[0.9, 1.0]]),
            "p": np.array([[0.5, 0.6]]),
            "slope": np.array([[-0.6, -0.45]]),
        }
        given[where][0, k] = bad
        positive, out = np.empty(1, bool), np.empty((4, 2))
        no_sums = np.zeros((0, 1)), np.zeros((0, 2)), np.empty((1, 2))
        out[1] = given["p"][0]
        ranges = given["p"], np.zeros((1, 2)), out
        slopes_of = K["mueller"].Slopes(tape, T.faces(tape), *ranges, *no_sums)
        good = K["mueller"].try_step(
            slopes_of,
            given["now"],
            np.float64(0.01),
            given["slope"],
            0.05,
            falling,
            last,
            positive,
        )
        slopes = given["slope"][0]
        if good:  # then with slopes that hold: x' is in [-0.6, -0.45], if the rates are known
            assert not np.isnan(slopes).any()
            top = given["p"][0, 1] if where == "p" else 0.6
            assert slopes[0] <= -top * 0.9 or positive[0]
            assert slopes[1] >= -1.0


def test_a_sum_that_is_no_number_tells_nothing_of_its_states() -> None:
    sums = np.array([[1.0, 2.0]])
    for place, bad in product(np.ndindex(3, 2), BAD):
        x = np.array([[0.0, 1.0], [0.0, 1.0], [0.5, 0.6]])
        x[place] = bad
        before = x.copy()
        K["mueller"].narrow_states(sums, x[2:], x[:2], -1)
        K["mueller"].narrow_sums(sums, x[2:], x[:2])
        if place[0] == 2 or not math.isfinite(bad):
            np.testing.assert_array_equal(x[:2], before[:2])
        if place[0] < 2:
            np.testing.assert_array_equal(x[2], before[2])


def test_states_and_sums_narrow_each_other_and_lose_no_point() -> None:
    rng, narrowed = np.random.default_rng(8), 0
    for _ in range(300):
        sums = rng.integers(-3, 4, (2, 3)).astype(float)
        point = rng.standard_normal(3) * 10.0 ** rng.integers(-3, 4, 3)
        ends = np.concatenate([point, sums @ point])
        size = np.abs(sums) @ np.abs(point)
        error = 8 * 2.0**-53 * np.concatenate([np.zeros(3), size])  # of `ends` themselves
        width = np.abs(ends) * rng.choice((0.0, 1e-16, 0.1, 2.0), 5) + error
        x = np.stack([ends - width * rng.random(5) - error, ends + width + error], axis=1)
        before = x.copy()
        K["mueller"].narrow_states(sums, x[3:], x[:3], int(rng.integers(-1, 3)))
        K["mueller"].narrow_sums(sums, x[3:], x[:3])
        assert (x[:3, 0] <= point).all()
        assert (point <= x[:3, 1]).all()
        assert (x[3:, 0] <= ends[3:] + error[3:]).all()
        assert (ends[3:] - error[3:] <= x[3:, 1]).all()
        narrowed += bool((x[:3] != before[:3]).any())
    assert narrowed > 50


def test_ranges_are_ordered_whatever_their_leaves_are() -> None:
    tape = decay()
    for x, p in product(((NAN, 1.0), (1.0, NAN), (2.0, 1.0), (0.0, 1.0)), repeat=2):
        out = np.empty((4, 2))
        K["mueller"].enclose(tape, np.array([x]), np.array([p]), np.zeros((1, 2)), out)
        assert (out[:, 0] <= out[:, 1]).all()
        if not (x[0] <= x[1] and p[0] <= p[1]):
            assert (out[3] == [-INF, INF]).all()


def test_a_tube_with_what_is_no_number_bounds_nothing() -> None:
    for place, bad in product(np.ndindex(3, 1, 2), (NAN,)):
        tube = K["mueller"].tube(1)
        tube.time[:3], tube.steps[0] = [0.0, 1.0, 2.0], 3
        tube.bounds[:3] = [[[0.0, 1.0]]] * 3
        tube.bounds[place] = bad
        x = np.zeros((1, 2))
        K["mueller"].hull(tube, 0.0, 2.0, 0, x)
        assert (x == [-INF, INF]).all()


def test_a_remainder_of_what_is_no_number_is_no_bound() -> None:
    derivative = K["taylor"]._derivative
    for kind, ends in product(
        (T.EXP, T.LOG, T.POWER, T.SIN), ((NAN, 1.0), (0.5, NAN), (NAN, NAN), (2.0, 1.0))
    ):
        assert not derivative(kind, 0.5, *f(*ends)) < INF
    assert derivative(T.EXP, 0.0, *f(0.0, 900.0)) == INF
    assert derivative(T.LOG, 0.0, *f(0.0, 1.0)) == INF
