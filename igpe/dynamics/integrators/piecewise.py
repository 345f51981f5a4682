"""Integrators that take the augmented system over one piece after the other.

`Piecewise` does all that does not depend on the method: the variational equations, consistent
algebraic variables, inputs that jump, and the way from what was integrated to the results.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import (
    Augmented,
    Batched,
    Consistent,
    augmented,
    started_anywhere,
)
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Needed,
    Shots,
    Trajectory,
    needed,
    refused_implicit,
)
from igpe.dynamics.integrators.cut import Cut, Piece, cut
from igpe.dynamics.integrators.limits import NO_START
from igpe.dynamics.integrators.switched import switched
from igpe.equations.initial_value import InitialValueProblem


class Reached(NamedTuple):
    """The outputs of a piece that were reached.

    x, z   (n, n_x), (n, n_z), one row for each;  why: a sentence if these are not all
    steps  how many were taken, counted by what they cost
    """

    x: FloatArray
    z: FloatArray
    why: str
    steps: int = 0


Advance: TypeAlias = Callable[[float, Piece, FloatArray, FloatArray, FloatArray], Reached]
"""(deadline by `time.monotonic`, piece, x, z, p): integrates a piece from x, z with numbers p."""


@dataclass(frozen=True)
class Piecewise(Integrator):
    """Base of integrators that integrate the augmented system one piece and interval at a time.

    implicit  whether the integrator supports implicit algebraic variables
    """

    implicit = False

    @abstractmethod
    def advancing(self, ivp: InitialValueProblem, system: Augmented) -> Advance:
        """Return the function that integrates one piece of a system."""

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Split the intervals where inputs jump; code for each system is generated when it is first
        used."""
        if ivp.switching is not None:
            return switched(self, ivp, nodes, times)
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
    made: dict[tuple[bool, bool], "_System"] = field(default_factory=dict)
    _needed: list[Needed] = field(default_factory=list)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        if isinstance(here := self.cut.at(q), str):
            return self.nothing(None if derivatives else 0, here)
        system = self._system(free=True, derivatives=derivatives)
        if not self._needed:  # kept, as there are many between events
            self._needed.append(needed(self.ivp))
        some = self._needed[0]
        shots = self.nothing(len(self.ivp.states) + len(some.places) if derivatives else 0, "")
        runs, steps = [], np.zeros((len(starts), 2), dtype=np.intp)
        for k, start in enumerate(starts):
            rows = slice(*here.rows[k : k + 2])
            grid = np.union1d(here.times[rows], here.nodes[k + 1])
            run = system.run(here, k, grid, np.concatenate([start, np.asarray(q)[some.places]]))
            places = np.searchsorted(run.times, here.times[rows])
            shots.measured[rows], shots.states[rows] = run.measured[places], run.states[places]
            shots.measured_by[rows] = run.measured_by_unknown[places]
            shots.states_by[rows] = run.by_unknown[places]
            shots.ends[k], shots.ends_by[k] = run.states[-1], run.by_unknown[-1]
            runs.append(run)
            steps[k, 1] = run.steps
        status, reasons = tuple(r.status for r in runs), tuple(r.reason for r in runs)
        return some.wide(replace(shots, status=status, reason=reasons, steps=steps), len(q))

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """See `Intervals`; from a system whose only unknowns are those of the problem."""
        self.check_unknowns(q)
        here, system = self.cut.at(q), self._system(free=False, derivatives=derivatives)
        if isinstance(here, str):
            return system.run(self.cut, 0, self.cut.times, q, here)
        return system.run(here, 0, self.cut.times, q)

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        run = self.trajectory(q, derivatives=derivatives)
        ends, measured = (run.states[-1:], run.by_unknown[-1:]), run.measured
        numbers = (*ends, measured, run.measured_by_unknown, run.states, run.by_unknown)
        steps = np.array([[0, run.steps]])
        return Shots(*numbers, (run.status,), (run.reason,), steps)

    def _system(self, *, free: bool, derivatives: bool) -> "_System":
        if (free, derivatives) not in self.made:
            ivp = started_anywhere(needed(self.ivp).ivp) if free else self.ivp
            self.made[free, derivatives] = _System(self.method, ivp, derivatives=derivatives)
        return self.made[free, derivatives]


