"""Files of strangers are refused with a sentence: too large, too deep, elsewhere, or not theirs."""

import json
import shutil
import sqlite3
import sys
import zipfile
from contextlib import closing
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.core.markup import cell, label, printable, quoted
from igpe.formats.kinetics.laws import read_equation
from igpe.problem.tables import read_table
from igpe.proofs.checker.verify import read_tree
from igpe.tasks.run import TABLE, Store

SOUND = Path(__file__).parent / "sound"
sys.path.append(str(SOUND))
EVIL = "$\\frac$[/b]\x1b]0;x\x07<script>x</script>"


# Tables ------------------------------------------------------------------------------------------


def sheet(path: Path, cells: str, dimension: str = "A1:B3") -> Path:
    """A workbook with these cells."""
    with zipfile.ZipFile(SOUND / "table.xlsx") as old, zipfile.ZipFile(path, "w", 8) as new:
        for name in old.namelist():
            part = old.read(name)
            if "worksheets/sheet" in name:
                part = (
                    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
                    f'<dimension ref="{dimension}"/><sheetData>{cells}</sheetData></worksheet>'
                ).encode()
            new.writestr(name, part)
    return path


def text(place: str, entry: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{entry}</t></is></c>'


HEAD = f"<row r='1'>{text('A1', 'time')}{text('B1', 'A')}</row>"
ROW = "<row r='2'><c r='A2'><v>1</v></c><c r='B2'><v>2</v></c></row>"
LAST = "<row r='1048576'><c r='XFD1048576'>{}</c></row>"


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (HEAD + ROW + LAST.format("<v>1</v>"), "1048576 rows and 16384 columns"),
        (HEAD + "<row r='2000000000'><c r='A2000000000'><v>1</v></c></row>", "2000000000 rows"),
        (HEAD + "<row>" + "<c><v>1</v></c>" * 600_000 + "</row>", "cells"),
        ("<row><c><v>" + "1" * 70 * 2**20 + "</v></c></row>", "unpack"),
    ],
    ids=["last cell", "no such row", "many cells", "bomb"],
)
def test_workbooks_that_are_too_large(cells: str, says: str, tmp_path: Path) -> None:
    """By their true cells, before a table is made of them."""
    with pytest.raises(igpe.errors.DataError, match=says):
        read_table(sheet(tmp_path / "a.xlsx", cells))


def test_a_formatted_sheet_is_read(tmp_path: Path) -> None:
    """Spreadsheets keep cells that hold a format alone, down to the last one."""
    table = read_table(sheet(tmp_path / "a.xlsx", HEAD + ROW + LAST.format(""), "A1:XFD1048576"))
    assert table.to_dict("list") == {"time": [1], "A": [2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (",".join(f"c{k}" for k in range(60_000)) + "\n1", "60000 columns"),
        (",".join(f"c{k}" for k in range(9_000)) + "\n1" * 100_000, "9000 columns"),
        ("time,A\n" + "1,2\n" * 3_000_000, "rows"),
    ],
    ids=["columns", "short rows", "rows"],
)
def test_tables_that_are_too_large(content: str, says: str, tmp_path: Path) -> None:
    """What they hold, and what they would be filled up to."""
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(igpe.errors.DataError, match=says):
        read_table(tmp_path / "a.csv")


