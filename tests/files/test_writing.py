"""Files are written whole or not at all, and never over a file that igpe did not write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import igpe
from igpe.cli import app
from igpe.core.files import require_writable, write

PAGE = '<!DOCTYPE html>\n<meta name="generator" content="igpe">\n<p>{}</p>'
OWN = {
    "answer": '{{\n  "command": "estimate",\n "x": {}}}',
    "stored": '{{\n  "stored": "result",\n "x": {}}}',
    "certificate": '{{\n  "format": "igpe dynamic certificate 1",\n "x": {}}}',
    "page": PAGE,
    "parameters": "parameterId\testimate\tstandardErrorOnScale\nk\t{}\t0.1\n",
}
OTHERS = {
    "a problem file": "def problem():\n    pass\n",
    "a table": "time,A\n0,1\n",
    "a file about igpe": "# " + PAGE,
    "an empty file": "",
    "other JSON": '{"format": 1}',
    "a page": "<html><p>igpe</p></html>",
    "a parameter table": "parameterId\testimate\tlowerBound\nk\t1\t0\n",
    "no text": b"\x00\xff" * 9000,
}


@pytest.mark.parametrize("kind", OWN)
def test_own_files_are_replaced_by_their_kind(kind: str, tmp_path: Path) -> None:
    """Twice the same command is convenient."""
    for number in (1, 2):
        write(tmp_path / "out", OWN[kind].format(number))
        assert str(number) in (tmp_path / "out").read_text()
    for other in set(OWN) - {kind}:
        with pytest.raises(igpe.errors.DataError, match="same kind"):
            write(tmp_path / "out", OWN[other].format(3))
    with pytest.raises(igpe.errors.DataError, match="same kind"):
        write(tmp_path / "out", "what has no mark")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_result_of_version_0_1_is_replaced(tmp_path: Path) -> None:
    """It had no mark."""
    (tmp_path / "out").write_text('{\n  "estimates": [\n    {\n      "name": "p1",')
    write(tmp_path / "out", OWN["stored"].format(1))
    assert '"stored"' in (tmp_path / "out").read_text()


@pytest.mark.parametrize("there", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", OWN)
def test_files_of_others_stay(there: str | bytes, kind: str, tmp_path: Path) -> None:
    """Whatever is written; with force it is replaced."""
    content = there if isinstance(there, bytes) else there.encode()
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(igpe.errors.DataError, match="already exists"):
        write(tmp_path / "out", OWN[kind].format(1))
    with pytest.raises(igpe.errors.DataError, match="already exists"):
        require_writable(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content
    write(tmp_path / "out", OWN[kind].format(1), force=True)
    assert (tmp_path / "out").read_text() == OWN[kind].format(1)


def test_links(tmp_path: Path) -> None:
    """A link that leads nowhere is not followed; another stays, and its file is judged."""
    (tmp_path / "nowhere").symlink_to(tmp_path / "there.py")
    with pytest.raises(igpe.errors.DataError, match="target does not exist"):
        write(tmp_path / "nowhere", "x", force=True)
    assert not (tmp_path / "there.py").exists()
    (tmp_path / "user.py").write_text("user = 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "user.py")
    with pytest.raises(igpe.errors.DataError, match="already exists"):
        write(tmp_path / "link", PAGE.format(1))
    (tmp_path / "user.py").write_text(PAGE.format(1))
    write(tmp_path / "link", PAGE.format(2))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "user.py").read_text() == PAGE.format(2)


def test_permissions_are_kept(tmp_path: Path) -> None:
    """A new file is as the umask says, a replaced one as it was."""
    before = os.umask(0o027)
    try:
        write(tmp_path / "out", PAGE.format(1))
        assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
        (tmp_path / "out").chmod(0o600)
        write(tmp_path / "out", PAGE.format(2))
        assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_what_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk."""
    write(tmp_path / "out", PAGE.format(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write(tmp_path / "out", PAGE.format(2))
    assert (tmp_path / "out").read_text() == PAGE.format(1)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_pipes_are_written_to(tmp_path: Path) -> None:
    """`--json >(jq .)` of a shell."""
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE, text=True)
    write(tmp_path / "pipe", "text")
    assert reader.communicate(timeout=20)[0] == "text"


MODEL = """
import igpe, pandas as pd, pyomo.environ as pyo
from pyomo import dae
def model(times):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var(bounds=(0, 5))
    m.ode = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    return m
def problem():
    return igpe.Problem(model, parameters=["k"], experiments=[
        igpe.Experiment("data.csv", start={"A": 1.0})])
"""


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--json", "model.py"),
        ("--json", "data.csv"),
        ("--json", "notes.json"),
        ("--plot", "mine.png"),
        ("--plot", "mine.svg"),
        ("--plot", "mine.pdf"),
    ],
)
def test_commands_refuse_before_the_work(option: str, name: str, tmp_path: Path) -> None:
    """The problem file, its data and everything else of the user's stays."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text("time,A\n0,1\n1,0.6\n2,0.37\n3,0.22\n")
    for other in ("notes.json", "mine.png", "mine.svg", "mine.pdf"):
        (tmp_path / other).write_text("{}")
    before = (tmp_path / name).read_bytes()
    done = _igpe(tmp_path, "check", "model.py", option, name)
    assert done.returncode == 2
    assert "already exists" in done.stderr
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.slow
def test_commands_twice(tmp_path: Path) -> None:
    """JSON and pictures of the first time are replaced by the second."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text("time,A\n0,1\n1,0.6\n2,0.37\n3,0.22\n")
    for ending in ("png", "svg", "pdf"):
        for _ in range(2):
            done = _igpe(tmp_path, "check", "model.py", "--json", "a.json", "--plot", f"a.{ending}")
            assert done.returncode == 0, done.stderr
    done = _igpe(tmp_path, "simulate", "model.py", "--set", "k=1", "--json", "a.json")
    assert "same kind" in done.stderr


def _igpe(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, list(words))
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


KILLED = """
import sys
from igpe.core.files import write
content = '{\\n  "stored": "result",\\n "x": "%s"}'
number = 0
print("ready", flush=True)
while True:
    number += 1
    write(sys.argv[1], content % (str(number % 10) * 200_000))
"""


def test_a_kill_leaves_a_whole_file(tmp_path: Path) -> None:
    """The old one or the new one."""
    place = tmp_path / "out.json"
    for delay in (0.02, 0.05):
        command = [sys.executable, "-c", KILLED, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(delay)
            except subprocess.TimeoutExpired:
                child.kill()
        text = place.read_text() if place.exists() else ""
        assert not text or (len(text) == len('{\n  "stored": "result",\n "x": ""}') + 200_000)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    path = tmp_path / "missing" / "result.json"
    with pytest.raises(
        igpe.errors.DataError, match=r"folder of '.*missing/result.json' does not exist"
    ):
        write(path, "{}")
