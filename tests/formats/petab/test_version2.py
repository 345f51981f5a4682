"""PEtab of version 2: what both versions share, in closed form; what is refused by name."""

import numpy as np
import pandas as pd
import pytest
import small
import yaml
from petab.v2.petab1to2 import petab1to2
from scipy.stats import norm, truncnorm

import igpe

VALUES = {"k": 0.7, "A0": 2.0, "sd": 0.2}
PARAMETERS = pd.DataFrame({
    "parameterId": ["k", "A0", "sd"],
    "lowerBound": [1e-3, 0.1, 1e-3],
    "upperBound": [1e3, 10.0, 1e2],
    "nominalValue": [0.5, 3.0, 0.1],
    "estimate": ["true"] * 3,
})
OBSERVABLES = pd.DataFrame({
    "observableId": ["oA", "oB"],
    "observableFormula": ["A", "gain * B"],
    "observablePlaceholders": ["", "gain"],
    "noiseFormula": ["sd", "spread"],
    "noisePlaceholders": ["", "spread"],
})
MEASUREMENTS = (
    small
    .measurements(times=(0.5, 1.0, 2.0, 4.0))
    .drop(columns="simulationConditionId")
    .assign(experimentId="e1", observableParameters=["", "", "", "", *["1"] * 4])
)
CONDITIONS = pd.DataFrame({"conditionId": ["c1"], "targetId": ["B"], "targetValue": ["0.5"]})
EXPERIMENTS = pd.DataFrame({"experimentId": ["e1"], "time": [0.0], "conditionId": ["c1"]})
TABLES = {
    "parameter": PARAMETERS, "observable": OBSERVABLES, "measurement": MEASUREMENTS,
    "condition": CONDITIONS, "experiment": EXPERIMENTS,
}  # fmt: skip


MODEL = {"location": "model.xml", "language": "sbml"}


def write(folder, **tables):
    """The problem's files, with SBML model; returns its YAML."""
    small.write(folder)
    config = {"format_version": "2.0.0", "model_files": {"decay": MODEL}}
    for name, table in {**TABLES, **tables}.items():
        if table is not None:
            table.to_csv(folder / f"{name}_2.tsv", sep="\t", index=False)
            config[f"{name}_files"] = [f"{name}_2.tsv"]
    path = folder / "problem2.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def likelihood(table, values, *, extra=0.0, logarithms=False):
    """-log L in closed form; B starts at `extra`."""
    of_a = (table["observableId"] == "oA").to_numpy()
    a, b = small.truth(table["time"], values["k"], values["A0"])
    y, h = table["measurement"].to_numpy(), np.where(of_a, a, b + extra)
    s = np.where(of_a, values["sd"], 0.1)
    if not logarithms:
        return -norm.logpdf(y, h, s).sum()
    return (-norm.logpdf(np.log(y), np.log(h), s) + np.log(y)).sum()


LOGARITHMS = OBSERVABLES.assign(noiseDistribution="log-normal")
NO_EXPERIMENT = {"measurement": MEASUREMENTS.assign(experimentId=""), "condition": None}


@pytest.mark.parametrize(
    ("tables", "name", "likelihood_of"),
    [
        ({}, "e1", {"extra": 0.5}),
        (NO_EXPERIMENT | {"experiment": None}, "model", {}),
        ({"observable": LOGARITHMS}, "e1", {"extra": 0.5, "logarithms": True}),
    ],
    ids=["long format and placeholders", "no experiment", "log-normal noise"],
)
def test_the_objective_is_the_likelihood(tmp_path, tables, name, likelihood_of):
    problem = igpe.petab.read_petab(write(tmp_path, **tables))
    expected = likelihood(MEASUREMENTS, VALUES, **likelihood_of)
    assert igpe.petab.petab_objective(problem, VALUES) == pytest.approx(expected, rel=1e-8)
    assert [e.name for e in problem.experiments] == [name]
    assert problem.box.logarithmic == {"k", "sd"}  # three decades, not A0
    assert problem.model.nominal == {"k": 0.5, "A0": 3.0, "sd": 0.1}


