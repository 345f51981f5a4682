"""Formulas of SBML and PEtab: SymPy expressions, and the same with Pyomo's components.

Symbols are known by name alone; the time is called `time`.

The libraries that read PEtab and SBML: an extra, whose absence is an answer.
"""

import importlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import add, mul
from types import MappingProxyType, ModuleType
from typing import Any

import pyomo.environ as pyo

from igpe.core.errors import ModelError, SolverMissing

NEEDED = ("petab.v1", "libsbml", "sbmlmath", "sympy", "yaml")


def require_libraries() -> None:
    """raises SolverMissing with the command that installs them, unless all are there"""
    for name in NEEDED:
        library(name)


def library(name: str) -> ModuleType:
    """An imported library of the extra.

    raises SolverMissing with the command that installs it
    """
    try:
        with quiet():
            return importlib.import_module(name)
    except ImportError as error:
        raise SolverMissing(
            f"PEtab problems are read with `petab`, `python-libsbml` and `sbmlmath`; {error}. "
            "Install them: pip install 'igpe[petab]'."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the deprecation warnings that these libraries get from theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


TIME = "time"
HIGHEST = 1000  # exponent of an expression
BITS = 1020.0  # of a number
LAST_FACTORIAL = 170
MOST_NODES = 50_000  # of a formula, once what it refers to is inserted
TOO_LARGE = (
    f"A formula holds numbers beyond 1e300, powers beyond {HIGHEST}, or more than {MOST_NODES} "
    "operations. Correct it."
)
EXACT = 2**53  # larger whole numbers are floats that were rounded
FUNCTIONS = {
    "exp": pyo.exp,
    "log": pyo.log,
    "sin": pyo.sin,
    "cos": pyo.cos,
    "tan": pyo.tan,
    "asin": pyo.asin,
    "acos": pyo.acos,
    "atan": pyo.atan,
    "sinh": pyo.sinh,
    "cosh": pyo.cosh,
    "tanh": pyo.tanh,
    "asinh": pyo.asinh,
    "acosh": pyo.acosh,
    "atanh": pyo.atanh,
    "Abs": abs,
    "floor": pyo.floor,
    "ceiling": pyo.ceil,
}
FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "Add": add,
    "Mul": mul,
    "Pow": pow,
    "Max": lambda a, b: pyo.Expr_if(a >= b, a, b),
    "Min": lambda a, b: pyo.Expr_if(a <= b, a, b),
}
SIDES = {
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
}


def number(value: float) -> Any:
    """A number as an expression; a whole one exactly, so that powers stay what they are."""
    sympy = library("sympy")
    whole = float(value).is_integer() and abs(value) <= EXACT
    return sympy.Integer(int(value)) if whole else sympy.Float(float(value))


def symbol(name: str) -> Any:
    """The symbol of that name."""
    return library("sympy").Symbol(name)


def parsed(text: Any, *, evaluate: bool = True) -> Any:
    """A formula of a PEtab table; what is an expression already is taken as it is.

    evaluate  False leaves it as it is written
    raises    ModelError if it is none
    """
    if isinstance(text, library("sympy").Basic):
        return plain(text)
    try:
        with quiet():
            found = library("petab.v1.math").sympify_petab(text, evaluate=evaluate)
            return plain(found) if evaluate else found
    except Exception as error:  # each parser has its own
        raise ModelError(
            f"'{text}' is no formula that PEtab knows: {error}. Correct it."
        ) from error


def plain(expression: Any) -> Any:
    """The expression with symbols that are their names, whatever was assumed of them."""
    sympy = library("sympy")
    found = sympy.sympify(expression)
    swaps = {
        s: symbol(TIME if type(s).__name__ == "TimeSymbol" else s.name) for s in found.free_symbols
    }
    return found.xreplace(swaps)


