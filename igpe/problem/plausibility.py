"""Warnings about what a problem gives without effect, and about implausible numbers and units.

Degrees Celsius or kJ in an Arrhenius factor make no sense: an exponential whose argument divides by
a gas constant and a temperature shows in which units both must be, and the numbers that the problem
gives for them either fit these units or do not.

Terms of an equation must have units that can be added. Numbers in an equation may hide units (8.314
is J/(mol K)), and Pyomo gives time none. So only terms whose units are known in full are compared:
quantities with units, and their products and powers.
"""

import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from pyomo.core.expr import numeric_expr as expr
from pyomo.core.expr.relational_expr import EqualityExpression
from pyomo.core.expr.visitor import identify_mutable_parameters, identify_variables
from pyomo.dae import DerivativeVar
from pyomo.environ import Suffix, value
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import is_finite
from igpe.core.markup import in_words
from igpe.problem.building import ModelCopies, takes_experiment
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table, evaluate
from igpe.problem.measurements import unit_name
from igpe.problem.model import Instance, ModelStarts
from igpe.problem.problem import Problem
from igpe.problem.problem_checks import is_labelled

GAS_CONSTANTS = {8.314: "J/mol", 8.314e-3: "kJ/mol", 1.987: "cal/mol", 1.987e-3: "kcal/mol"}
NEAR = 2e-3  # relative difference of a number that is still the gas constant
CELSIUS = "looks like degrees Celsius"
COLDEST = 150.0  # K: below it a temperature is more likely one in degrees Celsius
WEAK, STRONG = 0.5, 300.0  # E / (R T): outside, a rate hardly depends on T, or is 0
FEW = 3  # times at which replicates are equal by chance if values are rounded
SUMS = (expr.SumExpression, expr.LinearExpression, expr.NPV_SumExpression)
PRODUCTS = (expr.ProductExpression, expr.NPV_ProductExpression, expr.MonomialTermExpression)
QUOTIENTS = (expr.DivisionExpression, expr.NPV_DivisionExpression)
NEGATIONS = (expr.NegationExpression, expr.NPV_NegationExpression)
MOST_TERMS = 50  # of an exponent that is multiplied out


class Factor(NamedTuple):
    """A leaf of a product plus a number (as 273.15), and whether the product divides by the sum."""

    leaf: Any
    divides: bool
    offset: float = 0.0


Term = tuple[Factor, ...]
"""A product."""


def warnings_about(problem: Problem) -> tuple[str, ...]:
    """All warnings, for `igpe.check` and the notes of a result.

    One for each quantity, about the first experiment in which its numbers do not fit.
    """
    warnings: dict[str, str] = {}
    time = problem.instance.time
    if time.get_changed() and not is_labelled(problem.model):
        warnings[""] = (
            f"The builder discretises time ('{time.name}'). igpe integrates the differential "
            "equations itself, and does not use this discretisation. Remove "
            "TransformationFactory('dae....') from the builder if you do not need it."
        )
        is_copy = isinstance(inspect.unwrap(problem.model), ModelCopies)
        if is_copy and problem.inequalities:
            kept = in_words(sorted(problem.inequalities))
            warnings[""] += f" igpe enforces {kept} only at the points of this discretisation."
    runs = zip(problem.experiments, problem.instances, problem.starts, strict=True)
    for experiment, instance, starts in runs:
        warnings = unit_warnings(instance) | warnings
        warnings = _other_starts(experiment, starts) | _late(experiment) | warnings
        warnings = _transposed(experiment) | warnings
        warnings = _copies(experiment) | _some_errors(instance) | _fixed_later(instance) | warnings
        warnings = held_inputs(experiment, float(experiment.times[-1])) | warnings
        if not takes_experiment(problem.model):  # else the builder may read the input itself
            warnings = _unused(experiment, instance) | warnings
        quantities = _Quantities(problem, experiment, instance)
        warnings = dict(quantities.in_celsius(instance, starts)) | warnings
        for series in (*instance.equations.values(), *instance.expressions.values()):
            for argument in _exponents(series[max(series)].expr):
                for term in _terms(argument):
                    warnings = dict(quantities.warnings(term)) | warnings
    return tuple((_same_series(problem.experiments) | warnings).values())


