"""Which integrator is chosen, and that its accuracy is what was requested."""

import numpy as np
import pytest
from initial_values import needs_compiler, one_state, robertson, simulation
from zoo import CASES

from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials

EXACT = Sundials(rtol=1e-11, atol=1e-13)


def same(one, other):
    """Whether two trajectories are the same bits, all of them numbers."""
    return (one.states == other.states).all() and (one.by_unknown == other.by_unknown).all()


def by(name, *methods):
    """One case by several integrators."""
    case = CASES[name]
    q = case.problem().box.vector(case.truth)
    return [simulation(case.problem(), case.times, method=m).run(q) for m in methods]


@needs_compiler
def test_explicit_equations_are_compiled():
    assert same(*by("lotka_volterra", Automatic(), RungeKutta()))


@needs_compiler
def test_implicit_variables_are_compiled():
    assert same(*by("dimer", Automatic(), RungeKutta()))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_implicit_variables_are_left_to_idas():
    assert same(*by("dimer", Automatic(), Sundials()))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_trajectory_is_left_to_cvodes():
    assert same(*by("lotka_volterra", Automatic(), Sundials()))


@needs_compiler
def test_used_up_steps_are_left_to_cvodes():
    problem = one_state(lambda m, t: -m.k * m.x[t])
    steps = {"rtol": 1e-12, "atol": 1e-14, "max_steps": 100}
    explicit = simulation(problem, [5.0], method=RungeKutta(**steps)).run(np.array([1.0]))
    assert explicit.reason.startswith("The step limit of 100 was reached")
    chosen, cvodes = (
        simulation(problem, [5.0], method=m(**steps)).run(np.array([1.0]))
        for m in (Automatic, Sundials)
    )
    assert chosen.status == cvodes.status
    assert chosen.reason == cvodes.reason
    assert np.array_equal(chosen.states, cvodes.states, equal_nan=True)


@needs_compiler
def test_what_has_no_solution_is_not_tried_twice(monkeypatch):
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)
    made = simulation(problem, [0.5, 2.0], method=Automatic())
    monkeypatch.delattr("igpe.dynamics.integrators.piecewise.PiecewiseIntervals.trajectory")
    assert made.run(np.array([1.0])).status is Status.INTEGRATION_BROKE


@needs_compiler
@pytest.mark.parametrize("rtol", [1e-5, 1e-7, 1e-9, 1e-11])
def test_the_error_of_the_compiled_method_follows_its_tolerance(rtol):
    """Also between its steps, where its outputs are."""
    case = CASES["lotka_volterra"]
    problem, q = case.problem(), case.problem().box.vector(case.truth)
    times = np.linspace(0.0, 9.64, 200)
    exact = simulation(problem, times, method=Sundials(rtol=1e-13, atol=1e-15, max_steps=10**6))
    came = simulation(problem, times, method=RungeKutta(rtol=rtol, atol=rtol / 100)).run(q)
    truth = exact.run(q)
    size = abs(truth.by_unknown).max(axis=0)
    assert (abs(came.states - truth.states) <= 30 * rtol * abs(truth.states).max(axis=0)).all()
    assert (abs(came.by_unknown - truth.by_unknown) <= 100 * rtol * size).all()


@pytest.mark.parametrize("method", [Automatic(), Sundials()], ids=lambda m: type(m).__name__)
def test_derivatives_of_stiff_equations(method):
    times, q = [0.4, 40.0], np.array([0.04])
    came, exact = (simulation(robertson(), times, method=m).run(q) for m in (method, EXACT))
    assert came.states == pytest.approx(exact.states, rel=1e-5)
    assert came.by_unknown == pytest.approx(exact.by_unknown, rel=1e-4)
