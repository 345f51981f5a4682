"""Proof of bounds over one box from the compiled enclosures.

The parameters of a box are polynomials of delta in [-1, 1]. Most are linear in delta. Those in
denominators are exponential where their range is positive and wide: as functions of the logarithm,
quotients like u / (k u + w) are sigmoid, and their series converge for ratios of the bounds up to
exp(2 pi); as functions of k only up to where the denominator vanishes. Over narrow ranges both
converge, and the exponential's own series would be an error more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.integration import (
    BROKE,
    FATHOMED,
    SHRUNK,
    THROUGH,
    TaylorRun,
    integrate,
)
from igpe.proofs.prover.kernels.mueller import tube
from igpe.proofs.prover.kernels.rows import (
    BoxRows,
    TubeRun,
    clear,
    joint_bound,
    note,
    rows,
    total,
    tube_rows,
)
from igpe.proofs.prover.kernels.tape import OpTape, faces, linear_parts
from igpe.proofs.prover.kernels.taylor import DIRECTIONS, algebra, taylor_model
from igpe.proofs.prover.posed import Dynamic, PosedExperiment

LEAST_RATIO, MOST_RATIO = 2.5, 500.0  # of positive bounds between which a scale is exponential


def scaled(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """(n_p, 2) middle and radius; the radius is rounded up so that the box is covered."""
    middle = lower + 0.5 * (upper - lower)
    radius = np.maximum(upper - middle, middle - lower) * (1 + 4e-16)
    return np.stack([middle, radius], axis=1)


def is_exponential(lower: FloatArray, upper: FloatArray, divides: BoolArray) -> BoolArray:
    """Which parameters are exp(log middle + radius delta), those that `divides` are allowed to."""
    ratio = upper / np.where(lower > 0, lower, np.inf)
    return np.asarray(divides & (ratio > LEAST_RATIO) & (ratio < MOST_RATIO))


def logarithmic(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """(n_p, 2) geometric middle m and radius r of positive ranges: the box is m exp(r delta)."""
    middle = np.sqrt(lower * upper)
    return np.stack([middle, 0.5 * np.log(upper / lower) + 1e-13], axis=1)


def polynomials(
    lower: FloatArray, upper: FloatArray, divides: BoolArray, degree: int
) -> FloatArray:
    """(n_p, 5) coefficients of 1, delta, delta^2, delta^3, and a bound on what they lack."""
    coefficients = np.zeros((len(lower), 5))
    coefficients[:, :2] = scaled(lower, upper)
    for j in np.flatnonzero(is_exponential(lower, upper, divides)):
        middle, radius = logarithmic(lower[[j]], upper[[j]])[0]
        coefficients[j, :4] = [middle * radius**k / math.factorial(k) for k in range(4)]
        coefficients[j, degree + 1 : 4] = 0.0
        lacking = middle * radius ** (degree + 1) / math.factorial(degree + 1) * math.exp(radius)
        coefficients[j, 4] = lacking * (1 + 1e-12) + 1e-15 * upper[j]
    return coefficients


def unscaled(
    lower: FloatArray, upper: FloatArray, divides: BoolArray, delta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The part of a box that scaled parameters leave, rounded outward but never beyond the box."""
    middle, radius = scaled(lower, upper).T
    room = 4e-16 * (np.abs(middle) + radius)
    inside = np.clip(delta, -1.0, 1.0)
    low, high = middle + radius * inside[:, 0] - room, middle + radius * inside[:, 1] + room
    which = is_exponential(lower, upper, divides)
    if which.any():
        m, r = logarithmic(lower[which], upper[which]).T
        low[which] = m * np.exp(r * inside[which, 0]) * (1 - 1e-14)
        high[which] = m * np.exp(r * inside[which, 1]) * (1 + 1e-14)
    low = np.where(delta[:, 0] > -1, np.maximum(low, lower), lower)
    high = np.where(delta[:, 1] < 1, np.minimum(high, upper), upper)
    crossed = delta[:, 0] > delta[:, 1]
    return np.where(crossed, 1.0, low), np.where(crossed, 0.0, high)


