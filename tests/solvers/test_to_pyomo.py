"""Every operation there and back: CasADi's number and Pyomo's are the same."""

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
import pytest

from igpe.core.errors import ModelError
from igpe.equations.translate import OPERATIONS, to_pyomo

WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "ASSIGN": lambda x, y: x,
    "ADD": lambda x, y: x + y,
    "SUB": lambda x, y: x - y,
    "MUL": lambda x, y: x * y,
    "DIV": lambda x, y: x / y,
    "NEG": lambda x, y: -x,
    "INV": lambda x, y: 1 / x,
    "TWICE": lambda x, y: 2 * x,
    "SQ": lambda x, y: x**2,
    "POW": lambda x, y: (x + 2) ** y,
    "CONSTPOW": lambda x, y: (x + 2) ** 1.7,
    "SQRT": lambda x, y: ca.sqrt(x + 2),
    "EXP": lambda x, y: ca.exp(x),
    "EXPM1": lambda x, y: ca.expm1(x),
    "LOG": lambda x, y: ca.log(x + 2),
    "LOG1P": lambda x, y: ca.log1p(x / 2),
    "SIN": lambda x, y: ca.sin(x),
    "COS": lambda x, y: ca.cos(x),
    "TAN": lambda x, y: ca.tan(x),
    "ASIN": lambda x, y: ca.asin(x),
    "ACOS": lambda x, y: ca.acos(x),
    "ATAN": lambda x, y: ca.atan(x),
    "SINH": lambda x, y: ca.sinh(x),
    "COSH": lambda x, y: ca.cosh(x),
    "TANH": lambda x, y: ca.tanh(x),
    "ASINH": lambda x, y: ca.asinh(x),
    "ACOSH": lambda x, y: ca.acosh(x + 3),
    "ATANH": lambda x, y: ca.atanh(x / 2),
    "FABS": lambda x, y: ca.fabs(x),
    "FLOOR": lambda x, y: ca.floor(3 * x),
    "CEIL": lambda x, y: ca.ceil(3 * x),
    "HYPOT": ca.hypot,
}


def _model() -> Any:
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(), pyo.Var()
    return m


def test_every_operation_has_a_case() -> None:
    assert set(WRITTEN) == set(OPERATIONS)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_operation_keeps_its_value(name: str) -> None:
    m = _model()
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    expression = WRITTEN[name](x, y)
    (translated,) = to_pyomo(expression, ca.vertcat(x, y), [m.x, m.y])
    exact = ca.Function("f", [x, y], [expression])
    rng = np.random.default_rng(0)
    for a, b in rng.uniform(-0.95, 0.95, (5, 2)):
        m.x.value, m.y.value = a, b
        assert pyo.value(translated) == pytest.approx(float(exact(a, b)), rel=1e-12, abs=1e-14)


def test_column_keeps_order_constants_and_structural_zeros() -> None:
    m = _model()
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    column = ca.vertcat(x * y + x, 3.5, ca.SX(1, 1), ca.exp(x * y))
    m.x.value, m.y.value = 0.5, 2.0
    found = to_pyomo(column, ca.vertcat(x, y), [m.x, m.y])
    assert [pyo.value(e) for e in found] == pytest.approx([1.5, 3.5, 0.0, np.e])


def test_operation_without_counterpart_is_named() -> None:
    x = ca.SX.sym("x")
    with pytest.raises(ModelError, match="'erf'"):
        to_pyomo(ca.erf(x), x, [_model().x])


def test_symbol_without_variable_is_named() -> None:
    x, y = ca.SX.sym("x"), ca.SX.sym("why")
    with pytest.raises(ModelError, match="why"):
        to_pyomo(x * y, x, [_model().x])
    with pytest.raises(ModelError, match="Expected 2 variables, one for each symbol; got 1"):
        to_pyomo(x * y, ca.vertcat(x, y), [_model().x])