def test_several_experiments_with_several_conditions_each(tmp_path):
    conditions = pd.DataFrame({
        "conditionId": ["c1", "c2", "c2"],
        "targetId": ["B", "half", "A"],
        "targetValue": ["0.5", "2", "own / 2"],
    })
    experiments = pd.DataFrame({
        "experimentId": ["e1", "e2", "e2"], "time": [0, 0, 0], "conditionId": ["c1", "c1", "c2"],
    })  # fmt: skip
    parameters = PARAMETERS.replace({"parameterId": {"A0": "own"}})
    measurements = pd.concat([MEASUREMENTS, MEASUREMENTS.assign(experimentId="e2")])
    given = {"condition": conditions, "experiment": experiments}
    given |= {"parameter": parameters, "measurement": measurements}
    problem = igpe.petab.read_petab(write(tmp_path, **given))
    told = igpe.simulate(problem, {"k": 0.7, "own": 2.0, "sd": 0.2}, [0.0]).set_index("experiment")
    assert told["A"].to_dict() == {"e1": 3.0, "e2": 1.0}
    assert told["B"].to_dict() == {"e1": 0.5, "e2": 0.5}


def test_priors(tmp_path):
    parameters = PARAMETERS.assign(
        priorDistribution=["uniform", "normal", ""], priorParameters=["0.01;20", "2.5;0.5", ""]
    )
    problem = igpe.petab.read_petab(write(tmp_path, parameter=parameters))
    assert (problem.box.lower[0], problem.box.upper[0]) == (0.01, 20.0)
    more = igpe.petab.petab_objective(problem, priors=True) - igpe.petab.petab_objective(problem)
    cut = truncnorm.logpdf(3.0, (0.1 - 2.5) / 0.5, (10 - 2.5) / 0.5, 2.5, 0.5)
    flat = np.log(20 - 0.01) + np.log(1e2 - 1e-3)  # of k, and of sd by its bounds
    assert more == pytest.approx(flat - cut, rel=1e-6)


def test_estimates_are_exported_and_read_again(tmp_path):
    path = write(tmp_path)
    problem = igpe.petab.read_petab(path)
    errors = igpe.petab.petab_errors(problem, VALUES)
    assert errors["scale"].to_dict() == {"k": "log10", "A0": "lin", "sd": "log10"}
    with pytest.raises(igpe.errors.DataError, match="own parameter table"):
        igpe.petab.write_petab_parameters(VALUES, path, tmp_path / "parameter_2.tsv", errors)
    igpe.petab.write_petab_parameters(VALUES, path, tmp_path / "fitted.tsv", errors)
    (tmp_path / "fitted.tsv").replace(tmp_path / "parameter_2.tsv")
    assert igpe.petab.read_petab(path).model.nominal == VALUES


