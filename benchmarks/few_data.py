"""Few data: random small problems whose best fit is known, by the defaults of `igpe.estimate`.

    python benchmarks/few_data.py [fits] [references] [--count 300] [--quick] [--store FOLDER]
                                  [--json FILE]

1 to 3 states, at most 6 unknowns with bounds a factor of 20 to either side of the truth, 15 times,
errors of 2 % of each output's largest value, sigma given; right-hand sides are sums of terms: first
and second order, saturation, Arrhenius under a temperature ramp, a tabulated feed, explicit time.

missed  the sum of squares is more than 1 % above the best one: of igpe.SingleShooting,
        IncrementalShooting and MultipleShooting from 20 starts and from the truth, and of SciPy's
        least squares from the truth; all sums of squares are SciPy's, at the values reported
false   igpe reports a sum of squares that SciPy does not have there, by more than 1 %
named   missed, but the verdict says that the fit is poor, that there was one search only, or that
        only some of the searches agree, fewer than half
--quick 30 problems

References are kept in a store of their own, by problem and method: those from the truth come first.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from pyomo import dae
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from trust.run import Answer, run_all

import igpe
from igpe.core.errors import IgpeError
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.base import from_many_starts

TIMES, NOISE, FACTOR, MOST = 15, 0.02, 20.0, 6
LONGEST = 600.0  # s of processor time of a problem
MISSED = 1.01
METHODS: dict[str, Any] = {
    "SingleShooting": igpe.SingleShooting(),
    "IncrementalShooting": igpe.IncrementalShooting(),
    "MultipleShooting": igpe.MultipleShooting(),
}
LIBRARIES = "sympy", "igpe.pipeline", "igpe.proofs.prover.unasked"  # loaded before time is taken
MULTIPLE_ONCE = igpe.MultipleShooting(restarts=Restarts(count=0))
TERMS = {  # text with the state x, another state y and parameters p, q -> typical sizes of these
    "-p*x": (1.0,),
    "-p*x*y": (0.8,),
    "-p*x/(q + x)": (1.0, 0.5),
    "-p*exp(-q*(300/T - 1))*x": (0.7, 20.0),
    "p*feed": (0.6,),
    "p*exp(-q*t)": (1.0, 0.8),
    "p*sin(q*t)**2": (1.0, 2.0),
    "p*y - x": (0.8,),
}


class Case(NamedTuple):
    """A random problem: right-hand sides in states x0.., parameters p0.., feed, T and t."""

    number: int
    ode: tuple[str, ...]
    truth: dict[str, float]
    start: tuple[float, ...]


def draw(number: int) -> Case:
    """The problem of that number."""
    random = np.random.default_rng([20, number])
    count = int(random.integers(1, 4))
    truth: dict[str, float] = {}
    ode = []
    for i in range(count):
        terms = [f"-p0*x{i}"] if i and random.random() < 0.3 else []  # shared with the first
        drawn = random.permutation(list(TERMS))[: int(random.integers(1, 4))].tolist()
        for text in drawn if truth or count > 1 else [*drawn, "-p*x"]:
            if len(truth) + len(TERMS[text]) > MOST or ("y" in text and count == 1):
                continue
            term = text.replace("x", f"x{i}").replace("y", f"x{(i + 1) % count}")
            term = term.replace(f"ex{i}p", "exp")
            for letter, size in zip("pq", TERMS[text], strict=False):
                name = f"p{len(truth)}"
                truth[name] = float(f"{size * random.uniform(0.5, 2.0):.3g}")
                term = term.replace(f"{letter}*", f"{name}*").replace(f"({letter} ", f"({name} ")
            terms.append(term)
        ode.append(" + ".join(terms) or "0")
    return Case(number, tuple(ode), truth, tuple(random.uniform(0.5, 2.0, count).round(2)))


def feed(t: Any) -> Any:
    """A tabulated feed."""
    return np.interp(t, (0.0, 1.0, 2.0, 5.0), (0.0, 1.0, 0.3, 0.3))


def simulated(case: Case, values: Any, times: np.ndarray) -> np.ndarray:
    """States (times, n) by SciPy."""
    codes = [compile(text, "ode", "eval") for text in case.ode]
    given = dict(zip(case.truth, values, strict=True)) | {"exp": np.exp, "sin": np.sin}

    def slope(t: float, x: np.ndarray) -> list[float]:
        here = given | {f"x{i}": v for i, v in enumerate(x)}
        here |= {"t": t, "T": 300 + 6 * t, "feed": feed(t)}
        return [eval(code, {"__builtins__": {}}, here) for code in codes]

    how = {"method": "LSODA", "rtol": 1e-10, "atol": 1e-12, "max_step": 0.25}
    with np.errstate(all="ignore"):
        done = solve_ivp(slope, (0, times[-1]), case.start, t_eval=times, **how)
    full = np.full((len(times), len(case.start)), 1e6)
    full[: done.y.shape[1]] = done.y.T
    return full


def data(case: Case) -> tuple[pd.DataFrame, np.ndarray]:
    """Measurements and standard deviations (n,)."""
    times = np.linspace(0.0, 5.0, TIMES + 1)[1:]
    exact = simulated(case, case.truth.values(), times)
    sigma = np.maximum(NOISE * np.abs(exact).max(axis=0), 1e-6)
    noise = np.random.default_rng([21, case.number]).standard_normal(exact.shape)
    table = pd.DataFrame(exact + sigma * noise, columns=[f"x{i}" for i in range(len(sigma))])
    table.insert(0, "time", times)
    return table, sigma


def problem(case: Case) -> igpe.Problem:
    """The problem as igpe is given it."""
    table, sigma = data(case)
    names = list(table.columns[1:])

    def model(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name, value in case.truth.items():
            m.add_component(name, pyo.Var(bounds=(value / FACTOR, value * FACTOR)))
        m.feed = pyo.Var(m.t)
        for i in range(len(case.ode)):
            state = pyo.Var(m.t)
            m.add_component(f"x{i}", state)
            m.add_component(f"dx{i}", dae.DerivativeVar(state, wrt=m.t))
        for i, text in enumerate(case.ode):
            code = compile(text, "ode", "eval")
            m.add_component(f"ode{i}", pyo.Constraint(m.t, rule=partial(_equation, code, i)))
        return m

    def _equation(code: Any, i: int, m: Any, t: Any) -> Any:
        here = {n: m.component(n) for n in case.truth} | {"exp": pyo.exp, "sin": pyo.sin}
        here |= {n: m.component(n)[t] for n in names}
        here |= {"t": t, "T": 300 + 6 * t, "feed": m.feed[t]}
        return m.component(f"dx{i}")[t] == eval(code, {"__builtins__": {}}, here)

    run = igpe.Experiment(
        table,
        start=dict(zip(names, case.start, strict=True)),
        start_time=0.0,
        inputs={"feed": igpe.linear_input((0.0, 1.0, 2.0, 5.0), (0.0, 1.0, 0.3, 0.3))},
        sigma=dict(zip(names, sigma, strict=True)),
    )
    return igpe.Problem(model, parameters=list(case.truth), experiments=run)


def sum_of_squares(case: Case, values: Any) -> float:
    """Sum of squares of parameters in their order, by SciPy."""
    return float(np.sum(residuals(case)(np.log(values)) ** 2))


def residuals(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """Residuals by SciPy, as a function of the logarithms of the parameters."""
    table, sigma = data(case)
    measured, times = table.iloc[:, 1:].to_numpy(), table["time"].to_numpy()
    return lambda z: ((simulated(case, np.exp(z), times) - measured) / sigma).ravel()


def reference(key: str) -> Answer:
    """The least sum of squares that a method reaches: "3 truth" or "3 SingleShooting"."""
    number, method = key.split()
    case = draw(int(number))
    posed = problem(case)
    searches: list[Callable[[], Any]] = [partial(by_scipy, case)]
    if method == "truth":
        searches += [partial(from_many_starts(m, posed), case.truth) for m in METHODS.values()]
    else:
        # Multiple shooting begins again by itself, always at the same points: it did from the truth
        single = MULTIPLE_ONCE if method == "MultipleShooting" else METHODS[method]
        search = from_many_starts(single, posed)
        starts = (posed.box.mapping(x) for x in posed.box.sobol(20, 5))
        searches = [partial(search, start) for start in starts]
    reached = {}
    for one in searches:
        with suppress(IgpeError):
            values = one()
            if not isinstance(values, dict):
                usable = values.status.usable and np.isfinite(values.objective)
                values = values.parameters if usable else {}
            if values:
                ordered = [values[n] for n in case.truth]
                reached[sum_of_squares(case, ordered)] = ordered
    best = min(reached, default=np.inf)
    return {"best": best, "values": reached.get(best), "reached": sorted(reached)}


def by_scipy(case: Case) -> dict[str, float]:
    """Where SciPy's least squares end from the truth, in logarithms."""
    true = np.array(list(case.truth.values()))
    bounds = np.log(true / FACTOR), np.log(true * FACTOR)
    end = least_squares(residuals(case), np.log(true), bounds=bounds)
    return dict(zip(case.truth, np.exp(end.x).tolist(), strict=True))


