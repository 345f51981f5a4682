"""What PEtab and SBML say, against solutions in closed form; and what is refused, by its name."""

import pickle
import warnings

import libsbml
import numpy as np
import pandas as pd
import pytest
import small
from petab_suite import SUITES
from scipy.stats import laplace, lognorm, norm
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.equations.compiled import compiled
from igpe.formats.petab import read
from igpe.formats.petab.formulas import quiet
from igpe.problem.tables import checksum

VALUES = {"k": 0.7, "A0": 2.0, "sd": 0.2}


def likelihood(table, values):
    """-log L of the decay's measurements, by SciPy."""
    a, b = small.truth(table["time"], values["k"], values["A0"])
    of_a = (table["observableId"] == "oA").to_numpy()
    sigma = np.where(of_a, values["sd"], 0.1)
    return -norm.logpdf(table["measurement"], np.where(of_a, a, b), sigma).sum()


def test_amounts_and_concentrations_the_likelihood_and_a_pickle(tmp_path):
    problem = pickle.loads(pickle.dumps(igpe.petab.read_petab(small.write(tmp_path))))
    told = igpe.simulate(problem, VALUES, [0.0, 1.0, 3.0])
    a, b = small.truth([0.0, 1.0, 3.0], 0.7, 2.0)
    assert told["A"].to_numpy() == pytest.approx(a, rel=1e-6)
    assert told["B"].to_numpy() == pytest.approx(b, rel=1e-6, abs=1e-9)
    assert problem.box.logarithmic == {"k", "sd"}
    assert [e.source for e in problem.experiments] == [checksum(tmp_path / "measurements.tsv")]
    expected = likelihood(small.measurements(), VALUES)
    assert igpe.petab.petab_objective(problem, VALUES) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("scale", "base"), [("log10", np.log(10.0)), ("log", 1.0)])
def test_logarithms_are_compared_and_counted(tmp_path, scale, base):
    table = small.measurements(times=(0.5, 1.0, 2.0))
    observables = small.OBSERVABLES.assign(observableTransformation=scale)
    yaml = small.write(tmp_path, measurements=table, observables=observables)
    problem = igpe.petab.read_petab(yaml)
    assert problem.experiments[0].measured == (f"{scale}_oA", f"{scale}_oB")
    a, b = small.truth(table["time"], 0.7, 2.0)
    of_a = table["observableId"] == "oA"
    y, h = table["measurement"], np.where(of_a, a, b)
    z = np.log(y / h) / base / np.where(of_a, 0.2, 0.1)
    expected = -norm.logpdf(z).sum() + np.log(np.where(of_a, 0.2, 0.1) * y * base).sum()
    assert igpe.petab.petab_objective(problem, VALUES) == pytest.approx(expected, rel=1e-8)


def test_one_measurement_among_many_of_its_kind_has_no_logarithm(tmp_path):
    table = small.measurements(times=(0.5, 1.0, 2.0, 3.0, 4.0))
    table.loc[3, "measurement"] = -1.0
    observables = small.OBSERVABLES.assign(observableTransformation="log10")
    small.refused(
        tmp_path, r"must be positive, but -1.0 <= 0", measurements=table, observables=observables
    )


def test_models_of_one_kind_are_built_at_few_times(tmp_path):
    times = np.linspace(0.0, 4.0, 60)
    table = small.measurements(times=times)
    table = pd.concat([table, table.assign(simulationConditionId="c2")])
    conditions = pd.DataFrame({"conditionId": ["c1", "c2"]})
    yaml = small.write(tmp_path, measurements=table, conditions=conditions)
    problem = igpe.petab.read_petab(yaml)
    first, other = ([*map(float, i.time)] for i in problem.instances)
    assert set(first) < set(times)
    assert (first[0], first[-1]) == (0.0, 4.0)
    assert other == [0.0, 4.0]
    expected = likelihood(table, VALUES)
    assert igpe.petab.petab_objective(problem, VALUES) == pytest.approx(expected, rel=1e-8)


def test_what_rows_differ_in_are_columns_of_their_own(tmp_path):
    observables = small.OBSERVABLES.assign(observableFormula=["observableParameter1_oA * A", "B"])
    table = small.measurements().assign(observableParameters="")
    table.loc[table["observableId"] == "oA", "observableParameters"] = ["1", "2", "1", "2", "1"]
    problem = igpe.petab.read_petab(
        small.write(tmp_path, observables=observables, measurements=table)
    )
    assert problem.experiments[0].measured == ("oA", "oA__2", "oB")
    told = igpe.simulate(problem, VALUES, [1.0])
    assert told["oA__2"][0] == pytest.approx(2 * told["oA"][0])


