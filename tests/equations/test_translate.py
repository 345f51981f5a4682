"""Every Pyomo operation gives the same number through CasADi, and the right derivative."""

import math
from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
import pytest
from pyomo.core.expr.numeric_expr import LinearExpression

from igpe.core.errors import ModelError
from igpe.equations.reading.instant import Instant
from igpe.equations.translate import FUNCTIONS, Translator, with_safe_powers

NOISE = np.array([0.01, 0.0])  # of two states

Written = Callable[[Any, Any, Any], Any]

WRITTEN: dict[str, Written] = {
    "sum": lambda m, x, y: x + y + 3,
    "difference": lambda m, x, y: 2 - x - y,
    "product": lambda m, x, y: 3 * x * y,
    "monomial": lambda m, x, y: 3 * x + 4 * y,
    "linear": lambda m, x, y: LinearExpression(
        constant=1.0, linear_coefs=[2, 3], linear_vars=[x, y]
    ),
    "quotient": lambda m, x, y: x / y,
    "reciprocal": lambda m, x, y: 1 / x,
    "negative": lambda m, x, y: -(x * y),
    "square": lambda m, x, y: x**2,
    "power of a variable": lambda m, x, y: x**y,
    "root": lambda m, x, y: x**0.5,
    "number to a power": lambda m, x, y: 2**x,
    "abs": lambda m, x, y: abs(x - y) + abs(y - x - 5),
    "max": lambda m, x, y: pyo.numeric_expr.MaxExpression((x, y, 0.4)),
    "min": lambda m, x, y: pyo.numeric_expr.MinExpression((x, y, 0.7)),
    "if greater": lambda m, x, y: pyo.Expr_if(IF=x > y, THEN=x**2, ELSE=-y),
    "if less or equal": lambda m, x, y: pyo.Expr_if(IF=x <= y, THEN=x**2, ELSE=-y),
    "if between": lambda m, x, y: pyo.Expr_if(pyo.inequality(0.4, x, 0.7), x, y),
    "if strictly between": lambda m, x, y: pyo.Expr_if(
        pyo.inequality(0.4, x, 0.7, strict=True), x, y
    ),
    "named": lambda m, x, y: m.named + m.named * x,
    "nested names": lambda m, x, y: m.outer / (1 + m.named),
    "Param": lambda m, x, y: m.param * x + m.mutable**2 * y,
    "indexed Param": lambda m, x, y: sum(m.many[i] * x for i in (1, 2)),
    "fixed Var": lambda m, x, y: m.fixed * x + pyo.exp(m.fixed) * y,
    "only numbers": lambda m, x, y: m.mutable + m.fixed,
    "a constant": lambda m, x, y: 7.5,
    "a leaf": lambda m, x, y: x,
    "quicksum": lambda m, x, y: pyo.quicksum(x * y**i for i in range(5)),
    "prod": lambda m, x, y: pyo.prod([x, y, x + 1]),
    **{
        name: lambda m, x, y, name=name: getattr(pyo, name)(x + y / 3)
        for name in FUNCTIONS
        if name not in ("acosh", "asin", "acos", "atanh")
    },
    **{
        name: lambda m, x, y, name=name: getattr(pyo, name)((x + y) / 3)
        for name in ("asin", "acos", "atanh")
    },
    "acosh": lambda m, x, y: pyo.acosh(1.1 + x * y),
}


@pytest.fixture(name="m")
def _model() -> Any:
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(), pyo.Var()
    m.named = pyo.Expression(expr=m.x * m.y + 1)
    m.outer = pyo.Expression(expr=pyo.log(m.named) + m.named)
    m.param = pyo.Param(initialize=1.7)
    m.mutable = pyo.Param(initialize=2.3, mutable=True)
    m.many = pyo.Param([1, 2], initialize={1: 0.3, 2: 0.8}, mutable=True)
    m.fixed = pyo.Var(initialize=0.6)
    m.fixed.fix()
    return m


@pytest.mark.parametrize("name", list(WRITTEN))
def test_casadi_gives_pyomos_number_and_a_true_derivative(name: str, m: Any) -> None:
    x = ca.SX.sym("x", 2)
    expression = WRITTEN[name](m, m.x, m.y)
    translated = ca.SX(Translator({id(m.x): x[0], id(m.y): x[1]}, ca.SX.sym("t"))(expression))
    function = ca.Function("f", [x], [translated, ca.jacobian(translated, x)])
    for point in np.random.default_rng(7).uniform(0.2, 0.9, (20, 2)):
        m.x.set_value(point[0])
        m.y.set_value(point[1])
        said, derivative = function(point)
        assert float(said) == pytest.approx(pyo.value(expression), rel=1e-13, abs=1e-14)
        h = 1e-6
        moved = [[float(function(point + s * h * e)[0]) for s in (1, -1)] for e in np.eye(2)]
        central = [(up - down) / (2 * h) for up, down in moved]
        assert np.asarray(derivative).ravel() == pytest.approx(central, rel=1e-6, abs=1e-7)


