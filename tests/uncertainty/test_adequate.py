"""One verdict on a fit: what it says, of what, and when it says nothing."""

import json
import re
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from ode import ode
from scipy import stats
from small_problems import TIMES, line

import igpe
from igpe.estimation import tables
from igpe.results.answer import actions
from igpe.results.residual_table import Adequacy, residual_table
from igpe.uncertainty.adequacy import LinearisedFit, adequacy

RATES = {"T300": 0.35, "T320": 0.5, "T340": 0.7}
HUBER = igpe.losses.Huber()
decay_model = ode({"A": lambda m, t: -m.k * m.A[t]}, k=(-10, 10))


def decays(rates, *, sigma=None, noise=0.02, seed=3, off=MappingProxyType({}), **settings):
    """First-order decays in experiments of which each has its own rate, fitted with one.

    off  experiment -> row -> what is added to the measurement there
    """
    random = np.random.default_rng(seed)
    experiments = []
    for name, rate in rates.items():
        values = 5 * np.exp(-rate * TIMES) + noise * random.standard_normal(len(TIMES))
        for row, by in off.get(name, {}).items():
            values[row] += by
        table = pd.DataFrame({"time": TIMES, "A": values})
        experiments.append(
            igpe.Experiment(table, start={"A": 5.0}, start_time=0.0, sigma=sigma, name=name)
        )
    return igpe.Problem(decay_model, parameters=["k"], experiments=experiments, **settings)


@pytest.fixture(scope="module")
def pooled():
    """Three temperatures, one rate constant; how exact the data are is not given."""
    return igpe.estimate(decays(RATES))


def test_pooled_temperatures_are_shouted_and_named(pooled):
    verdict = pooled.adequacy
    assert verdict.verdict == "lack of fit"
    assert verdict.p < 0.01
    assert pooled.verdict["fit"].startswith("lack of fit: residuals are not just noise (p < 0.01)")
    assert "The experiments disagree: the measurements of A" in " ".join(str(pooled).split())
    said = " ".join(str(pooled.details).split())
    assert (
        "The experiments disagree: the measurements of A lie above the model in experiment T300"
        in said
    )
    assert re.search("below it in experiment (T320, )?T340; a condition that differs", said)
    assert "between them (temperature?)" in said
    assert "Residuals of A in experiment T300 never change sign in 10 measurements" in said
    largest = pooled.points["residual"].abs().max() / pooled.points["measured"].abs().max()
    assert f"The largest residual is {100 * largest:.2g} % of the largest measured A." in said
    for html in (pooled.report(), pooled._repr_html_()):
        assert "The experiments disagree" in html


def test_the_right_model_of_the_same_data_is_adequate():
    found = igpe.estimate(decays(dict.fromkeys(RATES, 0.5)))
    assert found.adequacy.verdict == "adequate"
    assert found.adequacy.p > 0.05
    assert "Fit         good: residuals consistent with noise (p = " in str(found)
    assert not found.adequacy.reasons


def test_the_verdict_survives_json_and_older_results_have_none(pooled):
    again = igpe.Result.from_json(pooled.to_json())
    assert again.adequacy == pooled.adequacy
    assert str(again) == str(pooled)
    stored = json.loads(pooled.to_json())
    del stored["adequacy"]
    older = igpe.Result.from_dict(stored)
    assert older.adequacy is None
    assert "Fit         not judged" in str(older)
    unjudged = replace(pooled, adequacy=Adequacy("cannot be judged", reasons=("Why.",)))
    again = igpe.Result.from_json(unjudged.to_json()).adequacy
    assert again.sentence == "The fit cannot be judged. Why."


def test_standard_deviations_that_are_too_small_are_named():
    verdict = igpe.estimate(line(0.04, seed=7)).adequacy
    assert verdict.verdict == "lack of fit"
    (reason,) = [r for r in verdict.reasons if "sum of squares" in r]
    assert reason.endswith("the model is wrong, or the standard deviations are too small.")
    assert igpe.estimate(line(2.0, seed=7)).adequacy.verdict == "adequate"


def test_few_degrees_of_freedom_are_judged_by_the_given_standard_deviations():
    problem = line(0.3, seed=7)
    table = problem.experiments[0].table().reset_index().iloc[[1, 3, 5, 7]]
    for bend, verdict in ((0, "adequate"), (2, "lack of fit")):
        bent = table.assign(A=table["A"] + bend * np.array([1, -1, -1, 1]))
        judged = igpe.estimate(problem.with_data(bent), certify=False)
        assert judged.degrees == 2
        assert judged.adequacy.verdict == verdict
        assert judged.adequacy.p == pytest.approx(judged.probability)
    assert "is too large for 2 degrees of freedom" in judged.adequacy.sentence


