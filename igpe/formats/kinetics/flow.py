"""Reactors with a feed: stirred tanks, tubes, and vessels that it fills (amounts and a volume)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.reactor import Reactor, refuse_unknown
from igpe.formats.kinetics.temperature import (
    CONCENTRATION,
    PER_TIME,
    Dimension,
    Jacket,
    at,
    require_input,
)

AMOUNT, VOLUME = Dimension(amount=1), Dimension(volume=1)


@dataclass(frozen=True)
class MolarFeed:
    """A feed of one species, in amount per time.

    flow     name of a time-dependent input. If the reactor has `algebraic` species, give the
             name of a constant input instead, because these species need the integral of the flow
    species  name of the species that is fed
    """

    flow: str
    species: str


@dataclass(frozen=True)
class Stream:
    """A feed of solution, in volume per time, which increases the volume of the contents.

    flow  name of the time-dependent input that contains the volumetric flow
    of    a dict {species: concentration in the stream}; a concentration is a number, or the name of
          a constant input
    """

    flow: str
    of: Mapping[str, float | str]


@dataclass(frozen=True)
class MolarVolumes:
    """Ideal mixing: the algebraic equation V = sum of (amount * molar volume).

    of      a dict {species: molar volume (volume per amount)}; the molar volume of all other
            species is 0
    inert   a dict {constant input: molar volume}; the input is, for example, the amount of a
            solvent
    """

    of: Mapping[str, float]
    inert: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, given in (("of", self.of), ("inert", self.inert)):
            require_mapping(f"MolarVolumes' {role}", given, f"{role}={{'A': 0.1}}", ModelError)
            if not all(is_finite(v) and v >= 0 for v in given.values()):
                raise ModelError(f"Molar volumes are {dict(given)}; they must be 0 or more.")


@dataclass(frozen=True)
class Semibatch(Reactor):
    """dn/dt = V*(net rate of production by the reactions) + feeds; the states are amounts.

    volume   volume of the contents: `MolarVolumes`, a number, or the name of a constant input. If
             `volume` is None, V is a state, which increases with the inflow of the streams. The
             experiment then gives the start value of V
    feeds    list of `MolarFeed`s and `Stream`s
    amounts  pattern for the names of amounts. With "n_{}", `n_A` is the amount of species A; its
             concentration is always called `A`

    If there are `algebraic` species, all feeds must be `MolarFeed`s with a constant flow. See
    `Reactor` for the other fields.

    raises ModelError in the same cases as `Reactor`, and for invalid values of the fields above
    """

    volume: MolarVolumes | float | str | None = None
    feeds: Sequence[MolarFeed | Stream] = ()
    amounts: str = "n_{}"

    def __post_init__(self) -> None:
        pattern, feeds = self.amounts, list(self.feeds)
        name = pattern.replace("{}", "A") if isinstance(pattern, str) else ""
        streams = [f.flow for f in feeds if isinstance(f, Stream)]
        wrong = {
            f"`amounts` is {shown(pattern)}; expected a pattern such as 'n_{{}}'.": (
                not name.isidentifier()
            ),
            "amounts='{}' would give amounts the same names as concentrations.": name == "A",
            f"The feeds are {shown(self.feeds)}; expected a list of MolarFeeds and Streams, for "
            "example [MolarFeed('fA', 'A'), Stream('q', {'A': 2.0})].": not all(
                isinstance(f, MolarFeed | Stream) for f in feeds
            ),
            f"The streams {streams} fill the vessel, so the volume is a state. Omit `volume`, "
            "or replace the streams by MolarFeeds.": streams and self.volume is not None,
            f"With algebraic={list(self.algebraic)}, the conserved sums may change only through "
            f"MolarFeeds with a constant flow; the reactor also has the streams {streams}.": streams
            and self.algebraic,
            "The reactor has no volume; for `volume`, give a number, the name of an input, or "
            "MolarVolumes({'A': 0.11, ...}).": not streams and self.volume is None,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise ModelError(message)
        super().__post_init__()
        volumes = self.volume.of if isinstance(self.volume, MolarVolumes) else ()
        for role, given in (("feeds", (s for f in feeds for s in _fed_by(f))), ("volume", volumes)):
            refuse_unknown(role, given, "species", self.species)

    @property
    def _quantity(self) -> dict[str, str]:
        return {s: self.amounts.format(s) for s in self.species}

    def _add_states(self, m: Any) -> None:
        for name in self._quantity.values():
            m.add_component(name, pyo.Var(m.t, initialize=1.0, units=self._unit(AMOUNT)))
        given, unit = self.volume, self._unit(VOLUME)
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
            fed = AMOUNT if isinstance(feed, MolarFeed) else VOLUME
            unit = self._unit(fed._replace(time=-1))
            m.add_component(feed.flow, pyo.Param(*over, mutable=True, default=0.0, units=unit))
            for name in _inputs_of(feed):
                m.add_component(name, pyo.Param(mutable=True, units=self._unit(CONCENTRATION)))
        volume = self.volume
        if isinstance(volume, MolarVolumes):
            for name in volume.inert:
                m.add_component(name, pyo.Param(mutable=True, units=self._unit(AMOUNT)))
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

    @property
    def _has_inflow(self) -> bool:
        return any(isinstance(f, Stream) for f in self.feeds)

    def _inflow(self, m: Any, t: float) -> Any:
        streams = (m.component(f.flow)[t] for f in self.feeds if isinstance(f, Stream))
        return sum(streams) / _volume(m, t)

    def _held(self, m: Any, t: float) -> Any:
        return _volume(m, t)

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


@dataclass(frozen=True)
class Cstr(Reactor):
    """dc/dt = dilution*(inlet - c) + net rate of production by the reactions; the states are
    concentrations.

    dilution  flow divided by volume, 1/time: name of a time-dependent input, or a number
    inlet     a dict {species: concentration in the feed}; a concentration is the name of a
              time-dependent input, or a number. For species that are not listed, this concentration
              is 0

    See `Reactor` for the other fields. The flow changes the conserved sums, so `algebraic` cannot
    be used here.

    raises ModelError in the same cases as `Reactor`, and for invalid values of the fields above
    """

    dilution: str | float = "dilution"
    inlet: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_mapping("inlet", self.inlet, "inlet={'A': 'A_in'}", ModelError)
        for role, given in (("dilution", self.dilution), *self.inlet.items()):
            require_input(f"The {role}", given)
        if self.algebraic:
            raise ModelError(
                f"algebraic={list(self.algebraic)} requires conserved sums, but the flow through a "
                "Cstr changes the sums that reactions conserve; omit `algebraic`."
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

    @property
    def _has_inflow(self) -> bool:
        return True

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
    """dc/dz = (net rate of production by the reactions)/velocity: a tube at steady state.

    The independent variable `t` of the model is the position z along the tube; if velocity=1.0, it
    is the residence time. The column `time` of an experiment contains positions, and the start of
    the experiment is the inlet. Density and velocity are constant along the tube, and there is no
    axial mixing. For a tube that changes with time or has dispersion, use a model distributed in
    space (docs/space.md).

    velocity  velocity of the flow, length per time: name of a constant input, or a number; use 1.0
              if the positions are residence times

    See `Reactor` for the other fields. `catalyst` must be None, because a catalyst deactivates over
    time, not along the tube. If there is a jacket, its temperature must be a number, or an input
    that gives the profile along the tube.

    raises ModelError in the same cases as `Reactor`, and also if the velocity is not positive, or
    if `catalyst`, a `Jacket` or the `feed` of the heat balance is given

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
                "A PlugFlow is at steady state. Instead of `catalyst`, give the activity as a "
                "constant (inputs=['a']); instead of a Jacket, give the temperature of the jacket "
                "as an input."
            )
        if self.heat is not None and self.heat.feed is not None:
            raise ModelError(
                "A PlugFlow takes the temperature of its inflow from start={'T': ...}; omit `feed`."
            )

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
