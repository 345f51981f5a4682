"""Whether igpe became slower: its times beside those of others in the same run, and as stored.

    python benchmarks/guard.py [--store] [--json FILE]

Each ratio is igpe's time over a peer's that pip always brings (SciPy), so that machine and load
matter little; the least of some runs is taken of both. A ratio 1.5 times the stored one is told and
ends the program with 1. --store writes the ratios of now to `guard.json`, which belongs in the
commit that changed them on purpose.

    estimate       igpe.estimate over 20 starts of least_squares, three problems (`peers.py`)
    sensitivities  one simulation at rtol 1e-6 by Automatic over LSODA (`sensitivities.py`)
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from figures import MODELS, Row, show, written
from peers.apart import run
from peers.cases import case
from peers.judge import Judge
from peers.slopes import asked_of, ours, scipys
from sensitivities import seconds

import igpe

STORED = Path(__file__).with_suffix(".json")
WORSE = 1.5
REPEATS = 3
ESTIMATED = ("gas_oil_cracking", "methanol", "lotka_volterra")
SIMULATED = ("stat5", "calcium")


def ratios() -> Iterator[tuple[str, float]]:
    """Name -> igpe's time over SciPy's."""
    for name in ESTIMATED:
        yield f"estimate {name}", _least(name, "igpe") / _least(name, "scipy")
    for name in SIMULATED:
        asked = asked_of(importlib.import_module(name))
        makers = ours(asked, igpe.integrators.Automatic), scipys("LSODA")(asked)
        mine, theirs = (min(seconds(m(1e-6)) for _ in range(REPEATS)) for m in makers)
        yield f"sensitivities {name}", mine / theirs


def _least(name: str, peer: str) -> float:
    asked = case(name)
    judge = Judge(asked.make())
    ran = [run(asked, judge, peer, seed=0, limit=120.0, starts=20) for _ in range(REPEATS)]
    broke = next((r.why for r in ran if r.why), "")
    if broke:
        raise SystemExit(f"{peer} on {name}: {broke}")
    return min(r.ended for r in ran)


def judged(now: dict[str, float], before: dict[str, float]) -> Iterator[Row]:
    """Each ratio beside the stored one."""
    for name, ratio in now.items():
        if name not in before:
            yield Row(name, "igpe's time over SciPy's", ratio, "-", "not stored", None)
            continue
        limit = WORSE * before[name]
        told = f"<= {WORSE:g} x {before[name]:.3g}"
        yield Row(name, "igpe's time over SciPy's", ratio, "-", told, ratio <= limit)


def main() -> int:
    """0 if nothing became worse."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", action="store_true", help="write what is measured now")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given = parser.parse_args()
    sys.path.append(str(MODELS))
    now = dict(ratios())
    before = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    rows = list(judged(now, before))
    show("Guard", rows)
    if given.json:
        given.json.write_text(written(rows), encoding="utf-8")
    if given.store:
        STORED.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return 0
    worse = [row.case for row in rows if row.reached is False]
    if worse:
        print(f"WORSE by more than {WORSE:g} times: {', '.join(worse)}.", file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
