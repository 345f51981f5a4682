"""Interval arithmetic on CasADi expressions, many intervals at once.

An enclosure holds every value that an expression takes while its symbols stay in their intervals.
Each result is widened by some units of rounding. What has no bound here is the whole line, also an
operation that this file does not know.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.equations.operations import OPERATION_NAMES, replayed

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


ZERO = point(0.0)


class Enclosure:
    """Encloses the rows of a CasADi function with one output column."""

    def __init__(self, function: Any) -> None:
        self.rows = function.numel_out(0)
        self.tape: list[Callable[[_Work, _Given], Range]] = []
        self.results = replayed(function, self._input, self._constant, self._operation)

    def __call__(self, *given: Sequence[Range]) -> list[Range]:
        """One range for each row. given: for each argument one range for each of its elements."""
        work: _Work = []
        with np.errstate(all="ignore"):
            for instruction in self.tape:
                work.append(instruction(work, given))
        return [work[self.results[r]] if r in self.results else ZERO for r in range(self.rows)]

    def _input(self, argument: int, element: int) -> int:
        return self._put(lambda _, given: given[argument][element])

    def _constant(self, number: float) -> int:
        constant = point(number)
        return self._put(lambda _, __: constant)

    def _operation(self, operation: int, operands: list[int]) -> int:
        rule = RULES.get(OPERATION_NAMES[operation], _nothing_known)
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
