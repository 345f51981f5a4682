"""Which samples to take: a convex relaxation with a proven bound, then exchanges.

Exchanges end in local optima. They start from the choices that the relaxation met, from those that
it meets for D-optimality (E and modified E have flat places, D has none), and from random ones, of
which every other one keeps half of the best samples: the fewer exchanges are possible, the more.

Let w in [0, 1] say how often each sample is taken. Φ is concave in w (`information.py`), so that
for any w and every allowed choice v of samples

    Φ(v) <= Φ(w) + sum of (v - w) dΦ/dw <= Φ(w) + max over allowed v of sum of (v - w) dΦ/dw,

the equivalence theorem of Kiefer and Wolfowitz (1960) as an inequality. The maximum is
found exactly, by a recursion over the times that keeps number and spacing. Simplicial
decomposition lowers the bound: w is the best mixture of the choices met. Each set of quantities has
a bound of its own, and the largest of them holds for all.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from igpe.core.arrays import BoolArray, FloatArray
from igpe.planning.information import DesignInformation, DOptimal

MIXTURES = 40  # mixtures tried at most; the bound is valid after each
CLOSED = 1e-4  # of an efficiency: a bound this near is as good as reached
FIRST = 10  # choices met that are improved by exchanges
MOST = 40  # random choices that are improved as well, at most; modified E has many local optima:
MOST_NOT_CONCAVE = 300
SETS = 4  # of quantities, the best ones, whose samples are sought from random choices
KEPT = 0.5  # of the best samples, in every other of them
EXCHANGES = 100_000  # so many single exchanges, divided by those of one round, are their number
BETTER = 1e-9  # an exchange that brings less ends the search
ROUNDING = 1e-9  # of the horizon: two times may be this much closer than the spacing


@dataclass(frozen=True)
class SamplingRules:
    """Which choices of samples are allowed.

    times      (n_times,) candidates;  at_most: samples in each experiment;  spacing: between two
    quantities sets of measured quantities (n_measured,) to choose one of
    """

    times: FloatArray
    at_most: int
    spacing: float
    quantities: tuple[BoolArray, ...]

    @property
    def everything(self) -> bool:
        """Whether nothing needs to be chosen."""
        close = len(self.times) > 1 and np.diff(self.times).min() < self.spacing
        return self.at_most >= len(self.times) and len(self.quantities) == 1 and not close

    @property
    def apart(self) -> float:
        """The spacing less what rounding may take from it."""
        return self.spacing - ROUNDING * float(self.times[-1] - self.times[0])

    def best(self, gains: FloatArray) -> BoolArray:
        """The choice of largest sum of gains (n_experiments, n_times, n_measured), of one set."""
        (chosen,) = self.quantities
        taken = np.array([self._best_times(row) for row in gains @ chosen.astype(float)])
        return np.asarray(taken[..., None] & chosen)

    def _best_times(self, gains: FloatArray) -> BoolArray:
        """Largest sum with the given number and spacing, by recursion from the left."""
        n = len(gains)
        before = np.searchsorted(self.times, self.times - max(self.apart, 0.0), "right")
        before = np.minimum(before, np.arange(n))  # how many samples are early enough for the next
        best = np.zeros((n + 1, self.at_most + 1))
        for i in range(n):
            best[i + 1] = best[i]
            best[i + 1, 1:] = np.maximum(best[i, 1:], best[before[i], :-1] + gains[i])
        taken, i, left = np.zeros(n, dtype=bool), n, self.at_most
        while i > 0 and left > 0:
            if best[i, left] > best[i - 1, left]:
                taken[i - 1], i, left = True, int(before[i - 1]), left - 1
            else:
                i -= 1
        return taken


class SampleChoice(NamedTuple):
    """The samples, and how good they are.

    taken       (n_experiments, n_times, n_measured)
    value       Φ of them;  bound: no allowed choice has more (infinite if nothing is proven)
    """

    taken: BoolArray
    value: float
    bound: float

    @property
    def efficiency(self) -> float:
        """At least this share of the information of the best choice; NaN if nothing is proven."""
        return float(np.exp(min(self.value - self.bound, 0.0))) if self.bound < np.inf else np.nan


def sets_of_quantities(count: int, at_most: int | None) -> tuple[BoolArray, ...]:
    """Which quantities may be measured together: sets of the largest allowed size."""
    size = count if at_most is None else min(at_most, count)
    return tuple(np.isin(range(count), one) for one in combinations(range(count), size))


def choose(
    gained: DesignInformation, allowed: SamplingRules, *, thorough: bool = True
) -> SampleChoice:
    """The best samples found, with a bound on what any others could tell.

    thorough  whether exchanges start from random choices as well
    """
    if allowed.everything:
        taken = np.ones(gained.shape, dtype=bool) & allowed.quantities[0]
        value = gained.value(taken.astype(float))
        return SampleChoice(taken, value, value)
    searches = [_Exchanges(gained, replace(allowed, quantities=(q,))) for q in allowed.quantities]
    each = [(search.from_relaxed(), search) for search in searches]
    bound = max(one.bound for one, _ in each)
    ranked = sorted(each, key=lambda pair: -pair[0].value)
    best = ranked[0][0]
    for one, search in ranked[: SETS if thorough else 0]:
        if one.bound > best.value + CLOSED:
            best = max(best, search.restarted(one), key=lambda other: other.value)
    return best._replace(bound=bound)


def _relaxed(gained: DesignInformation, allowed: SamplingRules) -> tuple[float, list[BoolArray]]:
    """The bound, and the choices met on the way, of one set of quantities."""
    if not gained.judge.criterion.concave:
        return np.inf, []
    share = allowed.at_most / len(allowed.times)
    met = [allowed.best(gained.gains(np.ones(gained.shape) * allowed.quantities[0] * share))]
    weights, bound = met[0].astype(float), np.inf
    mixture = np.ones(1)
    for _ in range(MIXTURES):
        gains = gained.gains(weights)
        vertex = allowed.best(gains)
        gap = float((gains * (vertex - weights)).sum())
        bound = min(bound, gained.value(weights) + gap)
        if gap < CLOSED or any((vertex == v).all() for v in met):
            break
        met.append(vertex)
        mixture = _mixed(gained, np.array(met, dtype=float), np.append(mixture, 0.0))
        weights = np.tensordot(mixture, np.array(met, dtype=float), 1)
    return bound, met


def _mixed(gained: DesignInformation, choices: FloatArray, start: FloatArray) -> FloatArray:
    """The best mixture (n,) of choices: shares that sum to 1."""

    def loss(shares: FloatArray) -> tuple[float, FloatArray]:
        weights = np.tensordot(shares, choices, 1)
        slope = np.tensordot(choices, gained.gains(weights), 3)
        return -gained.value(weights), -np.asarray(slope)

    n = len(choices)
    begin = 0.9 * start + 0.1 / n
    minimum = minimize(  # type: ignore[call-overload]  # the stubs know no gradient with a value
        loss, begin, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * n,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1, "jac": lambda s: np.ones(n)},
        options={"maxiter": 60, "ftol": 1e-9},
    )  # fmt: skip
    shares = np.clip(minimum.x, 0.0, None)
    shares = shares / shares.sum() if np.isfinite(shares).all() and shares.sum() > 0 else begin
    return shares if loss(shares)[0] <= loss(begin)[0] else begin


@dataclass(frozen=True)
class _Exchanges:
    """Exchanges of samples of one set of quantities; times (n_experiments, n_times) are taken."""

    gained: DesignInformation
    allowed: SamplingRules

    @cached_property
    def samples(self) -> list[FloatArray]:
        """(n_experiments, n_times, n, n) for each scenario: the information of each sample."""
        return self.gained.samples(self.allowed.quantities[0])

    def from_relaxed(self) -> SampleChoice:
        """The best after exchanges from the choices that the relaxation met, with its bound.

        Mixtures of several sets of quantities would make the bound weak.
        """
        gained, judge = self.gained, self.gained.judge
        bound, met = _relaxed(gained, self.allowed)
        if not isinstance(judge.criterion, DOptimal):
            volume = replace(gained, judge=replace(judge, criterion=DOptimal()))
            met = [*met, *_relaxed(volume, self.allowed)[1]]
        ranked = sorted(met, key=lambda v: -gained.value(v.astype(float)))
        ends = [self.ended(v) for v in ranked[:FIRST]]
        return max(ends, key=lambda one: one.value)._replace(bound=bound)

    def restarted(self, best: SampleChoice) -> SampleChoice:
        """The best after exchanges from random choices; deterministic."""
        random, shape = np.random.default_rng(0), self.gained.shape
        most = MOST if self.gained.judge.criterion.concave else MOST_NOT_CONCAVE
        for k in range(min(most, EXCHANGES // (shape[0] * self.allowed.at_most * shape[1]))):
            if best.value >= best.bound - CLOSED:
                break
            kept = (k % 2) * best.taken * (random.uniform(size=(*shape[:2], 1)) < KEPT)
            end = self.ended(self.allowed.best(random.uniform(size=shape) + shape[1] * kept))
            best = end._replace(bound=best.bound) if end.value > best.value else best
        return best

    def ended(self, start: BoolArray) -> SampleChoice:
        """Samples exchanged one by one for better ones, until none is better.

        Where fewer are taken than allowed, one is added if that is no loss. Only a criterion that
        is not concave may prefer to know less: there one is left out if that is better.
        """
        times: BoolArray = np.asarray(start.any(axis=2))
        now = self._value(times)
        better = True
        while better:
            better = False
            for e in range(len(times)):
                spare = self.allowed.at_most - int(times[e].sum())
                for i in (*np.flatnonzero(times[e]), *[None] * spare):
                    moved, value = self._moved(times, e, i)
                    adds = i is None and self.gained.judge.criterion.concave
                    if value > now + BETTER or (adds and value >= now - BETTER):
                        times, now, better = moved, value, True
        return SampleChoice(np.asarray(times[..., None] & self.allowed.quantities[0]), now, np.inf)

    def _moved(self, times: BoolArray, e: int, i: Any) -> tuple[BoolArray, float]:
        """The best choice with sample i of an experiment elsewhere or left out, and its Φ.

        i  None: with one more
        """
        left = times.copy()
        if i is not None:
            left[e, i] = False
        t = self.allowed.times
        near = np.abs(t - t[left[e], None]) < self.allowed.apart
        possible = np.flatnonzero(~left[e] & ~near.any(axis=0))
        if len(possible) == 0:
            return left, -np.inf
        pairs = zip(self._informations(left), self.samples, strict=True)
        moves = [np.concatenate([f[None], f + s[e, possible]]) for f, s in pairs]
        judge = self.gained.judge
        less, *values = judge.together([judge(one) for one in moves])
        best = int(np.argmax(values))
        if i is not None and less > values[best] and not judge.criterion.concave:
            return left, float(less)
        left[e, possible[best]] = True
        return left, float(values[best])

    def _value(self, times: BoolArray) -> float:
        judge = self.gained.judge
        return float(judge.together([judge(f) for f in self._informations(times)]))

    def _informations(self, times: BoolArray) -> list[FloatArray]:
        pairs = zip(self.gained.known, self.samples, strict=True)
        return [known + samples[times].sum(axis=0) for known, samples in pairs]
