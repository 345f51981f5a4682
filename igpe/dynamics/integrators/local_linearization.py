"""Local Linearization on all intervals at once; its step is in `linearised.py`.

Steps of the linearised equations, exact by matrix exponentials (Carbonell et al., section 3.1).

From t_n, y_n a step of length h solves y' = f + f_x (y - y_n) + f_t (t - t_n) and the variational
equations with f_x and f_q held at the step's beginning (equations 22 to 24). With

    C = [ f_x  f_q  f_t  f ]
        [  0    0    0   0 ]        exp(h C) = [ E11  E12  E13  E14 ]   in its first rows,
        [  0    0    0   1 ]
        [  0    0    0   0 ]

the new state is y_n + E14, and the derivatives are E11 Y by the start, E11 Y + E12 by the unknowns
(25 to 27). States are of order 2, derivatives of order 1. The exponentials are SciPy's (Pade).
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import casadi as ca
import numpy as np
from scipy.linalg import expm

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Intervals, Shots, refused_implicit
from igpe.dynamics.integrators.cut import Round, cut
from igpe.dynamics.integrators.limits import NO_START, TOO_MANY, StepLimits, allowed, at, no_number
from igpe.dynamics.integrators.runge_kutta_source import model_functions
from igpe.equations.elimination import InPlace
from igpe.equations.initial_value import InitialValueProblem


class Linear(NamedTuple):
    """f at n places: f (n, n_x), f_t (n, n_x), f_x (n, n_x, n_x), f_q (n, n_x, n_q)."""

    f: FloatArray
    f_t: FloatArray
    f_x: FloatArray
    f_q: FloatArray

    def step(self, h: FloatArray, y: FloatArray, by: FloatArray) -> tuple[FloatArray, FloatArray]:
        """States (n, n_x) and derivatives (n, n_x, n_d) after steps h (n,) from y and by.

        The last n_q directions are the unknowns; without directions nothing of them is computed.
        """
        n, n_x = y.shape
        n_q = self.f_q.shape[2] if by.shape[2] else 0
        c = np.zeros((n, n_x + n_q + 2, n_x + n_q + 2))
        c[:, :n_x, :n_x], c[:, :n_x, n_x : n_x + n_q] = self.f_x, self.f_q[:, :, :n_q]
        c[:, :n_x, -2], c[:, :n_x, -1], c[:, -2, -1] = self.f_t, self.f, 1.0
        c *= h[:, None, None]
        finite = np.isfinite(c).all(axis=(1, 2))
        c[~finite] = 0.0
        e = expm(c)[:, :n_x]
        e[~finite] = np.nan
        after = e[:, :, :n_x] @ by
        after[:, :, by.shape[2] - n_q :] += e[:, :, n_x : n_x + n_q]
        return y + e[:, :, -1], after

    def error(self, h: FloatArray, change: FloatArray, f_after: FloatArray) -> FloatArray:
        """(n, n_x) estimated error of steps that changed y by `change`, to where f is `f_after`.

        What the linearisation leaves out grows like (s / h)^2 to d at the end, which gives
        2 h phi_3(h f_x) d; and 1 / (3 - z) is 2 phi_3(z) at 0 and far to the left.
        """
        left_out = f_after - self.f - self.f_t * h[:, None]
        left_out -= (self.f_x @ change[:, :, None])[:, :, 0]
        matrix = 3 * np.eye(self.f.shape[1]) - h[:, None, None] * self.f_x
        matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.eye(self.f.shape[1])
        solved = np.linalg.solve(matrix, left_out[:, :, None])[:, :, 0]
        return np.asarray(h[:, None] * solved, dtype=float)


class LinearisedEquations:
    """The equations of a problem, linearised at n places as one call of CasADi."""

    def __init__(self, ivp: InitialValueProblem, n: int) -> None:
        function = model_functions(ivp)[0][0]
        given = function.sx_in()
        f = function(*given)
        t, x, q, _ = given
        # CasADi stands column by column: transposed, each place is a C array of its own
        found = [f, ca.jacobian(f, t), ca.jacobian(f, x).T, ca.jacobian(f, q).T]
        whole = ca.Function("linearised", given, [ca.densify(v) for v in found])
        self.n, self.n_x, self.n_q = n, x.numel(), q.numel()
        self._function = InPlace(whole.map(n))

    def __call__(self, t: FloatArray, x: FloatArray, q: FloatArray, ab: FloatArray) -> Linear:
        """At times t (n,), states x (n, n_x), unknowns q (n, n_q), inputs ab (n, 2 n_u)."""
        n, n_x = self.n, self.n_x
        shapes = ((n, n_x), (n, n_x), (n, n_x, n_x), (n, n_x, self.n_q))
        found = Linear(*(np.empty(shape) for shape in shapes))
        for i, given in enumerate((t, x, q, ab)):
            self._function.read(i, given)
        for i, place in enumerate(found):
            self._function.write(i, place)
        self._function.evaluate()
        return found


LEAST = 1e-15  # of a piece: a shorter step is none


@dataclass(frozen=True)
class LocalLinearization(Integrator):
    """Steps with matrix exponentials, for equations without implicit algebraic variables.

    Stable however stiff the equations are, and exact for linear ones; else much dearer than
    `RungeKutta` for the same accuracy, above all of derivatives, which are of order 1 only. The
    step is chosen by the states alone, as in the paper (Carbonell et al. 2014).

    rtol, atol  as in the paper;  max_steps: of an interval
    longest     in the model's time: no step is longer
    """

    rtol: float = 1e-3
    atol: float = 1e-6
    longest: float = np.inf

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Generate the Jacobians, cut the intervals where inputs jump."""
        pieces = cut(ivp, nodes, times)
        if ivp.y.numel():
            return refused_implicit(self, ivp, pieces)
        return LocalLinearizationIntervals(ivp, pieces, self)


