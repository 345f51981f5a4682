"""Constants of rate laws: numbers, names of parameters, and what depends on temperature.

Balances of a reactor's states: differential, or by a conservation law.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyomo.environ as pyo
from pyomo import dae

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.conservation import Law

GAS_CONSTANT = 8.314462618  # J/(mol K)
TEMPERATURE = "T"  # the model's name of it, K


@dataclass(frozen=True)
class Arrhenius:
    """factor*exp(-energy/gas*(1/T - 1/reference)): the factor is the constant at `reference`.

    Also for equilibrium constants, with the enthalpy as energy (van 't Hoff). A reference amid the
    temperatures measured makes factor and energy nearly uncorrelated.

    factor     name of a parameter, or a number
    energy     name of a parameter, or a number; J/mol
    reference  K
    gas        gas constant, J/(mol K)
    raises     ModelError if the reference or the gas constant is not positive
    """

    factor: str | float
    energy: str | float
    reference: float
    gas: float = GAS_CONSTANT

    def __post_init__(self) -> None:
        for role, name in (("factor", self.factor), ("energy", self.energy)):
            _check_name(f"Arrhenius' {role}", name)
        if not (is_finite(self.reference, self.gas) and self.reference > 0 and self.gas > 0):
            raise ModelError(
                f"Arrhenius has the reference temperature {shown(self.reference)} and the gas "
                f"constant {shown(self.gas)}; give positive numbers, in kelvin and J/(mol K)."
            )


Constant: TypeAlias = str | float | Arrhenius
"""A constant of a rate law: the name of a parameter, a number, or `Arrhenius`."""


def check_constant(role: str, constant: Any) -> None:
    """Raise ModelError unless it is a name, a finite number or `Arrhenius`."""
    if not isinstance(constant, Arrhenius):
        _check_name(role, constant)


def names_of(constants: Iterable[Constant | None]) -> tuple[str, ...]:
    """The parameters in constants, each once."""
    found: list[Any] = []
    for c in constants:
        found += [c.factor, c.energy] if isinstance(c, Arrhenius) else [c]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


def is_thermal(constants: Iterable[Constant | None]) -> bool:
    """Whether one of them depends on temperature."""
    return any(isinstance(c, Arrhenius) for c in constants)


def value(constant: Constant, m: Any, t: float) -> Any:
    """The constant as a Pyomo expression at a time."""
    if isinstance(constant, Arrhenius):
        factor, energy = value(constant.factor, m, t), value(constant.energy, m, t)
        over = 1 / m.component(TEMPERATURE)[t] - 1 / constant.reference
        return factor * pyo.exp(-energy / constant.gas * over)
    return m.component(constant) if isinstance(constant, str) else float(constant)


def _check_name(role: str, given: Any) -> None:
    if isinstance(given, str) and given.isidentifier():
        return
    if not isinstance(given, str) and is_finite(given):
        return
    raise ModelError(
        f"{role} is {shown(given)}; wanted the name of a parameter ('k1'), a number, or for a "
        "constant that depends on temperature Arrhenius('k1', 'Ea1', reference=350.0)."
    )


Rule = Callable[[float], Any]
"""Time -> Pyomo expression."""


def add_balance(m: Any, name: str, slope: Rule) -> None:
    """The slope `d<name>` of a variable over time, and its equation `balance_<name>`."""
    m.add_component(f"d{name}", dae.DerivativeVar(m.component(name)))
    derivative = m.component(f"d{name}")
    m.add_component(
        f"balance_{name}", pyo.Constraint(m.t, rule=lambda _, t: derivative[t] == slope(t))
    )


def add_laws(
    m: Any, laws: Sequence[Law], names: Mapping[str, str], computed: Sequence[str], fed: Any
) -> None:
    """Equations `conservation_1`, ...: a law's sum is what it was, and what was fed.

    names     species -> its quantity in the model
    computed  species without a start of their own: it is the parameter `<quantity>0`
    fed       species -> Pyomo expression of what is fed of it per time, constant
    """
    first = m.t.first()
    for species in computed:
        unit = m.component(names[species])[first].get_units()
        m.add_component(f"{names[species]}0", pyo.Param(mutable=True, default=0.0, units=unit))

    def at_start(species: str) -> Any:
        name = names[species]
        return m.component(f"{name}0") if species in computed else m.component(name)[first]

    for place, law in enumerate(laws, start=1):
        parts = law.coefficients.items()

        def rule(_: Any, t: float, parts: Any = parts) -> Any:
            now = sum(n * m.component(names[s])[t] for s, n in parts)
            then = sum(n * at_start(s) for s, n in parts)
            added = sum(n * fed[s] for s, n in parts if s in fed)
            return now == then + added * (t - first)

        m.add_component(f"conservation_{place}", pyo.Constraint(m.t, rule=rule))
