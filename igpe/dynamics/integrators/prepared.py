"""An initial value problem made ready: its augmented system, its times, its pieces.

What integrators that advance piece after piece have in common: the loop, and the way from what they
integrated to what they tell.

Consistent algebraic variables at the start of an integration.

The values y solve 0 = g(t, x, y) inside the model's bounds, by Newton's method from the last known
values, then from places inside the bounds, then from a few plain guesses; their sensitivities Y
follow from one linear system. All in the units without dimension of `Augmented`.

The horizon in pieces, on which nothing jumps.

It is cut where an input jumps, where a pulse of time begins, and where the distances of the outputs
are too different; each piece runs in a time of its own from 0 to 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, augmented
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, at
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.time.timed import Stops

CLOSEST = 1e-6  # outputs closer than this fraction of a piece begin a new one


@dataclass(frozen=True)
class Piece:
    """A stretch without jumps.

    begin    where it starts;  outputs (n_out,) where it reports, the last is its end
    rows     (n_rows,) rows of the result that the first n_rows outputs fill
    inputs   (2 n_u,) a and b of u = a + b t
    """

    begin: float
    outputs: FloatArray
    rows: IntArray
    inputs: FloatArray

    @property
    def span(self) -> float:
        """How long it is."""
        return float(self.outputs[-1]) - self.begin if len(self.outputs) else 0.0

    @property
    def places(self) -> FloatArray:
        """The outputs in the piece's own time, from 0 to 1."""
        return (self.outputs - self.begin) / self.span if len(self.outputs) else self.outputs

    def parts(self, first: int = 0) -> list["Piece"]:
        """Each output from the `first` as a piece."""
        begins = [self.begin, *self.outputs[:-1]]
        return [
            Piece(float(begins[k]), self.outputs[k : k + 1], self.rows[k : k + 1], self.inputs)
            for k in range(first, len(self.outputs))
        ]


def pieces_of(
    ivp: InitialValueProblem, times: FloatArray, stops: Iterable[float] = ()
) -> tuple[Piece, ...]:
    """The pieces from the problem's start to the last of `times`; at least one.

    stops  times at which pieces end besides
    """
    last = float(times[-1])
    inside = {*ivp.breaks(last), *(t for t in stops if ivp.t0 < t < last)}
    edges = [ivp.t0, *sorted(inside), last]
    return tuple(p for begin, end in pairwise(edges) for p in _between(ivp, begin, end, times))


def _between(ivp: InitialValueProblem, begin: float, end: float, grid: FloatArray) -> list[Piece]:
    """A stretch between jumps, cut so that no outputs are closer than `CLOSEST` of a piece."""
    inputs = np.concatenate(ivp.input_segment(begin))
    if end <= begin:
        return [Piece(begin, np.zeros(0), np.zeros(0, dtype=np.intp), inputs)]
    inside = grid[(grid > begin) & (grid <= end)]
    outputs = np.union1d(inside, [end])
    pieces = []
    for group in _groups(begin, outputs):
        rows = np.flatnonzero((grid > begin) & (grid <= group[-1]))
        pieces.append(Piece(begin, group, rows, inputs))
        begin = float(group[-1])
    return pieces


def _groups(begin: float, outputs: FloatArray) -> list[FloatArray]:
    groups: list[list[float]] = [[]]
    last, closest = begin, np.inf
    for time in outputs:
        gap = min(closest, float(time - last))
        if groups[-1] and gap < CLOSEST * (time - begin):
            groups.append([])
            begin, gap = last, float(time - last)
        groups[-1].append(float(time))
        last, closest = float(time), gap
    return [np.array(group) for group in groups]


PLAIN_GUESSES = (1.0, 1e-2, 1e2, 0.0, -1.0)
SHARES = (0.5, 0.9, 0.1, 0.99, 0.01)  # of the way from the lower to the upper bound
TOLERANCE = 1e-10  # last step of a variable, relative to its size
SLACK = 1e-6  # how far beyond a bound a root may lie, relative to its size
ITERATIONS, HALVINGS = 100, 12


