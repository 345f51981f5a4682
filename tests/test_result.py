"""What a result says: numbers, words, tables, and its way through JSON."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from pyomo import dae
from zoo import CASES

import igpe
from igpe.cli.application import typed
from igpe.core.markup import at_side, number, numbers, on_side
from igpe.core.status import Status
from igpe.dynamics.shooting import base as shooting_base
from igpe.results.answer import WIDTH, estimates
from igpe.results.answer import text as answer
from igpe.results.residual_table import oversized
from igpe.results.result_data import BY_PROFILE, WITHOUT_PROFILE

TIMES = np.linspace(0.25, 5.0, 20)
NOISE = 0.01 * np.random.default_rng(0).standard_normal(len(TIMES))
EXACT = np.exp(-0.5 * TIMES)


def tank(times):
    """A vanishes by k1 * k2, and D, which nothing measured depends on, by q."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, units=pyo.units.mol / pyo.units.L)
    m.D = pyo.Var(m.t)
    m.dA, m.dD = dae.DerivativeVar(m.A), dae.DerivativeVar(m.D)
    m.k1 = pyo.Var(bounds=(0, 5), units=1 / pyo.units.hour)
    m.k2, m.q = pyo.Var(bounds=(0.1, 5)), pyo.Var(bounds=(0, 4))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.k2 * m.A[t])
    m.rate_D = pyo.Constraint(m.t, rule=lambda m, t: m.dD[t] == -m.q * m.D[t])
    return m


def fitted(*parameters, values=EXACT + NOISE, settings=None, **known):
    """The other parameters are fixed at 1 in the model."""

    def model(times):
        m = tank(times)
        for name in {"k1", "k2", "q"}.difference(parameters):
            m.component(name).fix(1.0)
        return m

    data = pd.DataFrame({"time": TIMES, "A": values})
    run = igpe.Experiment(data, start={"A": 1.0, "D": 1.0}, **known)
    return igpe.estimate(igpe.Problem(model, parameters=parameters, experiments=[run]), settings)


@pytest.fixture(scope="session")
def chain():
    """A -> B -> C with noise of unknown size."""
    return igpe.estimate(CASES["consecutive"].problem(noise=0.02))


@pytest.fixture(scope="session")
def known_sigma():
    return fitted("k1", sigma=0.01)


@pytest.fixture(scope="session")
def on_bound():
    """A does not vanish but grow, which k1 >= 0 forbids."""
    return fitted("k1", values=1 + 0.1 * TIMES)


@pytest.fixture(scope="session")
def unreachable():
    return fitted("k1", "q")


@pytest.fixture(scope="session")
def product():
    """Only k1 * k2 is determined."""
    coarse = igpe.Collocation(max_refinements=1)  # where nothing stands still, refining is long
    return fitted("k1", "k2", settings=igpe.Settings(correction=coarse))


KINDS = ["chain", "known_sigma", "on_bound", "unreachable", "product"]


def test_what_collocation_alone_fits_is_not_judged(known_sigma):
    """As where a slope is infinite at the start: the optimum cannot be integrated."""
    result = replace(known_sigma, points=known_sigma.points.assign(fitted=np.nan))
    assert result.verdict["parameters"].startswith("not judged")
    assert result.verdict["optimum"].startswith("for the discretised model only")
    limit = replace(result, status=Status.ITERATION_LIMIT).verdict["optimum"]
    assert limit == "not reached: the model could not be integrated at the estimate"


def test_the_printed_result(chain):
    """Three lines of verdict, then the estimates; no line is longer than 80 characters."""
    lines = str(chain).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["Fit", "Parameters", "Optimum"]
    assert lines[0].startswith("Fit         good: residuals consistent with noise (p = ")
    assert "R² ≥ 0.9" in lines[0]
    assert lines[1] == "Parameters  both determined"
    assert lines[2].endswith("searches agree; not proved: run igpe.certify(problem, result)")
    assert lines[3] == ""
    assert re.split(r" {2,}", lines[4].strip()) == ["value", "95 % interval"]
    assert [line.split()[0] for line in lines[5:]] == ["k1", "k2"]
    assert repr(chain).startswith(f"Result(k1={chain.parameters['k1']:.6g}, k2=")
    assert len(repr(chain).splitlines()) == 1


