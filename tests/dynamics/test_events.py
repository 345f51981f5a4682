"""Events and moved switches: derivatives of every method against differences, and what is refused.

Values in closed form: `benchmarks/events.py`.
"""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from pyomo import dae

import igpe
from igpe.core.errors import DataError, ModelError, ProblemError, Unsupported
from igpe.dynamics.integrators import switched
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.chains import chains_of
from igpe.dynamics.shooting.residuals import Residuals
from igpe.equations.compiled import compiled
from igpe.equations.undefined import require_slopes_at_start
from igpe.numerics.least_squares.chains import Point
from igpe.problem.events import Event

TIMES = np.linspace(0.0, 10.0, 21)
TRUTH = {"k": 0.3, "c": 0.2, "t0": 3.3, "dose": 2.0, "td": 4.7, "full": 1.1}
EVENTS = (
    Event(at="td", add={"A": "dose"}),
    Event(at=7.1, set={"B": lambda m, t: 0.5 * m.B[t]}),
    Event(when=lambda m, t: m.B[t] >= m.full, set={"B": lambda m, t: 0.4 * m.B[t] * m.c}),
)


UNKNOWNS = {name: {"initialize": value, "bounds": (0, 10)} for name, value in TRUTH.items()}


def model(times):
    m = over_time(times, "A B", **UNKNOWNS)
    m.of_a = pyo.Constraint(
        m.t, rule=lambda m, t: m.dA[t] == -pyo.Expr_if(t >= m.t0, m.k, 0.05) * m.A[t]
    )
    m.of_b = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dB[t] == pyo.Expr_if(m.A[t] >= 0.8, 0.3, m.c) * m.A[t] - 0.1 * m.B[t],
    )
    return m


def posed(events=EVENTS, *, values=None, build=model, sigma=0.02, **given):
    table = values if values is not None else pd.DataFrame({"time": TIMES, "A": 0.0, "B": 0.0})
    start = given.pop("start", {"A": 1.0, "B": 0.0})
    run = igpe.Experiment(table, start=start, events=events, sigma=sigma, **given)
    return igpe.Problem(build, parameters=list(TRUTH), experiments=run)


def equilibrium(times):
    """Implicit B, which decides a rate, and is in an equation that A switches."""
    m = over_time(times, "A", **UNKNOWNS)
    m.B = pyo.Var(m.t, bounds=(0, 10))
    m.of_b = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.B[t] + pyo.Expr_if(m.A[t] <= 0.6, 1.0, 2.0) * m.B[t] ** 5 == m.A[t],
    )
    m.of_a = pyo.Constraint(
        m.t, rule=lambda m, t: m.dA[t] == -pyo.Expr_if(m.B[t] >= 0.45, m.k, m.c) * m.B[t]
    )
    return m


IMPLICIT_EVENTS = (
    Event(at="td", add={"A": "dose"}),
    Event(when=lambda m, t: m.B[t] <= 0.42, add={"A": lambda m, t: 0.5 * m.B[t] + m.c}),
)


@pytest.mark.slow
def test_implicit_variables_follow_the_states_across_switches():
    table = pd.DataFrame({"time": TIMES, "A": 0.0, "B": 0.0})
    run = igpe.Experiment(table, start={"A": 1.0}, events=IMPLICIT_EVENTS, sigma=0.02)
    problem = igpe.Problem(equilibrium, parameters=list(TRUTH), experiments=run)
    residuals = Residuals(problem, Sundials(1e-11, 1e-13))
    at = residuals(problem.box.vector(TRUTH))
    slopes = differences(lambda q: residuals(q).residual, problem.box.vector(TRUTH), 1e-5)
    assert at.jacobian == pytest.approx(slopes, rel=1e-5, abs=1e-5)
    assert np.abs(at.jacobian[:, problem.box.names.index("td")]).max() > 1  # of the dose
    a, b = igpe.simulate(problem, TRUTH, times=TIMES)[["A", "B"]].to_numpy().T
    assert b + np.where(a <= 0.6, 1.0, 2.0) * b**5 == pytest.approx(a, abs=1e-7)


