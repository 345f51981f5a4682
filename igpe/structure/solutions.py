"""Global identifiability by solving: all values of the unknowns that give the same outputs.

At a random point modulo a prime the Taylor coefficients of the outputs are known numbers; so the
unknowns obey polynomial equations, and a Groebner basis tells how many values each can have. What
the outputs leave open continuously is held at the point's values, which changes no other count.
After Hong, Ovchinnikov, Pogudin, Yap (SIAN, 2019); docs/identifiability.md says what is certain.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, groupby
from math import prod

import numpy as np

from igpe.core.arrays import connected
from igpe.equations.symbols import stack
from igpe.structure.combinations import LARGEST_WEIGHT, combined
from igpe.structure.posed import SeriesExpansion
from igpe.structure.sensitivity_rows import MARGIN, SeriesStart, scattered
from igpe.structure.series.field import Echelon, Singular, echelon, null_space, small_quotients
from igpe.structure.series.ideal import Ideal, ModularPolynomial, Relations, TooLong, Unrolled
from igpe.structure.series.points import NoPoint

LARGEST_POWER = 5  # whose root is drawn
MOST_VALUES = 30  # of an unknown that are counted
MOST_TOGETHER = 120  # sets of values that are counted
MOST_COEFFICIENTS = 500  # of states, each of which is a variable
ONE_TO_ONE = ("exp", "log", "power", "tanh", "atan", "atanh", "asinh", "asin")
"""Of real numbers; a power of positive ones."""


@dataclass(frozen=True)
class Alternatives:
    """Unknowns whose values change together.

    unknowns   in the problem's order
    number     of sets of values that give the same outputs, complex ones included
    functions  what is the same for all: "k1 + k2", "k1*k2"; empty if nothing simple was found
    """

    unknowns: tuple[str, ...]
    number: int
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Solutions:
    """How many values each unknown can have; complex ones count, and most out of bounds.

    values        place of an unknown -> number of its values; what is missing was not decided
    alternatives  unknowns with several values that change together
    why           why some may be left undecided; empty if all are decided that are locally
                  identifiable
    """

    values: Mapping[int, int] = field(default_factory=dict)
    alternatives: tuple[Alternatives, ...] = ()
    why: str = ""


@dataclass(frozen=True, eq=False)
class Fibre:
    """All solutions at one point.

    ideal     the equations
    unknowns  place of an unknown that is locally identifiable -> polynomial
    branches  whether solutions on other branches of roots or implicit equations are among them
    """

    ideal: Ideal
    unknowns: dict[int, ModularPolynomial]
    branches: bool

    def degree(self, places: Sequence[int], most: int) -> int | None:
        """How many values the unknowns have together, by a sum with general factors."""
        terms = (self.unknowns[i] * (1 + 7919 * j**3) for j, i in enumerate(places))
        return self.ideal.degree(sum(terms, ModularPolynomial({}, self.ideal.prime)), most)


def solutions(
    experiments: Sequence[SeriesExpansion],
    names: Sequence[str],
    *,
    one_sign: Sequence[bool],
    proved: Collection[int] = (),
    seed: int,
    most_work: float,
) -> Solutions:
    """The number of values of each locally identifiable unknown.

    names      of all unknowns
    one_sign   whether an unknown's bounds exclude one sign: then x**2 = 4 has one solution
    proved     places of unknowns that are known to have one value
    most_work  see `Ideal`, for each of the points
    """
    if not any(output.continuous for e in experiments for output in e.outputs):
        return Solutions(why="no quantity is measured over time")
    few = any(o.since and not o.continuous for e in experiments for o in e.outputs)
    broken = any(len(e.dynamics.pieces) > 1 for e in experiments)
    try:
        series = _SolutionSeries(experiments, one_sign, proved, seed)
        fibres = series.fibres(most_work)
        counted = [{i: f.degree([i], MOST_VALUES) for i in f.unknowns} for f in fibres]
        agreed = {i: v for i, v in counted[0].items() if v and all(c[i] == v for c in counted)}
        # What else is measured may choose among several values; that there is one it cannot change.
        branches = any(fibre.branches for fibre in fibres)
        values = {i: v for i, v in agreed.items() if v == 1 or not (few or branches)}
        several = [i for i, v in values.items() if v > 1]
        others = _alternatives(fibres, several, names) if several else ()
    except TooLong:
        return Solutions(why="the computation takes too long")
    except (Singular, NoPoint):
        return Solutions(why="the equations are not defined at the point tried")
    reasons = {
        "quantities that are measured once or twice are not used": few,
        "measurements after the first break of an input are not used": broken,
        "exponentials, roots or implicit equations may allow other values": branches,
        "there are too many possible values": True,
    }
    is_open = few or broken or set(series.determined) != values.keys()
    why = next(reason for reason, holds in reasons.items() if holds) if is_open else ""
    return Solutions(values, others, why)


class _SolutionSeries:
    """The experiments' measured outputs in numbers, as far as they tell anything new.

    Up to the first break of an input, and only what is measured over time.

    start       all experiments at their random points
    determined  places of the unknowns that are locally identifiable by them, without those proved
    """

    def __init__(
        self,
        experiments: Sequence[SeriesExpansion],
        one_sign: Sequence[bool],
        proved: Collection[int],
        seed: int,
    ) -> None:
        self.n, self.one_sign = len(one_sign), one_sign
        dynamics = []
        for d, outputs in ((e.dynamics, e.outputs) for e in experiments):
            continuous = stack(d.outputs[i] for i, o in enumerate(outputs) if o.continuous)
            dynamics.append(replace(d, outputs=continuous, pieces=d.pieces[:1]))
        self.start = SeriesStart(dynamics, self.n, np.random.default_rng(seed))
        self._sizes = [d.x.numel() for d in dynamics]
        if sum(self._sizes) * (self.n + 1) > MOST_COEFFICIENTS:
            raise TooLong
        self._last, form = self._expanded()
        backward = echelon(form.rows[:, ::-1], self.start.primes[0])
        last = {self.n - 1 - column for column in backward.pivots}
        self._held = [set(range(self.n)) - free | {*proved} for free in ({*form.pivots}, last)]
        moved = null_space(form, self.start.primes[0]).any(axis=0)
        self.determined = sorted({*np.flatnonzero(~moved).tolist()} - {*proved})

    def fibres(self, most_work: float) -> list[Fibre]:
        """All solutions at each point. Raises TooLong, Singular.

        What is held may be chosen; one choice makes it long where another does not.
        """
        held, other = self._held
        try:
            first = self._fibre(0, held, most_work)
        except TooLong:
            if other == held:
                raise
            held, first = other, self._fibre(0, other, most_work)
        points = range(1, len(self.start.primes))
        return [first, *(self._fibre(k, held, most_work) for k in points)]

    def _fibre(self, k: int, held: set[int], most_work: float) -> Fibre:
        relations = Relations(self.start.primes[k], most_work)
        q = [
            relations.number(int(v)) if i in held else relations.unknown(int(v))
            for i, v in enumerate(self.start.point.q[k])
        ]
        runs = []
        for course, last in zip(self.start.courses, self._last, strict=True):
            own = [q[column] for column in course.dynamics.columns]
            runs.append(Unrolled(course, k, own, relations))
            # One order more than those that tell something: what follows is made of these.
            for order in range(max(last, default=-1) + 2):
                for output, number in zip(last, runs[-1].advance(), strict=True):
                    if order <= output + 1:
                        relations.fix(number)
        ideal = _closed(relations, list(zip(q, self.one_sign, strict=True)), most_work)
        unknowns = {i: q[i] for i in self.determined}
        if not relations.branches and any(ideal.degree(a, 1) != 1 for a in unknowns.values()):
            ideal = self._confirmed(ideal, relations, runs, most_work)
        return Fibre(ideal, unknowns, relations.branches)

    def _confirmed(
        self, ideal: Ideal, relations: Relations, runs: Sequence[Unrolled], most_work: float
    ) -> Ideal:
        """The solutions that further orders allow: at special starts they may tell more."""
        for run, size in zip(runs, self._sizes, strict=True):
            for _ in range(size + MARGIN):
                relations.reduced = ideal.reduced
                known = len(relations.equations)
                for number in run.advance():
                    relations.fix(ideal.reduced(number))
                if len(relations.equations) > known:
                    ideal = Ideal(relations.equations, relations.prime, most_work)
        return ideal

    def _expanded(self) -> tuple[list[list[int]], Echelon]:
        """Of each experiment and output the last order that raised the rank (-1: none did)."""
        courses, prime = self.start.courses, self.start.primes[0]
        last = [[-1] * c.dynamics.outputs.numel() for c in courses]
        form, order, grown, size = Echelon.empty(self.n), 0, 0, max(self._sizes)
        while order < max(self.n + size, grown + size) + MARGIN and form.rank < self.n:
            for own, course in zip(last, courses, strict=True):
                for i, number in enumerate(course.advance()):
                    row = scattered(course.dynamics, number[0, None, 1:], self.n)
                    more = echelon(np.vstack([form.rows, row]), prime)
                    if more.rank > form.rank:
                        form, own[i], grown = more, order, order + 1
            order += 1
        for course in courses:
            course.advance()
        return last, form


Signed = tuple[ModularPolynomial, bool]
"""An unknown, and whether its bounds exclude one sign."""


def _closed(relations: Relations, unknowns: Sequence[Signed], most_work: float) -> Ideal:
    """The equations with what they leave out: signs, and that functions are one-to-one.

    An unknown of which an odd power has one value has one itself, being real; with an even power if
    its bounds exclude one of the signs. A function of unknowns at the start is a variable of its
    own, so that the equations have more solutions than the model. But where all of them agree on
    the argument they must agree on the value, and the other way round for real numbers; and two
    exponentials have a known ratio exactly if their arguments have a known difference: an Arrhenius
    law at two temperatures. Raises TooLong.
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
) -> Iterator[ModularPolynomial]:
    """Polynomials that can have one value only, though the equations do not say so."""

    def fixed(a: ModularPolynomial) -> bool:
        return ideal.reduced(a).constant is not None

    for a, one_sign in unknowns:
        powers = range(2, LARGEST_POWER + 1) if one_sign else range(3, LARGEST_POWER + 1, 2)
        if not fixed(a) and any(fixed(a**n) for n in powers):
            yield a
    linked = [(p.argument, p.value, p.name in ONE_TO_ONE) for p in relations.pairs]
    exponentials = [pair for pair in relations.pairs if pair.name == "exp"]
    for one, other in combinations(exponentials, 2):
        # What vanishes if the two values have the ratio that they have at the point.
        ratio = one.value * relations.value(other.value) - other.value * relations.value(one.value)
        linked.append((one.argument - other.argument, ratio, True))
    for a, b, is_one_to_one in linked:
        if fixed(a) and not fixed(b):
            yield b
        elif is_one_to_one and fixed(b) and not fixed(a):
            yield a


