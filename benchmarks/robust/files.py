"""Damaged and hostile files of all formats, each read in a process of its own.

Compared with nothing: each case must end as files of strangers must. The files are those of
`tests/files/sound`, damaged by a seed (bits, ends, pieces, numbers, hostile words; in workbooks
inside the zip), and a list of attacks. In the folder lie modules, option files and configurations
that leave a canary if they are run. A process has 1 GiB of address space beyond that of the
imported libraries, 10 s of processor time, and no sockets. Counted are canaries, unpickled classes
and programs that start (executions), exceptions that are not igpe's and control characters that
reach the terminal (tracebacks), processes that a limit ends, and attempts to reach a network.
"""

import argparse
import ast
import importlib
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Row, at_least, at_most
from trust.run import Answer, run
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.dynamics.search.engine import _told
from igpe.tasks.run import Store

ROOT = Path(__file__).resolve().parents[2]
SOUND = ROOT / "tests" / "files" / "sound"
MEMORY, SECONDS = 2**30, 10.0
CANARY = "__import__('pathlib').Path('canary').touch()"
MODULES = ("pickle", "numpy", "yaml", "openpyxl", "pysb", "sitecustomize", "json", "pyarrow")
SEEDS = {  # damaged copies of each sound file
    "table.csv": 60,
    "table.xlsx": 60,
    "table.parquet": 40,
    "result.json": 60,
    "profiles.json": 30,
    "bootstrap.json": 30,
    "prediction.json": 30,
    "plan.json": 30,
    "certificate.json": 40,
    "campaign.db": 40,
    "petab1": 60,
    "petab2": 60,
}
WORDS = (
    f"\n{CANARY}\n#",
    f'"""\n{CANARY}\n"""',
    "m**9**9**9**9",
    "9^9^9^9^9",
    "10^10^10^10^10",
    "exp(exp(exp(exp(99))))",
    "1e999999999",
    "9" * 5000,
    "../../../etc/passwd",
    "/etc/passwd",
    "http://127.0.0.1:9/x",
    "https://example.org/x.tsv",
    "file:///etc/passwd",
    "pysb",
    '=HYPERLINK("http://127.0.0.1:9")',
    "<script>alert(1)</script>",
    "$\\frac$",
    "$x_{",
    "[/b]",
    "\x1b]0;x\x07",
    "\u202e",
    "\x00",
    "[" * 3000,
    "{" * 3000,
    "(" * 3000,
    "&a [*a,*a]",
    "NaN",
    "-Infinity",
    "null",
    "1/0 A -> B",
    "!!python/object/apply:os.system [touch canary]",
    "cos\nsystem\n(S'touch canary'\ntR.",
    "<!DOCTYPE x [<!ENTITY a 'b'>]>",
    "",
)
REACTIONS = (
    "1/0 A -> B",
    "9" * 5000 + " A -> B",
    "9999999999 A -> B",
    "A" * 100_000 + " -> B",
    "A -> " + " + ".join(["B"] * 20_000),
    "A -> \nB",
    "A -> B\x1b]0;x\x07",
    "A -> __import__",
    "A**9**9**9 -> B",
    "-> ->",
    "1e9 A -> B",
    "\u0661 A -> B",
)


# Damage ------------------------------------------------------------------------------------------


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four damages."""
    for _ in range(chance.randint(1, 4)):
        content = chance.choice(DAMAGES)(content, chance)
    return content


def _place(content: bytes, chance: random.Random) -> int:
    return chance.randrange(len(content) + 1)


def _flip(content: bytes, chance: random.Random) -> bytes:
    raw = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        if raw:
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(raw)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: _place(content, chance)]


def _remove(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + content[at + chance.randint(1, 200) :]


def _again(content: bytes, chance: random.Random) -> bytes:
    at, size = _place(content, chance), chance.randint(1, 400)
    return content[:at] + content[at : at + size] * chance.randint(2, 50) + content[at:]


def _word(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + chance.choice(WORDS).encode() + content[at:]


def _entry(content: bytes, chance: random.Random) -> bytes:
    """A word in the place of an entry between two separators."""
    marks = [i for i, c in enumerate(content) if c in b',\t\n:"<>;[]']
    if len(marks) < 2:
        return content
    k = chance.randrange(len(marks) - 1)
    word = chance.choice(WORDS).encode()
    return content[: marks[k] + 1] + word + content[marks[k + 1] :]


def _number(content: bytes, chance: random.Random) -> bytes:
    digits = [i for i, c in enumerate(content) if c in b"0123456789"]
    if not digits:
        return content
    at = chance.choice(digits)
    other = chance.choice((b"1e400", b"-1", b"99999999999999999999", b"0", b"nan", b"1e-320"))
    return content[:at] + other + content[at + 1 :]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _remove,
    _again,
    _word,
    _word,
    _entry,
    _entry,
    _entry,
    _number,
)


def _damaged_workbook(content: bytes, chance: random.Random) -> bytes:
    """Damage inside one of the zip's parts, or of the zip itself."""
    if chance.random() < 0.25:
        return damaged(content, chance)
    made = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = chance.choice(old.namelist())
        for name in old.namelist():
            part = old.read(name)
            new.writestr(name, damaged(part, chance) if name == chosen else part)
    return made.getvalue()