def in_denominators(tape: OpTape, parameters: int) -> BoolArray:
    """Which parameters occur in a denominator (n_p,)."""
    divides = np.zeros(parameters, dtype=bool)
    below, slots = np.zeros(len(tape.op), dtype=bool), tape.argument.tolist()
    for k in range(len(tape.op) - 1, -1, -1):
        if tape.op[k] == ops.DIV:
            below[tape.b[k]] = True
        if not below[k]:
            continue
        if tape.op[k] == ops.PARAMETER:
            divides[tape.a[k]] = True
        below[ops.arguments(int(tape.op[k]), int(tape.a[k]), int(tape.b[k]), slots)] = True
    return divides


class Heeded(NamedTuple):
    """Sums of states that tubes heed.

    slope  of the states and, after them, of sums that are not conserved
    sums   (n_sums, n_results) coefficients of conserved sums, as of `TubeRun`
    """

    slope: OpTape
    sums: FloatArray


def _with_sums(run: TubeRun, heeded: Heeded | None, posed: PosedExperiment) -> TubeRun:
    """The run with other sums."""
    states = len(posed.schedule.scale)
    if heeded is None:
        heeded = Heeded(posed.sharp, np.zeros((0, states)))
    new = heeded.sums[:, states:].any(axis=1)
    scale = np.abs(heeded.sums[new, :states]) @ posed.schedule.scale
    return run._replace(
        slope=heeded.slope,
        faces=faces(heeded.slope),
        sums=heeded.sums,
        schedule=posed.schedule._replace(scale=np.append(posed.schedule.scale, scale)),
        tube=tube(heeded.sums.shape[1]),
    )


def tube_work(run: TubeRun) -> float:
    """Operations of the tube that was made last."""
    held = (run.sums != 0).sum(axis=1)  # a face is cut by the sums that hold its state
    step = float(run.slope.needed.sum()) + CUT * float((held**2).sum())
    return step * float(run.tube.steps[0])


def taylor_work(run: TaylorRun) -> float:
    """The same of the Taylor model."""
    return step_work(run) * float(run.tube.steps[1])


def step_work(run: TaylorRun) -> float:
    """Operations of one step of the Taylor model."""
    slope, algebra, space = run.slope
    products = len(algebra.to) + 2 * algebra.errors
    return float(PRODUCT * 0.5 * len(slope.op) * space.c.shape[1] ** 2 * products)


# how far slopes may change over a step of a tube, and its steps at most
TUBES = ((0.05, 200), (0.001, 600))
TRIAL = (0.05, 100)
PROMISING = 0.15  # of the cut: what a coarse tube must show for a fine one to be tried
POLYNOMIAL, QUOTIENTS = 5, 4  # order in time; of quotients long series are badly bounded
CUT = 0.5  # operations of a tape that take as long as one state of a sum
DROWNED = 3.0  # errors of residuals, relative to what parameters move: above that it says nothing
PRODUCT = 3e-3  # the same, as one product of coefficients
MOST_STEPS = 1500  # of the Taylor model in one experiment


@dataclass(frozen=True)
class BoxBounds:
    """Bounds that are proved for one box.

    bound         on the sum of squares, for all parameters of the box where it is below the cut
    lower, upper  (n_p,) outside of these no parameters are below the cut; crossed: none anywhere
    sensitivity   (n_p,) how far the residuals move along each axis; zeros where nothing is known
    rows          how many leading rows were enclosed
    multipliers   (m,) of the residuals, where the bound is theirs
    middle        sum of squares at the middle, in plain doubles; nan if it is not known
    skips_tube    whether its parts can spare the tube: the Taylor model came through, or proved
                  more and broke at products alone
    leads         whether the Taylor model proved more than the tube
    is_tube_idle  whether a tube proved no more than was known, and the Taylor model did, in less
                  work
    is_drowned    whether the residuals' errors are much larger than what the axes move
    spread        (n_p,) what the box is to be split along where Taylor models broke, if they did
    """

    bound: float
    lower: FloatArray
    upper: FloatArray
    sensitivity: FloatArray
    rows: int
    multipliers: FloatArray
    middle: float
    skips_tube: bool = False
    leads: bool = False
    is_tube_idle: bool = False
    is_drowned: bool = False
    spread: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def is_empty(self) -> bool:
        """Return True if no parameters of the box are below the cut."""
        return bool((self.lower > self.upper).any())


