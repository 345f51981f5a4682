"""Exact arithmetic modulo primes: numbers with derivatives, matrices, and matrices of series.

A number is a row (value, derivative by unknown 1, ..., by unknown N), modulo a prime below 2**31,
so that the product of two fits into 64 bits. Several points, each with a prime of its own, are
computed side by side: an array of numbers has the shape (points, 1 + N), a series (points, 1 + N,
orders).
"""

from fractions import Fraction
from math import isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Residues = npt.NDArray[np.uint64]

LARGEST = 2**31
POINTS = 2  # of each prime: two show what is constant, two primes what is a small quotient
DIVISORS = np.arange(3, 46342, 2)  # up to the root of LARGEST
SIMPLE = 10**5  # a float next to a quotient of so small a denominator means that quotient


class Singular(ArithmeticError):
    """A division by zero: the point lies where the equations are not defined."""


class Field:
    """Arithmetic of all points at once.

    primes  one for each point
    size    1 + N, the length of a number
    random  a source of residues
    """

    def __init__(self, primes: list[int], size: int, random: np.random.Generator) -> None:
        self.primes, self.size, self.random = primes, size, random
        self.modulus = np.array(primes, dtype=np.uint64)[:, None]

    def number(self, value: float) -> Residues:
        """(points, size): a known number, which depends on nothing."""
        exact = rational(value)
        return self.constant([residue(exact, p) for p in self.primes])

    def constant(self, values: list[int] | Residues) -> Residues:
        """(points, size): known residues, one for each point."""
        result = np.zeros((len(self.primes), self.size), dtype=np.uint64)
        result[:, 0] = values
        return result

    def unknowns(self, q: Residues) -> list[Residues]:
        """(points, n) values of unknowns as numbers that depend on themselves."""
        result = [self.constant(column) for column in q.T]
        for i, number in enumerate(result):
            number[:, 1 + i] = 1
        return result

    def draw(self) -> list[int]:
        """A random residue other than zero for each point."""
        return [int(self.random.integers(1, p)) for p in self.primes]

    def product(self, a: Residues, b: Residues) -> Residues:
        """a b, by the product rule."""
        result = (a[:, :1] * b) % self.modulus
        result[:, 1:] += (a[:, 1:] * b[:, :1]) % self.modulus
        return result % self.modulus

    def convolution(self, a: Residues, b: Residues) -> Residues:
        """(points, size): the sum of a[..., j] b[..., j] over j."""
        modulus = self.modulus[:, :, None]
        result = ((a[:, :1] * b) % modulus).sum(axis=2)
        result[:, 1:] += ((a[:, 1:] * b[:, :1]) % modulus).sum(axis=2)
        return np.asarray(result % self.modulus, dtype=np.uint64)

    def minus(self, a: Residues, b: Residues) -> Residues:
        """a - b."""
        return (a + self.modulus - b) % self.modulus

    def plus(self, a: Residues, b: Residues) -> Residues:
        """a + b."""
        return (a + b) % self.modulus

    def inverse(self, a: Residues) -> Residues:
        """1 / a. Raises Singular where a is zero at some point."""
        if not a[:, 0].all():
            raise Singular
        over = self.constant([
            pow(int(v), -1, p) for v, p in zip(a[:, 0], self.primes, strict=True)
        ])
        square = (over[:, :1] * over[:, :1]) % self.modulus
        over[:, 1:] = ((self.modulus - a[:, 1:]) * square) % self.modulus
        return over

    def divided(self, a: Residues, k: int) -> Residues:
        """a / k for a whole number k."""
        return (
            a * np.array([[pow(k, -1, p)] for p in self.primes], dtype=np.uint64)
        ) % self.modulus


def rational(value: float) -> Fraction:
    """The quotient or decimal that a float stands for: 1/3 and 0.1, not their nearest binaries.

    raises Singular for what is not finite
    """
    if not isfinite(value):
        raise Singular
    decimal = Fraction(f"{value:.15g}")
    simple = Fraction(value).limit_denominator(SIMPLE)
    is_simple = abs(float(simple) - value) <= 2 * np.spacing(abs(value))
    return simple if is_simple and float(decimal) != value else decimal


def residue(value: Fraction, prime: int) -> int:
    """value modulo a prime. Raises Singular if the prime divides the denominator."""
    if value.denominator % prime == 0:
        raise Singular
    return value.numerator * pow(value.denominator, -1, prime) % prime


def reconstructed(value: int, prime: int, largest: int) -> Fraction | None:
    """The quotient of numbers up to `largest` with that residue; None if there is none.

    The half-extended Euclidean algorithm (Wang, Guy, Davenport 1982); at most one quotient has the
    residue if 2 largest**2 < prime.
    """
    a, b, s, t = prime, value % prime, 0, 1
    while b > largest:
        q = a // b
        a, b, s, t = b, a - q * b, t, s - q * t
    return None if t == 0 or abs(t) > largest else Fraction(b, t)


def small_quotients(basis: Residues, prime: int, largest: int) -> list[list[Fraction | None]]:
    """The entries of a matrix as quotients of numbers up to `largest`; None where there is none."""
    return [[reconstructed(int(v), prime, largest) for v in row] for row in basis]


def random_primes(random: np.random.Generator) -> list[int]:
    """A prime for each of `POINTS` squared points: as many points of each of as many primes."""
    drawn = [random_prime(random) for _ in range(POINTS)]
    return [p for p in drawn for _ in range(POINTS)]


