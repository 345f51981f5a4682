"""Import SciPy without `scipy.stats`, which takes longer than all else igpe imports."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def import_scipy_alone() -> None:
    """Import SciPy past the hook by which Pyomo adds `scipy.stats` to it.

    Pyomo's own modules reach SciPy through `pyomo.common.dependencies`, which still adds it; it
    comes first here, as it adds `scipy.stats` at once where SciPy is there already.
    """
    spec = None if "scipy" in sys.modules else PathFinder.find_spec("scipy")
    if spec and spec.loader:
        import pyomo.common.dependencies  # noqa: F401, PLC0415 - only where it is not yet there

        scipy = sys.modules["scipy"] = module_from_spec(spec)
        try:
            spec.loader.exec_module(scipy)
        except BaseException:
            del sys.modules["scipy"]
            raise
