"""The architecture in figures, beside those of version 0.1.

    python benchmarks/house.py [SECTION ...] [--before COMMIT] [--store FOLDER] [--json FILE]

rooms    folders and loose modules of the package, floors, files, fullest folder, circles
lines    of Python and C by room, and of the tests
names    classes that stand in several rooms, public names, call sites that read the model
adding   files that ask for a method by its class: a new one of its family touches them as well
faults   wrong behaviours planted at the public door, and how many of them the tests see
times    processor seconds of a first use in a fresh process, and of the tests of every room
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from figures import Row, at_most, command
from house import faults, times

ROOT = Path(__file__).resolve().parents[1]
FIRST = "158e403"  # version 0.1
LIMITS = {
    "rooms": 18,
    "floors": 11,
    "loose modules": 3,
    "files": 280,
    "modules in the fullest folder": 20,
    "modules in circles": 0,
    "classes in several rooms": 0,
    "public names": 45,
    "call sites that read the model": 1,
    "lines of the package": 43_000,
    "lines of the tests": 27_000,
}
READERS = {"read_systems"}
FAMILIES = {
    "smoother": ("GcvSpline Interpolation Bootstrap BootstrapSmoother", 0),
    "integrator": (
        "Automatic AutomaticIntervals Sundials DormandPrince RungeKutta LockStep "
        "LocalLinearization WholeHorizon OneByOne",
        0,
    ),
    "noise model": ("Proportional Estimated EstimatedSigma Noise", 1),
    "loss": ("LeastSquares L1 Huber", 1),
    "solver": ("Ipopt Scip MAiNGO AmplProgram Couenne", 0),
}
"""Family -> its classes, by their names then and now, and the files that a new one may touch beside
its own. `tests/test_adding.py` adds one of each."""
ASKING = "files that ask which {} it is"
LIMITS |= {ASKING.format(family): most for family, (_, most) in FAMILIES.items()}


class Package:
    """A checkout's package, as its files and imports."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, root / "igpe"
        self.files = sorted(self.top.rglob("*.py"))
        self.trees = {f: ast.parse(f.read_text(encoding="utf-8")) for f in self.files}
        self.modules = {self.dotted(f): f for f in self.files}

    def dotted(self, file: Path) -> str:
        """Name of a file's module."""
        return ".".join(file.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")

    def room(self, module: str) -> str:
        """The folder or loose module directly in the package."""
        return [*module.split("."), ""][1]

    def imports(self, file: Path) -> Iterator[str]:
        """Modules of the package that a file imports anywhere, also for type checking."""
        for node in ast.walk(self.trees[file]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("igpe"):
                yield from (self._known(f"{node.module}.{a.name}") for a in node.names)
            elif isinstance(node, ast.Import):
                yield from (self._known(a.name) for a in node.names if a.name.startswith("igpe"))

    def _known(self, name: str) -> str:
        while name not in self.modules and "." in name:
            name = name.rsplit(".", 1)[0]
        return name

    def graph(self) -> dict[str, set[str]]:
        """Module -> modules it imports, without the front door."""
        inside = {m: f for m, f in self.modules.items() if m != "igpe"}
        return {m: {i for i in self.imports(f) if i not in {m, "igpe"}} for m, f in inside.items()}


def _in_circles(graph: dict[str, set[str]]) -> set[str]:
    """Nodes that lie on a circle: those left when all others are peeled off from both ends."""
    left = dict(graph)
    while True:
        used = set().union(*left.values()) if left else set()
        ends = {n for n in left if not left[n] & left.keys() or n not in used}
        if not ends:
            return set(left)
        left = {n: to - ends for n, to in left.items() if n not in ends}


def _floors(graph: dict[str, set[str]]) -> float:
    """Length of the longest chain of rooms; infinite if rooms form a circle."""
    if _in_circles(graph):
        return float("inf")

    @cache
    def height(room: str) -> int:
        return 1 + max(map(height, graph.get(room, ())), default=0)

    return max(map(height, graph))


def rooms(package: Package) -> Iterator[tuple[str, str, float]]:
    """Rooms, floors, files, circles."""
    between: dict[str, set[str]] = defaultdict(set)
    for module, others in package.graph().items():
        between[package.room(module)] |= {package.room(o) for o in others} - {package.room(module)}
    folders = Counter(f.parent for f in package.files if f.name != "__init__.py")
    names = {package.room(m) for m in package.modules} - {""}
    yield "all", "rooms", len(names - {"__main__", "pipeline"})
    yield "all", "floors", _floors(dict(between))
    yield "all", "loose modules", len(list(package.top.glob("*.py")))
    yield "all", "files", len(package.files)
    yield "all", "modules in the fullest folder", max(folders.values())
    yield "all", "modules in circles", len(_in_circles(package.graph()))


def lines(package: Package) -> Iterator[tuple[str, str, float]]:
    """Lines by room, of the package and of the tests."""
    count: Counter[str] = Counter()
    for file in (*package.files, *package.top.rglob("*.c")):
        count[package.room(package.dotted(file)) or "igpe"] += _lines(file)
    yield "all", "lines of the package", count.total()
    written = sum(len(_statements(file, tree)) for file, tree in package.trees.items())
    compiled = sum(map(_lines, package.top.rglob("*.c")))
    yield "all", "of them statements", written + compiled
    tests = (package.root / "tests").rglob("*.py")
    yield "all", "lines of the tests", sum(map(_lines, tests))
    for room, number in count.most_common():
        yield room, "lines", number


LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
LAYOUT |= {tokenize.ENDMARKER}


def _statements(file: Path, tree: ast.Module) -> set[int]:
    """Line numbers without blank lines, comments, docstrings and imports."""
    with file.open("rb") as text:
        tokens = [t for t in tokenize.tokenize(text.readline) if t.type not in LAYOUT]
    written = {line for t in tokens[1:] for line in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            written -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return written


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def names(package: Package) -> Iterator[tuple[str, str, float]]:
    """Classes in several rooms, public names, call sites of what reads the model."""
    places: dict[str, set[str]] = defaultdict(set)
    sites = 0
    for file, tree in package.trees.items():
        room = package.room(package.dotted(file))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(room)
            elif isinstance(node, ast.Call):
                sites += getattr(node.func, "id", "") in READERS
    public = {n: r for n, r in places.items() if not n.startswith("_")}
    yield "all", "classes in several rooms", sum(len(r) > 1 for r in public.values())
    yield "all", "public names", _public(package)
    yield "all", "call sites that read the model", sites


def adding(package: Package) -> Iterator[tuple[str, str, float]]:
    """Files that ask for smoothers, integrators, noise models, losses, solvers by their class."""
    asked = [_asked_for(tree) for tree in package.trees.values()]
    for family, (members, _) in FAMILIES.items():
        asking = sum(bool(names & set(members.split())) for names in asked)
        yield "all", ASKING.format(family), asking


def _asked_for(tree: ast.AST) -> set[str]:
    """Names of the classes of which a file asks whether something is one."""
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call))
    kinds = [c.args[1] for c in calls if getattr(c.func, "id", "") in {"isinstance", "issubclass"}]
    return {n.id for kind in kinds for n in ast.walk(kind) if isinstance(n, ast.Name)}


def _public(package: Package) -> int:
    """Names at the top, families among them: of the stub, or of the table that 0.1 had."""
    stub = package.top / "__init__.pyi"
    if stub.exists():
        body = ast.parse(stub.read_text(encoding="utf-8")).body
        return sum(len(node.names) for node in body if isinstance(node, ast.ImportFrom))
    table = next(n for n in package.trees[package.top / "__init__.py"].body if _is_home(n))
    return len(table.value.keys)  # type: ignore[attr-defined]


def _is_home(node: ast.stmt) -> bool:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return any(getattr(t, "id", "") == "_HOME" for t in targets)


def _section(figures: object) -> object:
    def section(given: argparse.Namespace) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            before = _exported(given.before, Path(folder))
            known = {key[:2]: key[2] for key in figures(before)} if before else {}  # type: ignore[operator]
        for case, figure, value in figures(Package(ROOT)):  # type: ignore[operator]
            if (case, figure) in known:
                yield at_most(case, f"{figure}, before", known[case, figure])
            yield at_most(case, figure, value, "-", LIMITS.get(figure))

    return section


def _exported(commit: str, folder: Path) -> Package | None:
    """The package at a commit; None where the checkout has no history."""
    words = ["git", "-C", str(ROOT), "archive", commit, "igpe", "tests"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        print(f"no commit {commit} here: only the figures of today", file=sys.stderr)
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Package(folder)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", default=FIRST, help="commit to compare with")
    times.options(parser)
    faults.options(parser)


if __name__ == "__main__":
    sections = {s.__name__: _section(s) for s in (rooms, lines, names, adding)}
    more = {"times": times.figures, "faults": faults.figures}
    command(__doc__, "House", sections | more, _options)  # type: ignore[arg-type, operator]
