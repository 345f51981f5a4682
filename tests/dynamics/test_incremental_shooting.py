"""Incremental shooting on problems of every kind, and what it tells of its way."""

from dataclasses import replace

import bulirsch
import lotka_volterra_iss as lotka
import numpy as np
import pandas as pd
import pytest
from zoo import CASES

import igpe
from igpe.core.estimates import Horizon
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting import incremental_shooting
from igpe.dynamics.shooting.incremental_shooting import IncrementalShooting
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import L1, NormalPrior
from igpe.problem.problem import Problem

FAR = {
    "consecutive": {"k1": 9.0, "k2": 6.0},
    "unmeasured_intermediate": {"k1": 0.05, "k2": 8.0},
    "lotka_volterra": {"a": 4.0, "b": 4.5, "c": 0.1, "d": 3.0},
    "stirred_tank": {"k": 9.0, "volume": 9.0},
    "fast_equilibrium": {"k": 9.0, "K": 9.0},
    "dimer": {"k": 9.0, "K": 9.0},
}


@pytest.mark.parametrize("name", FAR)
def test_far_starts_give_back_the_truth(name):
    found = IncrementalShooting().estimate(CASES[name].problem(), FAR[name])
    assert found.status.usable
    assert dict(found.parameters) == pytest.approx(CASES[name].truth, rel=1e-4)


def two_runs(noise=0.02, sigma=0.02, scale=1.0):
    """A decay twice: one with its start unknown, longer and with gaps."""
    random = np.random.default_rng(8)
    tables = []
    for begin, times in ((2.0, np.linspace(0.2, 2.0, 10)), (1.0, np.linspace(0.5, 6.0, 12))):
        values = begin * np.exp(-0.7 * times) + noise * random.standard_normal(len(times))
        tables.append(pd.DataFrame({"time": times, "A": scale * values}))
    tables[1].loc[[0, 4], "A"] = np.nan
    sigma = None if sigma is None else scale * sigma
    runs = [
        Experiment(tables[0], name="one", start={"A": 2.0 * scale}, start_time=0.0, sigma=sigma),
        Experiment(
            tables[1], name="two", start={"A": Unknown(0, 9 * scale)}, start_time=0.0, sigma=sigma
        ),
    ]
    return Problem(CASES["decay"].builder, parameters=["k"], experiments=runs)


START = {"k": 9.0, "A(t0)@two": 8.0}


def test_several_experiments_an_unknown_start_and_gaps():
    problem = two_runs()
    found = IncrementalShooting().estimate(problem, START)
    known = SingleShooting().estimate(problem, {"k": 0.7, "A(t0)@two": 1.0})
    assert found.parameters == pytest.approx(known.parameters, rel=1e-5)
    assert found.objective == pytest.approx(known.objective, rel=1e-6)
    assert found.trail[0].until == {"one": 0.2, "two": 1.0}  # 0.5 has no number
    assert found.trail[-1].until == {"one": 2.0, "two": 6.0}


@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_without_standard_deviations_units_do_not_matter(scale):
    plain = IncrementalShooting().estimate(two_runs(sigma=None), START)
    start = {"k": 9.0, "A(t0)@two": 8.0 * scale}
    found = IncrementalShooting().estimate(two_runs(sigma=None, scale=scale), start)
    assert found.parameters["k"] == pytest.approx(plain.parameters["k"], rel=1e-4)
    assert found.objective == pytest.approx(plain.objective * scale**2, rel=1e-6)
    assert found.method.startswith("best of 2 starts")  # that agree
    exact = IncrementalShooting().estimate(two_runs(noise=0.0, sigma=None), START)
    assert exact.status is Status.CONVERGED  # nothing can be better


def test_priors_belong_to_every_horizon():
    data = two_runs().experiments[0]
    priors = {"k": NormalPrior(1.0, 1e-6)}
    problem = Problem(CASES["decay"].builder, parameters=["k"], experiments=data, priors=priors)
    found = IncrementalShooting(restarts=Restarts(count=0)).estimate(problem, {"k": 5.0})
    assert [h.parameters["k"] for h in found.trail] == pytest.approx([1.0] * 5, abs=1e-3)