UNBOUNDED = PARAMETERS.assign(upperBound=np.inf)
PERIODS = pd.DataFrame({
    "experimentId": ["e1", "e1"], "time": [0.0, 2.0], "conditionId": ["c1", "c1"],
})  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (
            {"experiment": PERIODS, "measurement": MEASUREMENTS.assign(time=np.inf)},
            "steady-state measurement .* after a change of conditions",
        ),
        ({"observable": OBSERVABLES.assign(noiseDistribution="laplace")}, r"\['laplace'\]"),
        ({"observable": OBSERVABLES.assign(noiseDistribution="log-laplace")}, r"\['laplace'\]"),
        ({"parameter": UNBOUNDED.drop(columns="nominalValue")}, "neither finite bounds nor a nom"),
        ({"observable": OBSERVABLES.assign(observableFormula="A + x")}, "check of"),
        (
            {"condition": CONDITIONS.assign(targetValue="1 +")},
            "not a valid PEtab problem of version 2",
        ),
        (
            {
                "observable": OBSERVABLES.assign(noiseDistribution="log-normal"),
                "measurement": MEASUREMENTS.assign(measurement=0.0),
            },
            r"log.*Rows \[1, 2, 3, 4, 5\] of 'measurement_2.tsv' have no positive number",
        ),
        ({"measurement": MEASUREMENTS.assign(experimentId="e7")}, r"experiments \['e7'\], which"),
        ({"measurement": MEASUREMENTS.assign(measurement=np.nan)}, r"nan\. Rows \[1, 2, 3, 4"),
        ({"measurement": MEASUREMENTS.assign(observableId="oC")}, "'oC'.* not defined"),
        ({"measurement": MEASUREMENTS.iloc[:0]}, "has no rows"),
        ({"condition": pd.concat([CONDITIONS] * 2)}, r"'c1' sets \['B'\] more than once"),
        ({"parameter": pd.concat([PARAMETERS] * 2)}, "duplicate IDs"),
        ({"experiment": EXPERIMENTS.assign(conditionId="c9")}, r"table: {'c9'}\. Correct"),
        (
            {"measurement": MEASUREMENTS.assign(noiseParameters="")},
            r"reports: Rows \[5, 6, 7, 8\] .* noiseParameters than .* noisePlaceholders\. C",
        ),
        ({"experiment": EXPERIMENTS.rename(columns={"experimentId": "id"})}, "no column .*'exp"),
        ({"parameter": PARAMETERS.assign(upperBound=1e-9)}, r"table, 'k': Lower bound must"),
        (
            {"parameter": PARAMETERS.assign(priorDistribution="t", priorParameters="1;2")},
            "or 'uniform', got 't'",
        ),
        (
            {"parameter": PARAMETERS.assign(priorDistribution="uniform", priorParameters="5;1")},
            "5.0;1.0: the first number is larger",
        ),
        ({"parameter": None}, r"2: 'parameter_files' is a required property\. Correct"),
    ],
)
def test_what_the_tables_have_beyond_is_refused(tmp_path, tables, says):
    small.refused(tmp_path, says, **tables, files=write)


def test_a_model_in_another_language_is_refused(tmp_path):
    path = write(tmp_path)
    config = yaml.safe_load(path.read_text())
    config["model_files"]["decay"] = {"language": "pysb", "location": "model.py"}
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(igpe.errors.DataError, match="language 'pysb', not in SBML"):
        igpe.petab.read_petab(path)


def test_what_is_wrong_in_all_rows_is_said_once(tmp_path):
    path = write(tmp_path, measurement=MEASUREMENTS.assign(observableParameters="2"))
    with pytest.raises(igpe.errors.DataError, match="Mismatch of observable") as caught:
        igpe.petab.read_petab(path)
    assert str(caught.value).count("Mismatch of observable") == 1


@pytest.mark.parametrize("version", ["2", "2.0"])
def test_a_version_may_be_a_number(tmp_path, version):
    path = write(tmp_path)
    text = path.read_text().replace("format_version: 2.0.0", f"format_version: {version}")
    path.write_text(text.replace("format_version: '2.0.0'", f"format_version: {version}"))
    assert f"format_version: {version}\n" in path.read_text()
    assert igpe.petab.read_petab(path).experiments


LEFT = "entries in the column '{}' of PEtab 1. .* version 2, .* Fill in the column '{}'"


@pytest.mark.parametrize(
    ("table", "old", "cells", "new"),
    [
        ("observable", "observableTransformation", ["lin", "log10"], "noiseDistribution"),
        ("parameter", "objectivePriorType", ["", "normal", ""], "priorDistribution"),
        ("measurement", "simulationConditionId", ["c1"] * 8, "experimentId"),
    ],
)
def test_a_column_of_version_1_is_not_ignored(tmp_path, table, old, cells, new):
    """Otherwise the objective is another than the author means; PEtab's check says nothing."""
    given = TABLES[table].assign(**{old: cells})
    if new == "experimentId":
        given = given.drop(columns=new)
    small.refused(tmp_path, LEFT.format(old, new), **{table: given}, files=write)
    filled = {"observable": ["", "log-normal"], "parameter": ["", "uniform", ""]}.get(table, "e1")
    given = given.assign(**{new: filled})
    given = given.assign(priorParameters=["", "1;5", ""]) if table == "parameter" else given
    assert igpe.petab.read_petab(write(tmp_path, **{table: given})).size == 8


