"""Backward lifting: gradients of all derivatives, and the optima of Gauss-Newton."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pendulum
import pytest
from ode import row
from test_multiple_shooting_reduced import TRUTH, begun, of_rod
from zoo import CASES

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.compiler import compiler
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.numerics.least_squares.chains import Lifted, Point, condensed
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.problem.experiment import Experiment
from igpe.problem.losses import Huber
from igpe.problem.problem import Problem

pytestmark = pytest.mark.skipif(not compiler(), reason="needs a C compiler")

N, R = 12, 66  # species, and reactions with a rate constant each
PAIRS = [(i, j) for i in range(N) for j in range(i)][:R]
NAMES = [f"x[{i}]" for i in range(N)]
RATES = [f"k[{r}]" for r in range(R)]


def made(m, i, t):
    """Every species reacts to every earlier one; each third reaction is of second order."""
    found = 0.0
    for r, (one, other) in enumerate(PAIRS):
        begin, end = (one, other) if r % 2 else (other, one)
        if i in {begin, end}:
            second = m.x[(begin + 3) % N, t] if r % 3 == 0 else 1.0
            found += m.k[r] * m.x[begin, t] * second * ((i == end) - (i == begin))
    return found


network = row(range(N), made, indexed={"k": (range(R), (0, 20))})


@cache
def of_network():
    """Three runs from known starts, errors of 0.01; and the truth."""
    rng = np.random.default_rng(3)
    truth = dict(zip(RATES, rng.uniform(0.3, 2.0, R).tolist(), strict=True))
    times, starts = np.linspace(0, 1.5, 31), rng.uniform(0.2, 2.0, (3, N))

    def posed(tables):
        runs = [
            Experiment(
                t, name=f"run {e}", start=dict(zip(NAMES, s.tolist(), strict=True)), sigma=0.01
            )
            for e, (s, t) in enumerate(zip(starts, tables, strict=True))
        ]
        return Problem(network, parameters=RATES, experiments=runs)

    blank = pd.DataFrame(0.0, index=range(len(times)), columns=NAMES).assign(time=times)
    empty = posed([blank] * 3)
    shootings = MultipleShooting(intervals=1).prepare(empty).chains.shootings
    q = empty.box.vector(truth)
    told = [s.shoot(q, start[None]).measured for s, start in zip(shootings, starts, strict=True)]
    noisy = [v + 0.01 * rng.normal(size=v.shape) for v in told]
    return posed([pd.DataFrame(v, columns=NAMES).assign(time=times) for v in noisy]), truth


def direct(search, **settings):
    """Exact matching from the beginning, once."""
    once = {"links": (), "finer": 1, "restarts": Restarts(count=0)}
    return MultipleShooting(search=search, **{**once, **settings})


def both(problem, start, **settings):
    """Estimates of backward lifting and of Gauss-Newton."""
    searches = (BackwardLifting(), GeneralisedGaussNewton())
    return [direct(s, **settings).estimate(problem, start) for s in searches]


@pytest.mark.slow
def test_gradients_and_moves_are_those_of_all_derivatives():
    """Of stiff equations, in two runs, one from an unknown start."""
    prepared, point = begun(of_rod, 6)
    forms = (replace(s, form="lifted") for s in prepared.chains.shootings)
    at = replace(prepared.chains, shootings=tuple(forms))(point)
    for chain in at.chains:
        assert isinstance(chain, Lifted)
        whole = chain.whole()
        affine, dq = whole.condensed(), np.array([3.0, -2.0, 0.5])
        weights = np.random.default_rng(1).normal(size=len(chain.residual))
        forwards = weights @ affine.jacobian
        assert whole.residual == pytest.approx(chain.residual, abs=1e-10)
        assert chain.shift == pytest.approx(affine.shift, abs=1e-10 * np.abs(affine.shift).max())
        close = 1e-10 * np.abs(forwards).max()
        assert chain.gradient(weights) == pytest.approx(forwards, abs=close)
        moves = affine.moves @ np.append(dq, 1.0)
        assert chain.along(dq) == pytest.approx(moves, abs=1e-10 * np.abs(moves).max())


@pytest.mark.slow
def test_the_gradient_of_the_cost_is_that_of_differences():
    """Where nodes meet it is single shooting's."""
    problem, truth = of_network()
    prepared = direct(BackwardLifting(), intervals=5).prepare(problem)
    chains, q = prepared.chains, 1.1 * problem.box.vector(truth)
    assert all(s.form == "lifted" for s in chains.shootings)

    def met(q):
        nodes = []
        for s in chains.shootings:
            mine = np.tile(s.start(q), (len(s.nodes) - 1, 1))
            for k in range(1, len(mine)):
                mine[k] = s.shoot(q, mine).ends[k - 1]
            nodes.append(mine)
        return chains(Point(q, tuple(nodes)))

    at = met(q)
    gradient = 2 * sum(c.gradient(c.residual + c.shift) for c in at.chains)
    for i in (0, 20, 65):
        step = 1e-4 * np.eye(R)[i]
        slope = (met(q + step).cost - met(q - step).cost) / 2e-4
        assert gradient[i] == pytest.approx(slope, abs=1e-5 * np.abs(gradient).max())


