"""All intervals side by side in NumPy: what integrates them where there is no C compiler.

Steps of Dormand and Prince's pair on pieces of many intervals at once.

Every piece runs in a time of its own from 0 to 1 (`augmented.py`). All take a step together, each
of its own length; those that have arrived rest until enough have for the arrays to be halved.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, augmented, started_anywhere
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Needed,
    Refused,
    Shots,
    needed,
    refused_implicit,
)
from igpe.dynamics.integrators.cut import Cut, Round, cut
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, StepLimits, allowed, at, no_number
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
class PieceState:
    """Where n pieces are; changed in place.

    which   (n,) the interval of each;  begin, span (n,) of the piece, in the model's time
    p       (n, n_p) the augmented system's numbers
    next, last  (n,) the next of the times to be reported, and the first that is not
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

    def at(self, places: IntArray) -> "PieceState":
        """Some of them."""
        return PieceState(*(getattr(self, field.name)[places] for field in fields(self)))

    def smaller(self) -> "PieceState":
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
        self, method: "LockStep", ivp: InitialValueProblem, outputs: FloatArray, why: list[str]
    ) -> None:
        self.method, self.states, self.outputs, self.why = method, ivp.states, outputs, why
        self.times, self.deadline = np.zeros(0), time.monotonic() + method.seconds
        self.limits = StepLimits.of(method, ivp)

    def advance(self, round_: Round, known: FloatArray, x: FloatArray, slope: Slope) -> None:
        """Integrate the pieces of a round whose intervals have not broken down; changes x (K, N).

        known  (K, ...) the augmented system's numbers before the inputs
        """
        self.times = round_.cut.times
        pieces = self._begin(round_, known, x, slope)
        for _ in range(min(self.method.max_steps, allowed() or self.method.max_steps)):
            pieces = pieces.smaller()
            if not pieces.h.any():
                return
            if time.monotonic() > self.deadline:
                break
            step = self._step(pieces, slope)
            good = (step.error <= 1) & (pieces.h > 0)
            self._look(pieces, step, good)
            good &= pieces.h > 0
            self._report(pieces, step, good)
            _control(pieces, step, good)
            arrived = good & (step.tau >= 1)
            x[pieces.which[arrived]] = step.end[arrived]
        for i in np.flatnonzero(pieces.h):
            late, when = time.monotonic() > self.deadline, pieces.when(i, pieces.tau[i])
            sentence = self.limits.seconds_sentence if late else self.limits.steps_sentence
            self.why[pieces.which[i]] = sentence(when)

    def _begin(self, round_: Round, known: FloatArray, x: FloatArray, slope: Slope) -> PieceState:
        alive = np.array([not self.why[k] for k in round_.which], dtype=bool)
        round_ = Round(round_.cut, round_.which[alive], round_.pieces[alive])
        which, begin, span = round_.which, round_.begin, round_.end - round_.begin
        p = np.column_stack([known[which], round_.cut.inputs[round_.pieces], begin, span])
        zeros, ones, now = np.zeros(len(which)), np.ones(len(which)), x[which]
        k = slope(zeros, now, p) if len(which) else now
        h = self._first_step(now, k, partial(slope, p=p)) if len(which) else zeros
        limited = np.zeros(len(which), dtype=np.intp)
        return PieceState(
            which, begin, span, p, *round_.rows, zeros, h, now, k, 1e-4 * ones, limited
        )

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

    def _step(self, now: PieceState, slope: Slope) -> Step:
        ends = now.tau + 1.01 * now.h >= 1
        h = np.where(ends & (now.h > 0), 1 - now.tau, now.h)
        after = np.where(ends, 1.0, now.tau + h)
        k, y, beside = [now.k], now.x, now.x
        for i in range(1, STAGES):
            beside, y = y, now.x + h[:, None] * _sum(A[i, :i], k)
            k.append(slope(np.where(C[i] < 1, now.tau + C[i] * h, after), y, p=now.p))
        error = self._in_tolerances(h[:, None] * _sum(E, k), now.x, y)
        return Step(h, after, error, k, y, beside)

    def _look(self, now: PieceState, step: Step, good: BoolArray) -> None:
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

    def _report(self, now: PieceState, step: Step, good: BoolArray) -> None:
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


