"""Breaks at times that unknowns alone give, by the compiled driver: as Python follows events."""

from functools import partial

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import needs_compiler
from ode import ode, over_time

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta, RungeKuttaIntervals
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.integrators.switched import SwitchedIntervals, switched
from igpe.equations.compiled import compiled
from igpe.problem.events import Event
from igpe.problem.inputs import step_input

pytestmark = needs_compiler
TIMES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.0, 4.0])
VALUES = {"k": 0.7, "c": 0.4, "lag": 0.3, "dose": 1.5, "on": 1.7}
METHOD = RungeKutta(1e-9, 1e-11)


def at(time, *, measured="before", **given):
    return Event(at=time, measured=measured, **(given or {"add": {"A": "dose"}}))


DILUTED = {
    "A": lambda m, t: m.A[t] * m.V[t] / (m.V[t] + m.dose),
    "V": lambda m, t: m.V[t] + m.dose * m.u[t],
}
CASES = {
    "inside": (at(0.7), at(2.2, add={"A": 1.0})),
    "dilution": (at(1.3, set=DILUTED), at(2.0, set=DILUTED)),
    "at measurements": (at(0.5), at(1.5, measured="after")),
    "at the start": (at(0.0), at(4.0)),
    "at the start, measured after": (at(0.0, measured="after"), at(4.0, measured="after")),
    "at a node and where an input jumps": (at(1.0), at(3.0, measured="after"), at(2.0)),
    "two at one time": (at(1.2, set={"A": 2.0}), at(1.2, set={"A": lambda m, t: 3 * m.A[t]})),
    "lag": (at(lambda m, t: 0.6 + m.lag), at(lambda m, t: 2.6 + m.lag, set=DILUTED), at(1.1)),
    "two at the end, one measured after": (at(4.0), at(4.0, set=DILUTED, measured="after")),
    "none": (),
}


def model(times, *, on=True):
    unknowns = {name: {"initialize": v, "bounds": (0, 10)} for name, v in VALUES.items()}
    m = over_time(times, "A V", **unknowns)
    m.u = pyo.Param(m.t, mutable=True, initialize=0.0)
    rate = (lambda m, t: pyo.Expr_if(t >= m.on, m.k, 0.2)) if on else (lambda m, t: m.k)
    m.of_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.u[t] - rate(m, t) * m.A[t] ** 2)
    m.of_v = pyo.Constraint(m.t, rule=lambda m, t: m.dV[t] == m.c * m.A[t] - 0.1 * m.V[t])
    return m


def posed(case, **given):
    table = pd.DataFrame({"time": TIMES, "A": 0.0, "V": 0.0}).drop_duplicates("time")
    inputs = {"u": step_input([0.0, 1.0, 2.0], [0.5, 1.0, 0.3])}
    run = igpe.Experiment(
        table,
        start={"A": 1.0, "V": 2.0},
        events=CASES[case],
        sigma=0.1,
        inputs=inputs,
        start_time=0.0,
        **given,
    )
    build = partial(model, on=not given)
    problem = igpe.Problem(build, parameters=list(VALUES), experiments=run)
    return compiled(problem).initial_value_problem(0, switching=True)


def both(case, nodes, **given):
    """Intervals by breaks, and by events that Python follows."""
    ivp = posed(case, **given)
    arguments = ivp, np.array(nodes), TIMES
    made = METHOD.prepare(*arguments)
    assert isinstance(made, SwitchedIntervals if given else RungeKuttaIntervals)
    return made, switched(METHOD, *arguments), np.array([VALUES[n] for n in ivp.unknowns])


def starts(count):
    return 1 + np.arange(2.0 * count).reshape(-1, 2) / 3


@pytest.mark.parametrize("nodes", [[0.0, 4.0], [0.0, 1.0, 2.5, 4.0]], ids=["one", "three"])
@pytest.mark.parametrize("case", CASES)
def test_they_are_the_events(case, nodes):
    made, events, q = both(case, nodes)
    first = starts(len(nodes) - 1)
    one, other = made.run(first, q), events.run(first, q)
    for name in ("ends", "measured", "ends_by", "measured_by"):
        found, expected = getattr(one, name), getattr(other, name)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-7)
    plain = made.run(first, q, derivatives=False)
    assert plain.measured == pytest.approx(one.measured, rel=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_differences(case):
    made, _, q = both(case, [0.0, 4.0])
    found, rows = made.from_start(q), []
    for step in 1e-5 * np.eye(len(q)):
        up, down = (made.from_start(v, derivatives=False).measured for v in (q + step, q - step))
        rows.append((up - down) / 2e-5)
    assert found.measured_by == pytest.approx(np.stack(rows, axis=2), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT])
