"""Warnings about equations whose terms have units that cannot be added.

Numbers in an equation may hide units (8.314 is J/(mol K)), and Pyomo gives time none. So only terms
whose units are known in full are compared: quantities with units, and their products and powers.
"""

from typing import Any

from pyomo.core.expr import numeric_expr as expr
from pyomo.core.expr.relational_expr import EqualityExpression
from pyomo.dae import DerivativeVar
from pyomo.environ import units as pyomo_units
from pyomo.environ import value

from igpe.problem.model import Instance
from igpe.problem.units import unit_name

SUMS = (expr.SumExpression, expr.LinearExpression, expr.NPV_SumExpression, EqualityExpression)
PRODUCTS = (expr.ProductExpression, expr.NPV_ProductExpression, expr.MonomialTermExpression)
QUOTIENTS = (expr.DivisionExpression, expr.NPV_DivisionExpression)
POWERS = (expr.PowExpression, expr.NPV_PowExpression)
NEGATIONS = (expr.NegationExpression, expr.NPV_NegationExpression)
SCALES = (-1, 1, 2, 3, 4)  # numbers that hold no units: coefficients of reactions


def unit_warnings(instance: Instance) -> dict[str, str]:
    """Name of an equation -> warning, where two of its terms have units that do not fit."""
    quantities = [*instance.scalars.values()]
    for over_time in (*instance.states.values(), *instance.series.values()):
        quantities.append(next(iter(over_time.values())))
    warnings: dict[str, str] = {}
    if not any(map(unit_name, quantities)):  # pint is slow to load
        return warnings
    for family in (instance.equations, instance.expressions):
        for name, series in family.items():
            clashes: list[tuple[str, str]] = []
            _dimensions(series[max(series)].expr, clashes)
            if clashes:
                one, other = clashes[0]
                warnings[name] = (
                    f"Equation '{name}' adds terms in {one} and in {other}. Check the units of its "
                    "quantities, or the equation."
                )
    return warnings


def _dimensions(node: Any, clashes: list[tuple[str, str]]) -> Any:
    """The unit of an expression as pint has it; None if a number in it may hide one."""
    if not (hasattr(node, "is_expression_type") and node.is_expression_type()):
        return _of_leaf(node)
    if isinstance(node, POWERS):
        base, exponent = _dimensions(node.arg(0), clashes), node.arg(1)
        is_number = not hasattr(exponent, "is_expression_type")
        return base ** value(exponent) if base is not None and is_number else None
    parts = [_dimensions(argument, clashes) for argument in node.args]
    if isinstance(node, SUMS):
        terms = zip(parts, node.args, strict=True)
        known = [p for p, a in terms if p is not None and hasattr(a, "is_expression_type")]
        for part in known[1:]:
            if part.dimensionality != known[0].dimensionality:
                clashes.append((f"{known[0]:~C}" or "no unit", f"{part:~C}" or "no unit"))
        return known[0] if known else None
    if isinstance(node, NEGATIONS) or node.is_named_expression_type():
        return parts[0]
    if isinstance(node, (*PRODUCTS, *QUOTIENTS)) and None not in parts:
        return parts[0] * parts[1] if isinstance(node, PRODUCTS) else parts[0] / parts[1]
    return None


def _of_leaf(leaf: Any) -> Any:
    registry = pyomo_units.pint_registry
    if not hasattr(leaf, "is_expression_type"):
        return registry.dimensionless if leaf in SCALES else None
    is_slope = leaf.parent_component().ctype is DerivativeVar
    name = "" if is_slope else unit_name(leaf)
    return registry.parse_units(name) if name else None
