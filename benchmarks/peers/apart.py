"""A method run apart, in a process of its own, and what became of it."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from peers.cases import Case
from peers.judge import Judge

WITHIN = 1e-3  # of the best objective, relative, unless the case gives a distance
PREPARATION = 900.0  # s of wall time that preparing, and waiting for the processor, may take beside


class Point(NamedTuple):
    """What a method told: after so many seconds of search."""

    seconds: float
    objective: float


@dataclass(frozen=True)
class Ran:
    """One run of one method.

    prepared  s of translating and compiling;  ended: s of search;  attempts: that ended
    why       empty, "stopped", or what broke
    within    as of `Case`
    """

    peer: str
    prepared: float
    ended: float
    attempts: int
    points: tuple[Point, ...]
    why: str
    within: float | None = None

    def hits(self, best: float) -> list[Point]:
        """Those of its points that reach the best."""
        return [p for p in self.points if reaches(p.objective, best, self.within)]

    def to_it(self, best: float) -> float:
        """Seconds to the first that reaches the best; infinite where none does."""
        return min((p.seconds for p in self.hits(best)), default=math.inf)

    @property
    def best(self) -> float:
        """The lowest objective of all."""
        return min((p.objective for p in self.points), default=math.inf)


def reaches(objective: float, best: float, within: float | None = None) -> bool:
    """Whether an objective is the best one; `within` as of `Case`."""
    return objective <= best + (WITHIN * abs(best) if within is None else within)


def as_json(ran: Ran) -> dict[str, Any]:
    """What JSON can hold; it has no infinity."""
    points = [[p.seconds, p.objective if math.isfinite(p.objective) else None] for p in ran.points]
    return vars(ran) | {"points": points}


def from_json(row: dict[str, Any]) -> Ran:
    """What `as_json` wrote."""
    points = tuple(Point(s, math.inf if value is None else value) for s, value in row["points"])
    return Ran(**(row | {"points": points}))


def run(asked: Case, judge: Judge, peer: str, *, seed: int, limit: float, starts: int) -> Ran:
    """One method in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        notes = Path(folder) / "notes"
        words = [asked.name, peer, str(seed), str(starts), str(limit), str(notes)]
        here = Path(__file__).parents[1]
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": folder,
            "TMPDIR": folder,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "JAX_PLATFORMS": "cpu",
            "MPLBACKEND": "Agg",
        }
        with (Path(folder) / "said").open("w+") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "peers.run", *words],
                cwd=here,
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                code = process.wait(8 * limit + PREPARATION)
            except subprocess.TimeoutExpired:
                code = -signal.SIGXCPU
            finally:
                _end(process)
            said.seek(0)
            lines = [line for line in said.read().splitlines() if line.strip()]
        events = _events(notes)
    found = replace(_ran(peer, judge, events, code, lines), within=asked.within)
    return replace(found, ended=max(found.ended, limit)) if found.why == "stopped" else found


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _events(notes: Path) -> list[dict[str, Any]]:
    if not notes.exists():
        return []
    found = []
    for line in notes.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # it was ended while it wrote
            break
    return found


def _ran(
    peer: str,
    judge: Judge,
    events: Sequence[dict[str, Any]],
    code: int,
    said: Sequence[str],
) -> Ran:
    def seconds(event: dict[str, Any]) -> float:
        return float(event["own"] + event["others"])

    by = {e["event"]: e for e in events}
    prepared = max(0.0, seconds(by["prepared"])) if "prepared" in by else 0.0
    whole = max(0.0, seconds(events[-1]) - prepared) if events else 0.0
    points = [
        Point(seconds(e) - prepared, judge(e["parameters"]))
        for e in events
        if e["event"] == "found"
    ]
    why = by["broke"]["why"] if "broke" in by else ""
    if not why and ("stopped" in by or -code in (signal.SIGXCPU, signal.SIGKILL)):
        why = "stopped"
    elif not why and "done" not in by:
        why = f"broke: {said[-1][:160] if said else f'ended with {code}'}"
    attempts = sum(e["event"] in {"found", "failed"} for e in events)
    return Ran(peer, prepared, whole, attempts, tuple(points), why)
