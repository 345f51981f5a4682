"""Taylor models of the operations on a tape: coefficients, and bounds on what they lack.

x(tau, delta, z) = sum_k x_k(delta, z) tau^k, with x_(k+1) = f_k / (k + 1), in plain doubles.
A coefficient vector holds, in this order, the monomials of delta in [-1, 1]^n_p by degree (1;
delta_j; delta_i delta_j with i <= j; ...) up to `degree`, and z_i, i = 1..`errors`, which carry the
error of the states from step to step. Products of z with anything but a number are not kept.

Over a whole step every operation is polynomial +- (d + M |eps|) where the states are polynomial +
eps and |eps| <= e. d holds what truncation of products and every rounding lose, by the norms of the
coefficients' classes (order in time x degree): numbers that are not negative, so that one factor
`UP` after each operation covers the rounding of the bound itself.
"""

import math
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.intervals import MOST_EXPONENT, TINY, UNIT, UP
from igpe.proofs.prover.kernels.tape import OpTape


class Monomials(NamedTuple):
    """How coefficient vectors are multiplied.

    parameters, states, degree
    errors   number of directions in which the states' error is carried along
    size     number of coefficients, of which the last `errors` are those of z
    first    (degree + 3,) where each class begins: degrees 0, 1, ..., z, and the end
    to       (n_products,) where products of two monomials of delta go that are kept: by the first
             factor, and of each by the second, which may be all from 1 up to some degree
    since    (n_delta + 1,) where the products of each first factor begin
    factors  (n_delta, 3) the parameters a monomial is made of, -1 beyond its degree
    powers   (n_p, 2) where the square and the cube of each parameter stand; -1: not kept
    most     the largest number of products that are summed up in one coefficient
    """

    parameters: int
    states: int
    degree: int
    errors: int
    size: int
    first: IntArray
    to: IntArray
    since: IntArray
    factors: IntArray
    powers: IntArray
    most: int


HIGHEST = 3
DIRECTIONS = 8  # of errors, for each state
MOST_ERRORS = 2000  # `UP` covers the rounding of their sum


def algebra(parameters: int, states: int, degree: int, directions: int = DIRECTIONS) -> Monomials:
    """The tables of polynomials of a degree between 1 and 3.

    directions  of errors that are carried along, for each state
    """
    monomials: list[tuple[int, ...]] = []
    first = [0]
    for d in range(degree + 1):
        monomials += combinations_with_replacement(range(parameters), d)
        first.append(len(monomials))
    kept, place = len(monomials), {m: k for k, m in enumerate(monomials)}
    many = max(states, min(directions * states, MOST_ERRORS))
    products = [
        [place[tuple(sorted(a + b))] for b in monomials if len(a) + len(b) <= degree]
        for a in monomials
    ]
    to = np.concatenate(products)
    factors = [(*m, *[-1] * (HIGHEST - len(m))) for m in monomials]
    powers = [[place.get((j,) * k, -1) for k in (2, 3)] for j in range(parameters)]

    def integers(table: Any) -> IntArray:
        return np.array(table, dtype=np.int64)  # a new array, contiguous

    return Monomials(
        parameters, states, degree, many, kept + many, integers([*first, kept + many]),
        integers(to), integers([0, *np.cumsum([len(one) for one in products])]),
        integers(factors), integers(powers), int(np.bincount(to).max()) + 2,
    )  # fmt: skip


class Scratch(NamedTuple):
    """Room for the numbers of one tape.

    c      (n, order + 1, size) coefficients
    norm   (n, order + 1, classes) of them, by class, times h^k
    total  (n,) bound on |polynomial| over the step
    lost   (n,) bound on what truncation and rounding of the operation lose
    error  (n, 1 + n_x) of each operation: d + M |eps|
    most   (n,) the same in a trial tube
    range  (n, 2) in interval arithmetic
    g      (n_slots, TERMS + 1) Taylor coefficients of functions
    left   (order + 1, classes) working space
    used   (1,) how many leading coefficients there are: directions come into use one by one
    """

    c: FloatArray
    norm: FloatArray
    total: FloatArray
    lost: FloatArray
    error: FloatArray
    most: FloatArray
    range: FloatArray
    g: FloatArray
    left: FloatArray
    used: IntArray


