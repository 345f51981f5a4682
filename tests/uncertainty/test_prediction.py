"""Bands against the textbook's line, the bootstrap, and repeated experiments."""

from dataclasses import replace

import consecutive
import fitzhugh_nagumo
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from michaelis_menten import DECAY_TRUTH, decay
from ode import ode
from pyomo import dae
from scipy import stats
from small_problems import PRODUCT_NEAR, TIMES, line, line_model, lines, product

import igpe
from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.results.result_data import BY_PROFILE
from igpe.uncertainty.bootstrap import bootstrap
from igpe.uncertainty.prediction import predict

NEAR_LINE = {"k": 0.7, "A(t0)": 1.0}
WHERE = np.array([0.0, 2.0, 8.0])


@pytest.mark.parametrize("sigma", [0.2, None])
def test_a_lines_bands_are_the_textbooks(sigma):
    found = predict(line(sigma), NEAR_LINE, WHERE, confidence=0.9).table
    y = line(sigma).experiments[0].measurements.value
    fit = stats.linregress(TIMES, y)
    s = (
        np.sqrt(np.sum((y - fit.intercept - fit.slope * TIMES) ** 2) / 8)
        if sigma is None
        else sigma
    )
    q = stats.t.ppf(0.95, 8) if sigma is None else stats.norm.ppf(0.95)
    share = 1 / 10 + (WHERE - TIMES.mean()) ** 2 / np.sum((TIMES - TIMES.mean()) ** 2)
    mean = fit.intercept + fit.slope * WHERE
    assert found["value"].to_numpy() == pytest.approx(mean, rel=1e-6)
    assert found["upper"].to_numpy() == pytest.approx(mean + q * s * np.sqrt(share), rel=1e-5)
    assert found["band_lower"].to_numpy() == pytest.approx(
        mean - q * s * np.sqrt(1 + share), rel=1e-5
    )


def test_quantities_that_share_nothing_have_the_bands_they_have_alone():
    """Errors of each quantity have a size and degrees of freedom of their own."""
    both = igpe.predict(lines("A", "B"), igpe.estimate(lines("A", "B")), WHERE).table
    for name in ("A", "B"):
        alone = igpe.predict(lines(name), igpe.estimate(lines(name)), WHERE).table
        own = both[both["name"] == name]
        for column in ("standard_error", "lower", "upper", "band_lower", "band_upper"):
            assert own[column].to_numpy() == pytest.approx(alone[column].to_numpy(), rel=1e-4)


def test_bands_at_an_estimated_standard_deviation_are_those_of_the_same_number():
    def model(times):
        m = line_model(times)
        m.s = pyo.Var(bounds=(1e-3, 10))
        return m

    values = line().experiments[0].measurements.value
    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "A": values}), start={"A": igpe.Unknown(-20, 20)},
        start_time=0.0, sigma=igpe.EstimatedSigma("s"),
    )  # fmt: skip
    problem, at = (
        igpe.Problem(model, parameters=["k", "s"], experiments=run),
        NEAR_LINE | {"s": 0.3},
    )
    best = igpe.SingleShooting().estimate(problem, at).parameters
    expected = predict(line(best["s"]), best, WHERE).table
    found = predict(problem, best, WHERE).table
    numbers = [*expected.columns[3:9]]
    assert found[numbers].to_numpy() == pytest.approx(expected[numbers].to_numpy(), rel=1e-4)


def test_bands_of_refits_are_students_where_few_measurements_tell_sigma():
    """3 degrees of freedom: of measurements as of the mean."""
    table = line(None).experiments[0].table().reset_index()[["time", "A"]].iloc[:5]
    run = igpe.Experiment(table, start={"A": igpe.Unknown(-20, 20)}, start_time=0.0)
    problem = igpe.Problem(line_model, parameters=["k"], experiments=run)
    drawn = bootstrap(problem, NEAR_LINE, replications=600)
    linear, refits = (
        predict(problem, NEAR_LINE, [1.5], replications=r).table.iloc[0] for r in (None, drawn)
    )
    for low, high in (("lower", "upper"), ("band_lower", "band_upper")):
        assert refits[high] - refits[low] == pytest.approx(linear[high] - linear[low], rel=0.15)


