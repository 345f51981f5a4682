"""Numbers of finite fields, each with its derivatives: exact arithmetic for random points.

A number is a row (value, derivative by unknown 1, ..., by unknown N), modulo a prime below 2**31,
so that the product of two fits into 64 bits. Several points, each with a prime of its own, are
computed side by side: an array of numbers has the shape (points, 1 + N), a series (points, 1 + N,
orders).
"""

from fractions import Fraction
from math import isfinite

import numpy as np
import numpy.typing as npt

Residues = npt.NDArray[np.uint64]

LARGEST = 2**31
POINTS = 2  # of each prime: two show what is constant, two primes what is a small quotient
WITNESSES = (2, 3, 5, 7)  # of Miller and Rabin; they decide every number below 3.2e9
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
        self.primes = primes
        self.size = size
        self.random = random
        self.modulus = np.array(primes, dtype=np.uint64)[:, None]

    def number(self, value: float) -> Residues:
        """(points, size): a known number, which depends on nothing."""
        exact = rational(value)
        return self.constant([residue(exact, p) for p in self.primes])

    def constant(self, values: list[int]) -> Residues:
        """(points, size): known residues, one for each point."""
        found = np.zeros((len(self.primes), self.size), dtype=np.uint64)
        found[:, 0] = values
        return found

    def draw(self) -> list[int]:
        """A random residue other than zero for each point."""
        return [int(self.random.integers(1, p)) for p in self.primes]

    def product(self, a: Residues, b: Residues) -> Residues:
        """a b, by the product rule."""
        found = (a[:, :1] * b) % self.modulus
        found[:, 1:] += (a[:, 1:] * b[:, :1]) % self.modulus
        return found % self.modulus

    def convolution(self, a: Residues, b: Residues) -> Residues:
        """(points, size): the sum of a[..., j] b[..., j] over j."""
        modulus = self.modulus[:, :, None]
        found = ((a[:, :1] * b) % modulus).sum(axis=2)
        found[:, 1:] += ((a[:, 1:] * b[:, :1]) % modulus).sum(axis=2)
        return np.asarray(found % self.modulus, dtype=np.uint64)

    def minus(self, a: Residues, b: Residues) -> Residues:
        """a - b."""
        return (a + self.modulus - b) % self.modulus

    def plus(self, a: Residues, b: Residues) -> Residues:
        """a + b."""
        return (a + b) % self.modulus

    def inverse(self, a: Residues) -> Residues:
        """1 / a. Raises Singular where a is zero at some point."""
        values = [int(v) for v in a[:, 0]]
        if not all(values):
            raise Singular
        over = self.constant([pow(v, -1, p) for v, p in zip(values, self.primes, strict=True)])
        square = (over[:, :1] * over[:, :1]) % self.modulus
        over[:, 1:] = ((self.modulus - a[:, 1:]) * square) % self.modulus
        return over

    def divided(self, a: Residues, k: int) -> Residues:
        """a / k for a whole number k."""
        over = np.array([pow(k, -1, p) for p in self.primes], dtype=np.uint64)[:, None]
        return (a * over) % self.modulus


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


def random_primes(random: np.random.Generator) -> list[int]:
    """A prime for each of `POINTS` squared points: as many points of each of as many primes."""
    drawn = [random_prime(random) for _ in range(POINTS)]
    return [p for p in drawn for _ in range(POINTS)]


def random_prime(random: np.random.Generator) -> int:
    """A prime of 31 bits."""
    while True:
        candidate = int(random.integers(LARGEST // 2, LARGEST)) | 1
        if _is_prime(candidate):
            return candidate


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test, with witnesses that leave no doubt at this size."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, w, odd, twos) for w in WITNESSES)


def _passes(n: int, witness: int, odd: int, twos: int) -> bool:
    x = pow(witness, odd, n)
    return x == 1 or any(pow(x, 2**i, n) == n - 1 for i in range(twos))
