"""Export of parameter tables, and the command line."""

import json

import pandas as pd
import pytest
import small
from typer.testing import CliRunner

import igpe
from igpe.cli import app

ON_SCALE = ["error", "on", "scale"]


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def test_a_table_with_the_estimates(tmp_path):
    yaml = small.write(tmp_path)
    igpe.petab.write_petab_parameters({"k": 0.125, "sd": 1e-3}, yaml, tmp_path / "out.tsv")
    before, after = (pd.read_csv(tmp_path / n, sep="\t") for n in ("parameters.tsv", "out.tsv"))
    assert after["nominalValue"].tolist() == [0.125, 3.0, 1e-3]
    columns = [c for c in before.columns if c != "nominalValue"]
    pd.testing.assert_frame_equal(after[columns], before[columns])


def test_strangers_are_refused(tmp_path):
    with pytest.raises(igpe.errors.ProblemError, match=r"has no \['x'\]"):
        igpe.petab.write_petab_parameters({"x": 1.0}, small.write(tmp_path), tmp_path / "out.tsv")


def test_the_objective_of_another_problem_is_refused():
    with pytest.raises(igpe.errors.ProblemError, match="not read from PEtab"):
        igpe.petab.petab_objective(object())


def test_estimate_on_the_command_line(tmp_path):
    yaml, table = small.write(tmp_path), tmp_path / "out.tsv"
    done = run("estimate", yaml, "--starts", 3, "--json", "-", "--petab", table)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    problem = igpe.petab.read_petab(yaml)
    objective = igpe.petab.petab_objective(problem, found["parameters"])
    assert objective == pytest.approx(found["negative_log_likelihood"])
    assert objective < igpe.petab.petab_objective(problem)  # the truth fits worse than the optimum
    written = pd.read_csv(table, sep="\t").set_index("parameterId")["nominalValue"]
    assert written.to_dict() == found["parameters"]
    rows = {row["name"]: row for row in found["table"]}
    assert rows["k"]["scale"] == "log10"
    assert rows["A0"]["error_on_scale"] == rows["A0"]["standard_error"]
    told = pd.read_csv(table, sep="\t").set_index("parameterId")
    for name, row in rows.items():
        assert told.loc[name, "standardError"] == row["standard_error"]
        assert told.loc[name, "standardErrorOnScale"] == row["error_on_scale"]
        assert told.loc[name, "standardErrorScale"] == row["scale"]
        assert told.loc[name, "lowerConfidence"] == row["lower"] < row["upper"]


def test_estimate_prints_names_and_likelihood(tmp_path):
    done = run("estimate", small.write(tmp_path), "--starts", 2)
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["estimate", "standard", "error", "95", "%", "interval", *ON_SCALE]
    assert lines[2].startswith("k   0.")
    assert lines[2].endswith("(log10)")
    assert "delta rule" in done.stdout
    assert "negative log-likelihood" in done.stdout


def test_check_and_simulate_on_the_command_line(tmp_path):
    yaml = small.write(tmp_path)
    assert "k " in run("check", yaml).stdout
    done = run("simulate", yaml, "--set", "k=0.7")
    assert done.stdout.splitlines()[0] == "experiment,time,A,B,oA,oB"


def test_a_parameter_table_of_a_python_model_is_refused(tmp_path):
    model = tmp_path / "model.py"
    model.write_text("import consecutive\nproblem = consecutive.problem\n")
    assert run("estimate", model, "--petab", tmp_path / "out.tsv").exit_code == 2
