"""Index 2 and 3: against the same models written by hand as ordinary equations, and refusals.

The witnesses are SciPy's integrations of equations that need no reduction: the pendulum by its
angle, the reactor and the drum with flows that were solved for by hand.
"""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import casadi as ca
import higher_index as models
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import igpe
from igpe.dynamics.integrators import Automatic, Sundials
from igpe.dynamics.shooting.limits_of_model import passed_bounds
from igpe.dynamics.shooting.residuals import Residuals
from igpe.equations.compiled import compiled
from igpe.equations.incidence import differentiated
from igpe.equations.reduction import RATE
from igpe.equations.symbols import Symbols

TIMES = np.linspace(0.0, 4.0, 41)
G = 9.81


def problem(model, parameters, measured, fixed=(), **conditions):
    """A problem whose measurements are all 1, to be simulated; some unknowns fixed at 1."""
    data = pd.DataFrame({"time": TIMES, **dict.fromkeys(measured, 1.0)})
    run = igpe.Experiment(data, **{"sigma": 0.01, **conditions})
    found = igpe.Problem(model, parameters=parameters, experiments=run)
    return found.fixing(dict.fromkeys(fixed, 1.0))


def swinging(start, fixed=("length",), model=models.pendulum, **conditions):
    return problem(model, ["g", "length"], ["x", "y"], fixed, start=start, **conditions)


def reacting(start, model=models.reactor, **conditions):
    return problem(model, ["k"], ["A", "B", "out"], start=start, **conditions)


def tempered(setpoint, **conditions):
    inputs = {"setpoint": setpoint}
    return problem(
        models.cooled, ["k0", "E"], ["c", "T", "Q"], start={"c": 2.0}, inputs=inputs, **conditions
    )


def boiling(start):
    return problem(models.flash, ["alpha"], ["x", "T", "D"], start=start)


def exact(slopes, start):
    return solve_ivp(
        slopes, (0.0, TIMES[-1]), start, t_eval=TIMES, rtol=1e-11, atol=1e-12, max_step=0.05
    ).y


def by_angle(angle, speed, g=G, length=1.0):
    """x, y, u, v of the pendulum by the equation of its angle."""
    a, w = exact(lambda _, s: [s[1], -g / length * np.sin(s[0])], [angle, speed])
    x, y = length * np.sin(a), -length * np.cos(a)
    return x, y, length * np.cos(a) * w, length * np.sin(a) * w


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [Sundials(), Automatic()], ids=["sundials", "automatic"])
@pytest.mark.parametrize(
    ("angle", "speed"),
    [(0.5, 0.0), (np.pi / 2, 0.0), (-2.0, 1.0), (0.5, 8.0)],
    ids=["small", "from the horizontal", "above the horizontal", "over the top"],
)
def test_a_pendulum_moves_as_its_angle_says_and_keeps_the_rod(angle, speed, integrator):
    x, y, u, v = by_angle(angle, speed)
    swung = swinging({"x": x[0], "y": y[0], "u": u[0], "v": v[0]})
    found = igpe.simulate(swung, {"g": G}, TIMES, integrator=integrator)
    for name, true in zip("xyuv", (x, y, u, v), strict=True):
        np.testing.assert_allclose(found[name], true, atol=2e-4 if speed > 5 else 2e-5)
    np.testing.assert_allclose(found.x**2 + found.y**2, 1.0, atol=1e-8)
    np.testing.assert_allclose(found.x * found.u + found.y * found.v, 0.0, atol=1e-8)


def test_the_states_themselves_stay_near_the_rod_without_any_correction():
    x, y, u, v = by_angle(0.5, 8.0)
    swung = swinging({"x": x[0], "y": y[0], "u": u[0], "v": v[0]})
    ivp = compiled(swung).initial_value_problem(0)
    run = Sundials().prepare(ivp, TIMES[[0, -1]], TIMES).trajectory(np.array([G]))
    states = dict(zip(ivp.states, run.states.T, strict=True))
    drift = np.abs(states["x"] ** 2 + states["y"] ** 2 - 1)
    assert 0 < drift.max() < 2e-6


