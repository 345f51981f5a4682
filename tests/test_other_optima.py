"""All optima that explain the data alike are in the result; values at bounds are on them."""

from dataclasses import replace
from functools import partial
from html import escape

import lotka_volterra
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time, row
from trust.optima import BOUNDED, CASES, Case, sulfisoxazole, work

import igpe
from igpe.core.box import Box
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.other_optima import (
    EXHAUSTED,
    FEW_STEPS,
    NOT_SEARCHED,
    TOO_SLOW,
    Sought,
    _Search,
    other_optima,
    wells,
)
from igpe.dynamics.shooting.refine import refine
from igpe.dynamics.shooting.residuals import Residuals
from igpe.estimation import equally_good
from igpe.estimation.equally_good import UNCONFIRMED
from igpe.numerics.least_squares.active import on_bounds, refitted_on_bounds
from igpe.numerics.least_squares.base import Fit, Linearised
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import LIKELIHOOD, Landscape, distinct, has_same_values, is_same_objective
from igpe.results.answer import actions
from igpe.results.certificates import DynamicCertificate

pytestmark = pytest.mark.thorough

SEED = 11  # not one of the benchmark's
SEARCH = GaussNewton()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("absorption", 2),
        ("absorption, mirror out of bounds", 1),
        ("chain, last measured", 2),
        ("chain, two measured", 1),
        ("long chain, last measured", 6),
        ("quartic", 4),
        ("square", 2),
        ("only a product", 1),
    ],
)
def test_every_optimum_is_reported_once(name, number):
    found = work(f"{name} #{SEED}")
    assert (found["known"], found["missed"], found["false"]) == (number, 0, 0)


@pytest.fixture(scope="module")
def twins():
    return igpe.estimate(sulfisoxazole())


@pytest.mark.slow
def test_mirror_minima_of_measured_data_are_in_everything_a_result_writes(twins):
    (other,) = twins.other_optima
    mirrored = {"A1": "A2", "A2": "A1", "l1": "l2", "l2": "l1"}
    assert other.parameters == pytest.approx(
        {n: twins.parameters[m] for n, m in mirrored.items()}, rel=1e-4
    )
    assert other.objective == pytest.approx(34.37647098, rel=1e-6)
    of = {p.name: p for p in twins.estimates}
    for p in other.estimates:  # profiles give some limits of the first set, but no errors
        assert p.standard_error == pytest.approx(of[mirrored[p.name]].standard_error, rel=1e-3)
        assert p.lower < p.value < p.upper
    for written in (str(twins), twins._repr_html_(), twins.report(), twins.to_json()):
        assert "2 sets of values explain the data equally well" in written
    for written in (twins.details.text, twins._repr_html_(), twins.report()):
        title = "Set 2 of 2 sets that explain the data equally well: sum of squares 34.3765"
        assert title in written


def test_an_exchange_may_change_other_unknowns(twins):
    """As the volume where rates of absorption and elimination change places."""
    (other,) = twins.other_optima
    scaled = [p if p.name[0] == "l" else replace(p, value=2 * p.value) for p in other.estimates]
    beside = replace(twins, other_optima=(replace(other, estimates=tuple(scaled)),))
    said = "Between sets, l1 and l2 exchange their values, with other values of A1 and A2."
    assert said in actions(beside)[0]
    ends = [replace(p, bounds=(p.bounds[0], twins.parameters["l1"])) for p in scaled]
    by_chance = replace(beside, other_optima=(replace(other, estimates=tuple(ends)),))
    assert "exchange" not in actions(by_chance)[0]


def test_a_search_that_was_cut_short_does_not_count_sets(twins):
    cut = replace(twins, notes=(*twins.notes, EXHAUSTED))
    assert cut.verdict["parameters"].startswith("at least 2 sets of values explain")
    assert "\nAt least 2 sets of values explain the data equally well" in str(cut)
    assert twins.verdict["parameters"].startswith("2 sets of values explain")


