"""Reactions: equations as chemists write them ("2 A + B <-> C"), rate laws and their constants.

A constant is a number, the name of a parameter, or a function of temperature.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError

ARROWS = {"<->": True, "<=>": True, "⇌": True, "->": False, "=>": False, "→": False}
"""Arrow -> whether the reaction goes back."""

MOST = 1000  # coefficient

_ARROW = re.compile("|".join(map(re.escape, ARROWS)))
_TERM = re.compile(r"(?:(?P<count>\d+/\d+|\d+(?:\.\d+)?|\.\d+)\s*\*?\s*)?(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Equation:
    """What reacts to what.

    left, right  species -> stoichiometric coefficient, positive
    reversible   whether the arrow points both ways
    """

    left: Mapping[str, Fraction]
    right: Mapping[str, Fraction]
    reversible: bool

    @property
    def species(self) -> tuple[str, ...]:
        """All species, in the order they are written."""
        return tuple(dict.fromkeys([*self.left, *self.right]))

    @property
    def net(self) -> dict[str, Fraction]:
        """Species -> what one turn of the reaction makes of it; catalysts are left out."""
        change = {s: self.right.get(s, Fraction(0)) - self.left.get(s, 0) for s in self.species}
        return {s: n for s, n in change.items() if n}


def read_equation(text: str) -> Equation:
    """The equation that a text means: "A + 2 B -> C", "A <-> B", "-> A", "A ->", "E + S -> E + P".

    Coefficients are numbers (2, 0.5, 1/2) before a name; names are letters, digits, underscores.

    raises ModelError if there is not one arrow, or a term that is no species
    """
    if not isinstance(text, str):
        raise ModelError(f"A reaction is {shown(text)}; wanted a text such as 'A + 2 B -> C'.")
    arrows = _ARROW.findall(text)
    if len(arrows) != 1:
        raise ModelError(
            f"The reaction '{text}' has {len(arrows) or 'no'} arrows; wanted one of "
            f"{', '.join(ARROWS)}, as in 'A + 2 B -> C'."
        )
    left, right = (_side(part, text) for part in text.split(arrows[0]))
    equation = Equation(left, right, ARROWS[arrows[0]])
    if not equation.net:
        raise ModelError(f"The reaction '{text}' changes nothing; leave it out.")
    return equation


def _coefficient(text: str) -> Fraction:
    """The number; 0 for one that is none: 1/0, or more digits than Python reads."""
    try:
        return Fraction(text)
    except (ZeroDivisionError, ValueError):
        return Fraction(0)


def _side(part: str, text: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for term in part.split("+") if part.strip() else []:
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ModelError(
                f"'{term.strip()}' in the reaction '{text}' is no species; wanted a name of "
                "letters, digits and underscores, a coefficient before it if it is not 1."
            )
        count = _coefficient(match["count"] or "1")
        if not 0 < count <= MOST:
            raise ModelError(
                f"'{term.strip()}' in the reaction '{text}' needs a coefficient above 0, and up to "
                f"{MOST}; leave out what does not react."
            )
        found[match["name"]] = found.get(match["name"], Fraction(0)) + count
    return found


GAS_CONSTANT = 8.314462618  # J/(mol K)
TEMPERATURE = "T"  # the model's name of it, K


@dataclass(frozen=True)
class Arrhenius:
    """factor*exp(-energy/gas*(1/T - 1/reference)): the factor is the constant at `reference`.

    Also for equilibrium constants, with the enthalpy as energy (van 't Hoff). A reference amid the
    temperatures measured makes factor and energy nearly uncorrelated.

    factor     name of a parameter, or a number
    energy     name of a parameter, or a number; J/mol
    reference  K
    gas        gas constant, J/(mol K)
    raises     ModelError if the reference or the gas constant is not positive
    """

    factor: str | float
    energy: str | float
    reference: float
    gas: float = GAS_CONSTANT

    def __post_init__(self) -> None:
        for role, name in (("factor", self.factor), ("energy", self.energy)):
            _check_name(f"Arrhenius' {role}", name)
        if not (is_finite(self.reference, self.gas) and self.reference > 0 and self.gas > 0):
            raise ModelError(
                f"Arrhenius has the reference temperature {shown(self.reference)} and the gas "
                f"constant {shown(self.gas)}; give positive numbers, in kelvin and J/(mol K)."
            )


Constant: TypeAlias = str | float | Arrhenius
"""A constant of a rate law: the name of a parameter, a number, or `Arrhenius`."""


def check_constant(role: str, constant: Any) -> None:
    """Raise ModelError unless it is a name, a finite number or `Arrhenius`."""
    if not isinstance(constant, Arrhenius):
        _check_name(role, constant)


def names_of(constants: Iterable[Constant | None]) -> tuple[str, ...]:
    """The parameters in constants, each once."""
    found: list[Any] = []
    for c in constants:
        found += [c.factor, c.energy] if isinstance(c, Arrhenius) else [c]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


def is_thermal(constants: Iterable[Constant | None]) -> bool:
    """Whether one of them depends on temperature."""
    return any(isinstance(c, Arrhenius) for c in constants)


def value(constant: Constant, m: Any, t: float) -> Any:
    """The constant as a Pyomo expression at a time."""
    if isinstance(constant, Arrhenius):
        factor, energy = value(constant.factor, m, t), value(constant.energy, m, t)
        over = 1 / m.component(TEMPERATURE)[t] - 1 / constant.reference
        return factor * pyo.exp(-energy / constant.gas * over)
    return m.component(constant) if isinstance(constant, str) else float(constant)


def _check_name(role: str, given: Any) -> None:
    if isinstance(given, str) and given.isidentifier():
        return
    if not isinstance(given, str) and is_finite(given):
        return
    raise ModelError(
        f"{role} is {shown(given)}; wanted the name of a parameter ('k1'), a number, or for a "
        "constant that depends on temperature Arrhenius('k1', 'Ea1', reference=350.0)."
    )


Concentrations = Mapping[str, Any]
"""Species -> Pyomo expression of its concentration at one time."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
PER_TIME = (Fraction(0), -1)
RATE = (Fraction(1), -1)
CONCENTRATION = (Fraction(1), 0)

Dimension = tuple[Fraction, int]
"""Powers of concentration and of time."""


class RateLaw(Protocol):
    """How fast a reaction goes.

    constants   all constants it holds, with their dimensions for `equation`
    check       raises ModelError if the law does not suit the equation
    rate        a Pyomo expression, concentration per time
    """

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]: ...
    def check(self, equation: Equation) -> None: ...
    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any: ...