def measured(seed=0, events=EVENTS[:2]):
    table = igpe.simulate(posed(events), TRUTH, times=TIMES)[["time", "A", "B"]]
    noise = np.random.default_rng(seed).standard_normal((len(TIMES), 2))
    table[["A", "B"]] += 0.02 * noise
    return table


def differences(function, x, step=1e-6):
    columns = [(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(len(x))]
    return np.stack(columns, axis=-1)


INTEGRATORS = [
    Automatic(1e-11, 1e-13),
    RungeKutta(1e-11, 1e-13),
    Sundials(1e-11, 1e-13),
    LockStep(1e-10, 1e-12),
]


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS, ids=lambda i: type(i).__name__)
def test_single_shooting_has_the_derivatives_of_its_residuals(integrator):
    residuals = Residuals(posed(), integrator)
    x = np.array(list(TRUTH.values()))
    at = residuals(x)
    by = differences(lambda v: residuals(v).residual, x, 1e-5)
    assert np.abs(at.jacobian - by).max() <= 2e-5 * np.abs(by).max()


def named(times):
    """The model with its switch inside named expressions, one of them of the other."""
    m = model(times)
    m.del_component(m.of_a)
    m.del_component(m.of_b)
    m.still = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.c * m.A[t])
    m.rate = pyo.Expression(m.t, rule=lambda m, t: pyo.Expr_if(t >= m.t0, m.k, 0.05))
    m.loss = pyo.Expression(m.t, rule=lambda m, t: m.rate[t] * m.A[t])
    m.of_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.loss[t])
    return m


@pytest.mark.parametrize("output", ["A", "loss", "rate"])
def test_equations_and_outputs_jump_where_their_named_expressions_do(output):
    table = pd.DataFrame({"time": TIMES, output: 0.0})
    problem = posed((), values=table, build=named)
    residuals = Residuals(problem, Automatic(1e-11, 1e-13))
    x = np.array(list(TRUTH.values()))
    rates = np.where(TRUTH["t0"] <= TIMES, TRUTH["k"], 0.05)
    late = np.maximum(TIMES - TRUTH["t0"], 0)
    amount = np.exp(-0.05 * (TIMES - late) - TRUTH["k"] * late)
    values = {"A": amount, "rate": rates, "loss": rates * amount}[output]
    at = residuals(x)
    assert 0.02 * at.residual == pytest.approx(values, abs=1e-7)
    by = differences(lambda v: residuals(v).residual, x, 1e-5)
    assert np.abs(at.jacobian - by).max() <= 2e-5 * np.abs(by).max()
    assert np.abs(by[:, 2]).max() > 0.1 or output == "rate"


def test_multiple_shooting_has_the_derivatives_of_residuals_and_gaps():
    problem = posed()
    chains = chains_of(problem, Automatic(1e-11, 1e-13), 6)
    (shooting,) = chains.shootings
    x = np.array(list(TRUTH.values()))
    rows = igpe.simulate(problem, TRUTH, times=shooting.nodes)[["A", "B"]].to_numpy()[:-1]
    nodes = rows * 1.02 + 0.003
    intervals, starts = shooting.intervals, Point(x, (nodes,)).nodes[0]
    shots = intervals.run(starts, x)

    def run(values):
        found = intervals.run(values[len(x) :].reshape(nodes.shape), values[: len(x)])
        return np.concatenate([found.ends.ravel(), found.measured.ravel()])

    by = differences(run, np.concatenate([x, nodes.ravel()]))
    exact, k = np.zeros_like(by), len(nodes)
    for i in range(k):
        own = slice(len(x) + 2 * i, len(x) + 2 * i + 2)
        exact[2 * i : 2 * i + 2, own] = shots.by_start[i]
        exact[2 * i : 2 * i + 2, : len(x)] = shots.by_unknown[i]
    for row, owner in enumerate(intervals.cut.owner):
        place = slice(2 * k + 2 * row, 2 * k + 2 * row + 2)
        exact[place, len(x) + 2 * owner : len(x) + 2 * owner + 2] = shots.measured_by_start[row]
        exact[place, : len(x)] = shots.measured_by_unknown[row]
    assert np.abs(exact - by).max() <= 1e-5 * np.abs(by).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [igpe.SingleShooting(), igpe.IncrementalShooting(), igpe.MultipleShooting()],
    ids=lambda m: type(m).__name__,
)
def test_every_shooting_method_finds_the_same_optimum(method):
    start = TRUTH | {"k": 0.4, "t0": 2.0, "dose": 1.5, "td": 4.6}
    problem = posed(EVENTS[:2], values=measured()).fixing({"full": 1.0})
    found = method.estimate(problem, start)
    near = igpe.SingleShooting().estimate(problem, TRUTH)
    assert found.objective == pytest.approx(near.objective, rel=1e-4)


