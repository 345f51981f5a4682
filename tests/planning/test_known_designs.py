"""Designs that are known on paper."""

import kinetics
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe

P = igpe.planning

EXACT = {"rel": 1e-3}


def unmeasured(model, parameters, measured, until=10.0, **conditions):
    return P.ProblemWithoutData(model, parameters, measured, until, **conditions)


def test_samples_of_a_decay_keep_their_spacing():
    candidates = np.linspace(0, 10, 41)
    plan = igpe.design(
        unmeasured(kinetics.decay, ["k"], ["A"], start={"A": 1.0}, inputs={"A0": 1.0}),
        {"k": 0.4},
        times=P.Sampling(candidates, at_most=3, spacing=1.0),
        measure={"A": 0.01},
    )

    def told(first):
        times = first + np.arange(3)
        return np.sum((times * np.exp(-0.4 * times)) ** 2)

    best = max(candidates, key=told)
    assert plan.experiments[0].times == pytest.approx(best + np.arange(3))


def test_box_and_lucas_sample_their_consecutive_reactions_at_1_23_and_6_86():
    """Biometrika 46 (1959) 77: B measured, (k1, k2) = (0.7, 0.2), D-optimal."""
    plan = igpe.design(
        unmeasured(kinetics.consecutive, ["k1", "k2"], ["B"], start={"A": 1.0, "B": 0.0}),
        {"k1": 0.7, "k2": 0.2},
        times=P.Sampling(np.arange(1, 1001) / 100, at_most=2),
        measure={"B": 0.01},
    )
    assert plan.efficiency > 0.999
    assert plan.experiments[0].times == pytest.approx([1.23, 6.86], abs=0.011)


def test_michaelis_and_menten_want_the_largest_substrate_and_one_known_from_it():
    """Smax and Km Smax / (2 Km + Smax): Duggleby, J. theor. Biol. 81 (1979) 671."""
    plan = igpe.design(
        unmeasured(kinetics.enzyme, ["Vmax", "Km"], ["P"], until=1.0, start={"P": 0.0}),
        {"Vmax": 2.0, "Km": 1.5},
        free={"S": P.Between(0.01, 5.0)},
        times=[1.0],
        measure={"P": 0.01},
        experiments=2,
    )
    found = sorted(plan.settings.loc["S", ["plan1", "plan2"]])
    assert found == pytest.approx([1.5 * 5 / (2 * 1.5 + 5), 5.0], **EXACT)


def test_an_error_that_is_a_share_of_the_value_wants_a_decay_measured_last():
    """d log A / dk = -t: with relative errors the last time is best, with a floor it is not."""

    def best(noise):
        plan = igpe.design(
            unmeasured(kinetics.decay, ["k"], ["A"], start={"A": 1.0}, inputs={"A0": 1.0}),
            {"k": 1.0},
            times=P.Sampling(np.linspace(0, 10, 101), at_most=1),
            measure={"A": noise},
        )
        return plan.experiments[0].times[0], plan.notes

    last, warned = best(igpe.Noise(relative=0.01))
    assert last == pytest.approx(10.0)
    assert "very precise measurements of small" in warned[0]
    earlier, notes = best(igpe.Noise(absolute=0.001, relative=0.01))
    times = np.linspace(0, 10, 101)
    told = times * np.exp(-times) / np.hypot(0.001, 0.01 * np.exp(-times))
    assert earlier == pytest.approx(times[told.argmax()])
    assert notes == ()


def test_a_subset_of_interest_is_served_better_and_the_rest_worse():
    def planned(criterion):
        return igpe.design(
            unmeasured(kinetics.decay, ["k", "A0"], ["A"], start={"A": "A0"}),
            {"k": 0.4, "A0": 3.0},
            times=P.Sampling(np.linspace(0, 10, 51), at_most=6),
            measure={"A": 0.01},
            criterion=criterion,
        ).errors["after"]

    all_of_them, one = planned(P.DOptimal()), planned(P.DOptimal(of="k"))
    assert one["k"] < 0.99 * all_of_them["k"]
    assert one["A0"] > all_of_them["A0"]


def test_the_roundest_ellipsoid_is_rounder_than_the_smallest():
    def axes(criterion):
        plan = igpe.design(
            unmeasured(kinetics.consecutive, ["k1", "k2"], ["A", "B"], start={"B": 0.0}),
            {"k1": 0.7, "k2": 0.2},
            free={"A": P.Between(0.5, 2.0)},
            times=P.Sampling(np.linspace(0.5, 10, 20), at_most=4),
            measure={"A": 0.02, "B": 0.01},
            criterion=criterion,
        )
        size = np.diag(1 / plan.errors["value"].to_numpy())
        return np.sqrt(np.linalg.cond(size @ plan.covariance @ size)), plan

    (round_one, plan), (other, _) = axes(P.ModifiedE()), axes(P.DOptimal())
    assert round_one < other
    assert plan.after == pytest.approx(round_one, rel=1e-4)
    assert np.isnan(plan.efficiency)


@pytest.mark.slow
def test_the_roundest_ellipsoid_beside_measurements_is_found():
    """A grid of S0 and E finds 55.5 at (7.6, 2.0); searches from equal shares ended at 75.4."""

    def inhibited(times):
        m = over_time(times, "S")
        m.E = pyo.Param(initialize=1.0, mutable=True)
        m.vm, m.Km, m.Ki = (pyo.Var(bounds=b) for b in ((0.1, 20), (0.01, 20), (0.05, 50)))
        m.rate = pyo.Constraint(
            m.t,
            rule=lambda m, t: (
                m.dS[t] == -m.vm * m.E * m.S[t] / (m.Km + m.S[t] + m.S[t] ** 2 / m.Ki)
            ),
        )
        return m

    values = [3.46, 2.92, 1.67, 0.31, 0.03]
    run = igpe.Experiment(
        pd.DataFrame({"time": [0.5, 1, 2, 3, 4], "S": values}), start={"S": 4.0}, start_time=0.0,
        inputs={"E": 1.0}, sigma=igpe.Noise(absolute=0.02, relative=0.03),
    )  # fmt: skip
    problem = igpe.Problem(inhibited, parameters=["vm", "Km", "Ki"], experiments=run)
    plan = igpe.design(
        problem,
        {"vm": 2.0, "Km": 0.8, "Ki": 3.0},
        free={"S": P.Between(0.5, 10), "E": P.Between(0.2, 2)},
        times=P.Sampling(np.arange(1, 25) / 4, at_most=4),
        criterion=P.ModifiedE(),
        starts=2,
    )
    assert plan.after < 55
