"""Files that lie about, or that come from others, must never run code."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyomo.environ as pyo
import pytest

import igpe
from igpe.core import markup
from igpe.dynamics.integrators import compiler
from igpe.formats.draft import draft
from igpe.formats.workbooks.words import identifier, known_unit
from igpe.problem.measurements import conversion
from igpe.solvers.ipopt import Ipopt

ROOT = Path(igpe.__file__).parents[1]
CANARY = "open('canary', 'w').close()"
HEADERS = {
    "unit with a long text": "A [mol '''\n    import canary\n    #''']",
    "unit with another one": 'A [mol """"""\n    import canary\n    #""""""]',
    "unit with a class": "A [mol '''\n    @exec\n    @input\n    class canary: pass\n    #''']",
    "unit with a new line": f"A ['x'*mol\n{CANARY}\n#]",
    "unit with a carriage return": f"A [mol\r{CANARY}\r#]",
    "unit with a form feed": f"A [mol\f\n{CANARY}]",
    "unit in quotes": f'A ["\n{CANARY}\n"*mol/L]',
    "name with a new line": f"A\n{CANARY}\n# [mol/L]",
    "name that ends a docstring": f'A"""\n{CANARY}\n""" [mol/L]',
    "name that ends a text": f'A", {CANARY}, " [mol/L]',
    "name with a backslash": f"A\\\n{CANARY} [mol/L]",
    "line separators": f"A\u2028{CANARY}\u2029 [mol/L]",
    "a small two, which is no identifier": "A² [mol/L]",
    "a mark that turns the text around": f"A\u202e{CANARY} [mol/L]",
}


def _in(folder: Path, code: str, *flags: str, **environment: str) -> str:
    """What a Python program prints that begins in the folder, as `igpe` does."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, *flags, "-P", "-c", code],
        cwd=folder, env=given, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("place", ["measured", "time", "left out", "experiment"])
def test_headers_become_no_statements(header: str, place: str, tmp_path: Path) -> None:
    """The drafted file holds the statements of a draft, whatever the header says."""
    names = {"time": "t / h", "measured": "A", "left out": "words", "experiment": "run"}
    columns = {"time": [0.0, 1.0, 2.0] * 2, "measured": [1.0, 0.5, 0.2, 1.1, 0.6, 0.3]}
    columns |= {"left out": ["x"] * 6, "experiment": ["a"] * 3 + ["b"] * 3}
    plain = pd.DataFrame(columns).rename(columns=names)
    hostile = plain.rename(columns={names[place]: header})
    plain.to_csv(tmp_path / "plain.csv", index=False)
    hostile.to_csv(tmp_path / "hostile.csv", index=False)
    shapes = []
    for name, asked in (
        ("plain.csv", names),
        ("hostile.csv", {**names, place: header}),
    ):
        made = draft(
            [tmp_path / name],
            [],
            {"roles": {asked[r]: r for r in ("time", "experiment")}},
            tmp_path / "model.py",
        )
        tree = ast.parse(made.text)
        statements = (n for n in ast.walk(tree) if isinstance(n, ast.stmt))
        shapes.append([type(node).__name__ for node in statements])
        calls = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
        calls = {name for name in calls if "." not in name}
        assert calls <= {"Path"}
    assert shapes[0] == shapes[1]


def test_names_of_files_and_runs_stay_texts(tmp_path: Path) -> None:
    """A file's name stands in a docstring, and an experiment's in a text."""
    for name in ('a"""\nimport os\n"""', "b\\"):
        pd.DataFrame({"t": [0, 1, 2], "A": [1, 2, 4]}).to_csv(tmp_path / f"{name}.csv", index=False)
    files = sorted(tmp_path.glob("*.csv"))
    made = draft(files, [], {}, tmp_path / 'x"""\nimport os\n"""\\.py')
    imports = [n for n in ast.walk(ast.parse(made.text)) if isinstance(n, ast.Import)]
    assert {alias.name for n in imports for alias in n.names} == {"igpe", "pyomo.environ"}


