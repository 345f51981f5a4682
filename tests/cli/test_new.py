"""igpe new: from the user's own tables to a problem file that runs as it is."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command_line import refused, run

from igpe.cli.model_file import load_problem
from igpe.formats.workbooks.words import deviation_of, identifier, is_time, meant, split_header

TIMES = np.array([0.0, 5, 10, 20, 30, 45, 60, 90])
RATES = (0.05, 0.02)
CHAIN = ["--reaction", "A -> B", "--reaction", "B -> C"]


def chain(start=1.0, times=TIMES):
    """A -> B -> C from A alone: concentrations of A and B."""
    k1, k2 = RATES
    a = np.exp(-k1 * times)
    return start * a, start * k1 / (k2 - k1) * (a - np.exp(-k2 * times))


def table(start=1.0, times=TIMES, names=("time", "A", "B")):
    return pd.DataFrame(dict(zip(names, (times, *chain(start, times)), strict=True)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*words):
    done = run("new", "model.py", *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def estimated(names=("k1", "k2"), truth=RATES):
    found = json.loads(run("estimate", "model.py", "--json", "-").stdout)
    assert [found["parameters"][n] for n in names] == pytest.approx(truth, rel=0.02)
    return found


def test_from_a_table_to_rate_constants_and_a_report(folder):
    table().to_csv("my.csv", index=False)
    said = made("--data", "my.csv", *CHAIN)
    assert "16 measurements of A, B in 1 experiment; times from 'time'." in said
    assert "C starts at 0.0: assumed: not measured, but formed by a reaction." in said
    assert "igpe estimate model.py --report report.html" in said
    assert "globally identifiable" in run("check", "model.py").stdout
    estimated()
    assert run("estimate", "model.py", "--report", "report.html").exit_code == 0
    assert "k2" in (folder / "report.html").read_text(encoding="utf-8")


def test_without_reactions_the_equations_stand_in(folder):
    """What is made at a constant rate and lost in proportion is fitted exactly."""
    tank = pd.DataFrame({"t": TIMES, "level, m": 2 - 1.5 * np.exp(-0.1 * TIMES), "lambda": 1.0})
    tank["lambda"] += TIMES
    tank.to_csv("tank.csv", index=False)
    said = made("--data", "tank.csv")
    assert "write yours in the function model()" in said
    assert "level" in said
    estimated(("level_made", "level_lost"), (0.2, 0.1))
    assert "m.lambda_ = pyo.Var(m.t)" in (folder / "model.py").read_text()


def test_names_and_units_of_a_laboratory(folder):
    names = ["t [min]", "c(A) [mmol/L]", "c_B / (mol/L)"]
    lab = table(1000.0, names=names)
    lab[names[2]] /= 1000
    lab.to_csv("lab.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    made("--data", "lab.csv", *CHAIN)
    assert estimated()["estimates"][0]["unit"] == "1/min"
    problem = load_problem(folder / "model.py")
    assert problem.unit("B") == "mmol/L"
    assert problem.experiments[0].measurements.of("B")[1][1] == pytest.approx(chain(1000.0)[1][1])


@pytest.mark.parametrize(
    ("headers", "species"),
    [
        (("time", "S", "P"), "SP"),
        (("t [min]", "S [mM]", "P [mM]"), "SP"),
        (("time", "Q", "T"), "QT"),
        (("time", "S", "H"), "SH"),
    ],
)
def test_a_species_named_like_a_pressure_or_a_temperature_is_measured(folder, headers, species):
    first, second = species
    a = chain()[0]
    pd.DataFrame(dict(zip(headers, (TIMES, a, 1 - a), strict=True))).to_csv("p.csv", index=False)
    said = made("--data", "p.csv", "--reaction", f"{first} -> {second}")
    assert f"16 measurements of {first}, {second}" in said
    assert "Not used" not in said
    estimated(("k1",), RATES[:1])


@pytest.mark.parametrize("header", ["Subject", "patient no", "subject_id", "Animal ID"])
def test_a_column_of_subjects_names_the_runs(folder, header):
    pd.concat([table(s).assign(**{header: s}) for s in (1, 2)]).to_csv("runs.csv", index=False)
    assert "Experiments: 1, 2." in made("--data", "runs.csv", *CHAIN)


def test_a_letter_with_the_unit_of_a_concentration_is_measured(folder):
    table(names=("t [min]", "S [mM]", "P [mM]")).to_csv("p.csv", index=False)
    assert "16 measurements of S, P" in made("--data", "p.csv")
    table(names=("t [min]", "S [mM]", "P")).to_csv("p.csv", index=False)
    said = " ".join(made("--data", "p.csv", "--force").split())
    assert "Not used: 'P' (a condition; if it was measured: --role 'P=measured')." in said


def test_a_species_that_does_not_change_starts_at_its_condition(folder):
    table().assign(E=2.0).to_csv("e.csv", index=False)
    said = made("--data", "e.csv", "--reaction", "A + E -> B + E", "--reaction", "B -> C")
    assert "E starts at 2.0: a condition of the table." in said
    assert "Not used" not in said
    estimated(truth=(RATES[0] / 2, RATES[1]))


def test_experiments_in_one_table_with_conditions_and_remarks(folder):
    runs = [table(s).assign(Run=n, T=300.0, remark="ok") for n, s in (("low", 1.0), ("high", 3.0))]
    pd.concat(runs).to_csv("runs.csv", index=False)
    said = made("--data", "runs.csv", *CHAIN)
    assert "in 2 experiments" in said
    assert "Not used: 'T' (a condition)." in said
    assert "Not used: 'remark' (no numbers)." in said
    estimated()
    problem = load_problem(folder / "model.py")
    assert [(e.name, e.start["A"].guess) for e in problem.experiments] == [
        ("low", 1.0),
        ("high", 3.0),
    ]
    twice = pd.concat(r.assign(time=r["time"] / 2) for r in runs)
    twice.to_csv("faster.csv", index=False)
    again = json.loads(run("estimate", "model.py", "--data", "faster.csv", "--json", "-").stdout)
    assert again["parameters"]["k1"] == pytest.approx(2 * RATES[0], rel=0.02)


def test_other_measurements_without_units_are_remarked_on(folder):
    table(names=["t / h", "c(A) [mol/L]", "c(B) [mmol/L]"]).to_csv("my.csv", index=False)
    made("--data", "my.csv", *CHAIN)
    table().to_csv("plain.csv", index=False)
    said = run("check", "model.py", "--data", "plain.csv").stderr
    assert "'plain.csv' gives no unit for 'B'; igpe assumes mmol/L." in said
    assert "unit" not in run("check", "model.py", "--data", "my.csv").stderr


def test_a_first_measurement_is_no_exact_start_value(folder):
    """Only a measured zero is taken as exact, and the file says that this is assumed."""
    noisy = table()
    noisy["A"] *= 1.1
    noisy.to_csv("my.csv", index=False)
    assert "A starts at igpe.Unknown(0.0, 5.0, guess=1.1): estimated: measured as 1.1." in made(
        "--data", "my.csv", *CHAIN
    )
    assert '"B": 0.0,  # assumed exact: measured as 0' in (folder / "model.py").read_text()


@pytest.mark.slow
def test_the_sheets_of_a_workbook_are_experiments(folder):
    with pd.ExcelWriter("runs.xlsx") as book:
        for name, start in (("low", 1.0), ("high", 3.0)):
            table(start).to_excel(book, sheet_name=name, index=False)
        pd.DataFrame().to_excel(book, sheet_name="empty", index=False)
    assert "32 measurements of A, B in 2 experiments" in made("--data", "runs.xlsx", *CHAIN)
    assert [e.name for e in load_problem(folder / "model.py").experiments] == ["low", "high"]
    estimated()


def test_several_tables_are_several_experiments(folder):
    """One of them lacks a column and the start; standard deviations stand in the tables."""
    (folder / "data").mkdir()
    table().assign(sd_A=0.01, sd_B=0.02).to_csv("data/one.csv", index=False)
    late = table(2.0, TIMES[1:]).assign(sd_A=0.01).drop(columns="B")
    late.to_csv("data/two.csv", index=False)
    said = made("--data", "data/one.csv", "--data", "data/two.csv", *CHAIN)
    assert "23 measurements of A, B in 2 experiments" in said
    estimated(("k1", "k2", "A(t0)@two"), (*RATES, 2.0))
    assert load_problem(folder / "model.py").sigma_known


def test_an_unmeasured_reactant_is_estimated(folder):
    table().to_csv("my.csv", index=False)
    said = made("--data", "my.csv", "--reaction", "A + X -> B; B -> C")
    assert "X starts at igpe.Unknown(0.0, 10.0): estimated" in said
    assert "X(t0)" in run("check", "model.py").stdout


def test_an_unmeasured_reactant_has_one_range_in_all_experiments(folder):
    """In the second experiment it is in excess of all that is measured there."""
    table().to_csv("one.csv", index=False)
    (table() / [1, 4, 4]).to_csv("two.csv", index=False)
    said = made("--data", "one.csv", "--data", "two.csv", "--reaction", "A + X -> B; B -> C")
    text = (folder / "model.py").read_text(encoding="utf-8")
    assert text.count('"X": igpe.Unknown(0.0, 10.0),') == 2
    assert "A starts at igpe.Unknown(0.0, 2.0, guess=1.0) in one (START" in said


@pytest.mark.parametrize("kind", ["numbered", "long"])
def test_a_file_from_merged_columns_or_a_long_table_runs(folder, kind):
    """Headers in the file are those of quantities, which no column has."""
    data = table()
    if kind == "numbered":
        data = data.assign(A_1=1.01 * data["A"], A_2=0.99 * data["A"]).drop(columns="A")
    else:
        data = data.melt("time", var_name="analyte", value_name="conc")
    data.to_csv("my.csv", index=False)
    made("--data", "my.csv", *CHAIN)
    estimated()


def test_a_conversion_stands_for_its_species(folder):
    a, b = chain()
    data = pd.DataFrame({"time": TIMES, "X [%]": 100 * (1 - a)})
    data.to_csv("my.csv", index=False)
    role = ["--role", "X [%]=conversion of A"]
    refused(run("new", "model.py", "--data", "my.csv", *CHAIN), *role[:1], "conversion of A")
    said = " ".join(made("--data", "my.csv", "--reaction", "A -> B", *role).split())
    assert "8 measurements of X in 1 experiment" in said
    assert "A starts at 1.0: assumed: igpe computes" in said
    estimated(["k1"], RATES[:1])
    data.assign(B=b).to_csv("my.csv", index=False)
    said = made("--force", "--data", "my.csv", *CHAIN, *role)
    assert "16 measurements of X, B" in said
    assert "Not used" not in said
    estimated()


def test_a_yield_of_one_of_two_products_stands_for_it(folder):
    """A stands in both reactions; a conversion beside its own column is not used, nor computed."""
    k = sum(RATES)
    a = np.exp(-k * TIMES)
    data = pd.DataFrame({"time": TIMES, "Y [%]": 100 * RATES[0] / k * (1 - a)})
    data.assign(**{"X [%]": 100 * (1 - a)}).to_csv("my.csv", index=False)
    reactions = ["--reaction", "A -> B", "--reaction", "A -> C"]
    roles = ["--role", "X [%]=conversion of A", "--role", "Y [%]=yield of B from A"]
    made("--data", "my.csv", *reactions, *roles)
    estimated()
    data.assign(**{"X [%]": 100 * (1 - a)}, A=a).to_csv("my.csv", index=False)
    assert "Not used: 'X [%]'" in made("--force", "--data", "my.csv", *reactions, *roles)
    found = json.loads(run("estimate", "model.py", "--json", "-").stdout)["parameters"]
    assert found["k1"] + found["k2"] == pytest.approx(k, rel=1e-3)


def test_doses_of_a_table_are_named_and_a_point_is_no_value(folder):
    """As NONMEM's tables have them."""
    table(names=("TIME", "A", "B")).astype(str).assign(AMT=0.0).to_csv("my.csv", index=False)
    with open("my.csv", "a", encoding="utf-8") as file:
        file.write("95,.,.,100.0\n")
    said = " ".join(made("--data", "my.csv", *CHAIN).split())
    assert "16 measurements of A, B" in said
    assert "Not used: 'AMT' (doses? Give each as an event of its experiment: events=[igpe." in said


