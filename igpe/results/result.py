"""What an estimation found: plain numbers, tables and sentences, without the model."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.files import write
from igpe.core.json_form import Form, checked_types, frame, plain, restored, write_json
from igpe.core.status import Status
from igpe.numerics.statistics.covariance import correlation
from igpe.numerics.statistics.ellipse import ellipse
from igpe.numerics.statistics.weakness import combinations
from igpe.results.adequacy import Adequacy
from igpe.results.certificate import Certificate
from igpe.results.dynamic_certificate import DynamicCertificate
from igpe.results.plots.fit import plot_fit
from igpe.results.report.page import TITLE, page
from igpe.results.residual_table import outliers, residual_table, sigma_known
from igpe.results.result_text import html, text, verdict
from igpe.results.structure_map import StructureMap

FORMAT = 1  # of the JSON form
TEXTS = "experiment", "name", "unit"
POINTS = "time", "measured", "fitted", "residual", "sigma"
LEVER = {"leverage"}  # which older results do not have
CURVES = "time", "fitted", "smoothed", "smoothed_error"
LATER: dict[str, Any] = {
    "settings": "",
    "maps": [],
    "proof": None,
    "adequacy": None,
    "other_optima": [],
}  # what older results did not keep


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
class Result:
    """Estimates with their uncertainty and how they came about.

    estimates     one `Parameter` per unknown
    objective     weighted sum of squared residuals (+ priors), by accurate integration
    status        how step 5 ended
    covariance    (n, n), of the first n `estimates`; those after them were held
    measurements  number of them;  degrees: measurements - unknowns not on a bound
    variance      estimated variance of a residual of weight 1; 1 if sigma was given
    probability   of a larger chi squared; NaN if sigma was not given
    confidence    of the intervals
    certificates  what step 3 proved;  candidates: all ways that were tried, best first
    structure     the report of step 2, as text
    points        experiment, name, time, measured, fitted, residual, sigma (with which it was
                  fitted, whatever it follows), unit, leverage
    curves        experiment, name, time, fitted, smoothed, smoothed_error on a fine grid
    seconds       wall time of each step;  versions: of the packages;  seed: of the search
    notes         sentences worth reading;  settings: how the steps were carried out, as text
    maps          which equations give what, and which parameters: as `Structure.maps`
    proof         what `igpe.certify` proved, without its boxes; None if it was not asked for
    adequacy      whether the model fits: one verdict by all tests of the residuals; None in results
                  that older versions stored
    other_optima  all other optima that are known whose objective is within the threshold of the
                  likelihood ratio (F test, if sigma is unknown) at `confidence`, best first
    """

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

    def plot(self, axes: Any = None) -> Any:
        """Data, smoothed band and fitted model, one panel per measured quantity; returns axes."""
        return plot_fit(self.points, self.curves, axes)

    def report(self, path: str | Path | None = None, *, title: str = TITLE, date: str = "") -> str:
        """One self-contained page of HTML, also written to `path` if given.

        title  its heading;  date: stands below it as given, none by itself
        """
        written = page(self, title, date)
        if path is not None:
            write(path, written)
        return written

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows: NaN is None, infinity {"number": "Infinity"}."""
        whole = (
            self._form().head()
            | asdict(self)
            | {
                "parameters": self.parameters,
                "status": self.status.name,
                "message": verdict(self),
                "covariance": self.covariance.tolist(),
                "points": self.points.to_dict("list"),
                "curves": self.curves.to_dict("list"),
                "proof": None if self.proof is None else self.proof.to_dict(),
            }
        )
        return plain(whole)  # type: ignore[no-any-return]

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text; also written to `path` if given."""
        return write_json(self.to_dict(), path)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Result":
        """The result that `to_dict` stored. Raises DataError if it is nothing of the kind."""
        stored = {**LATER, **cls._form().checked(stored)}
        with cls._form().intact():
            return checked_types(cls._restored(stored))

    @classmethod
    def _restored(cls, stored: Mapping[str, Any]) -> "Result":
        kept = {k: restored(stored[k]) for k in cls.__dataclass_fields__}
        return cls(
            **kept
            | {
                "status": Status[stored["status"]],
                "covariance": np.array(kept["covariance"], dtype=float),
                "estimates": _parameters(kept["estimates"]),
                "other_optima": tuple(
                    Optimum(_parameters(o["estimates"]), o["objective"])
                    for o in kept["other_optima"]
                ),
                "candidates": tuple(
                    Candidate(**c | {"status": Status[c["status"]]}) for c in kept["candidates"]
                ),
                "certificates": tuple(Certificate.restored(c) for c in kept["certificates"]),
                "points": frame(
                    kept["points"], TEXTS, [*POINTS, *LEVER.intersection(kept["points"])]
                ),
                "curves": frame(kept["curves"], TEXTS[:2], CURVES),
                "notes": tuple(kept["notes"]),
                "maps": tuple(map(StructureMap.restored, kept["maps"])),
                "proof": DynamicCertificate.restored(stored["proof"]),
                "adequacy": Adequacy.restored(stored["adequacy"] and kept["adequacy"]),
            }
        )

    @classmethod
    def from_json(cls, source: str | Path) -> "Result":
        """The result that `to_json` wrote, from its text or from the path of its file.

        raises DataError if there is no such file, or it holds no result of this form
        """
        return cls.from_dict(cls._form().read(source))

    @classmethod
    def _form(cls) -> Form:
        return Form("result", "Result", FORMAT, tuple(set(cls.__dataclass_fields__) - set(LATER)))

    def __repr__(self) -> str:
        found = ", ".join(f"{p.name}={p.value:.6g}" for p in self.estimates)
        return f"Result({found}; objective {self.objective:.6g}; {self.status.name})"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)


def _parameters(stored: list[dict[str, Any]]) -> tuple[Parameter, ...]:
    return tuple(Parameter(**e | {"bounds": tuple(e["bounds"])}) for e in stored)


def _weights(points: pd.DataFrame) -> FloatArray:
    return points["sigma"].fillna(1.0).to_numpy(dtype=float)
