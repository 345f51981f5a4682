"""The search for the numbers and samples of planned experiments.

It takes the best of a pool of random experiments, then follows gradients, in turn with the choice
of samples. It proves nothing: the answer is the best of several starts (Houska et al. 2012,
section 3: the problem is not convex, local optima work well).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import minimize
from scipy.stats import qmc

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.deadline import finishing
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.status import Status
from igpe.planning.design_limits import KEPT, DesignLimits
from igpe.planning.design_problem import DesignProblem, planned_name
from igpe.planning.information import DesignInformation
from igpe.planning.plan import PlannedExperiment
from igpe.planning.planned_model import PlannedSensitivities
from igpe.planning.rival_design import PairRows, RivalDesign
from igpe.planning.sample_choice import SampleChoice, SamplingRules, choose

ROUNDS = 6  # of numbers and samples in turn
ENOUGH = 1e-4  # of an efficiency: a round that brings less is the last
BROKEN = 1e3  # loss of a design that cannot be integrated
STEPS = 150  # of the local search
FEWEST = 16  # random experiments of the pool, even if they violate constraints
SAMPLED = 64  # experiments of the pool whose samples are chosen, where the criterion is not concave
INTERRUPTED = "Interrupted: this is the best plan so far; a longer search may find a better plan."
SHARES = (0.5, 0.25, 0.75, 0.9)  # of the budgets for the first numbers of local searches


class SampledDesign(NamedTuple):
    """Numbers (n_experiments, n_choices) with their samples, and how far they violate limits."""

    design: FloatArray
    chosen: SampleChoice
    violation: float

    @property
    def rank(self) -> tuple[float, float]:
        """The larger, the better: first that limits are kept."""
        return -self.violation, self.chosen.value


class BestDesign(NamedTuple):
    """The best design, and how the starts ended.

    violated  names of the limits that it violates
    complete  False if the search was interrupted
    """

    design: FloatArray
    chosen: SampleChoice
    values: tuple[float, ...]
    violated: tuple[str, ...] = ()
    complete: bool = True

    @property
    def used(self) -> list[int]:
        """Numbers of the experiments in which samples are taken."""
        used: list[int] = np.flatnonzero(self.chosen.times.any(axis=1)).tolist()
        return used

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on an interrupted search."""
        return () if self.complete else (INTERRUPTED,)


Posed = TypeVar("Posed", bound=DesignProblem | RivalDesign)


