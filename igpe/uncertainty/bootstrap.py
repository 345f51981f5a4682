"""The bootstrap: refits to measurements as they might have come out, and intervals from them.

Drawn errors are in units of the residuals: (drawn - fitted) / sigma, or / 1 where sigma is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arguments import digest, is_count, require
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import session
from igpe.core.errors import ProblemError
from igpe.core.json_form import Columns, Stored, plain, restored
from igpe.core.markup import bullets
from igpe.core.status import Progress
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.fingerprint import fingerprint
from igpe.numerics.statistics.covariance import influence, leverage
from igpe.problem.problem import Problem
from igpe.results.plots.uncertainty import plot_bootstrap
from igpe.results.result_data import number
from igpe.tasks.executors import Workers
from igpe.tasks.run import Backend, run
from igpe.tasks.workers import Function, Item, ItemOutcome, Row, Work
from igpe.uncertainty.likelihood import Likelihood, likelihood, quick, require_confidence, values_of

WIDER = "sigma_drawn"  # column: sigma of a replication in those that the residuals tell
KINDS = ("", "percentile_", "basic_")  # of intervals
UNBIASED: Final = "weibull"  # the (n + 1) p-th of n draws: a further one is below with chance p
FEW = 100  # replications below which the ends of intervals are rough


REPLICATIONS = Columns(("status",), ("objective",), key="replication")


@dataclass(frozen=True)
class Bootstrapped(Stored, name="bootstrap", number=1):
    """Estimates from measurements as they might have come out.

    estimate      unknown -> value, of the measurements themselves;  units: of the unknowns
    replications  one row for each refit, indexed by its number: status, objective, the unknowns,
                  and with few degrees of freedom the sigma that was drawn, in residual deviations
    asked       how many replications were requested;  complete: False if it was interrupted
    kind          how errors were drawn, in words;  seed: of the errors
    confidence    of the intervals
    acceleration  unknown -> that of its BCa interval
    undetermined  unknowns that the measurements do not determine: refits leave them where they were
    notes         sentences worth reading
    """

    estimate: Mapping[str, float]
    units: Mapping[str, str]
    replications: Annotated[pd.DataFrame, REPLICATIONS] = field(repr=False)
    asked: int
    complete: bool
    kind: str
    seed: int
    confidence: float
    acceleration: Mapping[str, float]
    undetermined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> pd.DataFrame:
        """Of the refits that converged: one row each, one column for each unknown."""
        good = self.replications["status"] == "CONVERGED"
        return self.replications.loc[good, list(self.estimate)].astype(float)

    @property
    def failed(self) -> int:
        """Refits that did not converge; they count in no interval."""
        return len(self.replications) - len(self.parameters)

    @property
    def correlation(self) -> pd.DataFrame:
        """Of the replications; NaN for unknowns that never move."""
        return self.parameters.corr()

    def to_frame(self) -> pd.DataFrame:
        """Estimate, standard error, bias (mean of the refits - estimate) and three intervals.

        lower, upper        BCa: percentiles corrected for bias and skewness (Efron 1987)
        percentile_lower, percentile_upper    of the refits
        basic_lower, basic_upper              2 estimate - percentiles
        """
        rows = {n: self._row(n) for n in self.estimate}
        table = pd.DataFrame.from_dict(rows, orient="index")
        return table.rename_axis("name")

    def plot(self, axes: Any = None) -> Any:
        """A histogram of each unknown with estimate and interval; returns axes."""
        return plot_bootstrap(self.parameters, self.to_frame(), self.confidence, axes)

    @property
    def _wider(self) -> FloatArray:
        """(n,) or one number: by which the errors of the refits were multiplied."""
        if WIDER not in self.replications:
            return np.ones(1)
        drawn = self.replications.loc[self.parameters.index, WIDER]
        return np.asarray(drawn, dtype=float)

    def _row(self, name: str) -> dict[str, Any]:
        if name in self.undetermined:
            sides = {"lower": -np.inf, "upper": np.inf}
            limits = {f"{kind}{side}": v for kind in KINDS for side, v in sides.items()}
            told = {"estimate": self.estimate[name], "standard_error": np.inf, "bias": np.nan}
            return told | limits | {"unit": self.units[name]}
        values = self.parameters[name].to_numpy()
        value, tail = self.estimate[name], (1 - self.confidence) / 2
        ends = np.array([tail, 1 - tail])
        low, high = _quantiles(values, ends)
        lower, upper = _quantiles(values, _bca(values, value, ends, self.acceleration[name]))
        level = value + (values - value) / self._wider  # as if sigma were known
        several = len(values) > 1
        return {
            "estimate": value,
            "standard_error": float(np.std(level, ddof=1)) if several else np.nan,
            "bias": float(np.mean(level)) - value if len(values) else np.nan,
            "lower": lower,
            "upper": upper,
            "percentile_lower": low,
            "percentile_upper": high,
            "basic_lower": 2 * value - high,
            "basic_upper": 2 * value - low,
            "unit": self.units[name],
        }

    def __str__(self) -> str:
        rows = [("", "estimate", "± standard error", f"{100 * self.confidence:g} % interval", "")]
        for name, row in self.to_frame().iterrows():
            error = float(row["standard_error"])
            if not np.isfinite(error):
                rows.append((str(name), number(row["estimate"]), "not determined", "", row["unit"]))
                continue
            ends = ", ".join(number(row[end], error) for end in ("lower", "upper"))
            value = number(row["estimate"], error)
            rows.append((str(name), value, f"± {error:.2g}", f"[{ends}]", row["unit"]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        told = f"{len(self.parameters)} refits, {self.kind}, seed {self.seed}; BCa intervals."
        return "\n".join([*lines, "", told, *self.notes])

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(float_format="{:.6g}".format)
        return f"{table}{bullets(self.notes)}"


def _quantiles(values: FloatArray, at: FloatArray) -> tuple[float, float]:
    if len(values) == 0 or not np.isfinite(at).all():
        return np.nan, np.nan
    low, high = np.quantile(values, at, method=UNBIASED)
    return float(low), float(high)


def _bca(values: FloatArray, estimate: float, ends: FloatArray, acceleration: float) -> FloatArray:
    """(2,) levels of the percentiles (Efron, Better bootstrap confidence intervals, 1987, eq. 2.3).

    Values that equal the estimate count half: refits on a bound are the estimate again.
    """
    if len(values) == 0:
        return np.array([np.nan, np.nan])
    below = np.mean(values < estimate) + np.mean(values == estimate) / 2
    edge = 0.5 / len(values)
    bias = special.ndtri(min(max(float(below), edge), 1 - edge))
    z = bias + special.ndtri(ends)
    return np.asarray(special.ndtr(bias + z / (1 - acceleration * z)))


def remarks(found: pd.DataFrame, requested: int, on_bound: list[str], degrees: int) -> list[str]:
    """What to know of the replications, in sentences."""
    told = []
    if WIDER in found:
        told.append(
            f"The residuals leave {degrees} degrees of freedom, so sigma itself is uncertain. "
            "Errors were drawn with a drawn sigma, which makes intervals like those of Student's t."
        )
    failed = int((found["status"] != "CONVERGED").sum())
    if failed:
        told.append(
            f"{failed} of {len(found)} refits did not converge and count in no interval; if they "
            "are many, the intervals are too short."
        )
    if len(found) < requested:
        told.append(f"Interrupted: {len(found)} of {requested} replications were made.")
    if len(found) < FEW:
        told.append(f"{len(found)} replications make rough intervals; some hundreds are better.")
    if on_bound:
        told.append(
            f"{', '.join(on_bound)} {'lie' if len(on_bound) > 1 else 'lies'} on a bound, where the "
            "bootstrap is not exact; igpe.profile is."
        )
    return told


LEAST = 5  # measurements of a column, to draw its residuals from

Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]
"""Errors (m,) of one replication."""


class ErrorDistribution(Protocol):
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
        """See `ErrorDistribution`."""
        spread = _spread(base)
        return lambda random: spread * random.standard_normal(len(spread))

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `ErrorDistribution`: normal errors have no skewness."""
        return np.zeros(len(base.x))


