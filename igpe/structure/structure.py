"""Step 2: what can be estimated from these measurements, by which equations, and why not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from igpe.core.arrays import IntArray
from igpe.core.markup import Suggesting, in_words, listed
from igpe.dynamics.shooting.base import beside_constraints, constrained, constraints
from igpe.equations.compiled import compiled
from igpe.equations.incidence import blocks, incidence, matching, parts
from igpe.equations.symbols import stack
from igpe.equations.system import Reduction
from igpe.problem.plausibility import warnings_about
from igpe.problem.problem import Problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.structure_map import plot_maps
from igpe.results.result_data import (
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
from igpe.structure.identifiability import (
    Access,
    Dependence,
    Finding,
    Identifiability,
    Identifiable,
    as_wish,
    identifiability,
    switching,
    undecided,
)
from igpe.structure.posed import (
    Influence,
    PosedEquations,
    influence,
    of_errors_alone,
    pose,
    reached,
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
    with_derivatives,
)


def _map(reduced: ReducedSystem, slopes: Mapping[str, Any], reach: Mapping[str, str]) -> Any:
    """The arguments of an experiment's `StructureMap`, but for the names of experiments.

    slopes  state -> predicted slope
    reach   of each free unknown of the problem
    """
    posed, result = reduced.posed, parts(reduced.pattern)
    rows, columns = list[int](), list[int]()  # of the reduced system, as they are drawn
    kinds, squares = list[MapPart](), list[MapBlock]()
    used = used_rows(reduced, result)
    spare = [i for i in sorted(result.over_rows) if i not in set(used)]
    for kind, own, theirs, beyond in (
        (OVER, used, result.over_columns, spare),
        (SQUARE, result.well_rows, result.well_columns, []),
        (UNDER, result.under_rows, sorted(result.under_columns), []),
    ):
        i, j = len(rows), len(columns)
        if kind == UNDER:
            rows, columns = [*rows, *own], [*columns, *theirs]
        else:
            for block in blocks(reduced.pattern, own, theirs):
                squares.append(MapBlock(len(rows), len(columns), len(block.rows)))
                rows, columns = [*rows, *block.rows], [*columns, *block.columns]
            rows += beyond
        if (len(rows), len(columns)) != (i, j):
            kinds.append(MapPart(kind, (i, len(rows)), (j, len(columns))))
    kept = select(posed, posed.data_names).rows.tolist()
    # What holds the slope of an unmeasured state is left to the dynamics.
    hidden = sorted(set(range(posed.n_equations)) - set(kept))
    every = [*(kept[i] for i in rows), *hidden]
    if hidden:
        kinds.append(MapPart(DYNAMIC, (len(rows), len(every)), (0, 0)))
    names = posed.variable_names
    unknowns = [names.index(reduced.unknown_names[j]) for j in columns]
    known = [j for j, n in enumerate(names) if n in posed.data_names]

    def pairs(pattern: Any, columns: Iterable[int]) -> tuple[tuple[int, int], ...]:
        entries = pattern[every][:, list(columns)].tocoo()
        return tuple(sorted(zip(entries.row.tolist(), entries.col.tolist(), strict=True)))

    algebraic = {i for i, n in enumerate(posed.q_names) if reach[n] == "algebraic"}
    sources = [
        MapSource(f"slope of {state}", tuple(sorted(algebraic.intersection(used.col.tolist()))))
        for state, used in ((s, incidence(slope, posed.q)) for s, slope in slopes.items())
    ]
    sources += [
        MapSource(f"start of {state}", tuple(sorted(posed.start_pattern[[i]].indices.tolist())))
        for i, state in enumerate(posed.states)
    ]
    return dict(
        equations=tuple(posed.row_names[i] for i in every),
        unknowns=tuple(names[j] for j in unknowns),
        measured=tuple(names[j] for j in known),
        reach=tuple(reach[n] for n in posed.q_names),
        entries=pairs(posed.pattern, unknowns),
        known=pairs(posed.pattern, known),
        uses=pairs(posed.q_pattern, range(len(posed.q_names))),
        parts=tuple(kinds),
        blocks=tuple(squares),
        sources=tuple(s for s in sources if s.parameters),
    )


def rows_of_slopes(pattern: Any, is_slope: Any) -> IntArray:
    """Rows of all smallest suitable subsystems that predict a slope.

    pattern   (n_rows, n_columns)
    is_slope  (n_columns,), which columns are slopes
    """
    entries, n = pattern.tocoo(), pattern.shape[0]
    if 0 in pattern.shape:
        return np.zeros(0, dtype=int)
    row_of = np.full(pattern.shape[1], -1)
    for row, column in matching(entries).items():
        row_of[column] = row
    result = parts(entries)
    slopes = [j for j in (*result.well_columns, *result.over_columns) if is_slope[j]]
    # From a row on to those that give what it contains; nothing gives what is underdetermined.
    heads = row_of[entries.col]
    ends = entries.row[heads >= 0], heads[heads >= 0]
    needs = csr_array((np.ones(len(ends[0])), ends), shape=(n, n))
    return np.sort(reached(needs, row_of[slopes].tolist()))


@dataclass(frozen=True, eq=False)
class Structure(Suggesting):
    """Result of the structural analysis of a problem, before any fit. Print it to see the report.

    findings    one for each free unknown, in the problem's order
    groups      the independent estimation problems of step 3
    subsystems  smallest suitable subsystems of all experiments, including those without closed
                expressions
    surplus     equations that are not needed
    reduced     reduced system of each experiment, with its symbols
    slopes      for each experiment: measured quantity -> predicted slope, as SX of the reduced
                system's q, data, time and inputs
    states      for each experiment: unmeasured state -> its expression, as SX of the same symbols,
                if algebra gives one
    exact       structural local identifiability of all unknowns together
    experiments names of the experiments
    warnings    sentences about possible mistakes in the problem
    reductions  how a higher index was reduced, for experiments whose equations had one
    switching   what of the problem step 3 does not support, such as events
    errors      unknowns that only standard deviations contain
    """

    findings: tuple[Finding, ...]
    groups: tuple[SlopeGroup, ...]
    subsystems: tuple[Subsystem, ...]
    surplus: tuple[Surplus, ...]
    reduced: tuple[ReducedSystem, ...] = field(repr=False)
    slopes: tuple[Mapping[str, Any], ...] = field(repr=False)
    states: tuple[Mapping[str, Any], ...] = field(repr=False)
    exact: Identifiability
    experiments: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    switching: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def __getitem__(self, unknown: str) -> Finding:
        """The finding about one unknown; KeyError if there is no such free unknown."""
        return {finding.unknown: finding for finding in self.findings}[unknown]

    @property
    def is_linear(self) -> bool:
        """Return True if the slopes are linear in all unknowns, so that one set of values fits."""
        linear = {(Access.ALGEBRAIC, Dependence.LINEAR), (Access.SMOOTHING, None)}
        return all((finding.reach, finding.form) in linear for finding in self.findings)

    def names(self, reach: Access) -> tuple[str, ...]:
        """Return the names of the unknowns with this verdict."""
        return tuple(f.unknown for f in self.findings if f.reach is reach)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each unknown."""
        return report.frame(self.findings)

    @cached_property
    def maps(self) -> tuple[StructureMap, ...]:
        """Maps of the equations and what can be computed from them; equivalent experiments share
        one map."""
        reach = {f.unknown: f.reach.name.lower() for f in self.findings}
        names: dict[StructureMap, list[str]] = {}
        for one, slopes, name in zip(self.reduced, self.slopes, self.experiments, strict=True):
            own = tuple(n.removesuffix(f"@{name}") for n in one.posed.q_names)
            same = StructureMap(experiments=(), parameters=own, **_map(one, slopes, reach))
            names.setdefault(same, []).append(name)
        return tuple(replace(m, experiments=tuple(own)) for m, own in names.items())

    def plot(self, axes: Any = None) -> Plot:
        """Dulmage and Mendelsohn's picture: which equations give what, and which parameters.

        Rows are equations, columns what is unknown in them, what is measured, and parameters. What
        is over-, well- and underdetermined is shaded; frames are the blocks of the triangular form:
        read from the top, each follows from those above it. The last rows say which parameters are
        estimated from which measured state, or are in a start value.

        axes  matplotlib axes, one for each of `maps`; None: draw in a new figure
        """
        return plot_maps(self.maps, axes)

    def __str__(self) -> str:
        return report.text(self.findings, self._remarks())

    def _repr_html_(self) -> str:
        return report.html(self.findings, self._remarks())

    def _remarks(self) -> list[str]:
        remarks = report.remarks(self.groups, self.surplus, self.exact)
        if self.switching and any(f.switches and not f.implicit for f in self.findings):
            remarks.insert(0, f"Step 3 does not support {listed(self.switching)}.")
        if self.errors:
            remarks.append(
                f"Only standard deviations contain {in_words(self.errors)}. igpe estimates such "
                "unknowns from the residuals, without a test of identifiability."
            )
        return [*remarks, *self.index_notes, *self.warnings]

    @property
    def index_notes(self) -> tuple[str, ...]:
        """Sentences that describe how a higher index was reduced; experiments with equal reductions
        share one."""
        return tuple(dict.fromkeys(map(str, self.reductions)))


