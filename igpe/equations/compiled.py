"""A problem's equations and initial value problems, each made once and kept with the problem.

And whether start values that are given agree with those that reduced equations give; what an
estimate depends on, as a hash.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import casadi as ca
import numpy as np
from pyomo.common.gc_manager import PauseGC

from igpe.core.arguments import digest
from igpe.core.errors import DataError, ModelError, Unsupported
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.operations import operation_names
from igpe.equations.reading.pieces import moves
from igpe.equations.reading.read import read_systems
from igpe.equations.switching import refused
from igpe.equations.symbols import Symbols, stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.members import logarithm_of
from igpe.problem.problem import Problem

SAME = 1e-6  # relative difference of start values that contradict each other
NOTHING = 1e-9  # of the largest: differences that are rounding
HUGE = 1e100  # quotients by 0 are finite where equations are integrated
DRAWS = 4  # points at which start values are compared that unknowns move


def require_consistent(
    problem: Problem, experiment: Experiment, system: System, ivp: InitialValueProblem
) -> None:
    """Raise ModelError where given start values contradict what the equations give.

    system  reduced;  ivp: the initial value problem that it poses
    """
    reduction, free_symbols = (
        system.reduction,
        dict(zip(ivp.unknowns, ca.vertsplit(ivp.q), strict=True)),
    )
    if reduction is None:
        return
    unknown = [problem.unknown_of(n, experiment) for n in system.symbols.parameters]
    p = stack(free_symbols[n] if n in free_symbols else problem.fixed[n] for n in unknown)
    starts = dict(zip(ivp.states, ca.vertsplit(ivp.start), strict=True))
    symbols = [system.symbols.p, system.symbols.s], [p, stack(starts[n] for n in reduction.free)]
    computed = {n: ca.substitute([v], *symbols)[0] for n, v in reduction.starts.items()}
    given = {n: ca.substitute(v, system.symbols.p, p) for n, v in reduction.given.items()}
    q, box = ivp.q, problem.box.select(ivp.unknowns)
    both = stack([*(computed[n] for n in reduction.bound), *given.values()])
    rng = np.random.default_rng(0)
    draws = [box.middle * (1 + 0.1 * rng.uniform(-1, 1, len(box))) for _ in range(DRAWS)]
    points = [box.middle, *map(box.clip, draws)] if ca.depends_on(both, q) else [box.middle]
    function, number = ca.Function("starts", [q], [both]), len(reduction.bound)
    values = [np.asarray(function(point)).ravel() for point in points]
    run, free = f"Experiment '{experiment.name}': the start values", list(reduction.free)
    if all(np.isnan(row[:number]).any() for row in values):
        pairs = zip(reduction.bound, values[0][:number], strict=True)
        raise ModelError(
            f"{run} of {[n for n, v in pairs if np.isnan(v)]} follow from "
            f"{list(reduction.constraints)} and the start values of {free}, but igpe found no "
            "root of these equations near the values of the model's variables. Correct the start "
            "values, or initialise the variables near the root."
        )
    for point, row in zip(points, values, strict=True):
        size, known = (
            NOTHING * np.nanmax(np.abs(row)),
            dict(zip(reduction.bound, row, strict=False)),
        )
        for name, value in zip(given, row[number:], strict=True):
            if abs(known[name] - value) <= SAME * abs(value) + size or np.isnan(known[name]):
                continue
            at = ", ".join(f"{n} = {v:.6g}" for n, v in zip(box.names, point, strict=True))
            is_moved = ca.depends_on(ca.vertcat(computed[name], given[name]), q)
            fixes = f" at {at}. These start values would also fix unknowns that are to be estimated"
            others = _on_which(reduction.starts[name], system.symbols, free)
            source = f"from the start values of {others} it" if others else "by these equations it"
            correct = f", or correct the start values of {others}" * bool(others)
            raise ModelError(
                f"{run} contradict the equations {list(reduction.constraints)}: the given value "
                f"of '{name}' is {value:.6g}, but {source} would be "
                f"{known[name]:.6g}{fixes * is_moved}. Omit '{name}' from start to let igpe "
                f"compute it{correct}."
            )


def require_outputs_at_start(problem: Problem) -> None:
    """Raise DataError where nothing can be compared with a measurement at an experiment's start.

    The model gives it no finite value, or a standard deviation of 0, at unknowns that are drawn.
    """
    for k, experiment in enumerate(problem.experiments):
        m = experiment.measurements
        there = {m.names[c] for c in m.column[m.times[m.row] == experiment.start_time]}
        if not there or any(e.measured == "after" for e in experiment.events):
            continue
        ivp = compiled(problem).initial_value_problem(k, switching=True)
        box, rng = problem.box.select(ivp.unknowns), np.random.default_rng(0)
        low, high = box.clip(box.middle - 0.5), box.clip(box.middle + 0.5)
        values = ivp.outputs_at_start(rng.uniform(low, high, (DRAWS, len(box))))
        if values is None:
            continue
        doses = [e for e in experiment.events if e.at == experiment.start_time]
        after = AFTER * bool(doses)
        columns = dict(zip(experiment.outputs, values.T, strict=True))
        for name in sorted(there):
            sd = experiment.estimated_sigma.get(name, "")
            is_zero = bool(sd) and not columns[sd].any()
            if is_zero or (np.abs(columns[name]) > HUGE).all():
                run = f" in experiment '{experiment.name}'" * (len(problem.experiments) > 1)
                where = f"at the start, time {experiment.start_time:g}{run}"
                raise DataError(_why_incomparable(name, sd * is_zero, where) + after)


AFTER = (
    " Or, if the measurement was taken after the event at the start, say so: igpe.Event(..., "
    "measured='after')."
)


def _why_incomparable(name: str, sd: str, where: str) -> str:
    """Why a measurement at the start has no residual, and what to do."""
    leave = "or leave out the measurement at this time (NaN)."
    if sd:
        return (
            f"The standard deviation '{sd}' of '{name}' is 0 {where}, where '{name}' is measured. "
            f"Add an absolute part to '{sd}', {leave}"
        )
    if (of := logarithm_of(name)) is not None:
        return (
            f"The model gives '{of}' the value 0 {where}, where it is measured with log-normal "
            "errors. They need predictions above 0. Give normal errors, "
            f"sigma={{'{of}': igpe.Noise(absolute=..., relative=...)}}, {leave}"
        )
    return (
        f"The model gives '{name}' no finite value {where}, where it is measured. Correct the "
        f"model or the start values, {leave}"
    )


def _on_which(start: Any, symbols: Symbols, free: Sequence[str]) -> list[str]:
    """The free states on whose start values the start value of another depends."""
    own = dict(zip(symbols.states, ca.vertsplit(symbols.s), strict=True))
    return [n for n in free if ca.depends_on(start, own[n])]


class Compiled:
    """A problem, its equations in CasADi, and the initial value problems that they pose.

    The model is read once: problems that `fixing` and `weighted` make of a problem share what was
    read of it. Their initial value problems are their own.

    problem  what was compiled
    systems  equations of each experiment, in their order; the first process alone compares them
             with the model
    switching  of each experiment: whether events happen, or unknowns or states move a jump
    constants  of each experiment: inputs whose numbers its equations share with other experiments
    kept     what else was made of them, by who made it: it ends with the problem
    raises   ModelError as `read_systems` does, and if such a jump cannot be followed
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._posed: dict[tuple[Any, ...], InitialValueProblem] = {}
        self._shared: dict[Any, InitialValueProblem] = {}
        self._rests: dict[Any, InitialValueProblem] = {}
        self.kept: dict[Any, Any] = {}
        known = problem.systems
        with PauseGC():  # a third of the time of large models: their many objects are all in use
            for compare in (True, False):
                missing = [
                    e
                    for e in problem.experiments
                    if known.get(key := (e.name, e.outputs)) is None
                    and compare is (key not in known)
                ]
                read = read_systems(problem, missing, compare=compare)
                known.update(((e.name, e.outputs), s) for e, s in zip(missing, read, strict=True))
        self.systems: tuple[System, ...] = tuple(
            known[e.name, e.outputs] for e in problem.experiments
        )
        pairs = zip(problem.experiments, self.systems, strict=True)
        self.constants = constants(problem.experiments, self.systems)
        self.switching = tuple(moves(problem, e, system) for e, system in pairs)
        for k, system in enumerate(self.systems):
            if system.reduction is not None:
                ivp = self.initial_value_problem(k, switching=True)
                require_consistent(problem, problem.experiments[k], system, ivp)

    def initial_value_problem(
        self,
        index: int,
        *,
        until: float = -np.inf,
        plain_powers: bool = False,
        switching: bool = False,
    ) -> InitialValueProblem:
        """The initial value problem of one experiment; the arguments are those of the function.

        switching  whether the caller follows events and jumps that are moved
        raises     Unsupported where there are some and it does not
        """
        if self.switching[index] and not switching:
            raise refused("This method")
        if until <= self.problem.experiments[index].times[-1]:  # tables reach so far in any case
            until = -np.inf
        key = index, until, plain_powers
        if key not in self._posed:
            experiment, system = self.problem.experiments[index], self.systems[index]
            system = system.flow or system
            names = frozenset() if plain_powers else self.constants[index]
            family = id(system.residual), experiment.outputs, names, until
            posed = initial_value_problem(
                self.problem,
                experiment,
                system,
                until=until,
                plain_powers=plain_powers,
                switches=self.switching[index],
                constants=names,
                like=self._shared.get(family),
                rests=self._rests,
            )
            if posed.shared is not None:
                self._shared.setdefault(family, posed.shared)
            self._posed[key] = posed
        return self._posed[key]