def test_conditions_come_before_parameters_and_the_model(tmp_path):
    conditions = pd.DataFrame({"conditionId": ["c1", "c2"], "A0": ["own", 5.0], "B": [np.nan, 0.5]})
    parameters = small.PARAMETERS.replace({"parameterId": {"A0": "own"}})
    both = [small.measurements(), small.measurements().assign(simulationConditionId="c2")]
    tables = {"conditions": conditions, "parameters": parameters, "measurements": pd.concat(both)}
    problem = igpe.petab.read_petab(small.write(tmp_path, **tables))
    told = igpe.simulate(problem, {"k": 0.7, "own": 2.0, "sd": 0.2}, [0.0]).set_index("experiment")
    assert told["A"].to_dict() == {"c1": 2.0, "c2": 5.0}
    assert told["B"].to_dict() == {"c1": 0.0, "c2": 0.5}


def test_conditions_that_differ_in_numbers_share_their_equations(tmp_path):
    """A drug hastens the decay, more so above a threshold; 0 and 1 are among its doses."""
    document = small.decay()
    small.parameter(document.getModel(), "drug", 9.0)
    small.law(document.getModel(), "V * k * (1 + drug + piecewise(1, drug > 2, 0)) * A")
    factors = {0.0: 1.0, 1.0: 2.0, 3.0: 5.0, 4.0: 6.0}
    names = [f"c{i}" for i in range(len(factors))]
    conditions = pd.DataFrame({"conditionId": names, "drug": list(factors)})
    tables = [small.measurements().assign(simulationConditionId=n) for n in names]
    problem = igpe.petab.read_petab(
        small.write(tmp_path, document, conditions=conditions, measurements=pd.concat(tables))
    )
    assert [dict(e.inputs) for e in problem.experiments] == [{"drug": v} for v in factors]
    residuals = [system.residual for system in compiled(problem).systems]
    assert residuals[0] is residuals[1]
    assert residuals[2] is residuals[3]
    expected = sum(
        likelihood(table, {**VALUES, "k": VALUES["k"] * factor})
        for table, factor in zip(tables, factors.values(), strict=True)
    )
    assert igpe.petab.petab_objective(problem, VALUES) == pytest.approx(expected, rel=1e-8)


def test_rules_functions_and_local_parameters(tmp_path):
    document = small.decay()
    model = document.getModel()
    f = model.createFunctionDefinition()
    f.setId("scaled")
    f.setMath(libsbml.parseL3Formula("lambda(a, b, a * b)"))
    rules = (("total", 0.0, model.createAssignmentRule, "A + B / V + half"),)
    rules += (("w", 1.0, model.createRateRule, "-2 * w"),)
    for name, value, create, formula in rules:
        small.parameter(model, name, value, constant=False)
        rule = create()
        rule.setVariable(name)
        rule.setMath(libsbml.parseL3Formula(formula))
    small.law(model, "V * scaled(slow, A) * k")
    own = model.getReaction(0).getKineticLaw().createLocalParameter()
    own.setId("slow")
    own.setValue(0.5)
    observables = small.OBSERVABLES.assign(observableFormula=["total", "w"])
    problem = igpe.petab.read_petab(small.write(tmp_path, document, observables=observables))
    told = igpe.simulate(problem, VALUES, [1.0, 2.0])
    assert told["A"].to_numpy() == pytest.approx(small.truth([1.0, 2.0], 0.35, 2.0)[0], rel=1e-6)
    assert told["oA"].to_numpy() == pytest.approx([3.0, 3.0], rel=1e-6)  # half is A0 / 2
    assert told["oB"].to_numpy() == pytest.approx(np.exp([-2.0, -4.0]), rel=1e-6)


@pytest.mark.parametrize(
    "condition", ["time <= 1", "1 > time", "!(time >= 1)", "time < 1 && k > 0"]
)
def test_a_jump_in_time_is_an_input(tmp_path, condition):
    document = small.decay()
    small.law(document.getModel(), f"V * piecewise(k, {condition}, 0) * A")
    told = igpe.simulate(
        igpe.petab.read_petab(small.write(tmp_path, document)), VALUES, [0.5, 1.0, 4.0]
    )
    expected = 2.0 * np.exp(-0.7 * np.array([0.5, 1.0, 1.0]))
    assert told["A"].to_numpy() == pytest.approx(expected, rel=1e-6)


def test_a_condition_that_is_chosen_by_another(tmp_path):
    """A decays down to 0.9, waits, and goes on from 8."""
    document = small.decay()
    small.law(document.getModel(), "V * piecewise(k, !(A < 0.9) || time > 8, 0) * A")
    problem = igpe.petab.read_petab(small.write(tmp_path, document))
    told = igpe.simulate(problem, VALUES, [0.5, 4.0, 10.0])
    expected = [2.0 * np.exp(-0.35), 0.9, 0.9 * np.exp(-1.4)]
    assert told["A"].to_numpy() == pytest.approx(expected, rel=1e-6)


