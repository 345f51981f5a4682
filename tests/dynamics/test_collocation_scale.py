"""The same problem in other units has the same answer, and what is known is not solved again."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from ode import ode

from igpe.core.status import Status
from igpe.dynamics.collocation.assembled import Assembled, parts
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.collocation.mesh import Radau, first_meshes
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem
from igpe.solvers.ipopt import Ipopt

SIGMA = 0.01
START = {"k1": 1.0, "k2": 1.0}


def consecutive(scale: float = 1.0, unit: float = 1.0, sigma: bool = True, **more: Any) -> Problem:
    """A -> B -> C with noisy A and B. Concentrations in units of 1/scale, times of 1/unit."""

    model = ode(
        {
            "A": lambda m, t: -m.k1 * m.A[t],
            "B": lambda m, t: m.k1 * m.A[t] - m.k2 * m.B[t],
            "C": lambda m, t: m.k2 * m.B[t],
        },
        k1=(0, 10 / unit),
        k2=(0, 10 / unit),
    )

    t = np.linspace(0, 4, 11)
    exact = [np.exp(-2 * t), 2 / 1.5 * (np.exp(-0.5 * t) - np.exp(-2 * t))]
    noise = SIGMA * np.random.default_rng(0).standard_normal((2, len(t)))
    data = pd.DataFrame({"time": unit * t, **dict(zip("AB", scale * (exact + noise), strict=True))})
    given: dict[str, Any] = {"sigma": SIGMA * scale if sigma else "equal"}
    run = Experiment(data, start=more.pop("start", {"A": scale, "B": 0.0, "C": 0.0}), **given)
    return Problem(model, parameters=["k1", "k2"], experiments=run, **more)


@pytest.fixture(scope="module")
def reference() -> Any:
    return Collocation().estimate(consecutive(), START)


@pytest.mark.parametrize("sigma", [True, False])
@pytest.mark.parametrize(
    ("scale", "unit"),
    [(1e-12, 1.0), (1e-9, 1.0), (1e-3, 1.0), (1e3, 1.0), (1e9, 1.0), (1.0, 1e-9), (1.0, 1e9)],
)
def test_units_do_not_matter(scale: float, unit: float, sigma: bool, reference: Any) -> None:
    start = {n: k / unit for n, k in START.items()}
    found = Collocation().estimate(consecutive(scale, unit, sigma), start)
    assert found.status is Status.CONVERGED
    same = {n: k / unit for n, k in reference.parameters.items()}
    assert found.parameters == pytest.approx(same, rel=1e-6, abs=0.0)
    weight = 1.0 if sigma else (SIGMA * scale) ** 2
    assert found.objective == pytest.approx(weight * reference.objective, rel=1e-6, abs=0.0)


def assembled(problem: Any) -> Assembled:
    return Assembled(problem, parts(problem, Radau()), first_meshes(problem, [], Radau(), 1e-5))


def test_sizes_are_in_the_problems_units(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, kept = consecutive(1e-12, 1e9), list[Any]()
    monkeypatch.setattr(
        "igpe.dynamics.collocation.assembled.CompiledProgram",
        lambda scaled, *_: kept.append(scaled),
    )
    program, start = assembled(problem), {"k1": 2e-9, "k2": 0.0}
    program.begin(start, [])
    program.prepare(Ipopt(), [start])
    size, (a, _, c) = kept[0].variables, program.runs[0].states
    assert size[a[3]] == pytest.approx(1e-12, rel=0.05)
    assert 0.5e-12 < size[c[3]] < 2e-12  # as the others
    assert size[:2] == pytest.approx([2e-9, 1e-14])
    assert kept[0].objective == pytest.approx(1e4, rel=1)


def test_starts_on_the_way_to_a_known_optimum_end_there() -> None:
    starts = [START, {"k1": 3.0, "k2": 0.3}, {"k1": 0.5, "k2": 2.0}]
    found = Collocation().estimate_each(consecutive(), starts)
    assert all(e.status is Status.CONVERGED for e in found)
    assert found[1].parameters == found[0].parameters
    assert found[2].objective == found[0].objective


def test_prior_on_a_fixed_unknown_does_not_count() -> None:
    free = consecutive().fixing({"k2": 0.5})
    held = consecutive(priors={"k2": NormalPrior(1.0, 0.1)}).fixing({"k2": 0.5})
    one, other = (Collocation().estimate(p, {"k1": 1.0}) for p in (free, held))
    assert other.objective == pytest.approx(one.objective, rel=1e-9)


def test_a_guess_of_zero_is_a_guess() -> None:
    start = {"A": 1.0, "B": 0.0, "C": Unknown(-1.0, 5.0, guess=0.0)}
    problem = consecutive(start=start)
    program = assembled(problem)
    program.begin(START, [])
    assert set(program.values[program.runs[0].states[2]]) == {0.0}


def test_the_mesh_is_refined_until_the_unknowns_stand_still() -> None:
    found = Collocation().estimate(consecutive(), START)
    tighter = Collocation(tolerance=1e-9).estimate(consecutive(), START)
    assert found.parameters == pytest.approx(tighter.parameters, rel=1e-5)
    assert 0 < len(found.trail) < len(tighter.trail)
