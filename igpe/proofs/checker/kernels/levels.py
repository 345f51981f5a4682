"""Coarse bounds of the states, where rates are too fast, or too unknown, for polynomials.

Let B be a box of states around those at t, and W a box around B. If, between a face of B and that
of W, a state moves outward by less than their distance during a step, whatever the others in W are,
no solution leaves W from t to t + h: what left it would have come from that face of B. No Lipschitz
constant is needed. B is a little larger than the bounds; where a state leaves, its face is moved to
0, at which rates of x' = -r x push back however large r is, and then by twice as much as leaves:
rates that rise to an equilibrium push back there.

Let then L be a level in W below the upper end of a state. If its slope on [L, end] is at most
-(end - L) / h, the state is at most L at t + h: it falls as long as it is above L, fast enough, and
cannot rise again. Levels above the lower end likewise.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.kernels.intervals import Pair, add, multiply, outward, size, subtract
from igpe.proofs.checker.kernels.tape import ReplayTape, Values, evaluate
from igpe.proofs.compiled import kernel

SHARES = (
    2.0**-30,
    2.0**-16,
    2.0**-8,
    2.0**-4,
    0.25,
    0.5,
    0.75,
    1 - 2.0**-3,
    1 - 2.0**-5,
    1 - 2.0**-8,
)
"""Of a range, from its far end: levels to be tried before `HALVINGS` between two of them."""
HALVINGS = 4
ROOM, LEAST_STEP = 1e-9, 1e-100  # relative to the size of a state; of one that is 0
TRIES = 10  # boxes around the states, each larger


@kernel
def _change(
    tape: ReplayTape,
    time: Pair,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    i: int,
    low: float,
    high: float,
    length: Pair,
) -> Pair:
    """Slope of state i in [low, high], the others anywhere in `wide`, times the step."""
    kept = wide[i, 0], wide[i, 1]
    wide[i] = low, high
    evaluate(tape, time, wide, p, u, False, values)
    wide[i] = kept
    at = tape.results[i]
    return multiply(values.value[at, 0], values.value[at, 1], length[0], length[1])


@kernel
def _wider(low: float, high: float, share: float) -> Pair:
    room = share * (ROOM * size(low, high) + LEAST_STEP)
    return outward(low - room, high + room)


@kernel
def _stays(
    tape: ReplayTape,
    time: Pair,
    box: FloatArray,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    length: Pair,
) -> bool:
    """Whether no state leaves `wide`, which is written around B; if not, `box` is made larger."""
    held, n = True, len(box)
    inner = np.empty((n, 2))
    for i in range(n):
        inner[i] = _wider(box[i, 0], box[i, 1], 0.5)
        wide[i] = _wider(box[i, 0], box[i, 1], 1.0)
    for i in range(n):
        a, b, c, d = wide[i, 0], inner[i, 0], inner[i, 1], wide[i, 1]
        most = _change(tape, time, wide, p, u, values, i, c, d, length)[1]
        least = _change(tape, time, wide, p, u, values, i, a, b, length)[0]
        if not most < 0.9 * (d - c):
            box[i, 1], held = (0.0 if d < 0 else d + 2 * most), False
        if not least > -0.9 * (b - a):
            box[i, 0], held = (0.0 if a > 0 else a + 2 * least), False
    return held


@kernel
def _level(
    tape: ReplayTape,
    time: Pair,
    wide: FloatArray,
    p: FloatArray,
    u: FloatArray,
    values: Values,
    i: int,
    near: float,
    far: float,
    length: Pair,
) -> float:
    """Level towards `far` that state i, from `near` or beyond, has passed after a step.

    Where none is known it is infinite, which bounds nothing: the state may move the other way.
    A level nearer to `near` is passed if one further away is, so the search is by bisection.
    """
    passed = -np.inf if near < far else np.inf
    missed, start = far, near  # the halvings are between these, and a level that is passed
    first, last, left = 0, len(SHARES), HALVINGS
    while first < last or left > 0:
        k = (first + last) // 2
        if first < last:
            level = far + SHARES[k] * (near - far)
        else:
            level, left = missed / 2 + start / 2, left - 1
        low, high = min(near, level), max(near, level)
        slope = _change(tape, time, wide, p, u, values, i, low, high, length)
        way = subtract(level, level, near, near)
        is_inside = min(near, far) <= level <= max(near, far)
        is_passed = slope[0] >= way[1] if near < far else slope[1] <= way[0]
        if is_inside and is_passed:
            passed, start, last = level, level, k
        else:
            missed, first = level, k + 1
    return passed


@kernel
def coarse_step(
    tape: ReplayTape, time: Pair, x: FloatArray, p: FloatArray, u: FloatArray, values: Values
) -> bool:
    """Replace ranges x (n_states, 2) by those at the end of a step; whether they hold."""
    n, length = len(x), subtract(time[1], time[1], time[0], time[0])
    box, wide, after = np.empty((n, 2)), np.empty((n, 2)), np.empty((n, 2))
    for i in range(n):
        box[i] = x[i, 0], x[i, 1]
    tries = 0
    while not _stays(tape, time, box, wide, p, u, values, length):
        tries += 1
        if tries == TRIES or not np.isfinite(box).all():
            return False
    for i in range(n):
        a, d = wide[i, 0], wide[i, 1]
        change = _change(tape, time, wide, p, u, values, i, a, d, length)
        moved = add(x[i, 0], x[i, 1], change[0], change[1])
        falls = _level(tape, time, wide, p, u, values, i, x[i, 1], a, length)
        rises = _level(tape, time, wide, p, u, values, i, x[i, 0], d, length)
        after[i] = max(a, moved[0], rises), min(d, moved[1], falls)
    x[:] = after
    return True