class TaylorModel(NamedTuple):
    """A tape, the polynomials its operations are, and room for their numbers."""

    tape: OpTape
    algebra: Monomials
    space: Scratch


def taylor_model(tape: OpTape, algebra: Monomials, order: int) -> TaylorModel:
    """One of an order in time."""
    n, k, classes = len(tape.op), order + 1, algebra.degree + 2
    slots = len(tape.function), ops.TERMS + 1
    shapes: list[tuple[int, ...]] = [(n, k, algebra.size), (n, k, classes), (n,), (n,)]
    shapes += [(n, 1 + algebra.states), (n,), (n, 2), slots, (k, classes)]
    c, norm, total, lost, error, most, bounds, g, left = map(np.zeros, shapes)
    used = np.array([algebra.size])
    space = Scratch(c, norm, total, lost, error, most, bounds, g, left, used)
    return TaylorModel(tape, algebra, space)


@kernel
def _expand(kind: int, exponent: float, at: float, g: FloatArray) -> None:
    """Taylor coefficients of a function about a number; nan where there are none."""
    if kind == ops.EXP:
        g[0] = math.exp(at)
        for i in range(1, len(g)):
            g[i] = g[i - 1] / i
    elif kind in (ops.SIN, ops.COS):
        s, c = math.sin(at), math.cos(at)
        if kind == ops.COS:
            s, c = c, -s
        factor = 1.0
        for i in range(len(g)):
            g[i] = s * factor
            s, c = c, -s
            factor /= i + 1
    elif not (at > 0.0):
        g[:] = np.nan
    elif kind == ops.LOG:
        g[0] = math.log(at)
        power = -1.0
        for i in range(1, len(g)):
            power = -power / at
            g[i] = power / i
    else:
        g[0] = at**exponent
        for i in range(1, len(g)):
            g[i] = g[i - 1] * (exponent - (i - 1)) / (i * at)


@kernel
def _product(
    algebra: Monomials, c: FloatArray, a: int, b: int, k: int,
    low: int, high: int, out: FloatArray, sign: float,
) -> None:  # fmt: skip
    """out += sign * sum of a_j b_(k-j), low <= j <= high, as far as monomials are kept.

    Where a_j has few monomials, as parameters have, it takes less time.
    """
    n, begins, to = algebra.size - algebra.errors, algebra.since, algebra.to
    for j in range(low, high + 1):
        i = k - j
        for m in range(n):
            one = sign * c[a, j, m]
            if one != 0.0:
                since = begins[m]
                for t in range(since, begins[m + 1]):
                    out[to[t]] += one * c[b, i, t - since]
        p, q = sign * c[a, j, 0], sign * c[b, i, 0]
        for m in range(n, len(out)):
            out[m] += p * c[b, i, m] + q * c[a, j, m]


@kernel
def _quotient(algebra: Monomials, c: FloatArray, n: int, a: int, b: int, k: int, used: int) -> None:
    """c_n = a / b at order k: by order in time and, within it, by degree."""
    out = c[n, k, :used]
    out[:] = c[a, k, :used]
    _product(algebra, c, n, b, k, 0, k - 1, out, -1.0)
    b0 = c[b, 0, 0]
    delta = algebra.size - algebra.errors
    for m in range(delta):
        out[m] /= b0
        since = algebra.since[m]
        for t in range(since + 1, algebra.since[m + 1]):
            out[algebra.to[t]] -= out[m] * c[b, 0, t - since]
    for m in range(delta, used):
        out[m] = (out[m] - out[0] * c[b, 0, m]) / b0


