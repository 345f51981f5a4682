"""Truncated polynomials with a rigorous remainder (Taylor models), for one box.

    f(delta, z, tau)  in  sum_k tau^k (c_k0 + sum_i c_ki delta_i + sum_ij c_kij delta_i delta_j
                                       + sum_l c_kl z_l)  +- e

for all delta, z in [-1, 1] and tau in [0, 1]. delta are the parameters' offsets in their box, z the
coordinates in which the error of a state is carried along, tau the time in one step. What a product
has beyond degree 2 in delta, degree 1 in z (without delta) and the order in tau is bounded by sums
of absolute values and goes into e, and so does every rounding.

Coefficients of tau^k are computed for one k after the other, since those of a solution follow from
those of its slope (`extend`). Whatever they came out as, `bound` then encloses the error.

Two rules of rounding are used, and nothing else:

- a sum of n products, however ordered, is off by at most (n + 1) UNIT times the sum of the absolute
  products, as n UNIT / (1 - n UNIT) <= (n + 1) UNIT for all n < 1e7;
- what is computed from numbers >= 0 by at most 4000 additions, multiplications and divisions is not
  above `up` of it and not below `down` of it.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import (
    SLACK,
    UNIT,
    Pair,
    middle,
    outward,
    power,
    radius,
    series,
    size,
    up,
)
from igpe.proofs.checker.kernels.tape import (
    ADD,
    CONST,
    DIV,
    FUNCTION,
    INPUT,
    MUL,
    NEG,
    POWER,
    SQUARE,
    STATE,
    SUB,
    TIME,
    ReplayTape,
)
from igpe.proofs.compiled import kernel

MOST = 4  # products that a coefficient of one power of tau is the sum of: a_0 b_ij and three more


class Polynomials(NamedTuple):
    """Polynomials of all operations of a tape.

    c      (n, order + 1, size) coefficients: 1, delta, delta_i delta_j (i <= j), z
    e      (n,) remainders >= 0
    norms  (n, 4, order + 1) sums of absolute coefficients: constant, delta, delta delta, z
    """

    c: FloatArray
    e: FloatArray
    norms: FloatArray


class Leaves(NamedTuple):
    """Polynomials of what a tape is made of, and their remainders.

    x     (n_states, order + 1, size) without remainders;  p  (n_parameters, 2) center and half
    time  (2,) t and h, known up to two units of rounding
    u     (n_inputs, 3) value at t, its change during the step, remainder
    """

    x: FloatArray
    p: FloatArray
    time: FloatArray
    u: FloatArray


@kernel
def product(
    n: int, k: int, a: FloatArray, b: FloatArray, powers: tuple[int, int], out: FloatArray
) -> None:
    """What is kept of the coefficient of tau^k of a product, for n parameters, into out (size,).

    powers  of tau that the factors have: further coefficients of theirs are 0
    """
    full = len(out)
    out[:] = 0.0
    for f in range(max(0, k - powers[1] + 1), min(k + 1, powers[0])):
        g = k - f
        f0, g0 = a[f, 0], b[g, 0]
        out[0] += f0 * g0
        for s in range(1, full):
            out[s] += f0 * b[g, s] + a[f, s] * g0
        s = 1 + n
        for j in range(1, n + 1):
            fj, gj = a[f, j], b[g, j]
            if fj == 0 and gj == 0:  # as of parameters and of numbers: most are
                s += n - j + 1
                continue
            out[s] += fj * gj
            s += 1
            for i in range(j + 1, n + 1):
                out[s] += fj * b[g, i] + a[f, i] * gj
                s += 1


@kernel
def measure(n: int, c: FloatArray, norms: FloatArray) -> None:
    """Sums of absolute coefficients (4, m) of c (m, size)."""
    quadratic, errors = 1 + n, 1 + n + n * (n + 1) // 2
    for k in range(len(c)):
        one = linear = curved = late = 0.0
        one = abs(c[k, 0])
        for s in range(1, quadratic):
            linear += abs(c[k, s])
        for s in range(quadratic, errors):
            curved += abs(c[k, s])
        for s in range(errors, c.shape[1]):
            late += abs(c[k, s])
        norms[0, k], norms[1, k], norms[2, k], norms[3, k] = one, linear, curved, late


@kernel
def total(norms: FloatArray) -> float:
    """Sum of all absolute coefficients."""
    return float(norms.sum())


@kernel
def product_error(a: FloatArray, ae: float, b: FloatArray, be: float, length: int) -> float:
    """Remainder of a product, from the norms (4, m) and remainders of its factors.

    length  how many powers of tau the shorter factor has
    """
    (a0, a1, a2), (b0, b1, b2) = sizes_of(a), sizes_of(b)
    full_a, full_b, constant = a0 + a1 + a2, b0 + b1 + b2, a0 * b0
    products = constant + MOST * (1 + SLACK) * full_a * full_b - MOST * constant
    rounding = (length + 1) * UNIT * products
    return up(ae * full_b + be * full_a + ae * be + left_out(a, b) + rounding)


@kernel
def sizes_of(norms: FloatArray) -> tuple[float, float, float]:
    """Sums of absolute coefficients over all times: constant, linear, and the others."""
    constant = linear = others = 0.0
    for i in range(norms.shape[1]):
        constant += norms[0, i]
        linear += norms[1, i]
        others += norms[2, i] + norms[3, i]
    return constant, linear, others


@kernel
def left_out(a: FloatArray, b: FloatArray) -> float:
    """Bound on what a product does not keep, from the norms (4, m) of its factors."""
    m = a.shape[1]
    (_, a1, a2), (_, b1, b2) = sizes_of(a), sizes_of(b)
    e = a1 * b2 + a2 * (b1 + b2)
    late0 = late1 = late2 = 0.0
    for i in range(1, m):  # of the other factor what leads, with tau^i, beyond the order
        late0 += b[0, m - i]
        late1 += b[1, m - i]
        late2 += b[2, m - i] + b[3, m - i]
        e += a[0, i] * (late0 + late1 + late2) + (a[2, i] + a[3, i]) * late0
        e += a[1, i] * (late0 + late1)
    return float(e)


@kernel
def span(norms: FloatArray, c: FloatArray, e: float) -> Pair:
    """Bounds on all values."""
    full = total(norms)
    rest = up(full - abs(c[0, 0]) + 1e3 * UNIT * full)
    rest = up(rest + e)
    return outward(c[0, 0] - rest, c[0, 0] + rest)


@kernel
def extend(tape: ReplayTape, given: Leaves, k: int, to: Polynomials) -> None:
    """Coefficients of tau^k of all operations, those of lower powers being known."""
    n, c = len(given.p), to.c
    for i in range(len(tape.op)):
        op, a, b = tape.op[i], tape.a[i], tape.b[i]
        own = c[i, k]
        if k >= tape.length[i]:
            own[:] = 0.0
        elif op == MUL:
            product(n, k, c[a], c[b], (tape.length[a], tape.length[b]), own)
        elif op == DIV:
            _extend_quotient(tape, i, n, k, c)
        elif op == ADD:
            own[:] = c[a, k] + c[b, k]
        elif op == SUB:
            own[:] = c[a, k] - c[b, k]
        elif op == NEG:
            own[:] = -c[a, k]
        elif op == SQUARE:
            product(n, k, c[a], c[a], (tape.length[a], tape.length[a]), own)
        elif op == STATE:
            own[:] = given.x[a, k]
        elif op == POWER:
            _extend_power(tape, i, k, to)
        elif op >= FUNCTION:
            compose(n, op - FUNCTION, c[a, : k + 1], c.shape[1] - 1, own)
        else:
            own[:] = 0.0
            if op == CONST:
                own[0] = tape.number[i]
            elif op == TIME:
                own[0] = given.time[k]
            elif op == INPUT:
                own[0] = given.u[a, k]
            else:
                own[0], own[1 + a] = given.p[a, 0], given.p[a, 1]


@kernel
def _extend_quotient(tape: ReplayTape, i: int, n: int, k: int, c: FloatArray) -> None:
    """Coefficient of tau^k of a quotient q = a / b, from (q b)_k = a_k, degree by degree."""
    a, b, own, product_of_lower = tape.a[i], tape.b[i], c[i, k], np.empty(c.shape[2])
    own[:] = 0.0
    product(n, k, c[i], c[b], (tape.length[i], tape.length[b]), product_of_lower)
    first = c[b, 0]
    for s in range(len(own)):
        own[s] = (c[a, k, s] - product_of_lower[s] - own[0] * first[s]) / first[0]
    s = 1 + n
    for j in range(1, n + 1):
        own[s] -= own[j] * first[j] / first[0]
        s += 1
        for i2 in range(j + 1, n + 1):
            own[s] -= (own[j] * first[i2] + own[i2] * first[j]) / first[0]
            s += 1


@kernel
def _extend_power(tape: ReplayTape, i: int, k: int, to: Polynomials) -> None:
    """exp(n log(base)); a number where the base may not be positive: only its range is known."""
    own, smooth = to.c[i, k], to.c[tape.smooth[i]]
    own[:] = smooth[k]
    if k > 0 and not np.isfinite(smooth[0]).all():
        own[:] = 0.0
    elif not np.isfinite(own).all():
        own[:] = 0.0
        base, exponent = to.c[tape.a[i], 0], to.c[tape.b[i], 0]
        if k == 0:
            (a, b), (c, d) = _seems(base), _seems(exponent)
            low, high = power(a, b, c, d)
            own[0] = middle(low, high) if high < np.inf else 0.0


@kernel
def _seems(c: FloatArray) -> Pair:
    """Range of a polynomial at the beginning of a step, rounding apart."""
    rest = np.abs(c).sum() - abs(c[0])
    return c[0] - rest, c[0] + rest


@kernel
def compose(n: int, kind: int, c: FloatArray, order: int, out: FloatArray) -> None:
    """Coefficient of the highest power of tau of a function of c (k + 1, size), by Horner."""
    terms = max(order, 2)
    known = np.empty((terms + 1, 2))
    series(kind, c[0, 0], c[0, 0], terms, known)
    result, other, rest = np.zeros(c.shape), np.empty(c.shape), c.copy()
    rest[0, 0] = 0.0
    result[0, 0] = middle(known[terms, 0], known[terms, 1])
    for j in range(terms - 1, -1, -1):
        for k in range(len(c)):
            product(n, k, result, rest, (len(c), len(c)), other[k])
        other[0, 0] += middle(known[j, 0], known[j, 1])
        result, other = other, result
    out[:] = result[-1]


@kernel
def compose_error(
    n: int, kind: int, c: FloatArray, norms: FloatArray, e: float, own: FloatArray
) -> float:
    """How far `own` (order + 1, size) is from a function of c +- e: Lagrange's remainder."""
    order = len(c) - 1
    terms = max(order, 2)
    known, last = np.empty((terms + 1, 2)), np.empty((terms + 2, 2))
    series(kind, c[0, 0], c[0, 0], terms, known)
    low, high = span(norms, c, e)
    series(kind, low, high, terms + 1, last)
    result, other, rest = np.zeros(c.shape), np.empty(c.shape), c.copy()
    rest[0, 0] = 0.0
    rest_norms, result_norms = norms.copy(), np.empty(norms.shape)
    rest_norms[0, 0] = 0.0
    lost = radius(known[terms, 0], known[terms, 1])
    result[0, 0] = middle(known[terms, 0], known[terms, 1])
    for j in range(terms - 1, -1, -1):
        measure(n, result, result_norms)
        lost = product_error(result_norms, lost, rest_norms, e, len(c))
        for k in range(len(c)):
            product(n, k, result, rest, (len(c), len(c)), other[k])
        other[0, 0] += middle(known[j, 0], known[j, 1])
        lost = up(lost + radius(known[j, 0], known[j, 1]) + UNIT * abs(other[0, 0]))
        result, other = other, result
    apart = up(np.abs(result - own).sum())
    far = up(up(total(rest_norms)) + e)
    lagrange = up(size(last[terms + 1, 0], last[terms + 1, 1]) * far ** (terms + 1) * (1 + 1e-12))
    found = up(lost + apart + lagrange)
    return np.inf if np.isnan(found) else found


