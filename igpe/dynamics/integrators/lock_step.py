"""All intervals side by side in NumPy: what integrates them where there is no C compiler.

Every piece runs in a time of its own from 0 to 1 (`augmented.py`). All take a step together, each
of its own length; those that have arrived rest until enough have for the arrays to be halved. What
a step is, a `Stepper` says: Dormand and Prince's pair here; `local_linearization.py` has another.
"""

import time
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple

import numpy as np

from igpe.core.arguments import Positive
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.augmented import Augmented, Batched, augmented, started_anywhere
from igpe.dynamics.integrators.base import (
    Integrator,
    Intervals,
    Needed,
    Shots,
    needed,
    refused_implicit,
)
from igpe.dynamics.integrators.cut import Cut, Round, cut
from igpe.dynamics.integrators.limits import (
    NO_START,
    allowed,
    at,
    first_beyond,
    no_number,
)
from igpe.dynamics.integrators.switched import switched
from igpe.dynamics.integrators.tableaux import DORMAND_PRINCE
from igpe.equations.initial_value import InitialValueProblem

A, C, E, DENSE = (getattr(DORMAND_PRINCE, name) for name in ("a", "c", "error", "dense"))
STAGES = DORMAND_PRINCE.stages
POWERS = np.arange(1, DENSE.shape[1] + 1)
STABLE = 2.0  # |h lambda| where stability limits the steps
SURE, WORTH = 5, 50  # steps at that limit, and those that must be left, for a piece to be stiff
CONSTANT = 1e-3  # of the error of a first step, see `runge_kutta_run.c`
KNOWN = 1e-5  # tolerances below which a size says nothing of the first step
LEAST = 1e-15  # of a piece: a shorter step is none
STIFF = "The equations are stiff {}: an explicit method needs tiny steps."
EMPTY = np.zeros(0)


