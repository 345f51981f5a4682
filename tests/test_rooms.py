"""The rooms of the package: who may know whom, and how large a file may be.

A module may import from floors below its own and from its own room, nothing else.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "igpe"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 600  # lines

FLOORS: dict[str, int] = {
    "errors": 1,
    "status": 0,
    "arrays": 0,
    "inputs": 10,
    "along_time": 2,
    "axes": 1,
    "escaping": 0,
    "files": 2,
    "arguments": 2,
    "deadline": 1,
    "json_form": 3,
    "markup": 2,
    "csv_files": 7,
    "workbooks": 8,
    "tables": 9,
    "error_model": 9,
    "estimated": 9,
    "sigma": 10,
    "box": 10,
    "estimates": 10,
    "estimate_form": 11,
    "tasks": 10,
    "kinetics": 10,
    "loss": 10,
    "model": 10,
    "experiment_checks": 10,
    "experiment": 11,
    "units": 12,
    "starts": 12,
    "labelled": 12,
    "problem_checks": 30,
    "parameter_bounds": 30,
    "problem": 31,
    "plausibility": 32,
    "equations": 40,
    "smoothing": 40,
    "least_squares": 40,
    "optima": 45,
    "statistics": 40,
    "solvers": 40,
    "integrators": 41,
    "series": 41,
    "projection": 50,
    "structure": 50,
    "replay": 60,
    "algebraic": 60,
    "dynamic": 60,
    "adequacy": 67,
    "certificate": 67,
    "dynamic_certificate": 68,
    "proof_picture": 67,
    "plots": 69,
    "waterfall": 69,
    "result_text": 69,
    "report": 70,
    "residual_table": 69,
    "likelihood": 70,
    "progress": 70,
    "simulation": 70,
    "settings": 71,
    "petab": 71,
    "proof": 71,
    "model_file": 72,
    "draft": 72,
    "result": 71,
    "horizons_plot": 71,
    "shooting_plot": 71,
    "comparison": 71,
    "many_starts": 71,
    "run_table": 70,
    "notes": 72,
    "rank_notes": 72,
    "uncertainty": 72,
    "summary": 73,
    "planning": 73,
    "proven": 75,
    "equally_good": 74,
    "pipeline": 76,
    "cli": 77,
    "__main__": 78,
    "__init__": 79,
}
"""Room -> floor. Rooms of one floor are neighbours that do not know each other."""

STRANGERS = {
    "series": ("problem", "experiment", "model"),
    "statistics": ("problem", "experiment", "model"),
    "solvers": ("problem", "experiment", "model"),
    "least_squares": ("problem", "experiment", "model"),
    "smoothing": ("problem", "experiment", "model"),
}
"""Rooms that know arrays only, though they stand above the problem."""


class Import(NamedTuple):
    """An import of one of our modules: the file, its line, and the dotted name."""

    file: Path
    line: int
    name: str

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file.relative_to(PACKAGE.parent)}:{self.line}"


def room_of(file: Path) -> str:
    """The folder directly in the package, or the file's own name."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(file: Path) -> Iterator[Import]:
    """All imports of our own modules, also those in functions, but not for type checking."""
    for node in _running(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import(file, node.lineno, "." * node.level + (node.module or ""))
            elif (node.module or "").split(".")[0] == "igpe":
                below = [_dotted(node.module or "", alias.name) for alias in node.names]
                yield from (Import(file, node.lineno, name) for name in below)
        elif isinstance(node, ast.Import):
            ours = [a.name for a in node.names if a.name.split(".")[0] == "igpe"]
            yield from (Import(file, node.lineno, name) for name in ours)


def _dotted(module: str, name: str) -> str:
    """`from igpe.smoothing import boundary` names a module; other names are in their module."""
    inner = PACKAGE.parent / Path(*module.split("."), name)
    is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
    return f"{module}.{name}" if is_module else module


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _running(child)


def complaint(one: Import) -> str:
    """What is wrong with an import, as a sentence; empty if nothing."""
    own = room_of(one.file)
    if one.name.startswith("."):
        return f"{one.where}: relative import; write igpe.{own}... in full."
    if one.name == "igpe":
        return f"{one.where}: nobody inside uses the front door; import from the defining module."
    other = one.name.split(".")[1]
    if other not in FLOORS:
        return f"{one.where}: room '{other}' has no floor; give it one in this table."
    if other in STRANGERS.get(own, ()):
        return f"{one.where}: room '{own}' must not know '{other}'; hand it arrays."
    if other != own and FLOORS[other] >= FLOORS[own]:
        return (
            f"{one.where}: room '{own}' (floor {FLOORS[own]}) imports '{other}' (floor "
            f"{FLOORS[other]}); a room knows only the floors below."
        )
    return ""


def test_every_room_has_a_floor_and_every_floor_a_room() -> None:
    assert {room_of(f) for f in FILES} == set(FLOORS)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_lead_downstairs(file: Path) -> None:
    told = [complaint(one) for one in imports(file)]
    assert [t for t in told if t] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_file_is_too_long(file: Path) -> None:
    lines = len(file.read_text().splitlines())
    assert lines <= LONGEST, f"{file.name} has {lines} lines; split it by what its parts know."


@pytest.mark.parametrize(
    ("where", "code", "says"),
    [
        ("statistics/a.py", "from igpe.problem.problem import Problem", "must not know 'problem'"),
        (
            "box.py",
            "def f():\n    from igpe.problem.model import read",
            "knows only the floors below",
        ),
        ("dynamic/a.py", "from igpe.algebraic import local", "room 'dynamic' (floor 60)"),
        ("dynamic/a.py", "import igpe.pipeline", "knows only the floors below"),
        ("dynamic/a.py", "from . import base", "relative import"),
        ("dynamic/a.py", "import igpe", "front door"),
        ("dynamic/a.py", "from igpe import Problem", "front door"),
        ("dynamic/a.py", "from igpe.cellar import x", "has no floor"),
    ],
)
def test_a_wrong_import_is_found(
    where: str, code: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: code)
    told = [complaint(one) for one in imports(PACKAGE / where)]
    assert len(told) == 1
    assert says in told[0]


def test_imports_for_type_checking_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "if TYPE_CHECKING:\n    from igpe.problem.problem import Problem"
    monkeypatch.setattr(Path, "read_text", lambda _: code)
    assert list(imports(PACKAGE / "box.py")) == []
