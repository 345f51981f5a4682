"""Loading a problem and settings from a Python file; a problem from PEtab too."""

import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from igpe.core.arguments import closest_file
from igpe.core.errors import IgpeError, ProblemError
from igpe.estimation.settings import Settings
from igpe.formats.petab.read import read_petab
from igpe.problem.problem import Problem


def load_problem(path: Path) -> Problem:
    """The `Problem` that the file's `problem()` returns, or that a PEtab YAML file describes.

    raises ProblemError if the file is missing, fails, or has no such function; what `read_petab`
           raises
    """
    if is_petab(path):
        return read_petab(path)
    problem = _returned(path, "problem", "an igpe.Problem")
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"problem() in '{path}' returned a value of type {type(problem).__name__}; "
            "wanted an igpe.Problem."
        )
    return problem


def load_design(path: Path) -> dict[str, Any]:
    """The settings for `igpe.design` that the file's `design()` returns.

    raises ProblemError if the file is missing, fails, or has no such function
    """
    settings = _returned(path, "design", "the settings of igpe.design as a dict")
    if not isinstance(settings, Mapping) or not all(isinstance(n, str) for n in settings):
        raise ProblemError(
            f"design() in '{path}' returned a value of type {type(settings).__name__}; wanted the "
            "settings of igpe.design as a dict: {'free': {...}, 'times': [...]}."
        )
    return dict(settings)


def load_settings(path: Path) -> Settings | None:
    """The settings of `igpe.estimate` that the file's `settings()` returns; None if it has none.

    raises ProblemError if the file is missing, fails, or returns something else; SolverMissing if
           they choose a solver that is not installed
    """
    found = None if is_petab(path) else _returned(path, "settings", "", optional=True)
    if found is not None and not isinstance(found, Settings):
        raise ProblemError(
            f"settings() in '{path}' returned a value of type {type(found).__name__}; wanted "
            "igpe.Settings(...)."
        )
    if found is not None:
        found.require_solvers()
    return found


def _returned(path: Path, name: str, wanted: str, *, optional: bool = False) -> Any:
    """What a function of the file returns; None if it is optional and not there."""
    if not path.is_file():
        raise ProblemError(
            f"There is no model file '{path}' (looked from {Path.cwd()}).{closest_file(path)}"
        )
    try:
        with _importing_from(path.parent):
            function = runpy.run_path(str(path)).get(name)
            returned = function() if callable(function) else None
    except IgpeError:
        raise
    except Exception as error:
        raise ProblemError(
            f"The model file '{path}' failed{_where(path, error)}: {_what(error)}"
        ) from error
    if not callable(function) and not optional:
        raise ProblemError(f"'{path}' has no function {name}(); write one that returns {wanted}.")
    return returned


def _what(error: Exception) -> str:
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.text:
        return f"{kind}: {error.msg}: {error.text.strip()}"
    return f"{kind}: {error}"


def is_petab(path: Path) -> bool:
    """Whether a model file is a PEtab problem, by its suffix."""
    return path.suffix.lower() in {".yaml", ".yml"}


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """A model file may import its neighbours, as if it were run by Python."""
    before = list(sys.path)
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before


def _where(path: Path, error: Exception) -> str:
    """The last line of the model file itself on the way to the error."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f" in line {lines[-1]}" if lines else ""