@pytest.mark.slow
def test_a_dose_time_is_found_from_far_beyond_other_measurements():
    problem = posed(EVENTS[:2], values=measured()).fixing({"full": 1.0})
    found = igpe.SingleShooting().estimate(problem, TRUTH | {"td": 9.2, "dose": 0.5})
    assert found.parameters["td"] == pytest.approx(TRUTH["td"], abs=0.15)


def test_profile_and_prediction_follow_switches():
    problem = posed(values=measured(events=EVENTS))
    found = igpe.SingleShooting().estimate(problem, TRUTH)
    profile = igpe.profile(problem, found, ["t0"])["t0"]
    assert profile.lower < TRUTH["t0"] < profile.upper
    times = [2.0, 4.0, 6.0]
    predicted = igpe.predict(problem, found, times=times).table
    rows = igpe.simulate(problem, found.parameters, times=times)
    assert predicted[predicted["name"] == "A"]["value"].to_numpy() == pytest.approx(
        rows["A"].to_numpy(), rel=1e-6
    )


scaled = ode(
    {"A": lambda m, t: -m.k * m.A[t]},
    outputs={"signal": lambda m, t: m.scale * m.A[t]},
    k=(0.1, 5),
    dose=(0.1, 5),
    scale=(0.1, 5),
)
"""A dose whose size and scale are seen as a product."""


def test_identifiability_with_events_is_decided_by_integration():
    blank = pd.DataFrame({"time": TIMES, "signal": 0.0})
    dose = Event(at=2.0, add={"A": "dose"})
    run = igpe.Experiment(blank, start={"A": 0.0}, events=[dose], sigma=0.01)
    problem = igpe.Problem(scaled, parameters=["k", "dose", "scale"], experiments=run)
    said = str(igpe.check(problem))
    assert "numerical rank, not proved" in said
    assert said.count("; locally identifiable") == 1
    assert "Undecided at these start values and inputs: dose, scale." in said
    known = str(igpe.check(problem.fixing({"scale": 1.0})))
    assert known.count("; locally identifiable") == 2


@pytest.mark.slow
def test_estimate_leaves_switches_to_the_dynamics():
    known = {"full": 1.0} | {name: TRUTH[name] for name in ("k", "c", "td")}
    problem = posed(EVENTS[:2], values=measured()).fixing(known)
    found = igpe.check(problem)
    assert str(found).count("Step 3 does not support events and conditions") == 1
    assert "numerical rank, not proved" in str(found)
    assert found.findings[0].switches
    result = igpe.estimate(problem, certify=False)
    assert result.parameters["t0"] == pytest.approx(TRUTH["t0"], abs=0.3)


def test_what_is_measured_at_the_time_of_an_event_is_measured_before_it():
    events = [Event(at=0.0, add={"A": 1.0}), Event(at=5.0, set={"A": 7.0})]
    found = igpe.simulate(posed(events), TRUTH, times=[0.0, 5.0, 5.0 + 1e-9])["A"].to_numpy()
    assert found[0] == 1.0
    assert found[1] < 7.0
    assert found[2] == pytest.approx(7.0, rel=1e-6)


def test_or_after_it_where_the_event_says_so():
    events = [Event(at=5.0, set={"A": 7.0}, measured="after")]
    assert igpe.simulate(posed(events), TRUTH, times=[5.0])["A"][0] == pytest.approx(7.0)


@pytest.mark.parametrize("later", [[], [6.0]])
@pytest.mark.parametrize("first", [{"set": {"A": 7.0}}, {"at": lambda m, t: 0 * m.k + 5.0}])
def test_all_events_of_the_last_measured_time_happen_if_one_is_measured_after(first, later):
    """A measurement that follows does not change the one before."""
    one = Event(**{"at": 5.0, "set": {"A": 7.0}, **first})
    events = [one, Event(at=5.0, add={"A": 1.0}, measured="after")]
    found = igpe.simulate(posed(events), TRUTH, times=[5.0, *later])["A"]
    assert found[0] == pytest.approx(8.0)


