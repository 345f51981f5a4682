"""The libraries that read PEtab and SBML: an extra, whose absence is an answer."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from igpe.core.errors import SolverMissing

NEEDED = ("petab.v1", "libsbml", "sbmlmath", "sympy", "yaml")


def require_libraries() -> None:
    """raises SolverMissing with the command that installs them, unless all are there"""
    for name in NEEDED:
        library(name)


def library(name: str) -> ModuleType:
    """An imported library of the extra.

    raises SolverMissing with the command that installs it
    """
    try:
        with quiet():
            return importlib.import_module(name)
    except ImportError as error:
        raise SolverMissing(
            f"PEtab problems are read with `petab`, `python-libsbml` and `sbmlmath`; {error}. "
            "Install them: pip install 'igpe[petab]'."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the deprecation warnings that these libraries get from theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