def _squared(constrained):
    """x' = -a^2 x: a and -a are alike; the constraint holds for both."""

    def build(times):
        m = over_time(times, "x", a=(-2, 2))
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -(m.a**2) * m.x[t])
        if constrained:
            m.tied = pyo.Constraint(expr=m.a + m.x[times[-1]] <= 1.9)
        return m

    t = np.linspace(0, 2, 11)
    x = np.exp(-0.64 * t) + 0.01 * np.random.default_rng(0).normal(size=len(t))
    data = pd.DataFrame({"time": t, "x": x})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma=0.01, start_time=0.0)
    return igpe.Problem(build, parameters=["a"], experiments=[run])


def test_other_optima_are_searched_beside_inactive_constraints():
    result = igpe.estimate(_squared(constrained=True))
    (other,) = result.other_optima
    assert other.parameters["a"] == pytest.approx(-result.parameters["a"], rel=1e-4)
    assert other.estimates[0].found_by == "search for other optima"
    assert np.isfinite(other.estimates[0].lower)
    assert "2 sets of values explain the data equally well" in str(result)


@pytest.mark.slow
def test_a_real_certificate_and_all_that_is_written_agree():
    result = igpe.estimate(_squared(constrained=False), certify=True)
    assert result.proof is not None
    assert result.proof.closed
    assert len(result.other_optima) == 1
    for written in (str(result), result.to_json(), result.report()):
        assert "proved best within the bounds" in written
        assert "2 sets of values explain the data equally well" in written
        assert "ot proved" not in written
        assert "No lower bound above 0" not in written
    for known in (result.objective, result.other_optima[0].objective):
        assert result.proof.lower_bound <= known <= result.proof.objective * (1 + 1e-3)


@pytest.mark.slow
def test_the_estimate_is_fitted_again_where_the_proof_meets_something_better(monkeypatch):
    wells = Case(
        {"x": lambda v: (v.k**4 - 5 * v.k**2 + 0.5 * v.k) * v.x}, {"k": -1.63}, (-3.0, 3.0),
        {"x": 1.0}, ["x"], end=0.4,
    )  # fmt: skip

    def stuck(steps, settings):
        rough = igpe.Estimate({"k": 1.5}, np.inf, igpe.Status.CONVERGED, "stuck")
        worse = refine(steps.problem, Residuals(steps.problem, Sundials()), rough)
        way = steps.paths[0]._replace(corrected=worse.estimate)
        return steps._replace(best=worse, paths=[way], others=())

    monkeypatch.setattr("igpe.pipeline.with_other_optima", stuck)
    monkeypatch.setattr("igpe.pipeline.LADDER", ())  # the data refute that fit
    problem = wells.problem(SEED)
    assert igpe.estimate(problem).parameters["k"] > 1
    result = igpe.estimate(problem, certify=True)
    assert result.parameters["k"] == pytest.approx(-1.63, rel=0.1)
    assert result.estimates[0].standard_error > 0
    assert result.candidates[0].origin == "the proof of the optimum"
    assert "not the best" not in str(result)
    assert "proved best within the bounds" in str(result)
    assert result.points["fitted"].iloc[-1] == pytest.approx(
        result.points["measured"].iloc[-1], abs=0.05
    )


def test_other_optima_survive_json_and_old_files_have_none(twins):
    back = igpe.Result.from_json(twins.to_json())
    assert back.other_optima == twins.other_optima
    assert str(back) == str(twins)
    old = twins.to_dict()
    del old["other_optima"]
    assert igpe.Result.from_dict(old).other_optima == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDED)
def test_what_belongs_on_a_bound_is_on_it_and_intervals_stay_inside(name):
    assert work(f"{name} #{SEED}") == {"off": [], "outside": [], "lost": []}


@pytest.mark.slow
def test_collocation_by_itself_ends_on_the_bound_too():
    problem, start = BOUNDED["activation"].problem(SEED), {"k": 0.5, "E": 0.5}
    found, shot = (m.estimate(problem, start) for m in (Collocation(), igpe.SingleShooting()))
    assert found.parameters["E"] == shot.parameters["E"] == 0.0
    assert found.parameters["k"] == pytest.approx(shot.parameters["k"], rel=1e-5)


