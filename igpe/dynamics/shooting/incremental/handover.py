"""What a user should know of the way from one horizon to the next.

An early horizon with no residuals to spare is fitted exactly, noise and all. How far that leads
away shows on the next measurements: in 40 runs of Lotka-Volterra with 5 % noise 33 exact fits of
two times missed the next two by more than 30 standard deviations, or could not be integrated to
them; those of eight milder problems missed by less than 8.
"""

from collections.abc import Sequence

from igpe.core.estimates import Horizon
from igpe.dynamics.shooting.stage import Solved, Stage

EXACT = 1e-2  # chi squared per residual: so small is none that was not interpolated
MISSED = 10.0  # standard deviations, root mean square: so far off is no prediction


def told(trail: Sequence[Horizon], stages: Sequence[Stage], solved: Solved) -> list[str]:
    """Sentences on how the horizon after `trail` began.

    stages  of all horizons;  solved: the one after the trail
    """
    number = len(trail)
    here = stages[number]
    if number == 0:
        return [_smaller(solved)] if solved.moved else []
    before = stages[number - 1]
    few = len(before.residuals) <= len(before.box)
    of = f"The estimate of horizon {number} (until {max(trail[-1].until.values()):g})"
    until = f"{max(here.reach.ends):g}"
    if solved.moved:
        return [f"{of} {'interpolates the noise and ' * few}{_lost(solved, until)}"]
    exact = trail[-1].objective <= EXACT * len(before.residuals) * before.spread**2
    if few and exact and solved.missed > MISSED:
        return [
            f"{of} interpolates the noise: it missed the measurements until {until} by "
            f"{solved.missed:.3g} standard deviations. The search went on from it."
        ]
    return []


def _smaller(solved: Solved) -> str:
    if solved.fit.at is None:
        return "The start could not be integrated to the first measurement, nor smaller values."
    return (
        "The start could not be integrated to the first measurement; the search began from "
        "smaller values."
    )


def _lost(solved: Solved, until: str) -> str:
    went = "the search went on from values between it and an earlier estimate"
    lost = "no values were found from which to go on"
    return f"could not be integrated to {until}; {lost if solved.fit.at is None else went}."
