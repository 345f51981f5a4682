"""How large states and unknowns are, which errors of integration are relative to."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.model import Instance, position_in
from igpe.problem.problem import Problem

NEAREST = 1e-2  # of its range: so large an unknown counts at least; far too large costs only time
UNBOUNDED = 1e14  # bounds as large mean none
ROUNDING = float(np.sqrt(np.finfo(float).eps))  # of numbers whose squares are summed
FINEST = 1e6  # a state counts as at most so many of its smallest standard deviations

Profile = tuple[Any, ...] | None
"""Names and indices, other than time and positions, that the points of a profile share."""


class ProblemSizes:
    """How large states and unknowns are: as measured, at the start, else in the model."""

    def __init__(self, problem: Problem, experiment: Experiment, starts: Mapping[str, Any]) -> None:
        self.problem, self.experiment, self.starts = problem, experiment, starts

    def of_states(self, states: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
        """How large states are at least and at most.

        One of which nothing is known counts as the smallest of the others, at most 1: too small a
        size costs steps, too large a one accuracy. One that is not measured may become as large as
        any. Where a profile in space starts at nearly nothing, what its other points hold soon
        arrives.
        """
        small, largest = [], []
        for name in states:
            start, initial = self._start(name), _magnitude(self._component(name))
            known = [v for v in (self._measured(name), start) if v]
            least = min(known, default=initial)  # the smaller: growth from 1e-12 to 1
            small.append(max(least, min(start, self._unseen)) if known else least)
            measured = max((_most(name, e) for e in self._measuring.get(name, ())), default=0.0)
            largest.append((max(measured, start, initial), measured > 0))
        profiles = self._sizes_of_profiles(states, small)
        for k, name in enumerate(states):
            floor = profiles.get(self._profile(name), 0.0) / FINEST
            small[k] = small[k] and max(small[k], min(floor, self._measured(name) or floor))
        smallest, most = min([1.0, *(v for v in small if v)]), max([1.0, *(v for v, _ in largest)])
        sizes = np.array([size or smallest for size in small])
        return sizes, np.maximum(sizes, [size if seen else most for size, seen in largest])

    def of_unknowns(self, names: tuple[str, ...]) -> FloatArray:
        """A fraction of the range, or if there is none of the model's value, or of 1.

        Of unknowns sought in logarithms the lower bound: they count as large as they are.
        """
        problem, box = self.problem, self.problem.box.select(names)
        bounded = (np.abs(box.lower) < UNBOUNDED) & (np.abs(box.upper) < UNBOUNDED)
        width = np.where(bounded, box.upper, 0.0) - np.where(bounded, box.lower, 0.0)
        scalars = problem.instance.scalars
        plain = {problem.unknown_of(n, self.experiment): scalars.get(n) for n in problem.parameters}
        values = [_magnitude(plain.get(n)) for n in names]
        plainly = np.array([NEAREST * w or v or 1.0 for w, v in zip(width, values, strict=True)])
        return np.where(box.in_logarithms & (box.lower > 0), box.lower, plainly)

    def of_implicit(
        self, names: tuple[str, ...], states: tuple[str, ...], scale: FloatArray
    ) -> FloatArray:
        """Of algebraic variables that are solved numerically, and of slopes.

        scale  of the states: an end of a profile in space counts as large as its largest point
        """
        profiles, least = self._sizes_of_profiles(states, scale), min([1.0, *scale.tolist()])
        known = [self._measured(n) or _magnitude(self._component(n)) for n in names]
        return np.array([
            size or profiles.get(self._profile(n), least)
            for n, size in zip(names, known, strict=True)
        ])

    def search(self, names: tuple[str, ...]) -> FloatArray:
        """(4, n) guess, bounds, and whether Pyomo Vars of implicit variables give the guess."""
        rows = []
        for component in map(self._component, names):
            low, high = getattr(component, "bounds", (None, None))
            lower, upper = -np.inf if low is None else low, np.inf if high is None else high
            given = number = getattr(component, "value", None)
            if number is None:
                number = (lower + upper) / 2 if np.isfinite([lower, upper]).all() else 1.0
            rows.append((np.clip(number, lower, upper), lower, upper, given is not None))
        return np.array(rows, dtype=float).reshape(-1, 4).T

    def _sizes_of_profiles(
        self, states: tuple[str, ...], sizes: Iterable[float]
    ) -> dict[Profile, float]:
        """The largest size in each profile in space."""
        of_profile: dict[Profile, float] = {}
        for name, size in zip(states, sizes, strict=True):
            if (profile := self._profile(name)) is not None:
                of_profile[profile] = max(size, of_profile.get(profile, 0.0))
        return of_profile

    def _profile(self, name: str) -> Profile:
        """The profile in space that a variable is a point of; None if it is of none."""
        own, is_in_space, keys = self._component(name), False, list[Any]()
        while self._in_space and own is not None:
            parent, index = own.parent_component(), own.index()
            places = {position_in(parent, s) for s in self._in_space} - {None}
            is_in_space |= bool(places)
            places.add(position_in(parent, self.problem.instance.time))
            key = index if isinstance(index, tuple) else (index,)
            keys += [parent.local_name, *(k for i, k in enumerate(key) if i not in places)]
            own = parent.parent_block()
        return tuple(keys) if is_in_space else None

    @cached_property
    def _in_space(self) -> list[Any]:
        sets: list[Any] = self.problem.instance.in_space
        return sets

    def _measured(self, name: str) -> float:
        """Largest measured value, of this experiment or of the others; 0 if there is none.

        No larger than `FINEST` standard deviations: a state measured over decades with a relative
        error must be integrated to a fraction of the smallest error.
        """
        for e in (self.experiment, *self._measuring.get(name, ())):
            if (largest := _most(name, e)) > 0:
                sigma = e.measurements.of(name)[2]
                return min(largest, FINEST * float(min(sigma))) if e.sigma_known else largest
        return 0.0

    @cached_property
    def _measuring(self) -> dict[str, list[Experiment]]:
        """The experiments in which a quantity is measured."""
        measuring: dict[str, list[Experiment]] = {}
        for e in self.problem.experiments:
            for name in e.measured:
                measuring.setdefault(name, []).append(e)
        return measuring

    @cached_property
    def _unseen(self) -> float:
        """Measured values below it are rounding in the sum of squares; 0 if that is not known.

        Without standard deviations, what has died out to 1e-200 needs no digits.
        """
        runs = self.problem.experiments
        if any(e.sigma_known or e.error_models or e.estimated_sigma for e in runs):
            return 0.0
        least = min(float(e.measurements.sigma.min(initial=np.inf)) for e in runs)
        most = max(float(np.abs(m.value / m.sigma).max()) for m in (e.measurements for e in runs))
        return ROUNDING * most * least

    def _start(self, state: str) -> float:
        value: Any = self.experiment.start.get(state, self.starts.get(state))
        if isinstance(value, float):
            return abs(value)
        if isinstance(value, Unknown):
            held = self.problem.fixed.get(self.problem.start_unknown(state, self.experiment))
            held = value.guess if held is None else held
            return abs(held) if held is not None else max(abs(value.lower), abs(value.upper))
        if isinstance(value, str):
            held = self.problem.fixed.get(self.problem.unknown_of(value, self.experiment))
            scalar = self.problem.instance.scalars.get(value)
            return abs(held) if held is not None else _magnitude(scalar)
        return 0.0

    def _component(self, name: str) -> Any:
        """The first Pyomo variable of a state, a slope d(state) or an algebraic variable."""
        i: Instance = self.problem.instance
        if name.startswith("d(") and name not in i.series:
            return i.slopes.get(name[2:-1], {}).get(i.first)
        series: Mapping[float, Any] = i.states.get(name) or i.series.get(name) or {}
        return series.get(i.first)


def _most(name: str, experiment: Experiment) -> float:
    if name not in experiment.measured:
        return 0.0
    return float(np.max(np.abs(experiment.measurements.of(name)[1]), initial=0.0))


def _magnitude(component: Any) -> float:
    number = getattr(component, "value", None)
    return abs(float(number)) if number is not None and np.isfinite(number) else 0.0
