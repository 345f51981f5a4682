"""Samples of the posterior, by emcee's ensemble of walkers (Foreman-Mackey et al. 2013).

The posterior of a problem's unknowns: the likelihood of the fit, with what is known beforehand.

    log p = -1/2 sum of squares              sigma known
    log p = -m/2 log(sum of squares)         sigma unknown: one scale for all, integrated out under
                                             the prior 1 / sigma (Box & Tiao 1973)
            + sum of the logarithms of the priors' densities

inside the bounds, which are uniform priors, and zero outside. Densities are those of the unknowns
q themselves: the prior of log q has the density p(log q) / q.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arguments import is_count, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import deferred, session, stopped
from igpe.core.errors import SolverMissing
from igpe.core.markup import Rows, Shown, frame_rows
from igpe.core.progress import Progress, Share, Tell, teller, with_bar
from igpe.dynamics.shooting.base import refuse
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.covariance import root
from igpe.problem.losses import NormalPrior, Prior
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_draws
from igpe.uncertainty.likelihood import (
    Likelihood,
    at_estimate,
    left_out,
    require_confidence,
    size_of,
)

HALVINGS = 40  # of the distance from the estimate, until there is a density


class Posterior:
    """Log density at unknowns x (n,), up to a constant; -inf where it is zero or not computable."""

    def __init__(self, base: Likelihood) -> None:
        self.base = base
        self._runs = [
            (run, run.integrator.simulation(run.ivp, run.measurements.times, sensitivities=False))
            for run in base.residuals.runs
        ]
        names, priors = base.box.names, base.problem.priors
        self._priors = [(names.index(n), p) for n, p in priors.items() if n in names]

    def __call__(self, x: FloatArray) -> float:
        box, residuals = self.base.box, []
        # after an interrupt, what is drawn is not used
        if stopped() or ((x < box.lower) | (x > box.upper)).any():
            return -np.inf
        for run, simulation in self._runs:
            trajectory = simulation.run(x[run.index])
            if not trajectory.status.usable:
                return -np.inf
            residuals.append(run.weighted(trajectory))
        residual = np.concatenate(residuals)
        squares = float(residual @ residual)
        if not np.isfinite(squares):
            return -np.inf
        known = self.base.problem.sigma_known
        fit = -squares / 2 if known else -len(residual) / 2 * np.log(squares)
        return float(fit + sum(_log_density(p, float(x[i])) for i, p in self._priors))

    def walkers(self, count: int, random: np.random.Generator) -> FloatArray:
        """(count, n) starts, spread as the linearised errors say; anywhere where these do not.

        Those without a density come nearer to the estimate until they have one. They are reflected
        at the bounds, as walkers must not lie in one plane.
        """
        base, box, x = self.base, self.base.box, self.base.x
        of, variance = root(base.at.jacobian, base.held), base.errors.variance
        scale = np.sqrt(variance) if np.isfinite(variance) else 1.0
        away = scale * random.standard_normal((count, of.root.shape[1])) @ of.root.T
        sizes = np.array([size_of(base.problem, x, i) for i in range(len(x))])
        bounded = np.isfinite(box.upper - box.lower)
        low, high = np.where(bounded, [box.lower - x, box.upper - x], [-sizes, sizes])
        anywhere = random.uniform(low, high, away.shape)
        near = sizes * random.uniform(-1.0, 1.0, away.shape)
        away = np.where(base.errors.undetermined, anywhere, np.where(base.held, near, away))

        def inside(point: FloatArray) -> FloatArray:
            point = np.where(point < box.lower, 2 * box.lower - point, point)
            return box.clip(np.where(point > box.upper, 2 * box.upper - point, point))

        nearer = ((inside(x + step * 0.5**k) for k in range(HALVINGS)) for step in away)
        return np.array([next((p for p in own if np.isfinite(self(p))), x) for own in nearer])


def _log_density(prior: NormalPrior | Prior, x: float) -> float:
    """Of the unknown itself, where the prior may be one of its logarithm; up to a constant."""
    is_logarithm = isinstance(prior, Prior) and prior.scale != "lin"
    if not is_logarithm:
        return prior.log_density(x)
    return prior.log_density(x) - float(np.log(x)) if x > 0 else -np.inf


INSTALL = "pip install 'igpe[mcmc]'"
EACH = 4  # walkers for each unknown, by default
LEAST = 16  # walkers, by default
LONG = 50.0  # autocorrelation times that a chain should be long (emcee's documentation)
BURNT = 2.0  # autocorrelation times at the beginning that are left out; at least 10 % of the steps
TELL = 100  # steps between two sentences


@dataclass(frozen=True, repr=False)
class Samples(Shown):
    """Draws from the posterior, without the burn-in of the chains.

    names         names of the n unknowns
    estimate      a dict {unknown: value at the maximum of the likelihood}
    chains        (walkers, steps, n) values of the unknowns
    log_density   (walkers, steps) logarithm of the posterior density, up to an additive constant
    autocorrelation  a dict {unknown: autocorrelation time of a walker}, in steps
    acceptance    fraction of accepted proposals
    burnt         number of steps that are discarded at the start of each chain
    seed          seed of all random numbers
    confidence    confidence level of the intervals
    notes         remarks for the user
    """

    names: tuple[str, ...]
    estimate: Mapping[str, float]
    chains: FloatArray = field(repr=False)
    log_density: FloatArray = field(repr=False)
    autocorrelation: Mapping[str, float]
    acceptance: float
    burnt: int
    seed: int
    confidence: float
    notes: tuple[str, ...] = ()

    def flat(self) -> pd.DataFrame:
        """All draws, one column for each unknown."""
        return pd.DataFrame(self.chains.reshape(-1, len(self.names)), columns=list(self.names))

    def to_arviz(self) -> Any:
        """Convert to an ArviZ DataTree with `posterior` and `sample_stats`, one chain per walker.

        raises SolverMissing if arviz-base is not installed
        """
        posterior = {n: self.chains[:, :, k] for k, n in enumerate(self.names)}
        stats = {"lp": self.log_density}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found chain dimension")  # few steps, many walkers
            return _module("arviz_base").from_dict({"posterior": posterior, "sample_stats": stats})

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each unknown.

        The columns are the estimate, mean, standard deviation, median, equal-tailed interval, R-hat
        and effective sample size (Vehtari et al. 2021), and the autocorrelation time in steps.
        """
        draws, tail = self.flat(), (1 - self.confidence) / 2
        statistics, tree = _module("arviz_stats"), self.to_arviz()
        rhat, size = statistics.rhat(tree), statistics.ess(tree)
        table = pd.DataFrame({
            "estimate": [self.estimate[n] for n in self.names],
            "mean": draws.mean(),
            "standard_deviation": draws.std(),
            "median": draws.median(),
            "lower": draws.quantile(tail),
            "upper": draws.quantile(1 - tail),
            "r_hat": [float(rhat[n].values) for n in self.names],
            "effective_size": [float(size[n].values) for n in self.names],
            "autocorrelation": [self.autocorrelation[n] for n in self.names],
        })
        return table.rename_axis("name")

    def plot(self, axes: Any = None, *, pairs: bool = True) -> Plot:
        """Plot a histogram of each unknown, with its estimate and interval.

        pairs  whether to plot each pair of unknowns as well
        """
        return plot_draws(self.flat(), self.to_frame(), self.confidence, axes, pairs=pairs)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        walkers, steps, _ = self.chains.shape
        drawn = (
            f"{walkers} walkers, {steps} steps each ({self.burnt} earlier steps discarded), seed "
            f"{self.seed}; {100 * self.acceptance:.0f} % of the proposals were accepted."
        )
        return [frame_rows(self.to_frame())], [drawn, *self.notes]


