"""Values below a limit of detection: they count by their probability."""

import numpy as np
import pandas as pd
import pytest
from ode import ode
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_ndtr

import igpe
from igpe import kinetics
from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.dynamics.likelihood import likelihood_gradient, negative_log_likelihood
from igpe.problem.losses import Censored
from igpe.problem.noise.sigma import below, information

TIMES, SIGMA, LIMIT = np.linspace(0.5, 8, 16), 0.05, 0.15
DECAY = kinetics.Batch(["A -> B"], bounds={"k1": (0.01, 5)}, units=kinetics.Units("mol", "L", "h"))
BELOW = Censored(SIGMA, below=LIMIT)
TRUTH = {"k1": 0.7, "A(t0)": 2.0}


def measured(seed=0):
    errors = SIGMA * np.random.default_rng(seed).standard_normal(len(TIMES))
    return pd.DataFrame({"time": TIMES, "A": 2 * np.exp(-0.7 * TIMES) + errors})


def pose(table, sigma=BELOW, **options):
    run = igpe.Experiment(
        table,
        start={"A": igpe.Unknown(0, 5), "B": 0.0},
        start_time=0.0,
        sigma={"A": sigma},
        **options,
    )
    return igpe.Problem(DECAY, parameters=["k1"], experiments=run)


def minus_two_log(x, table):
    """-2 log L but for the constants of what was measured."""
    predicted, a = x[1] * np.exp(-x[0] * TIMES), table["A"].to_numpy()
    low = a <= LIMIT
    known = np.sum(((predicted - a)[~low] / SIGMA) ** 2)
    return known - 2 * np.sum(log_ndtr((LIMIT - predicted[low]) / SIGMA))


def test_residuals_are_exact_far_from_the_limit():
    z = np.array([-1e8, -1e3, -30.0, -2.0, 0.0, 2.0, 30.0, 60.0, 1e8])
    r, slope = below(-z)
    assert np.isfinite([r, slope]).all()
    np.testing.assert_allclose(r[:2], -z[:2], rtol=1e-4)
    assert r[4] == pytest.approx(np.sqrt(2 * np.log(2)), rel=1e-14)
    near, step = z[2:6], 1e-5
    by_difference = (below(-near + step)[0] - below(-near - step)[0]) / (2 * step)
    np.testing.assert_allclose(below(-near)[1], by_difference, rtol=1e-8)


def test_information_is_half_the_second_derivative():
    z, step = np.array([-20.0, -3.0, 0.0, 1.0, 4.0]), 1e-3
    r, slope = below(-z)
    ends = [-log_ndtr(z + step), 2 * log_ndtr(z), -log_ndtr(z - step)]
    np.testing.assert_allclose((information(r) * slope) ** 2, sum(ends) / step**2, rtol=1e-4)
    assert np.isfinite(information(below(np.array([-1e8, 1e8]))[0])).all()


def test_the_estimate_is_the_maximum_of_the_likelihood():
    table = measured()
    problem = pose(table)
    result = igpe.estimate(problem)
    best = minimize(minus_two_log, [0.7, 2.0], args=(table,), method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-11})  # fmt: skip
    assert [p.value for p in result.estimates] == pytest.approx(best.x, rel=1e-5)
    assert result.objective == pytest.approx(best.fun, rel=1e-6)
    decay = np.exp(-best.x[0] * TIMES)
    z = (LIMIT - best.x[1] * decay) / SIGMA
    m = np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi)
    weight = np.where(table["A"] <= LIMIT, m * (m + z), 1.0) / SIGMA**2
    by = np.column_stack([-TIMES * best.x[1] * decay, decay])
    observed = np.linalg.inv(by.T @ (weight[:, None] * by))
    np.testing.assert_allclose(result.covariance, observed, rtol=1e-4)
    assert np.isnan(result.probability)
    count = int((table["A"] > LIMIT).sum())
    assert len(result.points) == count < result.measurements == len(TIMES)
    assert f"{len(TIMES) - count} of 16 measurements are below a limit" in str(result.details)


