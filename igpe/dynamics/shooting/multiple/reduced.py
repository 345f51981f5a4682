"""Derivatives that go through all intervals, where few directions are left (Schloeder's trick).

An interval's derivatives by all its states are only wanted times what the unknowns and the gaps
before it make of them. Integrated along those directions alone (Houska et al., equations 7 to 10),
the steps of Gauss-Newton are the same, and with many states and few unknowns the work is far less.
The natural level function wants the old derivatives times the gaps of a trial: one direction more,
at the old point.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import cast

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.status import Status
from igpe.dynamics.integrators.intervals import Along, Chaining
from igpe.dynamics.shooting.multiple.chains import Chains, Shooting
from igpe.dynamics.shooting.residuals import NO_NUMBER, Broken
from igpe.numerics.least_squares.chains.chains import Affine, Reduced

# What an evaluation costs, in columns of derivatives, measured from 4 to 64 states:
SHARED = 10.0  # the state and the Jacobian, which all columns share
EACH = 1.5  # a column of each interval's own derivatives, which the step control looks at
ADDED = 6  # columns beside those of the unknowns: gaps and probe, and four for a trial's gaps
PAYS = 1.25  # times that all derivatives must cost the reduced ones


def reduced(chains: Chains) -> Chains:
    """The same chains, with derivatives through all intervals of the experiments where that pays.

    It does where an experiment has many more states than unknowns. Constraints on states inside
    the course want each interval's own derivatives, as does what cannot be asked for less.
    """
    found = copy(chains)
    found.shootings = tuple(_through(s) if pays(s) else s for s in chains.shootings)
    return found


def pays(shooting: Shooting) -> bool:
    """Whether fewer directions through all intervals are faster than each interval's own."""
    if shooting.limits is not None or not hasattr(shooting.intervals, "chained"):
        return False
    ivp = shooting.ivp
    depends = ca.which_depends(ca.vertcat(ivp.f, ivp.measured), ivp.q)  # not on start values
    whole = SHARED + EACH * (len(ivp.states) + sum(depends))
    return whole >= PAYS * (2 * SHARED + len(ivp.unknowns) + ADDED)


def _through(shooting: Shooting) -> "Through":
    return Through(**{field.name: getattr(shooting, field.name) for field in fields(shooting)})


@dataclass(frozen=True)
class Through(Shooting):
    """An experiment whose derivatives go through all intervals; it has no constraints."""

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> Reduced | Broken:
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        q, starts, by_q = self.starts(unknowns, nodes)
        n_x, n_q = by_q.shape
        first = np.zeros((n_x + n_q, n_q + 1))
        first[:n_x, :n_q], first[n_x:, :n_q] = by_q, np.eye(n_q)
        intervals = cast(Chaining, self.intervals)
        ran = intervals.chained(starts, q, first, probed=True)
        for status, reason in zip(ran.status, ran.reason, strict=True):
            if not status.usable:
                return Broken(self.name, status, reason)
        gap = self.gaps(ran.ends, starts)
        by = _resting(ran.measured_by, by_q) if self.told_at_start else ran.measured_by
        moved, told = self._by_dq(ran.ends_by, first[:n_x]), self.weighted(by)
        moved[:, :, -1] += gap
        n = len(unknowns)
        moves = np.concatenate([self.wide(moved[..., :-1], n), moved[..., -1:]], axis=2)
        affine = Affine(moves, told[:, -1], self.wide(told[:, :-1], n))
        along = partial(self._shifted, partial(intervals.chained, starts, q, probed=True))
        found = Reduced(self.residual(ran.measured), gap, affine, along)
        return found if found.is_finite else Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _shifted(
        self, chained: Callable[..., Along], gaps: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """See `Reduced.along`: one direction that begins with the first gap."""
        n_x = gaps.shape[1]
        first = np.zeros((n_x + len(self.index), 1))
        first[:n_x, 0] = gaps[0]
        ran = chained(first, gaps=gaps)
        moved = self._by_dq(ran.ends_by, first[:n_x])[..., 0] + gaps
        moved[0] = gaps[0]
        return moved, self.weighted(ran.measured_by)[:, 0]

    def _by_dq(self, ends_by: FloatArray, first: FloatArray) -> FloatArray:
        """(K, n_x, n_d) of the nodes' change what is no gap: the first one's, then the ends'."""
        return np.concatenate([first[None], ends_by[:-1]])


def _resting(by: FloatArray, by_q: FloatArray) -> FloatArray:
    """Derivatives of what is measured at a start that the unknown does not move: 0 where none."""
    lost = np.isnan(by[0, :, :-1]) & (by_q == 0).all(axis=0)
    if not lost.any():
        return by
    found = by.copy()
    found[0, :, :-1][lost] = 0.0
    return found
