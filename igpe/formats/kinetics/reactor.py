"""Reactors as Pyomo models: closed vessels, stirred tanks with flow, and fed vessels (semibatch).

Batch and Cstr have constant volume and use concentrations. Semibatch uses amounts and a volume of
its own. Units of a reactor's quantities serve the tables and measurements in other units.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import pyomo.environ as pyo
from pyomo import dae
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.core.markup import table
from igpe.formats.kinetics.conservation import Law, conservation_laws, laws_for
from igpe.formats.kinetics.laws import TEMPERATURE, Arrhenius, OwnLaw, Reaction, numbered, plain
from igpe.problem.card import equations, typeset


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
        unit: Any = pyomo_units.dimensionless
        for name, power in ((self.amount, amount), (self.volume, volume), (self.time, time)):
            if power:
                unit = unit * getattr(pyomo_units, name) ** plain(power)
        return unit


ENERGY, KELVIN = pyomo_units.J / pyomo_units.mol, pyomo_units.K
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Reactor:
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
    bystanders   further species, which no reaction changes
    raises       ModelError for what is no reaction, names used twice, laws that do not suffice
    """

    reactions: Sequence[Reaction | str]
    bounds: Mapping[str, Bounds] = field(default_factory=dict, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    algebraic: Sequence[str] = field(default=(), kw_only=True)
    units: Units | None = field(default=None, kw_only=True)
    bystanders: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reactions", numbered(self.reactions))
        require_mapping("bounds", self.bounds, "bounds={'k1': (0, 10)}", ModelError)
        _refuse_strangers("bounds", self.bounds, "parameters", self.parameters)
        if not (self.temperature is None or is_finite(self.temperature)):
            raise ModelError(f"The temperature is {shown(self.temperature)}; give it in kelvin.")
        if isinstance(self.algebraic, str):
            raise ModelError(f"algebraic={self.algebraic!r} is one text; give a list of species.")
        wrong = isinstance(self.bystanders, str) or not all(map(is_name, self.bystanders))
        if wrong:
            raise ModelError(
                f"bystanders={shown(self.bystanders)}; give a list of names: bystanders=['S']."
            )
        names = [*self._names(), *self.parameters]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ModelError(
                f"The names {twice} mean two things in this reactor (species, parameters, rates "
                "r1, r2, ..., time t, temperature T share their names); rename one of them."
            )
        _refuse_strangers("algebraic", self.algebraic, "species", self.species)
        if self.algebraic:
            laws_for(self.algebraic, self.conservation)

    def _repr_html_(self) -> str:
        """The reactions, and the equations of the model that they make."""
        rows = [(f"r{k}", r.text) for k, r in enumerate(self.steps, start=1)]
        written = typeset(equations(self))
        return table(("", "reaction"), rows) + written

    @property
    def steps(self) -> tuple[Reaction, ...]:
        """The reactions, each with its rate law."""
        return self.reactions  # type: ignore[return-value]

    @cached_property
    def species(self) -> tuple[str, ...]:
        """All species, in the order they are written; bystanders last."""
        reacting = (s for r in self.steps for s in r.species)
        return tuple(dict.fromkeys((*reacting, *self.bystanders)))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all constants that are not numbers."""
        return tuple(dict.fromkeys(p for r in self.steps for p in r.parameters))

    @cached_property
    def conservation(self) -> tuple[Law, ...]:
        """Sums that no reaction changes: `print(*reactor.conservation)`."""
        return conservation_laws(self.species, (r.equation for r in self.steps))

    @property
    def is_thermal(self) -> bool:
        """Whether a constant depends on temperature, or the temperature is given."""
        constants = (c for r in self.steps for c, _ in r.law.constants(r.equation))
        return self.temperature is not None or any(isinstance(c, Arrhenius) for c in constants)

    def __call__(self, times: Iterable[float]) -> Any:
        """The pyomo.dae model at these times."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        self._add_constants(m)
        self._add_states(m)
        for place, reaction in enumerate(self.steps, start=1):
            m.add_component(f"r{place}", self._rate(m, reaction))
        self._add_inputs(m)
        for species, name in self._quantity.items():
            if species not in self.algebraic:
                self._add_balance(m, name, lambda t, s=species: self._slope(m, t, s))
        if self.algebraic:
            self._add_laws(m)
        return m

    @property
    def _quantity(self) -> dict[str, str]:
        """Species -> name of its state."""
        return {s: s for s in self.species}

    def _names(self) -> list[str]:
        """Every name that the model gets beside the parameters', for clashes."""
        thermal = [TEMPERATURE] if self.is_thermal else []
        rates = [f"r{place}" for place, _ in enumerate(self.steps, start=1)]
        starts = [f"{q}0" for s, q in self._quantity.items() if s in self.algebraic]
        return ["t", *thermal, *self.species, *rates, *starts]

    def _add_constants(self, m: Any) -> None:
        if self.is_thermal:
            unit = None if self.units is None else KELVIN
            value = {} if self.temperature is None else {"default": float(self.temperature)}
            m.add_component(TEMPERATURE, pyo.Param(m.t, mutable=True, units=unit, **value))
        units: dict[str, Any] = {}
        for constant, (power, time) in (c for r in self.steps for c in r.law.constants(r.equation)):
            unit = self._unit(power, -power, time)
            if isinstance(constant, Arrhenius):
                units |= {str(constant.energy): ENERGY, str(constant.factor): unit}
            else:
                units[str(constant)] = unit
        for name in self.parameters:
            lower, upper = bounds = self.bounds.get(name, (None, None))
            unit = None if self.units is None else units.get(name)
            m.add_component(name, pyo.Var(bounds=bounds, units=unit))
            is_box = lower is not None and upper is not None
            middle = (lower + upper) / 2 if is_box else max(lower or 1.0, 1.0)  # type: ignore[operator]
            m.component(name).value = middle

    def _unit(self, *powers: Fraction | int) -> Any:
        """A unit by its powers of amount, volume and time; None where there are none."""
        return None if self.units is None else self.units.of(*powers)  # type: ignore[arg-type]

    def _rate(self, m: Any, reaction: Reaction) -> Any:
        def rule(_: Any, t: float) -> Any:
            here = {s: m.component(s)[t] for s in self.species}
            try:
                return reaction.law.rate(m, t, here, reaction.equation)
            except KeyError as error:
                own = isinstance(reaction.law, OwnLaw)
                remedy = ", which no reaction has; name it in OwnLaw(..., modifiers=(...,))" * own
                raise ModelError(
                    f"The rate law of '{reaction.text}' asks for the species {error}{remedy}."
                ) from None

        return pyo.Expression(m.t, rule=rule)

    def _add_states(self, m: Any) -> None:
        """One variable over time for each species: concentrations named like them."""
        for species in self.species:
            m.add_component(species, pyo.Var(m.t, initialize=1.0, units=self._unit(1, -1)))

    def _add_inputs(self, m: Any) -> None:
        """What the experiment gives, beside the temperature."""

    def _slope(self, m: Any, t: float, species: str) -> Any:
        """How a state changes: here by what all reactions make of it."""
        return sum(
            plain(r.equation.net[species]) * m.component(f"r{place}")[t]
            for place, r in enumerate(self.steps, start=1)
            if species in r.equation.net
        )

    def _add_balance(self, m: Any, name: str, slope: Any) -> None:
        """The slope `d<name>` of a variable over time, and its equation `balance_<name>`."""
        state, per_time = m.component(name), self._unit(0, 0, -1)
        unit = None if per_time is None else state[m.t.first()].get_units() * per_time
        m.add_component(f"d{name}", dae.DerivativeVar(state, units=unit))
        derivative = m.component(f"d{name}")
        equation = pyo.Constraint(m.t, rule=lambda _, t: derivative[t] == slope(t))
        m.add_component(f"balance_{name}", equation)

    def _fed(self, m: Any) -> dict[str, Any]:
        """Species -> Pyomo expression of what is fed of it per time, constant."""
        return {}

    def _add_laws(self, m: Any) -> None:
        """A law's sum is what it was, and what was fed; `<state>0` starts an algebraic species."""
        names, fed, first = self._quantity, self._fed(m), m.t.first()
        starts = {s: m.component(n)[first] for s, n in names.items()}
        for species in self.algebraic:
            name, unit = f"{names[species]}0", starts[species].get_units()
            m.add_component(name, pyo.Param(mutable=True, default=0.0, units=unit))
            starts[species] = m.component(name)

        def rule(_: Any, t: float, parts: Mapping[str, int]) -> Any:
            now = sum(n * m.component(names[s])[t] for s, n in parts.items())
            then = sum(n * starts[s] for s, n in parts.items())
            added = sum(n * fed[s] for s, n in parts.items() if s in fed)
            return now == then + added * (t - first)

        for place, law in enumerate(laws_for(self.algebraic, self.conservation), start=1):
            equation = pyo.Constraint(
                m.t, rule=lambda _, t, parts=law.coefficients: rule(_, t, parts)
            )
            m.add_component(f"conservation_{place}", equation)


def is_name(given: Any) -> bool:
    """Whether it can name a species."""
    return isinstance(given, str) and given.isidentifier()


def _refuse_strangers(role: str, given: Iterable[str], kind: str, known: Sequence[str]) -> None:
    unknown_names = [name for name in given if name not in known]
    if unknown_names:
        raise ModelError(f"{role} has {unknown_names}; the {kind} are {list(known)}.")


@dataclass(frozen=True)
class Batch(Reactor):
    """dc/dt = what the reactions make of each species; the states are concentrations.

    Species in `algebraic` follow from conservation laws; they have no start value, but a constant
    `<name>0` (0 unless given as an input or estimated).

    See `Reactor` for the fields.
    """


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
        if self.algebraic:
            raise ModelError(
                f"algebraic={list(self.algebraic)} needs conserved sums, which the flow through a "
                "Cstr changes; leave it out."
            )
        super().__post_init__()
        _refuse_strangers("inlet", self.inlet, "species", self.species)

    def _add_inputs(self, m: Any) -> None:
        for name in self._inputs:
            unit = self._unit(0, 0, -1) if name == self.dilution else self._unit(1, -1)
            m.add_component(name, pyo.Param(m.t, mutable=True, units=unit))

    def _slope(self, m: Any, t: float, species: str) -> Any:
        flow, inlet = (
            m.component(given)[t] if isinstance(given, str) else float(given)
            for given in (self.dilution, self.inlet.get(species, 0.0))
        )
        return flow * (inlet - m.component(species)[t]) + super()._slope(m, t, species)

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
    feeds: Sequence[MolarFeed | Stream] = ()
    amounts: str = "n_{}"

    def __post_init__(self) -> None:
        pattern, feeds = self.amounts, list(self.feeds)
        name = pattern.format("A") if isinstance(pattern, str) else ""
        streams = [f.flow for f in feeds if isinstance(f, Stream)]
        wrong = {
            f"amounts is {shown(pattern)}; wanted a pattern such as 'n_{{}}'.": (
                not name.isidentifier()
            ),
            "amounts='{}' would give amounts the names of concentrations.": name == "A",
            f"The feeds are {shown(self.feeds)}; wanted a list of MolarFeed('fA', 'A') and "
            "Stream('q', {'A': 2.0}).": not all(isinstance(f, MolarFeed | Stream) for f in feeds),
            f"The streams {streams} fill the vessel, so the volume is a state: leave out "
            "volume=, or feed amounts with MolarFeed.": streams and self.volume is not None,
            f"algebraic={list(self.algebraic)} needs sums that change by constant MolarFeeds "
            f"only; there are the streams {streams}.": streams and self.algebraic,
            "Nothing says how large the volume is; give volume=1.0, the name of an input, or "
            "MolarVolumes({'A': 0.11, ...}).": not streams and self.volume is None,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise ModelError(message)
        super().__post_init__()
        volumes = self.volume.of if isinstance(self.volume, MolarVolumes) else ()
        for role, given in (("feeds", (s for f in feeds for s in _fed_by(f))), ("volume", volumes)):
            _refuse_strangers(role, given, "species", self.species)

    @property
    def _quantity(self) -> dict[str, str]:
        return {s: self.amounts.format(s) for s in self.species}

    def _add_states(self, m: Any) -> None:
        for name in self._quantity.values():
            m.add_component(name, pyo.Var(m.t, initialize=1.0, units=self._unit(1)))
        given, unit = self.volume, self._unit(0, 1)
        if is_finite(given):
            m.V = pyo.Param(initialize=float(given), units=unit)  # type: ignore[arg-type]
        elif isinstance(given, str):
            m.add_component(given, pyo.Param(mutable=True, units=unit))
            m.V = pyo.Expression(m.t, rule=lambda m, _: m.component(given))
        else:
            m.V = pyo.Var(m.t, initialize=1.0, units=unit)
        for species, name in self._quantity.items():
            amount = m.component(name)
            concentration = pyo.Expression(m.t, rule=lambda m, t, n=amount: n[t] / _volume(m, t))
            m.add_component(species, concentration)

    def _add_inputs(self, m: Any) -> None:
        over = [] if self.algebraic else [m.t]
        for feed in self.feeds:
            unit = self._unit(1, 0, -1) if isinstance(feed, MolarFeed) else self._unit(0, 1, -1)
            m.add_component(feed.flow, pyo.Param(*over, mutable=True, default=0.0, units=unit))
            for name in _inputs_of(feed):
                m.add_component(name, pyo.Param(mutable=True, units=self._unit(1, -1)))
        volume = self.volume
        if isinstance(volume, MolarVolumes):
            for name in volume.inert:
                m.add_component(name, pyo.Param(mutable=True, units=self._unit(1)))
            inside = {self._quantity[s]: v for s, v in volume.of.items()}
            m.mixing = pyo.Constraint(
                m.t,
                rule=lambda m, t: (
                    m.V[t]
                    == sum(v * m.component(n)[t] for n, v in inside.items())
                    + sum(v * m.component(n) for n, v in volume.inert.items())
                ),
            )
        elif volume is None:
            flows = [m.component(f.flow) for f in self.feeds]
            self._add_balance(m, "V", lambda t: sum(flow[t] for flow in flows))

    def _slope(self, m: Any, t: float, species: str) -> Any:
        entering: Any = 0
        for feed in (f for f in self.feeds if species in _fed_by(f)):
            flow, of = m.component(feed.flow), _fed_by(feed)[species]
            inside = m.component(of) if isinstance(of, str) else float(of)
            entering = entering + (flow if self.algebraic else flow[t]) * inside
        return _volume(m, t) * super()._slope(m, t, species) + entering

    def _fed(self, m: Any) -> dict[str, Any]:
        return {f.species: m.component(f.flow) for f in self.feeds if isinstance(f, MolarFeed)}

    def _names(self) -> list[str]:
        flows = [name for f in self.feeds for name in (f.flow, *_inputs_of(f))]
        inert = list(self.volume.inert) if isinstance(self.volume, MolarVolumes) else []
        given = [self.volume] if isinstance(self.volume, str) else []
        return [*super()._names(), *self._quantity.values(), "V", *flows, *inert, *given]


def _volume(m: Any, t: float) -> Any:
    return m.V[t] if m.V.is_indexed() else m.V


def _fed_by(feed: MolarFeed | Stream) -> Mapping[str, float | str]:
    """Species -> how much of it the flow carries."""
    return {feed.species: 1.0} if isinstance(feed, MolarFeed) else feed.of


def _inputs_of(feed: MolarFeed | Stream) -> list[str]:
    """Names of inputs that are concentrations of a stream."""
    return [c for c in _fed_by(feed).values() if isinstance(c, str)]
