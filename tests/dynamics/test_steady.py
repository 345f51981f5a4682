"""Steady starts: values in closed form, derivatives against differences, and what is refused."""

from itertools import cycle

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time

import igpe
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.dynamics.integrators import steady as steady_starts
from igpe.dynamics.integrators import switched
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.shooting.residuals import (
    BOUNDED,
    FACTORED,
    OVERHEAD,
    SWITCHED,
    Residuals,
    runs_of,
)
from igpe.equations.compiled import compiled
from igpe.structure.identifiability import Access

TIMES = np.linspace(0.0, 10.0, 11)
TRUTH = {"k": 0.3, "r": 0.2, "f": 3.0, "total": 2.0}


def model(slopes):
    """A, B, C with slopes (m, t) -> three expressions; u is an input."""

    each = {name: lambda m, t, i=i: slopes(m, t)[i] for i, name in enumerate("ABC")}
    unknowns = {name: {"initialize": v, "bounds": (0.01, 10)} for name, v in TRUTH.items()}
    return ode(each, inputs=["u"], **unknowns)


def binding(m, t):
    """A <-> B under u, C made by B and lost by its square: A + B is conserved."""
    forth = m.k * m.u[t] * m.A[t] - m.r * m.B[t]
    return -forth, forth, m.f * m.B[t] - m.C[t] ** 2


def posed(slopes=binding, steady=True, u=0.5, start=None, events=()):
    table = pd.DataFrame({"time": TIMES, "A": 0.0, "C": 0.0})
    run = igpe.Experiment(
        table,
        start=start or {"A": "total", "B": 0.0, "C": 1.0},
        inputs={"u": u},
        steady=steady,
        events=events,
        sigma=0.1,
    )
    return igpe.Problem(model(slopes), parameters=list(TRUTH), experiments=run)


@pytest.mark.parametrize(("steady", "u"), [(True, 0.5), ({"u": 0.5}, 2.0)])
def test_it_starts_at_rest_with_conserved_sums(steady, u):
    table = igpe.simulate(posed(steady=steady, u=u), TRUTH, times=[0.0, 1.0])
    b = 2.0 - 2 * 0.2 / (0.3 * 0.5 + 0.2)
    first = table[["A", "B", "C"]].to_numpy()[0]
    assert first == pytest.approx([2.0 - b, b, np.sqrt(3.0 * b)], rel=1e-12)
    moved = table["A"].iloc[1] - table["A"].iloc[0]
    assert moved == pytest.approx(0.0, abs=1e-9) if u == 0.5 else moved < -0.1


def test_an_unknown_that_counts_only_before_the_start_is_seen():
    reach = igpe.check(posed(steady={"u": 0.5}, u=0.0), identifiability=False)["k"].reach
    assert reach is Access.DYNAMIC
    reach = igpe.check(posed(steady=True, u=0.0), identifiability=False)["k"].reach
    assert reach is Access.UNREACHABLE


@pytest.mark.parametrize(("noise", "is_found"), [(1e-11, True), (1e-5, False)])
def test_steps_that_fall_to_rounding_have_converged(monkeypatch, noise, is_found):
    resting = runs_of(posed(), Automatic())[0].simulation.intervals.resting
    slopes, signs = resting._slopes, cycle([-1.0, 1.0])

    def rounded(x, at):
        here = slopes(x, at)
        return here._replace(f=here.f + noise * next(signs))

    monkeypatch.setattr(resting, "_slopes", rounded)
    found = resting(np.array([*TRUTH.values()]))
    assert (found.why == "") is is_found
    assert not is_found or found.states[0] == pytest.approx(0.4 / 0.35, rel=1e-9)


def off_differences(problem):
    """How far derivatives are off central differences, at most."""
    residuals = Residuals(problem, Automatic(1e-11, 1e-13))
    x = np.array(list(TRUTH.values()))
    by = [(residuals(x + d).residual - residuals(x - d).residual) / 2e-5 for d in 1e-5 * np.eye(4)]
    return np.abs(residuals(x).jacobian - np.stack(by, 1)).max()


