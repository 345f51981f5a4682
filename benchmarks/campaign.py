"""Campaigns: how much two processes do, and what survives.

    python benchmarks/campaign.py [SECTION ...] [--starts N] [--kills N] [--items N] [--json FILE]

Peifer and Timmer's calcium oscillations (models/calcium.py) by multiple shooting, with starts of
the eleven rate constants uniform in [0, 1] as in their paper.

    throughput  the same starts by one process and by two: runs a second, and how much of the
                processors' time is work. On a busy machine believe the second: the first counts
                what others take
    kills       a process killed (SIGKILL) every few seconds while the campaign runs by two: what is
                lost, and whether any number changes
    store       a campaign killed with its driver halfway, and called again
    memory      items that do nothing: peak resident memory, and the time of one

Needs psutil, which comes with dask.distributed, to find the processes to be killed.
"""

# ruff: noqa: E402 - threads and paths must be set before modules are loaded
import os
import sys
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).resolve().parent.parent / "models"))

import resource
import sqlite3
import subprocess
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import calcium
import numpy as np
import psutil
from figures import Row, at_least, at_most, command

import igpe
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.search.engine import SearchJob, prepared
from igpe.tasks.run import Backend, run
from igpe.tasks.workers import Item, Work, function_of, pack

METHOD = igpe.MultipleShooting(restarts=igpe.search.Restarts(count=0))
PAUSE = (2.0, 6.0)  # s between two kills
MEGA = 1024.0  # ru_maxrss is in KiB
STORED = "--stored"  # the section's own process: campaign with this store


class Ran(NamedTuple):
    """A campaign, its wall time and the processors' time: of this process and its children."""

    found: igpe.estimation.Campaign
    wall: float
    driver: float
    children: float

    @property
    def per_run(self) -> float:
        """Processor time of a run in all, s."""
        return (self.driver + self.children) / len(self.found.table)


def starts(count: int) -> list[Mapping[str, float]]:
    """As in the paper: rates uniform in [0, 1], states where they are measured first."""
    random, first = np.random.default_rng(2007), calcium.simulated(0).iloc[0]
    states = {f"{name}(t0)": float(first[name]) for name in calcium.STATES}
    return [
        {name: float(random.uniform(1e-3, 1)) for name in calcium.RATES} | states
        for _ in range(count)
    ]


def campaign(count: int, executor: Any, **settings: Any) -> Ran:
    """The campaign on the calcium problem, and what it took."""
    wall, driver, children = time.perf_counter(), time.process_time(), _of_children()
    found = igpe.campaign(calcium.problem(), METHOD, starts(count), executor=executor, **settings)
    return Ran(
        found,
        time.perf_counter() - wall,
        time.process_time() - driver,
        _of_children() - children,
    )


def made_ready() -> float:
    """Processor time, s, that a process spends on the problem before its first start."""
    packed = pack(Work(prepared, SearchJob(calcium.problem(), {"MS": METHOD})))
    began = time.process_time()
    function_of(packed)
    return time.process_time() - began


def same(one: igpe.estimation.Campaign, other: igpe.estimation.Campaign) -> bool:
    """Whether all numbers but the seconds are equal, to the last bit."""
    return one.table.drop(columns="seconds").equals(other.table.drop(columns="seconds"))


def throughput(given: Namespace) -> Iterator[Row]:
    """One process beside two."""
    case = f"{given.starts} starts"
    one, two = (campaign(given.starts, executor) for executor in (1, 2))
    here = campaign(min(given.starts, 50), None)
    share = one.per_run / two.per_run
    yield at_least(
        case, "throughput of two processes / of one, wall", one.wall / two.wall, "-", 1.8
    )
    yield at_least(case, "the same by processor time: 2 x one's / two's", 2 * share, "-", 1.8)
    yield at_most(case, "processor time of a run, one process", one.per_run, "s")
    yield at_most(case, "of it the driver's", 1e3 * one.driver / given.starts, "ms")
    yield at_most(case, "processor time of a run, without an executor", here.per_run, "s")
    yield at_most(case, "processor time to make ready, once a process", made_ready(), "s")
    yield at_most(case, "tables that differ", float(not same(one.found, two.found)), "-", 0)
    yield at_most(case, "at the best optimum", 100 * _at_best(two.found), "%")