@pytest.mark.parametrize(
    ("errors", "bounds", "words"),
    [
        ((0.09, 0.09), (0, 10), "both determined"),
        ((0.09, 0.11), (0, 10), "k1 determined; k2 uncertain (standard error 11 %)"),
        ((0.4, 0.11), (0, 10), "k1, k2 uncertain (standard errors up to 40 %)"),
        ((0.09, 20.0), (0, 100), "k1 determined; k2 uncertain"),
        ((0.4, 0.4), (-10, 10), "both determined"),
        ((0.4, 0.6), (-10, 10), "k1 determined; k2 uncertain (standard error 60 %)"),
        ((0.09, 0.4), (-np.inf, np.inf), "k1 determined; k2 uncertain (standard error 40 %)"),
    ],
)
def test_an_unknown_is_determined_up_to_an_error_of_a_tenth(chain, errors, bounds, words):
    """Of its value, or its interval a tenth of the range where both signs may be."""
    estimates = tuple(
        replace(
            p,
            value=1.0,
            standard_error=e,
            lower=max(1 - 2 * e, bounds[0] + 0.01),
            upper=min(1 + 2 * e, bounds[1] - 0.01),
            bounds=bounds,
        )
        for p, e in zip(chain.estimates, errors, strict=True)
    )
    unrelated = np.diag(np.square(errors))
    said = replace(chain, estimates=estimates, covariance=unrelated).verdict["parameters"]
    assert said == words


@pytest.mark.parametrize(
    ("upper", "size"), [(1.8, " (standard error 40 %)"), (10.0, ""), (6.0, "")]
)
def test_an_error_is_said_only_where_it_describes_the_interval(chain, upper, size):
    """A profile may be longer on one side than the error at the optimum says, or open."""
    one, other = chain.estimates
    sure = replace(one, value=1.0, standard_error=0.01, lower=0.98, upper=1.02, bounds=(0, 10))
    wide = replace(other, value=1.0, standard_error=0.4, lower=0.2, upper=upper, bounds=(0, 10))
    unrelated = np.diag([1e-4, 0.16])
    said = replace(chain, estimates=(sure, wide), covariance=unrelated).verdict["parameters"]
    assert said == f"k1 determined; k2 uncertain{size}"


def test_one_measurement_has_no_scatter_to_explain(chain):
    """Its distance from its own mean is rounding."""
    once = chain.points.groupby("name").head(1).assign(measured=0.1, sigma=0.3)
    assert replace(chain, points=once).r_squared().isna().all()


@pytest.mark.parametrize(("sigma", "verdict"), [(0.1, "good"), (0.01, "fair")])
def test_what_varies_by_its_known_errors_alone_needs_no_model(known_sigma, sigma, verdict):
    """R² of such a quantity is about 0 for a model that is right."""
    points = known_sigma.points
    one = points[points["name"] == points["name"].iloc[0]]
    still = one.assign(name="still", measured=1 + 0.1 * (-1.0) ** np.arange(len(one)), fitted=1.0)
    still = still.assign(residual=still["measured"] - 1, sigma=sigma)
    result = replace(known_sigma, points=pd.concat([points, still], ignore_index=True))
    assert result.r_squared()["still"] < 0.1
    said = result.verdict["fit"]
    assert said.startswith(verdict)
    assert ("still" in said) == (verdict == "fair")


def test_a_single_unknown_that_is_not_determined_is_it(chain):
    one, other = chain.estimates
    lost = replace(chain, estimates=(replace(one, remark="not determined by the data"), other))
    assert "Not determined: k1. Fix it, or measure more" in str(lost)


