"""The search for the best numbers: a pool of random experiments, the best of them together, then
gradients, in turn with the choice of samples.

Nothing is proven about the numbers: the best of several starts (Houska et al. 2012, section 3:
non-convex, local optima work well).

What a planned experiment tells of the unknowns: sensitivities by standard deviations.

A measurement of h with a standard deviation s that the model computes has the information
h'h'/s^2 + 2 s's'/s^2 (outer products), as in `shooting/likelihood_residuals`: two rows.

Their derivatives by the design are exact where the second-order variational equations can be
compiled too, or nothing can. Long ones are not compiled (`RungeKutta`), and an
interpreter takes seven times as long for them as it takes to integrate the compiled sensitivities
twice for each number to choose (urethane, ten numbers: 44 against 6 ms): there, central differences
of the exact sensitivities.
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
from igpe.dynamics.integrators.base import Integrator, Simulation
from igpe.equations.initial_value import InitialValueProblem
from igpe.planning.information import DesignInformation, RegularisedCriterion, UnknownSpace
from igpe.planning.sample_choice import SampleChoice, SamplingRules, choose
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.noise.sigma import Deviation

SHIFT = 1e-3  # of a number's range, either way
ROOT = float(np.sqrt(2.0))


class SensitivityRows(NamedTuple):
    """(n_times, n_measured, n_rows, n) rows of samples, and their slopes (..., n_choices).

    A sample's information is the sum of the products row' row. The first row is the sensitivity by
    the standard deviation. There is a second one if a standard deviation is estimated.
    """

    value: FloatArray
    slope: FloatArray


class PlannedSensitivities:
    """Rows of one experiment at given parameters, as a function of the chosen numbers."""

    def __init__(
        self,
        ivp: InitialValueProblem,
        times: FloatArray,
        noise: Sequence[Deviation],
        integrator: Integrator,
        bounds: tuple[FloatArray, FloatArray],
    ) -> None:
        self.ivp, self.integrator, self.bounds = ivp, integrator, bounds
        self.times, self._replicates = np.unique(times, return_inverse=True)
        self.noise = noise
        names = [n.name for n in noise if isinstance(n, EstimatedSigma)]
        places = {n: len(noise) + i for i, n in enumerate(dict.fromkeys(names))}
        self.estimated = np.array([isinstance(n, EstimatedSigma) for n in noise])
        self.deviation = [
            places[n.name] if isinstance(n, EstimatedSigma) else i for i, n in enumerate(noise)
        ]
        self.outputs = len(noise) + len(places)
        self._plain = integrator.simulation(ivp, self.times, sensitivities=False)

    def rows(self, design: FloatArray) -> FloatArray | None:
        """(n_times, n_measured, n_rows, n) at a design (n_choices,).

        None where it cannot be integrated, or an estimated deviation is not positive
        """
        told = self._told(design)
        if told is None:
            return None
        h, s = self._split(told)
        sigma = self._sigma(h)
        found = [s[:, : sigma.shape[1]]]
        if self.estimated.any():
            found.append(np.where(self.estimated[:, None], ROOT * s[:, self.deviation], 0.0))
        rows = np.stack(found, axis=2) / sigma[..., None, None]
        return rows[self._replicates] if np.isfinite(rows).all() else None

    def rows_and_slopes(self, design: FloatArray) -> SensitivityRows | None:
        """The same with derivatives by the design; None where it cannot be integrated."""
        found = self._told_with_slopes(design)
        if found is None:
            return None
        (h, s), (dh, ds) = self._split(found[0]), self._split(found[1])
        sigma, m = self._sigma(h), len(self.noise)
        own = self._by_formula(h, "slope")[..., None] * dh[:, :m]
        dsigma = np.where(self.estimated[:, None], dh[:, self.deviation], own)[:, :, None, None]
        values, slopes = [s[:, :m]], [ds[:, :m]]
        if self.estimated.any():
            mine = self.estimated[:, None]
            values.append(np.where(mine, ROOT * s[:, self.deviation], 0.0))
            slopes.append(np.where(mine[..., None], ROOT * ds[:, self.deviation], 0.0))
        value = np.stack(values, axis=2) / sigma[..., None, None]
        raw = np.stack(slopes, axis=2)
        slope = (raw - value[..., None] * dsigma) / sigma[..., None, None, None]
        if not (np.isfinite(value).all() and np.isfinite(slope).all()):
            return None
        return SensitivityRows(value[self._replicates], slope[self._replicates])

    def _sigma(self, h: FloatArray) -> FloatArray:
        """(n_times, n_measured) standard deviations; NaN where an estimated one is not positive."""
        sigma = self._by_formula(h, "deviation")
        sigma = np.where(sigma > 0, sigma, np.inf)  # what is exactly 0 tells nothing
        model = h[:, self.deviation]
        return np.where(self.estimated, np.where(model > 0, model, np.nan), sigma)

    def _by_formula(self, h: FloatArray, what: str) -> FloatArray:
        """(n_times, n_measured) what noise models say of outputs h; 1 where it is estimated."""
        pairs = zip(self.noise, h.T, strict=False)
        columns = [getattr(n, what, np.ones_like)(column) for n, column in pairs]
        return np.stack(columns, axis=1)

    def _split(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Outputs (n_times, n_outputs, ...) and sensitivities (n_times, n_outputs, n, ...).

        Outputs are the measured quantities, then estimated standard deviations.
        """
        n_t, m = len(told), self.outputs
        rest = told[:, m:].reshape(n_t, -1, m, *told.shape[2:])
        return told[:, :m], np.moveaxis(rest, 1, 2)

    def _told(self, design: FloatArray) -> FloatArray | None:
        run = self._plain.run(design)
        return run.measured if run.status.usable else None

    def _told_with_slopes(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        exact = self._exact
        if exact is None:
            return self._differences(design)
        run = exact.run(design)
        return (run.measured, run.measured_by_unknown) if run.status.usable else None

    @cached_property
    def _exact(self) -> Simulation | None:
        made = self.integrator.simulation(self.ivp, self.times, sensitivities=True)
        return None if self._plain.compiled and not made.compiled else made

    def _differences(self, design: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        lower, upper = self.bounds
        told = self._told(design)
        slopes = []
        for i, shift in enumerate(SHIFT * (upper - lower)):
            low, high = design.copy(), design.copy()
            low[i], high[i] = max(design[i] - shift, lower[i]), min(design[i] + shift, upper[i])
            ends = self._told(low), self._told(high)
            if told is None or ends[0] is None or ends[1] is None:
                return None
            slopes.append((ends[1] - ends[0]) / (high[i] - low[i]))
        return None if told is None else (told, np.stack(slopes, axis=-1))


ROUNDS = 6  # of numbers and samples in turn
ENOUGH = 1e-4  # of an efficiency: a round that brings less is the last
BROKEN = 1e3  # loss of a design that cannot be integrated
STEPS = 150  # of the local search


class BestDesign(NamedTuple):
    """The numbers (n_experiments, n_choices), the samples, and how the starts ended.

    complete  False if the search was interrupted
    """

    design: FloatArray
    chosen: SampleChoice
    values: tuple[float, ...]
    complete: bool = True


@dataclass(frozen=True)
class DesignSearch:
    """What is sought.

    told      for each scenario;  before: (m, n) rows of what is known, for each scenario
    lower, width  (n_choices,) of the numbers;  steep: (m, n_choices) differences that are at most
                  `steepest` (m,), either way
    pool      random experiments to begin with;  starts: local searches
    """

    told: Sequence[PlannedSensitivities]
    before: Sequence[FloatArray]
    space: UnknownSpace
    judge: RegularisedCriterion
    allowed: SamplingRules
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

    def run(self, first: FloatArray | None) -> BestDesign | None:
        """The best design found, None if all broke down; `first` (n_choices,) is one to try.

        At Ctrl-C the best so far; raises KeyboardInterrupt before there is one.
        """
        if len(self.lower) == 0:
            return self._nothing_free()
        pool = self._pool(first)
        if not pool:
            return None
        begins = self._begins(pool)
        found: list[tuple[FloatArray, SampleChoice]] = []
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
        return BestDesign(best[0], best[1], tuple(one[1].value for one in found), complete)

    def _with_more_choices(
        self, found: list[tuple[FloatArray, SampleChoice]]
    ) -> list[tuple[FloatArray, SampleChoice]]:
        """The same with the samples of the best design sought from random choices as well."""
        best = max(range(len(found)), key=lambda i: found[i][1].value, default=None)
        design_information = None if best is None else self.design_information(found[best][0])
        if best is None or design_information is None:
            return found
        chosen = choose(design_information, self.allowed)
        return [(d, chosen if i == best else c) for i, (d, c) in enumerate(found)]

    def _as_they_are(self, begins: Sequence[FloatArray]) -> list[tuple[FloatArray, SampleChoice]]:
        """The first experiment that a local search would have begun with, for want of its end."""
        for cube in begins:
            design = self._numbers(cube.reshape(len(self.space.places), -1))
            design_information = self.design_information(design)
            if design_information is not None:
                return [(design, choose(design_information, self.allowed, thorough=False))]
        return []

    def _nothing_free(self) -> BestDesign | None:
        design = np.zeros((len(self.space.places), 0))
        design_information = self.design_information(design)
        return (
            None
            if design_information is None
            else BestDesign(design, choose(design_information, self.allowed), ())
        )

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

    def _improved(self, cube: FloatArray) -> tuple[FloatArray, SampleChoice] | None:
        """Numbers and samples in turn until neither changes much."""
        weights, best = self._even(), None
        for _ in range(ROUNDS):
            cube = self._local(cube, weights)
            design = self._numbers(cube.reshape(len(self.space.places), -1))
            design_information = self.design_information(design)
            if design_information is None:
                return best
            chosen = choose(design_information, self.allowed, thorough=False)
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
                design_information = DesignInformation(self.space, self.judge, [known], [values])
                (information,) = design_information.informations(weights)
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

    def design_information(self, design: FloatArray) -> DesignInformation | None:
        """What a design tells in each scenario; None where it cannot be integrated."""
        rows = [[told.rows(one) for one in design] for told in self.told]
        if any(r is None for scenario in rows for r in scenario):
            return None
        return DesignInformation(self.space, self.judge, self.known, [np.array(r) for r in rows])
