"""Problems written as PEtab: PEtab's linter passes them, and read again they are the same."""

import consecutive
import fitzhugh_nagumo
import libsbml
import methanol
import numpy as np
import pandas as pd
import problems
import pyomo.environ as pyo
import pytest
import small
import stat5
import urethane
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.dynamics.likelihood import negative_log_likelihood
from igpe.formats.petab.formulas import library, quiet
from igpe.formats.petab.printing import Ids, texts
from igpe.formats.petab.write import _of_table

MODELS = (consecutive, fitzhugh_nagumo, methanol, stat5, urethane)
SAME = 1e-6


def both(problem, folder, seed=0):
    """The negative log-likelihoods of a problem and of what was written of it, at two points."""
    yaml = igpe.petab.to_petab(problem, folder)
    again = igpe.petab.read_petab(yaml)
    table = pd.read_csv(folder / "parameters.tsv", sep="\t").set_index("parameterId")
    names = table["parameterName"].astype(str).to_dict()
    rng = np.random.default_rng(seed)
    for size in (0.0, 0.1):
        shift = 1 + size * rng.uniform(-1, 1, len(again.box))
        x = table.loc[list(again.box.names), "nominalValue"] * shift + size / 100
        own = {names[n]: v for n, v in x.items()}
        deviations = {n: v for n, v in own.items() if n.startswith("sd ")}
        known = problem
        if deviations:
            known = problem.weighted([
                np.array([
                    deviations.get(f"sd {e.measured[k]}", deviations.get("sd all"))
                    for k in e.measurements.column
                ])
                for e in problem.experiments
            ])
        values = {n: v for n, v in own.items() if n not in deviations}
        yield negative_log_likelihood(known, values), igpe.petab.petab_objective(again, dict(x))


PROBLEMS = {m.__name__: m.problem for m in MODELS} | problems.PROBLEMS


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_read_again_it_has_the_same_likelihood(problem, tmp_path):
    for before, after in both(problem(), tmp_path / "petab"):
        assert after == pytest.approx(before, rel=SAME)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_random_problem_read_again_has_the_same_likelihood(seed, tmp_path):
    for before, after in both(problems.Drawn(seed).problem(), tmp_path / "petab"):
        assert after == pytest.approx(before, rel=SAME)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_petabs_linter_has_no_word(problem, tmp_path):
    yaml = igpe.petab.to_petab(problem(), tmp_path)
    with quiet():
        assert not library("petab.v2").Problem.from_yaml(str(yaml)).validate()


def test_names_stand_beside_what_stands_for_them(tmp_path):
    igpe.petab.to_petab(problems.several(), tmp_path)
    names = pd.read_csv(tmp_path / "parameters.tsv", sep="\t").set_index("parameterId")
    assert names["parameterName"]["k_1_run_1"] == "k[1]@run 1"
    sbml = libsbml.readSBMLFromFile(str(tmp_path / "model.xml")).getModel()
    assert sbml.getParameter("k_1").getName() == "k[1]"


def test_at_a_step_what_was_before_is_measured():
    step, line = igpe.step_input([0, 1], [3, 4]), igpe.linear_input([0, 1, 2], [1, 3, 3])
    assert _of_table(step, 0.0, 2.0) == ("piecewise(3, time <= 1, 4)", False)
    assert _of_table(step, 1.0, 2.0) == ("4", True)
    assert _of_table(line, 0.5, 2.0) == ("piecewise(1 + 2 * time, time <= 1, 3)", False)


@pytest.mark.parametrize("scales", [("log10", "lin"), ("log", "log10")])
def test_what_petab_compares_as_logarithms_is_written_so(scales, tmp_path):
    """PEtab's objective is that of the measurements; that of logarithms differs by a constant."""
    scaled = small.OBSERVABLES.assign(observableTransformation=scales)
    given = small.measurements(times=(0.5, 1.0, 2.0, 4.0))
    before = igpe.petab.read_petab(small.write(tmp_path, observables=scaled, measurements=given))
    again = igpe.petab.read_petab(igpe.petab.to_petab(before, tmp_path / "written"))
    assert set(again.experiments[0].measured) >= {"log_observable_oA_estimated"}
    for values in ({}, {"k": 0.7, "sd": 0.2}):
        ends = (igpe.petab.petab_objective(one, values) for one in (before, again))
        assert next(ends) == pytest.approx(next(ends), rel=SAME)


def test_no_two_names_become_one():
    ids = Ids()
    given = ["k 1", "k_1", "k[1]", "1k", "time", "pi", "k_1_2", "é"]
    found = [ids(n) for n in given]
    assert len(set(found)) == len(given)
    assert [ids(n) for n in given] == found
    assert all(libsbml.SyntaxChecker.isValidSBMLSId(n) for n in found)


