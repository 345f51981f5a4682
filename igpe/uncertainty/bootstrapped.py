"""What the bootstrap found: replications, and intervals from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.json_form import Form, checked_types, frame, plain, restored, write_json
from igpe.core.markup import bullets
from igpe.results.plots.uncertainty import plot_bootstrap
from igpe.results.result_text import number

FORMAT = 1  # of the JSON form
WIDER = "sigma_drawn"  # column: sigma of a replication in those that the residuals tell
KINDS = ("", "percentile_", "basic_")  # of intervals
UNBIASED: Final = "weibull"  # the (n + 1) p-th of n draws: a further one is below with chance p
FEW = 100  # replications below which the ends of intervals are rough


@dataclass(frozen=True)
class Bootstrapped:
    """Estimates from measurements as they might have come out.

    estimate      unknown -> value, of the measurements themselves;  units: of the unknowns
    replications  one row for each refit, indexed by its number: status, objective, the unknowns,
                  and with few degrees of freedom the sigma that was drawn, in residual deviations
    asked         how many were asked for;  complete: False if it was interrupted
    kind          how errors were drawn, in words;  seed: of the errors
    confidence    of the intervals
    acceleration  unknown -> that of its BCa interval
    undetermined  unknowns that the measurements do not determine: refits leave them where they were
    notes         sentences worth reading
    """

    estimate: Mapping[str, float]
    units: Mapping[str, str]
    replications: pd.DataFrame = field(repr=False)
    asked: int
    complete: bool
    kind: str
    seed: int
    confidence: float
    acceleration: Mapping[str, float]
    undetermined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> pd.DataFrame:
        """Of the refits that converged: one row each, one column for each unknown."""
        good = self.replications["status"] == "CONVERGED"
        return self.replications.loc[good, list(self.estimate)].astype(float)

    @property
    def failed(self) -> int:
        """Refits that did not converge; they count in no interval."""
        return len(self.replications) - len(self.parameters)

    @property
    def correlation(self) -> pd.DataFrame:
        """Of the replications; NaN for unknowns that never move."""
        return self.parameters.corr()

    def to_frame(self) -> pd.DataFrame:
        """Estimate, standard error, bias (mean of the refits - estimate) and three intervals.

        lower, upper        BCa: percentiles corrected for bias and skewness (Efron 1987)
        percentile_lower, percentile_upper    of the refits
        basic_lower, basic_upper              2 estimate - percentiles
        """
        rows = {n: self._row(n) for n in self.estimate}
        table = pd.DataFrame.from_dict(rows, orient="index")
        return table.rename_axis("name")

    def plot(self, axes: Any = None) -> Any:
        """A histogram of each unknown with estimate and interval; returns axes."""
        return plot_bootstrap(self.parameters, self.to_frame(), self.confidence, axes)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        told = {n: getattr(self, n) for n in self.__dataclass_fields__}
        table = self.replications.reset_index(names="replication")
        return plain(  # type: ignore[no-any-return]
            told | {"replications": table.to_dict("list")} | self._form().head()
        )

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text; also written to `path` if given."""
        return write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> "Bootstrapped":
        """What `to_json` wrote, from its text or from the path of its file.

        raises DataError if there is no such file, or it holds no bootstrap of this form
        """
        stored = cls._form().read(source)
        with cls._form().intact():
            kept = {n: restored(stored[n]) for n in cls.__dataclass_fields__}
            table = frame(kept["replications"], ("status",), ("objective", *kept["estimate"]))
            several = {n: tuple(kept[n]) for n in ("undetermined", "notes")}
            return checked_types(
                cls(**kept | several | {"replications": table.set_index("replication")})
            )

    @classmethod
    def _form(cls) -> Form:
        return Form("bootstrap", "Bootstrapped", FORMAT, tuple(cls.__dataclass_fields__))

    @property
    def _wider(self) -> FloatArray:
        """(n,) or one number: by which the errors of the refits were multiplied."""
        if WIDER not in self.replications:
            return np.ones(1)
        drawn = self.replications.loc[self.parameters.index, WIDER]
        return np.asarray(drawn, dtype=float)

    def _row(self, name: str) -> dict[str, Any]:
        if name in self.undetermined:
            sides = {"lower": -np.inf, "upper": np.inf}
            limits = {f"{kind}{side}": v for kind in KINDS for side, v in sides.items()}
            told = {"estimate": self.estimate[name], "standard_error": np.inf, "bias": np.nan}
            return told | limits | {"unit": self.units[name]}
        values = self.parameters[name].to_numpy()
        value, tail = self.estimate[name], (1 - self.confidence) / 2
        ends = np.array([tail, 1 - tail])
        low, high = _quantiles(values, ends)
        lower, upper = _quantiles(values, _bca(values, value, ends, self.acceleration[name]))
        level = value + (values - value) / self._wider  # as if sigma were known
        several = len(values) > 1
        return {
            "estimate": value,
            "standard_error": float(np.std(level, ddof=1)) if several else np.nan,
            "bias": float(np.mean(level)) - value if len(values) else np.nan,
            "lower": lower,
            "upper": upper,
            "percentile_lower": low,
            "percentile_upper": high,
            "basic_lower": 2 * value - high,
            "basic_upper": 2 * value - low,
            "unit": self.units[name],
        }

    def __str__(self) -> str:
        rows = [("", "estimate", "± standard error", f"{100 * self.confidence:g} % interval", "")]
        for name, row in self.to_frame().iterrows():
            error = float(row["standard_error"])
            if not np.isfinite(error):
                rows.append((str(name), number(row["estimate"]), "not determined", "", row["unit"]))
                continue
            ends = ", ".join(number(row[end], error) for end in ("lower", "upper"))
            value = number(row["estimate"], error)
            rows.append((str(name), value, f"± {error:.2g}", f"[{ends}]", row["unit"]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        told = f"{len(self.parameters)} refits, {self.kind}, seed {self.seed}; BCa intervals."
        return "\n".join([*lines, "", told, *self.notes])

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(float_format="{:.6g}".format)
        return f"{table}{bullets(self.notes)}"


def _quantiles(values: FloatArray, at: FloatArray) -> tuple[float, float]:
    if len(values) == 0 or not np.isfinite(at).all():
        return np.nan, np.nan
    low, high = np.quantile(values, at, method=UNBIASED)
    return float(low), float(high)


def _bca(values: FloatArray, estimate: float, ends: FloatArray, acceleration: float) -> FloatArray:
    """(2,) levels of the percentiles (Efron, Better bootstrap confidence intervals, 1987, eq. 2.3).

    Values that equal the estimate count half: refits on a bound are the estimate again.
    """
    if len(values) == 0:
        return np.array([np.nan, np.nan])
    below = np.mean(values < estimate) + np.mean(values == estimate) / 2
    edge = 0.5 / len(values)
    bias = special.ndtri(min(max(float(below), edge), 1 - edge))
    z = bias + special.ndtri(ends)
    return np.asarray(special.ndtr(bias + z / (1 - acceleration * z)))


def remarks(found: pd.DataFrame, asked: int, on_bound: list[str], degrees: int) -> list[str]:
    """What to know of the replications, in sentences."""
    told = []
    if WIDER in found:
        told.append(
            f"The residuals leave {degrees} degrees of freedom, so sigma itself is uncertain. "
            "Errors were drawn with a drawn sigma, which makes intervals like those of Student's t."
        )
    failed = int((found["status"] != "CONVERGED").sum())
    if failed:
        told.append(
            f"{failed} of {len(found)} refits did not converge and count in no interval; if they "
            "are many, the intervals are too short."
        )
    if len(found) < asked:
        told.append(f"Interrupted: {len(found)} of {asked} replications were made.")
    if len(found) < FEW:
        told.append(f"{len(found)} replications make rough intervals; some hundreds are better.")
    if on_bound:
        told.append(
            f"{', '.join(on_bound)} {'lie' if len(on_bound) > 1 else 'lies'} on a bound, where the "
            "bootstrap is not exact; igpe.profile is."
        )
    return told
