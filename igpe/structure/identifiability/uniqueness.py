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
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from igpe.equations.symbols import stack
from igpe.structure.identifiability.expansion import Expansion
from igpe.structure.identifiability.lattice import Lattice
from igpe.structure.identifiability.posed import single_starts
from igpe.structure.monomials import Exponents, NoQuotient, quotient
from igpe.structure.series.constants import Constants
from igpe.structure.series.course import Course, Signals
from igpe.structure.series.dynamics import Dynamics
from igpe.structure.series.field import Field, Residues, Singular, random_primes
from igpe.structure.series.linear_algebra import Echelon, null_space
from igpe.structure.series.local_algebra import local_echelon
from igpe.structure.series.point import NoPoint, random_point
from igpe.structure.series.tape import UnknownOperation

MARGIN = 2  # orders beyond the number of monomials and states
MOST_NUMBERS = 1e5  # of nodes and orders; more takes long


class Relation(NamedTuple):
    """One slope: the functions of time that the monomials of all unknowns are multiplied with."""

    experiment: int
    functions: Mapping[Exponents, Any]


def unique(experiments: Sequence[Expansion], n: int, *, seed: int) -> frozenset[int]:
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


def _measured_starts(experiment: Expansion) -> list[int]:
    """Unknowns that are the start value of a measured state."""
    posed = experiment.posed
    place = dict(zip(posed.q_names, experiment.dynamics.columns, strict=True))
    return [place[q] for q, s in single_starts(posed).items() if s in posed.data_names]


def _relation(k: int, experiment: Expansion, slope: Any, n: int) -> Relation | None:
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


def _of_all(exponents: Exponents, experiment: Expansion, n: int) -> Exponents:
    """Exponents of the experiment's unknowns as exponents of all."""
    found = [0] * n
    for column, e in zip(experiment.dynamics.columns, exponents, strict=True):
        found[column] = e
    return tuple(found)


def _quotients(
    experiments: Sequence[Expansion], relations: Sequence[Relation], n: int, seed: int
) -> list[list[list[int]]]:
    """At each point, exponents of quotients of monomials that are determined."""
    monomials = sorted({m for relation in relations for m in relation.functions})
    if not monomials:
        return [[]]
    told = _taylor(experiments, relations, monomials, n, seed)
    return [_determined(form, prime, monomials) for form, prime in told]


def _determined(form: Echelon, prime: int, monomials: Sequence[Exponents]) -> list[list[int]]:
    """Quotients of monomials that are the same in all solutions: columns of one direction."""
    alike: dict[tuple[int, ...], list[Exponents]] = {}
    basis = null_space(form, prime)
    for monomial, column in zip(monomials, basis.T.tolist(), strict=True):
        lead = next((v for v in column if v), None)
        if lead is not None:
            over = pow(lead, -1, prime)
            alike.setdefault(tuple(v * over % prime for v in column), []).append(monomial)
    return [
        [a - b for a, b in zip(other, first, strict=True)]
        for first, *others in alike.values()
        for other in others
    ]


def _taylor(
    experiments: Sequence[Expansion],
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
        course = Course(d, sized, shared, point.q[:, list(d.columns)], y, orders=orders)
        rows.append(_rows(course, some, place, orders))
    every = np.concatenate(rows, axis=1)
    every = every if every[..., 1:].any() else every[..., :1]
    found = []
    for matrix, prime in zip(every, field.primes, strict=True):
        local = local_echelon(matrix, prime, 1)
        if not local.steady:
            raise Singular
        found.append((local.form, prime))
    return found


def _while_measured(experiment: Expansion, dynamics: Dynamics) -> Dynamics:
    """The dynamics on the pieces in which all data are measured."""
    data = experiment.posed.data_names
    last = min((max(o.since) for o in experiment.outputs if o.name in data), default=Fraction(0))
    pieces = tuple(p for p in dynamics.pieces if p.start < max(last, Fraction(0)))
    return replace(dynamics, pieces=pieces or dynamics.pieces[:1])


def _rows(
    course: Course, relations: Sequence[Relation], place: Mapping[Exponents, int], orders: int
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
