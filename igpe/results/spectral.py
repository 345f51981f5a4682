"""Pure spectra from a fit, with errors, and residuals of the measured spectra."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.markup import listed
from igpe.numerics.lack_of_fit import exact_probability


@dataclass(frozen=True)
class SpectralFit:
    """Fit of the spectra of one or several experiments that share the pure spectra of their
    species.

    experiments   names
    species       names of the species, followed by "constant i" for unwanted constant contributions
    wavelengths   (m,)
    values        (n, m) pure spectra, absorbance per unit of the species' amount
    errors        (n, m) standard errors of the pure spectra, including the effect of the estimated
                  parameters; NaN where a spectrum is known or fixed at 0, infinite where the
                  amounts do not determine it
    times         (N,) times of all experiments, one experiment after the other
    owner         (N,) number of the experiment in `experiments`
    residuals     (N, m) measured minus fitted values, in the unit of the measurements
    unwanted      (N, v) amounts of unwanted contributions that vary in time
    lack_of_fit   percent: 100 |residuals| / |measured|
    noise         standard deviation of the instrument, estimated from the residuals outside the
                  space of the pure spectra; in units of the standard deviations used in the fit
    deviations    (n,) standard deviation of the species' amounts about the model, beyond what the
                  instrument explains
    probability   probability of residuals at least as large within the space of the pure spectra if
                  the noise of the instrument is the only error
    is_scattered  whether `probability` is so small that the standard errors were computed from the
                  scatter
    rank          number of contributions above the noise
    lost          names of spectra that are not determined because the amounts are linearly
                  dependent
    cost          contribution of the spectra to the objective
    eliminated    number of eliminated linear unknowns that are determined
    squares       sum of squared residuals of each experiment: in units of the given sigma, or
                  otherwise in the unit of the measurements
    """

    experiments: tuple[str, ...]
    species: tuple[str, ...]
    wavelengths: FloatArray
    values: FloatArray
    errors: FloatArray
    times: FloatArray
    owner: FloatArray
    residuals: FloatArray = field(repr=False)
    unwanted: FloatArray = field(repr=False)
    lack_of_fit: float
    noise: float
    deviations: FloatArray
    probability: float
    is_scattered: bool
    rank: int
    lost: tuple[str, ...] = ()
    cost: float = float("nan")
    eliminated: int = 0
    squares: tuple[float, ...] = ()

    @property
    def measured(self) -> float:
        """Square root of the sum of squares of the measured values."""
        return float(np.linalg.norm(self.residuals)) / max(self.lack_of_fit / 100, 1e-300)

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood, maximised over the size of each experiment's errors (relative to a given
        sigma)."""
        size = np.bincount(self.owner.astype(int)) * len(self.wavelengths)
        variance = np.maximum(self.squares, 1e-300) / size
        return float(-0.5 * (size * (np.log(2 * np.pi * variance) + 1)).sum())

    def to_frame(self) -> pd.DataFrame:
        """Pure spectra by wavelength: columns (species, value) and (species, standard_error)."""
        names = pd.MultiIndex.from_product([self.species, ["value", "standard_error"]])
        both = np.stack([self.values, self.errors], axis=1).reshape(-1, len(self.wavelengths))
        index = pd.Index(self.wavelengths, name="wavelength")
        return pd.DataFrame(both.T, index=index, columns=names)

    def variances(self) -> pd.Series:
        """Standard deviations of the instrument (relative to sigma) and of each species."""
        names = ["instrument", *self.species[: len(self.deviations)]]
        return pd.Series([self.noise, *self.deviations], index=names, name="standard_deviation")

    def residual_frame(self, experiment: str | None = None) -> pd.DataFrame:
        """Residuals of one experiment (by default the first): a table of times by wavelengths."""
        number = 0 if experiment is None else self.experiments.index(experiment)
        rows = self.owner == number
        index = pd.Index(self.times[rows], name="time")
        columns = pd.Index(self.wavelengths, name="wavelength")
        return pd.DataFrame(self.residuals[rows], index=index, columns=columns)

    def __str__(self) -> str:
        lines = [
            f"Spectra of {', '.join(self.species)} at {len(self.wavelengths)} wavelengths and "
            f"{len(self.times)} times of {', '.join(self.experiments)}: lack of fit "
            f"{self.lack_of_fit:.3g} %, {self.rank} contributions above the noise."
        ]
        if self.lost:
            lines.append(
                f"The amounts of {listed(self.lost)} are linearly dependent at all times, so only "
                "combinations of their pure spectra are determined. A known spectrum (pure={...}) "
                "or an experiment with other start values would determine the spectra themselves."
            )
        if self.is_scattered:
            each = zip(self.species, self.deviations, strict=False)
            lines.append(
                "Residuals within the space of the pure spectra are larger than the "
                f"instrument noise alone explains ({exact_probability(self.probability, 1)}). "
                "Either the amounts scatter around the model with the standard deviations "
                f"{', '.join(f'{n} {d:.2g}' for n, d in each)}, or the errors are correlated. "
                "The standard errors are computed from these residuals."
            )
        return "\n".join(lines)
