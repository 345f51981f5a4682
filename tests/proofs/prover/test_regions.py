"""Certified regions: what they claim is true, by formulas and by samples, and nothing is missed."""

import importlib
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from regional import BOUNDS, SIGMA, TRUTH, mirrored, squares, undetermined
from scipy import special

import igpe
from igpe.proofs import CertifiedRegion
from igpe.proofs.prover.certify import _tree_box
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.regions import RegionProof
from igpe.proofs.prover.search import BoxNode, Incumbent

SAMPLES = 4000


@pytest.fixture(scope="module")
def two() -> CertifiedRegion:
    return igpe.certify_region(mirrored(), TRUTH, time_limit=300)


def test_what_it_counts_other_than_intervals_do_is_said(two: CertifiedRegion) -> None:
    """Only where several quantities have standard deviations of their own, which are unknown."""
    said = "counts the degrees of freedom of all quantities together"
    assert said in replace(two, degrees=9, relative_sigma={"a": 0.5, "b": 2.0}).sentence
    assert said not in replace(two, degrees=9, relative_sigma={"a": 1.0}).sentence
    assert said not in replace(two, relative_sigma={"a": 0.5, "b": 2.0}, degrees=0).sentence


def random_points(region: CertifiedRegion, count: int, seed: int = 0) -> Any:
    """Half of them anywhere, half near the faces of the regions."""
    rng = np.random.default_rng(seed)
    low, high = np.array(region.lower), np.array(region.upper)
    points = [low + rng.random((count, len(low))) * (high - low)]
    for one in region.regions:
        a, b = np.array(one.lower), np.array(one.upper)
        near = a - 0.2 * (b - a) + 1.4 * rng.random((count, len(low))) * (b - a)
        points.append(np.clip(near, low, high))
    return np.concatenate(points)


def is_in(region: CertifiedRegion, points: Any) -> Any:
    ends = [(np.array(r.lower), np.array(r.upper)) for r in region.regions]
    return np.any([((a <= points) & (points <= b)).all(axis=1) for a, b in ends], axis=0)


def test_mirror_regions_are_both_found_and_no_third_is_there(two: CertifiedRegion) -> None:
    assert two.closed
    assert len(two.regions) == two.known == 2
    first, second = (np.array([r.lower, r.upper]) for r in two.regions)
    assert first[:, ::-1] == pytest.approx(second, rel=2e-2)
    assert "two separate regions; outside their boxes there is no third (proved)" in str(two)
    assert "Practically identifiable within the bounds in each region (proved): k1, k2" in str(two)


def test_no_sampled_parameters_of_the_region_lie_outside(two: CertifiedRegion) -> None:
    points = random_points(two, SAMPLES)
    cost = squares(points)
    rise = special.chdtri(1, 0.05)
    inside = is_in(two, points)
    assert (cost[~inside] > two.objective + rise).all()
    assert (cost[inside] <= two.objective + rise).sum() > 50
    assert (cost >= two.lower_bound).all()


def test_inner_ends_belong_to_the_region_and_are_near_the_outer_ones(two: CertifiedRegion) -> None:
    rise = special.chdtri(1, 0.05)
    assert two.rise == pytest.approx(rise, rel=1e-12)
    assert two.inner_level <= two.lower_bound + rise
    for one in two.regions:
        assert (squares(np.array(one.inside)) <= two.lower_bound + rise).all()
        gap = np.stack([one.inner[0] - one.lower, one.upper - one.inner[1]])
        width = np.array(one.upper) - one.lower
        assert (gap >= 0).all()
        assert (gap <= 0.01 * width).all()


def test_the_ends_are_those_of_the_profile(two: CertifiedRegion) -> None:
    profiles = igpe.profile(mirrored(), TRUTH)
    frame = two.to_frame()
    own = min((1, 2), key=lambda k: abs(two.regions[k - 1].parameters[0] - TRUTH["k1"]))
    for name in ("k1", "k2"):
        row = frame[(frame["region"] == own) & (frame["name"] == name)].iloc[0]
        slack = 2e-3 * (profiles[name].upper - profiles[name].lower)
        assert row.outer_lower - slack <= profiles[name].lower <= row.inner_lower + slack
        assert row.inner_upper - slack <= profiles[name].upper <= row.outer_upper + slack


@pytest.mark.parametrize("simultaneous", [False, True])
def test_unknown_errors_take_f_and_all_unknowns_together_a_wider_region(simultaneous: bool) -> None:
    problem = mirrored(known=False)
    found = igpe.certify_region(problem, TRUTH, simultaneous=simultaneous, time_limit=300)
    k = 2 if simultaneous else 1
    assert found.degrees == 4
    rise = found.objective / 4 * k * special.fdtri(k, 4, 0.95)
    assert found.rise == pytest.approx(rise, rel=1e-6)
    if not simultaneous:
        assert found.rise == pytest.approx(igpe.profile(problem, TRUTH).rise, rel=1e-4)
    points = random_points(found, SAMPLES)
    cost, inside = squares(points, known=False), is_in(found, points)
    assert found.closed
    assert (cost[~inside] > found.objective + rise).all()


