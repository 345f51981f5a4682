"""Reactions: equations as chemists write them ("2 A + B <-> C"), rate laws, and what is conserved.

The base of all rate laws, and those of mass action, of powers and of your own.

Conservation laws are the left null space of the stoichiometric matrix. Those without negative
coefficients (atoms, groups, enzymes free and bound) are found by Farkas' algorithm; Gaussian
elimination completes what they do not span. All in exact arithmetic.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.arrays import smallest_integers
from igpe.core.errors import ModelError
from igpe.core.markup import counted
from igpe.formats.kinetics.temperature import (
    CONCENTRATION,
    NONE,
    RATE,
    Constant,
    Dimension,
    concentration,
    is_name,
    names_in,
    plain,
    require_constant,
    value,
)

ARROWS = {"<->": True, "<=>": True, "⇌": True, "->": False, "=>": False, "→": False}
"""Arrow -> whether the reaction goes back."""

MOST = 1000  # coefficient

_ARROW = re.compile("|".join(map(re.escape, ARROWS)))
_TERM = re.compile(r"(?:(?P<count>\d+/\d+|\d+(?:\.\d+)?|\.\d+)\s*\*?\s*)?(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Equation:
    """Stoichiometry of one reaction: reactants and products.

    left, right  dicts {species: stoichiometric coefficient}; coefficients are positive
    reversible   whether the arrow points both ways
    """

    left: Mapping[str, Fraction]
    right: Mapping[str, Fraction]
    reversible: bool

    @property
    def species(self) -> tuple[str, ...]:
        """All species, in the order in which they are written."""
        return tuple(dict.fromkeys([*self.left, *self.right]))

    @property
    def net(self) -> dict[str, Fraction]:
        """Net stoichiometric coefficients, negative for consumed species; catalysts are omitted."""
        change = {s: self.right.get(s, Fraction(0)) - self.left.get(s, 0) for s in self.species}
        return {s: n for s, n in change.items() if n}


def read_equation(text: str) -> Equation:
    """The equation that a text means: "A + 2 B -> C", "A <-> B", "-> A", "A ->", "E + S -> E + P".

    Coefficients are numbers (2, 0.5, 1/2) before a name; names are letters, digits, underscores.

    raises ModelError unless the text has one arrow and each term is a species
    """
    if not isinstance(text, str):
        raise ModelError(
            f"A reaction is given as {shown(text)}; expected a string such as 'A + 2 B -> C'."
        )
    arrows = _ARROW.findall(text)
    if len(arrows) != 1:
        raise ModelError(
            f"The reaction '{text}' has {len(arrows) or 'no'} arrows; expected one of "
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
                f"'{term}' in the reaction '{text}' is not a species; expected a name of "
                "letters, digits and underscores, with a coefficient in front if it is not 1."
            )
        try:
            count = Fraction(match["count"] or "1")
        except (ZeroDivisionError, ValueError):  # 1/0, or more digits than Python reads
            count = Fraction(0)
        if not 0 < count <= MOST:
            raise ModelError(
                f"'{term}' in the reaction '{text}' needs a coefficient above 0 and at most "
                f"{MOST}; omit species that do not react."
            )
        species[match["name"]] = species.get(match["name"], Fraction(0)) + count
    return species


Concentrations = Mapping[str, Any]
"""Species -> Pyomo expression of its concentration at one time."""


class RateLaw:
    """Base of all rate laws.

    A rate law is a frozen dataclass with constants, names of species, and a formula `rate`.

    dimensions  field -> dimension of its constant; fields that are None are left out
    listed      names of those fields that contain a mapping species -> constant
    actors      fields that contain the name of one species
    role        the field in `actors` with the main species of the law; by default this is the only
                species on the left
    made        the field in `actors` with a species on the right, if the law needs one
    """

    dimensions: ClassVar[Mapping[str, Dimension]] = {}
    listed: ClassVar[tuple[str, ...]] = ()
    actors: ClassVar[tuple[str, ...]] = ()
    role: ClassVar[str] = ""
    made: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in self.dimensions:
            given = getattr(self, name)
            if name in self.listed:
                require_mapping(name, given, f"{name}={{'A': 'K_A'}}", ModelError)
                for species, constant in given.items():
                    require_constant(f"{kind}: `{name}` of {species}", constant)
            elif given is not None or name in self._needed:
                require_constant(f"{kind}: `{name}`", given)
        for name in self.actors:
            given = getattr(self, name)
            if not (given is None or is_name(given)):
                raise ModelError(
                    f"{kind}: `{name}` is {shown(given)}; expected the name of a species: "
                    f"{name}='S'."
                )

    @property
    def _needed(self) -> set[str]:
        """Fields without a default."""
        return {f.name for f in fields(self) if f.default is f.default_factory is MISSING}  # type: ignore[arg-type]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Species that the rate law names, whether they react or not."""
        named = [getattr(self, name) for name in self.actors]
        listed = (s for n in self.dimensions if n in self.listed for s in getattr(self, n))
        return (*listed, *(name for name in named if name is not None))

    def check(self, equation: Equation) -> None:
        """Raise ModelError if the law does not suit the equation."""
        self._check_direction(equation)
        if self.role:
            self._only(equation)
        if self.made:
            self._only(equation, self.made, right=True)

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """All constants of the rate law, with their dimensions for this equation."""
        every: list[tuple[Constant, Dimension]] = []
        for name, dimension in self.dimensions.items():
            given = getattr(self, name)
            several = given.values() if name in self.listed else [given]
            every += [(constant, dimension) for constant in several if constant is not None]
        return every

    def parameters_of(self, equation: Equation) -> tuple[str, ...]:
        """Names of the parameters among the constants, each listed once."""
        return names_in(self.constants(equation))

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        """Return the rate, in concentration per time, as a Pyomo expression."""
        raise NotImplementedError

    def _check_direction(self, equation: Equation, back: str = "") -> None:
        """Raise ModelError unless the arrow fits; `back` names the constant that goes back."""
        returns = bool(back) and getattr(self, back) is not None
        kind = type(self).__name__
        if equation.reversible and not returns:
            remedy = f"give {back}=..., write" if back else "write"
            raise ModelError(
                f"{kind} is irreversible, but the reaction is written with <->; {remedy} two "
                "reactions with ->, or use an OwnLaw."
            )
        if returns and not equation.reversible:
            raise ModelError(f"{kind} has {back}=..., so the reaction is reversible; write <->.")

    def _require_one_each(self, equation: Equation) -> None:
        sides = (equation.left, equation.right)
        if any(list(side.values()) != [1] for side in sides):
            raise ModelError(
                f"{type(self).__name__} can be reversible only with one substrate and one product, "
                "as in 'S <-> P'; for other reactions, use an OwnLaw."
            )

    def _only(self, equation: Equation, role: str = "", *, right: bool = False) -> str:
        """The species in a role: as named, or the only one on its side."""
        role, side = role or self.role, equation.right if right else equation.left
        given: str | None = getattr(self, role)
        if given is None and len(side) != 1:
            raise ModelError(
                f"igpe cannot tell which of the species {list(side)} is the {role} in "
                f"{type(self).__name__}; name it: {role}='S'."
            )
        return next(iter(side)) if given is None else given


