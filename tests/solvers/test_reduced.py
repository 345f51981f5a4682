"""Variables that equations define, taken out of a program."""

from typing import Any

import casadi as ca
import numpy as np
import pytest

from igpe.solvers.nl import ReducedProgram, Scaled, reduce

INF = np.inf


def program(g: Any, x: Any, bounds: list[tuple[float, float]], size: list[float]) -> Scaled:
    """Minimise the sum of squares subject to bounds on g."""
    both = np.array(bounds, dtype=float).T.reshape(2, -1)
    return Scaled(
        {"x": x, "f": ca.sumsqr(x), "g": g}, np.array(size), np.ones(len(bounds)), both, 1
    )


def reduced(
    g: Any, x: Any, bounds: list[tuple[float, float]], lower: list[float], upper: list[float]
) -> ReducedProgram:
    n = x.numel()
    return reduce(
        program(g, x, bounds, [1.0] * n), np.ones(n), np.array(lower, float), np.array(upper, float)
    )


def test_a_chain_of_definitions_is_followed_in_any_order() -> None:
    x = ca.SX.sym("x", 4)
    g = ca.vertcat(x[3] - 2 * x[2] - 1, x[1] - x[0] ** 2, 4 * x[2] - x[1])
    found = reduced(g, x, [(0, 0), (0, 0), (0, 0)], [0, -INF, -INF, -INF], [2, INF, INF, INF])
    assert found.kept == (0,)
    assert found.unbounded == ()
    assert found.g.numel() == 0
    assert np.array(found.expand([2.0])).ravel() == pytest.approx([2.0, 4.0, 1.0, 3.0])
    f = ca.Function("f", [found.x], [found.f])
    assert float(f(2.0)) == pytest.approx(4 + 16 + 1 + 9)


def test_what_the_definition_equals_is_kept() -> None:
    x = ca.SX.sym("x", 2)
    found = reduced(x[0] + 2 * x[1], x, [(5, 5)], [0, -INF], [1, INF])
    assert np.array(found.expand([1.0])).ravel() == pytest.approx([1.0, 2.0])


def test_a_single_bound_becomes_a_constraint() -> None:
    x = ca.SX.sym("x", 2)
    found = reduced(x[1] - ca.sin(x[0]), x, [(0, 0)], [0, 0.5], [3, INF])
    assert found.bounds.tolist() == [[0.5], [INF]]
    g = ca.Function("g", [found.x], [found.g])
    assert float(g(1.0)) == pytest.approx(np.sin(1.0))


@pytest.mark.parametrize(
    "row",
    [
        lambda x: x[1] ** 2 - x[0],  # not linear
        lambda x: x[0] * x[1] - 1,  # its factor is not constant
        lambda x: ca.sin(x[1]) - x[0],
    ],
)
def test_what_is_not_explicit_stays_and_is_told(row: Any) -> None:
    x = ca.SX.sym("x", 2)
    found = reduced(row(x), x, [(0, 0)], [1, -INF], [2, INF])
    assert found.kept == (0, 1)
    assert found.unbounded == (1,)


def test_of_a_circle_one_variable_stays() -> None:
    x = ca.SX.sym("x", 3)
    g = ca.vertcat(x[1] - x[2] - x[0], x[2] - ca.cos(x[1]))
    found = reduced(g, x, [(0, 0), (0, 0)], [0, -INF, -INF], [1, INF, INF])
    assert len(found.unbounded) == 1
    assert found.g.numel() == 1


def test_inequalities_and_bounded_variables_define_nothing() -> None:
    x = ca.SX.sym("x", 2)
    loose = reduced(x[1] - x[0], x, [(0, 1)], [0, -INF], [1, INF])
    bounded = reduced(x[1] - x[0], x, [(0, 0)], [0, 0], [1, 1])
    assert loose.kept == bounded.kept == (0, 1)


def test_bounds_and_start_are_scaled_as_the_columns_are() -> None:
    x = ca.SX.sym("x", 2)
    scaled = program(x[1] - x[0], x, [(0, 1)], [10.0, 2.0])
    found = reduce(scaled, np.array([5.0, 1.0]), np.array([0.0, -4.0]), np.array([20.0, 4.0]))
    assert found.start == pytest.approx([0.5, 0.5])
    assert found.lower == pytest.approx([0.0, -2.0])
    assert found.upper == pytest.approx([2.0, 2.0])
