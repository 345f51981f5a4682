"""One validated step in time.

X(tau) is a guess of the solution from t to t + h, tau in [0, 1]: any polynomial that begins in the
right place, here some Picard iterations without regard to rounding. What is proved afterwards: let

    |h f(X) - X'| <= d    for all delta, z, tau,
    M >= h J_ij (i = j),  M >= h |J_ij| (i != j)    for the Jacobian J of f on the tube X +- w,
    v >= d + max(0, M v),  0 < v <= w.

Then the solution exists on the whole step and |x - X| <= tau v: the difference satisfies
D+|x_i - X_i| <= d_i + sum_j M_ij |x_j - X_j| while it is in the tube, M has off-diagonal entries
>= 0, and tau v is a supersolution of that. No step of the search for v has to be trusted.

Values with derivatives, over intervals (forward differentiation).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.experiments import InputLine, Replay
from igpe.proofs.checker.functions import Coefficients, log
from igpe.proofs.checker.interval import TINY, UNIT, Interval, outward, point, up
from igpe.proofs.checker.polynomial import Polynomial, constants


@dataclass(frozen=True)
class Dual:
    """A value and its derivatives by some variables; those that are 0 are left out."""

    value: Interval
    slope: dict[int, Interval]

    def __add__(self, other: "Dual") -> "Dual":
        return Dual(self.value + other.value, _sum(self.slope, other.slope))

    def __sub__(self, other: "Dual") -> "Dual":
        return self + -other

    def __neg__(self) -> "Dual":
        return Dual(-self.value, {k: -s for k, s in self.slope.items()})

    def __mul__(self, other: "Dual") -> "Dual":
        slope = _sum(self._scaled(other.value), other._scaled(self.value))
        return Dual(self.value * other.value, slope)

    def square(self) -> "Dual":
        """x * x."""
        return Dual(self.value.square(), self._scaled(self.value + self.value))

    def power(self, exponent: "Dual") -> "Dual":
        """Power; 0, as its derivatives are, where the base is not positive.

        Where it reaches 0 the derivatives hold on either side of it, and the power is continuous if
        exponents are positive; if one is not, the power jumps and no slope bounds it.
        """
        value = self.value.power(exponent.value)
        by_base = exponent.value * self.value.power(exponent.value - point(1.0))
        by_base = by_base.unless(~((self.value.low > 0) | (exponent.value.low > 0)))
        by_exponent = value * self.value.through(log)
        return Dual(value, _sum(self._scaled(by_base), exponent._scaled(by_exponent)))

    def through(self, function: Coefficients) -> "Dual":
        """An elementary function of it."""
        value, by_value = function(self.value, 1)
        return Dual(value, self._scaled(by_value))

    def _scaled(self, factor: Interval) -> dict[int, Interval]:
        return {k: s * factor for k, s in self.slope.items()}


def _sum(one: dict[int, Interval], other: dict[int, Interval]) -> dict[int, Interval]:
    return one | other | {k: one[k] + other[k] for k in one.keys() & other.keys()}


LEAST = TINY / UNIT  # replaces a defect of 0, as of a state at rest: v must exceed `up`
TRIES = 2  # tubes that are tried, each wider
WIDER = 4.0  # the first one, times what X lacks: steps are such that |M| is about 0.7 at most


class StepBounds(NamedTuple):
    """Outcome of a step, for each box.

    states   at its end, remainders in `error`
    error    (n, n_boxes) bound on what the states lack; nan or infinite where nothing was proved
    growth   (n_boxes,) the largest row sum of |M|
    late     (n, n_boxes) size of the highest power of tau in X
    """

    states: list[Polynomial]
    error: FloatArray
    growth: FloatArray
    late: FloatArray


def validated_step(
    experiment: Replay,
    p: Sequence[Polynomial],
    x: Sequence[Polynomial],
    t: FloatArray,
    h: FloatArray,
    *,
    u: Sequence[InputLine] = (),
) -> StepBounds:
    """Integrate from t (n_boxes,) over a length h that is known up to two units of rounding.

    p, x  one polynomial for each parameter and state, constant in tau, x without remainders
    u     inputs from t to t + h
    """
    space, guess = x[0].space, list(x)
    with np.errstate(all="ignore"):
        for order in range(space.order):  # Picard iterations without remainders
            low = replace(space, order=order, careful=False)
            cut = [[Polynomial(low, f.c[:, : order + 1], f.e * 0) for f in v] for v in (p, guess)]
            rates = [f.c for f in _slopes(experiment, *cut, t=t, h=h, u=u)]
            scaled = [c * h / np.arange(1, c.shape[1] + 1)[:, None] for c in rates]
            longer = [np.concatenate([f.c, c], axis=1) for f, c in zip(x, scaled, strict=True)]
            guess = [Polynomial(space, c, f.e) for f, c in zip(x, longer, strict=True)]
        d = _defect(guess, _slopes(experiment, p, guess, t=t, h=h, u=u), h)
        matrix = partial(growth_matrix, experiment, [f.range() for f in p], t=t, h=h, u=u)
        v, growth = supersolution(matrix, [f.range() for f in guess], d)
        ends = [f.at_end() for f in guess]
        error = np.stack([up(one + end.e) for one, end in zip(v, ends, strict=True)])
        late = np.stack([f.norms[:, -1:].sum(axis=(0, 1)) for f in guess])
    return StepBounds([replace(f, e=f.e * 0) for f in ends], error, growth, late)


def _slopes(
    experiment: Replay,
    p: Sequence[Polynomial],
    x: Sequence[Polynomial],
    *,
    t: FloatArray,
    h: FloatArray,
    u: Sequence[InputLine],
) -> list[Polynomial]:
    space, boxes = x[0].space, len(t)
    clock = np.zeros((space.size, min(2, space.order + 1), boxes))
    clock[0] = np.stack([t, h])[: clock.shape[1]]
    time = Polynomial(space, clock, up(4 * UNIT * np.abs(h)))
    given = [[time], x, p, [v.polynomial(space, t, h) for v in u]]
    return experiment.slopes(given, constants(space, boxes))


def _defect(guess: Sequence[Polynomial], slopes: Sequence[Polynomial], h: FloatArray) -> FloatArray:
    """Bound on |h f(X) - X'|, one row for each state."""
    defects = []
    for f, slope in zip(guess, slopes, strict=True):
        c = f.c[:, 1:] * np.arange(1, f.c.shape[1])[:, None]
        rate = Polynomial(f.space, c, up(2 * UNIT * np.abs(c).sum(axis=(0, 1))))
        missing = slope.times(h, units=2) - rate
        defects.append(up(missing.norm + missing.e))
    return np.stack(defects)


