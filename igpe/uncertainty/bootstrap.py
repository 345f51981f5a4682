"""The bootstrap: refits to measurements as they might have come out."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pandas as pd

from igpe.arguments import is_count, require
from igpe.dynamic.single_shooting import SingleShooting
from igpe.problem import Problem
from igpe.progress import Progress
from igpe.uncertainty.bootstrapped import Bootstrapped, remarks
from igpe.uncertainty.drawing import Kind, Parametric
from igpe.uncertainty.likelihood import Likelihood, likelihood, quick, require_confidence, values_of
from igpe.uncertainty.store import Replication, Store

CHUNK = 20  # replications of one task, or of one write to the store
INEXACT = 1e-6  # of one unit of chi squared: a decrease that no interval sees


def bootstrap(
    problem: Problem,
    result: Any,
    kind: Kind = Parametric(),
    replications: int = 200,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    method: SingleShooting = SingleShooting(),
    executor: Executor | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> Bootstrapped:
    """Refit the problem to drawn measurements, each time from the estimate.

    problem       whose measurements are replaced by drawn ones
    result        a Result or Estimate of the problem, or unknown -> value
    kind          `Parametric()` or `Residual()`
    replications  how many; replication number k has the errors of (seed, k), wherever it is made
    seed          of the errors
    confidence    of the intervals
    method        of the refits
    executor      where the refits are made; None: here. The problem's model must then be a function
                  that can be pickled
    store         SQLite file in which finished replications are kept: those of the same problem,
                  estimate, kind and seed are not made again
    progress      is told a sentence now and then
    returns       what was done until then if it is interrupted (Ctrl-C)
    raises        ProblemError for arguments that do not fit, Unsupported for constraints and
                  robust losses, DataError for a store that is none, EstimationFailed if the model
                  cannot be integrated at the estimate
    """
    require_confidence("bootstrap", confidence)
    ok = is_count(replications) and replications >= 1
    require(ok, "bootstrap", "replications", replications, "a whole number, 1 or more")
    require(is_count(seed), "bootstrap", "seed", seed, "a whole number, 0 or more")
    asked = _Asked(problem, values_of(problem, result), kind, seed, method)
    base, draw = asked.ready()
    acceleration = kind.acceleration(base)
    kept = None if store is None else Store(store, _series(asked, base))
    done = {} if kept is None else kept.finished()
    missing = [k for k in range(replications) if k not in done]
    here = (_replicate(base, draw, seed, k) for k in missing)
    found = _portions(here) if executor is None else _elsewhere(asked, missing, executor)
    _gather(found, done, kept, _teller(progress, replications))
    rows = [r for k, r in sorted(done.items()) if k < replications]
    table = _table(rows, problem.box.names)
    on_bound = [n for n, held in zip(problem.box.names, base.held, strict=True) if held]
    return Bootstrapped(
        estimate=problem.box.mapping(base.x),
        units={n: problem.unit(n) for n in problem.box.names},
        replications=table,
        asked=replications,
        complete=len(table) == replications,
        kind=repr(kind),
        seed=seed,
        confidence=confidence,
        acceleration=problem.box.mapping(acceleration),
        undetermined=tuple(
            n for n, lost in zip(problem.box.names, base.errors.undetermined, strict=True) if lost
        ),
        notes=tuple(remarks(table, replications, on_bound)),
    )


class _Asked(NamedTuple):
    """What a task needs to know."""

    problem: Problem
    estimate: dict[str, float]
    kind: Kind
    seed: int
    method: SingleShooting

    def ready(self) -> tuple[Likelihood, Callable[[np.random.Generator], Any]]:
        """Compiled, with the errors' distribution."""
        base = likelihood(self.problem, self.estimate, self.method)
        return base, self.kind.draw(base)


def _replicate(
    base: Likelihood, draw: Callable[[np.random.Generator], Any], seed: int, number: int
) -> Replication:
    errors = draw(np.random.default_rng([seed, number]))
    scale = 1.0 if base.problem.sigma_known else base.errors.variance
    search = quick(base.search, INEXACT * scale)
    fit = search.fit(base.shifted(-base.at.residual - errors), base.x, base.box)
    return Replication(number, fit.status.name, fit.cost, base.box.mapping(fit.x))


def _chunk(asked: _Asked, numbers: Sequence[int]) -> list[Replication]:
    base, draw = asked.ready()
    return [_replicate(base, draw, asked.seed, k) for k in numbers]


def _portions(found: Iterable[Replication]) -> Iterator[list[Replication]]:
    """One after the other, as an interrupt may come between any two."""
    for one in found:
        yield [one]


def _elsewhere(
    asked: _Asked, numbers: Sequence[int], executor: Executor
) -> Iterator[list[Replication]]:
    tasks: list[Future[list[Replication]]] = [
        executor.submit(_chunk, asked, numbers[k : k + CHUNK])
        for k in range(0, len(numbers), CHUNK)
    ]
    try:
        for task in as_completed(tasks):
            yield task.result()
    finally:
        for task in tasks:
            task.cancel()


def _gather(
    found: Iterator[list[Replication]],
    done: dict[int, Replication],
    store: Store | None,
    tell: Callable[[int], None],
) -> None:
    """Collect until the end or an interrupt; what is finished is kept in any case."""
    waiting: list[Replication] = []
    try:
        for portion in found:
            done.update((r.number, r) for r in portion)
            waiting += portion
            if store is not None and len(waiting) >= CHUNK:
                store.add(waiting)
                waiting = []
            tell(len(done))
    except KeyboardInterrupt:
        pass
    finally:
        if store is not None and waiting:
            store.add(waiting)


def _teller(progress: Progress | None, count: int) -> Callable[[int], None]:
    def tell(done: int) -> None:
        if progress is not None and done % CHUNK == 0:
            progress(f"Bootstrap: {done} of {count} replications")

    return tell


def _table(rows: Sequence[Replication], names: Sequence[str]) -> pd.DataFrame:
    found = [{"status": r.status, "objective": r.objective, **r.parameters} for r in rows]
    index = pd.Index([r.number for r in rows], name="replication")
    return pd.DataFrame(found, index=index, columns=["status", "objective", *names])


def _series(asked: _Asked, base: Likelihood) -> str:
    """A hash of all that a replication depends on: equations, data, estimate, kind, seed."""
    told = hashlib.sha256(
        repr([asked.kind, asked.seed, asked.method, list(base.x), base.problem.box]).encode()
    )
    for name, prior in sorted(asked.problem.priors.items()):
        told.update(f"{name} {prior!r}".encode())
    for run in base.residuals.all_of.runs:
        m, ivp = run.measurements, run.ivp
        for array in (m.times, m.row, m.column, m.value, m.sigma):
            told.update(np.ascontiguousarray(array).tobytes())
        told.update(repr([run.name, m.names, ivp.unknowns, ivp.t0, ivp.tables]).encode())
        symbols, parts = (
            [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q],
            [ivp.f, ivp.g, ivp.start, ivp.measured],
        )
        told.update(ca.Function("equations", symbols, parts).serialize().encode())
    return told.hexdigest()
