"""A search repeated until standard deviations that follow the model stand still.

    fit with standard deviations held, take them anew at what was fitted, fit again, ...

is generalised least squares (Carroll & Ruppert, Transformation and Weighting in Regression (1988),
chapter 2). The first are those of smoothed measurements, so that the scatter of a measurement does
not decide how much it counts. Whatever search is repeated, it ends where

    sum over measurements of (h(q) - y) / sigma(h(q))^2  dh/dq = 0.

The weights count as constants in derivatives and covariance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import session, stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.smoothing.gcv_spline import GcvSpline

ROUNDS = 5  # of smoothing: each tells the weights of the next
STILL = 1e-6  # relative change of every standard deviation that is none
FAR = 0.5  # relative change after which the whole search is worth repeating
MOST = 30  # fits
SHARES = (0.1, 2.0)  # of a requested change: the shortest and longest step
TINY = np.finfo(float).tiny

LOST = "The model could not be integrated at the estimate: standard deviations "
STOPPED = "The fit was interrupted: standard deviations "
PROVEN = (
    "What the first fit proved is about its own standard deviations, those of smoothed "
    "measurements."
)


def first_weighted(problem: Problem) -> Problem:
    """The problem with standard deviations of smoothed measurements where they follow the model."""
    if not problem.sigma_follows_model:
        return problem
    return problem.weighted([_smoothed(e) for e in problem.experiments])


def _smoothed(experiment: Experiment) -> FloatArray:
    """(m,) standard deviations of smoothed measurements.

    A smoothed value counts with its standard error, sqrt(f^2 + error^2): where the curve crosses 0
    by chance, nothing is known exactly.
    """
    m, sigma = experiment.measurements, experiment.measurements.sigma
    predicted = np.zeros(len(m.value))
    for _ in range(ROUNDS):
        for name in experiment.error_models:
            mine = m.column == m.names.index(name)
            if not mine.any():
                continue
            times = m.times[m.row[mine]]
            curve = GcvSpline().smooth(times, m.value[mine], sigma=sigma[mine])
            size = np.hypot(curve.value(times), curve.value_error(times))
            level = np.sqrt(np.mean(m.value[mine] ** 2))
            predicted[mine] = np.where(np.isfinite(size), size, level)
        sigma = experiment.sigma_at(predicted)
    return sigma


def weighted_at(
    problem: Problem, parameters: Mapping[str, float], integrator: Integrator = Automatic()
) -> Problem | None:
    """The problem with the standard deviations of the model at a value of each free unknown.

    None where the model cannot be integrated. Objectives with different ones cannot be compared.
    """
    sigma = Weights(problem, problem, integrator).at(parameters)
    return None if sigma is None else problem.weighted(sigma)


class Weights:
    """Standard deviations of a problem as a function of its unknowns.

    weighted  the same problem with standard deviations that are numbers, for the integration
    """

    def __init__(self, weighted: Problem, problem: Problem, integrator: Integrator) -> None:
        self.problem = problem
        self._residuals = Residuals(weighted, integrator)

    def at(self, parameters: Mapping[str, float]) -> list[FloatArray] | None:
        """For each experiment (m,); None where the model cannot be integrated."""
        predicted = self._predicted(parameters)
        if predicted is None:
            return None
        pairs = zip(self.problem.experiments, predicted, strict=True)
        return [e.sigma_at(h) for e, h in pairs]

    def limits(self, parameters: Mapping[str, float]) -> tuple[str, ...]:
        """Where predictions were nearly 0, unlike measurements, and the least size counted."""
        notes: list[str] = []
        for e, h in zip(self.problem.experiments, self._predicted(parameters) or (), strict=True):
            m = e.measurements
            for name, model in e.error_models.items():
                mine = m.column == m.names.index(name)
                small = np.abs(h[mine]) < model.least(m.value[mine])
                count = int(np.sum(small & (h[mine] != m.value[mine])))
                if count:
                    notes.append(
                        f"The model is nearly 0 at {count} measurement{'s' * (count > 1)} of "
                        f"{name} in experiment {e.name}, where {model} gives no standard "
                        "deviation; a tenth of the smallest measurement counted instead. "
                        f"{model.remedy}"
                    )
        return tuple(notes)

    def _predicted(self, parameters: Mapping[str, float]) -> list[FloatArray] | None:
        x = np.array([parameters[n] for n in self._residuals.names], dtype=float)
        predicted = []
        for run in self._residuals.runs:
            trajectory, m = run.simulation.run(x[run.index]), run.measurements
            predicted.append(trajectory.measured[m.row, m.column])
            if not (trajectory.status.usable and np.isfinite(predicted[-1]).all()):
                return None
        return predicted


Fitted = TypeVar("Fitted")
Search = Callable[[Problem, Mapping[str, float]], Estimate]


class Reweighted(NamedTuple, Generic[Fitted]):
    """The last fit, the problem with the standard deviations it was made with, and all before.

    still    whether the standard deviations stand still;  stopped: whether it was interrupted
    """

    problem: Problem
    fits: tuple[Fitted, ...]
    notes: tuple[str, ...] = ()
    still: bool = True
    stopped: bool = False


def iteratively_reweighted(
    problem: Problem,
    start: Mapping[str, float],
    search: Search,
    again: Search,
    integrator: Integrator = Automatic(),
) -> Estimate:
    """The estimate of a search from `start` with the standard deviations of the model there.

    search      of a problem with standard deviations that are numbers, from a start
    again       from an estimate, once standard deviations have changed little
    integrator  with which predictions are computed

    A problem whose standard deviations are numbers is searched once, and nothing is changed.
    """

    def fit(weighted: Problem, before: Estimate | None, moved: float) -> Estimate:
        if before is None:
            return search(weighted, start)
        return (search if moved > FAR else again)(weighted, before.parameters)

    with session():
        if not problem.sigma_follows_model:
            return search(problem, start)
        weighted = first_weighted(problem)
        end = iterate_weights(weighted, problem, fit, lambda e: e, integrator=integrator)
    first, last, count = end.fits[0], end.fits[-1], len(end.fits)
    status = last.status
    if first.status is Status.BEST_OF_SEVERAL and last.status is Status.CONVERGED:
        status = Status.BEST_OF_SEVERAL
    if not end.still:
        status = Status.ITERATION_LIMIT
    proven = (PROVEN,) if np.isfinite(first.lower_bound) and count > 1 else ()
    return replace(
        last,
        status=Status.INTERRUPTED if end.stopped else status,
        method=f"{first.method}, weights by the model in {count} fit{'s' * (count > 1)}",
        seconds=sum(e.seconds for e in end.fits),
        trail=first.trail,
        notes=(*last.notes, *proven, *end.notes),
        iterations=sum(e.iterations for e in end.fits),
        elsewhere=first.elsewhere,
        reached=first.reached,
    )


def iterate_weights(
    weighted: Problem,
    problem: Problem,
    fit: Callable[[Problem, Fitted | None, float], Fitted],
    estimate: Callable[[Fitted], Estimate],
    *,
    integrator: Integrator = Automatic(),
) -> Reweighted[Fitted]:
    """Fit until the standard deviations stand still.

    weighted  the problem with the first ones
    fit       (problem with standard deviations held, the fit before, their largest relative change
              since then) -> fit
    estimate  fit -> the estimate at which they are taken anew

    They change by relaxed steps, in logarithms; a step is as long as the last two promise (Irons &
    Tuck, Int. J. Numer. Meth. Eng. 1 (1969)): what swings is damped.
    """
    fits = [fit(weighted, None, np.inf)]
    if not problem.sigma_follows_model:
        return Reweighted(weighted, tuple(fits))
    ends = np.cumsum([len(e.measurements.value) for e in problem.experiments])[:-1]
    share, before = 1.0, None
    try:
        weights = Weights(weighted, problem, integrator)
        while True:
            last = estimate(fits[-1])
            if last.status is Status.INTERRUPTED or stopped():
                raise KeyboardInterrupt
            sigma = weights.at(last.parameters) if last.status.usable else None
            if sigma is None:
                lost = (LOST + _whose(fits),) if last.status.usable else ()
                return Reweighted(weighted, tuple(fits), lost)
            now = np.log(np.concatenate([e.measurements.sigma for e in weighted.experiments]))
            move = np.log(np.concatenate(sigma)) - now
            share = _share(share, before, move)
            before, moved = move, float(np.max(np.abs(move), initial=0.0))
            if moved <= STILL:
                return Reweighted(weighted, tuple(fits), weights.limits(last.parameters))
            if len(fits) == MOST:
                return Reweighted(weighted, tuple(fits), (_restless(moved),), still=False)
            following = problem.weighted(np.split(np.exp(now + share * move), ends))
            fits.append(fit(following, fits[-1], moved))
            weighted = following
    except KeyboardInterrupt:
        return Reweighted(weighted, tuple(fits), (STOPPED + _whose(fits),), stopped=True)


def _share(share: float, before: FloatArray | None, move: FloatArray) -> float:
    """Of the requested change in logarithms, `move`, after a share of the one before."""
    if before is None:
        return share
    turn = move - before
    promised = -share * float(before @ turn) / max(float(turn @ turn), TINY)
    return float(np.clip(promised, *SHARES))


def _whose(fits: Sequence[object]) -> str:
    of = "smoothed measurements" if len(fits) == 1 else "the fit before"
    return f"are not those of the model's predictions at the estimate but of {of}."


def _restless(moved: float) -> str:
    return (
        f"Standard deviations still changed by {100 * moved:.2g} % after {MOST} fits: the model "
        "hardly explains the measurements, or a larger floor is needed."
    )
