"""The compiled Runge-Kutta pairs: orders, stiffness, directions, compiling."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from initial_values import needs_compiler, one_state
from interval_problems import EXACT, NUMBERS, Cut, exact, posed, prepared

from igpe.core.status import Status
from igpe.dynamics.integrators import runge_kutta_source
from igpe.dynamics.integrators.cut import interval_of
from igpe.dynamics.integrators.local_linearization import LocalLinearization
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta

pytestmark = needs_compiler
PAIRS = pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT], ids=lambda p: p.name)


def curved(span, share=0.4):
    """x' = cos t - k x^3 on one interval; x and exp(k x) sin t are measured at a share of it."""
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    f = ca.cos(ivp.t) - ivp.q * ivp.x**3
    h = ca.vertcat(ivp.x, ca.exp(ivp.q * ivp.x) * ca.sin(ivp.t))
    ivp, begin = replace(ivp, f=f, measured=h), 0.3
    times = np.array([begin + share * span])
    return Cut(ivp, np.array([begin, begin + span]), np.array([[0.8]]), np.array([1.3]), times)


def all_directions(one):
    """The unit directions of each interval."""
    n = one.starts.shape[1] + len(one.q)
    return np.tile(np.eye(n), (len(one.starts), 1, 1))


def along(one, method, directions, *, probed=False):
    """Derivatives along directions of each interval (K, n_x + n_q, n_d)."""
    made = one.made(method)
    return made._run(one.starts, one.q, made._columns(directions, one.q, probed))


def steps_of(one, method):
    """(K, 2) explicit and implicit steps."""
    return one.run(method).steps


def test_one_explicit_step_is_of_order_five_and_its_dense_output_of_four():
    anything = RungeKutta(1e9, 1e9, pair=Pair.EXPLICIT)  # accepts the interval as one step
    errors = []
    for span in (0.4, 0.2):
        one = curved(span)
        assert steps_of(one, anything).tolist() == [[1, 0]]
        came, right = one.run(anything), one.run(EXACT)
        errors.append([np.abs(getattr(came, n) - getattr(right, n)).max() for n in NUMBERS])
    orders = np.log2(np.array(errors[0]) / errors[1])  # of the error of one step: one more
    assert (orders > [5.6, 5.6, 5.6, 4.6, 4.6, 4.6]).all()


@PAIRS
def test_errors_fall_with_the_steps_as_the_order_says(pair):
    one, found = curved(6.0), []
    right = one.run(EXACT)
    for rtol in (1e-5, 1e-9):
        method = RungeKutta(rtol, rtol, pair=pair)
        came = one.run(method)
        errors = [np.abs(getattr(came, n) - getattr(right, n)).max() for n in NUMBERS]
        found.append((steps_of(one, method).sum(), *errors))
    few, many = np.array(found)
    orders = np.log(few[1:] / many[1:]) / np.log(many[0] / few[0])
    wanted = {Pair.EXPLICIT: 5, Pair.IMPLICIT: 4}[pair]
    assert (orders > wanted - 0.6).all()


def test_stiff_intervals_change_to_the_implicit_pair_and_others_do_not():
    assert (steps_of(prepared("henon_heiles"), RungeKutta())[:, 1] == 0).all()
    stiff = prepared("calcium")
    chosen = steps_of(stiff, RungeKutta())
    assert (chosen[:, 0] > 0).all()
    assert (chosen[:, 1] > 0).any()
    assert chosen.sum() < 0.6 * steps_of(stiff, RungeKutta(pair=Pair.EXPLICIT)).sum()


def test_stiffness_is_found_at_tight_tolerances_where_steps_are_short_by_their_errors():
    stiff = prepared("calcium")
    chosen, explicit = (
        steps_of(stiff, RungeKutta(1e-8, 1e-10, slack=100.0, pair=p)).sum()
        for p in (Pair.BY_STIFFNESS, Pair.EXPLICIT)
    )
    assert chosen < 0.5 * explicit


@pytest.mark.parametrize("method", [RungeKutta(), LocalLinearization(1e-6)], ids=["C", "LL"])
def test_what_is_measured_may_mix_states(method):
    """Its Jacobian is neither symmetric nor square, which shows rows taken for columns."""
    one = prepared("henon_heiles")
    x = one.ivp.x
    mixed = ca.vertcat(x[0] + 2 * x[1] * x[2], x[3] - x[0], 5 * x[1])
    one = one._replace(ivp=replace(one.ivp, measured=mixed))
    came, right = one.run(method), one.run(EXACT)
    largest = np.abs(right.measured_by_start).max()
    assert came.measured_by_start == pytest.approx(right.measured_by_start, abs=1e-3 * largest)


