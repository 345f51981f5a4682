"""The horizon in pieces, on which nothing jumps.

It is cut where an input jumps, where a pulse of time begins, and where the distances of the outputs
are too different; each piece runs in a time of its own from 0 to 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.equations.initial_value import InitialValueProblem

CLOSEST = 1e-6  # outputs closer than this fraction of a piece begin a new one


@dataclass(frozen=True)
class Piece:
    """A stretch without jumps.

    begin    where it starts;  outputs (n_out,) where it reports, the last is its end
    rows     (n_rows,) rows of the result that the first n_rows outputs fill
    inputs   (2 n_u,) a and b of u = a + b t
    """

    begin: float
    outputs: FloatArray
    rows: IntArray
    inputs: FloatArray

    @property
    def span(self) -> float:
        """How long it is."""
        return float(self.outputs[-1]) - self.begin if len(self.outputs) else 0.0

    @property
    def places(self) -> FloatArray:
        """The outputs in the piece's own time, from 0 to 1."""
        return (self.outputs - self.begin) / self.span if len(self.outputs) else self.outputs

    def parts(self, first: int = 0) -> list["Piece"]:
        """Each output from the `first` as a piece."""
        begins = [self.begin, *self.outputs[:-1]]
        return [
            Piece(float(begins[k]), self.outputs[k : k + 1], self.rows[k : k + 1], self.inputs)
            for k in range(first, len(self.outputs))
        ]


def pieces_of(
    ivp: InitialValueProblem, times: FloatArray, stops: Iterable[float] = ()
) -> tuple[Piece, ...]:
    """The pieces from the problem's start to the last of `times`; at least one.

    stops  times at which pieces end besides
    """
    last = float(times[-1])
    inside = {*ivp.breaks(last), *(t for t in stops if ivp.t0 < t < last)}
    edges = [ivp.t0, *sorted(inside), last]
    return tuple(p for begin, end in pairwise(edges) for p in _between(ivp, begin, end, times))


def _between(ivp: InitialValueProblem, begin: float, end: float, grid: FloatArray) -> list[Piece]:
    """A stretch between jumps, cut so that no outputs are closer than `CLOSEST` of a piece."""
    inputs = np.concatenate(ivp.input_segment(begin))
    if end <= begin:
        return [Piece(begin, np.zeros(0), np.zeros(0, dtype=np.intp), inputs)]
    inside = grid[(grid > begin) & (grid <= end)]
    outputs = np.union1d(inside, [end])
    pieces = []
    for group in _groups(begin, outputs):
        rows = np.flatnonzero((grid > begin) & (grid <= group[-1]))
        pieces.append(Piece(begin, group, rows, inputs))
        begin = float(group[-1])
    return pieces


def _groups(begin: float, outputs: FloatArray) -> list[FloatArray]:
    groups: list[list[float]] = [[]]
    last, closest = begin, np.inf
    for time in outputs:
        gap = min(closest, float(time - last))
        if groups[-1] and gap < CLOSEST * (time - begin):
            groups.append([])
            begin, gap = last, float(time - last)
        groups[-1].append(float(time))
        last, closest = float(time), gap
    return [np.array(group) for group in groups]
