"""What the shell may complete: model files, tables, stored results, names of methods."""

from collections.abc import Callable
from pathlib import Path

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
