"""Rival models: ranking, what cannot be told apart, and what happens when something goes wrong."""

import os
import signal

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest

import igpe
from igpe import kinetics
from igpe.core.errors import DataError, EstimationFailed, ProblemError
from igpe.selection import rivals

TIMES, SIGMA = np.linspace(0.3, 4.0, 10), 0.02
POSSIBLE = ["A -> B", "B -> C", "A -> C", "2 A -> C"]
BOUNDS = {f"k{k}": (0, 10) for k in range(1, 5)}


def run(name, start, *, seed, measured=("A", "B")):
    """A -> B -> C with k1 = 0.9, k2 = 0.4, in closed form."""
    k1, k2 = 0.9, 0.4
    a = start * np.exp(-k1 * TIMES)
    b = start * k1 / (k1 - k2) * (np.exp(-k2 * TIMES) - np.exp(-k1 * TIMES))
    random = np.random.default_rng(seed)
    exact = {"A": a, "B": b, "C": start - a - b}
    data = {n: exact[n] + SIGMA * random.standard_normal(len(TIMES)) for n in measured}
    begin = {"A": start, "B": 0.0, "C": 0.0}
    return igpe.Experiment(
        pd.DataFrame({"time": TIMES} | data), name=name, start=begin, sigma=SIGMA
    )


def problems(names, runs):
    networks = kinetics.networks(POSSIBLE, at_most=3, present=["A"], bounds=BOUNDS)
    chosen = {n: networks[n] for n in names}
    return {
        n: igpe.Problem(r, parameters=r.parameters, experiments=runs) for n, r in chosen.items()
    }


NAMES = ["A -> C", "A -> B; B -> C", "A -> B; A -> C", "A -> B; B -> C; A -> C"]
RUNS = [run("one", 1.0, seed=1), run("two", 0.6, seed=2)]


@pytest.fixture(name="every", scope="module")
def _every():
    return problems(NAMES, RUNS)


@pytest.fixture(name="ranked", scope="module")
def _ranked(every):
    return igpe.rivals(every, seed=0)


def test_the_right_network_is_first_and_the_wrong_ones_have_no_support(ranked):
    assert ranked.table.index[0] == "A -> B; B -> C"
    assert ranked.best is ranked.results["A -> B; B -> C"]
    assert ranked.table["delta"]["A -> C"] > 100
    assert ranked.table["within"]["A -> B; B -> C"] == "A -> B; B -> C; A -> C"
    assert ranked.table["lack_of_fit"]["A -> C"] < 0.01 < ranked.table["lack_of_fit"].iloc[0]
    assert ranked.complete
    assert not ranked.failures
    assert "no support" in str(ranked)


def test_criteria_are_those_of_the_residuals(ranked):
    n, best = 40, ranked.best
    for name, result in ranked.results.items():
        k = len(result.estimates)
        other = best.objective + 2 * 2 + 2 * 2 * 3 / (n - 3)
        own = result.objective + 2 * k + 2 * k * (k + 1) / (n - k - 1)
        assert ranked.table["delta"][name] == pytest.approx(own - other, abs=1e-6)


def test_left_out_experiments_are_predicted_by_fits_to_the_others(ranked, every):
    """The closed form, fitted by SciPy to one experiment, predicts the other."""
    from scipy.optimize import least_squares  # noqa: PLC0415

    def errors(k, e):
        k1, k2 = k
        start = e.start["A"]
        a = start * np.exp(-k1 * TIMES)
        b = start * k1 / (k1 - k2) * (np.exp(-k2 * TIMES) - np.exp(-k1 * TIMES))
        m = e.measurements
        return np.concatenate([a - m.of("A")[1], b - m.of("B")[1]]) / SIGMA

    squares = 0.0
    for one, other in (RUNS, RUNS[::-1]):
        fit = least_squares(errors, [1.0, 0.5], args=(one,))
        squares += float(np.sum(errors(fit.x, other) ** 2))
    assert ranked.table["left_out"]["A -> B; B -> C"] == pytest.approx(
        (squares / 40) ** 0.5, rel=1e-3
    )


def test_a_prediction_that_the_other_experiments_leave_open_is_none():
    """Without B nothing tells k2, and the fit to all would lend its value."""
    runs = [run("one", 1.0, seed=1, measured=("A",)), run("two", 0.6, seed=2)]
    found = igpe.rivals(problems(NAMES[1:3], runs), seed=0, behaviour=False)
    assert np.isnan(found.table["left_out"]["A -> B; B -> C"])
    assert any(note.startswith("left_out is empty for A -> B") for note in found.notes)


def test_an_experiment_with_a_start_value_of_its_own_is_not_left_out():
    """The fit to the others says nothing of it: it would be taken from the fit to all."""
    reactor = kinetics.Batch(["A -> B"], bounds={"k1": (0, 10)})
    bounds = {"k1": (0, 10), "first": (0, 5), "second": (0, 5)}

    def model(times):
        m = reactor(times)
        m.first, m.second = pyo.Var(), pyo.Var()
        return m

    def posed(*starts):
        data = pd.DataFrame({"time": TIMES, "A": np.exp(-0.9 * TIMES)})
        each = [
            igpe.Experiment(data, name=s + n, start={"A": s, "B": 0.0}, start_time=0.0, sigma=SIGMA)
            for n, s in zip("12", starts, strict=True)
        ]
        return igpe.Problem(model, parameters=bounds, experiments=each)

    assert rivals.can_leave_out(posed("first", "first"))
    assert not rivals.can_leave_out(posed("first", "second"))


