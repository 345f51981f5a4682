"""igpe.certify: published problems proven, and what it refuses."""

import importlib
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import everything
from zoo import CASES

import igpe
from igpe.proofs import compiled
from igpe.proofs.checker.verify import read_tree
from igpe.proofs.prover import search
from igpe.proofs.prover.enclosure import BoxBounds, BoxEnclosure
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import BoxNode, BoxSearch, proved_objective


def published(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("consecutive", 1e-3),
        ("gas_oil_cracking", 1e-3),
        ("bellman", 1e-3),
        ("bellman", 1e-6),
        ("cops_gas_oil", 1e-3),
    ],
)
def test_published_optima_are_global(name: str, gap: float) -> None:
    case = published(name)
    found = igpe.certify(case.problem(), case.OPTIMUM, gap=gap, time_limit=300)
    assert found.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert case.OBJECTIVE * (1 - gap) * (1 - 1e-6) <= found.lower_bound <= case.OBJECTIVE
    assert found.objective == pytest.approx(case.OBJECTIVE, rel=1e-5)
    assert found.gap == pytest.approx(gap, rel=1e-6)
    assert not list(read_tree(found).faults())
    assert "No parameter values within these bounds" in str(found)


def test_the_optimum_is_found_from_nothing() -> None:
    case = published("gas_oil_cracking")
    found = igpe.certify(case.problem(), time_limit=300)
    assert found.closed
    values = dict(zip(found.unknowns, found.parameters, strict=True))
    assert values == pytest.approx(case.OPTIMUM, rel=1e-3)


def test_a_proof_begins_at_another_one() -> None:
    case = published("consecutive")
    first = igpe.certify(case.problem(), case.OPTIMUM, gap=0.1)
    found = igpe.certify(case.problem(), first, gap=0.01)
    assert found.closed
    assert found.parameters == pytest.approx(first.parameters, rel=1e-3)


def test_a_local_optimum_is_left() -> None:
    """From a poor start the search itself finds the better parameters."""
    case = published("consecutive")
    poor = dict.fromkeys(case.OPTIMUM, 8.0)
    found = igpe.certify(case.problem(), poor, time_limit=300)
    assert found.closed
    assert found.objective == pytest.approx(case.OBJECTIVE, rel=1e-2)
    assert found.lower_bound <= case.OBJECTIVE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["methanol", "bellman", "reversible", "lotka_volterra"])
def test_all_boxes_around_a_point_stay_open_while_the_cut_is_above_it(name: str) -> None:
    dynamic = posed(published(name).problem())
    enclosure, width = BoxEnclosure(dynamic, degree=3), dynamic.upper - dynamic.lower
    random, followed = np.random.default_rng(8), 0
    for _ in range(8):
        point = dynamic.lower + width * 10.0 ** random.uniform(-3, 0, len(width))
        cut = proved_objective(dynamic, point) * (1 + 1e-7)
        if math.isfinite(cut):
            assert {n.reason for n in around(point, enclosure, cut)} == {"open"}
            followed += 1
    assert followed >= 4


def around(point: Any, enclosure: BoxEnclosure, cut: float, most: int = 40) -> list[BoxNode]:
    """The boxes that hold a point at the end of a search in these alone."""
    nodes = [BoxNode(enclosure.dynamic.lower, enclosure.dynamic.upper)]
    for _ in range(most):
        found = BoxSearch(enclosure, cut, enclosure.dynamic.lower, enclosure.dynamic.upper)
        found.resume(nodes[:1])
        found.run(math.inf, enough=lambda found=found: found.examined > 0)
        holding = [n for n in found.tree if (n.lower <= point).all() and (point <= n.upper).all()]
        nodes = [n for n in holding if not n.children]
        if {n.reason for n in nodes} != {"open"}:
            break
    return nodes


@pytest.mark.slow
def test_several_experiments_with_start_values_and_priors() -> None:
    problem = everything()
    found = igpe.certify(problem, gap=0.05, time_limit=5)
    assert found.rows[0][0] == ""
    assert math.isnan(found.rows[0][1])
    assert {e for e, *_ in found.rows[1:]} == {"one", "two"}
    best = igpe.search.MultiStart().estimate(problem, {})
    assert found.lower_bound <= best.objective * (1 + 1e-9)
    assert found.objective <= best.objective * (1 + 1e-6)
    assert found.lower_bound > 0


def test_perfect_data() -> None:
    case = CASES["consecutive"]
    found = igpe.certify(case.problem(), case.truth, time_limit=100)
    assert found.closed
    assert "0 up to rounding" in found.sentence


def test_time_limit_keeps_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    case = published("lotka_volterra")
    ticks = itertools.chain(itertools.repeat(0.0, 60), itertools.repeat(math.inf))
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    sentences: list[str] = []
    found = igpe.certify(case.problem(), case.OPTIMUM, time_limit=300, progress=sentences.append)
    assert found.examined == 60
    assert found.status is igpe.Status.TIME_LIMIT
    assert not found.closed
    assert found.lower_bound < case.OBJECTIVE
    assert 0 < found.open_share < 1
    assert len(found.remaining) == sum(box.reason == "open" for box in found.tree)
    assert not list(read_tree(found).faults())
    assert "stopped at the time limit" in found.sentence
    assert sentences


