"""The dynamic problem by a deterministic global solver: its discretisation, with a proven bound.

The equations on a mesh of Radau elements are a nonlinear program like any other, and a global
solver finds its best point and bounds what is possible: with few elements and few unknowns, as the
work grows steeply with both. What is proved is about that program: the mesh is not refined, and
courses are searched for between bounds (`truncation`). With two Radau points, and the witness's run
included, SCIP closes the gap of A -> B -> C (2 parameters, 20 elements, 1 % noise) in 4 s; after
60 s 6 % are open for gas oil cracking (3 parameters, 24 elements), 0.04 % for A <-> B <-> C (4
parameters, 20 elements), and all of it for Lotka and Volterra's equations.

Esposito, Floudas, "Global optimization for the parameter estimation of differential-algebraic
systems", Ind. Eng. Chem. Res. 39 (2000).

Bounds for the courses of a discretised problem: a global solver searches between bounds only.

The model's own bounds stand. Where there are none, a series (a state or another variable over time
in one experiment) is held near what is known of it: measurements, start values, the best course
known. All of its standing that is at least 0 lets it be held at 0 or more.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.core.deadline import interruptible, stopped
from igpe.core.errors import ModelError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.collocation.guess import begin, first_meshes, sizes
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.collocation.transcription import Run, Transcription, transcribe
from igpe.dynamics.shooting.base import Profile, require_bounds, require_known_sigma, require_plain
from igpe.equations.translate import to_pyomo
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer, Solver, confirmed_status, name_of, solve_confirmed
from igpe.solvers.ipopt import Ipopt
from igpe.solvers.nl import load, read_scaled, reduce, write_nl
from igpe.solvers.programs import Scip

SEEN = 0.5  # a measured series may leave its known range by this share of it, to either side
UNSEEN = 2.0  # the same of one that is not measured
TOUCHES = 1e-5  # of the bounds' width: this near to a bound is on it


@dataclass(frozen=True)
class Truncation:
    """Bounds of one series where the model has none.

    name          of the series
    variables     Pyomo variables over the mesh's times
    lower, upper  the same at all times
    """

    name: str
    variables: Sequence[Any]
    lower: float
    upper: float

    def touched(self, values: Mapping[Any, float]) -> tuple[bool, bool]:
        """Whether a value stands on the lower, on the upper bound.

        values  Pyomo variable -> value, of those that the program uses
        """
        free = [v for v in self.variables if v in values]
        lowest = min((values[v] for v in free if v.lb is None), default=np.inf)
        highest = max((values[v] for v in free if v.ub is None), default=-np.inf)
        near = TOUCHES * (self.upper - self.lower)
        return bool(lowest < self.lower + near), bool(highest > self.upper - near)

    def widened(self, values: Mapping[Any, float]) -> "Truncation":
        """With more room where a value stands on a bound; 0 stays a bound."""
        low, high = self.touched(values)
        width = self.upper - self.lower
        lower, upper = self.lower, self.upper + width * high
        if low and lower != 0.0:
            lower = 0.0 if lower > 0.0 >= lower - width else lower - width
        return replace(self, lower=lower, upper=upper)


def truncations(program: Transcription, objective: float) -> list[Truncation]:
    """Of every series, from where the program's variables now stand.

    objective  sum of squares at the best point known: no better one is farther from a measurement
               than its standard deviation times the root of this, so that at measured times
               measured states are not truncated at all
    """
    reach = float(np.sqrt(objective))
    return [t for run in program.runs for t in _of_run(run, reach)]


def bounds_of(found: Sequence[Truncation], variables: Sequence[Any]) -> FloatArray:
    """(2, n) lower and upper bounds: the variables' own where they have them, else `found`."""
    table = pyo.ComponentMap((v, (t.lower, t.upper)) for t in found for v in t.variables)
    none = (-np.inf, np.inf)
    lower = [table.get(v, none)[0] if v.lb is None else v.lb for v in variables]
    upper = [table.get(v, none)[1] if v.ub is None else v.ub for v in variables]
    return np.array([lower, upper], dtype=float)


