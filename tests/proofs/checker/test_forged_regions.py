"""Certificates of points and regions that claim too much, in many ways: none is verified."""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from regional import TRUTH, mirrored, second_order
from scipy import special
from scipy.optimize import minimize_scalar

import igpe
from igpe.proofs import CertifiedRegion

Certificate = dict[str, Any]
Forgery = Callable[[Certificate], None]


@pytest.fixture(scope="module")
def region() -> CertifiedRegion:
    return igpe.certify_region(mirrored(), TRUTH, time_limit=300)


@pytest.fixture(scope="module")
def unknown_errors() -> CertifiedRegion:
    return igpe.certify_region(mirrored(known=False), TRUTH, time_limit=300)


@pytest.fixture(scope="module")
def point() -> igpe.proofs.DynamicCertificate:
    return igpe.certify(mirrored(), TRUTH, time_limit=300)


def setting(*path: Any, to: Any) -> Forgery:
    def change(given: Certificate) -> None:
        at: Any = given
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to(at[path[-1]]) if callable(to) else to

    return change


def leaves(given: Certificate, reason: str) -> list[Certificate]:
    found = [box for box in given["tree"] if box["reason"] == reason]
    assert found
    return found


def relabelled(old: str, new: str) -> Forgery:
    def change(given: Certificate) -> None:
        for box in leaves(given, old):
            box["reason"] = new

    return change


def _narrower(side: str, axis: int) -> Forgery:
    """A region's box moved in by a tenth of its width, its points and the tree left alone."""

    def change(given: Certificate) -> None:
        one = given["regions"][0]
        width = one["upper"][axis] - one["lower"][axis]
        one[side][axis] += (0.1 if side == "lower" else -0.1) * width

    return change


def _narrower_with_tree(given: Certificate) -> None:
    """The same with leaves called bound, and points moved in: only the cut tells."""
    one = given["regions"][0]
    low, high = one["lower"][0], one["upper"][0]
    one["lower"][0] = low + 0.2 * (high - low)
    one["inside"] = [p for p in one["inside"] if p[0] >= one["lower"][0]]
    for box in leaves(given, "within"):
        box["reason"] = "bound"


def _without_second(given: Certificate) -> None:
    """One of two regions left out, its leaves called bound: a mirror image hidden."""
    del given["regions"][1]
    for box in leaves(given, "within"):
        if not all(
            a <= c and d <= b
            for a, b, c, d in zip(
                given["regions"][0]["lower"], given["regions"][0]["upper"],
                box["lower"], box["upper"], strict=True,
            )
        ):  # fmt: skip
            box["reason"] = "bound"


def _no_regions(given: Certificate) -> None:
    relabelled("within", "bound")(given)
    given["regions"] = []


def _invented(given: Certificate) -> None:
    """A third region where there is none, with a point that is said to belong to it."""
    given["regions"].append(
        {"lower": [6.0, 6.0], "upper": [6.5, 6.5], "parameters": [6.2, 6.2],
         "objective": given["objective"], "inside": [[6.2, 6.2]]}
    )  # fmt: skip


def _split_in_two(given: Certificate) -> None:
    """One region cut into two that touch."""
    one = given["regions"][0]
    middle = 0.5 * (one["lower"][0] + one["upper"][0])
    other = copy.deepcopy(one)
    one["upper"][0] = other["lower"][0] = middle
    for part, keep in ((one, lambda x: x <= middle), (other, lambda x: x >= middle)):
        part["inside"] = [p for p in part["inside"] if keep(p[0])]
        part["parameters"] = part["inside"][0]
        part["objective"] = given["cut"]
    given["regions"].append(other)


def _point_outside_level(given: Certificate) -> None:
    """The inner end moved to the outer end: inside the box, outside the level."""
    one = given["regions"][0]
    one["inside"][0] = [one["lower"][0], one["lower"][1]]


def _smaller_level(given: Certificate) -> None:
    """A cut for 68 % sold as one for 95 %, with everything that follows from it."""
    rise = 0.99
    given["cut"], given["rise"] = given["objective"] + rise, rise


def _wider_rise(given: Certificate) -> None:
    """All bounds called one region, up to a level that is not that of 95 %."""
    root, best = given["tree"][0], given["regions"][0]
    given["cut"] *= 2
    given["rise"] = given["cut"] - given["objective"]
    given["lower_bound"] = 0.0
    given["tree"] = [root | {"reason": "within", "children": []}]
    ends = {"lower": root["lower"], "upper": root["upper"], "inside": []}
    given["regions"] = [best | ends]


def _open_hidden(given: Certificate) -> None:
    leaves(given, "bound")[0]["reason"] = "open"
    given["status"] = "OPTIMAL_WITHIN_GAP"


