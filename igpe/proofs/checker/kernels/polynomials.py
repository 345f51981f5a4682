"""Truncated polynomials with a rigorous remainder (Taylor models), for one box.

    f(delta, z, tau)  in  sum_k tau^k (c_k0 + sum_i c_ki delta_i + sum_ij c_kij delta_i delta_j
                                       + sum_ijl c_kijl delta_i delta_j delta_l
                                       + sum_l c_kl z_l)  +- e

for all delta, z in [-1, 1] and tau in [0, 1]. delta are the parameters' offsets in their box, z the
coordinates in which the error of a state is carried along, tau the time in one step. Degree 3 in
delta is kept or not (`Terms`). What a product has beyond the degree in delta, degree 1 in z
(without delta) and the order in tau is bounded by sums of absolute values and goes into e, and so
does every rounding.

Coefficients of tau^k are computed for one k after the other, since those of a solution follow from
those of its slope (`extend`). Whatever they came out as, `bound` then encloses the error.

Two rules of rounding are used, and nothing else:

- a sum of n products, however ordered, is off by at most (n + 1) UNIT times the sum of the absolute
  products, as n UNIT / (1 - n UNIT) <= (n + 1) UNIT for all n < 1e7;
- what is computed from numbers >= 0 by at most 4000 additions, multiplications and divisions is not
  above `up` of it and not below `down` of it.

States before a step are P(delta) + A z with |z| <= 1, for as many directions as A has columns.
Polynomials have one coordinate for each state, (A z)_s / r_s with r_s >= sum_k |A_sk|. Where it has
coefficients B after the step, the error is B diag(1/r) A z + S diag(w) z' + eps, |eps| <= e. The
longest columns are kept. The sum of the others and eps is enclosed in C z'', whose columns are
nearly orthogonal, the longest other column leading (Lohner's QR method). Q is any matrix nearly
orthogonal: with eta >= ||I - Q'Q||,

    |Q^-1 w|_i <= |Q'w|_i + eta / (1 - eta) max_j |Q'w|_j,

so Q diag(y) contains what it should where y bounds that; what rounding of C = Q diag(y) moves is
added to y as well (by Brouwer's theorem twice its first effect is enough).
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import (
    ADD,
    CONST,
    DIV,
    FUNCTION,
    INPUT,
    MUL,
    NEG,
    POWER,
    SLACK,
    SQUARE,
    STATE,
    SUB,
    TIME,
    UNIT,
    Pair,
    ReplayTape,
    middle,
    outward,
    power,
    radius,
    series,
    size,
    up,
)
from igpe.proofs.compiled import kernel, lean_kernel

MOST, MOST_CUBIC = 4, 8  # products that one coefficient sums up: a_0 b_ij and three more; a_0 b_ijl


class Terms(NamedTuple):
    """Which monomials in delta are kept.

    n      parameters
    cubic  whether those of degree 3 are kept as well as those of degrees 0, 1 and 2
    """

    n: int
    cubic: bool


@lean_kernel
def count_of_terms(terms: Terms) -> int:
    """How many monomials in delta there are."""
    n = terms.n
    return int(quadratic_end(n) + (n * (n + 1) * (n + 2) // 6 if terms.cubic else 0))


@lean_kernel
def quadratic_end(n: int) -> int:
    """How many monomials in n offsets have a degree of at most 2."""
    return 1 + n + n * (n + 1) // 2


class Polynomials(NamedTuple):
    """Polynomials of all operations of a tape.

    c      (n, order + 1, size) coefficients: 1, delta, delta_i delta_j (i <= j),
           delta_i delta_j delta_l (i <= j <= l) if they are kept, z
    e      (n,) remainders >= 0
    norms  (n, 5, order + 1) sums of absolute coefficients: of degrees 0 to 3 in delta, and of z
    """

    c: FloatArray
    e: FloatArray
    norms: FloatArray


class Leaves(NamedTuple):
    """Polynomials of what a tape is made of, and their remainders.

    x     (n_states, order + 1, size) without remainders;  p  (n_parameters, 2) center and half
    time  (2,) t and h, known up to two units of rounding
    u     (n_inputs, 3) value at t, its change during the step, remainder
    terms  which monomials are kept
    """

    x: FloatArray
    p: FloatArray
    time: FloatArray
    u: FloatArray
    terms: Terms


@lean_kernel
def product(
    terms: Terms, k: int, a: FloatArray, b: FloatArray, powers: tuple[int, int], out: FloatArray
) -> None:
    """What is kept of the coefficient of tau^k of a product, into out (size,).

    powers  of tau that the factors have: further coefficients of theirs are 0
    """
    out[:] = 0.0
    for f in range(max(0, k - powers[1] + 1), min(k + 1, powers[0])):
        g = k - f
        f0, g0 = a[f, 0], b[g, 0]
        out[0] += f0 * g0
        for s in range(1, len(out)):
            out[s] += f0 * b[g, s] + a[f, s] * g0
        add_quadratic(terms.n, a, f, b, g, out)
        if terms.cubic:
            add_cubic(terms.n, a, f, b, g, out)


@lean_kernel
def add_quadratic(n: int, a: FloatArray, f: int, b: FloatArray, g: int, out: FloatArray) -> None:
    """Add the products of linear terms of a[f] and b[g] to out (size,)."""
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


@lean_kernel
def add_cubic(n: int, a: FloatArray, f: int, b: FloatArray, g: int, out: FloatArray) -> None:
    """Add the products of linear and quadratic terms of a[f] and b[g] to out (size,)."""
    is_constant = True
    for j in range(1, n + 1):
        is_constant = is_constant and a[f, j] == 0 and b[g, j] == 0
    if is_constant:
        return
    s, ij = quadratic_end(n), n
    for i in range(1, n + 1):
        jl = ij
        for j in range(i, n + 1):
            ij += 1
            il = ij - 1
            for m in range(j, n + 1):
                jl, il = jl + 1, il + 1
                both = a[f, i] * b[g, jl] + a[f, jl] * b[g, i]
                if j != i:
                    both += a[f, j] * b[g, il] + a[f, il] * b[g, j]
                if m != j:
                    both += a[f, m] * b[g, ij] + a[f, ij] * b[g, m]
                out[s] += both
                s += 1


@lean_kernel
def measure(terms: Terms, c: FloatArray, norms: FloatArray) -> None:
    """Sums of absolute coefficients (5, m) of c (m, size)."""
    ends = 1, 1 + terms.n, quadratic_end(terms.n), count_of_terms(terms), c.shape[1]
    for k in range(len(c)):
        s = 0
        for degree in range(5):
            found = 0.0
            while s < ends[degree]:
                found += abs(c[k, s])
                s += 1
            norms[degree, k] = found


@lean_kernel
def total(norms: FloatArray) -> float:
    """Sum of all absolute coefficients."""
    return float(norms.sum())


@lean_kernel
def product_error(
    terms: Terms, a: FloatArray, ae: float, b: FloatArray, be: float, length: int
) -> float:
    """Remainder of a product, from the norms (5, m) and remainders of its factors.

    length  how many powers of tau the shorter factor has
    """
    full_a, full_b = total(a), total(b)
    constant = a[0].sum() * b[0].sum()
    most = MOST_CUBIC if terms.cubic else MOST
    products = constant + most * (1 + SLACK) * full_a * full_b - most * constant
    rounding = (length + 1) * UNIT * products
    return up(ae * full_b + be * full_a + ae * be + left_out(terms, a, b) + rounding)


@lean_kernel
def left_out(terms: Terms, a: FloatArray, b: FloatArray) -> float:
    """Bound on what a product does not keep, from the norms (5, m) of its factors.

    z and the highest degree in delta are alike: their products with delta are left out.
    """
    m, top, two = a.shape[1], 3 if terms.cubic else 2, 1.0 if terms.cubic else 0.0
    a1 = a2 = a3 = b1 = b2 = b3 = 0.0
    for i in range(m):
        a1, a2, a3 = a1 + a[1, i], a2 + two * a[2, i], a3 + a[top, i] + a[4, i]
        b1, b2, b3 = b1 + b[1, i], b2 + two * b[2, i], b3 + b[top, i] + b[4, i]
    e = a1 * b3 + a2 * (b2 + b3) + a3 * (b1 + b2 + b3)
    late0 = late1 = late2 = late3 = 0.0
    for i in range(1, m):  # of the other factor what leads, with tau^i, beyond the order
        late0 += b[0, m - i]
        late1 += b[1, m - i]
        late2 += two * b[2, m - i]
        late3 += b[top, m - i] + b[4, m - i]
        e += a[0, i] * (late0 + late1 + late2 + late3) + a[1, i] * (late0 + late1 + late2)
        e += two * a[2, i] * (late0 + late1) + (a[top, i] + a[4, i]) * late0
    return float(e)


@lean_kernel
def span(norms: FloatArray, c: FloatArray, e: float) -> Pair:
    """Bounds on all values."""
    full = total(norms)
    rest = up(full - abs(c[0, 0]) + 1e3 * UNIT * full)
    rest = up(rest + e)
    return outward(c[0, 0] - rest, c[0, 0] + rest)


@lean_kernel
def extend(tape: ReplayTape, given: Leaves, k: int, to: Polynomials) -> None:
    """Coefficients of tau^k of all operations, those of lower powers being known."""
    terms, c = given.terms, to.c
    for i in range(len(tape.code)):
        op, a, b = tape.code[i, 0], tape.code[i, 1], tape.code[i, 2]
        own = c[i, k]
        if k >= tape.code[i, 4]:
            own[:] = 0.0
        elif op == MUL:
            product(terms, k, c[a], c[b], (tape.code[a, 4], tape.code[b, 4]), own)
        elif op == DIV:
            _extend_quotient(tape, i, terms, k, c)
        elif op == ADD:
            for s in range(len(own)):
                own[s] = c[a, k, s] + c[b, k, s]
        elif op == SUB:
            for s in range(len(own)):
                own[s] = c[a, k, s] - c[b, k, s]
        elif op == NEG:
            for s in range(len(own)):
                own[s] = -c[a, k, s]
        elif op == SQUARE:
            product(terms, k, c[a], c[a], (tape.code[a, 4], tape.code[a, 4]), own)
        elif op == STATE:
            for s in range(len(own)):
                own[s] = given.x[a, k, s]
        elif op == POWER:
            _extend_power(tape, i, k, to)
        elif op >= FUNCTION:
            compose(terms, op - FUNCTION, c[a, : k + 1], c.shape[1] - 1, own)
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
def _extend_quotient(tape: ReplayTape, i: int, terms: Terms, k: int, c: FloatArray) -> None:
    """Coefficient of tau^k of a quotient q = a / b, from (q b)_k = a_k, degree by degree."""
    a, b, own, lower = tape.code[i, 1], tape.code[i, 2], c[i, k], np.empty(c.shape[2])
    own[:] = 0.0
    product(terms, k, c[i], c[b], (tape.code[i, 4], tape.code[b, 4]), lower)
    first, linear, quadratic = c[b, 0], 1 + terms.n, quadratic_end(terms.n)
    for s in range(len(own)):
        own[s] = (c[a, k, s] - lower[s] - own[0] * first[s]) / first[0]
    lower[:] = 0.0
    add_quadratic(terms.n, c[i], k, c[b], 0, lower)
    for s in range(linear, quadratic):
        own[s] -= lower[s] / first[0]
    if terms.cubic:
        add_cubic(terms.n, c[i], k, c[b], 0, lower)
        for s in range(quadratic, count_of_terms(terms)):
            own[s] -= lower[s] / first[0]


@kernel
def _extend_power(tape: ReplayTape, i: int, k: int, to: Polynomials) -> None:
    """exp(n log(base)); a number where the base may not be positive: only its range is known."""
    own, smooth = to.c[i, k], to.c[tape.code[i, 3]]
    own[:] = smooth[k]
    if k > 0 and not np.isfinite(smooth[0]).all():
        own[:] = 0.0
    elif not np.isfinite(own).all():
        own[:] = 0.0
        base, exponent = to.c[tape.code[i, 1], 0], to.c[tape.code[i, 2], 0]
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
def compose(terms: Terms, kind: int, c: FloatArray, order: int, out: FloatArray) -> None:
    """Coefficient of the highest power of tau of a function of c (k + 1, size), by Horner."""
    last = max(order, 3 if terms.cubic else 2)
    known = np.empty((last + 1, 2))
    series(kind, c[0, 0], c[0, 0], last, known)
    result, other, rest = np.zeros(c.shape), np.empty(c.shape), c.copy()
    rest[0, 0] = 0.0
    result[0, 0] = middle(known[last, 0], known[last, 1])
    for j in range(last - 1, -1, -1):
        for k in range(len(c)):
            product(terms, k, result, rest, (len(c), len(c)), other[k])
        other[0, 0] += middle(known[j, 0], known[j, 1])
        result, other = other, result
    out[:] = result[-1]


@kernel
def compose_error(
    terms: Terms, kind: int, c: FloatArray, norms: FloatArray, e: float, own: FloatArray
) -> float:
    """How far `own` (order + 1, size) is from a function of c +- e: Lagrange's remainder."""
    last = max(len(c) - 1, 3 if terms.cubic else 2)
    known, beyond = np.empty((last + 1, 2)), np.empty((last + 2, 2))
    series(kind, c[0, 0], c[0, 0], last, known)
    low, high = span(norms, c, e)
    series(kind, low, high, last + 1, beyond)
    result, other, rest = np.zeros(c.shape), np.empty(c.shape), c.copy()
    rest[0, 0] = 0.0
    rest_norms, result_norms = norms.copy(), np.empty(norms.shape)
    rest_norms[0, 0] = 0.0
    lost = radius(known[last, 0], known[last, 1])
    result[0, 0] = middle(known[last, 0], known[last, 1])
    for j in range(last - 1, -1, -1):
        measure(terms, result, result_norms)
        lost = product_error(terms, result_norms, lost, rest_norms, e, len(c))
        for k in range(len(c)):
            product(terms, k, result, rest, (len(c), len(c)), other[k])
        other[0, 0] += middle(known[j, 0], known[j, 1])
        lost = up(lost + radius(known[j, 0], known[j, 1]) + UNIT * abs(other[0, 0]))
        result, other = other, result
    apart = up(np.abs(result - own).sum())
    far = up(up(total(rest_norms)) + e)
    lagrange = up(size(beyond[last + 1, 0], beyond[last + 1, 1]) * far ** (last + 1) * (1 + 1e-12))
    found = up(lost + apart + lagrange)
    return np.inf if np.isnan(found) else found