def kills(given: Namespace) -> Iterator[Row]:
    """Random processes are killed as long as the campaign runs, or until there were enough."""
    case = f"{given.starts} starts"
    undisturbed = campaign(given.starts, 2).found
    with killing(given.kills) as killed:
        found = campaign(given.starts, 2).found
    lost = int((found.table["status"] == Status.WORKER_DIED.name).sum())
    yield at_least(case, "processes killed", len(killed), "-", given.kills)
    yield at_most(case, "items lost", given.starts - len(found.table) + lost, "-", 0)
    for note in found.table["note"][found.table["status"] == Status.WORKER_DIED.name]:
        print(note)
    yield at_most(case, "tables that differ", float(not same(found, undisturbed)), "-", 0)


@contextmanager
def killing(most: int) -> Iterator[list[int]]:
    """Kill children of this process, one every few seconds; gives the list of those killed."""
    over, killed = threading.Event(), list[int]()
    random = np.random.default_rng(9)

    def work() -> None:
        while len(killed) < most and not over.wait(random.uniform(*PAUSE)):
            children = psutil.Process().children()
            if children:
                victim = children[random.integers(len(children))]
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=work)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def store(given: Namespace) -> Iterator[Row]:
    """A driver is killed when half of the starts are finished; the campaign is called again."""
    case, half = f"{given.starts} starts", given.starts // 2
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        with subprocess.Popen([
            sys.executable,
            __file__,
            STORED,
            path,
            str(given.starts),
        ]) as driver:
            while len(kept(path)) < half and driver.poll() is None:
                time.sleep(0.1)
            driver.kill()
        before = kept(path)
        found = campaign(given.starts, 2, store=path).found
        after = kept(path)
        again = campaign(given.starts, 2, store=path)
    repeated = sum(after.get(key) != seconds for key, seconds in before.items())
    yield at_most(case, "finished when the driver was killed", len(before))
    yield at_most(case, "of them lost or repeated", repeated, "-", 0)
    yield at_most(case, "items lost", given.starts - len(after), "-", 0)
    fresh = campaign(given.starts, 2).found
    yield at_most(case, "tables that differ", float(not same(found, fresh)), "-", 0)
    yield at_most(case, "processor time of a run that is kept", 1e3 * again.per_run, "ms")


def kept(path: Path) -> dict[str, float]:
    """Key -> seconds that the run took, of all in a store."""
    if not path.exists():
        return {}
    try:
        with closing(sqlite3.connect(path)) as file:
            return dict(file.execute("SELECT key, seconds FROM outcomes"))
    except sqlite3.OperationalError:
        return {}  # there is no table yet


def memory(given: Namespace) -> Iterator[Row]:
    """Peak memory of this process, before and after; first without, then with a result."""
    case = f"{given.items} items"
    with TemporaryDirectory() as folder:
        backend = Backend(2, Path(folder) / "items.sqlite")
        items = (Item(str(k), k) for k in range(given.items))
        _drain(items, backend, 2000)
        before, began = _peak(), time.process_time()
        count = 2000 + _drain(items, backend, given.items)
        yield at_most(case, "items lost", given.items - count, "-", 0)
        yield at_most(case, "peak memory grows by, tasks with a store", _peak() - before, "MB", 50)
        spent = 1e3 * (time.process_time() - began) / given.items
        yield at_most(case, "processor time of the driver for one", spent, "ms")
    problem = calcium.problem(measured=("G",))
    igpe.campaign(problem, Nothing(), [starts(1)[0]] * 10)
    before = _peak()
    found = igpe.campaign(problem.fixing({}), Nothing(), [starts(1)[0]] * given.items)
    size = found.table.memory_usage().sum() + found.starts.memory_usage().sum()
    yield at_most(case, "peak memory grows by, a campaign of 15 unknowns", _peak() - before, "MB")
    yield at_most(case, "of it the tables", size / MEGA**2, "MB")


class Nothing:
    """Estimates nothing."""

    def estimate(self, problem: Any, start: Mapping[str, float], profiles: Any = ()) -> Estimate:
        """The start."""
        return Estimate(dict(start), 1.0, Status.CONVERGED)


def _doubled(job: Any) -> Any:
    return lambda number: {"number": 2 * number}


def _drain(items: Iterator[Item], backend: Backend, count: int) -> int:
    return sum(1 for _ in run(Work(_doubled, None, "memory"), islice(items, count), backend))


def _peak() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGA


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _at_best(found: igpe.estimation.Campaign) -> float:
    return float((found.table["objective"] <= calcium.OBJECTIVE * (1 + 1e-3)).mean())


def options(parser: ArgumentParser) -> None:
    """How long it takes."""
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--items", type=int, default=100_000)


if __name__ == "__main__":
    if STORED in sys.argv:
        campaign(int(sys.argv[3]), 2, store=sys.argv[2])
    else:
        sections = {"throughput": throughput, "kills": kills, "store": store, "memory": memory}
        command(__doc__, "Campaigns", sections, options)
