"""The result of an estimation as plain data and as text, without pages and plots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import relative_gap
from igpe.core.json_form import Columns
from igpe.core.markup import aligned, bullets, table
from igpe.core.status import Status
from igpe.numerics.optima import is_same_objective
from igpe.numerics.statistics.covariance import combinations, correlation, ellipse
from igpe.results.dynamic_certificate import Certificate, DynamicCertificate
from igpe.results.residual_table import (
    Adequacy,
    outliers,
    residual_table,
    sigma_known,
    standardised,
)
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


POINTS = Columns(
    ("experiment", "name", "unit"), ("time", "measured", "fitted", "residual", "sigma")
)
CURVES = Columns(("experiment", "name"), ("time", "fitted", "smoothed", "smoothed_error"))


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
        columns = [f.name for f in fields(Parameter)]
        table = pd.DataFrame([asdict(p) for p in self.estimates], columns=columns)
        return table.drop(columns="bounds").rename(columns={"value": "estimate"}).set_index("name")

    def fit(self) -> pd.DataFrame:
        """How well each quantity of each experiment is met: count, sum of squares, RMS residual."""
        weighted = self.points.assign(square=standardised(self.points) ** 2)
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


SEARCHED = (Status.CONVERGED, Status.BEST_OF_SEVERAL)
ROUNDING = 1e-12  # of the data's own sum of squares: below it objectives are rounding
HEADS = ("", "estimate", "± standard error", "interval", "unit", "first found by")


def text(result: ResultData) -> str:
    """The answer first, then how sure it is, then how it came about."""
    lines = []
    for title, rows in [("", estimates(result)), *other_tables(result)]:
        lines += ["", title] if title else []
        lines += aligned(rows)
    return "\n".join([*lines, "", *_sentences(result)])


def html(result: ResultData) -> str:
    """The same as a table and a list."""
    tables = [("", estimates(result)), *other_tables(result)]
    written = (table(heads, rows, title) for title, (heads, *rows) in tables)
    return "".join(written) + bullets(_sentences(result))


def other_tables(result: ResultData) -> list[tuple[str, list[list[str]]]]:
    """A title, and heads and rows, of every other set of values that explains the data alike."""
    return [
        (
            f"Set {k} of {len(result.other_optima) + 1} that explain the data alike, "
            f"{_word(result)} {other.objective:.6g}:",
            _rows(other.estimates),
        )
        for k, other in enumerate(result.other_optima, 2)
    ]


def number(value: float, error: float = math.nan) -> str:
    """A value with as many digits as its error allows (six significant ones without an error)."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0 or not math.isfinite(error) or error <= 0:
        return f"{value:.6g}"
    digits = math.ceil(math.log10(max(abs(value) / error, 1e-9))) + 2
    return f"{value:#.{min(max(digits, 2), 10)}g}".rstrip(".")  # "#" keeps zeros that are known


def estimates(result: ResultData) -> list[list[str]]:
    """Heads and one row for each unknown, without columns that say nothing."""
    return _rows(result.estimates)


def _rows(estimated: Sequence[Parameter]) -> list[list[str]]:
    rows = [_cells(p) for p in estimated]
    kept = [i for i in range(len(HEADS)) if any(row[i] for row in rows)]
    return [[row[i] for i in kept] for row in (HEADS, *rows)]


def _cells(p: Parameter) -> tuple[str, ...]:
    error = math.nan if p.remark else p.standard_error
    interval = f"[{number(p.lower, error)}, {number(p.upper, error)}]"
    if p.remark:
        spread, on_bound = p.remark, math.isnan(p.standard_error)
        known = on_bound and math.isfinite(p.lower) and math.isfinite(p.upper)
    else:
        spread = f"± {error:.2g}" if math.isfinite(error) else "unknown"
        known = math.isfinite(p.lower)
    return p.name, number(p.value, error), spread, interval if known else "", p.unit, p.found_by


def _sentences(result: ResultData) -> Sequence[str]:
    whole = f"Time {sum(result.seconds.values()):.1f} s"
    longest = max(result.seconds, key=lambda k: result.seconds[k], default="")
    step = f" (step {longest}: {result.seconds[longest]:.1f} s)" if longest else ""
    return [
        *fitness(result),
        verdict(result),
        *quality(result),
        *(f"Step 3: {c.sentence}" for c in result.certificates),
        *([result.proof.sentence] if result.proof else []),
        *result.notes,
        f"{whole}{step}.",
    ]


