"""`igpe.estimate` with defaults beside the rank of the Jacobian at its optimum, on 203 problems.

Random designs (`random_designs`) with simulated measurements, errors of 1 % of each output's
largest value and sigma unknown to igpe. At the values that igpe reports SciPy's sensitivities say
which unknowns the measurements determine there, where the rank is clear.

contradiction  an unknown that the null space moves has an error and no remark, or one that it
               leaves alone is not identifiable by `igpe.check` (or the other way round), and no
               note of the result on the rank of the Jacobian is about it
undetermined   share of unknowns that are identifiable and right (within 3 standard errors of the
               independent Jacobian, or 10 %) and are called undetermined
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from figures import Row, at_least, at_most

import igpe
from trust.random_designs import KINDS, draw, lost, measured_times, sensitivities, tables
from trust.random_models import Unsolved, own_fault, problem, truth
from trust.run import Answer, run

EACH = 29
CASES = tuple(f"{kind}-{i}" for kind in KINDS for i in range(EACH))
MOST, NOISE, LEAST = 4, 0.01, 150
SHARE = 0.05
ERRORS, CLOSE = 3.0, 0.1  # what is right: within so many standard errors, or so large a share


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Contradictions by kind, and how many identifiable unknowns are called undetermined."""
    answers = run("agreement", CASES, judged, given, limit=120.0)
    rows = [(c, n, r) for c, a in answers.items() for n, r in a.get("unknowns", {}).items()]
    clear = sum("unknowns" in a for a in answers.values())
    yield at_least(
        "all", "problems with a clear rank", clear, "-", LEAST * len(answers) / len(CASES)
    )
    wrong = [(c, n, r) for c, n, r in rows if r["contradiction"]]
    yield at_most("all", "contradictions", len(wrong), "-", 0)
    good = [r for _, _, r in rows if r["rank"] == "seen" and r["right"]]
    hidden = 100 * sum(r["undetermined"] for r in good) / max(len(good), 1)
    yield at_most("all", "right, identifiable, called undetermined", hidden, "%", 100 * SHARE)
    yield at_most("all", "right and identifiable", len(good))
    yield at_most("all", "identifiable", sum(r["rank"] == "seen" for _, _, r in rows))
    kinds = Counter(k for a in answers.values() for k in ("refused", "crashed", "killed") if k in a)
    for kind in ("refused", "crashed", "killed"):
        yield at_most("all", kind, kinds[kind])
    yield at_most("all", "discarded or unclear", len(answers) - clear - sum(kinds.values()))
    yield at_most("all", "seconds", sum(a.get("seconds", 0) for a in answers.values()), "s")
    for case, name, r in wrong:
        yield at_most(case, f"{name}: {r['contradiction']}", 1, "-", 0)
    for case, answer in answers.items():
        if "crashed" in answer or "refused" in answer:
            last = str(answer.get("crashed", answer.get("refused"))).strip().splitlines()[-1]
            yield at_most(case, last[:100], 1)


def judged(case: str) -> Answer:
    """What is said of each unknown, and what the rank at the optimum says."""
    model = draw(case, MOST)
    values = truth(model)
    try:
        measurements = tables(model, values, NOISE, 1)
    except (Unsolved, ArithmeticError, ValueError) as error:
        return {"discarded": str(error)}
    posed = problem(model, measurements)
    try:
        structure = igpe.check(posed)
        result = igpe.estimate(posed)
    except igpe.errors.IgpeError as error:
        if own_fault(error):
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    optimum = {n: result.parameters.get(n, v) for n, v in values.items()}
    try:
        _, jacobian = sensitivities(model, optimum, measured_times(model))
    except (Unsolved, ArithmeticError, ValueError) as error:
        return {"discarded": str(error)}
    rank = lost(jacobian) if np.isfinite(jacobian).all() else None
    if rank is None:
        return {"unclear": True}
    errors = _errors(jacobian, rank)
    return {
        "unknowns": {
            n: _row(n, values[n], moved, error, (structure, result))
            for n, moved, error in zip(values, rank, errors, strict=True)
        }
    }


def _errors(jacobian: Any, rank: list[bool | None]) -> list[float]:
    """Relative standard errors of the unknowns that the null space leaves alone."""
    inverse = np.linalg.pinv(jacobian.T @ jacobian, rcond=1e-13, hermitian=True)
    found = NOISE * np.sqrt(np.maximum(np.diag(inverse), 0))
    return [float(e) if r is False else np.inf for e, r in zip(found, rank, strict=True)]


def _row(name: str, true: float, moved: bool | None, error: float, said: Any) -> Answer:
    structure, result = said
    verdict = next((f.verdict.name for f in structure.findings if f.unknown == name), "UNDECIDED")
    one = next((p for p in result.estimates if p.name == name), None)
    undetermined = one is None or "not determined" in one.remark or np.isinf(one.standard_error)
    on_bound = one is not None and "bound" in one.remark
    away = np.inf if one is None else abs(one.value - true)
    is_right = bool(away <= max(ERRORS * error * abs(true), CLOSE * abs(true))) and moved is False
    is_noted = _is_noted(name, result.notes)
    contradiction = ""
    if moved and not undetermined and not on_bound and not is_noted:
        contradiction = "has an error, but the null space moves it"
    elif moved and verdict == "YES" and not is_noted:
        contradiction = "identifiable by check, but the null space moves it"
    elif moved is False and verdict == "NO" and not is_noted:
        contradiction = "not identifiable by check, but the Jacobian determines it"
    return {
        "rank": {True: "lost", False: "seen", None: "unclear"}[moved],
        "verdict": verdict,
        "undetermined": bool(undetermined),
        "right": is_right,
        "error": error if np.isfinite(error) else None,
        "contradiction": contradiction,
    }


def _is_noted(name: str, notes: Iterable[str]) -> bool:
    """Whether a note on the rank of the Jacobian begins with the unknown's name among others."""
    for note in notes:
        names, _, rest = note.partition(": ")
        is_of_rank = "the Jacobian at the optimum" in rest or rest.startswith(
            "the errors are valid only with"
        )
        if is_of_rank and name in re.split(r", | and ", names):
            return True
    return False
