"""A third check of a certificate: balls of Arb (python-flint), from the Pyomo model itself.

It shares with prover and checker how a certificate's file is read, and no arithmetic. It encloses
the sum of squares at the certificate's point to 30 digits, and bounds it from below on a seeded
share of the leaves. It is slow, so it counts the leaves that it leaves undecided.

With c_k the Taylor coefficients of the solution from x(t), and c_N(B) those from an enclosure B of
the solution on the step (Picard: x + [0, h] f(B) lies in B),

    x(t + h) in c_0 + c_1 h + ... + c_(N-1) h^(N-1) + c_N(B) h^N.

On a box of parameters p = middle + d the same holds of derivatives by the states at t and by p.
They make up the derivatives S by p along the solution, and x(p) lies in x(middle) + S d. With
residuals r in r(middle) + G d and any vector u, |r|^2 >= 2 u'r - |u|^2.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import flint
import numpy as np
from flint import arb, arb_series
from scipy.optimize import lsq_linear

from igpe.core.arrays import FloatArray
from igpe.problem.problem import Problem
from igpe.proofs.checker.arb_reader import Equations, LinearTerm

ZERO = arb(0)
DIGITS = 30
SHORTEST = 1e-7  # a step's least share of the experiment's time
TOO_LONG = 0.9  # a step is repeated where it should have been so much shorter
TRIES = 5  # enclosures of a step
LEAVES = 12  # that are drawn
PRECISIONS = 192, 384, 768  # bits, one after the other until the digits are known
PIECES, STEPS = 100, 800  # of one leaf
LEAF: dict[str, Any] = {"bits": 64, "order": 8, "middle": 1e-8, "box": 1e-4}
SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda _, value: value,
    "log": lambda x, _: 1 / x,
    "sqrt": lambda _, value: 1 / (2 * value),
    "sin": lambda x, _: x.cos(),
    "cos": lambda x, _: -x.sin(),
}
"""Derivative of a function at x, where it has a value."""


class Undecided(Exception):
    """There is no enclosure within the effort."""


class Jet:
    """A number or series in time, with derivatives by some directions.

    value  arb or arb_series;  by  direction -> the same, without those that are 0. A direction is
           an unknown's name, or the number of a state
    """

    __slots__ = ("by", "value")

    def __init__(self, value: Any, by: Mapping[Any, Any]) -> None:
        self.value, self.by = value, by

    def each(self, change: Callable[[Any], Any]) -> "Jet":
        """Change value and derivatives."""
        return Jet(change(self.value), {j: change(v) for j, v in self.by.items()})

    @property
    def parts(self) -> list[Any]:
        """Value and derivatives."""
        return [self.value, *self.by.values()]

    def chain(self, value: Any, slope: Any) -> "Jet":
        """A function of it."""
        return Jet(value, {j: slope * v for j, v in self.by.items()})

    def function(self, name: str) -> "Jet":
        """An elementary function of it."""
        if name == "tanh":
            return as_jet(-2 / ((self * arb(2)).function("exp") + 1) + 1)
        value = getattr(self.value, name)()
        return self.chain(value, SLOPES[name](self.value, value))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, LinearTerm):
            return NotImplemented
        if not isinstance(other, Jet):
            return Jet(self.value + other, self.by)
        by = dict(self.by)
        for j, v in other.by.items():
            by[j] = by[j] + v if j in by else v
        return Jet(self.value + other.value, by)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, LinearTerm):
            return NotImplemented
        if not isinstance(other, Jet):
            return self.chain(self.value * other, other)
        product = self.chain(ZERO, other.value) + other.chain(ZERO, self.value)
        return Jet(self.value * other.value, product.by)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Jet":
        return self.each(lambda v: -v)

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / other)

    def __rtruediv__(self, other: Any) -> Any:
        inverse = 1 / self.value
        return self.chain(inverse, -inverse * inverse) * other

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, Jet) or not power.is_integer():
            return (self.function("log") * power).function("exp")
        n = int(float(power))
        return self.chain(self.value**n, n * self.value ** (n - 1))

    def __rpow__(self, base: Any) -> Any:
        return (self * base.log()).function("exp")


def as_jet(value: Any) -> Jet:
    """A number as one without derivatives."""
    return value if isinstance(value, Jet) else Jet(value, {})


def _coefficient(value: Any, k: int) -> Any:
    """The k-th of a series; of a number all but the first are 0."""
    return value[k] if isinstance(value, arb_series) else value if k == 0 else ZERO


def _series(jets: Sequence[Jet]) -> Jet:
    every = {j for jet in jets for j in jet.by}
    slopes = {j: arb_series([jet.by.get(j, ZERO) for jet in jets]) for j in every}
    return Jet(arb_series([jet.value for jet in jets]), slopes)


def _size(jets: Sequence[Jet]) -> Any:
    return max(abs(v).upper() for jet in jets for v in jet.parts)


def _wider(v: Any) -> Any:
    return v + arb(0, v.rad() / 4 + abs(v).upper() * arb(2) ** (8 - flint.ctx.prec))


def _holds(outer: Jet, inner: Jet) -> bool:
    pairs = [(outer.value, inner.value), *((outer.by.get(j, ZERO), v) for j, v in inner.by.items())]
    return all(v.is_finite() and own.contains(v) for own, v in pairs)


@dataclass(frozen=True)
class TaylorStep:
    """A step of one experiment from time t to t + h, for some parameters (numbers or Jets).

    begin  where the segment of the inputs begins
    """

    equations: Equations
    parameters: Mapping[str, Any]
    begin: float
    t: Any
    h: Any

    def slopes(self, clock: Any, x: Sequence[Jet], k: int) -> list[Jet]:
        """Coefficient k of the states' slopes."""
        flint.ctx.cap = k + 1
        values = self.equations.at(self.begin, clock, x, self.parameters)
        slopes = [as_jet(values.by_name[f"d({name})"]) for name in self.equations.states]
        return [jet.each(lambda v: _coefficient(v, k)) for jet in slopes]

    def coefficients(self, x: list[Jet], t: Any, order: int) -> list[list[Jet]]:
        """Taylor coefficients 0 to `order` of the states, from x at t."""
        found = [x]
        for k in range(order):
            flint.ctx.cap = k + 1
            series = [_series(jets) for jets in zip(*found, strict=True)]
            slopes = self.slopes(arb_series([t, 1]), series, k)
            found.append([s / arb(k + 1) for s in slopes])
        return found

    def end(self, x: list[Jet], order: int) -> tuple[list[Jet], float]:
        """States at t + h, and the size of the last term relative to theirs. Raises Undecided."""
        span, tube = arb(0).union(self.h), self.tube(x)
        end = last = self.coefficients(tube, self.t + span, order)[order]
        for term in self.coefficients(x, self.t, order - 1)[::-1]:
            end = [c + e * self.h for c, e in zip(term, end, strict=True)]
        size = _size(tube)
        rest = float(_size(last) * self.h**order / size) if size > 0 else 0.0
        if not rest < np.inf:
            raise Undecided
        return end, rest

    def tube(self, x: list[Jet]) -> list[Jet]:
        """Enclosure of the solution from x on the whole step. Raises Undecided."""
        span, tube = arb(0).union(self.h), x
        for attempt in range(TRIES):
            slopes = self.slopes(self.t + span, tube, 0)
            image = [a + s * span for a, s in zip(x, slopes, strict=True)]
            if attempt and all(map(_holds, tube, image)):
                return image
            tube = [jet.each(_wider) for jet in image]
        raise Undecided


