"""What the checker computes contains what is true: fractions, mpmath and integrations say so."""

import containment
import numpy as np
import pytest
from consecutive import problem as consecutive
from lotka_volterra import problem as lotka_volterra
from zoo import ZOO

import igpe


@pytest.mark.parametrize("seed", range(10))
def test_intervals(seed: int) -> None:
    assert containment.of_intervals(seed) == 0


@pytest.mark.parametrize("seed", range(4))
def test_coefficients_of_functions(seed: int) -> None:
    assert containment.of_functions(seed) == 0


@pytest.mark.parametrize("seed", range(15))
def test_polynomials(seed: int) -> None:
    assert containment.of_polynomials(seed) == 0


@pytest.mark.parametrize("seed", range(20))
def test_functions_of_polynomials(seed: int) -> None:
    assert containment.of_functions_of_polynomials(seed) == 0


@pytest.mark.parametrize("seed", range(15))
def test_transported_errors(seed: int) -> None:
    assert containment.of_transport(seed) == 0


@pytest.mark.parametrize("seed", range(30))
def test_bounds_of_the_sum_of_squares(seed: int) -> None:
    assert containment.of_bounds(seed) == 0


@pytest.mark.parametrize("seed", range(20))
def test_growth_of_errors(seed: int) -> None:
    assert containment.of_growth(seed) == 0


@pytest.mark.parametrize("seed", range(25))
def test_residuals_of_random_models(seed: int) -> None:
    assert containment.of_integration(seed) == 0


@pytest.mark.parametrize("seed", range(10))
def test_inputs_given_by_tables(seed: int) -> None:
    assert containment.of_inputs(seed) == 0


@pytest.mark.parametrize("seed", range(8))
def test_residuals_of_random_models_with_tables(seed: int) -> None:
    assert containment.of_integration(seed, inputs=1 + seed % 2) == 0


@pytest.mark.parametrize("width", [0.0, 1e-3, 0.1])
def test_residuals_of_a_tank_with_a_table_and_a_prior(width: float) -> None:
    case = next(c for c in ZOO if c.name == "stirred_tank")
    more = {"start": case.start, "start_time": 0.0, "inputs": case.inputs}
    run = igpe.Experiment(case.data(noise=0.02), sigma=0.05, **more)
    problem = igpe.Problem(
        case.builder,
        parameters=list(case.truth),
        experiments=[run],
        priors={"volume": igpe.losses.NormalPrior(1.4, 0.1)},
    )
    course, truth = containment.courses_and_references(problem)
    assert course.times[0] == 0.0  # where the prior is
    assert len(course.inputs) == 1
    low = 0.4 + np.random.default_rng(1).random((2, 6))
    wrong, _ = containment.residuals_outside(course, truth, low, low + width, seed=2)
    assert wrong == 0


@pytest.mark.parametrize("problem", [consecutive, lotka_volterra])
@pytest.mark.parametrize("width", [0.0, 1e-3, 0.1, 1.0])
def test_residuals_of_published_models(problem: object, width: float) -> None:
    """And the check is sharp: some error is at least a hundredth of what is allowed."""
    course, truth = containment.courses_and_references(problem())  # type: ignore[operator]
    low = np.random.default_rng(1).random((2, 6)) * (9.0 if width < 1 else 5.0)
    wrong, most = containment.residuals_outside(course, truth, low, low + width, seed=2)
    assert wrong == 0
    assert width < 0.1 or most > 0.01
