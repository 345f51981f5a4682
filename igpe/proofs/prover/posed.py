"""A dynamic least-squares problem as the tapes and tables that the enclosures read.

Tubes over large boxes read right-hand sides multiplied out, exactly, and factored anew: interval
arithmetic overestimates where a quantity occurs more than once. Each result is expanded to a sum of
products; coefficients are rational numbers. Quotients whose denominator's terms are in the
numerator too become one operation, a weighted mean of constants (`FRACTION`); what the terms share
is factored out again, so that most parameters occur once.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import IgpeError, Unsupported
from igpe.dynamics.shooting.base import refuse, require_bounds, require_plain
from igpe.dynamics.shooting.residuals import Unmeasured, measured_only, unmeasured
from igpe.equations.compiled import compiled, require_smooth_and_normal
from igpe.equations.operations import Graph, UnknownOperation
from igpe.equations.shared_rates import doubles, times, with_shared_rates
from igpe.equations.undefined import quotient_by_zero, root_of_zero
from igpe.problem.problem import Problem
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape, Schedule, Writer

QUOTIENT = "a quotient by 0"


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
        lambda number: writer.put(ops.CONST, number=_finite(number)),
        lambda name, operands: _RULES[name](writer, *operands),
    )
    return writer.finished(results)


def _finite(number: float) -> float:
    if not np.isfinite(number):
        raise UnknownOperation(QUOTIENT)
    return number


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda w, a: a,
    "ADD": lambda w, a, b: w.put(ops.ADD, a, b),
    "SUB": lambda w, a, b: w.put(ops.SUB, a, b),
    "MUL": lambda w, a, b: w.product(a, b),
    "DIV": lambda w, a, b: w.put(ops.DIV, a, b),
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


def posed(problem: Problem, owner: str = "igpe.certify") -> Dynamic:
    """The problem for a proof that the user asked of `owner`.

    raises  Unsupported for what has no enclosure here, ProblemError without bounds
    """
    require_plain(problem, owner, constraints_too=True)
    require_smooth_and_normal(problem, owner)
    given = "estimated sigma", "censored", "correlated", "weights follow fit"
    refuse(problem, owner, *given)
    require_bounds(problem, owner)
    runs = tuple(_experiment(problem, k, owner) for k in range(len(problem.experiments)))
    box = problem.box
    return Dynamic(runs, unmeasured(problem), box.lower.astype(float), box.upper.astype(float))


def refusal(problem: Problem) -> str:
    """Why `igpe.certify` refuses the problem; empty if it does not."""
    try:
        posed(problem)
    except IgpeError as error:
        return str(error)
    return ""


def _experiment(problem: Problem, k: int, owner: str) -> PosedExperiment:
    experiment = problem.experiments[k]
    if compiled(problem).systems[k].flow is not None:
        raise Unsupported(
            f"{owner} supports higher-index models only if the constraints are "
            "linear in the states that they constrain. Rewrite the model with independent "
            "states, without constraints between them."
        )
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            f"{owner} needs explicit slopes, but {', '.join(ivp.implicit)} can only be "
            "computed numerically. Write the equations so that each can be solved explicitly for "
            "one variable."
        )
    measurements = measured_only(experiment.measurements)
    box, ivp = problem.box, ivp.without_conditions(measurements.times)
    if root := root_of_zero(ivp):
        raise Unsupported(
            f"{owner} cannot bound {root} at the start of experiment '{experiment.name}': it "
            "lacks derivatives where its base is 0. Choose start values, inputs or a start time "
            "at which its base is positive."
        )
    index = [box.names.index(n) for n in ivp.unknowns]
    ivp = with_shared_rates(ivp, box.lower[index], box.upper[index]).ivp
    symbols = TapeSymbols(ivp.x, ivp.q, ivp.u, ivp.t)
    try:
        tapes = tuple(tape(part, symbols, index) for part in (ivp.f, ivp.measured, ivp.start))
    except UnknownOperation as error:
        if str(error) == QUOTIENT:
            refuse_quotient_by_zero(problem, k, owner)
        raise Unsupported(
            f"The model uses {error}, for which {owner} has no bounds. {owner} "
            "supports + - * / ** exp log sqrt sin cos tanh."
        ) from None
    m, order = measurements, np.lexsort((measurements.column, measurements.row))
    column = m.column[order]
    labels = tuple(
        (experiment.name, float(m.times[r]), m.names[c])
        for r, c in zip(m.row[order], column, strict=True)
    )
    stops = np.array(sorted({*m.times.tolist(), *ivp.breaks(float(m.times[-1]))}))
    begins = np.concatenate([[ivp.t0], stops[:-1]])
    inputs = [np.stack(ivp.input_segment(float(t)), axis=1) for t in begins]
    first = np.searchsorted(np.sort(m.times[m.row]), stops)
    schedule = Schedule(
        float(ivp.t0),
        stops,
        np.append(first, len(m.row)).astype(np.int64),
        column.astype(np.int64),
        m.value[order],
        1 / m.sigma[order],
        np.array(inputs).reshape(len(stops), len(ivp.tables), 2),
        np.asarray(ivp.largest, dtype=float),
    )
    three = tapes[0], tapes[1], tapes[2]
    return PosedExperiment(three, factored(tapes[0]), schedule, labels)


def refuse_quotient_by_zero(problem: Problem, k: int, owner: str = "igpe.certify") -> None:
    """Raise Unsupported if an input makes the divisor of a quotient in experiment `k` 0."""
    run = problem.experiments[k]
    if why := quotient_by_zero(problem, k, measured_only(run.measurements).times):
        raise Unsupported(
            f"{owner} cannot bound {QUOTIENT}: in experiment '{run.name}', {why}. Write the "
            "equation without it, such as u/(u + K) for 1/(1 + K/u)."
        )


MOST_TERMS = 60  # of a sum that is multiplied out

Monomial = tuple[tuple[int, int], ...]  # (atom, power), sorted
Sum = dict[Monomial, Fraction]
Term = tuple[Fraction, Counter[int]]


class TooManyTerms(Exception):
    """Multiplied out, the expression has too many terms."""


def factored(tape: OpTape) -> OpTape:
    """The same expressions, factored; the tape itself where they are too long for that."""
    if any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return tape
    rewriter = Rewriter(tape)
    try:
        results = [rewriter.emitted(rewriter.expanded(int(r))) for r in tape.results]
    except TooManyTerms:
        return tape
    return rewriter.writer.needed_only(results)


KNOWN = ops.LEAVES | ops.BINARY | {ops.NEG, ops.SQUARE}


class Rewriter:
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
                raise TooManyTerms
            self.sums[place] = terms
        return self.sums[place]

    def _expanded(self, place: int) -> Sum:
        op, a, b, number = self.writer.rows[place]
        if op == ops.CONST:
            return {(): Fraction(number)}
        if op in ops.LEAVES:
            return {((place, 1),): Fraction(1)}
        one = self.expanded(a)
        if op == ops.NEG:
            return {m: -c for m, c in one.items()}
        two = self.expanded(a if op == ops.SQUARE else b)
        if op in (ops.ADD, ops.SUB):
            sign = 1 if op == ops.ADD else -1
            return {m: one.get(m, Fraction(0)) + sign * two.get(m, Fraction(0)) for m in one | two}
        if op == ops.DIV:
            if not two:
                raise TooManyTerms
            if list(two) == [()]:
                two = {(): 1 / two[()]}
            else:
                key = tuple(sorted(two.items()))
                self.inverses += [] if key in self.inverses else [key]
                two = {((-1 - self.inverses.index(key), 1),): Fraction(1)}
        if len(one) * len(two) > MOST_TERMS**2:
            raise TooManyTerms
        product: Sum = {}
        for m, c in one.items():
            for n, d in two.items():
                both = times(m, n)
                product[both] = product.get(both, Fraction(0)) + c * d
        return product

    def emitted(self, given: Sum) -> int:
        """Write a sum; return its place."""
        terms: list[Term] = []
        left = dict(given)
        for k, inverse in enumerate(self.inverses):
            own = {m: c for m, c in left.items() if dict(m).get(-1 - k)}
            left = {m: c for m, c in left.items() if m not in own}
            above = {times(m, ((-1 - k, -1),)): c for m, c in own.items()}
            terms += self._over(above, -1 - k, dict(inverse))
        terms += [(c, Counter(dict(m))) for m, c in left.items()]
        return self._factor(terms)

    def _over(self, above: Sum, inverse: int, below: Sum) -> list[Term]:
        """Terms of above / below, as far as possible with fractions in place of the quotient."""
        terms: list[Term] = []
        while above and min(below.values()) > 0 and len(below) > 1:
            shares: dict[Monomial, dict[Monomial, Fraction]] = {}
            for m, c in above.items():
                for t, d in below.items():
                    rest = times(m, tuple((atom, -power) for atom, power in t))
                    if all(power > 0 for _, power in rest) and len(doubles(c / d)) == 1:
                        shares.setdefault(rest, {})[t] = c / d
            if not shares:
                break
            rest, weights = max(shares.items(), key=lambda item: len(item[1]))
            places = [self._factor([(d, Counter(dict(t)))]) for t, d in below.items()]
            mean = self.writer.fraction(places, [float(weights.get(t, 0)) for t in below])
            terms.append((Fraction(1), Counter(dict(rest)) + Counter({mean: 1})))
            for t in weights:
                del above[times(rest, t)]
        one = Counter({inverse: 1})
        return terms + [(c, Counter(dict(m)) + one) for m, c in above.items()]

    def _factor(self, terms: Sequence[Term]) -> int:
        """A sum, after what most of its terms share is taken out of them."""
        if not terms:
            return self.writer.put(ops.CONST)
        counts = Counter(atom for _, factors in terms for atom in factors)
        if len(terms) == 1 or not counts or max(counts.values()) == 1:
            places = [self._product(*term) for term in terms]
        else:
            operations = {a: self.writer.rows[a][0] for a in counts if a >= 0}
            parameters = {a for a, op in operations.items() if op == ops.PARAMETER}
            atom = max(counts, key=lambda a: (counts[a], a in parameters, a))
            one = Counter({atom: 1})
            inner = self._factor([(c, f - one) for c, f in terms if f[atom]])
            outer = [term for term in terms if not term[1][atom]]
            places = [self.writer.product(self._place(atom), inner)]
            places += [self._factor(outer)] if outer else []
        return reduce(lambda total, place: self.writer.put(ops.ADD, total, place), places)

    def _product(self, c: Fraction, factors: Counter[int]) -> int:
        places = [
            self.writer.whole_power(self._place(atom), n) for atom, n in sorted(factors.items())
        ]
        if not places:
            return self._constant(c)
        product = reduce(self.writer.product, places)
        if c == -1:
            return self.writer.put(ops.NEG, product)
        return product if c == 1 else self.writer.product(self._constant(c), product)

    def _constant(self, c: Fraction) -> int:
        if parts := doubles(c):
            places = [self.writer.put(ops.CONST, number=part) for part in parts]
            return reduce(lambda one, other: self.writer.put(ops.ADD, one, other), places)
        above, below = map(Fraction, c.as_integer_ratio())
        if not (doubles(above) and doubles(below)):
            raise TooManyTerms
        return self.writer.put(ops.DIV, self._constant(above), self._constant(below))

    def _place(self, atom: int) -> int:
        if atom >= 0:
            return atom
        return self.writer.one_over(self.emitted(dict(self.inverses[-1 - atom])))
