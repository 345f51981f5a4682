"""Conservation laws of a set of reactions: what no reaction changes.

The laws are the left null space of the stoichiometric matrix. Those without negative coefficients
(atoms, groups, enzymes free and bound) are found by Farkas' algorithm; Gaussian elimination
completes what they do not span. All in exact arithmetic.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import Equation

MOST = 500  # rows of Farkas' table: it may grow exponentially

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
    """As many independent laws as there are, simple ones first."""
    columns = [e.net for e in equations]
    matrix = [[c.get(s, Fraction(0)) for c in columns] for s in species]
    simple = sorted(_without_signs(matrix), key=lambda r: (sum(map(bool, r)), sum(r)))
    rows = [*simple, *_null_space(matrix)]
    return tuple(Law(_smallest_integers(species, rows[i])) for i in _independent(rows))


def laws_for(wanted: Sequence[str], laws: Sequence[Law]) -> tuple[Law, ...]:
    """As many laws as species, from which these follow; raises ModelError without them."""
    parts = [[Fraction(law.coefficients.get(s, 0)) for s in wanted] for law in laws]
    chosen = _independent(parts)
    if len(chosen) < len(set(wanted)):
        raise ModelError(
            f"The species {list(wanted)} cannot be computed from conservation laws alone; the laws "
            f"are: {'; '.join(map(str, laws)) or 'none'}. Name only species for which these laws "
            "can be solved, each from a different law."
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
        if len(table) > MOST:
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


def _smallest_integers(species: Sequence[str], row: Row) -> dict[str, int]:
    scale = lcm(*(n.denominator for n in row))
    whole = [int(n * scale) for n in row]
    shared = gcd(*whole) * (-1 if next(n for n in whole if n) < 0 else 1)
    return {s: n // shared for s, n in zip(species, whole, strict=True) if n}