def random_prime(random: np.random.Generator) -> int:
    """A prime of 31 bits."""
    while True:
        candidate = int(random.integers(LARGEST // 2, LARGEST)) | 1
        # Fermat's test is quick, and passes few that are not prime
        if pow(2, candidate - 1, candidate) == 1 and (candidate % DIVISORS).all():
            return candidate


class Echelon(NamedTuple):
    """The reduced row echelon form.

    rows    (rank, n), without rows of zeros
    pivots  column of each row's leading 1
    """

    rows: Residues
    pivots: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of independent rows."""
        return len(self.pivots)

    @classmethod
    def empty(cls, n: int) -> "Echelon":
        """The form of a matrix of n columns and no rows."""
        return cls(np.zeros((0, n), dtype=np.uint64), ())


def echelon(matrix: Residues, prime: int) -> Echelon:
    """Gauss and Jordan's elimination."""
    p = np.uint64(prime)
    rows = matrix % p
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        top = len(pivots)
        candidates = np.flatnonzero(rows[top:, column])
        if len(candidates) == 0:
            continue
        rows[[top, top + candidates[0]]] = rows[[top + candidates[0], top]]
        rows[top] = rows[top] * np.uint64(pow(int(rows[top, column]), -1, prime)) % p
        factors = rows[:, column].copy()
        factors[top] = 0
        touched = np.flatnonzero(factors)
        rows[touched] = (rows[touched] + (p - factors[touched, None]) * rows[top] % p) % p
        pivots.append(column)
    return Echelon(rows[: len(pivots)], tuple(pivots))


def null_space(form: Echelon, prime: int) -> Residues:
    """(n - rank, n): a basis of what the rows leave open; each has a 1 where the others have 0."""
    n = form.rows.shape[1]
    free = [j for j in range(n) if j not in form.pivots]
    basis = np.zeros((len(free), n), dtype=np.uint64)
    basis[np.arange(len(free)), free] = 1
    basis[:, list(form.pivots)] = ((np.uint64(prime) - form.rows[:, free]) % np.uint64(prime)).T
    return basis


def product(a: Residues, b: Residues, prime: int) -> Residues:
    """The matrix product; each product of residues is reduced before it is added."""
    result = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint64)
    for j in range(a.shape[1]):
        result += a[:, [j]] * b[[j]] % np.uint64(prime)
    return np.asarray(result % np.uint64(prime), dtype=np.uint64)


def solved(matrix: Residues, right: Residues, prime: int) -> Residues:
    """x with matrix x = right, for a square matrix. Raises Singular."""
    n = len(matrix)
    form = echelon(np.hstack([matrix, right]), prime)
    if form.pivots[:n] != tuple(range(n)):
        raise Singular
    return form.rows[:n, n:]


class SeriesEchelon(NamedTuple):
    """The reduced form of a matrix of series.

    form      with a number inserted for the variable; its null space is that of the series there
    steady    whether the null space is the same for all values of the variable
    orders    so many orders of the reduced form are known
    """

    form: Echelon
    steady: bool
    orders: int


def local_echelon(matrix: Residues, prime: int, at: int) -> SeriesEchelon:
    """Reduced form of (rows, n, orders) series; `at` is the number that is inserted.

    What has a lowest order smallest among all entries divides all of them; eliminated in this order
    nothing that is known of the other rows is lost. A pivot is not zero as a series, so the rank
    found is never too large, whatever follows the orders that are known.
    """
    p, orders = np.uint64(prime), matrix.shape[2]
    left, known = matrix % p, orders
    done, pivots = left[:0], list[int]()

    def without(rows: Residues, pivot: Residues, column: int) -> Residues:
        taken = _times(pivot[None], rows[:, column, None].copy(), prime)
        return np.asarray((rows + p - taken) % p, dtype=np.uint64)

    while left.any():
        lowest = next(k for k in range(orders) if left[:, :, k].any())
        row, column = (int(i) for i in np.argwhere(left[:, :, lowest])[0])
        pivot = np.zeros_like(left[row])
        pivot[:, : orders - lowest] = left[row][:, lowest:]
        pivot = _times(pivot, _reciprocal(pivot[column], prime), prime)
        left = without(np.delete(left, row, axis=0), pivot, column)
        done = np.concatenate([without(done, pivot, column), pivot[None]])
        known = orders - lowest
        pivots.append(column)
    rows = done[np.argsort(pivots)][:, :, :known]
    inserted = np.zeros(rows.shape[:2], dtype=np.uint64)
    for k in reversed(range(known)):
        inserted = (inserted * np.uint64(at) + rows[:, :, k]) % p
    return SeriesEchelon(Echelon(inserted, tuple(sorted(pivots))), not rows[:, :, 1:].any(), known)


def _reciprocal(series: Residues, prime: int) -> Residues:
    values = [int(v) for v in series]
    first = pow(values[0], -1, prime)
    result = [first]
    for k in range(1, len(values)):
        rest = sum(values[j] * result[k - j] for j in range(1, k + 1))
        result.append(-rest * first % prime)
    return np.array(result, dtype=np.uint64)


def _times(rows: Residues, series: Residues, prime: int) -> Residues:
    """Series (..., orders) times series; the leading axes broadcast."""
    n = rows.shape[-1]
    result = np.zeros(np.broadcast_shapes(rows.shape, series.shape), dtype=np.uint64)
    for k in range(n):
        result[..., k:] += rows[..., : n - k] * series[..., k, None] % np.uint64(prime)
    return np.asarray(result % np.uint64(prime), dtype=np.uint64)
