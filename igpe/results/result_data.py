"""The result of an estimation as plain data: fields, and tables made from them.

The map of a model's structure is only names and places, so results and reports can store it. Its
rows are equations, its columns what is unknown in them once the measured states are known (Michalik
et al. 2009, IGPE, eq. 4), in the order of Dulmage and Mendelsohn: read from the top, each block's
unknowns follow from the blocks above it, until there are more unknowns than equations.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.json_form import Columns
from igpe.core.markup import Suggesting, counted, in_words, listed, number, numbers
from igpe.core.status import Status
from igpe.numerics.covariance import combinations, correlation, ellipse
from igpe.numerics.optima import is_same_objective
from igpe.results.certificates import Certificate, DynamicCertificate
from igpe.results.residual_table import (
    Adequacy,
    SpectralFit,
    above_limits,
    divisors,
    outliers,
    residual_table,
    sigma_known,
    standardised,
)

OVER, SQUARE, UNDER = "overdetermined", "square", "underdetermined"
DYNAMIC = "left to the dynamics"
ALGEBRAIC = ("algebraic", "smoothing")  # reached without the dynamics
LAST = {"dynamic": "Only from the dynamics", "unreachable": "Cannot be estimated"}
MOST_NAMED = 12  # names in a sentence, and sentences of one kind


class MapPart(NamedTuple):
    """Neighbouring rows and columns of one kind, each from the first to behind the last."""

    kind: str
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def sentence(self) -> str:
        """What it is, with its size."""
        equations = counted(self.rows[1] - self.rows[0], "equation")
        if self.kind == DYNAMIC:
            return f"{self.kind}: {equations}"
        return f"{self.kind}: {equations}, {counted(self.columns[1] - self.columns[0], 'unknown')}"


class MapBlock(NamedTuple):
    """Equations that must be solved together: first row, first column, how many of each."""

    row: int
    column: int
    size: int


class MapSource(NamedTuple):
    """Parameters on which a slope or start value depends.

    name        "slope of A", predicted by algebra, or "start of A"
    parameters  places among those of the map
    """

    name: str
    parameters: tuple[int, ...]


@dataclass(frozen=True)
class StructureMap:
    """Equations, and the quantities that remain to be computed from the measurements.

    experiments  names of the experiments with these equations
    equations    names of the rows; unknowns: names of the columns, in the order of the picture
    measured     states and variables that are known
    parameters   free unknowns of the problem in these experiments, without "@experiment"
    reach        how each parameter can be estimated: "algebraic", "smoothing", "dynamic" or
                 "unreachable"
    entries      (row, column) pairs: this equation contains this unknown
    known        (row, place among `measured`);  uses: (row, place among `parameters`)
    parts        from the top
    blocks       blocks of the block triangular form; equations that can be solved one by one form
                 blocks of size 1
    sources      slopes that are predicted, with the parameters estimated from them; start values,
                 with the parameters in them, however these are reached
    """

    experiments: tuple[str, ...]
    equations: tuple[str, ...]
    unknowns: tuple[str, ...]
    measured: tuple[str, ...]
    parameters: tuple[str, ...]
    reach: tuple[str, ...]
    entries: tuple[tuple[int, int], ...]
    known: tuple[tuple[int, int], ...]
    uses: tuple[tuple[int, int], ...]
    parts: tuple[MapPart, ...]
    blocks: tuple[MapBlock, ...]
    sources: tuple[MapSource, ...]

    @property
    def title(self) -> str:
        """Title: the experiments to which the equations belong."""
        several = "s" if len(self.experiments) > 1 else ""
        return f"experiment{several} {in_words(self.experiments, MOST_NAMED)}"

    @property
    def words(self) -> str:
        """Describe the map in words, for readers who cannot see it."""
        largest = max((b.size for b in self.blocks), default=0)
        solved = (
            f" They are solved in {counted(len(self.blocks), 'block')}. The largest block has "
            f"{counted(largest, 'equation')}."
        )
        sentences = []
        for source in self.sources:
            names = [self.parameters[i] for i in source.parameters if self.reach[i] in ALGEBRAIC]
            sentences += (
                [f"From the {source.name}: {in_words(names, MOST_NAMED)}."] if names else []
            )
        if len(sentences) > MOST_NAMED:
            more = f"{len(sentences) - MOST_NAMED} more slopes and start values are not listed."
            sentences = [*sentences[:MOST_NAMED], more]
        for kind, head in LAST.items():
            names = [n for n, r in zip(self.parameters, self.reach, strict=True) if r == kind]
            sentences += [f"{head}: {in_words(names, MOST_NAMED)}."] if names else []
        parts = "; ".join(part.sentence for part in self.parts)
        return " ".join([
            f"Equations of {self.title}, grouped by whether the measurements determine their "
            f"unknowns: {parts or 'none'}.{solved * bool(self.blocks)}",
            *sentences,
        ])


LIKELIHOOD = "-2 log likelihood"  # how the criterion begins, where the objective is one
PRIOR = "The prior of "  # how the action on a prior begins that the measurements contradict
START = "The start value of "  # the same, for one that is far from the first measurement
ASSUMED = "There are too few measurements to estimate these standard deviations"
TOO_COARSE = "The grid in space is too coarse"  # how that action begins
FAR = 10.0  # standard errors from the value to an end of an interval that has fewer digits
UNSURE = 2.0  # standard errors of a value that may as well be zero
VARYING = 1e-12  # relative scatter of one measured value is rounding
WITHOUT_PROFILE = (
    "The intervals of {} come from the linearised model. Accurate intervals need profile "
    "likelihoods, which igpe could not compute within its work and time limits."
)
BY_PROFILE = "The {:g} % intervals of {} come from profile likelihood (igpe.profile)."
PROFILED = re.escape(BY_PROFILE).replace(r"\{:g\}", ".+").replace(r"\{\}", "(.+)")
PROFILED = PROFILED.replace(r"come\ from", "(?:come from|are by)")  # as results were stored earlier
UNPROFILED = re.escape(WITHOUT_PROFILE).replace(re.escape("{}"), "(.+)")


@dataclass(frozen=True)
class Parameter(Suggesting):
    """One estimated unknown, in the unit of the model.

    standard_error  linearised standard error; NaN at active constraints, and where an interval by
                    profile contradicts it, infinite if the data do not determine the unknown
    lower, upper    endpoints of the linearised interval, clipped to the bounds; one-sided if the
                    unknown is on a bound, or active constraints hold it. The interval of a
                    `logarithmic` unknown is that of its logarithm, and not symmetric
    bounds      bounds of the search
    found_by    description of the method that first found the value
    remark      empty, "on its lower bound", "on its upper bound", "held by active constraints"
                (or bounds of states) or "not determined by the data"
    """

    name: str
    value: float
    standard_error: float
    lower: float
    upper: float
    unit: str
    bounds: tuple[float, float]
    found_by: str
    remark: str = ""

    @property
    def error(self) -> float:
        """The standard error; where there is none, a quarter of the interval's length."""
        has_none = math.isnan(self.standard_error)
        return (self.upper - self.lower) / 4 if has_none else self.standard_error

    @property
    def spread(self) -> float:
        """The error that decides on digits: less where bounds cut the interval to less."""
        length = self.upper - self.lower
        return length / 4 if 0 < length < self.error else self.error

    @property
    def texts(self) -> list[str]:
        """The value and, where they are known, the ends of the interval, with digits as shown."""
        known = math.isfinite(self.lower) and math.isfinite(self.upper)
        shown = numbers((self.value, self.lower, self.upper), self.spread)
        for k, end in enumerate((self.lower, self.upper), start=1):
            if self.spread * FAR < (far := abs(end - self.value)) < math.inf:
                shown[k] = number(end, far / 4)  # as long an interval has this error
        return shown if known and not math.isinf(self.error) else shown[:1]


