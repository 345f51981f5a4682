"""A time that equations may be asked about without naming a number.

A rule written `m.dx[t] == -m.k * m.x[t] * pyo.exp(-t)` bakes the number of each time into its
constraint. Calling the rule again with an `Instant` keeps the symbol: it indexes the variables like
the number it stands for, compares like any number that is chosen, and enters Pyomo's expressions.
"""

import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import PyomoException
from pyomo.core.expr.numvalue import NumericValue

from igpe.problem.model import position_in

OUTSIDE = (
    "it uses time in computations outside Pyomo (math.exp, np.interp); use pyo.exp and other "
    "Pyomo functions"
)
UNDECIDED = (
    "it uses `if`, `and` or `or` with a nonlinear function of time; "
    "pyo.Expr_if(t % 24 < 12, a, b) or pyo.Expr_if(pyo.sin(t) > 0.5, a, b) is supported"
)
COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
FUNCTIONS = "exp log log10 sqrt sin cos tan sinh cosh tanh floor ceil"


def _arithmetic(compute: Any) -> tuple[Any, Any]:
    """Return an operator's method, and the method of the right operand."""
    return (
        lambda self, other: _computed(compute, self, other),
        lambda self, other: _computed(compute, other, self),
    )


def _function(compute: Any) -> Any:
    return lambda self: compute(plain(self))


def _comparison(compare: Any) -> Any:
    return lambda self, other: self._compared(other, compare)


