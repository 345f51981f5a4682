"""Finite elements for Radau collocation: points, polynomials on an element, where to refine.

On an element [a, b] a state is the polynomial through its values at a + (b - a) s for s = 0 and
the Radau points s_1 < ... < s_n = 1; an algebraic variable has no value at s = 0.
Biegler, "Nonlinear Programming" (2010), chapter 10.

Trajectories on a first mesh are guessed from profiles, measurements or the model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from scipy.special import roots_jacobi

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.losses import ROUNDING
from igpe.problem.problem import Problem

Curve = Callable[[FloatArray], FloatArray]

FEWEST = 10  # elements of an experiment, however few its measurements
MOST = 400  # elements of an experiment, however steep its course ...
MOST_GROWTH = 4  # ... unless this many times its first elements are more
MOST_PIECES = 4  # of one element in one refinement
ROUNDS = 3  # of subdivision of the first mesh
ACCURACY_POWER = 2 / 3  # Radau ends are more exact than the course between: error(end) ~ error^1.5


@dataclass(frozen=True)
class Radau:
    """Polynomials on the element [0, 1]. points: collocation points of each element."""

    points: int = 3

    @cached_property
    def nodes(self) -> FloatArray:
        """(points + 1,) the element's beginning and its collocation points."""
        inner, _ = roots_jacobi(self.points - 1, 1, 0) if self.points > 1 else (np.zeros(0), 0)
        return np.array([0.0, *(np.asarray(inner) + 1) / 2, 1.0])

    @cached_property
    def slopes(self) -> FloatArray:
        """(points + 1, points + 1): values at the nodes -> derivative at the nodes."""
        n = self.points
        unit = legendre.legvander(2 * self.nodes - 1, n)
        derivative = legendre.legder(np.eye(n + 1), 1, 2, 0)
        rows = legendre.legvander(2 * self.nodes - 1, n - 1) @ derivative
        return np.asarray(np.linalg.solve(unit.T, rows.T).T)

    def weights(self, places: FloatArray, *, from_start: bool = True) -> FloatArray:
        """(n, points + 1): values at the nodes -> values at the places of [0, 1].

        from_start  whether the value at the element's beginning takes part
        """
        nodes = self.nodes if from_start else self.nodes[1:]
        degree = len(nodes) - 1
        to_modes = np.linalg.inv(legendre.legvander(2 * nodes - 1, degree))
        integrals = legendre.legvander(2 * places - 1, degree) @ to_modes
        return integrals if from_start else np.column_stack([np.zeros(len(places)), integrals])

    def last_mode(self, values: FloatArray) -> FloatArray:
        """(n_elements,) how far the polynomials' Legendre coefficients still are from zero.

        values  (n_elements, points + 1)
        The last coefficient, times its ratio to the one before if they decay, stands for the
        first that is missing.
        """
        to_modes = np.linalg.inv(legendre.legvander(2 * self.nodes - 1, self.points))
        modes = abs(values @ to_modes.T)
        before = np.maximum(modes[:, -2], np.finfo(float).tiny)
        return np.asarray(modes[:, -1] * np.minimum(1.0, modes[:, -1] / before))


