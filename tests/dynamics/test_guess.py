"""Trajectories to begin the correction with."""

import numpy as np
import pytest
from zoo import CASES, every_case

from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.simulation import Simulated, fine_grid, profiles
from igpe.smoothing.gcv_spline import Interpolation


def simulated(case, values=None):
    problem = case.problem()
    return Simulated(problem, Sundials(), values or case.truth)


@every_case
def test_states_and_algebraic_variables_are_simulated(case):
    """Against the independent integration of the zoo."""
    known = simulated(case)
    for name, expected in case.data().set_index("time").items():
        times, values = known.series(0, name)
        there = np.isin(times, case.times)
        assert values[there] == pytest.approx(expected.to_numpy(), rel=1e-5, abs=1e-7)


def test_what_the_model_does_not_have_has_no_series():
    assert simulated(CASES["decay"]).series(0, "nothing") is None


def test_nothing_is_simulated_before_it_is_needed():
    case = CASES["decay"]
    problem = case.problem()
    lazy = Simulated(problem, None, case.truth)
    curve = Interpolation().smooth(np.array([0.0, 1.0, 2.0]), np.array([2.0, 1.0, 0.5]))
    profile = profiles(lazy, [{"A": curve}])[0]
    assert profile("A", np.array([1.0])) == pytest.approx([1.0])


def test_smoothed_data_go_before_the_simulation():
    case = CASES["unmeasured_intermediate"]
    curve = Interpolation().smooth(np.arange(6.0), np.full(6, 7.0))
    profile = profiles(simulated(case), [{"A": curve}])[0]
    times = np.array(case.times[3:6])
    assert profile("A", times) == pytest.approx([7.0] * 3)
    exact = 1 / 0.6 * (np.exp(-0.4 * times) - np.exp(-times))  # B of the chain
    assert profile("B", times) == pytest.approx(exact, rel=1e-3)
    assert profile("nothing", times) is None


def test_a_simulation_that_breaks_down_gives_what_it_reached():
    case = CASES["logistic"]
    times, values = simulated(case, {"r": -40.0, "K": -0.1}).series(0, "X")
    assert len(times) > 0
    assert np.isfinite(values).all()


def test_the_fine_grid_has_start_end_and_measured_times():
    problem = CASES["decay"].problem()
    grid = fine_grid(problem, 0, points=10)
    e = problem.experiments[0]
    assert (grid[0], grid[-1]) == (e.start_time, e.times[-1])
    assert set(e.times) <= set(grid)
    assert (np.diff(grid) > 0).all()