@lean_kernel
def bound(tape: ReplayTape, given: Leaves, to: Polynomials) -> None:
    """Remainders of all operations, whose coefficients are known."""
    terms, c, e, norms = given.terms, to.c, to.e, to.norms
    for i in range(len(tape.code)):
        op, a, b = tape.code[i, 0], tape.code[i, 1], tape.code[i, 2]
        measure(terms, c[i], norms[i])
        if op in (ADD, SUB):
            e[i] = up(e[a] + e[b] + UNIT * total(norms[i]))
        elif op in (MUL, SQUARE):
            other = a if op == SQUARE else b
            length = min(tape.code[a, 4], tape.code[other, 4], c.shape[1])
            e[i] = product_error(terms, norms[a], e[a], norms[other], e[other], length)
        elif op == DIV:
            e[i] = _quotient_error(tape, i, terms, to)
        elif op == NEG:
            e[i] = e[a]
        elif op == POWER:
            e[i] = _power_error(tape, i, to)
        elif op >= FUNCTION:
            e[i] = compose_error(terms, op - FUNCTION, c[a], norms[a], e[a], c[i])
        elif op == TIME:
            e[i] = up(4 * UNIT * abs(given.time[1]))
        elif op == INPUT:
            e[i] = given.u[a, 2]
        else:
            e[i] = 0.0
        if np.isnan(e[i]):
            e[i] = np.inf