def test_residuals_that_are_rounding_are_no_lack_of_fit():
    verdict = igpe.estimate(decays(dict.fromkeys(RATES, 0.5), noise=0.0)).adequacy
    assert verdict == Adequacy("adequate", verdict.p, ("The residuals are rounding errors.",))


def test_a_fit_through_as_many_measurements_as_unknowns_says_nothing_of_the_model():
    problem = line(None, seed=2)
    table = problem.experiments[0].table().reset_index().iloc[[2, 7]]
    result = igpe.estimate(problem.with_data(table))
    assert result.degrees == 0
    assert result.adequacy.verdict == "cannot be judged"
    assert "there are at least as many unknowns as measurements" in result.verdict["fit"]


def test_an_outlier_that_all_residuals_together_hide_is_in_the_verdict():
    problem = line(None, seed=2)
    table = problem.experiments[0].table().reset_index()
    table.loc[5, "A"] += 40 * (table["A"].diff().std() / 2)
    result = igpe.estimate(problem.with_data(table))
    assert not result.adequacy.lacks
    assert "residuals consistent with noise, but for 1 outlier (p" in result.verdict["fit"]
    assert result.verdict["fit"].startswith("fair")


def test_an_outlier_comes_before_the_lack_of_fit_that_it_makes(pooled):
    """A slipped decimal point is to be corrected, and not the model."""
    off = "A: The measurement at time 7 is off by 9 standard deviations: an outlier (p = 1e-9)."
    said = actions(replace(pooled, actions=(off,)))
    assert said[0] == off
    assert "Check the outlier before you change the model: correct it, leave it out" in said[1]
    assert said.count(off) == 1
    assert not any("improve the model" in line for line in said)
    assert any("improve the model" in line for line in actions(pooled))
    limited = replace(pooled, points=pooled.points.assign(limit=0.0), actions=(off,))
    assert "correct it or leave it out." in actions(limited)[1]  # no robust loss beside limits


@pytest.mark.parametrize(("start", "data", "says"), [(1.0, 50.0, "50"), (1000.0, 1.0, "1")])
def test_a_start_value_in_another_unit_is_named_and_no_single_outlier(start, data, says):
    time = np.arange(9.0)
    table = pd.DataFrame({"time": time, "A": data * np.exp(-0.3 * time)})
    run = igpe.Experiment(table, start={"A": start}, sigma=0.01 * data)
    result = igpe.estimate(igpe.Problem(decay_model, parameters={"k": (0, 1)}, experiments=run))
    assert actions(result)[0] == (
        f"The start value of A is {start:g}, but its first measurement is {says} (at t = 0). "
        "Check both values and their units."
    )
    assert "outlier" not in str(result)
    assert "improve the model" not in str(result)


@pytest.mark.parametrize("steady", [False, True])
def test_what_stays_at_zero_by_the_equations_and_is_measured_is_named(steady):
    time = np.arange(9.0)
    table = pd.DataFrame({"time": time, "A": np.exp(-0.3 * time)})
    run = igpe.Experiment(table, start={"A": 0.0}, start_time=0.0, sigma=0.01, steady=steady)
    result = igpe.estimate(igpe.Problem(decay_model, parameters={"k": (0.1, 1)}, experiments=run))
    assert actions(result)[0] == (
        "The start value of A is 0, and the model keeps A at 0, but it is measured up to 1. If A "
        "grows in proportion to itself, give a positive start value."
    )


def test_no_outlier_is_named_beside_a_series_with_a_larger_one():
    """A gross error that spoils its own series makes right measurements of another look wrong."""
    time = np.arange(12.0)
    rng = np.random.default_rng(1)
    spoilt = np.where(time == 3, 60.0, 4 * rng.choice([-1, 1], 12))
    other = np.where(time == 5, 7.0, rng.standard_normal(12))
    rows = [
        pd.DataFrame({"experiment": "1", "name": n, "time": time, "residual": r, "measured": 100.0})
        for n, r in (("A", spoilt), ("B", other))
    ]
    points = pd.concat(rows, ignore_index=True).assign(sigma=1.0, fitted=100.0)
    table = residual_table(points, float(np.sum(points["residual"] ** 2)), 20)
    assert "outlier" not in set(table["test"])
    alone = residual_table(points[points["name"] == "B"].reset_index(drop=True), 60.0, 10)
    assert "outlier" in set(alone["test"])


def test_too_few_measurements_are_not_judged():
    problem = line(None, seed=2)
    table = problem.experiments[0].table().reset_index().iloc[:4]
    verdict = igpe.estimate(problem.with_data(table)).adequacy
    assert verdict.verdict == "cannot be judged"
    assert "2 degrees of freedom" in verdict.sentence