@pytest.mark.slow
def test_the_one_sided_interval_is_that_of_the_profile():
    problem = BOUNDED["activation"].problem(SEED)
    result = igpe.estimate(problem)
    (E,) = (p for p in result.estimates if p.name == "E")
    by_profile = igpe.profile(problem, result, "E")["E"]
    assert (E.lower, by_profile.lower) == (0.0, 0.0)
    assert E.upper == pytest.approx(by_profile.upper, rel=0.1)


@pytest.mark.slow
def test_a_better_optimum_that_is_met_becomes_the_estimate(monkeypatch):
    problem = CASES["chain, last measured"].problem(SEED)
    best = igpe.estimate(problem)

    class Worse(Collocation):
        def estimate_each(self, problem, starts, profiles):
            stuck = {"k1": 9.9, "k2": 9.9}
            found = super().estimate_each(problem, starts, profiles)
            return [replace(e, parameters=stuck, objective=1e9) for e in found]

    monkeypatch.setattr("igpe.dynamics.shooting.refine.SEARCH", GaussNewton(max_iterations=0))
    monkeypatch.setattr("igpe.dynamics.shooting.refine.AGREE", 1e12)
    result = igpe.estimate(problem, igpe.Settings(correction=Worse()))
    assert result.objective == pytest.approx(best.objective, rel=1e-3)
    assert len(result.other_optima) == 1


def valley(x):
    """x y = 1 and, beside it, the square of z is 4."""
    a, b, c = x
    residual = np.array([a * b - 1.0, c**2 - 4.0, 0.1])
    return Linearised(residual, np.array([[b, a, 0.0], [0.0, 0.0, 2 * c], [0.0, 0.0, 0.0]]))


BOX = Box(("a", "b", "c"), np.array([0.1, 0.1, -5.0]), np.full(3, 10.0))


def test_what_explains_the_data_as_well_is_measured_at_the_best_optimum():
    """The candidates of step 3 end 600 times as high: beside them much would be as good."""
    much = igpe.Settings(ladder=(igpe.smoothing.GcvSpline(penalty_factor=100),))
    result = igpe.estimate(lotka_volterra.problem(), much)
    assert result.objective == pytest.approx(lotka_volterra.OBJECTIVE)
    assert result.other_optima == ()


def test_ends_along_a_valley_are_one_optimum_and_signs_are_two():
    ends = [(0.5, 2.0, 2.0), (4.0, 0.25, 2.0), (1.0, 1.0, -2.0), (0.5, 2.0, 2.0 + 1e-7)]
    fits = [SEARCH.fit(valley, np.array(x), BOX) for x in ends]
    found = distinct(Landscape(valley, BOX), fits)
    assert sorted(np.sign(fit.x[2]) for fit in found) == [-1.0, 1.0]


def test_small_values_in_wide_bounds_differ_and_rounding_does_not():
    box = Box(("k",), np.zeros(1), np.full(1, 1e3))
    assert not has_same_values(np.array([1e-4]), np.array([2e-4]), box)
    assert has_same_values(np.array([1e-12]), np.array([2e-12]), box)
    assert has_same_values(np.array([0.5]), np.array([0.5002]), box)


def test_objectives_that_are_no_numbers_are_never_the_same():
    assert is_same_objective(1.0, 1.0005)
    assert not is_same_objective(1.0, 1.002)
    assert not is_same_objective(np.inf, np.inf)
    assert not is_same_objective(np.nan, 1.0)


def line(t, y):
    """y = a + b t."""

    def residual(x):
        return Linearised(x[0] + x[1] * t - y, np.column_stack([np.ones_like(t), t]))

    return residual


T = np.linspace(0.0, 1.0, 20)
NOISE = np.where(np.arange(20) % 2, 0.1, -0.1)
AB = Box(("a", "b"), np.zeros(2), np.array([10.0, 1e6]))


@pytest.mark.parametrize("beside", [5.6e-9, 1e-4])
def test_what_an_interior_point_leaves_beside_a_bound_is_put_on_it(beside):
    residual = line(T, 1.0 - 0.5 * T + NOISE)
    x = np.array([0.75, beside])
    fit = refitted_on_bounds(residual, Fit(x, residual(x), igpe.Status.CONVERGED, 1), AB, SEARCH)
    assert fit.x[1] == 0.0
    assert list(on_bounds(x, residual(x), AB)) == [False, True]
    assert list(on_bounds(fit.x, fit.at, AB)) == [False, True]


