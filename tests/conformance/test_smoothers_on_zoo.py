"""Every smoother follows the trajectories of the zoo and knows how well."""

import numpy as np
import pytest
from zoo import Case, every_case

import igpe
from igpe.algebraic.step import smooth_measurements
from igpe.dynamics.simulation import simulate_all
from igpe.smoothing.base import Smoother

SMOOTHERS: list[Smoother] = [
    igpe.smoothing.GcvSpline(),
    igpe.smoothing.GcvSpline(boundary_correction=False),
    igpe.smoothing.GcvSpline(penalty_factor=0.01),
    igpe.smoothing.Interpolation(),
]
smoothers = pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)


def exact_slopes(case: Case, problem: igpe.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Times inside the experiment, and the slope of each measured quantity there."""
    times = problem.experiments[0].times[2:-2]
    h = 1e-4 * float(np.ptp(times))
    grid = np.sort(np.concatenate([times - h, times + h]))
    integrator = igpe.integrators.Sundials(rtol=1e-11, atol=1e-13)
    ((_, run),) = simulate_all(problem, integrator, case.truth, (grid,))
    return times, (run.measured[1::2] - run.measured[0::2]) / (2 * h)


@smoothers
@every_case
def test_exact_data_are_followed(smoother: Smoother, case: Case) -> None:
    problem = case.problem()
    times, slopes = exact_slopes(case, problem)
    (curves,) = smooth_measurements(problem, smoother).of
    for i, name in enumerate(problem.experiments[0].measured):
        measured_at, values, _ = problem.experiments[0].measurements.of(name)
        assert curves[name].value(measured_at) == pytest.approx(values, abs=0.02 * np.ptp(values))
        off = np.sqrt(np.mean((curves[name].slope(times) - slopes[:, i]) ** 2))
        assert off < 0.12 * np.abs(slopes[:, i]).max()


@every_case
def test_noise_is_told(case: Case) -> None:
    problem = case.problem(noise=0.03, seed=5)
    (curves,) = smooth_measurements(problem, igpe.smoothing.GcvSpline()).of
    for name, curve in curves.items():
        _, values, _ = problem.experiments[0].measurements.of(name)
        assert 0.2 < curve.sigma / (0.03 * np.max(np.abs(values))) < 3.0
