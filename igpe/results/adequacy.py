"""Verdict on a fit: whether its residuals are what measurement errors alone would leave."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ADEQUATE, LACK, UNJUDGED = "adequate", "lack of fit", "cannot be judged"
ALARM = 0.01  # probability below which the verdict is lack of fit
DOUBTFUL = 0.05  # probability below which a fit is not called adequate without reserve
SHOWN = 0.01  # smaller probabilities are simulated too coarsely to be shown


@dataclass(frozen=True)
class Adequacy:
    """Whether the model fits its measurements, by all tests of the residuals together.

    verdict  "adequate": no lack of fit was detected; "lack of fit": p < 0.01; "cannot be judged"
    p        probability of residuals at least as odd if the model is right and errors are normal
             and independent, of all tests combined; NaN if nothing was tested. Simulated: below
             0.01 it is an upper bound
    reasons  sentences: which residuals are odd and how, or why nothing can be judged
    tests    kind of test -> its own probability: "trend" (all series together), "series" (the
             oddest one), "replicates" (their means against their scatter), "size" (chi squared and
             smooth parts, where sigma is known)
    """

    verdict: str
    p: float = math.nan
    reasons: tuple[str, ...] = ()
    tests: Mapping[str, float] = field(default_factory=dict)

    @property
    def lacks(self) -> bool:
        """Whether the verdict is lack of fit."""
        return self.verdict == LACK

    @property
    def sentence(self) -> str:
        """The verdict, its probability and its reasons."""
        clear = "no clear lack" if self.p < DOUBTFUL else "no lack"
        said = {
            ADEQUATE: f"Fit adequate: {clear} of fit was detected",
            LACK: "LACK OF FIT: the residuals are not measurement errors alone",
            UNJUDGED: "Whether the model fits cannot be judged",
        }[self.verdict]
        return " ".join([f"{said}{_bracketed(self.p)}.", *self.reasons])

    @classmethod
    def restored(cls, stored: Mapping[str, Any] | None) -> "Adequacy | None":
        """From what `dataclasses.asdict` and JSON made of it; None from results without it."""
        if not isinstance(stored, Mapping):
            return None
        return cls(**{**stored, "reasons": tuple(stored["reasons"])})


def probability(p: float) -> str:
    """A simulated probability in words."""
    return f"p < {SHOWN:g}" if p < SHOWN else f"p = {p:.2g}"


def _bracketed(p: float) -> str:
    return "" if math.isnan(p) else f" ({probability(p)})"
