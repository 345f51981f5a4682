"""Plans: what they predict comes true, what is known counts, and what they can be used for."""

import json
from dataclasses import replace

import kinetics
import numpy as np
import pandas as pd
import pytest

import igpe

P = igpe.planning
TRUTH = {"k1": 0.7, "k2": 0.2}
B = P.Between


def first_data(seed=0, sigma=0.05):
    """A poor first experiment: few early samples."""
    t = np.array([0.5, 1.0, 1.5, 2.0])
    a, b = np.exp(-0.7 * t), 1.4 * (np.exp(-0.2 * t) - np.exp(-0.7 * t))
    noise = sigma * np.random.default_rng(seed).standard_normal((2, 4))
    return pd.DataFrame({"time": t, "A": a + noise[0], "B": b + noise[1]})


def problem(sigma=0.05, experiments=(), **settings):
    first = igpe.Experiment(first_data(), name="first", start={"A": 1.0, "B": 0.0}, sigma=sigma)
    return igpe.Problem(
        kinetics.consecutive, parameters=["k1", "k2"], experiments=[first, *experiments], **settings
    )


def planned(given=None, **settings):
    return igpe.design(
        given or problem(),
        TRUTH,
        **(
            {
                "free": {"A": B(0.5, 2.0)},
                "times": P.Sampling(np.linspace(0.5, 10, 20), at_most=5, spacing=0.9),
                "pool": 32,
                "starts": 2,
            }
            | settings
        ),
    )


def errors(one):
    """Linearised standard errors of an estimate with igpe, from the truth."""
    result = igpe.estimate(one)
    return pd.Series({p.name: p.standard_error for p in result.estimates})


def test_before_are_the_errors_of_what_was_measured_and_after_of_both():
    start = problem()
    plan = planned(start)
    data = plan.simulated(seed=1)
    both = problem(experiments=[plan.experiment(0, data)])
    before, after = errors(start), errors(both)
    assert plan.errors["before"].to_numpy() == pytest.approx(before[list(TRUTH)], rel=0.3)
    assert plan.errors["after"].to_numpy() == pytest.approx(after[list(TRUTH)], rel=0.15)
    assert (plan.errors["ratio"] > 1.5).all()
    assert plan.after < plan.before


def test_errors_are_told_by_residuals_where_no_deviations_are_given():
    given = problem(sigma=None)
    plan = planned(given, free={}, conditions={"A": 2.0})
    sigma = plan.courses.groupby("name")["sigma"].unique()
    assert sigma.map(len).tolist() == [1] * len(sigma)
    assert sigma.map(lambda one: one[0]).to_numpy() == pytest.approx(0.05, rel=0.5)
    again = plan.experiment(0, plan.simulated(0))
    assert not again.sigma_known
    assert problem(sigma=None, experiments=[again]).size == given.size + 10


def test_an_unknown_start_is_estimated_in_each_planned_experiment():
    """Two runs from unknown amounts know k no better than the sum of what each knows."""
    data = first_data().drop(columns="B")
    one = igpe.Problem(
        kinetics.decay,
        parameters=["k"],
        experiments=igpe.Experiment(
            data, start={"A": igpe.Unknown(0, 3)}, start_time=0.0, inputs={"A0": 1.0}, sigma=0.05
        ),
    )
    values = {"k": 0.7, "A(t0)": 1.0}
    settings = {"times": [0.5, 1.0, 2.0, 4.0], "existing": False}
    single, double = (igpe.design(one, values, experiments=n, **settings) for n in (1, 2))
    ratio = single.errors.loc["k", "after"] / double.errors.loc["k", "after"]
    assert ratio == pytest.approx(np.sqrt(2), rel=1e-6)
    known = igpe.design(one, values, conditions={"A": 1.0}, **settings)
    assert known.errors.loc["k", "after"] < 0.9 * single.errors.loc["k", "after"]
    assert np.isinf(double.errors.loc["A(t0)", "after"])  # of the first experiment: not repeated


