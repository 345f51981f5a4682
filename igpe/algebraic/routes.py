"""Routes without branching: linear least squares, searches from many starts, and stages.

Bounded linear least squares is global by convexity. Of local searches nothing is proved; they serve
where a proof would take too long, and to give a global solver a good incumbent.

Stages (Michalik et al. 2009, IGPE, section 3.6). Where some slopes depend on a few of the
parameters alone, these are estimated first, from those slopes; they are then held while the others
are estimated from what is left. In the urethane problem the slope of B gives kref1 and Ea1 (eqs.
13, 18, 23), all other slopes the remaining six.

What is proved. Let the stages minimise c_1(p_1), c_2(p_1, p_2), ...; every slope belongs to one
stage, so the sum of squares of the whole problem is c = c_1 + c_2 + ... A bound b_1 on c_1 holds
over the whole box of p_1, so that c >= c_1 >= b_1 for any parameters. A bound on c_2 was proved for
one value of p_1 only and says nothing about others. Hence

    c >= sum of b_k over the stages k whose slopes depend on nothing that was held,

and that is all that is claimed. With a closed gap in every stage the parameters are the best of
their stages, not the minimum of c: later slopes depend on p_1 too, and were not used for it.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import casadi as ca
import numpy as np
from scipy.optimize import lsq_linear

from igpe.algebraic.base import Contribution, Regression, Route, RouteResult, reseeded
from igpe.core.arrays import column_sizes
from igpe.core.deadline import interruptible, stopped
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.equations.incidence import incidence
from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.numerics import optima
from igpe.numerics.covariance import determined
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import Landscape, spread


@dataclass(frozen=True)
class LinearRoute:
    """Closed form for regressions that are linear in all parameters.

    Parameters that the data do not determine are left out of the answer.
    """

    def estimate(self, regression: Regression) -> RouteResult:
        """The global optimum within the bounds (BVLS on scaled columns)."""
        began = time.perf_counter()
        box = regression.box
        origin = box.clip(np.zeros(len(box)))
        at = regression.linearised(origin)
        if at is None:
            failed = Estimate({}, np.inf, Status.FAILED, "linear least squares")
            return RouteResult(failed, box.names)
        scale = column_sizes(at.jacobian)
        matrix = at.jacobian / scale
        bounds = ((box.lower - origin) * scale, (box.upper - origin) * scale)
        right, beyond = -at.residual, 0.0
        if len(matrix) > len(box):  # as many rows as parameters, for the many problems inside
            factors = np.asarray(np.linalg.qr(np.column_stack([matrix, right]), mode="r"))
            matrix, right = factors[:-1, :-1], factors[:-1, -1]
            beyond = float(factors[-1, -1] ** 2)
        answer = lsq_linear(matrix, right, bounds, method="bvls", tol=1e-14)
        values, known = box.clip(origin + answer.x / scale), determined(matrix)
        cost = 2 * float(answer.cost) + beyond
        estimate = Estimate(
            {n: float(v) for n, v, k in zip(box.names, values, known, strict=True) if k},
            cost,
            Status.GLOBAL_BY_CONVEXITY,
            "linear least squares",
            lower_bound=cost,
            seconds=time.perf_counter() - began,
        )
        lost = tuple(n for n, k in zip(box.names, known, strict=True) if not k)
        return RouteResult(estimate, lost)


WORST = 10.0  # times the best objective: optima beyond explain nothing and are not compared
ROUNDING = 1e-12  # of the targets' own squares: objectives below it are all zero


def rounding(regression: Regression) -> float:
    """Differences of the objective below this mean nothing."""
    return ROUNDING * sum(float(np.sum((p.weight * p.target) ** 2)) for p in regression.pieces)


def distinct(regression: Regression, fits: Iterable[Fit]) -> list[Fit]:
    """One fit for each optimum, the best first, as far as `WORST` times its objective."""
    some, least = [f for f in fits if f.at is not None], rounding(regression)
    level = WORST * min((f.cost for f in some), default=0.0) + least
    landscape = Landscape(regression.linearised, regression.box, least)
    return optima.distinct(landscape, (f for f in some if f.cost <= level))


@dataclass(frozen=True)
class LocalSearch:
    """Gauss-Newton searches from good Sobol points that are far apart.

    trials  number of Sobol points at which the objective is evaluated
    starts  number of local searches; they start at the best of these points
    seed    seed of the random points; the same seed gives the same result
    search  method of the local searches
    """

    trials: int = 256
    starts: int = 12
    seed: int = 0
    search: GaussNewton = GaussNewton()

    def seeded(self, seed: int) -> "LocalSearch":
        """Return a copy of the search with another seed, which gives other start points."""
        return replace(self, seed=seed)

    def estimate(self, regression: Regression) -> RouteResult:
        """Return the best local optimum and other good optima.

        Each optimum contains only the parameters that the data determine at this optimum.
        """
        began = time.perf_counter()
        fits = self.fits(regression)
        method = f"Gauss-Newton from {self.starts} starts"
        if not fits:
            seconds = time.perf_counter() - began
            lost = Estimate({}, np.inf, Status.FAILED, method, seconds=seconds)
            return RouteResult(lost, regression.box.names)
        status = Status.INTERRUPTED if stopped() else Status.BEST_OF_SEVERAL
        return route_result(regression, fits, Estimate({}, np.inf, status, method), began)

    def fits(self, regression: Regression) -> list[Fit]:
        """Return all distinct local optima, best first; an empty list if no point can be evaluated.

        After Ctrl-C the method returns the optima found so far, or raises KeyboardInterrupt if
        there are none.
        """
        box = regression.box
        points = box.sobol(self.trials, self.seed)
        costs = np.array([regression.cost(p) for p in points])
        able = list(points[np.argsort(costs, kind="stable")[: np.isfinite(costs).sum()]])
        result: list[Fit] = []
        try:
            with interruptible():
                for i in spread(able, self.starts):
                    result.append(self.search.fit(regression.linearised, able[i], box))
        except KeyboardInterrupt:
            if not result:
                raise
        return distinct(regression, result)


def route_result(
    regression: Regression, fits: Sequence[Fit], outcome: Estimate, began: float
) -> RouteResult:
    """Distinct fits, the best first, as a route's answer: only what their data determine.

    outcome  method, status and bound of the answer
    began    when the route began, by `time.perf_counter`
    """
    landscape = Landscape(regression.linearised, regression.box, rounding(regression))
    best, *others = (
        {
            name: float(x)
            for name, x, yes in zip(
                regression.box.names, fit.x, optima.known(landscape, fit), strict=True
            )
            if yes
        }
        for fit in fits
    )
    seconds = time.perf_counter() - began
    return RouteResult(
        replace(outcome, parameters=best, objective=fits[0].cost, seconds=seconds),
        tuple(n for n in regression.box.names if n not in best),
        tuple(
            Estimate(parameters, fit.cost, Status.CONVERGED, outcome.method)
            for parameters, fit in zip(others, fits[1:], strict=True)
        ),
    )


PROVEN = (Status.GLOBAL_BY_CONVEXITY, Status.OPTIMAL_WITHIN_GAP)
WORSE = (  # from the best ending of a stage to the worst
    *PROVEN,
    Status.STAGED,
    Status.BEST_OF_SEVERAL,
    Status.CONVERGED,
    Status.NOTHING_TO_DO,
    Status.STALLED,
    Status.ITERATION_LIMIT,
    Status.TIME_LIMIT,
    Status.INTERRUPTED,
)


@dataclass(frozen=True)
class Decomposed:
    """A route that solves the stages of a problem one after the other.

    route   route used for stages that are nonlinear in their parameters; its time limit applies to
            each stage separately
    linear  route used for stages that are linear in their parameters

    If the data of a stage do not determine all its parameters, igpe solves that stage again,
    together with the next stage. The `trail` of the returned estimate contains the estimates of all
    stages. igpe uses only the best optimum of each stage.
    """

    route: Route
    linear: Route = LinearRoute()

    def seeded(self, seed: int) -> "Decomposed":
        """Return a copy of this route that passes the seed to `route`, if `route` uses a seed."""
        return replace(self, route=reseeded(self.route, seed))

    def estimate(self, regression: Regression) -> RouteResult:
        """Estimate the parameters of all stages.

        The module docstring explains what the lower bound and the status prove.
        """
        began, names = time.perf_counter(), regression.box.names
        stages: list[_Stage] = []
        held: dict[str, float] = {}
        left = []
        for piece in regression.pieces:
            known, p = piece.predict.sx_in(0), piece.predict.sx_in(1)
            columns = incidence(piece.predict(known, p), p).col
            left.append(_Part(piece, frozenset(names[int(j)] for j in columns)))
        while any(part.needs - held.keys() for part in left):
            try:
                with interruptible():
                    stage = self._next(regression, left, held)
            except KeyboardInterrupt:
                if not stages:
                    raise
                break
            stages.append(stage)
            held |= stage.result.estimate.parameters
            left = [part for part in left if not part.needs <= stage.names | held.keys()]
            if stage.result.undetermined or not stage.result.estimate.status.usable:
                break
        if len(stages) == 1 and stages[0].names == set(names):
            return stages[0].result
        results, status = [stage.result.estimate for stage in stages], _status(stages)
        bounds = [stage.result.estimate.lower_bound for stage in stages if stage.alone]
        proven = [max(b, 0.0) for b in bounds if np.isfinite(b)]
        estimate = Estimate(
            {n: held[n] for n in names if n in held},
            sum(one.objective for one in results) if status.usable else np.inf,
            status,
            f"{len(stages)} stages: {', '.join(dict.fromkeys(one.method for one in results))}",
            lower_bound=sum(proven) if proven else -np.inf,
            seconds=time.perf_counter() - began,
            trail=tuple(results),
        )
        return RouteResult(estimate, tuple(n for n in names if n not in held))

    def _next(
        self, regression: Regression, left: Sequence["_Part"], held: Mapping[str, float]
    ) -> "_Stage":
        """The smallest stage that determines all its parameters; failing that, all that is left."""
        names: frozenset[str] = frozenset()
        while True:
            # with the fewest further parameters another slope can be predicted
            further = [part.needs - names - held.keys() for part in left]
            names |= min((f for f in further if f), key=lambda f: (len(f), sorted(f)))
            parts = [part for part in left if part.needs <= names | held.keys()]
            posed = _posed(regression, [part.piece for part in parts], names, held)
            result = (self.linear if posed.linear else self.route).estimate(posed)
            if len(parts) == len(left) or not result.undetermined:
                return _Stage(result, names, not any(part.needs & held.keys() for part in parts))


class _Part(NamedTuple):
    """A piece of the regression and the parameters that its prediction depends on."""

    piece: Contribution
    needs: frozenset[str]


class _Stage(NamedTuple):
    """A stage's answer, its parameters, and whether its slopes depend on none that was held."""

    result: RouteResult
    names: frozenset[str]
    alone: bool


