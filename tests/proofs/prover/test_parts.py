"""A proof in parts: one tree whoever does them, and nothing lost when it ends early."""

from collections.abc import Iterator
from typing import Any

import lotka_volterra
import pytest

import igpe
from igpe.core.status import Status
from igpe.proofs.checker.verify import read_tree
from igpe.proofs.prover import certify as parts
from igpe.tasks.run import run
from igpe.tasks.workers import ItemOutcome

POINT = lotka_volterra.OPTIMUM


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PARTS", 4)
    monkeypatch.setattr(parts, "FIRST_BOXES", 6)
    monkeypatch.setattr(parts, "ROUND", 5)


def certified(**more: Any) -> igpe.proofs.DynamicCertificate:
    return igpe.certify(lotka_volterra.problem(), POINT, **more)


@pytest.mark.slow
def test_the_tree_is_the_same_whoever_does_the_parts() -> None:
    one, two = (certified(gap=0.1, executor=count) for count in (1, 2))
    assert one.closed
    assert one.tree == two.tree
    assert one.examined == two.examined
    assert igpe.verify(one, lotka_volterra.problem())


def test_what_a_part_finds_better_is_the_cut_of_all() -> None:
    """The best other optimum is given; a part meets the true one."""
    given = {"p1": 10.0, "p2": 6.4962}
    found = igpe.certify(lotka_volterra.problem(), given, gap=1e-2, executor=1)
    assert found.closed
    assert found.objective == pytest.approx(lotka_volterra.OBJECTIVE, rel=1e-6)
    assert found.cut == pytest.approx(0.99 * found.objective)


def test_a_bound_that_time_ended_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FIRST_BOXES", 1)
    found = certified(gap=1e-6, executor=1, time_limit=0.2)
    assert found.status is Status.TIME_LIMIT
    assert 0 < found.open_share <= 1
    assert found.lower_bound < found.cut
    assert list(read_tree(found).faults()) == []


@pytest.mark.parametrize("how", ["Ctrl-C", "a worker dies"])
def test_what_came_back_before_is_kept(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Iterator[ItemOutcome]:
        outcomes = run(*given)
        yield next(outcomes)
        yield next(outcomes)
        if how == "Ctrl-C":
            raise KeyboardInterrupt
        yield next(outcomes)._replace(status=Status.WORKER_DIED, row={})

    monkeypatch.setattr(parts, "run", broken)
    found = certified(gap=1e-6, executor=1)
    assert found.status is (Status.INTERRUPTED if how == "Ctrl-C" else Status.WORKER_DIED)
    assert found.examined > 2 * parts.ROUND
    assert 0 < found.open_share < 1
    assert list(read_tree(found).faults()) == []