def test_nothing_to_estimate_and_what_it_cannot_do():
    problem = two_runs().fixing({"k": 0.7, "A(t0)@two": 1.0})
    found = IncrementalShooting().estimate(problem, {})
    assert (found.status, dict(found.parameters)) == (Status.NOTHING_TO_DO, {})
    case = CASES["decay"]
    robust = Problem(case.builder, parameters=["k"], experiments=two_runs().experiments, loss=L1())
    with pytest.raises(
        igpe.errors.Unsupported, match="IncrementalShooting supports only least squares"
    ):
        IncrementalShooting().estimate(robust, {"k": 1.0})


def test_the_trail_tells_every_horizon():
    problem = lotka.problem(seed=61)
    found = IncrementalShooting().estimate(problem, lotka.PAPER_START)
    horizons = found.trail
    assert all(isinstance(h, Horizon) for h in horizons)
    assert [h.until["1"] for h in horizons] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert horizons[-1].parameters == found.parameters
    assert horizons[-1].objective == pytest.approx(found.objective)
    by_hand = sum(h.iterations * h.until["1"] for h in horizons) / 10.0
    assert found.equivalent_iterations == pytest.approx(by_hand)
    assert found.equivalent_integrations > found.equivalent_iterations
    for h in horizons:
        assert h.integrations > h.iterations > 0
        assert all(h.lower[n] <= v <= h.upper[n] for n, v in h.parameters.items())
    assert np.isfinite(list(horizons[-1].upper.values())).all()
    assert list(horizons[0].upper.values()) == [np.inf] * 4


def test_each_horizon_is_optimal_for_its_measurements():
    """Against single shooting on a problem that has only these measurements."""
    exact = IncrementalShooting(early=IncrementalShooting().search)
    found = exact.estimate(lotka.problem(seed=62), lotka.PAPER_START)
    table = lotka.simulated(62)
    for horizon in found.trail[2:]:
        early = table[table["time"] <= horizon.until["1"]]
        run = Experiment(
            early, start=lotka.START, start_time=0.0, sigma={"y1": "sd_y1", "y2": "sd_y2"}
        )
        problem = Problem(lotka.model, parameters=list(lotka.TRUTH), experiments=run)
        alone = SingleShooting().estimate(problem, horizon.parameters)
        assert alone.objective == pytest.approx(horizon.objective, rel=1e-4)


def test_intervals_of_the_user():
    method = IncrementalShooting(intervals=(0.5, 1.0, 2.0))
    found = method.estimate(lotka.problem(seed=63), lotka.PAPER_START)
    assert [h.until["1"] for h in found.trail] == [0.5, 1.0, 2.0, 10.0]
    assert dict(found.parameters) == pytest.approx(lotka.TRUTH, rel=0.1)


def test_the_same_seed_gives_the_same_result_whatever_ran_before():
    prepared = IncrementalShooting().prepare(lotka.problem(seed=64))
    start = {n: 60.0 for n in lotka.TRUTH}
    first = prepared.estimate(start)
    prepared.estimate(lotka.PAPER_START)
    again = prepared.estimate(start)
    assert first.method.startswith("best of")
    assert replace(again, seconds=0.0) == replace(first, seconds=0.0)


def test_narrow_bounds_are_relaxed_until_they_do_not_matter(monkeypatch):
    free = IncrementalShooting().estimate(lotka.problem(seed=65), lotka.PAPER_START)
    monkeypatch.setattr(incremental_shooting, "CONFIDENCE", 1e-6)
    found = IncrementalShooting().estimate(lotka.problem(seed=65), lotka.PAPER_START)
    assert sum(h.relaxations for h in found.trail) > 10
    assert found.parameters == pytest.approx(free.parameters, rel=1e-3)