def test_states_off_the_constraints_come_back_as_the_pull_says():
    times = np.linspace(0.0, 0.4, 9)
    decay = np.exp(-RATE * times / TIMES[-1])

    def off(posed, start, q):
        ivp = compiled(posed).initial_value_problem(0)
        made = Sundials().prepare(ivp, times[[0, -1]], times)
        states = made.run(np.array([[start[n] for n in ivp.states]]), np.array([q])).states
        return dict(zip(ivp.states, states.T, strict=True))

    swung = swinging({"x": 0.6, "y": -0.8, "u": 0.0, "v": 0.0})
    s = off(swung, {"x": 0.6, "y": -0.8, "u": 0.1, "v": 0.05}, G)
    along = s["x"] * s["u"] + s["y"] * s["v"]
    np.testing.assert_allclose(along, 0.02 * decay, rtol=1e-4)
    s = off(boiling({"M": 10.0, "n": 5.0}), {"M": 10.0, "n": 5.0, "H": 9.1}, 2.5)
    excess = s["H"] - s["M"] * [boiling_point(n / m) for n, m in zip(s["n"], s["M"], strict=True)]
    np.testing.assert_allclose(excess, excess[0] * decay, rtol=1e-3)
    assert abs(excess[0]) > 0.01


def boiling_point(x, alpha=2.5):
    """Where the two vapour pressures over the drum add up to 1."""

    def pressure(temperature):
        heavy = (1 - x) * np.exp(6 * (1 - 1 / temperature))
        return alpha * x * np.exp(5 * (1 - 1 / temperature)) + heavy

    return brentq(lambda temperature: pressure(temperature) - 1, 0.5, 1.5, xtol=1e-15)


def test_a_constant_volume_gives_the_outflow():
    def slopes(_, s):
        a, b = s / 1.5
        return [0.2 * 2.0 - 0.2 * a - 0.5 * s[0], -0.2 * b + 0.5 * s[0]]

    n_a, n_b = exact(slopes, [0.3, 0.0])
    found = igpe.simulate(reacting({"nA": 0.3, "nB": 0.0}), {"k": 0.5}, TIMES)
    np.testing.assert_allclose(found.A, n_a / 1.5, atol=1e-7)
    np.testing.assert_allclose(found.B, n_b / 1.5, atol=1e-7)
    np.testing.assert_allclose(found.out, 0.2, atol=1e-8)
    np.testing.assert_allclose(found.V, 1.5, atol=1e-10)


def setpoints():
    smooth = lambda t: 300 + 10 * pyo.tanh(t)  # noqa: E731
    yield smooth, lambda t: 300 + 10 * np.tanh(t), lambda t: 10 / np.cosh(t) ** 2
    bends = igpe.linear_input([0.0, 1.0, 3.0], [300.0, 310.0, 320.0])
    slope = lambda t: np.where(t <= 1, 10.0, np.where(t <= 3, 5.0, 0.0))  # noqa: E731
    yield bends, lambda t: np.interp(t, bends.times, bends.values), slope
    late = igpe.linear_input([1.0, 5.0], [300.0, 320.0])
    yield late, lambda t: np.interp(t, late.times, late.values), lambda t: 5.0 * (t > 1)
    yield 305.0, lambda t: 305.0 + 0 * t, lambda t: 0 * t


@pytest.mark.parametrize(
    ("given", "value", "slope"), [*setpoints()], ids=["smooth", "bends", "late", "number"]
)
def test_a_prescribed_temperature_gives_the_duty(given, value, slope):
    def rate(t, c):
        return 0.1 * np.exp(3.0 * (1 - 300 / value(t))) * c

    (c,) = exact(lambda t, s: 0.1 * (2 - s) - rate(t, s), [2.0])
    duty = 0.1 * (290 - value(TIMES)) + 40 * rate(TIMES, c) - slope(TIMES)
    accurate = Sundials(rtol=1e-10, atol=1e-12)
    found = igpe.simulate(tempered(given), {"k0": 0.1, "E": 3.0}, TIMES, integrator=accurate)
    np.testing.assert_allclose(found.c, c, atol=1e-7)
    np.testing.assert_allclose(found["T"], value(TIMES), rtol=1e-12)
    np.testing.assert_allclose(found.Q, duty, atol=1e-5)