@dataclass(frozen=True)
class ResidualBootstrap:
    """Residuals drawn with replacement, each column's from its own.

    They are standardised first, r / sqrt(1 - leverage), as a fit makes them too small, and centred
    (Davison & Hinkley, Bootstrap Methods and their Application, 1997, section 6.2.3). Nothing is
    assumed of their distribution, nor of sigma but its proportions within a column.
    """

    def draw(self, base: Likelihood) -> Draw:
        """See `ErrorDistribution`. Raises ProblemError for a column of less than 5 measurements."""
        pool, spread = self._pool(base), _spread(base)
        groups = [np.flatnonzero(_column(base) == k) for k in range(len(_names(base)))]

        def draw(random: np.random.Generator) -> FloatArray:
            found = spread * random.standard_normal(len(spread))  # of priors
            for members in groups:
                found[members] = random.choice(pool[members], len(members))
            return found

        return draw

    def acceleration(self, base: Likelihood) -> FloatArray:
        """See `ErrorDistribution`: a sixth of the skewness of the linearised estimate."""
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
                f"needs {LEAST} "
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
        backend = np.array([names.index(n) for n in m.names], dtype=np.intp)
        found[begin : begin + len(m.value)] = backend[m.column]
        begin += len(m.value)
    return found


CHUNK = 20  # replications of one task
MANY = 30  # degrees of freedom from which sigma counts as known: t is 4 % wider than normal
INEXACT = 1e-6  # of one unit of chi squared: a decrease that no interval sees


@session()
def bootstrap(
    problem: Problem,
    result: Any,
    kind: ErrorDistribution = ParametricBootstrap(),
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
    job = _BootstrapJob(problem, values_of(problem, result), kind, seed, method)
    backend = Backend(executor, store, timeout, CHUNK)
    base, draw = job.ready()
    acceleration = kind.acceleration(base)
    series = "" if store is None else digest("bootstrap", fingerprint(base.problem), job[1:])
    work = Work(_prepared, job, series, partial(_replicate, base, draw, seed))
    found = run(work, (Item(str(k), k) for k in range(replications)), backend)
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


class _BootstrapJob(NamedTuple):
    """What a task needs to know."""

    problem: Problem
    estimate: dict[str, float]
    kind: ErrorDistribution
    seed: int
    method: SingleShooting

    def ready(self) -> tuple[Likelihood, Callable[[np.random.Generator], Any]]:
        """Compiled, with the errors' distribution."""
        base = likelihood(self.problem, self.estimate, self.method)
        return base, self.kind.draw(base)


def _prepared(job: _BootstrapJob) -> Function:
    return partial(_replicate, *job.ready(), job.seed)


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


def _gather(found: Iterator[ItemOutcome], tell: Callable[[int], None]) -> dict[int, Row]:
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