def supersolution(
    matrix: Callable[[list[Interval]], FloatArray], x: Sequence[Interval], d: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """v (n, n_boxes), infinite where none was found; and the largest row sum of |M|.

    matrix  M for ranges of the states;  x  the ranges of X
    """
    d = np.maximum(d, LEAST)
    v, growth = np.full_like(d, np.inf), np.full(d.shape[1], np.inf)
    w = WIDER * d
    for _ in range(TRIES):
        m = matrix([outward(f.low - w[i], f.high + w[i]) for i, f in enumerate(x)])
        trial = d * 1.001
        for _ in range(6):
            trial = 1.001 * (d + np.maximum(_image(m, trial), 0.0))
        proved = (trial >= up(d + _supremum(m, trial))) & (trial <= w) & (trial > 0)
        fresh = proved.all(axis=0) & ~np.isfinite(v).all(axis=0)
        v[:, fresh] = trial[:, fresh]
        growth[fresh] = np.abs(m).sum(axis=1).max(axis=0)[fresh]
        missing = ~np.isfinite(v).all(axis=0)
        if not np.isfinite(trial[:, missing]).all(axis=0).any():
            break
        w = np.where(proved.all(axis=0), w, np.maximum(1.5 * trial, 2 * w))
    return v, growth


def _image(m: FloatArray, v: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ijb,jb->ib", m, v))


def _supremum(m: FloatArray, v: FloatArray) -> FloatArray:
    """Upper bound of max(0, M v), rounding included."""
    sizes = (np.abs(m) * v).sum(axis=1)
    return np.asarray(np.maximum(_image(m, v) + 4 * (len(m) + 1) * UNIT * sizes, 0.0))


def growth_matrix(
    experiment: Replay,
    p: Sequence[Interval],
    x: Sequence[Interval],
    t: FloatArray,
    h: FloatArray,
    *,
    u: Sequence[InputLine] = (),
) -> FloatArray:
    """(n, n, n_boxes) M above, from the Jacobian over intervals of the states."""
    n, boxes = len(x), len(t)
    length = outward(h * (1 - 8 * UNIT), h * (1 + 8 * UNIT))
    time = Interval(t, t) + point(0.0) + Interval(np.zeros(boxes), length.high)
    one = point(np.ones(boxes))
    states = [Dual(value, {j: one}) for j, value in enumerate(x)]
    given = [[time], p, [v.between(time) for v in u]]
    clock, parameters, inputs = ([Dual(value, {}) for value in part] for part in given)
    values = [clock, states, parameters, inputs]
    slopes = experiment.slopes(values, lambda number: Dual(point(number), {}))
    m = np.zeros((n, n, boxes))
    for i, f in enumerate(slopes):
        for j, slope in f.slope.items():
            part = slope * length
            m[i, j] = part.high if i == j else part.size
    return np.where(np.isnan(m), np.inf, m)
