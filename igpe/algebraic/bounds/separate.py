"""From residuals as the model writes them to a separable problem, and back.

Kinetic models are sums of products: factor * powers * exponentials.

    f(known, p) = sum over terms of  factor * prod_i p_i^a_i * exp(sum_i rate_i p_i)

where a_i are numbers, rate_i depends on what is known alone, and the factor holds the rest.

New parameters make products and exponents come apart. A rate constant that the equations write as a
quotient, k3 = k2/kc, makes the residuals nonlinear in kc and, where k2 and kc follow Arrhenius,
ties two activation energies together. As long as the equations see kref2, kref2/kc, Ea2 and Ea2 -
dh only, these are parameters as good as the old ones: the first two linear, the others each in an
exponent of its own. Here such sets of monomials (and of exponents) are found, and exchanged for the
old parameters where the way back is simple:

    p = beta_i          or  p = beta_i / beta_j,     for parameters in powers
    p = +- theta_i      or  p = theta_i - theta_j,   for parameters in rates

so that the bounds of p become bounds of one new parameter or of a ratio or difference of two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from igpe.algebraic.base import Contribution, at_same_places
from igpe.algebraic.bounds.separable import Axis, ColumnBlock, ParameterPair, Separable, TaylorGraph
from igpe.core.arrays import FloatArray, IntArray, connected
from igpe.core.box import Box
from igpe.equations.operations import Graph, apply_to_sx
from igpe.equations.system import linear_parameters

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


DECADE_AND_MORE = 30.0  # ratio of bounds from which cells are enclosed in the logarithm


@dataclass(frozen=True)
class Separated:
    """A separable problem and the way back.

    linear, nonlinear  which of the new parameters are its beta and theta; there are as many new
                       ones as old ones, and an exchange puts its new ones in the old ones' places
    order              of the pieces' residuals in the problem
    """

    problem: Separable
    box: Box
    linear: tuple[int, ...]
    nonlinear: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    order: IntArray

    def residual(self, p: FloatArray) -> FloatArray:
        """Residuals of the separable problem at old parameters; `order` sorts the pieces' so."""
        new = p.copy()
        for e in self.exchanges:
            new[list(e.old)] = e.to_new(p)
        (columns,) = self.problem.values(new[None, list(self.nonlinear)])
        predicted = columns[:, 0] + columns[:, 1:] @ new[list(self.linear)]
        return np.asarray(self.problem.target - predicted)

    def parameters(self, theta: FloatArray, beta: FloatArray) -> FloatArray:
        """The old parameters, clipped into their box."""
        p = np.empty(len(self.box))
        p[list(self.linear)], p[list(self.nonlinear)] = beta, theta
        for e in self.exchanges:
            p[list(e.old)] = e.to_old(p[list(e.old)])
        middle = (self.box.lower + self.box.upper) / 2
        return self.box.clip(np.where(np.isfinite(p), p, middle))


def separate(pieces: Sequence[Contribution], box: Box, *, exchange: bool = True) -> Separated:
    """Find the linear parameters and new ones, and write the columns.

    pieces    residuals, all functions of the same parameters
    exchange  whether to look for new parameters
    raises    UnknownOperation if an operation has no enclosure
    """
    p = ca.SX.sym("p", len(box))
    systems = _systems(pieces, p)
    exchanges = [*_products(systems, box), *_sums(systems)] if exchange else []
    result = _separated(systems, p, box, exchanges)
    if {i for e in exchanges if e.product for i in e.old} <= set(result.linear):
        return result
    return _separated(systems, p, box, [e for e in exchanges if not e.product])


