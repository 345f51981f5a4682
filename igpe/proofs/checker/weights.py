"""Standard deviations of the problem that a certificate is about.

Where the measurements have no standard deviations of their own, those of the certificate are
premises of what it says. Those of noise models must be what the models give at the parameters that
the certificate names.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.problem.experiment import Experiment
from igpe.problem.noise.sigma import deviations
from igpe.problem.problem import Problem
from igpe.proofs.checker.confirm import residuals_at
from igpe.proofs.checker.experiments import Replay

SCALED = 1e-6  # mean logarithm of relative standard deviations, up to rounding
SAME = 1e-4  # relative: the prover computes predictions with an ordinary integrator


@dataclass(frozen=True)
class StatedWeights:
    """Standard deviations in a certificate.

    relative  quantity -> relative standard deviation, where the problem does not have any
    sigma     for each experiment (m,), where noise models give them at the unknowns `at` (n,)
    """

    relative: Mapping[str, float] = field(default_factory=dict)
    sigma: tuple[tuple[float, ...], ...] = ()
    at: tuple[float, ...] = ()

    def premise(self, unknowns: Sequence[str], problem: Problem, off: float) -> str:
        """A sentence on them, with a space before it; empty if the problem has its own.

        off  largest relative difference from those of the problem's noise models
        """
        if self.relative:
            names, sizes = ", ".join(self.relative), self.relative.values()
            ratio = " : ".join(f"{size / min(sizes):.4g}" for size in sizes)
            return f" The standard deviations of {names} have the ratio {ratio}."
        if not problem.sigma_follows:
            return ""
        at = ", ".join(f"{n} = {v:.6g}" for n, v in zip(unknowns, self.at, strict=True))
        return (
            " The standard deviations are those in the certificate, which differ from those of the "
            f"noise model for {at} by a relative {_upward(off):g} at most."
        )


def _upward(size: float) -> float:
    """The next power of ten; residuals at a point are known to 1e-9."""
    return float(10.0 ** math.ceil(math.log10(max(size, 1e-9))))


def read_weights(data: Mapping[str, Any], unknowns: Sequence[str], finite: Any) -> StatedWeights:
    """Read those of a certificate.

    finite  (value) -> the same as a finite number; raises ValueError if it is none
    """
    relative = {str(n): finite(v) for n, v in data.get("relative_sigma", {}).items()}
    sigma = tuple(tuple(map(finite, own)) for own in data.get("sigma", ()))
    if any(value <= 0 for own in sigma for value in own):
        raise ValueError("a standard deviation is not positive")
    at = tuple(finite(data["sigma_at"][n]) for n in unknowns) if sigma else ()
    return StatedWeights(relative, sigma, at)


def weighted(weights: StatedWeights, problem: Problem) -> Problem:
    """The problem with a certificate's standard deviations, where they depend on the fit.

    raises  ProblemError if they are not what this problem needs
    """
    names = {e.measured[k] for e in problem.experiments for k in set(e.measurements.column)}
    wanted, given = names if problem.weights_unknown else set(), weights.relative
    if given.keys() != wanted or min(given.values(), default=1.0) <= 0:
        raise ProblemError(
            f"The certificate has the relative standard deviations {dict(given)}, but the "
            f"problem needs positive values for the quantities {sorted(wanted)}. Give the problem "
            "that was certified."
        )
    if wanted:
        sizes = [
            np.array([given.get(n, 1.0) for n in e.measured])[e.measurements.column]
            for e in problem.experiments
        ]
        if abs(mean := float(np.mean(np.log(np.concatenate(sizes))))) > SCALED:
            raise ProblemError(
                f"The certificate has the relative standard deviations {dict(given)}. In igpe, the "
                "mean of their logarithms over all measurements is 0, but here it is "
                f"{mean:.3g}, so the certificate's sums of squares are not igpe's. Give the "
                "certificate as igpe.certify wrote it."
            )
        return problem.weighted(sizes, relative=True)
    if not problem.sigma_follows:
        return problem
    sizes = [np.array(own, dtype=float) for own in weights.sigma]
    if [len(own) for own in sizes] != [len(e.measurements.value) for e in problem.experiments]:
        raise ProblemError(
            "The standard deviations of the problem depend on the model's predictions, but the "
            "certificate does not contain one for each measurement. Give the problem that was "
            "certified."
        )
    return problem.weighted([
        np.where(_follows(e), own, e.measurements.sigma)
        for e, own in zip(problem.experiments, sizes, strict=True)
    ])


def _follows(experiment: Experiment) -> BoolArray:
    """(m,) whether each standard deviation comes from a noise model; others are the problem's."""
    m = experiment.measurements
    return np.isin(m.column, [m.names.index(name) for name in experiment.error_models])


def difference(weights: StatedWeights, problem: Problem, given: Sequence[Replay]) -> float:
    """Largest relative difference from the standard deviations of the problem's noise models.

    given  the experiments, with the certificate's standard deviations
    """
    worst = 0.0
    if not weights.sigma:
        return worst
    for experiment, replay in zip(problem.experiments, given, strict=True):
        m, models = experiment.measurements, experiment.error_models
        if not models:
            continue
        own = {m.names.index(name): model for name, model in models.items()}
        rows: FloatArray = residuals_at(replay, np.array(weights.at))
        column, value, sigma = replay.program.column, replay.program.value, replay.program.sigma
        formula = deviations(own, column, value, value + sigma * rows, sigma)
        worst = max(worst, float(np.max(np.nan_to_num(np.abs(formula / sigma - 1), nan=np.inf))))
    return worst


def fault_of_sigma(weights: StatedWeights, problem: Problem, off: float) -> str:
    """Why the standard deviations are not those of the problem's noise models; empty if they are.

    off  see `difference`
    """
    box = problem.box
    if not problem.sigma_follows or weights.relative:
        return ""
    if not ((box.lower <= weights.at) & (weights.at <= box.upper)).all():
        return "the parameter values of the standard deviations lie outside the box"
    if off <= SAME:
        return ""
    return (
        "the standard deviations are not those of the noise model at the parameter values that the "
        f"certificate gives for them (largest relative difference: {off:.3g})"
    )
