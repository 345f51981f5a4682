"""Bounds for the courses of a discretised problem: a global solver searches between bounds only.

The model's own bounds stand. Where there are none, a series (a state or another variable over time
in one experiment) is held near what is known of it: measurements, start values, the best course
known. All of its standing that is at least 0 lets it be held at 0 or more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.dynamics.collocation.transcription import Run, Transcription

SEEN = 0.5  # a measured series may leave its known range by this share of it, to either side
UNSEEN = 2.0  # the same of one that is not measured
TOUCHES = 1e-5  # of the bounds' width: this near to a bound is on it


@dataclass(frozen=True)
class Truncation:
    """Bounds of one series where the model has none.

    name          of the series
    variables     Pyomo variables over the mesh's times
    lower, upper  the same at all times
    """

    name: str
    variables: Sequence[Any]
    lower: float
    upper: float

    def touched(self, values: Mapping[Any, float]) -> tuple[bool, bool]:
        """Whether a value stands on the lower, on the upper bound.

        values  Pyomo variable -> value, of those that the program uses
        """
        free = [v for v in self.variables if v in values]
        lowest = min((values[v] for v in free if v.lb is None), default=np.inf)
        highest = max((values[v] for v in free if v.ub is None), default=-np.inf)
        near = TOUCHES * (self.upper - self.lower)
        return bool(lowest < self.lower + near), bool(highest > self.upper - near)

    def widened(self, values: Mapping[Any, float]) -> "Truncation":
        """With more room where a value stands on a bound; 0 stays a bound."""
        low, high = self.touched(values)
        width = self.upper - self.lower
        lower, upper = self.lower, self.upper + width * high
        if low and lower != 0.0:
            lower = 0.0 if lower > 0.0 >= lower - width else lower - width
        return replace(self, lower=lower, upper=upper)


def truncations(program: Transcription, objective: float) -> list[Truncation]:
    """Of every series, from where the program's variables now stand.

    objective  sum of squares at the best point known: no better one is farther from a measurement
               than its standard deviation times the root of this, so that at measured times
               measured states are not truncated at all
    """
    reach = float(np.sqrt(objective))
    return [t for run in program.runs for t in _of_run(run, reach)]


def bounds_of(found: Sequence[Truncation], variables: Sequence[Any]) -> FloatArray:
    """(2, n) lower and upper bounds: the variables' own where they have them, else `found`."""
    table = pyo.ComponentMap((v, (t.lower, t.upper)) for t in found for v in t.variables)
    none = (-np.inf, np.inf)
    lower = [table.get(v, none)[0] if v.lb is None else v.lb for v in variables]
    upper = [table.get(v, none)[1] if v.ub is None else v.ub for v in variables]
    return np.array([lower, upper], dtype=float)


def _of_run(run: Run, reach: float) -> Iterator[Truncation]:
    m = run.experiment.measurements
    measured = {n: k for k, n in enumerate(m.names)}
    for name, variables in (run.states | run.algebraics).items():
        known = [np.array([float(v.value) for v in variables if v.value is not None])]
        if name in measured:
            here = m.column == measured[name]
            known += [m.value[here] - reach * m.sigma[here], m.value[here] + reach * m.sigma[here]]
            known += [m.value[here]]
        yield _around(name, variables, known, SEEN if name in measured else UNSEEN)


def _around(
    name: str, variables: Sequence[Any], known: Sequence[FloatArray], share: float
) -> Truncation:
    values = np.concatenate(known)
    width = float(np.ptp(values)) or max(float(abs(values).max()), 1.0)
    lower, upper = float(values.min()) - share * width, float(values.max()) + share * width
    positive = known[0].min() >= 0 and (len(known) == 1 or known[-1].min() >= 0)
    return Truncation(name, variables, max(lower, 0.0) if positive else lower, upper)