def test_a_noise_model_gives_the_standard_deviation_of_a_new_measurement_at_its_prediction():
    """Beyond the measurements and between them; nearer to 0 than a tenth of them at that tenth."""
    problem, noise = line(igpe.Noise(relative=0.1)), igpe.Noise(absolute=0.05, relative=0.1)
    smallest = np.abs(problem.experiments[0].measurements.value).min()
    for given, least in ((problem, 0.1 * smallest), (line(noise), 0.0)):
        model = given.experiments[0].error_models["A"]
        found = predict(given, NEAR_LINE, [0.0, 0.7, 20.0, 100.0], confidence=0.9)
        drawn = predict(
            given, NEAR_LINE, [20.0], replications=bootstrap(given, NEAR_LINE, replications=100)
        )
        table = found.table.iloc[:4]
        sigma = model.deviation(np.maximum(np.abs(table["value"]), least))
        half = stats.norm.ppf(0.95) * np.hypot(table["standard_error"], sigma)
        ends = table["value"] + half
        assert table["band_upper"].to_numpy() == pytest.approx(ends.to_numpy(), rel=1e-5)
        width = np.ptp(drawn.table[["band_lower", "band_upper"]].to_numpy()) / 2
        wanted = 1.96 * np.hypot(table["standard_error"].iloc[2], sigma.iloc[2])
        assert width == pytest.approx(wanted, rel=0.25)


def test_what_is_not_measured_has_a_band_of_the_mean_only():
    found = predict(fitzhugh_nagumo.problem(), fitzhugh_nagumo.OPTIMUM, [5.0, 10.0]).table
    hidden = found[found["name"] == "R"]
    assert (hidden["upper"] > hidden["lower"]).all()
    assert hidden["band_upper"].isna().all()
    assert found.loc[found["name"] == "V", "band_upper"].notna().all()


def test_a_determined_prediction_of_undetermined_parameters_is_finite():
    """Only k1 k2 is known, and only k1 k2 matters."""
    found = predict(product(), PRODUCT_NEAR, [1.0, 3.0]).table
    assert np.isfinite(found["standard_error"]).all()
    t = np.array([1.0, 3.0])
    k = 0.51  # the product found, 1.0099 * 0.50497
    slope = TIMES * np.exp(-k * TIMES)
    error = 0.02 / np.sqrt(np.sum(slope**2)) * t * np.exp(-k * t)
    assert found["standard_error"].to_numpy() == pytest.approx(error, rel=0.02)


def test_refits_and_linearised_bands_agree():
    problem = decay()
    drawn = bootstrap(problem, DECAY_TRUTH, replications=400)
    times = [0.5, 2.0, 4.0]
    linear = predict(problem, DECAY_TRUTH, times).table
    refits = predict(problem, DECAY_TRUTH, times, replications=drawn)
    assert refits.kind == "400 refits"
    for column in ("lower", "upper", "band_lower", "band_upper"):
        half = 1.96 * (linear["standard_error"] if "band" not in column else 0.045)
        assert (abs(refits.table[column] - linear[column]) < 0.25 * half).all()


def test_what_is_not_determined_has_an_infinite_band():
    """k2 splits off a state that nobody measures."""

    def model(times):
        m = product().model(times)
        m.Q = pyo.Var(m.t)
        m.dQ = dae.DerivativeVar(m.Q)
        m.split = pyo.Constraint(m.t, rule=lambda m, t: m.dQ[t] == m.k2 * m.A[t])
        return m

    old = product().experiments[0].table().reset_index()
    run = igpe.Experiment(old, start={"A": 1.0, "Q": 0.0}, start_time=0.0, sigma=0.02)
    problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[run])
    drawn = bootstrap(problem, PRODUCT_NEAR, replications=20)
    for prediction in (
        predict(problem, PRODUCT_NEAR, [1.0, 2.0]),
        predict(problem, PRODUCT_NEAR, [1.0, 2.0], replications=drawn),
    ):
        found = prediction.table
        assert "do not determine Q: the band is infinite" in " ".join(prediction.notes)
        styles = [[line.get_linestyle() for line in ax.lines] for ax in prediction.plot().axes]
        assert [":" in own for own in styles] == [False, True]
        lost = found[found["name"] == "Q"]
        assert np.isinf(lost[["lower", "upper", "standard_error"]]).all(axis=None)
        assert np.isfinite(found.loc[found["name"] == "A", ["lower", "upper"]]).all(axis=None)


