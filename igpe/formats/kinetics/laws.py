"""Reactions: equations as chemists write them ("2 A + B <-> C"), rate laws and their constants.

A constant is a number, the name of a parameter, or a function of temperature.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

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
    """Stoichiometry of one reaction: reactants and products.

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


def _side(part: str, text: str) -> dict[str, Fraction]:
    species: dict[str, Fraction] = {}
    for term in map(str.strip, part.split("+") if part.strip() else []):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ModelError(
                f"'{term}' in the reaction '{text}' is no species; wanted a name of "
                "letters, digits and underscores, a coefficient before it if it is not 1."
            )
        try:
            count = Fraction(match["count"] or "1")
        except (ZeroDivisionError, ValueError):  # 1/0, or more digits than Python reads
            count = Fraction(0)
        if not 0 < count <= MOST:
            raise ModelError(
                f"'{term}' in the reaction '{text}' needs a coefficient above 0, and up to "
                f"{MOST}; leave out what does not react."
            )
        species[match["name"]] = species.get(match["name"], Fraction(0)) + count
    return species


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
        for name in ("factor", "energy"):
            _require_constant(f"Arrhenius' {name}", getattr(self, name), None)
        if not (is_finite(self.reference, self.gas) and self.reference > 0 and self.gas > 0):
            raise ModelError(
                f"Arrhenius has the reference temperature {shown(self.reference)} and the gas "
                f"constant {shown(self.gas)}; give positive numbers, in kelvin and J/(mol K)."
            )


Constant: TypeAlias = str | float | Arrhenius
"""A constant of a rate law: the name of a parameter, a number, or `Arrhenius`."""


def _require_constant(role: str, given: Any, thermal: type | None = Arrhenius) -> None:
    is_name = isinstance(given, str) and given.isidentifier()
    if not (is_name or is_finite(given) or (thermal and isinstance(given, thermal))):
        raise ModelError(
            f"{role} is {shown(given)}; wanted the name of a parameter ('k1'), a number, or for a "
            "constant that depends on temperature Arrhenius('k1', 'Ea1', reference=350.0)."
        )


def value(constant: Constant, m: Any, t: float) -> Any:
    """The constant as a Pyomo expression at a time."""
    if isinstance(constant, Arrhenius):
        factor, energy = value(constant.factor, m, t), value(constant.energy, m, t)
        over = 1 / m.component(TEMPERATURE)[t] - 1 / constant.reference
        return factor * pyo.exp(-energy / constant.gas * over)
    return m.component(constant) if isinstance(constant, str) else float(constant)


Concentrations = Mapping[str, Any]
"""Species -> Pyomo expression of its concentration at one time."""

Dimension = tuple[Fraction, int]
"""Powers of concentration and of time."""

NONE, PER_TIME, RATE, CONCENTRATION = (
    (Fraction(a), b) for a, b in ((0, 0), (0, -1), (1, -1), (1, 0))
)


class RateLaw:
    """How fast a reaction goes: base of all rate laws.

    dimensions  field that holds a constant -> its dimension
    role        field that names the one species the law is about; by default the only one on the
                left
    """

    dimensions: ClassVar[Mapping[str, Dimension]] = {}
    role: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name in self.dimensions:
            _require_constant(f"{type(self).__name__}'s {name}", getattr(self, name))

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Species that act without reacting."""
        return ()

    def check(self, equation: Equation) -> None:
        """Raise ModelError if the law does not suit the equation."""
        if equation.reversible:
            raise ModelError(
                f"{type(self).__name__} goes one way only, but the reaction is written with <->; "
                "write two reactions with ->, or give an OwnLaw."
            )
        self._only(equation)

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """All constants of the law, with their dimensions for the equation."""
        return [(getattr(self, name), dimension) for name, dimension in self.dimensions.items()]

    def parameters_of(self, equation: Equation) -> tuple[str, ...]:
        """Names of the parameters in the constants, each once."""
        names: list[Any] = []
        for c, _ in self.constants(equation):
            names += [c.factor, c.energy] if isinstance(c, Arrhenius) else [c]
        return tuple(dict.fromkeys(n for n in names if isinstance(n, str)))

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """A Pyomo expression, concentration per time."""
        raise NotImplementedError

    def _only(self, equation: Equation) -> str:
        given: str | None = getattr(self, self.role)
        if given is None and len(equation.left) != 1:
            raise ModelError(
                f"{type(self).__name__} does not know its {self.role} among "
                f"{list(equation.left)}; name it: {self.role}='S'."
            )
        return next(iter(equation.left)) if given is None else given


@dataclass(frozen=True)
class MassAction(RateLaw):
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
        for name in ("forward", "backward", "equilibrium"):
            if name == "forward" or getattr(self, name) is not None:
                _require_constant(f"MassAction's {name} constant", getattr(self, name))
        require_mapping("orders", self.orders, "orders={'A': 2}", ModelError)
        if not is_finite(*self.orders.values()):
            raise ModelError(
                f"Reaction orders must be numbers, for example {{'A': 2}}; got {dict(self.orders)}."
            )

    def check(self, equation: Equation) -> None:
        """Raise ModelError if one constant too few or too many is given, or an order of nothing."""
        count = (self.backward is not None) + (self.equilibrium is not None)
        if count != int(equation.reversible):
            raise ModelError(
                f"A {'reversible' if equation.reversible else 'one-way'} reaction by mass action "
                f"has {count} constants of the way back. With <-> give one, backward=... or "
                "equilibrium=...; with -> none."
            )
        unknown_names = [s for s in self.orders if s not in equation.left]
        if unknown_names:
            raise ModelError(
                f"orders are given for {unknown_names}; the left side has {list(equation.left)}."
            )

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """The constants that are given; concentrations to the power of 1 - order, over time."""
        orders = (Fraction(str(n)) for n in self._orders(equation).values())
        forward, backward = 1 - sum(orders), 1 - sum(equation.right.values())
        every: list[tuple[Any, Dimension]] = [
            (self.forward, (Fraction(forward), -1)),
            (self.backward, (Fraction(backward), -1)),
            (self.equilibrium, (Fraction(forward - backward), 0)),
        ]
        return [(c, dimension) for c, dimension in every if c is not None]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        forward = value(self.forward, m, t)
        there = forward * _product(c, self._orders(equation))
        if self.backward is not None:
            return there - value(self.backward, m, t) * _product(c, equation.right)
        if self.equilibrium is not None:
            return there - forward / value(self.equilibrium, m, t) * _product(c, equation.right)
        return there

    def _orders(self, equation: Equation) -> dict[str, Fraction | float]:
        return {**equation.left, **self.orders}


@dataclass(frozen=True)
class MichaelisMenten(RateLaw):
    """vmax*S/(km*(1 + sum of I/Ki) + S).

    vmax        largest rate
    km          concentration of half the rate
    substrate   S; may be left out where the left side is one species
    inhibitors  species that compete with S -> their constant Ki
    enzyme      species whose concentration multiplies the rate; vmax is then kcat
    """

    dimensions, role = {"vmax": RATE, "km": CONCENTRATION}, "substrate"
    vmax: Constant
    km: Constant
    substrate: str | None = None
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)
    enzyme: str | None = None

    def __post_init__(self) -> None:
        require_mapping("inhibitors", self.inhibitors, "inhibitors={'I': 'Ki'}", ModelError)
        for name, constant in self.inhibitors.items():
            _require_constant(f"MichaelisMenten's constant of {name}", constant)
        super().__post_init__()

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        fastest = RATE if self.enzyme is None else PER_TIME
        given = [self.km, *self.inhibitors.values()]
        return [(self.vmax, fastest), *((k, CONCENTRATION) for k in given)]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        s = c[self._only(equation)]
        crowd = 1 + sum(c[i] / value(k, m, t) for i, k in self.inhibitors.items())
        fastest = value(self.vmax, m, t) * (1 if self.enzyme is None else c[self.enzyme])
        return fastest * s / (value(self.km, m, t) * crowd + s)

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Inhibitors and enzyme."""
        return (*self.inhibitors, *([] if self.enzyme is None else [self.enzyme]))


