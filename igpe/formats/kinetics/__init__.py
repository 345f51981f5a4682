"""Reactors as chemists write them, as ordinary pyomo.dae builders.

from igpe import kinetics
reactor = kinetics.Batch(["A + B -> C", "C <-> D"], bounds={"k1": (0, 10), ...})
problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=[...])

The builder holds no igpe words: `reactor(times)` is a Pyomo model to be used anywhere else.
"""

from igpe.formats.kinetics.conservation import Law
from igpe.formats.kinetics.constants import Arrhenius
from igpe.formats.kinetics.equation import Equation
from igpe.formats.kinetics.laws import Hill, MassAction, MichaelisMenten, OwnLaw, Reaction
from igpe.formats.kinetics.reactor import Batch, Cstr, Units
from igpe.formats.kinetics.semibatch import MolarFeed, MolarVolumes, Semibatch, Stream

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