def test_the_proof_is_asked_for_in_the_words_of_the_command_line(chain):
    """Also where they are broken over two lines."""
    said = typed(answer(chain), Path("deep/model.py"))
    assert "not proved: run igpe certify deep/model.py" in " ".join(said.split())
    assert "igpe.certify" not in said


def test_the_details(chain):
    text = " ".join(str(chain.details).split())
    for words in (
        "k1, k2: first estimated by step 3",
        "searches ended at",
        "Sum of squares",
        "over 60 measurements, 58 degrees of freedom",
        f"estimated from the residuals: {np.sqrt(chain.variance):.3g}",
        "Intervals: 95 %, linearised.",
        *chain.seconds,
    ):
        assert words in text
    assert "Chi squared" not in text
    assert repr(chain.details) == str(chain.details) == chain.details.text


def test_long_names_and_units_are_shortened_and_stay_different(chain):
    long = [
        replace(
            chain.estimates[0],
            name=f"reactor.rate_constant_of_the_reaction[number_{k}]",
            unit="mol**2/(L**2*s*K**0.5)*1000",
            remark="not determined by the data",
        )
        for k in range(12)
    ]
    result = replace(chain, estimates=tuple(long))
    assert max(map(len, str(result).splitlines())) <= WIDTH
    assert len({row[0] for row in estimates(result)[1:]}) == 12
    assert all(p.name in result._repr_html_() for p in long)


def test_the_certificate_is_a_sentence(chain):
    (whole,) = chain.certificates
    assert f"Step 3: {whole.sentence}" in chain.details.sentences
    assert whole.sentence.startswith(
        "k1, k2 in [0, 10], fitted to slopes of smoothed data of A, B, C: globally optimal by "
        "convexity (linear least squares"
    )
    assert "this refers to the slopes, not to the fit to the measurements." in whole.sentence
    bounds = ((0.0, 10.0), (1e4, 1e5))
    other = replace(whole, bounds=bounds, experiments=("1", "2"), undetermined=("k2",))
    assert other.sentence.startswith("k1 in [0, 10], k2 in [10000, 100000], fitted to")
    assert "of A, B, C in 2 experiments: " in other.sentence
    assert other.sentence.endswith("; the slopes do not determine k2.")


def test_what_was_interrupted_is_not_sent_to_a_proof(known_sigma):
    for status, said in (
        ("INTERRUPTED", "Let igpe.estimate finish"),
        ("CONVERGED", "Run igpe.cert"),
    ):
        early = replace(known_sigma, status=igpe.Status[status], proof=None, unprovable="")
        assert any(said in one for one in early.details.sentences)


@pytest.mark.parametrize(
    ("bound", "status", "words"),
    [
        (
            9.5,
            "OPTIMAL_WITHIN_GAP",
            "sum of squares below 9.5 (5 % below the best, 10; method: search)",
        ),
        (0.001, "TIME_LIMIT", "sum of squares below 0.001 (99.99 % below the best, 10; method"),
        (9.5, "TIME_LIMIT", "method: search, stopped at the time limit)"),
        (9.5, "INTERRUPTED", "method: search, stopped by you)"),
        (0.0, "TIME_LIMIT", "the lower bound is still 0, so nothing is proved"),
        (-np.inf, "BEST_OF_SEVERAL", "smallest sum of squares reached (search); nothing is proved"),
    ],
)
def test_what_a_search_has_proved(chain, bound, status, words):
    changes = {"objective": 10.0, "lower_bound": bound, "status": igpe.Status[status]}
    assert words in replace(chain.certificates[0], method="search", **changes).sentence


