"""The checker knows what `igpe.certify` knows: priors, tables, several experiments."""

import json
from collections.abc import Callable
from typing import Any

import consecutive
import numpy as np
import pandas as pd
import pytest
from one_state import one_state
from zoo import CASES

import igpe
from igpe.core.errors import DataError, ProblemError
from igpe.dynamics.shooting.reweighting import weighted_at

TANK = CASES["stirred_tank"]
STEPS = igpe.step_input([0.0, 2.0, 5.0], [0.2, 1.0, 0.1])
BOUNDS = {"k": (0.0, 2.0), "volume": (0.5, 5.0)}
PRIOR = igpe.losses.NormalPrior(1.3, 0.05)


def tank(prior: igpe.losses.NormalPrior = PRIOR, second: Any = STEPS) -> igpe.Problem:
    """A tank fed along a line, and one fed in steps; their volume is known beforehand."""
    runs = []
    for k, flow in enumerate((TANK.inputs["flow"], second)):
        more = {"start": TANK.start, "start_time": 0.0, "inputs": {"flow": flow, "feed": 2.0}}
        data = TANK.data(noise=0.03, seed=k)[::4]
        runs.append(igpe.Experiment(data, name=f"run {k}", sigma=0.05, **more))
    priors = {"volume": prior}
    return igpe.Problem(TANK.builder, parameters=BOUNDS, experiments=runs, priors=priors)


@pytest.fixture(scope="module")
def proof() -> str:
    found = igpe.certify(tank(), gap=1e-3)
    assert found.closed
    return found.to_json()


def test_a_certificate_with_a_prior_and_tables_is_verified(proof: str) -> None:
    found = igpe.verify(proof, tank())
    assert found
    stored = json.loads(proof)
    low, high = found.objective
    assert low <= stored["objective"] * (1 + 1e-9)
    problem = tank()
    at = dict(zip(stored["unknowns"], stored["point"], strict=True))
    here = igpe.SingleShooting().estimate(problem, at).objective
    assert low * (1 - 1e-7) <= here <= high * (1 + 1e-3)


OTHERS: dict[str, Callable[[], igpe.Problem]] = {
    "a prior elsewhere": lambda: tank(igpe.losses.NormalPrior(1.4, 0.05)),
    "a prior that is narrower": lambda: tank(igpe.losses.NormalPrior(1.3, 0.02)),
    "steps that come later": lambda: tank(second=igpe.step_input([0.0, 2.1, 5.0], [0.2, 1.0, 0.1])),
    "a line instead of steps": lambda: tank(
        second=igpe.linear_input([0.0, 2.0, 5.0], [0.2, 1.0, 0.1])
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_priors_and_tables_count(other: str, proof: str) -> None:
    """Of a problem with other ones the certificate's objective or its bound is not true."""
    found = igpe.verify(proof, OTHERS[other](), seconds=20)
    assert not found
    assert not np.isclose(found.objective[0], json.loads(proof)["objective"], rtol=1e-4)


def relative() -> igpe.Problem:
    """Decay whose errors are a share of what the model predicts, beside an exact start."""
    times = np.linspace(0.2, 2.0, 10)
    values = np.exp(-0.9 * times) * (1 + 0.05 * np.random.default_rng(0).normal(size=10))
    sigma = igpe.Noise(absolute=0.01, relative=0.05)
    return one_state(lambda m, x: -m.k * x, {"k": (0.1, 3.0)}, (times, values), sigma)


def test_a_noise_model_is_held_at_the_estimate() -> None:
    """The estimate is where the sum of squares with its own standard deviations is smallest."""
    problem = relative()
    estimate = igpe.estimate(problem, certify=False)
    for proof in (igpe.certify(problem, estimate), igpe.certify(problem)):
        assert proof.closed
        assert proof.parameters == pytest.approx([estimate.parameters["k"]], rel=1e-6)
        assert proof.sigma_at == pytest.approx({"k": estimate.parameters["k"]}, rel=1e-6)
        predicted = np.exp(-proof.sigma_at["k"] * problem.experiments[0].measurements.times)
        assert proof.sigma[0] == pytest.approx(np.hypot(0.01, 0.05 * predicted), rel=1e-6)
        found = igpe.verify(type(proof).from_json(proof.to_json()), problem)
        assert found
        assert "noise model for k = " in proof.sentence
        assert "noise model for k = " in found.sentence
        assert found.sentence.endswith(" at most.")


def test_other_standard_deviations_than_those_of_the_noise_model_are_refuted() -> None:
    problem = relative()
    honest = json.loads(igpe.certify(problem, {"k": 0.9}).to_json())
    forged = honest | {"sigma": [[10 * s for s in honest["sigma"][0]]]}
    forged |= {"objective": honest["objective"] / 100, "lower_bound": honest["lower_bound"] / 100}
    assert "not those of the noise model" in igpe.verify(forged, problem).sentence
    moved = honest | {"sigma_at": {"k": 2.0}}
    assert igpe.verify(moved, problem).verdict is igpe.proofs.Verdict.REFUTED
    outside = igpe.verify(honest | {"sigma_at": {"k": 3.5}}, problem)
    assert "lie outside the box" in outside.sentence
    with pytest.raises(DataError, match="a standard deviation is not positive"):
        igpe.verify(honest | {"sigma": [[0.0, *honest["sigma"][0][1:]]]}, problem)
    # a problem with numbers needs none of a certificate, and the sentence names none
    held = problem.weighted([np.array(honest["sigma"][0])])
    assert "noise model" not in igpe.verify(honest | {"sigma_at": {"k": 2.0}}, held).sentence
    for missing in ([], [honest["sigma"][0][1:]]):
        with pytest.raises(ProblemError, match="does not contain one for each measurement"):
            igpe.verify(honest | {"sigma": missing}, problem)


def test_a_region_with_a_noise_model_is_the_profile_with_its_weights() -> None:
    problem = relative()
    estimate = igpe.estimate(problem, certify=False)
    region = igpe.certify_region(problem, estimate)
    held = weighted_at(problem, estimate.parameters)
    assert held is not None
    profile = igpe.profile(held, estimate)["k"]
    outer = region.to_frame()[["outer_lower", "outer_upper"]].to_numpy()[0]
    assert outer == pytest.approx([profile.lower, profile.upper], rel=1e-2)
    assert igpe.verify(region, problem)
    assert "noise model for k = " in region.sentence


def test_a_number_beside_a_noise_model_is_that_of_the_problem() -> None:
    """A certificate may not bring a standard deviation of its own where the problem has one."""
    sigma = {"x1": igpe.Noise(relative=0.05), "x2": 0.02}
    run = igpe.Experiment(
        pd.read_csv(consecutive.DATA), start={"x1": 1.0, "x2": 0.0}, start_time=0.0, sigma=sigma
    )
    problem = igpe.Problem(consecutive.model, parameters=["p1", "p2"], experiments=run)
    honest = json.loads(igpe.certify(problem, consecutive.OPTIMUM).to_json())
    assert igpe.verify(honest, problem)
    column = run.measurements.column
    tenfold = np.where(column == run.measured.index("x2"), 10.0, 1.0) * honest["sigma"][0]
    forged = honest | {"sigma": [tenfold.tolist()]}
    residuals = igpe.certify(problem.weighted([tenfold]), consecutive.OPTIMUM)
    forged |= {"objective": residuals.objective, "lower_bound": residuals.lower_bound}
    assert igpe.verify(forged, problem).verdict is igpe.proofs.Verdict.REFUTED
