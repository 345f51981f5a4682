"""All intervals side by side in NumPy: what integrates them where there is no C compiler."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, augmented
from igpe.dynamics.integrators.batch.lock_step_course import Course, Slope
from igpe.dynamics.integrators.cut import Cut, cut
from igpe.dynamics.integrators.intervals import Intervals, Shots, started_anywhere
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY
from igpe.dynamics.integrators.method import Tolerances
from igpe.dynamics.integrators.no_shots import NoShots, check_shapes, implicit_sentence
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class LockStep(Tolerances):
    """Dormand and Prince's explicit pair in NumPy, each interval with steps of its own length.

    For equations that are not stiff, without implicit algebraic variables; a stiff interval breaks
    down. Slopes of all intervals are one call of CasADi. The meaning of the fields is that of
    `RungeKutta`.
    """

    def prepare_intervals(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> "LockStepIntervals | NoShots":
        """Generate the augmented system, cut the intervals where inputs jump."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return NoShots(ivp, pieces, implicit_sentence("LockStep", ivp))
        return LockStepIntervals(ivp, pieces, self)


@dataclass(frozen=True)
class LockStepIntervals(Intervals):
    """See `igpe.dynamics.integrators.intervals.Intervals`."""

    ivp: InitialValueProblem
    cut: Cut
    method: LockStep

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        check_shapes(self.ivp, self.cut, starts, q)
        if self.cut.at(q) is None:
            return NoShots(self.ivp, self.cut, TOO_MANY).run(starts, q, derivatives=derivatives)
        side = self._with_derivatives if derivatives else self._without
        with np.errstate(all="ignore"):  # what is no number is found and told
            return side.run(np.asarray(starts, dtype=float), np.asarray(q, dtype=float))

    @cached_property
    def _with_derivatives(self) -> "_Side":
        return _Side(self, augmented(started_anywhere(self.ivp), sensitivities=True))

    @cached_property
    def _without(self) -> "_Side":
        return _Side(self, augmented(started_anywhere(self.ivp), sensitivities=False))


class _Side:
    """The intervals with derivatives, or those without."""

    def __init__(self, made: LockStepIntervals, system: Augmented) -> None:
        self.made, self.system = made, system
        self.slope = Slope(system)
        self.told = InPlace(system.told.map(len(made.cut.times) + made.cut.intervals))

    def run(self, starts: FloatArray, q: FloatArray) -> Shots:
        """Integrate round after round: the first pieces of all intervals, the second ones, ..."""
        pieces, size = self.made.cut.at(q) or self.made.cut, self.made.ivp.scale
        known, x = self._known(starts, q), self._begin(starts / size)
        outputs = np.full((len(pieces.times), x.shape[1]), np.nan)
        outputs[pieces.at_starts] = x[self._owner[pieces.at_starts]]
        reasons = ["" if np.isfinite(row).all() else NO_START for row in x]
        course = Course(self.made.method, self.made.ivp, outputs, reasons)
        for round_ in pieces.rounds:
            course.advance(round_, known, x, self.slope)
        return self._shots(pieces, known, x, outputs, reasons)

    def _known(self, starts: FloatArray, q: FloatArray) -> FloatArray:
        """(K, 2 (n_x + n_q)) the augmented system's unknowns [start, q] and their sizes."""
        ivp = self.made.ivp
        scale = np.concatenate([ivp.scale, np.maximum(np.abs(q), ivp.unknown_scale)])
        shared = np.tile(np.concatenate([q, scale]), (len(starts), 1))
        return np.concatenate([starts, shared], axis=1)

    def _begin(self, x: FloatArray) -> FloatArray:
        """(K, N) starts, divided by their sizes, and unit derivatives column by column."""
        n_k, n_x = x.shape
        wide = np.zeros((n_k, self.system.x.numel()))
        wide[:, :n_x] = x
        if self.system.layout.unknowns:
            wide[:, n_x : n_x + n_x * n_x] = np.eye(n_x).ravel()
        return wide

    def _shots(
        self,
        pieces: Cut,
        known: FloatArray,
        x: FloatArray,
        outputs: FloatArray,
        reasons: list[str],
    ) -> Shots:
        """What is told at the times and at the ends, in the model's units; NaN where it broke."""
        layout = self.system.layout
        n_t, n_s = len(pieces.times), min(layout.states, layout.unknowns)
        ends = np.arange(pieces.intervals)
        inputs = np.concatenate([pieces.row_inputs, pieces.inputs[pieces.first[1:] - 1]])
        owner = np.concatenate([self._owner, ends])
        rows = np.empty((len(owner), layout.width))
        given = np.concatenate([pieces.times, pieces.nodes[1:]]), np.concatenate([outputs, x])
        for i, array in enumerate(given):
            self.told.read(i, array)
        self.told.read(2, np.zeros(0))
        self.told.read(3, np.concatenate([known[owner], inputs], axis=1))
        self.told.write(0, rows)
        self.told.evaluate()
        broken = np.array([bool(r) for r in reasons])
        rows[broken[owner]] = np.nan
        told = layout.trajectory(given[0], rows, Status.CONVERGED, float(given[0][-1]), "")
        by, measured_by = told.by_unknown[n_t:], told.measured_by_unknown[:n_t]
        return Shots(
            told.states[n_t:],
            by[:, :, :n_s],
            by[:, :, n_s:],
            told.measured[:n_t],
            measured_by[:, :, :n_s],
            measured_by[:, :, n_s:],
            tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in reasons),
            tuple(reasons),
        )

    @cached_property
    def _owner(self) -> IntArray:
        return np.repeat(np.arange(self.made.cut.intervals), np.diff(self.made.cut.rows))