def test_a_search_that_met_no_numbers_says_so(chain):
    nothing = replace(
        chain.certificates[0],
        objective=np.inf, lower_bound=-np.inf, status=igpe.Status.BEST_OF_SEVERAL,
        method="search", undetermined=("k1", "k2"),
    )  # fmt: skip
    assert nothing.sentence.endswith(
        "the search found no values at which these slopes are finite (search); nothing is proved."
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_html_is_well_formed_and_says_the_same(kind, request):
    result = request.getfixturevalue(kind)
    page = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
    said = ["".join(p.itertext()).split() for p in page.findall("p")]
    said += [
        [w for cell in row for w in (cell.text or "").split()]
        for row in next(page.iter("table")).iter("tr")
    ]
    said += [(item.text or "").split() for item in page.findall("ul/li")]
    assert [w for words in said for w in words] == str(result).split()
    behind = [(item.text or "") for item in page.find("details").iter("li")]
    assert behind == list(result.details.sentences)


def test_a_wrong_attribute_is_answered_with_the_nearest_right_one(chain):
    with pytest.raises(AttributeError, match=r"'params'\. Did you mean 'parameters'\?$"):
        chain.params  # noqa: B018
    with pytest.raises(AttributeError, match=r"Parameter has no attribute 'val'\. Did you mean"):
        chain.estimates[0].val  # noqa: B018
    with pytest.raises(AttributeError, match="Problem has no attribute 'experiment'"):
        CASES["consecutive"].problem().experiment  # noqa: B018
    with pytest.raises(AttributeError, match="It has actions, "):
        chain.zzz  # noqa: B018
    assert not hasattr(chain, "__array__")


@pytest.mark.parametrize("status", ["ITERATION_LIMIT", "TIME_LIMIT", "INTERRUPTED", "STALLED"])
def test_nothing_is_called_determined_where_no_optimum_was_reached(chain, status):
    ended = replace(chain, status=igpe.Status[status])
    assert ended.verdict["parameters"] == "not judged: the values may not be an optimum"
    assert "determined" in chain.verdict["parameters"]


def test_html_is_escaped(chain):
    evil = replace(chain, notes=("k1 < k2 & <script>",))
    assert "k1 &lt; k2 &amp; &lt;script&gt;" in evil._repr_html_()
    loud = replace(chain, actions=("<script>",))
    assert "<script>" not in loud._repr_html_()


def test_the_table_of_estimates(chain):
    """58 degrees of freedom: half a 95 % interval is 2.0017 standard errors."""
    table = chain.to_frame()
    assert list(table.index) == ["k1", "k2"]
    assert table["estimate"].to_dict() == chain.parameters
    assert chain.parameters == pytest.approx(CASES["consecutive"].truth, rel=0.1)
    for side, end in ((-1, "lower"), (1, "upper")):
        away = side * (table[end] - table["estimate"]) / table["standard_error"]
        assert away.to_numpy() == pytest.approx(2.0017, abs=1e-4)


def test_the_fit_of_each_quantity(chain):
    table, points = chain.fit(), chain.points
    assert list(table.index) == [("1", "A"), ("1", "B"), ("1", "C")]
    assert list(table["measurements"]) == [20, 20, 20]
    assert table["sum_of_squares"].sum() == pytest.approx(chain.objective, rel=1e-6)
    squares = table["rms_residual"] ** 2 * table["measurements"]
    assert squares.to_numpy() == pytest.approx(table["sum_of_squares"].to_numpy())
    beyond = (points["measured"] - points["fitted"]).to_numpy()
    assert points["residual"].to_numpy() == pytest.approx(beyond)
    assert chain.variance == pytest.approx(chain.objective / chain.degrees)
    assert np.isnan(chain.probability)
    assert len(chain.candidates) > 1
    assert all(a.objective <= b.objective for a, b in pairwise(chain.candidates))


def test_the_correlation(chain):
    table = chain.correlation
    assert np.diag(table) == pytest.approx([1.0, 1.0])
    both = chain.covariance[0, 1] / np.sqrt(np.diag(chain.covariance).prod())
    assert table.loc["k1", "k2"] == table.loc["k2", "k1"] == pytest.approx(both)


@pytest.mark.slow
def test_known_standard_deviations_are_put_to_the_test(known_sigma):
    assert known_sigma.variance == 1.0
    assert known_sigma.reduced_chi_squared == pytest.approx(known_sigma.objective / 19)
    assert 0.01 < known_sigma.probability < 0.99
    said = str(known_sigma.details)
    assert "Chi squared per degree of freedom" in said
    assert "Weighted sum of squares" in said
    weights = known_sigma.points["residual"] / 0.01
    assert known_sigma.fit()["sum_of_squares"].iloc[0] == pytest.approx(weights @ weights)
    assert fitted("k1", sigma=0.002).probability < 1e-6
    assert known_sigma.to_frame().loc["k1", "unit"] == "1/h"
    assert str(known_sigma).splitlines()[-1].endswith("  1/h")
    assert set(known_sigma.points["unit"]) == {"mol/L"}


def test_standard_deviations_far_larger_than_the_residuals_are_named():
    large = fitted("k1", "k2", sigma=100.0)
    words = " ".join(str(large).split())
    assert "The given standard deviations are far larger than the residuals of " in words
    assert "Check sigma and its unit" in words
    assert words.index("Check sigma") < words.index("Not determined: ")


@pytest.mark.parametrize(("leverage", "says"), [(0.9996, False), (0.0004, True)])
def test_standard_deviations_are_not_too_large_where_unknowns_fit_a_quantity(leverage, says):
    """Each of these measurements has an unknown of its own: it leaves almost no residual."""
    residual = 1e-3 * np.resize([1.0, -2.0, 1.0], 12)
    points = pd.DataFrame({"name": "A", "residual": residual, "measured": 1.0, "sigma": 0.1})
    points["leverage"] = leverage
    said = list(oversized(points))
    assert bool(said) is says
    assert all("A (about 71 times)" in one for one in said)


def test_ends_that_bounds_set_are_told_apart_by_their_digits(chain):
    p = replace(chain.estimates[0], value=2.0589, lower=2.0588, upper=2.059, standard_error=0.1)
    shown = str(replace(chain, estimates=(p, *chain.estimates[1:])))
    assert "2.058800 … 2.059000" in shown


def test_how_many_starts_agree_where_there_is_one_candidate(chain):
    best = chain.objective
    one = replace(chain.candidates[0], objective=best, reached=(2.0, 2.0001, 9.0, np.inf))
    result = replace(chain, candidates=(one,))
    assert result.verdict["optimum"].startswith("2 of 4 starts agree; ")
    assert igpe.Result.from_json(result.to_json()).verdict == result.verdict
    lonely = replace(chain, candidates=(replace(one, reached=(2.0, 3.0, 9.0, np.inf)),))
    assert lonely.verdict["optimum"].startswith("only 1 of 4 starts reached it; ")
    left = replace(one, objective=2 * best)  # the result is not where the starts ended
    words = replace(chain, candidates=(left,)).verdict["optimum"]
    assert words.startswith("one search only; ")


@pytest.mark.parametrize("is_limited", [False, True])
def test_what_step_4_said_of_values_that_step_5_changed_is_not_said(monkeypatch, is_limited):
    """Held at the smoothed start value, the rest of the unknowns fits badly at first."""

    model = ode(
        {"A": lambda m, t: -m.k * m.A[t] * m.C[t], "C": lambda m, t: -m.q * m.C[t]},
        k=(0, 5),
        q=(0, 5),
    )

    times = np.linspace(0, 4, 9)
    exact = np.exp(-2.0 * (1 - np.exp(-times)))
    noise = 1e-5 * np.random.default_rng(3).standard_normal(9)
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "A": exact + noise}),
        start={"A": igpe.Unknown(0.1, 3), "C": 1.0}, sigma=1e-5,
    )  # fmt: skip
    monkeypatch.setattr(shooting_base, "limited", lambda fit: is_limited)
    result = igpe.estimate(igpe.Problem(model, parameters=["k", "q"], experiments=run))
    assert result.verdict["fit"].startswith("good")
    assert result.candidates[0].reached[0] > 10 * result.objective
    assert "larger than the measurement errors can explain" not in str(result.details)
    assert "standard errors are therefore unreliable" not in " ".join(str(result.details).split())


