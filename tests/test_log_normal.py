"""Log-normal errors: logarithms are compared."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest

import igpe
from igpe import kinetics
from igpe.core.errors import DataError

TIMES = np.linspace(0.5, 4, 12)
DECAY = kinetics.Batch(["A -> B"], bounds={"k1": (0.01, 5)}, units=kinetics.Units("mol", "L", "h"))


def measured(seed=0):
    errors = 0.2 * np.random.default_rng(seed).standard_normal(12)
    return pd.DataFrame({"time": TIMES, "A": 2 * np.exp(-0.7 * TIMES + errors)})


def pose(table, **options):
    run = igpe.Experiment(
        table,
        start={"A": 2.0, "B": 0.0},
        start_time=0.0,
        sigma={"A": igpe.losses.LogNormal(0.2)},
        **options,
    )
    return igpe.Problem(DECAY, parameters=["k1"], experiments=run)


def test_the_estimate_is_linear_regression_of_logarithms():
    table = measured()
    result = igpe.estimate(pose(table))
    slope = -(np.log(table["A"] / 2) @ TIMES) / (TIMES @ TIMES)
    (k1,) = result.estimates
    assert k1.value == pytest.approx(slope, rel=1e-5)
    assert k1.standard_error == pytest.approx(0.2 / np.sqrt(TIMES @ TIMES), rel=1e-3)
    residuals = np.log(table["A"] / 2) + slope * TIMES
    assert result.objective == pytest.approx(float(residuals @ residuals) / 0.2**2, rel=1e-5)


def test_measurements_in_other_units_give_the_same():
    table = measured()
    other = pose(table.assign(A=1000 * table["A"]), units={"A": "mmol/L"})
    values = pose(table).experiments[0].measurements.value
    np.testing.assert_allclose(other.experiments[0].measurements.value, values, rtol=1e-12)


def test_values_of_zero_are_refused():
    table = measured()
    table.loc[3, "A"] = 0.0
    with pytest.raises(DataError, match=r"'A' has the value 0 in row 3, .*log-normal"):
        pose(table)
    pose(table.replace(0.0, np.nan))


@pytest.mark.slow
def test_logarithms_of_what_is_not_there_before_a_lag():
    """The fitted curve is log 0 until the dose arrives: pytest would raise NumPy's warnings."""
    table = pd.DataFrame({"time": TIMES, "A": 2 * np.exp(-0.7 * (TIMES - 0.3))})

    def model(times):
        m = DECAY(times)
        m.lag = pyo.Var(bounds=(0, 0.45))
        return m

    run = igpe.Experiment(
        table,
        start={"A": 0.0, "B": 0.0},
        start_time=0.0,
        events=[igpe.Event(at=0.0, delay="lag", add={"A": 2.0})],
        sigma={"A": igpe.losses.LogNormal(0.2)},
    )
    problem = igpe.Problem(model, parameters=["k1", "lag"], experiments=run)
    result = igpe.estimate(problem)
    assert result.parameters["k1"] == pytest.approx(0.7, rel=1e-3)
    result.plot()
    bands = igpe.predict(problem, result).table.set_index("time").loc[0.0]
    assert "ln(A)" in set(bands["name"])
