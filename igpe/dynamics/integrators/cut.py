"""Intervals cut into pieces on which nothing jumps, and the times they report, as plain arrays.

An interval is cut where an input jumps, where a pulse of time begins, and at breaks: where states
jump or modes switch at times that the unknowns alone give.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.dynamics.integrators.limits import TOO_EARLY, TOO_MANY, BrokenError
from igpe.equations.elimination import AtPoint
from igpe.equations.initial_value import InitialValueProblem
from igpe.equations.switching import refused
from igpe.equations.symbols import stack
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


class Break(NamedTuple):
    """Something that happens at a time which the unknowns give.

    which    its place among modes, then jumps: the order in which they happen at one time
    modes    (n_modes,) whether each is 1 from then on
    is_seen  whether what is measured then is measured after it
    """

    time: float
    which: int
    modes: BoolArray
    is_seen: bool


class Breaks:
    """All breaks of an initial value problem whose switching is timed, or None."""

    def __init__(self, ivp: InitialValueProblem) -> None:
        self.given, self.t0, self.moving = ivp.switching, ivp.t0, False
        if self.given is None:
            return
        times, slopes = self.given.all_times, stack(mode[1] for mode in self.given.times)
        rows = [ca.densify(e) for e in (times, slopes, ca.jacobian(times, ivp.q))]
        self._at = AtPoint(ca.Function("breaks", [ivp.q], rows))
        if ivp.q.numel():
            self.moving = bool(ca.depends_on(ca.vertcat(times, slopes), ivp.q))

    def times(self, q: FloatArray) -> list[tuple[float, FloatArray]]:
        """Each time and its derivative (n_q,), in the order of `Break.which`."""
        if self.given is None:
            return []
        times, _, by = self._at(q)
        return list(zip(times.ravel().tolist(), by, strict=True))

    def at(self, q: FloatArray | float) -> tuple[list[Break], BoolArray]:
        """The breaks for unknowns q, as they happen, and the modes before.

        raises BrokenError if an event lies before the start
        """
        if self.given is None:
            return [], np.zeros(0, dtype=bool)
        times, slopes, _ = (v.ravel() for v in self._at(q))
        n = len(slopes)
        if (times[n:] < self.t0).any():
            raise BrokenError(TOO_EARLY.format(times[n:].min(), self.t0))
        modes = (slopes > 0) == (times[:n] < self.t0)  # a time that is no number never comes
        first, breaks = modes.copy(), []
        for which in np.lexsort([np.arange(len(times)), times]):
            if self.t0 <= times[which] < np.inf:
                if is_jump := which >= n:
                    is_seen = self.given.jumps[which - n].is_measured_after
                else:
                    modes = modes ^ (np.arange(n) == which)
                breaks.append(Break(times[which], int(which), modes, is_jump and is_seen))
        return breaks, first


@dataclass(frozen=True)
class Cut:
    """K intervals as pieces, one after the other.

    nodes   (K + 1,), times (n_times,): as given
    first   (K + 1,) the first piece of each interval, and how many there are
    edges   (n_pieces, 2) where each begins and ends
    inputs  (n_pieces, 2 n_u) a and b of u = a + b t on each
    rows    (K + 1,) the first time of each interval, and how many there are
    ends    (n_pieces,) the first time after those that each reports
    broken  (n_pieces,) which break happens where each begins; -1: none
    row_inputs  (n_times, 2 n_u) a and b at each time: at a jump those before it
    ivp     whose intervals they are;  stops, breaks: where else they are cut
    also    times at which they are cut beside nodes, tables and breaks
    moved   whether these intervals are others at other unknowns
    """

    nodes: FloatArray
    times: FloatArray
    first: IntArray
    edges: FloatArray
    inputs: FloatArray
    rows: IntArray
    ends: IntArray
    broken: IntArray
    row_inputs: FloatArray
    ivp: InitialValueProblem
    stops: Stops
    breaks: Breaks
    also: tuple[float, ...] = ()
    moved: bool = False

    @property
    def moving(self) -> bool:
        """Whether unknowns move pulses or breaks."""
        return bool(self.stops.moving) or self.breaks.moving

    def at(self, q: FloatArray) -> "Cut | str":
        """The same intervals cut where the unknowns q move pulses and breaks to, or why not."""
        if not self.moving:
            return self
        times = self.stops.at(q)
        if times is None:
            return TOO_MANY
        if times == self.also and not self.breaks.moving:
            return self
        try:
            return _cut(self, self.nodes, self.times, times, self.breaks.at(q))
        except BrokenError as error:
            return str(error)

    def over(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> "Cut":
        """Other intervals within the horizon, with the tables of `ivp`."""
        return replace(_cut(replace(self, ivp=ivp), nodes, times), moved=True)

    def until(self, last: float) -> "Cut":
        """One interval that ends at the last of the times up to `last`."""
        times = self.times[self.times <= last]
        if len(times) == 0:
            raise ValueError(
                f"No reported time is at or before {last:g}; the first reported time is "
                f"{self.times[0]:g}."
            )
        nodes = np.array([self.nodes[0], times[-1]])
        return _cut(self, nodes, times)

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
    index = np.searchsorted(nodes, times, side="right") - 1
    return np.minimum(index, len(nodes) - 2).astype(np.intp)


def cut(
    ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray, *, jumps: bool = False
) -> Cut:
    """Cut the intervals between the nodes; a single one may be of length 0.

    jumps  whether the integrator carries out what happens at times that unknowns alone give
    raises ValueError if nodes or times do not increase, or times lie outside the nodes, Unsupported
           for a problem with events: `igpe.dynamics.integrators.switched` cuts it there
    """
    if ivp.switching is not None and not (jumps and ivp.switching.is_timed):
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
    stops, breaks = ivp.stops(float(nodes[-1])), Breaks(ivp)
    none = np.zeros(0, dtype=np.intp)
    rows = none, none, none, nodes
    return _cut(Cut(nodes, times, none, nodes, nodes, *rows, ivp, stops, breaks), nodes, times)


def _cut(
    of: Cut,
    nodes: FloatArray,
    times: FloatArray,
    also: tuple[float, ...] | None = None,
    known: tuple[list[Break], BoolArray] | None = None,
) -> Cut:
    """A cut with the equations of another one.

    also   other times; by default those that no unknown moves
    known  breaks, and the modes before; by default those that no unknown moves
    """
    ivp, (begin, end) = of.ivp, nodes[[0, -1]]
    also = of.stops.known if also is None else also
    if known is None and not of.breaks.moving:
        known = of.breaks.at(0.0)
    none = np.zeros(ivp.switching.modes if ivp.switching else 0, dtype=bool)
    breaks, modes = known or (list[Break](), none)
    last = {b.time for b in breaks if b.is_seen and b.time == end}  # what happens then is seen
    broken = [b for b in breaks if begin <= b.time < end or b.time in last]
    there = {b.time for b in broken}
    plain = {t for t in (*ivp.breaks(float(end)), *also) if begin < t < end} - there
    marks: list[tuple[float, Break | None]] = [(t, None) for t in {*plain, *nodes[:-1].tolist()}]
    marks = sorted([*marks, *((b.time, b) for b in broken)], key=lambda mark: mark[0])
    begins, n = np.array([time for time, _ in marks]), len(marks)
    edges = np.stack([begins, np.append(begins[1:], end)], axis=1)
    inputs = np.array([np.concatenate(ivp.input_segment(t)) for t, _ in marks])
    if len(modes):
        past = [modes, *(b.modes for b in breaks)]
        done = np.searchsorted([b.time for b in breaks], begins)  # all before, and then its own
        rows = [past[k] if b is None else b.modes for k, (_, b) in zip(done, marks, strict=True)]
        n_u = inputs.shape[1] // 2
        inputs[:, n_u - len(modes) : n_u] = rows
    first = np.append(np.searchsorted(begins, nodes[:-1]), n)
    before, interval = np.searchsorted(edges[:-1, 1], times), interval_of(nodes, times)
    owner = np.maximum(before, first[interval])
    if broken:
        seen = np.isin(times, [b.time for b in broken if b.is_seen])
        before[seen] = owner[seen] = np.searchsorted(begins, times[seen], side="right") - 1
    return replace(
        of,
        nodes=nodes,
        times=times,
        first=first,
        edges=edges,
        inputs=inputs,
        rows=np.searchsorted(interval, np.arange(len(nodes))),
        ends=np.searchsorted(owner, np.arange(n), side="right"),
        broken=np.array([-1 if b is None else b.which for _, b in marks]),
        row_inputs=np.ascontiguousarray(inputs[before]),
        also=also,
    )
