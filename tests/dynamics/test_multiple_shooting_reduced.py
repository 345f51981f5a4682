"""Schloeder's trick inside multiple shooting: the same iterates by fewer directions."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time, row
from pyomo import dae
from zoo import ZOO, every_case

from igpe.core.status import Status
from igpe.dynamics.integrators.base import Intervals
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.least_squares.chains import Chain, Reduced
from igpe.numerics.least_squares.proposal import proposal, simplified
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import Huber
from igpe.problem.problem import Problem

pytestmark = pytest.mark.skipif(not compiler(), reason="needs a C compiler")

N = 30  # states


def turning(m, i, t):
    """Lorenz' model of 1996, chaotic: dx_i/dt = a (x_{i+1} - x_{i-2}) x_{i-1} - b x_i + c."""
    turn = (m.x[(i + 1) % N, t] - m.x[(i - 2) % N, t]) * m.x[(i - 1) % N, t]
    return m.a * turn - m.b * m.x[i, t] + m.c


ring = row(range(N), turning, a=(0, 20), b=(0, 20), c=(0, 20))


def rod(times):
    """Heat in a rod of N cells, stiff; its first cell is heated and its last one cools."""
    m = pyo.ConcreteModel()
    m.t, m.i = dae.ContinuousSet(initialize=times), pyo.RangeSet(0, N - 1)
    m.x = pyo.Var(m.i, m.t, bounds=(0, None))
    m.dx = dae.DerivativeVar(m.x, wrt=m.t)
    m.k, m.loss = pyo.Var(bounds=(0, 1e4)), pyo.Var(bounds=(0, 1e3))

    def rate(m, i, t):
        left = m.x[i, t] - m.x[i - 1, t] if i else -3.0
        right = m.x[i + 1, t] - m.x[i, t] if i < N - 1 else 0.0
        out = m.loss * m.x[i, t] ** 2 / (1 + m.x[i, t]) if i == N - 1 else 0.0
        return m.dx[i, t] == m.k * (right - (left if i else 0.0)) - out + (3.0 if i == 0 else 0.0)

    m.rate = pyo.Constraint(m.i, m.t, rule=rate)
    return m


NAMES = [f"x[{i}]" for i in range(N)]
ENDS = NAMES[:3] + NAMES[-3:]