def test_a_local_parameter_is_estimated_in_each_planned_experiment():
    """k1 is each run's own: a planned run tells of k2 what is left after its own k1."""
    second = igpe.Experiment(first_data(1), name="second", start={"A": 1.0, "B": 0.0}, sigma=0.05)
    given = problem(experiments=[second], local=["k1"])
    values = {"k1@first": 0.7, "k1@second": 0.7, "k2": 0.2}
    settings = {"conditions": {"A": 2.0}, "times": [1.0, 2.0, 4.0, 8.0], "like": "second"}
    plan = igpe.design(given, values, **settings)
    assert list(plan.errors.index) == ["k1@first", "k1@second", "k2"]
    assert plan.errors.loc["k2", "ratio"] > 1.5
    assert plan.errors.loc["k1@second", "ratio"] > 1  # by k2 alone
    shared = igpe.design(problem(experiments=[second]), TRUTH, **settings)
    assert shared.errors.loc["k2", "after"] < plan.errors.loc["k2", "after"]


def test_experiments_whose_parameters_are_all_local_are_planned_for_their_own():
    every = problem(local=["k1", "k2"])
    values = dict.fromkeys(every.box.names, 0.5)
    made = igpe.design(every, values, times=[1.0, 2.0, 4.0], pool=4)
    names = [n for n in made.errors.index if n.endswith("@plan1")]
    assert names == ["k1@plan1", "k2@plan1"]
    assert np.isfinite(made.errors.loc[names, "after"]).all()
    assert np.isinf(made.errors.loc[names, "before"]).all()
    assert made.covariance.shape == (len(made.errors),) * 2
    assert any("All parameters are local" in note for note in made.notes)


@pytest.mark.parametrize(("lower", "upper"), [(40.0, 80.0), (320.0, 360.0)])
def test_a_plan_that_tells_nothing_and_degrees_celsius_are_named(lower, upper):
    rate = igpe.kinetics.Arrhenius("k1", "E1", reference=340.0)
    reaction = igpe.kinetics.Reaction("A -> B", igpe.kinetics.MassAction(rate))
    bounds = {"k1": (1e-3, 1), "E1": (1e4, 2e5)}
    reactor = igpe.kinetics.Batch([reaction], bounds=bounds)
    values = {"k1": 0.05, "E1": 7e4}
    runs = [
        igpe.Experiment(
            pd.DataFrame({"time": [5.0, 20.0], "A": [0.8, 0.4]}), name=f"at {t:g}", start_time=0.0,
            start={"A": 1.0, "B": 0.0}, inputs={"T": t}, sigma=0.01,
        )
        for t in (330.0, 345.0)
    ]  # fmt: skip
    given = igpe.Problem(reactor, parameters=reactor.parameters, experiments=runs)
    free = {"T": igpe.planning.Between(lower, upper)}
    made = igpe.design(given, values, free=free, times=[5.0, 20.0], pool=4, starts=1)
    said = " ".join(made.notes)
    is_cold = upper < 150.0
    assert ("hardly reduce the errors" in said) == is_cold
    assert ("looks like degrees Celsius" in said) == is_cold


def test_a_planned_start_value_is_measured_as_those_before():
    """Its prior counts, and it is expected at the prior's mean."""
    start = {"A": igpe.losses.NormalPrior(1.0, 0.03), "B": 0.0}
    given = igpe.Problem(
        kinetics.consecutive, parameters=["k1", "k2"],
        experiments=igpe.Experiment(first_data(), name="first", start=start, sigma=0.05),
    )  # fmt: skip
    at = igpe.estimate(given, certify=False)
    plan = igpe.design(given, at, times=[4.0])
    both = [*given.experiments, plan.experiment(0, plan.simulated(seed=1))]
    after = errors(igpe.Problem(kinetics.consecutive, parameters=["k1", "k2"], experiments=both))
    for name in ("k1", "k2"):
        assert plan.errors.loc[name, "after"] == pytest.approx(after[name], rel=0.1)
    course = plan.courses[plan.courses["name"] == "A"]
    assert course["predicted"].iloc[0] == pytest.approx(1.0)
    again = P.Plan.from_json(plan.to_json())
    assert again.experiments[0].start == plan.experiments[0].start


