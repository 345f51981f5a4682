"""igpe: globally right parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

from typing import Any

import lazy_loader

from igpe.core.scipy_alone import import_scipy_alone

# `__init__.pyi` lists the public names. They are loaded on first use: `igpe --help` must not wait
# for Pyomo and CasADi.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    import_scipy_alone()
    try:
        return _load(name)
    except AttributeError:
        if name.startswith("_"):
            raise
        from igpe.core.names import closest  # noqa: PLC0415 - only where it is needed

        hint = closest(name, __all__) or f" It has {', '.join(__all__)}."
        raise AttributeError(f"igpe has no '{name}'.{hint}", name=name) from None


__version__ = "0.2.0"
