"""Units of a reactor's quantities, for the tables and for measurements in other units."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pyomo.environ import units as pyomo_units

from igpe.core.errors import ModelError


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
        made: Any = pyomo_units.dimensionless
        for name, power in ((self.amount, amount), (self.volume, volume), (self.time, time)):
            if power:
                made = made * getattr(pyomo_units, name) ** _plain(power)
        return made

    def constant(self, concentration: Fraction | int, time: int) -> Any:
        """The unit of a constant that is so many powers of concentration and time."""
        return self.of(concentration, -concentration, time)


ENERGY, KELVIN = pyomo_units.J / pyomo_units.mol, pyomo_units.K


def _plain(power: Fraction | int) -> int | float:
    return int(power) if power == int(power) else float(power)