def analyse(problem: Problem, *, most_work: float = 0.0, nuisance: Sequence[str] = ()) -> Structure:
    """Which unknowns the measurements reach, and how (Michalik et al. 2009, IGPE, step 2).

    most_work  how long the exact test of identifiability may be; 0: it is left out
    nuisance   unknowns that combinations which can be determined leave out
    raises     ModelError as `compiled` does
    """
    # What varies with time is no datum, and no unknown that structure could judge.
    problem = problem.fixing(dict.fromkeys(problem.varying, 0.0))
    errors = of_errors_alone(problem)
    problem = problem.fixing(dict.fromkeys(errors, 1.0))  # nor are these
    names = problem.box.names
    posed = [pose(problem, i) for i in range(len(problem.experiments))]
    reduced = tuple(reduce(with_derivatives(one)) for one in posed)
    result = [suitable(one) for one in reduced]
    subsystems = tuple(chain.from_iterable(s.subsystems for s in result))
    slopes, states = tuple(s.slopes for s in result), tuple(s.states for s in result)
    gathered = groups(subsystems, reduced, slopes, names)
    exact = undecided(names, "")
    if most_work and len(names):
        exact = identifiability(problem, posed, slopes, most_work=most_work, nuisance=nuisance)
    runs = [
        _Run(influence(one), r.posed, x) for one, r, x in zip(posed, reduced, states, strict=True)
    ]
    judge = _Judge(problem, gathered, subsystems, runs)
    findings = [judge(name) for name in names]
    if exact.numerical:  # it cannot tell at which other points an unknown has an effect
        unseen = {f.unknown: Identifiable.NO for f in findings if f.reach is Access.UNREACHABLE}
        exact = replace(exact, verdicts={**exact.verdicts, **unseen})
    return Structure(
        findings=tuple(_with(one, exact) for one in findings),
        groups=gathered,
        subsystems=subsystems,
        surplus=tuple(chain.from_iterable(s.surplus for s in result)),
        reduced=reduced,
        slopes=slopes,
        states=states,
        exact=exact,
        experiments=tuple(e.name for e in problem.experiments),
        warnings=(
            *warnings_about(problem),
            *_pulses(problem),
            *filter(None, [beside_constraints(problem)]),
        ),
        reductions=tuple(s.reduction for s in compiled(problem).systems if s.reduction),
        switching=switching(problem),
        errors=tuple(sorted(errors)),
    )


