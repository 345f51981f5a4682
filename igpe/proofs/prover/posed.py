"""A dynamic least-squares problem as the tapes and tables that the enclosures read.

CasADi's expressions as tapes.

A right-hand side rewritten so that interval arithmetic is sharp on large boxes.

Interval arithmetic overestimates where a quantity occurs more than once. Each result is expanded to
a sum of products, exactly (coefficients are rational numbers). Quotients whose denominator's terms
are in the numerator too become one operation, a weighted mean of constants (`FRACTION`); what the
terms share is factored out again, so that most parameters occur once.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import Unsupported
from igpe.dynamics.shooting.base import (
    require_bounds,
    require_known_sigma,
    require_numbers,
    require_plain,
)
from igpe.dynamics.shooting.residuals import Unmeasured, measured_only, unmeasured
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import Graph, UnknownOperation
from igpe.problem.experiment import Measurements
from igpe.problem.problem import Problem
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.mueller import Schedule
from igpe.proofs.prover.kernels.tape import OpTape, Writer


class TapeSymbols(NamedTuple):
    """Symbols of the expressions: SX columns of states, parameters, inputs, and time."""

    x: Any
    q: Any
    u: Any
    t: Any


def tape(expressions: Any, symbols: TapeSymbols, index: Sequence[int]) -> OpTape:
    """The expressions as a tape.

    index   which of the problem's unknowns each entry of `symbols.q` is
    raises  UnknownOperation
    """
    variables = ca.vertcat(symbols.x, symbols.q, symbols.u, symbols.t)
    graph = Graph.of(expressions, [variables])
    graph.require(_RULES)
    leaves = [(ops.STATE, i) for i in range(symbols.x.numel())]
    leaves += [(ops.PARAMETER, int(k)) for k in index]
    leaves += [(ops.INPUT, i) for i in range(symbols.u.numel())] + [(ops.TIME, 0)]
    writer = Writer()
    results = graph.evaluate(
        lambda _, i: writer.put(*leaves[i]),
        lambda number: writer.put(ops.CONST, number=number),
        lambda name, operands: _RULES[name](writer, *operands),
    )
    return writer.finished(results)


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda w, a: a,
    "ADD": lambda w, a, b: w.put(ops.ADD, a, b),
    "SUB": lambda w, a, b: w.put(ops.SUB, a, b),
    "MUL": lambda w, a, b: w.product(a, b),
    "DIV": lambda w, a, b: w.quotient(a, b),
    "INV": lambda w, a: w.one_over(a),
    "NEG": lambda w, a: w.put(ops.NEG, a),
    "TWICE": lambda w, a: w.put(ops.MUL, w.put(ops.CONST, number=2.0), a),
    "SQ": lambda w, a: w.put(ops.SQUARE, a),
    "POW": lambda w, a, b: w.power(a, b),
    "CONSTPOW": lambda w, a, b: w.power(a, b),
    "SQRT": lambda w, a: w.function(ops.POWER, a, 0.5),
    "EXP": lambda w, a: w.function(ops.EXP, a),
    "LOG": lambda w, a: w.function(ops.LOG, a),
    "SIN": lambda w, a: w.function(ops.SIN, a),
    "COS": lambda w, a: w.function(ops.COS, a),
    "TANH": lambda w, a: w.tanh(a),
}
"""By CasADi's name of the operation."""


MOST_TERMS = 60  # of a sum that is multiplied out

Monomial = tuple[tuple[int, int], ...]  # (atom, power), sorted
Sum = dict[Monomial, Fraction]
Term = tuple[Fraction, Counter[int]]


class _TooLong(Exception):
    """Multiplied out, the expression has too many terms."""


