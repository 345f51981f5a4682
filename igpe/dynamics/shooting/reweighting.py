"""A search repeated until standard deviations that follow the fit stand still.

    fit with standard deviations held, take them anew at what was fitted, fit again, ...

is generalised least squares (Carroll & Ruppert, Transformation and Weighting in Regression (1988),
chapter 2). The first are those of smoothed measurements, so that the scatter of a measurement does
not decide how much it counts. Whatever search is repeated, it ends where

    sum over measurements of (h(q) - y) / sigma(h(q))^2  dh/dq = 0.

The weights count as constants in derivatives and covariance. Unknown standard deviations of several
quantities are relative ones, taken anew from the residuals (below), and so are unknown correlations
(see `correlations`), with which errors are independent in the first fit.

Each quantity has one relative standard deviation, where none are given. With normal errors and a
variance of its own for each quantity, the likelihood is highest at

    s_k^2 = sum over the n_k measurements of quantity k of (h - y)^2 / n_k.

Only their ratios matter to a fit. They are scaled so that the sum of log w over all n measurements
is 0: then -2 log L = n log(S / n) + constant with the weighted sum of squares S, as for one
quantity (Bates & Watts, Nonlinear Regression Analysis and Its Applications (1988), section 4.2,
with a diagonal covariance).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from igpe.core.arrays import FloatArray, typical
from igpe.core.deadline import session, stopped
from igpe.core.errors import EstimationFailed
from igpe.core.estimates import Estimate
from igpe.core.markup import counted
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.shooting.estimated_errors import Unwhitened, estimated_correlations, independent
from igpe.dynamics.shooting.residuals import Residuals
from igpe.problem.experiment import Experiment
from igpe.problem.measurements import Measurements
from igpe.problem.noise.correlated import Correlation
from igpe.problem.problem import Problem
from igpe.smoothing.base import JUDGED_FREEDOM, without_gross_errors
from igpe.smoothing.gcv_spline import GcvSpline

ROUNDS = 5  # of smoothing: each tells the weights of the next
STILL = 1e-6  # relative change of every standard deviation that is none
STILL_RELATIVE = 1e-3  # of relative ones, each an estimate from a few dozen residuals
FAR = 0.5  # relative change after which the whole search is worth repeating
MOST = 30  # fits
SHARES = (0.1, 2.0)  # of a requested change: the shortest and longest step
LEAST_SHARE = 0.2  # of the noise that smoothing saw: a fit that leaves less was free to follow it
FAVOURED = 1e-2  # of the largest value: the error of a quantity that counts almost alone
SPARE = 5  # measurements of a quantity beyond the unknowns from which no fit is free to follow it
TINY = np.finfo(float).tiny

LOST = "The model could not be integrated at the estimate: "
STOPPED = "The fit was interrupted: "
PROVEN = (
    "The proof applies to the first fit, whose standard deviations come from the smoothed "
    "measurements."
)


def first_weighted(problem: Problem) -> Problem:
    """The problem with standard deviations of smoothed measurements where they follow the fit."""
    if not problem.weights_follow_fit:
        return problem
    if problem.weights_unknown:
        sizes = _sized(problem, smoothed_sizes(problem))
    else:
        sizes = [_smoothed(e) for e in problem.experiments]
    none = independent([e.measurements for e in problem.experiments])
    return Weighting(sizes, none).holding(problem)


def _sized(problem: Problem, sizes: Mapping[str, float]) -> list[FloatArray]:
    """For each experiment (m,) sizes of errors as standard deviations, for some losses relative."""
    runs = [e.measurements for e in problem.experiments]
    return relative_sigma(runs, sizes, absolute=problem.loss.needs_deviations)


def smoothed_sizes(problem: Problem) -> dict[str, float]:
    """Quantity -> the noise of its measurements, by smoothing."""
    runs, robust = problem.experiments, not problem.loss.is_squares
    scatter = [_scatter(e.measurements, robust=robust) for e in runs]
    return sizes_of(runs, scatter, least_sizes(runs), robust=robust)


def least_weights(problem: Problem) -> dict[str, float]:
    """Quantity -> the smallest size of its residuals that counts.

    Residuals of a quantity with few measurements may be small because some unknowns are free to
    follow it: its weight would grow without limit.
    """
    least, few = least_sizes(problem.experiments), _few(problem)
    noise = smoothed_sizes(problem) if few else {}
    return least | {n: max(least[n], LEAST_SHARE * noise[n]) for n in few}


def favouring_each(problem: Problem, at: Mapping[str, float]) -> Iterator[Problem]:
    """The problem with weights by which one quantity after the other counts almost alone.

    at  a value of each free unknown
    """
    scales = _scales(problem.experiments)
    for name in scales if len(scales) > 1 else ():
        sizes = scales | {name: FAVOURED * scales[name]}
        yield Weighting(_sized(problem, sizes), (None,) * len(problem.experiments), at).holding(
            problem
        )


def assumed_sizes(problem: Problem, residuals: FloatArray) -> list[str]:
    """Quantities whose weights are not the sizes of their residuals: they have too few.

    residuals  (n,) of all measurements, divided by standard deviations
    """
    few = _few(problem)
    if not few:
        return []
    runs = [e.measurements for e in problem.experiments]
    ends = np.cumsum([len(m.value) for m in runs])[:-1]
    left = [m.sigma * r for m, r in zip(runs, np.split(residuals, ends), strict=True)]
    robust = not problem.loss.is_squares
    least = least_weights(problem)
    own = sizes_of(problem.experiments, left, dict.fromkeys(least, 0.0), robust=robust)
    return [n for n, count in few.items() if count < FEWEST or own[n] < least[n]]


def _few(problem: Problem) -> dict[str, int]:
    """Quantity -> the number of its measurements in all experiments, where these are few."""
    counts = {n: len(v) for n, v in _pooled(problem.experiments).items()}
    return {n: count for n, count in counts.items() if count < len(problem.box) + SPARE}


def _scatter(m: Measurements, *, robust: bool) -> FloatArray:
    """(m,) measurements less their smoothed course, as large as noise; NaN if they are too few.

    robust  whether the course is that of measurements without gross errors
    """
    scatter = np.full(len(m.value), np.nan)
    for k, name in enumerate(m.names):
        mine = m.column == k
        times, value, _ = m.of(name)
        unit = np.max(np.abs(value), initial=0.0)
        if unit > 0:
            kept = value / unit
            if robust:
                kept = without_gross_errors(GcvSpline(), times, kept)
            curve, count = GcvSpline().smooth(times, kept), int(np.isfinite(kept).sum())
            freedom = count - curve.degrees_of_freedom
            if freedom >= JUDGED_FREEDOM:
                left = value / unit - curve.value(times)
                scatter[mine] = unit * left * np.sqrt(count / freedom)
    return scatter


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


def held_weights(problem: Problem, estimate: Any) -> Problem:
    """The problem with the relative standard deviations of an estimate, where they are unknown.

    estimate  a Result, whose own are taken; or an Estimate, or unknown -> value: those of its
              residuals, or of smoothed measurements where the model cannot be integrated
    """
    if not problem.weights_unknown:
        return problem
    given = getattr(estimate, "relative_sigma", {})
    if given and not problem.correlation_estimated:
        return problem.weighted(_sized(problem, given), relative=True)
    values = getattr(estimate, "parameters", estimate)
    return (values and weighted_at(problem, values)) or first_weighted(problem)


def fully_held_weights(
    problem: Problem, estimate: Any, values: Mapping[str, float] | None = None
) -> Problem:
    """The problem with standard deviations held where they are at the estimate.

    Those that follow the fit count as known there, as in the fit (generalised least squares):
    taken anew at other values, sums of squares could not be compared.

    estimate  as of `held_weights`
    values    unknown -> value, if the estimate does not give all
    raises    EstimationFailed if the model cannot be integrated there
    """
    problem = held_weights(problem, estimate)
    if not problem.weights_follow_fit:
        return problem
    held = weighted_at(problem, values or getattr(estimate, "parameters", estimate))
    if held is None:
        raise EstimationFailed(
            "The model could not be integrated at the estimate, so the standard deviations that "
            "depend on the model are unknown. Give an estimate at which the model can be "
            "integrated.",
            Status.INTEGRATION_BROKE,
        )
    return held


def weighted_at(
    problem: Problem, parameters: Mapping[str, float], integrator: Integrator = Automatic()
) -> Problem | None:
    """The problem with the standard deviations of the model at a value of each free unknown.

    None where the model cannot be integrated. Objectives with different ones cannot be compared.
    """
    weights = Weights(problem, problem, integrator).at(parameters)
    return None if weights is None else weights.holding(problem)


class Weighting(NamedTuple):
    """For each experiment (m,) standard deviations, and the correlation where it is estimated.

    at  values of the unknowns for which they are right
    """

    sigma: list[FloatArray]
    correlations: tuple[Correlation | None, ...]
    at: Mapping[str, float] | None = None

    def holding(self, problem: Problem) -> Problem:
        """The problem with these; standard deviations stay where nothing of the fit is in them."""
        sigma = self.sigma if problem.sigma_follows else None
        relative, own = problem.weights_unknown, self.correlations
        return problem.weighted(sigma, relative=relative, correlations=own, at=self.at)

    @property
    def numbers(self) -> FloatArray:
        """The correlations."""
        every = [v for c in self.correlations if c is not None for v in c.named.values()]
        return np.array(every, dtype=float)


class Weights:
    """Standard deviations of a problem as a function of its unknowns.

    weighted  the same problem with standard deviations that are numbers, for the integration
    """

    def __init__(self, weighted: Problem, problem: Problem, integrator: Integrator) -> None:
        self.problem = problem
        self._residuals = Residuals(weighted, integrator)
        self._least: dict[str, float] = {}
        if problem.weights_unknown:
            self._least = least_weights(problem)

    def at(self, parameters: Mapping[str, float]) -> Weighting | None:
        """For each experiment; None where the model cannot be integrated."""
        x = np.array([parameters[n] for n in self._residuals.names], dtype=float)
        trajectories = self._trajectories(x)
        if trajectories is None:
            return None
        sigma, every = self._sigma([h for _, h in trajectories]), []
        if not self.problem.correlation_estimated:
            return Weighting(sigma, (None,) * len(sigma), dict(parameters))
        for run, e, (t, h), s in zip(
            self._residuals.runs, self.problem.experiments, trajectories, sigma, strict=True
        ):
            m, jacobian = e.measurements, np.zeros((len(h), len(x)))
            jacobian[:, run.index] = run.by_unknown(t, m.column) / s[:, None]
            every.append(Unwhitened(m, (h - m.value) / s, jacobian))
        priors, known = self._residuals.unmeasured(x).jacobian, self.problem.sigma_known
        correlations = estimated_correlations(every, priors, sigma_known=known)
        return Weighting(sigma, correlations, dict(parameters))

    def _sigma(self, predicted: Sequence[FloatArray]) -> list[FloatArray]:
        runs = self.problem.experiments
        if self.problem.weights_unknown:
            every = [e.measurements for e in runs]
            left = [h - m.value for h, m in zip(predicted, every, strict=True)]
            robust = not self.problem.loss.is_squares
            return _sized(self.problem, sizes_of(runs, left, self._least, robust=robust))
        return [e.sigma_at(h) for e, h in zip(runs, predicted, strict=True)]

    def limits(self, parameters: Mapping[str, float]) -> tuple[str, ...]:
        """Where predictions were nearly 0, unlike measurements, and the least size counted."""
        notes: list[str] = []
        if not any(e.error_models for e in self.problem.experiments):
            return ()
        x = np.array([parameters[n] for n in self._residuals.names], dtype=float)
        trajectories = self._trajectories(x) or ()
        for e, (_, h) in zip(self.problem.experiments, trajectories, strict=True):
            m = e.measurements
            for name, model in e.error_models.items():
                mine = m.column == m.names.index(name)
                small = np.abs(h[mine]) < model.least(m.value[mine])
                off = np.abs(h[mine] - m.value[mine]) * small
                if count := int(np.sum(off > 0)):
                    is_far = (off > FAR * model.at(h[mine], m.value[mine])).any()
                    notes.append(
                        f"The model predicts nearly 0 for {counted(count, 'measurement')} of "
                        f"{name} in experiment {e.name}. There, {model} gives no "
                        "usable standard deviation; igpe used a tenth of the smallest measurement "
                        f"instead. {f'{FAR_OFF} ' * bool(is_far)}{model.remedy}"
                    )
        return tuple(notes)

    def _trajectories(self, x: FloatArray) -> list[tuple[Trajectory, FloatArray]] | None:
        pairs = []
        for run in self._residuals.runs:
            trajectory, m = run.simulation.run(x[run.index]), run.measurements
            predicted = trajectory.measured[m.row, m.column]
            pairs.append((trajectory, predicted))
            if not (trajectory.status.usable and np.isfinite(predicted).all()):
                return None
        return pairs


FAR = 3.0  # standard deviations
FAR_OFF = "The measurements there are far from the model."
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
        if not problem.weights_follow_fit:
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
        method=f"{first.method}, weights in {counted(count, 'fit')}",
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
    fit       (problem with standard deviations and correlations held, the fit before, the largest
              relative change of the former since then) -> fit
    estimate  fit -> the estimate at which they are taken anew

    They change by relaxed steps, in logarithms; a step is as long as the last two promise (Irons &
    Tuck, Int. J. Numer. Meth. Eng. 1 (1969)): what swings is damped.
    """
    fits = [fit(weighted, None, np.inf)]
    if not problem.weights_follow_fit:
        return Reweighted(weighted, tuple(fits))
    ends = np.cumsum([len(e.measurements.value) for e in problem.experiments])[:-1]
    share, before, numbers = 1.0, None, np.zeros(1)
    try:
        weights = Weights(weighted, problem, integrator)
        while True:
            last = estimate(fits[-1])
            if last.status is Status.INTERRUPTED or stopped():
                raise KeyboardInterrupt
            new = weights.at(last.parameters) if last.status.usable else None
            if new is None:
                lost = (LOST + _whose(problem, fits),) if last.status.usable else ()
                return Reweighted(weighted, tuple(fits), lost)
            now = np.log(np.concatenate([e.measurements.sigma for e in weighted.experiments]))
            move = np.log(np.concatenate(new.sigma)) - now
            share = _share(share, before, move)
            before, moved = move, float(np.max(np.abs(move), initial=0.0))
            turned = float(np.max(np.abs(new.numbers - numbers), initial=0.0))
            still = moved <= (STILL_RELATIVE if problem.weights_unknown else STILL)
            if still and turned <= STILL_RELATIVE:
                return Reweighted(weighted, tuple(fits), weights.limits(last.parameters))
            if len(fits) == MOST:
                restless = _restless(max(moved, turned))
                return Reweighted(weighted, tuple(fits), (restless,), still=False)
            sizes, numbers = np.split(np.exp(now + share * move), ends), new.numbers
            following = new._replace(sigma=sizes).holding(problem)
            fits.append(fit(following, fits[-1], moved))
            weighted = following
    except KeyboardInterrupt:
        return Reweighted(weighted, tuple(fits), (STOPPED + _whose(problem, fits),), stopped=True)


