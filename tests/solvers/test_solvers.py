"""Every solver on the same small problems with known answers; one that is missing is skipped."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest

from igpe.core.errors import ModelError
from igpe.core.status import Status
from igpe.solvers.base import Answer, Solver
from igpe.solvers.ipopt import Ipopt
from igpe.solvers.maingo import MAiNGO
from igpe.solvers.program import AmplProgram, Couenne, Scip

EMBEDDED = Ipopt()
LOCAL: dict[str, Solver] = {
    "ipopt_in_casadi": EMBEDDED,
    "pounce": AmplProgram("pounce", ("tol=1e-9",), time_option="max_wall_time"),
}
GLOBAL: dict[str, Solver] = {
    "scip": Scip(absolute=1e-6),
    "maingo": MAiNGO(absolute=1e-6),
    "couenne": Couenne(),
}


def _parametrize(family: dict[str, Solver]) -> Any:
    return pytest.mark.parametrize("name", list(family))


def _installed(name: str) -> Solver:
    solver = {**LOCAL, **GLOBAL}[name]
    if not solver.available():
        pytest.skip(solver.install)
    return solver


@dataclass(frozen=True)
class Known:
    """A problem and its answer."""

    build: Callable[[], Any]
    objective: float
    point: tuple[float, ...]


def bounded_quadratic() -> Any:
    """x at its upper bound, y on the constraint."""
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(0, 1), initialize=0.5), pyo.Var(bounds=(0, 4), initialize=0.5)
    m.limit = pyo.Constraint(expr=m.x + m.y <= 2.5)
    m.cost = pyo.Objective(expr=(m.x - 2) ** 2 + (m.y - 2) ** 2)
    return m


def rosenbrock() -> Any:
    """The valley with its minimum at (1, 1)."""
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(-2, 2), initialize=-1.2), pyo.Var(bounds=(-2, 2), initialize=1.0)
    m.cost = pyo.Objective(expr=100 * (m.y - m.x**2) ** 2 + (1 - m.x) ** 2)
    return m


def with_fixed() -> Any:
    """A fixed variable, a mutable Param and a deactivated constraint."""
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(0, 5), initialize=1.0), pyo.Var(initialize=3.0)
    m.y.fix()
    m.p = pyo.Param(initialize=2.0, mutable=True)
    m.off = pyo.Constraint(expr=m.x == 0)
    m.off.deactivate()
    m.on = pyo.Constraint(expr=pyo.exp(m.x) == m.p + m.y)
    m.cost = pyo.Objective(expr=(m.x - m.y) ** 2)
    return m


def infeasible() -> Any:
    """No point of the square lies outside of a circle around it."""
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(0, 1), initialize=0.5), pyo.Var(bounds=(0, 1), initialize=0.3)
    m.far = pyo.Constraint(expr=m.x**2 + m.y**2 >= 4)
    m.cost = pyo.Objective(expr=m.x + m.y)
    return m


def camel() -> Any:
    """Six-hump camel: two global and four other local minima (Dixon and Szegoe 1978)."""
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(-2, 2), initialize=1.6), pyo.Var(bounds=(-1, 1), initialize=0.6)
    m.cost = pyo.Objective(
        expr=(4 - 2.1 * m.x**2 + m.x**4 / 3) * m.x**2 + m.x * m.y + (4 * m.y**2 - 4) * m.y**2
    )
    return m


def small_residuals() -> Any:
    """Six-point Michaelis-Menten fit, whose optimum 1.47656e-4 a loose tolerance undercuts."""
    m = pyo.ConcreteModel()
    m.v, m.k = pyo.Var(bounds=(0.1, 5), initialize=1.0), pyo.Var(bounds=(0.1, 5), initialize=1.0)
    data = {0.25: 0.331, 0.5: 0.494, 1.0: 0.672, 2.0: 0.795, 4.0: 0.894, 8.0: 0.938}
    m.cost = pyo.Objective(expr=sum((y - m.v * s / (m.k + s)) ** 2 for s, y in data.items()))
    return m


def rugged() -> Any:
    """Twelve variables with many thousand local minima."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(12), bounds=(-5, 5), initialize=1.0)
    waves = [10 * pyo.sin(7 * m.x[i] * m.x[(i + 5) % 12]) for i in range(12)]
    hills = [x**4 - 16 * x**2 + 5 * x for x in m.x.values()]
    m.cost = pyo.Objective(expr=sum(hills) + sum(waves))
    return m


