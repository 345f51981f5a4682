"""Slopes of few directions straight from the equations: what Jacobians give, to rounding."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from initial_values import needs_compiler
from interval_problems import Cut, cut, fed, prepared
from repeated import statistical

from igpe.dynamics.integrators import runge_kutta_source as runge_kutta_directions
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta
from igpe.dynamics.integrators.runge_kutta_source import (
    directional,
    directions,
    model_formulas,
    with_jacobians,
    written,
)


@pytest.fixture(autouse=True)
def _written_anew():
    """Texts are kept, and these tests change how they are written."""
    yield
    written.cache_clear()


def few(ivp):
    """For how many directions no Jacobians are wanted, written anew."""
    written.cache_clear()
    slope, _ = model_formulas(ivp, ivp.q.numel())
    return written(slope).sizes["few"]


def odd():
    """What equations may have; an input that jumps, the time, and no slope without a branch."""
    one = cut(fed(), {"k": 0.7}, [0.0, 0.3, 1.0, 2.0], [0.0, 0.1, 0.5, 1.0, 1.3, 2.0])
    t, x, q, u = one.ivp.t, one.ivp.x, one.ivp.q, one.ivp.u
    slope = (
        u * ca.exp(-q / (1 + x)) - ca.fmax(x, q) ** 1.5 * ca.sqrt(0.1 + x**2) + ca.sin(t * x) / q
    )
    slope += (
        ca.if_else(u > 0.7, -(x**2) / (2 + q * u), ca.tanh(1 + x**2) ** q) - 3 * x + ca.fabs(x - 1)
    )
    return one._replace(ivp=replace(one.ivp, f=slope))


def turning(n=12):
    """x_i' = a x_(i+1) x_(i-1) - b x_i + c, the last state counting time."""
    one = cut(fed(), {"k": 0.7}, [0.0, 0.5, 1.0, 2.0], [0.0, 0.4, 1.0, 2.0])
    x, q = ca.SX.sym("x", n), ca.SX.sym("q", 3)
    rows = [q[0] * x[(i + 1) % n] * x[i - 1] - q[1] * x[i] + q[2] for i in range(n - 1)]
    ivp = replace(
        one.ivp,
        f=ca.vertcat(*rows, 1.0),
        x=x,
        q=q,
        measured=x,
        states=tuple(f"x{i}" for i in range(n)),
        unknowns=("a", "b", "c"),
        scale=np.ones(n),
        unknown_scale=np.ones(3),
    )
    starts = np.random.default_rng(0).uniform(0.5, 1.5, (3, n))
    return Cut(ivp, one.nodes, starts, np.array([0.3, 1.0, 0.5]), one.times)


HELPERS = "casadi_fmax casadi_fabs casadi_sq casadi_sign"  # that the odd equations need
CASES = {
    "odd": odd,
    "turning": turning,
    "henon_heiles": lambda: prepared("henon_heiles"),
    "calcium, stiff": lambda: prepared("calcium"),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT, statistical(Pair.BY_STIFFNESS)])
def test_they_are_those_of_jacobians(monkeypatch, case, pair):
    """With four columns, with five to eight, and with more, of which the probe is one."""
    one, method = CASES[case](), RungeKutta(1e-6, 1e-8, slack=100.0, pair=pair)
    monkeypatch.setattr(runge_kutta_directions, "_few", lambda *_: 8)
    assert few(one.ivp) == 8
    straight = one.made(method)
    monkeypatch.setattr(runge_kutta_directions, "_few", lambda *_: 0)
    assert few(one.ivp) == 0
    by_jacobians = one.made(method)
    width = one.starts.shape[1] + len(one.q)
    some = np.random.default_rng(1).normal(size=(width, 10))
    for count in (2, 4, 6, 10):
        both = (straight, by_jacobians)
        mine, known = (m.chained(one.starts, one.q, some[:, :count], probed=True) for m in both)
        assert (mine.steps == known.steps).all()
        for a, b in ((mine.ends_by, known.ends_by), (mine.measured_by, known.measured_by)):
            assert np.isfinite(b).all()
            assert a == pytest.approx(b, rel=1e-9, abs=1e-10 * np.abs(b).max())


@needs_compiler
def test_a_probe_has_the_same_bits_among_few_and_many(monkeypatch):
    monkeypatch.setattr(runge_kutta_directions, "MOST", 8)
    one = turning()
    assert few(one.ivp) == 8
    made, some = one.made(RungeKutta()), np.random.default_rng(1).normal(size=(15, 15))
    came = [made.chained(one.starts, one.q, some[:, :n], probed=True) for n in (1, 3, 5, 7, 8, 15)]
    for other in came[1:]:
        assert (other.ends == came[0].ends).all()
        assert (other.measured == came[0].measured).all()


def test_they_are_written_where_that_takes_fewer_operations():
    """Few of many states, but not where all depends on many unknowns."""
    assert few(turning().ivp) >= 8
    assert few(prepared("calcium").ivp) == 0


def test_what_cannot_be_rewritten_is_left_to_jacobians(monkeypatch):
    """Lines too many, helpers that are not there, and what is not linear."""
    ivp = odd().ivp
    plain, _ = with_jacobians(model_formulas(ivp, ivp.q.numel())[0], "f", "x", "q")
    along = directional(plain[0])
    none = 0, []
    monkeypatch.setattr(runge_kutta_directions, "_few", lambda *_: 8)
    assert directions(along, plain[1], HELPERS) != none
    assert directions(along, plain[1], "") == none
    given = along.sx_in()
    for bent in (given[4] ** 2, ca.sin(given[4]), given[1] / given[4], given[4] * given[5]):
        wrong = ca.Function("igpe_along", given, [given[1], bent])
        assert directions(wrong, plain[1], "casadi_sq") == none
    monkeypatch.setattr(runge_kutta_directions, "LONGEST", 3)
    assert directions(along, plain[1], HELPERS) == none