def factored(tape: OpTape) -> OpTape:
    """The same expressions, factored; the tape itself where they are too long for that."""
    if any(code not in _KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return tape
    rewriter = _Rewriter(tape)
    try:
        results = [rewriter.emitted(rewriter.expanded(int(r))) for r in tape.results]
    except _TooLong:
        return tape
    return rewriter.writer.needed_only(results)


_LEAVES = frozenset({ops.STATE, ops.PARAMETER, ops.INPUT, ops.TIME})
_KNOWN = _LEAVES | {ops.CONST, ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.NEG, ops.SQUARE}


class _Rewriter:
    """Atoms are places on the tape, and, counted down from -1, one over a sum."""

    def __init__(self, tape: OpTape) -> None:
        self.writer = Writer.of(tape)
        self.sums: dict[int, Sum] = {}
        self.inverses: list[tuple[tuple[Monomial, Fraction], ...]] = []

    def expanded(self, place: int) -> Sum:
        """Expand the operation at a place into a sum of products."""
        if place not in self.sums:
            terms = {m: c for m, c in self._expanded(place).items() if c}
            if len(terms) > MOST_TERMS:
                raise _TooLong
            self.sums[place] = terms
        return self.sums[place]

    def _expanded(self, place: int) -> Sum:
        op, a, b, number = self.writer.rows[place]
        if op == ops.CONST:
            return {(): Fraction(number)}
        if op in _LEAVES:
            return {((place, 1),): Fraction(1)}
        one = self.expanded(a)
        if op == ops.NEG:
            return {m: -c for m, c in one.items()}
        if op == ops.SQUARE:
            return _product(one, one)
        two = self.expanded(b)
        if op == ops.MUL:
            return _product(one, two)
        if op == ops.DIV:
            return _product(one, self._inverse(two))
        sign = 1 if op == ops.ADD else -1
        return {m: one.get(m, Fraction(0)) + sign * two.get(m, Fraction(0)) for m in one | two}

    def _inverse(self, given: Sum) -> Sum:
        if not given:
            raise _TooLong
        if len(given) == 1:
            ((monomial, c),) = given.items()
            if not monomial:
                return {(): 1 / c}
        key = tuple(sorted(given.items()))
        if key not in self.inverses:
            self.inverses.append(key)
        return {((-1 - self.inverses.index(key), 1),): Fraction(1)}

    def emitted(self, given: Sum) -> int:
        """Write a sum; return its place."""
        terms: list[Term] = []
        left = dict(given)
        for k, inverse in enumerate(self.inverses):
            mine = {m: c for m, c in left.items() if dict(m).get(-1 - k)}
            left = {m: c for m, c in left.items() if m not in mine}
            terms += self._over(_without(mine, -1 - k), -1 - k, dict(inverse))
        terms += [(c, Counter(dict(m))) for m, c in left.items()]
        return self._factor(terms)

    def _over(self, above: Sum, inverse: int, below: Sum) -> list[Term]:
        """Terms of above / below, as far as possible with fractions in place of the quotient."""
        terms: list[Term] = []
        if min(below.values()) > 0 and len(below) > 1:
            while above:
                shares: dict[Monomial, dict[Monomial, Fraction]] = {}
                for m, c in above.items():
                    for t, d in below.items():
                        rest = _divided(m, t)
                        if rest is not None and _is_double(c / d):
                            shares.setdefault(rest, {})[t] = c / d
                if not shares:
                    break
                rest, weights = max(shares.items(), key=lambda item: len(item[1]))
                terms.append((Fraction(1), Counter(dict(rest)) + self._fraction(below, weights)))
                for t in weights:
                    del above[_times(rest, t)]
        for m, c in above.items():
            terms.append((c, Counter(dict(m)) + Counter({inverse: 1})))
        return terms

    def _fraction(self, below: Sum, weights: dict[Monomial, Fraction]) -> Counter[int]:
        places = [self._factor([(d, Counter(dict(t)))]) for t, d in below.items()]
        numbers = [float(weights.get(t, 0)) for t in below]
        return Counter({self.writer.fraction(places, numbers): 1})

    def _factor(self, terms: Sequence[Term]) -> int:
        """A sum, after what most of its terms share is taken out of them."""
        if not terms:
            return self.writer.put(ops.CONST)
        counts = Counter(atom for _, factors in terms for atom in factors)
        if len(terms) == 1 or not counts or max(counts.values()) == 1:
            return self._plain_sum([self._product(*term) for term in terms])
        atom = max(counts, key=lambda a: (counts[a], self._op(a) == ops.PARAMETER, a))
        one = Counter({atom: 1})
        inner = self._factor([(c, f - one) for c, f in terms if f[atom]])
        outer = [term for term in terms if not term[1][atom]]
        product = self.writer.product(self._place(atom), inner)
        return self._plain_sum([product, self._factor(outer)] if outer else [product])

    def _op(self, atom: int) -> int:
        return self.writer.rows[atom][0] if atom >= 0 else ops.CLOSE

    def _plain_sum(self, places: Sequence[int]) -> int:
        total = places[0]
        for place in places[1:]:
            total = self.writer.put(ops.ADD, total, place)
        return total

    def _product(self, c: Fraction, factors: Counter[int]) -> int:
        product: int | None = None
        for atom, power in sorted(factors.items()):
            one = self.writer.whole_power(self._place(atom), power)
            product = one if product is None else self.writer.product(product, one)
        if product is None:
            return self._constant(c)
        if c == -1:
            return self.writer.put(ops.NEG, product)
        return product if c == 1 else self.writer.product(self._constant(c), product)

    def _constant(self, c: Fraction) -> int:
        if _is_double(c):
            return self.writer.put(ops.CONST, number=float(c))
        parts = Fraction(c.numerator), Fraction(c.denominator)
        if not all(map(_is_double, parts)):
            raise _TooLong
        return self.writer.quotient(*map(self._constant, parts))

    def _place(self, atom: int) -> int:
        if atom >= 0:
            return atom
        return self.writer.one_over(self.emitted(dict(self.inverses[-1 - atom])))


def _product(one: Sum, two: Sum) -> Sum:
    if len(one) * len(two) > MOST_TERMS**2:
        raise _TooLong
    product: Sum = {}
    for m, c in one.items():
        for n, d in two.items():
            both = _times(m, n)
            product[both] = product.get(both, Fraction(0)) + c * d
    return {m: c for m, c in product.items() if c}


def _times(one: Monomial, two: Monomial) -> Monomial:
    powers = dict(one)
    for atom, power in two:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items()))