def _share(share: float, before: FloatArray | None, move: FloatArray) -> float:
    """Of the requested change in logarithms, `move`, after a share of the one before.

    Changes that grow lead away from where they would stand still: the likelihood is lowest there.
    """
    if before is None:
        return share
    turn = move - before
    promised = -share * float(before @ turn) / max(float(turn @ turn), TINY)
    return float(np.clip(promised, *SHARES)) if promised > 0 else 1.0


def _whose(problem: Problem, fits: Sequence[object]) -> str:
    right = "residuals" if problem.weights_unknown else "model's predictions"
    of, said = "smoothed measurements" if len(fits) == 1 else "previous fit", []
    if problem.sigma_follows:
        said = [f"standard deviations come from the {of}, not from the {right} at the estimate"]
    if problem.correlation_estimated:
        later = "come from the previous fit, not from the residuals at the estimate"
        said += [f"correlations of errors {'are 0' if len(fits) == 1 else later}"]
    return f"{', and '.join(said)}."


def _restless(moved: float) -> str:
    return (
        f"Weights still changed by {100 * moved:.2g} % after {MOST} fits: the model explains the "
        "measurements poorly, or the standard deviations need a larger absolute part."
    )


EXACT = 1e-6  # of the largest value, a known start included: errors of integration
MOST_DECIMALS = 8
FEWEST = 5  # measurements of a quantity from which its residuals have a size


