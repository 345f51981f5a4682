"""The checker knows what `igpe.certify` knows: priors, tables, several experiments."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from zoo import ZOO

import igpe

TANK = next(c for c in ZOO if c.name == "stirred_tank")
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
