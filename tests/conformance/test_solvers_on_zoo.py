"""Every solver on the zoo's algebraic problems: exact slopes give back the truth."""

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

SOLVERS: dict[str, Solver] = {
    "ipopt": igpe.solvers.Ipopt(),
    "pounce": igpe.solvers.AmplProgram("pounce"),
    "scip": igpe.solvers.Scip(feasibility=1e-7, absolute=1e-6),
    "maingo": igpe.solvers.MAiNGO(absolute=1e-6),
    "couenne": Couenne(),
}


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
    solver = SOLVERS[name]
    if not solver.available():
        pytest.skip(solver.install)
    for regression, truth in regressions(case):
        at = regression.linearised(truth)
        assert at is not None
        model = as_pyomo(regression, truth, at)
        answer = solver.solve(model, time_limit=20)
        assert answer.status.usable
        assert answer.objective < 1e-5
        assert [v.value for v in model.v.values()] == pytest.approx([1.0] * len(truth), abs=0.02)
