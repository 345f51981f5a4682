"""Tables as laboratories write them: separators, code pages, empty cells, names of their own."""

from hashlib import sha256

import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.problem.tables import read_table

PLAIN = pd.DataFrame({"time": [0.0, 0.5, 1.0], "c(A) °": [1.0, 0.25, 0.125]})
AS_WRITTEN = {
    "comma": "time,c(A) °\n0,1\n0.5,0.25\n1,0.125\n",
    "spaces": "time, c(A) °\n0, 1\n0.5, 0.25\n1, 0.125\n",
    "semicolon": "time;c(A) °\n0;1\n0.5;0.25\n1;0.125\n",
    "decimal comma": "time;c(A) °\n0;1\n0,5;0,25\n1;0,125\n",
    "tabs": "time\tc(A) °\n0\t1\n0,5\t0,25\n1\t0,125\n",
    "empty rows and columns": "time,c(A) °,\n0,1,\n0.5,0.25,\n,,\n1,0.125,\n,,\n",
    "commas in a name": '"time";"c(A) °"\n0;1\n0,5;2,5e-1\n1;0,125\n',
}


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_a_csv_file_is_read_as_it_was_written(tmp_path, name):
    path = tmp_path / "run.csv"
    for encoding in ("utf-8", "utf-8-sig", "cp1252"):
        path.write_text(AS_WRITTEN[name], encoding=encoding)
        pd.testing.assert_frame_equal(read_table(path), PLAIN, check_dtype=False)
        times, values = igpe.Experiment(path).measurements.of("c(A) °")[:2]
        assert (times.tolist(), values.tolist()) == ([0.0, 0.5, 1.0], [1.0, 0.25, 0.125])


