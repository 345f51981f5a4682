"""Which integrator is chosen, and that its accuracy is what was asked for."""

import numpy as np
import pytest
from initial_values import needs_compiler, one_state, robertson, simulation
from zoo import ZOO

from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.dormand_prince import DormandPrince
from igpe.dynamics.integrators.lsoda import Lsoda
from igpe.dynamics.integrators.sundials import Sundials


def zoo(name):
    """One of the zoo's cases."""
    return next(c for c in ZOO if c.name == name)


def same(one, other):
    """Whether two trajectories are the same bits, all of them numbers."""
    return (one.states == other.states).all() and (one.by_unknown == other.by_unknown).all()


@needs_compiler
def test_what_is_not_stiff_is_compiled():
    case = zoo("lotka_volterra")
    q = case.problem().box.vector(case.truth)
    chosen, compiled = (
        simulation(case.problem(), case.times, method=m()).run(q)
        for m in (Automatic, DormandPrince)
    )
    assert same(chosen, compiled)


def test_implicit_variables_are_left_to_idas():
    case = zoo("dimer")
    q = case.problem().box.vector(case.truth)
    chosen, idas = (
        simulation(case.problem(), case.times, method=m()).run(q) for m in (Automatic, Sundials)
    )
    assert same(chosen, idas)


@needs_compiler
def test_stiffness_is_left_to_cvodes_in_each_run_anew():
    made = simulation(robertson(), [0.4, 40.0], method=Automatic())
    cvodes = simulation(robertson(), [0.4, 40.0], method=Sundials())
    for k in (0.04, 0.001, 0.04):
        assert same(made.run(np.array([k])), cvodes.run(np.array([k])))


@needs_compiler
def test_used_up_steps_are_left_to_lsoda():
    problem = one_state(lambda m, t: -m.k * m.x[t])
    steps = {"rtol": 1e-12, "atol": 1e-14, "max_steps": 100}
    explicit = simulation(problem, [5.0], method=DormandPrince(**steps)).run(np.array([1.0]))
    assert explicit.reason.startswith("The step limit of 100 was reached")
    chosen, lsoda = (
        simulation(problem, [5.0], method=m(**steps)).run(np.array([1.0]))
        for m in (Automatic, Lsoda)
    )
    assert chosen.status == lsoda.status
    assert chosen.reason == lsoda.reason
    assert np.array_equal(chosen.states, lsoda.states, equal_nan=True)


@needs_compiler
def test_what_has_no_solution_is_not_tried_twice(monkeypatch):
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)
    made = simulation(problem, [0.5, 2.0], method=Automatic())
    for other in ("lsoda.LsodaSimulation", "sundials.SundialsSimulation"):
        monkeypatch.delattr(f"igpe.dynamics.integrators.{other}.run")
    assert made.run(np.array([1.0])).status is Status.INTEGRATION_BROKE


@needs_compiler
@pytest.mark.parametrize("rtol", [1e-5, 1e-7, 1e-9, 1e-11])
def test_the_error_of_the_compiled_method_follows_its_tolerance(rtol):
    """Also between its steps, where its outputs are."""
    case = zoo("lotka_volterra")
    problem, q = case.problem(), case.problem().box.vector(case.truth)
    times = np.linspace(0.0, 9.64, 200)
    exact = simulation(problem, times, method=Sundials(rtol=1e-13, atol=1e-15, max_steps=10**6))
    came = simulation(problem, times, method=DormandPrince(rtol=rtol, atol=rtol / 100)).run(q)
    truth = exact.run(q)
    size = abs(truth.by_unknown).max(axis=0)
    assert (abs(came.states - truth.states) <= 30 * rtol * abs(truth.states).max(axis=0)).all()
    assert (abs(came.by_unknown - truth.by_unknown) <= 100 * rtol * size).all()