def test_normal_priors_count(tmp_path):
    parameters = small.PARAMETERS.assign(
        objectivePriorType=["", "normal", ""], objectivePriorParameters=["", "2.5;0.5", ""]
    )
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    more = igpe.petab.petab_objective(problem, priors=True) - igpe.petab.petab_objective(problem)
    assert more == pytest.approx(-norm.logpdf(3.0, 2.5, 0.5), rel=1e-6)


def event(model, trigger="time > 1", sets=(), delay=None, *, persistent=True, initial=True):
    e = model.createEvent()
    e.setId("dose")
    e.setUseValuesFromTriggerTime(True)
    when = e.createTrigger()
    when.setMath(libsbml.parseL3Formula(trigger))
    when.setPersistent(persistent)
    when.setInitialValue(initial)
    for name, formula in dict(sets).items():
        one = e.createEventAssignment()
        one.setVariable(name)
        one.setMath(libsbml.parseL3Formula(formula))
    if delay:
        e.createDelay().setMath(libsbml.parseL3Formula(delay))


def algebraic(model, *formulas):
    small.parameter(model, "w", 1.0, constant=False)
    for formula in formulas:
        model.createAlgebraicRule().setMath(libsbml.parseL3Formula(formula))


def simulated(folder, document, times):
    problem = igpe.petab.read_petab(small.write(folder, document))
    return igpe.simulate(problem, VALUES, times)


def test_an_event_that_sets_nothing_is_nothing(tmp_path):
    document = small.decay()
    event(document.getModel())
    told = simulated(tmp_path, document, [1.0, 3.0])
    assert told["A"].to_numpy() == pytest.approx(small.truth([1.0, 3.0], 0.7, 2.0)[0], rel=1e-6)


@pytest.mark.parametrize(
    ("trigger", "delay", "at"),
    [("time > 1", None, 1.0), ("time > 1", "0.5", 1.5), ("A < 1", "k", np.log(2) / 0.7 + 0.7)],
)
def test_an_event(tmp_path, trigger, delay, at):
    document = small.decay()
    event(document.getModel(), trigger, {"A": "2 * A0"}, delay)
    times = np.array([0.5, 1.0, 2.4])
    expected = np.where(times <= at, 2 * np.exp(-0.7 * times), 4 * np.exp(-0.7 * (times - at)))
    told = simulated(tmp_path, document, times)
    assert told["A"].to_numpy() == pytest.approx(expected, rel=1e-6)


FORMULAS = {  # condition -> where it is true of the times 0, 3, 4
    "time < 3": (1, 0, 0), "time <= 3": (1, 1, 0), "time > 3": (0, 0, 1), "time >= 3": (0, 1, 1),
    "time < 0": (0, 0, 0), "time <= 0": (1, 0, 0), "time > 0": (0, 1, 1), "time >= 0": (1, 1, 1),
}  # fmt: skip
TRIGGERS = {  # trigger, initial value -> how often its event has happened at these times
    ("time > 0", True): (0, 1, 1), ("time >= 0", True): (0, 0, 0),
    ("time > 0", False): (0, 1, 1), ("time >= 0", False): (1, 1, 1),
    ("B > 0", True): (0, 1, 1), ("B >= 0", True): (0, 0, 0),
    ("B <= 0", False): (1, 1, 1), ("B < 0", False): (0, 0, 0),
    ("B >= 0 && A > 1", True): (0, 0, 0), ("B > 0 && time <= 9", True): (0, 1, 1),
    ("A > 1", False): (1, 1, 1),
    ("time >= 0 && A > 1", True): (0, 0, 0), ("time > 0 && A > 1", False): (0, 1, 1),
}  # fmt: skip
AT_3 = {("time > 3", True): (0, 0, 1), ("time >= 3", True): (0, 1, 1)}


@pytest.mark.parametrize("triggers", [TRIGGERS, AT_3])
def test_measurements_and_triggers_exactly_at_a_jump(tmp_path, triggers):
    """As libRoadRunner 2.10 computes it; A is 3 at the start and B grows from 0."""
    document = small.decay()
    model, expected = document.getModel(), {}
    for condition, true in FORMULAS.items():
        expected[f"piecewise(1, {condition}, 0) * A0"] = 3.0 * np.array(true)
    for k, ((trigger, initial), count) in enumerate(triggers.items()):
        small.parameter(model, f"n{k}", 0.0, constant=False)
        event(model, trigger, {f"n{k}": f"n{k} + 1"}, initial=initial)
        model.getEvent(k).setId(f"event{k}")
        expected[f"n{k}"] = np.array(count)
    names = [f"o{k}" for k in range(len(expected))]
    observables = {"observableId": names, "observableFormula": list(expected), "noiseFormula": 1}
    rows = [(n, t, 0.0, "c1") for n in names for t in (0.0, 3.0, 4.0)]
    columns = ["observableId", "time", "measurement", "simulationConditionId"]
    tables = {"observables": pd.DataFrame(observables)}
    tables["measurements"] = pd.DataFrame(rows, columns=columns)
    tables["parameters"] = small.PARAMETERS[:2]
    problem = igpe.petab.read_petab(small.write(tmp_path, document, **tables))
    found = igpe.petab.petab_simulations(problem)["simulation"].to_numpy().reshape(-1, 3)
    assert found == pytest.approx(np.array(list(expected.values())), abs=1e-9)