def test_a_parameter_on_its_bound(on_bound):
    k1 = on_bound.to_frame().loc["k1"]
    assert k1["estimate"] == pytest.approx(0.0, abs=1e-6)
    assert k1["remark"] == "on its lower bound"
    assert np.isnan(k1["standard_error"])
    assert "Parameters  k1 at a bound" in str(on_bound)
    assert "  at bound" in str(on_bound)
    assert "At a bound: k1." in str(on_bound)
    assert "Intervals" not in str(on_bound.details)
    assert on_bound.degrees == 20


def test_a_parameter_in_no_equation_is_named():
    model = ode({"A": lambda m, t: -m.k * m.A[t]}, k=(0, 10), unused=(0, 1))

    times = np.linspace(0.2, 2.0, 8)
    data = pd.DataFrame({"time": times, "A": np.exp(-times)})
    run = igpe.Experiment(data, start={"A": 1.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(model, parameters=["k", "unused"], experiments=run)
    said = " ".join(str(igpe.estimate(problem, certify=False)).split())
    assert "no equation depends on unused, so igpe did not estimate unused." in said


def test_an_unreachable_parameter_is_held_and_named(unreachable):
    q = unreachable.to_frame().loc["q"]
    assert (q["estimate"], q["found_by"]) == (2.0, "held")
    assert q["remark"] == "no measured quantity depends on it"
    assert any(n.startswith("q not identifiable") for n in unreachable.notes)
    assert "Parameters  k1 determined; q not determined" in str(unreachable)
    assert (
        "No measured quantity depends on q, so igpe did not estimate q. Measure D as well"
        in " ".join(str(unreachable).split())
    )
    table = unreachable.correlation
    assert table.loc["k1", "k1"] == pytest.approx(1.0)
    assert table["q"].isna().all()


def test_only_a_product_is_determined(product):
    table = product.to_frame()
    assert table["estimate"].prod() == pytest.approx(0.5, abs=0.02)
    assert list(table["remark"]) == ["not determined by the data"] * 2
    assert np.isinf(table["standard_error"]).all()
    (one,) = product.combined
    assert one.functions == ("k1*k2",)
    (value,), (error,) = one.values, one.standard_errors
    assert value == pytest.approx(table["estimate"].prod())
    assert abs(value - 0.5) < 3 * error < 0.06
    shown = re.search(r"k1 and k2 only as k1\*k2 = (.+) ± (.+)\n", str(product))
    assert [float(v) for v in shown.groups()] == pytest.approx([value, error], rel=0.05)
    assert str(product).count("  not determined\n") == 2


def test_a_far_end_of_an_interval_has_no_more_digits_than_it_deserves(chain):
    one = replace(chain.estimates[0], value=0.0491, standard_error=0.001, lower=0.0464, upper=51.88)
    assert one.texts == ["0.04910", "0.04640", "51.9"]
    assert replace(one, upper=1e9).texts[-1] == "1.00e+09"


def test_an_interval_that_may_be_too_short_determines_nothing(chain):
    assert chain.verdict["parameters"].startswith("both determined")
    note = WITHOUT_PROFILE.format("k1")
    rough = replace(chain, notes=(*chain.notes, note))
    assert rough.verdict["parameters"].startswith("k2 determined; k1 uncertain")


def test_a_function_that_is_not_known_from_zero_is_called_uncertain(product):
    (one,) = product.combined
    unsure = replace(product, combined=(replace(one, standard_errors=(0.6 * one.values[0],)),))
    assert re.search(r"only as k1\*k2 \(uncertain: 0\.\d+ ± 0\.\d+\)\n", str(unsure))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (0.2, "k1, k2 uncertain (standard errors up to 20 %); ratio of k1 and k2 determined"),
        (0.8, "k1 and k2 only as a ratio"),
    ],
)
def test_a_ratio_is_said_to_be_all_that_is_known_only_where_it_is(chain, error, said):
    errors = error * np.array([p.value for p in chain.estimates])
    with_errors = [
        replace(p, standard_error=e, lower=p.value - e, upper=p.value + e)
        for p, e in zip(chain.estimates, errors, strict=True)
    ]
    covariance = np.outer(errors, errors) * np.array([[1, 0.999], [0.999, 1]])
    unsure = replace(chain, estimates=tuple(with_errors), covariance=covariance)
    assert unsure.verdict["parameters"].startswith(said)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([(0.6, 1.6), (0.6, 1.6)], "ratio of k1 and k2 determined"),
        ([(0.6, 1.6), (0.6, 9.0)], "k1, k2 uncertain"),
        ([(0.0, 1.6), (0.0, 1.6)], "k1, k2 uncertain"),
    ],
)
def test_a_ratio_that_intervals_by_profile_contradict_is_not_said(chain, ends, said):
    """The covariance knows the nearest surroundings only."""
    values = np.array([p.value for p in chain.estimates])
    estimates = tuple(
        replace(p, standard_error=0.2 * p.value, lower=low * p.value, upper=high * p.value)
        for p, (low, high) in zip(chain.estimates, ends, strict=True)
    )
    note = BY_PROFILE.format(95, "k1, k2")
    covariance = 0.04 * np.outer(values, values) * np.array([[1, 0.999], [0.999, 1]])
    result = replace(chain, estimates=estimates, covariance=covariance, notes=(note,))
    words = result.verdict["parameters"]
    assert said in words
    assert ("ratio" in words) == ("ratio" in said)
    assert "Intervals: 95 %, by profile likelihood" in str(result.details)
    one = replace(result, notes=(BY_PROFILE.format(95, "k2"),))
    words = " ".join(str(one.details).split())
    assert "Intervals: 95 %, linearised, except for those from profile likelihood" in words