@kernel
def _quotient_error(tape: ReplayTape, i: int, terms: Terms, to: Polynomials) -> float:
    """|a / b - q| = |a - q b| / |b|, for whatever polynomial q is."""
    a, b, c, norms = tape.code[i, 1], tape.code[i, 2], to.c, to.norms
    low, high = span(norms[b], c[b], to.e[b])
    least = max(low, -high)
    if not least > 0:
        return np.inf
    powers, kept, apart = (tape.code[i, 4], tape.code[b, 4]), np.empty(c.shape[2]), 0.0
    for k in range(c.shape[1]):
        product(terms, k, c[i], c[b], powers, kept)
        apart = up(apart + np.abs(c[a, k] - kept).sum())
    length = min(powers[0], powers[1], c.shape[1])
    lost = product_error(terms, norms[i], 0.0, norms[b], to.e[b], length)
    return up(up(up(apart + lost) + to.e[a]) / least)


@kernel
def _power_error(tape: ReplayTape, i: int, to: Polynomials) -> float:
    """That of the smooth power, or what its range and the polynomial's leave."""
    a, b, smooth = tape.code[i, 1], tape.code[i, 2], tape.code[i, 3]
    same = True
    for k in range(to.c.shape[1]):
        same = same and (to.c[i, k] == to.c[smooth, k]).all()
    if same and to.e[smooth] < np.inf:
        return float(to.e[smooth])
    first, last = span(to.norms[a], to.c[a], to.e[a]), span(to.norms[b], to.c[b], to.e[b])
    low, high = power(first[0], first[1], last[0], last[1])
    least, most = span(to.norms[i], to.c[i], 0.0)
    return up(max(high - least, most - low))