def test_replicates_and_excel(folder):
    pd.concat([table(), table()]).sort_values("time").to_excel("my.xlsx", index=False)
    made("--data", "my.xlsx", *CHAIN)
    estimated()


def test_the_user_says_which_column_is_which(folder):
    names = ["step", "elapsed time (h)", "clock time", "educt", "product"]
    lab = pd.DataFrame({n: np.arange(8.0) for n in names[:3]})
    lab[names[1]] = TIMES
    lab[names[3]], lab[names[4]] = chain()
    lab.to_csv("my.csv", index=False)
    words = ["new", "model.py", "--data", "my.csv", *CHAIN]
    refused(run(*words), "'elapsed time (h)', 'clock time'", "--time 'elapsed time (h)'")
    words += ["--time", "elapsed time (h)"]
    refused(run(*words), "No column has the name of a species", "--column 'step=A'")
    refused(run(*words, "--column", "edukt=A"), "--column refers to the column 'edukt'", "'educt'?")
    refused(run(*words, "--experiment", "batch"), "or --experiment refers to the column 'batch'")
    assert run(*words, "--column", "educt=A", "--column", "product=B").exit_code == 0
    estimated()


def test_names_that_would_break_the_file(folder):
    """Quotes in the table's name and header, words of Python and Pyomo as names."""
    odd = 'my "best" run.csv'
    table(names=["time", 'the "A"', "type"]).to_csv(odd, index=False)
    made("--data", odd, "--column", 'the "A"=lambda')
    problem = load_problem(folder / "model.py")
    assert problem.experiments[0].measured == ("lambda_", "type_")


