"""What is known before: earlier measurements, priors, and how exact measurements are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.arrays import FloatArray
from igpe.dynamic.residuals import Residuals
from igpe.equations.system import read_systems
from igpe.errors import EstimationFailed, ProblemError
from igpe.experiment import Experiment, Start
from igpe.inputs import InputValue
from igpe.integrators.base import Integrator
from igpe.loss import Normal
from igpe.model import Builder, build
from igpe.parameter_bounds import Bounds
from igpe.planning.freedom import Noise
from igpe.problem import Problem
from igpe.status import Status

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
    """Information (n, n) of measurements and priors by relative unknowns.

    variance  of a residual of weight 1: of a measurement if no standard deviations are given
    """

    information: FloatArray
    variance: float


class Existing:
    """The experiments of a problem, as a function of its unknowns.

    counted  whether their measurements count; priors always do
    """

    def __init__(self, problem: Problem, integrator: Integrator, *, counted: bool) -> None:
        self.problem, self.counted = problem, counted
        self.residuals = Residuals(problem, read_systems(problem), integrator) if counted else None

    def at(self, values: Mapping[str, float], sizes: FloatArray) -> Known:
        """What they tell where the unknowns have these values.

        sizes   (n,) to which unknowns are relative
        raises  EstimationFailed if an existing experiment cannot be integrated there
        """
        box = self.problem.box
        if self.residuals is None:
            errors = np.array([self._deviation(n) for n in box.names])
            return Known(np.diag((sizes / errors) ** 2), 1.0)
        found = self.residuals(box.vector(values))
        if found is None:
            broken = self.residuals.broken
            raise EstimationFailed(
                "The existing experiments cannot be integrated at the parameters given, so nothing "
                f"is known of what they tell. {broken.sentence if broken else ''}",
                broken.status if broken else Status.INTEGRATION_BROKE,
            )
        degrees = len(found.residual) - len(box)
        variance = 1.0
        if not self.problem.sigma_known:
            if degrees <= 0:
                raise ProblemError(
                    f"The {len(found.residual)} measurements have no standard deviations and leave "
                    f"nothing to tell them by ({len(box)} unknowns); give the experiments sigma=..."
                )
            variance = float(found.residual @ found.residual) / degrees
        scaled = found.jacobian * sizes
        return Known(scaled.T @ scaled / variance, variance)

    def _deviation(self, name: str) -> float:
        prior = self.problem.priors.get(name)
        return np.inf if prior is None else prior.deviation


def noise_of(experiment: Experiment, name: str, variance: float) -> Noise:
    """How exact a quantity was measured: one deviation, or one share of the value.

    raises  ProblemError if it is neither
    """
    if not experiment.sigma_known:
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
) -> dict[str, Noise]:
    """Name -> how exact it will be measured.

    measure  names, or name -> standard deviation or `Noise`; None: as the template
    raises   ProblemError for names that are nothing over time, and numbers that are no deviations
    """
    given = template.measured if measure is None else measure
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence) or not len(given):
        raise ProblemError(
            f"measure is {given!r}; wanted names, measure=['A', 'B'], or with their standard "
            "deviations, measure={'A': 0.01, 'B': igpe.Noise(relative=0.02)}."
        )
    found = {}
    for name in given:
        if problem.instance.over_time(name) is None:
            i = problem.instance
            raise ProblemError(
                f"measure names '{name}', which is nothing that varies with time in the model; it "
                f"has {[*i.states, *i.series, *i.expressions]}."
            )
        if isinstance(given, Mapping):
            one = given[name]
            found[name] = one if isinstance(one, Noise) else Noise(one)
        elif name in template.measured and counted:
            found[name] = noise_of(template, name, variance)
        else:
            raise ProblemError(
                f"It is not known how exact '{name}' can be measured; say so: "
                f"measure={{'{name}': igpe.Noise(absolute=..., relative=...)}}."
            )
    return found
