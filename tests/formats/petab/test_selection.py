"""Rival models by PEtab Select: case 1 of the official suite with and without its way back."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import curve_fit

import igpe
from igpe.core.errors import DataError, EstimationFailed, ProblemError, SolverMissing, Unsupported
from igpe.core.status import Status

CASE = Path(__file__).parents[3] / "benchmarks" / "petab_suite" / "v1.0.0" / "sbml" / "0001"
TIMES = np.linspace(0.0, 6.0, 25)
SIGMA = 0.02
SELECTION = """format_version: 1.0.0
criterion: {criterion}
method: {method}
model_space_files: [space.tsv]
"""
SPACE = """model_subspace_id\tmodel_subspace_petab_yaml\tb0\tk1\tk2
M\t_0001.yaml\t0.0\testimate;0.0\testimate;0.0
"""


def course(t, a0, k1, k2):
    k = k1 + k2
    return a0 * (k2 + k1 * np.exp(-k * t)) / k if k else a0 + 0 * t


def posed(folder, *, back=0.0, criterion="BIC", method="brute_force"):
    """A -> B with the rate 0.8 and back with another, A measured; returns the selection's YAML."""
    for file in CASE.glob("*"):
        (folder / file.name).write_bytes(file.read_bytes())
    a = course(TIMES, 1.0, 0.8, back)
    noise = SIGMA * np.random.default_rng(1).standard_normal(len(TIMES))
    rows = {"observableId": "obs_a", "simulationConditionId": "c0", "time": TIMES}
    table = pd.DataFrame({**rows, "measurement": a + noise})
    table.to_csv(folder / "_measurements.tsv", sep="\t", index=False)
    observable = f"observableId\tobservableFormula\tnoiseFormula\nobs_a\tA\t{SIGMA}\n"
    (folder / "_observables.tsv").write_text(observable)
    (folder / "space.tsv").write_text(SPACE)
    yaml = folder / "selection.yaml"
    yaml.write_text(SELECTION.format(criterion=criterion, method=method))
    return yaml


def by_hand(folder):
    """Of each model that estimates k1, k2: its parameters, negative log-likelihood and BIC."""
    measured, found = pd.read_csv(folder / "_measurements.tsv", sep="\t")["measurement"], {}
    for free in product((True, False), repeat=2):
        names = ["a0", *(n for n, is_free in zip(("k1", "k2"), free, strict=True) if is_free)]

        def predicted(t, *values, names=names):
            return course(t, **{"k1": 0.0, "k2": 0.0, **dict(zip(names, values, strict=True))})

        start, box = [1.0, 0.7, 0.3][: len(names)], (0.0, 10.0)
        values, _ = curve_fit(predicted, TIMES, measured, start, bounds=box, ftol=1e-14, xtol=1e-14)
        r = (predicted(TIMES, *values) - measured) / SIGMA
        cost = float((r**2 / 2 + np.log(np.sqrt(2 * np.pi) * SIGMA)).sum())
        bic = len(names) * np.log(len(TIMES)) + 2 * cost
        found[frozenset(names)] = dict(zip(names, values, strict=True)), cost, bic
    return found


@pytest.fixture
def library():
    pytest.importorskip("petab_select")


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("back", [0.0, 0.3])
def test_all_models_are_estimated_and_the_best_is_that_of_the_data(tmp_path, back):
    found = igpe.petab.petab_select(posed(tmp_path, back=back), igpe.estimate)
    expected = by_hand(tmp_path)
    assert {frozenset(c.parameters) for c in found.candidates} == expected.keys()
    assert len(found.candidates) == len(expected)
    for one in found.candidates:
        values, cost, bic = expected[frozenset(one.parameters)]
        assert one.negative_log_likelihood == pytest.approx(cost, rel=1e-7)
        assert one.criterion == pytest.approx(bic, rel=1e-7)
        if one is found.best:
            assert one.parameters == pytest.approx(values, abs=1e-4)
    assert found.best.parameters.keys() == ({"a0", "k1", "k2"} if back else {"a0", "k1"})


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_forward_selection_stops_where_nothing_gets_better(tmp_path):
    found = igpe.petab.petab_select(posed(tmp_path, method="forward"), igpe.estimate)
    assert found.best.parameters.keys() == {"a0", "k1"}
    sizes = [len(c.parameters) for c in found.candidates]
    assert sizes == sorted(sizes)


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("criterion", ["AICc", "LLH"])
def test_what_cannot_be_estimated_is_never_the_best(tmp_path, criterion):
    def estimate(problem):
        if "k1" in problem.parameters:
            raise EstimationFailed("It broke down.", Status.INTEGRATION_BROKE)
        return igpe.estimate(problem)

    found = igpe.petab.petab_select(posed(tmp_path, criterion=criterion), estimate)
    assert "k1" not in found.best.parameters
    broken = [c for c in found.candidates if c.failed]
    assert [(c.criterion, c.result) for c in broken] == [(None, None)] * 2
    assert {c.failed for c in broken} == {"It broke down."}


@pytest.mark.usefixtures("library")
def test_nothing_is_selected_where_all_models_fail(tmp_path):
    def estimate(problem):
        raise EstimationFailed("It broke down.", Status.INTEGRATION_BROKE)

    with pytest.raises(EstimationFailed, match=r"any of the 4 models\. It broke down\."):
        igpe.petab.petab_select(posed(tmp_path), estimate)


@pytest.mark.usefixtures("library")
def test_what_is_no_selection_problem_is_refused(tmp_path):
    with pytest.raises(ProblemError, match="There is no PEtab Select file"):
        igpe.petab.petab_select(tmp_path / "none.yaml", igpe.estimate)
    with pytest.raises(Unsupported, match="SSR"):
        igpe.petab.petab_select(posed(tmp_path, criterion="SSR"), igpe.estimate)
    with pytest.raises(DataError, match="could not be read"):
        igpe.petab.petab_select(tmp_path / "_0001.yaml", igpe.estimate)


def test_without_the_library_it_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "petab_select", None)
    with pytest.raises(SolverMissing, match=r"pip install 'igpe\[select\]'"):
        igpe.petab.petab_select(tmp_path / "selection.yaml", igpe.estimate)
