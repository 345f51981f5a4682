"""A time that equations may be asked about without naming a number.

A rule written `m.dx[t] == -m.k * m.x[t] * pyo.exp(-t)` bakes the number of each time into its
constraint. Calling the rule again with an `Instant` keeps the symbol: it indexes the variables like
the number it stands for, compares like any number that is chosen, and arithmetic with it gives a
Pyomo expression.
"""

import operator
from numbers import Real
from typing import Any

import numpy as np
from pyomo.core.expr.numvalue import NumericValue

OUTSIDE = "it computes with the time outside Pyomo (math, numpy)"
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
UFUNCS = COMPARISONS | {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "power": operator.pow,
}
"""NumPy's names of what its numbers may do with an `Instant`."""


class Instant(NumericValue):  # type: ignore[misc]
    """A time that is a number to sets and comparisons, and a symbol to arithmetic.

    index  the time by which components are looked up
    now    the time that comparisons see; by default the same
    seen   numbers that it was compared with

    `float(t)` raises TypeError: a number that is computed outside Pyomo (math, numpy) would stay
    the same at all times.
    """

    __slots__ = ("index", "now", "seen")

    def __init__(self, index: float, now: float | None = None) -> None:
        self.index = float(index)
        self.now = self.index if now is None else float(now)
        self.seen: set[float] = set()

    def __hash__(self) -> int:
        return hash(self.index)

    def _compared(self, other: Any, compare: Any) -> Any:
        number = _number(other)
        if number is None:
            return NotImplemented
        if not isinstance(other, Instant):
            self.seen.add(number)
        return compare(self.now, number)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Instant):
            return self.index == other.index
        if other.__class__ is float and other == self.index:  # the look-up of a component
            return True
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        is_equal = self.__eq__(other)
        return is_equal if is_equal is NotImplemented else not is_equal

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        self.seen.add(0.0)
        return self.now != 0

    def __call__(self, exception: bool = True) -> float:
        return self.__float__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's numbers may be compared and combined with; other computations are refused."""
        compute = UFUNCS.get(ufunc.__name__)
        if compute is None or method != "__call__":
            return float(self)
        results = np.frompyfunc(compute, 2, 1)(*map(_boxed, inputs))
        is_comparison = ufunc.__name__ in COMPARISONS
        return results.astype(bool) if is_comparison and np.ndim(results) else results

    def __float__(self) -> float:
        raise TypeError(OUTSIDE)

    def __str__(self) -> str:
        return "t"

    def is_fixed(self) -> bool:
        """To Pyomo a fixed value ..."""
        return True

    def is_constant(self) -> bool:
        """... but no constant, so that expressions keep it."""
        return False

    def is_potentially_variable(self) -> bool:
        """Nothing to solve for."""
        return False

    def is_expression_type(self, expression_system: Any = None) -> bool:
        """A leaf."""
        return False

    def to_string(self, *arguments: Any, **options: Any) -> str:
        """Its name in printed expressions."""
        return "t"


class Pretended(float):
    """A number that looks up the components of another time."""

    __slots__ = ("index",)

    def __new__(cls, now: float, _: float) -> "Pretended":
        return super().__new__(cls, now)

    def __init__(self, _: float, index: float) -> None:
        self.index = index

    def __hash__(self) -> int:
        return hash(self.index)

    def __eq__(self, other: object) -> bool:
        return self.index == other

    def __ne__(self, other: object) -> bool:
        return self.index != other


def _boxed(given: Any) -> Any:
    """An array of Python objects that NumPy takes apart without asking them."""
    box = np.empty(np.shape(given) if not isinstance(given, Instant) else (), dtype=object)
    box[...] = given if isinstance(given, Instant) else np.asarray(given).tolist()
    return box


def _number(other: Any) -> float | None:
    """The number of a native or NumPy number, or of an immutable Param; else None."""
    if isinstance(other, Instant):
        return other.now
    if isinstance(other, Real):
        return float(other)
    is_constant = getattr(other, "is_constant", None)
    if is_constant is not None and is_constant():
        return float(other())
    return None
