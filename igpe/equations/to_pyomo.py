"""CasADi expressions as Pyomo expressions: what was transformed symbolically goes to a solver.

A CasADi SX function is a list of elementary instructions on a work vector; each is repeated with
Pyomo's operators.
"""

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import pyomo.environ as pyo

from igpe.core.errors import ModelError
from igpe.equations.operations import ARITHMETIC, OPERATION_NAMES, replayed

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
    function = ca.Function("expressions", [ca.SX(symbols)], [column])
    results = replayed(function, lambda _, i: variables[i], lambda number: number, _operation)
    return [results.get(i, 0.0) for i in range(int(column.numel()))]


def _operation(code: int, operands: list[Any]) -> Any:
    name = OPERATION_NAMES[code]
    if name not in OPERATIONS:
        raise ModelError(
            f"CasADi's operation '{name.lower()}' has no counterpart in Pyomo, so this equation "
            "cannot be given to an outside solver. Write it with smooth functions that Pyomo has."
        )
    return OPERATIONS[name](*operands)


def _among(symbol: Any, symbols: Any) -> bool:
    return bool(ca.depends_on(ca.SX(symbols), symbol))
