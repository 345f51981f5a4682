"""Standard deviations that are estimated: maximum likelihood, against SciPy's own minimisation."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from scipy.optimize import approx_fprime, brentq, minimize, minimize_scalar
from scipy.stats import chi2, norm

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.likelihood import of_measurements
from igpe.dynamics.shooting.estimated_errors import likelihood_residuals
from igpe.dynamics.shooting.residuals import Residuals
from igpe.numerics.least_squares.base import Linearised, have_squares
from igpe.results.residual_table import sigma_given

TIMES = np.linspace(0.0, 4.0, 25)
START = {"k": 0.8, "sd": 0.5}


def decay(times):
    """A decays; sd is an unknown error, `spread` one that grows with the prediction."""
    m = over_time(times, "A", k=(1e-2, 1e2), sd=(1e-4, 1e2))
    m.spread = pyo.Expression(m.t, rule=lambda m, t: m.sd * (0.1 + m.A[t]))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    return m


def measured(kind="sd"):
    a = 3.0 * np.exp(-0.6 * TIMES)
    spread = 0.15 * (0.1 + a) if kind == "spread" else 0.15
    return pd.DataFrame({
        "time": TIMES,
        "A": a + spread * np.random.default_rng(3).standard_normal(len(TIMES)),
    })


def problem(kind="sd", **settings):
    run = igpe.Experiment(measured(kind), start={"A": 3.0}, sigma={"A": igpe.EstimatedSigma(kind)})
    return igpe.Problem(decay, parameters=["k", "sd"], experiments=run, **settings)


def direct(kind):
    """-log L as a function of (k, sd), in closed form."""
    y = measured(kind)["A"]

    def told(x):
        a = 3.0 * np.exp(-x[0] * TIMES)
        return -norm.logpdf(y, a, x[1] * (0.1 + a) if kind == "spread" else x[1]).sum()

    return told


def test_few_measurements_make_deviations_small_and_the_result_says_so():
    few, start = measured().iloc[::6], {"A": igpe.Unknown(1, 9)}
    run = igpe.Experiment(few, start=start, start_time=0.0, sigma={"A": igpe.EstimatedSigma("sd")})
    found = igpe.estimate(igpe.Problem(decay, parameters=["k", "sd"], experiments=run))
    said = "3 unknowns from 5 measurements by maximum likelihood. Standard deviations and intervals"
    assert any(said in action and "23 % too small" in action for action in found.actions)
    assert "chi squared, two-sided" not in set(found.residual_tests()["test"])
    assert found.adequacy.tests.keys() <= {"trend", "series", "replicates"}


def test_residuals_are_not_compared_with_deviations_that_fit_them():
    points = pd.DataFrame({"sigma": [0.1, 0.1], "sigma_estimated": [1.0, 1.0]})
    assert not sigma_given(points)
    assert sigma_given(points.assign(sigma_estimated=[1.0, 0.0]))
    assert sigma_given(points[["sigma"]])


@pytest.mark.parametrize("kind", ["sd", "spread"])
@pytest.mark.parametrize("logarithmic", [(), ("k", "sd")])
def test_the_optimum_is_that_of_the_likelihood(kind, logarithmic):
    posed = problem(kind, logarithmic=logarithmic)
    found = igpe.SingleShooting().estimate(posed, START)
    options = {"xatol": 1e-10, "fatol": 1e-12}
    best = minimize(direct(kind), [0.6, 0.15], method="Nelder-Mead", options=options)
    assert found.status is igpe.Status.CONVERGED
    assert list(found.parameters.values()) == pytest.approx(best.x, rel=1e-5)
    constant = len(TIMES) * np.log(2 * np.pi)
    assert (found.objective + constant) / 2 == pytest.approx(best.fun, rel=1e-8)
    told = igpe.dynamics.likelihood.negative_log_likelihood(posed, found.parameters)
    assert told == pytest.approx(best.fun, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sd", "spread"])
def test_profiles_are_those_of_the_likelihood(kind):
    posed, told = problem(kind), direct(kind)
    profiles = igpe.profile(posed, igpe.estimate(posed, certify=False))
    best = profiles.parameters["k"], profiles.parameters["sd"]
    level = told(best) + 0.5 * chi2.ppf(0.95, 1)

    def rise(i, value):
        held = lambda other: told([value, other] if i == 0 else [other, value])  # noqa: E731
        bounds = (0.5 * best[1 - i], 2 * best[1 - i])
        found = minimize_scalar(held, bounds=bounds, method="bounded", options={"xatol": 1e-9})
        return found.fun - level

    for i, profile in enumerate(profiles.profiles):
        for end, far in ((profile.lower, 0.3), (profile.upper, 3.0)):
            expected = brentq(lambda v: rise(i, v), best[i], far * best[i], rtol=1e-8)  # noqa: B023
            assert end == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["sd", "spread"])
def test_cost_and_gradient_are_those_of_the_likelihood(kind):
    posed = problem(kind)
    residuals = Residuals(posed, Automatic())
    x = np.array([0.5, 0.3])
    at = residuals(x)
    constant = len(TIMES) * np.log(2 * np.pi)
    assert (at.cost + constant) / 2 == pytest.approx(direct(kind)(x), rel=1e-7)
    slope = approx_fprime(x, direct(kind), 1e-7)
    assert at.jacobian.T @ at.residual == pytest.approx(slope, rel=1e-4)


def test_the_information_is_fishers():
    posed = problem()
    at = Residuals(posed, Automatic())(np.array([0.6, 0.2]))
    slope = -3.0 * TIMES * np.exp(-0.6 * TIMES)
    expected = [[slope @ slope / 0.04, 0.0], [0.0, 2 * len(TIMES) / 0.04]]
    assert at.jacobian.T @ at.jacobian == pytest.approx(np.array(expected), rel=1e-5, abs=1e-8)


def test_numbers_beside_estimated_ones_and_priors():
    def two(times):
        m = decay(times)
        m.B = pyo.Expression(m.t, rule=lambda m, t: 2 * m.A[t])
        return m

    table = measured().assign(B=lambda t: 2 * t["A"])
    sigma = {"A": igpe.EstimatedSigma("sd"), "B": 0.5}
    run = igpe.Experiment(table, start={"A": 3.0}, sigma=sigma)
    priors = {"k": igpe.losses.NormalPrior(1.0, 0.01)}
    posed = igpe.Problem(two, parameters=["k", "sd"], experiments=run, priors=priors)
    a = 3.0 * np.exp(-0.7 * TIMES)
    expected = -norm.logpdf(table["A"], a, 0.2).sum() - norm.logpdf(table["B"], 2 * a, 0.5).sum()
    values = {"k": 0.7, "sd": 0.2}
    assert igpe.dynamics.likelihood.negative_log_likelihood(posed, values) == pytest.approx(
        expected, rel=1e-7
    )
    more = igpe.dynamics.likelihood.negative_log_likelihood(posed, values, priors=True) - expected
    assert more == pytest.approx(-norm.logpdf(0.7, 1.0, 0.01), rel=1e-5)
    found = igpe.SingleShooting().estimate(posed, START)
    assert 0.9 < found.parameters["k"] < 1.0


def test_plain_residuals_of_several_experiments_are_those_of_the_measurements():
    table, sigma = measured(), {"A": igpe.EstimatedSigma("sd")}
    own = [("a", table[:9], 0.3), ("b", table[9:12], sigma), ("c", table[12:], sigma)]
    runs = [igpe.Experiment(t, name=n, start={"A": 3.0}, sigma=s, start_time=0) for n, t, s in own]
    priors = {"k": igpe.losses.NormalPrior(1.0, 0.01)}
    posed = igpe.Problem(decay, parameters=["k", "sd"], experiments=runs, priors=priors)
    k, sd = 0.6, 0.2
    plain = of_measurements(posed, Residuals(posed, Automatic())(np.array([k, sd])))
    errors = np.where(np.arange(25) < 9, 0.3, sd)
    expected = (3.0 * np.exp(-k * table["time"]) - table["A"]) / errors
    assert plain.residual == pytest.approx([*expected, (k - 1.0) / 0.01], rel=1e-5, abs=1e-6)
    slopes = -3.0 * TIMES * np.exp(-k * TIMES) / errors
    assert plain.jacobian[:, 0] == pytest.approx([*slopes, 100.0], rel=1e-5, abs=1e-6)


def test_derivatives_that_overflow_are_refused_without_a_warning():
    plain = Linearised(np.array([1.0, 1e200]), np.array([[np.inf, 0.0], [1e200, 1.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spread, slope = np.array([0.0, 1e-200]), np.array([[0.0, np.inf], [0.0, 0.0]])
        at = likelihood_residuals(plain, spread, slope, np.array([True, True]))
    assert not have_squares(*at)


def test_many_starts_find_it():
    found = igpe.search.MultiStart(trials=16, starts=4).estimate(problem(), {})
    assert found.status is igpe.Status.BEST_OF_SEVERAL
    assert found.parameters["sd"] == pytest.approx(0.15, rel=0.4)


@pytest.mark.parametrize("kind", ["sd", "spread"])
def test_the_five_steps_maximise_the_likelihood(kind):
    """Values, and standard errors by the likelihood's own second derivatives."""
    result = igpe.estimate(problem(kind))
    options = {"xatol": 1e-10, "fatol": 1e-12}
    best = minimize(direct(kind), [0.6, 0.15], method="Nelder-Mead", options=options)
    assert [result.parameters[n] for n in ("k", "sd")] == pytest.approx(best.x, rel=1e-4)
    constant = len(TIMES) * np.log(2 * np.pi)
    assert (result.objective + constant) / 2 == pytest.approx(best.fun, rel=1e-6)
    slope = lambda x: approx_fprime(x, direct(kind), 1e-6)  # noqa: E731
    curved = [approx_fprime(best.x, lambda x, i=i: slope(x)[i], 1e-4) for i in range(2)]
    errors = [p.standard_error for p in result.estimates]
    assert errors == pytest.approx(np.sqrt(np.diag(np.linalg.inv(curved))), rel=0.1)
    assert result.degrees == len(TIMES) - 2
    text = str(result.details)
    assert "-2 log likelihood" in text
    assert "Sum of squares" not in text
    a = result.points["fitted"]
    spread = result.parameters["sd"] * (1 if kind == "sd" else 0.1 + a)
    assert result.points["sigma"].to_numpy() == pytest.approx(spread * np.ones(len(a)), rel=1e-6)


