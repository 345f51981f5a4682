"""Equations of higher index as equations of index 1 (dummy derivatives).

The equations and those of their derivatives that structure asks for hold for the states x and all
else that is unknown at one time: slopes, algebraic variables, higher derivatives. They are more
than what is unknown by the number of hidden constraints on x: so many states follow from the
others, and their slopes are algebraic variables like any other (Mattsson and Soederlind 1993,
SIAM J. Sci. Comput. 14, 677). Two forms of this are used.

* For structure, identifiability and algebra: free states keep slopes, the others and their slopes
  are algebraic variables. All constraints are among the equations.
* For integration, unless bound states follow from free ones with numbers as factors (a constant
  volume), all states keep slopes (`System.flow`), so that no choice of free states becomes
  singular on the way, as it would where a pendulum swings through the horizontal, and no root is
  mistaken for another. The rows that say what x must be, h(x) = 0, are left out of the equations
  and kept by a pull that is zero where they hold (D: squares of the states' sizes):

      dx = slopes of the equations - rate D H' (H D H')^-1 h,    H = dh/dx,    so that dh = - rate h

  What is left of h are errors of integration. What is measured is computed from the states after
  one step of Newton's method to h = 0, which leaves of these errors their squares.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ModelError
from igpe.core.markup import bracketed
from igpe.equations.elimination import Solved, independent_rows, solve_for
from igpe.equations.incidence import Block, DerivativeArray, abrupt, blocks, incidence, matching
from igpe.equations.reading.pieces import of_time
from igpe.equations.sizes import ProblemSizes
from igpe.equations.symbols import stack
from igpe.equations.system import Reduction, System
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table, evaluate
from igpe.problem.problem import Problem

RATE = 30.0  # of the pull, in the experiment's durations
NEWTON = 20  # steps to a start value that is no closed form
CLOSE = 1e-9  # relative residual at which such a value counts
SAME = 1e-6  # relative difference of slopes of one straight line
TRIES, STEPS = 6, 60  # to meet the constraints in numbers
LARGER = (1.0, 10.0, 100.0, 1000.0)  # sizes of drawn values, where smaller ones are not finite
HELD = 1e-3  # of the steps of others: those of states whose start value is given


def reduced(
    problem: Problem, experiment: Experiment, system: System, array: DerivativeArray
) -> System:
    """The index-1 form of a system as one experiment uses it.

    system  as it was read, with outputs, starts and events of the experiment
    array   its equations with their derivatives
    raises  ModelError for an input that would have to be differentiated and jumps, start values
            that are missing, or too many that are unknown, events of states that are not free, and
            equations that depend on each other in numbers though not by structure
    """
    return _Reduced(problem, experiment, system, array).system()


class _Reduced:
    """One experiment's equations with their derivatives, and the choice of free states.

    rows      names;  every: SX column, zero where the model holds
    unknown   slopes, algebraic variables and further derivatives, SX column; `unknown_names`
    bound     places of the states that follow from the others, increasing
    """

    def __init__(
        self, problem: Problem, experiment: Experiment, system: System, array: DerivativeArray
    ) -> None:
        self.problem, self.experiment, self.read, self.array = problem, experiment, system, array
        self.symbols = s = system.symbols
        self.rows = [row.full_name for row in array.rows]
        slopes = [*array.inputs.values()], [self._input_slope(*key) for key in array.inputs]
        self.every = ca.substitute(stack(r.expression for r in array.rows), *map(stack, slopes))
        self.further = tuple(array.further)
        self.unknown = ca.vertcat(s.dx, s.z, stack(array.further.values()))
        self.point = _Point(self)
        self._choose(*self.point.derivatives(self.point.near_start()))
        if self._missing:  # start values that meet no constraints are no place to judge
            self._choose(*self.point.derivatives(self.point.anywhere()))
        self._refuse_starts()

    def _choose(self, by_x: FloatArray, by_unknown: FloatArray) -> None:
        """Rows to keep, and bound and free states."""
        self.kept = self._kept(by_unknown)
        self.bound = self._bound(by_x, by_unknown)
        self.free = [i for i in range(len(self.symbols.states)) if i not in set(self.bound)]

    @property
    def _missing(self) -> list[str]:
        names = (self.symbols.states[i] for i in self.free)
        return [n for n in names if self.given(n) is None]

    def _refuse_starts(self) -> None:
        """Refuse start values that are missing, and unknown ones that follow from others."""
        bound = [self.symbols.states[i] for i in self.bound]
        if missing := self._missing:
            free = [self.symbols.states[i] for i in self.free]
            follow = [n for n in bound if self.given(n) is not None]
            omit = f" Omit {bracketed(follow)} from start: igpe computes them." * bool(follow)
            raise ModelError(
                f"{self._place()}the states {bracketed(missing)} have no start value. The "
                f"equations {bracketed(self.constraints)} and their derivatives bind {len(bound)} "
                f"of the {len(self.symbols.states)} states. Give start values of the others, for "
                f"example {bracketed(free)}, in Experiment(start={{'{missing[0]}': ...}}) as a "
                f"number, a parameter's name, or igpe.Unknown(lower, upper) to estimate it.{omit}"
            )
        if unknown := [n for n in bound if isinstance(self.given(n), Unknown)]:
            raise ModelError(
                f"{self._place()}The start values of {bracketed(unknown)} are to be estimated "
                "(igpe.Unknown), but they follow from the other start values: the equations "
                f"{bracketed(self.constraints)} and their derivatives constrain {len(bound)} of "
                f"the {len(self.symbols.states)} states. Omit {bracketed(unknown)} from `start`; "
                "igpe computes these start values. If the equations have several roots, the "
                "variable's value or bounds in the model select one."
            )

    def given(self, state: str) -> Any:
        """What experiment or model give as start value; None if nothing."""
        return self.experiment.start.get(state, self.read.starts.get(state))

    @property
    def constraints(self) -> tuple[str, ...]:
        """The equations that, with their derivatives, bind states."""
        hidden = (row.name for i, row in enumerate(self.array.rows) if i not in set(self.kept))
        return tuple(dict.fromkeys(hidden))

    def expression(self, state: str) -> Any:
        """A given start value in the model's parameters; that of an `Unknown` is none."""
        given, s = self.given(state), self.symbols
        return s.p[s.parameters.index(given)] if isinstance(given, str) else ca.SX(given)

    def system(self) -> System:
        """See `reduced`."""
        s, computed = self.symbols, self._starts()
        free, bound = (tuple(s.states[i] for i in some) for some in (self.free, self.bound))
        further = stack(self.array.further.values())
        own = replace(
            s,
            states=free,
            algebraics=(*s.algebraics, *bound, *(f"d({n})" for n in bound), *self.further),
            dx=self._of_free(s.dx),
            x=self._of_free(s.x),
            z=ca.vertcat(s.z, s.x[self.bound], s.dx[self.bound], further),
            s=self._of_free(s.s),
        )
        starts = {n: v for n, v in self.read.starts.items() if n not in bound}
        given = {n: self.expression(n) for n in bound if self.given(n) is not None}
        levels = dict(self.array.levels)
        reduction = Reduction(
            self.array.index, levels, self.constraints, bound, free, computed, given
        )
        events, flow = self._events(), None
        if not (free and self._is_regular()):  # integrators need a state
            flow = replace(self._flow(), starts=starts | computed, reduction=reduction)
        known = [s.s[self.bound], stack(computed.values())]
        return replace(
            self.read,
            symbols=own,
            equations=tuple(self.rows),
            residual=ca.substitute(self.every, *known),
            starts=starts,
            reduction=reduction,
            events=events,
            flow=flow,
            auxiliary=frozenset(own.algebraics).difference(s.algebraics, bound),
        )

    def _of_free(self, vector: Any) -> Any:
        """The entries of the free states; of one symbol, CasADi's `[[]]` is a row of none."""
        return stack(vector[i] for i in self.free)

    def _place(self) -> str:
        several = len(self.problem.experiments) > 1
        return f"Experiment '{self.experiment.name}': " * several

    def _input_slope(self, place: int, order: int) -> Any:
        """A derivative of an input as an expression of the time; ModelError where it jumps."""
        name, t = self.symbols.inputs[place], self.symbols.t
        if name in self.problem.time_varying:
            if len(self.problem.pieces(name, self.experiment)) == 1:
                return ca.SX(0)
            raise self._jumps(name, "is estimated as a piecewise constant function, so it jumps")
        given = self.experiment.inputs[name]
        if isinstance(given, Table):
            return self._table_slope(name, given, order)
        if not callable(given):
            return ca.SX(0)
        value = of_time(name, given, t, self.experiment)
        for _ in range(order):
            if abrupt(value):
                raise self._jumps(name, "jumps, or its slope jumps")
            value = ca.jacobian(value, t)
        return value

    def _table_slope(self, name: str, table: Table, order: int) -> Any:
        t, values = self.symbols.t, np.asarray(table.values)
        if np.ptp(values) == 0:
            return ca.SX(0)
        if table.hold:
            raise self._jumps(name, "jumps from value to value (igpe.step_input)")
        begin, end = self.experiment.start_time, self.experiment.times[-1]
        bends = table.times[(begin < table.times) & (table.times < end)]
        slopes = np.array([table.segment(time)[1] for time in (begin, *bends)])
        if order > 1 and np.ptp(slopes) > SAME * np.abs(slopes).max():
            raise self._jumps(name, "is linear between points, so its slope jumps")
        if order > 1:
            return ca.SX(0)
        slope = ca.SX(slopes[-1])
        for bend, value in zip(reversed(bends), reversed(slopes[:-1]), strict=True):
            slope = ca.if_else(t <= bend, value, slope)  # at a bend that before it
        return slope

    def _jumps(self, name: str, why: str) -> ModelError:
        return ModelError(
            f"{self._place()}The model has a higher index: the equations "
            f"{bracketed(self._differentiated)} must be differentiated with respect to time, and "
            f"so must the input '{name}', which {why}. "
            "The variables in these equations would have to jump. Give the input as a smooth "
            "function of time, such as lambda t: pyo.tanh(t), or remove it from these equations."
        )

    def _kept(self, by_unknown: FloatArray) -> list[int]:
        """Rows that give all that is unknown at a time; highest derivatives come first."""
        highest = self.array.are_highest
        ranks = [(not h, -row.level) for h, row in zip(highest, self.array.rows, strict=True)]
        kept = independent_rows(by_unknown, ranks, by_unknown.shape[1])
        if len(kept) < by_unknown.shape[1]:
            raise self._singular(kept)
        return sorted(kept)

    @property
    def _differentiated(self) -> list[str]:
        return [n for n, level in self.array.levels.items() if level]

    def _singular(self, kept: Sequence[int]) -> ModelError:
        others = [self.rows[i] for i in range(len(self.rows)) if i not in set(kept)]
        return ModelError(
            f"{self._place()}The equations have a higher index. igpe differentiated "
            f"{bracketed(self._differentiated)}, but the equations are still numerically "
            f"dependent: {bracketed(others)} follow from the others. The unknowns are "
            f"{bracketed(self.names)}. Look for an equation that occurs twice or is a sum of "
            "others."
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of `unknown`."""
        return (*self.read.unknown_names, *self.further)

    def _bound(self, by_x: FloatArray, by_unknown: FloatArray) -> list[int]:
        """States that follow from the others: those without start value before those with one."""
        number = by_unknown.shape[0] - by_unknown.shape[1]
        q, _ = np.linalg.qr(by_unknown, mode="complete")
        hidden = q[:, by_unknown.shape[1] :].T @ by_x  # (number, n_x)
        ranks = []
        for name in self.symbols.states:
            given = self.given(name)
            ranks.append((0 if given is None else 2 if isinstance(given, Unknown) else 1, 0))
        bound = independent_rows(hidden.T, ranks, number)
        if len(bound) < number:
            raise self._singular(self.kept)
        return sorted(bound)

    def _events(self) -> tuple[Any, ...]:
        """Events in the numbers of the free states."""
        s, place = self.symbols, {i: k for k, i in enumerate(self.free)}
        hidden = set(incidence(self._hidden[0], s.x).col.tolist())
        for jump in self.read.events:
            if tied := [s.states[i] for i in jump.after if i in hidden]:
                raise ModelError(
                    f"{self._place()}An event changes {bracketed(tied)}, but the equations "
                    f"{bracketed(self.constraints)} and their derivatives constrain these states. "
                    "They cannot jump alone. Change other states in the event, or write the "
                    "constraint as a balance."
                )
        return tuple(
            j._replace(after={place[i]: v for i, v in j.after.items()}) for j in self.read.events
        )

    @cached_property
    def _hidden(self) -> tuple[Any, Any, Any]:
        """The rows not kept in the states and implicit unknowns; these; and what holds them."""
        columns = range(self.unknown.numel())
        kept = stack(self.every[i] for i in self.kept)
        rows = {c: r for r, c in matching(incidence(kept, self.unknown)).items()}
        solved = solve_for(kept, self.unknown, [rows[j] for j in columns], columns)
        rest = stack(self.every[i] for i in range(len(self.rows)) if i not in set(self.kept))
        hidden = ca.substitute(rest, self.unknown, stack(solved.expressions))
        implicit = stack(self.unknown[j] for j in solved.implicit)
        parts = _needed(hidden, implicit, solved.remaining)
        own = stack(implicit[j] for part in parts for j in part.columns)
        return hidden, own, stack(solved.remaining[r] for p in parts for r in p.rows)

    def _is_regular(self) -> bool:
        """Whether bound states follow from the free ones everywhere, with numbers as factors."""
        hidden, implicit, _ = self._hidden
        factors = ca.jacobian(hidden, self.symbols.x[self.bound])
        return bool(factors.is_constant()) and not implicit.numel()

    def _flow(self) -> System:
        """All states with slopes, and the pull to the hidden constraints."""
        s, (hidden, implicit, held) = self.symbols, self._hidden
        by_x = ca.jacobian(hidden, s.x)
        if implicit.numel():
            follows = -ca.solve(ca.jacobian(held, implicit), ca.densify(ca.jacobian(held, s.x)))
            by_x += ca.mtimes(ca.jacobian(hidden, implicit), follows)
        pulled = sorted({*incidence(hidden, s.x).col.tolist(), *by_x.sparsity().get_col()})
        sizes = ProblemSizes(self.problem, self.experiment, self.read.starts)
        size = sizes.of_states(s.states)[1]
        span = float(self.experiment.times[-1]) - self.experiment.start_time
        weighted = ca.mtimes(ca.diag(ca.DM(size**2)), by_x.T)
        force = stack(ca.SX.sym(f"pull {k}") for k in range(hidden.numel()))
        dx = [ca.SX.sym(f"d{n}") if i in pulled else s.dx[i] for i, n in enumerate(s.states)]
        pull = RATE / span * ca.mtimes(weighted, force)
        balances = [dx[i] - s.dx[i] + pull[i] for i in pulled]
        auxiliary = (
            *self.further,
            *(f"free d({s.states[i]})" for i in pulled),
            *(f"pull {k}" for k in range(hidden.numel())),
        )
        own = replace(
            s,
            algebraics=(*s.algebraics, *auxiliary),
            dx=stack(dx),
            z=ca.vertcat(s.z, *self.array.further.values(), s.dx[pulled], force),
        )
        kept = stack(self.every[i] for i in self.kept)
        residual = ca.vertcat(kept, *balances, ca.mtimes(ca.mtimes(by_x, weighted), force) - hidden)
        names = [self.rows[i] for i in self.kept]
        names += [f"pull of {s.states[i]}" for i in pulled]
        names += [f"pull {k}" for k in range(hidden.numel())]
        measured, nearest = self.read.measured.items(), s.x - ca.mtimes(weighted, force)
        return replace(
            self.read,
            symbols=own,
            equations=tuple(names),
            residual=residual,
            measured={n: ca.substitute(ca.SX(e), s.x, nearest) for n, e in measured},
            auxiliary=frozenset(auxiliary),
        )

    def _starts(self) -> dict[str, Any]:
        """Start values of the bound states as expressions of parameters and the other starts."""
        s, e = self.symbols, self.experiment
        place = [*self.bound, *range(len(s.states), len(s.states) + self.unknown.numel())]
        sought = ca.vertcat(s.x, self.unknown)[place]
        given = range(len(e.inputs))
        inputs = ca.reshape(s.u[given], -1, 1)  # without inputs, CasADi has a row of none
        old = [s.t, inputs, self._of_free(s.x)]
        new = [ca.SX(e.start_time), ca.SX(self.point.u[: len(e.inputs)]), self._of_free(s.s)]
        every = ca.substitute([self.every], old, new)[0]
        every = ca.substitute(every, s.s[self.bound], s.x[self.bound])
        columns = range(sought.numel())
        rows = {c: r for r, c in matching(incidence(every, sought)).items()}
        solved = solve_for(every, sought, [rows[j] for j in columns], columns)
        names = [*(s.states[i] for i in self.bound), *self.names]
        answers = stack(solved.expressions[: len(self.bound)])
        answers = self._without_implicit(answers, solved, sought, names)
        if ca.depends_on(answers, s.u):
            raise ModelError(
                f"{self._place()}The start values of {names[: len(self.bound)]} follow from the "
                f"unknowns {list(self.problem.time_varying)}, which vary with time. Replace these "
                "unknowns by constant parameters or by inputs."
            )
        return dict(zip(names, ca.vertsplit(answers), strict=False))

    def _without_implicit(
        self, answers: Any, solved: Solved, sought: Any, names: Sequence[str]
    ) -> Any:
        """The answers once Newton's method gave the implicit unknowns that they need."""
        implicit = [int(j) for j in solved.implicit]
        own, rest = stack(sought[j] for j in implicit), solved.remaining
        if not implicit:
            return answers
        for part in _needed(answers, own, rest):
            unknown, equations = own[part.columns], rest[part.rows]
            called = [names[implicit[j]] for j in part.columns]
            guess = [self._guess(name, equations, unknown) for name in called]
            value = _newton(equations, unknown, stack(guess))
            answers, rest = (ca.substitute(a, unknown, value) for a in (answers, rest))
        return answers

    def _guess(self, name: str, equations: Any, unknown: Any) -> Any:
        """Where to look for an implicit start value: as given, else as the variable has it."""
        if name in self.symbols.states and self.given(name) is not None:
            return self.expression(name)
        number = self.point.hint(name)
        if number is None and any(ca.which_depends(equations, unknown, 2)):
            raise ModelError(
                f"{self._place()}The start value of '{name}' follows from the equations, but "
                "these are not linear in it and may have several roots. To select a root, "
                f"give the variable a value (m.{name} = Var(m.t, initialize=...)) or bounds."
            )
        return ca.SX(1.0 if number is None else number)


def _needed(expressions: Any, unknown: Any, rest: Any) -> list[Block]:
    """Blocks of equations `rest` in `unknown` that what is in the expressions needs, in order."""
    pattern = incidence(rest, unknown)
    rows = {c: r for r, c in matching(pattern).items()}
    order = range(unknown.numel())
    every = blocks(pattern, [rows[j] for j in order], list(order))
    needed = set(incidence(expressions, unknown).col.tolist())
    for part in reversed(every):  # what comes before gives what comes later
        if needed & set(part.columns):
            needed |= set(incidence(stack(rest[r] for r in part.rows), unknown).col.tolist())
    return [part for part in every if needed & set(part.columns)]


def _newton(equations: Any, unknown: Any, guess: Any) -> Any:
    """The root next to the guess, with exact derivatives; NaN where it is not met."""
    given = [v for v in ca.symvar(ca.vertcat(equations, guess)) if not ca.depends_on(unknown, v)]
    matrix = ca.jacobian(equations, unknown)
    step = ca.Function("step", [unknown, stack(given)], [ca.solve(matrix, ca.densify(equations))])
    value = guess
    for _ in range(NEWTON):
        last = step(value, stack(given))
        value = value - last
    size = 1e-3 + ca.norm_1(value)
    met = ca.norm_1(last) <= CLOSE * size
    return stack(ca.if_else(met, value[i], np.nan) for i in range(value.numel()))


class _Point:
    """A point at the start that meets the equations, in numbers.

    u      (n_u,) inputs there
    sizes  (n_x + n_unknown,) positive
    """

    def __init__(self, reduced: _Reduced) -> None:
        self.reduced, self.problem = reduced, reduced.problem
        e, s = reduced.experiment, reduced.symbols
        self.p = np.array([self._parameter(n) for n in s.parameters])
        self.u = np.array([self._input(n) for n in s.inputs])
        number = [self._start(n) for n in s.states]
        number += [self.hint(n) for n in reduced.names]
        drawn = np.random.default_rng(1).normal(size=len(number))
        known = np.array([v is not None for v in number])
        self.begin = np.array([w if v is None else v for v, w in zip(number, drawn, strict=True)])
        self.sizes = np.where(known & (self.begin != 0), np.abs(self.begin), 1.0)
        given = [reduced.given(n) is not None for n in s.states] + [False] * len(reduced.names)
        v = ca.vertcat(s.x, reduced.unknown)
        every = ca.substitute(reduced.every, s.s, s.x)
        old = [s.t, s.u, s.p]
        new = [ca.SX(e.start_time), ca.SX(self.u), ca.SX(self.p)]
        every = ca.densify(ca.substitute([every], old, new)[0])
        by = ca.densify(ca.jacobian(every, v))
        self._function = ca.Function("F", [v], [every, by])
        if not self._is_finite():
            known = self._given_by_single_equations(incidence(every, v).tocsr(), known)
        for size in LARGER:  # exp(-E/T) is infinite at many a drawn T
            if self._is_finite():
                break
            self.begin = np.where(known, self.begin, size * (1 + 0.1 * drawn))
            self.sizes = np.where(known, self.sizes, size)
        self.moves = np.where(given, HELD, 1.0) * self.sizes

    def _is_finite(self) -> bool:
        return all(np.isfinite(m.full()).all() for m in self._function(self.begin))

    def _given_by_single_equations(self, pattern: Any, known: BoolArray) -> BoolArray:
        """Take what equations of one drawn variable give; return what is not drawn any more."""
        for _ in range(STEPS):
            drawn = [row.indices[~known[row.indices]] for row in pattern]
            single = [(i, c[0]) for i, c in enumerate(drawn) if len(c) == 1]
            f, by = (m.full() for m in self._function(self.begin))
            step = {c: s for i, c in single if by[i, c] and np.isfinite(s := f[i, 0] / by[i, c])}
            for c, s in step.items():
                self.begin[c] -= s
                self.sizes[c] = abs(self.begin[c]) or 1.0
                known[c] = abs(s) <= CLOSE * self.sizes[c]
            if not step:
                break
        return known

    def derivatives(self, at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of all rows by states and by what is unknown, times their sizes."""
        n_x = len(self.reduced.symbols.states)
        by = self._function(at)[1].full() * self.sizes
        finite = np.isfinite(by).all(axis=1)
        if odd := [r for r, good in zip(self.reduced.rows, finite, strict=True) if not good]:
            raise ModelError(
                f"The equations {bracketed(odd)} have no finite derivatives near the start values. "
                "Give the variables in these equations that have no start value an initial value, "
                "such as m.T = pyo.Var(m.t, initialize=330)."
            )
        length = np.linalg.norm(by, axis=1)
        by = by / np.where(length > 0, length, 1.0)[:, None]
        return by[:, :n_x], by[:, n_x:]

    def anywhere(self) -> FloatArray:
        """A point about the start values that need not meet the equations."""
        return self.begin + 0.3 * self.sizes * np.random.default_rng(2).normal(size=len(self.begin))

    def near_start(self) -> FloatArray:
        """A point that meets the equations, with the given start values if possible."""
        rng = np.random.default_rng(0)
        best, least = self.begin, np.inf
        for attempt in range(TRIES):
            moved = 0.1 * attempt * self.sizes * rng.normal(size=len(self.begin))
            v, far = self._met(self.begin + moved)
            if far < least:
                best, least = v, far
            if least < CLOSE:
                break
        return best

    def _met(self, v: FloatArray) -> tuple[FloatArray, float]:
        """Gauss-Newton steps of least length."""
        far = np.inf
        for _ in range(STEPS):
            f, by = (m.full() for m in self._function(v))
            if not (np.isfinite(f).all() and np.isfinite(by).all()):
                return v, np.inf
            far = float(np.abs(f).max(initial=0.0))
            if far < CLOSE:
                break
            step = np.linalg.lstsq(by * self.moves, -f[:, 0], rcond=1e-10)[0]
            far_step = float(np.abs(step * self.moves / self.sizes).max(initial=0.0))
            v = v + self.moves * step / max(1.0, far_step / 2)
        return v, far

    def hint(self, name: str) -> float | None:
        """The value of a variable in the model, or amid its bounds; None if there is neither."""
        i = self.problem.instance
        series = i.states.get(name) or i.series.get(name) or {}
        component = series.get(i.first)
        number = getattr(component, "value", None)
        low, high = getattr(component, "bounds", (None, None))
        if number is not None:
            return float(number)
        return None if low is None or high is None else (low + high) / 2

    def _parameter(self, name: str) -> float:
        problem = self.problem
        unknown = problem.unknown_of(name, self.reduced.experiment)
        if unknown in problem.fixed:
            return problem.fixed[unknown]
        number = getattr(problem.instance.scalars.get(name), "value", None)
        box = problem.unknowns.select([unknown])
        return float(box.middle[0]) if number is None else float(box.clip(np.array([number]))[0])

    def _input(self, name: str) -> float:
        varying = self.problem.time_varying
        if name in varying:
            return (varying[name].lower + varying[name].upper) / 2
        e = self.reduced.experiment
        return evaluate(e.inputs[name], e.start_time)

    def _start(self, state: str) -> float | None:
        given, s = self.reduced.given(state), self.reduced.symbols
        if given is None:
            return self.hint(state)
        if isinstance(given, Unknown):
            return given.guess if given.guess is not None else (given.lower + given.upper) / 2
        return float(ca.evalf(ca.substitute(self.reduced.expression(state), s.p, self.p)))
