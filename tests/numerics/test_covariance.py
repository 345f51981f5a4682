"""Linearised errors against closed forms and against repeated experiments."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from igpe.numerics.covariance import correlation, uncertainty
from igpe.numerics.lack_of_fit import chi_squared_probability

RANDOM = np.random.default_rng(11)
DESIGN = np.column_stack([np.ones(12), np.linspace(0.0, 1.0, 12), np.linspace(-1, 1, 12) ** 2])
FREE = np.zeros(3, dtype=bool)


def test_covariance_is_the_inverse_normal_matrix():
    residual = RANDOM.normal(size=12)
    known = uncertainty(np.ones(3), residual, DESIGN, held=FREE, sigma_known=True)
    inverse = np.linalg.inv(DESIGN.T @ DESIGN)
    assert known.covariance == pytest.approx(inverse, rel=1e-10)
    assert (known.degrees, known.variance) == (9, 1.0)
    assert known.upper - 1.0 == pytest.approx(1.959963985 * np.sqrt(np.diag(inverse)), rel=1e-8)
    told = uncertainty(np.ones(3), residual, DESIGN, held=FREE, sigma_known=False, confidence=0.9)
    s2 = residual @ residual / 9
    assert told.covariance == pytest.approx(s2 * inverse, rel=1e-10)
    half = stats.t.ppf(0.95, 9) * np.sqrt(s2 * np.diag(inverse))
    assert 1.0 - told.lower == pytest.approx(half, rel=1e-10)


def test_what_lies_on_a_bound_is_held():
    held = np.array([False, True, False])
    told = uncertainty(np.ones(3), np.ones(12), DESIGN, held=held, sigma_known=True)
    rest = DESIGN[:, [0, 2]]
    assert told.covariance[np.ix_([0, 2], [0, 2])] == pytest.approx(np.linalg.inv(rest.T @ rest))
    assert np.isnan(told.covariance[1]).all()
    assert np.isnan(told.standard_error[1])
    assert np.isnan([told.lower[1], told.upper[1]]).all()
    assert (told.degrees, told.undetermined.any()) == (10, np.False_)


def test_all_on_bounds():
    held = np.ones(3, dtype=bool)
    told = uncertainty(np.ones(3), np.ones(12), DESIGN, held=held, sigma_known=False)
    assert np.isnan(told.covariance).all()
    assert (told.degrees, told.variance) == (12, 1.0)


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e-9])
def test_what_the_measurements_do_not_determine(scale):
    twins = np.column_stack([DESIGN[:, 0], scale * DESIGN[:, 1], 3 * DESIGN[:, 1]])
    x = np.array([1.0, 1.0 / scale, 1.0])  # the same unknown in another unit
    told = uncertainty(x, np.ones(12), twins, held=FREE, sigma_known=True)
    assert told.undetermined.tolist() == [False, True, True]
    assert np.isfinite(told.standard_error[0])
    assert np.isinf(told.standard_error[1:]).all()
    known = DESIGN[:, :2]
    assert told.covariance[0, 0] == pytest.approx(np.linalg.inv(known.T @ known)[0, 0], rel=1e-6)


@pytest.mark.parametrize("rows", [2, 3])
def test_no_degrees_of_freedom_without_known_sigma(rows):
    told = uncertainty(np.ones(3), np.ones(rows), DESIGN[:rows], held=FREE, sigma_known=False)
    assert np.isnan(told.variance)
    assert not np.isfinite(told.standard_error).any()
    sure = uncertainty(np.ones(3), np.ones(3), DESIGN[:3], held=FREE, sigma_known=True)
    assert np.isfinite(sure.standard_error).all()


def test_correlation():
    covariance = np.array([[4.0, 3.0, np.nan], [3.0, 9.0, np.nan], [np.nan] * 3])
    assert correlation(covariance)[0, 1] == pytest.approx(0.5)
    assert np.isnan(correlation(covariance)[2]).all()
    lost = np.array([[4.0, 0.0], [0.0, np.inf]])
    assert correlation(lost)[0, 0] == 1.0


def test_probability_of_a_chi_squared():
    assert chi_squared_probability(3.841458821, 1) == pytest.approx(0.05, rel=1e-8)
    assert chi_squared_probability(0.0, 7) == 1.0
    assert np.isnan(chi_squared_probability(1.0, 0))


@pytest.mark.parametrize("sigma_known", [True, False])
@pytest.mark.parametrize("size", [1e-15, 0.0])
def test_a_column_of_rounding_errors_determines_nothing(size, sigma_known):
    design = DESIGN * np.array([1.0, size, 1.0])
    residual = np.linspace(-1.0, 1.0, 12)
    told = uncertainty(np.ones(3), residual, design, held=FREE, sigma_known=sigma_known)
    assert told.undetermined.tolist() == [False, True, False]
    assert np.isinf(told.standard_error[1])
    assert told.degrees == 10


def test_an_unknown_near_zero_is_determined_if_its_range_is_seen():
    """As an activation energy of 4e-5 J/mol is that may be as large as 2e5."""
    x, jacobian = np.array([1.0, 4e-10]), np.column_stack([np.ones(9), np.linspace(0, 1, 9)])
    residual = 0.1 * np.array([1, -1, 1, -1, 1, -1, 1, -1, 0.0])
    held, bounds = np.zeros(2, dtype=bool), (np.zeros(2), np.array([10.0, 2e5]))
    alone = uncertainty(x, residual, jacobian, held=held, sigma_known=False)
    assert alone.undetermined[1]  # the value tells nothing, and there is no range
    found = uncertainty(x, residual, jacobian, held=held, sigma_known=False, bounds=bounds)
    assert not found.undetermined.any()
    assert found.lower[1] == 0.0
    assert 0.1 < found.upper[1] < 1.0


def test_a_one_sided_interval_ends_where_the_objective_has_risen_enough():
    """Of y = a + b t, b on its bound 0: against the sum of squares itself, a fitted again."""
    t = np.linspace(0, 1, 30)
    y = 1.0 - 0.1 * t + 0.1 * np.where(np.arange(30) % 2, 1, -1)
    x = np.array([y.mean(), 0.0])
    residual, jacobian = (x[0] - y) / 0.1, np.column_stack([np.ones(30), t]) / 0.1
    bounds = (np.array([-5.0, 0.0]), np.array([5.0, 5.0]))
    held = np.array([False, True])
    found = uncertainty(x, residual, jacobian, held=held, sigma_known=True, bounds=bounds)
    b = found.upper[1]
    again = (y - b * t).mean() + b * t - y
    assert found.lower[1] == 0.0
    assert np.sum((again / 0.1) ** 2) - residual @ residual == pytest.approx(3.8415, rel=1e-3)


def test_the_interval_of_a_logarithmic_unknown_is_that_of_its_logarithm():
    """As if the logarithm were the unknown; but what is on a bound has a step along itself."""
    rng = np.random.default_rng(3)
    x, jacobian, residual = np.array([0.5, 2.0, 1.0]), rng.normal(size=(9, 3)), rng.normal(size=9)
    logs, held = np.array([True, False, True]), np.array([False, False, True])
    wide = np.array([1e-9, -99.0, 1.0]), np.array([1e9, 99.0, 1e9])
    one = uncertainty(
        x, residual, jacobian, held=held, sigma_known=True, bounds=wide, logarithmic=logs
    )
    y, scale = np.where(logs, np.log(x), x), np.where(logs, x, 1.0)
    bounds = tuple(np.where(logs, np.log(np.abs(b)), b) for b in wide)
    other = uncertainty(y, residual, jacobian * scale, held=held, sigma_known=True, bounds=bounds)
    for end, plain in ((one.lower, other.lower), (one.upper, other.upper)):
        assert end[:2] == pytest.approx(np.where(logs, np.exp(plain), plain)[:2], rel=1e-9)
    linear = uncertainty(x, residual, jacobian, held=held, sigma_known=True, bounds=wide)
    assert (one.lower[2], one.upper[2]) == (linear.lower[2], linear.upper[2])
    assert one.standard_error[:2] == pytest.approx((other.standard_error * scale)[:2])


def test_an_inequality_leaves_the_logarithm_to_unknowns_that_it_does_not_move():
    """x1 <= 0.5 is active; x2 takes no part, and is measured apart from x1."""
    x, jacobian = np.array([0.5, 2.0]), np.array([[9.0, 0.0], [0.0, 1.0]])
    given = {"held": np.zeros(2, dtype=bool), "sigma_known": True}
    given |= {"logarithmic": np.ones(2, dtype=bool)}
    residual = np.array([-1.0, 0.0])
    free = uncertainty(x, residual, jacobian, **given)
    active, is_equation = np.array([[1.0, 0.0]]), np.array([False])
    one = uncertainty(x, residual, jacobian, active=active, equations=is_equation, **given)
    assert (one.lower[1], one.upper[1]) == pytest.approx((free.lower[1], free.upper[1]), rel=1e-6)
    assert (one.lower[0] < 0.5, one.upper[0]) == (True, 0.5)


def test_intervals_beside_an_active_inequality_end_where_the_objective_has_risen_enough():
    """Of y = a + b t with a + b <= 1, which is active: against the profile, constrained as well."""
    t = np.linspace(0, 1, 30)
    y = 1.0 + 0.04 * t + 0.1 * np.where(np.arange(30) % 2, 1, -1)
    jacobian, row = np.column_stack([np.ones(30), t]) / 0.1, np.array([[1.0, 1.0]])

    def squares(a, b):
        return float(np.sum((a + b * t - y) ** 2)) / 0.01

    def along(b):  # a = 1 - b
        return squares(1 - b, b)

    best = float(minimize_scalar(along).x)
    x = np.array([1 - best, best])
    residual = jacobian @ x - y / 0.1
    held, is_equation = np.zeros(2, dtype=bool), np.array([True])
    tied = uncertainty(x, residual, jacobian, held=held, sigma_known=True, active=row)
    found = uncertainty(
        x, residual, jacobian, held=held, sigma_known=True, active=row, equations=~is_equation
    )
    without = uncertainty(x, residual, jacobian, held=held, sigma_known=True)
    assert found.standard_error == pytest.approx(without.standard_error)
    assert found.lower[1] < tied.lower[1] - 0.1 * tied.standard_error[1]
    for i, ends in enumerate(zip(found.lower, found.upper, strict=True)):
        for v in ends:
            most = 1 - v
            free = ((y - v) @ t / (t @ t)) if i == 0 else (y - v * t).mean()
            pair = (v, min(free, most)) if i == 0 else (min(free, most), v)
            assert squares(*pair) - squares(*x) == pytest.approx(3.8415, rel=1e-3)


ALIKE = np.random.default_rng(0).standard_normal((9, 3)) @ [[1, 1, 0], [0, 1e-8, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("row", "held", "linked"),
    [
        ([0.0, 0.0, 0.0], [], ()),
        ([1.0, 1.0, 1.0], [], ()),
        ([1.0, 0.0, 2e-3], [], ((0, 2),)),
        ([1.0, 1.0, 1.0], [1], ((0, 2),)),
    ],
)
def test_what_links_unknowns_are_active_constraints_and_not_data(row, held, linked):
    """However alike two columns of the derivative are, they are no link."""
    is_held = np.isin(np.arange(3), held)
    found = uncertainty(
        np.ones(3), np.ones(9), ALIKE, held=is_held, sigma_known=True, active=np.array([row])
    )
    assert found.linked == linked


@pytest.mark.parametrize(("beyond", "is_linked"), [(0.1, False), (10.0, True)])
def test_an_inequality_links_unknowns_only_if_the_optimum_lies_clearly_beyond_it(beyond, is_linked):
    """Of x = y1 and y = y2 with x + y <= 1, where the measurements say more: in standard errors."""
    away, eye, held = np.full(2, beyond / np.sqrt(2)), np.eye(2), np.zeros(2, dtype=bool)
    given = {"held": held, "sigma_known": True, "active": np.ones((1, 2))}
    found = uncertainty(np.full(2, 0.5), -away, eye, equations=np.array([False]), **given)
    assert (found.linked == ((0, 1),)) is is_linked
    assert found.standard_error == pytest.approx(np.sqrt(0.5) if is_linked else 1.0)
    assert (found.upper > 0.5).all()


def test_an_unknown_that_an_active_inequality_holds_has_a_one_sided_interval_and_no_error():
    residual, jacobian = np.full(9, 0.5), np.ones((9, 1))
    held = np.zeros(1, dtype=bool)
    for side in (1.0, -1.0):
        found = uncertainty(
            np.zeros(1), -side * residual, jacobian, held=held, sigma_known=True,
            active=np.array([[side]]), equations=held,
        )  # fmt: skip
        assert found.tied.all()
        assert np.isnan(found.standard_error).all()
        far = -side * (np.sqrt(4.5**2 + 9 * 3.8415) - 4.5) / 9
        assert sorted([found.lower[0], found.upper[0]]) == pytest.approx(sorted([0.0, far]), 1e-4)
    assert uncertainty(
        np.zeros(1), residual, jacobian, held=held, sigma_known=True, active=np.ones((1, 1))
    ).standard_error == pytest.approx(0.0)


def test_a_short_series_with_unknowns_of_its_own_has_intervals_of_its_own():
    """As if it were fitted alone, whatever else is measured, if no unknown is shared."""
    rng = np.random.default_rng(3)
    short, long = rng.standard_normal((8, 3)), rng.standard_normal((60, 2))
    jacobian = np.block([[short, np.zeros((8, 2))], [np.zeros((60, 3)), long]])
    errors = [rng.standard_normal(8), rng.standard_normal(60)]
    left = [
        r - j @ np.linalg.lstsq(j, r, rcond=None)[0]
        for r, j in zip(errors, (short, long), strict=True)
    ]
    sizes = [np.sqrt(np.mean(r**2)) for r in left]  # by maximum likelihood, as relative sigmas are
    size = np.repeat(sizes, (8, 60))
    residual, x = np.concatenate(left) / size, np.zeros(5)
    free = {"held": np.zeros(5, dtype=bool), "sigma_known": False}
    both = uncertainty(
        x, residual, jacobian / size[:, None], quantities=np.repeat([0, 1], (8, 60)), **free
    )
    alone = [
        uncertainty(
            np.zeros(j.shape[1]), r, j, held=np.zeros(j.shape[1], dtype=bool), sigma_known=False
        )
        for r, j in zip(left, (short, long), strict=True)
    ]
    for one in ("standard_error", "lower", "upper"):
        expected = np.concatenate([getattr(a, one) for a in alone])
        np.testing.assert_allclose(getattr(both, one), expected, rtol=1e-9)
    pooled = uncertainty(x, residual, jacobian / size[:, None], **free)
    rise = pooled.upper**2 / np.diag(pooled.covariance) * pooled.variance * both.inflation
    own = both.upper**2 / np.diag(pooled.covariance) * pooled.variance
    np.testing.assert_allclose(rise, own, rtol=1e-9)


def test_one_quantity_or_none_changes_nothing():
    """A quantity without a degree of freedom has the errors of all."""
    rng = np.random.default_rng(4)
    jacobian = rng.standard_normal((12, 3))
    residual = rng.standard_normal(12)
    residual -= jacobian @ np.linalg.lstsq(jacobian, residual, rcond=None)[0]
    given = {"held": np.zeros(3, dtype=bool), "sigma_known": False}
    plain = uncertainty(np.zeros(3), residual, jacobian, **given)
    for number in (0, -1):
        own = uncertainty(np.zeros(3), residual, jacobian, quantities=np.full(12, number), **given)
        np.testing.assert_allclose(own.upper, plain.upper, rtol=1e-12)
        np.testing.assert_allclose(own.covariance, plain.covariance, rtol=1e-12)
        np.testing.assert_allclose(own.inflation, 1.0, rtol=1e-12)