@dataclass(frozen=True)
class MassAction:
    """forward * product of left concentrations - backward * product of right ones.

    forward      constant of the reaction as written
    backward     constant of the way back; or
    equilibrium  forward/backward
    orders       species on the left -> order, where it is not the coefficient
    """

    forward: Constant
    backward: Constant | None = None
    equilibrium: Constant | None = None
    orders: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_constant("MassAction's forward constant", self.forward)
        for role in ("backward", "equilibrium"):
            if getattr(self, role) is not None:
                check_constant(f"MassAction's {role} constant", getattr(self, role))
        require_mapping("orders", self.orders, "orders={'A': 2}", ModelError)
        if not is_finite(*self.orders.values()):
            raise ModelError(f"The orders {dict(self.orders)} are no numbers; give {{'A': 2}}.")

    def check(self, equation: Equation) -> None:
        """Raise ModelError if one constant too few or too many is given, or an order of nothing."""
        back = [c for c in (self.backward, self.equilibrium) if c is not None]
        if len(back) != int(equation.reversible):
            raise ModelError(
                f"A {'reversible' if equation.reversible else 'one-way'} reaction by mass action "
                f"has {len(back)} constants of the way back; give "
                + (
                    "one: backward=... or equilibrium=..."
                    if equation.reversible
                    else "none, or write it with <->."
                )
            )
        strangers = [s for s in self.orders if s not in equation.left]
        if strangers:
            raise ModelError(
                f"orders are given for {strangers}; the left side has {list(equation.left)}."
            )

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """See `RateLaw`."""
        forward = 1 - sum(map(_exact, self._orders(equation).values()), Fraction(0))
        backward = 1 - sum(equation.right.values(), Fraction(0))
        found: list[tuple[Constant, Dimension]] = [(self.forward, (forward, -1))]
        if self.backward is not None:
            found.append((self.backward, (backward, -1)))
        if self.equilibrium is not None:
            found.append((self.equilibrium, (forward - backward, 0)))
        return found

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """See `RateLaw`."""
        forward = value(self.forward, m, t)
        there = forward * _product(c, self._orders(equation))
        if not equation.reversible:
            return there
        backward = (
            value(self.backward, m, t)
            if self.backward is not None
            else forward / value(self.equilibrium, m, t)  # type: ignore[arg-type]
        )
        return there - backward * _product(c, equation.right)

    def _orders(self, equation: Equation) -> dict[str, Fraction | float]:
        return {**equation.left, **self.orders}


