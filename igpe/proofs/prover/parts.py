"""The search for a proof in parts, which processes share.

The first boxes are examined here, until there are enough for all. Then round by round: the open
boxes are dealt out into parts, each is searched for a limited number of boxes from the same cut,
and the trees that come back are grafted on. What one part finds better is the cut of all others
from the next round on. So neither who does a part nor when has any effect on the tree.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor as Threads
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from igpe.core.status import Status
from igpe.dynamics.shooting.base import Estimator
from igpe.problem.problem import Problem
from igpe.proofs.prover.best import Best
from igpe.proofs.prover.enclosures.enclosure import Enclosure
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import Node, Search
from igpe.tasks.run import Place, run
from igpe.tasks.work import Function, Item, Row, Work

PARTS = 12  # of a round
BEGUN = 3 * PARTS  # open boxes from which they are dealt out
ROUND = 40  # boxes that each part examines in the first round; in every later one half as many more
GROWTH = 1.5


class Asked(NamedTuple):
    """What a process needs to know."""

    problem: Problem
    gap: float
    local: Estimator
    degree: int


def shared(
    search: Search,
    best: Best,
    asked: Asked,
    place: Place,
    deadline: float,
    *,
    tell: Callable[[], None],
) -> Status:
    """`search.run`, by the executor of a place; the search and the best are those of all parts.

    What a worker that dies had is left open, and the search ends. Ctrl-C loses the parts in flight.
    raises  as `igpe.tasks.run`
    """
    status = search.run(deadline, tell, lambda: len(search.open) >= BEGUN)
    work, most = Work(_prepared, asked), float(ROUND)
    try:
        with _lasting(place) as hands:
            while search.open and status is Status.TIME_LIMIT and time.perf_counter() < deadline:
                lost = _round(search, best, work, hands, (int(most), deadline), tell=tell)
                status, most = lost or Status.TIME_LIMIT, GROWTH * most
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return status if search.open else Status.OPTIMAL_WITHIN_GAP


@contextmanager
def _lasting(place: Place) -> Iterator[Place]:
    """Processes of our own that stay from round to round.

    An executor of threads does one task in this process and all others in processes that it keeps.
    """
    if not isinstance(place.executor, int):
        yield place
        return
    threads = Threads(place.executor)
    try:
        yield replace(place, executor=threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _round(
    search: Search,
    best: Best,
    work: Work,
    place: Place,
    limits: tuple[int, float],
    *,
    tell: Callable[[], None],
) -> Status | None:
    """All parts once; how one ended that gave no answer."""
    most, deadline = limits
    order = sorted(search.open, key=lambda k: (search.tree[k].bound, k))
    parts = [order[i::PARTS] for i in range(min(PARTS, len(order)))]
    given = {
        "cut": search.cut,
        "best": (best.point.tolist(), best.objective),
        "most": most,
        "until": time.time() + deadline - time.perf_counter(),
    }
    items = [
        Item(str(i), given | {"nodes": [_written(search.tree[k]) for k in part]})
        for i, part in enumerate(parts)
    ]
    rows: dict[int, Row] = {}
    lost = None
    try:
        for one in run(work, items, place):
            if one.status is not None:
                lost = one.status
                break
            rows[int(one.key)] = one.row
            tell()
    finally:  # after Ctrl-C as well
        for i in sorted(rows):
            _graft(search, best, parts[i], rows[i])
    return lost


def _graft(search: Search, best: Best, part: list[int], row: Row) -> None:
    nodes = [_read(stored) for stored in row["nodes"]]
    place = [*part, *range(len(search.tree), len(search.tree) + len(nodes) - len(part))]
    for node in nodes:
        node.children = [place[k] for k in node.children]
    for k, node in zip(part, nodes, strict=False):
        search.tree[k] = node
    search.tree.extend(nodes[len(part) :])
    search.examined += row["examined"]
    search.cut = min(search.cut, row["cut"])
    point, objective = row["best"]
    best.take(np.array(point), objective)


def _prepared(asked: Asked) -> Function:
    dynamic = posed(asked.problem)
    enclosure = Enclosure(dynamic, asked.degree)
    best = Best(asked.problem, dynamic, asked.gap, asked.local)

    def one(given: Any) -> Row:
        point, best.objective = given["best"]
        best.point = np.array(point)
        lower, upper = dynamic.lower, dynamic.upper
        search = Search(enclosure, given["cut"], lower, upper, best.better)
        search.resume([_read(stored) for stored in given["nodes"]])
        deadline = time.perf_counter() + given["until"] - time.time()
        search.run(deadline, enough=lambda: search.examined >= given["most"])
        return {
            "nodes": [_written(node) for node in search.tree],
            "examined": search.examined,
            "cut": search.cut,
            "best": (best.point.tolist(), best.objective),
        }

    return one


def _written(node: Node) -> dict[str, Any]:
    multipliers = None if node.multipliers is None else node.multipliers.tolist()
    ends = {"lower": node.lower.tolist(), "upper": node.upper.tolist()}
    return vars(node) | ends | {"multipliers": multipliers}


def _read(stored: dict[str, Any]) -> Node:
    multipliers = stored["multipliers"]
    ends = {k: np.array(stored[k], dtype=float) for k in ("lower", "upper")}
    given = {"multipliers": None if multipliers is None else np.array(multipliers)}
    return Node(**stored | ends | given | {"children": list(stored["children"])})