def test_a_larger_network_is_not_excluded_and_algebra_tells_which_contains_which(ranked):
    small, large = "A -> B; B -> C", "A -> B; B -> C; A -> C"
    assert ranked.indistinguishable in ((large,), ())
    if ranked.indistinguishable:
        assert (small, large) in ranked.contained
        assert (large, small) not in ranked.contained
        assert ranked.behaviour.set_index(["right", "rival"])["how"][(large, small)] == "algebra"


def test_networks_with_the_same_outputs_are_reported():
    runs = [run("one", 1.0, seed=1, measured=("A",))]
    found = igpe.rivals(problems(["A -> B", "A -> C", "2 A -> C"], runs), seed=0)
    assert found.same == (("A -> B", "A -> C"),)
    assert set(found.results) - {"2 A -> C"} == {found.table.index[0], *found.indistinguishable}
    assert "have the same outputs" in str(found)


def test_networks_that_only_these_data_do_not_tell_apart_are_proved_to_differ():
    """Decay of first and second order, up to a tenth of the conversion."""
    times = np.linspace(0.05, 0.3, 6)
    data = pd.DataFrame({"time": times, "A": np.exp(-0.3 * times)})
    e = igpe.Experiment(data, start={"A": 1.0, "B": 0.0, "C": 0.0}, sigma=0.05)
    found = igpe.rivals(problems(["A -> B", "2 A -> C"], [e]), seed=0)
    assert len(found.indistinguishable) == 1
    assert len(found.separable) == 1
    assert "proved by algebra" in str(found)
    times = igpe.planning.Sampling(np.linspace(0.5, 20, 40), at_most=4)
    plan = found.design(free={"A": igpe.planning.Between(0.5, 2)}, times=times)
    assert plan.power["power"].min() > 0.9
    assert set(plan.courses["rival"]) == {"A -> B", "2 A -> C"}
    plan.plot()


@pytest.mark.slow
def test_a_store_keeps_finished_fits(every, ranked, tmp_path, monkeypatch):
    first = igpe.rivals(every, seed=0, store=tmp_path / "rivals.db", behaviour=False)
    monkeypatch.setattr(rivals, "estimate", None)
    again = igpe.rivals(every, seed=0, store=tmp_path / "rivals.db", behaviour=False)
    pd.testing.assert_frame_equal(first.table, again.table)
    pd.testing.assert_frame_equal(first.table, ranked.table)


def test_ctrl_c_keeps_what_is_done(every):
    def interrupt(sentence):
        if sentence.startswith("Rivals: 2 of 4"):
            raise KeyboardInterrupt

    found = igpe.rivals(every, seed=0, progress=interrupt, cross_validation=False)
    assert len(found.results) == 2
    assert not found.complete
    assert "Interrupted: 2 of 4 rivals were fitted." in str(found)


def test_a_store_keeps_no_unfinished_fit(every, tmp_path, monkeypatch):
    estimate, fitted = rivals.estimate, []

    def pressed(problem, *arguments, **named):
        result = estimate(problem, *arguments, **named)
        fitted.append(problem)
        if len(fitted) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(rivals, "estimate", pressed)
    given = {"seed": 0, "store": tmp_path / "rivals.db", "behaviour": False}
    first = igpe.rivals(dict(list(every.items())[:3]), **given)
    assert (len(first.results), first.complete) == (1, False)
    again = igpe.rivals(dict(list(every.items())[:3]), **given)
    assert again.complete
    assert len(fitted) == 4  # the second once more


@pytest.mark.slow
def test_a_rival_without_a_fit_is_reported_and_the_others_are_ranked(every, monkeypatch):
    estimate = rivals.estimate

    def breaking(problem, *arguments, **named):
        if problem is every["A -> C"]:
            raise EstimationFailed("It breaks.", igpe.Status.INTEGRATION_BROKE)
        return estimate(problem, *arguments, **named)

    monkeypatch.setattr(rivals, "estimate", breaking)
    found = igpe.rivals(every, seed=0, cross_validation=False, behaviour=False)
    assert found.failures == {"A -> C": "It breaks."}
    assert found.table.index[-1] == "A -> C"
    assert "A -> C could not be fitted: It breaks." in str(found)
    found.plot()
    found._repr_html_()


@pytest.mark.slow
def test_what_are_no_rivals_is_refused(every):
    with pytest.raises(ProblemError, match="two models or more"):
        igpe.rivals({"A -> C": every["A -> C"]})
    with pytest.raises(ProblemError, match=r"must be an igpe\.Problem"):
        igpe.rivals({"a": every["A -> C"], "b": kinetics.Batch(["A -> B"])})
    with pytest.raises(ProblemError, match="`nested` contains"):
        igpe.rivals(every, nested={"A -> C": "X"}, cross_validation=False)
    others = problems(["A -> C"], [run("one", 1.0, seed=7)])
    with pytest.raises(DataError, match="different measurements"):
        igpe.rivals({"a": every["A -> C"], "b": others["A -> C"]}, cross_validation=False)
