"""Constants of rate laws: numbers, names of parameters, and what depends on temperature."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyomo.environ as pyo

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError

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
