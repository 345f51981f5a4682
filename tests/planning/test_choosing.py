"""The choice of samples: against all choices, one by one."""

from itertools import combinations, product

import numpy as np
import pytest
from repeated import statistical

import igpe
from igpe.planning.information import (
    DesignInformation,
    RegularisedCriterion,
    UnknownSpace,
    covariance,
)
from igpe.planning.sample_choice import SamplingRules, choose, sets_of_quantities

P = igpe.planning

N, TIMES = 3, np.linspace(0.0, 9.0, 10)
CRITERIA = [P.DOptimal(), P.AOptimal(), P.EOptimal(), P.ModifiedE()]
CONCAVE = CRITERIA[:3]


def evidence(criterion, *, experiments=1, measured=1, own=0, scenarios=1, interest=None, seed=0):
    """Random rows; with `own` the last unknown is each experiment's own."""
    random = np.random.default_rng(seed)
    n = N - own + own * experiments
    places = [[*range(N - own), *([N - own + e] if own else [])] for e in range(experiments)]
    looked_at = np.arange(N - own) if interest is None else np.array(interest)
    space = UnknownSpace(tuple("abcdefg"[:n]), np.ones(n), np.array(places), looked_at)
    rows = [
        random.standard_normal((experiments, len(TIMES), measured, 1, N)) for _ in range(scenarios)
    ]
    return DesignInformation(
        space, RegularisedCriterion(criterion, looked_at), [np.zeros((n, n))] * scenarios, rows
    )


def every(allowed, experiments, fewest=None):
    """All allowed choices of the largest number, or of `fewest` and more."""

    def apart(picked):
        return all(b - a >= allowed.spacing for a, b in combinations(TIMES[list(picked)], 2))

    sizes = range(allowed.at_most if fewest is None else fewest, allowed.at_most + 1)
    sets = [p for k in sizes for p in combinations(range(len(TIMES)), k) if apart(p)]
    for quantities in allowed.quantities:
        for chosen in product(sets, repeat=experiments):
            taken = np.zeros((experiments, len(TIMES), len(quantities)), dtype=bool)
            for e, picked in enumerate(chosen):
                taken[e, list(picked)] = quantities
            yield taken


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *map(statistical, (1, 2))])
@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize(
    ("case", "allowed"),
    [
        ({}, SamplingRules(TIMES, 4, 0.0, sets_of_quantities(1, None))),
        ({}, SamplingRules(TIMES, 3, 2.0, sets_of_quantities(1, None))),
        ({"measured": 3}, SamplingRules(TIMES, 3, 0.0, sets_of_quantities(3, 1))),
        ({"experiments": 2}, SamplingRules(TIMES, 2, 3.0, sets_of_quantities(1, None))),
        ({"experiments": 2, "own": 1}, SamplingRules(TIMES, 3, 2.0, sets_of_quantities(1, None))),
        ({"scenarios": 3, "measured": 2}, SamplingRules(TIMES, 3, 1.0, sets_of_quantities(2, 1))),
    ],
    ids=["times", "spacing", "quantities", "experiments", "own", "scenarios"],
)
def test_the_bound_holds_and_the_choice_is_the_best_or_nearly(case, allowed, criterion, seed):
    if seed > 1 and not criterion.concave:
        pytest.skip("all choices of all sizes take long")
    given = evidence(criterion, seed=seed, **case)
    chosen = choose(given, allowed)
    fewest = None if criterion.concave else 1
    every_choice = every(allowed, case.get("experiments", 1), fewest)
    values = [given.value(v.astype(float)) for v in every_choice]
    best = max(values)
    assert chosen.value <= best + 1e-9  # it is one of them
    assert chosen.value == pytest.approx(given.value(chosen.taken.astype(float)))
    if criterion.concave:
        assert chosen.bound >= best - 1e-9
        assert chosen.value >= best - 0.1
        assert 0.3 < chosen.efficiency <= 1
    else:
        assert np.isnan(chosen.efficiency)
        assert chosen.value >= best - np.log(1.01)


@pytest.mark.parametrize("criterion", CONCAVE, ids=lambda c: type(c).__name__)
def test_many_samples_are_nearly_proven(criterion):
    """The more samples, the less is lost by rounding weights."""
    allowed = SamplingRules(TIMES, 7, 0.0, sets_of_quantities(1, None))
    assert choose(evidence(criterion, experiments=3), allowed).efficiency > 0.97


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("interest", [None, [1], [0, 2]])
def test_slopes_of_the_criterion_are_its_differences(criterion, interest):
    if interest == [1] and isinstance(criterion, igpe.planning.ModifiedE):
        pytest.skip("one unknown has no shape")
    given = evidence(criterion, measured=2, scenarios=2, interest=interest)
    weights = np.random.default_rng(1).uniform(0.2, 1.0, given.shape)
    gains = given.gains(weights)
    for place in [(0, 0, 0), (0, 4, 1), (0, 9, 0)]:
        step = np.zeros(given.shape)
        step[place] = 1e-5
        difference = (given.value(weights + step) - given.value(weights - step)) / 2e-5
        assert gains[place] == pytest.approx(difference, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("criterion", CONCAVE, ids=lambda c: type(c).__name__)
def test_twice_the_replicates_are_twice_the_information(criterion):
    """exp(Φ) is homogeneous, so that an efficiency is a share of replicates."""
    f = np.cov(np.random.default_rng(0).standard_normal((3, 9)))
    once, twice = (criterion.log_information(covariance(k * f)) for k in (1.0, 2.0))
    assert np.exp(twice - once) == pytest.approx(2.0)


@pytest.mark.parametrize("criterion", CONCAVE, ids=lambda c: type(c).__name__)
def test_it_is_concave_in_the_information(criterion):
    random = np.random.default_rng(3)
    for _ in range(50):
        a, b = (np.cov(random.standard_normal((3, 6))) for _ in range(2))
        judge = RegularisedCriterion(criterion, np.array([0, 1]))
        assert judge((a + b) / 2) >= (judge(a) + judge(b)) / 2 - 1e-12


def test_the_error_is_the_ellipsoids():
    c = np.diag([0.04, 0.01])
    told = {type(k).__name__: float(np.exp(-k.log_information(c) / 2)) for k in CRITERIA}
    assert told == pytest.approx({
        "DOptimal": (0.2 * 0.1) ** 0.5,
        "AOptimal": (0.05 / 2) ** 0.5,
        "EOptimal": 0.2,
        "ModifiedE": 2.0,
    })
