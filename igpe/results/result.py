"""What an estimation found: plain numbers, tables and sentences, without the model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from igpe.core.files import write
from igpe.core.json_form import Form, checked_types, frame, plain, restored, write_json
from igpe.core.status import Status
from igpe.results.dynamic_certificate import Certificate, DynamicCertificate
from igpe.results.plots.fit import plot_fit
from igpe.results.report import TITLE, page
from igpe.results.residual_table import Adequacy
from igpe.results.result_data import Candidate, Optimum, Parameter, ResultData, html, text, verdict
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
    "criterion": "",
}  # what older results did not keep


@dataclass(frozen=True)
class Result(ResultData):
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
    criterion     what the objective is, where it is not a sum of squares
    """

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
