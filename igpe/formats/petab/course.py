"""What an SBML model is under one condition: its formulas in states, time and estimated parameters.

What the condition table gives counts more than the parameter table, and that more than the model
(PEtab 1, parameter mapping). Everything else that does not change is inserted.

The builder of a PEtab problem's model: an ordinary pyomo.dae model for each condition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyomo.environ as pyo
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import TIME, inserted, library, names_in, number, symbol, to_pyomo
from igpe.formats.petab.sbml import Sbml


@dataclass(frozen=True)
class Course:
    """One condition's model; SymPy expressions.

    rates     state -> slope
    starts    state -> value at time 0, in estimated parameters
    rules     name -> value at every time, each after those it uses
    outputs   name -> what is measured, and standard deviations that are no numbers
    switches  name of an input that is 0 or 1 -> (time at which it jumps, before, after)
    """

    rates: Mapping[str, Any]
    starts: Mapping[str, Any]
    rules: Mapping[str, Any]
    outputs: Mapping[str, Any]
    switches: Mapping[str, tuple[float, float, float]]


class Meaning:
    """What the names of an SBML model mean under one condition.

    given      name -> expression by the condition table
    known      name -> number by the parameter table
    estimated  parameters that stay symbols
    """

    def __init__(
        self, sbml: Sbml, given: Mapping[str, Any], known: Mapping[str, Any], estimated: set[str]
    ) -> None:
        self.sbml = sbml
        own = {n: symbol(n) for n in estimated}
        self.values = {**sbml.values, **known, **own, **given}
        self.estimated = estimated
        self._resolved: dict[str, Any] = {}
        ruled = sorted(set(given) & set(sbml.rules))
        if ruled:
            raise ModelError(
                f"The condition table gives {ruled}, which a rule of the SBML model computes; "
                "remove the columns or the rules."
            )

    def at_start(self, name: str, asking: tuple[str, ...] = ()) -> Any:
        """The value of a name at time 0, in estimated parameters."""
        if name in self.estimated:
            return symbol(name)
        if name in asking:
            raise ModelError(f"The start values of {list(asking)} need each other; mend the model.")
        if name not in self._resolved:
            expression = self._said_of(name)
            needed = names_in(expression) - {TIME}
            found = {n: self.at_start(n, (*asking, name)) for n in needed}
            self._resolved[name] = inserted(expression, {TIME: number(0), **found})
        return self._resolved[name]

    def _said_of(self, name: str) -> Any:
        found = self.values.get(name, self.sbml.rules.get(name))
        if found is None:
            raise ModelError(
                f"'{name}' has no value: neither in the SBML model nor in the condition or "
                "parameter table. Give it one."
            )
        return found

    def over_time(self, expression: Any) -> Any:
        """The expression with all that does not change inserted."""
        needed = names_in(expression) - {TIME, *self.sbml.rates, *self.sbml.rules}
        return inserted(expression, {n: self.at_start(n) for n in needed})

    def course(self, outputs: Mapping[str, Any]) -> Course:
        """The whole model; outputs are expressions over time."""
        rules = {n: self.over_time(r) for n, r in self.sbml.rules.items()}
        found = Course(
            rates={n: self.over_time(r) for n, r in self.sbml.rates.items()},
            starts={n: self.at_start(n) for n in self.sbml.rates},
            rules=_ordered(rules),
            outputs=outputs,
            switches={},
        )
        return _with_switches(found)


def _ordered(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rules behind those they use."""
    found: dict[str, Any] = {}
    while len(found) < len(rules):
        ready = [
            n for n, r in rules.items() if n not in found and not names_in(r) & rules.keys() - found
        ]
        if not ready:
            raise ModelError(
                f"The assignment rules of {sorted(set(rules) - set(found))} need each other; igpe "
                "reads rules that can be put in an order."
            )
        found |= {n: rules[n] for n in ready}
    return found


def _with_switches(course: Course) -> Course:
    """Conditions on the time alone become inputs: no integrator steps across their jump."""
    relational = library("sympy").core.relational.Relational
    families = [course.rates, course.rules, course.outputs]
    atoms = {a for family in families for e in family.values() for a in e.atoms(relational)}
    swaps: dict[Any, Any] = {}
    switches: dict[str, tuple[float, float, float]] = {}
    taken = {TIME, *course.rates, *course.rules, *course.outputs}
    for atom in sorted(atoms, key=str):
        crossing = _crossing(atom)
        if crossing is None:
            continue
        before, after = (_holds(atom, crossing + side) for side in (-1.0, 1.0))
        if crossing <= 0:
            swaps[atom] = library("sympy").true if after else library("sympy").false
            continue
        name = free_name(f"switch_{len(switches) + 1}", taken)
        switches[name] = (crossing, float(before), float(after))
        swaps[atom] = symbol(name) > library("sympy").Rational(1, 2)
    rates, rules, outputs = ({n: e.xreplace(swaps) for n, e in f.items()} for f in families)
    return replace(course, rates=rates, rules=rules, outputs=outputs, switches=switches)