def _control(now: PieceState, step: Step, good: BoolArray) -> None:
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
class LockStep(Integrator):
    """Dormand and Prince's explicit pair in NumPy, each interval with steps of its own length.

    For equations that are not stiff, without implicit algebraic variables; a stiff interval breaks
    down. Slopes of all intervals are one call of CasADi.

    max_steps  steps allowed between two jumps of an input;  slack: as in `RungeKutta`
    """

    slack: float = 1.0

    def prepare(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> "LockStepIntervals | Refused":
        """Cut the intervals where inputs jump."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return refused_implicit(self, ivp, pieces)
        return LockStepIntervals(ivp, pieces, self, needed(ivp))


@dataclass(frozen=True)
class LockStepIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    needed     the unknowns that the equations contain
    otherwise  what integrates intervals again that break down
    """

    method: LockStep
    needed: Needed
    otherwise: Integrator | None = None
    _sides: dict[bool, "_Side"] = field(default_factory=dict)
    _others: dict[int, Intervals] = field(default_factory=dict)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        if (here := self.cut.at(q)) is None:
            return self.nothing(None if derivatives else 0, TOO_MANY)
        if derivatives not in self._sides:
            free = started_anywhere(self.needed.ivp)
            system = augmented(free, sensitivities=derivatives)
            self._sides[derivatives] = _Side(self.method, self.ivp, system)
        starts, q = np.asarray(starts, dtype=float), np.asarray(q, dtype=float)
        with np.errstate(all="ignore"):  # a value that is not a number becomes a reason
            shots = self._sides[derivatives].run(here, starts, q[self.needed.places])
        shots = self.needed.wide(shots, len(q))
        if self.otherwise is not None:
            for k in [k for k, status in enumerate(shots.status) if not status.usable]:
                again = self._alone(k).run(starts[k : k + 1], q, derivatives=derivatives)
                shots = _replaced(shots, again, k, self._rows(k))
        return shots

    def until(self, last: float) -> "LockStepIntervals":
        """See `Intervals`."""
        return replace(self, cut=self.cut.until(last), _others={})

    def _rows(self, k: int) -> slice:
        return slice(int(self.cut.rows[k]), int(self.cut.rows[k + 1]))

    def _alone(self, k: int) -> Intervals:
        """Interval k by the other integrator."""
        assert self.otherwise is not None, "checked by run"
        if k not in self._others:
            nodes, times = self.cut.nodes[k : k + 2], self.cut.times[self._rows(k)]
            self._others[k] = self.otherwise.prepare(self.ivp, nodes, times)
        return self._others[k]


def _replaced(shots: Shots, again: Shots, k: int, rows: slice) -> Shots:
    """The shots with another try of interval k."""
    for name in ("ends", "ends_by"):
        getattr(shots, name)[k] = getattr(again, name)[0]
    for name in ("measured", "measured_by", "states", "states_by"):
        getattr(shots, name)[rows] = getattr(again, name)
    status, reason = list(shots.status), list(shots.reason)
    status[k], reason[k] = again.status[0], again.reason[0]
    return replace(shots, status=tuple(status), reason=tuple(reason))


class _Side:
    """The intervals with derivatives, or those without."""

    def __init__(self, method: LockStep, ivp: InitialValueProblem, system: Augmented) -> None:
        self.method, self.ivp, self.system = method, ivp, system
        self.slope = Slope(system)
        self._outputs: dict[int, InPlace] = {}

    def run(self, pieces: Cut, starts: FloatArray, q: FloatArray) -> Shots:
        """Integrate round after round: the first pieces of all intervals, the second ones, ..."""
        known, x = self._known(starts, q), self._begin(starts / self.ivp.scale)
        outputs = np.full((len(pieces.times), x.shape[1]), np.nan)
        outputs[pieces.at_starts] = x[pieces.owner[pieces.at_starts]]
        reasons = ["" if np.isfinite(row).all() else NO_START for row in x]
        course = Course(self.method, self.ivp, outputs, reasons)
        for round_ in pieces.rounds:
            course.advance(round_, known, x, self.slope)
        return self._shots(pieces, known, x, outputs, reasons)

    def _known(self, starts: FloatArray, q: FloatArray) -> FloatArray:
        """(K, 2 (n_x + n_q)) the augmented system's unknowns [start, q] and their sizes."""
        scale = np.maximum(np.abs(q), needed(self.ivp).ivp.unknown_scale)
        shared = np.tile(np.concatenate([q, self.ivp.scale, scale]), (len(starts), 1))
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
        """Results at the times and at the ends, in the model's units; NaN where it broke down."""
        layout, n_t = self.system.layout, len(pieces.times)
        inputs = np.concatenate([pieces.row_inputs, pieces.inputs[pieces.first[1:] - 1]])
        owner = np.concatenate([pieces.owner, np.arange(pieces.intervals)])
        x[[bool(r) for r in reasons]] = np.nan
        times, states = np.concatenate([pieces.times, pieces.nodes[1:]]), np.vstack([outputs, x])
        rows = np.empty((len(owner), layout.width))
        if len(owner) not in self._outputs:
            self._outputs[len(owner)] = InPlace(self.system.outputs.map(len(owner)))
        function = self._outputs[len(owner)]
        given = times, states, np.zeros(0), np.concatenate([known[owner], inputs], axis=1)
        for i, array in enumerate(given):
            function.read(i, array)
        function.write(0, rows)
        function.evaluate()
        rows[np.isnan(states).any(axis=1)] = np.nan
        all_ = layout.trajectory(times, rows, Status.CONVERGED, float(times[-1]), "")
        return Shots(
            all_.states[n_t:],
            all_.by_unknown[n_t:],
            all_.measured[:n_t],
            all_.measured_by_unknown[:n_t],
            all_.states[:n_t],
            all_.by_unknown[:n_t],
            tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in reasons),
            tuple(reasons),
        )
