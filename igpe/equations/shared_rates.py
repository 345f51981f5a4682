"""States in units in which a reaction changes all of them alike.

A yield coefficient stands between what one rate does to two states:

    dX/dt = r - d X,     dS/dt = -r / Y,     dQ/dt = a r,     r = mu S X / (K + S).

With S = s / Y and Q = a q the slopes of X, s and q hold r times a number. What an enclosure of r
is off then moves all three together, and s + q is constant: q, on which no slope depends, need not
be integrated. Slopes are sums of terms

    number * powers of unknowns * powers of factors,

where a factor is a state, an input, a function, or a sum from which the powers of unknowns that
its terms share are taken out. States of which a function is taken keep their units.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import Graph, apply_to_sx

MOST_TERMS = 60  # of a sum

Powers = tuple[tuple[int, int], ...]
"""(which, exponent), sorted, without exponents 0: of unknowns, or of factors."""
Terms = dict[tuple[Powers, Powers], Fraction]
"""Powers of unknowns, powers of factors -> the number that stands before them."""
K = TypeVar("K", bound=tuple[Any, ...])


class NotRewritten(Exception):
    """A number is not a double, or there are too many terms."""


class Rewritten(NamedTuple):
    """The problem in other states, and the old states (n_x,) as SX of the new ones and of q."""

    ivp: InitialValueProblem
    states: Any


def with_shared_rates(ivp: InitialValueProblem, lower: FloatArray, upper: FloatArray) -> Rewritten:
    """The same measured quantities from states in other units, and from fewer where that is exact.

    ivp           without implicit variables and events
    lower, upper  (n_q,) bounds of its unknowns; units are made of positive ones only, or of some
                  that may be 0 where nothing is divided by them afterwards
    returns       the problem as it is where its own units are as good
    """
    usable = (lower >= 0) & (upper > 0) & np.isfinite(upper)
    positive, middle = usable & (lower > 0), np.ones(len(lower))
    middle[usable] = 0.5 * upper[usable]
    middle[positive] = np.sqrt(lower[positive]) * np.sqrt(upper[positive])
    apart = set(np.flatnonzero(positive).tolist())
    try:
        for allowed in usable, positive:
            which = set(np.flatnonzero(allowed).tolist())
            units = _best_units(ivp, which, apart)
            if not any(units):
                break
            new = _rewritten(ivp, units, middle)
            if _is_finite(new.ivp, np.where(allowed & ~positive, 0.0, middle)):
                return new
    except NotRewritten:
        pass
    return Rewritten(ivp, ivp.x)


def _is_finite(ivp: InitialValueProblem, q: FloatArray) -> bool:
    """Whether slopes, start and measured quantities are finite where the unknowns are q (n_q,)."""
    inputs = [ivp.x, ivp.q, ivp.u, ivp.t]
    every = ca.vertcat(*(ca.SX(one) for one in (ivp.f, ivp.start, ivp.measured)))
    values = ca.Function("all", inputs, [every])(ivp.largest, q, np.ones(len(ivp.tables)), ivp.t0)
    return bool(np.isfinite(np.asarray(values)).all())


def null_space(rows: Sequence[Mapping[K, Fraction]]) -> list[list[Fraction]]:
    """A basis of the coefficients with which the rows add up to nothing, by elimination."""
    n, keys = len(rows), sorted({key for row in rows for key in row})
    table = [
        [row.get(key, Fraction(0)) for key in keys] + [Fraction(int(i == j)) for j in range(n)]
        for i, row in enumerate(rows)
    ]
    for k in range(len(keys)):
        pivot = next((r for r in table if r[k]), None)
        if pivot is not None:
            table.remove(pivot)
            table = [_without(k, r, pivot) for r in table]
    return [row[len(keys) :] for row in table]


def _without(k: int, row: list[Fraction], pivot: list[Fraction]) -> list[Fraction]:
    """The row minus the multiple of another one that holds its entry k."""
    if not row[k]:
        return row
    share = row[k] / pivot[k]
    return [a - share * b for a, b in zip(row, pivot, strict=True)]


def times(one: Powers, other: Powers, exponent: int = 1) -> Powers:
    """one * other**exponent; what cancels is left out."""
    powers = dict(one)
    for which, power in other:
        powers[which] = powers.get(which, 0) + exponent * power
    return tuple(sorted((which, power) for which, power in powers.items() if power))


class _Slopes:
    """Slopes as sums of terms, and their expressions, where states have units.

    units    of each state: its old value is these powers of unknowns times the new one
    x        symbols of the new states
    of       (n_x,) slopes of the new states
    inside   states of which a function is taken
    """

    def __init__(self, ivp: InitialValueProblem, units: Sequence[Powers]) -> None:
        self.units, self.x, self.q = units, ca.SX.sym("x", len(units)), ca.SX(ivp.q)
        self._others = {2: ca.SX(ivp.u), 3: ca.SX(ivp.t)}
        self._factors: list[Any] = []
        self._places: dict[Any, int] = {}
        self._rates: dict[tuple[Powers, Powers], Any] = {}
        self.inside: set[int] = set()
        graph = Graph.of(ivp.f, [ivp.x, ivp.q, ivp.u, ivp.t])
        slopes = graph.evaluate(self._symbol, _constant, self._operation)
        self.of = [
            {(times(unknowns, unit, -1), factors): c for (unknowns, factors), c in terms.items()}
            for terms, unit in zip(slopes, units, strict=True)
        ]

    def expression(self, terms: Terms) -> Any:
        """A sum as SX; each rate is one expression wherever it is."""
        total = ca.SX(0)
        for key, number in terms.items():
            if key not in self._rates:
                self._rates[key] = self._rate(*key)
            total = total + _multiple(number, self._rates[key])
        return total

    def _rate(self, unknowns: Powers, factors: Powers) -> Any:
        both = [(self.q[i], n) for i, n in unknowns] + [(self._factors[i], n) for i, n in factors]
        above, below = ca.SX(1), ca.SX(1)
        for value, n in both:
            for _ in range(abs(n)):
                above, below = (above * value, below) if n > 0 else (above, below * value)
        return above / below

    def _factor(self, key: Any, expression: Callable[[], Any]) -> Terms:
        if key not in self._places:
            self._places[key] = len(self._factors)
            self._factors.append(expression())
        return {((), ((self._places[key], 1),)): Fraction(1)}

    def _symbol(self, column: int, i: int) -> Terms:
        if column == 1:
            return {(((i, 1),), ()): Fraction(1)}
        if column > 1:
            return self._factor((column, i), lambda: self._others[column][i])
        return _product({(self.units[i], ()): Fraction(1)}, self._factor(i, lambda: self.x[i]))

    def _operation(self, name: str, operands: list[Terms]) -> Terms:
        rule = _RULES.get(name)
        terms = rule(self, *operands) if rule else self.function(name, *operands)
        terms = {key: number for key, number in terms.items() if number}
        if len(terms) > MOST_TERMS:
            raise NotRewritten
        return terms

    def is_state(self, factors: Powers) -> bool:
        """Whether factors are one state alone."""
        return any(factors == ((self._places.get(i), 1),) for i in range(len(self.units)))

    def function(self, name: str, *operands: Terms) -> Terms:
        """An operation of which nothing is known but its operands."""
        values = [self.expression(self.single(one)) for one in operands]
        self.inside.update(self.states_in(ca.vertcat(*values)))
        key = (name, *(frozenset(one.items()) for one in operands))
        return self._factor(key, lambda: apply_to_sx(name, values))

    def states_in(self, expressions: Any) -> list[int]:
        """Which states are in expressions."""
        there: list[int] = np.flatnonzero(ca.which_depends(expressions, self.x, 1)).tolist()
        return there

    def product(self, one: Terms, other: Terms) -> Terms:
        """Their product: sums times single terms are expanded."""
        if len(one) > 1 and len(other) > 1:
            one, other = self.single(one), self.single(other)
        return _product(one, other)

    def quotient(self, one: Terms, other: Terms) -> Terms:
        """The quotient of two."""
        if not other:
            raise NotRewritten
        (((unknowns, factors), number),) = self.single(other).items()
        below = times((), unknowns, -1), times((), factors, -1)
        return _product(one, {below: 1 / number})

    def single(self, terms: Terms) -> Terms:
        """The sum as one term: what all of it shares, times a factor."""
        if len(terms) <= 1:
            return terms
        each = [dict(unknowns) for unknowns, _ in terms]
        least = {i: min(one.get(i, 0) for one in each) for one in each for i in one}
        shared = times((), tuple(sorted(least.items())))
        sign = 1 if next(iter(terms.values())) > 0 else -1
        rest = {(times(p, shared, -1), f): sign * c for (p, f), c in terms.items()}
        factor = self._factor(frozenset(rest.items()), lambda: self.expression(rest))
        return _product({(shared, ()): Fraction(sign)}, factor)


ONE: Terms = {((), ()): Fraction(1)}


def _constant(value: float) -> Terms:
    if not np.isfinite(value):
        raise NotRewritten
    return {((), ()): Fraction(value)} if value else {}


def doubles(number: Fraction) -> tuple[float, ...]:
    """Two doubles at most that add up to the number exactly; empty if it takes more."""
    try:
        first = float(number)
        second = float(number - Fraction(first))
    except OverflowError:
        return ()
    if Fraction(first) + Fraction(second) != number:
        return ()
    return (first, second) if second else (first,)


def _multiple(number: Fraction, rate: Any) -> Any:
    """The number, exactly, times an SX."""
    if parts := doubles(number):
        return sum((part * rate for part in parts[1:]), parts[0] * rate)
    above, below = (doubles(Fraction(n)) for n in number.as_integer_ratio())
    if len(above) != 1 or len(below) != 1:
        raise NotRewritten
    return above[0] * rate / below[0]


def _sum(one: Terms, other: Terms, factor: int) -> Terms:
    keys = {**one, **other}
    return {k: one.get(k, Fraction(0)) + factor * other.get(k, Fraction(0)) for k in keys}


def _product(one: Terms, other: Terms) -> Terms:
    terms: Terms = {}
    for (p, f), c in one.items():
        for (q, g), d in other.items():
            key = times(p, q), times(f, g)
            terms[key] = terms.get(key, Fraction(0)) + c * d
    return terms


_RULES: Mapping[str, Callable[..., Terms]] = {
    "ASSIGN": lambda s, a: a,
    "ADD": lambda s, a, b: _sum(a, b, 1),
    "SUB": lambda s, a, b: _sum(a, b, -1),
    "NEG": lambda s, a: _sum({}, a, -1),
    "TWICE": lambda s, a: _sum({}, a, 2),
    "MUL": _Slopes.product,
    "SQ": lambda s, a: s.product(a, a),
    "DIV": _Slopes.quotient,
    "INV": lambda s, a: s.quotient(ONE, a),
}
"""By CasADi's name of the operation; small whole powers are products there."""


