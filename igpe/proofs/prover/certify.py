"""Proof of global optimality for the dynamic least-squares problem, also in parallel.

A parallel search examines the first boxes here, until there are enough for all workers. Then round
by round: the open boxes are dealt out into parts, each part is searched for a limited number of
boxes from the same cut, and the trees that come back become subtrees. Better parameters from one
part define the cut of all others from the next round on. So neither who does a part nor when has
any effect on the tree.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor as Threads
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import if_in_time, session
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate
from igpe.core.status import Progress, Status
from igpe.dynamics.search.multistart import MultiStart
from igpe.dynamics.shooting.base import Estimator, Profile, require_start
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.problem import Problem
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.kernels.compiled import require_numba
from igpe.proofs.prover.posed import Dynamic, posed
from igpe.proofs.prover.search import BoxNode, BoxSearch, Incumbent
from igpe.results.dynamic_certificate import DynamicCertificate, TreeBox
from igpe.tasks.executors import Workers
from igpe.tasks.run import Backend, run
from igpe.tasks.workers import Function, Item, Row, Work

PARTS = 12  # of a round
FIRST_BOXES = 3 * PARTS  # open boxes from which they are dealt out
ROUND = 40  # boxes that each part examines in the first round; in every later one half as many more
GROWTH = 1.5


class SearchTask(NamedTuple):
    """What a worker needs to search a part of the tree."""

    problem: Problem
    gap: float
    local: Estimator
    degree: int


def parallel_search(
    search: BoxSearch,
    best: Incumbent,
    task: SearchTask,
    backend: Backend,
    deadline: float,
    *,
    tell: Callable[[], None],
) -> Status:
    """`search.run`, by the executor of a backend; the search and the best are those of all parts.

    What a worker that dies had is left open, and the search ends. Ctrl-C loses the parts in flight.
    raises  as `igpe.tasks.run`
    """
    status = search.run(deadline, tell, lambda: len(search.open) >= FIRST_BOXES)
    work, most = Work(_prepared, task), float(ROUND)
    try:
        with _lasting_workers(backend) as hands:
            while search.open and status is Status.TIME_LIMIT and time.perf_counter() < deadline:
                lost = _parallel_round(search, best, work, hands, (int(most), deadline), tell=tell)
                status, most = lost or Status.TIME_LIMIT, GROWTH * most
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return status if search.open else Status.OPTIMAL_WITHIN_GAP


@contextmanager
def _lasting_workers(backend: Backend) -> Iterator[Backend]:
    """Processes of our own that stay from round to round.

    An executor of threads does one task in this process and all others in processes that it keeps.
    """
    if not isinstance(backend.executor, int):
        yield backend
        return
    threads = Threads(backend.executor)
    try:
        yield replace(backend, executor=threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _parallel_round(
    search: BoxSearch,
    best: Incumbent,
    work: Work,
    backend: Backend,
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
        Item(str(i), given | {"nodes": [_as_row(search.tree[k]) for k in part]})
        for i, part in enumerate(parts)
    ]
    rows: dict[int, Row] = {}
    lost = None
    try:
        for one in run(work, items, backend):
            if one.status is not None:
                lost = one.status
                break
            rows[int(one.key)] = one.row
            tell()
    finally:  # after Ctrl-C as well
        for i in sorted(rows):
            _add_subtrees(search, best, parts[i], rows[i])
    return lost


def _add_subtrees(search: BoxSearch, best: Incumbent, part: list[int], row: Row) -> None:
    nodes = [_from_row(stored) for stored in row["nodes"]]
    backend = [*part, *range(len(search.tree), len(search.tree) + len(nodes) - len(part))]
    for node in nodes:
        node.children = [backend[k] for k in node.children]
    for k, node in zip(part, nodes, strict=False):
        search.tree[k] = node
    search.tree.extend(nodes[len(part) :])
    search.examined += row["examined"]
    search.cut = min(search.cut, row["cut"])
    point, objective = row["best"]
    best.take(np.array(point), objective)


def _prepared(task: SearchTask) -> Function:
    dynamic = posed(task.problem)
    enclosure = BoxEnclosure(dynamic, task.degree)
    best = Incumbent(task.problem, dynamic, task.gap, task.local)

    def one(given: Any) -> Row:
        point, best.objective = given["best"]
        best.point = np.array(point)
        lower, upper = dynamic.lower, dynamic.upper
        search = BoxSearch(enclosure, given["cut"], lower, upper, best.better)
        search.resume([_from_row(stored) for stored in given["nodes"]])
        deadline = time.perf_counter() + given["until"] - time.time()
        search.run(deadline, enough=lambda: search.examined >= given["most"])
        return {
            "nodes": [_as_row(node) for node in search.tree],
            "examined": search.examined,
            "cut": search.cut,
            "best": (best.point.tolist(), best.objective),
        }

    return one


def _as_row(node: BoxNode) -> dict[str, Any]:
    multipliers = None if node.multipliers is None else node.multipliers.tolist()
    ends = {"lower": node.lower.tolist(), "upper": node.upper.tolist()}
    return vars(node) | ends | {"multipliers": multipliers}


def _from_row(stored: dict[str, Any]) -> BoxNode:
    multipliers = stored["multipliers"]
    ends = {k: np.array(stored[k], dtype=float) for k in ("lower", "upper")}
    given = {"multipliers": None if multipliers is None else np.array(multipliers)}
    return BoxNode(**stored | ends | given | {"children": list(stored["children"])})


FEW = 5  # unknowns, for which cubic polynomials pay
NOTHING_PROVED = "Interrupted before anything was proved. The best parameters so far: {}."
EVERY = 1.0  # seconds between two sentences of progress


@dataclass(frozen=True)
class BranchAndBound:
    """Branch and bound on the differential equations: the global optimum with a proven gap.

    Boxes of parameters are thrown away when the sum of squares is proven to exceed, for every
    parameter in them, that of the incumbent less the gap. The solutions are enclosed by Taylor
    models in time and parameters whose remainders hold the error of discretisation (Lin &
    Stadtherr, Ind. Eng. Chem. Res. 45 (2006) 8373), intersected with Mueller's bounds.

    gap         relative distance of the bound to the objective
    time_limit  seconds of wall time for the proof itself; what is proved until then is kept
    degree      of the polynomials in the parameters, 1 to 3; None: 3 for few unknowns, else 2
    search      finds the first parameters where none are given
    local       improves on the middle of a box that is better than the incumbent
    """

    gap: float = 1e-3
    time_limit: float = 60.0
    degree: int | None = None
    search: Estimator = MultiStart()
    local: Estimator = SingleShooting()

    def __post_init__(self) -> None:
        given = (
            ("gap", is_finite(self.gap) and 0 < self.gap < 1, "a number between 0 and 1"),
            ("time_limit", is_finite(self.time_limit) and self.time_limit > 0, "positive seconds"),
            ("degree", self.degree in (None, 1, 2, 3), "1, 2, 3 or None"),
        )
        for name, ok, wanted in given:
            require(ok, "BranchAndBound", name, getattr(self, name), wanted)

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `Estimator`; the local method begins at `start`, if there is one.

        raises  as `igpe.certify` does
        """
        local_estimate = None
        if start:
            require_start(start, problem.box, "BranchAndBound")
            local_estimate = self.local.estimate(problem, start, profiles)
            local_estimate = local_estimate if local_estimate.status.usable else None
        proof = self.certify(problem, None if local_estimate is None else local_estimate.parameters)
        return Estimate(
            dict(zip(proof.unknowns, proof.parameters, strict=True)),
            proof.objective,
            proof.status,
            "branch and bound on the differential equations",
            proof.lower_bound,
            proof.seconds,
            notes=(proof.sentence,),
        )

    def certify(
        self,
        problem: Problem,
        parameters: Mapping[str, float] | None = None,
        progress: Progress | None = None,
        executor: Workers = None,
    ) -> DynamicCertificate:
        """The proof; see `igpe.certify`."""
        backend = Backend(executor)
        began = time.perf_counter()
        require_numba()
        dynamic = posed(problem)
        if not len(problem.box):
            raise ProblemError("All unknowns are held fixed, so that there is nothing to prove.")
        if parameters is None:
            _report(progress, "Looking for good parameters")
            parameters = self.search.estimate(problem, {}).parameters
        best = Incumbent(problem, dynamic, self.gap, self.local)
        _report(progress, "Getting ready, for a minute if it is the first time on this machine")
        degree = self.degree or (3 if len(problem.box) <= FEW else 2)
        point = problem.box.vector(parameters)

        def first_search() -> BoxSearch:
            cut = best.first(point)  # compiles all there is to be
            enclosure = BoxEnclosure(dynamic, degree)
            return BoxSearch(enclosure, cut, dynamic.lower, dynamic.upper, best.better)

        search = if_in_time(first_search)
        if search is None:
            given = ", ".join(f"{n} = {v:.6g}" for n, v in parameters.items())
            raise KeyboardInterrupt(NOTHING_PROVED.format(given))
        _report(progress, "Proving that no others fit better")
        deadline = time.perf_counter() + self.time_limit
        teller = _ProgressReport(progress, search, best)
        if executor is None:
            status = search.run(deadline, teller)
        else:
            task = SearchTask(problem, self.gap, self.local, degree)
            status = parallel_search(search, best, task, backend, deadline, tell=teller)
        return self._certificate(problem, dynamic, search, best, status, began)

    def _certificate(
        self,
        problem: Problem,
        dynamic: Dynamic,
        search: BoxSearch,
        best: Incumbent,
        status: Status,
        began: float,
    ) -> DynamicCertificate:
        box = problem.box
        return DynamicCertificate(
            unknowns=box.names,
            lower=_numbers(box.lower),
            upper=_numbers(box.upper),
            parameters=_numbers(best.point),
            objective=best.objective,
            lower_bound=search.lower_bound,
            cut=search.cut,
            gap_wanted=self.gap,
            status=status,
            seconds=time.perf_counter() - began,
            examined=search.examined,
            open_share=search.open_share,
            rows=_labels(problem, dynamic),
            tree=tuple(map(_tree_box, search.tree)),
        )


