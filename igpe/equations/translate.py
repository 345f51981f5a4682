"""Pyomo expressions as CasADi expressions.

The leaves are looked up by identity: the caller says which Pyomo variable is which CasADi symbol.
Everything else is evaluated with Pyomo's own operators on those symbols.

CasADi expressions as Pyomo expressions: what was transformed symbolically goes to a solver.

A CasADi SX function is a list of elementary instructions on a work vector; each is repeated with
Pyomo's operators.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import casadi as ca
import pyomo.environ as pyo
from pyomo.core.expr import numeric_expr
from pyomo.core.expr.relational_expr import RangedExpression
from pyomo.core.expr.visitor import StreamBasedExpressionVisitor
from pyomo.environ import value

from igpe.core.errors import ModelError
from igpe.equations.operations import ARITHMETIC, Graph, apply_to_sx
from igpe.equations.reading.instant import Computed, Instant

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


DIRECT: dict[type, Callable[..., Any]] = {
    numeric_expr.AbsExpression: ca.fabs,
    numeric_expr.MaxExpression: lambda *of: _fold(ca.fmax, of),
    numeric_expr.MinExpression: lambda *of: _fold(ca.fmin, of),
}
STEPS = frozenset({"floor", "ceil"})
PYOMO_ARITHMETIC = frozenset({
    kind
    for name, kind in vars(numeric_expr).items()
    if name.removeprefix("NPV_")
    in {
        "SumExpression",
        "LinearExpression",
        "ProductExpression",
        "MonomialTermExpression",
        "DivisionExpression",
        "PowExpression",
        "NegationExpression",
    }
})
"""Kinds of nodes that are told by their kind and arguments alone."""

POWERS = frozenset({"POW", "CONSTPOW", "SQRT"})
ROOT = 0.5
DEPTH = 20  # of expressions that are compared node by node


class Translator(StreamBasedExpressionVisitor):  # type: ignore[misc]
    """Rewrites Pyomo expressions in CasADi symbols.

    symbols  id(Pyomo component data) -> CasADi symbol
    time     the symbol that stands for an `Instant`
    jumps    conditions at whose change what was rewritten jumps: not those of branches that meet
    raises   ModelError for a free variable that is not among the symbols, a component without
             value, or a function CasADi does not have
    """

    def __init__(self, symbols: Mapping[int, Any], time: Any) -> None:
        super().__init__()
        self.symbols = symbols
        self.time = time
        self.jumps: list[Any] = []

    def __call__(self, expression: Any) -> Any:
        """The expression in CasADi symbols (a number stays a number)."""
        return self.walk_expression(expression)

    def initializeWalker(self, expression: Any) -> tuple[bool, Any]:
        descend, result = self.beforeChild(None, expression, 0)
        return (True, expression) if descend else (False, result)

    def beforeChild(self, node: Any, child: Any, child_idx: int) -> tuple[bool, Any]:
        if isinstance(child, Instant):
            return False, self.time
        if isinstance(child, Computed):
            return False, self(child.expression)
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
        number = value(child, exception=False)
        if number is None:
            raise ModelError(
                f"The equations use '{child.name}', which has no value; give it one in the model, "
                "or in Experiment(inputs=...)."
            )
        return False, number

    def exitNode(self, node: Any, data: list[Any]) -> Any:
        if node.__class__ in PYOMO_ARITHMETIC:
            return node._apply_operation(data)
        if isinstance(node, numeric_expr.UnaryFunctionExpression) and node.name in FUNCTIONS:
            return self._function(node.name, data)
        if isinstance(node, numeric_expr.Expr_ifExpression):
            return self._chosen(*data)
        for kind, function in DIRECT.items():
            if isinstance(node, kind):
                return function(*data)
        if isinstance(node, RangedExpression):
            return _between(node, *data)
        if isinstance(node, numeric_expr.ExternalFunctionExpression):
            raise ModelError(
                f"The equations call the external function '{node}', which has no exact "
                "derivatives here; write it with Pyomo's functions."
            )
        return node._apply_operation(data)

    def _function(self, name: str, data: list[Any]) -> Any:
        result = FUNCTIONS[name](*data)
        if name in STEPS:
            self.jumps.append(ca.SX(result))
        return result

    def _chosen(self, condition: Any, then: Any, otherwise: Any) -> Any:
        if not _meet(condition, then, otherwise):
            self.jumps.append(ca.SX(condition))
        return ca.if_else(condition, then, otherwise)


def _meet(condition: Any, then: Any, otherwise: Any) -> bool:
    """Whether it can be shown that two branches are equal where the condition changes.

    That is the case of a > b if they differ by a - b, or if they become one expression once a
    symbol that a - b is linear in is inserted from a = b: then there is a kink, but no jump.
    """
    condition, difference = ca.SX(condition), ca.SX(then) - ca.SX(otherwise)
    if difference.is_zero() or not ca.symvar(condition):
        return True
    if condition.op() not in {ca.OP_LT, ca.OP_LE}:
        return False
    gap = condition.dep(0) - condition.dep(1)
    if any(ca.is_equal(difference, g, DEPTH) for g in (gap, -gap)):
        return True
    for symbol in ca.symvar(gap):
        slope = ca.jacobian(gap, symbol)
        if slope.is_constant() and not slope.is_zero():
            where = -ca.substitute(gap, symbol, 0) / slope
            return bool(ca.simplify(ca.substitute(difference, symbol, where)).is_zero())
    return False


def _between(node: Any, lower: Any, body: Any, upper: Any) -> Any:
    above = lower < body if node.strict[0] else lower <= body
    below = body < upper if node.strict[1] else body <= upper
    return ca.logic_and(above, below)


def _fold(function: Any, data: Sequence[Any]) -> Any:
    result = data[0]
    for other in data[1:]:
        result = function(result, other)
    return result


def with_safe_powers(expressions: Any, states: Any) -> Any:
    """SX column of powers whose derivatives are finite where a base is exhausted.

    states  what an integration moves

    Powers with unknown exponents rest at 0, derivatives too, at bases <= 0: the derivative of 0**n
    by n would be 0 * log(0), and the noise of an integration makes an exhausted state slightly
    negative. Roots and powers below 1 of a state that is 0 have the derivative 0, not an infinite
    one, which no step of an implicit method survives. For integration only: outside solvers know no
    cases.
    """
    column = ca.densify(ca.SX(expressions))
    symbols = ca.vertcat(*ca.symvar(column))
    graph = Graph.of(column, [symbols])
    if not any(node.name in POWERS for node in graph.nodes):
        return expressions
    results = graph.evaluate(
        lambda _, i: symbols[i], ca.SX, lambda name, data: _power(name, data, states)
    )
    return ca.reshape(ca.vertcat(*results), *column.shape)


def _power(operation: str, data: list[Any], states: Any) -> Any:
    plain = apply_to_sx(operation, data)
    if operation not in POWERS or data[0].is_constant():
        return plain
    if operation == "POW" and not data[1].is_constant():
        return _guarded(data[0] > 0, operation, data)
    exponent = ROOT if operation == "SQRT" else float(data[1])
    if 0 < exponent < 1 and ca.depends_on(data[0], states):
        return _guarded(data[0] != 0, operation, data)
    return plain


def _guarded(allowed: Any, operation: str, data: list[Any]) -> Any:
    """The operation where its base is allowed, else 0; not even its derivative is taken there."""
    base = ca.if_else(allowed, data[0], 1.0)
    return ca.if_else(allowed, apply_to_sx(operation, [base, *data[1:]]), 0.0)


Operation = Callable[..., Any]

OPERATIONS: dict[str, Operation] = {
    **ARITHMETIC,
    "SQ": lambda a: a**2,
    "SQRT": pyo.sqrt,
    "EXP": pyo.exp,
    "EXPM1": lambda a: pyo.exp(a) - 1,
    "LOG": pyo.log,
    "LOG1P": lambda a: pyo.log(1 + a),
    "SIN": pyo.sin,
    "COS": pyo.cos,
    "TAN": pyo.tan,
    "ASIN": pyo.asin,
    "ACOS": pyo.acos,
    "ATAN": pyo.atan,
    "SINH": pyo.sinh,
    "COSH": pyo.cosh,
    "TANH": pyo.tanh,
    "ASINH": pyo.asinh,
    "ACOSH": pyo.acosh,
    "ATANH": pyo.atanh,
    "FABS": abs,
    "FLOOR": pyo.floor,
    "CEIL": pyo.ceil,
    "HYPOT": lambda a, b: pyo.sqrt(a**2 + b**2),
}
"""CasADi's operations (without OP_) that Pyomo has too, or that are made of such."""