@kernel
def coefficient(model: TaylorModel, x: FloatArray, p: FloatArray, u: FloatArray, k: int) -> None:
    """Coefficients of order k of every operation, from those of lower order.

    x  (order + 1, n_x, size) of the states;  p: (n_p, 5) of each parameter, see `polynomials`;
    u  (n_u + 1, 2) value at the step's beginning and slope of the inputs and, last, of time
    """
    tape, algebra, space = model
    c, used = space.c, space.used[0]
    kinds, firsts, seconds, reach = tape.op, tape.a, tape.b, tape.reach
    for n in range(len(kinds)):
        op, a, b = kinds[n], firsts[n], seconds[n]
        if k > reach[n]:
            continue
        out = c[n, k, :used]
        if op == ops.STATE:
            out[:] = x[k, a, :used]
        elif op in (ops.ADD, ops.SUB):
            sign = 1.0 if op == ops.ADD else -1.0
            for m in range(used):
                out[m] = c[a, k, m] + sign * c[b, k, m]
        elif op == ops.NEG:
            for m in range(used):
                out[m] = -c[a, k, m]
        elif op in (ops.MUL, ops.SQUARE):
            other = a if op == ops.SQUARE else b
            if reach[other] < reach[a]:
                a, other = other, a
            low = max(0, k - reach[other])
            out[:] = 0.0
            _product(algebra, c, a, other, k, low, min(k, reach[a]), out, 1.0)
        elif op == ops.DIV:
            _quotient(algebra, c, n, a, b, k, used)
        elif op == ops.PARAMETER:
            out[:] = 0.0
            out[0], out[1 + a] = p[a, 0], p[a, 1]
            for i in range(2):
                if algebra.powers[a, i] >= 0:
                    out[algebra.powers[a, i]] = p[a, 2 + i]
        elif op in (ops.INPUT, ops.TIME):
            out[:] = 0.0
            out[0] = u[a if op == ops.INPUT else len(u) - 1, k]
        elif op == ops.CONST:
            out[:] = 0.0
            out[0] = tape.number[n]
        else:
            _of_function(tape, space, n, k)


@kernel
def _of_function(tape: OpTape, space: Scratch, n: int, k: int) -> None:
    """SHIFT, COEFFICIENT, HORNER and CLOSE."""
    op, a, b, c = tape.op[n], tape.a[n], tape.b[n], space.c
    i = int(tape.number[n])
    if op == ops.COEFFICIENT:
        c[n, k] = 0.0
        c[n, k, 0] = space.g[b, i]
        return
    c[n, k] = c[a, k]
    if k == 0 and op == ops.SHIFT:
        _expand(tape.function[b], tape.exponent[b], c[a, 0, 0], space.g[b])
        c[n, 0, 0] = 0.0
    elif k == 0 and op == ops.HORNER:
        c[n, 0, 0] += space.g[b, i]


LIBRARY = 8 * UNIT  # four units in the last place: what functions of the C library may be off


@kernel
def norms(model: TaylorModel, order: int, h: float) -> None:
    """Norms of all coefficients by class and order, times h^k; and their sums."""
    tape, algebra, space = model
    reach, first, used, classes = tape.reach, algebra.first, space.used[0], algebra.degree + 2
    c, by_class, totals = space.c, space.norm, space.total
    for n in range(len(reach)):
        power, total = 1.0, 0.0
        for k in range(order + 1):
            for g in range(classes):
                norm = 0.0
                if k <= reach[n]:
                    for m in range(first[g], min(first[g + 1], used)):
                        norm += abs(c[n, k, m])
                norm = norm * power * UP
                by_class[n, k, g] = norm
                total += norm
            power *= h
        totals[n] = total * UP + TINY


@kernel
def _not_kept(degree: int, left: FloatArray, norm: FloatArray, a: int, b: int, order: int) -> float:
    """Bound on the products of a and b that truncation drops."""
    classes = degree + 2
    late = 0.0  # of b: all of higher order in time
    for k in range(order, -1, -1):
        left[k] = late
        for g in range(classes):
            late += norm[b, k, g]
    # and those of no higher order, but of higher degree
    for g in range(classes - 2, -1, -1):
        higher = 0.0
        for k in range(order + 1):
            for i in range(g + 1, classes):
                higher += norm[b, k, i]
            left[k, g] += higher
    total = 0.0
    for k in range(order + 1):
        for g in range(classes):
            highest = degree - g if g > 0 else classes - 1
            highest = 0 if g == classes - 1 else highest
            total += norm[a, k, g] * left[order - k, highest]
    return float(total * UP)