KNOWN = {
    "bounded_quadratic": Known(bounded_quadratic, 1.25, (1.0, 1.5)),
    "rosenbrock": Known(rosenbrock, 0.0, (1.0, 1.0)),
    "with_fixed": Known(with_fixed, (np.log(5) - 3) ** 2, (np.log(5), 3.0)),
}


def _values(model: Any) -> list[float]:
    return [v.value for v in model.component_data_objects(pyo.Var)]


def _text(model: Any) -> list[str]:
    """Everything about a model but the values of its free variables."""
    parts = [c for c in model.component_data_objects((pyo.Constraint, pyo.Objective))]
    shape = [f"{c.name} {c.active} {c.expr}" for c in parts]
    bounds = [
        f"{v.name} {v.lb} {v.ub} {v.fixed} {v.value if v.fixed else ''} {v.domain}"
        for v in model.component_data_objects(pyo.Var)
    ]
    return shape + bounds + [c.name for c in model.component_objects()]


@pytest.mark.slow
@_parametrize({**LOCAL, **GLOBAL})
@pytest.mark.parametrize("case", list(KNOWN))
def test_known_optimum_is_found(name: str, case: str) -> None:
    solver, known = _installed(name), KNOWN[case]
    model = known.build()
    answer = solver.solve(model, time_limit=60.0)
    assert answer.status in (Status.CONVERGED, Status.OPTIMAL_WITHIN_GAP)
    assert answer.objective == pytest.approx(known.objective, rel=1e-4, abs=1e-6)
    assert _values(model) == pytest.approx(known.point, rel=1e-3, abs=1e-3)
    assert answer.objective == pytest.approx(pyo.value(model.cost))
    assert answer.lower_bound <= answer.objective
    assert answer.seconds > 0


@pytest.mark.slow
@_parametrize({**LOCAL, **GLOBAL})
@pytest.mark.parametrize("build", [*(k.build for k in KNOWN.values()), infeasible])
def test_nothing_but_values_changes(name: str, build: Callable[[], Any]) -> None:
    solver, model = _installed(name), build()
    before = _text(model)
    solver.solve(model, time_limit=20.0)
    assert _text(model) == before


@_parametrize({**LOCAL, **GLOBAL})
def test_infeasible_is_an_answer_and_leaves_the_values(name: str) -> None:
    solver, model = _installed(name), infeasible()
    answer = solver.solve(model, time_limit=60.0)
    assert answer.status is Status.INFEASIBLE
    assert np.isnan(answer.objective)
    assert _values(model) == [0.5, 0.3]


@_parametrize({**LOCAL, **GLOBAL})
def test_violated_constraint_without_variables_is_infeasible(name: str) -> None:
    solver, model = _installed(name), with_fixed()
    model.never = pyo.Constraint(expr=model.y <= model.p)
    assert solver.solve(model).status is Status.INFEASIBLE


@_parametrize(GLOBAL)
def test_global_optimum_of_the_camel_is_proven(name: str) -> None:
    solver, model = _installed(name), camel()
    answer = solver.solve(model, time_limit=60.0)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.objective == pytest.approx(-1.0316284535, rel=1e-4)
    assert answer.lower_bound <= -1.0316284534
    assert answer.gap <= 2e-4


@_parametrize(LOCAL)
def test_local_solvers_prove_nothing(name: str) -> None:
    solver, model = _installed(name), camel()
    answer = solver.solve(model)
    assert answer.status is Status.CONVERGED
    assert answer.lower_bound == -np.inf
    assert answer.gap == np.inf