def fitness(result: ResultData) -> list[str]:
    """Whether the model fits the measurements."""
    return [result.adequacy.sentence] if result.adequacy else []


def quality(result: ResultData) -> list[str]:
    """How good the fit is, and what the intervals are."""
    weighted = result.points["sigma"].notna().any()
    words = result.criterion or ("Weighted sum of squares" if weighted else "Sum of squares")
    sentences = [
        f"{words} {result.objective:.6g} over {result.measurements} measurements, "
        f"{result.degrees} degrees of freedom."
    ]
    if math.isfinite(result.probability):
        sentences.append(
            f"Chi squared per degree of freedom {result.reduced_chi_squared:.3g}; if model and "
            f"standard deviations are right a larger one has probability {result.probability:.2g}."
        )
    elif not result.criterion and math.isfinite(result.variance):
        spread = math.sqrt(result.variance)
        sentences.append(f"Standard deviation of a residual {spread:.3g} (from the residuals).")
    elif not result.criterion:
        sentences.append("There are not more measurements than unknowns, so errors cannot be told.")
    if any(math.isfinite(p.lower) and not p.remark for p in result.estimates):
        sentences.append(_intervals(result))
    return sentences


def _intervals(result: ResultData) -> str:
    """What the intervals are, and what they assume."""
    cut = any(
        math.isfinite(p.standard_error) and (p.lower <= p.bounds[0] or p.upper >= p.bounds[1])
        for p in result.estimates
    )
    one_sided = any(p.remark and math.isnan(p.standard_error) for p in result.estimates)
    words = ["cut at the bounds"] * cut + ["one-sided on a bound"] * one_sided
    more = f", {' and '.join(words)}" if words else ""
    contradicted = result.adequacy is not None and result.adequacy.lacks
    warning = " They assume that the model is right, which the residuals contradict."
    return f"Intervals: {100 * result.confidence:g} %, linearised{more}.{warning * contradicted}"


def verdict(result: ResultData) -> str:
    """How good the optimum is, from all that is known: the proof, the candidates, the status."""
    proof = result.proof
    if not result.status.usable or result.status not in SEARCHED:
        return result.status.value
    if proof is not None and has_better(result, proof):
        pairs = zip(proof.unknowns, proof.parameters, strict=True)
        values = ", ".join(f"{n} = {number(v)}" for n, v in pairs)
        return (
            f"Not the best: igpe.certify met a smaller sum of squares, {proof.objective:.6g}, at "
            f"{values}. Fit again from there: igpe.SingleShooting().estimate(problem, {{...}})."
        )
    if proof is not None and proof.closed:
        gap = max(relative_gap(result.objective, proof.lower_bound), 0.0)
        exact = (
            f"gap {100 * gap:.2g} %"
            if proof.lower_bound > 0
            else "the sum of squares is 0 but for rounding"
        )
        others = " Other values are as good, see below." if result.other_optima else ""
        return f"Proved best within the bounds ({exact}).{others}"
    advice = " Run igpe.certify(problem, result) to find out." if proof is None else ""
    return f"{_agreement(result)}Not proved: a better optimum may exist.{advice}"


def has_better(result: ResultData, proof: DynamicCertificate) -> bool:
    """Return True if the proof met parameters with a smaller sum of squares than the estimate's."""
    least, mine = proof.objective, result.objective
    return least < mine and not is_same_objective(least, mine, _rounding(result))


def _agreement(result: ResultData) -> str:
    """How many candidates of step 3 led to the estimate; empty where there was only one."""
    ends = [c.objective for c in result.candidates]
    if len(ends) <= 1:
        return ""
    rounding = _rounding(result)
    others = [e for e in ends if not is_same_objective(e, result.objective, rounding)]
    if not others:
        return f"All {len(ends)} candidates of step 3 led to this {_word(result)}. "
    worse = [e for e in others if math.isfinite(e)]
    rest = f"the next best has {min(worse):.6g}" if worse else "the others could not be fitted"
    led = len(ends) - len(others)
    return f"{led} of {len(ends)} candidates led to this {_word(result)}, {rest}. "


def _word(result: ResultData) -> str:
    return "objective" if result.criterion else "sum of squares"


def _rounding(result: ResultData) -> float:
    """Differences of the sum of squares that mean nothing."""
    weighted = result.points["measured"] / result.points["sigma"].fillna(1.0)
    return ROUNDING * float((weighted**2).sum())
