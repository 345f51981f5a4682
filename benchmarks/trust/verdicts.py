"""Verdicts of `igpe.check` beside the numerical rank of sensitivities, on 595 random designs.

Outputs over the measured window and their derivatives come from SciPy (`random_designs`), at the
true values, which are random. The rank is clear where no singular value of the scaled matrix lies
between 1e-8 and 1e-5. A contradiction is an unknown called identifiable that the clear null space
moves, or one called not identifiable that it does not move.

Where unknowns are called globally identifiable, one design in three is also fitted to its exact
outputs from random starts; a fit that meets them elsewhere is a contradiction as well.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

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
    true_scales,
)
from trust.random_models import Model, Unsolved, own_fault, problem, truth
from trust.run import Answer, run

EACH = 85
FITTED = 3  # one design in so many is fitted
FITS, STEPS = 2, 25
EXACT, ELSEWHERE = 1e-7, 0.05  # of outputs; of values, relative: more than the rank leaves open
CASES = tuple(f"{kind}-{i}" for kind in KINDS for i in range(EACH))
LEAST = 500  # designs whose rank is clear


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Counts of verdicts, contradictions by case, and what is undecided."""
    answers = run("verdicts", CASES, judged, given, limit=60.0)
    clear = {c: a for c, a in answers.items() if a.get("verdicts")}
    pairs = Counter(tuple(v) for a in clear.values() for v in a["verdicts"].values())
    wrong = pairs["YES", "lost"] + pairs["NO", "seen"]
    twice = {c: a["elsewhere"] for c, a in clear.items() if a["elsewhere"]}
    share = len(answers) / len(CASES)
    yield at_least("all", "designs whose rank is clear", len(clear), "-", LEAST * share)
    yield at_most("all", "verdicts", sum(pairs.values()))
    yield at_most("all", "contradictions", wrong, "-", 0)
    yield at_most("all", "globally identifiable with two values", len(twice), "-", 0)
    yield at_most(
        "all", "fits from elsewhere that met the outputs", sum(a["fits"] for a in clear.values())
    )
    yield at_most("all", "called globally identifiable", sum(a["unique"] for a in clear.values()))
    yield at_most("all", "undecided", sum(n for (v, _), n in pairs.items() if v == "UNDECIDED"))
    for kind in ("refused", "crashed", "killed", "discarded", "unclear"):
        yield at_most("all", kind, sum(kind in a for a in answers.values()))
    yield at_most("all", "seconds", sum(a.get("seconds", 0) for a in answers.values()), "s")
    for case, answer in clear.items():
        for name, (verdict, rank) in answer["verdicts"].items():
            if (verdict, rank) in {("YES", "lost"), ("NO", "seen")}:
                yield at_most(case, f"{name}: {verdict} but {rank}", 1, "-", 0)
    for case, names in twice.items():
        yield at_most(case, f"another value: {names}", 1, "-", 0)
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
    except igpe.errors.IgpeError as error:
        if own_fault(error):
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    words = {True: "lost", False: "seen", None: "unclear"}
    told = {f.unknown: f.verdict.name for f in found.findings}
    unique = {f.unknown for f in found.findings if f.values == 1}
    is_fitted = unique and int(case.rsplit("-", 1)[1].strip("x")) % FITTED == 0
    return {
        "verdicts": {n: [told[n], words[r]] for n, r in zip(values, rank, strict=True)},
        "unique": len(unique),
        **(_elsewhere(model, values, unique) if is_fitted else {"elsewhere": [], "fits": 0}),
    }


def _elsewhere(model: Model, values: dict[str, float], unique: set[str]) -> Answer:
    """Unknowns called globally identifiable that another exact fit gives another value."""
    fits = 0
    names, true = list(values), np.array(list(values.values()))
    times = measured_times(model)
    scales = true_scales(model, values, times)

    def outputs(p: Any) -> Any:
        return sensitivities(model, dict(zip(names, p, strict=True)), times, scales)

    exact, _ = outputs(true)
    r = np.random.default_rng(len(exact))
    moved: set[str] = set()
    for _ in range(FITS):
        at = _fitted(outputs, true * np.exp(r.uniform(-1, 1, len(true))), exact)
        if at is not None:
            fits += 1
            apart = np.abs(at - true) > ELSEWHERE * np.abs(true)
            moved |= {n for n, is_apart in zip(names, apart, strict=True) if is_apart}
    return {"elsewhere": sorted(moved & unique), "fits": fits}


def _fitted(outputs: Callable[[Any], Any], p: Any, exact: Any) -> Any:
    """Values at which the outputs are the exact ones; None if Gauss and Newton do not find any."""
    damping, best = 1e-2, np.inf
    for _ in range(STEPS):
        try:
            y, jacobian = outputs(p)
        except (Unsolved, ArithmeticError, ValueError):
            y, jacobian = np.full(len(exact), np.inf), None
        cost = float(np.linalg.norm(y - exact))
        if cost < EXACT:
            return p
        if np.isfinite(cost) and cost < best:
            best, kept, damping = cost, (p, y, jacobian), damping / 5
        elif not np.isfinite(best):
            return None
        else:
            damping *= 10
        p0, y0, j0 = kept
        normal = j0.T @ j0 + damping * np.eye(len(p))
        change = np.linalg.lstsq(normal, -(j0.T @ (y0 - exact)))[0]
        p = p0 * (1 + np.clip(change, -0.6, 1.5))  # keeps signs
    return None
