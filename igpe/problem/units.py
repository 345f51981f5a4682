"""Units: measurements converted to the units of the model."""

import re
from dataclasses import replace
from typing import Any

from pyomo.core.base.units_container import InconsistentUnitsError, UnitsError
from pyomo.environ import units as pyomo_units

from igpe.core.errors import DataError
from igpe.problem.measurements import Measurements

_UNIT = re.compile(r"[\w%µΩ°/*().+\- ]{1,80}")
LITRE = re.compile(r"\b([m\u00b5udck]?)l\b")  # as pint writes it, easily taken for a one
_POWER = re.compile(r"\*\*\s*\(?\s*[-+]?\d{1,2}(\.\d{1,3}|/\d{1,2})?\s*\)?(?!\s*\*\*|[\d.\w])")


def require_unit(text: str) -> str:
    """The text, if pint may get it: it passes over texts in quotes, and powers take forever.

    raises ValueError for other characters than those of units, or powers of more than two digits
    """
    if not isinstance(text, str):
        raise TypeError("it is not a string")
    powers = text.count("**")
    if not _UNIT.fullmatch(text) or len(_POWER.findall(text)) != powers:
        raise ValueError("it is not a unit; expected names, *, /, and powers such as m**2")
    if len(re.findall(r"\)\s*\*\*", text)) > 1:
        raise ValueError("it contains powers of powers; expand them")
    return text


def unit_name(component: Any) -> str:
    """The unit of a Pyomo component as text; empty if it has none, or units that do not fit."""
    # Pyomo would load pint to say that there is none.
    if hasattr(component, "get_units") and component.get_units() is None:
        return ""
    try:
        unit = str(pyomo_units.get_units(component))
    except (UnitsError, InconsistentUnitsError):
        return ""
    return "" if unit in ("None", "dimensionless") else LITRE.sub(r"\1L", unit)


def time_unit(instance: Any) -> str:
    """Unit of a model's time: of a state over that of its `DerivativeVar`; empty without units."""
    for name, series in instance.slopes.items():
        slope = next(iter(series.values()))
        if slope.get_units() is not None:
            return unit_name(next(iter(instance.states[name].values())) / slope)
    return ""


def conversion(name: str, given: str, wanted: str) -> tuple[float, float]:
    """Factor and offset that turn numbers in the unit `given` into the unit `wanted`.

    raises DataError if a unit is unknown or the two do not fit
    """
    import pint  # noqa: PLC0415 - slow to load, and not needed without units

    quantity = pyomo_units.pint_registry.Quantity
    try:
        require_unit(given)
        ends = (quantity(v, given).to(wanted or "dimensionless").magnitude for v in (0.0, 1.0))
        offset, one = map(float, ends)
    except (pint.PintError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
        mend = "give the model's variable its unit"
        if name == "time" and not wanted:  # Pyomo's ContinuousSet has no unit
            mend = "give a derivative its unit: m.dA = DerivativeVar(m.A, units=units.mol/units.s)"
        raise DataError(
            f"The data give '{name}' in '{given}', but the model uses '{wanted or 'no unit'}': "
            f"{error}. Give a unit that can be converted, or {mend}."
        ) from None
    return one - offset, offset


def converted(measurements: Measurements, name: str, factor: float, offset: float) -> Measurements:
    """The measurements with one column (or "time") in another unit."""
    if name == "time":
        times, correlation = factor * measurements.times + offset, measurements.correlation
        correlation = None if correlation is None else correlation.scaled(factor)
        return replace(measurements, times=times, correlation=correlation)
    mine = measurements.column == measurements.names.index(name)
    value, sigma = measurements.value.copy(), measurements.sigma.copy()
    value[mine] = factor * value[mine] + offset
    sigma[mine] = abs(factor) * sigma[mine]
    return replace(measurements, value=value, sigma=sigma)
