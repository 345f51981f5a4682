"""Priors of all laws: their slopes against differences, and estimates against a direct minimum."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ode import ode
from one_state import one_state
from scipy.optimize import minimize_scalar
from scipy.stats import gamma, laplace

import igpe
from igpe.dynamics.search.complement import chosen_search
from igpe.dynamics.search.multistart import MultiStart
from igpe.problem.losses import LAWS

BOUNDS = {"k": (0.1, 2.0)}
NUMBERS = {1: (1.7,), 2: (0.6, 1.3)}


def decay(times, values, prior):
    law = lambda m, x: -m.k * x  # noqa: E731
    return one_state(law, BOUNDS, (times, values), 0.05, priors={"k": prior})


@pytest.mark.parametrize("scale", ["lin", "log", "log10"])
@pytest.mark.parametrize("law", LAWS)
def test_slopes_are_those_of_the_density(law, scale):
    prior = igpe.losses.Prior(law, NUMBERS[LAWS[law].size], scale)
    assert igpe.losses.Prior(law, list(NUMBERS[LAWS[law].size]), scale) == prior
    x, step = {"lin": 1.1, "log": 3.0, "log10": 9.0}[scale], 1e-6
    before, after = (prior.log_density(x + d) for d in (-step, step))
    bend = prior.bend(x)
    assert bend.slope == pytest.approx(-(after - before) / (2 * step), rel=1e-5, abs=1e-8)
    assert bend.curvature >= 0


@pytest.mark.slow
def test_a_density_that_is_cut_off_is_one_still():
    prior = igpe.losses.Prior("gamma", (2.0, 0.5), lower=0.3, upper=1.2)
    x = np.linspace(0.3, 1.2, 2001)
    assert np.trapezoid([np.exp(prior.log_density(v)) for v in x], x) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("prior", "density"),
    [
        (igpe.losses.Prior("gamma", (20.0, 0.02)), gamma(20.0, scale=0.02).logpdf),
        (igpe.losses.Prior("laplace", (0.7, 0.01)), laplace(0.7, 0.01).logpdf),
    ],
)
def test_estimates_are_those_of_a_direct_minimum(prior, density):
    times = np.linspace(0.2, 3, 8)
    values = np.exp(-0.5 * times) + 0.05 * np.cos(7 * times)
    problem = decay(times, values, prior)
    found = igpe.SingleShooting().estimate(problem, {"k": 0.6}).parameters["k"]

    def objective(k):
        return np.sum(((np.exp(-k * times) - values) / 0.05) ** 2) / 2 - density(k)

    best = minimize_scalar(objective, bounds=(0.1, 2), method="bounded", options={"xatol": 1e-10})
    assert found == pytest.approx(best.x, abs=1e-6)


@pytest.mark.parametrize(
    ("law", "numbers"), [("normal", (1.0,)), ("gamma", (-1.0, 1.0)), ("gumbel", (0.0, 1.0))]
)
def test_what_is_no_prior(law, numbers):
    with pytest.raises(igpe.errors.ProblemError):
        igpe.losses.Prior(law, numbers)


@pytest.mark.slow
def test_a_prior_with_a_kink_adds_no_squares_and_gives_no_standard_errors():
    times = np.array([1.0, 2, 3, 4, 5, 7])
    values = np.array([8.3, 10.3, 19.0, 16.0, 15.6, 19.8])  # oxygen demand, mg/L
    bounds, law = {"A": (1, 200), "k": (0.01, 10)}, lambda m, x: m.k * (m.A + 1 - x)
    prior = igpe.losses.Prior("laplace", (0.3, 0.05))
    problem = one_state(law, bounds, (times, values + 1), 2.5, priors={"k": prior})
    found = igpe.estimate(problem, certify=False)
    squares = np.sum(((values + 1 - found.points["fitted"]) / 2.5) ** 2)
    assert found.squares == pytest.approx(squares) == pytest.approx(6.1407, abs=1e-3)
    assert found.objective == pytest.approx(squares + 2 * np.log(0.1), abs=1e-6)
    assert "Weighted sum of squares 6.14" in found.details.text
    assert np.isnan(found.probability)
    assert found.reduced_chi_squared == pytest.approx(squares / found.degrees)
    a, k = found.estimates
    assert (a.lower, a.upper) == pytest.approx((19.41, 27.24), abs=0.02)
    assert np.isnan([a.standard_error, k.standard_error]).all()
    assert "product" not in str(found)


def test_profiles_leave_a_kink_where_another_value_fits_better():
    """Along the profile of a the data pull k more and more, and at last off the prior's mean."""
    times, prior = np.linspace(0.3, 4, 9), igpe.losses.Prior("laplace", (0.5, 0.01))

    def curve(a, k):
        return a / k + (1 - a / k) * np.exp(-k * times)

    values = curve(1.3, 0.52) + 0.1 * np.cos(7 * times)
    law = lambda m, x: m.a - m.k * x  # noqa: E731
    problem = one_state(law, {"a": (0.1, 9), "k": (0.05, 3)}, (times, values), 0.1,
                        priors={"k": prior})  # fmt: skip

    def least(a):
        def objective(k):
            return np.sum(((curve(a, k) - values) / 0.1) ** 2) - 2 * prior.log_density(k)

        search = {"method": "bounded", "options": {"xatol": 1e-10}}
        sides = (minimize_scalar(objective, bounds=b, **search) for b in ((0.3, 0.5), (0.5, 1)))
        return min(objective(0.5), *(side.fun for side in sides))

    made = igpe.profile(problem, {"a": 1.3, "k": 0.5}, names=["a"])
    best, (one,) = least(made["a"].estimate), made.profiles
    assert made.parameters["k"] == pytest.approx(0.5, abs=1e-4)
    rises = [least(one.lower) - best, least(one.upper) - best]
    assert rises == pytest.approx([made.rise] * 2, rel=2e-3)


