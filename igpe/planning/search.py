"""The search for the best numbers: a pool of random experiments, the best of them together, then
gradients, in turn with the choice of samples.

Nothing is proven about the numbers: the best of several starts (Houska et al. 2012, section 3:
non-convex, local optima work well).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.stats import qmc

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import finishing
from igpe.planning.choosing import Allowed, Chosen, choose
from igpe.planning.evidence import Evidence, Judge, Space
from igpe.planning.told import Told

ROUNDS = 6  # of numbers and samples in turn
ENOUGH = 1e-4  # of an efficiency: a round that brings less is the last
BROKEN = 1e3  # loss of a design that cannot be integrated
STEPS = 150  # of the local search


class Found(NamedTuple):
    """The numbers (n_experiments, n_choices), the samples, and how the starts ended.

    complete  False if the search was interrupted
    """

    design: FloatArray
    chosen: Chosen
    values: tuple[float, ...]
    complete: bool = True


@dataclass(frozen=True)
class Search:
    """What is sought.

    told      for each scenario;  before: (m, n) rows of what is known, for each scenario
    lower, width  (n_choices,) of the numbers;  steep: (m, n_choices) differences that are at most
                  `steepest` (m,), either way
    pool      random experiments to begin with;  starts: local searches
    """

    told: Sequence[Told]
    before: Sequence[FloatArray]
    space: Space
    judge: Judge
    allowed: Allowed
    lower: FloatArray
    width: FloatArray
    steep: FloatArray
    steepest: FloatArray
    pool: int
    starts: int
    seed: int

    @cached_property
    def known(self) -> list[FloatArray]:
        """(n, n) information before, for each scenario."""
        return [rows.T @ rows for rows in self.before]

    def run(self, first: FloatArray | None) -> Found | None:
        """The best design found, None if all broke down; `first` (n_choices,) is one to try.

        At Ctrl-C the best so far; raises KeyboardInterrupt before there is one.
        """
        if len(self.lower) == 0:
            return self._nothing_free()
        pool = self._pool(first)
        if not pool:
            return None
        begins = self._begins(pool)
        found: list[tuple[FloatArray, Chosen]] = []
        complete = True
        try:
            found += (one for one in map(self._improved, begins) if one is not None)
            found = self._with_more_choices(found)
        except KeyboardInterrupt:
            complete = False
            with finishing():
                found = found or self._as_they_are(begins)
        if not found:
            return None
        best = max(found, key=lambda one: one[1].value)
        return Found(best[0], best[1], tuple(one[1].value for one in found), complete)

    def _with_more_choices(
        self, found: list[tuple[FloatArray, Chosen]]
    ) -> list[tuple[FloatArray, Chosen]]:
        """The same with the samples of the best design sought from random choices as well."""
        best = max(range(len(found)), key=lambda i: found[i][1].value, default=None)
        evidence = None if best is None else self.evidence(found[best][0])
        if best is None or evidence is None:
            return found
        chosen = choose(evidence, self.allowed)
        return [(d, chosen if i == best else c) for i, (d, c) in enumerate(found)]

    def _as_they_are(self, begins: Sequence[FloatArray]) -> list[tuple[FloatArray, Chosen]]:
        """The first experiment that a local search would have begun with, for want of its end."""
        for cube in begins:
            design = self._numbers(cube.reshape(len(self.space.places), -1))
            evidence = self.evidence(design)
            if evidence is not None:
                return [(design, choose(evidence, self.allowed, thorough=False))]
        return []

    def _nothing_free(self) -> Found | None:
        design = np.zeros((len(self.space.places), 0))
        evidence = self.evidence(design)
        return None if evidence is None else Found(design, choose(evidence, self.allowed), ())

    def _even(self) -> FloatArray:
        """Weights of samples that are not chosen yet: each an equal share."""
        shares = np.mean([q.astype(float) for q in self.allowed.quantities], axis=0)
        n_t = len(self.allowed.times)
        share = min(self.allowed.at_most / n_t, 1.0)
        return np.asarray(np.full((len(self.space.places), n_t, len(shares)), share) * shares)

    def _numbers(self, cube: FloatArray) -> FloatArray:
        return np.asarray(self.lower + np.clip(cube, 0.0, 1.0) * self.width)

    def _pool(self, first: FloatArray | None) -> list[tuple[FloatArray, list[FloatArray]]]:
        """Random experiments in the unit cube that can be integrated, with their rows."""
        sampler = qmc.Sobol(len(self.lower), rng=np.random.default_rng(self.seed))
        cubes = [self._gentle(c) for c in sampler.random_base2(int(np.log2(max(self.pool, 2))))]
        if first is not None:
            cubes.insert(0, self._gentle(np.clip((first - self.lower) / self.width, 0.0, 1.0)))
        rows = [[t.rows(self._numbers(c)) for t in self.told] for c in cubes]
        return [
            (c, [r for r in scenario if r is not None])
            for c, scenario in zip(cubes, rows, strict=True)
            if all(r is not None for r in scenario)
        ]

    def _gentle(self, cube: FloatArray) -> FloatArray:
        """With differences that are too steep cut, from the left to the right."""
        gentle = cube.copy()
        for row, most in zip(self.steep, self.steepest, strict=True):
            later, earlier = int(np.argmax(row)), int(np.argmin(row))
            gentle[later] = gentle[earlier] + np.clip(gentle[later] - gentle[earlier], -most, most)
        return gentle

    def _begins(self, pool: list[tuple[FloatArray, list[FloatArray]]]) -> list[FloatArray]:
        """Experiments of the pool that tell most together: of all, then of random halves."""
        rng, weights = np.random.default_rng(self.seed), self._even()
        gained = [
            np.array([
                np.einsum("tmrp,tm,tmrq->pq", rows[s], weights[0], rows[s]) for _, rows in pool
            ])
            for s in range(len(self.told))
        ]
        halves = [rng.permutation(len(pool))[: (len(pool) + 1) // 2] for _ in range(self.starts)]
        groups = [np.arange(len(pool)), *halves[1:]]
        cubes = np.array([cube for cube, _ in pool])
        found = {tuple(self._greedy(gained, group)) for group in groups}
        return [cubes[list(members)].ravel() for members in sorted(found)]

    def _greedy(self, gained: list[FloatArray], group: IntArray) -> list[int]:
        """One experiment after the other, the one that adds most."""
        now, taken = list(self.known), []
        for e in range(len(self.space.places)):
            added = [self.space.whole(g[group], e) for g in gained]
            values = np.mean([self.judge(f + a) for f, a in zip(now, added, strict=True)], axis=0)
            best = int(values.argmax())
            taken.append(int(group[best]))
            now = [f + a[best] for f, a in zip(now, added, strict=True)]
        return taken

    def _improved(self, cube: FloatArray) -> tuple[FloatArray, Chosen] | None:
        """Numbers and samples in turn until neither changes much."""
        weights, best = self._even(), None
        for _ in range(ROUNDS):
            cube = self._local(cube, weights)
            design = self._numbers(cube.reshape(len(self.space.places), -1))
            evidence = self.evidence(design)
            if evidence is None:
                return best
            chosen = choose(evidence, self.allowed, thorough=False)
            gain = np.inf if best is None else chosen.value - best[1].value
            if gain > 0:
                best = design, chosen
            if gain < ENOUGH or self.allowed.everything:
                return best
            weights = chosen.taken.astype(float)
        return best

    def _local(self, cube: FloatArray, weights: FloatArray) -> FloatArray:
        """A local search from a point of the unit cube; never worse than it."""
        loss = self.loss(weights)
        n_e, n = len(self.space.places), len(self.lower)
        limits = np.kron(np.eye(n_e), self.steep)
        method: dict[str, object] = {"method": "L-BFGS-B", "options": {"maxiter": STEPS}}
        if len(limits):
            most = np.tile(self.steepest, n_e)
            method = {
                "method": "SLSQP",
                "constraints": LinearConstraint(limits, -most, most),
                "options": {"maxiter": STEPS, "ftol": 1e-8},
            }
        bounds = [(0.0, 1.0)] * (n * n_e)
        found = minimize(loss, cube, jac=True, bounds=bounds, **method)  # type: ignore[call-overload]
        end = np.clip(found.x, 0.0, 1.0)
        return end if loss(end)[0] <= loss(cube)[0] else cube

    def loss(self, weights: FloatArray) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        """-Φ and its gradient, as a function of the cube (n_experiments * n_choices,)."""
        n_e = len(self.space.places)

        def of(cube: FloatArray) -> tuple[float, FloatArray]:
            design = self._numbers(cube.reshape(n_e, -1))
            value, slope = 0.0, np.zeros(design.shape)
            for told, known in zip(self.told, self.known, strict=True):
                rows = [told.rows_and_slopes(one) for one in design]
                if any(r is None for r in rows):
                    return BROKEN, np.zeros(len(cube))
                values = np.array([r.value for r in rows if r is not None])
                evidence = Evidence(self.space, self.judge, [known], [values])
                (information,) = evidence.informations(weights)
                value += float(self.judge(information)) / len(self.told)
                outer = self.judge.slope(information)
                for e, place in enumerate(self.space.places):
                    own, row = outer[place[:, None], place], rows[e]
                    assert row is not None
                    slope[e] += (
                        2
                        / len(self.told)
                        * np.einsum(
                            "tmrp,pq,tmrqd,tm->d",
                            row.value,
                            own,
                            row.slope,
                            weights[e],
                            optimize=True,
                        )
                    )
            return -value, -(slope * self.width).ravel()

        return of

    def evidence(self, design: FloatArray) -> Evidence | None:
        """What a design tells in each scenario; None where it cannot be integrated."""
        rows = [[told.rows(one) for one in design] for told in self.told]
        if any(r is None for scenario in rows for r in scenario):
            return None
        return Evidence(self.space, self.judge, self.known, [np.array(r) for r in rows])