def test_a_free_variable_without_a_symbol_is_refused_by_name(m: Any) -> None:
    with pytest.raises(ModelError, match="free variable 'y'"):
        Translator({id(m.x): ca.SX.sym("x")}, ca.SX.sym("t"))(m.x * m.y)


def test_a_symbol_wins_over_the_value_of_a_fixed_variable(m: Any) -> None:
    symbol = ca.SX.sym("x")
    said = Translator({id(m.fixed): symbol}, ca.SX.sym("t"))(m.fixed + m.mutable)
    assert ca.depends_on(said, symbol)


def test_the_instant_is_a_number_to_comparisons_and_a_symbol_to_arithmetic() -> None:
    now, t = Instant(2.5), ca.SX.sym("t")
    assert now == 2.5
    assert now > 2
    assert {2.5: "found"}[now] == "found"
    written = pyo.exp(-now / 3) + now**2 - 2 * now + (1 + now) * now
    said = ca.Function("f", [t], [Translator({}, t)(written)])
    assert float(said(4.0)) == pytest.approx(np.exp(-4 / 3) + 16 - 8 + 20, rel=1e-14)


@pytest.mark.parametrize("compute", [math.exp, float, lambda t: np.interp(t, [0, 5], [0, 1])])
def test_the_instant_refuses_to_become_a_number_unseen(compute: Any) -> None:
    with pytest.raises(TypeError):
        compute(Instant(2.5))


def test_a_power_with_an_unknown_exponent_rests_at_an_exhausted_base(m: Any) -> None:
    """First and second derivatives of x**y: true for x > 0, zero at x <= 0, never NaN."""
    v = ca.SX.sym("v", 2)
    said = Translator({id(m.x): v[0], id(m.y): v[1]}, ca.SX.sym("t"))(m.x**m.y)
    said = with_safe_powers(said, v, NOISE)
    second, first = ca.hessian(said, v)
    function = ca.Function("f", [v], [said, first, second])
    for base in (0.0, -1e-12):
        for n in (0.5, 1.0, 2.5):
            assert all((np.asarray(part) == 0).all() for part in function([base, n]))
    x, n = 1e-6, 1.5
    log = np.log(x)
    mixed = x ** (n - 1) * (1 + n * log)
    value, slope, curvature = (np.asarray(part) for part in function([x, n]))
    assert float(value.item()) == pytest.approx(x**n)
    assert slope.ravel() == pytest.approx([n * x ** (n - 1), x**n * log])
    expected = [n * (n - 1) * x ** (n - 2), mixed, mixed, x**n * log**2]
    assert curvature.ravel() == pytest.approx(expected)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_safe_powers_change_nothing_at_positive_bases(name: str, m: Any) -> None:
    x = ca.SX.sym("x", 2)
    translate = Translator({id(m.x): x[0], id(m.y): x[1]}, ca.SX.sym("t"))
    plain = ca.vertcat(translate(WRITTEN[name](m, m.x, m.y)), translate(m.x**m.y), 0)
    function = ca.Function("f", [x], [plain, with_safe_powers(plain, x, NOISE)])
    for point in np.random.default_rng(7).uniform(0.2, 0.9, (20, 2)):
        before, after = (np.asarray(v).ravel() for v in function(point))
        assert after == pytest.approx(before, rel=1e-15, abs=0)


def test_a_power_with_a_number_stays_a_power(m: Any) -> None:
    x = ca.SX.sym("x", 2)
    translate = Translator({id(m.x): x[0], id(m.y): x[1]}, ca.SX.sym("t"))
    said = with_safe_powers(ca.vertcat(translate(m.x**3), translate(m.x**m.y)), x, [3.0, 1.0])
    assert np.asarray(ca.Function("f", [x], [said])([-2.0, 3.0])).ravel().tolist() == [-8.0, 0.0]


@pytest.mark.parametrize(
    "power", [pyo.sqrt, lambda b: b**0.7, lambda b: b**1.5], ids=["root", "0.7", "1.5"]
)
def test_a_fractional_power_rests_at_a_base_that_noise_makes_negative(power: Any, m: Any) -> None:
    """A tank that is empty, a conversion of 1; further below 0 there is no power."""
    v = ca.SX.sym("v", 2)
    translate = Translator({id(m.x): v[0], id(m.y): v[1]}, ca.SX.sym("t"))
    said = with_safe_powers(translate(power(1 - 2 * m.x)), v, NOISE)
    function = ca.Function("f", [v], [said, ca.jacobian(said, v)])
    for x in (0.5, 0.5 + 1e-12, 0.5 + 0.9 * NOISE[0]):
        value, slope = (np.asarray(part) for part in function([x, 1.0]))
        assert value == 0
        assert (slope == 0).all()
    assert np.isnan(float(function([0.5 + 1.1 * NOISE[0], 1.0])[0]))