def test_words_of_results_that_were_stored_earlier_are_read(chain, unreachable):
    note = "The 95 % intervals of k1, k2 are by profile likelihood (igpe.profile)."
    assert replace(chain, notes=(note,)).profiled == {"k1", "k2"}
    *others, q = unreachable.estimates
    assert q.name == "q"
    stored = replace(q, remark="nothing measured depends on it")
    assert "q not determined" in str(replace(unreachable, estimates=(*others, stored)))


@pytest.mark.slow
def test_no_combination_is_named_where_events_move_what_is_measured():
    """The exact test knows no events, so it is silent where there are some."""

    def model(times):
        m = tank(times)
        m.rate_D.deactivate()
        m.k_D = pyo.Constraint(m.t, rule=lambda m, t: m.dD[t] == 0)
        return m

    event = igpe.Event(at=1.0, delay="q", add={"A": "k2"})
    exact = np.where(TIMES < 2.6, np.exp(-TIMES), np.exp(-TIMES) + 3 * np.exp(2.6 - TIMES))
    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "A": exact + NOISE}),
        start={"A": 1.0, "D": 1.0}, start_time=0.0, events=[event],
    )  # fmt: skip
    result = igpe.estimate(igpe.Problem(model, parameters=["k1", "k2", "q"], experiments=run))
    assert not result.combined


