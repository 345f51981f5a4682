"""From residuals as the model writes them to a separable problem, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from igpe.algebraic.base import Contribution, at_same_places
from igpe.algebraic.bounds.separable import Axis, ColumnBlock, ParameterPair, Separable
from igpe.algebraic.bounds.taylor.graph import TaylorGraph
from igpe.algebraic.bounds.taylor.terms import (
    Exchange,
    Term,
    Vector,
    exchanges,
    terms_of,
)
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.box import Box
from igpe.equations.system import linear_parameters

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
    found = [*_products(systems, box), *_sums(systems)] if exchange else []
    result = _separated(systems, p, box, found)
    if {i for e in found if e.product for i in e.old} <= set(result.linear):
        return result
    return _separated(systems, p, box, [e for e in found if not e.product])


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
    systems: Sequence[_System], p: Any, box: Box, found: Sequence[Exchange]
) -> Separated:
    new = [[[_exchanged(t, s, found) for t in own] for own in s.terms] for s in systems]
    slopes = [sum((t.expression(p) for t in own), ca.SX(0)) for of in new for own in of]
    linear = linear_parameters(ca.vertcat(*slopes), p).jointly
    nonlinear = tuple(i for i in range(len(box)) if i not in linear)
    lower, upper = box.lower.astype(float).copy(), box.upper.astype(float).copy()
    old = {i: (float(box.lower[i]), float(box.upper[i])) for i in range(len(box))}
    for e in found:
        lower[list(e.old)], upper[list(e.old)] = np.array(e.bounds(old)).T
    blocks = tuple(_block(s, of, linear, nonlinear) for s, of in zip(systems, new, strict=True))
    axes = _axes(blocks, lower[list(nonlinear)], upper[list(nonlinear)])
    ratios = _pairs([e for e in found if e.product], box, linear)
    differences = _pairs([e for e in found if not e.product], box, nonlinear)
    beta = list(linear)
    problem = Separable(blocks, axes, lower[beta], upper[beta], ratios, differences)
    order = np.concatenate([s.order for s in systems])
    return Separated(problem, box, tuple(linear), nonlinear, tuple(found), order)


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


def _exchanged(term: Term, system: _System, found: Sequence[Exchange]) -> Term:
    """The term in new parameters."""
    powers, rates = dict(term.powers), dict(term.rates)
    multiples = dict(_multiples(system.rates(term)) or ())
    for e in found:
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
