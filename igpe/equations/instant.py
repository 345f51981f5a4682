"""A time that equations may be asked about without naming a number.

A rule written `m.dx[t] == -m.k * m.x[t] * pyo.exp(-t)` bakes the number of each time into its
constraint. Calling the rule again with an `Instant` keeps the symbol: it indexes the variables and
compares like the number it is, but arithmetic with it gives a Pyomo expression.
"""

import operator
from typing import Any

from pyomo.core.expr.numvalue import NumericValue

COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


class Instant(NumericValue, float):  # type: ignore[misc]
    """A time that is a number to sets and comparisons, and a symbol to arithmetic."""

    __slots__ = ()
    __hash__ = float.__hash__
    __eq__ = float.__eq__
    __ne__ = float.__ne__
    __lt__ = float.__lt__
    __le__ = float.__le__
    __gt__ = float.__gt__
    __ge__ = float.__ge__

    def __call__(self, exception: bool = True) -> float:
        return float.__pos__(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """A NumPy float in a set may be compared with; any other computation is refused."""
        compare = COMPARISONS.get(ufunc.__name__)
        if compare is None or method != "__call__":
            return float(self)
        first, second = (float.__pos__(i) if isinstance(i, float) else i for i in inputs)
        return compare(first, second)

    def __float__(self) -> float:
        raise TypeError(
            "the equation computes with the time outside Pyomo (math, numpy); use Pyomo's functions"
        )

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


class Watched(Instant):
    """An instant that remembers the numbers it is compared with."""

    __hash__ = float.__hash__

    def __init__(self, _: float) -> None:
        self.seen: list[float] = []

    def _compared(self, other: Any) -> None:
        if isinstance(other, (int, float)) and not isinstance(other, Instant):
            self.seen.append(float(other))

    def __eq__(self, other: object) -> bool:
        self._compared(other)
        return float.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        self._compared(other)
        return float.__ne__(self, other)

    def __lt__(self, other: Any) -> bool:
        self._compared(other)
        return float.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        self._compared(other)
        return float.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        self._compared(other)
        return float.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        self._compared(other)
        return float.__ge__(self, other)