NEARLY = 1e-3  # a matrix further from orthogonal is not used
EACH, MOST = 8, 1500  # directions for each state, and for all


@lean_kernel
def count_of(states: int) -> int:
    """How many directions errors have."""
    return int(max(2 * states, min(EACH * states, MOST)))


@kernel
def carry(
    b: FloatArray, r: FloatArray, a: FloatArray, moved: FloatArray, e: FloatArray, out: FloatArray
) -> bool:
    """Write the directions after a step into out, of the shape of A; whether there are any.

    b  (n, n) coefficients of the coordinates;  r (n,) and a (n, any) as above;  e (n,) the rest
    """
    n, many = len(e), a.shape[1]
    every, rest = np.zeros((n, many + moved.shape[1])), e.copy()
    for i in range(n):
        for s in range(n):
            if b[i, s] != 0:
                factor = b[i, s] / r[s]
                for k in range(many):
                    every[i, k] += factor * a[s, k]
                rest[i] += (n + 6) * UNIT * abs(b[i, s])
        rest[i] = up(rest[i])
    every[:, many:] = moved
    if not (np.isfinite(every).all() and np.isfinite(rest).all()):
        return False
    extent = np.zeros(every.shape[1])
    for i in range(n):
        widest = np.abs(every[i]).max()
        if widest > 0:
            extent += np.abs(every[i]) / widest
    order = np.argsort(-extent)
    kept = many - n
    for k in range(kept):
        out[:, k] = every[:, order[k]]
    return reset(every[:, order[kept:]].copy(), rest, out[:, kept:])


