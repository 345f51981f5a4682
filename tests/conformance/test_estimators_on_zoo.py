"""Every estimator gives back the true parameters of every problem of the zoo."""

import pytest
from zoo import ZOO, Case, every_case

import igpe
from igpe.dynamics.shooting.base import Estimator
from igpe.solvers.ipopt import Ipopt

ESTIMATORS: list[Estimator] = [
    igpe.SingleShooting(),
    igpe.SingleShooting(igpe.integrators.Sundials(rtol=1e-10, atol=1e-12)),
    igpe.IncrementalShooting(),
    igpe.IncrementalShooting(igpe.integrators.Sundials()),
    igpe.MultipleShooting(),
    igpe.search.MultiStart(trials=64, starts=8),
    igpe.Collocation(),
    igpe.Collocation(solver=Ipopt(), points=4),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@every_case
def test_exact_data_give_back_the_truth(estimator: Estimator, case: Case) -> None:
    found = estimator.estimate(case.problem(), case.near)
    assert found.status.usable
    assert dict(found.parameters) == pytest.approx(case.truth, rel=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_an_optimum_beyond_a_bound_is_the_bound(estimator: Estimator) -> None:
    case = ZOO[0]
    run = igpe.Experiment(case.data(), start=case.start, start_time=0.0)
    problem = igpe.Problem(case.builder, parameters={"k": (0.1, 0.5)}, experiments=run)
    found = estimator.estimate(problem, {"k": 0.3})
    assert found.parameters["k"] == pytest.approx(0.5, rel=1e-6)
    assert found.parameters["k"] <= 0.5


@pytest.mark.slow
@every_case
def test_the_five_steps_need_no_start(case: Case) -> None:
    result = igpe.estimate(case.problem(), QUICK)
    assert result.parameters == pytest.approx(case.truth, rel=1e-4)


@pytest.mark.slow
@every_case
def test_the_five_steps_with_noise_come_within_their_errors(case: Case) -> None:
    problem = case.problem(noise=0.02, seed=1)
    result = igpe.estimate(problem, QUICK)
    near = igpe.SingleShooting().estimate(problem, case.truth)
    assert result.objective <= near.objective * (1 + 1e-6)
    for p in result.estimates:
        if not p.remark:
            assert abs(p.value - case.truth[p.name]) < 5 * p.standard_error


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_gives_the_same_result(seed: int) -> None:
    case = ZOO[2]
    first, second = (igpe.estimate(case.problem(0.02, 3), QUICK, seed=seed) for _ in range(2))
    assert first.parameters == second.parameters
    assert first.seed == seed


QUICK = igpe.Settings(
    routes=igpe.algebraic.RouteSelection(proven=igpe.algebraic.GlobalSolver(time_limit=2.0))
)
