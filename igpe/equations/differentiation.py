"""Which equations of higher index must be differentiated, and their exact derivatives (Pantelides).

Where equations constrain states alone, slopes and algebraic variables do not follow from them at
one time. Sets of equations that hold fewer highest derivatives than they are (the overdetermined
part of Dulmage and Mendelsohn) are differentiated until none is left (Pantelides 1988, SIAM J. Sci.
Stat. Comput. 9, 213): the smallest number of times that structure asks for.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import casadi as ca
from scipy.sparse import coo_matrix, hstack

from igpe.core.errors import ModelError
from igpe.equations.incidence import DulmageMendelsohn, incidence, parts
from igpe.equations.operations import in_words, operation_names
from igpe.equations.symbols import Symbols, stack

MOST = 10  # times that an equation is differentiated
ABRUPT = frozenset([
    "LT",
    "LE",
    "EQ",
    "NE",
    "NOT",
    "AND",
    "OR",
    "IF_ELSE_ZERO",
    "FLOOR",
    "CEIL",
    "SIGN",
    "FABS",
    "FMIN",
    "FMAX",
    "FMOD",
    "REMAINDER",
])
"""Operations whose results jump, or whose slopes do."""


class Row(NamedTuple):
    """An equation, or its derivative by time.

    name        of the model's constraint
    level       how often it was differentiated
    expression  SX, zero where the model holds
    """

    name: str
    level: int
    expression: Any

    @property
    def full_name(self) -> str:
        """The constraint's name with a stroke for each derivative."""
        return self.name + "'" * self.level


@dataclass
class DerivativeArray:
    """Equations with all derivatives that they need.

    symbols    of the model
    rows       all of them, in the order of the equations
    levels     equation -> how often it was differentiated, where it was
    further    name -> symbol of derivatives that the model does not have: d(d(x)), d(z)
    inputs     (input, order) -> the symbol of its derivative
    has_algebraic  whether an algebraic variable itself is among the highest derivatives
    """

    symbols: Symbols
    rows: list[Row] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    further: dict[str, Any] = field(default_factory=dict)
    inputs: dict[tuple[int, int], Any] = field(default_factory=dict)
    has_algebraic: bool = False

    @property
    def are_highest(self) -> list[bool]:
        """Of each row whether no higher derivative of its equation is left."""
        highest = {row.name: row.level for row in self.rows}
        return [row.level == highest[row.name] for row in self.rows]

    @property
    def index(self) -> int:
        """The structural index."""
        return max(self.levels.values(), default=0) + self.has_algebraic


def at_any_order(residual: Any, symbols: Symbols) -> DulmageMendelsohn:
    """Which equation holds which variable, be it as itself or as its slope."""
    states = incidence(residual, symbols.x) + incidence(residual, symbols.dx)
    return parts(coo_matrix(hstack([states, incidence(residual, symbols.z)])))


def differentiated(names: tuple[str, ...], residual: Any, symbols: Symbols) -> DerivativeArray:
    """The equations with their derivatives, for a system that `at_any_order` is square.

    raises ModelError if one of those to be differentiated is not smooth
    """
    found = _Array(residual, symbols)
    while spare := parts(found.pattern()):
        if not spare.spare_rows:
            break
        for i in spare.over_rows:
            if len(found.rows[i]) > MOST:
                raise ModelError(
                    f"The equation '{names[i]}' would have to be differentiated more than "
                    f"{MOST} times; igpe does not support such a high index."
                )
            found.rows[i].append(found.derivative(names[i], found.rows[i][-1]))
    array = DerivativeArray(symbols, inputs=found.inputs)
    array.levels = {n: len(r) - 1 for n, r in zip(names, found.rows, strict=True) if len(r) > 1}
    array.has_algebraic = any(len(chain) == 1 for chain in found.chains)
    array.rows = [
        Row(name, level, expression)
        for name, levels in zip(names, found.rows, strict=True)
        for level, expression in enumerate(levels)
    ]
    own = len(symbols.states)
    for k, chain in enumerate(found.chains):
        name = symbols.states[k] if k < own else symbols.algebraics[k - own]
        for order, symbol in enumerate(chain):
            if order > (k < own):
                array.further["d(" * order + name + ")" * order] = symbol
    _substitute(array)
    return array


