"""Step 5 of many states that are measured: multiple shooting, until two candidates agree."""

import numpy as np
import pandas as pd
import pytest
from ode import ode, row
from scipy.linalg import expm

import igpe
from igpe.core.box import SMALLEST, Box
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

    def slope(m, i, t):
        gain = m.k[(i - 1) % 3] * m.x[i - 1, t] if i else 0.0
        return gain - m.k[i % 3] * m.x[i, t]

    build = row(range(states), slope, indexed={"k": (range(3), (0.01, 100))})
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
def test_many_measured_states_are_corrected_in_intervals_until_two_agree(chain, monkeypatch):
    monkeypatch.setattr(complement, "_even", lambda problem, starts: None)
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


def test_where_all_starts_are_far_off_the_search_begins_at_one_share_of_all_ranges(
    chain, monkeypatch
):
    monkeypatch.setattr(complement, "DEAR", 0)
    (end,) = corrections(chain, [dict.fromkeys(START, 0.01)] * 3, [()] * 3)
    assert end.method.endswith("starting at one share of the ranges of all unknowns")
    assert list(end.parameters.values()) == pytest.approx(TRUTH, rel=0.05)
    assert end.objective == pytest.approx(chain.size, rel=0.1)


def test_one_share_of_all_ranges_ends_the_search_only_where_derivatives_take_long(
    chain, monkeypatch
):
    start = dict(zip(START, TRUTH, strict=True))
    explained = igpe.Estimate(start, float(chain.size), Status.CONVERGED, "one share")
    better = igpe.Estimate(start, chain.size - 50.0, Status.CONVERGED, "better")
    monkeypatch.setattr(MultipleShooting, "estimate", lambda *_: better)
    monkeypatch.setattr(complement, "_even", lambda problem, starts: explained)
    assert corrections(chain, [start] * 3, [()] * 3) == [better, better]
    monkeypatch.setattr(complement, "DEAR", 0)
    assert corrections(chain, [start] * 3, [()] * 3) == [explained]


def test_what_begins_at_one_share_does_not_end_the_search_if_errors_do_not_explain_it(
    chain, monkeypatch
):
    start = dict(zip(START, TRUTH, strict=True))
    worse = igpe.Estimate(start, 2 * chain.size, Status.CONVERGED, "worse")
    better = igpe.Estimate(start, 1.5 * chain.size, Status.CONVERGED, "better")
    monkeypatch.setattr(MultipleShooting, "estimate", lambda *_: worse)
    monkeypatch.setattr(complement, "_even", lambda problem, starts: better)
    assert corrections(chain, [start] * 3, [()] * 3) == [better, worse]


def test_starts_that_fit_better_than_one_share_of_all_ranges_are_kept(chain):
    assert complement._even(chain, [dict(zip(START, TRUTH, strict=True))]) is None


def test_without_bounds_there_are_no_shares():
    build = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0, None))

    data = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": [1.0, 0.4, 0.1]})
    problem = igpe.Problem(
        build, parameters=["k"], experiments=[igpe.Experiment(data, start={"x": 1.0}, sigma=0.1)]
    )
    assert complement._even(problem, [{"k": 1.0}]) is None


def test_a_diagonal_has_one_share_of_all_ranges():
    box = Box(("a", "b", "c"), np.array([0.01, 0.0, -1.0]), np.array([100.0, 1.0, 3.0]))
    points = box.diagonal(3)
    assert points[0] == pytest.approx(box.lower, abs=1e-3)
    assert points[1] == pytest.approx([1.0, np.sqrt(SMALLEST), 1.0])
    assert points[2] == pytest.approx(box.upper)
