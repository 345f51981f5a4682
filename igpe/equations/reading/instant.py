"""A time that equations may be asked about without naming a number.

A rule written `m.dx[t] == -m.k * m.x[t] * pyo.exp(-t)` bakes the number of each time into its
constraint. Calling the rule again with an `Instant` keeps the symbol: it indexes the variables like
the number it stands for, compares like any number that is chosen, and arithmetic with it gives
`Computed` numbers, which enter Pyomo's expressions as expressions.

Asking a model's rules about a time.
"""

import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import PyomoException
from pyomo.core.expr.numvalue import NumericValue

OUTSIDE = (
    "it computes with the time outside Pyomo (math.exp, np.interp); pyo.exp and the like are fine"
)
UNDECIDED = (
    "it asks `if` about what is no straight line of the time; pyo.Expr_if(t % 24 < 12, a, b) or "
    "pyo.Expr_if(pyo.sin(t) > 0.5, a, b) is fine"
)
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
    "remainder": operator.mod,
    "floor_divide": operator.floordiv,
    "maximum": max,
    "minimum": min,
    "negative": operator.neg,
    "absolute": operator.abs,
    "square": lambda a: a * a,
    **{name: getattr(pyo, name) for name in ("exp", "log", "log10", "sqrt", "sin", "cos", "tan")},
    **{name: getattr(pyo, name) for name in ("sinh", "cosh", "tanh", "floor", "ceil")},
}
"""NumPy's names of what it may do with an `Instant`."""


class OfTime:
    """Arithmetic and comparisons of what is computed from the time; decided at `now`."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _computed(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _computed(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _computed(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _computed(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _computed(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _computed(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _computed(operator.truediv, self, other)

    def __neg__(self) -> Any:
        return _computed(operator.mul, -1.0, self)

    def __pos__(self) -> Any:
        return self

    def __floordiv__(self, other: Any) -> Any:
        return pyo.floor(plain(self / other))

    def __mod__(self, other: Any) -> Any:
        return self - other * (self // other)

    def __floor__(self) -> Any:
        return pyo.floor(plain(self))

    def __ceil__(self) -> Any:
        return pyo.ceil(plain(self))

    def __abs__(self) -> Any:
        return abs(plain(self)) if isinstance(self, Computed) else NumericValue.__abs__(self)

    def __float__(self) -> float:
        raise TypeError(OUTSIDE)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's numbers may be compared and combined with; other computations are refused."""
        compute = UFUNCS.get(ufunc.__name__)
        if compute is None or method != "__call__":
            return float(self)
        results = np.frompyfunc(compute, len(inputs), 1)(*map(_boxed, inputs))
        is_comparison = ufunc.__name__ in COMPARISONS
        return results.astype(bool) if is_comparison and np.ndim(results) else results


class Instant(OfTime, NumericValue):  # type: ignore[misc]
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


class Computed(OfTime):
    """A number computed from the time: a Pyomo expression, which compares if it is a + b t.

    source      the time it is computed from
    expression  of it, as Pyomo has it
    now         its number at the time that comparisons see
    line        a and b; None if it is no such line
    """

    __slots__ = ("expression", "line", "now", "source")

    def __init__(
        self, source: Instant, expression: Any, now: float, line: tuple[float, float] | None
    ) -> None:
        self.source, self.expression, self.now, self.line = source, expression, now, line

    def is_numeric_type(self) -> bool:
        """To Pyomo no number itself ..."""
        return False

    def as_numeric(self) -> Any:
        """... but it has one."""
        return self.expression

    def is_expression_type(self, expression_system: Any = None) -> bool:
        """A leaf where Pyomo took it for a coefficient."""
        return False

    def is_potentially_variable(self) -> bool:
        """Nothing to solve for."""
        return False

    def __pow__(self, other: Any) -> Any:
        return self.expression ** plain(other)

    def __rpow__(self, other: Any) -> Any:
        return other**self.expression

    def __rtruediv__(self, other: Any) -> Any:
        return plain(other) / self.expression

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        """Decide, and let the time remember where the decision changes."""
        known = other if isinstance(other, OfTime) else _number(other)
        if known is None:
            return compare(self.expression, other)
        apart = self - known
        if self.line is None or not isinstance(apart, Computed) or apart.line is None:
            raise TypeError(UNDECIDED)
        a, b = apart.line
        if b:
            self.source.seen.add(-a / b)
        return bool(compare(self.now, getattr(known, "now", known)))

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        return bool(self != 0.0)

    __hash__ = None  # type: ignore[assignment]


