"""Alpha-pinene: measured runs at the best known sums of squares, alone and with Arrhenius."""

import pytest

import igpe
from models import alpha_pinene


@pytest.mark.parametrize("run", [1, 2])
def test_the_best_known_sum_of_squares_without_a_start(run: int) -> None:
    result = igpe.estimate(alpha_pinene.problem(run, calculated=True))
    assert result.objective == pytest.approx(alpha_pinene.PUBLISHED[run], rel=1e-5)


def test_the_first_run_fits() -> None:
    result = igpe.estimate(alpha_pinene.problem())
    assert result.adequacy is not None
    assert not result.adequacy.lacks


@pytest.mark.slow
def test_both_runs_agree_with_each_alone_at_its_own_temperature() -> None:
    problem = alpha_pinene.both()
    result = igpe.estimate(problem)
    alone = sum(igpe.estimate(alpha_pinene.problem(run)).objective for run in (1, 2))
    # ten constants for ten: five values and five energies are the rate constants of two runs
    assert result.objective == pytest.approx(alone, rel=1e-5)
    assert 1e5 < result.parameters["E1"] < 2e5
