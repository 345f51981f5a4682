"""Unknowns that cannot be told apart, what can be determined of them, and what would free them.

Unknowns belong together that some minimal dependence links: the connected parts of the null space's
reduced basis, which are the same for any basis. If as many symmetries of one kind are found in a
part as it has directions, what these leave unchanged is all that can be determined. Directions n of
the null space at a point theta are

    scalings      n[i] = w[i] theta[i]:  theta[i] -> lambda**w[i] theta[i]
    translations  n[i] = w[i]:           theta[i] -> theta[i] + w[i] epsilon
    mixed         some of each:          an activation energy grows, its rate constant with it

if the same numbers w do at every point. For scalings and translations they are searched for among
small quotients, which residues modulo different primes give away.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from igpe.core.arrays import FloatArray, connected, smallest_integers
from igpe.structure.sensitivity_rows import ExactRows
from igpe.structure.series.field import (
    Echelon,
    Residues,
    echelon,
    null_space,
    product,
    residue,
    small_quotients,
)

LARGEST_WEIGHT = 100  # numerator and denominator; one in 1e5 random residues is such a quotient
PRIME, LARGEST_FACTOR = 2**31 - 1, 30_000  # in which invariants are solved for; of their quotients
MOST_CANDIDATES = 60  # further measurements of which pairs are tried

Weights = list[list[Fraction]]


@dataclass(frozen=True)
class IdentifiableCombination:
    """Unknowns of which only functions can be determined.

    unknowns    in the problem's order
    directions  in how many independent ways they may change unseen
    functions   what can be determined of them: "k1*s1", "p1 + p3"; empty if nothing can, or if it
                has no simple form
    exponents   of the unknowns in each function, where these are products; else empty
    factors     the same where they are sums
    """

    unknowns: tuple[str, ...]
    directions: int
    functions: tuple[str, ...] = ()
    exponents: tuple[tuple[int, ...], ...] = ()
    factors: tuple[tuple[int, ...], ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether the outputs tell nothing of them."""
        return self.directions == len(self.unknowns)

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values (k,) of products or sums at the unknowns x (n,), and their derivative (k, n)."""
        if self.factors:
            by = np.array(self.factors, dtype=float)
            return by @ x, by
        powers = np.reshape(np.array(self.exponents, dtype=float), (-1, len(x)))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.prod(x**powers, axis=1)
            return values, values[:, None] * powers / x


def combinations(
    rows: ExactRows, names: Sequence[str], nuisance: Sequence[str] = ()
) -> tuple[IdentifiableCombination, ...]:
    """The parts of the null space, of unknowns that are not `nuisance`."""
    if nuisance:
        places = [i for i, n in enumerate(names) if n not in nuisance]
        rows, names = _eliminated(rows, places), [n for n in names if n not in nuisance]
    k = rows.best[0]
    form = rows.measured[k]
    links = (np.flatnonzero(r).tolist() for r in null_space(form, rows.primes[k]))
    result = []
    for part in sorted(sorted(part) for part in connected(links)):
        own = tuple(names[i] for i in part)
        directions = len(part) - sum(pivot in part for pivot in form.pivots)
        one = IdentifiableCombination(own, directions)
        result.append(one if one.nothing else _with_functions(one, rows, part))
    return tuple(result)


def _with_functions(
    one: IdentifiableCombination, rows: ExactRows, part: list[int]
) -> IdentifiableCombination:
    names, directions = one.unknowns, one.directions
    for scaling, word in ((True, _product), (False, _sum)):
        basis = _weights(rows, part, scaling=scaling)
        if len(basis) == directions:
            whole = _simplest(basis)
            numbers = tuple(map(tuple, whole))
            functions = tuple(word(numbers_of, names) for numbers_of in whole)
            exponents, factors = (numbers, ()) if scaling else ((), numbers)
            return replace(one, functions=functions, exponents=exponents, factors=factors)
    symmetry = _mixed(rows, part) if directions == 1 else None
    if symmetry is None:
        return one
    (first, *others), scaled = symmetry  # c is a known number in each
    functions = (
        *(f"{names[i]} + c*{names[first]}" for i in others),
        *(f"{names[i]}*exp(c*{names[first]})" for i in scaled),
    )
    return replace(one, functions=functions)


def _weights(rows: ExactRows, part: list[int], *, scaling: bool) -> Weights:
    """The reduced basis of all scalings (or translations) of a part; empty if there are none.

    Points of one prime are stacked: a weight must leave the outputs alone at each of them. Primes
    must agree, else they are no small quotients.
    """
    result = []
    for prime, points in _by_prime(rows):
        matrices = [
            _restricted(rows, k, part).rows * (rows.values[k, part] if scaling else np.uint64(1))
            for k in points
        ]
        basis = null_space(echelon(np.vstack(matrices), prime), prime)
        result.append(small_quotients(basis, prime, LARGEST_WEIGHT))
    known = [[w for w in row if w is not None] for row in result[0]]
    return known if all(one == known for one in result) else []


def _mixed(rows: ExactRows, part: list[int]) -> list[list[int]] | None:
    """Places in the part that its only direction translates, and those that it scales.

    None if it does not mix the two. One of the unknowns in turn is the one that is translated.
    """
    places = range(len(part))
    for reference in places:
        result = []
        for prime, points in _by_prime(rows):
            shifts, scales = [], []
            for k in points:
                (direction,) = null_space(_restricted(rows, k, part), prime).tolist()
                over = pow(direction[reference], -1, prime)
                shifts.append([n * over % prime for n in direction])
                values = rows.values[k, part].tolist()
                pairs = zip(shifts[-1], values, strict=True)
                scales.append([s * pow(v, -1, prime) % prime for s, v in pairs])
            same = [[i for i in places if len({s[i] for s in w}) == 1] for w in (shifts, scales)]
            is_covered = len(points) > 1 and {*same[0], *same[1]} == {*places}
            result.append(same if is_covered else None)
        if result[0] is not None and all(one == result[0] for one in result):
            return result[0]
    return None


def _by_prime(rows: ExactRows) -> Iterator[tuple[int, list[int]]]:
    for prime, points in itertools.groupby(rows.best, key=lambda k: rows.primes[k]):
        yield prime, list(points)


def _eliminated(rows: ExactRows, own: list[int]) -> ExactRows:
    """What the rows say of the unknowns at the places `own`, whatever the others are.

    Elimination that begins with the others leaves rows without them.
    """
    others = [i for i in range(rows.values.shape[1]) if i not in own]
    forms = []
    for whole, prime in zip(rows.measured, rows.primes, strict=True):
        form = echelon(whole.rows[:, [*others, *own]], prime)
        first = sum(pivot < len(others) for pivot in form.pivots)
        pivots = tuple(pivot - len(others) for pivot in form.pivots[first:])
        forms.append(Echelon(form.rows[first:, len(others) :], pivots))
    return replace(rows, measured=tuple(forms), values=rows.values[:, own])


def _restricted(rows: ExactRows, k: int, part: list[int]) -> Echelon:
    """The rows of a part: those of other parts have nothing but zeros in its columns."""
    return echelon(rows.measured[k].rows[:, part], rows.primes[k])


def combined(factors: Sequence[Fraction], names: Sequence[str]) -> str:
    """A sum with these factors, or the same times a number: k1 + 2*k2 - k3."""
    return _sum(smallest_integers(factors), names)


def _simplest(weights: Weights) -> list[list[int]]:
    """A basis of whole v with w v = 0: that with the smallest powers and fewest quotients.

    Each unknown in turn is the one that the others are multiplied with.
    """
    w = np.array([[residue(v, PRIME) for v in row] for row in weights], dtype=np.uint64)
    bases = []
    for first in range(w.shape[1]):
        order = [first, *(i for i in range(w.shape[1]) if i != first)]  # in which pivots are sought
        basis = null_space(echelon(w[:, order], PRIME), PRIME)[:, np.argsort(order)]
        known = small_quotients(basis, PRIME, LARGEST_FACTOR)
        vectors = [
            smallest_integers([v for v in row if v is not None]) for row in known if None not in row
        ]
        if len(vectors) == len(basis):
            bases.append(sorted(vectors, key=lambda v: [e == 0 for e in v]))
    return min(bases, key=lambda vectors: sum(abs(e) + (e < 0) for v in vectors for e in v))


def _product(exponents: list[int], names: Sequence[str]) -> str:
    """k1*s1**2/V."""
    powers = [
        (n if abs(e) == 1 else f"{n}**{abs(e)}", e) for e, n in zip(exponents, names, strict=True)
    ]
    above = "*".join(power for power, e in powers if e > 0)
    return "/".join([above, *(power for power, e in powers if e < 0)])


def _sum(factors: list[int], names: Sequence[str]) -> str:
    """k1 + 2*k2 - k3."""
    terms = [
        (" - " if factor < 0 else " + ") + (name if abs(factor) == 1 else f"{abs(factor)}*{name}")
        for factor, name in zip(factors, names, strict=True)
        if factor
    ]
    return "".join(terms).removeprefix(" + ")


def additional(rows: ExactRows) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Unknown that is not identifiable -> the smallest sets of measurements that free it.

    By exact rank, sets of one or of two. The rows of all states and algebraic variables have been
    computed with those of what is measured. On the null space Z of the latter, a further
    measurement leaves open what its rows times Z leave open; these matrices are as wide as there
    are directions, so that many sets can be tried.
    """
    k = rows.best[0]
    prime = rows.primes[k]
    open_ = null_space(rows.measured[k], prime)
    waiting = set(np.flatnonzero(open_.any(axis=0)).tolist())
    result: dict[int, list[tuple[str, ...]]] = {i: [] for i in sorted(waiting)}
    forms: dict[str, Residues] = {}
    for name, own in rows.extra[k].items() if waiting else ():
        form = echelon(product(own, open_.T, prime), prime)
        forms |= {name: form.rows} if form.rank else {}
    for size, candidates in ((1, list(forms)), (2, list(forms)[:MOST_CANDIDATES])):
        for names in itertools.combinations(candidates, size):
            form = echelon(np.vstack([forms[n] for n in names]), prime)
            left = product(null_space(form, prime), open_, prime)  # what still moves
            for i in waiting & set(np.flatnonzero(~left.any(axis=0)).tolist()):
                result[i].append(names)
        waiting = {i for i in waiting if not result[i]}
        if not waiting:
            break
    return {i: tuple(sets) for i, sets in result.items()}
