"""Spectra over time as a measurement of an experiment: times by wavelengths.

Beer and Lambert: the absorbance at time t and wavelength w is the sum over species of c(t) s(w).
The species' spectra s are unknown (or some of them known), and are eliminated by `igpe.estimate`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import is_finite, require, require_mapping, shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import DataError
from igpe.core.markup import Suggesting, bracketed, closest, counted
from igpe.problem.noise.sigma import contributions, edge, noise_level
from igpe.problem.tables import Data, read_table

FLOOR = 1e-6  # of the largest number: errors below it are those of the integration
FEWEST = 3  # times and wavelengths
Unwanted = int | Literal["constant"] | None


class Spectra(Suggesting):
    """Spectra measured during one experiment; pass them as `igpe.Experiment(..., spectra=...)`.

    frame        a DataFrame with the times as index (or in a column `time`) and the wavelengths as
                 column names, or the path of a file with such a table (CSV, Excel, Parquet). The
                 times must be in the unit of the experiment's times
    sigma        standard deviation of the measured values: one number, or one number for each
                 wavelength (a Series, or an array in the order of the columns); None: igpe
                 estimates the noise level from the singular values that contain only noise
    species      names of the model's quantities that absorb; None: all states of the model
    pure         a dict {species: known spectrum}; a spectrum is a Series by wavelength, which igpe
                 interpolates linearly, or an array with one number for each wavelength, in the
                 order of the columns
    nonnegative  whether unknown spectra must be nonnegative. The constraint excludes rate constants
                 that require negative spectra. If the true spectra are zero at many wavelengths,
                 the constraint biases the rate constants; if it changes an unknown significantly,
                 a note reports the change
    smooth       number of cubic B-splines, evenly spread over the wavelengths; each unknown
                 spectrum is a linear combination of them. 0: the spectrum is free at each
                 wavelength. A number above 0 requires nonnegative=False
    unwanted     contributions that do not come from a species: "constant" for one contribution
                 that does not change with time, such as a baseline; or the number of contributions
                 that vary in time. igpe needs to know nothing else about them. A number requires
                 nonnegative=False
    shared       True: the species have the same spectra here as in all other experiments with
                 shared=True; these experiments must have the same wavelengths
    raises       DataError; the message states the cause and the remedy
    """

    def __init__(
        self,
        frame: Data,
        *,
        sigma: float | npt.ArrayLike | None = None,
        species: Iterable[str] | None = None,
        pure: Mapping[str, Any] = MappingProxyType({}),
        nonnegative: bool = False,
        smooth: int = 0,
        unwanted: Unwanted = None,
        shared: bool = True,
    ) -> None:
        self.times, self.wavelengths, self.values, order = _read(frame)
        self.species = _species(species)
        self.sigma = None if sigma is None else _sigma(sigma, self.wavelengths, order)
        require_mapping("pure", pure, "pure={'A': series_by_wavelength}", DataError)
        self.pure: dict[str, FloatArray] = {
            n: _pure(n, one, self.wavelengths, order) for n, one in pure.items()
        }
        if self.species is not None and (others := [n for n in pure if n not in self.species]):
            raise DataError(
                f"pure= gives spectra of {others}, which are not among species={[*self.species]}."
            )
        _check_options(nonnegative, smooth, unwanted, len(self.wavelengths))
        self.nonnegative, self.smooth, self.shared = bool(nonnegative), int(smooth), bool(shared)
        self.unwanted = unwanted

    @property
    def absorbing(self) -> tuple[str, ...]:
        """Names of the species that absorb; empty until `species` or the model defines them."""
        return self.species or ()

    @property
    def constant(self) -> bool:
        """Return True if there is an unwanted contribution that does not change with time."""
        return self.unwanted == "constant"

    @property
    def varying(self) -> int:
        """Number of unwanted contributions that vary in time."""
        return self.unwanted if isinstance(self.unwanted, int) else 0

    @property
    def contributions(self) -> int:
        """Largest number of contributions that the spectra are expected to contain."""
        return len(self.absorbing) + self.constant + self.varying

    @cached_property
    def noise(self) -> FloatArray:
        """(n_wavelengths,) standard deviations: those given, or else the estimated noise level.

        raises DataError if there are too few times or wavelengths to estimate the noise level
        """
        if self.sigma is not None:
            return self.sigma
        few, most = self.contributions, min(self.values.shape)
        if most < few + FEWEST:
            raise DataError(
                f"igpe cannot estimate the noise level of {self.values.shape[0]} spectra at "
                f"{self.values.shape[1]} wavelengths with {few} contributions: it needs at least "
                f"{few + FEWEST} spectra and {few + FEWEST} wavelengths. Give the noise level: "
                "igpe.Spectra(..., sigma=...)."
            )
        level = noise_level(self._singular, self.values.shape, few)
        return np.full(len(self.wavelengths), max(level, FLOOR * np.abs(self.values).max()))

    @cached_property
    def _singular(self) -> FloatArray:
        return np.asarray(np.linalg.svd(self.values, compute_uv=False))

    @cached_property
    def basis(self) -> FloatArray | None:
        """(n_wavelengths, m) orthonormal basis of all smooth spectra, after division by `noise`.

        None if the spectra need not be smooth.
        """
        if not self.smooth:
            return None
        from scipy.interpolate import BSpline  # noqa: PLC0415 - few need it

        first, last = self.wavelengths[[0, -1]]
        inner = np.linspace(first, last, self.smooth - 2)
        knots = np.concatenate([[first] * 3, inner, [last] * 3])
        splines = BSpline.design_matrix(self.wavelengths, knots, 3).toarray()
        return np.asarray(np.linalg.qr(splines / self.noise[:, None])[0])

    def with_species(self, species: Iterable[str]) -> "Spectra":
        """Return a copy with these absorbing species, unless `species` is already given."""
        if self.species is not None:
            return self
        result = self._changed(species=tuple(species))
        if others := [n for n in self.pure if n not in result.absorbing]:
            raise DataError(
                f"pure= gives spectra of {others}, which are not states of the model: "
                f"{bracketed(result.absorbing)}.{closest(others[0], result.absorbing)}"
            )
        return result

    def at_times(self, factor: float, offset: float) -> "Spectra":
        """Return a copy whose times are in another unit: factor * times + offset."""
        return self._changed(times=factor * self.times + offset)

    def with_free_signs(self) -> "Spectra":
        """Return a copy without the constraint that pure spectra must be nonnegative."""
        return self._changed(nonnegative=False)

    def with_values(self, values: FloatArray) -> "Spectra":
        """Return a copy with other values (n_times, n_wavelengths)."""
        return self._changed(values=np.asarray(values, dtype=float))

    def to_frame(self) -> pd.DataFrame:
        """Return the values as a table with times as rows and wavelengths as columns."""
        index, columns = pd.Index(self.times, name="time"), pd.Index(self.wavelengths)
        return pd.DataFrame(self.values, index=index, columns=columns.rename("wavelength"))

    def _changed(self, **fields: Any) -> "Spectra":
        result = copy(self)
        for name in ("noise", "_singular", "basis"):
            result.__dict__.pop(name, None)
        result.__dict__.update(fields)
        return result

    # Preprocessing: each returns spectra that are otherwise the same.

    def select(self, *ranges: tuple[float, float], count: int | None = None) -> "Spectra":
        """Return a copy that contains only some of the wavelengths.

        ranges  pairs (first, last) of wavelengths, both included; without ranges: all wavelengths
        count   number of wavelengths to keep; None: all. igpe keeps the most informative
                wavelengths, those with the highest leverage in the space of the leading singular
                vectors
        raises  DataError if too few wavelengths remain
        """
        w = self.wavelengths
        kept = np.zeros(len(w), dtype=bool) if ranges else np.ones(len(w), dtype=bool)
        for pair in ranges:
            kept |= _within(pair, w)
        if count is not None:
            require(
                isinstance(count, int) and count >= 1, "select", "count", count, "a whole number"
            )
            few = max(self.contributions, 1)
            right = np.linalg.svd(self.values[:, kept], full_matrices=False)[2][:few]
            order = np.argsort(-(right**2).sum(axis=0), kind="stable")[:count]
            kept[np.setdiff1d(np.flatnonzero(kept), np.flatnonzero(kept)[order])] = False
        if kept.sum() < FEWEST:
            raise DataError(
                f"Of {len(w)} wavelengths from {w[0]:g} to {w[-1]:g}, {int(kept.sum())} remain; "
                f"at least {FEWEST} are needed. Give wider ranges: select((400, 500))."
            )
        return self._at(kept)

    def baseline(self, *ranges: tuple[float, float], order: int = 0) -> "Spectra":
        """Return the spectra minus a polynomial baseline that is fitted where nothing absorbs.

        igpe also subtracts a baseline from each known spectrum (`pure`).

        ranges  pairs (first, last) of wavelengths between which nothing absorbs
        order   order of the polynomial; 0: a constant offset
        raises  DataError if there are no ranges, or if they contain too few wavelengths
        """
        w = self.wavelengths
        flat = np.zeros(len(w), dtype=bool)
        for pair in ranges:
            flat |= _within(pair, w)
        if flat.sum() <= order:
            raise DataError(
                f"A baseline of order {order} needs more than {order} wavelengths where nothing "
                f"absorbs; the ranges {list(ranges)} contain {int(flat.sum())}. Give ranges: "
                "baseline((700, 800))."
            )
        x = (w - w.mean()) / max(float(np.ptp(w)), 1e-300)
        powers = np.vander(x, order + 1)
        fitted = powers @ np.linalg.pinv(powers[flat])
        return self._along(lambda v: v - v[..., flat] @ fitted.T)

    def scatter_corrected(self, method: Literal["snv", "msc"] = "msc") -> "Spectra":
        """Return the spectra corrected for the offset and scale that light scattering causes.

        "snv" subtracts from each spectrum its mean and divides the difference by the standard
        deviation of the spectrum. "msc" fits an offset plus a scale times the mean spectrum to each
        spectrum; it subtracts the offset and divides by the scale. Both methods also remove changes
        in the total absorbance that the reaction causes: use them only if these changes are small.
        Corrected spectra can be negative, so `nonnegative` is set to False.

        raises  DataError for an unknown method, or if some spectra are known (`pure`)
        """
        if method not in ("snv", "msc"):
            raise DataError(f"`method` is {shown(method)}; expected 'snv' or 'msc'.")
        if self.pure:
            raise DataError(
                "The corrected spectra are not sums of the known spectra of "
                f"{', '.join(self.pure)}, because each spectrum is scaled separately. Omit the "
                "argument `pure`, or do not correct the spectra."
            )
        mean, v = self.values.mean(axis=1, keepdims=True), self.values
        if method == "snv":
            scale = v.std(axis=1, ddof=1, keepdims=True)
        else:
            reference = v.mean(axis=0)
            centred = reference - reference.mean()
            scale = ((v - mean) @ centred / (centred @ centred))[:, None]
            mean = mean - scale * reference.mean()
        changed = self.with_values((v - mean) / scale)
        return changed._changed(nonnegative=False, sigma=None)

    def savitzky_golay(self, window: int, order: int = 2, derivative: int = 0) -> "Spectra":
        """Smooth or differentiate the spectra along the wavelengths (SciPy's savgol_filter).

        window      length of the filter window: an odd number of wavelengths. The wavelengths must
                    be evenly spaced
        order       order of the fitted polynomials, less than `window`
        derivative  order of the derivative; 0: smoothing only. Derivatives can be negative, so
                    `nonnegative` is set to False for them

        The filter makes the errors at neighbouring wavelengths correlated. Standard errors account
        for this correlation through the scatter of the residuals (`Result.spectra`). Known spectra
        (`pure`) are filtered in the same way.
        """
        from scipy.signal import savgol_filter  # noqa: PLC0415 - slow to import

        step = np.diff(self.wavelengths)
        if not np.allclose(step, step[0], rtol=1e-3):
            raise DataError(
                "savitzky_golay needs evenly spaced wavelengths; here the steps range from "
                f"{step.min():g} to {step.max():g}. Interpolate them first."
            )
        how: dict[str, Any] = {"deriv": derivative, "delta": float(step[0]), "axis": -1}
        try:
            filtered = self._along(lambda v: savgol_filter(v, window, order, **how))
        except ValueError as error:
            raise DataError(
                f"savitzky_golay(window={window}, order={order}): {error}. Give an odd window "
                f"length, larger than the order and at most {len(self.wavelengths)} wavelengths."
            ) from None
        nonnegative = self.nonnegative and derivative == 0
        return filtered._changed(nonnegative=nonnegative, sigma=None)

    def _along(self, linear: Callable[[FloatArray], Any]) -> "Spectra":
        """The spectra, the known ones too, after a linear operation along the wavelengths."""
        pure = {name: np.asarray(linear(s)) for name, s in self.pure.items()}
        return self.with_values(linear(self.values))._changed(pure=pure)

    def _at(self, kept: BoolArray) -> "Spectra":
        return self._changed(
            wavelengths=self.wavelengths[kept],
            values=self.values[:, kept],
            sigma=None if self.sigma is None else self.sigma[kept],
            pure={n: s[kept] for n, s in self.pure.items()},
        )

    def rank(self) -> "Rank":
        """Use the singular values and the noise to estimate the number of contributions."""
        sigma = self.sigma
        weighted = self.values if sigma is None else self.values / sigma
        size = np.linalg.svd(weighted, compute_uv=False)
        return Rank(np.asarray(size), weighted.shape, None if sigma is None else 1.0)

    def evolving_factors(self, count: int = 6) -> pd.DataFrame:
        """Singular values of the spectra up to each time (forward) and from each time on
        (backward).

        A contribution appears at the time at which a forward singular value rises above the noise.
        A contribution vanishes at the time at which a backward singular value falls to the noise
        (Maeder, Anal. Chem. 59 (1987), 527).

        returns  a table indexed by time, with the columns (forward, 1), ..., (backward, 1), ...
        """
        n = len(self.times)
        few = min(count, *self.values.shape)
        table = np.full((n, 2, few), np.nan)
        for i in range(n):
            for side, part in enumerate((self.values[: i + 1], self.values[i:])):
                size = np.sqrt(np.maximum(np.linalg.eigvalsh(_smaller_gram(part))[::-1], 0.0))
                table[i, side, : len(size)] = size[:few]
        columns = pd.MultiIndex.from_product([["forward", "backward"], range(1, few + 1)])
        index = pd.Index(self.times, name="time")
        return pd.DataFrame(table.reshape(n, -1), index=index, columns=columns)

    def __repr__(self) -> str:
        w = self.wavelengths
        absorbing = ", ".join(self.species) if self.species is not None else "all states"
        return (
            f"Spectra(of {absorbing}: {len(self.times)} times from {self.times[0]:g} to "
            f"{self.times[-1]:g}, {len(w)} wavelengths from {w[0]:g} to {w[-1]:g})"
        )


def compressed(group: Sequence[Spectra]) -> list[Spectra]:
    """Return spectra projected onto their common leading singular vectors, for use in searches.

    Instead of one dimension for each wavelength, the projection has one for each contribution, one
    for each known spectrum, and one additional dimension.

    group  spectra of all experiments whose species have the same pure spectra
    """
    first, weighted = group[0], np.vstack([one.values / one.noise for one in group])
    pure = {n: s / first.noise for one in group for n, s in one.pure.items()}
    species = {n for one in group for n in one.absorbing}
    few = min(len(species) + first.constant * len(group) + first.varying + 1, *weighted.shape)
    right = np.linalg.svd(weighted, full_matrices=False)[2]
    axes = np.linalg.qr(np.vstack([right[:few], *pure.values()]).T)[0]
    return [
        one._changed(
            values=(one.values / first.noise) @ axes,
            wavelengths=np.arange(axes.shape[1], dtype=float),
            sigma=np.full(axes.shape[1], np.median(one.noise / first.noise)),
            pure={n: pure[n] @ axes for n in one.pure},
            nonnegative=False,
            smooth=0,
        )
        for one in group
    ]


class Rank:
    """Number of contributions in spectra; print it to see the result.

    singular  singular values of the measured values (in standard deviations, if these are known)
    number    number of contributions above the noise
    noise     noise level, in the unit of the measured values (or 1)
    """

    def __init__(self, singular: FloatArray, shape: tuple[int, int], sigma: float | None) -> None:
        self.singular, self._shape = singular, shape
        self.number, self.noise = contributions(singular, shape, sigma)

    def to_frame(self) -> pd.DataFrame:
        """Return the singular values, the largest that noise alone would give, and verdicts."""
        few = min(len(self.singular), self.number + 5)
        limits = [self.noise * edge(self._shape, j) for j in range(few)]
        return pd.DataFrame({
            "singular_value": self.singular[:few],
            "noise_limit": limits,
            "above_noise": np.arange(few) < self.number,
        }).set_index(pd.RangeIndex(1, few + 1, name="contribution"))

    def __str__(self) -> str:
        table = self.to_frame().to_string(float_format="{:.4g}".format)
        return (
            f"The spectra contain {counted(self.number, 'contribution')} above a "
            f"noise level of {self.noise:.3g}.\n{table}"
        )

    __repr__ = __str__


def _smaller_gram(part: FloatArray) -> FloatArray:
    return part @ part.T if len(part) <= part.shape[1] else part.T @ part


def _read(frame: Data) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Times (N,) and wavelengths (M,), increasing, numbers (N, M), order of the columns (M,)."""
    if not isinstance(frame, pd.DataFrame):
        frame = read_table(frame)
    if "time" in frame.columns:
        frame = frame.set_index("time")
    elif isinstance(frame.index, pd.RangeIndex) and frame.index.name is None:
        raise DataError(
            "The spectra have no times: their index only counts the rows, from "
            f"{frame.index.start} to {frame.index[-1] if len(frame) else 0}. Give the times: "
            "frame.set_axis(times). If the row numbers are the times, name the index: "
            "frame.rename_axis('time')."
        )
    times = _axis(frame.index, "times (the index, or a column 'time')")
    wavelengths = _axis(frame.columns, "wavelengths (the names of the columns)")
    values = frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    if min(frame.shape) < FEWEST:
        raise DataError(
            f"The spectra have {frame.shape[0]} times and {frame.shape[1]} wavelengths; at least "
            f"{FEWEST} of each are needed. Put the times in rows."
        )
    if not np.isfinite(values).all():
        raise DataError(_holes(values, times, wavelengths))
    rows, columns = np.argsort(times, kind="stable"), np.argsort(wavelengths, kind="stable")
    for name, axis in (("time", times[rows]), ("wavelength", wavelengths[columns])):
        if twice := axis[1:][np.diff(axis) <= 0].tolist():
            raise DataError(f"The {name} {twice[0]:g} occurs more than once in the spectra.")
    return times[rows], wavelengths[columns], values[np.ix_(rows, columns)], columns


def _holes(values: FloatArray, times: FloatArray, wavelengths: FloatArray) -> str:
    """The sentence about entries that are no numbers: at which wavelengths, or times if fewer."""
    holes = ~np.isfinite(values)
    at_times, at_wavelengths = times[holes.any(axis=1)], wavelengths[holes.any(axis=0)]
    by_time = len(at_times) < len(at_wavelengths)
    what, places = ("times", at_times) if by_time else ("wavelengths", at_wavelengths)
    axis = "index" if by_time else "columns"
    return (
        f"The spectra contain entries that are not numbers, at the {what} "
        f"{bracketed([f'{place:g}' for place in places])}. Leave these {what} out: "
        f"frame.apply(pd.to_numeric, errors='coerce').dropna(axis='{axis}')."
    )


def _axis(labels: "pd.Index[Any]", what: str) -> FloatArray:
    if labels.dtype.kind in "mM":  # NumPy would count dates in nanoseconds
        raise DataError(
            f"The {what} of the spectra are dates or durations, for example {labels[0]}. Give "
            "numbers in the unit of the model's time: (dates - start).total_seconds()."
        )
    try:
        numbers = np.asarray(labels, dtype=float)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all():
        raise DataError(
            f"The {what} of the spectra must be numbers; got {shown(list(labels)[:5])}. Give "
            "a DataFrame with one row per time and one column per wavelength, and no other columns."
        )
    return numbers


def _species(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (
        [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    )
    if isinstance(given, str) or not names or not all(isinstance(n, str) for n in names):
        raise DataError(f"`species` is {shown(given)}; expected a list: species=['A', 'B'].")
    if len(set(names)) < len(names):
        raise DataError(f"species={names} contains a name twice.")
    return tuple(names)


def _sigma(given: Any, wavelengths: FloatArray, order: IntArray) -> FloatArray:
    """(M,) by increasing wavelength; an array has the order of the frame's columns."""
    if isinstance(given, pd.Series):
        axis = _axis(given.index, "wavelengths of sigma")
        given, order = given.set_axis(axis).reindex(wavelengths), np.arange(len(wavelengths))
    try:
        sigma = np.broadcast_to(np.asarray(given, dtype=float), wavelengths.shape)[order]
    except (TypeError, ValueError):
        sigma = np.array([np.nan])
    if not (np.isfinite(sigma).all() and (sigma > 0).all()):
        raise DataError(
            f"`sigma` of the spectra is {shown(given)}; give one positive number, or one for "
            f"each of the {len(wavelengths)} wavelengths. Omit it if it is unknown."
        )
    return np.array(sigma)


def _pure(name: str, given: Any, wavelengths: FloatArray, order: IntArray) -> FloatArray:
    """(M,) by increasing wavelength; an array has the order of the frame's columns."""
    if isinstance(given, pd.Series):
        where = _axis(given.index, f"wavelengths of pure['{name}']")
        order = np.argsort(where)
        inside = where.min() <= wavelengths[0] and wavelengths[-1] <= where.max()
        spectrum = np.interp(wavelengths, where[order], given.to_numpy(dtype=float)[order])
        spectrum = spectrum if inside else np.array([np.nan])
    else:
        spectrum = np.atleast_1d(np.asarray(given, dtype=float))
        spectrum = spectrum[order] if spectrum.shape == wavelengths.shape else spectrum
    if spectrum.shape != wavelengths.shape or not np.isfinite(spectrum).all():
        raise DataError(
            f"pure['{name}'] must cover the wavelengths from {wavelengths[0]:g} to "
            f"{wavelengths[-1]:g}: give a Series over wavelength, or {len(wavelengths)} numbers."
        )
    return np.array(spectrum)


def _check_options(nonnegative: bool, smooth: Any, unwanted: Any, count: int) -> None:
    is_count = isinstance(smooth, int) and not isinstance(smooth, bool)
    if not is_count or (smooth and not 4 <= smooth <= count):  # noqa: PLR2004 - cubic splines
        raise DataError(
            f"`smooth` is {shown(smooth)}; give a number of B-splines from 4 to {count}, or 0 for "
            "no smoothing."
        )
    is_number = isinstance(unwanted, int) and not isinstance(unwanted, bool) and unwanted >= 1
    if not (unwanted is None or unwanted == "constant" or is_number):
        raise DataError(
            f"`unwanted` is {shown(unwanted)}; give 'constant', None, or the number of "
            "contributions that vary in time."
        )
    if nonnegative and (smooth or is_number):
        what = f"smooth={smooth}" if smooth else f"unwanted={unwanted}"
        raise DataError(
            f"igpe cannot combine non-negative spectra with {what}. Pass nonnegative=False."
        )


def _within(pair: Any, wavelengths: FloatArray) -> BoolArray:
    ok = isinstance(pair, tuple | list) and len(pair) == 2 and is_finite(*pair)  # noqa: PLR2004
    if not ok or pair[0] > pair[1]:
        raise DataError(
            f"The range {shown(pair)} is not a pair (smaller wavelength, larger wavelength)."
        )
    return np.asarray((wavelengths >= pair[0]) & (wavelengths <= pair[1]))


def absorbing(experiment: Any, instance: Any) -> Any:
    """The experiment with the species that absorb, as columns without measurements.

    raises DataError for species that the model does not have over time
    """
    if experiment.spectra is None:
        return experiment
    spectra = experiment.spectra.with_species(instance.states)
    known = [*instance.states, *instance.series, *instance.expressions]
    if unknown := [n for n in spectra.species if n not in known]:
        raise DataError(
            f"The spectra have species={unknown}, but no time-dependent quantities of the model "
            f"have these names; the model has {bracketed(known)}.{closest(unknown[0], known)}"
        )
    result = experiment.reporting(spectra.species)
    result.spectra = spectra
    return result


def with_spectral_times(measurements: Any, spectra: Spectra | None) -> Any:
    """The measurements with the times of the spectra among theirs."""
    if spectra is None:
        return measurements
    times = np.union1d(measurements.times, spectra.times)
    row = np.searchsorted(times, measurements.times)[measurements.row]
    return replace(measurements, times=times, row=row)


def check_spectra(data: Any, spectra: Any) -> None:
    """Raise DataError unless an experiment has measurements or spectra."""
    if not isinstance(spectra, Spectra | None):
        raise DataError(f"`spectra` is {shown(spectra)}; expected igpe.Spectra(frame).")
    if data is None and spectra is None:
        raise DataError(
            "The experiment has no measurements. Give a table, igpe.Experiment(data), or spectra, "
            "igpe.Experiment(spectra=igpe.Spectra(frame))."
        )