def test_ramps_keep_their_steepness():
    given = P.ProblemWithoutData(
        kinetics.reactor, ["k", "E"], ["A"], 3.0, start={"A": 1.0, "B": 0.0}, inputs={"feed": 0.0}
    )
    plan = igpe.design(
        given,
        {"k": 0.8, "E": 8.0},
        free={"T": P.Ramps((0.0, 1.0, 3.0), 330.0, 380.0, steepest=10.0)},
        times=np.linspace(0.5, 3, 6),
        measure={"A": 0.01},
        pool=32,
    )
    t = plan.settings.loc[["T at 0", "T at 1", "T at 3"], "plan1"].to_numpy()
    assert np.abs(np.diff(t) / [1.0, 2.0]).max() <= 10.0 + 1e-6
    assert np.ptp(t) > 5  # it heats or cools at all


def test_a_robust_design_is_worse_where_it_is_planned_and_better_elsewhere():
    """A decay whose rate may be 0.1 or 1 besides the 0.4 it is thought to be."""
    given = P.ProblemWithoutData(
        kinetics.decay, ["k"], ["A"], 20.0, start={"A": 1.0}, inputs={"A0": 1.0}
    )
    settings = {"times": P.Sampling(np.linspace(0, 20, 41), at_most=2), "measure": {"A": 0.01}}
    table = pd.DataFrame({"k": [0.1, 1.0]})
    plain = igpe.design(given, {"k": 0.4}, **settings)
    robust = igpe.design(given, {"k": 0.4}, samples=table, **settings)

    def mean(plan):
        t = plan.experiments[0].times
        told = [np.sum((k * t * np.exp(-k * t)) ** 2) for k in (0.4, 0.1, 1.0)]
        return np.mean(np.log(told))

    assert mean(robust) > mean(plain)
    assert plain.after < robust.after


def test_scenarios_are_drawn_from_what_is_known():
    plan = planned(samples=3)
    assert plan.after < plan.before
    with pytest.raises(igpe.errors.ProblemError, match="cannot be drawn"):
        planned(samples=3, existing=False)


def test_the_same_seed_gives_the_same_plan():
    assert planned(seed=3).to_json() == planned(seed=3).to_json()


def test_choosing_among_quantities_takes_the_one_that_tells():
    plan = planned(
        existing=False,
        times=P.Sampling(np.linspace(0.5, 10, 20), at_most=5, quantities=1),
        measure={"A": 0.02, "B": 0.02},
    )
    assert plan.experiments[0].measured == ("B",)  # A alone tells nothing of k2
    assert list(plan.table().columns) == ["experiment", "time", "B"]


def test_a_plan_is_a_sheet_a_picture_and_json(tmp_path):
    plan = planned(experiments=2)
    sheet = plan.table()
    assert list(sheet.columns) == ["experiment", "time", "A", "B"]
    assert sheet.groupby("experiment").size().to_dict() == {"plan1": 5, "plan2": 5}
    assert sheet[["A", "B"]].isna().all(axis=None)
    with pytest.raises(igpe.errors.DataError, match=r"no values of A, B in 'plan1'\. Fill in"):
        plan.experiment(0, sheet)
    assert (plan.settings["lower"] <= plan.settings["plan1"]).all()
    stored = json.loads(plan.to_json(tmp_path / "plan.json"))
    assert stored["experiments"][0]["settings"].keys() == {"A(t0)"}
    assert (tmp_path / "plan.json").exists()
    axes = plan.plot()
    assert len(axes) == 3  # A, B and the errors
    assert (axes[-1].get_yscale(), axes[-1].get_ylim()[0]) == ("linear", 0)
    plan.errors["before"] = 200 * plan.errors["after"].max()
    assert plan.plot()[-1].get_yscale() == "log"
    plan.errors["before"] = np.inf
    plan.errors.loc["k1", "before"] = 1e6
    errors = plan.plot()[-1]  # what is so uncertain has no bar that ends at the axis
    assert {t.get_text() for t in errors.texts} == {"∞", "> 1000"}
    assert np.isnan([bar.get_height() for bar in errors.containers[0]]).all()
    text, page = str(plan), plan._repr_html_()
    assert "plan1: measure A, B at" in text
    assert "<li>plan1: measure A, B at" in page
    assert page.count("<table") == 2
    assert "no other allowed choice of samples is better" in text
    with pytest.raises(igpe.errors.ProblemError, match="no experiment 'plan7'"):
        plan.experiment("plan7", sheet)
    with pytest.raises(igpe.errors.DataError, match="'time' has entries that are not numbers"):
        plan.experiment(0, plan.simulated(seed=0).assign(time="0,5"))


