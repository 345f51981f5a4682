"""From structure and smoothed curves to the algebraic estimation problems of step 3.

A group of slopes can be posed in two forms (`Form`); `regression` explains both.
"""

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.base import StateErrors, Target, Weights
from igpe.algebraic.curves import Curves, known_start
from igpe.algebraic.regression import Piece, Regression
from igpe.core.arrays import FloatArray
from igpe.equations.symbols import stack
from igpe.problem.inputs import evaluate, just_before
from igpe.problem.problem import Problem
from igpe.smoothing.base import description
from igpe.structure.groups import Group, Member
from igpe.structure.structure import Structure

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)  # quadrature on [-1, 1]


class Form(enum.Enum):
    """Which residuals step 3 minimises; the value is what the user reads."""

    SLOPES = "slopes"
    INTEGRALS = "integrated slopes"


@dataclass(frozen=True)
class Posing:
    """How step 3 is posed: with which curves, in which form, and how its residuals count."""

    problem: Problem
    structure: Structure
    curves: Curves
    form: Form
    weights: Weights = StateErrors()

    @property
    def origin(self) -> str:
        """In words."""
        return f"{self.form.value} of {description(self.curves.smoother)}"

    def regression(self, group: Group) -> Regression:
        """The group's estimation problem, its residuals in units of their standard errors."""
        posed = [self._posed(member) for member in group.members]
        weights = self.weights.of([p.target for p in posed])
        return Regression(
            box=self.problem.box.select(group.parameters),
            pieces=tuple(
                Piece(
                    _prediction(self.structure, group, member),
                    self._known(member.experiment, one.places),
                    one.combine,
                    one.target.value,
                    weight,
                )
                for member, one, weight in zip(group.members, posed, weights, strict=True)
            ),
            origin=self.origin,
            linear=set(group.jointly) == set(group.parameters),
        )

    def _posed(self, member: Member) -> "_Posed":
        curve = self.curves.of[member.experiment][member.state]
        if self.form is Form.SLOPES:
            times, _, _ = self.problem.experiments[member.experiment].measurements.of(member.state)
            places = np.unique(times)
            return _Posed(places, None, Target(curve.slope(places), curve.slope_error(places)))
        edges = _edges(self.problem, member)
        places, combine = _quadrature(edges)
        error = np.hypot(curve.value_error(edges[1:]), curve.value_error(edges[:-1]))
        return _Posed(places, combine, Target(np.diff(curve.value(edges)), error))

    def _known(self, experiment: int, places: FloatArray) -> FloatArray:
        """(n_known, n_places): smoothed data, time and inputs, as `_prediction` wants them.

        What jumps at a place, by an input or by a condition on time, is taken before the jump, as
        integrators report it.
        """
        posed, run = self.structure.reduced[experiment].posed, self.problem.experiments[experiment]
        smooth = self.curves.of[experiment]
        data = [smooth[n].value(places) for n in posed.data_names]
        start = run.start_time
        sides = [just_before(t) if t > start else t for t in places]
        inputs = [[evaluate(run.inputs[n], t) for t in sides] for n in posed.input_names]
        return np.vstack([*data, sides, *inputs])


class _Posed(NamedTuple):
    """Where a slope is predicted, `combine` as in `Piece`, and what that is fitted to."""

    places: FloatArray
    combine: FloatArray | None
    target: Target


def _prediction(structure: Structure, group: Group, member: Member) -> Any:
    """CasADi function (known, parameters of the group) -> slope of the member."""
    posed = structure.reduced[member.experiment].posed
    slope = structure.slopes[member.experiment][member.state]
    p = stack(ca.SX.sym(n) for n in group.parameters)
    at = {n: i for i, n in enumerate(posed.q_names)}
    own = [n for n in group.parameters if n in at]
    old = stack(posed.q[at[n]] for n in own)
    new = stack(p[group.parameters.index(n)] for n in own)
    known = ca.vertcat(posed.data, posed.time, posed.inputs)
    return ca.Function("predict", [known, p], [ca.substitute(slope, old, new)])


def _edges(problem: Problem, member: Member) -> FloatArray:
    """Times between which slopes are integrated: those measured, and a known start."""
    run, starts = problem.experiments[member.experiment], problem.starts[member.experiment]
    times, _, _ = run.measurements.of(member.state)
    if known_start(run, starts, member.state) is None:
        return np.unique(times)
    return np.unique(np.append(times, run.start_time))


def _quadrature(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Places (n_intervals * n,) and weights (n_intervals, n) that integrate over each interval."""
    half = np.diff(edges)[:, None] / 2
    middle = (edges[1:] + edges[:-1])[:, None] / 2
    places = middle + half * NODES
    return places.ravel(), half * WEIGHTS