@dataclass(frozen=True)
class Combined:
    """Unknowns of which even perfect measurements determine only combinations (see `igpe.check`).

    functions  determined combinations, such as "k1*k2"; empty if there are none, or none with a
               simple form
    nothing    whether no combination of the unknowns is determined
    measure    sets of quantities; measuring all quantities of one set in addition would determine
               all these unknowns
    values     of the functions at the estimate, with their `standard_errors`; empty for
               functions with constants that igpe does not know, such as "k*exp(c*E)"
    """

    unknowns: tuple[str, ...]
    functions: tuple[str, ...] = ()
    nothing: bool = False
    measure: tuple[tuple[str, ...], ...] = ()
    values: tuple[float, ...] = ()
    standard_errors: tuple[float, ...] = ()

    @property
    def sentence(self) -> str:
        """The functions with their values and standard errors: "k1*k2 = 0.502 ± 0.011"."""
        sizes = map(_size, self.values, self.standard_errors)
        parts = [f"{f}{size}" for f, size in zip_longest(self.functions, sizes, fillvalue="")]
        return listed(parts)


def _size(value: float, error: float) -> str:
    if not math.isfinite(value) or math.isinf(error):
        return ""
    size = number(value, error) + f" ± {error:.2g}" * math.isfinite(error)
    return f" (uncertain: {size})" if abs(value) <= UNSURE * error else f" = {size}"