@dataclass
class PieceState:
    """Where n pieces are; changed in place.

    which   (n,) the interval of each;  begin, span (n,) of the piece, in the model's time
    p       (n, n_p) the augmented system's numbers
    next, last  (n,) the next of the times to be reported, and the first that is not
    tau     (n,) time, from 0 to 1;  h (n,) the next step, 0 where all is done
    x, k    (n, N) states with derivatives, and what the stepper needs of the equations there
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

    def smaller(self) -> "PieceState":
        """Half of them, or less, if the others rest; sizes are few, as each is a function."""
        going, n = np.flatnonzero(self.h), len(self.h)
        while n > 1 and n // 2 >= len(going):
            n //= 2
        if n == len(self.h):
            return self
        places = np.concatenate([going, np.flatnonzero(self.h == 0)[: n - len(going)]])
        return PieceState(*(getattr(self, field.name)[places] for field in fields(self)))

    def when(self, i: np.intp, tau: float) -> str:
        """The time of one of them, in a sentence."""
        return at(float(self.begin[i] + self.span[i] * tau))


class Step(NamedTuple):
    """A step of all pieces.

    h, tau  (n,) its length, and the time after it;  error (n,) in tolerances
    end, k  (n, N) the new states, and what the stepper needs there
    stages  slopes (n, N) for the states between, if the stepper has them
    limited (n,) whether steps were about as long as stability allows
    """

    h: FloatArray
    tau: FloatArray
    error: FloatArray
    end: FloatArray
    k: FloatArray
    stages: list[FloatArray]
    limited: BoolArray


class Stepper:
    """Steps of a method on the augmented system.

    slopes   the function (tau, x, z, p) whose values are `PieceState.k`
    outputs  rows of numbers in the model's units, see `Augmented`
    """

    def __init__(self, method: "LockStep", system: Augmented) -> None:
        self.method, self.system, self.n_x = method, system, system.sizes[0]
        self.slopes, self.outputs = self.function(system), Batched(system.outputs)

    def function(self, system: Augmented) -> Batched:
        """The function that is evaluated at the end of each step."""
        return Batched(system.slope)

    def at(self, tau: FloatArray, x: FloatArray, p: FloatArray) -> FloatArray:
        """Its values at n places."""
        return self.slopes(len(tau), tau, x, EMPTY, p)

    def in_tolerances(self, v: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """(n,) largest of v over the tolerance; NaN if one of v is none."""
        method, n_v = self.method, v.shape[1]
        size = np.maximum(np.abs(x[:, :n_v]), np.abs(y[:, :n_v]))
        ratio = np.abs(v) / (method.atol + method.rtol * size)
        ratio[:, self.n_x :] /= method.slack
        largest: FloatArray = np.max(ratio, axis=1, initial=0.0)
        return largest

    def length(self, now: PieceState) -> tuple[FloatArray, FloatArray]:
        """(n,) the next steps, of length 0 where all is done, and the times after them."""
        ends = now.tau + 1.01 * now.h >= 1
        h = np.where(ends & (now.h > 0), 1 - now.tau, now.h)
        return h, np.where(ends, 1.0, now.tau + h)

    def first(self, now: PieceState) -> FloatArray:
        """(n,) first steps, as `first_step` in `runge_kutta_run.c`."""
        x, k = now.x, now.k
        size, d1 = self.in_tolerances(x, x, x), self.in_tolerances(k, x, x)
        h = 0.01 * size / d1
        h = np.where((size > KNOWN) & (h < 1), h, 1e-6)
        d2 = self.in_tolerances(self.at(h, x + h[:, None] * k, now.p) - k, x, x) / h
        least = (0.01 / np.maximum(d1, d2)) ** 0.2
        wanted = np.fmax(d1 / d2 * (d2 / d1**2 / CONSTANT) ** 0.2, least)
        wanted = np.where(d2 > 0, np.minimum(wanted, 1), 1)
        return np.where(np.isfinite(d2), wanted, 1e-3 * h)

    def step(self, now: PieceState) -> Step:
        """One step of all pieces."""
        h, after = self.length(now)
        k, y, beside = [now.k], now.x, now.x
        for i in range(1, STAGES):
            beside, y = y, now.x + h[:, None] * _sum(A[i, :i], k)
            k.append(self.at(np.where(C[i] < 1, now.tau + C[i] * h, after), y, now.p))
        error = self.in_tolerances(h[:, None] * _sum(E, k), now.x, y)
        slopes, points = (np.linalg.norm(v, axis=1) for v in (k[-1] - k[-2], y - beside))
        limited = h * slopes > STABLE * points
        return Step(h, after, error, y, k[-1], k, limited)

    def between(self, now: PieceState, step: Step, due: IntArray, share: FloatArray) -> FloatArray:
        """(n_due, N) states at shares of the steps of some pieces."""
        weights = share[:, None] ** POWERS @ DENSE.T * step.h[due, None]
        slopes = np.stack([k[due] for k in step.stages], axis=1)
        return np.asarray(now.x[due] + np.einsum("ns,nsi->ni", weights, slopes))

    def factor(self, error: FloatArray, before: FloatArray, good: BoolArray) -> FloatArray:
        """(n,) by what the next steps are longer, after an error and the one before it."""
        less = np.clip(0.9 * error**-0.17, 0.2, 0.9)
        more = np.clip(0.9 * before**0.04 * np.maximum(error, 1e-10) ** -0.17, 0.2, 10.0)
        return np.where(good, more, less)


def _sum(weights: FloatArray, k: list[FloatArray]) -> FloatArray:
    """Of the slopes with weights."""
    terms = [w * slope for w, slope in zip(weights, k, strict=True) if w]
    total: FloatArray = sum(terms[1:], terms[0])
    return total


@dataclass(frozen=True)
class LockStep(Integrator):
    """The explicit pair of Dormand and Prince in NumPy; each interval has its own step sizes.

    The method is for equations that are not stiff and have no implicit algebraic variables; the
    integration of a stiff interval fails. One call of CasADi computes the slopes of all intervals.

    max_steps  maximum number of steps between two jumps of an input; slack: as in `RungeKutta`
    """

    stepper: ClassVar[type[Stepper]] = Stepper

    slack: Positive = 1.0

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Split the intervals where inputs jump."""
        if ivp.switching is not None:
            return switched(self, ivp, nodes, times)
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return refused_implicit(self, ivp, pieces)
        return LockStepIntervals(ivp, pieces, self, needed(ivp))


