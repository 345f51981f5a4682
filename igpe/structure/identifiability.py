"""Structural local identifiability: can perfect measurements determine the unknowns at all?

An unknown is structurally locally identifiable if, for nearly all values of the unknowns, no other
value next to its own gives the same outputs at all times. The mathematics, and what is certified,
are in docs/identifiability.md. `Finding` is what structure analysis says about one unknown.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.markup import Suggesting, in_words
from igpe.core.markup import listed as series
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.compiled import compiled
from igpe.equations.operations import UnknownOperation
from igpe.equations.reading.pieces import moved_jumps
from igpe.equations.symbols import stack, without_logarithm
from igpe.problem.problem import Problem
from igpe.structure.combinations import IdentifiableCombination, additional, combinations
from igpe.structure.posed import FEWEST_TIMES, PosedEquations, SeriesExpansion, expand
from igpe.structure.sensitivity_rows import ExactRows, TooMany, sensitivity_rows, work
from igpe.structure.series.field import Singular, null_space
from igpe.structure.series.points import NoPoint
from igpe.structure.solutions import Alternatives, solutions
from igpe.structure.uniqueness import unique


class Access(enum.Enum):
    """How an unknown can be estimated. The value is what the user reads."""

    ALGEBRAIC = "from slopes, by algebra"
    SMOOTHING = "from the smoothed measurements"
    DYNAMIC = "only from the dynamics"
    UNREACHABLE = "cannot be estimated"


class Dependence(enum.Enum):
    """How the predicted slopes of its group depend on an unknown."""

    LINEAR = "linear"
    SINGLY_LINEAR = "linear if the other unknowns are fixed"
    NONLINEAR = "nonlinear"


class Identifiable(enum.Enum):
    """Whether an unknown is structurally locally identifiable. The value is what the user reads."""

    YES = "identifiable"
    NO = "not identifiable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding(Suggesting):
    """One unknown, and how the measurements reach it.

    unknown    its name in the problem
    reach      the verdict; ALGEBRAIC exactly if the unknown belongs to a group of step 3
    states     whose slope (ALGEBRAIC) or start value (SMOOTHING) it comes from
    equations  that predict those slopes, smallest subsystem first
    form       how slopes depend on it (ALGEBRAIC)
    implicit   variables without a closed expression, for want of which it is not algebraic
    measure    sets of quantities; to measure one of the sets as well would make it algebraic
               (DYNAMIC; looked for only for the first of very many) or visible (UNREACHABLE)
    switches   whether events or conditions on unknowns or states take the curves' slopes away
               (DYNAMIC)
    prior      whether the problem says something about it beforehand
    verdict    whether perfect measurements would determine it
    values     how many values it can have, complex ones and those out of bounds included: 1 if it
               is globally identifiable; 0 if it is undecided (YES)
    shared     the unknowns it cannot be told apart from (NO), itself among them
    freeing    smallest sets of quantities; to measure one of the sets as well would make it
               identifiable (NO)
    """

    unknown: str
    reach: Access
    states: tuple[str, ...] = ()
    equations: tuple[str, ...] = ()
    form: Dependence | None = None
    implicit: tuple[str, ...] = ()
    measure: tuple[tuple[str, ...], ...] = ()
    switches: bool = False
    prior: bool = False
    verdict: Identifiable = Identifiable.UNDECIDED
    values: int = 0
    shared: IdentifiableCombination | None = None
    freeing: tuple[tuple[str, ...], ...] = ()


INTEGRATOR = Sundials(rtol=1e-11, atol=1e-13)
SWITCHED = Automatic(rtol=1e-11, atol=1e-13)
"""What integrates problems with events, as CVODES starts anew after each."""
STEPS = 10_000  # of an integration; counted, so that every machine says the same
POINTS = 3
ATTEMPTS = 12  # points tried for these
TIMES = 60  # at which the outputs are compared
SMALLEST = 1e-6  # of the largest singular value: what is below may be error
NOTHING = 1e-8  # of the largest: what is below is error
GAP = 1e3  # by which determined directions must stand out of it
TOUCHED = 1e-4  # share of an unknown in a direction that is more than error
WIDEST = 10.0  # unknowns without bounds are drawn between this and its reciprocal


def moved_unknowns(problem: Problem, seed: int) -> BoolArray | None:
    """(n,) which unknowns some unseen direction moves; None if it is not clear.

    At random unknowns every experiment is integrated with its sensitivities, scaled to outputs and
    unknowns of order one. A wide gap must divide their singular values into those of what is
    determined and those of errors of integration, the same at all points. This is evidence, not a
    proof: it speaks of the points tried, and of inputs, start values and times as they were given.
    """
    random, names = np.random.default_rng(seed), problem.box.names
    integrator: Integrator = SWITCHED if any(compiled(problem).switching) else INTEGRATOR
    runs = []
    for k, experiment in enumerate(problem.experiments):
        ivp = compiled(problem).initial_value_problem(k, switching=True)
        outputs = stack(map(without_logarithm, ca.vertsplit(ivp.measured)))
        ivp = replace(ivp, measured=outputs, shared=None)
        own = [np.unique(experiment.measurements.of(n)[0]) for n in experiment.measured]
        dense = np.linspace(experiment.start_time, experiment.times[-1], TIMES)
        times = np.unique(np.concatenate([dense, *own]))
        simulation = integrator.simulation(ivp, times, sensitivities=True)
        # (n_times, n_measured) when each quantity is measured, or known over time
        seen = [times <= t[-1] if len(t) >= FEWEST_TIMES else np.isin(times, t) for t in own]
        runs.append((simulation, [names.index(n) for n in ivp.unknowns], np.stack(seen, 1)))
    result: list[BoolArray] = []
    for _ in range(ATTEMPTS):
        q = _drawn(problem.box, random)
        matrix = _sensitivities(runs, q)
        if matrix is not None:
            moved = _moved(matrix * np.maximum(np.abs(q), 1e-3))
            if moved is None or any((moved != other).any() for other in result):
                return None
            result.append(moved)
        if len(result) == POINTS:
            return result[0]
    return None


def _drawn(box: Box, random: np.random.Generator) -> FloatArray:
    """Unknowns well inside their bounds, spread over the logarithm where these allow it."""
    bounded = np.isfinite(box.lower) & np.isfinite(box.upper)
    lower = np.where(bounded, box.lower, np.maximum(box.lower, 1 / WIDEST))
    upper = np.where(bounded, box.upper, np.maximum(lower, 1 / WIDEST) * WIDEST**2)
    share, positive = random.uniform(0.2, 0.8, len(box)), lower > 0
    safe = np.where(positive, lower, 1.0)
    ratio = np.where(positive, upper, 1.0) / safe
    return np.where(positive, safe * ratio**share, lower + share * (upper - lower))


def _sensitivities(
    runs: Sequence[tuple[Any, list[int], BoolArray]], q: FloatArray
) -> FloatArray | None:
    """(rows, n) all outputs of all experiments, each relative to its largest; None if one broke."""
    result = []
    for simulation, places, seen in runs:
        with allowance(STEPS):
            came = simulation.run(q[places])
        m = seen.shape[1]
        size = np.max(np.abs(came.measured[:, :m]), axis=0, where=seen, initial=0.0)
        rows = (came.measured_by_unknown[:, :m] / np.where(size > 0, size, 1.0)[:, None])[seen]
        if not came.status.usable or not np.isfinite(rows).all():
            return None
        result.append(np.zeros((len(rows), len(q))))
        result[-1][:, places] = rows
    return np.vstack(result)


def _moved(matrix: FloatArray) -> BoolArray | None:
    """(n,) columns that take part in the directions of small singular values, if a gap shows.

    What is nothing at all is not seen. What is much smaller than the rest may be error or may be
    not, which is not clear; the sizes of the rest do not matter.
    """
    size = np.linalg.norm(matrix, axis=0)
    if np.any((size > 0) & (size < SMALLEST * size.max(initial=0.0))):
        return None
    _, singular, rows = np.linalg.svd(matrix / np.where(size > 0, size, 1.0), full_matrices=False)
    rank = int(np.sum(singular > SMALLEST * singular[0]))
    if rank < len(singular) and (
        singular[rank - 1] < GAP * singular[rank] or singular[rank] > NOTHING * singular[0]
    ):
        return None
    return np.asarray(np.abs(rows[rank:]).max(axis=0, initial=0.0) > TOUCHED)


MOST_WORK = 2e9  # products of residues: about a second
MOST_SOLVING = 2e5  # comparisons of monomials at each point: about half a second for all
MOST_SOLVING_ASKED_FOR = 1e6
MOST_INTEGRATED = 300  # states times unknowns: integrations take about a second
REASONS: dict[type[Exception], str] = {
    UnknownOperation: "the equations contain {}",
    NoPoint: "no exact solution of the implicit equations was found",
    TooMany: "a piecewise input has too many segments",
    Singular: "the equations are not defined at any of the start values tried",
}
"""Why an exact test cannot be made."""
ARBITRARY = (
    "the exact arithmetic of the test cannot use the given start values, although the model may "
    "well be integrated from them, and igpe does not count values for arbitrary ones"
)
LONG = "the test takes a long time; request it with igpe.check(problem, identifiability=True)"
INTEGRATE = "igpe.check(problem, identifiability=True) tests by integration instead"


def switching(problem: Problem) -> tuple[str, ...]:
    """What step 3 and the exact test do not support, of what the experiments have."""
    systems, experiments = compiled(problem).systems, problem.experiments
    pairs = zip(experiments, systems, strict=True)
    names = dict.fromkeys(name for e, s in pairs for name in moved_jumps(problem, e, s))
    where = f" ({in_words([*names])})"
    return (
        *["events"] * any(s.events for s in systems),
        *["steady-state starts"] * any(e.steady is not None for e in experiments),
        *[f"conditions that depend on unknowns or states{where}"] * bool(names),
    )


@dataclass(frozen=True)
class Identifiability:
    """Structural local identifiability of a problem's free unknowns.

    verdicts      unknown -> verdict, in the problem's order
    combinations  unknowns that cannot be told apart, and what can be determined of them
    unique        unknowns that are globally identifiable for certain, by slopes
    values        identifiable unknown -> how many values, as in `Finding`; undecided if missing
    alternatives  unknowns with several values that change together
    why_not       why the number of values of some may be undecided; empty if all are decided
    measure       unknown that is not identifiable -> as `Finding.freeing`
    generic       whether start values were drawn at random, as in `ExactRows`
    beyond        functions that are known by their differential equation alone: exp, log, ...
    numerical     whether it is evidence from integrations, not exact
    integrated    unknowns whose verdict rests on integrations, because it is doubtful
    doubtful      whether exact series do not decide what seems not identifiable: special start
                  values or inputs may need more orders
    breaks        whether inputs have breaks: exact verdicts hold for nearly all durations
    orders        how many coefficients of the series were computed
    left_out      constraints without time that may tie unknowns, which the test does not know
    why           why nothing was decided; empty if it was
    """

    verdicts: Mapping[str, Identifiable]
    combinations: tuple[IdentifiableCombination, ...] = ()
    unique: frozenset[str] = frozenset()
    values: Mapping[str, int] = field(default_factory=dict)
    alternatives: tuple[Alternatives, ...] = ()
    why_not: str = ""
    measure: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    generic: bool = False
    beyond: tuple[str, ...] = ()
    numerical: bool = False
    integrated: tuple[str, ...] = ()
    doubtful: bool = False
    breaks: bool = False
    orders: int = 0
    left_out: tuple[str, ...] = ()
    why: str = ""

    def names(self, verdict: Identifiable) -> tuple[str, ...]:
        """Return the names of the unknowns with this verdict."""
        return tuple(n for n, v in self.verdicts.items() if v is verdict)


def undecided(names: Sequence[str], why: str) -> Identifiability:
    """Nothing is known, for that reason."""
    return Identifiability(dict.fromkeys(names, Identifiable.UNDECIDED), why=why)


def identifiability(
    problem: Problem,
    posed: Sequence[PosedEquations],
    slopes: Sequence[Mapping[str, Any]] = (),
    *,
    seed: int = 0,
    most_work: float = MOST_WORK,
    count: bool = True,
    nuisance: Sequence[str] = (),
) -> Identifiability:
    """The exact test of all free unknowns (after Sedoglavic, J. Symb. Comput. 33, 2002).

    Where nothing exact can be computed, integrations decide, if they are quick or the test may take
    long.

    posed      the equations of each experiment
    slopes     of each experiment, state -> slope predicted from data
    seed       of the random points; the same seed gives the same answer
    most_work  products of residues; a larger test is not started
    count      whether the values of each unknown are counted; if not, nothing is integrated
    nuisance   unknowns that combinations leave out
    """
    names, is_smooth = problem.box.names, False
    if problem.time_varying:
        result = undecided(names, "unknowns that vary with time are not tested")
    elif any(compiled(problem).switching):
        result = undecided(names, f"the exact test does not support {series(switching(problem))}")
    else:
        try:
            experiments = expand(problem, posed, slopes)
            result = _exact(problem, experiments, seed, most_work, count=count, nuisance=nuisance)
        except tuple(REASONS) as error:
            result = undecided(names, REASONS[type(error)].format(error))
            is_smooth = not isinstance(error, UnknownOperation)
    is_wanted = np.isinf(most_work) or (count and result.why != LONG)
    is_possible = not problem.time_varying and _may_integrate(problem, most_work)
    if result.why and is_wanted and is_possible:
        result = _by_integration(problem, seed, is_smooth=is_smooth) or undecided(
            names, f"{result.why}, and integration gives no clear answer"
        )
    elif result.why and result.why != LONG and count and not problem.time_varying:
        result = undecided(names, f"{result.why}. {INTEGRATE}")
    if result.doubtful:
        result = _integrated(problem, result, seed, most_work if count else 0.0)
    left_out = dict.fromkeys(name for starts in problem.starts for name in starts.others)
    return replace(result, left_out=tuple(left_out))


def _may_integrate(problem: Problem, most_work: float) -> bool:
    """Whether integrations with sensitivities take about a second, or may take longer."""
    states = sum(len(system.symbols.states) for system in compiled(problem).systems)
    is_quick = states * len(problem.box) <= MOST_INTEGRATED
    return most_work > 0 and (bool(np.isinf(most_work)) or is_quick)


def _by_integration(problem: Problem, seed: int, *, is_smooth: bool) -> Identifiability | None:
    """Verdicts by integrations alone; None if they are not clear.

    Where events happen or rates have corners, what has no effect at the points tried may have one
    at others.
    """
    moved, names = moved_unknowns(problem, seed), problem.box.names
    if moved is None:
        return None
    verdicts = _verdicts(names, moved)
    if not is_smooth:
        lost = [n for n, v in verdicts.items() if v is Identifiable.NO]
        verdicts |= dict.fromkeys(lost, Identifiable.UNDECIDED)
    return Identifiability(verdicts, numerical=True)


def _verdicts(names: Sequence[str], moved: BoolArray) -> dict[str, Identifiable]:
    verdict = {True: Identifiable.NO, False: Identifiable.YES}
    return {n: verdict[bool(m)] for n, m in zip(names, moved, strict=True)}


def _exact(
    problem: Problem,
    experiments: Sequence[SeriesExpansion],
    seed: int,
    most_work: float,
    *,
    count: bool,
    nuisance: Sequence[str] = (),
) -> Identifiability:
    """Ranks, and the number of values of each unknown where slopes do not determine all."""
    box, names = problem.box, problem.box.names
    if work(experiments, len(names)) > most_work:
        return undecided(names, LONG)
    rows = sensitivity_rows(experiments, len(names), seed, most_work)
    result = _judged(rows, names, nuisance)
    known = set[str].intersection(*({*e.measured} for e in problem.experiments))
    measure = {n: tuple(as_wish(s, known) for s in sets) for n, sets in result.measure.items()}
    result = replace(result, measure=measure)
    if not count:
        return result
    proved = {names[i]: 1 for i in sorted(unique(experiments, len(names), seed=seed))}
    result = replace(result, unique=frozenset(proved), values=proved)
    own = set(result.names(Identifiable.YES))
    if own <= proved.keys():
        return result
    if result.generic:
        return replace(result, why_not=ARBITRARY)
    counted = solutions(
        experiments,
        names,
        one_sign=((box.lower >= 0) | (box.upper <= 0)).tolist(),
        proved=[names.index(n) for n in proved],
        seed=seed,
        most_work=MOST_SOLVING_ASKED_FOR if np.isinf(most_work) else MOST_SOLVING,
    )
    values = {names[i]: number for i, number in counted.values.items()} | proved
    why = "" if own <= values.keys() else counted.why
    return replace(result, values=values, alternatives=counted.alternatives, why_not=why)


def as_wish(names: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """What to measure as well, in words; known: what is measured, but too few times."""
    return tuple(f"{n} at more times" if n in known else n for n in names)


def _judged(rows: ExactRows, names: Sequence[str], nuisance: Sequence[str]) -> Identifiability:
    # At one point of full rank a component may vanish by chance, but none appears by chance.
    moved = np.zeros(len(names), dtype=bool)
    for k in rows.best:
        moved |= null_space(rows.measured[k], rows.primes[k]).any(axis=0)
    doubtful = rows.generic or not rows.is_complete
    return Identifiability(
        _verdicts(names, moved),
        combinations=combinations(rows, names, nuisance),
        measure={names[i]: sets for i, sets in additional(rows).items()},
        generic=rows.generic,
        beyond=rows.beyond,
        breaks=rows.breaks,
        orders=rows.orders,
        doubtful=doubtful,
    )


def _integrated(
    problem: Problem, result: Identifiability, seed: int, most_work: float
) -> Identifiability:
    """Doubtful verdicts as integrations at the given start values and inputs have them.

    Both must say the same; else the unknown is undecided.
    """
    names = problem.box.names
    moved = moved_unknowns(problem, seed) if _may_integrate(problem, most_work) else None
    seen = {} if moved is None else _verdicts(names, moved)
    verdicts, integrated = dict(result.verdicts), []
    for name, exact in result.verdicts.items():
        is_sure = exact is Identifiable.YES and not result.generic
        if not is_sure or seen.get(name) is Identifiable.NO:
            verdicts[name] = exact if seen.get(name) is exact else Identifiable.UNDECIDED
            integrated += [name] * (seen.get(name) is exact)
    kept = {n for n, v in verdicts.items() if v is not Identifiable.UNDECIDED}
    return replace(
        result,
        verdicts=verdicts,
        combinations=tuple(c for c in result.combinations if kept.issuperset(c.unknowns)),
        unique=result.unique & kept,
        values={n: v for n, v in result.values.items() if n in kept},
        alternatives=tuple(a for a in result.alternatives if kept.issuperset(a.unknowns)),
        measure={n: sets for n, sets in result.measure.items() if n in kept},
        integrated=tuple(integrated),
    )
