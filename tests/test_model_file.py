"""Loading a problem from a file: what the file may do. What it may not is in test_cli.py."""

import sys
from pathlib import Path

import pytest

from igpe.cli.model_file import load_problem
from igpe.core.errors import DataError, ProblemError

ROOT = Path(__file__).parents[1]
MODELS = sorted((ROOT / "models").glob("*.py"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_published_model_is_found_from_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = load_problem(path)
    assert len(problem.box) > 0
    assert problem.size > 0


def test_a_relative_path(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_problem(Path("models/bellman.py")).box.names == ("p1", "p2")


def test_a_model_file_may_import_its_neighbour(tmp_path):
    source = (ROOT / "models" / "bellman.py").read_text()
    (tmp_path / "neighbour_of_a_model.py").write_text(source)
    path = tmp_path / "model.py"
    path.write_text(
        "import neighbour_of_a_model as n\nimport pandas as pd\nimport igpe\n"
        "def problem():\n"
        "    run = igpe.Experiment(pd.DataFrame({'time': [1, 2], 'x': [1, 2]}), start={'x': 0})\n"
        "    return igpe.Problem(n.model, parameters=['p1', 'p2'], experiments=run)\n"
    )
    before = list(sys.path)
    assert load_problem(path).size == 2
    assert sys.path == before


def test_the_search_path_is_as_before_even_after_a_failure(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("raise OSError('no disk')")
    before = list(sys.path)
    with pytest.raises(ProblemError, match="failed in line 1: OSError: no disk"):
        load_problem(path)
    assert sys.path == before


def test_an_error_of_igpe_is_passed_on(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import igpe\ndef problem(): igpe.Experiment('nowhere.csv')")
    with pytest.raises(DataError, match=r"There is no file 'nowhere\.csv'"):
        load_problem(path)


def test_a_folder_is_no_model_file(tmp_path):
    with pytest.raises(ProblemError, match="There is no model file"):
        load_problem(tmp_path)


def test_a_problem_that_wants_arguments(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def problem(data): pass")
    with pytest.raises(ProblemError, match="missing 1 required positional argument"):
        load_problem(path)