def _pooled(
    experiments: Sequence[Experiment], values: Sequence[FloatArray] | None = None
) -> dict[str, FloatArray]:
    """Quantity -> its measurements in all experiments, or what `values` has for each of them."""
    parts: dict[str, list[FloatArray]] = {}
    for number, m in enumerate(e.measurements for e in experiments):
        own = m.value if values is None else values[number]
        for k in np.unique(m.column):
            parts.setdefault(m.names[k], []).append(own[m.column == k])
    return {name: np.concatenate(own) for name, own in parts.items()}


def least_sizes(experiments: Sequence[Experiment]) -> dict[str, float]:
    """Quantity -> the smallest error it can have: that of rounding, and of integration."""
    scales = _scales(experiments)
    return {
        name: max(_resolution(value) / np.sqrt(12), EXACT * scales[name])
        for name, value in _pooled(experiments).items()
    }


def _scales(experiments: Sequence[Experiment]) -> dict[str, float]:
    """Quantity -> its largest value, known starts included; 1 if all are 0."""
    scales = {}
    for name, value in _pooled(experiments).items():
        starts = [abs(v) for e in experiments if isinstance(v := e.start.get(name), float)]
        scales[name] = max([float(np.max(np.abs(value))), *starts]) or 1.0
    return scales


def _resolution(values: FloatArray) -> float:
    """The decimal place that all values are rounded to; 0 if there is none."""
    for decimals in range(MOST_DECIMALS):
        steps = values * 10.0**decimals
        if np.all(np.abs(steps - np.round(steps)) <= 1e-9 * np.abs(steps)):
            return 10.0**-decimals
    return 0.0


