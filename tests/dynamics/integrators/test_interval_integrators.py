"""Every integrator of intervals against CVODES, single shooting and central differences."""

import re
from dataclasses import replace

import numpy as np
import pytest
from initial_values import one_state
from interval_problems import (
    EXACT,
    LANES,
    NUMBERS,
    Cut,
    assert_close,
    every_lane,
    every_method,
    exact,
    of_zoo,
    posed,
    prepared,
)

from igpe.core.status import Status
from igpe.dynamics.integrators.local_linearization import LocalLinearization
from igpe.dynamics.integrators.lock_step import LockStep

NAMES = ["henon_heiles", "calcium", "stirred_tank", "reversible", "decay", "fed"]


@pytest.mark.slow
@every_lane
@pytest.mark.parametrize("name", NAMES)
def test_all_lanes_give_what_cvodes_gives(name, lane):
    one = prepared(name)
    came = one.run(LANES[lane](1e-8, 1e-10, 1.0, 100_000))
    assert set(came.status) == {Status.CONVERGED}
    assert set(came.reason) == {""}
    assert_close(came, exact(name), 1e-6, derivatives=2e-5)


@every_method
@pytest.mark.parametrize("name", ["henon_heiles", "fed"])
def test_without_derivatives_states_are_the_same_within_tolerances(name, method):
    one = prepared(name)
    whole, plain = one.run(method), one.run(method, derivatives=False)
    allowed = 100 * method.rtol
    assert plain.ends == pytest.approx(whole.ends, rel=allowed, abs=allowed)
    assert plain.measured == pytest.approx(whole.measured, rel=allowed, abs=allowed)
    n_k, n_x, n_t, n_h = *plain.ends.shape, *plain.measured.shape
    assert plain.by_start.shape == plain.by_unknown.shape == (n_k, n_x, 0)
    assert plain.measured_by_start.shape == plain.measured_by_unknown.shape == (n_t, n_h, 0)
    assert plain.status == whole.status


@every_method
@pytest.mark.parametrize("name", ["stirred_tank", "fed"])
def test_from_a_state_derivatives_are_those_along_its_directions(name, method):
    one = prepared(name)
    made = method.prepare(one.ivp, one.nodes[[0, -1]], one.times)
    start, n_x, n_q = one.starts[0], len(one.ivp.states), len(one.ivp.unknowns)
    by = np.zeros((n_x, 2 + n_q))  # the first direction moves nothing
    by[0, 1] = by[-1, -1] = 0.5
    both = np.vstack([by, np.eye(n_q, 2 + n_q, 2)])
    came = made.from_state(start, by, one.q)
    expected = made.run(start[None], one.q).along(both)
    assert came.ends_by.any(axis=(0, 1)).tolist() == expected.ends_by.any(axis=(0, 1)).tolist()
    assert_close(came, expected, 100 * method.rtol, derivatives=1e3 * method.rtol)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize(
    "times", [[], [0.0], [0.7], [2.0], [0.0, 2.0], [0.5], [0.0, 0.5, 0.5 + 1e-9, 2.0]]
)
@pytest.mark.parametrize("nodes", [[0.0, 2.0], [0.0, 0.5, 2.0], [0.0, 1e-7, 0.5, 2.0]])
def test_times_belong_to_the_interval_that_begins_at_or_before_them(nodes, times, method):
    """A start of x = 1, 2, 3, ... tells the intervals apart; LL is exact for linear equations."""
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    nodes, times, k = np.array(nodes), np.array(times), 0.5
    starts = 1.0 + np.arange(len(nodes) - 1)[:, None]
    is_ll = isinstance(method, LocalLinearization)  # its derivatives are of order 1
    fine = replace(method, longest=1e-3) if is_ll else method
    came = Cut(ivp, nodes, starts, np.array([k]), times).run(fine)
    owner = [int(np.flatnonzero(nodes[:-1] <= t)[-1]) for t in times]
    passed = times - nodes[owner]
    exact_by = np.exp(-k * passed)
    assert came.measured[:, 0] == pytest.approx(starts[owner, 0] * exact_by, rel=2e-6)
    assert came.measured_by_start[:, 0, 0] == pytest.approx(exact_by, rel=2e-5)
    by_k = -passed * starts[owner, 0] * exact_by
    rel = 1e-3 if is_ll else 1e-4
    assert came.measured_by_unknown[:, 0, 0] == pytest.approx(by_k, rel=rel, abs=1e-5)
    assert came.ends[:, 0] == pytest.approx(starts[:, 0] * np.exp(-k * np.diff(nodes)), rel=2e-6)