def test_an_algebraic_rule_is_solved(tmp_path):
    document = small.decay()
    algebraic(document.getModel(), "2 * w - A")
    small.law(document.getModel(), "V * k * 2 * w")
    told = simulated(tmp_path, document, [1.0, 3.0])
    assert told["A"].to_numpy() == pytest.approx(small.truth([1.0, 3.0], 0.7, 2.0)[0], rel=1e-6)


def test_a_compartment_that_grows_dilutes(tmp_path):
    document = small.decay()
    model = document.getModel()
    model.getCompartment("V").setConstant(False)
    rule = model.createRateRule()
    rule.setVariable("V")
    rule.setMath(libsbml.parseL3Formula("0.1 * V"))
    told = simulated(tmp_path, document, [1.0, 3.0])
    times = np.array([1.0, 3.0])
    assert told["A"].to_numpy() == pytest.approx(2.0 * np.exp(-0.8 * times), rel=1e-6)


def test_measured_before_and_after_rest(tmp_path):
    """Rest is where all of A has become B, of which the main condition sets A alone."""
    conditions = pd.DataFrame({"conditionId": ["c1", "c0"], "A": [1.0, np.nan]})
    table = small.measurements().assign(preequilibrationConditionId="c0")
    problem = igpe.petab.read_petab(
        small.write(tmp_path, conditions=conditions, measurements=table)
    )
    told = igpe.simulate(problem, VALUES, [0.0, 1.0])
    assert told["A"].to_numpy() == pytest.approx(np.exp([0.0, -0.7]), rel=1e-6)
    grown = 2 * 2.0 + 2 * (1 - np.exp([0.0, -0.7]))
    assert told["B"].to_numpy() == pytest.approx(grown, rel=1e-6)


def test_conditions_on_the_time_that_are_over_at_the_start_make_no_input(tmp_path):
    """The dose counts from 0 on, before and after the start: nothing has to count the periods."""
    document = small.decay()
    small.parameter(document.getModel(), "dose", 9.0)
    small.law(document.getModel(), "V * k * dose * piecewise(0, time < 0, 1) * A")
    conditions = pd.DataFrame({"conditionId": ["c1", "c0"], "A": [1.0, np.nan], "dose": [2.0, 1.0]})
    table = small.measurements().assign(preequilibrationConditionId="c0")
    problem = igpe.petab.read_petab(
        small.write(tmp_path, document, conditions=conditions, measurements=table)
    )
    (run,) = problem.experiments
    assert (dict(run.inputs), run.steady) == ({"dose": 2.0}, {"dose": 1.0})
    told = igpe.simulate(problem, VALUES, [0.0, 1.0])
    assert told["A"].to_numpy() == pytest.approx(np.exp([0.0, -1.4]), rel=1e-6)


@pytest.mark.parametrize("name", ["period", "switch_1"])
def test_estimated_parameters_may_be_called_like_inputs_of_igpe(tmp_path, name):
    document = small.decay()
    small.parameter(document.getModel(), "n", 9.0)
    small.law(document.getModel(), "V * k * A^n * piecewise(0.5, time < 1, 1)")
    conditions = pd.DataFrame({"conditionId": ["c1", "c0"], "A": [1.0, np.nan], "n": [2, 1]})
    renamed = {
        "parameters": small.PARAMETERS.replace("sd", name),
        "observables": small.OBSERVABLES.replace("sd", name),
        "measurements": small.measurements().assign(preequilibrationConditionId="c0"),
    }
    problem = igpe.petab.read_petab(
        small.write(tmp_path, document, conditions=conditions, **renamed)
    )
    told = igpe.simulate(problem, {"k": 0.7, "A0": 2.0, name: 0.1}, [0.0, 1.0])
    assert told["A"].to_numpy() == pytest.approx([1.0, 1 / 1.35], rel=1e-6)


def test_what_is_measured_at_rest_is_an_experiment_of_its_own(tmp_path):
    table = small.measurements()
    table.loc[table.index[-1], "time"] = np.inf  # of B
    problem = igpe.petab.read_petab(small.write(tmp_path, measurements=table))
    rested = igpe.petab.petab_simulations(problem, VALUES)["simulation"].iloc[-1]
    assert [e.name for e in problem.experiments] == ["c1", "c1_steady"]
    assert rested == pytest.approx(4.0, rel=1e-6)


