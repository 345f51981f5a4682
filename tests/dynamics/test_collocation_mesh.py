"""Polynomials on Radau elements are exact where they should be."""

import numpy as np
import pytest

from igpe.dynamics.collocation.mesh import Mesh, Radau, first_mesh


def test_three_radau_points_are_the_tabulated_ones() -> None:
    assert Radau(3).nodes == pytest.approx([0, 0.15505102572168, 0.64494897427832, 1.0])


@pytest.mark.parametrize("points", [1, 2, 3, 5])
def test_slopes_and_values_of_polynomials_are_exact(points: int) -> None:
    radau = Radau(points)
    mesh = Mesh(np.array([0.0, 0.3, 1.0, 3.0]), radau)
    p = np.polynomial.Polynomial(np.arange(1.0, points + 2))
    assert mesh.slope(p(mesh.times)) == pytest.approx(p.deriv()(mesh.times))
    places = np.linspace(0, 3, 17)
    assert mesh.evaluate(p(mesh.times), places, state=True) == pytest.approx(p(places))
    q = np.polynomial.Polynomial(np.arange(1.0, points + 1))
    values = q(mesh.times)
    values[0] = 99.0  # an algebraic variable's value at the start plays no part
    assert mesh.evaluate(values, places, state=False) == pytest.approx(q(places))


def test_refinement_goes_where_the_course_is_steep() -> None:
    mesh = Mesh(np.linspace(0.0, 4.0, 5), Radau(3))
    finer = mesh.refined([np.exp(-10 * mesh.times)], 1e-5)
    assert np.diff(finer.edges)[0] < 0.5
    assert np.diff(finer.edges)[-1] == pytest.approx(1.0)


def test_resolved_mesh_is_halved() -> None:
    mesh = Mesh(np.linspace(0.0, 4.0, 5), Radau(3))
    assert mesh.refined([mesh.times**2], 1e-5).n_elements == 8


def test_first_mesh_keeps_the_stops_and_follows_the_guess() -> None:
    stops = np.array([0.0, 1.0, 2.0])
    plain = first_mesh(stops, [], Radau(3), 1e-5)
    steep = first_mesh(stops, [lambda t: np.exp(-30 * t)], Radau(3), 1e-5)
    assert set(stops) <= set(steep.edges) & set(plain.edges)
    assert plain.n_elements == 10
    assert steep.n_elements > 10