class BallBox(NamedTuple):
    """Parameters: middle + d.

    middle  unknown -> number;  away  unknown -> an interval of d that holds 0; without those of 0
    """

    middle: Mapping[str, Any]
    away: Mapping[str, Any]

    @classmethod
    def between(
        cls, names: Sequence[str], low: Sequence[float], high: Sequence[float]
    ) -> "BallBox":
        """All from `low` to `high`."""
        ends = {n: (arb(a), arb(b)) for n, a, b in zip(names, low, high, strict=True)}
        middle = {n: (a + b) / 2 for n, (a, b) in ends.items()}
        return cls(middle, {n: a.union(b) - middle[n] for n, (a, b) in ends.items() if a < b})

    @property
    def all(self) -> dict[str, Any]:
        """Unknowns on the whole box."""
        away = self.away
        return {
            n: Jet(v + away[n], {n: arb(1)}) if n in away else v for n, v in self.middle.items()
        }

    def narrowed(self, middle: Any, range_: Jet) -> Jet:
        """A quantity with its value at the middle, by its derivatives."""
        by_slopes = middle + sum((v * self.away[n] for n, v in range_.by.items()), ZERO)
        if not (range_.value.is_finite() and by_slopes.is_finite()):
            return Jet(by_slopes, range_.by)
        return Jet(by_slopes.intersection(range_.value), range_.by)


