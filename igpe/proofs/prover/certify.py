"""Proof of global optimality for the dynamic least-squares problem, also in parallel.

A parallel search examines the first boxes here, until there are enough for all workers. Then round
by round: the open boxes are dealt out into parts, each part is searched for a limited number of
boxes from the same cut, and the trees that come back become subtrees. Better parameters from one
part define the cut of all others from the next round on. So neither who does a part nor when has
any effect on the tree.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor as Threads
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arguments import Checked, Fraction, Positive
from igpe.core.arrays import FloatArray
from igpe.core.deadline import if_in_time, session
from igpe.core.errors import ProblemError, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.markup import in_words
from igpe.core.progress import Progress, Share, Tell, teller, with_bar
from igpe.core.status import Status
from igpe.dynamics.search.multistart import MultiStart
from igpe.dynamics.shooting.base import Profile, require_start
from igpe.dynamics.shooting.refine import require_inactive
from igpe.dynamics.shooting.reweighting import first_weighted, fully_held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.model import without_constraints
from igpe.problem.problem import HeldWeights, Problem, takes_problem
from igpe.proofs.compiled import require_numba
from igpe.proofs.prover.enclosure import BoxEnclosure, Heeded
from igpe.proofs.prover.posed import Dynamic, posed
from igpe.proofs.prover.search import BoxNode, BoxSearch, Incumbent
from igpe.results.certificates import STATE_BOUNDS, TreeBox
from igpe.results.certificates import DynamicCertificate as DynamicCertificate  # noqa: PLC0414 - exported
from igpe.tasks.run import Backend, Workers, run
from igpe.tasks.workers import Function, Item, Row, Work

PARTS = 12  # of a round
FIRST_BOXES = 3 * PARTS  # open boxes from which they are dealt out
ROUND = 40  # boxes that each part examines in the first round; in every later one half as many more
GROWTH = 1.5
WHERE_INACTIVE = "A proof is possible only where they are inactive."


class SearchTask(NamedTuple):
    """Everything that a worker needs to search a part of the tree.

    heeded  sums of each experiment that tubes heed, as the first search has chosen
    """

    problem: Problem
    gap: float
    degree: int
    heeded: tuple[Heeded | None, ...] = ()


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
    Processes of our own stay from round to round: an executor of threads does one task in this
    process and all others in processes that it keeps.
    raises  as `igpe.tasks.run`
    """
    status = search.run(deadline, tell, lambda: len(search.open) >= FIRST_BOXES)
    most, threads = float(ROUND), None
    if isinstance(backend.executor, int):
        threads = Threads(backend.executor)
        backend = replace(backend, executor=threads)
    try:
        search.weigh()
        work = Work(_prepared, task._replace(heeded=search.enclosure.heeded))
        while search.open and status is Status.TIME_LIMIT and time.perf_counter() < deadline:
            lost = _parallel_round(search, best, work, backend, (int(most), deadline), tell=tell)
            status, most = lost or Status.TIME_LIMIT, GROWTH * most
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
    return status if search.open else Status.OPTIMAL_WITHIN_GAP


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
        "best": (best.point, best.objective),
        "most": most,
        "until": time.time() + deadline - time.perf_counter(),
    }
    items = [
        Item(str(i), given | {"nodes": [search.tree[k] for k in part]})
        for i, part in enumerate(parts)
    ]
    rows: dict[int, Row] = {}
    try:
        for one in run(work, items, backend):
            if one.status is not None:
                return one.status
            rows[int(one.key)] = one.row
            tell()
    finally:  # after Ctrl-C as well
        for i, row in sorted(rows.items()):
            part, nodes = parts[i], row["nodes"]
            added = range(len(search.tree), len(search.tree) + len(nodes) - len(part))
            place = [*part, *added]
            for node in nodes:
                node.children = [place[k] for k in node.children]
            for k, node in zip(part, nodes, strict=False):
                search.tree[k] = node
            search.tree.extend(nodes[len(part) :])
            search.examined += row["examined"]
            search.cut = min(search.cut, row["cut"])
            best.take(*row["best"])
    return None


def _prepared(task: SearchTask) -> Function:
    dynamic = posed(task.problem)
    enclosure = BoxEnclosure(dynamic, task.degree)
    enclosure.heed(task.heeded)
    best = Incumbent(task.problem, dynamic, task.gap)

    def one(given: Any) -> Row:
        best.point, best.objective = given["best"]
        ends = dynamic.lower, dynamic.upper
        search = BoxSearch(enclosure, given["cut"], *ends, best.better, is_weighed=True)
        search.resume(deepcopy(given["nodes"]))  # in this process they are those of the whole tree
        deadline = time.perf_counter() + given["until"] - time.time()
        search.run(deadline, enough=lambda: search.examined >= given["most"])
        return {
            "nodes": search.tree,
            "examined": search.examined,
            "cut": search.cut,
            "best": (best.point, best.objective),
        }

    return one


