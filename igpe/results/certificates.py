"""Proofs: of the algebraic problems of step 3, and of the dynamic least-squares problem.

The latter holds the tree of boxes that proves it; a certified region says where parameters that
explain the data may and may not lie.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arguments import is_finite
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.core.estimates import relative_gap
from igpe.core.json_form import Form, Stored, made, restored
from igpe.core.markup import (
    Rows,
    Shown,
    Suggesting,
    at_side,
    counted,
    number,
    on_side,
    ratio_in_words,
)
from igpe.core.status import Status
from igpe.results.plots.axes import Plot, plot_bounds, plot_boxes, plot_certified_intervals

STOPPED = {
    Status.TIME_LIMIT: ", stopped at the time limit",
    Status.INTERRUPTED: ", stopped by you",
    Status.INTEGRATION_BROKE: ", stopped because solutions in some boxes could not be enclosed",
}


NEAR_ALL = 0.995  # from which two digits would be 100 %


def _per_cent(gap: float) -> str:
    """A relative gap, rounded down where it is nearly all."""
    return f"{100 * max(gap, 0.0):.2g}" if gap < NEAR_ALL else f"{math.floor(1e4 * gap) / 100:g}"


STATE_BOUNDS = "does not enforce bounds of states, and some are active"
ENDS = ["outer_lower", "inner_lower", "inner_upper", "outer_upper"]
STORED_AS = {"parameters": "point", "gap_wanted": "gap", "multipliers": "u"}
"""Name of a field -> of its entry in a file, where they differ."""


@dataclass(frozen=True)
class Certificate(Suggesting):
    """Result of step 3 for one algebraic problem, with the proved lower bound.

    unknowns      names of the estimated unknowns, with their `bounds`; undetermined: those that the
                  data do not determine
    origin        smoothing method and residuals of the problem
    slopes        states whose slopes are fitted, in these `experiments`
    objective     weighted sum of squared slope residuals
    lower_bound   proven lower bound on the objective; -inf if nothing is proven
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
        """Relative gap between the bound and the objective."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def sentence(self) -> str:
        """Description of the problem, of the proof and its method, and of what the proof does not
        cover."""
        pairs = zip(self.unknowns, self.bounds, strict=True)
        sought = ", ".join(
            f"{', '.join(name for name, _ in same)} in [{low:g}, {high:g}]"
            for (low, high), same in groupby(pairs, key=lambda pair: pair[1])
        )
        where = f" in {len(self.experiments)} experiments" if len(self.experiments) > 1 else ""
        is_lost = self.undetermined and math.isfinite(self.objective)
        lost = f"; the slopes do not determine {', '.join(self.undetermined)}" if is_lost else ""
        slopes = ", ".join(self.slopes)
        return f"{sought}, fitted to {self.origin} of {slopes}{where}: {self._proved}{lost}."

    @property
    def _proved(self) -> str:
        about = "this refers to the slopes, not to the fit to the measurements"
        least, by = f"{self.objective:.6g}", self.method + STOPPED.get(self.status, "")
        if self.status is Status.GLOBAL_BY_CONVEXITY:
            return f"globally optimal by convexity ({self.method}, sum of squares {least}); {about}"
        if not math.isfinite(self.objective):
            return (
                f"the search found no values at which these slopes are finite ({by}); nothing "
                "is proved"
            )
        if not self.lower_bound > 0 or not math.isfinite(self.lower_bound):
            why = "the lower bound is still 0, so " * math.isfinite(self.lower_bound)
            return f"{least} is the smallest sum of squares reached ({by}); {why}nothing is proved"
        return (
            "no parameter values within the bounds have a sum of squares below "
            f"{at_side(self.lower_bound, 6, -1)} "
            f"({_per_cent(self.gap)} % below the best, {least}; method: "
            f"{by}); {about}"
        )


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


FIELDS = [f.name for f in fields(TreeBox)]


@dataclass(frozen=True, repr=False)
class DynamicCertificate(Shown, Stored, name="certificate", number="igpe dynamic certificate 1"):
    """A proven lower bound on the weighted sum of squares within the bounds of the parameters.

    The bound holds for the differential equations themselves, because it includes the error of
    discretisation. Explicit allowances cover the rounding errors of double precision. Library
    functions (exp, log, sin, cos, powers) are assumed to be accurate to four units in the last
    place.

    unknowns      names of the n unknowns
    lower, upper  (n,) bounds of the unknowns
    parameters    (n,) the best parameter values found
    objective     proven upper bound on the sum of squares at `parameters`
    lower_bound   lower bound on the sum of squares, proven for all parameter values within the
                  bounds
    cut           value that the sum of squares provably exceeds in every decided box; equals
                  `lower_bound` if all boxes are decided
    gap_wanted    requested relative gap
    status        the `Status` with which the search ended
    seconds       wall time
    examined      number of boxes whose solutions were enclosed
    open_share    fraction of the full box's volume that is not decided
    rows          (experiment, time, quantity) of each residual; the experiment is empty for priors
    tree          the boxes; the first is the full box
    relative_sigma  a dict {quantity: assumed relative standard deviation of its residuals}, for
                    quantities without a given standard deviation
    sigma         for each experiment, the standard deviations of its measurements if a noise model
                  (`igpe.Noise`) gives them; else empty
    sigma_at      a dict {unknown: value}: the parameter values at which the noise model gave
                  `sigma`
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
    relative_sigma: Mapping[str, float] = field(default_factory=dict)
    sigma: tuple[tuple[float, ...], ...] = ()
    sigma_at: Mapping[str, float] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Relative gap between the bound and the objective."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def closed(self) -> bool:
        """Return True if every box is decided and the lower bound is not NaN."""
        return self.status is Status.OPTIMAL_WITHIN_GAP and not math.isnan(self.lower_bound)

    @property
    def remaining(self) -> pd.DataFrame:
        """Table of undecided boxes, smallest lower bound first, with the bounds of each unknown."""
        names = ["bound", *(f"{n} {end}" for n in self.unknowns for end in ("from", "to"))]
        rows = [
            [b.bound, *(end for side in zip(b.lower, b.upper, strict=True) for end in side)]
            for b in self.tree
            if b.reason == "open"
        ]
        return pd.DataFrame(rows, columns=names).sort_values("bound", ignore_index=True)

    @property
    def sentence(self) -> str:
        """State what is proved, and for which problem."""
        return self._stated("with " + self._bounds_in_words())

    def _bounds_in_words(self) -> str:
        bounds = zip(self.unknowns, self.lower, self.upper, strict=True)
        return ", ".join(f"{n} in [{a:g}, {b:g}]" for n, a, b in bounds)

    def _stated(self, where: str) -> str:
        """The sentence, with words for the bounds."""
        stopped = STOPPED.get(self.status, "")
        if not self.lower_bound > 0 and not (self.closed and self.lower_bound <= 0):  # or is nan
            decided = 100 * min(max(1 - self.open_share, 0.0), 1.0)  # sums of shares are rounded
            return (
                f"No lower bound above 0 is proved ({counted(self.examined, 'box')}{stopped}). "
                f"The smallest sum of squares reached {where} is {self.objective:.6g}; "
                f"{decided:.3g} % of the box is ruled out."
            )
        if self.lower_bound <= 0:
            return (
                f"The sum of squares is 0 up to rounding, so no parameter values {where} fit "
                "better."
            )
        left = "" if self.closed else f"; {100 * self.open_share:.3g} % of the box is undecided"
        least = at_side(self.lower_bound, 8, -1)
        return (
            f"No parameter values {where} have a sum of squares below {least} "
            f"({_per_cent(self.gap)} % below the best, {self.objective:.8g}): proved for "
            "the differential equations themselves, including the discretisation error "
            f"({counted(self.examined, 'box')}{stopped}){left}.{self._premise}"
        )

    @property
    def holds_weights(self) -> bool:
        """Return True if the proof holds only for weights that igpe took from the estimate."""
        return bool(self.sigma) or len(self.relative_sigma) > 1

    @property
    def _premise(self) -> str:
        if self.sigma:
            at = ", ".join(f"{name} = {value:.6g}" for name, value in self.sigma_at.items())
            return f" The standard deviations are fixed at those of the noise model for {at}."
        if not self.relative_sigma:
            return ""
        names, ratio = ", ".join(self.relative_sigma), ratio_in_words(self.relative_sigma.values())
        return f" The residuals of {names} have standard deviations in the estimated ratio {ratio}."

    def _shown(self) -> tuple[list[Rows], list[str]]:
        boxes = zip(self.unknowns, self.parameters, self.lower, self.upper, strict=True)
        rows = [(name, f"{best:.6g}", f"{a:.6g} … {b:.6g}") for name, best, a, b in boxes]
        return [[("", "best", "bounds"), *rows]], [self._stated("within these bounds")]

    def plot(self, axes: Any = None) -> Plot:
        """Plot the boxes if there are two unknowns; else plot the bound during the search."""
        is_plane = len(self.unknowns) == 2  # noqa: PLR2004
        return (plot_boxes if is_plane else plot_bounds)(self, axes)

    def entries(self) -> dict[str, Any]:
        """Return the stored entries, which docs/certificate.md describes."""
        stored = {STORED_AS.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}
        boxes = [
            {STORED_AS.get(name, name): value for name, value in vars(box).items()}
            for box in self.tree
        ]
        return stored | {"tree": [{k: v for k, v in b.items() if k != "u" or v} for b in boxes]}

    @classmethod
    def form(cls) -> Form:
        """Return the kind of the stored file and the entries that it must have."""
        needed = ("unknowns", "lower", "upper", "lower_bound", "objective", "tree")
        return super().form()._replace(entries=needed)

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> "DynamicCertificate":
        """Read the stored entries.

        raises DataError if the objective, lower bound or cut is not finite
        """
        # the first versions did not write these
        stored = {"relative_sigma": {}, "sigma": [], "sigma_at": {}, **stored}
        given = {f.name: stored[STORED_AS.get(f.name, f.name)] for f in fields(cls)}
        for name in ("objective", "lower_bound", "cut"):
            if not is_finite(restored(given[name])):
                raise DataError(
                    f"The certificate's {name} is {restored(given[name])}, not a finite number; "
                    "the certificate proves nothing. Run igpe.certify again."
                )
        if len({len(given[name]) for name in ("unknowns", "lower", "upper", "parameters")}) > 1:
            raise ValueError("the numbers of bounds and unknowns differ")
        return made(cls, given, {"tree": tuple(map(_read, restored(given["tree"])))})

    def without_tree(self) -> "DynamicCertificate":
        """Return the certificate without its boxes, of which there can be many."""
        return replace(self, tree=())