def test_a_file_is_never_overwritten_unless_told(folder):
    table().to_csv("my.csv", index=False)
    (folder / "model.py").write_text("precious")
    refused(run("new", "model.py", "--data", "my.csv"), "'model.py' already exists", "--force")
    assert (folder / "model.py").read_text() == "precious"
    made("--data", "my.csv", "--force")
    assert "def problem():" in (folder / "model.py").read_text()


def test_the_same_as_json(folder):
    table(names=["t / h", "A", "B"]).to_csv("my.csv", index=False)
    found = json.loads(made("--data", "my.csv", *CHAIN, "--json", "-"))
    assert found["command"] == "new"
    assert found["table"][0] == {"header": "t / h", "name": "time", "unit": "h"}


@pytest.mark.parametrize("reactions", [[], CHAIN], ids=["equations", "reactions"])
def test_what_is_written_is_well_formatted(folder, reactions):
    table(names=["t / h", "c(A) [mol/L]", "c(B) [mol/L]"]).to_csv("my.csv", index=False)
    made("--data", "my.csv", *reactions)
    for words in (["format", "--check", "--line-length", "100"], ["check", "--line-length", "100"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "model.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


REFUSED = {
    "no arrow": (["--reaction", "A"], ["no arrows", "Quote reactions"]),
    "no species": (["--reaction", "A -> 2"], ["'2'", "is not a species"]),
    "taken name": (["--reaction", "A -> k1"], ["['k1'] has two meanings", "rename"]),
    "column": (["--column", "A"], ["HEADER=NAME"]),
    "time": (["--time", "Time"], ["'Time'", "Did you mean 'time'?"]),
    "experiment": (["--experiment", "run"], ["refers to the column 'run'"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_user_says_is_checked(folder, name):
    words, told = REFUSED[name]
    table().to_csv("my.csv", index=False)
    refused(run("new", "model.py", "--data", "my.csv", *words), *told)
    assert not (folder / "model.py").exists()


TABLES = {
    "not sorted": ("time,A\n0,1\n2,3\n1,2\n", ["not sorted", "--experiment 'COLUMN'"]),
    "not sorted by runs": (
        "Mouse,time,A\n7,0,2\n7,1,1\n8,0,3\n8,1,2\n",
        ["not sorted", "say which column names the run of each row: --experiment 'Mouse'"],
    ),
    "text": ("time,A\n0,1\n1,spilled\n2,3\n", ["Cell B3", "'spilled'", "--role 'A=ignore'"]),
    "one time": ("time,A\n1,1\n", ["only one time"]),
    "constant": ("time,A\n0,1\n1,1\n", ["only the column of times contains numbers that change"]),
    "no time": ("time,A\n,1\n1,2\n", ["Row 2", "finite time"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_do_not_serve(folder, name):
    text, told = TABLES[name]
    (folder / "my.csv").write_text(text)
    refused(
        run("new", "model.py", "--data", "my.csv"), "my.csv" if name != "constant" else "", *told
    )


HEADERS = {
    "t / h": ("t", "h"),
    "time_min": ("time", "min"),
    "c(A)": ("c(A)", ""),
    "c(A) [mol/L]": ("c(A)", "mol/L"),
    "A [mol L⁻¹]": ("A", "mol L**-1"),
    "A (mol·m-3)": ("A", "mol*m**-3"),
    "Temp. (°C)": ("Temp.", "degC"),
    "pressure, bar": ("pressure", "bar"),
    "conversion (-)": ("conversion", ""),
    "[A]": ("[A]", ""),
    "A (total)": ("A (total)", ""),
    "time(min)": ("time", "min"),
    "yield in %": ("yield", "%"),
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers(header):
    assert split_header(header) == HEADERS[header]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("t", True),
        ("Zeit / min", True),
        ("Time [s]", True),
        ("T", False),
        ("T / K", False),
        ("A", False),
    ],
)
def test_headers_that_speak_of_time(header, expected):
    assert is_time(header) is expected


def test_names():
    assert [meant(n, ["A", "acid"]) for n in ("A", "a", "c_A", "[A]", "conc. of acid", "B")] == [
        "A", "A", "A", "A", "acid", "",
    ]  # fmt: skip
    assert [identifier(n) for n in ("2nd", "c A", "lambda", "name", "%")] == [
        "x2nd", "c_A", "lambda_", "name_", "x",
    ]  # fmt: skip
    assert identifier("A", ["A", "A_2"]) == "A_3"
    assert [deviation_of(h) for h in ("sd_A", "A std", "error of A", "A")] == ["A", "A", "A", ""]
