"""Whether two Pyomo expressions say the same, node by node, without translating them.

Most equations of a model do not change with time: a comparison costs a fraction of a translation.
"""

from collections.abc import Mapping
from typing import Any

from pyomo.common.numeric_types import native_types
from pyomo.core.expr.numeric_expr import Expr_ifExpression, UnaryFunctionExpression
from pyomo.core.expr.relational_expr import (
    EqualityExpression,
    InequalityExpression,
    RangedExpression,
)
from pyomo.environ import value

from igpe.equations.reading.instant import Instant, plain
from igpe.equations.symbols import Role
from igpe.equations.translate import DIRECT, FUNCTIONS, PYOMO_ARITHMETIC

Roles = Mapping[int, Role]
PLAIN = (*DIRECT, Expr_ifExpression, EqualityExpression)


def alike(one: Any, other: Any, roles: Roles, roles_of_other: Roles) -> bool:
    """Whether both have the same operations on the same roles and numbers.

    False where they might say the same in another form.
    """
    one, other = plain(one), plain(other)
    role, role_of_other = roles.get(id(one)), roles_of_other.get(id(other))
    if role is not None or role_of_other is not None:
        return role == role_of_other
    if one.__class__ is not other.__class__:
        return False
    if one.__class__ in native_types or isinstance(one, Instant):
        return isinstance(one, Instant) or bool(one == other)
    if not one.is_expression_type():
        return _same_number(one, other)
    if not is_plain(one, other) or one.nargs() != other.nargs():
        return False
    pairs = zip(one.args, other.args, strict=True)
    return all(alike(a, b, roles, roles_of_other) for a, b in pairs)


def is_plain(one: Any, other: Any) -> bool:
    """Whether two nodes are of one kind and do the same to their arguments."""
    if one.__class__ is not other.__class__ or not hasattr(one, "args"):
        return False
    if one.__class__ in PYOMO_ARITHMETIC or one.is_named_expression_type():
        return True
    if isinstance(one, InequalityExpression | RangedExpression):
        return bool(one.strict == other.strict)
    if isinstance(one, PLAIN):
        return True
    is_function = isinstance(one, UnaryFunctionExpression)
    return is_function and one.name in FUNCTIONS and one.name == other.name


def _same_number(one: Any, other: Any) -> bool:
    """Of components that are no roles: a free variable has no number."""
    if any(c.is_variable_type() and not c.fixed for c in (one, other)):
        return False
    number = value(one, exception=False)
    return number is not None and bool(number == value(other, exception=False))
