"""Expressions as sums of products, as kinetic models are: factor * powers * exponentials.

    f(known, p) = sum over terms of  factor * prod_i p_i^a_i * exp(sum_i rate_i p_i)

where a_i are numbers, rate_i depends on what is known alone, and the factor holds the rest.

New parameters in which products and exponents come apart.

A rate constant that the equations write as a quotient, k3 = k2/kc, makes the residuals nonlinear in
kc and, where k2 and kc follow Arrhenius, ties two activation energies together. As long as the
equations see kref2, kref2/kc, Ea2 and Ea2 - dh only, these are parameters as good as the old ones:
the first two linear, the others each in an exponent of its own. Here such sets of monomials (and
of exponents) are found, and exchanged for the old parameters where the way back is simple:

    p = beta_i          or  p = beta_i / beta_j,     for parameters in powers
    p = +- theta_i      or  p = theta_i - theta_j,   for parameters in rates

so that the bounds of p become bounds of one new parameter or of a ratio or difference of two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.connected import connected
from igpe.equations.operations import Graph, apply_to_sx

MOST = 24  # terms of one sum; a larger one is left as it is


@dataclass(frozen=True)
class Term:
    """One product.

    factor  SX
    powers  parameter -> exponent, none of them 0
    rates   parameter -> SX of what is known
    """

    factor: Any
    powers: Mapping[int, float] = field(default_factory=dict)
    rates: Mapping[int, Any] = field(default_factory=dict)

    def times(self, other: "Term") -> "Term":
        """The product of two."""
        powers = {
            i: self.powers.get(i, 0.0) + other.powers.get(i, 0.0)
            for i in {*self.powers, *other.powers}
        }
        rates = dict(self.rates)
        for i, rate in other.rates.items():
            rates[i] = rates[i] + rate if i in rates else rate
        return Term(
            self.factor * other.factor,
            {i: a for i, a in sorted(powers.items()) if a != 0},
            {i: r for i, r in sorted(rates.items()) if not ca.SX(r).is_zero()},
        )

    def inverse(self) -> "Term":
        """One over it."""
        return Term(
            1 / self.factor,
            {i: -a for i, a in self.powers.items()},
            {i: -r for i, r in self.rates.items()},
        )

    def expression(self, p: Any) -> Any:
        """As SX of the parameters p."""
        result = self.factor
        for i, a in self.powers.items():
            result = result * (p[i] if a == 1 else p[i] ** a)
        if self.rates:
            result = result * ca.exp(sum(rate * p[i] for i, rate in self.rates.items()))
        return result


@dataclass(frozen=True)
class _Value:
    """A subexpression as SX and as terms; free: of parameters."""

    plain: Any
    terms: tuple[Term, ...]
    free: bool


def terms_of(expression: Any, known: Any, p: Any) -> tuple[Term, ...]:
    """The terms of a scalar SX expression of the symbols `known` and `p`."""

    def symbol(column: int, i: int) -> _Value:
        if column == 0:
            return _known(known[i])
        return _Value(p[i], (Term(ca.SX(1), {i: 1.0}),), False)

    (result,) = Graph.of(expression, [known, p]).evaluate(
        symbol, lambda number: _known(ca.SX(number)), lambda name, a: _apply(name, a, p)
    )
    return result.terms


def _known(plain: Any) -> _Value:
    return _Value(plain, (Term(plain),), True)


def _apply(name: str, arguments: list[_Value], p: Any) -> _Value:
    plain = apply_to_sx(name, [a.plain for a in arguments])
    if all(a.free for a in arguments):
        return _known(plain)
    terms = _RULES[name](p, *arguments) if name in _RULES else None
    if terms is None or len(terms) > MOST:
        terms = (Term(plain),)
    return _Value(plain, terms, False)


def _scaled(a: _Value, factor: float) -> tuple[Term, ...]:
    return tuple(Term(factor * t.factor, t.powers, t.rates) for t in a.terms)


def _product(_: Any, a: _Value, b: _Value) -> tuple[Term, ...]:
    return tuple(x.times(y) for x in a.terms for y in b.terms)


def _quotient(p: Any, a: _Value, b: _Value) -> tuple[Term, ...] | None:
    if len(b.terms) == 1:
        below = b.terms[0].inverse()
        return tuple(_divided(t, b.terms[0], below) for t in a.terms)
    inside = {i for i in range(p.numel()) if ca.depends_on(b.plain, p[i])}
    groups: dict[tuple[tuple[int, float], ...], list[Term]] = {}
    for t in a.terms:
        outside = tuple((i, x) for i, x in t.powers.items() if i not in inside)
        groups.setdefault(outside, []).append(t)
    return tuple(_over(own, dict(powers), b.plain, p) for powers, own in groups.items())


def _over(terms: list[Term], common: dict[int, float], bottom: Any, p: Any) -> Term:
    """A sum over a denominator, with the powers that all its terms have in front."""
    if len(terms) == 1:
        (t,) = terms
        rest = Term(t.factor, {i: x for i, x in t.powers.items() if i not in common})
        return Term(rest.expression(p) / bottom, common, t.rates)
    rests = [
        Term(t.factor, {i: x for i, x in t.powers.items() if i not in common}, t.rates)
        for t in terms
    ]
    return Term(sum(r.expression(p) for r in rests) / bottom, common)


def _divided(top: Term, bottom: Term, below: Term) -> Term:
    quotient = top.times(below)
    return Term(top.factor / bottom.factor, quotient.powers, quotient.rates)


def _power(p: Any, a: _Value, b: _Value) -> tuple[Term, ...] | None:
    exponent = b.plain
    if not b.free or not exponent.is_constant() or len(a.terms) > 1:
        return None
    n = float(exponent)
    if n != int(n):
        return None
    (t,) = a.terms
    return (
        Term(
            t.factor**n,
            {i: n * x for i, x in t.powers.items()},
            {i: n * r for i, r in t.rates.items()},
        ),
    )


def _square(p: Any, a: _Value) -> tuple[Term, ...]:
    return _product(p, a, a)


def _exponential(p: Any, a: _Value) -> tuple[Term, ...]:
    """exp of a sum: what is linear in a parameter becomes its rate."""
    result = Term(ca.SX(1))
    for t in a.terms:
        linear = list(t.powers.values()) == [1.0] and not t.rates
        if linear and not _depends(t.factor, p):
            (i,) = t.powers
            result = result.times(Term(ca.SX(1), {}, {i: t.factor}))
        else:
            result = result.times(Term(ca.exp(t.expression(p))))
    return (result,)


def _depends(factor: Any, p: Any) -> bool:
    return bool(ca.depends_on(ca.SX(factor), p))


_RULES: Mapping[str, Callable[..., tuple[Term, ...] | None]] = {
    "ADD": lambda _, a, b: a.terms + b.terms,
    "SUB": lambda _, a, b: a.terms + _scaled(b, -1.0),
    "NEG": lambda _, a: _scaled(a, -1.0),
    "TWICE": lambda _, a: _scaled(a, 2.0),
    "MUL": _product,
    "DIV": _quotient,
    "INV": lambda p, a: _quotient(p, _known(ca.SX(1)), a),
    "SQ": _square,
    "POW": _power,
    "CONSTPOW": _power,
    "EXP": _exponential,
}


Vector = tuple[tuple[int, float], ...]  # (old parameter, exponent), sorted


@dataclass(frozen=True)
class Exchange:
    """New parameters for some old ones.

    old      their numbers
    vectors  of each new parameter: which product of powers (or sum of multiples) of old ones it is
    back     of each old one: (i,) it is the i-th new one, (i, j) the i-th over (or minus) the j-th
    """

    old: tuple[int, ...]
    vectors: tuple[Vector, ...]
    back: tuple[tuple[int, ...], ...]

    def slot(self, vector: Vector) -> int:
        """In which old parameter's place a new one stands."""
        return self.old[self.vectors.index(vector)]

    def old_values(
        self, new: FloatArray, apart: Callable[[FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        """The old parameters; `apart` is the quotient or the difference of two new ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([
                new[way[0]] if len(way) == 1 else apart(new[way[0]], new[way[1]])
                for way in self.back
            ])


def exchanges(vectors: Iterable[Vector], allowed: Iterable[int]) -> list[Exchange]:
    """The sets of old parameters that can be exchanged with profit.

    vectors  how the old parameters occur together
    allowed  the parameters that occur nowhere else
    """
    free = set(allowed)
    own = sorted({v for v in vectors if v and all(i in free for i, _ in v)})
    mixed = {i for v in vectors if not all(j in free for j, _ in v) for i, _ in v}
    result = []
    for part in connected([i for i, _ in v] for v in own):
        members = tuple(sorted(part))
        mine = [v for v in own if v[0][0] in part]
        if mixed.isdisjoint(part) and any(len(v) > 1 for v in mine):
            result.append(_exchange(members, mine))
    return [e for e in result if e is not None]


def _exchange(old: tuple[int, ...], vectors: Sequence[Vector]) -> Exchange | None:
    if len(vectors) != len(old):
        return None
    matrix = np.array([[dict(v).get(i, 0.0) for i in old] for v in vectors])
    if np.linalg.matrix_rank(matrix) < len(old):
        return None
    rows = np.linalg.inv(matrix)
    back = [_way_back(row) for row in rows]
    if any(way is None for way in back) or not np.array_equal(
        np.round(rows) @ matrix, np.eye(len(old))
    ):
        return None
    return Exchange(old, tuple(vectors), tuple(way for way in back if way is not None))


def _way_back(row: FloatArray) -> tuple[int, ...] | None:
    whole = np.round(row)
    if not np.allclose(row, whole, atol=1e-12):
        return None
    plus, minus = np.flatnonzero(whole == 1), np.flatnonzero(whole == -1)
    if np.abs(whole).sum() != len(plus) + len(minus) or len(plus) != 1 or len(minus) > 1:
        return None
    return (int(plus[0]), *(int(i) for i in minus))


def product_bounds(
    vector: Vector, bounds: Mapping[int, tuple[float, float]]
) -> tuple[float, float]:
    """Bounds on a product of powers of parameters that are not negative; outward."""
    low, high = 1.0, 1.0
    if vector == ((vector[0][0], 1.0),):
        return bounds[vector[0][0]]
    for i, exponent in vector:
        ends = sorted(_parameter_power(b, exponent) for b in bounds[i])
        low = low * ends[0] if low and ends[0] else 0.0
        high = high * ends[1] if high and ends[1] else 0.0
    return low * (1 - 1e-12), high * (1 + 1e-12)


def _parameter_power(value: float, exponent: float) -> float:
    if value == 0.0:
        return np.inf if exponent < 0 else 0.0
    return float(value**exponent)


def sum_bounds(vector: Vector, bounds: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """Bounds on a sum of multiples of parameters; outward."""
    if vector == ((vector[0][0], 1.0),):
        return bounds[vector[0][0]]
    ends = [sorted(a * b for b in bounds[i]) for i, a in vector]
    room = 1e-12 * sum(max(abs(e[0]), abs(e[1])) for e in ends)
    return sum(e[0] for e in ends) - room, sum(e[1] for e in ends) + room
