"""Bands of one experiment's quantities: linearised, or over bootstrap refits."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.dynamics.integrators.base import Simulation, Trajectory
from igpe.dynamics.shooting.residuals import Run
from igpe.numerics.statistics.covariance import root
from igpe.uncertainty.bootstrapped import UNBIASED, Bootstrapped
from igpe.uncertainty.likelihood import Likelihood


class Band(NamedTuple):
    """Of one quantity, each (n_times,)."""

    name: str
    value: FloatArray
    error: FloatArray
    lower: FloatArray
    upper: FloatArray
    band_lower: FloatArray
    band_upper: FloatArray


class Course(NamedTuple):
    """One experiment's quantities at some times."""

    base: Likelihood
    run: Run
    grid: FloatArray
    names: list[str]

    def linearised(self) -> Iterator[Band]:
        """From sensitivities and covariance."""
        found = self._integrated(self._prepared(sensitivities=True), self.base.x)
        of = root(self.base.at.jacobian, self.base.held)
        known, errors = self.base.problem.sigma_known, self.base.errors
        level = 0.5 + errors.confidence / 2
        quantile = special.ndtri(level) if known else special.stdtrit(errors.degrees, level)
        for name in self.names:
            value, by_own = self._quantity(found, name)
            change = np.zeros((len(self.grid), len(self.base.x)))
            change[:, self.run.index] = by_own
            error = np.sqrt(errors.variance) * of.error(change)
            whole = np.sqrt(error**2 + self._sigma(name) ** 2)
            half, band = quantile * error, quantile * whole
            yield Band(name, value, error, value - half, value + half, value - band, value + band)

    def drawn(self, replications: Bootstrapped) -> Iterator[Band]:
        """Percentiles over refits; measurements get normal errors, the same at every time."""
        simulation = self._prepared(sensitivities=False)
        centre = self._integrated(simulation, self.base.x)
        vectors = replications.parameters[list(self.base.box.names)].to_numpy(dtype=float)
        runs = [simulation.run(x[self.run.index]) for x in vectors]
        usable = [r for r in runs if r.status.usable]
        if len(usable) < 2:  # noqa: PLR2004
            raise ProblemError("Fewer than two replications can be integrated; make more.")
        random = np.random.default_rng(replications.seed)
        errors = random.standard_normal((len(usable), len(self.grid)))
        tail = (1 - self.base.errors.confidence) / 2
        lost = self._lost()
        for name in self.names:
            value = self._quantity(centre, name)[0]
            values = np.array([self._quantity(r, name)[0] for r in usable])
            low, high = np.quantile(values, [tail, 1 - tail], axis=0, method=UNBIASED)
            noisy = values + self._sigma(name) * errors
            below, above = np.quantile(noisy, [tail, 1 - tail], axis=0, method=UNBIASED)
            error = np.std(values, axis=0, ddof=1)
            yield opened(Band(name, value, error, low, high, below, above), lost.get(name))

    def _lost(self) -> dict[str, BoolArray]:
        """Where quantities depend on what is not determined; refits do not show it."""
        if not self.base.errors.undetermined.any():
            return {}
        return {band.name: ~np.isfinite(band.error) for band in self.linearised()}

    def _prepared(self, *, sensitivities: bool) -> Simulation:
        return self.run.integrator.prepare(self.run.ivp, self.grid, sensitivities=sensitivities)

    def _integrated(self, simulation: Simulation, x: FloatArray) -> Trajectory:
        found = simulation.run(x[self.run.index])
        if not found.status.usable:
            raise EstimationFailed(
                f"Experiment {self.run.name} could be integrated only to time {found.reached:g} of "
                f"{self.grid[-1]:g}. {found.reason}",
                found.status,
            )
        return found

    def _quantity(self, found: Trajectory, name: str) -> tuple[FloatArray, FloatArray]:
        """Values (n_times,) and derivatives by the run's unknowns (n_times, n_q)."""
        measured, states = self.run.measurements.names, self.run.ivp.states
        family, place = (
            (("measured", "measured_by_unknown"), measured.index(name))
            if name in measured
            else (("states", "by_unknown"), states.index(name))
        )
        value, by_unknown = (getattr(found, f) for f in family)
        rate = by_unknown[:, place] if by_unknown.size else np.zeros((len(self.grid), 0))
        if np.isnan(rate).any():  # 0 / 0 where no state moves yet; nothing is sure of any other
            resting = (found.by_unknown == 0).all(axis=1)
            rate = np.where(np.isnan(rate) & resting, 0.0, rate)
        return value[:, place], rate

    def _sigma(self, name: str) -> FloatArray:
        """(n_times,) of a measurement: as given, linear in between; NaN if not measured."""
        if name not in self.run.measurements.names:
            return np.full(len(self.grid), np.nan)
        if not self.base.problem.sigma_known:
            return np.full(len(self.grid), np.sqrt(self.base.errors.variance))
        times, _, sigma = self.run.measurements.of(name)
        if len(times) == 0:
            return np.full(len(self.grid), np.nan)
        order = np.argsort(times, kind="stable")
        return np.asarray(np.interp(self.grid, times[order], sigma[order]))


def opened(band: Band, lost: BoolArray | None) -> Band:
    """The band, infinite where lost (n_times,)."""
    if lost is None:
        return band

    def put(values: FloatArray, limit: float) -> FloatArray:
        return np.where(lost & ~np.isnan(values), limit, values)

    return band._replace(
        error=put(band.error, np.inf),
        lower=put(band.lower, -np.inf),
        upper=put(band.upper, np.inf),
        band_lower=put(band.band_lower, -np.inf),
        band_upper=put(band.band_upper, np.inf),
    )


def quantities(run: Run) -> list[str]:
    """Measured quantities and states."""
    return list(dict.fromkeys((*run.measurements.names, *run.ivp.states)))
