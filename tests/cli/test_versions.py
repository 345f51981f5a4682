"""igpe --version: packages, solvers found, and how to get the others."""

import stat
import subprocess
import sys
from importlib.metadata import version

import pytest
from command_line import run, started

from igpe.cli import versions


def told():
    done = run("--version")
    assert done.exit_code == 0
    return done.stdout


def test_packages_are_told():
    said = told()
    assert said.startswith("igpe ")
    assert f"Python {sys.version.split()[0]}" in said
    for shown, name in (
        ("Pyomo", "pyomo"),
        ("CasADi", "casadi"),
        ("NumPy", "numpy"),
        ("SciPy", "scipy"),
    ):
        assert f"\n{shown} {version(name)}\n" in said
    assert f"in CasADi {version('casadi')}" in said


def test_what_is_missing_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr(versions, "version", nothing)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    said = told()
    for how in (
        "pip install casadi",
        "pyscipopt",
        "maingopy",
        "idaes get-extensions",
        "pounce-solver",
    ):
        assert how in said
    assert "C compiler: none" in said
    assert said.startswith("igpe (running from source)")


def nothing(name):
    raise versions.PackageNotFoundError(name)


PROGRAMS = {
    "tells": ("echo 'Couenne 0.5.8 -- solver'\n", "Couenne 0.5.8 -- solver"),
    "says nothing": ("exit 1\n", "program"),
    "garbles": ("printf '\\377\\033[31m 0.5\\n'\n", "\ufffd?[31m 0.5"),
    "hangs": ("exec sleep 30\n", "program"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_asked_but_not_waited_for(monkeypatch, tmp_path, name):
    does, expected = PROGRAMS[name]
    program = tmp_path / "couenne"
    program.write_text(f"#!/bin/sh\n{does}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert f"Couenne  global  {expected} ({program})" in told()


def test_python_m_igpe_says_the_same(tmp_path):
    out, _ = started("--version", folder=tmp_path, stderr=subprocess.PIPE).communicate(timeout=60)
    assert out == told()