def _open_unsaid(given: Certificate) -> None:
    leaves(given, "bound")[0]["reason"] = "open"
    given["status"], given["open_share"] = "TIME_LIMIT", 1.0


def _open_elsewhere(given: Certificate) -> None:
    """It is said to be undecided somewhere, but a leaf lies elsewhere."""
    box = leaves(given, "bound")[0]
    box["reason"] = "open"
    given["status"], given["open_share"] = "TIME_LIMIT", 1.0
    end = [0.5 * (a + b) for a, b in zip(box["lower"], box["upper"], strict=True)]
    given["undecided"] = [box["lower"], end]


def _open_share_too_small(given: Certificate) -> None:
    box = leaves(given, "bound")[0]
    box["reason"] = "open"
    given["status"], given["open_share"] = "TIME_LIMIT", 1e-12
    given["undecided"] = [box["lower"], box["upper"]]


def _orphan(given: Certificate) -> None:
    """A split whose second child is left out."""
    box = next(b for b in given["tree"] if b["reason"] == "split")
    box["children"] = box["children"][:1]


def _slab_larger(given: Certificate) -> None:
    """A contraction that cuts off a part of the region."""
    box = next(b for b in given["tree"] if b["reason"] == "contracted" and len(b["children"]) == 1)
    child = given["tree"][box["children"][0]]
    width = child["upper"][0] - child["lower"][0]
    child["upper"][0] -= 0.7 * width


def _better_bound(given: Certificate) -> None:
    """A lower bound above the optimum, which would let inner ends reach further."""
    given["lower_bound"] = given["objective"] * 1.001


def _bound_for_points(given: Certificate) -> None:
    """A lower bound raised so that a point that is not in the region seems to be."""
    given["lower_bound"] = given["objective"] * (1 - 1e-9)
    one = given["regions"][0]
    one["inside"][0] = list(one["lower"])


def _moved_leaf(given: Certificate) -> None:
    tree = given["tree"]
    box = tree[next(box for box in tree if box["reason"] == "split")["children"][0]]
    box["upper"][0] = float(np.nextafter(box["upper"][0], box["lower"][0]))


REGIONS: dict[str, Forgery] = {
    "cut too low": setting("cut", to=lambda v: v * 0.97),
    "cut at the objective": lambda c: setting("cut", to=c["objective"])(c),
    "cut raised beyond what was proved": setting("cut", to=lambda v: v * 2),
    "rise too small": setting("rise", to=lambda v: 0.5 * v),
    "rise too large": setting("rise", to=lambda v: 2 * v),
    "cut and rise of another level": _smaller_level,
    "cut and rise of a higher level, with all of the bounds": _wider_rise,
    "level raised": setting("level", to=0.99),
    "all unknowns together, with the cut of one": setting("simultaneous", to=True),
    "degrees of freedom invented": setting("degrees", to=100),
    "objective too small": setting("objective", to=lambda v: 0.9 * v),
    "parameters that are not the best": setting("parameters", to=None),
    "lower bound above the optimum": _better_bound,
    "lower bound for more points": _bound_for_points,
    "lower end moved in, first axis": _narrower("lower", 0),
    "upper end moved in, first axis": _narrower("upper", 0),
    "lower end moved in, second axis": _narrower("lower", 1),
    "upper end moved in, second axis": _narrower("upper", 1),
    "moved in, leaves called bound": _narrower_with_tree,
    "a mirror region hidden": _without_second,
    "no regions at all": setting("regions", to=[]),
    "a region invented": _invented,
    "one region counted as two": _split_in_two,
    "a region twice": lambda c: c["regions"].append(copy.deepcopy(c["regions"][0])),
    "a region beyond the bounds": setting("regions", 0, "upper", 0, to=9.0),
    "a region that is crossed": setting("regions", 0, "upper", 0, to=-1.0),
    "an inner end outside the level": _point_outside_level,
    "an inner end outside the box": setting("regions", 0, "inside", 0, to=[7.0, 7.0]),
    "best of a region outside of it": setting("regions", 1, "parameters", to=[7.0, 7.0]),
    "best of a region better than it is": setting("regions", 1, "objective", to=1e-3),
    "leaves outside called within": relabelled("bound", "within"),
    "leaves within called bound, no regions": _no_regions,
    "open boxes, and said to be finished": _open_hidden,
    "open boxes that are not undecided": _open_unsaid,
    "open boxes elsewhere": _open_elsewhere,
    "a smaller share open": _open_share_too_small,
    "a child left out": _orphan,
    "a contraction that cuts off too much": _slab_larger,
    "a leaf that leaves a gap": _moved_leaf,
    "the root smaller than the bounds": setting("tree", 0, "upper", 0, to=7.0),
    "a node with a crossed side": setting("tree", 1, "lower", 0, to=8.5),
}  # fmt: skip
POINTS: dict[str, Forgery] = {
    "lower bound above the optimum": setting("lower_bound", to=lambda v: v * 1.01),
    "objective too small": setting("objective", to=lambda v: 0.9 * v),
    "a child left out": _orphan,
    "a contraction that cuts off too much": _slab_larger,
    "a leaf that leaves a gap": _moved_leaf,
    "leaves called within": relabelled("bound", "within"),
    "parameters outside": setting("parameters", to=None),
}


