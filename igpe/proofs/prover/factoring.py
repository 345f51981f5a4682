"""Right-hand sides multiplied out, exactly, and factored anew.

Interval arithmetic overestimates where a quantity occurs more than once. Each result is expanded to
a sum of products; coefficients are rational numbers. Quotients whose denominator's terms are in the
numerator too become one operation, a weighted mean of constants (`FRACTION`); what the terms share
is factored out again, so that most parameters occur once.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

from igpe.equations.shared_rates import doubles, times
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape, Writer

MOST_TERMS = 60  # of a sum that is multiplied out

Monomial = tuple[tuple[int, int], ...]  # (atom, power), sorted
Sum = dict[Monomial, Fraction]
Term = tuple[Fraction, Counter[int]]


class TooManyTerms(Exception):
    """Multiplied out, the expression has too many terms."""


def factored(tape: OpTape) -> OpTape:
    """The same expressions, factored; the tape itself where they are too long for that."""
    if any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return tape
    rewriter = Rewriter(tape)
    try:
        results = [rewriter.emitted(rewriter.expanded(int(r))) for r in tape.results]
    except TooManyTerms:
        return tape
    return rewriter.writer.needed_only(results)


KNOWN = ops.LEAVES | ops.BINARY | {ops.NEG, ops.SQUARE}


class Rewriter:
    """Atoms are places on the tape, and, counted down from -1, one over a sum."""

    def __init__(self, tape: OpTape) -> None:
        self.writer = Writer.of(tape)
        self.sums: dict[int, Sum] = {}
        self.inverses: list[tuple[tuple[Monomial, Fraction], ...]] = []

    def expanded(self, place: int) -> Sum:
        """Expand the operation at a place into a sum of products."""
        if place not in self.sums:
            terms = {m: c for m, c in self._expanded(place).items() if c}
            if len(terms) > MOST_TERMS:
                raise TooManyTerms
            self.sums[place] = terms
        return self.sums[place]

    def _expanded(self, place: int) -> Sum:
        op, a, b, number = self.writer.rows[place]
        if op == ops.CONST:
            return {(): Fraction(number)}
        if op in ops.LEAVES:
            return {((place, 1),): Fraction(1)}
        one = self.expanded(a)
        if op == ops.NEG:
            return {m: -c for m, c in one.items()}
        two = self.expanded(a if op == ops.SQUARE else b)
        if op in (ops.ADD, ops.SUB):
            sign = 1 if op == ops.ADD else -1
            return {m: one.get(m, Fraction(0)) + sign * two.get(m, Fraction(0)) for m in one | two}
        if op == ops.DIV:
            if not two:
                raise TooManyTerms
            if list(two) == [()]:
                two = {(): 1 / two[()]}
            else:
                key = tuple(sorted(two.items()))
                self.inverses += [] if key in self.inverses else [key]
                two = {((-1 - self.inverses.index(key), 1),): Fraction(1)}
        if len(one) * len(two) > MOST_TERMS**2:
            raise TooManyTerms
        product: Sum = {}
        for m, c in one.items():
            for n, d in two.items():
                both = times(m, n)
                product[both] = product.get(both, Fraction(0)) + c * d
        return product

    def emitted(self, given: Sum) -> int:
        """Write a sum; return its place."""
        terms: list[Term] = []
        left = dict(given)
        for k, inverse in enumerate(self.inverses):
            own = {m: c for m, c in left.items() if dict(m).get(-1 - k)}
            left = {m: c for m, c in left.items() if m not in own}
            above = {times(m, ((-1 - k, -1),)): c for m, c in own.items()}
            terms += self._over(above, -1 - k, dict(inverse))
        terms += [(c, Counter(dict(m))) for m, c in left.items()]
        return self._factor(terms)

    def _over(self, above: Sum, inverse: int, below: Sum) -> list[Term]:
        """Terms of above / below, as far as possible with fractions in place of the quotient."""
        terms: list[Term] = []
        while above and min(below.values()) > 0 and len(below) > 1:
            shares: dict[Monomial, dict[Monomial, Fraction]] = {}
            for m, c in above.items():
                for t, d in below.items():
                    rest = times(m, tuple((atom, -power) for atom, power in t))
                    if all(power > 0 for _, power in rest) and len(doubles(c / d)) == 1:
                        shares.setdefault(rest, {})[t] = c / d
            if not shares:
                break
            rest, weights = max(shares.items(), key=lambda item: len(item[1]))
            places = [self._factor([(d, Counter(dict(t)))]) for t, d in below.items()]
            mean = self.writer.fraction(places, [float(weights.get(t, 0)) for t in below])
            terms.append((Fraction(1), Counter(dict(rest)) + Counter({mean: 1})))
            for t in weights:
                del above[times(rest, t)]
        one = Counter({inverse: 1})
        return terms + [(c, Counter(dict(m)) + one) for m, c in above.items()]

    def _factor(self, terms: Sequence[Term]) -> int:
        """A sum, after what most of its terms share is taken out of them."""
        if not terms:
            return self.writer.put(ops.CONST)
        counts = Counter(atom for _, factors in terms for atom in factors)
        if len(terms) == 1 or not counts or max(counts.values()) == 1:
            places = [self._product(*term) for term in terms]
        else:
            operations = {a: self.writer.rows[a][0] for a in counts if a >= 0}
            parameters = {a for a, op in operations.items() if op == ops.PARAMETER}
            atom = max(counts, key=lambda a: (counts[a], a in parameters, a))
            one = Counter({atom: 1})
            inner = self._factor([(c, f - one) for c, f in terms if f[atom]])
            outer = [term for term in terms if not term[1][atom]]
            places = [self.writer.product(self._place(atom), inner)]
            places += [self._factor(outer)] if outer else []
        return reduce(lambda total, place: self.writer.put(ops.ADD, total, place), places)

    def _product(self, c: Fraction, factors: Counter[int]) -> int:
        places = [
            self.writer.whole_power(self._place(atom), n) for atom, n in sorted(factors.items())
        ]
        if not places:
            return self._constant(c)
        product = reduce(self.writer.product, places)
        if c == -1:
            return self.writer.put(ops.NEG, product)
        return product if c == 1 else self.writer.product(self._constant(c), product)

    def _constant(self, c: Fraction) -> int:
        if parts := doubles(c):
            places = [self.writer.put(ops.CONST, number=part) for part in parts]
            return reduce(lambda one, other: self.writer.put(ops.ADD, one, other), places)
        above, below = map(Fraction, c.as_integer_ratio())
        if not (doubles(above) and doubles(below)):
            raise TooManyTerms
        return self.writer.put(ops.DIV, self._constant(above), self._constant(below))

    def _place(self, atom: int) -> int:
        if atom >= 0:
            return atom
        return self.writer.one_over(self.emitted(dict(self.inverses[-1 - atom])))
