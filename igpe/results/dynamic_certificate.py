"""What is proved of the dynamic least-squares problem, with the tree of boxes that proves it.

What step 3 proved, in one sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pandas as pd

from igpe.core.arguments import is_finite
from igpe.core.errors import DataError
from igpe.core.estimates import relative_gap
from igpe.core.json_form import Form, Stored, restored
from igpe.core.status import Status
from igpe.results.plots.axes import DrawnBox, plot_boxes

STOPPED = {
    Status.TIME_LIMIT: ", stopped at its time limit",
    Status.INTERRUPTED: ", stopped by you",
    Status.INTEGRATION_BROKE: ", stopped at boxes whose solutions cannot be enclosed",
}


@dataclass(frozen=True)
class Certificate:
    """What step 3 proved about one algebraic problem.

    unknowns      it estimated, within these `bounds`;  undetermined: those its data do not tell
    origin        smoothing and residuals it was posed with
    slopes        states whose slopes it fits, in these `experiments`
    objective     weighted sum of squared slope residuals
    lower_bound   of it, proven; -inf if nothing is
    """

    unknowns: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    undetermined: tuple[str, ...]
    origin: str
    slopes: tuple[str, ...]
    experiments: tuple[str, ...]
    method: str
    objective: float
    lower_bound: float
    status: Status

    @property
    def gap(self) -> float:
        """Distance of the bound relative to the objective."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def sentence(self) -> str:
        """The problem, what is proved of it and how, and what that does not say."""
        where = f" in {len(self.experiments)} experiments" if len(self.experiments) > 1 else ""
        lost = (
            f"; they do not determine {', '.join(self.undetermined)}" if self.undetermined else ""
        )
        return (
            f"{self._unknowns}, fitted to {self.origin} of {', '.join(self.slopes)}{where}: "
            f"{self._proved}{lost}."
        )

    @property
    def _unknowns(self) -> str:
        return ", ".join(
            f"{', '.join(name for name, _ in same)} in [{low:g}, {high:g}]"
            for (low, high), same in _runs(self.unknowns, self.bounds)
        )

    @property
    def _proved(self) -> str:
        found = f"sum of squares {self.objective:.6g}"
        about = "this is about these slopes, not about the fit to the measurements"
        if self.status is Status.GLOBAL_BY_CONVEXITY:
            return f"globally optimal by convexity ({self.method}, {found}); {about}"
        by = self.method + STOPPED.get(self.status, "")
        best = f"{self.objective:.6g} is the least sum of squares found ({by})"
        if not math.isfinite(self.lower_bound):
            return f"{best}; nothing is proved"
        if self.lower_bound <= 0:
            return f"{best}; its bound is still 0, so nothing is proved"
        return (
            f"no parameters within the bounds have a sum of squares below {self.lower_bound:.6g}, "
            f"{100 * self.gap:.2g} % under the {self.objective:.6g} found ({by}); {about}"
        )


def _runs(
    names: Sequence[str], bounds: Sequence[tuple[float, float]]
) -> list[tuple[tuple[float, float], list[tuple[str, tuple[float, float]]]]]:
    """Neighbours of the same bounds together."""
    pairs = zip(names, bounds, strict=True)
    return [(key, list(same)) for key, same in groupby(pairs, key=lambda pair: pair[1])]


