"""What a planned experiment tells of the unknowns: sensitivities by standard deviations.

Their derivatives by the design are exact where the second-order variational equations can be
compiled too, or nothing can. Long ones are not compiled (`igpe.integrators.dormand_prince`), and an
interpreter takes seven times as long for them as it takes to integrate the compiled sensitivities
twice for each number to choose (urethane, ten numbers: 44 against 6 ms): there, central differences
of the exact sensitivities.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from igpe.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.integrators.automatic import AutomaticSimulation
from igpe.integrators.base import Integrator, Simulation
from igpe.planning.freedom import Noise

SHIFT = 1e-3  # of a number's range, either way


class Rows(NamedTuple):
    """(n_times, n_measured, n) sensitivities by standard deviations, and slopes (..., n_choices).

    A sample's information is the sum of the products row' row.
    """

    value: FloatArray
    slope: FloatArray


class Told:
    """Rows of one experiment at given parameters, as a function of the chosen numbers."""

    def __init__(
        self,
        ivp: InitialValueProblem,
        times: FloatArray,
        noise: Sequence[Noise],
        integrator: Integrator,
        bounds: tuple[FloatArray, FloatArray],
    ) -> None:
        self.ivp, self.times, self.integrator, self.bounds = ivp, times, integrator, bounds
        self.absolute = np.array([n.absolute for n in noise])
        self.relative = np.array([n.relative for n in noise])
        self._plain = integrator.prepare(ivp, times, sensitivities=False)

    def rows(self, design: FloatArray) -> FloatArray | None:
        """(n_times, n_measured, n) at a design (n_choices,); None where it cannot be integrated."""
        told = self._told(design)
        if told is None:
            return None
        h, s = self._split(told)
        found = s / self._sigma(h)[..., None]
        return found if np.isfinite(found).all() else None

    def rows_and_slopes(self, design: FloatArray) -> Rows | None:
        """The same with derivatives by the design; None where it cannot be integrated."""
        found = self._told_with_slopes(design)
        if found is None:
            return None
        h, s = self._split(found[0])
        dh, ds = self._split(found[1])
        sigma = self._sigma(h)
        dsigma = (self.relative**2 * h / sigma)[..., None] * dh
        value = s / sigma[..., None]
        slope = (ds - value[..., None] * dsigma[..., None, :]) / sigma[..., None, None]
        return Rows(value, slope) if np.isfinite(value).all() and np.isfinite(slope).all() else None

    def _sigma(self, h: FloatArray) -> FloatArray:
        sigma = np.sqrt(self.absolute**2 + (self.relative * h) ** 2)
        return np.where(sigma > 0, sigma, np.inf)  # what is exactly 0 tells nothing

    def _split(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Measured (n_times, n_measured, ...) and sensitivities (n_times, n_measured, n, ...)."""
        n_t, m = len(told), len(self.absolute)
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
