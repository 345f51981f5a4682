"""The problem's experiments in the form that is expanded in power series.

A constant input is its number. One given as a function of time is that function; one given by a
table that varies is treated as a function of which nothing is known: its corners belong to the
table, and what an experiment can tell is asked for the best course an input could take.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
from pyomo.common.errors import PyomoException

from igpe.equations.elimination import solve_all
from igpe.equations.instant import Instant
from igpe.equations.stack import stack
from igpe.equations.translate import Translator
from igpe.experiment import Experiment
from igpe.inputs import Table, evaluate
from igpe.problem import Problem
from igpe.series.dynamics import Dynamics
from igpe.structure.posed import FEWEST_TIMES, Posed

PLACES = 5  # times at which an input given as a function is compared with its expression


@dataclass(frozen=True)
class Output:
    """What is measured, or could be, in one experiment.

    name        of the quantity
    times       at how many times it is measured; 0 if it is not
    at_start    whether one of these is the start
    """

    name: str
    times: int
    at_start: bool = False

    @property
    def continuous(self) -> bool:
        """Whether it is measured so often that it counts as known over time."""
        return self.times >= FEWEST_TIMES


@dataclass(frozen=True, eq=False)
class Expansion:
    """One experiment as it is expanded.

    dynamics  of the experiment
    outputs   what each of its outputs is
    posed     where it came from
    values    SX column, what stands for the inputs of `posed`
    """

    dynamics: Dynamics
    outputs: tuple[Output, ...]
    posed: Posed
    values: Any

    def following(self, expressions: Any) -> Dynamics:
        """The dynamics with other outputs: expressions of data, time and inputs of `posed`.

        The data are what the outputs of that name are.
        """
        place = {output.name: i for i, output in enumerate(self.outputs)}
        data = stack(self.dynamics.outputs[place[n]] for n in self.posed.data_names)
        inserted = ca.substitute([expressions], [self.posed.inputs], [self.values])
        return replace(self.dynamics, outputs=ca.substitute(inserted, [self.posed.data], [data])[0])


def expand(problem: Problem, posed: Sequence[Posed]) -> tuple[Expansion, ...]:
    """Every experiment, with all its states and algebraic variables among the outputs."""
    return tuple(_expanded(problem, one) for one in posed)


def _expanded(problem: Problem, posed: Posed) -> Expansion:
    experiment, n = problem.experiments[posed.experiment], posed.n_states
    unknowns = ca.vertcat(posed.variables[:n], posed.variables[2 * n :])
    solved = solve_all(posed.residual[: posed.n_equations], unknowns)
    names = posed.variable_names
    others = [m for m in names[n:] if m not in posed.measured]
    variable = dict(zip(names[n:], ca.vertsplit(posed.variables[n:]), strict=True))
    outputs = stack([*posed.measured.values(), *(variable[m] for m in others)])
    values, keys = _inputs(posed, experiment)
    y = stack(unknowns[j] for j in solved.implicit)
    f, g, h, start = ca.substitute(
        [
            stack(solved.expressions[:n]),
            solved.remaining,
            ca.substitute(outputs, unknowns, stack(solved.expressions)),
            posed.starts,
        ],
        [posed.inputs],
        [values],
    )
    dynamics = Dynamics(
        x=posed.variables[n : 2 * n],
        y=y,
        q=posed.q,
        u=stack(posed.inputs[i] for i, key in enumerate(keys) if key is not None),
        t=posed.time,
        f=f,
        g=g,
        start=start,
        outputs=h,
        t0=experiment.start_time,
        columns=tuple(problem.box.names.index(q) for q in posed.q_names),
        inputs=tuple(key for key in keys if key is not None),
    )
    measured = tuple(_measured(experiment, m) for m in posed.measured)
    return Expansion(dynamics, (*measured, *(Output(m, 0) for m in others)), posed, values)


def _measured(experiment: Experiment, name: str) -> Output:
    times = np.unique(experiment.measurements.of(name)[0])
    return Output(name, len(times), bool((times == experiment.start_time).any()))


def _inputs(posed: Posed, experiment: Experiment) -> tuple[Any, list[Hashable]]:
    """What stands for each input; the key of those that stand for themselves, None of others."""
    values: list[Any] = []
    keys: list[Hashable] = []
    for i, name in enumerate(posed.input_names):
        expression = _known(experiment.inputs[name], posed.time, experiment)
        values.append(posed.inputs[i] if expression is None else expression)
        keys.append(_key(experiment.inputs[name], name) if expression is None else None)
    return stack(values), keys


def _known(given: Any, time: Any, experiment: Experiment) -> Any | None:
    """The input as an expression of time; None if it varies in a way that has none."""
    if isinstance(given, Table):
        return ca.SX(float(given.values[0])) if np.ptp(given.values) == 0 else None
    if not callable(given):
        return ca.SX(given)
    places = np.linspace(experiment.start_time, experiment.times[-1], PLACES)
    try:
        expression = ca.SX(Translator({}, time)(given(Instant(experiment.start_time))))
        told = np.asarray(ca.Function("input", [time], [expression])(places[None])).ravel()
        same = np.allclose(told, [evaluate(given, p) for p in places], rtol=1e-10, equal_nan=True)
    except (TypeError, ValueError, PyomoException):
        return None
    return expression if same else None


def _key(given: Any, name: str) -> Hashable:
    if isinstance(given, Table):
        return given.times.tobytes(), given.values.tobytes(), given.hold
    return name, id(given)
