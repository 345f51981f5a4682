"""A search repeated until standard deviations that follow the model stand still.

    fit with standard deviations held, take them anew at what was fitted, fit again, ...

is generalised least squares (Carroll & Ruppert, Transformation and Weighting in Regression (1988),
chapter 2). The first are those of smoothed measurements, so that the scatter of a measurement does
not decide how much it counts. Whatever search is repeated, it ends where

    sum over measurements of (h(q) - y) / sigma(h(q))^2  dh/dq = 0.

The weights count as constants in derivatives and covariance.

Standard deviations that follow the model: first of smoothed measurements, then at unknowns.
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


def first_weighted(problem: Problem) -> Problem:
    """The problem with standard deviations of smoothed measurements where they follow the model."""
    if not problem.sigma_follows_model:
        return problem
    return problem.weighted([_smoothed(e) for e in problem.experiments])


def weighted_at(
    problem: Problem, parameters: Mapping[str, float], integrator: Integrator = Automatic()
) -> Problem | None:
    """The problem with the standard deviations of the model at a value of each free unknown.

    None where the model cannot be integrated. Objectives with different ones cannot be compared.
    """
    weights = Weights(problem, problem, integrator)
    sigma = weights.at(parameters)
    return None if sigma is None else problem.weighted(sigma)


class Weights:
    """Standard deviations of a problem as a function of its unknowns.

    weighted  the same problem with standard deviations that are numbers, for the integration
    """

    def __init__(
        self,
        weighted: Problem,
        problem: Problem,
        integrator: Integrator,
    ) -> None:
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
        found: list[str] = []
        for e, h in zip(self.problem.experiments, self._predicted(parameters) or (), strict=True):
            m = e.measurements
            for name, model in e.error_models.items():
                mine = m.column == m.names.index(name)
                small = np.abs(h[mine]) < model.least(m.value[mine])
                count = int(np.sum(small & (h[mine] != m.value[mine])))
                if count:
                    found.append(
                        f"The model is nearly 0 at {count} measurement{'s' * (count > 1)} of "
                        f"{name} in experiment {e.name}, where {model} gives no standard "
                        "deviation; a tenth of the smallest measurement counted instead. "
                        f"{model.remedy}"
                    )
        return tuple(found)

    def _predicted(self, parameters: Mapping[str, float]) -> list[FloatArray] | None:
        x = np.array([parameters[n] for n in self._residuals.names], dtype=float)
        found = []
        for run in self._residuals.runs:
            trajectory = run.simulation.run(x[run.index])
            m = run.measurements
            predicted = trajectory.measured[m.row, m.column]
            if not (trajectory.status.usable and np.isfinite(predicted).all()):
                return None
            found.append(predicted)
        return found


def _smoothed(experiment: Experiment) -> FloatArray:
    """(m,) standard deviations of smoothed measurements.

    A smoothed value counts with its standard error, sqrt(f^2 + error^2): where the curve crosses 0
    by chance, nothing is known exactly.
    """
    m, predicted = experiment.measurements, np.zeros(len(experiment.measurements.value))
    sigma = m.sigma
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

Found = TypeVar("Found")
Search = Callable[[Problem, Mapping[str, float]], Estimate]


class Reweighted(NamedTuple, Generic[Found]):
    """The last fit, the problem with the standard deviations it was made with, and all before.

    still    whether the standard deviations stand still;  stopped: whether it was interrupted
    """

    problem: Problem
    fits: tuple[Found, ...]
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
    """What a search finds from `start`, its standard deviations being those of the model it found.

    search      of a problem with standard deviations that are numbers, from a start
    again       from what was found, once standard deviations have changed little
    integrator  with which predictions are computed

    A problem whose standard deviations are numbers is searched once, and nothing is changed.
    """
    with session():
        return _reweighted(problem, start, search, again, integrator)


def _reweighted(
    problem: Problem,
    start: Mapping[str, float],
    search: Search,
    again: Search,
    integrator: Integrator,
) -> Estimate:
    if not problem.sigma_follows_model:
        return search(problem, start)

    def fit(weighted: Problem, before: Estimate | None, moved: float) -> Estimate:
        if before is None:
            return search(weighted, start)
        following = search if moved > FAR else again
        return following(weighted, before.parameters)

    found = iterate_weights(
        first_weighted(problem), problem, fit, lambda e: e, integrator=integrator
    )
    return _concluded(found)


def iterate_weights(
    weighted: Problem,
    problem: Problem,
    fit: Callable[[Problem, Found | None, float], Found],
    estimate: Callable[[Found], Estimate],
    *,
    integrator: Integrator = Automatic(),
) -> Reweighted[Found]:
    """Fit until the standard deviations stand still.

    weighted  the problem with the first ones
    fit       (problem with standard deviations held, the fit before, their largest relative change
              since then) -> fit
    estimate  fit -> the estimate at which they are taken anew
    """
    fits = [fit(weighted, None, np.inf)]
    if not problem.sigma_follows_model:
        return Reweighted(weighted, tuple(fits))
    try:
        weights, relaxed = Weights(weighted, problem, integrator), _Relaxed(problem)
        while True:
            now = estimate(fits[-1])
            if now.status is Status.INTERRUPTED or stopped():
                raise KeyboardInterrupt
            sigma = weights.at(now.parameters) if now.status.usable else None
            if sigma is None:
                lost = (LOST + _whose(len(fits)),) if now.status.usable else ()
                return Reweighted(weighted, tuple(fits), lost)
            moved = relaxed.change(weighted, sigma)
            if moved <= STILL:
                return Reweighted(weighted, tuple(fits), weights.limits(now.parameters))
            if len(fits) == MOST:
                return Reweighted(weighted, tuple(fits), (_restless(moved),), still=False)
            following = relaxed.step()
            fits.append(fit(following, fits[-1], moved))
            weighted = following
    except KeyboardInterrupt:
        return Reweighted(weighted, tuple(fits), (STOPPED + _whose(len(fits)),), stopped=True)


class _Relaxed:
    """Relaxed steps, in logarithms, to standard deviations that stand still.

    A step is as long as the last two promise (Irons & Tuck, Int. J. Numer. Meth. Eng. 1 (1969)):
    what swings is damped.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.share = problem, 1.0
        self.move: FloatArray | None = None

    def change(self, weighted: Problem, sigma: Sequence[FloatArray]) -> float:
        """The largest relative change that is requested."""
        self.now = np.log(np.concatenate([e.measurements.sigma for e in weighted.experiments]))
        before, self.move = self.move, np.log(np.concatenate(sigma)) - self.now
        if before is not None:
            turn = self.move - before
            promised = -self.share * float(before @ turn) / max(float(turn @ turn), TINY)
            self.share = float(np.clip(promised, *SHARES))
        return float(np.max(np.abs(self.move), initial=0.0))

    def step(self) -> Problem:
        """The problem with the next standard deviations."""
        sigma = np.exp(self.now + self.share * np.asarray(self.move))
        ends = np.cumsum([len(e.measurements.value) for e in self.problem.experiments])
        return self.problem.weighted(np.split(sigma, ends[:-1]))


