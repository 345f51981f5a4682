"""Run seeded cases, two at a time, each in a process of its own; keep the answers in a store.

A section that is stopped continues where it was: cases whose answer is in the store are not run
again. A case that uses more processor time than its limit is killed and has no answer but that.
"""

import argparse
import json
import multiprocessing
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import Row

Answer = dict[str, Any]
WORKERS = 2
QUICK = 10  # --quick runs one case in so many


def sections(
    package: str, names: Sequence[str]
) -> dict[str, Callable[[argparse.Namespace], Iterator[Row]]]:
    """Name -> what makes the rows of that module of a package, which is imported only then."""

    def of(name: str) -> Callable[[argparse.Namespace], Iterator[Row]]:
        return lambda given: import_module(f"{package}.{name}").figures(given)

    return {name: of(name) for name in names}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all sections share."""
    parser.add_argument("--quick", action="store_true", help=f"one case in {QUICK}")
    parser.add_argument("--store", type=Path, help="folder that keeps answers, to resume from")
    parser.add_argument("--only", help="run only the cases whose name contains this text")


def run(
    section: str,
    cases: Sequence[str],
    work: Callable[[str], Answer],
    given: argparse.Namespace,
    limit: float = 60.0,
) -> dict[str, Answer]:
    """Answers of `work(case)` by case.

    work   returns what JSON can hold; must be a function of the case's name alone
    limit  seconds of processor time for each case; its answer is {"killed": limit} beyond it, and
           {"crashed": traceback} if it raised. "seconds" is added to every answer.
    """
    chosen = [c for c in cases if not given.only or given.only in c]
    chosen = chosen[::QUICK] if given.quick else chosen
    store = given.store / f"{section}.jsonl" if given.store else None
    return run_all(store, chosen, work, limit)


def run_all(
    store: Path | None,
    chosen: Sequence[str],
    work: Callable[[str], Answer],
    limit: float,
    workers: int = WORKERS,
) -> dict[str, Answer]:
    """The same for all these cases, with their answers in the file `store`."""
    known = dict(stored(store))
    open_cases = [c for c in chosen if c not in known]
    with ThreadPoolExecutor(workers) as pool:
        answers = pool.map(lambda case: _apart(work, case, limit), open_cases)
        for case, answer in zip(open_cases, answers, strict=True):
            known[case] = answer
            add(store, case, answer)
    return {case: known[case] for case in chosen}


def add(store: Path | None, case: str, answer: Answer) -> None:
    """Keep an answer in a store, if there is one."""
    if store:
        store.parent.mkdir(parents=True, exist_ok=True)
        with store.open("a", encoding="utf-8") as file:
            file.write(json.dumps([case, answer]) + "\n")


def stored(store: Path | None) -> Iterator[tuple[str, Answer]]:
    """The cases of a store and their answers."""
    if store is None or not store.exists():
        return
    for line in store.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # the last line of a run that was killed
            case, answer = json.loads(line)
            yield case, answer


def _apart(work: Callable[[str], Answer], case: str, limit: float) -> Answer:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(work, case, limit, there))
    child.start()
    there.close()
    try:
        answer: Answer = here.recv()
    except EOFError:
        answer = {"killed": limit, "seconds": limit}
    child.join()
    return answer


def _answer(work: Callable[[str], Answer], case: str, limit: float, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))
    start = time.process_time()
    try:
        answer = work(case)
    except Exception:
        answer = {"crashed": traceback.format_exc(limit=-3)}
    pipe.send({**answer, "seconds": time.process_time() - start})