def colder_is_faster(times):
    m = models.cooled(times)
    for t in m.t:
        m.rate[t].set_value(m.k0 * pyo.exp(m.E * (300.0 / m.T[t] - 1)) * m.c[t])
    return m


def test_a_prescribed_temperature_needs_no_initial_value():
    """At a T drawn near 1, exp(300 E / T) overflows; the setpoint gives T = 305."""
    given = {"start": {"c": 2.0}, "inputs": {"setpoint": 305.0}}
    found = igpe.simulate(
        problem(colder_is_faster, ["k0", "E"], ["c", "T", "Q"], **given), {"k0": 0.1, "E": 3.0}
    )
    rate = 0.1 * np.exp(3.0 * (300 / 305 - 1))
    np.testing.assert_allclose(found["T"], 305.0, rtol=1e-12)
    np.testing.assert_allclose(found.Q, 0.1 * (290 - 305) + 40 * rate * found.c, atol=1e-6)


def prescribed(times):
    m = over_time(times, "x", "z", a=(0.01, 5.0))
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.z[t])
    m.path = pyo.Constraint(m.t, rule=lambda m, t: m.x[t] == pyo.exp(-m.a * t))
    return m


def slipped(times):
    m = prescribed(times)
    m.path.deactivate()
    m.cancels = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.x[t] + m.z[t])
    return m


@pytest.mark.parametrize("start", [{}, {"x": 1.0}])
def test_the_only_state_may_be_prescribed(start):
    posed = problem(prescribed, ["a"], ["x", "z"], start=start)
    found = igpe.simulate(posed, {"a": 0.8}, TIMES)
    np.testing.assert_allclose(found.x, np.exp(-0.8 * TIMES), atol=1e-5)
    np.testing.assert_allclose(found.z, 0.8 * np.exp(-0.8 * TIMES), atol=1e-5)


def test_a_boiling_drum_at_constant_pressure_gives_its_vapour():
    alpha = 2.5

    def at(x):
        """Boiling point, its slope by x, and the vapour's fraction."""

        boils = boiling_point(x, alpha)
        light = alpha * x * np.exp(5 * (1 - 1 / boils))
        heavy = 1 - light
        by_x = light / x - heavy / (1 - x)
        return boils, -by_x * boils**2 / (5 * light + 6 * heavy), light

    def vapour(x):
        _, slope, y = at(x)
        return 1.0 / (5.0 + slope * (x - y))

    def slopes(_, s):
        x = s[1] / s[0]
        return [-vapour(x), -vapour(x) * at(x)[2]]

    m, n = exact(slopes, [10.0, 5.0])
    found = igpe.simulate(boiling({"M": 10.0, "n": 5.0}), {"alpha": alpha}, TIMES)
    np.testing.assert_allclose(found.M, m, rtol=1e-7)
    np.testing.assert_allclose(found.x, n / m, rtol=1e-7)
    np.testing.assert_allclose(found["T"], [at(x)[0] for x in n / m], rtol=1e-7)
    np.testing.assert_allclose(found.D, [vapour(x) for x in n / m], rtol=1e-5)


def test_a_column_settles_where_its_balances_meet():
    trays = 5
    start = {f"n[{i}]": 0.5 for i in range(trays)}
    measured = [*(f"x[{i}]" for i in range(trays)), "V[4]", "L[0]"]
    column = problem(
        partial(models.column, trays), ["alpha"], measured, start=start, inputs={"duty": 6.0}
    )
    end = igpe.simulate(column, {"alpha": 2.0}, [0.0, 60.0]).iloc[-1]
    light = (0.2 - end["L[0]"] * end["x[0]"]) / (0.2 * end["V[4]"])  # what leaves as distillate
    np.testing.assert_allclose(0.2 * end["V[4]"] + end["L[0]"], 0.4, rtol=1e-6)
    assert end["x[0]"] < end["x[2]"] < end["x[4]"] < light < 1


