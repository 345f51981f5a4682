"""Constants of rate laws: numbers, names of parameters, and functions of temperature."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyomo.environ as pyo
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError

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

    def parts(self, whole: Dimension) -> list[tuple["str | float", Dimension]]:
        """The parameters and numbers of the constant, with their dimensions."""
        return [(getattr(self, n), d or whole) for n, d in self.dimensions.items()]

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


def require_constant(role: str, given: Any, thermal: type | None = Thermal) -> None:
    """Raise ModelError unless it is a constant; with `thermal` None, one without temperature."""
    is_name = isinstance(given, str) and given.isidentifier()
    if not (is_name or is_finite(given) or (thermal and isinstance(given, thermal))):
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
