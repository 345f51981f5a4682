"""Problems with constraints: inactive ones cost nothing, active ones are kept."""

from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.limits_of_model import violated
from igpe.estimation.relaxation import by_relaxation
from igpe.problem.model import without_constraints

TIMES = np.linspace(0.0, 4.0, 15)
K1, K2 = 2.0, 0.5
LEAST_SQUARES = igpe.losses.LeastSquares()


def build(constrain: Any) -> Any:
    """A -> B -> C, of which B is measured."""

    def model(times: Any) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.B = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, initialize=0.1)
        m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
        m.k1, m.k2 = pyo.Var(bounds=(0.01, 10)), pyo.Var(bounds=(0.01, 10))
        m.a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
        m.b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
        m.A[m.t.first()].fix(1)
        m.B[m.t.first()].fix(0)
        constrain(m)
        return m

    return model


def posed(constrain: Any = lambda m: None, loss: Any = LEAST_SQUARES, **given: Any) -> igpe.Problem:
    b = K1 / (K1 - K2) * (np.exp(-K2 * TIMES) - np.exp(-K1 * TIMES))
    noise = 0.02 * np.random.default_rng(1).standard_normal(len(TIMES))
    data = pd.DataFrame({"time": TIMES, "B": b + noise})
    run = igpe.Experiment(data, sigma=0.02, **given)
    return igpe.Problem(build(constrain), parameters=["k1", "k2"], experiments=run, loss=loss)


def order(m: Any) -> None:
    m.c = pyo.Constraint(expr=m.k1 >= m.k2)


def path(m: Any) -> None:
    m.c = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.9)


def positive(m: Any) -> None:
    m.c = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0)


def peak(m: Any) -> None:
    m.c = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.6)


def near(m: Any) -> None:
    m.c = pyo.Constraint(expr=m.k1 <= 2.1)


def tied(m: Any) -> None:
    m.c = pyo.Constraint(expr=m.k1 + m.k2 == 2.5)


@pytest.fixture(scope="module")
def free() -> igpe.Result:
    return igpe.estimate(posed(), certify=False)


@pytest.mark.parametrize("constrain", [order, path, positive])
def test_inactive_constraints_change_nothing(constrain: Any, free: igpe.Result) -> None:
    found = igpe.estimate(posed(constrain), certify=False)
    assert found.parameters == free.parameters
    assert (found.covariance == free.covariance).all()
    assert any("['c'] are inactive" in note for note in found.notes)


def test_a_constraint_within_the_errors_of_the_estimate_is_kept(free: igpe.Result) -> None:
    found = igpe.estimate(posed(near), certify=False)
    assert found.parameters == pytest.approx(free.parameters, rel=1e-4)
    assert not any("inactive" in note for note in found.notes)


def test_active_constraints_are_kept() -> None:
    found = igpe.estimate(posed(peak), certify=False)
    b = igpe.simulate(posed(), found.parameters, times=np.linspace(0, 4, 400)).B
    assert b.max() == pytest.approx(0.6, abs=1e-4)
    assert [name.partition(" at ")[0] for name in found.active] == ["c"]
    found = igpe.estimate(posed(tied), certify=False)
    assert sum(found.parameters.values()) == pytest.approx(2.5, rel=1e-6)


def test_constraints_that_nothing_satisfies_are_named() -> None:
    def contradiction(m: Any) -> None:
        m.c, m.d = pyo.Constraint(expr=m.k1 >= 5), pyo.Constraint(expr=m.k1 <= 1)

    with pytest.raises(igpe.errors.EstimationFailed, match=r"limits: c, d\.$"):
        igpe.estimate(posed(contradiction), certify=False)


def test_a_proof_ignores_inactive_constraints_and_active_ones_refuse_it() -> None:
    pytest.importorskip("numba")
    values = {"k1": 2.0272, "k2": 0.49785}
    proof = igpe.certify(posed(path), values, gap=0.01)
    assert igpe.verify(proof, posed(path)).verdict.name == "VERIFIED"
    with pytest.raises(igpe.errors.Unsupported, match="violates c"):
        igpe.certify(posed(peak), values, gap=0.01)


@pytest.fixture(scope="module")
def crossed() -> igpe.Problem:
    """c is inactive, but excludes a part of the interval of k1."""

    def close(m: Any) -> None:
        m.c = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.64)

    return posed(close)