def simulated(folder, times, **tables):
    problem = igpe.petab.read_petab(write(folder, **tables))
    values = {n: VALUES.get(n, 3.0) for n in problem.box.names}
    return igpe.simulate(problem, values, times)["B"].to_numpy()


def test_a_later_period_sets_what_its_condition_names(tmp_path):
    """B starts at 0.5 and is set to 0.5 again at 2, while A goes on."""
    of_b = simulated(tmp_path, [1.0, 2.0, 3.0], experiment=PERIODS)
    made = [1 - np.exp(-0.7), 0.0, np.exp(-1.4) - np.exp(-2.1)]
    assert of_b == pytest.approx(0.5 + 4.0 * np.array(made), rel=1e-6)


def test_a_start_elsewhere_than_at_0(tmp_path):
    of_b = simulated(tmp_path, [0.5, 1.25], experiment=EXPERIMENTS.assign(time=0.25))
    assert of_b == pytest.approx(0.5 + 4.0 * (1 - np.exp([-0.175, -0.7])), rel=1e-6)


def test_a_pre_equilibration_comes_before(tmp_path):
    """All of A is B then; the condition of time 0 sets B again."""
    rested = PERIODS.assign(time=[-np.inf, 0.0])
    assert simulated(tmp_path, [0.0, 1.0], experiment=rested) == pytest.approx([0.5, 0.5], rel=1e-6)


def test_unbounded_parameters_are_estimated_from_a_start(tmp_path):
    problem = igpe.petab.read_petab(write(tmp_path, parameter=UNBOUNDED))
    found = igpe.SingleShooting().estimate(problem, VALUES)
    bounded = igpe.SingleShooting().estimate(igpe.petab.read_petab(write(tmp_path)), VALUES)
    assert found.parameters == pytest.approx(bounded.parameters, rel=1e-4)
    with pytest.raises(igpe.errors.ProblemError, match="needs finite bounds"):
        igpe.estimate(problem)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extensions": {"sciml": {"version": "1", "required": False}}}, "extensions"),
        ({"model_files": {"decay": MODEL, "again": MODEL}}, "2 models"),
    ],
)
def test_what_the_file_has_beyond_is_refused(tmp_path, change, says):
    path = write(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    with pytest.raises(igpe.errors.DataError, match=says):
        igpe.petab.read_petab(path)


def test_a_table_in_several_files_is_not_written(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text().replace("- parameter_2.tsv", "- parameter_2.tsv\n- again.tsv"))
    (tmp_path / "again.tsv").write_bytes((tmp_path / "parameter_2.tsv").read_bytes())
    with pytest.raises(igpe.errors.ProblemError, match="2 parameter tables"):
        igpe.petab.write_petab_parameters(VALUES, path, tmp_path / "out.tsv")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Bruno_JExpBot2016", "Fujita_SciSignal2010"])
def test_published_problems_have_the_same_objective_in_version_2(name, tmp_path):
    """Rewritten by PEtab's own converter, which wants all files that are named."""
    source, there = small.ROOT / name, tmp_path / "2"
    there.mkdir()
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / next(source.glob("*.yaml")).name
    config = yaml.safe_load(path.read_text())
    for part in config["problems"]:
        part.pop("visualization_files", None)
    path.write_text(yaml.safe_dump(config))
    petab1to2(str(path), str(there))
    one, two = (
        igpe.petab.petab_objective(igpe.petab.read_petab(p)) for p in (path, there / path.name)
    )
    assert two == pytest.approx(one, rel=1e-10)
