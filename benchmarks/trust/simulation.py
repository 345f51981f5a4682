"""Random models: `igpe.simulate` with defaults beside SciPy on Pyomo's own expressions.

2,100 models of `random_features`, seeded by the case's name, each integrated by SciPy from the text
that Pyomo evaluates too (`random_models`), piece by piece between switches and around pulses.

wrong      a quantity differs by more than 1e-4 of its largest absolute value over the horizon
slow       building the problem and simulating it took more than 20 s of processor time
refused    igpe raised one of its errors; each head of a message is a row with its count
discarded  SciPy could not integrate the model, or two of its methods disagree
generator  Pyomo's constraints differ from the judge's text: a fault of the benchmark itself
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from figures import Row, at_least, at_most

import igpe
from trust.random_features import CLASSES, draw, generic_times
from trust.random_models import Builder, Judge, Model, disagreement, own_fault, problem, truth
from trust.run import Answer, run

EACH = 70  # cases of each class
CASES = tuple(f"{kind}-{i}" for kind in dict.fromkeys(CLASSES) for i in range(EACH)) + tuple(
    f"{kind}-{i}" for kind in ("template", "mixed") for i in range(EACH, 2 * EACH)
)
TOLERANCE, SLOW, SHARE_REFUSED = 1e-4, 20.0, 0.05
UNSURE = 1e-5  # largest difference of two of SciPy's methods, of the quantity's scale
NEGATIVE = 1e-6  # share of a state's size below zero that is no rounding
READ_ALIKE = 1e-6  # largest difference of Pyomo's value and the judge's, relative to the terms


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """The table: counts, and why models were refused."""
    answers = run("simulation", CASES, judged, given, limit=60.0)
    kinds = Counter(_outcome(a) for a in answers.values())
    judged_ones = len(answers) - kinds["discarded"] - kinds["generator"]
    yield at_least("all", "models that SciPy integrates", judged_ones, "-", 0.9 * len(answers))
    yield at_most("all", "generator", kinds["generator"], "-", 0)
    yield at_most("all", "discarded", kinds["discarded"])
    yield at_most("all", "wrong", kinds["wrong"], "-", 0)
    yield at_most("all", "crashed", kinds["crashed"], "-", 0)
    yield at_most("all", f"over {SLOW:g} s", kinds["slow"], "-", 0)
    share = 100 * kinds["refused"] / max(judged_ones, 1)
    yield at_most("all", "refused", share, "%", 100 * SHARE_REFUSED)
    yield at_most("all", "seconds", sum(a.get("seconds", 0) for a in answers.values()), "s")
    for case, answer in answers.items():
        if _outcome(answer) in {"wrong", "slow", "crashed", "generator"}:
            yield at_most(case, f"{_outcome(answer)} {_where(answer)}", answer.get("worst", np.nan))
    yield from _refusals(answers)


def _refusals(answers: dict[str, Answer]) -> Iterator[Row]:
    heads = Counter(_head(a["refused"]) for a in answers.values() if "refused" in a)
    for head, count in heads.most_common():
        yield at_most("refused", head, count)


def _outcome(answer: Answer) -> str:
    for kind in ("generator", "discarded", "crashed", "refused"):
        if kind in answer:
            return kind
    if "killed" in answer or answer["igpe"] > SLOW:
        return "slow"
    return "wrong" if not answer["worst"] <= TOLERANCE else "right"


def _where(answer: Answer) -> str:
    last = str(answer.get("crashed", "")).strip().splitlines()[-1:]
    return str(answer.get("quantity", *last or [""]))


def _head(message: str) -> str:
    """A message without its names and numbers."""
    text = re.sub(r"'[^']*'|\[[^\]]*\]", "_", message)
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", text)[:110]


def judged(case: str) -> Answer:
    """What igpe makes of one model."""
    model = draw(case)
    times = generic_times(model, 30)
    try:
        references = [_reference(model, k, times, "LSODA", 1e-10) for k in range(len(model.runs))]
    except (ArithmeticError, ValueError, TypeError, np.linalg.LinAlgError) as error:
        return {"discarded": f"{type(error).__name__}: {error}"}
    apart = _read_alike(model, times, references[0])
    if not apart <= READ_ALIKE:
        return {"generator": apart}
    begin = time.process_time()
    try:
        simulated = _simulated(model, times, references)
    except igpe.errors.IgpeError as error:
        if own_fault(error):
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - begin
    worst, quantity = _difference(model, simulated, references)
    if not worst <= TOLERANCE and not _sure(model, times, references):
        return {"discarded": "two of SciPy's methods disagree"}
    return {"worst": worst, "quantity": quantity, "igpe": seconds}


def _reference(model: Model, k: int, times: Any, method: str, rtol: float) -> Any:
    found = Judge(model, model.runs[k]).integrate(times, method, rtol)
    sizes = np.array(list(model.size.values()))
    if not np.isfinite(found).all() or (np.abs(found[:, : len(sizes)]) > 1e6 * sizes).any():
        raise ArithmeticError("the states blow up")
    if _has_powers(model) and (found[:, : len(sizes)] < -NEGATIVE * sizes).any():
        raise ArithmeticError("a power or a root of a negative number")
    return found


def _sure(model: Model, times: Any, references: list[Any]) -> bool:
    """Whether another of SciPy's methods agrees."""
    for k, found in enumerate(references):
        try:
            other = _reference(model, k, times, "Radau", 1e-8)
        except (ArithmeticError, ValueError, TypeError, np.linalg.LinAlgError):
            return False
        scale = np.abs(found).max(axis=0)
        if not (np.abs(other - found).max(axis=0) <= UNSURE * scale).all():
            return False
    return True


def _read_alike(model: Model, times: Any, reference: Any) -> float:
    chosen = np.linspace(0, len(times) - 2, 3).astype(int)
    states = reference[chosen, : len(model.states)]
    return disagreement(model, times[chosen], np.abs(states) if _has_powers(model) else states)


def _has_powers(model: Model) -> bool:
    return "power(" in model.text() or "sqrt(" in model.text()


def _simulated(model: Model, times: Any, references: list[Any]) -> pd.DataFrame:
    told = [*model.states, *(n for n in model.measured if n not in model.states)]
    rows = slice(None, None, 4)
    tables = []
    for reference in references:
        table = pd.DataFrame(reference, columns=told)[model.measured]
        table.insert(0, "time", times)
        tables.append(pd.concat([table[rows], table[-1:]]).drop_duplicates("time"))
    return igpe.simulate(problem(model, tables), truth(model), times)


def _difference(model: Model, simulated: Any, references: list[Any]) -> tuple[float, str]:
    """The largest, of each quantity's own scale, and where."""
    builder, worst = Builder(model), (0.0, "")
    told = [*model.states, *(n for n in model.measured if n not in model.states)]
    for one, reference in zip(model.runs, references, strict=True):
        table = simulated[simulated["experiment"] == one.name]
        for name, values in zip(told, reference.T, strict=True):
            column = builder.known_as(name)  # or its Reference, if neither data nor starts name it
            column = column if column in table else f"ref_{name}"
            apart = np.abs(table[column].to_numpy() - values)
            scale = np.abs(values).max() or model.size.get(name, 1.0)
            share = float(np.max(apart) / scale)
            share = np.inf if np.isnan(share) else share  # NaN is wrong
            if share > worst[0]:
                worst = (share, f"{name} of {one.name} at {apart.argmax()}")
    return worst
