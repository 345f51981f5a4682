"""Pyomo expressions as CasADi expressions.

The leaves are looked up by identity: the caller says which Pyomo variable is which CasADi symbol.
Everything else is evaluated with Pyomo's own operators on those symbols.
"""

from collections.abc import Mapping
from typing import Any

import casadi as ca
from pyomo.core.expr import numeric_expr
from pyomo.core.expr.visitor import StreamBasedExpressionVisitor
from pyomo.environ import value

from igpe.equations.instant import Instant
from igpe.errors import ModelError

FUNCTIONS = {
    "exp": ca.exp,
    "log": ca.log,
    "log10": ca.log10,
    "sqrt": ca.sqrt,
    "sin": ca.sin,
    "cos": ca.cos,
    "tan": ca.tan,
    "asin": ca.asin,
    "acos": ca.acos,
    "atan": ca.atan,
    "sinh": ca.sinh,
    "cosh": ca.cosh,
    "tanh": ca.tanh,
    "asinh": ca.asinh,
    "acosh": ca.acosh,
    "atanh": ca.atanh,
    "ceil": ca.ceil,
    "floor": ca.floor,
}


class Translator(StreamBasedExpressionVisitor):  # type: ignore[misc]
    """Rewrites Pyomo expressions in CasADi symbols.

    symbols  id(Pyomo component data) -> CasADi symbol
    time     the symbol that stands for an `Instant`
    raises   ModelError for a free variable that is not among the symbols, or a function CasADi
             does not have
    """

    def __init__(self, symbols: Mapping[int, Any], time: Any) -> None:
        super().__init__()
        self.symbols = symbols
        self.time = time

    def __call__(self, expression: Any) -> Any:
        """The expression in CasADi symbols (a number stays a number)."""
        return self.walk_expression(expression)

    def initializeWalker(self, expression: Any) -> tuple[bool, Any]:
        descend, result = self.beforeChild(None, expression, 0)
        return (True, expression) if descend else (False, result)

    def beforeChild(self, node: Any, child: Any, child_idx: int) -> tuple[bool, Any]:
        if isinstance(child, Instant):
            return False, self.time
        if id(child) in self.symbols:
            return False, self.symbols[id(child)]
        if not hasattr(child, "is_expression_type"):
            return False, child
        if child.is_expression_type():
            return True, None
        if child.is_variable_type() and not child.fixed:
            raise ModelError(
                f"The equations use the free variable '{child.name}', which is neither a state, an "
                "algebraic variable, an input nor a parameter at this time. List it in "
                "`parameters`, fix it, or index it by time; times may not be mixed in one equation."
            )
        return False, value(child)

    def exitNode(self, node: Any, data: list[Any]) -> Any:
        if isinstance(node, numeric_expr.UnaryFunctionExpression) and node.name in FUNCTIONS:
            return FUNCTIONS[node.name](*data)
        if isinstance(node, numeric_expr.AbsExpression):
            return ca.fabs(*data)
        if isinstance(node, numeric_expr.Expr_ifExpression):
            return ca.if_else(*data)
        if isinstance(node, numeric_expr.MaxExpression):
            return _fold(ca.fmax, data)
        if isinstance(node, numeric_expr.MinExpression):
            return _fold(ca.fmin, data)
        if isinstance(node, numeric_expr.ExternalFunctionExpression):
            raise ModelError(
                f"The equations call the external function '{node}', which has no exact "
                "derivatives here; write it with Pyomo's functions."
            )
        return node._apply_operation(data)


def _fold(function: Any, data: list[Any]) -> Any:
    result = data[0]
    for other in data[1:]:
        result = function(result, other)
    return result
