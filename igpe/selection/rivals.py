"""Rival models: fitted to the same measurements, ranked and distinguished.

Each is also judged by experiments that it was not fitted to.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arguments import SHORT, digest, require_mapping
from igpe.core.arrays import FloatArray
from igpe.core.deadline import finishing, session, stopped
from igpe.core.errors import EstimationFailed, IgpeError, ProblemError
from igpe.core.json_form import plain, restored
from igpe.core.markup import Rows, Shown, frame_rows, in_words
from igpe.core.progress import Progress, Share, teller, with_bar
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import Estimator, constraints
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import simulate
from igpe.equations.compiled import fingerprint
from igpe.estimation.settings import Settings
from igpe.numerics.covariance import root
from igpe.numerics.lack_of_fit import CLOSE, FAR
from igpe.numerics.least_squares.active import on_bounds
from igpe.pipeline import estimate
from igpe.planning.discrimination import RivalPlan, discriminate
from igpe.problem.experiment import Unknown
from igpe.problem.problem import Problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_rivals
from igpe.results.result import Result
from igpe.selection.behaviour import Containment, compared
from igpe.tasks.run import Backend, Workers, run
from igpe.tasks.workers import Function, Item, Row, Work
from igpe.uncertainty.model_comparison import compare_models, refuse_robust


class RivalJob(NamedTuple):
    """Arguments of the fits.

    problems  name -> problem;  cross: whether each experiment is left out once
    settings, seed, certify  as for `igpe.estimate`
    """

    problems: Mapping[str, Problem]
    settings: Settings | None
    seed: int | None
    certify: bool | Literal["auto"]
    cross: bool


def prepared(job: RivalJob) -> Function:
    """Function from a rival's name to its row: status, result, and squared prediction errors."""

    def fit(name: str) -> Row:
        problem = job.problems[name]
        try:
            result = estimate(problem, job.settings, seed=job.seed, certify=job.certify)
        except IgpeError as error:  # a refusal of one rival is no refusal of the others
            return {"status": Status.RAISED.name, "why": str(error)}
        row = {"status": result.status.name, "result": result.to_dict()}
        if job.cross and can_leave_out(problem) and not stopped():
            row["left_out"] = plain(left_out(problem, result))
        if stopped():  # a store would keep what is unfinished
            raise KeyboardInterrupt
        return row

    return fit


def can_leave_out(problem: Problem) -> bool:
    """Whether a fit to some experiments predicts another: none has unknowns of its own.

    A parameter that is a start value in one experiment alone counts as its own. Spectra are not
    predicted, as each run's part in the pure spectra would have to be known.
    """
    starts = [s for e in problem.experiments for s in e.start.values()]
    named = Counter(
        s for e in problem.experiments for s in {v for v in e.start.values() if isinstance(v, str)}
    )
    own = (
        problem.local
        or problem.time_varying
        or problem.has_spectra
        or any(isinstance(s, Unknown) for s in starts)
        or 1 in named.values()
    )
    return len(problem.experiments) > 1 and not own


def left_out(problem: Problem, result: Result) -> dict[str, Any]:
    """Experiment -> quantity -> [sum of squared errors of prediction, the same by sigma, number].

    Each experiment is predicted by a fit to the others, which starts from the fit to all. One whose
    fit or prediction breaks down has no entry. One whose prediction the others leave open has an
    empty one.
    """
    if problem.is_censored:  # a value below its limit has no error of prediction
        return {}
    held = held_weights(problem, result)
    method: Estimator = MultipleShooting() if constraints(problem) else SingleShooting()
    names = [e.name for e in problem.experiments]
    table: dict[str, Any] = {}
    for name in names:
        if stopped():
            break
        others = held.of_experiments([n for n in names if n != name])
        start = {n: result.parameters[n] for n in others.box.names}
        try:
            values = method.estimate(others, start)
            if not values.status.usable:
                continue
            left = held.of_experiments([name])
            is_open = _is_open(others, left, values.parameters)
            table[name] = {} if is_open else _squares(left, values.parameters)
        except EstimationFailed:
            continue
    return table


