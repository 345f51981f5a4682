"""Every solver finds the true parameters of the zoo's algebraic problems, on exact slopes."""

import casadi as ca
import numpy as np
import pyomo.environ as pyo
import pytest
from zoo import ZOO, Case

import igpe
from igpe.algebraic.curves import smooth_measurements
from igpe.algebraic.posing import Form, Posing
from igpe.algebraic.regression import Regression
from igpe.equations.to_pyomo import to_pyomo
from igpe.least_squares.base import Linearised
from igpe.solvers.base import Solver
from igpe.solvers.program import AmplProgram

SOLVERS: list[Solver] = [
    igpe.Ipopt(),
    igpe.Ipopt(program=""),
    igpe.Scip(feasibility=1e-7, absolute=1e-6),
    AmplProgram("pounce"),
]


def regressions(case: Case) -> list[tuple[Regression, np.ndarray]]:
    """Step 3 with its targets replaced by what the truth predicts, and the truth."""
    problem = case.problem()
    structure = igpe.check(problem)
    posing = Posing(problem, structure, smooth_measurements(problem, igpe.GcvSpline()), Form.SLOPES)
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


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{type(s).__name__} {s.install[:20]}")
@pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)
def test_exact_slopes_give_back_the_truth(solver: Solver, case: Case) -> None:
    if not solver.available():
        pytest.skip(f"{solver} is not installed: {solver.install}")
    for regression, truth in regressions(case):
        at = regression.linearised(truth)
        assert at is not None
        model = as_pyomo(regression, truth, at)
        answer = solver.solve(model, time_limit=20)
        assert answer.status.usable
        assert answer.objective < 1e-5
        assert [v.value for v in model.v.values()] == pytest.approx([1.0] * len(truth), abs=0.02)