@pytest.mark.parametrize(("at_start", "expected"), [(True, 3.0), (False, 1.0)])
def test_a_condition_that_is_true_at_the_start(at_start, expected):
    event = Event(when=lambda m, t: m.A[t] >= 0.5, set={"A": 3.0}, at_start=at_start)
    found = igpe.simulate(posed([event]), TRUTH, times=[1e-9])["A"][0]
    assert found == pytest.approx(expected, rel=1e-6)


BORDER = {
    "above": (lambda m, t: m.B[t] > 0, False, [1.0, 3.0]),
    "not below": (lambda m, t: m.B[t] >= 0, False, [1.0, 1.0]),
    "not above": (lambda m, t: m.B[t] <= 0, True, [3.0, 3.0]),
}


@pytest.mark.parametrize("name", BORDER)
def test_a_condition_at_its_limit_at_the_start_becomes_true_as_it_is_written(name):
    """B grows from 0."""
    when, at_start, expected = BORDER[name]
    measured = "after" if at_start else "before"
    event = Event(when=when, set={"A": 3.0}, at_start=at_start, measured=measured)
    found = igpe.simulate(posed([event]), TRUTH, times=[0.0, 1e-9])["A"].to_numpy()
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_linear_or_held_input_decides_too():
    def fed(times):
        m = model(times)
        m.u = pyo.Var(m.t)
        return m

    feed = igpe.step_input([0.0, 2.0, 6.0], [0.0, 1.0, 0.0])
    event = Event(when=lambda m, t: m.u[t] * m.A[t] >= 0.5 * m.A[t], set={"B": 3.0})
    problem = posed([event], build=fed, inputs={"u": feed})
    found = igpe.simulate(problem, TRUTH, times=[1.99, 2.0 + 1e-9, 10.0])["B"].to_numpy()
    assert found[0] < 1.0
    assert found[1] == pytest.approx(3.0, rel=1e-6)