def test_the_pendulum_as_by_gauss_newton():
    problem = pendulum.problem()
    start = {n: {"l": 0.6, "alpha": 1.0}.get(n, 0.5) for n in problem.box.names}
    back, gauss = both(problem, start)
    assert back.status is gauss.status is Status.CONVERGED
    assert back.objective == pytest.approx(gauss.objective, rel=1e-9)
    assert back.parameters == pytest.approx(gauss.parameters, rel=1e-5, abs=1e-6)


def test_many_unknowns_as_by_gauss_newton():
    problem, truth = of_network()
    back, gauss = both(problem, dict.fromkeys(truth, 1.0), intervals=10)
    assert len(problem.box) == R
    assert back.status is gauss.status is Status.CONVERGED
    assert back.objective == pytest.approx(gauss.objective, rel=1e-9)
    assert back.parameters == pytest.approx(gauss.parameters, abs=1e-4)


def test_stiff_equations_and_an_unknown_start_as_by_gauss_newton():
    problem = of_rod()
    back, gauss = both(problem, {n: 0.8 * v for n, v in TRUTH[of_rod].items()}, intervals=8)
    assert back.status is gauss.status is Status.CONVERGED
    assert back.parameters == pytest.approx(gauss.parameters, rel=1e-4)


def test_after_the_continuation_and_with_all_its_stages():
    case = CASES["lotka_volterra"]
    problem = case.problem()
    found = MultipleShooting(search=BackwardLifting()).estimate(problem, case.near)
    assert found.status is Status.CONVERGED
    assert found.parameters == pytest.approx(case.truth, rel=1e-4)


def test_an_optimum_on_a_bound():
    problem, truth = of_network()
    held = {n: (0.0, 0.8 * truth[n] if r % 5 == 0 else 20.0) for r, n in enumerate(RATES)}
    tight = Problem(network, parameters=held, experiments=problem.experiments)
    back, gauss = both(tight, dict.fromkeys(truth, 0.2), intervals=10)
    assert back.objective == pytest.approx(gauss.objective, rel=1e-8)
    assert any(back.parameters[n] == high for n, (_, high) in held.items())


def test_iterations_that_are_too_few_are_told():
    problem, truth = of_network()
    search = BackwardLifting(max_iterations=2)
    found = direct(search, intervals=10).estimate(problem, dict.fromkeys(truth, 1.0))
    assert found.trail[0].status is Status.ITERATION_LIMIT
    assert found.trail[0].iterations == 2


def test_the_last_point_has_all_derivatives():
    problem, truth = of_network()
    prepared = direct(BackwardLifting(), intervals=10).prepare(problem)
    fit = prepared.fit(dict.fromkeys(truth, 1.0))
    assert fit.at.jacobian.shape == (len(prepared.chains), R)
    space = prepared.space(prepared.begin(problem.box.vector(truth)))
    outcome = BackwardLifting().fit(
        prepared.chains, prepared.begin(problem.box.vector(truth)), space
    )
    assert np.isfinite(condensed(outcome.at).at.jacobian).all()


def test_what_it_cannot_do_is_refused():
    case = CASES["decay"]
    search, problem = BackwardLifting(), case.problem()
    runs = problem.experiments
    robust = Problem(case.builder, parameters=list(case.truth), experiments=runs, loss=Huber(1.0))
    with pytest.raises(Unsupported, match=r"supports no model constraints.*'Huber'"):
        direct(search).prepare(robust)
    with pytest.raises(Unsupported, match=r"needs RungeKutta\(\) or Automatic\(\)"):
        direct(search, integrator=LockStep()).prepare(problem)
