"""Vessels that are fed: amounts, and a volume of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.reactor import Reactor, refuse_unknown
from igpe.formats.kinetics.temperature import CONCENTRATION, Dimension

AMOUNT, VOLUME = Dimension(amount=1), Dimension(volume=1)


@dataclass(frozen=True)
class MolarFeed:
    """A flow of one species, amount per time.

    flow     name of an input over time, or of a constant input if `algebraic` species need its
             integral
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
    """dn/dt = V*(production by the reactions) + feeds; the states are amounts.

    volume   `MolarVolumes`, a number, the name of a constant input; or None: V is a state that the
             streams fill; the experiment gives its start value
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
            f"amounts is {shown(pattern)}; expected a pattern such as 'n_{{}}'.": (
                not name.isidentifier()
            ),
            "amounts='{}' would give amounts the same names as concentrations.": name == "A",
            f"The feeds are {shown(self.feeds)}; expected a list of MolarFeed('fA', 'A') and "
            "Stream('q', {'A': 2.0}).": not all(isinstance(f, MolarFeed | Stream) for f in feeds),
            f"The streams {streams} fill the vessel, so the volume is a state: leave out "
            "volume=, or feed amounts with MolarFeed.": streams and self.volume is not None,
            f"algebraic={list(self.algebraic)} needs conserved sums that only constant "
            f"MolarFeeds change, but the reactor has the streams {streams}.": streams
            and self.algebraic,
            "The reactor has no volume; give volume=1.0, the name of an input, or "
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
            unit = (
                self._unit(Dimension(amount=1, time=-1))
                if isinstance(feed, MolarFeed)
                else self._unit(Dimension(volume=1, time=-1))
            )
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