def test_profiles_of_unknowns_with_kinks_go_to_their_ends():
    """An enzyme whose unknowns all have priors with a kink, and leave and meet these."""
    times, noise = np.linspace(0.5, 10, 8), 0.1 * np.random.default_rng(1).standard_normal(8)
    law = lambda m, t: -m.V * m.s[t] / (m.K + m.s[t])  # noqa: E731
    output = {"y": lambda m, t: m.b - m.s[t]}
    model = ode({"s": law}, outputs=output, V=(0.01, 100), K=(0.01, 100), b=(0, 20))
    laws = {"V": ("laplace", (0.95, 0.05)), "b": ("laplace", (5.0, 0.02)),
            "K": ("log-laplace", (-0.4, 0.3)), "s(t0)": ("log-laplace", (1.6, 0.1))}  # fmt: skip
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "y": 1.0}),
        start={"s": igpe.Unknown(0.1, 20)}, start_time=0.0, sigma=0.1,
    )  # fmt: skip
    priors = {n: igpe.losses.Prior(*given) for n, given in laws.items()}
    blank = igpe.Problem(model, parameters=["V", "K", "b"], experiments=run, priors=priors)
    truth = {"V": 1.0, "K": 0.7, "b": 5.0, "s(t0)": 5.0}
    exact = igpe.simulate(blank, truth, times)["y"]
    posed = blank.with_data(pd.DataFrame({"time": times, "y": exact + noise}))
    near = igpe.SingleShooting().estimate(posed, truth)
    made = igpe.profile(posed, near, most_integrations=2000)
    assert [p.name for p in made.profiles] == list(posed.box.names)
    assert all(p.determined for p in made.profiles)
    assert made.parameters["V"] == pytest.approx(0.95, abs=1e-6)
    assert max(p.costs.max() for p in made.profiles) < made.objective + 1.1 * made.rise


def test_methods_that_know_normal_priors_alone_say_so():
    times = np.linspace(0.2, 3, 8)
    prior = igpe.losses.Prior("laplace", (0.5, 0.1))
    problem = decay(times, np.exp(-0.5 * times), prior)
    with pytest.raises(igpe.errors.Unsupported, match="Collocation supports only normal priors"):
        igpe.Collocation().estimate(problem, {"k": 0.5})
    with pytest.raises(igpe.errors.Unsupported, match=r"igpe\.certify supports only normal priors"):
        igpe.certify(problem, {"k": 0.5})
    assert igpe.estimate(problem).parameters["k"] == pytest.approx(0.5, abs=1e-3)


def test_constraints_beside_them_are_left_to_multiple_shooting():
    """Collocation, which keeps constraints otherwise, knows normal priors alone."""
    times, prior = np.linspace(0.2, 3, 8), igpe.losses.Prior("laplace", (0.5, 0.1))
    problem = decay(times, np.exp(-0.5 * times), prior)
    problem.starts = (replace(problem.starts[0], others={"least": None}),)
    search = chosen_search(problem, {}, MultiStart())
    assert isinstance(search.local, igpe.MultipleShooting)


def test_a_prior_that_the_bounds_contradict_is_refused():
    times = np.linspace(0.2, 3, 8)
    with pytest.raises(igpe.errors.ProblemError, match=r"'k' is 50 ± 0\.1, but its bounds are"):
        decay(times, np.exp(-0.5 * times), igpe.losses.NormalPrior(50.0, 0.1))


@pytest.mark.parametrize(("mean", "deviation", "disagrees"), [(1.5, 0.01, True), (0.7, 0.2, False)])
def test_a_prior_that_the_measurements_contradict_is_the_cause_of_a_lack_of_fit(
    mean, deviation, disagrees
):
    times = np.linspace(0.1, 4, 25)
    values = np.exp(-0.6 * times) + 0.05 * np.random.default_rng(2).standard_normal(25)
    prior = igpe.losses.NormalPrior(mean, deviation)
    result = igpe.estimate(decay(times, values, prior), certify=False)
    said = " ".join(str(result).split())
    assert result.adequacy.lacks is disagrees
    sentence = f"The prior of k ({mean:g} ± {deviation:g}) and the measurements disagree by "
    assert (sentence in said) is disagrees
    assert "improve the model" not in said


def test_where_a_kink_or_the_prior_of_an_error_holds_an_unknown_the_fit_is_judged():
    """There the squares alone still have a slope, which the prior or the logarithms balance."""
    times = np.linspace(0.1, 4, 12)
    values = np.exp(-0.6 * times) + 0.05 * np.cos(7 * times)
    kink = decay(times, values, igpe.losses.Prior("laplace", (0.55, 0.01)))
    found = igpe.estimate(kink, certify=False)
    assert found.parameters["k"] == pytest.approx(0.55, abs=1e-4)
    assert found.adequacy.verdict == "adequate"

    model = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0.1, 2.0), sd=(1e-3, 1.0))
    data = pd.DataFrame({"time": times, "x": values})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma={"x": igpe.EstimatedSigma("sd")})
    prior = igpe.losses.NormalPrior(0.1, 0.01)
    priors = {"sd": prior}
    problem = igpe.Problem(model, parameters=["k", "sd"], experiments=[run], priors=priors)
    found = igpe.estimate(problem, certify=False)
    assert found.parameters["sd"] < prior.mean - prior.deviation
    assert found.adequacy.verdict == "adequate"
