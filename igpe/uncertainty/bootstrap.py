"""The bootstrap: refits to measurements as they might have come out, and intervals from them.

Drawn errors are in units of the residuals: (drawn - fitted) / sigma, or / 1 where sigma is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arguments import digest, is_count, require
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import session
from igpe.core.errors import ProblemError
from igpe.core.json_form import Columns, Stored, plain, restored
from igpe.core.markup import Rows, Shown, number
from igpe.core.progress import Progress, Share, teller, with_bar
from igpe.dynamics.shooting.base import refuse
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.compiled import fingerprint
from igpe.numerics.covariance import influence, leverage
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_draws
from igpe.tasks.run import Backend, Workers, run
from igpe.tasks.workers import Function, Item, Row, Work
from igpe.uncertainty.likelihood import (
    NO_ERRORS,
    Likelihood,
    at_estimate,
    left_out,
    likelihood,
    quick,
    require_confidence,
    values_of,
)

WIDER = "sigma_drawn"  # columns: sigma of a replication in those that the residuals tell
UNBIASED: Final = "weibull"  # the (n + 1) p-th of n draws: a further one is below with chance p
FEW = 100  # replications below which the ends of intervals are rough
LEAST = 5  # measurements of a column, to draw its residuals from
CHUNK = 20  # replications of one task
MANY = 30  # degrees of freedom from which sigma counts as known: t is 4 % wider than normal
INEXACT = 1e-6  # of one unit of chi squared: a decrease that no interval sees


@dataclass(frozen=True, repr=False)
class Bootstrapped(Shown, Stored, name="bootstrap", number=1):
    """Estimates from simulated repetitions of the measurements.

    estimate      a dict {unknown: value estimated from the measurements}
    units         units of the unknowns
    replications  table with one row for each refit, indexed by the number of the refit. The columns
                  are `status`, `objective` and one for each unknown. If there are few degrees of
                  freedom, there is also `sigma_drawn` (the drawn sigma as a multiple of the
                  residuals' standard deviation), or one such column for each quantity
    asked         number of replications requested
    complete      False if the run was interrupted
    kind          description of how the errors were drawn
    seed          random seed of the errors
    confidence    confidence level of the intervals
    acceleration  a dict {unknown: acceleration of its BCa interval}
    undetermined  unknowns that the measurements do not determine; the refits hold them fixed
    notes         remarks for the user
    shares        a dict {unknown: shares of its variance that come from the errors of each
                  quantity}, in the order of the columns of `sigma_drawn`
    """

    estimate: Mapping[str, float]
    units: Mapping[str, str]
    replications: Annotated[
        pd.DataFrame, Columns(("status",), ("objective",), key="replication")
    ] = field(repr=False)
    asked: int
    complete: bool
    kind: str
    seed: int
    confidence: float
    acceleration: Mapping[str, float]
    undetermined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if lost := [n for n in self.estimate if n not in self.replications]:
            raise ValueError(f"the replications have no columns {lost}")

    @property
    def parameters(self) -> pd.DataFrame:
        """Estimates of the converged refits: one row per refit, one column per unknown."""
        good = self.replications["status"] == "CONVERGED"
        return self.replications.loc[good, list(self.estimate)].astype(float)

    @property
    def sigma_drawn(self) -> FloatArray:
        """Sigma of each converged refit, as a multiple of the residuals' standard deviation: one
        row per refit, and one column per quantity if each has a sigma of its own."""
        drawn = self.replications.filter(regex=rf"^{WIDER}(\[|$)").loc[self.parameters.index]
        return np.asarray(drawn, dtype=float) if drawn.shape[1] else np.ones((len(drawn), 1))

    @property
    def failed(self) -> int:
        """Number of refits that did not converge; the intervals do not use them."""
        return len(self.replications) - len(self.parameters)

    @property
    def correlation(self) -> pd.DataFrame:
        """Correlation matrix of the refitted unknowns; NaN for unknowns that do not vary."""
        return self.parameters.corr()

    def to_frame(self) -> pd.DataFrame:
        """Return the estimates with their standard errors, biases and two intervals.

        bias                mean of the refits minus the estimate
        lower, upper        endpoints of the BCa interval, which lie at percentiles corrected for
                            bias and skewness (Efron 1987)
        percentile_lower, percentile_upper  endpoints of the percentile interval of the refits
        """
        rows = {n: self._row(n) for n in self.estimate}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")

    def plot(self, axes: Any = None, *, pairs: bool = False) -> Plot:
        """Plot a histogram of each unknown, with its estimate and interval.

        pairs  whether to plot each pair of unknowns as well
        """
        return plot_draws(self.parameters, self.to_frame(), self.confidence, axes, pairs=pairs)

    def _row(self, name: str) -> dict[str, Any]:
        value, values = self.estimate[name], self.parameters[name].to_numpy()
        error, bias, lower, upper, low, high = np.inf, np.nan, *(-np.inf, np.inf) * 2
        if name not in self.undetermined:
            tail = (1 - self.confidence) / 2
            ends = np.array([tail, 1 - tail])
            low, high = _quantiles(values, ends)
            lower, upper = _quantiles(values, _bca(values, value, ends, self.acceleration[name]))
            shares = np.array(self.shares.get(name, (1.0,)))
            drawn = np.sqrt(np.sum(self.sigma_drawn**2 * shares, axis=1))
            level = value + (values - value) / drawn  # as if sigma were known
            error = float(np.std(level, ddof=1)) if len(values) > 1 else np.nan
            bias = float(np.mean(level)) - value if len(values) else np.nan
        return {
            "estimate": value,
            "standard_error": error,
            "bias": bias,
            "lower": lower,
            "upper": upper,
            "percentile_lower": low,
            "percentile_upper": high,
            "unit": self.units[name],
        }

    def _shown(self) -> tuple[list[Rows], list[str]]:
        rows = [("", "estimate", "± standard error", f"{100 * self.confidence:g} % interval", "")]
        for name, row in self.to_frame().iterrows():
            error = float(row["standard_error"])
            if not np.isfinite(error):
                why = "not determined" if name in self.undetermined else "too few refits"
                rows.append((str(name), number(row["estimate"]), why, "", row["unit"]))
                continue
            ends = ", ".join(number(row[end], error) for end in ("lower", "upper"))
            value = number(row["estimate"], error)
            rows.append((str(name), value, f"± {error:.2g}", f"[{ends}]", row["unit"]))
        made = f"{len(self.parameters)} refits, {self.kind}, seed {self.seed}; BCa intervals."
        return [rows], [made, *self.notes]


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


Draw: TypeAlias = Callable[[np.random.Generator], FloatArray]
"""Errors (m,) of one replication."""


@dataclass(frozen=True)
class ParametricBootstrap:
    """Normal errors with given standard deviations, or with a standard deviation estimated from the
    residuals."""

    def draw(self, base: Likelihood) -> Draw:
        """Return a function that draws the errors of one replication."""
        spread = _spread(base)
        return lambda random: spread * random.standard_normal(len(spread))

    def acceleration(self, base: Likelihood) -> FloatArray:
        """Return the accelerations (n,) of BCa intervals: 0, because the errors are symmetric."""
        return np.zeros(len(base.x))


@dataclass(frozen=True)
class ResidualBootstrap:
    """Bootstrap errors, drawn with replacement from the residuals of the same quantity.

    A fit makes residuals smaller than the errors. Therefore, igpe first divides the residuals by
    sqrt(1 - leverage), and then centres them (Davison & Hinkley, Bootstrap Methods and their
    Application, 1997, section 6.2.3). The method makes no assumption about the distribution of
    errors. It uses only the ratios of the standard deviations within each quantity.
    """

    def draw(self, base: Likelihood) -> Draw:
        """Return a function that draws the errors of one replication.

        raises ProblemError for a quantity with fewer than 5 measurements
        """
        pool, spread, columns = self._pool(base), _spread(base), _columns(base)

        def draw(random: np.random.Generator) -> FloatArray:
            errors = spread * random.standard_normal(len(spread))  # of priors
            for members in columns.values():
                errors[members] = random.choice(pool[members], len(members))
            return errors

        return draw

    def acceleration(self, base: Likelihood) -> FloatArray:
        """Return the accelerations (n,) of BCa intervals: a sixth of the skewness of the
        linearised estimate."""
        pool = self._pool(base)
        second, third = np.zeros((2, len(pool)))
        for mine in _columns(base).values():
            second[mine], third[mine] = np.mean(pool[mine] ** 2), np.mean(pool[mine] ** 3)
        weight = influence(base.at.jacobian, base.held)
        variance = weight**2 @ second
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness = (weight**3 @ third) / variance**1.5
        return np.asarray(np.where(variance > 0, skewness, 0.0) / 6)

    def _pool(self, base: Likelihood) -> FloatArray:
        """(m,) centred standardised errors; 0 for priors."""
        columns = _columns(base)
        few = {name: len(mine) for name, mine in columns.items() if len(mine) < LEAST}
        if few:
            raise ProblemError(
                "ResidualBootstrap() draws the errors of each column from its own residuals, so "
                f"each column needs at least {LEAST} residuals. Columns with fewer residuals: "
                f"{few}. Use igpe.uncertainty.ParametricBootstrap()."
            )
        left = 1 - leverage(base.at.jacobian, base.held)
        errors = -base.at.residual / np.sqrt(np.maximum(left, 1e-8))
        pool = np.zeros(len(errors))
        for mine in columns.values():
            pool[mine] = errors[mine] - np.mean(errors[mine])
        return pool


ErrorDistribution: TypeAlias = ParametricBootstrap | ResidualBootstrap


def _spread(base: Likelihood) -> FloatArray:
    """(m,) standard deviation of each residual; priors have their own."""
    spread, own = np.ones(len(base.at.residual)), base.errors.spread
    if base.problem.sigma_known:
        return spread
    if not np.isfinite(base.errors.variance):
        raise ProblemError(NO_ERRORS)
    measured = slice(base.problem.size)
    spread[measured] = np.sqrt(own.variance[own.places[measured]])
    return spread


def _drawn_sigma(base: Likelihood, random: np.random.Generator) -> FloatArray:
    """(k,) sigma of each quantity, as a multiple of what the residuals tell: a draw where these
    leave few degrees of freedom."""
    degrees = base.errors.spread.degrees
    drawn, is_few = np.ones(len(degrees)), (degrees > 0) & (degrees < MANY)
    if not base.problem.sigma_known:
        drawn[is_few] = np.sqrt(degrees[is_few] / random.chisquare(degrees[is_few]))
    return drawn


def _sigma_columns(base: Likelihood) -> list[str]:
    """Names of the columns for these."""
    names, numbers = [*base.problem.relative_sigma], base.errors.spread.numbers
    each = [f"{WIDER}[{names[q] if q >= 0 else 'others'}]" for q in numbers]
    return each if len(each) > 1 else [WIDER]


def _shares(base: Likelihood) -> dict[str, tuple[float, ...]]:
    """Parts of the variance of each unknown."""
    parts = base.errors.spread.parts(np.eye(len(base.x)))
    total = parts.sum(axis=1, keepdims=True)
    known = np.isfinite(total) & (total > 0)
    each = np.divide(parts, total, out=np.full(parts.shape, 1 / parts.shape[1]), where=known)
    return dict(zip(base.problem.box.names, map(tuple, each.tolist()), strict=True))


def _columns(base: Likelihood) -> dict[str, IntArray]:
    """Measured name -> places of its residuals in all experiments."""
    measured = [run.measurements for run in base.residuals.runs]
    names = np.concatenate([np.array(m.names)[m.column] for m in measured])
    every = dict.fromkeys(name for m in measured for name in m.names)
    return {name: np.flatnonzero(names == name) for name in every}


@takes_problem
@with_bar
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
    progress: Progress = None,
) -> Bootstrapped:
    """Refit the problem to many sets of simulated measurements, each time starting at the estimate.

    problem       the problem whose measurements are replaced by simulated measurements
    result        a Result or Estimate of the problem, or a dict {unknown: value}
    kind          `ParametricBootstrap()` or `ResidualBootstrap()`
    replications  number of replications; for a given seed, replication k has the same errors on any
                  executor
    seed          seed of the random errors
    confidence    confidence level of the intervals
    method        method that performs the refits
    executor, store, timeout   executor, store and time limit of the refits, as for `igpe.campaign`
    progress      a function that receives each message; or True, False or None, as for
                  `igpe.estimate`
    returns       the replications; if the call is interrupted (Ctrl-C), only the finished ones
    raises        ProblemError for invalid arguments, Unsupported for active constraints and robust
                  losses, EstimationFailed if the model cannot be integrated at the estimate; other
                  errors as in `igpe.campaign`
    """
    kinds = "igpe.uncertainty.ParametricBootstrap() or igpe.uncertainty.ResidualBootstrap()"
    for ok, name, given, expected in (
        (isinstance(kind, ErrorDistribution), "kind", kind, kinds),
        (is_count(replications) and replications > 1, "replications", replications,
         "a whole number, 2 or more"),
        (is_count(seed), "seed", seed, "a whole number, 0 or more"),
    ):  # fmt: skip
        require(ok, "bootstrap", name, given, expected)
    require_confidence("bootstrap", confidence)
    refuse(problem, "igpe.bootstrap", "spectra", "censored")
    problem, values = held_weights(problem, result), values_of(problem, result)
    job = _BootstrapJob(problem, values, kind, seed, method)
    base = at_estimate(problem, result, method, "igpe.bootstrap")
    acceleration = kind.acceleration(base)
    series = "" if store is None else digest("bootstrap", fingerprint(base.problem), job[1:])
    work = Work(_prepared, job, series, partial(_replicate, base, kind.draw(base), seed))
    rows: dict[int, Row] = {}
    items = (Item(str(k), k) for k in range(replications))
    try:
        for one in run(work, items, Backend(executor, store, timeout, CHUNK)):
            lost = {} if one.status is None else {"status": one.status.name}
            rows[int(one.key)] = restored(one.row) | lost
            if len(rows) % CHUNK == 0 or len(rows) == replications:
                words = f"Bootstrap: {len(rows)} of {replications} replications"
                teller(progress)(Share(words, len(rows) / replications))
    except KeyboardInterrupt:
        pass
    names, errors = problem.box.names, base.errors
    columns = ["status", "objective", *names]
    drawn = _sigma_columns(base)
    columns += drawn if any(drawn[0] in row for row in rows.values()) else []
    index = pd.Index(sorted(rows), name="replication", dtype=int)
    table = pd.DataFrame([rows[k] for k in index], index=index, columns=columns)
    on_bound = [n for n, held in zip(names, base.held, strict=True) if held]
    return Bootstrapped(
        estimate=problem.box.mapping(base.x),
        units={n: problem.unit(n) for n in names},
        replications=table,
        asked=replications,
        complete=len(table) == replications,
        kind=repr(kind),
        seed=seed,
        confidence=confidence,
        acceleration=problem.box.mapping(acceleration),
        undetermined=tuple(n for n, lost in zip(names, errors.undetermined, strict=True) if lost),
        notes=(
            *_remarks(table, replications, on_bound, errors.spread.degrees.min()),
            *left_out(problem, "igpe.bootstrap", "replications", table[list(names)].to_numpy()),
        ),
        shares=_shares(base) if len(drawn) > 1 else {},
    )


class _BootstrapJob(NamedTuple):
    """What a task needs to know."""

    problem: Problem
    estimate: dict[str, float]
    kind: ErrorDistribution
    seed: int
    method: SingleShooting


def _prepared(job: _BootstrapJob) -> Function:
    base = likelihood(job.problem, job.estimate, job.method, "igpe.bootstrap")
    return partial(_replicate, base, job.kind.draw(base), job.seed)


def _replicate(base: Likelihood, draw: Draw, seed: int, number: int) -> Row:
    """Refit to the errors of one replication.

    With few degrees of freedom the deviation that the residuals tell is itself a draw: s^2 =
    sigma^2 chi2 / degrees, for each quantity. Errors with a drawn sigma make the percentiles of
    linear models the intervals of Student's t; with s alone they cover 86 % for three degrees.
    """
    random, known = np.random.default_rng([seed, number]), base.problem.sigma_known
    errors, drawn = draw(random), _drawn_sigma(base, random)
    shift = -base.at.residual - drawn[base.errors.spread.places] * errors

    def shifted(x: FloatArray) -> Any:
        at = base.residuals(x)
        return None if at is None else at._replace(residual=at.residual + shift)

    search = quick(base, INEXACT * (1.0 if known else base.errors.variance))
    fit = search.fit(shifted, base.x, base.box)
    row = {"status": fit.status.name, "objective": fit.cost, **base.box.mapping(fit.x)}
    sizes = {} if (drawn == 1.0).all() else dict(zip(_sigma_columns(base), drawn, strict=True))
    return plain(row | sizes)  # type: ignore[no-any-return]


def _remarks(table: pd.DataFrame, requested: int, on_bound: list[str], degrees: float) -> list[str]:
    """What to know of the replications, in sentences."""
    failed, made = int((table["status"] != "CONVERGED").sum()), len(table)
    remarks = (
        (WIDER in table,
         f"The residuals leave {degrees:g} degrees of freedom, so sigma itself is uncertain. "
         "igpe drew sigma for each refit, so the intervals correspond to Student's t intervals."),
        (any(f"{WIDER}[" in str(column) for column in table),
         f"The residuals of some quantities leave few degrees of freedom ({degrees:.2g} or more), "
         "so their sigma is uncertain. igpe drew it for each refit and quantity, so the intervals "
         "correspond to Student's t intervals with the degrees of freedom of each quantity."),
        (failed,
         f"{failed} of {made} refits did not converge, and the intervals do not use them. If many "
         "refits fail, the intervals are too narrow."),
        (made < requested, f"Interrupted: {made} of {requested} replications were finished."),
        (made < FEW, f"{made} replications give only rough intervals; use several hundred."),
        (on_bound,
         f"{', '.join(on_bound)} {'lie' if len(on_bound) > 1 else 'lies'} on a bound. The "
         "bootstrap is not exact there; use igpe.profile."),
    )  # fmt: skip
    return [sentence for holds, sentence in remarks if holds]
