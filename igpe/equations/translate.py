"""Pyomo expressions as CasADi expressions, and back for outside solvers.

Both ways the leaves are looked up: the caller says which Pyomo component is which CasADi symbol.
Everything else is evaluated with the operators of the other side.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import reduce
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr import numeric_expr
from pyomo.core.expr.relational_expr import RangedExpression
from pyomo.core.expr.visitor import StreamBasedExpressionVisitor
from pyomo.environ import value

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError
from igpe.equations.operations import ARITHMETIC, Graph, apply_to_sx, operation_names
from igpe.equations.reading.instant import Instant

PLAIN = "exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh floor ceil"
FUNCTIONS = {name: getattr(ca, name) for name in ("log10", *PLAIN.split())}
ARITHMETIC_NODES = ("Sum", "Linear", "Product", "MonomialTerm", "Division", "Pow", "Negation")
PYOMO_ARITHMETIC = frozenset({
    kind
    for name, kind in vars(numeric_expr).items()
    if name.removeprefix("NPV_") in {f"{n}Expression" for n in ARITHMETIC_NODES}
})
"""Kinds of nodes that are told by their kind and arguments alone."""
POWERS = frozenset({"POW", "CONSTPOW", "SQRT"})
QUOTIENTS, PRODUCTS = frozenset({"DIV", "INV"}), frozenset({"MUL"})
MONOMIALS = frozenset({*PRODUCTS, "DIV", "SQ", "NEG", "TWICE", *POWERS})
ROOT = 0.5
NEAREST = 1e-140  # to 0 that a base of a quotient comes
LARGEST = 280 * np.log(10)  # logarithm of the largest derivative of a negative power
TINY = 1e-300  # added to bases: it changes none but 0, whose logarithm becomes finite
DEPTH = 20  # of expressions that are compared node by node


class Translator(StreamBasedExpressionVisitor):  # type: ignore[misc]
    """Rewrites Pyomo expressions in CasADi symbols.

    symbols  id(Pyomo component data) -> CasADi symbol
    time     the symbol that stands for an `Instant`
    jumps    conditions at whose change what was rewritten jumps: not those of branches that meet
    behind   id(Pyomo component data) -> the same of what the symbol stands for
    raises   ModelError for a free variable that is not among the symbols, a component without
             value, or a function CasADi does not have
    """

    def __init__(self, symbols: Mapping[int, Any], time: Any) -> None:
        super().__init__()
        self.symbols, self.time = symbols, time
        self.jumps: list[Any] = []
        self.behind: dict[int, list[Any]] = {}

    def __call__(self, expression: Any) -> Any:
        """The expression in CasADi symbols (a number stays a number)."""
        return self.walk_expression(expression)

    def initializeWalker(self, expression: Any) -> tuple[bool, Any]:
        descend, result = self.beforeChild(None, expression, 0)
        return (True, expression) if descend else (False, result)

    def beforeChild(self, node: Any, child: Any, child_idx: int) -> tuple[bool, Any]:
        if isinstance(child, Instant):
            return False, self.time if child.expression is None else self(child.expression)
        if id(child) in self.symbols:
            self.jumps += self.behind.get(id(child), [])
            return False, self.symbols[id(child)]
        if not hasattr(child, "is_expression_type"):
            return False, child
        if child.is_expression_type():
            return True, None
        if child.is_variable_type() and not child.fixed:
            raise ModelError(
                f"The equations use the free variable '{child.name}', which is not a state, an "
                "algebraic variable, an input or a parameter at this time. List it in "
                "`parameters`, fix it, or index it by time. All variables of an equation must "
                "refer to the same time."
            )
        number = value(child, exception=False)
        if number is None:
            raise ModelError(
                f"The equations use '{child.name}', which has no value. Give its value in the "
                "model or in Experiment(inputs=...)."
            )
        return False, number

    def exitNode(self, node: Any, data: list[Any]) -> Any:
        if node.__class__ not in PYOMO_ARITHMETIC:
            for kind, rewrite in NODES.items():
                if isinstance(node, kind):
                    return rewrite(self, node, *data)
        return node._apply_operation(data)


def _function(translator: Translator, node: Any, argument: Any) -> Any:
    if node.name not in FUNCTIONS:
        return node._apply_operation([argument])
    result = FUNCTIONS[node.name](argument)
    if node.name in {"floor", "ceil"}:
        translator.jumps.append(ca.SX(result))
    return result


def _chosen(translator: Translator, _: Any, condition: Any, then: Any, otherwise: Any) -> Any:
    if not _meet(condition, then, otherwise):
        translator.jumps.append(ca.SX(condition))
    return ca.if_else(condition, then, otherwise)


def _between(_: Translator, node: Any, lower: Any, body: Any, upper: Any) -> Any:
    above = lower < body if node.strict[0] else lower <= body
    return ca.logic_and(above, body < upper if node.strict[1] else body <= upper)


def _refused(_: Translator, node: Any, *data: Any) -> Any:
    raise ModelError(
        f"The equations call the external function '{node}', for which igpe has no exact "
        "derivatives; write it with Pyomo's functions."
    )


NODES: dict[type, Callable[..., Any]] = {
    numeric_expr.AbsExpression: lambda _, __, argument: ca.fabs(argument),
    numeric_expr.MaxExpression: lambda _, __, *of: reduce(ca.fmax, of),
    numeric_expr.MinExpression: lambda _, __, *of: reduce(ca.fmin, of),
    numeric_expr.UnaryFunctionExpression: _function,
    numeric_expr.Expr_ifExpression: _chosen,
    RangedExpression: _between,
    numeric_expr.ExternalFunctionExpression: _refused,
}
"""The first that fits decides."""


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


def with_safe_powers(
    expressions: Any, states: Any, noise: FloatArray, inputs: Iterable[Any] = ()
) -> Any:
    """SX column of powers and quotients that rest where a base is exhausted.

    states  what an integration moves
    noise   (n,) by how much errors of integration may put each of them off
    inputs  symbols that may be 0 as well, where quotients are huge and no more

    Roots, and powers whose exponents are unknown or no whole numbers, have at bases <= 0 the limit
    for a base that goes to 0 (0, or infinity where the exponent is negative), without derivatives:
    the noise of an integration makes an exhausted state slightly negative (a tank that is empty, a
    conversion of 1), and the derivative of 0**n by n would be 0 * log(0), also where 0 is an input.
    Negative whole powers and K/x are huge at 0, so that v / (1 + K/x) has its derivatives there.
    A base that is further below 0 than noise explains has no power: the model is not defined there.
    For integration only: outside solvers know no cases.
    """
    column = ca.densify(ca.SX(expressions))
    symbols = ca.vertcat(*ca.symvar(column))
    function = ca.Function("f", [symbols], [column])
    if (POWERS | QUOTIENTS).isdisjoint(operation_names(function)):
        return expressions
    moved = {
        s.element_hash(): float(size)
        for s, size in zip(ca.vertsplit(states), noise, strict=True)
        if s.is_symbolic()
    }
    resting = _Resting(moved, {s.element_hash() for s in inputs})
    results = Graph.of_function(function).evaluate(lambda _, i: symbols[i], ca.SX, resting)
    return ca.reshape(ca.vertcat(*results), *column.shape)


class _Resting:
    """See `with_safe_powers`.

    noise      hash of a state -> its noise
    vanishing  hashes of what is 0 where states or inputs are: products and powers of these; sums
               as in x / (K + x) are not among them
    quotients  hash of a quotient by such a base -> top and base
    """

    def __init__(self, noise: Mapping[int, float], inputs: Set[int]) -> None:
        self.noise, self.vanishing = noise, {*noise, *inputs}
        self.quotients: dict[int, tuple[Any, Any]] = {}

    def __call__(self, operation: str, data: list[Any]) -> Any:
        may_vanish = [d.is_zero() or d.element_hash() in self.vanishing for d in data]
        if operation in POWERS and data[0].element_hash() in self.quotients:
            exponent = ca.SX(ROOT) if operation == "SQRT" else data[1]
            return self._of_quotient(*self.quotients[data[0].element_hash()], exponent)
        if operation in QUOTIENTS and may_vanish[-1]:
            top, base = (ca.SX(1) if operation == "INV" else data[0]), data[-1]
            result = top / _moved_from_zero(base, NEAREST)
            self.quotients[result.element_hash()] = top, base
            return result
        return self._guarded(operation, data, may_vanish)

    def _of_quotient(self, top: Any, base: Any, exponent: Any) -> Any:
        """(top / base)**exponent; as (base / top)**(-exponent) where the base is the smaller.

        Of the form that does not count the quotient is 1, so that its derivative is finite.
        """
        if top.is_constant() and not top.is_zero():
            return self._guarded("POW", [base / top, -exponent], [True, False])
        is_large = ca.fabs(top) > ca.fabs(base)
        below = ca.if_else(is_large, base, 1.0) / ca.if_else(is_large, top, 1.0)
        least = _moved_from_zero(ca.if_else(is_large, 1.0, base), NEAREST)
        forms = ([below, -exponent], [ca.if_else(is_large, 1.0, top) / least, exponent])
        result = ca.if_else(is_large, *(self._guarded("POW", f, [True, False]) for f in forms))
        self.vanishing.add(result.element_hash())
        return result

    def _guarded(self, operation: str, data: list[Any], may_vanish: Sequence[bool]) -> Any:
        guarded = None
        if operation in POWERS:
            guarded = _power(self.noise, operation, data, may_vanish=may_vanish[0])
        result = apply_to_sx(operation, data) if guarded is None else guarded
        is_product = any(may_vanish) if operation in PRODUCTS else may_vanish[0]
        if guarded is not None or (operation in MONOMIALS and is_product):
            self.vanishing.add(result.element_hash())
        return result


def _moved_from_zero(base: Any, least: Any) -> Any:
    """The base, or `least` where it is nearer to 0: quotients and their derivatives are finite."""
    return base + ca.if_else(ca.fabs(base) > least, 0.0, least)


def _smallest(exponent: Any) -> Any:
    """Base below which a power with a negative exponent, or its derivative, overflows."""
    return ca.exp(-LARGEST / (1 + ca.fabs(exponent)))


def _power(
    noise: Mapping[int, float], operation: str, data: list[Any], *, may_vanish: bool
) -> Any | None:
    """None of powers that need no care."""
    base, exponent = data[0], {"SQRT": ca.SX(ROOT)}.get(operation, data[-1])
    moved = [s for s in ca.symvar(base) if s.element_hash() in noise]
    is_known = exponent.is_constant()
    is_whole = is_known and float(exponent).is_integer()
    is_number = base.is_constant() and not base.is_zero()
    if is_number and np.isinf(float(base)) and not is_known:  # K / u where the input u is 0
        return ca.if_else(exponent > 0, np.inf, ca.if_else(exponent < 0, 0.0, 1.0))
    is_positive = is_known and float(exponent) >= 0
    needs_none = is_known and not moved and not may_vanish
    if is_number or (is_positive and (is_whole or not moved)) or needs_none:
        return None
    is_below = exponent < 0
    if is_whole:  # of a base of any sign
        return _moved_from_zero(base, _smallest(exponent)) ** exponent
    limit = ca.if_else(exponent > 0, 0.0, ca.if_else(is_below, np.inf, 1.0))
    allowed = base > ca.if_else(is_below, _smallest(exponent), 0.0)
    if moved:
        reach = sum(ca.fabs(ca.jacobian(base, s)) * noise[s.element_hash()] for s in moved)
        limit = ca.if_else(base >= -reach, limit, np.nan)
    else:  # a condition on time alone is held from its jump on, where the base is still 0
        base += ca.if_else(exponent > 0, TINY, 0.0)
    return _outside(allowed, base, lambda base: apply_to_sx(operation, [base, *data[1:]]), limit)


def _outside(allowed: Any, base: Any, function: Callable[[Any], Any], limit: Any) -> Any:
    """The function where it is allowed, with a base of 1 elsewhere: so no derivative is taken."""
    return ca.if_else(allowed, function(ca.if_else(allowed, base, 1.0)), limit)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **ARITHMETIC,
    **{name.upper(): getattr(pyo, name) for name in PLAIN.split()},
    "SQ": lambda a: a**2,
    "EXPM1": lambda a: pyo.exp(a) - 1,
    "LOG1P": lambda a: pyo.log(1 + a),
    "FABS": abs,
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
    known, column = ca.SX(symbols), ca.densify(ca.vec(ca.SX(expressions)))
    if len(variables) != known.numel():
        raise ModelError(
            f"Expected {known.numel()} variables, one for each symbol; got {len(variables)}."
        )
    unknown = [s for s in ca.symvar(column) if not ca.depends_on(known, s)]
    if unknown:
        raise ModelError(f"The expressions contain {unknown}, which have no Pyomo variable.")
    graph = Graph.of(column, [known])
    return graph.evaluate(lambda _, i: variables[i], lambda number: number, _operation)


def _operation(name: str, operands: list[Any]) -> Any:
    if name not in OPERATIONS:
        raise ModelError(
            f"CasADi's operation '{name.lower()}' has no counterpart in Pyomo, so this equation "
            "cannot be given to an outside solver. Rewrite it with smooth functions that Pyomo "
            "supports."
        )
    return OPERATIONS[name](*operands)