@dataclass(frozen=True)
class Mesh:
    """The elements of one experiment. edges: (n_elements + 1,), increasing."""

    edges: FloatArray
    radau: Radau

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.edges) - 1

    @cached_property
    def times(self) -> FloatArray:
        """(n_elements * points + 1,) all points, increasing; element ends are exactly `edges`."""
        a, b = self.edges[:-1, None], self.edges[1:, None]
        inside = a + (b - a) * self.radau.nodes[None, 1:]
        inside[:, -1] = self.edges[1:]
        return np.array([self.edges[0], *inside.ravel()])

    @cached_property
    def members(self) -> IntArray:
        """(n_elements, points + 1) which of `times` belong to each element."""
        n = self.radau.points
        return np.asarray(np.arange(self.n_elements)[:, None] * n + np.arange(n + 1))

    def evaluate(self, values: FloatArray, times: FloatArray, *, state: bool) -> FloatArray:
        """(n,) the polynomials through `values` (one for each of `self.times`) at any times."""
        place = np.searchsorted(self.edges, times, side="left") - 1
        element = np.clip(place, 0, self.n_elements - 1)
        left, right = self.edges[element], self.edges[element + 1]
        weights = self.radau.weights((times - left) / (right - left), from_start=state)
        return np.asarray((weights * values[self.members[element]]).sum(axis=1))

    def slope(self, values: FloatArray) -> FloatArray:
        """(n_times,) derivative; at an edge, that of the element before it."""
        width = np.diff(self.edges)[:, None]
        each = values[self.members] @ self.radau.slopes.T / width
        return np.array([each[0, 0], *each[:, 1:].ravel()])

    def split(self, pieces: IntArray) -> "Mesh":
        """Each element in as many equal pieces as asked."""
        parts = [
            np.linspace(a, b, n + 1)[:-1]
            for a, b, n in zip(self.edges[:-1], self.edges[1:], pieces, strict=True)
        ]
        return Mesh(np.concatenate([*parts, self.edges[-1:]]), self.radau)

    def has(self, times: FloatArray) -> BoolArray:
        """(n,) whether these are among its times but for rounding."""
        return abs(self.times[self.nearest(times)] - times) <= self._near

    def with_edges(self, times: FloatArray) -> "Mesh":
        """With edges at those of the times (n,) that are none already but for rounding."""
        new = times[np.min(abs(times[:, None] - self.edges), axis=1) > self._near]
        return Mesh(np.union1d(self.edges, new), self.radau)

    @property
    def _near(self) -> float:
        return ROUNDING * float(self.edges[-1] - self.edges[0])

    def nearest(self, times: FloatArray) -> IntArray:
        """(n,) places of the times next to these."""
        after = np.searchsorted(self.times, times).clip(1, len(self.times) - 1)
        is_before = times - self.times[after - 1] < self.times[after] - times
        return np.asarray(after - is_before, dtype=np.intp)

    def refined(self, trajectories: list[FloatArray], tolerance: float) -> "Mesh":
        """Smaller elements where a state's polynomial is not resolved; all halved if all are.

        trajectories    states' values at `times`
        tolerance  relative accuracy asked at the ends of elements
        """
        pieces = self._needed(trajectories, tolerance)
        return self.split(pieces if (pieces > 1).any() else np.full(self.n_elements, 2))

    def _needed(self, trajectories: list[FloatArray], tolerance: float) -> IntArray:
        """(n_elements,) pieces that each element should be cut into."""
        error = np.zeros(self.n_elements)
        for values in trajectories:
            scale = np.ptp(values) or 1.0
            error = np.maximum(error, self.radau.last_mode(values[self.members]) / scale)
        return _pieces(error, tolerance, self.radau.points)


def most_elements(n_first: int) -> int:
    """How many elements a mesh may have that began with so many."""
    return max(MOST, MOST_GROWTH * n_first)


def first_mesh(stops: FloatArray, guesses: list[Curve], radau: Radau, tolerance: float) -> Mesh:
    """Elements between all stops, small enough that polynomials follow the guessed trajectories.

    stops    increasing times that must be edges: start, measurements, jumps of inputs
    guesses  guessed trajectories of states, as far as there are any
    """
    span = stops[-1] - stops[0]
    mesh = Mesh(stops, radau)
    mesh = mesh.split(np.ceil(np.diff(stops) * FEWEST / span - 1e-9).astype(np.intp))
    for _ in range(ROUNDS):
        pieces = _pieces(_guess_error(mesh, guesses), tolerance, radau.points)
        if (pieces == 1).all() or pieces.sum() > most_elements(len(stops)):
            break
        mesh = mesh.split(pieces)
    return mesh


def _pieces(error: FloatArray, tolerance: float, points: int) -> IntArray:
    allowed = tolerance**ACCURACY_POWER
    ratio = np.maximum(error / allowed, 1e-12)
    pieces = np.ceil(ratio ** (1 / (points + 1)))
    return np.asarray(np.clip(pieces, 1, MOST_PIECES), dtype=np.intp)


def _guess_error(mesh: Mesh, guesses: list[Curve]) -> FloatArray:
    """(n_elements,) distance of polynomial and guess between the collocation points."""
    middle = (mesh.radau.nodes[:-1] + mesh.radau.nodes[1:]) / 2
    error = np.zeros(mesh.n_elements)
    width = np.diff(mesh.edges)[:, None]
    places = mesh.edges[:-1, None] + width * middle
    for guess in guesses:
        values = guess(mesh.times)
        exact = guess(places.ravel()).reshape(places.shape)
        polynomial = values[mesh.members] @ mesh.radau.weights(middle).T
        error = np.maximum(error, abs(polynomial - exact).max(axis=1) / (np.ptp(values) or 1.0))
    return error


NO_IDEA = 1.0  # of variables nobody has a guess for; 0 would divide by zero in rate laws
JUST = 1e-9  # of the horizon: what is just before a switch
LEAST = 1e-6  # of its largest bound: an unknown's size if it starts at next to nothing


@dataclass(frozen=True)
class CollocatedTrajectory:
    """The polynomials of one experiment, as the variables stand. Values at the mesh's times."""

    mesh: Mesh
    states: Mapping[str, FloatArray]
    algebraics: Mapping[str, FloatArray]

    def profile(self, name: str, times: FloatArray) -> FloatArray | None:
        """A `Profile` that follows the polynomials."""
        if name in self.states:
            return self.mesh.evaluate(self.states[name], times, state=True)
        if name in self.algebraics:
            return self.mesh.evaluate(self.algebraics[name], times, state=False)
        return None


