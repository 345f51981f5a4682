"""Reaction equations as chemists write them: "2 A + B <-> C"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from igpe.core.arguments import shown
from igpe.core.errors import ModelError

ARROWS = {"<->": True, "<=>": True, "⇌": True, "->": False, "=>": False, "→": False}
"""Arrow -> whether the reaction goes back."""

MOST = 1000  # coefficient

_ARROW = re.compile("|".join(map(re.escape, ARROWS)))
_TERM = re.compile(r"(?:(?P<count>\d+/\d+|\d+(?:\.\d+)?|\.\d+)\s*\*?\s*)?(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Equation:
    """What reacts to what.

    left, right  species -> stoichiometric coefficient, positive
    reversible   whether the arrow points both ways
    """

    left: Mapping[str, Fraction]
    right: Mapping[str, Fraction]
    reversible: bool

    @property
    def species(self) -> tuple[str, ...]:
        """All species, in the order they are written."""
        return tuple(dict.fromkeys([*self.left, *self.right]))

    @property
    def net(self) -> dict[str, Fraction]:
        """Species -> what one turn of the reaction makes of it; catalysts are left out."""
        change = {s: self.right.get(s, Fraction(0)) - self.left.get(s, 0) for s in self.species}
        return {s: n for s, n in change.items() if n}


def read_equation(text: str) -> Equation:
    """The equation that a text means: "A + 2 B -> C", "A <-> B", "-> A", "A ->", "E + S -> E + P".

    Coefficients are numbers (2, 0.5, 1/2) before a name; names are letters, digits, underscores.

    raises ModelError if there is not one arrow, or a term that is no species
    """
    if not isinstance(text, str):
        raise ModelError(f"A reaction is {shown(text)}; wanted a text such as 'A + 2 B -> C'.")
    arrows = _ARROW.findall(text)
    if len(arrows) != 1:
        raise ModelError(
            f"The reaction '{text}' has {len(arrows) or 'no'} arrows; wanted one of "
            f"{', '.join(ARROWS)}, as in 'A + 2 B -> C'."
        )
    left, right = (_side(part, text) for part in text.split(arrows[0]))
    equation = Equation(left, right, ARROWS[arrows[0]])
    if not equation.net:
        raise ModelError(f"The reaction '{text}' changes nothing; leave it out.")
    return equation


def _coefficient(text: str) -> Fraction:
    """The number; 0 for one that is none: 1/0, or more digits than Python reads."""
    try:
        return Fraction(text)
    except (ZeroDivisionError, ValueError):
        return Fraction(0)


def _side(part: str, text: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for term in part.split("+") if part.strip() else []:
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ModelError(
                f"'{term.strip()}' in the reaction '{text}' is no species; wanted a name of "
                "letters, digits and underscores, a coefficient before it if it is not 1."
            )
        count = _coefficient(match["count"] or "1")
        if not 0 < count <= MOST:
            raise ModelError(
                f"'{term.strip()}' in the reaction '{text}' needs a coefficient above 0, and up to "
                f"{MOST}; leave out what does not react."
            )
        found[match["name"]] = found.get(match["name"], Fraction(0)) + count
    return found
