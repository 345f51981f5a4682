"""What may be chosen of an experiment: numbers and profiles within bounds, times of sampling.

What is known before: earlier measurements, priors, and how exact measurements are.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import is_count, is_finite, shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import Weights
from igpe.numerics.statistics.covariance import directions
from igpe.problem.experiment import Experiment, Start
from igpe.problem.inputs import InputValue
from igpe.problem.losses import NormalPrior
from igpe.problem.model import Builder, build
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.noise.noise import Noise
from igpe.problem.noise.sigma import Deviation, NoiseModel
from igpe.problem.problem import Problem
from igpe.problem.problem_checks import Bounds


@dataclass(frozen=True)
class Between:
    """A number to choose: a start value, a constant input, an operating parameter of the model.

    lower, upper  bounds, in the unit of the model
    raises        ProblemError unless they are finite and lower < upper
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(frozen=True)
class Levels:
    """An input to choose that jumps at `breaks` and is constant between them.

    breaks        increasing times at which a level begins, the first where the experiment does
    lower, upper  bounds of the levels
    raises        ProblemError for crossed bounds and times that do not increase
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_bounds(self)
        _check_breaks(self, 1)


@dataclass(frozen=True)
class Ramps:
    """An input to choose that runs linearly between its values at `breaks`.

    breaks        increasing times, two or more
    lower, upper  bounds of the values
    steepest      largest slope, up or down, in the input's unit by time's; None: any
    raises        ProblemError for crossed bounds, times that do not increase, no positive slope
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    steepest: float | None = None

    def __post_init__(self) -> None:
        _check_bounds(self)
        _check_breaks(self, 2)
        if self.steepest is not None and not (is_finite(self.steepest) and self.steepest > 0):
            raise ProblemError(
                f"Ramps has steepest={shown(self.steepest)}; give a positive slope, or leave it "
                "out where any is possible."
            )


DesignVariable: TypeAlias = Between | Levels | Ramps


@dataclass(frozen=True)
class Sampling:
    """When samples may be taken, and how many.

    candidates  times at which one may be taken; a time that is listed twice may be sampled twice
    at_most     samples in each experiment; None: at all candidates
    spacing     least time between two samples
    quantities  so many of the measured quantities at most, the same ones in all planned
                experiments; None: all
    raises      ProblemError for times that are no finite numbers, or counts that are no counts
    """

    candidates: Sequence[float] | FloatArray
    at_most: int | None = None
    spacing: float = 0.0
    quantities: int | None = None

    def __post_init__(self) -> None:
        try:
            times = np.sort(np.asarray(self.candidates, dtype=float), axis=None)
        except (TypeError, ValueError):
            times = np.zeros(0)
        if times.size == 0 or not np.isfinite(times).all():
            raise ProblemError(
                f"The candidate times are {shown(self.candidates)}; give finite numbers, for "
                "example Sampling(np.linspace(0.5, 8, 16), at_most=6)."
            )
        object.__setattr__(self, "candidates", tuple(float(t) for t in times))
        for name in ("at_most", "quantities"):
            given = getattr(self, name)
            if given is not None and not (is_count(given) and given > 0):
                raise ProblemError(
                    f"Sampling has {name}={shown(given)}; give a whole number above 0, or leave "
                    "it out for all."
                )
        if not (is_finite(self.spacing) and self.spacing >= 0):
            raise ProblemError(
                f"Sampling has spacing={shown(self.spacing)}; give the least time between two "
                "samples, 0 or more."
            )

    @property
    def times(self) -> FloatArray:
        """(n,) the candidates in order; replicates stand side by side."""
        return np.array(self.candidates, dtype=float)


def read_deviation(name: str, given: Any) -> Deviation:
    """What a user gives for one measured quantity.

    raises  ProblemError if it is neither a positive number nor one of igpe's noise models
    """
    if isinstance(given, NoiseModel | EstimatedSigma):
        return given
    if not (is_finite(given) and given > 0):
        raise ProblemError(
            f"measure has {shown(given)} for '{name}'. Give a standard deviation above 0, "
            "igpe.Noise(...) or igpe.EstimatedSigma(...)."
        )
    return Noise(float(given))


def _check_bounds(given: Any) -> None:
    if not (is_finite(given.lower, given.upper) and given.lower < given.upper):
        raise ProblemError(
            f"{type(given).__name__} has bounds [{shown(given.lower)}, {shown(given.upper)}]; give "
            "finite bounds with lower < upper, or fix the value with conditions={...}."
        )


def _check_breaks(given: Any, fewest: int) -> None:
    breaks = list(given.breaks) if isinstance(given.breaks, Iterable) else [given.breaks]
    if len(breaks) < fewest or not (is_finite(*breaks) and (np.diff(breaks) > 0).all()):
        raise ProblemError(
            f"{type(given).__name__} has breaks {shown(given.breaks)}; give {fewest} or more "
            "finite times that increase."
        )
    object.__setattr__(given, "breaks", tuple(float(b) for b in breaks))


SAME = 0.01  # standard deviations that differ by less than this share are the same


