"""Ctrl-C and time limits at any moment: how long a call goes on, and what it returns.

A case is a public function on a problem. It runs once to the end (12 s at most), then six times
more, and each time gets SIGINT at a moment drawn evenly over its duration. What is measured is the
wall time from the signal to the answer, and the processor time: on a machine with other work the
second alone is igpe's. A usable answer is one whose parameters are finite and inside their bounds,
whose objective is finite or said to be unknown, and that prints and saves. KeyboardInterrupt counts
as lost if there was something before: an integration that succeeded, a chain of intervals that
could be integrated, a local optimum in step 3; for `profile` and `bootstrap` a first profile or a
first replication. `certify` may raise it with the parameters in its text, until there is a bound;
`check` has nothing before its end. `estimate` runs with time limits drawn likewise. Every run is a
process of its own, begins with what the call is given, and has the model's compiled code at hand.
"""

import argparse
import importlib.util
import multiprocessing
import os
import resource
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from figures import MODELS, Row, at_most

import igpe
from igpe.algebraic.projected import _LocalSearches
from igpe.core.deadline import Session
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.shooting.chains import Chains
from igpe.dynamics.shooting.residuals import Best
from trust.run import Answer, run

MOMENTS, LONGEST, SECONDS = 6, 12.0, 2.0
SHARE = 0.02  # of a time limit by which it may be passed in addition
Call = Callable[[igpe.Problem], Any]


@cache
def _problem(name: str) -> igpe.Problem:
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.problem()


@cache
def _start(problem: igpe.Problem) -> dict[str, float]:
    return problem.box.mapping(problem.box.sobol(4, 3)[-1])


@cache
def _fitted(problem: igpe.Problem) -> Any:
    return igpe.SingleShooting(restarts=igpe.search.Restarts(count=5)).estimate(
        problem, _start(problem)
    )


CALLS: dict[str, tuple[str, Call]] = {
    "estimate methanol": ("methanol", igpe.estimate),
    "estimate urethane": ("urethane", igpe.estimate),
    "estimate calcium": ("calcium", igpe.estimate),
    "estimate processes": ("lotka_volterra", lambda p: igpe.estimate(p, executor=2)),
    "single shooting": (
        "calcium",
        lambda p: igpe.SingleShooting(restarts=igpe.search.Restarts(count=20)).estimate(
            p, _start(p)
        ),
    ),
    "incremental shooting": (
        "calcium",
        lambda p: igpe.IncrementalShooting().estimate(p, _start(p)),
    ),
    "multiple shooting": (
        "calcium",
        lambda p: igpe.MultipleShooting().estimate(p, _start(p)),
    ),
    "backward lifting": (
        "lotka_volterra",
        lambda p: igpe.MultipleShooting(search=BackwardLifting()).estimate(p, _start(p)),
    ),
    "collocation": ("methanol", lambda p: igpe.Collocation().estimate(p, _start(p))),
    "many starts": ("calcium", lambda p: igpe.search.MultiStart().estimate(p, {})),
    "iterated search": (
        "lotka_volterra",
        lambda p: igpe.search.IteratedSearch(patience=10).estimate(p, {}),
    ),
    "campaign": ("methanol", lambda p: igpe.campaign(p, starts=40)),
    "bootstrap": ("methanol", lambda p: igpe.bootstrap(p, _fitted(p), replications=100)),
    "profile": ("methanol", lambda p: igpe.profile(p, _fitted(p))),
    "check": ("urethane", lambda p: igpe.check(p, identifiability=True)),
    "compare": (
        "calcium",
        lambda p: igpe.estimation.compare(
            p, [igpe.SingleShooting(), igpe.IncrementalShooting()], starts=10
        ),
    ),
    "certify": ("lotka_volterra", igpe.certify),
    "estimate with a proof": ("lotka_volterra", lambda p: igpe.estimate(p, certify=True)),
}
COMPILED: dict[str, Call] = {  # before the first run
    "multiple shooting": lambda p: igpe.MultipleShooting().prepare(p),
    "backward lifting": lambda p: igpe.MultipleShooting().prepare(p),
    "iterated search": lambda p: igpe.search.IteratedSearch()._prepared(p, 1e-4),
    "certify": lambda p: igpe.certify(p, _fitted(p), time_limit=0.1),
}
LIMITED = ("estimate methanol", "estimate urethane", "estimate calcium")


def _usable(problem: igpe.Problem, found: Any) -> str:
    """An empty text if the answer can be used, prints and saves; else what is wrong with it."""
    str(found)
    if hasattr(found, "to_json"):
        found.to_json()
    if not isinstance(getattr(found, "parameters", None), Mapping) or not hasattr(found, "status"):
        return ""
    if not found.status.usable:
        return f"status {found.status.name}"
    box = problem.box
    known = {n: found.parameters[n] for n in box.names if n in found.parameters}
    inside = [
        low - 1e-9 <= known.get(n, low) <= high + 1e-9
        for n, low, high in zip(box.names, box.lower, box.upper, strict=True)
    ]
    told = np.isfinite(found.objective) or any("not known" in n for n in found.notes)
    is_finite = np.isfinite(list(known.values())).all() and told
    return "" if all(inside) and is_finite else "parameters or objective that mean nothing"