def directions(posed, integrator, values):
    """Derivatives of all that is measured, beside central differences."""
    ivp = compiled(posed).initial_value_problem(0)
    made = integrator.prepare(ivp, TIMES[[0, -1]], TIMES)
    q = np.array([values[n] for n in ivp.unknowns])
    exactly = made.trajectory(q).measured_by_unknown
    steps = 1e-5 * np.maximum(np.abs(q), 1.0)
    ends = [
        [made.trajectory(q + sign * step).measured for sign in (1, -1)]
        for step in steps * np.eye(len(q))
    ]
    differences = [(a - b) / (2 * s) for (a, b), s in zip(ends, steps, strict=True)]
    return exactly, np.stack(differences, axis=-1)


TIGHT = [Sundials(rtol=1e-11, atol=1e-12), Automatic(rtol=1e-11, atol=1e-12)]


@pytest.mark.slow
@pytest.mark.parametrize("integrator", TIGHT, ids=["sundials", "automatic"])
def test_derivatives_are_those_of_differences(integrator):
    start = {"x": igpe.Unknown(0.1, 0.9), "u": igpe.Unknown(-1.0, 1.0)}
    values = {"g": G, "length": 1.1, "x(t0)": 0.6, "u(t0)": 0.4}
    exactly, differences = directions(swinging(start, ()), integrator, values)
    np.testing.assert_allclose(exactly, differences, rtol=1e-5, atol=1e-5)
    exactly, differences = directions(boiling({"M": 10.0, "n": 5.0}), integrator, {"alpha": 2.5})
    np.testing.assert_allclose(exactly, differences, rtol=1e-5, atol=1e-7)


def test_rows_are_the_time_derivatives_of_those_before():
    t, x, dx = ca.SX.sym("t"), ca.SX.sym("x", 2), ca.SX.sym("dx", 2)
    z, u, none = ca.SX.sym("z"), ca.SX.sym("u"), ca.SX(0, 1)
    symbols = Symbols(("a", "b"), ("z",), ("u",), (), t, dx, x, z, u, none, none)
    constraint = ca.sin(t * x[0]) + ca.exp(x[0]) * u
    residual = ca.vertcat(constraint, dx[0] - x[1], dx[1] - z)
    array = differentiated(("bound", "first", "second"), residual, symbols)
    assert array.levels == {"bound": 2, "first": 1}
    assert array.index == 3
    assert set(array.inputs) == {(0, 1), (0, 2)}
    assert not array.further  # d(d(a)) is d(b)
    inputs = [array.inputs[0, order] for order in (1, 2)]
    rows = [
        ca.Function("row", [t, x, dx, z, u, *inputs], [row.expression])
        for row in array.rows
        if row.name == "bound"
    ]

    def course(time):  # any that meets the other equations
        a, b, slope = np.sin(1 + time), np.cos(1 + time), -np.sin(1 + time)
        return [time, [a, b], [b, slope], slope, np.cos(time), -np.sin(time), -np.cos(time)]

    now, step = 0.7, 1e-5
    for lower, upper in pairwise(rows):
        after, before = (float(lower(*course(now + sign * step))) for sign in (1, -1))
        assert float(upper(*course(now))) == pytest.approx((after - before) / (2 * step), rel=1e-7)
    assert len(rows) == 3


def noisy(posed, values, names, sigma):
    course, rng = igpe.simulate(posed, values, TIMES), np.random.default_rng(3)
    columns = {n: course[n].to_numpy() + sigma * rng.normal(size=len(TIMES)) for n in names}
    return posed.with_data(pd.DataFrame({"time": TIMES, **columns}))


