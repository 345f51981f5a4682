"""Standard deviations that are estimated with the rest."""

from dataclasses import dataclass

from igpe.core.arguments import shown
from igpe.core.errors import DataError


@dataclass(frozen=True)
class EstimatedSigma:
    """A standard deviation that the model computes from estimated unknowns.

    The estimate then has maximum likelihood: the objective is -2 log L up to a constant,

        sum over measurements of ((h - y) / s)^2 + 2 log s,        s = s(t, q) > 0.

    name    name of s: a parameter, or a variable or an Expression indexed by time, in the unit of
            the measured column. If only the size of the error is unknown, use a separate Var with a
            positive lower bound
    raises  DataError if the name is not a string
    """

    name: str

    @property
    def follows(self) -> bool:
        """Return True, because the standard deviation always depends on the predictions."""
        return True

    @property
    def estimated(self) -> str:
        """Name of the model's quantity that is the standard deviation."""
        return self.name

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(
                f"EstimatedSigma has the name {shown(self.name)}; give the name of a quantity "
                "of the model: igpe.EstimatedSigma('sd_A')."
            )
