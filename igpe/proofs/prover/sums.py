"""Sums of states that are bounded beside the states, where that makes tubes narrower.

Candidates are sums with whole coefficients in whose slope terms cancel: what is conserved first,
whose slope is zero, then what one step after the other cancels terms of two slopes. Tubes over
some boxes choose among them; most help nothing, and each costs a face more on either side.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.factoring import KNOWN, Monomial, Rewriter, Sum, TooManyTerms
from igpe.proofs.prover.kernels.mueller import Schedule, tube
from igpe.proofs.prover.kernels.rows import BoxRows, TubeRun, clear, tube_rows
from igpe.proofs.prover.kernels.tape import OpTape

Coefficients = tuple[int, ...]
MOST = 16  # candidates that are tried
LARGEST = 1000  # coefficient
KEPT = 3  # sums
GAIN = 0.1  # share by which a further sum must add to what tubes tell
SHARES = (0.5, 0.2, 0.1, 0.05)  # of the bounds' ranges: boxes on which sums are tried
FINE, STEPS = 0.05, 100  # their tubes


def candidates(tape: OpTape) -> list[Coefficients]:
    """Coefficients of sums of the tape's results in which terms cancel, the most telling first."""
    slopes = _expanded(tape)
    if not slopes:
        return []
    found = _conserved(slopes)
    seen = set(found)
    n = len(slopes)
    last: list[Coefficients] = [tuple(int(i == j) for j in range(n)) for i in range(n)]
    while last and len(found) < MOST:
        fresh: dict[Coefficients, int] = {}
        for one in last:
            given = _total(slopes, one)
            for j in range(n):
                if one[j]:
                    continue
                for monomial in given.keys() & slopes[j].keys():
                    both = _cancelling(one, j, given[monomial], slopes[j][monomial])
                    if both is not None and both not in seen:
                        fresh[both] = len(_total(slopes, both))
        last = sorted(fresh, key=lambda c: (fresh[c], sum(map(abs, c)), c))[:MOST]
        seen |= set(last)
        found += last
    return found[:MOST]


def with_sums(tape: OpTape, sums: Sequence[Coefficients]) -> OpTape:
    """The tape factored, with the slopes of the sums as further results."""
    rewriter = Rewriter(tape)
    slopes = [rewriter.expanded(int(r)) for r in tape.results]
    every = [*slopes, *(_total(slopes, one) for one in sums)]
    return rewriter.writer.needed_only([rewriter.emitted(one) for one in every])


def sharpened(
    tapes: tuple[OpTape, OpTape, OpTape],
    sharp: OpTape,
    schedule: Schedule,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[OpTape, FloatArray]:
    """Slopes of an experiment with those of the sums that pay, and the sums (n_sums, n_x).

    tapes  of slopes, measured quantities and start values
    sharp  the slopes factored: what is returned where no sum pays
    """
    none = sharp, np.zeros((0, len(tapes[0].results)))
    left, kept = candidates(tapes[0]), list[Coefficients]()
    if not left:
        return none
    boxes = _boxes(lower, upper)
    best, known = none, _known(none, tapes, schedule, boxes)
    while left and len(kept) < KEPT:
        tried = {}
        for one in left:
            try:
                tried[one] = with_sums(tapes[0], [*kept, one]), np.array([*kept, one], float)
            except TooManyTerms:
                continue
        scores = {one: _known(given, tapes, schedule, boxes) for one, given in tried.items()}
        chosen = max(scores, key=lambda one: scores[one], default=None)
        if chosen is None or not scores[chosen] > (1 + GAIN) * known:
            break
        best, known = tried[chosen], scores[chosen]
        kept.append(chosen)
        left.remove(chosen)
    return best


def _known(
    given: tuple[OpTape, FloatArray],
    tapes: tuple[OpTape, OpTape, OpTape],
    schedule: Schedule,
    boxes: Sequence[FloatArray],
) -> float:
    """Sum over boxes and measurements of 1 - width / size, where tubes are as narrow as that."""
    size = len(schedule.value)
    shapes = (size, 1), *[(size,)] * 4, (len(boxes[0]), 2), (1,)
    rows = BoxRows(*map(np.zeros, shapes))
    run = TubeRun(*given, tapes[1], tapes[2], schedule, tube(len(tapes[2].results)), rows, 0)
    large = np.zeros(int(schedule.column.max(initial=0)) + 1)
    np.maximum.at(large, schedule.column, np.abs(schedule.value))
    whole = np.where(large > 0, large, 1.0)[schedule.column] * schedule.weight
    total = 0.0
    for box in boxes:
        clear(rows)
        tube_rows(run, box, FINE, STEPS, np.inf)
        width = np.nan_to_num((rows.high - rows.low) / whole, nan=1.0)
        total += float(np.maximum(1 - width, 0.0).sum())
    return total


def _boxes(lower: FloatArray, upper: FloatArray) -> list[FloatArray]:
    """Boxes about the middle, the geometric one of positive bounds, each (n_p, 2)."""
    positive = lower > 0
    low, high = (np.where(positive, np.log(np.where(positive, v, 1.0)), v) for v in (lower, upper))
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    boxes = [np.stack([middle - share * half, middle + share * half], axis=1) for share in SHARES]
    is_log = positive[:, None]
    return [np.where(is_log, np.exp(np.where(is_log, box, 0.0)), box) for box in boxes]


def _expanded(tape: OpTape) -> list[Sum]:
    if any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return []
    rewriter = Rewriter(tape)
    try:
        return [dict(rewriter.expanded(int(r))) for r in tape.results]
    except TooManyTerms:
        return []


def _total(slopes: Sequence[Sum], coefficients: Coefficients) -> Sum:
    total: Sum = {}
    for slope, a in zip(slopes, coefficients, strict=True):
        for monomial, c in slope.items() if a else ():
            total[monomial] = total.get(monomial, Fraction(0)) + a * c
    return {m: c for m, c in total.items() if c}


def _cancelling(one: Coefficients, j: int, c: Fraction, d: Fraction) -> Coefficients | None:
    """Coefficients of d * one - c * (state j), made whole."""
    return _whole([Fraction(-c) if k == j else d * a for k, a in enumerate(one)])


def _whole(given: Sequence[Fraction]) -> Coefficients | None:
    """The same direction in whole numbers without a common factor; None if they are large."""
    scale = lcm(*(v.denominator for v in given))
    whole = [int(v * scale) for v in given]
    common = gcd(*whole) * (1 if next((v for v in whole if v), 1) > 0 else -1)
    found = tuple(v // common for v in whole) if common else ()
    return found if found and max(map(abs, found)) <= LARGEST else None


def _conserved(slopes: Sequence[Sum]) -> list[Coefficients]:
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
    found = [_whole(row[len(monomials) :]) for row in rows]
    return [one for one in found if one is not None]