FEW = 5  # unknowns, for which cubic polynomials pay
NOTHING_PROVED = "Interrupted before any proof. The best parameter values so far: {}."
EVERY = 1.0  # seconds between two sentences of progress


@dataclass(frozen=True)
class BranchAndBound(Checked):
    """Branch and bound on the differential equations: the global optimum with a proven gap.

    A box of parameter values is discarded if the sum of squares provably exceeds (1 - gap) S
    everywhere in the box, where S is the sum of squares of the incumbent. Taylor models in time and
    parameters enclose the solutions; their remainders include the discretisation error (Lin &
    Stadtherr, Industrial & Engineering Chemistry Research 45 (2006) 8373). igpe intersects
    these enclosures with Mueller's bounds (differential inequalities).

    gap         relative gap between the bound and the objective at which the proof stops
    time_limit  limit on the wall time of the proof itself, in seconds; igpe keeps what has been
                proved by then
    """

    gap: Fraction = 1e-3
    time_limit: Positive = 60.0

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `Estimator`. If `start` contains values, a local search runs from them before the
        proof.

        raises  the same errors as `igpe.certify`
        """
        parameters = None
        if start:
            require_start(start, problem.box, "BranchAndBound")
            local = SingleShooting().estimate(problem, start, profiles)
            parameters = local.parameters if local.status.usable else None
        proof = self.certify(problem, parameters)
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
        estimate: Any = None,
        progress: Progress = None,
        executor: Workers = None,
        enough: Callable[[BoxSearch], bool] = lambda search: False,
        point_work: float = np.inf,
    ) -> DynamicCertificate:
        """The proof; see `igpe.certify`.

        enough  function that receives the search and returns True to stop it early; igpe ignores
                this function if an executor is given
        point_work  operations that the objective of one point may take
        """
        backend, began = Backend(executor), time.perf_counter()
        tell = teller(progress)
        problem, dynamic, parameters = what_to_prove(problem, estimate, tell)
        best = Incumbent(problem, dynamic, self.gap, point_work)
        tell("Preparing the proof (about a minute the first time on this machine)")
        degree = 3 if len(problem.box) <= FEW else 2
        point = problem.box.vector(parameters)

        def first_search() -> BoxSearch:
            cut = best.first(point)  # compiles all there is to be
            enclosure = BoxEnclosure(dynamic, degree)
            return BoxSearch(enclosure, cut, dynamic.lower, dynamic.upper, best.better)

        search = if_in_time(first_search)
        if search is None:
            given = ", ".join(f"{n} = {v:.6g}" for n, v in parameters.items())
            raise KeyboardInterrupt(NOTHING_PROVED.format(given))
        tell("Proving that no other parameter values fit better")
        deadline = time.perf_counter() + self.time_limit
        report = progress_report(tell, search, partial(_bound, search, best))
        if executor is None:
            status = search.run(deadline, report, lambda: enough(search))
        else:
            task = SearchTask(problem, self.gap, degree)
            status = parallel_search(search, best, task, backend, deadline, tell=report)
        return DynamicCertificate(
            **certificate_fields(problem, best, search, status, began), gap_wanted=self.gap
        )


def what_to_prove(
    problem: Problem, estimate: Any, tell: Tell, owner: str = "igpe.certify"
) -> tuple[Problem, Dynamic, Mapping[str, float]]:
    """The problem with fixed weights, the same as tapes, and parameters from which a proof begins.

    estimate  what `certify` was given
    raises    the same errors as `certify`
    """
    require_numba()
    if not len(problem.box):
        raise ProblemError("All unknowns are fixed, so there is nothing to prove.")
    if estimate is None:
        posed(first_weighted(problem), owner)  # what is refused needs no search
        tell("Looking for good parameter values")
        estimate = MultiStart().estimate(problem, {})
    problem = fully_held_weights(problem, estimate)
    return problem, posed(problem, owner), getattr(estimate, "parameters", estimate)


def certificate_fields(
    problem: Problem, best: Incumbent, search: BoxSearch, status: Status, began: float
) -> dict[str, Any]:
    """What every certificate holds of a search that is over, but for what was asked for."""
    runs, count = best.dynamic.experiments, best.dynamic.unmeasured.size
    others = [("", np.nan, f"prior or jump {k + 1}") for k in range(count)]
    return {
        "unknowns": problem.box.names,
        "lower": _numbers(problem.box.lower),
        "upper": _numbers(problem.box.upper),
        "parameters": _numbers(best.point),
        "objective": best.objective,
        "lower_bound": search.lower_bound,
        "cut": search.cut,
        "status": status,
        "seconds": time.perf_counter() - began,
        "examined": search.examined,
        "open_share": search.open_share,
        "rows": (*others, *(label for run in runs for label in run.labels)),
        "tree": tuple(map(_tree_box, search.tree)),
        "relative_sigma": problem.relative_sigma,
        **_sigma_fields(problem.held_weights),
    }


@takes_problem
@with_bar
@session()
def certify(
    problem: Problem,
    estimate: Any = None,
    *,
    gap: float = 1e-3,
    time_limit: float = 60.0,
    progress: Progress = None,
    executor: Workers = None,
) -> DynamicCertificate:
    """Prove that the best known parameter values are optimal within the bounds, up to a gap.

    The proved lower bound holds for the original problem: for the differential equations themselves
    (not for a discretisation), for the measurements with their weights and the priors, and for all
    parameter values within the bounds. It uses no constraints: with inactive ones it holds as well.

    estimate    a Result, an Estimate, a certificate, or a dict {unknown: value}: the values that
                igpe is to prove optimal. If igpe finds better values, the proof applies to those
                instead. If `estimate` is None, igpe searches for the best values first
    gap         the proof stops when the relative gap between the lower bound and the best sum of
                squares is at most this number
    time_limit  time limit of the proof in seconds, not counting compilation and the first estimate.
                At the limit, or on Ctrl-C, igpe returns what it has proved so far
    progress    a function that receives each message; or True, False or None, as for
                `igpe.estimate`
    executor    None: igpe runs the proof in this process; a number: the number of processes that
                igpe creates for it; otherwise an executor, as for `igpe.campaign`. All
                executors produce the same tree of boxes; the tree for None may differ. If the
                search ends early, igpe discards the results of unfinished tasks, so the tree may
                also differ between executors
    raises      KeyboardInterrupt on Ctrl-C before the first bound is proved (the exception contains
                the parameter values); Unsupported for implicit algebraic variables, active
                constraints, losses other than least squares, estimated standard deviations,
                operations without an enclosure, and results that bounds of states hold;
                ProblemError if bounds are missing; EstimationFailed if igpe cannot enclose the
                solution even at single parameter values; SolverMissing if Numba is not installed
    """
    estimate = require_provable(problem, estimate, "igpe.certify")
    free = problem.formed(without_constraints)
    proof = BranchAndBound(gap, time_limit).certify(free, estimate, progress, executor)
    values = problem.box.vector(dict(zip(proof.unknowns, proof.parameters, strict=True)))
    require_inactive(problem, values, "igpe.certify", WHERE_INACTIVE)
    return proof


def require_provable(problem: Problem, estimate: Any, owner: str) -> Any:
    """Return the estimate with which a proof can begin; of a certificate its parameters by name.

    raises  ProblemError if a value is missing; Unsupported where bounds of states are active
    """
    if isinstance(estimate, DynamicCertificate):
        estimate = dict(zip(estimate.unknowns, estimate.parameters, strict=True))
    given = getattr(estimate, "parameters", estimate)
    if given is not None:
        require_start(given, problem.box, owner)
    if active := getattr(estimate, "active", ()):
        raise Unsupported(
            f"{owner} {STATE_BOUNDS}: {in_words(active)}. A proof without them would be of another "
            "optimum."
        )
    return estimate


def _sigma_fields(held: HeldWeights | None) -> dict[str, Any]:
    """What a certificate holds of standard deviations that noise models gave."""
    if held is None or held.sigma is None or held.relative or not held.at:
        return {}
    return {"sigma": tuple(map(_numbers, held.sigma)), "sigma_at": dict(held.at)}


def _bound(search: BoxSearch, best: Incumbent) -> str:
    return f"bound {max(search.lower_bound, 0.0):.6g} of {best.objective:.6g}"


def progress_report(tell: Tell, search: BoxSearch, state: Callable[[], str]) -> Callable[[], None]:
    """Return a function that says about once a second how far the search is.

    state  what else is known, in words
    """
    last = time.perf_counter()

    def report() -> None:
        nonlocal last
        if time.perf_counter() - last < EVERY:
            return
        last, share = time.perf_counter(), search.open_share
        words = f"{search.examined} boxes, {100 * share:.3g} % of the volume undecided, {state()}"
        tell(Share(words, 1 - share, steady=False))

    return report


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())


def _tree_box(node: BoxNode) -> TreeBox:
    ends = _numbers(node.lower), _numbers(node.upper)
    multipliers = () if node.multipliers is None else _numbers(node.multipliers)
    # Ctrl-C may come when a box has its children, and is not yet said to be split
    children = () if node.reason == "open" else tuple(node.children)
    return TreeBox(*ends, node.reason, children, node.bound, node.rows, multipliers)
