"""Rival models: criteria by their formulas, likelihood ratios at their level."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from michaelis_menten import decay
from scipy import stats
from small_problems import line

import igpe
from igpe.core.errors import DataError, ProblemError, Unsupported
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


def test_priors_count_by_their_shape_alone():
    """One knowledge in two forms has one likelihood, whatever the unit of the unknown."""
    forms = {
        "NormalPrior": igpe.losses.NormalPrior(0.6, 0.05),
        "normal": igpe.losses.Prior("normal", (0.6, 0.05)),
        "log-normal": igpe.losses.Prior("log-normal", (np.log(0.6), 1e-4)),  # nearly held
    }
    fits = {n: igpe.estimate(line(0.2, priors={"k": p}), certify=False) for n, p in forms.items()}
    held = igpe.estimate(line(0.2).fixing({"k": 0.6}), certify=False)
    logs = compare_models(fits | {"held": held}).table["log_likelihood"]
    assert logs["normal"] == pytest.approx(logs["NormalPrior"], abs=1e-4)
    assert logs["log-normal"] == pytest.approx(logs["held"], abs=1e-3)
    k = fits["normal"].parameters["k"]
    plain = stats.norm.logpdf(fits["normal"].points["residual"], scale=0.2).sum()
    assert logs["normal"] == pytest.approx(plain - ((k - 0.6) / 0.05) ** 2 / 2, abs=1e-5)


def test_a_nested_model_has_its_likelihood_ratio(results):
    found = compare_models(results)
    row = found.table.loc["slope 0.6"]
    gain = results["slope 0.6"].objective - results["any slope"].objective
    assert row["within"] == "any slope"
    assert row["p"] == pytest.approx(stats.chi2.sf(gain, 1))
    assert "any slope fits significantly better than slope 0.6" in str(found)
    assert found._repr_html_()


def test_a_probability_that_is_rounding_is_not_called_zero():
    exact = line(1e-4)
    fits = {"any": exact, "held": exact.fixing({"k": 0.9})}
    found = compare_models({n: igpe.estimate(p, certify=False) for n, p in fits.items()})
    assert "any fits significantly better than held (p < 1e-15)." in str(found)


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


def test_a_model_that_fits_worse_contains_no_other(results):
    """As laws of different form whose parameters have the same names."""
    said = " ".join(str(compare_models(results)).split())
    assert "assumes that the model with fewer unknowns is a special case" in said
    worse = replace(results["any slope"], objective=1.1 * results["slope 0.6"].objective + 1)
    found = compare_models(results | {"any slope": worse})
    assert found.table["p"].isna().all()
    assert "special case" not in str(found)


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
    with pytest.raises(ProblemError, match="expected a mapping with names as keys"):
        compare_models([*results.values()])


@pytest.mark.parametrize(("count", "lacking"), [(2, 2), (3, 1)])
def test_without_a_finite_aicc_nothing_is_said_of_support(results, count, lacking):
    few = {n: replace(r, measurements=count) for n, r in results.items()}
    found = compare_models(few)
    assert np.isinf(found.table["AICc"]).sum() == lacking
    assert "no finite AICc" in str(found)
    assert "nan %" not in str(found)
    assert "no support" not in str(found)


@pytest.mark.slow
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
    assert tests.loc["chi squared, two-sided", "p"] < 1e-6
    assert "Residuals are larger" in tests.loc["chi squared, two-sided", "verdict"]


def _decays(sigma, **settings):
    """First- and second-order fits to second-order decay, with standard deviations as given."""
    times = np.linspace(0.5, 8, 16)
    noise = 0.01 * np.random.default_rng(3).standard_normal(16)
    data = pd.DataFrame({"time": times, "A": 1 / (1 + 0.6 * times) + noise})
    run = igpe.Experiment(data, start={"A": 1.0, "B": 0.0}, start_time=0.0, sigma=sigma)
    laws = {"first": {"A": 1.0}, "second": {"A": 2.0}}
    return {
        name: igpe.Problem(_with_error(orders), parameters=["k", "sd"], experiments=run, **settings)
        for name, orders in laws.items()
    }


def _with_error(orders):
    """A reactor with its standard deviation `sd` as a further parameter."""
    law = igpe.kinetics.MassAction("k", orders=orders)
    reactor = igpe.kinetics.Batch([igpe.kinetics.Reaction("A -> B", law)], bounds={"k": (1e-3, 5)})

    def model(times):
        m = reactor(times)
        m.sd = pyo.Var(bounds=(1e-4, 1))
        return m

    return model


@pytest.mark.slow
def test_an_estimated_sigma_counts_once():
    problems = _decays({"A": igpe.EstimatedSigma("sd")})
    fits = {name: igpe.estimate(p, certify=False) for name, p in problems.items()}
    stored = {n: igpe.Result.from_json(r.to_json()) for n, r in fits.items()}
    older = {n: replace(r, points=_older(r.points)) for n, r in fits.items()}
    for shown in (fits, stored, older):
        table = compare_models(shown, nested={"first": "second"}).table
        for name, r in fits.items():
            logs = stats.norm.logpdf(r.points["residual"], scale=r.points["sigma"]).sum()
            assert table.loc[name, "log_likelihood"] == pytest.approx(logs)


def _older(points):
    """The points as earlier versions stored them."""
    return points.drop(columns="sigma_estimated")


def test_known_and_estimated_sigma_are_compared_by_their_likelihoods():
    fits = {}
    for name, sigma in (("known", {"A": 0.02}), ("estimated", {"A": igpe.EstimatedSigma("sd")})):
        problem = _decays(sigma)["second"]
        problem = problem.fixing({"sd": 0.02}) if name == "known" else problem
        fits[name] = igpe.estimate(problem, certify=False)
    table = compare_models(fits).table
    gain = table.loc["estimated", "log_likelihood"] - table.loc["known", "log_likelihood"]
    assert table.loc["known", "within"] == "estimated"
    assert table.loc["known", "p"] == pytest.approx(stats.chi2.sf(2 * gain, 1))


def test_robust_losses_are_refused():
    """The sizes of Huber's residuals follow each fit, so that the wrong model had the best AICc."""
    problems = {
        n: p.fixing({"sd": 1.0}) for n, p in _decays(None, loss=igpe.losses.Huber()).items()
    }
    with pytest.raises(Unsupported, match=r"first, second cannot be compared .* Omit"):
        igpe.rivals(problems)
    fits = {n: igpe.estimate(p, certify=False) for n, p in problems.items()}
    with pytest.raises(Unsupported, match="first, second cannot be compared"):
        compare_models(fits)


def test_problems_are_not_results():
    problem = _decays(None)["first"]
    with pytest.raises(igpe.errors.ProblemError, match=r"'a' is of the type Problem; .* results"):
        compare_models({"a": problem, "b": problem})