@kernel
def bound(tape: ReplayTape, given: Leaves, to: Polynomials) -> None:
    """Remainders of all operations, whose coefficients are known."""
    n, c, e, norms = len(given.p), to.c, to.e, to.norms
    for i in range(len(tape.op)):
        op, a, b = tape.op[i], tape.a[i], tape.b[i]
        measure(n, c[i], norms[i])
        if op in (ADD, SUB):
            e[i] = up(e[a] + e[b] + UNIT * total(norms[i]))
        elif op in (MUL, SQUARE):
            other = a if op == SQUARE else b
            length = min(tape.length[a], tape.length[other], c.shape[1])
            e[i] = product_error(norms[a], e[a], norms[other], e[other], length)
        elif op == DIV:
            e[i] = _quotient_error(tape, i, n, to)
        elif op == NEG:
            e[i] = e[a]
        elif op == POWER:
            e[i] = _power_error(tape, i, to)
        elif op >= FUNCTION:
            e[i] = compose_error(n, op - FUNCTION, c[a], norms[a], e[a], c[i])
        elif op == TIME:
            e[i] = up(4 * UNIT * abs(given.time[1]))
        elif op == INPUT:
            e[i] = given.u[a, 2]
        else:
            e[i] = 0.0
        if np.isnan(e[i]):
            e[i] = np.inf