CASES = {
    "gravity, passing the horizontal": SimpleNamespace(
        problem=lambda: swinging({"x": 1.0, "y": 0.0, "u": 0.0, "v": 0.0}), true={"g": G}
    ),
    "length, and unknown starts": SimpleNamespace(
        problem=lambda: swinging({"x": igpe.Unknown(0.0, 0.9), "u": 0.0}, ()),
        true={"g": G, "length": 1.0, "x(t0)": 0.6},
    ),
    "reactor": SimpleNamespace(
        problem=lambda: reacting({"V": 1.5, "nA": 0.3, "nB": 0.0}), true={"k": 0.5}
    ),
    "prescribed temperature": SimpleNamespace(
        problem=lambda: tempered(igpe.linear_input([0.0, 1.0, 4.0], [300.0, 310.0, 330.0])),
        true={"k0": 0.1, "E": 3.0},
    ),
    "drum": SimpleNamespace(problem=lambda: boiling({"M": 10.0, "n": 5.0}), true={"alpha": 2.5}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_estimates_from_noisy_data_agree_with_the_truth(case):
    posed = case.problem()
    posed = noisy(posed, case.true, posed.experiments[0].measured, 0.01)
    found = igpe.estimate(posed, seed=0, certify=False)
    own = {e.name: e for e in found.estimates}
    for name, true in case.true.items():
        assert abs(own[name].value - true) < 4 * own[name].standard_error < 0.4 * abs(true)
    assert any("have index" in note for note in found.notes)


def test_check_says_how_the_index_was_reduced():
    said = str(igpe.check(swinging({"x": 0.6, "u": 0.0})))
    assert "index 3" in said
    assert "rod (twice)" in said
    assert "rod constrains y, v, which are now algebraic variables" in said
    assert "Free states: x, u" in said
    (reduction,) = igpe.check(reacting({"nA": 0.0, "nB": 0.0})).reductions
    assert reduction.index == 2
    assert dict(reduction.differentiated)["full"] == 1
    assert reduction.bound == ("V",)


def test_an_event_may_change_a_free_state():
    dose = igpe.Event(at=1.0, add={"nA": 1.0})
    found = igpe.simulate(
        reacting({"nA": 0.0, "nB": 0.0}, events=[dose]), {"k": 0.5}, [0.0, 0.999, 1.001]
    )
    assert found.nA.iloc[2] - found.nA.iloc[1] == pytest.approx(1.0, abs=2e-3)
    np.testing.assert_allclose(found.V, 1.5, atol=1e-8)


def level_tanks(times):
    """Two tanks at one level; the flow between them follows."""
    m = over_time(times, "h other", "feed flow", k=(0, 5))
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dh[t] == m.feed[t] - m.flow[t])
    m.second = pyo.Constraint(m.t, rule=lambda m, t: m.dother[t] == m.flow[t] - m.k * m.other[t])
    m.level = pyo.Constraint(m.t, rule=lambda m, t: m.h[t] == m.other[t])
    return m


def test_an_unknown_inflow_may_be_the_only_input():
    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "h": 1.0}), start={"h": 1.0}, sigma=0.01)
    inflow = {"feed": igpe.losses.PiecewiseConstant((0.0,), 0, 5)}
    posed = igpe.Problem(level_tanks, parameters=["k"], experiments=run, time_varying=inflow)
    found = igpe.simulate(posed, {"k": 1.0, **dict.fromkeys(set(posed.unknowns.names) - {"k"}, 3)})
    exact = 3.0 - 2.0 * np.exp(-0.5 * found["time"])
    np.testing.assert_allclose(found["h"], exact, rtol=1e-4)


def abrupt(times):
    m = models.cooled(times)
    m.hold.deactivate()
    m.jumping = pyo.Constraint(
        m.t, rule=lambda m, t: m.T[t] == pyo.Expr_if(m.c[t] < 1.5, 300.0, 310.0)
    )
    return m


def of_known_outflow(times):
    m = models.reactor(times)
    m.out.fix(0.2)
    return m


def written_twice(times):
    m = models.reactor(times)
    m.conc_B.deactivate()
    m.again = pyo.Constraint(m.t, rule=lambda m, t: 2 * m.V[t] == 3.0)
    return m


def without_hint(times):
    m = models.pendulum(times)
    for y in m.y.values():
        y.set_value(None)
    return m


def far_from_finite(times):
    m = models.cooled(times)
    for t in m.t:
        m.rate[t].set_value(m.k0 * pyo.exp(pyo.exp(m.E * (m.T[t] + 300))) * m.c[t])
    return m