BROKEN = {
    "touched": (
        Event(when=lambda m, t: (t - 5.0) ** 2 * m.A[t] <= 0, set={"B": 1.0}),
        "grazing",
    ),
    "endlessly": (
        Event(when=lambda m, t: m.B[t] >= 0.1, set={"B": lambda m, t: 0.1 - 1e-5 * m.A[t]}),
        "events occurred|grazing",
    ),
    "before the start": (Event(at=lambda m, t: m.t0 - 5.0, set={"B": 1.0}), "before the start"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_has_no_derivatives_or_no_end_is_said(name, monkeypatch):
    monkeypatch.setattr(switched, "MOST", 40)
    event, words = BROKEN[name]
    with pytest.raises(igpe.errors.EstimationFailed, match=words):
        igpe.simulate(posed([event]), TRUTH, times=TIMES)


def test_a_change_that_is_far_too_small_is_said():
    refill = Event(when=lambda m, t: m.A[t] <= 0.5, add={"A": 1e-6})
    with pytest.raises(igpe.errors.EstimationFailed, match=r"events occurred between.*the units"):
        igpe.simulate(posed([refill]), TRUTH, times=TIMES)


def test_sliding_is_said():
    def sliding(times):
        m = model(times)
        m.of_a.deactivate()
        m.slide = pyo.Constraint(
            m.t, rule=lambda m, t: m.dA[t] == pyo.Expr_if(m.A[t] >= 0.5, -m.k, m.c)
        )
        return m

    with pytest.raises(igpe.errors.EstimationFailed, match="sliding"):
        igpe.simulate(posed((), build=sliding), TRUTH, times=TIMES)


def braked(slope):
    """A block with the speed v, which a brake stops at t = 0.5."""
    table = pd.DataFrame({"time": [0.1, 0.4, 0.7, 1.0], "x": [0.18, 0.48, 0.5, 0.5]})
    build = ode({"x": lambda m, t: m.v[t], "v": slope}, mu=(0.1, 20), c=(0.1, 2))
    run = igpe.Experiment(table, start={"x": 0.0, "v": 2.0}, start_time=0.0, sigma=0.01)
    return igpe.Problem(build, parameters=["mu", "c"], experiments=run)


def test_what_comes_to_rest_at_the_threshold_stays_there():
    problem = braked(lambda m, t: -m.c * m.v[t] - m.mu * pyo.Expr_if(m.v[t] > 0, 1.0, 0.0))
    for c in np.linspace(0.2, 0.5, 20):  # rounding decides on which side of 0 the speed ends
        values = {"mu": 4.0, "c": float(c)}
        by_switches = Residuals(problem, Automatic())(problem.box.vector(values))
        assert by_switches is not None
        end = np.log1p(2 * c / 4.0) / c  # of the motion, v = (2 + 4 / c) exp(-c t) - 4 / c
        rest = (2 + 4 / c) / c * -np.expm1(-c * end) - 4 / c * end
        assert by_switches.residual[-1] == pytest.approx((rest - 0.5) / 0.01, abs=1e-4)


def test_an_estimate_that_nothing_can_integrate_says_why():
    sign = braked(
        lambda m, t: (
            -m.c * m.v[t] - m.mu * pyo.Expr_if(m.v[t] > 0, 1.0, pyo.Expr_if(m.v[t] < 0, -1.0, 0.0))
        )
    )
    with pytest.raises(igpe.errors.EstimationFailed, match="sliding"):
        igpe.estimate(sign)


REFUSED = {
    "no trigger": (lambda: Event(add={"A": 1}), DataError, "neither at= nor when="),
    "two triggers": (lambda: Event(at=1, when=max, add={"A": 1}), DataError, "both at= and when="),
    "a number as condition": (lambda: Event(when=2.0, add={"A": 1}), DataError, "write at=2.0"),
    "nothing jumps": (lambda: Event(at=1.0), DataError, "does not change any state"),
    "twice": (lambda: Event(at=1, add={"A": 1}, set={"A": 1}), DataError, "in both add= and set="),
    "no number": (lambda: Event(at=1, add={"A": [1]}), DataError, r"`add` of 'A' is \[1\]"),
    "negative delay": (lambda: Event(at=1, delay=-1, add={"A": 1}), DataError, "0 or more"),
    "no priority": (lambda: Event(at=1, priority="x", add={"A": 1}), DataError, "`priority` is"),
    "several times": (lambda: Event(at=[1, 2], add={"A": 1}), DataError, "write several events"),
    "no list": (lambda: posed({"A": 1.0}), DataError, "expected a list: events="),
    "no event": (lambda: posed([1.0]), DataError, "expected igpe.Event objects"),
    "too early": (lambda: posed([Event(at=-1, add={"A": 1})]), DataError, "before the experiment"),
    "no state": (lambda: posed([Event(at=1, add={"a": 1})]), ProblemError, "Did you mean 'A'"),
    "no parameter": (
        lambda: posed([Event(at="x", add={"A": 1})]),
        ProblemError,
        "event 1: `at` is",
    ),
    "a time of states": (
        lambda: posed([Event(at=lambda m, t: m.A[t], add={"A": 1})]),
        ModelError,
        "`at` of event 1 is A",
    ),
    "not a comparison": (
        lambda: posed([Event(when=lambda m, t: m.A[t], add={"A": 1})]),
        ModelError,
        "must compare quantities that change",
    ),
    "an unreadable rule": (
        lambda: posed([Event(at=1.0, add={"A": lambda m, t: m.none[t]})]),
        ModelError,
        "cannot follow a rule",
    ),
    "steady of no input": (lambda: posed(steady={"u": 1.0}), ProblemError, "steady= contains"),
    "steady of no number": (lambda: posed(steady={"u": "x"}), DataError, "`steady` contains"),
    "steady of switches": (
        lambda: posed(steady=True),
        Unsupported,
        "has a steady-state start, but",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_refusal_says_what_to_do(name):
    make, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        compiled(make()).initial_value_problem(0, switching=True)


METHODS = {
    "Collocation": lambda p: igpe.Collocation().estimate(p, TRUTH),
    "certify": igpe.certify,
    "design": lambda p: igpe.design(p, TRUTH),
}


@pytest.mark.parametrize("name", METHODS)
def test_other_methods_refuse(name):
    with pytest.raises(Unsupported, match="cannot follow events"):
        METHODS[name](posed())


def test_multiple_shooting_keeps_delays_after_a_condition_in_one_interval():
    event = Event(when=lambda m, t: m.A[t] <= 0.5, delay=1.0, add={"A": 1.0})
    table = igpe.simulate(posed([event]), TRUTH, times=TIMES)[["time", "A", "B"]]
    held = {n: v for n, v in TRUTH.items() if n not in ("k", "c")}
    problem = posed([event], values=table).fixing(held)
    estimate = igpe.MultipleShooting().estimate(problem, {"k": 0.4, "c": 0.15})
    assert estimate.parameters == pytest.approx({"k": TRUTH["k"], "c": TRUTH["c"]}, rel=1e-4)


def test_a_problem_without_events_has_no_switches():
    plain = posed((), build=_plain)
    assert compiled(plain).initial_value_problem(0).switching is None


def _plain(times):
    m = model(times)
    m.of_a.deactivate()
    m.of_b.deactivate()
    m.plain_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    m.plain_b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t] - m.c * m.B[t])
    return m


HELD = {
    "above": (lambda m, t: m.B[t] > 0, 0.0),
    "not below": (lambda m, t: m.B[t] >= 0, 1.0),
    "below": (lambda m, t: m.B[t] < 0, 0.0),
    "not above": (lambda m, t: m.B[t] <= 0, 1.0),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("washed", [False, True])
def test_a_condition_at_its_border_holds_as_it_is_written(name, washed):
    """B stays 0 from the start, or from the time at which it is washed out."""
    condition, expected = HELD[name]

    def build(times):
        m = model(times)
        for rows in (m.of_a, m.of_b):
            rows.deactivate()
        m.slope = pyo.Constraint(
            m.t, rule=lambda m, t: m.dA[t] == pyo.Expr_if(condition(m, t), 1.0, 0.0)
        )
        m.decay = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == -m.k * m.B[t])
        return m

    wash, start = [Event(at=2.0, set={"B": 0.0})], {"A": 0.0, "B": 1.0 if washed else 0.0}
    problem = posed(wash if washed else (), build=build, start=start)
    grown = igpe.simulate(problem, TRUTH, times=[0.0, 3.0, 4.0])["A"].to_numpy()
    assert grown[2] - grown[1] == pytest.approx(expected, abs=1e-9)


def test_a_condition_that_leaves_its_border_slowly_holds_on_its_side():
    """B is 0 and at rest at the start, but A makes it grow."""

    def build(times):
        m = model(times)
        for rows in (m.of_a, m.of_b):
            rows.deactivate()
        m.C = pyo.Var(m.t)
        m.dC = dae.DerivativeVar(m.C)
        m.slope = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == 1.0)
        m.grows = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.A[t])
        m.counts = pyo.Constraint(
            m.t, rule=lambda m, t: m.dC[t] == pyo.Expr_if(m.B[t] > 0, 1.0, 0.0)
        )
        return m

    problem = posed((), build=build, start={"A": 0.0, "B": 0.0, "C": 0.0})
    assert igpe.simulate(problem, TRUTH, times=[0.0, 3.0])["C"].to_numpy()[1] == pytest.approx(3.0)


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_constraints_beside_events_are_refused_if_they_are_active(least):
    """No method enforces constraints there; `begin` holds whatever k is."""

    def build(times):
        m = over_time(times, "A", "c", k=(0, 1))
        m.decay = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.content = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] == 2 * m.c[t])
        m.begin = pyo.Constraint(expr=m.c[m.t.first()] == 0.5)
        m.least = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= least)
        return m

    table = pd.DataFrame({"time": TIMES, "A": np.exp(-0.3 * TIMES) + (TIMES >= 5)})
    run = igpe.Experiment(table, start={"A": 1.0}, events=[Event(at=5.0, add={"A": 1.0})])
    problem = igpe.Problem(build, parameters=["k"], experiments=run)
    if least == 0:
        result = igpe.estimate(problem, certify=False)
        assert any("'least'] are inactive" in note for note in result.notes)
        return
    with pytest.raises(
        Unsupported, match=r"events, .*cannot enforce .*'begin', 'least'\].*limits: least\."
    ) as raised:
        igpe.estimate(problem)
    assert "hold at the start alone: begin. Remove them" in str(raised.value)
    (warning,) = igpe.check(problem, identifiability=False).warnings
    assert str(raised.value).startswith(warning)