@dataclass(frozen=True)
class LocalLinearizationIntervals(Intervals):
    """See `igpe.dynamics.integrators.base.Intervals`."""

    method: LocalLinearization

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        self.check_shapes(starts, q)
        if (here := self.cut.at(q)) is None:
            return self.nothing(None if derivatives else 0, TOO_MANY)
        directions = starts.shape[1] + len(q) if derivatives else 0
        with np.errstate(all="ignore"):  # a value that is not a number becomes a reason
            walk = _Walk(self, np.array(starts, dtype=float), np.asarray(q, float), directions)
            for round_ in here.rounds:
                walk.advance(round_)
            return self._shots(walk)

    def _shots(self, walk: "_Walk") -> Shots:
        broken = np.array([bool(r) for r in walk.why])
        walk.y[broken], walk.by[broken] = np.nan, np.nan
        lost = ~walk.reported
        walk.outputs[lost], walk.outputs_by[lost] = np.nan, np.nan
        h, h_by = self._measured_at(walk)
        h[lost], h_by[lost] = np.nan, np.nan
        return Shots(
            walk.y,
            walk.by,
            h,
            h_by,
            walk.outputs,
            walk.outputs_by,
            tuple(Status.INTEGRATION_BROKE if r else Status.CONVERGED for r in walk.why),
            tuple(walk.why),
        )

    def _measured_at(self, walk: "_Walk") -> tuple[FloatArray, FloatArray]:
        """What is measured (n_times, n_h), and its derivatives (n_times, n_h, n_d), eq. 28."""
        n_t, n_h, n_x = len(self.cut.times), self.ivp.measured.numel(), walk.y.shape[1]
        if n_t == 0:
            return np.zeros((0, n_h)), np.zeros((0, n_h, walk.by.shape[2]))
        q = np.tile(walk.q[0], (n_t, 1))
        given = (self.cut.times, walk.outputs, q, self.cut.row_inputs)
        h, by_x, by_q = (np.asarray(v).T for v in self._measured(*(v.T for v in given)))
        found = by_x.reshape(n_t, n_h, n_x) @ walk.outputs_by
        if walk.by.shape[2]:
            found[:, :, n_x:] += by_q.reshape(n_t, n_h, -1)
        return h.copy(), found

    @cached_property
    def linearised(self) -> LinearisedEquations:
        """The equations for all intervals at once."""
        return LinearisedEquations(self.ivp, self.cut.intervals)

    @cached_property
    def _measured(self) -> ca.Function:
        """(t, x, q, ab) -> h, h_x, h_q at all times, each row by row."""
        outputs = model_functions(self.ivp)[0][3]
        given = outputs.sx_in()
        rows = [ca.vec(ca.densify(v)) for v in outputs(*given)]  # Jacobians come transposed
        return ca.Function("measured", given, rows).map(len(self.cut.times))


