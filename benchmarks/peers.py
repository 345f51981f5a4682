"""igpe beside what people use today: who finds the best known objective, and in what time.

    python benchmarks/peers.py [paper] [others] [petab] [--only CASE ...] [--peers NAME ...]
                               [--seeds N] [--starts N] [--limit S] [--times X]
                               [--store FOLDER] [--json FILE]

paper   test problems 1 to 7 of Michalik, Chachuat and Marquardt (2009), IGPE
others  a pendulum, FitzHugh and Nagumo's nerve cell, oscillations of calcium, STAT5
petab   problems of the PEtab collection with the lowest objectives known, petab_best.csv

All are fed from the same `igpe.Problem` (`peers/told.py` prints its equations; parmest gets the
Pyomo model, PEtab's problems are read by each from their files) and each run has a process of its
own with one thread. The objective is that of one accurate integration of ours at what was told
(`peers/judge.py`); it is reached within 1e-3 relative to the best that anybody found, here or
before; of PEtab problems within 0.1, and there pyPESTO and igpe-local have the same starts. Seconds
are of the processor, with all programs that were started. With --store a run that was stopped
continues.

`igpe` is timed as a whole, from an empty cache: reading the model, compiling, all five steps.
Of others translating and compiling is told apart and not counted; nor is anybody's import. `all`
is until a method ends. `to it` is what it takes on average until one of its starts reaches the
best, at which only who knows the best can stop: the time of all over the number of such starts.
What takes longer than --limit seconds, and --times so long as igpe, is stopped. parmest's IPOPT is
the program of that name if there is one, else POUNCE, which pip brings.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from figures import CONSOLE, Row, Section, at_least, at_most, command
from peers.apart import Ran, as_json, from_json, run
from peers.cases import OTHERS, PAPER, PETAB, case
from peers.judge import Judge
from peers.registry import PEERS
from rich.table import Table
from trust.run import add, stored

LIMIT, TIMES_OURS = 60.0, 100.0  # s of search, or so many times ours if that is longer
FASTER = 10.0
RIVALS = ("parmest", "pypesto")


class Solved(NamedTuple):
    """All runs on one problem, and the best objective that is now known."""

    case: str
    best: float
    runs: tuple[Ran, ...]

    def of(self, peer: str) -> list[Ran]:
        """The runs of one method, one for each seed."""
        return [r for r in self.runs if r.peer == peer]


def solved(name: str, given: argparse.Namespace) -> Solved:
    """Everybody on one problem."""
    asked = case(name)
    judge = Judge(asked.make())
    runs, ours = [], 0.0
    store = given.store / "peers.jsonl" if given.store else None
    known = dict(stored(store))
    for peer in given.peers:
        for seed in range(given.seeds):
            limit = max(given.limit, given.times * ours)
            key = f"{name} {peer} {seed} {given.starts} {given.limit:g}"
            if key in known:
                found = from_json(known[key])
            else:
                found = run(asked, judge, peer, seed=seed, limit=limit, starts=given.starts)
                add(store, key, as_json(found))
            ours = max(ours, found.ended) if peer == "igpe" else ours
            runs.append(found)
            CONSOLE.print(
                f"[dim]{name}, {peer}, seed {seed}: {found.best:.7g}, {found.ended:.1f} s "
                f"{found.why}[/dim]"
            )
    best = min([asked.best, *(r.best for r in runs)])
    return Solved(name, best, tuple(runs))


def table(of: Solved) -> Table:
    """Who found it, and when."""
    heads = ("", "found in", "starts that find it", "to it, s", "all, s", "prepared, s", "best", "")
    text = Table(*heads, title=f"{of.case}: best known objective {of.best:.7g}")
    for peer in dict.fromkeys(r.peer for r in of.runs):
        runs = of.of(peer)
        hits = sum(bool(r.hits(of.best)) for r in runs)
        starts = sum(len(r.hits(of.best)) for r in runs), sum(r.attempts for r in runs)
        text.add_row(
            peer,
            f"{hits} of {len(runs)}",
            f"{starts[0]} of {starts[1]}" if PEERS[peer].several else "",
            f"{_to_it(of, peer):.3g}",
            f"{median(r.ended for r in runs):.3g}",
            f"{median(r.prepared for r in runs):.3g}",
            f"{min(r.best for r in runs):.7g}",
            "; ".join(dict.fromkeys(r.why for r in runs if r.why)),
        )
    return text


def rows(of: Solved) -> Iterator[Row]:
    """Figures of one problem."""
    for peer in dict.fromkeys(r.peer for r in of.runs):
        runs = of.of(peer)
        share = sum(bool(r.hits(of.best)) for r in runs) / len(runs)
        if all(r.why.startswith(("not ", "broke")) and not r.points for r in runs):
            yield at_most(of.case, f"{peer}: {runs[0].why}", math.nan)
            continue
        if peer == "igpe":
            yield at_least(of.case, "igpe: found in, of all seeds", share, "-", 1.0)
        else:
            yield at_most(of.case, f"{peer}: found in, of all seeds", share)
        attempts = sum(r.attempts for r in runs)
        if PEERS[peer].several and attempts:
            single = sum(len(r.hits(of.best)) for r in runs) / attempts
            yield at_most(of.case, f"{peer}: one start finds it, share", single)
            each = sum(r.ended for r in runs) / attempts
            yield at_most(of.case, f"{peer}: one start, mean", each, "s")
        stopped = sum(r.why == "stopped" for r in runs)
        if stopped:
            yield at_most(of.case, f"{peer}: stopped, of all seeds", stopped / len(runs))
        yield at_most(of.case, f"{peer}: time to it", _to_it(of, peer), "s")
        yield at_most(of.case, f"{peer}: time of all", _all(of, peer), "s")
        yield at_most(of.case, f"{peer}: prepared in", median(r.prepared for r in runs), "s")


def _to_it(of: Solved, peer: str) -> float:
    """Of several starts: what it takes on average until one finds it, all seeds together."""
    runs = of.of(peer)
    if not PEERS[peer].several:
        return median(r.to_it(of.best) for r in runs)
    hits = sum(len(r.hits(of.best)) for r in runs)
    return sum(r.ended for r in runs) / hits if hits else math.inf


def _all(of: Solved, peer: str) -> float:
    return median(r.ended for r in of.of(peer))


def _with_preparing(of: Solved, peer: str) -> float:
    return median(r.prepared + r.ended for r in of.of(peer))


def ratios(many: Sequence[Solved], peers: Sequence[str]) -> Iterator[Row]:
    """Medians over the problems of the times of others beside ours."""
    if "igpe" not in peers:
        return
    for peer in (p for p in peers if p != "igpe"):
        posed = [s for s in many if any(r.points or r.why == "stopped" for r in s.of(peer))]
        if not posed:
            continue
        case = f"{peer}, {len(posed)}"
        missed = sum(not math.isfinite(_to_it(s, peer)) for s in posed)
        yield at_most(case, "problems it misses", missed)
        yield at_most(case, "problems igpe misses", _misses(posed, "igpe"))
        whole = ("of all with preparing", _with_preparing)
        for what, seconds in (("to it", _to_it), ("of all", _all), whole):
            ratio = median(seconds(s, peer) / _to_it(s, "igpe") for s in posed)
            told = f"time {what} beside igpe's, median"
            if peer in RIVALS:
                yield at_least(case, told, ratio, "times", FASTER)
            else:
                yield at_most(case, told, ratio, "times")


def _misses(many: Sequence[Solved], peer: str) -> int:
    return sum(not math.isfinite(_to_it(s, peer)) for s in many)


def section(names: Sequence[str]) -> Section:
    """The problems of one section."""

    def figures(given: argparse.Namespace) -> Iterator[Row]:
        many = [solved(n, given) for n in names if not given.only or n in given.only]
        for each in many:
            CONSOLE.print(table(each))
            yield from rows(each)
        yield from ratios(many, given.peers)

    return figures


def options(parser: argparse.ArgumentParser) -> None:
    """Which of all, how often, how long."""
    parser.add_argument("--only", nargs="*", default=[], choices=[*PAPER, *OTHERS, *PETAB])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--limit", type=float, default=LIMIT, help="s of the processor")
    parser.add_argument("--store", type=Path, help="folder that keeps runs, to resume from")
    parser.add_argument("--times", type=float, default=TIMES_OURS, help="limit, times igpe's time")


if __name__ == "__main__":
    command(
        __doc__,
        "igpe beside its peers",
        {"paper": section(PAPER), "others": section(OTHERS), "petab": section(tuple(PETAB))},
        options,
    )
