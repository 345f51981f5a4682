"""States in other units: the same measured quantities, and rates that slopes share."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.shared_rates import Rewritten, _Slopes, null_space, with_shared_rates

TIMES = np.linspace(0.0, 3.0, 7)
Slopes = Callable[[Any, Any], Mapping[str, Any]]
BOUNDS = (0.2, 2.0)


def posed(
    slopes: Slopes, start: dict[str, float], names: str, bounds: tuple[float, float] = BOUNDS
) -> igpe.Problem:
    """A problem whose states are all measured."""

    def slope(m: Any, t: float, state: str) -> Any:
        return slopes({s: m.component(s)[t] for s in start}, m)[state]

    unknowns = dict.fromkeys(names.split(), bounds)
    model = ode({s: partial(slope, state=s) for s in start}, **unknowns)
    table = pd.DataFrame({"time": TIMES} | {s: np.ones(len(TIMES)) for s in start})
    run = igpe.Experiment(table, start=start, sigma=0.1)
    return igpe.Problem(model, parameters=names.split(), experiments=[run])


def monod(x: Any, m: Any) -> Mapping[str, Any]:
    """Growth with a yield, and a product."""
    growth = m.mu * x["S"] * x["X"] / (m.K + x["S"])
    return {"X": growth - m.d * x["X"], "S": -growth / m.Y, "Q": m.a * growth}


def reactor(x: Any, m: Any) -> Mapping[str, Any]:
    """A reaction that heats, with a temperature inside a function."""
    rate = m.k * pyo.exp(m.E * (1 - 1 / x["T"])) * x["A"]
    return {"A": -rate, "T": m.H * rate - m.U * (x["T"] - 1)}


def chained(x: Any, m: Any) -> Mapping[str, Any]:
    """Two reactions with three yields, one with powers, and a loss."""
    one, two = m.k1 * x["A"] ** 3 / (2 * m.K + x["A"]) / (4 * x["A"]), m.k2 * x["B"] * x["C"]
    return {"A": -one, "B": m.y1 * one - two, "C": m.y2 * one - m.y3 * two - 0.5 * x["C"]}


MODELS = {
    "Monod": (monod, {"X": 0.1, "S": 2.0, "Q": 0.0}, "mu K d Y a"),
    "reactor": (reactor, {"A": 1.0, "T": 1.0}, "k E H U"),
    "chained": (chained, {"A": 1.0, "B": 0.2, "C": 0.3}, "k1 K k2 y1 y2 y3"),
}


def initial_value(problem: igpe.Problem) -> InitialValueProblem:
    """Its only one, as proofs read it."""
    return compiled(problem).initial_value_problem(0, plain_powers=True)


def rewritten(problem: igpe.Problem) -> Rewritten:
    """The same in other units."""
    return with_shared_rates(initial_value(problem), problem.box.lower, problem.box.upper)


def measured(ivp: InitialValueProblem, q: np.ndarray) -> np.ndarray:
    """What is measured (n_times, m), by SciPy."""
    f = ca.Function("f", [ivp.t, ivp.x, ivp.q], [ca.densify(ivp.f)])
    h = ca.Function("h", [ivp.t, ivp.x, ivp.q], [ca.densify(ivp.measured)])
    x0 = np.asarray(ca.Function("x0", [ivp.q], [ca.densify(ivp.start)])(q)).ravel()
    done = solve_ivp(
        lambda t, x: np.asarray(f(t, x, q)).ravel(),
        (0.0, TIMES[-1]), x0, "LSODA", TIMES, rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    rows = [np.asarray(h(t, x, q)).ravel() for t, x in zip(TIMES, done.y.T, strict=True)]
    return np.array(rows)


@pytest.mark.parametrize("name", MODELS)
def test_measured_quantities_are_the_same(name: str) -> None:
    problem = posed(*MODELS[name])
    old, new = initial_value(problem), rewritten(problem).ivp
    assert new is not old
    rng = np.random.default_rng(4)
    for _ in range(3):
        q = rng.uniform(*BOUNDS, len(old.unknowns))
        assert measured(new, q) == pytest.approx(measured(old, q), rel=1e-7, abs=1e-9)


def test_yields_become_units_and_a_state_that_drives_nothing_is_left_out() -> None:
    new = rewritten(posed(*MODELS["Monod"])).ivp
    assert new.states == ("X", "S")
    decay = new.q[new.unknowns.index("d")] * new.x[0]
    total = ca.Function("total", [new.x, new.q], [new.f[0] + new.f[1] + decay])
    assert float(total([0.3, 0.7], [0.4] * 5)) == pytest.approx(0.0, abs=1e-15)


def test_states_inside_functions_keep_their_units() -> None:
    new = rewritten(posed(*MODELS["reactor"])).ivp
    values = ca.Function("start", [new.q], [new.start])([0.5, 0.6, 0.7, 0.8])
    units = dict(zip(new.unknowns, (0.5, 0.6, 0.7, 0.8), strict=True))
    assert np.asarray(values).ravel() == pytest.approx([units["H"], 1.0])


def test_an_unknown_that_may_be_zero_is_no_unit() -> None:
    problem = posed(*MODELS["Monod"], bounds=(0.0, 2.0))
    assert rewritten(problem).ivp is initial_value(problem)


def test_networks_without_yields_stay_as_they_are() -> None:
    def network(x: Any, m: Any) -> Mapping[str, Any]:
        rate = m.k1 * x["A"] * x["B"] - m.k2 * x["C"]
        return {"A": -rate, "B": -2 * rate, "C": rate}

    problem = posed(network, {"A": 1.0, "B": 0.5, "C": 0.0}, "k1 k2")
    assert rewritten(problem).ivp is initial_value(problem)


def delayed(x: Any, m: Any) -> Mapping[str, Any]:
    """A leaves, and comes back through two stages of a delay, whose units are those of A."""
    one, two = 2 / m.tau * (x["A"] - x["D"]), 2 / m.tau * (x["D"] - x["E"])
    return {"A": m.k * (x["E"] - x["A"]), "D": one, "E": two}


@pytest.mark.parametrize(("lower", "first"), [(0.0, 0.3), (0.2, 0.3 * 0.4 * 0.5)])
def test_stages_of_a_delay_share_the_rates_of_what_passes_them(lower: float, first: float) -> None:
    """Where k may be zero only the stages' units may be made of it."""
    start = {"A": 1.0, "D": 0.0, "E": 0.0}
    model = posed(delayed, start, "k tau", (0.0, 2.0)).model
    table = pd.DataFrame({"time": TIMES, "A": np.ones(len(TIMES))})
    run = igpe.Experiment(table, start=start, sigma=0.1)
    bounds = {"k": (lower, 2.0), "tau": (0.2, 2.0)}
    problem = igpe.Problem(model, parameters=bounds, experiments=[run])
    new, states = rewritten(problem)
    total = ca.Function("total", [new.x, new.q], [ca.dot(ca.DM([2, 1, 1]), new.f)])
    assert float(total([0.3, 0.7, 0.2], [0.4, 0.5])) == pytest.approx(0.0, abs=1e-15)
    old = ca.Function("old", [new.x, new.q], [states[0]])
    assert float(old([0.3, 0.7, 0.2], [0.4, 0.5])) == pytest.approx(first)