def test_bands_say_where_profile_intervals_are_not_the_linearised_ones():
    result = igpe.estimate(line(0.2), certify=False, seed=0)
    note = BY_PROFILE.format(95, "k")
    by_profile = replace(result, notes=(note,))
    assert not predict(line(0.2), by_profile, confidence=0.8).notes
    k, start = by_profile.estimates
    longer = replace(k, upper=k.value + 2 * (k.upper - k.value))
    (said,) = predict(line(0.2), replace(by_profile, estimates=(longer, start))).notes
    assert said.startswith("The bands are linearised. Linearised intervals of k differ")
    refits = bootstrap(line(0.2), result, replications=5)
    curved = replace(by_profile, estimates=(longer, start))
    assert not predict(line(0.2), curved, replications=refits).notes


def test_several_experiments_and_default_times():
    problem = line(runs=2)
    found = predict(problem, {"k": 0.7, "A(t0)@r0": 1.0, "A(t0)@r1": 2.0})
    assert set(found.table["experiment"]) == {"r0", "r1"}
    assert set(TIMES) <= set(found.table["time"])
    drawn = found.plot()
    assert [len(ax.lines) for ax in drawn] == [4]  # A: a line and its measurements of each run


def test_names_choose():
    found = predict(consecutive.problem(), consecutive.OPTIMUM, [0.5], names="x2")
    assert list(found.table["name"]) == ["x2"]
    assert "x2" in found._repr_html_()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"names": ["Z"]}, ProblemError, r"Cannot predict these quantities: \['Z'\]"),
        ({"times": [-1.0]}, ProblemError, "none of them before 0"),
        ({"times": "soon"}, ProblemError, "finite numbers"),
        ({"times": []}, ProblemError, "finite numbers"),
        ({"confidence": 0}, ProblemError, "between 0 and 1"),
        (
            {"problem": decay(loss=igpe.losses.Huber())},
            Unsupported,
            "igpe.predict supports only least squares; the problem has Huber",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(change, error, says):
    with pytest.raises(error, match=says):
        predict(**({"problem": decay(), "estimate": DECAY_TRUTH} | change))


def test_json_gives_back_all(tmp_path):
    """Infinite bands, and those of what is not measured, included."""
    found = predict(product(), PRODUCT_NEAR, [1.0, 3.0])
    path = tmp_path / "bands.json"
    written = found.to_json(path)
    for again in (
        igpe.uncertainty.Prediction.from_json(written),
        igpe.uncertainty.Prediction.from_json(path),
    ):
        pd.testing.assert_frame_equal(again.table, found.table)
        pd.testing.assert_frame_equal(again.measured, found.measured)
        assert (again.confidence, again.kind) == (found.confidence, found.kind)
        assert again.to_json() == written
    with pytest.raises(
        DataError, match="This is not a stored prediction: it has no entry 'format'"
    ):
        igpe.uncertainty.Prediction.from_json("{}")


def test_the_picture_has_bands_measurements_and_units():
    found = predict(decay(), DECAY_TRUTH)
    ax = found.plot()[0]
    labels = [text.get_text() for text in ax.figure.legends[0].texts]
    assert labels == ["measurement, 95 %", "mean, 95 %", "fitted model", "measured"]
    low, high = found.table["lower"].min(), found.table["upper"].max()
    edges = ax.collections[1].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((low, high))
    measured = ax.lines[1].get_ydata()
    assert measured.tolist() == found.measured["measured"].tolist()


def fed(feed, x, **given):
    build = ode({"x": lambda m, t: m.a * m.u[t] - m.k * m.x[t]}, inputs=("u",), k=(0, 5), a=(0, 5))

    table = pd.DataFrame({"time": np.arange(1.0, 9.0), "x": x})
    given = {"start": {"x": 0.0}, "start_time": 0.0, "inputs": {"u": feed}} | given
    return igpe.Problem(build, parameters=["k", "a"], experiments=igpe.Experiment(table, **given))


@pytest.mark.parametrize("sigma", [0.05, None])
def test_other_conditions_are_predicted_with_the_errors_of_the_estimate(sigma):
    """The model is linear in its feed: half the feed gives half of all, but sigma stays."""
    rising = 2.8 * (1 - np.exp(-0.5 * np.arange(1.0, 9.0)))
    noise = 0.05 * np.random.default_rng(3).standard_normal(8)
    problem, half = fed(2.0, rising + noise, sigma=sigma), fed(1.0, 0.0, sigma=sigma)
    result = igpe.estimate(problem, certify=False)
    own = igpe.predict(problem, result, [1.0, 5.0]).table
    other = igpe.predict(problem, result, [1.0, 5.0], under=half)
    plot = other.plot()
    legends = [t.get_text() for one in plot.figure.legends for t in one.get_texts()]
    assert "prediction" in legends
    assert not {"measured", "fitted model"} & {*legends}
    for column in ("value", "standard_error", "lower", "upper"):
        assert other.table[column].to_numpy() == pytest.approx(own[column] / 2, rel=1e-6)
    assert other.measured.empty
    quantile, sigma = (1.959964, 0.05) if sigma else (2.446912, np.sqrt(result.objective / (8 - 2)))
    band = (other.table["band_upper"] - other.table["value"]) / quantile
    assert band.to_numpy() == pytest.approx(np.hypot(own["standard_error"] / 2, sigma), rel=1e-4)


def test_one_experiment_of_several_has_its_own_unknowns():
    """Alone, its unknowns have no names of experiments."""
    x = 2.8 * (1 - np.exp(-0.5 * np.arange(1.0, 9.0)))
    runs = [fed(2.0, f * x, sigma=0.05, name=n).experiments[0] for n, f in (("a", 1), ("b", 1.2))]

    def posed(*runs):
        return igpe.Problem(fed(2.0, x).model, parameters=["k", "a"], experiments=runs, local=["a"])

    both = posed(*runs)
    result = igpe.estimate(both, certify=False)
    every = igpe.predict(both, result, [3.0]).table.set_index("experiment")
    for run in runs:
        alone = igpe.predict(both, result, [3.0], under=posed(run)).table
        assert alone["value"][0] == pytest.approx(every["value"][run.name])
        assert alone["standard_error"][0] == pytest.approx(every["standard_error"][run.name])


def test_inputs_that_end_before_the_predicted_times_are_named(tmp_path):
    ramp = igpe.linear_input([0.0, 8.0], [0.0, 1.0])
    runs = [fed(ramp, 0.05 * np.arange(1.0, 9.0) ** 2, sigma=0.1, name=n) for n in ("a", "b")]
    both = [run.experiments[0] for run in runs]
    problem = igpe.Problem(runs[0].model, parameters=["k", "a"], experiments=both)
    result = igpe.estimate(problem, certify=False)
    inside, beyond = (igpe.predict(problem, result.parameters, [end]) for end in (8.0, 12.0))
    assert inside.notes == ()
    assert len(beyond.notes) == 1
    assert "ends at 8, before the last predicted time (at 12)" in " ".join(str(beyond).split())
    beyond.to_json(tmp_path / "beyond.json")
    assert type(beyond).from_json(tmp_path / "beyond.json").notes == beyond.notes


def test_values_that_are_no_estimate_of_the_problem_are_refused():
    problem = fed(2.0, 2.8 * (1 - np.exp(-0.5 * np.arange(1.0, 9.0))), sigma=0.05)
    estimate = {"k": 0.5, "a": 0.7}
    assert len(igpe.predict(problem, {"k": 0.503, "a": 0.702}, [1.0]).table) == 1  # rounded
    for wrong in (fed(1.0, 0.0), fed(1.0, 2.0)):
        with pytest.raises(ProblemError, match=r"not an estimate of this problem.*under="):
            igpe.predict(wrong, estimate)
    doors = (
        igpe.profile,
        lambda p, r: igpe.bootstrap(p, r, replications=2),
        lambda p, r: igpe.uncertainty.region(p, r, ["k", "a"]),
    )
    for door in doors:
        with pytest.raises(ProblemError, match=r"given a = 0\.7.*not an estimate of this"):
            door(fed(1.0, 0.0, sigma=0.05), estimate)
    with pytest.raises(ProblemError, match=r"given a = 0\.7.*not an estimate of this"):
        igpe.profile(fed(1.0, 0.0, sigma=0.05), estimate, method=igpe.Collocation())
    early = igpe.Estimate({"k": 0.4, "a": 0.6}, 9.0, igpe.Status.ITERATION_LIMIT)
    with pytest.raises(ProblemError, match=r"ended before it reached one: at k = 0\.4"):
        igpe.predict(problem, early)
    with pytest.raises(ProblemError, match=r"needs an igpe\.Problem as `under`; got an Estimate"):
        igpe.predict(problem, estimate, under=igpe.Estimate(estimate, 0.0, igpe.Status.CONVERGED))
    free = fed(1.0, 0.0, start={"x": igpe.Unknown(0, 1)})
    with pytest.raises(ProblemError, match=r"unknowns \['x\(t0\)'\], of which the estimate says"):
        igpe.predict(problem, estimate, under=free)
