"""Intervals cut into pieces on which nothing jumps, and the times they report, as plain arrays.

An interval is cut where an input jumps and where a pulse of time begins.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.switching import refused
from igpe.equations.timed import Stops

CLOSEST = 1e-6  # outputs closer than this fraction of a piece begin a new one


class Piece(NamedTuple):
    """A stretch without jumps, in a time of its own from 0 to 1.

    begin    where it starts;  outputs (n_out,) where it reports, the last is its end
    rows     (n_rows,) rows of the result that the first n_rows outputs fill
    inputs   (2 n_u,) a and b of u = a + b t
    moving   whether the unknowns move such stretches
    """

    begin: float
    outputs: FloatArray
    rows: IntArray
    inputs: FloatArray
    moving: bool = False

    @property
    def span(self) -> float:
        """How long it is."""
        return float(self.outputs[-1]) - self.begin if len(self.outputs) else 0.0

    @property
    def places(self) -> FloatArray:
        """The outputs in the piece's own time, from 0 to 1."""
        return (self.outputs - self.begin) / self.span if len(self.outputs) else self.outputs

    def parts(self, first: int = 0) -> Iterator["Piece"]:
        """Each output from the `first` as a piece."""
        begins = [self.begin, *self.outputs[:-1].tolist()]
        for k in range(first, len(self.outputs)):
            one = slice(k, k + 1)
            yield self._replace(begin=begins[k], outputs=self.outputs[one], rows=self.rows[one])


class Round(NamedTuple):
    """One piece of each of n intervals, for methods that integrate them side by side.

    which       (n,) the intervals;  begin, end (n,) where their pieces begin and end
    inputs      (n, 2 n_u) a and b of u = a + b t
    next, last  (n,) the first time after each beginning, and after each end
    """

    which: IntArray
    begin: FloatArray
    end: FloatArray
    inputs: FloatArray
    next: IntArray
    last: IntArray


