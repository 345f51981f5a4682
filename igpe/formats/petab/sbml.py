"""SBML models: their formulas by name, their meaning under one condition, and its Pyomo model.

A species stands for its concentration, or for its amount where it has only substance units:

    d(amount)/dt = sum of stoichiometry * rate over reactions,  concentration = amount / compartment

Under a condition, values of the condition table override the parameter table, and that overrides
the model (PEtab 1, parameter mapping). Everything else that does not change is inserted.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
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
    """

    rates: dict[str, Any]
    rules: dict[str, Any]
    values: dict[str, Any]


def read_sbml(document: Any) -> Sbml:
    """The formulas of a libSBML document; raises ModelError for events, delays and the like."""
    if document.getModel() is None:
        raise ModelError("The SBML file holds no model.")
    require_few_calls(document.getModel())
    copy = document.clone()
    for option in ("expandFunctionDefinitions", "promoteLocalParameters"):
        conversion = library("libsbml").ConversionProperties()
        conversion.addOption(option, True)
        code = copy.convert(conversion)
        if code != library("libsbml").LIBSBML_OPERATION_SUCCESS:
            raise ModelError(
                f"libSBML could not do '{option}' (code {code}); check the model with "
                "`petablint` or an SBML validator."
            )
    model = copy.getModel()
    refused = list(_refused(model))
    if refused:
        raise ModelError(
            f"The SBML model has {'; '.join(refused)}, which igpe does not read. Write these as "
            "rate or assignment rules (inputs that jump: piecewise in time), or the model in Pyomo."
        )
    values, rates = _values(model), _reactions(model)
    rules: dict[str, Any] = {}
    for rule in model.getListOfRules():
        target = rates if rule.isRate() else rules
        target[rule.getVariable()] = _formula(rule, f"rule of {rule.getVariable()}")
    values, rates = ({n: e for n, e in d.items() if n not in rules} for d in (values, rates))
    return Sbml(rates, rules, values)


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
    ruled |= {a.getSymbol() for a in model.getListOfInitialAssignments()}
    for reaction in model.getListOfReactions():
        yield from _refused_of(reaction, ruled)


def _refused_of(reaction: Any, ruled: set[str]) -> Iterator[str]:
    if reaction.isSetFast() and reaction.getFast():
        yield f"the fast reaction '{reaction.getId()}'"
    if not reaction.isSetKineticLaw() or not reaction.getKineticLaw().isSetMath():
        yield f"the reaction '{reaction.getId()}' without kinetic law"
    for reference in (*reaction.getListOfReactants(), *reaction.getListOfProducts()):
        if reference.isSetStoichiometryMath() or (reference.getId() or None) in ruled:
            yield f"the computed stoichiometry of '{reference.getSpecies()}'"


def _values(model: Any) -> dict[str, Any]:
    compartments = model.getListOfCompartments()
    values = {c.getId(): number(c.getSize() if c.isSetSize() else 1.0) for c in compartments}
    values |= {
        p.getId(): number(p.getValue()) for p in model.getListOfParameters() if p.isSetValue()
    }
    for species in model.getListOfSpecies():
        name, is_amount = species.getId(), species.getHasOnlySubstanceUnits()
        compartment = symbol(species.getCompartment())
        if species.isSetInitialAmount():
            amount = number(species.getInitialAmount())
            values[name] = amount if is_amount else amount / compartment
        elif species.isSetInitialConcentration():
            concentration = number(species.getInitialConcentration())
            values[name] = concentration * compartment if is_amount else concentration
    for one in model.getListOfInitialAssignments():
        values[one.getSymbol()] = _formula(one, f"initial assignment of {one.getSymbol()}")
    return values


def _reactions(model: Any) -> dict[str, Any]:
    amounts: dict[str, Any] = {}
    for reaction in model.getListOfReactions():
        rate = _formula(reaction.getKineticLaw(), f"kinetic law of {reaction.getId()}")
        for sign, side in ((-1, reaction.getListOfReactants()), (1, reaction.getListOfProducts())):
            for r in side:
                change = number(sign * r.getStoichiometry()) * rate
                amounts[r.getSpecies()] = amounts.get(r.getSpecies(), number(0)) + change
    return {
        s.getId(): amounts[s.getId()]
        / (1 if s.getHasOnlySubstanceUnits() else symbol(s.getCompartment()))
        for s in model.getListOfSpecies()
        if s.getId() in amounts and not (s.getBoundaryCondition() or s.getConstant())
    }


