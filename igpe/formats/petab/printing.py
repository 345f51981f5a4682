"""Formulas as texts, as the L3 parser of libSBML and PEtab's own both read them, and their names.

A text is made of CasADi's operations; which branch counts is `piecewise(value, condition, other)`.

And SBML models of them: constants, states with rate rules, assignment rules, events.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.errors import ModelError
from igpe.equations.operations import Graph, in_words
from igpe.formats.petab.formulas import library

LEVEL, VERSION = 3, 1  # which all programs read


class ModelEvent(NamedTuple):
    """An event; all are formulas.

    sets      state and its new value, from values when it happens
    priority  of several at one time the highest happens first
    at_start  whether it happens where the trigger is true at the start
    """

    trigger: str
    sets: tuple[tuple[str, str], ...]
    delay: str
    priority: int
    at_start: bool


class SbmlModel:
    """An SBML model in the making; formulas are those of libSBML's L3 parser."""

    def __init__(self) -> None:
        self.sbml = library("libsbml")
        self.made = self.sbml.SBMLDocument(LEVEL, VERSION)
        self.model = self.made.createModel()
        self.model.setId("model")
        self.formulas: list[str] = []

    def _math(self, element: Any, formula: str) -> None:
        math = self.sbml.parseL3Formula(formula)
        if math is None:
            raise ModelError(
                f"SBML cannot express '{formula[:200]}': {self.sbml.getLastParseL3Error()}."
            )
        self.formulas.append(formula)
        element.setMath(math)

    def _parameter(self, identifier: str, name: str, *, constant: bool) -> Any:
        parameter = self.model.createParameter()
        parameter.setId(identifier)
        parameter.setConstant(constant)
        if name != identifier:
            parameter.setName(name)
        return parameter

    def constant(self, identifier: str, value: float, *, name: str) -> None:
        """Add a constant; conditions may set it."""
        self._parameter(identifier, name, constant=True).setValue(float(value))

    def initial(self, identifier: str, formula: str, *, name: str) -> None:
        """Add a constant that is a number, or is computed at the start."""
        try:
            self.constant(identifier, float(formula), name=name)
        except ValueError:
            self._parameter(identifier, name, constant=True)
            self._initial(identifier, formula)

    def _initial(self, identifier: str, formula: str) -> None:
        assignment = self.model.createInitialAssignment()
        assignment.setSymbol(identifier)
        self._math(assignment, formula)

    def state(self, identifier: str, start: str, rate: str, *, name: str) -> None:
        """Add a state with its start value and its rate."""
        self._parameter(identifier, name, constant=False)
        self._initial(identifier, start)
        rule = self.model.createRateRule()
        rule.setVariable(identifier)
        self._math(rule, rate)

    def rule(self, identifier: str, formula: str, *, name: str) -> None:
        """Add a quantity that a formula gives at every time."""
        self._parameter(identifier, name, constant=False)
        rule = self.model.createAssignmentRule()
        rule.setVariable(identifier)
        self._math(rule, formula)

    def event(self, identifier: str, event: ModelEvent) -> None:
        """Add an event."""
        created = self.model.createEvent()
        created.setId(identifier)
        created.setUseValuesFromTriggerTime(False)
        trigger = created.createTrigger()
        trigger.setInitialValue(not event.at_start)
        trigger.setPersistent(True)
        self._math(trigger, event.trigger)
        if event.delay != "0":
            self._math(created.createDelay(), event.delay)
        self._math(created.createPriority(), str(event.priority))
        for state, value in event.sets:
            assignment = created.createEventAssignment()
            assignment.setVariable(state)
            self._math(assignment, value)

    def names_used(self) -> set[str]:
        """All names in the formulas that are not defined yet."""
        used = {n for f in self.formulas for n in re.findall(r"[A-Za-z_]\w*", f)}
        return {n for n in used if self.model.getParameter(n) is None}

    def document(self) -> str:
        """The model in SBML; raises ModelError if libSBML finds it wrong."""
        log = self.made.getErrorLog()
        self.made.checkConsistency()
        for severity in (self.sbml.LIBSBML_SEV_ERROR, self.sbml.LIBSBML_SEV_FATAL):
            if log.getNumFailsWithSeverity(severity):
                wrong = log.getErrorWithSeverity(0, severity).getMessage().strip()
                raise ModelError(f"The model cannot be written as SBML: {wrong}")
        return str(self.sbml.writeSBMLToString(self.made))


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
    return lambda a, b: Text(f"{a.within(SUM)} {sign} {b.within(SUM)}", COMPARISON, truth=True)


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


ANGLES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
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
    **{n.upper(): _function(n) for n in ("exp", "sqrt", "floor", "ceil", *ANGLES)},
    **{f"A{n}".upper(): _function(f"arc{n}") for n in ANGLES},
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
        formula = RULES[name](*operands)
        if len(formula.text) > LONGEST:
            raise ModelError(
                f"A formula is longer than {LONGEST} characters after substitution of the "
                "algebraic variables. Make the equations of these variables shorter, or turn some "
                "of them into states."
            )
        return formula

    nodes = graph.evaluate(lambda i, j: Text(names[i][j]), _constant, apply)
    return [one.number.text for one in nodes]


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
            free, count = plain, 1
            while free in self._taken:
                count += 1
                free = f"{plain}_{count}"
            self._taken.add(free)
            self._ids[name] = free
        return self._ids[name]