@dataclass(frozen=True)
class MichaelisMenten:
    """vmax*S/(km*(1 + sum of I/Ki) + S).

    vmax        largest rate
    km          concentration of half the rate
    substrate   S; may be left out where the left side is one species
    inhibitors  species that compete with S -> their constant Ki
    enzyme      species whose concentration multiplies the rate; vmax is then kcat
    """

    vmax: Constant
    km: Constant
    substrate: str | None = None
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)
    enzyme: str | None = None

    def __post_init__(self) -> None:
        require_mapping("inhibitors", self.inhibitors, "inhibitors={'I': 'Ki'}", ModelError)
        for constant in (self.vmax, self.km, *self.inhibitors.values()):
            check_constant("A constant of MichaelisMenten", constant)

    def check(self, equation: Equation) -> None:
        """Raise ModelError unless the substrate is known."""
        _one_way(equation, "MichaelisMenten")
        _substrate(equation, self.substrate, "MichaelisMenten", "substrate")

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """See `RateLaw`."""
        fastest = RATE if self.enzyme is None else PER_TIME
        inhibition = [(k, CONCENTRATION) for k in self.inhibitors.values()]
        return [(self.vmax, fastest), (self.km, CONCENTRATION), *inhibition]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """See `RateLaw`."""
        s = c[_substrate(equation, self.substrate, "MichaelisMenten", "substrate")]
        crowd = 1 + sum(c[i] / value(k, m, t) for i, k in self.inhibitors.items())
        fastest = value(self.vmax, m, t) * (1 if self.enzyme is None else c[self.enzyme])
        return fastest * s / (value(self.km, m, t) * crowd + s)

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Species that act without reacting."""
        return (*self.inhibitors, *([] if self.enzyme is None else [self.enzyme]))


@dataclass(frozen=True)
class Hill:
    """vmax*S^n/(half^n + S^n), or vmax*half^n/(half^n + S^n) where S represses.

    vmax       largest rate
    half       concentration of half the rate
    exponent   n
    regulator  S; may be left out where the left side is one species
    repressing whether S slows the reaction
    """

    vmax: Constant
    half: Constant
    exponent: Constant
    regulator: str | None = None
    repressing: bool = False

    def __post_init__(self) -> None:
        for constant in (self.vmax, self.half, self.exponent):
            check_constant("A constant of Hill", constant)

    def check(self, equation: Equation) -> None:
        """Raise ModelError unless the regulator is known."""
        _one_way(equation, "Hill")
        _substrate(equation, self.regulator, "Hill", "regulator")

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """See `RateLaw`."""
        return [(self.vmax, RATE), (self.half, CONCENTRATION), (self.exponent, (Fraction(0), 0))]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """See `RateLaw`."""
        n = value(self.exponent, m, t)
        level = c[_substrate(equation, self.regulator, "Hill", "regulator")] ** n
        half = value(self.half, m, t) ** n
        return value(self.vmax, m, t) * (half if self.repressing else level) / (half + level)

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Species that act without reacting."""
        return () if self.regulator is None else (self.regulator,)