@kernel
def losses(model: TaylorModel, order: int, p: FloatArray, sizes: FloatArray) -> None:
    """What truncation and rounding lose in each operation; needs `norms`.

    p      (n_p, 5) of the parameters, whose polynomials lose something too: see `polynomials`
    sizes  (n_u,) |a| + |b t| of the inputs a + b t, which may cancel
    """
    tape, algebra, space = model
    kinds, firsts, seconds = tape.op, tape.a, tape.b
    degree, left, norm, total = algebra.degree, space.left, space.norm, space.total
    many = (order + 1.0) * (algebra.most + 2.0) + 8.0
    for n in range(len(kinds)):
        op, a, b = kinds[n], firsts[n], seconds[n]
        lost = 0.0
        if op in (ops.ADD, ops.SUB):
            lost = UNIT * (total[a] + total[b])
        elif op in (ops.MUL, ops.SQUARE):
            other = a if op == ops.SQUARE else b
            lost = _not_kept(degree, left, norm, a, other, order)
            lost += many * UNIT * total[a] * total[other]
        elif op == ops.DIV:
            lost = _not_kept(degree, left, norm, n, b, order)
            lost += 2.0 * many * UNIT * (total[n] * total[b] + total[a])
        elif op == ops.PARAMETER:
            lost = p[a, 4]
        elif op == ops.INPUT:
            lost = 4.0 * UNIT * (total[n] + sizes[a])
        elif op in (ops.HORNER, ops.COEFFICIENT):
            g = abs(space.g[b, int(tape.number[n])])
            lost = UNIT * total[a] * (op == ops.HORNER) + (LIBRARY + 4.0 * ops.TERMS * UNIT) * g
        space.lost[n] = lost * UP + TINY


@kernel
def _derivative(kind: int, exponent: float, low: float, high: float) -> float:
    """Bound on |g^(TERMS + 1)| / (TERMS + 1)! over an interval; infinite where undefined."""
    n = ops.TERMS + 1
    factorial = 1.0
    if not (low <= high):
        return np.inf
    for i in range(2, n + 1):
        factorial *= i
    if kind == ops.EXP:
        return math.exp(high) / factorial * (1.0 + LIBRARY) if high < MOST_EXPONENT else np.inf
    if kind not in (ops.LOG, ops.POWER):
        return 1.0 / factorial
    if not (0.0 < low <= high):
        return np.inf
    if kind == ops.LOG:
        # a float: for integers, Numba divides by low ** n and raises an error if that is 0
        return float(low ** -float(n) / n * (1.0 + LIBRARY))
    binomial = 1.0
    for i in range(n):
        binomial *= abs(exponent - i) / (i + 1)
    largest = max(low ** (exponent - n), high ** (exponent - n))
    return float(binomial * largest * (1.0 + LIBRARY))


@kernel
def errors(model: TaylorModel, tube: FloatArray) -> None:
    """d and M of every operation, for |eps| <= tube (n_x,); needs `losses` and `range`."""
    tape, algebra, space = model
    e, most, total, lost = space.error, space.most, space.total, space.lost
    kinds, firsts, seconds = tape.op, tape.a, tape.b
    columns = 1 + algebra.states
    for n in range(len(kinds)):
        op, a, b = kinds[n], firsts[n], seconds[n]
        if op == ops.STATE:
            e[n] = 0.0
            e[n, 1 + a] = 1.0
        elif op in (ops.CONST, ops.PARAMETER, ops.COEFFICIENT, ops.INPUT, ops.TIME):
            e[n] = 0.0
            e[n, 0] = lost[n]
        elif op in (ops.ADD, ops.SUB):
            for i in range(columns):
                e[n, i] = e[a, i] + e[b, i]
            e[n, 0] += lost[n]
        elif op in (ops.MUL, ops.SQUARE):
            other = a if op == ops.SQUARE else b
            one, two = total[a], total[other] + most[other]
            for i in range(columns):
                e[n, i] = (one * e[other, i] + two * e[a, i]) * UP
            e[n, 0] += lost[n]
        elif op == ops.DIV:
            smallest = _away(space, b)
            for i in range(columns):
                e[n, i] = (e[a, i] + total[n] * e[b, i]) / smallest * UP
            e[n, 0] += lost[n] / smallest
        else:
            for i in range(columns):
                e[n, i] = e[a, i]
            e[n, 0] += lost[n]
            if op == ops.CLOSE:
                e[n, 0] += _last(tape, space, b)
        largest = e[n, 0]
        for i in range(1, columns):
            largest += e[n, i] * tube[i - 1]
        e[n, 0] = e[n, 0] * UP
        most[n] = largest * UP