def _formula(element: Any, where: str) -> Any:
    """The mathematics of an element; raises ModelError for delays and what is unknown."""
    sympy = library("sympy")
    try:
        with quiet():
            text = library("libsbml").writeMathMLToString(element.getMath())
            if HUGE_POWER.search(text):
                raise ValueError("it holds a number beyond 1e300")
            require_moderate_math(element.getMath())
            reader = library("sbmlmath").SBMLMathMLParser(
                floats_as_rationals=False, ignore_units=True, evaluate=True
            )
            formula = plain(reader.parse_str(text))
    except ModelError as error:
        raise ModelError(f"In the {where}: {error}") from None
    except Exception as error:  # each parser has its own
        raise ModelError(f"The {where} cannot be read: {error}. Correct the SBML model.") from error
    unread = sorted({type(f).__name__ for f in formula.atoms(sympy.Function)} & {"Delay", "RateOf"})
    undefined = sorted({str(f.func) for f in formula.atoms(sympy.core.function.AppliedUndef)})
    if unread or undefined:
        raise ModelError(
            f"The {where} uses {[*unread, *undefined]}, which igpe does not read. Write it "
            f"without, for instance by further species or rules of {TIME}."
        )
    return formula


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
        self.sbml, self.estimated = sbml, estimated
        self.values = {**sbml.values, **known, **{n: symbol(n) for n in estimated}, **given}
        self._resolved: dict[str, Any] = {}
        ruled = sorted(set(given) & set(sbml.rules))
        if ruled:
            raise ModelError(
                f"The condition table gives {ruled}, which a rule of the SBML model computes; "
                "remove the columns or the rules."
            )

    def at_start(self, name: str, needing: tuple[str, ...] = ()) -> Any:
        """The value of a name at time 0, in estimated parameters."""
        if name in self.estimated:
            return symbol(name)
        if name in needing:
            raise ModelError(
                f"The start values of {list(needing)} need each other; mend the model."
            )
        if name not in self._resolved:
            expression = self.values.get(name, self.sbml.rules.get(name))
            if expression is None:
                raise ModelError(
                    f"'{name}' has no value: neither in the SBML model nor in the condition or "
                    "parameter table. Give it one."
                )
            needed = names_in(expression) - {TIME}
            values = {n: self.at_start(n, (*needing, name)) for n in needed}
            self._resolved[name] = inserted(expression, {TIME: number(0), **values})
        return self._resolved[name]

    def over_time(self, expression: Any) -> Any:
        """The expression with all that does not change inserted."""
        needed = names_in(expression) - {TIME, *self.sbml.rates, *self.sbml.rules}
        return inserted(expression, {n: self.at_start(n) for n in needed})

    def condition_model(self, outputs: Mapping[str, Any]) -> ConditionModel:
        """The model of this condition; outputs are expressions over time."""
        rates, rules = (
            {n: self.over_time(e) for n, e in family.items()}
            for family in (self.sbml.rates, self.sbml.rules)
        )
        graph = {n: sorted(names_in(r) & rules.keys()) for n, r in rules.items()}
        try:
            rules = {n: rules[n] for n in TopologicalSorter(graph).static_order()}
        except CycleError as error:
            raise ModelError(
                f"The assignment rules of {sorted(set(error.args[1]))} need each other; igpe "
                "reads rules that can be put in an order."
            ) from None
        starts = {n: self.at_start(n) for n in self.sbml.rates}
        return _with_switches(ConditionModel(rates, starts, rules, outputs, {}))


