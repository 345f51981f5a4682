"""Slopes of the faces of a tube over a step: what Mueller's bounds are made of."""

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.proofs.prover.compiled import kernel
from igpe.proofs.prover.enclosures.intervals import enclose
from igpe.proofs.prover.writer import GENERAL_POWER, POWER, Tape

ROOM, TIGHT = 0.1, 1e-9  # share of its way by which a face may miss the slope it was tried with
FALLEN = 1e-8  # share of a face that is left at least after it fell
FALLS = 3  # how far is tried


@kernel
def face(
    tape: Tape,
    i: int,
    side: int,
    path: FloatArray,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
    out: FloatArray,
) -> float:
    """Worst slope of state i on its face's path (2,) while the others are anywhere in x."""
    low, high = x[i, 0], x[i, 1]
    x[i, 0], x[i, 1] = path[0], path[1]
    enclose(tape, i, x, p, u, out)
    x[i, 0], x[i, 1] = low, high
    return float(out[tape.results[i], side])


@kernel
def _paths(
    now: FloatArray,
    h: float,
    slope: FloatArray,
    fine: float,
    falling: bool,
    paths: FloatArray,
    x: FloatArray,
) -> None:
    """Where the faces (n_x, 2) may go over the step (n_x, 2, 2), and the tube x (n_x, 2).

    There is room, a share of the way, for other slopes; and for changes of small ones, as states
    near an equilibrium have. A face that falls far has hardly any: see `fall`.
    """
    for i in range(len(now)):
        for s in range(2):
            end = now[i, s] + h * slope[i, s]
            share = TIGHT if falling and s == 1 and end < 0.5 * now[i, s] else ROOM
            room = share * (abs(h * slope[i, s]) + fine * abs(now[i, s])) + 1e-14 * abs(h)
            paths[i, s, 0] = min(now[i, s], end) - room
            paths[i, s, 1] = max(now[i, s], end) + room
        x[i, 0], x[i, 1] = paths[i, 0, 0], paths[i, 1, 1]


@kernel
def _keep_positive(
    tape: Tape,
    now: FloatArray,
    paths: FloatArray,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
    positive: BoolArray,
    out: FloatArray,
) -> None:
    """Cut off what is below zero where no solution goes: its slope is not negative at zero.

    A solution that is not negative in these states remains so (Nagumo), as right-hand sides without
    broken powers are locally Lipschitz. With such powers the slope must not be negative below zero
    either: what falls below zero cannot have fallen there. What does not have the property is found
    out one by one.
    """
    n, below = len(now), np.zeros(2)
    broken = (tape.function == POWER).any() or (tape.op == GENERAL_POWER).any()
    for i in range(n):
        positive[i] = now[i, 0] >= 0.0
    wrong = True
    while wrong:
        wrong = False
        for i in range(n):
            x[i, 0] = max(paths[i, 0, 0], 0.0) if positive[i] else paths[i, 0, 0]
        for i in range(n):
            touches = positive[i] and not (min(paths[i, 0, 0], paths[i, 1, 0]) >= 0.0)
            if broken:
                below[0] = min(paths[i, 0, 0], paths[i, 1, 0], 0.0)
            if touches and not (face(tape, i, 0, below, x, p, u, out) >= 0.0):
                positive[i] = False
                wrong = True
    for i in range(n):
        if positive[i]:
            for s in range(2):
                paths[i, s, 0] = max(paths[i, s, 0], 0.0)
                paths[i, s, 1] = max(paths[i, s, 1], 0.0)


@kernel
def try_step(
    tape: Tape,
    now: FloatArray,
    h: float,
    p: FloatArray,
    u: FloatArray,
    slope: FloatArray,
    fine: float,
    falling: bool,
    positive: BoolArray,
    out: FloatArray,
) -> bool:
    """Whether slopes (n_x, 2) hold over the step; they are what was found, right or not.

    falling   whether slopes are those of `fall`: where one leads further inward than its face may
              go, it is taken to lead nearly as far as that
    positive  (n_x,) becomes which states are known not to be negative
    """
    n = len(now)
    paths, x = np.empty((n, 2, 2)), np.empty((n, 2))
    found = np.empty((n, 2))
    _paths(now, h, slope, fine, falling, paths, x)
    _keep_positive(tape, now, paths, x, p, u, positive, out)
    good = True
    for i in range(n):
        for s in range(2):
            found[i, s] = face(tape, i, s, paths[i, s], x, p, u, out)
            end = now[i, s] + h * found[i, s]
            if positive[i]:
                end = max(end, 0.0)
            inward = paths[i, s, 1 - s]
            if falling and ((end < inward) if s == 1 else (end > inward)):
                found[i, s] = (inward - now[i, s]) / h * (1.0 - 1e-12)
            elif not (paths[i, s, 0] <= end <= paths[i, s, 1]):
                good = False
    slope[:] = found
    return good


@kernel
def fall(
    tape: Tape,
    now: FloatArray,
    h: float,
    p: FloatArray,
    u: FloatArray,
    first: FloatArray,
    slope: FloatArray,
    fine: float,
    positive: BoolArray,
    out: FloatArray,
) -> bool:
    """`try_step` with upper faces that fall far within the step, as one of a fast decay does.

    Where slopes shrink as states do, x' = -r x, a face falls to x / (1 + r h); of x' = -r x^2 and
    x' = -r x^4 to its root and that of its root.
    """
    power = 1.0
    for _ in range(FALLS):
        slope[:] = first
        for i in range(len(now)):
            if stalls(now[i, 1], h, first[i, 1], 0.0):
                ratio = 1.1 / (1.0 - h * first[i, 1] / now[i, 1])
                left = max(ratio**power, FALLEN)
                slope[i, 1] = -max(1.0 - left, 0.0) * now[i, 1] / h
        if try_step(tape, now, h, p, u, slope, fine, True, positive, out):
            return True
        power *= 0.5
    return False


@kernel
def stalls(now: float, h: float, first: float, slope: float) -> bool:
    """Whether an upper face should fall far within a step, by its first slope, and does not."""
    return now > 0.0 and h * first < -0.5 * now and slope > 0.1 * first


@kernel
def guess(first: FloatArray, slope: FloatArray) -> None:
    """Slopes that would be found again, those found being linear in those tried (secants).

    They are what an implicit method takes, where equations are stiff.
    """
    for i in range(len(slope)):
        for s in range(2):
            if first[i, s] != 0.0:
                change = (slope[i, s] - first[i, s]) / first[i, s]
                if change < 0.0:
                    slope[i, s] = first[i, s] / (1.0 - change)