def sizes_of(
    experiments: Sequence[Experiment],
    residuals: Sequence[FloatArray],
    least: Mapping[str, float],
    *,
    robust: bool,
) -> dict[str, float]:
    """Quantity -> size of its residuals, root mean square, and no smaller than `least`.

    What has fewer than five has the average of the others, relative to the largest values.

    residuals  for each experiment (m,); NaN where there is none
    robust     by the median of their sizes, of which outliers are no part
    """
    scales, sizes = _scales(experiments), {}
    for name, left in _pooled(experiments, residuals).items():
        known = left[np.isfinite(left)]
        if len(known) >= FEWEST:
            sizes[name] = max(_size(known, robust=robust), least[name])
    shares = [np.log(size / scales[name]) for name, size in sizes.items()]
    share = float(np.exp(np.mean(shares))) if shares else 1.0
    return {name: sizes.get(name, share * scale) for name, scale in scales.items()}


def _size(residuals: FloatArray, *, robust: bool) -> float:
    if robust:
        return typical(residuals)
    return float(np.sqrt(np.mean(residuals**2)))


def relative_sigma(
    measurements: Sequence[Measurements], sizes: Mapping[str, float], *, absolute: bool = False
) -> list[FloatArray]:
    """For each experiment (m,): sizes as relative standard deviations, as above.

    absolute  whether they stay as large as they are: a robust loss has limits in them
    """
    logs = [np.log([sizes.get(n, 1.0) for n in m.names])[m.column] for m in measurements]
    mean = 0.0 if absolute else np.mean(np.concatenate(logs))
    return [np.exp(own - mean) for own in logs]
