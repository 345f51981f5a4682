"""Truncated polynomials with a rigorous remainder (Taylor models), many at once.

    f(delta, z, tau)  in  sum_k tau^k (c_0k + sum_i c_ik delta_i + sum_ij c_ijk delta_i delta_j
                                       + sum_l c_lk z_l)  +- e

for all delta, z in [-1, 1] and tau in [0, 1]. delta are the parameters' offsets in their box, z the
coordinates in which the error of a state is carried along, tau the time in one step. What a product
has beyond degree 2 in delta, degree 1 in z (without delta) and the order in tau is bounded by sums
of absolute values and goes into e, and so does every rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.functions import Coefficients, exp, log
from igpe.proofs.checker.interval import SLACK, TINY, UNIT, Interval, outward, up

MOST = 4  # products that a coefficient of one power of tau is the sum of: a_0 b_ij and three more


@dataclass(frozen=True)
class TaylorSpace:
    """Which terms are kept.

    parameters, errors  how many delta and z
    order     highest power of tau
    careful   whether remainders are computed; without them a polynomial is only a guess
    """

    parameters: int
    errors: int
    order: int
    careful: bool = True

    @property
    def size(self) -> int:
        """Number of monomials in delta and z."""
        return self.first_error + self.errors

    @property
    def first_error(self) -> int:
        """Place of z_1."""
        return 1 + self.parameters + self.parameters * (self.parameters + 1) // 2


@lru_cache
def pairs(n: int) -> tuple[tuple[int, int], ...]:
    """i <= j in the order in which delta_i delta_j are kept."""
    return tuple((i, j) for i in range(n) for j in range(i, n))


@dataclass(frozen=True)
class Polynomial:
    """c (size, m, n_boxes), m <= order + 1 powers of tau; e (n_boxes,) >= 0 (module docstring)."""

    space: TaylorSpace
    c: FloatArray
    e: FloatArray

    def __add__(self, other: "Polynomial") -> "Polynomial":
        a, b = (self, other) if self.c.shape[1] >= other.c.shape[1] else (other, self)
        c = a.c.copy()
        c[:, : b.c.shape[1]] += b.c
        if not self.space.careful:
            return Polynomial(self.space, c, self.e)
        rounding = UNIT * np.abs(c).sum(axis=(0, 1))
        return Polynomial(self.space, c, up(self.e + other.e + rounding))

    def __neg__(self) -> "Polynomial":
        return Polynomial(self.space, -self.c, self.e)

    def __sub__(self, other: "Polynomial") -> "Polynomial":
        return self + -other

    def __mul__(self, other: "Polynomial") -> "Polynomial":
        a, b = (self, other) if self.c.shape[1] <= other.c.shape[1] else (other, self)
        c = _multiplied(self.space, a.c, b.c)
        if not self.space.careful:
            return Polynomial(self.space, c, self.e)
        constant, product = a.norms[0].sum(axis=0) * b.norms[0].sum(axis=0), a.norm * b.norm
        products = constant + MOST * (1 + SLACK) * product - MOST * constant
        rounding = (a.c.shape[1] + 1) * UNIT * products
        e = a.e * b.norm + b.e * a.norm + a.e * b.e
        return Polynomial(self.space, c, up(e + _left_out(self.space, a.norms, b.norms) + rounding))

    def square(self) -> "Polynomial":
        """f * f."""
        return self * self

    def through(self, function: Coefficients) -> "Polynomial":
        """An elementary function: expanded at the constant, Lagrange's remainder over the range."""
        n = max(self.space.order, 2)
        at = self.c[0, 0]
        rest = Polynomial(self.space, self.c.copy(), self.e)
        rest.c[0, 0] = 0.0
        known = function(Interval(at, at), n)
        last = function(self.range(), n + 1)[n + 1]
        size = up(rest.norm + rest.e)
        result = self.constant(known[n])
        for k in reversed(range(n)):
            result = result * rest + self.constant(known[k])
        with np.errstate(all="ignore"):
            e = up(result.e + up(last.size * size ** (n + 1) * (1 + 1e-12)))
        return Polynomial(self.space, result.c, np.where(np.isnan(e), np.inf, e))

    def power(self, exponent: "Polynomial") -> "Polynomial":
        """Power; 0 where the base is not positive: there only its range is known."""
        with np.errstate(all="ignore"):
            smooth = (exponent * self.through(log)).through(exp)
            coarse = self.constant(self.range().power(exponent.range()))
        good = np.isfinite(smooth.c).all(axis=(0, 1)) & np.isfinite(smooth.e)
        c = np.where(good, smooth.c, 0.0)
        c[:, :1] = np.where(good, smooth.c[:, :1], coarse.c)
        return Polynomial(self.space, c, np.where(good, smooth.e, coarse.e))

    def constant(self, value: Interval) -> "Polynomial":
        """A number for each box that is known to lie in an interval."""
        c = np.zeros((self.space.size, 1, len(self.e)))
        c[0, 0] = value.middle
        return Polynomial(self.space, c, self.e * 0.0 + value.radius)

    def times(self, factor: FloatArray, units: int = 0) -> "Polynomial":
        """Times a number (n_boxes,) that is known up to some units of rounding."""
        size = np.abs(factor)
        e = size * (self.e + (2 + units) * UNIT * (self.norm + self.e)) + TINY
        return Polynomial(self.space, self.c * factor, up(e))

    @cached_property
    def norms(self) -> FloatArray:
        """(4, m, n_boxes) sums of absolute coefficients: constant, delta, delta delta, z."""
        s = self.space
        starts = [0, 1, 1 + s.parameters, s.first_error]
        return np.asarray(np.add.reduceat(np.abs(self.c), starts, axis=0))

    @cached_property
    def norm(self) -> FloatArray:
        """(n_boxes,) their sum."""
        return np.asarray(self.norms.sum(axis=(0, 1)))

    def range(self) -> Interval:
        """Bounds on all values."""
        rest = up(self.norm - np.abs(self.c[0, 0]) + 1e3 * UNIT * self.norm)
        rest = up(rest + self.e)
        return outward(self.c[0, 0] - rest, self.c[0, 0] + rest)

    def at_end(self) -> "Polynomial":
        """Polynomial at tau = 1."""
        partial = np.cumsum(self.c[:, ::-1], axis=1)  # small terms first; each sum rounded once
        rounding = UNIT * np.abs(partial[:, 1:]).sum(axis=(0, 1))
        return Polynomial(self.space, partial[:, -1:], up(self.e + rounding))


