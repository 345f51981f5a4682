"""Constants of rate laws and their units, functions of temperature, and heat balances of reactors.

Constants are numbers or names of parameters. Source of the heat balances and jackets: Fogler,
Elements of Chemical Reaction Engineering, 5th ed. (2016), chapters 11 to 13.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyomo.environ as pyo
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError
from igpe.problem.measurements import unit_name

GAS_CONSTANT = 8.314462618  # J/(mol K)
BOLTZMANN, PLANCK = 1.380649e-23, 6.62607015e-34  # J/K, J s
TEMPERATURE = "T"  # the model's name of it, K
REFERENCE = "T_reference"  # the reactor's reference temperature, K


class Dimension(NamedTuple):
    """Powers of what units are made of.

    per_mole is J/mol, whatever the amount is counted in; energy is J
    """

    amount: Fraction | int = 0
    volume: Fraction | int = 0
    time: int = 0
    length: int = 0
    per_mole: int = 0
    energy: int = 0
    kelvin: int = 0


def concentration(power: Fraction | int, time: int = 0) -> Dimension:
    """Powers of concentration and of time."""
    return Dimension(amount=power, volume=-power, time=time)


NONE, PER_TIME, RATE, CONCENTRATION = (
    concentration(*powers) for powers in ((0,), (0, -1), (1, -1), (1,))
)
PER_CONCENTRATION, MOLAR_ENERGY, KELVIN = (
    concentration(-1),
    Dimension(per_mole=1),
    Dimension(kelvin=1),
)


def plain(power: Fraction | float) -> int | float:
    """The number as an int where it is whole, else as a float."""
    return int(power) if power == int(power) else float(power)


@dataclass(frozen=True)
class Units:
    """Units of a reactor's quantities; the units of its constants follow from them.

    amount, volume, time, length  names of units in Pyomo, such as "mol", "L", "h", "m"; amounts may
                                  be masses ("g") if no quantity is molar
    raises                        ModelError for a unit that Pyomo does not know
    """

    amount: str = "mol"
    volume: str = "L"
    time: str = "h"
    length: str = "m"

    def __post_init__(self) -> None:
        for name in (self.amount, self.volume, self.time, self.length):
            try:
                getattr(pyomo_units, name)
            except Exception as error:
                raise ModelError(
                    f"'{name}' is not a unit that Pyomo knows; give for example "
                    "Units(amount='mol', volume='L', time='h')."
                ) from error

    def of(self, dimension: Dimension) -> Any:
        """Return the Pyomo unit of a dimension."""
        own = (getattr(pyomo_units, n) for n in (self.amount, self.volume, self.time, self.length))
        joule, kelvin = pyomo_units.J, pyomo_units.K
        unit: Any = pyomo_units.dimensionless
        for base, powers in zip(
            (*own, joule / pyomo_units.mol, joule, kelvin), dimension, strict=True
        ):
            if powers:
                unit = unit * base ** plain(powers)
        return unit

    def text(self, dimension: Dimension) -> str:
        """Return the unit of a dimension as text."""
        return unit_name(pyo.Param(units=self.of(dimension))) or "1"

    @property
    def moles(self) -> float:
        """Return the number of moles in one unit of amount.

        raises ModelError if the unit is not an amount of substance
        """
        amount = getattr(pyomo_units, self.amount)
        try:
            return float(
                pyomo_units.convert_value(1.0, from_units=amount, to_units=pyomo_units.mol)
            )
        except Exception as error:
            raise ModelError(
                "Heats of reaction are per mole, but the reactor's unit of amount is "
                f"'{self.amount}'; give Units(amount='mol', ...)."
            ) from error


class Thermal:
    """Base of constants that depend on temperature.

    dimensions  field -> dimension of its constant; None: the same dimension as the rate constant
                itself
    """

    dimensions: ClassVar[dict[str, Dimension | None]] = {}

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in self.dimensions:
            require_constant(f"{kind}: `{name}`", getattr(self, name), None)
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        positive = {n: v for n, v in given.items() if n in ("reference", "gas") and v is not None}
        if not all(is_finite(v) and v > 0 for v in positive.values()):
            raise ModelError(
                f"{kind} has {', '.join(f'{n}={shown(v)}' for n, v in positive.items())}; give "
                "positive numbers: the reference temperature in kelvin, the gas constant in "
                "J/(mol K)."
            )

    def parts(self, default: Dimension) -> list[tuple["str | float", Dimension]]:
        """The parameters and numbers of the constant, with their dimensions."""
        return [(getattr(self, n), d or default) for n, d in self.dimensions.items()]

    def at(self, m: Any, t: float) -> Any:
        """Return the value of the constant at time `t` as a Pyomo expression."""
        raise NotImplementedError

    @property
    def needs_reference(self) -> bool:
        """Return True if the reactor must choose the reference temperature."""
        return hasattr(self, "reference") and self.reference is None


@dataclass(frozen=True)
class Arrhenius(Thermal):
    """factor*exp(-energy/gas*(1/T - 1/reference)): equals `factor` at `reference`.

    If `reference` is within the range of the measured temperatures, the estimates of `factor` and
    `energy` are nearly uncorrelated (Schwaab and Pinto, Chem. Eng. Sci. 62 (2007) 2750, eq. 4).

    factor     value of the constant at `reference`: name of a parameter, or a number
    energy     activation energy, J/mol: name of a parameter, or a number
    reference  reference temperature, K; None: the reference temperature of the reactor, which
               `Reactor.problem` chooses within the measured range
    gas        gas constant, J/(mol K)
    raises     ModelError if the reference or the gas constant is not positive
    """

    dimensions: ClassVar = {"factor": None, "energy": MOLAR_ENERGY}
    factor: str | float
    energy: str | float
    reference: float | None = None
    gas: float = GAS_CONSTANT

    def at(self, m: Any, t: float) -> Any:
        return _from_reference(self, self.factor, self.energy, m, t)


@dataclass(frozen=True)
class VantHoff(Thermal):
    """constant*exp(-enthalpy/gas*(1/T - 1/reference)): van 't Hoff's equilibrium constant.

    constant   equilibrium constant at `reference`: name of a parameter, or a number
    enthalpy   enthalpy of the reaction, J/mol, negative for exothermic reactions;
               `HeatBalance.heats` may use the same name

    reference, gas  as for `Arrhenius`

    Source: Atkins and de Paula, Physical Chemistry, 8th ed.,
    eq. 7.25.
    """

    dimensions: ClassVar = {"constant": None, "enthalpy": MOLAR_ENERGY}
    constant: str | float
    enthalpy: str | float
    reference: float | None = None
    gas: float = GAS_CONSTANT

    def at(self, m: Any, t: float) -> Any:
        return _from_reference(self, self.constant, self.enthalpy, m, t)


@dataclass(frozen=True)
class Thermodynamic(Thermal):
    """exp(entropy/gas - enthalpy/(gas*T)): an equilibrium constant from tabulated data.

    enthalpy, entropy  enthalpy and entropy of the reaction, J/mol and J/(mol K): names of
                       parameters, or numbers. The standard concentration is 1 in the reactor's unit
                       of concentration
    gas                gas constant, J/(mol K)

    Source: Atkins and de Paula, Physical Chemistry, 8th ed., eq. 7.17.
    """

    dimensions: ClassVar = {"enthalpy": MOLAR_ENERGY, "entropy": Dimension(per_mole=1, kelvin=-1)}
    enthalpy: str | float
    entropy: str | float
    gas: float = GAS_CONSTANT

    def at(self, m: Any, t: float) -> Any:
        entropy, enthalpy = value(self.entropy, m, t), value(self.enthalpy, m, t)
        return pyo.exp(entropy / self.gas - enthalpy / (self.gas * m.component(TEMPERATURE)[t]))


@dataclass(frozen=True)
class Eyring(Thermodynamic):
    """kB*T/h*exp(entropy/gas - enthalpy/(gas*T)): a rate constant from transition state theory.

    enthalpy, entropy  enthalpy and entropy of activation, J/mol and J/(mol K)
    time               name of the model's unit of time in Pyomo; it must equal the reactor's unit
                       of time, if the reactor has units

    gas                as for `Thermodynamic`

    Source: Eyring, J. Chem. Phys. 3 (1935) 107, eq. 10.
    """

    time: str = "s"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self._seconds()
        except Exception as error:
            raise ModelError(
                f"Eyring: `time` is {shown(self.time)}; expected a unit of time that Pyomo knows, "
                "for example 's', 'min' or 'h'."
            ) from error

    def at(self, m: Any, t: float) -> Any:
        per_kelvin = BOLTZMANN / PLANCK * self._seconds()
        return per_kelvin * m.component(TEMPERATURE)[t] * super().at(m, t)

    def _seconds(self) -> float:
        unit = getattr(pyomo_units, self.time)
        return float(pyomo_units.convert_value(1.0, from_units=unit, to_units=pyomo_units.s))


Constant: TypeAlias = str | float | Thermal
"""A constant of a rate law: the name of a parameter, a number, or one that follows temperature."""


def is_name(given: Any) -> bool:
    """Whether the argument can be the name of a parameter, an input or a species."""
    return isinstance(given, str) and given.isidentifier()


def require_constant(role: str, given: Any, thermal: type | None = Thermal) -> None:
    """Raise ModelError unless it is a constant; with `thermal` None, one without temperature."""
    if not (is_name(given) or is_finite(given) or (thermal and isinstance(given, thermal))):
        raise ModelError(
            f"{role} is {shown(given)}; expected the name of a parameter ('k1'), a number, or a "
            "temperature law such as Arrhenius('k1', 'Ea1', reference=350.0)."
        )


def parts(constant: Constant, dimension: Dimension) -> list[tuple[str | float, Dimension]]:
    """The names and numbers that a constant is made of, with their dimensions."""
    if isinstance(constant, Thermal):
        return constant.parts(dimension)
    return [(constant, dimension)]


def names_in(constants: Iterable[tuple[Constant, Dimension]]) -> tuple[str, ...]:
    """Names of parameters, each once."""
    every = (name for c, dimension in constants for name, _ in parts(c, dimension))
    return tuple(dict.fromkeys(name for name in every if isinstance(name, str)))


def value(constant: Constant, m: Any, t: float) -> Any:
    """Return the value of the constant at time `t` as a Pyomo expression."""
    if isinstance(constant, Thermal):
        return constant.at(m, t)
    if not isinstance(constant, str):
        return float(constant)
    component = m.component(constant)
    return component[t] if component.is_indexed() else component


def _from_reference(
    law: Arrhenius | VantHoff, factor: str | float, energy: str | float, m: Any, t: float
) -> Any:
    reference = m.component(REFERENCE) if law.reference is None else law.reference
    over = 1 / m.component(TEMPERATURE)[t] - 1 / reference
    return value(factor, m, t) * pyo.exp(-value(energy, m, t) / law.gas * over)


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
    if not (is_name(given) or is_finite(given)):
        raise ModelError(f"{role} is {shown(given)}; give the name of an input, or a number.")
