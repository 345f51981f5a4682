"""Conservation laws of a set of reactions: what no reaction changes.

The laws are the left null space of the stoichiometric matrix. Those without negative coefficients
(atoms, groups, enzymes free and bound) are found by Farkas' algorithm; what they do not span is
completed by Gaussian elimination. All in exact arithmetic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import pyomo.environ as pyo
from pyomo import dae

from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import Equation

MOST = 500  # rows of Farkas' table: it may grow exponentially

Row = tuple[Fraction, ...]


@dataclass(frozen=True)
class Law:
    """A sum of species that no reaction changes.

    coefficients  species -> whole number
    """

    coefficients: Mapping[str, int]

    def __str__(self) -> str:
        terms = [f"{'' if abs(n) == 1 else f'{abs(n)} '}{s}" for s, n in self.coefficients.items()]
        signs = ["-" if n < 0 else "+" for n in self.coefficients.values()]
        text = " ".join(f"{sign} {term}" for sign, term in zip(signs, terms, strict=True))
        return text.removeprefix("+ ")


def conservation_laws(species: Sequence[str], equations: Iterable[Equation]) -> tuple[Law, ...]:
    """As many independent laws as there are, simple ones first."""
    columns = [e.net for e in equations]
    matrix = [tuple(c.get(s, Fraction(0)) for c in columns) for s in species]
    simple = sorted(_without_signs(matrix), key=lambda r: (sum(map(bool, r)), sum(r)))
    chosen: list[Row] = []
    for row in [*simple, *_null_space(matrix)]:
        if rank([*chosen, row]) > len(chosen):
            chosen.append(row)
    return tuple(Law(_whole(species, row)) for row in chosen)


def laws_for(wanted: Sequence[str], laws: Sequence[Law]) -> tuple[Law, ...]:
    """As many laws as species, that determine these species from all others.

    raises ModelError if there are none
    """
    chosen: list[Law] = []
    for law in laws:
        rows = [_part(one, wanted) for one in (*chosen, law)]
        if rank(rows) > len(chosen):
            chosen.append(law)
    if len(chosen) < len(set(wanted)):
        raise ModelError(
            f"The species {list(wanted)} cannot be computed from conservation laws alone; the laws "
            f"are: {'; '.join(map(str, laws)) or 'none'}. Name at most one species for each law, "
            "and only species that occur in it."
        )
    return tuple(chosen)


def rank(rows: Sequence[Row]) -> int:
    """The rank of exact rows."""
    return len(_reduced(rows)[1])


def _part(law: Law, wanted: Sequence[str]) -> Row:
    return tuple(Fraction(law.coefficients.get(s, 0)) for s in wanted)


def _without_signs(matrix: Sequence[Row]) -> list[Row]:
    """All minimal laws without negative coefficients; none where there would be too many."""
    size = len(matrix)
    unit = [tuple(Fraction(int(i == j)) for j in range(size)) for i in range(size)]
    table = list(zip(matrix, unit, strict=True))
    for reaction in range(len(matrix[0])):
        kept = [r for r in table if not r[0][reaction]]
        plus = [r for r in table if r[0][reaction] > 0]
        minus = [r for r in table if r[0][reaction] < 0]
        kept += [_eliminated(p, m, reaction) for p in plus for m in minus]
        table = _minimal(kept)
        if len(table) > MOST:
            return []
    return [law for _, law in table]


def _eliminated(plus: tuple[Row, Row], minus: tuple[Row, Row], at: int) -> tuple[Row, Row]:
    a, b = -minus[0][at], plus[0][at]
    rest = tuple(a * p + b * m for p, m in zip(plus[0], minus[0], strict=True))
    law = tuple(a * p + b * m for p, m in zip(plus[1], minus[1], strict=True))
    return rest, law


def _minimal(table: list[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Without rows whose species include all of another row's."""
    found: dict[frozenset[int], tuple[Row, Row]] = {}
    for row in table:
        found.setdefault(frozenset(i for i, n in enumerate(row[1]) if n), row)
    return [row for support, row in found.items() if not any(other < support for other in found)]


def _null_space(matrix: Sequence[Row]) -> list[Row]:
    """Vectors v with v'matrix = 0."""
    columns = [tuple(row[j] for row in matrix) for j in range(len(matrix[0]))]
    reduced, pivots = _reduced(columns)
    found = []
    for free in (j for j in range(len(matrix)) if j not in pivots):
        vector = [Fraction(int(j == free)) for j in range(len(matrix))]
        for row, pivot in zip(reduced, pivots, strict=False):
            vector[pivot] = -row[free]
        found.append(tuple(vector))
    return found


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


def _whole(species: Sequence[str], row: Row) -> dict[str, int]:
    scale = lcm(*(n.denominator for n in row))
    whole = [int(n * scale) for n in row]
    shared = gcd(*whole) * (-1 if next(n for n in whole if n) < 0 else 1)
    return {s: n // shared for s, n in zip(species, whole, strict=True) if n}


Rule = Callable[[float], Any]
"""Time -> Pyomo expression."""


def add_balance(m: Any, name: str, slope: Rule) -> None:
    """The slope `d<name>` of a variable over time, and its equation `balance_<name>`."""
    m.add_component(f"d{name}", dae.DerivativeVar(m.component(name)))
    derivative = m.component(f"d{name}")
    m.add_component(
        f"balance_{name}", pyo.Constraint(m.t, rule=lambda _, t: derivative[t] == slope(t))
    )


def add_laws(
    m: Any, laws: Sequence[Law], names: Mapping[str, str], computed: Sequence[str], fed: Any
) -> None:
    """Equations `conservation_1`, ...: a law's sum is what it was, and what was fed.

    names     species -> its quantity in the model
    computed  species without a start of their own: it is the parameter `<quantity>0`
    fed       species -> Pyomo expression of what is fed of it per time, constant
    """
    first = m.t.first()
    for species in computed:
        unit = m.component(names[species])[first].get_units()
        m.add_component(f"{names[species]}0", pyo.Param(mutable=True, default=0.0, units=unit))

    def at_start(species: str) -> Any:
        name = names[species]
        return m.component(f"{name}0") if species in computed else m.component(name)[first]

    for place, law in enumerate(laws, start=1):
        parts = law.coefficients.items()

        def rule(_: Any, t: float, parts: Any = parts) -> Any:
            now = sum(n * m.component(names[s])[t] for s, n in parts)
            then = sum(n * at_start(s) for s, n in parts)
            added = sum(n * fed[s] for s, n in parts if s in fed)
            return now == then + added * (t - first)

        m.add_component(f"conservation_{place}", pyo.Constraint(m.t, rule=rule))
