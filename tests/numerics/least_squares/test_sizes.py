"""Units of the unknowns do not matter: to the steps, to what is determined, near zero."""

import numpy as np
import pytest

from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.numerics.least_squares.active import bounded_solution, undetermined
from igpe.numerics.least_squares.base import Linearised, floors
from igpe.numerics.least_squares.gauss_newton import GaussNewton, LineSearch

T = np.linspace(0.5, 5.0, 10)
Y = 2 / 0.7 * (1 - np.exp(-0.7 * T)) + 0.01 * np.cos(9 * T)


def box(lower=-np.inf, upper=np.inf):
    return Box(("a", "b"), np.full(2, lower), np.full(2, upper))


def growth(unit):
    """x' = a / unit - b x: a in any unit, b of order one, both determined."""

    def residual(p):
        a, b = p[0] / unit, p[1]
        e = np.exp(-b * T)
        by_b = a * (T * e / b - (1 - e) / b**2)
        jacobian = np.column_stack([(1 - e) / b / unit, by_b])
        return Linearised((a * (1 - e) / b - Y) / 0.01, jacobian / 0.01)

    return residual


@pytest.mark.parametrize("unit", [1e-15, 1e-12, 1e-6, 1e9, 1e14])
@pytest.mark.parametrize("search", [GaussNewton(), LineSearch()])
def test_an_unknown_in_any_unit_is_found(search, unit):
    fit = search.fit(growth(unit), np.array([3.0 * unit, 0.3]), box())
    plain = search.fit(growth(1.0), np.array([3.0, 0.3]), box())
    assert fit.x / [unit, 1.0] == pytest.approx(plain.x, rel=1e-6)
    assert fit.cost == pytest.approx(4.64033, rel=1e-5)
    assert undetermined(fit.at.jacobian, fit.x, "ab") == []


@pytest.mark.parametrize("unit", [1e-12, 1e-6])
def test_a_start_at_zero_takes_its_size_from_the_residuals(unit):
    fit = GaussNewton().fit(growth(unit), np.array([0.0, 0.3]), box())
    assert fit.cost == pytest.approx(4.64033, rel=1e-5)


@pytest.mark.parametrize("start", [1e-36, -1e-20])
@pytest.mark.parametrize("unit", [1e-9, 1.0])
def test_a_start_lost_in_rounding_is_left(start, unit):
    def line(p):
        return Linearised(p[0] / unit * T - Y, (T / unit)[:, None])

    fit = GaussNewton().fit(line, np.array([start]), box().select(["a"]))
    assert fit.x[0] / unit == pytest.approx(T @ Y / (T @ T), rel=1e-6)


def test_where_sizes_come_from():
    at = Linearised(np.array([3.0, 4.0]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    free = floors(at, np.zeros(2), box())
    assert free == pytest.approx([2.5, 1e-2])  # |r| / |column|, and nothing known
    assert floors(at, np.array([7.0, -7e-12]), box()) == pytest.approx([7e-2, 7e-14])
    assert floors(at, np.zeros(2), box(0.0, 1e-3)) == pytest.approx([1e-6, 1e-6])
    assert (floors(at, np.zeros(2), box(0.0, 0.0)) > 0).all()


@pytest.mark.parametrize("length", [1e-12, 1e12])
def test_columns_of_any_length_are_determined(length):
    matrix = np.array([[1.0, 2.0], [1.0, -1.0], [0.5, 0.3]]) * [1.0, length]
    truth = np.array([0.3, -0.7 / length])
    found = bounded_solution(matrix, matrix @ truth, np.full(2, -np.inf), np.full(2, np.inf))
    assert found == pytest.approx(truth, rel=1e-9)


def test_the_shortest_of_many_answers_is_measured_in_the_unknowns():
    """3 x + y = 10: the shortest is (3, 1), whatever the columns' lengths are."""
    for matrix in ([[3.0, 1.0]], [[3.0, 1.0], [6.0, 2.0], [0.0, 0.0]]):
        a = np.array(matrix)
        found = bounded_solution(a, a @ [3.0, 1.0], np.full(2, -99.0), np.full(2, 99.0))
        assert found == pytest.approx([3.0, 1.0], rel=1e-9)


def test_a_direction_is_told_relative_to_sizes_of_any_unit():
    x = np.array([2e-12, 3e11])
    jacobian = np.outer(np.arange(1.0, 6.0), [x[1], x[0]])  # of the product
    (found,) = undetermined(jacobian, x, "ab")
    assert found.names == ("a", "b")
    assert found.change[0] == pytest.approx(-found.change[1])


def test_settings_that_make_no_sense_are_refused():
    for given in ({"tolerance": -1.0}, {"radius": 0.0}, {"absolute": np.nan}):
        with pytest.raises(ProblemError, match=f"{next(iter(given))} is .*GaussNewton needs"):
            GaussNewton(**given)
    with pytest.raises(ProblemError, match="still is -1; LineSearch needs"):
        LineSearch(still=-1)
