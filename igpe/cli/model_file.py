"""Loading a problem and settings from a Python file; a problem from PEtab too."""

import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from igpe.core.errors import IgpeError, ProblemError
from igpe.core.markup import closest_file
from igpe.estimation.settings import Settings
from igpe.formats.petab.read import read_petab
from igpe.problem.problem import Problem

SBML = {".xml", ".sbml"}
DATA = {".json", ".csv", ".txt", ".xls", ".xlsx", ".parquet", ".html"}  # files of other commands


def load_problem(path: Path) -> Problem:
    """The `Problem` that the file's `problem()` returns, or that a PEtab YAML file describes.

    raises ProblemError if the file is missing, fails, or has no such function; what `read_petab`
           raises
    """
    if is_petab(path):
        return read_petab(path)
    problem: Problem = _returned(path, "problem", Problem, "an igpe.Problem")
    return problem


def load_design(path: Path) -> dict[str, Any]:
    """The settings for `igpe.design` that the file's `design()` returns.

    raises ProblemError if the file is missing, fails, has no such function, or is a PEtab problem
    """
    if is_petab(path):
        raise ProblemError(
            f"'{path}' is a PEtab problem, which has no function design(). Write a Python file "
            "with two functions: problem(), which returns "
            f"igpe.petab.read_petab({str(path)!r}), and design(), which returns the settings of "
            "igpe.design."
        )
    expected = "the settings of igpe.design as a dict: {'free': {...}, 'times': [...]}"
    settings = _returned(path, "design", Mapping, expected)
    return {str(name): value for name, value in settings.items()}


def load_settings(path: Path) -> Settings | None:
    """The settings of `igpe.estimate` that the file's `settings()` returns; None if it has none.

    raises ProblemError if the file is missing, fails, or returns something else; SolverMissing if
           they choose a solver that is not installed
    """
    if is_petab(path):
        return None
    settings: Settings | None = _returned(path, "settings", Settings, "igpe.Settings(...)")
    if settings is not None:
        settings.require_solvers()
    return settings


def _returned(path: Path, name: str, kind: type, expected: str) -> Any:
    """Return value of a function of the file, or a variable of this kind.

    None where settings() is not there.
    """
    _require_python_file(path)
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.resolve()))  # as if the file were run by Python
    try:
        content = runpy.run_path(str(path))
        own = {n: v for n, v in content.items() if isinstance(v, kind)}
        function = content.get(name)
        returned = function() if callable(function) else own.get(name)
    except IgpeError:
        raise
    except Exception as error:
        raise ProblemError(f"The model file '{path}' failed{_reason(path, error)}") from error
    finally:
        sys.path[:] = before
    is_optional = name == "settings"
    if not callable(function) and returned is None and not is_optional:
        others = list(own) if kind is Problem else []
        hint = f" '{others[0]}' is one: write {name} = {others[0]}." if others else ""
        raise ProblemError(
            f"'{path}' has no function {name}(). Write a function that returns {expected}.{hint}"
        )
    if not isinstance(returned, kind) and not (is_optional and returned is None):
        raise ProblemError(
            f"{name}() in '{path}' returned a value of type {type(returned).__name__}; expected "
            f"{expected}."
        )
    return returned


def _require_python_file(path: Path) -> None:
    """Raise ProblemError for what is no file, or a file of another kind."""
    if path.is_dir():
        files = (p for p in path.iterdir() if is_petab(p) or p.suffix.lower() == ".py")
        nearest = min(files, key=lambda p: (not is_petab(p), p.name), default=None)
        give = f" Did you mean '{nearest}'?" if nearest else ""
        raise ProblemError(
            f"'{path}' is a folder. Expected a Python file with a function problem(), or the YAML "
            f"file of a PEtab problem.{give}"
        )
    if not path.is_file():
        raise ProblemError(
            f"There is no model file '{path}' (working folder: {Path.cwd()}).{closest_file(path)}"
        )
    if path.suffix.lower() in SBML:
        raise ProblemError(
            f"'{path}' is an SBML model, which names no measurements. igpe reads SBML as a part of "
            "a PEtab problem: give its YAML file."
        )
    if path.suffix.lower() in DATA:
        raise ProblemError(
            f"'{path}' is not a model file. Expected a Python file with a function problem(), or "
            "the YAML file of a PEtab problem. `igpe new my_problem.py --data TABLE` writes a "
            "Python file from a table; `igpe report` and --result read stored results."
        )


def is_petab(path: Path) -> bool:
    """Whether a model file is a PEtab problem, by its suffix."""
    return path.suffix.lower() in {".yaml", ".yml"}


def _reason(path: Path, error: Exception) -> str:
    """The last line of the model file itself on the way to the error, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    text = str(error)
    if isinstance(error, SyntaxError):
        lines += [error.lineno] if error.filename == str(path) else []
        text = f"{error.msg}: {error.text.strip()}" if error.text else text
    return f"{f' in line {lines[-1]}' if lines else ''}: {type(error).__name__}: {text}"
