"""The likelihood of measurements with normal errors.

Linearised errors of a problem's unknowns, the one way that every table takes.
"""

from collections.abc import Mapping

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.shooting.base import require_start
from igpe.dynamics.shooting.residuals import deviations, simulate
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.statistics.covariance import Uncertainty, uncertainty
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def negative_log_likelihood(
    problem: Problem,
    parameters: Mapping[str, float],
    *,
    priors: bool = False,
    integrator: Integrator = Automatic(),
) -> float:
    """-log of the probability density of all measurements, their errors being normal.

        sum  log(2 pi s^2) / 2 + ((h - y) / s)^2 / 2

    with all constants, so that it compares with other programs'; s are the standard deviations that
    were given, estimated (`Estimated`) or follow the model (`Proportional`), in the model's units.

    problem     with standard deviations
    parameters  unknown -> value, for every free unknown of the problem
    priors      whether the densities of the problem's priors are multiplied in
    integrator  of the model
    returns     infinity where the model cannot predict some measurement, or s is not positive
    raises      ProblemError if an unknown has no value or standard deviations are unknown,
                EstimationFailed if the integration breaks down
    """
    if not (problem.sigma_known or problem.sigma_estimated):
        raise ProblemError(
            "The likelihood needs standard deviations, which are unknown here; give them: "
            "Experiment(sigma=...), as numbers or as igpe.EstimatedSigma(name)."
        )
    require_start(parameters, problem.box, "negative_log_likelihood")
    grids = tuple(e.times for e in problem.experiments)
    values = {n: float(parameters[n]) for n in problem.box.names}
    runs = simulate(problem, integrator, values, grids)
    total = 0.0
    for experiment, (_, run) in zip(problem.experiments, runs, strict=True):
        if not run.status.usable:
            raise EstimationFailed(
                f"Experiment {experiment.name} could be integrated only to time {run.reached:g}. "
                f"{run.reason}",
                run.status,
            )
        total += _of_run(experiment, run)
    return total + (_of_priors(problem, {**problem.fixed, **values}) if priors else 0.0)


def _of_run(experiment: Experiment, run: Trajectory) -> float:
    m = experiment.measurements
    predicted = run.measured[m.row, m.column]
    sigma = experiment.sigma_at(predicted)
    which = deviations(experiment, m)
    if which is not None:
        sigma = np.where(which >= 0, run.measured[m.row, which], sigma)
    return _normal(predicted - m.value, sigma)


def _of_priors(problem: Problem, values: Mapping[str, float]) -> float:
    told = [(values[n] - p.mean, p.deviation) for n, p in problem.priors.items()]
    return _normal(*np.array(told, dtype=float).reshape(-1, 2).T)


def _normal(error: FloatArray, sigma: FloatArray) -> float:
    if not ((sigma > 0).all() and np.isfinite(error).all()):
        return np.inf
    return float(np.sum(np.log(2 * np.pi * sigma**2) + (error / sigma) ** 2) / 2)


def errors_at(
    problem: Problem,
    x: FloatArray,
    at: Linearised | None,
    confidence: float = 0.95,
    *,
    active: FloatArray | None = None,
    held: BoolArray | None = None,
) -> Uncertainty:
    """Linearised errors of the free unknowns at an optimum x (n,).

    at      residuals and derivative there; None where the model cannot be integrated: then nothing
            is known
    active  (m, n) gradients of the active constraints; None: there are none
    held    (n,) which unknowns a bound holds; None: those that `on_bounds` names
    """
    held = on_bounds(x, at, problem.box) if held is None else held
    if at is None:
        at = Linearised(np.full(problem.size, np.nan), np.zeros((problem.size, len(x))))
        held = np.ones(len(x), dtype=bool)
    return uncertainty(
        x, at.residual, at.jacobian,
        held=held, sigma_known=problem.sigma_known, confidence=confidence, active=active,
        bounds=(problem.box.lower, problem.box.upper),
    )  # fmt: skip