class Consistent:
    """Solves the algebraic part of an augmented system."""

    def __init__(self, system: Augmented, ivp: InitialValueProblem) -> None:
        self.n_y = ivp.y.numel()
        self.guess: FloatArray = np.zeros(system.z.numel())
        if self.n_y == 0:
            return
        self.guess[: self.n_y] = ivp.guess / ivp.implicit_scale
        self.lower, self.upper = ivp.lower / ivp.implicit_scale, ivp.upper / ivp.implicit_scale
        self._starts = [self.guess[: self.n_y], *self._inside(ivp.implicit_scale)]
        known = ca.vertcat(system.tau, system.x, system.p)
        y, y_s = system.z[: self.n_y], system.z[self.n_y :]
        g, varied = system.alg[: self.n_y], system.alg[self.n_y :]
        self._g: Any = ca.Function("g", [y, known], [g, ca.jacobian(g, y)])
        if y_s.numel() == 0:
            return
        linear = ca.substitute(varied, y_s, ca.SX.zeros(y_s.numel()))
        self._linear: Any = ca.Function(
            "linear", [system.z, known], [ca.jacobian(varied, y_s), linear]
        )

    def __call__(self, x: FloatArray, z: FloatArray, p: FloatArray) -> FloatArray | None:
        """(n_z,) consistent values near z where a piece begins, or None if none were found."""
        if self.n_y == 0:
            return z
        known = np.concatenate([[0.0], x, p])
        for guess in (z[: self.n_y], *self._starts):
            y = self._newton(guess, known)
            if y is not None and self._allowed(y):
                return self._with_sensitivities(y, len(z), known)
        return None

    def rows(self, x: FloatArray, z: FloatArray, p: FloatArray) -> FloatArray:
        """(n_y,) largest slope of each equation at z, so that divided by it none is tiny."""
        if self.n_y == 0:
            return np.zeros(0)
        _, slope = self._evaluate(z[: self.n_y], np.concatenate([[0.0], x, p]))
        largest = np.max(np.abs(slope), axis=1)
        return np.where(largest > 0, largest, 1.0)

    def _inside(self, scale: FloatArray) -> list[FloatArray]:
        """Places inside the bounds; a variable without both bounds takes the plain guesses."""
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        lower, width = np.where(both, self.lower, 0.0), np.zeros(self.n_y)
        width[both] = self.upper[both] - self.lower[both]
        plain = [np.full(self.n_y, v) for v in PLAIN_GUESSES]
        plain += [guess / scale for guess in plain if (scale != 1).any()]
        spread = zip(SHARES, plain, strict=False)
        places = [np.where(both, lower + share * width, guess) for share, guess in spread]
        return [np.clip(guess, self.lower, self.upper) for guess in [*places, *plain]]

    def _allowed(self, y: FloatArray) -> bool:
        slack = SLACK * np.maximum(1.0, np.abs(y))
        return bool((y >= self.lower - slack).all() and (y <= self.upper + slack).all())

    def _newton(self, y: FloatArray, known: FloatArray) -> FloatArray | None:
        """A root of g near y, by damped Newton steps; None if it is not reached."""
        g, slope = self._evaluate(y, known)
        for _ in range(ITERATIONS):
            if not (np.isfinite(g).all() and np.isfinite(slope).all()):
                return None
            if not g.any():
                return y
            rows = np.max(np.abs(slope), axis=1)
            if not rows.all():
                return None
            step = np.linalg.lstsq(slope / rows[:, None], -g / rows, rcond=None)[0]
            if (np.abs(step) <= TOLERANCE * np.maximum(1.0, np.abs(y))).all():
                solved = np.abs((slope @ step + g) / rows).max() <= TOLERANCE
                return y + step if solved else None
            size = np.linalg.norm(g / rows)
            for k in range(HALVINGS):
                trial = y + step / 2**k
                g, slope = self._evaluate(trial, known)
                if np.linalg.norm(g / rows) < size:
                    break
            else:
                return None
            y = trial
        return None

    def _evaluate(self, y: FloatArray, known: FloatArray) -> tuple[FloatArray, FloatArray]:
        g, slope = self._g(y, known)
        return np.asarray(g).ravel(), np.asarray(slope)

    def _with_sensitivities(self, y: FloatArray, size: int, known: FloatArray) -> FloatArray | None:
        z = np.concatenate([y, np.zeros(size - self.n_y)])
        if size > self.n_y:
            matrix, constant = (np.asarray(v) for v in self._linear(z, known))
            if not (np.isfinite(matrix).all() and np.isfinite(constant).all()):
                return None
            z[self.n_y :] = np.linalg.lstsq(matrix, -constant.ravel(), rcond=None)[0]
        return z


class Came(NamedTuple):
    """The outputs of a piece that were reached.

    x, z  (n, n_x), (n, n_z), one row for each;  why: a sentence if these are not all
    """

    x: FloatArray
    z: FloatArray
    why: str


class Advance(Protocol):
    """Integrates one piece from x, z; p are the augmented system's numbers on it."""

    def __call__(self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray) -> Came: ...


