"""The bootstrap: refits to measurements as they might have come out.

Errors for the bootstrap: how other measurements might have come out.

All in units of the residuals: (drawn - fitted) / sigma, or / 1 where sigma is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import digest, is_count, require
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import session
from igpe.core.errors import ProblemError
from igpe.core.json_form import plain, restored
from igpe.core.status import Progress
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.fingerprint import fingerprint
from igpe.numerics.statistics.covariance import influence, leverage
from igpe.problem.problem import Problem
from igpe.tasks.children import Function, Item, Outcome, Row, Work
from igpe.tasks.crew import Workers
from igpe.tasks.run import Place, run
from igpe.uncertainty.bootstrapped import WIDER, Bootstrapped, remarks
from igpe.uncertainty.likelihood import Likelihood, likelihood, quick, require_confidence, values_of

LEAST = 5  # measurements of a column, to draw its residuals from

Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]
"""Errors (m,) of one replication."""


class Kind(Protocol):
    """How errors are drawn."""

    def draw(self, base: Likelihood) -> Draw:
        """Made ready for a problem at its estimate."""
        ...

    def acceleration(self, base: Likelihood) -> FloatArray:
        """(n,) of BCa intervals: how the standard error changes with the estimate."""
        ...


@dataclass(frozen=True)
class ParametricBootstrap:
    """Normal errors with the standard deviations given, or the one that the residuals tell."""

    def draw(self, base: Likelihood) -> Draw:
        """See `Kind`."""
        spread = _spread(base)
        return lambda random: spread * random.standard_normal(len(spread))

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `Kind`: normal errors have no skewness."""
        return np.zeros(len(base.x))


