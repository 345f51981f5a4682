"""igpe.simulate against known solutions, and what it refuses."""

from functools import partial

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from zoo import CASES, every_case

import igpe
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.simulation import other_root, simulate_all


@every_case
def test_against_an_independent_integration(case):
    expected = case.data()
    found = igpe.simulate(case.problem(), case.truth, case.times)
    assert list(found["time"]) == list(case.times)
    for name in case.measured:
        assert found[name].to_numpy() == pytest.approx(
            expected[name].to_numpy(), rel=1e-5, abs=1e-7
        )


def test_several_experiments_one_below_the_other():
    case = CASES["decay"]
    runs = [igpe.Experiment(case.data(), name=n, start={"A": a}) for n, a in (("x", 1), ("y", 3))]
    problem = igpe.Problem(case.builder, parameters=["k"], experiments=runs)
    found = igpe.simulate(problem, {"k": 1.0}, [2.0])
    assert list(found["experiment"]) == ["x", "y"]
    assert found["A"].to_numpy() == pytest.approx(np.exp(-2.0) * np.array([1, 3]), rel=1e-6)


def test_what_is_held_needs_no_value():
    problem = CASES["consecutive"].problem().fixing({"k2": 0.4})
    whole = igpe.simulate(CASES["consecutive"].problem(), {"k1": 1.0, "k2": 0.4}, [1.0])
    for given in ({"k1": 1.0}, {"k1": 1.0, "k2": 0.4}):
        pd.testing.assert_frame_equal(igpe.simulate(problem, given, [1.0]), whole)


explosion = ode({"x": lambda m, t: m.k * m.x[t] ** 2}, k=(0, 5))
"""dx/dt = k x^2, x(0) = 1: infinite at t = 1/k."""


def drained(times):
    """A tank whose outflow is a root; the other root would fill it again when it is empty."""
    m = over_time(times, "h", k=(0, 5))
    m.q = pyo.Var(m.t, initialize=0.5, bounds=(0, None))
    m.orifice = pyo.Constraint(m.t, rule=lambda m, t: m.q[t] ** 2 == m.k**2 * m.h[t])
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dh[t] == -m.q[t])
    return m


def test_a_root_that_leaves_its_bounds_is_refused():
    data = pd.DataFrame({"time": [0.5, 6.0], "h": [1.0, 0.0]})
    run = igpe.Experiment(data, start={"h": 1.0}, start_time=0.0)
    problem = igpe.Problem(drained, parameters=["k"], experiments=[run])
    found = igpe.simulate(problem, {"k": 0.5}, [1.0, 3.9])
    assert found["h"].to_numpy() == pytest.approx([0.75**2, 0.025**2], rel=1e-3)
    words = r"Experiment 1: 'q' is -0\.\d+ at time 5, outside of the bounds \[0, inf\]"
    with pytest.raises(igpe.errors.EstimationFailed, match=words):
        igpe.simulate(problem, {"k": 0.5}, [1.0, 3.9, 5.0])


def test_an_estimate_keeps_a_root_in_its_bounds():
    times = np.linspace(0.5, 5.0, 10)
    data = pd.DataFrame({"time": times, "h": (1 - 0.25 * times) ** 2})  # full again after t = 4
    run = igpe.Experiment(data, start={"h": 1.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(drained, parameters=["k"], experiments=[run])
    found = igpe.estimate(problem, certify=False)
    assert found.active == ("q >= 0 at 5",)
    assert found.parameters["k"] == pytest.approx(0.4, abs=1e-3)  # empty at t = 2 / k


def squared_slope(initial, times):
    m = over_time(times, "x", a=(0.01, 5.0))
    m.dx[:].value = initial
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] ** 2 == (m.a * m.x[t]) ** 2)
    return m


@pytest.mark.slow
@pytest.mark.parametrize(("initial", "is_said"), [(None, True), (-1.0, False)])
def test_another_root_at_the_start_is_named_where_the_model_does_not_fit(initial, is_said):
    times = np.linspace(0.2, 4.0, 12)
    noise = 0.01 * np.random.default_rng(3).standard_normal(12)
    data = pd.DataFrame({"time": times, "x": np.exp(-0.8 * times) + noise})
    run = igpe.Experiment(data, start={"x": 1.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(partial(squared_slope, initial), parameters=["a"], experiments=run)
    found = " ".join(str(igpe.estimate(problem, certify=False)).split())
    words = "At the start, d(x) = -0.01 solves the equations as d(x) = 0.01 does"
    assert (words in found) is is_said
    assert ("other root" in found) is is_said


def two_rates(initial, times):
    """The slope of x has y, which is one of the two roots of y**2 - 5 y + 5.5 + x / 2."""
    m = over_time(times, "x", a=(0.01, 5.0))
    m.y = pyo.Var(m.t, initialize=initial)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.a * m.y[t] * m.x[t])
    m.root = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] ** 2 - 5 * m.y[t] + 5.5 == -m.x[t] / 2)
    return m


