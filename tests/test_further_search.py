"""A fit that the data refute is searched for again, and so is one on which few searches agree."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from scipy.integrate import solve_ivp

import igpe
import igpe.pipeline
from igpe.core.estimates import Estimate, agreeing
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.refine import Refined, refine
from igpe.dynamics.shooting.residuals import Residuals
from igpe.equations.compiled import compiled
from igpe.estimation import equally_good, further_searches
from igpe.estimation.further_searches import (
    SCATTERED,
    few_agree,
    with_evolution,
    with_incremental_shooting,
    with_more_incremental_shooting,
)
from igpe.estimation.settings import BY_HORIZONS, Steps

pytestmark = pytest.mark.thorough

TIMES = np.linspace(0.1, 4.0, 30)


swinging = ode({"x": lambda m, t: m.a * m.w * pyo.cos(m.w * t)}, a=(0.1, 5), w=(0.01, 20))
"""x = a sin(w t): many local optima in w."""


def problem(values):
    noisy = values + 0.02 * np.random.default_rng(4).standard_normal(30)
    table = pd.DataFrame({"time": TIMES, "x": noisy})
    run = igpe.Experiment(table, start={"x": 0.0}, start_time=0.0, sigma=0.02)
    return igpe.Problem(swinging, parameters=["a", "w"], experiments=run)


@pytest.fixture
def stuck(monkeypatch):
    """The searches before end at a poor local optimum."""

    def poor(steps, settings):
        residuals = Residuals(steps.problem, settings.integrator)
        start = Estimate({"a": 0.3, "w": 1.0}, np.inf, Status.CONVERGED, "a poor search")
        best = refine(steps.problem, residuals, start)
        paths = [steps.paths[0]._replace(corrected=best.estimate)]
        return steps._replace(best=best, paths=paths, others=())

    monkeypatch.setattr(igpe.pipeline, "with_other_optima", poor)


@pytest.mark.slow
def test_the_right_optimum_is_found(stuck):
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert result.parameters == pytest.approx({"a": 1.5, "w": 7.0}, rel=0.02)
    assert result.adequacy.verdict == "adequate"
    assert "further search" in result.seconds


@pytest.mark.slow
def test_a_wrong_model_gets_a_note():
    result = igpe.estimate(problem(np.sqrt(TIMES)))
    assert result.adequacy.lacks
    assert any("found no better fit. The model may be wrong." in n for n in result.notes)


def test_a_fit_that_is_not_refuted_is_left_alone():
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert "further search" not in result.seconds


@pytest.fixture
def lost(monkeypatch):
    """The searches before end where the model cannot be integrated."""

    def nowhere(steps, settings):
        failed = Estimate({"a": 0.3, "w": 1.0}, np.inf, Status.ITERATION_LIMIT, "a poor search")
        paths = [steps.paths[0]._replace(corrected=failed)]
        return steps._replace(best=Refined(failed, None), paths=paths, others=())

    monkeypatch.setattr(igpe.pipeline, "with_other_optima", nowhere)


@pytest.mark.slow
def test_a_fit_that_cannot_be_integrated_is_searched_for_again(lost):
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert result.parameters == pytest.approx({"a": 1.5, "w": 7.0}, rel=0.02)


def test_of_a_fit_that_cannot_be_integrated_no_errors_are_known(lost, monkeypatch):
    monkeypatch.setattr(igpe.pipeline, "LADDER", ())
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    assert [p.remark for p in result.estimates] == ["", ""]
    assert all(np.isinf(p.upper) for p in result.estimates)
    words = "errors unknown: the model could not be integrated at the estimate"
    assert result.verdict["parameters"] == words
    assert "degrees of freedom" not in str(result.details)


def test_what_cannot_be_integrated_explains_nothing():
    result = igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)))
    lost = result.points.assign(fitted=np.nan, residual=np.nan)
    assert np.isnan(replace(result, points=lost).r_squared()["x"])
    assert "R²" not in replace(result, points=lost).verdict["fit"]


@pytest.fixture(scope="module")
def posed():
    """(steps, settings) as they are when incremental shooting may begin."""
    seen = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(igpe.pipeline, "few_agree", lambda *given: seen.append(given))
        igpe.estimate(problem(1.5 * np.sin(7.0 * TIMES)), certify=False)
    return seen[0]


def ended_at(posed, *ends):
    """The steps with candidates that ended at such optima; the first is the best."""
    steps, settings = posed
    residuals = Residuals(steps.problem, settings.integrator)
    starts = [Estimate(values, np.inf, Status.CONVERGED, "a search") for values in ends]
    optima = [refine(steps.problem, residuals, start) for start in starts]
    paths = [steps.paths[0]._replace(corrected=one.estimate) for one in optima]
    return steps._replace(best=optima[0], paths=paths, others=())


RIGHT, POOR, POORER = {"a": 1.5, "w": 7.0}, {"a": 0.3, "w": 1.0}, {"a": 0.3, "w": 15.0}


def test_candidates_that_disagree_are_followed_by_incremental_shooting(posed):
    steps = ended_at(posed, POOR, POORER, POORER)
    assert few_agree(steps, posed[1])
    after = with_incremental_shooting(steps, posed[1])
    assert after.best.estimate.parameters == pytest.approx(RIGHT, rel=0.02)
    ends = [path.corrected.objective for path in after.paths]
    assert agreeing(ends) >= 3
    assert len(ends) < len(steps.paths) + SCATTERED


def test_candidates_that_agree_are_enough(posed):
    assert not few_agree(ended_at(posed, RIGHT, RIGHT, POOR, RIGHT), posed[1])
    assert few_agree(ended_at(posed, RIGHT, RIGHT, POOR), posed[1])


def test_of_one_candidate_the_starts_of_step_4_count(posed):
    steps = ended_at(posed, RIGHT)
    end = steps.best.estimate.objective
    for others, is_few in [((), True), ((end, 1e3, 1e4), True), ((1e3, end, end), False)]:
        complete = replace(steps.paths[0].complete, reached=(*others, end))
        (path,) = steps.paths
        alone = steps._replace(paths=[path._replace(complete=complete)])
        assert few_agree(alone, posed[1]) == is_few


def test_incremental_shooting_that_is_no_better_adds_candidates_only(posed, monkeypatch):
    steps = ended_at(posed, RIGHT, POOR)
    monkeypatch.setattr(further_searches, "SCATTERED", 2)
    after = with_incremental_shooting(steps, posed[1])
    assert after.best is steps.best
    assert 2 < len(after.paths) <= 4


def test_starts_that_end_at_the_same_poor_optimum_are_not_enough_for_a_refuted_fit(
    posed, monkeypatch
):
    """They are three, the estimate's own not counted; a refuted fit tries all starts."""
    steps, settings = ended_at(posed, POOR, POORER), posed[1]
    tried = []

    class Poor:
        residuals, work = Residuals(steps.problem, settings.integrator), 0.0

        def estimate(self, start):
            tried.append(start)
            return steps.best.estimate

    monkeypatch.setattr(further_searches.IncrementalShooting, "prepare", lambda *_: Poor())
    with_incremental_shooting(steps, settings)
    assert len(tried) == 3
    with_more_incremental_shooting(steps, settings)
    assert len(tried) == 3 + SCATTERED
    assert tried[3] not in tried[:3]


