"""Global identifiability where slopes decide it.

A slope that equations predict from measured quantities, time and inputs, and that is a quotient of
polynomials P/Q in the unknowns, obeys along the true course

    sum of c[m] (P[m](t) - slope(t) Q[m](t)) = 0 over all monomials m of P and Q,

where c[m] is the monomial's value. All values of the unknowns with the same course obey it with the
same functions in parentheses. Where all solutions of these agree on the quotient of two monomials,
it is determined, globally; and so is an unknown that is a product of whole powers of such
quotients. A start value is if its state is measured. Slopes of all states and experiments are taken
together: they share monomials.

How many solutions there are is a matter of rank again, that of Taylor coefficients at random
points. The true one is always there, so a single one modulo a prime is single at nearly all points:
that is a proof. Where there are others that agree on some quotients, all points must say so, as
for local identifiability. What is no quotient of polynomials is not looked at.

Which powers follow from others by multiplication and division alone.

Expressions as quotients of polynomials in the unknowns; their coefficients hold the data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.operations import Graph, UnknownOperation, apply_to_sx
from igpe.equations.symbols import stack
from igpe.structure.identifiability.posed import SeriesExpansion, single_starts
from igpe.structure.series.field import (
    Echelon,
    Field,
    Residues,
    Singular,
    local_echelon,
    null_space,
    random_primes,
)
from igpe.structure.series.graph import Dynamics
from igpe.structure.series.points import NoPoint, random_point
from igpe.structure.series.power_series import Constants, PowerSeries, Signals


class Lattice:
    """All whole combinations of some vectors of whole numbers."""

    def __init__(self, vectors: Iterable[Sequence[int]]) -> None:
        self.rows: list[list[int]] = []  # each begins later than the one before, with a positive
        for vector in vectors:
            self._insert(list(vector))

    def __contains__(self, vector: Sequence[int]) -> bool:
        rest = list(vector)
        for row in self.rows:
            lead = _lead(row)
            if rest[lead] % row[lead]:
                return False
            rest = _minus(rest, rest[lead] // row[lead], row)
        return not any(rest)

    def _insert(self, vector: list[int]) -> None:
        """Euclid's algorithm with every row that begins where the vector does."""
        while any(vector):
            lead = _lead(vector)
            place = next((i for i, row in enumerate(self.rows) if _lead(row) >= lead), None)
            if place is None or _lead(self.rows[place]) > lead:
                whole = vector if vector[lead] > 0 else [-v for v in vector]
                self.rows.insert(len(self.rows) if place is None else place, whole)
                return
            row = self.rows[place]
            while vector[lead]:
                row, vector = vector, _minus(row, row[lead] // vector[lead], vector)
            self.rows[place] = row if row[lead] > 0 else [-v for v in row]


def _lead(vector: Sequence[int]) -> int:
    return next(j for j, v in enumerate(vector) if v)


def _minus(vector: Sequence[int], factor: int, other: Sequence[int]) -> list[int]:
    return [a - factor * b for a, b in zip(vector, other, strict=True)]


Exponents = tuple[int, ...]
Polynomial = Mapping[Exponents, Any]
"""Exponents of the unknowns -> coefficient, SX."""

MOST_MONOMIALS = 60  # of numerator or denominator: what is longer is not looked at
MOST_FACTORS = 6  # of a whole power


class Quotient(NamedTuple):
    """above / below."""

    above: Polynomial
    below: Polynomial


class NoQuotient(Exception):
    """The expression is no quotient of short polynomials in the unknowns."""


def quotient(expression: Any, q: Any, rest: Any) -> Quotient:
    """A scalar SX expression of the unknowns q and other symbols, by its own operations.

    raises NoQuotient
    """
    n = q.numel()
    (result,) = Graph.of(expression, [q, rest]).evaluate(
        lambda a, i: _unknown(i, n) if a == 0 else _known(rest[i], n),
        lambda value: _known(ca.SX(value), n),
        _applied,
    )
    return result


def _unknown(i: int, n: int) -> Quotient:
    return Quotient({tuple(int(j == i) for j in range(n)): ca.SX(1)}, _one(n))


def _known(coefficient: Any, n: int) -> Quotient:
    return Quotient({(0,) * n: coefficient}, _one(n))


def _one(n: int) -> Polynomial:
    return {(0,) * n: ca.SX(1)}


def _applied(name: str, operands: list[Quotient]) -> Quotient:
    known = [_coefficient(a) for a in operands]
    n = len(next(iter(operands[0].below)))
    if all(k is not None for k in known):
        return _known(apply_to_sx(name, known), n)
    if name in ("CONSTPOW", "POW"):
        return _power(operands[0], known[1], n)
    if name not in _RULES:
        raise NoQuotient
    return _RULES[name](*operands)


def _coefficient(a: Quotient) -> Any | None:
    """What it is, if it contains no unknown; else None."""
    if any(any(e) for part in a for e in part):
        return None
    (above,), (below,) = a.above.values() or (ca.SX(0),), a.below.values()
    return above / below


def _power(base: Quotient, exponent: Any | None, n: int) -> Quotient:
    if exponent is None or not exponent.is_constant():
        raise NoQuotient
    c = float(exponent)
    if c != round(c) or abs(c) > MOST_FACTORS:
        raise NoQuotient
    result = Quotient(_one(n), _one(n))
    for _ in range(int(abs(c))):
        result = _product(result, base)
    return result if c >= 0 else Quotient(result.below, result.above)


def _sum(a: Quotient, b: Quotient, sign: float = 1.0) -> Quotient:
    opposite = {e: sign * c for e, c in b.above.items()}
    if _same(a.below, b.below):
        return Quotient(_plus(a.above, opposite), a.below)
    above = _plus(_times(a.above, b.below), _times(opposite, a.below))
    return Quotient(above, _times(a.below, b.below))


def _product(a: Quotient, b: Quotient) -> Quotient:
    if _same(a.above, b.below):
        return Quotient(b.above, a.below)
    if _same(b.above, a.below):
        return Quotient(a.above, b.below)
    return Quotient(_times(a.above, b.above), _times(a.below, b.below))


def _over(a: Quotient, b: Quotient) -> Quotient:
    return _product(a, Quotient(b.below, b.above))


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
    "ADD": _sum,
    "SUB": lambda a, b: _sum(a, b, -1.0),
    "NEG": lambda a: Quotient({e: -c for e, c in a.above.items()}, a.below),
    "TWICE": lambda a: _sum(a, a),
    "MUL": _product,
    "SQ": lambda a: _product(a, a),
    "DIV": _over,
    "INV": lambda a: Quotient(a.below, a.above),
}


