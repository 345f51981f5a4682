"""Every solver on the zoo's algebraic problems: the truth from exact slopes, and honest bounds."""

import casadi as ca
import numpy as np
import pyomo.environ as pyo
import pytest
from zoo import ZOO, Case, every_case

import igpe
from igpe.algebraic.base import Regression
from igpe.algebraic.step import Posing, TargetForm, smooth_measurements
from igpe.equations.translate import to_pyomo
from igpe.numerics.least_squares.base import Linearised
from igpe.solvers.base import Solver
from igpe.solvers.program import Couenne

LOCAL: dict[str, Solver] = {
    "ipopt": igpe.solvers.Ipopt(),
    "pounce": igpe.solvers.AmplProgram("pounce"),
}
GLOBAL: dict[str, Solver] = {
    "scip": igpe.solvers.Scip(feasibility=1e-7, absolute=1e-6),
    "maingo": igpe.solvers.MAiNGO(absolute=1e-6),
    "couenne": Couenne(),
}
SOLVERS = LOCAL | GLOBAL
CLOSED = 2e-4  # a little more than the gap asked for, as the incumbent is evaluated exactly


def installed(name: str) -> Solver:
    solver = SOLVERS[name]
    if not solver.available():
        pytest.skip(solver.install)
    return solver


def regressions(case: Case) -> list[tuple[Regression, np.ndarray]]:
    """Step 3 with its targets replaced by what the truth predicts, and the truth."""
    problem = case.problem()
    structure = igpe.check(problem)
    curves = smooth_measurements(problem, igpe.smoothing.GcvSpline())
    posing = Posing(problem, structure, curves, TargetForm.SLOPES)
    found = []
    for group in structure.groups:
        regression = posing.regression(group)
        truth = np.array([case.truth[n] for n in group.parameters])
        found.append((regression, truth))
    return found


def as_pyomo(regression: Regression, truth: np.ndarray, at: Linearised) -> pyo.ConcreteModel:
    """min |residual(p) - residual(truth)|^2 over p in units of the truth."""
    p, residual = regression.symbolic()
    v = ca.SX.sym("v", len(truth))
    size = np.sqrt(np.mean(at.jacobian**2)) * np.mean(truth)
    scaled = (ca.substitute(residual, p, v * truth) - at.residual) / size
    model = pyo.ConcreteModel()
    bounds = np.column_stack([regression.box.lower, regression.box.upper]) / truth[:, None]
    model.v = pyo.Var(range(len(truth)), initialize=1.2)
    for i, (low, high) in enumerate(bounds):
        model.v[i].setlb(max(low, 0.2))
        model.v[i].setub(min(high, 5.0))
    rows = to_pyomo(scaled, v, list(model.v.values()))
    model.cost = pyo.Objective(expr=sum(row**2 for row in rows))
    return model


def test_nearly_all_of_the_zoo_has_algebraic_problems() -> None:
    assert sum(bool(regressions(case)) for case in ZOO) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
@every_case
def test_exact_slopes_give_back_the_truth(name: str, case: Case) -> None:
    solver = installed(name)
    for regression, truth in regressions(case):
        at = regression.linearised(truth)
        assert at is not None
        model = as_pyomo(regression, truth, at)
        answer = solver.solve(model, time_limit=20)
        assert answer.status.usable
        assert answer.objective < 1e-5
        assert [v.value for v in model.v.values()] == pytest.approx([1.0] * len(truth), abs=0.02)


def decay_and_growth() -> pyo.ConcreteModel:
    """Two exponentials on four points that neither can meet; several local optima."""
    m = pyo.ConcreteModel()
    m.a, m.b = pyo.Var(bounds=(-3, 3), initialize=2.0), pyo.Var(bounds=(-3, 3), initialize=2.0)
    data = {0.2: 1.0, 0.7: 0.2, 1.1: 0.9, 1.9: 0.1}
    m.cost = pyo.Objective(
        expr=sum((y - pyo.exp(m.a * t) * m.b * (1 - t)) ** 2 for t, y in data.items())
    )
    return m


def grid_minimum(model: pyo.ConcreteModel) -> float:
    """The least objective on a grid of the box: what no valid bound exceeds."""
    values = []
    for a in np.linspace(-3, 3, 61):
        for b in np.linspace(-3, 3, 61):
            model.a.set_value(a)
            model.b.set_value(b)
            values.append(pyo.value(model.cost))
    return float(min(values))


@pytest.mark.parametrize("name", GLOBAL)
def test_a_global_solver_closes_its_gap_from_below(name: str) -> None:
    solver, model = installed(name), decay_and_growth()
    answer = solver.solve(model, time_limit=20)
    assert answer.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert answer.objective == pytest.approx(pyo.value(model.cost))
    assert answer.lower_bound <= answer.objective
    assert answer.gap <= CLOSED
    assert answer.lower_bound <= grid_minimum(model)


@pytest.mark.parametrize("name", SOLVERS)
def test_all_global_solvers_agree_and_no_local_one_is_better(name: str) -> None:
    best = igpe.solvers.Scip(feasibility=1e-7).solve(decay_and_growth())
    answer = installed(name).solve(decay_and_growth(), time_limit=20)
    assert answer.objective >= best.lower_bound - 1e-6
    if name in GLOBAL:
        assert answer.objective == pytest.approx(best.objective, rel=CLOSED)


def rugged() -> pyo.ConcreteModel:
    """Twelve variables with many thousand local minima."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(12), bounds=(-5, 5), initialize=1.0)
    x = m.x
    waves = [10 * pyo.sin(7 * x[i] * x[(i + 5) % 12]) for i in range(12)]
    hills = [x[i] ** 4 - 16 * x[i] ** 2 + 5 * x[i] for i in range(12)]
    m.cost = pyo.Objective(expr=sum(hills) + sum(waves))
    return m


@pytest.mark.slow
@pytest.mark.parametrize("name", GLOBAL)
def test_time_limits_are_kept(name: str) -> None:
    answer = installed(name).solve(rugged(), time_limit=2.0)
    assert answer.status is igpe.Status.TIME_LIMIT
    assert not answer.lower_bound > answer.objective


@pytest.mark.parametrize("name", SOLVERS)
def test_without_an_incumbent_the_model_is_as_before(name: str) -> None:
    solver, model = installed(name), decay_and_growth()
    model.impossible = pyo.Constraint(expr=model.a**2 + model.b**2 >= 20)
    answer = solver.solve(model, time_limit=20)
    assert answer.status is igpe.Status.INFEASIBLE
    assert np.isnan(answer.objective)
    assert (model.a.value, model.b.value) == (2.0, 2.0)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_missing_solver_is_an_answer_that_names_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = SOLVERS[name]
    monkeypatch.setattr(type(solver), "available", lambda _: False)
    answer = solver.solve(decay_and_growth())
    assert (answer.status, answer.message) == (igpe.Status.NO_SOLVER, solver.install)
    assert "install" in answer.message