@dataclass(frozen=True)
class TreeBox:
    """One box of the tree.

    lower, upper  (n,) its bounds
    reason        "split": its children share a side, and are the box;
                  "contracted": outside its child no parameters are below the cut;
                  "bound": none in it are;  "open": not decided
    children      their places in the tree
    bound         proven on the sum of squares over the box
    rows          how many residuals, in the certificate's order, the enclosure went through
    multipliers   of the residuals where the bound is theirs, else none
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    reason: str
    children: tuple[int, ...] = ()
    bound: float = 0.0
    rows: int = 0
    multipliers: tuple[float, ...] = ()


@dataclass(frozen=True)
class DynamicCertificate(Stored, name="certificate", number="igpe dynamic certificate 1"):
    """A proven lower bound on the weighted sum of squares, for all parameters within the bounds.

    It is about the differential equations themselves: the error of discretisation is enclosed.
    Rounding is covered by explicit allowances in plain doubles; library functions (exp, log, sin,
    cos, powers) are taken to be right to four units in the last place.

    unknowns      names (n,), within lower, upper (n,)
    parameters    (n,) the best found
    objective     proven upper bound of the sum of squares there
    lower_bound   proven for all parameters within the bounds
    cut           that every decided box is proven to exceed; equals lower_bound if none is open
    gap_wanted    relative distance that was asked for
    status        how the search ended
    seconds       wall time
    examined      how many boxes were enclosed
    open_share    share of the whole box's volume that is not decided
    rows          (experiment, time, quantity) of each residual; priors have no experiment
    tree          the boxes; the first is the whole
    """

    unknowns: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    parameters: tuple[float, ...]
    objective: float
    lower_bound: float
    cut: float
    gap_wanted: float
    status: Status
    seconds: float
    examined: int
    open_share: float
    rows: tuple[tuple[str, float, str], ...]
    tree: tuple[TreeBox, ...]

    @property
    def gap(self) -> float:
        """Distance of the bound relative to the objective."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def closed(self) -> bool:
        """Return True if every box is decided, and the bound is a number."""
        return self.status is Status.OPTIMAL_WITHIN_GAP and not math.isnan(self.lower_bound)

    @property
    def remaining(self) -> pd.DataFrame:
        """The boxes that are not decided, least bound first: bound, and each unknown's bounds."""
        found = [b for b in self.tree if b.reason == "open"]
        columns: dict[str, list[float]] = {"bound": [b.bound for b in found]}
        for j, name in enumerate(self.unknowns):
            columns[f"{name} from"] = [b.lower[j] for b in found]
            columns[f"{name} to"] = [b.upper[j] for b in found]
        return pd.DataFrame(columns).sort_values("bound", ignore_index=True)

    @property
    def sentence(self) -> str:
        """What is proved, and of what."""
        decided = 100 * min(max(1 - self.open_share, 0.0), 1.0)  # sums of shares are rounded
        box = ", ".join(
            f"{n} in [{a:g}, {b:g}]"
            for n, a, b in zip(self.unknowns, self.lower, self.upper, strict=True)
        )
        about = (
            "of the differential equations themselves, their discretisation enclosed "
            f"({self.examined} boxes)"
        )
        stopped = STOPPED.get(self.status, "")
        if not self.lower_bound > 0 and not (self.closed and self.lower_bound <= 0):  # or is nan
            return (
                f"Nothing is proved{stopped}: {self.objective:.6g} is the least sum of squares "
                f"found for {box}; {decided:.3g} % of this box is ruled out."
            )
        if self.lower_bound <= 0:
            return (
                f"The sum of squares found, {self.objective:.3g}, is 0 but for rounding, so that "
                f"no parameters fit better: {box}."
            )
        left = "" if self.closed else f"; {100 * self.open_share:.3g} % of the box is not decided"
        return (
            f"No parameters with {box} have a sum of squares below {self.lower_bound:.8g}, "
            f"{100 * max(self.gap, 0.0):.2g} % under the {self.objective:.8g} found: proved "
            f"{about}{stopped}{left}."
        )

    def __str__(self) -> str:
        return self.sentence

    def plot(self, axes: Any = None) -> Any:
        """The boxes over the plane of two unknowns: `igpe.results.plots.axes.plot_boxes`."""
        boxes = [DrawnBox(b.lower, b.upper, b.reason) for b in self.tree]
        return plot_boxes(
            boxes,
            self.parameters,
            axes,
            unknowns=self.unknowns,
            lower=self.lower,
            upper=self.upper,
        )

    def entries(self) -> dict[str, Any]:
        """What is stored; docs/certificate.md tells what each entry means."""
        names = ("objective", "lower_bound", "cut", "status", "seconds", "examined", "open_share")
        return {
            "unknowns": self.unknowns,
            "lower": self.lower,
            "upper": self.upper,
            "point": self.parameters,
            "gap": self.gap_wanted,
            **{n: getattr(self, n) for n in names},
            "rows": self.rows,
            "tree": [_written(box) for box in self.tree],
        }

    @classmethod
    def form(cls) -> Form:
        """How stored ones are known, and the entries that they must have."""
        needed = ("unknowns", "lower", "upper", "lower_bound", "objective", "tree")
        return super().form()._replace(entries=needed)

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> "DynamicCertificate":
        """Undo `entries`. Raises DataError for numbers that prove nothing."""
        given = restored(stored)
        for name in ("objective", "lower_bound", "cut"):
            if not is_finite(given[name]):
                raise DataError(
                    f"The certificate's {name} is {given[name]}, not a finite number, so that it "
                    "proves nothing. Run igpe.certify again."
                )
        if len({len(given[name]) for name in ("unknowns", "lower", "upper", "point")}) > 1:
            raise ValueError("there are not as many bounds as unknowns")
        return cls(
            unknowns=tuple(given["unknowns"]),
            lower=tuple(given["lower"]),
            upper=tuple(given["upper"]),
            parameters=tuple(given["point"]),
            **{k: given[k] for k in ("objective", "lower_bound", "cut", "seconds", "examined")},
            gap_wanted=given["gap"],
            status=Status[given["status"]],
            open_share=given["open_share"],
            rows=tuple((e, math.nan if t is None else t, n) for e, t, n in given["rows"]),
            tree=tuple(_read(box) for box in given["tree"]),
        )

    def without_tree(self) -> "DynamicCertificate":
        """The same without its boxes, which can be many."""
        return replace(self, tree=())


def _written(box: TreeBox) -> dict[str, Any]:
    found: dict[str, Any] = {
        "lower": box.lower,
        "upper": box.upper,
        "reason": box.reason,
        "children": box.children,
        "bound": box.bound,
        "rows": box.rows,
    }
    return found | ({"u": box.multipliers} if box.multipliers else {})


def _read(stored: dict[str, Any]) -> TreeBox:
    return TreeBox(
        tuple(stored["lower"]),
        tuple(stored["upper"]),
        stored["reason"],
        tuple(stored["children"]),
        stored.get("bound", 0.0),
        stored.get("rows", 0),
        tuple(stored.get("u", ())),
    )
