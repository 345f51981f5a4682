"""igpe: globally optimal parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
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
        from igpe.core.markup import closest  # noqa: PLC0415 - only where it is needed

        hint = closest(name, __all__) or f" It has {', '.join(__all__)}."
        raise AttributeError(f"igpe has no '{name}'.{hint}", name=name) from None


class _Families(MetaPathFinder, Loader):
    """Finds the modules behind public names: `from igpe.losses import Huber` is an import of
    `igpe.problem.losses`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __name__ or name not in __all__:
            return None
        family = __getattr__(name)
        if not isinstance(family, ModuleType):
            return None
        return ModuleSpec(fullname, self, loader_state=(family, family.__spec__))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        family: ModuleType = spec.loader_state[0]
        return family

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # the importer has replaced the module's own
            module.__spec__ = module.__spec__.loader_state[1]


sys.meta_path.append(_Families())


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
