"""Limits of a design: the model's constraints, budgets, and the steepness of ramps.

The model's constraints are functions of states, slopes and algebraic variables at certain times, as
for multiple shooting, here with exact derivatives by the chosen numbers. The local search gets all
limits, and each design is checked.

Planned experiments cost money, material, volume, time and samples. A cost is linear in the
settings, in the number of samples and in the duration. `Budget` contains upper limits, as the user
gives them. `DesignCost` knows what the settings cost, `SampleCost` what is left for samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arguments import Checked, Flag, NotNegative, Positive, is_finite, shown
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.base import Integrator, Simulation
from igpe.dynamics.shooting.limits_of_model import ModelLimits, SymbolicInput, model_limits
from igpe.equations.compiled import compiled
from igpe.planning.planned_model import PlannedModel, sensitivity_problem
from igpe.problem.inputs import Table, evaluate

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
    """The budget that given settings leave for samples.

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
        """The cost to which the limit applies, from the cost of each experiment."""
        return float(each.max() if self.budget.each else each.sum())


class DesignCost(NamedTuple):
    """The cost of settings of one experiment: row @ design + constant, and that of samples."""

    budget: Budget
    begin: float
    row: FloatArray
    constant: float

    def samples(self, design: FloatArray) -> SampleCost:
        """The budget for samples at a design (n_experiments, n_choices)."""
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


KEPT = 1e-6  # of a limit's size: so much of a violation is rounding
BROKEN = 1e3  # margin, in sizes, where an experiment cannot be integrated
SMALLEST = 1e-9  # size of a constraint whose values are all 0


class Margins(NamedTuple):
    """Distances to limits, negative beyond them, relative to the limits' sizes.

    values (m,), -`BROKEN` where a constraint has no value
    by_design (m, n): derivatives by all numbers in the unit cube
    """

    values: FloatArray
    by_design: FloatArray


