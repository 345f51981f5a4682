"""Profile likelihoods that were found: plain numbers, tables, pictures and sentences."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.json_form import Form, checked_types, plain, restored, write_json
from igpe.core.markup import bullets
from igpe.results.plots.uncertainty import Curve, plot_profiles
from igpe.results.result_text import number
from igpe.uncertainty.walk import End

FORMAT = 1  # of the JSON form
LATER = {"complete": True}  # what older files lack


@dataclass(frozen=True)
class ParameterProfile:
    """The profile likelihood of one unknown.

    name, unit          of the unknown
    estimate            at the optimum
    lower, upper        ends of the interval; a bound, or infinite, where the profile stays low
    lower_end           why it ends there: "" (the likelihood ratio), "bound reached", "open" (flat:
    upper_end           the measurements set no limit), "no solution beyond"
    values              (k,) of the unknown, increasing
    costs               (k,) least weighted sum of squares with the unknown held there
    others              (k, n) all unknowns there, in the order of `Profiles.names`
    """

    name: str
    unit: str
    estimate: float
    lower: float
    upper: float
    lower_end: str
    upper_end: str
    values: FloatArray = field(repr=False)
    costs: FloatArray = field(repr=False)
    others: FloatArray = field(repr=False)

    @property
    def determined(self) -> bool:
        """Whether the likelihood ratio ends the interval on both sides."""
        return not (self.lower_end or self.upper_end)

    @property
    def remark(self) -> str:
        """How it ends, in words; empty if on both sides by the likelihood ratio."""
        if self.lower_end == self.upper_end:
            return f"{self.lower_end} on both sides" if self.lower_end else ""
        sides = (("below", self.lower_end), ("above", self.upper_end))
        return ", ".join(f"{end} {side}" for side, end in sides if end)


@dataclass(frozen=True)
class Profiles:
    """Profile likelihoods with their intervals.

    names        of all unknowns that were free
    parameters   the optimum they are about;  objective  the sum of squares there
    rise         of the sum of squares at the ends: by chi squared, or by F if sigma is unknown
    confidence   of each interval
    profiles     one for each unknown asked for
    linearised   unknown -> (lower, upper) from the covariance, for comparison
    integrations of the whole model, with derivatives; 0 by collocation
    seconds      wall time
    notes        sentences worth reading
    complete     False if it was interrupted: only the finished profiles are there
    """

    names: tuple[str, ...]
    parameters: Mapping[str, float]
    objective: float
    rise: float
    confidence: float
    profiles: tuple[ParameterProfile, ...]
    linearised: Mapping[str, tuple[float, float]]
    integrations: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    complete: bool = True

    def __getitem__(self, name: str) -> ParameterProfile:
        """The profile of one unknown. Raises ProblemError if it has none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise ProblemError(
            f"There is no profile of '{name}'; there are {[p.name for p in self.profiles]}."
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each profile: estimate, its interval, the linearised one, unit, remark."""
        rows = [
            {
                "estimate": p.estimate,
                "lower": p.lower,
                "upper": p.upper,
                "linearised_lower": self.linearised[p.name][0],
                "linearised_upper": self.linearised[p.name][1],
                "unit": p.unit,
                "remark": p.remark,
            }
            for p in self.profiles
        ]
        return pd.DataFrame(rows, index=pd.Index([p.name for p in self.profiles], name="name"))

    def plot(self, axes: Any = None) -> Any:
        """Rise of the sum of squares over each unknown, with level and parabola; returns axes."""
        curves = [
            Curve(
                name=p.name,
                unit=p.unit,
                estimate=p.estimate,
                values=p.values,
                rises=(p.costs - self.objective) / self.rise,
                linearised=self.linearised[p.name],
            )
            for p in self.profiles
        ]
        return plot_profiles(curves, self.confidence, axes)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        whole = asdict(self) | self._form().head()
        whole["profiles"] = [
            asdict(p) | {n: getattr(p, n).tolist() for n in _ARRAYS} for p in self.profiles
        ]
        return plain(whole)  # type: ignore[no-any-return]

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text; also written to `path` if given."""
        return write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> "Profiles":
        """The profiles that `to_json` wrote, from its text or from the path of its file.

        raises DataError if there is no such file, or it holds no profiles of this form
        """
        return cls.from_dict(cls._form().read(source))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Profiles":
        """What `to_dict` returned. Raises DataError if it holds no profiles of this form."""
        stored = {**LATER, **cls._form().checked(stored)}
        with cls._form().intact():
            kept = {k: restored(stored[k]) for k in cls.__dataclass_fields__}
            profiles = tuple(
                ParameterProfile(**p | {n: np.array(p[n], dtype=float) for n in _ARRAYS})
                for p in kept["profiles"]
            )
            pairs = {n: (a, b) for n, (a, b) in kept["linearised"].items()}
            names, notes = tuple(kept["names"]), tuple(kept["notes"])
            whole = {"profiles": profiles, "linearised": pairs, "names": names, "notes": notes}
            return checked_types(cls(**kept | whole))

    @classmethod
    def _form(cls) -> Form:
        return Form(
            "set of profiles", "Profiles", FORMAT, tuple(set(cls.__dataclass_fields__) - set(LATER))
        )

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("", "estimate", f"{100 * self.confidence:g} % interval", "linearised", "", "")
        ]
        rows += [_cells(p, self.linearised[p.name]) for p in self.profiles]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        told = (
            f"Profile likelihood; the sum of squares {self.objective:.6g} may rise by "
            f"{self.rise:.4g}."
        )
        return "\n".join([*lines, "", told, *self.notes])

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(float_format="{:.6g}".format)
        return f"{table}{bullets(self.notes)}"


_ARRAYS = ("values", "costs", "others")


def _cells(p: ParameterProfile, linearised: tuple[float, float]) -> tuple[str, ...]:
    error = (p.upper - p.lower) / 4
    error = error if math.isfinite(error) else math.nan

    def told(pair: tuple[float, float]) -> str:
        low, high = (number(v, error) or "?" for v in pair)
        return f"[{low}, {high}]"

    value = number(p.estimate, error)
    return p.name, value, told((p.lower, p.upper)), told(linearised), p.unit, p.remark


def sentences(profiles: tuple[ParameterProfile, ...]) -> list[str]:
    """What is not determined in practice, in words."""
    found = []
    for p in profiles:
        sides = {"below": p.lower_end, "above": p.upper_end}
        flat = [side for side, end in sides.items() if end == End.OPEN.value]
        broken = [side for side, end in sides.items() if end == End.BROKEN.value]
        if flat:
            found.append(
                f"{p.name} is not identifiable in practice: {' and '.join(flat)} its estimate the "
                "fit hardly becomes worse, whatever the value."
            )
        if broken:
            found.append(
                f"The profile of {p.name} could not be followed to its end "
                f"({' and '.join(broken)}): further away the model breaks down, or its constraints "
                "cannot be kept."
            )
    return found
