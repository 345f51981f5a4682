"""Conserved sums of states, which cut what states can be where that makes tubes narrower.

Total mass, atoms, a population: sums with whole coefficients whose slope is zero. Some boxes of the
search tell whether they pay: tubes must prove more, for no more work.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.shared_rates import null_space
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.factoring import KNOWN, Rewriter, TooManyTerms
from igpe.proofs.prover.kernels.tape import OpTape

LARGEST = 1000  # coefficient
GAIN = 0.1  # of the boxes' cuts: what sums must add to the bounds of tubes


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
    found = [one for one in map(_whole, null_space(slopes)) if one and np.count_nonzero(one) > 1]
    return np.array(found, dtype=float).reshape(len(found), n)


def choose_sums(
    enclosure: BoxEnclosure, boxes: Sequence[tuple[FloatArray, FloatArray, float]]
) -> None:
    """Let tubes heed the conserved sums of all experiments if they pay on boxes.

    boxes  of a search that goes on: lower and upper ends, and the cut
    """
    none = enclosure.sums
    found = [conserved(run.tapes[0]) for run in enclosure.dynamic.experiments]
    if not any(map(len, found)) or not boxes:
        return
    before = _tried(enclosure, boxes)
    enclosure.heed(found)
    after = _tried(enclosure, boxes)
    if not (after.proved > before.proved + GAIN * len(boxes) and after.work <= before.work):
        enclosure.heed(none)


class _Trial(NamedTuple):
    """What coarse tubes prove: sum over boxes of bound / cut, at most 1 each; and operations."""

    proved: float
    work: float


def _tried(
    enclosure: BoxEnclosure, boxes: Sequence[tuple[FloatArray, FloatArray, float]]
) -> _Trial:
    proved, begun = 0.0, enclosure.work
    for low, high, cut in boxes:
        bound = enclosure.coarse(low, high, cut)
        proved += 1.0 if bound >= cut else bound / cut
    return _Trial(proved, enclosure.work - begun)


def _whole(given: Sequence[Fraction]) -> tuple[int, ...] | None:
    """The same direction in whole numbers without a common factor; None if they are large."""
    scale = lcm(*(v.denominator for v in given))
    whole = [int(v * scale) for v in given]
    common = gcd(*whole) * (1 if next((v for v in whole if v), 1) > 0 else -1)
    found = tuple(v // common for v in whole) if common else ()
    return found if found and max(map(abs, found)) <= LARGEST else None