def first_meshes(
    problem: Problem,
    profiles: Sequence[Profile],
    radau: Radau,
    tolerance: float,
    *,
    start: Mapping[str, float] = MappingProxyType({}),
) -> list[Mesh]:
    """A mesh for each experiment: edges where something happens, and where profiles are steep.

    start  unknown -> value that a solve begins at; pulses that unknowns move are looked for there
    """
    meshes = []
    for k, experiment in enumerate(problem.experiments):
        guesses: list[Any] = (
            [partial(profiles[k], n) for n in problem.instance.states] if profiles else []
        )
        stops = _stops(problem, experiment)
        ivp = compiled(problem).initial_value_problem(k)
        stops = np.union1d(stops, _landings(ivp, float(stops[-1]), start))
        usable = [g for g in guesses if g(stops) is not None]
        meshes.append(first_mesh(stops, usable, radau, tolerance))
    return meshes


def unknown_sizes(problem: Problem, starts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Magnitudes of the free unknowns: where solves begin, or a little of their bounds."""
    box, sizes = problem.box, {}
    for name, lower, upper in zip(box.names, box.lower, box.upper, strict=True):
        begins = largest([s[name] for s in starts if name in s])
        sizes[name] = max(begins, LEAST * largest([lower, upper])) or NO_IDEA
    return sizes


def state_sizes(experiment: Experiment, values: Mapping[str, FloatArray]) -> dict[str, float]:
    """Magnitudes of the states, whose trajectories begin at `values`.

    Those that nothing is known of are as large as the others.
    """
    sizes = {}
    for name, trajectory in values.items():
        if name in experiment.measured:
            sizes[name] = largest(experiment.measurements.of(name)[1])
        sizes[name] = sizes.get(name) or largest(trajectory)
    known = [s for s in sizes.values() if s > 0]
    typical = float(np.median(known)) if known else NO_IDEA
    return {n: s or typical for n, s in sizes.items()}


def objective_size(problem: Problem) -> float:
    """The square of a column of measurements over its standard deviation, typically."""
    squares = []
    for experiment in problem.experiments:
        m = experiment.measurements
        column = np.zeros(len(m.names))
        np.maximum.at(column, m.column, abs(m.value))
        squares.append((column[m.column] / m.sigma) ** 2)
    some = np.concatenate(squares)
    some = some[np.isfinite(some) & (some > 0)]
    return float(np.median(some)) if len(some) else 1.0


def largest(values: Any) -> float:
    """The largest finite magnitude; 0 if there is none."""
    magnitudes = abs(np.asarray(values, dtype=float))
    return float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0))


def _stops(problem: Problem, experiment: Experiment) -> FloatArray:
    first, last = experiment.start_time, float(experiment.times[-1])
    breaks = [t for u in experiment.inputs.values() if isinstance(u, Table) for t in u.times]
    for name in problem.time_varying:
        breaks += problem.pieces(name, experiment).values()
    inside = [float(t) for t in breaks if first < t < last]
    stops = np.unique([first, *experiment.times, *inside])
    # A problem of one time still has a course: give it an element.
    return stops if len(stops) > 1 else np.array([first, first + 1.0])


def _landings(ivp: InitialValueProblem, last: float, start: Mapping[str, float]) -> list[float]:
    """Breaks and pulses of time, and times just before the breaks.

    A rule of the user's that is asked at the very time of a switch answers for what comes after it,
    also at the end of the element before. So an element that short ends there.
    """
    breaks = ivp.breaks(last)
    just_before = [t - JUST * (last - ivp.t0) for t in breaks] if ivp.until < np.inf else []
    pulses = ivp.stops(last).through(np.array([start.get(n, np.nan) for n in ivp.unknowns]))
    return [t for t in (*breaks, *just_before, *pulses) if ivp.t0 < t < last]


def guess(
    name: str,
    experiment: Experiment,
    times: FloatArray,
    profile: Profile | None,
    otherwise: FloatArray,
) -> FloatArray:
    """A course to begin with: the profile's, the measurements', the start value's, or `otherwise`.

    All are values at the times.
    """
    own = profile(name, times) if profile is not None else None
    if own is not None and np.isfinite(own).all():
        return np.asarray(own, dtype=float)
    if name in experiment.measured:
        return _between_measurements(name, experiment, times)
    given = experiment.start.get(name)
    if isinstance(given, Unknown):
        middle = (given.lower + given.upper) / 2
        given = float(middle if given.guess is None else given.guess)
    return np.full(len(times), given) if isinstance(given, float) else otherwise


def _between_measurements(name: str, experiment: Experiment, times: FloatArray) -> FloatArray:
    measured_at, values, _ = experiment.measurements.of(name)
    distinct, which = np.unique(measured_at, return_inverse=True)
    if len(distinct) == 0:
        return np.full(len(times), NO_IDEA)
    mean = np.bincount(which, weights=values) / np.bincount(which)
    given = experiment.start.get(name)
    if isinstance(given, float) and experiment.start_time < distinct[0]:
        distinct, mean = np.array([experiment.start_time, *distinct]), np.array([given, *mean])
    return np.interp(times, distinct, mean)
