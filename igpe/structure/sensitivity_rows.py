"""What the outputs tell of the unknowns: exact derivatives of their Taylor coefficients.

A row holds the derivatives of one coefficient of one output by all unknowns, at a random point
modulo a prime. What is measured often gives all its rows; what is measured once or twice gives as
many, each a random mixture of all, as a value at a later time is. Where inputs have breaks a row is
an output at one time, a power series in the length of the experiment (`power_series.Grid`).
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import casadi as ca
import numpy as np

from igpe.structure.posed import Output, SeriesExpansion
from igpe.structure.series.field import (
    POINTS,
    Echelon,
    Field,
    Residues,
    Singular,
    echelon,
    local_echelon,
    null_space,
    product,
    random_primes,
)
from igpe.structure.series.graph import Dynamics, InputSegment
from igpe.structure.series.points import (
    Levels,
    NoPoint,
    RandomPoint,
    random_moves,
    random_point,
    random_tangents,
)
from igpe.structure.series.power_series import Constants, PowerSeries

MARGIN = 2  # orders beyond those that a generic start needs
ATTEMPTS = 2  # points at which a division by zero may be bad luck; then it is the start values'
FEW_ORDERS = 8  # with which the test of inputs with breaks begins
DEPTHS = (1.0, 2.0, 4.0)  # times the orders of a generic start, where the start is special
MOST_NUMBERS = 5e7  # coefficients that are kept at once


@dataclass(frozen=True, eq=False)
class ExactRows:
    """The rows of all outputs, at all points.

    primes, values  of each point: its prime, and (points, n) the unknowns
    measured  of each point, the echelon form of what is measured
    extra     of each point, name -> rows of what is not measured in some experiment
    orders    how many coefficients were computed
    generic   whether known start values were drawn at random, because at those given the equations
              are not defined, or have no solution that could be found
    beyond    names of the functions that are no quotients of polynomials
    breaks    whether inputs of an experiment have several pieces
    known     so many orders are known of what is determined
    most      the rank of generic start values, times and inputs, an upper bound; n if it is unknown
    """

    primes: tuple[int, ...]
    values: Residues
    measured: tuple[Echelon, ...]
    extra: tuple[dict[str, Residues], ...]
    orders: int
    generic: bool
    beyond: tuple[str, ...]
    breaks: bool
    known: int
    most: int

    @property
    def rank(self) -> int:
        """The largest of all points, which no point can exceed."""
        return max(form.rank for form in self.measured)

    @property
    def best(self) -> list[int]:
        """The points that reach it."""
        return [k for k, form in enumerate(self.measured) if form.rank == self.rank]

    @property
    def is_complete(self) -> bool:
        """Whether further orders cannot raise the rank: it is full, or that of a generic start."""
        is_full = self.rank == self.values.shape[1]
        return is_full or (self.rank >= self.most and self.known >= MARGIN)


class TooMany(Exception):
    """Inputs have so many pieces that their series are too long."""


def work(experiments: Sequence[SeriesExpansion], n: int, depth: float = 1.0) -> float:
    """About how many products of residues it takes, if the rank does not become full early.

    depth  how many times the orders of a generic start are computed
    """
    total = 0.0
    for d in (e.dynamics for e in experiments):
        orders = depth * (n + d.x.numel())
        nodes = len(d.pieces) * orders if len(d.pieces) > 1 else 1
        total += POINTS**2 * _operations(d) * orders * (1 + len(d.columns)) * (orders + n) * nodes
    return total


def _operations(d: Dynamics) -> int:
    return int(ca.Function("f", d.symbols, [ca.vertcat(d.f, d.g, d.outputs)]).n_instructions())


def sensitivity_rows(
    experiments: Sequence[SeriesExpansion], n: int, seed: int, most_work: float = np.inf
) -> ExactRows:
    """Rows of all experiments for n unknowns.

    most_work  products of residues that may be spent on more orders than a generic start needs
    raises     UnknownOperation; NoPoint or Singular where no start values help either
    """
    random = np.random.default_rng(seed)
    failure: Exception = Singular()
    for generic in [False] * ATTEMPTS + [True] * ATTEMPTS:
        try:
            return _deepened(experiments, n, random, generic=generic, most_work=most_work)
        except (Singular, NoPoint) as error:
            failure = error
    raise failure


def _deepened(
    experiments: Sequence[SeriesExpansion],
    n: int,
    random: np.random.Generator,
    *,
    generic: bool,
    most_work: float,
) -> ExactRows:
    """With more orders, until the rank is that of generic start values or the work is too much."""
    dynamics = [e.dynamics for e in experiments]
    first = n + max((d.x.numel() for d in dynamics), default=0) + MARGIN
    has_breaks = any(len(d.pieces) > 1 for d in dynamics)
    kept = [POINTS**2 * len(d.pieces) * (1 + len(d.columns)) * _operations(d) for d in dynamics]
    rows, most = None, None
    for depth in [FEW_ORDERS / first] * (has_breaks and first > FEW_ORDERS) + [*DEPTHS]:
        orders = round(first * depth)
        if rows is not None and depth > 1 and work(experiments, n, depth) > most_work:
            break
        if has_breaks and max(kept) * orders**2 > MOST_NUMBERS:
            break
        rows = _Expander(experiments, n, random, generic=generic, orders=orders).rows()
        if rows.rank == n:
            return rows
        if orders >= first:
            most = _most(experiments, n, random) if most is None else most
            rows = replace(rows, most=n if most is None else most)
            if rows.is_complete:
                return rows
    if rows is None:
        raise TooMany
    return rows


def _most(
    experiments: Sequence[SeriesExpansion], n: int, random: np.random.Generator
) -> int | None:
    """An upper bound on the rank: of every piece, at states and times drawn at random.

    States and their derivatives by the unknowns are drawn where the inputs may lead them, so that
    what holds along the trajectories holds here as well; a piece knows nothing of the one before.
    """
    parts, levels = zip(*(one for e in experiments for one in _apart(e, random)), strict=True)
    for _ in range(ATTEMPTS):
        with suppress(Singular, NoPoint):
            return _Expander(parts, n, random, levels=levels).rows().rank
    return None


def _apart(
    e: SeriesExpansion, random: np.random.Generator
) -> Iterator[tuple[SeriesExpansion, Levels]]:
    """Each piece as an experiment of its own, at a random time; and the levels of all."""
    pieces = e.dynamics.pieces
    levels = [
        tuple(None if s or r else v for v, r, s in zip(p.levels, p.rises, p.slopes, strict=True))
        for p in pieces
    ]
    groups: dict[Hashable, list[int]] = {}
    for i, piece in enumerate(pieces):
        groups.setdefault((levels[i], piece.slopes), []).append(i)
    for own in groups.values() or [[]]:
        changed: dict[str, Any] = {"t0": float(random.integers(1, 2**31))}
        outputs = e.outputs
        if own:
            held = [Fraction(int(random.integers(1, 2**31))) if v is None else v
                    for v in levels[own[0]]]  # fmt: skip
            still = (Fraction(0),) * len(held)
            changed["pieces"] = (InputSegment(
                Fraction(0), None, tuple(held), still, pieces[own[0]].slopes),)  # fmt: skip
            outputs = tuple(_within(output, [pieces[i] for i in own]) for output in outputs)
        yield (
            replace(e, dynamics=replace(e.dynamics, **changed), outputs=outputs),
            (tuple(dict.fromkeys(levels)) or ((),)),
        )


def _within(output: Output, pieces: Sequence[InputSegment]) -> Output:
    """The output as it is measured during these pieces."""
    if output.continuous:
        seen = any(piece.start < max(output.since) for piece in pieces)
        return output if seen else replace(output, since=())
    return replace(output, since=tuple(
        t for t in output.since
        if any(p.start <= t and (p.end is None or t <= p.end) for p in pieces)
    ))  # fmt: skip


class SeriesStart:
    """All experiments at random points, before any coefficient.

    primes   one for each point
    point    values of all unknowns
    courses  of each experiment; what they draw they share
    orders   how many coefficients are computed, where inputs have breaks
    levels   of the inputs of each experiment; if given, states and their derivatives are drawn at
             random among those that these inputs may lead to
    raises   UnknownOperation, NoPoint, Singular
    """

    def __init__(
        self,
        dynamics: Sequence[Dynamics],
        n: int,
        random: np.random.Generator,
        *,
        generic: bool = False,
        orders: int = 0,
        levels: Sequence[Levels] = (),
    ) -> None:
        self.n, self.random, self.primes = n, random, random_primes(random)
        plain = Field(self.primes, 1, random)
        constants = Constants(plain)
        fields = [Field(self.primes, 1 + len(d.columns), random) for d in dynamics]
        moves: list[Residues | None] = [
            random_moves(d, own) if generic or (levels and d.y.numel()) else None
            for d, own in zip(dynamics, fields, strict=True)
        ]
        values = [None if m is None else m[:, :, 0] for m in moves]
        self.point: RandomPoint = random_point(dynamics, n, plain, constants, moved=values)
        self.courses = []
        for i, (d, y) in enumerate(zip(dynamics, self.point.y, strict=True)):
            q = self.point.q[:, list(d.columns)]
            x, start = moves[i], self.point.x[i]
            if x is not None and start is not None:
                x[:, :, 0] = start
            if levels and x is None:
                x = random_tangents(d, q, levels[i], fields[i], constants)
            self.courses.append(PowerSeries(d, fields[i], constants, q, y, x=x, orders=orders))


class _Expander(SeriesStart):
    """Expands all experiments side by side, until further orders tell no more."""

    def __init__(
        self,
        experiments: Sequence[SeriesExpansion],
        n: int,
        random: np.random.Generator,
        *,
        generic: bool = False,
        orders: int = 0,
        levels: Sequence[Levels] = (),
    ) -> None:
        dynamics = [e.dynamics for e in experiments]
        self.size = max((d.x.numel() for d in dynamics), default=0)
        self.generic, self.orders = generic, orders or n + self.size + MARGIN
        super().__init__(dynamics, n, random, generic=generic, orders=self.orders, levels=levels)
        self.outputs = [  # with its course, and its place among the course's outputs
            (output, course, i)
            for e, course in zip(experiments, self.courses, strict=True)
            for i, output in enumerate(e.outputs)
        ]

    def rows(self) -> ExactRows:
        """Everything, for as many orders as matter."""
        points = range(len(self.primes))
        if all(course.grid.is_single for course in self.courses):
            order, forms = self._by_orders()
            forms, known = [self._with_few(k, forms[k]) for k in points], MARGIN
            extra = [self._by_name(partial(self._all, k)) for k in points]
        else:
            for _ in range(self.orders):
                for course in self.courses:
                    course.advance()
            result = []  # what is measured, as power series in the length of the experiments
            for k, prime in enumerate(self.primes):
                rows = [self._series(k, *one) for one in self.outputs if one[0].since]
                at = int(self.random.integers(1, prime))
                result.append(local_echelon(np.concatenate(rows), prime, at))
            steady = all(local.steady for local in result)
            extra = [self._extra_by_times(k, result[k].form) if steady else {} for k in points]
            order, forms = self.orders, [local.form for local in result]
            known = min(local.orders for local in result)
        return ExactRows(
            primes=tuple(self.primes),
            values=self.point.q,
            measured=tuple(forms),
            extra=tuple(extra),
            orders=order,
            generic=self.generic,
            beyond=tuple(sorted(set().union(*(course.beyond for course in self.courses)))),
            breaks=any(len(course.grid.pieces) > 1 for course in self.courses),
            known=known,
            most=self.n,
        )

    def _by_orders(self) -> tuple[int, list[Echelon]]:
        """How many orders matter, and what is measured often, where no input has breaks."""
        forms = [Echelon.empty(self.n)] * len(self.primes)
        order = grown = 0
        while order < max(self.orders, grown + self.size + MARGIN):
            before = [form.rank for form in forms]
            latest = {course: course.advance() for course in self.courses}
            often = [(c.dynamics, latest[c][i]) for o, c, i in self.outputs if o.continuous]
            order += 1
            for k, (form, prime) in enumerate(zip(forms, self.primes, strict=True)):
                rows = [scattered(d, number[k, None, 1:], self.n) for d, number in often]
                forms[k] = echelon(np.vstack([form.rows, *rows]), prime)
            ranks = [form.rank for form in forms]
            grown = order if ranks != before else grown
            if max(ranks) == self.n:
                break
        return order, forms

    def _with_few(self, k: int, form: Echelon) -> Echelon:
        """The echelon form with what is measured once or twice."""
        rows = [
            self._few(k, output, self._all(k, course, i))
            for output, course, i in self.outputs
            if output.since and not output.continuous
        ]
        return echelon(np.vstack([form.rows, *rows]), self.primes[k]) if rows else form

    def _few(self, k: int, output: Output, rows: Residues) -> Residues:
        """One row for each time."""
        shape = (len(output.since), len(rows))
        weights = self.random.integers(0, self.primes[k], shape, dtype=np.uint64)
        if Fraction(0) in output.since:  # the start
            weights[0] = np.eye(1, len(rows), dtype=np.uint64)
        return product(weights, rows, self.primes[k])

    def _by_name(self, rows_of: Callable[[PowerSeries, int], Residues]) -> dict[str, Residues]:
        """Name -> rows of all that is not measured often; rows_of(course, i) gives those of one."""
        result: dict[str, list[Residues]] = {}
        for output, course, i in self.outputs:
            if not output.continuous:
                result.setdefault(output.name, []).append(rows_of(course, i))
        return {name: np.concatenate(rows) for name, rows in result.items()}

    def _all(self, k: int, course: PowerSeries, i: int) -> Residues:
        """(orders, n) all rows of output i."""
        own = np.stack([numbers[i][k, 1:] for numbers in course.outputs])
        return scattered(course.dynamics, own, self.n)

    def _series(self, k: int, output: Output, course: PowerSeries, i: int) -> Residues:
        """(rows, n, orders) of output i at point k."""
        grid, since = course.grid, output.since
        few = since and not output.continuous
        if grid.is_single:  # rows that do not depend on the length
            own = self._all(k, course, i)
            own = self._few(k, output, own) if few else own
            return np.stack([own, *[np.zeros_like(own)] * (self.orders - 1)], axis=2)
        nodes = slice(k * grid.size, (k + 1) * grid.size)
        numbers = [a[i][nodes, 1:] for a in course.outputs]
        if few:
            numbers = [np.stack([grid.at(a, k, t) for t in since]) for a in numbers]
        else:  # the nodes of the pieces in which the output is measured
            n = sum(not since or piece.start < max(since) for piece in grid.pieces) * grid.m
            numbers = [a[:n] for a in numbers]
        return np.stack([scattered(course.dynamics, a, self.n) for a in numbers], axis=2)

    def _extra_by_times(self, k: int, form: Echelon) -> dict[str, Residues]:
        """Rows that say the same of what is open as further measurements, if rows of numbers do."""
        prime = self.primes[k]
        open_ = null_space(form, prime).T
        free = [j for j in range(self.n) if j not in form.pivots]
        result = {}
        series = self._by_name(partial(self._series, k, Output("", ())))
        for name, parts in series.items():
            seen = [product(parts[:, :, j], open_, prime) for j in range(parts.shape[2])]
            local = local_echelon(np.stack(seen, axis=2), prime, 1)
            if local.steady and free:
                result[name] = np.zeros((len(local.form.rows), self.n), dtype=np.uint64)
                result[name][:, free] = local.form.rows
        return result


def scattered(dynamics: Dynamics, own: Residues, n: int) -> Residues:
    """Derivatives by an experiment's unknowns as derivatives by all n."""
    result = np.zeros((len(own), n), dtype=np.uint64)
    result[:, list(dynamics.columns)] = own
    return result