@dataclass
class BoxEnclosure:
    """Proves bounds over boxes of a problem's unknowns.

    degree          of the polynomials in the parameters
    order           of those in time; None: as pays
    tolerance       of the last Taylor term, relative to how far the states differ over the box
    directions      of errors, for each state
    work            operations so far, a measure of time that is the same on every machine
    """

    dynamic: Dynamic
    degree: int = 2
    order: int | None = None
    tolerance: float = 1e-5
    directions: int = DIRECTIONS
    tubes: list[TubeRun] = field(init=False)
    models: list[TaylorRun] = field(init=False)
    rows: BoxRows = field(init=False)
    divides: BoolArray = field(init=False)
    heeded: tuple[Heeded | None, ...] = field(init=False)
    work: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        n, given = len(self.dynamic.lower), self.dynamic.experiments
        sizes = [self.dynamic.unmeasured.size, *(len(run.labels) for run in given)]
        self.size = sum(sizes)
        states = [len(run.sharp.results) for run in given]
        algebras = [algebra(n, size, self.degree, self.directions) for size in states]
        self.algebra = algebras[0]
        self.rows = rows(self.size, self.algebra)
        self.tubes, self.models, self.heeded = [], [], (None,) * len(given)
        for k, (run, a) in enumerate(zip(given, algebras, strict=True)):
            slope, outputs, begin = run.tapes
            order = self.order or (POLYNOMIAL if slope.plain else QUOTIENTS)
            parts = ((slope, order), (outputs, 0), (begin, 0))
            f, h, start = (taylor_model(part, a, order_in_time) for part, order_in_time in parts)
            room, first = tube(a.states), sum(sizes[: k + 1])
            results = run.schedule, room, self.rows, first
            sharp, none = run.sharp, np.zeros((0, a.states))
            self.tubes.append(TubeRun(sharp, faces(sharp), none, outputs, begin, *results))
            more = linear_parts(slope), np.zeros(n)
            self.models.append(TaylorRun(f, h, start, *results, *more))
        self.divides = np.any([in_denominators(run.tapes[0], n) for run in given], axis=0)
        self.multipliers = np.zeros(self.size)

    def heed(self, every: Sequence[Heeded | None]) -> None:
        """Let the tubes of each experiment heed these sums, or none."""
        self.heeded = tuple(every)
        given = zip(self.tubes, every, self.dynamic.experiments, strict=True)
        self.tubes[:] = [_with_sums(run, one, posed) for run, one, posed in given]
        both = zip(self.models, self.tubes, strict=True)
        self.models[:] = [model._replace(tube=run.tube) for model, run in both]

    def examine(
        self,
        lower: FloatArray,
        upper: FloatArray,
        cut: float,
        *,
        with_tube: bool = True,
        known: float = 0.0,
        most: int = MOST_STEPS,
    ) -> BoxBounds:
        """Prove bounds for a box, as far as they are needed to exceed the cut.

        with_tube  whether Mueller bounds are tried first
        known      bound that is: where it is promising, they are fine ones at once
        most       steps of the Taylor model in each experiment
        """
        self._clear(lower, upper)
        ranges, before = np.stack([lower, upper], axis=1), self.work
        bound, reached = self._tubes(ranges, cut, known) if with_tube else (0.0, 0)
        if bound > cut:
            return self._box_bounds(lower, upper, bound, rows=self.size)
        alone, of_tube = bound, self.work - before
        outcome = self._integrate(lower, upper, cut, most)
        bound, count = total(self.rows), int(self.rows.known[0])
        if bound <= cut and outcome in (THROUGH, BROKE):
            bound = max(bound, joint_bound(self.algebra, self.rows, cut, self.multipliers))
        leads = outcome == THROUGH or (count > reached and bound > alone)
        plain = all(run.slope.tape.plain for run in self.models)
        skips_tube = outcome == THROUGH or (leads and plain)
        is_idle = alone <= known and bound > alone and 2 * of_tube > self.work - before
        middle = float((self.rows.c[:, 0] ** 2).sum()) if outcome == THROUGH else np.nan
        spread = np.sum([run.spread for run in self.models], axis=0)
        return self._box_bounds(
            lower, upper, bound, rows=count, middle=middle, skips_tube=skips_tube,
            leads=leads, is_tube_idle=is_idle, spread=spread,
        )  # fmt: skip

    def _integrate(self, lower: FloatArray, upper: FloatArray, cut: float, most: int) -> int:
        """Taylor models of all experiments, until one ends the search; how the worst ended."""
        worst, ranges = THROUGH, np.stack([lower, upper], axis=1)
        p = polynomials(lower, upper, self.divides, self.degree)
        for run in self.models:
            run.spread[:] = 0.0
        for run in self.models:
            outcome = integrate(run, p, ranges, self.tolerance, most, cut)
            self.work += taylor_work(run)
            if outcome in (FATHOMED, SHRUNK):
                return int(outcome)
            worst = max(worst, int(outcome))
        return worst

    def _clear(self, lower: FloatArray, upper: FloatArray) -> None:
        """Forget all rows; record those of priors and jumps, which are linear."""
        clear(self.rows)
        self.multipliers[:] = 0.0
        for run in self.tubes:
            run.tube.steps[:] = 0
        given = self.dynamic.unmeasured
        p = polynomials(lower, upper, self.divides, self.degree) if given.size else np.zeros(0)
        for i in range(given.size):
            w, a = given.weight[i], given.matrix[i]
            self.rows.c[i, 0] = (a @ p[:, 0] - given.known[i]) * w
            self.rows.c[i, 1 : 1 + len(p)] = a * p[:, 1] * w
            curved = np.abs(a) @ np.abs(p[:, 2:]).sum(axis=1) * w * (1 + 1e-12)
            size = (np.abs(a) @ (np.abs(p).sum(axis=1)) + abs(given.known[i])) * w
            self.rows.error[i] = curved + 4e-15 * (len(p) + 4) * size
            middle, radius = self.rows.c[i, 0], np.abs(self.rows.c[i, 1:]).sum()
            radius = radius * (1 + 1e-12) + self.rows.error[i]
            note(self.rows, i, middle - radius, middle + radius)
            self.rows.known[0] += 1

    def _tubes(self, ranges: FloatArray, cut: float, known: float) -> tuple[float, int]:
        """The bound of tubes alone, and how many residuals they reached."""
        bound, reached = 0.0, 0
        for fine, most in TUBES[1:] if known >= PROMISING * cut else TUBES:
            reached = self._tube(ranges, cut, fine, most)
            bound = float(total(self.rows))
            if bound > cut or bound < PROMISING * cut:
                break
        return bound, reached

    def _tube(self, ranges: FloatArray, cut: float, fine: float, most: int) -> int:
        stops = [tube_rows(run, ranges, fine, most, cut) for run in self.tubes]
        self.work += sum(tube_work(run) for run in self.tubes)
        pairs = zip(self.tubes, stops, strict=True)
        return sum(int(run.schedule.first[stop]) for run, stop in pairs)

    def coarse(self, lower: FloatArray, upper: FloatArray, cut: float) -> float:
        """The bound of a coarse tube alone, as far as it is needed to exceed the cut."""
        self._clear(lower, upper)
        self._tube(np.stack([lower, upper], axis=1), cut, *TRIAL)
        return float(total(self.rows))

    def _box_bounds(
        self, lower: FloatArray, upper: FloatArray, bound: float, **more: Any
    ) -> BoxBounds:
        known = np.isfinite(self.rows.error)
        moves, error = self.rows.c[known, 1 : 1 + len(lower)], self.rows.error[known]
        left = 0.5 * (self.rows.delta[:, 1] - self.rows.delta[:, 0])
        with np.errstate(over="ignore"):  # to infinity
            sensitivity = np.sqrt((moves**2).sum(axis=0)) * left
            is_drowned = bool(np.linalg.norm(error) > DROWNED * np.linalg.norm(sensitivity))
        low, high = unscaled(lower, upper, self.divides, self.rows.delta)
        given = {
            "sensitivity": sensitivity,
            "is_drowned": is_drowned,
            "multipliers": self.multipliers.copy(),
            "middle": np.nan,
        }
        return BoxBounds(float(bound), low, high, **(given | more))