def _multiplied(space: TaylorSpace, a: FloatArray, b: FloatArray) -> FloatArray:
    """Coefficients of what is kept of a product; a has no more powers of tau than b."""
    n = space.parameters
    places = np.array(pairs(n), dtype=np.intp).reshape(-1, 2)
    (first, second), mixed = 1 + places.T, np.flatnonzero(places[:, 0] < places[:, 1])
    length = min(a.shape[1] + b.shape[1] - 1, space.order + 1)
    a = a[:, :length]
    b, powers = b[:, :length], a.shape[1]
    wide = np.zeros((b.shape[0], powers - 1 + length, b.shape[2]))
    wide[:, powers - 1 : powers - 1 + b.shape[1]] = b
    term, power, box = wide.strides
    shape, steps = (b.shape[0], length, powers, b.shape[2]), (term, power, -power, box)
    # (size, length, powers, n_boxes): the coefficient k - i of b, 0 where there is none; a view
    late = np.lib.stride_tricks.as_strided(wide[:, powers - 1 :], shape, steps)
    c = np.einsum("in,mkin->mkn", a[0], late)
    c[1:] += np.einsum("min,kin->mkn", a[1:], late[0])
    squares = c[1 + n : space.first_error]
    squares += np.einsum("min,mkin->mkn", a[first], late[second])
    squares[mixed] += np.einsum("min,mkin->mkn", a[second[mixed]], late[first[mixed]])
    return np.asarray(c)


def _left_out(space: TaylorSpace, a: FloatArray, b: FloatArray) -> FloatArray:
    """Bound on what is not kept, from the norms (4, m, n_boxes) of the factors."""
    all_a, all_b = a.sum(axis=1), b.sum(axis=1)
    e = all_a[1] * (all_b[2] + all_b[3])
    e = e + (all_a[2] + all_a[3]) * (all_b[1] + all_b[2] + all_b[3])
    for i in range(a.shape[1]):
        late = b[:, max(space.order + 1 - i, 0) :].sum(axis=1)
        e = e + a[0, i] * late.sum(axis=0) + (a[2, i] + a[3, i]) * late[0]
        e = e + a[1, i] * (late[0] + late[1])
    return np.asarray(e)


def constants(space: TaylorSpace, boxes: int) -> Callable[[float], Polynomial]:
    """Function that makes the polynomial of a number that is exact."""

    def number(value: float) -> Polynomial:
        c = np.zeros((space.size, 1, boxes))
        c[0] = value
        return Polynomial(space, c, np.zeros(boxes))

    return number
