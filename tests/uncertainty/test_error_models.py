"""What is known at the solution, where standard deviations follow the model."""

import numpy as np
import pandas as pd
import pytest

import igpe
from igpe.dynamics.shooting.reweighting import weighted_at
from models import consecutive


@pytest.fixture(scope="module")
def fitted():
    """Proportional errors, the estimate, and the same problem with its standard deviations held."""
    times = np.linspace(0.1, 2.0, 16)
    truth = {"A": np.exp(-2 * times), "B": 2 * (np.exp(-times) - np.exp(-2 * times))}
    random = np.random.default_rng(3)
    noisy = {n: x * (1 + 0.1 * random.standard_normal(len(x))) for n, x in truth.items()}
    data = pd.DataFrame({"time": times, "x1": noisy["A"], "x2": noisy["B"]})
    run = igpe.Experiment(
        data, start={"x1": 1.0, "x2": 0.0}, sigma=igpe.Noise(absolute=1e-3, relative=0.1)
    )
    problem = igpe.Problem(consecutive.model, parameters=["p1", "p2"], experiments=run)
    found = igpe.SingleShooting().estimate(problem, {"p1": 1.0, "p2": 0.5})
    return problem, found, weighted_at(problem, found.parameters)


def test_profiles_are_those_of_the_weights_at_the_estimate(fitted):
    problem, found, held = fitted
    ours, theirs = (igpe.profile(p, found).to_frame() for p in (problem, held))
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-8)
    by_mesh = igpe.profile(problem, found, method=igpe.Collocation()).to_frame()
    np.testing.assert_allclose(by_mesh["lower"], ours["lower"], rtol=2e-3)


def test_bands_and_replications_are_too(fitted):
    problem, found, held = fitted
    ours, theirs = (igpe.predict(p, found).table for p in (problem, held))
    mean = [c for c in ours if not c.startswith("band_")]
    pd.testing.assert_frame_equal(ours[mean], theirs[mean], rtol=1e-8)
    is_measured = ours["time"].isin(problem.experiments[0].times)  # elsewhere by the noise model
    pd.testing.assert_frame_equal(ours[is_measured], theirs[is_measured], rtol=1e-8)
    one, other = (igpe.bootstrap(p, found, replications=20, seed=1) for p in (problem, held))
    pd.testing.assert_frame_equal(one.to_frame(), other.to_frame(), rtol=1e-8)
