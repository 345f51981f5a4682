"""Sweeps back through recorded steps: the gradients of forward derivatives, to rounding."""

from dataclasses import replace

import numpy as np
import pytest
from initial_values import needs_compiler
from interval_problems import LANES, cut, fed, prepared

from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta

pytestmark = needs_compiler
LANES_BACK = ("explicit", "implicit", "by stiffness")


def of_jumps():
    """An input that jumps inside an interval, at a node and at a time."""
    return cut(fed(), {"k": 0.7}, [0.0, 0.3, 1.0, 2.0], [0.0, 0.1, 0.5, 1.0, 1.3, 2.0])


CASES = {
    "henon_heiles": lambda: prepared("henon_heiles"),
    "calcium, stiff": lambda: prepared("calcium"),
    "inputs that jump": of_jumps,
}


def apart(one):
    """Starts that do not meet."""
    noise = np.random.default_rng(0).normal(size=one.starts.shape)
    return one.starts * (1 + 0.01 * noise)


def gradients(one, made, weights):
    """The gradient by start and unknowns, by all directions forwards and by one sweep back."""
    starts, n = apart(one), one.starts.shape[1] + len(one.q)
    none = np.zeros_like(starts)
    forwards = made.chained(starts, one.q, np.eye(n), gaps=none, probed=True)
    recorded = made.recorded(starts, one.q, np.zeros((n, 1)))
    swept = made.swept(recorded, weights)
    assert (recorded.along.ends == forwards.ends).all()  # the very same steps
    assert (recorded.along.steps == forwards.steps).all()
    back = np.concatenate([swept.by_node[0], swept.by_unknown])
    return np.einsum("th,thd->d", weights, forwards.measured_by), back, forwards.steps


def some_weights(one):
    shape = (len(one.times), one.ivp.measured.numel())
    return np.random.default_rng(1).normal(size=shape)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lane", LANES_BACK)
def test_one_sweep_gives_what_all_directions_give(case, lane):
    one = CASES[case]()
    made = one.made(LANES[lane](1e-6, 1e-8, 100.0))
    forwards, back, steps = gradients(one, made, some_weights(one))
    assert back == pytest.approx(forwards, abs=1e-10 * np.abs(forwards).max())
    if case == "calcium, stiff" and lane == "by stiffness":
        assert (steps.sum(axis=0) > 0).all()  # of both pairs


def test_the_gradient_is_that_of_differences():
    """Each unknown and start moved, the later intervals beginning where the ones before end."""
    one = prepared("henon_heiles")
    made, weights = one.made(RungeKutta(1e-11, 1e-13)), some_weights(one)

    def worth(begin, q):
        starts = np.tile(begin, (len(one.starts), 1))
        for k in range(1, len(starts)):
            starts[k] = made.run(starts, q, derivatives=False).ends[k - 1]
        return starts, float(np.sum(weights * made.run(starts, q, derivatives=False).measured))

    begin, n_x = one.starts[0], one.starts.shape[1]
    starts, _ = worth(begin, one.q)
    recorded = made.recorded(starts, one.q, np.zeros((n_x + len(one.q), 1)))
    swept = made.swept(recorded, weights)
    found, both = [], np.concatenate([begin, one.q])
    for i in range(len(both)):
        step = 1e-4 * np.eye(len(both))[i]
        ends = [worth(v[:n_x], v[n_x:])[1] for v in (both + step, both - step)]
        found.append((ends[0] - ends[1]) / 2e-4)
    back = np.concatenate([swept.by_node[0], swept.by_unknown])
    assert back == pytest.approx(np.array(found), rel=1e-5, abs=1e-5 * np.abs(back).max())


def test_each_node_has_its_own_derivative():
    """by_node[k] is the derivative by where interval k begins, the later ones moving with it."""
    one = of_jumps()
    made, weights = one.made(RungeKutta(pair=Pair.EXPLICIT)), some_weights(one)
    last = np.where(one.times[:, None] < one.nodes[-2], 0.0, weights)  # told in the last interval
    n = one.starts.shape[1] + len(one.q)
    recorded = made.recorded(apart(one), one.q, np.zeros((n, 1)))
    swept = made.swept(recorded, last)
    each = np.tile(np.eye(n), (len(one.starts), 1, 1))
    along = made._run(apart(one), one.q, made._columns(each, one.q, True))
    forwards = np.einsum("th,thd->d", last, along.measured_by)[: one.starts.shape[1]]
    assert swept.by_node[-1] == pytest.approx(forwards, rel=1e-12)
    assert swept.by_node[-2] == pytest.approx(forwards @ along.ends_by[-2, :, :1], rel=1e-12)


def test_a_record_that_is_too_short_is_made_longer():
    one, method = prepared("henon_heiles"), RungeKutta()
    long, short = one.made(method), one.made(method)
    short._room[0] = 1
    weights = some_weights(one)
    assert (gradients(one, short, weights)[1] == gradients(one, long, weights)[1]).all()
    assert short._room[0] > 1


def test_what_counts_nothing_may_have_no_derivative():
    """The root of x has none at x = 0."""
    one = of_jumps()
    ivp = replace(one.ivp, measured=one.ivp.x**0.5)
    one = one._replace(ivp=ivp, starts=np.array([[0.0], [0.5], [0.8]]))
    made, weights = one.made(RungeKutta()), np.ones((len(one.times), 1))
    recorded = made.recorded(one.starts, one.q, np.zeros((2, 1)))
    assert not np.isfinite(made.swept(recorded, weights).by_node[0]).all()
    weights[0] = 0.0
    assert np.isfinite(made.swept(recorded, weights).by_node).all()


def test_weights_of_another_shape_are_refused():
    one = of_jumps()
    made = one.made(RungeKutta())
    recorded = made.recorded(one.starts, one.q, np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"Expected weights of shape \(6, 2\), got \(2, 6\)"):
        made.swept(recorded, np.zeros((2, 6)))
