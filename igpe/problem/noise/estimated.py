"""Standard deviations that are estimated with the rest."""

from dataclasses import dataclass

from igpe.core.arguments import shown
from igpe.core.errors import DataError


@dataclass(frozen=True)
class EstimatedSigma:
    """A standard deviation that the model computes from estimated unknowns.

    With such a standard deviation, igpe computes maximum likelihood estimates: the objective is
    -2 log L without its constant terms,

        sum over measurements of ((h - y) / s)^2 + 2 log s,        s = s(t, q) > 0.

    name    name of s in the model: a parameter, or a Var or Expression indexed by time; s must be
            in the unit of the measured column. If s is an unknown constant, declare a separate Var
            for it, with a positive lower bound
    raises  DataError if the name is not a string or is empty
    """

    name: str

    @property
    def follows(self) -> bool:
        """Return True, because the standard deviation always depends on the predictions."""
        return True

    @property
    def estimated(self) -> str:
        """Name of the quantity in the model that gives the standard deviation."""
        return self.name

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"EstimatedSigma has the name {shown(self.name)}; give the name of a quantity "
                "of the model: igpe.EstimatedSigma('sd_A')."
            )
