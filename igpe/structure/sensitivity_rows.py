"""What the outputs tell of the unknowns: exact derivatives of their Taylor coefficients.

A row holds the derivatives of one coefficient of one output by all unknowns, at a random point
modulo a prime. What is measured often gives all its rows; what is measured once or twice gives as
many, each a random mixture of all, as a value at a later time is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from igpe.series.constants import Constants
from igpe.series.course import Course, Signals
from igpe.series.degree import degree_of_minor
from igpe.series.dynamics import Dynamics
from igpe.series.field import POINTS, Field, Residues, Singular, random_primes
from igpe.series.linear_algebra import Echelon, echelon, product
from igpe.series.point import NoPoint, Point, random_point
from igpe.structure.expansion import Expansion, Output

MARGIN = 2  # orders beyond those that a generic start needs
ATTEMPTS = 2  # points at which a division by zero may be bad luck; then it is the start values'


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of all outputs, at all points.

    primes   one for each point
    values   (points, n) the unknowns
    told     of each point, the echelon form of what is measured
    extra    of each point, name -> rows of what is not measured in some experiment
    orders   how many coefficients were computed
    degrees  of the equations and of the start values, in the sense of `igpe.series.degree`
    generic  whether known start values were drawn at random, because at those given the equations
             are not defined, or have no solution that could be found
    beyond   names of the functions that are no quotients of polynomials
    """

    primes: tuple[int, ...]
    values: Residues
    told: tuple[Echelon, ...]
    extra: tuple[dict[str, Residues], ...]
    orders: int
    degrees: tuple[int, int]
    generic: bool
    beyond: tuple[str, ...]

    @property
    def rank(self) -> int:
        """The largest of all points, which no point can exceed."""
        return max(len(form.pivots) for form in self.told)

    @property
    def best(self) -> list[int]:
        """The points that reach it."""
        return [k for k, form in enumerate(self.told) if form.rank == self.rank]

    @property
    def chance(self) -> float:
        """Bound of the probability that all points have a smaller rank than nearly all others.

        Twice: the points must not be zeros of denominators either, and are drawn again if they are.
        """
        rank = min(self.rank + 1, self.n)
        zeros = 2 * degree_of_minor(*self.degrees, self.orders, rank)
        return float(np.prod([min(1.0, zeros / prime) for prime in self.primes]))

    @property
    def n(self) -> int:
        """Number of unknowns."""
        return int(self.values.shape[1])


def work(experiments: Sequence[Expansion], n: int) -> float:
    """About how many products of residues it takes, if the rank does not become full early."""
    total = 0.0
    for e in experiments:
        d = e.dynamics
        orders = n + d.x.numel()
        operations = ca.Function("f", d.symbols, [ca.vertcat(d.f, d.g, d.outputs)]).n_instructions()
        total += POINTS**2 * operations * orders * (1 + len(d.columns)) * (orders + n)
    return total


def sensitivity_rows(experiments: Sequence[Expansion], n: int, seed: int) -> Rows:
    """Rows of all experiments for n unknowns.

    raises UnknownOperation; NoPoint or Singular where no start values help either
    """
    random = np.random.default_rng(seed)
    failure: Exception = Singular()
    for generic in [False] * ATTEMPTS + [True] * ATTEMPTS:
        try:
            return _Expander(experiments, n, random, generic=generic).rows()
        except (Singular, NoPoint) as error:
            failure = error
    raise failure


class Start:
    """All experiments at random points, before any coefficient.

    primes   one for each point
    point    values of all unknowns
    courses  of each experiment; what they draw they share
    raises   UnknownOperation, NoPoint, Singular
    """

    def __init__(
        self, dynamics: Sequence[Dynamics], n: int, random: np.random.Generator, *, generic: bool
    ) -> None:
        self.primes = random_primes(random)
        plain = Field(self.primes, 1, random)
        shared = Constants(plain), Signals(plain)
        self.point: Point = random_point(dynamics, n, plain, shared, generic=generic)
        self.courses = [
            Course(
                d,
                Field(self.primes, 1 + len(d.columns), random),
                shared,
                self.point.q[:, list(d.columns)],
                y,
                x=x,
            )
            for d, y, x in zip(dynamics, self.point.y, self.point.x, strict=True)
        ]


