"""A method that cannot integrate a problem's intervals says so: as a status, when asked to run."""

from dataclasses import dataclass

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.cut import Cut
from igpe.dynamics.integrators.intervals import Shots
from igpe.equations.initial_value import InitialValueProblem


@dataclass(frozen=True)
class NoShots:
    """Intervals of which none is integrated, for the `reason`."""

    ivp: InitialValueProblem
    cut: Cut
    reason: str
    status: Status = Status.INTEGRATION_BROKE

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """Not a number anywhere."""
        n_k, n_t, n_h = self.cut.intervals, len(self.cut.times), self.ivp.measured.numel()
        n_x = len(self.ivp.states)
        n_s, n_q = (n_x, len(self.ivp.unknowns)) if derivatives else (0, 0)
        check_shapes(self.ivp, self.cut, starts, q)
        return Shots(
            ends=np.full((n_k, n_x), np.nan),
            by_start=np.full((n_k, n_x, n_s), np.nan),
            by_unknown=np.full((n_k, n_x, n_q), np.nan),
            measured=np.full((n_t, n_h), np.nan),
            measured_by_start=np.full((n_t, n_h, n_s), np.nan),
            measured_by_unknown=np.full((n_t, n_h, n_q), np.nan),
            status=(self.status,) * n_k,
            reason=(self.reason,) * n_k,
        )


def implicit_sentence(method: str, ivp: InitialValueProblem) -> str:
    """That a method cannot do with implicit algebraic variables."""
    return (
        f"{method} cannot integrate equations with the implicit algebraic variables "
        f"{list(ivp.implicit)}; igpe.integrators.AutomaticIntervals can."
    )


def check_shapes(ivp: InitialValueProblem, pieces: Cut, starts: FloatArray, q: FloatArray) -> None:
    """Raise ValueError unless there is one start for each interval and state, and all of q."""
    wanted = (pieces.intervals, len(ivp.states))
    if np.shape(starts) != wanted:
        raise ValueError(f"Expected starts of shape {wanted}, got {np.shape(starts)}.")
    if np.shape(q) != (len(ivp.unknowns),):
        raise ValueError(f"Expected one number for each of {ivp.unknowns}, got {q}.")