def _best_units(ivp: InitialValueProblem, usable: set[int], positive: set[int]) -> list[Powers]:
    """Units in which reactions change states alike.

    Rates of first order are shared only where that makes a sum constant, as of what passes a chain
    of stages: B in A' = k B and B' = -l B are two reactions.
    """
    slopes = _Slopes(ivp, [()] * len(ivp.states))
    choices = [_units(slopes, usable, positive, linear) for linear in (False, True)]
    if choices[0] == choices[1]:
        return choices[0]
    counts = [len(null_space(_Slopes(ivp, units).of)) for units in choices]
    return choices[counts[1] > counts[0]]


def _units(slopes: _Slopes, usable: set[int], positive: set[int], linear: bool) -> list[Powers]:
    """Units in which as many rates as possible stand before numbers in all slopes they are in.

    usable    unknowns that units are made of;  positive: those of them that cannot be zero
    linear    also rates that are a state times unknowns
    """
    n = len(slopes.of)
    # the leader of each state's group, and the state's unit in that of the leader; n leads those
    # that keep their units
    leader = [n if i in slopes.inside else i for i in range(n)]
    units: list[Powers] = [() for _ in range(n)]
    for i, j, ratio in _ratios(slopes, usable, linear):
        one, other = leader[i], leader[j]
        if one == other:
            continue
        step = times(times(ratio, units[j]), units[i], -1)  # unit of `one` in that of `other`
        gone, stays = (other, one) if one == n else (one, other)
        for k in range(n):
            if leader[k] == gone:
                leader[k], units[k] = stays, times(units[k], step, 1 if gone == one else -1)
    for first in set(leader) - {n}:
        group = [k for k in range(n) if leader[k] == first]
        counts = Counter(units[k] for k in group)
        choices = {one: [times(other, one, -1) for other in counts] for one in counts}
        fine = [one for one, ratios in choices.items() if not _may_vanish(ratios, positive)]
        common = max(fine or counts, key=lambda one: counts[one])
        for k in group:
            units[k] = times(units[k], common, -1)
    return units