class _Expander:
    """Expands all experiments side by side, until further orders tell no more."""

    def __init__(
        self,
        experiments: Sequence[Expansion],
        n: int,
        random: np.random.Generator,
        *,
        generic: bool,
    ) -> None:
        self.experiments, self.n, self.generic, self.random = experiments, n, generic, random
        start = Start([e.dynamics for e in experiments], n, random, generic=generic)
        self.primes, self.point, self.courses = start.primes, start.point, start.courses

    def rows(self) -> Rows:
        """Everything, for as many orders as matter."""
        forms = [Echelon(np.zeros((0, self.n), dtype=np.uint64), ())] * len(self.primes)
        size = max((e.dynamics.x.numel() for e in self.experiments), default=0)
        order = grown = 0
        while order < max(self.n + size, grown + size) + MARGIN:
            before = [form.rank for form in forms]
            for course in self.courses:
                course.advance()
            order += 1
            forms = [
                echelon(np.vstack([form.rows, *self._latest(k)]), self.primes[k])
                for k, form in enumerate(forms)
            ]
            ranks = [form.rank for form in forms]
            grown = order if ranks != before else grown
            if max(ranks) == self.n:
                break
        points = range(len(self.primes))
        return Rows(
            primes=tuple(self.primes),
            values=self.point.q,
            told=tuple(self._with_few(k, forms[k]) for k in points),
            extra=tuple(self._extra(k) for k in points),
            orders=order,
            degrees=(
                max(course.degree for course in self.courses),
                max(course.degree_of_start for course in self.courses),
            ),
            generic=self.generic,
            beyond=tuple(sorted(set().union(*(course.beyond for course in self.courses)))),
        )

    def _latest(self, k: int) -> Iterator[Residues]:
        """Point k's rows of the order computed last, of what is measured often."""
        for e, course in zip(self.experiments, self.courses, strict=True):
            for output, number in zip(e.outputs, course.outputs[-1], strict=True):
                if output.continuous:
                    yield scattered(e.dynamics, number[k, None, 1:], self.n)

    def _with_few(self, k: int, form: Echelon) -> Echelon:
        """The echelon form with what is measured once or twice."""
        rows = [form.rows]
        for e, course in zip(self.experiments, self.courses, strict=True):
            for i, output in enumerate(e.outputs):
                if output.times and not output.continuous:
                    rows.append(self._few(k, output, self._all(e, course, i, k)))
        return form if len(rows) == 1 else echelon(np.vstack(rows), self.primes[k])

    def _few(self, k: int, output: Output, rows: Residues) -> Residues:
        """One row for each time."""
        shape = (output.times, len(rows))
        weights = self.random.integers(0, self.primes[k], shape, dtype=np.uint64)
        if output.at_start:
            weights[0] = 0
            weights[0, 0] = 1
        return product(weights, rows, self.primes[k])

    def _extra(self, k: int) -> dict[str, Residues]:
        found: dict[str, list[Residues]] = {}
        for e, course in zip(self.experiments, self.courses, strict=True):
            for i, output in enumerate(e.outputs):
                if not output.continuous:
                    found.setdefault(output.name, []).append(self._all(e, course, i, k))
        return {name: np.vstack(rows) for name, rows in found.items()}

    def _all(self, e: Expansion, course: Course, i: int, k: int) -> Residues:
        """(orders, n) all rows of output i."""
        own = np.stack([numbers[i][k, 1:] for numbers in course.outputs])
        return scattered(e.dynamics, own, self.n)


def scattered(dynamics: Dynamics, own: Residues, n: int) -> Residues:
    """Derivatives by an experiment's unknowns as derivatives by all n."""
    found = np.zeros((len(own), n), dtype=np.uint64)
    found[:, list(dynamics.columns)] = own
    return found
