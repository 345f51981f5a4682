"""Coverage of the intervals that a problem file of `igpe new` gives, from noisy tables.

A -> B -> C from A alone, 3 % noise of the largest concentration on every measurement, the first one
included; nothing in the drafted file is changed. A right 95 % interval holds the truth in 95 % of
the tables; the band holds that share with a probability of 99.9 % (binomial).
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from figures import Row
from scipy.stats import binom

from igpe import estimate
from igpe.cli.model_file import load_problem
from igpe.formats.draft import draft
from trust.run import Answer, run

CASES = tuple(f"table {i}" for i in range(300))
TIMES = np.linspace(0.0, 90.0, 13)
RATES = (0.05, 0.02)
NOISE = 0.03
LEVEL = 0.95


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Share of intervals that hold the true rate constants."""
    answers = run("drafts", CASES, work, given).values()
    held = [hit for a in answers for hit in a.get("held", ())]
    low, high = (binom.ppf(p, len(held), LEVEL) / len(held) for p in (5e-4, 1 - 5e-4))
    share = float(np.mean(held))
    target = f"{low:.3f} to {high:.3f}"
    yield Row("igpe new", f"coverage of {len(held)}", share, "-", target, low <= share <= high)
    lost = sum("held" not in a for a in answers)
    yield Row("igpe new", "tables without an answer", lost, "-", "0", lost == 0)


def work(case: str) -> Answer:
    """Whether the interval of each rate constant holds the truth."""
    rng = np.random.default_rng(int(case.split()[1]))
    k1, k2 = RATES
    a = np.exp(-k1 * TIMES)
    b = k1 / (k2 - k1) * (a - np.exp(-k2 * TIMES))
    noisy = np.column_stack([a, b, 1 - a - b]) + NOISE * rng.standard_normal((len(TIMES), 3))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        table = pd.DataFrame(noisy, columns=["A", "B", "C"])
        table.insert(0, "time", TIMES)
        table.to_csv("table.csv", index=False)
        file = Path("model.py")
        file.write_text(draft([Path("table.csv")], ["A -> B", "B -> C"], {}, file).text)
        result = estimate(load_problem(file))
    found = {p.name: p for p in result.estimates}
    return {
        "held": [
            bool(found[n].lower <= truth <= found[n].upper)
            for n, truth in zip(("k1", "k2"), RATES, strict=True)
        ]
    }