def _of_run(run: Run, reach: float) -> Iterator[Truncation]:
    m = run.experiment.measurements
    measured = {n: k for k, n in enumerate(m.names)}
    for name, variables in (run.states | run.algebraics).items():
        known = [np.array([float(v.value) for v in variables if v.value is not None])]
        if name in measured:
            here = m.column == measured[name]
            known += [m.value[here] - reach * m.sigma[here], m.value[here] + reach * m.sigma[here]]
            known += [m.value[here]]
        yield _around(name, variables, known, SEEN if name in measured else UNSEEN)


def _around(
    name: str, variables: Sequence[Any], known: Sequence[FloatArray], share: float
) -> Truncation:
    values = np.concatenate(known)
    width = float(np.ptp(values)) or max(float(abs(values).max()), 1.0)
    lower, upper = float(values.min()) - share * width, float(values.max()) + share * width
    positive = known[0].min() >= 0 and (len(known) == 1 or known[-1].min() >= 0)
    return Truncation(name, variables, max(lower, 0.0) if positive else lower, upper)


BOUNDED = (
    Status.OPTIMAL_WITHIN_GAP,
    Status.TIME_LIMIT,
    Status.ITERATION_LIMIT,
    Status.INTERRUPTED,
)  # bring a bound
SLACK = 1e-3  # the cut-off lies this much above the incumbent, so that rounding never cuts it off
ROUNDING = 1e-6  # taken off a bound on an objective of order one, for the solver's rounding
FLOOR = 1e-8  # of the data's squares: the least objective that is scaled to order one
REFINING = 5.0  # s for the local search from the solver's incumbent, when the time is over
WIDENINGS = 2  # of courses' bounds on which the best point was found
TOLERANCE = 1e-5  # of the first mesh; without guessed courses it is measured times and ten elements


