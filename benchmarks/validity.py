"""Random boxes of many models: is a proven bound ever above a point of its box?

    python benchmarks/validity.py [--boxes N] [--json FILE] [--processes P] [--seed S]

`brute_force.py` says what is compared. A bound is tight if it is above 99 % of the best point found
in its box; that is no target, wide boxes cannot be tight.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "benchmarks")]

from brute_force import SETTINGS, Case, Checked, cases  # noqa: E402
from figures import Row, written  # noqa: E402

CHUNK = 100  # boxes of one case that one task checks
TIGHT = 0.99


_cases: dict[tuple[str, int], Case] = {}


def _all_cases() -> dict[tuple[str, int], Case]:
    """Made once in each process."""
    if not _cases:
        _cases.update({(c.name, SETTINGS.index(c.setting)): c for c in cases()})
    return _cases


def _checked(key: tuple[str, int], seed: tuple[int, ...], count: int) -> list[Checked]:
    rng = np.random.default_rng(seed)
    case = _all_cases()[key]
    found = [case.check(rng) for _ in range(count)]
    return found


def rows(name: str, found: list[Checked]) -> Iterable[Row]:
    """Figures of one model."""
    case, n = f"validity: {name}", len(found)
    wrong = sum(not f.valid for f in found)
    known = [f for f in found if np.isfinite(f.found)]
    positive = [f for f in known if f.lower > 0]
    tight = sum(f.lower >= TIGHT * f.found for f in known)
    yield Row(case, "boxes", n, "", "", None)
    yield Row(case, "bounds or enclosures that are wrong", wrong, "", "0", wrong == 0)
    yield Row(case, "positive bounds", round(len(positive) / max(len(known), 1), 4), "share", "", None)  # fmt: skip  # noqa: E501
    yield Row(case, "tight bounds", round(tight / max(len(known), 1), 4), "share", "", None)
    ratio = float(np.median([f.lower / f.found for f in positive if f.found > 0] or [0.0]))
    yield Row(case, "bound / best point, median where positive", round(ratio, 6), "", "", None)


def main() -> int:
    """Exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boxes", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    keys = list(_all_cases())
    names = list(dict.fromkeys(name for name, _ in keys))
    found: dict[str, list[Checked]] = {name: [] for name in names}
    each = -(-given.boxes // len(names))  # of every model as many
    began = time.perf_counter()
    with ProcessPoolExecutor(given.processes) as pool:
        tasks = {}
        for name in names:
            own = [k for k in keys if k[0] == name]
            for i, begin in enumerate(range(0, each, CHUNK)):
                key = own[i % len(own)]
                seed = (given.seed, names.index(name), i)
                tasks[pool.submit(_checked, key, seed, min(CHUNK, each - begin))] = name
        for done, task in enumerate(as_completed(tasks)):
            found[tasks[task]] += task.result()
            _say(done + 1, len(tasks), began)
    every = [row for name in names for row in rows(name, found[name])]
    _print(names, found)
    if given.json:
        given.json.write_text(written(every), encoding="utf-8")
    return int(any(row.reached is False for row in every))


def _say(done: int, total: int, began: float) -> None:
    if done % max(total // 20, 1) == 0:
        print(f"{done}/{total} tasks, {time.perf_counter() - began:.0f} s", flush=True)


def _print(names: list[str], found: dict[str, list[Checked]]) -> None:
    table = Table("model", "boxes", "wrong", "positive", "tight", "bound / best point")
    for name in names:
        told = {row.figure: row.value for row in rows(name, found[name])}
        table.add_row(name, *(f"{value:g}" for value in told.values()))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
