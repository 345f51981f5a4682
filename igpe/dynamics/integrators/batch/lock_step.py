"""All intervals side by side in NumPy: what integrates them where there is no C compiler.

Steps of Dormand and Prince's pair on pieces of many intervals at once.

Every piece runs in a time of its own from 0 to 1 (`augmented.py`). All take a step together, each
of its own length; those that have arrived rest until enough have for the arrays to be halved.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, augmented
from igpe.dynamics.integrators.cut import Cut, Round, cut
from igpe.dynamics.integrators.intervals import Intervals, Shots, started_anywhere
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, Limits, at, no_number
from igpe.dynamics.integrators.method import Tolerances
from igpe.dynamics.integrators.no_shots import NoShots, check_shapes, implicit_sentence
from igpe.dynamics.integrators.tableaux import DORMAND_PRINCE
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem

A, C, E, DENSE = (getattr(DORMAND_PRINCE, name) for name in ("a", "c", "error", "dense"))
STAGES = DORMAND_PRINCE.stages
POWERS = np.arange(1, DENSE.shape[1] + 1)
STABLE = 2.0  # |h lambda| where stability limits the steps
SURE, WORTH = 5, 50  # steps at that limit, and those that must be left, for a piece to be stiff
CONSTANT = 1e-3  # of the error of a first step, see `runge_kutta_run.c`
KNOWN = 1e-5  # tolerances below which a size or a slope says nothing of the first step
LEAST = 1e-15  # of a piece: a shorter step is none
STIFF = "The equations are stiff {}: an explicit method needs tiny steps."


@dataclass
class Pieces:
    """Where n pieces are; changed in place.

    which   (n,) the interval of each;  begin, span (n,) of the piece, in the model's time
    p       (n, n_p) the augmented system's numbers
    next, last  (n,) the next of the times to be told, and the first that is not
    tau     (n,) time, from 0 to 1;  h (n,) the next step, 0 where all is done
    x, k    (n, N) states with derivatives, and their slopes
    before  (n,) error of the last step, in tolerances
    limited (n,) how many more steps were at the limit of stability than below it
    """

    which: IntArray
    begin: FloatArray
    span: FloatArray
    p: FloatArray
    next: IntArray
    last: IntArray
    tau: FloatArray
    h: FloatArray
    x: FloatArray
    k: FloatArray
    before: FloatArray
    limited: IntArray

    def at(self, places: IntArray) -> "Pieces":
        """Some of them."""
        return Pieces(*(getattr(self, field.name)[places] for field in fields(self)))

    def smaller(self) -> "Pieces":
        """Half of them, or less, if the others rest; sizes are few, as each is a function."""
        going, n = np.flatnonzero(self.h), len(self.h)
        while n > 1 and n // 2 >= len(going):
            n //= 2
        if n == len(self.h):
            return self
        resting = np.flatnonzero(self.h == 0)[: n - len(going)]
        return self.at(np.concatenate([going, resting]))

    def when(self, i: np.intp, tau: float) -> str:
        """The time of one of them, in a sentence."""
        return at(float(self.begin[i] + self.span[i] * tau))


class Slope:
    """The augmented system's right-hand side at many places, as one call of CasADi."""

    def __init__(self, system: Augmented) -> None:
        self.system = system
        self.made: dict[int, InPlace] = {}

    def __call__(self, tau: FloatArray, x: FloatArray, p: FloatArray) -> FloatArray:
        """(n, N) at times tau (n,)."""
        n = len(tau)
        if n not in self.made:
            self.made[n] = InPlace(self.system.slope.map(n))
        function, found = self.made[n], np.empty_like(x)
        for i, given in enumerate((tau, x, np.zeros(0), p)):
            function.read(i, given)
        function.write(0, found)
        function.evaluate()
        return found


