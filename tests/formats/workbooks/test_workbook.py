"""From a file to experiments: temperatures, limits, conversions, units, other measurements."""

import json
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from layouts import LAYOUTS, Layout, mistakes
from typer.testing import CliRunner

import igpe
from igpe import kinetics
from igpe.cli import app
from igpe.formats.workbooks.cells import Question
from igpe.formats.workbooks.reading import table_for
from igpe.problem.tables import SOURCE

TIMES = np.array([0.0, 5, 10, 20, 40])
K, ENERGY, REFERENCE = 0.05, 60e3, 333.15  # 1/min at the reference, J/mol, K
BATCH = kinetics.Batch(["A -> B"], bounds={"k1": (0, 5)})


def warm_sheets(folder):
    """A -> B at three temperatures in degrees Celsius, a sheet each, with a title."""
    sheets = {}
    for celsius in (50, 60, 70):
        k = K * np.exp(-ENERGY / 8.314462618 * (1 / (celsius + 273.15) - 1 / REFERENCE))
        rows = "\n".join(f"{t:g}|{10 * np.exp(-k * t):.10f}" for t in TIMES)
        sheets[f"run {celsius}"] = (
            f"Decay\nTemperature|{celsius}|°C\n\nt [min]|A [mmol/L]\n{rows}\n"
        )
    return Layout("Excel: a sheet for each temperature", sheets).write(folder, "warm")


@pytest.mark.slow
def test_temperatures_of_sheets_lead_to_arrhenius(tmp_path):
    arrhenius = kinetics.MassAction(kinetics.Arrhenius("k", "E", reference=REFERENCE))
    reactor = kinetics.Batch(
        [kinetics.Reaction("A -> B", arrhenius)], bounds={"k": (1e-3, 1), "E": (1e4, 2e5)}
    )
    book = igpe.read_workbook(warm_sheets(tmp_path))
    assert list(book.conditions()["T [K]"]) == [323.15, 333.15, 343.15]
    runs = book.experiments(reactor, start={"A": 10.0, "B": 0.0})
    assert [r.inputs["T"] for r in runs] == [323.15, 333.15, 343.15]
    problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=runs)
    result = igpe.estimate(problem, certify=False)
    assert result.parameters == pytest.approx({"k": K, "E": ENERGY}, rel=1e-3)


def test_conditions_that_differ_are_not_passed_over(tmp_path):
    book = igpe.read_workbook(warm_sheets(tmp_path))
    with pytest.raises(igpe.errors.DataError, match=r"\['T'\] change with time.*inputs=\['T'\]"):
        book.experiments(start={"A": 10.0})
    assert book.experiments(inputs=["T"], units={})[2].inputs["T"] == 343.15


@pytest.mark.slow
def test_igpe_new_writes_arrhenius_for_several_temperatures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warm_sheets(tmp_path)
    words = ["new", "model.py", "--data", "warm.xlsx", "--reaction", "A -> B"]
    done = CliRunner().invoke(app, words)
    assert "323.15 (= 50 °C)" in done.stdout
    assert "mass-action kinetics and Arrhenius constants." in " ".join(done.stdout.split())
    stored = CliRunner().invoke(app, ["estimate", "model.py", "--json", "-"]).stdout
    found = json.loads(stored)["parameters"]
    assert [found["k1"], found["E1"]] == pytest.approx([K, ENERGY], rel=1e-2)


def book_of(folder, name):
    return igpe.read_workbook(LAYOUTS[name].write(folder, "file"))


def test_limits_of_detection_are_never_numbers(tmp_path):
    book = book_of(tmp_path, "limits of detection")
    with pytest.raises(igpe.errors.DataError, match=r"Data!C2 \('n\.d\.'\).*censored='drop'"):
        book.experiments(units={})
    (run,) = book.experiments(units={}, censored="drop")
    assert list(run.measurements.of("B")[1]) == [0.52, 0.9]


def test_igpe_new_says_which_cells_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LAYOUTS["limits of detection"].write(tmp_path, "file")
    said = " ".join(CliRunner().invoke(app, ["new", "m.py", "--data", "file.xlsx"]).stdout.split())
    assert "Left out: 'n.d.' in Data!C2" in said
    assert "These are limits of detection, not values." in said


LIMITED = Layout("Excel", {"Data": "t [min]|A [mM]|B [mM]\n0|2|<0.1\n1|1.5|< 0,2\n2|NA|0.52\n"})


