"""Global identifiability by solving: all values of the unknowns that give the same outputs.

At a random point modulo a prime the Taylor coefficients of the outputs are known numbers; so the
unknowns obey polynomial equations, and a Groebner basis tells how many values each can have. What
the outputs leave open continuously is held at the point's values, which changes no other count.
After Hong, Ovchinnikov, Pogudin, Yap (SIAN, 2019); docs/identifiability.md says what is certain.

What polynomial equations leave out: that exp, log and the like are one-to-one, and signs.

An unknown of which an odd power has one value has one itself, being real; with an even power if
its bounds exclude one of the signs.

A function of unknowns at the start is a variable of its own in the equations, so that these have
more solutions than the model. But where all of them agree on the argument they must agree on the
value, and the other way round for real numbers; and two exponentials have a known ratio exactly if
their arguments have a known difference: an Arrhenius law at two temperatures.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from igpe.equations.symbols import stack
from igpe.structure.identifiability.alternatives import Alternatives, Fibre, alternatives
from igpe.structure.identifiability.posed import SeriesExpansion
from igpe.structure.identifiability.sensitivity_rows import MARGIN, SeriesStart, scattered
from igpe.structure.series import polynomials as poly
from igpe.structure.series.field import Echelon, Singular, echelon, null_space
from igpe.structure.series.graph import Dynamics
from igpe.structure.series.ideal import Ideal
from igpe.structure.series.points import NoPoint
from igpe.structure.series.polynomials import Polynomial, TooLong
from igpe.structure.series.relations import FunctionValue, Relations, Unrolled

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


def _ratio(one: FunctionValue, other: FunctionValue, relations: Relations) -> Polynomial:
    """What vanishes if the two values have the ratio that they have at the point."""
    prime = relations.prime
    sides = (
        poly.times(a.value, poly.number(relations.value(b.value), prime), prime)
        for a, b in ((one, other), (other, one))
    )
    return poly.plus(next(sides), next(sides), prime, -1)


MOST_VALUES = 30  # of an unknown that are counted
MOST_COEFFICIENTS = 500  # of states, each of which is a variable


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
        return Solutions(why="nothing is measured over time")
    try:
        series = _SolutionSeries(experiments, one_sign, proved, seed)
        result = series.fibres(most_work)
        counted = [_values(fibre) for fibre in result]
        agreed = {i: v for i, v in counted[0].items() if all(c.get(i) == v for c in counted)}
        # What else is measured may choose among several values; that there is one it cannot change.
        whole = not series.few and not any(fibre.branches for fibre in result)
        values = {i: v for i, v in agreed.items() if v == 1 or whole}
        several = [i for i, v in values.items() if v > 1]
        is_open = series.few or series.broken or set(series.determined) != values.keys()
        others = alternatives(result, several, names) if several else ()
        return Solutions(values, others, _why(series, result) * is_open)
    except TooLong:
        return Solutions(why="solving for them takes long")
    except (Singular, NoPoint):
        return Solutions(why="the equations are not defined at the point tried")


def _why(series: "_SolutionSeries", result: Sequence[Fibre]) -> str:
    if series.few:
        return "what is measured once or twice is not used"
    if series.broken:
        return "what is measured after the first break of an input is not used"
    if any(fibre.branches for fibre in result):
        return "exp, roots or implicit equations leave other values open"
    return "there are very many values"


def _values(fibre: Fibre) -> dict[int, int]:
    """Of each determined unknown; those with very many are left out."""
    result = {}
    for i, q in fibre.unknowns.items():
        number = fibre.ideal.degree(q, MOST_VALUES)
        if number is not None:
            result[i] = number
    return result


class _SolutionSeries:
    """The experiments' measured outputs in numbers, as far as they tell anything new.

    start       all experiments at their random points
    determined  places of the unknowns that are locally identifiable by them, without those proved
    few         whether something is measured that is not used: once or twice only
    """

    def __init__(
        self,
        experiments: Sequence[SeriesExpansion],
        one_sign: Sequence[bool],
        proved: Collection[int],
        seed: int,
    ) -> None:
        self.n = n = len(one_sign)
        self.one_sign = one_sign
        self.few = any(o.times and not o.continuous for e in experiments for o in e.outputs)
        self.broken = any(len(e.dynamics.pieces) > 1 for e in experiments)
        random = np.random.default_rng(seed)
        self.start = SeriesStart([_measured(e) for e in experiments], n, random, generic=False)
        self._sizes = [course.dynamics.x.numel() for course in self.start.courses]
        if sum(self._sizes) * (n + 1) > MOST_COEFFICIENTS:
            raise TooLong
        self._last, form = self._expanded()
        backward = echelon(form.rows[:, ::-1], self.start.primes[0])
        self._held = [
            set(range(n)) - set(form.pivots) | set(proved),
            set(range(n)) - {n - 1 - column for column in backward.pivots} | set(proved),
        ]
        moved = null_space(form, self.start.primes[0]).any(axis=0)
        self.determined = sorted(set(np.flatnonzero(~moved).tolist()) - set(proved))

    def fibres(self, most_work: float) -> list[Fibre]:
        """All solutions at each point. Raises TooLong, Singular.

        What is held may be chosen; one choice makes it long where another does not.
        """
        first, other = self._held
        points = range(1, len(self.start.primes))
        try:
            result = [self._fibre(0, first, most_work)]
        except TooLong:
            if other == first:
                raise
            first, result = other, [self._fibre(0, other, most_work)]
        return result + [self._fibre(k, first, most_work) for k in points]

    def _fibre(self, k: int, held: set[int], most_work: float) -> Fibre:
        relations = Relations(self.start.primes[k])
        q = [
            poly.number(int(v), relations.prime) if i in held else relations.unknown(int(v))
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
        ideal = closed(relations, list(zip(q, self.one_sign, strict=True)), most_work)
        unknowns = {i: q[i] for i in self.determined}
        several = any(ideal.degree(a, 1) != 1 for a in unknowns.values())
        if several and not relations.branches:
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
        prime = self.start.primes[0]
        last = [[-1] * c.dynamics.outputs.numel() for c in self.start.courses]
        form = Echelon(np.zeros((0, self.n), dtype=np.uint64), ())
        order = grown = 0
        size = max(self._sizes)
        while order < max(self.n + size, grown + size) + MARGIN and form.rank < self.n:
            for own, course in zip(last, self.start.courses, strict=True):
                for i, number in enumerate(course.advance()):
                    row = scattered(course.dynamics, number[0, None, 1:], self.n)
                    more = echelon(np.vstack([form.rows, row]), prime)
                    if more.rank > form.rank:
                        form, own[i], grown = more, order, order + 1
            order += 1
        for course in self.start.courses:
            course.advance()
        return last, form


def _measured(experiment: SeriesExpansion) -> Dynamics:
    """The experiment up to the first break, with the outputs that are measured over time."""
    d = experiment.dynamics
    continuous = [d.outputs[i] for i, output in enumerate(experiment.outputs) if output.continuous]
    return replace(d, outputs=stack(continuous), pieces=d.pieces[:1])