@session()
def certify(
    problem: Problem,
    estimate: Any = None,
    *,
    gap: float = 1e-3,
    time_limit: float = 60.0,
    method: BranchAndBound | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
) -> DynamicCertificate:
    """Prove that no parameters within the bounds fit essentially better.

    The bound is about the problem as posed: the differential equations (not a discretisation), the
    measurements with their weights, priors, and all parameters within the bounds.

    estimate    a Result, an Estimate, or unknown -> value: what is to be proven the best. If it is
                not, better parameters are returned. None: they are looked for
    gap         relative distance of the bound to the sum of squares
    time_limit  seconds for the proof itself, once compiled and with first parameters; what is
                proved until then is returned, also after Ctrl-C
    method      `BranchAndBound(...)` with more choices; gap and time_limit then are its own
    progress    called with a sentence about once a second
    executor    None: here; a number of processes; or an executor, as for `igpe.campaign`. The tree
                is the same for all but None, unless it ends early; parts in flight are then lost
    raises      KeyboardInterrupt, with the parameters, if Ctrl-C comes before the first bound;
                Unsupported for implicit algebraic variables, constraints, other losses, estimated
                standard deviations and operations without an enclosure; ProblemError without
                bounds; EstimationFailed if not even single parameters could be enclosed;
                SolverMissing without Numba (pip install 'igpe[certify]')
    """
    chosen = method or BranchAndBound(gap=gap, time_limit=time_limit)
    given = getattr(estimate, "parameters", estimate)
    if given is not None:
        require_start(given, problem.box, "igpe.certify")
    return chosen.certify(problem, given, progress, executor)


