"""Results of estimation methods, and their conversion to and from plain values for JSON."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.json_form import plain, restored
from igpe.core.markup import Rows, Shown
from igpe.core.status import Status

AGREEING = 1e-3  # relative difference of objectives that count as the same optimum
ROUNDING = 1e-12  # of the largest objective: below it differences are rounding


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """Estimated parameters, with the status and the method of the estimate.

    parameters   a dict {name: value}, in the model's units
    objective    value of the minimised function (for dynamic methods, the weighted sum of squares)
    status       the `Status` with which the computation ended
    method       description of the method that computed the estimate
    lower_bound  proved lower bound on the objective; -inf if the method proves no bound
    seconds      wall time
    trail        the estimates that led to this one, oldest first
    notes        messages for the user
    iterations   number of iterations; 0 if the method does not count them
    elsewhere    horizons of the other starts, whose estimates were not used
    reached      final objective of each start; infinite if the start gave no usable result. If
                 weights depend on the model, these objectives use the first weights
    """

    parameters: Mapping[str, float]
    objective: float
    status: Status
    method: str = ""
    lower_bound: float = -np.inf
    seconds: float = 0.0
    trail: tuple["Estimate", ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    iterations: int = 0
    elsewhere: tuple["Horizon", ...] = field(default=(), repr=False)
    reached: tuple[float, ...] = field(default=(), repr=False)

    @property
    def gap(self) -> float:
        """Relative gap between the objective and its lower bound; 0 means globally optimal."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def equivalent_iterations(self) -> float:
        """Total iterations over all starts; each iteration is weighted by the length of its
        horizon.

        I_equiv = sum of n_i t_i / t_end (Michalik et al. 2009, ISS, section 5); 0 if there are no
        horizons.
        """
        return equivalent_iterations((*self.trail, *self.elsewhere))

    @property
    def equivalent_integrations(self) -> float:
        """Number of integrations (including those for rejected steps), weighted as in
        `equivalent_iterations`."""
        horizons = (h for h in (*self.trail, *self.elsewhere) if isinstance(h, Horizon))
        return sum(h.integrations * h.share for h in horizons)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        values = [("", "estimate"), *((n, f"{v:.6g}") for n, v in self.parameters.items())]
        is_bounded = bool(np.isfinite(self.lower_bound))
        proved = f" (proved lower bound: {self.lower_bound:.6g})" * is_bounded
        by = f"By {self.method}, {self.seconds:.3g} s." if self.method else ""
        known = f"Objective {self.objective:.6g}{proved}."
        near = agreeing(self.reached)
        starts = f" {near} of {len(self.reached)} starts agree." if len(self.reached) > 1 else ""
        return [values], [known, f"{self.status.value}{starts}", *filter(None, [by]), *self.notes]


def agreeing(reached: Iterable[float]) -> int:
    """Count the objectives that agree with the smallest one."""
    ends = [r for r in reached if math.isfinite(r)]
    least, most = min(ends, default=0.0), max(ends, default=0.0)
    return sum(r <= least + AGREEING * abs(least) + ROUNDING * abs(most) for r in ends)


class Iterate(NamedTuple):
    """State of multiple shooting after an iteration.

    parameters  a dict {unknown: value}
    objective   as the stage counts it, in standard deviations
    gap         the largest between two intervals, relative to the size of its state
    nodes       of each experiment (K + 1,) the times at which intervals begin and the last ends
    starts      of each experiment (K, n_x) the states at which they begin
    """

    parameters: Mapping[str, float]
    objective: float
    gap: float
    nodes: tuple[FloatArray, ...]
    starts: tuple[FloatArray, ...]


@dataclass(frozen=True, repr=False)
class Horizon(Estimate):
    """An estimate from the measurements up to a certain time (one step of `IncrementalShooting`).

    until         a dict {experiment: time of the last measurement used}
    share         length of this horizon as a fraction of the full horizon
    lower, upper  two dicts {unknown: bound of the search at its end}
    integrations  number of integrations of the model and its sensitivities
    relaxations   number of times that bounds were widened
    iterates      iterates of multiple shooting, if they were recorded
    """

    until: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    lower: Mapping[str, float] = field(default_factory=dict)
    upper: Mapping[str, float] = field(default_factory=dict)
    integrations: int = 0
    relaxations: int = 0
    iterates: tuple[Iterate, ...] = field(default=(), repr=False, compare=False)


def equivalent_iterations(trail: Iterable[Estimate]) -> float:
    """Equivalent iterations of one start's horizons (`found.trail`), as in Table 3 of the paper."""
    return sum(h.iterations * h.share for h in trail if isinstance(h, Horizon))


def relative_gap(objective: float, lower_bound: float) -> float:
    """(objective - bound) / |objective|; 0 if they are equal."""
    if objective == lower_bound:
        return 0.0
    return (objective - lower_bound) / max(abs(objective), 1e-12)


def estimate_row(estimate: Estimate) -> dict[str, Any]:
    """Return all fields, with trail and elsewhere in the same form, and the equivalent work.

    Iterates, which are recorded to be drawn, are left out.
    """
    names = [f.name for f in fields(estimate) if f.name != "iterates"]
    row = {name: plain(getattr(estimate, name)) for name in names}
    for name in ("trail", "elsewhere"):
        row[name] = [estimate_row(one) for one in getattr(estimate, name)]
    row["equivalent_iterations"] = plain(estimate.equivalent_iterations)
    row["equivalent_integrations"] = plain(estimate.equivalent_integrations)
    return row


def estimate_of(row: Mapping[str, Any]) -> Estimate:
    """Estimate from which `estimate_row` was made."""
    kind = Horizon if "until" in row else Estimate
    values = {f.name: restored(row[f.name]) for f in fields(kind) if f.name in row}
    values["status"], values["notes"] = Status[row["status"]], tuple(row["notes"])
    values["reached"] = tuple(values["reached"])
    for name in ("trail", "elsewhere"):
        values[name] = tuple(estimate_of(one) for one in row[name])
    return kind(**values)