MARGIN = 2  # orders beyond the number of monomials and states
MOST_NUMBERS = 1e5  # of nodes and orders; more takes long


class Relation(NamedTuple):
    """One slope: the functions of time that the monomials of all unknowns are multiplied with."""

    experiment: int
    functions: Mapping[Exponents, Any]


def unique(experiments: Sequence[SeriesExpansion], n: int, *, seed: int) -> frozenset[int]:
    """Which of n unknowns are globally identifiable for certain, by the experiments' slopes."""
    unit = np.eye(n, dtype=int).tolist()
    starts = [unit[i] for e in experiments for i in _measured_starts(e)]
    relations = [
        relation
        for k, e in enumerate(experiments)
        for slope in e.slopes.values()
        if (relation := _relation(k, e, slope, n)) is not None
    ]
    quotients: list[list[list[int]]] = [[]]
    with suppress(Singular, NoPoint, UnknownOperation):
        quotients = _quotients(experiments, relations, n, seed)
    lattices = [Lattice([*starts, *one]) for one in quotients]
    return frozenset(i for i in range(n) if all(unit[i] in lattice for lattice in lattices))


def _measured_starts(experiment: SeriesExpansion) -> list[int]:
    """Unknowns that are the start value of a measured state."""
    posed = experiment.posed
    place = dict(zip(posed.q_names, experiment.dynamics.columns, strict=True))
    return [place[q] for q, s in single_starts(posed).items() if s in posed.data_names]


def _relation(k: int, experiment: SeriesExpansion, slope: Any, n: int) -> Relation | None:
    posed = experiment.posed
    try:
        rest = stack([posed.data, posed.time, experiment.dynamics.u])
        above, below = quotient(slope, posed.q, rest)
    except NoQuotient:
        return None
    functions = {
        _of_all(e, experiment, n): above.get(e, 0) - slope * below.get(e, 0)
        for e in {**above, **below}
    }
    return Relation(k, functions)


def _of_all(exponents: Exponents, experiment: SeriesExpansion, n: int) -> Exponents:
    """Exponents of the experiment's unknowns as exponents of all."""
    result = [0] * n
    for column, e in zip(experiment.dynamics.columns, exponents, strict=True):
        result[column] = e
    return tuple(result)


