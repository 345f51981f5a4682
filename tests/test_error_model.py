"""Noise models as they are given: numbers, units, tables, copies and refusals."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from pyomo import dae

import igpe
from igpe.problem.noise.sigma import Noise

TIMES = [0.0, 1.0, 2.0, 3.0]


def table(**columns):
    columns = columns or {"A": [4.0, 2.0, 1.0, 0.5], "B": [0.0, 2.0, np.nan, 3.5]}
    return pd.DataFrame({"time": TIMES, **columns})


def run(data=None, **conditions):
    data = table() if data is None else data
    return igpe.Experiment(data, **{"sigma": Noise(relative=0.05), **conditions})


def in_moles(times):
    """A vanishes, in mol/L; T is measured in K."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, units=pyo.units.mol / pyo.units.L)
    m.T = pyo.Var(m.t, units=pyo.units.K)
    m.dA, m.dT = dae.DerivativeVar(m.A), dae.DerivativeVar(m.T)
    m.k = pyo.Var(bounds=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    m.heat = pyo.Constraint(m.t, rule=lambda m, t: m.dT[t] == -m.k)
    return m


def pose(data, **conditions):
    start = {"A": 4.0, "T": 300.0}
    return igpe.Problem(
        in_moles, parameters=["k"], experiments=igpe.Experiment(data, start=start, **conditions)
    )


def test_the_deviation_is_the_root_of_the_sum_of_both_squares():
    h = np.array([-2.0, 0.0, 10.0])
    expected = np.sqrt(0.3**2 + (0.05 * h) ** 2)
    assert Noise(absolute=0.3, relative=0.05).deviation(h) == pytest.approx(expected, rel=1e-15)


def test_parts_that_are_no_deviations_are_refused():
    for share in (0.0, -0.1, 1.0, 5, np.nan, np.inf, "0.05", None):
        with pytest.raises(igpe.errors.DataError, match=r"relative=.* fraction below 1"):
            Noise(relative=share)
    for absolute in (-0.1, np.nan, np.inf, "0.1", None):
        with pytest.raises(igpe.errors.DataError, match=r"absolute=.* at least 0"):
            Noise(absolute, relative=0.1)


@pytest.mark.parametrize("sigma", [Noise(0.2), {"A": Noise(0.2), "B": 0.2}])
def test_an_absolute_part_alone_is_a_number(sigma):
    e, plain = run(sigma=sigma), run(sigma=0.2)
    assert not e.error_models
    assert e.sigma_known
    assert (e.measurements.sigma == plain.measurements.sigma).all()
    in_grams = run(sigma={"A": Noise(200.0), "B": Noise(0.2)}, units={"A": "mmol/L"})
    assert in_grams.error_models == {}


def test_columns_may_have_models_and_numbers():
    e = run(sigma={"A": Noise(absolute=0.01, relative=0.05), "B": 0.1})
    assert dict(e.error_models) == {"A": Noise(absolute=0.01, relative=0.05)}
    h = np.full(len(e.measurements.value), 2.0)
    of_a = e.measurements.column == 0
    assert e.sigma_at(h)[of_a] == pytest.approx(np.hypot(0.01, 0.1))
    assert (e.sigma_at(h)[~of_a] == 0.1).all()
    assert e.sigma_known


def test_until_the_model_is_known_a_column_has_one_level_and_no_measurement_its_own():
    _, values, sigma = run().measurements.of("B")
    assert sigma == pytest.approx(0.05 * np.sqrt(np.mean(values**2)))
    assert len(set(sigma)) == 1


def test_a_prediction_of_nothing_counts_as_a_tenth_of_the_smallest_measurement():
    e = run()
    sigma = e.sigma_at(np.zeros(len(e.measurements.value)))
    assert sigma[e.measurements.column == 0] == pytest.approx(0.05 * 0.1 * 0.5)
    assert sigma[e.measurements.column == 1] == pytest.approx(0.05 * 0.1 * 2.0)
    floored = run(sigma=Noise(absolute=0.2, relative=0.05))
    assert floored.sigma_at(np.zeros(len(e.measurements.value))) == pytest.approx(0.2)


def test_a_column_of_zeros_needs_a_floor():
    zeros = table(A=[0.0, 0.0, np.nan, 0.0])
    with pytest.raises(igpe.errors.DataError, match=r"of 'A' are 0.* Give an absolute part"):
        run(zeros)
    assert run(zeros, sigma=Noise(absolute=0.1, relative=0.05)).measurements.sigma == pytest.approx(
        0.1
    )


def test_a_floor_is_in_the_columns_unit():
    data = table(A=[4000.0, 2000.0, 1000.0, 500.0])
    problem = pose(data, units={"A": "mmol/L"}, sigma=Noise(absolute=30.0, relative=0.05))
    (e,) = problem.experiments
    assert e.error_models["A"].absolute == pytest.approx(0.03)
    assert e.error_models["A"].relative == 0.05
    assert e.sigma_at(np.full(4, 2.0)) == pytest.approx(np.hypot(0.03, 0.1))


def test_a_share_of_degrees_celsius_is_refused():
    data = table(T=[27.0, 26.0, 25.0, 24.0])
    with pytest.raises(igpe.errors.DataError, match="'T' is proportional to its value in 'degC'"):
        pose(data, units={"T": "degC"}, sigma=Noise(relative=0.05))


def test_other_data_and_other_experiments_have_their_error_models():
    again = run().with_data(table(A=[8.0, 4.0, 2.0, 1.0]))
    assert dict(again.error_models) == {"A": Noise(relative=0.05)}
    both = pd.concat([table().assign(experiment=n) for n in ("one", "two")])
    given = {"one": Noise(relative=0.05), "two": {"A": 0.1, "B": 1}}
    one, two = igpe.read_experiments(both, sigma=given)
    assert set(one.error_models) == {"A", "B"}
    assert not two.error_models


def test_copies_keep_error_models_and_what_is_held():
    assert pickle.loads(pickle.dumps(run())).error_models == run().error_models
    problem = pose(table(A=[4.0, 2.0, 1.0, 0.5]), sigma=Noise(relative=0.05)).fixing({})
    assert problem.weights_follow_fit
    assert pickle.loads(pickle.dumps(problem)).weights_follow_fit
    held = problem.weighted([np.array([0.1, 0.2, 0.3, 0.4])])
    again = pickle.loads(pickle.dumps(held))
    for one in (held, again):
        assert not one.weights_follow_fit
        assert one.experiments[0].measurements.sigma == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert problem.weights_follow_fit
    unknown = pose(table(A=[4.0, 2.0, 1.0, 0.5]))
    assert not unknown.sigma_known
    assert unknown.weighted([[0.1, 0.2, 0.3, 0.4]]).sigma_known
    assert held.with_data(table(A=[4.0, 2.0, 1.0, 0.5])).weights_follow_fit


def test_what_is_held_is_a_positive_number_for_each_measurement():
    problem = pose(table(A=[4.0, 2.0, 1.0, 0.5]), sigma=Noise(relative=0.05))
    bad = [[0.1, 0.2, 0.3, 0.0]], [[0.1, 0.2, 0.3, np.nan]], [["a", "b", "c", "d"]]
    for sigma in ([], [[0.1]], *bad, 0.1):
        with pytest.raises(igpe.errors.ProblemError, match=r"positive numbers .* lengths \[4\]"):
            problem.weighted(sigma)


formed = ode(
    {"A": lambda m, t: -m.k * m.A[t], "C": lambda m, t: m.k * m.A[t]},
    outputs={"sd": lambda m, t: m.cv * m.C[t], "per": lambda m, t: m.A[t] / m.C[t]},
    k=(0, 5),
    cv={"bounds": (0, 1), "initialize": 0.5},
)
"""C is formed from A, and 0 at the start; its standard deviation is in proportion to it."""


@pytest.mark.parametrize(
    ("column", "sigma", "says"),
    [
        ("C", igpe.losses.LogNormal(0.1), "gives 'C' the value 0 at the start, time 0, where"),
        ("C", igpe.EstimatedSigma("sd"), "deviation 'sd' of 'C' is 0 at the start, time 0"),
        ("per", 0.1, "gives 'per' no finite value at the start, time 0"),
    ],
)
def test_a_measurement_at_the_start_without_a_residual_is_named(column, sigma, says):
    data = table(**{column: [0.02, 0.5, 0.8, 0.9]})
    parameters = ["k", "cv"] if isinstance(sigma, igpe.EstimatedSigma) else ["k"]
    dose = igpe.Event(at=0.0, add={"C": 1.0})
    for events in ([], [dose]):
        given = run(data, start={"A": 1.0, "C": 0.0}, sigma={column: sigma}, events=events)
        with pytest.raises(igpe.errors.DataError, match=says) as caught:
            igpe.estimate(igpe.Problem(formed, parameters=parameters, experiments=given))
        assert "leave out the measurement at this time (NaN)" in str(caught.value)
        assert ("measured='after'" in str(caught.value)) is bool(events)
    after = run(
        data,
        start={"A": 1.0, "C": 0.0},
        sigma={column: sigma},
        events=[replace(dose, measured="after")],
    )
    assert igpe.estimate(igpe.Problem(formed, parameters=parameters, experiments=after)).points.size
