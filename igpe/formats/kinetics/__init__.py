"""Reactors as chemists write them, as functions that build pyomo.dae models.

from igpe import kinetics
reactor = kinetics.Batch(["A + B -> C", "C <-> D"], bounds={"k1": (0, 10), ...})
problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=[...])

The builder holds no igpe words: `reactor(times)` is a Pyomo model to be used anywhere else.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
