"""Whatever is claimed of a box holds at points of it, integrated by other means."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from cases import Integrated, everything, monomials
from ode import ode, over_time
from repeated import statistical
from trust.optima import sulfisoxazole
from zoo import CASES

import igpe
from igpe.proofs.prover import enclosure as enclosing
from igpe.proofs.prover.enclosure import BoxEnclosure, Heeded
from igpe.proofs.prover.kernels import rows
from igpe.proofs.prover.kernels.tape import TERM
from igpe.proofs.prover.posed import Dynamic, posed

SLACK = 1e-9  # of a residual and its measurement: what the other integration may be off
PROBLEMS: dict[str, Callable[[], Any]] = {
    **{n: c.problem for n, c in CASES.items() if n != "dimer"},
    "everything": everything,
    **{
        n: importlib.import_module(n).problem
        for n in ("bellman", "gas_oil_cracking", "cops_gas_oil", "methanol")
    },
}


def random_boxes(problem: Any, count: int, seed: int) -> Any:
    """Boxes of all sizes, and points in them: corners, and others."""
    rng = np.random.default_rng(seed)
    low, high = problem.box.lower, problem.box.upper
    for _ in range(count):
        middle = low + (high - low) * rng.random(len(low)) ** 3
        radius = (high - low) * 10 ** rng.uniform(-5, -1, len(low))
        box = np.maximum(low, middle - radius), np.minimum(high, middle + radius)
        corners = rng.integers(0, 2, (2, len(low)))
        inside = rng.random((2, len(low)))
        yield box, [box[0] + s * (box[1] - box[0]) for s in (*corners, *inside)]


def violations(
    problem: Any,
    dynamic: Dynamic,
    boxes: int,
    seed: int,
    *,
    degree: int = 2,
    sums: Sequence[Heeded] = (),
) -> list[str]:
    """What is claimed of random boxes and does not hold."""
    enclosure, truth = BoxEnclosure(dynamic, degree), Integrated(problem, posed(problem))
    if sums:
        enclosure.heed(sums)
    weight = np.concatenate([
        np.ones(dynamic.unmeasured.size),
        *(r.schedule.weight * np.maximum(1, abs(r.schedule.value)) for r in dynamic.experiments),
    ])
    found = []
    for (lower, upper), points in random_boxes(problem, boxes, seed):
        claim = enclosure.examine(lower, upper, 1e300)
        rows = [np.array(a) for a in enclosure.rows[:4]]
        residuals = [truth(p) for p in points]
        for p, r in zip(points, residuals, strict=True):
            room = SLACK * (np.abs(r) + weight)
            away = np.abs(r - rows[0] @ monomials(enclosure, lower, upper, p))
            if (away > rows[1] + room).any():
                found.append(f"polynomial, {(away - rows[1]).max():g}")
            if (r < rows[2] - room).any() or (r > rows[3] + room).any():
                found.append("range")
            if (r @ r) * (1 + SLACK) < claim.bound:
                found.append(f"bound {claim.bound:g} of {r @ r:g}")
        best = int(np.argmin([r @ r for r in residuals]))
        found += cut_off(enclosure, lower, upper, points[best], residuals[best] @ residuals[best])
    return found


def cut_off(
    enclosure: BoxEnclosure, lower: Any, upper: Any, point: Any, squares: float
) -> list[str]:
    """Whether contraction against a cut just above the point loses it."""
    claim = enclosure.examine(lower, upper, squares * (1 + 1e-6) + 1e-12)
    if claim.is_empty or claim.bound > squares * (1 + 1e-6) + 1e-12:
        return ["discarded"]
    room = 1e-9 * np.abs(point) + 1e-300
    lost = (point < claim.lower - room) | (point > claim.upper + room)
    return ["contracted away"] if lost.any() else []


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_claims_hold(name: str) -> None:
    problem = PROBLEMS[name]()
    assert violations(problem, posed(problem), boxes=12, seed=3) == []


def expressions() -> igpe.Problem:
    """A fast state that follows a slow one; combinations of the two are measured."""

    def model(times: Any) -> Any:
        m = over_time(times, "A B", fast=(50.0, 2000.0), slow=(0.1, 1.0), scale=(0.5, 2.0))
        m.of_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.fast * (0.3 * m.B[t] - m.A[t]))
        m.of_b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == -m.slow * m.B[t])
        m.both = pyo.Expression(m.t, rule=lambda m, t: m.scale * (m.A[t] + 2 * m.B[t]))
        m.ratio = pyo.Expression(m.t, rule=lambda m, t: 1 - m.A[t] / (m.scale + m.B[t]))
        m.decades = pyo.Expression(m.t, rule=lambda m, t: pyo.log(1 + m.A[t] * m.B[t]))
        m.growth = pyo.Expression(m.t, rule=lambda m, t: -pyo.exp(m.B[t]))
        return m

    table = pd.DataFrame({"time": [0.5, 1.0, 2.0]})
    table = table.assign(both=[1.4, 1.1, 0.7], ratio=[0.9, 0.9, 0.95], decades=[0.1, 0.06, 0.03])
    table["growth"] = [-1.8, -1.5, -1.3]
    run = igpe.Experiment(table, start={"A": 1.0, "B": 1.0}, start_time=0.0, sigma=0.05)
    return igpe.Problem(model, parameters=["fast", "slow", "scale"], experiments=[run])


def test_claims_of_measured_expressions_and_of_fast_equilibria_hold() -> None:
    assert violations(expressions(), posed(expressions()), boxes=40, seed=3) == []


def test_a_state_at_rest_may_leave_where_its_slope_is_a_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """x' = k sqrt(|x|) from 0 has a solution that rises: no level at 0 holds it.

    Such a root is refused at the start, but it may be met later.
    """
    monkeypatch.setattr("igpe.proofs.prover.posed.root_of_zero", lambda ivp: "")
    model = ode({"x": lambda m, t: m.k * (m.x[t] ** 2) ** 0.25}, k=(0.5, 1.0))
    run = igpe.Experiment(
        pd.DataFrame({"time": [1.0], "x": [0.2]}), start={"x": 0.0}, start_time=0.0, sigma=0.1
    )
    enclosure = BoxEnclosure(posed(igpe.Problem(model, parameters=["k"], experiments=[run])))
    enclosure.coarse(np.array([0.5]), np.array([1.0]), np.inf)
    assert not enclosure.rows.high[0] < (0.25 - 0.2) / 0.1  # x(1) = k^2 / 4


def test_tubes_pass_a_fast_equilibrium() -> None:
    """Boxes far from the data are lost whatever the fast rate is."""
    enclosure = BoxEnclosure(posed(expressions()))
    lower, upper = np.array([500.0, 0.8, 1.5]), np.array([2000.0, 1.0, 2.0])
    assert enclosure.coarse(lower, upper, 5.0) > 5.0


def test_tubes_go_on_where_states_of_unknown_size_begin_wide() -> None:
    """Both parts of a measured sum decay before its first measurement."""
    enclosure = BoxEnclosure(posed(sulfisoxazole()))
    lower, upper = np.array([0.0, 0.0, 50.0, 50.0]), np.full(4, 1000.0)
    assert enclosure.coarse(lower, upper, 1e4) > 1e4


@pytest.mark.slow
@pytest.mark.parametrize("degree", [1, 3])
@pytest.mark.parametrize("name", ["michaelis_menten", "everything"])
def test_claims_hold_at_other_degrees(name: str, degree: int) -> None:
    problem = PROBLEMS[name]()
    assert violations(problem, posed(problem), boxes=6, seed=4, degree=degree) == []


def test_small_boxes_are_enclosed_sharply() -> None:
    """Containment alone could be had by knowing nothing."""
    problem = PROBLEMS["everything"]()
    enclosure = BoxEnclosure(posed(problem))
    middle = 0.5 * (problem.box.lower + problem.box.upper)
    errors = []
    for width in (1e-2, 1e-3):
        claim = enclosure.examine(middle - width, middle + width, 1e300)
        assert claim.rows == enclosure.size
        errors.append(enclosure.rows.error.max())
    assert errors[0] < 1e-2
    assert errors[1] < 3e-2 * errors[0]  # better than quadratic


def _without_remainders(monkeypatch: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    integrate = enclosing.integrate

    def broken(*given: Any) -> Any:
        outcome, rows = integrate(*given), given[0].rows
        rows.error[np.isfinite(rows.error)] *= 0.2
        return outcome

    monkeypatch.setattr(enclosing, "integrate", broken)
    return dynamic


def _smaller_boxes(monkeypatch: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    whole = enclosing.scaled
    monkeypatch.setattr(enclosing, "scaled", lambda a, b: whole(a, b) * np.array([1.0, 0.8]))
    return dynamic


def _each_run(dynamic: Dynamic, spoilt: Callable[[Any], Any]) -> Dynamic:
    return dynamic._replace(experiments=tuple(map(spoilt, dynamic.experiments)))


def _fewer_orders(_: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    """Coefficients beyond the second are dropped without being counted."""

    def spoilt(run: Any) -> Any:
        slope = run.tapes[0]._replace(reach=np.minimum(run.tapes[0].reach, 1))
        return run._replace(tapes=(slope, *run.tapes[1:]))

    return _each_run(dynamic, spoilt)


def _other_numbers(_: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    def spoilt(run: Any) -> Any:
        return run._replace(schedule=run.schedule._replace(start=run.schedule.start - 1e-3))

    return _each_run(dynamic, spoilt)


def _greedy_cut(monkeypatch: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    bound = enclosing.joint_bound
    monkeypatch.setattr(enclosing, "joint_bound", lambda a, r, cut, u: 1.2 * bound(a, r, cut, u))
    return dynamic


def _shorter_reach(monkeypatch: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    """Tubes cut off where solutions below the cut still go."""
    what = "reach(cut, others) / schedule"
    monkeypatch.setattr(enclosing, "tube_rows", changed(rows, "tube_rows", what, f"0.1 * {what}"))
    return dynamic


def changed(module: ModuleType, name: str, what: str, by: str) -> Any:
    """A function of a module, with some of the module's text changed."""
    text = Path(module.__file__ or "").read_text(encoding="utf-8")
    assert text.count(what) == 1
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{name}_changed.py")
        file.write_text(text.replace(what, by), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        broken = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(broken)
    return getattr(broken, name)


@pytest.mark.slow
def test_claims_that_mutations_break_hold() -> None:
    for problem in (CASES["consecutive"].problem(noise=0.1), PROBLEMS["michaelis_menten"]()):
        assert violations(problem, posed(problem), boxes=15, seed=5) == []


MUTATIONS = (
    statistical(_shorter_reach),  # which compiles for long
    _without_remainders,
    _smaller_boxes,
    _fewer_orders,
    _other_numbers,
    _greedy_cut,
)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_bound_is_caught(
    mutation: Callable[..., Dynamic], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = CASES["consecutive"].problem(noise=0.1)
    dynamic = mutation(monkeypatch, posed(problem))
    assert violations(problem, dynamic, boxes=12, seed=5) != []


def _other_weights(_: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    """Means of smaller weights: the tubes are about another model."""

    def spoilt(run: Any) -> Any:
        number = np.where(run.sharp.op == TERM, 0.8 * run.sharp.number, run.sharp.number)
        return run._replace(sharp=run.sharp._replace(number=number))

    return _each_run(dynamic, spoilt)


def _straight(monkeypatch: pytest.MonkeyPatch, dynamic: Dynamic) -> Dynamic:
    """Exponential scales whose remainders are forgotten."""
    whole = enclosing.polynomials
    monkeypatch.setattr(
        enclosing, "polynomials", lambda *given: whole(*given) * np.array([1, 1, 0, 0, 0])
    )
    return dynamic


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [_other_weights, _straight])
def test_a_broken_bound_of_quotients_is_caught(
    mutation: Callable[..., Dynamic], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS["michaelis_menten"]()
    dynamic = mutation(monkeypatch, posed(problem))
    assert violations(problem, dynamic, boxes=15, seed=5) != []


def test_the_middle_is_what_it_says() -> None:
    problem = PROBLEMS["gas_oil_cracking"]()
    dynamic = posed(problem)
    middle = np.array([12.0, 8.0, 2.0])
    found = BoxEnclosure(dynamic).examine(middle - 1e-3, middle + 1e-3, 1e300)
    r = Integrated(problem, dynamic)(middle)
    assert found.middle == pytest.approx(r @ r, rel=1e-6)