def test_a_region_that_reaches_a_bound_says_so() -> None:
    problem = mirrored(k1=(0.0, 0.4), k2=(0.0, 8.0))
    found = igpe.certify_region(problem, {"k1": 0.4, "k2": 2.0}, time_limit=300)
    assert found.closed
    assert len(found.regions) == 1
    rows = found.to_frame().set_index("name")
    assert rows["above"].to_dict() == {"k1": "reaches its bound", "k2": "limited"}
    assert rows.loc["k1", "inner_upper"] == rows.loc["k1", "outer_upper"] == 0.4
    assert found.intervals["identifiable"].to_dict() == {"k1": False, "k2": True}
    assert "The region reaches these bounds (proved): k1 (upper bound 0.4)." in str(found)


def test_unknowns_that_only_occur_as_a_sum_have_no_limits() -> None:
    found = igpe.certify_region(undetermined(), {"k1": 0.5, "k2": 1.0}, time_limit=300)
    assert found.closed
    assert len(found.regions) == 1
    frame = found.to_frame().set_index("name")
    assert (frame["below"] == "reaches its bound").all()
    high = frame["outer_upper"]
    assert 1.5 < high["k1"] < 1.8
    assert (found.intervals["identifiable"] == False).all()  # noqa: E712 - None is another answer
    assert "k1 (lower bound 0), k2 (lower bound 0)" in str(found)


def test_priors_narrow_the_region() -> None:
    run = mirrored().experiments[0]
    prior = {"k1": igpe.losses.NormalPrior(0.4, 0.01)}
    model = importlib.import_module("regional").two_decays
    problem = igpe.Problem(model, parameters=BOUNDS, experiments=[run], priors=prior)
    found = igpe.certify_region(problem, TRUTH, time_limit=300)
    assert found.closed
    assert len(found.regions) == 1
    points = random_points(found, SAMPLES)
    cost = squares(points) + ((points[:, 0] - 0.4) / 0.01) ** 2
    outside = ~is_in(found, points)
    assert (cost[outside] > found.objective + special.chdtri(1, 0.05)).all()
    assert igpe.verify(found, problem)


def test_a_poor_start_is_left_for_the_best(two: CertifiedRegion) -> None:
    found = igpe.certify_region(mirrored(), {"k1": 7.0, "k2": 6.0}, time_limit=300)
    assert found.closed
    assert found.objective == pytest.approx(two.objective, rel=1e-3)
    assert len(found.regions) == 2


def test_a_published_problem() -> None:
    case = importlib.import_module("bellman")
    found = igpe.certify_region(case.problem(), case.OPTIMUM, time_limit=300)
    assert found.closed
    profiles = igpe.profile(case.problem(), case.OPTIMUM)
    for name, row in found.intervals.iterrows():
        one = profiles[str(name)]
        slack = 2e-3 * (one.upper - one.lower)
        assert row.outer_lower - slack <= one.lower <= row.inner_lower + slack


def test_interruption_keeps_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    examine, calls = BoxEnclosure.examine, itertools.count()

    def interrupted(self: Any, *given: Any, **more: Any) -> Any:
        if self.degree > 1 and next(calls) == 5:
            raise KeyboardInterrupt
        return examine(self, *given, **more)

    monkeypatch.setattr(BoxEnclosure, "examine", interrupted)
    found = igpe.certify_region(mirrored(), TRUTH, time_limit=300)
    monkeypatch.undo()
    assert found.status is igpe.Status.INTERRUPTED
    assert 0 < found.open_share < 1
    assert "found so far; others may exist; the proof was stopped by you" in str(found)
    low, high = np.array(found.undecided)
    points = random_points(found, SAMPLES)
    left = ~is_in(found, points) & ~((low <= points) & (points <= high)).all(axis=1)
    assert (squares(points)[left] > found.objective + special.chdtri(1, 0.05)).all()
    assert found.intervals["identifiable"].isna().any()
    assert igpe.verify(found, mirrored())


def test_the_stored_one_is_read_back(two: CertifiedRegion, tmp_path: Any) -> None:
    two.to_json(tmp_path / "region.json")
    assert CertifiedRegion.from_json(tmp_path / "region.json") == two
    assert str(CertifiedRegion.from_dict(two.without_tree().to_dict())) == str(two)
    plain = igpe.proofs.DynamicCertificate.from_json(tmp_path / "region.json")
    assert plain.lower_bound == two.lower_bound
    stored = two.to_dict()
    del stored["level"]
    with pytest.raises(igpe.errors.DataError, match="level"):
        CertifiedRegion.from_dict(stored)


