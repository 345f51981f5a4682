"""Loading a problem from a Python file with a function `problem()`."""

import runpy
import traceback
from pathlib import Path

from igpe.errors import IgpeError, ProblemError
from igpe.problem import Problem


def load_problem(path: Path) -> Problem:
    """The `Problem` that the file's `problem()` returns.

    raises ProblemError if the file is missing, fails, or has no such function
    """
    if not path.is_file():
        raise ProblemError(f"There is no model file '{path}' (looked from {Path.cwd()}).")
    try:
        found = runpy.run_path(str(path))
        function = found.get("problem")
        problem = function() if callable(function) else None
    except IgpeError:
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise ProblemError(
            f"The model file '{path}' failed at {line.filename}:{line.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if function is None:
        raise ProblemError(
            f"'{path}' has no function problem(); write one that returns an igpe.Problem."
        )
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"problem() in '{path}' returned a {type(problem).__name__}; wanted an igpe.Problem."
        )
    return problem
