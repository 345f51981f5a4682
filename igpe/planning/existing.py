"""What is known before: earlier measurements, priors, and how exact measurements are."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.box import FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.settling import Weights
from igpe.equations.reading.read import read_systems
from igpe.numerics.statistics.covariance import directions
from igpe.planning.freedom import Deviation, Noise, read_deviation
from igpe.problem.experiment import Experiment, Start
from igpe.problem.inputs import InputValue
from igpe.problem.loss import Normal
from igpe.problem.model import Builder, build
from igpe.problem.noise.sigma import Estimated
from igpe.problem.parameter_bounds import Bounds
from igpe.problem.problem import Problem

SAME = 0.01  # standard deviations that differ by less than this share are the same


@dataclass(frozen=True)
class Unmeasured:
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
    priors: Mapping[str, Normal] = field(default_factory=dict)

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


class Known(NamedTuple):
    """What measurements and priors determine of relative unknowns.

    rows      (m, n) sensitivities by standard deviations; the information is rows' rows
    variance  of a residual of weight 1: of a measurement if no standard deviations are given
    """

    rows: FloatArray
    variance: float


class Existing:
    """The experiments of a problem, as a function of its unknowns.

    counted  whether their measurements count; priors always do
    """

    def __init__(self, problem: Problem, integrator: Integrator, *, counted: bool) -> None:
        self.problem, self.counted = problem, counted
        systems = read_systems(problem) if counted else ()
        self.residuals = Residuals(problem, systems, integrator) if counted else None
        follows = counted and problem.sigma_follows_model
        self.weights = Weights(problem, problem, systems, integrator) if follows else None

    def at(self, values: Mapping[str, float], sizes: FloatArray) -> Known:
        """What they tell where the unknowns have these values.

        sizes   (n,) to which unknowns are relative
        raises  EstimationFailed if an existing experiment cannot be integrated there
        """
        box = self.problem.box
        if self.residuals is None:
            errors = np.array([self._deviation(n) for n in box.names])
            rows = np.diag(sizes / errors)
            return Known(rows[np.isfinite(errors)], 1.0)
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
        return Known(scaled / np.sqrt(variance), variance)

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
        return Estimated(experiment.estimated_sigma[name])
    if name in experiment.error_models:
        return read_deviation(name, experiment.error_models[name])
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

    measure  names, or name -> standard deviation or error model; None: as the template
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