@pytest.mark.parametrize("kind", KINDS)
def test_json_keeps_everything(kind, request, tmp_path):
    result = request.getfixturevalue(kind)
    path = tmp_path / "result.json"
    written = result.to_json(path)
    json.loads(written, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    for back in (igpe.Result.from_json(written), igpe.Result.from_json(str(path))):
        assert back.to_dict() == result.to_dict()
        assert str(back) == str(result)
        assert str(back.details) == str(result.details)
        assert back.certificates == result.certificates
        assert back.candidates == result.candidates
        np.testing.assert_array_equal(back.covariance, result.covariance)
        pd.testing.assert_frame_equal(back.points, result.points)
        pd.testing.assert_frame_equal(back.curves, result.curves)
        pd.testing.assert_frame_equal(back.to_frame(), result.to_frame())


def test_what_was_stored_without_settings_is_read(chain):
    """Results did not always keep them."""
    older = chain.to_dict()
    assert older.pop("settings").startswith("Settings(ladder=(GcvSpline(")
    assert igpe.Result.from_dict(older).settings == ""
    with pytest.raises(igpe.errors.DataError, match=r"lacks \['points'\]"):
        igpe.Result.from_dict({k: v for k, v in older.items() if k != "points"})
    with pytest.raises(
        igpe.errors.DataError, match="result has the format 99; this version of igpe reads format 1"
    ):
        igpe.Result.from_json(chain.to_json().replace('"format": 1', '"format": 99'))


@pytest.mark.slow
def test_no_file_of_others_is_replaced(chain, tmp_path):
    for name, write in (("notes.json", chain.to_json), ("notes.html", chain.report)):
        path = tmp_path / name
        path.write_text('{"mine": 1}', encoding="utf-8")
        with pytest.raises(igpe.errors.DataError, match="already exists"):
            write(path)
        assert path.read_text(encoding="utf-8") == '{"mine": 1}'


def test_a_text_is_not_taken_for_a_number(chain):
    """Experiments may be called Infinity, and notes may be empty of sense."""
    points = chain.points.assign(experiment="Infinity", unit="-Infinity", sigma=np.inf)
    odd = replace(chain, points=points, notes=("Infinity", "None"), probability=-np.inf)
    back = igpe.Result.from_json(odd.to_json())
    pd.testing.assert_frame_equal(back.points, points)
    assert (back.notes, back.probability) == (odd.notes, -np.inf)
    assert odd.to_dict()["probability"] == {"number": "-Infinity"}


def test_the_front_of_the_json(known_sigma):
    found = known_sigma.to_dict()
    assert found["format"] == 1
    assert found["parameters"] == known_sigma.parameters
    assert found["status"] == "CONVERGED"
    assert found["verdict"] == known_sigma.verdict
    assert list(found["verdict"]) == ["fit", "parameters", "optimum"]


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (1.0, 0.00034, "1.00000"),
        (12.214, 0.25, "12.21"),
        (2.784e-4, 5.5e-5, "0.000278"),
        (123456.0, 2e6, "1.2e+05"),
        (10.0, 200.0, "10"),
        (937.2, 1129.0, "937"),
        (5000.0, 400.0, "5000"),
        (0.0, 0.1, "0"),
        (3.14159265, np.nan, "3.14159"),
        (np.inf, 1.0, "∞"),
        (-np.inf, 1.0, "-∞"),
        (np.nan, 1.0, ""),
    ],
)
def test_numbers_have_the_digits_they_deserve(value, error, shown):
    assert number(value, error) == shown