def test_simulations_are_written_in_the_order_of_the_measurements(tmp_path):
    path = small.write(tmp_path)
    problem = igpe.petab.read_petab(path)
    simulated = igpe.petab.petab_simulations(problem, VALUES)
    igpe.petab.write_petab_simulations(simulated, path, tmp_path / "simulations.tsv")
    table = pd.read_csv(tmp_path / "simulations.tsv", sep="\t")
    a, b = small.truth(table["time"], 0.7, 2.0)
    of_a = table["observableId"] == "oA"
    assert table["simulation"].to_numpy() == pytest.approx(np.where(of_a, a, b), rel=1e-6, abs=1e-9)
    assert "measurement" not in table


@pytest.mark.slow
@pytest.mark.parametrize("case", ["v1.0.0/sbml/0009", "v2.0.0/sbml/0023", "v2.0.0/sbml/0003"])
def test_simulations_have_the_columns_of_the_measurement_table(case):
    """Conditions before and after, times that are infinite, placeholders."""
    folder = SUITES / case
    problem = igpe.petab.read_petab(folder / f"_{folder.name}.yaml")
    simulated = igpe.petab.petab_simulations(problem)
    table = pd.read_csv(folder / "_measurements.tsv", sep="\t").dropna(axis=1, how="all")
    names = [n for n in table if n != "measurement"]
    assert {*names, "simulation"} == set(simulated)
    ids = [n for n in names if not n.endswith("Parameters")]
    pd.testing.assert_frame_equal(simulated[ids], table[ids], check_dtype=False)


def test_petab_plots_simulations():
    visualize = pytest.importorskip("petab.v1.visualize")
    petab = pytest.importorskip("petab.v1")
    path = SUITES / "v1.0.0" / "sbml" / "0009" / "_0009.yaml"
    simulated = igpe.petab.petab_simulations(igpe.petab.read_petab(path))
    with quiet():
        given = petab.Problem.from_yaml(str(path))
    with warnings.catch_warnings(action="ignore"):
        axes = visualize.plot_without_vis_spec(
            given.condition_df, measurements_df=given.measurement_df, simulations_df=simulated
        )
    lines = [line.get_ydata() for line in axes["plot1"].get_lines()]
    expected = simulated["simulation"].to_numpy()
    assert any(len(y) == len(expected) and np.allclose(y, expected) for y in lines)


@pytest.mark.parametrize(
    ("kind", "numbers", "bounds"),
    [
        ("uniform", "0.5;2000", (0.5, "upper")),
        ("parameterScaleUniform", "-1;0", (0.1, 1.0)),
        ("parameterScaleUniform", "", ("lower", "upper")),
    ],
)
def test_uniform_priors_narrow_the_bounds(tmp_path, kind, numbers, bounds):
    given = small.PARAMETERS.iloc[0]
    parameters = small.PARAMETERS.assign(
        objectivePriorType=[kind, "", ""], objectivePriorParameters=[numbers, "", ""]
    )
    box = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters)).box
    of = {"lower": given["lowerBound"], "upper": given["upperBound"]}
    ends = [float(of.get(b, b)) for b in bounds]
    assert [box.lower[0], box.upper[0]] == pytest.approx(ends, rel=1e-14)


def test_a_uniform_prior_without_values_within_the_bounds_is_refused(tmp_path):
    parameters = small.PARAMETERS.assign(
        objectivePriorType=["parameterScaleUniform", "", ""],
        objectivePriorParameters=["-9;-8", "", ""],
    )
    small.refused(tmp_path, r"-9;-8: the bounds \[0.001, 1000\] contain", parameters=parameters)


@pytest.mark.parametrize(
    ("kind", "numbers", "density"),
    [
        ("parameterScaleNormal", "-0.5;0.3", lambda x: norm.logpdf(np.log10(x), -0.5, 0.3)),
        ("parameterScaleLaplace", "-0.5;0.3", lambda x: laplace.logpdf(np.log10(x), -0.5, 0.3)),
        ("laplace", "1;0.3", lambda x: laplace.logpdf(x, 1.0, 0.3)),
        ("logNormal", "0.2;0.5", lambda x: lognorm.logpdf(x, 0.5, scale=np.exp(0.2))),
    ],
)
def test_other_priors_count(tmp_path, kind, numbers, density):
    parameters = small.PARAMETERS.assign(
        objectivePriorType=[kind, "", ""], objectivePriorParameters=[numbers, "", ""]
    )
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    with_priors = igpe.petab.petab_objective(problem, VALUES, priors=True)
    more = with_priors - igpe.petab.petab_objective(problem, VALUES)
    other = igpe.petab.petab_objective(problem, VALUES | {"k": 1.1}, priors=True)
    other -= igpe.petab.petab_objective(problem, VALUES | {"k": 1.1})
    assert other - more == pytest.approx(density(0.7) - density(1.1), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: event(m, "time == 1", {"A": "2"}), "not a comparison"),
        (lambda m: event(m, "A < 1", {"A": "2"}, "A"), "its delay .* changes"),
        (lambda m: algebraic(m, "w * w - A"), "do not determine"),
        (lambda m: small.law(m, "V * k * delay(A, 1)"), "delay"),
        (lambda m: m.getReaction(0).unsetKineticLaw(), "'r1' without a kinetic law"),
        (lambda m: small.law(m, "V * k * factorial(A)"), "factorial"),
        (lambda m: small.law(m, "V * piecewise(k, A == 1, 0)"), "contains the condition Eq"),
    ],
)
def test_what_the_model_has_beyond_is_refused(tmp_path, change, says):
    document = small.decay()
    change(document.getModel())
    small.refused(tmp_path, says, document, error=igpe.errors.ModelError)