def step_setpoint():
    return tempered(igpe.step_input([0.0, 1.0], [300.0, 310.0]))


EMPTY = {"nA": 0.0, "nB": 0.0}
REFUSED = {
    "contradicting positions": (
        lambda: swinging({"x": 0.6, "y": -0.7, "u": 0.0, "v": 0.0}),
        "'rod' | 'y' | is -0.7 | -0.8 | Omit 'y' from start | correct the start values of ['x']",
    ),
    "an unknown that cancels": (
        lambda: problem(slipped, ["a"], ["x"], start={"x": 1.0}),
        "'cancels' | 'x' is 1 | it would be 0",
    ),
    "contradicting velocities": (
        lambda: swinging({"x": 0.6, "y": -0.8, "u": 1.0, "v": 0.0}),
        "'rod' | 'v' | is 0 | 0.75",
    ),
    "starts that fix an unknown": (
        lambda: swinging({"x": 0.6, "y": -0.8, "u": 0.0, "v": 0.0}, ()),
        "'y' | length = 1.25 | fix unknowns | Omit 'y' from start",
    ),
    "too few starts": (
        lambda: swinging({"x": 0.6, "y": -0.8}),
        "'u' | no start value | bind 2 of the 4 states | igpe.Unknown | Omit ['y'] from start",
    ),
    "too many unknown starts": (
        lambda: swinging({n: igpe.Unknown(-0.9, 0.9) for n in "xyuv"}),
        "follow from the other start values | 'rod' | from `start`",
    ),
    "starts without root": (
        lambda: swinging({"x": 1.6, "u": 0.0}),
        "'y' | 'rod' | no root",
    ),
    "several roots": (
        lambda: swinging({"x": 0.6, "u": 0.0}, model=without_hint),
        "'y' | several roots | initialize",
    ),
    "equations that overflow": (
        lambda: problem(
            far_from_finite, ["k0", "E"], ["c"], start={"c": 2.0}, inputs={"setpoint": 305.0}
        ),
        "'mass' | 'heat' | no finite derivatives | initialize=",
    ),
    "input that jumps": (step_setpoint, "'hold' | 'setpoint' | igpe.step_input | smooth"),
    "function that jumps": (
        lambda: tempered(lambda t: pyo.Expr_if(t < 1, 300, 310)),
        "'hold' | 'setpoint' | jumps",
    ),
    "equation that jumps": (
        lambda: problem(abrupt, ["k0", "E"], ["c", "Q"], start={"c": 2.0}),
        "'jumping' | differentiated | Expr_if | smooth transition",
    ),
    "event of a bound state": (
        lambda: reacting(EMPTY, events=[igpe.Event(at=1.0, add={"V": 0.1})]),
        "'V' | 'full' | jump alone",
    ),
    "too many equations": (
        lambda: problem(of_known_outflow, ["k"], ["A"], start={"V": 1.5, "nA": 0.0, "nB": 0.0}),
        "differentiated repeatedly | 'full'",
    ),
    "structurally singular": (
        lambda: reacting({"V": 1.5} | EMPTY, model=written_twice),
        "differentiated repeatedly | 'full', 'again' | undetermined | 'nB'",
    ),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_reduced_is_refused_in_a_sentence(make, words):
    with pytest.raises(igpe.errors.ModelError) as caught:
        igpe.check(make())
    for word in words.split(" | "):
        assert word in str(caught.value)


def test_a_start_value_that_no_other_can_mend_is_blamed_alone():
    """The temperature is prescribed: the start value of c has no part in it."""
    held = problem(
        models.cooled, ["k0", "E"], ["c"], start={"c": 2.0, "T": 300.0}, inputs={"setpoint": 320.0}
    )
    words = r"'T' is 300, but by these equations it would be 320. Omit 'T' .* compute it.$"
    with pytest.raises(igpe.errors.ModelError, match=words):
        igpe.check(held)


def test_where_a_root_is_selected_no_start_value_is_recommended_that_would_be_refused():
    with pytest.raises(igpe.errors.ModelError, match=r"initialize=\.\.\.\)\) or bounds\.$"):
        igpe.check(swinging({"x": 0.6, "u": 0.0}, (), model=without_hint))


def test_equations_that_depend_on_each_other_in_numbers_are_refused():
    def model(times):
        m = models.reactor(times)
        m.full.deactivate()
        m.again = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] * m.V[t] == m.nA[t] + 1e-30 * m.V[t])
        return m

    with pytest.raises(igpe.errors.ModelError, match=r"numerically dependent.*again"):
        igpe.check(reacting({"V": 1.5} | EMPTY, model=model))


