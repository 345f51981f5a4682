"""A closed vessel of constant volume, in concentrations."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from igpe.formats.kinetics.conservation import laws_for
from igpe.formats.kinetics.constants import add_balance, add_laws
from igpe.formats.kinetics.reactor import Reactor


@dataclass(frozen=True)
class Batch(Reactor):
    """dc/dt = what the reactions make of each species; the states are concentrations.

    Species in `algebraic` follow from conservation laws; they have no start value, but a constant
    `<name>0` (0 unless given as an input or estimated).

    See `Reactor` for the fields.
    """

    def _add_balances(self, m: Any) -> None:
        for species in self.species:
            if species not in self.algebraic:
                add_balance(m, species, partial(self._made, m, species=species))
        laws = laws_for(self.algebraic, self.conservation)
        add_laws(m, laws, {s: s for s in self.species}, self.algebraic, {})

    def _names(self) -> list[str]:
        return [*super()._names(), *(f"{s}0" for s in self.algebraic)]
