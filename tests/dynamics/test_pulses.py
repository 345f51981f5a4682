"""Pulses of explicit time through the public door: simulated, estimated by every method."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from scipy.special import erf

import igpe
from igpe.dynamics.collocation.mesh import Radau, first_meshes

TIMES = np.array([0.0, 0.2, 0.8, 1.0])  # none of them near the pulse


def fed(t, width):
    return np.sqrt(np.pi) / 2 * width * (erf((t - 0.5) / width) + erf(0.5 / width))


def problem(width):
    """A feed k exp(-((t - 0.5) / width)^2) and nothing else, for k = 2 / width."""

    build = ode(
        {"y": lambda m, t: m.k * pyo.exp(-(((t - 0.5) / width) ** 2))},
        k={"bounds": (0, 10 / width), "initialize": 1.0},
    )

    table = pd.DataFrame({"time": TIMES, "y": 2 / width * fed(TIMES, width)})
    run = igpe.Experiment(table, start={"y": 0.0}, sigma={"y": 0.01})
    return igpe.Problem(build, parameters=["k"], experiments=run)


@pytest.mark.parametrize("width", [0.05, 0.02, 1e-4])
def test_a_simulated_feed_is_not_lost(width):
    came = igpe.simulate(problem(width), {"k": 2 / width}, times=[0.0, 1.0])
    assert came.y.to_numpy() == pytest.approx([0, 2 / width * fed(1.0, width)], abs=1e-5)


@pytest.mark.parametrize(
    "method", [igpe.Collocation(), igpe.MultipleShooting(), igpe.SingleShooting()]
)
@pytest.mark.parametrize("width", [0.02, 1e-3])
def test_the_size_of_a_feed_is_estimated(method, width):
    found = method.estimate(problem(width), {"k": 1 / width})
    assert found.parameters["k"] == pytest.approx(2 / width, rel=1e-4)


def test_meshes_have_edges_in_the_pulse():
    posed = problem(1e-3)
    (mesh,) = first_meshes(posed, (), Radau(3), 1e-5, start={"k": 1.0})
    assert (abs(mesh.edges - 0.5) < 2e-3).any()
