"""Problems: the names and bounds of unknowns, holding some, other data, units, several runs."""

import copy
import pickle

import consecutive
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import DataError, ProblemError
from igpe.problem.experiment import Experiment, Unknown, read_experiments
from igpe.problem.inputs import linear_input, step_input
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem

TABLE = pd.DataFrame({"time": [0.0, 1.0, 2.0], "A": [1.0, 0.5, np.nan]})


def model(times):
    """A decays by k[1] + k[2]; times in minutes, A in mol, T in kelvin."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, units=pyo.units.mol)
    m.T = pyo.Var(m.t, units=pyo.units.K)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var([1, 2], bounds=(0, 5), units=1 / pyo.units.min)
    m.scale = pyo.Param(mutable=True, initialize=1.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k[1] * m.A[t] - m.k[2] * m.A[t])
    m.warm = pyo.Constraint(m.t, rule=lambda m, t: m.T[t] == 300 * m.scale)
    return m


def run(data=TABLE, **conditions):
    """An experiment that starts at A = 1."""
    return Experiment(data, **{"start": {"A": 1.0}, **conditions})


def test_an_indexed_parameter_stands_for_its_members():
    problem = Problem(model, parameters=["k"], experiments=run())
    assert repr(problem).startswith("Problem(2 unknowns: k[1], k[2];")
    assert repr(problem.fixing({"k[1]": 1.0})).startswith("Problem(1 unknown: k[2];")
    assert problem.parameters == ("k[1]", "k[2]")
    assert (problem.unknowns.lower.tolist(), problem.unknowns.upper.tolist()) == ([0, 0], [5, 5])
    bounds = {"k[2]": (1, 2), "k[1]": (0, 9), "scale": (0.5, None)}
    given = Problem(model, parameters=bounds, experiments=[run()])
    assert given.unknowns.names == ("k[2]", "k[1]", "scale")
    assert given.unknowns.upper.tolist() == [2.0, 9.0, np.inf]
    whole = Problem(model, parameters={"k": (1, 3)}, experiments=run())
    assert whole.unknowns.lower.tolist() == [1.0, 1.0]


def two(sigma=None, **settings):
    """Two experiments with a local scale and unknown starts."""
    runs = [
        run(name="hot", start={"A": Unknown(0, 2)}, sigma=sigma),
        run(start={"A": Unknown(0, 3)}, sigma=sigma),
    ]
    return Problem(model, parameters=["k", "scale"], experiments=runs, **settings)


def test_local_parameters_and_starts_have_the_names_of_their_experiments():
    problem = two(local=["k"])
    expected = ["k[1]@hot", "k[1]@2", "k[2]@hot", "k[2]@2", "scale", "A(t0)@hot", "A(t0)@2"]
    assert list(problem.unknowns.names) == expected
    assert problem.unknowns.upper.tolist()[-2:] == [2.0, 3.0]
    hot, other = problem.experiments
    assert problem.unknown_of("k[1]", hot) == "k[1]@hot"
    assert problem.unknown_of("scale", other) == "scale"
    assert problem.start_unknown("A", other) == "A(t0)@2"
    single = Problem(
        model, parameters=["k"], local=["k"], experiments=run(start={"A": Unknown(0, 1)})
    )
    assert single.unknowns.names == ("k[1]", "k[2]", "A(t0)")
    assert problem.size == 4


def test_units_are_those_of_the_model():
    problem = two(local=["k"])
    units = [problem.unit(n) for n in ("k[1]@hot", "A(t0)@2", "A", "T", "scale", "stranger")]
    assert units == ["1/min", "mol", "mol", "K", "", ""]


def test_fixing_holds_unknowns_and_leaves_the_problem_as_it_was():
    problem = two(sigma=0.1, priors={"scale": NormalPrior(1, 0.1)})
    smaller = problem.fixing({"k[1]": 0.3}).fixing({"scale": 2.0})
    assert dict(smaller.fixed) == {"k[1]": 0.3, "scale": 2.0}
    assert smaller.box.names == ("k[2]", "A(t0)@hot", "A(t0)@2")
    assert problem.box.names == problem.unknowns.names == smaller.unknowns.names
    assert len(problem.fixing(dict.fromkeys(problem.unknowns.names, 1.0)).box) == 0
    with pytest.raises(ProblemError, match="Unknown parameter names"):
        problem.fixing({"k": 1.0})


def test_with_data_keeps_the_conditions_and_what_is_fixed():
    problem = Problem(model, parameters=["k"], experiments=run(sigma=0.1, name="one"))
    other = problem.fixing({"k[1]": 0.3}).with_data(TABLE.assign(A=[3.0, 2.0, 1.0]))
    assert other.experiments[0].measurements.value.tolist() == [3.0, 2.0, 1.0]
    assert (other.experiments[0].name, other.sigma_known, dict(other.fixed)) == (
        "one",
        True,
        {"k[1]": 0.3},
    )
    assert problem.experiments[0].measurements.value.tolist() == [1.0, 0.5]


def test_with_data_for_several_experiments_reads_the_column_experiment():
    problem = two()
    both = pd.concat([TABLE.assign(experiment="hot"), TABLE.assign(experiment="2", A=7.0)])
    found = problem.with_data(both).experiments
    assert [list(e.measurements.value) for e in found] == [[1.0, 0.5], [7.0] * 3]
    with pytest.raises(DataError, match="no experiment '2'"):
        problem.with_data(TABLE.assign(experiment="hot"))


def fed(times):
    """A is fed at `feed`; times in hours."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, units=pyo.units.mol)
    m.dA = dae.DerivativeVar(m.A, units=pyo.units.mol / pyo.units.h)
    m.feed = pyo.Param(m.t, mutable=True, default=0.0)
    m.k = pyo.Var(bounds=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.k * m.A[t])
    return m


