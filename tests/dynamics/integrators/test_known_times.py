"""Pulses and switches of explicit time, by every integrator, against closed forms."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from initial_values import every_method, needs_compiler, one_state
from scipy.special import erf

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.local_linearization import LocalLinearization
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import initial_value_problem

CENTER, WIDTHS = 0.437, (0.1, 0.05, 0.02, 1e-3, 1e-5)
TIMES = np.array([0.2, CENTER, 0.8, 1.0])  # one of them inside the pulse
every_interval_method = pytest.mark.parametrize(
    ("method", "near"),
    [
        pytest.param(RungeKutta(pair=Pair.EXPLICIT), 1e-5, marks=needs_compiler, id="explicit"),
        pytest.param(RungeKutta(pair=Pair.IMPLICIT), 1e-5, marks=needs_compiler, id="implicit"),
        pytest.param(Automatic(), 1e-5, id="automatic"),
        pytest.param(LockStep(), 1e-5, id="lock step"),
        pytest.param(Sundials(), 1e-5, id="one by one"),
        pytest.param(LocalLinearization(), 0.06, id="local linearization"),
    ],
)


def posed(slope, *, unknowns=(), horizon=1.0):
    """x' = slope(t, x, q) from 0 over the horizon; q are k and those named besides."""
    problem = one_state(lambda m, t: m.k * m.x[t], start=0.0, times=(0.0, horizon))
    run = problem.experiments[0]
    system = compiled(problem).systems[0]
    s, more = system.symbols, [ca.SX.sym(n) for n in unknowns]
    if not unknowns:
        right = slope(s.t, s.x, s.p[0])
        return initial_value_problem(problem, run, replace(system, residual=s.dx - right))
    ivp = initial_value_problem(problem, run, system)
    return replace(
        ivp,
        f=slope(ivp.t, ivp.x, ivp.q[0], *more),
        q=ca.vertcat(ivp.q, *more),
        unknowns=(*ivp.unknowns, *unknowns),
        unknown_scale=np.ones(1 + len(unknowns)),
    )


def feed(t, x, k, center=CENTER, width=0.02):
    """A Gaussian pulse whose integral does not depend on its width."""
    return k / width * ca.exp(-(((t - center) / width) ** 2)) + 0 * x


def fed(t, center, width, first=0.0):
    """What is fed from `first` on, for k = 1."""
    return np.sqrt(np.pi) / 2 * (erf((t - center) / width) - erf((first - center) / width))


@every_method
@pytest.mark.parametrize("width", WIDTHS)
def test_a_pulse_is_never_passed_over(method, width):
    ivp = posed(lambda *given: feed(*given, width=width))
    came = method().simulation(ivp, TIMES, sensitivities=True).run(np.array([2.0]))
    exact = fed(TIMES, CENTER, width)
    assert came.status is Status.CONVERGED
    assert came.states[:, 0] == pytest.approx(2 * exact, rel=2e-6, abs=2e-6)
    assert came.by_unknown[:, 0, 0] == pytest.approx(exact, rel=2e-6, abs=2e-6)


@every_method
@pytest.mark.parametrize("width", [0.05, 1e-4])
def test_a_pulse_that_unknowns_move_is_never_passed_over(method, width):
    ivp = posed(feed, unknowns=("center", "width"))
    made = method().simulation(ivp, TIMES, sensitivities=True)
    for center in (0.3, 0.63):
        came, h = made.run(np.array([2.0, center, width])), 1e-3 * width
        assert came.states[:, 0] == pytest.approx(2 * fed(TIMES, center, width), abs=4e-6)
        by_center = (fed(TIMES, center + h, width) - fed(TIMES, center - h, width)) / h
        by_width = (fed(TIMES, center, width + h) - fed(TIMES, center, width - h)) / h
        size = 1e-5 / width
        assert came.by_unknown[:, 0, 1] == pytest.approx(by_center, rel=1e-4, abs=size)
        assert came.by_unknown[:, 0, 2] == pytest.approx(by_width, rel=1e-4, abs=size)


@every_interval_method
@pytest.mark.parametrize("width", [0.05, 1e-4])
@pytest.mark.parametrize("moving", [False, True])
def test_intervals_see_a_pulse(method, near, width, moving):
    ivp = (
        posed(feed, unknowns=("center", "width"))
        if moving
        else posed(lambda *given: feed(*given, width=width))
    )
    q = np.array([2.0, CENTER, width] if moving else [2.0])
    nodes = np.array([0.0, 0.1, 1.0])
    starts = np.array([[0.0], [2 * fed(0.1, CENTER, width)]])
    made = method.prepare(ivp, nodes, TIMES)
    shots, plain = made.run(starts, q), made.run(starts, q, derivatives=False)
    exact = 2 * fed(TIMES, CENTER, width)
    assert shots.measured[:, 0] == pytest.approx(exact, abs=near)
    assert plain.measured[:, 0] == pytest.approx(exact, abs=near)
    assert shots.measured_by_unknown[:, 0, 0] == pytest.approx(exact / 2, abs=near)


@needs_compiler
def test_a_sweep_back_sees_a_pulse_that_unknowns_move():
    ivp = posed(feed, unknowns=("center", "width"))
    made = RungeKutta().prepare(ivp, np.array([0.0, 0.1, 1.0]), TIMES)
    q, starts = np.array([2.0, CENTER, 1e-3]), np.zeros((2, 1))
    kept = made.recorded(starts, q, np.eye(4)[:, 1:])
    swept = made.swept(kept, np.array([[0.0], [0.0], [0.0], [1.0]]))
    assert swept.by_unknown[0] == pytest.approx(fed(1.0, CENTER, 1e-3, 0.1), rel=1e-5)


