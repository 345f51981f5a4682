"""Multiple shooting that ends at a time limit with the best so far."""

import pytest
from zoo import CASES

from igpe.core import deadline
from igpe.core.deadline import NEVER, Deadline
from igpe.core.errors import ProblemError
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.problem.experiment import Experiment
from igpe.problem.noise.sigma import Noise
from igpe.problem.problem import Problem

CASE = CASES["lotka_volterra"]
FAR = {n: 3.0 * v for n, v in CASE.truth.items()}


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a second at each look."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(deadline.time, "perf_counter", lambda: float(next(ticks)))


def single(problem, parameters):
    """The sum of squares of one integration."""
    residuals = Residuals(problem, Automatic(1e-10, 1e-12))
    return residuals(problem.box.vector(parameters)).cost


def test_after_the_deadline_the_start_alone_is_evaluated():
    calls = []
    over = Deadline(-1.0).keeping(lambda x: calls.append(x) or x)
    assert (over(1), over(2), over(3)) == (1, None, None)
    assert calls == [1]
    assert not NEVER.over
    assert Deadline.after(None) == NEVER
    assert Deadline.after(1e-9).over


@pytest.mark.parametrize("limit", [1e-9, 5.0])
@pytest.mark.usefixtures("ticking")
def test_what_is_found_in_time_is_told_as_it_is(limit):
    """Nodes that do not meet yet are no answer: it is what one integration gives."""
    problem = CASE.problem(noise=0.05)
    found = MultipleShooting(time_limit=limit).estimate(problem, FAR)
    assert found.status is Status.TIME_LIMIT
    assert found.objective == pytest.approx(single(problem, found.parameters), rel=1e-6)
    began = single(problem, FAR)
    assert found.objective == pytest.approx(began) if limit < 1 else found.objective < 0.9 * began
    assert found.notes[-1].startswith(f"The time limit of {limit:g} s ended the search")
    assert {h.status for h in found.trail} == {Status.TIME_LIMIT}


@pytest.mark.usefixtures("ticking")
def test_a_limit_may_end_the_search_for_better_starts_alone():
    problem = CASE.problem(noise=0.05)
    found = MultipleShooting(time_limit=20.0).estimate(problem, FAR)
    assert found.status is Status.CONVERGED
    assert "The time limit of 20 s ended the search" in found.notes[-1]
    free = MultipleShooting(time_limit=1e6).estimate(problem, FAR)
    assert free.status is Status.BEST_OF_SEVERAL
    assert not any("time limit" in note for note in free.notes)
    assert free.objective == pytest.approx(found.objective)


@pytest.mark.usefixtures("ticking")
def test_one_limit_for_all_searches_where_errors_follow_the_model():
    known = {"start": CASE.start, "start_time": 0.0, "sigma": Noise(absolute=0.01, relative=0.05)}
    run = Experiment(CASE.data(0.05), **known)
    problem = Problem(CASE.builder, parameters=list(CASE.truth), experiments=[run])
    found = MultipleShooting(time_limit=5.0).estimate(problem, FAR)
    assert found.status is Status.TIME_LIMIT


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "1"])
def test_a_limit_that_is_none_is_refused(bad):
    with pytest.raises(ProblemError, match=r"time_limit.*a positive number, or None"):
        MultipleShooting(time_limit=bad)
