"""Where functions of time alone switch, rise or fall: found by intervals, never by samples.

The horizon is bisected until, on each piece, interval arithmetic decides a question: which value a
condition has, or whether a function rises, falls, or is constant. What is left undecided are pieces
as short as the numbers allow. So nothing between two samples can be overlooked.

Interval arithmetic on CasADi expressions, many intervals at once.

An enclosure holds every value that an expression takes while its symbols stay in their intervals.
Each result is widened by some units of rounding. What has no bound here is the whole line, also an
operation that this file does not know.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.equations.operations import Graph

UNITS = 8  # in the last place that a function of the C library may be off
TURN = 2 * np.pi


class Range(NamedTuple):
    """All numbers from low to high; both (n,) or of a shape that NumPy repeats to it."""

    low: FloatArray
    high: FloatArray


_Work: TypeAlias = list[Range]
_Given: TypeAlias = Sequence[Sequence[Range]]


def point(number: Any) -> Range:
    """One number, or one for each interval."""
    value = np.asarray(number, dtype=float)
    return Range(value, value)


class Enclosure:
    """Encloses the rows of a CasADi function with one output column."""

    def __init__(self, function: Any) -> None:
        self.tape: list[Callable[[_Work, _Given], Range]] = []
        graph = Graph.of_function(function)
        self.results = graph.evaluate(self._input, self._constant, self._operation)

    def __call__(self, *given: Sequence[Range]) -> list[Range]:
        """One range for each row. given: for each argument one range for each of its elements."""
        work: _Work = []
        with np.errstate(all="ignore"):
            for instruction in self.tape:
                work.append(instruction(work, given))
        return [work[k] for k in self.results]

    def _input(self, argument: int, element: int) -> int:
        return self._put(lambda _, given: given[argument][element])

    def _constant(self, number: float) -> int:
        constant = point(number)
        return self._put(lambda _, __: constant)

    def _operation(self, name: str, operands: list[int]) -> int:
        rule = RULES.get(name, _nothing_known)
        return self._put(lambda work, _: rule(*(work[k] for k in operands)))

    def _put(self, instruction: "Callable[[_Work, _Given], Range]") -> int:
        self.tape.append(instruction)
        return len(self.tape) - 1


def _nothing_known(*operands: Range) -> Range:
    shape = np.broadcast_shapes(*(np.shape(o.low) for o in operands))
    return Range(np.full(shape, -np.inf), np.full(shape, np.inf))


def _outward(low: FloatArray, high: FloatArray, units: int = 1) -> Range:
    """Bounds moved apart by their rounding; the whole line where one is no number."""
    bad = ~(low <= high)
    below = np.where(np.isfinite(low), low - units * np.spacing(np.abs(low)), low)
    above = np.where(np.isfinite(high), high + units * np.spacing(np.abs(high)), high)
    return Range(np.where(bad, -np.inf, below), np.where(bad, np.inf, above))


def _sum(a: Range, b: Range) -> Range:
    """Widened only where the sum is rounded: a switch 1 + 0 t and 1 minus it decide choices."""
    low, high = (x + y for x, y in zip(a, b, strict=True))
    found = _outward(low, high)
    return Range(
        np.where(_is_exact(a.low, b.low, low), low, found.low),
        np.where(_is_exact(a.high, b.high, high), high, found.high),
    )


def _is_exact(x: FloatArray, y: FloatArray, total: FloatArray) -> BoolArray:
    """Return True where a rounded sum is the sum (Knuth's two-sum leaves nothing)."""
    added = total - x
    return np.asarray((x - (total - added)) + (y - added) == 0)


def _product(a: Range, b: Range) -> Range:
    corners = np.stack([np.asarray(x * y) for x in a for y in b])
    low, high = corners.min(axis=0), corners.max(axis=0)  # min hands on nan
    nothing = (low == 0) & (high == 0) & (_is_zero(a) | _is_zero(b))  # no product that underflowed
    found = _outward(low, high)
    return Range(np.where(nothing, 0.0, found.low), np.where(nothing, 0.0, found.high))


def _is_zero(a: Range) -> BoolArray:
    return np.asarray((a.low == 0) & (a.high == 0))


def _inverse(a: Range) -> Range:
    pole = (a.low <= 0) & (a.high >= 0)
    low, high = np.where(pole, -np.inf, 1 / a.high), np.where(pole, np.inf, 1 / a.low)
    return _outward(low, high)


def _square(a: Range) -> Range:
    least = np.maximum(np.maximum(a.low, -a.high), 0.0)
    size = np.maximum(np.abs(a.low), np.abs(a.high))
    found = _outward(least * least, size * size)
    return Range(np.maximum(found.low, 0.0), found.high)


def _increasing(function: Callable[[FloatArray], FloatArray]) -> Callable[[Range], Range]:
    return lambda a: _outward(function(a.low), function(a.high), UNITS)


def _decreasing(function: Callable[[FloatArray], FloatArray]) -> Callable[[Range], Range]:
    return lambda a: _outward(function(a.high), function(a.low), UNITS)


def _exponential(a: Range) -> Range:
    found = _outward(np.exp(a.low), np.exp(a.high), UNITS)
    return Range(np.maximum(found.low, 0.0), found.high)


def _hyperbolic_tangent(a: Range) -> Range:
    found = _outward(np.tanh(a.low), np.tanh(a.high), UNITS)
    return Range(np.maximum(found.low, -1.0), np.minimum(found.high, 1.0))


def _hyperbolic_cosine(a: Range) -> Range:
    size = _absolute(a)
    return _outward(np.cosh(size.low), np.cosh(size.high), UNITS)


def _cosine(a: Range) -> Range:
    """Its extrema lie at multiples of pi; a little too many are taken for inside."""
    slack = UNITS * np.spacing(np.maximum(np.abs(a.low), np.abs(a.high)))
    low, high = (a.low - slack) / TURN, (a.high + slack) / TURN
    top, bottom = np.floor(high) >= np.ceil(low), np.floor(high - 0.5) >= np.ceil(low - 0.5)
    ends = np.cos(a.low), np.cos(a.high)
    found = _outward(np.minimum(*ends) - slack, np.maximum(*ends) + slack, UNITS)
    unknown = ~(np.isfinite(low) & np.isfinite(high))
    return Range(
        np.where(bottom | unknown, -1.0, np.maximum(found.low, -1.0)),
        np.where(top | unknown, 1.0, np.minimum(found.high, 1.0)),
    )


def _sine(a: Range) -> Range:
    return _cosine(_outward(a.low - np.pi / 2, a.high - np.pi / 2))


def _tangent(a: Range) -> Range:
    branch = np.floor(a.low / np.pi + 0.5 - 1e-12) == np.floor(a.high / np.pi + 0.5 + 1e-12)
    found = _outward(np.tan(a.low), np.tan(a.high), UNITS)
    return Range(np.where(branch, found.low, -np.inf), np.where(branch, found.high, np.inf))


def _absolute(a: Range) -> Range:
    least = np.maximum(np.maximum(a.low, -a.high), 0.0)
    return Range(least, np.maximum(np.abs(a.low), np.abs(a.high)))


def _power(a: Range, b: Range) -> Range:
    """Bases above 0; whole exponents of any base; else no bound."""
    if np.size(b.low) == 1 and np.all(b.low == b.high) and float(np.ravel(b.low)[0]).is_integer():
        return _whole_power(a, int(np.ravel(b.low)[0]))
    corners = np.stack([np.asarray(np.power(x, y)) for x in a for y in b])
    found = _outward(corners.min(axis=0), corners.max(axis=0), UNITS)
    good = (a.low > 0) | ((a.low >= 0) & (b.low >= 0))
    return Range(np.where(good, found.low, -np.inf), np.where(good, found.high, np.inf))


def _whole_power(a: Range, n: int) -> Range:
    if n < 0:
        return _inverse(_whole_power(a, -n))
    base = _absolute(a) if n % 2 == 0 else a
    return _outward(np.power(base.low, float(n)), np.power(base.high, float(n)), UNITS)


def _truth(surely: BoolArray, possibly: BoolArray) -> Range:
    return Range(np.where(surely, 1.0, 0.0), np.where(possibly, 1.0, 0.0))


def _equal(a: Range, b: Range) -> Range:
    same = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return _truth(same, (a.low <= b.high) & (b.low <= a.high))


def _not(a: Range) -> Range:
    zero, never_zero = (a.low == 0) & (a.high == 0), (a.low > 0) | (a.high < 0)
    return _truth(zero, ~never_zero)


def _chosen(condition: Range, a: Range) -> Range:
    """a where the condition is true, else 0."""
    off = _not(condition)
    never, always = off.low == 1, off.high == 0
    low = np.where(never, 0.0, np.where(always, a.low, np.minimum(a.low, 0.0)))
    high = np.where(never, 0.0, np.where(always, a.high, np.maximum(a.high, 0.0)))
    return Range(low, high)


def _or(a: Range, b: Range) -> Range:
    a, b = _not(_not(a)), _not(_not(b))
    return Range(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


RULES: dict[str, Callable[..., Range]] = {
    "ASSIGN": lambda a: a,
    "ADD": _sum,
    "SUB": lambda a, b: _sum(a, Range(-b.high, -b.low)),
    "MUL": _product,
    "DIV": lambda a, b: _product(a, _inverse(b)),
    "NEG": lambda a: Range(-a.high, -a.low),
    "INV": _inverse,
    "TWICE": lambda a: Range(2 * a.low, 2 * a.high),
    "SQ": _square,
    "POW": _power,
    "CONSTPOW": _power,
    "EXP": _exponential,
    "EXPM1": _increasing(np.expm1),
    "LOG": _increasing(np.log),
    "LOG1P": _increasing(np.log1p),
    "SQRT": _increasing(np.sqrt),
    "SIN": _sine,
    "COS": _cosine,
    "TAN": _tangent,
    "ASIN": _increasing(np.arcsin),
    "ACOS": _decreasing(np.arccos),
    "ATAN": _increasing(np.arctan),
    "SINH": _increasing(np.sinh),
    "COSH": _hyperbolic_cosine,
    "TANH": _hyperbolic_tangent,
    "ASINH": _increasing(np.arcsinh),
    "ACOSH": _increasing(np.arccosh),
    "ATANH": _increasing(np.arctanh),
    "FABS": _absolute,
    "FMIN": lambda a, b: Range(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "FMAX": lambda a, b: Range(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "FLOOR": lambda a: Range(np.floor(a.low), np.floor(a.high)),
    "CEIL": lambda a: Range(np.ceil(a.low), np.ceil(a.high)),
    "SIGN": lambda a: Range(np.sign(a.low), np.sign(a.high)),
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


MOST = 20_000  # pieces that may be undecided at the same time
LEVELS = 200  # bisections; a horizon of doubles that begins at 0 has no more that matter
SHORTEST = 1e-13  # of the horizon: a rise that is shorter is a jump, which is seen from both sides
NOISE = 1e-12  # of a function's largest value: a smaller change is none
NOTHING = 1e-250  # next to the smallest numbers, which have no digits
UNDECIDED = 9
BENT = 2  # an upward bend, -2 a downward one: one extremum at most
HALVINGS = 45
KEPT = 256  # functions whose times are kept
SHARES = 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6  # of a rise: where it is marked
ABRUPT = 2.0  # times its own length that nothing happened before a rise


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


Classify = Callable[[FloatArray, FloatArray, FloatArray], IntArray]
"""(low, high, inputs) -> for each piece what is decided, or UNDECIDED."""


def bisected(segments: Segments, classify: Classify, name: str, *, shortest: float = 0.0) -> Pieces:
    """Bisect until all is decided, or what is not is shorter than `shortest` or holds no number.

    raises ModelError if more than `MOST` pieces are undecided at the same time
    """
    low, high, inputs = segments.edges[:-1], segments.edges[1:], segments.inputs
    done: list[Pieces] = []
    for _ in range(LEVELS):
        label = classify(low, high, inputs)
        middle = low + (high - low) / 2
        final = (label != UNDECIDED) | (middle <= low) | (middle >= high)
        final |= high - low < shortest
        done.append(Pieces(low[final], high[final], label[final]))
        if final.all():
            break
        low, high, middle, inputs = (v[~final] for v in (low, high, middle, inputs))
        if len(low) > MOST:
            raise ModelError(
                f"{name} changes too often between t = {segments.edges[0]:g} and "
                f"t = {segments.edges[-1]:g}: igpe follows at most {MOST} changes. Shorten the "
                "horizon, or give the quantity as igpe.linear_input or igpe.step_input."
            )
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        inputs = np.concatenate([inputs, inputs])
    else:
        done.append(Pieces(low, high, np.full(len(low), UNDECIDED)))
    return _in_order(
        np.concatenate([p.low for p in done]),
        np.concatenate([p.high for p in done]),
        np.concatenate([p.label for p in done]),
    )


def _in_order(low: FloatArray, high: FloatArray, label: IntArray) -> Pieces:
    order = np.argsort(low, kind="stable")
    return Pieces(low[order], high[order], label[order])


class Switched(NamedTuple):
    """A function that is constant between switches: (n,) where each value begins, and the value."""

    times: FloatArray
    values: FloatArray


def switched(function: Any, segments: Segments) -> Switched:
    """The values of a function (t, inputs) of time that changes by jumps alone.

    raises ModelError if it jumps too often, or has no value

    A value that holds at a single time only is left out. Each jump lies at the first number at
    which the function has its new value.
    """
    enclose, name = Enclosure(function), "A condition on time"
    values: list[float] = []

    def classify(low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        (found,) = enclose([Range(low, high)], [point(c) for c in inputs.T])
        known = np.broadcast_to(found.low == found.high, low.shape)
        label = np.full(len(low), UNDECIDED)
        for value in np.unique(np.broadcast_to(found.low, low.shape)[known]):
            if value not in values:
                values.append(float(value))
            label[known & (found.low == value)] = UNDECIDED + 1 + values.index(value)
        return label

    pieces = bisected(segments, classify, name)
    decided = pieces.label != UNDECIDED
    if not decided.any():
        raise ModelError(
            f"{name} is undecided on the whole horizon: both of its sides are equal there up to "
            "rounding. Write it with a number of time, such as t >= 0.4."
        )
    low, high, label = (part[decided] for part in pieces)
    changes = np.flatnonzero(label[1:] != label[:-1])
    number = np.array(values)[label - UNDECIDED - 1]
    jumps = [_first_new(function, segments, (high[k], low[k + 1]), number[k + 1]) for k in changes]
    begins = np.array([segments.edges[0], *jumps])
    return Switched(begins, number[np.concatenate([[0], changes + 1])])


def _first_new(
    function: Any, segments: Segments, between: tuple[float, float], value: float
) -> float:
    """The first number from which on the function has a value, as it is computed."""
    old, new = between
    while old < (middle := old + (new - old) / 2) < new:
        if float(function(middle, segments.at(np.array([middle]))[0])) == value:
            new = middle
        else:
            old = middle
    there = float(function(old, segments.at(np.array([old]))[0])) == value
    return float(old if there else new)


class Changing:
    """A function of time, inputs and unknowns, with its slope and curvature.

    each  a CasADi function (t, [a, b] of the inputs, q) of one number
    """

    def __init__(self, value: Any, slope: Any, curvature: Any) -> None:
        self.value, self.slope = value, slope
        self.text = str(value.serialize())
        self.enclosures = tuple(Enclosure(f) for f in (value, slope, curvature))


class Rises(NamedTuple):
    """Stretches on which a function rises or falls, one after the other.

    flat         (n,) where the change begins to count
    early, half, late  (n,) where a tenth, half, and nine tenths of it are done
    rest         (n,) where all of it that counts is done
    """

    flat: FloatArray
    early: FloatArray
    half: FloatArray
    late: FloatArray
    rest: FloatArray


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
    key = function.text, *(a.tobytes() for a in (*segments, numbers)), through
    if key not in _marked:
        if len(_marked) == KEPT:
            _marked.pop(next(iter(_marked)))
        _marked[key] = _abrupt(_Course(function, segments, numbers).rises(), segments, through)
    return _marked[key]


def _abrupt(rises: Rises, segments: Segments, through: bool) -> FloatArray:
    short = _is_abrupt(segments.edges[0], rises.early, rises.early, rises.late)
    if through:
        short |= np.append([False], short[:-1])[: len(short)]
        return np.concatenate([marks[short] for marks in rises])
    return np.concatenate([rises.flat[short], rises.late[short]])


def _is_abrupt(first: float, after: FloatArray, early: FloatArray, late: FloatArray) -> BoolArray:
    """Return True where long nothing happens before a rise: since the one before, or the start.

    after  (n,) where each rise is a tenth done, at the earliest;  early  the same, at the latest
    late   (n,) where it is nine tenths done
    """
    before = np.concatenate([[first], after])[: len(after)]
    return np.asarray(early - before > ABRUPT * (late - early))


class _Course:
    """One function over the horizon, with numbers for the unknowns."""

    def __init__(self, function: Changing, segments: Segments, numbers: FloatArray) -> None:
        self.function, self.segments, self.numbers = function, segments, numbers
        self.given = [point(number) for number in numbers]
        self.largest = 0.0

    def rises(self) -> Rises:
        """See there."""
        pieces = self._monotone()
        moving = np.flatnonzero(np.isin(pieces.label, (-1, 1)))
        if len(moving) == 0:
            return Rises(*np.zeros((len(SHARES), 0)))
        sign = pieces.label[moving]
        end = pieces.high[moving][np.append(sign[1:] != sign[:-1], True)]
        begin = np.concatenate([self.segments.edges[:1], end[:-1]])
        return Rises(*self._reached(begin, end))

    def _monotone(self) -> Pieces:
        """Pieces on which it rises (1), falls (-1) or is constant up to `NOISE` (0)."""
        whole = float(self.segments.edges[-1] - self.segments.edges[0])
        name = "A function of time"
        found = bisected(self.segments, self._classified, name, shortest=SHORTEST * whole)
        bent = np.flatnonzero(np.abs(found.label) == BENT)
        first, turn = self._turns(found.low[bent], found.high[bent])
        rest = np.where(turn < found.high[bent], found.label[bent] // BENT, 0)
        low, high = np.append(found.low, turn), np.append(found.high, found.high[bent])
        high[bent], label = turn, np.append(found.label, rest)
        label[bent] = first
        return _in_order(low, high, label)

    def _classified(self, low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        arguments = [Range(low, high)], [point(c) for c in inputs.T], self.given
        enclose, enclose_slope, _ = self.function.enclosures
        value, slope = (_full(e(*arguments)[0], low) for e in (enclose, enclose_slope))
        sizes = np.abs(self._values(self.function.value, low + (high - low) / 2))
        self.largest = max(self.largest, float(np.max(sizes[np.isfinite(sizes)], initial=0.0)))
        with np.errstate(invalid="ignore"):
            constant = value.high - value.low <= max(NOISE * self.largest, NOTHING)
        label = np.full(len(low), UNDECIDED)
        label[slope.low >= 0], label[slope.high <= 0] = 1, -1
        label[constant] = 0
        rest = np.flatnonzero(label == UNDECIDED)  # the curvature costs as much as all else
        if len(rest):
            label[rest] = self._bend(low[rest], high[rest], inputs[rest])
        return label

    def _bend(self, low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        """BENT where the slope surely rises, -BENT where it falls, or UNDECIDED."""
        arguments = [Range(low, high)], [point(c) for c in inputs.T], self.given
        curvature = _full(self.function.enclosures[2](*arguments)[0], low)
        label = np.full(len(low), UNDECIDED)
        # an edge of the inputs may be a corner; inside a segment the slope is continuous
        label[curvature.low > 0], label[curvature.high < 0] = BENT, -BENT
        return label

    def _turns(self, low: FloatArray, high: FloatArray) -> tuple[IntArray, FloatArray]:
        """Of pieces on which the slope rises or falls: its first sign, and where that ends."""
        first = np.sign(self._values(self.function.slope, low))
        low, high = low.copy(), high.copy()
        for _ in range(HALVINGS if len(low) else 0):
            middle = low + (high - low) / 2
            passed = np.sign(self._values(self.function.slope, middle)) != first
            low, high = np.where(passed, low, middle), np.where(passed, middle, high)
        return first.astype(np.intp), high

    def _values(self, function: Any, times: FloatArray) -> FloatArray:
        if len(times) == 0:
            return np.zeros(0)
        inputs = self.segments.at(times)
        fixed = np.tile(self.numbers[:, None], len(times))
        return np.asarray(function(times[None], inputs.T, fixed)).reshape(len(times))

    def _reached(self, begin: FloatArray, end: FloatArray) -> FloatArray:
        """(5, n) where shares of the change are done, on stretches without extrema.

        (5, 0) once it is clear that no change is abrupt.
        """
        first, last = np.split(self._values(self.function.value, np.append(begin, end)), 2)
        shares = np.array(SHARES)[:, None] * np.abs(last - first)
        low, high = (np.tile(v, (len(SHARES), 1)) for v in (begin, end))
        for _ in range(HALVINGS):
            middle = low + (high - low) / 2
            now = self._values(self.function.value, middle.ravel()).reshape(len(SHARES), -1)
            passed = np.abs(now - first) >= shares
            low, high = np.where(passed, low, middle), np.where(passed, middle, high)
            if not _is_abrupt(self.segments.edges[0], low[1], high[1], low[3]).any():
                return np.zeros((len(SHARES), 0))  # whatever the digits to come
        return high


def _full(found: Range, like: FloatArray) -> Range:
    return Range(np.broadcast_to(found.low, like.shape), np.broadcast_to(found.high, like.shape))
