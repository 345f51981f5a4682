"""Problems of the benchmark collection: the published objectives, and an optimum."""

import numpy as np
import pytest
from petab_problems import files
from published import PETAB

import igpe


@pytest.mark.slow
@pytest.mark.parametrize("name", PETAB)
def test_objective_at_the_nominal_parameters(name):
    problem = igpe.petab.read_petab(files(name))
    assert igpe.petab.petab_objective(problem) == pytest.approx(PETAB[name], abs=1e-3)


@pytest.mark.slow
def test_boehm_from_twenty_starts():
    problem = igpe.petab.read_petab(files("Boehm"))
    method = igpe.search.MultiStart(igpe.SingleShooting(), trials=160, starts=20)
    found = method.estimate(problem, {})
    assert igpe.petab.petab_objective(problem, found.parameters) == pytest.approx(138.222, abs=1e-3)
    assert found.parameters["k_exp_hetero"] == 1e-5
    constant = problem.size * np.log(2 * np.pi)
    told = igpe.dynamics.likelihood.negative_log_likelihood(problem, found.parameters)
    assert (found.objective + constant) / 2 == pytest.approx(told, rel=1e-6)