def tied(problem: Problem) -> set[str]:
    """Return the unknowns that the model's constraints hold, or that influence what they hold."""
    if not constraints(problem):
        return set()
    each = ((influence(pose(problem, k)), k) for k in range(len(problem.experiments)))
    return set().union(*(one.upstream(constrained(problem, k)) for one, k in each))


def _pulses(problem: Problem) -> list[str]:
    """Warnings about what the model changes at one instant alone, as a dose is often written."""
    every = chain.from_iterable(system.instants for system in compiled(problem).systems)
    return [
        f"'{name}' has another value at the time {time:g} alone, which does not change any state. "
        "For a dose, write Experiment(events=[igpe.Event("
        f"at={time:g}, add={{'state': amount}})]). For an interval, compare with its two ends."
        for name, time in dict(sorted(every, reverse=True)).items()
    ]


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
        shared=next((c for c in exact.combinations if name in c.unknowns), None),
        freeing=freeing,
    )


MOST_CANDIDATES = 12  # nearer states come first
MOST_UNKNOWNS = 50  # advice for more unknowns than that is not read, and takes time


class _Run(NamedTuple):
    """What is known of one experiment; posed and states as in `Structure.reduced` and `.states`."""

    influence: Influence
    posed: PosedEquations
    states: Mapping[str, Any]


