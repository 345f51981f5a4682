"""Reactors as chemists write them, as ordinary pyomo.dae builders.

from igpe import kinetics
reactor = kinetics.Batch(["A + B -> C", "C <-> D"], bounds={"k1": (0, 10), ...})
problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=[...])

The builder holds no igpe words: `reactor(times)` is a Pyomo model to be used anywhere else.
"""

from igpe.formats.kinetics.conservation import Law
from igpe.formats.kinetics.laws import (
    Arrhenius,
    Equation,
    Hill,
    MassAction,
    MichaelisMenten,
    OwnLaw,
    Reaction,
)
from igpe.formats.kinetics.reactor import (
    Batch,
    Cstr,
    MolarFeed,
    MolarVolumes,
    Semibatch,
    Stream,
    Units,
)

__all__ = [
    "Arrhenius",
    "Batch",
    "Cstr",
    "Equation",
    "Hill",
    "Law",
    "MassAction",
    "MichaelisMenten",
    "MolarFeed",
    "MolarVolumes",
    "OwnLaw",
    "Reaction",
    "Semibatch",
    "Stream",
    "Units",
]