def answer(number: str) -> Answer:
    """What the defaults make of a problem."""
    case = draw(int(number))
    posed = problem(case)
    began = time.process_time()
    result = igpe.estimate(posed, seed=0)
    seconds = time.process_time() - began
    values = [result.parameters[n] for n in case.truth]
    return {
        "reported": result.objective,
        "objective": sum_of_squares(case, values),
        "values": values,
        "estimation": seconds,
        "steps": dict(result.seconds),
        "verdict": dict(result.verdict),
        "notes": list(result.notes),
        "ode": case.ode,
    }


def references(given: argparse.Namespace) -> Iterator[Row]:
    """What the references cost."""
    found = _references(given)
    seconds = sum(a["seconds"] for a in found.values())
    yield at_most("all", "processor time of the references", seconds, "s")
    yield at_most("all", "killed", sum("best" not in a for a in found.values()), "-", 0)


def _references(given: argparse.Namespace) -> dict[str, Answer]:
    """All references, of all problems from the truth first."""
    keys = [f"{k} {method}" for method in ("truth", *METHODS) for k in _numbers(given)]
    store = given.store / "few_data_references.jsonl" if given.store else None
    return run_all(store, keys, reference, LONGEST)


def _numbers(given: argparse.Namespace) -> range:
    return range(30 if given.quick else given.count)