def _quotients(
    experiments: Sequence[SeriesExpansion], relations: Sequence[Relation], n: int, seed: int
) -> list[list[list[int]]]:
    """At each point, exponents of quotients of monomials that are determined."""
    monomials = sorted({m for relation in relations for m in relation.functions})
    if not monomials:
        return [[]]
    forms = _taylor(experiments, relations, monomials, n, seed)
    return [_determined(form, prime, monomials) for form, prime in forms]


def _determined(form: Echelon, prime: int, monomials: Sequence[Exponents]) -> list[list[int]]:
    """Quotients of monomials that are the same in all solutions: columns of one direction."""
    groups: dict[tuple[int, ...], list[Exponents]] = {}
    basis = null_space(form, prime)
    for monomial, column in zip(monomials, basis.T.tolist(), strict=True):
        lead = next((v for v in column if v), None)
        if lead is not None:
            over = pow(lead, -1, prime)
            groups.setdefault(tuple(v * over % prime for v in column), []).append(monomial)
    return [
        [a - b for a, b in zip(other, first, strict=True)]
        for first, *others in groups.values()
        for other in others
    ]


def _taylor(
    experiments: Sequence[SeriesExpansion],
    relations: Sequence[Relation],
    monomials: Sequence[Exponents],
    n: int,
    seed: int,
) -> list[tuple[Echelon, int]]:
    """Of each point: what the Taylor coefficients of all relations say, and its prime.

    raises Singular where solutions depend on the length of the experiment, and too many numbers
    """
    random = np.random.default_rng(seed)
    field = Field(random_primes(random), 1, random)
    shared = Constants(field), Signals(field)
    own = [[r for r in relations if r.experiment == k] for k in range(len(experiments))]
    dynamics = [
        _while_measured(e, e.following(stack(f for r in some for f in r.functions.values())))
        for e, some in zip(experiments, own, strict=True)
    ]
    point = random_point(dynamics, n, field, shared)
    place = {m: i for i, m in enumerate(monomials)}
    rows = []
    orders = len(monomials) + max(d.x.numel() for d in dynamics) + MARGIN
    for d, some, y in zip(dynamics, own, point.y, strict=True):
        if len(d.pieces) > 1 and len(d.pieces) * orders**2 * d.f.numel() > MOST_NUMBERS:
            raise Singular
        sized = Field(field.primes, 1 + len(d.columns), random)
        course = PowerSeries(d, sized, shared, point.q[:, list(d.columns)], y, orders=orders)
        rows.append(_rows(course, some, place, orders))
    every = np.concatenate(rows, axis=1)
    every = every if every[..., 1:].any() else every[..., :1]
    result = []
    for matrix, prime in zip(every, field.primes, strict=True):
        local = local_echelon(matrix, prime, 1)
        if not local.steady:
            raise Singular
        result.append((local.form, prime))
    return result


def _while_measured(experiment: SeriesExpansion, dynamics: Dynamics) -> Dynamics:
    """The dynamics on the pieces in which all data are measured."""
    data = experiment.posed.data_names
    last = min((max(o.since) for o in experiment.outputs if o.name in data), default=Fraction(0))
    pieces = tuple(p for p in dynamics.pieces if p.start < max(last, Fraction(0)))
    return replace(dynamics, pieces=pieces or dynamics.pieces[:1])


def _rows(
    course: PowerSeries, relations: Sequence[Relation], place: Mapping[Exponents, int], orders: int
) -> Residues:
    """(points, rows, n_monomials, orders) the functions of all relations."""
    grid = course.grid
    columns = [place[m] for r in relations for m in r.functions]
    which = np.repeat(np.arange(len(relations)), [len(r.functions) for r in relations])
    shape = (grid.points, grid.size, len(relations), len(place), orders)
    series = np.zeros(shape, dtype=np.uint64)
    for order in range(orders):
        values = course.advance()
        if columns:
            table = np.stack([v[:, 0] for v in values], axis=1)
            series[:, :, which, columns, order] = table.reshape(grid.points, grid.size, -1)
    if not grid.is_single:
        return series.reshape(grid.points, -1, len(place), orders)
    alone = np.zeros((grid.points, orders, *shape[2:]), dtype=np.uint64)
    alone[..., 0] = series[:, 0].transpose(0, 3, 1, 2)
    return alone.reshape(grid.points, -1, len(place), orders)