def tied(times):
    m = decay(times)
    m.end = pyo.Constraint(expr=m.k <= 0.2)
    return m


def posed_with(sigma, builder=decay, parameters=("k", "sd")):
    run = igpe.Experiment(measured(), start={"A": 3.0}, sigma=sigma)
    return igpe.Problem(builder, parameters=list(parameters), experiments=run)


SD, SAY = igpe.EstimatedSigma("sd"), "standard deviations are estimated|estimated standard dev"
OTHERS = r"igpe\.search\.MultiStart or igpe\.search\.IteratedSearch"
LIKELIHOOD = igpe.dynamics.likelihood.negative_log_likelihood
REFUSED = [
    *(
        (lambda m=method: m().estimate(problem(), START), igpe.errors.Unsupported, OTHERS)
        for method in (igpe.IncrementalShooting, igpe.MultipleShooting, igpe.Collocation)
    ),
    *(
        (lambda ask=ask: ask(problem(), START), igpe.errors.Unsupported, SAY)
        for ask in (
            partial(igpe.profile, method=igpe.Collocation()),
            igpe.bootstrap,
        )
    ),
    (
        lambda: igpe.estimate(problem(loss=igpe.losses.Huber())),
        igpe.errors.Unsupported,
        "cannot be combined with",
    ),
    (
        lambda: igpe.estimate(posed_with({"A": SD}, tied)),
        igpe.errors.Unsupported,
        r"\['end'\] if standard deviations",
    ),
    (
        lambda: posed_with(igpe.EstimatedSigma("error"), parameters=("k",)),
        igpe.errors.DataError,
        "neither a parameter nor a time-dependent Var or Expression",
    ),
    (
        lambda: LIKELIHOOD(posed_with(None, parameters=("k",)), {"k": 1.0}),
        igpe.errors.ProblemError,
        "needs standard deviations",
    ),
    (lambda: igpe.EstimatedSigma(0.1), igpe.errors.DataError, "give the name of a quantity"),
]


@pytest.mark.parametrize(("ask", "error", "says"), REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(ask, error, says):
    with pytest.raises(error, match=says):
        ask()


@pytest.mark.parametrize("kind", ["sd", "spread"])
@pytest.mark.parametrize("k", [3.0, 7.0])
def test_far_off_cost_and_gradient_are_not_lost_in_rounding(kind, k):
    """Where residuals are 1e3 to 1e14 standard deviations."""
    residuals, x = Residuals(problem(kind), Automatic()), np.array([k, 1e-4])
    at = residuals(x)
    y, a = measured(kind)["A"], 3.0 * np.exp(-k * TIMES)
    s = 1e-4 * (0.1 + a) if kind == "spread" else 1e-4 * np.ones(len(a))
    assert at.cost == pytest.approx(np.sum(((a - y) / s) ** 2 + 2 * np.log(s)), rel=1e-4)
    assert at.squares < 20 * at.cost
    by_sd = np.sum((1 - ((a - y) / s) ** 2) / 1e-4)
    assert (at.jacobian.T @ at.residual)[1] == pytest.approx(by_sd, rel=1e-4)