def _read(stored: Mapping[str, Any]) -> TreeBox:
    given = ((n, stored.get(STORED_AS.get(n, n))) for n in FIELDS)
    box: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in given if v is not None
    }
    return TreeBox(**box)


ROUNDED = 1e-6  # of the rise: more than its rounding
LIMITED, REACHED, UNDECIDED = "limited", "reaches its bound", "not decided"


@dataclass(frozen=True)
class SeparateRegion:
    """One box of a certified region: outside all boxes, no parameter values fit well enough.

    lower, upper  (n,) corners of the box
    parameters    (n,) the best known point of the box; objective: proven upper bound at this point
    inside        points (n,) that are proved to belong to the region, with the lowest and highest
                  known value of each unknown. Empty: no point of the box is proved to belong to the
                  region
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    parameters: tuple[float, ...]
    objective: float
    inside: tuple[tuple[float, ...], ...]

    @property
    def inner(self) -> FloatArray:
        """(2, n) lowest and highest proved value of each unknown; NaN if none is proved."""
        points = np.array(self.inside)
        if not points.size:
            return np.full((2, len(self.lower)), np.nan)
        return np.stack([points.min(axis=0), points.max(axis=0)])


POOLED = (
    "The region counts the degrees of freedom of all quantities together. Intervals of a result "
    "count those of each quantity, and may be longer."
)


@dataclass(frozen=True, repr=False, kw_only=True)
class CertifiedRegion(DynamicCertificate, name="certificate", number="igpe dynamic certificate 1"):
    """A likelihood region within the bounds, enclosed from outside and from inside.

    The region consists of all parameter values whose sum of squares is at most S_min + rise; S_min
    is the minimum within the bounds. `cut` is larger than S_min + rise. Outside `regions` and
    undecided boxes, every sum of squares is at least `cut`. Inside `regions` and undecided boxes,
    every sum of squares is at least `lower_bound`. The other fields are the same as in a
    `DynamicCertificate`.

    level         confidence level, for example 0.95
    simultaneous  True: the level holds for all unknowns together; False: it holds for each unknown
                  separately
    degrees       degrees of freedom of the residuals if standard deviations are unknown; else 0
    rise          amount by which a sum of squares in the region may exceed S_min. If sigma is
                  unknown, this amount depends on S_min, and igpe computes it from `objective`
                  instead of S_min
    precision     requested precision, as a fraction of each interval's width
    regions       separate boxes that, together with `undecided`, contain the whole region
    undecided     (lower, upper) corners of the smallest box that contains all undecided boxes
                  outside the regions; empty if there are no such boxes
    """

    level: float
    simultaneous: bool
    degrees: int
    rise: float
    precision: float
    regions: tuple[SeparateRegion, ...]
    undecided: tuple[tuple[float, ...], ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each region and unknown.

        outer_lower, outer_upper  endpoints of an interval that provably contains the region
        inner_lower, inner_upper  smallest and largest values that are proved to belong to the
                                  region; NaN if there is no such value
        below, above              whether the data constrain the unknown from below and from
                                  above. "limited": the data constrain it; "reaches its bound":
                                  the region extends to the bound; "not decided": neither is
                                  proved
        """
        rows = []
        for k, one in enumerate(self.regions):
            low, high = self._outer(one)
            inner = one.inner
            for j, name in enumerate(self.unknowns):
                ends = (self.lower[j], self.upper[j])
                values = low[j], inner[0, j], inner[1, j], high[j]
                below = _side(values[0] > ends[0], values[1] == ends[0])
                above = _side(values[3] < ends[1], values[2] == ends[1])
                rows.append((k + 1, name, *values, below, above))
        return pd.DataFrame(rows, columns=["region", "name", *ENDS, "below", "above"])

    def _outer(self, one: SeparateRegion) -> tuple[FloatArray, FloatArray]:
        low, high = np.array(one.lower), np.array(one.upper)
        if self.undecided:
            low, high = np.minimum(low, self.undecided[0]), np.maximum(high, self.undecided[1])
        return low, high

    @property
    def intervals(self) -> pd.DataFrame:
        """A table with one row for each unknown, over all regions: the four endpoints,
        and `identifiable`.

        identifiable  True: the data provably constrain the unknown on both sides within its
                      bounds; False: on at least one side, the data provably do not constrain
                      it; None: neither is proved
        """
        frame, rows = self.to_frame(), {}
        for name, own in frame.groupby("name", sort=False):
            sides = [*own["below"], *own["above"]]
            is_limited = None if UNDECIDED in sides else True
            rows[name] = (
                own["outer_lower"].min(),
                own["inner_lower"].min(),
                own["inner_upper"].max(),
                own["outer_upper"].max(),
                False if REACHED in sides else is_limited,
            )
        heads = [*ENDS, "identifiable"]
        made_of = pd.DataFrame.from_dict(rows, orient="index", columns=heads, dtype=object)
        return made_of.astype(dict.fromkeys(ENDS, float)).rename_axis("name")

    @property
    def known(self) -> int:
        """Number of `regions` that are proved to contain a point of the likelihood region."""
        return sum(bool(one.inside) for one in self.regions)

    @property
    def sentence(self) -> str:
        """State what is proved, and for which problem."""
        return " ".join(self._sentences("with the bounds " + self._bounds_in_words()))

    def _sentences(self, where: str) -> list[str]:
        about = (
            f"The {100 * self.level:g} % likelihood region "
            f"({'all unknowns together' if self.simultaneous else 'each unknown by itself'}, sum "
            f"of squares up to {self.objective + self.rise:.6g}, which is {self.objective:.6g} + "
            f"{self.rise:.4g} according to "
            f"{f'F with {self.degrees} degrees of freedom' if self.degrees else 'chi squared'})"
        )
        stopped = STOPPED.get(self.status, "").replace(", ", "; the proof was ", 1)
        lines = [f"{about} {where}: {self._count()}{stopped}."]
        if not self.closed:
            lines.append(f"{100 * self.open_share:.3g} % of the box is undecided.")
        lines += self._verdicts()
        if self._premise:
            lines.append(self._premise.strip())
        if self.degrees and len(self.relative_sigma) > 1:
            lines.append(POOLED)
        return lines

    def _count(self) -> str:
        many, known = len(self.regions), self.known
        if not self.closed:
            return f"{_counted(many, 'region')} found so far; others may exist"
        if known < many:
            of = f"{known or 'none'} of these boxes"
            parts = f"; igpe proved for {of} that the box contains part of the region"
            return f"it lies entirely in {_counted(many, 'box')} (proved){parts * (many > 1)}"
        if many == 1:
            return "one region; there is no second region outside its box (proved)"
        nth = {2: "third", 3: "fourth", 4: "fifth"}.get(many, "further one")
        return f"{_words(many)} separate regions; outside their boxes there is no {nth} (proved)"

    def _verdicts(self) -> list[str]:
        by = self.intervals["identifiable"]
        good = [str(n) for n, v in by.items() if v is True]
        lines = []
        if good:
            more = " in each region" if len(self.regions) > 1 else ""
            lines.append(
                f"Practically identifiable within the bounds{more} (proved): {', '.join(good)}."
            )
        frame, reached = self.to_frame(), []
        for side, word, end in (("below", "lower", self.lower), ("above", "upper", self.upper)):
            names = list(dict.fromkeys(frame["name"][frame[side] == REACHED]))
            reached += [f"{n} ({word} bound {end[self.unknowns.index(n)]:g})" for n in names]
        if reached:
            lines.append(
                f"The region reaches these bounds (proved): {', '.join(reached)}. The data do not "
                "limit it there."
            )
        open_ = [str(n) for n, v in by.items() if v is None]
        if open_:
            lines.append(f"It is undecided whether the data constrain {', '.join(open_)}.")
        return lines

    def _shown(self) -> tuple[list[Rows], list[str]]:
        tables: list[Rows] = []
        frame = self.to_frame()
        for k, one in enumerate(self.regions):
            head = f"region {k + 1}" if len(self.regions) > 1 else ""
            rows: list[tuple[str, ...]] = [(head, "best", "lower end in", "upper end in", "")]
            own = frame[frame["region"] == k + 1]
            for value, (_, row) in zip(one.parameters, own.iterrows(), strict=True):
                rows.append(_cells(value, row))
            tables.append(rows)
        return tables, self._sentences("within these bounds")

    @property
    def inner_level(self) -> float:
        """Sum of squares up to which parameter values provably belong to the region."""
        if not self.degrees:
            return self.lower_bound + self.rise * (1 - ROUNDED)
        return self.lower_bound * (1 + self.rise / self.objective * (1 - ROUNDED))

    def plot(self, axes: Any = None) -> Plot:
        """Plot the outer and inner endpoints of all intervals; see also `igpe.proofs.pave`."""
        return plot_certified_intervals(self, axes)

    @classmethod
    def form(cls) -> Form:
        """Return the kind of the stored file and the entries that it must have."""
        above = super().form()
        own = ("level", "simultaneous", "degrees", "rise", "cut", "regions")
        return above._replace(entries=(*above.entries, *own))

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> "CertifiedRegion":
        """Read the stored entries.

        raises DataError if the level, rise, objective, lower bound or cut is not finite
        """
        base = vars(DynamicCertificate.of_entries(stored))
        own = [f.name for f in fields(cls) if f.name not in base and f.name != "regions"]
        given = {n: stored[n] for n in own if n in stored}
        boxes = tuple(_region(one) for one in restored(stored["regions"]))
        region = made(cls, given, base | {"regions": boxes})
        if not all(math.isfinite(v) for v in (region.level, region.rise)):
            raise DataError(
                "The certificate's level or rise is not a finite number, so the certificate "
                "proves nothing. Run igpe.certify_region again."
            )
        return region


