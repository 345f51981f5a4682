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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.planning.design_limits import SampleCost
from igpe.planning.information import DesignInformation, DOptimal

MIXTURES = 40  # mixtures tried at most; the bound is valid after each
CLOSED = 1e-4  # of an efficiency: a bound this near is as good as reached
FIRST = 10  # choices met that are improved by exchanges
MOST = 40  # random choices that are improved as well, at most; modified E has many local optima:
MOST_NOT_CONCAVE = 300
SETS = 4  # of quantities, the best ones, whose samples are sought from random choices
COMPARED, COMPARED_BY_ONE = 200, 5000  # options, with several common budgets and with one
SUBSETS = 3  # experiments of which each may be without samples at first; more take turns
KEPT = 0.5  # of the best samples, in every other of them
EXCHANGES = 100_000  # so many single exchanges, divided by those of one round, are their number
BETTER = 1e-9  # an exchange that brings less ends the search
ROUNDING = 1e-9  # of the horizon: two times may be this much closer than the spacing


@dataclass(frozen=True)
class SamplingRules:
    """Which choices of samples are allowed.

    times      (n_times,) candidates;  at_most: samples in each experiment;  spacing: between two
    quantities sets of measured quantities (n_measured,) to choose one of
    budgets    what the samples may cost
    """

    times: FloatArray
    at_most: int
    spacing: float
    quantities: tuple[BoolArray, ...]
    budgets: tuple[SampleCost, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether nothing needs to be chosen."""
        close = len(self.times) > 1 and np.diff(self.times).min() < self.spacing
        return (
            self.at_most >= len(self.times)
            and len(self.quantities) == 1
            and not close
            and self.affords(np.ones((self.count, len(self.times)), dtype=bool))
        )

    @property
    def count(self) -> int:
        """Number of experiments that the budgets are about."""
        return len(self.budgets[0].fixed) if self.budgets else 1

    def affords(self, taken: BoolArray) -> bool:
        """Whether the budgets pay for these samples (n_experiments, n_times)."""
        each = [(b, b.of_samples(self.times, taken)) for b in self.budgets]
        return all(b.total(costs) <= b.most for b, costs in each)

    @property
    def apart(self) -> float:
        """The spacing less what rounding may take from it."""
        return self.spacing - ROUNDING * float(self.times[-1] - self.times[0])

    def best(self, gains: FloatArray) -> tuple[BoolArray, bool]:
        """The choice of largest sum of gains (n_experiments, n_times, n_measured), of one set, and
        whether it is certainly the largest: with many options and budgets not all are compared."""
        (chosen,) = self.quantities
        each = [_BestTimes(self, row) for row in gains @ chosen.astype(float)]
        ends, is_largest = [one.unlimited for one in each], True
        if self.budgets:
            ends, is_largest = self._affordable(each)
        taken = np.array([one.chosen(end) for one, end in zip(each, ends, strict=True)])
        return np.asarray(taken[..., None] & chosen), is_largest

    def _affordable(self, each: "Sequence[_BestTimes]") -> tuple[list[tuple[int, int]], bool]:
        """Number and last one of the samples of each experiment, with the largest sum of gains that
        the budgets pay for: combined one experiment after the other, without what is dominated.

        And whether all were compared.
        """
        options = [self._options(e, one) for e, one in enumerate(each)]
        most = np.array([b.most for b in self.budgets if not b.budget.each])
        joined = _Options(np.zeros(1), np.zeros((1, len(most))), [()], all_compared=True)
        for e, one in enumerate(options):
            # settings with negative costs: later experiments may pay for this one
            later = sum((o.costs.min(axis=0) for o in options[e + 1 :]), np.zeros(len(most)))
            total = (joined.gains[:, None] + one.gains).ravel()
            cost = (joined.costs[:, None] + one.costs).reshape(len(total), len(most))
            within = np.flatnonzero((cost + later <= most).all(axis=1))
            kept, is_all = _to_compare(total[within], cost[within])
            within = within[kept]
            before, added = np.divmod(within, len(one.gains))
            pairs = zip(before, added, strict=True)
            ends = [(*joined.ends[i], *one.ends[k]) for i, k in pairs]
            is_all &= joined.all_compared and one.all_compared
            joined = _Options(total[within], cost[within], ends, all_compared=is_all)
        return list(joined.ends[int(np.argmax(joined.gains))]), joined.all_compared

    def _options(self, e: int, one: "_BestTimes") -> "_Options":
        """Numbers of samples of an experiment, and the last sample, that its own budgets allow."""
        number, last = np.nonzero(np.isfinite(one.gains))
        own: list[FloatArray] = []
        for b in self.budgets:
            cost = b.of(e, number, self.times[last])
            if b.budget.each:
                paid = cost <= b.most
                number, last = number[paid], last[paid]
                own = [part[paid] for part in own]
            else:
                own.append(cost)
        costs = np.array(own).reshape(len(own), len(number)).T
        gains = one.gains[number, last]
        kept, is_all = _to_compare(gains, costs)
        ends = [((int(number[k]), int(last[k])),) for k in kept]
        return _Options(gains[kept], costs[kept], ends, all_compared=is_all)


class _Options(NamedTuple):
    """Choices of the samples of some experiments, with their sums of gains and costs (n, n_costs).

    ends          number and last one of the samples, for each experiment
    all_compared  False if some choices were left out that might have been the best
    """

    gains: FloatArray
    costs: FloatArray
    ends: Sequence[tuple[tuple[int, int], ...]]
    all_compared: bool


def _to_compare(gains: FloatArray, costs: FloatArray) -> tuple[IntArray, bool]:
    """Places of choices that are not dominated, and whether these are all."""
    kept = _not_dominated(gains, costs)
    fewer = _thinned(gains[kept], costs[kept])
    return kept[fewer], len(fewer) == len(kept)


def _thinned(gains: FloatArray, costs: FloatArray) -> IntArray:
    """Places of those to compare (n, n_costs): of too many, the largest gain in each cell of a grid
    over the costs."""
    n, width = costs.shape
    most = COMPARED if width > 1 else COMPARED_BY_ONE
    if n <= most:
        return np.arange(n)
    span = np.ptp(costs, axis=0)
    steps = int(most ** (1 / max(width, 1)))
    cells = np.floor((costs - costs.min(axis=0)) / np.where(span > 0, span, 1.0) * (steps - 1))
    order = np.argsort(-gains, kind="stable")
    _, first = np.unique(cells[order], axis=0, return_index=True)
    return np.asarray(order[first])


def _not_dominated(gains: FloatArray, costs: FloatArray) -> IntArray:
    """Places of those to which no other one has as large a gain at no larger costs (n, n_costs)."""
    order = np.lexsort((*costs.T, -gains))
    if costs.shape[1] == 0:
        return order[:1]
    costs = costs[order]
    if costs.shape[1] == 1:
        least = np.minimum.accumulate(np.append(np.inf, costs[:-1, 0]))
        return np.asarray(order[costs[:, 0] < least])
    kept: list[int] = []
    costs = np.ascontiguousarray(costs.T)
    while len(order):
        kept.append(int(order[0]))
        others = np.logical_or.reduce(costs < costs[:, :1])
        order, costs = order[others], costs[:, others]
    return np.array(kept, dtype=np.intp)


class _BestTimes:
    """The samples of one experiment with the largest sum of gains (n_times,), by recursion from the
    left.

    gains  (at_most + 1, n_times) the largest sum of so many samples at most, the last of them at
           this time; without any samples 0 at the first time; -inf where there are none
    """

    def __init__(self, allowed: SamplingRules, gains: FloatArray) -> None:
        times, n, most = allowed.times, len(gains), allowed.at_most
        before = np.searchsorted(times, times - max(allowed.apart, 0.0), "right")
        self._before = np.minimum(before, np.arange(n))  # samples early enough for the next
        self._best = np.zeros((n + 1, most + 1))
        self.gains = np.full((most + 1, n), -np.inf)
        self.gains[0, 0] = 0.0
        for i in range(n):
            self.gains[1:, i] = self._best[self._before[i], :-1] + gains[i]
            self._best[i + 1] = self._best[i]
            self._best[i + 1, 1:] = np.maximum(self._best[i, 1:], self.gains[1:, i])

    @property
    def unlimited(self) -> tuple[int, int]:
        """Number and last one of the samples with the largest sum."""
        number, last = np.unravel_index(int(np.argmax(self.gains)), self.gains.shape)
        return int(number), int(last)

    def chosen(self, end: tuple[int, int]) -> BoolArray:
        """(n_times,) the samples, from their number and the last one."""
        left, last = end
        taken = np.zeros(self.gains.shape[1], dtype=bool)
        while left > 0:
            taken[last] = True
            i, left = int(self._before[last]), left - 1
            while i > 0 and left > 0 and self._best[i, left] <= self._best[i - 1, left]:
                i -= 1
            if i == 0:
                break
            last = i - 1
        return taken


class SampleChoice(NamedTuple):
    """The samples, and how good they are.

    taken       (n_experiments, n_times, n_measured)
    value       Φ of them;  bound: no allowed choice has more (infinite if nothing is proven)
    weights     as `taken`, where numbers of samples need not be whole: the best such design met
    """

    taken: BoolArray
    value: float
    bound: float
    weights: FloatArray

    @property
    def times(self) -> BoolArray:
        """(n_experiments, n_times) when samples are taken."""
        return np.asarray(self.taken.any(axis=2))

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
    """The best samples, with an upper bound on the criterion of all allowed ones.

    thorough  whether exchanges start from random choices as well
    """
    if allowed.everything:
        taken = np.ones(gained.shape, dtype=bool) & allowed.quantities[0]
        value = gained.value(taken.astype(float))
        return SampleChoice(taken, value, value, taken.astype(float))
    searches = [_Exchanges(gained, replace(allowed, quantities=(q,))) for q in allowed.quantities]
    each = [(search.from_relaxed(), search) for search in searches]
    bound = max(one.bound for one, _ in each)
    ranked = sorted(each, key=lambda pair: -pair[0].value)
    best = ranked[0][0]
    for one, search in ranked[: SETS if thorough else 0]:
        if one.bound > best.value + CLOSED:
            best = max(best, search.restarted(one), key=lambda other: other.value)
    return best._replace(bound=bound)


class _Relaxed(NamedTuple):
    """The bound of one set of quantities, the choices met on the way, and the best mixture."""

    bound: float
    met: list[BoolArray]
    weights: FloatArray


def _relaxed(gained: DesignInformation, allowed: SamplingRules) -> _Relaxed:
    if not gained.phi.criterion.concave:
        return _Relaxed(np.inf, [], np.full(gained.shape, np.nan))
    share = allowed.at_most / len(allowed.times)
    even = np.ones(gained.shape) * allowed.quantities[0] * share
    met = [allowed.best(gained.gains(even))[0]]
    weights, bound = met[0].astype(float), np.inf
    mixture = np.ones(1)
    for _ in range(MIXTURES):
        gains = gained.gains(weights)
        vertex, is_largest = allowed.best(gains)
        gap = float((gains * (vertex - weights)).sum())
        bound = min(bound, gained.value(weights) + gap) if is_largest else bound
        if gap < CLOSED or any((vertex == v).all() for v in met):
            break
        met.append(vertex)
        mixture = _mixed(gained, np.array(met, dtype=float), np.append(mixture, 0.0))
        weights = np.tensordot(mixture, np.array(met, dtype=float), 1)
    return _Relaxed(bound, met, weights)


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
        gained, phi = self.gained, self.gained.phi
        bound, met, weights = _relaxed(gained, self.allowed)
        if not isinstance(phi.criterion, DOptimal):
            volume = replace(gained, phi=replace(phi, criterion=DOptimal()))
            met = [*met, *_relaxed(volume, self.allowed).met]
        ranked = sorted(met, key=lambda v: -gained.value(v.astype(float)))
        ends = [self.exchanged(v) for v in (*ranked[:FIRST], *self._sparse())]
        best = max(ends, key=lambda one: one.value)
        return best._replace(bound=bound, weights=weights)

    def _sparse(self) -> list[BoolArray]:
        """With budgets: only the first sample in some or all experiments, if the budgets allow it.

        Single exchanges rarely pay for another experiment once one has many samples.
        """
        count, n_t, _ = self.gained.shape
        used = [np.array(one) for one in product((True, False), repeat=min(count, SUBSETS))]
        first = np.arange(n_t) == 0
        starts = [np.resize(one, count)[:, None] & first for one in used if one.any()]
        paid = [s for s in starts if self.allowed.budgets and self.allowed.affords(s)]
        return [np.asarray(s[..., None] & self.allowed.quantities[0]) for s in paid]

    def restarted(self, best: SampleChoice) -> SampleChoice:
        """The best after exchanges from random choices; deterministic."""
        random, shape = np.random.default_rng(0), self.gained.shape
        most = MOST if self.gained.phi.criterion.concave else MOST_NOT_CONCAVE
        for k in range(min(most, EXCHANGES // (shape[0] * self.allowed.at_most * shape[1]))):
            if best.value >= best.bound - CLOSED:
                break
            kept = (k % 2) * best.taken * (random.uniform(size=(*shape[:2], 1)) < KEPT)
            part = np.asarray(kept, dtype=bool)
            is_part = (
                self.allowed.budgets
                and k % 2
                and self.allowed.affords(np.asarray(part.any(axis=2)))
            )
            filled, _ = self.allowed.best(random.uniform(size=shape) + shape[1] * kept)
            end = self.exchanged(part if is_part else filled)
            if end.value > best.value:
                best = best._replace(taken=end.taken, value=end.value)
        return best

    def exchanged(self, start: BoolArray) -> SampleChoice:
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
                    adds = i is None and self.gained.phi.criterion.concave
                    if value > now + BETTER or (adds and value >= now - BETTER):
                        times, now, better = moved, value, True
        taken = np.asarray(times[..., None] & self.allowed.quantities[0])
        return SampleChoice(taken, now, np.inf, taken.astype(float))

    def _moved(self, times: BoolArray, e: int, i: Any) -> tuple[BoolArray, float]:
        """The best choice with sample i of an experiment elsewhere or left out, and its Φ.

        With budgets, the sample may move to another experiment.
        i  None: with one more
        """
        left = times.copy()
        if i is not None:
            left[e, i] = False
        places = self._possible(left, [e] if not self.allowed.budgets else range(len(times)))
        if len(places) == 0:
            return left, -np.inf
        pairs = zip(self._informations(left), self.samples, strict=True)
        moves = [np.concatenate([f[None], f + s[tuple(places.T)]]) for f, s in pairs]
        phi = self.gained.phi
        less, *values = phi.together([phi(one) for one in moves])
        best = int(np.argmax(values))
        leaves_out = i is not None and not phi.criterion.concave and self.allowed.affords(left)
        if leaves_out and less > values[best]:
            return left, float(less)
        left[tuple(places[best])] = True
        return left, float(values[best])

    def _possible(self, left: BoolArray, experiments: Iterable[int]) -> IntArray:
        """(m, 2) experiment and time of every sample that may be added."""
        t, places = self.allowed.times, []
        each = [(b, b.of_samples(t, left)) for b in self.allowed.budgets]
        for e in experiments:
            number = int(left[e].sum())
            if number >= self.allowed.at_most:
                continue
            near = np.abs(t - t[left[e], None]) < self.allowed.apart
            free = np.flatnonzero(~left[e] & ~near.any(axis=0))
            last = np.maximum(t[free], t[left[e]].max(initial=-np.inf))
            for b, costs in each:
                others = 0.0 if b.budget.each else costs.sum() - costs[e]
                paid = others + b.of(e, number + 1, last) <= b.most
                free, last = free[paid], last[paid]
            places += [(e, k) for k in free]
        return np.array(places, dtype=np.intp).reshape(-1, 2)

    def _value(self, times: BoolArray) -> float:
        phi = self.gained.phi
        return float(phi.together([phi(f) for f in self._informations(times)]))

    def _informations(self, times: BoolArray) -> list[FloatArray]:
        pairs = zip(self.gained.known, self.samples, strict=True)
        return [known + samples[times].sum(axis=0) for known, samples in pairs]