def test_a_start_that_cannot_be_integrated_is_made_smaller():
    problem = lotka.problem(seed=66)
    start = {"k1": -9.0, "k2": 9.0, "k3": 9.0, "k4": -9.0}  # a pole before the first measurement
    hopeless = IncrementalShooting(robust=False, restarts=Restarts(count=0))
    found = hopeless.estimate(problem, start)
    assert (found.status, found.objective) == (Status.INTEGRATION_BROKE, np.inf)
    found = IncrementalShooting().estimate(problem, start)
    assert found.status.usable
    assert dict(found.parameters) == pytest.approx(lotka.TRUTH, rel=0.1)


def test_a_bound_and_what_is_not_determined_are_told():
    found = IncrementalShooting().estimate(
        lotka.problem(seed=67, bounds=(0.0, 0.99)), {n: 0.5 for n in lotka.TRUTH}
    )
    assert any("lies on its bound 0.99" in note for note in found.notes)
    case = CASES["consecutive"]
    run = Experiment(case.data()[["time", "A"]], start=case.start, start_time=0.0, sigma=0.01)
    problem = Problem(case.builder, parameters=list(case.truth), experiments=run)
    for method in (IncrementalShooting(), SingleShooting()):
        found = method.estimate(problem, case.near)
        assert found.parameters["k1"] == pytest.approx(1.0, rel=1e-4)
        assert found.notes == ("The measurements do not determine k2.",)


@pytest.mark.slow
def test_a_bad_fit_is_told_and_tried_again():
    table = lotka.simulated(68)
    table["y1"] += 5.0  # no parameters explain it
    run = Experiment(table, start=lotka.START, start_time=0.0, sigma={"y1": "sd_y1", "y2": "sd_y2"})
    problem = Problem(lotka.model, parameters=list(lotka.TRUTH), experiments=run)
    found = IncrementalShooting(restarts=Restarts(count=2)).estimate(problem, lotka.PAPER_START)
    assert found.method.startswith("best of 3 starts")
    assert any("larger than the measurement errors can explain" in note for note in found.notes)


def test_the_optimum_of_bulirschs_problem_is_limited_by_its_integration():
    for mu, limited in ((10.0, False), (40.0, True)):
        found = IncrementalShooting().estimate(bulirsch.problem(mu, seed=69), {"p": -200.0})
        assert found.parameters["p"] == pytest.approx(np.pi, rel=1e-2 if mu == 10 else 1e-9)
        said = any("limited by the accuracy of the integration" in note for note in found.notes)
        assert said is limited


def test_a_fast_double_is_not_taken_for_the_slow_truth():
    """All rates 18.6 times as large go through the same points at equally spaced times."""
    problem = lotka.problem(seed=71, noise=0.0)
    period = 8.8108  # of the true course
    double = {n: v * (1 + period / 0.5) for n, v in lotka.TRUTH.items()}
    single = SingleShooting(Automatic()).estimate(problem, double)
    assert single.objective < 1e-2
    assert dict(single.parameters) == pytest.approx(double, rel=1e-3)
    prepared = IncrementalShooting().prepare(problem)
    (sampling,) = prepared.samplings
    assert sampling.too_sparse(problem.box.vector(single.parameters))
    assert not sampling.too_sparse(problem.box.vector(lotka.TRUTH))
    found = prepared.estimate(single.parameters)
    assert dict(found.parameters) == pytest.approx(lotka.TRUTH, rel=1e-3)
    once = IncrementalShooting(restarts=Restarts(count=0)).estimate(problem, single.parameters)
    assert any("oscillates between the measurements" in note for note in once.notes)


def test_as_published_gives_up_where_an_integration_breaks():
    problem = lotka.problem(seed=72)
    found = IncrementalShooting.as_published(Sundials()).estimate(problem, lotka.PAPER_START)
    assert (found.status, found.objective) == (Status.INTEGRATION_BROKE, np.inf)
    assert len(found.trail) < 6
    single = SingleShooting.as_published().estimate(problem, lotka.PAPER_START)
    assert single.status is Status.INTEGRATION_BROKE
    positive = lotka.problem(seed=72, bounds=(0.0, np.inf))
    found = IncrementalShooting.as_published().estimate(positive, {n: 2.0 for n in lotka.TRUTH})
    known = SingleShooting().estimate(positive, lotka.TRUTH)
    assert found.parameters == pytest.approx(known.parameters, rel=1e-4)


