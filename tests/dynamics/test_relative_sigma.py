"""Several quantities without standard deviations: each counts by the size of its residuals."""

import json

import numpy as np
import pandas as pd
import pytest
from ode import ode
from scipy.optimize import least_squares, minimize
from scipy.stats import t as student

import igpe
from igpe.dynamics.shooting.reweighting import first_weighted, least_sizes, relative_sigma, sizes_of

TIMES = np.linspace(0.2, 5.0, 25)
TRUTH = {"k1": 0.7, "k2": 1.3}
START = {"a": 100.0, "b": 0.0}


series = ode(
    {"a": lambda m, t: -m.k1 * m.a[t], "b": lambda m, t: 1e-3 * m.k1 * m.a[t] - m.k2 * m.b[t]},
    k1=(0.01, 10),
    k2=(0.01, 10),
)
"""A trace b of what becomes of a: four orders of magnitude apart."""


def exact(times, k1, k2):
    """a and b in closed form."""
    a = 100 * np.exp(-k1 * times)
    return a, 0.1 * k1 / (k2 - k1) * (np.exp(-k1 * times) - np.exp(-k2 * times))


def table(seed, noise=(1.0, 1e-3), times=TIMES):
    random = np.random.default_rng(seed)
    pairs = zip(exact(times, **TRUTH), noise, strict=True)
    a, b = (y + s * random.standard_normal(len(times)) for y, s in pairs)
    return pd.DataFrame({"time": times, "a": a, "b": b})


def problem(*tables, **given):
    runs = [
        igpe.Experiment(data, start=START, start_time=0.0, name=f"run {k}", **given)
        for k, data in enumerate(tables)
    ]
    return igpe.Problem(series, parameters=["k1", "k2"], experiments=runs)


def most_likely(*tables):
    """k1, k2 of the highest likelihood with a variance for each quantity, and -2 log L there."""

    def minus_two_log(x):
        total = 0.0
        for k, name in enumerate("ab"):
            left = [exact(t["time"].to_numpy(), *x)[k] - t[name].to_numpy() for t in tables]
            squares = np.concatenate(left) ** 2
            total += len(squares) * (np.log(2 * np.pi * squares.mean()) + 1)
        return total

    options = {"xatol": 1e-9, "fatol": 1e-10, "maxiter": 2000}
    end = minimize(minus_two_log, [0.7, 1.3], method="Nelder-Mead", options=options)
    return dict(zip(("k1", "k2"), end.x, strict=True)), end.fun


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_the_estimate_is_the_most_likely_one(count):
    tables = [table(seed) for seed in range(count)]
    result = igpe.estimate(problem(*tables))
    best, minus_two_log = most_likely(*tables)
    errors = {p.name: p.standard_error for p in result.estimates}
    for name, value in best.items():
        assert abs(result.parameters[name] - value) < 0.01 * errors[name]
    n = result.measurements
    assert n * (np.log(2 * np.pi * result.objective / n) + 1) == pytest.approx(
        minus_two_log, abs=1e-4
    )


@pytest.mark.slow
def test_relative_deviations_are_those_of_the_noise():
    result = igpe.estimate(problem(*(table(seed) for seed in range(4))))
    sizes = result.relative_sigma
    assert sizes["a"] / sizes["b"] == pytest.approx(1e3, rel=0.2)
    spread = np.sqrt(result.variance)
    assert spread * sizes["a"] == pytest.approx(1.0, rel=0.2)
    assert any(
        "igpe weights each quantity by the size of its own residuals" in n for n in result.notes
    )


@pytest.mark.parametrize(
    "method",
    [
        igpe.SingleShooting(),
        igpe.MultipleShooting(),
        igpe.IncrementalShooting(),
        igpe.Collocation(),
    ],
)
def test_every_method_weighs_alike(method):
    posed = problem(table(5))
    best, _ = most_likely(table(5))
    found = method.estimate(posed, {"k1": 0.5, "k2": 1.0})
    assert found.parameters == pytest.approx(best, rel=2e-3)


def test_equal_is_the_plain_sum_of_squares():
    data = table(6)
    result = igpe.estimate(problem(data, sigma="equal"))
    left = np.concatenate([
        y - data[name] for y, name in zip(exact(TIMES, **result.parameters), "ab", strict=True)
    ])
    assert result.objective == pytest.approx(float(left @ left), rel=1e-6)
    assert result.relative_sigma == {}
    assert np.isnan(result.points["sigma"]).all()