def _divided(one: Monomial, two: Monomial) -> Monomial | None:
    powers = dict(one)
    for atom, power in two:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple(sorted((a, p) for a, p in powers.items() if p))


def _without(given: Sum, atom: int) -> Sum:
    """Each term without one factor."""
    return {_divided(m, ((atom, 1),)) or (): c for m, c in given.items()}


def _is_double(c: Fraction) -> bool:
    try:
        return Fraction(float(c)) == c
    except OverflowError:
        return False


class PosedExperiment(NamedTuple):
    """One experiment: tapes of slopes, measured quantities and start values, and what is measured.

    sharp   the slopes again, as interval arithmetic likes them
    labels  one for each row: (experiment, time, quantity)
    """

    tapes: tuple[OpTape, OpTape, OpTape]
    sharp: OpTape
    schedule: Schedule
    labels: tuple[tuple[str, float, str], ...]


class Dynamic(NamedTuple):
    """The whole problem: its experiments, and the residuals that hang on no measurement."""

    experiments: tuple[PosedExperiment, ...]
    unmeasured: Unmeasured
    lower: FloatArray
    upper: FloatArray


def posed(problem: Problem) -> Dynamic:
    """The problem for `igpe.certify`.

    raises  Unsupported for what has no enclosure here, ProblemError without bounds
    """
    name = "igpe.certify"
    require_plain(problem, name, constraints_too=True)
    require_known_sigma(problem, name)
    require_numbers(problem, name)
    require_bounds(problem, name)
    runs = tuple(_experiment(problem, k) for k in range(len(problem.experiments)))
    box = problem.box
    return Dynamic(runs, unmeasured(problem), box.lower.astype(float), box.upper.astype(float))


def _experiment(problem: Problem, k: int) -> PosedExperiment:
    experiment = problem.experiments[k]
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            f"igpe.certify needs explicit slopes, but {', '.join(ivp.implicit)} can only be solved "
            "numerically; write the model's equations so that they can be solved one by one."
        )
    measurements = measured_only(experiment.measurements)
    ivp = ivp.without_conditions(measurements.times)
    index = [problem.box.names.index(n) for n in ivp.unknowns]
    symbols = TapeSymbols(ivp.x, ivp.q, ivp.u, ivp.t)
    try:
        tapes = tuple(tape(part, symbols, index) for part in (ivp.f, ivp.measured, ivp.start))
    except UnknownOperation as error:
        raise Unsupported(
            f"The model uses {error}. igpe.certify has no bounds for that; it "
            "knows + - * / ** exp log sqrt sin cos tanh."
        ) from None
    order = np.lexsort((measurements.column, measurements.row))
    column, value = measurements.column[order], measurements.value[order]
    labels = tuple(
        (experiment.name, float(measurements.times[r]), measurements.names[c])
        for r, c in zip(measurements.row[order], column, strict=True)
    )
    schedule = _schedule(ivp, measurements)._replace(
        column=column.astype(np.int64), value=value, weight=1 / measurements.sigma[order]
    )
    return PosedExperiment((tapes[0], tapes[1], tapes[2]), factored(tapes[0]), schedule, labels)


def _schedule(ivp: InitialValueProblem, m: Measurements) -> Schedule:
    last = float(m.times[-1])
    stops = np.array(sorted({*m.times.tolist(), *ivp.breaks(last)}))
    begins = np.concatenate([[ivp.t0], stops[:-1]])
    inputs = [np.stack(ivp.input_segment(float(t)), axis=1) for t in begins]
    first = np.searchsorted(np.sort(m.times[m.row]), stops)
    return Schedule(
        float(ivp.t0),
        stops,
        np.append(first, len(m.row)).astype(np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros(0),
        np.zeros(0),
        np.array(inputs).reshape(len(stops), len(ivp.tables), 2),
        np.asarray(ivp.largest, dtype=float),
    )
