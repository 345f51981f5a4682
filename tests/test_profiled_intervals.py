"""Intervals by profile where the curvature at the optimum does not give them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time, row
from scipy.integrate import solve_ivp

import igpe
from igpe.core.status import Status
from igpe.dynamics.shooting import refine
from igpe.estimation.profiled import (
    LOST,
    _can_profile,
    _intervals,
    _with_interval,
    _with_intervals,
    _with_widened,
)
from igpe.results.result_data import Parameter
from igpe.uncertainty.profile import ParameterProfile, Profiles, followed

TIMES = np.linspace(0.1, 5, 25)


enzyme = ode({"S": lambda m, t: -m.V * m.S[t] / (m.K + m.S[t])}, V=(0.01, 1000), K=(0.01, 1000))
"""Michaelis and Menten."""


def problem(start, speed=0.5, seed=1):
    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(TIMES))
    blank = pd.DataFrame({"time": TIMES, "S": 0.0})
    given = {"start": {"S": start}, "start_time": 0.0, "sigma": 0.01}
    posed = igpe.Problem(enzyme, parameters=["V", "K"], experiments=igpe.Experiment(blank, **given))
    exact = igpe.simulate(posed, {"V": speed, "K": 1.0}, TIMES)["S"].to_numpy()
    return posed.with_data(pd.DataFrame({"time": TIMES, "S": exact + noise}))


def bounded(most, **kwargs):
    """The best `V` is above its bound, `most`."""
    return igpe.Problem(
        enzyme,
        parameters={"V": (0.01, most), "K": (0.01, 1000)},
        experiments=problem(**kwargs).experiments,
    )


@pytest.mark.parametrize(
    ("many", "status", "can"),
    [
        (2, Status.CONVERGED, True),
        (2, Status.ITERATION_LIMIT, False),
        (3, Status.ITERATION_LIMIT, True),  # few unknowns: a profile ends the search
    ],
)
def test_a_search_that_was_given_up_has_no_profiles(monkeypatch, many, status, can):
    monkeypatch.setattr(refine, "MANY", many)
    posed = problem(start=3.0)
    result = replace(igpe.estimate(posed, certify=False), status=status)
    at = igpe.SingleShooting().prepare(posed).residuals(posed.box.vector(result.parameters))
    steps = SimpleNamespace(problem=posed, best=SimpleNamespace(at=at))
    assert _can_profile(steps, result) is can


@pytest.mark.slow
def test_an_interval_of_a_flat_sum_of_squares_is_by_profile():
    posed = problem(start=0.2)
    result = igpe.estimate(posed)
    profiles = igpe.profile(posed, result)
    for one in result.estimates:
        assert one.lower == pytest.approx(profiles[one.name].lower, rel=1e-2)
        assert one.upper == pytest.approx(profiles[one.name].upper, rel=1e-2)
    assert any("come from profile likelihood" in n for n in result.notes)
    limited = "The interval of V depends on the bounds of K: wider bounds may widen the interval."
    assert limited in result.notes
    assert limited in profiles.notes
    assert profiles["V"].others[-1, 1] == pytest.approx(1000)  # where the interval of V ends
    roomy = problem(start=20.0, speed=5.0)
    known = igpe.profile(roomy, igpe.estimate(roomy))
    assert not any("bounds" in n for n in known.notes)
    assert result.to_frame().loc["K", "upper"] > 1.0


def test_well_determined_unknowns_are_not_profiled():
    result = igpe.estimate(problem(start=3.0, speed=2.0))
    assert "profiles" not in result.seconds
    frame = result.to_frame()
    half = (frame["upper"] - frame["lower"]) / 2
    assert (half / frame["standard_error"]).to_numpy() == pytest.approx(1.96, rel=1e-3)


def test_where_one_search_alone_reached_the_estimate_all_unknowns_are_profiled(monkeypatch):
    monkeypatch.setattr("igpe.estimation.profiled.agreement", lambda result: (1, 4, "searches"))
    assert igpe.estimate(problem(start=3.0, speed=2.0)).profiled == {"V", "K"}


def test_the_interval_of_an_unknown_on_its_bound_is_by_profile():
    narrow = bounded(1.9, start=3.0, speed=2.0)
    result = igpe.estimate(narrow)
    profiles = igpe.profile(narrow, result)
    frame = result.to_frame()
    assert frame.loc["V", "remark"] == "on its upper bound"
    assert frame.loc["V", "lower"] == pytest.approx(profiles["V"].lower, rel=1e-2)
    assert frame.loc["V", "upper"] == 1.9


@pytest.mark.slow
def test_an_interval_without_a_profile_holds_what_the_profiles_of_others_show(monkeypatch):
    narrow = bounded(0.3, start=0.2, seed=2)
    exact = igpe.estimate(narrow).to_frame().loc["K"]

    def only_first(job, values, names, most):
        return followed(job, values, ["V"], most)

    monkeypatch.setattr("igpe.estimation.profiled.followed", only_first)
    monkeypatch.setattr("igpe.estimation.profiled._doubtful", lambda *_: ["V", "K"])
    result = igpe.estimate(narrow)
    assert result.profiled == {"V"}
    assert "could not compute profile likelihoods of K" in result.notes[-2]
    assert "intervals reach as far as the profiles of other unknowns do" in result.actions[-1]
    assert result.to_frame().loc["K", "lower"] == pytest.approx(exact["lower"], rel=0.02)


@pytest.mark.parametrize(
    ("ends", "remark"),
    [
        (("", "open"), ""),
        (("bound reached", ""), ""),
        (("open", "bound reached"), "not determined by the data"),
    ],
)
def test_a_profile_open_on_both_sides_determines_nothing(ends, remark):
    none = np.zeros(0)
    one = Parameter("k", 1.0, 0.5, 0.0, 2.0, "", (0.0, 10.0), "step 3")
    by = ParameterProfile("k", "", 1.0, 0.0, 10.0, *ends, none, none, none)
    assert _with_interval(one, by).remark == remark


def test_a_standard_error_that_a_profile_contradicts_is_not_kept():
    """Near a double root the curvature is too small: half of the interval says more."""
    none = np.zeros(0)
    one = Parameter("k", 1.0, 2.0, -3.0, 5.0, "", (-10.0, 10.0), "step 3")
    short = ParameterProfile("k", "", 1.0, 0.6, 1.4, "", "", none, none, none)
    assert np.isnan(_with_interval(one, short).standard_error)
    assert _with_interval(one, short).error == pytest.approx(0.2)
    usual = replace(short, lower=-2.0)
    assert _with_interval(one, replace(usual, upper=4.0)).standard_error == 2.0


def test_the_end_of_a_profile_that_broke_on_its_other_side_is_used():
    """There is no further solution below, where the linearised interval stays."""
    one = Parameter("k", 1.0, 10.0, 1e-6, 100.0, "", (1e-6, 100.0), "step 4")
    values, costs = np.array([0.5, 1.0, 2.0]), np.array([1.5, 0.0, 3.0])
    by = ParameterProfile(
        "k", "", 1.0, 0.5, 2.0, "no further solution", "", values, costs, values[:, None]
    )
    made = Profiles(("k",), {"k": 1.0}, 0.0, {"k": 3.84}, 0.95, (by,), {})
    (half,) = _intervals((one,), made)
    assert (half.lower, half.upper, half.remark) == (1e-6, 2.0, "")
    assert np.isnan(half.standard_error)


@pytest.mark.parametrize(
    ("others", "remark"),
    [((["b"], ["c"]), "not determined by the data"), (([], ["c"]), "")],
)
def test_what_only_bounds_of_others_end_stays_undetermined(others, remark):
    none = np.zeros(0)
    one = Parameter("k", 1.0, 0.5, 0.0, 2.0, "", (0.0, 10.0), "step 3", LOST)
    by = ParameterProfile("k", "", 1.0, 0.5, 9.0, "", "", none, none, none)
    assert _with_interval(one, by, others).remark == remark


@pytest.mark.slow
def test_a_product_that_only_the_first_order_shows_is_said():
    """igpe.check cannot say so: it knows no switches that states move."""

    build = ode(
        {"x": lambda m, t: -m.a * m.b * m.x[t] * pyo.Expr_if(m.x[t] > 0.4, 1, 0.5)},
        a=(0.1, 5),
        b=(0.1, 5),
    )

    times = np.linspace(0, 2, 12)
    exact = np.where(times < 0.9163, np.exp(-times), 0.4 * np.exp(-0.5 * (times - 0.9163)))
    data = pd.DataFrame({"time": times, "x": exact + 0.01 * np.sin(9 * times)})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma=0.01)
    result = igpe.estimate(igpe.Problem(build, parameters=["a", "b"], experiments=run))
    assert result.verdict["parameters"] == "both not determined"
    said = " ".join(str(result).split())
    assert "The measurements do not determine a and b separately: to first order" in said


@pytest.mark.slow
@pytest.mark.parametrize(("lower", "remark"), [(0.01, "not determined by the data"), (1.0, "")])
def test_an_interval_that_others_widen_to_all_its_bounds_determines_nothing(lower, remark):
    result = igpe.estimate(problem(start=3.0, speed=2.0), certify=False)
    one, other = result.estimates
    reached = np.array([[lower, 1.0], [1000.0, 1.0]])
    none = np.zeros(2)
    by = ParameterProfile("K", "", 1.0, 0.9, 1.1, "", "", np.array([0.9, 1.1]), none, reached)
    made = Profiles(("V", "K"), result.parameters, 0.0, dict.fromkeys("VK", 1.0), 0.95, (by,), {})
    unasked = _with_intervals(result, made, ["K"])
    result = _with_intervals(result, made, ["V", "K"])
    widened = result.estimates[0]
    assert (widened.lower, widened.upper) == (lower, 1000.0)
    assert (one.name, other.name, widened.remark) == ("V", "K", remark)
    # no standard error stands beside a longer interval, and no sentence calls it linearised
    assert np.isnan(widened.standard_error)
    linearised = [n for n in result.notes if "linearised" in n]
    longer = [n for n in result.actions if "reach as far as the profiles of other unknowns" in n]
    assert not linearised
    assert len(longer) == (remark == "")
    named = [n for n in unasked.notes if n.startswith("V: profiles of other unknowns widen")]
    assert len(named) == (remark == "")


def test_an_unknown_that_leaves_its_interval_on_another_profile_has_a_profile_of_its_own():
    of = problem(start=3.0, speed=2.0)
    result = igpe.estimate(of, certify=False)
    v = result.estimates[0]
    own = igpe.profile(of, result)["V"]
    reached = np.array([[v.lower - 0.01 * v.value, 1.0], [v.upper, 1.0]])
    by = ParameterProfile(
        "K", "", 1.0, 0.9, 1.1, "", "", np.array([0.9, 1.1]), np.zeros(2), reached
    )
    rises = dict.fromkeys("VK", 3.84)
    made = Profiles(("V", "K"), result.parameters, result.objective, rises, 0.95, (by,), {})
    found = _with_widened(of, result, made, igpe.Settings())["V"]
    assert (found.lower, found.upper) == pytest.approx((own.lower, own.upper), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_an_unknown_whose_interval_ends_at_a_bound_but_for_rounding_is_uncertain(end):
    result = igpe.estimate(problem(start=3.0, speed=2.0))
    assert result.verdict["parameters"].startswith("both determined")
    one, rest = result.estimates
    reached = {"lower": 0.01 * (1 + 1e-12), "upper": 1000 * (1 - 1e-12)}[end]
    open_ended = replace(result, estimates=(replace(one, **{end: reached}), rest))
    assert "V uncertain" in open_ended.verdict["parameters"]


relaxation = ode(
    {"x": lambda m, t: m.y[t], "y": lambda m, t: m.mu * (1 - m.x[t] ** 2) * m.y[t] - m.x[t]},
    mu=(50, 200),
)
"""van der Pol with mu near 100: rests, and jumps at times that mu moves."""


@pytest.mark.slow
def test_an_interval_that_is_certainly_too_short_is_made_by_profile():
    """The next measurement that a jump passes makes the curvature; the other side is flat."""
    times = np.linspace(0, 300, 61)
    exact = solve_ivp(
        lambda t, v: [v[1], 100 * (1 - v[0] ** 2) * v[1] - v[0]],
        (0, 300), [2.0, 0.0], t_eval=times, method="LSODA", rtol=1e-9, atol=1e-12,
    ).y[0]  # fmt: skip
    noise = 0.05 * np.random.default_rng(0).standard_normal(len(times))
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "x": exact + noise}), start={"x": 2.0, "y": 0.0}, sigma=0.05
    )
    result = igpe.estimate(igpe.Problem(relaxation, parameters=["mu"], experiments=run))
    (mu,) = result.estimates
    assert result.profiled == {"mu"}
    assert mu.standard_error < 0.002
    assert mu.upper - mu.lower > 0.1


oral = ode(
    {"G": lambda m, t: -m.ka * m.G[t], "C": lambda m, t: m.ka * m.G[t] / m.V - m.ke * m.C[t]},
    ka=(0.01, 10),
    ke=(0.01, 10),
    V=(0.1, 100),
)
"""One compartment after an oral dose: ka and ke exchange their values."""


@pytest.mark.slow
def test_unknowns_that_only_the_first_order_leaves_open_have_profiles():
    """The best fit has ka = ke, where the Jacobian has no full rank."""
    times = np.linspace(0.5, 10, 20)
    exact = 5 * times * np.exp(-0.5 * times) + 0.05 * np.sin(0.5 * times)
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "C": exact}), start={"G": 100.0, "C": 0.0},
        start_time=0.0, sigma=0.1,
    )  # fmt: skip
    posed = igpe.Problem(oral, parameters=["ka", "ke", "V"], experiments=run)
    result = igpe.estimate(posed, certify=False)
    assert np.isinf(result.covariance).any()  # to first order nothing holds ka - ke
    assert "not determined" not in str(result)
    for one, other in zip(result.estimates, igpe.profile(posed, result).profiles, strict=True):
        assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper), rel=0.02)
    assert result.to_frame().loc["V", "upper"] < 20


brusselator = ode(
    {
        "X": lambda m, t: m.a - (m.b + 1) * m.X[t] + m.X[t] ** 2 * m.Y[t],
        "Y": lambda m, t: m.b * m.X[t] - m.X[t] ** 2 * m.Y[t],
    },
    a=(0.1, 5),
    b=(0.1, 8),
)


@pytest.mark.slow
def test_rounding_errors_need_no_profile():
    """How much the sum of squares of exact data rises is rounding and errors of integration."""
    times = np.linspace(0, 30, 1501)

    def rates(_, y):
        growth = y[0] ** 2 * y[1]
        return [1 - 3.6 * y[0] + growth, 2.6 * y[0] - growth]

    exact = solve_ivp(
        rates, (0, 30), [1.2, 3.1], t_eval=times, rtol=1e-10, atol=1e-12, method="LSODA"
    )
    free = {"X": igpe.Unknown(0, 6), "Y": igpe.Unknown(0, 6)}
    run = igpe.Experiment(pd.DataFrame({"time": times, "X": exact.y[0]}), start=free)
    result = igpe.estimate(igpe.Problem(brusselator, parameters=["a", "b"], experiments=run))
    assert result.parameters["b"] == pytest.approx(2.6, rel=1e-6)
    assert result.verdict["fit"].startswith("good: the residuals are rounding errors")
    assert not result.profiled
    assert not result.actions


def test_an_interval_that_is_long_on_one_side_determines_nothing():
    posed = problem(start=2.0)
    result = igpe.estimate(posed, certify=False)
    k = result.estimates[1]
    sure = replace(k, standard_error=0.05 * k.value, lower=0.9 * k.value, upper=1.1 * k.value)
    others = result.estimates[:1]
    assert "K uncertain" not in replace(result, estimates=(*others, sure)).verdict["parameters"]
    long = replace(sure, lower=0.5 * k.value)
    assert "K uncertain" in replace(result, estimates=(*others, long)).verdict["parameters"]


power_law = ode({"A": lambda m, t: -m.k * m.A[t] ** m.n}, k=(1e-4, 100), n=(0.5, 2))


def test_one_degree_of_freedom_determines_nothing():
    """Standard errors are small, but intervals are thirteen of them long to each side."""
    times = np.array([1.0, 2.0, 4.0, 8.0])
    measured = 5 * np.exp(-0.36 * times) * np.array([1.01, 0.99, 1.02, 0.97])
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "A": measured}), start={"A": igpe.Unknown(0.1, 100)}
    )
    result = igpe.estimate(igpe.Problem(power_law, parameters=["k", "n"], experiments=run))
    k = result.to_frame().loc["k"]
    assert k["standard_error"] < 0.1 * result.parameters["k"]
    words = result.verdict["parameters"]
    assert "k, A(t0) uncertain" in words
    assert "n not determined" in words
    assert "leaves 1 degree of freedom" in result.verdict["fit"]


@pytest.mark.slow
def test_other_optima_have_profile_intervals_too():
    """Two decays in a sum: the second set of values is the first one with both exchanged."""

    two = row("AB", lambda m, i, t: -m.k[i] * m.x[i, t], indexed={"k": ("AB", (0.01, 5))})

    def decays(times):
        m = two(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: m.x["A", t] + m.x["B", t])
        return m

    t = np.linspace(0.1, 6, 25)
    noise = 0.04 * np.random.default_rng(3).standard_normal(len(t))
    table = pd.DataFrame({"time": t, "y": np.exp(-0.4 * t) + 0.8 * np.exp(-1.1 * t) + noise})
    start = {f"x[{i}]": igpe.Unknown(0.01, 3) for i in "AB"}
    run = igpe.Experiment(table, start=start, start_time=0.0, sigma=0.04)
    result = igpe.estimate(
        igpe.Problem(decays, parameters=["k[A]", "k[B]"], experiments=[run]), certify=False
    )
    (other,) = result.other_optima
    own, others = ({p.name: p for p in e} for e in (result.estimates, other.estimates))
    for name, one in own.items():
        mirrored = others[name.translate(str.maketrans("AB", "BA"))]
        assert mirrored.lower == pytest.approx(one.lower, rel=1e-2)
        assert mirrored.upper == pytest.approx(one.upper, rel=1e-2)
    upper = max(own["k[A]"].upper, own["k[B]"].upper)
    assert upper == 5.0  # linearised intervals are symmetric and end before it


def test_a_logarithm_is_not_well_determined_because_it_is_large():
    """x = exp(lnk) t: the interval of exp(lnk) is known, and the linearised one of lnk is not."""
    times = np.array([1.0, 2.0, 3.0, 4.0])
    off = 10 * np.array([2.0, -1.0, 0.0, 0.0])  # orthogonal to the times
    sigma = 20 * 0.35 * np.sqrt(times @ times)

    def model(times):
        m = over_time(times, "x", lnk=(0, 8))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == pyo.exp(m.lnk))
        m.x[m.t.first()].fix(0.0)
        return m

    run = igpe.Experiment(pd.DataFrame({"time": times, "x": 20 * times + off}), sigma=sigma)
    problem = igpe.Problem(model, parameters=["lnk"], experiments=run)
    (found,) = igpe.estimate(problem, certify=False).estimates
    ends = np.log(20 * (1 + 0.35 * np.array([-1.96, 1.96])))
    assert [found.lower, found.upper] == pytest.approx(ends, abs=0.01)
