"""Values at the start of functions that are known by their differential equations alone.

In a finite field there is no exp(2). The equation z' = g' z knows exp(g) up to a factor, its value
at the start, and this is drawn at random: what is found holds for nearly all such factors. The same
argument gives the same value at every place and in every experiment; exp and log undo each other;
exp of an argument times a quotient of small numbers is the power; sine and cosine lie on a circle.
"""

from igpe.structure.series.field import Field, Residues, Singular, rational, residue

PARTS = 12  # exp is drawn at a twelfth of its argument: of that all quotients below are multiples
LARGEST_TERM = 4  # of those quotients

_TERMS = range(1, LARGEST_TERM + 1)
_MULTIPLES = sorted(
    {sign * n for a in _TERMS for b in _TERMS for n in (a, PARTS * a // b) for sign in (1, -1)},
    key=abs,
)
"""What is tried: the argument may be so many times one whose value is known."""


class Constants:
    """The values drawn so far.

    field  of the random source; its `size` does not matter
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        points = range(len(field.primes))
        self._exp: list[dict[int, int]] = [{0: 1} for _ in points]
        self._log: list[dict[int, int]] = [{1: 0} for _ in points]
        self._circle: list[dict[int, tuple[int, int]]] = [{0: (0, 1)} for _ in points]
        self._others: list[dict[tuple[str, float, int], int]] = [{} for _ in points]

    def of(self, name: str, argument: Residues, exponent: float) -> list[int]:
        """The function's value at all nodes of each point.

        raises Singular for log(0) and a power of 0
        """
        nodes = len(argument) // len(self.field.primes)
        return [
            self.at(k // nodes, name, int(argument[k, 0]), exponent) for k in range(len(argument))
        ]

    def alone(self, k: int) -> "PointConstants":
        """Those of point k, for any number of places at it."""
        return PointConstants(self, k)

    def at(self, k: int, name: str, g: int, exponent: float) -> int:
        """The same at point k alone; g is the argument's value there."""
        if name == "exp":
            return self._exponential(k, g)
        if name == "log":
            return self._logarithm(k, g)
        if name == "power":
            ratio = residue(rational(exponent), self.field.primes[k])
            return self._exponential(k, ratio * self._logarithm(k, g) % self.field.primes[k])
        if name in ("sin", "cos"):
            return self._on_circle(k, g)[name == "cos"]
        known = self._others[k]
        return 0 if g == 0 else known.setdefault((name, exponent, g), self._draw(k))

    def _exponential(self, k: int, g: int) -> int:
        known, prime = self._exp[k], self.field.primes[k]
        for m in _MULTIPLES:
            part = pow(m, -1, prime) * g % prime
            if part in known:
                return pow(known[part], m, prime)
        unit = self._draw(k)
        known[pow(PARTS, -1, prime) * g % prime] = unit
        return self._pair(k, g, pow(unit, PARTS, prime))

    def _logarithm(self, k: int, g: int) -> int:
        if g == 0:
            raise Singular
        if g not in self._log[k]:
            self._pair(k, self._draw(k), g)
        return self._log[k][g]

    def _pair(self, k: int, argument: int, value: int) -> int:
        self._exp[k][argument], self._log[k][value] = value, argument
        return value

    def _on_circle(self, k: int, g: int) -> tuple[int, int]:
        known, prime = self._circle[k], self.field.primes[k]
        if g not in known:
            m = self._draw(k)
            while (1 + m * m) % prime == 0:
                m = self._draw(k)
            over = pow(1 + m * m, -1, prime)
            sine, cosine = 2 * m * over % prime, (1 - m * m) * over % prime
            known[g], known[prime - g] = (sine, cosine), (prime - sine, cosine)
        return known[g]

    def _draw(self, k: int) -> int:
        return int(self.field.random.integers(2, self.field.primes[k]))


class PointConstants:
    """The values at one point, where many places at it are computed side by side."""

    def __init__(self, shared: Constants, k: int) -> None:
        self._shared, self._k = shared, k

    def of(self, name: str, argument: Residues, exponent: float) -> list[int]:
        """The function's value at each place."""
        return [self._shared.at(self._k, name, int(g), exponent) for g in argument[:, 0]]
