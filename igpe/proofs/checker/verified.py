"""The checker's answer."""

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """What is known of a certificate after it was checked. The value is what the user reads."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    NOT_CONFIRMED = "not confirmed"


@dataclass(frozen=True)
class Region:
    """A box of parameters, and what is the matter with it."""

    lower: dict[str, float]
    upper: dict[str, float]
    why: str


@dataclass(frozen=True)
class Verified:
    """What `igpe.verify` found.

    verdict      VERIFIED: within the box no parameters have a sum of squares below `lower_bound`,
                 and those of the certificate have one in `objective`; REFUTED: the tree does not
                 cover the box, or some parameters contradict it; NOT_CONFIRMED: neither was shown
    lower_bound  as certified
    objective    (lower, upper) enclosure of the sum of squares at the certificate's parameters
    regions      where it is refuted or not confirmed
    volume       share of the box that was not confirmed
    leaves       parts of the box the certificate speaks of: leaves, and slabs that were cut off
    subdivided   how many of them the checker had to cut further;  boxes  how many it integrated
    seconds      it took
    """

    verdict: Verdict
    lower_bound: float
    objective: tuple[float, float]
    regions: tuple[Region, ...]
    volume: float
    leaves: int
    subdivided: int
    boxes: int
    seconds: float

    def __bool__(self) -> bool:
        return self.verdict is Verdict.VERIFIED

    @property
    def gap(self) -> float:
        """How far below the objective's upper end the bound is, relative to it; as verified."""
        top = self.objective[1]
        return max(0.0, 1 - self.lower_bound / top) if top > 0 else 0.0

    @property
    def sentence(self) -> str:
        """What was shown, or where it failed."""
        if self.verdict is Verdict.VERIFIED:
            return (
                f"Verified: no parameters in the box have a sum of squares below "
                f"{self.lower_bound:.9g}; that of the certificate's parameters is at most "
                f"{self.objective[1]:.9g} (gap {self.gap:.2g}). {self.leaves} parts of the box "
                f"were proved again with outward rounding, {self.boxes} integrations, "
                f"{self.seconds:.3g} s."
            )
        first = self.regions[0]
        box = ", ".join(f"{n} in [{a:.6g}, {first.upper[n]:.6g}]" for n, a in first.lower.items())
        if self.verdict is Verdict.REFUTED:
            return f"Refuted: {first.why} ({box})."
        more = f", and {len(self.regions) - 1} more" if len(self.regions) > 1 else ""
        return (
            f"Not confirmed on {100 * self.volume:.2g} % of the box: {first.why} ({box}{more}). "
            "Nothing was found that contradicts the certificate."
        )

    def __str__(self) -> str:
        return self.sentence
