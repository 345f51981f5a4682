"""Methods side by side: the same starts, the same counting."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import consecutive
import lotka_volterra_iss
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from zoo import CASES

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.numerics.least_squares.gauss_newton import GaussNewton

mpl.use("Agg")
STARTS = [
    {"k1": 8.574, "k2": 0.3359, "k3": 7.2966, "k4": 1.7566},
    {"k1": 1.1, "k2": 0.9, "k3": 1.0, "k4": 0.12},
]
FEW = GaussNewton(max_iterations=20)  # enough from the near start; the far one takes far more
METHODS = {"SS": igpe.SingleShooting(search=FEW), "ISS": igpe.IncrementalShooting()}


@pytest.fixture(scope="module")
def found():
    return igpe.estimation.compare(lotka_volterra_iss.problem(), METHODS, STARTS)


def test_the_table_counts_the_runs(found):
    table = found.table
    assert list(table.index) == ["SS", "ISS"]
    assert table.loc["ISS", ["runs", "arrived %", "best %", "broke %"]].tolist() == [2, 100, 100, 0]
    assert table.loc["SS", "best %"] == 50  # from the far start another optimum
    assert (table["median iterations"] > 0).all()
    assert (found.runs["seconds"] > 0).all()
    assert found.complete


def test_runs_are_those_of_the_methods_alone(found):
    problem = lotka_volterra_iss.problem()
    for name, method in METHODS.items():
        own = found.runs[found.runs["method"] == name]
        for start, (_, row) in zip(STARTS, own.iterrows(), strict=True):
            alone = method.estimate(problem, start)
            assert row["objective"] == alone.objective
            assert row[list(start)].to_dict() == dict(alone.parameters)
    assert found.best == pytest.approx(found.runs["objective"].min())


def test_words_and_pictures(found):
    assert "Best objective" in str(found)
    assert "ISS" in found._repr_html_()
    (ax,) = found.plot()
    assert [text.get_text() for text in ax.get_legend().texts] == ["SS", "ISS"]
    whole, far, every = ax.lines  # the far start does not arrive by single shooting
    assert far.get_markerfacecolor() == "none"
    assert len(far.get_xdata()) == 1
    for line in (whole, every):
        assert (np.diff(line.get_ydata()) >= 0).all()
    assert found.plot(ax)[0] is ax


def test_a_better_optimum_known_elsewhere_counts():
    found = igpe.estimation.compare(lotka_volterra_iss.problem(), METHODS, STARTS[1:], optimum=1.0)
    assert found.best == 1.0
    assert (found.table["best %"] == 0).all()


def test_an_executor_gives_the_same(found):
    with ThreadPoolExecutor(1) as executor:
        there = igpe.estimation.compare(
            lotka_volterra_iss.problem(), METHODS, STARTS, executor=executor
        )
    columns = [c for c in found.runs if c != "seconds"]
    assert there.runs[columns].equals(found.runs[columns])


def test_starts_are_spread_by_a_seed_and_methods_numbered():
    problem = consecutive.problem()
    one, same, other = (
        igpe.estimation.compare(problem, [Start(), Start()], 4, seed=seed).runs.drop(
            columns="seconds"
        )
        for seed in (3, 3, 4)
    )
    assert one["method"].unique().tolist() == ["Start 1", "Start 2"]
    assert one.equals(same)
    assert not one.equals(other)
    assert problem.box.lower[0] <= one[problem.box.names[0]].min()


def test_a_number_of_starts_needs_bounds():
    with pytest.raises(igpe.errors.ProblemError, match="finite bounds"):
        igpe.estimation.compare(lotka_volterra_iss.problem(), METHODS, 3)


def test_perfect_fits_differ_by_rounding_alone():
    t = np.linspace(0.0, 3.0, 12)
    case = CASES["decay"]
    table = pd.DataFrame({"time": t, "A": 2 * np.exp(-0.7 * t)})
    for sigma in (0.05, None):
        run = igpe.Experiment(table, start={"A": 2.0}, sigma=sigma)
        problem = igpe.Problem(case.builder, parameters=["k"], experiments=run)
        methods = {"SS": igpe.SingleShooting(), "MS": igpe.MultipleShooting()}
        found = igpe.estimation.compare(problem, methods, 3)
        assert found.best < 1e-12
        assert (found.table["best %"] == 100).all()


class Start:
    """Ends where it begins."""

    def estimate(self, problem, start, profiles=()):
        return Estimate(dict(start), 1.0, Status.CONVERGED)


class Interrupted:
    """Finishes one run, then the user presses Ctrl-C."""

    def __init__(self):
        self.runs = 0

    def estimate(self, problem, start, profiles=()):
        self.runs += 1
        if self.runs > 1:
            raise KeyboardInterrupt
        return Estimate(dict(start), 7.0, Status.CONVERGED, "once", iterations=3)


def test_ctrl_c_keeps_what_is_done():
    found = igpe.estimation.compare(lotka_volterra_iss.problem(), {"once": Interrupted()}, STARTS)
    assert not found.complete
    assert found.table.loc["once", ["runs", "median iterations"]].tolist() == [1, 3]
    assert "Interrupted" in str(found)
    assert pickle.loads(pickle.dumps(found)).best == 7.0


@pytest.mark.parametrize(
    ("methods", "starts", "message"),
    [
        ([], STARTS, "no method"),
        (METHODS, [], "no start"),
        (METHODS, 0, "at least one"),
        (METHODS, -1, "-1; compare needs a list of mappings, or a positive number"),
        (METHODS, 2.5, "2.5; compare needs a list of mappings, or a positive number"),
        (METHODS, STARTS[0], "compare needs a list of mappings"),
        (METHODS, [STARTS[0], {"k1": 1.0}], r"missing for \['k2', 'k3', 'k4'\] in start 1"),
        (METHODS, [3], "Start 0 is 3; expected a mapping"),
        (METHODS, [STARTS[0] | {"k2": np.nan}], "Start 0 of 'k2' is nan; compare needs"),
        (igpe.SingleShooting(), STARTS, "compare needs a list of estimators"),
        ([igpe.SingleShooting], STARTS, r"compare needs estimators: igpe.MultipleShooting\(\)"),
        ({"SS": "SingleShooting"}, STARTS, "method SS is 'SingleShooting'"),
    ],
)
def test_what_cannot_be_compared_is_refused(methods, starts, message):
    with pytest.raises(igpe.errors.ProblemError, match=message):
        igpe.estimation.compare(lotka_volterra_iss.problem(), methods, starts)
