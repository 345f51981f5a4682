"""What the checker computes contains what is true: fractions, mpmath and integrations say so."""

from collections.abc import Callable

import containment as true
import numpy as np
import pytest
from consecutive import problem as consecutive
from lotka_volterra import problem as lotka_volterra
from methanol import problem as methanol
from repeated import statistical, thinned
from zoo import CASES

import igpe


@pytest.mark.parametrize(
    ("check", "seeds"),
    [
        (true.of_intervals, 10),
        (true.of_functions, 4),  # Taylor coefficients
        (true.of_polynomials, 15),
        (true.of_quotients, 15),
        (true.of_functions_of_polynomials, 20),
        (true.of_transport, 15),
        (true.of_directions, 15),
        (true.of_defect, 20),
        (true.of_bounds, 30),
        (true.of_growth, 20),
        (true.of_means, 10),
        (true.of_factored, 10),
        (true.of_steps, 13),
        (true.of_inputs, 10),
    ],
)
def test_what_is_computed_contains_what_is_true(check: Callable[[int], int], seeds: int) -> None:
    assert [check(seed) for seed in range(seeds)] == [0] * seeds


@pytest.mark.parametrize("seed", thinned(range(15), 7))
def test_residuals_of_random_models(seed: int) -> None:
    assert true.of_integration(seed) == 0


@pytest.mark.parametrize("seed", [1, 2, *map(statistical, (3, 8, 10))])
def test_residuals_of_random_models_with_tables(seed: int) -> None:
    assert true.of_integration(seed, inputs=1 + seed % 2) == 0


@pytest.mark.parametrize("seed", thinned(range(15), 7))
def test_tubes_of_random_models(seed: int) -> None:
    assert true.of_tubes(seed, inputs=seed % 2) == 0


@pytest.mark.parametrize("seed", thinned(range(15), 7))
def test_faces_of_tubes_of_random_models(seed: int) -> None:
    assert true.of_faces(seed, inputs=seed % 2) == 0


@pytest.mark.parametrize("width", [0.01, 0.3, 2.0])
def test_tubes_where_a_quotient_begins_as_zero_by_zero(width: float) -> None:
    experiment, truth = true.replay_and_reference(methanol())
    low = np.random.default_rng(3).random((5, 6)) * 8.0
    low[[1, 4]] *= [[0.0], [0.05]]
    high = low + width * (1 + low / 10)
    assert true.tubes_outside(experiment, truth, low, high, seed=2) == 0


@pytest.mark.parametrize("width", [0.0, 1e-3, 0.1])
def test_residuals_of_a_tank_with_a_table_and_a_prior(width: float) -> None:
    case = CASES["stirred_tank"]
    more = {"start": case.start, "start_time": 0.0, "inputs": case.inputs}
    run = igpe.Experiment(case.data(noise=0.02), sigma=0.05, **more)
    problem = igpe.Problem(
        case.builder,
        parameters=list(case.truth),
        experiments=[run],
        priors={"volume": igpe.losses.NormalPrior(1.4, 0.1)},
    )
    experiment, truth = true.replay_and_reference(problem)
    assert experiment.times[0] == 0.0  # where the prior is
    assert len(experiment.inputs) == 1
    low = 0.4 + np.random.default_rng(1).random((2, 6))
    wrong, _ = true.residuals_outside(experiment, truth, low, low + width, seed=2)
    assert wrong == 0


@pytest.mark.parametrize(
    ("problem", "width"),
    [(consecutive, w) for w in (0.0, 1e-3, 0.1, 1.0)]
    + [(lotka_volterra, 0.1), *(statistical(lotka_volterra, w) for w in (0.0, 1e-3, 1.0))],
)
def test_residuals_of_published_models(problem: object, width: float) -> None:
    """And the check is sharp: some error is at least a hundredth of what is allowed."""
    experiment, truth = true.replay_and_reference(problem())  # type: ignore[operator]
    low = np.random.default_rng(1).random((2, 6)) * (9.0 if width < 1 else 5.0)
    wrong, most = true.residuals_outside(experiment, truth, low, low + width, seed=2)
    assert wrong == 0
    assert width < 0.1 or most > 0.01