@every_method
def test_a_broken_interval_is_nan_and_the_others_go_on(method):
    ivp = posed(one_state(lambda m, t: m.k * m.x[t] ** 2))  # x = x0 / (1 - k x0 t)
    nodes, times = np.array([0.0, 0.5, 1.0, 1.5]), np.array([0.1, 0.6, 0.9, 1.0, 1.2])
    one = Cut(ivp, nodes, np.array([[1.0], [4.0], [0.5]]), np.array([1.0]), times)
    for derivatives in (True, False):
        came = one.run(method, derivatives=derivatives)
        assert came.status == (Status.CONVERGED, Status.INTEGRATION_BROKE, Status.CONVERGED)
        assert (came.reason[0], came.reason[2]) == ("", "")
        told = [float(t) for t in re.findall(r"t = (\d+\.?\d*)", came.reason[1])]
        near = 1e-4 + 2 * method.rtol
        assert min(told) <= 0.75 + near
        assert max(told) >= 0.75 - near
        assert came.ends[[0, 2], 0] == pytest.approx([2.0, 2 / 3], rel=20 * method.rtol)
        for name in NUMBERS[:3]:
            assert np.isnan(getattr(came, name)[1]).all()
            assert np.isfinite(getattr(came, name)[[0, 2]]).all()
        for name in NUMBERS[3:]:  # times 0.6 and 0.9 of the interval that ends at 0.75
            assert np.isnan(getattr(came, name)[2]).all()
            assert np.isfinite(getattr(came, name)[[0, 1, 3, 4]]).all()


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_starts_and_unknowns_that_are_no_numbers(bad, method):
    one = prepared("reversible")
    starts = one.starts.copy()
    starts[1, 0] = bad
    came = one.made(method).run(starts, one.q)
    assert came.reason[1] == "The start values are not finite."
    assert [s.usable for s in came.status] == [True, False, True]
    assert np.isnan(came.ends[1]).all()
    came = one.made(method).run(one.starts, np.array([bad, 0.3]))
    assert set(came.status) == {Status.INTEGRATION_BROKE}
    assert all(r for r in came.reason)
    assert all(np.isnan(getattr(came, name)).all() for name in NUMBERS)


@every_method
def test_an_interval_depends_on_its_own_start_alone(method):
    one = prepared("henon_heiles")
    made = one.made(method)
    starts = one.starts.copy()
    first = made.run(starts, one.q)
    starts[::2] *= 1.3
    again = made.run(starts, one.q)
    assert (again.ends[1::2] == first.ends[1::2]).all()
    assert (again.by_unknown[1::2] == first.by_unknown[1::2]).all()
    assert (again.ends[::2] != first.ends[::2]).any(axis=1).all()


@every_method
@pytest.mark.parametrize(
    ("nodes", "times", "says"),
    [
        ([0.0], [0.0], "At least two increasing nodes"),
        ([0.0, 1.0, 1.0], [0.5], "At least two increasing nodes"),
        ([0.0, 1.0], [0.5, 0.2], "times must increase"),
        ([0.0, 1.0], [0.5, 1.2], "must lie within the range of the nodes, 0 to 1"),
    ],
)
def test_nodes_and_times_that_make_no_sense(nodes, times, says, method):
    ivp = prepared("decay").ivp
    with pytest.raises(ValueError, match=says):
        method.prepare(ivp, np.array(nodes), np.array(times))


@every_method
def test_wrong_numbers_of_starts_and_unknowns(method):
    one = prepared("decay")
    made = one.made(method)
    with pytest.raises(ValueError, match=r"starts of shape \(2, 1\), got \(3, 1\)"):
        made.run(np.ones((3, 1)), one.q)
    with pytest.raises(ValueError, match=r"one number for each of \('k',\)"):
        made.run(one.starts, np.ones(2))


@pytest.mark.parametrize("method", [LockStep(), LocalLinearization()])
def test_implicit_algebraic_variables_are_refused_as_a_status(method):
    one = of_zoo("dimer", 3)
    came = one.run(method)
    assert set(came.status) == {Status.INTEGRATION_BROKE}
    assert "implicit algebraic variables ['M']; use igpe.integrators.Sundials" in came.reason[0]
    assert [getattr(came, n).shape for n in NUMBERS] == [
        getattr(one.run(EXACT), n).shape for n in NUMBERS
    ]