def abrupt(expression: Any) -> frozenset[str]:
    """Names of the expression's operations whose results or slopes jump."""
    function = ca.Function("e", [stack(ca.symvar(expression))], [expression])
    return ABRUPT.intersection(operation_names(function))


class _Array:
    """Derivatives as they are needed.

    chains  of each variable its symbol and those of its derivatives, as far as they occur
    rows    of each equation its expression and those of its derivatives
    """

    def __init__(self, residual: Any, symbols: Symbols) -> None:
        pairs = zip(ca.vertsplit(symbols.x), ca.vertsplit(symbols.dx), strict=True)
        self.chains = [*map(list, pairs), *([z] for z in ca.vertsplit(symbols.z))]
        self.rows = [[e] for e in ca.vertsplit(residual)]
        self.inputs: dict[tuple[int, int], Any] = {}
        self.symbols = symbols

    def pattern(self) -> coo_matrix:
        """Which highest row holds which highest derivative."""
        return incidence(stack(r[-1] for r in self.rows), stack(c[-1] for c in self.chains))

    def derivative(self, name: str, expression: Any) -> Any:
        """The total derivative by time."""
        held = ca.symvar(expression)
        if found := abrupt(expression):
            raise ModelError(
                f"The model has a higher index, so the equation '{name}' must be "
                f"differentiated with respect to time, but it contains {in_words(found)}, "
                "which is not smooth. Write a smooth transition, for example 1/(1 + "
                "pyo.exp(-(a - b)/width))."
            )
        slopes = ca.jacobian(expression, stack(held))
        total = ca.SX(0)
        for j in slopes.sparsity().get_col() if slopes.nnz() else ():
            total += slopes[0, j] * self._next(held[j])
        return total

    def _next(self, symbol: Any) -> Any:
        """The time derivative of a symbol; one that did not occur is made."""

        def is_it(one: Any) -> bool:
            return bool(one.element_hash() == symbol.element_hash())

        if is_it(self.symbols.t):
            return ca.SX(1)
        for chain in self.chains:
            for order in (k for k, one in enumerate(chain) if is_it(one)):
                if order == len(chain) - 1:
                    chain.append(ca.SX.sym(f"d({symbol})"))
                return chain[order + 1]
        given = {(i, 0): u for i, u in enumerate(ca.vertsplit(self.symbols.u))} | self.inputs
        for i, order in (key for key, u in given.items() if is_it(u)):
            return self.inputs.setdefault((i, order + 1), ca.SX.sym(f"d({symbol})"))
        return ca.SX(0)  # parameters and start values stay


def _substitute(array: DerivativeArray) -> None:
    """Leave out further derivatives that a derivative of an equation gives with a number as factor.

    d(d(x)) = d(u) where d(x) = u.
    """
    changed = True
    while changed:
        changed = False
        for name, symbol in list(array.further.items()):
            place = next((k for k, r in enumerate(array.rows) if r.level and _gives(r, symbol)), -1)
            if place < 0:
                continue
            row = array.rows.pop(place)
            rest = ca.substitute(row.expression, symbol, 0)
            value = -rest / ca.jacobian(row.expression, symbol)
            del array.further[name]
            array.rows = [
                r._replace(expression=ca.substitute(r.expression, symbol, value))
                for r in array.rows
            ]
            changed = True


def _gives(row: Row, symbol: Any) -> bool:
    factor = ca.jacobian(row.expression, symbol)
    return bool(factor.nnz() and factor.is_constant() and float(factor) != 0)
