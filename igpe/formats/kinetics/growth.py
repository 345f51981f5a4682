"""Rate laws of biology: enzymes, Hill's switches, growth of cells. Yields are those of `Reaction`.

Source: Bailey and Ollis, Biochemical Engineering Fundamentals, 2nd ed. (1986), chapter 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
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
    km             substrate concentration at which the rate is half its maximum
    substrate      name of S; may be omitted if the left side has only one species
    inhibitors     a dict {species: constant Kc} of the species that compete with S (the product may
                   be one of them)
    enzyme         species whose concentration multiplies the rate; vmax is then kcat
    uncompetitive  a dict {species: constant Ku} of the species that bind to the enzyme-substrate
                   complex. A species in both `inhibitors` and `uncompetitive` is a mixed
                   inhibitor; if its two constants are equal, it is a non-competitive inhibitor
    excess         constant Ks of substrate inhibition
    equilibrium    P/S at equilibrium, for "S <-> P"; the numerator is then vmax*(S - P/equilibrium)

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
        """Return the constants with their dimensions: vmax is a rate, kcat is 1/time."""
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
    """vmax*S^n/(half^n + S^n), or vmax*half^n/(half^n + S^n) if S is a repressor.

    vmax        largest rate
    half        concentration at which the rate is half its maximum
    exponent    n
    regulator   name of S; may be omitted if the left side has only one species
    repressing  whether S slows the reaction

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


class _Growth(RateLaw):
    """Base of growth laws: growth*X*(a factor of S)*product of c/(K + c)*product of K/(K + c)."""

    listed: ClassVar = ("limits", "inhibitors")
    actors: ClassVar = ("substrate", "biomass")
    role: ClassVar = "substrate"
    made: ClassVar = "biomass"
    growth: Constant
    limits: Mapping[str, Constant]
    inhibitors: Mapping[str, Constant]

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        x = c[self._only(equation, "biomass", right=True)]
        slower = prod(c[s] / (value(k, m, t) + c[s]) for s, k in self.limits.items())
        slower *= prod(value(k, m, t) / (value(k, m, t) + c[s]) for s, k in self.inhibitors.items())
        factor = self._factor(m, t, c[self._only(equation)], x)
        return value(self.growth, m, t) * factor * slower * x

    def _factor(self, m: Any, t: float, s: Any, x: Any) -> Any:
        raise NotImplementedError


FURTHER = {"limits": CONCENTRATION, "inhibitors": CONCENTRATION}


@dataclass(frozen=True)
class Monod(_Growth):
    """growth*S/(half + S)*X: the rate at which biomass X grows on S, for "S -> X".

    growth              maximum specific growth rate, 1/time
    half                substrate concentration at which the specific rate is half of `growth`
    substrate, biomass  names of S and X; may be omitted if each is the only species on its side of
                        the reaction
    limits, inhibitors  dicts {species: constant K} of further species. Growth needs each
                        species in `limits` (for example oxygen); each contributes the factor
                        c/(K + c). Each species in `inhibitors` contributes the factor K/(K + c)

    Source: Monod, Annu. Rev. Microbiol. 3 (1949) 371.
    """

    dimensions: ClassVar = {"growth": PER_TIME, "half": CONCENTRATION, **FURTHER}
    growth: Constant
    half: Constant
    substrate: str | None = None
    biomass: str | None = None
    limits: Mapping[str, Constant] = field(default_factory=dict)
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)

    def _factor(self, m: Any, t: float, s: Any, x: Any) -> Any:
        return s / (value(self.half, m, t) + s)


@dataclass(frozen=True)
class Haldane(_Growth):
    """growth*S/(half + S + S^2/excess)*X: growth inhibited by excess substrate.

    growth, half  as for `Monod`
    excess        substrate inhibition constant, a concentration
    substrate, biomass, limits, inhibitors  as for `Monod`

    Source: Andrews, Biotechnol. Bioeng. 10 (1968) 707, eq. 3.
    """

    dimensions: ClassVar = {
        "growth": PER_TIME,
        "half": CONCENTRATION,
        "excess": CONCENTRATION,
        **FURTHER,
    }
    growth: Constant
    half: Constant
    excess: Constant
    substrate: str | None = None
    biomass: str | None = None
    limits: Mapping[str, Constant] = field(default_factory=dict)
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)

    def _factor(self, m: Any, t: float, s: Any, x: Any) -> Any:
        return s / (value(self.half, m, t) + s + s**2 / value(self.excess, m, t))


@dataclass(frozen=True)
class Contois(_Growth):
    """growth*S/(crowding*X + S)*X: growth that slows at high cell concentration.

    growth    maximum specific growth rate, 1/time
    crowding  ratio S/X at which the specific rate is half of `growth`, in the unit of S divided by
              the unit of X
    substrate, biomass, limits, inhibitors  as for `Monod`

    Source: Contois, J. Gen. Microbiol. 21 (1959) 40, eq. 8.
    """

    dimensions: ClassVar = {"growth": PER_TIME, "crowding": NONE, **FURTHER}
    growth: Constant
    crowding: Constant
    substrate: str | None = None
    biomass: str | None = None
    limits: Mapping[str, Constant] = field(default_factory=dict)
    inhibitors: Mapping[str, Constant] = field(default_factory=dict)

    def _factor(self, m: Any, t: float, s: Any, x: Any) -> Any:
        return s / (value(self.crowding, m, t) * x + s)


@dataclass(frozen=True)
class Maintenance(RateLaw):
    """demand*X, or demand*X*S/(half + S): the rate at which cells consume substrate without
    growing, for "S ->".

    demand     maintenance coefficient: amount of substrate consumed per unit of biomass and time
    biomass    name of X
    substrate  name of S; may be omitted if the left side has only one species
    half       substrate concentration at which the rate is half of demand*X. The rate is then 0
               at S = 0, so the reaction does not make S negative. None: the rate is demand*X

    Source: Pirt, Proc. R. Soc. B 163 (1965) 224, eq. 3.
    """

    dimensions: ClassVar = {"demand": PER_TIME, "half": CONCENTRATION}
    actors, role = ("substrate", "biomass"), "substrate"
    demand: Constant
    biomass: str
    substrate: str | None = None
    half: Constant | None = None

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        needed = value(self.demand, m, t) * c[self.biomass]
        if self.half is None:
            return needed
        s = c[self._only(equation)]
        return needed * s / (value(self.half, m, t) + s)