@pytest.mark.parametrize("case", CASES)
def test_one_sweep_back_gives_what_all_directions_give(case, pair):
    ivp = posed(case)
    q = np.array([VALUES[n] for n in ivp.unknowns])
    made = RungeKutta(1e-7, 1e-9, pair=pair).prepare(ivp, np.array([0.0, 1.0, 2.5, 4.0]), TIMES)
    first, n = starts(3), 2 + len(q)
    forwards = made.chained(first, q, np.eye(n), gaps=np.zeros((3, 2)), probed=True)
    recorded = made.recorded(first, q, np.zeros((n, 1)))
    weights = np.random.default_rng(1).normal(size=forwards.measured.shape)
    swept = made.swept(recorded, weights)
    back = np.concatenate([swept.by_node[0], swept.by_unknown])
    expected = np.einsum("th,thd->d", weights, forwards.measured_by)
    assert back == pytest.approx(expected, abs=1e-10 * np.abs(expected).max())


def test_they_follow_a_start_at_rest():
    made, _, q = both("inside", [0.0, 4.0], steady={"u": 0.5})
    assert isinstance(made.inner, RungeKuttaIntervals)
    found = made.from_start(q)
    plain = Sundials(1e-10, 1e-12).prepare(made.ivp, np.array([0.0, 4.0]), TIMES).from_start(q)
    assert found.measured == pytest.approx(plain.measured, rel=1e-6)
    assert found.measured_by == pytest.approx(plain.measured_by, rel=1e-5, abs=1e-6)


def test_what_is_not_finite_or_too_early_is_said():
    made, _, q = both("lag", [0.0, 4.0])
    early = q.copy()
    early[made.ivp.unknowns.index("lag")] = -2.0
    assert "lies at t = -1.4, before the start" in made.from_start(early).reason[0]
    q[made.ivp.unknowns.index("dose")] = np.inf
    assert "An event sets a state to a value that is not finite at" in made.from_start(q).reason[0]


def test_without_a_compiler_python_follows_them(no_compiler):
    ivp = posed("dilution")
    made = Automatic().prepare(ivp, np.array([0.0, 4.0]), TIMES)
    assert isinstance(made, SwitchedIntervals)
    assert made.slow


def test_a_trial_has_its_steps_anew_after_each_break():
    made, _, q = both("dilution", [0.0, 4.0])
    steps = int(made.from_start(q).steps.sum())
    with allowance(steps - 5):
        assert made.from_start(q).status[0].usable
    with allowance(5):
        assert not made.from_start(q).status[0].usable


LEVELS = [("b + a t >= 0", 1.0, 1), ("b + a t >= 0", -1.0, 0), ("b + a t >= 0", 0.0, 1)]
LEVELS += [("b + a t > 0", 1.0, 1), ("b + a t > 0", -1.0, 0), ("b + a t > 0", 0.0, 0)]


@pytest.mark.parametrize("method", [METHOD, Sundials(1e-9, 1e-11)])
@pytest.mark.parametrize(("condition", "b", "holds"), LEVELS)
def test_a_comparison_that_time_does_not_move_is_decided_by_its_constant(
    condition, b, holds, method
):
    def level(m, t):
        gap = m.b + m.a * t
        return -pyo.Expr_if(gap >= 0 if ">=" in condition else gap > 0, 1.0, 0.0) * m.x[t]

    build = ode({"x": level}, a=(-1, 1), b=(-2, 2))
    table = pd.DataFrame({"time": TIMES, "x": 0.0}).drop_duplicates("time")
    run = igpe.Experiment(table, start={"x": 1.0}, sigma=0.1)
    problem = igpe.Problem(build, parameters=["a", "b"], experiments=run)
    ivp = compiled(problem).initial_value_problem(0, switching=True)
    made = method.prepare(ivp, np.array([0.0, 4.0]), TIMES)
    for a in (0.0, -0.0):
        q = np.array([{"a": a, "b": b}[name] for name in ivp.unknowns])
        found = made.from_start(q)
        assert found.measured[-1, 0] == pytest.approx(np.exp(-4.0 * holds), rel=1e-6)
        assert np.isfinite(found.measured_by).all()


def test_their_formulas_stand_in_the_library_of_what_is_measured():
    models = [both(case, [0.0, 4.0])[0].model for case in ("inside", "dilution", "lag")]
    assert len({(id(one.driver), one.slopes.slopes) for one in models[:2]}) == 1
    for one in models:
        assert len({id(part.kept[1]) for part in (one.outputs, *one.breaks)}) == 1
        assert len(one.breaks) > 1


def test_between_breaks_the_driver_asks_whether_to_stop(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "igpe.dynamics.integrators.runge_kutta.stopped", lambda: asked.append(1) or False
    )
    build = ode({"x": lambda m, t: -m.k * m.x[t] ** 2}, k=(0, 10))
    doses = [Event(at=0.05 * n, add={"x": 1.0}) for n in range(1, 80)]
    table = pd.DataFrame({"time": [4.0], "x": [0.0]})
    run = igpe.Experiment(table, start={"x": 1.0}, start_time=0.0, sigma=0.1, events=doses)
    problem = igpe.Problem(build, parameters=["k"], experiments=run)
    ivp = compiled(problem).initial_value_problem(0, switching=True)
    made = METHOD.prepare(ivp, np.array([0.0, 4.0]), np.array([4.0]))
    found = made.from_start(np.array([1.0]))
    assert found.steps.sum() > 256
    assert asked