@dataclass(frozen=True)
class Prepared:
    """A problem with its equations generated, and the times (n_times,) it is to report."""

    ivp: InitialValueProblem
    system: Augmented
    consistent: Consistent
    times: FloatArray
    pieces: tuple[Piece, ...]
    stops: Stops

    def until(self, last: float) -> "Prepared":
        """The same equations for the times up to `last`."""
        times = self.times[self.times <= last]
        if len(times) == 0:
            raise ValueError(f"No time is reported up to {last:g}; the first is {self.times[0]:g}.")
        return replace(self, times=times, pieces=pieces_of(self.ivp, times, self.stops.known))

    def at(self, q: FloatArray) -> "Prepared | None":
        """The same with the pieces that the unknowns q make; None if these are too many."""
        if not self.stops.moving:
            return self
        stops = self.stops.at(q)
        if stops is None:
            return None
        return replace(self, pieces=pieces_of(self.ivp, self.times, stops))

    def run(self, q: FloatArray, advance: Advance) -> Trajectory:
        """Integrate piece after piece, as far as they go."""
        numbers = self._numbers(q)
        if (here := self.at(q)) is None:
            return _Course(self, numbers).told(TOO_MANY)
        return here._along(numbers, advance)

    def _along(self, numbers: FloatArray, advance: Advance) -> Trajectory:
        x, z = self._start(numbers), self.consistent.guess
        course = _Course(self, numbers)
        if not np.isfinite(x).all():
            return course.told(NO_START)
        for piece in self.pieces:
            p = self._on(piece, numbers)
            start = self.consistent(x, z, p)
            if start is None:
                return course.told(f"No consistent algebraic variables {at(piece.begin)}.")
            if piece is self.pieces[0]:
                course.start(x, start)
            if len(piece.outputs) == 0:  # nothing but the start is asked for
                break
            p[len(numbers) + len(piece.inputs) : -2] = self.consistent.rows(x, start, p)
            came = advance(piece, x, start, p)
            course.add(piece, came)
            if came.why:
                return course.told(came.why)
            x, z = came.x[-1], came.z[-1]
        return course.told("")

    @property
    def n_states(self) -> int:
        """How many differential variables there are without sensitivities."""
        return self.system.layout.states

    def _start(self, numbers: FloatArray) -> FloatArray:
        """(n_x,) the differential variables at the start."""
        n_q, x = len(numbers) // 2, np.empty(self.system.x.numel())
        self._started.read(0, numbers[:n_q])
        self._started.read(1, numbers[n_q:])
        self._started.write(0, x)
        self._started.evaluate()
        return x

    def _numbers(self, q: FloatArray) -> FloatArray:
        """(2 n_q,) q and the scale of its sensitivities."""
        if q.shape != (len(self.ivp.unknowns),):
            raise ValueError(f"Expected one number for each of {self.ivp.unknowns}, got {q}.")
        return np.concatenate([q, np.maximum(np.abs(q), self.ivp.unknown_scale)])

    def _on(self, piece: Piece, numbers: FloatArray) -> FloatArray:
        """The augmented system's p on a piece, its equations not divided by anything."""
        divisor = np.ones(self.system.layout.implicit)
        return np.concatenate([numbers, piece.inputs, divisor, [piece.begin, piece.span]])

    @cached_property
    def _started(self) -> InPlace:
        return InPlace(self.system.start)

    @cached_property
    def _told(self) -> InPlace:
        """All rows at once."""
        return InPlace(self.system.told.map(len(self.times)))

    @cached_property
    def _inputs(self) -> FloatArray:
        """(n_times, 2 n_u): coefficients of the inputs at each time."""
        found = np.tile(self.pieces[0].inputs, (len(self.times), 1))
        for piece in self.pieces:
            found[piece.rows] = piece.inputs
        return found


class _Course:
    """What was reached so far."""

    def __init__(self, prepared: Prepared, numbers: FloatArray) -> None:
        self.prepared, self.numbers = prepared, numbers
        n, system = len(prepared.times), prepared.system
        self.x = np.full((n, system.x.numel()), np.nan)
        self.z = np.full((n, system.z.numel()), np.nan)
        self.done = 0  # rows that are reached; they are filled in their order

    def start(self, x: FloatArray, z: FloatArray) -> None:
        """The start, if it is among the times."""
        if self.prepared.times[0] <= self.prepared.ivp.t0:
            self.x[0], self.z[0], self.done = x, z, 1

    def add(self, piece: Piece, came: Came) -> None:
        """What came of a piece."""
        rows = piece.rows[: len(came.x)]
        self.x[rows], self.z[rows] = came.x[: len(rows)], came.z[: len(rows)]
        self.done += len(rows)

    def told(self, why: str) -> Trajectory:
        """All that was reached, in the model's units."""
        ours, done = self.prepared, self.done
        n, layout = len(ours.times), ours.system.layout
        rows = np.empty((n, layout.width))
        known = np.empty((n, len(self.numbers) + ours._inputs.shape[1]))
        known[:, : len(self.numbers)], known[:, len(self.numbers) :] = self.numbers, ours._inputs
        for i, given in enumerate((ours.times, self.x, self.z, known)):
            ours._told.read(i, given)
        ours._told.write(0, rows)
        ours._told.evaluate()
        rows[done:] = np.nan  # also what depends on no state
        reached = float(ours.times[done - 1]) if done else ours.ivp.t0
        status = Status.INTEGRATION_BROKE if why else Status.CONVERGED
        return layout.trajectory(ours.times, rows, status, reached, why)


def prepared(
    ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
) -> Prepared:
    """Generate the augmented system and cut the horizon into pieces."""
    grid = np.array(times, dtype=float)
    system = augmented(ivp, sensitivities=sensitivities)
    stops = ivp.stops(float(grid[-1]))
    pieces = pieces_of(ivp, grid, stops.known)
    return Prepared(ivp, system, Consistent(system, ivp), grid, pieces, stops)
