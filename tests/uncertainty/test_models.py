"""Rival models: criteria by their formulas, likelihood ratios at their level."""

from dataclasses import replace

import numpy as np
import pytest
from michaelis_menten import decay
from scipy import stats
from small_problems import line

import igpe
from igpe.core.errors import DataError, ProblemError
from igpe.uncertainty.model_comparison import compare_models


@pytest.fixture(scope="module")
def results():
    """A line with one and with two unknowns, sigma known."""
    two = igpe.estimate(line(0.2))
    held = igpe.estimate(line(0.2).fixing({"k": 0.6}))
    return {"slope 0.6": held, "any slope": two}


def test_criteria_are_their_formulas(results):
    table = compare_models(results).table
    row, r = table.loc["any slope"], results["any slope"]
    logs = np.sum(stats.norm.logpdf(r.points["residual"], scale=0.2))
    assert row["log_likelihood"] == pytest.approx(logs)
    assert row["AIC"] == pytest.approx(2 * 2 - 2 * logs)
    assert row["AICc"] == pytest.approx(2 * 2 - 2 * logs + 2 * 2 * 3 / (10 - 3))
    assert row["BIC"] == pytest.approx(2 * np.log(10) - 2 * logs)
    assert table["weight"].sum() == pytest.approx(1)
    assert table["delta"].min() == 0


def test_a_nested_model_has_its_likelihood_ratio(results):
    found = compare_models(results)
    row = found.table.loc["slope 0.6"]
    gain = results["slope 0.6"].objective - results["any slope"].objective
    assert row["within"] == "any slope"
    assert row["p"] == pytest.approx(stats.chi2.sf(gain, 1))
    assert "any slope fits significantly better than slope 0.6" in str(found)
    assert found._repr_html_()


def test_with_unknown_sigma_the_ratio_is_f():
    two = igpe.estimate(line(None))
    one = igpe.estimate(line(None).fixing({"k": 0.6}))
    found = compare_models({"a": one, "b": two}).table
    f = (one.objective - two.objective) / (two.objective / 8)
    assert found.loc["a", "p"] == pytest.approx(stats.f.sf(f, 1, 8))
    n, cost = 10, two.objective
    logs = np.sum(stats.norm.logpdf(two.points["residual"], scale=np.sqrt(cost / n)))
    assert found.loc["b", "log_likelihood"] == pytest.approx(logs)
    assert found.loc["b", "unknowns"] == 3


def test_who_is_nested_can_be_said(results):
    assert compare_models(results, nested={}).table["p"].isna().all()
    with pytest.raises(ProblemError, match=r"names the models \['c'\], which are not in"):
        compare_models(results, nested={"slope 0.6": "c"})


def test_other_measurements_are_refused(results):
    other = replace(
        results["any slope"],
        points=results["any slope"].points.assign(measured=lambda t: t["measured"] + 1),
    )
    with pytest.raises(DataError, match="different measurements"):
        compare_models({"a": results["any slope"], "b": other})
    blind = replace(results["any slope"], points=results["any slope"].points.assign(sigma=np.nan))
    with pytest.raises(DataError, match="given for only one"):
        compare_models({"a": results["any slope"], "b": blind})
    with pytest.raises(ProblemError, match="at least two models"):
        compare_models({"a": results["any slope"]})


def test_a_wrong_model_has_no_support_and_odd_residuals():
    """First-order decay on data of a saturated one."""
    right = igpe.estimate(decay(sigma=0.01, seed=3))
    experiments = decay(sigma=0.01, seed=3).experiments
    first = igpe.Problem(decay().model, parameters={"vmax": (0.01, 200), "km": (49, 51)},
                         experiments=experiments)  # fmt: skip
    wrong = igpe.estimate(first)
    found = compare_models({"Michaelis-Menten": right, "first order": wrong}, nested={})
    assert found.table.index[0] == "Michaelis-Menten"
    assert "first order has no support" in str(found)
    assert "Fit         lack of fit" in str(wrong)
    tests = wrong.residual_tests().set_index("test")
    assert tests.loc["chi squared", "p"] < 1e-6
    assert "Residuals are larger" in tests.loc["chi squared", "verdict"]
