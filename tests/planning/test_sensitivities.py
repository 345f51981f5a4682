"""Sensitivities of planned experiments, and their derivatives by what is chosen."""

import kinetics
import numpy as np
import pandas as pd
import pytest

import igpe
from igpe.dynamics.shooting.residuals import Residuals
from igpe.planning.design_problem import read_design

P = igpe.planning

B = igpe.planning.Between
TIMES = np.array([0.5, 1.0, 2.0, 3.0])
VALUES = {"k": 0.8, "E": 8.0}
TIGHT = igpe.integrators.Automatic(rtol=1e-10, atol=1e-12)
FREE = {
    "A": B(0.5, 2.0),
    "feed": P.Levels((0.0, 1.5), 0.0, 1.0),
    "T": P.Ramps((0.0, 1.0, 3.0), 330.0, 380.0),
}
NOISE = {"A": igpe.Noise(0.02, 0.03), "B": 0.01}


def posed(free=FREE, noise=NOISE, cubic=0.0, model=kinetics.reactor, **changed):
    given = P.ProblemWithoutData(
        model, ["k", "E"], ["A", "B"], 3.0, start={"A": 1.0, "B": 0.0}, inputs={"cubic": cubic}
    )
    settings = {
        "free": free, "conditions": {}, "times": TIMES, "measure": noise, "count": 1,
        "criterion": P.DOptimal(), "existing": True, "like": None, "integrator": TIGHT,
    }  # fmt: skip
    return read_design(given, VALUES, **(settings | changed))


def at(one, share):
    return one.plan.lower + share * one.plan.width


@pytest.mark.parametrize("cubic", [0.0, 0.7], ids=["explicit", "implicit"])
def test_rows_are_the_weighted_sensitivities_of_the_experiment_itself(cubic):
    """As `Residuals` has them, from a problem whose experiment is the one planned."""
    one = posed(cubic=cubic)
    design = at(one, np.linspace(0.2, 0.8, len(one.plan.choices)))
    rows = one.outputs(VALUES).rows(design)
    start, inputs = one.plan.settings(design)
    table = pd.DataFrame({"time": TIMES, "A": 0.0, "B": 0.0})
    alone = igpe.Problem(
        kinetics.reactor,
        parameters=["k", "E"],
        experiments=igpe.Experiment(
            table, start=start, start_time=0.0, inputs=inputs, sigma=1.0, replicates=False
        ),
    )
    plain = Residuals(alone, TIGHT)(np.array([0.8, 8.0]))
    h = plain.residual.reshape(4, 2)
    sigma = np.column_stack([np.hypot(0.02, 0.03 * h[:, 0]), np.full(4, 0.01)])
    expected = plain.jacobian.reshape(4, 2, 2) * [0.8, 8.0] / sigma[..., None]
    np.testing.assert_allclose(rows[:, :, 0], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("cubic", [0.0, 0.7], ids=["explicit", "implicit"])
def test_slopes_by_the_design_are_those_of_the_rows(cubic):
    """Also where two numbers lie on their bounds; against finer differences inside of these."""
    one = posed(cubic=cubic)
    outputs, share = one.outputs(VALUES), np.array([0.0, 0.4, 1.0, 0.3, 0.6, 0.5])
    design, inward = at(one, share), np.where(share < 0.5, 1.0, -1.0)
    value, slope = outputs.rows_and_slopes(design)
    np.testing.assert_array_equal(value, outputs.rows(design))
    scale = np.abs(slope).max()
    for i, width in enumerate(one.plan.width):
        step = np.zeros(len(design))
        step[i] = 1e-4 * width * inward[i]
        back = outputs.rows(design - step) if 0 < share[i] < 1 else value
        over = 1e-4 * width * (2 if 0 < share[i] < 1 else 1) * inward[i]
        difference = (outputs.rows(design + step) - back) / over
        tight = 1e-5 if 0 < share[i] < 1 else 2e-3
        np.testing.assert_allclose(slope[..., i], difference, rtol=1e-2, atol=tight * scale)


@pytest.mark.slow
def test_a_gradient_of_the_whole_criterion(monkeypatch):
    """-Φ of two experiments by all their numbers at once, against differences along directions."""
    from igpe.planning.design_search import DesignSearch  # noqa: PLC0415

    one = posed(count=2, criterion=P.AOptimal())
    search = DesignSearch(one, [VALUES, {"k": 1.0, "E": 6.0}], pool=8, starts=1, seed=0)
    weights = np.random.default_rng(0).uniform(0.3, 1.0, (2, 4, 2))
    loss = search.loss(weights)
    cube = np.random.default_rng(1).uniform(0.2, 0.8, 12)
    _, gradient = loss(cube)
    for signs in np.random.default_rng(2).choice([-1.0, 1.0], (4, 12)):
        step = 1e-4 * signs
        difference = (loss(cube + step)[0] - loss(cube - step)[0]) / 2e-4
        assert gradient @ signs == pytest.approx(difference, rel=1e-4, abs=1e-6)
