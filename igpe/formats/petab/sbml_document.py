"""An SBML model that is written: constants, states with rate rules, assignment rules, events."""

import re
from typing import Any, NamedTuple

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import library

LEVEL, VERSION = 3, 1  # which all programs read


class ModelEvent(NamedTuple):
    """An event; all are formulas.

    sets      state and its new value, from values when it happens
    priority  of several at one time the highest happens first
    at_start  whether it happens where the trigger is true at the start
    """

    trigger: str
    sets: tuple[tuple[str, str], ...]
    delay: str
    priority: int
    at_start: bool


class SbmlModel:
    """An SBML model in the making; formulas are those of libSBML's L3 parser."""

    def __init__(self) -> None:
        self.sbml = library("libsbml")
        self.made = self.sbml.SBMLDocument(LEVEL, VERSION)
        self.model = self.made.createModel()
        self.model.setId("model")
        self.formulas: list[str] = []

    def _math(self, element: Any, formula: str) -> None:
        math = self.sbml.parseL3Formula(formula)
        if math is None:
            raise ModelError(
                f"SBML cannot express '{formula[:200]}': {self.sbml.getLastParseL3Error()}."
            )
        self.formulas.append(formula)
        element.setMath(math)

    def _parameter(self, identifier: str, name: str, *, constant: bool) -> Any:
        made = self.model.createParameter()
        made.setId(identifier)
        made.setConstant(constant)
        if name != identifier:
            made.setName(name)
        return made

    def constant(self, identifier: str, value: float, *, name: str) -> None:
        """What keeps its value, unless conditions set it."""
        self._parameter(identifier, name, constant=True).setValue(float(value))

    def initial(self, identifier: str, formula: str, *, name: str) -> None:
        """A constant that is a number, or computed at the start."""
        try:
            self.constant(identifier, float(formula), name=name)
        except ValueError:
            self._parameter(identifier, name, constant=True)
            self._initial(identifier, formula)

    def _initial(self, identifier: str, formula: str) -> None:
        made = self.model.createInitialAssignment()
        made.setSymbol(identifier)
        self._math(made, formula)

    def state(self, identifier: str, start: str, rate: str, *, name: str) -> None:
        """What has a slope."""
        self._parameter(identifier, name, constant=False)
        self._initial(identifier, start)
        made = self.model.createRateRule()
        made.setVariable(identifier)
        self._math(made, rate)

    def rule(self, identifier: str, formula: str, *, name: str) -> None:
        """What follows a formula at every time."""
        self._parameter(identifier, name, constant=False)
        made = self.model.createAssignmentRule()
        made.setVariable(identifier)
        self._math(made, formula)

    def event(self, identifier: str, event: ModelEvent) -> None:
        """A jump of states."""
        made = self.model.createEvent()
        made.setId(identifier)
        made.setUseValuesFromTriggerTime(False)
        trigger = made.createTrigger()
        trigger.setInitialValue(not event.at_start)
        trigger.setPersistent(True)
        self._math(trigger, event.trigger)
        if event.delay != "0":
            self._math(made.createDelay(), event.delay)
        self._math(made.createPriority(), str(event.priority))
        for state, value in event.sets:
            assignment = made.createEventAssignment()
            assignment.setVariable(state)
            self._math(assignment, value)

    def names_used(self) -> set[str]:
        """All names in the formulas that are not defined yet."""
        used = {n for f in self.formulas for n in re.findall(r"[A-Za-z_]\w*", f)}
        return {n for n in used if self.model.getParameter(n) is None}

    def document(self) -> str:
        """The model in SBML; raises ModelError if libSBML finds it wrong."""
        log = self.made.getErrorLog()
        self.made.checkConsistency()
        for severity in (self.sbml.LIBSBML_SEV_ERROR, self.sbml.LIBSBML_SEV_FATAL):
            if log.getNumFailsWithSeverity(severity):
                wrong = log.getErrorWithSeverity(0, severity).getMessage().strip()
                raise ModelError(f"The model cannot be written as SBML: {wrong}")
        return str(self.sbml.writeSBMLToString(self.made))
