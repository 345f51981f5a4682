"""Experiments that tell rivals apart, beside closed solutions: decay of first and second order."""

import numpy as np
import pandas as pd
import pytest
from repeated import repeated
from scipy.optimize import least_squares, minimize_scalar

import igpe
from igpe import kinetics
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.automatic import Automatic
from igpe.planning.design_problem import read_design
from igpe.planning.design_search import DesignSearch
from igpe.planning.information import DOptimal
from igpe.planning.rival_design import BoxHill, BuzziFerraris, HunterReiner, RivalDesign

SIGMA, TIMES = 0.03, np.array([0.5, 1.0, 1.5])
VALUES = {"first": {"k": 0.8}, "second": {"k": 1.1}}
ORDERS = {"first": 1, "second": 2}
CANDIDATES = np.linspace(0.25, 5.0, 20)


def exact(name, start, times, k=None):
    """Prediction and its derivative by k."""
    k = VALUES[name]["k"] if k is None else k
    if name == "first":
        return start * np.exp(-k * times), -start * times * np.exp(-k * times)
    return start / (1 + k * start * times), -(start**2) * times / (1 + k * start * times) ** 2


def problems(measured=None, sigma=SIGMA):
    table = pd.DataFrame({"time": TIMES, "A": exact("first", 1.0, TIMES)[0]})
    run = igpe.Experiment(
        table if measured is None else measured, start={"A": 1.0, "P": 0.0}, sigma=sigma
    )
    made = {}
    for name, order in ORDERS.items():
        law = kinetics.MassAction("k", orders={"A": order})
        reactor = kinetics.Batch([kinetics.Reaction("A -> P", law)], bounds={"k": (0, 10)})
        made[name] = igpe.Problem(reactor, parameters=["k"], experiments=run)
    return made


def rise(right, rival, start, times, *, uncertain, errors=1.0):
    """D' (V + S C S')^-1 D by dense matrices."""
    difference = exact(right, start, times)[0] - exact(rival, start, times)[0]
    covariance = errors * SIGMA**2 * np.eye(len(times))
    for name in uncertain:
        known = exact(name, 1.0, TIMES)[1] / SIGMA
        slope = exact(name, start, times)[1]
        covariance += np.outer(slope, slope) / (known @ known)
    return float(difference @ np.linalg.solve(covariance, difference))


def rise_of_a_fit(rival, *planned):
    """Rise of the least sum of squares of a rival by what the other predicts for a plan."""
    runs = [(*one, right) for right, *one in [("first", 1.0, TIMES), *planned]]

    def least(runs):
        def squares(k):
            parts = [exact(rival, s, t, k)[0] - exact(right, s, t)[0] for s, t, right in runs]
            return float(np.sum(np.concatenate(parts) ** 2)) / SIGMA**2

        return minimize_scalar(squares, bounds=(0, 10), options={"xatol": 1e-9}).fun

    return least(runs) - least(runs[:1])


def plan(criterion, **settings):
    given = {"times": igpe.planning.Sampling(CANDIDATES, at_most=3)} | settings
    free = {"A": igpe.planning.Between(0.5, 2.0)}
    return igpe.planning.discriminate(
        problems(), VALUES, free=free, measure={"A": SIGMA}, criterion=criterion, pool=32, **given
    )