class _System:
    """A problem's augmented system, and what integrates a piece of it."""

    def __init__(self, method: Piecewise, ivp: InitialValueProblem, *, derivatives: bool) -> None:
        self.ivp, self.seconds = ivp, method.seconds
        self.system = augmented(ivp, sensitivities=derivatives)
        self.advance = method.advancing(ivp, self.system)
        self.consistent = Consistent(self.system, ivp)
        self._start, self._outputs = Batched(self.system.start), Batched(self.system.outputs)

    def run(
        self, pieces: Cut, k: int, grid: FloatArray, q: FloatArray, refused: str = ""
    ) -> Trajectory:
        """Integrate interval k as far as it goes, reporting at the times `grid`.

        refused  why it is not integrated at all
        """
        n, begin, parts = len(grid), float(pieces.nodes[k]), tuple(pieces.pieces(k, grid))
        numbers = np.concatenate([q, np.maximum(np.abs(q), self.ivp.unknown_scale)])
        x, z = (np.full((n, v.numel()), np.nan) for v in (self.system.x, self.system.z))
        inputs = np.tile(parts[0].inputs, (n, 1))
        for piece in parts:
            inputs[piece.rows] = piece.inputs
        is_start = bool(grid[0] <= begin)
        if is_start and k:  # at a jump what is measured sees the inputs before it
            inputs[0] = pieces.inputs[pieces.first[k] - 1]
        done, steps, why = 0, 0, refused
        if not refused:
            done, steps, why = self._fill(x, z, parts, numbers, is_start)
        rows = self._outputs(n, grid, x, z, np.hstack([np.tile(numbers, (n, 1)), inputs]))
        rows[done:] = np.nan  # also what depends on no state
        status = Status.INTEGRATION_BROKE if why else Status.CONVERGED
        reached = float(grid[done - 1]) if done else begin
        return Trajectory(grid, *self.system.split(rows), status, reached, why, steps)

    def _fill(
        self,
        xs: FloatArray,
        zs: FloatArray,
        parts: Sequence[Piece],
        numbers: FloatArray,
        is_start: bool,
    ) -> tuple[int, int, str]:
        """Fill the rows that are reached; return how many, the steps, and why there are no more.

        is_start  whether the first row is the start
        """
        deadline, done, steps = time.monotonic() + self.seconds, 0, 0
        x, z = self._start(1, *np.split(numbers, 2))[0], self.consistent.guess
        if not np.isfinite(x).all():
            return 0, 0, NO_START
        for piece in parts:
            divisor, n = np.ones(self.consistent.n_y), len(numbers) + len(piece.inputs)
            p = np.concatenate([numbers, piece.inputs, divisor, [piece.begin, piece.span]])
            start = self.consistent(x, z, p)
            if start is None:
                return done, steps, self.consistent.reason(piece.begin)
            if piece is parts[0] and is_start:
                xs[0], zs[0], done = x, start, 1
            if len(piece.outputs) == 0:  # nothing but the start is reported
                break
            p[n:-2] = self.consistent.rows(x, start, p)
            reached = self.advance(deadline, piece, x, start, p)
            rows = piece.rows[: len(reached.x)]
            xs[rows], zs[rows] = reached.x[: len(rows)], reached.z[: len(rows)]
            done, steps = done + len(rows), steps + reached.steps
            if reached.why:
                is_first = len(reached.x) == 0
                left = self.consistent.open_at(x, start, p, piece.begin) if is_first else ""
                return done, steps, reached.why + left
            x, z = reached.x[-1], reached.z[-1]
        return done, steps, ""
