"""Reactors as Pyomo models: closed vessels, stirred tanks with flow, and fed vessels (semibatch).

Batch and Flow have constant volume and use concentrations. Semibatch uses amounts and a volume of
its own. Units of a reactor's quantities serve the tables and measurements in other units.
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
from igpe.formats.kinetics.conservation import (
    Law,
    add_balance,
    add_laws,
    conservation_laws,
    laws_for,
)
from igpe.formats.kinetics.laws import (
    TEMPERATURE,
    Arrhenius,
    OwnLaw,
    Reaction,
    is_thermal,
    numbered,
)


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


@dataclass(frozen=True)
class MolarFeed:
    """A flow of one species, amount per time.

    flow     name of the input: over time; constant where `algebraic` species need its integral
    species  what is fed
    """

    flow: str
    species: str


@dataclass(frozen=True)
class Stream:
    """A flow of solution, volume per time, which fills the vessel.

    flow  name of the input over time
    of    species -> concentration in the stream: a number, or the name of a constant input
    """

    flow: str
    of: Mapping[str, float | str]


@dataclass(frozen=True)
class MolarVolumes:
    """Ideal mixing: V = sum of amounts times molar volumes, an algebraic equation.

    of      species -> molar volume, volume/amount; all others take no room
    inert   name of a constant input (the amount of solvent, say) -> molar volume
    """

    of: Mapping[str, float]
    inert: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, given in (("of", self.of), ("inert", self.inert)):
            require_mapping(f"MolarVolumes' {role}", given, f"{role}={{'A': 0.1}}", ModelError)
            if not all(is_finite(v) and v >= 0 for v in given.values()):
                raise ModelError(f"Molar volumes are {dict(given)}; give numbers of 0 or more.")


Feed = MolarFeed | Stream


@dataclass(frozen=True)
class Semibatch(Reactor):
    """dn/dt = V*(what the reactions make) + feeds; the states are amounts.

    volume   `MolarVolumes`, a number, the name of a constant input; or None: V is a state that
             the streams fill, and starts where the experiment says
    feeds    `MolarFeed` or `Stream`, any number of them
    amounts  how amounts are named: "n_{}" gives n_A; concentrations are named like the species

    With `algebraic` species the feeds are constant `MolarFeed`s. See `Reactor` for the other
    fields.

    raises ModelError, as `Reactor` does
    """

    volume: MolarVolumes | float | str | None = None
    feeds: Sequence[Feed] = ()
    amounts: str = "n_{}"

    def __post_init__(self) -> None:
        if not isinstance(self.amounts, str) or not self.amounts.format("A").isidentifier():
            raise ModelError(
                f"amounts is {shown(self.amounts)}; wanted a pattern such as 'n_{{}}'."
            )
        if self.amounts.format("A") == "A":
            raise ModelError("amounts='{}' would give amounts the names of concentrations.")
        if not all(isinstance(f, Feed) for f in self.feeds):
            raise ModelError(
                f"The feeds are {shown(self.feeds)}; wanted a list of MolarFeed('fA', 'A') and "
                "Stream('q', {'A': 2.0})."
            )
        super().__post_init__()
        fed = {s for f in self.feeds for s in _species_of(f)}
        filled = set(self.volume.of) if isinstance(self.volume, MolarVolumes) else set()
        strangers = sorted((fed | filled) - set(self.species))
        if strangers:
            raise ModelError(
                f"Feeds or molar volumes name {strangers}; the species are {list(self.species)}."
            )
        self._check_volume()

    def _check_volume(self) -> None:
        streams = [f.flow for f in self.feeds if isinstance(f, Stream)]
        if streams and self.volume is not None:
            raise ModelError(
                f"The streams {streams} fill the vessel, so the volume is a state: leave out "
                "volume=, or feed amounts with MolarFeed."
            )
        if streams and self.algebraic:
            raise ModelError(
                f"algebraic={list(self.algebraic)} needs sums that change by constant MolarFeeds "
                f"only; there are the streams {streams}."
            )
        if not streams and self.volume is None:
            raise ModelError(
                "Nothing says how large the volume is; give volume=1.0, the name of an input, or "
                "MolarVolumes({'A': 0.11, ...})."
            )

    @property
    def _quantity(self) -> dict[str, str]:
        return {s: self.amounts.format(s) for s in self.species}

    def _add_states(self, m: Any) -> None:
        for name in self._quantity.values():
            m.add_component(name, pyo.Var(m.t, initialize=1.0, units=self._unit(1)))
        self._add_volume(m)
        for species, name in self._quantity.items():
            amount = m.component(name)
            m.add_component(
                species, pyo.Expression(m.t, rule=lambda m, t, n=amount: n[t] / _volume(m, t))
            )

    def _add_volume(self, m: Any) -> None:
        given, unit = self.volume, self._unit(0, 1)
        if is_finite(given):
            m.V = pyo.Param(initialize=float(given), units=unit)  # type: ignore[arg-type]
        elif isinstance(given, str):
            m.add_component(given, pyo.Param(mutable=True, units=unit))
            m.V = pyo.Expression(m.t, rule=lambda m, _: m.component(given))
        else:
            m.V = pyo.Var(m.t, initialize=1.0, units=unit)

    def _add_balances(self, m: Any) -> None:
        self._add_flows(m)
        for species, name in self._quantity.items():
            if species not in self.algebraic:
                add_balance(m, name, self._slope(m, species))
        laws = laws_for(self.algebraic, self.conservation)
        fed = {f.species: m.component(f.flow) for f in self.feeds if isinstance(f, MolarFeed)}
        add_laws(m, laws, self._quantity, self.algebraic, fed)
        if isinstance(self.volume, MolarVolumes):
            self._add_mixing(m, self.volume)
        elif self.volume is None:
            flows = [m.component(f.flow) for f in self.feeds if isinstance(f, Stream)]
            add_balance(m, "V", lambda t: sum(flow[t] for flow in flows))

    def _add_flows(self, m: Any) -> None:
        for feed in self.feeds:
            molar = isinstance(feed, MolarFeed)
            unit = self._unit(int(molar), 1 - int(molar), -1)
            over = [] if self.algebraic else [m.t]
            m.add_component(feed.flow, pyo.Param(*over, mutable=True, default=0.0, units=unit))
            for name in _named(feed):
                m.add_component(name, pyo.Param(mutable=True, units=self._unit(1, -1)))

    def _slope(self, m: Any, species: str) -> Any:
        def entering(feed: Feed, t: float) -> Any:
            flow = m.component(feed.flow)
            now = flow if self.algebraic else flow[t]
            if isinstance(feed, MolarFeed):
                return now
            inside = feed.of[species]
            return now * (m.component(inside) if isinstance(inside, str) else float(inside))

        mine = [f for f in self.feeds if species in _species_of(f)]

        def slope(t: float) -> Any:
            return _volume(m, t) * self._made(m, t, species) + sum(entering(f, t) for f in mine)

        return slope

    def _add_mixing(self, m: Any, volumes: MolarVolumes) -> None:
        for name in volumes.inert:
            m.add_component(name, pyo.Param(mutable=True, units=self._unit(1)))

        def rule(m: Any, t: float) -> Any:
            dissolved = sum(v * m.component(self._quantity[s])[t] for s, v in volumes.of.items())
            return m.V[t] == dissolved + sum(v * m.component(n) for n, v in volumes.inert.items())

        m.mixing = pyo.Constraint(m.t, rule=rule)

    def _names(self) -> list[str]:
        quantities = self._quantity
        own = [*quantities.values(), *(f"{quantities[s]}0" for s in self.algebraic), "V"]
        flows = [name for f in self.feeds for name in (f.flow, *_named(f))]
        inert = list(self.volume.inert) if isinstance(self.volume, MolarVolumes) else []
        given = [self.volume] if isinstance(self.volume, str) else []
        return [*super()._names(), *own, *flows, *inert, *given]


def _volume(m: Any, t: float) -> Any:
    return m.V[t] if m.V.is_indexed() else m.V


def _species_of(feed: Feed) -> tuple[str, ...]:
    return (feed.species,) if isinstance(feed, MolarFeed) else tuple(feed.of)


def _named(feed: Feed) -> list[str]:
    """Names of inputs that are concentrations of a stream."""
    return (
        [] if isinstance(feed, MolarFeed) else [c for c in feed.of.values() if isinstance(c, str)]
    )