@dataclass(frozen=True)
class Candidate:
    """One variant of steps 3 to 5.

    origin       smoothing method and residuals of this variant
    incremental  estimates after step 4
    corrected    estimates after step 5
    objective    weighted sum of squares after step 5; infinite if step 5 failed
    status       the `Status` with which step 5 ended
    reached      final objective of each start of step 4; infinite if the start gave no usable
                 result
    """

    origin: str
    incremental: Mapping[str, float]
    corrected: Mapping[str, float]
    objective: float
    status: Status
    reached: tuple[float, ...] = ()


@dataclass(frozen=True)
class Optimum(Suggesting):
    """Another set of values that explains the data within the statistical threshold.

    estimates   one `Parameter` for each free unknown, with intervals around this optimum: profile
                intervals where the result has some, within the limits of work
    objective   weighted sum of squared residuals at this optimum
    """

    estimates: tuple[Parameter, ...]
    objective: float

    @property
    def parameters(self) -> dict[str, float]:
        """Map each unknown to its value."""
        return {p.name: p.value for p in self.estimates}


POINTS = Columns(
    ("experiment", "name", "unit"), ("time", "measured", "fitted", "residual", "sigma")
)
CURVES = Columns(("experiment", "name"), ("time", "fitted", "smoothed", "smoothed_error"))


