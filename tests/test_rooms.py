"""The rooms of the package: who may import whom, and that nothing imports in a circle.

Imports within functions and for type checking count as well.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "igpe"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 600  # lines
MOST = 20  # modules in one folder

FLOORS: dict[str, int] = {
    "core": 1,
    "problem": 2,
    "numerics": 2,
    "smoothing": 2,
    "solvers": 2,
    "tasks": 2,
    "equations": 3,
    "dynamics": 4,
    "results": 5,
    "formats": 5,
    "structure": 6,
    "uncertainty": 6,
    "planning": 6,
    "proofs": 6,
    "algebraic": 7,
    "estimation": 8,
    "pipeline": 9,
    "selection": 10,
    "cli": 11,
    "__main__": 12,
    "__init__": 13,
}
"""Room -> floor. Rooms of one floor do not know each other."""

STRANGERS = {
    "numerics": ("problem",),
    "solvers": ("problem",),
    "smoothing": ("problem",),
    "structure.series": ("problem",),
    "proofs.checker": ("proofs.prover",),
}
"""Rooms that may not import others, though these stand below them or beside."""


class Import(NamedTuple):
    """An import of one of our modules: the file, its line, and the module's dotted name."""

    file: Path
    line: int
    name: str

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file.relative_to(PACKAGE.parent)}:{self.line}"


def module_of(file: Path) -> str:
    """Dotted name of a file without the package's: `dynamics.integrators.base`."""
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


@cache
def imports(file: Path) -> tuple[Import, ...]:
    """All imports of our own modules: at the top, in functions and for type checking."""
    return tuple(_imports(file, ast.parse(file.read_text())))


def _imports(file: Path, tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
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
    """`from igpe.smoothing import basis` names a module; other names are in their module."""
    inner = PACKAGE.parent / Path(*module.split("."), name)
    is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
    return f"{module}.{name}" if is_module else module


def complaint(one: Import) -> str:
    """What is wrong with an import, as a sentence; empty if nothing."""
    module = module_of(one.file)
    own = module.split(".", maxsplit=1)[0]
    if one.name.startswith("."):
        return f"{one.where}: relative import; write igpe.{own}... in full."
    if one.name == "igpe":
        return f"{one.where}: nobody inside uses the front door; import from the defining module."
    target = one.name.removeprefix("igpe.")
    other = target.split(".")[0]
    if other not in FLOORS:
        return f"{one.where}: room '{other}' has no floor; give it one in this table."
    for room, barred in STRANGERS.items():
        if f"{module}.".startswith(f"{room}.") and f"{target}.".startswith(
            tuple(f"{b}." for b in barred)
        ):
            return f"{one.where}: room '{room}' must not know '{target}'."
    if other != own and FLOORS[other] >= FLOORS[own]:
        return (
            f"{one.where}: room '{own}' (floor {FLOORS[own]}) imports '{other}' (floor "
            f"{FLOORS[other]}); a room knows only the floors below."
        )
    return ""


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Circles of a graph, each as its nodes: one for each node that closes one."""
    done: set[str] = set()
    found = []

    def visit(node: str, path: list[str]) -> None:
        if node in path:
            found.append(path[path.index(node) :])
        elif node not in done:
            for other in sorted(graph.get(node, ())):
                visit(other, [*path, node])
            done.add(node)

    for node in sorted(graph):
        visit(node, [])
    return found


def test_every_room_has_a_floor_and_every_floor_a_room() -> None:
    rooms = {module_of(f).split(".")[0] for f in FILES}
    assert rooms == set(FLOORS)
    loose = {f.stem for f in PACKAGE.glob("*.py")}
    assert loose == {"__init__", "__main__", "pipeline"}


@pytest.mark.slow
def test_imports_lead_downstairs() -> None:
    told = [complaint(one) for file in FILES for one in imports(file)]
    assert [t for t in told if t] == []


def test_no_module_imports_in_a_circle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        if file != PACKAGE / "__init__.py":
            own = f"igpe.{module_of(file)}".removesuffix(".__init__")
            graph[own] |= {one.name for one in imports(file) if one.name != own}
    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def test_every_room_says_what_it_is_for() -> None:
    for room in FLOORS:
        init = PACKAGE / room / "__init__.py"
        if init.exists():
            assert ast.get_docstring(ast.parse(init.read_text())), room


def test_no_file_is_too_long_and_no_folder_too_full() -> None:
    lines = {f: len(f.read_text().splitlines()) for f in FILES}
    assert {n: k for n, k in lines.items() if k > LONGEST} == {}
    folders = {f.parent for f in FILES}
    assert {d: n for d in folders if (n := len(list(d.glob("*.py")))) > MOST + 1} == {}


@pytest.mark.slow
def test_a_public_class_name_stands_in_one_room() -> None:
    rooms: dict[str, set[str]] = {}
    for file in FILES:
        room = file.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms.setdefault(node.name, set()).add(room)
    assert {name: r for name, r in rooms.items() if len(r) > 1} == {}


@pytest.mark.parametrize(
    ("where", "code", "says"),
    [
        ("numerics/a.py", "from igpe.problem.problem import Problem", "must not know 'problem"),
        ("proofs/checker/a.py", "import igpe.proofs.prover.search", "must not know 'proofs.prover"),
        ("core/a.py", "def f():\n    from igpe.problem.model import read", "the floors below"),
        ("dynamics/a.py", "if TYPE_CHECKING:\n    import igpe.pipeline", "the floors below"),
        ("dynamics/a.py", "from igpe.algebraic import routes", "room 'dynamics' (floor 4)"),
        ("dynamics/a.py", "from . import base", "relative import"),
        ("dynamics/a.py", "import igpe", "front door"),
        ("dynamics/a.py", "from igpe import Problem", "front door"),
        ("dynamics/a.py", "from igpe.cellar import x", "has no floor"),
    ],
)
def test_a_wrong_import_is_found(where: str, code: str, says: str) -> None:
    told = [complaint(one) for one in _imports(PACKAGE / where, ast.parse(code))]
    assert len(told) == 1
    assert says in told[0]