def test_the_derivative_is_right():
    problem = pose(measured())
    residuals = igpe.SingleShooting(igpe.integrators.Sundials(1e-11, 1e-13)).prepare(problem)
    x = np.array([0.9, 1.8])
    at, step = residuals.residuals(x), 1e-6
    for i in range(2):
        moved = step * np.eye(2)[i]
        ends = [residuals.residuals(x + side * moved).residual for side in (1, -1)]
        np.testing.assert_allclose(
            at.jacobian[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6
        )


def test_the_likelihood_and_its_gradient():
    table = measured()
    problem, at = pose(table), {"k1": 0.9, "A(t0)": 1.8}
    count = int((table["A"] > LIMIT).sum())
    expected = minus_two_log([0.9, 1.8], table) / 2 + count * np.log(SIGMA * np.sqrt(2 * np.pi))
    found = likelihood_gradient(problem, at)
    assert found.value == pytest.approx(expected, rel=1e-6)
    for name, value in at.items():
        ends = [
            negative_log_likelihood(problem, {**at, name: value + step}) for step in (1e-4, -1e-4)
        ]
        assert found.gradient[name] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4)


@pytest.mark.slow
def test_estimates_are_right_on_average_where_substitutes_are_not():
    """Beside estimates from all values, had there been no limit."""
    found = {"all": [], "censored": [], "left out": [], "half": []}
    sigma, limit, start = 0.1, 0.2, {"k1": 0.5, "A(t0)": 1.0}
    for seed in range(30):
        errors = sigma * np.random.default_rng(seed).standard_normal(len(TIMES))
        table = pd.DataFrame({"time": TIMES, "A": np.exp(-0.5 * TIMES) + errors})
        low = table["A"] <= limit
        for way, a, error in (
            ("all", table["A"], sigma),
            ("censored", table["A"], Censored(sigma, below=limit)),
            ("left out", table["A"].mask(low), sigma),
            ("half", table["A"].mask(low, limit / 2), sigma),
        ):
            problem = pose(table.assign(A=a), error)
            found[way].append(igpe.SingleShooting().estimate(problem, start).parameters["k1"])
    for way in ("censored", "left out", "half"):
        off = np.array(found[way]) - np.array(found["all"])
        is_biased = abs(off.mean()) > 3 * off.std() / np.sqrt(len(off))
        assert is_biased == (way != "censored")


def test_cells_may_bring_their_limits():
    table = measured()
    cells = table.assign(A=[f"< {LIMIT}" if a <= LIMIT else f"{a:.17g}" for a in table["A"]])
    one, other = (
        p.experiments[0].measurements for p in (pose(cells, Censored(SIGMA)), pose(table))
    )
    np.testing.assert_array_equal(one.value, other.value)
    np.testing.assert_array_equal(one.censored, other.censored)
    with pytest.raises(DataError, match=r"'A' contains '<little'.*'<0\.05'"):
        pose(cells.replace(f"< {LIMIT}", "<little"), Censored(SIGMA))
    with pytest.raises(DataError, match=r"igpe\.losses\.Censored"):
        pose(cells, SIGMA)
    with pytest.raises(DataError, match="'A' has entries that are not numbers: 'x'"):
        pose(cells.assign(A=["x", *cells["A"][1:]]), Censored(SIGMA))
    with pytest.raises(DataError, match="All values of 'A' are below"):
        pose(table, Censored(SIGMA, below=10.0))
    with pytest.raises(ProblemError, match="a finite number, or None"):
        Censored(SIGMA, below="low")


