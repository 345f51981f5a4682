"""The likelihood with its gradient: against differences, and what is kept between calls."""

import threading

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from zoo import CASES

import igpe
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.likelihood import likelihood_gradient, negative_log_likelihood
from igpe.dynamics.shooting.residuals import MOST_KEPT, Residuals, runs_of
from igpe.equations.compiled import compiled

TIMES = np.linspace(0.0, 4.0, 9)
AT = {"k": 0.8, "scale": 1.4, "offset": 0.3, "sd": 0.2, "A(t0)": 2.5}


def chain(times):
    """A becomes B; B is measured on a scale with an offset that move nothing."""
    m = over_time(times, "A B", **dict.fromkeys(("k", "scale", "offset", "sd"), (1e-2, 1e1)))
    m.seen = pyo.Expression(m.t, rule=lambda m, t: m.scale * m.B[t] + m.offset)
    m.spread = pyo.Expression(m.t, rule=lambda m, t: m.sd * (0.1 + m.scale * m.B[t]))
    m.ra = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    m.rb = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t] - 0.2 * m.B[t])
    return m


def problem(**settings):
    """Errors that are estimated, that follow the prediction, and that are numbers."""
    a, random = 2.0 * np.exp(-0.6 * TIMES), np.random.default_rng(0)
    table = pd.DataFrame({"time": TIMES, "A": a, "seen": 2.4 - a, "B": 2.0 - a})
    table[["A", "seen", "B"]] += 0.1 * random.standard_normal((len(TIMES), 3))
    sigma = {"A": igpe.Noise(0.05, 0.1), "seen": igpe.EstimatedSigma("spread"), "B": 0.2}
    start = {"A": igpe.Unknown(0.0, 5.0), "B": 0.0}
    run = igpe.Experiment(table, start=start, sigma=sigma)
    priors = {
        "k": igpe.losses.NormalPrior(1.0, 0.3),
        "scale": igpe.losses.Prior("laplace", (1.0, 0.2)),
    }
    return igpe.Problem(
        chain,
        parameters=["k", "scale", "offset", "sd"],
        experiments=run,
        priors=priors,
        **settings,
    )


def slopes(posed, values, **settings):
    """Differences of the value alone."""
    found = {}
    for name, value in values.items():
        h = 1e-4 * value
        low, high = (
            negative_log_likelihood(posed, {**values, name: value + d}, **settings) for d in (-h, h)
        )
        found[name] = (high - low) / (2 * h)
    return found


@pytest.mark.parametrize("priors", [False, True])
@pytest.mark.parametrize("logarithmic", [(), ("k", "scale", "sd")])
@pytest.mark.parametrize(
    "integrator", [Automatic(), Sundials(1e-10, 1e-12)], ids=["compiled", "Sundials"]
)
def test_the_gradient_is_that_of_the_value(priors, logarithmic, integrator):
    posed, settings = problem(logarithmic=logarithmic), {"priors": priors, "integrator": integrator}
    at = likelihood_gradient(posed, AT, **settings)
    assert at.value == pytest.approx(negative_log_likelihood(posed, AT, **settings), rel=1e-7)
    expected = slopes(posed, AT, **settings)
    assert list(at.gradient) == list(posed.box.names)
    for name, slope in expected.items():
        assert at.gradient[name] == pytest.approx(slope, rel=2e-5, abs=1e-5)


def test_unknowns_that_are_held_have_no_entry():
    posed = problem().fixing({"offset": 0.3, "A(t0)": 2.5})
    left = {n: v for n, v in AT.items() if n not in posed.fixed}
    at, free = likelihood_gradient(posed, left), likelihood_gradient(problem(), AT)
    assert set(at.gradient) == {"k", "scale", "sd"}
    for name, slope in at.gradient.items():
        assert slope == pytest.approx(free.gradient[name], rel=1e-5)


def test_where_the_value_is_infinite_there_is_no_gradient():
    at = likelihood_gradient(problem(), {**AT, "sd": -1.0})
    assert at.value == np.inf
    assert np.isnan(list(at.gradient.values())).all()


def test_deviations_that_nobody_knows_are_refused():
    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "A": np.exp(-TIMES)}), start={"A": 1.0, "B": 0}
    )
    posed = igpe.Problem(chain, parameters=["k"], experiments=run)
    with pytest.raises(ProblemError, match="needs standard deviations"):
        likelihood_gradient(posed, {"k": 1.0})


def test_what_is_kept_changes_no_bit():
    """Whatever was computed before, by whichever thread; and of problems made of it."""
    posed, other = problem(), {**AT, "k": 0.3, "A(t0)": 4.0}
    first, elsewhere = likelihood_gradient(posed, AT), likelihood_gradient(posed, other)
    assert first != elsewhere
    assert likelihood_gradient(posed, AT) == first
    assert likelihood_gradient(problem(), AT) == first
    answers = []
    thread = threading.Thread(target=lambda: answers.append(likelihood_gradient(posed, AT)))
    thread.start()
    thread.join()
    assert answers == [first]
    doubled = posed.weighted([2 * e.measurements.sigma for e in posed.experiments])
    assert likelihood_gradient(doubled, AT).value != first.value


def test_nothing_is_made_ready_twice_and_little_is_kept():
    posed = problem()
    runs = runs_of(posed, Automatic())
    assert runs_of(posed, Automatic()) is runs
    assert Residuals(posed, Automatic()).runs is runs
    for k in range(2 * MOST_KEPT):
        runs_of(posed, Automatic(max_steps=1_000 + k))
    assert len(compiled(posed).kept) == MOST_KEPT
    assert runs_of(posed, Automatic()) is not runs


def test_a_slow_way_is_said(monkeypatch):
    """Equations that are too long to compile: the same estimate, and a sentence."""
    case = CASES["consecutive"]
    quick = igpe.SingleShooting().estimate(case.problem(0.01), case.near)
    monkeypatch.setattr("igpe.dynamics.integrators.runge_kutta.LONGEST", 3)
    slow = igpe.SingleShooting().estimate(case.problem(0.01), case.near)
    assert slow.parameters == pytest.approx(quick.parameters, rel=1e-3)
    said = [note for note in slow.notes if "without compiling them" in note]
    assert len(said) == 1
    assert "too long to compile" in said[0]
    assert not any("without compiling them" in note for note in quick.notes)