def tank(times):
    """Outflow by Torricelli's law, and over a weir; it runs empty after the feed ends."""
    m = over_time(times, "h", c=(0.01, 2), w=(0, 20))
    m.F = pyo.Param(m.t, mutable=True, default=0.0)

    @m.Constraint(m.t)
    def law(m, t):
        over = pyo.Expr_if(m.h[t] > 1, m.w * (m.h[t] - 1), 0)
        return m.dh[t] == m.F[t] - m.c * pyo.sqrt(m.h[t]) - over

    return m


def test_a_tank_that_runs_empty_beside_a_switch_is_estimated():
    """Collocation cannot read the switch: its failure is no end."""
    times, truth = np.linspace(0.5, 25, 50), {"c": 0.3, "w": 3.0}
    feed = igpe.step_input([0, 10], [0.6, 0])

    def problem(h):
        table = pd.DataFrame({"time": times, "h": h})
        given = {"start": {"h": 0.1}, "start_time": 0, "sigma": 0.01, "inputs": {"F": feed}}
        run = igpe.Experiment(table, **given)
        return igpe.Problem(tank, parameters=["c", "w"], experiments=run)

    h = igpe.simulate(problem(0.0), truth, times)["h"].to_numpy()
    noise = 0.01 * np.random.default_rng(1).standard_normal(50)
    result = igpe.estimate(problem(h + noise), certify=False)
    for one in result.estimates:
        assert one.lower < truth[one.name] < one.upper


