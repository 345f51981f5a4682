"""Experiments as the checker reads them: tapes for slopes, starts and measured quantities.

Priors are measurements of the unknowns themselves: they join the first experiment's, at its start.
CasADi's expressions become lists of operations (`kernels.intervals`). Inputs given by tables are
straight lines between two stops: on a line through (t_0, y_0) with slope b an input is
y_0 + b (t - t_0). The slope is an interval that holds (y_1 - y_0) / (t_1 - t_0), rounded or not.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import product as pairs
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import Unsupported
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.operations import OPERATION_NAMES, in_words
from igpe.equations.shared_rates import with_shared_rates
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.proofs.checker.interval import Interval, point
from igpe.proofs.checker.kernels import intervals
from igpe.proofs.checker.kernels.integration import Program

LEAF_KINDS = (intervals.TIME, intervals.STATE, intervals.PARAMETER, intervals.INPUT)
BINARY = {
    ca.OP_ADD: intervals.ADD,
    ca.OP_SUB: intervals.SUB,
    ca.OP_MUL: intervals.MUL,
    ca.OP_DIV: intervals.DIV,
}
UNARY = {ca.OP_NEG: intervals.NEG, ca.OP_SQ: intervals.SQUARE} | {
    operation: intervals.FUNCTION + function
    for operation, function in {
        ca.OP_SQRT: intervals.SQRT,
        ca.OP_EXP: intervals.EXP,
        ca.OP_LOG: intervals.LOG,
        ca.OP_SIN: intervals.SIN,
        ca.OP_COS: intervals.COS,
    }.items()
}
OTHERS = {
    ca.OP_INPUT, ca.OP_OUTPUT, ca.OP_CONST, ca.OP_ASSIGN, ca.OP_INV, ca.OP_TWICE, ca.OP_TANH,
    ca.OP_POW, ca.OP_CONSTPOW,
}  # fmt: skip
LARGEST_POWER = 12
MOST_TERMS = 60  # of a sum that is multiplied out
MOST_RATES = 200  # of a sum that is taken apart
LEAST_SHARE, MOST_SHARE = Fraction(1, 10**60), Fraction(10**60)  # of a rate in a sum
ENDLESS = 99  # powers of the time of what depends on the states


def replay_tape(symbols: Sequence[Any], output: Any) -> intervals.ReplayTape:
    """Expressions as the kernels read them.

    symbols  SX: time, states, parameters, inputs
    output   SX vector
    raises   Unsupported, naming the operation, where one has no enclosure here
    """
    function = ca.Function("f", list(symbols), [ca.densify(output)])
    count = range(function.n_instructions())
    unknown = {function.instruction_id(k) for k in count} - set(BINARY) - set(UNARY) - OTHERS
    if unknown:
        names = [OPERATION_NAMES[operation] for operation in unknown]
        raise Unsupported(
            f"The equations use {in_words(names)}, for which the checker has no bounds. The "
            "checker supports + - * / ** exp log sqrt sin cos tanh."
        )
    writer, work, results = _Writer(symbols[1].numel()), dict[int, int](), dict[int, int]()
    for k in count:
        operation = function.instruction_id(k)
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if operation == ca.OP_OUTPUT:
            results[outputs[1]] = work[inputs[0]]
        elif operation == ca.OP_INPUT:
            work[outputs[0]] = writer.add(LEAF_KINDS[inputs[0]], inputs[1])
        elif operation == ca.OP_CONST:
            work[outputs[0]] = writer.constant(function.instruction_constant(k))
        else:
            work[outputs[0]] = writer.operation(operation, [work[i] for i in inputs])
    return writer.tape([results[i] for i in range(len(results))])


class _Writer:
    """Writes operations one after the other, for a model of so many states."""

    def __init__(self, states: int) -> None:
        self.states = states
        self.rows: list[tuple[int, int, int, int, float]] = []
        self.length: list[int] = []
        self.depends: list[BoolArray] = []
        self.sums: list[dict[int, Fraction]] = []
        self.known: dict[tuple[int, int, int, int, float], int] = {}

    def add(self, op: int, a: int, b: int = 0, smooth: int = 0, number: float = 0.0) -> int:
        """Append one, unless there is an equal one; where it stands."""
        row = op, a, b, smooth, number
        if row in self.known and (op != intervals.CONST or number != 0):  # zeros have signs
            return self.known[row]
        return self._append(row)

    def mean(self, terms: Sequence[tuple[int, float]]) -> int:
        """Weighted mean of numbers, whose weights are operations."""
        first = len(self.rows)
        for place, number in terms:
            self._append((intervals.WEIGHT, place, 0, 0, number))
        return self._append((intervals.MEAN, first, len(terms), 0, 0.0))

    def _append(self, row: tuple[int, int, int, int, float]) -> int:
        op, a, b, *_ = row
        depends, length = np.zeros(self.states, dtype=bool), 1
        if op == intervals.STATE:
            depends[a], length = True, ENDLESS
        elif op in (intervals.TIME, intervals.INPUT):
            length = 2
        elif op not in intervals.LEAVES:
            is_binary, of = op in (*BINARY.values(), intervals.POWER), self.arguments(row)
            depends = np.any([self.depends[i] for i in of], axis=0)
            lengths = [self.length[i] for i in of]
            length = max(lengths)
            if op in (intervals.MUL, intervals.SQUARE):
                length = self.length[a] + self.length[b if is_binary else a] - 1
            elif op == intervals.DIV:
                length = self.length[a] if self.length[b] == 1 else ENDLESS
            elif length > 1 and (op == intervals.POWER or op >= intervals.FUNCTION):
                length = ENDLESS
        self.known[row] = len(self.rows)
        self.sums.append(self._sum(op, a, b))
        self.rows.append(row)
        self.length.append(min(length, ENDLESS))
        self.depends.append(depends)
        return len(self.rows) - 1

    @staticmethod
    def arguments(row: Sequence[Any]) -> list[int]:
        """Operations that one is made of."""
        op, a, b, *_ = row
        if op in intervals.LEAVES:
            return []
        if op == intervals.MEAN:
            return list(range(a, a + b))
        return [a, b] if op in (*BINARY.values(), intervals.POWER) else [a]

    def _sum(self, op: int, a: int, b: int) -> dict[int, Fraction]:
        """Write the next operation as a sum of multiples of others; of itself, if it is no sum."""
        alone = {len(self.rows): Fraction(1)}
        terms: list[tuple[int, Fraction]] = []
        if op in (intervals.ADD, intervals.SUB):
            terms = [(a, Fraction(1)), (b, Fraction(1 if op == intervals.ADD else -1))]
        elif op == intervals.NEG:
            terms = [(a, Fraction(-1))]
        elif op == intervals.MUL:
            for one, other in ((a, b), (b, a)):
                number = self.number(one)
                if number is not None and np.isfinite(number) and not terms:
                    terms = [(other, Fraction(number))]
        found: dict[int, Fraction] = {}
        for place, factor in terms:
            for rate, share in self.sums[place].items():
                found[rate] = found.get(rate, Fraction(0)) + factor * share
        found = {rate: share for rate, share in found.items() if share}
        sizes = [abs(share) for share in found.values()]
        fine = terms and len(found) <= MOST_RATES
        return found if fine and all(LEAST_SHARE < s < MOST_SHARE for s in sizes) else alone

    def constant(self, value: float) -> int:
        """A number that is exact."""
        return self.add(intervals.CONST, 0, number=value)

    def number(self, i: int) -> float | None:
        """Value of an operation that is a number."""
        op, *_, number = self.rows[i]
        return number if op == intervals.CONST else None

    def function(self, function: int, a: int) -> int:
        """An elementary function."""
        return self.add(intervals.FUNCTION + function, a)

    def reciprocal(self, a: int) -> int:
        """1 / a."""
        return self.add(intervals.DIV, self.constant(1.0), a)

    def operation(self, operation: int, of: list[int]) -> int:
        """One of CasADi's, made of those that the kernels know."""
        a, b = of[0], of[-1]
        if operation in BINARY:
            return self.add(BINARY[operation], a, b)
        if operation in UNARY:
            return self.add(UNARY[operation], a)
        if operation == ca.OP_INV:
            return self.reciprocal(a)
        if operation == ca.OP_TWICE:
            return self.add(intervals.ADD, a, a)
        if operation == ca.OP_TANH:
            more = self.function(intervals.EXP, self.add(intervals.ADD, a, a))
            more = self.add(intervals.ADD, more, self.constant(1.0))
            more = self.add(intervals.DIV, self.constant(2.0), more)
            return self.add(intervals.SUB, self.constant(1.0), more)
        return a if operation == ca.OP_ASSIGN else self.power(a, b)

    def power(self, base: int, exponent: int) -> int:
        """base ** exponent.

        Of neither known it is 0 where the base is not positive: so it is integrated.
        """
        number = self.number(exponent)
        if number is not None and number == int(number) and 1 <= abs(number) <= LARGEST_POWER:
            power = self.whole_power(base, int(abs(number)))
            return power if number > 0 else self.reciprocal(power)
        logarithm = self.function(intervals.LOG, base)
        smooth = self.add(intervals.MUL, exponent, logarithm)
        smooth = self.function(intervals.EXP, smooth)
        if number is None and self.number(base) is None:
            return self.add(intervals.POWER, base, exponent, smooth)
        return smooth

    def whole_power(self, x: int, n: int) -> int:
        """x^n by squaring."""
        if n == 1:
            return x
        half = self.add(intervals.SQUARE, self.whole_power(x, n // 2))
        return self.add(intervals.MUL, half, x) if n % 2 else half

    def tape(self, results: Sequence[int]) -> intervals.ReplayTape:
        """All of them."""
        rates = sorted({rate for r in results for rate in self.sums[r]})
        share = [[float(self.sums[r].get(rate, 0)) for rate in rates] for r in results]
        code = [(*row[:4], length) for row, length in zip(self.rows, self.length, strict=True)]
        needed = [self._needed([r]) for r in results]
        own = [
            [k for k in places if i < self.states and self.depends[k][i]]
            for i, places in enumerate(needed)
        ]
        every = self._needed(results)
        kinds = {self.rows[k][0] for k in every}
        return intervals.ReplayTape(
            code=np.array(code, dtype=np.intp).reshape(-1, 5),
            number=np.array([row[4] for row in self.rows], dtype=float),
            depends=np.array(self.depends).reshape(len(code), self.states),
            results=np.array(results, dtype=np.intp),
            rates=np.array(rates, dtype=np.intp),
            share=np.array(share, dtype=float).reshape(len(results), len(rates)),
            every=np.array(every, dtype=np.intp),
            own=np.array([k for places in own for k in places], dtype=np.intp),
            own_first=np.cumsum([0, *map(len, own)], dtype=np.intp),
            divides=intervals.DIV in kinds or max(kinds, default=0) >= intervals.POWER,
            is_smooth=not kinds & {intervals.POWER, intervals.FUNCTION + intervals.SQRT},
        )

    def _needed(self, results: Sequence[int]) -> list[int]:
        """Operations that some results are made of, in order."""
        needed = set(results)
        for k in range(len(self.rows) - 1, -1, -1):
            if k in needed:
                needed.update(self.arguments(self.rows[k]))
        return sorted(needed)


Sum = dict[tuple[int, ...], Fraction]
"""Products of operations, each sorted with one entry for each factor, and how often they occur."""


class Factored:
    """Slopes multiplied out and factored anew, as interval arithmetic likes them.

    It overestimates where a quantity occurs more than once. What is above a sum and in it as well,
    such as b x / (a x + b x), is a mean (`intervals.mean`). Coefficients are rational numbers. One
    over the sum `below[k]` is the factor -1 - k.

    tape       the slopes, each as it was unless it has means now, or fewer leaves
    cancelled  of quotients that are means now, or cancel, the terms below
    """

    def __init__(self, tape: intervals.ReplayTape) -> None:
        self.writer = _Writer(tape.depends.shape[1])
        for row, number in zip(tape.code[:, :4].tolist(), tape.number.tolist(), strict=True):
            self.writer._append((*row, number))
        self.sums: dict[int, Sum] = {}
        self.below: list[Sum] = []
        self.cancelled: list[list[tuple[int, ...]]] = []
        results = tape.results.tolist()
        chosen = [min(self.written(self.expanded(r)), r, key=self._cost) for r in results]
        self.tape = self.writer.tape(chosen)

    def may_be_undefined(self, low: FloatArray) -> bool:
        """Whether what is cancelled may be 0 / 0, with parameters not below `low`."""
        rows = enumerate(self.writer.rows)
        positive = {i for i, row in rows if row[0] == intervals.PARAMETER and low[row[1]] > 0}
        return any(not any(positive.issuperset(t) for t in terms) for terms in self.cancelled)

    def _cost(self, result: int) -> tuple[bool, int]:
        """Whether there is a quotient, but no mean; how often leaves occur."""
        rows, counts = self.writer.rows, dict[int, int]()
        places = self.writer._needed([result])
        for k in places:
            of = self.writer.arguments(rows[k])
            counts[k] = sum(counts[i] for i in of) if of else int(rows[k][0] != intervals.CONST)
        kinds = {rows[k][0] for k in places}
        return intervals.DIV in kinds and intervals.MEAN not in kinds, counts[result]

    def expanded(self, place: int) -> Sum:
        """An operation as a sum of products; of itself, if there are too many or it is no sum."""
        if place not in self.sums:
            found = self._expanded(place)
            is_fine = all(LEAST_SHARE < abs(c) < MOST_SHARE for c in found.values())
            is_fine = is_fine and len(found) <= MOST_TERMS
            self.sums[place] = found if is_fine else {(place,): Fraction(1)}
        return self.sums[place]

    def _expanded(self, place: int) -> Sum:
        op, a, b, _, number = self.writer.rows[place]
        if op == intervals.CONST and np.isfinite(number):
            return {(): Fraction(number)} if number else {}
        if op not in (*BINARY.values(), intervals.SQUARE, intervals.NEG):
            return {(place,): Fraction(1)}
        one: Sum = {} if op == intervals.NEG else self.expanded(a)
        other = self.expanded(b if op in BINARY.values() else a)
        other = self._inverse(other) if op == intervals.DIV else other
        sums, sign = (intervals.ADD, intervals.SUB, intervals.NEG), 1 if op == intervals.ADD else -1
        found = _added(one, other, sign) if op in sums else _multiplied(one, other)
        gone = {i for m in (*one, *other) for i in m if i < 0}.difference(*found)
        self.cancelled += [list(self.below[-1 - i]) for i in gone]
        return found

    def _inverse(self, below: Sum) -> Sum:
        if list(below) == [()]:
            return {(): 1 / below[()]}
        if below not in self.below:
            self.below.append(below)
        return {(-1 - self.below.index(below),): Fraction(1)}

    def written(self, terms: Sum) -> int:
        """Write a sum; where it stands."""
        left = dict(terms)
        for k, below in enumerate(self.below):
            if len(below) > 1 and min(below.values()) > 0:
                self._write_means(left, -1 - k, below)
        return self._factored(left)

    def _write_means(self, terms: Sum, inverse: int, below: Sum) -> None:
        """Replace terms over a sum by means, as far as there are."""
        while True:
            shares: dict[tuple[int, ...], dict[tuple[int, ...], Fraction]] = {}
            for m, c in terms.items():
                for t, d in below.items():
                    if (rest := _divided(m, (inverse, *t))) is not None and inverse not in rest:
                        shares.setdefault(rest, {})[t] = c / d
            if not shares:
                return
            rest, weights = max(shares.items(), key=lambda item: len(item[1]))
            for t in weights:
                del terms[tuple(sorted((*rest, inverse, *t)))]
            self.cancelled.append(list(below))
            if len(weights) == len(below) and len(set(weights.values())) == 1:
                own, more = rest, next(iter(weights.values()))
            else:
                by = tuple(reduce(lambda a, b: a & b, map(Counter, below)).elements())
                places = [self._product(d, _divided(t, by) or ()) for t, d in below.items()]
                of = [(i, float(weights.get(t, 0))) for i, t in zip(places, below, strict=True)]
                own, more = tuple(sorted((*rest, self.writer.mean(of)))), Fraction(1)
            terms[own] = terms.get(own, Fraction(0)) + more

    def _factored(self, terms: Sum) -> int:
        counts = Counter(factor for m in terms for factor in set(m))
        if max(counts.values(), default=1) == 1 or len(terms) == 1:
            products = [self._product(c, m) for m, c in terms.items()]
            return self._reduced(intervals.ADD, products or [self.writer.constant(0.0)])
        kinds = {i: self.writer.rows[i][0] for i in counts if i >= 0}
        first = max(counts, key=lambda i: (counts[i], kinds.get(i) == intervals.PARAMETER, i))
        inner = {_divided(m, (first,)) or (): c for m, c in terms.items() if first in m}
        outer = {m: c for m, c in terms.items() if first not in m}
        product = self._reduced(intervals.MUL, [self._place(first), self._factored(inner)])
        return self._reduced(intervals.ADD, [product, *([self._factored(outer)] if outer else [])])

    def _product(self, c: Fraction, factors: tuple[int, ...]) -> int:
        counts = Counter(factors)
        places = [self.writer.whole_power(self._place(i), n) for i, n in sorted(counts.items())]
        if c != 1 or not places:
            places.append(self._constant(c))
        return self._reduced(intervals.MUL, places)

    def _constant(self, c: Fraction) -> int:
        return self.writer.add(intervals.CONST, 0, int(Fraction(float(c)) != c), number=float(c))

    def _place(self, factor: int) -> int:
        inner = factor if factor >= 0 else self.written(self.below[-1 - factor])
        return inner if factor >= 0 else self.writer.reciprocal(inner)

    def _reduced(self, op: int, places: Sequence[int]) -> int:
        return reduce(lambda one, other: self.writer.add(op, one, other), places)


def _added(one: Sum, other: Sum, sign: int) -> Sum:
    total = {m: one.get(m, Fraction(0)) + sign * other.get(m, Fraction(0)) for m in one | other}
    return {m: c for m, c in total.items() if c}


def _multiplied(one: Sum, other: Sum) -> Sum:
    product: Sum = {}
    for (m, c), (n, d) in pairs(one.items(), other.items()):
        both = tuple(sorted(m + n))
        product[both] = product.get(both, Fraction(0)) + c * d
    return {m: c for m, c in product.items() if c}


def _divided(m: tuple[int, ...], by: tuple[int, ...]) -> tuple[int, ...] | None:
    """The other factors of a product that has these; None if it does not have them."""
    rest = Counter(m)
    rest.subtract(by)
    return None if min(rest.values(), default=0) < 0 else tuple(sorted(rest.elements()))


class InputLine(NamedTuple):
    """Straight line of one input, each array for all boxes, or for all stops it leads to."""

    start: FloatArray
    value: FloatArray
    slope: Interval


def line(table: Table, begins: Sequence[float]) -> InputLine:
    """A table from each of some times until it, or its slope, jumps again.

    Before its first and after its last point it is constant; one that is held always is.
    """
    t, y = table.times, table.values
    k = np.searchsorted(t, np.asarray(begins), side="right") - 1
    inside = (k >= 0) & (k < len(t) - 1) & (not table.hold)
    k = np.maximum(k, 0)
    after = np.minimum(k + 1, len(t) - 1)
    rise, run = point(y[after]) - point(y[k]), point(t[after]) - point(t[k])
    slope = rise / Interval(np.where(inside, run.low, 1.0), np.where(inside, run.high, 1.0))
    low, high = (np.where(inside, end, 0.0) for end in (slope.low, slope.high))
    return InputLine(t[k], y[k], Interval(low, high))


At = tuple[IntArray, FloatArray, FloatArray]
"""What is measured at one time: columns, values y and sigma, exact doubles."""


@dataclass(frozen=True)
class Replay:
    """One experiment as the checker integrates it.

        x' = slopes(t, x, p, u),  x(t0) = start(p),  r = (measured(t, x, p, u) - y) / sigma

    states   how many
    times    (n_times,) increasing, none before t0: where something is measured, or an input jumps;
             what is measured at t0 is measured at the start
    rows     for each time the measured quantities (column), values y and sigma
    inputs   u: one for each input given by a table, as it leads to each of the times
    """

    states: int
    t0: float
    slopes: intervals.ReplayTape
    start: intervals.ReplayTape
    measured: intervals.ReplayTape
    times: FloatArray
    rows: tuple[At, ...]
    inputs: tuple[InputLine, ...] = ()

    @cached_property
    def factored(self) -> Factored:
        """The slopes as tubes use them."""
        return Factored(self.slopes)

    @cached_property
    def program(self) -> Program:
        """The same as the kernels read it."""
        column, value, sigma = (
            np.concatenate([row[k] for row in self.rows]) if self.rows else np.zeros(0)
            for k in range(3)
        )
        shape = len(self.inputs), len(self.times)
        rises = np.zeros((*shape, 2))
        for i, one in enumerate(self.inputs):
            rises[i, :, 0], rises[i, :, 1] = one.slope.low, one.slope.high
        return Program(
            slopes=self.slopes,
            sharp=self.factored.tape,
            start=self.start,
            measured=self.measured,
            t0=float(self.t0),
            times=np.array(self.times, dtype=float),
            first=np.cumsum([0, *(len(row[0]) for row in self.rows)], dtype=np.intp),
            column=column.astype(np.intp),
            value=value.astype(float),
            sigma=sigma.astype(float),
            begins=np.array([one.start for one in self.inputs], dtype=float).reshape(shape),
            levels=np.array([one.value for one in self.inputs], dtype=float).reshape(shape),
            rises=rises,
        )


def replays(problem: Problem) -> tuple[Replay, ...]:
    """Read each experiment, with the problem's free unknowns in the order of `problem.box`.

    raises Unsupported where a sum of squares has parts that the checker does not know
    """
    unsupported = {
        "a loss other than LeastSquares()": not problem.loss.is_squares,
        "unknowns that vary with time": problem.time_varying,
        "standard deviations that depend on the fit": problem.weights_follow_fit,
        "estimated standard deviations": problem.sigma_estimated,
        "values below a limit of detection": problem.is_censored,
        "correlated errors": problem.is_correlated,
        "priors that are not normal": problem.other_priors,
    }
    if names := ", ".join(what for what, there in unsupported.items() if there):
        raise Unsupported(
            f"The checker does not support {names}. It verifies only certificates of problems "
            "without these features."
        )
    return tuple(_replay(problem, k) for k in range(len(problem.experiments)))


def _replay(problem: Problem, k: int) -> Replay:
    """One experiment; priors of free unknowns join the first one's (others are a constant)."""
    experiment, names = problem.experiments[k], problem.box.names
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            f"Experiment {experiment.name} has implicit algebraic variables, which the checker "
            "does not support."
        )
    m = experiment.measurements
    rows = {float(m.times[r]): m.row == r for r in np.unique(m.row)}
    measured: dict[float, At] = {t: (m.column[a], m.value[a], m.sigma[a]) for t, a in rows.items()}
    ivp = _in_other_units(ivp.without_conditions(np.array(sorted(measured))), problem)
    p = ca.SX.sym("p", len(names))
    q = ca.vertcat(*(p[names.index(n)] for n in ivp.unknowns))
    f, start, h = (ca.substitute([e], [ivp.q], [q])[0] for e in (ivp.f, ivp.start, ivp.measured))
    last = max(measured)
    free = {names.index(n): prior for n, prior in problem.normal_priors.items()}
    if free and k == 0:
        priors = (
            np.array(list(free), dtype=np.intp) + h.numel(),
            np.array([prior.mean for prior in free.values()]),
            np.array([prior.deviation for prior in free.values()]),
        )
        column, value, sigma = map(
            np.concatenate, zip(measured.get(ivp.t0, NOTHING), priors, strict=True)
        )
        measured[ivp.t0] = column, value, sigma
        h = ca.vertcat(h, p)
    times = sorted({*measured, *ivp.breaks(last)})
    symbols = [ivp.t, ivp.x, p, ivp.u]
    return Replay(
        states=len(ivp.states),
        t0=ivp.t0,
        slopes=replay_tape(symbols, f),
        start=replay_tape(symbols, start),
        measured=replay_tape(symbols, h),
        times=np.array(times),
        rows=tuple(measured.get(t, NOTHING) for t in times),
        inputs=tuple(line(table, [ivp.t0, *times[:-1]]) for table in ivp.tables),
    )


def _in_other_units(ivp: InitialValueProblem, problem: Problem) -> InitialValueProblem:
    """The problem in the states that the prover uses, if they are confirmed to be the same.

    The old states are functions X(x, q) of the new ones. At random points their slope dX/dx f must
    be the old slope at X, their start the old start, and what is measured must agree, to rounding.
    Formulas that differ agree at random points with probability zero.
    """
    box = problem.box
    index = [box.names.index(n) for n in ivp.unknowns]
    low, high = (np.asarray(ends, dtype=float)[index] for ends in (box.lower, box.upper))
    new, states = with_shared_rates(ivp, low, high)
    if new is ivp or not np.isfinite([low, high]).all():
        return ivp
    old = ca.substitute([ca.SX(e) for e in (ivp.f, ivp.measured)], [ivp.x], [states])
    pairs = [
        (ca.jtimes(states, new.x, new.f), old[0]),
        (new.measured, old[1]),
        (ca.substitute(states, new.x, new.start), ivp.start),
    ]
    one, other = (ca.densify(ca.vertcat(*side)) for side in zip(*pairs, strict=True))
    both = ca.Function("both", [ivp.t, new.x, ivp.u, ivp.q], [one, other])
    rng, is_same = np.random.default_rng(0), True
    for _ in range(POINTS):
        x, q = new.largest * rng.uniform(0.1, 1.0, len(new.largest)), rng.uniform(low, high)
        a, b = map(np.asarray, both(rng.uniform(), x, rng.uniform(size=len(ivp.tables)), q))
        is_same &= np.allclose(a, b, rtol=SAME, atol=SAME * np.abs(a).max())
    return new if is_same else ivp


POINTS, SAME = 8, 1e-9  # random points, and how exactly both sides agree there
NOTHING: At = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