class Instant(NumericValue):  # type: ignore[misc]
    """A time, or a number computed from it, in a rule of the model.

    index       the time by which components are looked up
    now         the number that comparisons see; by default the same
    seen        times at which a comparison changes its answer
    line        a and b where this is a + b t; None if it is no straight line of the time
    expression  in Pyomo's terms, of a number that is computed from the time; else None

    `float(t)` raises TypeError: a number that is computed outside Pyomo (math, numpy) would stay
    the same at all times.
    """

    __slots__ = ("expression", "index", "line", "now", "seen")

    def __init__(self, index: float, now: float | None = None) -> None:
        self.index = float(index)
        self.now = self.index if now is None else float(now)
        self.seen: set[float] = set()
        self.line: tuple[float, float] | None = (0.0, 1.0)
        self.expression: Any = None

    __add__, __radd__ = _arithmetic(operator.add)
    __sub__, __rsub__ = _arithmetic(operator.sub)
    __mul__, __rmul__ = _arithmetic(operator.mul)
    __truediv__ = _arithmetic(operator.truediv)[0]
    __iadd__, __isub__, __imul__, __itruediv__ = __add__, __sub__, __mul__, __truediv__
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)

    def __neg__(self) -> Any:
        return _computed(operator.mul, -1.0, self)

    def __pos__(self) -> Any:
        return self

    def __rtruediv__(self, other: Any) -> Any:
        return NumericValue.__rtruediv__(plain(self), _leaf(other))

    def __pow__(self, other: Any) -> Any:
        return NumericValue.__pow__(plain(self), _leaf(other))

    def __rpow__(self, other: Any) -> Any:
        return NumericValue.__rpow__(plain(self), _leaf(other))

    def __abs__(self) -> Any:
        return NumericValue.__abs__(plain(self))

    def __floor__(self) -> Any:
        return pyo.floor(plain(self))

    def __ceil__(self) -> Any:
        return pyo.ceil(plain(self))

    def __floordiv__(self, other: Any) -> Any:
        return pyo.floor(plain(self / other))

    def __mod__(self, other: Any) -> Any:
        return self - other * (self // other)

    def __float__(self) -> float:
        raise TypeError(OUTSIDE)

    def __call__(self, exception: bool = True) -> float:
        return self.__float__()

    def __bool__(self) -> bool:
        return bool(self._compared(0.0, operator.ne))

    def __hash__(self) -> int:
        if self.expression is not None:
            raise TypeError("it uses a computed time as the index of a component")
        return hash(self.index)

    def __eq__(self, other: object) -> Any:
        if self.expression is None:
            if isinstance(other, Instant) and other.expression is None:
                return self.index == other.index
            if other.__class__ is float and other == self.index:  # the look-up of a component
                return True
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        if self.expression is not None:
            return self._compared(other, operator.ne)
        is_equal = self.__eq__(other)
        return is_equal if is_equal is NotImplemented else not is_equal

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        """Decide, and remember where the decision changes."""
        number = _number(other)
        if number is None:
            return NotImplemented if self.expression is None else compare(self.expression, other)
        line = other.line if isinstance(other, Instant) else (number, 0.0)
        if self.line is None or line is None:
            raise TypeError(UNDECIDED)
        a, b = self.line[0] - line[0], self.line[1] - line[1]
        if b:
            self.seen.add(-a / b)
        return bool(compare(self.now, number))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Element by element, as Pyomo does it; comparisons of arrays are true or false."""
        result = NumericValue.__array_ufunc__(self, ufunc, method, *inputs, **options)
        if not isinstance(result, np.ndarray):
            return result
        plain = result.view(np.ndarray)
        return plain.astype(bool) if ufunc in COMPARISONS else plain

    def is_fixed(self) -> bool:
        """To Pyomo a fixed value ..."""
        return True

    def is_constant(self) -> bool:
        """... but no constant, so that expressions keep it."""
        return False

    def is_potentially_variable(self) -> bool:
        """Return False: the time is never solved for."""
        return False

    def is_expression_type(self, expression_system: Any = None) -> bool:
        """A leaf."""
        return False

    def to_string(self, *arguments: Any, **options: Any) -> str:
        """Name of the time in printed expressions."""
        return "t" if self.expression is None else str(self.expression)

    __str__ = to_string


for _name in FUNCTIONS.split():  # what NumPy calls of objects that are no floats
    setattr(Instant, _name, _function(getattr(pyo, _name)))


def plain(answer: Any) -> Any:
    """What was computed from the time as Pyomo has it; anything else as it is."""
    if isinstance(answer, tuple):
        return tuple(map(plain, answer))
    is_computed = isinstance(answer, Instant) and answer.expression is not None
    return answer.expression if is_computed else answer


LINES: dict[Any, Callable[..., tuple[float, float] | None]] = {
    operator.add: lambda a, b, c, d: (a + c, b + d),
    operator.sub: lambda a, b, c, d: (a - c, b - d),
    operator.mul: lambda a, b, c, d: None if b and d else (a * c, a * d + b * c),
    operator.truediv: lambda a, b, c, d: None if d or not c else (a / c, b / c),
}
"""The line that arithmetic makes of a + b t and c + d t, if any."""
PYOMO: dict[Any, Callable[[Any, Any], Any]] = {
    operator.add: NumericValue.__add__,
    # As a sum: Pyomo's own `__sub__` asks the left operand, a plain number too.
    operator.sub: lambda a, b: NumericValue.__add__(a, NumericValue.__mul__(-1, b)),
    operator.mul: NumericValue.__mul__,
    operator.truediv: NumericValue.__truediv__,
}
"""Pyomo's own arithmetic, whatever the left operand is."""


def _computed(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Arithmetic of two, of which one at least is computed from the time."""
    expression = PYOMO[compute](_leaf(left), _leaf(right))
    numbers = [_number(side) for side in (left, right)]
    if None in numbers or not hasattr(expression, "is_expression_type"):
        return expression
    sides = zip((left, right), numbers, strict=True)
    one, other = (s.line if isinstance(s, Instant) else (number, 0.0) for s, number in sides)
    made = Instant(np.nan, compute(*numbers))
    made.seen = next(side for side in (left, right) if isinstance(side, Instant)).seen
    made.line = None if one is None or other is None else LINES[compute](*one, *other)
    made.expression = expression
    return made


def _leaf(side: Any) -> Any:
    """An operand as Pyomo's arithmetic takes it."""
    number = None if isinstance(side, Instant) else _number(side)
    return plain(side) if number is None else number


def _number(other: Any) -> float | None:
    """The number of an `Instant`, a native or NumPy number or an immutable Param; else None."""
    if isinstance(other, Instant):
        return other.now
    if isinstance(other, Real):
        return float(other)
    is_constant = getattr(other, "is_constant", None)
    return float(other()) if is_constant is not None and is_constant() else None


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


REFUSALS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, PyomoException)
"""What a rule may raise when it is asked with an `Instant`."""


def reason(error: Exception) -> str:
    """Why a rule cannot be asked with an `Instant`, in igpe's words where Pyomo's mislead."""
    text = str(error)
    if "Implicit conversion of Pyomo numeric value" in text or "ufunc" in text:
        return OUTSIDE
    return UNDECIDED if "Cannot convert non-constant Pyomo expression" in text else text


def said(data: Any, time: Any, instant: Any) -> Any:
    """What the rule behind a component's member says when asked with `instant` for its time.

    time   the model's ContinuousSet of the time
    raises ValueError if there is no rule indexed by time, and whatever the rule raises
    """
    component, index = data.parent_component(), data.index()
    rule = getattr(component, "rule", None) or getattr(component, "_rule", None)
    place = position_in(component, time) if component.is_indexed() else None
    if place is None or rule is None:
        raise ValueError("it is not written as a rule indexed by time")
    is_tuple = isinstance(index, tuple)
    key = (*index[:place], instant, *index[place + 1 :]) if is_tuple else instant
    return plain(rule(data.parent_block(), key))