def test_errors_that_only_libsbml_reports_are_named(tmp_path):
    path = small.write(tmp_path)
    model = tmp_path / "model.xml"
    fbc = ' xmlns:fbc="http://www.sbml.org/sbml/level3/version1/fbc/version2" fbc:required="false"'
    text = model.read_text()
    model.write_text(text.replace("<sbml ", f"<sbml{fbc} ", 1))
    with pytest.raises(igpe.errors.DataError, match=r"line \d+ of the model: .*'strict'"):
        igpe.petab.read_petab(path)


def test_nominal_values_may_have_no_column(tmp_path):
    tables = {"parameters": small.PARAMETERS.drop(columns="nominalValue")}
    problem = igpe.petab.read_petab(small.write(tmp_path, **tables))
    assert problem.box.names == ("k", "A0", "sd")
    tables["parameters"] = tables["parameters"].assign(estimate=[1, 0, 1])
    small.refused(tmp_path, "column nominalValue is missing", **tables)


def test_a_version_that_is_missing_is_1(tmp_path):
    path = small.write(tmp_path)
    path.write_text(path.read_text().replace("format_version: 1\n", ""))
    assert igpe.petab.read_petab(path).box.names == ("k", "A0", "sd")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"observables": small.OBSERVABLES.drop(columns="observableId")}, "field observableId. C"),
        ({"conditions": pd.concat([small.CONDITIONS] * 2)}, r"condition IDs: \['c1'\]. C"),
    ],
)
def test_what_identifies_rows_is_missing_or_doubled(tmp_path, table, says):
    small.refused(tmp_path, says, **table)


def test_more_rules_than_variables_are_refused_by_the_linter(tmp_path):
    document = small.decay()
    algebraic(document.getModel(), "w - A", "A - 1")
    small.refused(tmp_path, "Overdetermined", document)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"noiseDistribution": "laplace"}, "laplace"), ({"observableFormula": "A + x"}, "check of")],
)
def test_what_the_tables_have_beyond_is_refused(tmp_path, change, says):
    small.refused(tmp_path, says, observables=small.OBSERVABLES.assign(**change))


WRONG = [
    ("measurements", {"measurement": np.nan}, "null.*Rows \\[3\\]"),
    ("measurements", {"measurement": "abc"}, "not numeric.*Rows \\[3\\]"),
    ("measurements", {"measurement": np.inf}, "Rows \\[3\\] of the measurement table"),
    ("measurements", {"time": np.nan}, "Rows \\[3\\] of the measurement table"),
    ("measurements", {"time": -1.0}, "starts at 0, but has earlier measurements"),
    ("measurements", {"time": -np.inf}, r"earlier measurements, at \[-inf\]"),
    ("measurements", {"observableId": ""}, "Rows \\[3\\] .* no name .* 'observableId'"),
    ("measurements", {"noiseParameters": "1"}, r"Mismatch of noise .* c1 \(row 3\)\. Expected"),
    ("measurements", {"simulationConditionId": "c7"}, "conditions that are not spec.*'c7'"),
    ("measurements", {"observableId": "oC"}, "'oC'.*not defined in observables"),
    ("measurements", {"observableId": "oB", "noiseParameters": "0"}, "standard deviation 0"),
]


@pytest.mark.parametrize(("table", "change", "says"), WRONG)
def test_one_wrong_row_is_named(tmp_path, table, change, says):
    given = small.measurements().astype(object)
    for column, value in change.items():
        given.loc[given.index[2], column] = value
    small.refused(tmp_path, says, **{table: given})