def several(*, measured=("A", "C"), local=(), runs=(("one", 0.5, 2.0), ("two", 0.5, 3.0))):
    """Experiments `name, u before, u` whose start values the model gives."""

    def started(times):
        m = model(binding)(times)
        for name in "BC":
            m.component(name)[0.0].fix(0.0)
        m.first = pyo.Constraint(expr=m.A[0.0] == m.total)
        m.sum = pyo.Expression(m.t, rule=lambda m, t: m.A[t] + 2 * m.B[t] + m.C[t])
        return m

    def experiment(name, before, u):
        table = pd.DataFrame({"time": TIMES, **dict.fromkeys(measured, 1.0)})
        return igpe.Experiment(table, name=name, inputs={"u": u}, steady={"u": before}, sigma=0.1)

    experiments = [experiment(*run) for run in runs]
    return igpe.Problem(started, parameters=list(TRUTH), experiments=experiments, local=list(local))


def rests(problem):
    """What comes to rest before each experiment, and what each run asks for it."""
    ivps = [
        compiled(problem).initial_value_problem(k, switching=True)
        for k in range(len(problem.experiments))
    ]
    every = runs_of(problem, Automatic())
    return [id(i.rest) for i in ivps], [id(r.simulation.intervals.resting) for r in every]


@pytest.mark.slow
def test_experiments_that_come_to_rest_alike_share_the_state_bit_by_bit():
    runs = (("one", 0.5, 2.0), ("two", 0.5, 3.0), ("other", 0.7, 2.0))
    made = several(measured=["sum"], runs=runs)
    for shared in rests(made):
        assert shared[0] == shared[1] != shared[2]
    q = np.array(list(TRUTH.values()))
    together = [r.simulation.run(q) for r in runs_of(made, Automatic())]
    for one, own in zip(together, runs, strict=True):
        (run,) = runs_of(several(measured=["sum"], runs=(own,)), Automatic())
        alone = run.simulation.run(q)
        assert np.array_equal(one.states, alone.states)
        assert np.array_equal(one.by_unknown, alone.by_unknown)
        assert one.steps == alone.steps
    moved = [r.simulation.run(1.1 * q).states[0] for r in runs_of(made, Automatic())]
    assert np.abs(moved[1] - together[1].states[0]).min() > 1e-3


def test_steps_to_rest_count_as_work_without_sensitivities():
    residuals, q = Residuals(several(), Automatic()), np.array(list(TRUTH.values()))
    every = residuals.trajectories(q)
    assert all(0 < one.plain < one.steps for one in every)
    moved = sum(3 * (one.plain + (one.steps - one.plain) * (1 + len(q))) for one in every)
    least = sum(OVERHEAD + SWITCHED * one.stretches for one in every)
    step = int(len(q) ** 2 * (FACTORED * len(residuals) + BOUNDED * len(q)))
    assert residuals.work == least + moved + step


@pytest.mark.skipif(not compiler(), reason="needs a C compiler")
def test_a_cost_alone_needs_no_derivatives_and_a_rough_evaluation_fewer_steps():
    residuals, q = Residuals(several(), Automatic()), np.array(list(TRUTH.values()))
    cost, alone = residuals.cost(q), residuals.work
    at = residuals(q)
    exact = residuals.work - alone
    least = 2 * (OVERHEAD + SWITCHED)
    assert exact - least > 2 * (alone - least)
    assert cost == pytest.approx(at.cost, rel=1e-6)
    rough = residuals.rougher(1e-4)
    before = rough.work
    assert rough(q).cost == pytest.approx(at.cost, rel=1e-2)
    assert rough.work - before < exact


@pytest.mark.parametrize("given", [{"measured": ["A"]}, {"local": ["k"], "measured": ["sum"]}])
def test_experiments_with_sizes_or_unknowns_of_their_own_rest_alone(given):
    for own in rests(several(**given)):
        assert own[0] != own[1]


def by_volume(m, t):
    """A <-> B in two volumes, of which one is unknown: f A + B is conserved."""
    forth = m.k * m.u[t] * m.A[t] - m.r * m.B[t]
    return -forth / m.f, forth, m.A[t] - m.C[t]


def test_sums_may_depend_on_unknowns():
    made = posed(by_volume)
    assert first(made)[0] == pytest.approx(3 * 2.0 / (3 + 0.15 / 0.2), rel=1e-10)
    assert off_differences(made) <= 1e-6


