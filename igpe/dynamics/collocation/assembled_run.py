"""One experiment on its mesh: where its variables stand, and what is asked of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.collocation.assembled_parts import Bounds, Part
from igpe.dynamics.collocation.assembly import Copies, Squares
from igpe.dynamics.collocation.mesh import Mesh


@dataclass(frozen=True)
class Run:
    """One experiment on its mesh.

    first  where its variables begin among all: states at each time, then implicit ones
    """

    part: Part
    mesh: Mesh
    first: int

    @cached_property
    def states(self) -> IntArray:
        """(n_x, n_times) places of the states."""
        n_x, n_t = self.part.ivp.x.numel(), len(self.mesh.times)
        return self.first + np.arange(n_x * n_t).reshape((n_x, n_t), order="F")

    @cached_property
    def implicit(self) -> IntArray:
        """(n_y, n_times - 1) places of the implicit variables, which have no value at the start."""
        n_y, n_t = self.part.ivp.y.numel(), len(self.mesh.times) - 1
        return self.first + self.states.size + np.arange(n_y * n_t).reshape((n_y, n_t), order="F")

    @property
    def size(self) -> int:
        """How many variables it has."""
        return self.states.size + self.implicit.size

    def inputs(self, elements: IntArray, times: FloatArray) -> FloatArray:
        """(n_u, n) at times in elements: what jumps at an element's end has not done so yet."""
        found = np.zeros((len(self.part.ivp.tables), len(times)))
        segments = {e: self.part.ivp.input_segment(self.mesh.edges[e]) for e in set(elements)}
        for k, (e, t) in enumerate(zip(elements, times, strict=True)):
            a, b = segments[e]
            found[:, k] = a + b * t
        return found

    def equations(self) -> Copies:
        """The equations of all elements."""
        members, count = self.mesh.members, self.mesh.n_elements
        points = members[:, 1:]
        times = self.mesh.times[points]
        elements = np.repeat(np.arange(count), self.mesh.radau.points)
        inputs = self.inputs(elements, times.ravel()).reshape(-1, *times.shape)
        courses = self.states[:, members], self.implicit[:, points - 1]
        return Copies(
            self.part.element,
            np.vstack([*map(_by_element, courses), self._unknowns(count)]),
            np.vstack([times.T, _by_element(inputs), np.diff(self.mesh.edges)]),
        )

    def beginning(self) -> Copies:
        """Start values."""
        at = np.vstack([self.states[:, :1], self._unknowns(1)])
        first = self.inputs(np.zeros(1, dtype=np.intp), self.mesh.edges[:1])
        return Copies(self.part.start, at, first)

    def bounds(self) -> Bounds:
        """Of the constraints: equations of all elements, then start values."""
        n, n_x = self.mesh.radau.points, len(self.states)
        zeros = np.zeros(n * (n_x + len(self.implicit)))
        ends = [
            np.concatenate([
                np.tile(np.concatenate([zeros, np.tile(side, n)]), self.mesh.n_elements),
                np.zeros(n_x),
                side,
            ])
            for side in self.part.bounded
        ]
        return Bounds(*ends)

    def residuals(self) -> list[Copies]:
        """The squares that are not of something linear."""
        m, found = self.part.experiment.measurements, []
        for k, of in self.part.residuals.items():
            mine = m.column == k
            times = m.times[m.row[mine]]
            at = np.searchsorted(self.mesh.times, times)
            x, y = self.states[:, at], self.implicit[:, np.maximum(at - 1, 0)]
            elements = np.maximum(np.searchsorted(self.mesh.edges, times) - 1, 0)
            numbers = [times, *self.inputs(elements, times), m.value[mine], 1 / m.sigma[mine]]
            found.append(
                Copies(of, np.vstack([x, y, self._unknowns(len(times))]), np.vstack(numbers))
            )
        return found

    def squares(self, n: int) -> Squares:
        """Linear residuals, of n variables."""
        m = self.part.experiment.measurements
        matrices, known = [sparse.csc_matrix((0, n))], [np.zeros(0)]
        for k, line in self.part.linear.items():
            mine = np.flatnonzero(m.column == k)
            weight, at = 1 / m.sigma[mine], np.searchsorted(self.mesh.times, m.times[m.row[mine]])
            rows = np.arange(len(mine))
            own = sparse.csc_matrix((len(mine), n))
            for i in np.flatnonzero(line.factors):
                places = rows, self.states[i, at]
                own = own + sparse.csc_matrix((line.factors[i] * weight, places), own.shape)
            matrices.append(own)
            known.append((m.value[mine] - line.constant) * weight)
        return Squares(sparse.vstack(matrices), np.concatenate(known))

    def _unknowns(self, count: int) -> IntArray:
        return np.repeat(self.part.index[:, None], count, axis=1)


def _by_element(values: Any) -> Any:
    """(n, n_elements, n_points) -> (n_points * n, n_elements)."""
    n, count, points = values.shape
    return values.transpose(2, 0, 1).reshape(points * n, count)
