"""Campaigns whose workers are killed (SIGKILL): what is lost, counted twice, or waited for.

A case is a campaign of 40 starts, each of which takes a twentieth of a second, with a store. When a
drawn number of starts is in the store a worker is killed, or all of them at once:

    own     processes of igpe's own
    pool    a ProcessPoolExecutor
    dask    workers of a Dask cluster whose nannies start new ones
    lost    workers of a Dask cluster without nannies: nobody starts new ones

Then the campaign is called again with the same store. Lost is a start without a row, or one whose
numbers are not those of the estimator; counted twice is a start with two rows in the table, or one
that is done again by the second call. A campaign without an answer after 150 s waits for ever.
"""

import argparse
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most
from pyomo import dae
from trust.run import Answer, run

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status

STARTS, SECONDS, ENDLESS = 40, 0.05, 150
KINDS = {
    "own one": 4, "own all": 3, "pool one": 3, "pool all": 2, "dask one": 2, "dask all": 2,
    "lost all": 4,
}  # fmt: skip
CASES = [f"{kind} {seed}" for kind, count in KINDS.items() for seed in range(count)]


class Slow:
    """Takes its time, and gives what the start says."""

    def estimate(self, problem: Any, start: Mapping[str, float], profiles: Any = ()) -> Estimate:
        """The start, with an objective of its own."""
        time.sleep(SECONDS)
        return Estimate(dict(start), (start["k"] - 1.0) ** 2, Status.CONVERGED)


def _model(times: Any) -> Any:
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.k = pyo.Var(m.t), pyo.Var(bounds=(0.1, 5))
    m.dA = dae.DerivativeVar(m.A)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
    return m


def problem() -> igpe.Problem:
    """A decay."""
    data = pd.DataFrame({"time": [0.5, 1.0, 2.0], "A": [0.6, 0.37, 0.14]})
    return igpe.Problem(
        _model, parameters=["k"], experiments=igpe.Experiment(data, start={"A": 1.0}, sigma=0.01)
    )


@contextmanager
def _executor(kind: str) -> Iterator[tuple[Any, list[int]]]:
    """An executor, and the processes that are its workers; none: children of this process."""
    if kind == "own":
        yield 2, []
    elif kind == "pool":
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            yield pool, []
    else:
        import distributed  # noqa: PLC0415 - not needed for the others

        nannies = 2 if kind == "dask" else 0
        with (
            distributed.LocalCluster(
                n_workers=nannies, threads_per_worker=1, dashboard_address=":0", silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            command = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny"]
            command += ["--no-dashboard", "--nthreads", "1", cluster.scheduler_address]
            quiet = subprocess.DEVNULL
            count = 0 if nannies else 2
            alone = [subprocess.Popen(command, stdout=quiet, stderr=quiet) for _ in range(count)]
            try:
                client.wait_for_workers(2)
                yield client.get_executor(), [one.pid for one in alone]
            finally:
                for one in alone:
                    one.kill()
                    one.wait()


def _stored(path: Path) -> int:
    """How many starts are in a store, while another thread writes."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT count(*) FROM outcomes").fetchone()[0])
    return 0


def _kill(path: Path, workers: list[int], *, count: int, every: bool, over: Any) -> list[int]:
    """Kill one worker or all of them once so many starts are stored; their ids."""
    import psutil  # noqa: PLC0415 - comes with dask.distributed

    while _stored(path) < count and not over.wait(0.02):
        pass
    if over.is_set():
        return []
    known = workers or [
        child.pid
        for child in psutil.Process().children()
        if "resource_tracker" not in " ".join(child.cmdline())
    ]
    victims = known if every else known[:1]
    for pid in victims:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    return victims


def _late(*_: Any) -> None:
    raise TimeoutError


def _work(case: str) -> Answer:
    kind, which, _ = case.split()
    count = int(np.random.default_rng(zlib.crc32(case.encode())).integers(3, 30))
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(ENDLESS)
    killed: list[int] = []
    began = time.perf_counter()
    with TemporaryDirectory() as folder, _executor(kind) as (executor, workers):
        path, over = Path(folder) / "runs.sqlite", threading.Event()

        def kill() -> None:
            killed.extend(_kill(path, workers, count=count, every=which == "all", over=over))

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            found = igpe.campaign(problem(), Slow(), STARTS, executor=executor, store=path)
        except TimeoutError:
            return {"endless": 1, "lost": 0, "twice": 0, "killed": len(killed)}
        finally:
            over.set()
            killer.join()
            signal.alarm(0)
        wall = time.perf_counter() - began
        before = _seconds(path)
        again = igpe.campaign(problem(), Slow(), STARTS, store=path)
        repeated = sum(before[key] != seconds for key, seconds in _seconds(path).items())
    right = found.table["objective"] == (found.starts["k"].reindex(found.table.index) - 1.0) ** 2
    lost = STARTS - int(right.groupby(level=0).any().sum())
    twice = len(found.table) - found.table.index.nunique() + repeated
    same = found.table.drop(columns="seconds").equals(again.table.drop(columns="seconds"))
    return {
        "endless": 0, "lost": lost, "twice": twice, "killed": len(killed), "wall": wall,
        "differ": int(not same), "notes": list(found.notes),
    }  # fmt: skip


def _seconds(path: Path) -> dict[str, float]:
    with closing(sqlite3.connect(path)) as file:
        return dict(file.execute("SELECT key, seconds FROM outcomes"))


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Sums over all kills; cases that miss on their own."""
    answers = run("campaigns", CASES, _work, given, limit=300.0)
    crashed = {c: a for c, a in answers.items() if "lost" not in a}
    done = [a for a in answers.values() if "lost" in a]
    for case, answer in answers.items():
        if case in crashed or any(answer[k] for k in ("endless", "lost", "twice")):
            yield at_most(f"{case}: {answer}"[:300], "missed", 1.0, "-", 0)
    kills = sum(bool(a["killed"]) for a in done)
    yield at_least("all", "campaigns whose workers were killed", float(kills), "-", len(CASES))
    yield at_most("all", "cases without an answer", float(len(crashed)), "-", 0)
    for name, figure in (
        ("lost", "starts lost"), ("twice", "starts counted twice"), ("endless", "endless waits"),
        ("differ", "tables that the second call changes"),
    ):  # fmt: skip
        yield at_most("all", figure, float(sum(a.get(name, 0) for a in done)), "-", 0)
    yield at_most(
        "all", "longest campaign", max((a.get("wall", 0.0) for a in done), default=0.0), "s"
    )
