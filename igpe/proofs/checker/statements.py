"""What a certificate states besides its tree, and what of that is wrong at once.

Of a likelihood region nothing is believed: the threshold follows from the data and the level,
points from integration, and what the tree's leaves must show from where they lie. A leaf outside of
all regions must exceed the threshold, whatever it is called.

Where the measurements have no standard deviations of their own, those of the certificate are
premises of what it says. Those of noise models must be what the models give at the parameters that
the certificate names.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError, ProblemError
from igpe.core.markup import at_side, in_words, ratio_in_words
from igpe.problem.experiment import Experiment
from igpe.problem.noise.sigma import deviations
from igpe.problem.problem import Problem
from igpe.proofs.checker.confirm import Claims, residuals_at
from igpe.proofs.checker.experiments import Replay

Corner = tuple[float, ...]
ROUNDING = 1e-12  # relative, of sums of numbers in the file
NEAR = 1.1  # times the lower bound: a sum of squares that is nearly the least one
SMALL = 5e-7  # of the rise: half of what those who read it leave for its rounding


def corner(values: Any, n: int) -> Corner:
    """Coordinates in a certificate; raises ValueError unless they are n finite numbers."""
    made = tuple(finite(v) for v in values)
    if len(made) != n:
        raise ValueError(f"a point or corner has {len(made)} coordinates, not {n}")
    return made


def finite(value: Any) -> float:
    """A number in a certificate; raises ValueError unless it is finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


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
                f"{n} in [{at_side(a, 6, -1)}, {at_side(b, 6, 1)}]"
                for n, a, b in zip(unknowns, part.low, part.high, strict=True)
            )
            for k, part in enumerate(self.parts)
        )  # fmt: skip
        held = f"; points in ({'), ('.join(map(str, known))}) belong to the region" if known else ""
        return (
            f"the {100 * self.level:g} % likelihood region ({of}, {threshold.law}, sums of "
            f"squares below {at_side(self.cut, 9, -1)}) lies in "
            f"{f'the boxes {boxes}' if boxes else 'no box'}{open_}{held}"
        )


def _holds(outer: tuple[Corner, ...], low: Corner, high: Corner) -> bool:
    pairs = zip(outer[0], low, high, outer[1], strict=True)
    return all(a <= b and c <= d for a, b, c, d in pairs)


def read_region(data: Mapping[str, Any], unknowns: int) -> RegionClaim | None:
    """The claims of a file; None if it is about the optimum alone."""
    if "regions" not in data:
        return None
    parts = tuple(
        PartClaim(
            low=corner(one["lower"], unknowns),
            high=corner(one["upper"], unknowns),
            point=corner(one["parameters"], unknowns),
            objective=finite(one["objective"]),
            inside=tuple(corner(p, unknowns) for p in one["inside"]),
        )
        for one in data["regions"]
    )
    if not 0 < finite(data["level"]) < 1 or not isinstance(data["simultaneous"], bool):
        raise ValueError(
            f"level = {data['level']!r} or simultaneous = {data['simultaneous']!r} is not valid"
        )
    undecided = tuple(corner(c, unknowns) for c in data["undecided"])
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


SCALED = 1e-6  # mean logarithm of relative standard deviations, up to rounding
SAME = 1e-4  # relative: the prover computes predictions with an ordinary integrator


@dataclass(frozen=True)
class StatedWeights:
    """Standard deviations in a certificate.

    relative  quantity -> relative standard deviation, where the problem does not have any
    sigma     for each experiment (m,), where noise models give them at the unknowns `at` (n,)
    """

    relative: Mapping[str, float] = field(default_factory=dict)
    sigma: tuple[tuple[float, ...], ...] = ()
    at: tuple[float, ...] = ()

    def premise(
        self, unknowns: Sequence[str], problem: Problem, off: float, spread: Mapping[str, float]
    ) -> str:
        """A sentence on them, with a space before it; empty if the problem has its own.

        off     largest relative difference from those of the problem's noise models
        spread  see `spread_at`
        """
        if self.relative:
            stated = ratio_in_words(self.relative.values())
            seen = ratio_in_words([spread[n] for n in self.relative])
            return (
                f" The standard deviations of {', '.join(self.relative)} have the ratio {stated}; "
                f"at the certificate's parameter values, the residuals have the ratio {seen}."
            )
        if not problem.sigma_follows:
            return ""
        at = ", ".join(f"{n} = {v:.6g}" for n, v in zip(unknowns, self.at, strict=True))
        return (
            " The standard deviations are those in the certificate, which differ from those of the "
            f"noise model for {at} by a relative {_upward(off):g} at most."
        )


def premise_of_quotients(experiments: Sequence[Replay], low: FloatArray) -> str:
    """A sentence on where equations are not defined, with a space before it; empty if none is.

    low  bounds of the parameters
    """
    if not any(experiment.factored.may_be_undefined(low) for experiment in experiments):
        return ""
    return (
        " Excluded are parameter values for which a quotient in the differential equations is "
        "0 / 0 at some time."
    )


