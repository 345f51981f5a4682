"""Intervals cut where inputs jump or pulses begin, and the times they report, as plain arrays."""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.intervals import interval_of
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.time.timed import Stops


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

    def at(self, q: FloatArray) -> "Cut | None":
        """The same intervals cut where the unknowns q move pulses to; None if too often."""
        if not self.stops.moving:
            return self
        times = self.stops.at(q)
        return None if times is None else _cut(self.ivp, self.nodes, self.times, self.stops, times)

    @property
    def intervals(self) -> int:
        """K, how many there are."""
        return len(self.nodes) - 1

    @property
    def rounds(self) -> list["Round"]:
        """The first pieces of all intervals, their second ones, and so on."""
        found = []
        for n in range(int(np.diff(self.first).max())):
            which = np.flatnonzero(np.diff(self.first) > n)
            pieces = self.first[which] + n
            found.append(Round(self, which, pieces))
        return found

    @property
    def at_starts(self) -> IntArray:
        """The times that are the start of their interval."""
        owner = interval_of(self.nodes, self.times)
        return np.flatnonzero(self.times <= self.nodes[owner])


@dataclass(frozen=True)
class Round:
    """One piece of each of some intervals, for methods that integrate them side by side.

    which   (n,) the intervals;  pieces (n,) the piece of each
    """

    cut: Cut
    which: IntArray
    pieces: IntArray

    @property
    def begin(self) -> FloatArray:
        """(n,) where they begin."""
        times: FloatArray = self.cut.edges[self.pieces, 0]
        return times

    @property
    def end(self) -> FloatArray:
        """(n,) where they end."""
        times: FloatArray = self.cut.edges[self.pieces, 1]
        return times

    @property
    def rows(self) -> tuple[IntArray, IntArray]:
        """(n,), (n,): the first time after each beginning, and after each end."""
        last = self.cut.rows[self.which + 1]
        after = (np.searchsorted(self.cut.times, t, side="right") for t in (self.begin, self.end))
        first, beyond = (np.minimum(v, last).astype(np.intp) for v in after)
        return first, beyond


def cut(ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Cut:
    """Cut the intervals between the nodes.

    raises ValueError if nodes or times do not increase, or times lie outside the nodes
    """
    nodes, times = (np.ascontiguousarray(v, dtype=float) for v in (nodes, times))
    _check(nodes, times)
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
    marks = np.union1d(nodes, sorted(breaks))
    inputs = np.array([np.concatenate(ivp.input_segment(t)) for t in marks[:-1]])
    before = np.clip(np.searchsorted(marks, times, side="left") - 1, 0, None)
    return Cut(
        nodes,
        times,
        first=np.searchsorted(marks, nodes).astype(np.intp),
        edges=np.stack([marks[:-1], marks[1:]], axis=1),
        inputs=inputs,
        rows=np.searchsorted(interval_of(nodes, times), np.arange(len(nodes))).astype(np.intp),
        row_inputs=np.ascontiguousarray(inputs[before]),
        ivp=ivp,
        stops=stops,
    )


def _check(nodes: FloatArray, times: FloatArray) -> None:
    lengths = np.diff(nodes)
    if len(lengths) == 0 or not (lengths > 0).all():
        raise ValueError(f"Nodes must increase, and be two at least; got {nodes}.")
    if (np.diff(times) < 0).any():
        raise ValueError("The times must increase.")
    if len(times) and not (nodes[0] <= times[0] and times[-1] <= nodes[-1]):
        raise ValueError(
            f"The times, from {times[0]:g} to {times[-1]:g}, must lie within the nodes, from "
            f"{nodes[0]:g} to {nodes[-1]:g}."
        )
