"""What an estimation found, as plain data: without its text, pages and pictures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.status import Status
from igpe.numerics.statistics.covariance import correlation, ellipse
from igpe.numerics.statistics.weakness import combinations
from igpe.results.dynamic_certificate import Certificate, DynamicCertificate
from igpe.results.residual_table import Adequacy, outliers, residual_table, sigma_known
from igpe.results.structure_map import StructureMap


@dataclass(frozen=True)
class Parameter:
    """One estimated unknown, in the model's unit.

    standard_error  linearised; NaN on a bound, infinite where undetermined
    lower, upper    linearised, inside the bounds; one-sided on a bound
    bounds      where it was sought
    found_by    how its value was first found, in words
    remark      empty, "on its lower bound", "on its upper bound" or "not determined by the data"
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


@dataclass(frozen=True)
class Candidate:
    """One way through steps 3 to 5.

    origin       which smoothing and which residuals it came from
    incremental  unknowns after step 4
    corrected    unknowns after step 5
    objective    weighted sum of squares after step 5; infinite if it failed
    status       how step 5 ended
    """

    origin: str
    incremental: Mapping[str, float]
    corrected: Mapping[str, float]
    objective: float
    status: Status


@dataclass(frozen=True)
class Optimum:
    """Another set of values that explains the data within the statistical threshold.

    estimates   one `Parameter` per free unknown, with intervals around this optimum
    objective   weighted sum of squared residuals there
    """

    estimates: tuple[Parameter, ...]
    objective: float

    @property
    def parameters(self) -> dict[str, float]:
        """Unknown -> value."""
        return {p.name: p.value for p in self.estimates}


@dataclass(frozen=True)
class ResultData:
    """The data of a `Result`, which says what each field is, and tables made from them."""

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
    points: pd.DataFrame = field(repr=False)
    curves: pd.DataFrame = field(repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    notes: tuple[str, ...] = ()
    settings: str = ""
    maps: tuple[StructureMap, ...] = field(default=(), repr=False)
    proof: DynamicCertificate | None = None
    adequacy: Adequacy | None = None
    other_optima: tuple[Optimum, ...] = ()

    @property
    def parameters(self) -> dict[str, float]:
        """Unknown -> estimate."""
        return {p.name: p.value for p in self.estimates}

    @property
    def reduced_chi_squared(self) -> float:
        """Weighted sum of squares over degrees of freedom; near 1 if sigma is right."""
        return self.objective / self.degrees if self.degrees > 0 else math.nan

    @property
    def correlation(self) -> pd.DataFrame:
        """Correlation of the estimates; NaN where an error is not defined."""
        names = [p.name for p in self.estimates]
        free = names[: len(self.covariance)]
        table = pd.DataFrame(correlation(self.covariance), index=free, columns=free)
        return table.reindex(index=names, columns=names)

    def to_frame(self) -> pd.DataFrame:
        """The estimates as a table, indexed by name."""
        rows = [
            {
                "estimate": p.value,
                "standard_error": p.standard_error,
                "lower": p.lower,
                "upper": p.upper,
                "unit": p.unit,
                "found_by": p.found_by,
                "remark": p.remark,
            }
            for p in self.estimates
        ]
        return pd.DataFrame(rows, index=pd.Index([p.name for p in self.estimates], name="name"))

    def fit(self) -> pd.DataFrame:
        """How well each quantity of each experiment is met: count, sum of squares, RMS residual."""
        weighted = self.points.assign(square=(self.points["residual"] / _weights(self.points)) ** 2)
        table = weighted.groupby(["experiment", "name"], sort=False).agg(
            measurements=("measured", "size"),
            sum_of_squares=("square", "sum"),
            rms_residual=("residual", lambda r: float(np.sqrt(np.mean(np.square(r))))),
        )
        return pd.DataFrame(table)

    def residual_tests(self) -> pd.DataFrame:
        """Whether residuals look like independent normal errors; a sentence for each test.

        Chi squared of all (if sigma is known); of each quantity in each experiment: runs of equal
        sign, autocorrelation (Ljung and Box), normality (Shapiro and Wilk), the worst outlier.
        """
        return residual_table(self.points, self.objective, self.degrees)

    def outliers(self) -> pd.DataFrame:
        """Rows of `points` whose studentised residual is too large (Bonferroni, p < 0.05)."""
        return outliers(self.points, self.degrees)

    def combinations(self) -> pd.DataFrame:
        """Directions in the unknowns, the poorest determined first.

        Each row: relative changes of the unknowns (of length 1), and the relative standard error
        along them.
        """
        free = self.estimates[: len(self.covariance)]
        found = combinations(np.array([p.value for p in free]), self.covariance)
        table = pd.DataFrame([c.components for c in found], columns=[p.name for p in free])
        return table.assign(standard_error=[c.error for c in found])

    def ellipse(self, one: str, other: str, confidence: float | None = None) -> pd.DataFrame:
        """Joint linearised confidence region of two unknowns: points on its edge, closed.

        confidence  by default that of the intervals
        raises      ProblemError for names that have no error
        """
        spread = self.correlation.index[: len(self.covariance)]
        at = [list(spread).index(n) if n in spread else -1 for n in (one, other)]
        block = self.covariance[np.ix_(at, at)] if min(at) >= 0 else np.full((2, 2), np.nan)
        if not np.isfinite(block).all() or one == other:
            raise ProblemError(
                f"There is no ellipse of '{one}' and '{other}'; give two unknowns with a standard "
                f"error, of {list(spread)}."
            )
        degrees = None if sigma_known(self.points) else self.degrees
        level = self.confidence if confidence is None else confidence
        edge = ellipse(block, level, degrees)
        values = self.parameters
        return pd.DataFrame(edge + np.array([values[one], values[other]]), columns=[one, other])


def _weights(points: pd.DataFrame) -> FloatArray:
    return points["sigma"].fillna(1.0).to_numpy(dtype=float)