@dataclass(frozen=True)
class ResidualBootstrap:
    """Residuals drawn with replacement, each column's from its own.

    They are standardised first, r / sqrt(1 - leverage), as a fit makes them too small, and centred
    (Davison & Hinkley, Bootstrap Methods and their Application, 1997, section 6.2.3). Nothing is
    assumed of their distribution, nor of sigma but its proportions within a column.
    """

    def draw(self, base: Likelihood) -> Draw:
        """See `Kind`. Raises ProblemError if a column has fewer than 5 measurements."""
        pool, spread = self._pool(base), _spread(base)
        groups = [np.flatnonzero(_column(base) == k) for k in range(len(_names(base)))]

        def draw(random: np.random.Generator) -> FloatArray:
            found = spread * random.standard_normal(len(spread))  # of priors
            for members in groups:
                found[members] = random.choice(pool[members], len(members))
            return found

        return draw

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `Kind`: a sixth of the skewness of the linearised estimate."""
        pool, column = self._pool(base), _column(base)
        second, third = (np.zeros(len(pool)) for _ in range(2))
        for k in range(len(_names(base))):
            mine = column == k
            second[mine], third[mine] = np.mean(pool[mine] ** 2), np.mean(pool[mine] ** 3)
        weight = influence(base.at.jacobian, base.held)
        variance = weight**2 @ second
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness = (weight**3 @ third) / variance**1.5
        return np.asarray(np.where(variance > 0, skewness, 0.0) / 6)

    def _pool(self, base: Likelihood) -> FloatArray:
        """(m,) centred standardised errors; 0 for priors."""
        column, names = _column(base), _names(base)
        counts = {name: int(np.sum(column == k)) for k, name in enumerate(names)}
        few = {name: count for name, count in counts.items() if count < LEAST}
        if few:
            raise ProblemError(
                f"ResidualBootstrap() draws each column's errors from its own residuals and "
                f"wants {LEAST} "
                f"or more; it found {few}. Use igpe.uncertainty.ParametricBootstrap()."
            )
        left = 1 - leverage(base.at.jacobian, base.held)
        errors = -base.at.residual / np.sqrt(np.maximum(left, 1e-8))
        for k in range(len(names)):
            errors[column == k] -= np.mean(errors[column == k])
        return np.where(column >= 0, errors, 0.0)


def _spread(base: Likelihood) -> FloatArray:
    """(m,) standard deviation of each residual; priors have their own."""
    known = base.problem.sigma_known
    sigma = 1.0 if known else float(np.sqrt(base.errors.variance))
    if not np.isfinite(sigma):
        raise ProblemError(
            "There are not more measurements than unknowns, so nothing tells the errors; give "
            "sigma= to the experiments."
        )
    return np.where(_column(base) >= 0, sigma, 1.0)


def _names(base: Likelihood) -> list[str]:
    """Of the measured columns in all experiments."""
    return list(dict.fromkeys(n for r in base.residuals.all_of.runs for n in r.measurements.names))


def _column(base: Likelihood) -> IntArray:
    """(m,) which of `_names` each residual belongs to; -1 for priors."""
    names = _names(base)
    found = np.full(len(base.at.residual), -1, dtype=np.intp)
    begin = 0
    for m in (one.measurements for one in base.residuals.all_of.runs):
        place = np.array([names.index(n) for n in m.names], dtype=np.intp)
        found[begin : begin + len(m.value)] = place[m.column]
        begin += len(m.value)
    return found


CHUNK = 20  # replications of one task
MANY = 30  # degrees of freedom from which sigma counts as known: t is 4 % wider than normal
INEXACT = 1e-6  # of one unit of chi squared: a decrease that no interval sees


@session()
def bootstrap(
    problem: Problem,
    result: Any,
    kind: Kind = ParametricBootstrap(),
    replications: int = 200,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    method: SingleShooting = SingleShooting(),
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Bootstrapped:
    """Refit the problem to drawn measurements, each time from the estimate.

    problem       whose measurements are replaced by drawn ones
    result        a Result or Estimate of the problem, or unknown -> value
    kind          `ParametricBootstrap()` or `ResidualBootstrap()`
    replications  how many; replication number k has the errors of (seed, k), wherever it is made
    seed          of the errors
    confidence    of the intervals
    method        of the refits
    executor, store, timeout   where refits are made and kept, as for `igpe.campaign`
    progress      is told a sentence now and then
    returns       what was done until then if it is interrupted (Ctrl-C)
    raises        ProblemError for arguments that do not fit, Unsupported for constraints and
                  robust losses, EstimationFailed if the model cannot be integrated at the estimate;
                  what `igpe.campaign` raises
    """
    is_kind = hasattr(kind, "draw") and not isinstance(kind, type)
    require(
        is_kind,
        "bootstrap",
        "kind",
        kind,
        "igpe.uncertainty.ParametricBootstrap() or igpe.uncertainty.ResidualBootstrap()",
    )
    require_confidence("bootstrap", confidence)
    ok = is_count(replications) and replications >= 1
    require(ok, "bootstrap", "replications", replications, "a whole number, 1 or more")
    require(is_count(seed), "bootstrap", "seed", seed, "a whole number, 0 or more")
    asked = _Asked(problem, values_of(problem, result), kind, seed, method)
    place = Place(executor, store, timeout, CHUNK)
    base, draw = asked.ready()
    acceleration = kind.acceleration(base)
    series = "" if store is None else digest("bootstrap", fingerprint(base.problem), asked[1:])
    work = Work(_prepared, asked, series, partial(_replicate, base, draw, seed))
    found = run(work, (Item(str(k), k) for k in range(replications)), place)
    rows = _gather(found, _teller(progress, replications))
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
        notes=tuple(remarks(table, replications, on_bound, base.errors.degrees)),
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


def _prepared(asked: _Asked) -> Function:
    return partial(_replicate, *asked.ready(), asked.seed)


def _replicate(
    base: Likelihood, draw: Callable[[np.random.Generator], Any], seed: int, number: int
) -> Row:
    random = np.random.default_rng([seed, number])
    errors = draw(random)
    wider = _wider(base, random)
    errors = errors * wider
    scale = 1.0 if base.problem.sigma_known else base.errors.variance
    search = quick(base.search, INEXACT * scale)
    fit = search.fit(base.shifted(-base.at.residual - errors), base.x, base.box)
    told = {"status": fit.status.name, "objective": fit.cost, **base.box.mapping(fit.x)}
    told |= {} if wider == 1.0 else {WIDER: wider}
    return plain(told)  # type: ignore[no-any-return]


def _wider(base: Likelihood, random: np.random.Generator) -> float:
    """What the errors of a replication are multiplied with: sigma is uncertain as well.

    With few degrees of freedom the deviation that the residuals tell is itself a draw: s^2 =
    sigma^2 chi2 / degrees. Errors with a drawn sigma make the percentiles of linear models the
    intervals of Student's t; with s alone they cover 86 % for three degrees of freedom.
    """
    degrees = base.errors.degrees
    if base.problem.sigma_known or not 0 < degrees < MANY:
        return 1.0
    return float(np.sqrt(degrees / random.chisquare(degrees)))


def _gather(found: Iterator[Outcome], tell: Callable[[int], None]) -> dict[int, Row]:
    """Rows by number, until the end or an interrupt; what gave no answer has its status alone."""
    rows: dict[int, Row] = {}
    try:
        for one in found:
            lost = {} if one.status is None else {"status": one.status.name}
            rows[int(one.key)] = restored(one.row) | lost
            tell(len(rows))
    except KeyboardInterrupt:
        pass
    return rows


def _teller(progress: Progress | None, count: int) -> Callable[[int], None]:
    def tell(done: int) -> None:
        if progress is not None and done % CHUNK == 0:
            progress(f"Bootstrap: {done} of {count} replications")

    return tell


def _table(rows: Mapping[int, Row], names: Sequence[str]) -> pd.DataFrame:
    index = pd.Index(sorted(rows), name="replication", dtype=int)
    columns = ["status", "objective", *names]
    columns += [WIDER] if any(WIDER in row for row in rows.values()) else []
    return pd.DataFrame([rows[k] for k in index], index=index, columns=columns)