def test_single_shooting_begins_again_if_asked():
    problem = lotka.problem(seed=73)
    start = {"k1": 5.0, "k2": 9.0, "k3": 8.0, "k4": 9.0}
    once = SingleShooting(Automatic()).estimate(problem, start)
    assert once.objective > 100 * 40
    many = SingleShooting(Automatic(), restarts=Restarts(seed=1)).estimate(problem, start)
    assert many.status is Status.BEST_OF_SEVERAL
    assert dict(many.parameters) == pytest.approx(lotka.TRUTH, rel=0.1)


def test_residuals_until_a_time_are_the_first_of_all():
    problem = two_runs()
    whole = SingleShooting(Sundials()).prepare(problem).residuals
    x = problem.box.vector({"k": 0.5, "A(t0)@two": 1.3})
    early, all_ = whole.until((0.4, 2.0)), whole(x)
    times = [t for e in problem.experiments for t in e.measurements.times[e.measurements.row]]
    kept = np.array([t <= end for t, end in zip(times, [0.4] * 10 + [2.0] * 10, strict=True)])
    assert len(early) == kept.sum() == 5
    assert early(x).residual == pytest.approx(all_.residual[kept], rel=1e-6, abs=1e-6)
    assert early(x).jacobian == pytest.approx(all_.jacobian[kept], rel=1e-5, abs=1e-5)
    assert len(whole.until((0.0, 2.0)).runs) == 1


def test_no_prior_on_the_last_horizon_however_few_measurements():
    case = CASES["consecutive"]
    table = case.data()[["time", "B"]].iloc[[4]]  # one number for two unknowns
    run = Experiment(table, start=case.start, start_time=0.0, sigma=1e-3)
    problem = Problem(case.builder, parameters=list(case.truth), experiments=run)
    found = IncrementalShooting().estimate(problem, {"k1": 0.05, "k2": 5.0})
    assert found.objective == pytest.approx(0.0, abs=1e-5)
    assert sum("do not determine" in note for note in found.notes) == 1


def test_help_comes_from_all_earlier_estimates_and_the_prior_from_the_start(monkeypatch):
    asked, centres, places, prior = [], [], incremental_shooting.places, incremental_shooting.prior

    def watched_places(x, earlier):
        asked.append([x, *earlier])
        return places(x, earlier)

    def watched_prior(x, start, box):
        centres.append(start)
        return prior(x, start, box)

    monkeypatch.setattr(incremental_shooting, "places", watched_places)
    monkeypatch.setattr(incremental_shooting, "prior", watched_prior)
    problem = lotka.problem(seed=61)
    start = problem.box.vector(lotka.PAPER_START)
    found = IncrementalShooting().estimate(problem, lotka.PAPER_START)
    assert centres
    assert all(centre.tolist() == start.tolist() for centre in centres)
    assert len(asked) == 6
    for number, (x, *earlier) in enumerate(asked):
        assert len(earlier) == number
        before = lotka.PAPER_START if number == 0 else found.trail[number - 1].parameters
        assert x == pytest.approx(problem.box.vector(before))
        if earlier:
            assert earlier[0].tolist() == start.tolist()


def test_places_between_estimates_nearest_first():
    x, old, start = np.array([4.0]), np.array([2.0]), np.array([-1.0])
    found = [float(p[0]) for p in incremental_shooting.places(x, [start, old])]
    assert found[:6] == pytest.approx([3.8, 3.4, 3.0, 2.6, 2.2, 2.0])
    assert found[6:] == pytest.approx([3.5, 2.5, 1.5, 0.5, -0.5, -1.0])
    assert [float(p[0]) for p in incremental_shooting.places(x, [])][:2] == pytest.approx([
        1.2,
        0.36,
    ])