def same(a, b):
    """Whether two plans hold the same; tables exactly, NaN like NaN."""
    for one, other in ((a.errors, b.errors), (a.courses, b.courses), (a.settings, b.settings)):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    for one, other in ((a.covariance, b.covariance), (a.covariance_before, b.covariance_before)):
        np.testing.assert_array_equal(one, other)
    assert str(a) == str(b)
    assert a.to_json() == b.to_json()
    assert (a.criterion, a.starts, a.notes) == (b.criterion, b.starts, b.notes)
    return True


@pytest.mark.parametrize(
    "settings",
    [
        {"experiments": 2},
        {"criterion": P.ModifiedE(of=("k1", "k2"))},  # nothing is proven: NaN
        {"existing": False},  # nothing is known before: infinite
    ],
    ids=["several", "unproven", "nothing known"],
)
def test_a_plan_comes_back_from_json(tmp_path, settings):
    plan = planned(**settings)
    text = plan.to_json(tmp_path / "plan.json")
    assert same(plan, P.Plan.from_json(text))
    again = P.Plan.from_json(tmp_path / "plan.json")
    assert same(plan, again)
    data = plan.simulated(0)
    pd.testing.assert_frame_equal(again.simulated(0), data)
    ours, theirs = plan.experiment(0, data), again.experiment(0, data)
    np.testing.assert_array_equal(ours.measurements.value, theirs.measurements.value)
    np.testing.assert_array_equal(ours.measurements.sigma, theirs.measurements.sigma)


def test_profiles_unknown_starts_and_functions_of_time_come_back_from_json():
    def cubic(t):
        return 0.01 * t**3

    starts = {"A": igpe.Unknown(0.5, 2.0), "B": igpe.Unknown(0.0, 1.0, guess=0.2)}
    profiles = {
        "feed": igpe.linear_input([0, 4], [0.1, 0.3]),
        "T": igpe.step_input([0, 4], [340.0, 360.0]),
    }
    plan = planned()
    (one,) = plan.experiments
    other = replace(one, start=starts, inputs={**profiles, "cubic": cubic, "S": 2.0})
    text = replace(plan, experiments=(other,)).to_json()
    (back,) = P.Plan.from_json(text, functions={"cubic": cubic}).experiments
    assert back.start == other.start
    assert (back.inputs["cubic"], back.inputs["S"]) == (cubic, 2.0)
    for name, profile in profiles.items():
        assert back.inputs[name].hold == profile.hold
        assert back.inputs[name].times.tolist() == profile.times.tolist()
        assert back.inputs[name].values.tolist() == profile.values.tolist()
    with pytest.raises(igpe.errors.DataError, match=r"\['cubic'\] are functions of time"):
        P.Plan.from_json(text)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda d: d.update(format=0),
            "stored plan has the format 0; this version of igpe reads format 2",
        ),
        (lambda d: d.pop("courses"), "lacks .'courses'."),
        (lambda d: d.update(criterion="Mine"), "the criterion 'Mine'"),
    ],
    ids=["format", "lacks", "criterion"],
)
def test_what_is_no_stored_plan_is_refused(spoil, said):
    stored = planned().to_dict()
    spoil(stored)
    with pytest.raises(igpe.errors.DataError, match=said):
        P.Plan.from_json(json.dumps(stored))


