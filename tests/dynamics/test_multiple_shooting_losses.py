"""Multiple shooting with outliers: Huber and sums of absolute values."""

import numpy as np
import pytest
from scipy.optimize import least_squares, minimize
from zoo import CASES

from igpe.core.status import Status
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.problem.experiment import Experiment
from igpe.problem.losses import L1, Huber, LeastSquares, NormalPrior
from igpe.problem.problem import Problem

CASE = CASES["lotka_volterra"]
SIGMA = 0.08


def outliers(loss, *, sigma=SIGMA, **settings):
    """Lotka and Volterra's model with three wild measurements of eighty."""
    data = CASE.data(noise=0.02, seed=1)
    data.loc[5, "x"] *= 3
    data.loc[17, "y"] = 8.0
    data.loc[30, "x"] = 0.0
    run = Experiment(data, start=CASE.start, start_time=0.0, sigma=sigma)
    return Problem(
        CASE.builder, parameters=list(CASE.truth), experiments=run, loss=loss, **settings
    )


def residuals_of(problem):
    """The plain residuals by single shooting, as a function of x."""
    given = {"experiments": problem.experiments, "priors": problem.priors}
    plain = Problem(CASE.builder, parameters=list(CASE.truth), **given)
    return Residuals(plain, Sundials(rtol=1e-10, atol=1e-12))


def error(found):
    return max(abs(found.parameters[n] / v - 1) for n, v in CASE.truth.items())


def test_robust_losses_bear_what_least_squares_does_not():
    errors = [
        error(MultipleShooting().estimate(outliers(loss), CASE.near))
        for loss in (LeastSquares(), Huber(), L1())
    ]
    assert errors[0] > 0.3
    assert errors[1] < 0.05
    assert errors[2] < 0.05


def test_hubers_optimum_is_scipys():
    problem = outliers(Huber(1.5))
    found = MultipleShooting().estimate(problem, CASE.near)
    at = residuals_of(problem)
    start, slope = list(CASE.truth.values()), lambda x: at(x).jacobian
    huber = {"loss": "huber", "f_scale": 1.5, "xtol": 1e-13}
    known = least_squares(lambda x: at(x).residual, start, jac=slope, **huber)
    assert found.objective == pytest.approx(2 * known.cost, rel=1e-6)
    assert list(found.parameters.values()) == pytest.approx(known.x, rel=1e-4)


@pytest.mark.slow
def test_no_step_lowers_the_sum_of_absolute_values():
    problem = outliers(L1(), priors={"a": NormalPrior(0.9, 0.02)})
    found = MultipleShooting().estimate(problem, CASE.near)
    at, m = residuals_of(problem), problem.size

    def told(x):
        r = at(x).residual
        return float(np.abs(r[:m]).sum() + np.sum(r[m:] ** 2))

    x = problem.box.vector(found.parameters)
    assert found.objective == pytest.approx(told(x), rel=1e-6)
    better = minimize(told, x, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    assert found.objective == pytest.approx(better.fun, rel=2e-4)
    assert x == pytest.approx(better.x, rel=2e-3)


def test_equal_errors_are_in_the_unit_of_the_data():
    known = MultipleShooting().estimate(outliers(Huber(1.5 * 0.08), sigma=1.0), CASE.near)
    guessed = MultipleShooting().estimate(outliers(Huber(1.5 * 0.08), sigma="equal"), CASE.near)
    assert guessed.objective == pytest.approx(known.objective, rel=1e-6)
    assert dict(guessed.parameters) == pytest.approx(dict(known.parameters), rel=1e-5)
    sums = [
        MultipleShooting().estimate(outliers(L1(), sigma=sigma), CASE.near).objective
        for sigma in ("equal", 1.0)
    ]
    assert sums[0] == pytest.approx(sums[1], rel=1e-3)


@pytest.mark.parametrize("loss", [Huber(1.5), L1()])
def test_with_nothing_to_estimate_the_loss_is_told(loss):
    held = outliers(loss).fixing(CASE.truth)
    found = MultipleShooting().estimate(held, {})
    assert found.status is Status.NOTHING_TO_DO
    plain = residuals_of(outliers(loss))(np.array(list(CASE.truth.values()))).residual
    size, delta = np.abs(plain), 1.5
    rho = np.where(size <= delta, size**2, 2 * delta * size - delta**2)
    assert found.objective == pytest.approx(np.sum(size if isinstance(loss, L1) else rho), rel=1e-4)
