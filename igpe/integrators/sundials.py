"""CVODES and IDAS through CasADi, on the augmented system.

The horizon is cut where an input jumps, and where the distances of the outputs are too different;
each piece runs in a time of its own from 0 to 1, and pieces alike share an integrator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
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

CLOSEST = 1e-6  # outputs closer than this fraction of a piece begin a new one


@dataclass(frozen=True)
class Sundials:
    """Variable-order BDF: CVODES for ordinary, IDAS for algebraic-differential equations.

    rtol       local error tolerance relative to the present value
    atol       the same relative to the size of each state (`InitialValueProblem.scale`), for
               states, algebraic variables and scaled sensitivities
    max_steps  steps allowed between two outputs; more is a break-down
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    max_steps: int = 20_000

    def prepare(
        self, ivp: InitialValueProblem, times: Sequence[float] | FloatArray, *, sensitivities: bool
    ) -> "SundialsSimulation":
        """Generate the augmented system and cut the horizon into pieces."""
        grid = np.asarray(times, dtype=float)
        system = augmented(ivp, sensitivities=sensitivities)
        last = float(grid[-1])
        edges = [ivp.t0, *ivp.breaks(last), last]
        pieces = [
            piece for begin, end in pairwise(edges) for piece in _pieces(ivp, begin, end, grid)
        ]
        solvers = Solvers(self, system)
        return SundialsSimulation(
            ivp, system, solvers, Consistent(system, ivp), grid, tuple(pieces), sensitivities
        )


@dataclass(frozen=True)
class Solvers:
    """CasADi's integrators of one system, by the places (from 0 to 1) where they report."""

    method: Sundials
    system: Augmented
    made: dict[tuple[float, ...], Any] = field(default_factory=dict)

    def __call__(self, places: FloatArray) -> Any:
        key = tuple(float(v) for v in places)
        if key not in self.made:
            self.made[key] = self._make(list(key))
        return self.made[key]

    def _make(self, places: list[float]) -> Any:
        system = self.system
        dae = {"t": system.tau, "x": system.x, "p": system.p, "ode": system.ode}
        options = {
            "abstol": self.method.atol,
            "reltol": self.method.rtol,
            "max_num_steps": self.method.max_steps,
            "show_eval_warnings": False,
            "disable_internal_warnings": True,
        }
        if system.z.numel() == 0:
            return ca.integrator("piece", "cvodes", dae, 0.0, places, options)
        dae |= {"z": system.z, "alg": system.alg}
        return ca.integrator("piece", "idas", dae, 0.0, places, options)


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
        return float(self.outputs[-1]) - self.begin if len(self.outputs) else 0.0

    @property
    def places(self) -> FloatArray:
        """The outputs in the piece's own time, from 0 to 1."""
        return (self.outputs - self.begin) / self.span

    def parts(self) -> list["Piece"]:
        """Each output as a piece."""
        begins = [self.begin, *self.outputs[:-1]]
        return [
            Piece(float(b), self.outputs[k : k + 1], self.rows[k : k + 1], self.inputs)
            for k, b in enumerate(begins)
        ]


@dataclass(frozen=True)
class SundialsSimulation:
    """A prepared initial value problem; see `igpe.integrators.base.Simulation`."""

    ivp: InitialValueProblem
    system: Augmented
    solvers: Solvers
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
            p = self._numbers(numbers, piece)
            start = self.consistent(x, z, p)
            if start is None:
                complete = False
                break
            p = self._numbers(numbers, piece, self.consistent.rows(x, start, p))
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

    def _numbers(
        self, numbers: FloatArray, piece: Piece, rows: FloatArray | None = None
    ) -> FloatArray:
        """The augmented system's p on a piece; its equations are divided by `rows`, if given."""
        divisor = np.ones(self.ivp.y.numel()) if rows is None else rows
        return np.concatenate([numbers, piece.inputs, divisor, [piece.begin, piece.span]])

    def _advance(
        self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The piece's outputs, one column each, as far as they could be reached."""
        if len(piece.outputs) == 0:  # nothing but the start is asked for
            return np.zeros((len(x), 0)), np.zeros((len(z), 0))
        try:
            return _outputs(self.solvers(piece.places)(x0=x, z0=z, p=p))
        except RuntimeError:
            return self._step_by_step(piece, x, z, p)

    def _step_by_step(
        self, piece: Piece, x: FloatArray, z: FloatArray, p: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Output after output, to learn how far the piece can be integrated."""
        xs, zs = np.zeros((len(x), 0)), np.zeros((len(z), 0))
        for part in piece.parts():
            here = np.concatenate([p[:-2], [part.begin, part.span]])
            try:
                came_x, came_z = _outputs(self.solvers(part.places)(x0=x, z0=z, p=here))
            except RuntimeError:
                break
            if not np.isfinite(came_x).all():
                break
            xs, zs = np.hstack([xs, came_x]), np.hstack([zs, came_z])
            x, z = came_x[:, 0], came_z[:, 0]
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
        by_unknown = _sensitivities(xs[n_x:], (n, n_x, n_q), scale) * self.ivp.scale[:, None]
        return Trajectory(
            times=self.times,
            states=xs[:n_x].T * self.ivp.scale,
            implicit=zs[:n_y].T * self.ivp.implicit_scale,
            measured=measured.T,
            by_unknown=by_unknown,
            measured_by_unknown=_sensitivities(varied, (n, n_h, n_q), scale),
            status=status,
            reached=reached,
        )


def _pieces(ivp: InitialValueProblem, begin: float, end: float, grid: FloatArray) -> list[Piece]:
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
