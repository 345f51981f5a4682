"""Export of parameter tables, and the command line."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
import small
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.cli.commands import _of_petab
from igpe.formats.petab import errors
from igpe.formats.petab.errors import ERRORS


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


@pytest.mark.slow
def test_estimate_on_the_command_line(tmp_path):
    yaml, table = small.write(tmp_path), tmp_path / "out.tsv"
    done = run("estimate", yaml, "--json", "-", "--petab", table)
    assert done.exit_code == 0, done.output
    assert f"Written: {table}" in done.stderr.splitlines()
    found = json.loads(done.stdout)
    problem = igpe.petab.read_petab(yaml)
    objective = igpe.petab.petab_objective(problem, found["parameters"])
    assert objective == pytest.approx(found["negative_log_likelihood"])
    assert objective < igpe.petab.petab_objective(problem)  # the truth fits worse than the optimum
    told = pd.read_csv(table, sep="\t").set_index("parameterId")
    assert told["nominalValue"].to_dict() == pytest.approx(found["parameters"], rel=1e-14)
    rows = pd.DataFrame(found["petab"]).set_index("name")
    assert rows.loc["k", "scale"] == "log10"
    assert rows.loc["A0", "error_on_scale"] == rows.loc["A0", "standard_error"]
    assert (rows["lower"] < rows["upper"]).all()
    written = told[list(ERRORS.values())].set_axis(list(ERRORS), axis="columns")
    pd.testing.assert_frame_equal(written, rows[list(ERRORS)], check_names=False, rtol=1e-14)


def test_what_petab_asks_beyond_the_estimates_never_loses_them(tmp_path, monkeypatch):
    priors = small.PARAMETERS.assign(
        objectivePriorType=["", "normal", ""], objectivePriorParameters=["", "3;0.1", ""]
    )
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=priors))
    result = SimpleNamespace(parameters={"k": 0.5, "A0": 3.2, "sd": 0.1})
    plain, whole = (
        igpe.petab.petab_objective(problem, result.parameters, priors=p) for p in (False, True)
    )
    said, told, table = _of_petab(problem, result)
    assert said == f"\nPEtab: negative log-likelihood {plain:.7g}, with priors {whole:.7g}."
    assert told == {"negative_log_likelihood": plain, "negative_log_posterior": whole}
    assert list(table.index) == ["k", "A0", "sd"]

    def broken(*_, **__):
        raise igpe.errors.EstimationFailed("It broke.", igpe.Status.INTEGRATION_BROKE)

    monkeypatch.setattr(errors, "petab_errors", broken)
    assert _of_petab(problem, result)[0] == f"{said}\nPEtab: no standard errors. It broke."
    monkeypatch.setattr(errors, "petab_objective", broken)
    nothing = "\nPEtab: no objective and no standard errors. It broke."
    assert _of_petab(problem, result) == (nothing, {}, None)


@pytest.mark.slow
def test_the_command_line_and_the_package_run_one_pipeline(tmp_path):
    yaml, page = small.write(tmp_path), tmp_path / "page.html"
    done = run("estimate", yaml, "--report", page)
    result = igpe.estimate(igpe.petab.read_petab(yaml))
    objective = igpe.petab.petab_objective(igpe.petab.read_petab(yaml), result.parameters)
    *lines, last = done.stdout.splitlines()
    assert lines[:4] == str(result).splitlines()[:4]
    assert last == f"PEtab: negative log-likelihood {objective:.7g}."
    title = f"Estimated parameters: {yaml.stem}"
    assert f"<h1>{title}</h1>" in page.read_text(encoding="utf-8")


def test_check_and_simulate_on_the_command_line(tmp_path):
    yaml = small.write(tmp_path)
    assert "k " in run("check", yaml).stdout
    done = run("simulate", yaml, "--set", "k=0.7")
    assert done.stdout.splitlines()[0] == "experiment,time,A,B,oA,oB"


def test_a_parameter_table_of_a_python_model_is_refused(tmp_path):
    model = tmp_path / "model.py"
    model.write_text("import consecutive\nproblem = consecutive.problem\n")
    assert run("estimate", model, "--petab", tmp_path / "out.tsv").exit_code == 2
