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
from typing import Any, NamedTuple

import numpy as np

from igpe.equations.stack import stack
from igpe.series.constants import Constants
from igpe.series.course import Course, Signals
from igpe.series.field import Field, Residues, Singular, random_primes
from igpe.series.linear_algebra import echelon, null_space
from igpe.series.point import NoPoint, random_point
from igpe.series.tape import UnknownOperation
from igpe.structure.expansion import Expansion
from igpe.structure.lattice import Lattice
from igpe.structure.monomials import Exponents, NoQuotient, quotient
from igpe.structure.posed import single_starts

MARGIN = 2  # orders beyond the number of monomials and states


class Relation(NamedTuple):
    """One slope: the functions of time that the monomials of all unknowns are multiplied with."""

    experiment: int
    functions: Mapping[Exponents, Any]


def unique(
    experiments: Sequence[Expansion], slopes: Sequence[Mapping[str, Any]], n: int, *, seed: int
) -> frozenset[int]:
    """Which of n unknowns are globally identifiable for certain.

    slopes  of each experiment, state -> slope predicted from its data
    """
    unit = np.eye(n, dtype=int).tolist()
    starts = [unit[i] for e in experiments for i in _measured_starts(e)]
    relations = [
        relation
        for k, (e, own) in enumerate(zip(experiments, slopes, strict=True))
        for slope in own.values()
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
        above, below = quotient(slope, posed.q, stack([posed.data, posed.time, posed.inputs]))
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
    return [_determined(matrix, prime, monomials) for matrix, prime in told]


def _determined(matrix: Residues, prime: int, monomials: Sequence[Exponents]) -> list[list[int]]:
    """Quotients of monomials that are the same in all solutions: columns of one direction."""
    alike: dict[tuple[int, ...], list[Exponents]] = {}
    basis = null_space(echelon(matrix, prime), prime)
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
) -> list[tuple[Residues, int]]:
    """Of each point: (rows, n_monomials) Taylor coefficients of all relations, and its prime."""
    random = np.random.default_rng(seed)
    field = Field(random_primes(random), 1, random)
    shared = Constants(field), Signals(field)
    own = [[r for r in relations if r.experiment == k] for k in range(len(experiments))]
    dynamics = [
        e.following(stack(f for r in some for f in r.functions.values()))
        for e, some in zip(experiments, own, strict=True)
    ]
    point = random_point(dynamics, n, field, shared)
    place = {m: i for i, m in enumerate(monomials)}
    rows = []
    for d, some, y in zip(dynamics, own, point.y, strict=True):
        columns = [place[m] for r in some for m in r.functions]
        which = np.repeat(np.arange(len(some)), [len(r.functions) for r in some])
        sized = Field(field.primes, 1 + len(d.columns), random)
        course = Course(d, sized, shared, point.q[:, list(d.columns)], y)
        for _ in range(len(monomials) + d.x.numel() + MARGIN):
            row = np.zeros((len(field.primes), len(some), len(monomials)), dtype=np.uint64)
            values = course.advance()
            for k in range(len(row)):
                row[k, which, columns] = [v[k, 0] for v in values]
            rows.append(row)
    return list(zip(np.concatenate(rows, axis=1), field.primes, strict=True))
