"""Formulas as texts, as the L3 parser of libSBML and PEtab's own both read them, and their names.

A text is made of CasADi's operations; which branch counts is `piecewise(value, condition, other)`.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.errors import ModelError
from igpe.equations.operations import Graph, in_words

LONGEST = 200_000  # characters of a formula
WHOLE = 1e6  # whole numbers up to here are written without a decimal point
MEANT = """
    time t pi e E exponentiale avogadro true false inf infinity nan notanumber and or not xor
    piecewise delay rateOf factorial root log ln log10 exp sqrt abs floor ceil min max
"""
RESERVED = frozenset(MEANT.split())
"""Names that formulas give a meaning of their own."""
SUM, PRODUCT, POWER, ATOM = 3, 4, 6, 7
OR, AND, COMPARISON = 0, 1, 2


class Text(NamedTuple):
    """A formula.

    rank    how strongly its outermost operation binds
    truth   whether it is true or false rather than a number
    branch  condition and value, where it is 0 unless the condition holds
    """

    text: str
    rank: int = ATOM
    truth: bool = False
    branch: tuple[str, str] | None = None

    def within(self, rank: int) -> str:
        """The text as an operand of an operation that binds so strongly."""
        number = self.number
        return number.text if number.rank >= rank else f"({number.text})"

    @property
    def number(self) -> "Text":
        """1 and 0 in the place of true and false."""
        return Text(f"piecewise(1, {self.text}, 0)") if self.truth else self

    @property
    def condition(self) -> str:
        """True where a number is not 0."""
        return self.text if self.truth else f"{self.within(SUM)} != 0"


def number_text(value: float) -> str:
    """Every digit of a number; raises ModelError if it is not finite."""
    if not math.isfinite(value):
        raise ModelError(f"An equation contains the number {value}, which SBML cannot express.")
    return repr(int(value)) if value.is_integer() and abs(value) < WHOLE else repr(value)


def _constant(value: float) -> Text:
    return Text(number_text(float(value)), ATOM if value >= 0 else SUM)


def _binary(sign: str, rank: int, left: int, right: int) -> Callable[..., Text]:
    return lambda a, b: Text(f"{a.within(left)} {sign} {b.within(right)}", rank)


def _function(name: str) -> Callable[..., Text]:
    return lambda a: Text(f"{name}({a.number.text})")


def _comparison(sign: str) -> Callable[..., Text]:
    def of(a: Text, b: Text) -> Text:
        return Text(f"{a.within(SUM)} {sign} {b.within(SUM)}", COMPARISON, truth=True)

    return of


def _joined(sign: str, rank: int) -> Callable[..., Text]:
    return lambda a, b: Text(f"({a.condition}) {sign} ({b.condition})", rank, truth=True)


def _not(a: Text) -> Text:
    return Text(f"!({a.condition})", COMPARISON, truth=True)


def _branch(condition: Text, value: Text) -> Text:
    branch = condition.condition, value.number.text
    return Text(f"piecewise({branch[1]}, {branch[0]}, 0)", branch=branch)


def _sum(a: Text, b: Text) -> Text:
    """A sum; two branches of which one always counts are one `piecewise`."""
    if a.branch and b.branch:
        for (yes, value), (no, other) in ((a.branch, b.branch), (b.branch, a.branch)):
            if no == f"!({yes})":
                return Text(f"piecewise({value}, {yes}, {other})")
    return Text(f"{a.within(SUM)} + {b.within(SUM)}", SUM)


def _chosen(sign: str) -> Callable[..., Text]:
    def of(a: Text, b: Text) -> Text:
        test = f"{a.within(SUM)} {sign} {b.within(SUM)}"
        return Text(f"piecewise({a.number.text}, {test}, {b.number.text})")

    return of


def _sign(a: Text) -> Text:
    inside = a.within(SUM)
    return Text(f"piecewise(1, {inside} > 0, -1, {inside} < 0, 0)")


_PRODUCT, _POWER = _binary("*", PRODUCT, PRODUCT, PRODUCT), _binary("^", POWER, ATOM, ATOM)
_TWO, _ONE = Text("2"), Text("1")
_DIVISION = _binary("/", PRODUCT, PRODUCT, POWER)
RULES: Mapping[str, Callable[..., Text]] = {
    "ASSIGN": lambda a: a,
    "ADD": _sum,
    "SUB": _binary("-", SUM, SUM, PRODUCT),
    "MUL": _PRODUCT,
    "DIV": _DIVISION,
    "NEG": lambda a: Text(f"-{a.within(PRODUCT)}", SUM),
    "INV": lambda a: _DIVISION(_ONE, a),
    "TWICE": lambda a: _PRODUCT(_TWO, a),
    "SQ": lambda a: _POWER(a, _TWO),
    "POW": _POWER,
    "CONSTPOW": _POWER,
    "LOG": _function("ln"),
    "FABS": _function("abs"),
    "FMIN": _chosen("<="),
    "FMAX": _chosen(">="),
    "SIGN": _sign,
    "LT": _comparison("<"),
    "LE": _comparison("<="),
    "EQ": _comparison("=="),
    "NE": _comparison("!="),
    "NOT": _not,
    "AND": _joined("&&", AND),
    "OR": _joined("||", OR),
    "IF_ELSE_ZERO": _branch,
    **{n.upper(): _function(n) for n in ("exp", "sqrt", "sin", "cos", "tan", "sinh", "cosh")},
    "TANH": _function("tanh"),
    **{f"A{n}".upper(): _function(f"arc{n}") for n in ("sin", "cos", "tan")},
    **{f"A{n}".upper(): _function(f"arc{n}") for n in ("sinh", "cosh", "tanh")},
    "FLOOR": _function("floor"),
    "CEIL": _function("ceil"),
}
"""CasADi's name of an operation -> the text of it."""


def texts(expressions: Any, symbols: Sequence[Any], names: Sequence[Sequence[str]]) -> list[str]:
    """An SX column as formulas.

    symbols  columns of SX symbols;  names: what stands for each of them
    raises   ModelError for what formulas cannot say, or can say only at a length beyond use
    """
    column = ca.SX(expressions)
    if not column.numel():
        return []
    graph = Graph.of(column, symbols)
    if unknown := {n.name for n in graph.nodes} - {*RULES, "INPUT", "CONST"}:
        raise ModelError(
            f"The equations use {in_words(unknown)}, which SBML and PEtab do not have. Write them "
            "with other functions."
        )

    def apply(name: str, operands: list[Text]) -> Text:
        made = RULES[name](*operands)
        if len(made.text) > LONGEST:
            raise ModelError(
                f"A formula is longer than {LONGEST} characters after substitution of the "
                "algebraic variables. Make their equations shorter, or make some of them "
                "states."
            )
        return made

    found = graph.evaluate(lambda i, j: Text(names[i][j]), _constant, apply)
    return [one.number.text for one in found]


class Ids:
    """Names that SBML and PEtab allow, one for each name of igpe and no two the same."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set(RESERVED)

    def __call__(self, name: str) -> str:
        """The name of letters, digits and underscores that stands for one of igpe's."""
        if name not in self._ids:
            plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
            plain = plain if not plain[0].isdigit() else f"_{plain}"
            found, count = plain, 1
            while found in self._taken:
                count += 1
                found = f"{plain}_{count}"
            self._taken.add(found)
            self._ids[name] = found
        return self._ids[name]
