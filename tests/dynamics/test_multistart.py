"""Many starts: the best of them, and methods as functions of the start."""

import lotka_volterra_iss
import numpy as np
import pytest
from zoo import CASES

import igpe
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.limits import allowed
from igpe.dynamics.search.multistart import IteratedSearch, MultiStart
from igpe.dynamics.shooting.base import from_many_starts
from igpe.dynamics.shooting.single_shooting import PreparedShooting
from igpe.numerics.optima import distinct_estimates
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

SEARCHES = [
    MultiStart(trials=32, starts=4),
    IteratedSearch(starts=12, patience=6, most=12, finalists=1),
]


@pytest.mark.parametrize("search", SEARCHES, ids=["multistart", "iterated"])
@pytest.mark.parametrize("name", ["consecutive", "michaelis_menten", "reversible", "dimer"])
def test_the_truth_is_found_without_a_start(name, search):
    case = CASES[name]
    found = search.estimate(case.problem(), {})
    assert found.status is Status.BEST_OF_SEVERAL
    assert found.parameters == pytest.approx(case.truth, rel=1e-4)


def test_a_given_start_is_one_more():
    case = CASES["consecutive"]
    found = MultiStart(trials=2, starts=1).estimate(case.problem(), case.near)
    assert "best of 2 starts" in found.method
    assert found.parameters == pytest.approx(case.truth, rel=1e-4)


class Remembers:
    """A local method that says how often it was asked, and whence."""

    def __init__(self):
        self.starts = []

    def estimate(self, problem, start, profiles=()):
        """As an Estimator: the objective is the start's first number."""
        self.starts.append(dict(start))
        value = next(iter(start.values()))
        return Estimate(start, value, Status.CONVERGED, "remembered")


def test_other_local_methods_begin_at_every_start():
    local = Remembers()
    problem = CASES["consecutive"].problem()
    found = MultiStart(local=local, starts=5).estimate(problem, {"k1": 0.5, "k2": 0.5})
    assert len(local.starts) == 6
    assert local.starts[0] == {"k1": 0.5, "k2": 0.5}
    assert found.objective == min(s["k1"] for s in local.starts)
    objectives = [e.objective for e in found.trail]
    assert objectives == sorted(objectives)


def test_distinct_optima_are_sorted_and_usable():
    made = [
        Estimate({"a": a, "b": 3.0 - a}, cost, status)
        for a, cost, status in [
            (1.0, 2.0, Status.CONVERGED),
            (1.0, 1.0, Status.ITERATION_LIMIT),
            (1.00001, 1.00001, Status.CONVERGED),
            (2.0, 1.00001, Status.CONVERGED),  # as good, at other values
            (1.0, 0.5, Status.INTEGRATION_BROKE),
            (1.0, np.inf, Status.FAILED),
        ]
    ]
    box = Box(("a", "b"), np.zeros(2), np.full(2, 5.0))
    assert [e.objective for e in distinct_estimates(made, box)] == [1.0, 1.00001, 2.0]


@pytest.mark.parametrize(
    ("search", "says"),
    [(MultiStart(), r"missing for \['k'\]"), (IteratedSearch(), "needs finite bounds")],
)
def test_bounds_are_needed(search, says):
    case = CASES["decay"]
    runs = case.problem().experiments
    problem = Problem(case.builder, parameters={"k": (0, None)}, experiments=runs)
    with pytest.raises(ProblemError, match=says):
        search.estimate(problem, {})


def test_where_no_trial_can_be_simulated():
    case = CASES["logistic"]
    escapes = Experiment(case.data(), start={"X": -0.3}, start_time=0.0)
    bounds = {"r": (4, 5), "K": (0.5, 0.6)}
    problem = Problem(case.builder, parameters=bounds, experiments=escapes)
    found = MultiStart(trials=4, starts=2).estimate(problem, {})
    assert (found.status, found.objective) == (Status.INTEGRATION_BROKE, np.inf)
    assert "any of 4 trial points" in found.method


@pytest.mark.parametrize(("slow", "searches"), [(1, 3), (3, 4)])
def test_slow_trials_are_searched_from_only_if_most_are_slow(monkeypatch, slow, searches):
    quick = PreparedShooting.cost
    problem = CASES["consecutive"].problem()
    points = problem.box.sobol(4, 0)[:slow]

    def cost(self, x):
        is_slow = any((x == point).all() for point in points)
        return None if is_slow and allowed() is not None else quick(self, x)

    monkeypatch.setattr(PreparedShooting, "cost", cost)
    found = MultiStart(trials=4, starts=4).estimate(problem, {})
    assert found.method.startswith(f"best of {searches} starts")


def test_an_interrupt_keeps_the_searches_that_are_finished():
    """Of any local method; before the first usable one the interrupt goes through."""

    class Local:
        def __init__(self, ends):
            self.ends = iter(ends)

        def estimate(self, problem, start, profiles=()):
            cost, status = next(self.ends)
            if status is None:
                raise KeyboardInterrupt
            return Estimate(dict(start), cost, status, "local")

    problem = CASES["consecutive"].problem()
    ok, broke = Status.CONVERGED, Status.INTEGRATION_BROKE
    ends = [(np.inf, broke), (5.0, ok), (3.0, ok), (0.0, None)]
    found = MultiStart(Local(ends)).estimate(problem, {})
    assert (found.status, found.objective) == (Status.INTERRUPTED, 3.0)
    assert found.method == "best of 3 starts, local"
    for early in ([(0.0, None)], [(np.inf, broke), (0.0, None)]):
        with pytest.raises(KeyboardInterrupt):
            MultiStart(Local(early)).estimate(problem, {})


class Told:
    """Keeps the profiles it is prepared with."""

    def prepare(self, problem, profiles=()):
        self.profiles = profiles
        return igpe.SingleShooting().prepare(problem)


def test_profiles_reach_a_method_that_is_prepared_once():
    method, profiles = Told(), (lambda name, times: times,)
    search = from_many_starts(method, lotka_volterra_iss.problem(), profiles)
    assert method.profiles is profiles
    assert search(lotka_volterra_iss.TRUTH).objective < 20


def test_profiles_move_the_nodes_of_multiple_shooting():
    asked = []

    def profile(name, times):
        asked.append(name)

    from_many_starts(igpe.MultipleShooting(), lotka_volterra_iss.problem(), (profile,))
    assert set(asked) == {"y1", "y2"}
