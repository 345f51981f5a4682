"""Every method by name, and where it is; modules are loaded in the process that runs them."""

import importlib
from typing import NamedTuple

from peers.task import Method


class Entry(NamedTuple):
    """Where a method is, and whether each of its starts is a search of its own."""

    place: str
    several: bool
    told: str


PEERS = {
    "igpe": Entry("ours:igpe_estimate", False, "igpe.estimate"),
    "igpe-local": Entry("ours:local_search", True, "igpe.SingleShooting from several starts"),
    "parmest": Entry("parmests:parmest", True, "Pyomo's parmest with Radau collocation and IPOPT"),
    "pypesto": Entry(
        "pypestos:pypesto_amici", True, "pyPESTO with AMICI and fides, parameters on a log10 scale"
    ),
    "scipy": Entry("scipys:multistart", True, "SciPy least_squares with solve_ivp (LSODA)"),
    "scipy-log": Entry(
        "scipys:in_logarithms", True, "the same as `scipy`, parameters on a log10 scale"
    ),
    "evolution": Entry("scipys:evolution", False, "SciPy differential_evolution, default settings"),
    "copasi": Entry("copasis:copasi", False, "COPASI: SRES, then Levenberg-Marquardt"),
}


def method(name: str) -> Method:
    """The method itself.

    raises ImportError if what it needs is not installed
    """
    module, function = PEERS[name].place.split(":")
    found: Method = getattr(importlib.import_module(f"peers.{module}"), function)
    return found