def test_a_small_value_that_the_data_know_stays_off_the_bound():
    residual = line(T, 1.0 + 1e-3 * T + 1e-7 * NOISE)
    fit = SEARCH.fit(residual, np.array([1.0, 1e-3]), AB)
    same = refitted_on_bounds(residual, fit, AB, SEARCH)
    assert same.x[1] == pytest.approx(1e-3, rel=1e-3)
    assert not on_bounds(fit.x, fit.at, AB).any()


@pytest.fixture(scope="module")
def proved():
    """A result as after `certify=True`, with a made-up certificate that closes the gap."""
    result = igpe.estimate(CASES["saturated"].problem(SEED))
    names, values = zip(*result.parameters.items(), strict=True)
    least = result.objective
    certificate = DynamicCertificate(
        names, (0.01, 0.01), (10.0, 10.0), values, least, 0.999 * least, 0.999 * least, 1e-3,
        igpe.Status.OPTIMAL_WITHIN_GAP, 1.0, 10, 0.0, (), (),
    )  # fmt: skip
    return replace(result, proof=certificate)


@pytest.mark.slow
def test_the_verdict_is_that_of_the_proof(proved):
    assert proved.verdict["optimum"] == "proved best within the bounds (gap 0.1 %)"
    for written in (str(proved), proved.report(), proved.to_json()):
        assert "ot proved" not in written
        assert "proved best within the bounds" in written
    assert escape(proved.proof.sentence) in proved.report()


def test_without_a_proof_the_verdict_says_so(proved):
    alone = replace(proved, proof=None)
    said = alone.verdict["optimum"]
    assert said.endswith("searches agree; not proved: run igpe.certify(problem, result)")
    stopped = replace(proved.proof, status=igpe.Status.TIME_LIMIT)
    assert "not proved" in replace(proved, proof=stopped).verdict["optimum"]
    better = replace(proved, proof=replace(stopped, objective=0.5 * proved.objective))
    assert better.verdict["optimum"].startswith("not the best: igpe.certify reached")
    assert "igpe.certify reached better values. See result.details" in str(better)
    reached = "igpe.certify reached the sum of squares"
    assert any(s.startswith(reached) for s in better.details.sentences)
    rounded = replace(proved, proof=replace(proved.proof, objective=(1 - 1e-9) * proved.objective))
    assert not any(s.startswith(reached) for s in rounded.details.sentences)


def test_a_bound_that_is_no_number_proves_nothing(proved):
    lost = replace(proved.proof, lower_bound=np.nan)
    assert lost.sentence.startswith("No lower bound above 0 is proved")
    assert "not proved" in replace(proved, proof=lost).verdict["optimum"]
    with pytest.raises(igpe.errors.DataError, match="not a finite number"):
        DynamicCertificate.from_json(lost.to_json())


@pytest.mark.parametrize("lost", [np.inf, np.nan])
def test_a_candidate_without_an_answer_is_no_next_best(proved, lost):
    first = proved.candidates[0]
    failed = replace(first, objective=lost, status=igpe.Status.INTEGRATION_BROKE)
    result = replace(proved, proof=None, candidates=(first, failed))
    assert result.verdict["optimum"].startswith("only 1 of 2 searches reached it")
    assert [s for s in result.details.sentences if "nan" in s or "inf " in s] == []