@dataclass(frozen=True)
class GlobalCollocation:
    """Global search on one mesh, begun from the best of several local optima on it.

    solver      gives incumbent and bound;  witness: confirms a closed gap
    points      Radau points of an element; the mesh has at least ten elements and ends one at every
                measured time
    local       finds the incumbent, and answers alone where the solver cannot
    starts      of the local search, beside those given;  seed: of their Sobol sequence
    time_limit  s; when it is reached, or at Ctrl-C, the best point and bound so far are returned
    """

    solver: Solver
    witness: Solver = Scip(feasibility=1e-7, seed=1)
    points: int = 2
    local: Ipopt = Ipopt()
    starts: int = 8
    seed: int = 0
    time_limit: float | None = None

    def estimate(
        self,
        problem: Problem,
        starts: Sequence[Mapping[str, float]],
        profiles_of: Sequence[Sequence[Profile]] = (),
    ) -> Estimate:
        """The best point found, and the proven bound on the discretised problem's objective.

        starts       unknown -> value; those that leave out a free unknown are not used
        profiles_of  for each start the profiles of `Estimator.estimate`; or nothing
        raises       Unsupported if the loss is not least squares or unknowns vary with time,
                     ProblemError if an unknown has no finite bounds
        """
        require_plain(problem, "Collocation by a global solver", constraints_too=False)
        require_known_sigma(problem, "Collocation by a global solver")
        require_bounds(problem, "A global search")
        began = time.perf_counter()
        meshes = first_meshes(problem, (), Radau(self.points), TOLERANCE)
        program = transcribe(problem, meshes)
        begins = self._begins(problem, starts, profiles_of)
        incumbent = self._incumbent(program, begins, began)
        if incumbent is None:
            method = f"none of {len(begins)} local searches by collocation ended at a point"
            return Estimate(
                dict(begins[0][0]), np.inf, Status.FAILED, method, seconds=_since(began)
            )
        flat = _Flat(program, truncations(program, incumbent.objective), incumbent.objective)
        answer = Answer(Status.INTERRUPTED) if stopped() else self._search(flat, began)
        for _ in range(WIDENINGS):
            ended = answer.status not in BOUNDED or self._left(began) == 0.0 or stopped()
            if ended or not flat.widen(answer):
                break
            answer = self._search(flat, began)
        return self._estimate(program, flat, answer, len(begins), began)

    def _begins(
        self,
        problem: Problem,
        starts: Sequence[Mapping[str, float]],
        profiles_of: Sequence[Sequence[Profile]],
    ) -> list[tuple[Mapping[str, float], Sequence[Profile]]]:
        given = zip(starts, list(profiles_of) or [()] * len(starts), strict=True)
        complete = [(s, p) for s, p in given if set(problem.box.names) <= set(s)]
        spread = problem.box.sobol(self.starts, self.seed)
        return [*complete, *((problem.box.mapping(p), ()) for p in spread)]

    def _incumbent(
        self,
        program: Transcription,
        begins: Sequence[tuple[Mapping[str, float], Sequence[Profile]]],
        began: float,
    ) -> Answer | None:
        """The best local optimum; the program's variables then stand there."""
        begin(program, *begins[0])
        prepared = self.local.prepare(program.model, sizes(program, [s for s, _ in begins]))
        best, point = None, None
        for start, profiles in begins:
            begin(program, start, profiles)
            try:
                answer = prepared.solve(self._left(began))
            except KeyboardInterrupt:
                if best is None:
                    raise
                break
            if answer.status is not Status.CONVERGED:  # perhaps no solution of the equations
                continue
            if best is None or answer.objective < best.objective:
                best, point = answer, _values(program)
        if point is not None:
            _put(point)
        return best

    def _search(self, flat: "_Flat", began: float) -> Answer:
        left = self._left(began)
        try:
            with interruptible():
                return solve_confirmed(self.solver, self.witness, flat.model, left)
        except KeyboardInterrupt:
            return Answer(Status.INTERRUPTED)

    def _left(self, began: float) -> float | None:
        return None if self.time_limit is None else max(0.0, self.time_limit - _since(began))

    def _estimate(
        self, program: Transcription, flat: "_Flat", answer: Answer, n: int, began: float
    ) -> Estimate:
        incumbent, point = flat.objective, _values(program)
        if flat.take(answer) and not stopped():
            left = None if self.time_limit is None else max(self._left(began) or 0.0, REFINING)
            refined = self.local.prepare(program.model, flat.sizes).solve(left)
            if refined.status is Status.CONVERGED and refined.objective < incumbent:
                incumbent, point = refined.objective, _values(program)
        _put(point)
        name, mesh = name_of(self.solver), f"Radau, {program.n_elements} elements"
        method = f"global search by {name} on the collocated problem ({mesh}"
        if answer.status not in BOUNDED:
            status = Status.BEST_OF_SEVERAL
            method = f"collocation ({mesh}) from {n} starts; nothing is proved: {answer.message}"
            return Estimate(program.parameters(), incumbent, status, method, seconds=_since(began))
        method += f"; the gap is about this mesh and courses within {flat.described(answer)})"
        bound = min(flat.bound(answer), incumbent)
        status = confirmed_status(answer, incumbent - bound, flat.cost)
        return Estimate(program.parameters(), incumbent, status, method, bound, _since(began))