def test_exact_data_have_the_least_sizes():
    result = igpe.estimate(problem(table(0, noise=(0.0, 0.0))))
    assert result.parameters == pytest.approx(TRUTH, rel=1e-6)
    sizes, largest = result.relative_sigma, table(0, noise=(0.0, 0.0))["b"].max()
    assert sizes["a"] / sizes["b"] == pytest.approx(START["a"] / largest, rel=1e-6)


@pytest.mark.slow
def test_a_quantity_that_the_fit_can_follow_does_not_take_all_weight():
    few = table(7)
    few.loc[few.index[2:], "b"] = np.nan  # k2 alone is free to meet these two
    result = igpe.estimate(problem(few))
    sizes, largest = result.relative_sigma, few["b"].max()
    assert sizes["b"] / sizes["a"] == pytest.approx(largest / START["a"], rel=1e-6)


def test_rounded_data_have_errors_of_rounding():
    data = table(8, noise=(0.0, 0.0)).round({"a": 0, "b": 3})
    assert least_sizes(problem(data).experiments) == pytest.approx({
        "a": 1 / np.sqrt(12),
        "b": 1e-3 / np.sqrt(12),
    })


def test_outliers_do_not_decide_the_weights_of_robust_losses():
    experiment = problem(table(9)).experiments[0]
    run = experiment.measurements
    left = np.where(run.column == 0, 1.0, 1e-3) * np.random.default_rng(1).standard_normal(50)
    left[:6] = 1e3
    least = least_sizes([experiment])
    robust, plain = (sizes_of([experiment], [left], least, robust=r) for r in (True, False))
    assert robust["a"] == pytest.approx(1.0, rel=0.7)
    assert plain["a"] > 100


def test_weights_are_scaled_to_a_product_of_one():
    runs = [e.measurements for e in problem(table(1), table(2)).experiments]
    weights = np.concatenate(relative_sigma(runs, {"a": 3.0, "b": 0.2}))
    assert np.log(weights).sum() == pytest.approx(0.0, abs=1e-12)


def test_the_first_weights_are_those_of_smoothing():
    weighted = first_weighted(problem(table(3)))
    sizes = weighted.relative_sigma
    assert sizes["a"] / sizes["b"] == pytest.approx(1e3, rel=0.5)
    assert not weighted.sigma_known
    assert not weighted.weights_follow_fit


@pytest.mark.slow
def test_models_are_compared_by_the_likelihood_of_all_variances():
    posed = problem(table(4))
    result = igpe.estimate(posed)
    held = igpe.estimate(posed.fixing({"k2": 1.3}))
    table_of = igpe.uncertainty.compare_models({"free": result, "held": held}).table
    _, minus_two_log = most_likely(table(4))
    assert table_of.loc["free", "unknowns"] == 4
    assert -2 * table_of.loc["free", "log_likelihood"] == pytest.approx(minus_two_log, abs=1e-3)
    assert table_of.loc["held", "log_likelihood"] < table_of.loc["free", "log_likelihood"]


def test_uncertainty_has_the_weights_of_the_result():
    posed = problem(table(10))
    result = igpe.estimate(posed)
    errors = {p.name: p.standard_error for p in result.estimates}
    profile = igpe.profile(posed, result, ["k2"])["k2"]
    assert profile.upper - profile.lower == pytest.approx(4.13 * errors["k2"], rel=0.1)
    bands = igpe.predict(posed, result).table.groupby("name")
    half = {n: (b["band_upper"] - b["upper"]).median() for n, b in bands if n in "ab"}
    assert half["a"] / half["b"] == pytest.approx(
        result.relative_sigma["a"] / result.relative_sigma["b"], rel=0.3
    )
    drawn = igpe.bootstrap(posed, result, replications=60)
    assert drawn.to_frame().loc["k2", "standard_error"] == pytest.approx(errors["k2"], rel=0.5)


def test_a_result_keeps_its_weights_in_a_file():
    result = igpe.estimate(problem(table(11)))
    again = igpe.Result.from_json(result.to_json())
    assert again.relative_sigma == pytest.approx(result.relative_sigma)


