"""Upper limits on what planned experiments cost: money, material, volume, time, samples.

A cost is linear in the settings, in the number of samples and in the duration. `Budget` is what the
user gives. `DesignCost` knows what the settings cost, `SampleCost` what is left for samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import Checked, Flag, NotNegative, Positive, is_finite, shown
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.planning.planned_model import PlannedModel
from igpe.problem.inputs import Table

ROUNDING = 1e-9  # of a budget: a plan may exceed it by this share


@dataclass(frozen=True)
class Budget(Checked):
    """An upper limit on the cost of the planned experiments, for example money, feed or time.

    at_most     the largest allowed cost, in any unit
    settings    dict {name: cost of one unit}; the name of a state stands for its start value, the
                name of an operating parameter for its value, and the name of a time-dependent
                input for its integral up to the last candidate time
    experiment  cost of each experiment in which samples are taken
    sample      cost of each sample
    time        cost of one unit of time, from the start of an experiment to its last sample
    each        whether the limit applies to each experiment; by default, it applies to the sum over
                all planned experiments
    raises      ProblemError for costs that are not finite numbers, or if nothing has a cost
    """

    at_most: Positive
    settings: Mapping[str, float] = field(default_factory=dict)
    experiment: NotNegative = 0.0
    sample: NotNegative = 0.0
    time: NotNegative = 0.0
    each: Flag = False

    def __post_init__(self) -> None:
        super().__post_init__()
        named = isinstance(self.settings, Mapping) and all(map(is_finite, self.settings.values()))
        if not named:
            raise ProblemError(
                f"Budget has settings={shown(self.settings)}; give a dict of finite numbers, for "
                "example settings={'feed': 1.0}."
            )
        if not (self.settings or self.experiment or self.sample or self.time):
            raise ProblemError(
                "Budget has a limit, but no costs. Give at least one of settings={...}, "
                "experiment=..., sample=... and time=...."
            )


class SampleCost(NamedTuple):
    """What samples may cost, for given settings.

    budget  the limit;  begin: start of the experiments
    fixed   (n_experiments,) cost of each experiment before its first sample
    """

    budget: Budget
    begin: float
    fixed: FloatArray

    @property
    def most(self) -> float:
        """The limit, with what rounding may add."""
        return self.budget.at_most * (1 + ROUNDING)

    def of(self, e: int, count: Any, last: Any) -> FloatArray:
        """Costs of experiment `e` with so many samples, the last ones at these times."""
        own, count = self.budget, np.asarray(count)
        cost = self.fixed[e] + own.sample * count + own.time * (np.asarray(last) - self.begin)
        return np.where(count > 0, cost, 0.0)

    def of_samples(self, times: FloatArray, taken: BoolArray) -> FloatArray:
        """(n_experiments,) costs of samples (n_experiments, n_times)."""
        last = np.where(taken.any(axis=1), np.where(taken, times, -np.inf).max(axis=1), self.begin)
        pairs = zip(taken.sum(axis=1), last, strict=True)
        return np.array([self.of(e, n, t) for e, (n, t) in enumerate(pairs)])

    def total(self, each: FloatArray) -> float:
        """What the limit applies to, from the cost of each experiment."""
        return float(each.max() if self.budget.each else each.sum())


class DesignCost(NamedTuple):
    """The cost of settings of one experiment: row @ design + constant, and that of samples."""

    budget: Budget
    begin: float
    row: FloatArray
    constant: float

    def samples(self, design: FloatArray) -> SampleCost:
        """What samples may cost at a design (n_experiments, n_choices)."""
        fixed = design @ self.row + self.constant + self.budget.experiment
        return SampleCost(self.budget, self.begin, np.asarray(fixed))

    def of_settings(self, times: FloatArray, taken: BoolArray) -> tuple[FloatArray, FloatArray]:
        """(m, n_experiments, n_choices), (m,): rows and limits of what settings may cost beside
        these samples (n_experiments, n_times)."""
        used = taken.any(axis=1)
        nothing = self.samples(np.zeros((len(taken), len(self.row)))).of_samples(times, taken)
        rows = np.eye(len(taken))[used][..., None] * self.row
        left = self.budget.at_most - (nothing[used] if self.budget.each else nothing.sum())
        return (rows, left) if self.budget.each else (rows.sum(axis=0)[None], np.array([left]))


def design_cost(budget: Budget, plan: PlannedModel) -> DesignCost:
    """The cost of a plan's settings.

    raises  ProblemError for settings that are neither chosen nor known numbers
    """
    begin, end = plan.conditions.begin, plan.conditions.end
    known = {**plan.problem.starts[0].fixed, **plan.conditions.inputs, **plan.conditions.start}
    series, row, constant = plan.problem.instance.series, np.zeros(len(plan.choices)), 0.0

    def amount(name: str, value: Any) -> float:
        if isinstance(value, Table):
            return integral(value, begin, end)
        return float(value) * (end - begin if name in series else 1.0)

    for name, price in budget.settings.items():
        if name in plan.free:
            own = [c.profile for c in plan.choices[plan.places[name]]]
            units = [1.0 if p is None else integral(p[1], begin, end) for p in own]
            row[plan.places[name]] = price * np.array(units)
            continue
        if not (is_finite(known.get(name)) or isinstance(known.get(name), Table)):
            raise ProblemError(
                f"Budget has a cost for '{name}', but igpe does not know the value of '{name}'. "
                f"List '{name}' in `free`, or give its value in `conditions` as a number or as a "
                "table of times and values. Costs can be set only for "
                f"{sorted({*plan.free, *known})}."
            )
        constant += price * amount(name, known[name])
    return DesignCost(budget, begin, row, constant)


def integral(table: Table, begin: float, end: float) -> float:
    """Integral of an input over an experiment."""
    inner = table.times[(table.times > begin) & (table.times < end)]
    total = 0.0
    for low, high in pairwise([begin, *inner.tolist(), end]):
        a, b = table.segment(low)
        total += (high - low) * (a + b * (low + high) / 2)
    return float(total)
