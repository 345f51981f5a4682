"""One trajectory by an integrator of intervals, against CVODES on the augmented system."""

import numpy as np
import pytest
from initial_values import needs_compiler, one_state, posed, robertson, simulation
from zoo import ZOO

from igpe.core.status import Status
from igpe.dynamics.integrators.batch.automatic_intervals import AutomaticIntervals
from igpe.dynamics.integrators.batch.whole_horizon import WholeHorizon, WholeSimulation
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

CASE = {c.name: c for c in ZOO}
EXACT = Sundials(rtol=1e-11, atol=1e-13)
WHOLE = WholeHorizon(AutomaticIntervals(rtol=1e-8, atol=1e-10, slack=1.0))


def unknown_start(name):
    """A case whose first measured state begins at an unknown, which moves the interval's start."""
    case = CASE[name]
    first = case.measured[0]
    run = Experiment(
        case.data(),
        start={**case.start, first: Unknown(0.0, 10.0)},
        start_time=0.0,
        inputs=case.inputs,
    )
    problem = Problem(case.builder, parameters=list(case.truth), experiments=run)
    return problem, {**case.truth, f"{first}(t0)": case.start[first]}


@needs_compiler
@pytest.mark.parametrize("name", ["consecutive", "lotka_volterra"])
def test_states_and_derivatives_are_those_of_cvodes(name):
    problem, values = unknown_start(name)
    ivp = posed(problem)
    q = np.array([values[n] for n in ivp.unknowns])
    times = problem.experiments[0].measurements.times
    made = WHOLE.prepare(ivp, times, sensitivities=True)
    assert isinstance(made, WholeSimulation)
    assert f"{CASE[name].measured[0]}(t0)" in ivp.unknowns
    found, exact = made.run(q), EXACT.prepare(ivp, times, sensitivities=True).run(q)
    assert found.status is Status.CONVERGED
    assert found.reached == times[-1]
    for part in ("states", "measured", "by_unknown", "measured_by_unknown"):
        ours, theirs = getattr(found, part), getattr(exact, part)
        assert ours.shape == theirs.shape
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6 * abs(theirs).max())


@needs_compiler
def test_stiff_equations_too():
    times, q = [0.4, 40.0], np.array([0.04])
    found, exact = (simulation(robertson(), times, method=m).run(q) for m in (WHOLE, EXACT))
    assert found.states == pytest.approx(exact.states, rel=1e-5)
    assert found.by_unknown == pytest.approx(exact.by_unknown, rel=1e-4)


@needs_compiler
def test_fewer_times_are_the_same_run_cut():
    case = CASE["lotka_volterra"]
    q = np.array([case.truth[n] for n in posed(case.problem()).unknowns])
    made = simulation(case.problem(), case.times, method=WHOLE)
    fewer = made.until(case.times[4]).run(q)
    assert list(fewer.times) == [t for t in case.times if t <= case.times[4]]
    whole = made.run(q).states[: len(fewer.times)]
    assert fewer.states == pytest.approx(whole, rel=1e-6)
    with pytest.raises(ValueError, match="No time is reported"):
        made.until(-1.0)


@needs_compiler
def test_a_break_down_is_a_status():
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)
    found = simulation(problem, [0.5, 2.0], method=WHOLE).run(np.array([1.0]))
    assert found.status is Status.INTEGRATION_BROKE
    assert found.reason
    assert np.isnan(found.measured).all()
    assert np.isnan(found.by_unknown).all()


def test_implicit_variables_are_left_to_another():
    case = CASE["dimer"]
    q = case.problem().box.vector(case.truth)
    found, idas = (simulation(case.problem(), case.times, method=m).run(q) for m in (WHOLE, EXACT))
    assert not isinstance(simulation(case.problem(), case.times, method=WHOLE), WholeSimulation)
    assert found.states == pytest.approx(idas.states, rel=1e-5)
