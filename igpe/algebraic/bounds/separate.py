"""From residuals as the model writes them to a separable problem, and back.

Residuals that can be computed together: at the same places, or by the same formula elsewhere.

The same reactions in several experiments give the same formula with other numbers in it, such as
start values. These become something known at each place, and the experiments one: enclosures, whose
cost is in the number of formulas far more than in that of places, are computed for all at once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import casadi as ca
import numpy as np

from igpe.algebraic.bounds.separable import Axis, ColumnBlock, ParameterPair, Separable
from igpe.algebraic.bounds.taylor.graph import TaylorGraph
from igpe.algebraic.bounds.taylor.terms import (
    Exchange,
    Term,
    Vector,
    exchanges,
    product_bounds,
    sum_bounds,
    terms_of,
)
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.equations.operations import Graph, apply_to_sx
from igpe.equations.system import linear_parameters


class ResidualSource(Protocol):
    """Residuals weight * (target - combine @ predict(known, p)), as `algebraic` poses them."""

    @property
    def predict(self) -> Any: ...
    @property
    def known(self) -> FloatArray: ...
    @property
    def combine(self) -> FloatArray | None: ...
    @property
    def target(self) -> FloatArray: ...
    @property
    def weight(self) -> FloatArray: ...


@dataclass(frozen=True)
class Together:
    """A source made of several; its fields are those of `ResidualSource`."""

    predict: Any
    known: FloatArray
    combine: FloatArray | None
    target: FloatArray
    weight: FloatArray


class ResidualGroup(NamedTuple):
    """Sources at the same places, and which of all residuals theirs are, one after the other."""

    sources: list[ResidualSource]
    order: IntArray


def grouped(sources: Sequence[ResidualSource]) -> list[ResidualGroup]:
    """All residuals in as few groups as there are formulas and sets of places."""
    ends = np.cumsum([len(s.target) for s in sources])
    rows = [np.arange(end - len(s.target), end) for s, end in zip(sources, ends, strict=True)]
    families: dict[Hashable, list[list[int]]] = {}
    for own in _at_the_same_places(sources):
        shape = tuple(_shape(sources[i]) for i in own)
        families.setdefault(shape, []).append(own)
    return [_joined(sources, rows, family) for family in families.values()]


def _at_the_same_places(sources: Sequence[ResidualSource]) -> list[list[int]]:
    """Indices of sources that know the same numbers at the same places."""
    groups: list[list[int]] = []
    for i, s in enumerate(sources):
        for group in groups:
            first = sources[group[0]]
            is_aligned = len(first.target) == len(s.target)
            if is_aligned and _same(first.known, s.known) and _same(first.combine, s.combine):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _same(a: FloatArray | None, b: FloatArray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _shape(source: ResidualSource) -> Hashable:
    """Equal for formulas that differ in their numbers alone."""
    graph = Graph.of_function(source.predict, merged=False)
    steps = tuple(node._replace(value=0.0) for node in graph.nodes)
    width = None if source.combine is None else source.combine.shape[1]
    return source.known.shape[0], width, steps, tuple(graph.results)


class _Formula(NamedTuple):
    """Sources of one shape.

    numbers    (n_sources, n_constants) in each, in the order of the instructions
    different  (n_constants,) which are not the same in all
    """

    sources: list[ResidualSource]
    numbers: FloatArray
    different: BoolArray

    def together(self, known: FloatArray, at: int) -> Together:
        """All of them as one; numbers that are different are rows of `known` from `at` on."""
        first = self.sources[0]
        new, p = ca.SX.sym("known", len(known)), first.predict.sx_in(1)
        rows = iter(np.where(self.different, at + np.cumsum(self.different) - 1, -1).tolist())

        def constant(number: float) -> Any:  # called in the order of the nodes
            row = next(rows)
            return ca.SX(number) if row < 0 else new[row]

        def given(argument: int, i: int) -> Any:
            return new[i] if argument == 0 else p[i]

        graph = Graph.of_function(first.predict, merged=False)
        (result,) = graph.evaluate(given, constant, apply_to_sx)
        combine = [s.combine for s in self.sources if s.combine is not None]
        return Together(
            ca.Function("predict", [new, p], [result]),
            known,
            np.vstack(combine) if combine else None,
            np.concatenate([s.target for s in self.sources]),
            np.concatenate([s.weight for s in self.sources]),
        )


def _joined(
    sources: Sequence[ResidualSource], rows: Sequence[IntArray], family: Sequence[Sequence[int]]
) -> ResidualGroup:
    """One group of several, whose formulas are the same one by one."""
    order = np.concatenate([rows[i] for same in zip(*family, strict=True) for i in same])
    if len(family) == 1:
        return ResidualGroup([sources[i] for i in family[0]], order)
    formulas = [_formula([sources[i] for i in same]) for same in zip(*family, strict=True)]
    old = [sources[own[0]].known for own in family]
    numbers = np.hstack([f.numbers[:, f.different] for f in formulas])
    more = np.repeat(numbers.T, [k.shape[1] for k in old], axis=1)
    known, at = np.vstack([np.hstack(old), more]), len(old[0])
    result: list[ResidualSource] = []
    for formula in formulas:
        result.append(formula.together(known, at))
        at += int(formula.different.sum())
    return ResidualGroup(result, order)


def _formula(sources: list[ResidualSource]) -> _Formula:
    numbers = np.array([_constants(s.predict) for s in sources])
    return _Formula(sources, numbers, (numbers != numbers[0]).any(axis=0))


def _constants(function: Any) -> list[float]:
    nodes = Graph.of_function(function, merged=False).nodes
    return [node.value for node in nodes if node.name == "CONST"]


DECADE_AND_MORE = 30.0  # ratio of bounds from which cells are enclosed in the logarithm


@dataclass(frozen=True)
class Separated:
    """A separable problem and the way back.

    linear, nonlinear  which of the new parameters are its beta and theta; there are as many new
                       ones as old ones, and an exchange puts its new ones in the old ones' places
    order              of the sources' residuals in the problem
    """

    problem: Separable
    box: Box
    linear: tuple[int, ...]
    nonlinear: tuple[int, ...]
    products: tuple[Exchange, ...]
    sums: tuple[Exchange, ...]
    order: IntArray

    def residual(self, p: FloatArray) -> FloatArray:
        """Residuals of the separable problem at old parameters; `order` sorts the sources' so."""
        new = self._new(p)
        (columns,) = self.problem.values(new[None, list(self.nonlinear)])
        predicted = columns[:, 0] + columns[:, 1:] @ new[list(self.linear)]
        return np.asarray(self.problem.target - predicted)

    def theta(self, p: FloatArray) -> FloatArray:
        """The nonlinear parameters (J,) at old ones."""
        return self._new(p)[list(self.nonlinear)]

    def _new(self, p: FloatArray) -> FloatArray:
        new = p.copy()
        for e in self.products:
            new[list(e.old)] = [np.prod([p[i] ** a for i, a in vector]) for vector in e.vectors]
        for e in self.sums:
            new[list(e.old)] = [sum(a * p[i] for i, a in vector) for vector in e.vectors]
        return new

    def parameters(self, theta: FloatArray, beta: FloatArray) -> FloatArray:
        """The old parameters, clipped into their box."""
        new = np.empty(len(self.box))
        new[list(self.linear)], new[list(self.nonlinear)] = beta, theta
        p = new.copy()
        for e in self.products:
            p[list(e.old)] = e.old_values(new[list(e.old)], np.divide)
        for e in self.sums:
            p[list(e.old)] = e.old_values(new[list(e.old)], np.subtract)
        middle = (self.box.lower + self.box.upper) / 2
        return self.box.clip(np.where(np.isfinite(p), p, middle))