def test_names_of_existing_experiments_are_not_taken():
    again = planned()
    other = problem(experiments=[again.experiment("plan1", again.simulated(0))])
    assert planned(other).experiments[0].name == "plan2"


WRONG = [
    ({"free": {"X": B(0, 1)}}, "which the model does not have"),
    ({"free": {"k1": B(0, 1)}}, "parameter to be estimated"),
    ({"free": {"A": P.Levels((0.0, 1.0), 0, 1)}}, "cannot have a profile over time"),
    ({"free": {"A": (0, 1)}}, "igpe.planning.Between"),
    ({"free": ["A"]}, "expected a mapping"),
    ({"conditions": {"X": 1.0}}, "which the model does not have"),
    ({"times": [-1.0, 2.0]}, "start"),
    ({"times": ["soon"]}, "finite numbers"),
    ({"measure": {"X": 0.1}}, "not a time-dependent quantity"),
    ({"measure": "A"}, "expected names"),
    ({"measure": {"A": -1.0}}, "a standard deviation above 0"),
    ({"experiments": 0}, "1 or more"),
    ({"like": "second"}, "not the name of an experiment"),
    ({"criterion": P.DOptimal(of="k9")}, "Unknown names"),
    ({"criterion": "D"}, r"criterion is 'D'; .* igpe.planning.DOptimal\(\)"),
    ({"criterion": P.DOptimal}, "or another criterion"),
    ({"conditions": {"A": 1.0}}, r"contain \['A'\], but a quantity"),
    ({"sizes": {"k9": 1.0}}, "`sizes` has .'k9'."),
    ({"sizes": {"k1": -1.0}}, "Give a positive number"),
    ({"samples": pd.DataFrame({"k1": [9.0], "k2": [0.1]})}, "`samples` has k1 = 9, outside"),
    ({"samples": "many"}, "expected a number of draws"),
    ({"samples": pd.DataFrame({"k1": [1.0]})}, "k2"),
    ({"seed": -1}, "seed"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG, ids=[says for _, says in WRONG])
def test_it_is_refused_with_a_helpful_sentence(settings, says):
    with pytest.raises(igpe.errors.ProblemError, match=says):
        planned(**settings)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: B(1, 1), "lower < upper"),
        (lambda: B("a", 1), "lower < upper"),
        (lambda: P.Levels((1.0, 0.0), 0, 1), "increasing order"),
        (lambda: P.Ramps((0.0,), 0, 1), "at least 2"),
        (lambda: P.Ramps((0.0, 1.0), 0, 1, steepest=0.0), "positive number"),
        (lambda: P.Sampling([1.0], at_most=0), "1 or more"),
        (lambda: P.Sampling([1.0], spacing=-1.0), "spacing"),
        (lambda: P.DOptimal(of=3), "names of unknowns"),
        (lambda: igpe.design(problem(), {"k1": 1.0}), r"it is missing for .*k2"),
        (lambda: igpe.design(problem(), TRUTH | {"k3": 1.0}), "'k3'"),
        (lambda: igpe.design("problem", TRUTH), "expected an igpe"),
    ],
)
def test_parts_that_make_no_sense_are_refused(make, says):
    with pytest.raises(igpe.errors.ProblemError, match=says):
        make()


LINE = {"measured": ["y"], "until": 1.0, "start": {"y": "a"}}
PRODUCT = {"measured": ["A"], "until": 5.0, "start": {"A": "A0"}}


def line(a=1e-5, unknowns=("a", "b"), **settings):
    given = P.ProblemWithoutData(kinetics.line, list(unknowns), **LINE)
    return igpe.design(given, {"a": a, "b": 0.7}, **({"measure": {"y": 0.1}} | settings))


@pytest.mark.parametrize("a", [0.0, 1e-9, 1e-5, 1.0])
def test_a_value_near_zero_changes_no_error(a):
    """y = a + b t has closed forms: the covariance does not depend on a at all."""
    times = np.array([0.2, 0.5, 0.9])
    plan = line(a, times=times)
    x = np.column_stack([np.ones(3), times]) / 0.1
    np.testing.assert_allclose(plan.covariance, np.linalg.inv(x.T @ x), rtol=1e-8)
    assert np.isinf(plan.errors["before"]).all()
    assert np.isinf(plan.before)
    assert any("expressed relative to 0.1" in n for n in plan.notes) == (a < 0.1)


