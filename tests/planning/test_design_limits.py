"""What plans keep: the model's constraints, and budgets; against SciPy and against all choices."""

from itertools import product

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from scipy.integrate import solve_ivp

import igpe
from igpe.planning.design_limits import Budget, SampleCost, integral
from igpe.planning.design_problem import read_design
from igpe.planning.sample_choice import SamplingRules
from igpe.problem.inputs import linear_input, step_input

P = igpe.planning
AT = {"k": 0.5, "E": 10.0}
BREAKS = (0.0, 1.0, 2.0, 3.0)
FREE = {
    "A": P.Between(0.5, 2.0),
    "feed": P.Levels(BREAKS, 0.0, 1.0),
    "Tin": P.Levels(BREAKS, 320.0, 380.0),
}


def fed(times):
    """A batch with a feed; its volume and its adiabatic temperature are limited."""
    m = over_time(times, "A V", "T", k=(0.01, 10), E=(0, 50))
    m.feed = pyo.Param(m.t, mutable=True, default=0.0)
    m.Tin = pyo.Param(m.t, mutable=True, default=350.0)

    def balance(m, t):
        rate = m.k * pyo.exp(-m.E * (350 / m.Tin[t] - 1)) * m.A[t]
        return m.dA[t] == m.feed[t] / m.V[t] * (5 - m.A[t]) - rate

    m.balance = pyo.Constraint(m.t, rule=balance)
    m.volume = pyo.Constraint(m.t, rule=lambda m, t: m.dV[t] == m.feed[t])
    m.adiabatic = pyo.Constraint(m.t, rule=lambda m, t: m.T[t] == m.Tin[t] + 20 * m.A[t])
    m.full = pyo.Constraint(m.t, rule=lambda m, t: m.V[t] <= 1.5)
    m.hot = pyo.Constraint(m.t, rule=lambda m, t: pyo.inequality(300, m.T[t], 375))
    return m


def unconstrained(times):
    """The same without its constraints."""
    m = fed(times)
    m.full.deactivate()
    m.hot.deactivate()
    return m


def planned(model=fed, known=None, **more):
    """A plan of two experiments with 5 samples each; `known` unknowns are given."""
    known = known or {}
    at = {n: v for n, v in AT.items() if n not in known}
    nothing = P.ProblemWithoutData(model, list(at), ["A"], 4.0, start={"V": 1.0}, inputs=known)
    given = {
        "free": FREE,
        "times": P.Sampling(np.linspace(0.25, 4, 16), at_most=5),
        "measure": {"A": 0.05},
        "experiments": 2,
        "pool": 64,
        "starts": 2,
    } | more
    return igpe.design(nothing, at, **given)


def reached(experiment):
    """Volumes and adiabatic temperatures on a fine grid, by SciPy; at jumps before and after."""
    feed, inlet = experiment.inputs["feed"], experiment.inputs["Tin"]
    x, volumes, temperatures = [experiment.start["A"], experiment.start["V"]], [], []
    for low, u, warm in zip(BREAKS, feed.values, inlet.values, strict=True):

        def slope(_, x, u=u, warm=warm):
            rate = AT["k"] * np.exp(-AT["E"] * (350 / warm - 1)) * x[0]
            return [u / x[1] * (5 - x[0]) - rate, u]

        run = solve_ivp(slope, (low, low + 1), x, max_step=0.01, rtol=1e-10, atol=1e-12)
        volumes.append(run.y[1])
        temperatures.append(warm + 20 * run.y[0])
        x = run.y[:, -1]
    return np.concatenate(volumes), np.concatenate(temperatures)


@pytest.mark.slow
def test_plans_keep_the_constraints_of_the_model():
    plan = planned()
    for one in plan.experiments:
        volume, temperature = reached(one)
        assert volume.max() <= 1.5 + 1e-5
        assert temperature.max() <= 375 + 0.05  # between the times that are checked
    free = planned(unconstrained)
    ends = [reached(one) for one in free.experiments]
    assert max(v.max() for v, _ in ends) > 1.6  # the constraints matter
    assert max(t.max() for _, t in ends) > 380
    assert free.after < plan.after