def catalysed(m, t):
    """A <-> B by C, of which there is none: A and B stay what they are."""
    return -m.k * m.A[t] * m.C[t], m.k * m.A[t] * m.C[t], -m.r * m.C[t] * m.B[t]


def test_what_nothing_moves_stays():
    made = posed(catalysed, start={"A": "total", "B": 0.5, "C": 0.0})
    assert first(made) == pytest.approx([2.0, 0.5, 0.0], abs=1e-12)
    assert off_differences(made) <= 1e-6


@pytest.mark.parametrize("fast", [1e4, 1e8, 1e12])
def test_rates_may_differ_by_many_decades(fast):
    """A <-> B at once beside C, which slowly takes from nothing and decays."""

    def slopes(m, t):
        forth = fast * (m.k * m.A[t] - m.r * m.B[t])
        return -forth, forth, 1e-3 * (m.f - m.C[t])

    assert first(posed(slopes)) == pytest.approx([0.8, 1.2, 3.0], rel=1e-9)


def test_derivatives_are_those_of_the_implicit_function():
    assert off_differences(posed(steady={"u": 0.5}, u=2.0)) <= 1e-6


def first(problem):
    """States at the start."""
    return igpe.simulate(problem, TRUTH, times=[0.0, 1.0])[["A", "B", "C"]].to_numpy()[0]


def eaten(m, t):
    """A is lost at once where C is above r, B as ever; C decays from its start."""
    lost = m.k * pyo.Expr_if(m.C[t] >= m.r, m.A[t], 0.0)
    return -lost, -m.f * m.B[t], -m.f * m.C[t]


def test_states_switch_equations_on_the_way_to_rest():
    """What is left of A depends on when C fell below r: a rest that only the way there tells."""
    problem = posed(eaten, start={"A": "total", "B": 1.0, "C": 5.0})
    left = 2.0 * np.exp(-0.3 * np.log(5.0 / 0.2) / 3.0)
    assert first(problem) == pytest.approx([left, 0.0, 0.0], abs=1e-7)
    assert off_differences(problem) <= 1e-6


LOST = {"A": lambda m, t: 0.1 * m.A[t] * m.f}


@pytest.mark.parametrize("delay", [0.0, "r"])
def test_an_event_on_the_way_changes_what_is_conserved(delay):
    """A falls from 2 to its rest at 1.142; at 1.5 it is cut, or r later."""
    cut = igpe.Event(when=lambda m, t: m.A[t] <= 7.5 * m.r, set=LOST, delay=delay, before=True)
    problem = posed(steady={"u": 0.5}, u=2.0, events=[cut])
    rest, late = 2 * 0.2 / 0.35, 0.0 if delay == 0.0 else 0.2
    at = rest + (1.5 - rest) * np.exp(-0.35 * late)
    b = (2.0 - at + 0.1 * at * 3.0) * 0.15 / 0.35
    assert first(problem)[1:] == pytest.approx([b, np.sqrt(3.0 * b)], rel=1e-7)
    assert off_differences(problem) <= 1e-6


def test_events_happen_before_only_where_they_say_so():
    cut = igpe.Event(when=lambda m, t: m.A[t] <= 1.5, set=LOST)
    assert first(posed(events=[cut])) == pytest.approx(first(posed()), rel=1e-12)


def dosed(added, *, steady, u, **given):
    """An event that adds to A, and so to the conserved sum of A and B."""
    return posed(steady=steady, u=u, events=[igpe.Event(add={"A": added}, **given)])


def test_what_is_true_at_rest_does_not_happen_again_at_the_start():
    given = {"when": lambda m, t: m.A[t] <= 3.0, "before": True, "at_start": True}
    once = dosed(0.5, steady=True, u=0.5, **given)
    assert first(once)[:2].sum() == pytest.approx(2.5, rel=1e-12)
    assert igpe.simulate(once, TRUTH, times=[0.0, 1.0])[["A", "B"]].to_numpy()[1].sum() == (
        pytest.approx(2.5, rel=1e-9)
    )


