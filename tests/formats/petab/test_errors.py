"""Standard errors of PEtab estimates: against differences in closed form, and a profile."""

import numpy as np
import pandas as pd
import pytest
import small
from petab_problems import files
from scipy.stats import norm

import igpe

AT = {"k": 0.51, "A0": 3.05, "sd": 0.09}


def objective(table, q, logarithmic):
    """-log L in closed form, of parameters on their scales."""
    k, a0, sd = np.where(logarithmic, 10.0 ** np.asarray(q), q)
    a, b = small.truth(table["time"], k, a0)
    of_a = (table["observableId"] == "oA").to_numpy()
    return -norm.logpdf(table["measurement"], np.where(of_a, a, b), np.where(of_a, sd, 0.1)).sum()


def second_derivatives(function, at, step=1e-3):
    """By central differences of values."""
    moves, signs = step * np.eye(len(at)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
    return np.array([
        [sum(a * b * function(at + a * x + b * y) for a, b in signs) for y in moves] for x in moves
    ]) / (4 * step**2)


@pytest.fixture
def told(tmp_path):
    return igpe.petab.petab_errors(igpe.petab.read_petab(small.write(tmp_path)), AT)


def test_they_are_those_of_the_observed_information(told):
    table, logarithmic = small.measurements(), np.array([True, False, True])
    q = np.where(logarithmic, np.log10(list(AT.values())), list(AT.values()))
    expected = second_derivatives(lambda x: objective(table, x, logarithmic), q)
    assert list(told.index) == list(AT)
    errors = np.sqrt(np.diag(np.linalg.inv(expected)))
    assert told["error_on_scale"].to_numpy() == pytest.approx(errors, rel=1e-4)
    assert told["estimate"].to_dict() == AT


def test_what_is_determined_beside_a_product_of_unknowns_has_its_error(tmp_path):
    """Only one * other is determined, and it is hard to tell from `near`: curvatures of 1e-6."""
    names = ["k", "near", "one", "other"]
    parameters = pd.DataFrame({
        "parameterId": [*names, "A0"], "parameterScale": ["log10"] * 4 + ["lin"],
        "lowerBound": [1e-3] * 5, "upperBound": [1e3] * 5,
        "nominalValue": [0.5, 0.8, 2.0, 0.4, 3.0],
        "estimate": [1, 1, 1, 1, 0],
    })  # fmt: skip
    observables = small.OBSERVABLES.assign(
        observableFormula=["one * other * A + near * (A + 0.001 * B)", "B"], noiseFormula="1e-4"
    )
    table = small.measurements().assign(noiseParameters="")
    times = table["time"][:5].to_numpy()
    a, b = small.truth(times)
    table["measurement"] = np.concatenate([0.8 * a + 0.8 * (a + 0.001 * b), b])
    by_k = -0.5 * times * a
    by = np.zeros((10, 3))  # by logarithms of k, near and the product
    by[:5] = np.column_stack([(1.6 - 0.8 * 0.002) * by_k, 0.8 * (a + 0.001 * b), 0.8 * a])
    by[5:, 0] = -2 * by_k
    covariance = np.linalg.inv(by.T @ by) * (1e-4 / np.log(10)) ** 2
    yaml = small.write(tmp_path, parameters=parameters, observables=observables, measurements=table)
    problem = igpe.petab.read_petab(yaml)
    told = igpe.petab.petab_errors(problem, problem.model.nominal)
    assert told.loc[["one", "other"], "remark"].tolist() == ["not determined"] * 2
    errors = told.loc[["k", "near"], "error_on_scale"].to_numpy()
    assert errors == pytest.approx(np.sqrt(np.diag(covariance)[:2]), rel=0.01)


def test_where_a_thousandth_of_an_unknown_is_many_errors(tmp_path):
    """As of an oscillator's frequency: waves that 3e-3 of k or A0 moves by more than half."""
    observables = small.OBSERVABLES.assign(
        observableFormula=["A + sin(800 * k * A)", "B"], noiseFormula=["sd", "sd"]
    )
    table = small.measurements().assign(noiseParameters="")

    def simulated(q):
        a, b = small.truth(table["time"][:5].to_numpy(), 10.0 ** q[0], q[1])
        return np.concatenate([a + np.sin(800 * 10.0 ** q[0] * a), b])

    q = np.array([np.log10(0.5), 3.0, -2.0])
    table["measurement"] = simulated(q) + 0.01 * np.tile([1.0, -1.0], 5)
    yaml = small.write(tmp_path, observables=observables, measurements=table)
    problem = igpe.petab.read_petab(yaml)
    told = igpe.petab.petab_errors(problem, {"k": 0.5, "A0": 3.0, "sd": 0.01})
    expected = second_derivatives(
        lambda x: -norm.logpdf(table["measurement"], simulated(x), 10.0 ** x[2]).sum(), q, 1e-6
    )
    errors = np.sqrt(np.diag(np.linalg.inv(expected)))
    assert told["error_on_scale"].to_numpy() == pytest.approx(errors, rel=0.01)
    assert not told["remark"].any()


def test_kinks_of_laplace_priors_have_no_curvature(tmp_path):
    """Without the prior, k has an error of 0.02 decades; its kink is 1e-4 decades away."""
    q = np.log10(AT["k"])
    priors = pd.DataFrame({
        "objectivePriorType": ["parameterScaleLaplace", "laplace", ""],
        "objectivePriorParameters": [f"{q + 1e-4};0.01", "3.05;0.1", ""],
    })
    parameters = pd.concat([small.PARAMETERS, priors], axis=1)
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    told = igpe.petab.petab_errors(problem, AT)
    assert told["remark"].tolist() == ["", "at the kink of its prior", ""]
    assert np.isnan(told.loc["A0", "standard_error"])
    table, logarithmic = small.measurements(), np.array([True, False, True])
    information = second_derivatives(
        lambda x: objective(table, [x[0], AT["A0"], x[1]], logarithmic), [q, np.log10(AT["sd"])]
    )
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert told.loc[["k", "sd"], "error_on_scale"].to_numpy() == pytest.approx(errors, rel=1e-3)


def test_where_the_likelihood_increases_it_is_no_optimum(tmp_path):
    """-log L of n residuals curves upwards only up to sqrt(3) of their standard deviation."""
    parameters = small.PARAMETERS.assign(parameterScale=["log10", "lin", "lin"])
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    told = igpe.petab.petab_errors(problem, AT | {"sd": 1.0})
    assert told["remark"].tolist() == ["", "", "not at an optimum"]
    assert np.isnan(told.loc["sd", "standard_error"])


@pytest.mark.slow
def test_of_boehms_problem_they_are_what_the_profile_says():
    """Fisher's expected information says 0.697 of the first; the constants' fit is at 138.222."""
    problem = igpe.petab.read_petab(files("Boehm"))
    found = igpe.SingleShooting().estimate(problem, problem.model.nominal)
    told = igpe.petab.petab_errors(problem, found)
    # The objective is flat up to the bound: rounding decides where on the plateau a search ends.
    assert told.loc["k_imp_homo", "remark"] in {"not determined", "on a bound"}
    assert told.loc["k_exp_hetero", "remark"] == "on a bound"
    name, rises = "Epo_degradation_BaF3", []
    for side in (-1, 1):
        moved = found.parameters[name] * 10.0 ** (side * told.loc[name, "error_on_scale"])
        held = problem.fixing({name: moved})
        start = {n: found.parameters[n] for n in held.box.names}
        again = igpe.SingleShooting().estimate(held, start).parameters
        rises.append(igpe.petab.petab_objective(problem, {**again, name: moved}))
    mean = np.mean(rises) - igpe.petab.petab_objective(problem, found.parameters)
    assert mean == pytest.approx(0.5, rel=0.03)  # what is odd in the profile cancels


@pytest.mark.parametrize(("scale", "base"), [("log10", np.log(10.0)), ("log", 1.0)])
def test_a_logarithm_has_its_error_by_the_delta_rule(tmp_path, scale, base):
    parameters = small.PARAMETERS.assign(parameterScale=[scale, "lin", scale])
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    told = igpe.petab.petab_errors(problem, AT)
    assert told["scale"].to_dict() == {"k": scale, "A0": "lin", "sd": scale}
    for name, row in told.iterrows():
        logarithmic = row["scale"] == scale
        unit = AT[name] * base if logarithmic else 1.0
        assert row["error_on_scale"] == pytest.approx(row["standard_error"] / unit)
        half = norm.ppf(0.975) * row["error_on_scale"] * np.array([-1, 1])
        ends = AT[name] * np.exp(base * half) if logarithmic else AT[name] + half
        assert row[["lower", "upper"]].tolist() == pytest.approx(ends.tolist())


def test_on_a_bound_and_where_nothing_is_told(tmp_path):
    row = ["half", "lin", 0.0, 9.0, 1.0, 1]
    more = pd.DataFrame([row], columns=small.PARAMETERS.columns)
    parameters = pd.concat([small.PARAMETERS, more], ignore_index=True)
    parameters.loc[0, ["lowerBound", "nominalValue"]] = 0.6  # above the optimum
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    found = igpe.SingleShooting().estimate(problem, problem.model.nominal)
    told = igpe.petab.petab_errors(problem, found)
    assert told["remark"].tolist() == ["on a bound", "", "", "not determined"]
    assert np.isnan(told.loc["k", "standard_error"])
    assert np.isinf(told.loc["half", "standard_error"])
    yaml = tmp_path / "problem.yaml"
    igpe.petab.write_petab_parameters(AT, yaml, tmp_path / "out.tsv", told)
    written = pd.read_csv(tmp_path / "out.tsv", sep="\t").set_index("parameterId")
    assert written.loc[["k", "half"], "standardError"].isna().all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"confidence": 95}, "between 0 and 1"),
        ({"found": {"k": 1.0, "A0": 1.0}}, r"\['sd'\]"),
        ({"problem": object()}, "not read from PEtab"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, given, says):
    problem = igpe.petab.read_petab(small.write(tmp_path))
    with pytest.raises(igpe.errors.ProblemError, match=says):
        igpe.petab.petab_errors(**{"problem": problem, "found": AT} | given)


def test_what_was_exported_is_read_again_to_the_last_digit(tmp_path):
    yaml = small.write(tmp_path)
    problem = igpe.petab.read_petab(yaml)
    found = igpe.search.MultiStart(trials=8, starts=2).estimate(problem, {})
    errors = igpe.petab.petab_errors(problem, found)
    igpe.petab.write_petab_parameters(found, yaml, tmp_path / "fitted.tsv", errors)
    (tmp_path / "fitted.tsv").replace(tmp_path / "parameters.tsv")
    again = igpe.petab.read_petab(yaml)
    assert again.model.nominal == dict(found.parameters)
    best = igpe.petab.petab_objective(problem, found.parameters)
    assert igpe.petab.petab_objective(again) == pytest.approx(best, rel=1e-10)
    pd.testing.assert_frame_equal(igpe.petab.petab_errors(again, again.model.nominal), errors)