def test_without_derivatives_in_the_step_control_they_are_wrong():
    one, right = prepared("calcium"), exact("calcium")

    def error(slack):
        came = one.run(RungeKutta(1e-4, 1e-6, slack=slack, pair=Pair.EXPLICIT))
        return np.max(np.abs(came.by_start - right.by_start)) / np.max(np.abs(right.by_start))

    assert error(100.0) < 1e-2
    assert error(1e30) > 100 * error(100.0)


def test_extremely_stiff_equations_take_few_steps():
    """x' = -k (x - cos t) with k = 1e7."""
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    ivp = replace(ivp, f=-ivp.q * (ivp.x - ca.cos(ivp.t)))
    one = Cut(ivp, np.array([0.0, 3.0]), np.array([[2.0]]), np.array([1e7]), np.array([1.0]))
    method = RungeKutta(1e-6, 1e-8, slack=100.0)
    came = one.run(method)
    assert came.ends[0, 0] == pytest.approx(np.cos(3.0), abs=1e-6)
    assert came.measured[0, 0] == pytest.approx(np.cos(1.0), abs=1e-6)
    assert np.abs(came.by_start).max() < 1e-6
    assert steps_of(one, method).sum() < 300


def test_equations_too_long_to_compile_are_refused(monkeypatch):
    monkeypatch.setattr("igpe.dynamics.integrators.runge_kutta.LONGEST", 3)
    came = prepared("decay").run(RungeKutta())
    assert came.reason[0].startswith("The equations are too long to compile: ")
    assert set(came.status) == {Status.INTEGRATION_BROKE}


def with_gaps(name):
    """Starts off the course, and directions: two of start, one of all, and the gaps."""
    one = prepared(name)
    random = np.random.default_rng(1)
    starts = one.starts * (1 + 0.05 * random.normal(size=one.starts.shape))
    first = random.normal(size=(starts.shape[1] + len(one.q), 4))
    first[:, 3] = 0.0
    return one._replace(starts=starts), first


@pytest.mark.parametrize("name", ["henon_heiles", "calcium", "stirred_tank"])
def test_chained_directions_are_the_condensed_ones(name):
    """Peifer & Timmer, equation 11, from all derivatives: ds = X ds + P dq + gap."""
    one, first = with_gaps(name)
    right, n_x = one.run(EXACT), one.starts.shape[1]
    came = one.made(RungeKutta(1e-10, 1e-12)).chained(one.starts, one.q, first)
    ds, dq, owner = first[:n_x], first[n_x:], interval_of(one.nodes, one.times)
    for k, (x, p) in enumerate(zip(right.by_start, right.by_unknown, strict=True)):
        here = owner == k
        by = right.measured_by_start[here] @ ds + right.measured_by_unknown[here] @ dq
        assert came.measured_by[here] == pytest.approx(by, rel=1e-6, abs=1e-6 * np.abs(ds).max())
        ds = x @ ds + p @ dq
        assert came.ends_by[k] == pytest.approx(ds, rel=1e-6, abs=1e-7 * np.abs(ds).max())
        if k + 1 < len(one.starts):
            ds[:, -1] += right.ends[k] - one.starts[k + 1]
    assert came.ends == pytest.approx(right.ends, rel=1e-7)


def test_what_follows_a_broken_interval_in_a_chain_is_broken():
    one, first = with_gaps("henon_heiles")
    starts = one.starts.copy()
    starts[5, 0] = np.nan
    came = one.made(RungeKutta()).chained(starts, one.q, first)
    assert [s.usable for s in came.status] == [True] * 5 + [False] * 7
    assert came.reason[5] == "The start values are not finite."
    assert set(came.reason[6:]) == {"The integration failed in an earlier interval."}
    assert np.isnan(came.ends[5:]).all()
    assert np.isfinite(came.ends_by[:5]).all()