def test_an_experiment_with_all_values_below_the_limit_bounds_its_growth():
    """The same estimate as from a direct minimum of -2 log likelihood."""

    model = ode({"L": lambda m, t: m.r * m.L[t]}, r=(-3, 3))

    times, high = np.arange(1.0, 5.0), np.array([1.5, 2.3, 3.6, 5.9])
    given = {"start_time": 0.0, "sigma": {"L": Censored(0.5, below=0.7)}}
    runs = [
        igpe.Experiment(pd.DataFrame({"time": times, "L": values}), start={"L": s}, name=n, **given)
        for n, values, s in (("seen", high, 1.0), ("unseen", ["<0.7"] * 4, 0.12))
    ]
    problem = igpe.Problem(model, parameters=["r"], experiments=runs)
    result = igpe.estimate(problem)

    def objective(r):
        grown = np.exp(r * times)
        below = log_ndtr((0.7 - 0.12 * grown) / 0.5)
        return np.sum((grown - high) ** 2) / 0.25 - 2 * np.sum(below)

    best = minimize_scalar(objective, bounds=(0.1, 1.0), method="bounded", options={"xatol": 1e-9})
    assert result.parameters["r"] == pytest.approx(best.x, rel=1e-5)
    assert result.measurements == 8
    assert set(result.points["experiment"]) == {"seen"}
    assert igpe.profile(problem, result)["r"].upper < 1


def test_limits_have_the_unit_of_the_column():
    other = pose(
        measured().assign(A=1000 * measured()["A"]),
        Censored(1000 * SIGMA, below=1000 * LIMIT),
        units={"A": "mmol/L"},
    )
    m, own = (p.experiments[0].measurements for p in (other, pose(measured())))
    np.testing.assert_allclose(m.value, own.value, rtol=1e-12)
    np.testing.assert_allclose(m.sigma, own.sigma, rtol=1e-12)
    np.testing.assert_array_equal(m.censored, own.censored)


def test_no_value_below_the_limit_is_an_ordinary_problem():
    table = measured().iloc[:3]
    censored, plain = pose(table), pose(table, SIGMA)
    assert not censored.is_censored
    assert igpe.estimate(censored).parameters == igpe.estimate(plain).parameters


def test_profiles_are_of_the_likelihood():
    table = measured()
    problem = pose(table)
    result = igpe.estimate(problem)
    profiled = igpe.profile(problem, result)["k1"]
    at_end = minimize(lambda a: minus_two_log([profiled.upper, a[0]], table), [2.0],
                      method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11})  # fmt: skip
    assert at_end.fun - result.objective == pytest.approx(3.841, abs=0.02)
    error = igpe.predict(problem, result, times=[0.0], names="A").table["standard_error"][0]
    assert error == pytest.approx(np.sqrt(result.covariance[1, 1]), rel=1e-3)


def test_residuals_near_the_limit_are_not_tested():
    """Only the values above the limit are seen there, which is no lack of fit."""
    result = igpe.estimate(pose(measured()))
    near = result.points["fitted"] < LIMIT + 3 * SIGMA
    moved = result.points["measured"].where(~near, 10.0)
    away = result.points.assign(measured=moved, residual=moved - result.points["fitted"])
    assert near.any()
    assert result.outliers().empty
    from igpe.results.residual_table import above_limits  # noqa: PLC0415

    pd.testing.assert_frame_equal(above_limits(away), away[~near])


@pytest.mark.parametrize(
    "use",
    [
        igpe.certify,
        lambda p: igpe.bootstrap(p, TRUTH),
        lambda p: igpe.uncertainty.sample(p, TRUTH),
        lambda p: igpe.MultipleShooting().estimate(p, TRUTH),
        lambda p: igpe.IncrementalShooting().estimate(p, TRUTH),
        lambda p: igpe.Collocation().estimate(p, TRUTH),
        lambda p: igpe.design(p, TRUTH, times=[1.0, 2.0]),
        lambda p: igpe.petab.to_petab(p, "/nowhere"),
    ],
)
def test_what_cannot_be_right_is_refused(use):
    with pytest.raises(Unsupported, match=r"igpe\.losses\.Censored"):
        use(pose(measured()))


def test_robust_losses_are_refused():
    table = measured()
    run = igpe.Experiment(
        table, start={"A": 2.0, "B": 0.0}, start_time=0.0, sigma=Censored(SIGMA, below=LIMIT)
    )
    problem = igpe.Problem(DECAY, parameters=["k1"], experiments=run, loss=igpe.losses.Huber())
    with pytest.raises(Unsupported, match="cannot be combined with a robust loss"):
        igpe.estimate(problem)
