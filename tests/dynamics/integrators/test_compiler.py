"""Compiling: once, without collisions; and what happens where it is impossible."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from initial_values import needs_compiler, one_state, simulation

from igpe.core.errors import SolverMissing
from igpe.core.progress import reported
from igpe.core.status import Status
from igpe.dynamics.integrators import compiler as compiling
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.compiler import built, compiler
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials

TIMES, Q = [0.0, 1.0, 2.0], np.array([0.5])


def decay():
    """x' = -k x."""
    return one_state(lambda m, t: -m.k * m.x[t])


def source(number):
    """A library whose function answers with the number."""
    return f"int answer(void) {{ return {number}; }}\n"


def program(path, lines):
    """An executable shell script."""
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "igpe"


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """The compiler, which counts its calls: a function that tells how many there were."""
    log = tmp_path / "calls"
    real = shutil.which(compiler()[0])
    wrapper = program(tmp_path / "counting-cc", [f"echo called >> {log}", f'exec {real} "$@"'])
    monkeypatch.setenv("CC", str(wrapper))
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def same(one, other):
    """Whether two trajectories are the same bits."""
    return (one.states == other.states).all() and (one.by_unknown == other.by_unknown).all()


@needs_compiler
def test_powers_of_numbers_are_those_of_states_too():
    def rate(m, t):
        return -m.k * 10 ** (-m.x[t]) * 0.5 ** m.x[t] * (1 + m.x[t]) ** 2.5 * (-2) ** 2

    ends = [
        simulation(one_state(rate), TIMES, method=method).run(Q)
        for method in (RungeKutta(1e-10, 1e-12), Sundials(1e-10, 1e-12))
    ]
    assert ends[0].states == pytest.approx(ends[1].states, rel=1e-8)
    assert ends[0].by_unknown == pytest.approx(ends[1].by_unknown, rel=1e-7, abs=1e-9)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_compiler_that_fails_is_as_none(tmp_path, monkeypatch, cache):
    broken = program(tmp_path / "broken-cc", ["echo 'no licence today' >&2", "exit 3"])
    monkeypatch.setenv("CC", str(broken))
    assert built(source(1)).why == f"The C compiler {broken} failed: no licence today."
    chosen = simulation(decay(), TIMES, method=Automatic()).run(Q)
    assert same(chosen, simulation(decay(), TIMES, method=Sundials()).run(Q))
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_compiler_that_hangs_is_an_error_and_nothing_of_it_stays(tmp_path, monkeypatch, cache):
    child = tmp_path / "child"
    hung = program(tmp_path / "hung-cc", ["sleep 600 &", f"echo $! > {child}", "wait"])
    monkeypatch.setenv("CC", str(hung))
    monkeypatch.setattr("igpe.dynamics.integrators.compiler.HUNG", 0.5)
    with pytest.raises(SolverMissing, match=r"hangs: `.*hung-cc -O1 .*CC=false"):
        built(source(1))
    state = Path(f"/proc/{child.read_text().strip()}/stat")
    for _ in range(200):  # a busy machine ends it a little later
        if is_over := not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    assert is_over
    monkeypatch.setenv("CC", "false")
    assert "failed" in built(source(1)).why


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_users_are_told_that_they_wait_for_the_compiler(tmp_path, monkeypatch, cache):
    slow = program(tmp_path / "slow-cc", ["sleep 1", f'exec {compiler()[0]} "$@"'])
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr("igpe.dynamics.integrators.compiler.LONG", 0.1)
    said = []
    with reported(said.append), reported(None):
        simulation(decay(), TIMES, method=RungeKutta()).run(Q)
    assert any("CC=false to integrate without" in s for s in said)
    assert any(s.startswith("The C compiler took ") for s in said)
    assert built(source(7)).why == ""  # nobody listens


@needs_compiler
def test_the_compiler_of_the_environment_is_taken_with_its_options(monkeypatch):
    path = compiler()[0]
    monkeypatch.setenv("CC", f"{path} -DX=1")
    assert compiler() == (path, "-DX=1")
    for nonsense in ("no-such-compiler -O9", "'", " "):
        monkeypatch.setenv("CC", nonsense)
        assert len(compiler()) == 1


@needs_compiler
def test_the_same_equations_are_compiled_once(counted, cache):
    first = simulation(decay(), TIMES, method=Automatic())
    assert counted() == 3  # the driver, slopes, and what is measured
    again = simulation(decay(), [0.0, 0.5, 1.5], method=RungeKutta())
    assert counted() == 3
    assert len(list(cache.iterdir())) == 3
    assert first.run(Q).status is again.run(Q).status is Status.CONVERGED
    simulation(one_state(lambda m, t: -2 * m.k * m.x[t]), TIMES, method=Automatic())
    assert counted() == 4  # the same is measured


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert built(source(3)).library.answer() == 3
    assert (tmp_path / "file").read_text() == "not a folder"


def zeroed(content):
    """The file with zeros where a crash of the machine lost a part."""
    third = len(content) // 3
    return content[:third] + bytes(third) + content[2 * third :]


@needs_compiler
@pytest.mark.parametrize(
    "spoil",
    [zeroed, lambda c: c[: len(c) // 2], lambda c: c[:-1], lambda c: b"", lambda c: b"half"],
    ids=["zeros", "half", "last byte", "nothing", "other"],
)
def test_a_spoilt_file_in_the_cache_is_made_anew(cache, spoil):
    """To load it would end Python, so that is tried in a process of its own."""
    script = (
        "from igpe.dynamics.integrators.compiler import built; "
        f"raise SystemExit(built({source(4)!r}, 'answer').library.answer())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 4
    [library] = cache.iterdir()
    whole = library.read_bytes()
    library.write_bytes(spoil(whole))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 4
    [library] = cache.iterdir()
    assert len(library.read_bytes()) == len(whole)


@needs_compiler
def test_a_relative_cache_is_ignored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert built(source(8)).library.answer() == 8
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@needs_compiler
def test_what_nobody_used_for_long_is_removed(cache, monkeypatch):
    built(source(9))
    [old] = cache.iterdir()
    other = cache / "notes.txt"
    other.write_text("not ours")
    os.utime(other, (0, 0))
    os.utime(old, (0, 0))
    assert built(source(9)).library.answer() == 9  # which counts as used
    built(source(10))
    assert old.exists()
    os.utime(old, (0, 0))
    built(source(11))
    assert not old.exists()
    assert other.exists()
    monkeypatch.setattr(compiling, "MOST_KEPT", 2)
    assert built(source(12)).library.answer() == 12
    assert len(list(cache.glob("*" + compiling.SUFFIX))) == 2


@needs_compiler
def test_compiling_at_the_same_time_does_not_collide(cache):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(built, [source(5)] * 4))
    assert [f.library.answer() for f in found] == [5] * 4
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_no_home_is_no_obstacle(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert built(source(6)).library.answer() == 6