@pytest.mark.parametrize("name", ["henon_heiles", "calcium"])
def test_probed_steps_are_the_same_whatever_the_directions(name):
    """So states have the same bits, and derivatives are those of the same steps."""
    one, first = with_gaps(name)
    made, n_x = one.made(RungeKutta()), one.starts.shape[1]
    each = all_directions(one)
    whole = along(one, RungeKutta(), each, probed=True)
    right = one.run(EXACT)
    for count in (1, 2, 3, 4):
        few = made.chained(one.starts, one.q, first[:, -count:], probed=True)
        assert (few.steps == whole.steps).all()
        assert (few.ends == whole.ends).all()
        assert (few.measured == whole.measured).all()
        ds, dq = first[:n_x, -count:], first[n_x:, -count:]
        for k, by in enumerate(whole.ends_by):
            ds = by @ np.vstack([ds, dq])
            assert few.ends_by[k] == pytest.approx(ds, rel=1e-10, abs=1e-11 * np.abs(ds).max())
            if k + 1 < len(one.starts):
                ds[:, -1] += whole.ends[k] - one.starts[k + 1]
    assert whole.ends_by[:, :, :n_x] == pytest.approx(
        right.by_start, rel=1e-3, abs=1e-4 * np.abs(right.by_start).max()
    )


def test_gaps_may_be_others_than_there_are():
    """One direction: what the gaps of a trial make of the ends."""
    one, first = with_gaps("henon_heiles")
    made, gaps = one.made(RungeKutta()), np.random.default_rng(4).normal(size=one.starts.shape)
    whole = along(one, RungeKutta(), all_directions(one), probed=True)
    came = made.chained(one.starts, one.q, 0 * first[:, :1], gaps=gaps, probed=True)
    n_x = one.starts.shape[1]
    ds = np.zeros(n_x)
    for k, by in enumerate(whole.ends_by):
        ds = by[:, :n_x] @ ds
        assert came.ends_by[k, :, 0] == pytest.approx(ds, rel=1e-10, abs=1e-10)
        ds = ds + (gaps[k + 1] if k + 1 < len(gaps) else 0.0)
    with pytest.raises(ValueError, match="Expected gaps of shape"):
        made.chained(one.starts, one.q, first, gaps=gaps[1:])


@pytest.mark.parametrize("rounding", [0.0, 1e-13, 1e-10])
def test_a_pulse_after_a_rest_is_not_stepped_over(rounding):
    """Slopes at the start are rounding: a first probe beyond the pulse would find nothing there."""
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    pulse = (1 - ca.exp(-4 * ivp.t)) * ca.exp(-50 * ivp.t)
    ivp = replace(ivp, f=ivp.q * pulse + rounding, measured=ivp.x)
    one = Cut(ivp, np.array([0.0, 10.0]), np.array([[1.0]]), np.array([1.3]), np.array([10.0]))
    expected = 1 + 1.3 * (1 / 50 - 1 / 54) + 10 * rounding
    assert one.run(RungeKutta(1e-8, 1e-10)).measured.ravel() == pytest.approx(expected, rel=1e-7)


def test_a_probe_keeps_derivatives_right_where_the_states_rest():
    """At a steady state nothing limits the steps but the derivatives; the probe is one of them."""
    ivp = posed(one_state(lambda m, t: -m.k * m.x[t]))
    ivp = replace(ivp, f=-ivp.q * (ivp.x - 1.0))
    one = Cut(ivp, np.array([0.0, 1.0]), np.array([[1.0]]), np.array([1e3]), np.array([1.0]))
    each = all_directions(one)
    probed = along(one, RungeKutta(), each, probed=True)
    assert np.abs(probed.ends_by).max() < 1e-6
    blind = along(one, RungeKutta(slack=1e30), each, probed=True)
    assert np.abs(blind.ends_by).max() > 1e6


def test_long_products_are_those_that_are_written_out(monkeypatch):
    one = prepared("calcium")
    short = one.run(RungeKutta())
    monkeypatch.setattr(runge_kutta_source, "WRITTEN_OUT", 0)
    runge_kutta_source.written.cache_clear()
    looped = one.run(RungeKutta())
    runge_kutta_source.written.cache_clear()
    for name in NUMBERS:
        assert (getattr(looped, name) == getattr(short, name)).all()


def test_without_derivatives_as_with_them():
    """The looks for stiffness need Jacobians, which a run without derivatives has not at hand."""
    one, right = prepared("calcium"), exact("calcium")
    plain = one.run(RungeKutta(1e-8, 1e-10), derivatives=False)
    assert plain.ends == pytest.approx(right.ends, rel=1e-5)
    assert plain.measured == pytest.approx(right.measured, rel=1e-5)


@pytest.mark.parametrize("shape", [(11, 0), (7, 2), (2, 11, 2)])
def test_chained_directions_of_a_wrong_shape_are_an_error(shape):
    one = prepared("henon_heiles")
    with pytest.raises(ValueError, match=r"Expected directions of shape \(11, 'n'\)"):
        one.made(RungeKutta()).chained(one.starts, one.q, np.ones(shape))
