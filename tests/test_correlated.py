"""Errors that are correlated between quantities or in time."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import multivariate_normal

import igpe
from igpe import kinetics
from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.dynamics.likelihood import likelihood_gradient, negative_log_likelihood
from igpe.dynamics.shooting import reweighting
from igpe.dynamics.shooting.reweighting import weighted_at
from igpe.equations.compiled import fingerprint
from igpe.problem.losses import AR1, Censored, Correlated, Huber, LogNormal
from igpe.proofs.checker.experiments import replays

TIMES = np.linspace(0.25, 6, 24)
UNEVEN = TIMES + 0.2 * np.random.default_rng(1).uniform(size=len(TIMES))
CHAIN = kinetics.Batch(
    ["A -> B", "B -> C"], bounds={"k1": (0.01, 5), "k2": (0.01, 5)},
    units=kinetics.Units("mol", "L", "h"),
)  # fmt: skip
TRUTH = {"k1": 0.8, "k2": 0.3}
SIZE = {"A": 0.03, "B": 0.05}
TOGETHER, CARRIED = 0.7, 0.6
BETWEEN, IN_TIME = Correlated({("A", "B"): TOGETHER}), AR1(CARRIED, 0.25)
METHOD = igpe.SingleShooting(igpe.integrators.Sundials(1e-10, 1e-12))


def predicted(k1, k2, times=TIMES):
    first = np.exp(-k1 * times)
    return np.column_stack([first, k1 / (k2 - k1) * (first - np.exp(-k2 * times))])


def correlation(kind, times=TIMES):
    """(m, m) of the values of A and B at all times, in the order of the table."""
    apart = np.abs(times[:, None] - times)
    if kind is BETWEEN:
        return np.kron(apart == 0, [[1, TOGETHER], [TOGETHER, 1]])
    return np.kron(CARRIED ** (apart / 0.25), np.eye(2))


def covariance(kind, times=TIMES):
    sizes = np.tile([*SIZE.values()], len(times))
    return correlation(kind, times) * np.outer(sizes, sizes)


def measured(kind, seed=0, times=TIMES, holes=True):
    errors = np.linalg.cholesky(covariance(kind, times)) @ np.random.default_rng(
        seed
    ).standard_normal(2 * len(times))
    values = predicted(*TRUTH.values(), times) + errors.reshape(-1, 2)
    if holes:
        values[3:5, 1], values[10, 0] = np.nan, np.nan
    return pd.DataFrame({"time": times, "A": values[:, 0], "B": values[:, 1]})


def pose(table, kind, sigma=SIZE, runs=1, **options):
    more = {"only": ["A", "B"], "start_time": 0.0, "sigma": sigma, "correlation": kind, **options}
    experiments = [
        igpe.Experiment(table, start={"A": 1.0, "B": 0.0, "C": 0.0}, name=f"run{i}", **more)
        for i in range(runs)
    ]
    return igpe.Problem(CHAIN, parameters=["k1", "k2"], experiments=experiments)


def minus_two_log(x, table, kind, scale=1.0):
    """-2 log L with all constants."""
    times, values = table["time"].to_numpy(), table[["A", "B"]].to_numpy().ravel()
    there = np.isfinite(values)
    own = scale * covariance(kind, times)[np.ix_(there, there)]
    mean = predicted(*x, times).ravel()[there]
    return -2 * multivariate_normal(mean, own).logpdf(values[there])


KINDS = pytest.mark.parametrize(
    ("kind", "times"), [(BETWEEN, TIMES), (IN_TIME, UNEVEN)], ids=["between", "in time"]
)


@KINDS
def test_whitened_errors_are_independent(kind, times):
    m = pose(measured(kind, times=times), kind).experiments[0].measurements
    whitening, place = m.whitening().toarray(), 2 * m.row + m.column
    own = correlation(kind, times)[np.ix_(place, place)]
    np.testing.assert_allclose(whitening @ own @ whitening.T, np.eye(len(place)), atol=1e-12)
    log_det = np.linalg.slogdet(own)[1]
    assert -2 * np.log(np.diag(whitening)).sum() == pytest.approx(log_det, rel=1e-10)
    early = m.times[m.row] <= times[12]
    np.testing.assert_allclose(
        m.where(early).whitening().toarray(), whitening[np.ix_(early, early)], atol=1e-14
    )


@KINDS
def test_the_estimate_is_the_maximum_of_the_likelihood(kind, times):
    table = measured(kind, times=times)
    problem = pose(table, kind)
    result = igpe.estimate(problem, certify=False)
    best = minimize(minus_two_log, [0.8, 0.3], args=(table, kind), method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-11})  # fmt: skip
    assert [p.value for p in result.estimates] == pytest.approx(best.x, rel=1e-5)
    assert negative_log_likelihood(problem, result.parameters) == pytest.approx(
        best.fun / 2, rel=1e-6
    )
    there = np.isfinite(table[["A", "B"]].to_numpy().ravel())
    step = 1e-6
    by = np.column_stack([
        (predicted(*(best.x + d), times) - predicted(*(best.x - d), times)).ravel()[there]
        / (2 * step)
        for d in step * np.eye(2)
    ])
    own = covariance(kind, times)[np.ix_(there, there)]
    expected = np.linalg.inv(by.T @ np.linalg.solve(own, by))
    np.testing.assert_allclose(result.covariance, expected, rtol=1e-3)
    assert 0.001 < result.probability < 0.999
    assert (result.points["whitened"] ** 2).sum() == pytest.approx(result.objective, rel=1e-4)
    assert result.adequacy.verdict == "adequate"
    assert any("treated errors as independent" in note for note in result.notes)


@KINDS
@pytest.mark.parametrize("sigma", [SIZE, igpe.Noise(absolute=0.02, relative=0.1)])
def test_the_gradient_of_the_likelihood(kind, times, sigma):
    problem, at = pose(measured(kind, times=times), kind, sigma), {"k1": 0.9, "k2": 0.25}
    found = likelihood_gradient(problem, at, integrator=METHOD.integrator)
    for name, value in at.items():
        ends = [
            negative_log_likelihood(problem, {**at, name: value + d}, integrator=METHOD.integrator)
            for d in (1e-4, -1e-4)
        ]
        assert found.gradient[name] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4)


def restricted(kind, table, x, step=1e-6):
    """The largest restricted likelihood of one correlation at x (2,), by dense matrices."""
    times, values = table["time"].to_numpy(), table[["A", "B"]].to_numpy().ravel()
    there = np.isfinite(values)
    left = (values - predicted(*x, times).ravel())[there]
    by = np.column_stack([
        (predicted(*(x + d), times) - predicted(*(x - d), times)).ravel()[there] / (2 * step)
        for d in step * np.eye(2)
    ])
    sizes = np.tile([*SIZE.values()], len(times))
    apart = np.abs(times[:, None] - times)

    def criterion(value):
        if kind is BETWEEN:
            full = np.kron(apart == 0, [[1, value], [value, 1]])
        else:
            full = np.kron(value ** (apart / 0.25), np.eye(2))
        own = (full * np.outer(sizes, sizes))[np.ix_(there, there)]
        inverse = np.linalg.inv(own)
        information = by.T @ inverse @ by
        inner = inverse - inverse @ by @ np.linalg.solve(information, by.T @ inverse)
        logs = np.linalg.slogdet(own)[1] + np.linalg.slogdet(information)[1]
        return left @ inner @ left + logs

    return minimize_scalar(criterion, bounds=(0, 0.98), method="bounded").x


@pytest.mark.parametrize(
    ("kind", "times", "free"),
    [(BETWEEN, TIMES, Correlated()), (IN_TIME, UNEVEN, AR1(step=0.25))],
    ids=["between", "in time"],
)
def test_the_estimated_correlation_is_the_restricted_maximum(kind, times, free):
    table = measured(kind, times=times)
    problem = pose(table, free)
    result = igpe.estimate(problem, certify=False)
    (name, value), x = *result.correlations.items(), np.array([*result.parameters.values()])
    assert value == pytest.approx(restricted(kind, table, x), abs=2e-3)
    assert value == pytest.approx(TOGETHER if kind is BETWEEN else CARRIED, abs=0.2)
    known = Correlated({("A", "B"): value}) if kind is BETWEEN else AR1(value, 0.25)
    same = METHOD.estimate(pose(table, known), TRUTH)
    assert [*same.parameters.values()] == pytest.approx(x, rel=1e-3)
    assert f"{name} {value:.2f}" in " ".join(result.notes)
    again = igpe.Result.from_dict(result.to_dict())
    assert again.correlations == result.correlations


@pytest.mark.parametrize("sigma", [SIZE["B"], None])
def test_models_with_estimated_correlations_are_compared_at_the_maximum_of_the_likelihood(sigma):
    """Restricted likelihoods are not comparable: the larger of two models could be less likely."""
    table = measured(IN_TIME, seed=9, holes=False)
    problem = pose(table, AR1(step=0.25), sigma, only=["B"])
    fits = {"large": problem, "small": problem.fixing({"k1": 0.8})}
    apart, y = np.abs(TIMES[:, None] - TIMES) / 0.25, table["B"].to_numpy()

    def minus_two_log(x):
        carried, k2, k1, log_scale = x
        own = (sigma or np.exp(log_scale)) ** 2 * carried**apart
        return -2 * multivariate_normal(predicted(k1, k2)[:, 1], own).logpdf(y)

    for name, one in fits.items():
        fit = igpe.estimate(one, certify=False)
        bounds = [(0.01, 0.98), (0.01, 5), (0.01, 5) if name == "large" else (0.8, 0.8), (-9, 1)]
        largest = minimize(minus_two_log, [0.5, 0.3, 0.8, -3.0], bounds=bounds).fun / -2
        found = igpe.uncertainty.compare_models({"a": fit, "b": fit}).table
        assert fit.likelihood_gain > 0.005
        assert found.loc["a", "log_likelihood"] == pytest.approx(largest, abs=0.01)


def test_the_full_covariance_is_estimated():
    """Standard deviations and correlation of many measurements, from residuals alone."""
    times = np.linspace(0.02, 6, 300)
    table = measured(BETWEEN, times=times, holes=False)
    result = igpe.estimate(pose(table, Correlated(), sigma=None), certify=False)
    left = table[["A", "B"]].to_numpy() - predicted(*result.parameters.values(), times)
    expected = np.corrcoef(left.T)[0, 1]
    assert [*result.correlations.values()] == pytest.approx([expected], abs=0.01)
    sizes = np.sqrt(result.variance) * np.array([*result.relative_sigma.values()])
    assert sizes == pytest.approx([*SIZE.values()], rel=0.1)


def test_what_is_known_of_correlations_after_an_interrupt_is_said(monkeypatch):
    """Standard deviations that are numbers are what they were."""
    monkeypatch.setattr(reweighting, "stopped", lambda: True)
    found = METHOD.estimate(pose(measured(IN_TIME), AR1()), TRUTH)
    assert found.status is igpe.Status.INTERRUPTED
    assert found.notes[-1] == ("The fit was interrupted: correlations of errors are 0.")


def test_experiments_share_an_estimated_correlation():
    tables = [measured(IN_TIME, seed).assign(experiment=f"run{seed}") for seed in range(2)]
    runs = igpe.read_experiments(
        pd.concat(tables), start={"A": 1.0, "B": 0.0, "C": 0.0}, start_time=0.0, sigma=SIZE,
        correlation=AR1(),
    )  # fmt: skip
    problem = igpe.Problem(CHAIN, parameters=["k1", "k2"], experiments=runs)
    held = weighted_at(problem, METHOD.estimate(problem, TRUTH).parameters)
    one, other = (e.measurements.correlation.rho for e in held.experiments)
    assert one == other == pytest.approx(CARRIED, abs=0.15)
    assert pickle.loads(pickle.dumps(held)).correlations == held.correlations
    assert list(held.of_experiments(["run1"]).correlations.values()) == [one]
    single = [weighted_at(problem.of_experiments([e.name]), TRUTH) for e in problem.experiments]
    alone = [p.experiments[0].measurements.correlation.rho for p in single]
    assert min(alone) < one < max(alone)


@pytest.mark.slow
def test_errors_treated_as_independent_fail_the_tests_that_their_correlation_passes():
    table = measured(AR1, times=np.linspace(0.05, 6, 120), holes=False)  # as AR(1)
    apart, carried = (
        igpe.estimate(pose(table, kind), certify=False) for kind in (None, AR1(step=0.25))
    )
    assert apart.adequacy.lacks
    assert not carried.adequacy.lacks
    comparison = igpe.uncertainty.compare_models({"independent": apart, "AR(1)": carried})
    assert comparison.table.index[0] == "AR(1)"
    row = comparison.table.loc["AR(1)"]
    assert row["unknowns"] == 3
    held = weighted_at(pose(table, AR1(step=0.25)), carried.parameters)
    expected = -negative_log_likelihood(held, carried.parameters)
    assert row["log_likelihood"] == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
@KINDS
def test_everything_behind_the_residuals_follows(kind, times):
    table = measured(kind, times=times)
    problem = pose(table, kind)
    result = igpe.estimate(problem, certify=False)
    errors = np.sqrt(np.diag(result.covariance))
    for method in (igpe.IncrementalShooting(), igpe.search.MultiStart(starts=2)):
        found = method.estimate(problem, TRUTH)
        assert [*found.parameters.values()] == pytest.approx(
            [p.value for p in result.estimates], abs=1e-3 * errors.min()
        )
    replicates = igpe.bootstrap(problem, result, replications=200, progress=False)
    drawn = replicates.parameters.std().to_numpy()
    np.testing.assert_allclose(drawn, errors, rtol=0.15)
    interval = igpe.profile(problem, result, names=["k1"], progress=False).to_frame().loc["k1"]
    half = (interval["upper"] - interval["lower"]) / 2
    assert half == pytest.approx(1.96 * errors[0], rel=0.1)
    band = igpe.predict(problem, result).table
    assert (band["standard_error"] < 0.05).all()
    assert fingerprint(problem) != fingerprint(pose(table, None))


def test_time_is_converted_and_logarithms_have_other_names():
    minutes = measured(IN_TIME).assign(time=60 * TIMES)
    one = pose(minutes, AR1(CARRIED, 15.0), units={"time": "min"})
    other = pose(measured(IN_TIME), IN_TIME)
    one, other = (p.experiments[0].measurements for p in (one, other))
    np.testing.assert_allclose(one.whitening().toarray(), other.whitening().toarray(), atol=1e-12)
    table = measured(BETWEEN)
    logs = pose(table[table["A"] > 0], BETWEEN, {"A": LogNormal(0.1), "B": 0.05}, only=None)
    m = logs.experiments[0].measurements
    assert m.names == ("ln(A)", "B")
    assert (m.whitening().toarray() != np.eye(len(m.row))).any()


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: AR1(1.0), ProblemError, "rho is 1; AR1 needs a number that is at least 0"),
        (lambda: Correlated({("A",): 0.5}), ProblemError, "between.*for pairs of names"),
        (lambda: Correlated({("A", "B"): 0.9, ("B", "C"): 0.9, ("A", "C"): -0.9}), ProblemError,
         "are impossible: their matrix"),
        (lambda: pose(measured(BETWEEN), 0.5), DataError, r"`correlation` is 0.5; expected igpe\."),
        (lambda: pose(measured(BETWEEN), Correlated({("A", "D"): 0.5})), DataError,
         r"contains \['D'\], but the measured columns"),
        (lambda: pose(measured(IN_TIME, times=UNEVEN), AR1()), DataError,
         r"needs a step, because the time between measurements .* igpe\.losses\.AR1\(step="),
        (lambda: pose(measured(BETWEEN), BETWEEN, {"A": Censored(0.03, below=0.1), "B": 0.05}),
         DataError, "Correlated errors cannot be combined with spectra"),
        (lambda: pose(measured(BETWEEN), BETWEEN, {"A": igpe.EstimatedSigma("k1"), "B": 0.05}),
         DataError, "Correlated errors cannot be combined with spectra"),
        (lambda: pose(pd.concat([measured(BETWEEN)] * 2).sort_values("time"), BETWEEN,
                      replicates=True), DataError, "several values of a quantity at one time"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_what_takes_errors_one_by_one_refuses():
    problem = pose(measured(BETWEEN), BETWEEN)
    for method in (igpe.MultipleShooting(), igpe.Collocation()):
        with pytest.raises(Unsupported, match="does not support correlated errors"):
            method.estimate(problem, TRUTH)
    with pytest.raises(Unsupported, match=r"igpe\.certify does not support correlated errors"):
        igpe.certify(problem, TRUTH, progress=False)
    with pytest.raises(Unsupported, match="checker does not support correlated errors"):
        replays(problem)
    with pytest.raises(Unsupported, match="PEtab does not support correlated errors"):
        igpe.petab.to_petab(problem, "nowhere")
    between = {"A": igpe.planning.Between(0.5, 2)}
    with pytest.raises(Unsupported, match=r"igpe\.design does not support correlated errors"):
        igpe.design(problem, TRUTH, free=between, times=[1.0, 2.0])
    robust = igpe.Problem(**{**problem.given, "loss": Huber()})
    with pytest.raises(Unsupported, match="cannot be combined"):
        igpe.estimate(robust)
    with pytest.raises(ProblemError, match="needs known correlations of errors"):
        negative_log_likelihood(pose(measured(BETWEEN), Correlated()), TRUTH)