def test_what_inputs_make_true_at_the_start_happens_there():
    given = {"when": lambda m, t: m.u[t] * m.A[t] > 1.0, "before": True, "measured": "after"}
    there = dosed(0.5, steady={"u": 0.0}, u=0.75, **given)
    assert first(there)[:2] == pytest.approx([2.5, 0.0], abs=1e-10)
    never = dosed(0.5, steady={"u": 0.75}, u=0.75, **given)
    assert first(never)[:2].sum() == pytest.approx(2.0, rel=1e-10)


def stopped(m, t):
    """A grows to 2 and stays there, at which an event waits for it."""
    return pyo.Expr_if(m.A[t] <= 2.0, m.k, 0.0), -m.B[t], -m.C[t]


@pytest.mark.slow
@pytest.mark.parametrize("steady", [True, False])
def test_a_switch_and_an_event_at_one_place_happen_together(steady):
    jump = igpe.Event(when=lambda m, t: m.A[t] >= 2.0, add={"A": "f"}, before=True)
    problem = posed(stopped, steady, start={"A": "k", "B": 1.0, "C": 1.0}, events=[jump])
    last = igpe.simulate(problem, TRUTH, times=[0.0, 8.0])["A"].to_numpy()[-1]
    assert last == pytest.approx(5.0, rel=1e-9)
    assert off_differences(problem) <= 1e-6


RESTLESS = {
    "oscillating": (lambda m, t: (m.B[t], -m.A[t], -m.C[t]), "grow or oscillate"),
    "growing": (lambda m, t: (0.1 * m.A[t], -m.B[t], -m.C[t]), "grow or oscillate"),
    "unstable": (lambda m, t: (-m.A[t], (m.B[t] - 0.5) * m.k, -m.C[t]), "unstable"),
    "what it rests at depends on the way": (
        lambda m, t: (-m.A[t] * m.B[t], -m.B[t], -m.C[t]),
        "not isolated",
    ),
}


def test_events_that_repeat_for_ever_are_said_after_few_of_them(monkeypatch):
    """A is refilled to 1 whenever it is 0.5; B and C come to rest meanwhile."""
    monkeypatch.setattr(switched, "MOST_BEFORE", 20)
    refill = igpe.Event(when=lambda m, t: m.A[t] <= 0.5, set={"A": 1.0}, before=True)
    decay = lambda m, t: (-m.k * m.A[t], -m.B[t], -m.C[t])  # noqa: E731
    with pytest.raises(EstimationFailed, match="repeat with the same states") as refused:
        first(posed(decay, events=[refill]))
    assert "frequent" not in str(refused.value)


def test_events_that_repeat_until_another_one_waits_come_to_rest():
    """A is refilled at 0.5; half a minute after this C is 0, and with it what empties A."""
    refill = igpe.Event(when=lambda m, t: m.A[t] <= 0.5, set={"A": 1.0}, before=True)
    stop = igpe.Event(when=lambda m, t: m.A[t] <= 0.5, set={"C": 0.0}, delay=30.0, before=True)
    start = {"A": 1.0, "B": 0.0, "C": 1.0}
    emptied = lambda m, t: (-m.k * m.A[t] * m.C[t], -m.B[t], 0 * m.C[t])  # noqa: E731
    problem = posed(emptied, start=start, events=[refill, stop])
    began, period = np.log(2) / TRUTH["k"], np.log(2) / TRUTH["k"]
    left = np.exp(-TRUTH["k"] * ((began + 30.0) % period))
    assert first(problem)[:3] == pytest.approx([left, 0.0, 0.0], rel=1e-5)


def test_events_without_end_that_never_repeat_are_said(monkeypatch):
    """With each of them, B has grown."""
    monkeypatch.setattr(switched, "MOST_BEFORE", 20)
    refill = igpe.Event(when=lambda m, t: m.A[t] <= 0.5, set={"A": 1.0}, before=True)
    growing = lambda m, t: (-m.k * m.A[t], m.f, -m.C[t])  # noqa: E731
    with pytest.raises(EstimationFailed, match="More than 20 events"):
        first(posed(growing, events=[refill]))