@dataclass
class Effort:
    """Effort of one integration or several.

    bits    of all numbers;  order  of the steps
    middle  what the last term of a step may be at the middle of the box;  box  and on the box
    steps   that are left;  end  `time.monotonic()` at which no more are made
    """

    bits: int
    order: int
    middle: float
    box: float
    steps: float
    end: float


class BallResidual(NamedTuple):
    """A residual: at the middle of a box, and its range there with its derivatives."""

    middle: Any
    box: Jet


class Flow:
    """One experiment's states: x at the middle; y on the box, with derivatives by parameters."""

    def __init__(self, equations: Equations, box: BallBox, effort: Effort) -> None:
        self.equations, self.box, self.effort = equations, box, effort
        self.parameters = [equations.parameters(p) for p in (box.middle, box.all)]
        self.x, self.y = (list(map(as_jet, equations.start(p))) for p in self.parameters)
        self.h = equations.stops[-1] - equations.stops[0]
        self.shortest = SHORTEST * self.h

    def rows(self) -> Iterator[BallResidual]:
        """Residuals in the order of time. Raises Undecided."""
        stops = self.equations.stops
        for begin, stop in zip([stops[0], *stops], stops, strict=False):
            t = begin
            while t < stop:
                t = self._step(begin, t, stop)
            flint.ctx.cap = 1
            both = [
                self.equations.at(begin, arb(stop), x, p)
                for x, p in zip((self.x, self.y), self.parameters, strict=True)
            ]
            for node, value, sigma in self.equations.measured_at(stop):
                middle, box = ((as_jet(one(node)) + -value) / sigma for one in both)
                yield BallResidual(middle.value, self.box.narrowed(middle.value, box))

    def _step(self, begin: float, t: float, stop: float) -> float:
        """Advance all; the time that was reached. Raises Undecided."""
        effort = self.effort
        then = stop if t + 1.05 * self.h >= stop else t + self.h
        length, effort.steps = arb(then) - arb(t), effort.steps - 1
        if time.monotonic() > effort.end or effort.steps < 0 or then - t < self.shortest:
            raise Undecided
        steps = [TaylorStep(self.equations, p, begin, arb(t), length) for p in self.parameters]
        y, scale = self.y, np.inf
        try:
            x, rest = steps[0].end(self.x, effort.order)
            scale = (effort.middle / max(rest, 1e-300)) ** (1 / effort.order)
            if scale > TOO_LONG and self.box.away:
                here = [Jet(jet.value, {i: arb(1)}) for i, jet in enumerate(self.y)]
                y, rest = steps[1].end(here, effort.order)
                scale = min(scale, (effort.box / max(rest, 1e-300)) ** (1 / effort.order))
        except (Undecided, ArithmeticError, ValueError):
            scale = 0.0
        if not scale > TOO_LONG:
            self.h = (then - t) * max(0.9 * scale, 0.3)
            return t
        self.h = max((then - t) * min(0.9 * scale, 2.0), self.h * (then == stop))
        moved = [_chained(jet, self.y) for jet in y] if self.box.away else x
        self.y = [self.box.narrowed(a.value, b) for a, b in zip(x, moved, strict=True)]
        self.x = x
        return then