class PlannedLimits:
    """The model's constraints in one planned experiment, as functions of the chosen numbers.

    families  (m,) names of the constraints, without their times
    """

    def __init__(
        self, limits: ModelLimits, simulation: Simulation, place: FloatArray, held: FloatArray
    ) -> None:
        self._limits, self._simulation, self._place, self._held = limits, simulation, place, held
        self._low, self._high = np.isfinite(limits.low), np.isfinite(limits.high)
        each = np.array(limits.names, dtype=object)
        names = [*each[self._low], *each[self._high]]
        self.families = [name.split(" at ")[0] for name in names]
        bounds = np.concatenate([limits.low[self._low], limits.high[self._high]])
        self.sizes = self._largest(np.abs(bounds))

    def _largest(self, values: FloatArray) -> FloatArray:
        """(m,) the largest value of each constraint over its times."""
        most: dict[str, float] = {}
        for name, value in zip(self.families, values.tolist(), strict=True):
            most[name] = max(most.get(name, SMALLEST), value)
        return np.array([most[name] for name in self.families])

    def margins(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Margins (m,) in the model's units, and their derivatives (m, n_choices) by the design,
        not finite where a constraint has no value; None where the experiment cannot be
        integrated."""
        run, limits = self._simulation.run(design), self._limits
        if not run.status.usable:
            return None
        row = np.searchsorted(run.times, [r.time for r in limits.readings])
        first = run.measured.shape[1] - len(limits.watched)
        column = [first + limits.watched.index(r.name) for r in limits.readings]
        value, by_reading, by_q = limits.function(
            run.measured[row, column], self._held + self._place @ design
        )
        slope = by_reading.full() @ run.measured_by_unknown[row, column] + by_q.full() @ self._place
        c = value.full().ravel()
        margins = np.concatenate([(c - limits.low)[self._low], (limits.high - c)[self._high]])
        slopes = np.concatenate([slope[self._low], -slope[self._high]])
        return margins, slopes

    def relative(self, run: tuple[FloatArray, FloatArray]) -> Margins:
        """Margins and their derivatives by the design, in units of the constraints' sizes."""
        known = np.isfinite(run[0]) & np.isfinite(run[1]).all(axis=1)
        slopes = np.where(known[:, None], run[1] / self.sizes[:, None], 0.0)
        return Margins(np.where(known, run[0] / self.sizes, -BROKEN), slopes)

    def learn(self, designs: Sequence[FloatArray]) -> FloatArray:
        """Take the sizes of constraints whose bound is 0 from their values at these designs.

        returns  (n,) the largest violation at each design
        """
        every = [self.margins(design) for design in designs]
        if runs := [run[0] for run in every if run is not None]:
            seen = self._largest(np.abs(np.nan_to_num(runs, posinf=0, neginf=0)).max(axis=0))
            self.sizes = np.where(self.sizes > SMALLEST, self.sizes, seen)
        least = [-np.inf if run is None else self.relative(run).values.min() for run in every]
        return np.asarray(np.maximum(-np.array(least), 0.0))


def planned_limits(
    plan: PlannedModel, values: Mapping[str, float], integrator: Integrator
) -> PlannedLimits | None:
    """The model's constraints in a planned experiment; None if there are none.

    values  unknown of the full problem -> value
    raises  ModelError and Unsupported as `model_limits`
    """
    ivp = compiled(plan.problem).initial_value_problem(0)
    count, names = len(plan.choices), list(ivp.unknowns)
    numbers = ca.SX.sym("design", count)
    wide = replace(
        ivp, unknowns=(*names, *(f"design {i}" for i in range(count))), q=ca.vertcat(ivp.q, numbers)
    )
    limits = model_limits(plan.problem, 0, wide, _inputs(plan, numbers))
    if limits is None:
        return None
    known = plan.values(values)
    held = np.zeros(len(names) + count)
    held[: len(names)] = [known.get(n, 0.0) for n in names]
    place = np.zeros((len(held), count))
    for i, choice in enumerate(plan.choices):
        place[names.index(choice.unknown) if choice.unknown in names else len(names) + i, i] = 1.0
    watched = sensitivity_problem(limits.watching(ivp), plan.choices, known, {})
    times = limits.times if limits.readings else np.array([ivp.t0])  # of unknowns alone
    simulation = integrator.simulation(watched, times, sensitivities=True)
    return PlannedLimits(limits, simulation, place, held)


def _inputs(plan: PlannedModel, numbers: Any) -> dict[str, SymbolicInput]:
    """Free inputs over time as functions of the chosen numbers."""
    inputs: dict[str, SymbolicInput] = {}
    for name, place in plan.places.items():
        pairs = zip(ca.vertsplit(numbers[place]), plan.choices[place], strict=True)
        shapes = tuple((number, c.profile[1]) for number, c in pairs if c.profile)

        def of(time: float, before: bool, shapes: Any = shapes) -> Any:
            return sum(number * evaluate(shape, time, before=before) for number, shape in shapes)

        if shapes:
            inputs[name] = of
    return inputs


@dataclass(frozen=True)
class DesignLimits:
    """All limits of a design (n_experiments, n_choices), as functions of numbers in the unit cube.

    path   the model's constraints: in each scenario, or of each rival
    costs  those of the budgets
    times  (n_times,) candidates for samples
    """

    plan: PlannedModel
    count: int
    path: Sequence[PlannedLimits]
    costs: Sequence[DesignCost]
    times: FloatArray
    _known: dict[bytes, Margins | None] = field(default_factory=dict)

    def learn(self, cubes: Sequence[FloatArray]) -> FloatArray:
        """See `PlannedLimits.learn`; cubes (n_choices,) of single experiments."""
        designs = [self.plan.lower + cube * self.plan.width for cube in cubes]
        each = [limits.learn(designs) for limits in self.path]
        return np.asarray(np.max([*each, np.zeros(len(cubes))], axis=0))

    def of_model(self, cube: FloatArray) -> Margins | None:
        """Margins of the model's constraints in all experiments and scenarios, and derivatives by
        the cube (n_experiments * n_choices,); None where an experiment cannot be integrated."""
        key = cube.tobytes()
        if key not in self._known:
            self._known.clear()
            self._known[key] = self._of_model(cube)
        return self._known[key]

    def _of_model(self, cube: FloatArray) -> Margins | None:
        values, slopes, width = [np.zeros(0)], [np.zeros((0, len(cube)))], self.plan.width
        for e, part in enumerate(cube.reshape(self.count, -1)):
            for limits in self.path:
                run = limits.margins(self.plan.lower + part * width)
                if run is None:
                    return None
                margins = limits.relative(run)
                wide = np.zeros((len(margins.values), len(cube)))
                wide[:, e * len(part) : (e + 1) * len(part)] = margins.by_design * width
                values.append(margins.values)
                slopes.append(wide)
        return Margins(np.concatenate(values), np.concatenate(slopes))

    def linear(self, taken: BoolArray) -> Margins:
        """Margins at the cube's origin, and slopes: of ramps, and of budgets with these samples
        (n_experiments, n_times)."""
        steep, most = self.plan.steepness
        each = np.kron(np.eye(self.count), steep)
        rows, values = [each, -each], [np.tile(most, 2 * self.count)]
        for cost in self.costs:
            of_settings, left = cost.of_settings(self.times, taken)
            size = cost.budget.at_most
            values.append((left - of_settings @ self.plan.lower @ np.ones(self.count)) / size)
            rows.append(-(of_settings * self.plan.width).reshape(len(left), -1) / size)
        return Margins(np.concatenate(values), np.concatenate(rows))

    def violation(self, cube: FloatArray, taken: BoolArray) -> float:
        """The largest violation of any limit, relative to its size; 0 if all are kept within
        rounding."""
        linear, model = self.linear(taken), self.of_model(cube)
        if model is None:
            return np.inf
        margins = [*(linear.values + linear.by_design @ cube), *model.values]
        least = min(margins, default=0.0)
        return 0.0 if least >= -KEPT else -float(least)

    def for_search(
        self, taken: BoolArray, share: float, fixed: FloatArray, spread: FloatArray
    ) -> list[dict[str, Any]]:
        """Constraints for `scipy.optimize.minimize`, of numbers z with cube = fixed + spread @ z.

        share  of what budgets leave beside these samples, as much for settings
        """
        linear = self.linear(taken)
        cheapest = linear.values + np.maximum(linear.by_design, 0.0).sum(axis=1)
        values, is_budget = linear.values.copy(), np.arange(len(cheapest)) >= self._ramps
        values[is_budget] -= (1 - share) * np.maximum(cheapest, 0.0)[is_budget]
        possible = cheapest >= 0
        rows = linear.by_design[possible]
        begin, slopes = values[possible] + rows @ fixed, rows @ spread
        each: list[dict[str, Any]] = []
        if len(begin):
            each.append({
                "type": "ineq",
                "fun": lambda z: begin + slopes @ z,
                "jac": lambda z: slopes,
            })
        if self.path:

            def model(z: FloatArray) -> Margins:
                known = self.of_model(fixed + spread @ z)
                return self._broken(len(fixed)) if known is None else known

            each.append({
                "type": "ineq",
                "fun": lambda z: model(z).values,
                "jac": lambda z: model(z).by_design @ spread,
            })
        return each

    @property
    def _ramps(self) -> int:
        """Number of linear margins that are not about budgets."""
        return 2 * self.count * len(self.plan.steepness[1])

    def _broken(self, n: int) -> Margins:
        """Margins (m,) where an experiment cannot be integrated."""
        m = self.count * sum(len(limits.families) for limits in self.path)
        return Margins(np.full(m, -BROKEN), np.zeros((m, n)))

    def violated(self, cube: FloatArray, taken: BoolArray) -> list[str]:
        """Names of the limits that a design violates."""
        model, linear = self.of_model(cube) or self._broken(len(cube)), self.linear(taken)
        names = [n for _ in range(self.count) for limits in self.path for n in limits.families]
        pairs = zip(names, model.values, strict=True)
        families = [name for name, margin in pairs if margin < -KEPT]
        margins = linear.values + linear.by_design @ cube
        steep, paid = np.split(margins, [self._ramps])
        others = {"`steepest`": steep, "the budgets": paid}
        broken = [name for name, values in others.items() if (values < -KEPT).any()]
        return [*dict.fromkeys(families), *broken]