MINUTES = pd.DataFrame({"time": [0.0, 60.0, 120.0], "A": 1.0, "feed": [0.0, 6.0, 12.0]})


@pytest.mark.parametrize(
    "feed",
    ["feed", MINUTES["feed"], MINUTES.set_index("time")["feed"], linear_input([0, 2], [0, 12])],
    ids=["column", "rows", "times of the rows", "the model's time"],
)
def test_inputs_over_the_rows_of_the_table_are_in_the_unit_of_their_times(feed):
    data = MINUTES if isinstance(feed, str) else MINUTES.drop(columns="feed")
    given = run(data, inputs={"feed": feed}, units={"time": "min"})
    problem = Problem(fed, parameters=["k"], experiments=given)
    found = igpe.simulate(problem, {"k": 0.0}, [2.0])
    assert found["A"].to_numpy() == pytest.approx([1.0 + 12.0])  # of 6 t over 2 hours
    again = problem.with_data(MINUTES[["time", "A"]])
    assert igpe.simulate(again, {"k": 0.0}, [2.0])["A"].to_numpy() == pytest.approx([13.0])


def test_the_unit_of_an_input_is_refused_and_told():
    given = run(MINUTES, inputs=["feed"], units={"time": "min", "feed": "mol/min"})
    with pytest.raises(
        DataError, match=r"input 'feed', but igpe converts only .* leave 'feed' out"
    ):
        Problem(fed, parameters=["k"], experiments=given)


def test_other_data_bring_the_columns_that_are_inputs():
    given = run(MINUTES, inputs=["feed"], units={"time": "min"})
    problem = Problem(fed, parameters=["k"], experiments=given)
    for factor in (2.0, 3.0):  # other data again and again
        problem = problem.with_data(MINUTES.assign(feed=factor * MINUTES["feed"]))
        found = igpe.simulate(problem, {"k": 0.0}, [2.0])
        assert found["A"].to_numpy() == pytest.approx([1.0 + 12.0 * factor])


def test_data_are_converted_to_the_models_units():
    data = TABLE.assign(A=[1000.0, 500.0, 250.0], T=[20.0, 25.0, 30.0])
    given = run(data, units={"A": "mmol", "T": "degC"}, sigma={"A": 20.0, "T": 0.5})
    problem = Problem(model, parameters=["k"], experiments=given)
    _, value, sigma = problem.experiments[0].measurements.of("A")
    assert value == pytest.approx([1.0, 0.5, 0.25])
    assert sigma == pytest.approx([0.02] * 3)
    _, value, sigma = problem.experiments[0].measurements.of("T")
    assert value == pytest.approx([293.15, 298.15, 303.15])
    assert sigma == pytest.approx([0.5] * 3)
    for again in (problem.with_data(data), pickled(problem)):  # not converted twice
        assert again.experiments[0].measurements.of("A")[1] == pytest.approx([1.0, 0.5, 0.25])