def test_proofs_are_refused_and_constraints_are_kept():
    swung = swinging({"x": 0.6, "u": 0.0})
    with pytest.raises(igpe.errors.Unsupported, match="higher-index"):
        igpe.certify(swung, {"g": G})

    def limited(times):
        m = models.pendulum(times)
        m.low = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] <= -0.3)
        return m

    kept = noisy(swinging({"x": 0.6, "u": 0.0}, model=limited), {"g": G}, ["x", "y"], 0.01)
    for method in (igpe.Collocation(), igpe.MultipleShooting()):
        found = method.estimate(kept, {"g": 9.0})
        assert found.parameters["g"] == pytest.approx(G, abs=0.1)


@pytest.mark.slow
def test_constraints_on_free_and_bound_states_are_kept_and_bounds_compared_by_name():
    def limited(times):
        m = models.reactor(times)
        m.top = pyo.Constraint(m.t, rule=lambda m, t: m.V[t] <= 2.0)
        m.most = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.5)
        return m

    kept = noisy(reacting({"nA": 0.3, "nB": 0.0}, model=limited), {"k": 0.5}, ["A", "B"], 0.01)
    held = igpe.MultipleShooting().estimate(kept, {"k": 0.3})
    free = igpe.SingleShooting().estimate(
        noisy(reacting({"nA": 0.3, "nB": 0.0}), {"k": 0.5}, ["A", "B"], 0.01), {"k": 0.3}
    )
    assert igpe.simulate(kept, held.parameters).B.max() == pytest.approx(0.5, abs=1e-4)
    assert held.parameters["k"] < 0.95 * free.parameters["k"]

    def bounded(times):  # V has no place among the free states, and they are below its bound
        m = models.reactor(times)
        for t in m.t:
            m.V[t].setlb(1.4)
            m.nB[t].setub(5.0)
        return m

    posed = noisy(reacting({"nA": 0.3, "nB": 0.0}, model=bounded), {"k": 0.5}, ["A", "B"], 0.01)
    residuals = Residuals(posed, Sundials())
    assert passed_bounds(posed, residuals.integrator, np.array([0.5])) == []


def test_a_constraint_that_is_linear_in_bound_states_lets_an_optimum_be_proved():
    posed = noisy(reacting({"nA": 0.3, "nB": 0.0}), {"k": 0.5}, ["A", "B", "out"], 0.01)
    best = igpe.SingleShooting().estimate(posed, {"k": 0.4})
    proof = igpe.certify(posed, best)
    assert proof.closed
    assert 0.99 * best.objective < proof.lower_bound <= best.objective
    assert igpe.verify(proof, posed)


@pytest.mark.parametrize(
    "method", [igpe.Collocation(), igpe.MultipleShooting(), igpe.IncrementalShooting()], ids=repr
)
def test_methods_on_the_dynamics_agree(method):
    swung = noisy(swinging({"x": 1.0, "y": 0.0, "u": 0.0, "v": 0.0}), {"g": G}, ["x", "y"], 0.01)
    one = method.estimate(swung, {"g": 9.3})
    other = igpe.SingleShooting().estimate(swung, {"g": 9.3})
    assert one.parameters["g"] == pytest.approx(other.parameters["g"], rel=1e-4)


def test_a_start_that_an_unknown_makes_impossible_breaks_the_integration_alone():
    swung = swinging({"x": 0.6, "u": 0.0}, ())
    with pytest.raises((igpe.errors.EstimationFailed, igpe.errors.ModelError), match="start"):
        igpe.simulate(swung, {"g": G, "length": 0.55})


