"""Loading a problem from a file: what the file may do. What it may not is in test_cli.py."""

import sys
from pathlib import Path

import pytest

from igpe.cli.model_file import load_problem
from igpe.core.errors import DataError, ProblemError

ROOT = Path(__file__).parents[1]
MODELS = sorted((ROOT / "models").glob("*.py"))


@pytest.mark.slow
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


REFUSED = {
    "raise OSError('no disk')": (ProblemError, "failed in line 1: OSError: no disk"),
    "import igpe\ndef problem(): igpe.Experiment('nowhere.csv')": (DataError, "No such file"),
    "def problem(data): pass": (ProblemError, "missing 1 required positional argument"),
}


def test_failures_are_told_and_leave_the_search_path_as_it_was(tmp_path):
    path, before = tmp_path / "model.py", list(sys.path)
    for text, (error, says) in REFUSED.items():
        path.write_text(text)
        with pytest.raises(error, match=says):
            load_problem(path)
    for place, says in (("", "is a folder"), ("missing.py", "There is no model file")):
        with pytest.raises(ProblemError, match=says):
            load_problem(tmp_path / place)
    assert sys.path == before


def test_a_table_or_a_result_is_no_model_file(tmp_path):
    """Running it as Python would end with an error about its contents."""
    stored = tmp_path / "result.json"
    stored.write_text('{"stored": true}', encoding="utf-8")
    with pytest.raises(ProblemError, match="is not a model file"):
        load_problem(stored)


def test_a_file_may_hold_the_problem_itself(tmp_path):
    made = (
        f"import runpy\np = runpy.run_path({str(ROOT / 'models' / 'bellman.py')!r})['problem']()\n"
    )
    path = tmp_path / "model.py"
    path.write_text(made + "problem = p\n")
    assert load_problem(path).box.names == ("p1", "p2")
    path.write_text(made)
    with pytest.raises(ProblemError, match=r"has no function problem.*write problem = p\."):
        load_problem(path)