def _alternatives(
    fibres: Sequence[Fibre], several: Sequence[int], names: Sequence[str]
) -> tuple[Alternatives, ...]:
    """Groups of unknowns that change together; TooLong as `Ideal`.

    Two do if they have fewer pairs of values than any value with any other would make.

    several  places of the unknowns that have several values
    """
    first = fibres[0]
    number = {i: first.degree([i], MOST_TOGETHER) or 0 for i in several}
    links: list[tuple[int, ...]] = [(i,) for i in several]
    for pair in combinations(several, 2):
        most = number[pair[0]] * number[pair[1]]
        together = first.degree(pair, most)
        links += [pair] if together is not None and together < most else []
    return tuple(
        Alternatives(
            tuple(names[i] for i in group),
            first.degree(group, MOST_TOGETHER) or 0,
            _functions(fibres, group, names),
        )
        for group in sorted(sorted(part) for part in connected(links))
    )


def _functions(
    fibres: Sequence[Fibre], group: Sequence[int], names: Sequence[str]
) -> tuple[str, ...]:
    """What has one value; no more than there are unknowns.

    Sums with known factors of unknowns and of products of two: factors that do at every point are
    small quotients.
    """

    def product(fibre: Fibre, term: Sequence[int]) -> ModularPolynomial:
        return fibre.ideal.reduced(
            prod(
                (fibre.unknowns[i] for i in term),
                start=ModularPolynomial({(): 1}, fibre.ideal.prime),
            )
        )

    squares = [
        (i, i) for i in group if all(product(f, (i, i)).constant is not None for f in fibres)
    ]
    terms = [*((i,) for i in group), *combinations(group, 2), *squares]
    words = [
        f"{names[t[0]]}**2" if len({*t}) < len(t) else "*".join(names[i] for i in t) for t in terms
    ]
    result: list[list[list[Fraction]]] = []  # for each prime, factors that do at all its points
    for prime, some in groupby(fibres, key=lambda fibre: fibre.ideal.prime):
        rows = []
        for fibre in some:
            forms = [product(fibre, term).terms for term in terms]
            coordinates = sorted({m for form in forms for m in form} - {()})
            rows += [[form.get(m, 0) for form in forms] for m in coordinates]
        varying = np.array(rows, dtype=np.uint64).reshape(len(rows), len(terms))
        known = small_quotients(null_space(echelon(varying, prime), prime), prime, LARGEST_WEIGHT)
        result.append([[w for w in row if w is not None] for row in known if None not in row])
    rows_of_all = [row for row in result[0] if all(row in other for other in result)]
    rows_of_all.sort(key=lambda row: sum(len(terms[j]) for j, w in enumerate(row) if w))
    return tuple(combined(row, words) for row in rows_of_all[: len(group)])
