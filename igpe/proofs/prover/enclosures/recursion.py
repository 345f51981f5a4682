"""Taylor coefficients in time of every operation on a tape, each a truncated polynomial.

x(tau, delta, z) = sum_k x_k(delta, z) tau^k, with x_(k+1) = f_k / (k + 1); plain doubles: what is
lost here, truncation and rounding, is bounded in `remainder.py`.

Truncated polynomials in scaled parameters: which products of monomials are kept.

A coefficient vector holds, in this order, the monomials of delta in [-1, 1]^n_p by degree (1;
delta_j; delta_i delta_j with i <= j; ...) up to `degree`, and z_i, i = 1..n_x, which carry the
error of the states from step to step. Products of z with anything but a number are not kept.
"""

import math
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.prover.compiled import kernel
from igpe.proofs.prover.writer import (
    ADD,
    COEFFICIENT,
    CONST,
    COS,
    DIV,
    EXP,
    HORNER,
    INPUT,
    LOG,
    MUL,
    NEG,
    PARAMETER,
    SHIFT,
    SIN,
    SQUARE,
    STATE,
    SUB,
    TERMS,
    TIME,
    Tape,
)

UNIT = 2.0**-53  # largest relative rounding error of one operation
UP = 1 + 2.0**-40  # more than the rounding of 4000 operations on numbers that are not negative
TINY = 1e-300  # more than whatever underflows


class Algebra(NamedTuple):
    """How coefficient vectors are multiplied.

    parameters, states, degree
    size     number of coefficients, of which the last `states` are those of z
    first    (degree + 3,) where each class begins: degrees 0, 1, ..., z, and the end
    left, right, to   (n_products,) kept products of monomials of delta, sorted by `to`
    begin    (n_delta + 1,) where the products of each monomial begin
    factors  (n_delta, 3) the parameters a monomial is made of, -1 beyond its degree
    powers   (n_p, 2) where the square and the cube of each parameter stand; -1: not kept
    most     the largest number of products that are summed up in one coefficient
    """

    parameters: int
    states: int
    degree: int
    size: int
    first: IntArray
    left: IntArray
    right: IntArray
    to: IntArray
    begin: IntArray
    factors: IntArray
    powers: IntArray
    most: int


HIGHEST = 3


def algebra(parameters: int, states: int, degree: int) -> Algebra:
    """The tables of polynomials of a degree between 1 and 3."""
    monomials: list[tuple[int, ...]] = []
    first = [0]
    for d in range(degree + 1):
        monomials += combinations_with_replacement(range(parameters), d)
        first.append(len(monomials))
    place = {m: k for k, m in enumerate(monomials)}
    products = sorted(
        (place[tuple(sorted(a + b))], i, j)
        for i, a in enumerate(monomials)
        for j, b in enumerate(monomials)
        if len(a) + len(b) <= degree
    )
    to, left, right = np.array(products, dtype=np.int64).T
    counts = np.bincount(to, minlength=len(monomials))
    factors = np.full((len(monomials), HIGHEST), -1, dtype=np.int64)
    for k, m in enumerate(monomials):
        factors[k, : len(m)] = m
    return Algebra(
        parameters,
        states,
        degree,
        len(monomials) + states,
        np.array([*first, len(monomials) + states], dtype=np.int64),
        left.copy(),
        right.copy(),
        to.copy(),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        factors,
        np.array(
            [[place.get((j,) * k, -1) for k in (2, 3)] for j in range(parameters)], dtype=np.int64
        ),
        int(counts.max()) + 2,
    )


class Space(NamedTuple):
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


def space(tape: Tape, algebra: Algebra, order: int) -> Space:
    """Room for a tape's numbers."""
    n, classes = len(tape.op), algebra.degree + 2
    return Space(
        np.zeros((n, order + 1, algebra.size)),
        np.zeros((n, order + 1, classes)),
        np.zeros(n),
        np.zeros(n),
        np.zeros((n, 1 + algebra.states)),
        np.zeros(n),
        np.zeros((n, 2)),
        np.zeros((len(tape.function), TERMS + 1)),
        np.zeros((order + 1, classes)),
    )