def _child(case: str, limit: float | None, pipe: Any) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, call = CALLS[case]
    problem = _problem(name)
    _start(problem)
    needs_fit = case in {"bootstrap", "profile"}
    if needs_fit:
        _fitted(problem)
    seen: list[Any] = [] if needs_fit else _watched()
    pressed: list[float] = []
    end = Session._end

    def ended_now(self: Session, now: float) -> None:
        pressed.append(_processor())
        end(self, now)

    Session._end = ended_now  # type: ignore[method-assign]
    pipe.send("begins")
    begun = time.perf_counter()
    existed = False
    try:
        found = call(problem) if limit is None else igpe.estimate(problem, time_limit=limit)
        wrong = ""
    except (KeyboardInterrupt, igpe.errors.EstimationFailed) as error:
        found, wrong = None, "nothing"
        existed = bool(seen) and "best parameter values so far" not in str(error)
    ended, spent = time.perf_counter(), _processor() - (pressed or [_processor()])[0]
    if found is not None:
        wrong = _usable(problem, found)
    status = str(getattr(getattr(found, "status", None), "name", ""))
    pipe.send({
        "seconds": ended - begun, "ended": ended, "wrong": wrong, "existed": existed,
        "status": status, "processor": spent,
    })  # fmt: skip
    os._exit(0)


def _watched() -> list[Any]:
    """What grows by each answer that an interrupt must not lose."""
    seen: list[Any] = []

    def watch(room: Any, name: str) -> None:
        method = getattr(room, name)

        def told(*arguments: Any) -> Any:
            found = method(*arguments)
            if found is not None or name == "look_at" or getattr(arguments[0], "fits", None):
                seen.append(name)
            return found

        setattr(room, name, told)

    watch(Best, "look_at")
    watch(Chains, "__call__")
    watch(_LocalSearches, "_search")
    return seen


def _processor() -> float:
    """Processor time of this process and its children, those that still run included, s."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + sum(_of_children())


def _of_children() -> Iterator[float]:
    """Processor time of each child that still runs, s; nothing where the system has no /proc."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            words = file.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(words[1]) == os.getpid():
                yield (int(words[11]) + int(words[12])) / float(os.sysconf("SC_CLK_TCK"))


def _once(case: str, moment: float | None, limit: float | None = None) -> Answer:
    """One run in a process of its own, with SIGINT at a moment; "late" is the wait for its end."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(case, limit, there))
    child.start()
    there.close()
    here.recv()
    begun = time.perf_counter()
    if moment is not None and not here.poll(moment):
        os.kill(child.pid or 0, signal.SIGINT)
    sent = time.perf_counter()
    try:
        answer: Answer = here.recv() if here.poll(2 * LONGEST) else {"wrong": "hangs"}
    except EOFError:
        answer = {"wrong": "died", "existed": True}
    child.kill()
    child.join()
    late = answer.get("ended", time.perf_counter()) - sent
    over = 0.0 if limit is None else answer.get("seconds", 2 * LONGEST) - limit * (1 + SHARE)
    return {**answer, "moment": sent - begun, "late": max(late, 0.0), "over": over}


def _work(case: str) -> Answer:
    kind, _, name = case.partition(": ")
    problem = _problem(CALLS[name][0])
    COMPILED.get(name, id)(problem)
    whole = _once(name, LONGEST)
    duration = min(whole.get("seconds", LONGEST), LONGEST)
    random = np.random.default_rng(zlib.crc32(case.encode()))
    moments = (np.arange(MOMENTS) + random.uniform(size=MOMENTS)) / MOMENTS * duration
    if kind == "limit":
        runs = [_once(name, None, float(limit)) for limit in moments]
    else:
        runs = [_once(name, float(moment)) for moment in moments]
    return {"duration": duration, "runs": runs}


CASES = [f"interrupt: {name}" for name in CALLS] + [f"limit: {name}" for name in LIMITED]


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Worst wait after a signal and overrun of a limit; answers that were lost or are no use."""
    answers = run("interrupts", CASES, _work, given, limit=600.0)
    worst, busy, lost, wrong, over = 0.0, 0.0, 0, 0, -np.inf
    for case, answer in answers.items():
        runs = answer.get("runs", [])
        lost += MOMENTS if not runs else sum(r["wrong"] == "nothing" and r["existed"] for r in runs)
        wrong += sum(r["wrong"] not in ("", "nothing") for r in runs)
        busy = max(busy, *(r.get("processor", 0.0) for r in runs), 0.0)
        if case.startswith("limit"):
            value = max((r["over"] for r in runs), default=np.inf)
            over = max(over, value)
            yield at_most(case, "beyond 102 % of the limit", value, "s")
        else:
            value = max((r["late"] for r in runs), default=np.inf)
            worst = max(worst, value)
            yield at_most(
                case, f"until the answer, run of {answer.get('duration', 0):.1f} s", value, "s"
            )
    yield at_most("all", "seconds from Ctrl-C to the answer, worst", worst, "s", SECONDS)
    yield at_most(
        "all", "processor seconds from the signal to the answer, worst", busy, "s", SECONDS
    )
    yield at_most("all", "seconds beyond 102 % of a time limit, worst", over, "s", SECONDS)
    yield at_most("all", "answers lost", float(lost), "-", 0)
    yield at_most("all", "answers that are no use", float(wrong), "-", 0)
