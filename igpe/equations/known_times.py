"""Where functions of time alone switch, rise or fall: found by intervals, never by samples.

The horizon is bisected until, on each piece, interval arithmetic decides a question: which value a
condition has, or whether a function rises, falls, or is constant. What is left undecided are pieces
as short as the numbers allow. So nothing between two samples can be overlooked.

An enclosure holds every value that a CasADi expression takes while its symbols stay in their
intervals, many intervals at once. Each result is widened by some units of rounding. What has no
bound here is the whole line, also an operation that this file does not know.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.equations.operations import Graph
from igpe.problem.inputs import Table

UNITS = 8  # in the last place that a function of the C library may be off
TURN = 2 * np.pi
MOST = 20_000  # pieces that may be undecided at the same time
LEVELS = 200  # bisections; a horizon of doubles that begins at 0 has no more that matter
SHORTEST = 1e-13  # of the horizon: a rise that is shorter is a jump, which is seen from both sides
NOISE = 1e-12  # of a function's largest value: a smaller change is none
NOTHING = 1e-250  # next to the smallest numbers, which have no digits
UNDECIDED = 9
BENT = 2  # an upward bend, -2 a downward one: one extremum at most
HALVINGS = 45
SECTIONS, MOST_AT_ONCE = 16, 8000  # parts that a stretch is cut into at once; times of all
EXACT = 1e-5  # of a rise's length: how exactly its marks are located
KEPT = 256  # functions whose times are kept
SHARES = 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6  # of a rise: where it is marked
ABRUPT = 2.0  # times its own length that nothing happened before a rise


class Range(NamedTuple):
    """All numbers from low to high; both (n,) or of a shape that NumPy repeats to it."""

    low: FloatArray
    high: FloatArray


def point(number: Any) -> Range:
    """One number, or one for each interval."""
    value = np.asarray(number, dtype=float)
    return Range(value, value)


class Enclosure:
    """Encloses the rows of a CasADi function with one output column."""

    def __init__(self, function: Any) -> None:
        self.graph = Graph.of_function(function)

    def __call__(self, *given: Sequence[Range]) -> list[Range]:
        """One range for each row. given: for each argument one range for each of its elements."""
        with np.errstate(all="ignore"):
            return self.graph.evaluate(
                lambda argument, element: given[argument][element],
                point,
                lambda name, operands: RULES.get(name, _nothing_known)(*operands),
            )


def _nothing_known(*operands: Range) -> Range:
    shape = np.broadcast_shapes(*(np.shape(o.low) for o in operands))
    return Range(np.full(shape, -np.inf), np.full(shape, np.inf))


def _outward(low: FloatArray, high: FloatArray, units: int = 1) -> Range:
    """Bounds moved apart by their rounding; the whole line where one is no number."""
    good = low <= high
    for _ in range(units):
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return Range(np.where(good, low, -np.inf), np.where(good, high, np.inf))


def _sum(a: Range, b: Range) -> Range:
    """Widened only where the sum is rounded: a switch 1 + 0 t and 1 minus it decide choices."""
    low, high = (x + y for x, y in zip(a, b, strict=True))
    outward = _outward(low, high)
    return Range(
        np.where(_is_exact(a.low, b.low, low), low, outward.low),
        np.where(_is_exact(a.high, b.high, high), high, outward.high),
    )


def _is_exact(x: FloatArray, y: FloatArray, total: FloatArray) -> BoolArray:
    """Return True where a rounded sum is the sum (Knuth's two-sum leaves nothing)."""
    added = total - x
    return np.asarray((x - (total - added)) + (y - added) == 0)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    low, high = reduce(np.minimum, corners), reduce(np.maximum, corners)  # which hand on nan
    is_zero = [(r.low == 0) & (r.high == 0) for r in (a, b)]
    nothing = (low == 0) & (high == 0) & (is_zero[0] | is_zero[1])  # no product that underflowed
    outward = _outward(low, high)
    return Range(np.where(nothing, 0.0, outward.low), np.where(nothing, 0.0, outward.high))


def _inverse(a: Range) -> Range:
    pole = (a.low <= 0) & (a.high >= 0)
    low, high = np.where(pole, -np.inf, 1 / a.high), np.where(pole, np.inf, 1 / a.low)
    return _outward(low, high)


def _increasing(
    function: Callable[[FloatArray], FloatArray], least: float = -np.inf, most: float = np.inf
) -> Callable[[Range], Range]:
    """Return the rule of an increasing function whose values lie between least and most."""

    def rule(a: Range) -> Range:
        outward = _outward(function(a.low), function(a.high), UNITS)
        return Range(np.maximum(outward.low, least), np.minimum(outward.high, most))

    return rule


def _cosine(a: Range) -> Range:
    """Its extrema lie at multiples of pi; a little too many are taken for inside."""
    slack = UNITS * np.spacing(np.maximum(np.abs(a.low), np.abs(a.high)))
    low, high = (a.low - slack) / TURN, (a.high + slack) / TURN
    top, bottom = np.floor(high) >= np.ceil(low), np.floor(high - 0.5) >= np.ceil(low - 0.5)
    ends = np.cos(a.low), np.cos(a.high)
    outward = _outward(np.minimum(*ends) - slack, np.maximum(*ends) + slack, UNITS)
    unknown = ~(np.isfinite(low) & np.isfinite(high))
    return Range(
        np.where(bottom | unknown, -1.0, np.maximum(outward.low, -1.0)),
        np.where(top | unknown, 1.0, np.minimum(outward.high, 1.0)),
    )


def _tangent(a: Range) -> Range:
    branch = np.floor(a.low / np.pi + 0.5 - 1e-12) == np.floor(a.high / np.pi + 0.5 + 1e-12)
    outward = _outward(np.tan(a.low), np.tan(a.high), UNITS)
    return Range(np.where(branch, outward.low, -np.inf), np.where(branch, outward.high, np.inf))


def _absolute(a: Range) -> Range:
    least = np.maximum(np.maximum(a.low, -a.high), 0.0)
    return Range(least, np.maximum(np.abs(a.low), np.abs(a.high)))


def _power(a: Range, b: Range) -> Range:
    """Bases above 0; whole exponents of any base; else no bound."""
    exponent = float(np.ravel(b.low)[0])
    if np.size(b.low) == 1 and np.all(b.low == b.high) and exponent.is_integer():
        base = _absolute(a) if exponent % 2 == 0 else a
        size = abs(exponent)
        outward = _outward(np.power(base.low, size), np.power(base.high, size), UNITS)
        return _inverse(outward) if exponent < 0 else outward
    corners = np.stack([np.asarray(np.power(x, y)) for x in a for y in b])
    outward = _outward(corners.min(axis=0), corners.max(axis=0), UNITS)
    good = (a.low > 0) | ((a.low >= 0) & (b.low >= 0))
    return Range(np.where(good, outward.low, -np.inf), np.where(good, outward.high, np.inf))


def _truth(surely: BoolArray, possibly: BoolArray) -> Range:
    return Range(np.where(surely, 1.0, 0.0), np.where(possibly, 1.0, 0.0))


def _equal(a: Range, b: Range) -> Range:
    same = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return _truth(same, (a.low <= b.high) & (b.low <= a.high))


def _not(a: Range) -> Range:
    return _truth((a.low == 0) & (a.high == 0), ~((a.low > 0) | (a.high < 0)))


def _or(a: Range, b: Range) -> Range:
    a, b = _not(_not(a)), _not(_not(b))
    return Range(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def _chosen(condition: Range, a: Range) -> Range:
    """a where the condition is true, else 0."""
    off = _not(condition)
    never, always = off.low == 1, off.high == 0
    low = np.where(never, 0.0, np.where(always, a.low, np.minimum(a.low, 0.0)))
    high = np.where(never, 0.0, np.where(always, a.high, np.maximum(a.high, 0.0)))
    return Range(low, high)


def _each(function: Callable[..., FloatArray]) -> Callable[..., Range]:
    """Return the rule of an increasing function that does not round."""
    return lambda *of: Range(function(*(a.low for a in of)), function(*(a.high for a in of)))


INCREASING = {"LOG", "LOG1P", "SQRT", "ASIN", "ATAN", "SINH", "ASINH", "ACOSH", "ATANH"}
RULES: dict[str, Callable[..., Range]] = {
    "ASSIGN": lambda a: a,
    "ADD": _sum,
    "SUB": lambda a, b: _sum(a, Range(-b.high, -b.low)),
    "MUL": _product,
    "DIV": lambda a, b: _product(a, _inverse(b)),
    "NEG": lambda a: Range(-a.high, -a.low),
    "INV": _inverse,
    "TWICE": lambda a: Range(2 * a.low, 2 * a.high),
    "SQ": lambda a: _increasing(np.square, 0.0)(_absolute(a)),
    "POW": _power,
    "CONSTPOW": _power,
    **{name: _increasing(getattr(np, name.lower())) for name in INCREASING},
    "EXP": _increasing(np.exp, 0.0),
    "EXPM1": _increasing(np.expm1, -1.0),
    "TANH": _increasing(np.tanh, -1.0, 1.0),
    "COSH": lambda a: _increasing(np.cosh, 1.0)(_absolute(a)),
    "ACOS": lambda a: _outward(np.arccos(a.high), np.arccos(a.low), UNITS),
    "SIN": lambda a: _cosine(_outward(a.low - np.pi / 2, a.high - np.pi / 2)),
    "COS": _cosine,
    "TAN": _tangent,
    "FABS": _absolute,
    "FMIN": _each(np.minimum),
    "FMAX": _each(np.maximum),
    "FLOOR": _each(np.floor),
    "CEIL": _each(np.ceil),
    "SIGN": _each(np.sign),
    "LT": lambda a, b: _truth(a.high < b.low, a.low < b.high),
    "LE": lambda a, b: _truth(a.high <= b.low, a.low <= b.high),
    "EQ": _equal,
    "NE": lambda a, b: _not(_equal(a, b)),
    "NOT": _not,
    "AND": lambda a, b: _not(_or(_not(a), _not(b))),
    "OR": _or,
    "IF_ELSE_ZERO": _chosen,
}
"""By CasADi's name of the operation."""


class Segments(NamedTuple):
    """Stretches of the horizon on which inputs given by tables are a + b t.

    edges  (n + 1,) increasing;  inputs (n, 2 n_u): a, then b, of each
    """

    edges: FloatArray
    inputs: FloatArray

    def at(self, times: FloatArray) -> FloatArray:
        """(n_times, 2 n_u) coefficients at times; at an edge those of the segment before it."""
        k = np.searchsorted(self.edges, times, side="left") - 1
        return np.asarray(self.inputs[np.clip(k, 0, len(self.inputs) - 1)])


class Pieces(NamedTuple):
    """The horizon in pieces in their order: where each begins and ends, and what was decided."""

    low: FloatArray
    high: FloatArray
    label: IntArray

    def in_order(self) -> "Pieces":
        """The pieces by their beginnings."""
        order = np.argsort(self.low, kind="stable")
        return Pieces(self.low[order], self.high[order], self.label[order])


Classify = Callable[[FloatArray, FloatArray, FloatArray], IntArray]
"""(low, high, inputs) -> for each piece what is decided, or UNDECIDED."""


def bisected(segments: Segments, classify: Classify, name: str, *, shortest: float = 0.0) -> Pieces:
    """Bisect until all is decided, or what is not is shorter than `shortest` or holds no number.

    Beside a time at which two sides are equal, rounding leaves many short pieces undecided.

    raises ModelError if more than `MOST` pieces are undecided at the same time, and are not short
    """
    short = SHORTEST * (segments.edges[-1] - segments.edges[0])
    low, high, inputs = segments.edges[:-1], segments.edges[1:], segments.inputs
    done: list[Pieces] = []
    for _ in range(LEVELS):
        label = classify(low, high, inputs)
        middle = low + (high - low) / 2
        final = (label != UNDECIDED) | (middle <= low) | (middle >= high)
        final |= high - low < (short if np.sum(~final) > MOST else shortest)
        done.append(Pieces(low[final], high[final], label[final]))
        low, high, middle, inputs = (v[~final] for v in (low, high, middle, inputs))
        if not len(low):
            break
        if len(low) > MOST:
            raise ModelError(
                f"{name} changes too often between t = {segments.edges[0]:g} and "
                f"t = {segments.edges[-1]:g}: igpe follows at most {MOST} changes. Shorten the "
                "horizon, or give the quantity as igpe.linear_input or igpe.step_input."
            )
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        inputs = np.concatenate([inputs, inputs])
    done.append(Pieces(low, high, np.full(len(low), UNDECIDED)))
    return Pieces(*map(np.concatenate, zip(*done, strict=True))).in_order()


def switched(function: Any, segments: Segments) -> Table:
    """The values of a function (t, inputs) of time that changes by jumps alone, held between them.

    raises ModelError if it jumps too often, or has no value

    A value that holds at a single time only is left out. Each jump lies at the first number at
    which the function has its new value.
    """
    enclose, name = Enclosure(function), "A condition on time"
    values: list[float] = []

    def classify(low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        (enclosure,) = enclose([Range(low, high)], [point(c) for c in inputs.T])
        lowest, highest = (np.broadcast_to(v, low.shape) for v in enclosure)
        label, known = np.full(len(low), UNDECIDED), lowest == highest
        for value in np.unique(lowest[known]):
            if value not in values:
                values.append(float(value))
            label[known & (lowest == value)] = UNDECIDED + 1 + values.index(value)
        return label

    def has(value: float, time: float) -> bool:
        return float(function(time, segments.at(np.array([time]))[0])) == value

    def first_new(old: float, new: float, value: float) -> float:
        while old < (middle := old + (new - old) / 2) < new:
            old, new = (old, middle) if has(value, middle) else (middle, new)
        return old if has(value, old) else new

    pieces = bisected(segments, classify, name)
    decided = pieces.label != UNDECIDED
    if not decided.any():
        raise ModelError(
            "igpe cannot decide whether a condition on time holds: its two sides are equal up to "
            "rounding at all times. Compare time with a number, as in t >= 0.4."
        )
    low, high, label = (part[decided] for part in pieces)
    changes = np.flatnonzero(label[1:] != label[:-1])
    number = np.array(values)[label - UNDECIDED - 1]
    jumps = [first_new(float(high[k]), float(low[k + 1]), number[k + 1]) for k in changes]
    return Table(np.array([segments.edges[0], *jumps]), number[[0, *(changes + 1)]], hold=True)


Stretches = tuple[FloatArray, FloatArray]
"""(n,) beginnings and ends of stretches without extrema."""


class AtTimes:
    """A CasADi function (t, [a, b] of the inputs, q) of one number, at many times at once.

    NumPy computes it where it can: for ten times, CasADi takes ten times as long.
    """

    def __init__(self, function: Any) -> None:
        graph = Graph.of_function(function)
        self._function = function
        self._graph = graph if graph.has_numbers else None

    def __call__(self, times: FloatArray, inputs: FloatArray, numbers: FloatArray) -> FloatArray:
        """(n,) at times (n,), with inputs (n, n_u) there and q (n_q,)."""
        if self._graph is None:
            fixed = np.tile(numbers[:, None], len(times))
            return np.asarray(self._function(times[None], inputs.T, fixed)).ravel()
        (value,) = self._graph.numbers([times], inputs.T, numbers)
        return np.broadcast_to(value, (1, len(times))).ravel()


class Changing:
    """A function of time, inputs and unknowns, with its slope and curvature.

    each       a CasADi function (t, [a, b] of the inputs, q) of one number
    stretches  beginnings and ends of its rises and falls, if no unknown moves them
    """

    def __init__(self, *functions: Any, stretches: Stretches | None = None) -> None:
        self.stretches = stretches
        value = functions[0]
        self.value, self.slope = (AtTimes(f) for f in functions[:2])
        given = value.sx_in()
        rows = ca.vertcat(*(function(*given) for function in functions))  # they share nearly all
        self.text = str(value.serialize())
        self.unknowns = sorted(set(value.jac_sparsity(0, 2).get_col()))  # that move it
        self.enclose = Enclosure(ca.Function("enclosed", given, [rows]))


_marked: dict[tuple[object, ...], FloatArray] = {}


def abrupt(
    function: Changing, segments: Segments, numbers: FloatArray, *, through: bool = False
) -> FloatArray:
    """Times that an integrator has to land on to see each rise of a function of time.

    numbers  (n_q,) the unknowns
    through  also times all through such a rise and the next, for a mesh that is not adapted
    returns  for each rise after a time without change, long beside the rise itself: where it
             begins, and where nine tenths of it are done
    raises   ModelError if it rises and falls too often

    On a stretch without extrema nothing hides between two times with like values. What an
    integrator may step over is a rise that ends before the step does; so it lands on each.
    """
    key = function.text, *(a.tobytes() for a in (*segments, numbers[function.unknowns])), through
    if key not in _marked:
        if len(_marked) == KEPT:
            _marked.pop(next(iter(_marked)))
        marks = _Trajectory(function, segments, numbers).rises()
        short = _is_abrupt(segments.edges[0], marks[1], marks[1], marks[3])
        if through:
            short |= np.append([False], short[:-1])[: len(short)]
        _marked[key] = marks[:, short][:: 1 if through else 3].ravel()
    return _marked[key]


def stretches(function: Changing, segments: Segments) -> Stretches:
    """Return where a function of time alone rises or falls.

    raises  ModelError if it does too often
    """
    return _Trajectory(function, segments, np.zeros(0)).stretches()


def _is_abrupt(first: float, after: FloatArray, early: FloatArray, late: FloatArray) -> BoolArray:
    """Return True where long nothing happens before a rise: since the one before, or the start.

    after  (n,) where each rise is a tenth done, at the earliest;  early  the same, at the latest
    late   (n,) where it is nine tenths done
    """
    before = np.append(first, after)[:-1]
    return np.asarray(early - before > ABRUPT * (late - early))


class _Trajectory:
    """One function over the horizon, with numbers for the unknowns."""

    def __init__(self, function: Changing, segments: Segments, numbers: FloatArray) -> None:
        self.function, self.segments, self.numbers = function, segments, numbers
        self.largest = 0.0

    def rises(self) -> FloatArray:
        """(5, n) when `SHARES` of each rise or fall are done, one after the other."""
        return self._reached(*(self.function.stretches or self.stretches()))

    def stretches(self) -> Stretches:
        """Where it rises or falls, constant stretches included."""
        pieces = self._monotone()
        moving = np.flatnonzero(np.isin(pieces.label, (-1, 1)))
        sign = pieces.label[moving]
        end = pieces.high[moving][np.append(sign[1:] != sign[:-1], True)[: len(sign)]]
        return np.concatenate([self.segments.edges[:1], end])[: len(end)], end

    def _monotone(self) -> Pieces:
        """Pieces on which it rises (1), falls (-1) or is constant up to `NOISE` (0)."""
        shortest = SHORTEST * float(self.segments.edges[-1] - self.segments.edges[0])
        low, high, label = bisected(
            self.segments, self._classified, "A function of time", shortest=shortest
        )
        bent = np.flatnonzero(np.abs(label) == BENT)
        first, turn = self._turns(low[bent], high[bent])
        rest = np.where(turn < high[bent], label[bent] // BENT, 0)
        low, label = np.append(low, turn), np.append(label, rest)
        high = np.append(high, high[bent])
        high[bent], label[bent] = turn, first
        return Pieces(low, high, label).in_order()

    def _classified(self, low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        sizes = np.abs(self._values(self.function.value, low + (high - low) / 2))
        self.largest = max(self.largest, float(np.max(sizes[np.isfinite(sizes)], initial=0.0)))
        columns = [point(c) for c in inputs.T], [point(number) for number in self.numbers]
        value, slope, curvature = self.function.enclose([Range(low, high)], *columns)
        with np.errstate(invalid="ignore"):
            constant = value.high - value.low <= max(NOISE * self.largest, NOTHING)
        label = np.full(len(low), UNDECIDED)
        label[slope.low >= 0], label[slope.high <= 0] = 1, -1
        label[constant] = 0
        # an edge of the inputs may be a corner; inside a segment the slope is continuous
        rest = label == UNDECIDED
        label[rest & (curvature.low > 0)], label[rest & (curvature.high < 0)] = BENT, -BENT
        return label

    def _turns(self, low: FloatArray, high: FloatArray) -> tuple[IntArray, FloatArray]:
        """Of pieces on which the slope rises or falls: its first sign, and where that ends."""
        inside = low + (high - low) / 2  # at an edge the segment before it counts
        first = np.sign(self._values(self.function.slope, low, inside))
        for _ in range(HALVINGS if len(low) else 0):
            middle = low + (high - low) / 2
            passed = np.sign(self._values(self.function.slope, middle, inside)) != first
            low, high = np.where(passed, low, middle), np.where(passed, middle, high)
        return first.astype(np.intp), high

    def _values(
        self, function: AtTimes, times: FloatArray, within: FloatArray | None = None
    ) -> FloatArray:
        """At times, with the inputs of the segments in which they lie, or the times `within`."""
        if len(times) == 0:
            return np.zeros(0)
        inputs = self.segments.at(times if within is None else within)
        return function(times, inputs, self.numbers)

    def _reached(self, begin: FloatArray, end: FloatArray) -> FloatArray:
        """(5, n) where shares of the change are done, on stretches without extrema.

        (5, 0) once it is clear that no change is abrupt. A step of an integrator that ends near a
        mark sees the rise as one that ends on it, so a small part of its length is exact enough.
        """
        first, last = np.split(self._values(self.function.value, np.append(begin, end)), 2)
        least = NOISE * max(np.max(np.abs(first), initial=0.0), np.max(np.abs(last), initial=0.0))
        changes = ~(np.abs(last - first) <= max(least, NOTHING))
        begin, end, first, last = (v[changes] for v in (begin, end, first, last))
        shares = np.array(SHARES)[:, None] * np.abs(last - first)
        low, high = (np.tile(v, (len(SHARES), 1)) for v in (begin, end))
        sections = max(2, min(SECTIONS, MOST_AT_ONCE // max(low.size, 1)))
        inner = np.arange(1, sections)[:, None, None] / sections
        for _ in range(math.ceil(HALVINGS / math.log2(sections))):
            times = low + (high - low) * inner
            now = self._values(self.function.value, times.ravel()).reshape(times.shape)
            before = (np.abs(now - first) < shares).sum(axis=0)[None]
            ends = np.concatenate([low[None], times, high[None]])
            low, high = (np.take_along_axis(ends, before + i, axis=0)[0] for i in (0, 1))
            if not _is_abrupt(self.segments.edges[0], low[1], high[1], low[3]).any():
                return np.zeros((len(SHARES), 0))  # whatever the digits to come
            if ((high - low).max(axis=0) <= EXACT * (low[3] - high[1])).all():
                break
        return high
