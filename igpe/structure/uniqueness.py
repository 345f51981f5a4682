"""Global identifiability where slopes decide it.

A slope that equations predict from measured quantities, time and inputs, and that is a quotient of
polynomials P/Q in the unknowns, obeys along the true trajectory

    sum of c[m] (P[m](t) - slope(t) Q[m](t)) = 0 over all monomials m of P and Q,

where c[m] is the monomial's value. All values of the unknowns with the same trajectory obey it with
the same functions in parentheses. Where all solutions of these agree on the quotient of two
monomials, it is determined, globally; and so is an unknown that is a product of whole powers of
such quotients. A start value is if its state is measured. Slopes of all states and experiments are
taken together: they share monomials.

How many solutions there are is a matter of rank again, that of Taylor coefficients at random
points. The true one is always there, so a single one modulo a prime is single at nearly all points:
that is a proof. Where there are others that agree on some quotients, all points must say so, as
for local identifiability. What is no quotient of polynomials is not looked at.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.operations import Graph, UnknownOperation, apply_to_sx
from igpe.equations.symbols import stack
from igpe.structure.posed import SeriesExpansion
from igpe.structure.series.field import (
    Field,
    Residues,
    Singular,
    local_echelon,
    null_space,
    random_primes,
)
from igpe.structure.series.points import NoPoint, random_point
from igpe.structure.series.power_series import Constants, PowerSeries


class Lattice:
    """All whole combinations of some vectors of whole numbers."""

    def __init__(self, vectors: Iterable[Sequence[int]]) -> None:
        self.rows: dict[int, list[int]] = {}  # where it begins -> a row
        for vector in vectors:
            self._insert(list(vector))

    def __contains__(self, vector: Sequence[int]) -> bool:
        rest = list(vector)
        for lead, row in sorted(self.rows.items()):
            rest = _minus(rest, rest[lead] // row[lead], row)
        return not any(rest)

    def _insert(self, vector: list[int]) -> None:
        """Euclid's algorithm with every row that begins where the vector does."""
        while any(vector):
            lead = next(j for j, v in enumerate(vector) if v)
            row = self.rows.get(lead, [0] * len(vector))
            while vector[lead]:
                row, vector = vector, _minus(row, row[lead] // vector[lead], vector)
            self.rows[lead] = row


def _minus(vector: Sequence[int], factor: int, other: Sequence[int]) -> list[int]:
    return [a - factor * b for a, b in zip(vector, other, strict=True)]


Exponents = tuple[int, ...]
Polynomial = Mapping[Exponents, Any]
"""Exponents of the unknowns -> coefficient, SX, which holds the data."""

MOST_MONOMIALS = 60  # of numerator or denominator: what is longer is not looked at


class NoQuotient(Exception):
    """The expression is no quotient of short polynomials in the unknowns."""


class Quotient(NamedTuple):
    """above / below."""

    above: Polynomial
    below: Polynomial

    def __neg__(self) -> "Quotient":
        return Quotient({e: -c for e, c in self.above.items()}, self.below)

    def __invert__(self) -> "Quotient":
        return Quotient(self.below, self.above)

    def plus(self, other: "Quotient") -> "Quotient":
        """self + other."""
        if _same(self.below, other.below):
            return Quotient(_plus(self.above, other.above), self.below)
        above = _plus(_times(self.above, other.below), _times(other.above, self.below))
        return Quotient(above, _times(self.below, other.below))

    def times(self, other: "Quotient") -> "Quotient":
        """self other."""
        if _same(self.above, other.below):
            return Quotient(other.above, self.below)
        if _same(other.above, self.below):
            return Quotient(self.above, other.below)
        return Quotient(_times(self.above, other.above), _times(self.below, other.below))

    @property
    def coefficient(self) -> Any | None:
        """Its value, if it contains no unknown; else None."""
        if any(any(e) for part in self for e in part):
            return None
        (above,), (below,) = self.above.values() or (ca.SX(0),), self.below.values()
        return above / below


def quotient(expression: Any, q: Any, rest: Any) -> Quotient:
    """A scalar SX expression of the unknowns q and other symbols, by its own operations.

    raises NoQuotient
    """
    none = (0,) * q.numel()

    def known(coefficient: Any) -> Quotient:
        return Quotient({none: coefficient}, {none: ca.SX(1)})

    def applied(name: str, operands: list[Quotient]) -> Quotient:
        values = [a.coefficient for a in operands]
        if all(v is not None for v in values):
            return known(apply_to_sx(name, values))
        if name not in _RULES:
            raise NoQuotient
        return _RULES[name](*operands)

    (result,) = Graph.of(expression, [q, rest]).evaluate(
        lambda column, i: (
            Quotient({(*none[:i], 1, *none[i + 1 :]): ca.SX(1)}, {none: ca.SX(1)})
            if column == 0
            else known(rest[i])
        ),
        lambda value: known(ca.SX(value)),
        applied,
    )
    return result


def _same(a: Polynomial, b: Polynomial) -> bool:
    return a is b or (a.keys() == b.keys() and all(ca.is_equal(a[e], b[e], 2) for e in a))


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    result = dict(a)
    for e, c in b.items():
        result[e] = result[e] + c if e in result else c
    return _short({e: c for e, c in result.items() if not c.is_zero()})


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    result: dict[Exponents, Any] = {}
    for e, c in a.items():
        for f, d in b.items():
            both = tuple(i + j for i, j in zip(e, f, strict=True))
            result[both] = result[both] + c * d if both in result else c * d
    return _short(result)


def _short(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MOST_MONOMIALS:
        raise NoQuotient
    return polynomial


_RULES: Mapping[str, Callable[..., Quotient]] = {
    "ASSIGN": lambda a: a,
    "ADD": Quotient.plus,
    "SUB": lambda a, b: a.plus(-b),
    "NEG": lambda a: -a,
    "TWICE": lambda a: a.plus(a),
    "MUL": Quotient.times,
    "SQ": lambda a: a.times(a),
    "DIV": lambda a, b: a.times(~b),
    "INV": lambda a: ~a,
}
"""By CasADi's name of the operation; small whole powers are products there."""

MARGIN = 2  # orders beyond the number of monomials and states
MOST_NUMBERS = 1e5  # of nodes and orders; more takes long

Relation = Mapping[Exponents, Any]
"""One slope: the functions of time that the monomials of all unknowns are multiplied with."""


def unique(experiments: Sequence[SeriesExpansion], n: int, *, seed: int) -> frozenset[int]:
    """Which of n unknowns are globally identifiable for certain, by the experiments' slopes."""
    unit = np.eye(n, dtype=int).tolist()
    starts = [
        unit[e.dynamics.columns[e.posed.q_names.index(q)]]
        for e in experiments
        for q, state in e.posed.single_starts.items()
        if state in e.posed.data_names
    ]
    relations = [list(_relations(e, n)) for e in experiments]
    monomials = sorted({m for own in relations for one in own for m in one})
    quotients: list[list[list[int]]] = [[]]
    if monomials:
        with suppress(Singular, NoPoint, UnknownOperation):
            quotients = _determined(experiments, relations, monomials, n, seed=seed)
    lattices = [Lattice([*starts, *one]) for one in quotients]
    return frozenset(i for i in range(n) if all(unit[i] in lattice for lattice in lattices))


def _relations(experiment: SeriesExpansion, n: int) -> Iterable[Relation]:
    """Those of all slopes that are quotients, in exponents of all n unknowns."""
    posed, columns = experiment.posed, experiment.dynamics.columns
    rest = stack([posed.data, posed.time, experiment.dynamics.u])
    for slope in experiment.slopes.values():
        with suppress(NoQuotient):
            above, below = quotient(slope, posed.q, rest)
            relation = {}
            for e in {**above, **below}:
                every = [0] * n
                for column, exponent in zip(columns, e, strict=True):
                    every[column] = exponent
                relation[tuple(every)] = above.get(e, 0) - slope * below.get(e, 0)
            yield relation


def _determined(
    experiments: Sequence[SeriesExpansion],
    relations: Sequence[Sequence[Relation]],
    monomials: Sequence[Exponents],
    n: int,
    *,
    seed: int,
) -> list[list[list[int]]]:
    """At each point, exponents of quotients of monomials that are the same in all solutions.

    raises Singular where solutions depend on the length of the experiment, and too many numbers
    """
    random = np.random.default_rng(seed)
    field = Field(random_primes(random), 1, random)
    constants = Constants(field)
    dynamics = []
    for e, own in zip(experiments, relations, strict=True):
        # On the pieces in which all data are measured.
        d, data = e.following(stack(f for one in own for f in one.values())), e.posed.data_names
        last = min((max(o.since) for o in e.outputs if o.name in data), default=0)
        pieces = tuple(p for p in d.pieces if p.start < max(last, 0))
        dynamics.append(replace(d, pieces=pieces or d.pieces[:1]))
    point = random_point(dynamics, n, field, constants)
    orders = len(monomials) + max(d.x.numel() for d in dynamics) + MARGIN
    rows = []
    for d, own, y in zip(dynamics, relations, point.y, strict=True):
        if len(d.pieces) > 1 and len(d.pieces) * orders**2 * d.f.numel() > MOST_NUMBERS:
            raise Singular
        sized = Field(field.primes, 1 + len(d.columns), random)
        series = PowerSeries(d, sized, constants, point.q[:, list(d.columns)], y, orders=orders)
        rows.append(_rows(series, own, monomials, orders))
    result = []
    for matrix, prime in zip(_together(rows), field.primes, strict=True):
        local = local_echelon(matrix, prime, 1)
        if not local.steady:
            raise Singular
        groups: dict[tuple[int, ...], list[Exponents]] = {}  # by their direction in all solutions
        columns = null_space(local.form, prime).T.tolist()
        for monomial, column in zip(monomials, columns, strict=True):
            if any(column):
                over = pow(next(v for v in column if v), -1, prime)
                groups.setdefault(tuple(v * over % prime for v in column), []).append(monomial)
        result.append([
            _minus(other, 1, first) for first, *others in groups.values() for other in others
        ])
    return result


def _together(rows: Sequence[Residues]) -> Residues:
    """(points, rows, n_monomials, orders) of all experiments; one order if there are no others."""
    longest = max(one.shape[-1] for one in rows)
    wide = [np.pad(one, [*[(0, 0)] * 3, (0, longest - one.shape[-1])]) for one in rows]
    every = np.concatenate(wide, axis=1)
    return every if every[..., 1:].any() else every[..., :1]


def _rows(
    series: PowerSeries,
    relations: Sequence[Relation],
    monomials: Sequence[Exponents],
    orders: int,
) -> Residues:
    """(points, rows, n_monomials, orders or 1) the functions of all relations."""
    grid = series.grid
    columns = [monomials.index(m) for one in relations for m in one]
    which = np.repeat(np.arange(len(relations)), [len(one) for one in relations])
    shape = (grid.points, grid.size, len(relations), len(monomials), orders)
    result = np.zeros(shape, dtype=np.uint64)
    for order in range(orders):
        values = series.advance()
        if columns:
            table = np.stack([v[:, 0] for v in values], axis=1)
            result[:, :, which, columns, order] = table.reshape(grid.points, grid.size, -1)
    if grid.is_single:  # each order is a row, which does not depend on the length
        result = result[:, 0].transpose(0, 3, 1, 2)[..., None]
    return result.reshape(grid.points, -1, len(monomials), result.shape[-1])
