"""Predicted errors of designs beside independent information matrices, plans beside brute force.

The cases are those of `tests/planning/design_cases.py`. Information: covariances before and after
of random designs (parameters near 0; constant, proportional, estimated and unknown standard
deviations; replicates, priors, earlier data, profiles of inputs) beside those from SciPy's
integration and central differences; the largest difference relative to the errors. Brute: the
squared error of the criterion at the chosen samples beside the least of all allowed choices,
replicates included.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from figures import Row, at_least, at_most
from trust.run import Answer, run

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS / "planning"), str(TESTS)]

SAME, WORSE = 1e-5, 1.0


def _work(case: str) -> Answer:
    import design_cases  # noqa: PLC0415 - its folder is on the path only here

    kind, _, seed = case.partition(" ")
    if kind == "information":
        return {"value": design_cases.Information(int(seed)).difference()}
    return {"value": 100 * design_cases.Brute(int(seed)).excess()}


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """The worst of each kind, every case that misses, and how many there were."""
    import design_cases  # noqa: PLC0415 - as above

    cases = [*design_cases.INFORMATION, *design_cases.BRUTE]
    answers = run("designs", cases, _work, given, limit=300.0)
    for kind, figure, limit, unit, least in (
        ("information", "relative difference of covariances", SAME, "-", 30),
        ("brute", "squared error above the best choice's", WORSE, "%", 10),
    ):
        mine = {c: a for c, a in answers.items() if c.startswith(kind)}
        values = {c: a.get("value", float("inf")) for c, a in mine.items()}
        for case, value in values.items():
            if not value <= limit:
                yield at_most(
                    case, f"{figure} ({mine[case].get('crashed', '')})", value, unit, limit
                )
        yield at_least(kind, "designs", float(len(mine)), "-", least)
        yield at_most(kind, f"largest {figure}", max(values.values(), default=0.0), unit, limit)