@pytest.mark.slow
@_parametrize(GLOBAL)
def test_global_solvers_at_their_time_limit_have_incumbent_and_bound(name: str) -> None:
    answer = _installed(name).solve(rugged(), time_limit=10.0)
    assert answer.status is Status.TIME_LIMIT
    assert not answer.lower_bound > answer.objective
    if name != "couenne":  # it may have found neither
        assert np.isfinite([answer.objective, answer.lower_bound]).all()
        assert answer.gap > 1e-4


def test_scip_gives_the_same_answer_twice() -> None:
    answers = [_installed("scip").solve(camel()) for _ in range(2)]
    assert answers[0].objective == answers[1].objective
    assert answers[0].iterations == answers[1].iterations


def test_scip_refuses_functions_it_has_not() -> None:
    model = bounded_quadratic()
    model.odd = pyo.Constraint(expr=pyo.asin(model.x) <= 0.9)
    answer = _installed("scip").solve(model)
    assert answer.status is Status.FAILED
    assert "does not support" in answer.message


@pytest.mark.parametrize(
    "solver", [AmplProgram("no-such-solver"), AmplProgram("nothing", how="brew install nothing")]
)
def test_absence_is_an_answer_with_the_install_sentence(solver: AmplProgram) -> None:
    model = camel()
    answer = solver.solve(model)
    assert not solver.available()
    assert answer == Answer(Status.NO_SOLVER, message=solver.install)
    assert "install" in answer.message
    assert _values(model) == [1.6, 0.6]


@_parametrize({**LOCAL, **GLOBAL})
def test_a_missing_solver_names_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = {**LOCAL, **GLOBAL}[name]
    monkeypatch.setattr(type(solver), "available", lambda _: False)
    answer = solver.solve(camel())
    assert (answer.status, answer.message) == (Status.NO_SOLVER, solver.install)
    assert "install" in answer.message


@_parametrize({**LOCAL, **GLOBAL})
def test_objectives_must_be_one_minimum(name: str) -> None:
    solver, model = _installed(name), camel()
    model.second = pyo.Objective(expr=model.x)
    with pytest.raises(ModelError, match="2 active objectives"):
        solver.solve(model)
    model.cost.deactivate()
    model.second.sense = pyo.maximize
    with pytest.raises(ModelError, match="maximised"):
        solver.solve(model)


def test_time_limit_stops_embedded_ipopt() -> None:
    answer = EMBEDDED.solve(rosenbrock(), time_limit=0.0)
    assert answer.status is Status.TIME_LIMIT
    assert np.isfinite(answer.objective)


def test_iteration_limit_keeps_the_point_reached() -> None:
    model = rosenbrock()
    answer = Ipopt(max_iterations=3).solve(model)
    assert answer.status is Status.ITERATION_LIMIT
    assert answer.objective == pytest.approx(pyo.value(model.cost))
    assert answer.iterations == 3


@_parametrize({**LOCAL, **GLOBAL})
def test_model_without_free_variables_is_evaluated(name: str) -> None:
    solver, model = _installed(name), rosenbrock()
    model.x.fix(0.0)
    model.y.fix(0.0)
    answer = solver.solve(model)
    assert answer.status is (Status.CONVERGED if name in LOCAL else Status.OPTIMAL_WITHIN_GAP)
    assert answer.objective == 1.0


@pytest.mark.slow
def test_ipopt_prints_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(Path.cwd())!r}, {str(Path(__file__).parent)!r}]\n"
        "from test_solvers import EMBEDDED, rosenbrock\n"
        "EMBEDDED.solve(rosenbrock())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.stdout == ""
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_condition_that_casadi_cannot_read_is_a_failure_of_the_solver():
    m = pyo.ConcreteModel()
    m.x = pyo.Var(initialize=0.5, bounds=(0, 2))
    m.cost = pyo.Objective(expr=pyo.Expr_if(m.x >= 1, m.x, 2 - m.x))
    answer = Ipopt().solve(m)
    assert answer.status is Status.FAILED
    assert "CasADi cannot read the model" in answer.message