def test_incremental_shooting_of_much_work_ends(posed, monkeypatch):
    steps = ended_at(posed, POOR, POORER, POORER)
    monkeypatch.setattr(further_searches, "HORIZONS", 1)
    after = with_incremental_shooting(steps, posed[1])
    assert (after.best, after.paths) == (steps.best, steps.paths)


passing_through = ode(
    {"a": lambda m, t: -m.k * m.a[t], "b": lambda m, t: m.k * m.a[t] - m.l * m.b[t]},
    k=(0.01, 10),
    l=(0.01, 10),
)
"""a -> b -> : with b alone measured algebra reaches nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(("logarithmic", "is_repeated"), [(["k", "l"], False), (["k"], True)])
def test_a_search_from_scattered_starts_is_not_repeated(logarithmic, is_repeated):
    """But in logarithms, where it was not in all of them."""
    table = pd.DataFrame({"time": TIMES, "b": 0.3 + 0.2 * np.sin(9 * TIMES)})
    run = igpe.Experiment(table, start={"a": 1.0, "b": 0.0}, start_time=0.0, sigma=0.02)
    wrong = igpe.Problem(
        passing_through, parameters=["k", "l"], experiments=run, logarithmic=logarithmic
    )
    search = igpe.search.IteratedSearch(starts=8, most=0)
    result = igpe.estimate(wrong, igpe.Settings(complement=search))
    assert result.adequacy.lacks
    assert any("searched again for all unknowns" in n for n in result.notes) == is_repeated
    assert any("searched for all unknowns from scattered" in n for n in result.notes) != is_repeated


def lorenz(times):
    """Lorenz (1963): chaotic, so trajectories from most start values forget them."""
    m = over_time(times, "x y z")
    m.s, m.r, m.b = (pyo.Var(bounds=(0, high)) for high in (50, 100, 20))
    m.go_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.s * (m.y[t] - m.x[t]))
    m.go_y = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == m.x[t] * (m.r - m.z[t]) - m.y[t])
    m.go_z = pyo.Constraint(m.t, rule=lambda m, t: m.dz[t] == m.x[t] * m.y[t] - m.b * m.z[t])
    return m


@pytest.mark.slow
def test_a_chaotic_system_is_followed_by_multiple_shooting():
    times = np.linspace(0, 5, 101)
    exact = solve_ivp(
        lambda t, v: [10 * (v[1] - v[0]), v[0] * (28 - v[2]) - v[1], v[0] * v[1] - 8 / 3 * v[2]],
        (0, 5), [1.0, 1.0, 20.0], t_eval=times, rtol=1e-10, atol=1e-10,
    ).y[[0, 2]]  # fmt: skip
    noisy = exact + 0.5 * np.random.default_rng(5).standard_normal(exact.shape)
    start = {
        "x": igpe.Unknown(-20, 20),
        "y": igpe.Unknown(-30, 30),
        "z": igpe.Unknown(0, 50),
    }
    table = pd.DataFrame({"time": times, "x": noisy[0], "z": noisy[1]})
    run = igpe.Experiment(table, start=start, sigma=0.5)
    result = igpe.estimate(igpe.Problem(lorenz, parameters=["s", "r", "b"], experiments=run))
    assert not result.adequacy.lacks
    assert [result.parameters[n] for n in "srb"] == pytest.approx([10, 28, 8 / 3], rel=0.05)
    assert not any("scattered starts" in note for note in result.notes)


forced = ode(
    {
        "x": lambda m, t: -m.a * m.x[t] + m.b * pyo.sin(m.p * t) ** 2,
        "y": lambda m, t: m.x[t] - m.a * m.y[t] / 3,
    },
    a=(0.05, 20),
    b=(0.05, 40),
    p=(0.2, 80),
)
"""Driven by sin(p t)^2, of which the first searches find aliases."""


@pytest.mark.slow
def test_weights_are_those_of_the_optimum_that_a_later_search_found():
    times = np.linspace(0.4, 6, 15)
    start = {"start": {"x": 1.0, "y": 0.0}, "start_time": 0.0}
    blank = igpe.Experiment(pd.DataFrame({"time": times, "x": 0.0, "y": 0.0}), **start, sigma=1.0)
    truth = {"a": 0.36, "b": 1.474, "p": 4.404}
    posed = igpe.Problem(forced, parameters=list(truth), experiments=blank)
    exact = igpe.simulate(posed, truth, times)[["x", "y"]].to_numpy()
    noisy = exact * (1 + 0.02 * np.random.default_rng(3).standard_normal((15, 2)))
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "x": noisy[:, 0], "y": noisy[:, 1]}), **start
    )
    problem = igpe.Problem(forced, parameters=list(truth), experiments=run)
    result = igpe.estimate(problem, certify=False)
    assert result.candidates[0].origin == BY_HORIZONS  # no candidate of step 3
    left = result.points.assign(left=result.points["fitted"] - result.points["measured"])
    sizes = left.groupby("name")["left"].apply(lambda r: float(np.sqrt(np.mean(r**2))))
    ratio = result.relative_sigma["y"] / result.relative_sigma["x"]
    assert ratio == pytest.approx(sizes["y"] / sizes["x"], rel=0.01)
    assert sum(c.objective == result.objective for c in result.candidates) > 1  # they agree still


def test_ctrl_c_while_weights_are_computed_anew_loses_no_optimum(monkeypatch):
    """The result says that its weights may be those of another optimum."""

    def interrupted(*_):
        raise KeyboardInterrupt

    posed = problem(np.sin(TIMES))
    best = Refined(Estimate({"a": 1.0, "w": 2.0}, 1.0, Status.CONVERGED, ""), None)
    steps = Steps(posed, (), None, None, (), best, {}, given=posed)
    monkeypatch.setattr(equally_good, "_with_weights_of_best", interrupted)
    kept = equally_good.with_own_weights(steps, igpe.Settings())
    assert kept.best.estimate is best.estimate
    assert kept.best.notes == (equally_good.WEIGHTS_INTERRUPTED,)


decaying = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0.01, 10), low=(0.01, 2), lag=(0, 1))
"""What events refill, each at a time that an unknown moves, or that none does."""


def at_level(m, t):
    return m.x[t] <= m.low


EVENTS = {
    "a level": igpe.Event(when=at_level, add={"x": 2.0}),
    "a lag": igpe.Event(at=lambda m, t: 1 + m.lag, add={"x": 2.0}),
    "known": igpe.Event(at=1.0, add={"x": 2.0}),
}


def refilled(event):
    """Its optimum, and what is measured there with small errors."""
    times, right = np.linspace(0.4, 8.0, 20), {"k": 0.9, "low": 0.55, "lag": 0.3}
    given = {"start": {"x": 2.0}, "start_time": 0.0, "sigma": 0.02, "events": [EVENTS[event]]}

    def posed(values):
        table = pd.DataFrame({"time": times, "x": values})
        experiment = igpe.Experiment(table, **given)
        return igpe.Problem(decaying, parameters=["k", "low", "lag"], experiments=experiment)

    ivp = compiled(posed(np.ones(20))).initial_value_problem(0, switching=True)
    q = np.array([right[name] for name in ivp.unknowns])
    exact = Automatic().prepare(ivp, np.array([0.0, 8.0]), times).from_start(q).measured[:, 0]
    return posed(exact + 0.02 * np.random.default_rng(0).standard_normal(20))


@pytest.mark.parametrize(
    ("event", "expected"), [("a level", True), ("a lag", True), ("known", False)]
)
def test_evolution_searches_where_unknowns_move_jumps(event, expected):
    assert further_searches._jumps(refilled(event)) is expected


def test_evolution_passes_the_jumps_of_the_sum_of_squares(posed):
    steps = posed[0]._replace(problem=refilled("a level").fixing({"lag": 0.3}))
    poor = ended_at((steps, posed[1]), {"k": 0.3, "low": 1.5})
    assert poor.best.estimate.objective > 1000
    after, note = with_evolution(poor, posed[1])
    assert note == ""
    assert after.best.estimate.parameters == pytest.approx({"k": 0.9, "low": 0.55}, rel=0.05)
    assert after.best.estimate.objective < 40
