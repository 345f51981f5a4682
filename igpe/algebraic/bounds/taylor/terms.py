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

    def raised(self, n: float) -> "Term":
        """The n-th power, n a whole number."""
        return Term(
            self.factor**n,
            {i: n * a for i, a in self.powers.items()},
            {i: n * r for i, r in self.rates.items()},
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
        (below,), inverse = b.terms, b.terms[0].raised(-1)
        quotients = [(t, t.times(inverse)) for t in a.terms]
        return tuple(Term(t.factor / below.factor, q.powers, q.rates) for t, q in quotients)
    inside = {i for i in range(p.numel()) if ca.depends_on(b.plain, p[i])}
    groups: dict[tuple[tuple[int, float], ...], list[Term]] = {}
    for t in a.terms:
        outside = tuple((i, x) for i, x in t.powers.items() if i not in inside)
        groups.setdefault(outside, []).append(t)
    return tuple(_over(own, dict(powers), b.plain, p) for powers, own in groups.items())


def _over(terms: list[Term], common: dict[int, float], bottom: Any, p: Any) -> Term:
    """A sum over a denominator, with the powers that all its terms have in front."""
    own = [{i: x for i, x in t.powers.items() if i not in common} for t in terms]
    if len(terms) == 1:
        (t,) = terms
        return Term(Term(t.factor, own[0]).expression(p) / bottom, common, t.rates)
    rests = [
        Term(t.factor, powers, t.rates).expression(p) for t, powers in zip(terms, own, strict=True)
    ]
    return Term(sum(rests) / bottom, common)


def _power(p: Any, a: _Value, b: _Value) -> tuple[Term, ...] | None:
    exponent = b.plain
    if not b.free or not exponent.is_constant() or len(a.terms) > 1:
        return None
    n = float(exponent)
    return (a.terms[0].raised(n),) if n == int(n) else None


def _exponential(p: Any, a: _Value) -> tuple[Term, ...]:
    """exp of a sum: what is linear in a parameter becomes its rate."""
    result = Term(ca.SX(1))
    for t in a.terms:
        linear = list(t.powers.values()) == [1.0] and not t.rates
        if linear and not ca.depends_on(ca.SX(t.factor), p):
            (i,) = t.powers
            result = result.times(Term(ca.SX(1), {}, {i: t.factor}))
        else:
            result = result.times(Term(ca.exp(t.expression(p))))
    return (result,)


_RULES: Mapping[str, Callable[..., tuple[Term, ...] | None]] = {
    "ADD": lambda _, a, b: a.terms + b.terms,
    "SUB": lambda _, a, b: a.terms + _scaled(b, -1.0),
    "NEG": lambda _, a: _scaled(a, -1.0),
    "TWICE": lambda _, a: _scaled(a, 2.0),
    "MUL": _product,
    "DIV": _quotient,
    "INV": lambda p, a: _quotient(p, _known(ca.SX(1)), a),
    "SQ": lambda p, a: _product(p, a, a),
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
    product  whether they are products of powers; else sums of multiples
    """

    old: tuple[int, ...]
    vectors: tuple[Vector, ...]
    back: tuple[tuple[int, ...], ...]
    product: bool

    def slot(self, vector: Vector) -> int:
        """In which old parameter's place a new one stands."""
        return self.old[self.vectors.index(vector)]

    def to_new(self, p: FloatArray) -> list[float]:
        """The new parameters at all old ones (n,)."""
        if self.product:
            return [float(np.prod([p[i] ** a for i, a in v])) for v in self.vectors]
        return [float(sum(a * p[i] for i, a in v)) for v in self.vectors]

    def to_old(self, new: FloatArray) -> FloatArray:
        """The old parameters at the new ones."""
        apart = np.divide if self.product else np.subtract
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([new[w[0]] if len(w) == 1 else apart(*new[list(w)]) for w in self.back])

    def bounds(self, old: Mapping[int, tuple[float, float]]) -> list[tuple[float, float]]:
        """Bounds on the new parameters, outward."""
        own = product_bounds if self.product else sum_bounds
        return [old[v[0][0]] if v == ((v[0][0], 1.0),) else own(v, old) for v in self.vectors]


def exchanges(
    vectors: Iterable[Vector], allowed: Iterable[int], *, product: bool
) -> list[Exchange]:
    """The sets of old parameters that can be exchanged with profit.

    vectors  how the old parameters occur together
    allowed  the parameters that occur nowhere else
    """
    free, every = set(allowed), list(vectors)
    own = sorted({v for v in every if v and all(i in free for i, _ in v)})
    mixed = {i for v in every if not all(j in free for j, _ in v) for i, _ in v}
    result = []
    for part in connected([i for i, _ in v] for v in own):
        mine = [v for v in own if v[0][0] in part]
        if mixed.isdisjoint(part) and any(len(v) > 1 for v in mine):
            back = _way_back(sorted(part), mine)
            if back is not None:
                result.append(Exchange(tuple(sorted(part)), tuple(mine), back, product))
    return result


def _way_back(old: Sequence[int], vectors: Sequence[Vector]) -> tuple[tuple[int, ...], ...] | None:
    """See `Exchange.back`; None if there is none of that simple form."""
    matrix = np.array([[dict(v).get(i, 0.0) for i in old] for v in vectors])
    if len(vectors) != len(old) or np.linalg.matrix_rank(matrix) < len(old):
        return None
    rows = np.linalg.inv(matrix)
    exact = np.round(rows)
    if not (
        np.allclose(rows, exact, atol=1e-12) and np.array_equal(exact @ matrix, np.eye(len(old)))
    ):
        return None
    plus, minus = exact == 1, exact == -1
    simple = (np.abs(exact) <= 1).all() and (plus.sum(axis=1) == 1).all()
    if not simple or (minus.sum(axis=1) > 1).any():
        return None
    return tuple(
        (int(np.argmax(p)), *np.flatnonzero(m).tolist()) for p, m in zip(plus, minus, strict=True)
    )


def product_bounds(
    vector: Vector, bounds: Mapping[int, tuple[float, float]]
) -> tuple[float, float]:
    """Bounds on a product of powers of parameters that are not negative; outward."""
    low, high = 1.0, 1.0
    for i, exponent in vector:
        at_zero = np.inf if exponent < 0 else 0.0
        ends = sorted(float(b**exponent) if b else at_zero for b in bounds[i])
        low = low * ends[0] if low and ends[0] else 0.0
        high = high * ends[1] if high and ends[1] else 0.0
    return low * (1 - 1e-12), high * (1 + 1e-12)


def sum_bounds(vector: Vector, bounds: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """Bounds on a sum of multiples of parameters; outward."""
    ends = [sorted(a * b for b in bounds[i]) for i, a in vector]
    room = 1e-12 * sum(max(abs(e[0]), abs(e[1])) for e in ends)
    return sum(e[0] for e in ends) - room, sum(e[1] for e in ends) + room