@dataclass(frozen=True)
class Hill(RateLaw):
    """vmax*S^n/(half^n + S^n), or vmax*half^n/(half^n + S^n) where S represses.

    vmax       largest rate
    half       concentration of half the rate
    exponent   n
    regulator  S; may be left out where the left side is one species
    repressing whether S slows the reaction
    """

    dimensions: ClassVar = {"vmax": RATE, "half": CONCENTRATION, "exponent": NONE}
    role = "regulator"
    vmax: Constant
    half: Constant
    exponent: Constant
    regulator: str | None = None
    repressing: bool = False

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        n = value(self.exponent, m, t)
        level = c[self._only(equation)] ** n
        half = value(self.half, m, t) ** n
        return value(self.vmax, m, t) * (half if self.repressing else level) / (half + level)

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The regulator, if it is named."""
        return () if self.regulator is None else (self.regulator,)


@dataclass(frozen=True)
class OwnLaw(RateLaw):
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

    def parameters_of(self, equation: Equation) -> tuple[str, ...]:
        """The names that are given: the dimensions of its constants are not known."""
        return self.parameters

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        return self.rule(m, t, c)


def _product(c: Concentrations, orders: Mapping[str, Fraction | float]) -> Any:
    powers = ((c[s], plain(n)) for s, n in orders.items() if n)
    return math.prod(c if n == 1 else c**n for c, n in powers)


def plain(power: Fraction | float) -> int | float:
    """The number as an int where it is whole, else as a float."""
    return int(power) if power == int(power) else float(power)


@dataclass(frozen=True)
class Reaction:
    """One reaction: its stoichiometry and its rate law.

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
        return self.law.parameters_of(self.equation)

    @property
    def species(self) -> tuple[str, ...]:
        """All species that react or act."""
        return (*self.equation.species, *self.law.modifiers)


def numbered(reactions: Sequence[Any]) -> tuple[Reaction, ...]:
    """Reactions with a rate law each; raises ModelError if one does not suit its equation."""
    if isinstance(reactions, str) or not isinstance(reactions, Sequence) or not reactions:
        raise ModelError(
            f"The reactions are {shown(reactions)}; wanted a list: ['A + B -> C', 'C <-> D']."
        )
    complete = []
    for k, one in enumerate(reactions, start=1):
        reaction = one if isinstance(one, Reaction) else Reaction(one)
        if reaction.rate is None:
            back = reaction.equation.reversible
            law = MassAction(f"k{k}f", backward=f"k{k}r") if back else MassAction(f"k{k}")
            reaction = Reaction(reaction.text, law)
        if not isinstance(reaction.rate, RateLaw):
            raise ModelError(
                f"The rate of '{reaction.text}' is {shown(reaction.rate)}; wanted a rate law: "
                "MassAction('k1'), MichaelisMenten('vmax', 'km'), Hill(...) or OwnLaw(...)."
            )
        try:
            reaction.rate.check(reaction.equation)
        except ModelError as error:
            raise ModelError(f"Reaction {k}, '{reaction.text}': {error}") from None
        complete.append(reaction)
    return tuple(complete)