@dataclass(frozen=True)
class OwnLaw:
    """Any rate: a Pyomo expression of your own.

    rule        rule(m, t, c) -> expression, concentration per time; `c["A"]` is a concentration,
                `m.k` a parameter, `m.T[t]` the temperature where the reactor has one
    parameters  names of the parameters that it uses
    modifiers   species that it uses and no reaction has
    """

    rule: Callable[[Any, float, Concentrations], Any]
    parameters: tuple[str, ...] = ()
    modifiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.rule):
            raise ModelError(
                f"OwnLaw's rule is {shown(self.rule)}; wanted a function: "
                "OwnLaw(lambda m, t, c: m.k * c['A'] ** 0.5, parameters=('k',))."
            )
        if isinstance(self.parameters, str) or isinstance(self.modifiers, str):
            raise ModelError("OwnLaw needs tuples of names: parameters=('k',), modifiers=('E',).")

    def check(self, equation: Equation) -> None:
        """Suits every equation."""

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """None whose dimension is known."""
        return []

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """See `RateLaw`."""
        return self.rule(m, t, c)


def parameters_of(law: RateLaw, equation: Equation) -> tuple[str, ...]:
    """Names of the parameters in a rate law."""
    if isinstance(law, OwnLaw):
        return law.parameters
    return names_of(c for c, _ in law.constants(equation))


def _product(c: Concentrations, orders: Mapping[str, Fraction | float]) -> Any:
    product: Any = 1
    for species, order in orders.items():
        if order:
            product = product * (c[species] if order == 1 else c[species] ** _plain(order))
    return product


def _plain(order: Fraction | float) -> int | float:
    return int(order) if order == int(order) else float(order)


def _exact(order: Fraction | float) -> Fraction:
    return order if isinstance(order, Fraction) else Fraction(str(order))


def _one_way(equation: Equation, law: str) -> None:
    if equation.reversible:
        raise ModelError(
            f"{law} goes one way only, but the reaction is written with <->; write two reactions "
            "with ->, or give an OwnLaw."
        )


def _substrate(equation: Equation, given: str | None, law: str, field_name: str) -> str:
    if given is not None:
        return given
    if len(equation.left) != 1:
        raise ModelError(
            f"{law} does not know its {field_name} among {list(equation.left)}; name it: "
            f"{field_name}='S'."
        )
    return next(iter(equation.left))


@dataclass(frozen=True)
class Reaction:
    """What reacts to what, and how fast.

    text  "A + 2 B -> C"; "<->" for a reaction that goes back
    rate  by default mass action with the constants k1, or k1f and k1r, 1 its place in the list
    """

    text: str
    rate: RateLaw | None = None

    @cached_property
    def equation(self) -> Equation:
        """The text, read."""
        return read_equation(self.text)

    @property
    def law(self) -> RateLaw:
        """The rate law of a numbered reaction."""
        if self.rate is None:
            raise ModelError(f"The reaction '{self.text}' has no rate law yet.")
        return self.rate

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return parameters_of(self.law, self.equation)

    @property
    def species(self) -> tuple[str, ...]:
        """All species that react or act."""
        return (*self.equation.species, *getattr(self.law, "modifiers", ()))


def numbered(reactions: Sequence[Any]) -> tuple[Reaction, ...]:
    """Texts and reactions with a rate law each.

    raises ModelError if one cannot be read, or its law does not suit it
    """
    if isinstance(reactions, str) or not isinstance(reactions, Sequence) or not reactions:
        raise ModelError(
            f"The reactions are {shown(reactions)}; wanted a list: ['A + B -> C', 'C <-> D']."
        )
    return tuple(_numbered(one, place) for place, one in enumerate(reactions, start=1))


def _numbered(one: Any, place: int) -> Reaction:
    reaction = one if isinstance(one, Reaction) else Reaction(one)
    if reaction.rate is None:
        k = f"k{place}"
        there_and_back = MassAction(f"{k}f", backward=f"{k}r")
        law = there_and_back if reaction.equation.reversible else MassAction(k)
        return Reaction(reaction.text, law)
    if not callable(getattr(reaction.rate, "rate", None)):
        raise ModelError(
            f"The rate of '{reaction.text}' is {shown(reaction.rate)}; wanted a rate law: "
            "MassAction('k1'), MichaelisMenten('vmax', 'km'), Hill(...) or OwnLaw(...)."
        )
    try:
        reaction.rate.check(reaction.equation)
    except ModelError as error:
        raise ModelError(f"Reaction {place}, '{reaction.text}': {error}") from None
    return reaction