@pytest.mark.parametrize(
    ("unit", "known"),
    [
        ("mol/L", "mol/L"),
        ("mol L⁻¹", "mol*L**-1"),
        ("(mol/L)**2", "(mol/L)**2"),
        ("'x'*mol", ""),
        ("mol\nimport os", ""),
        ("m**9**9**9**9", ""),
        ("m^999999999", ""),
        ("((9**99)**99)**99*m", ""),
        ("(" * 500 + "m" + ")" * 500, ""),
    ],
)
def test_units_are_units(unit: str, known: str) -> None:
    """Only what looks like a unit is given to pint, which passes over texts and powers at will."""
    assert known_unit(unit).replace(" ", "*") == known.replace(" ", "*")


@pytest.mark.parametrize("unit", ["m**9**9**9**9", "'x'*mol", "mol\n"])
def test_units_of_an_experiment_too(unit: str) -> None:
    """The same guard, with a sentence."""
    with pytest.raises(igpe.errors.DataError, match="unit"):
        conversion("A", unit, "mol/L")


@pytest.mark.parametrize("name", ["²", "x\u0660", "ﬁ", "1a", "__class__", "\uff41 b"])
def test_identifiers_are_identifiers(name: str) -> None:
    """Also of letters that Python takes for others."""
    assert identifier(name).isidentifier()


def test_ipopt_reads_no_option_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPOPT would read `ipopt.opt` in the current folder: it may load libraries and write files."""
    (tmp_path / "ipopt.opt").write_text("output_file canary\nfile_print_level 5\n")
    monkeypatch.chdir(tmp_path)
    model = pyo.ConcreteModel()
    model.x = pyo.Var(initialize=3.0)
    model.least = pyo.Objective(expr=(model.x - 1) ** 2)
    assert Ipopt().solve(model).status.usable
    assert not (tmp_path / "canary").exists()


def test_numba_reads_no_configuration_of_the_folder(tmp_path: Path) -> None:
    """A cache folder that it names would hold kernels that are unpickled, so run."""
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path}\nopt: 0\n")
    code = (
        "import igpe.proofs.compiled as c; from numba.core import config; "
        "config.reload_config(); "
        "print(repr(config.CACHE_DIR), int(config.OPT))"
    )
    assert _in(tmp_path, code, NUMBA_CACHE_DIR="") == "'' 3"


@pytest.mark.parametrize("module", ["pickle", "os", "igpe", "json"])
def test_children_import_nothing_from_the_folder(module: str, tmp_path: Path) -> None:
    """A file called pickle.py lies in the current folder."""
    (tmp_path / f"{module}.py").write_text("import pathlib; pathlib.Path('canary').touch()\n")
    code = (
        "from igpe.tasks.workers import Worker; child = Worker()._process; child.stdin.close(); "
        "child.wait()"
    )
    _in(tmp_path, code)
    assert not (tmp_path / "canary").exists()


@pytest.mark.slow
def test_the_module_is_the_command(tmp_path: Path) -> None:
    """`python -m igpe` puts the current folder first, where igpe takes it out again."""
    (tmp_path / "numpy.py").write_text("import pathlib; pathlib.Path('canary').touch()\n")
    given = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "igpe", "check", "none.py"],
        cwd=tmp_path, env=given, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_libraries_are_not_taken_from_where_others_write(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is loaded must lie where nobody else can put it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "igpe").mkdir()
    (tmp_path / "igpe").chmod(mode)
    assert compiler._cache_folder() != tmp_path / "igpe"
    (tmp_path / "igpe").chmod(0o700)
    assert compiler._cache_folder() == tmp_path / "igpe"


def test_libraries_are_not_taken_through_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link would lead to a folder of somebody's choice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "igpe").symlink_to(tmp_path / "other")
    assert compiler._cache_folder() != tmp_path / "igpe"


def test_preformatted_text_is_text() -> None:
    """Notes of stored answers stand in notebooks."""
    assert "<script>" not in markup.preformatted("<script>alert(1)</script>")


def test_no_page_is_made_of_raw_text() -> None:
    """Everything that a notebook shows goes through `igpe.core.markup`, which escapes."""
    for file in sorted((ROOT / "igpe").rglob("*.py")):
        if file.name != "markup.py":
            assert "<pre>{self}" not in file.read_text(encoding="utf-8"), file