def _may_vanish(units: Sequence[Powers], positive: set[int]) -> bool:
    """Whether a unit is zero where an unknown is that may be."""
    return any(n > 0 and i not in positive for unit in units for i, n in unit)


def _ratios(slopes: _Slopes, usable: set[int], linear: bool) -> list[tuple[int, int, Powers]]:
    """Pairs of states with the ratio of their units in which they share most rates, best first.

    Those that share rates as they are come before all others.
    """
    rates: dict[Powers, dict[int, list[Powers]]] = defaultdict(lambda: defaultdict(list))
    for i, terms in enumerate(slopes.of):
        for unknowns, factors in terms:
            rates[factors][i].append(unknowns)
    shared = Counter[tuple[int, int, Powers]]()
    for factors, one in rates.items():
        counts = linear or not slopes.is_state(factors)
        for (i, own), (j, others) in combinations(one.items(), 2):
            ratio = times(own[0], others[0], -1)
            if set(own) & set(others):
                shared[i, j, ()] += 1
            elif len(own) == len(others) == 1 and all(k in usable for k, _ in ratio):
                shared[i, j, ratio] += counts
    shared = +shared
    return sorted(shared, key=lambda one: (one[2] != (), -shared[one]))


def _rewritten(ivp: InitialValueProblem, units: list[Powers], q: FloatArray) -> Rewritten:
    """The problem in new units; states that are sums of others, and drive nothing, are left out."""
    slopes, old = _Slopes(ivp, units), ca.SX(ivp.start)
    unit = [slopes.expression({(one, ()): Fraction(1)}) for one in units]
    start = [
        old[i] * slopes.expression({(times((), one, -1), ()): Fraction(1)})
        for i, one in enumerate(units)
    ]
    f = [slopes.expression(terms) for terms in slopes.of]
    driving = set(slopes.states_in(ca.vertcat(*f)))
    x = ca.vertsplit(slopes.x)
    relations = null_space(slopes.of)
    gone: dict[int, list[Fraction]] = {}  # state -> a relation that holds no other one of these
    for i in sorted(set(range(len(f))) - driving, reverse=True):
        own = next((r for r in relations if r[i]), None)
        if own is not None:
            relations = [_without(i, r, own) for r in relations if r is not own]
            gone = {k: _without(i, r, own) for k, r in gone.items()} | {i: own}
    for i, own in gone.items():
        shares = {j: -c / own[i] for j, c in enumerate(own) if c and j != i}
        moved = (_multiple(c, x[j] - start[j]) for j, c in shares.items())
        x[i] = start[i] + sum(moved, ca.SX(0))
    kept = [i for i in range(len(f)) if i not in gone]
    now = ca.vertcat(*(a * b for a, b in zip(unit, x, strict=True)))
    size = np.asarray(ca.Function("size", [ca.SX(ivp.q)], [ca.vertcat(*unit)])(q)).ravel()
    new = replace(
        ivp,
        states=tuple(ivp.states[i] for i in kept),
        x=ca.vertcat(*(slopes.x[i] for i in kept)),
        f=ca.vertcat(*(f[i] for i in kept)),
        start=ca.vertcat(*(start[i] for i in kept)),
        measured=ca.substitute(ca.SX(ivp.measured), ivp.x, now),
        algebraic={},
        scale=(ivp.scale / size)[kept],
        largest=(ivp.largest / size)[kept],
        shared=None,
    )
    return Rewritten(new, now)
