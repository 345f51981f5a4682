"""Where functions of time alone switch, rise or fall: found by intervals, never by samples.

The horizon is bisected until, on each piece, interval arithmetic decides a question: which value a
condition has, or whether a function rises, falls, or is constant. What is left undecided are pieces
as short as the numbers allow. So nothing between two samples can be overlooked.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.equations.time.ranges import Enclosure, Range, point

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
                "horizon, or give the quantity as igpe.linear or igpe.steps."
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