@pytest.mark.parametrize(("initial", "followed"), [(None, 1.382), (3.0, 3.618)])
def test_another_root_is_named_unless_the_model_chooses_one(initial, followed):
    times = np.linspace(0.2, 4.0, 12)
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "x": 0.0}), start={"x": -1.0}, start_time=0.0, sigma=0.01
    )
    problem = igpe.Problem(partial(two_rates, initial), parameters=["a"], experiments=run)
    found = simulate_all(problem, Sundials(), {"a": 0.1}, (np.append(0.0, times),))
    other = other_root(*found[0], {"a": 0.1})
    assert other.is_chosen is (initial is not None)
    words = f"At the start, y = {5 - followed:.4g} solves the equations as y = {followed:.4g} does"
    assert other.sentence.startswith(words)


def test_that_there_is_one_root_needs_no_word():
    run = igpe.Experiment(
        pd.DataFrame({"time": [1.0], "x": 0.0}), start={"x": -1.0}, start_time=0.0, sigma=0.01
    )
    problem = igpe.Problem(one_root, parameters=["a"], experiments=run)
    found = simulate_all(problem, Sundials(), {"a": 0.1}, (np.array([0.0, 1.0]),))
    assert other_root(*found[0], {"a": 0.1}) is None


def one_root(times):
    m = over_time(times, "x", a=(0.01, 5.0))
    m.y = pyo.Var(m.t)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.a * m.y[t])
    m.root = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] ** 3 + m.y[t] == m.x[t])
    return m


def test_a_break_down_says_when():
    data = pd.DataFrame({"time": [0.5, 2.0], "x": [1.0, 2.0]})
    run = igpe.Experiment(data, start={"x": 1.0})
    problem = igpe.Problem(explosion, parameters=["k"], experiments=[run])
    words = r"Experiment 1 could be integrated only to time 0\.9\d* instead of 2"
    with pytest.raises(igpe.errors.EstimationFailed, match=words) as caught:
        igpe.simulate(problem, {"k": 1.0})
    assert caught.value.status is igpe.Status.INTEGRATION_BROKE


def used_up(power):
    """x is used up at a finite time by dx/dt = -k power(x)."""

    slopes = {"fed": lambda m, t: m.k, "x": lambda m, t: -m.k * power(m.x[t])}
    build = ode(slopes, k=(0, 5))
    data = pd.DataFrame({"time": [0.5, 9.0], "x": [0.8, 0.0]})
    run = igpe.Experiment(data, start={"x": 1.0, "fed": 0.0}, start_time=0.0)
    return igpe.Problem(build, parameters=["k"], experiments=[run])


@pytest.mark.parametrize("order", [0.5, 0.7])
def test_powers_rest_where_their_base_is_used_up(order):
    x = igpe.simulate(used_up(lambda x: x**order), {"k": 1.0}).set_index("time")["x"]
    assert x[0.5] == pytest.approx((1 - 0.5 * (1 - order)) ** (1 / (1 - order)), rel=1e-6)
    assert x[9.0] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("order", [0.5, 0.7])
def test_a_slope_that_loses_its_value_is_named_with_the_place(order):
    problem = used_up(lambda x: pyo.exp(order * pyo.log(x)))
    words = (
        r"the model would reach x = -\S+ at time \S+, where the slope of 'x' has no finite value: "
        r"log\(x\) is undefined there"
    )
    with pytest.raises(igpe.errors.EstimationFailed, match=words):
        igpe.simulate(problem, {"k": 1.0})