def simulated(builder, times, start, truth, *, measured, seed):
    """Measurements with noise of 0.1, a tenth of them missing."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(0.0, index=range(len(times)), columns=measured).assign(time=times)
    run = Experiment(table, start=start, sigma=0.1)
    problem = Problem(builder, parameters=list(truth), experiments=[run])
    prepared = MultipleShooting(RungeKutta(1e-10, 1e-12), intervals=1).prepare(problem)
    q = problem.box.vector(truth)
    (shooting,) = prepared.chains.shootings
    shots = shooting.shoot(q, np.array([list(start.values())]))
    values = shots.measured + 0.1 * rng.normal(size=shots.measured.shape)
    values[rng.random(values.shape) < 0.1] = np.nan
    return pd.DataFrame(values, columns=measured).assign(time=times)


def of_ring(**settings):
    """Every second state measured; all starts known."""
    begin = 8.0 + np.random.default_rng(1).normal(size=N)
    start = dict(zip(NAMES, begin.tolist(), strict=True))
    truth = {"a": 1.0, "b": 1.0, "c": 8.0}
    table = simulated(ring, np.linspace(0, 2, 21), start, truth, measured=NAMES[::2], seed=2)
    run = Experiment(table, start=start, sigma=0.1)
    return Problem(ring, parameters=list(truth), experiments=[run], **settings)


def of_rod(truth=None, **settings):
    """Two runs, the second of which begins at an unknown heat of the first cell."""
    truth = truth or {"k": 5000.0, "loss": 20.0}
    runs = []
    for seed, heat in enumerate((0.0, 5.0)):
        start = dict.fromkeys(NAMES, 0.5) | {"x[0]": heat}
        table = simulated(rod, np.linspace(0, 1, 9), start, truth, measured=ENDS, seed=seed)
        if seed:
            start["x[0]"] = Unknown(0, 50)
        runs.append(Experiment(table, name=f"run {seed}", start=start, sigma=0.1))
    return Problem(rod, parameters=list(truth), experiments=runs, **settings)


def of_mild_rod(**settings):
    """The same, not stiff."""
    return of_rod({"k": 30.0, "loss": 2.0}, **settings)


HEAT = "x[0](t0)@run 1"
TRUTH = {
    of_ring: {"a": 1.0, "b": 1.0, "c": 8.0},
    of_rod: {"k": 5000.0, "loss": 20.0, HEAT: 5.0},
}
START = {
    of_ring: {"a": 0.5, "b": 2.0, "c": 4.0},
    of_rod: {"k": 2000.0, "loss": 40.0, HEAT: 1.0},
    of_mild_rod: {"k": 15.0, "loss": 6.0, HEAT: 1.0},
}


@dataclass(frozen=True)
class AllDirections(Intervals):
    """Derivatives of each interval by everything, along the steps that `chained` takes."""

    inner: Intervals

    def run(self, starts, q, *, derivatives=True):
        if not derivatives:
            return self.inner.run(starts, q, derivatives=False)
        n = starts.shape[1] + len(q)
        each = np.broadcast_to(np.eye(n), (len(starts), n, n))
        return self.inner._run(starts, q, self.inner._columns(each, q, True))


def full(chains):
    """The same chains with all derivatives of each interval."""
    each = (
        replace(s, form="each", intervals=AllDirections(s.ivp, s.intervals.cut, s.intervals))
        for s in chains.shootings
    )
    return replace(chains, shootings=tuple(each))


def through(chains):
    """The same chains reduced, whether it pays or not."""
    return replace(chains, shootings=tuple(replace(s, form="through") for s in chains.shootings))


def visited(search, chains, point, space):
    """The outcome, and all points that were evaluated."""
    points = []

    def evaluate(there):
        points.append(there)
        return chains(there)

    return search.fit(evaluate, point, space), points


def begun(make, intervals, **settings):
    """Prepared without continuation, and where a search begins."""
    prepared = MultipleShooting(intervals=intervals, links=()).prepare(make(**settings))
    box = prepared.problem.box
    return prepared, prepared.begin(box.vector({n: START[make][n] for n in box.names}))


def both_ways(make, **settings):
    """Outcomes with few and with all directions, and how far apart their iterates are, scaled."""
    prepared, point = begun(make, 20, **settings)
    assert all(s.form == "through" for s in prepared.chains.shootings)
    space, search = prepared.space(point), prepared.method.search
    few, points = visited(search, prepared.chains, point, space)
    all_, others = visited(search, full(prepared.chains), point, space)
    assert len(points) == len(others)
    pairs = zip(points, others, strict=True)
    return few, all_, [one.minus(other).length(space.scale(other)) for one, other in pairs]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "least"), [(of_ring, 25), (of_mild_rod, 5)])
def test_all_iterates_are_those_of_all_derivatives(make, least):
    """Damped steps among them, on the same steps of integration."""
    few, all_, gone = both_ways(make)
    assert few.status is all_.status is Status.CONVERGED
    assert (few.iterations, few.evaluations) == (all_.iterations, all_.evaluations)
    assert len(gone) >= least
    assert max(gone) <= 1e-10
    assert few.condensed.jacobian == pytest.approx(all_.condensed.jacobian, rel=1e-8, abs=1e-8)


def test_with_a_robust_loss_the_answer_is_that_of_all_derivatives():
    """Its inner iterations end at a tolerance of their own, so that iterates differ by that."""
    few, all_, _ = both_ways(of_ring, loss=Huber(1.5))
    assert few.status is all_.status is Status.CONVERGED
    assert few.at.cost == pytest.approx(all_.at.cost, rel=1e-9)
    assert few.point.unknowns == pytest.approx(all_.point.unknowns, rel=1e-6)


def test_stiff_steps_from_the_same_points_are_those_of_all_derivatives():
    """Step lengths at the limit of stability hang on rounding, so that later points differ."""
    prepared, point = begun(of_rod, 8)
    space, other = prepared.space(point), full(prepared.chains)
    _, points = visited(prepared.method.search, prepared.chains, point, space)
    implicit = 0
    for here, there in pairwise(points):
        few, all_ = (proposal(c(here), here, space) for c in (prepared.chains, other))
        size = space.scale(here)
        assert few.move.minus(all_.move).length(size) <= 1e-10
        trial = prepared.chains(there)
        both = (simplified(step, trial, 1.0) for step in (few, all_))
        assert next(both).minus(next(both)).length(size) <= 1e-10
        shooting = prepared.chains.shootings[0]
        q = here.unknowns[shooting.index]
        starts = np.vstack([shooting.start(here.unknowns), here.nodes[0][1:]])
        ran = shooting.intervals.chained(starts, q, np.ones((N + len(q), 1)), probed=True)
        implicit += ran.steps[:, 1].sum()
    assert implicit > 0


@every_case
def test_reduced_chains_are_the_condensed_ones(case):
    """Whether it pays or not: inputs, start values that are estimated, what is measured at once."""
    prepared = MultipleShooting(intervals=4, links=()).prepare(case.problem(noise=0.05))
    if not all(s.intervals.chains for s in prepared.chains.shootings):
        pytest.skip("implicit algebraic variables")
    few, all_ = through(prepared.chains), full(prepared.chains)
    point = prepared.begin(prepared.problem.box.vector(case.near))
    rng = np.random.default_rng(3)
    point = point._replace(nodes=tuple(s * rng.uniform(0.9, 1.1, s.shape) for s in point.nodes))
    one, other = few(point), all_(point)
    for reduced, chain in zip(one.chains, other.chains, strict=True):
        assert isinstance(reduced, Reduced)
        assert isinstance(chain, Chain)
        gaps = rng.normal(size=chain.gap.shape)
        mine = (*reduced.condensed(), *reduced.shifted(gaps), reduced.residual, reduced.gap)
        known = (*chain.condensed(), *chain.shifted(gaps), chain.residual, chain.gap)
        for a, b in zip(mine, known, strict=True):
            assert a == pytest.approx(b, rel=1e-9, abs=1e-10 * np.abs(b).max(initial=0.0))


def test_a_derivative_that_is_none_where_nothing_moves():
    """sqrt(k B) at B = 0 is 0 / 0 by k."""

    def builder(times):
        m = over_time(times, "A B", "y", k=(0, 10))
        m.decay = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.growth = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t])
        m.signal = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] == pyo.sqrt(m.k * m.B[t]))
        return m

    t = np.linspace(0, 3, 7)
    table = pd.DataFrame({"time": t, "y": np.sqrt(0.7 * (1 - np.exp(-0.7 * t)))})
    run = Experiment(table, start={"A": 1.0, "B": 0.0}, sigma=0.01)
    problem = Problem(builder, parameters=["k"], experiments=[run])
    prepared = MultipleShooting(links=()).prepare(problem)
    point = prepared.begin(np.array([0.5]))
    few, all_ = (c(point).chains[0] for c in (through(prepared.chains), prepared.chains))
    assert isinstance(all_, Chain)
    assert few.is_finite
    known = all_.condensed().jacobian
    assert few.condensed().jacobian == pytest.approx(known, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("make", [of_ring, of_rod])
def test_the_answer_is_that_of_single_shooting(make):
    problem = make()
    method = MultipleShooting(intervals=10, restarts=Restarts(count=0))
    known = SingleShooting().estimate(problem, TRUTH[make])
    found = method.estimate(problem, START[make])
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(known.objective, rel=1e-6)
    assert found.parameters == pytest.approx(known.parameters, rel=1e-4)


@pytest.mark.slow
def test_a_broken_interval_is_told():
    prepared, point = begun(of_ring, 20)
    nodes = point.nodes[0].copy()
    nodes[3, 0] = np.inf
    assert prepared.chains(point._replace(nodes=(nodes,))) is None
    assert "not finite" in prepared.chains.broken.sentence


def test_it_is_chosen_where_it_pays():
    """Not for few states, nor for many unknown starts, nor with constraints on the course."""
    small = MultipleShooting().prepare(ZOO[0].problem())
    table = pd.DataFrame(8.0, index=range(9), columns=NAMES).assign(time=np.linspace(0, 1, 9))
    free = Experiment(table, start=dict.fromkeys(NAMES, Unknown(0, 20)), sigma=0.1)
    many = MultipleShooting().prepare(Problem(ring, parameters=list("abc"), experiments=[free]))
    for prepared in (small, many):
        assert not any(s.form == "through" for s in prepared.chains.shootings)
    prepared, _ = begun(of_ring, 20)
    assert all(s.form == "through" for _, c in prepared.stages.exact for s in c.shootings)
    assert not any(s.form == "through" for s in prepared.stages.free.shootings)