class _Flat:
    """The discretised problem as a Pyomo model of order one, without what its equations define.

    program's variables stand at the incumbent when it is made.
    """

    def __init__(self, program: Transcription, held: list[Truncation], objective: float) -> None:
        self.program, self.objective = program, objective
        squares = [(m.value / m.sigma) ** 2 for m in _measured(program.problem)]
        self.cost = max(objective, FLOOR * float(np.concatenate(squares).sum()), 1e-30)
        self.sizes = replace(sizes(program, [program.parameters()]), objective=self.cost)
        with tempfile.TemporaryDirectory(prefix="igpe") as folder:
            path = Path(folder) / "model.nl"
            self.written = write_nl(program.model, path)
            if self.written.refusal:
                raise ModelError(self.written.refusal)
            self.scaled = read_scaled(path, self.written, self.sizes)
        self._build(held)

    def _build(self, held: list[Truncation]) -> None:
        variables = self.written.variables
        start = np.array([v.value or 0.0 for v in variables])
        states = {id(v) for run in self.program.runs for x in run.states.values() for v in x}
        of_states = [t for t in held if id(t.variables[0]) in states]
        self.held, self.used = held, of_states
        self.reduced = reduce(self.scaled, start, *bounds_of(of_states, variables))
        if self.reduced.unbounded:  # equations that do not give their variables explicitly
            self.used = held
            self.reduced = reduce(self.scaled, start, *bounds_of(held, variables))
        self.model = self._model()

    def _model(self) -> Any:
        r, m = self.reduced, pyo.ConcreteModel()
        m.v = pyo.Var(range(len(r.kept)))
        columns = list(m.v.values())
        for v, start, low, high in zip(columns, r.start, r.lower, r.upper, strict=True):
            v.setlb(float(low) if np.isfinite(low) else None)
            v.setub(float(high) if np.isfinite(high) else None)
            v.set_value(float(np.clip(start, low, high)), skip_validation=True)
        (objective,) = to_pyomo(r.f, r.x, columns)
        m.equations = pyo.ConstraintList()
        for row, low, high in zip(to_pyomo(r.g, r.x, columns), *r.bounds, strict=True):
            m.equations.add(row == float(low) if low == high else _between(low, row, high))
        m.cut_off = pyo.Constraint(expr=objective <= 1 + SLACK)
        m.objective = pyo.Objective(expr=objective)
        return m

    def take(self, answer: Answer) -> bool:
        """Move the program's variables to the solver's incumbent, if it has one."""
        if not np.isfinite(answer.objective):
            return False
        load(self.written.variables, self._point())
        return True

    def widen(self, answer: Answer) -> bool:
        """Give courses more room if the solver's incumbent stands on their bounds."""
        if not np.isfinite(answer.objective):
            return False
        used, values = {id(t) for t in self.used}, self._values()
        wider = [t.widened(values) if id(t) in used else t for t in self.held]
        pairs = zip(wider, self.held, strict=True)
        changed = any((a.lower, a.upper) != (b.lower, b.upper) for a, b in pairs)
        if changed:
            self._build(wider)
        return changed

    def bound(self, answer: Answer) -> float:
        """The proven lower bound on the sum of squares."""
        if not np.isfinite(answer.lower_bound):
            return -np.inf
        return max(answer.lower_bound - ROUNDING, 0.0) * self.cost

    def described(self, answer: Answer) -> str:
        """The courses' bounds in words, and on which the solver's incumbent stands."""
        words = ", ".join(f"{t.lower:.4g} <= {t.name} <= {t.upper:.4g}" for t in self.used)
        if not np.isfinite(answer.objective):
            return words
        values = self._values()
        active = sorted({t.name for t in self.used if any(t.touched(values))})
        return f"{words}; at these bounds: {', '.join(active)}" if active else words

    def _values(self) -> Any:
        """Pyomo variable -> value at the solver's incumbent."""
        return pyo.ComponentMap(zip(self.written.variables, self._point(), strict=True))

    def _point(self) -> FloatArray:
        columns = [pyo.value(v) for v in self.model.v.values()]
        return np.asarray(self.reduced.expand(columns)).ravel() * self.scaled.variables


def _between(low: float, row: Any, high: float) -> Any:
    finite = [float(b) if np.isfinite(b) else None for b in (low, high)]
    return pyo.inequality(finite[0], row, finite[1])


def _measured(problem: Problem) -> list[Any]:
    return [e.measurements for e in problem.experiments]


def _values(program: Transcription) -> Any:
    """Pyomo variable -> value."""
    free = program.model.component_data_objects(pyo.Var, descend_into=True)
    return pyo.ComponentMap((v, v.value) for v in free if not v.fixed)


def _put(values: Any) -> None:
    for variable, value in values.items():
        variable.set_value(value, skip_validation=True)


def _since(began: float) -> float:
    return time.perf_counter() - began