def test_two_rates_of_first_order_are_two_reactions() -> None:
    def follows(x: Any, m: Any) -> Mapping[str, Any]:
        return {"A": m.k * x["B"] - x["A"], "B": -m.l * x["B"]}

    problem = posed(follows, {"A": 1.0, "B": 1.0}, "k l")
    assert rewritten(problem).ivp is initial_value(problem)


def inexact(power: int) -> igpe.Problem:
    """A rate before which a power of a tenth stands, which is no double."""

    def slopes(x: Any, m: Any) -> Mapping[str, Any]:
        rate = (0.1 * m.k * x["A"]) ** power
        return {"A": -rate, "B": m.y * rate}

    return posed(slopes, {"A": 1.0, "B": 0.0}, "k y")


def test_numbers_that_are_no_doubles_are_sums_of_two() -> None:
    new = rewritten(inexact(2)).ivp
    assert new.states == ("A",)
    (terms,) = _Slopes(new, [()]).of
    assert list(terms.values()) == [-(Fraction(0.1) ** 2)]


def test_numbers_that_are_not_even_sums_of_two_doubles_are_not_rounded() -> None:
    problem = inexact(5)
    assert rewritten(problem).ivp is initial_value(problem)


def test_null_space() -> None:
    rows: list[dict[tuple[int, ...], Any]] = [{(0,): 1, (1,): 2}, {(0,): -1}, {(1,): -4}]
    (found,) = null_space(rows)
    assert [2 * c for c in found] == [2 * found[0], 2 * found[0], found[0]]
    assert null_space(rows[:2]) == []


def test_several_states_that_drive_nothing_are_left_out_together() -> None:
    def products(x: Any, m: Any) -> Mapping[str, Any]:
        rate = m.k * x["A"]
        return {"P": m.y * rate, "Q": m.z * rate, "A": -rate}

    problem = posed(products, {"P": 0.0, "Q": 0.0, "A": 1.0}, "k y z")
    new = rewritten(problem).ivp
    assert new.states == ("A",)
    q = np.array([0.7, 0.3, 1.6])
    assert measured(new, q) == pytest.approx(measured(initial_value(problem), q), abs=1e-9)