def _with_switches(of: ConditionModel) -> ConditionModel:
    """Conditions on the time alone become inputs: no integrator steps across their jump."""
    sympy = library("sympy")
    families = [of.rates, of.rules, of.outputs]
    relational = sympy.core.relational.Relational
    atoms = {a for family in families for e in family.values() for a in e.atoms(relational)}
    swaps: dict[Any, Any] = {}
    switches: dict[str, tuple[float, float, float]] = {}
    taken = {TIME, *of.rates, *of.rules, *of.outputs}
    for atom in sorted(atoms, key=str):
        crossing = _crossing(atom)
        if crossing is None:
            continue
        before, after = (
            bool(inserted(atom, {TIME: number(crossing + side)})) for side in (-1.0, 1.0)
        )
        if crossing <= 0:
            swaps[atom] = sympy.true if after else sympy.false
            continue
        name = free_name(f"switch_{len(switches) + 1}", taken)
        switches[name] = (crossing, float(before), float(after))
        swaps[atom] = symbol(name) > sympy.Rational(1, 2)
    rates, rules, outputs = ({n: e.xreplace(swaps) for n, e in f.items()} for f in families)
    return replace(of, rates=rates, rules=rules, outputs=outputs, switches=switches)


def _crossing(atom: Any) -> float | None:
    """When an inequality that is linear in the time, and holds nothing else, becomes equal."""
    if names_in(atom) != {TIME}:
        return None
    difference = library("sympy").expand(atom.lhs - atom.rhs)
    slope = difference.diff(symbol(TIME))
    if slope == 0 or not slope.is_number:
        return None
    return float(-difference.subs(symbol(TIME), 0) / slope)


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it that nothing else has."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class PetabParameter(NamedTuple):
    """A row of the parameter table that is estimated."""

    lower: float
    upper: float
    nominal: float


@dataclass(frozen=True)
class PetabModel:
    """`model(times, experiment)` of a PEtab problem; the experiment's name is the condition's.

    parameters        name -> what is estimated
    condition_models  condition -> its formulas
    transformations   measured name -> "log10" or "log", if the logarithm is what is compared
    scales            parameter -> "log10" or "log", if its logarithm is what is estimated
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
        of, m = self.condition_models[experiment.name], pyo.ConcreteModel()
        taken = {*self.parameters, *of.rates, *of.rules, *of.outputs, *of.switches}
        own = sorted(n for n in taken if hasattr(m, n))
        if own:
            raise ModelError(
                f"{own} are names that a Pyomo model has for itself; rename them in the "
                "SBML model and the tables."
            )
        time = ContinuousSet(initialize=times)
        m.add_component(free_name("t", taken), time)
        for name, p in self.parameters.items():
            m.add_component(name, pyo.Var(bounds=(p.lower, p.upper), initialize=p.nominal))
        for name in of.switches:
            m.add_component(name, pyo.Param(time, mutable=True, initialize=0.0))
        nominal = {n: number(v) for n, v in self.nominal.items()}
        for name, start in of.starts.items():
            guess = float(inserted(start, nominal))
            state = pyo.Var(time, initialize=guess)
            m.add_component(name, state)
            if start.is_number:
                state[time.first()].fix(guess)
            else:
                equation = state[time.first()] == to_pyomo(start, m.component)
                m.add_component(free_name(f"start_{name}", taken), pyo.Constraint(expr=equation))
        for name, rule in {**of.rules, **of.outputs}.items():
            value = _over_time(m, rule)
            m.add_component(name, pyo.Expression(time, rule=lambda _, t, value=value: value(t)))
        for name, rate in of.rates.items():
            slope, value = DerivativeVar(m.component(name), wrt=time), _over_time(m, rate)
            m.add_component(free_name(f"d_{name}", taken), slope)
            equation = pyo.Constraint(
                time, rule=lambda _, t, slope=slope, value=value: slope[t] == value(t)
            )
            m.add_component(free_name(f"rate_{name}", taken), equation)
        return m


def _over_time(m: Any, expression: Any) -> Callable[[float], Any]:
    """Time -> the expression in the components of a model."""

    def leaf(name: str, t: float) -> Any:
        component = m.component(name)
        return t if name == TIME else component[t] if component.is_indexed() else component

    return lambda t: to_pyomo(expression, lambda name: leaf(name, t))
