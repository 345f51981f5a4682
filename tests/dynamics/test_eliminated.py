"""Unknowns that only outputs depend on, eliminated from the search: exactly, by every measure."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from hierarchical import instrument
from scipy.optimize import approx_fprime, minimize

import igpe
from igpe.dynamics.shooting.projected import UnlikeError, without
from igpe.numerics.least_squares.gauss_newton import GaussNewton

TIMES = np.linspace(0.0, 5.0, 15)
TRUTH = {"k1": 0.8, "k2": 0.3, "scale": 40.0, "offset": 7.0, "sd": 0.5}


def chain(times):
    """A becomes B, which decays; both are seen through instruments."""
    m = instrument(times)
    m.log = pyo.Expression(m.t, rule=lambda m, t: pyo.log(m.scale * m.A[t] + 100 + m.offset))
    return m


def values(start=1.0):
    a = start * np.exp(-0.8 * TIMES)
    b = start * 0.8 / (0.3 - 0.8) * (np.exp(-0.8 * TIMES) - np.exp(-0.3 * TIMES))
    noise = np.random.default_rng(int(10 * start)).normal(0, 1, (2, len(TIMES)))
    seen = TRUTH["offset"] + TRUTH["scale"] * (b + 0.5 * a) + 0.5 * noise[0]
    log = np.log(TRUTH["scale"] * a + 100 + TRUTH["offset"]) + 0.01 * noise[1]
    return {"time": TIMES, "seen": seen, "log": log}


def run(sd="sd", start=1.0, names=("seen",), **settings):
    data = pd.DataFrame(values(start))[["time", *names]]
    known = {"seen": 0.5, "log": 0.01}
    sigma = {n: igpe.EstimatedSigma(sd) if sd and n == "seen" else known[n] for n in names}
    return igpe.Experiment(data, start={"A": start, "B": 0.0}, sigma=sigma, **settings)


def plain(**settings):
    return igpe.Problem(chain, parameters=list(TRUTH), experiments=run(), **settings)


def known():
    names = ["k1", "k2", "scale", "offset"]
    return igpe.Problem(chain, parameters=names, experiments=run(sd=None))


def logarithm():
    runs = [run(names=("seen", "log")), run(start=2.0, names=("seen", "log"))]
    return igpe.Problem(chain, parameters=list(TRUTH), experiments=runs)


def grouped():
    """Each experiment has a scale of its own, the offset is shared."""
    runs = [run(name="one"), run(start=2.0, name="two")]
    return igpe.Problem(
        chain,
        parameters=list(TRUTH),
        experiments=runs,
        local=["scale"],
        logarithmic=["scale", "sd"],
    )


def with_priors():
    return plain(
        priors={
            "offset": igpe.losses.NormalPrior(5.0, 0.4),
            "scale": igpe.losses.Prior("log-normal", (3.6, 0.02)),
        }
    )


def bounded():
    """The best scale lies below its bound."""
    bounds = {**dict.fromkeys(TRUTH), "scale": (45.0, 100.0)}
    return igpe.Problem(chain, parameters=bounds, experiments=run())


POSED = [plain, known, logarithm, grouped, with_priors, bounded]
AWAY = {"k1": 1.1, "k2": 0.2}


def away(problem):
    return problem.box.vector({
        n: AWAY.get(n, TRUTH.get(n.split("[")[0].split(" ")[0], 1.0)) for n in problem.box.names
    })


def prepared(problem, **settings):
    search = GaussNewton(1e-13, max_iterations=300)
    return igpe.SingleShooting(search=search, **settings).prepare(problem)


@pytest.mark.parametrize("posed", POSED)
def test_the_gradient_is_that_of_the_best_over_what_is_eliminated(posed):
    problem = posed()
    few = prepared(problem).few
    x = away(problem)
    at = few(x[few.outer])
    by_differences = approx_fprime(x[few.outer], lambda a: few(a).cost, 1e-6)
    assert np.allclose(2 * at.jacobian.T @ at.residual, by_differences, rtol=2e-3)


@pytest.mark.parametrize("posed", [known, grouped])
def test_the_next_inner_search_begins_where_the_linear_model_is_least(posed):
    problem = posed()
    few, x = prepared(problem).few, away(problem)
    x[few.inner] = few.solved(x)[0][few.inner]
    few(x[few.outer])
    moved = x.copy()
    moved[few.outer] *= 1 + 1e-3
    best = few.solved(moved)[0][few.inner]
    missed = few._expected(moved[few.outer]) - best  # of first order in the residuals
    assert np.linalg.norm(missed) < 0.5 * np.linalg.norm(x[few.inner] - best)


@pytest.mark.parametrize(("tolerance", "inner"), [(1e-5, 1e-8), (1e-10, 1e-13), (1e-12, 1e-13)])
def test_what_is_eliminated_is_solved_more_exactly_than_the_search(tolerance, inner):
    problem = plain()
    few = prepared(problem).few
    few.fit(GaussNewton(tolerance), away(problem))
    assert few._search.tolerance == pytest.approx(inner)


@pytest.mark.parametrize("posed", POSED)
def test_what_is_eliminated_is_at_its_best(posed):
    problem = posed()
    ready = prepared(problem)
    few, x = ready.few, away(problem)
    best, at = few.solved(x)

    def cost(b):
        there = best.copy()
        there[few.inner] = b
        return ready.residuals(there).cost

    own = few.own
    assert at.cost == pytest.approx(cost(best[few.inner]), rel=1e-7)
    other = minimize(
        cost, best[few.inner], bounds=list(zip(own.lower, own.upper, strict=True)), tol=1e-12
    )
    assert other.fun >= at.cost - 1e-5 * abs(at.cost)
    again = ready.residuals(best)
    assert np.allclose(at.residual, again.residual, rtol=1e-5, atol=1e-6)
    assert np.allclose(at.jacobian, again.jacobian, rtol=1e-5, atol=1e-5)


def test_the_projected_derivative_is_that_of_the_residuals_of_a_linear_inner_problem():
    """Kaufman's form leaves out what is orthogonal to the residual's own part: none if r = 0."""
    problem = known()
    few = prepared(problem).few
    x = away(problem)[few.outer]
    at, step = few(x), 1e-5
    curvature = at.jacobian.T @ at.jacobian
    full = few.solved(away(problem))[1].jacobian
    covariance = np.linalg.inv(full.T @ full)[np.ix_(few.outer, few.outer)]
    assert np.allclose(np.linalg.inv(curvature), covariance, rtol=1e-6)
    for i in range(len(x)):
        shift = step * np.eye(len(x))[i]
        slope = (few(x + shift).residual - few(x - shift).residual) / (2 * step)
        own = full[:, few.inner]
        assert np.allclose(
            without(own, slope[:, None])[:, 0], at.jacobian[:, i], rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("posed", POSED)
def test_optimum_and_derivative_are_those_of_the_full_problem(posed):
    problem = posed()
    start = problem.box.mapping(away(problem))
    one, other = (prepared(problem, hierarchical=h) for h in (True, False))
    assert one.few is not None
    assert other.few is None
    few, all_searched = one.fit(start), other.fit(start)
    assert few.status is all_searched.status is igpe.Status.CONVERGED
    assert few.cost == pytest.approx(all_searched.cost, abs=1e-6)
    assert np.allclose(few.x, all_searched.x, rtol=1e-4)
    errors = [
        np.sqrt(np.diag(np.linalg.inv(f.at.jacobian.T @ f.at.jacobian)))
        for f in (few, all_searched)
    ]
    assert np.allclose(*errors, rtol=1e-3)


def test_which_unknowns_are_eliminated():
    assert set(prepared(plain()).few.own.names) == {"scale", "offset", "sd"}
    assert len(prepared(grouped()).few.own) == 4


def test_an_unknown_that_moves_a_state_is_searched():
    def fed(times):
        m = chain(times)
        m.rate_b.deactivate()
        m.fed = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.scale * m.A[t] - m.k2 * m.B[t])
        return m

    posed = igpe.Problem(fed, parameters=list(TRUTH), experiments=run())
    assert set(prepared(posed).few.own.names) == {"offset", "sd"}


def test_a_start_value_that_is_an_unknown_is_searched():
    def begun(times):
        m = chain(times)
        m.begin = pyo.Constraint(expr=m.A[0] == m.scale)
        return m

    data = pd.DataFrame(values())[["time", "seen"]]
    one = igpe.Experiment(data, start={"B": 0.0}, sigma={"seen": 0.5})
    posed = igpe.Problem(begun, parameters=list(TRUTH)[:4], experiments=one)
    assert prepared(posed).few.own.names == ("offset",)


def test_robust_losses_are_searched_in_all_unknowns():
    posed = igpe.Problem(
        chain, parameters=list(TRUTH)[:4], experiments=run(sd=None), loss=igpe.losses.Huber()
    )
    assert prepared(posed).few is None


def test_an_output_that_does_not_depend_on_a_scale_is_no_fit_of_it():
    """A stays at zero: the scale has no column, and keeps its value."""
    data = pd.DataFrame(values())[["time", "seen"]]
    one = igpe.Experiment(
        data, start={"A": 0.0, "B": 0.0}, sigma={"seen": igpe.EstimatedSigma("sd")}
    )
    posed = igpe.Problem(chain, parameters=list(TRUTH), experiments=one)
    fit = prepared(posed).fit(TRUTH)
    assert np.isfinite(fit.cost)
    value = posed.box.mapping(fit.x)
    assert value["scale"] == TRUTH["scale"]
    assert value["offset"] == pytest.approx(data["seen"].mean(), rel=1e-4)
    assert value["sd"] == pytest.approx(data["seen"].std(ddof=0), rel=1e-3)


def test_outputs_that_do_not_follow_from_the_states_are_not_used(monkeypatch):
    posed = known()
    ready = prepared(posed)
    wrong = ready.few._outputs[0]
    right = wrong.all

    def shifted(trajectory, q):
        return replace(right(trajectory, q), measured=trajectory.measured + 1)

    monkeypatch.setattr(wrong, "all", shifted)
    with pytest.raises(UnlikeError):
        ready.few.fit(ready.search, away(posed))
    fit = ready.fit(posed.box.mapping(away(posed)))
    assert fit.cost == pytest.approx(prepared(posed, hierarchical=False).fit(TRUTH).cost, abs=1e-6)


@pytest.mark.parametrize(
    "method",
    [
        igpe.search.MultiStart(trials=8, starts=2),
        igpe.search.IteratedSearch(starts=4, patience=3, most=5),
    ],
)
def test_searches_from_many_starts_end_at_the_optimum(method):
    posed = plain()
    found = method.estimate(posed, {})
    least = prepared(posed, hierarchical=False).fit(TRUTH).cost
    assert found.objective == pytest.approx(least, abs=1e-4)
