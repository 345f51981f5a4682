"""The command line: answers on standard output, one sentence of error, and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import consecutive
import pandas as pd
import pytest
from command_line import BELLMAN, CHAIN, ROOT, refused, run

from igpe.cli.model_file import load_design
from igpe.core.errors import ProblemError

AT_OPTIMUM = ["--set", "p1=5", "--set", "p2=1"]


def test_check_prints_the_structure_and_draws_it(tmp_path):
    path = tmp_path / "map.svg"
    done = run("check", CHAIN, "--plot", path)
    assert done.exit_code == 0
    assert done.stdout.startswith("p1  from the slope")
    assert "square: 2 equations, 2 unknowns" in path.read_text(encoding="utf-8")
    found = json.loads(run("check", CHAIN, "--json", "-").stdout)
    assert [(f["name"], f["reach"]) for f in found["table"]][1] == ("p2", "algebraic")


@pytest.fixture(scope="module")
def estimated(tmp_path_factory):
    """An estimation with all that it can write, and its folder."""
    folder = tmp_path_factory.mktemp("estimated")
    files = {"--json": "result.json", "--plot": "fit.png", "--report": "one.html"}
    words = [word for option, name in files.items() for word in (option, folder / name)]
    return run("estimate", CHAIN, *words, "--seed", 7), folder


def test_estimate_prints_the_result_and_writes_files(estimated):
    done, folder = estimated
    assert done.exit_code == 0
    assert done.stdout.startswith("Fit         good: ")
    assert "\np1  5.00" in done.stdout
    assert [line.split("/")[-1] for line in done.stderr.splitlines()] == [
        "result.json", "fit.png", "one.html",
    ]  # fmt: skip
    found = json.loads((folder / "result.json").read_text())
    assert found["parameters"] == pytest.approx(consecutive.OPTIMUM, rel=1e-4)
    assert found["objective"] == pytest.approx(1.186e-6, rel=1e-2)
    assert (found["status"], found["seed"]) == ("CONVERGED", 7)
    assert (folder / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_a_stored_result_has_the_same_report(estimated):
    folder = estimated[1]
    page, again = folder / "one.html", folder / "other.htm"
    title = "Estimated parameters: consecutive"
    done = run("report", folder / "result.json", again, "--title", title)
    assert (done.exit_code, done.stdout) == (0, f"Written: {again}\n")
    assert again.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert "Settings(ladder=" in page.read_text(encoding="utf-8")
    run("report", folder / "result.json", again, "--title", "Run 12", "--date", "today")
    assert "<h1>Run 12</h1><p>today</p>" in again.read_text(encoding="utf-8")


def test_a_report_of_no_result(tmp_path):
    page = tmp_path / "report.html"
    refused(run("report", tmp_path / "nowhere.json", page), "nowhere.json", "could not be read")
    assert not page.exists()


def test_other_measurements(tmp_path):
    """Data of a chain that is twice as fast: the same values at half the times."""
    faster = pd.read_csv(consecutive.DATA)
    faster["time"] /= 2
    path = tmp_path / "run.xlsx"
    faster[faster["time"] < 0.45].to_excel(path, index=False)
    found = json.loads(run("estimate", CHAIN, "--data", path, "--json", "-").stdout)
    assert found["parameters"]["p2"] == pytest.approx(2.0, rel=0.01)
    assert found["measurements"] == 2 * (faster["time"] < 0.45).sum()


def test_profile_prints_intervals_and_writes_them(estimated):
    folder = estimated[1]
    words = ["--result", folder / "result.json", "--plot", folder / "p.png"]
    done = run("profile", CHAIN, *words, "--json", folder / "p.json")
    assert done.exit_code == 0
    assert "95 % interval" in done.stdout
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((folder / "p.json").read_text())
    assert [p["name"] for p in found["profiles"]] == ["p1", "p2"]


def test_profile_estimates_first_where_no_result_is_given():
    done = run("profile", CHAIN, "--name", "p2", "--confidence", 0.9, "--json", "-")
    found = json.loads(done.stdout)
    assert [p["name"] for p in found["profiles"]] == ["p2"]
    assert found["confidence"] == 0.9
    assert found["profiles"][0]["lower"] < 1.0 < found["profiles"][0]["upper"]


def test_simulate_prints_a_table(tmp_path):
    picture = tmp_path / "simulated.svg"
    done = run("simulate", CHAIN, *AT_OPTIMUM, "--plot", picture)
    assert done.stdout.splitlines()[:2] == ["experiment,time,x1,x2", "1,0.0,1.0,0.0"]
    assert "<svg" in picture.read_text()
    found = json.loads(run("simulate", CHAIN, *AT_OPTIMUM, "--json", "-").stdout)
    assert found["table"][0] == {"experiment": "1", "time": 0.0, "x1": 1.0, "x2": 0.0}


SPOILT = {
    "no function": ("x = 1", "has no function problem()"),
    "not a function": ("problem = 1", "has no function problem()"),
    "not a problem": (
        "def problem(): return 3",
        "returned a value of type int; expected an igpe.Problem",
    ),
    "nothing": (
        "def problem(): pass",
        "returned a value of type NoneType; expected an igpe.Problem",
    ),
    "raises": ("def problem():\n    return {}['k']", "failed in line 2: KeyError: 'k'"),
    "raises below": (
        "import json\n\ndef problem():\n    json.loads('{')",
        "failed in line 4: JSONDecodeError",
    ),
    "syntax": ("x = 1\ndef problem(:", "failed in line 2: SyntaxError"),
    "import": ("import no_such_package", "failed in line 1: ModuleNotFoundError"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_model_file(tmp_path, name):
    text, words = SPOILT[name]
    path = tmp_path / "model.py"
    path.write_text(text)
    refused(run("check", path), str(path), words)


def test_files_that_are_missing_or_do_not_fit(tmp_path):
    refused(run("check", "nowhere.py"), "There is no model file 'nowhere.py'", "working folder")
    refused(run("simulate", CHAIN, "--data", "nowhere.csv"), "No such file: 'nowhere.csv'")
    other, broken = tmp_path / "other.csv", tmp_path / "run.xlsx"
    other.write_text("time,x9\n1,2\n2,3\n")
    refused(run("estimate", CHAIN, "--data", other), "x9")
    broken.write_text("not a workbook")
    refused(run("estimate", CHAIN, "--data", broken), "run.xlsx")


BAD_VALUES = {
    "no number": (["p1"], "--set p1 is not of the form name=number"),
    "no figure": (["p1=fast"], "--set p1=fast is not of the form name=number"),
    "missing": (["p1=1"], "Give values for ['p2']"),
    "unheard of": (["p1=1", "p2=1", "p3=1"], "['p3'], which are not unknowns"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_values(name):
    given, words = BAD_VALUES[name]
    refused(run("simulate", CHAIN, *(w for one in given for w in ("--set", one))), words)


UNWRITABLE = {
    "json in no folder": (["--json", "nowhere/result.json"], "folder 'nowhere' does not exist"),
    "plot in no folder": (["--plot", "nowhere/fit.png"], "folder 'nowhere' does not exist"),
    "report in no folder": (["--report", "nowhere/report.html"], "folder 'nowhere' does not exist"),
    "report of another kind": (["--report", "report.pdf"], "does not end in .html, .htm"),
    "picture of another kind": (["--plot", "fit.docx"], ".png"),
    "json is a folder": (["--json", ROOT], "is a folder"),
    "seed": (["--seed", -1], "--seed"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_cannot_be_written_is_noticed_before_the_work(name):
    words, says = UNWRITABLE[name]
    done = run("estimate", "nowhere.py", *words)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "nowhere.py" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_file_that_cannot_be_written():
    done = run("simulate", CHAIN, *AT_OPTIMUM, "--json", "/dev/full")
    assert done.exit_code == 2
    assert "No space left" in done.stderr
    assert done.stdout.startswith("experiment,time"), "the answer is not lost"


def test_a_model_that_breaks_down_ends_with_1():
    done = run("simulate", BELLMAN, "--set", "p1=-0.1", "--set", "p2=0")
    assert done.exit_code == 1
    assert "could be integrated only to time" in done.stderr


def test_without_a_command_it_shows_help():
    assert "estimate" in run().output


def test_an_interruption_ends_with_130(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def problem(): raise KeyboardInterrupt")
    done = run("estimate", path)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "Error: Interrupted.\n"


@pytest.mark.slow
def test_python_m_igpe():
    words = [sys.executable, "-m", "igpe", "simulate", "nowhere.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: There is no model file")


@pytest.mark.parametrize(
    ("option", "said"),
    [("--help", ("check", "estimate", "report", "simulate")), ("--version", ("Pyomo", "CasADi"))],
)
def test_help_and_versions_do_not_wait_for_what_is_slow(option, said):
    code = (
        f"import sys\nfrom igpe.cli import main\nsys.argv = ['igpe', '{option}']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "slow = {'pyomo', 'casadi', 'pandas', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in said)


def test_design_plans_the_next_experiment(tmp_path):
    picture, json_file = tmp_path / "next.png", tmp_path / "next.json"
    predators = ROOT / "models" / "lotka_volterra.py"
    done = run("design", predators, "--plot", picture, "--json", json_file)
    assert done.exit_code == 0, done.output
    assert "plan1: measure x1, x2 at" in done.stdout
    stored = json.loads(json_file.read_text())
    assert stored["after"] < stored["before"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("", "has no function design()"),
        ("def design(): return 3", "expected the settings of igpe.design"),
        ("def design(): return {'speed': 3}", "unknown settings: ['speed']"),
    ],
)
def test_settings_of_a_design_that_are_none(tmp_path, settings, says):
    path = tmp_path / "model.py"
    path.write_text(
        Path(CHAIN).read_text().replace("parents[1]", f"parents[0] / '{ROOT}'") + settings
    )
    done = run("design", path)
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize(
    ("own", "words", "seed"),
    [
        ("", (), 4),
        ("", ("--seed", 0), 0),
        ("'seed': 5, ", (), 5),
        ("'seed': 5, ", ("--seed", 6), 6),
    ],
)
def test_the_seed_of_a_design(tmp_path, monkeypatch, own, words, seed):
    """That of the command line, else of design(), else of settings()."""
    seeds = []

    def plan(problem, parameters, *, seed=0):
        seeds.append(seed)
        raise ProblemError("Enough.")

    monkeypatch.setattr("igpe.planning.design.design", plan)
    path = tmp_path / "model.py"
    path.write_text(
        Path(CHAIN).read_text().replace("parents[1]", f"parents[0] / '{ROOT}'")
        + f"def design(): return {{{own}'parameters': {{'p1': 5.0, 'p2': 1.0}}}}\n"
        + "def settings(): return igpe.Settings().seeded(4)\n"
    )
    refused(run("design", path, *words), "Enough.")
    assert seeds == [seed]


def test_simulate_does_not_ignore_a_value_of_a_fixed_unknown(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(
        Path(CHAIN).read_text().replace("parents[1]", f"parents[0] / '{ROOT}'")
        + "free = problem\ndef problem(): return free().fixing({'p1': 5.0})\n"
    )
    refused(run("simulate", path, "--set", "p1=4", "--set", "p2=1"), "fixes 'p1' at 5")
    done = run("simulate", path, "--set", "p1=5", "--set", "p2=1")
    assert done.exit_code == 0, done.output
    done = run("simulate", path, "--set", "p2=2", "--set", "p2=1")
    refused(done, "one of ['p2'] more than one value")


@pytest.mark.parametrize(
    ("command", "option", "kept", "replaced"),
    [
        ("profile", "--json", '{"command": "estimate"}', '{"command": "profile"}'),
        ("certify", "--certificate", '{"stored": "result"}', '{"stored": "certificate"}'),
    ],
)
def test_a_file_of_another_kind_is_refused_before_the_work(
    tmp_path, command, option, kept, replaced
):
    path = tmp_path / "answer.json"
    for content, says in ((kept, "already exists"), (replaced, "There is no model file")):
        path.write_text(content)
        refused(run(command, "nothing.py", option, path), says)


def test_a_petab_problem_has_no_design():
    with pytest.raises(ProblemError, match=r"returns igpe.petab.read_petab\('problem.yaml'\)"):
        load_design(Path("problem.yaml"))