def _other_starts(experiment: Experiment, own: ModelStarts) -> dict[str, str]:
    """State -> warning, where the experiment and the model start it at different numbers."""
    numbers = own.numbers
    return {
        f"{state}(t0)": f"Experiment '{experiment.name}' gives '{state}' the start value "
        f"{given:g}, but the model gives {numbers[state]:g}. igpe uses {given:g}. Remove one of "
        "the two start values."
        for state, given in experiment.start.items()
        if state in numbers and isinstance(given, float) and not math.isclose(given, numbers[state])
    }


def _unused(experiment: Experiment, instance: Instance) -> dict[str, str]:
    """Input -> warning, where nothing uses it: its number may be fixed in the built model."""
    inputs = {
        name: {id(data) for data in instance.series.get(name, {}).values()}
        | {id(instance.scalars.get(name))}
        for name in experiment.inputs
    }
    rules = ((e.at, e.when, e.delay, *e.add.values(), *e.set.values()) for e in experiment.events)
    if any(map(callable, chain(*rules))):
        return {}  # igpe follows the rules of events only later
    families = (instance.equations, instance.expressions, instance.inequalities)
    over_time = [series for family in families for series in family.values()]
    places = [s[max(s)] for s in over_time], instance.conditions.values()
    for data in chain(*places, (data for series in over_time for data in series.values())):
        if not inputs:  # most often long before equations are looked at at all times
            break
        held = set(map(id, identify_variables(data.expr, include_fixed=True)))
        held |= set(map(id, identify_mutable_parameters(data.expr)))
        inputs = {name: own for name, own in inputs.items() if not own & held}
    return {
        f"{name} (unused)": f"No equation, start condition or measured expression uses the input "
        f"'{name}', so its value has no effect. If the builder takes a number from it (by .fix or "
        f"pyo.value), igpe uses the number in the model instead of the input. Write an equation "
        f"that contains '{name}', for example a Constraint for a start value, or remove the input."
        for name in inputs
    }


def _late(experiment: Experiment) -> dict[str, str]:
    """Warning about events at known times after the last measurement."""
    last = float(experiment.times[-1])
    late = [
        (number, float(event.at))  # type: ignore[arg-type]
        for number, event in enumerate(experiment.events, start=1)
        if is_finite(event.at) and float(event.at) > last  # type: ignore[arg-type]
    ]
    if not late:
        return {}
    number, at = late[0]
    more = f" This experiment has {len(late)} events after its last measurement." * (len(late) > 1)
    return {
        "events": f"Event {number} of experiment '{experiment.name}' is at {at:g}, after the last "
        f"measurement (at {last:g}), and has no effect on the estimate. Times of events are in "
        f"the unit of the model's time.{more}"
    }


def _transposed(experiment: Experiment) -> dict[str, str]:
    """Warning about spectra whose times look like wavelengths."""
    spectra = experiment.spectra
    if spectra is None:
        return {}
    times, wavelengths = (axis[[0, -1]] for axis in (spectra.times, spectra.wavelengths))
    begins_late = times[0] - experiment.start_time > np.ptp(times)
    if not begins_late or wavelengths[0] > np.ptp(wavelengths):
        return {}
    return {
        "spectra": f"The spectra of experiment '{experiment.name}' have the times {times[0]:g} to "
        f"{times[1]:g} and the wavelengths {wavelengths[0]:g} to {wavelengths[1]:g}. If the rows "
        "are wavelengths, transpose the table: igpe.Spectra(frame.T)."
    }


def _copies(experiment: Experiment) -> dict[str, str]:
    """Quantity -> warning, where all its replicates are equal, at several times."""
    warnings, m = {}, experiment.measurements
    for column, name in enumerate(m.names):
        own = (m.column == column) & (m.value != 0)
        order = np.lexsort((m.value[own], m.row[own]))
        row, values = m.row[own][order], m.value[own][order]
        is_same = row[1:] == row[:-1]
        times = len(np.unique(row[1:][is_same]))
        if times >= FEW and (values[1:] == values[:-1])[is_same].all():
            warnings[f"{name} (copies)"] = (
                f"All replicates of '{name}' in experiment '{experiment.name}' are equal. Copies "
                "are no independent measurements, and make intervals too short. Keep one of each."
            )
    return warnings


def _fixed_later(instance: Instance) -> dict[str, str]:
    """State -> warning, where the model fixes it at some times after the start: igpe integrates."""
    warnings = {}
    for name, series in instance.states.items():
        later = [t for t, x in series.items() if x.fixed and t > instance.first]
        if later and len(later) < len(series) - 1:
            times = in_words([f"{t:g}" for t in sorted(later)], FEW)
            warnings[f"{name} (fixed)"] = (
                f"The model fixes the state '{name}' at the time {times}, after its start. igpe "
                "computes the state there and ignores these values. Give measurements in the table "
                "of the experiment."
            )
    return warnings