def test_a_failure_gives_the_integrators_own_reason(monkeypatch):
    """A missing compiler is no unstable model."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    run = igpe.Experiment(pd.DataFrame({"time": [0.5], "x": [1.0]}), start={"x": 1.0}, start_time=0)
    problem = igpe.Problem(explosion, parameters=["k"], experiments=[run])
    with pytest.raises(igpe.errors.EstimationFailed, match=r"No C compiler was found") as caught:
        igpe.simulate(problem, {"k": 1.0}, integrator=igpe.integrators.RungeKutta())
    assert caught.value.status is igpe.Status.NO_SOLVER
    assert "unstable" not in str(caught.value)


def test_without_times_all_states_are_reported_at_many():
    case = CASES["unmeasured_intermediate"]
    found = igpe.simulate(case.problem(), case.truth)
    assert {"A", "B", "C"} <= set(found.columns)
    assert found["time"].iloc[0] == 0.0
    assert found["time"].iloc[-1] == case.times[-1]
    assert set(case.times) <= set(found["time"])
    assert len(found) >= 200


TIMES_SAY = r"The times are .* give one or more finite numbers"
REFUSED = [
    ({}, None, r"Give values for \['k'\]; the unknowns are"),
    ({"k": 1.0, "kk": 2.0}, None, r"\['kk'\], which are not unknowns"),
    ({"kk": 2.0}, None, r"\['kk'\], which are not unknowns"),
    *(({"k": v}, None, r"The value of 'k' is .*; give a finite") for v in ("a", np.nan, None)),
    ({"k": 1.0}, [-1.0, 1.0], "Time -1 lies before 0, the start time of experiment 1"),
    *(
        ({"k": 1.0}, times, TIMES_SAY)
        for times in ([], [0.0, np.nan], [np.inf], "soon", ["a", 1.0], [[1.0], [1, 2]])
    ),
]


@pytest.mark.parametrize(("values", "times", "says"), REFUSED)
def test_values_and_times_that_are_none_are_refused(values, times, says):
    with pytest.raises(igpe.errors.ProblemError, match=says):
        igpe.simulate(CASES["decay"].problem(), values, times)


@pytest.mark.parametrize("method", [igpe.integrators.Sundials, igpe.integrators.Automatic])
def test_what_a_parameter_of_zero_multiplies_need_have_no_value(method):
    """0 log(x) at x = 0."""

    build = ode({"x": lambda m, t: m.r + m.k * m.x[t] * pyo.log(m.x[t])}, k=(0, 5), r=(0, 5))

    data = pd.DataFrame({"time": [0.5, 2.0], "x": [1.0, 2.0]})
    run = igpe.Experiment(data, start={"x": 0.0}, start_time=0.0)
    problem = igpe.Problem(build, parameters=["k", "r"], experiments=[run])
    found = igpe.simulate(problem, {"k": 0.0, "r": 2.0}, [1.0], integrator=method())
    assert found["x"].to_numpy() == pytest.approx([2.0], rel=1e-6)


oscillator = ode({"x": lambda m, t: m.w * m.v[t], "v": lambda m, t: -m.w * m.x[t]}, w=(5, 7))


def test_curves_of_a_result_have_points_enough_for_oscillations():
    """48 periods: no maximum is cut by a chord."""
    times = np.linspace(0.25, 50, 200)
    table = pd.DataFrame({"time": times, "x": np.cos(6 * times)})
    run = igpe.Experiment(table, start={"x": 1.0, "v": 0.0}, start_time=0.0, sigma=0.01)
    problem = igpe.Problem(oscillator, parameters=["w"], experiments=run)
    curve = igpe.estimate(problem, certify=False).curves
    x = curve["fitted"].to_numpy()
    peaks = x[1:-1][(x[1:-1] > x[:-2]) & (x[1:-1] > x[2:])]
    assert len(peaks) >= 46
    assert peaks.min() > 0.98


def test_both_sides_of_known_jumps_are_among_the_default_times():
    dosed = ode({"x": lambda m, t: m.u[t] - m.k * m.x[t]}, inputs=("u",), k=(0, 1))

    run = igpe.Experiment(
        pd.DataFrame({"time": [1.0, 12.0], "x": 0.0}),
        start={"x": 0.0},
        start_time=0.0,
        events=[igpe.Event(at=7.03, add={"x": 10.0})],
        inputs={"u": igpe.step_input([0.0, 3.01], [1.0, 0.0])},
    )
    problem = igpe.Problem(dosed, parameters=["k"], experiments=run)
    found = igpe.simulate(problem, {"k": 0.0})
    near = found[np.abs(found["time"] - 7.03) < 1e-3]
    assert near["x"].to_numpy() == pytest.approx([3.01, 13.01], rel=1e-6)
    assert (np.abs(found["time"] - 3.01) < 1e-3).sum() == 2


def test_a_measured_expression_may_contain_slopes():
    """As a heat flow or a rate of uptake does."""
    flow = {"q": lambda m, t: -50.0 * m.dx[t]}
    model = ode({"x": lambda m, t: -m.k * m.x[t]}, outputs=flow, k=(0, 10))
    times = np.linspace(0.5, 4.0, 8)
    data = pd.DataFrame({"time": times, "q": 40.0 * np.exp(-0.8 * times)})
    run = igpe.Experiment(data, start={"x": 1.0}, start_time=0.0, sigma=0.1)
    problem = igpe.Problem(model, parameters=["k"], experiments=run)
    assert igpe.simulate(problem, {"k": 0.8}, times)["q"].to_numpy() == pytest.approx(data["q"])
    assert igpe.estimate(problem).parameters["k"] == pytest.approx(0.8)
