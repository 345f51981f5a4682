"""Heat balances of reactors, and their jackets.

Source: Fogler, Elements of Chemical Reaction Engineering, 5th ed. (2016), chapters 11 to 13.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.temperature import (
    MOLAR_ENERGY,
    TEMPERATURE,
    Constant,
    Dimension,
    require_constant,
    value,
)

JACKET = "T_jacket"  # the model's name of the jacket's temperature, K
CAPACITY = Dimension(energy=1, kelvin=-1)


@dataclass(frozen=True)
class Jacket:
    """A jacket with its own heat balance: dT_jacket/dt = flow*(inlet - T_jacket) + UA*(T -
    T_jacket)/capacity. `T_jacket` is a state.

    capacity  heat capacity of the jacket's contents, J/K; per reactor volume if `exchange` is also
              per reactor volume
    flow      flow through the jacket divided by the volume of the jacket, 1/time: name of a
              time-dependent input, or a number
    inlet     temperature of the fluid that enters the jacket, K: name of a time-dependent input,
              or a number
    """

    capacity: Constant
    flow: str | float = 0.0
    inlet: str | float = 0.0

    def __post_init__(self) -> None:
        require_constant("Jacket: `capacity`", self.capacity)
        for role in ("flow", "inlet"):
            require_input(f"Jacket: `{role}`", getattr(self, role))


@dataclass(frozen=True)
class HeatBalance:
    """A heat balance, which makes the temperature T a state.

    capacity*dT/dt = -sum of heats*rates + exchange*(jacket - T) + heat of the inflow

    heats     enthalpy of each reaction, J/mol, negative for exothermic reactions: name of a
              parameter, or a number
    capacity  heat capacity of the contents per volume, J/(volume K)
    exchange  heat transfer coefficient multiplied by area (UA), J/(time K). In all reactors except
              `Semibatch`, give UA divided by the volume of the reactor
    jacket    temperature of the jacket, K: name of a time-dependent input, a number, or
              a `Jacket`
    feed      temperature of the inflow, K: name of a time-dependent input, or a number.
              Required for a `Cstr` and for a `Semibatch` with `Stream`s; a `MolarFeed` adds no heat

    Heat capacities do not change with composition or temperature.

    raises ModelError for invalid constants, and if only one of `jacket` and `exchange` is given
    """

    heats: Sequence[Constant]
    capacity: Constant
    exchange: Constant = 0.0
    jacket: str | float | Jacket | None = None
    feed: str | float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.heats, str) or not isinstance(self.heats, Sequence):
            raise ModelError(
                f"The heats are {shown(self.heats)}; give a list with one heat for each reaction: "
                "heats=['dH1', -5e4]."
            )
        for k, heat in enumerate(self.heats, start=1):
            require_constant(f"The heat of reaction {k}", heat)
        require_constant("HeatBalance: `capacity`", self.capacity)
        require_constant("HeatBalance: `exchange`", self.exchange)
        if (self.jacket is None) != (self.exchange == 0.0):
            raise ModelError(
                f"HeatBalance has exchange={self.exchange!r} and jacket={shown(self.jacket)}; "
                "give both (exchange='UA', jacket='T_j') or neither."
            )
        for role in ("jacket", "feed"):
            given = getattr(self, role)
            if given is not None and not isinstance(given, Jacket):
                require_input(f"HeatBalance: `{role}`", given)

    @property
    def constants(self) -> list[tuple[Constant, Dimension]]:
        """All constants, with their dimensions."""
        capacity = CAPACITY._replace(volume=-1)
        exchange = CAPACITY._replace(time=-1)
        own = [(self.capacity, capacity), (self.exchange, exchange)]
        if isinstance(self.jacket, Jacket):
            own.append((self.jacket.capacity, CAPACITY))
        return [*((heat, MOLAR_ENERGY) for heat in self.heats), *own]

    @property
    def inputs(self) -> dict[str, Dimension]:
        """Names of time-dependent inputs, with their dimensions."""
        temperature, jacket = Dimension(kelvin=1), self.jacket
        given: dict[Any, Dimension] = {self.feed: temperature}
        if isinstance(jacket, Jacket):
            given |= {jacket.inlet: temperature, jacket.flow: Dimension(time=-1)}
        else:
            given[jacket] = temperature
        return {name: d for name, d in given.items() if isinstance(name, str)}

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the temperatures that are states."""
        return (TEMPERATURE, JACKET) if isinstance(self.jacket, Jacket) else (TEMPERATURE,)

    def slopes(
        self, m: Any, t: float, rates: Sequence[Any], *, volume: Any, inflow: Any
    ) -> Iterator[Any]:
        """Slopes of the `states`.

        rates   rates of all reactions, mol per volume and time
        volume  volume by which the heat exchange is divided
        inflow  volumetric inflow divided by the volume of the contents, 1/time
        """
        now, jacket = m.component(TEMPERATURE)[t], self.jacket
        gained = -sum(value(h, m, t) * r for h, r in zip(self.heats, rates, strict=True))
        passed: Any = 0
        if jacket is not None:
            is_state = isinstance(jacket, Jacket)
            outside = m.component(JACKET)[t] if is_state else at(jacket, m, t)
            passed = value(self.exchange, m, t) * (outside - now)
            gained = gained + passed / volume
        slope = gained / value(self.capacity, m, t)
        if self.feed is not None:
            slope = slope + inflow * (at(self.feed, m, t) - now)
        yield slope
        if isinstance(jacket, Jacket):
            renewed = at(jacket.flow, m, t) * (at(jacket.inlet, m, t) - m.component(JACKET)[t])
            yield renewed - passed / value(jacket.capacity, m, t)


def at(given: Any, m: Any, t: float) -> Any:
    """An input over time, or a number."""
    return m.component(given)[t] if isinstance(given, str) else float(given)


def require_input(role: str, given: Any) -> None:
    """Raise ModelError unless it is a name or a number."""
    if not ((isinstance(given, str) and given.isidentifier()) or is_finite(given)):
        raise ModelError(f"{role} is {shown(given)}; give the name of an input, or a number.")
