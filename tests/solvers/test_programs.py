"""Solver programs: fake ones, what real ones are given, where they lie; small objectives."""

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest
from fake_programs import FAKES, SCIP, agrees, outcome, real_scip
from test_solvers import camel

from igpe.core.status import Status
from igpe.solvers import base
from igpe.solvers.base import Answer, Goal, divided, name_of, solve_closed
from igpe.solvers.ipopt import Ipopt
from igpe.solvers.located import environment, idaes_folder, locate
from igpe.solvers.program import AmplProgram, Couenne, Scip

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts as programs")

ECHO = """#!{python} -IS
import pathlib, sys
for file in sorted(pathlib.Path().iterdir()):
    if file.suffix in (".opt", ".set"):
        print(file.name, *file.read_text().splitlines())
print(*sys.argv[1:])
"""


def put(folder: Path, name: str, text: str) -> Path:
    """A program in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts programs on PATH that print their option files and words and solve nothing."""
    for name in ("couenne", "scip", "ipopt"):
        put(tmp_path, name, ECHO.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def said(program: AmplProgram, time_limit: float | None) -> str:
    """What the program printed, as its answer's message."""
    answer = program.solve(camel(), time_limit=time_limit)
    assert answer.status is Status.FAILED
    return answer.message


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FAKES))
def test_a_program_is_read_right(name: str, tmp_path: Path) -> None:
    assert agrees(name, outcome(name, tmp_path)) == ""


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            replace(SCIP, proven_gap=0.01, files=(("scip.set", "limits/gap = 0.01\n"),)),
            "limits/absgap = 1e-06 limits/time = 7.5",
        ),
        (Couenne(gap=0.01), "time_limit 7.5"),
        (AmplProgram("ipopt", time_option="max_wall_time"), "-AMPL max_wall_time=7.5"),
    ],
)
def test_gaps_and_time_limit_are_given_to_the_program(program: AmplProgram, expected: str) -> None:
    assert expected in said(program, 7.5)
    without = said(program, None)
    assert "7.5" not in without
    assert program.proven_gap is None or "0.01" in without


@pytest.mark.usefixtures("echo")
def test_only_the_first_file_holds_the_limits() -> None:
    program = replace(SCIP, files=(("a.set", "a\n"), ("b.set", "b\n")))
    assert "a.set a limits/absgap = 1e-06 limits/time = 3.0; b.set b" in said(program, 3.0)


