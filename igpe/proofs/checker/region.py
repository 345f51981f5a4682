"""What a certificate says of a likelihood region, and what of that is wrong at once.

Nothing is believed: the threshold follows from the data and the level, points from integration, and
what the tree's leaves must show from where they lie. A leaf outside of all regions must exceed the
threshold, whatever it is called.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError
from igpe.core.names import in_words
from igpe.problem.problem import Problem
from igpe.proofs.checker.confirm import Claims
from igpe.proofs.checker.experiments import Replay

Corner = tuple[float, ...]
ROUNDING = 1e-12  # relative, of sums of numbers in the file
NEAR = 1.1  # times the lower bound: a sum of squares that is nearly the least one
SMALL = 5e-7  # of the rise: half of what those who read it leave for its rounding


class Threshold(NamedTuple):
    """The level S (1 + factor) + term of a least sum of squares S.

    degrees   of freedom of the residuals; 0 where standard deviations are known
    on_bound  unknowns that raise the degrees, since the certificate's point has them on a bound
    """

    factor: float
    term: float
    degrees: int
    on_bound: tuple[str, ...] = ()

    def rise(self, least: float) -> float:
        """How far the level lies above it, to rounding."""
        return least * self.factor + self.term

    def above(self, least: float) -> float:
        """The level, to rounding."""
        return least * (1 + self.factor) + self.term

    @property
    def law(self) -> str:
        """The distribution that it comes from, and what its degrees of freedom take for granted."""
        if not self.degrees:
            return "chi squared"
        be = "are" if len(self.on_bound) > 1 else "is"
        held = f" if {in_words(self.on_bound)} {be} on a bound at the optimum"
        return f"F with {self.degrees} degrees of freedom{held if self.on_bound else ''}"


@dataclass(frozen=True)
class PartClaim:
    """One box of the region: it holds `point`, whose sum of squares is at most `objective`.

    inside  points that belong to the region
    """

    low: Corner
    high: Corner
    point: Corner
    objective: float
    inside: tuple[Corner, ...]

    def holds(self, low: Any, high: Any) -> bool:
        """Whether a box lies in this one."""
        return bool((np.array(self.low) <= low).all() and (np.array(high) <= self.high).all())


@dataclass(frozen=True)
class RegionClaim:
    """Outside of the parts, and of open leaves, every sum of squares is at least `cut`.

    level, simultaneous  of confidence: premises
    degrees, rise        what they come to, as the file has it
    undecided            (low, high) around the open leaves outside of the parts, or nothing
    is_finished          whether it says that nothing is open
    open_share           of the box's volume, as the file has it
    """

    level: float
    simultaneous: bool
    degrees: float
    rise: float
    cut: float
    parts: tuple[PartClaim, ...]
    undecided: tuple[Corner, ...]
    is_finished: bool
    open_share: float

    def threshold(
        self, problem: Problem, experiments: Sequence[Replay], point: FloatArray
    ) -> Threshold:
        """By chi squared where standard deviations are known, else by F.

        raises  DataError without degrees of freedom
        """
        count = len(point) if self.simultaneous else 1
        if problem.sigma_known:
            return Threshold(0.0, float(special.chdtri(count, 1 - self.level)), 0)
        rows = sum(len(column) for e in experiments for column, _, _ in e.rows)
        free = (problem.box.lower < point) & (point < problem.box.upper)
        degrees = rows - int(np.count_nonzero(free))
        if degrees <= 0:
            raise DataError(
                "The certificate is for a likelihood region. Without known standard deviations, a "
                "region needs more measurements than free unknowns, but the problem has "
                f"{rows} measurements and {int(np.count_nonzero(free))} free unknowns."
            )
        quantile = float(special.fdtri(count, degrees, self.level))
        held = ~free & (problem.box.lower < problem.box.upper)
        on_bound = tuple(np.array(problem.box.names)[held].tolist())
        return Threshold(count * quantile / degrees, 0.0, degrees, on_bound)

    def is_inside(self, claims: Claims) -> BoolArray:
        """(n_claims,) which lie in a part."""
        inside = np.zeros(len(claims), dtype=bool)
        for part in self.parts:
            inside |= ((part.low <= claims.low) & (claims.high <= part.high)).all(axis=1)
        return inside

    def faults_of_numbers(
        self, threshold: Threshold, objective: float, bounds: tuple[Corner, Corner]
    ) -> Iterator[tuple[Corner, Corner, str]]:
        """What is wrong with the file's numbers: a box, and why. `objective` as certified."""
        low, high = bounds
        least = threshold.above(objective)
        if self.degrees != threshold.degrees:
            why = f"there are {threshold.degrees} degrees of freedom, not {self.degrees:g}"
            yield low, high, why
        if not self.cut >= least:
            why = (
                f"the region may extend to sums of squares of {least:.9g}, above the certificate's "
                f"limit ('cut'), {self.cut:.9g}"
            )
            yield low, high, why
        rise = threshold.rise(objective)
        if not abs(self.rise - rise) <= SMALL * rise:  # what is proved in a region follows from it
            why = f"the allowed rise in the sum of squares is {rise:.9g}, not {self.rise:.9g}"
            yield low, high, why
        if not objective + self.rise <= self.cut * (1 + ROUNDING):
            total = f"{objective:.9g} + {self.rise:.9g}"
            why = f"objective + rise = {total} exceeds the limit ('cut'), {self.cut:.9g}"
            yield low, high, why
        for k in range(len(self.parts)):
            yield from self._faults_of_part(k, bounds)

    def _faults_of_part(
        self, k: int, bounds: tuple[Corner, Corner]
    ) -> Iterator[tuple[Corner, Corner, str]]:
        part = self.parts[k]
        crossed = any(a > b for a, b in zip(part.low, part.high, strict=True))
        if crossed or not _holds(bounds, part.low, part.high):
            yield part.low, part.high, f"region {k + 1} is not a box within the bounds"
        for p in (part.point, *part.inside):
            if not part.holds(p, p):
                yield (
                    p,
                    p,
                    f"the certificate assigns these parameter values to region {k + 1}, but they "
                    "lie outside it",
                )
        for other in self.parts[:k]:
            if (np.maximum(part.low, other.low) <= np.minimum(part.high, other.high)).all():
                yield part.low, part.high, f"region {k + 1} overlaps with another region"

    def doubt_of_degrees(self, threshold: Threshold, objective: float, lower_bound: float) -> str:
        """Why the degrees of freedom may be too many; empty if they are not.

        They are those at the optimum, where an unknown on a bound counts as fixed.
        """
        if not threshold.on_bound or objective <= NEAR * lower_bound:
            return ""
        return (
            f"the {threshold.degrees} degrees of freedom count {in_words(threshold.on_bound)} as "
            "on a bound at the optimum, but the certificate's parameter values are not proved to "
            f"be near the optimum (sum of squares {objective:.6g}, lower bound {lower_bound:.6g})"
        )

    def fault_of_leaf(self, reason: str, low: Corner, high: Corner) -> str:
        """What is wrong with where a leaf lies; empty if nothing is."""
        if reason not in ("within", "open"):
            return ""
        if any(part.holds(low, high) for part in self.parts):
            return ""
        if reason == "within":
            return "it has the reason 'within', but lies in none of the regions"
        if not self.undecided or not _holds(self.undecided, low, high):
            return "it is open, but lies outside the box that the certificate lists as undecided"
        return ""

    def fault_of_openness(self, share: float) -> str:
        """What is wrong with what the file says of open leaves, which take a share of the box."""
        if share > 0 and self.is_finished:
            return "the certificate's status says that there are no open boxes, but there are some"
        if share > self.open_share * (1 + 1e-6) + ROUNDING:
            return f"{100 * share:.3g} % of the volume is open, not {100 * self.open_share:.3g} %"
        return ""

    def sentence(self, unknowns: Sequence[str], threshold: Threshold, *, is_open: bool) -> str:
        """What is proved where nothing is wrong."""
        of = "all unknowns together" if self.simultaneous else "each unknown by itself"
        open_ = ", or in undecided boxes" * is_open
        known = [k + 1 for k, part in enumerate(self.parts) if part.inside]
        boxes = "; ".join(
            f"({k + 1}) " + ", ".join(
                f"{n} in [{a:.6g}, {b:.6g}]"
                for n, a, b in zip(unknowns, part.low, part.high, strict=True)
            )
            for k, part in enumerate(self.parts)
        )  # fmt: skip
        held = f"; points in ({'), ('.join(map(str, known))}) belong to the region" if known else ""
        return (
            f"the {100 * self.level:g} % likelihood region ({of}, {threshold.law}, sums of "
            f"squares below {self.cut:.9g}) lies in "
            f"{f'the boxes {boxes}' if boxes else 'no box'}{open_}{held}"
        )