def _chained(moved: Jet, before: list[Jet]) -> Jet:
    """Derivatives by parameters, from those by states i before the step and by parameters."""
    total = Jet(moved.value, {j: v for j, v in moved.by.items() if isinstance(j, str)})
    for i, slope in moved.by.items():
        if isinstance(i, int):
            total += before[i].chain(ZERO, slope)
    return total


class ClaimedLeaf(NamedTuple):
    """A part of the certificate's box, and what the sum of squares is said to be there at least."""

    low: Sequence[float]
    high: Sequence[float]
    level: float


@dataclass(frozen=True)
class ArbCheck:
    """What Arb shows of a certificate.

    objective   sum of squares at the certificate's point, to 30 digits; empty if it is unknown
    is_objective_confirmed  whether that is not above the certificate's
    leaves      how many there are;  confirmed, undecided  how many of those that were drawn
    refuted     (point, why) of what is wrong
    """

    objective: str
    is_objective_confirmed: bool
    leaves: int
    confirmed: int
    undecided: int
    refuted: tuple[tuple[Sequence[float], str], ...]

    @property
    def sentence(self) -> str:
        """What is confirmed, and what is left."""
        verb = "confirms" if self.is_objective_confirmed else "does not confirm"
        value = f" {self.objective}" if self.objective else ""
        return (
            f"Arb {verb} the objective{value}. Of {self.leaves} leaves, igpe drew "
            f"{self.confirmed + self.undecided} at random: Arb confirms {self.confirmed} and "
            f"leaves {self.undecided} undecided."
        )