def require_moderate(expression: Any, values: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raise ModelError for numbers that would be computed to something huge, as 9^9^9^9 is.

    expression  as it was written; SymPy has not computed anything in it
    values      name -> expression that is going to be inserted
    """
    sizes: dict[Any, float | None] = {}
    known = {symbol(n): v for n, v in values.items()}
    try:
        for count, node in enumerate(library("sympy").postorder_traversal(expression)):
            if count > MOST_NODES:
                raise OverflowError
            if node not in sizes:
                sizes[node] = _size(known.get(node, node), [sizes[a] for a in node.args])
    except (OverflowError, RecursionError):
        raise ModelError(TOO_LARGE) from None


def _size(node: Any, sizes: list[float | None]) -> float | None:
    """The value of a number, roughly, by those of its parts; None for what is no number.

    raises OverflowError where it would be huge
    """
    kind = type(node).__name__
    if node.is_Number:
        return float(node) if node.is_finite else None
    if kind == "Pow":
        return power_size(*sizes)
    if not sizes or None in sizes:
        return None
    if kind == "factorial":
        return factorial_size(sizes[0])
    if kind not in {*FUNCTIONS, "Add", "Mul", "Max", "Min"}:
        return None
    value = complex(node.func(*(library("sympy").Float(s) for s in sizes)).evalf(5))
    if math.isinf(abs(value)):
        raise OverflowError
    return abs(value) if value.imag else value.real


def power_size(base: float | None, exponent: float | None) -> float | None:
    """base ** exponent; None for what is no number. Raises OverflowError where it is huge."""
    if exponent is None or base == 0:
        return None
    bits = abs(exponent) if base is None else abs(exponent * math.log2(abs(base)))
    if bits > (HIGHEST if base is None else BITS):
        raise OverflowError
    if base is None:
        return None
    is_odd = base < 0 and exponent % 2 == 1
    return math.copysign(abs(base) ** exponent, -1.0 if is_odd else 1.0)


def factorial_size(number: float | None) -> float | None:
    """The factorial; None for what is no number. Raises OverflowError where it is huge."""
    if number is None:
        return None
    if not 0 <= number <= LAST_FACTORIAL:
        raise OverflowError
    return math.gamma(number + 1)


def names_in(expression: Any) -> set[str]:
    """Names of the symbols of an expression."""
    return {s.name for s in expression.free_symbols}


def inserted(expression: Any, values: Mapping[str, Any]) -> Any:
    """The expression with expressions in the place of names."""
    require_moderate(expression, values)
    found = expression.xreplace({symbol(n): v for n, v in values.items()})
    require_moderate(found)
    return found


def to_pyomo(expression: Any, leaves: Callable[[str], Any]) -> Any:
    """A SymPy expression in Pyomo's operators.

    leaves  name -> Pyomo component or number
    raises  ModelError for a function that Pyomo does not have
    """
    if expression.is_Symbol:
        return leaves(expression.name)
    if expression.is_number and expression.is_real:
        return int(expression) if expression.is_Integer else float(expression)
    kind, arguments = type(expression).__name__, expression.args
    if kind == "Piecewise":
        return _piecewise(list(arguments), leaves)
    values = [to_pyomo(a, leaves) for a in arguments]
    if kind in FOLDED:
        return reduce(FOLDED[kind], values)
    if kind in FUNCTIONS:
        return FUNCTIONS[kind](*values)
    raise ModelError(
        f"The model uses '{kind}' in {expression}, which igpe does not read; write it with "
        f"{', '.join(sorted(FUNCTIONS))}, powers and piecewise."
    )


def _piecewise(branches: list[Any], leaves: Callable[[str], Any]) -> Any:
    value, condition = branches[0]
    then = to_pyomo(value, leaves)
    if condition == True or len(branches) == 1:  # noqa: E712 - SymPy's own true
        return then
    return _chosen(condition, then, _piecewise(branches[1:], leaves), leaves)


def _chosen(condition: Any, then: Any, otherwise: Any, leaves: Callable[[str], Any]) -> Any:
    """`then` where the condition holds."""
    kind = type(condition).__name__
    if kind in {"BooleanTrue", "BooleanFalse"}:
        return then if kind == "BooleanTrue" else otherwise
    if kind in {"And", "Or"}:
        found = then if kind == "And" else otherwise
        for part in condition.args:
            pair = (found, otherwise) if kind == "And" else (then, found)
            found = _chosen(part, *pair, leaves)
        return found
    if kind == "Not":
        return _chosen(condition.args[0], otherwise, then, leaves)
    if kind not in SIDES:
        raise ModelError(
            f"The model branches on {condition}, which igpe does not read; write it with <, <=, >, "
            ">=, and, or, not."
        )
    left, right = (to_pyomo(side, leaves) for side in condition.args)
    return pyo.Expr_if(SIDES[kind](left - right, 0), then, otherwise)