class Step(NamedTuple):
    """A step of all pieces.

    h, tau  (n,) its length, and the time after it;  error (n,) in tolerances
    k       the slopes (n, N) of the stages
    end, beside  (n, N) the new states, and the stage before them at the same time
    """

    h: FloatArray
    tau: FloatArray
    error: FloatArray
    k: list[FloatArray]
    end: FloatArray
    beside: FloatArray


class Course:
    """The way over a round; it fills outputs (n_times, N) and `why` (K,), the reasons."""

    def __init__(
        self, method: Tolerances, ivp: InitialValueProblem, outputs: FloatArray, why: list[str]
    ) -> None:
        self.method, self.states, self.outputs, self.why = method, ivp.states, outputs, why
        self.times = np.zeros(0)
        self.limits = Limits.of(method, ivp)

    def advance(self, round_: Round, known: FloatArray, x: FloatArray, slope: Slope) -> None:
        """Integrate the pieces of a round whose intervals have not broken down; changes x (K, N).

        known  (K, ...) the augmented system's numbers before the inputs
        """
        self.times = round_.cut.times
        pieces = self._begin(round_, known, x, slope)
        for _ in range(self.method.max_steps):
            pieces = pieces.smaller()
            if not pieces.h.any():
                return
            step = self._step(pieces, slope)
            good = (step.error <= 1) & (pieces.h > 0)
            self._look(pieces, step, good)
            good &= pieces.h > 0
            self._tell(pieces, step, good)
            _control(pieces, step, good)
            arrived = good & (step.tau >= 1)
            x[pieces.which[arrived]] = step.end[arrived]
        for i in np.flatnonzero(pieces.h):
            when = pieces.when(i, pieces.tau[i])
            self.why[pieces.which[i]] = self.limits.steps_sentence(when)

    def _begin(self, round_: Round, known: FloatArray, x: FloatArray, slope: Slope) -> Pieces:
        alive = np.array([not self.why[k] for k in round_.which], dtype=bool)
        round_ = Round(round_.cut, round_.which[alive], round_.pieces[alive])
        which, begin, span = round_.which, round_.begin, round_.end - round_.begin
        p = np.column_stack([known[which], round_.cut.inputs[round_.pieces], begin, span])
        zeros, ones, now = np.zeros(len(which)), np.ones(len(which)), x[which]
        k = slope(zeros, now, p) if len(which) else now
        h = self._first_step(now, k, partial(slope, p=p)) if len(which) else zeros
        limited = np.zeros(len(which), dtype=np.intp)
        return Pieces(which, begin, span, p, *round_.rows, zeros, h, now, k, 1e-4 * ones, limited)

    def _first_step(
        self, x: FloatArray, k: FloatArray, slope: Callable[[FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        """(n,) as `first_step` in `runge_kutta_run.c`."""
        size, d1 = self._in_tolerances(x, x, x), self._in_tolerances(k, x, x)
        clear = (size > KNOWN) & (d1 > KNOWN)
        h = np.where(clear, np.minimum(0.01 * size / d1, 1), 1e-6)
        d2 = self._in_tolerances(slope(h, x + h[:, None] * k) - k, x, x) / h
        least = (0.01 / np.maximum(d1, d2)) ** 0.2
        wanted = np.fmax(d1 / d2 * (d2 / d1**2 / CONSTANT) ** 0.2, least)
        wanted = np.where(d2 > 0, np.minimum(wanted, 1), 1)
        return np.where(np.isfinite(d2), wanted, 1e-3 * h)

    def _in_tolerances(self, v: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """(n,) largest of v over the tolerance; NaN if one of v is none."""
        method, n_x = self.method, len(self.states)
        ratio = np.abs(v) / (method.atol + method.rtol * np.maximum(np.abs(x), np.abs(y)))
        ratio[:, n_x:] /= method.slack
        largest: FloatArray = np.max(ratio, axis=1, initial=0.0)
        return largest

    def _step(self, now: Pieces, slope: Slope) -> Step:
        ends = now.tau + 1.01 * now.h >= 1
        h = np.where(ends & (now.h > 0), 1 - now.tau, now.h)
        after = np.where(ends, 1.0, now.tau + h)
        k, y, beside = [now.k], now.x, now.x
        for i in range(1, STAGES):
            beside, y = y, now.x + h[:, None] * _sum(A[i, :i], k)
            k.append(slope(np.where(C[i] < 1, now.tau + C[i] * h, after), y, p=now.p))
        error = self._in_tolerances(h[:, None] * _sum(E, k), now.x, y)
        return Step(h, after, error, k, y, beside)

    def _look(self, now: Pieces, step: Step, good: BoolArray) -> None:
        """Put to rest what breaks down here."""
        going = now.h > 0
        large = good & (np.abs(step.end[:, : len(self.states)]) > self.limits.most).any(axis=1)
        short = going & ~good & (step.h < LEAST)
        stiff = good & (now.limited >= SURE) & (1 - step.tau > WORTH * step.h)
        for i in np.flatnonzero(large | short | stiff):
            if large[i]:
                found = self.limits.first_too_large(step.end[i : i + 1, : len(self.states)])
                state = self.states[found[1]] if found else ""
                reason = self.limits.size_sentence(state, now.when(i, step.tau[i]))
            elif stiff[i]:
                reason = STIFF.format(now.when(i, now.tau[i]))
            elif np.isfinite(step.error[i]):
                reason = f"No step is small enough {now.when(i, now.tau[i])}."
            else:
                reason = no_number(now.when(i, now.tau[i]))
            self.why[now.which[i]] = reason
            now.h[i] = 0

    def _tell(self, now: Pieces, step: Step, good: BoolArray) -> None:
        """Fill the outputs that the step has passed."""
        end = now.begin + now.span * step.tau
        times = self.times
        while True:
            due = np.flatnonzero(good & (now.next < now.last))
            due = due[(times[now.next[due]] <= end[due]) | (step.tau[due] >= 1)]
            if len(due) == 0:
                return
            rows = now.next[due]
            tau = (times[rows] - now.begin[due]) / now.span[due]
            share = np.minimum((tau - now.tau[due]) / step.h[due], 1.0)
            weights = share[:, None] ** POWERS @ DENSE.T * step.h[due, None]
            slopes = np.stack([k[due] for k in step.k], axis=1)
            self.outputs[rows] = now.x[due] + np.einsum("ns,nsi->ni", weights, slopes)
            now.next[due] += 1


def _sum(weights: FloatArray, k: list[FloatArray]) -> FloatArray:
    """Of the slopes with weights."""
    terms = [w * slope for w, slope in zip(weights, k, strict=True) if w]
    total: FloatArray = sum(terms[1:], terms[0])
    return total


def _control(now: Pieces, step: Step, good: BoolArray) -> None:
    """Take the steps that are good, and choose the next ones."""
    going, error = now.h > 0, np.where(np.isfinite(step.error), step.error, np.inf)
    less = np.clip(0.9 * error**-0.17, 0.2, 0.9)
    more = np.clip(0.9 * now.before**0.04 * np.maximum(error, 1e-10) ** -0.17, 0.2, 10.0)
    now.limited[good] = np.maximum(now.limited[good] + np.where(_at_limit(step)[good], 1, -1), 0)
    now.before[good] = np.maximum(error[good], 1e-4)
    now.tau[good], now.x[good], now.k[good] = step.tau[good], step.end[good], step.k[-1][good]
    factor = np.where(good, more, less)
    now.h[going] = np.where(good & (now.tau >= 1), 0.0, step.h * factor)[going]


def _at_limit(step: Step) -> BoolArray:
    """(n,) whether the steps were about as long as stability allows."""
    slopes = np.linalg.norm(step.k[-1] - step.k[-2], axis=1)
    points = np.linalg.norm(step.end - step.beside, axis=1)
    found: BoolArray = step.h * slopes > STABLE * points
    return found


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