def _concluded(found: Reweighted[Estimate]) -> Estimate:
    """The last fit, as what the first search made of it."""
    first, last, count = found.fits[0], found.fits[-1], len(found.fits)
    several = first.status is Status.BEST_OF_SEVERAL and last.status is Status.CONVERGED
    status = Status.BEST_OF_SEVERAL if several else last.status
    proven = [PROVEN] if np.isfinite(first.lower_bound) and count > 1 else []
    status = status if found.still else Status.ITERATION_LIMIT
    return replace(
        last,
        status=Status.INTERRUPTED if found.stopped else status,
        method=f"{first.method}, weights by the model in {count} fit{'s' * (count > 1)}",
        seconds=sum(e.seconds for e in found.fits),
        trail=first.trail,
        notes=(*last.notes, *proven, *found.notes),
        iterations=sum(e.iterations for e in found.fits),
        elsewhere=first.elsewhere,
        reached=first.reached,
    )


def _whose(count: int) -> str:
    whose = "smoothed measurements" if count == 1 else "the fit before"
    return f"are not those of the model's predictions at the estimate but of {whose}."


def _restless(moved: float) -> str:
    return (
        f"Standard deviations still changed by {100 * moved:.2g} % after {MOST} fits: the model "
        "hardly explains the measurements, or a larger floor is needed."
    )