@pytest.mark.parametrize("criterion", [BoxHill(), BuzziFerraris(), HunterReiner()])
def test_the_expected_rise_is_that_of_a_new_fit(criterion):
    made = plan(criterion)
    (e,) = made.experiments
    for right, rival in (("first", "second"), ("second", "first")):
        expected = rise_of_a_fit(rival, (right, e.settings["A(t0)"], e.times))
        assert made.power["expected"][(right, rival)] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("criterion", "uncertain", "errors"),
    [
        (HunterReiner(), [()], 1.0),
        (BuzziFerraris(), [("first", "second")], 2.0),
        (BoxHill(), [("first",), ("second",)], 1.0),
    ],
)
def test_the_samples_are_the_best_of_all_by_enumeration(criterion, uncertain, errors):
    few = CANDIDATES[::2]
    made = plan(criterion, times=igpe.planning.Sampling(few, at_most=2))
    (e,) = made.experiments
    start = e.settings["A(t0)"]

    def value(times):
        times = np.array(times)
        return sum(
            rise("first", "second", start, times, uncertain=u, errors=errors) for u in uncertain
        )

    best = max(value((a, b)) for i, a in enumerate(few) for b in few[i + 1 :])
    assert value(e.times) == pytest.approx(best, rel=1e-3)
    assert start == pytest.approx(2.0)


def test_a_design_of_three_experiments_has_blocks_for_all_unknowns():
    made = plan(BoxHill(), experiments=3)
    planned = [("first", e.settings["A(t0)"], e.times) for e in made.experiments]
    expected = rise_of_a_fit("second", *planned)
    assert made.power["expected"][("first", "second")] == pytest.approx(expected, rel=1e-4)


def test_a_new_fit_has_the_unknowns_of_planned_experiments_too():
    """An unknown start value: each experiment has its own."""
    old = np.array([0.0, *TIMES])
    table = pd.DataFrame({"time": old, "A": exact("first", 1.0, old)[0]})
    run = igpe.Experiment(table, start={"A": igpe.Unknown(0.1, 5), "P": 0.0}, sigma=SIGMA)
    rivals = {
        n: igpe.Problem(p.model, parameters=["k"], experiments=run) for n, p in problems().items()
    }
    values = {n: {**VALUES[n], "A(t0)": 1.0} for n in rivals}
    new = np.linspace(0.0, 6.0, 5)
    made = igpe.planning.discriminate(rivals, values, times=list(new), pool=2)

    def errors(x, runs):
        k, *starts = x
        pairs = zip(starts, runs, strict=False)
        parts = [exact("second", a, t, k)[0] - exact("first", 1.0, t)[0] for a, t in pairs]
        return np.concatenate(parts) / SIGMA

    costs = [
        2 * least_squares(errors, [1.1, *[1.0] * len(runs)], args=(runs,), xtol=1e-12).cost
        for runs in ([old], [old, new])
    ]
    expected = made.power["expected"][("first", "second")]
    assert expected == pytest.approx(costs[1] - costs[0], rel=1e-4)


@pytest.mark.parametrize("criterion", [BoxHill(), BuzziFerraris(), HunterReiner()])
def test_the_gradient_of_the_search_is_that_of_differences(criterion):
    shared = {
        "free": {"A": igpe.planning.Between(0.5, 2.0)}, "conditions": {},
        "times": igpe.planning.Sampling(CANDIDATES, at_most=3), "measure": {"A": SIGMA},
        "criterion": DOptimal(), "count": 2, "existing": True, "like": None,
        "integrator": Automatic(),
    }  # fmt: skip
    posed = {n: read_design(p, VALUES[n], **shared) for n, p in problems().items()}
    design = RivalDesign(posed, criterion.pairs({"first": 0.7, "second": 0.3}))
    search = DesignSearch(design, design.pairs, 8, 1, 0)
    loss = search.loss(np.full((2, len(CANDIDATES), 1), 0.3))
    at, step = np.array([0.3, 0.6]), 1e-4
    slope = [(loss(at + step * d)[0] - loss(at - step * d)[0]) / (2 * step) for d in np.eye(2)]
    assert loss(at)[1] == pytest.approx(np.array(slope), rel=1e-3)


