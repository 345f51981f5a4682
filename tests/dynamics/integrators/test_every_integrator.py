"""Every integrator against independent solutions, and its sensitivities against differences."""

from functools import cache

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import every_method, one_state, robertson, simulation
from zoo import CASES, every_case

from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Unknown
from igpe.problem.inputs import step_input

IMPLICIT = ("dimer",)  # problems of the zoo with implicit algebraic variables


def can(method, case):
    """Whether the method is meant for the problem."""
    return case.name not in IMPLICIT or method in (Sundials, Automatic)


@cache
def differences(name):
    """Central differences of states and measured quantities, by CVODES without sensitivities."""
    case = CASES[name]
    problem = case.problem()
    made = simulation(
        problem, case.times, sensitivities=False, method=Sundials(rtol=1e-11, atol=1e-13)
    )
    q, found = problem.box.vector(case.near), []
    for i in range(len(q)):
        h = 1e-4 * q[i] * np.eye(len(q))[i]
        up, down = made.run(q + h), made.run(q - h)
        found.append([
            (up.states - down.states) / (2 * h[i]),
            (up.measured - down.measured) / (2 * h[i]),
        ])
    return [np.stack(parts, axis=2) for parts in zip(*found, strict=True)]


@pytest.mark.slow
@every_method
@every_case
@pytest.mark.parametrize("sensitivities", [True, False])
def test_the_zoo_as_simulated_elsewhere(case, sensitivities, method):
    if not can(method, case):
        pytest.skip("is refused, see test_refusals")
    problem = case.problem()
    made = simulation(problem, case.times, sensitivities=sensitivities, method=method())
    came = made.run(problem.box.vector(case.truth))
    assert came.status is Status.CONVERGED
    assert came.reached == case.times[-1]
    assert came.reason == ""
    exact = case.data()[list(case.measured)].to_numpy()
    assert came.measured == pytest.approx(exact, rel=2e-6, abs=2e-7)


@every_method
@every_case
def test_sensitivities_against_central_differences(case, method):
    if not can(method, case):
        pytest.skip("is refused, see test_refusals")
    problem = case.problem()
    made = simulation(problem, case.times, method=method(rtol=1e-11, atol=1e-13))
    came = made.run(problem.box.vector(case.near))
    for exact, central in zip(
        (came.by_unknown, came.measured_by_unknown), differences(case.name), strict=True
    ):
        for i in range(exact.shape[2]):
            size = abs(central[:, :, i]).max()
            assert exact[:, :, i] == pytest.approx(central[:, :, i], rel=1e-5, abs=1e-5 * size)


@every_method
def test_an_unknown_start_and_an_unknown_of_zero(method):
    problem = one_state(lambda m, t: -m.k * m.x[t], start=Unknown(0, 5))
    made = simulation(problem, [0.0, 1.0, 2.0], method=method())
    t = np.array([0.0, 1.0, 2.0])
    came = made.run(np.array([0.7, 3.0]))
    assert came.states[:, 0] == pytest.approx(3 * np.exp(-0.7 * t), rel=1e-7)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-3 * t * np.exp(-0.7 * t), rel=1e-6)
    assert came.by_unknown[:, 0, 1] == pytest.approx(np.exp(-0.7 * t), rel=1e-6)
    still = made.run(np.array([0.0, 3.0]))
    assert still.by_unknown[:, 0, 0] == pytest.approx(-3 * t, rel=1e-7, abs=1e-12)


@every_method
def test_inputs_that_jump_against_the_exact_solution(method):
    feed = step_input([0.0, 0.5, 1.25], [1.0, -3.0, 10.0])
    problem = one_state(lambda m, t: m.u[t] - m.k * m.x[t], inputs={"u": feed})
    times = np.array([0.0, 0.3, 0.5, 1.0, 1.25, 1.7, 2.0])
    came = simulation(problem, times, method=method()).run(np.array([0.8]))

    def exact(k, end):
        x, begin = 1.0, 0.0
        for stop, u in zip([0.5, 1.25, 9.0], feed.values, strict=True):
            length = max(min(end, stop) - begin, 0.0)
            x = u / k + (x - u / k) * np.exp(-k * length)
            begin = max(begin, min(end, stop))
        return x

    assert came.states[:, 0] == pytest.approx([exact(0.8, t) for t in times], rel=1e-7)
    central = [(exact(0.8 + 1e-6, t) - exact(0.8 - 1e-6, t)) / 2e-6 for t in times]
    assert came.by_unknown[:, 0, 0] == pytest.approx(central, rel=1e-6, abs=1e-8)


@every_method
def test_linear_inputs_and_functions_of_time_against_the_exact_solution(method):
    ramp = pd.Series([0.0, 1.0, 0.0], index=[0.0, 1.0, 2.0])
    problem = one_state(lambda m, t: m.u[t] + 0 * m.k, inputs={"u": ramp}, start=0.0)
    came = simulation(problem, [0.5, 1.0, 1.5, 2.0, 3.0], method=method()).run(np.array([1.0]))
    assert came.states[:, 0] == pytest.approx([0.125, 0.5, 0.875, 1.0, 1.0], rel=1e-7)
    smooth = {"u": pyo.cos}
    problem = one_state(lambda m, t: m.k * m.u[t], inputs=smooth, start=0.0)
    came = simulation(problem, [1.0, 2.0], method=method()).run(np.array([2.0]))
    assert came.states[:, 0] == pytest.approx(2 * np.sin([1.0, 2.0]), rel=1e-7)


