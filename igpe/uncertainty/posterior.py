"""The posterior of a problem's unknowns: the likelihood of the fit, with what is known beforehand.

    log p = -1/2 sum of squares              sigma known
    log p = -m/2 log(sum of squares)         sigma unknown: one scale for all, integrated out under
                                             the prior 1 / sigma (Box & Tiao 1973)
            - 1/2 sum ((q - mean) / deviation)^2 over the normal priors

inside the bounds, which are uniform priors, and zero outside.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import stopped
from igpe.dynamics.integrators.base import Simulation
from igpe.numerics.statistics.covariance import root
from igpe.uncertainty.likelihood import Likelihood, size_of

HALVINGS = 40  # of the distance from the estimate, until there is a density


class Posterior:
    """Log density at unknowns x (n,), up to a constant; -inf where it is zero or not computable."""

    def __init__(self, base: Likelihood) -> None:
        self.base = base
        self._simulations: list[Simulation] = [
            run.integrator.prepare(run.ivp, run.measurements.times, sensitivities=False)
            for run in base.residuals.all_of.runs
        ]
        names, priors = base.box.names, base.problem.priors
        self._priors = [(names.index(n), p) for n, p in priors.items() if n in names]

    def __call__(self, x: FloatArray) -> float:
        box = self.base.box
        if stopped():  # what is drawn now is not used
            return -np.inf
        if ((x < box.lower) | (x > box.upper)).any():
            return -np.inf
        squares, count = 0.0, 0
        for run, simulation in zip(self.base.residuals.all_of.runs, self._simulations, strict=True):
            found, m = simulation.run(x[run.index]), run.measurements
            if not found.status.usable:
                return -np.inf
            residual = (found.measured[m.row, m.column] - m.value) / m.sigma
            squares, count = squares + float(residual @ residual), count + len(residual)
        if not np.isfinite(squares):
            return -np.inf
        fit = -squares / 2 if self.base.problem.sigma_known else -count / 2 * np.log(squares)
        told = sum(((x[i] - p.mean) / p.deviation) ** 2 for i, p in self._priors)
        return float(fit - told / 2)

    def walkers(self, count: int, random: np.random.Generator) -> FloatArray:
        """(count, n) starts, spread as the linearised errors say; anywhere where these do not.

        Those without a density come nearer to the estimate until they have one.
        """
        x = self.base.x
        found = []
        for away in self._spread(count, random):
            nearer = (self._inside(x + away * 0.5**k) for k in range(HALVINGS))
            found.append(next((p for p in nearer if np.isfinite(self(p))), x))
        return np.array(found)

    def _spread(self, count: int, random: np.random.Generator) -> FloatArray:
        """(count, n) distances from the estimate."""
        base, box = self.base, self.base.box
        of, variance = root(base.at.jacobian, base.held), base.errors.variance
        scale = np.sqrt(variance) if np.isfinite(variance) else 1.0
        away = scale * random.standard_normal((count, of.root.shape[1])) @ of.root.T
        sizes = np.array([size_of(base.problem, base.x, i) for i in range(len(base.x))])
        bounded = np.isfinite(box.upper - box.lower)
        low = np.where(bounded, box.lower - base.x, -sizes)
        high = np.where(bounded, box.upper - base.x, sizes)
        anywhere = random.uniform(low, high, away.shape)
        near = sizes * random.uniform(-1.0, 1.0, away.shape)
        return np.where(base.errors.undetermined, anywhere, np.where(base.held, near, away))

    def _inside(self, x: FloatArray) -> FloatArray:
        """Reflected at the bounds: walkers must not lie in one plane."""
        box = self.base.box
        x = np.where(x < box.lower, 2 * box.lower - x, x)
        x = np.where(x > box.upper, 2 * box.upper - x, x)
        return box.clip(x)