@kernel
def _expand(kind: int, exponent: float, at: float, g: FloatArray) -> None:
    """Taylor coefficients of a function about a number; nan where there are none."""
    if kind == EXP:
        g[0] = math.exp(at)
        for i in range(1, len(g)):
            g[i] = g[i - 1] / i
    elif kind in (SIN, COS):
        s, c = math.sin(at), math.cos(at)
        if kind == COS:
            s, c = c, -s
        factor = 1.0
        for i in range(len(g)):
            g[i] = s * factor
            s, c = c, -s
            factor /= i + 1
    elif not (at > 0.0):
        g[:] = np.nan
    elif kind == LOG:
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
    algebra: Algebra,
    c: FloatArray,
    a: int,
    b: int,
    k: int,
    low: int,
    high: int,
    out: FloatArray,
    sign: float,
) -> None:
    """out += sign * sum of a_j b_(k-j), low <= j <= high, as far as monomials are kept."""
    n = algebra.size - algebra.states
    for j in range(low, high + 1):
        i = k - j
        for t in range(len(algebra.to)):
            out[algebra.to[t]] += sign * c[a, j, algebra.left[t]] * c[b, i, algebra.right[t]]
        p, q = sign * c[a, j, 0], sign * c[b, i, 0]
        for m in range(n, algebra.size):
            out[m] += p * c[b, i, m] + q * c[a, j, m]


@kernel
def _quotient(algebra: Algebra, c: FloatArray, n: int, a: int, b: int, k: int) -> None:
    """c_n = a / b at order k: by order in time and, within it, by degree."""
    out = c[n, k]
    out[:] = c[a, k]
    _product(algebra, c, n, b, k, 0, k - 1, out, -1.0)
    b0 = c[b, 0, 0]
    delta = algebra.size - algebra.states
    for m in range(delta):
        total = out[m]
        for t in range(algebra.begin[m], algebra.begin[m + 1]):
            if algebra.right[t] != 0:
                total -= out[algebra.left[t]] * c[b, 0, algebra.right[t]]
        out[m] = total / b0
    for m in range(delta, algebra.size):
        out[m] = (out[m] - out[0] * c[b, 0, m]) / b0


@kernel
def coefficient(
    tape: Tape, algebra: Algebra, space: Space, x: FloatArray, p: FloatArray, u: FloatArray, k: int
) -> None:
    """Coefficients of order k of every operation, from those of lower order.

    x  (order + 1, n_x, size) of the states;  p: (n_p, 5) of each parameter, see `scales`;
    u  (n_u + 1, 2) value at the step's beginning and slope of the inputs and, last, of time
    """
    c = space.c
    for n in range(len(tape.op)):
        op, a, b = tape.op[n], tape.a[n], tape.b[n]
        if k > tape.reach[n]:
            continue
        out = c[n, k]
        if op == STATE:
            out[:] = x[k, a]
        elif op in (ADD, SUB):
            sign = 1.0 if op == ADD else -1.0
            for m in range(algebra.size):
                out[m] = c[a, k, m] + sign * c[b, k, m]
        elif op == NEG:
            for m in range(algebra.size):
                out[m] = -c[a, k, m]
        elif op in (MUL, SQUARE):
            other = a if op == SQUARE else b
            low = max(0, k - tape.reach[other])
            out[:] = 0.0
            _product(algebra, c, a, other, k, low, min(k, tape.reach[a]), out, 1.0)
        elif op == DIV:
            _quotient(algebra, c, n, a, b, k)
        elif op == PARAMETER:
            out[:] = 0.0
            out[0], out[1 + a] = p[a, 0], p[a, 1]
            for i in range(2):
                if algebra.powers[a, i] >= 0:
                    out[algebra.powers[a, i]] = p[a, 2 + i]
        elif op in (INPUT, TIME):
            out[:] = 0.0
            out[0] = u[a if op == INPUT else len(u) - 1, k]
        elif op == CONST:
            out[:] = 0.0
            out[0] = tape.number[n]
        else:
            _of_function(tape, space, n, k)


@kernel
def _of_function(tape: Tape, space: Space, n: int, k: int) -> None:
    """SHIFT, COEFFICIENT, HORNER and CLOSE."""
    op, a, b, c = tape.op[n], tape.a[n], tape.b[n], space.c
    i = int(tape.number[n])
    if op == COEFFICIENT:
        c[n, k] = 0.0
        c[n, k, 0] = space.g[b, i]
        return
    c[n, k] = c[a, k]
    if k == 0 and op == SHIFT:
        _expand(tape.function[b], tape.exponent[b], c[a, 0, 0], space.g[b])
        c[n, 0, 0] = 0.0
    elif k == 0 and op == HORNER:
        c[n, 0, 0] += space.g[b, i]