def test_a_constrained_plan_is_the_best_of_a_grid():
    """One start value and one constant feed, all pairs of which are tried."""
    free = {"A": FREE["A"], "feed": P.Between(0.0, 0.4)}
    given = {"free": free, "experiments": 1, "times": np.linspace(1, 4, 4)}
    known = {"known": {"E": 10.0}, "conditions": {"Tin": 360.0}}
    plan = planned(**given, **known)
    other = {"times": given["times"], "experiments": 1, **known, "free": {}}
    best = np.inf
    for a, u in product(np.linspace(0.5, 2.0, 16), np.linspace(0.0, 0.4, 9)):
        if 1 + 4 * u > 1.5 or 360 + 20 * a > 375:
            continue
        fixed = {"A": a, "feed": u, "Tin": 360.0}
        at = planned(unconstrained, **other | {"conditions": fixed})
        best = min(best, at.after)
    assert plan.after <= best * (1 + 1e-6)
    assert plan.settings.loc["A(t0)", "plan1"] <= 0.75 * (1 + 1e-6)


@pytest.mark.slow
def test_constraints_that_no_setting_keeps_are_named():
    with pytest.raises(igpe.errors.ProblemError, match="No plan was found that satisfies hot"):
        planned(conditions={"A": 5.0}, free={"feed": FREE["feed"]})


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_of_margins_agree_with_differences(seed):
    nothing = P.ProblemWithoutData(fed, ["k", "E"], ["A"], 4.0, start={"V": 1.0})
    posed = read_design(
        nothing, AT, free=FREE, conditions={}, times=[4.0], measure={"A": 0.05},
        criterion=P.DOptimal(), count=1, existing=True, like=None,
        integrator=igpe.integrators.Automatic(rtol=1e-11, atol=1e-13),
    )  # fmt: skip
    (limits,) = posed.limits([{}])
    random = np.random.default_rng(seed)
    design = posed.plan.lower + random.uniform(0.2, 0.8, len(posed.plan.choices)) * posed.plan.width
    _, slopes = limits.margins(design)
    for i, width in enumerate(posed.plan.width):
        step = np.zeros(len(design))
        step[i] = 1e-4 * width
        ends = [limits.margins(design + s * step)[0] for s in (1, -1)]
        numeric = (ends[0] - ends[1]) / (2 * step[i])
        assert slopes[:, i] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def random_rules(random, budgets):
    """Candidates of two experiments with random costs."""
    times = np.sort(random.uniform(0, 5, 6))
    costs = []
    for _ in range(budgets):
        budget = Budget(
            random.uniform(2, 8), experiment=1.0, sample=random.uniform(0.2, 1),
            time=random.uniform(0, 0.5), each=bool(random.integers(2)),
        )  # fmt: skip
        costs.append(SampleCost(budget, 0.0, random.uniform(0, 2, 2)))
    one = (np.ones(1, dtype=bool),)
    return SamplingRules(times, 3, float(random.uniform(0, 0.8)), one, tuple(costs))


@pytest.mark.parametrize("lowest", [None, -6])
@pytest.mark.parametrize("seed", range(30))
def test_the_largest_gain_within_budgets_is_the_largest_of_all(seed, lowest):
    random = np.random.default_rng(seed)
    rules = random_rules(random, 1 + seed % 3)
    for cost in rules.budgets if lowest else ():  # settings may cost less than nothing
        cost.fixed[:] = random.uniform(lowest, 6, 2)
    gains = random.uniform(0, 1, (2, 6, 1))
    found = rules.best(gains)[0][..., 0]
    assert rules.affords(found)
    assert paid(rules, found)
    everything = product((False, True), repeat=12)
    best = 0.0
    for choice in everything:
        taken = np.reshape(choice, (2, 6))
        if taken.sum(axis=1).max() <= rules.at_most and paid(rules, taken):
            near = [np.diff(rules.times[row]) for row in taken]
            if all((d >= rules.spacing).all() for d in near):
                best = max(best, float(gains[..., 0][taken].sum()))
    assert float(gains[..., 0][found].sum()) == pytest.approx(best)


def paid(rules, taken):
    """Whether budgets pay for samples, added up one by one."""
    for cost in rules.budgets:
        sums = []
        for row, fixed in zip(taken, cost.fixed, strict=True):
            t = rules.times[row]
            b = cost.budget
            sums.append(fixed + b.sample * len(t) + b.time * t[-1] if len(t) else 0.0)
        if (max(sums) if cost.budget.each else sum(sums)) > cost.budget.at_most * (1 + 1e-8):
            return False
    return True