def points(**columns):
    values = 1.0 + 0.1 * np.random.default_rng(4).standard_normal(len(TIMES))
    table = {"experiment": "1", "name": "A", "time": TIMES, "measured": values, "fitted": 1.0}
    return pd.DataFrame({**table, "residual": values - 1.0, "sigma": 0.1, **columns})


RANGES = np.array([10.0, 10.0])  # of two unknowns


def linear(**changes):
    """Of a mean; beside it an unknown on a bound."""
    jacobian = np.column_stack([np.ones(len(TIMES)), TIMES])
    plain = LinearisedFit(jacobian, np.zeros(0), np.array([False, True]), np.zeros((0, 2)), RANGES)
    return plain._replace(**changes)


def test_values_that_are_no_optimum_are_not_judged():
    shift = 0.3 - points()["residual"].mean()
    stopped = points(residual=points()["residual"] + shift)
    verdict = adequacy(stopped, linear(), 9)
    assert verdict.verdict == "cannot be judged"
    assert "would still lower the sum of squares" in verdict.sentence
    kept = adequacy(stopped, linear(active=np.array([[1.0, 0.0]])), 10)
    assert kept.verdict == "lack of fit"  # the constraint holds the mean
    residual = stopped["residual"] - 0.3
    assert adequacy(points(residual=residual), linear(), 9).verdict == "adequate"


def test_values_that_are_no_optimum_are_refuted_where_none_near_them_can_fit():
    shape = (TIMES - TIMES.mean()) / np.ptp(TIMES) + 0.5
    stopped = points(residual=0.9 * shape)
    verdict = adequacy(stopped, linear(), 9)
    assert verdict.verdict == "lack of fit"
    sizes = r"sum of squares ([0-9.]+) that values nearby could reach is too large for 9 degrees"
    (left,) = re.findall(sizes, verdict.reasons[0])
    assert verdict.p == pytest.approx(stats.chi2(9).sf(float(left)), rel=0.02)
    assert "would still lower the sum of squares" in verdict.sentence
    unknown = adequacy(stopped.assign(sigma=np.nan), linear(), 9)
    assert unknown.verdict == "cannot be judged"


@pytest.mark.parametrize(("apart", "verdict"), [(1e-6, "adequate"), (1.0, "cannot be judged")])
def test_a_direction_out_of_all_bounds_is_no_way_to_a_better_fit(apart, verdict):
    """Two unknowns that exchange their values move predictions alike where they are equal."""
    jacobian = np.column_stack([np.ones(len(TIMES)), 1 + apart * (TIMES - TIMES.mean())])
    free = linear(jacobian=jacobian, held=np.zeros(2, dtype=bool))
    trend = TIMES - TIMES.mean()
    chance = points()["residual"] - points()["residual"].mean()
    chance -= trend * (chance @ trend) / (trend @ trend)
    left = chance + 0.3 * trend * np.sqrt((chance @ chance) / (trend @ trend))
    assert adequacy(points(residual=left), free, 8).verdict == verdict


def test_an_unknown_on_its_bound_takes_no_degree_of_freedom():
    trend = points()["residual"] - points()["residual"].mean() + 0.2 * (TIMES - TIMES.mean())
    assert adequacy(points(residual=trend), linear(), 9).verdict == "lack of fit"
    free = linear(held=np.zeros(2, dtype=bool))
    assert adequacy(points(residual=trend), free, 8).verdict == "cannot be judged"


def test_a_model_that_cannot_be_integrated_is_not_judged():
    lost = points(fitted=np.nan, residual=np.nan)
    assert "could not be integrated" in adequacy(lost, linear(), 9).sentence


def test_a_measurement_that_the_fit_goes_through_is_no_outlier():
    """One late measurement determines the second unknown alone."""
    found = igpe.estimate(line(0.2, seed=7))
    spoilt = found.points.assign(leverage=1 - 1e-13)
    told = replace(found, points=spoilt)
    assert told.outliers().empty
    tests = told.residual_tests().set_index("test")
    assert tests.loc["outlier", "verdict"] == "Nothing unusual."


@pytest.mark.parametrize(
    ("leverage", "says"),
    [
        (0.1, "The measurement at time 0 is off by 5.3 standard deviations: an outlier"),
        (0.9964, "The residual at time 0 is 8.3 times its own standard deviation, which is small"),
    ],
)
def test_the_residual_of_a_measurement_that_the_fit_follows_is_small(leverage, says):
    off = 5.0 if leverage < 0.5 else 0.5
    first = np.arange(len(TIMES)) == 0
    table = points(time=np.arange(len(TIMES)), residual=0.1 * off * first, leverage=leverage)
    tests = residual_table(table, float("nan"), 9).set_index("test")
    assert tests.loc["outlier", "verdict"].startswith(says)