def is_named(verdict: dict[str, str]) -> bool:
    """Whether the verdict says that the optimum need not be the best."""
    few = verdict["optimum"].startswith(("one search only", "only "))
    return few or "lack of fit" in verdict["fit"]


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Shares and seconds."""
    for library in LIBRARIES:
        import_module(library)
    store = given.store / "few_data.jsonl" if given.store else None
    found = run_all(store, [str(number) for number in _numbers(given)], answer, LONGEST)
    best = dict.fromkeys(found, np.inf)
    for key, one in _references(given).items():
        number = key.split()[0]
        best[number] = min(best[number], one.get("best", np.inf))
    over = {k: a.get("objective", np.inf) / best[k] for k, a in found.items()}
    missed = [k for k, ratio in over.items() if not ratio <= MISSED]
    reached = 100 * (1 - len(missed) / len(found))
    yield at_least("all", "within 1 % of the best", reached, "%", 98)
    unnamed = [k for k in missed if "verdict" not in found[k] or not is_named(found[k]["verdict"])]
    yield at_most("all", "missed and not named", len(unnamed), "-", 0)
    answers = [a for a in found.values() if "verdict" in a]
    false = [a for a in answers if abs(a["reported"] / a["objective"] - 1) > MISSED - 1]
    yield at_most("all", "reported falsely", len(false), "-", 0)
    seconds = [a.get("estimation", a["seconds"]) for a in found.values()]
    yield at_most("all", "median of processor time", float(np.median(seconds)), "s", 5)
    yield at_most("all", "worst processor time", max(seconds), "s")
    for k in missed:
        yield at_most(f"{k}{' (not named)' * (k in unnamed)}", "over the best", over[k])


def options(parser: argparse.ArgumentParser) -> None:
    """Beside --json."""
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--store", type=Path, help="folder; a run that was stopped continues there")


if __name__ == "__main__":
    command(__doc__, "Few data", {"fits": figures, "references": references}, options)
