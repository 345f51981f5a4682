"""What structure analysis says about one unknown."""

import enum
from dataclasses import dataclass

from igpe.structure.identifiability.combinations import Combination


class Reach(enum.Enum):
    """How an unknown can be estimated. The value is what the user reads."""

    ALGEBRAIC = "from slopes, by algebra"
    SMOOTHING = "from the smoothed measurements"
    DYNAMIC = "only on the dynamics"
    UNREACHABLE = "cannot be estimated"


class Form(enum.Enum):
    """How the predicted slopes of its group depend on an unknown."""

    LINEAR = "linear"
    SINGLY_LINEAR = "linear while the others are held"
    NONLINEAR = "nonlinear"


class Verdict(enum.Enum):
    """Whether an unknown is structurally locally identifiable. The value is what the user reads."""

    YES = "identifiable"
    NO = "not identifiable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """One unknown, and how the measurements reach it.

    unknown    its name in the problem
    reach      the verdict; ALGEBRAIC exactly if the unknown belongs to a group of step 3
    states     whose slope (ALGEBRAIC) or start value (SMOOTHING) it comes from
    equations  that predict those slopes, smallest subsystem first
    form       how slopes depend on it (ALGEBRAIC)
    implicit   variables without a closed expression, for want of which it is not algebraic
    measure    sets of quantities; to measure one of the sets as well would make it algebraic
               (DYNAMIC; looked for only for the first of very many) or visible (UNREACHABLE)
    prior      whether the problem says something about it beforehand
    verdict    whether perfect measurements would determine it
    values     how many values it can have, complex ones and those out of bounds included: 1 if it
               is globally identifiable; 0 if it is undecided (YES)
    shared     the unknowns it cannot be told apart from (NO), itself among them
    freeing    smallest sets of quantities; to measure one of the sets as well would make it
               identifiable (NO)
    """

    unknown: str
    reach: Reach
    states: tuple[str, ...] = ()
    equations: tuple[str, ...] = ()
    form: Form | None = None
    implicit: tuple[str, ...] = ()
    measure: tuple[tuple[str, ...], ...] = ()
    prior: bool = False
    verdict: Verdict = Verdict.UNDECIDED
    values: int = 0
    shared: Combination | None = None
    freeing: tuple[tuple[str, ...], ...] = ()

    @property
    def unique(self) -> bool:
        """Whether it is globally identifiable."""
        return self.values == 1