def require_smooth_and_normal(problem: Problem, method: str) -> None:
    """Raise Unsupported where events happen, jumps are moved, or priors are not normal.

    What cannot be read is left to who reads it.
    """
    if problem.other_priors:
        raise Unsupported(
            f"{method} supports only normal priors, but the priors of "
            f"{list(problem.other_priors)} are not normal. igpe.estimate, igpe.SingleShooting "
            "and igpe.uncertainty.sample support them."
        )
    with suppress(ModelError):
        if any(compiled(problem).switching):
            raise refused(method)


def compiled(problem: Problem) -> Compiled:
    """The problem's `Compiled`, made on the first call; raises ModelError as that does."""
    if problem.compiled is None:
        problem.compiled = Compiled(problem)
    functions: Compiled = problem.compiled
    return functions


# CasADi simplifies by 0 and 1 as numbers are put in: terms vanish, and each set of experiments that
# leaves out another drug has a formula of its own. Where such numbers differ between experiments of
# the same equations they stay symbols, and one formula serves all. The values are the same then, as
# 0 x = 0 and 1 x = x hold for all finite x; who evaluates must look for x that is not.
SIMPLIFIED = {-1.0, 0.0, 1.0}
"""Numbers by which CasADi simplifies sums, products and quotients."""
SMOOTH = {"ASSIGN", "ADD", "SUB", "MUL", "DIV", "NEG", "INV", "TWICE", "SQ"}
SMOOTH |= {"EXP", "EXPM1", "SIN", "COS", "SINH", "COSH", "TANH", "ATAN", "ASINH", "ERF"}
"""Operations whose derivative is the same formula whatever numbers they are applied to."""