@dataclass(frozen=True)
class DesignSearch(Generic[Posed]):
    """A search for the numbers and samples of planned experiments.

    posed   of one model, or of rivals
    points  the scenarios: of one model values of the unknowns, of rivals pairs
    pool    random experiments to begin with;  starts: local searches
    """

    posed: Posed
    points: Sequence[Any]
    pool: int
    starts: int
    seed: int

    @property
    def first(self) -> DesignProblem:
        """The problem with the choices, the allowed samples and their costs."""
        return self.posed.first

    @cached_property
    def outputs(self) -> list[PlannedSensitivities | PairRows]:
        """Rows of a planned experiment, for each scenario."""
        return [self.posed.outputs(values) for values in self.points]

    @cached_property
    def before(self) -> list[FloatArray]:
        """(m, n) rows of what is known before, for each scenario."""
        return [self.posed.known(values) for values in self.points]

    @cached_property
    def known(self) -> list[FloatArray]:
        """(n, n) information before, for each scenario."""
        return [rows.T @ rows for rows in self.before]

    @property
    def count(self) -> int:
        """Number of planned experiments."""
        return len(self.posed.space.places)

    @cached_property
    def limits(self) -> DesignLimits:
        """Limits of designs."""
        first, path = self.first, self.posed.limits(self.points)
        return DesignLimits(first.plan, self.count, path, first.costs, first.allowed.times)

    def allowed(self, design: FloatArray) -> SamplingRules:
        """Which samples may be taken with these numbers (n_experiments, n_choices)."""
        budgets = tuple(cost.samples(design) for cost in self.first.costs)
        return replace(self.first.allowed, budgets=budgets)

    def best(self, models: str = "") -> tuple["DesignSearch[Posed]", BestDesign]:
        """The best design, free sampling times being those of the fine grid, and its search.

        models  for messages: the models with which it must be integrated
        raises  EstimationFailed if no design can be integrated, ProblemError if none keeps limits
        """
        best = self.run(self.first.as_before())
        if best is None:
            raise EstimationFailed(
                "No experiment that igpe tried within the bounds of free={...} could be integrated"
                f"{models}. Narrow the bounds to feasible values, and test one experiment with "
                "igpe.simulate.",
                Status.INTEGRATION_BROKE,
            )
        _require_kept(best)
        if not (self.first.sampling.free and best.complete):
            return self, best
        posed: Any = self.posed.refined  # of the same kind
        fine = replace(self, posed=posed)
        finer = fine.refined(best)
        return (fine if finer.complete else self), finer

    def run(self, first: FloatArray | None) -> BestDesign | None:
        """Search the best design, also from `first` (n_choices,); None if none can be integrated.

        At Ctrl-C the best so far; raises KeyboardInterrupt before there is one.
        """
        if not self.first.plan.choices:
            only = self._sampled(np.zeros(0), thorough=True)
            return None if only is None else self._best([only])
        pool, is_given = self._pool(first)
        if not pool:
            return None
        begins, complete = self._begins(pool, is_given=is_given), True
        candidates: list[SampledDesign] = []
        try:
            shares = [
                SHARES[k % len(SHARES)] if self.first.costs else 1.0 for k in range(len(begins))
            ]
            improved = map(self._improved, begins, shares)
            candidates += (one for one in improved if one is not None)
            candidates += self._from_samples([cube for cube, _ in pool])
            # the samples of the best design are sought from random choices as well
            if candidates:
                best = max(range(len(candidates)), key=lambda i: candidates[i].rank)
                candidates[best] = self._finished(candidates[best])
        except KeyboardInterrupt:
            complete = False
            with finishing():  # without candidates: the first start that can be integrated
                near = map(self._allowed, begins if not candidates else [])
                each = (self._sampled(cube, thorough=False) for cube in near)
                one = next((one for one in each if one is not None), None)
                candidates = candidates if one is None else [one]
        return self._best(candidates)._replace(complete=complete) if candidates else None

    def refined(self, best: BestDesign) -> BestDesign:
        """The best design once more, if sampling times are free: with times of the fine grid.

        At Ctrl-C the design as it was, not complete.
        """
        cube = self._cube(best.design)
        try:
            one = self._sampled(cube, thorough=True)
            assert one is not None, "the design was integrated before"
            if self.first.plan.choices:
                moved = self._improved(cube, 1.0, one.chosen)
                one = one if moved is None or moved.rank <= one.rank else self._finished(moved)
        except KeyboardInterrupt:
            return best._replace(complete=False)
        return self._best([one])._replace(values=best.values)

    def _best(self, candidates: list[SampledDesign]) -> BestDesign:
        """The best one, experiments without samples last.

        A criterion of unknowns that one experiment has for itself names this one: all stay in order
        """
        design, chosen, violation = max(candidates, key=lambda one: one.rank)
        places, interest = self.posed.space.places, self.posed.space.interest
        in_some = (places[..., None] == interest).any(axis=1).sum(axis=0) % self.count > 0
        order = np.argsort(~chosen.times.any(axis=1) & ~in_some.any(), kind="stable")
        violated: list[str] = []
        if violation > 0:
            violated = self.limits.violated(self._cube(design), chosen.times)
        values = tuple(one.chosen.value for one in candidates if one.violation == violation)
        chosen = chosen._replace(taken=chosen.taken[order], weights=chosen.weights[order])
        return BestDesign(design[order], chosen, values, tuple(violated))

    def _from_samples(self, cubes: Sequence[FloatArray]) -> list[SampledDesign]:
        """Local searches from those of a pool that are best with samples of their own.

        Only for criteria that are not concave. For these, equal shares of all samples, with which
        other searches begin, are a poor guide: a sample in a bad place is a loss.
        """
        if self.posed.phi.criterion.concave:
            return []
        rng, n = np.random.default_rng(self.seed), min(len(cubes), SAMPLED)
        groups = np.column_stack([rng.permutation(n) for _ in range(self.count)])
        tried = (self._allowed(np.array(cubes)[group].ravel()) for group in groups)
        sampled = [one for c in tried if (one := self._sampled(c, thorough=False)) is not None]
        best = sorted(sampled, key=lambda one: one.rank, reverse=True)[: self.starts]
        moved = (self._improved(self._cube(one.design), 1.0, one.chosen) for one in best)
        pairs = zip(best, moved, strict=True)
        return [a if b is None else max(a, b, key=lambda one: one.rank) for a, b in pairs]

    def _finished(self, best: SampledDesign) -> SampledDesign:
        """Search the samples for the same numbers more thoroughly."""
        gained = self.information(best.design)
        assert gained is not None, "candidates can be integrated"
        return best._replace(chosen=choose(gained, self.allowed(best.design)))

    def _sampled(self, cube: FloatArray, *, thorough: bool) -> SampledDesign | None:
        """Numbers of a point of the cube with their samples; None if they cannot be integrated."""
        design = self._numbers(cube.reshape(self.count, -1))
        gained = self.information(design)
        if gained is None:
            return None
        chosen = choose(gained, self.allowed(design), thorough=thorough)
        return SampledDesign(design, chosen, self.limits.violation(cube, chosen.times))

    def _even(self) -> FloatArray:
        """Weights of samples that are not chosen yet: each an equal share."""
        shares = np.mean([q.astype(float) for q in self.first.allowed.quantities], axis=0)
        n_t = len(self.first.allowed.times)
        share = min(self.first.allowed.at_most / n_t, 1.0)
        return np.asarray(np.full((self.count, n_t, len(shares)), share) * shares)

    def _numbers(self, cube: FloatArray) -> FloatArray:
        plan = self.first.plan
        return np.asarray(plan.lower + np.clip(cube, 0.0, 1.0) * plan.width)

    def _cube(self, design: FloatArray) -> FloatArray:
        """Numbers of experiments as a point of the unit cube."""
        plan = self.first.plan
        return np.asarray(((design - plan.lower) / plan.width).ravel())

    def _pool(
        self, first: FloatArray | None
    ) -> tuple[list[tuple[FloatArray, list[FloatArray]]], bool]:
        """Random experiments in the unit cube that can be integrated, with their rows.

        And whether they begin with `first`.
        """
        plan, (steep, steepest) = self.first.plan, self.first.plan.steepness
        sampler = qmc.Sobol(len(plan.choices), rng=np.random.default_rng(self.seed))
        cubes = list(sampler.random_base2(int(np.log2(max(self.pool, 2)))))
        if first is not None:
            cubes.insert(0, np.clip(self._cube(first), 0.0, 1.0))
        pool = []
        for cube in cubes:
            # differences that are too steep are cut, from the left to the right
            for row, most in zip(steep, steepest, strict=True):
                later, earlier = int(np.argmax(row)), int(np.argmin(row))
                cube[later] = cube[earlier] + np.clip(cube[later] - cube[earlier], -most, most)
            rows = [one.rows(self._numbers(cube)) for one in self.outputs]
            known = [r for r in rows if r is not None]
            if len(known) == len(rows):
                pool.append((cube, known))
        is_given = first is not None and bool(pool) and pool[0][0] is cubes[0]
        return self._feasible(pool, keep_first=is_given), is_given

    def _feasible(
        self, pool: list[tuple[FloatArray, list[FloatArray]]], *, keep_first: bool
    ) -> list[tuple[FloatArray, list[FloatArray]]]:
        """Experiments that satisfy the constraints, and at least `FEWEST` that nearly do."""
        if not self.limits.path or not pool:
            return pool
        far = self.limits.learn([cube for cube, _ in pool])
        if keep_first:
            far[0] = 0.0
        most = max(KEPT, np.sort(far)[min(FEWEST, len(far)) - 1])
        return [one for one, f in zip(pool, far, strict=True) if f <= most]

    def _begins(
        self, pool: list[tuple[FloatArray, list[FloatArray]]], *, is_given: bool
    ) -> list[FloatArray]:
        """Experiments of the pool with most information together: of all, then of random halves.

        is_given  whether the first of the pool is what was run before: one search begins with it,
                  so that a design is never worse than a local search from there
        """
        rng, weights = np.random.default_rng(self.seed), self._even()[0]
        tables = [np.array(rows) for rows in zip(*(rows for _, rows in pool), strict=True)]
        gained = [np.einsum("ntmrp,tm,ntmrq->npq", rows, weights, rows) for rows in tables]
        halves = [rng.permutation(len(pool))[: (len(pool) + 1) // 2] for _ in range(self.starts)]
        groups = [np.arange(len(pool)), *halves[1:]]
        cubes = np.array([cube for cube, _ in pool])
        choices = {self._greedy(gained, group) for group in groups}
        if is_given:
            choices.add(self._greedy(gained, groups[0], first=0))
        return [cubes[list(members)].ravel() for members in sorted(choices)]

    def _greedy(
        self, gained: list[FloatArray], group: IntArray, first: int | None = None
    ) -> tuple[int, ...]:
        """Choose experiments one by one, always the one that adds most; `first` may be given."""
        now, taken = list(self.known), list[int]()
        for e in range(self.count):
            added = [self.posed.space.full(g[group], e) for g in gained]
            values = self.posed.phi.together([
                self.posed.phi(f + a) for f, a in zip(now, added, strict=True)
            ])
            best = int(values.argmax()) if first is None or taken else first
            taken.append(int(group[best]))
            now = [f + a[best] for f, a in zip(now, added, strict=True)]
        return tuple(taken)

    def _improved(
        self, cube: FloatArray, share: float, chosen: SampleChoice | None = None
    ) -> SampledDesign | None:
        """Improve numbers and samples in turn until neither changes much.

        share   of the budgets that the first numbers may use
        chosen  the samples to begin with; None: an equal share of all
        """
        weights, best = self._even(), None
        # the first sample alone leaves most of the budgets
        taken = np.tile(np.arange(len(self.first.allowed.times)) == 0, (self.count, 1))
        if chosen is not None:
            weights, taken = chosen.taken.astype(float), chosen.times
        for _ in range(ROUNDS):
            cube = self._local(cube, weights, taken, share)
            one = self._sampled(cube, thorough=False)
            if one is None:
                return best
            is_better = best is None or one.rank > best.rank
            gain = np.inf if best is None else one.chosen.value - best.chosen.value
            best = one if best is None or is_better else best
            if gain < ENOUGH or (self.first.allowed.everything and not self.first.costs):
                break
            weights, taken, share = one.chosen.taken.astype(float), one.chosen.times, 1.0
        return self._on_levels(best) if best is not None and self._levels else best

    def _on_levels(self, candidate: SampledDesign) -> SampledDesign | None:
        """Discrete numbers exchanged one after the other, and the rest, in turn (Meyer and
        Nachtsheim, Technometrics 37 (1995) 60)."""
        best, chosen = None, candidate.chosen
        cube = self._allowed(self._cube(candidate.design))
        for _ in range(ROUNDS):
            weights, taken = chosen.taken.astype(float), chosen.times
            loss = self.loss(weights)

            def rank(c: FloatArray, taken: BoolArray = taken, loss: Any = loss) -> Any:
                return self.limits.violation(c, taken), loss(c)[0]

            for place, levels in self._levels.items():
                own = self._owner == place
                cube = min((np.where(own, v, cube) for v in levels), key=rank)
            cube = self._local(cube, weights, taken, held=list(self._levels))
            one = self._sampled(cube, thorough=False)
            if one is None or (best is not None and one.rank <= best.rank):
                return best
            gain = np.inf if best is None else one.chosen.value - best.chosen.value
            best, chosen = one, one.chosen
            if gain < ENOUGH:
                break
        return best

    @cached_property
    def _owner(self) -> IntArray:
        """(n_experiments * n_choices,) place of the number that each is: the first experiment's
        where all share it."""
        common = self.first.plan.is_common
        places = np.arange(self.count * len(common)).reshape(self.count, -1)
        return np.asarray(np.where(common, places[0], places).ravel())

    @cached_property
    def _levels(self) -> dict[int, FloatArray]:
        """Place of each discrete number -> its values in the unit cube."""
        levels, n = self.first.plan.levels, len(self.first.plan.choices)
        return {int(k): levels[k % n] for k in np.unique(self._owner) if k % n in levels}

    def _allowed(self, cube: FloatArray) -> FloatArray:
        """The point with shared numbers alike, and discrete ones at their nearest levels."""
        cube = cube[self._owner]
        for place, levels in self._levels.items():
            nearest = levels[np.argmin(np.abs(levels - cube[place]))]
            cube = np.where(self._owner == place, nearest, cube)
        return cube

    def _local(
        self,
        cube: FloatArray,
        weights: FloatArray,
        taken: BoolArray,
        share: float = 1.0,
        held: Sequence[int] = (),
    ) -> FloatArray:
        """A local search from a point of the unit cube; never worse than it.

        taken, share  samples that budgets pay for, and how much of the rest settings may use
        held          places of numbers that stay
        """
        cube, free = cube[self._owner], np.setdiff1d(self._owner, np.array(held, dtype=np.intp))
        if not len(free):
            return cube
        spread = (self._owner[:, None] == free).astype(float)
        fixed = np.where(spread.any(axis=1), 0.0, cube)
        loss = self.loss(weights)
        method: dict[str, object] = {"method": "L-BFGS-B", "options": {"maxiter": STEPS}}
        if limits := self.limits.for_search(taken, share, fixed, spread):
            options = {"maxiter": STEPS, "ftol": 1e-8}
            method = {"method": "SLSQP", "constraints": limits, "options": options}

        def of(numbers: FloatArray) -> tuple[float, FloatArray]:
            value, slope = loss(fixed + spread @ numbers)
            return value, slope @ spread

        bounds = [(0.0, 1.0)] * len(free)
        minimum = minimize(of, cube[free], jac=True, bounds=bounds, **method)  # type: ignore[call-overload]
        end = fixed + spread @ np.clip(minimum.x, 0.0, 1.0)
        if not limits:
            return end if loss(end)[0] <= loss(cube)[0] else cube
        far = [self.limits.violation(one, taken) for one in (end, cube)]
        if far[0] == far[1]:
            return end if loss(end)[0] <= loss(cube)[0] else cube
        return end if far[0] < far[1] else cube

    def loss(self, weights: FloatArray) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        """-Φ and its gradient, as a function of the cube (n_experiments * n_choices,)."""
        places = self.posed.space.places

        def of(cube: FloatArray) -> tuple[float, FloatArray]:
            design = self._numbers(cube.reshape(self.count, -1))
            values, parts = [], []
            for outputs, known in zip(self.outputs, self.known, strict=True):
                each = [outputs.rows_and_slopes(one) for one in design]
                pairs = [one for one in each if one is not None]
                if len(pairs) < len(each):
                    return BROKEN, np.zeros(len(cube))
                rows, slopes = (np.array(part) for part in zip(*pairs, strict=True))
                gained = DesignInformation(self.posed.space, self.posed.phi, [known], [rows])
                (information,) = gained.informations(weights)
                values.append(float(self.posed.phi(information)))
                outer = self.posed.phi.slope(information)[places[:, :, None], places[:, None, :]]
                parts.append(
                    2
                    * np.einsum(
                        "etmrp,epq,etmrqd,etm->ed", rows, outer, slopes, weights, optimize=True
                    )
                )
            slope = np.tensordot(self.posed.phi.influence(values), parts, 1)
            value = float(self.posed.phi.together(values))
            return -value, -(slope * self.first.plan.width).ravel()

        return of

    def information(self, design: FloatArray) -> DesignInformation | None:
        """Information of a design in each scenario; None where it cannot be integrated."""
        rows = [[outputs.rows(one) for one in design] for outputs in self.outputs]
        if any(r is None for scenario in rows for r in scenario):
            return None
        return DesignInformation(
            self.posed.space, self.posed.phi, self.known, [np.array(r) for r in rows]
        )


def _require_kept(best: BestDesign) -> None:
    """Raise ProblemError if the best design violates limits, or has no samples."""
    if not best.chosen.taken.any():
        raise ProblemError(
            "The budgets do not cover even one sample in the cheapest experiment that was tried. "
            "Increase `at_most` of the budgets, or reduce the costs."
        )
    if best.violated:
        raise ProblemError(
            f"No plan was found that satisfies {', '.join(best.violated)}. Add conditions to "
            "free={...} or widen their bounds, or increase the budget or `starts`. If a constraint "
            "does not apply to planned experiments, deactivate it in the model."
        )


def planned_experiments(posed: DesignProblem, best: BestDesign) -> tuple[PlannedExperiment, ...]:
    """The experiments of a design in which samples are taken."""
    labels = [c.label for c in posed.plan.choices]
    designs = ((k, best.design[k], best.chosen.taken[k]) for k in best.used)
    return tuple(
        PlannedExperiment(
            planned_name(posed.full, k),
            dict(zip(labels, numbers.tolist(), strict=True)),
            *posed.plan.settings(numbers),
            start_time=posed.plan.conditions.begin,
            times=posed.allowed.times[taken.any(axis=1)],
            measured=tuple(n for n, q in zip(posed.noise, taken.any(axis=0), strict=True) if q),
        )
        for k, numbers, taken in designs
    )
