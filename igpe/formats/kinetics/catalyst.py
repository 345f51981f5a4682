"""Deactivation of a catalyst."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any

from igpe.core.arguments import is_finite, is_number, require_mapping, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import Concentrations, power
from igpe.formats.kinetics.temperature import (
    NONE,
    Constant,
    Dimension,
    concentration,
    require_constant,
    value,
)

ACTIVITY = "activity"  # the model's name of it


@dataclass(frozen=True)
class Deactivation:
    """An activity that multiplies rates and falls: dactivity/dt = -constant*(activity -
    residual)^order*product of c^n. `activity` is a state; it starts at 1 for a fresh catalyst.

    constant   rate constant of deactivation
    order      by the activity: 1 (exponential), 2 (sintering), a name where it is unknown
    poisons    species that deactivate -> order n: reactants (parallel), products (series), poisons
    residual   residual activity: number, or name of a parameter
    reactions  numbers of those that need the catalyst, 1 for the first; None: all

    raises ModelError for invalid constants or orders

    Source: Levenspiel, Chemical Reaction Engineering, 3rd ed. (1999), chapter 21; residual
    activity: Fuentes, Appl. Catal. 15 (1985) 33.
    """

    constant: Constant
    order: str | float = 1.0
    poisons: Mapping[str, float] = field(default_factory=dict)
    residual: str | float = 0.0
    reactions: Iterable[int] | None = None

    def __post_init__(self) -> None:
        require_constant("Deactivation's constant", self.constant)
        require_constant("Deactivation's order", self.order, None)
        require_constant("Deactivation's residual activity", self.residual, None)
        require_mapping("poisons", self.poisons, "poisons={'A': 1}", ModelError)
        if not is_finite(*self.poisons.values()):
            raise ModelError(
                f"The orders of poisons must be numbers, for example {{'A': 1}}; got "
                f"{dict(self.poisons)}."
            )
        given = self.reactions
        is_list = isinstance(given, Iterable) and not isinstance(given, str)
        if not (given is None or (is_list and all(is_number(k) for k in given))):
            raise ModelError(
                f"Deactivation has reactions={shown(given)}; give the numbers of reactions, "
                "counted from 1: reactions=[1, 3]."
            )
        object.__setattr__(self, "reactions", None if given is None else tuple(given))

    @property
    def constants(self) -> list[tuple[Constant, Dimension]]:
        """All constants, with their dimensions."""
        orders = sum(Fraction(str(n)) for n in self.poisons.values())
        own = (self.constant, concentration(-orders, -1))
        return [own, (self.order, NONE), (self.residual, NONE)]

    def concerns(self, number: int) -> bool:
        """Whether the reaction of this number needs the catalyst."""
        return self.reactions is None or number in self.reactions

    def slope(self, m: Any, t: float, c: Concentrations) -> Any:
        """Slope of the activity."""
        left = m.component(ACTIVITY)[t]
        if self.residual != 0.0:
            left = left - value(self.residual, m, t)
        poison = prod(power(c[s], float(n)) for s, n in self.poisons.items())
        lost = value(self.constant, m, t) * power(left, value(self.order, m, t)) * poison
        return -lost
