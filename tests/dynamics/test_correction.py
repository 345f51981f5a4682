"""Step 5 of many states that are measured: multiple shooting, until two candidates agree."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from scipy.linalg import expm

import igpe
from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.search import complement
from igpe.dynamics.search.complement import corrections
from igpe.dynamics.shooting.base import MANY_STATES
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting

TRUTH = np.array([1.0, 2.0, 4.0])
START = {"k[0]": 0.3, "k[1]": 6.0, "k[2]": 1.2}


def _chain(states=MANY_STATES):
    """A1 -> A2 -> ..., three rate constants by turns, all measured with 2 % noise."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.i = pyo.RangeSet(0, states - 1)
        m.x = pyo.Var(m.i, m.t)
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)
        m.k = pyo.Var(range(3), bounds=(0.01, 100))

        @m.Constraint(m.i, m.t)
        def balance(m, i, t):
            gain = m.k[(i - 1) % 3] * m.x[i - 1, t] if i else 0.0
            return m.dx[i, t] == gain - m.k[i % 3] * m.x[i, t]

        return m

    rates = TRUTH[np.arange(states) % 3]
    slopes = np.diag(rates[:-1], -1) - np.diag(rates)
    times, names = np.linspace(0, 15, 31), [f"x[{i}]" for i in range(states)]
    values = np.array([expm(slopes * t)[:, 0] for t in times])
    values += 0.02 * np.random.default_rng(0).standard_normal(values.shape)
    data = pd.DataFrame(values, columns=names).assign(time=times)
    start = {n: float(n == "x[0]") for n in names}
    run = igpe.Experiment(data, start=start, sigma=0.02, start_time=0.0)
    return igpe.Problem(build, parameters=list(START), experiments=[run])


@pytest.fixture(scope="module")
def chain():
    return _chain()


@pytest.mark.slow
def test_many_measured_states_are_corrected_in_intervals_until_two_agree(chain):
    ends = corrections(chain, [START] * 3, [()] * 3)
    assert len(ends) == complement.AGREEING
    for end in ends:
        assert end.method == "multiple shooting"
        assert list(end.parameters.values()) == pytest.approx(TRUTH, rel=0.05)
        assert end.objective == pytest.approx(chain.size, rel=0.1)


@pytest.mark.slow
def test_the_whole_estimate_is_right_and_counts_the_candidates_that_it_corrected(chain):
    result = igpe.estimate(chain, certify=False)
    assert len(result.candidates) == complement.AGREEING
    for one, true in zip(result.estimates, TRUTH, strict=True):
        assert abs(one.value - true) < 4 * one.standard_error


@pytest.mark.parametrize("failure", ["refused", "broken"])
def test_collocation_corrects_where_intervals_give_no_answer(chain, monkeypatch, failure):
    def failed(self, problem, start, profiles=()):
        if failure == "refused":
            raise Unsupported("no")
        return igpe.Estimate(dict(start), np.inf, Status.INTEGRATION_BROKE, "nothing")

    monkeypatch.setattr(MultipleShooting, "estimate", failed)
    (end,) = corrections(chain, [dict(zip(START, TRUTH, strict=True))], [()])
    assert end.method.startswith("simultaneous correction")
    assert end.objective == pytest.approx(chain.size, rel=0.1)


def test_few_states_are_corrected_by_collocation(monkeypatch):
    def never(self, problem, start, profiles=()):
        raise AssertionError

    monkeypatch.setattr(MultipleShooting, "estimate", never)
    ends = corrections(_chain(3), [START] * 3, [()] * 3)
    assert len(ends) == 3
    assert list(ends[0].parameters.values()) == pytest.approx(TRUTH, rel=0.15)
