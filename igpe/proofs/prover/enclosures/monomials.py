"""Truncated polynomials in scaled parameters: which products of monomials are kept.

A coefficient vector holds, in this order, the monomials of delta in [-1, 1]^n_p by degree (1;
delta_j; delta_i delta_j with i <= j; ...) up to `degree`, and z_i, i = 1..n_x, which carry the
error of the states from step to step. Products of z with anything but a number are not kept.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import IntArray

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