class _Walk:
    """Where the K intervals are, and what they came by.

    y (K, n_x), by (K, n_x, n_d)   outputs (n_times, n_x), outputs_by (n_times, n_x, n_d)
    why (K,) reasons;  steps (K,) how many were tried
    """

    def __init__(
        self, made: LocalLinearizationIntervals, starts: FloatArray, q: FloatArray, n_d: int
    ) -> None:
        (n_k, n_x), pieces = starts.shape, made.cut
        self.made, self.method, self.y = made, made.method, starts
        self.size = made.ivp.scale
        self.by = np.tile(np.eye(n_x, n_d), (n_k, 1, 1))
        self.q = np.tile(q, (n_k, 1))
        self.why = ["" if np.isfinite(row).all() else NO_START for row in starts]
        self.steps = np.zeros(n_k, dtype=np.intp)
        self.limits = StepLimits.of(self.method, made.ivp)
        self.most = min(self.method.max_steps, allowed() or self.method.max_steps)
        self.deadline = time.monotonic() + self.method.seconds
        owner = pieces.owner
        self.outputs, self.outputs_by = starts[owner], self.by[owner]  # the starts' are right
        self.reported = np.zeros(len(owner), dtype=bool)
        at_starts = pieces.at_starts
        self.reported[at_starts] = [not self.why[k] for k in owner[at_starts]]

    def advance(self, round_: Round) -> None:
        """Integrate one piece of each of some intervals."""
        n_k, n_u2 = len(self.y), round_.cut.inputs.shape[1]
        t, end, ab = round_.cut.nodes[:-1].copy(), np.full(n_k, -np.inf), np.zeros((n_k, n_u2))
        next_, last = np.zeros(n_k, dtype=np.intp), np.zeros(n_k, dtype=np.intp)
        t[round_.which], end[round_.which] = round_.begin, round_.end
        ab[round_.which] = round_.cut.inputs[round_.pieces]
        next_[round_.which], last[round_.which] = round_.rows
        here = self.made.linearised(t, self.y, self.q, ab)
        h = self._first_step(here, end - t)
        while (going := self._going(t, end)).any():
            stop = self._stop(next_, last, end)
            ends = t + 1.01 * h >= stop
            step = np.where(going, np.where(ends, stop - t, h), 0.0)
            after = np.where(going, np.where(ends, stop, t + h), t)
            y, by = here.step(step, self.y, self.by)
            there = self.made.linearised(after, y, self.q, ab)
            error = self._in_tolerances(here.error(step, y - self.y, there.f), y)
            good = going & (error <= 1)
            h = self._next(step, error, np.where(ends & good, h, 0.0))
            self._broken(
                np.where(good, after, t), going, good, y, h < LEAST * (end - round_.cut.nodes[:-1])
            )
            self.y[good], self.by[good], t[good] = y[good], by[good], after[good]
            here = Linear(*(_chosen(good, *pair) for pair in zip(there, here, strict=True)))
            self._report(next_, last, good & ends, stop)
            self.steps += going

    def _going(self, t: FloatArray, end: FloatArray) -> BoolArray:
        return np.array([not r for r in self.why]) & (t < end)

    def _first_step(self, here: Linear, span: FloatArray) -> FloatArray:
        slope = self._in_tolerances(here.f * span[:, None], self.y)
        share = np.where(slope > 1, slope, 1.0) ** (-1 / 3)
        return np.minimum(np.abs(span) * share, self.method.longest)

    def _in_tolerances(self, error: FloatArray, y: FloatArray) -> FloatArray:
        """(K,) the largest of each, NaN if one is none."""
        size = np.maximum(np.abs(self.y), np.abs(y))
        ratio = np.abs(error) / (self.method.atol * self.size + self.method.rtol * size)
        largest: FloatArray = np.max(ratio, axis=1)
        return largest

    def _next(self, step: FloatArray, error: FloatArray, held: FloatArray) -> FloatArray:
        """(K,) the next step; not shorter than `held`, as a step cut by an output says little."""
        known = np.where(np.isfinite(error), np.maximum(error, 1e-10), np.inf)
        factor = np.clip(0.9 * known ** (-1 / 3), 0.2, 5.0)
        return np.minimum(np.maximum(step * factor, held), self.method.longest)

    def _stop(self, next_: IntArray, last: IntArray, end: FloatArray) -> FloatArray:
        """(K,) the next output, or the end."""
        times = np.append(self.made.cut.times, np.inf)
        return np.where(next_ < last, np.minimum(times[next_], end), end)

    def _report(
        self, next_: IntArray, last: IntArray, at_stop: BoolArray, stop: FloatArray
    ) -> None:
        times = np.append(self.made.cut.times, np.inf)
        while (due := np.flatnonzero(at_stop & (next_ < last) & (times[next_] <= stop))).size:
            self.outputs[next_[due]], self.outputs_by[next_[due]] = self.y[due], self.by[due]
            self.reported[next_[due]] = True
            next_[due] += 1

    def _broken(
        self, t: FloatArray, going: BoolArray, good: BoolArray, y: FloatArray, short: BoolArray
    ) -> None:
        large = good & (np.abs(y) > self.limits.most * self.size).any(axis=1)
        many = going & (self.steps >= self.most)
        late = time.monotonic() > self.deadline
        for k in np.flatnonzero(going & (large | many | late | (short & ~good))):
            when, found = at(float(t[k])), self.limits.first_too_large(y[k : k + 1] / self.size)
            if large[k] and found:
                self.why[k] = self.limits.size_sentence(self.made.ivp.states[found[1]], when)
            elif many[k] or late:
                sentence = self.limits.steps_sentence if many[k] else self.limits.seconds_sentence
                self.why[k] = sentence(when)
            else:
                self.why[k] = no_number(when)


def _chosen(good: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
    shaped = good.reshape(-1, *[1] * (new.ndim - 1))
    return np.where(shaped, new, old)
