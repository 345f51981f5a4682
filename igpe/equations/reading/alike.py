"""Whether two Pyomo expressions say the same, node by node, without translating them.

Most equations of a model do not change with time: a comparison costs a fraction of a translation.
"""

from collections.abc import Mapping
from typing import Any

from pyomo.common.numeric_types import native_types
from pyomo.core.expr import numeric_expr, relational_expr
from pyomo.environ import value

from igpe.equations.reading.instant import Instant, plain
from igpe.equations.symbols import Role
from igpe.equations.translate import FUNCTIONS, PYOMO_ARITHMETIC

Roles = Mapping[int, Role]
PLAIN = (
    numeric_expr.AbsExpression,
    numeric_expr.MaxExpression,
    numeric_expr.MinExpression,
    numeric_expr.Expr_ifExpression,
    relational_expr.EqualityExpression,
)


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
        is_free = any(c.is_variable_type() and not c.fixed for c in (one, other))
        number = None if is_free else value(one, exception=False)
        return number is not None and bool(number == value(other, exception=False))
    if not is_plain(one, other) or one.nargs() != other.nargs():
        return False
    pairs = zip(one.args, other.args, strict=True)
    return all(alike(a, b, roles, roles_of_other) for a, b in pairs)


def is_plain(one: Any, other: Any) -> bool:
    """Whether two nodes are of one kind and do the same to their arguments."""
    if one.__class__ is not other.__class__ or not hasattr(one, "args"):
        return False
    if isinstance(one, relational_expr.InequalityExpression | relational_expr.RangedExpression):
        return bool(one.strict == other.strict)
    if isinstance(one, numeric_expr.UnaryFunctionExpression) and not isinstance(one, PLAIN):
        return one.name in FUNCTIONS and bool(one.name == other.name)
    is_named = one.is_named_expression_type()
    return one.__class__ in PYOMO_ARITHMETIC or is_named or isinstance(one, PLAIN)
