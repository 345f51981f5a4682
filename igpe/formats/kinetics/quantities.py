"""Balances of a reactor's states: differential, or by a conservation law."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyomo.environ as pyo
from pyomo import dae

from igpe.formats.kinetics.conservation import Law

Rule = Callable[[float], Any]
"""Time -> Pyomo expression."""


def add_balance(m: Any, name: str, slope: Rule) -> None:
    """The slope `d<name>` of a variable over time, and its equation `balance_<name>`."""
    m.add_component(f"d{name}", dae.DerivativeVar(m.component(name)))
    derivative = m.component(f"d{name}")
    m.add_component(
        f"balance_{name}", pyo.Constraint(m.t, rule=lambda _, t: derivative[t] == slope(t))
    )


def add_laws(
    m: Any, laws: Sequence[Law], names: Mapping[str, str], computed: Sequence[str], fed: Any
) -> None:
    """Equations `conservation_1`, ...: a law's sum is what it was, and what was fed.

    names     species -> its quantity in the model
    computed  species without a start of their own: it is the parameter `<quantity>0`
    fed       species -> Pyomo expression of what is fed of it per time, constant
    """
    first = m.t.first()
    for species in computed:
        unit = m.component(names[species])[first].get_units()
        m.add_component(f"{names[species]}0", pyo.Param(mutable=True, default=0.0, units=unit))

    def at_start(species: str) -> Any:
        name = names[species]
        return m.component(f"{name}0") if species in computed else m.component(name)[first]

    for place, law in enumerate(laws, start=1):
        parts = law.coefficients.items()

        def rule(_: Any, t: float, parts: Any = parts) -> Any:
            now = sum(n * m.component(names[s])[t] for s, n in parts)
            then = sum(n * at_start(s) for s, n in parts)
            added = sum(n * fed[s] for s, n in parts if s in fed)
            return now == then + added * (t - first)

        m.add_component(f"conservation_{place}", pyo.Constraint(m.t, rule=rule))
