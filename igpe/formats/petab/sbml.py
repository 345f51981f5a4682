"""SBML models: their formulas by name, their meaning under one condition, and its Pyomo model.

A species stands for its concentration, or for its amount where it has only substance units:

    d(amount)/dt = sum of stoichiometry * rate over reactions,  concentration = amount / compartment

Under a condition, values of the condition table override the parameter table, and that overrides
the model (PEtab 1, parameter mapping). Everything else that does not change is inserted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyomo.environ as pyo
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import (
    TIME,
    inserted,
    library,
    names_in,
    number,
    plain,
    quiet,
    require_few_calls,
    require_moderate_math,
    symbol,
    to_pyomo,
)

HUGE_POWER = re.compile(r"<sep/>\s*[-+]?\d{4,}")


@dataclass(frozen=True)
class Sbml:
    """What an SBML model says; all are SymPy expressions.

    rates      name -> slope of every species and parameter that a reaction or rate rule changes
    rules      name -> what an assignment rule says it is at every time
    values     name -> value at time 0 of all else, and of what has a rate
    species    names of the species
    """

    rates: dict[str, Any]
    rules: dict[str, Any]
    values: dict[str, Any]
    species: frozenset[str]


def read_sbml(document: Any) -> Sbml:
    """The formulas of a libSBML document.

    raises ModelError for what igpe does not read, by its name: events, delays, algebraic rules, ...
    """
    if document.getModel() is None:
        raise ModelError("The SBML file holds no model.")
    require_few_calls(document.getModel())
    model = _expanded(document).getModel()
    _refuse(model)
    values = _values(model)
    rates = _reactions(model)
    rules: dict[str, Any] = {}
    for rule in model.getListOfRules():
        target = rates if rule.isRate() else rules
        target[rule.getVariable()] = _formula(rule, f"rule of {rule.getVariable()}")
    for name in rules:
        values.pop(name, None)
        rates.pop(name, None)
    species = frozenset(s.getId() for s in model.getListOfSpecies())
    return Sbml(rates, rules, values, species)


def _expanded(document: Any) -> Any:
    """A copy without function definitions, local parameters becoming parameters of the model."""
    libsbml = library("libsbml")
    copy = document.clone()
    for option in ("expandFunctionDefinitions", "promoteLocalParameters"):
        wanted = libsbml.ConversionProperties()
        wanted.addOption(option, True)
        code = copy.convert(wanted)
        if code != libsbml.LIBSBML_OPERATION_SUCCESS:
            raise ModelError(
                f"libSBML could not do '{option}' (code {code}); check the model with "
                "`petablint` or an SBML validator."
            )
    return copy


def _refuse(model: Any) -> None:
    found = list(_refused(model))
    if found:
        raise ModelError(
            f"The SBML model has {'; '.join(found)}, which igpe does not read. Write these as "
            "rate or assignment rules (inputs that jump: piecewise in time), or the model in Pyomo."
        )


def _refused(model: Any) -> Iterator[str]:
    for event in model.getListOfEvents():
        yield f"the event '{event.getId() or event.getName()}'"
    for element in (model, *model.getListOfSpecies()):
        if element.isSetConversionFactor():
            yield f"the conversion factor '{element.getConversionFactor()}'"
    for rule in (r for r in model.getListOfRules() if r.isAlgebraic()):
        yield f"the algebraic rule 0 = {library('libsbml').formulaToL3String(rule.getMath())}"
    ruled = {r.getVariable() for r in model.getListOfRules()}
    for name in sorted(ruled & {c.getId() for c in model.getListOfCompartments()}):
        yield f"the compartment '{name}', whose size changes"
    for reaction in model.getListOfReactions():
        yield from _refused_reaction(reaction, ruled | set(_assigned(model)))


def _refused_reaction(reaction: Any, ruled: set[str]) -> Iterator[str]:
    if reaction.isSetFast() and reaction.getFast():
        yield f"the fast reaction '{reaction.getId()}'"
    if not reaction.isSetKineticLaw() or not reaction.getKineticLaw().isSetMath():
        yield f"the reaction '{reaction.getId()}' without kinetic law"
    for reference in (*reaction.getListOfReactants(), *reaction.getListOfProducts()):
        if reference.isSetStoichiometryMath() or (reference.getId() or None) in ruled:
            yield f"the computed stoichiometry of '{reference.getSpecies()}'"


def _assigned(model: Any) -> dict[str, Any]:
    return {a.getSymbol(): a for a in model.getListOfInitialAssignments()}


def _values(model: Any) -> dict[str, Any]:
    compartments = model.getListOfCompartments()
    found = {c.getId(): number(c.getSize() if c.isSetSize() else 1.0) for c in compartments}
    for p in model.getListOfParameters():
        if p.isSetValue():
            found[p.getId()] = number(p.getValue())
    for species in model.getListOfSpecies():
        value = _given(species)
        if value is not None:
            found[species.getId()] = value
    for name, assignment in _assigned(model).items():
        found[name] = _formula(assignment, f"initial assignment of {name}")
    return found


def _given(species: Any) -> Any:
    """The start value of a species in its own measure; None if there is none."""
    compartment = symbol(species.getCompartment())
    if species.isSetInitialAmount():
        amount = number(species.getInitialAmount())
        return amount if _is_amount(species) else amount / compartment
    if species.isSetInitialConcentration():
        concentration = number(species.getInitialConcentration())
        return concentration * compartment if _is_amount(species) else concentration
    return None


def _is_amount(species: Any) -> bool:
    return bool(species.getHasOnlySubstanceUnits())


def _reactions(model: Any) -> dict[str, Any]:
    moved: dict[str, Any] = {}
    for reaction in model.getListOfReactions():
        rate = _formula(reaction.getKineticLaw(), f"kinetic law of {reaction.getId()}")
        sides = ((-1, reaction.getListOfReactants()), (1, reaction.getListOfProducts()))
        for sign, references in sides:
            for r in references:
                change = number(sign * r.getStoichiometry()) * rate
                moved[r.getSpecies()] = moved.get(r.getSpecies(), number(0)) + change
    found = {}
    for species in model.getListOfSpecies():
        name, held = species.getId(), species.getBoundaryCondition() or species.getConstant()
        if name in moved and not held:
            is_amount = _is_amount(species)
            compartment = symbol(species.getCompartment())
            found[name] = moved[name] if is_amount else moved[name] / compartment
    return found


def _formula(element: Any, where: str) -> Any:
    """The mathematics of an element.

    raises ModelError if it holds a delay, the rate of something or what is unknown
    """
    libsbml, sympy = library("libsbml"), library("sympy")
    try:
        with quiet():
            text = libsbml.writeMathMLToString(element.getMath())
            if HUGE_POWER.search(text):
                raise ValueError("it holds a number beyond 1e300")
            require_moderate_math(element.getMath())
            reader = library("sbmlmath").SBMLMathMLParser(
                floats_as_rationals=False, ignore_units=True, evaluate=True
            )
            found = plain(reader.parse_str(text))
    except ModelError as error:
        raise ModelError(f"In the {where}: {error}") from None
    except Exception as error:  # each parser has its own
        raise ModelError(f"The {where} cannot be read: {error}. Correct the SBML model.") from error
    unknown = sorted({type(f).__name__ for f in found.atoms(sympy.Function)} & {"Delay", "RateOf"})
    undefined = sorted({str(f.func) for f in found.atoms(sympy.core.function.AppliedUndef)})
    if unknown or undefined:
        raise ModelError(
            f"The {where} uses {[*unknown, *undefined]}, which igpe does not read. Write it "
            f"without, for instance by further species or rules of {TIME}."
        )
    return found


@dataclass(frozen=True)
class ConditionModel:
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

    def condition_model(self, outputs: Mapping[str, Any]) -> ConditionModel:
        """The whole model; outputs are expressions over time."""
        rules = {n: self.over_time(r) for n, r in self.sbml.rules.items()}
        found = ConditionModel(
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


def _with_switches(condition_model: ConditionModel) -> ConditionModel:
    """Conditions on the time alone become inputs: no integrator steps across their jump."""
    relational = library("sympy").core.relational.Relational
    families = [condition_model.rates, condition_model.rules, condition_model.outputs]
    atoms = {a for family in families for e in family.values() for a in e.atoms(relational)}
    swaps: dict[Any, Any] = {}
    switches: dict[str, tuple[float, float, float]] = {}
    taken = {TIME, *condition_model.rates, *condition_model.rules, *condition_model.outputs}
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
    return replace(condition_model, rates=rates, rules=rules, outputs=outputs, switches=switches)


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


class PetabParameter(NamedTuple):
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

    parameters: Mapping[str, PetabParameter]
    condition_models: Mapping[str, ConditionModel]
    transformations: Mapping[str, str]
    scales: Mapping[str, str]

    @property
    def nominal(self) -> dict[str, float]:
        """Values of the parameter table."""
        return {n: p.nominal for n, p in self.parameters.items()}

    def __call__(self, times: Sequence[float], experiment: Any) -> Any:
        return _Building(self, self.condition_models[experiment.name], times).model


class _Building:
    """One model on its way."""

    def __init__(
        self, petab: PetabModel, condition_model: ConditionModel, times: Sequence[float]
    ) -> None:
        self.model = m = pyo.ConcreteModel()
        taken = {
            *petab.parameters,
            *condition_model.rates,
            *condition_model.rules,
            *condition_model.outputs,
            *condition_model.switches,
        }
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
        for name in condition_model.switches:
            m.add_component(name, pyo.Param(self.time, mutable=True, initialize=0.0))
        self._states(condition_model, petab.nominal)
        for name, rule in {**condition_model.rules, **condition_model.outputs}.items():
            self._over_time(name, pyo.Expression, rule)
        for name, rate in condition_model.rates.items():
            self._equation(name, rate)

    def leaf(self, name: str, t: Any) -> Any:
        """What a symbol stands for at a time."""
        if name == TIME:
            return t
        component = self.model.component(name)
        return component[t] if component.is_indexed() else component

    def _states(self, condition_model: ConditionModel, nominal: Mapping[str, float]) -> None:
        values = {n: number(v) for n, v in nominal.items()}
        for name, start in condition_model.starts.items():
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