@pytest.mark.parametrize(
    "formula",
    [
        "(a-b)-(a-b)", "a/(b*a)", "-(a**2)", "(-a)**2", "a**b**2", "1/(1/a)", "2*a-3*-b",
        "ca.if_else(a<b, a, b)", "ca.if_else(ca.logic_and(a<b, a>0.1), 1, b)", "ca.fmin(a,b)",
        "ca.fmax(a,b)+ca.sign(a-b)", "(a<b)+1", "ca.sqrt(a)*ca.log(b)", "ca.atan(a)+ca.tanh(b)",
        "ca.floor(3*a)+ca.ceil(b)", "ca.fabs(-a)", "1e-7*a", "a*-1e20", "ca.log10(a)", "2*a*a",
    ],
)  # fmt: skip
def test_formulas_mean_the_same_to_libsbml(formula):
    """Evaluated by SymPy after libSBML's parser and MathML."""
    import casadi as ca  # noqa: PLC0415

    a, b = ca.SX.sym("a"), ca.SX.sym("b")
    expression = eval(formula, {"a": a, "b": b, "ca": ca})
    (text,) = texts(expression, [ca.vertcat(a, b)], [["a", "b"]])
    mathml = libsbml.writeMathMLToString(libsbml.parseL3Formula(text))
    read = library("sbmlmath").SBMLMathMLParser(floats_as_rationals=False).parse_str(mathml)
    for point in ((0.3, 0.7), (1.7, 0.4)):
        expected = float(ca.Function("f", [a, b], [expression])(*point))
        values = {s: dict(zip("ab", point, strict=True))[s.name] for s in read.free_symbols}
        assert float(read.subs(values)) == pytest.approx(expected, rel=1e-12)


def test_estimates_are_the_nominal_values(tmp_path):
    problem = consecutive.problem()
    result = igpe.estimate(problem, certify=False)
    again = igpe.petab.read_petab(igpe.petab.to_petab(problem, tmp_path, result))
    nominal = again.model.nominal
    assert {n: nominal[n] for n in result.parameters} == pytest.approx(result.parameters, rel=1e-14)
    best = igpe.petab.petab_objective(again)
    sd = next(n for n in nominal if n.startswith("sd_"))
    for factor in (0.99, 1.01):  # the deviation is that of maximum likelihood
        assert igpe.petab.petab_objective(again, {sd: nominal[sd] * factor}) > best


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"loss": igpe.losses.L1()}, "loss L1"),
        (
            {"priors": {"lag": igpe.losses.Prior("normal", (0.0, 1.0), scale="log10")}},
            "priors for the logarithms",
        ),
    ],
)
def test_what_petab_cannot_say_is_refused(change, word, tmp_path):
    problem = igpe.Problem(
        problems.model, parameters=["k", "lag", "s0"], experiments=problems.run(), **change
    )
    with pytest.raises(igpe.errors.Unsupported, match=word):
        igpe.petab.to_petab(problem, tmp_path / "petab")
    assert not (tmp_path / "petab").exists()


def test_implicit_algebraic_variables_are_refused(tmp_path):
    def implicit(times, experiment):
        m = problems.plain(times, experiment)
        m.z = pyo.Var(m.t, initialize=0.5)
        m.of_z = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] + pyo.exp(m.z[t]) == m.A[t])
        m.shown = pyo.Expression(m.t, rule=lambda m, t: m.z[t])
        return m

    one = problems.run(columns=("A", "z"), inputs={"feed": 0.1})
    problem = igpe.Problem(implicit, parameters=["k1", "k2"], experiments=one)
    with pytest.raises(igpe.errors.Unsupported, match=r"\['z'\] only implicitly"):
        igpe.petab.to_petab(problem, tmp_path)


def test_values_become_the_nominal_values_and_other_objects_are_refused(tmp_path):
    problem = consecutive.problem()
    values = {n: 0.5 + 0.01 * k for k, n in enumerate(problem.box.names)}
    again = igpe.petab.read_petab(igpe.petab.to_petab(problem, tmp_path, values))
    assert {n: again.model.nominal[n] for n in values} == pytest.approx(values)
    for odd, word in (("k1", "'k1'"), ({"nothing": 1.0}, "not unknowns"), ({}, "Give values for")):
        with pytest.raises(igpe.errors.ProblemError, match=word):
            igpe.petab.to_petab(problem, tmp_path / "other", odd)
    assert not (tmp_path / "other").exists()


def test_files_that_are_there_stay(tmp_path):
    igpe.petab.to_petab(problems.late(), tmp_path)
    with pytest.raises(igpe.errors.DataError, match=r"already exists.*force=True"):
        igpe.petab.to_petab(problems.late(), tmp_path)
    igpe.petab.to_petab(problems.late(), tmp_path, force=True)


def test_on_the_command_line(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import consecutive\nproblem = consecutive.problem\n")
    done = CliRunner().invoke(app, ["convert", str(file), str(tmp_path / "petab")])
    assert done.exit_code == 0, done.output
    assert "problem.yaml" in done.stdout
    assert len(igpe.petab.read_petab(tmp_path / "petab" / "problem.yaml").box) > 2
