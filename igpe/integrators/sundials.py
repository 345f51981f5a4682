"""CVODES and IDAS through CasADi, on the augmented system.

The horizon is cut where an input jumps; each piece has an integrator of its own, built once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.integrators.augmented import Augmented, augmented
from igpe.integrators.base import Trajectory
from igpe.integrators.consistent import Consistent
from igpe.status import Status


@dataclass(frozen=True)
class Sundials:
    """Variable-order BDF: CVODES for ordinary, IDAS for algebraic-differential equations.

    rtol, atol  local error tolerances, for states (in their units) and scaled sensitivities
    max_steps   steps allowed between two outputs; more is a break-down
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    max_steps: int = 20_000

    def prepare(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> "SundialsSimulation":
        """Generate the augmented system and an integrator for each piece of the horizon."""
        grid = np.asarray(times, dtype=float)
        system = augmented(ivp, sensitivities=sensitivities)
        edges = [ivp.t0, *ivp.breaks(float(grid[-1])), float(grid[-1])]
        pieces = [
            self._piece(ivp, system, begin, end, grid)
            for begin, end in pairwise(edges)
            if end > begin or len(edges) == 2  # noqa: PLR2004 - nothing but the start is asked for
        ]
        return SundialsSimulation(
            self, ivp, system, Consistent(system, ivp), grid, tuple(pieces), sensitivities
        )

    def _piece(
        self,
        ivp: InitialValueProblem,
        system: Augmented,
        begin: float,
        end: float,
        grid: FloatArray,
    ) -> "Piece":
        rows = np.flatnonzero((grid > begin) & (grid <= end))
        outputs = grid[rows] if end in grid[rows] else np.append(grid[rows], end)
        inputs = np.concatenate(ivp.input_segment(begin))
        return Piece(begin, outputs, rows, inputs, self.solver(system, begin, outputs))

    def solver(self, system: Augmented, begin: float, outputs: FloatArray) -> Any:
        """CasADi's integrator from `begin` to each of `outputs`."""
        dae = {"t": system.t, "x": system.x, "p": system.p, "ode": system.ode}
        options = {
            "abstol": self.atol,
            "reltol": self.rtol,
            "max_num_steps": self.max_steps,
            "show_eval_warnings": False,
            "disable_internal_warnings": True,
        }
        if system.z.numel() == 0:
            return ca.integrator("piece", "cvodes", dae, begin, list(outputs), options)
        dae |= {"z": system.z, "alg": system.alg}
        return ca.integrator("piece", "idas", dae, begin, list(outputs), options)


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
    solver: Any


@dataclass(frozen=True)
class SundialsSimulation:
    """A prepared initial value problem; see `igpe.integrators.base.Simulation`."""

    method: Sundials
    ivp: InitialValueProblem
    system: Augmented
    consistent: Consistent
    times: FloatArray
    pieces: tuple[Piece, ...]
    sensitivities: bool

    def run(self, q: FloatArray) -> Trajectory:
        """Integrate the pieces in turn, as far as they go."""
        scale = np.where(q == 0, 1.0, np.abs(q))
        numbers = np.concatenate([q, scale])
        x = np.asarray(self.system.start(q, scale)).ravel()
        z = self.consistent.guess
        xs = np.full((len(x), len(self.times)), np.nan)
        zs = np.full((len(z), len(self.times)), np.nan)
        inputs = np.zeros((2 * self.ivp.u.numel(), len(self.times)))
        at_start = np.flatnonzero(self.times <= self.ivp.t0)
        reached, complete = self.ivp.t0, True
        for piece in self.pieces:
            p = np.concatenate([numbers, piece.inputs])
            start = self.consistent(piece.begin, x, z, p)
            if start is None:
                complete = False
                break
            if piece is self.pieces[0]:
                xs[:, at_start], zs[:, at_start] = x[:, None], start[:, None]
                inputs[:, at_start] = piece.inputs[:, None]
            came_x, came_z = self._advance(piece, x, start, p)
            rows = piece.rows[: came_x.shape[1]]
            xs[:, rows], zs[:, rows] = came_x[:, : len(rows)], came_z[:, : len(rows)]
            inputs[:, rows] = piece.inputs[:, None]
            if came_x.shape[1]:
                reached = float(piece.outputs[came_x.shape[1] - 1])
                x, z = came_x[:, -1], came_z[:, -1]
            if came_x.shape[1] < len(piece.outputs):
                complete = False
                break
        status = Status.CONVERGED if complete else Status.INTEGRATION_BROKE
        return self._trajectory(xs, zs, np.vstack([_columns(numbers, xs), inputs]), status, reached)

    def _advance(
        self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The piece's outputs, one column each, as far as they could be reached."""
        try:
            return _outputs(piece.solver(x0=x, z0=z, p=p))
        except RuntimeError:
            return self._step_by_step(piece, x, z, p)

    def _step_by_step(
        self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Output after output, to learn how far the piece can be integrated."""
        xs, zs = np.zeros((len(x), 0)), np.zeros((len(z), 0))
        begin = piece.begin
        for k in range(len(piece.outputs)):
            try:
                solver = self.method.solver(self.system, begin, piece.outputs[k : k + 1])
                came_x, came_z = _outputs(solver(x0=x, z0=z, p=p))
            except RuntimeError:
                break
            if not np.isfinite(came_x).all():
                break
            xs, zs = np.hstack([xs, came_x]), np.hstack([zs, came_z])
            x, z, begin = came_x[:, 0], came_z[:, 0], float(piece.outputs[k])
        return xs, zs

    def _trajectory(
        self, xs: FloatArray, zs: FloatArray, p: FloatArray, status: Status, reached: float
    ) -> Trajectory:
        n, n_x, n_y = len(self.times), self.ivp.x.numel(), self.ivp.y.numel()
        n_q = self.ivp.q.numel() if self.sensitivities else 0
        n_h = self.ivp.measured.numel()
        measured, varied = (
            np.asarray(v) for v in self.system.measured(self.times[None], xs, zs, p)
        )
        scale = p[self.ivp.q.numel() : self.ivp.q.numel() + n_q, 0]
        return Trajectory(
            times=self.times,
            states=xs[:n_x].T,
            implicit=zs[:n_y].T,
            measured=measured.T,
            by_unknown=_sensitivities(xs[n_x:], (n, n_x, n_q), scale),
            measured_by_unknown=_sensitivities(varied, (n, n_h, n_q), scale),
            status=status,
            reached=reached,
        )


def _outputs(answer: Any) -> tuple[FloatArray, FloatArray]:
    return np.asarray(answer["xf"]), np.asarray(answer["zf"])


def _columns(numbers: FloatArray, like: FloatArray) -> FloatArray:
    return np.repeat(numbers[:, None], like.shape[1], axis=1)


def _sensitivities(
    columns: FloatArray, shape: tuple[int, int, int], scale: FloatArray
) -> FloatArray:
    """(n_times, n, n_unknowns) from CasADi's column-major vec, with the scaling taken back."""
    n, rows, n_q = shape
    return columns.T.reshape(n, n_q, rows).transpose(0, 2, 1) / scale
