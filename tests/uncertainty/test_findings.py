"""What a result says of poor directions, and odd residuals, by itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from michaelis_menten import decay
from ode import ode
from one_state import one_state
from scipy import stats
from scipy.special import lambertw
from small_problems import TIMES, line
from zoo import CASES

import igpe
from igpe.core.errors import ProblemError


@pytest.fixture(scope="module")
def weak():
    """Michaelis-Menten decay with vmax = 1, km = 4, from far below saturation."""
    table = pd.DataFrame({"time": TIMES})
    exact = 4.0 * lambertw(0.5 / 4.0 * np.exp((0.5 - TIMES) / 4.0)).real
    table["S"] = exact + 0.002 * np.random.default_rng(2).standard_normal(10)
    run = igpe.Experiment(table, start={"S": 0.5}, start_time=0.0, sigma=0.002)
    return igpe.estimate(igpe.Problem(decay().model, parameters=["vmax", "km"], experiments=[run]))


def test_unknowns_that_cannot_be_told_apart_are_named(weak):
    told = " ".join(weak.notes)
    assert "vmax and km are strongly correlated (0.99" in told
    assert "The largest standard error, of unknowns that change together: " in told
    assert "vmax and km" in weak.verdict["parameters"]
    table = weak.combinations()
    assert table["standard_error"].is_monotonic_decreasing
    assert table.loc[0, "standard_error"] > 10 * table.loc[1, "standard_error"]
    assert table.loc[0, "vmax"] == pytest.approx(table.loc[0, "km"], rel=0.1)


def test_an_outlier_is_flagged_and_told():
    problem = line(0.2, seed=7)
    table = problem.experiments[0].table().reset_index()
    table.loc[4, "A"] += 2.0
    found = igpe.estimate(problem.with_data(table))
    flagged = found.outliers()
    assert list(flagged["time"]) == [TIMES[4]]
    assert any(f"measurement at time {TIMES[4]:g}" in n for n in found.actions)
    assert found.points["leverage"].sum() == pytest.approx(2)


def test_outliers_beside_an_estimated_sigma_are_judged_by_students_t():
    """A likelihood is no robust loss: no median size counts as known."""
    times = np.linspace(0.3, 6, 12)
    noise = 0.1 * np.random.default_rng(3).standard_normal(12)
    noise[5] = 0.35
    run = np.exp(-0.4 * times) + noise
    sigma, bounds = {"x": igpe.EstimatedSigma("sd")}, {"k": (0.01, 5), "sd": (1e-3, 2)}
    found = igpe.estimate(one_state(lambda m, x: -m.k * x, bounds, (times, run), sigma))
    points, degrees = found.points, 10
    off = points["residual"] / np.sqrt(1 - points["leverage"])
    rest = np.sqrt((np.sum(points["residual"] ** 2) - off**2) / (degrees - 1))
    odd = (off / rest).abs().max()
    tests = found.residual_tests().set_index("test")
    assert abs(tests.loc["outlier", "statistic"]) == pytest.approx(odd, rel=1e-4)
    assert tests.loc["outlier", "p"] == pytest.approx(24 * stats.t.sf(odd, degrees - 1), rel=1e-3)


def test_no_measurement_is_an_outlier_where_the_model_misses_all():
    problem = line(0.01, seed=7)
    table = problem.experiments[0].table().reset_index()
    table["A"] += (TIMES - TIMES.mean()) ** 2
    table.loc[4, "A"] += 2.0
    found = igpe.estimate(problem.with_data(table))
    assert found.adequacy.lacks
    assert "outlier" not in " ".join(found.actions)
    assert "outlier" not in set(found.residual_tests()["test"])


def test_a_slip_of_the_decimal_point_is_an_outlier_though_it_pulls_all_other_residuals():
    problem = line(0.01, seed=7)
    table = problem.experiments[0].table().reset_index()
    table.loc[4, "A"] *= 1000
    found = igpe.estimate(problem.with_data(table))
    assert found.adequacy.lacks
    assert np.median(np.abs(found.points["residual"])) > 2 * 0.01
    (said,) = [s for s in found.actions if "an outlier" in s]
    assert f"at time {TIMES[4]:g} is off by" in said


def test_leverages_stand_beside_their_measurements():
    """Of a line they are known: 1/n + (t - mean)^2 / sum."""
    found = igpe.estimate(line(0.2, runs=2)).points
    for name in ("r0", "r1"):
        mine = found[found["experiment"] == name]
        slope = (mine["time"] - TIMES.mean()) ** 2 / (2 * np.sum((TIMES - TIMES.mean()) ** 2))
        assert mine["leverage"].to_numpy() == pytest.approx(0.1 + slope.to_numpy(), rel=1e-5)


def test_good_fits_have_no_such_notes_and_sound_tests():
    found = igpe.estimate(line(0.2, seed=7))
    assert not [n for n in found.notes if "correlated" in n]
    assert found.actions == ()
    tests = found.residual_tests()
    assert list(tests["test"]) == [
        "chi squared, two-sided",
        "runs",
        "autocorrelation",
        "normality",
        "outlier",
    ]
    assert (tests["verdict"] == "Nothing unusual.").all()
    estimated = replace(found, criterion="-2 log likelihood")
    assert list(estimated.residual_tests()["test"]) == list(tests["test"])[1:]


def test_exact_data_have_no_residuals_to_test():
    """What is left is rounding, which has a pattern of its own."""
    found = igpe.estimate(CASES["consecutive"].problem())
    assert found.notes == ()
    assert found.residual_tests().empty
    assert found.outliers().empty


def test_ellipses_of_a_result(weak):
    edge = weak.ellipse("vmax", "km")
    values = weak.parameters
    middle = (edge.max() + edge.min()) / 2
    assert middle["km"] == pytest.approx(values["km"], rel=1e-3)
    half = (edge["km"].max() - edge["km"].min()) / 2
    error = weak.to_frame().loc["km", "standard_error"]
    assert half / error == pytest.approx(np.sqrt(5.9915), rel=2e-3)
    inner = weak.ellipse("vmax", "km", 0.5)["km"]
    assert (inner.max() - inner.min()) / 2 / error == pytest.approx(np.sqrt(1.3863), rel=2e-3)
    with pytest.raises(ProblemError, match="got 'km' and 'k9'"):
        weak.ellipse("km", "k9")


def test_a_result_of_before_has_no_leverages_but_its_tests():
    found = igpe.estimate(line(0.2))
    stored = found.to_dict()
    del stored["points"]["leverage"]
    old = igpe.Result.from_dict(stored)
    assert len(old.residual_tests()) == 5


def with_correlated_errors(**given):
    random, errors = np.random.default_rng(2), [0.0]
    for _ in range(119):
        errors.append(0.9 * errors[-1] + 0.6 * random.standard_normal())
    times = np.linspace(0.0, 10.0, 120)
    data = pd.DataFrame({"time": times, "x": 1.0 + times + 0.1 * np.array(errors)})
    run = igpe.Experiment(data, start={"x": igpe.Unknown(0, 2)}, sigma=0.1)

    model = ode({"x": lambda m, t: m.k}, k=(0, 2))

    return igpe.Problem(model, parameters=["k"], experiments=run, **given)


@pytest.mark.parametrize("loss", [igpe.losses.LeastSquares(), igpe.losses.Huber()])
def test_correlated_errors_are_named_where_residuals_change_their_sign_often(loss):
    """A model of them is advised where it is supported."""
    result = igpe.estimate(with_correlated_errors(loss=loss), certify=False)
    assert result.adequacy.lacks
    words = " ".join(str(result).split())
    assert "misses a trend, or errors of neighbouring measurements are correlated" in words
    advised = "or write igpe.Experiment(..., correlation=igpe.losses.AR1())." in words
    assert advised is not result.is_robust