def test_notes_of_inner_searches_reach_the_result():
    class Noted(Collocation):
        def estimate_each(self, problem, starts, profiles):
            found = super().estimate_each(problem, starts, profiles)
            return [replace(e, notes=("the correction warns",)) for e in found]

    class NotedShooting(igpe.SingleShooting):
        def estimate(self, problem, start, profiles=()):
            found = igpe.SingleShooting().estimate(problem, start)
            return replace(found, notes=("the search warns",))

        def prepare(self, problem, profiles=()):
            ready = super().prepare(problem)
            return type("R", (), {
                "problem": ready.problem, "residuals": ready.residuals,
                "cost": lambda _, x: ready.cost(x),
                "estimate": lambda _, start: self.estimate(problem, start),
            })()  # fmt: skip

    settings = igpe.Settings(
        correction=Noted(), complement=igpe.search.MultiStart(NotedShooting(), trials=4, starts=2)
    )
    result = igpe.estimate(CASES["chain, last measured"].problem(SEED), settings)
    assert "the correction warns" in result.notes
    assert "Step 4: the search warns" in result.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absorption", ""),
        (
            "absorption, mirror out of bounds",
            "ka, ke and V: up to 2 sets of values explain perfect measurements",
        ),
        ("chain, two measured", ""),
    ],
)
def test_fewer_sets_of_values_than_the_structure_allows_are_said_to_be_fewer(name, told):
    result = igpe.estimate(CASES[name].problem(SEED))
    notes = [note for note in result.notes if "explain perfect measurements" in note]
    assert len(notes) == bool(told)
    assert all(told in note and "This result contains 1 of these" in note for note in notes)
    assert all("ka + ke, ka*ke, ke*V" in note for note in notes)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "value"), [("EVALUATIONS", 150), ("WORK", 5_000_000)])
def test_a_search_ends_at_its_allowance_and_says_so(twins, monkeypatch, limit, value):
    monkeypatch.setattr(f"igpe.dynamics.search.other_optima.{limit}", value)
    result = igpe.estimate(sulfisoxazole())
    assert EXHAUSTED in result.notes
    assert EXHAUSTED not in twins.notes
    assert result.objective == pytest.approx(twins.objective)


def _rippled():
    """x' = -a^2 (1 + cos 3000 t) x: a and -a are alike, a thousand steps between two outputs."""

    build = ode({"x": lambda m, t: -(m.a**2) * (1 + pyo.cos(3000 * t)) * m.x[t]}, a=(-2, 2))

    t = np.linspace(0, 1, 5)
    data = pd.DataFrame({"time": t, "x": np.exp(-0.64 * t)})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma=0.01, start_time=0.0)
    return igpe.Problem(build, parameters=["a"], experiments=[run])


HERE = Sought(np.array([0.8]), (), lambda _: (), 4.0, 0)


def test_other_optima_are_searched_for_where_integrations_take_many_steps():
    problem = _rippled()
    few = Automatic(1e-8, 1e-10, max_steps=FEW_STEPS)
    assert Residuals(problem, few)(HERE.best) is None
    values, _, why = other_optima(problem, HERE)
    assert min(values) == pytest.approx([-0.8], rel=1e-3)
    assert why == ""


@pytest.mark.parametrize("is_at_saddle", [False, True])
def test_the_saddle_of_a_product_on_its_bounds_is_no_optimum(is_at_saddle):
    slopes = {
        "x": lambda m, t: -(m.k + m.q * m.r) * m.x[t],
        "y": lambda m, t: m.k * m.x[t],
    }
    t = np.linspace(0, 10, 11)
    x = np.exp(-0.304 * t)
    data = pd.DataFrame({"time": t, "x": x, "y": 0.3 / 0.304 * (1 - x)})
    run = igpe.Experiment(data, start={"x": 1.0, "y": 0.0}, sigma=0.02)
    model = ode(slopes, k=(0, 1), q=(0, 1), r=(0, 1))
    problem = igpe.Problem(model, parameters=["k", "q", "r"], experiments=[run])
    best, saddle = np.array([0.3, np.sqrt(0.004), np.sqrt(0.004)]), np.array([0.3, 0.0, 0.0])
    known = (saddle, []) if is_at_saddle else (best, [saddle])
    values, is_passed, _ = other_optima(problem, Sought(*known, lambda _: (), 3.84, 0))
    assert is_passed == is_at_saddle
    assert [v[1] * v[2] for v in values] == pytest.approx([0.004] * is_at_saddle, rel=1e-3)