def test_errors_are_relative_to_what_the_user_says():
    sizes = {"a": 0.2, "b": 3.0}
    plan = line(times=[0.2, 0.5, 0.9], criterion=P.AOptimal(), sizes=sizes)
    relative = plan.errors["after"].to_numpy() / [0.2, 3.0]
    assert plan.after == pytest.approx(np.sqrt(np.mean(relative**2)))
    assert plan.notes == ()
    given = P.ProblemWithoutData(kinetics.line, ["a", "b", "free_a"], **LINE)
    with pytest.raises(
        igpe.errors.ProblemError, match=r"values of .'free_a'. are 0, .*'free_a': 1.0"
    ):
        igpe.design(given, {"a": 1.0, "b": 0.7, "free_a": 0.0}, times=[1.0], measure={"y": 0.1})


def test_replicates_count_and_optima_have_them():
    once, thrice = line(times=[0.2, 0.9]), line(times=[0.2, 0.9] * 3)
    np.testing.assert_allclose(thrice.covariance, once.covariance / 3, rtol=1e-8)
    plan = line(times=P.Sampling(np.repeat(np.linspace(0, 1, 11), 2), at_most=4))
    (one,) = plan.experiments
    assert one.times.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert plan.efficiency > 0.9999
    again = plan.experiment(0, plan.simulated(3))
    assert len(again.measurements.value) == 4
    given = igpe.Problem(kinetics.line, parameters=["a", "b"], experiments=again)
    assert len(igpe.design(given, plan.errors["value"].to_dict()).experiments[0].times) == 4


@pytest.mark.parametrize("criterion", [P.DOptimal(), P.EOptimal(), P.ModifiedE()])
@pytest.mark.parametrize(
    ("unknowns", "says"),
    [
        (
            ("k", "c", "A0"),
            r"changing 'k' by \+1 and 'c' by -1.6\S* leaves all measurements unchanged",
        ),
        (("k", "rest", "A0"), "no measurement depends on 'rest'"),
    ],
)
def test_what_no_plan_determines_is_named_and_refused(criterion, unknowns, says):
    values = {"k": 0.5, "c": 0.8, "A0": 3.0, "rest": 1.0}
    inputs = {n: v for n, v in values.items() if n not in unknowns} | {"sd": 0.1}
    given = P.ProblemWithoutData(kinetics.product, list(unknowns), **PRODUCT, inputs=inputs)
    values = {n: values[n] for n in unknowns}
    settings = {"times": P.Sampling([0.5, 1, 2, 3, 4], at_most=3), "measure": {"A": 0.02}}
    with pytest.raises(
        igpe.errors.ProblemError, match=f"information matrix of the best plan is singular.*{says}"
    ):
        igpe.design(given, values, criterion=criterion, **settings)
    plan = igpe.design(given, values, criterion=type(criterion)(of=("A0",)), **settings)
    assert np.isfinite(plan.errors.loc["A0", "after"])
    assert np.isinf(plan.errors.loc["k", "after"]) == ("c" in unknowns)
    assert plan.notes[0].startswith("Not estimable: ")


def test_too_few_samples_are_refused():
    with pytest.raises(
        igpe.errors.ProblemError, match="igpe found no plan that determines all unknowns"
    ):
        line(times=P.Sampling([0.5, 0.7, 0.9], at_most=1))