@dataclass(frozen=True)
class ResultData:
    """Fields of a `Result` (described there) and tables computed from these fields."""

    estimates: tuple[Parameter, ...]
    objective: float
    status: Status
    covariance: FloatArray
    measurements: int
    degrees: int
    variance: float
    probability: float
    confidence: float
    certificates: tuple[Certificate, ...]
    candidates: tuple[Candidate, ...]
    structure: str
    points: Annotated[pd.DataFrame, POINTS] = field(repr=False)
    curves: Annotated[pd.DataFrame, CURVES] = field(repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    notes: tuple[str, ...] = ()
    settings: str = ""
    maps: tuple[StructureMap, ...] = field(default=(), repr=False)
    proof: DynamicCertificate | None = None
    adequacy: Adequacy | None = None
    other_optima: tuple[Optimum, ...] = ()
    criterion: str = ""
    time_unit: str = ""
    equations: tuple[Any, ...] = field(default=(), repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[str, ...] = ()
    combined: tuple[Combined, ...] = ()
    unprovable: str = ""
    spectral: tuple[SpectralFit, ...] = field(default=(), repr=False)
    correlations: Mapping[str, float] = field(default_factory=dict)
    other_priors: tuple[str, ...] = ()
    likelihood_gain: float = 0.0
    prior_level: float = 0.0
    active: tuple[str, ...] = ()
    linked: tuple[tuple[int, ...], ...] = ()
    conditions: tuple[tuple[str, ...], ...] = ()
    stopped_by: Status | None = None

    @property
    def spectra(self) -> pd.DataFrame:
        """Pure spectra: a table indexed by wavelength, columns (species, `value` or
        `standard_error`).

        Several fits that share no spectra are stacked in one table, indexed by experiments and
        wavelength.
        raises ProblemError for a result without spectra
        """
        if not self.spectral:
            raise ProblemError(
                "The result has no spectra. Pass spectra to the experiment: "
                "igpe.Experiment(..., spectra=igpe.Spectra(frame))."
            )
        tables = {", ".join(one.experiments): one.to_frame() for one in self.spectral}
        if len(tables) == 1:
            return next(iter(tables.values()))
        return pd.concat(tables, names=["experiments", "wavelength"])

    @property
    def parameters(self) -> dict[str, float]:
        """Map each unknown to its estimate."""
        return {p.name: p.value for p in self.estimates}

    @property
    def is_robust(self) -> bool:
        """Return True if the objective is a robust loss, neither squares nor a likelihood."""
        return bool(self.criterion) and not self.criterion.startswith(LIKELIHOOD)

    @property
    def relative_sigma(self) -> dict[str, float]:
        """Map each quantity to its relative standard deviation, if the fit estimated several."""
        if "relative_sigma" not in self.points:
            return {}
        each = self.points.groupby("name", sort=False)["relative_sigma"].first().dropna()
        return {str(name): float(size) for name, size in each.items()}

    @property
    def profiled(self) -> frozenset[str]:
        """Unknowns whose intervals come from profile likelihoods (a note lists them)."""
        return self._listed(PROFILED)

    @property
    def unprofiled(self) -> frozenset[str]:
        """Unknowns whose intervals need profile likelihoods that are missing (a note as well)."""
        return self._listed(UNPROFILED)

    def _listed(self, note: str) -> frozenset[str]:
        """The names in notes of that form."""
        said = (re.fullmatch(note, one) for one in self.notes)
        return frozenset(name for one in said if one for name in one[1].split(", "))

    @property
    def reduced_chi_squared(self) -> float:
        """Weighted sum of squares divided by the degrees of freedom; near 1 if sigma is correct.

        Priors that are not normal contribute no squares.
        """
        squares = self.squares if self.other_priors else self.objective
        return squares / self.degrees if self.degrees > 0 else math.nan

    @property
    def squares(self) -> float:
        """Weighted sum of squares of the residuals, without priors."""
        return float(np.sum(standardised(self.points) ** 2))

    @property
    def correlation(self) -> pd.DataFrame:
        """Correlation matrix of the estimates; NaN where a standard error is not defined."""
        names = [p.name for p in self.estimates]
        free = names[: len(self.covariance)]
        table = pd.DataFrame(correlation(self.covariance), index=free, columns=free)
        return table.reindex(index=names, columns=names)

    def to_frame(self) -> pd.DataFrame:
        """Return the estimates as a table, indexed by the names of the unknowns."""
        columns = [f.name for f in fields(Parameter)]
        table = pd.DataFrame([asdict(p) for p in self.estimates], columns=columns)
        return table.drop(columns="bounds").rename(columns={"value": "estimate"}).set_index("name")

    def fit(self) -> pd.DataFrame:
        """Return count, sum of squares and RMS residual for each quantity of each experiment."""
        weighted = self.points.assign(square=standardised(self.points) ** 2)
        table = weighted.groupby(["experiment", "name"], sort=False).agg(
            measurements=("measured", "size"),
            sum_of_squares=("square", "sum"),
            rms_residual=("residual", lambda r: float(np.sqrt(np.mean(np.square(r))))),
        )
        return pd.DataFrame(table)

    def r_squared(self) -> "pd.Series[float]":
        """Return R^2: the fraction of each quantity's weighted variance that the model explains.

        1 - sum w (measured - fitted)^2 / sum w (measured - mean)^2 over all experiments, with
        w = 1 / sigma^2 (relative if sigma is unknown). The value is NaN if the quantity does not
        vary, or if the model could not be integrated at the estimate.
        """
        weight = pd.Series(1.0 / divisors(self.points) ** 2, index=self.points.index)
        shares = {}
        for name, rows in self.points.groupby("name", sort=False):
            w, y = weight[rows.index], rows["measured"]
            mean = (w * y).sum() / w.sum() if w.sum() > 0 else math.nan
            scatter = float((w * (y - mean) ** 2).sum(skipna=False))
            left = float((w * rows["residual"] ** 2).sum(skipna=False))
            varies = scatter > VARYING**2 * float((w * y**2).sum())
            shares[str(name)] = 1 - left / scatter if varies else math.nan
        return pd.Series(shares, dtype=float)

    def residual_tests(self) -> pd.DataFrame:
        """Test whether the residuals look like independent normal errors; return a table of the
        tests.

        There is one chi-squared test of all residuals (if sigma is known). For each quantity of
        each experiment, there are tests for runs of equal sign, autocorrelation (Ljung and Box),
        normality (Shapiro and Wilk) and the largest outlier. The tests leave out points near a
        limit of detection (fitted value less than 3 sigma above the limit).
        """
        squares = math.nan if self.criterion or self.other_priors else self.objective
        points = above_limits(self.points)
        return residual_table(points, squares, self.degrees, robust=self.is_robust)

    def outliers(self) -> pd.DataFrame:
        """Return the rows of `points` with too large a studentised residual (Bonferroni, p < 0.05).

        If the loss is robust and standard deviations are unknown, the scale of the residuals is
        computed from their median size.
        """
        return outliers(above_limits(self.points), self.degrees, robust=self.is_robust)

    def combinations(self) -> pd.DataFrame:
        """Return combinations of the unknowns, the least accurate one first.

        Each row contains the relative changes of the unknowns (a direction of length 1), and the
        relative standard error along this direction.
        """
        free = self.estimates[: len(self.covariance)]
        determined = combinations(np.array([p.value for p in free]), self.covariance)
        table = pd.DataFrame([c.components for c in determined], columns=[p.name for p in free])
        return table.assign(standard_error=[c.error for c in determined])

    def ellipse(self, one: str, other: str, confidence: float | None = None) -> pd.DataFrame:
        """Return the edge of the linearised joint confidence region of two unknowns (a closed
        curve).

        confidence  by default that of the intervals
        raises      ProblemError for names of unknowns without a standard error
        """
        spread = self.correlation.index[: len(self.covariance)]
        at = [list(spread).index(n) if n in spread else -1 for n in (one, other)]
        block = self.covariance[np.ix_(at, at)] if min(at) >= 0 else np.full((2, 2), np.nan)
        if not np.isfinite(block).all() or one == other:
            raise ProblemError(
                "An ellipse needs two different unknowns with standard errors, chosen from "
                f"{list(spread)}; got '{one}' and '{other}'."
            )
        degrees = None if sigma_known(self.points) else self.degrees
        level = self.confidence if confidence is None else confidence
        edge = ellipse(block, level, degrees)
        values = self.parameters
        return pd.DataFrame(edge + np.array([values[one], values[other]]), columns=[one, other])


ROUNDING = 1e-12  # of the data's own sum of squares: below it objectives are rounding


def has_better(result: ResultData, proof: DynamicCertificate) -> bool:
    """Return True if the proof found parameters with a smaller sum of squares than the estimate."""
    least, mine = proof.objective, result.objective
    return least < mine and not is_same_objective(least, mine, rounding(result))


def rounding(result: ResultData) -> float:
    """Differences of the sum of squares up to this value are rounding errors."""
    weighted = result.points["measured"] / divisors(result.points)
    return ROUNDING * float((weighted**2).sum())