def _crossing(atom: Any) -> float | None:
    """When an inequality that is linear in the time, and holds nothing else, becomes equal."""
    if names_in(atom) != {TIME}:
        return None
    difference = library("sympy").expand(atom.lhs - atom.rhs)
    slope = difference.diff(symbol(TIME))
    if slope == 0 or not slope.is_number:
        return None
    return float(-difference.subs(symbol(TIME), 0) / slope)


def _holds(atom: Any, time: float) -> bool:
    return bool(inserted(atom, {TIME: number(time)}))


def free_name(wanted: str, taken: set[str]) -> str:
    """The name, or one like it that nothing else has."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


class Parameter(NamedTuple):
    """A row of the parameter table that is estimated."""

    lower: float
    upper: float
    nominal: float


@dataclass(frozen=True)
class PetabModel:
    """`model(times, experiment)` of a PEtab problem; the experiment's name is the condition's.

    parameters       name -> what is estimated
    courses          condition -> its formulas
    transformations  measured name -> "log10" or "log", if the logarithm is what is compared
    scales           parameter -> "log10" or "log", if its logarithm is what is estimated
    """

    parameters: Mapping[str, Parameter]
    courses: Mapping[str, Course]
    transformations: Mapping[str, str]
    scales: Mapping[str, str]

    @property
    def nominal(self) -> dict[str, float]:
        """Values of the parameter table."""
        return {n: p.nominal for n, p in self.parameters.items()}

    def __call__(self, times: Sequence[float], experiment: Any) -> Any:
        return _Building(self, self.courses[experiment.name], times).model


class _Building:
    """One model on its way."""

    def __init__(self, petab: PetabModel, course: Course, times: Sequence[float]) -> None:
        self.model = m = pyo.ConcreteModel()
        taken = {*petab.parameters, *course.rates, *course.rules, *course.outputs, *course.switches}
        own = {n for n in taken if hasattr(m, n)}
        if own:
            raise ModelError(
                f"{sorted(own)} are names that a Pyomo model has for itself; rename them in the "
                "SBML model and the tables."
            )
        self.taken = taken
        self.time = ContinuousSet(initialize=times)
        m.add_component(free_name("t", taken), self.time)
        for name, p in petab.parameters.items():
            m.add_component(name, pyo.Var(bounds=(p.lower, p.upper), initialize=p.nominal))
        for name in course.switches:
            m.add_component(name, pyo.Param(self.time, mutable=True, initialize=0.0))
        self._states(course, petab.nominal)
        for name, rule in {**course.rules, **course.outputs}.items():
            self._over_time(name, pyo.Expression, rule)
        for name, rate in course.rates.items():
            self._equation(name, rate)

    def leaf(self, name: str, t: Any) -> Any:
        """What a symbol stands for at a time."""
        if name == TIME:
            return t
        component = self.model.component(name)
        return component[t] if component.is_indexed() else component

    def _states(self, course: Course, nominal: Mapping[str, float]) -> None:
        values = {n: number(v) for n, v in nominal.items()}
        for name, start in course.starts.items():
            guess = float(inserted(start, values))
            state = pyo.Var(self.time, initialize=guess)
            self.model.add_component(name, state)
            first = self.time.first()
            if start.is_number:
                state[first].fix(guess)
                continue
            rule = state[first] == to_pyomo(start, self.model.component)
            where = free_name(f"start_{name}", self.taken)
            self.model.add_component(where, pyo.Constraint(expr=rule))

    def _over_time(self, name: str, kind: Any, expression: Any) -> None:
        def rule(_: Any, t: Any) -> Any:
            return to_pyomo(expression, lambda leaf: self.leaf(leaf, t))

        self.model.add_component(name, kind(self.time, rule=rule))

    def _equation(self, name: str, rate: Any) -> None:
        slope = DerivativeVar(self.model.component(name), wrt=self.time)
        self.model.add_component(free_name(f"d_{name}", self.taken), slope)

        def rule(_: Any, t: Any) -> Any:
            return slope[t] == to_pyomo(rate, lambda leaf: self.leaf(leaf, t))

        where = free_name(f"rate_{name}", self.taken)
        self.model.add_component(where, pyo.Constraint(self.time, rule=rule))
