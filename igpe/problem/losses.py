"""The objective: losses of residuals, and priors.

A prior by another law than the normal one adds minus twice the logarithm of its density to the
objective: a residual with the right gradient and a curvature that is never negative, and an offset.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from igpe.core.arguments import Checked, Positive, Rule, is_finite, is_number, shown
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.core.markup import counted
from igpe.problem.noise.correlated import AR1, Correlated
from igpe.problem.noise.sigma import Censored, LogNormal

__all__ = [
    "AR1",
    "L1",
    "Censored",
    "Correlated",
    "Huber",
    "LeastSquares",
    "LogNormal",
    "Loss",
    "NormalPrior",
    "PiecewiseConstant",
    "Prior",
]

FAR = 5.0  # deviations of a normal prior from its mean to a bound
ROUNDING = 1e-9  # of an experiment's length: times so close are the same


class Loss:
    """Base class of losses. A loss determines how much the residuals, divided by their
    standard deviations, contribute to the objective.

    Up to a limit, a residual contributes its square. Beyond the limit, its contribution grows
    linearly (igpe/numerics/least_squares/base.py). A loss is a class with the attributes below and
    a method `limits`.

    is_squares   whether the objective is the sum of squared residuals, without a limit on large
                 residuals
    is_absolute  whether the objective is the sum of absolute residuals, which igpe approximates
                 by Huber losses with small limits
    criterion    name of the objective in results; empty for sums of squares

    If neither `is_squares` nor `is_absolute` is True, the limits of the loss are multiples of the
    standard deviations (`needs_deviations`). igpe then computes unknown standard deviations from
    the median of the absolute residuals.
    """

    is_squares: bool = False
    is_absolute: bool = False
    criterion: str = ""

    @property
    def needs_deviations(self) -> bool:
        """Return True if the optimum depends on the size of the standard deviations."""
        return not (self.is_squares or self.is_absolute)

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return the limits that successive fits use.

        spread  typical deviation of the residuals; 1 if standard deviations are known
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LeastSquares(Loss):
    """Sum of the squares of the residuals after division by their standard deviations: maximum
    likelihood for normal errors (Michalik et al. 2009, IGPE, eq. 3)."""

    is_squares = True

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return no limit."""
        return (np.inf,)


@dataclass(frozen=True)
class L1(Loss):
    """Sum of the absolute residuals after division by their standard deviations: robust against
    outliers."""

    is_absolute = True
    criterion = "Sum of absolute residuals"

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return decreasing limits. With the last limit, an estimate differs from the exact one by
        at most about a hundredth of its standard error."""
        return (spread, 0.1 * spread, 0.01 * spread)


@dataclass(frozen=True)
class Huber(Checked, Loss):
    """Loss that is quadratic up to `delta` standard deviations and linear for larger residuals.

    If standard deviations are not given, igpe computes one for each quantity: the median of its
    absolute residuals divided by 0.67 (Huber & Ronchetti, Robust Statistics (2009), section 7.8).
    igpe repeats this computation until the values converge. With `sigma="equal"`, `delta` is in the
    unit of the measurements.

    raises ProblemError unless delta is a positive number
    """

    delta: Positive = 1.345

    @property
    def criterion(self) -> str:  # type: ignore[override]
        """Name of the objective in results."""
        return f"Huber's loss (delta = {self.delta:g})"

    def limits(self, spread: float) -> tuple[float, ...]:
        """Return the limit."""
        return (self.delta,)


class Bend(NamedTuple):
    """Minus the logarithm of a density at one point: its slope, and a non-negative curvature."""

    slope: float
    curvature: float


@dataclass(frozen=True)
class NormalPrior(Checked):
    """Prior knowledge of a parameter: a mean and a standard deviation.

    lower, upper  limits at which the density is truncated; they change only its normalising
                  constant
    raises ProblemError unless mean and deviation are finite and the deviation is positive
    """

    mean: Annotated[float, Rule(is_finite, "a finite number")]
    deviation: Positive
    lower: float = -np.inf
    upper: float = np.inf

    def log_density(self, x: float) -> float:
        """Natural logarithm of the density at x."""
        z, low, high = ((v - self.mean) / self.deviation for v in (x, self.lower, self.upper))
        constant = np.log(np.sqrt(2 * np.pi) * self.deviation * (ndtr(high) - ndtr(low)))
        return float(-(z**2) / 2 - constant)

    def bend(self, x: float) -> Bend:
        """See `Bend`."""
        return Bend((x - self.mean) / self.deviation**2, 1 / self.deviation**2)


@dataclass(frozen=True)
class PiecewiseConstant:
    """An unknown function of time that is constant between breaks.

    breaks        (n,) increasing times at which the function may jump; a break outside the time
                  span of an experiment has no effect in this experiment
    lower, upper  bounds of the function values
    penalty       weight of the squared jumps in the objective; 0: no penalty
    raises        ProblemError if the breaks do not increase, if the bounds are reversed, or if the
                  penalty is negative
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    penalty: float = 0.0

    def __post_init__(self) -> None:
        breaks = list(self.breaks) if isinstance(self.breaks, Iterable) else [self.breaks]
        if not (breaks and is_finite(*breaks) and (np.diff(breaks) > 0).all()):
            raise ProblemError(
                f"The breaks {breaks} of a time-varying unknown are not in increasing order. Give "
                "a tuple of increasing numbers."
            )
        object.__setattr__(self, "breaks", tuple(float(b) for b in breaks))
        sound = is_number(self.lower, self.upper) and is_finite(self.penalty)
        if not (sound and self.lower < self.upper and self.penalty >= 0):
            raise ProblemError(
                f"A time-varying unknown has bounds [{shown(self.lower)}, {shown(self.upper)}] "
                f"and penalty {shown(self.penalty)}; expected lower < upper and a penalty of 0 or "
                "more."
            )

    def begins(self, first: float, last: float) -> tuple[float, ...]:
        """Return the start times of the constant pieces in an experiment from `first` to `last`."""
        rounding = ROUNDING * (last - first)
        return (first, *(b for b in self.breaks if first + rounding < b < last - rounding))