class _ProgressReport:
    """Tells about once a second how far the search is."""

    def __init__(self, progress: Progress | None, search: BoxSearch, best: Incumbent) -> None:
        self.progress, self.search, self.best = progress, search, best
        self.last = time.perf_counter()

    def __call__(self) -> None:
        if self.progress is None or time.perf_counter() - self.last < EVERY:
            return
        self.last = time.perf_counter()
        bound = max(self.search.lower_bound, 0.0)
        self.progress(
            f"{self.search.examined} boxes, {100 * self.search.open_share:.3g} % of the box left, "
            f"bound {bound:.6g} of {self.best.objective:.6g}"
        )


def _report(progress: Progress | None, sentence: str) -> None:
    if progress is not None:
        progress(sentence)


def _labels(problem: Problem, dynamic: Dynamic) -> tuple[tuple[str, float, str], ...]:
    given = [("", np.nan, f"prior or jump {k + 1}") for k in range(dynamic.unmeasured.size)]
    return (*given, *(label for run in dynamic.experiments for label in run.labels))


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def _tree_box(node: BoxNode) -> TreeBox:
    return TreeBox(
        _numbers(node.lower),
        _numbers(node.upper),
        node.reason,
        tuple(node.children),
        node.bound,
        node.rows,
        () if node.multipliers is None else _numbers(node.multipliers),
    )