class _System:
    """Pieces at the same places, as terms; order: which of all residuals theirs are."""

    def __init__(self, pieces: list[Contribution], order: IntArray, p: Any) -> None:
        self.pieces, self.order, self.p = pieces, order, p
        self.known = ca.SX.sym("known", pieces[0].known.shape[0])
        slopes = [piece.predict(self.known, p) for piece in pieces]
        TaylorGraph(ca.vertcat(*slopes), self.known, p)  # refuses what has no enclosure
        self.terms = [terms_of(slope, self.known, p) for slope in slopes]

    def rates(self, term: Term) -> dict[int, FloatArray]:
        """(n_places,) numbers of the term's rates."""
        names = list(term.rates)
        if not names:
            return {}
        function = ca.Function("rates", [self.known], [ca.vertcat(*term.rates.values())])
        return dict(zip(names, function(self.pieces[0].known).full(), strict=True))


def _systems(pieces: Sequence[Contribution], p: Any) -> list[_System]:
    ends = np.cumsum([len(piece.target) for piece in pieces])
    rows = [np.arange(end - len(q.target), end) for end, q in zip(ends, pieces, strict=True)]
    return [
        _System([pieces[i] for i in group], np.concatenate([rows[i] for i in group]), p)
        for group in at_same_places(pieces)
    ]


def _factors(systems: Sequence[_System]) -> set[int]:
    """Parameters that occur in a factor."""
    p = systems[0].p
    factors = ca.vertcat(*[t.factor for s in systems for own in s.terms for t in own])
    return {i for i in range(p.numel()) if ca.depends_on(factors, p[i])}


def _products(systems: Sequence[_System], box: Box) -> list[Exchange]:
    terms = [t for s in systems for own in s.terms for t in own]
    taken = _factors(systems) | {i for t in terms for i in t.rates}
    allowed = {i for i in range(len(box)) if i not in taken and box.lower[i] >= 0}
    return exchanges([tuple(t.powers.items()) for t in terms], allowed, product=True)


def _sums(systems: Sequence[_System]) -> list[Exchange]:
    terms = [(s, t) for s in systems for own in s.terms for t in own]
    taken = _factors(systems) | {i for _, t in terms for i in t.powers}
    vectors = [_multiples(s.rates(t)) for s, t in terms]
    lost = {i for (_, t), v in zip(terms, vectors, strict=True) if v is None for i in t.rates}
    allowed = {i for i in range(systems[0].p.numel()) if i not in taken | lost}
    return exchanges([v for v in vectors if v], allowed, product=False)


def _multiples(rates: dict[int, FloatArray]) -> Vector | None:
    """The rates as plus or minus one times the first of them; None if they are not."""
    result = []
    for i, rate in rates.items():
        first = next(iter(rates.values()))
        if np.array_equal(rate, first):
            result.append((i, 1.0))
        elif np.array_equal(rate, -first):
            result.append((i, -1.0))
        else:
            return None
    return tuple(result)


def _separated(
    systems: Sequence[_System], p: Any, box: Box, exchanges: Sequence[Exchange]
) -> Separated:
    new = [[[_exchanged(t, s, exchanges) for t in own] for own in s.terms] for s in systems]
    slopes = [sum((t.expression(p) for t in own), ca.SX(0)) for of in new for own in of]
    linear = linear_parameters(ca.vertcat(*slopes), p).jointly
    nonlinear = tuple(i for i in range(len(box)) if i not in linear)
    lower, upper = box.lower.astype(float).copy(), box.upper.astype(float).copy()
    old = {i: (float(box.lower[i]), float(box.upper[i])) for i in range(len(box))}
    for e in exchanges:
        lower[list(e.old)], upper[list(e.old)] = np.array(e.bounds(old)).T
    blocks = tuple(_block(s, of, linear, nonlinear) for s, of in zip(systems, new, strict=True))
    axes = _axes(blocks, lower[list(nonlinear)], upper[list(nonlinear)])
    ratios = _pairs([e for e in exchanges if e.product], box, linear)
    differences = _pairs([e for e in exchanges if not e.product], box, nonlinear)
    beta = list(linear)
    problem = Separable(blocks, axes, lower[beta], upper[beta], ratios, differences)
    order = np.concatenate([s.order for s in systems])
    return Separated(problem, box, tuple(linear), nonlinear, tuple(exchanges), order)