def test_a_certificate_names_the_weights_as_its_premise():
    pytest.importorskip("numba")
    posed = problem(table(12))
    result = igpe.estimate(posed)
    proof = igpe.certify(posed, result, gap=0.05)
    assert proof.relative_sigma == pytest.approx(result.relative_sigma)
    assert "The residuals of a, b have standard deviations in the estimated ratio" in proof.sentence
    assert igpe.verify(proof, posed).verdict.name == "VERIFIED"
    with pytest.raises(igpe.errors.ProblemError, match="relative standard deviations"):
        igpe.verify(proof, problem(table(12), sigma="equal"))
    forged = json.loads(proof.to_json())
    forged["relative_sigma"] = {n: 10 * v for n, v in forged["relative_sigma"].items()}
    forged["objective"], forged["lower_bound"] = proof.objective / 99, proof.lower_bound / 101
    with pytest.raises(igpe.errors.ProblemError, match=r"is 0, but here it is 2\.3"):
        igpe.verify(json.dumps(forged), posed)


def test_other_words_for_sigma_are_refused():
    with pytest.raises(igpe.errors.DataError, match="'equal' if the errors are unknown"):
        problem(table(1), sigma="alike")


def spoilt(scale=1.0):
    """Measurements of which a tenth are gross errors, in other units."""
    data = table(13)
    data.loc[data.index[[3, 12]], "a"] += [80.0, 60.0]
    data.loc[data.index[[6, 17, 20]], "b"] += [0.05, -0.04, 0.06]
    return data.assign(a=scale * data["a"], b=scale * data["b"])


@pytest.mark.parametrize("only", [["a", "b"], ["b"]])
def test_hubers_limit_is_in_deviations_of_the_residuals(only):
    data = spoilt()
    loss = igpe.losses.Huber()
    run = igpe.Experiment(data[["time", *only]], start=START, start_time=0.0)
    result = igpe.estimate(
        igpe.Problem(series, parameters=["k1", "k2"], experiments=run, loss=loss)
    )
    known = exact(TIMES, **result.parameters)
    left = {n: known["ab".index(n)] - data[n].to_numpy() for n in only}
    sizes = {n: np.median(np.abs(r)) / 0.6745 for n, r in left.items()}
    assert result.relative_sigma == pytest.approx(sizes, rel=5e-3)

    def residuals(x):
        here = exact(TIMES, *x)
        return np.concatenate([(here["ab".index(n)] - data[n]) / sizes[n] for n in only])

    best = least_squares(residuals, [0.7, 1.3], loss="huber", f_scale=loss.delta, xtol=1e-14)
    assert list(result.parameters.values()) == pytest.approx(list(best.x), rel=2e-3)
    assert list(result.parameters.values()) == pytest.approx(list(TRUTH.values()), rel=0.05)


def test_hubers_errors_are_those_of_an_m_estimate():
    """Huber & Ronchetti (2009), section 7.6; limits are Student's, as the variance is estimated."""
    data, sigma, loss = spoilt(), {"a": 1.0, "b": 1e-3}, igpe.losses.Huber()
    run = igpe.Experiment(data, start=START, start_time=0.0, sigma=sigma)
    result = igpe.estimate(
        igpe.Problem(series, parameters=["k1", "k2"], experiments=run, loss=loss)
    )

    def residuals(x):
        pairs = zip("ab", exact(TIMES, *x), strict=True)
        return np.concatenate([(here - data[n]) / sigma[n] for n, here in pairs])

    x = np.array(list(result.parameters.values()))
    steps = 1e-6 * np.diag(x)
    by = np.array([residuals(x + s) - residuals(x - s) for s in steps]).T / (2e-6 * x)
    count, unknowns = by.shape
    r = residuals(x)
    inside, psi = np.mean(np.abs(r) <= loss.delta), np.clip(r, -loss.delta, loss.delta)
    few = 1 + unknowns / count * (1 - inside) / inside
    variance = few**2 * psi @ psi / (count - unknowns) / inside**2
    errors = np.sqrt(variance * np.diag(np.linalg.inv(by.T @ by)))
    for p, error in zip(result.estimates, errors, strict=True):
        assert p.standard_error == pytest.approx(error, rel=1e-4)
        quantile = student.ppf(0.975, count - unknowns)
        assert p.upper - p.value == pytest.approx(quantile * error, rel=1e-4)


def test_hubers_estimate_does_not_depend_on_the_unit():
    start = {"a": 1e5, "b": 0.0}
    runs = (
        igpe.Experiment(spoilt(), start=START, start_time=0.0),
        igpe.Experiment(spoilt(1e3), start=start, start_time=0.0),
    )
    found = [
        igpe.estimate(
            igpe.Problem(series, parameters=["k1", "k2"], experiments=run, loss=igpe.losses.Huber())
        )
        for run in runs
    ]
    assert found[0].parameters == pytest.approx(dict(found[1].parameters), rel=1e-4)
    for result in found:
        named = set(zip(result.outliers()["name"], result.outliers().index, strict=True))
        assert len(named) == 5


