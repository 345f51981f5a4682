"""Free settings of an experiment, and prior information.

Numbers and profiles within bounds, times of sampling; earlier measurements, priors, and how exact
measurements are.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arguments import (
    Checked,
    CountOrNone,
    Flag,
    NotNegative,
    PositiveOrNone,
    is_finite,
    shown,
)
from igpe.core.arrays import FloatArray, column_sizes
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import Weights
from igpe.numerics.covariance import directions
from igpe.problem.building import Builder, build
from igpe.problem.experiment import Experiment, Start
from igpe.problem.inputs import InputValue, Table, linear_input, step_input
from igpe.problem.losses import NormalPrior
from igpe.problem.noise.sigma import Deviation, EstimatedSigma, Noise
from igpe.problem.problem import Problem
from igpe.problem.problem_checks import Bounds

ROUGH, FINE = 41, 1001  # times between which free sampling times are chosen, first and in the end


class DesignVariable(Checked):
    """Base of free variables of a design: one number, or one number at each break of a profile.

    fewest, late  minimum number of breaks; position (from the end) of the break that must lie
                  inside
    shared        whether all experiments that are planned together have the same numbers
    levels        the allowed numbers; empty: all between the bounds
    """

    lower: float
    upper: float
    breaks: tuple[float, ...]
    shared: bool
    levels: ClassVar[tuple[float, ...]] = ()
    fewest: ClassVar[int] = 0
    late: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if not (is_finite(self.lower, self.upper) and self.lower < self.upper):
            raise ProblemError(
                f"{name} has bounds [{shown(self.lower)}, {shown(self.upper)}]; give finite bounds "
                "with lower < upper, or fix the value with conditions={...}."
            )
        breaks = list(self.breaks) if isinstance(self.breaks, Iterable) else [self.breaks]
        if len(breaks) < self.fewest or not (is_finite(*breaks) and (np.diff(breaks) > 0).all()):
            raise ProblemError(
                f"{name} has breaks {shown(self.breaks)}; give at least {self.fewest} finite times "
                "in increasing order."
            )
        if self.fewest:
            object.__setattr__(self, "breaks", tuple(map(float, breaks)))

    @property
    def count(self) -> int:
        """Number of values to choose."""
        return max(len(self.breaks), 1)

    def setting(self, numbers: Sequence[float] | FloatArray) -> float | Table:
        """Return the value or the profile for the chosen numbers."""
        return float(numbers[0])

    def shapes(self, begin: float) -> list[Any]:
        """Return one profile for each number: 1 at its own break, 0 at the others; constants are
        1."""
        unit = np.eye(self.count)
        return [self.setting(row) for row in unit] if self.breaks else [step_input([begin], [1.0])]


@dataclass(frozen=True)
class Between(DesignVariable):
    """A number to be optimised: a start value, constant input or operating parameter of the model.

    lower, upper  bounds, in the unit of the model
    shared        whether the number is the same in all experiments that are planned together
    raises        ProblemError unless the bounds are finite and lower < upper
    """

    lower: float
    upper: float
    breaks: tuple[float, ...] = field(default=(), init=False, repr=False)
    shared: Flag = False


@dataclass(frozen=True)
class OneOf(DesignVariable):
    """A number to be chosen from a list: a start value, constant input or operating parameter.

    values   two or more numbers, in the unit of the model
    shared   whether the number is the same in all experiments that are planned together
    raises   ProblemError unless the values are finite and distinct
    """

    values: tuple[float, ...]
    shared: Flag = False
    lower: float = field(default=0.0, init=False, repr=False)
    upper: float = field(default=0.0, init=False, repr=False)
    breaks: tuple[float, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        values = list(self.values) if isinstance(self.values, Iterable) else [self.values]
        if not is_finite(*values) or len(set(values)) < max(len(values), 2):
            raise ProblemError(
                f"OneOf has the values {shown(self.values)}; give two or more different finite "
                "numbers, or fix the value with conditions={...}."
            )
        object.__setattr__(self, "values", tuple(sorted(map(float, values))))
        object.__setattr__(self, "lower", self.values[0])
        object.__setattr__(self, "upper", self.values[-1])
        super().__post_init__()

    @property
    def levels(self) -> tuple[float, ...]:  # type: ignore[override]
        """The values."""
        return self.values


@dataclass(frozen=True)
class Levels(DesignVariable):
    """An input to be optimised: it is constant between `breaks`, and jumps at each break.

    breaks        times, in increasing order, at which the levels begin; the first time is the start
                  of the experiment
    lower, upper  bounds of the levels
    shared        whether the input is the same in all experiments that are planned together
    raises        ProblemError if the bounds are reversed or the times do not increase
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    shared: Flag = False
    fewest: ClassVar[int] = 1

    def setting(self, numbers: Sequence[float] | FloatArray) -> Table:
        """Return the levels as a piecewise constant input."""
        return step_input(self.breaks, numbers)


