"""What programs are told, tried on a program that repeats it."""

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_solvers import camel

from igpe.solvers.program import AmplProgram
from igpe.solvers.programs import Couenne, ScipProgram
from igpe.status import Status

ECHO = """#!{python}
import pathlib
for file in sorted(pathlib.Path().iterdir()):
    if file.suffix in (".opt", ".set"):
        print(file.name, file.read_text())
"""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts programs on PATH that print their option files and solve nothing."""
    for name in ("couenne", "scip"):
        program = tmp_path / name
        program.write_text(ECHO.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def said(program: AmplProgram, time_limit: float | None) -> str:
    """What the program printed, as its answer's message."""
    answer = program.solve(camel(), time_limit=time_limit)
    assert answer.status is Status.FAILED
    return answer.message


@pytest.mark.usefixtures("echo")
def test_scip_reads_gap_and_time_limit_from_its_settings() -> None:
    told = said(ScipProgram(gap=0.01), 7.5).splitlines()
    assert told == ["scip.set limits/gap = 0.01", "numerics/feastol = 1e-07", "limits/time = 7.5"]
    assert "limits/time" not in said(ScipProgram(), None)


@pytest.mark.usefixtures("echo")
def test_couenne_reads_its_gap_and_is_told_no_time_limit() -> None:
    told = said(Couenne(gap=0.01), 7.5)
    assert "couenne.opt allowable_fraction_gap 0.01" in told
    assert "time" not in told


@pytest.mark.usefixtures("echo")
def test_only_the_first_file_holds_the_time_limit() -> None:
    program = replace(ScipProgram(), files=(("a.set", "a\n"), ("b.set", "b\n")))
    assert said(program, 3.0).splitlines() == ["a.set a", "limits/time = 3.0", "", "b.set b"]


@pytest.mark.parametrize("program", [Couenne(0.01), ScipProgram(0.01)])
def test_the_gap_that_is_asked_for_is_the_gap_that_is_proved(program: AmplProgram) -> None:
    assert program.proven_gap == 0.01
    assert "install" in program.install
