"""Events that follow one another, and jumps of the objective where an event passes a measurement.

Everything is compared with closed forms.
"""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import jumps_of

LATE = np.linspace(0.5, 12.0, 24)
RISE = 3.841458820694124  # of chi squared, for one unknown


def growing(times):
    m = over_time(times, "h", k={"bounds": (0.05, 2)}, d={"bounds": (0.01, 3)})
    m.of_h = pyo.Constraint(m.t, rule=lambda m, t: m.dh[t] == m.k * m.h[t])
    return m


def emptied():
    """What grows is emptied by d / 2 whenever it comes to 1."""
    event = igpe.Event(when=lambda m, t: m.h[t] >= 1.0, add={"h": lambda m, t: -0.5 * m.d})
    table = pd.DataFrame({"time": LATE, "h": 0.0})
    run = igpe.Experiment(table, start={"h": 0.2}, start_time=0.0, sigma=0.02, events=[event])
    return igpe.Problem(growing, parameters=["k", "d"], experiments=run)


@pytest.mark.parametrize(("k", "d"), [(2.0, 0.5), (1.0, 0.7)])
def test_how_a_state_would_grow_without_an_event_does_not_count(k, d):
    """To 1e9 times the threshold: beside that, crossing it looked like touching it."""
    simulated = igpe.simulate(emptied(), {"k": k, "d": d}, LATE)["h"]
    first, rest = np.log(5.0) / k, 1 - d / 2
    since = np.where(first < LATE, np.mod(LATE - first, -np.log(rest) / k), LATE)
    expected = np.where(first < LATE, rest, 0.2) * np.exp(k * since)
    assert simulated.to_numpy() == pytest.approx(expected, rel=1e-5)


def test_integrations_with_hopelessly_many_events_are_given_up_as_those_of_many_steps():
    residuals, many, few = Residuals(emptied(), Automatic()), [2.0, 0.1], [0.5, 1.2]
    assert residuals(np.array(many)) is not None
    assert residuals.limit_steps(np.array(few))
    assert residuals(np.array(many)) is None
    assert residuals.broken is not None
    assert "Too many events" in residuals.broken.reason
    assert residuals(np.array(few)) is not None
    residuals.most_steps = None
    with allowance(10_000):
        assert residuals(np.array(many)) is None


TIMES, TRUTH = np.linspace(0.0, 12.0, 25), {"mu": 0.35, "lag": 4.0}


def decaying(times):
    m = over_time(times, "X", mu={"bounds": (0.01, 2)}, lag={"bounds": (0, 12)})
    m.of_x = pyo.Constraint(m.t, rule=lambda m, t: m.dX[t] == -m.mu * m.X[t])
    return m


def closed_form(mu, lag):
    """A measurement at the time of the dose is made before it."""
    given = np.where(lag < TIMES, np.exp(-mu * np.maximum(TIMES - lag, 0.0)), 0.0)
    return 0.5 * np.exp(-mu * TIMES) + given


def dosed(seed):
    noise = 0.02 * np.random.default_rng(seed).standard_normal(len(TIMES))
    table = pd.DataFrame({"time": TIMES, "X": closed_form(**TRUTH) + noise})
    dose = igpe.Event(at="lag", add={"X": 1.0})
    run = igpe.Experiment(table, start={"X": 0.5}, events=[dose], sigma=0.02)
    return igpe.Problem(decaying, parameters=["mu", "lag"], experiments=run), table["X"].to_numpy()


def likelihood(measured):
    """Values of mu and lag, and chi squared of all of their pairs."""
    mu, lag = np.linspace(0.32, 0.38, 601), np.union1d(np.linspace(3.8, 4.2, 401), [4.0])
    every = [[np.sum(((measured - closed_form(a, b)) / 0.02) ** 2) for b in lag] for a in mu]
    return mu, lag, np.array(every)


@pytest.mark.parametrize("seed", [0, 1])  # the optimum is at the jump, and beside it
def test_intervals_end_where_the_objective_jumps(seed):
    problem, measured = dosed(seed)
    mu, lag, cost = likelihood(measured)
    i, j = np.unravel_index(cost.argmin(), cost.shape)
    profiles = igpe.profile(problem, {"mu": mu[i], "lag": lag[j]})
    allowed = cost <= cost.min() + RISE
    for name, values, kept in (("mu", mu, allowed.any(1)), ("lag", lag, allowed.any(0))):
        one = profiles[name]
        assert one.determined
        ends = values[kept][[0, -1]]
        assert [one.lower, one.upper] == pytest.approx(ends, abs=1.5 * (values[1] - values[0]))
    assert profiles["lag"].lower == pytest.approx(4.0, abs=1e-5)


@pytest.mark.slow
def test_an_estimate_at_a_jump_is_judged_as_one_on_a_bound():
    problem, _ = dosed(0)
    result = igpe.estimate(problem, certify=False)
    assert result.verdict["fit"].startswith("good")
    assert result.verdict["parameters"] == "both determined"
    assert "for smaller values of lag the sum of squares jumps up" in str(result).replace("\n", " ")
    assert jumps_of(problem, np.array([0.35, 4.2])) == []