def separate(sources: Sequence[ResidualSource], box: Box, *, exchange: bool = True) -> Separated:
    """Find the linear parameters and new ones, and write the columns.

    sources   residuals, all functions of the same parameters
    exchange  whether to look for new parameters
    raises    UnknownOperation if an operation has no enclosure
    """
    p = ca.SX.sym("p", len(box))
    systems = [_System(group, p) for group in grouped(sources)]
    products, sums = (_products(systems, box), _sums(systems)) if exchange else ([], [])
    result = _separated(systems, p, box, products, sums)
    slots = {i for e in products for i in e.old}
    if slots <= set(result.linear):
        return result
    return _separated(systems, p, box, [], sums)


class _System:
    """Sources at the same places, as terms."""

    def __init__(self, group: ResidualGroup, p: Any) -> None:
        self.sources, self.order = group
        self.known = ca.SX.sym("known", self.sources[0].known.shape[0])
        whole = [s.predict(self.known, p) for s in self.sources]
        TaylorGraph(
            ca.vertcat(*whole), self.known, p
        )  # operations that have no enclosure are refused
        self.terms = [terms_of(w, self.known, p) for w in whole]
        self.p = p

    def rates(self, term: Term) -> dict[int, FloatArray]:
        """(n_places,) numbers of the term's rates."""
        names = list(term.rates)
        if not names:
            return {}
        function = ca.Function("rates", [self.known], [ca.vertcat(*term.rates.values())])
        return dict(zip(names, function(self.sources[0].known).full(), strict=True))