def _is_open(others: Problem, left: Problem, parameters: Mapping[str, float]) -> bool:
    """Whether a prediction depends on what a fit to the other experiments does not determine."""
    at, left_out = (Residuals(p, Automatic())(p.box.vector(parameters)) for p in (others, left))
    if at is None or left_out is None:
        return True
    change = np.zeros((len(left_out.residual), len(others.box)))
    change[:, [others.box.names.index(n) for n in left.box.names]] = left_out.jacobian
    held = on_bounds(others.box.vector(parameters), at, others.box)
    return not np.isfinite(root(at.jacobian, held).error(change)).all()


def _squares(problem: Problem, parameters: Mapping[str, float]) -> dict[str, list[float]]:
    (experiment,) = problem.experiments
    times = np.unique(experiment.measurements.times)
    curves = simulate(problem, parameters, times)
    squares = {}
    for name in experiment.measured:
        at, value, sigma = experiment.measurements.of(name)
        error = curves[name].to_numpy()[np.searchsorted(times, at)] - value
        squares[name] = [float(error @ error), float(np.sum((error / sigma) ** 2)), len(value)]
    return squares


CHANCE = 0.05  # of a likelihood ratio
SAME = 1e-6  # of an objective: fits that are one
MOST_COMPARED = 6  # rivals whose behaviour is compared, the best ones
TINY = float(np.finfo(float).tiny)
COLUMNS = [
    "unknowns", "objective", "AICc", "BIC", "delta", "weight", "within", "p",
    "lack_of_fit", "left_out", "status",
]  # fmt: skip
BEHAVIOUR = ["right", "rival", "contained", "how"]