@dataclass(frozen=True)
class ProblemWithoutData:
    """A model and conditions without any measurements: what the first design starts from.

    model, parameters, local, priors  as for `Problem`
    measured    names of the quantities that can be measured
    until       when an experiment ends at the latest;  start_time: when it starts
    start, inputs  as for `Experiment`; what is chosen by the design may be left out
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
        """A problem whose one experiment holds the place of the measurements; zeros.

        otherwise  start values and inputs where nothing else is said
        """
        states = build(self.model, [self.start_time, self.until]).states
        start = {n: v for n, v in otherwise.items() if n in states}
        inputs = {n: v for n, v in otherwise.items() if n not in states}
        table = pd.DataFrame({"time": [self.until]} | {n: [0.0] for n in self.measured})
        place = Experiment(
            table,
            start={**start, **self.start},
            start_time=self.start_time,
            inputs={**inputs, **self.inputs},
            sigma=1.0,
        )
        return Problem(
            self.model,
            parameters=self.parameters,
            experiments=place,
            local=self.local,
            priors=self.priors,
        )


class PriorInformation(NamedTuple):
    """What measurements and priors determine of relative unknowns.

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
        follows = counted and problem.sigma_follows_model
        self.weights = Weights(problem, problem, integrator) if follows else None

    def at(self, values: Mapping[str, float], sizes: FloatArray) -> PriorInformation:
        """What they tell where the unknowns have these values.

        sizes   (n,) to which unknowns are relative
        raises  EstimationFailed if an existing experiment cannot be integrated there
        """
        box = self.problem.box
        if self.residuals is None:
            errors = np.array([self._deviation(n) for n in box.names])
            rows = np.diag(sizes / errors)
            return PriorInformation(rows[np.isfinite(errors)], 1.0)
        residuals = self._weighted(self.residuals, values)
        found = residuals(box.vector(values))
        if found is None:
            broken = residuals.broken
            raise EstimationFailed(
                "The existing experiments cannot be integrated at the parameters given, so their "
                f"information is unknown. {broken.sentence if broken else ''}",
                broken.status if broken else Status.INTEGRATION_BROKE,
            )
        scaled = found.jacobian * sizes
        variance = 1.0
        if not (self.problem.sigma_known or self.problem.sigma_estimated):
            variance = self._variance(found.residual, scaled)
        return PriorInformation(scaled / np.sqrt(variance), variance)

    def _weighted(self, plain: Residuals, values: Mapping[str, float]) -> Residuals:
        """With the standard deviations that the model has at these values, where they follow it."""
        sigma = None if self.weights is None else self.weights.at(values)
        if sigma is None:  # `plain` breaks down as well, and says why
            return plain
        weighted = copy(plain)
        weighted.runs = tuple(
            replace(run, measurements=replace(run.measurements, sigma=s))
            for run, s in zip(plain.runs, sigma, strict=True)
        )
        return weighted

    def _variance(self, residual: FloatArray, scaled: FloatArray) -> float:
        """Of a measurement, from residuals whose standard deviations are unknown."""
        norm = np.linalg.norm(scaled, axis=0)
        rank = len(directions(scaled / np.where(norm > 0, norm, 1.0)).known)
        degrees, squares = len(residual) - rank, float(residual @ residual)
        if degrees <= 0 or squares == 0:
            raise ProblemError(
                f"The measurements have no standard deviations, and {len(residual)} residuals "
                f"with {rank} unknowns and a sum of squares of {squares:g} do not give any. Give "
                "the experiments sigma=..., or measure={'A': 0.01}."
            )
        return squares / degrees

    def _deviation(self, name: str) -> float:
        prior = self.problem.priors.get(name)
        return np.inf if prior is None else prior.deviation


def noise_of(experiment: Experiment, name: str, variance: float) -> Deviation:
    """How exact a quantity was measured: one deviation, a share of the value, or estimated.

    raises  ProblemError if it is none of these
    """
    if name in experiment.estimated_sigma:
        return EstimatedSigma(experiment.estimated_sigma[name])
    if name in experiment.error_models:
        return experiment.error_models[name]
    if not experiment.sigma_known and not experiment.estimated_sigma:
        return Noise(float(np.sqrt(variance)))
    _, value, sigma = experiment.measurements.of(name)
    if np.ptp(sigma) <= SAME * sigma.max():
        return Noise(float(np.median(sigma)))
    share = sigma / np.maximum(np.abs(value), np.finfo(float).tiny)
    if np.ptp(share) <= SAME * share.max():
        return Noise(relative=float(np.median(share)))
    raise ProblemError(
        f"The standard deviations of '{name}' are neither all the same nor one share of the "
        "values; say how exact it will be measured: "
        f"measure={{'{name}': igpe.Noise(absolute=..., relative=...)}}."
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
            f"measure is {given!r}; wanted names, measure=['A', 'B'], or with their standard "
            "deviations, measure={'A': 0.01, 'B': igpe.Noise(relative=0.02)}."
        )
    found: dict[str, Deviation] = {}
    for name in given:
        if problem.instance.over_time(name) is None:
            i = problem.instance
            raise ProblemError(
                f"measure names '{name}', which is nothing that varies with time in the model; it "
                f"has {[*i.states, *i.series, *i.expressions]}."
            )
        if isinstance(given, Mapping):
            found[name] = read_deviation(name, given[name])
        elif name in template.measured and counted:
            found[name] = noise_of(template, name, variance)
        else:
            raise ProblemError(
                f"No measurement error is given for '{name}'. Pass "
                f"measure={{'{name}': igpe.Noise(absolute=0.01)}}."
            )
    return found
