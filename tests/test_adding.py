"""What it takes to add a method: one class for each seam, written here and used at the front door.

A class knows its contract and nothing else of the package; every test ends with an estimate.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import igpe
from igpe.algebraic.base import RouteResult
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.piecewise import Piecewise, Reached
from igpe.problem.noise.sigma import NoiseModel
from igpe.solvers.base import Answer

DECAY, CHAIN = (CASES[name] for name in ("decay", "consecutive"))
TRUTH = pytest.approx(CHAIN.truth, rel=0.05)


@dataclass(frozen=True)
class Quartic:
    """A smoother and its curve: the least-squares polynomial of fourth degree."""

    coefficients: Any = None
    root: Any = None
    sigma: float = 1.0
    degrees_of_freedom: float = 5.0
    penalty: float = np.inf
    notes: tuple[str, ...] = ()

    def smooth(self, times: Any, values: Any, *, sigma: Any = None, exact: Any = None) -> "Quartic":
        known = np.isfinite(values)
        weight = np.ones(len(times)) if sigma is None else 1 / np.asarray(sigma)
        rows = np.vander(times, 5)[known] * weight[known, None]
        found = np.linalg.lstsq(rows, (weight * values)[known])[0]
        left = rows @ found - (weight * values)[known]
        spread = 1.0 if sigma is not None else float(np.sqrt(left @ left / max(len(left) - 5, 1)))
        return Quartic(found, np.linalg.pinv(rows), spread)

    def value(self, t: Any) -> Any:
        return np.vander(t, 5) @ self.coefficients

    def slope(self, t: Any) -> Any:
        return self._slopes(t) @ self.coefficients

    def value_error(self, t: Any) -> Any:
        return self.sigma * np.linalg.norm(np.vander(t, 5) @ self.root, axis=1)

    def slope_error(self, t: Any) -> Any:
        return self.sigma * np.linalg.norm(self._slopes(t) @ self.root, axis=1)

    @staticmethod
    def _slopes(t: Any) -> Any:
        return np.hstack([np.vander(t, 4) * np.arange(4, 0, -1), np.zeros((len(t), 1))])


@dataclass(frozen=True)
class Shrinking:
    """A route of step 3: random points in a box that shrinks around the best of them."""

    rounds: int = 40
    points: int = 50

    def estimate(self, regression: Any) -> RouteResult:
        random, box = np.random.default_rng(0), regression.box
        best, width = box.middle, box.upper - box.lower
        for _ in range(self.rounds):
            moves = random.uniform(-0.5, 0.5, (self.points, len(box))) * width
            best = min((best, *map(box.clip, best + moves)), key=regression.cost)
            width = 0.8 * width
        found = Estimate(
            box.mapping(best), regression.cost(best), Status.BEST_OF_SEVERAL, "shrinking boxes"
        )
        return RouteResult(found, ())


@dataclass(frozen=True)
class FixedSteps(Piecewise):
    """An integrator: Runge and Kutta's four stages, steps of equal length."""

    steps: int = 20  # between two outputs

    def advancing(self, ivp: Any, system: Any) -> Any:
        def slope(t: float, x: Any, z: Any, p: Any) -> Any:
            return np.asarray(system.slope(t, x, z, p)).ravel()

        def advance(deadline: float, piece: Any, x: Any, z: Any, p: Any) -> Reached:
            rows, time = [], 0.0
            for place in piece.places:
                h = (place - time) / self.steps
                for _ in range(self.steps):
                    a = slope(time, x, z, p)
                    b = slope(time + h / 2, x + h / 2 * a, z, p)
                    c = slope(time + h / 2, x + h / 2 * b, z, p)
                    x = x + h / 6 * (a + 2 * b + 2 * c + slope(time + h, x + h * c, z, p))
                    time += h
                time = place
                rows.append(x)
            return Reached(np.array(rows), np.zeros((len(rows), len(z))), "")

        return advance


@dataclass(frozen=True)
class Counting(NoiseModel):
    """A noise model: standard deviations proportional to the root of the value, as of counts."""

    scale: float

    def deviation(self, predicted: Any) -> Any:
        return self.scale * np.sqrt(np.maximum(np.abs(predicted), 1e-6))

    def slope(self, predicted: Any) -> Any:
        return self.scale / 2 * np.sign(predicted) / np.sqrt(np.maximum(np.abs(predicted), 1e-6))

    def scaled(self, factor: float) -> "Counting":
        return Counting(self.scale * abs(factor) ** 0.5)


@dataclass(frozen=True)
class Stricter(igpe.losses.Loss):
    """Squares up to five standard deviations first, up to one in the end."""

    criterion = "Stricter loss"

    def limits(self, spread: float) -> tuple[float, ...]:
        return 5.0, 1.0


@dataclass
class Careful:
    """A solver: IPOPT, and a bound of 0 on what cannot be negative."""

    install: str = "It is always there."
    solved: int = field(default=0, compare=False)

    def available(self) -> bool:
        return True

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        self.solved += 1
        answer = igpe.solvers.Ipopt().solve(model, time_limit=time_limit)
        return replace(answer, status=Status.TIME_LIMIT, lower_bound=0.0)