def plain(answer: Any) -> Any:
    """What was computed from the time as Pyomo has it; anything else as it is."""
    if isinstance(answer, tuple):
        return tuple(map(plain, answer))
    return answer.expression if isinstance(answer, Computed) else answer


LINES: dict[Any, Callable[..., tuple[float, float] | None]] = {
    operator.add: lambda a, b, c, d: (a + c, b + d),
    operator.sub: lambda a, b, c, d: (a - c, b - d),
    operator.mul: lambda a, b, c, d: None if b and d else (a * c, a * d + b * c),
    operator.truediv: lambda a, b, c, d: None if d or not c else (a / c, b / c),
}
"""The line that arithmetic makes of a + b t and c + d t, if any."""


def _computed(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Arithmetic of two, of which one at least is computed from the time."""
    parts = [_part(left), _part(right)]
    expression = PYOMO[compute](_leaf(left), _leaf(right))
    if None in parts or not hasattr(expression, "is_expression_type"):
        return expression
    (now, line), (other, second) = parts
    source = next(_source(side) for side in (left, right) if isinstance(side, OfTime))
    both = None if line is None or second is None else LINES[compute](*line, *second)
    return Computed(source, expression, compute(now, other), both)


def _minus(left: Any, right: Any) -> Any:
    """The difference as a sum: Pyomo's own `__sub__` asks the left operand, a plain number too."""
    return NumericValue.__add__(left, NumericValue.__mul__(-1, right))


PYOMO: dict[Any, Callable[[Any, Any], Any]] = {
    operator.add: NumericValue.__add__,
    operator.sub: _minus,
    operator.mul: NumericValue.__mul__,
    operator.truediv: NumericValue.__truediv__,
}
"""Pyomo's own arithmetic, whatever the left operand is."""


def _leaf(side: Any) -> Any:
    """An operand as Pyomo's arithmetic takes it."""
    number = None if isinstance(side, OfTime) else _number(side)
    return plain(side) if number is None else number


def _source(side: Any) -> Any:
    return side.source if isinstance(side, Computed) else side


def _part(side: Any) -> Any:
    """Number and line of one operand; None if it is something of the model."""
    if isinstance(side, Computed):
        return side.now, side.line
    if isinstance(side, Instant):
        return side.now, (0.0, 1.0)
    number = _number(side)
    return None if number is None else (number, (number, 0.0))


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


REFUSALS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, PyomoException)
"""What a rule may raise when it is asked with an `Instant`."""


def reason(error: Exception) -> str:
    """Why a rule cannot be asked with an `Instant`, in igpe's words where Pyomo's mislead."""
    text = str(error)
    if "Implicit conversion of Pyomo numeric value" in text:
        return OUTSIDE
    if "Cannot convert non-constant Pyomo expression" in text:
        return UNDECIDED
    return text


def said(data: Any, time: float, instant: Any) -> Any:
    """What the rule behind a component's member at `time` says when asked with `instant`.

    raises ValueError if there is no rule over the time, and whatever the rule raises
    """
    component, index = data.parent_component(), data.index()
    is_indexed_by_time = index == time or (isinstance(index, tuple) and time in index)
    rule = getattr(component, "rule", None) or getattr(component, "_rule", None)
    if not is_indexed_by_time or rule is None:
        raise ValueError("it is not written as a rule over the time")
    key = tuple(instant if i == time else i for i in index) if isinstance(index, tuple) else instant
    return plain(rule(data.parent_block(), key))
