"""Reactors as chemists write them, as functions that build pyomo.dae models.

from igpe import kinetics
reactor = kinetics.Batch(["A + B -> C", "C <-> D"], bounds={"k1": (0, 10), ...})
problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=[...])

`reactor(times)` is an ordinary Pyomo model, which does not depend on igpe.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
