"""An integration that breaks down is a status, with its time and a sentence; it never invents."""

import re
import warnings

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import every_method, one_state, robertson, simulation
from ode import over_time
from zoo import CASES

import igpe
from igpe.core.errors import EstimationFailed, ModelError, ProblemError
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.refine import refine
from igpe.dynamics.shooting.residuals import Residuals
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.problem import Problem

NUMBERS = ("states", "implicit", "measured", "by_unknown", "measured_by_unknown")


def times_in(reason):
    """The times a sentence speaks of."""
    return [float(t) for t in re.findall(r"t = (\S+?)[.:]?(?:\s|$)", reason)]


def assert_nothing_after(came, rows):
    """All numbers before are finite, none is there after."""
    for name in NUMBERS:
        numbers = getattr(came, name)
        assert np.isfinite(numbers[:rows]).all()
        assert np.isnan(numbers[rows:]).all()


@every_method
def test_a_finite_escape_says_how_far_when_and_why(method):
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)  # x = 1 / (1 - k t)
    times = np.array([0.0, 0.25, 0.5, 0.75, 1.5, 2.0])
    made = simulation(problem, times, method=method())
    came = made.run(np.array([1.0]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reached == 0.75
    assert came.states[:4, 0] == pytest.approx(1 / (1 - times[:4]), rel=1e-6)
    assert came.by_unknown[:4, 0, 0] == pytest.approx(times[:4] / (1 - times[:4]) ** 2, rel=1e-5)
    assert_nothing_after(came, 4)
    told = times_in(came.reason)
    assert told
    assert min(told) <= 1.0 + 1e-6
    assert max(told) >= 1.0 - 1e-6
    again = made.run(np.array([0.25]))
    assert (again.status, again.reason) == (Status.CONVERGED, "")


@every_method
def test_equations_that_lose_their_value(method):
    """x' = -k / sqrt(x) has x = (1 - 1.5 k t)^(2/3), and no x after t = 2 / 3 for k = 1."""
    problem = one_state(lambda m, t: -m.k / pyo.sqrt(m.x[t]))
    came = simulation(problem, [0.2, 0.4, 1.0, 1.2], method=method()).run(np.array([1.0]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reached == 0.4
    assert came.states[:2, 0] == pytest.approx([0.7 ** (2 / 3), 0.4 ** (2 / 3)], rel=1e-6)
    assert max(times_in(came.reason)) >= 2 / 3 - 1e-6
    assert min(times_in(came.reason)) <= 2 / 3 + 1e-6
    assert_nothing_after(came, 2)


@every_method
def test_what_one_long_step_tried_does_not_count_against_outputs_before(method):
    """x' = -k sqrt(x) has x = (1 - k t / 2)^2: order 2, so that steps grow and end beyond t = 2.

    A root rests there; its logarithm has no value.
    """
    problem = one_state(lambda m, t: -m.k * pyo.exp(pyo.log(m.x[t]) / 2))
    times = np.linspace(0.25, 5.0, 20)
    came = simulation(problem, times, method=method()).run(np.array([1.0]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reached >= 1.75
    assert came.states[:7, 0] == pytest.approx((1 - times[:7] / 2) ** 2, rel=1e-6)
    assert max(times_in(came.reason)) >= 2 - 1e-6


@every_method
def test_equations_without_a_value_at_the_start(method):
    problem = one_state(lambda m, t: -pyo.sqrt(m.x[t] - m.k))
    came = simulation(problem, [0.0, 0.5, 1.0], method=method()).run(np.array([3.0]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)
    sentences = ("The model's equations have no finite value", "CVODES failed")
    assert came.reason.startswith(sentences)
    assert_nothing_after(came, 1)


@every_method
@pytest.mark.parametrize("begin", [0.0, 1.0])
def test_a_power_of_time_has_its_derivatives_where_its_base_is_zero(method, begin):
    """At the start, and where the base passes 0 in between."""
    problem = one_state(lambda m, t: m.u[t] + (t - begin) ** m.k)
    came = simulation(problem, [0.0, 0.5, 2.0], method=method()).run(np.array([1.5]))
    assert came.status is Status.CONVERGED, came.reason
    length = 2.0 - begin
    grown = length**2.5 / 2.5
    assert came.states[-1, 0] == pytest.approx(1 + grown, rel=1e-6)
    by_exponent = grown * (np.log(length) - 1 / 2.5)
    assert came.by_unknown[-1, 0, 0] == pytest.approx(by_exponent, rel=1e-5)


@every_method
def test_a_power_of_time_that_is_infinite_at_the_start(method):
    problem = one_state(lambda m, t: t ** (m.k - 1))
    came = simulation(problem, [0.0, 1.0], method=method()).run(np.array([0.5]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reason == "The model's equations have no finite value at t = 0."
    rough = Estimate({"k": 0.5}, np.inf, Status.ITERATION_LIMIT, "")
    (note,) = refine(problem, Residuals(problem, method()), rough).notes
    sentence = "At the start, t = 0, the slope of 'x' has no finite value: "
    cause = "t**(k - 1.0) is undefined at t = 0, k = 0.5. Let the experiment start later"
    assert sentence + cause in note
    assert "start_time=" in note
    with pytest.raises(EstimationFailed, match=sentence):
        igpe.simulate(problem, {"k": 0.5}, integrator=method())


@pytest.mark.parametrize(
    ("slope", "cause"),
    [
        (lambda m, t: -pyo.sqrt(m.x[t] - 3 * m.k), "sqrt(x - 3.0*k) is undefined at x = 1, k = 1."),
        (lambda m, t: -pyo.log(m.x[t] - 1) * m.k, "log(x - 1.0) is undefined at x = 1."),
        (lambda m, t: -m.k / (m.x[t] - 1), "k/(x - 1.0) is undefined at k = 1, x = 1."),
        (
            lambda m, t: pyo.Expr_if(m.x[t] > 2, 1.0, pyo.sqrt(m.x[t] - 2) * m.k),
            "sqrt(x - 2.0) is undefined at x = 1.",
        ),
    ],
)
def test_the_operation_that_has_no_value_is_named(slope, cause):
    with pytest.raises(EstimationFailed) as caught:
        igpe.simulate(one_state(slope), {"k": 1.0})
    assert f"the slope of 'x' has no finite value: {cause}" in str(caught.value)
    assert "start_time" not in str(caught.value)


def test_no_search_begins_where_the_start_has_no_slope_for_any_unknowns():
    sentence = (
        r"^At the start, t = 0, the slope of 'x' has no finite value: sqrt\(x - 2.0\) is undefined "
        r"at x = 1. Check the start values and this equation.$"
    )
    with pytest.raises(ProblemError, match=sentence):
        igpe.estimate(one_state(lambda m, t: -m.k * pyo.sqrt(m.x[t] - 2)))


def clamped(law, inputs):
    """x' = law(m, t) with the input V, one experiment for each."""
    given = one_state(lambda m, t: -m.k * m.x[t])

    def model(times):
        m = given.model(times)
        m.V = pyo.Param(m.t, mutable=True, default=1.0)
        del m.rate
        m.rate = pyo.Constraint(m.t, rule=law)
        return m

    times = np.linspace(0.5, 5, 10)
    data = pd.DataFrame({"time": times, "x": 0.3 * np.exp(-0.2 * times)})
    runs = [
        Experiment(data, name=f"run {i}", start={"x": 0.3}, start_time=0.0, inputs=one)
        for i, one in enumerate(inputs)
    ]
    return Problem(model, parameters={"k": (0.01, 5)}, experiments=runs)


def test_an_input_at_which_a_slope_has_no_value_is_named_with_its_experiment():
    def law(m, t):
        return m.dx[t] == -m.k * m.x[t] * (10 - m.V[t]) / (pyo.exp((10 - m.V[t]) / 10) - 1)

    problem = clamped(law, [{"V": 30.0}, {"V": 10.0}])
    sentence = (
        r"^At the start of experiment 'run 1', t = 0, the slope of 'x' has no finite value: "
        r"1/\(exp\(.*\) - 1.0\) is undefined at V = 10. Correct these inputs, or write the equation"
    )
    with pytest.raises(ProblemError, match=sentence):
        igpe.estimate(problem)


def test_where_nothing_can_be_integrated_the_operation_is_named():
    sentence = r"any of them. At the start, t = 0, the slope of 'x' has no finite value: "
    with pytest.raises(
        EstimationFailed, match=sentence + r"\(x - 2.0\)\*\*k is undefined at x = 1"
    ):
        igpe.estimate(one_state(lambda m, t: -((m.x[t] - 2) ** m.k)))


def test_degrees_celsius_are_named_where_they_divide_by_zero():
    def law(m, t):
        return m.dx[t] == -1e9 * m.k * pyo.exp(-5e4 / (8.314 * m.V[t])) * m.x[t]

    with pytest.raises((ModelError, ProblemError), match="looks like degrees Celsius"):
        igpe.estimate(clamped(law, [{"V": 0.0}, {"V": 20.0}, {"V": 40.0}]))


def test_degrees_celsius_elsewhere_do_not_hide_what_to_check():
    def law(m, t):
        return m.dx[t] == -m.k * pyo.exp(-500 / (8.314 * m.V[t])) * pyo.sqrt(m.x[t] - 2)

    advice = r"undefined at x = 0.3. Check the start values and this equation. 'V' is at most 30"
    with pytest.raises(ProblemError, match=advice):
        igpe.estimate(clamped(law, [{"V": 30.0}]))


def test_a_slope_without_a_value_before_a_dose_at_the_start_does_not_count():
    """dx/dt = -k sqrt(x - 1) from 0, with a dose of 2: x - 1 = (1 - k t / 2)^2."""
    given = one_state(lambda m, t: -m.k * pyo.sqrt(m.x[t] - 1))
    times = np.linspace(0.5, 5, 10)
    data = pd.DataFrame({"time": times, "x": 1 + (1 - 0.1 * times) ** 2})
    dose = igpe.Event(at=0.0, add={"x": 2.0})
    run = igpe.Experiment(data, start={"x": 0.0}, start_time=0.0, events=[dose])
    problem = igpe.Problem(given.model, parameters={"k": (0.01, 5)}, experiments=run)
    assert igpe.estimate(problem).parameters["k"] == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (0, r"equations \['one', 'two'\] do not determine a, b: one"),
        (1, r"contradict the equations \['two combined with one'\]"),  # together, x = 0
    ],
)
def test_algebraic_equations_with_one_difference_are_refused_before_a_search(right, words):
    """Two equations contain a - b, which says nothing of a; no values are to blame."""
    given = one_state(lambda m, t: -m.k * m.x[t])

    def model(times):
        m = given.model(times)
        m.a, m.b = pyo.Var(m.t), pyo.Var(m.t)
        m.one = pyo.Constraint(m.t, rule=lambda m, t: m.a[t] - m.b[t] == right * m.x[t])
        m.two = pyo.Constraint(m.t, rule=lambda m, t: 2 * m.a[t] - 2 * m.b[t] == right * 3 * m.x[t])
        del m.rate
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.k * m.a[t])
        return m

    problem = igpe.Problem(model, parameters=["k"], experiments=given.experiments)
    with pytest.raises(ModelError, match=words):
        igpe.estimate(problem)


@pytest.mark.parametrize(
    "second",
    [
        lambda m, t: m.a[t] == 1e-17 * m.b[t],  # two resistances in series
        lambda m, t: m.b[t] + pyo.Expr_if(m.x[t] <= 9.0, 1e17, -1e17) * m.a[t] == 0,
    ],
)
def test_equations_of_any_units_and_branches_that_are_never_taken_are_independent(second):
    given = one_state(lambda m, t: -m.k * m.x[t], start=100.0)

    def model(times):
        m = given.model(times)
        m.a, m.b = pyo.Var(m.t), pyo.Var(m.t)
        m.one = pyo.Constraint(m.t, rule=lambda m, t: m.a[t] == m.x[t] - 1e-17 * m.b[t])
        m.two = pyo.Constraint(m.t, rule=second)
        del m.rate
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -2 * m.k * m.a[t])
        return m

    problem = igpe.Problem(model, parameters=["k"], experiments=given.experiments)
    found = igpe.simulate(problem, {"k": 1.0}, [1.0])
    assert found["x"].to_numpy() == pytest.approx([100 * np.exp(-1)], rel=1e-6)


@every_method
def test_a_start_that_is_no_number(method):
    problem = one_state(lambda m, t: -m.k * m.x[t], start=Unknown(0, 5))
    came = simulation(problem, [0.0, 1.0], method=method()).run(np.array([1.0, np.nan]))
    assert came.status is Status.INTEGRATION_BROKE
    assert came.reason == "The start values are not finite."
    assert_nothing_after(came, 0)


@every_method
def test_what_depends_on_no_state_is_not_told_either(method):
    def build(times):
        m = one_state(lambda m, t: m.k * m.x[t] ** 2).model(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: 3 * m.k)
        return m

    table = pd.DataFrame({"time": [0.5, 2.0], "y": [3.0, 3.0]})
    run = Experiment(table, start={"x": 1.0}, start_time=0.0)
    problem = Problem(build, parameters=["k"], experiments=run)
    came = simulation(problem, [0.5, 2.0], method=method()).run(np.array([1.0]))
    assert came.measured[0] == pytest.approx([3.0])
    assert_nothing_after(came, 1)


@every_method
def test_growth_beyond_the_limit(method):
    problem = one_state(lambda m, t: m.k * m.x[t])
    made = simulation(problem, [1.0, 2.0, 3.0, 4.0], method=method(largest=1e3))
    came = made.run(np.array([3.0]))  # passes 1000 at t = 2.3
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 2.0)
    assert came.reason.startswith("State x exceeded 1000 times its typical size at t = ")
    assert 2.3 <= times_in(came.reason)[0] <= 3.0
    assert_nothing_after(came, 2)


@every_method
def test_the_limit_of_steps(method):
    case = CASES["lotka_volterra"]
    problem = case.problem()
    made = simulation(problem, [0.0, 1e-3, 5.0], method=method(max_steps=25))
    came = made.run(problem.box.vector(case.truth))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 1e-3)
    assert came.reason.startswith("The step limit of 25 was reached ")
    assert 1e-3 <= times_in(came.reason)[0] <= 5.0
    assert_nothing_after(came, 2)


@every_method
def test_steps_are_counted_anew_where_an_input_jumps(method):
    jumps = np.arange(40.0)
    feed = step_input(jumps, 1.0 + jumps % 2)
    problem = one_state(lambda m, t: m.u[t] - m.k * m.x[t], inputs={"u": feed})
    came = simulation(problem, [0.0, 40.0], method=method(max_steps=60)).run(np.array([1.0]))
    assert came.status is Status.CONVERGED
    cycle = (2 + np.exp(-1)) / (1 + np.exp(-1))  # at the end of a unit with u = 2
    assert came.states[-1, 0] == pytest.approx(cycle, rel=1e-6)


@every_method
def test_the_limit_of_time(method):
    fast = one_state(lambda m, t: m.k * m.u[t], inputs={"u": lambda t: pyo.cos(2000 * t)})
    made = simulation(fast, [0.0, 1.0, 2.0], method=method(seconds=1e-9))
    came = made.run(np.array([1.0]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)
    assert came.reason.startswith("The time limit of 1e-09 s was reached at t = ")
    assert_nothing_after(came, 1)


@pytest.mark.parametrize("method", [Sundials, Automatic])
def test_no_consistent_algebraic_variables(method):
    case = CASES["dimer"]
    made = simulation(case.problem(), case.times, method=method())
    came = made.run(np.array([0.6, -5.0]))  # total = M + 2 K M^2 has no root
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)
    assert came.reason == "No consistent values of the algebraic variables were found at t = 0."
    assert_nothing_after(came, 0)


@pytest.mark.parametrize("method", [Sundials, Automatic])
def test_a_finite_escape_with_implicit_variables(method):
    """x' = k z^2, z^3 + z = x^3 + x: z = x = 1 / (1 - k t)."""

    def build(times):
        m = over_time(times, "x", k=(0, 5))
        m.z = pyo.Var(m.t, initialize=1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.k * m.z[t] ** 2)
        m.same = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] ** 3 + m.z[t] == m.x[t] ** 3 + m.x[t])
        return m

    times = np.array([0.0, 0.25, 0.5, 0.75, 1.5, 2.0])
    run = Experiment(pd.DataFrame({"time": times, "x": 1.0 + 0 * times}), start={"x": 1.0})
    problem = Problem(build, parameters=["k"], experiments=run)
    came = simulation(problem, times, method=method()).run(np.array([1.0]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.75)
    assert came.implicit[:4, 0] == pytest.approx(1 / (1 - times[:4]), rel=1e-6)
    assert "between t = 0.75 and t = 1.5" in came.reason
    assert_nothing_after(came, 4)


def test_stiffness_is_a_break_down_of_the_explicit_pair():
    times = [1e-6, 0.4, 40.0]
    came = simulation(robertson(), times, method=LockStep()).run(np.array([0.04]))
    assert came.reached == 1e-6
    assert came.reason.startswith("The equations are stiff at t = ")
    assert_nothing_after(came, 1)


@every_method
def test_a_break_down_before_the_first_output_reaches_only_the_start(method):
    problem = one_state(lambda m, t: m.k * m.x[t] ** 2)
    came = simulation(problem, [1.5, 2.0], method=method()).run(np.array([1.0]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)
    assert came.reason
    assert_nothing_after(came, 0)


def titrated(times):
    """A base is neutralised; its pH starts at 13, above the bound of the model."""
    m = over_time(times, "base", k=(0, 9))
    m.pH = pyo.Var(m.t, bounds=(1, 12))
    m.used = pyo.Constraint(m.t, rule=lambda m, t: m.dbase[t] == -m.k)
    m.charge = pyo.Constraint(
        m.t, rule=lambda m, t: m.base[t] + 10 ** -m.pH[t] == 10 ** (m.pH[t] - 14)
    )
    return m


@pytest.mark.slow
def test_the_bound_that_excludes_the_only_consistent_value_is_named():
    table = pd.DataFrame({"time": [0.0, 1.0, 2.0], "pH": 7.0})
    run = igpe.Experiment(table, start={"base": 0.1}, sigma=0.1)
    problem = igpe.Problem(titrated, parameters=["k"], experiments=run)
    words = r"pH = 13 is not between 1 and 12"
    with pytest.raises(igpe.errors.EstimationFailed, match=words):
        igpe.simulate(problem, {"k": 0.05}, [0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(igpe.errors.EstimationFailed, match=words):
            igpe.estimate(problem, certify=False)