@kernel
def ranges_of(a: FloatArray, r: FloatArray) -> None:
    """Write r_s >= sum_k |A_sk|."""
    for s in range(len(r)):
        r[s] = up(np.abs(a[s]).sum())


@kernel
def reset(a: FloatArray, e: FloatArray, c: FloatArray) -> bool:
    """Write C for A (n, many) and e (n,); return False, and nan, where none was found."""
    n, many = len(e), a.shape[1]
    c[:] = np.nan
    if not (np.isfinite(a).all() and np.isfinite(e).all()):
        return False
    q = axes(a, e)
    y, eta = np.empty(n), 0.0
    for i in range(n):
        turned = slack = 0.0
        for j in range(many):
            one = sizes = 0.0
            for k in range(n):
                one += q[k, i] * a[k, j]
                sizes += abs(q[k, i]) * abs(a[k, j])
            turned += abs(one)
            slack += sizes
        own = 0.0
        for k in range(n):
            own += abs(q[k, i]) * e[k]
        y[i] = up(turned + 2 * n * UNIT * slack + own)
        row = 0.0
        for j in range(n):
            one = 1.0 if i == j else 0.0
            for k in range(n):
                one -= q[k, i] * q[k, j]
            row += abs(one)
        eta = max(eta, row)
    eta = up(eta + 4 * n * n * UNIT)
    if not eta < NEARLY:
        return False
    beyond = up(eta / (1 - eta))
    y += beyond * y.max()
    for i in range(n):
        y[i] = up(y[i])
    moved, back = np.zeros(n), np.zeros(n)
    for i in range(n):
        for j in range(n):
            moved[i] += abs(q[i, j]) * y[j] * 4 * UNIT
    for i in range(n):
        for j in range(n):
            back[j] += abs(q[i, j]) * moved[i]
    most = back.max()
    for j in range(n):
        last = up(y[j] + back[j] + 2 * beyond * most)
        c[:, j] = q[:, j] * last
    return bool(np.isfinite(c).all())


@kernel
def axes(a: FloatArray, e: FloatArray) -> FloatArray:
    """A matrix nearly orthogonal, the longest column of A first; the identity if A hardly matters.

    Gram and Schmidt, twice each; where a column brings no new direction, an axis that does.
    """
    n = len(e)
    q, sizes = np.eye(n), (a**2).sum(axis=0)
    if not sizes.max() > (e**2).max():
        return q
    column = np.empty(n)
    for k in range(n):
        longest = 0
        for j in range(len(sizes)):
            longest = j if sizes[j] > sizes[longest] else longest
        sizes[longest] = -1.0
        column[:] = a[:, longest]
        before = np.sqrt((column**2).sum())
        left = _without(q, k, column)
        axis = 0
        while not left > 1e-8 * before and axis < n:
            column[:] = 0.0
            column[axis] = before = 1.0
            left = _without(q, k, column)
            left = left if left > 0.5 / np.sqrt(n) else 0.0
            axis += 1
        q[:, k] = column / left
    return q


@kernel
def _without(q: FloatArray, k: int, column: FloatArray) -> float:
    """Take the first k columns of Q out of a column, twice; return what length is left."""
    for _ in range(2):
        for j in range(k):
            share = 0.0
            for i in range(len(column)):
                share += q[i, j] * column[i]
            for i in range(len(column)):
                column[i] -= share * q[i, j]
    return float(np.sqrt((column**2).sum()))
