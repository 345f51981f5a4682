"""Profile likelihoods against closed forms, brute force and each other's methods."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import bellman
import few_data
import matplotlib.pyplot as plt
import methanol
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from michaelis_menten import DECAY_TRUTH, decay, decay_data
from ode import ode, over_time
from scipy import stats
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, least_squares, minimize_scalar
from small_problems import PRODUCT_NEAR, TIMES, hump, kept_line, line, product

import igpe
from igpe.core.errors import DataError, EstimationFailed, ProblemError, Unsupported
from igpe.uncertainty.path import walk
from igpe.uncertainty.profile import ParameterProfile, Profiles, _with_ranges, profile, sentences

NEAR_LINE = {"k": 0.7, "A(t0)": 1.0}


@pytest.fixture(scope="module")
def of_product():
    return profile(product(), PRODUCT_NEAR)


@pytest.mark.parametrize("sigma", [0.2, None])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_a_linear_model_has_the_textbooks_intervals(sigma, confidence):
    found = profile(line(sigma), NEAR_LINE, confidence=confidence)
    y = line(sigma).experiments[0].measurements.value
    fit = stats.linregress(TIMES, y)
    if sigma is None:
        half = stats.t.ppf(0.5 + confidence / 2, 8) * fit.stderr
    else:
        half = stats.norm.ppf(0.5 + confidence / 2) * sigma / (np.std(TIMES) * np.sqrt(10))
    assert found["k"].lower == pytest.approx(fit.slope - half, rel=1e-6)
    assert found["k"].upper == pytest.approx(fit.slope + half, rel=1e-6)
    assert found["A(t0)"].estimate == pytest.approx(fit.intercept, rel=1e-6)
    assert found["k"].determined
    assert found.notes == ()


def test_steps_rise_evenly():
    """Equal increments of the sum of squares, and few integrations for them and for both ends."""
    found = profile(line(), NEAR_LINE)
    for one in found.profiles:
        rise = (one.costs - found.objective) / found.rise
        assert sorted(rise)[1::2] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.03)
    assert found.integrations <= 2 * (2 * (4 + 2) + 2) + 3


def test_priors_count_as_measurements():
    """Of a line the posterior is known: the normal equations with one more row."""
    prior = igpe.losses.NormalPrior(0.8, 0.05)
    problem = line(priors={"k": prior})
    y = problem.experiments[0].measurements.value
    rows = np.vstack([np.column_stack([TIMES, np.ones(10)]) / 0.2, [1 / 0.05, 0]])
    right = np.append(y / 0.2, 0.8 / 0.05)
    best = np.linalg.lstsq(rows, right, rcond=None)[0]
    error = np.sqrt(np.linalg.inv(rows.T @ rows)[0, 0])
    found = profile(problem, NEAR_LINE)["k"]
    assert [found.lower, found.upper] == pytest.approx(
        [best[0] - 1.959964 * error, best[0] + 1.959964 * error], rel=1e-5
    )


def test_several_experiments_with_own_starts():
    problem = line(runs=3)
    starts = {f"A(t0)@r{n}": 1.0 + n for n in range(3)}
    found = profile(problem, {"k": 0.7, **starts})
    error = 0.2 / np.sqrt(3 * np.sum((TIMES - TIMES.mean()) ** 2))
    assert found["k"].upper - found["k"].lower == pytest.approx(2 * 1.959964 * error, rel=1e-5)
    assert set(starts) < {p.name for p in found.profiles}


def decay_rise(name, value, best):
    """Sum of squares with one parameter held, minimised without igpe."""
    data = decay_data(0)

    def residual(other):
        p = {name: value} | dict(zip([n for n in best if n != name], other, strict=True))
        run = solve_ivp(
            lambda t, s: -p["vmax"] * s / (p["km"] + s), (0, 4), [2.0], "DOP853", data["time"],
            rtol=1e-11, atol=1e-13,
        )  # fmt: skip
        return (run.y[0] - data["S"]) / 0.04

    start = [v for n, v in best.items() if n != name]
    return 2 * least_squares(residual, start, bounds=(0.01, 50), xtol=1e-14, ftol=1e-14).cost


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vmax", "km"])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_ends_are_where_brute_force_has_them(name, side):
    found = profile(decay(), DECAY_TRUTH)
    one, best = found[name], found.parameters
    end = getattr(one, side)
    far = one.estimate + 1.5 * (end - one.estimate)

    def excess(value):
        return decay_rise(name, value, best) - found.objective - stats.chi2.ppf(0.95, 1)

    there = brentq(excess, one.estimate, far, rtol=1e-6)
    assert end - one.estimate == pytest.approx(there - one.estimate, rel=1e-3)
    linear = found.linearised[name][0 if side == "lower" else 1]
    assert abs(linear - end) > 0.03 * abs(end - one.estimate), "too linear to test anything"


@pytest.mark.slow
def test_every_point_is_an_optimum_of_the_others():
    found = profile(decay(), DECAY_TRUTH)
    for one in found.profiles:
        for value, cost in zip(one.values, one.costs, strict=True):
            assert cost == pytest.approx(
                decay_rise(one.name, value, found.parameters), abs=2e-3 * found.rise
            )


@pytest.mark.slow
@pytest.mark.parametrize("module", [bellman, methanol])
def test_collocation_gives_the_same(module):
    shot = profile(module.problem(), module.OPTIMUM)
    collocated = profile(module.problem(), module.OPTIMUM, method=igpe.Collocation())
    for one, other in zip(shot.profiles, collocated.profiles, strict=True):
        width = one.upper - one.lower
        assert [other.lower, other.upper] == pytest.approx([one.lower, one.upper], abs=2e-3 * width)
        assert other.remark == one.remark


def test_collocation_keeps_constraints():
    """Free, the line ends at 4.55; kept below 4.5 it has a profile of its own, known exactly."""
    y = kept_line().experiments[0].measurements.value
    with pytest.raises(Unsupported, match="Collocation"):
        profile(kept_line(), NEAR_LINE)
    found = profile(kept_line(), NEAR_LINE, "k", method=igpe.Collocation())["k"]

    def cost(k):
        start = min(np.mean(y - k * TIMES), 4.5 - 5 * k)
        return np.sum((y - start - k * TIMES) ** 2) / 0.04

    best = minimize_scalar(cost, bounds=(0, 2), method="bounded", options={"xatol": 1e-10})
    assert found.estimate == pytest.approx(best.x, rel=1e-4)
    for end in (found.lower, found.upper):
        assert cost(end) - best.fun == pytest.approx(3.8415, rel=5e-3)


def test_an_estimate_on_its_bound_has_an_interval_on_one_side():
    found = profile(methanol.problem(), methanol.OPTIMUM)
    for name in ("p3", "p4", "p5"):
        one = found[name]
        assert (one.lower, one.lower_end, one.upper_end) == (0.0, "bound reached", "")
        assert 0 < one.upper < 1
        assert one.remark == "bound reached below"
    axes = found.plot().axes
    dashed = [line for line in axes[2].lines if line.get_linestyle() == "--"]
    assert np.isfinite(dashed[0].get_ydata()).all()  # not in logarithms: one end is 0


def test_what_is_not_determined_is_open(of_product):
    one = of_product["k1"]
    assert (one.lower, one.upper, one.remark) == (0.1, 10.0, "open on both sides")
    assert np.ptp(one.costs) < 1e-3 * of_product.rise
    assert "k1 is not identifiable in practice: no value below or above" in of_product.notes[0]


@pytest.mark.parametrize(
    ("ends", "limit"), [(("open", ""), "at most 0.0172"), (("", "open"), "at least 0.001")]
)
def test_what_is_limited_on_one_side_is_said_to_be_so(ends, limit):
    none = np.zeros(0)
    one = ParameterProfile("B(t0)", "", 0.0035, 0.001, 0.0172, *ends, none, none, none)
    (said,) = sentences((one,))
    assert said.startswith(f"B(t0) is limited on one side only, and is {limit}: no value ")


def test_the_bounds_of_another_unknown_end_a_flat_profile(of_product):
    """k2 may go as far as k1 can make up for it: to product / 10 and product / 0.1, and a bit."""
    product_error = 0.03  # of k1 k2, relative, at most
    one, best = of_product["k2"], of_product.parameters["k1"] * of_product.parameters["k2"]
    assert one.determined
    assert [one.lower, one.upper] == pytest.approx([best / 10, best / 0.1], rel=3 * product_error)
    ends = one.others[[0, -1], of_product.names.index("k1")]
    assert ends == pytest.approx([10.0, 0.1])


def test_a_rising_profile_that_meets_its_bound_is_not_called_open():
    tight = igpe.Problem(
        decay().model, parameters={"vmax": (0.9, 20), "km": (0.6, 0.85)},
        experiments=decay().experiments,
    )  # fmt: skip
    one = profile(tight, {"vmax": 1.0, "km": 0.8}, names="km")["km"]
    assert "bound reached" in {one.lower_end, one.upper_end}


def test_a_better_optimum_is_met_and_told():
    found = profile(hump(), {"w": 0.93})
    assert found.parameters["w"] == pytest.approx(-1.05, abs=0.02)
    assert "was not the best" in found.notes[0]
    assert found.objective < 1e-6


def test_intervals_hold_what_the_profiles_of_others_show(of_product):
    found, box = of_product, product().box
    one, other = found.profiles[:2]
    far = replace(one, others=one.others + np.array([0.0, 10.0]))
    widened = _with_ranges(replace(found, profiles=(far, other)), box)[other.name]
    within = far.costs <= found.objective + found.rise
    assert widened.lower == other.lower
    assert widened.upper == far.others[within, 1].max() > other.upper
    assert _with_ranges(found, box).profiles == found.profiles


def test_a_profile_leaves_a_groove_for_the_plateau_beside_it():
    """Near b = a the sum of squares rises steeply along it; elsewhere it has a simple form."""

    def off(m):
        return (m.b - m.a) / 0.03

    rates = {
        "u": lambda m, t: off(m) / pyo.sqrt(1 + off(m) ** 2),
        "v": lambda m, t: 10 * (m.a - 1) / (1 + off(m) ** 2),
        "w": lambda m, t: m.b - 1,
        "z": lambda m, t: (m.a - 1) / 2,
    }
    table = pd.DataFrame({"time": [1.0], **{n: [0.0] for n in rates}})
    run = igpe.Experiment(table, start=dict.fromkeys(rates, 0.0), start_time=0.0, sigma=1.0)
    model = ode(rates, a=(-9, 9), b=(-9, 9))
    posed = igpe.Problem(model, parameters=["a", "b"], experiments=run)
    made, half = profile(posed, {"a": 1.0, "b": 1.0}), np.sqrt(stats.chi2.ppf(0.95, 1) - 1)
    for name, by in (("a", 2 * half), ("b", half)):
        ends = [made[name].lower, made[name].upper]
        assert ends == pytest.approx([1 - by, 1 + by], rel=1e-2)


def test_an_interval_that_others_widen_to_a_bound_ends_there(of_product):
    found, box = of_product, product().box
    one, other = found.profiles[:2]
    most = box.select([other.name]).upper[0]
    far = replace(one, others=np.full_like(one.others, most))
    closed = replace(other, upper=most / 2, upper_end="")
    widened = _with_ranges(replace(found, profiles=(far, closed)), box)[other.name]
    assert (widened.upper, widened.upper_end) == (most, "bound reached")
    rounded = replace(other, upper=most * (1 - 1e-13), upper_end="bound reached")
    assert _with_ranges(replace(found, profiles=(rounded,)), box)[other.name].upper == most


def test_a_profile_ends_within_its_share_of_the_most_integrations(of_product):
    few = profile(product(), PRODUCT_NEAR, most_integrations=3)
    assert few.profiles == ()
    assert f"no profiles for {', '.join(few.names)}" in " ".join(few.notes)
    assert few.integrations < of_product.integrations


def test_json_gives_back_all(of_product):
    again = Profiles.from_json(of_product.to_json())
    assert again.to_json() == of_product.to_json()
    assert again.to_frame().equals(of_product.to_frame())
    with pytest.raises(
        DataError,
        match="stored set of profiles has the format 99; this version of igpe reads format 2",
    ):
        Profiles.from_json('{"format": 99}')
    with pytest.raises(DataError, match=r"stored set of profiles lacks \[.*Profiles.to_json"):
        Profiles.from_json('{"format": 2}')


def test_table_words_and_pictures():
    found = profile(decay(), DECAY_TRUTH)
    table = found.to_frame()
    assert list(table.index) == ["vmax", "km"]
    assert table.loc["km", "upper"] == found["km"].upper
    assert "95 % interval" in str(found)
    assert "vmax" in found._repr_html_()
    with pytest.raises(ProblemError, match="no profile of 'k9'"):
        found["k9"]
    assert [ax.get_xlabel() for ax in found.plot()] == ["vmax", "km"]
    _, given = plt.subplots(1, 2)
    assert list(found.plot(given)) == list(given)


def test_an_executor_gives_the_same():
    with ProcessPoolExecutor(2) as executor:
        there = profile(decay(), DECAY_TRUTH, executor=executor)
    here = profile(decay(), DECAY_TRUTH)
    assert there.to_frame().equals(here.to_frame())


def test_a_name_that_is_given_twice_has_one_profile():
    assert len(profile(line(0.2), NEAR_LINE, ["k", "k"]).profiles) == 1


def test_no_degrees_of_freedom_are_told():
    two = line(None).with_data(line(None).experiments[0].table().reset_index().iloc[:2])
    found = profile(two, NEAR_LINE)
    assert found["k"].lower_end == "no degrees of freedom"


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"names": ["k9"]}, ProblemError, r"Unknown parameter names: \['k9'\]"),
        ({"names": []}, ProblemError, "none given"),
        ({"confidence": 95}, ProblemError, "between 0 and 1"),
        ({"estimate": {"vmax": 1.0}}, ProblemError, r"no value for \['km'\]"),
        ({"estimate": {"vmax": 1.0, "km": np.nan}}, ProblemError, "finite"),
        ({"estimate": 3.0}, ProblemError, "mapping"),
        ({"method": igpe.MultipleShooting()}, ProblemError, "SingleShooting"),
        ({"problem": decay(loss=igpe.losses.Huber())}, Unsupported, "Huber"),
        ({"problem": decay().fixing(DECAY_TRUTH)}, ProblemError, "are fixed"),
    ],
)
def test_what_makes_no_sense_is_refused(change, error, says):
    given = {"problem": decay(), "estimate": DECAY_TRUTH} | change
    with pytest.raises(error, match=says):
        profile(**given)


def test_a_model_that_cannot_be_integrated_is_told():
    with pytest.raises(EstimationFailed, match="could not be integrated"):
        profile(methanol.problem(), dict.fromkeys(methanol.OPTIMUM, 0.0))


def test_an_interrupt_keeps_finished_profiles(monkeypatch):
    walked = []

    def interrupted(*arguments):
        walked.append(1)
        if len(walked) == at:
            raise KeyboardInterrupt
        return walk(*arguments)

    at = 4  # of two walks a profile
    monkeypatch.setattr("igpe.uncertainty.profile.walk", interrupted)
    found = profile(line(), NEAR_LINE)
    assert [p.name for p in found.profiles] == ["k"]
    assert not found.complete
    assert found.notes[0] == "Interrupted: there are no profiles for A(t0)."
    assert found["k"].lower == profile(line(), NEAR_LINE, "k")["k"].lower
    again = Profiles.from_json(found.to_json())
    assert (again.complete, again.notes) == (False, found.notes)
    walked, at = [], 2
    with pytest.raises(KeyboardInterrupt):
        profile(line(), NEAR_LINE)


def test_a_bent_valley_of_undetermined_unknowns_takes_few_integrations():
    """An activation energy, its factor and a saturation: 772 without learning curvature."""
    problem = few_data.problem(few_data.draw(0))
    names = ("p0", "p1", "p2", "p3", "p4", "p5")
    near = dict(zip(names, (0.5886, 2.09698, 0.076994, 126.054, 2.14194, 0.28026), strict=True))
    found = profile(problem, near, "p1")
    assert found.integrations < 500
    assert (found["p1"].lower, found["p1"].upper) == pytest.approx((1.533, 2.919), rel=3e-3)


def oscillator():
    """Higgins and Selkov: v0 and k2 stretch the valley, which period times time makes narrow."""

    def model(times):
        m = over_time(times, "S P", v0=(0.01, 100), k1=(1e-3, 100), k2=(None, None))
        m.k2.setlb(0.01)
        m.k2.setub(100)
        m.s = pyo.Constraint(m.t, rule=lambda m, t: m.dS[t] == m.v0 - m.k1 * m.S[t] * m.P[t] ** 2)
        m.p = pyo.Constraint(
            m.t, rule=lambda m, t: m.dP[t] == m.k1 * m.S[t] * m.P[t] ** 2 - m.k2 * m.P[t]
        )
        return m

    def course(x):
        def slopes(_, y):
            rate = x[1] * y[0] * y[1] ** 2
            return [x[0] - rate, rate - x[2] * y[1]]

        options = {"method": "LSODA", "rtol": 1e-10, "atol": 1e-12}
        return solve_ivp(slopes, (0, 14), x[3:], t_eval=times, **options).y[1]

    times = np.linspace(0.5, 14, 28)
    noise = 0.08 * np.random.default_rng(1).standard_normal(28)
    values = course([1.1, 0.9, 1.3, 2.0, 1.0]) + noise
    start = {"S": igpe.Unknown(0.01, 20), "P": igpe.Unknown(0.01, 20)}
    table = pd.DataFrame({"time": times, "P": values})
    run = igpe.Experiment(table, start=start, start_time=0.0, sigma=0.08)
    problem = igpe.Problem(model, parameters=["v0", "k1", "k2"], experiments=run)
    return problem, lambda x: float((((values - course(x)) / 0.08) ** 2).sum())


def test_a_profile_follows_a_narrow_bent_valley():
    """Its points are integrated ones, and reach as far as the sum of squares allows."""
    problem, squares = oscillator()
    near = {"v0": 1.1, "k1": 0.9, "k2": 1.3, "S(t0)": 2.0, "P(t0)": 1.0}
    best = igpe.SingleShooting().estimate(problem, near)
    made = profile(problem, best, ["v0", "S(t0)"])
    for one in made.profiles:
        for cost, x in zip(one.costs, one.others, strict=True):
            assert squares(x) == pytest.approx(cost, abs=0.01)
    ends = made["v0"].upper, made["S(t0)"].lower, made["S(t0)"].upper
    assert ends == pytest.approx((6.88, 1.6, 3.5), rel=0.04)