def test_a_limit_of_steps_leaves_the_good_point_within_reach(monkeypatch):
    """A method that takes over where steps are used up is not tried where trials have a limit."""
    short = partial(replace, max_steps=3)
    place = "igpe.dynamics.integrators.automatic.RungeKutta"
    monkeypatch.setattr(place, lambda **given: short(RungeKutta(**given)))
    residuals = Residuals(sulfisoxazole(), Automatic())
    x = np.array([162.6, 81.2, 0.162, 1.306])
    with allowance(10_000):
        assert residuals(x) is None
    assert residuals.limit_steps(x)
    assert residuals(x) is not None


@pytest.mark.parametrize(
    ("limit", "value", "why"),
    [
        ("QUICKLY", Automatic(1e-8, 1e-10, max_steps=3), "The step limit of 3 was reached"),
        ("WORK", 1, TOO_SLOW),
    ],
)
def test_optima_that_were_not_searched_for_are_said_not_to_be(monkeypatch, limit, value, why):
    monkeypatch.setattr(f"igpe.dynamics.search.other_optima.{limit}", value)
    monkeypatch.setattr("igpe.dynamics.search.other_optima.FEW_STEPS", 3)
    result = igpe.estimate(sulfisoxazole())
    (note,) = (n for n in result.notes if n.startswith(NOT_SEARCHED.format("")))
    assert why in note
    assert note in " ".join(result.details.text.split())


@pytest.mark.slow
def test_other_optima_are_confirmed_without_a_compiler(tmp_path, monkeypatch):
    """That integrations were slow does not speak against an optimum."""
    for name in ("PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    result = igpe.estimate(sulfisoxazole(), certify=False)
    assert len(result.other_optima) == 1
    assert not [note for note in result.notes if "could not be confirmed" in note]


@pytest.mark.slow
def test_sets_that_cost_too_much_to_confirm_are_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(equally_good, "MOST_WORK", 1)
    result = igpe.estimate(sulfisoxazole())
    assert not result.other_optima
    assert UNCONFIRMED.format(1, 1) in result.notes


def test_aliases_of_a_frequency_lie_on_a_line_through_the_estimate():
    """Also where the wrong frequency has a wrong amplitude."""
    times, box = (
        5 * np.linspace(0.2, 1, 15) ** 1.5,
        Box(("a", "w"), np.array([0.05, 0.2]), np.array([20.0, 80.0])),
    )

    def residual(x):
        a, w = x
        values = a * np.sin(w * times) ** 2
        by = np.stack([values / a, a * times * np.sin(2 * w * times)], axis=1)
        return Linearised((values - np.sin(3.6 * times) ** 2) / 0.02, by / 0.02)

    alias = SEARCH.fit(residual, np.array([0.3, 5.4]), box)
    assert alias.cost > 1000
    best, *_ = wells(Landscape(residual, box), alias.x)
    assert best[1] == pytest.approx(3.6, rel=0.05)
    assert SEARCH.fit(residual, best, box).x == pytest.approx([1.0, 3.6], rel=1e-6)


class _Ridged:
    """A valley b = 1 + log(a) / 10 whose floor has a ridge beside a = 1, and is lowest beyond."""

    def __init__(self):
        self.calls, self.most_work = 0, 0.0

    def __call__(self, x):
        self.calls += 1
        (a, b), u = x, np.log(x[0])
        floor = 1 + 0.05 * (1 - np.cos(2 * u)) - 0.02 * u
        slope = 0.1 * np.sin(2 * u) - 0.02
        residual = np.array([10 * (b - 1 - u / 10), floor, floor])
        return Linearised(residual, np.array([[-1 / a, 10.0], [slope / a, 0.0], [slope / a, 0.0]]))


@pytest.mark.parametrize(("upper", "is_lower"), [(100.0, True), (2.0, False)])
def test_a_valley_is_followed_across_a_ridge_that_data_do_not_show(upper, is_lower):
    residuals = _Ridged()
    box = Box(("a", "b"), np.array([0.1, 0.1]), np.array([upper, 10.0]), frozenset({"a", "b"}))
    landscape = Landscape(residuals, box)
    own = SEARCH.fit(residuals, np.array([1.2, 1.0]), box)
    assert 1.0 < own.x[0] < 1.3
    search = _Search(residuals, landscape, Sought(own.x, [], lambda x: [], 3.84, 0))
    search._lower_level(own)
    lower = search._along_valleys(own)
    assert (lower is not None) == is_lower
    if lower is not None:
        assert lower.cost < own.cost - 0.05
        assert lower.x[0] > 10


def test_likelihoods_differ_by_units_whatever_their_size():
    assert is_same_objective(-1474.94, -1476.04)
    assert not is_same_objective(-1474.94, -1476.04, most=LIKELIHOOD)
    assert is_same_objective(-1476.03, -1476.04, most=LIKELIHOOD)


@pytest.mark.parametrize(("logarithms", "far"), [(0, 494.0), (60, 60 * np.log(3))])
def test_ends_are_hopeless_at_three_times_the_squares(logarithms, far):
    """Of a likelihood they are in its logarithm."""
    sought = Sought(np.ones(1), [], lambda x: [], 3.84, 0)
    search = _Search(None, None, sought, logarithms)
    search.level = -247.0
    assert search._far == pytest.approx(far)


def test_where_no_ridge_is_there_are_no_wells():
    box = Box(("a", "k"), np.array([0.01, 0.01]), np.array([100.0, 100.0]))
    times = np.linspace(0.1, 3, 12)

    def residual(x):
        a, k = x
        values = a * np.exp(-k * times)
        by = np.stack([values / a, -times * values], axis=1)
        return Linearised((values - np.exp(-times)) / 0.02, by / 0.02)

    assert wells(Landscape(residual, box), np.array([1.0, 1.0])) == []


def _decay():
    """x' = -k x, measured so inexactly that k has an error of some 50 %."""

    build = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0.01, 10))

    t = np.linspace(0, 2, 11)
    x = np.exp(-0.64 * t) + 0.5 * np.random.default_rng(0).normal(size=len(t))
    data = pd.DataFrame({"time": t, "x": x})
    run = igpe.Experiment(data, start={"x": 1.0}, sigma=0.5, start_time=0.0)
    return igpe.Problem(build, parameters=["k"], experiments=[run])