@dataclass(frozen=True)
class MassAction(RateLaw):
    """forward*(product of concentrations on the left) - backward*(product of concentrations on the
    right).

    forward      rate constant of the forward reaction (left to right)
    backward     rate constant of the reverse reaction
    equilibrium  equilibrium constant forward/backward, if `backward` is not given
    orders       a dict {species: order} for the species on the left whose order differs from the
                 stoichiometric coefficient
    """

    forward: Constant
    backward: Constant | None = None
    equilibrium: Constant | None = None
    orders: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "equilibrium"):
            if name == "forward" or getattr(self, name) is not None:
                require_constant(f"MassAction: `{name}`", getattr(self, name))
        require_mapping("orders", self.orders, "orders={'A': 2}", ModelError)
        if not is_finite(*self.orders.values()):
            raise ModelError(
                f"Reaction orders must be numbers, for example {{'A': 2}}; got {dict(self.orders)}."
            )

    def check(self, equation: Equation) -> None:
        """Raise ModelError if the number of constants is wrong, or if `orders` contains a species
        that is not on the left side.
        """
        count = (self.backward is not None) + (self.equilibrium is not None)
        if count != int(equation.reversible):
            raise ModelError(
                f"The reaction is {'' if equation.reversible else 'ir'}reversible, but its "
                f"MassAction has {counted(count, 'constant')} for the reverse direction. A "
                "reaction with <-> needs one such constant (backward=... or equilibrium=...); a "
                "reaction with -> needs none."
            )
        unknown_names = [s for s in self.orders if s not in equation.left]
        if unknown_names:
            raise ModelError(
                f"`orders` contains {unknown_names}, but the left side has {list(equation.left)}."
            )

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """Return the constants with their dimensions, which depend on the orders."""
        orders = (Fraction(str(n)) for n in self._orders(equation).values())
        forward, backward = 1 - sum(orders), 1 - sum(equation.right.values())
        every: list[tuple[Any, Dimension]] = [
            (self.forward, concentration(Fraction(forward), -1)),
            (self.backward, concentration(Fraction(backward), -1)),
            (self.equilibrium, concentration(Fraction(forward - backward))),
        ]
        return [(c, dimension) for c, dimension in every if c is not None]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        forward = value(self.forward, m, t)
        forwards = forward * _product(c, self._orders(equation))
        if self.backward is not None:
            return forwards - value(self.backward, m, t) * _product(c, equation.right)
        if self.equilibrium is not None:
            return forwards - forward / value(self.equilibrium, m, t) * _product(c, equation.right)
        return forwards

    def _orders(self, equation: Equation) -> dict[str, Fraction | float]:
        return {**equation.left, **self.orders}