@dataclass(frozen=True)
class LockStepIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`.

    needed     the unknowns that the equations contain
    otherwise  what integrates intervals again that break down
    steppers   what is generated, by whether there are derivatives
    """

    method: LockStep
    needed: Needed
    otherwise: Integrator | None = None
    steppers: dict[bool, Stepper] = field(default_factory=dict)
    _others: dict[int, Intervals] = field(default_factory=dict)

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        if isinstance(here := self.cut.at(q), str):
            return self.nothing(None if derivatives else 0, here)
        if derivatives not in self.steppers:
            system = augmented(started_anywhere(self.needed.ivp), sensitivities=derivatives)
            self.steppers[derivatives] = self.method.stepper(self.method, system)
        starts, q = np.asarray(starts, dtype=float), np.asarray(q, dtype=float)
        with np.errstate(all="ignore"):  # a value that is not a number becomes a reason
            run = _Run(self, self.steppers[derivatives], here, starts, q[self.needed.places])
            shots = self.needed.wide(run.shots(), len(q))
        broken = [k for k, status in enumerate(shots.status) if not status.usable]
        status, reasons = list(shots.status), list(shots.reason)
        for k in broken if self.otherwise is not None else ():
            again, rows = self._alone(k).run(starts[[k]], q, derivatives=derivatives), self._rows(k)
            shots.ends[k], shots.ends_by[k] = again.ends[0], again.ends_by[0]
            for name in ("measured", "measured_by", "states", "states_by"):
                getattr(shots, name)[rows] = getattr(again, name)
            status[k], reasons[k] = again.status[0], again.reason[0]
        return replace(shots, status=tuple(status), reason=tuple(reasons))

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


class _Run:
    """One run of all intervals: round after round, the first pieces of all, the second ones, ..."""

    def __init__(
        self,
        intervals: LockStepIntervals,
        stepper: Stepper,
        here: Cut,
        starts: FloatArray,
        q: FloatArray,
    ) -> None:
        self.method, self.ivp, self.cut = intervals.method, intervals.ivp, here
        self.stepper = stepper
        self.most = self.method.most(self.ivp)
        self.deadline = time.monotonic() + self.method.seconds
        # the augmented system's unknowns are [start, q], and their sizes
        scale = np.maximum(np.abs(q), intervals.needed.ivp.unknown_scale)
        shared = np.tile(np.concatenate([q, self.ivp.scale, scale]), (len(starts), 1))
        self.known = np.concatenate([starts, shared], axis=1)
        n_k, n_x = starts.shape
        self.x = np.zeros((n_k, stepper.system.x.numel()))
        self.x[:, :n_x] = starts / self.ivp.scale
        if stepper.system.sizes[3]:
            self.x[:, n_x : n_x + n_x * n_x] = np.eye(n_x).ravel()
        self.steps = np.zeros((n_k, 2), dtype=np.intp)
        self.why = ["" if np.isfinite(row).all() else NO_START for row in self.x]
        owner, times = here.owner, here.times
        at_starts = np.flatnonzero(times <= here.nodes[owner])
        self.outputs = np.full((len(times), self.x.shape[1]), np.nan)
        self.outputs[at_starts] = self.x[owner[at_starts]]

    def shots(self) -> Shots:
        """Results at the times and at the ends, in the model's units; NaN where it broke down."""
        for round_ in self.cut.rounds:
            self._advance(round_)
        here, n_t = self.cut, len(self.cut.times)
        self.x[[bool(why) for why in self.why]] = np.nan
        inputs = np.concatenate([here.row_inputs, here.inputs[here.first[1:] - 1]])
        owner = np.concatenate([here.owner, np.arange(here.intervals)])
        times, states = (
            np.concatenate([here.times, here.nodes[1:]]),
            np.vstack([self.outputs, self.x]),
        )
        numbers = np.concatenate([self.known[owner], inputs], axis=1)
        rows = self.stepper.outputs(len(owner), times, states, EMPTY, numbers)
        rows[np.isnan(states).any(axis=1)] = np.nan
        x, _, h, x_by, h_by = self.stepper.system.split(rows)
        status = tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in self.why)
        numbers_of_times = h[:n_t], h_by[:n_t], x[:n_t], x_by[:n_t]
        why = tuple(self.why)
        return Shots(x[n_t:], x_by[n_t:], *numbers_of_times, status, why, self.steps)

    def _advance(self, round_: Round) -> None:
        """Integrate the pieces of a round whose intervals have not broken down."""
        pieces = self._begin(round_)
        for _ in range(min(self.method.max_steps, allowed() or self.method.max_steps)):
            pieces = pieces.smaller()
            if not pieces.h.any():
                return
            if time.monotonic() > self.deadline:
                break
            self.steps[pieces.which, 0] += pieces.h > 0
            step = self.stepper.step(pieces)
            good = (step.error <= 1) & (pieces.h > 0)
            self._look(pieces, step, good)
            good &= pieces.h > 0
            self._report(pieces, step, good)
            self._take(pieces, step, good)
            arrived = good & (step.tau >= 1)
            self.x[pieces.which[arrived]] = step.end[arrived]
        late = time.monotonic() > self.deadline
        sentence = self.method.too_late if late else self.method.out_of_steps
        for i in np.flatnonzero(pieces.h):
            self.why[pieces.which[i]] = sentence(pieces.when(i, pieces.tau[i]))

    def _begin(self, round_: Round) -> PieceState:
        alive = np.array([not self.why[k] for k in round_.which], dtype=bool)
        which, begin, end, inputs, next_, last = (v[alive] for v in round_)
        span, n, x = end - begin, len(which), self.x[which]
        p = np.column_stack([self.known[which], inputs, begin, span])
        zeros, limited = np.zeros(n), np.zeros(n, dtype=np.intp)
        now = PieceState(
            which, begin, span, p, next_, last, zeros, zeros, x, x, np.full(n, 1e-4), limited
        )
        if n:
            now.k = self.stepper.at(zeros, x, p)
            now.h = np.fmax(self.stepper.first(now), LEAST / 2)  # 0 would mean: all is done
        now.tau = np.zeros(n)
        return now

    def _look(self, now: PieceState, step: Step, good: BoolArray) -> None:
        """Put to rest what breaks down here."""
        states = step.end[:, : len(self.most)]
        large = good & (np.abs(states) > self.most).any(axis=1)
        short = (now.h > 0) & ~good & (step.h < LEAST)
        stiff = good & (now.limited >= SURE) & (1 - step.tau > WORTH * step.h)
        for i in np.flatnonzero(large | short | stiff):
            when, found = now.when(i, now.tau[i]), first_beyond(states[[i]], self.most)
            if large[i] and found:
                state = self.ivp.states[found[1]]
                reason = self.method.too_large(state, now.when(i, step.tau[i]))
            elif stiff[i]:
                reason = STIFF.format(when)
            elif np.isfinite(step.error[i]):
                reason = f"The step size became too small {when}."
            else:
                reason = no_number(when)
            self.why[now.which[i]] = reason
            now.h[i] = 0

    def _report(self, now: PieceState, step: Step, good: BoolArray) -> None:
        """Fill the outputs that the step has passed."""
        end, times = now.begin + now.span * step.tau, self.cut.times
        while True:
            due = np.flatnonzero(good & (now.next < now.last))
            due = due[(times[now.next[due]] <= end[due]) | (step.tau[due] >= 1)]
            if len(due) == 0:
                return
            rows = now.next[due]
            tau = (times[rows] - now.begin[due]) / now.span[due]
            share = np.minimum((tau - now.tau[due]) / step.h[due], 1.0)
            self.outputs[rows] = self.stepper.between(now, step, due, share)
            now.next[due] += 1

    def _take(self, now: PieceState, step: Step, good: BoolArray) -> None:
        """Take the steps that are good, and choose the next ones."""
        going, error = now.h > 0, np.where(np.isfinite(step.error), step.error, np.inf)
        factor = self.stepper.factor(error, now.before, good)
        now.limited[good] = np.maximum(now.limited[good] + np.where(step.limited[good], 1, -1), 0)
        now.before[good] = np.maximum(error[good], 1e-4)
        now.tau[good], now.x[good], now.k[good] = step.tau[good], step.end[good], step.k[good]
        now.h[going] = np.where(good & (now.tau >= 1), 0.0, step.h * factor)[going]