@pytest.mark.parametrize(("moved", "is_searched"), [(0.0, False), (2e-3, False), (0.1, True)])
def test_ends_of_a_convex_step_3_agree_by_their_standard_errors(monkeypatch, moved, is_searched):
    seen = []

    def shifted(steps, settings):
        k = steps.best.estimate.parameters["k"]
        path = steps.paths[-1]
        end = replace(path.corrected, parameters={"k": k * (1 + moved)})
        paths = [*steps.paths[:-1], path._replace(corrected=end)]
        return equally_good.with_other_optima(steps._replace(paths=paths), settings)

    def searched(problem, sought):
        seen.append(sought)
        return other_optima(problem, sought)

    monkeypatch.setattr("igpe.pipeline.with_other_optima", shifted)
    monkeypatch.setattr(equally_good, "other_optima", searched)
    problem = _decay()
    result = igpe.estimate(problem, certify=False)
    (error,) = (p.standard_error / p.value for p in result.estimates)
    assert error > 0.3
    assert bool(seen) == is_searched


def _decays(n):
    """n states that decay at multiples of one rate, the first measured."""

    build = row(range(n), lambda m, i, t: -(1 + i) * m.k * m.x[i, t], k=(0.1, 3.0))
    times = np.array([0.5, 1.0, 2.0])
    data = pd.DataFrame({"time": times, "x[0]": np.exp(-0.8 * times)})
    start = {f"x[{i}]": 1.0 for i in range(n)}
    run = igpe.Experiment(data, start=start, sigma=0.01, start_time=0.0)
    return igpe.Problem(build, parameters=["k"], experiments=[run])


@pytest.mark.parametrize(("states", "rtol"), [(3, 1e-8), (41, 1e-4)])
def test_lines_through_optima_of_many_states_are_integrated_roughly(monkeypatch, states, rtol):
    seen = []

    def noted(landscape, _):
        seen.append(landscape.residual.runs[0].integrator.rtol)
        return [np.array([2.0])]

    monkeypatch.setattr("igpe.dynamics.search.other_optima.wells", noted)
    values, is_passed, why = other_optima(_decays(states), HERE)
    assert (seen, values, is_passed, why) == ([rtol], [], False, "")