def test_commas_that_do_not_separate_are_none(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("time;c(A, B)\n0;1\n2;3\n")
    assert list(read_table(path).columns) == ["time", "c(A, B)"]


def test_entries_that_are_no_numbers_are_shown():
    table = pd.DataFrame({"time": [0, 1, 2, 3], "A": ["1", "n.d.", "<0.01", "n.d."]})
    with pytest.raises(igpe.errors.DataError, match=r"'n\.d\.', '<0\.01'\. Give numbers"):
        igpe.Experiment(table)


def test_sheets_that_are_no_runs_are_a_question(tmp_path):
    path = tmp_path / "book.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"Notes": ["made on Monday"]}).to_excel(book, sheet_name="info", index=False)
        PLAIN.to_excel(book, sheet_name="data", index=False)
    with pytest.raises(
        igpe.errors.DataError, match=r"'info' with \['Notes'\]; 'data'.*sheet_name="
    ):
        read_table(path)


LAB = pd.DataFrame({"t / h": [1.0, 2.0], "c(A)": [0.5, 0.2], "remark": ["", "hot"]})
NAMES = {"t / h": "time", "c(A)": "A"}


def test_columns_get_the_names_of_the_model_and_other_data_may_have_either():
    run = igpe.Experiment(LAB, columns=NAMES, only=["A"])
    assert (run.measured, list(run.times)) == (("A",), [1.0, 2.0])
    for names in ({}, NAMES):
        other = run.with_data(LAB.assign(**{"c(A)": [0.6, 0.3]}).rename(columns=names))
        assert list(other.measurements.value) == [0.6, 0.3]
        assert list(other.with_data(LAB).measurements.value) == [0.5, 0.2]


@pytest.mark.parametrize(("name", "columns"), [("time", {}), ("t / h", {"t / h": "time"})])
def test_times_may_be_the_index(name, columns):
    table = pd.DataFrame({name: [0.0, 1.0, 2.0], "A": [1.0, 0.5, 0.2]})
    indexed = igpe.Experiment(table.set_index(name), columns=columns)
    assert indexed.table().equals(igpe.Experiment(table, columns=columns).table())


def test_columns_that_are_missing_or_get_one_name():
    missing = r"names \['c\(a\)'\], but the table has no such columns.*Did you mean 'c\(A\)'\?"
    with pytest.raises(igpe.errors.DataError, match=missing):
        igpe.Experiment(LAB, columns={"t / h": "time", "c(a)": "A"})
    with pytest.raises(igpe.errors.DataError, match=r"\['A'\] occur more than once"):
        igpe.Experiment(LAB, columns={"t / h": "A", "c(A)": "A"})


SHEET = pd.DataFrame({
    "Run": ["one", "one", "two", "two"],
    "t": [1.0, 2.0, 1.0, 2.0],
    "cA": [0.5, 0.2, 0.6, 0.3],
    "cB": [0.5, 0.8, float("nan"), float("nan")],
})
SHEET_NAMES = {"Run": "experiment", "t": "time", "cA": "A", "cB": "B"}


def test_several_runs_in_a_table_with_names_of_its_own():
    runs = igpe.read_experiments(SHEET, columns=SHEET_NAMES)
    assert [(e.name, e.measured) for e in runs] == [("one", ("A", "B")), ("two", ("A",))]
    again = runs[0].with_data(SHEET, one_of_several=True)
    assert list(again.measurements.value) == [0.5, 0.5, 0.2, 0.8]
    again = runs[1].with_data(SHEET, one_of_several=True)
    assert list(again.measurements.value) == [0.6, 0.3]


def test_the_source_of_data_is_named_with_its_checksum(tmp_path):
    text = "time,A,experiment\n0,1,a\n1,0.5,a\n0,2,b\n1,1,b\n"
    (tmp_path / "runs.csv").write_bytes(text.encode())
    runs = igpe.read_experiments(tmp_path / "runs.csv")
    checksum = sha256(text.encode()).hexdigest()
    assert [r.source for r in runs] == [f"runs.csv, SHA-256 {checksum}"] * 2
    table = pd.DataFrame({"time": [0.0, 1.0], "A": [1.0, 0.5]})
    checksum = sha256(b"time,name,value\n0.0,A,1.0\n1.0,A,0.5\n").hexdigest()
    assert igpe.Experiment(table).source == f"table of measurements, SHA-256 {checksum}"
    assert runs[0].with_data(table).source.startswith("table of measurements")


def test_start_values_may_be_a_row_of_a_table():
    conditions = pd.DataFrame({"A": [1.0, 2.0], "B": [0.0, 0.5]}, index=["cold", "hot"])
    data = pd.DataFrame({"time": [1.0, 2.0], "A": [0.5, 0.2]})
    made = igpe.Experiment(data, start=conditions.loc["hot"], start_time=0)
    assert dict(made.start) == {"A": 2.0, "B": 0.5}
    row = conditions.loc["hot"]
    made = igpe.Experiment(data, start_time=0, start={"A": 1}, inputs=row[["B"]], sigma=row[["A"]])
    assert (dict(made.inputs), made.measurements.sigma.tolist()) == ({"B": 0.5}, [2.0, 2.0])
    with pytest.raises(igpe.errors.DataError, match=r"`start` has \['A'\] more than once"):
        igpe.Experiment(data, start=pd.Series([1.0, 2.0], index=["A", "A"]), start_time=0)


SAYS = {
    "decimal commas": (
        PLAIN.assign(A=["0,705", "1,2", "3"]),
        r"pd\.read_csv\(\.\.\., decimal=','\)",
    ),
    "thousands": (PLAIN.assign(A=["1,000.0", "2,100.5", "1"]), r"thousands=','"),
    "complex": (PLAIN.assign(A=[1j, 2j, 3j]), "in the unit of the model\\."),
    "nameless index": (PLAIN.set_index("time").rename_axis(None), r"table\.rename_axis\('time'\)"),
}


@pytest.mark.parametrize(("table", "says"), SAYS.values(), ids=SAYS)
def test_what_pandas_would_mend_is_said(table, says):
    with pytest.raises(igpe.errors.DataError, match=says):
        igpe.Experiment(table)


COLUMNS = {
    "T": "inputs=\\['T'\\]",
    "B": "mean 'c\\[B\\]'",
    "Unnamed: 0": "index of a saved DataFrame",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_the_model_has_otherwise(column):
    def model(times):
        m = pyo.ConcreteModel()
        m.t, m.T = dae.ContinuousSet(initialize=times), pyo.Param(initialize=1.0, mutable=True)
        m.c, m.k = pyo.Var(["A", "B"], m.t), pyo.Var(bounds=(0, 1))
        m.dc = dae.DerivativeVar(m.c, wrt=m.t)
        m.rate = pyo.Constraint(["A", "B"], m.t, rule=lambda m, i, t: m.dc[i, t] == -m.k * m.T)
        return m

    run = igpe.Experiment(pd.DataFrame({"time": [1, 2], column: [1, 2]}), start={"c": 1.0})
    with pytest.raises(igpe.errors.DataError, match=COLUMNS[column]):
        igpe.Problem(model, parameters=["k"], experiments=run)