def test_what_is_too_narrow_to_be_split_is_reported() -> None:
    lower, upper = np.ones(2), np.array([1.0, 1.0 + 4 * np.spacing(1.0)])

    def nothing(low: Any, high: Any, *_: Any, **more: Any) -> BoxBounds:
        return BoxBounds(0.0, low, high, np.zeros(2), 0, np.zeros(0), math.nan)

    ignorant: Any = SimpleNamespace(examine=nothing, coarse=lambda *_: 0.0)
    found = BoxSearch(ignorant, 1.0, lower, upper, is_weighed=True)
    assert found.run(math.inf) is igpe.Status.INTEGRATION_BROKE
    assert found.examined == len(found.tree) == 7
    assert (found.lower_bound, found.open_share) == (0.0, 1.0)


def test_what_trial_splits_prove_of_the_halves_is_kept() -> None:
    def coarse(low: Any, high: Any, *_: Any) -> float:
        return 2.0 if low[0] >= 1.0 else 0.25

    def nothing(low: Any, high: Any, *_: Any, **more: Any) -> BoxBounds:
        bound = 0.0 if high[0] > 1.0 else 1.5
        return BoxBounds(bound, low, high, np.zeros(2), 0, np.zeros(0), math.nan)

    half: Any = SimpleNamespace(examine=nothing, coarse=coarse)
    found = BoxSearch(half, 1.0, np.zeros(2), np.array([4.0, 1e-6]), is_weighed=True)
    assert found.run(math.inf) is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.examined == 2  # the whole and its lower part, the upper being known
    assert [(box.reason, box.bound) for box in found.tree] == [
        ("split", 0.0),
        ("bound", 1.0),
        ("bound", 1.0),
    ]


def test_interruption_keeps_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    case = published("gas_oil_cracking")
    examine, calls = BoxEnclosure.examine, itertools.count()

    def interrupted(self: Any, *given: Any, **more: Any) -> Any:
        if next(calls) == 40:
            raise KeyboardInterrupt
        return examine(self, *given, **more)

    monkeypatch.setattr(BoxEnclosure, "examine", interrupted)
    found = igpe.certify(case.problem(), case.OPTIMUM, time_limit=300)
    assert found.status is igpe.Status.INTERRUPTED
    assert 0 < found.open_share < 1
    assert not list(read_tree(found).faults())


def test_json_round_trip(tmp_path: Any) -> None:
    case = published("bellman")
    found = igpe.certify(case.problem(), case.OPTIMUM, time_limit=300)
    path = tmp_path / "proof.json"
    found.to_json(path)
    assert igpe.proofs.DynamicCertificate.from_json(path) == found
    assert found.without_tree().tree == ()
    with pytest.raises(igpe.errors.DataError, match="format"):
        igpe.proofs.DynamicCertificate.from_json('{"format": "another"}')


def test_as_an_estimator() -> None:
    case = published("consecutive")
    for start in ({}, case.OPTIMUM):
        found = igpe.proofs.BranchAndBound(time_limit=300).estimate(case.problem(), start)
        assert found.status is igpe.Status.OPTIMAL_WITHIN_GAP
        assert 0 < found.gap < 1.01e-3
        assert found.parameters == pytest.approx(case.OPTIMUM, rel=1e-3)
        assert "No parameter values with" in found.notes[0]


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["consecutive"]
    problem, best = case.problem(), case.truth
    with pytest.raises(igpe.errors.ProblemError, match="nothing to prove"):
        igpe.certify(problem.fixing(best), {})
    with pytest.raises(igpe.errors.ProblemError, match="gap is 2; BranchAndBound needs"):
        igpe.certify(problem, best, gap=2)
    with pytest.raises(igpe.errors.ProblemError, match="are missing for"):
        igpe.certify(problem, {"k1": 1.0})
    with pytest.raises(igpe.errors.Unsupported, match="explicit slopes"):
        igpe.certify(CASES["dimer"].problem(), CASES["dimer"].truth)
    experiment = igpe.Experiment(case.data(), start=case.start, start_time=0.0)
    robust = igpe.Problem(
        case.builder, parameters=["k1", "k2"], experiments=experiment, loss=igpe.losses.L1()
    )
    with pytest.raises(igpe.errors.Unsupported, match="least squares"):
        igpe.certify(robust, best)
    loose = igpe.Problem(
        case.builder, parameters={"k1": (0, np.inf), "k2": (0, 9)}, experiments=experiment
    )
    with pytest.raises(igpe.errors.ProblemError, match="bounds"):
        igpe.certify(loose, best)
    monkeypatch.setattr(compiled, "numba", None)
    with pytest.raises(igpe.errors.SolverMissing, match="pip install"):
        igpe.certify(problem, best)


@pytest.mark.slow
def test_estimate_appends_the_proof() -> None:
    problem = CASES["consecutive"].problem(noise=0.05)
    result = igpe.estimate(problem, certify=True)
    assert result.proof is not None
    assert result.proof.closed
    assert result.proof.lower_bound <= result.objective
    assert result.proof.sentence in result.details.sentences
    assert "No parameter values with" in result.report()
    assert igpe.Result.from_json(result.to_json()).proof == result.proof
    assert "certificate" in result.seconds


def test_estimate_tells_why_there_is_no_proof() -> None:
    result = igpe.estimate(CASES["dimer"].problem(), certify=True)
    assert result.proof is None
    assert any(line.startswith("Not proved. igpe.certify needs") for line in result.actions)
    assert igpe.Result.from_json(result.to_json()).proof is None
