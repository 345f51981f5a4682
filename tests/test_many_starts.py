"""Campaigns: the same numbers wherever they are made, and nothing finished is lost."""

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import consecutive
import lotka_volterra_iss
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from michaelis_menten import DECAY_TRUTH, decay
from ode import ode
from zoo import CASES

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.search.multistart import MultiStart

mpl.use("Agg")
VARYING = ["seconds"]  # all other columns are the same, to the last bit


def same(one, other):
    return one.table.drop(columns=VARYING).equals(other.table.drop(columns=VARYING))


@pytest.fixture(scope="module")
def serial():
    return igpe.campaign(consecutive.problem(), starts=12, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own", "pool", "dask"])
def test_an_executor_gives_the_same_to_the_last_bit(name, opened, serial):
    with opened(name) as executor:
        there = igpe.campaign(consecutive.problem(), starts=12, seed=3, executor=executor)
    assert same(there, serial)
    assert there.starts.equals(serial.starts)


def test_order_and_number_of_starts_do_not_matter(serial):
    starts = serial.starts.to_dict("records")
    backwards = igpe.campaign(consecutive.problem(), starts=starts[::-1]).table
    turned = backwards.iloc[::-1].reset_index(drop=True).drop(columns=VARYING)
    assert turned.equals(serial.table.reset_index(drop=True).drop(columns=VARYING))
    more = igpe.campaign(consecutive.problem(), starts=20, seed=3)
    assert more.table.iloc[:12].drop(columns=VARYING).equals(serial.table.drop(columns=VARYING))
    other = igpe.campaign(consecutive.problem(), starts=12, seed=4)
    assert not other.starts.equals(serial.starts)


def test_runs_are_those_of_the_estimator_alone(serial):
    problem = consecutive.problem()
    for number in (0, 7):
        start = serial.starts.loc[number].to_dict()
        alone = igpe.SingleShooting().estimate(problem, start)
        row = serial.table.loc[number]
        assert (row["objective"], row["status"]) == (alone.objective, alone.status.name)
        assert row[list(start)].to_dict() == dict(alone.parameters)


def test_the_best_and_the_waterfall(serial):
    best = serial.best
    assert best.status is Status.BEST_OF_SEVERAL
    assert best.objective == serial.objectives[0] == serial.table["objective"].min()
    assert igpe.profile(consecutive.problem(), best)["p1"].determined
    assert (np.diff(serial.objectives) >= 0).all()
    (ax,) = serial.plot()
    assert list(ax.lines[0].get_ydata()) == list(serial.objectives)
    assert serial.plot(ax)[0] is ax
    assert f"Best objective {best.objective:.8g}, reached from" in str(serial)
    for name, value in best.parameters.items():
        assert any(line.split() == [name, f"{value:.6g}"] for line in str(serial).splitlines())
    assert "A local optimum was reached" in serial._repr_html_()
    assert same(pickle.loads(pickle.dumps(serial)), serial)
    assert sum(serial.counts.values()) == 12


def test_incremental_shooting_counts_its_work():
    starts = [{"k1": 4.2176, "k2": 9.1574, "k3": 7.9221, "k4": 9.5949}]
    problem, method = lotka_volterra_iss.problem(), igpe.IncrementalShooting()
    found = igpe.campaign(problem, method, starts)
    alone = method.estimate(problem, starts[0])
    assert found.table.loc[0, "equivalent_iterations"] == alone.equivalent_iterations
    assert found.table.loc[0, "equivalent_integrations"] == alone.equivalent_integrations


@pytest.mark.parametrize("name", ["pool"])
def test_a_model_of_a_notebook_travels(name, opened):
    """Neither its builder nor its method is in a module."""
    rate = 1.0

    model = ode({"A": lambda m, t: -rate * m.k * m.A[t]}, k=(0.1, 5))

    class Halved:
        def estimate(self, problem, start, profiles=()):
            return Estimate({n: v / 2 for n, v in start.items()}, 1.0, Status.CONVERGED)

    t = np.linspace(0.0, 3.0, 12)
    run = igpe.Experiment(pd.DataFrame({"time": t, "A": np.exp(-0.7 * t)}), start={"A": 1.0})
    problem = igpe.Problem(model, parameters=["k"], experiments=run)
    with opened(name) as executor:
        methods = [igpe.SingleShooting(), Halved()]
        runs = igpe.estimation.compare(problem, methods, [{"k": 2.0}], executor=executor).runs
    assert runs["k"].tolist() == [pytest.approx(0.7, rel=1e-6), 1.0]


class Once:
    """Finishes two starts, then the user presses Ctrl-C; another begins with an error."""

    def __init__(self):
        self.runs = 0

    def estimate(self, problem, start, profiles=()):
        self.runs += 1
        if self.runs == 2:
            raise ValueError("no idea")
        if self.runs > 3:
            raise KeyboardInterrupt
        return Estimate(dict(start), float(self.runs), Status.INTEGRATION_BROKE)


def test_ctrl_c_and_errors_keep_what_is_done():
    told = []
    found = igpe.campaign(consecutive.problem(), Once(), 5, progress=told.append)
    assert (len(found.table), found.complete) == (3, False)
    assert "Interrupted: 3 of 5" in str(found)
    assert found.counts == {"INTEGRATION_BROKE": 2, "RAISED": 1}
    assert found.table["note"].tolist() == ["", "ValueError: no idea", ""]
    with pytest.raises(igpe.errors.EstimationFailed, match="tried 3 starts, but none") as error:
        found.best  # noqa: B018 - asking is the test
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.status) == (str(error.value), error.value.status)


