"""Steady-state starts: where equations come to rest, and how that depends on the unknowns.

The equations are integrated until nothing moves any more; only from there Newton's method makes the
state exact, so that it never goes to a state at rest that the start does not lead to. Sums W x that
the equations conserve keep the values of the start:

    f(x, q) = 0,   W x = W x0(q)        f_x x' = -f_q,   W x' = W x0' + W_q (x0 - x)

Where events happen on the way, or states switch the equations, x0 and x0' are those just after the
last of these, and f is what holds from there on.

All is in states divided by their sizes.

A sum w'x is conserved if w'f(x, q) = 0 for all states x. The rank of f_x at one point does not give
these sums: rates at a steady state may differ by thirty decades, and the small ones would seem to
be none. So w is in the left null space of slopes and their derivatives at random points, half of
them with unknowns of order one, each column divided by its length.

Where the sums depend on the unknowns (volumes), they are those at the given unknowns. With
columns F of slopes at random states, W F = 0 gives W_q F = -W F_q.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from threading import get_ident
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy import linalg

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.dynamics.integrators.base import Integrator, Intervals, Refused
from igpe.dynamics.integrators.limits import BrokenError, allowed
from igpe.dynamics.integrators.switches import GRAZING
from igpe.equations.initial_value import InitialValueProblem

NEGLIGIBLE = 1e-10  # singular values of unit columns
POINTS = 6  # with other unknowns, of order one or about as large as those given
STATES = 3  # random states at each of these


class _RestPoint(NamedTuple):
    """Unknowns (n_q,), modes (n_modes,), and which states are 0 and stay so (n_x,)."""

    q: FloatArray
    modes: FloatArray
    stays: BoolArray


class _SlopesAt(NamedTuple):
    """Slopes (n_x,) and their derivatives by states (n_x, n_x) and unknowns (n_x, n_q)."""

    f: FloatArray
    by_x: FloatArray
    by_q: FloatArray


class _RestSlopes:
    """The slopes of states divided by their sizes."""

    def __init__(self, rest: InitialValueProblem) -> None:
        self.scale = rest.scale
        by = [ca.densify(ca.jacobian(rest.f, v)) for v in (rest.x, rest.q)]
        self._f = ca.Function("f", [rest.x, rest.u, rest.q], [ca.densify(rest.f), *by])

    def __call__(self, x: FloatArray, at: _RestPoint) -> _SlopesAt:
        """The slopes at states x (n_x,)."""
        f, by_x, by_q = (np.asarray(v) for v in self._f(x * self.scale, at.modes, at.q))
        column = self.scale[:, None]
        return _SlopesAt(f.ravel() / self.scale, by_x * self.scale / column, by_q / column)


class _Conserved(NamedTuple):
    """Orthonormal rows (n_c, n_x), for states divided by their sizes.

    is_constant  whether the rows are the same for all unknowns
    """

    rows: FloatArray
    is_constant: bool


class _ConservedSums:
    """Finds the conserved sums at many points."""

    def __init__(self, slopes: _RestSlopes) -> None:
        self._slopes = slopes
        self._known: dict[tuple[bytes, ...], tuple[int, FloatArray]] = {}

    def __call__(self, at: _RestPoint) -> _Conserved:
        """The sums; they are computed once for unknowns of the same signs, if they are constant."""
        key = np.sign(at.q).tobytes(), at.modes.tobytes(), at.stays.tobytes()
        if key not in self._known:
            self._known[key] = self._for_any(at)
        count, constant = self._known[key]
        if len(constant) == count:
            return _Conserved(constant, is_constant=True)
        columns = [_by_states(near, at) for near in self._at_random(STATES, at)]
        return _Conserved(_left_null(np.hstack(columns), count), is_constant=False)

    def moved(self, rows: FloatArray, by: FloatArray, at: _RestPoint) -> FloatArray:
        """(n_c, n_q) derivatives of the sums of a difference `by` (n_x,) that has none."""
        every = list(self._at_random(4 * len(by), at))
        slopes = np.array([near.f for near in every]).T
        weights = np.linalg.lstsq(slopes, by, rcond=NEGLIGIBLE)[0]
        return np.asarray(-rows @ np.tensordot(weights, [near.by_q for near in every], axes=1))

    def at_zero(self, none: BoolArray, at: _RestPoint) -> BoolArray:
        """(n_x,) which of the states that are 0 remain so, as the slopes of all of these are 0."""
        while none.any():
            every = self._at_random(STATES, at._replace(stays=none))
            moves = np.any([near.f != 0 for near in every], axis=0)
            if not (none & moves).any():
                break
            none = none & ~moves
        return none

    def _for_any(self, at: _RestPoint) -> tuple[int, FloatArray]:
        """How many sums there are for unknowns with these signs, and those that are constant."""
        random, count = np.random.default_rng(1), len(at.stays)
        columns = list[FloatArray]()
        for k in range(POINTS):
            size = np.abs(at.q) if k % 2 else np.ones(len(at.q))
            there = at._replace(q=np.sign(at.q) * size * random.uniform(0.5, 1.5, len(at.q)))
            every = list(self._at_random(STATES, there, k))
            columns.append(_as_few(np.hstack([_by_states(near, at) for near in every])))
            count = min(count, len(_left_null(columns[-1])))
            if count == 0:
                break
            columns.append(_as_few(np.hstack([_unit(near.by_q[:, at.q != 0]) for near in every])))
        return count, _left_null(np.hstack(columns))

    def _at_random(self, count: int, at: _RestPoint, seed: int = 0) -> Iterator[_SlopesAt]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            yield self._slopes(np.where(at.stays, 0.0, random.uniform(0.5, 1.5, len(at.stays))), at)


def _by_states(near: _SlopesAt, at: _RestPoint) -> FloatArray:
    return _unit(np.column_stack([near.f, near.by_x[:, ~at.stays]]))


def _unit(columns: FloatArray) -> FloatArray:
    """Columns of length one; those without a length are left out."""
    with np.errstate(all="ignore"):
        length = np.linalg.norm(columns, axis=0)
        is_any = np.isfinite(length) & (length > 0)
        return np.asarray(columns[:, is_any] / length[is_any])


def _as_few(columns: FloatArray) -> FloatArray:
    """At most as many columns as rows, with the same singular values and left vectors."""
    is_wide = columns.shape[1] > len(columns)
    return np.asarray(np.linalg.qr(columns.T, mode="r")).T if is_wide else columns


def _left_null(columns: FloatArray, count: int | None = None) -> FloatArray:
    """Orthonormal rows that all columns are orthogonal to; so many of them, if that is known."""
    left, sizes, _ = np.linalg.svd(_as_few(columns))
    if count is None:
        count = len(left) - int((sizes > NEGLIGIBLE * max(sizes, default=0.0)).sum())
    return np.asarray(left.T[len(left) - count :])


SPANS = 10.0 ** np.arange(9)  # times the longest experiment's duration, to come to rest
STILL = 1e-5  # relative change of states from one of these to the next
ENOUGH = 2  # such changes, one after the other
NEAR = 1e-3  # relative change that Newton's method may make
GROWS = 3e-6  # real part of an eigenvalue, of the largest
SINGULAR = 1e-13  # of the largest singular value of equilibrated equations
REGULAR = 1e-9  # reciprocal condition from which on singular values are not needed
ITERATIONS = 20
EXACT = 1e-13
ROUNDED = 1e-9  # below, steps that no longer fall are rounding errors
NO_REASON = "The integration broke down."

NO_REST = "The model does not reach a steady state before the experiment"
MOVES = NO_REST + (
    ": after {:g} times the duration of the longest experiment, states still drift, grow or "
    "oscillate. {}"
)
REPEATS = "Events or conditions on states repeat with the same states, so the states oscillate."
UNSTABLE = "The steady state before the experiment is unstable: a disturbance would grow."
DEGENERATE = (
    "The steady state before the experiment is not isolated, so it has no derivatives with "
    "respect to the unknowns."
)


BORDER = (
    "The steady state lies exactly at the threshold of a condition on states, so the steady state "
    "has no derivatives with respect to the unknowns."
)


CROSSES = "The model does not reach a steady state, because a condition on states changes first."


class Rest(NamedTuple):
    """A state at rest (n_x,), its derivative (n_x, n_q), and why there is none.

    true   (n_gaps,) which conditions on states hold there
    steps  of the integration to it, if they are counted
    """

    states: FloatArray
    by_unknown: FloatArray
    why: str = ""
    true: BoolArray = np.zeros(0, dtype=bool)
    steps: int = 0


class Stage(NamedTuple):
    """What an approach came to.

    states  (n_x,)
    by      (n_x, n_q) their derivatives where the approach begins, at the start and after each
            switch; None in between
    true    (n_gaps,) which conditions on states hold from here on, modes first
    why     why the approach ends here; empty if it goes on
    """

    states: FloatArray
    by: FloatArray | None = None
    true: BoolArray = np.zeros(0, dtype=bool)
    why: str = ""


class Approach(ABC):
    """A way to rest, stage by stage, each ten times as long after its beginning as the last.

    steps  of integration so far, if they are counted
    """

    steps = 0

    @abstractmethod
    def __call__(self, q: FloatArray) -> Iterator[Stage]:
        """Stages for unknowns q (n_q,) of the problem that comes to rest."""


class SmoothApproach(Approach):
    """The approach of equations that nothing switches.

    intervals  one, with the times at which the stages end
    """

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals

    def __call__(self, q: FloatArray) -> Iterator[Stage]:
        """See `Approach`."""
        states, by = self.intervals.start(q)
        yield Stage(states, by)
        for over in self._stages:
            run = over.run(states[None], q, derivatives=False)
            self.steps += 0 if run.steps is None else int(run.steps.sum())
            states = run.ends[0]
            yield Stage(states, why="" if run.status[0].usable else run.reason[0] or NO_REASON)

    @cached_property
    def _stages(self) -> list[Intervals]:
        every = self.intervals
        ends = map(np.array, pairwise([every.ivp.t0, *every.cut.times]))
        return [every.over(every.ivp, nodes, nodes[1:]) for nodes in ends]


class Resting:
    """Finds the state at which an initial value problem comes to rest, for many unknowns.

    It belongs to one thread. The last state is kept, as several experiments start there one after
    the other: the same unknowns give the same bits, and count the same steps.
    """

    def __init__(self, rest: InitialValueProblem, approach: Approach) -> None:
        self.scale, self.approach, self.duration = rest.scale, approach, rest.duration
        self._last: tuple[Any, Rest] | None = None
        self._modes = rest.u.numel()
        self._slopes = _RestSlopes(rest)
        self._conserved = _ConservedSums(self._slopes)
        self._gaps = None
        if rest.switching is not None:
            gaps = rest.switching.gaps
            by = [ca.densify(ca.jacobian(gaps, v)) for v in (rest.x, rest.q)]
            self._gaps = ca.Function("gaps", [rest.x, rest.u, rest.q], [ca.densify(gaps), *by])

    @property
    def is_plain(self) -> bool:
        """Whether the steps to rest move the states alone."""
        return isinstance(self.approach, SmoothApproach)

    def __call__(self, q: FloatArray) -> Rest:
        """The state at rest for unknowns q (n_q,) of the problem that comes to rest."""
        key = allowed(), q.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        before = self.approach.steps
        found = self._reached(q)._replace(steps=self.approach.steps - before)
        if not found.why:  # a deadline may have ended it
            self._last = key, found
        return found

    def start_of(self, own: IntArray, q: FloatArray) -> Rest:
        """The same for unknowns q (n_q,) of a problem that starts there, by all of these.

        own  places of the unknowns of the problem that comes to rest
        """
        found = self(np.asarray(q, dtype=float)[own])
        wide = np.full((len(found.states), len(q)), np.nan if found.why else 0.0)
        wide[:, own] = found.by_unknown
        return found._replace(by_unknown=wide)

    def _reached(self, own: FloatArray) -> Rest:
        n_x = len(self.scale)
        why, still, since = MOVES.format(SPANS[-1], ""), 0, 0.0
        states, by, true = list[FloatArray](), np.zeros((n_x, len(own))), np.zeros(0, dtype=bool)
        for stage in self.approach(own):
            if stage.why:
                why = MOVES.format(since, stage.why) if since else f"{NO_REST}. {stage.why}"
                break
            if stage.by is not None:
                states, by, true, still = [stage.states / self.scale], stage.by, stage.true, 0
                continue
            states.append(stage.states / self.scale)
            still = still + 1 if _is_still(states[-2], states[-1]) else 0
            since = SPANS[len(states) - 2]
            if still < ENOUGH:
                continue
            found = self._rest(np.array(states), by, own, true)
            if isinstance(found, Rest):
                return found
            why = found
            if why == BORDER:
                break
        return Rest(np.full(n_x, np.nan), np.full((n_x, len(own)), np.nan), why.rstrip())

    def _rest(
        self, states: FloatArray, by: FloatArray, q: FloatArray, true: BoolArray
    ) -> Rest | str:
        """The state at rest next to the last row; or why there is none."""
        stays = (states[[0, -1]] == 0).all(axis=0) & (by == 0).all(axis=1)
        at = _RestPoint(q, true[: self._modes].astype(float), stays)
        none = (states[0] == 0) & (by == 0).all(axis=1)
        if (self._conserved.at_zero(none, at) & (np.abs(states[-1]) > STILL)).any():
            return UNSTABLE  # rounding errors grew into another state
        sums = self._conserved(at)
        x = self._exact(states, sums.rows, at)
        if isinstance(x, str):
            return x
        own = self._moved(x, states, by, sums, at)
        if isinstance(own, str):
            return own
        if self._gaps is not None:
            gaps, by_x, by_q = (np.asarray(v) for v in self._gaps(x * self.scale, at.modes, at.q))
            size, gap = np.abs(by_x) @ self.scale, gaps.ravel()
            is_zero = np.abs(gap) <= GRAZING * size
            moved = np.abs((by_x * self.scale) @ own + by_q) * np.abs(at.q)
            if (is_zero & (moved > GRAZING * size[:, None]).any(axis=1)).any():
                return BORDER
            if (~is_zero & ((gap > 0) != true)).any():
                return CROSSES
        return Rest(x * self.scale, own * self.scale[:, None], true=true)

    def _moved(
        self, x: FloatArray, states: FloatArray, by: FloatArray, sums: _Conserved, at: _RestPoint
    ) -> FloatArray | str:
        """(n_x, n_q) how the state at rest moves with the unknowns; or why it does not."""
        here, of_sums = self._slopes(x, at), sums.rows @ (by / self.scale[:, None])
        if not sums.is_constant:
            of_sums = of_sums + self._conserved.moved(sums.rows, states[0] - x, at)
        own = _solved(here.by_x, sums.rows, -here.by_q, of_sums)
        if own is None:
            return DEGENERATE
        is_any = (np.abs(x) > STILL) | (np.abs(own * at.q) > STILL).any(axis=1)
        if (is_any & self._lasts(here.by_x, sums.rows, SPANS[len(states) - 2])).any():
            return DEGENERATE
        rates = np.linalg.eigvals(here.by_x)
        grows = bool(rates.real.max() > GROWS * np.abs(rates).max())
        return UNSTABLE if grows else own

    def _lasts(self, by_x: FloatArray, conserved: FloatArray, spans: float) -> BoolArray:
        """(n_x,) whether a little more of a state would have stayed for all this time."""
        none = np.zeros((len(conserved), len(by_x)))
        times = _solved(by_x, conserved, np.eye(len(by_x)), none)
        assert times is not None, "these equations have been solved before"
        return np.asarray(np.abs(np.diag(times)) > spans * self.duration)

    def _exact(self, states: FloatArray, conserved: FloatArray, at: _RestPoint) -> FloatArray | str:
        """The state at rest (n_x,) next to the last row; or why there is none."""
        x: FloatArray = states[-1].copy()
        last = np.inf
        for _ in range(ITERATIONS):
            here = self._slopes(x, at)
            step = _solved(here.by_x, conserved, -here.f, conserved @ (states[0] - x))
            if step is None:
                return DEGENERATE
            x = x + step
            size = float((np.abs(step) / np.maximum(np.abs(x), 1.0)).max())
            if size <= EXACT or last <= size <= ROUNDED:
                break
            last = size
        else:
            return DEGENERATE
        if not (np.abs(x - states[-1]) <= NEAR * np.maximum(np.abs(x), 1.0)).all():
            return DEGENERATE
        return x


def _is_still(before: FloatArray, after: FloatArray) -> bool:
    return bool((np.abs(after - before) <= STILL * np.maximum(np.abs(after), 1.0)).all())


class Repeats:
    """Finds switches that lead to known states. Nothing depends on time, so they never end.

    scale  (n_x,) how large states are
    """

    def __init__(self, scale: FloatArray) -> None:
        self._scale, self._known, self._count = scale, dict[bytes, list[FloatArray]](), 0

    def look(self, states: FloatArray, true: BoolArray) -> None:
        """Take the states after a switch, and which conditions on states hold there.

        raises  BrokenError if the last switches, one after the other, led to known states
        """
        known, here = self._known.setdefault(true.tobytes(), []), states / self._scale
        self._count = self._count + 1 if any(_is_still(before, here) for before in known) else 0
        known.append(here)
        if self._count >= ENOUGH:
            raise BrokenError(REPEATS)


def _solved(
    by_x: FloatArray, conserved: FloatArray, right: FloatArray, sums: FloatArray
) -> FloatArray | None:
    """What f_x and the conserved sums make of right sides; None if these are singular."""
    matrix = np.vstack([by_x, conserved])
    if not np.isfinite(matrix).all():
        return None
    weight = _inverse(np.abs(matrix).max(axis=1))
    matrix = matrix * weight[:, None]
    width = _inverse(np.abs(matrix).max(axis=0))
    both = (np.concatenate([right, sums]).T * weight).T
    factor, upper = np.linalg.qr(matrix * width)
    if linalg.lapack.dtrcon(upper)[0] > REGULAR:  # ten times as fast as singular values
        solution = linalg.solve_triangular(upper, factor.T @ both, check_finite=False)
        return np.asarray((solution.T * width).T)
    solution, _, rank, _ = np.linalg.lstsq(matrix * width, both, rcond=SINGULAR)
    return None if rank < len(width) else np.asarray((solution.T * width).T)


def _inverse(sizes: FloatArray) -> FloatArray:
    return np.asarray(1 / np.where(sizes > 0, sizes, 1.0))


def resting_of(
    integrator: Integrator,
    rest: InitialValueProblem,
    switched: Callable[[Any], Approach],
) -> Resting:
    """What finds the state at rest; experiments that rest alike share it.

    switched  what leads there, of intervals with switches
    """
    key = get_ident(), integrator  # intervals belong to one thread
    try:
        known: Resting | None = rest.kept.get(key)
    except TypeError:  # an integrator that may change until the next call
        return _made(integrator, rest, switched)
    if known is None:
        known = rest.kept[key] = _made(integrator, rest, switched)
    return known


def _made(
    integrator: Integrator,
    rest: InitialValueProblem,
    switched: Callable[[Any], Approach],
) -> Resting:
    ends: FloatArray = np.asarray(rest.t0 + rest.duration * SPANS, dtype=float)
    before = integrator.prepare(rest, np.array([rest.t0, ends[-1]]), ends)
    given = rest.switching
    is_smooth = given is None or given.is_timed or isinstance(before, Refused)
    return Resting(rest, (SmoothApproach if is_smooth else switched)(before))
