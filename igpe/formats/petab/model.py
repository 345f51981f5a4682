"""The builder of a PEtab problem's model: an ordinary pyomo.dae model for each condition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyomo.environ as pyo
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.errors import ModelError
from igpe.formats.petab.course import Course, free_name
from igpe.formats.petab.formulas import TIME, inserted, number, to_pyomo


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