def stats() -> Any:
    """SciPy's distributions, which take longer to import than an estimate takes."""
    import scipy.stats  # noqa: PLC0415

    return scipy.stats


def _laplace(x: float, m: float, b: float) -> Bend:
    away = abs(x - m)
    if away <= ROUND * b:
        return Bend((x - m) / (ROUND * b**2), 1 / (ROUND * b**2))
    return Bend(np.sign(x - m) / b, 1 / (b * max(away, b)))


def _cauchy(x: float, m: float, s: float) -> Bend:
    weight = 2 / (s**2 + (x - m) ** 2)
    return Bend(weight * (x - m), weight)


def _gamma(x: float, k: float, scale: float) -> Bend:
    slope = 1 / scale - (k - 1) / x
    return Bend(slope, max((k - 1) / x**2, slope**2))


def _of_logarithm(bend: Callable[..., Bend]) -> Callable[..., Bend]:
    def of(x: float, *given: float) -> Bend:
        there = bend(np.log(x), *given)
        return Bend((there.slope + 1) / x, there.curvature / x**2)

    return of


def _normal(x: float, m: float, s: float) -> Bend:
    return Bend((x - m) / s**2, 1 / s**2)


class Density(NamedTuple):
    """A family of densities: SciPy's distribution, and the bend, both of the law's parameters.

    size  how many parameters there are
    """

    distribution: Callable[..., Any]
    bend: Callable[..., Bend]
    size: int


KINK = 1e-3  # of Laplace's scale: so near its mean a value is on the kink
ROUND = 1e-7  # the same: the kink is rounded there, so that searches come to an end on it.
# Their steps end at a kink (`Box.steps`), so that curvature need not keep them from passing it.
LAWS = {
    "normal": Density(lambda m, s: stats().norm(m, s), _normal, 2),
    "laplace": Density(lambda m, b: stats().laplace(m, b), _laplace, 2),
    "log-normal": Density(
        lambda m, s: stats().lognorm(s, scale=np.exp(m)), _of_logarithm(_normal), 2
    ),
    "log-laplace": Density(
        lambda m, b: stats().loglaplace(1 / b, scale=np.exp(m)), _of_logarithm(_laplace), 2
    ),
    "cauchy": Density(lambda m, s: stats().cauchy(m, s), _cauchy, 2),
    "chisquare": Density(lambda k: stats().chi2(k), lambda x, k: _gamma(x, k / 2, 2.0), 1),
    "exponential": Density(
        lambda scale: stats().expon(scale=scale), lambda x, s: Bend(1 / s, 1 / s**2), 1
    ),
    "gamma": Density(lambda k, scale: stats().gamma(k, scale=scale), _gamma, 2),
    "log-uniform": Density(
        lambda a, b: stats().loguniform(a, b), lambda x, a, b: Bend(1 / x, 1 / x**2), 2
    ),
    "rayleigh": Density(
        lambda s: stats().rayleigh(scale=s),
        lambda x, s: Bend(x / s**2 - 1 / x, 1 / s**2 + 1 / x**2),
        1,
    ),
}
SCALES = {"lin": 0.0, "log": 1.0, "log10": float(np.log(10.0))}