def _damage(name: str, seed: int) -> None:
    """The sound file in the current folder, damaged."""
    chance = random.Random(f"{name} {seed}")
    if (SOUND / name).is_dir():
        shutil.copytree(SOUND / name, ".", dirs_exist_ok=True)
        file = chance.choice(sorted(p for p in Path().iterdir() if (SOUND / name / p).is_file()))
    else:
        shutil.copy(SOUND / name, name)
        file = Path(name)
    change = _damaged_workbook if file.suffix == ".xlsx" else damaged
    file.write_bytes(change(file.read_bytes(), chance))


# Attacks -----------------------------------------------------------------------------------------


def _header(header: str) -> None:
    table = f'"{header}",t / h\n' + "\n".join(f"{1 / (k + 1)},{k}" for k in range(6))
    Path("table.csv").write_text(table, encoding="utf-8")


def _sheet(cells: str, dimension: str = "A1:B3") -> None:
    """The sound workbook with other cells."""
    with (
        zipfile.ZipFile(SOUND / "table.xlsx") as old,
        zipfile.ZipFile("table.xlsx", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            part = old.read(name)
            if "worksheets/sheet" in name:
                part = (
                    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
                    f'<dimension ref="{dimension}"/><sheetData>{cells}</sheetData></worksheet>'
                ).encode()
            new.writestr(name, part)


def _inline(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def _bomb() -> None:
    _sheet("<row r='1'><c r='A1'><v>" + "1" * (400 * 2**20) + "</v></c></row>")


def _parquet(rows: int) -> None:
    zeros = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array([0.0]))
    with pq.ParquetWriter("table.parquet", pa.schema([("A", zeros.type)])) as writer:
        batch = pa.table({"A": zeros})
        for _ in range(rows // 1000):
            writer.write_table(batch)


def _petab(version: int, old: str, new: str) -> None:
    shutil.copytree(SOUND / f"petab{version}", ".", dirs_exist_ok=True)
    for file in sorted(p for p in Path().iterdir() if p.suffix in (".tsv", ".yaml", ".xml")):
        text = file.read_text(encoding="utf-8")
        if old in text and file.name != "pysb.py":
            file.write_text(text.replace(old, new), encoding="utf-8")


def _math(inside: str) -> None:
    """The sound model with another rate."""
    shutil.copytree(SOUND / "petab1", ".", dirs_exist_ok=True)
    model = Path("model.xml")
    text = model.read_text(encoding="utf-8")
    law = text.index("<kineticLaw>")
    start, end = text.index("<math", law), text.index("</math>", law) + len("</math>")
    math = f'<math xmlns="http://www.w3.org/1998/Math/MathML">{inside}</math>'
    model.write_text(text[:start] + math + text[end:], encoding="utf-8")


def _power(depth: int) -> str:
    return "<cn>9</cn>" if not depth else f"<apply><power/><cn>9</cn>{_power(depth - 1)}</apply>"


def _json(name: str, change: Callable[[Any], Any]) -> None:
    stored = json.loads((SOUND / name).read_text(encoding="utf-8"))
    Path(name).write_text(json.dumps(change(stored) or stored), encoding="utf-8")


def _shared_children(stored: Any) -> None:
    box = stored["tree"][0]
    last = {**box, "reason": "bound", "children": []}
    both = [{**box, "reason": "split", "children": [k + 1, k + 1]} for k in range(40)]
    stored["tree"] = [*both, last]


def _renamed(stored: Any) -> Any:
    """All names of the answer hostile."""
    text = json.dumps(stored)
    evil = json.dumps("$\\frac$[/b]\x1b]0;x\x07<script>x</script>")[1:-1]
    return json.loads(text.replace('"k"', f'"{evil}"'))


def _database(*words: str, mark: int = 0) -> None:
    with closing(sqlite3.connect("campaign.db")) as file, file:
        for one in words:
            file.execute(one)
        file.execute(f"PRAGMA application_id = {mark}")


VIEW = (
    "CREATE VIEW outcomes AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT 'DONE' AS status, x AS seconds, '' AS message, '{}' AS row, x AS series, x AS key "
    "FROM n"
)
SHEETS = {
    "last cell": f"<row r='1'>{_inline('A1', 't')}</row><row r='1048576'>"
    f"{_inline('XFD1048576', 'x')}</row>",
    "row 2e9": f"<row r='1'>{_inline('A1', 't')}</row><row r='2000000000'>"
    f"{_inline('A2000000000', 'x')}</row>",
    "formatted to the end": f"<row r='1'>{_inline('A1', 't')}{_inline('B1', 'A')}</row>"
    "<row r='2'><c r='A2'><v>1</v></c><c r='B2'><v>1</v></c></row>"
    "<row r='1048576'><c r='XFD1048576'/></row>",
    "a million cells": "<row r='1'>" + "<c><v>1</v></c>" * 1_000_000 + "</row>",
    "many rows": "".join(f"<row r='{k}'/>" for k in range(1, 300_000)),
    "hostile header": f"<row r='1'>{_inline('A1', 't / h')}{_inline('B1', 'A [mol&#10;x&#10;]')}"
    "</row><row r='2'><c r='A2'><v>1</v></c><c r='B2'><v>1</v></c></row>",
}
MATHS = {
    "powers": _power(6),
    "nested": "<apply><minus/>" * 50_000 + "<ci>A</ci>" + "</apply>" * 50_000,
    "factorial": "<apply><factorial/><cn>99999999</cn></apply>",
    "e-notation": '<cn type="e-notation">1<sep/>999999999</cn>',
    "root": "<apply><root/><degree><cn>0</cn></degree><ci>A</ci></apply>",
    "division by zero": "<apply><divide/><cn>1</cn><cn>0</cn></apply>",
    "huge power": "<apply><power/><ci>A</ci><cn>999999999</cn></apply>",
    "no mathematics": "",
    "unknown name": "<ci>nothing</ci>",
    "not a number": "<notanumber/>",
    "infinity": "<infinity/>",
    "exponentials": "<apply><exp/>" * 5 + "<cn>99</cn>" + "</apply>" * 5,
}
ALIASES = "a: &a [x]\n" + "".join(
    f"b{k}: &b{k} [{', '.join([f'*b{k - 1}' if k else '*a'] * 10)}]\n" for k in range(12)
)
TEXTS = tuple(  # pint passes over texts in units; brackets in brackets would be no unit
    f"mol {mark}\n    import canaries\n    {end}{mark}"
    for mark in ("'''", '""' * 3)
    for end in ("#", "x = ", "")
)
ATTACKS: dict[str, Callable[[], None]] = {
    **{f"header {k}": lambda w=w: _header(f"A [mol{w}]") for k, w in enumerate(WORDS)},
    **{f"name {k}": lambda w=w: _header(f"{w} A [mol/L]") for k, w in enumerate(WORDS)},
    **{f"header text {k}": lambda t=t: _header(f"A [{t}]") for k, t in enumerate(TEXTS)},
    **{f"sheet {name}": lambda c=c: _sheet(c) for name, c in SHEETS.items()},
    "sheet promised": lambda: _sheet(SHEETS["hostile header"], "A1:XFD1048576"),
    "sheet bomb": _bomb,
    "csv 60,000 columns": lambda: Path("table.csv").write_text(
        ",".join(f"c{k}" for k in range(60_000)) + "\n" + ",".join("1" * 60_000)
    ),
    "csv 9,000 columns": lambda: Path("table.csv").write_text(
        "\n".join([
            ",".join(f"c{k}" for k in range(9_000)),
            *[",".join(str(r) * 9_000) for r in range(4)],
        ])
    ),
    "csv short rows": lambda: Path("table.csv").write_text(
        ",".join(f"c{k}" for k in range(9_000)) + "\n1" * 1_000_000
    ),
    "csv 200 MB": lambda: Path("table.csv").write_bytes(b"t,A\n" + b"1,2\n" * 50_000_000),
    "csv one line": lambda: Path("table.csv").write_bytes(b"1" * 40_000_000),
    "csv quotes": lambda: Path("table.csv").write_bytes(b'"' * 1_000_001),
    "parquet promised": lambda: _parquet(50_000_000),
    "parquet is a workbook": lambda: shutil.copy(SOUND / "table.xlsx", "table.parquet"),
    "workbook is a table": lambda: shutil.copy(SOUND / "table.csv", "table.xlsx"),
    **{f"reaction {k}": lambda: None for k in range(len(REACTIONS))},
    **{
        f"petab{v} {where}": lambda v=v, w=w, t=t: _petab(v, f"{t}{'_2' * (v == 2)}.tsv", w)
        for v in (1, 2)
        for where, w, t in (
            ("address", "http://127.0.0.1:9/x.tsv", "measurements" if v == 1 else "measurement"),
            ("above", "../x.tsv", "measurements" if v == 1 else "measurement"),
            ("absolute", "/etc/passwd", "measurements" if v == 1 else "measurement"),
        )
    },
    "petab2 pysb": lambda: _petab(2, "language: sbml", "language: pysb"),
    "petab2 model address": lambda: _petab(2, "model.xml", "http://127.0.0.1:9/model.xml"),
    "petab1 aliases": lambda: Path("problem.yaml").write_text(ALIASES),
    "petab1 nested": lambda: Path("problem.yaml").write_text("[" * 100_000),
    "petab1 tag": lambda: Path("problem.yaml").write_text(
        "!!python/object/apply:os.system ['touch canary']"
    ),
    **{f"petab1 math {name}": lambda m=m: _math(m) for name, m in MATHS.items()},
    "petab1 entities": lambda: _petab(1, "<sbml", "<!DOCTYPE x [<!ENTITY a 'b'>]><sbml"),
    "petab1 sizes": lambda: _petab(1, 'size="2"', 'size="0"'),
    **{
        f"petab{v} formula {k}": lambda v=v, f=f: _petab(v, "\tA\t", f"\t{f}\t")
        for v in (1, 2)
        for k, f in enumerate((*WORDS[3:8], "A^999999999", "(" * 3000 + "A", "A" * 100_000))
    },
    "result nested": lambda: Path("result.json").write_text('{"format": ' + "[" * 200_000),
    "result numbers": lambda: _json("result.json", lambda s: s.update(objective=10**400)),
    "result names": lambda: _json("result.json", _renamed),
    "profiles names": lambda: _json("profiles.json", _renamed),
    "bootstrap names": lambda: _json("bootstrap.json", _renamed),
    "result 200 MB": lambda: Path("result.json").write_bytes(b"[" + b"[]," * 70_000_000),
    "certificate shared": lambda: _json("certificate.json", _shared_children),
    "certificate loop": lambda: _json(
        "certificate.json", lambda s: s["tree"][0].update(children=[0, 0])
    ),
    "certificate names": lambda: _json("certificate.json", _renamed),
    "campaign view": lambda: _database(VIEW),
    "campaign of others": lambda: _database("CREATE TABLE theirs (x)", mark=1234),
    "campaign trigger": lambda: _database(
        "CREATE TABLE outcomes (series, key, status, seconds, message, row)",
        "CREATE TRIGGER t AFTER INSERT ON outcomes BEGIN DELETE FROM outcomes; END",
    ),
    **{f"folder {name}": lambda: None for name in ("new", "check", "estimate", "certify")},
}
CASES = [f"{name} {seed}" for name, count in SEEDS.items() for seed in range(count)]
CASES += [f"attack {name}" for name in ATTACKS]


# Reading -----------------------------------------------------------------------------------------


REFUSED: list[str] = []  # messages of igpe


def _command(*words: str) -> list[str]:
    """Run a command of igpe here; the last lines of a traceback, if there was one."""
    done = CliRunner().invoke(app, list(words))
    said = done.output
    REFUSED.extend([said] if done.exit_code and words[0] != "convert" else [])
    wrong = [c for c in "\x1b\x07\u202e\x9b" if c in said]
    raw = [f"{words[0]}: raw {wrong}"] if wrong else []
    if done.exception is None or isinstance(done.exception, (SystemExit, OSError)):
        return raw
    return [*raw, f"{words[0]}: {type(done.exception).__name__}: {str(done.exception)[:200]}"]


def _guarded(name: str, deed: Callable[[], Any]) -> list[str]:
    try:
        deed()
    except (igpe.errors.IgpeError, OSError) as error:
        REFUSED.append(str(error))
        return []
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {str(error)[:200]}"]
    return []


def _imports(text: str) -> set[str]:
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import)]
    return {alias.name for n in nodes for alias in n.names}


def _read_table(file: str) -> list[str]:
    for old in ("drafted.py", "out.csv", "out.xlsx"):
        Path(old).unlink(missing_ok=True)
    wrong = _command("new", "drafted.py", "--data", file)
    if Path("drafted.py").exists():
        text = Path("drafted.py").read_text(encoding="utf-8")
        kinds = {type(node).__name__ for node in ast.parse(text).body}
        if not kinds <= {"Expr", "Import", "ImportFrom", "Assign", "FunctionDef"}:
            wrong.append(f"new wrote {kinds}")
        body = [n for n in ast.parse(text).body if isinstance(n, ast.Expr)]
        if any(not isinstance(n.value, ast.Constant) for n in body) or "canaries" in _imports(text):
            Path("canary").touch()  # it would run with the file
    return [*wrong, *_command("convert", file, "out.csv"), *_command("convert", file, "out.xlsx")]


def _read_stored(file: str) -> list[str]:
    kind = {
        "result.json": igpe.Result,
        "profiles.json": igpe.uncertainty.Profiles,
        "bootstrap.json": igpe.uncertainty.Bootstrapped,
        "prediction.json": igpe.uncertainty.Prediction,
        "plan.json": igpe.planning.Plan,
    }[file]
    kept: list[Any] = []
    wrong = _guarded("from_json", lambda: kept.append(kind.from_json(Path(file))))
    for one in kept:
        wrong += _guarded("str", lambda one=one: str(one))
        wrong += _guarded("html", lambda one=one: one._repr_html_())
        wrong += _guarded("plot", lambda one=one: _drawn(one.plot()))
        with suppress(Exception):
            if "<script>x" in one._repr_html_() or "\x1b" in str(one):
                wrong.append("raw text")
    if file == "result.json":
        wrong += _command("report", file, "page.html")
        wrong += _command("convert", file, "out.xlsx")
        wrong += _command("convert", file, "out.tsv")
    return wrong


def _drawn(plot: Any) -> None:
    plot.figure.savefig(BytesIO(), format="svg")


def _read_certificate(file: str) -> list[str]:
    sys.path.insert(0, str(SOUND))
    problem = importlib.import_module("decay").problem()
    wrong = _guarded("verify", lambda: igpe.verify(Path(file), problem, seconds=2.0))
    kept: list[Any] = []
    kind = igpe.proofs.DynamicCertificate
    wrong += _guarded("from_json", lambda: kept.append(kind.from_json(Path(file))))
    for one in kept:
        wrong += _guarded("str", lambda one=one: str(one))
        wrong += _guarded("plot", lambda one=one: _drawn(one.plot()))
    return wrong


def _read_store(file: str) -> list[str]:
    with suppress(sqlite3.Error), closing(sqlite3.connect(SOUND / file)) as sound:
        keys = sound.execute("SELECT series, key FROM outcomes").fetchall()

    def deed() -> None:
        for series, key in keys:
            store = Store(file, series)
            try:
                outcome = store.get(key, None)
                if outcome is not None:
                    store.add([outcome])
                    _told(outcome, ("k", "A(t0)"))
            finally:
                store.close()

    return _guarded("store", deed)


def _read_petab(file: str) -> list[str]:
    return _guarded("read_petab", lambda: igpe.petab.read_petab(Path(file)))


READ: dict[str, Callable[[str], list[str]]] = {
    ".csv": _read_table,
    ".xlsx": _read_table,
    ".parquet": _read_table,
    ".json": _read_stored,
    ".db": _read_store,
    ".yaml": _read_petab,
}
COMMANDS = {
    "new": ("new", "drafted.py", "--data", "table.csv"),
    "check": ("check", "decay.py", "--plot", "map.png"),
    "estimate": ("estimate", "decay.py", "--json", "out.json", "--time-limit", "5"),
    "certify": ("certify", "decay.py", "--time-limit", "60", "--certificate", "proof.json"),
}


def _baits() -> None:
    """What lies in the folder of a stranger."""
    for name in MODULES:
        Path(f"{name}.py").write_text(f"open('canary', 'w').close()\nraise ImportError('{name}')\n")
    Path("ipopt.opt").write_text("output_file canary\nfile_print_level 5\n")
    Path(".numba_config.yaml").write_text("cache_dir: .\ncache_locator_classes: pickle\n")
    Path("couenne.opt").write_text("x y\n")
    Path("matplotlibrc").write_text("backend: module://pickle\ntext.usetex: True\n")


def _unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _alone(name: str) -> Answer:
    """A command in a process of its own, begun in the folder."""
    for file in ("decay.py", "decay.csv", "table.csv"):
        shutil.copy(SOUND / file, file)
    done = subprocess.run(
        [sys.executable, "-m", "igpe", *COMMANDS[name]],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=_unlimited,  # an estimate and its proof: the limit is that of reading files
    )
    wrong = ["traceback"] if "Traceback" in done.stderr else []
    refused = [done.stderr[-200:]] if done.returncode else []
    return {"wrong": wrong + refused, "executed": Path("canary").exists(), "network": []}


def _listener(network: list[str], programs: list[str]) -> Callable[[str, Any], None]:
    def hear(event: str, given: Any) -> None:
        if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request", "socket.bind"):
            network.append(event)
            raise OSError("There is no network.")
        if event in ("subprocess.Popen", "os.system", "os.exec", "pickle.find_class"):
            programs.append(f"{event} {given!r:.80}")

    return hear


def _read(case: str) -> Answer:
    """What reading the case's files comes to."""
    group, _, name = case.partition(" ")
    before, folder = Path.cwd(), tempfile.mkdtemp(prefix="igpe-files-")
    network: list[str] = []
    programs: list[str] = []
    try:
        os.chdir(folder)
        _baits()
        if name.startswith("folder"):
            return _alone(name.split()[1])
        if group == "attack":
            ATTACKS[name]()
        else:
            _damage(group, int(name))
        sys.addaudithook(_listener(network, programs))
        most = MEMORY + _taken()
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if name.startswith("reaction"):
            shutil.copy(SOUND / "decay.csv", "table.csv")
            said = REACTIONS[int(name.split()[1])]
            wrong = _command("new", "drafted.py", "--data", "table.csv", "--reaction", said)
        else:
            wrong = [w for file in _given() for w in _reader(file)(file)]
        executed = Path("canary").exists() or bool(programs)
        return {"wrong": wrong, "executed": executed, "network": network, "programs": programs}
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def _taken() -> int:
    """Bytes of address space that libraries reserve before anything is read."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _given() -> list[str]:
    known = [p.name for p in sorted(Path().iterdir()) if p.suffix in READ and p.name[0] != "."]
    return [name for name in known if name != "drafted.py"]


def _reader(file: str) -> Callable[[str], list[str]]:
    return _read_certificate if file == "certificate.json" else READ[Path(file).suffix]


def _warm() -> None:
    """Everything that reading imports, once, before processes are forked."""
    mpl.use("agg")
    folder = Path(tempfile.mkdtemp(prefix="igpe-files-"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        for name in SEEDS:
            if (SOUND / name).is_dir():
                shutil.copytree(SOUND / name, ".", dirs_exist_ok=True)
            else:
                shutil.copy(SOUND / name, name)
        REFUSED.clear()
        for file in _given():
            wrong = _reader(file)(file)
            if wrong or REFUSED:
                raise RuntimeError(f"The sound file {file} is refused: {wrong} {REFUSED}")
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Counts over all cases."""
    _warm()
    answers = run("files", CASES, _read, given, limit=SECONDS)
    for case, answer in answers.items():
        if (
            answer.get("wrong")
            or answer.get("executed")
            or "killed" in answer
            or answer.get("network")
        ):
            print(case, {k: v for k, v in answer.items() if k != "seconds"}, file=sys.stderr)
        elif "crashed" in answer:
            print(case, answer["crashed"], file=sys.stderr)
    told = list(answers.values())
    if not given.quick and not given.only:
        yield at_least("all", "files", len(told), "-", 500)
    yield at_most("all", "executions", sum(bool(a.get("executed")) for a in told), limit=0)
    wrong = sum(bool(a.get("wrong")) or "crashed" in a for a in told)
    yield at_most("all", "tracebacks", wrong, limit=0)
    yield at_most("all", "over 1 GiB or 10 s", sum("killed" in a for a in told), limit=0)
    yield at_most("all", "network attempts", sum(bool(a.get("network")) for a in told), limit=0)
    yield at_most("all", "longest", max((a.get("seconds", 0.0) for a in told), default=0.0), "s")
