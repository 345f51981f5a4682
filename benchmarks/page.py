"""The page `docs/benchmarks.md` from what was measured.

    python benchmarks/peers.py --json benchmarks/measured/peers.json
    python benchmarks/sensitivities.py --json benchmarks/measured/sensitivities.json
    python benchmarks/page.py

Files `measured/peers*.json` are runs, each with its own igpe to be compared with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.registry import PEERS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
HEAD = """# igpe beside its peers

Written by `benchmarks/page.py` from measurements; do not edit. Every method gets the same problem
and has a process of its own with one thread; seconds are of the processor. The objective is
always that of one accurate integration of ours at the parameters that were returned; it is found
within 1e-3 of the best that anybody found.

## Time to the best known objective

For methods with several starts: what it takes on average until one of them finds it, at which
only who knows the best can stop. In brackets the time of all their starts, which is what one
waits for; some were stopped before their end, so that a miss means little. `igpe` is timed as a
whole; translating and compiling of others (AMICI takes some 20 s) is not counted, unless said.
igpe's certificate is about the algebraic problem of step 3; nobody here proves the optimum of the
dynamic one. Random starts are of one seed, for Lotka and Volterra's equations of three; calcium,
STAT5 and two of the PEtab problems were not estimated by all.

"""
MIDDLE = """
## One simulation with forward sensitivities

Milliseconds for a run whose derivatives are right to 1e-3 and to 1e-6 of their largest, each
method at the tolerance at which it is cheapest; all unknowns, at all measured times.

"""


def loaded(pattern: str) -> list[dict[tuple[str, str], float | None]]:
    """(case, figure) -> value, of each file."""
    found = []
    for path in sorted((HERE / "measured").glob(pattern)):
        rows: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        found.append({(r["case"], r["figure"]): r["value"] for r in rows})
    return found


def peers() -> Iterator[str]:
    """A table of times, one of shares, and where igpe is slower."""
    runs = loaded("peers*.json")
    cases = list(dict.fromkeys(c for run in runs for c, f in run if f == "igpe: time to it"))
    yield f"| | {' | '.join(PEERS)} |"
    yield "|---" * (len(PEERS) + 1) + "|"
    for case in cases:
        yield f"| {case} | {' | '.join(_time(runs, case, p) for p in PEERS)} |"
    yield ""
    yield from (f"- `{n}`: {p.told}" for n, p in PEERS.items())
    yield "\nStarts that find it, per cent:\n"
    several = [p for p in PEERS if PEERS[p].several]
    yield f"| | {' | '.join(several)} |"
    yield "|---" * (len(several) + 1) + "|"
    for case in cases:
        yield f"| {case} | {' | '.join(_share(runs, case, p) for p in several)} |"
    yield "\nTimes beside igpe's in the same run, medians of the problems that it can be posed:\n"
    yield "| | to it | of all | of all with preparing | problems it misses | that igpe misses |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        problems = [c for c, f in run if f == "igpe: time to it"]
        told = f"{len(problems)} problems" if len(problems) > 1 else problems[0]
        for (case, figure), value in run.items():
            if figure == "time to it beside igpe's, median":
                others = (
                    "time of all beside igpe's, median",
                    "time of all with preparing beside igpe's, median",
                    "problems it misses",
                    "problems igpe misses",
                )
                cells = [value, *(run[case, f] for f in others)]
                yield f"| {case} of {told} | {' | '.join(map(_number, cells))} |"
    yield "\nWho needs less time than igpe in the same run, where one stops who knows the best:\n"
    for case in cases:
        faster = [p for p in PEERS if p != "igpe" and _loses(runs, case, p)]
        yield f"- {case}: {', '.join(faster) or 'nowhere'}"


def _of(runs: Sequence[Any], case: str, peer: str) -> dict[str, float | None]:
    """Figures of one method on one problem, in the last run that has it, and igpe's there."""
    for run in reversed(runs):
        own = {
            f.removeprefix(f"{peer}: "): v
            for (c, f), v in run.items()
            if c == case and f.startswith(f"{peer}: ")
        }
        if own:
            return own | {"igpe": run.get((case, "igpe: time to it"))}
    return {}


def _time(runs: Sequence[Any], case: str, peer: str) -> str:
    own = _of(runs, case, peer)
    if "time to it" not in own:
        return next((f.split(":")[0] for f in own if f != "igpe"), "")
    stopped = "stopped, of all seeds" in own
    whole = f"{'stopped at ' * stopped}{_number(own['time of all'])}"
    if own["time to it"] is None:
        return f"none ({whole})" if stopped else f"missed ({whole})"
    told = _number(own["time to it"])
    return f"{told} ({whole})" if PEERS[peer].several or stopped else told


def _share(runs: Sequence[Any], case: str, peer: str) -> str:
    share = _of(runs, case, peer).get("one start finds it, share")
    return "" if share is None else f"{100 * share:.0f}"


def _loses(runs: Sequence[Any], case: str, peer: str) -> bool:
    own = _of(runs, case, peer)
    theirs, ours = own.get("time to it"), own.get("igpe")
    return theirs is not None and (ours is None or theirs < ours)


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def sensitivities() -> Iterator[str]:
    """Milliseconds by method and model."""
    merged: dict[tuple[str, str], float | None] = {}
    for run in loaded("sensitivities*.json"):
        merged |= run
    right = [(c, f.partition(": right to ")) for c, f in merged if ": right to " in f]
    plain = [(c, m, level) for c, (m, _, level) in right if ":" not in level]
    columns = list(dict.fromkeys((c, level) for c, _, level in plain))
    yield f"| | {' | '.join(f'{c}, {level}' for c, level in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for method in dict.fromkeys(m for _, m, _ in plain):
        cells = [merged.get((c, f"{method}: right to {level}")) for c, level in columns]
        yield f"| {method} | {' | '.join('' if v is None else _number(v) for v in cells)} |"
    yield ""
    for (case, figure), value in merged.items():
        if "beside AMICI" in figure or figure.startswith("faster than"):
            yield f"- {case}: {figure}: {_number(value)}"


if __name__ == "__main__":
    PAGE.write_text(
        HEAD + "\n".join(peers()) + "\n" + MIDDLE + "\n".join(sensitivities()) + "\n",
        encoding="utf-8",
    )