def _axes(blocks: Sequence[ColumnBlock], lower: FloatArray, upper: FloatArray) -> tuple[Axis, ...]:
    graphs = [b.graph(tuple(range(b.columns.shape[1]))) for b in blocks]
    scales = {j for graph in graphs for j in graph.logarithmic()}
    powers = {j for graph in graphs for j in graph.exponentiated()}
    result = []
    for j, (low, high) in enumerate(zip(lower, upper, strict=True)):
        logarithmic = j in scales and bool(low >= 0)
        wide = logarithmic and bool(high > DECADE_AND_MORE * low > 0)
        result.append(Axis(float(low), float(high), logarithmic, j in powers or wide))
    return tuple(result)


def _exchanged(term: Term, system: _System, exchanges: Sequence[Exchange]) -> Term:
    """The term in new parameters."""
    powers, rates = dict(term.powers), dict(term.rates)
    multiples = dict(_multiples(system.rates(term)) or ())
    for e in exchanges:
        occurs = term.powers if e.product else multiples
        vector = tuple((i, a) for i, a in occurs.items() if i in e.old)
        if not vector:
            continue
        for i, _ in vector:
            del (powers if e.product else rates)[i]
        if e.product:
            powers[e.slot(vector)] = 1.0
        else:
            rates[e.slot(vector)] = term.rates[vector[0][0]] * vector[0][1]
    return Term(term.factor, powers, rates)


def _block(
    system: _System,
    rows: Sequence[Sequence[Term]],
    linear: tuple[int, ...],
    nonlinear: tuple[int, ...],
) -> ColumnBlock:
    p, theta = system.p, ca.SX.sym("theta", len(nonlinear))
    columns = ca.vertcat(*[_columns(own, p, linear) for own in rows])
    if nonlinear:
        columns = ca.substitute(columns, ca.vertcat(*[p[i] for i in nonlinear]), theta)
    first = system.pieces[0]
    return ColumnBlock(
        columns, system.known, theta, first.known, first.combine,
        np.array([s.target for s in system.pieces]),
        np.array([s.weight for s in system.pieces]),
    )  # fmt: skip


def _columns(terms: Sequence[Term], p: Any, linear: tuple[int, ...]) -> Any:
    """SX row (1, 1 + K): what each linear parameter multiplies, first what none does."""
    beta = ca.vertcat(*[p[i] for i in linear])
    columns = [ca.SX(0)] * (1 + len(linear))
    for t in terms:
        own = [i for i in t.powers if i in linear]
        if linear and ca.depends_on(ca.SX(t.factor), beta):  # hidden in a factor: by derivative
            whole = t.expression(p)
            slopes = ca.jacobian(whole, beta)
            parts = [ca.substitute(whole, beta, ca.SX.zeros(len(linear))), *ca.horzsplit(slopes)]
            columns = [c + part for c, part in zip(columns, parts, strict=True)]
            continue
        k = 1 + linear.index(own[0]) if own else 0
        rest = {i: a for i, a in t.powers.items() if i not in linear}
        columns[k] = columns[k] + Term(t.factor, rest, t.rates).expression(p)
    return ca.horzcat(*columns)


def _pairs(result: list[Exchange], box: Box, order: Sequence[int]) -> tuple[ParameterPair, ...]:
    """Bounds on ratios or differences of new parameters, numbered as in `order`."""
    return tuple(
        ParameterPair(
            order.index(e.old[way[1]]), order.index(e.old[way[0]]),
            float(box.lower[i]), float(box.upper[i]),
        )
        for e in result
        for i, way in zip(e.old, e.back, strict=True)
        if len(way) > 1
        and e.old[way[0]] in order and e.old[way[1]] in order
    )  # fmt: skip