def test_rest_at_the_border_of_a_condition_is_said():
    """A comes to rest at f / k = 10, where the condition would change."""
    to_border = lambda m, t: (m.f - m.k * m.A[t], -m.B[t], -m.C[t])  # noqa: E731
    full = igpe.Event(when=lambda m, t: m.A[t] >= 10.0, add={"B": 1.0}, before=True)
    read = compiled(posed(to_border, events=[full]))
    ivp = read.initial_value_problem(0, switching=True)
    q = np.array([TRUTH[n] for n in ivp.unknowns])
    run = Automatic().simulation(ivp, TIMES, sensitivities=True).run(q)
    assert "lies exactly at the threshold of a condition" in run.reason
    assert np.isnan(run.states).all()
    assert not Automatic().simulation(ivp, TIMES, sensitivities=True).run(q * [0.9, 1, 1, 1]).reason


@pytest.mark.parametrize("name", RESTLESS)
def test_what_does_not_come_to_rest_is_said(name):
    slopes, words = RESTLESS[name]
    start = {"A": "total", "B": 0.5, "C": 1.0}
    with pytest.raises(EstimationFailed, match=words):
        igpe.simulate(posed(slopes, start=start), TRUTH, times=TIMES)


def test_equations_of_time_never_rest():
    slopes = lambda m, t: (-m.k * m.A[t] + pyo.sin(t), -m.B[t], -m.C[t])  # noqa: E731
    with pytest.raises(Unsupported, match="depend on time"):
        compiled(posed(slopes)).initial_value_problem(0, switching=True)


def test_multiple_shooting_refuses():
    with pytest.raises(Unsupported, match="does not support steady-state starts"):
        igpe.MultipleShooting().estimate(posed(), TRUTH)


@pytest.mark.parametrize("time", [0.0, 5.0])
def test_steady_states_are_measured_at_one_time(time):
    """A stirred tank in which A is fed at 2 and decays: A = 2 D / (D + k), a row for each D."""

    def build(times):
        m = over_time(times, "A", k=(0.01, 9))
        m.D = pyo.Param(m.t, mutable=True, default=1.0)
        law = lambda m, t: m.dA[t] == m.D[t] * (2 - m.A[t]) - m.k * m.A[t]  # noqa: E731
        m.law = pyo.Constraint(m.t, rule=law)
        return m

    given = {"start": {"A": 1.0}, "steady": True, "sigma": 0.01}
    runs = [
        igpe.Experiment(
            pd.DataFrame({"time": [time], "A": 2 * d / (d + 0.7), "D": d}),
            name=f"D = {d}", inputs=["D"], **given,
        )
        for d in (0.2, 1.0, 4.0)
    ]  # fmt: skip
    problem = igpe.Problem(build, parameters=["k"], experiments=runs)
    assert igpe.estimate(problem, certify=False).parameters["k"] == pytest.approx(0.7, rel=1e-5)
    ramp = {"D": igpe.linear_input([0.0, 9.0], [1.0, 2.0])}
    with pytest.raises(igpe.errors.DataError, match="start_time"):  # its rest depends on when
        igpe.Experiment(pd.DataFrame({"time": [time], "A": 1.0}), inputs=ramp, **given)


def test_rounding_errors_do_not_lead_away_from_what_stays_at_zero():
    """A chemostat without cells: from the state without them, a disturbance would grow."""

    def chemostat(m, t):
        growth = 0.5 * m.B[t] / (0.15 + m.B[t]) * m.A[t]
        return growth - m.r * m.A[t], m.r * (10 - m.B[t]) - 2 * growth, -m.C[t]

    read = compiled(posed(chemostat, start={"A": 0.0, "B": 1.0, "C": 1.0}))
    ivp = read.initial_value_problem(0, switching=True)
    for integrator in (Automatic(), igpe.integrators.Sundials()):
        for sensitivities in (False, True):
            run = integrator.simulation(ivp, TIMES, sensitivities=sensitivities)
            assert "unstable" in run.run(np.array([TRUTH[n] for n in ivp.unknowns])).reason


@pytest.mark.parametrize("many", [3, 400])
def test_sums_are_those_of_all_columns_however_many(many):
    random = np.random.default_rng(0)
    expected = random.standard_normal((2, 7))
    free = np.eye(7) - np.linalg.pinv(expected) @ expected
    columns = free @ random.standard_normal((7, many))
    rows = steady_starts._left_null(columns)
    assert len(rows) == max(2, 7 - many)
    assert rows @ columns == pytest.approx(np.zeros((len(rows), many)), abs=1e-12)
    assert expected @ rows.T @ rows == pytest.approx(expected)
