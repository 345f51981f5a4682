"""What PEtab and SBML say, against solutions in closed form; and what is refused, by its name."""

import pickle

import libsbml
import numpy as np
import pandas as pd
import pytest
import small
from scipy.stats import norm

import igpe
from igpe.formats.petab import read
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
    a, b = small.truth(table["time"], 0.7, 2.0)
    of_a = table["observableId"] == "oA"
    y, h = table["measurement"], np.where(of_a, a, b)
    z = np.log(y / h) / base / np.where(of_a, 0.2, 0.1)
    expected = -norm.logpdf(z).sum() + np.log(np.where(of_a, 0.2, 0.1) * y * base).sum()
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


def test_normal_priors_count(tmp_path):
    parameters = small.PARAMETERS.assign(
        objectivePriorType=["", "normal", ""], objectivePriorParameters=["", "2.5;0.5", ""]
    )
    problem = igpe.petab.read_petab(small.write(tmp_path, parameters=parameters))
    more = igpe.petab.petab_objective(problem, priors=True) - igpe.petab.petab_objective(problem)
    assert more == pytest.approx(-norm.logpdf(3.0, 2.5, 0.5), rel=1e-6)


def event(model):
    e = model.createEvent()
    e.setId("dose")
    e.setUseValuesFromTriggerTime(True)
    trigger = e.createTrigger()
    trigger.setMath(libsbml.parseL3Formula("time > 1"))
    trigger.setPersistent(True)
    trigger.setInitialValue(True)


def algebraic(model):
    small.parameter(model, "w", 1.0, constant=False)
    model.createAlgebraicRule().setMath(libsbml.parseL3Formula("w - A"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (event, "the event 'dose'"),
        (algebraic, "the algebraic rule 0 = w - A"),
        (lambda m: small.law(m, "V * k * delay(A, 1)"), "delay"),
        (lambda m: m.getReaction(0).unsetKineticLaw(), "'r1' without kinetic law"),
        (lambda m: small.law(m, "V * k * factorial(A)"), "factorial"),
    ],
)
def test_what_the_model_has_beyond_is_refused(tmp_path, change, says):
    document = small.decay()
    change(document.getModel())
    with pytest.raises(igpe.errors.ModelError, match=says):
        igpe.petab.read_petab(small.write(tmp_path, document))


LOGARITHMIC = {"objectivePriorType": ["parameterScaleNormal", "", ""]}
LOGARITHMIC |= {"objectivePriorParameters": ["0;1", "", ""]}


@pytest.mark.parametrize(
    ("table", "change", "says"),
    [
        ("measurements", {"preequilibrationConditionId": "c1"}, r"pre-equilibration \(\['c1'\]\)"),
        ("measurements", {"time": np.inf}, "steady state"),
        ("observables", {"noiseDistribution": "laplace"}, "laplace"),
        ("observables", {"observableFormula": "A + x"}, "check of"),
        ("parameters", LOGARITHMIC, "The prior of 'k' is parameterScaleNormal"),
    ],
)
def test_what_the_tables_have_beyond_is_refused(tmp_path, table, change, says):
    tables = {"measurements": small.measurements(), "observables": small.OBSERVABLES}
    tables |= {"parameters": small.PARAMETERS}
    kind = igpe.errors.ProblemError if table == "parameters" else igpe.errors.DataError
    with pytest.raises(kind, match=says):
        igpe.petab.read_petab(small.write(tmp_path, **{table: tables[table].assign(**change)}))


def test_no_file_and_no_problem(tmp_path):
    with pytest.raises(igpe.errors.ProblemError, match="There is no PEtab file"):
        igpe.petab.read_petab(tmp_path / "nothing.yaml")
    (tmp_path / "other.yaml").write_text("format_version: 7\n")
    with pytest.raises(igpe.errors.DataError, match="no PEtab problem of version 1"):
        igpe.petab.read_petab(tmp_path / "other.yaml")


def test_without_the_extra_the_command_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "NEEDED", ("a_library_that_is_not_there",))
    with pytest.raises(igpe.errors.SolverMissing, match=r"pip install 'igpe\[petab\]'"):
        igpe.petab.read_petab(tmp_path / "problem.yaml")