@every_method
@pytest.mark.parametrize("times", [[0.0], [0.0, 1.0], [1.0], [0.0, 1e-9, 2.0]])
def test_times_may_contain_the_start_and_nothing_else(times, method):
    problem = one_state(lambda m, t: -m.k * m.x[t])
    came = simulation(problem, times, method=method()).run(np.array([0.5]))
    assert came.status is Status.CONVERGED
    assert came.reached == times[-1]
    assert came.measured[:, 0] == pytest.approx(np.exp(-0.5 * np.array(times)), rel=1e-7)
    assert came.measured_by_unknown.shape == (len(times), 1, 1)


@every_method
def test_outputs_close_together_are_as_exact(method):
    problem = one_state(lambda m, t: -m.k * m.x[t])
    times = np.sort(np.concatenate([np.linspace(0.1, 4.0, 40), 2.0 + 1e-4 * np.arange(1, 30)]))
    came = simulation(problem, times, method=method()).run(np.array([0.5]))
    exact = np.exp(-0.5 * times)
    assert came.states[:, 0] == pytest.approx(exact, rel=1e-7)
    assert came.by_unknown[:, 0, 0] == pytest.approx(-times * exact, rel=1e-6)


@every_method
def test_nothing_is_evaluated_beyond_the_end(method):
    """x' = -k sqrt(3 - t) has no value after t = 3."""
    fall = {"u": lambda t: pyo.sqrt(3 - t)}
    problem = one_state(lambda m, t: -m.k * m.u[t], inputs=fall, times=(0.0, 1.0, 3.0))
    times = np.array([0.1, 1.1, 2.3, 3.0])
    came = simulation(problem, times, method=method()).run(np.array([0.7]))
    by_k = -2 / 3 * (3**1.5 - (3 - times) ** 1.5)
    assert came.states[:, 0] == pytest.approx(1 + 0.7 * by_k, rel=1e-6)
    assert came.by_unknown[:, 0, 0] == pytest.approx(by_k, rel=1e-6)


@pytest.mark.parametrize("method", [Sundials, Automatic])
def test_stiff_kinetics_as_published(method):
    """Hairer & Wanner's problem ROBER at 0.4 and 40 (reference of the SUNDIALS manual)."""
    came = simulation(robertson(), [0.4, 40.0], method=method()).run(np.array([0.04]))
    published = [[9.8517e-01, 3.3864e-05], [7.1583e-01, 9.1855e-06]]
    assert came.states == pytest.approx(np.array(published), rel=1e-5)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("name", ["lotka_volterra", "stirred_tank"])
def test_the_same_unknowns_give_the_same_bits_whatever_ran_before(name, method):
    case = CASES[name]
    problem = case.problem()
    made = simulation(problem, case.times, method=method())
    near, truth = problem.box.vector(case.near), problem.box.vector(case.truth)
    first = made.run(truth)
    for other in (near, -30 * near, near):
        made.run(other)
    again, fresh = made.run(truth), simulation(problem, case.times, method=method()).run(truth)
    for came in (again, fresh):
        assert (came.states == first.states).all()
        assert (came.measured_by_unknown == first.measured_by_unknown).all()


@every_method
@pytest.mark.parametrize("name", ["lotka_volterra", "stirred_tank", "dimer"])
def test_until_is_the_same_for_earlier_times_and_generates_nothing(name, method, monkeypatch):
    case = CASES[name]
    if not can(method, case):
        pytest.skip("is refused, see test_refusals")
    problem, last = case.problem(), case.times[7] + 1e-3
    whole = simulation(problem, case.times, method=method())
    short = simulation(problem, case.times[:8], method=method())
    q = problem.box.vector(case.near)
    before, wanted = whole.run(q), short.run(q)
    for place in ("piecewise.augmented", "runge_kutta.built", "augmented.Consistent.__init__"):
        monkeypatch.delattr(f"igpe.dynamics.integrators.{place}")
    came = whole.until(last).run(q)
    assert came.reached == case.times[7]
    assert list(came.times) == list(case.times[:8])
    for part in ("states", "implicit", "measured", "by_unknown", "measured_by_unknown"):
        assert (getattr(came, part) == getattr(wanted, part)).all()
    assert (whole.until(last).until(case.times[2]).run(q).times == case.times[:3]).all()
    assert (whole.run(q).states == before.states).all()


@every_method
def test_until_before_all_times_is_an_error(method):
    problem = one_state(lambda m, t: -m.k * m.x[t])
    made = simulation(problem, [1.0, 2.0], method=method())
    wanted = r"No reported time is at or before 0\.5; the first reported time is 1"
    with pytest.raises(ValueError, match=wanted):
        made.until(0.5)


@every_method
def test_a_wrong_number_of_unknowns_is_an_error(method):
    made = simulation(one_state(lambda m, t: -m.k * m.x[t]), [1.0], method=method())
    with pytest.raises(ValueError, match=r"one number for each of \('k',\)"):
        made.run(np.array([1.0, 2.0]))


@every_method
@pytest.mark.parametrize("sensitivities", [True, False])
def test_nothing_may_be_unknown(sensitivities, method):
    problem = one_state(lambda m, t: -m.k * m.x[t]).fixing({"k": 0.7})
    times = np.array([0.0, 1.0, 2.0])
    made = simulation(problem, times, sensitivities=sensitivities, method=method())
    came = made.run(np.zeros(0))
    assert came.states[:, 0] == pytest.approx(np.exp(-0.7 * times), rel=1e-7)
    assert came.by_unknown.shape == came.measured_by_unknown.shape == (3, 1, 0)
