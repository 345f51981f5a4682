"""Sensitivities of planned experiments, and their derivatives by what is chosen."""

import kinetics
import numpy as np
import pandas as pd
import pytest

import igpe
from igpe.dynamics.shooting.residuals import Residuals
from igpe.planning import search as told_module
from igpe.planning.design_problem import read_design, steepness

B = igpe.planning.Between
TIMES = np.array([0.5, 1.0, 2.0, 3.0])
VALUES = {"k": 0.8, "E": 8.0}
TIGHT = igpe.integrators.Automatic(rtol=1e-10, atol=1e-12)
FREE = {
    "A": B(0.5, 2.0),
    "feed": igpe.planning.Levels((0.0, 1.5), 0.0, 1.0),
    "T": igpe.planning.Ramps((0.0, 1.0, 3.0), 330.0, 380.0),
}
NOISE = {"A": igpe.Noise(0.02, 0.03), "B": 0.01}


def posed(free=FREE, noise=NOISE, cubic=0.0, model=kinetics.reactor, **changed):
    given = igpe.planning.ProblemWithoutData(
        model, ["k", "E"], ["A", "B"], 3.0, start={"A": 1.0, "B": 0.0}, inputs={"cubic": cubic}
    )
    settings = {
        "free": free, "conditions": {}, "times": TIMES, "measure": noise, "count": 1,
        "criterion": igpe.planning.DOptimal(), "existing": True, "like": None, "integrator": TIGHT,
    }  # fmt: skip
    return read_design(given, VALUES, **(settings | changed))


def at(one, share):
    return one.plan.lower + share * one.plan.width


@pytest.mark.parametrize("cubic", [0.0, 0.7], ids=["explicit", "implicit"])
def test_rows_are_the_weighted_sensitivities_of_the_experiment_itself(cubic):
    """As `Residuals` has them, from a problem whose experiment is the one planned."""
    one = posed(cubic=cubic)
    design = at(one, np.linspace(0.2, 0.8, len(one.plan.choices)))
    rows = one.told(VALUES).rows(design)
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
def test_slopes_by_the_design_are_differences(cubic):
    one = posed(cubic=cubic)
    told = one.told(VALUES)
    design = at(one, np.linspace(0.3, 0.7, len(one.plan.choices)))
    found = told.rows_and_slopes(design)
    np.testing.assert_allclose(found.value, told.rows(design), rtol=1e-6, atol=1e-9)
    for i, width in enumerate(one.plan.width):
        step = np.zeros(len(design))
        step[i] = 1e-4 * width
        difference = (told.rows(design + step) - told.rows(design - step)) / (2e-4 * width)
        np.testing.assert_allclose(found.slope[..., i], difference, rtol=2e-5, atol=1e-6)


def test_differences_stand_in_where_nothing_exact_is_compiled(monkeypatch):
    """The rule of `Told`: compiled sensitivities, but second derivatives too long to compile."""
    one = posed()
    design = at(one, np.array([0.0, 0.4, 1.0, 0.3, 0.6, 0.5]))  # two of them on their bounds
    exact = one.told(VALUES)
    expected = exact.rows_and_slopes(design)
    assert exact._exact is not None
    rough = one.told(VALUES)
    monkeypatch.setitem(rough.__dict__, "_exact", None)
    found = rough.rows_and_slopes(design)
    np.testing.assert_array_equal(found.value, rough.rows(design))
    scale = np.abs(expected.slope).max()
    inner = np.array([1, 3, 4, 5])
    np.testing.assert_allclose(
        found.slope[..., inner], expected.slope[..., inner], rtol=1e-4, atol=1e-5 * scale
    )
    np.testing.assert_allclose(found.slope, expected.slope, rtol=1e-2, atol=2e-3 * scale)
    assert told_module.SHIFT == 1e-3


def test_a_gradient_of_the_whole_criterion(monkeypatch):
    """-Φ of two experiments by all their numbers, against differences."""
    from igpe.planning.information import RegularisedCriterion  # noqa: PLC0415
    from igpe.planning.search import DesignSearch  # noqa: PLC0415

    one = posed(count=2)
    steep, steepest = steepness(one.plan)
    search = DesignSearch(
        told=[one.told(VALUES), one.told({"k": 1.0, "E": 6.0})],
        before=[one.known(VALUES)] * 2,
        space=one.space,
        judge=RegularisedCriterion(igpe.planning.AOptimal(), one.space.interest),
        allowed=one.allowed,
        lower=one.plan.lower,
        width=one.plan.width,
        steep=steep,
        steepest=steepest,
        pool=8,
        starts=1,
        seed=0,
    )
    weights = np.random.default_rng(0).uniform(0.3, 1.0, (2, 4, 2))
    loss = search.loss(weights)
    cube = np.random.default_rng(1).uniform(0.2, 0.8, 12)
    _, gradient = loss(cube)
    for i in range(12):
        step = np.zeros(12)
        step[i] = 1e-4
        difference = (loss(cube + step)[0] - loss(cube - step)[0]) / 2e-4
        assert gradient[i] == pytest.approx(difference, rel=1e-4, abs=1e-6)