def test_parquet_that_promises_rows(tmp_path: Path) -> None:
    """A few bytes may stand for any number of equal rows."""
    pd.DataFrame({"A": [0.0] * 6_000_000}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(igpe.errors.DataError, match="6000000 rows"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("text", ["1/0 A -> B", "9999 A -> B", "9" * 5000 + " A -> B", "0 A -> B"])
def test_coefficients(text: str) -> None:
    """Numbers that are none, or of no reaction."""
    with pytest.raises(igpe.errors.ModelError, match="coefficient"):
        read_equation(text)


# PEtab -------------------------------------------------------------------------------------------

MATHS = {
    "powers": "<apply><power/><cn>9</cn><apply><power/><cn>9</cn><apply><power/><cn>9</cn>"
    "<cn>9</cn></apply></apply></apply>",
    "factorial": "<apply><factorial/><cn>99999999</cn></apply>",
    "e-notation": '<cn type="e-notation">1<sep/>999999999</cn>',
    "power": "<apply><power/><ci>A</ci><cn>999999999</cn></apply>",
    "exponentials": "<apply><exp/>" * 5 + "<cn>99</cn>" + "</apply>" * 5,
    "nested": "<apply><minus/>" * 5000 + "<ci>A</ci>" + "</apply>" * 5000,
}


def petab(folder: Path, version: int, old: str = "", new: str = "") -> Path:
    """The sound problem with one text for another in its own files."""
    shutil.copytree(SOUND / f"petab{version}", folder, dirs_exist_ok=True)
    for file in folder.iterdir() if old else ():
        file.write_text(file.read_text().replace(old, new))
    return folder / ("problem.yaml" if version == 1 else "problem2.yaml")


TABLES = {1: "measurements.tsv", 2: "measurement_2.tsv"}


@pytest.mark.parametrize("version", [1, 2])
def test_the_sound_problem_is_read(version: int, tmp_path: Path) -> None:
    """What is refused below is refused for what was changed."""
    assert igpe.petab.read_petab(petab(tmp_path, version)).box.names


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9/x.tsv", "../x.tsv", "/etc/passwd", "file:///etc/passwd"]
)
def test_nothing_is_read_from_elsewhere(version: int, place: str, tmp_path: Path) -> None:
    """Neither from the network nor from other folders."""
    with pytest.raises(igpe.errors.DataError, match="same folder"):
        igpe.petab.read_petab(petab(tmp_path, version, TABLES[version], place))


@pytest.mark.parametrize("version", [1, 2])
def test_links_lead_nowhere_else(version: int, tmp_path: Path) -> None:
    """A link in the problem's folder is a path to elsewhere."""
    path = petab(tmp_path / "problem", version)
    (tmp_path / "problem" / TABLES[version]).replace(tmp_path / "x.tsv")
    (tmp_path / "problem" / TABLES[version]).symlink_to(tmp_path / "x.tsv")
    with pytest.raises(igpe.errors.DataError, match="same folder"):
        igpe.petab.read_petab(path)


def test_models_in_other_languages_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PySB model is a Python program."""
    (tmp_path / "pysb.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    path = petab(tmp_path / "problem", 2, "language: sbml", "language: pysb")
    with pytest.raises(igpe.errors.DataError, match="pysb"):
        igpe.petab.read_petab(path)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "formula", ["9^9^9^9^9", "10^10^10^10", "exp(exp(exp(exp(99))))", "1e999999999", "A^99999999"]
)
def test_formulas_that_never_end(version: int, formula: str, tmp_path: Path) -> None:
    """They are refused before a library computes them."""
    with pytest.raises(igpe.errors.DataError, match=r"too large|beyond"):
        igpe.petab.read_petab(petab(tmp_path, version, "\tA\t", f"\t{formula}\t"))


@pytest.mark.parametrize("math", MATHS.values(), ids=MATHS)
def test_mathematics_that_never_ends(math: str, tmp_path: Path) -> None:
    """The same in SBML, where depth would crash libSBML."""
    path = petab(tmp_path, 1)
    model = (tmp_path / "model.xml").read_text()
    start = model.index("<math", model.index("<kineticLaw>"))
    end = model.index("</math>", start)
    head = model[start : model.index(">", start) + 1]
    (tmp_path / "model.xml").write_text(model[:start] + head + math + model[end:])
    with pytest.raises((igpe.errors.DataError, igpe.errors.ModelError), match=r"beyond|deep|check"):
        igpe.petab.read_petab(path)


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    """Written out they would fill the memory."""
    functions = "".join(
        f'<functionDefinition id="f{k}"><math xmlns="http://www.w3.org/1998/Math/MathML"><lambda>'
        f"<bvar><ci>x</ci></bvar><apply><times/>{inside * 9}</apply></lambda></math>"
        "</functionDefinition>"
        for k in range(9)
        for inside in [f"<apply><ci>f{k - 1}</ci><ci>x</ci></apply>" if k else "<ci>x</ci>"]
    )
    listed = f"<listOfFunctionDefinitions>{functions}</listOfFunctionDefinitions>"
    path = petab(tmp_path, 1, "<listOfCompartments>", listed + "<listOfCompartments>")
    with pytest.raises(igpe.errors.ModelError, match="would expand to"):
        igpe.petab.read_petab(path)


ALIASES = "a: &a [x]\n" + "".join(
    f"b{k}: &b{k} [{', '.join([f'*b{k - 1}' if k else '*a'] * 10)}]\n" for k in range(12)
)


@pytest.mark.parametrize("content", [ALIASES, "[" * 10_000, "a: " * 3 + "b", "x", "[]", "\t", ""])
def test_yaml_that_is_no_problem(content: str, tmp_path: Path) -> None:
    """Aliases that multiply, depth, and what is no mapping."""
    (tmp_path / "problem.yaml").write_text(content)
    with pytest.raises(igpe.errors.DataError):
        igpe.petab.read_petab(tmp_path / "problem.yaml")


def test_entities_are_refused(tmp_path: Path) -> None:
    """They may stand for gigabytes."""
    entity = "<!DOCTYPE x [<!ENTITY a 'b'>]><sbml"
    with pytest.raises(igpe.errors.DataError, match="entities"):
        igpe.petab.read_petab(petab(tmp_path, 1, "<sbml", entity))


# Stored answers ----------------------------------------------------------------------------------

KINDS = {
    "result": igpe.Result,
    "profiles": igpe.uncertainty.Profiles,
    "bootstrap": igpe.uncertainty.Bootstrapped,
    "prediction": igpe.uncertainty.Prediction,
    "plan": igpe.planning.Plan,
    "certificate": igpe.proofs.DynamicCertificate,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("value", ["text", [], 10**400, {"a": []}, True])
def test_entries_of_another_kind(name: str, value: object) -> None:
    """Each entry in turn: igpe's sentence, or an answer that can be shown."""
    stored = json.loads((SOUND / f"{name}.json").read_text())
    for key in stored:
        try:
            found = KINDS[name].from_json(json.dumps({**stored, key: value}))
            str(found)
            if hasattr(found, "_repr_html_"):
                found._repr_html_()
        except igpe.errors.DataError:  # any other error fails the test
            continue


@pytest.mark.parametrize("name", KINDS)
def test_names_are_escaped(name: str) -> None:
    """In texts, pages and pictures."""
    written = (SOUND / f"{name}.json").read_text()
    for own in ('"k"', '"A"'):
        written = written.replace(own, json.dumps(EVIL + own[1]))
    found = KINDS[name].from_json(written)
    assert "\x1b" not in str(found)
    if hasattr(found, "_repr_html_"):
        assert "<script>" not in found._repr_html_()
    with mpl.rc_context({"backend": "agg"}):
        found.plot().figure.savefig(BytesIO(), format="svg")


@pytest.mark.parametrize("read", [igpe.Result.from_json, read_tree])
def test_json_that_is_nested(read, tmp_path: Path) -> None:
    """Deeper than Python reads."""
    (tmp_path / "a.json").write_text('{"format": ' + "[" * 200_000)
    with pytest.raises(igpe.errors.DataError, match="nested"):
        read(tmp_path / "a.json")


def test_certificates_share_no_children() -> None:
    """Forty such boxes would be visited 2^40 times."""
    stored = json.loads((SOUND / "certificate.json").read_text())
    box = stored["tree"][0]
    both = [{**box, "reason": "split", "children": [k + 1, k + 1]} for k in range(40)]
    stored["tree"] = [*both, {**box, "reason": "bound", "children": []}]
    tree = read_tree(stored)
    assert {why for _, why in tree.faults()} >= {"it is the child of several boxes"}


def test_seconds_end_the_integration_of_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one box takes longer than all that is allowed."""
    import decay  # noqa: PLC0415 - lies beside the sound files

    problem, path = decay.problem(), SOUND / "certificate.json"
    assert igpe.verify(path, problem)
    clock = iter(range(10**9))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    found = igpe.verify(path, problem, seconds=5.0)
    assert not found
    assert found.verdict is igpe.proofs.Verdict.NOT_CONFIRMED
    assert next(clock) < 100


# Stores ------------------------------------------------------------------------------------------

VIEW = (
    "CREATE VIEW outcomes AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT 'DONE' AS status, x AS seconds, '' AS message, '{}' AS row, x AS series, x AS key "
    "FROM n"
)
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON outcomes BEGIN DELETE FROM outcomes; END"


@pytest.mark.parametrize(
    "words", [[VIEW], [TABLE, TRIGGER], ["CREATE TABLE theirs (x)"], ["PRAGMA application_id = 7"]]
)
def test_stores_of_others(words: list[str], tmp_path: Path) -> None:
    """They are neither read nor changed."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        for one in words:
            file.execute(one)
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(igpe.errors.DataError, match="another program"):
        Store(tmp_path / "a.db", "s")
    assert (tmp_path / "a.db").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "status = 'BEST'",
        "row = '[' || row",
        "row = '[]'",
        "row = x'00'",
        "seconds = 'x'",
        "message = x'ff'",
        "row = replace(row, '\"parameters\"', '\"p\"')",
        'row = replace(row, \'"k": \', \'"k": "x", "l": \')',
        "row = '{\"equivalent_iterations\": 0}'",
    ],
)
def test_damaged_outcomes(change: str, tmp_path: Path) -> None:
    """igpe's sentence, not a traceback."""
    shutil.copy(SOUND / "campaign.db", tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute(f"UPDATE outcomes SET {change}")
    import decay  # noqa: PLC0415 - lies beside the sound files

    with pytest.raises(igpe.errors.DataError, match=r"damaged|read or written"):
        igpe.campaign(decay.problem(), starts=4, store=tmp_path / "a.db")


def test_a_forged_objective_is_not_believed(tmp_path: Path) -> None:
    """The best is computed again; what igpe kept itself is believed."""
    import decay  # noqa: PLC0415 - lies beside the sound files

    shutil.copy(SOUND / "campaign.db", tmp_path / "a.db")
    found = igpe.campaign(decay.problem(), starts=4, store=tmp_path / "a.db")
    assert found.best.objective > 0.1
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        changed = file.execute(
            "UPDATE outcomes SET row = json_set(row, '$.objective', 1e-30)"
        ).rowcount
    assert changed >= 4  # a start may differ by its last digit on another processor
    with pytest.raises(igpe.errors.DataError, match="1e-30"):
        igpe.campaign(decay.problem(), starts=4, store=tmp_path / "a.db")


# Escaping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("escape", "given", "becomes"),
    [
        (printable, "a\x1b[1m\u202e\x9b\n", "a\\x1b[1m\\u202e\\x9b\n"),
        (quoted, 'a"\n\\\x7f\u2028é', '"a\\"\\n\\\\\\x7f\\u2028é"'),
        (label, "$\\frac$", "\\$\\frac\\$"),
        (cell, "=1+1", "'=1+1"),
        (cell, "-1.5", "-1.5"),
        (cell, "@x", "'@x"),
        (cell, "a\x00", "a\\x00"),
    ],
)
def test_each_target(escape, given: str, becomes: str) -> None:
    """What a text becomes there."""
    assert escape(given) == becomes
    if escape is quoted:
        assert eval(becomes) == given


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_converted_tables_hold_no_formulas(ending: str, tmp_path: Path) -> None:
    """A spreadsheet would compute them, and ask the network."""
    formula = '=HYPERLINK("http://127.0.0.1")'
    table = pd.DataFrame({"time": [0, 1], formula: [1, 2], "remark": [formula, "\x00 -"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    done = CliRunner().invoke(
        app, ["convert", str(tmp_path / "a.csv"), str(tmp_path / f"b.{ending}")]
    )
    assert done.exit_code == 0, done.output
    again = read_table(tmp_path / f"b.{ending}")
    assert list(again.columns) == ["time", f"'{formula}", "remark"]
    assert again["remark"][0] == f"'{formula}"


def test_messages_and_answers_are_printable(tmp_path: Path) -> None:
    """Whatever a table's header holds, the terminal gets letters."""
    (tmp_path / "a.csv").write_text("t,A\x1b]0;x\x07\n0,1\n1,2\n2,4\n")
    done = CliRunner().invoke(
        app, ["new", str(tmp_path / "m.py"), "--data", str(tmp_path / "a.csv")]
    )
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    done = CliRunner().invoke(app, ["check", "a\x1b]0;x\x07.py"])
    assert "\x1b" not in done.stderr
