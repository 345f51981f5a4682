"""Reactors that are flowed through: stirred tanks and tubes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping
from igpe.core.errors import ModelError
from igpe.formats.kinetics.heat import Jacket, at, require_input
from igpe.formats.kinetics.reactor import Reactor, refuse_unknown
from igpe.formats.kinetics.temperature import CONCENTRATION, PER_TIME, Dimension


@dataclass(frozen=True)
class Cstr(Reactor):
    """dc/dt = dilution*(inlet - c) + production by the reactions; the states are concentrations.

    dilution  name of the flow over the volume, an input over time (1/time), or a number
    inlet     species -> its concentration in the feed: name of an input over time, or a number;
              0 for all others

    See `Reactor` for the other fields. The flow changes the conserved sums, so `algebraic` cannot
    be used here.

    raises ModelError, as `Reactor` does
    """

    dilution: str | float = "dilution"
    inlet: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_mapping("inlet", self.inlet, "inlet={'A': 'A_in'}", ModelError)
        for role, given in (("dilution", self.dilution), *self.inlet.items()):
            require_input(f"The {role}", given)
        if self.algebraic:
            raise ModelError(
                f"algebraic={list(self.algebraic)} needs conserved sums, which the flow through a "
                "Cstr changes; leave it out."
            )
        super().__post_init__()
        refuse_unknown("inlet", self.inlet, "species", self.species)

    def _add_inputs(self, m: Any) -> None:
        for name in self._flows:
            dimension = PER_TIME if name == self.dilution else CONCENTRATION
            m.add_component(name, pyo.Param(m.t, mutable=True, units=self._unit(dimension)))

    def _slope(self, m: Any, t: float, species: str) -> Any:
        inlet = at(self.inlet.get(species, 0.0), m, t)
        entering = self._inflow(m, t) * (inlet - m.component(species)[t])
        return entering + super()._slope(m, t, species)

    def _inflow(self, m: Any, t: float) -> Any:
        return at(self.dilution, m, t)

    @property
    def _flows(self) -> list[str]:
        given = [self.dilution, *self.inlet.values()]
        return list(dict.fromkeys(g for g in given if isinstance(g, str)))

    def _names(self) -> list[str]:
        return [*super()._names(), *self._flows]


@dataclass(frozen=True)
class PlugFlow(Reactor):
    """dc/dz = production by the reactions/velocity: a tube at steady state.

    The independent variable `t` of the model is the position z along the tube, or with velocity=1.0
    the residence time. An experiment's column `time` holds positions, and its start is the inlet.
    Density and velocity do not change along the tube, and nothing mixes along it. A tube that
    changes with time, or with dispersion, is a model distributed in space (see that page).

    velocity  length over time: name of a constant input, or a number; 1.0 for residence times

    See `Reactor` for the other fields. A catalyst deactivates over time, not along the tube, and a
    jacket has a temperature given along it.

    raises ModelError, as `Reactor` does, and for `catalyst` and a `Jacket`

    Source: Fogler, Elements of Chemical Reaction Engineering, 5th ed. (2016), eq. 1-12.
    """

    velocity: str | float = 1.0
    axis: ClassVar[str] = "length"

    def __post_init__(self) -> None:
        require_input("The velocity", self.velocity)
        if is_finite(self.velocity) and not self.velocity > 0:  # type: ignore[operator]
            raise ModelError(f"The velocity is {self.velocity}; give a positive number.")
        super().__post_init__()
        if self.catalyst is not None or isinstance(self.heat and self.heat.jacket, Jacket):
            raise ModelError(
                "A PlugFlow is at steady state: give the activity as a constant (inputs=['a']) and "
                "the jacket's temperature as an input, not catalyst=... or a Jacket."
            )
        if self.heat is not None and self.heat.feed is not None:
            raise ModelError("The inflow of a PlugFlow has the start value of T; omit feed=...")

    def _add_inputs(self, m: Any) -> None:
        if isinstance(self.velocity, str):
            unit = self._unit(Dimension(length=1, time=-1))
            m.add_component(self.velocity, pyo.Param(mutable=True, units=unit))

    def _slope(self, m: Any, t: float, species: str) -> Any:
        return self._along(m, super()._slope(m, t, species))

    def _heat_slopes(self, m: Any, t: float) -> list[Any]:
        return [self._along(m, slope) for slope in super()._heat_slopes(m, t)]

    def _along(self, m: Any, by_time: Any) -> Any:
        if isinstance(self.velocity, str):
            return by_time / m.component(self.velocity)
        return by_time / float(self.velocity)

    def _names(self) -> list[str]:
        given = [self.velocity] if isinstance(self.velocity, str) else []
        return [*super()._names(), *given]
