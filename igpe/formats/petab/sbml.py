"""An SBML model as formulas: rates, start values, rules and constants, by name.

A species stands for its concentration, or for its amount where it has only substance units:

    d(amount)/dt = sum of stoichiometry * rate over reactions,  concentration = amount / compartment
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import TIME, library, number, plain, quiet, symbol
from igpe.formats.petab.guard import require_few_calls, require_moderate_math

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