def to_pyomo(expressions: Any, symbols: Any, variables: Sequence[Any]) -> list[Any]:
    """The expressions with Pyomo variables in the place of symbols.

    expressions  SX column (n,)
    symbols      SX column (m,) of symbols, among them every one in `expressions`
    variables    m Pyomo variables, parameters or numbers, in the order of `symbols`
    returns      n Pyomo expressions (numbers where nothing of `variables` occurs). A subexpression
                 that CasADi shares is shared in Pyomo as well
    raises       ModelError for an operation Pyomo does not have, or a symbol not in `symbols`
    """
    if len(variables) != ca.SX(symbols).numel():
        raise ModelError(
            f"{ca.SX(symbols).numel()} symbols are to become {len(variables)} variables; give one "
            "for each."
        )
    column = ca.densify(ca.vec(ca.SX(expressions)))
    strangers = [s for s in ca.symvar(column) if not _among(s, symbols)]
    if strangers:
        raise ModelError(f"The expressions hold {strangers}, which have no Pyomo variable.")
    graph = Graph.of(column, [ca.SX(symbols)])
    return graph.evaluate(lambda _, i: variables[i], lambda number: number, _operation)


def _operation(name: str, operands: list[Any]) -> Any:
    if name not in OPERATIONS:
        raise ModelError(
            f"CasADi's operation '{name.lower()}' has no counterpart in Pyomo, so this equation "
            "cannot be given to an outside solver. Write it with smooth functions that Pyomo has."
        )
    return OPERATIONS[name](*operands)


def _among(symbol: Any, symbols: Any) -> bool:
    return bool(ca.depends_on(ca.SX(symbols), symbol))
