"""Conserved sums of states, which cut what states can be where that makes tubes narrower.

Total mass, atoms, a population: sums with whole coefficients whose slope is zero. Tubes over some
boxes tell whether they pay: they must tell more, for no more work.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.factoring import KNOWN, Monomial, Rewriter, Sum, TooManyTerms
from igpe.proofs.prover.kernels.mueller import tube
from igpe.proofs.prover.kernels.rows import BoxRows, TubeRun, clear, tube_rows
from igpe.proofs.prover.kernels.tape import OpTape
from igpe.proofs.prover.posed import Dynamic, PosedExperiment

LARGEST = 1000  # coefficient
GAIN = 0.1  # share by which sums must add to what tubes tell
ENOUGH = 0.9  # of what there is to tell: nothing is left to gain
CUT = 4.0  # operations of a tape that take as long as one state of a sum
SHARES = (0.5, 0.2, 0.1, 0.05)  # of the bounds' ranges: boxes on which sums are tried
FINE, STEPS = 0.05, 100  # their tubes


def conserved(tape: OpTape) -> FloatArray:
    """Coefficients (n_sums, n_x) of the sums of a tape's results that are zero, a basis.

    Exact: slopes are multiplied out in rational numbers.
    """
    n = len(tape.results)
    none = np.zeros((0, n))
    if any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return none
    rewriter = Rewriter(tape)
    try:
        slopes = [rewriter.expanded(int(r)) for r in tape.results]
    except TooManyTerms:
        return none
    found = [one for one in _null_space(slopes) if one and np.count_nonzero(one) > 1]
    return np.array(found, dtype=float).reshape(len(found), n)


def with_sums(dynamic: Dynamic) -> Dynamic:
    """The problem with the conserved sums of each experiment that pay."""
    boxes = _boxes(dynamic.lower, dynamic.upper)
    return dynamic._replace(experiments=tuple(_chosen(run, boxes) for run in dynamic.experiments))


def _chosen(run: PosedExperiment, boxes: Sequence[FloatArray]) -> PosedExperiment:
    found = conserved(run.tapes[0])
    if not len(found):
        return run
    before = _tried(run, boxes)
    if before.known > ENOUGH * len(boxes) * len(run.labels):
        return run
    after = _tried(run._replace(sums=found), boxes)
    pays = after.known > (1 + GAIN) * before.known and after.work <= before.work
    return run._replace(sums=found) if pays else run


class _Trial(NamedTuple):
    """What tubes tell: sum over boxes and measurements of 1 - width / size; and operations."""

    known: float
    work: float


def _tried(run: PosedExperiment, boxes: Sequence[FloatArray]) -> _Trial:
    size, schedule, room = len(run.labels), run.schedule, tube(len(run.sharp.results))
    shapes = (size, 1), *[(size,)] * 4, (len(boxes[0]), 2), (1,)
    rows = BoxRows(*map(np.zeros, shapes))
    tubes = TubeRun(run.sharp, run.sums, *run.tapes[1:], schedule, room, rows, 0)
    large = np.zeros(int(schedule.column.max(initial=0)) + 1)
    np.maximum.at(large, schedule.column, np.abs(schedule.value))
    whole = np.where(large > 0, large, 1.0)[schedule.column] * schedule.weight
    held = run.sums != 0  # a face is cut by the sums that hold its state
    cuts = float((held.sum(axis=1) ** 2).sum())
    known = steps = 0.0
    for box in boxes:
        clear(rows)
        tube_rows(tubes, box, FINE, STEPS, np.inf)
        width = np.nan_to_num((rows.high - rows.low) / whole, nan=np.inf)
        known += float(np.maximum(1 - width, 0.0).sum())
        steps += float(room.steps[0])
    return _Trial(known, steps * (float(run.sharp.needed.sum()) + CUT * cuts))


def _boxes(lower: FloatArray, upper: FloatArray) -> list[FloatArray]:
    """Boxes about the middle, the geometric one of positive bounds, each (n_p, 2)."""
    positive = lower > 0
    low, high = (np.where(positive, np.log(np.where(positive, v, 1.0)), v) for v in (lower, upper))
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    boxes = [np.stack([middle - share * half, middle + share * half], axis=1) for share in SHARES]
    return [np.where(positive[:, None], np.exp(box), box) for box in boxes]


def _null_space(slopes: Sequence[Sum]) -> list[tuple[int, ...] | None]:
    """A basis of the sums whose slope is zero, by elimination in rational numbers."""
    n = len(slopes)
    monomials: list[Monomial] = sorted({m for slope in slopes for m in slope})
    rows = [
        [slope.get(m, Fraction(0)) for m in monomials] + [Fraction(int(i == j)) for j in range(n)]
        for i, slope in enumerate(slopes)
    ]
    for k in range(len(monomials)):
        pivot = next((r for r in rows if r[k]), None)
        if pivot is not None:
            rows.remove(pivot)
            rows = [
                [a - r[k] / pivot[k] * b for a, b in zip(r, pivot, strict=True)] if r[k] else r
                for r in rows
            ]
    return [_whole(row[len(monomials) :]) for row in rows]


def _whole(given: Sequence[Fraction]) -> tuple[int, ...] | None:
    """The same direction in whole numbers without a common factor; None if they are large."""
    scale = lcm(*(v.denominator for v in given))
    whole = [int(v * scale) for v in given]
    common = gcd(*whole) * (1 if next((v for v in whole if v), 1) > 0 else -1)
    found = tuple(v // common for v in whole) if common else ()
    return found if found and max(map(abs, found)) <= LARGEST else None