def outcome(forged: Certificate, problem: igpe.Problem) -> str:
    """The verdict in words; "refused" where the file is not read at all."""
    try:
        return igpe.verify(json.dumps(forged), problem, seconds=6.0).verdict.value
    except (igpe.errors.DataError, igpe.errors.ProblemError):
        return "refused"


def forged_from(true: Any, forgery: Forgery) -> Certificate:
    given: Certificate = json.loads(true.to_json())
    given["parameters"] = given["point"]
    forgery(given)
    if given.pop("parameters") is None:
        given["point"] = [7.5, 7.5]
    return given


def test_the_true_ones_are_verified(region: Any, unknown_errors: Any, point: Any) -> None:
    for true, problem in (
        (region, mirrored()), (unknown_errors, mirrored(known=False)), (point, mirrored())
    ):  # fmt: skip
        found = igpe.verify(true.to_json(), problem)
        assert found, str(found)
    assert "the 95 % likelihood region" in str(igpe.verify(region, mirrored()))
    assert "points in (1), (2) belong to the region" in str(igpe.verify(region, mirrored()))


@pytest.mark.parametrize("kind", REGIONS)
def test_forged_regions_are_not_verified(kind: str, region: CertifiedRegion) -> None:
    forged = forged_from(region, REGIONS[kind])
    assert outcome(forged, mirrored()) in ("refuted", "not confirmed", "refused")


def test_what_is_refuted_states_no_region(region: CertifiedRegion) -> None:
    forged = forged_from(region, REGIONS["cut too low"])
    assert not igpe.verify(json.dumps(forged), mirrored(), seconds=6.0).region


@pytest.mark.parametrize(
    "kind",
    ["cut too low", "level raised", "degrees of freedom invented", "rise too small",
     "all unknowns together, with the cut of one", "lower bound for more points"],
)  # fmt: skip
def test_forged_regions_of_unknown_errors_are_not_verified(
    kind: str, unknown_errors: CertifiedRegion
) -> None:
    forged = forged_from(unknown_errors, REGIONS[kind])
    assert outcome(forged, mirrored(known=False)) == "refuted"


@pytest.mark.parametrize("kind", POINTS)
def test_forged_points_are_not_verified(kind: str, point: Any) -> None:
    assert outcome(forged_from(point, POINTS[kind]), mirrored()) != "verified"


def test_a_region_of_another_problem_is_refused(region: CertifiedRegion) -> None:
    given = forged_from(region, lambda c: None)
    assert outcome(given, mirrored(known=False)) == "refuted"  # other thresholds
    assert outcome(given, mirrored(k1=(0.0, 7.0))) == "refused"


def test_more_degrees_of_freedom_need_an_optimum_on_the_bound() -> None:
    """At k2 = 0, one unknown counts as fixed; the best values within the bounds have k2 = 0.1."""
    times = np.array([0.4, 0.8, 1.2])
    data = pd.DataFrame({"time": times, "y": [0.6446, 0.4446, 0.2931]})
    run = igpe.Experiment(data, start={"y": 1.0}, start_time=0.0)
    problem = igpe.Problem(second_order, parameters=["k1", "k2"], experiments=run)
    true = igpe.certify_region(problem, {"k1": 0.95, "k2": 0.1}, time_limit=60)
    k1 = minimize_scalar(lambda k: ((np.exp(-k * times) - data["y"]) ** 2).sum()).x
    least = float(((np.exp(-k1 * times) - data["y"]) ** 2).sum()) * (1 + 1e-9)
    rise = least * special.fdtri(1, 2, 0.95) / 2
    assert true.degrees == 1
    assert least + rise < 0.5 * true.cut
    whole = {"lower": [0.0, 0.0], "upper": [4.0, 3.0]}
    forged = json.loads(true.to_json()) | {
        "point": [k1, 0.0], "objective": least, "degrees": 2, "rise": rise,
        "cut": (least + rise) * (1 + 1e-9),
        "tree": [{**whole, "reason": "within", "children": []}],
        "regions": [{**whole, "parameters": [k1, 0.0], "objective": least, "inside": []}],
    }  # fmt: skip
    found = igpe.verify(json.dumps(forged), problem, seconds=6.0)
    assert found.verdict.value == "not confirmed"
    assert "count k2 as on a bound at the optimum, but the certificate's" in found.sentence