def _some_errors(instance: Instance) -> dict[str, str]:
    """Warning about a labelled model that has standard deviations of some of its outputs."""
    outputs = list(getattr(instance.model, "experiment_outputs", ()))
    errors = getattr(instance.model, "measurement_error", Suffix())
    lacking = [v.name for v in outputs if errors.get(v) is None]
    if len(lacking) in {0, len(outputs)}:
        return {}
    return {
        "measurement_error": f"The suffix measurement_error has no standard deviations of "
        f"{len(lacking)} of the {len(outputs)} outputs, such as {in_words(lacking[:FEW])}. So igpe "
        "uses none, and gives all measurements equal weights. Give one for each output."
    }


def _same_series(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Pair of experiments -> warning, where they have all times and values of quantities alike."""
    first: dict[tuple[str, bytes, bytes], str] = {}
    series: dict[tuple[str, str], list[str]] = {}
    for experiment in experiments:
        for name in experiment.measurements.names:
            times, values, _ = experiment.measurements.of(name)
            if len(np.unique(values)) < FEW:
                continue
            other = first.setdefault((name, times.tobytes(), values.tobytes()), experiment.name)
            if other != experiment.name:
                series.setdefault((other, experiment.name), []).append(name)
    return {
        f"{one}, {other} (copies)": (
            f"The measurements of {in_words(names)} in the experiments '{one}' and '{other}' are "
            "equal. Copies are no independent measurements, and make intervals too short. Check "
            "that each table was read once."
        )
        for (one, other), names in series.items()
    }


def held_inputs(
    experiment: Experiment, last: float, what: str = "the last measurement"
) -> dict[str, str]:
    """Input -> warning, where its table changes at an end that lies inside of the experiment.

    last  the end of the experiment;  what: happens there
    """
    begin = experiment.start_time
    warnings = {}
    for name, table in experiment.inputs.items():
        if not isinstance(table, Table) or table.hold or len(table.values) < 2:  # noqa: PLR2004
            continue
        about = f"The table of the input '{name}' in experiment '{experiment.name}'"
        (first, second), (before, end) = table.values[:2], table.values[-2:]
        if table.times[0] > begin and first != second:
            warnings[f"{name} (held)"] = (
                f"{about} begins at {table.times[0]:g}, after the start (at {begin:g}). Until then "
                f"igpe uses its first value, {first:g}. Extend the table if the input changes "
                "earlier."
            )
        if table.times[-1] < last and before != end:
            warnings[f"{name} (held to the end)"] = (
                f"{about} ends at {table.times[-1]:g}, before {what} (at {last:g}). "
                f"From there igpe uses its last value, {end:g}. Extend the table if the input "
                "changes later."
            )
    return warnings


def _exponents(expression: Any) -> Iterator[Any]:
    """The arguments of all exponentials in an expression."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if _is_operation(node):
            if isinstance(node, expr.UnaryFunctionExpression) and node.name == "exp":
                yield node.arg(0)
            waiting.extend(node.args)


def _is_operation(node: Any) -> bool:
    return hasattr(node, "is_expression_type") and bool(node.is_expression_type())


def _terms(node: Any) -> list[Term]:
    """The expression multiplied out: a sum of products; none if it has another form."""
    if not _is_operation(node):
        return [(Factor(node, False),)]
    if node.is_named_expression_type() or isinstance(node, NEGATIONS):
        return _terms(node.arg(0))
    if isinstance(node, SUMS):
        return [term for argument in node.args for term in _terms(argument)][:MOST_TERMS]
    if isinstance(node, (*PRODUCTS, *QUOTIENTS)):
        one, other = node.args
        others = _reciprocals(other) if isinstance(node, QUOTIENTS) else _terms(other)
        return [a + b for a in _terms(one) for b in others][:MOST_TERMS]
    return []


def _reciprocals(node: Any) -> list[Term]:
    """One over a product, or over a leaf plus a number."""
    if isinstance(node, PRODUCTS):
        return [a + b for a in _reciprocals(node.arg(0)) for b in _reciprocals(node.arg(1))]
    terms = _terms(node)
    leaves = [t[0].leaf for t in terms if len(t) == 1]
    named = [v for v in leaves if hasattr(v, "is_expression_type")]
    number = sum(float(v) for v in leaves if not hasattr(v, "is_expression_type"))
    if len(leaves) == len(terms) and len(named) <= 1:
        return [(Factor(named[0], True, number) if named else Factor(number, True),)]
    if len(terms) == 1:
        return [tuple(Factor(f.leaf, not f.divides, f.offset) for f in terms[0])]
    return []


def _gas_constant(factor: Factor) -> tuple[float, str] | None:
    """The gas constant that a leaf is, with the unit of energy that goes with it."""
    leaf = factor.leaf
    if hasattr(leaf, "is_variable_type") and leaf.is_variable_type() and not leaf.fixed:
        return None
    number = value(leaf, exception=False)
    if not number:
        return None
    size = abs(number) if factor.divides else 1 / abs(number)  # Pyomo folds 1 / R
    return next(((c, unit) for c, unit in GAS_CONSTANTS.items() if abs(size / c - 1) < NEAR), None)


class _Quantities:
    """Ranges of an experiment's inputs, parameters, measured and fixed quantities."""

    def __init__(self, problem: Problem, experiment: Experiment, instance: Instance) -> None:
        self.problem, self.experiment = problem, experiment
        self.names = {id(c): n for n, c in instance.scalars.items()} | {
            id(c): name
            for family in (instance.states, instance.series)
            for name, over_time in family.items()
            for c in over_time.values()
        }

    def in_celsius(self, instance: Instance, starts: ModelStarts) -> Iterator[tuple[str, str]]:
        """Quantity and warning, where only the numbers that the model itself has are in kelvin."""
        for name in {**dict.fromkeys(self.experiment.measured), **self.experiment.inputs}:
            series = instance.over_time(name) or {}
            leaf = series.get(instance.first, instance.scalars.get(name))
            if leaf is None or unit_name(leaf) != "K":
                continue
            usual = self.experiment.start.get(name, starts.numbers.get(name))
            own: Any = value(leaf, exception=False) if usual is None else usual
            largest = max(self._numbers(name, leaf), default=math.inf)
            if is_finite(own) and largest < COLDEST < own:
                remedy = f"pass units={{'{name}': 'degC'}}"
                remedy = "give it in kelvin" if name in self.experiment.inputs else remedy
                yield (
                    f"{name} (kelvin)",
                    f"'{name}' is at most {largest:g} in experiment '{self.experiment.name}', but "
                    f"the model has it in kelvin, with the value {own:g}. The data {CELSIUS}: if "
                    f"so, {remedy}.",
                )

    def warnings(self, term: Term) -> Iterator[tuple[str, str]]:
        """Name and warning of the quantities in a product whose numbers do not fit."""
        gas = next((c for c in map(_gas_constant, term) if c is not None), None)
        known = [(range_, f.divides) for f in term if (range_ := self._range(f)) is not None]
        temperatures = [q for q, divides in known if divides]
        is_shifted = any(f.divides and f.offset < 0 for f in term)  # T - T0 is no Arrhenius factor
        if gas is None or len(temperatures) != 1 or is_shifted:
            return
        name, _, kelvin = temperatures[0]
        if kelvin < COLDEST:
            yield (
                name,
                f"'{name}' is at most {kelvin:g}, but an Arrhenius factor needs kelvin. The value "
                f"{CELSIUS}. Give '{name}' in kelvin (add 273.15).",
            )
            return
        energies = [q for q, divides in known if not divides]
        if len(energies) != 1:
            return
        plain = 1.0  # size of the product of the plain numbers, without the gas constant
        for f in term:
            if _gas_constant(f) is None and not hasattr(f.leaf, "is_expression_type"):
                plain *= abs(float(f.leaf)) ** (-1 if f.divides else 1)
        name, low, high = energies[0]
        sizes = [plain * abs(e) / (gas[0] * kelvin) for e in (low, high)]
        smallest = 0.0 if low * high < 0 else min(sizes)
        with_constant = f"with R = {gas[0]:g} {gas[1].replace('/', '/(')} K)"
        if 0 < max(sizes) < WEAK:
            yield (
                name,
                f"'{name}' is at most {high:g}, so E / (R T) is at most {max(sizes):.2g} "
                f"{with_constant}. The rate would hardly depend on temperature. Give the energy "
                f"in {gas[1]}, or R in the unit of the energy.",
            )
        elif smallest > STRONG:
            yield (
                name,
                f"'{name}' is at least {min(abs(low), abs(high)):g}, so E / (R T) is at least "
                f"{smallest:.2g} {with_constant}: the rate is 0. Give the energy in {gas[1]}, or R "
                "in the unit of the energy.",
            )

    def _range(self, factor: Factor) -> tuple[str, float, float] | None:
        """Name and ends of a factor; None for plain numbers and what nothing is known of."""
        name = self.names.get(id(factor.leaf))
        if name is None or _gas_constant(factor) is not None:
            return None
        numbers = np.array(self._numbers(name, factor.leaf), dtype=float) + factor.offset
        if not numbers.size or not np.isfinite(numbers).all():
            return None
        return name, float(numbers.min()), float(numbers.max())

    def _numbers(self, name: str, leaf: Any) -> list[float]:
        if name in self.experiment.inputs:
            given = self.experiment.inputs[name]
            if isinstance(given, Table):
                return list(given.values)
            return [evaluate(given, t) for t in self.experiment.times]
        if name in self.problem.parameters:
            unknown = self.problem.unknown_of(name, self.experiment)
            box = self.problem.unknowns.select([unknown])
            return [float(box.lower[0]), float(box.upper[0])]
        if name in self.experiment.measured:
            return list(self.experiment.measurements.of(name)[1])
        is_known = not leaf.is_variable_type() or leaf.fixed
        number = value(leaf, exception=False) if is_known else None
        return [] if number is None else [float(number)]


ADDITIONS = (*SUMS, EqualityExpression)
POWERS = (expr.PowExpression, expr.NPV_PowExpression)
SCALES = (-1, 1, 2, 3, 4)  # numbers that hold no units: coefficients of reactions


def unit_warnings(instance: Instance) -> dict[str, str]:
    """Name of an equation -> warning, where two of its terms have units that do not fit."""
    quantities = [*instance.scalars.values()]
    for over_time in (*instance.states.values(), *instance.series.values()):
        quantities.append(next(iter(over_time.values())))
    warnings: dict[str, str] = {}
    if not any(map(unit_name, quantities)):  # pint is slow to load
        return warnings
    for family in (instance.equations, instance.expressions):
        for name, series in family.items():
            clashes: list[tuple[str, str]] = []
            _dimensions(series[max(series)].expr, clashes)
            if clashes:
                one, other = clashes[0]
                warnings[name] = (
                    f"Equation '{name}' adds terms whose units differ: {one} and {other}. "
                    "Check the units of its quantities, or the equation."
                )
    return warnings


def _dimensions(node: Any, clashes: list[tuple[str, str]]) -> Any:
    """The unit of an expression as pint has it; None if a number in it may hide one."""
    if not _is_operation(node):
        return _of_leaf(node)
    if isinstance(node, POWERS):
        base, exponent = _dimensions(node.arg(0), clashes), node.arg(1)
        is_number = not hasattr(exponent, "is_expression_type")
        return base ** value(exponent) if base is not None and is_number else None
    parts = [_dimensions(argument, clashes) for argument in node.args]
    if isinstance(node, ADDITIONS):
        terms = zip(parts, node.args, strict=True)
        known = [p for p, a in terms if p is not None and hasattr(a, "is_expression_type")]
        for part in known[1:]:
            if not _is_same_unit(part, known[0]):
                clashes.append((f"{known[0]:~C}" or "no unit", f"{part:~C}" or "no unit"))
        return known[0] if known else None
    if isinstance(node, NEGATIONS) or node.is_named_expression_type():
        return parts[0]
    if isinstance(node, (*PRODUCTS, *QUOTIENTS)) and None not in parts:
        return parts[0] * parts[1] if isinstance(node, PRODUCTS) else parts[0] / parts[1]
    return None


def _is_same_unit(one: Any, other: Any) -> bool:
    """Whether numbers in the two units can be added: Pyomo does not convert mol/L to mol/m3."""
    if one.dimensionality != other.dimensionality:
        return False
    return math.isclose(pyomo_units.pint_registry.convert(1.0, one, other), 1.0)


def _of_leaf(leaf: Any) -> Any:
    registry = pyomo_units.pint_registry
    if not hasattr(leaf, "is_expression_type"):
        return registry.dimensionless if leaf in SCALES else None
    # A unit of Pyomo that stands in the equation itself (8.314 * units.J) is no component.
    is_slope = leaf.is_component_type() and leaf.parent_component().ctype is DerivativeVar
    name = "" if is_slope else unit_name(leaf)
    return registry.parse_units(name) if name else None