def train(t, x, k):
    return ca.if_else(ca.sin(t) > 0.95, k, 0) + 0 * x


def on(t):
    """How long sin was above 0.95 up to t."""
    width, first = np.pi - 2 * np.arcsin(0.95), np.arcsin(0.95)
    turns, rest = np.divmod(t, 2 * np.pi)
    return turns * width + np.clip(rest - first, 0, width)


@every_method
def test_short_switches_of_time_alone(method):
    times = np.linspace(1, 40, 7)
    ivp = posed(train, horizon=40.0)
    came = method().simulation(ivp, times, sensitivities=True).run(np.array([3.0]))
    assert came.states[:, 0] == pytest.approx(3 * on(times), rel=1e-6, abs=1e-6)
    assert came.by_unknown[:, 0, 0] == pytest.approx(on(times), rel=1e-6, abs=1e-6)


@every_method
@pytest.mark.parametrize("condition", [lambda t: t < 0.4, lambda t: t <= 0.4])
def test_a_switch_is_exact(method, condition):
    ivp = posed(lambda t, x, k: ca.if_else(condition(t), k, -x))
    times = np.array([0.2, 0.4, 1.0])
    came = method(rtol=1e-11, atol=1e-13).simulation(ivp, times, sensitivities=True)
    came = came.run(np.array([2.0]))
    exact = np.array([0.2, 0.4, 0.4 * np.exp(-0.6)])
    assert came.states[:, 0] == pytest.approx(2 * exact, rel=1e-9)
    assert came.by_unknown[:, 0, 0] == pytest.approx(exact, rel=1e-9)


def test_beyond_what_is_known_of_its_switches_a_problem_is_not_integrated():
    ivp = posed(lambda t, x, k: ca.if_else(t < 0.4, k, -x))
    with pytest.raises(ValueError, match="evaluated only up to 1, not up to 2"):
        ivp.breaks(2.0)


def test_ordinary_equations_are_not_cut():
    ivp = posed(lambda t, x, k: k * ca.sin(2 * np.pi * 10 * t) - ca.exp(-30 * t) * x)
    assert len(cut(ivp, np.array([0.0, 1.0]), np.linspace(0, 1, 11)).edges) == 1


@every_method
def test_unknowns_that_make_too_many_pulses_break_the_run_down(method):
    ivp = posed(lambda t, x, k, w: k * ca.exp(-((ca.sin(w * t) / 0.01) ** 2)), unknowns=("w",))
    came = method().simulation(ivp, TIMES, sensitivities=False).run(np.array([1.0, 1e9]))
    assert came.status is Status.INTEGRATION_BROKE
    assert "too many oscillations" in came.reason


def measuring(condition, times):
    """x' = k, then -x, of which x, then 2 x is measured."""
    ivp = posed(lambda t, x, k: ca.if_else(t < 0.4, k, -x))
    ivp = replace(ivp, measured=ca.if_else(condition(ivp.t), ivp.x, 2 * ivp.x))
    return ivp, np.array(times)


@pytest.mark.parametrize("last", [0.41, 1.0])
def test_conditions_as_factors_mean_the_same(last):
    ivp, times = measuring(lambda t: t < 0.4, [0.2, last])
    plain = ivp.without_conditions(times)
    symbols = ca.vertcat(plain.t, plain.x, plain.u, plain.q)
    parts = ca.Function("parts", [symbols], [ca.densify(ca.vertcat(plain.f, plain.measured))])
    codes = {parts.instruction_id(k) for k in range(parts.n_instructions())}
    assert not codes & {ca.OP_IF_ELSE_ZERO, ca.OP_LT, ca.OP_LE, ca.OP_NOT}
    one, other = (Automatic().simulation(p, times, sensitivities=True) for p in (ivp, plain))
    one, other = one.run(np.array([2.0])), other.run(np.array([2.0]))
    assert one.measured == pytest.approx(other.measured, rel=1e-7)
    assert one.measured[1, 0] == pytest.approx(1.6 * np.exp(0.4 - last), rel=1e-6)


def test_what_is_measured_at_a_switch_is_what_is_written():
    times = [0.2, 0.4, 1.0]
    for condition, factor in ((lambda t: t < 0.4, 2), (lambda t: t <= 0.4, 1)):
        ivp, _ = measuring(condition, times)
        came = Automatic().simulation(ivp, times, sensitivities=False).run(np.array([2.0]))
        assert came.measured[1, 0] == pytest.approx(0.8 * factor, rel=1e-7)


def test_what_switches_when_it_is_measured_has_no_factor():
    ivp, times = measuring(lambda t: t < 0.4, [0.2, 0.4])
    with pytest.raises(
        Unsupported, match=r"changes at t = 0.4, and the expression is measured at this time"
    ):
        ivp.without_conditions(times)


def test_a_quotient_of_exponentials_that_is_constant_is_followed():
    """exp(w) / exp(w) of a function w of time; intervals alone do not see that it is constant."""
    w = lambda t: 3 / (1 + t**2)  # noqa: E731
    ivp = posed(lambda t, x, k: -k * x * ca.exp(-2 * w(t)) / ca.exp(-2 * w(t)))
    came = RungeKutta().simulation(ivp, TIMES, sensitivities=False).run(np.array([1.0]))
    assert came.status is Status.CONVERGED
