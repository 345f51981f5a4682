"""Verdicts of `igpe.check` beside the numerical rank of sensitivities, on 700 random designs.

Outputs over the measured window and their derivatives come from SciPy (`random_designs`), at the
true values, which are random. The rank is clear where no singular value of the scaled matrix lies
between 1e-8 and 1e-5. A contradiction is an unknown called identifiable that the clear null space
moves, or one called not identifiable that it does not move.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from figures import Row, at_least, at_most

import igpe
from trust.random_designs import (
    KINDS,
    draw,
    lost,
    measured_times,
    sensitivities,
    tables,
)
from trust.random_models import Unsolved, own_fault, problem, truth
from trust.run import Answer, run

EACH = 100
CASES = tuple(f"{kind}-{i}" for kind in KINDS for i in range(EACH))
LEAST = 500  # designs whose rank is clear


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Counts of verdicts, contradictions by case, and what is undecided."""
    answers = run("verdicts", CASES, judged, given, limit=60.0)
    clear = {c: a for c, a in answers.items() if a.get("verdicts")}
    pairs = Counter(tuple(v) for a in clear.values() for v in a["verdicts"].values())
    wrong = pairs["YES", "lost"] + pairs["NO", "seen"]
    share = len(answers) / len(CASES)
    yield at_least("all", "designs whose rank is clear", len(clear), "-", LEAST * share)
    yield at_most("all", "verdicts", sum(pairs.values()))
    yield at_most("all", "contradictions", wrong, "-", 0)
    yield at_most("all", "undecided", sum(n for (v, _), n in pairs.items() if v == "UNDECIDED"))
    for kind in ("refused", "crashed", "killed", "discarded", "unclear"):
        yield at_most("all", kind, sum(kind in a for a in answers.values()))
    yield at_most("all", "seconds", sum(a.get("seconds", 0) for a in answers.values()), "s")
    for case, answer in clear.items():
        for name, (verdict, rank) in answer["verdicts"].items():
            if (verdict, rank) in {("YES", "lost"), ("NO", "seen")}:
                yield at_most(case, f"{name}: {verdict} but {rank}", 1, "-", 0)
    for case, answer in answers.items():
        if "crashed" in answer or "refused" in answer or "killed" in answer:
            last = str(answer.get("crashed", answer.get("refused"))).strip().splitlines()[-1]
            yield at_most(case, last[:100], 1)


def judged(case: str) -> Answer:
    """Verdict and rank of each unknown."""
    model = draw(case)
    values = truth(model)
    try:
        _, jacobian = sensitivities(model, values, measured_times(model))
        measurements = tables(model, values, 0.0, 0)
    except (Unsolved, ArithmeticError, ValueError) as error:
        return {"discarded": str(error)}
    if not np.isfinite(jacobian).all():
        return {"discarded": "the sensitivities are not finite"}
    rank = lost(jacobian)
    if rank is None:
        return {"unclear": True}
    try:
        found = igpe.check(problem(model, measurements))
    except igpe.IgpeError as error:
        if own_fault(error):
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    words = {True: "lost", False: "seen", None: "unclear"}
    told = {f.unknown: f.verdict.name for f in found.findings}
    return {
        "verdicts": {n: [told[n], words[r]] for n, r in zip(values, rank, strict=True)},
    }
