"""What all reactors share: species, constants, temperature and rates in a Pyomo model.

A closed vessel of constant volume, in concentrations.

A stirred tank with constant volume and flow through it, in concentrations.

Units of a reactor's quantities, for the tables and for measurements in other units.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import pyomo.environ as pyo
from pyomo import dae
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.conservation import Law, conservation_laws, laws_for
from igpe.formats.kinetics.constants import (
    TEMPERATURE,
    Arrhenius,
    add_balance,
    add_laws,
    is_thermal,
)
from igpe.formats.kinetics.laws import OwnLaw, Reaction, numbered


@dataclass(frozen=True)
class Units:
    """The units that a reactor is written in; those of its constants follow.

    amount, volume, time  names that Pyomo knows, as "mol", "L", "h"
    raises                ModelError for what Pyomo knows no unit of
    """

    amount: str = "mol"
    volume: str = "L"
    time: str = "h"

    def __post_init__(self) -> None:
        for name in (self.amount, self.volume, self.time):
            try:
                getattr(pyomo_units, name)
            except Exception as error:
                raise ModelError(
                    f"'{name}' is no unit that Pyomo knows; give for example "
                    "Units(amount='mol', volume='L', time='h')."
                ) from error

    def of(self, amount: Fraction | int = 0, volume: Fraction | int = 0, time: int = 0) -> Any:
        """amount^a * volume^v * time^t as a Pyomo unit."""
        made: Any = pyomo_units.dimensionless
        for name, power in ((self.amount, amount), (self.volume, volume), (self.time, time)):
            if power:
                made = made * getattr(pyomo_units, name) ** _plain(power)
        return made

    def constant(self, concentration: Fraction | int, time: int) -> Any:
        """The unit of a constant that is so many powers of concentration and time."""
        return self.of(concentration, -concentration, time)


ENERGY, KELVIN = pyomo_units.J / pyomo_units.mol, pyomo_units.K


def _plain(power: Fraction | int) -> int | float:
    return int(power) if power == int(power) else float(power)


Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Reactor(ABC):
    """Reactions in a vessel. `reactor(times)` is an ordinary pyomo.dae model.

    The model's names: `t`; the states of the kind of reactor, with slopes `dA` and equations
    `balance_A`; concentrations `A`; rates `r1`, `r2`, ... (concentration per time); temperature
    `T` (K) where a constant depends on it. All can be measured, inputs are given by the
    experiment.

    reactions    texts ("A + B -> C"), or `Reaction` with a rate law
    bounds       parameter -> (lower, upper)
    temperature  K, until an experiment gives the input `T`: a number, or a programme
    algebraic    species computed by conservation laws instead of their own differential equation
    units        of the quantities; None for none
    raises       ModelError for what is no reaction, names used twice, laws that do not suffice
    """

    reactions: Sequence[Reaction | str]
    bounds: Mapping[str, Bounds] = field(default_factory=dict, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    algebraic: Sequence[str] = field(default=(), kw_only=True)
    units: Units | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reactions", numbered(self.reactions))
        require_mapping("bounds", self.bounds, "bounds={'k1': (0, 10)}", ModelError)
        strangers = [name for name in self.bounds if name not in self.parameters]
        if strangers:
            raise ModelError(
                f"bounds are given for {strangers}; the parameters are {list(self.parameters)}."
            )
        if not (self.temperature is None or is_finite(self.temperature)):
            raise ModelError(f"The temperature is {shown(self.temperature)}; give it in kelvin.")
        if isinstance(self.algebraic, str):
            raise ModelError(f"algebraic={self.algebraic!r} is one text; give a list of species.")
        self._check_names()
        if self.algebraic:
            self._check_algebraic()

    @property
    def steps(self) -> tuple[Reaction, ...]:
        """The reactions, each with its rate law."""
        return self.reactions  # type: ignore[return-value]

    @cached_property
    def species(self) -> tuple[str, ...]:
        """All species, in the order they are written."""
        return tuple(dict.fromkeys(s for r in self.steps for s in r.species))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all constants that are not numbers."""
        return tuple(dict.fromkeys(p for r in self.steps for p in r.parameters))

    @cached_property
    def conservation(self) -> tuple[Law, ...]:
        """What no reaction changes: `print(*reactor.conservation)`."""
        return conservation_laws(self.species, (r.equation for r in self.steps))

    @property
    def is_thermal(self) -> bool:
        """Whether a constant depends on temperature, or the temperature is given."""
        laws = [(r.law, r.equation) for r in self.steps]
        return self.temperature is not None or any(
            is_thermal(c for c, _ in law.constants(equation)) for law, equation in laws
        )

    def __call__(self, times: Iterable[float]) -> Any:
        """The pyomo.dae model at these times."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        self._add_constants(m)
        self._add_states(m)
        for place, reaction in enumerate(self.steps, start=1):
            m.add_component(f"r{place}", self._rate(m, reaction))
        self._add_balances(m)
        return m

    def _add_states(self, m: Any) -> None:
        """One variable over time for each species: concentrations named like them."""
        for species in self.species:
            m.add_component(species, pyo.Var(m.t, initialize=1.0, units=self._unit(1, -1)))

    @abstractmethod
    def _add_balances(self, m: Any) -> None:
        """How the states change."""

    def _concentrations(self, m: Any, t: float) -> dict[str, Any]:
        """Species -> concentration."""
        return {s: m.component(s)[t] for s in self.species}

    def _names(self) -> list[str]:
        """Every name that the model gets beside the parameters', for clashes."""
        rates = [f"r{place}" for place, _ in enumerate(self.steps, start=1)]
        return ["t", *([TEMPERATURE] if self.is_thermal else []), *self.species, *rates]

    def _check_names(self) -> None:
        names = [*self._names(), *self.parameters]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ModelError(
                f"The names {twice} mean two things in this reactor (species, parameters, rates "
                "r1, r2, ..., time t, temperature T share their names); rename one of them."
            )

    def _check_algebraic(self) -> None:
        strangers = [s for s in self.algebraic if s not in self.species]
        if strangers:
            raise ModelError(f"algebraic has {strangers}; the species are {list(self.species)}.")
        laws_for(self.algebraic, self.conservation)

    def _unit(self, *powers: int) -> Any:
        """A unit by its powers of amount, volume and time; None where there are none."""
        return None if self.units is None else self.units.of(*powers)

    def _add_constants(self, m: Any) -> None:
        if self.is_thermal:
            unit = None if self.units is None else KELVIN
            value = {} if self.temperature is None else {"default": float(self.temperature)}
            m.add_component(TEMPERATURE, pyo.Param(m.t, mutable=True, units=unit, **value))
        unit_of = {} if self.units is None else self._units_of_constants(self.units)
        for name in self.parameters:
            bounds = self.bounds.get(name, (None, None))
            m.add_component(name, pyo.Var(bounds=bounds, units=unit_of.get(name)))
            m.component(name).value = _amid(bounds)

    def _units_of_constants(self, units: Units) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for reaction in self.steps:
            for constant, (concentration, time) in reaction.law.constants(reaction.equation):
                unit = units.constant(concentration, time)
                if isinstance(constant, Arrhenius):
                    found |= {str(constant.energy): ENERGY, str(constant.factor): unit}
                else:
                    found[str(constant)] = unit
        return found

    def _rate(self, m: Any, reaction: Reaction) -> Any:
        def rule(_: Any, t: float) -> Any:
            here = self._concentrations(m, t)
            try:
                return reaction.law.rate(m, t, here, reaction.equation)
            except KeyError as error:
                raise ModelError(
                    f"The rate law of '{reaction.text}' asks for the species {error}, which no "
                    "reaction has; name it in OwnLaw(..., modifiers=(...,))."
                    if isinstance(reaction.law, OwnLaw)
                    else f"The rate law of '{reaction.text}' asks for {error}."
                ) from None

        return pyo.Expression(m.t, rule=rule)

    def _made(self, m: Any, t: float, species: str) -> Any:
        """What all reactions make of a species: concentration per time."""
        total: Any = 0
        for place, reaction in enumerate(self.steps, start=1):
            count = reaction.equation.net.get(species)
            if count:
                plain = int(count) if count.denominator == 1 else float(count)
                total = total + plain * m.component(f"r{place}")[t]
        return total


def _amid(bounds: Bounds) -> float:
    """A value to begin with."""
    lower, upper = bounds
    if lower is not None and upper is not None:
        return (lower + upper) / 2
    return 1.0 if lower is None else max(lower, 1.0)


@dataclass(frozen=True)
class Batch(Reactor):
    """dc/dt = what the reactions make of each species; the states are concentrations.

    Species in `algebraic` follow from conservation laws; they have no start value, but a constant
    `<name>0` (0 unless given as an input or estimated).

    See `Reactor` for the fields.
    """

    def _add_balances(self, m: Any) -> None:
        for species in self.species:
            if species not in self.algebraic:
                add_balance(m, species, partial(self._made, m, species=species))
        laws = laws_for(self.algebraic, self.conservation)
        add_laws(m, laws, {s: s for s in self.species}, self.algebraic, {})

    def _names(self) -> list[str]:
        return [*super()._names(), *(f"{s}0" for s in self.algebraic)]


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