@dataclass(frozen=True)
class Cut:
    """K intervals as pieces, one after the other.

    nodes   (K + 1,), times (n_times,): as given
    first   (K + 1,) the first piece of each interval, and how many there are
    edges   (n_pieces, 2) where each begins and ends
    inputs  (n_pieces, 2 n_u) a and b of u = a + b t on each
    rows    (K + 1,) the first time of each interval, and how many there are
    row_inputs  (n_times, 2 n_u) a and b at each time: at a jump those before it
    ivp     whose intervals they are;  stops: where else they are cut
    also    times at which they are cut beside nodes and tables
    moved   whether these intervals are others at other unknowns
    """

    nodes: FloatArray
    times: FloatArray
    first: IntArray
    edges: FloatArray
    inputs: FloatArray
    rows: IntArray
    row_inputs: FloatArray
    ivp: InitialValueProblem
    stops: Stops
    also: tuple[float, ...] = ()
    moved: bool = False

    def at(self, q: FloatArray) -> "Cut | None":
        """The same intervals cut where the unknowns q move pulses to; None if too often."""
        if not self.stops.moving:
            return self
        times = self.stops.at(q)
        if times is None:
            return None
        if times == self.also:
            return self
        found = _cut(self.ivp, self.nodes, self.times, self.stops, times)
        return replace(found, moved=self.moved)

    def over(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> "Cut":
        """Other intervals within the horizon, with the tables of `ivp`."""
        found = _cut(ivp, nodes, times, self.stops, self.stops.known)
        return replace(found, moved=True)

    def until(self, last: float) -> "Cut":
        """One interval that ends at the last of the times up to `last`."""
        times = self.times[self.times <= last]
        if len(times) == 0:
            raise ValueError(
                f"No reported time is at or before {last:g}; the first reported time is "
                f"{self.times[0]:g}."
            )
        nodes = np.array([self.nodes[0], times[-1]])
        return _cut(self.ivp, nodes, times, self.stops, self.stops.known)

    @property
    def intervals(self) -> int:
        """K, how many there are."""
        return len(self.nodes) - 1

    @property
    def owner(self) -> IntArray:
        """(n_times,) the interval that each time belongs to."""
        return np.repeat(np.arange(self.intervals), np.diff(self.rows))

    @property
    def rounds(self) -> Iterator[Round]:
        """The first pieces of all intervals, their second ones, and so on."""
        for n in range(int(np.diff(self.first).max())):
            which = np.flatnonzero(np.diff(self.first) > n)
            pieces, last = self.first[which] + n, self.rows[which + 1]
            begin, end = self.edges[pieces].T
            after = (np.searchsorted(self.times, t, side="right") for t in (begin, end))
            rows = (np.minimum(v, last).astype(np.intp) for v in after)
            yield Round(which, begin, end, self.inputs[pieces], *rows)

    def pieces(self, k: int, grid: FloatArray) -> Iterator[Piece]:
        """The pieces of interval k, which report at the times `grid` (n,) and at their ends.

        A piece ends early where outputs would be closer than `CLOSEST` of it.
        """
        moved = self.moved or bool(self.stops.moving)
        for i in range(self.first[k], self.first[k + 1]):
            begin, end = (float(v) for v in self.edges[i])
            if end <= begin:
                yield Piece(begin, np.zeros(0), np.zeros(0, dtype=np.intp), self.inputs[i])
                continue
            outputs = np.union1d(grid[(grid > begin) & (grid <= end)], [end])
            for group in _groups(begin, outputs):
                rows = np.flatnonzero((grid > begin) & (grid <= group[-1]))
                yield Piece(begin, group, rows, self.inputs[i], moved)
                begin = float(group[-1])


def _groups(begin: float, outputs: FloatArray) -> list[FloatArray]:
    groups: list[list[float]] = [[]]
    last, closest = begin, np.inf
    for time in outputs.tolist():
        gap = min(closest, time - last)
        if groups[-1] and gap < CLOSEST * (time - begin):
            groups.append([])
            begin, gap = last, time - last
        groups[-1].append(time)
        last, closest = time, gap
    return [np.array(group) for group in groups]


def interval_of(nodes: FloatArray, times: FloatArray) -> IntArray:
    """(n_times,) the interval that each time belongs to."""
    found = np.searchsorted(nodes, times, side="right") - 1
    return np.minimum(found, len(nodes) - 2).astype(np.intp)


def cut(ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Cut:
    """Cut the intervals between the nodes; a single one may be of length 0.

    raises ValueError if nodes or times do not increase, or times lie outside the nodes, Unsupported
           for a problem with events: `igpe.dynamics.integrators.switched` cuts it there
    """
    if ivp.switching is not None:
        raise refused("This integrator")
    nodes, times = (np.ascontiguousarray(v, dtype=float) for v in (nodes, times))
    lengths = np.diff(nodes)
    single = len(lengths) == 1 and lengths[0] >= 0
    if len(lengths) == 0 or not (single or (lengths > 0).all()):
        raise ValueError(f"At least two increasing nodes are needed; got {nodes}.")
    if (np.diff(times) < 0).any():
        raise ValueError("The times must increase.")
    if len(times) and not (nodes[0] <= times[0] and times[-1] <= nodes[-1]):
        raise ValueError(
            f"The times, {times[0]:g} to {times[-1]:g}, must lie within the range of the nodes, "
            f"{nodes[0]:g} to {nodes[-1]:g}."
        )
    stops = ivp.stops(float(nodes[-1]))
    return _cut(ivp, nodes, times, stops, stops.known)


def _cut(
    ivp: InitialValueProblem,
    nodes: FloatArray,
    times: FloatArray,
    stops: Stops,
    also: tuple[float, ...],
) -> Cut:
    breaks = {t for t in (*ivp.breaks(float(nodes[-1])), *also) if nodes[0] < t < nodes[-1]}
    marks = np.union1d(nodes, sorted(breaks)) if nodes[0] < nodes[-1] else nodes
    inputs = np.array([np.concatenate(ivp.input_segment(t)) for t in marks[:-1]])
    before = np.clip(np.searchsorted(marks, times, side="left") - 1, 0, None)
    return Cut(
        nodes,
        times,
        np.append(np.searchsorted(marks, nodes[:-1]), len(marks) - 1).astype(np.intp),
        np.stack([marks[:-1], marks[1:]], axis=1),
        inputs,
        np.searchsorted(interval_of(nodes, times), np.arange(len(nodes))).astype(np.intp),
        np.ascontiguousarray(inputs[before]),
        ivp,
        stops,
        also,
    )