def _posed(
    regression: Regression,
    pieces: Sequence[Contribution],
    names: frozenset[str],
    held: Mapping[str, float],
) -> Regression:
    """The regression of some pieces in some parameters, those held inserted."""
    box = regression.box.select(n for n in regression.box.names if n in names)
    p = ca.SX.sym("p", len(box))
    symbol = dict(zip(box.names, ca.vertsplit(p), strict=True))
    # no prediction of the stage depends on the rest
    full = stack(symbol.get(n, held.get(n, 0.0)) for n in regression.box.names)
    stage, slopes = [], []
    for piece in pieces:
        known = piece.predict.sx_in(0)
        slopes.append(piece.predict(known, full))
        stage.append(replace(piece, predict=ca.Function("predict", [known, p], slopes[-1:])))
    linear = len(linear_parameters(stack(slopes), p).jointly) == len(box)
    return Regression(box, tuple(stage), regression.origin, linear)


def _status(stages: Sequence[_Stage]) -> Status:
    """The worst ending of a stage; proofs of stages that hold something prove nothing together."""
    endings = [stage.result.estimate.status for stage in stages]
    failed = [ending for ending in endings if not ending.usable]
    if failed:
        return failed[0]
    if stopped():
        return Status.INTERRUPTED
    worst = max(endings, key=WORSE.index)
    return worst if worst not in PROVEN or all(s.alone for s in stages) else Status.STAGED
