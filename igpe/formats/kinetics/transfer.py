"""Transfer between phases, as rate laws: gas into liquid, solid into liquid."""

from dataclasses import dataclass
from typing import Any, ClassVar

from igpe.formats.kinetics.laws import Concentrations, Equation, RateLaw
from igpe.formats.kinetics.temperature import CONCENTRATION, NONE, PER_TIME, Constant, value

POINT = 1e-4  # of the solid at the start: below it the surface shrinks like the solid itself


@dataclass(frozen=True)
class Transfer(RateLaw):
    """coefficient*(solubility*pressure - G): gas that dissolves, of "-> G"; it leaves where G is
    above.

    coefficient  kLa, 1/time
    solubility   concentration at equilibrium with a pressure of 1 (Henry's law)
    pressure     partial pressure over the one that the solubility is of
    dissolved    G; may be left out where the right side is one species

    Source: Bailey and Ollis, Biochemical Engineering Fundamentals, 2nd ed. (1986), eq. 8.8.
    """

    dimensions: ClassVar = {"coefficient": PER_TIME, "solubility": CONCENTRATION, "pressure": NONE}
    actors = ("dissolved",)
    coefficient: Constant
    solubility: Constant
    pressure: Constant = 1.0
    dissolved: str | None = None

    def check(self, equation: Equation) -> None:
        super().check(equation)
        self._only(equation, "dissolved", right=True)

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        saturated = value(self.solubility, m, t) * value(self.pressure, m, t)
        inside = c[self._only(equation, "dissolved", right=True)]
        return value(self.coefficient, m, t) * (saturated - inside)


@dataclass(frozen=True)
class Dissolution(RateLaw):
    """coefficient*initial*(solid/initial)^(2/3)*(1 - A/saturation): particles that shrink.

    The law of "A_s -> A" with both in amounts per volume of liquid, for particles of one size and
    shape. The surface goes to zero smoothly where a ten thousandth of the solid is left.

    coefficient  1/time: initial rate of dissolution in pure solvent, per amount of solid
    saturation   concentration of the saturated solution
    initial      solid at the start
    solid        A_s; may be left out where the left side is one species
    dissolved    A; may be left out where the right side is one species

    Source: Hixson and Crowell, Ind. Eng. Chem. 23 (1931) 923, eq. 4.
    """

    dimensions: ClassVar = {
        "coefficient": PER_TIME,
        "saturation": CONCENTRATION,
        "initial": CONCENTRATION,
    }
    actors, role = ("solid", "dissolved"), "solid"
    coefficient: Constant
    saturation: Constant
    initial: Constant
    solid: str | None = None
    dissolved: str | None = None

    def check(self, equation: Equation) -> None:
        super().check(equation)
        self._only(equation, "dissolved", right=True)

    def rate(self, m: Any, t: float, c: Concentrations, equation: Equation) -> Any:
        initial = value(self.initial, m, t)
        left = c[self._only(equation)] / initial
        surface = left / (left + POINT) ** (1 / 3)
        inside = c[self._only(equation, "dissolved", right=True)]
        driving = 1 - inside / value(self.saturation, m, t)
        return value(self.coefficient, m, t) * initial * surface * driving