@takes_problem
@with_bar
@session()
def sample(
    problem: Problem,
    estimate: Any,
    *,
    steps: int = 2000,
    walkers: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    method: SingleShooting = SingleShooting(),
    progress: Progress = None,
) -> Samples:
    """Draw samples from the posterior.

    Unknowns have their priors where these are given, and otherwise uniform priors within the
    bounds. If sigma is unknown, it is integrated out (see the docstring of this module). Unknowns
    without finite bounds have a flat prior; if the data do not determine these unknowns, the
    posterior may not exist.

    problem     the problem whose parameters were estimated
    estimate    a Result or Estimate of the problem, or a dict {unknown: value}; the walkers start
                around these values, scattered according to the linearised errors
    steps       number of steps of each walker, including the discarded steps
    walkers     number of walkers; None: four for each unknown, at least 16
    seed        random seed of the walkers
    confidence  confidence level of the intervals
    method      method whose integrator solves the model
    progress    a function that receives each message; or True, False or None, as for
                `igpe.estimate`
    returns     the samples; if the call is interrupted (Ctrl-C), only those drawn so far
    raises      SolverMissing if emcee is not installed, ProblemError for invalid arguments,
                Unsupported for active constraints and robust losses, EstimationFailed if the model
                cannot be integrated at the estimate
    """
    refuse(problem, "igpe.uncertainty.sample", "spectra", "censored")
    emcee = _module("emcee")
    require_confidence("sample", confidence)
    require(is_count(steps) and steps >= 10, "sample", "steps", steps, "10 or more")  # noqa: PLR2004
    require(is_count(seed), "sample", "seed", seed, "a whole number, 0 or more")
    base = at_estimate(problem, estimate, method, "igpe.uncertainty.sample", confidence=confidence)
    n, names = len(base.x), problem.box.names
    count = max(EACH * n, LEAST) if walkers is None else walkers
    ok = is_count(count) and count >= 2 * n and count % 2 == 0
    require(ok, "sample", "walkers", count, f"an even number, at least {2 * n}")
    posterior = Posterior(base)
    start = posterior.walkers(count, np.random.default_rng(seed))
    sampler = emcee.EnsembleSampler(count, n, posterior)
    # emcee draws from NumPy's older generator
    first = emcee.State(start, random_state=np.random.RandomState(seed).get_state())
    done = _run(sampler, first, steps, teller(progress))
    chain, density = sampler.get_chain()[:done], sampler.get_log_prob()[:done]
    times = np.asarray(sampler.get_autocorr_time(tol=0, quiet=True), dtype=float)
    longest = float(np.nanmax(times)) if np.isfinite(times).any() else np.inf
    burnt = int(min(max(BURNT * longest, done / 10), done / 2))
    notes = (
        (done < steps, f"Interrupted after {done} steps."),
        (done < LONG * longest,
         f"The chains are too short: {done} steps cover {done / longest:.0f} autocorrelation "
         f"times, but at least {LONG:g} are needed. "
         f"Try steps={np.ceil(LONG * longest):.0f}."),
        (not base.problem.sigma_known and len(base.problem.relative_sigma) > 1, (
            "igpe integrates out a common factor of the unknown standard deviations, and holds "
            "their ratios at those of the estimate. With few measurements, the posterior is too "
            "narrow. Pass sigma=... if you know them."
        )),
        (not problem.box.bounded, (
            "Unknowns without bounds have a flat prior over all real numbers."
        )),
    )  # fmt: skip
    drawn = np.swapaxes(chain[burnt:], 0, 1)
    points = drawn.reshape(-1, n)
    return Samples(
        names=names,
        estimate=base.box.mapping(base.x),
        chains=drawn,
        log_density=density[burnt:].T,
        autocorrelation=dict(zip(names, times.tolist(), strict=True)),
        acceptance=float(np.mean(sampler.acceptance_fraction)),
        burnt=burnt,
        seed=seed,
        confidence=confidence,
        notes=(
            *(sentence for holds, sentence in notes if holds),
            *left_out(problem, "igpe.uncertainty.sample", "samples", points),
        ),
    )


def _run(sampler: Any, first: Any, steps: int, tell: Tell) -> int:
    """Draw; how many steps are whole. Raises KeyboardInterrupt if none is."""
    drawn, done = sampler.sample(first, iterations=steps), 0
    try:
        while done < steps:
            with deferred():  # emcee would print the exception
                next(drawn)
            done += 1
            if done % TELL == 0:
                tell(Share(f"Sampling: {done} of {steps} steps", done / steps))
    except KeyboardInterrupt:
        if done == 0:
            raise
    return done


def _module(name: str) -> Any:
    """An optional package. Raises SolverMissing with the command that installs it."""
    try:
        return import_module(name)
    except ImportError:
        raise SolverMissing(
            f"`{name}` is not installed; posterior samples need it: {INSTALL}."
        ) from None