def test_read_experiments_gives_each_its_own_conditions():
    table = pd.concat([
        TABLE.assign(experiment="a", B=np.nan),
        TABLE.assign(experiment="b", B=[1.0, 2.0, 3.0]),
    ])
    starts = {"a": {"A": 1.0}, "b": {"A": 2.0}}
    one, other = read_experiments(table, start=starts, sigma={"A": 0.1, "B": 0.2}, start_time=-1.0)
    assert (one.name, other.name) == ("a", "b")
    assert (one.measured, other.measured) == (("A",), ("A", "B"))
    assert (one.start["A"], other.start["A"]) == (1.0, 2.0)
    assert one.start_time == other.start_time == -1.0
    assert other.measurements.of("B")[2].tolist() == [0.2] * 3
    units = {"A": "mmol", "B": "K"}
    one, other = read_experiments(table, only=["A", "B"], units=units)
    assert (one.measured, other.measured) == (("A",), ("A", "B"))
    assert (dict(one.units), dict(other.units)) == ({"A": "mmol"}, units)


@pytest.mark.parametrize("kind", [int, float, str])
@pytest.mark.parametrize("key", [int, float, str])
def test_numbers_of_experiments_are_names_however_they_are_written(kind, key):
    table = pd.concat([TABLE.assign(experiment=kind(n)) for n in (1, 2)])
    dose = [igpe.Event(at=1.5, add={"A": 1.0})]
    one, other = read_experiments(
        table, start={key(n): {"A": n} for n in (1, 2)}, events={key(1): dose, key(2): []}
    )
    assert (one.name, other.name) == ("1", "2")
    assert (one.start["A"], other.start["A"]) == (1.0, 2.0)
    assert (len(one.events), len(other.events)) == (1, 0)


def test_a_state_may_have_the_name_of_the_only_experiment():
    (one,) = read_experiments(TABLE.assign(experiment="A"), start={"A": 1.0})
    assert dict(one.start) == {"A": 1.0}


def test_replicates_are_kept_and_shown_as_their_mean():
    data = pd.DataFrame({"time": [0.0, 1.0, 1.0], "A": [1.0, 2.0, 4.0]})
    measured = run(data, replicates=True, sigma={"A": [0.1, 0.2, 0.3]})
    times, values, sigma = measured.measurements.of("A")
    assert (times.tolist(), values.tolist()) == ([0.0, 1.0, 1.0], [1.0, 2.0, 4.0])
    assert sigma.tolist() == [0.1, 0.2, 0.3]
    assert measured.times.tolist() == [0.0, 1.0]
    assert measured.table()["A"].tolist() == [1.0, 3.0]


def test_the_start_time_where_none_is_given():
    for times, start in (([0, 1], 0), ([1, 2], 0), ([-2, 1], -2), ([0.5, 3], 0)):
        assert run(pd.DataFrame({"time": times, "A": [1.0, 2.0]})).start_time == start


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet"])
def test_tables_come_back_from_files(kind, tmp_path):
    path = tmp_path / f"table.{kind}"
    writers = {"csv": TABLE.to_csv, "xlsx": TABLE.to_excel, "parquet": TABLE.to_parquet}
    writers[kind](path, index=False)
    for given in (path, str(path)):
        assert run(given).measurements.value.tolist() == [1.0, 0.5]


def test_the_values_of_a_table_of_inputs():
    held, ramp = step_input([0.0, 1.0], [5.0, 7.0]), pd.Series([0.0, 2.0], index=[0.0, 1.0])
    assert [held.at(t) for t in (-1.0, 0.5, 1.0, 9.0)] == [5.0, 5.0, 7.0, 7.0]
    assert held.at(1.0, before=True) == 5.0
    line = run(inputs={"u": ramp}).inputs["u"]
    assert [line.at(t) for t in (-1.0, 0.25, 1.0, 9.0)] == [0.0, 0.5, 2.0, 2.0]
    assert line.at(1.0, before=True) == pytest.approx(2.0)


