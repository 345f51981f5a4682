"""Where the coefficients of an experiment's series are computed.

Let all times of an experiment be e times as long. Its states at time t0 + e s are power series in
e, whose coefficient k is a polynomial of degree k in s on each piece of the inputs, and continuous.
Without breaks it is a number times s**k: one node, s = 1, is enough. With breaks each piece has as
many nodes as there are orders, so that polynomials are integrated without error.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from igpe.structure.series.dynamics import Dynamics
from igpe.structure.series.field import Residues, Singular, residue
from igpe.structure.series.linear_algebra import product, solved


class Grid:
    """The nodes of one experiment at all points: first those of point 0, piece after piece.

    primes  one for each node
    size    number of nodes at one point
    """

    def __init__(self, dynamics: Dynamics, primes: Sequence[int], orders: int) -> None:
        self.pieces = dynamics.pieces
        self.is_single = len(self.pieces) <= 1
        self.m = 1 if self.is_single else orders
        self.size = max(1, len(self.pieces)) * self.m
        self.points = len(primes)
        self.primes = [p for p in primes for _ in range(self.size)]
        self._base = list(primes)
        if not self.is_single:
            self._rules = {p: _Rule(p, self.m) for p in dict.fromkeys(primes)}

    def spread(self, values: Residues) -> Residues:
        """(points, ...) values of each point, at its nodes."""
        return np.repeat(values, self.size, axis=0)

    def spread_pieces(self, values: Residues) -> Residues:
        """(points, n_pieces * n) values of each piece, at its nodes: (nodes, n)."""
        blocks = max(1, len(self.pieces))
        n = values.shape[1] // blocks
        return np.repeat(values.reshape(self.points * blocks, n), self.m, axis=0)

    def times(self) -> list[int]:
        """s at all nodes."""
        if self.is_single:
            return [1] * self.points
        return [
            (residue(piece.start, p) + v) % p
            for p in self._base
            for piece in self.pieces
            for v in self._rules[p].nodes
        ]

    def input(self, element: int, order: int) -> list[int]:
        """That coefficient of an input at all nodes."""
        if order > 1:
            return [0] * len(self.primes)
        found = []
        for p in self._base:
            nodes = [1] if self.is_single else self._rules[p].nodes
            for piece in self.pieces:
                level, rise, slope = (
                    residue(v[element], p) for v in (piece.levels, piece.rises, piece.slopes)
                )
                found += [level if order == 0 else (rise + slope * s) % p for s in nodes]
        return found

    def integrated(self, slopes: Residues, order: int) -> Residues:
        """Coefficient order + 1 of a state from coefficient `order` of its slope."""
        if self.is_single:
            over = np.array([pow(order + 1, -1, p) for p in self.primes], dtype=np.uint64)
            return slopes * over[:, None] % np.array(self.primes, dtype=np.uint64)[:, None]
        found = np.empty_like(slopes)
        for k, p in enumerate(self._base):
            rule, before = self._rules[p], np.zeros((1, slopes.shape[1]), dtype=np.uint64)
            for j, piece in enumerate(self.pieces):
                at = slice(k * self.size + j * self.m, k * self.size + (j + 1) * self.m)
                found[at] = (before + product(rule.integrals, slopes[at], p)) % np.uint64(p)
                if piece.end is not None:
                    whole = rule.integral_to(piece.end - piece.start)
                    before = (before + product(whole, slopes[at], p)) % np.uint64(p)
        return found

    def at(self, values: Residues, k: int, time: Fraction) -> Residues:
        """(m, n) values at the nodes of point k -> (n,) at that time; at a break: before it."""
        p = self._base[k]
        j = max((j for j, piece in enumerate(self.pieces) if piece.start < time), default=0)
        own = values[j * self.m : (j + 1) * self.m]
        weights = self._rules[p].values_at(time - self.pieces[j].start)
        return np.asarray(product(weights, own, p)[0], dtype=np.uint64)


class _Rule:
    """Interpolation by polynomials on m nodes, modulo a prime."""

    def __init__(self, prime: int, m: int) -> None:
        self.prime, self.m = prime, m
        self.nodes = list(range(1, m + 1))
        powers = self._powers(self.nodes, range(m))
        inverse = solved(powers, np.eye(m, dtype=np.uint64), prime)
        if inverse is None:
            raise Singular
        self._inverse = inverse
        self.integrals = self._integrals(self.nodes)

    def values_at(self, time: Fraction) -> Residues:
        """(1, m) weights of the nodes' values."""
        powers = self._powers([residue(time, self.prime)], range(self.m))
        return product(powers, self._inverse, self.prime)

    def integral_to(self, time: Fraction) -> Residues:
        """(1, m) weights of the nodes' values in the integral from 0."""
        return self._integrals([residue(time, self.prime)])

    def _integrals(self, ends: Sequence[int]) -> Residues:
        over = np.array([pow(i + 1, -1, self.prime) for i in range(self.m)], dtype=np.uint64)
        powers = self._powers(ends, range(1, self.m + 1)) * over % np.uint64(self.prime)
        return product(powers, self._inverse, self.prime)

    def _powers(self, places: Sequence[int], exponents: range) -> Residues:
        rows = [[pow(v, e, self.prime) for e in exponents] for v in places]
        return np.array(rows, dtype=np.uint64)
