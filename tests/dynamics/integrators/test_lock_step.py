"""What integrates intervals where there is no compiler, and what is chosen then."""

import numpy as np
import pytest
from initial_values import needs_compiler
from interval_problems import NUMBERS, assert_close, exact, prepared

from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.integrators.lock_step import LockStep, LockStepIntervals
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta, RungeKuttaIntervals


@needs_compiler
@pytest.mark.parametrize("name", ["henon_heiles", "reversible", "decay"])
def test_it_takes_the_steps_of_the_compiled_pair(name):
    one, loose = prepared(name), {"rtol": 1e-6, "atol": 1e-8, "slack": 100.0}
    ours, theirs = one.run(LockStep(**loose)), one.run(RungeKutta(pair=Pair.EXPLICIT, **loose))
    for number in NUMBERS:
        wanted = getattr(theirs, number)
        size = np.abs(wanted).max(initial=0.0)
        assert getattr(ours, number) == pytest.approx(wanted, rel=1e-9, abs=1e-11 * size)


def test_a_stiff_interval_says_so():
    came = prepared("calcium").run(LockStep(1e-6, 1e-8, slack=100.0))
    broken = [r for r in came.reason if r]
    assert broken
    assert all(r.startswith("The equations are stiff at t = ") for r in broken)
    assert "an explicit method needs tiny steps." in broken[0]


def test_intervals_that_end_early_are_left_behind():
    """Of nine intervals each is twice as long as the one before; arrays are halved as they end."""
    one = prepared("henon_heiles")
    nodes = 0.05 * (2.0 ** np.arange(10) - 1)
    starts = np.tile(one.starts[0], (9, 1))
    long = one._replace(nodes=nodes, starts=starts, times=np.array([25.0]))
    made = long.made(LockStep(1e-8, 1e-10))
    came = made.run(starts, one.q)
    assert sorted(made.steppers[True].slopes.made) == [1, 2, 4, 9]
    alone = long._replace(nodes=nodes[-2:], starts=starts[-1:])
    assert came.ends[-1] == pytest.approx(alone.run(LockStep(1e-8, 1e-10)).ends[0], rel=1e-12)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_compiled_method_says_so():
    assert compiler() == ()
    came = prepared("henon_heiles").run(RungeKutta())
    assert set(came.status) == {Status.NO_SOLVER}
    assert came.reason[0].startswith("No C compiler was found")
    assert all(np.isnan(getattr(came, name)).all() for name in NUMBERS)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("name", ["henon_heiles", "fed"])
def test_without_a_compiler_lock_step_is_chosen(name):
    one = prepared(name)
    ours, wanted = one.run(Automatic()), one.run(LockStep())
    for number in NUMBERS:
        assert getattr(ours, number) == pytest.approx(getattr(wanted, number), rel=1e-12, abs=1e-14)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("derivatives", [True, False])
def test_without_a_compiler_stiff_intervals_go_to_cvodes(derivatives):
    one = prepared("calcium")
    came = one.run(Automatic(1e-8, 1e-10), derivatives=derivatives)
    assert set(came.status) == {Status.CONVERGED}
    assert set(came.reason) == {""}
    if derivatives:
        assert_close(came, exact("calcium"), 1e-5, derivatives=1e-3)
    assert came.ends == pytest.approx(exact("calcium").ends, rel=1e-5)
    assert came.measured == pytest.approx(exact("calcium").measured, rel=1e-5)


def test_equations_too_long_to_compile_go_to_lock_step(monkeypatch):
    monkeypatch.setattr("igpe.dynamics.integrators.runge_kutta.LONGEST", 3)
    one = prepared("henon_heiles")
    assert isinstance(one.made(Automatic()), LockStepIntervals)


@needs_compiler
def test_with_a_compiler_the_compiled_method_is_chosen():
    one = prepared("calcium")
    made = one.made(Automatic(1e-5, 1e-7, 500, 1e9, slack=10.0))
    assert isinstance(made, RungeKuttaIntervals)
    assert made.method == RungeKutta(1e-5, 1e-7, 500, 1e9, slack=10.0)


def test_unknown_starts_of_the_problem_are_no_unknowns_of_its_intervals():
    """Each interval has a start of its own; derivatives by the problem's are 0."""
    one = prepared("calcium")
    made = one.made(Automatic(1e-6, 1e-8, slack=100.0))
    known = [one.ivp.unknowns[i] for i in made.needed.places]
    assert sorted(known) == sorted(f"k{i}" for i in range(1, 12))
    came, q = made.run(one.starts, one.q), one.q.copy()
    idle = [n.endswith("(t0)") for n in one.ivp.unknowns]
    assert sum(idle) == 4
    assert (came.by_unknown[:, :, idle] == 0).all()
    assert (came.measured_by_unknown[:, :, idle] == 0).all()
    q[idle] = 17.0
    assert (made.run(one.starts, q).ends == came.ends).all()
    starts = one.starts.copy()
    starts[2] = np.nan
    broken = made.run(starts, one.q)
    assert np.isnan(broken.by_unknown[2]).all()
    assert np.isnan(broken.measured_by_unknown[16:24]).all()
    assert np.isfinite(broken.by_unknown[[0, 1, 3, 4]]).all()