WRONG_FILES = [
    (
        "measurements",
        {"measurement": ["0,6", *["1"] * 9]},
        r"Rows \[1\] of 'mea.*n 'measurement'\.",
    ),
    (
        "measurements",
        {"time": ["1", "2 h", *["1"] * 8]},
        r"Rows \[2\] of 'measur.* column 'time'\.",
    ),
    ("parameters", {"estimate": ["yes", "1", "1"]}, r"Rows \[1\] .* neither 0 nor 1 .* 'estimate'"),
    (
        "parameters",
        {"objectivePriorType": "normal", "objectivePriorParameters": ["1;2", "0.5", "1;2"]},
        r"Rows \[2\] of 'parameters.tsv' have no two numbers separated by ';'",
    ),
    (
        "parameters",
        {"lowerBound": "", "upperBound": ["", "9", "9"]},
        r"s are missing\. Rows \[1, 2",
    ),
    ("parameters", {"estimate": "0"}, "problem.yaml' estimates no parameter: .* Set it"),
    (
        "parameters",
        {"estimate": ["1", "1", "0.5"]},
        r"of the parameters \['sd'\] is neither 0 nor 1",
    ),
    (
        "parameters",
        {"initializationPriorType": "normal", "initializationPriorParameters": ["1", "1;2", "1;2"]},
        r"Rows \[1\] .* no two numbers .* 'initializationPriorParameters'",
    ),
    (
        "parameters",
        {"objectivePriorType": "uniform", "objectivePriorParameters": "3;1"},
        r"'k' is uniform .* 3;1: the first number is larger .* Correct the prior",
    ),
    ("parameters", {"lowerBound": "5", "upperBound": "5"}, "'k' leave the value 5 alone. Set"),
]


@pytest.mark.parametrize(("table", "columns", "says"), WRONG_FILES)
def test_what_only_the_files_tell_is_told_by_rows(tmp_path, table, columns, says):
    """PEtab's library fails, or compares bounds that are missing, without a word of the rows."""
    given = {"measurements": small.measurements(), "parameters": small.PARAMETERS}[table]
    with pytest.raises(igpe.errors.DataError, match=says) as caught:
        igpe.petab.read_petab(small.write(tmp_path, **{table: given.assign(**columns)}))
    assert "Error:" not in str(caught.value)
    assert "greater than" not in str(caught.value)


def test_numbers_are_no_names(tmp_path):
    """PEtab's library fails with a TypeError of one of Python's modules."""
    tables = {
        "conditions": small.CONDITIONS.assign(conditionId=1),
        "measurements": small.measurements().assign(simulationConditionId=1),
    }
    with pytest.raises(
        igpe.errors.DataError, match=r"Rows \[1\] of 'conditions.* no name"
    ) as caught:
        igpe.petab.read_petab(small.write(tmp_path, **tables))
    assert "Error:" not in str(caught.value)


@pytest.mark.parametrize(("lower", "upper"), [(1e-3, np.inf), (0.0, 1e3)])
def test_a_logarithmic_scale_without_bounds_for_it_is_searched_as_it_is(tmp_path, lower, upper):
    given = small.PARAMETERS.assign(
        lowerBound=[lower, 0.1, 1e-3],
        upperBound=[upper, 10.0, 1e2],
        initializationPriorType=["parameterScaleUniform", "", ""],
        initializationPriorParameters=["-3;3", "", ""],
    )
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=given))
    assert problem.box.logarithmic == {"sd"}
    assert problem.model.scales == {"k": "log10", "sd": "log10"}
    assert (problem.box.lower[0], problem.box.upper[0]) == (lower, upper)


def test_a_deviation_that_is_not_positive_is_named(tmp_path):
    given = small.OBSERVABLES.assign(noiseFormula=["-sd", "noiseParameter1_oB"])
    problem = igpe.petab.read_petab(small.write(tmp_path, observables=given))
    found = igpe.SingleShooting().estimate(problem, VALUES)
    assert "An estimated standard deviation is -" in " ".join(found.notes)


def test_other_separators_and_encodings_are_told(tmp_path):
    yaml, table = small.write(tmp_path), tmp_path / "measurements.tsv"
    text = table.read_text()
    for mark in ",;":
        table.write_text(text.replace("\t", mark))
        with pytest.raises(igpe.errors.DataError, match=f"observableId{mark}.* Save .* with tabs"):
            igpe.petab.read_petab(yaml)
    table.write_bytes(text.replace("oA", "oÄ").encode("latin1"))
    with pytest.raises(igpe.errors.DataError, match=r"not encoded in UTF-8\. Save"):
        igpe.petab.read_petab(yaml)


def test_two_problems_in_one_file_are_told(tmp_path):
    yaml = small.write(tmp_path)
    head, _, problem = yaml.read_text().partition("problems:\n")
    yaml.write_text(f"{head}problems:\n{problem}{problem}")
    with pytest.raises(igpe.errors.DataError, match="lists 2 problems, but igpe reads one"):
        igpe.petab.read_petab(yaml)


@pytest.mark.parametrize("table", ["observables", "conditions", "parameters"])
def test_ids_that_occur_twice_are_named(tmp_path, table):
    given = getattr(small, table.upper())
    twice = pd.concat([given, given.iloc[[0]]])
    small.refused(tmp_path, str(given.iloc[0, 0]), **{table: twice})


def test_all_that_the_linter_says_is_in_the_message(tmp_path):
    given = small.measurements()
    given.loc[2, "observableId"] = "oC"
    twice = pd.concat([small.OBSERVABLES, small.OBSERVABLES.iloc[[0]]])
    small.refused(tmp_path, r"'oA'.*'oC'", measurements=given, observables=twice)


