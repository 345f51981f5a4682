"""STAT5 signalling: the fit of Peifer and Timmer (2007), from measured data."""

import numpy as np
import pytest
import stat5

import igpe

pytestmark = pytest.mark.paper
STARTS = 12


@pytest.fixture(scope="module")
def prepared():
    return igpe.SingleShooting().prepare(stat5.problem())


def test_the_papers_parameters_and_errors(prepared):
    fit = prepared.fit({n: value for n, (value, _) in stat5.PAPER.items()})
    names = prepared.problem.box.names
    assert len(fit.at.residual) == 15 + 16
    errors = np.sqrt(np.diag(np.linalg.inv(fit.at.jacobian.T @ fit.at.jacobian)))
    for name, found, error in zip(names, fit.x, errors, strict=True):
        value, stated = stat5.PAPER[name]
        assert abs(found - value) <= stated
        assert stated / 1.3 <= error <= stated * 1.3
        assert found == pytest.approx(stat5.OPTIMUM[name], rel=1e-4)
    assert fit.cost == pytest.approx(stat5.OBJECTIVE, rel=1e-7)


def test_incremental_shooting_finds_it_from_everywhere():
    problem = stat5.problem()
    found = igpe.estimation.compare(problem, [igpe.IncrementalShooting()], STARTS, seed=7)
    assert found.table.loc["IncrementalShooting", "best %"] == 100
    assert found.best == pytest.approx(stat5.OBJECTIVE, rel=1e-5)
