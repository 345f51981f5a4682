"""Arguments and options of the commands: files, checked before the work, and their completion."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from igpe.problem.problem import Problem
    from igpe.results.result import Result

TABLES = (".csv", ".parquet", ".xls", ".xlsx")
MARKS = {".py": b"def problem(", ".yaml": b"parameter_file", ".yml": b"parameter_file"}
MOST = 300  # files that are looked into
LOOKED_AT = 2**20  # bytes of each


def models(incomplete: str) -> list[str]:
    """Files that hold a problem."""
    return _files(incomplete, tuple(MARKS), _is_model)


def tables(incomplete: str) -> list[str]:
    """Tables of measurements."""
    return _files(incomplete, TABLES)


def results(incomplete: str) -> list[str]:
    """Stored results."""
    return _files(incomplete, (".json",))


def tables_and_results(incomplete: str) -> list[str]:
    """What `igpe convert` reads."""
    return _files(incomplete, (*TABLES, ".json"))


def _files(
    incomplete: str, endings: tuple[str, ...], ok: Callable[[Path], bool] = lambda path: True
) -> list[str]:
    """Files whose path begins so, and those in folders whose path does.

    A folder is answered by its files: shells put a space after an answer, which would end the word.
    """
    before, _, last = incomplete.rpartition("/")
    folder = Path(before + "/" if before or incomplete.startswith("/") else ".")
    found = []
    for path in _listed(folder):
        if not path.name.startswith(last) or path.name.startswith(".") > last.startswith("."):
            continue
        inside = _listed(path) if path.is_dir() else [path]
        found += [p for p in inside if p.suffix.lower() in endings and p.is_file()]
    return [str(p) for p in found[:MOST] if ok(p)]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_model(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARKS[path.suffix.lower()] in file.read(LOOKED_AT)
    except OSError:
        return False


PICTURES = (".pdf", ".png", ".svg")
PAGES = (".html", ".htm")
CONVERTED = (".csv", ".xlsx", ".parquet", ".tsv", ".html")


def writable(path: Path | None) -> Path | None:
    """Refuse before the work what could not be written after it."""
    if path is not None and str(path) != "-" and not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"there is no folder '{path.parent}'; make it first.")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"'{path}' is a folder; give the name of a file to write.")
    return path


def replaceable(path: Path | None) -> Path | None:
    """The same, and a file that is there must be one of igpe's."""
    from igpe.core.files import require_writable

    if path is not None and writable(path) and str(path) != "-":
        require_writable(path)
    return path


def require_new(path: Path, *, force: bool) -> None:
    """Raises ProblemError for a file that is there and may not be overwritten."""
    from igpe.core.errors import ProblemError
    from igpe.core.files import require_writable

    if path.exists() and not force:
        raise ProblemError(f"'{path}' is there already; give another name, or --force.")
    require_writable(path, force=True)


def picture_file(path: Path | None) -> Path | None:
    return replaceable(_ending(path, PICTURES))


def page_file(path: Path | None) -> Path | None:
    return replaceable(_ending(path, PAGES))


def converted_file(path: Path | None) -> Path | None:
    return writable(_ending(path, CONVERTED))


def _ending(path: Path | None, known: tuple[str, ...]) -> Path | None:
    if path is not None and path.suffix.lower() not in known:
        raise typer.BadParameter(f"'{path}' does not end in {', '.join(known)}.")
    return path


Model = Annotated[
    Path,
    typer.Argument(
        autocompletion=models, help="Python file with a function problem(), or PEtab YAML file."
    ),
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data",
        autocompletion=tables,
        help="CSV, Excel or Parquet table that replaces the measurements.",
    ),
]
StoredResult = Annotated[
    Path, typer.Argument(autocompletion=results, help="Stored result (JSON), of estimate --json.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the search; 0, or that of the file's settings().")
]
PlotFile = Annotated[
    Path | None,
    typer.Option("--plot", callback=picture_file, help="Write a picture (.png, .pdf, .svg)."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", callback=page_file, help="Write a page with all that was found."),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", callback=replaceable, help="Write JSON to this file; - is standard output."
    ),
]


def problem_of(path: Path, data: Path | None) -> "Problem":
    from igpe.cli.model_file import load_problem

    problem = load_problem(path)
    return problem if data is None else problem.with_data(data)


def estimated(
    path: Path,
    problem: "Problem",
    seed: int | None,
    tell: Any,
    time_limit: float | None = None,
) -> "Result":
    """`igpe.estimate`, with the settings that the file's settings() returns."""
    from igpe.cli.model_file import load_settings
    from igpe.pipeline import estimate

    return estimate(problem, load_settings(path), seed=seed, progress=tell, time_limit=time_limit)


def nominal_of(problem: "Problem") -> dict[str, float]:
    """Values that a PEtab problem has by itself."""
    from igpe.formats.petab.sbml import PetabModel

    return problem.model.nominal if isinstance(problem.model, PetabModel) else {}


def values_of(given: list[str]) -> dict[str, float]:
    """name=number, as a mapping. Raises ProblemError for what is not of that form."""
    from igpe.core.errors import ProblemError

    values = {}
    for one in given:
        name, _, number = one.rpartition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            raise ProblemError(f"--set {one} is not of the form name=number.") from None
    return values
