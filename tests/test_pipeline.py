"""The five steps as a whole: what is told, kept, refused and interrupted."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import row
from zoo import CASES

import igpe
from igpe.dynamics.collocation import collocation
from igpe.dynamics.search import complement as step_4
from igpe.dynamics.search.complement import complement

LINEAR = CASES["consecutive"]


def _slope(m, i, t):
    """The six species of Michalik et al. (2009, IGPE), eqs. 6 to 11."""
    rate = m.k1 * m.x[1, t] * m.x[2, t] if i <= 3 else m.k2 * m.x[4, t] * m.x[5, t]
    return rate if i in (3, 6) else -rate


two_reactions = row(range(1, 7), _slope, k1=(0, 10), k2=(0, 10))


def six_species():
    times = np.linspace(0.2, 4.0, 20)
    data = pd.DataFrame({"time": times, "x[1]": 1 / (1 + 0.8 * times)})
    start = {f"x[{i}]": 1.0 if i in (1, 2, 4, 5) else 0.0 for i in range(1, 7)}
    run = igpe.Experiment(data, start=start)
    return igpe.Problem(two_reactions, parameters=["k1", "k2"], experiments=run)


def test_models_that_the_user_keeps_are_left_as_they_were():
    made = []

    def keeping(times):
        made.append(LINEAR.builder(times))
        return made[-1]

    def seen():
        every = [v for m in made for v in m.component_data_objects(pyo.Var)]
        return [(v.name, v.value, v.fixed, v.bounds) for v in every]

    run = igpe.Experiment(LINEAR.data(0.01), start=LINEAR.start)
    problem = igpe.Problem(keeping, parameters=list(LINEAR.truth), experiments=run)
    before = seen()
    igpe.estimate(problem)
    assert seen()[: len(before)] == before


def test_what_nothing_measured_depends_on_is_held_and_said():
    result = igpe.estimate(six_species())
    assert result.parameters["k1"] == pytest.approx(0.8, rel=1e-5)
    held = next(p for p in result.estimates if p.name == "k2")
    assert held.remark == "no measured quantity depends on it"
    assert any("k2 not identifiable" in note for note in result.notes)
    assert "k2" in str(result)


def test_nothing_at_all_to_estimate_is_refused_with_the_reason():
    problem = six_species().fixing({"k1": 0.8})
    with pytest.raises(igpe.errors.EstimationFailed, match=r"Measuring x\[4\], x\[5\] or x\[6\]"):
        igpe.estimate(problem)


def test_progress_is_told_step_by_step():
    told: list[str] = []
    igpe.estimate(LINEAR.problem(), progress=told.append)
    assert [line[:6] for line in told[:5]] == [f"Step {i}" for i in range(1, 6)]


def test_candidates_are_listed_best_first():
    result = igpe.estimate(LINEAR.problem(0.02, 1))
    costs = [c.objective for c in result.candidates]
    assert costs[0] == pytest.approx(min(costs), rel=1e-6)  # refined off the mesh, the others not
    assert costs[1:] == sorted(costs[1:])
    assert len({c.origin for c in result.candidates}) == len(costs) >= 3


def test_a_problem_with_a_boundary_condition_is_kept_by_collocation():
    case = LINEAR

    def model(times):
        m = case.builder(times)
        m.above = pyo.Constraint(expr=m.component(case.measured[0])[m.t.last()] >= 0.0)
        return m

    plain = case.problem()
    problem = igpe.Problem(model, parameters=list(case.truth), experiments=list(plain.experiments))
    assert igpe.estimate(problem).parameters == pytest.approx(case.truth, rel=1e-4)


def test_unbounded_unknowns_of_step_4_are_refused():
    plain = six_species()
    problem = igpe.Problem(
        two_reactions,
        parameters={"k1": (0, np.inf), "k2": (0, 1)},
        experiments=list(plain.experiments),
    )
    with pytest.raises(igpe.errors.ProblemError, match="finite bounds"):
        igpe.estimate(problem)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [igpe.losses.L1(), igpe.losses.Huber()])
@pytest.mark.parametrize("sigma", [0.02, "equal"])
def test_robust_losses_bear_an_outlier(loss, sigma):
    """The optimum is that of multiple shooting, which minimises the same loss in another way."""
    if sigma == "equal" and isinstance(loss, igpe.losses.Huber):
        loss = igpe.losses.Huber(0.03)  # in the data's unit
    table = LINEAR.data(0.02, 1)
    table.loc[len(table) // 2, LINEAR.measured[0]] += 1.0
    start = {n: float(v) for n, v in LINEAR.start.items()}
    run = igpe.Experiment(table, start=start, start_time=0.0, sigma=sigma)
    pose = partial(igpe.Problem, LINEAR.builder, parameters=list(LINEAR.truth), experiments=run)
    result = igpe.estimate(pose(loss=loss))
    other = igpe.MultipleShooting().estimate(pose(loss=loss), result.parameters)
    assert result.objective == pytest.approx(other.objective, rel=1e-3)
    off = {n: abs(result.parameters[n] - v) for n, v in LINEAR.truth.items()}
    squares = igpe.estimate(pose()).parameters
    assert max(off.values()) < max(abs(squares[n] - v) for n, v in LINEAR.truth.items())
    for p in result.estimates:
        assert off[p.name] < 4 * p.standard_error < 0.4 * abs(p.value)
    text = str(result.details)
    assert ("absolute residuals" if isinstance(loss, igpe.losses.L1) else "Huber's loss") in text
    assert "um of squares" not in text.split("Step 3:", maxsplit=1)[0]


@pytest.mark.slow
def test_the_correction_is_any_estimator():
    problem = LINEAR.problem(0.02, 1)
    expected = igpe.estimate(problem)
    for method in (igpe.SingleShooting(), igpe.MultipleShooting()):
        result = igpe.estimate(problem, replace(igpe.Settings(), correction=method))
        assert result.parameters == pytest.approx(expected.parameters, rel=1e-4)
        assert result.objective == pytest.approx(expected.objective, rel=1e-6)


def test_a_correction_that_was_chosen_is_not_replaced():
    (run,) = LINEAR.problem().experiments
    problem = igpe.Problem(
        LINEAR.builder, parameters=list(LINEAR.truth), experiments=run, loss=igpe.losses.L1()
    )
    settings = replace(igpe.Settings(), correction=igpe.Collocation(points=2))
    with pytest.raises(igpe.errors.Unsupported, match="only least squares"):
        igpe.estimate(problem, settings)


def test_an_interrupt_keeps_what_is_corrected(monkeypatch):
    solves = []
    solve = collocation._solve

    def interrupted(*arguments):
        if len(solves) == 2:
            raise KeyboardInterrupt
        solves.append(1)
        return solve(*arguments)

    monkeypatch.setattr(collocation, "_solve", interrupted)
    result = igpe.estimate(LINEAR.problem(0.02, 1))
    assert result.status is igpe.Status.INTERRUPTED
    assert result.parameters == pytest.approx(LINEAR.truth, rel=0.2)
    assert np.isinf(result.candidates[-1].objective)


def interrupting(*arguments):
    raise KeyboardInterrupt


def test_an_interrupt_before_step_5_has_anything_leaves_the_values_of_step_4(monkeypatch):
    problem = LINEAR.problem(0.02, 1)
    whole = igpe.estimate(problem)
    monkeypatch.setattr(collocation, "_solve", interrupting)
    result = igpe.estimate(problem)
    assert result.status is igpe.Status.INTERRUPTED
    assert result.parameters in [c.incremental for c in whole.candidates]
    assert result.parameters == pytest.approx(LINEAR.truth, rel=0.2)
    assert whole.objective < result.objective < 2 * whole.objective
    assert "interrupted before step 5" in result.notes[0]
    assert all(c.objective >= result.objective for c in result.candidates)
    assert igpe.Result.from_json(result.to_json()).status is igpe.Status.INTERRUPTED


@pytest.mark.parametrize("call", [1, 2])
def test_an_interrupt_in_step_4_leaves_the_candidates_before_or_those_of_step_3(monkeypatch, call):
    problem, calls = LINEAR.problem(0.02, 1), []

    def interrupted(*arguments):
        calls.append(1)
        return interrupting() if len(calls) == call else complement(*arguments)

    monkeypatch.setattr(step_4, "complement", interrupted)
    result = igpe.estimate(problem)
    assert result.status is igpe.Status.INTERRUPTED
    assert len(result.candidates) == 1
    assert result.parameters == pytest.approx(LINEAR.truth, rel=0.2)