@dataclass(frozen=True, repr=False)
class Rivals(Shown):
    """Rival models, fitted to the same measurements, best first.

    table      table indexed by rival, with the columns `unknowns` (their number, including an
               estimated sigma), `objective`, `AICc`, `BIC`, `delta` (AICc minus the smallest AICc),
               `weight` (Akaike weight), `within` (the smallest rival that contains all unknowns
               of this rival and others), `p` (p-value of the likelihood ratio test of this rival
               against the one in `within`), `lack_of_fit` (p-value of all tests of the residuals),
               `left_out` (root mean square error of predictions of each experiment from a fit to
               the others: in standard deviations, or, if these are unknown, as a fraction of the
               spread of each quantity; NaN if the others do not determine a prediction) and
               `status` (of the fit)
    results    a dict {rival: its `Result`}, best first
    behaviour  table of pairs that the measurements do not distinguish, with the columns `right`,
               `rival`, `contained` (whether `rival` can produce all outputs that `right` can
               produce) and `how` ("algebra": proved from Taylor coefficients of the outputs;
               "fits": tested by fits at a few points)
    failures   a dict {rival: reason why it has no fit}
    problems   a dict {rival: its problem}
    complete   False if the run was interrupted
    notes      remarks for the user
    """

    table: pd.DataFrame
    results: Mapping[str, Result] = field(repr=False)
    behaviour: pd.DataFrame
    failures: Mapping[str, str]
    problems: Mapping[str, Problem] = field(repr=False)
    complete: bool = True
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Result:
        """The result of the best rival."""
        return next(iter(self.results.values()))

    @property
    def contained(self) -> tuple[tuple[str, str], ...]:
        """Pairs (right, rival) in which `rival` can produce all outputs of `right`."""
        return self._pairs(self.behaviour["contained"].astype(bool))

    @property
    def same(self) -> tuple[tuple[str, str], ...]:
        """Pairs of rivals with the same outputs: no measurement of these outputs can distinguish
        them."""
        return self._mutual(self.contained)

    @property
    def separable(self) -> tuple[tuple[str, str], ...]:
        """Pairs of rivals whose outputs provably differ, whichever of the two is right."""
        return self._mutual(self._pairs(self.behaviour["how"] == "algebra"))

    def _pairs(self, rows: Any) -> tuple[tuple[str, str], ...]:
        chosen = self.behaviour[rows]
        return tuple(zip(chosen["right"], chosen["rival"], strict=True))

    def _mutual(self, known: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        order = list(self.results)
        pairs = (sorted(pair, key=order.index) for pair in known if pair[::-1] in known)
        return tuple(dict.fromkeys((one, other) for one, other in pairs))

    @property
    def indistinguishable(self) -> tuple[str, ...]:
        """Rivals that these measurements do not distinguish from the best one.

        A rival is in this list if its AICc is worse by less than 2; or if it extends the best rival
        by further unknowns and the likelihood ratio test does not reject the extension (p of 0.05
        or more); or if it has the same outputs as the best rival.
        """
        first = next(iter(self.results))
        same = {n for pair in self.same if first in pair for n in pair}
        near = {*_undecided(self.table.loc[list(self.results)]), *same}
        return tuple(n for n in self.results if n != first and n in near)

    @property
    def deltas(self) -> dict[str, float]:
        """Map each rival to its AICc minus the smallest AICc."""
        return {n: float(self.table["delta"][n]) for n in self.results}

    def design(self, *names: str, **settings: Any) -> RivalPlan:
        """Plan an experiment that distinguishes the rivals: `igpe.planning.discriminate`.

        names     names of the rivals; none: those with some support (AICc worse by at most 10), but
                  at least the best two. igpe leaves out rivals with exactly the fit of a better
                  rival, for example with a further reaction whose rate is 0, because their
                  predictions are equal
        settings  free, conditions, times, measure, criterion, experiments, ...
        raises    ProblemError for unknown names, and the errors of `igpe.planning.discriminate`
        """
        if lost := [n for n in names if n not in self.results]:
            raise ProblemError(
                f"{lost} are not fitted rivals; the fitted rivals are {list(self.results)}."
            )
        different: dict[float, str] = {}
        for name, result in self.results.items():
            if not any(np.isclose(result.objective, other, rtol=SAME) for other in different):
                different[result.objective] = name
        apart = list(different.values()) if len(different) > 1 else list(self.results)
        supported = [n for n in apart if self.deltas[n] <= FAR]
        chosen = names or (supported if len(supported) > 1 else apart[:2])
        problems = {n: self.problems[n] for n in chosen}
        deltas = {n: self.deltas[n] for n in chosen}
        if not all(np.isfinite(list(deltas.values()))):
            deltas = {}
        return discriminate(problems, self.results, **{"deltas": deltas, **settings})

    def plot(self, axes: Any = None, *, most: int = 5) -> Plot:
        """Plot the measurements with the fits of the best rivals (at most `most`).

        axes  matplotlib axes, one for each experiment and measured quantity; None: draw in a new
              figure
        """
        return plot_rivals(dict(list(self.results.items())[:most]), axes)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        shown = self.table.drop(columns=["objective", "weight"])
        return [frame_rows(shown.fillna({"within": "", "status": ""}), 4)], list(self.notes)


@with_bar
@session()
def rivals(
    problems: Mapping[str, Problem],
    settings: Settings | None = None,
    *,
    seed: int | None = None,
    certify: bool | Literal["auto"] = False,
    cross_validation: bool = True,
    behaviour: bool = True,
    nested: Mapping[str, str] | None = None,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress = None,
) -> Rivals:
    """Fit rival models to the same measurements, without start values, and rank them.

    problems   a dict {name: problem}; all problems must have the same measurements
    settings, seed, certify  as for `igpe.estimate`, used for each fit
    cross_validation  whether to leave out one experiment at a time and predict it from a fit to the
                      others; requires at least two experiments, and every unknown must occur in at
                      least two of them
    behaviour  whether to analyse rivals that these measurements do not distinguish: igpe checks
               whether more measurements of the same quantities, under the same conditions, could
               distinguish them
    nested     a dict {smaller rival: larger rival that contains it}; None: igpe identifies such
               pairs from the names of the unknowns
    executor, store, timeout   executor, store and time limit of the fits, as for `igpe.campaign`;
                               each rival is one task
    progress   a function that receives each message; or True, False or None, as for `igpe.estimate`
    returns    the ranked rivals; if the call is interrupted (Ctrl-C), only those fitted so far
    raises     ProblemError for fewer than two problems; Unsupported for robust losses (they are
               not likelihoods); DataError if the measurements of the problems differ;
               EstimationFailed if no rival could be fitted; other errors as in `igpe.campaign`. If
               some, but not all, rivals cannot be fitted, `failures` lists them
    """
    _check(problems)
    tell, backend = teller(progress), Backend(executor, store, timeout)
    job = RivalJob(dict(problems), settings, seed, certify, cross_validation)
    rows, failures = _gathered(job, backend, tell)
    if not rows:
        reasons = " ".join(f"{n}: {why}" for n, why in failures.items())
        raise EstimationFailed(f"None of the rivals could be fitted. {reasons}", Status.RAISED)
    complete = len(rows) + len(failures) == len(problems)
    results = {n: Result.from_dict(rows[n]["result"]) for n in problems if n in rows}
    with finishing():
        table, notes = _ranked(problems, results, rows, nested)
    results = {str(n): results[str(n)] for n in table.index}
    pairs: list[Containment] = []
    if behaviour and complete and any(p.has_spectra for p in problems.values()):
        notes.append(
            "igpe did not check whether more measurements could distinguish the rivals: this check "
            "does not support spectra."
        )
    elif behaviour and complete:
        tell("Comparing the rivals that the measurements do not distinguish")
        near = [str(table.index[0]), *_undecided(table)][:MOST_COMPARED]
        pairs, complete = compared({n: (problems[n], results[n]) for n in near}, seed or 0)
    failed = pd.DataFrame({"status": Status.RAISED.name}, index=list(failures))
    every = pd.concat([table, failed]).reindex(columns=COLUMNS).rename_axis("rival")
    comparisons = pd.DataFrame(pairs, columns=BEHAVIOUR)
    ranking = Rivals(every, results, comparisons, failures, dict(problems), complete)
    return replace(ranking, notes=(*_lines(ranking), *notes))


def _gathered(
    job: RivalJob, backend: Backend, tell: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Rival -> its row, and why others have none; what was done until Ctrl-C.

    raises  KeyboardInterrupt if it comes before any is fitted
    """
    rows: dict[str, dict[str, Any]] = {}
    failures: dict[str, str] = {}
    try:
        for name, row, why in _fitted(job, backend):
            if row:
                rows[name] = row
            else:
                failures[name] = why
            count, all_of_them = len(rows) + len(failures), len(job.problems)
            tell(Share(f"Rivals: {count} of {all_of_them} fitted", count / all_of_them))
            if stopped():
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not rows:
            raise
    return rows, failures


def _check(problems: Mapping[str, Problem]) -> None:
    """Raise ProblemError for what are no rivals, and Unsupported for robust losses."""
    example = "igpe.rivals({'first order': problem_a, 'second order': problem_b})"
    require_mapping("problems", problems, example, ProblemError)
    others = {n: type(p).__name__ for n, p in problems.items() if not isinstance(p, Problem)}
    if others:
        raise ProblemError(
            f"Every rival must be an igpe.Problem, but {others} are not. Give {example}. Create "
            "problems from networks: igpe.Problem(reactor, parameters=reactor.parameters, "
            "experiments=runs)."
        )
    if len(problems) < 2:  # noqa: PLR2004
        raise ProblemError(f"igpe.rivals needs two models or more; got {list(problems)}.")
    refuse_robust([name for name, problem in problems.items() if not problem.loss.is_squares])


def _fitted(job: RivalJob, backend: Backend) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Names of rivals with their rows (empty for failures) and reasons, as they become known."""
    keys = {}
    for name, problem in job.problems.items():
        content = fingerprint(problem) if backend.store is not None else ""
        keys[digest(name, content)[:SHORT]] = name
    series = "" if backend.store is None else digest("rivals", *job[1:])
    items = (Item(key, name) for key, name in keys.items())
    for outcome in run(Work(prepared, job, series), items, backend):
        row: dict[str, Any] = outcome.row
        why = outcome.message or str(row.get("why", ""))
        yield keys[outcome.key], row if "result" in row else {}, why


def _ranked(
    problems: Mapping[str, Problem],
    results: Mapping[str, Result],
    rows: Mapping[str, Mapping[str, Any]],
    nested: Mapping[str, str] | None,
) -> tuple[pd.DataFrame, list[str]]:
    """Criteria of each rival, the best first, and sentences on them."""
    if len(results) > 1:
        fitted = None if nested is None else _of(nested, problems, results)
        comparison = compare_models(results, fitted)
        table, notes = comparison.table.copy(), list(comparison.notes)
    else:
        table, notes = pd.DataFrame({"delta": 0.0, "weight": 1.0, "within": ""}, [*results]), []
    names = [str(n) for n in table.index]
    judged = {n: results[n].adequacy for n in names}
    table["lack_of_fit"] = [np.nan if a is None else a.p for a in judged.values()]
    table["left_out"] = [
        _prediction_error(problems[n], restored(rows[n].get("left_out", {}))) for n in names
    ]
    table["status"] = [results[n].status.name for n in names]
    if without := [n for n in names if not all(restored(rows[n].get("left_out", {})).values())]:
        notes.append(
            f"left_out is empty for {in_words(without)}: fits to the other experiments do not "
            "determine every prediction."
        )
    return table, notes


def _of(
    nested: Mapping[str, str], problems: Mapping[str, Problem], results: Mapping[str, Result]
) -> dict[str, str]:
    """The pairs whose models were both fitted. Raises ProblemError for names of no rival."""
    unknown = sorted({n for pair in nested.items() for n in pair} - set(problems))
    if unknown:
        raise ProblemError(
            f"`nested` contains {unknown}, which are not among the rivals {list(problems)}."
        )
    return {a: b for a, b in nested.items() if a in results and b in results}


def _prediction_error(
    problem: Problem, left_out: Mapping[str, Mapping[str, tuple[float, float, float]]]
) -> float:
    """See `Rivals.table`; NaN unless every experiment was predicted."""
    if len(left_out) < len(problem.experiments) or not all(left_out.values()):
        return np.nan
    sums: dict[str, FloatArray] = {}
    for quantities in left_out.values():
        for name, squares in quantities.items():
            sums[name] = sums.get(name, np.zeros(3)) + np.array(squares, dtype=float)
    if problem.sigma_known:
        total = sum(sums.values())
        return float(np.sqrt(total[1] / total[2]))  # type: ignore[index]
    values = {
        n: np.concatenate([e.measurements.of(n)[1] for e in problem.experiments if n in e.measured])
        for n in sums
    }
    shares = [s[0] / s[2] / max(np.var(values[n]), TINY) for n, s in sums.items()]
    return float(np.sqrt(np.mean(shares)))


def _undecided(table: pd.DataFrame) -> list[str]:
    """Rivals that the measurements do not distinguish from the first; all rows are fits."""
    near = {str(n) for n in table.index[1:] if table["delta"][n] < CLOSE}
    best = table.iloc[0]
    if best["within"] and best["p"] >= CHANCE:
        near.add(str(best["within"]))
    return [str(n) for n in table.index if n in near]


def _lines(rivals: Rivals) -> Iterator[str]:
    """Sentences on the fits, and on rivals that are hard or impossible to distinguish."""
    if not rivals.complete:
        yield f"Interrupted: {len(rivals.results)} of {len(rivals.problems)} rivals were fitted."
    for name, why in rivals.failures.items():
        yield f"{name} could not be fitted: {why}"
    for one, other in rivals.same:
        yield (
            f"{one} and {other} have the same outputs (igpe fitted each to outputs of the other, "
            "for a few sets of parameter values): no measurement of the same quantities under the "
            "same conditions can distinguish them."
        )
    both = {*rivals.same, *(pair[::-1] for pair in rivals.same)}
    for right, rival in rivals.contained:
        if (right, rival) not in both:
            yield (
                f"{rival} can produce all outputs of {right} (igpe fitted these outputs for a "
                "few sets of parameter values)."
            )
    for right, rival in rivals.separable:
        yield (
            f"{right} and {rival} differ in their outputs (proved by algebra, for nearly all "
            "parameter values): better measurements would distinguish them."
        )
    if all(r.adequacy is not None and r.adequacy.lacks for r in rivals.results.values()):
        yield "None of the rivals fits: each shows lack of fit. The right model is not among them."
