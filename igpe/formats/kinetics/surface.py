"""Rate laws of surfaces: reactions on a catalyst, transfer from gas or solid into liquid.

Source: Froment, Bischoff and De Wilde, Chemical Reactor Analysis and Design, 3rd ed. (2011),
chapter 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import Concentrations, Equation, RateLaw
from igpe.formats.kinetics.temperature import (
    CONCENTRATION,
    NONE,
    PER_CONCENTRATION,
    PER_TIME,
    Constant,
    Dimension,
    concentration,
    plain,
    value,
)

POINT = 1e-4  # of the solid at the start: below it the surface shrinks like the solid itself


@dataclass(frozen=True)
class Transfer(RateLaw):
    """coefficient*(solubility*pressure - G): the rate of dissolution of a gas, for "-> G". The rate
    is negative if G exceeds solubility*pressure.

    coefficient  kLa, 1/time
    solubility   concentration in equilibrium with gas at the reference pressure (Henry's law)
    pressure     partial pressure divided by the reference pressure of `solubility`
    dissolved    name of the gas G; may be omitted if the right side has only one species

    Source: Bailey and Ollis, Biochemical Engineering Fundamentals, 2nd ed. (1986), eq. 8.8.
    """

    dimensions: ClassVar = {"coefficient": PER_TIME, "solubility": CONCENTRATION, "pressure": NONE}
    actors, made = ("dissolved",), "dissolved"
    coefficient: Constant
    solubility: Constant
    pressure: Constant = 1.0
    dissolved: str | None = None

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        saturated = value(self.solubility, m, t) * value(self.pressure, m, t)
        inside = c[self._only(equation, "dissolved", right=True)]
        return value(self.coefficient, m, t) * (saturated - inside)


@dataclass(frozen=True)
class Dissolution(RateLaw):
    """coefficient*initial*(solid/initial)^(2/3)*(1 - A/saturation): dissolution of shrinking
    particles.

    The law applies to "A_s -> A", with both species in amounts per volume of liquid. All particles
    have the same size and shape. When less than one ten-thousandth of the initial solid is left,
    the surface area goes to zero smoothly.

    coefficient  initial rate of dissolution in pure solvent, per amount of solid, 1/time
    saturation   concentration of the saturated solution
    initial      amount of solid at the start, per volume of liquid
    solid        name of the solid A_s; may be omitted if the left side has only one species
    dissolved    name of A; may be omitted if the right side has only one species

    Source: Hixson and Crowell, Ind. Eng. Chem. 23 (1931) 923, eq. 4.
    """

    dimensions: ClassVar = {
        "coefficient": PER_TIME,
        "saturation": CONCENTRATION,
        "initial": CONCENTRATION,
    }
    actors, role, made = ("solid", "dissolved"), "solid", "dissolved"
    coefficient: Constant
    saturation: Constant
    initial: Constant
    solid: str | None = None
    dissolved: str | None = None

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        initial = value(self.initial, m, t)
        left = c[self._only(equation)] / initial
        surface = left / (left + POINT) ** (1 / 3)
        inside = c[self._only(equation, "dissolved", right=True)]
        driving = 1 - inside / value(self.saturation, m, t)
        return value(self.coefficient, m, t) * initial * surface * driving


@dataclass(frozen=True)
class _Surface(RateLaw):
    """Base of surface laws: constant*(reactants - products/equilibrium)/(1 + sum of K*c)^sites.

    An adsorbed reactant contributes the factor K*c; a reactant from the fluid contributes c.
    """

    dimensions: ClassVar = {"adsorption": PER_CONCENTRATION}
    listed: ClassVar = ("adsorption",)
    constant: Constant
    adsorption: Mapping[str, Constant]
    dissociative: Iterable[str] = ()
    sites: float | None = None
    equilibrium: Constant | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        split = () if isinstance(self.dissociative, str) else tuple(self.dissociative)
        kind = type(self).__name__
        if (not split and self.dissociative != ()) or not set(split) <= set(self.adsorption):
            raise ModelError(
                f"{kind}: `dissociative` is {shown(self.dissociative)}; expected a tuple of "
                f"species listed in `adsorption`: {list(self.adsorption)}."
            )
        if not self.adsorption:
            raise ModelError(f"{kind} needs a species that adsorbs: adsorption={{'A': 'K_A'}}.")
        if not (self.sites is None or (is_finite(self.sites) and self.sites >= 0)):
            raise ModelError(
                f"{kind}: `sites` is {shown(self.sites)}; give a number, for example 2."
            )

    def check(self, equation: Equation) -> None:
        self._check_direction(equation, back="equilibrium")
        if not equation.left:
            raise ModelError(f"{type(self).__name__} needs reactants on the left side.")
        self._check_sides([s for s in equation.left if s in self.adsorption], equation)

    def _check_sides(self, adsorbed: list[str], equation: Equation) -> None:
        raise NotImplementedError

    def constants(self, equation: Equation) -> list[tuple[Constant, Dimension]]:
        """Constants with their dimensions; that of `constant` depends on the reactants that do not
        adsorb."""
        fluid = sum(n for s, n in equation.left.items() if s not in self.adsorption)
        balance = sum(equation.right.values()) - sum(equation.left.values())
        own: list[tuple[Constant, Dimension]] = [(self.constant, concentration(1 - fluid, -1))]
        if self.equilibrium is not None:
            own.append((self.equilibrium, concentration(balance)))
        return own + super().constants(equation)

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        bound = {s: value(k, m, t) for s, k in self.adsorption.items()}
        cover = {
            s: (k * c[s]) ** 0.5 if s in self.dissociative else k * c[s] for s, k in bound.items()
        }
        constant = value(self.constant, m, t)
        scale = prod(bound[s] ** plain(n) for s, n in equation.left.items() if s in bound)
        driving = prod(c[s] ** plain(n) for s, n in equation.left.items())
        if self.equilibrium is not None:
            back = prod(c[s] ** plain(n) for s, n in equation.right.items())
            driving = driving - back / value(self.equilibrium, m, t)
        return constant * scale * driving / (1 + sum(cover.values())) ** self._sites(equation)

    def _sites(self, equation: Equation) -> int | float:
        """The given number, or one for each adsorbed reactant, two if it dissociates."""
        if self.sites is not None:
            return plain(float(self.sites))
        split = set(self.dissociative)
        taken = (n * (1 + (s in split)) for s, n in equation.left.items() if s in self.adsorption)
        return plain(sum(taken))


@dataclass(frozen=True)
class LangmuirHinshelwood(_Surface):
    """constant*(product of K*c of the reactants)/(1 + sum of K*c)^sites: all reactants adsorb.

    constant      rate constant of the surface reaction
    adsorption    a dict {species: adsorption constant K, 1/concentration} of all species that
                  adsorb, including products and inert species
    dissociative  species that dissociate when they adsorb; their terms in the sum are sqrt(K*c)
    sites         exponent of the denominator; by default the number of adsorbed reactant molecules,
                  where a molecule that dissociates counts twice
    equilibrium   equilibrium constant of the overall reaction, if it is reversible; the driving
                  force is then (product of c of the reactants) - (product of c of the
                  products)/equilibrium

    Source: Hougen and Watson, Ind. Eng. Chem. 35 (1943) 529.
    """

    def _check_sides(self, adsorbed: list[str], equation: Equation) -> None:
        if len(adsorbed) < len(equation.left):
            raise ModelError(
                "LangmuirHinshelwood needs an adsorption constant for each of "
                f"{list(equation.left)}; if one of them reacts directly from the fluid, use "
                "EleyRideal."
            )


@dataclass(frozen=True)
class EleyRideal(_Surface):
    """constant*(product of K*c of the adsorbed reactants)*(product of c of the other
    reactants)/(1 + sum of K*c)^sites.

    At least one reactant adsorbs, and at least one reacts directly from the fluid.

    constant, adsorption, dissociative, sites, equilibrium  as for `LangmuirHinshelwood`

    Source: Eley and Rideal, Proc. R. Soc. A 178 (1941) 429.
    """

    def _check_sides(self, adsorbed: list[str], equation: Equation) -> None:
        if not 0 < len(adsorbed) < len(equation.left):
            raise ModelError(
                "EleyRideal needs reactants that adsorb and others that do not. The reactants are "
                f"{list(equation.left)}; those that adsorb are {adsorbed}."
            )
