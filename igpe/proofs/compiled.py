"""Compile functions by Numba on first use and keep them on disk for the next process.

Numba's own cache looks at one file: a function is not compiled again when another one that it calls
has changed. Here the sources of a function's folder are its stamp. Wrappers for Python take long to
compile, so that only few functions (`entry_point`) have one.
"""

import sys
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from igpe.core.errors import SolverMissing
from igpe.core.files import is_own

numba: Any


def _imported() -> Any:
    """Numba without the configuration `.numba_config.yaml` of the current folder; None without it.

    That could name a cache folder, from which kernels are unpickled, and a class to import. Numba
    reads it when it is imported, where it can read YAML, and again when it compiles.
    """
    yaml = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a configuration it cannot read
            import numba  # noqa: PLC0415
            from numba.core import config  # noqa: PLC0415
        config._config_fname = ""
    except ImportError:  # there is no wheel for a new Python at first
        return None
    finally:
        del sys.modules["yaml"]
        if yaml is not None:
            sys.modules["yaml"] = yaml
    return numba


numba = _imported()

F = TypeVar("F", bound=Callable[..., Any])


def require_numba() -> None:
    """Raise SolverMissing, with what installs it, unless there is Numba."""
    if numba is None:
        raise SolverMissing(
            "igpe.certify needs Numba, which is not installed: pip install numba (if there is a "
            "wheel for your version of Python)."
        )


def kernel(function: F, *, makes_arrays: bool = True) -> F:
    """The function compiled, for other compiled functions alone."""
    if numba is None:
        return function
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": makes_arrays}
    return numba.njit(error_model="numpy", **options)(function)  # type: ignore[no-any-return]


def lean_kernel(function: F) -> F:
    """The same of a function that makes no arrays; Numba refuses to compile one that does.

    Numba then counts no references to arrays, which took half the time of the checker's kernels.
    """
    return kernel(function, makes_arrays=False)


def entry_point(function: F) -> F:
    """The function compiled and kept on disk, to be called from Python.

    It holds all kernels that it calls, so that a process that finds it on disk compiles nothing.
    """
    if numba is None:
        return function
    compiled = numba.njit(cache=True, error_model="numpy")(function)
    file = getattr(compiled._cache, "_cache_file", None)
    if file is None or not is_own(Path(compiled._cache.cache_path)):
        return numba.njit(error_model="numpy")(function)  # type: ignore[no-any-return]
    file._source_stamp = stamp(Path(function.__code__.co_filename).parent)
    try:
        file._load_index()  # unpickles the names of classes
    except Exception:  # one was renamed since
        file.flush()
    return compiled  # type: ignore[no-any-return]


@cache
def stamp(folder: Path, also: object = "") -> str:
    """Hash of the sources of a folder, and of something else."""
    files = sorted(folder.glob("*.py"))
    text = "".join(f.read_text(encoding="utf-8") for f in files)
    return sha256((text + str(also)).encode()).hexdigest()
