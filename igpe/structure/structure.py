"""Step 2: what can be estimated from these measurements, by which equations, and why not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import pandas as pd

from igpe.equations.reading.read import read_systems
from igpe.equations.system import System
from igpe.problem.plausibility import warnings_about
from igpe.problem.problem import Problem
from igpe.results.plots.structure_map import plot_maps
from igpe.results.structure_map import StructureMap
from igpe.structure import report
from igpe.structure.advice import MOST_UNKNOWNS, Adviser
from igpe.structure.findings import Finding, Form, Reach
from igpe.structure.groups import Group, groups
from igpe.structure.identifiability.identifiability import (
    Algebra,
    Identifiability,
    identifiability,
    undecided,
)
from igpe.structure.identifiability.influence import Influence, influence
from igpe.structure.identifiability.of_errors import of_errors_alone
from igpe.structure.identifiability.posed import pose, single_starts
from igpe.structure.mapped import maps
from igpe.structure.subsystems import Reduced, Subsystem, Surplus, reduce, suitable


@dataclass(frozen=True, eq=False)
class Structure:
    """What the structure of a problem says before any fitting. Print it.

    findings    one for each free unknown, in the problem's order
    groups      the independent estimation problems of step 3
    subsystems  of all experiments: smallest suitable ones, also those without closed expressions
    surplus     equations that are not needed
    reduced     of each experiment: its reduced system and symbols
    slopes      of each experiment: state -> predicted slope, SX of the reduced system's q, data,
                time and inputs
    exact       structural local identifiability of all unknowns together
    experiments names of the experiments
    warnings    sentences about what is probably not meant as it is written
    """

    findings: tuple[Finding, ...]
    groups: tuple[Group, ...]
    subsystems: tuple[Subsystem, ...]
    surplus: tuple[Surplus, ...]
    reduced: tuple[Reduced, ...] = field(repr=False)
    slopes: tuple[Mapping[str, Any], ...] = field(repr=False)
    exact: Identifiability
    experiments: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def __getitem__(self, unknown: str) -> Finding:
        """The finding about one unknown; KeyError if there is no such free unknown."""
        for finding in self.findings:
            if finding.unknown == unknown:
                return finding
        raise KeyError(unknown)

    @property
    def is_linear(self) -> bool:
        """Whether slopes are linear in all unknowns: then one set of values explains them."""
        return all(
            finding.form is Form.LINEAR if finding.reach is Reach.ALGEBRAIC
            else finding.reach is Reach.SMOOTHING
            for finding in self.findings
        )  # fmt: skip

    def names(self, reach: Reach) -> tuple[str, ...]:
        """Unknowns with that verdict."""
        return tuple(f.unknown for f in self.findings if f.reach is reach)

    def to_frame(self) -> pd.DataFrame:
        """One row per unknown."""
        return report.frame(self.findings)

    @cached_property
    def maps(self) -> tuple[StructureMap, ...]:
        """Equations by what can be computed of them, once for experiments that look alike."""
        reach = {f.unknown: f.reach.name.lower() for f in self.findings}
        return maps(self.reduced, self.slopes, reach, self.experiments)

    def plot(self, axes: Any = None) -> Any:
        """Dulmage and Mendelsohn's picture: which equations give what, and which parameters.

        Rows are equations, columns what is unknown in them, what is measured, and parameters. What
        is over-, well- and underdetermined is shaded; frames are the blocks of the triangular form:
        read from the top, each follows from those above it. The last rows say which parameters are
        estimated from which measured state, or are in a start value.

        axes     matplotlib axes, one for each of `maps`; None makes a figure
        returns  array of axes
        """
        return plot_maps(self.maps, axes)

    def __str__(self) -> str:
        return report.text(self.findings, self._remarks())

    def _repr_html_(self) -> str:
        return report.html(self.findings, self._remarks())

    def _remarks(self) -> list[str]:
        return [*report.remarks(self.groups, self.surplus, self.exact), *self.warnings]


def analyse(
    problem: Problem, systems: Sequence[System] | None = None, *, most_work: float = 0.0
) -> Structure:
    """Which unknowns the measurements reach, and how (Michalik et al. 2009, IGPE, step 2).

    systems    of the problem's experiments, where they have been read already
    most_work  how long the exact test of identifiability may be; 0: it is left out
    raises     ModelError as `read_system` does
    """
    read = read_systems(problem) if systems is None else systems
    # what varies with time is no datum, and no unknown that structure could judge
    problem = problem.fixing(dict.fromkeys(problem.varying, 0.0))
    problem = problem.fixing(dict.fromkeys(of_errors_alone(problem, read), 1.0))  # nor are these
    posed = [pose(problem, i, system) for i, system in enumerate(read)]
    reduced = tuple(reduce(one) for one in posed)
    found = [suitable(one) for one in reduced]
    subsystems = tuple(chain.from_iterable(s.subsystems for s in found))
    slopes = tuple(s.slopes for s in found)
    gathered = groups(subsystems, reduced, slopes, problem.box.names)
    judge = _Judge(problem, gathered, subsystems, [influence(one) for one in posed])
    exact = _exact(problem, read, Algebra(posed, slopes), most_work)
    return Structure(
        findings=tuple(_with(judge(name), exact) for name in problem.box.names),
        groups=gathered,
        subsystems=subsystems,
        surplus=tuple(chain.from_iterable(s.surplus for s in found)),
        reduced=reduced,
        slopes=slopes,
        exact=exact,
        experiments=tuple(e.name for e in problem.experiments),
        warnings=warnings_about(problem),
    )


def _exact(
    problem: Problem, systems: Sequence[System], algebra: Algebra, most_work: float
) -> Identifiability:
    if not most_work or not len(problem.box):
        return undecided(problem.box.names, "")
    return identifiability(problem, systems, algebra, most_work=most_work)


def _with(finding: Finding, exact: Identifiability) -> Finding:
    """The finding with what the exact test says.

    What would make an unknown visible need not tell it from others; the exact test knows both.
    """
    name = finding.unknown
    freeing = exact.measure.get(name, ())
    is_lost = finding.reach is Reach.UNREACHABLE
    return replace(
        finding,
        measure=freeing if is_lost and freeing else finding.measure,
        verdict=exact.verdicts[name],
        values=exact.values.get(name, 0),
        shared=exact.shared(name),
        freeing=freeing,
    )


class _Judge:
    """Comes to a finding about one unknown after the other."""

    def __init__(
        self,
        problem: Problem,
        gathered: Iterable[Group],
        subsystems: Iterable[Subsystem],
        influences: Sequence[Influence],
    ) -> None:
        self.problem = problem
        self.group = {name: group for group in gathered for name in group.parameters}
        self.uses: dict[str, list[Subsystem]] = {}
        for one in sorted(subsystems, key=lambda s: len(s.rows)):
            for name in one.parameters:
                self.uses.setdefault(name, []).append(one)
        self.influences = influences
        self.starts = [single_starts(i.posed) for i in influences]
        self.visible = set().union(*(i.visible() for i in influences))
        self.advisers = [Adviser(i) for i in influences]
        self.advised = 0

    def __call__(self, name: str) -> Finding:
        prior = name in self.problem.priors
        if name in self.group:
            return self._algebraic(name, prior)
        smoothed = self._smoothed(name)
        if smoothed:
            return Finding(name, Reach.SMOOTHING, states=smoothed, prior=prior)
        uses = self.uses.get(name, [])
        implicit = tuple(dict.fromkeys(v for s in uses for v in s.implicit))
        equations = tuple(dict.fromkeys(e for s in uses for e in s.equations))
        is_visible = name in self.visible
        # Where only closed expressions are missing, measuring more is not what helps.
        measure = () if implicit else self._measure(name, is_visible)
        reach = Reach.DYNAMIC if is_visible else Reach.UNREACHABLE
        return Finding(
            name, reach, equations=equations, implicit=implicit, measure=measure, prior=prior
        )

    def _algebraic(self, name: str, prior: bool) -> Finding:
        group = self.group[name]
        uses = [s for s in self.uses[name] if s.explicit]
        form = Form.SINGLY_LINEAR if name in group.individually else Form.NONLINEAR
        return Finding(
            unknown=name,
            reach=Reach.ALGEBRAIC,
            states=tuple(dict.fromkeys(x for s in uses for x in s.slopes)),
            equations=tuple(dict.fromkeys(e for s in uses for e in s.equations)),
            form=Form.LINEAR if name in group.jointly else form,
            prior=prior,
        )

    def _smoothed(self, name: str) -> tuple[str, ...]:
        """Measured states whose start value the unknown is."""
        found = [
            starts[name]
            for starts, i in zip(self.starts, self.influences, strict=True)
            if name in starts and starts[name] in i.posed.data_names
        ]
        return tuple(dict.fromkeys(found))

    def _measure(self, name: str, is_visible: bool) -> tuple[tuple[str, ...], ...]:
        """What else to measure; where that differs between experiments it says in which."""
        mine = [k for k, i in enumerate(self.influences) if name in i.posed.q_names]
        self.advised += is_visible
        if is_visible and self.advised > MOST_UNKNOWNS:
            return ()
        where: dict[tuple[str, ...], list[int]] = {}
        for k in mine:
            for names in self._options(k, name) if is_visible else self._openings(k, name):
                where.setdefault(names, []).append(k)
        if not where:
            return ()
        fewest = min(len(names) for names in where)
        return tuple(
            names if len(places) == len(mine) else tuple(self._at(n, places[0]) for n in names)
            for names, places in where.items()
            if len(names) == fewest
        )

    def _options(self, k: int, name: str) -> list[tuple[str, ...]]:
        own = self.starts[k].get(name)
        return [(own,)] if own else self.advisers[k].alternatives(name)

    def _openings(self, k: int, name: str) -> list[tuple[str, ...]]:
        return [(variable,) for variable in self.influences[k].downstream(name)]

    def _at(self, name: str, k: int) -> str:
        return f"{name} in {self.problem.experiments[k].name}"