def _holds(outer: tuple[Corner, ...], low: Corner, high: Corner) -> bool:
    pairs = zip(outer[0], low, high, outer[1], strict=True)
    return all(a <= b and c <= d for a, b, c, d in pairs)


def read_region(data: Mapping[str, Any], corner: Any, finite: Any) -> RegionClaim | None:
    """The claims of a file; None if it is about the optimum alone.

    corner, finite  (value) -> the same, checked;  raises what they raise
    """
    if "regions" not in data:
        return None
    parts = tuple(
        PartClaim(
            low=corner(one["lower"]),
            high=corner(one["upper"]),
            point=corner(one["parameters"]),
            objective=finite(one["objective"]),
            inside=tuple(corner(p) for p in one["inside"]),
        )
        for one in data["regions"]
    )
    if not 0 < finite(data["level"]) < 1 or not isinstance(data["simultaneous"], bool):
        raise ValueError(
            f"level = {data['level']!r} or simultaneous = {data['simultaneous']!r} is not valid"
        )
    undecided = tuple(corner(c) for c in data["undecided"])
    if len(undecided) not in (0, 2):
        raise ValueError("the entry 'undecided' is not a box")
    return RegionClaim(
        level=finite(data["level"]),
        simultaneous=data["simultaneous"],
        degrees=finite(data["degrees"]),
        rise=finite(data["rise"]),
        cut=finite(data["cut"]),
        parts=parts,
        undecided=undecided,
        is_finished=data["status"] == "OPTIMAL_WITHIN_GAP",
        open_share=finite(data["open_share"]),
    )