def _factors(systems: Sequence[_System]) -> set[int]:
    """Parameters that occur in a factor."""
    p = systems[0].p
    factors = ca.vertcat(*[t.factor for s in systems for own in s.terms for t in own])
    return {i for i in range(p.numel()) if ca.depends_on(factors, p[i])}


def _products(systems: Sequence[_System], box: Box) -> list[Exchange]:
    terms = [t for s in systems for own in s.terms for t in own]
    taken = _factors(systems) | {i for t in terms for i in t.rates}
    allowed = {i for i in range(len(box)) if i not in taken and box.lower[i] >= 0}
    return exchanges([tuple(t.powers.items()) for t in terms], allowed)


def _sums(systems: Sequence[_System]) -> list[Exchange]:
    terms = [(s, t) for s in systems for own in s.terms for t in own]
    taken = _factors(systems) | {i for _, t in terms for i in t.powers}
    vectors = [_multiples(s.rates(t)) for s, t in terms]
    lost = {i for (_, t), v in zip(terms, vectors, strict=True) if v is None for i in t.rates}
    allowed = {i for i in range(systems[0].p.numel()) if i not in taken | lost}
    return exchanges([v for v in vectors if v], allowed)


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
    systems: Sequence[_System], p: Any, box: Box, products: list[Exchange], sums: list[Exchange]
) -> Separated:
    new = [[_exchanged(t, s, products, sums) for t in own] for s in systems for own in s.terms]
    whole = ca.vertcat(*[sum((t.expression(p) for t in own), ca.SX(0)) for own in new])
    linear = linear_parameters(whole, p).jointly
    nonlinear = tuple(i for i in range(len(box)) if i not in linear)
    lower, upper = _bounds(box, products, sums)
    rows = iter(new)
    blocks = tuple(_block(s, [next(rows) for _ in s.sources], linear, nonlinear) for s in systems)
    axes = _axes(blocks, lower[list(nonlinear)], upper[list(nonlinear)])
    pick = list(linear)
    problem = Separable(
        blocks, axes, lower[pick], upper[pick],
        ratios=_pairs(products, box, linear), differences=_pairs(sums, box, nonlinear),
    )  # fmt: skip
    order = np.concatenate([s.order for s in systems])
    return Separated(problem, box, tuple(linear), nonlinear, tuple(products), tuple(sums), order)


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


def _exchanged(term: Term, system: _System, products: list[Exchange], sums: list[Exchange]) -> Term:
    """The term in new parameters."""
    powers, rates = dict(term.powers), dict(term.rates)
    for e in products:
        vector = tuple((i, a) for i, a in term.powers.items() if i in e.old)
        for i, _ in vector:
            del powers[i]
        if vector:
            powers[e.slot(vector)] = 1.0
    multiples = dict(_multiples(system.rates(term)) or ())
    for e in sums:
        vector = tuple((i, a) for i, a in multiples.items() if i in e.old)
        if vector:
            first = term.rates[vector[0][0]]
            for i, _ in vector:
                del rates[i]
            rates[e.slot(vector)] = first * vector[0][1]
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
    first = system.sources[0]
    return ColumnBlock(
        columns, system.known, theta, first.known, first.combine,
        np.array([s.target for s in system.sources]),
        np.array([s.weight for s in system.sources]),
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


def _bounds(
    box: Box, products: list[Exchange], sums: list[Exchange]
) -> tuple[FloatArray, FloatArray]:
    """Of the new parameters."""
    lower, upper = box.lower.astype(float).copy(), box.upper.astype(float).copy()
    old = {i: (float(box.lower[i]), float(box.upper[i])) for i in range(len(box))}
    for result, bounds in ((products, product_bounds), (sums, sum_bounds)):
        for e in result:
            for i, vector in zip(e.old, e.vectors, strict=True):
                lower[i], upper[i] = bounds(vector, old)
    return lower, upper


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