@kernel
def dropped(model: TaylorModel, scale: FloatArray, out: FloatArray) -> None:
    """How much each parameter has part in what products drop for their degree, into out (n_p,).

    Relative to the scale (n_x,) of the states whose slopes it reaches, to first order. Terms count
    as often as a parameter is a factor: halving its range makes them so much smaller. Nothing is
    proved by this.
    """
    tape, algebra, space = model
    kinds, firsts, seconds, c = tape.op, tape.a, tape.b, space.c
    degree, begins = algebra.degree, algebra.first
    held = np.zeros((len(kinds), degree + 1, 1 + len(out)))  # all; and by parameter
    weight = np.zeros(len(kinds))
    for n in range(len(kinds)):
        for g in range(degree + 1):
            for m in range(begins[g], begins[g + 1]):
                size = abs(c[n, 0, m])
                held[n, g, 0] += size
                for f in range(g):
                    held[n, g, 1 + algebra.factors[m, f]] += size
    for i in range(len(scale)):
        weight[tape.results[i]] += 1.0 / scale[i]
    out[:] = 0.0
    for n in range(len(kinds) - 1, -1, -1):
        op, a, b, w = kinds[n], firsts[n], seconds[n], weight[n]
        if w == 0.0:
            continue
        if op in (ops.ADD, ops.SUB):
            weight[a] += w
            weight[b] += w
        elif op in (ops.NEG, ops.SHIFT, ops.HORNER, ops.CLOSE, ops.GENERAL_POWER):
            weight[a] += w
        elif op in (ops.MUL, ops.SQUARE, ops.DIV):
            one, two = (n if op == ops.DIV else a), (a if op == ops.SQUARE else b)
            if op == ops.DIV:  # of a quotient times its denominator
                w /= abs(c[b, 0, 0]) + TINY
                weight[a] += w
            else:
                weight[a] += w * abs(c[two, 0, 0])
            weight[two] += w * abs(c[one, 0, 0])
            for g in range(degree + 1):
                for i in range(degree + 1 - g, degree + 1):
                    for j in range(len(out)):
                        both = held[one, g, 1 + j] * held[two, i, 0]
                        out[j] += w * (both + held[one, g, 0] * held[two, i, 1 + j])


@kernel
def divides_by_zero(model: TaylorModel) -> bool:
    """Whether a denominator may vanish even without errors; needs `norms` and `range`."""
    tape, space = model.tape, model.space
    space.most[:] = 0.0
    vanishes = False
    for n in range(len(tape.op)):
        vanishes = vanishes or (tape.op[n] == ops.DIV and not (_away(space, tape.b[n]) > 0.0))
    return vanishes


@kernel
def _away(space: Scratch, b: int) -> float:
    """How far an operation keeps away from zero; nan where it does not."""
    apart = 2.0 * abs(space.c[b, 0, 0]) - space.total[b] * (1.0 + 8.0 * UNIT) - space.most[b]
    low, high = space.range[b, 0], space.range[b, 1]
    bounded = low if low > 0.0 else -high  # of a range: as it stands, whatever the polynomial is
    if bounded > 0.0 and low <= high and not (apart > bounded):
        apart = bounded
    return apart / UP if apart > 0.0 else np.nan


@kernel
def _last(tape: OpTape, space: Scratch, slot: int) -> float:
    """The remainder of a function's polynomial."""
    k = tape.argument[slot]
    middle = space.c[k, 0, 0]
    away = (
        max(space.total[k] - abs(middle), 0.0) + 8.0 * UNIT * space.total[k] + space.most[k]
    ) * UP
    if not (away >= 0.0):
        return np.inf
    # Lagrange's place lies between the middle and the argument, which its interval encloses too
    low = min(middle, max(middle - away, space.range[k, 0]))
    high = max(middle, min(middle + away, space.range[k, 1]))
    away = min(away, max(high - middle, middle - low) * UP)
    low, high = low - 4.0 * UNIT * abs(low), high + 4.0 * UNIT * abs(high)
    bound = _derivative(tape.function[slot], tape.exponent[slot], low, high)
    return float(bound * away ** (ops.TERMS + 1) * UP * UP)