@dataclass(frozen=True)
class Ramps(DesignVariable):
    """An input to be optimised: it is linear between its values at `breaks`.

    breaks        two or more times, in increasing order
    lower, upper  bounds of the values
    steepest      largest absolute slope, in units of the input per unit of time; None: no limit
    shared        whether the input is the same in all experiments that are planned together
    raises        ProblemError if the bounds are reversed, the times do not increase, or `steepest`
                  is not positive
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    steepest: PositiveOrNone = None
    shared: Flag = False
    fewest: ClassVar[int] = 2
    late: ClassVar[int] = 2

    def setting(self, numbers: Sequence[float] | FloatArray) -> Table:
        """Return the values as a piecewise linear input."""
        return linear_input(self.breaks, numbers)


@dataclass(frozen=True)
class Sampling(Checked):
    """Possible sampling times, and the number of samples to take.

    candidates  times at which a sample may be taken; a time listed twice may be sampled twice
    at_most     maximum number of samples in each experiment; None: all candidates
    spacing     minimum time between two samples
    quantities  maximum number of quantities to measure; None: all. All planned experiments
                measure the same quantities
    free        whether samples may be taken at any time between the first and the last candidate;
                igpe chooses the times in steps of 1/1000 of this range, and requires `at_most`
    raises      ProblemError for times that are not finite numbers, and for invalid counts
    """

    candidates: Sequence[float] | FloatArray
    at_most: CountOrNone = None
    spacing: NotNegative = 0.0
    quantities: CountOrNone = None
    free: Flag = False

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            times = np.sort(np.asarray(self.candidates, dtype=float), axis=None)
        except (TypeError, ValueError):
            times = np.zeros(0)
        if times.size == 0 or not np.isfinite(times).all():
            raise ProblemError(
                f"The candidate times are {shown(self.candidates)}; give finite numbers, for "
                "example Sampling(np.linspace(0.5, 8, 16), at_most=6)."
            )
        if self.free and (self.at_most is None or times[0] == times[-1]):
            raise ProblemError(
                f"Sampling has free=True, candidates from {times[0]:g} to {times[-1]:g} and "
                f"at_most={self.at_most}. Give a range of times and a number of samples, for "
                "example Sampling((0.5, 8), at_most=6, free=True)."
            )
        object.__setattr__(self, "candidates", tuple(times.tolist()))

    @property
    def times(self) -> FloatArray:
        """(n,) the candidate times in ascending order; a time listed twice appears twice. If `free`
        is True, these are the times of the coarse grid that igpe searches first."""
        return self._grid(ROUGH) if self.free else np.array(self.candidates, dtype=float)

    @property
    def fine(self) -> FloatArray:
        """(n,) the candidate times for the final choice; a fine grid if `free` is True."""
        return self._grid(FINE) if self.free else self.times

    def _grid(self, count: int) -> FloatArray:
        even = np.linspace(self.candidates[0], self.candidates[-1], count)
        return np.union1d(even, self.candidates)


@dataclass(frozen=True)
class ProblemWithoutData:
    """A model and conditions without any measurements, for a first design.

    model, parameters, local, priors  as for `Problem`
    measured    names of the quantities that can be measured
    until       latest end time of an experiment
    start_time  start time of all experiments
    start, inputs  as for `Experiment`; variables that the design chooses may be omitted
    """

    model: Builder
    parameters: Sequence[str] | Mapping[str, Bounds]
    measured: Sequence[str]
    until: float
    start: Mapping[str, Start] = field(default_factory=dict)
    inputs: Mapping[str, InputValue] = field(default_factory=dict)
    start_time: float = 0.0
    local: Sequence[str] = ()
    priors: Mapping[str, NormalPrior] = field(default_factory=dict)

    def problem(self, otherwise: Mapping[str, Any]) -> Problem:
        """Return a problem with one experiment, in which all measurements are 0.

        otherwise  default start values and inputs
        """
        states = build(self.model, [self.start_time, self.until]).states
        place = placeholder(
            [self.until],
            self.measured,
            start={n: v for n, v in otherwise.items() if n in states} | dict(self.start),
            start_time=self.start_time,
            inputs={n: v for n, v in otherwise.items() if n not in states} | dict(self.inputs),
            sigma=1.0,
        )
        return self.with_experiments([place])

    def with_experiments(self, experiments: Sequence[Experiment]) -> Problem:
        """Return the problem with these experiments."""
        return Problem(
            self.model,
            parameters=self.parameters,
            experiments=experiments,
            local=self.local,
            priors=self.priors,
        )


def placeholder(
    times: Sequence[float] | FloatArray, measured: Iterable[str], **settings: Any
) -> Experiment:
    """An experiment with zeros in the place of its measurements."""
    table = pd.DataFrame({"time": times} | {n: np.zeros(len(times)) for n in measured})
    return Experiment(table, **settings)


SAME = 0.01  # standard deviations that differ by less than this share are the same


class PriorInformation(NamedTuple):
    """Information of measurements and priors about relative unknowns.

    rows      (m, n) sensitivities by standard deviations; the information is rows' rows
    variance  of a residual of weight 1: of a measurement if no standard deviations are given
    """

    rows: FloatArray
    variance: float


class ExistingExperiments:
    """The experiments of a problem, as a function of its unknowns.

    counted  whether their measurements count; priors always do
    """

    def __init__(self, problem: Problem, integrator: Integrator, *, counted: bool) -> None:
        self.problem, self.counted = problem, counted
        self.residuals = Residuals(problem, integrator) if counted else None
        follows = counted and problem.weights_follow_fit
        self.weights = Weights(problem, problem, integrator) if follows else None

    def at(self, values: Mapping[str, float], sizes: FloatArray) -> PriorInformation:
        """Information at these values of the unknowns.

        sizes   (n,) to which unknowns are relative
        raises  EstimationFailed if an existing experiment cannot be integrated there
        """
        box = self.problem.box
        if self.residuals is None:
            priors = self.problem.normal_priors
            rows = [
                np.eye(len(box))[i] * sizes[i] / priors[n].deviation
                for i, n in enumerate(box.names)
                if n in priors
            ]
            return PriorInformation(np.array(rows).reshape(-1, len(box)), 1.0)
        residuals = copy(self.residuals)
        weights = None if self.weights is None else self.weights.at(values)
        if weights is not None:  # else they break down as well, and say why
            residuals.runs = tuple(
                replace(run, measurements=replace(run.measurements, sigma=s))
                for run, s in zip(residuals.runs, weights.sigma, strict=True)
            )
        linearised = residuals(box.vector(values))
        if linearised is None:
            broken = residuals.broken
            raise EstimationFailed(
                "The existing experiments cannot be integrated with the given parameter values, "
                "so the information in these experiments is unknown. "
                f"{broken.sentence if broken else ''}",
                broken.status if broken else Status.INTEGRATION_BROKE,
            )
        scaled = linearised.jacobian * sizes
        variance = 1.0
        if not (self.problem.sigma_known or self.problem.sigma_estimated):
            variance = self._variance(linearised.residual, scaled)
        return PriorInformation(scaled / np.sqrt(variance), variance)

    def _variance(self, residual: FloatArray, scaled: FloatArray) -> float:
        """Variance of a measurement, from residuals of unknown standard deviation."""
        rank = len(directions(scaled / column_sizes(scaled)).known)
        degrees, squares = len(residual) - rank, float(residual @ residual)
        if degrees <= 0 or squares == 0:
            raise ProblemError(
                "The measurements have no standard deviations, and igpe cannot estimate them from "
                f"{len(residual)} residuals with {rank} unknowns and a sum of squares of "
                f"{squares:g}. Pass sigma=... to the experiments, or pass measure={{'A': 0.01}}."
            )
        return squares / degrees


def noise_of(experiment: Experiment, name: str, variance: float) -> Deviation:
    """Measurement error of a quantity: one deviation, a fraction of the value, or estimated.

    raises  ProblemError for anything else
    """
    if name in experiment.estimated_sigma:
        return EstimatedSigma(experiment.estimated_sigma[name])
    if name in experiment.error_models:
        return experiment.error_models[name]
    if not experiment.sigma_known and not experiment.estimated_sigma:
        relative = experiment.measurements.of(name)[2].max(initial=0.0) or 1.0
        return Noise(float(np.sqrt(variance) * relative))
    _, value, sigma = experiment.measurements.of(name)
    if np.ptp(sigma) <= SAME * sigma.max():
        return Noise(float(np.median(sigma)))
    share = sigma / np.maximum(np.abs(value), np.finfo(float).tiny)
    if np.ptp(share) <= SAME * share.max():
        return Noise(relative=float(np.median(share)))
    raise ProblemError(
        f"The standard deviations of '{name}' are neither constant nor proportional to the "
        f"values; give the measurement error: measure={{'{name}': igpe.Noise(absolute=..., "
        "relative=...)}."
    )


def read_noise(
    measure: Any, template: Experiment, problem: Problem, variance: float, *, counted: bool
) -> dict[str, Deviation]:
    """Name -> how exact it will be measured.

    measure  names, or name -> standard deviation or noise model; None: as the template
    raises   ProblemError for names that are nothing over time, and numbers that are no deviations
    """
    given = template.measured if measure is None else measure
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence) or not len(given):
        raise ProblemError(
            f"`measure` is {given!r}; expected names (measure=['A', 'B']), or names with standard "
            "deviations (measure={'A': 0.01, 'B': igpe.Noise(relative=0.02)})."
        )
    noises: dict[str, Deviation] = {}
    for name in given:
        one: Any = given[name] if isinstance(given, Mapping) else None
        if problem.instance.over_time(name) is None:
            i = problem.instance
            raise ProblemError(
                f"`measure` contains '{name}', which is not a time-dependent quantity. The model "
                f"has {[*i.states, *i.series, *i.expressions]}."
            )
        if isinstance(one, Deviation):
            noises[name] = one
        elif isinstance(given, Mapping):
            if not (is_finite(one) and one > 0):
                raise ProblemError(
                    f"`measure` has {shown(one)} for '{name}'. Give a standard deviation above 0, "
                    "igpe.Noise(...) or igpe.EstimatedSigma(...)."
                )
            noises[name] = Noise(float(one))
        elif name in template.measured and counted:
            noises[name] = noise_of(template, name, variance)
        else:
            raise ProblemError(
                f"No measurement error is given for '{name}'. Pass "
                f"measure={{'{name}': igpe.Noise(absolute=0.01)}}."
            )
    return noises
