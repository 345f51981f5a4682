"""Settings from a list, and settings that all experiments of a plan share: against all of them."""

from itertools import combinations, combinations_with_replacement, product

import kinetics
import numpy as np
import pyomo.environ as pyo
import pytest

import igpe

P = igpe.planning
V, K, KI = 2.0, 1.5, 1.0


def inhibited(times):
    """Michaelis and Menten's rate with a competitive inhibitor I."""
    m = kinetics.enzyme(times)
    m.I = pyo.Param(mutable=True, default=0.0)
    m.Ki = pyo.Var(bounds=(0.01, 100))
    m.del_component(m.rate)
    rate = m.Vmax * m.S / (m.Km * (1 + m.I / m.Ki) + m.S)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dP[t] == rate)
    return m


def gained(s, i):
    """log det of the information of measurements at the time 1; Vmax is known."""
    s, i = np.broadcast_arrays(s, i)
    below = K * (1 + i / KI) + s
    rows = np.array([-V * s * (1 + i / KI) / below**2, V * s * K * i / KI**2 / below**2]).T
    return np.linalg.slogdet(rows.T @ rows)[1]


def planned(**free):
    """Settings S and I of two experiments."""
    nothing = P.ProblemWithoutData(
        inhibited, ["Km", "Ki"], ["P"], 1.0, start={"P": 0.0}, inputs={"Vmax": V}
    )
    at = {"Km": K, "Ki": KI}
    plan = igpe.design(
        nothing, at, free=free, times=[1.0], measure={"P": 0.01}, experiments=2, seed=1
    )
    return plan.settings.loc[["S", "I"], ["plan1", "plan2"]].to_numpy()


def test_discrete_settings_are_the_best_of_all_combinations():
    amounts, inhibitor = (0.2, 0.7, 1.4, 3.0, 5.0), (0.0, 0.5, 2.0, 4.0)
    found = planned(S=P.OneOf(amounts), I=P.OneOf(inhibitor))
    pairs = combinations_with_replacement(product(amounts, inhibitor), 2)
    best = max(pairs, key=lambda pair: gained(*np.transpose(pair)))
    assert sorted(map(tuple, found.T)) == sorted(best)


def most(s):
    """The best that two experiments with this S can have."""
    return max(gained(s, pair) for pair in combinations(np.linspace(0.0, 5.0, 11), 2))


def test_a_shared_setting_is_the_best_that_all_experiments_can_have():
    levels = (0.2, 0.7, 3.3, 5.0)
    found = planned(S=P.OneOf(levels, shared=True), I=P.Between(0.0, 5.0))
    best = max(levels, key=most)
    assert best in levels[1:-1]  # at neither end, so that the search has to look
    assert found[0] == pytest.approx([best, best])


def test_a_shared_number_is_searched_as_one():
    found = planned(S=P.Between(0.01, 5.0, shared=True), I=P.Between(0.0, 5.0))
    assert found[0, 0] == found[0, 1]
    assert found[0, 0] == pytest.approx(max(np.linspace(2, 4, 21), key=most), abs=0.1)
    assert gained(*found) >= most(found[0, 0]) - 1e-6


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 1.0), (1.0, float("nan")), ("a", 1.0), 3.0])
def test_values_must_be_two_or_more_numbers(values):
    with pytest.raises(igpe.errors.ProblemError, match="two or more different finite"):
        P.OneOf(values)
