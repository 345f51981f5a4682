"""Rate laws that saturate: enzymes after Michaelis and Menten, and Hill's switches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from igpe.formats.kinetics.laws import Concentrations, Equation, RateLaw
from igpe.formats.kinetics.temperature import (
    CONCENTRATION,
    NONE,
    PER_TIME,
    RATE,
    Constant,
    Dimension,
    value,
)


@dataclass(frozen=True)
class MichaelisMenten(RateLaw):
    """vmax*S/(km*(1 + sum of I/Kc) + S*(1 + sum of I/Ku + S/Ks)).

    vmax           largest rate
    km             concentration of half the rate
    substrate      S; may be left out where the left side is one species
    inhibitors     species that compete with S, the product too -> their constant Kc
    enzyme         species whose concentration multiplies the rate; vmax is then kcat
    uncompetitive  species that bind to the enzyme with its substrate -> their constant Ku. A
                   species in both is a mixed inhibitor; with the same constant in both, a
                   non-competitive one
    excess         constant Ks of inhibition by the substrate itself
    equilibrium    P/S at equilibrium, for "S <-> P"; the numerator is vmax*(S - P/equilibrium)

    Source: Cornish-Bowden, Fundamentals of Enzyme Kinetics, 4th ed. (2012), chapters 2, 6 and 8.
    """

    dimensions: ClassVar = {
        "vmax": RATE,
        "km": CONCENTRATION,
        "inhibitors": CONCENTRATION,
        "uncompetitive": CONCENTRATION,
        "excess": CONCENTRATION,
        "equilibrium": NONE,
    }
    listed, actors, role = ("inhibitors", "uncompetitive"), ("substrate", "enzyme"), "substrate"
    vmax: Constant
    km: Constant
    substrate: str | None = None
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)
    enzyme: str | None = None
    uncompetitive: Mapping[str, Constant] = field(default_factory=dict)
    excess: Constant | None = None
    equilibrium: Constant | None = None

    def check(self, equation: Equation) -> None:
        self._check_direction(equation, back="equilibrium")
        if self.equilibrium is not None:
            self._require_one_each(equation)
        self._only(equation)

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """The constants; vmax is a rate, kcat a rate by concentration of enzyme."""
        (fastest, _), *others = super().constants(equation)
        return [(fastest, RATE if self.enzyme is None else PER_TIME), *others]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        s = c[self._only(equation)]
        free, bound = (
            1 + sum(c[i] / value(k, m, t) for i, k in those.items())
            for those in (self.inhibitors, self.uncompetitive)
        )
        if self.excess is not None:
            bound = bound + s / value(self.excess, m, t)
        fastest = value(self.vmax, m, t) * (1 if self.enzyme is None else c[self.enzyme])
        driving = s
        if self.equilibrium is not None:
            driving = s - c[next(iter(equation.right))] / value(self.equilibrium, m, t)
        return fastest * driving / (value(self.km, m, t) * free + s * bound)


@dataclass(frozen=True)
class Hill(RateLaw):
    """vmax*S^n/(half^n + S^n), or vmax*half^n/(half^n + S^n) where S represses.

    vmax       largest rate
    half       concentration of half the rate
    exponent   n
    regulator  S; may be left out where the left side is one species
    repressing whether S slows the reaction

    Source: Cornish-Bowden, Fundamentals of Enzyme Kinetics, 4th ed. (2012), chapter 12.
    """

    dimensions: ClassVar = {"vmax": RATE, "half": CONCENTRATION, "exponent": NONE}
    actors, role = ("regulator",), "regulator"
    vmax: Constant
    half: Constant
    exponent: Constant
    regulator: str | None = None
    repressing: bool = False

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        n = value(self.exponent, m, t)
        level = c[self._only(equation)] ** n
        half = value(self.half, m, t) ** n
        return value(self.vmax, m, t) * (half if self.repressing else level) / (half + level)