@dataclass(frozen=True)
class Prior(Checked):
    """Prior knowledge of a parameter, as one of the distributions of PEtab 2.

    law         name of the distribution: "normal", "laplace", "log-normal", "log-laplace" (with
                natural logarithms), "cauchy", "chisquare", "exponential", "gamma" (shape, scale),
                "log-uniform" or "rayleigh"
    parameters  parameters of the distribution, in the order of PEtab 2
    scale       "lin": the parameter itself has this distribution; "log" or "log10": the
                distribution and its density are those of the parameter's logarithm
    lower, upper  limits at which the density is truncated; they change only its normalising
                  constant
    raises      ProblemError for an unknown distribution, or for parameters that the
                distribution does not allow
    """

    law: Annotated[str, Rule(lambda v: v in LAWS, f"one of {', '.join(LAWS)}")]
    parameters: Annotated[
        tuple[float, ...],
        Rule(lambda v: isinstance(v, tuple) and is_finite(*v), "numbers, such as (0.0, 1.0)"),
    ]
    scale: Annotated[str, Rule(lambda v: v in SCALES, f"one of {', '.join(SCALES)}")] = "lin"
    lower: float = -np.inf
    upper: float = np.inf

    def __post_init__(self) -> None:
        if isinstance(self.parameters, list):
            object.__setattr__(self, "parameters", tuple(self.parameters))
        super().__post_init__()
        sound = len(self.parameters) == LAWS[self.law].size
        if not sound or not np.isfinite(self._distribution.logpdf(self._distribution.median())):
            raise ProblemError(
                f"A {self.law} prior has the parameters {self.parameters}; expected "
                f"{counted(LAWS[self.law].size, 'number')} that define a "
                "distribution of positive width."
            )

    @cached_property
    def _distribution(self) -> Any:
        return LAWS[self.law].distribution(*self.parameters)

    @cached_property
    def _inside(self) -> float:
        """Probability between the limits."""
        law, there = self._distribution, self._there
        return float(law.cdf(there(self.upper)) - law.cdf(there(self.lower)))

    @property
    def mean(self) -> float:
        """Median of the prior, as a value of the parameter itself, not of its logarithm."""
        middle = float(self._distribution.median())
        return float(np.exp(SCALES[self.scale] * middle)) if SCALES[self.scale] else middle

    @property
    def has_kink(self) -> bool:
        """Return True if the density has a kink; its curvature says nothing about errors then."""
        return self.law.endswith("laplace")

    def is_on_kink(self, x: float) -> bool:
        """Return True if x is the value at which the density has a kink, up to rounding."""
        return self._from_kink(x) <= KINK

    def _from_kink(self, x: float) -> float:
        """How far x is from a kink, in units of its scale; infinite without one."""
        share = self._distribution.cdf(self._there(x)) if self.has_kink else 0.0
        return -math.log(2 * min(share, 1 - share)) if 0 < share < 1 else math.inf

    def log_density(self, x: float) -> float:
        """Natural logarithm of the density at x, on the prior's scale. Kinks are rounded."""
        law, there = self._distribution, self._there
        away = self._from_kink(x) / ROUND
        lost = ROUND * (1 - away) ** 2 / 2 if away < 1 else 0.0
        return float(law.logpdf(there(x)) - np.log(self._inside)) - lost

    def bend(self, x: float) -> Bend:
        """Return the slope and curvature (`Bend`) of the negative log density with respect to the
        parameter itself, not to its logarithm."""
        base, given = SCALES[self.scale], self.parameters
        by = 1 / (base * x) if base else 1.0
        slope, curvature = LAWS[self.law].bend(self._there(x), *given)
        return Bend(slope * by, curvature * by**2)

    def _there(self, x: float) -> float:
        if not SCALES[self.scale]:
            return x
        return float(np.log(x) / SCALES[self.scale]) if x > 0 else -np.inf


def kinks_of(priors: Mapping[str, NormalPrior | Prior]) -> dict[str, float]:
    """Return the values at which the densities of unknowns have a kink."""
    return {n: p.mean for n, p in priors.items() if isinstance(p, Prior) and p.has_kink}


def check_priors(priors: Mapping[str, NormalPrior | Prior], unknowns: Box) -> None:
    """Raise ProblemError for a prior of no unknown, and for one that the bounds contradict."""
    if others := [n for n in priors if n not in unknowns.names]:
        raise ProblemError(
            f"Priors are given for {others}, which are not unknowns. The unknowns are "
            f"{list(unknowns.names)}."
        )
    for name, prior in priors.items():
        if not isinstance(prior, NormalPrior):
            continue
        k = unknowns.names.index(name)
        low, high = float(unknowns.lower[k]), float(unknowns.upper[k])
        if not low - FAR * prior.deviation <= prior.mean <= high + FAR * prior.deviation:
            raise ProblemError(
                f"The prior of '{name}' is {prior.mean:g} ± {prior.deviation:g}, but its bounds "
                f"are [{low:g}, {high:g}]: no value within them agrees with the prior. Correct "
                "the prior or the bounds."
            )
