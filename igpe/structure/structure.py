"""Step 2: what can be estimated from these measurements, by which equations, and why not.

From the structure of each experiment to its map; equivalent experiments share one.

What else would have to be measured for an unknown to be reached by algebra.

A set of additional measurements is tried by analysing the reduced system that it leads to, on
patterns alone. Candidates for an unknown are the states needed to predict the slopes that depend on
it at the same instant; single states are tried first, then pairs, then all that one slope needs.
Whether the equations can be solved in closed form is not looked at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import block_array, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from igpe.core.arrays import IntArray
from igpe.equations.incidence import blocks, incidence, parts
from igpe.problem.plausibility import warnings_about
from igpe.problem.problem import Problem
from igpe.results.plots.structure_map import plot_maps
from igpe.results.structure_map import (
    DYNAMIC,
    OVER,
    SQUARE,
    UNDER,
    MapBlock,
    MapPart,
    MapSource,
    StructureMap,
)
from igpe.structure import report
from igpe.structure.identifiability.identifiability import (
    Access,
    Dependence,
    Finding,
    Identifiability,
    PosedAlgebra,
    identifiability,
    undecided,
)
from igpe.structure.identifiability.posed import (
    Influence,
    influence,
    of_errors_alone,
    pose,
    reached,
    single_starts,
)
from igpe.structure.subsystems import (
    ReducedSystem,
    SlopeGroup,
    Subsystem,
    Surplus,
    groups,
    reduce,
    select,
    suitable,
    used_rows,
)

Pairs = tuple[tuple[int, int], ...]


def maps(
    reduced: Sequence[ReducedSystem],
    slopes: Sequence[Mapping[str, Any]],
    reach: Mapping[str, str],
    names: Sequence[str],
) -> tuple[StructureMap, ...]:
    """One for each structure that differs from those before.

    slopes  of each experiment: state -> predicted slope
    reach   of each free unknown of the problem
    names   of the experiments
    """
    groups: dict[StructureMap, list[str]] = {}
    for one, predicted, name in zip(reduced, slopes, names, strict=True):
        groups.setdefault(_map(one, predicted, reach, name), []).append(name)
    return tuple(replace(m, experiments=tuple(own)) for m, own in groups.items())


def _map(
    reduced: ReducedSystem, slopes: Mapping[str, Any], reach: Mapping[str, str], name: str
) -> StructureMap:
    """The map of one experiment, not yet with its name."""
    posed, order = reduced.posed, _Order(reduced)
    rows, _ = select(posed, posed.data_names)
    hidden = _hidden(reduced)
    every = [*(int(rows[i]) for i in order.rows), *hidden]
    known = [j for j, n in enumerate(posed.variable_names) if n in set(posed.data_names)]
    place = {n: j for j, n in enumerate(posed.variable_names)}
    columns = [place[reduced.unknown_names[j]] for j in order.columns]
    end = len(order.rows)
    left = [MapPart(DYNAMIC, (end, len(every)), (0, 0))] if hidden else []
    return StructureMap(
        experiments=(),
        equations=tuple(posed.row_names[i] for i in every),
        unknowns=tuple(posed.variable_names[j] for j in columns),
        measured=tuple(posed.variable_names[j] for j in known),
        parameters=tuple(n.removesuffix(f"@{name}") for n in posed.q_names),
        reach=tuple(reach[n] for n in posed.q_names),
        entries=_pairs(posed.pattern, every, columns),
        known=_pairs(posed.pattern, every, known),
        uses=_pairs(posed.q_pattern, every, range(len(posed.q_names))),
        parts=(*order.parts, *left),
        blocks=order.blocks,
        sources=_sources(reduced, slopes, reach),
    )


class _Order:
    """Rows and columns of a reduced system as they are drawn.

    rows, columns  indices of the system's
    """

    def __init__(self, reduced: ReducedSystem) -> None:
        result = parts(reduced.pattern)
        self._reduced = reduced
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.parts: tuple[MapPart, ...] = ()
        self.blocks: tuple[MapBlock, ...] = ()
        used = used_rows(reduced, result)
        spare = [i for i in sorted(result.over_rows) if i not in set(used)]
        self._triangular(OVER, used, result.over_columns, spare)
        self._triangular(SQUARE, result.well_rows, result.well_columns, [])
        self._part(UNDER, result.under_rows, sorted(result.under_columns))

    def _triangular(self, kind: str, rows: list[int], columns: list[int], more: list[int]) -> None:
        """A square part along its block triangular form, and rows beyond it."""
        at_row, at_column, result = len(self.rows), len(self.columns), []
        order = blocks(self._reduced.pattern, rows, columns)
        for block in order:
            result.append(MapBlock(at_row, at_column, len(block.rows)))
            at_row, at_column = at_row + len(block.rows), at_column + len(block.columns)
        self.blocks = (*self.blocks, *result)
        in_order = [i for b in order for i in b.rows]
        self._part(kind, [*in_order, *more], [j for b in order for j in b.columns])

    def _part(self, kind: str, rows: Sequence[int], columns: Sequence[int]) -> None:
        i, j = len(self.rows), len(self.columns)
        self.rows += rows
        self.columns += columns
        if rows or columns:
            part = MapPart(kind, (i, len(self.rows)), (j, len(self.columns)))
            self.parts = (*self.parts, part)


def _hidden(reduced: ReducedSystem) -> list[int]:
    """Rows of the model that hold the slope of an unmeasured state: left to the dynamics."""
    posed = reduced.posed
    rows, _ = select(posed, posed.data_names)
    there = set(rows.tolist())
    return [i for i in range(posed.n_equations) if i not in there]


def _pairs(pattern: Any, rows: Sequence[int], columns: Iterable[int]) -> Pairs:
    result = pattern[list(rows)][:, list(columns)].tocoo()
    return tuple(sorted(zip(result.row.tolist(), result.col.tolist(), strict=True)))


def _sources(
    reduced: ReducedSystem, slopes: Mapping[str, Any], reach: Mapping[str, str]
) -> tuple[MapSource, ...]:
    """Slopes predicted by algebra with what they help to estimate, then start values."""
    posed = reduced.posed
    algebraic = {i for i, n in enumerate(posed.q_names) if reach[n] == "algebraic"}
    result = []
    for state, slope in slopes.items():
        depends = np.unique(incidence(slope, posed.q).col).tolist()
        result.append(MapSource(f"slope of {state}", tuple(i for i in depends if i in algebraic)))
    for row, state in enumerate(posed.states):
        depends = tuple(posed.start_pattern[[row]].indices.tolist())
        result.append(MapSource(f"start of {state}", tuple(sorted(depends))))
    return tuple(s for s in result if s.parameters)


MOST_CANDIDATES = 12  # pairs grow with its square; nearer states come first
MOST_UNKNOWNS = 50  # advice for more unknowns than that is not read, and takes time


class Adviser:
    """Finds additional measurements for one experiment.

    influence  of the experiment
    """

    def __init__(self, influence: Influence) -> None:
        self.influence = influence
        self.posed = influence.posed
        self._known: dict[frozenset[str], frozenset[str]] = {}

    def alternatives(self, unknown: str) -> list[tuple[str, ...]]:
        """Smallest sets of states whose measurement makes the unknown algebraically reachable.

        Any one of the sets is enough; empty if none was found, or none is needed.
        """
        needed = self._needed(unknown)
        pool = list(dict.fromkeys(state for one in needed for state in one))[:MOST_CANDIDATES]
        for size in (1, 2):
            result = [s for s in combinations(pool, size) if unknown in self.reachable(s)]
            if result:
                return [tuple(s for s in self.posed.states if s in one) for one in result]
        return next(([one] for one in needed if unknown in self.reachable(one)), [])

    def reachable(self, extra: tuple[str, ...]) -> frozenset[str]:
        """Unknowns in the smallest suitable subsystem of some slope if `extra` is measured."""
        key = frozenset(extra)
        if key not in self._known:
            self._known[key] = self._reachable(key)
        return self._known[key]

    def _reachable(self, extra: frozenset[str]) -> frozenset[str]:
        posed = self.posed
        rows, columns = select(posed, extra.union(posed.data_names))
        used = rows_of_slopes(posed.pattern[rows][:, columns], columns < posed.n_states)
        q = np.unique(posed.q_pattern[rows[used]].indices)
        return frozenset(posed.q_names[i] for i in q)

    def _needed(self, unknown: str) -> list[tuple[str, ...]]:
        """For each slope that depends on the unknown at once: unmeasured states, fewest first."""
        graph, n = self.influence.instantly, self.posed.n_states
        backward = csr_array(graph.T)
        slopes = [i for i in reached(graph, [self.influence.node(unknown)]).tolist() if i < n]
        result = []
        for i in sorted(slopes)[:MOST_CANDIDATES]:
            before = {j - n for j in reached(backward, [i]).tolist() if n <= j < 2 * n} | {i}
            names = (self.posed.states[j] for j in sorted(before))
            result.append(tuple(s for s in names if s not in self.posed.data_names))
        return sorted(result, key=len)


def rows_of_slopes(pattern: Any, is_slope: Any) -> IntArray:
    """Rows of all smallest suitable subsystems that predict a slope.

    pattern   (n_rows, n_columns), CSR
    is_slope  (n_columns,), which columns are slopes
    """
    n_rows, n_columns = pattern.shape
    if 0 in pattern.shape:
        return np.zeros(0, dtype=int)
    column_of = maximum_bipartite_matching(csr_array(pattern), perm_type="column")
    matched = np.flatnonzero(column_of >= 0)
    partner = csr_array(
        (np.ones(len(matched)), (matched, column_of[matched])), shape=(n_rows, n_columns)
    )
    # Alternating paths from unmatched columns mark what is underconstrained: column -> any row that
    # contains it -> the column matched with that row.
    outward = _bipartite(partner, pattern.T)
    unmatched = set(range(n_columns)) - set(column_of[matched].tolist())
    under = reached(outward, [n_rows + j for j in unmatched])
    suitable = set(range(n_rows + n_columns)) - set(under.tolist())
    # From a slope to the row that predicts it, and on to all that this row contains.
    inward = _bipartite(pattern, partner.T)
    slopes = [n_rows + j for j in np.flatnonzero(is_slope).tolist() if n_rows + j in suitable]
    return np.array(sorted(i for i in reached(inward, slopes).tolist() if i < n_rows), dtype=int)


def _bipartite(row_to_column: Any, column_to_row: Any) -> Any:
    return csr_array(block_array([[None, row_to_column], [column_to_row, None]]), dtype=float)


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
    groups: tuple[SlopeGroup, ...]
    subsystems: tuple[Subsystem, ...]
    surplus: tuple[Surplus, ...]
    reduced: tuple[ReducedSystem, ...] = field(repr=False)
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
            finding.form is Dependence.LINEAR if finding.reach is Access.ALGEBRAIC
            else finding.reach is Access.SMOOTHING
            for finding in self.findings
        )  # fmt: skip

    def names(self, reach: Access) -> tuple[str, ...]:
        """Unknowns with that verdict."""
        return tuple(f.unknown for f in self.findings if f.reach is reach)

    def to_frame(self) -> pd.DataFrame:
        """One row per unknown."""
        return report.frame(self.findings)

    @cached_property
    def maps(self) -> tuple[StructureMap, ...]:
        """Equations by what can be computed of them, once for equivalent experiments."""
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


def analyse(problem: Problem, *, most_work: float = 0.0) -> Structure:
    """Which unknowns the measurements reach, and how (Michalik et al. 2009, IGPE, step 2).

    most_work  how long the exact test of identifiability may be; 0: it is left out
    raises     ModelError as `compiled` does
    """
    # what varies with time is no datum, and no unknown that structure could judge
    problem = problem.fixing(dict.fromkeys(problem.varying, 0.0))
    problem = problem.fixing(dict.fromkeys(of_errors_alone(problem), 1.0))  # nor are these
    posed = [pose(problem, i) for i in range(len(problem.experiments))]
    reduced = tuple(reduce(one) for one in posed)
    result = [suitable(one) for one in reduced]
    subsystems = tuple(chain.from_iterable(s.subsystems for s in result))
    slopes = tuple(s.slopes for s in result)
    gathered = groups(subsystems, reduced, slopes, problem.box.names)
    judge = _Judge(problem, gathered, subsystems, [influence(one) for one in posed])
    exact = _exact(problem, PosedAlgebra(posed, slopes), most_work)
    return Structure(
        findings=tuple(_with(judge(name), exact) for name in problem.box.names),
        groups=gathered,
        subsystems=subsystems,
        surplus=tuple(chain.from_iterable(s.surplus for s in result)),
        reduced=reduced,
        slopes=slopes,
        exact=exact,
        experiments=tuple(e.name for e in problem.experiments),
        warnings=warnings_about(problem),
    )


def _exact(problem: Problem, algebra: PosedAlgebra, most_work: float) -> Identifiability:
    if not most_work or not len(problem.box):
        return undecided(problem.box.names, "")
    return identifiability(problem, algebra, most_work=most_work)


def _with(finding: Finding, exact: Identifiability) -> Finding:
    """The finding with what the exact test says.

    What would make an unknown visible need not tell it from others; the exact test knows both.
    """
    name = finding.unknown
    freeing = exact.measure.get(name, ())
    is_lost = finding.reach is Access.UNREACHABLE
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
        gathered: Iterable[SlopeGroup],
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
            return Finding(name, Access.SMOOTHING, states=smoothed, prior=prior)
        uses = self.uses.get(name, [])
        implicit = tuple(dict.fromkeys(v for s in uses for v in s.implicit))
        equations = tuple(dict.fromkeys(e for s in uses for e in s.equations))
        is_visible = name in self.visible
        # Where only closed expressions are missing, measuring more is not what helps.
        measure = () if implicit else self._measure(name, is_visible)
        reach = Access.DYNAMIC if is_visible else Access.UNREACHABLE
        return Finding(
            name, reach, equations=equations, implicit=implicit, measure=measure, prior=prior
        )

    def _algebraic(self, name: str, prior: bool) -> Finding:
        group = self.group[name]
        uses = [s for s in self.uses[name] if s.explicit]
        form = Dependence.SINGLY_LINEAR if name in group.individually else Dependence.NONLINEAR
        return Finding(
            unknown=name,
            reach=Access.ALGEBRAIC,
            states=tuple(dict.fromkeys(x for s in uses for x in s.slopes)),
            equations=tuple(dict.fromkeys(e for s in uses for e in s.equations)),
            form=Dependence.LINEAR if name in group.jointly else form,
            prior=prior,
        )

    def _smoothed(self, name: str) -> tuple[str, ...]:
        """Measured states whose start value the unknown is."""
        result = [
            starts[name]
            for starts, i in zip(self.starts, self.influences, strict=True)
            if name in starts and starts[name] in i.posed.data_names
        ]
        return tuple(dict.fromkeys(result))

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
