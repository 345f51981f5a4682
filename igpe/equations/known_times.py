"""Where functions of time alone switch, rise or fall: found by intervals, never by samples.

The horizon is bisected until, on each piece, interval arithmetic decides a question: which value a
condition has, or whether a function rises, falls, or is constant. What is left undecided are pieces
as short as the numbers allow. So nothing between two samples can be overlooked.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from igpe.arrays import BoolArray, FloatArray, IntArray
from igpe.equations.ranges import Enclosure, Range, point
from igpe.errors import ModelError

MOST = 20_000  # pieces that may be undecided at the same time
LEVELS = 200  # bisections; a horizon of doubles that begins at 0 has no more that matter
SHORTEST = 1e-13  # of the horizon: a rise that is shorter is a jump, which is seen from both sides
NOISE = 1e-12  # of a function's largest value: a smaller change is none
UNDECIDED = 2
FLAT_END, EARLY, LATE = 1e-6, 0.1, 0.9  # shares of a rise
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


def bisected(
    segments: Segments, classify: Classify, name: str, *, shortest: float = 0.0
) -> Pieces:
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
    whole = Pieces(*(np.concatenate(part) for part in zip(*done, strict=True)))
    order = np.argsort(whole.low, kind="stable")
    return Pieces(*(part[order] for part in whole))


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
    jumps = [
        _first_new(function, segments, (high[k], low[k + 1]), number[k + 1]) for k in changes
    ]
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


class Rises(NamedTuple):
    """Stretches on which a function rises or falls, one after the other.

    begin, end  (n,);  flat (n,) where the change begins to count
    early, late (n,) where a tenth and nine tenths of it are done
    """

    begin: FloatArray
    end: FloatArray
    flat: FloatArray
    early: FloatArray
    late: FloatArray


def abrupt(value: Any, slope: Any, segments: Segments, numbers: FloatArray) -> FloatArray:
    """Times that an integrator has to land on to see each rise of a function of time.

    value, slope  functions of (t, inputs, numbers)
    returns       for each rise after a time without change, long beside the rise itself: where it
                  begins, and where nine tenths of it are done
    raises        ModelError if it rises and falls too often

    On a stretch without extrema nothing hides between two times with like values. What an
    integrator may step over is a rise that ends before the step does; so it lands on each.
    """
    rises = _rises(value, slope, segments, numbers)
    if len(rises.end) == 0:
        return np.zeros(0)
    before = np.concatenate([segments.edges[:1], rises.early[:-1]])
    short = rises.early - before > ABRUPT * (rises.late - rises.early)
    return np.concatenate([rises.flat[short], rises.late[short]])


def _rises(value: Any, slope: Any, segments: Segments, numbers: FloatArray) -> Rises:
    monotone = _monotone(value, slope, segments, numbers)
    moving = np.flatnonzero(np.isin(monotone.label, (-1, 1)))
    sign = monotone.label[moving]
    last = np.flatnonzero(np.append(sign[1:] != sign[:-1], [True] * bool(len(sign))))
    end = monotone.high[moving][last]
    begin = np.concatenate([segments.edges[:1], end[:-1]])[: len(end)]
    of = _Values(value, segments, numbers)
    change = of(end) - of(begin)
    marks = [_reached(of, begin, end, share * change) for share in (FLAT_END, EARLY, LATE)]
    return Rises(begin, end, *marks)


def _monotone(value: Any, slope: Any, segments: Segments, numbers: FloatArray) -> Pieces:
    """Pieces on which the function rises (1), falls (-1) or is constant up to `NOISE` (0)."""
    enclose, enclose_slope = Enclosure(value), Enclosure(slope)
    given = [point(number) for number in numbers]
    of = _Values(value, segments, numbers)
    largest = 0.0

    def classify(low: FloatArray, high: FloatArray, inputs: FloatArray) -> IntArray:
        nonlocal largest
        arguments = [Range(low, high)], [point(c) for c in inputs.T], given
        (span,), (by_time,) = enclose(*arguments), enclose_slope(*arguments)
        sizes = np.abs(of(low + (high - low) / 2))
        largest = max(largest, float(np.max(sizes[np.isfinite(sizes)], initial=0.0)))
        label = np.full(len(low), UNDECIDED)
        with np.errstate(invalid="ignore"):
            label[np.broadcast_to(span.high - span.low <= NOISE * largest, low.shape)] = 0
        label[np.broadcast_to(by_time.low > 0, low.shape)] = 1
        label[np.broadcast_to(by_time.high < 0, low.shape)] = -1
        return label

    shortest = SHORTEST * float(segments.edges[-1] - segments.edges[0])
    return bisected(segments, classify, "A function of time", shortest=shortest)


class _Values:
    """Numbers of a function of time at many times."""

    def __init__(self, function: Any, segments: Segments, numbers: FloatArray) -> None:
        self.function, self.segments, self.numbers = function, segments, numbers

    def __call__(self, times: FloatArray) -> FloatArray:
        inputs = self.segments.at(times)
        fixed = np.tile(self.numbers[:, None], len(times))
        return np.asarray(self.function(times[None], inputs.T, fixed)).reshape(len(times))


def _reached(of: _Values, begin: FloatArray, end: FloatArray, change: FloatArray) -> FloatArray:
    """Where the function has changed by so much, on stretches without extrema."""
    first, low, high = of(begin), begin.copy(), end.copy()
    for _ in range(80):
        middle = low + (high - low) / 2
        passed: BoolArray = np.abs(of(middle) - first) >= np.abs(change)
        low, high = np.where(passed, low, middle), np.where(passed, middle, high)
    return high