def test_limits_of_detection_stay_limits_where_the_errors_are_censored(tmp_path):
    units = kinetics.Units("mol", "L", "min")
    reactor = kinetics.Batch(["A -> B"], units=units)
    book, sigma = igpe.read_workbook(LIMITED.write(tmp_path, "file")), igpe.losses.Censored(1e-5)
    with pytest.raises(igpe.errors.DataError, match=r"Data!C2 \('<0\.1'\), Data!C3"):
        book.experiments(reactor, sigma={"A": sigma, "B": 1e-5})
    runs = book.experiments(reactor, start={"A": 2e-3, "B": 0.0}, sigma=sigma)
    problem = igpe.Problem(reactor, parameters=["k1"], experiments=runs)
    elsewhere = tmp_path / "other.csv"
    elsewhere.write_text("t [s];A [mM];B [mM]\n0;2;<0.1\n60;1.5;<0.2\n120;;0.52\n")
    again = problem.with_data(table_for(elsewhere, problem))
    for one in (problem, again):
        m = one.experiments[0].measurements
        assert list(m.times) == [0, 1, 2]
        assert list(m.value) == pytest.approx([2e-3, 1e-4, 1.5e-3, 2e-4, 0.52e-3])
        assert list(m.is_limit) == [False, True, False, True, False]
    (run,) = book.experiments(reactor, sigma=sigma, censored="drop")
    assert not run.measurements.is_limit.any()


def test_a_limit_of_detection_needs_its_number(tmp_path):
    book = book_of(tmp_path, "limits of detection")
    sigma = igpe.losses.Censored(0.1)
    with pytest.raises(igpe.errors.DataError, match=r"C2 \('n\.d\.'\), Data!B5 \('<LOD'\)\. igpe"):
        book.experiments(units={}, sigma=sigma)


def test_a_conversion_becomes_a_concentration_from_a_known_start(tmp_path):
    book = book_of(tmp_path, "conversion of a species")
    (run,) = book.experiments(BATCH, start={"A": 2.0, "B": 0.0})
    assert run.measurements.of("A")[1] == pytest.approx([2.0, 1.6, 1.28, 0.82])
    with pytest.raises(igpe.errors.DataError, match=r"start value of 'A' as a number.*Expression"):
        book.experiments(BATCH, start={"A": igpe.Unknown(0, 5), "B": 0.0})


def test_a_yield_needs_its_reactant(tmp_path):
    path = LAYOUTS["conversion and yield"].write(tmp_path, "file")
    with pytest.raises(igpe.errors.DataError, match=r"is a yield, but.*'yield of B from A'"):
        igpe.read_workbook(path, roles={"conversion [%]": "ignore"}).experiments(BATCH)
    said = {"conversion [%]": "conversion of A", "yield of B [%]": "yield of 2 B from A"}
    (run,) = igpe.read_workbook(path, roles=said).experiments(BATCH, start={"A": 2.0, "B": 0.0})
    assert run.measurements.of("A")[1] == pytest.approx([2.0, 1.6, 1.28])
    assert run.measurements.of("B")[1] == pytest.approx([0, 0.18 * 4, 0.31 * 4])


def test_areas_need_a_response_factor(tmp_path):
    book = book_of(tmp_path, "gc area per cent")
    with pytest.raises(igpe.errors.DataError, match=r"response factor.*pyo.Expression"):
        book.experiments(BATCH)


def test_a_temperature_without_a_unit_is_asked_for(tmp_path):
    layout = Layout("Excel", {"a": "T|50\n\nt [min]|A\n0|1\n5|0.8\n10|0.6\n"})
    arrhenius = kinetics.MassAction(kinetics.Arrhenius("k", "E", reference=REFERENCE))
    reactor = kinetics.Batch([kinetics.Reaction("A -> B", arrhenius)])
    path = layout.write(tmp_path, "file")
    with pytest.raises(igpe.errors.DataError, match=r"has no unit.*units=\{'T': 'degC'\}"):
        igpe.read_workbook(path).experiments(reactor)
    (run,) = igpe.read_workbook(path, units={"T": "degC"}).experiments(reactor)
    assert run.inputs["T"] == 323.15