def test_replicates_at_one_time_are_no_course():
    verdict = adequacy(
        points(residual=0.3 + points()["residual"], time=8.0),
        linear(jacobian=np.zeros((len(TIMES), 2)), held=np.ones(2, dtype=bool)),
        10,
    )
    assert "Residuals of A are not around 0 (p < 0.01)." in verdict.reasons


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.02, None])
def test_a_robust_fit_is_judged_without_its_outliers(sigma):
    off = {"T300": {3: 2.0, 7: -1.0}}
    same = decays(dict.fromkeys(RATES, 0.5), sigma=sigma, seed=4, off=off, loss=HUBER)
    result = igpe.estimate(same)
    assert result.adequacy.verdict == "adequate"
    assert result.adequacy.reasons[-1].startswith("The fit was judged without 2 outliers")
    assert len(result.outliers()) == 2
    said = [a for a in result.actions if "outlier" in a]
    assert len(said) == 1
    assert "See result.outliers()" in said[0]
    assert result.parameters["k"] == pytest.approx(0.5, rel=0.02)


@pytest.mark.slow
def test_a_robust_fit_that_is_wrong_is_searched_for_again():
    result = igpe.estimate(decays({"a": 0.5, "b": 0.52}, noise=0.01, loss=HUBER))
    assert result.adequacy.lacks
    assert "lack of fit" in result.verdict["fit"]
    assert any("found no better fit" in note for note in result.notes)


@pytest.mark.slow
def test_too_many_outliers_are_lack_of_fit():
    result = igpe.estimate(decays(RATES, sigma=0.02, loss=HUBER))
    assert result.adequacy.lacks
    assert "are outliers: the model is wrong" in result.adequacy.sentence
    assert "are outliers: the model is wrong" in result.verdict["fit"]


@pytest.mark.parametrize(("periods", "is_wrong"), [(20, True), (0, False)])
def test_a_wrong_frequency_is_lack_of_fit(periods, is_wrong):
    """Twenty periods in 300 times: too fast for the polynomials of the test."""
    times = np.linspace(0.0, 1.0, 301)
    wave = np.sin(2 * np.pi * periods * times) if periods else 0.0
    residual = wave + 0.1 * np.random.default_rng(0).standard_normal(len(times))
    residual -= residual.mean()
    table = pd.DataFrame({
        "experiment": "a", "name": "y", "time": times, "residual": residual, "sigma": np.nan,
    })  # fmt: skip
    table = table.assign(fitted=5.0, measured=5.0 + residual)
    none = np.array([False])
    mean = LinearisedFit(np.ones((301, 1)), np.zeros(0), none, np.zeros((0, 1)), np.ones(1))
    verdict = adequacy(table, mean, 300)
    assert verdict.lacks == is_wrong
    assert ("in 301 measurements: the model misses a trend" in verdict.sentence) == is_wrong


def test_points_are_those_of_the_objective_where_another_integration_differs(monkeypatch):
    """As of a chaotic model."""
    simulate = tables.simulate_all
    shift = 0.0

    def shifted(*given):
        every = simulate(*given)
        for _, run in every:
            run.measured[:] += shift
        return every

    monkeypatch.setattr(tables, "simulate_all", shifted)
    plain = igpe.estimate(line(0.02, seed=7), certify=False)
    assert tables.NOT_CONFIRMED not in plain.actions
    shift = 1.0
    apart = igpe.estimate(line(0.02, seed=7), certify=False)
    assert tables.NOT_CONFIRMED in apart.actions
    assert apart.points["residual"].to_numpy() == pytest.approx(
        plain.points["residual"].to_numpy(), abs=1e-6
    )
    assert apart.adequacy.p == pytest.approx(plain.adequacy.p, abs=0.01)


def test_errors_that_grow_with_the_values_are_named_before_an_outlier():
    """Without sigma; a large value with the ordinary relative error is no outlier."""
    times = np.linspace(0.1, 8.0, 30)
    noise = 0.1 * np.random.default_rng(1).standard_normal(30)
    runs = [
        igpe.Experiment(
            pd.DataFrame({"time": times, "A": 50 * np.exp(-0.6 * times) * (1 + noise)}),
            start={"A": igpe.Unknown(1.0, 200.0)},
            start_time=0.0,
            **sigma,
        )
        for sigma in ({}, {"sigma": igpe.Noise(absolute=1e-6, relative=0.1)})
    ]
    plain, weighted = (
        igpe.estimate(igpe.Problem(decay_model, parameters=["k"], experiments=run), certify=False)
        for run in runs
    )
    assert plain.adequacy.growing == ("A",)
    assert any("Residuals of A grow with its values" in a for a in plain.actions)
    assert not any("outlier" in a for a in plain.actions)
    assert "outlier" not in plain.verdict["fit"]
    assert weighted.adequacy.growing == ()