def test_no_measurements(tmp_path):
    small.refused(tmp_path, "has no rows", measurements=small.measurements().iloc[:0])


def test_a_column_of_version_2_is_not_ignored(tmp_path):
    given = small.PARAMETERS.assign(priorDistribution=["", "normal", ""])
    says = r"Rows \[2\] .* 'priorDistribution' of PEtab 2\. .* version 1, .* 'objectivePriorType'"
    small.refused(tmp_path, says, parameters=given)


def test_the_command_says_what_the_linter_says(tmp_path):
    given = small.measurements()
    given.loc[2, "observableId"] = "oC"
    done = CliRunner().invoke(app, ["estimate", str(small.write(tmp_path, measurements=given))])
    assert done.exit_code != 0
    assert "'oC'} used in measurement table but not defined" in " ".join(done.stderr.split())


def test_a_failed_integration_is_no_fit(tmp_path):
    """A grows without bound in finite time, before the second measurement."""
    document = small.decay()
    small.law(document.getModel(), "-10 * k * A * A")
    problem = igpe.petab.read_petab(small.write(tmp_path, document))
    for figure in (igpe.petab.petab_objective, igpe.petab.petab_gradient):
        with pytest.raises(igpe.errors.EstimationFailed, match="could be integrated only to"):
            figure(problem)
    shown = igpe.petab.petab_simulations(problem)
    assert (shown["simulation"].isna() == (shown["time"] > 0)).all()
    slow = {**problem.model.nominal, "k": 1e-3}
    assert np.isfinite(igpe.petab.petab_objective(problem, slow))


def test_no_file_and_no_problem(tmp_path):
    with pytest.raises(igpe.errors.ProblemError, match="There is no PEtab file"):
        igpe.petab.read_petab(tmp_path / "nothing.yaml")
    (tmp_path / "other.yaml").write_text("format_version: 7\n")
    with pytest.raises(igpe.errors.DataError, match="not a valid PEtab problem of version 1"):
        igpe.petab.read_petab(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sbml_files", "model_files", "has no entry `sbml_files`, which igpe needs"),
        ("version: 1", "version: 3.0.0", "format_version is '3.0.0'. Write format_version: 1 or"),
    ],
)
def test_entries_of_the_file_are_named(tmp_path, old, new, says):
    path = small.write(tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(igpe.errors.DataError, match=says):
        igpe.petab.read_petab(path)


@pytest.mark.parametrize(
    ("transformation", "says"),
    [
        ("log10", r"positive, but 0\.0 <= 0\. Rows \[1, 2, 3, 4, 5\] of .* no positive number"),
        ("log2", r"observable transformation in observable table: log2\. Rows"),
    ],
)
def test_transformations_that_values_do_not_have_are_refused(tmp_path, transformation, says):
    path = small.write(
        tmp_path,
        observables=small.OBSERVABLES.assign(observableTransformation=transformation),
        measurements=small.measurements().assign(measurement=0.0),
    )
    with pytest.raises(igpe.errors.DataError, match=says):
        igpe.petab.read_petab(path)


def test_a_logarithmic_scale_has_no_negative_nominal_value(tmp_path):
    path = small.write(tmp_path, parameters=small.PARAMETERS.assign(nominalValue=-1.0))
    with pytest.raises(igpe.errors.DataError, match=r"'k' has the nominalValue -1, but a log"):
        igpe.petab.read_petab(path)


def test_without_the_extra_the_command_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "LIBRARIES", ("a_library_that_is_not_there",))
    with pytest.raises(igpe.errors.SolverMissing, match=r"pip install 'igpe\[petab\]'"):
        igpe.petab.read_petab(tmp_path / "problem.yaml")


@pytest.mark.parametrize("scale", ["lin", "log10", "log"])
def test_the_gradient_is_that_of_the_objective(tmp_path, scale):
    """With an estimated error, logarithms and a prior; by the parameters themselves."""
    table = small.measurements(times=(0.5, 1.0, 2.0))
    observables = small.OBSERVABLES.assign(observableTransformation=scale)
    parameters = small.PARAMETERS.assign(
        objectivePriorType=["parameterScaleNormal", "", "laplace"],
        objectivePriorParameters=["-0.5;0.3", "", "0.3;0.2"],
    )
    problem = igpe.petab.read_petab(
        small.write(tmp_path, measurements=table, observables=observables, parameters=parameters)
    )
    at = igpe.petab.petab_gradient(problem, VALUES, priors=True)
    assert at.value == pytest.approx(igpe.petab.petab_objective(problem, VALUES, priors=True))
    for name, value in VALUES.items():
        h = 1e-4 * value
        low, high = (
            igpe.petab.petab_objective(problem, {**VALUES, name: value + d}, priors=True)
            for d in (-h, h)
        )
        assert at.gradient[name] == pytest.approx((high - low) / (2 * h), rel=1e-5)