class _Judge:
    """Classifies one unknown after the other by how the measurements reach it."""

    def __init__(
        self,
        problem: Problem,
        gathered: Iterable[SlopeGroup],
        subsystems: Iterable[Subsystem],
        runs: Sequence[_Run],
    ) -> None:
        self.problem, self.runs = problem, runs
        self.influences = [run.influence for run in runs]
        self.group = {name: group for group in gathered for name in group.parameters}
        self.uses: dict[str, list[Subsystem]] = {}
        for one in sorted(subsystems, key=lambda s: len(s.rows)):
            for name in one.parameters:
                self.uses.setdefault(name, []).append(one)
        self.visible = set().union(*(i.visible() for i in self.influences))
        self.additional = [_Additional(run.influence, run.posed) for run in runs]
        self.switches = any(compiled(problem).switching)
        self.advised = 0

    def __call__(self, name: str) -> Finding:
        prior, uses = name in self.problem.priors, self.uses.get(name, [])
        if (group := self.group.get(name)) is not None:
            uses = [s for s in uses if s.explicit]
            form = Dependence.SINGLY_LINEAR if name in group.individually else Dependence.NONLINEAR
            return Finding(
                name,
                Access.ALGEBRAIC,
                states=tuple(dict.fromkeys(x for s in uses for x in s.slopes)),
                equations=tuple(dict.fromkeys(e for s in uses for e in s.equations)),
                form=Dependence.LINEAR if name in group.jointly else form,
                prior=prior,
            )
        if smoothed := self._smoothed(name):
            return Finding(name, Access.SMOOTHING, states=smoothed, prior=prior)
        implicit = tuple(dict.fromkeys(v for s in uses for v in s.implicit))
        return Finding(
            name,
            Access.DYNAMIC if name in self.visible else Access.UNREACHABLE,
            equations=tuple(dict.fromkeys(e for s in uses for e in s.equations)),
            implicit=implicit,
            # Where only closed expressions are missing, measuring more is not what helps.
            measure=()
            if implicit or (self.switches and name in self.visible)
            else self._measure(name),
            switches=self.switches,
            prior=prior,
        )

    def _smoothed(self, name: str) -> tuple[str, ...]:
        """The measured quantities whose curves begin with this start value, or give it."""
        names: dict[str, None] = {}
        for _, posed, states in self.runs:
            state = posed.single_starts.get(name, "")
            if state in posed.data_names:
                names[state] = None
            elif state in states:
                expression = stack([states[state]])
                q = incidence(expression, posed.q).col
                if all(posed.q_names[i] in self.group for i in q):
                    data = np.unique(incidence(expression, posed.data).col)
                    names |= dict.fromkeys(posed.data_names[j] for j in data)
        return tuple(names)

    def _measure(self, name: str) -> tuple[tuple[str, ...], ...]:
        """What else to measure; where that differs between experiments it says in which."""
        is_visible = name in self.visible
        self.advised += is_visible
        if is_visible and self.advised > MOST_UNKNOWNS:
            return ()
        mine = [k for k, i in enumerate(self.influences) if name in i.posed.q_names]
        where: dict[tuple[str, ...], list[int]] = {}
        for k in mine:
            one = self.influences[k]
            options: list[tuple[str, ...]]
            if not is_visible:
                options = [(variable,) for variable in one.downstream(name)]
            elif (own := one.posed.single_starts.get(name)) is not None:
                options = [(own,)]
            else:
                options = self.additional[k].alternatives(name)
            for names in options:
                known = self.problem.experiments[k].measured
                where.setdefault(as_wish(names, known), []).append(k)
        fewest = min(map(len, where), default=0)
        run = {k: self.problem.experiments[k].name for k in mine}
        return tuple(
            names if len(places) == len(mine) else tuple(f"{n} in {run[places[0]]}" for n in names)
            for names, places in where.items()
            if len(names) == fewest
        )


