"""igpe: globally optimal parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

import lazy_loader

# `__init__.pyi` lists the public names. They are loaded on first use: `igpe --help` must not wait
# for Pyomo and CasADi.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    _import_scipy_alone()
    try:
        return _load(name)
    except AttributeError:
        if name.startswith("_"):
            raise
        from igpe.core.names import closest  # noqa: PLC0415 - only where it is needed

        hint = closest(name, __all__) or f" It has {', '.join(__all__)}."
        raise AttributeError(f"igpe has no '{name}'.{hint}", name=name) from None


def _import_scipy_alone() -> None:
    """Import SciPy without `scipy.stats`, which takes longer than all else igpe imports.

    Pyomo's own modules reach SciPy through `pyomo.common.dependencies`, which adds it by a
    hook. They come first here, as they add it at once where SciPy is there already.
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


__version__ = "0.2.0"
