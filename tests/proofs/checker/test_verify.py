"""A certificate is verified, and what is wrong with a corrupted one is found."""

import json
import re
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import consecutive
import lotka_volterra
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode

import igpe
from igpe.core.progress import Share
from igpe.proofs.checker import confirm, verify
from igpe.proofs.checker.verify import read_tree, slabs

Certificate = dict[str, Any]
OBJECTIVE = 1.18584487e-6  # rounded up


def node(lower: list[float], upper: list[float], reason: str, *children: int) -> Certificate:
    return {"lower": lower, "upper": upper, "reason": reason, "children": list(children)}


def certificate() -> Certificate:
    """Of test problem 1: two leaves, a contraction of the rest, and its leaf."""
    return {
        "format": "igpe dynamic certificate 1",
        "unknowns": ["p1", "p2"],
        "lower": [0.0, 0.0],
        "upper": [10.0, 10.0],
        "point": list(consecutive.OPTIMUM.values()),
        "objective": OBJECTIVE,
        "lower_bound": OBJECTIVE * (1 - 1e-6),
        "tree": [
            node([0.0, 0.0], [10.0, 10.0], "split", 1, 2),
            node([0.0, 0.0], [4.7, 10.0], "bound"),
            node([4.7, 0.0], [10.0, 10.0], "contracted", 3),
            node([4.7, 0.8], [6.0, 1.3], "split", 4, 5),
            node([4.7, 0.8], [6.0, 0.95], "bound"),
            node([4.7, 0.95], [6.0, 1.3], "bound"),
        ],
    }


@pytest.fixture(scope="module")
def problem() -> igpe.Problem:
    return consecutive.problem()


def test_a_true_certificate_is_verified(problem: igpe.Problem, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certificate()))
    for source in (certificate(), path, str(path), path.read_text()):
        found = igpe.verify(source, problem)
        assert found
        assert found.verdict is igpe.proofs.Verdict.VERIFIED
        assert found.leaves == 3 + 3
        assert found.volume == 0
        assert found.gap <= 1.001e-6
        low, high = found.objective
        assert OBJECTIVE * (1 - 1e-8) < low <= high <= OBJECTIVE
        assert "outward rounding" in str(found)


def test_printed_numbers_lie_on_the_side_where_they_are_true(problem: igpe.Problem) -> None:
    found = igpe.verify(certificate(), problem)
    for bound, top in ((1.23456789987, 1.34567891234), (found.lower_bound, found.objective[1])):
        said = replace(found, lower_bound=bound, objective=(bound, top)).sentence
        below, above = re.findall(r"squares below ([\d.e-]+);.* at most ([\d.e-]+) ", said)[0]
        assert bound * (1 - 1e-8) < float(below) <= bound
        assert top <= float(above) < top * (1 + 1e-8)


@pytest.mark.parametrize("bound", [0.0, -1.0])
def test_without_a_bound_above_0_the_sum_is_not_called_0(
    bound: float, problem: igpe.Problem
) -> None:
    found = igpe.verify(certificate() | {"lower_bound": bound}, problem)
    assert found
    assert "is at most 1.1858448" in str(found)
    assert "; the certificate has no lower bound above 0." in str(found)
    assert "up to rounding" not in str(found)