class ThirdCheck:
    """The check of certificates of one problem.

    raises  Unsupported where the model has what `arb_reader` does not know
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.names = problem, problem.box.names
        self.equations = [Equations(problem, k) for k in range(len(problem.experiments))]

    def __call__(
        self,
        point: Sequence[float],
        objective: float,
        leaves: tuple[FloatArray, FloatArray, FloatArray],
        *,
        end: float,
        seed: int = 0,
    ) -> ArbCheck:
        """Check the objective at a certificate's point, and some of its leaves.

        leaves  lower and upper ends (n, n_unknowns), and what the sum of squares is there at least
        """
        old, refuted = (flint.ctx.prec, flint.ctx.cap), []
        drawn = np.sort(np.random.default_rng(seed).permutation(len(leaves[0]))[:LEAVES])
        chosen = [
            ClaimedLeaf(*row)
            for row in zip(*(part[drawn].tolist() for part in leaves), strict=True)
        ]
        value, verdicts = None, list[bool | tuple[ClaimedLeaf, Sequence[float]]]()
        try:
            value = self.objective(point, end)
            for leaf in chosen:
                verdicts.append(self.leaf(leaf, end))
        except KeyboardInterrupt:
            pass  # the rest is undecided; what was verified without Arb stays
        finally:
            flint.ctx.prec, flint.ctx.cap = old
        if value is not None and value > objective:
            shown = f"{value.str(DIGITS)} according to Arb; the certificate says {objective:.17g}"
            refuted.append((point, f"with these parameter values, the sum of squares is {shown}"))
        for leaf, better in (v for v in verdicts if not isinstance(v, bool)):
            why = (
                f"with these parameter values, the sum of squares is below {leaf.level:.9g} "
                "according to Arb"
            )
            refuted.append((better, why))
        return ArbCheck(
            objective="" if value is None else value.str(DIGITS),
            is_objective_confirmed=value is not None and bool(value <= objective),
            leaves=len(leaves[0]),
            confirmed=verdicts.count(True),
            undecided=len(chosen) - len(verdicts) + verdicts.count(False),
            refuted=tuple(refuted),
        )

    def residuals(self, box: BallBox, effort: Effort) -> Iterator[BallResidual]:
        """Residuals of priors and all experiments. Raises Undecided."""
        flint.ctx.prec = effort.bits
        for name, prior in self.problem.normal_priors.items():
            middle, on_box = (
                (as_jet(p[name]) + -arb(prior.mean)) / arb(prior.deviation)
                for p in (box.middle, box.all)
            )
            yield BallResidual(middle.value, on_box)
        for equations in self.equations:
            yield from Flow(equations, box, effort).rows()

    def objective(self, point: Sequence[float], end: float = np.inf) -> Any:
        """Sum of squares at a point, to 30 digits if they can be had; None if it is unknown."""
        value = None
        for bits in PRECISIONS:
            effort = Effort(bits, bits // 4, 2.0 ** (16 - bits), 1.0, np.inf, end)
            try:
                value = self._at(point, effort)
            except Undecided:
                return value
            if value.rel_accuracy_bits() > DIGITS * np.log2(10) + 1:
                break
        return value

    def leaf(
        self, leaf: ClaimedLeaf, end: float = np.inf
    ) -> bool | tuple[ClaimedLeaf, Sequence[float]]:
        """Whether the bound of a leaf is confirmed; or parameters that refute it."""
        effort = Effort(**LEAF, steps=STEPS, end=end)
        widths = np.subtract(leaf.high, leaf.low)
        todo, widths = [leaf], np.where(widths > 0, widths, 1.0)
        for _ in range(PIECES):
            if not todo:
                return True
            piece = todo.pop()
            score = np.subtract(piece.high, piece.low) / widths
            try:
                least, near, moved = self.bound(piece, effort)
                if least >= leaf.level:
                    continue
                if near is not None and self._at(near, effort) < leaf.level:
                    return leaf, near
                score = np.where(score > 0, moved, -1.0)
            except Undecided:
                if effort.steps <= 0 or time.monotonic() > end:
                    return False
            axis = int(np.argmax(score))
            low, high = list(piece.low), list(piece.high)
            low[axis] = high[axis] = (piece.low[axis] + piece.high[axis]) / 2
            todo += [
                ClaimedLeaf(piece.low, high, leaf.level),
                ClaimedLeaf(low, piece.high, leaf.level),
            ]
        return False

    def _at(self, point: Sequence[float], effort: Effort) -> Any:
        rows = self.residuals(BallBox.between(self.names, point, point), effort)
        return sum((row.middle**2 for row in rows), ZERO)

    def bound(
        self, leaf: ClaimedLeaf, effort: Effort
    ) -> tuple[Any, Sequence[float] | None, FloatArray]:
        """Lower bound on the sum of squares in a leaf. Raises Undecided.

        returns  the bound; parameters that may refute it; how much each unknown moves the residuals
        """
        box = BallBox.between(self.names, leaf.low, leaf.high)
        total, rows = ZERO, list[BallResidual]()
        for row in self.residuals(box, effort):
            rows.append(row)
            total += row.box.value.abs_lower() ** 2
            if total >= leaf.level:
                return total, None, np.zeros(0)
        away = [box.away.get(n, ZERO) for n in self.names]
        slopes = [[row.box.by.get(n, ZERO) for n in self.names] for row in rows]
        half = np.subtract(leaf.high, leaf.low) / 2
        matrix = np.array(slopes, dtype=float) * half
        values = np.array([float(row.middle) for row in rows])
        if not np.isfinite(matrix).all():
            raise Undecided
        # any u is right; this is the residual nearest to 0, if slopes were constant
        delta = lsq_linear(matrix, -values, (-1, 1)).x
        nearest = values + matrix @ delta
        u = list(map(arb, nearest.tolist()))
        tangent = sum((2 * a * row.middle - a * a for a, row in zip(u, rows, strict=True)), ZERO)
        for d, column in zip(away, zip(*slopes, strict=True), strict=True):
            tangent += 2 * d * sum((a * v for a, v in zip(u, column, strict=True)), ZERO)
        near = np.clip(np.add(leaf.low, leaf.high) / 2 + half * delta, leaf.low, leaf.high)
        may_refute = nearest @ nearest < leaf.level
        moved = (matrix**2).sum(axis=0)
        return tangent.lower().max(total), near.tolist() if may_refute else None, moved