ROWS = pd.DataFrame({"time": [0.0, 0.5, 2.0], "A": [1.0, 0.5, 0.2], "u": [3.0, 4.0, 5.0]})
LATER = pd.concat([ROWS.assign(u=9.0), ROWS], ignore_index=True).iloc[3:]
SERIES = {
    "column of the table": ROWS["u"],
    "the same under another name": ROWS["u"].rename("T"),
    "time as its index": ROWS.set_index("time")["u"],
    "frame with a column time": ROWS[["time", "u"]],
    "column of a longer table": pd.concat([ROWS, ROWS])["u"].reset_index(drop=True),
    "rows that were selected": LATER["u"],
}


@pytest.mark.parametrize("name", SERIES)
def test_an_input_from_pandas_is_over_its_own_times(name):
    rows = LATER if name == "rows that were selected" else ROWS
    given = run(rows, only=["A"], inputs={"u": SERIES[name]}).inputs["u"]
    assert (list(given.times), list(given.values)) == ([0.0, 0.5, 2.0], [3.0, 4.0, 5.0])


def test_times_of_an_input_may_look_like_the_rows_of_the_table():
    """Measurements at 0, 0.5, 2 have the rows 0, 1, 2; an input at the times 0, 1, 2 has not."""
    hourly = pd.Series([3.0, 4.0, 5.0], index=[0.0, 1.0, 2.0], name="u")
    given = run(ROWS, only=["A"], inputs={"u": hourly}).inputs["u"]
    assert list(given.times) == [0.0, 1.0, 2.0]
    with pytest.raises(DataError, match=r"'u' is 0, 1, 2, .*times are unknown"):
        run(ROWS, only=["A"], inputs={"u": hourly.set_axis([0, 1, 2])})


def test_a_fixed_parameter_is_refused_and_fixed_members_stay_fixed():
    def fixed(times):
        m = model(times)
        m.k[2].fix(0.3)
        return m

    with pytest.raises(ProblemError, match=r"'k\[2\]' is fixed at 0\.3"):
        Problem(fixed, parameters=["k[1]", "k[2]"], experiments=run(TABLE))
    assert Problem(fixed, parameters=["k"], experiments=run(TABLE)).parameters == ("k[1]",)


def test_a_discretised_model_is_warned_about():
    def discretised(times):
        m = model(times)
        pyo.TransformationFactory("dae.finite_difference").apply_to(m, wrt=m.t, nfe=8)
        return m

    problem = Problem(discretised, parameters=["k"], experiments=run())
    structure = igpe.check(problem, identifiability=False)
    assert any("The builder discretises time ('t')" in line for line in structure.warnings)


def pickled(thing):
    """The thing after its way through pickle."""
    return pickle.loads(pickle.dumps(thing))


COPIES = {"pickle": pickled, "deepcopy": copy.deepcopy, "copy": copy.copy}


@pytest.mark.parametrize("way", COPIES)
def test_an_experiment_survives_pickle_and_copy(way):
    given = {"start": {"A": Unknown(0, 2)}, "inputs": {"u": step_input([0.0, 1.0], [5.0, 7.0])}}
    one = run(name="hot", sigma={"A": 0.1}, units={"A": "mmol"}, **given)
    other = COPIES[way](one)
    assert repr(other) == repr(one)
    assert (dict(other.start), dict(other.units)) == (dict(one.start), dict(one.units))
    assert other.inputs["u"].at(1.0) == 7.0
    assert other.measurements.of("A")[2].tolist() == [0.1, 0.1]
    assert other.with_data(TABLE).start == one.start
    with pytest.raises(TypeError):
        other.start["A"] = 3.0


@pytest.mark.parametrize("way", COPIES)
def test_a_problem_survives_pickle_and_copy(way):
    priors = {"scale": NormalPrior(1, 0.1)}
    one = two(sigma=0.1, priors=priors, local=["k"]).fixing({"scale": 2.0})
    other = COPIES[way](one)
    assert repr(other) == repr(one)
    assert (dict(other.fixed), dict(other.priors)) == ({"scale": 2.0}, priors)
    assert other.box.names == one.box.names
    assert other.local == one.local
    assert other.instance.model is not one.instance.model


class Study:
    """An object that keeps the problem whose model is one of its methods."""

    def __init__(self):
        self.scale = 2.0
        self.problem = Problem(self.scaled, parameters=["k"], experiments=run())

    def scaled(self, times):
        m = model(times)
        m.scale = self.scale
        return m