def test_it_says_that_it_prepares_and_checks(problem: igpe.Problem) -> None:
    sentences: list[str] = []
    igpe.verify(certificate(), problem, progress=sentences.append)
    assert [s.split()[0] for s in sentences[:2]] == ["Preparing", "Checking"]
    shares = [s.share for s in sentences if isinstance(s, Share)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert "boxes confirmed" in sentences[-1]


CORRUPTIONS: list[tuple[dict[tuple[Any, ...], Any], str]] = [
    ({("tree", 3, "children"): [4]}, "node 3"),
    ({("tree", 4, "upper", 1): float(np.nextafter(0.95, 0))}, "leave a gap"),
    ({("tree", 5, "upper", 0): float(np.nextafter(6.0, 7))}, "different bounds"),
    ({("tree", 3, "lower", 0): 4.6}, "lies outside"),
    ({("tree", 3, "upper", 0): 5.0}, "node 3"),
    ({("tree", 0, "upper", 0): 9.0}, "not the certificate's box"),
    ({("tree", 2, "children"): []}, "contracted to 0 boxes"),
    ({("tree", 1, "lower", 1): 11.0}, "reversed"),
    ({("tree", 1, "children"): [4]}, "leaf, but has children"),
    ({("lower_bound",): OBJECTIVE * (1 + 1e-6)}, "below the certificate's bound"),
    ({("objective",): OBJECTIVE * (1 - 1e-7)}, "the sum of squares is 1.1858448"),
    ({("point",): [11.0, 1.0]}, "lie outside its box"),
    # honest about its own sum of squares, and wrong that nothing is better
    (
        {("point",): [5.05, 1.0], ("objective",): 1e-3, ("lower_bound",): 1.5e-6},
        "with these parameter values, the sum of squares is below",
    ),
]


@pytest.mark.parametrize(("changes", "says"), CORRUPTIONS)
def test_a_corrupted_certificate_is_refuted(
    changes: dict[tuple[Any, ...], Any], says: str, problem: igpe.Problem
) -> None:
    given = certificate()
    for (*path, last), value in changes.items():
        reduce(getitem, path, given)[last] = value
    found = igpe.verify(given, problem)
    assert found.verdict is igpe.proofs.Verdict.REFUTED
    assert not found
    assert any(says in region.why for region in found.regions)
    assert found.regions[0].why in found.sentence


def test_a_local_optimum_is_refuted_by_better_parameters() -> None:
    """The next best minimum of test problem 6 was moved to the global one's neighbourhood."""
    run = lotka_volterra.problem().experiments[0]
    bounds = {"p1": (3.2, 3.3), "p2": (0.9, 0.94)}
    problem = igpe.Problem(lotka_volterra.model, parameters=bounds, experiments=[run])
    low, high = [3.2, 0.9], [3.3, 0.94]
    given = certificate() | {
        "lower": low,
        "upper": high,
        "point": low,
        "objective": 1.0,
        "lower_bound": 0.0192,
        "tree": [node(low, high, "bound")],
    }
    found = igpe.verify(given, problem)
    assert found.verdict is igpe.proofs.Verdict.REFUTED
    at = found.regions[0].lower
    assert at == found.regions[0].upper
    assert igpe.SingleShooting().estimate(problem, at).objective < 0.0192


def test_what_time_did_not_suffice_for_is_told(problem: igpe.Problem) -> None:
    found = igpe.verify(certificate(), problem, seconds=0.0)
    assert found.verdict is igpe.proofs.Verdict.NOT_CONFIRMED
    assert found.volume == pytest.approx(0.47 + (53 - 1.3 * 0.5) / 100 + 0.0065)
    assert "Not confirmed on 100 % of the box" in found.sentence


def test_ctrl_c_tells_what_is_not_confirmed(
    problem: igpe.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(confirm, "_once", interrupted)
    found = igpe.verify(certificate(), problem)
    assert found.verdict is igpe.proofs.Verdict.NOT_CONFIRMED
    assert "Not confirmed on 100 % of the box" in found.sentence
    assert "no proof before Ctrl-C" in found.regions[0].why


@pytest.mark.parametrize("seconds", [-1.0, np.nan, None])
def test_a_time_that_is_none_is_refused(problem: igpe.Problem, seconds: Any) -> None:
    with pytest.raises(igpe.errors.ProblemError, match="verify needs 0 or more"):
        igpe.verify(certificate(), problem, seconds=seconds)


def test_another_stored_object_is_named(problem: igpe.Problem) -> None:
    said = "a stored result in the format 1, but .* Give the file that `igpe certify --certificate`"
    with pytest.raises(igpe.errors.DataError, match=said):
        igpe.verify({"stored": "result", "format": 1}, problem)


def test_compiling_is_not_of_the_time_given(
    problem: igpe.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of an installation compiles for longer than many proofs may take."""
    clock = {"now": 0.0}

    def compiling(*_: object) -> None:
        clock["now"] += 1e6

    monkeypatch.setattr(verify, "load_kernels", compiling)
    monkeypatch.setattr(verify.time, "monotonic", lambda: clock["now"])
    found = igpe.verify(certificate(), problem, seconds=60.0)
    assert found
    assert found.seconds == 0.0


def test_open_leaves_are_claims_as_well(problem: igpe.Problem) -> None:
    given = certificate()
    given["tree"][1]["reason"] = "open"
    assert igpe.verify(given, problem)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "in the format 'other'"),
        ({"tree": []}, "no boxes"),
        ({"point": [1.0]}, "1 coordinates, not 2"),
        ({"objective": float("nan")}, "not a finite number"),
        ({"objective": "1"}, "not a finite number"),
        ({"tree": [node([0.0, 0.0], [10.0, 10.0], "split", 0, 1)]}, "does not follow it"),
        ({"tree": [node([0.0, 0.0], [10.0, 10.0], "so")]}, "reason 'so'"),
        ("nowhere.json", "could not be read"),
        ("{]", "not valid JSON"),
        (3, "is of type int"),
    ],
)
def test_what_is_no_certificate_is_said(change: Any, says: str, problem: igpe.Problem) -> None:
    given = certificate() | change if isinstance(change, dict) else change
    with pytest.raises(igpe.errors.DataError, match=says):
        igpe.verify(given, problem)


def test_another_problem_is_told() -> None:
    with pytest.raises(igpe.errors.ProblemError, match="for the unknowns p1, p2"):
        igpe.verify(certificate(), consecutive.problem().fixing({"p1": 5.0}))
    run = consecutive.problem().experiments[0]
    bounds = {"p1": (0, 11), "p2": (0, 10)}
    other = igpe.Problem(consecutive.model, parameters=bounds, experiments=[run])
    with pytest.raises(igpe.errors.ProblemError, match="for the box"):
        igpe.verify(certificate(), other)


def test_what_the_checker_does_not_know_is_refused() -> None:
    start = {"x1": 1.0, "x2": 0.0}
    data = pd.read_csv(consecutive.DATA)
    run = igpe.Experiment(data, start=start, start_time=0.0, sigma=0.1)
    names = ["p1", "p2"]
    loss = igpe.losses.Huber(1.5)
    problem = igpe.Problem(consecutive.model, parameters=names, experiments=[run], loss=loss)
    with pytest.raises(igpe.errors.Unsupported, match="a loss other than"):
        igpe.verify(certificate(), problem)


def test_an_unknown_that_moves_only_the_remainders_is_halved_too() -> None:
    """Nothing measured depends on y or b, but bounds of y need narrow ranges of b."""
    model = ode(
        {
            "x": lambda m, t: pyo.exp(-m.a * t) - m.x[t],
            "y": lambda m, t: pyo.log(1 + m.b**2 + m.x[t] ** 2) - m.y[t],
        },
        a=(0.05, 2.05),
        b=(-2.0, 2.0),
    )
    times = np.linspace(0.5, 6.0, 9)
    x = np.exp(-0.5 * times) * 2 - np.exp(-times) + 0.05 * np.cos(9 * times)
    run = igpe.Experiment(
        pd.DataFrame({"time": times, "x": x}),
        start={"x": 1.0, "y": 0.5},
        sigma=0.02,
        start_time=0.0,
    )
    given = igpe.Problem(model, parameters=["a", "b"], experiments=run)
    proof = igpe.certify(given, {"a": 0.5, "b": 1.0}, gap=0.01)
    assert igpe.verify(proof, given, seconds=20.0).verdict is igpe.proofs.Verdict.VERIFIED


def test_a_small_gap_is_verified() -> None:
    times = np.linspace(1.0, 12.0, 10)
    runs = []
    for start in (2.0, 0.7):
        x = (start**-0.6 + 0.12 * times) ** (-1 / 0.6) + 0.03 * np.cos(9 * times)
        data = pd.DataFrame({"time": times, "x": x})
        runs.append(
            igpe.Experiment(data, start={"x": start}, sigma=0.03, start_time=0.0, name=f"{start}")
        )
    model = ode({"x": lambda m, t: -m.k * m.x[t] ** m.n}, k=(0.01, 2), n=(0.3, 3))
    given = igpe.Problem(model, parameters=["k", "n"], experiments=runs)
    proof = igpe.certify(given, {"k": 0.2, "n": 1.6}, gap=1e-9)
    assert igpe.verify(proof, given, seconds=20.0).verdict is igpe.proofs.Verdict.VERIFIED


def test_slabs_cover_what_a_contraction_cuts_off() -> None:
    """Every point of a grid lies in the inner box or in a slab, and slabs do not overlap."""
    tree = read_tree(certificate())
    outer, inner = tree.nodes[0], tree.nodes[3]
    parts = [(inner.low, inner.high), *slabs(outer, inner)]
    volume = sum(np.prod(np.subtract(b, a)) for a, b in parts)
    assert volume == pytest.approx(100.0, rel=1e-14)
    rng = np.random.default_rng(0)
    for p in 10 * rng.random((500, 2)):
        assert any((np.array(a) <= p).all() and (p <= np.array(b)).all() for a, b in parts)


def test_the_ratio_of_residuals_stands_beside_that_of_the_standard_deviations() -> None:
    """Any ratio is a premise; one that the residuals contradict is seen to be."""
    times = np.linspace(0.5, 4.0, 8)
    signs = np.array([1, -1, 1, -1, -1, 1, 1, -1])
    slopes = {"x": lambda m, t: -m.k * m.x[t], "y": lambda m, t: -m.k * m.y[t]}
    table = pd.DataFrame({"time": times})
    table["x"], table["y"] = np.exp(-0.5 * times) + 0.01 * signs, np.exp(-0.5 * times)
    table["y"] += 0.03 * signs[::-1]

    def posed(sigma: Any) -> igpe.Problem:
        run = igpe.Experiment(table, start={"x": 1.0, "y": 1.0}, start_time=0.0, sigma=sigma)
        return igpe.Problem(ode(slopes, k=(0.1, 2)), parameters=["k"], experiments=run)

    proof = igpe.certify(posed({"x": 0.5, "y": 2.0}), {"k": 0.5}, gap=0.01)
    forged = json.loads(proof.to_json()) | {"relative_sigma": {"x": 0.5, "y": 2.0}, "sigma": []}
    verdict = igpe.verify(json.dumps(forged), posed(None))
    assert "have the ratio 1 : 4; at the certificate's parameter values" in str(verdict)
    seen = float(str(verdict).split("the residuals have the ratio 1 : ")[1].rstrip(".\n"))
    assert seen == pytest.approx(3.0, rel=0.1)