class Pressed:
    """The user presses Ctrl-C in one of the runs."""

    def __init__(self, run):
        self.run, self.runs = run, 0

    def estimate(self, problem, start, profiles=()):
        self.runs += 1
        if self.runs == self.run:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60.0)  # until the signal comes
        return igpe.SingleShooting().estimate(problem, start, profiles)


@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_keeps_what_a_store_has(finished, tmp_path):
    store = tmp_path / "store.db"
    found = igpe.campaign(consecutive.problem(), Pressed(finished + 1), 3, store=store)
    assert (len(found.table), found.complete) == (finished, False)
    assert f"Interrupted: {finished} of 3" in str(found)
    if not finished:
        with pytest.raises(igpe.errors.EstimationFailed, match="tried 0 starts"):
            found.best  # noqa: B018 - asking is the test


UNKNOWN = {
    "sizes": {"sigma": None},
    "sizes by the model": {"sigma": igpe.Noise(absolute=0.01, relative=0.1)},
    "correlation": {"sigma": 0.02, "correlation": igpe.losses.AR1()},
}


@pytest.mark.parametrize("errors", UNKNOWN.values(), ids=UNKNOWN)
def test_a_store_serves_problems_whose_weights_depend_on_the_fit(errors, tmp_path):
    times, random = np.linspace(0.4, 8, 10), np.random.default_rng(0)
    data = pd.DataFrame({"time": times, "A": np.exp(-0.9 * times), "B": 1 - np.exp(-0.9 * times)})
    data.iloc[:, 1:] += 0.02 * random.standard_normal((10, 2))
    run = igpe.Experiment(data, start={"A": 1.0, "B": 0.0}, start_time=0.0, **errors)
    batch = igpe.kinetics.Batch(["A -> B"], bounds={"k1": (0.01, 5)})
    problem = igpe.Problem(batch, parameters=["k1"], experiments=run)
    fresh, kept = (igpe.campaign(problem, starts=2, store=tmp_path / "store.db") for _ in range(2))
    assert kept.best.parameters["k1"] == pytest.approx(0.9, abs=0.1)
    assert fresh.table.equals(kept.table)