def coupled(factors, rule, times):
    """Two balances of one capacity between x and y, as of a capacitor: slopes occur as x' - y'."""
    m = over_time(times, "x y", k={"initialize": 1.0, "bounds": (0.1, 3.0)}, c=(0.5, 5.0))
    m.one = pyo.Constraint(
        m.t, rule=lambda m, t: factors[0](m, t) * (m.dx[t] - m.dy[t]) == -m.k * m.x[t]
    )
    m.other = pyo.Constraint(
        m.t, rule=lambda m, t: factors[1](m, t) * (m.dy[t] - m.dx[t]) == rule(m, t)
    )
    return m


@pytest.mark.parametrize(
    ("factors", "a", "b"),
    [
        ((lambda m, t: 2.0, lambda m, t: 0.5), 2.0, 0.5),
        ((lambda m, t: m.c, lambda m, t: 3.0), 1.2, 3.0),
        ((lambda m, t: 1e13, lambda m, t: 1e13), 1e13, 1e13),
    ],
    ids=["numbers", "parameter", "large numbers"],
)
def test_slopes_that_cancel_in_a_combination_of_balances(factors, a, b):
    """a (x' - y') = -k x and b (y' - x') = -y, so that y = -(b / a) k x."""
    model = partial(coupled, factors, lambda m, t: -m.y[t])
    found = problem(model, ["k", "c"], ["x", "y"], start={"x": 1.0})
    run = igpe.simulate(found, {"k": 0.8, "c": 1.2}, TIMES)
    assert run["x"].to_numpy() == pytest.approx(np.exp(-0.8 * TIMES / (a + 0.8 * b)), rel=1e-6)
    assert run["y"].to_numpy() == pytest.approx(-0.8 * b / a * run["x"].to_numpy(), rel=1e-6)
    assert "other combined with one constrains y" in str(igpe.check(found))


def test_a_start_value_is_missing_where_slopes_do_not_cancel():
    factors = (lambda m, t: 1.0, lambda m, t: 1.0)
    model = partial(coupled, factors, lambda m, t: -m.y[t] - m.dx[t])
    found = problem(model, ["k"], ["x"], start={"x": 1.0})
    with pytest.raises(igpe.errors.ProblemError, match=r"states \['y'\] have no start value"):
        igpe.check(found)


@pytest.mark.parametrize(
    ("factors", "rule", "words"),
    [
        (1.0, lambda m, t: m.k * m.x[t], "one equation follows from the others, or"),
        (
            1.0,
            lambda m, t: m.k * m.x[t] + 1,
            "one equation follows from the others, or",
        ),
        (None, lambda m, t: -m.y[t], "only if its factors are constant"),
    ],
    ids=["follows", "contradicts", "factors of states"],
)
def test_equations_that_depend_on_each_other_are_refused(factors, rule, words):
    one = (lambda m, t: m.x[t] + 1) if factors is None else (lambda m, t: factors)
    model = partial(coupled, (one, lambda m, t: 1.0), rule)
    found = problem(model, ["k"], ["x"], start={"x": 1.0, "y": 0.0})
    with pytest.raises(igpe.errors.ModelError, match=words):
        igpe.check(found)


def test_the_transistor_amplifier():
    """Hairer and Wanner, Solving Ordinary Differential Equations II, with published end values."""
    start = {"y[1]": 0, "y[2]": 3, "y[3]": 3, "y[4]": 6, "y[5]": 3, "y[6]": 3, "y[7]": 6, "y[8]": 0}
    data = pd.DataFrame({"time": [0.1, 0.2], "y[8]": 0.0})
    run = igpe.Experiment(data, start=start, start_time=0.0, sigma=0.01)
    found = igpe.Problem(models.amplifier, parameters=["beta"], experiments=run)
    end = igpe.simulate(found, {"beta": 1e-6}, [0.2]).filter(like="y[").to_numpy()[0]
    assert end == pytest.approx(
        [
            -5.562145012262709e-3,
            3.006522471903042,
            2.849958788608128,
            2.926422536206241,
            2.704617865010554,
            2.761837778393145,
            4.770927631616772,
            1.236995868091548,
        ],
        abs=1e-5,
    )
