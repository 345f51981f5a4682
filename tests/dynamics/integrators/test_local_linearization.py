"""Local Linearization: its orders, what it is exact for, and its stability."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from initial_values import one_state
from interval_problems import EXACT, NUMBERS, Cut, exact, of_zoo, posed, prepared

import igpe
from igpe.dynamics.integrators.local_linearization import LocalLinearization
from igpe.estimation.summary import _rough

ANY = 1e12  # a tolerance that every step keeps, so that `longest` alone chooses it


def errors(one, right, longest):
    """Largest of each kind of number."""
    came = one.run(LocalLinearization(ANY, ANY, longest=longest))
    return np.array([np.abs(getattr(came, n) - getattr(right, n)).max() for n in NUMBERS])


def test_estimates_with_it_say_that_derivatives_are_rough():
    said = [*_rough(igpe.Settings(integrator=LocalLinearization()))]
    assert said[0].startswith("LocalLinearization computes rough derivatives")
    assert [*_rough(igpe.Settings())] == []


@pytest.mark.parametrize("name", ["henon_heiles", "michaelis_menten"])
def test_states_are_of_order_two_and_derivatives_of_order_one(name):
    one = prepared(name) if name == "henon_heiles" else of_zoo(name, 2)
    times = one.nodes[:-1] + 0.75 * np.diff(one.nodes)  # hit by steps of a sixteenth and less
    one = one._replace(times=times)
    right, length = one.run(EXACT), one.nodes[1] - one.nodes[0]
    coarse, fine = (errors(one, right, length / n) for n in (32, 64))
    assert np.log2(coarse / fine) == pytest.approx([2, 1, 1, 2, 1, 1], abs=0.15)


def test_order_two_also_where_the_equations_depend_on_time():
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    ivp = replace(ivp, f=ca.cos(ivp.t) - ivp.q * ivp.x**2)
    one = Cut(ivp, np.array([0.3, 2.3]), np.array([[0.8]]), np.array([1.3]), np.array([1.3]))
    right = one.run(EXACT)
    coarse, fine = (errors(one, right, 2 / n) for n in (32, 64))
    assert np.log2(coarse / fine)[[0, 3]] == pytest.approx([2, 2], abs=0.15)
    assert np.log2(coarse / fine)[[1, 2]] == pytest.approx([1, 1], abs=0.15)


@pytest.mark.parametrize("name", ["reversible", "consecutive"])
def test_one_step_is_exact_for_linear_equations(name):
    one = of_zoo(name, 3)
    one = one._replace(times=one.times[-1:])
    came, right = one.run(LocalLinearization(ANY, ANY)), one.run(EXACT)
    assert came.ends == pytest.approx(right.ends, rel=1e-8, abs=1e-10)
    assert came.by_start == pytest.approx(right.by_start, rel=1e-8, abs=1e-10)


def test_tighter_tolerances_are_kept_by_the_states():
    for name in ("henon_heiles", "calcium"):
        one, right = prepared(name), exact(name)
        for rtol in (1e-3, 1e-5):
            came = one.run(LocalLinearization(rtol, rtol / 1000))
            size = np.abs(right.ends).max(axis=0)
            assert (np.abs(came.ends - right.ends) < 20 * rtol * size).all()


def test_stiff_equations_take_few_steps_and_their_derivatives_do_not_explode():
    one, right = prepared("calcium"), exact("calcium")
    came = one.run(LocalLinearization(max_steps=200))
    assert set(came.reason) == {""}
    assert came.by_start == pytest.approx(right.by_start, abs=0.2 * np.abs(right.by_start).max())