ANALYSES = {
    "predict": lambda p, r: igpe.predict(p, r, times=[1.0]),
    "bootstrap": lambda p, r: igpe.bootstrap(p, r, replications=20),
    "profile": igpe.profile,
    "region": lambda p, r: igpe.uncertainty.region(p, r, ["k1", "k2"]),
    "sample": lambda p, r: igpe.uncertainty.sample(p, r, steps=20),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_analyses_leave_out_inactive_constraints_and_say_what_violates_them(
    name: str, free: igpe.Result, crossed: igpe.Problem
) -> None:
    if name == "sample":
        pytest.importorskip("emcee")
    run = ANALYSES[name]
    crossing, inside = (run(p, free).notes for p in (crossed, posed(path)))
    for notes in (crossing, inside):
        assert any("does not use the constraints ['c'], which are inactive" in n for n in notes)
    assert any("violate c" in note for note in crossing)
    assert not any("violate" in note for note in inside)
    with pytest.raises(igpe.errors.Unsupported, match="without them violates c"):
        run(posed(peak), free)


def test_predictions_from_refits_say_which_of_them_violate_constraints(
    free: igpe.Result, crossed: igpe.Problem
) -> None:
    refits = igpe.bootstrap(crossed, free, replications=20)
    notes = igpe.predict(crossed, free, times=[1.0], replications=refits).notes
    assert any("of 20 replications that igpe looked at violate c" in note for note in notes)


def test_a_problem_without_its_constraints_stays_so() -> None:
    problem = posed(path).formed(without_constraints)
    for one in (
        problem,
        problem.fixing({"k1": 2.0}),
        cloudpickle.loads(cloudpickle.dumps(problem)),
    ):
        assert constraints(one) == []
        assert constraints(one.built_at(0, TIMES)) == []
    assert constraints(posed(path)) == ["c"]


def test_an_active_constraint_without_time_is_named_if_it_matters() -> None:
    def below(m: Any) -> None:
        m.c, m.d = pyo.Constraint(expr=m.k1 <= 1.5), pyo.Constraint(expr=m.k2 <= 9)

    result = igpe.estimate(posed(below), certify=False)
    assert result.active == ("c",)
    assert "Active: c. Without this constraint, the model would fit better." in str(result)
    assert igpe.estimate(posed(tied), certify=False).active == ()  # 2.5 is the truth


@pytest.mark.parametrize("method", [igpe.Collocation(), igpe.MultipleShooting()])
@pytest.mark.parametrize("indexed", [False, True])
def test_an_integral_over_time_is_exact(method: Any, indexed: bool) -> None:
    def produced(m: Any) -> None:
        if indexed:
            m.s = pyo.Set(initialize=["whole", "half"])
            m.C = dae.Integral(
                m.s, m.t, wrt=m.t, rule=lambda m, s, t: m.k2 * m.B[t] * float(s == "whole")
            )
            m.c = pyo.Constraint(m.s, rule=lambda m, s: m.C[s] <= 0.8)
        else:
            m.C = dae.Integral(m.t, wrt=m.t, rule=lambda m, t: m.k2 * m.B[t])
            m.c = pyo.Constraint(expr=m.C <= 0.8)

    k1, k2 = method.estimate(posed(produced), {"k1": 1.8, "k2": 0.4}).parameters.values()
    left = (k1 * np.exp(-k2 * 4.0) - k2 * np.exp(-k1 * 4.0)) / (k1 - k2)
    assert 1 - left == pytest.approx(0.8, abs=1e-6)


def test_an_integral_that_only_an_objective_contains_is_no_state() -> None:
    def objective(m: Any) -> None:
        m.C = dae.Integral(m.t, wrt=m.t, rule=lambda m, t: m.k2 * m.B[t])
        m.cost = pyo.Objective(expr=m.C)

    assert set(posed(objective).instance.states) == {"A", "B"}


def test_an_integral_in_a_constraint_is_a_state_with_its_name() -> None:
    def produced(m: Any) -> None:
        m.C = dae.Integral(m.t, wrt=m.t, rule=lambda m, t: m.k2 * m.B[t])
        m.c = pyo.Constraint(expr=m.C <= 5)

    assert set(posed(produced).instance.states) == {"A", "B", "integral_C"}


def test_what_only_an_inequality_holds_makes_no_other_set_of_values() -> None:
    def loose(m: Any) -> None:
        m.z = pyo.Var(bounds=(0, 5))
        m.c = pyo.Constraint(expr=m.z <= m.k1)

    problem = posed(loose)
    data, names = problem.experiments[0].measurements, ["k1", "k2", "z"]
    frame = pd.DataFrame({"time": TIMES, "B": data.value})
    run = igpe.Experiment(frame, sigma=0.02)
    found = igpe.estimate(igpe.Problem(build(loose), parameters=names, experiments=run))
    assert found.other_optima == ()
    assert "z not determined" in str(found)


def test_a_constraint_that_hardly_matters_needs_one_search(free: igpe.Result) -> None:
    """The rise of the objective bounds what other searches could gain."""

    def slightly(m: Any) -> None:
        m.c = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] <= 0.625)

    found = igpe.estimate(posed(slightly), certify=False)
    assert 0 < found.objective - free.objective < 5.99  # chi squared of 2 unknowns
    assert any("only from the optimum without them" in note for note in found.notes)
    assert [name.partition(" at ")[0] for name in found.active or ["c"]] == ["c"]
    known = igpe.Collocation().estimate(posed(slightly), free.parameters)
    assert found.objective == pytest.approx(known.objective, rel=1e-3)
    assert not any("only from" in n for n in igpe.estimate(posed(peak), certify=False).notes)