FOUND_LATER = (
    Layout(
        "points between thousands, decimal commas in another column",
        "Zeit / s;A (mM)\n0;5,5\n1.000;4,0\n1.800;3,1\n",
        runs={"": "s A / 0 5.5 / 1000 4 / 1800 3.1"},
        warns=("igpe reads 1.000 in file.csv as 1000",),
    ),
    Layout(
        "points between thousands of seconds",
        "Zeit;A (mM)\n0 s;5,5\n1.200 s;4,0\n1.800 s;3,1\n",
        runs={"": "min A / 0 5.5 / 20 4 / 30 3.1"},
    ),
    Layout(
        "clock times, with hh:mm below their header and no other unit below",
        {"R1": "Uhrzeit|A (mM)|B (mM)\nhh:mm||\n'09:30|5|0\n'10:30|4|1\n'11:00|3|2\n"},
        runs={"": "min A B / 0 5 0 / 60 4 1 / 90 3 2"},
    ),
    Layout(
        "clock times that the header says to be such, and how they are written",
        "Uhrzeit [hh:mm];A (mM)\n09:30;5\n10:30;4\n11:00;3\n",
        runs={"": "min A / 0 5 / 60 4 / 90 3"},
    ),
    Layout(
        "a header that says how times are written, but not whether they are times of day",
        "time [hh:mm];A (mM)\n09:30;5\n10:30;4\n11:00;3\n",
        choices=("clock", "elapsed"),
    ),
    *(
        Layout(
            f"tables with own conditions: {where}",
            {"S": text},
            runs={one: "min A / 0 1 / 10 .9", other: "min A / 0 1 / 10 .7"},
            given={one: {"T": 313.15, **more[0]}, other: {"T": 333.15, **more[1]}},
        )
        for where, one, other, more, text in (
            (
                "side by side",
                *("1", "2", ({}, {})),
                "Temp. [°C]|40||Temp. [°C]|60\nt [min]|A||t [min]|A\n0|1||0|1\n10|.9||10|.7\n",
            ),
            (
                "side by side, titles",
                *("Run A", "Run B", ({"c0": 1}, {"c0": 2})),
                "Run A|||Run B\nT / °C|40||T / °C|60\nc0 / mM|1||c0 / mM|2\n\n"
                "t / min|A||t / min|A\n0|1||0|1\n10|.9||10|.7\n",
            ),
            (
                "side by side, in one cell each",
                *("1", "2", ({}, {})),
                "T: 40 °C|||T: 60 °C\nt / min|A||t / min|A\n0|1||0|1\n10|.9||10|.7\n",
            ),
            (
                "one below the other",
                *("1", "2", ({}, {})),
                "T / °C|40\nt / min|A\n0|1\n10|.9\n\nT / °C|60\nt / min|A\n0|1\n10|.7\n",
            ),
            (
                "two names in one line, which hold for both tables",
                *("run 1", "run 2", ({"p": 2}, {"T": 313.15, "p": 2})),
                "T [°C]|40|p [bar]|2\n\nrun 1|||run 2\nt [min]|A||t [min]|A\n"
                "0|1||0|1\n10|.9||10|.7\n",
            ),
        )
    ),
)


@pytest.mark.parametrize("layout", FOUND_LATER, ids=lambda layout: layout.like)
def test_layouts_that_users_found_are_understood(layout, tmp_path):
    assert mistakes(layout, tmp_path, "file") == []


def test_standard_deviations_of_some_values_are_left_out_with_a_remark(tmp_path):
    text = "t/min,A_1,A_2,sd_A_1\n0,1.0,0.98,0.02\n10,0.6,0.62,0.02\n20,0.37,0.35,0.02\n"
    book = igpe.read_workbook(Layout("", text).write(tmp_path, "file"))
    assert book.sigma == {}
    assert book.left_out == {"sd_A_1": "some values of 'A' have no standard deviation"}
    (run,) = book.experiments(BATCH, start={"A": 1.0, "B": 0.0})
    assert len(run.measurements.value) == 6


def test_a_stated_decimal_comma_makes_points_separate_thousands(tmp_path):
    path = Layout("", "t [s];A [mM]\n0;1.234\n50;0.5\n100;0,3\n").write(tmp_path, "file")
    with pytest.raises(igpe.errors.DataError, match=r"1.234'.*point may separate.*decimal=','"):
        igpe.read_workbook(path)
    book = igpe.read_workbook(path, decimal=",")
    assert book.runs[0].table["A"].tolist() == [1234, 0.5, 0.3]
    assert not any("igpe reads" in w for w in book.warnings)


def test_the_column_with_a_unit_of_time_is_suggested(tmp_path):
    path = Layout("", "Baum,Alter / d,Umfang / mm\n1,118,30\n1,484,58\n").write(tmp_path, "file")
    with pytest.raises(igpe.errors.DataError, match=r"roles=\{'Alter / d': 'time'\}"):
        igpe.read_workbook(path)