def constants(experiments: Sequence[Experiment], systems: Sequence[System]) -> list[frozenset[str]]:
    """Of each experiment the inputs that are numbers here and others in another experiment.

    Those in exponents, conditions and the like are left out: derivatives depend on their numbers.
    """
    families: dict[int, list[int]] = {}
    for k, system in enumerate(systems):
        families.setdefault(id(system.residual), []).append(k)
    fixed = [frozenset[str]()] * len(systems)
    for family in families.values():
        values: dict[str, set[float]] = {}
        for e in (experiments[k] for k in family):
            for name, given in [*e.inputs.items(), *(e.steady or {}).items()]:
                if isinstance(given, float):
                    values.setdefault(name, set()).add(given)
        several = {n for n, v in values.items() if len(v) > 1 and v & SIMPLIFIED}
        if several:
            several -= _elsewhere([systems[k] for k in family])
        for k in family:
            own = experiments[k].inputs
            fixed[k] = frozenset(n for n in several if isinstance(own.get(n), float))
    return fixed


def _elsewhere(systems: Sequence[System]) -> set[str]:
    """Names of inputs that enter operations other than `SMOOTH` before a state joins them."""
    first = systems[0]
    measured = [e for s in systems for e in s.measured.values()]
    u = first.symbols.u
    column = ca.densify(ca.vertcat(first.residual, stack(measured)))
    others = [s for s in ca.symvar(column) if not ca.depends_on(u, s)]
    function = ca.Function("equations", [u, stack(others)], [column])
    held: dict[int, frozenset[int]] = {}
    indices: set[int] = set()
    for k, name in enumerate(operation_names(function)):
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if name == "INPUT":
            held[outputs[0]] = frozenset(inputs[1:] if inputs[0] == 0 else ())
        elif name == "CONST":
            held[outputs[0]] = frozenset()
        elif name != "OUTPUT":
            within = frozenset[int]().union(*(held[i] for i in inputs))
            if name not in SMOOTH:
                indices |= within
            held[outputs[0]] = within
    return {first.symbols.inputs[i] for i in indices}