def spent(plan, feed=0.0, sample=0.0, time=0.0, experiment=0.0):
    """What a plan costs."""
    total = 0.0
    for one in plan.experiments:
        fed_ = float(np.sum(one.inputs["feed"].values)) if "feed" in one.inputs else 0.0
        total += feed * fed_ + sample * len(one.times) + time * one.times[-1] + experiment
    return total


@pytest.mark.slow
def test_budgets_of_settings_samples_and_time_are_kept():
    total_feed = planned(unconstrained, budgets=P.Budget(0.6, settings={"feed": 1.0}))
    assert spent(total_feed, feed=1.0) == pytest.approx(0.6, rel=1e-6)
    money = {"feed": 4.0, "sample": 1.0, "time": 0.5, "experiment": 2.0}
    budget = P.Budget(14, settings={"feed": 4.0}, sample=1.0, time=0.5, experiment=2.0)
    plan = planned(unconstrained, budgets=[budget])
    assert 12 < spent(plan, **money) <= 14 * (1 + 1e-8)
    few = planned(unconstrained, budgets=P.Budget(7, sample=1.0))
    assert sum(len(e.times) for e in few.experiments) == 7
    short = planned(unconstrained, budgets=P.Budget(2.0, time=1.0, each=True))
    assert max(e.times[-1] for e in short.experiments) <= 2.0


@pytest.mark.slow
def test_too_small_a_budget_gives_fewer_experiments():
    plan = planned(unconstrained, budgets=P.Budget(9.5, experiment=4.0, sample=1.0))
    assert len(plan.experiments) == 1
    assert len(plan.experiments[0].times) == 5
    with pytest.raises(igpe.errors.ProblemError, match="budget"):
        planned(unconstrained, budgets=P.Budget(3.0, experiment=4.0))


def test_samples_go_where_they_tell_most():
    """A budget of samples for three conditions: against all ways to share them."""
    free = {"A": P.OneOf((0.5, 1.0, 2.0), shared=True)}
    given = {"free": free, "experiments": 2, "conditions": {"Tin": 340.0}, "known": {"E": 10.0}}
    times = P.Sampling(np.repeat([1.0, 2.0, 3.0, 4.0], 3), at_most=4)
    plan = planned(unconstrained, **given, budgets=P.Budget(4, sample=1.0), times=times)
    assert sum(len(e.times) for e in plan.experiments) == 4
    assert plan.efficiency == pytest.approx(1.0, abs=1e-3)
    assert plan.settings.loc["A(t0)"].iloc[0] == 2.0


@pytest.mark.slow
def test_free_times_are_better_than_those_of_a_grid():
    grid = planned(unconstrained, experiments=1)
    free = planned(unconstrained, experiments=1, times=P.Sampling((0.25, 4), at_most=5, free=True))
    assert free.after <= grid.after
    assert len(free.experiments[0].times) == 5
    with pytest.raises(igpe.errors.ProblemError, match="free=True"):
        P.Sampling((0.25, 4), free=True)


def test_a_free_time_is_the_optimum_of_the_formula():
    """A decay from a known start tells most of its rate at the time 1/k."""

    decay = ode({"A": lambda m, t: -m.k * m.A[t]}, k=(0.01, 10))

    nothing = P.ProblemWithoutData(decay, ["k"], ["A"], 10.0, start={"A": 1.0})
    times = P.Sampling((0.0, 10.0), at_most=1, free=True)
    plan = igpe.design(nothing, {"k": 0.7123}, times=times, measure={"A": 0.01})
    assert plan.experiments[0].times[0] == pytest.approx(1 / 0.7123, abs=0.006)


def test_weights_are_the_continuous_design():
    plan = planned(unconstrained)
    assert set(plan.weights.columns) == {"experiment", "time", "name", "weight"}
    assert plan.weights.groupby("experiment")["weight"].sum().to_numpy() == pytest.approx(5.0)
    again = P.Plan.from_json(plan.to_json())
    pd.testing.assert_frame_equal(again.weights, plan.weights)


