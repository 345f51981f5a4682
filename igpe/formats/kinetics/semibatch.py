"""A vessel that is fed, in amounts, with a volume of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.conservation import laws_for
from igpe.formats.kinetics.constants import add_balance, add_laws
from igpe.formats.kinetics.reactor import Reactor


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