@repeated(10, 80)
def test_the_power_is_the_share_of_simulated_experiments(repetitions):
    old = pd.DataFrame({"time": TIMES, "A": exact("first", 1.0, TIMES)[0] + [0.02, -0.01, 0.01]})
    fitted = {n: igpe.SingleShooting().estimate(p, VALUES[n]) for n, p in problems(old).items()}
    least = min(f.objective for f in fitted.values())
    made = igpe.planning.discriminate(
        problems(old),
        fitted,
        deltas={n: f.objective - least for n, f in fitted.items()},
        times=igpe.planning.Sampling(np.linspace(0.5, 2.5, 9), at_most=2, spacing=0.5),
        measure={"A": 0.045},
        pool=4,
    )
    power = made.power["power"][("first", "second")]
    assert 0.2 < power < 0.9
    hits = 0
    for seed in range(repetitions):
        both = [old, made.simulated(seed, "first")[["time", "A"]]]
        runs = [
            igpe.Experiment(t, name=f"r{s}", start={"A": 1.0, "P": 0.0}, start_time=0.0, sigma=s)
            for s, t in zip((SIGMA, 0.045), both, strict=True)
        ]
        cost = {}
        for name, problem in problems(old).items():
            again = igpe.Problem(problem.model, parameters=["k"], experiments=runs)
            cost[name] = igpe.SingleShooting().estimate(again, VALUES[name]).objective
        hits += cost["second"] - cost["first"] > 10
    spread = np.sqrt(power * (1 - power) / repetitions)
    assert hits / repetitions == pytest.approx(power, abs=3.3 * spread + 0.05)  # and nonlinearity


def test_the_power_without_sigma_is_that_of_aicc():
    """AICc is n log S then: a rise of S by many variances changes it by far less."""
    times, new = np.array([0.4, 0.8, 1.2, 1.6]), np.array([2.0, 2.5, 3.0])
    old = exact("first", 1.0, times)[0] + SIGMA * np.array([-0.9, 1.0, 0.6, -0.8])
    rates = np.linspace(0.3, 2.5, 1500)[:, None]
    curves = {"first": lambda k, t: np.exp(-k * t), "second": lambda k, t: 1 / (1 + k * t)}
    before = {n: np.sum((h(rates, times) - old) ** 2, axis=1) for n, h in curves.items()}
    values = {n: {"k": float(rates[np.argmin(s), 0])} for n, s in before.items()}
    deltas = {n: 4 * np.log(s.min() / before["first"].min()) for n, s in before.items()}
    made = igpe.planning.discriminate(
        problems(pd.DataFrame({"time": times, "A": old}), None), values, deltas=deltas,
        times=list(new), pool=2,
    )  # fmt: skip
    noise = np.random.default_rng(1).standard_normal((500, 1, 3))
    noise *= np.sqrt(before["first"].min() / 3)
    for right, rival in (("first", "second"), ("second", "first")):
        drawn = curves[right](values[right]["k"], new) + noise
        least = {
            n: (before[n] + np.sum((h(rates, new) - drawn) ** 2, axis=2)).min(axis=1)
            for n, h in curves.items()
        }
        share = np.mean(7 * np.log(least[rival] / least[right]) > 10)
        assert made.power["power"][(right, rival)] == pytest.approx(share, abs=0.05)


def test_what_does_not_fit_is_refused():
    every = problems()
    with pytest.raises(ProblemError, match="two or more models"):
        igpe.planning.discriminate({"first": every["first"]}, VALUES)
    with pytest.raises(ProblemError, match="parameters are missing for"):
        igpe.planning.discriminate(every, {"first": {"k": 1.0}})
    with pytest.raises(ProblemError, match="In the rival 'first'"):
        igpe.planning.discriminate(every, VALUES, free={"X": igpe.planning.Between(0, 1)})
    with pytest.raises(ProblemError, match="`deltas` lacks"):
        igpe.planning.discriminate(every, VALUES, deltas={"first": 0.0})
    with pytest.raises(ProblemError, match="BoxHill"):
        igpe.planning.discriminate(every, VALUES, criterion=DOptimal())
    made = plan(BoxHill())
    with pytest.raises(ProblemError, match="no rival 'third'"):
        made.simulated(0, "third")
