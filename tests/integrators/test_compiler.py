"""Compiling: once, without collisions; and what happens where it is impossible."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from initial_values import needs_compiler, one_state, simulation

from igpe.integrators import compiler as compiling
from igpe.integrators.automatic import Automatic
from igpe.integrators.compiler import built, compiler
from igpe.integrators.dormand_prince import DormandPrince
from igpe.integrators.lsoda import Lsoda
from igpe.status import Status

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


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A PATH with nothing on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


def same(one, other):
    """Whether two trajectories are the same bits."""
    return (one.states == other.states).all() and (one.by_unknown == other.by_unknown).all()


@pytest.mark.usefixtures("no_compiler", "cache")
def test_without_a_compiler_lsoda_is_chosen():
    assert compiler() == ()
    chosen = simulation(decay(), TIMES, method=Automatic()).run(Q)
    assert chosen.status is Status.CONVERGED
    assert same(chosen, simulation(decay(), TIMES, method=Lsoda()).run(Q))


@pytest.mark.usefixtures("no_compiler", "cache")
def test_without_a_compiler_the_compiled_method_says_so():
    came = simulation(decay(), TIMES, method=DormandPrince()).run(Q)
    assert (came.status, came.reached) == (Status.NO_SOLVER, 0.0)
    assert came.reason.startswith("No C compiler was found (looked for $CC, cc, gcc, clang)")
    assert np.isnan(came.states).all()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_compiler_that_fails_is_as_none(tmp_path, monkeypatch, cache):
    broken = program(tmp_path / "broken-cc", ["echo 'no licence today' >&2", "exit 3"])
    monkeypatch.setenv("CC", str(broken))
    assert built(source(1)).why == f"The C compiler {broken} failed: no licence today."
    chosen = simulation(decay(), TIMES, method=Automatic()).run(Q)
    assert same(chosen, simulation(decay(), TIMES, method=Lsoda()).run(Q))
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_compiler_that_never_ends_is_given_up(tmp_path, monkeypatch):
    slow = program(tmp_path / "slow-cc", ["exec sleep 60"])
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(compiling, "PATIENCE", 0.2)
    assert "timed out" in built(source(2)).why


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
    assert counted() == 1
    again = simulation(decay(), [0.0, 0.5, 1.5], method=DormandPrince())
    assert counted() == 1
    assert len(list(cache.iterdir())) == 1
    assert first.run(Q).status is again.run(Q).status is Status.CONVERGED
    simulation(one_state(lambda m, t: -2 * m.k * m.x[t]), TIMES, method=Automatic())
    assert counted() == 2


@needs_compiler
@pytest.mark.usefixtures("cache")
def test_other_options_are_another_library(monkeypatch):
    path = compiler()[0]
    found = set()
    for options in ("-DX=1", "-DX=2"):
        monkeypatch.setenv("CC", f"{path} {options}")
        found.add(built("int answer(void) { return X; }\n").library.answer())
    assert found == {1, 2}


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert built(source(3)).library.answer() == 3
    assert (tmp_path / "file").read_text() == "not a folder"


@needs_compiler
def test_a_spoilt_file_in_the_cache_is_made_anew(cache):
    cache.mkdir(parents=True)
    text = source(4)
    spoilt = cache / (compiling._key(text, compiler()) + compiling.SUFFIX)
    spoilt.write_bytes(b"half a library")
    assert built(text).library.answer() == 4
    assert spoilt.read_bytes() != b"half a library"


@needs_compiler
def test_compiling_at_the_same_time_does_not_collide(cache):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(built, [source(5)] * 4))
    assert [f.library.answer() for f in found] == [5] * 4
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_equations_too_long_to_compile_are_left_to_lsoda(monkeypatch):
    monkeypatch.setattr("igpe.integrators.dormand_prince.LONGEST", 3)
    refused = simulation(decay(), TIMES, method=DormandPrince()).run(Q)
    assert refused.reason.startswith("The equations are too long to compile: ")
    chosen = simulation(decay(), TIMES, method=Automatic()).run(Q)
    assert same(chosen, simulation(decay(), TIMES, method=Lsoda()).run(Q))


@needs_compiler
def test_no_home_is_no_obstacle(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert built(source(6)).library.answer() == 6


def test_the_driver_is_shipped_beside_its_module():
    import igpe.integrators.dormand_prince as module  # noqa: PLC0415

    assert module.DRIVER.parent == Path(module.__file__).parent
    assert os.path.getsize(module.DRIVER) > 0
