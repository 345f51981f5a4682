"""What polynomial equations leave out: that exp, log and the like are one-to-one, and signs.

An unknown of which an odd power has one value has one itself, being real; with an even power if
its bounds exclude one of the signs.

A function of unknowns at the start is a variable of its own in the equations, so that these have
more solutions than the model. But where all of them agree on the argument they must agree on the
value, and the other way round for real numbers; and two exponentials have a known ratio exactly if
their arguments have a known difference: an Arrhenius law at two temperatures.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from igpe.structure.series import polynomials as poly
from igpe.structure.series.ideal import Ideal
from igpe.structure.series.polynomials import Polynomial
from igpe.structure.series.relations import Pair, Relations

LARGEST_POWER = 5  # whose root is drawn

Signed = tuple[Polynomial, bool]
"""An unknown, and whether its bounds exclude one sign."""

ONE_TO_ONE = ("exp", "log", "power", "tanh", "atan", "atanh", "asinh", "asin")
"""Of real numbers; a power of positive ones."""


def closed(relations: Relations, unknowns: Sequence[Signed], most_work: float) -> Ideal:
    """The equations with all that follows in this way, which they get. Raises TooLong.

    unknowns  with whether its bounds exclude one sign
    """
    while True:
        ideal = Ideal(relations.equations, relations.prime, most_work)
        new = list(_following(relations, unknowns, ideal))
        if not new:
            return ideal
        for a in new:
            relations.fix(a)


def _following(
    relations: Relations, unknowns: Sequence[Signed], ideal: Ideal
) -> Iterator[Polynomial]:
    """Polynomials that can have one value only, though the equations do not say so."""

    def fixed(a: Polynomial) -> bool:
        return poly.constant(ideal.reduced(a)) is not None

    for a, one_sign in unknowns:
        for n in range(2, LARGEST_POWER + 1):
            if (one_sign or n % 2) and not fixed(a) and fixed(poly.power(a, n, relations.prime)):
                yield a
                break
    for pair in relations.pairs:
        yield from _other(pair.argument, pair.value, fixed, both=pair.name in ONE_TO_ONE)
    exponentials = [pair for pair in relations.pairs if pair.name == "exp"]
    for one, other in combinations(exponentials, 2):
        difference = poly.plus(one.argument, other.argument, relations.prime, -1)
        yield from _other(difference, _ratio(one, other, relations), fixed, both=True)


def _other(
    a: Polynomial, b: Polynomial, fixed: Callable[[Polynomial], bool], *, both: bool
) -> Iterator[Polynomial]:
    """If one of the two is known, the other; if not `both`, only the second."""
    if fixed(a) and not fixed(b):
        yield b
    elif both and fixed(b) and not fixed(a):
        yield a


def _ratio(one: Pair, other: Pair, relations: Relations) -> Polynomial:
    """What vanishes if the two values have the ratio that they have at the point."""
    prime = relations.prime
    sides = (
        poly.times(a.value, poly.number(relations.value(b.value), prime), prime)
        for a, b in ((one, other), (other, one))
    )
    return poly.plus(next(sides), next(sides), prime, -1)