def test_stretches_between_switches_count_as_work():
    """They take longer than the steps in them, most where states are watched."""
    doses = tuple(Event(at=0.5 + k, add={"A": 0.1}) for k in range(6))
    x = np.array(list(TRUTH.values()))
    given = [posed(events=some) for some in ((), doses, EVENTS)]
    none, known, watched = (Residuals(p, Automatic()).trajectories(x)[0] for p in given)
    assert 0 < none.stretches < known.stretches
    assert known.stretches > 6
    assert watched.stretches > 4 * 3


def test_a_dose_at_the_start_gives_a_slope_its_value():
    """As sqrt(A - 1) with A = 0 before a dose of 2: the check before the search must not refuse."""

    build = ode({"A": lambda m, t: -m.k * pyo.sqrt(m.A[t] - 1)}, k=(0.01, 5))

    given = {"start": {"A": 0.0}, "start_time": 0.0, "events": [Event(at=0.0, add={"A": 2.0})]}
    run = igpe.Experiment(pd.DataFrame({"time": [0.5, 1.0], "A": [1.9, 1.8]}), **given)
    require_slopes_at_start(igpe.Problem(build, parameters=["k"], experiments=run))


LEVEL = lambda m, t: m.A[t] >= m.full  # noqa: E731
ROUGH = (Sundials(), Sundials(rtol=1e-5, atol=1e-7), Automatic(rtol=1e-5), RungeKutta(rtol=1e-5))


def counted(times):
    """A grows; events count in B."""
    m = over_time(times, "A B", **UNKNOWNS)
    m.of_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.k * m.A[t])
    m.of_b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == 0)
    return m


@pytest.mark.parametrize("integrator", ROUGH)
def test_an_event_happens_once_whatever_the_error_of_integration(integrator):
    count = Event(when=LEVEL, add={"B": 1.0})
    problem = posed([count], build=counted, start={"A": 0.1, "B": 0.0})
    found = igpe.simulate(problem, TRUTH, times=[0.0, 7.0, 9.0], integrator=integrator)
    assert found["B"].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("integrator", ROUGH)
def test_events_with_one_condition_all_happen(integrator):
    events = [Event(when=LEVEL, set={"A": 0.0}), Event(when=LEVEL, add={"B": 1.0}, delay=0.5)]
    problem = posed(events, build=counted, start={"A": 0.1, "B": 0.0})
    found = igpe.simulate(problem, TRUTH, times=[0.0, 7.0, 9.0], integrator=integrator)
    assert found["B"].tolist() == [0.0, 0.0, 1.0]