@kernel
def _quotient_error(tape: ReplayTape, i: int, n: int, to: Polynomials) -> float:
    """|a / b - q| = |a - q b| / |b|, for whatever polynomial q is."""
    a, b, c, norms = tape.a[i], tape.b[i], to.c, to.norms
    low, high = span(norms[b], c[b], to.e[b])
    least = max(low, -high)
    if not least > 0:
        return np.inf
    powers, kept, apart = (tape.length[i], tape.length[b]), np.empty(c.shape[2]), 0.0
    for k in range(c.shape[1]):
        product(n, k, c[i], c[b], powers, kept)
        apart = up(apart + np.abs(c[a, k] - kept).sum())
    length = min(powers[0], powers[1], c.shape[1])
    lost = product_error(norms[i], 0.0, norms[b], to.e[b], length)
    return up(up(up(apart + lost) + to.e[a]) / least)


@kernel
def _power_error(tape: ReplayTape, i: int, to: Polynomials) -> float:
    """That of the smooth power, or what its range and the polynomial's leave."""
    a, b, smooth = tape.a[i], tape.b[i], tape.smooth[i]
    same = True
    for k in range(to.c.shape[1]):
        same = same and (to.c[i, k] == to.c[smooth, k]).all()
    if same and to.e[smooth] < np.inf:
        return float(to.e[smooth])
    first, last = span(to.norms[a], to.c[a], to.e[a]), span(to.norms[b], to.c[b], to.e[b])
    low, high = power(first[0], first[1], last[0], last[1])
    least, most = span(to.norms[i], to.c[i], 0.0)
    return up(max(high - least, most - low))