def test_small_units_are_no_zeros() -> None:
    """Moles of a cell: products and powers of 1e-12 are far below 1e-30, and are values."""
    x, n = ca.SX.sym("x", 3), ca.SX.sym("n")
    forms = ca.vertcat(
        1 / (1 + 1e-36 / (x[0] * x[1] * x[2])),
        1 / (1 + 1e-12**n / x[0] ** n),
        1 / (1 + (x[0] / 1e-12) ** (-n)),
        1 / (1 + 1e36 * (x[0]) ** 3) * x[1] ** -2 * 1e-24,
    )
    safe = with_safe_powers(forms, x, np.full(3, 1e-16))
    at = ca.Function("at", [x, n], [safe, ca.jacobian(safe, ca.vertcat(x, n))])
    values, slopes = at([1e-12, 1e-12, 1e-12], 8.0)
    assert np.asarray(values).ravel() == pytest.approx([0.5, 0.5, 0.5, 0.5])
    plain = ca.Function("plain", [x, n], [ca.jacobian(forms, ca.vertcat(x, n))])
    wanted = np.asarray(plain([1e-12, 1e-12, 1e-12], 8.0))
    assert np.asarray(slopes) == pytest.approx(wanted, rel=1e-9)
    values, slopes = at([0.0, 0.0, 0.0], 8.0)
    assert np.asarray(values).ravel()[:3] == pytest.approx([0.0, 0.0, 0.0], abs=1e-30)
    assert float(values[3]) > 1e60
    assert np.isfinite(np.asarray(slopes)).all()


@pytest.mark.parametrize(
    ("x", "is_input"), [(0.0, False), (-1e-10, False), (1e-3, False), (0.0, True), (1e-3, True)]
)
def test_forms_of_one_saturation_have_one_value_and_slope(x: float, is_input: bool) -> None:
    v, k, n = ca.SX.sym("x"), ca.SX.sym("k"), ca.SX.sym("n")
    linear = [v / (k + v), 1 / (1 + k / v), 1 / (1 + (v / k) ** -1)]
    cooperative = [v**n / (k**n + v**n), 1 / (1 + (k / v) ** n), 1 / (1 + (v / k) ** (-n))]
    cooperative.append(1 / (1 + k**n / v**n))
    known = [v**1.5 / (k**1.5 + v**1.5), 1 / (1 + (k / v) ** 1.5)]
    for forms in (linear, cooperative, known):
        of = (ca.SX(0, 1), np.zeros(0), [v]) if is_input else (v, np.array([1e-9]))
        safe = with_safe_powers(ca.vertcat(*forms), *of)
        by = ca.jacobian(safe, ca.vertcat(v, k, n))
        values, slopes = ca.Function("at", [v, k, n], [safe, by])(x, 2.0, 2.5)
        values, slopes = np.asarray(values).ravel(), np.asarray(slopes)
        assert values == pytest.approx(np.full(len(forms), values[0]), rel=1e-12, abs=1e-15)
        assert slopes == pytest.approx(np.tile(slopes[0], (len(forms), 1)), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("n", [0.3, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("v", [2.0, 0.5])
def test_a_quotient_of_two_states_rests_where_its_top_is_0(n: float, v: float) -> None:
    """As (B / V)**n where B is fed later: the other state must not make its slope undefined."""
    x, p = ca.SX.sym("x", 2), ca.SX.sym("p")
    power = (x[0] / x[1]) ** p
    safe = with_safe_powers(power, x, np.full(2, 1e-16))
    function = ca.Function("f", [x, p], [safe, ca.jacobian(safe, x[1]), ca.jacobian(safe, p)])
    assert [float(one) for one in function([0.0, v], n)] == [0.0, 0.0, 0.0]
    a = ca.SX.sym("a")
    power = ((x[0] - a) / x[1]) ** p  # a sum that is 0, as of equal pressures
    safe = with_safe_powers(power, x, np.full(2, 1e-16))
    slope = ca.Function("s", [x, a, p], [safe, ca.jacobian(safe, x[1]), ca.jacobian(safe, p)])
    assert [float(one) for one in slope([0.4, v], 0.4, n)] == [0.0, 0.0, 0.0]
    for b in (1e-3, 0.7, 30.0):
        exact = (b / v) ** n, -n / v * (b / v) ** n, (b / v) ** n * np.log(b / v)
        assert [float(one) for one in function([b, v], n)] == pytest.approx(exact, rel=1e-12)
