"""From smoothed curves to regressions, on the zoo: the truth is their answer on exact data."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from zoo import ZOO

import igpe
from igpe.algebraic.routes import LinearRoute, LocalSearch
from igpe.algebraic.step import (
    Posing,
    TargetForm,
    known_start,
    smooth_measurements,
    smoothed_starts,
)
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem
from igpe.smoothing.gcv_spline import Interpolation
from igpe.structure.structure import analyse

STRUCTURES = {c.name: (c, c.problem()) for c in ZOO}
GROUPED = [
    "decay",
    "demand",
    "consecutive",
    "unmeasured_intermediate",
    "reversible",
    "michaelis_menten",
    "logistic",
    "lotka_volterra",
    "stirred_tank",
    "fast_equilibrium",
    "dimer",
]
WITHIN = {TargetForm.SLOPES: 0.06, TargetForm.INTEGRALS: 0.01}


def posed(name, form):
    """Problem, structure and how step 3 is posed on exact data."""
    case, problem = STRUCTURES[name]
    structure = analyse(problem)
    curves = smooth_measurements(problem, Interpolation())
    return case, structure, Posing(problem, structure, curves, form)


def test_which_cases_have_groups():
    found = [name for name, (_, problem) in STRUCTURES.items() if analyse(problem).groups]
    assert found == GROUPED


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("form", list(TargetForm))
def test_exact_data_give_the_truth(name, form):
    case, structure, posing = posed(name, form)
    for group in structure.groups:
        whole = posing.regression(group)
        route = LinearRoute() if whole.linear else LocalSearch(trials=64, starts=4)
        answer, lost, _ = route.estimate(whole)
        assert lost == ()
        truth = {n: case.truth[n] for n in group.parameters}
        assert answer.parameters == pytest.approx(truth, rel=WITHIN[form])


def test_the_integral_form_begins_at_a_known_start():
    _, structure, posing = posed("decay", TargetForm.INTEGRALS)
    (piece,) = posing.regression(structure.groups[0]).pieces
    case = STRUCTURES["decay"][0]
    assert len(piece.target) == len(case.times)
    assert piece.target[0] == pytest.approx(case.data()["A"][0] - case.start["A"])
    whole = piece.combine @ np.ones(piece.combine.shape[1])
    assert whole == pytest.approx(np.full(20, 0.2))
    assert "integrated slopes" in posing.origin


def test_curves_pass_through_a_known_start_and_are_of_what_is_measured():
    _, problem = STRUCTURES["unmeasured_intermediate"]
    curves = smooth_measurements(problem, Interpolation())
    assert curves.of[0]["A"].value(np.array([0.0]))[0] == pytest.approx(1.0, rel=1e-12)
    assert "B" not in curves.of[0]
    run, starts = problem.experiments[0], problem.starts[0]
    assert [known_start(run, starts, n) for n in ("A", "B", "stranger")] == [1.0, 0.0, None]


def test_unknown_starts_are_read_off_the_curves_and_stay_inside_their_bounds():
    case, _ = STRUCTURES["decay"]
    t = np.linspace(0.0, 3.0, 16)
    data = pd.DataFrame({"time": t, "A": 2 * np.exp(-0.7 * t)})
    for upper, value in ((5.0, 2.0), (1.5, 1.5)):
        run = Experiment(data, start={"A": Unknown(0, upper)})
        problem = Problem(case.builder, parameters=["k"], experiments=run)
        curves = smooth_measurements(problem, Interpolation())
        found = smoothed_starts(problem, analyse(problem), curves)
        assert found == pytest.approx({"A(t0)": value}, rel=1e-6)


def switched(slope, **given):
    """Residuals of step 3 at k = 1 where a rate stops at t = 1.5, which is measured."""
    t = np.linspace(0.0, 3.0, 11)
    data = pd.DataFrame({"time": t, "A": np.exp(-np.minimum(t, 1.5))})

    def build(times):
        m = over_time(times, "A", k=(0.1, 10.0))
        m.u = pyo.Param(m.t, mutable=True, initialize=0.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -slope(m, t) * m.k * m.A[t])
        return m

    run = Experiment(data, start={"A": 1.0}, start_time=0.0, **given)
    problem = Problem(build, parameters=["k"], experiments=run)
    structure = analyse(problem)
    curves = smooth_measurements(problem, Interpolation())
    posing = Posing(problem, structure, curves, TargetForm.SLOPES)
    return posing.regression(structure.groups[0]).linearised(np.ones(1)).residual


@pytest.mark.parametrize(
    ("slope", "given"),
    [
        (lambda m, t: pyo.Expr_if(t < 1.5, 1.0, 0.0), {}),
        (lambda m, t: pyo.Expr_if(t <= 1.5, 1.0, 0.0), {}),
        (lambda m, t: m.u[t], {"inputs": {"u": lambda t: pyo.Expr_if(t < 1.5, 1.0, 0.0)}}),
    ],
)
def test_what_is_measured_at_a_jump_is_taken_before_it(slope, given):
    by_table = switched(lambda m, t: m.u[t], inputs={"u": igpe.step_input([0.0, 1.5], [1.0, 0.0])})
    assert switched(slope, **given) == pytest.approx(by_table, rel=1e-12, abs=1e-12)