@pytest.mark.parametrize(
    "sigma", [igpe.Noise(relative=0.05), igpe.Noise(0.02, 0.05), igpe.EstimatedSigma("sd")], ids=str
)
def test_error_models_are_carried_to_the_planned_experiment_and_back(sigma):
    """The plan's errors are those that igpe predicts once the experiment is part of the problem."""
    names = ["k", "A0", *(["sd"] if isinstance(sigma, igpe.EstimatedSigma) else [])]
    values = {n: {"k": 0.5, "A0": 3.0, "sd": 0.1}[n] for n in names}
    inputs = {"c": 1.0, "rest": 1.0} | ({} if "sd" in names else {"sd": 0.1})
    t = np.array([0.5, 1.0, 2.0, 3.0, 5.0])
    table = pd.DataFrame({"time": t, "A": 3 * np.exp(-0.5 * t)})
    run = igpe.Experiment(
        table, name="first", start={"A": "A0"}, start_time=0.0, inputs=inputs, sigma=sigma
    )
    given = igpe.Problem(kinetics.product, parameters=names, experiments=run)
    plan = igpe.design(given, values, times=[1.0, 2.0, 4.0], measure=["A"])
    again = P.Plan.from_json(plan.to_json()).experiment(0, plan.simulated(0))
    assert {**again.error_models, **again.estimated_sigma} == (
        {"A": sigma.name} if "sd" in names else {"A": sigma}
    )
    both = igpe.Problem(kinetics.product, parameters=names, experiments=[run, again])
    later = igpe.design(both, values, times=[1.0])
    np.testing.assert_allclose(later.covariance_before, plan.covariance, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"times": [1.0, 7.0]}, "last candidate time is 7, but the experiment ends at until=5"),
        (
            {"values": {"k": 11.0, "A0": 3.0}},
            r"`parameters` has k = 11, outside its bounds \[0, 10\]",
        ),
        ({"free": {"A": B(-1.0, 2.0)}}, r"'A' is planned between -1 and 2, but .* \[0, inf\]"),
        ({"conditions": {"A": -1.0}}, "'A' is planned between -1 and -1"),
    ],
)
def test_what_lies_outside_is_refused(settings, says):
    inputs = {"c": 1.0, "rest": 1.0, "sd": 0.1}
    given = P.ProblemWithoutData(kinetics.product, ["k", "A0"], **PRODUCT, inputs=inputs)
    values = settings.pop("values", {"k": 0.5, "A0": 3.0})
    with pytest.raises(igpe.errors.ProblemError, match=says):
        igpe.design(given, values, **({"times": [1.0, 2.0], "measure": {"A": 0.1}} | settings))


@pytest.mark.parametrize(
    "profile",
    [
        P.Levels((0.0, 3.0), 330, 350),
        P.Levels((-2.0, 0.0), 330, 350),
        P.Ramps((0.0, 3.0, 4.0), 330, 350),
        P.Ramps((-2.0, 0.0, 4.0), 330, 350),
    ],
)
def test_profiles_with_numbers_that_act_outside_are_refused(profile):
    given = P.ProblemWithoutData(kinetics.reactor, ["k"], ["A"], 3.0, start={"A": 1.0, "B": 0.0})
    settings = {"conditions": {"E": 8.0}, "times": [1.0, 3.0], "measure": {"A": 0.1}}
    with pytest.raises(igpe.errors.ProblemError, match="some of its values have no effect"):
        igpe.design(given, {"k": 0.8}, free={"T": profile}, **settings)


def test_deviations_that_follow_no_rule_must_be_said():
    data = first_data().assign(s=[0.1, 0.2, 0.05, 0.3])
    one = igpe.Experiment(data, start={"A": 1.0, "B": 0.0}, sigma={"A": "s", "B": 0.1})
    given = igpe.Problem(kinetics.consecutive, parameters=["k1", "k2"], experiments=one)
    with pytest.raises(igpe.errors.ProblemError, match="give the measurement error"):
        igpe.design(given, TRUTH)


def test_an_experiment_that_cannot_be_integrated_anywhere_is_told():
    given = P.ProblemWithoutData(kinetics.explosion, ["k"], ["A"], 10.0)
    with pytest.raises(igpe.errors.EstimationFailed, match="could be integrated"):
        igpe.design(
            given, {"k": 1.0}, free={"A": B(1.0, 2.0)}, times=[5.0], measure={"A": 0.1}, pool=8
        )