def test_programs_are_searched_in_the_idaes_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "empty" / "python"))
    monkeypatch.delenv("IDAES_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not Couenne().available()
    home = put(tmp_path / ".idaes" / "bin", "couenne", "")
    assert locate("couenne") == str(home)
    assert environment(str(home))["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(home.parent)
    other = put(tmp_path / "data" / "bin", "couenne", "")
    monkeypatch.setenv("IDAES_DATA", str(tmp_path / "data"))
    assert locate("couenne") == str(other)
    assert idaes_folder() == other.parent
    assert Couenne().available()
    put(other.parent, "ipopt", "")
    assert AmplProgram("ipopt").available()


def test_a_program_without_a_time_option_is_ended_at_the_limit(tmp_path: Path) -> None:
    program = put(tmp_path, "sleeper", "#!/bin/sh\nexec sleep 60\n")
    answer = AmplProgram(str(program)).solve(camel(), time_limit=0.1)
    assert answer.status is Status.TIME_LIMIT
    assert "sleeper was stopped" in answer.message
    assert answer.seconds < 30


def test_a_program_is_found_from_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "here", ECHO.format(python=sys.executable))
    monkeypatch.chdir(tmp_path)
    assert "model.nl -AMPL" in said(AmplProgram("./here"), None)


def small(scale: float, slack: bool, size: float = 1.0) -> Any:
    """Six-point Michaelis-Menten fit, residuals times scale; optimum 1.47656e-4 scale^2."""
    m = pyo.ConcreteModel()
    m.v, m.k = pyo.Var(bounds=(0.1, 5), initialize=1.0), pyo.Var(bounds=(0.1, 5), initialize=1.0)
    data = {0.25: 0.331, 0.5: 0.494, 1.0: 0.672, 2.0: 0.795, 4.0: 0.894, 8.0: 0.938}
    rows = [scale * (y - m.v * s / (m.k + s)) for s, y in data.items()]
    if slack:
        m.r = pyo.Var(range(6))
        m.residual = pyo.Constraint(range(6), rule=lambda m, i: m.r[i] == rows[i])
        rows = list(m.r.values())
    m.cost = pyo.Objective(expr=sum(r**2 for r in rows))
    return m


@pytest.fixture
def scip_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AmplProgram:
    """SCIP itself, as a program."""
    text = real_scip()
    if text is None:
        pytest.skip("PySCIPOpt is not installed")
    put(tmp_path, "scip", text)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return SCIP


@pytest.mark.slow
@pytest.mark.parametrize("slack", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
def test_scip_claims_no_false_bound_for_small_objectives(
    scale: float, slack: bool, scip_program: AmplProgram
) -> None:
    true = Ipopt().solve(small(1.0, slack=False)).objective * scale**2
    for solver in (scip_program, Scip()):
        answer = solver.solve(small(scale, slack), time_limit=1.5 if slack else 20.0)
        assert answer.lower_bound <= true * (1 + 1e-9)
        if not slack:  # else its tolerance makes residuals a little smaller than they are
            assert answer.objective == pytest.approx(true, rel=1e-3)
            assert answer.status is Status.OPTIMAL_WITHIN_GAP
            assert answer.gap <= 2e-4


def test_the_users_own_suffixes_are_no_obstacle() -> None:
    model = camel()
    model.scaling_factor = pyo.Suffix(direction=pyo.Suffix.EXPORT)
    model.scaling_factor[model.x] = 2.0
    model.note = pyo.Suffix(direction=pyo.Suffix.EXPORT)
    model.note[model.cost] = 3.0
    assert Ipopt().solve(model).status is Status.CONVERGED
    assert model.scaling_factor[model.x] == 2.0


def test_an_objective_is_divided_and_put_back() -> None:
    model = camel()
    before = model.cost.expr
    with divided(model.cost, 1e-3):
        assert pyo.value(model.cost) == pytest.approx(1e3 * pyo.value(before))
    assert model.cost.expr is before
    with pytest.raises(KeyError), divided(model.cost, 1e-3):
        raise KeyError
    assert model.cost.expr is before


def test_an_optimum_of_zero_closes_in_one_pass() -> None:
    model, units = camel(), []

    def once(unit: float, absolute: float, left: float | None) -> Answer:
        units.append(unit)
        return Answer(Status.OPTIMAL_WITHIN_GAP, 1e-9, -1e-9)

    answer = solve_closed(once, model, Goal(1e-4, None), None)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.lower_bound == pytest.approx(-base.MARGIN, rel=0.01)
    assert units == [1.0]


Told = tuple[Status, float, float]


def in_passes(model: Any, *told: Told) -> Answer:
    """The answer of a solver that says this, one after the other; x stands at its objective."""
    left = iter(told)

    def once(unit: float, absolute: float, seconds: float | None) -> Answer:
        status, objective, bound = next(left)
        if np.isfinite(objective):
            model.x.set_value(objective)
        return Answer(status, objective, bound, f"pass {status.name}")

    return solve_closed(once, model, Goal(1e-4, None), None)


FIRST: Told = (Status.OPTIMAL_WITHIN_GAP, 1e-3, 1e-3)


@pytest.mark.parametrize(
    ("second", "status", "bound", "words"),
    [
        ((Status.OPTIMAL_WITHIN_GAP, 2e-3, 9.999e-4), "OPTIMAL_WITHIN_GAP", 9.999e-4, ""),
        ((Status.OPTIMAL_WITHIN_GAP, 2e-3, 2e-3), "BEST_OF_SEVERAL", -np.inf, "nothing is proved"),
        ((Status.FAILED, np.nan, -np.inf), "OPTIMAL_WITHIN_GAP", 9.99e-4, "pass FAILED"),
        ((Status.INFEASIBLE, np.nan, -np.inf), "OPTIMAL_WITHIN_GAP", 9.99e-4, "INFEASIBLE"),
        ((Status.TIME_LIMIT, np.nan, 9.999e-4), "OPTIMAL_WITHIN_GAP", 9.999e-4, ""),
    ],
)
def test_a_second_pass_adds_to_the_first(
    second: Told, status: str, bound: float, words: str
) -> None:
    model = camel()
    answer = in_passes(model, FIRST, second, second, second)
    assert (answer.objective, model.x.value) == (1e-3, 1e-3)
    assert answer.status.name == status
    assert answer.lower_bound == pytest.approx(bound, rel=2e-5)
    assert words in answer.message


def test_results_name_the_program() -> None:
    assert name_of(Couenne()) == "couenne"
    assert name_of(AmplProgram("/opt/bin/mine")) == "mine"
    assert name_of(Scip()) == "Scip"


@pytest.mark.parametrize("limit", [None, 30.0])
def test_only_a_requested_time_limit_is_reported(limit: float | None) -> None:
    passes = iter([FIRST, (Status.TIME_LIMIT, 1e-3, 0.9e-3)])
    left: list[float | None] = []

    def once(unit: float, absolute: float, seconds: float | None) -> Answer:
        left.append(seconds)
        status, objective, bound = next(passes)
        return Answer(status, objective, bound - 1e-4, "said")

    answer = solve_closed(once, camel(), Goal(1e-4, 1e-9), limit)
    assert answer.status is (Status.BEST_OF_SEVERAL if limit is None else Status.TIME_LIMIT)
    assert left[0] == limit
    assert left[1] is not None  # without a limit a further pass has one all the same
    assert left[1] <= base.REST
