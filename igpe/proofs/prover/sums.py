"""Sums of states, which cut what states can be where that makes tubes narrower.

Total mass, atoms, a population: sums with whole coefficients in whose slopes the rates cancel that
several states share. Where nothing is left of its slope a sum is constant; else tubes bound it like
a state. Searches begin with all sums; a trial on some boxes decides whether to keep them.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.shared_rates import null_space, times
from igpe.proofs.prover.enclosure import BoxEnclosure, Heeded
from igpe.proofs.prover.factoring import KNOWN, Rewriter, Sum, TooManyTerms
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape

LARGEST = 1000  # coefficient
GAIN = 0.015  # of the boxes' cuts: what sums must add to the bounds of tubes, unless they cost
DEARER = 1.1  # times the work at most


def heeded(tape: OpTape) -> Heeded | None:
    """The slopes of a tape with those of sums in which shared rates cancel; None without any.

    Exact: slopes are multiplied out in rational numbers.
    """
    n = len(tape.results)
    if any(code not in KNOWN for code in tape.op[tape.needed.any(axis=0)].tolist()):
        return None
    rewriter = Rewriter(tape)
    try:
        slopes = [rewriter.expanded(int(r)) for r in tape.results]
        count = Counter(monomial for one in slopes for monomial in one)
        shared = [{m: c for m, c in one.items() if count[m] > 1} for one in slopes]
        every = map(_whole, null_space(shared))
        chosen = [one for one in every if one and np.count_nonzero(one) > 1]
        left = [_combined(one, slopes) for one in chosen]
        rows = np.zeros((len(chosen), n + sum(map(bool, left))))
        results = [rewriter.emitted(one) for one in slopes]
        for row, one, rest in zip(rows, chosen, left, strict=True):
            row[:n] = one
            if rest:
                row[len(results)] = -1.0
                place = rewriter.writer.put(ops.STATE, len(results))
                results.append(rewriter.emitted(_in_terms_of(place, one, rest, rewriter)))
        return Heeded(rewriter.writer.needed_only(results), rows) if chosen else None
    except TooManyTerms:
        return None


def _combined(shares: Sequence[int], slopes: Sequence[Sum]) -> Sum:
    total: Sum = {}
    for share, slope in zip(shares, slopes, strict=True):
        for monomial, c in slope.items():
            total[monomial] = total.get(monomial, Fraction(0)) + share * c
    return {monomial: c for monomial, c in total.items() if c}


def _in_terms_of(place: int, shares: Sequence[int], slope: Sum, rewriter: Rewriter) -> Sum:
    """The slope of a sum of states, with the sum itself, at this place, wherever it occurs."""
    rows = rewriter.writer.rows
    n = len(shares)
    states = {k: row[1] for k, row in enumerate(rows) if row[0] == ops.STATE and row[1] < n}
    groups: dict[tuple[tuple[int, int], ...], dict[int, Fraction]] = {}
    for monomial, c in slope.items():
        for atom, _ in monomial:
            if atom in states and shares[states[atom]]:
                rest = times(monomial, ((atom, -1),))
                groups.setdefault(rest, {})[atom] = c / shares[states[atom]]
    atoms = {atom for atom, i in states.items() if shares[i]}
    left = dict(slope)
    if len(atoms) < np.count_nonzero(shares):  # one of the states is in no slope
        return left
    for rest, own in groups.items():
        gone = [times(rest, ((atom, 1),)) for atom in own]
        if own.keys() == atoms and len(set(own.values())) == 1 and all(m in left for m in gone):
            for monomial in gone:
                del left[monomial]
            left[times(rest, ((place, 1),))] = next(iter(own.values()))
    return left


def heed_sums(enclosure: BoxEnclosure) -> None:
    """Let tubes heed all sums of states of all experiments."""
    enclosure.heed([heeded(run.tapes[0]) for run in enclosure.dynamic.experiments])


def keep_sums_that_pay(
    enclosure: BoxEnclosure, boxes: Sequence[tuple[FloatArray, FloatArray, float]]
) -> None:
    """Let tubes heed no sums any more if, on boxes, that proves hardly less, for less work.

    boxes  of a search that goes on: lower and upper ends, and the cut
    """
    chosen = enclosure.heeded
    if not any(chosen) or not boxes:
        return
    with_sums = _tried(enclosure, boxes)
    enclosure.heed([None] * len(chosen))
    without = _tried(enclosure, boxes)
    if with_sums.work <= DEARER * without.work or (
        with_sums.proved > without.proved + GAIN * len(boxes)
    ):
        enclosure.heed(chosen)


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
