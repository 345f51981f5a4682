"""A stirred tank with constant volume and flow through it, in concentrations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.constants import add_balance
from igpe.formats.kinetics.reactor import Reactor


@dataclass(frozen=True)
class Cstr(Reactor):
    """dc/dt = dilution*(inlet - c) + what the reactions make; the states are concentrations.

    dilution  name of the flow over the volume, an input over time (1/time), or a number
    inlet     species -> its concentration in the feed: name of an input over time, or a number;
              0 for all others

    See `Reactor` for the other fields. Flow changes what reactions conserve, so `algebraic` is of
    no use here.

    raises ModelError, as `Reactor` does
    """

    dilution: str | float = "dilution"
    inlet: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_mapping("inlet", self.inlet, "inlet={'A': 'A_in'}", ModelError)
        for role, given in (("dilution", self.dilution), *self.inlet.items()):
            if not (isinstance(given, str) and given.isidentifier()) and not is_finite(given):
                raise ModelError(f"The {role} is {shown(given)}; give a name, or a number.")
        super().__post_init__()
        strangers = [s for s in self.inlet if s not in self.species]
        if strangers:
            raise ModelError(f"inlet has {strangers}; the species are {list(self.species)}.")
        if self.algebraic:
            raise ModelError(
                f"algebraic={list(self.algebraic)} needs conserved sums, which the flow through a "
                "Cstr changes; leave it out."
            )

    def _add_balances(self, m: Any) -> None:
        for name in self._inputs:
            unit = self._unit(0, 0, -1) if name == self.dilution else self._unit(1, -1)
            m.add_component(name, pyo.Param(m.t, mutable=True, units=unit))
        for species in self.species:
            add_balance(m, species, self._slope(m, species))

    def _slope(self, m: Any, species: str) -> Any:
        def at(given: str | float, t: float) -> Any:
            return m.component(given)[t] if isinstance(given, str) else float(given)

        def slope(t: float) -> Any:
            entering = at(self.inlet.get(species, 0.0), t) - m.component(species)[t]
            return at(self.dilution, t) * entering + self._made(m, t, species)

        return slope

    @property
    def _inputs(self) -> list[str]:
        given = [self.dilution, *self.inlet.values()]
        return list(dict.fromkeys(g for g in given if isinstance(g, str)))

    def _names(self) -> list[str]:
        return [*super()._names(), *self._inputs]