@dataclass
class Compass:
    """An estimator: a search along the axes, with half the step where none of them leads down."""

    halvings: int = 12
    simulated: int = field(default=0, compare=False)

    def estimate(self, problem: Any, start: Any, profiles: Any = ()) -> Estimate:
        box = problem.box
        x, step = box.vector(start), 0.1 * (box.upper - box.lower)
        best = self._cost(problem, x)
        for _ in range(self.halvings):
            moved = True
            while moved:
                moved = False
                for move in (sign * row for row in np.diag(step) for sign in (1, -1)):
                    there = box.clip(x + move)
                    cost = self._cost(problem, there)
                    if cost < best:
                        x, best, moved = there, cost, True
            step = step / 2
        return Estimate(box.mapping(x), best, Status.CONVERGED, "compass search")

    def _cost(self, problem: Any, x: Any) -> float:
        self.simulated += 1
        total = 0.0
        times = np.unique(np.concatenate([e.times for e in problem.experiments]))
        table = igpe.simulate(problem, problem.box.mapping(x), times)
        for e in problem.experiments:
            mine = table[table["experiment"] == e.name].set_index("time")
            m = e.measurements
            told = mine.loc[m.times, list(m.names)].to_numpy()[m.row, m.column]
            total += float(np.sum(((told - m.value) / m.sigma) ** 2))
        return total


def quick(**methods: Any) -> igpe.Settings:
    """Settings whose step 3 takes no time, with other methods."""
    return igpe.Settings(
        **{"routes": igpe.algebraic.RouteSelection(proven=igpe.algebraic.LocalSearch())} | methods
    )


def test_a_smoother_is_one_class() -> None:
    result = igpe.estimate(CHAIN.problem(0.01), quick(ladder=(Quartic(),)))
    assert result.parameters == TRUTH
    assert "data smoothed by Quartic" in str(result.candidates[0].origin)


def test_a_route_is_one_class() -> None:
    case = CASES["michaelis_menten"]
    routes = igpe.algebraic.RouteSelection(proven=Shrinking(), quick=Shrinking())
    result = igpe.estimate(case.problem(0.01), igpe.Settings(routes=routes))
    assert result.parameters == pytest.approx(case.truth, rel=0.1)
    assert [c.method for c in result.certificates] == ["shrinking boxes"]


@pytest.mark.slow
def test_an_integrator_is_one_class_for_trajectories_and_intervals() -> None:
    result = igpe.estimate(CHAIN.problem(0.01), quick(integrator=FixedSteps()))
    assert result.parameters == TRUTH
    best = igpe.SingleShooting(FixedSteps()).estimate(CHAIN.problem(0.01), CHAIN.near)
    assert best.objective == pytest.approx(result.objective, rel=1e-4)
    multiple = igpe.MultipleShooting(integrator=FixedSteps(), rough=FixedSteps())
    decay = multiple.estimate(DECAY.problem(0.01), DECAY.near)
    assert decay.parameters == pytest.approx(DECAY.truth, rel=0.05)


@pytest.mark.slow
def test_a_noise_model_is_one_class() -> None:
    run = igpe.Experiment(CHAIN.data(0.01), start=CHAIN.start, start_time=0.0, sigma=Counting(0.01))
    problem = igpe.Problem(CHAIN.builder, parameters=list(CHAIN.truth), experiments=run)
    result = igpe.estimate(problem, quick())
    assert result.parameters == TRUTH
    sigma = Counting(0.01).deviation(result.points["fitted"].to_numpy())
    assert result.points["sigma"].to_numpy() == pytest.approx(sigma, rel=1e-5)
    plan = igpe.design(problem, result, times=[1.0, 2.0])
    read = igpe.planning.Plan.from_json(plan.to_json()).deviations
    assert read == dict.fromkeys(CHAIN.measured, Counting(0.01))
    sigma = Counting(0.01).deviation(plan.courses["predicted"].to_numpy())
    assert plan.courses["sigma"].to_numpy() == pytest.approx(sigma)


@pytest.mark.slow
@pytest.mark.parametrize("method", [igpe.SingleShooting(), igpe.MultipleShooting()])
def test_a_loss_is_one_class(method: Any) -> None:
    data = CHAIN.data(0.01)
    data.iloc[3, 1] += 0.5  # an outlier
    run = igpe.Experiment(data, start=CHAIN.start, start_time=0.0, sigma=0.01)
    stricter, huber, squares = (
        igpe.Problem(CHAIN.builder, parameters=list(CHAIN.truth), experiments=run, loss=loss)
        for loss in (Stricter(), igpe.losses.Huber(1.0), igpe.losses.LeastSquares())
    )
    result = igpe.estimate(stricter, quick(correction=method))
    assert result.parameters == TRUTH
    assert result.criterion == "Stricter loss"
    assert result.parameters == pytest.approx(igpe.estimate(huber, quick()).parameters, rel=1e-4)
    assert igpe.estimate(squares, quick()).parameters != TRUTH


def test_a_solver_is_one_class() -> None:
    case = CASES["michaelis_menten"]
    solver = Careful()
    routes = igpe.algebraic.RouteSelection(
        proven=igpe.algebraic.GlobalSolver(solver=solver, witness=solver)
    )
    result = igpe.estimate(case.problem(0.01), igpe.Settings(routes=routes))
    assert result.parameters == pytest.approx(case.truth, rel=0.1)
    assert solver.solved > 0
    assert any("Careful" in c.method for c in result.certificates)


@pytest.mark.slow
def test_an_estimator_is_one_class_also_for_the_last_step() -> None:
    problem, method = DECAY.problem(0.01), Compass()
    many = igpe.campaign(problem, Compass(), 3)
    table = igpe.estimation.compare(problem, [Compass(), igpe.SingleShooting()], 2).table
    assert table.loc["Compass", "best %"] == 100
    for best in (many.best, igpe.estimate(problem, quick(correction=method))):
        assert best.parameters == pytest.approx(DECAY.truth, rel=0.05)
    assert method.simulated > 0
