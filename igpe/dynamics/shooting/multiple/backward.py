"""Experiments of which backward lifting asks single directions (Houska et al., section 4.2).

The directions are those of the very steps of one run, which states and a probe alone decide: one
forwards as gaps close, one sweep back, one forwards along a step. So gradients are those of all
derivatives, to rounding.
"""

from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import cast

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.intervals import Recorded, Sweeping
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.multiple.chains import Chains, Shooting
from igpe.dynamics.shooting.multiple.reduced import Through, pays
from igpe.dynamics.shooting.residuals import NO_NUMBER, Broken
from igpe.numerics.least_squares.chains.chains import Chain, Lifted, Reduced
from igpe.problem.loss import LeastSquares
from igpe.problem.problem import Problem


def lifted(chains: Chains) -> Chains:
    """The same chains, asked for single directions.

    raises Unsupported for integrators that cannot sweep back
    """
    for shooting in chains.shootings:
        _check(shooting)
    found = copy(chains)
    found.shootings = tuple(
        Backward(**{field.name: getattr(s, field.name) for field in fields(s)})
        for s in chains.shootings
    )
    return found


def require_squares(problem: Problem) -> None:
    """Refuse what backward lifting cannot do: raises Unsupported for losses and constraints."""
    found = constraints(problem)
    if not isinstance(problem.loss, LeastSquares):
        found = [type(problem.loss).__name__]
    if found:
        raise Unsupported(
            "BackwardLifting minimises a sum of squares without constraints of the model; the "
            f"problem has {found}. Use MultipleShooting's own search, GeneralisedGaussNewton()."
        )


def _check(shooting: Shooting) -> None:
    if not hasattr(shooting.intervals, "swept"):
        why = getattr(shooting.intervals, "reason", "")
        raise Unsupported(
            "BackwardLifting needs RungeKutta() or AutomaticIntervals(), equations without "
            f"implicit algebraic variables and a C compiler.{why and ' '}{why} Leave out search=, "
            "for GeneralisedGaussNewton()."
        )


@dataclass(frozen=True)
class Backward(Through):
    """An experiment whose derivatives are asked for in single directions."""

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> Lifted | Broken:  # type: ignore[override]
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        q, starts, by_q = self.starts(unknowns, nodes)
        sweeping = cast(Sweeping, self.intervals)
        ran = sweeping.recorded(starts, q, np.zeros((sum(by_q.shape), 1)))
        for status, reason in zip(ran.along.status, ran.along.reason, strict=True):
            if not status.usable:
                return Broken(self.name, status, reason)
        n, gap = len(unknowns), self.gaps(ran.along.ends, starts)
        found = Lifted(
            self.residual(ran.along.measured),
            gap,
            self.weighted(ran.along.measured_by)[:, 0],
            partial(self._gradient, ran, by_q, n),
            partial(self._along, starts, q, by_q, gap),
            partial(self._whole, unknowns, nodes),
        )
        return found if found.is_finite else Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _gradient(
        self, ran: Recorded, by_q: FloatArray, size: int, weights: FloatArray
    ) -> FloatArray:
        """See `Lifted.gradient`."""
        seeds = np.zeros_like(ran.along.measured)
        np.add.at(seeds, self._told, weights * self._weight)
        found = cast(Sweeping, self.intervals).swept(ran, seeds)
        moves = by_q.any(axis=1)  # a start that no unknown moves counts 0 even times infinity
        own = found.by_unknown + by_q[moves].T @ found.by_node[0][moves]
        return self.wide(own, size)

    def _along(
        self, starts: FloatArray, q: FloatArray, by_q: FloatArray, gap: FloatArray, dq: FloatArray
    ) -> FloatArray:
        """See `Lifted.along`."""
        own = dq[self.index]
        first = np.concatenate([by_q @ own, own])[:, None]
        ran = cast(Sweeping, self.intervals).chained(starts, q, first, probed=True)
        return np.asarray(self._by_dq(ran.ends_by, first[: len(by_q)])[..., 0] + gap)

    def _whole(self, unknowns: FloatArray, nodes: FloatArray) -> Chain | Reduced | None:
        found = (Through if pays(self) else Shooting).chain(self, unknowns, nodes)
        return None if isinstance(found, Broken) else found