@pytest.mark.slow
def test_a_store_is_another_process_s_too(tmp_path, serial):
    """What the runs depend on is hashed the same wherever and however the problem is built."""
    store = tmp_path / "runs.sqlite"
    words = f"""
import sys
import time
sys.path[:] = {sys.path!r}
import consecutive, igpe
igpe.campaign(consecutive.problem(), starts=9, seed=3, store={str(store)!r})
"""
    subprocess.run([sys.executable, "-c", words], check=True, timeout=100)
    found = igpe.campaign(consecutive.problem(), starts=12, seed=3, store=store)
    assert same(found, serial)
    with sqlite3.connect(store) as file:
        counted = file.execute("SELECT count(*), count(DISTINCT series) FROM outcomes")
        assert counted.fetchone() == (12, 1)


def test_progress_is_told(serial):
    told = []
    igpe.campaign(consecutive.problem(), starts=3, progress=told.append)
    assert told == ["Campaign: 3 of 3 starts"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pool"])
def test_many_starts_and_comparisons_are_the_same_elsewhere(name, opened, tmp_path):
    problem, store = decay(), tmp_path / "store.db"
    methods = [igpe.SingleShooting(), igpe.MultipleShooting()]
    here = igpe.estimation.compare(problem, methods, 3).runs.drop(columns=VARYING)
    for method in (MultiStart(starts=3), MultiStart(igpe.MultipleShooting(), starts=2)):
        alone = method.estimate(problem, {})
        with opened(name) as executor:
            there = method.estimate(problem, {}, executor=executor, store=store)
        kept = method.estimate(problem, {}, store=store)
        for found in (there, kept):
            assert found.objective == alone.objective
            assert found.parameters == alone.parameters
            assert (found.status, found.method) == (alone.status, alone.method)
    with opened(name) as executor:
        found = igpe.estimation.compare(problem, methods, 3, executor=executor, store=store)
    assert found.runs.drop(columns=VARYING).equals(here)


@pytest.mark.slow
def test_the_ladder_of_candidates_is_the_same_elsewhere(tmp_path):
    """One unknown of the reaction is out of reach of algebra, so that step 4 searches for it."""
    problem = CASES["unmeasured_intermediate"].problem(0.05)
    alone = igpe.estimate(problem)
    store = tmp_path / "store.db"
    with ProcessPoolExecutor(2) as executor:
        there = igpe.estimate(problem, executor=executor, store=store)
    kept = igpe.estimate(problem, store=store)
    for found in (there, kept):
        assert found.candidates == alone.candidates
        assert found.estimates == alone.estimates
    with sqlite3.connect(store) as file:
        (count,) = file.execute("SELECT count(*) FROM outcomes").fetchone()
    assert count == len(alone.candidates) > 1


def test_profiles_are_kept_and_a_better_optimum_is_the_same_elsewhere(tmp_path):
    store = tmp_path / "store.db"
    here = igpe.profile(decay(), DECAY_TRUTH)
    with ProcessPoolExecutor(2) as executor:
        there = igpe.profile(decay(), DECAY_TRUTH, executor=executor, store=store)
    kept = igpe.profile(decay(), DECAY_TRUTH, store=store)
    for found in (there, kept):
        assert found.to_dict() | {"seconds": 0} == here.to_dict() | {"seconds": 0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"starts": 0}, "at least one is needed"),
        ({"starts": 2.5}, "campaign needs a list of mappings"),
        ({"starts": [{"p1": 1.0}]}, r"missing for \['p2'\]"),
        ({"seed": -1}, "seed is -1"),
        ({"executor": "two"}, "`executor` is 'two'"),
        ({"timeout": -1}, "a positive number"),
        ({"estimator": igpe.SingleShooting}, "campaign needs an estimator"),
        ({"estimator": "ISS"}, "campaign needs an estimator"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    given = {"problem": consecutive.problem(), "starts": 2} | change
    with pytest.raises(igpe.errors.ProblemError, match=says):
        igpe.campaign(**given)


def test_without_bounds_no_number_of_starts():
    with pytest.raises(igpe.errors.ProblemError, match="finite bounds"):
        igpe.campaign(lotka_volterra_iss.problem())