def test_what_is_refused() -> None:
    unbounded = mirrored().given | {"parameters": {n: (-np.inf, np.inf) for n in TRUTH}}
    with pytest.raises(igpe.errors.ProblemError, match=r"^igpe\.certify_region needs finite"):
        igpe.certify_region(igpe.Problem(**unbounded), TRUTH)
    with pytest.raises(igpe.errors.ProblemError, match="level is 95; certify_region needs"):
        igpe.certify_region(mirrored(), TRUTH, level=95)
    with pytest.raises(igpe.errors.ProblemError, match="simultaneous is 1"):
        igpe.certify_region(mirrored(), TRUTH, simultaneous=1)  # type: ignore[arg-type]
    module = importlib.import_module("regional")
    run = igpe.Experiment(
        _data(), start={"a": 1.0, "b": 1.0}, start_time=0.0, sigma=igpe.EstimatedSigma("k1")
    )
    problem = igpe.Problem(module.two_decays, parameters=BOUNDS, experiments=[run])
    with pytest.raises(igpe.errors.Unsupported, match="standard deviations are estimated"):
        igpe.certify_region(problem, TRUTH)


def _data() -> Any:
    module = importlib.import_module("regional")
    return module.measured(module.of_two(**TRUTH))


def test_exact_data_of_unknown_errors_have_no_region() -> None:
    module = importlib.import_module("regional")
    data = module.measured(module.of_two(**TRUTH))
    data["y"] = module.of_two(**TRUTH)
    run = igpe.Experiment(data, start={"a": 1.0, "b": 1.0}, start_time=0.0)
    problem = igpe.Problem(module.two_decays, parameters=BOUNDS, experiments=[run])
    with pytest.raises(igpe.errors.ProblemError, match="0 up to rounding"):
        igpe.certify_region(problem, TRUTH)


def test_the_paving_is_true(two: CertifiedRegion) -> None:
    paving = igpe.proofs.pave(mirrored(), two, boxes=250)
    rng = np.random.default_rng(1)
    rise = special.chdtri(1, 0.05)
    for kind, holds in (
        ("in", lambda s: s <= two.lower_bound + rise * (1 + 1e-9)),
        ("out", lambda s: s > two.objective + rise),
    ):
        which = [k for k, own in enumerate(paving.kinds) if own == kind]
        assert which
        a, b = paving.lower[which], paving.upper[which]
        for _ in range(20):
            assert holds(squares(a + rng.random(a.shape) * (b - a))).all()
    size = np.prod(paving.upper - paving.lower, axis=1).sum()
    full = np.prod(paving.upper.max(axis=0) - paving.lower.min(axis=0))
    assert size == pytest.approx(full, rel=1e-9)
    assert paving.area("in") > 0.5 * SIGMA**2
    assert not math.isnan(paving.area("edge"))


def test_a_box_that_grows_joins_the_one_it_meets_and_leaves_others_alone() -> None:
    dynamic = posed(mirrored())
    search = RegionProof()._search(Incumbent(mirrored(), dynamic, 0.01), np.array([0.4, 2.0]))
    for k1, k2 in ((2.0, 0.4), (2.001, 0.4), (0.4, 2.001)):
        point = search.extents.at(np.array([k1, k2]))
        assert point is not None
        search.add(point)
        assert len(search.allowed) == 2


def test_an_open_box_that_has_children_already_is_stored_without() -> None:
    node = BoxNode(np.zeros(1), np.ones(1), children=[1, 2])
    assert _tree_box(node).children == ()


def test_a_paving_of_another_problem_is_refused(two: CertifiedRegion) -> None:
    with pytest.raises(igpe.errors.ProblemError, match="the problem has the lower bounds"):
        igpe.proofs.pave(mirrored(k1=(0.0, 7.0)), two)
    with pytest.raises(igpe.errors.ProblemError, match="the region was certified with"):
        igpe.proofs.pave(mirrored(known=False), two)


def test_an_optimum_that_leaves_the_bound_of_the_start_has_its_own_degrees() -> None:
    """At (0, 2) one unknown is free, at the optimum two: the level is higher by 15 %."""
    problem = mirrored(known=False)
    found = igpe.certify_region(problem, {"k1": 0.0, "k2": 2.0}, time_limit=300)
    assert found.degrees == 4
    level = found.objective * (1 + special.fdtri(1, 4, 0.95) / 4)
    assert found.cut >= level
    points = random_points(found, SAMPLES)
    cost = squares(points, known=False)
    assert (cost[~is_in(found, points)] > level).all()
    assert igpe.verify(found, problem)


def test_bounds_of_trial_halves_are_not_those_of_halves_along_faces() -> None:
    """The first box is cut along a face; its trial halves were excluded with the optimum in one."""
    module = importlib.import_module("regional")
    problem, squares_of = module.saturated()
    found = igpe.certify_region(problem, {"V": 1.0, "K": 0.5}, precision=0.05, time_limit=300)
    assert found.closed
    assert is_in(found, np.array([found.parameters])).all()
    points = random_points(found, SAMPLES)
    outside = ~is_in(found, points)
    assert (squares_of(points[outside]) > found.objective + special.chdtri(1, 0.05)).all()
    assert igpe.verify(found, problem)
