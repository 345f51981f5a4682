"""Michalik, Chachuat & Marquardt (2009), IGPE: problem 7, the urethane reaction (Tables 2 and 3).

The data are ours (`data/README.md`), so what must be reproduced is not the paper's digits but how
near to the truth the steps come. The paper's Table 3 against its Table 2: step 3 within 2.6 %
(kref1 2.566 for 2.5), step 5 within 0.25 % (kc2 120.3 for 120). Ours: 1.2 % and 0.26 %.
"""

import numpy as np
import pandas as pd
import pytest
import urethane

import igpe
from igpe.algebraic.routes import Decomposed, LocalSearch
from igpe.algebraic.step import Posing, TargetForm, smooth_measurements
from igpe.structure.identifiability import Access

LOCAL = LocalSearch(trials=64, starts=3)
QUICK = igpe.Settings(
    ladder=(igpe.smoothing.GcvSpline(),),
    routes=igpe.algebraic.RouteSelection(quick=LOCAL),
    correction=igpe.Collocation(max_refinements=0),  # an accurate integration polishes the optimum
)


def errors(parameters):
    """Relative error of each parameter."""
    return {n: abs(parameters[n] / true - 1) for n, true in urethane.TRUTH.items()}


PAPER_STEP_3 = max(errors(urethane.PAPER["step3"]).values())  # 2.6 %

pytestmark = pytest.mark.paper


def test_the_stored_data_are_the_simulation_of_their_seed():
    stored, made = pd.read_csv(urethane.DATA), urethane.simulated(urethane.SEED)
    assert list(stored.columns) == list(made.columns)
    assert (stored["experiment"] == made["experiment"]).all()
    numbers = made.columns[1:]
    np.testing.assert_allclose(stored[numbers], made[numbers], rtol=1e-7)


def test_the_model_agrees_with_plain_differential_equations():
    problem = urethane.problem(urethane.simulated(0, noise=0.0))
    run = igpe.simulate(
        problem,
        urethane.TRUTH,
        urethane.TIMES,
        integrator=igpe.integrators.Sundials(rtol=1e-10, atol=1e-12),
    )
    for e in problem.experiments:
        mine = run[run["experiment"] == e.name]
        for name in urethane.MEASURED:
            _, exact, _ = e.measurements.of(name)
            np.testing.assert_allclose(mine[name], exact, rtol=1e-7)


def test_step_2_finds_all_eight_parameters_by_algebra():
    structure = igpe.check(urethane.problem())
    assert structure.names(Access.ALGEBRAIC) == tuple(urethane.TRUTH)
    (group,) = structure.groups
    assert len(group.members) == 12
    first = structure.subsystems[0]
    assert (first.equations, first.parameters) == (("rate_B",), ("kref1", "Ea1"))


def test_step_2_computes_the_allophanate_from_its_own_balance():
    structure = igpe.check(urethane.problem())
    assert all("balance_A" not in s.equations for s in structure.subsystems)
    assert structure["kc2"].equations == ("balance_B", "rate_A", "rate_C")


@pytest.mark.slow
def test_step_3_is_nearer_to_the_truth_than_the_papers_and_step_5_as_near_as_its_errors_say():
    result = igpe.estimate(urethane.problem(), QUICK)
    assert max(errors(result.candidates[0].incremental).values()) < PAPER_STEP_3
    assert result.objective == pytest.approx(urethane.OBJECTIVE, rel=1e-6)
    for p in result.estimates:
        assert p.value == pytest.approx(urethane.OPTIMUM[p.name], rel=1e-5)
        assert abs(p.value - urethane.TRUTH[p.name]) < 3 * p.standard_error
    assert 0.01 < result.probability < 0.99
    (certificate,) = result.certificates
    assert certificate.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert 0 <= certificate.gap <= 1.001e-4


def test_the_papers_decomposition_first_finds_kref1_and_its_energy():
    problem = urethane.problem()
    structure, curves = (
        igpe.check(problem),
        smooth_measurements(problem, igpe.smoothing.GcvSpline()),
    )
    whole = Posing(problem, structure, curves, TargetForm.SLOPES).regression(structure.groups[0])
    answer, lost, _ = Decomposed(igpe.algebraic.Projected(gap=1e-3)).estimate(whole)
    assert lost == ()
    assert [tuple(stage.parameters) for stage in answer.trail] == [
        ("kref1", "Ea1"),
        ("kref2", "kc2", "Ea2", "dh2"),
        ("kref4", "Ea4"),
    ]
    assert max(errors(answer.parameters).values()) < PAPER_STEP_3