def test_answers_to_questions(tmp_path):
    path = LAYOUTS["dates that are ambiguous"].write(tmp_path, "file")
    with pytest.raises(Question) as asked:
        igpe.read_workbook(path)
    last = [
        igpe.read_workbook(path, **how).runs[0].table["time"].iloc[-1]
        for how in asked.value.choices.values()
    ]
    assert last == [24 * 90, 24 * 3]  # 1 May, 5 January


def test_units_of_the_model_and_other_measurements(tmp_path):
    units = kinetics.Units("mol", "L", "h")
    reactor = kinetics.Batch(["A -> B"], bounds={"k1": (0, 50)}, units=units)
    book = igpe.read_workbook(warm_sheets(tmp_path), sheets=["run 60"])
    runs = book.experiments(reactor, start={"A": 0.01, "B": 0.0})
    problem = igpe.Problem(reactor, parameters=["k1"], experiments=runs)
    assert igpe.estimate(problem, certify=False).parameters["k1"] == pytest.approx(60 * K, rel=1e-3)


def test_what_is_wrongly_said_is_refused(tmp_path):
    path = LAYOUTS["title line"].write(tmp_path, "file")
    for more, says in (
        ({"roles": {"tme [min]": "time"}}, "Did you mean 'time \\[min\\]'"),
        ({"roles": {"A [mol/L]": "temperature"}}, "the roles are 'time'"),
        ({"sheets": ["Sheet2"]}, "Did you mean 'Sheet1'"),
        ({"decimal": ";"}, "decimal=','"),
    ):
        with pytest.raises(igpe.errors.DataError, match=says):
            igpe.read_workbook(path, **more)


def test_a_file_of_many_cells_is_refused(tmp_path):
    path = tmp_path / "long.csv"
    pd.DataFrame(np.zeros((300_000, 4)), columns=list("tABC")).to_csv(path, index=False)
    with pytest.raises(igpe.errors.DataError, match=r"igpe reads at most 1,000,000 cells"):
        igpe.read_workbook(path)


def test_the_table_shows_what_was_understood(tmp_path):
    book = book_of(tmp_path, "metadata block")
    rows = book.table().set_index("name")
    assert rows.loc["T", "values"] == "333.15 (= 60 °C)"
    assert rows.loc["A", ["role", "cells"]].tolist() == ["measured", "Run!B9:B12"]
    assert "333.15" in repr(book)
    assert "<table" in book._repr_html_()


def test_sheets_of_one_experiment_are_put_together(tmp_path):
    path = LAYOUTS["sheets of one experiment"].write(tmp_path, "file")
    book = igpe.read_workbook(path, together=True)
    assert [r.name for r in book.runs] == [""]
    assert book.runs[0].table.to_numpy().tolist() == [[0, 1, 7], [10, 0.8, 6.8], [20, 0.6, 6.5]]


def test_the_report_can_name_the_file(tmp_path):
    path = LAYOUTS["long with conditions"].write(tmp_path, "file")
    named = f"file.xlsx, SHA-256 {sha256(path.read_bytes()).hexdigest()}"
    book = igpe.read_workbook(path)
    runs = book.experiments(inputs=[])
    assert [r.source for r in runs] == [named] * 2
    assert book.frame().attrs[SOURCE] == named


def test_replicates_of_tables_that_are_put_together_are_kept(tmp_path):
    text = "t_A (min),A (mM),t_B (min),B (mM)\n0,10,0,1\n0,11,5,3\n5,7,9,4\n"
    path = Layout("", text).write(tmp_path, "file")
    (run,) = igpe.read_workbook(path, together=True).runs
    assert run.table["A"].dropna().tolist() == [10, 11, 7]
    assert run.table["B"].dropna().tolist() == [1, 3, 4]


def test_tables_at_two_temperatures_are_not_one_experiment(tmp_path):
    sheets = {"A, 50 °C": "t [min]|A\n0|10\n5|7\n", "B, 60 °C": "t [min]|B\n0|0\n5|4\n"}
    path = Layout("", sheets).write(tmp_path, "file")
    with pytest.raises(igpe.errors.DataError, match="'T' is 50 °C in one and 60 °C in another"):
        igpe.read_workbook(path, together=True)
    assert [r.conditions["T"].value for r in igpe.read_workbook(path, together=False).runs] == [
        323.15,
        333.15,
    ]
