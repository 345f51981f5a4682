"""Derivatives of few measured values by many unknowns: by one sweep back, where that is cheaper."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import needs_compiler
from ode import over_time

import igpe
from igpe.dynamics.integrators.automatic import Automatic, Backward, swept_back
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.residuals import Residuals, runs_of
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.problem import Problem

pytestmark = needs_compiler
STATES = 40
EXACT = Automatic(1e-10, 1e-12)


def chain(outputs, times=6, *, states=STATES, second=False):
    """A chain with a rate constant of each state, fed by an input that jumps, from a start that is
    unknown in its first state."""
    grid = np.linspace(0.0, 3.0, times + 1)

    def build(stamps):
        names = " ".join(f"x{i}" for i in range(states))
        m = over_time(stamps, names, **{f"k{i}": (0.1, 10) for i in range(states)})
        m.u = pyo.Param(m.t, mutable=True, default=0.0)
        for i in range(states):

            def rate(m, t, i=i):
                x, k = getattr(m, f"x{i}"), getattr(m, f"k{i}")
                before = getattr(m, f"k{i - 1}") * getattr(m, f"x{i - 1}")[t] if i else m.u[t]
                return getattr(m, f"dx{i}")[t] == before - k * x[t] - 0.1 * x[t] ** 2

            m.add_component(f"rate{i}", pyo.Constraint(m.t, rule=rate))
        return m

    def run(name, seed):
        values = np.random.default_rng(seed).uniform(0.1, 1, (times, len(outputs)))
        table = pd.DataFrame(values, columns=[f"x{i}" for i in outputs])
        table.insert(0, "time", grid[1:])
        feed = step_input([0.0, 1.1], [0.2, 1.0])
        start = {f"x{i}": 0.5 for i in range(1, states)} | {"x0": Unknown(0.1, 2.0)}
        return Experiment(
            table, start=start, inputs={"u": feed}, sigma=0.05, name=name, start_time=0.0
        )

    runs = [run("one", 0), *([run("other", 1)] if second else [])]
    return Problem(build, parameters=[f"k{i}" for i in range(states)], experiments=runs)


def chosen(problem, integrator=EXACT):
    return [run.simulation.intervals for run in Residuals(problem, integrator).runs]


def some_point(problem):
    return problem.box.sobol(3, 0)[2]


def test_few_measured_values_are_swept_back_and_many_are_not():
    assert all(isinstance(one, Backward) for one in chosen(chain([3], second=True)))
    assert not any(isinstance(one, Backward) for one in chosen(chain(range(0, STATES, 2))))
    assert not any(isinstance(one, Backward) for one in chosen(chain([1], states=5)))


@pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT])
def test_the_jacobian_is_that_of_directions_forwards(pair):
    """To the accuracy of both integrations, whose steps differ."""
    problem = chain([3, 39])
    x, (run,) = some_point(problem), runs_of(problem, RungeKutta(1e-10, 1e-12, pair=pair))
    m = run.measurements
    back = swept_back(run.simulation.intervals, m.row, m.column).trajectory(x[run.index])
    forwards = run.simulation.run(x[run.index])
    a, b = back.measured_by_unknown, forwards.measured_by_unknown
    assert np.abs(b).max() > 0.1
    assert a == pytest.approx(b, abs=1e-7 * np.abs(b).max())
    assert back.states == pytest.approx(forwards.states, abs=1e-8)


def test_the_jacobian_is_that_of_differences():
    problem = chain([3], second=True)
    residuals, x = Residuals(problem, EXACT), some_point(problem)
    found = residuals(x).jacobian
    for i in (0, 2, 3, len(x) - 1):
        step = 1e-4 * np.eye(len(x))[i]
        ends = [residuals(there, derivatives=False).residual for there in (x + step, x - step)]
        assert found[:, i] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-5)


def test_horizons_and_rough_integrations_are_swept_back_too():
    problem = chain([3])
    residuals, x = Residuals(problem, EXACT), some_point(problem)
    whole, early = residuals(x), residuals.until([1.6])(x)
    k = len(early.residual)
    assert 0 < k < len(whole.residual)
    assert early.jacobian == pytest.approx(whole.jacobian[:k], abs=1e-6)
    rough = residuals.rougher(1e-6)
    assert isinstance(rough.runs[0].simulation.intervals, Backward)
    assert rough(x).jacobian == pytest.approx(whole.jacobian, abs=1e-3)


def test_a_run_that_breaks_down_is_reported():
    problem = chain([3])
    residuals = Residuals(problem, replace(EXACT, max_steps=2))
    with allowance(10):  # else the other integrator goes on
        assert residuals(some_point(problem)) is None
    assert "limit of 10 steps for a trial was reached" in residuals.broken.reason


def test_what_has_too_few_steps_goes_on_with_the_other_integrator():
    problem = chain([3])
    (back,), (run,) = chosen(problem, replace(EXACT, max_steps=20)), runs_of(problem, EXACT)
    q = some_point(problem)[run.index]
    broke = replace(back, inner=replace(back.inner, otherwise=None)).trajectory(q)
    assert "step limit of 20" in broke.reason
    other = Sundials(1e-10, 1e-12)
    goes_on = replace(back, inner=replace(back.inner, otherwise=other)).trajectory(q)
    forwards = run.simulation.run(q)
    by = goes_on.measured_by_unknown
    assert by == pytest.approx(forwards.measured_by_unknown, abs=1e-7)


def test_the_answer_says_so_with_what_is_predicted():
    problem = chain([3])
    estimate = SingleShooting(EXACT).estimate(problem, problem.box.mapping(some_point(problem)))
    (said,) = [note for note in estimate.notes if "sweep back" in note]
    assert "6 measured values by 41 unknowns" in said
    predicted = chosen(problem, Automatic(1e-8, 1e-10))[0].share
    assert f"expects {100 * predicted:.0f} % of the time" in said
    assert 0 < predicted < 1


def test_the_optimum_is_that_of_directions_forwards(monkeypatch):
    problem = chain([3])
    start = problem.box.mapping(some_point(problem))
    back = SingleShooting().estimate(problem, start)
    monkeypatch.setattr("igpe.dynamics.integrators.automatic.PAYS", 0.0)
    forwards = SingleShooting().estimate(problem, start)
    assert not any("sweep back" in note for note in forwards.notes)
    assert back.objective == pytest.approx(forwards.objective, rel=1e-6, abs=1e-6)


@pytest.mark.slow
def test_the_result_says_it_once():
    problem = chain([39], times=8)
    brief = igpe.Settings(
        complement=igpe.search.IteratedSearch(starts=1, most=0, finalists=1, iterations=5)
    )
    result = igpe.estimate(problem, brief, certify=False, time_limit=20.0)
    said = [note for note in result.notes if "sweep back" in note]
    assert len(said) == 1
    assert said[0].startswith("igpe computed the derivatives of 8 measured values by 41 unknowns")