def test_integrals_of_inputs():
    assert integral(step_input([0, 1, 3], [1, 2, 5]), 0.5, 4.0) == pytest.approx(9.5)
    assert integral(linear_input([0, 2], [0, 4]), 0.0, 3.0) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (5, "give one or several igpe.planning.Budget"),
        (P.Budget(1, settings={"nothing": 1}), "cost for 'nothing', but igpe does not know"),
    ],
)
def test_wrong_budgets_are_refused(budgets, message):
    with pytest.raises(igpe.errors.ProblemError, match=message):
        planned(unconstrained, budgets=budgets)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at_most": -1, "sample": 1}, "at_most"),
        ({"at_most": 1}, "but no costs"),
        ({"at_most": 1, "settings": {"feed": float("nan")}}, "finite numbers"),
    ],
)
def test_budgets_that_say_nothing_are_refused(given, message):
    with pytest.raises(igpe.errors.ProblemError, match=message):
        P.Budget(**given)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 7, 11, 18])
def test_plans_within_a_budget_are_nearly_the_best_of_all(seed):
    """Settings from lists, samples, and one budget for both: against all combinations."""
    random = np.random.default_rng(seed)
    amounts, inlets = np.round(random.uniform(0.3, 2, 3), 4).tolist(), (330.0, 350.0, 370.0)
    budget = P.Budget(
        random.uniform(8, 14), settings={"A": random.uniform(0, 2)},
        sample=random.uniform(0.5, 1.5), time=random.uniform(0, 0.8),
        experiment=random.uniform(0, 2),
    )  # fmt: skip
    times = np.array([1.0, 2.0, 3.0, 4.0])
    free = {"A": P.OneOf(amounts), "Tin": P.OneOf(inlets)}
    plan = planned(unconstrained, free=free, times=P.Sampling(times, at_most=4), budgets=budget)
    costs, informations = [0.0], [np.zeros((2, 2))]
    for a, inlet in product(amounts, inlets):
        power = AT["E"] * (350 / inlet - 1)
        rate = AT["k"] * np.exp(-power)
        relative = times * a * np.exp(-rate * times) * rate / 0.05
        rows = np.stack([-relative, relative * power], axis=1)
        for taken in product((False, True), repeat=4):
            chosen = rows[list(taken)]
            if len(chosen):
                material, last = budget.settings["A"] * a, times[list(taken)][-1]
                counted = budget.sample * len(chosen) + budget.time * last
                costs.append(budget.experiment + material + counted)
                informations.append(chosen.T @ chosen)
    i, j = np.triu_indices(len(costs))
    within = np.add(np.array(costs)[i], np.array(costs)[j]) <= budget.at_most
    pairs = np.array(informations)[i[within]] + np.array(informations)[j[within]]
    best = float(np.linalg.det(pairs).max() ** -0.25)
    assert best * (1 - 1e-6) <= plan.after <= 1.03 * best


def test_experiments_that_distinguish_rivals_keep_limits_too():
    def second_order(times):
        m = fed(times)
        m.del_component(m.balance)

        def balance(m, t):
            rate = m.k * pyo.exp(-m.E * (350 / m.Tin[t] - 1)) * m.A[t] ** 2
            return m.dA[t] == m.feed[t] / m.V[t] * (5 - m.A[t]) - rate

        m.balance = pyo.Constraint(m.t, rule=balance)
        return m

    table = pd.DataFrame({"time": [1.0, 2.0, 3.0], "A": [0.62, 0.36, 0.23]})
    run = igpe.Experiment(table, start={"A": 1.0, "V": 1.0}, sigma=0.02)
    problems = {
        name: igpe.Problem(model, parameters={"k": (0.01, 10), "E": (0, 50)}, experiments=run)
        for name, model in (("first", fed), ("second", second_order))
    }
    budget = P.Budget(4, sample=1.0)
    times = P.Sampling(np.linspace(0.5, 4, 8))
    plan = P.discriminate(
        problems, {"first": AT, "second": AT}, free=FREE, times=times, budgets=budget,
        pool=16, starts=1,
    )  # fmt: skip
    (one,) = plan.experiments
    assert len(one.times) == 4
    volume, temperature = reached(one)
    assert volume.max() <= 1.5 + 1e-5
    assert temperature.max() <= 375.05