def fingerprint(problem: Problem) -> str:
    """The same for problems that say the same, in whatever process and however they were built.

    raises ModelError, DataError as the translation does
    """
    box = problem.box
    bounds = [box.names, box.lower, box.upper, box.logarithmic, problem.fixed]
    objective = [problem.priors, problem.loss, problem.time_varying]
    each = [list(_experiment(problem, k)) for k in range(len(problem.experiments))]
    models = [list(_model(problem, k)) for k in range(len(problem.experiments))]
    return digest(bounds, objective, each, models)


def _experiment(problem: Problem, k: int) -> Iterator[Any]:
    """Data of an experiment, and its initial value problem as CasADi writes it."""
    experiment = problem.experiments[k]
    ivp = compiled(problem).initial_value_problem(k, switching=True)
    yield [experiment.name, experiment.measurements]
    yield [experiment.sigma_known, experiment.weights_unknown]
    if (spectra := experiment.spectra) is not None:
        yield [spectra.times, spectra.wavelengths, spectra.values, spectra.noise, spectra.species]
        yield [spectra.pure, spectra.nonnegative, spectra.smooth, spectra.unwanted, spectra.shared]
    yield [experiment.error_models, experiment.estimated_sigma, experiment.start]
    yield [ivp.states, ivp.implicit, ivp.unknowns, ivp.t0, ivp.tables]
    yield [ivp.scale, ivp.largest, ivp.unknown_scale, ivp.implicit_scale]
    yield [ivp.guess, ivp.lower, ivp.upper]
    yield _serialized(ivp, [ivp.f, ivp.g, ivp.start, ivp.measured])
    if ivp.switching is not None:
        jumps = ivp.switching.jumps
        yield [ivp.switching.modes, [j.gap for j in jumps]]
        columns = [[0 if j.at is None else j.at, j.after, j.delay] for j in jumps]
        yield _serialized(ivp, [ivp.switching.gaps, *(ca.vertcat(*c) for c in columns)])
    if ivp.rest is not None:
        yield [ivp.rest.tables, _serialized(ivp.rest, [ivp.rest.f, ivp.rest.g, ivp.rest.start])]


def _serialized(ivp: InitialValueProblem, columns: list[Any]) -> str:
    symbols = [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q]
    return str(ca.Function("equations", symbols, columns).serialize())


def _model(problem: Problem, k: int) -> Iterator[Any]:
    """What the model says beside its equations: constraints, and bounds of what runs over time."""
    instance = problem.instances[k]
    yield {name: str(c.expr) for name, c in problem.starts[k].others.items()}
    for name, series in instance.inequalities.items():
        yield [name, [str(c.expr) for c in series.values()]]
    for name, series in instance.states.items():
        first = next(iter(series.values()))
        yield [name, first.bounds, first.value]
