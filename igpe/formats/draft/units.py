"""In which units a drafted reactor is written: those of the table, where it says them all."""

from collections.abc import Sequence
from typing import NamedTuple

from pyomo.environ import units as pyomo_units

from igpe.formats.draft.headers import Column, dimension
from igpe.problem.units import conversion

CONCENTRATION = {"[substance]": 1.0, "[length]": -3.0}
AMOUNT, VOLUME, TIME = {"[substance]": 1.0}, {"[length]": 3.0}, {"[time]": 1.0}


class ReactorUnits(NamedTuple):
    """Arguments of `kinetics.Units`."""

    amount: str
    volume: str
    time: str

    @property
    def concentration(self) -> str:
        """Of the states."""
        return f"{self.amount}/{self.volume}"

    def factor(self, column: Column) -> float:
        """From a column's unit to that of the states."""
        return conversion(column.name, column.unit, self.concentration)[0]


def reactor_units(time: Column, measured: Sequence[Column]) -> ReactorUnits | None:
    """The table's own units; None unless time has one and every column is a concentration.

    The time's is kept: a reactor's times have none of their own to be converted to.
    """
    if not _is_name(time.unit, TIME):
        return None
    if any(dimension(c.unit) != CONCENTRATION for c in measured):
        return None
    amount, _, volume = measured[0].unit.partition("/")
    known = _is_name(amount, AMOUNT) and _is_name(volume, VOLUME)
    amount, volume = (amount, volume) if known else ("mol", "L")
    return ReactorUnits(amount, volume, time.unit)


def _is_name(unit: str, wanted: dict[str, float]) -> bool:
    """Whether Pyomo has a unit of that very name and dimension."""
    return unit.isidentifier() and dimension(unit) == wanted and hasattr(pyomo_units, unit)
