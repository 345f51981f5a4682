"""A reaction: its equation and its rate law."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from igpe.core.arguments import shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.equation import Equation, read_equation
from igpe.formats.kinetics.laws import MassAction, RateLaw, parameters_of


@dataclass(frozen=True)
class Reaction:
    """What reacts to what, and how fast.

    text  "A + 2 B -> C"; "<->" for a reaction that goes back
    rate  by default mass action with the constants k1, or k1f and k1r, 1 its place in the list
    """

    text: str
    rate: RateLaw | None = None

    @cached_property
    def equation(self) -> Equation:
        """The text, read."""
        return read_equation(self.text)

    @property
    def law(self) -> RateLaw:
        """The rate law of a numbered reaction."""
        if self.rate is None:
            raise ModelError(f"The reaction '{self.text}' has no rate law yet.")
        return self.rate

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return parameters_of(self.law, self.equation)

    @property
    def species(self) -> tuple[str, ...]:
        """All species that react or act."""
        return (*self.equation.species, *getattr(self.law, "modifiers", ()))


def numbered(reactions: Sequence[Any]) -> tuple[Reaction, ...]:
    """Texts and reactions with a rate law each.

    raises ModelError if one cannot be read, or its law does not suit it
    """
    if isinstance(reactions, str) or not isinstance(reactions, Sequence) or not reactions:
        raise ModelError(
            f"The reactions are {shown(reactions)}; wanted a list: ['A + B -> C', 'C <-> D']."
        )
    return tuple(_numbered(one, place) for place, one in enumerate(reactions, start=1))


def _numbered(one: Any, place: int) -> Reaction:
    reaction = one if isinstance(one, Reaction) else Reaction(one)
    if reaction.rate is None:
        k = f"k{place}"
        there_and_back = MassAction(f"{k}f", backward=f"{k}r")
        law = there_and_back if reaction.equation.reversible else MassAction(k)
        return Reaction(reaction.text, law)
    if not callable(getattr(reaction.rate, "rate", None)):
        raise ModelError(
            f"The rate of '{reaction.text}' is {shown(reaction.rate)}; wanted a rate law: "
            "MassAction('k1'), MichaelisMenten('vmax', 'km'), Hill(...) or OwnLaw(...)."
        )
    try:
        reaction.rate.check(reaction.equation)
    except ModelError as error:
        raise ModelError(f"Reaction {place}, '{reaction.text}': {error}") from None
    return reaction