def test_fixed_values_that_violate_constraints_are_said_to_be_fixed() -> None:
    problem = posed(peak).fixing({"k1": 2.0, "k2": 0.5})
    with pytest.raises(igpe.errors.EstimationFailed, match=r"are fixed, .* violate .*: c\.$"):
        igpe.estimate(problem)


def test_constraints_without_value_count_as_violated() -> None:
    def root(m: Any) -> None:
        m.c = pyo.Constraint(expr=pyo.sqrt(m.k1 - 3) <= 1)

    problem = posed(root)
    assert violated(problem, np.array([2.0, 0.5]), np.array([3.5, 0.5])) == [{"c"}, set()]


def test_equations_that_agree_are_no_noise_on_the_screen(capfd: pytest.CaptureFixture[str]) -> None:
    def many(m: Any) -> None:
        m.c, m.d = pyo.Constraint(expr=m.k1 == 2.0), pyo.Constraint(expr=m.k2 == 0.5)
        m.e = pyo.Constraint(expr=m.k1 + m.k2 == 2.5)

    found = igpe.estimate(posed(many), certify=False)
    assert found.parameters == pytest.approx({"k1": 2.0, "k2": 0.5})
    assert capfd.readouterr() == ("", "")


def test_a_time_that_the_model_lacks_is_named() -> None:
    def at_a_time(m: Any) -> None:
        m.c = pyo.Constraint(expr=m.A[2.53] <= 1)

    with pytest.raises(igpe.errors.ModelError, match=r"fixed time.*initialize=\[\*times, 2.5\]"):
        posed(at_a_time)


@pytest.mark.parametrize("implicit", [False, True])
def test_bounds_of_algebraic_variables_are_kept(implicit: bool) -> None:
    def bounded(m: Any) -> None:
        m.z = pyo.Var(m.t, bounds=(None, 0.6), initialize=0.1)
        m.f = pyo.Constraint(
            m.t, rule=lambda m, t: m.z[t] + 1e-3 * float(implicit) * pyo.exp(m.z[t]) == m.B[t]
        )

    result = igpe.estimate(posed(bounded), certify=False)
    assert [name.partition(" at ")[0] for name in result.active] == ["z <= 0.6"]


def test_bounds_of_slopes_are_kept() -> None:
    def bounded(m: Any) -> None:
        for slope in m.dB.values():
            slope.setub(1.5)

    result = igpe.estimate(posed(bounded), certify=False)
    assert result.parameters["k1"] == pytest.approx(1.5, abs=1e-6)  # dB = k1 at the start
    assert result.active == ("d(B) <= 1.5 at 0",)


def test_bounds_that_cannot_be_kept_are_named() -> None:
    def bounded(m: Any) -> None:
        m.z = pyo.Var(m.t, bounds=(None, 0.5))
        m.f = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.A[t])

    with pytest.raises(igpe.errors.EstimationFailed, match="limits: the bounds of z"):
        igpe.estimate(posed(bounded), certify=False)


def below(limit: Any) -> Any:
    """B has an upper bound, a function of time."""

    def bounded(m: Any) -> None:
        for t, b in m.B.items():
            b.setub(limit(t))

    return bounded


@pytest.mark.parametrize("loss", [LEAST_SQUARES, igpe.losses.Huber()])
@pytest.mark.parametrize("limit", [lambda t: 0.6, lambda t: 0.65 - 0.03 * t])
def test_bounds_of_states_are_kept_whatever_the_loss(loss: Any, limit: Any) -> None:
    found = igpe.estimate(posed(below(limit), loss=loss), certify=False)
    times = np.linspace(0, 4, 400)
    excess = igpe.simulate(posed(), found.parameters, times=times).B.to_numpy() - limit(times)
    assert abs(excess.max()) < 1e-3
    assert found.active
    assert all(name.startswith("B <= ") for name in found.active)


def test_bounds_of_states_that_cannot_be_kept_are_refused() -> None:
    events = [igpe.Event(at=3.9, add={"A": 0.01})]
    with pytest.raises(igpe.errors.Unsupported, match=r"constraints \['B <= 0.6'\]"):
        igpe.estimate(posed(below(lambda t: 0.6), events=events), certify=False)


