"""Where the nodes of a multiple shooting begin.

Measured states begin on a curve through their measurements, the others where the user says, or
where the model, driven by the measured ones, takes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.dynamics.shooting.base import Profile
from igpe.dynamics.shooting.multiple.chains import Shooting
from igpe.numerics.least_squares.chains.chains import Point
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.model import Instance
from igpe.problem.problem import Problem

SETTLED = 1e-3  # relative change of driven states that no longer matters


@dataclass(frozen=True)
class Given:
    """What is known of the states of one experiment at its nodes.

    values        (K, n_x), NaN where nothing is known
    size          (n_x,) how large the states are
    lower, upper  (n_x,) bounds of the states' Pyomo variables
    """

    values: FloatArray
    size: FloatArray
    lower: FloatArray
    upper: FloatArray


def given(
    problem: Problem,
    index: int,
    shooting: Shooting,
    profile: Profile | None,
    unobserved: Mapping[str, float] | float | None,
) -> Given:
    """What profile, measurements and user say of experiment `index`, in this order."""
    experiment = problem.experiments[index]
    times, states = shooting.nodes[:-1], shooting.ivp.states
    values = np.full((len(times), len(states)), np.nan)
    size = np.array(shooting.ivp.scale, dtype=float)
    for i, name in enumerate(states):
        known = None if profile is None else profile(name, times)
        if known is None and name in experiment.measured:
            known = _curve(experiment, name, times)
        if known is None and unobserved is not None:
            said = unobserved.get(name) if isinstance(unobserved, Mapping) else unobserved
            known = None if said is None else np.full(len(times), float(said))
        if known is not None:
            values[:, i] = known
        size[i] = _size(experiment, name, values[:, i]) or size[i]
    return Given(values, size, *_bounds(problem.instances[index], states))


def begun(
    problem: Problem, shootings: Sequence[Shooting], known: Sequence[Given], start: FloatArray
) -> Point:
    """Unknowns and nodes to begin with.

    start  (n,) unknowns; estimated start values of states with a curve begin there instead
    """
    box, unknowns = problem.box, start.copy()
    for experiment, mine, shooting in zip(problem.experiments, known, shootings, strict=True):
        for i, state in enumerate(shooting.ivp.states):
            name = problem.start_unknown(state, experiment)
            estimated = isinstance(experiment.start.get(state), Unknown) and name in box.names
            if estimated and np.isfinite(mine.values[0, i]):
                unknowns[box.names.index(name)] = mine.values[0, i]
    unknowns = box.clip(unknowns)
    return Point(
        unknowns,
        tuple(_filled(s, k, unknowns) for s, k in zip(shootings, known, strict=True)),
    )


def _filled(shooting: Shooting, known: Given, unknowns: FloatArray) -> FloatArray:
    """(K, n_x) nodes at unknowns (n,): where nothing is known, driven by what is.

    Each sweep hands on the ends of all intervals, until nothing changes; an interval that breaks
    down hands on what it began with.
    """
    start, free = shooting.start(unknowns), np.isnan(known.values)
    nodes = np.clip(np.where(free, start, known.values), known.lower, known.upper)
    nodes[0] = start
    for _ in range(len(nodes) - 1 if free.any() else 0):
        ends = shooting.shoot(unknowns, nodes).ends
        ends = np.clip(np.where(np.isfinite(ends), ends, nodes), known.lower, known.upper)
        after = nodes.copy()
        after[1:][free[1:]] = ends[:-1][free[1:]]
        if (np.abs(after - nodes) <= SETTLED * known.size).all():
            break
        nodes = after
    return nodes


def _bounds(instance: Instance, states: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    pairs = [getattr(instance.states[n][instance.first], "bounds", (None, None)) for n in states]
    lower = np.array([-np.inf if low is None else float(low) for low, _ in pairs])
    upper = np.array([np.inf if high is None else float(high) for _, high in pairs])
    return lower, upper


def _curve(experiment: Experiment, name: str, times: FloatArray) -> FloatArray:
    table = experiment.table()[name].dropna()
    found = np.interp(times, table.index.to_numpy(dtype=float), table.to_numpy(dtype=float))
    return np.asarray(found)


def _size(experiment: Experiment, name: str, nodes: FloatArray) -> float:
    """Root mean square of a state's measurements, else of its nodes; 0 if there are none."""
    values = experiment.measurements.of(name)[1] if name in experiment.measured else nodes
    here: BoolArray = np.isfinite(values)
    return float(np.sqrt(np.mean(values[here] ** 2))) if here.any() else 0.0
