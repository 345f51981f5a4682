"""What a planned experiment tells of the unknowns: sensitivities by standard deviations.

A measurement of h with a standard deviation s that the model computes has the information
h'h'/s^2 + 2 s's'/s^2 (outer products), as in `shooting/likelihood_residuals`: two rows.

Their derivatives by the design are exact where the second-order variational equations can be
compiled too, or nothing can. Long ones are not compiled (`DormandPrince`), and an
interpreter takes seven times as long for them as it takes to integrate the compiled sensitivities
twice for each number to choose (urethane, ten numbers: 44 against 6 ms): there, central differences
of the exact sensitivities.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.automatic import AutomaticSimulation
from igpe.dynamics.integrators.base import Integrator, Simulation
from igpe.equations.initial_value import InitialValueProblem
from igpe.planning.freedom import Deviation, Noise
from igpe.problem.noise.sigma import Estimated

SHIFT = 1e-3  # of a number's range, either way
ROOT = float(np.sqrt(2.0))


class Rows(NamedTuple):
    """(n_times, n_measured, n_rows, n) rows of samples, and their slopes (..., n_choices).

    A sample's information is the sum of the products row' row. The first row is the sensitivity by
    the standard deviation. There is a second one if a standard deviation is estimated.
    """

    value: FloatArray
    slope: FloatArray


class Told:
    """Rows of one experiment at given parameters, as a function of the chosen numbers."""

    def __init__(
        self,
        ivp: InitialValueProblem,
        times: FloatArray,
        noise: Sequence[Deviation],
        integrator: Integrator,
        bounds: tuple[FloatArray, FloatArray],
    ) -> None:
        self.ivp, self.integrator, self.bounds = ivp, integrator, bounds
        self.times, self._replicates = np.unique(times, return_inverse=True)
        known = [n if isinstance(n, Noise) else Noise(1.0) for n in noise]
        self.absolute = np.array([n.absolute for n in known])
        self.relative = np.array([n.relative for n in known])
        names = [n.name for n in noise if isinstance(n, Estimated)]
        places = {n: len(noise) + i for i, n in enumerate(dict.fromkeys(names))}
        self.estimated = np.array([isinstance(n, Estimated) for n in noise])
        self.deviation = [
            places[n.name] if isinstance(n, Estimated) else i for i, n in enumerate(noise)
        ]
        self.outputs = len(noise) + len(places)
        self._plain = integrator.prepare(ivp, self.times, sensitivities=False)

    def rows(self, design: FloatArray) -> FloatArray | None:
        """(n_times, n_measured, n_rows, n) at a design (n_choices,).

        None where it cannot be integrated, or an estimated deviation is not positive
        """
        told = self._told(design)
        if told is None:
            return None
        h, s = self._split(told)
        sigma = self._sigma(h)
        found = [s[:, : sigma.shape[1]]]
        if self.estimated.any():
            found.append(np.where(self.estimated[:, None], ROOT * s[:, self.deviation], 0.0))
        rows = np.stack(found, axis=2) / sigma[..., None, None]
        return rows[self._replicates] if np.isfinite(rows).all() else None

    def rows_and_slopes(self, design: FloatArray) -> Rows | None:
        """The same with derivatives by the design; None where it cannot be integrated."""
        found = self._told_with_slopes(design)
        if found is None:
            return None
        (h, s), (dh, ds) = self._split(found[0]), self._split(found[1])
        sigma, m = self._sigma(h), len(self.absolute)
        own = (self.relative**2 * h[:, :m] / sigma)[..., None] * dh[:, :m]
        dsigma = np.where(self.estimated[:, None], dh[:, self.deviation], own)[:, :, None, None]
        values, slopes = [s[:, :m]], [ds[:, :m]]
        if self.estimated.any():
            mine = self.estimated[:, None]
            values.append(np.where(mine, ROOT * s[:, self.deviation], 0.0))
            slopes.append(np.where(mine[..., None], ROOT * ds[:, self.deviation], 0.0))
        value = np.stack(values, axis=2) / sigma[..., None, None]
        raw = np.stack(slopes, axis=2)
        slope = (raw - value[..., None] * dsigma) / sigma[..., None, None, None]
        if not (np.isfinite(value).all() and np.isfinite(slope).all()):
            return None
        return Rows(value[self._replicates], slope[self._replicates])

    def _sigma(self, h: FloatArray) -> FloatArray:
        """(n_times, n_measured) standard deviations; NaN where an estimated one is not positive."""
        sigma = np.hypot(self.absolute, self.relative * h[:, : len(self.absolute)])
        sigma = np.where(sigma > 0, sigma, np.inf)  # what is exactly 0 tells nothing
        model = h[:, self.deviation]
        return np.where(self.estimated, np.where(model > 0, model, np.nan), sigma)

    def _split(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Outputs (n_times, n_outputs, ...) and sensitivities (n_times, n_outputs, n, ...).

        Outputs are the measured quantities, then estimated standard deviations.
        """
        n_t, m = len(told), self.outputs
        rest = told[:, m:].reshape(n_t, -1, m, *told.shape[2:])
        return told[:, :m], np.moveaxis(rest, 1, 2)

    def _told(self, design: FloatArray) -> FloatArray | None:
        run = self._plain.run(design)
        return run.measured if run.status.usable else None

    def _told_with_slopes(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        exact = self._exact
        if exact is None:
            return self._differences(design)
        run = exact.run(design)
        return (run.measured, run.measured_by_unknown) if run.status.usable else None

    @cached_property
    def _exact(self) -> Simulation | None:
        made = self.integrator.prepare(self.ivp, self.times, sensitivities=True)
        compiled = isinstance(self._plain, AutomaticSimulation)
        return None if compiled and not isinstance(made, AutomaticSimulation) else made

    def _differences(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        lower, upper = self.bounds
        told = self._told(design)
        slopes = []
        for i, shift in enumerate(SHIFT * (upper - lower)):
            low, high = design.copy(), design.copy()
            low[i], high[i] = max(design[i] - shift, lower[i]), min(design[i] + shift, upper[i])
            ends = self._told(low), self._told(high)
            if told is None or ends[0] is None or ends[1] is None:
                return None
            slopes.append((ends[1] - ends[0]) / (high[i] - low[i]))
        return None if told is None else (told, np.stack(slopes, axis=-1))
