"""Standard deviations that follow the model: the same in every method, and what they end at."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode
from scipy.optimize import least_squares, root
from zoo import CASES, decay

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.collocation import collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.likelihood import errors_at
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import (
    MOST,
    first_weighted,
    iteratively_reweighted,
    weighted_at,
)

SHARE = 0.2
TIMES = np.linspace(0.1, 4.0, 30)
TRUTH = {"k": 0.8, "A(t0)": 2.0}
START = {"k": 2.0, "A(t0)": 1.0}
METHODS = [
    igpe.SingleShooting(),
    igpe.IncrementalShooting(),
    igpe.MultipleShooting(),
    igpe.Collocation(),
    igpe.search.MultiStart(trials=16, starts=2),
    igpe.search.MultiStart(igpe.MultipleShooting(), starts=2),
]
QUICK = igpe.Settings(
    ladder=(igpe.smoothing.GcvSpline(),),
    routes=igpe.algebraic.RouteSelection(proven=igpe.algebraic.LocalSearch()),
)
methods = pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)


def decayed(seed=0, share=SHARE, floor=0.0):
    random = np.random.default_rng(seed)
    exact = TRUTH["A(t0)"] * np.exp(-TRUTH["k"] * TIMES)
    errors = np.hypot(floor, share * exact) * random.standard_normal(TIMES.size)
    return pd.DataFrame({"time": TIMES, "A": exact + errors})


def posed(data, sigma, **settings):
    start = {"A": igpe.Unknown(0.1, 10.0, guess=0.5)}  # smaller than data: they share code
    run = igpe.Experiment(data, start=start, start_time=0.0, sigma=sigma)
    return igpe.Problem(decay, parameters=["k"], experiments=run, **settings)


def closed_form(x, t=TIMES):
    """Predictions (n,) and their derivative (n, 2) by k and A(t0)."""
    h = x[1] * np.exp(-x[0] * t)
    return h, np.column_stack([-t * h, h / x[1]])


def estimating_equations(y, share, floor):
    def equations(x):
        h, slope = closed_form(x)
        return slope.T @ ((h - y) / (floor**2 + (share * h) ** 2))

    return equations


def noisy(name, share=0.1, **settings):
    """A problem of the zoo with proportional errors."""
    case = CASES[name]
    data = case.data()
    random = np.random.default_rng(4)
    for column in case.measured:
        data[column] *= 1 + share * random.standard_normal(len(data))
    known = {"start": case.start, "start_time": 0.0, "inputs": case.inputs}
    run = igpe.Experiment(data, sigma=igpe.Noise(relative=share), **known)
    return igpe.Problem(case.builder, parameters=list(case.truth), experiments=run, **settings)


def frozen_gradient(problem, found):
    """Cosines between residuals and their derivatives, weights held, by differences; and sigma."""
    (run,) = problem.experiments
    m = run.measurements

    def predicted(values):
        table = igpe.simulate(
            problem, values, run.times, integrator=Sundials(rtol=1e-12, atol=1e-14)
        )
        return table[list(m.names)].to_numpy()[m.row, m.column]

    h = predicted(found)
    sigma = np.array([run.error_models[m.names[c]].relative for c in m.column]) * np.abs(h)
    residual = (h - m.value) / sigma
    cosines = []
    for name, value in found.items():
        step = 1e-4 * value
        up, down = (predicted({**found, name: value + s}) for s in (step, -step))
        slope = (up - down) / sigma
        cosines.append(float(residual @ slope / np.sqrt((residual @ residual) * (slope @ slope))))
    return np.array(cosines), sigma


@methods
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_every_method_solves_the_estimating_equations(method, floor):
    data = decayed(seed=3, floor=floor)
    known = root(estimating_equations(data["A"].to_numpy(), SHARE, floor), [0.8, 2.0], tol=1e-13)
    found = method.estimate(posed(data, igpe.Noise(absolute=floor, relative=SHARE)), START)
    assert found.status in {Status.CONVERGED, Status.BEST_OF_SEVERAL}
    assert [found.parameters[n] for n in ("k", "A(t0)")] == pytest.approx(known.x, rel=1e-5)
    h, _ = closed_form(known.x)
    chi2 = np.sum((data["A"] - h) ** 2 / (floor**2 + (SHARE * h) ** 2))
    assert found.objective == pytest.approx(chi2, rel=1e-5)
    assert "weights in" in found.method


def test_the_five_steps_solve_them_too():
    data = decayed(seed=3, floor=0.1)
    known = root(estimating_equations(data["A"].to_numpy(), SHARE, 0.1), [0.8, 2.0], tol=1e-13)
    result = igpe.estimate(posed(data, {"A": igpe.Noise(absolute=0.1, relative=SHARE)}))
    assert [result.parameters[n] for n in ("k", "A(t0)")] == pytest.approx(known.x, rel=1e-5)
    h, slope = closed_form(known.x)
    sigma = np.hypot(0.1, SHARE * h)
    assert result.points["sigma"].to_numpy() == pytest.approx(sigma, rel=1e-5)
    assert result.objective == pytest.approx(np.sum(((data["A"] - h) / sigma) ** 2), rel=1e-5)
    weighted = slope / sigma[:, None]
    names = [p.name for p in result.estimates]
    order = [names.index(n) for n in ("k", "A(t0)")]
    assert result.covariance[np.ix_(order, order)] == pytest.approx(
        np.linalg.inv(weighted.T @ weighted), rel=1e-4
    )
    assert result.fit()["sum_of_squares"].sum() == pytest.approx(result.objective, rel=1e-6)
    assert 0.01 < result.probability < 0.99
    again = igpe.Result.from_json(result.to_json())
    assert again.points["sigma"].to_numpy() == pytest.approx(sigma, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lotka_volterra", "unmeasured_intermediate", "stirred_tank"])
def test_all_methods_end_at_the_same_place_where_the_gradient_with_held_weights_is_zero(name):
    problem = noisy(name)
    found = [m.estimate(problem, CASES[name].near).parameters for m in METHODS[:4]]
    found.append(igpe.estimate(problem, QUICK).parameters)
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)
    cosines, sigma = frozen_gradient(problem, found[0])
    assert np.abs(cosines).max() < 1e-5
    assert np.ptp(np.log(sigma)) > 0.1  # the weights differ, so that something was tested


def estimates(sigma_of, seeds=60):
    """(n_seeds, 2) k and A(t0), with standard deviations made of the data."""
    found = [
        igpe.SingleShooting().estimate(posed(data, sigma_of(data)), TRUTH).parameters
        for data in map(decayed, range(seeds))
    ]
    return np.array([[at["k"], at["A(t0)"]] for at in found])


@pytest.mark.statistical
def test_weights_of_the_model_are_right_where_those_of_measurements_lean_to_small_ones():
    """By chance small measurements count too much if each tells its own weight."""
    ours = estimates(lambda data: igpe.Noise(relative=SHARE))
    theirs = estimates(lambda data: {"A": SHARE * np.abs(data["A"].to_numpy())})
    off, far = (found[:, 1] / TRUTH["A(t0)"] - 1 for found in (ours, theirs))
    assert abs(off.mean()) < 3 * off.std() / np.sqrt(off.size)
    assert far.mean() == pytest.approx(-2 * SHARE**2, rel=0.3)  # to second order in SHARE
    assert far.mean() < -5 * far.std() / np.sqrt(far.size)

    inside = []
    for x in ours:  # intervals as in the result, which is compared with this closed form above
        h, slope = closed_form(x)
        weighted = slope / (SHARE * h)[:, None]
        error = np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted)))
        inside += list(np.abs(x - [TRUTH["k"], TRUTH["A(t0)"]]) < 1.96 * error)
    assert 0.88 < np.mean(inside) < 0.99


def test_first_weights_come_from_smoothed_measurements():
    data = decayed(seed=1)
    data.loc[12, "A"] *= 1.5
    first = first_weighted(posed(data, igpe.Noise(relative=SHARE)))
    sigma = first.experiments[0].measurements.sigma
    exact = SHARE * TRUTH["A(t0)"] * np.exp(-TRUTH["k"] * TIMES)
    assert np.sqrt(np.mean(np.log(sigma / exact) ** 2)) < 0.6 * SHARE
    assert sigma[12] < 1.2 * exact[12]
    assert first_weighted(first) is first


@pytest.mark.slow
def test_without_a_floor_the_share_does_not_matter_and_is_told_by_chi_squared():
    problems = [posed(decayed(seed=6), igpe.Noise(relative=share)) for share in (0.02, SHARE)]
    small, right = (igpe.estimate(problem, QUICK) for problem in problems)
    assert small.parameters == pytest.approx(right.parameters, rel=1e-5)
    assert small.reduced_chi_squared == pytest.approx(100 * right.reduced_chi_squared, rel=1e-5)


def test_local_unknowns_several_experiments_and_gaps():
    random = np.random.default_rng(7)
    runs = []
    for name, k, floor in (("one", 0.5, 0.0), ("two", 1.5, 0.01)):
        values = 2.0 * np.exp(-k * TIMES)
        values *= 1 + 0.1 * random.standard_normal(TIMES.size)
        values[[3, 17]] = np.nan
        data = pd.DataFrame({"time": TIMES, "A": values})
        sigma = igpe.Noise(absolute=floor, relative=0.1)
        runs.append(igpe.Experiment(data, name=name, start={"A": 2.0}, start_time=0, sigma=sigma))
    problem = igpe.Problem(decay, parameters=["k"], experiments=runs, local=["k"])
    found = [m.estimate(problem, {"k@one": 1.0, "k@two": 1.0}).parameters for m in METHODS[:4]]
    result = igpe.estimate(problem, QUICK)
    for other in (*found[1:], result.parameters):
        assert other == pytest.approx(found[0], rel=1e-5)
    for run, name, floor in zip(runs, ("k@one", "k@two"), (0.0, 0.01), strict=True):
        t, y, _ = run.measurements.of("A")

        def equation(k, t=t, y=y, floor=floor):
            h = 2.0 * np.exp(-k * t)
            return -np.sum(t * h * (h - y) / (floor**2 + (0.1 * h) ** 2))

        assert found[0][name] == pytest.approx(root(equation, 1.0, tol=1e-13).x[0], rel=1e-5)
    assert len(result.points) == 2 * (TIMES.size - 2)


def test_robust_losses_follow_the_model_too():
    data = decayed(seed=5)
    data.loc[8, "A"] *= 4
    y = data["A"].to_numpy()
    found = igpe.MultipleShooting().estimate(
        posed(data, igpe.Noise(relative=SHARE), loss=igpe.losses.Huber(1.345)), START
    )
    x = np.array([0.8, 2.0])
    for _ in range(50):
        sigma = SHARE * closed_form(x)[0]
        x = least_squares(
            lambda q, s=sigma: (closed_form(q)[0] - y) / s, x, loss="huber", f_scale=1.345,
            xtol=1e-14, ftol=1e-14, gtol=1e-14,
        ).x  # fmt: skip
    assert [found.parameters[n] for n in ("k", "A(t0)")] == pytest.approx(x, rel=1e-5)


def test_priors_and_constraints_are_kept():
    data = decayed(seed=2)

    def slow(times):
        m = decay(times)
        m.limit = pyo.Constraint(expr=m.k <= 0.7)
        return m

    run = igpe.Experiment(data, start={"A": 2.0}, start_time=0.0, sigma=igpe.Noise(relative=SHARE))
    held = igpe.Problem(slow, parameters=["k"], experiments=run)
    assert igpe.Collocation().estimate(held, {"k": 0.3}).parameters["k"] == pytest.approx(0.7)
    prior = igpe.Problem(
        decay, parameters=["k"], experiments=run, priors={"k": igpe.losses.NormalPrior(0.3, 1e-3)}
    )
    assert igpe.SingleShooting().estimate(prior, {"k": 1.0}).parameters["k"] < 0.35


def test_measurements_over_six_decades_keep_their_weights():
    times = np.linspace(0.3, 9.0, 30)
    random = np.random.default_rng(1)
    values = np.exp(-1.5 * times) * (1 + 0.1 * random.standard_normal(30))
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "A": values}),
        start={"A": igpe.Unknown(0.1, 10)}, start_time=0.0, sigma=igpe.Noise(relative=0.1),
    )  # fmt: skip
    problem = igpe.Problem(decay, parameters=["k"], experiments=run)
    found = [m.estimate(problem, {"k": 0.2, "A(t0)": 3.0}) for m in METHODS[:4]]
    for one in found:
        assert one.parameters["k"] == pytest.approx(1.5, abs=0.02)  # its error is 0.007
        assert one.objective < 60


def test_a_measurement_where_the_model_is_zero_is_told():
    case = CASES["consecutive"]
    zero = pd.DataFrame([{"time": 0.0, "A": 1.0, "B": 0.01, "C": 0.0}])
    data = pd.concat([zero, case.data()], ignore_index=True)
    run = igpe.Experiment(data, start=case.start, sigma=igpe.Noise(relative=0.05))
    problem = igpe.Problem(case.builder, parameters=list(case.truth), experiments=run)
    for found in (igpe.SingleShooting().estimate(problem, case.near), igpe.estimate(problem)):
        (note,) = [n for n in found.notes if "nearly 0" in n]
        assert "1 measurement of B in experiment 1" in note
        assert "Give an absolute part: igpe.Noise(absolute=..., relative=0.05)" in note
        assert found.parameters == pytest.approx(case.truth, rel=1e-5)
    assert "The measurements there are far from the model." in note
    assert note in found.actions


def test_many_starts_are_compared_with_the_same_weights():
    found = igpe.search.MultiStart(trials=16, starts=3).estimate(noisy("lotka_volterra"), {})
    assert found.status is Status.BEST_OF_SEVERAL
    assert found.method.startswith("best of 3 starts, single shooting, weights in")


def test_an_interrupt_of_a_later_fit_keeps_the_one_before(monkeypatch):
    solve, first, meshes = collocation._solve, collocation.first_meshes, []

    def counted(problem, *arguments, **named):
        meshes.append(problem)
        return first(problem, *arguments, **named)

    def interrupted(*arguments):
        sigma = meshes[0].experiments[0].measurements.sigma
        if not np.array_equal(meshes[-1].experiments[0].measurements.sigma, sigma):
            raise KeyboardInterrupt
        return solve(*arguments)

    monkeypatch.setattr(collocation, "first_meshes", counted)
    monkeypatch.setattr(collocation, "_solve", interrupted)
    result = igpe.estimate(noisy("consecutive"), QUICK)
    assert result.status is Status.INTERRUPTED
    assert any("interrupted: standard deviations come from the" in n for n in result.notes)
    assert result.parameters == pytest.approx(CASES["consecutive"].truth, rel=0.1)


def test_what_is_made_ready_must_have_numbers():
    problem = noisy("consecutive")
    for method in METHODS[:3]:
        with pytest.raises(igpe.errors.Unsupported, match="depend on the fit"):
            method.prepare(problem)
    with pytest.raises(igpe.errors.Unsupported, match="depend on the fit"):
        igpe.Collocation().estimate_each(problem, [CASES["consecutive"].near])


def test_a_fit_that_swings_is_damped():
    """A search that answers with the inverse of what it is given; half way it stands still."""
    problem = posed(decayed(), igpe.Noise(relative=SHARE))

    def contrary(weighted, start):
        del start
        level = weighted.experiments[0].measurements.sigma[-1] / (SHARE * np.exp(-4.0 * 0.8))
        return Estimate({"k": 0.8, "A(t0)": 4.0 / level}, 1.0, Status.CONVERGED, "contrary")

    found = iteratively_reweighted(problem, START, contrary, contrary)
    assert found.status is Status.CONVERGED
    assert found.parameters["A(t0)"] == pytest.approx(2.0, rel=1e-5)


def test_a_fit_that_never_stands_still_is_told():
    problem = posed(decayed(), igpe.Noise(relative=SHARE))
    count = iter(range(1000))

    def restless(weighted, start):
        del weighted, start
        return Estimate({"k": 0.8, "A(t0)": 2.0 + next(count)}, 1.0, Status.CONVERGED, "restless")

    found = iteratively_reweighted(problem, START, restless, restless)
    assert found.status is Status.ITERATION_LIMIT
    assert f"after {MOST} fits" in found.notes[-1]
    assert next(count) == MOST


def test_an_estimate_that_cannot_be_integrated_is_told():
    data = pd.DataFrame({"time": TIMES, "A": 1 / (1 - 0.1 * TIMES)})
    run = igpe.Experiment(data, start={"A": 1.0}, start_time=0.0, sigma=igpe.Noise(relative=0.1))
    runaway = ode({"A": lambda m, t: m.k * m.A[t] ** 2}, k=(0, 5))
    problem = igpe.Problem(runaway, parameters=["k"], experiments=run)
    broken = Estimate({"k": 3.0}, 1.0, Status.CONVERGED, "elsewhere")
    found = iteratively_reweighted(problem, {"k": 0.1}, lambda *_: broken, lambda *_: broken)
    assert found.status is Status.CONVERGED
    assert "could not be integrated at the estimate" in found.notes[-1]
    assert "smoothed measurements" in found.notes[-1]


def test_a_short_series_has_the_interval_that_it_has_alone():
    """Its unknowns are not shared; that of too few measurements has the errors of all."""
    model = ode(
        {"a": lambda m, t: -m.k * m.a[t], "b": lambda m, t: -m.l * m.b[t]}, k=(0.01, 5), l=(0.01, 5)
    )
    rng, t = np.random.default_rng(2), np.linspace(0.1, 4, 40)
    table = pd.DataFrame({"time": t, "a": np.exp(-t), "b": np.exp(-0.5 * t)})
    table[["a", "b"]] += [0.01, 0.03] * rng.standard_normal((40, 2))

    def upper(columns, kept):
        some = table[["time", *columns]].copy()
        some.loc[kept:, "b"] = np.nan
        run = igpe.Experiment(some, start={"a": 1.0, "b": 1.0}, start_time=0.0)
        problem = igpe.Problem(model, parameters=["k", "l"], experiments=[run])
        problem = problem if "a" in columns else problem.fixing({"k": 1.0})
        start = {n: 0.7 for n in problem.box.names}
        end = igpe.SingleShooting().estimate(problem, start).parameters
        held = weighted_at(problem, end) if problem.weights_unknown else problem
        x = held.box.vector(end)
        errors = errors_at(held, x, Residuals(held, Automatic())(x))
        return errors.upper[-1] - x[-1], errors

    assert upper("ab", 6)[0] == pytest.approx(upper("b", 6)[0], rel=2e-3)
    few, errors = upper("ab", 4)
    assert few == pytest.approx(2.018 * errors.standard_error[-1], rel=1e-3)  # 42 degrees
    assert errors.inflation[-1] == pytest.approx(1.0)
