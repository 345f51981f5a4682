"""The mistakes of new users: each ends with 2 and one message, which names the remedy."""

import json

import mistakes
import pytest
from command_line import refused, run

import igpe


@pytest.mark.parametrize("name", mistakes.MISTAKES)
def test_the_message_names_the_remedy(name, tmp_path, monkeypatch):
    mistake = mistakes.MISTAKES[name]
    mistake.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run(*mistake.words)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [w for w in mistake.remedy if w not in done.stderr] == [], done.stderr
    assert not (tmp_path / "new.py").exists()


def test_without_a_mistake_it_works(tmp_path, monkeypatch):
    """Else the mistakes above would say nothing."""
    sound = mistakes.Mistake(mistakes.ESTIMATE, ())
    sound.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(*sound.words).exit_code == 0


def test_settings_of_the_file_are_used(tmp_path, monkeypatch):
    settings = "def settings():\n    return igpe.Settings(confidence=0.5).seeded(3)\n"
    (tmp_path / "my.csv").write_text(mistakes.TABLE)
    (tmp_path / "model.py").write_text(mistakes.MODEL + settings)
    monkeypatch.chdir(tmp_path)
    found = json.loads(run("estimate", "model.py", "--json", "-").stdout)
    assert (found["confidence"], found["seed"]) == (0.5, 3)
    assert json.loads(run("estimate", "model.py", "--seed", 0, "--json", "-").stdout)["seed"] == 0


def test_settings_that_are_none(tmp_path, monkeypatch):
    (tmp_path / "my.csv").write_text(mistakes.TABLE)
    (tmp_path / "model.py").write_text(mistakes.MODEL + "def settings():\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    refused(run("estimate", "model.py"), "settings() in 'model.py'", "expected igpe.Settings(...)")


def test_a_folder_and_an_sbml_model_are_not_model_files(tmp_path, monkeypatch):
    folder = tmp_path / "growth"
    folder.mkdir()
    for name in ("a.py", "problem.yaml", "model.xml"):
        (folder / name).write_text("<sbml/>")
    monkeypatch.chdir(tmp_path)
    refused(
        run("estimate", "growth"), "'growth' is a folder", "Did you mean 'growth/problem.yaml'?"
    )
    refused(run("estimate", "growth/model.xml"), "is an SBML model", "give its YAML file")


def test_a_class_in_place_of_a_method_is_refused():
    sentence = r"correction=.* got the class SingleShooting; .* correction=SingleShooting\(\)"
    with pytest.raises(igpe.errors.ProblemError, match=sentence):
        igpe.Settings(correction=igpe.SingleShooting)


def test_only_solvers_that_were_chosen_are_required():
    igpe.Settings().require_solvers()
    missing = igpe.algebraic.GlobalSolver(solver=igpe.solvers.AmplProgram("no-such-solver"))
    chosen = igpe.Settings(routes=igpe.algebraic.RouteSelection(proven=missing))
    with pytest.raises(igpe.errors.SolverMissing, match="no-such-solver"):
        chosen.require_solvers()