def test_weights_need_no_smooth_curve():
    """Twelve times tell smoothing nothing, but a fit with two unknowns leaves ten residuals."""
    tables = [table(14, times=TIMES[::2]).iloc[:12]]
    result = igpe.estimate(problem(*tables))
    best, _ = most_likely(*tables)
    errors = {p.name: p.standard_error for p in result.estimates}
    for name, value in best.items():
        assert abs(result.parameters[name] - value) < 0.01 * errors[name]
    assert not any("igpe assumed" in n for n in (*result.notes, *result.actions))


def test_an_assumed_weight_is_called_so():
    few = table(7)
    few.loc[few.index[2:], "b"] = np.nan
    result = igpe.estimate(problem(few))
    (said,) = [a for a in result.actions if "igpe assumed" in a]
    assert said.startswith("There are too few measurements to estimate these standard deviations")
    assert "so igpe assumed them: b " in said
    shown = " ".join(str(result).split())
    assert said in shown
    assert "determined, if the assumed standard deviations are right" in shown


def test_weights_that_are_all_assumed_do_not_follow_residuals():
    few = table(15, times=TIMES[::5])
    result = igpe.estimate(problem(few))
    (said,) = [n for n in result.notes if "igpe assumed" in n]
    assert "so igpe assumed them: a " in " ".join(str(result).split())
    assert "too few measurements to estimate them, so igpe assumed these values: a " in said
    assert "own residuals" not in said


CONTRADICTING = np.linspace(0.5, 6, 10)
decay = ode({n: lambda m, t, n=n: -m.k * getattr(m, n)[t] for n in "ab"}, k=(0.05, 5))


def contradicting(**noise):
    """Two decays of one rate constant, whose measurements have the rates 1 and 2."""
    random = np.random.default_rng(3)
    rates = {"a": 1.0, "b": 2.0}
    columns = {
        n: np.exp(-rates[n] * CONTRADICTING) + s * random.standard_normal(len(CONTRADICTING))
        for n, s in noise.items()
    }
    data = pd.DataFrame({"time": CONTRADICTING, **columns})
    run = igpe.Experiment(data, start=dict.fromkeys("ab", 1.0), start_time=0.0)
    return igpe.Problem(decay, parameters=["k"], experiments=run)


@pytest.mark.parametrize("noise", [{"a": 1e-3, "b": 1e-3}, {"a": 1e-3, "b": 2e-3}])
def test_of_several_weights_that_stand_still_the_likeliest_are_taken(noise):
    """The likelihood has maxima at 1 and 2, where b fits best, and a minimum at 1.37."""
    result = igpe.estimate(contradicting(**noise))
    assert result.parameters["k"] == pytest.approx(2.0, abs=0.01)
    assert not any(note.startswith("Smoothing") for note in result.notes)  # from no curve


def test_weights_leave_the_minimum_of_the_likelihood():
    fit = igpe.SingleShooting().estimate(contradicting(a=1e-3, b=1e-3), {"k": 1.37})
    assert min(abs(fit.parameters["k"] - k) for k in (1.0, 2.0)) < 0.01


@pytest.mark.parametrize(("name", "premise"), [("b", True), (None, False)])
def test_the_headline_of_a_proof_names_estimated_weights(name, premise):
    data = table(1) if name else table(1).drop(columns="b")
    result = igpe.estimate(problem(data), certify=True)
    assert ("best within the bounds for these weights" in result.verdict["optimum"]) == premise


def few_of_b(noise):
    """Four values of b are too few to estimate sigma: the share that a has is far too small."""
    data = table(1, noise=noise)
    data.loc[~data.index.isin([3, 9, 15, 21]), "b"] = np.nan
    run = igpe.Experiment(data, start=START, start_time=0.0)
    return igpe.Problem(series, parameters=["k1", "k2"], experiments=run)


def test_what_has_an_assumed_sigma_is_no_outlier():
    result = igpe.estimate(few_of_b((1.0, 5e-2)), certify=False)
    assert "too few measurements to estimate" in str(result)
    assert "outlier" not in str(result)
    assert result.outliers().empty


def test_an_assumed_sigma_may_be_the_cause_of_a_lack_of_fit():
    text = " ".join(str(igpe.estimate(few_of_b((0.01, 0.01)), certify=False)).split())
    assert "misses a trend" in text
    assert "Give the standard deviation of b, which igpe assumed" in text
