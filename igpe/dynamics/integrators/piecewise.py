"""Integrators that take the augmented system over one piece after the other.

`Piecewise` does all that does not depend on the method: the variational equations, consistent
algebraic variables, inputs that jump, and the way from what was integrated to the results.

Consistent algebraic variables y solve 0 = g(t, x, y) inside the model's bounds, by Newton's method
from the last known values, then from places inside the bounds, then from a few plain guesses; their
sensitivities Y follow from one linear system. All in the units without dimension of `Augmented`.
"""

import time
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, augmented, started_anywhere
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Shots,
    Trajectory,
    needed,
    refused_implicit,
)
from igpe.dynamics.integrators.cut import Cut, Piece, cut
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, at
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem

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


class Reached(NamedTuple):
    """The outputs of a piece that were reached.

    x, z  (n, n_x), (n, n_z), one row for each;  why: a sentence if these are not all
    """

    x: FloatArray
    z: FloatArray
    why: str


class Advance(Protocol):
    """Integrates one piece from x, z; p are the augmented system's numbers on it.

    deadline  by `time.monotonic`, at which the run must end
    """

    def __call__(
        self, deadline: float, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> Reached: ...


@dataclass(frozen=True)
class Piecewise(Integrator):
    """An integrator of the augmented system, piece after piece and interval after interval.

    implicit  whether it integrates equations with implicit algebraic variables
    """

    implicit = False

    @abstractmethod
    def advancing(self, ivp: InitialValueProblem, system: Augmented) -> Advance:
        """Return the function that integrates one piece of a system."""

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Cut the intervals where inputs jump; systems are generated as they are used."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel() and not self.implicit:
            return refused_implicit(self, ivp, pieces)
        return PiecewiseIntervals(ivp, pieces, self)


@dataclass(frozen=True)
class PiecewiseIntervals(Intervals):
    """See `Intervals`; an interval is an initial value problem whose start is unknown.

    made  its generated systems, by whether the start is unknown and whether there are derivatives
    """

    method: Piecewise
    made: dict[tuple[bool, bool], "_Generated"] = field(default_factory=dict)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        if (here := self.cut.at(q)) is None:
            return self.nothing(None if derivatives else 0, TOO_MANY)
        some, n_x = needed(self.ivp), len(self.ivp.states)
        system = self._system(free=True, derivatives=derivatives)
        found = self.nothing(n_x + len(some.places) if derivatives else 0, "")
        runs = []
        for k, start in enumerate(starts):
            rows = slice(*here.rows[k : k + 2])
            grid = np.union1d(here.times[rows], here.nodes[k + 1])
            run = system.run(here, k, grid, np.concatenate([start, np.asarray(q)[some.places]]))
            self._fill(found, k, rows, run)
            runs.append(run)
        reasons = tuple(run.reason for run in runs)
        found = replace(found, status=tuple(r.status for r in runs), reason=reasons)
        return some.wide(found, len(q))

    def _fill(self, found: Shots, k: int, rows: slice, run: Trajectory) -> None:
        at_times = np.searchsorted(run.times, self.cut.times[rows])
        found.measured[rows], found.states[rows] = run.measured[at_times], run.states[at_times]
        found.measured_by[rows] = run.measured_by_unknown[at_times]
        found.states_by[rows] = run.by_unknown[at_times]
        found.ends[k], found.ends_by[k] = run.states[-1], run.by_unknown[-1]

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """See `Intervals`; from a system whose only unknowns are those of the problem."""
        system, grid = self._system(free=False, derivatives=derivatives), self.cut.times
        system.check(q)
        here = self.cut.at(q)
        if here is None:
            return _Course(system, self.cut, 0, grid, system.numbers(q)).ended(TOO_MANY)
        return system.run(here, 0, grid, q)

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        found = self.trajectory(q, derivatives=derivatives)
        return Shots(
            found.states[-1:],
            found.by_unknown[-1:],
            found.measured,
            found.measured_by_unknown,
            found.states,
            found.by_unknown,
            (found.status,),
            (found.reason,),
        )

    def _system(self, *, free: bool, derivatives: bool) -> "_Generated":
        key = (free, derivatives)
        if key not in self.made:
            ivp = started_anywhere(needed(self.ivp).ivp) if free else self.ivp
            system = augmented(ivp, sensitivities=derivatives)
            advance = self.method.advancing(ivp, system)
            self.made[key] = _Generated(ivp, system, advance, self.method.seconds)
        return self.made[key]


@dataclass(frozen=True)
class _Generated:
    """A problem's augmented system, and what integrates a piece of it."""

    ivp: InitialValueProblem
    system: Augmented
    advance: Advance
    seconds: float
    _outputs: dict[int, InPlace] = field(default_factory=dict)

    def run(self, pieces: Cut, k: int, grid: FloatArray, q: FloatArray) -> Trajectory:
        """Integrate interval k as far as it goes, reporting at the times `grid`."""
        deadline = time.monotonic() + self.seconds
        numbers = self.numbers(q)
        x, z = self._start(numbers), self.consistent.guess
        course = _Course(self, pieces, k, grid, numbers)
        if not np.isfinite(x).all():
            return course.ended(NO_START)
        for piece in course.pieces:
            p = self._on(piece, numbers)
            start = self.consistent(x, z, p)
            if start is None:
                return course.ended(f"No consistent algebraic variables {at(piece.begin)}.")
            if piece is course.pieces[0]:
                course.start(x, start)
            if len(piece.outputs) == 0:  # nothing but the start is reported
                break
            p[len(numbers) + len(piece.inputs) : -2] = self.consistent.rows(x, start, p)
            reached = self.advance(deadline, piece, x, start, p)
            course.add(piece, reached)
            if reached.why:
                return course.ended(reached.why)
            x, z = reached.x[-1], reached.z[-1]
        return course.ended("")

    def check(self, q: FloatArray) -> None:
        """Raise ValueError unless there is one number for each unknown."""
        if np.shape(q) != (len(self.ivp.unknowns),):
            raise ValueError(f"Expected one number for each of {self.ivp.unknowns}, got {q}.")

    def numbers(self, q: FloatArray) -> FloatArray:
        """(2 n_q,) q and the scale of its sensitivities."""
        return np.concatenate([q, np.maximum(np.abs(q), self.ivp.unknown_scale)])

    def outputs(self, count: int) -> InPlace:
        """The rows of so many times at once."""
        if count not in self._outputs:
            self._outputs[count] = InPlace(self.system.outputs.map(count))
        return self._outputs[count]

    def _start(self, numbers: FloatArray) -> FloatArray:
        """(n_x,) the differential variables at the start."""
        n_q, x = len(numbers) // 2, np.empty(self.system.x.numel())
        self._started.read(0, numbers[:n_q])
        self._started.read(1, numbers[n_q:])
        self._started.write(0, x)
        self._started.evaluate()
        return x

    def _on(self, piece: Piece, numbers: FloatArray) -> FloatArray:
        """The augmented system's p on a piece, its equations not divided by anything."""
        divisor = np.ones(self.system.layout.implicit)
        return np.concatenate([numbers, piece.inputs, divisor, [piece.begin, piece.span]])

    @cached_property
    def consistent(self) -> Consistent:
        """What finds algebraic variables at the start of a piece."""
        return Consistent(self.system, self.ivp)

    @cached_property
    def _started(self) -> InPlace:
        return InPlace(self.system.start)


class _Course:
    """What was reached so far of one interval."""

    def __init__(
        self, made: _Generated, pieces: Cut, k: int, grid: FloatArray, numbers: FloatArray
    ) -> None:
        self.made, self.grid, self.numbers = made, grid, numbers
        self.begin, self.pieces = float(pieces.nodes[k]), tuple(pieces.pieces(k, grid))
        self.inputs = np.tile(self.pieces[0].inputs, (len(grid), 1))
        self.x = np.full((len(grid), made.system.x.numel()), np.nan)
        self.z = np.full((len(grid), made.system.z.numel()), np.nan)
        self.done = 0  # rows that are reached; they are filled in their order
        for piece in self.pieces:
            self.inputs[piece.rows] = piece.inputs

    def start(self, x: FloatArray, z: FloatArray) -> None:
        """The start, if it is among the times."""
        if self.grid[0] <= self.begin:
            self.x[0], self.z[0], self.done = x, z, 1

    def add(self, piece: Piece, reached: Reached) -> None:
        """The outputs of a piece."""
        rows = piece.rows[: len(reached.x)]
        self.x[rows], self.z[rows] = reached.x[: len(rows)], reached.z[: len(rows)]
        self.done += len(rows)

    def ended(self, why: str) -> Trajectory:
        """All that was reached, in the model's units."""
        n, done, layout = len(self.grid), self.done, self.made.system.layout
        rows = np.empty((n, layout.width))
        known = np.hstack([np.tile(self.numbers, (n, 1)), self.inputs])
        function = self.made.outputs(n)
        for i, given in enumerate((self.grid, self.x, self.z, known)):
            function.read(i, given)
        function.write(0, rows)
        function.evaluate()
        rows[done:] = np.nan  # also what depends on no state
        reached = float(self.grid[done - 1]) if done else self.begin
        status = Status.INTEGRATION_BROKE if why else Status.CONVERGED
        return layout.trajectory(self.grid, rows, status, reached, why)