@dataclass(frozen=True)
class PowerLaw(RateLaw):
    """constant*product of (c/reference)^order, with orders that may be unknown.

    constant   the rate when all concentrations equal `reference`
    orders     a dict {species: order}; an order is a number or the name of a parameter; products
               and inert species are also allowed
    reference  reference concentration; a value within the measured range makes `constant` and
               `orders` nearly uncorrelated

    Concentrations must stay positive if orders are not integers.

    Source: Froment, Bischoff and De Wilde, Chemical Reactor Analysis and Design, 3rd ed. (2011),
    section 1.2.
    """

    dimensions: ClassVar = {"constant": RATE, "orders": NONE, "reference": CONCENTRATION}
    listed = ("orders",)
    constant: Constant
    orders: Mapping[str, Constant]
    reference: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_finite(self.reference) and self.reference > 0):
            raise ModelError(
                f"PowerLaw: `reference` is {shown(self.reference)}; give a positive concentration."
            )

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        relative = {s: c[s] / float(self.reference) for s in self.orders}
        powers = (power(relative[s], value(n, m, t)) for s, n in self.orders.items())
        return value(self.constant, m, t) * math.prod(powers)


@dataclass(frozen=True)
class OwnLaw(RateLaw):
    """User-defined rate: any Pyomo expression.

    rule        function rule(m, t, c) that returns the rate, in concentration per time; `c["A"]` is
                a concentration, `m.k` a parameter, `m.T[t]` the temperature if the reactor has one
    parameters  names of the parameters that the rule uses
    modifiers   species that the rule uses but that occur in no reaction
    """

    rule: Callable[[Any, float, Concentrations], Any]
    parameters: tuple[str, ...] = ()
    modifiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.rule):
            raise ModelError(
                f"OwnLaw: `rule` is {shown(self.rule)}; expected a function: "
                "OwnLaw(lambda m, t, c: m.k * c['A'] ** 0.5, parameters=('k',))."
            )
        if isinstance(self.parameters, str) or isinstance(self.modifiers, str):
            raise ModelError("OwnLaw needs tuples of names: parameters=('k',), modifiers=('E',).")

    def check(self, equation: Equation) -> None:
        """Accept every equation."""

    def parameters_of(self, equation: Equation) -> tuple[str, ...]:
        """Return the given names; the dimensions of the constants are unknown."""
        return self.parameters

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        return self.rule(m, t, c)


def _product(c: Concentrations, orders: Mapping[str, Fraction | float]) -> Any:
    powers = ((c[s], plain(n)) for s, n in orders.items() if n)
    return math.prod(c if n == 1 else c**n for c, n in powers)


def power(base: Any, exponent: Any) -> Any:
    """base**exponent, without a power where the exponent is the number 1."""
    if not isinstance(exponent, float):
        return base**exponent
    return base if exponent == 1 else base ** plain(exponent)