def _side(is_limited: bool, is_reached: bool) -> str:
    if is_limited:
        return LIMITED
    return REACHED if is_reached else UNDECIDED


def _cells(value: float, row: pd.Series) -> tuple[str, ...]:
    width = row["outer_upper"] - row["outer_lower"]
    ends = [row[c] for c in ENDS]
    gap = min((b - a for a, b in (ends[:2], ends[2:]) if b > a), default=width / 1e4)
    sides = (-1, 1, -1, 1)  # rounded so that what is shown is still true
    low0, low1, high0, high1 = (
        on_side(number(v, gap), v, side) if math.isfinite(v) else "?"
        for v, side in zip(ends, sides, strict=True)
    )
    reached = [
        f"{word} bound reached"
        for side, word in (("below", "lower"), ("above", "upper"))
        if row[side] == REACHED
    ]
    lower, upper = f"[{low0}, {low1}]", f"[{high0}, {high1}]"
    return str(row["name"]), number(value, width / 10), lower, upper, ", ".join(reached)


def _words(count: int) -> str:
    return {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}.get(count, str(count))


def _counted(count: int, what: str) -> str:
    plural = {"box": "boxes"}.get(what, what + "s")
    return f"one {what}" if count == 1 else f"{_words(count) if count else 'no'} {plural}"


def _region(stored: Mapping[str, Any]) -> SeparateRegion:
    corner = {n: tuple(stored[n]) for n in ("lower", "upper", "parameters")}
    inside = tuple(tuple(p) for p in stored["inside"])
    return SeparateRegion(**corner, objective=stored["objective"], inside=inside)