def test_a_proof_does_not_leave_bounds_of_states() -> None:
    pytest.importorskip("numba")
    with pytest.raises(igpe.errors.Unsupported, match="violates the bounds of B"):
        igpe.certify(posed(below(lambda t: 0.6)), {"k1": 2.03, "k2": 0.5}, gap=0.1)


def test_multiple_shooting_keeps_bounds_that_change_with_time() -> None:
    limit = below(lambda t: 0.65 - 0.03 * t)
    found = igpe.MultipleShooting().estimate(posed(limit), {"k1": 1.8, "k2": 0.5})
    at = igpe.simulate(posed(), found.parameters, times=TIMES)
    assert (at.B.to_numpy() - (0.65 - 0.03 * TIMES)).max() < 1e-5


@pytest.mark.parametrize("constrain", [peak, below(lambda t: 0.6)])
def test_multiple_shooting_keeps_constraints_between_the_measurements(constrain: Any) -> None:
    found = igpe.MultipleShooting().estimate(posed(constrain), {"k1": 1.8, "k2": 0.5})
    b = igpe.simulate(posed(), found.parameters, times=np.linspace(0, 4, 4000)).B
    assert b.max() == pytest.approx(0.6, abs=1e-5)
    assert not any("at all times" in note for note in found.notes)


def test_robust_losses_and_other_corrections_name_what_is_active() -> None:
    limit = below(lambda t: 0.6)
    multiple = igpe.Settings(correction=igpe.MultipleShooting())
    for result in (
        igpe.estimate(posed(limit, loss=igpe.losses.Huber(1.5)), certify=False),
        igpe.estimate(posed(limit), multiple, certify=False),
    ):
        assert [name.partition(" at ")[0] for name in result.active] == ["B <= 0.6"]
        assert not any("ignore the constraints" in note for note in result.notes)
        b = igpe.simulate(posed(), result.parameters, times=np.linspace(0, 4, 4000)).B
        assert b.max() == pytest.approx(0.6, abs=3e-5)


@pytest.mark.parametrize("method", [igpe.SingleShooting(), igpe.IncrementalShooting()])
def test_methods_without_bounds_over_time_name_those_that_they_pass(method: Any) -> None:
    for limit, is_passed in ((0.6, True), (0.7, False)):
        problem = posed(below(lambda t, limit=limit: limit))
        found = method.estimate(problem, {"k1": 1.8, "k2": 0.5})
        assert any("leaves those of B. Use igpe.Coll" in n for n in found.notes) is is_passed


def test_bounds_that_change_with_time_are_one_constraint() -> None:
    found = igpe.estimate(posed(below(lambda t: 0.7 - 0.1 * t)), certify=False)
    (name,) = found.active
    assert name.startswith("B <= its bound at 1.2")


def test_a_discretised_model_says_where_it_keeps_constraints() -> None:
    model = build(peak)(list(TIMES))
    pyo.TransformationFactory("dae.collocation").apply_to(model, nfe=14, ncp=2)
    run = posed().experiments[0]
    problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=run)
    (warning,) = igpe.check(problem).warnings
    assert warning.endswith("igpe enforces c only at the points of this discretisation.")


def test_an_equation_that_holds_whatever_the_unknowns_are_forbids_nothing() -> None:
    def closed(m: Any) -> None:
        m.C = pyo.Var(m.t, initialize=0.0)
        m.dC = dae.DerivativeVar(m.C)
        m.made = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.k2 * m.B[t])
        m.C[m.t.first()].fix(0)
        end = m.t.last()
        m.closed = pyo.Constraint(expr=m.A[end] + m.B[end] + m.C[end] == 1)
        peak(m)

    one, other = (igpe.estimate(posed(c), certify=False) for c in (closed, peak))
    for p, q in zip(one.estimates, other.estimates, strict=True):
        assert (p.lower, p.upper) == pytest.approx((q.lower, q.upper), rel=1e-3)


def test_the_profile_is_of_the_optimum_that_the_result_has() -> None:
    problem = posed(peak)
    result = igpe.estimate(problem, certify=False)
    profile = igpe.profile(problem, result, names=["k1"], method=igpe.Collocation())
    assert profile.objective == pytest.approx(result.objective, rel=1e-5)


def test_a_call_that_is_stopped_before_the_constraints_says_so() -> None:
    def five_steps(problem: igpe.Problem, further: Any, accepted: Any) -> igpe.Result:
        if further is not None:
            raise KeyboardInterrupt
        result = igpe.estimate(problem, certify=False)
        assert not accepted(result)
        return result

    result = by_relaxation(posed(peak), five_steps)
    assert result.stopped_by is igpe.Status.INTERRUPTED
    assert "does not use them" in result.actions[0]
    assert result.actions[0].endswith("limits: c.")