@dataclass(frozen=True)
class Reaction:
    """One reaction: its stoichiometry and its rate law.

    text    equation, for example "A + 2 B -> C"; "<->" marks a reversible reaction
    rate    rate law; by default mass action with the constant k1 (k1f and k1r if the reaction is
            reversible) for the first reaction in the list, k2 for the second, and so on
    yields  a dict {species: yield} of the species whose stoichiometry is not known; a yield is a
            number or the name of a parameter. The rate of a species on the left is divided by its
            yield: "S -> X" with {"S": "Y"} consumes rate/Y of S, where Y is the biomass produced
            per unit of substrate consumed. The rate of a species on the right is multiplied by its
            yield: "S -> X + P" with {"P": "Y_P"} produces Y_P*rate of P
    raises  ModelError for yields of species that do not react
    """

    text: str
    rate: RateLaw | None = None
    yields: Mapping[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_mapping("yields", self.yields, "yields={'S': 'Y'}", ModelError)
        for species, constant in self.yields.items():
            require_constant(f"The yield of {species} in '{self.text}'", constant, None)
            if species not in self.equation.net:
                raise ModelError(
                    f"'{self.text}' has a yield for '{species}'; only species that react can have "
                    f"yields: {list(self.equation.net)}."
                )
            if is_finite(constant) and not constant > 0:  # type: ignore[operator]
                raise ModelError(f"The yield of '{species}' is {constant}; give a positive number.")

    @cached_property
    def equation(self) -> Equation:
        """The stoichiometry that the text describes."""
        return read_equation(self.text)

    @property
    def law(self) -> RateLaw:
        """The rate law; raises ModelError if it is missing and no reactor has set the default."""
        if self.rate is None:
            raise ModelError(f"The reaction '{self.text}' has no rate law yet.")
        return self.rate

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the reaction's parameters."""
        return tuple(
            dict.fromkeys((
                *self.law.parameters_of(self.equation),
                *names_in((y, NONE) for y in self.yields.values()),
            ))
        )

    @property
    def constants(self) -> list[tuple[Constant, Dimension]]:
        """All constants of the rate law and all yields, with their dimensions."""
        return [*self.law.constants(self.equation), *((y, NONE) for y in self.yields.values())]

    @property
    def fixed(self) -> tuple[Equation, ...]:
        """The equation without the species that have yields, and one equation for each of these.

        The reaction conserves a sum of amounts for all values of the yields if and only if each of
        these equations conserves the sum.
        """
        left, right = (
            {s: n for s, n in side.items() if s not in self.yields}
            for side in (self.equation.left, self.equation.right)
        )
        alone = (Equation({s: Fraction(1)}, {}, False) for s in self.yields)
        return (Equation(left, right, self.equation.reversible), *alone)

    def made(self, m: Any, t: float, species: str) -> Any:
        """Return the production rate of a species divided by the reaction rate."""
        count = plain(self.equation.net[species])
        if species not in self.yields:
            return count
        share = value(self.yields[species], m, t)
        return count / share if count < 0 else count * share

    @property
    def species(self) -> tuple[str, ...]:
        """All species that react or affect the rate."""
        return (*self.equation.species, *self.law.modifiers)


def numbered(reactions: Sequence[Any]) -> tuple[Reaction, ...]:
    """Reactions with a rate law each; raises ModelError if one does not suit its equation."""
    if isinstance(reactions, str) or not isinstance(reactions, Sequence) or not reactions:
        raise ModelError(
            f"The reactions are {shown(reactions)}; expected a list: ['A + B -> C', 'C <-> D']."
        )
    complete = []
    for k, one in enumerate(reactions, start=1):
        reaction = one if isinstance(one, Reaction) else Reaction(one)
        if reaction.rate is None:
            back = reaction.equation.reversible
            law = MassAction(f"k{k}f", backward=f"k{k}r") if back else MassAction(f"k{k}")
            reaction = replace(reaction, rate=law)
        if not isinstance(reaction.rate, RateLaw):
            raise ModelError(
                f"The rate of '{reaction.text}' is {shown(reaction.rate)}; expected a rate law: "
                "MassAction('k1'), MichaelisMenten('vmax', 'km'), Hill(...) or OwnLaw(...)."
            )
        try:
            reaction.rate.check(reaction.equation)
        except ModelError as error:
            raise ModelError(f"Reaction {k}, '{reaction.text}': {error}") from None
        complete.append(reaction)
    return tuple(complete)


LARGEST_TABLE = 500  # rows of Farkas' table: it may grow exponentially

Row = Sequence[Fraction]


@dataclass(frozen=True)
class Law:
    """Conserved weighted sum of species; `coefficients` is a dict {species: integer}."""

    coefficients: Mapping[str, int]

    def __str__(self) -> str:
        terms = (
            f"{'-' if n < 0 else '+'} {'' if abs(n) == 1 else f'{abs(n)} '}{s}"
            for s, n in self.coefficients.items()
        )
        return " ".join(terms).removeprefix("+ ")


def conservation_laws(species: Sequence[str], equations: Iterable[Equation]) -> tuple[Law, ...]:
    """All independent conservation laws, simple ones first."""
    columns = [e.net for e in equations]
    matrix = [[c.get(s, Fraction(0)) for c in columns] for s in species]
    simple = sorted(_without_signs(matrix), key=lambda r: (sum(map(bool, r)), sum(r)))
    rows = [*simple, *_null_space(matrix)]
    laws = (smallest_integers(rows[i]) for i in _independent(rows))
    return tuple(Law({s: n for s, n in zip(species, law, strict=True) if n}) for law in laws)


def laws_for(species: Sequence[str], laws: Sequence[Law]) -> tuple[Law, ...]:
    """As many laws as species, which determine the species; raises ModelError without them."""
    parts = [[Fraction(law.coefficients.get(s, 0)) for s in species] for law in laws]
    chosen = _independent(parts)
    if len(chosen) < len(set(species)):
        raise ModelError(
            f"The species {list(species)} cannot be computed from conservation laws alone; the "
            f"laws are: {'; '.join(map(str, laws)) or 'none'}. Name only species for which these "
            "laws can be solved, each from a different law."
        )
    return tuple(laws[i] for i in chosen)


def _independent(rows: Sequence[Row]) -> list[int]:
    """Places of the first rows that span all of them: the pivot columns of the transpose."""
    return _reduced(list(zip(*rows, strict=True)))[1]


def _without_signs(matrix: Sequence[Row]) -> list[Row]:
    """All minimal laws without negative coefficients; none where there would be too many."""
    unit = [[Fraction(int(i == j)) for j in range(len(matrix))] for i in range(len(matrix))]
    table: list[tuple[Row, Row]] = list(zip(matrix, unit, strict=True))  # what remains, and the law
    for j in range(len(matrix[0])):
        rows = [r for r in table if not r[0][j]]
        for plus in (r for r in table if r[0][j] > 0):
            for minus in (r for r in table if r[0][j] < 0):
                a, b = -minus[0][j], plus[0][j]
                rest, law = (
                    [a * p + b * m for p, m in zip(plus[k], minus[k], strict=True)] for k in (0, 1)
                )
                rows.append((rest, law))
        supports: dict[frozenset[int], tuple[Row, Row]] = {}
        for row in rows:
            supports.setdefault(frozenset(i for i, n in enumerate(row[1]) if n), row)
        table = [row for own, row in supports.items() if not any(other < own for other in supports)]
        if len(table) > LARGEST_TABLE:
            return []
    return [law for _, law in table]


def _null_space(matrix: Sequence[Row]) -> list[Row]:
    """Vectors v with v'matrix = 0."""
    reduced, pivots = _reduced(list(zip(*matrix, strict=True)))
    vectors: list[Row] = []
    for free in (j for j in range(len(matrix)) if j not in pivots):
        entries = {pivot: -row[free] for row, pivot in zip(reduced, pivots, strict=False)}
        entries[free] = Fraction(1)
        vectors.append([entries.get(j, Fraction(0)) for j in range(len(matrix))])
    return vectors


def _reduced(rows: Sequence[Row]) -> tuple[list[list[Fraction]], list[int]]:
    """Reduced row echelon form, and its pivot columns."""
    table = [list(r) for r in rows]
    pivots: list[int] = []
    for column in range(len(table[0]) if table else 0):
        top = len(pivots)
        at = next((i for i in range(top, len(table)) if table[i][column]), None)
        if at is None:
            continue
        table[top], table[at] = table[at], table[top]
        table[top] = [n / table[top][column] for n in table[top]]
        for i, row in enumerate(table):
            if i != top and row[column]:
                table[i] = [a - row[column] * b for a, b in zip(row, table[top], strict=True)]
        pivots.append(column)
    return table, pivots