@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_a_problem_whose_model_belongs_to_what_keeps_it_survives_copies(way):
    other = COPIES[way](Study().problem)
    study = other.given["model"].__self__
    assert study.problem is other
    assert pyo.value(other.instance.model.scale) == study.scale == 2.0


def test_the_copy_of_a_problem_has_the_same_estimates():
    one = consecutive.problem()
    assert igpe.estimate(pickled(one)).parameters == igpe.estimate(one).parameters


BUILDERS = {
    "by name": lambda times, scale=1.0, experiment=None: built(times, experiment),
    "by keyword": lambda times, *, experiment=None: built(times, experiment),
    "by place": lambda times, conditions: built(times, experiment=conditions),
    "by a place that may be empty": lambda times, run=None: built(times, run),
}


def built(times, experiment):
    """`model`, if it is told the experiment."""
    assert experiment.name == "hot"
    return model(times)


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_a_builder_is_given_the_experiment(builder):
    problem = Problem(builder, parameters=["k"], experiments=run(name="hot"))
    assert problem.parameters == ("k[1]", "k[2]")


def test_a_default_of_the_builder_stays():
    def scaled(times, scale=2.0):
        assert scale == 2.0
        return model(times)

    assert Problem(scaled, parameters=["k"], experiments=run()).size == 2


def differing(times, experiment):
    """In experiment `other` k has narrower bounds, an inequality, and something else to measure."""
    m = model(times)
    if experiment.name == "other":
        m.k[1].setub(3)
        m.k[2].setlb(1)
        m.Z = pyo.Expression(m.t, rule=lambda m, t: 2 * m.A[t])
        m.low = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0)
    return m


def differing_runs(**settings):
    """A problem whose experiments have different models."""
    runs = [run(name="one"), run(TABLE.rename(columns={"A": "Z"}), name="other")]
    return Problem(differing, parameters=["k"], experiments=runs, **settings)


def test_models_may_differ_between_experiments():
    problem = differing_runs()
    assert problem.unknowns.lower.tolist() == [0.0, 1.0]
    assert problem.unknowns.upper.tolist() == [3.0, 5.0]
    assert problem.inequalities == {"low"}
    assert problem.unit("Z") == "mol"
    local = differing_runs(local=["k"])
    bounds = zip(local.unknowns.lower.tolist(), local.unknowns.upper.tolist(), strict=True)
    assert dict(zip(local.unknowns.names, bounds, strict=True)) == {
        "k[1]@one": (0.0, 5.0),
        "k[1]@other": (0.0, 3.0),
        "k[2]@one": (0.0, 5.0),
        "k[2]@other": (1.0, 5.0),
    }


def test_units_that_do_not_fit_are_no_unit_at_the_end_of_an_estimation():
    def warm(times):
        m = model(times)
        m.y = pyo.Expression(m.t, rule=lambda m, t: m.A[t] * pyo.exp(m.T[t] / 300))
        return m

    times = np.linspace(0.0, 2.0, 9)
    data = pd.DataFrame({"time": times, "y": np.e * np.exp(-0.8 * times)})
    bounds = {"k[1]": (0, 5)}

    def fixed(times):
        m = warm(times)
        m.k[2].fix(0.3)
        return m

    problem = Problem(fixed, parameters=bounds, experiments=run(data))
    assert problem.unit("y") == ""
    result = igpe.estimate(problem)
    assert result.parameters["k[1]"] == pytest.approx(0.5, rel=1e-3)
    assert set(result.points["unit"]) == {""}


@pytest.mark.parametrize("inputs", [["T"], {"T": "T"}, {"T": "column"}], ids=str)
def test_a_column_may_be_an_input(inputs):
    """It is not measured; where it does not change it is a number."""
    given = inputs
    table = pd.DataFrame({"time": [0.0, 1, 2], "A": [1.0, 0.5, 0.2], "T": [300.0, 310, 320]})
    if inputs == {"T": "column"}:
        given = {"T": table["T"]}
    run = Experiment(table, inputs=given)
    assert run.measured == ("A",)
    assert list(run.inputs["T"].values) == [300, 310, 320]
    assert Experiment(table.assign(T=300.0), inputs=["T"]).inputs["T"] == 300.0
    with pytest.raises(DataError, match="Did you mean 'T'"):
        Experiment(table, inputs={"T": "t"})