def _upward(size: float) -> float:
    """The next power of ten; residuals at a point are known to 1e-9."""
    return float(10.0 ** math.ceil(math.log10(max(size, 1e-9))))


def read_weights(data: Mapping[str, Any], unknowns: Sequence[str]) -> StatedWeights:
    """Read those of a certificate."""
    relative = {str(n): finite(v) for n, v in data.get("relative_sigma", {}).items()}
    sigma = tuple(tuple(map(finite, own)) for own in data.get("sigma", ()))
    if any(value <= 0 for own in sigma for value in own):
        raise ValueError("a standard deviation is not positive")
    at = tuple(finite(data["sigma_at"][n]) for n in unknowns) if sigma else ()
    return StatedWeights(relative, sigma, at)


def weighted(weights: StatedWeights, problem: Problem) -> Problem:
    """The problem with a certificate's standard deviations, where they depend on the fit.

    raises  ProblemError if they are not what this problem needs
    """
    names = {e.measured[k] for e in problem.experiments for k in set(e.measurements.column)}
    wanted, given = names if problem.weights_unknown else set(), weights.relative
    if given.keys() != wanted or min(given.values(), default=1.0) <= 0:
        raise ProblemError(
            f"The certificate has the relative standard deviations {dict(given)}, but the "
            f"problem needs positive values for the quantities {sorted(wanted)}. Give the problem "
            "that was certified."
        )
    if wanted:
        sizes = [
            np.array([given.get(n, 1.0) for n in e.measured])[e.measurements.column]
            for e in problem.experiments
        ]
        if abs(mean := float(np.mean(np.log(np.concatenate(sizes))))) > SCALED:
            raise ProblemError(
                f"The certificate has the relative standard deviations {dict(given)}. In igpe, the "
                "mean of their logarithms over all measurements is 0, but here it is "
                f"{mean:.3g}, so the certificate's sums of squares are not igpe's. Give the "
                "certificate as igpe.certify wrote it."
            )
        return problem.weighted(sizes, relative=True)
    if not problem.sigma_follows:
        return problem
    sizes = [np.array(own, dtype=float) for own in weights.sigma]
    if [len(own) for own in sizes] != [len(e.measurements.value) for e in problem.experiments]:
        raise ProblemError(
            "The standard deviations of the problem depend on the model's predictions, but the "
            "certificate does not contain one for each measurement. Give the problem that was "
            "certified."
        )
    return problem.weighted([
        np.where(_follows(e), own, e.measurements.sigma)
        for e, own in zip(problem.experiments, sizes, strict=True)
    ])


def _follows(experiment: Experiment) -> BoolArray:
    """(m,) whether each standard deviation comes from a noise model; others are the problem's."""
    m = experiment.measurements
    return np.isin(m.column, [m.names.index(name) for name in experiment.error_models])


def difference(weights: StatedWeights, problem: Problem, given: Sequence[Replay]) -> float:
    """Largest relative difference from the standard deviations of the problem's noise models.

    given  the experiments, with the certificate's standard deviations
    """
    worst = 0.0
    if not weights.sigma:
        return worst
    for experiment, replay in zip(problem.experiments, given, strict=True):
        m, models = experiment.measurements, experiment.error_models
        if not models:
            continue
        own = {m.names.index(name): model for name, model in models.items()}
        rows: FloatArray = residuals_at(replay, np.array(weights.at))
        column, value, sigma = replay.program.column, replay.program.value, replay.program.sigma
        formula = deviations(own, column, value, value + sigma * rows, sigma)
        worst = max(worst, float(np.max(np.nan_to_num(np.abs(formula / sigma - 1), nan=np.inf))))
    return worst


def spread_at(
    weights: StatedWeights, problem: Problem, given: Sequence[Replay], point: FloatArray
) -> dict[str, float]:
    """Root mean square of each quantity's residuals, where the certificate has relative weights.

    point  (n_parameters,) where
    """
    if not weights.relative:
        return {}
    parts: dict[str, list[FloatArray]] = {}
    for experiment, replay in zip(problem.experiments, given, strict=True):
        program, names = replay.program, experiment.measurements.names
        plain = residuals_at(replay, point) * program.sigma
        for column in np.unique(program.column):
            parts.setdefault(names[column], []).append(plain[program.column == column])
    return {n: float(np.sqrt(np.mean(np.concatenate(own) ** 2))) for n, own in parts.items()}


def fault_of_sigma(weights: StatedWeights, problem: Problem, off: float) -> str:
    """Why the standard deviations are not those of the problem's noise models; empty if they are.

    off  see `difference`
    """
    box = problem.box
    if not problem.sigma_follows or weights.relative:
        return ""
    if not ((box.lower <= weights.at) & (weights.at <= box.upper)).all():
        return "the parameter values of the standard deviations lie outside the box"
    if off <= SAME:
        return ""
    return (
        "the standard deviations are not those of the noise model at the parameter values that the "
        f"certificate gives for them (largest relative difference: {off:.3g})"
    )