class _Additional:
    """What else would have to be measured in one experiment for algebra to reach an unknown.

    A set of additional measurements is tried by analysing the reduced system that it leads to, on
    patterns alone. Candidates for an unknown are the states needed to predict the slopes that
    depend on it at the same instant: each alone, and all that one slope needs. Whether the
    equations can be solved in closed form is not looked at.
    """

    def __init__(self, influence: Influence, posed: PosedEquations) -> None:
        self.influence, self.posed = influence, posed
        self._known: dict[frozenset[str], frozenset[str]] = {}

    def alternatives(self, unknown: str) -> list[tuple[str, ...]]:
        """Sets of states, as few as possible, whose measurement makes algebra reach the unknown.

        Any one of the sets is enough; empty if none was found, or none is needed.
        """
        needed = self._needed(unknown)
        singles = [(state,) for one in needed for state in one][:MOST_CANDIDATES]
        sets = sorted(dict.fromkeys([*singles, *needed]), key=len)
        enough = [one for one in sets if unknown in self._reachable(one)]
        return [one for one in enough if one and len(one) == len(enough[0])]

    def _reachable(self, extra: tuple[str, ...]) -> frozenset[str]:
        """Unknowns in the smallest suitable subsystem of some slope if `extra` is measured."""
        posed, key = self.posed, frozenset(extra)
        if key not in self._known:
            known = key.union(posed.data_names)
            rows, columns = select(posed, known)
            slopes = {f"d({n})" for n in known}
            is_slope = np.array([posed.variable_names[j] in slopes for j in columns], dtype=bool)
            used = rows_of_slopes(posed.pattern[rows][:, columns], is_slope)
            q = np.unique(posed.q_pattern[rows[used]].indices)
            self._known[key] = frozenset(posed.q_names[i] for i in q)
        return self._known[key]

    def _needed(self, unknown: str) -> list[tuple[str, ...]]:
        """For each slope that depends on the unknown at once: unmeasured states, fewest first."""
        graph, posed, n = self.influence.instantly, self.posed, self.posed.n_states
        backward = csr_array(graph.T)
        slopes = [i for i in reached(graph, [self.influence.node(unknown)]).tolist() if i < n]
        result = []
        for i in sorted(slopes)[:MOST_CANDIDATES]:
            before = {j - n for j in reached(backward, [i]).tolist() if n <= j < 2 * n} | {i}
            names = (posed.states[j] for j in sorted(before))
            result.append(tuple(s for s in names if s not in posed.data_names))
        return sorted(result, key=len)