def test_the_numbers_of_a_row_have_one_notation():
    assert numbers((100770.0, 99589.0, 101960.0), 600.0) == ["100770", "99589", "101960"]
    assert numbers((60420.0, 59080.0, 61770.0), 690.0) == ["6.042e+04", "5.908e+04", "6.177e+04"]
    assert numbers((1e9, 5.0, np.inf), 1.0) == ["1000000000", "5.00", "∞"]


@pytest.mark.parametrize(
    ("value", "sign", "shown"),
    [
        (1.15377, 1, "1.16"),
        (1.15377, -1, "1.15"),
        (0.86069, -1, "0.860"),
        (-0.86069, -1, "-0.861"),
        (-0.86069, 1, "-0.860"),
        (9.996e-6, 1, "1.00e-05"),
        (1.2345e-6, 1, "1.24e-06"),
        (0.0, 1, "0"),
        (0.4999999999, -1, "0.499"),
    ],
)
def test_a_proved_end_is_rounded_to_the_side_where_it_is_still_true(value, sign, shown):
    assert on_side(number(value, 0.1 * abs(value)), value, sign) == shown


@pytest.mark.parametrize(
    ("bound", "shown"), [(19.9999999996, "19.999999"), (9.9999999999e-6, "9.999999e-06")]
)
def test_a_lower_bound_is_rounded_down_in_its_last_digit(bound, shown):
    assert at_side(bound, 8, -1) == shown
