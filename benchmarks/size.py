"""How large a model may be: chains, networks, tubes and columns of 50 to 1,000 states.

    python benchmarks/size.py [integrate] [check] [estimate] [curve] [back] [--quick] [--only TEXT]
                              [--amici PYTHON] [--store FOLDER] [--json FILE] [--plot FILE]

integrate  the course with the derivatives of all that is measured by all unknowns, at rtol 1e-8, by
           igpe, by CasADi's CVODES or IDAS with forward sensitivities, and by SciPy's BDF with
           sparse Jacobians and differences (a multiple of one course); with --amici also by AMICI
           (forward sensitivities; the environment is made as for petab_speed.py); then igpe's
           gradient of a sum of squares by one sweep back, beside CasADi's adjoints; and what the
           first call takes, the compiler's time included
check      `igpe.check`
estimate   `igpe.estimate(problem, certify=False)`, all included, and the largest error of an
           unknown in standard errors; beside it Pyomo's collocation and IPOPT (size/collocated.py),
           which end after ten times as long
curve      of a chain, all measured, and a tube with 3 unknowns, from 5 states on: one integration
           without and with all derivatives, a gradient, `igpe.check`, `igpe.estimate` with its
           steps and without a proof, the memory of all; --plot draws them (docs/size.md)
back       derivatives of all measured values by directions forwards and by one sweep back: how the
           time of the one, in that of the other, is off what igpe predicts and reports (heat
           networks: n bodies, unknowns, outputs, times); and what the choice costs beside the best
growth     of each figure over the sizes: the exponent of a power of the number of states
--quick    sizes up to 100

Every case runs in a process of its own and is kept in the store; seconds are of the processor, with
the compiler's. The driver of the integrators, which a machine compiles once for all models, is
compiled before and is a row of its own (`driver, once`). A case that takes more than LONGEST is
stopped and counts as not finished.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
from figures import Row, at_least, at_most, command
from matplotlib.figure import Figure
from peers.amici_python import amici_python, answer, environment
from size.collocated import solved
from size.families import FAMILIES, Case, heat
from trust.run import Answer, run_all

import igpe
import igpe.pipeline  # noqa: F401 - loaded before anything is timed, as its peers are
from igpe.dynamics.integrators.automatic import Automatic, Backward, swept_back
from igpe.dynamics.integrators.compiler import built
from igpe.dynamics.integrators.runge_kutta_source import FORWARDS, driver
from igpe.dynamics.shooting.residuals import Residuals, runs_of
from igpe.equations.compiled import compiled

LONGEST = 600.0  # s of a case
SIZES = {
    "chain": (10, 50, 100, 300),
    "network": (10, 100, 300, 1000),
    "tube": (10, 50, 200, 400, 1000),
    "column": (10, 50, 200),
}
ESTIMATED = {"chain": (10, 50, 100, 300), "network": (100,), "tube": (10, 50, 200, 400)}
ESTIMATED |= {"column": (10, 50, 100)}
CURVE = {"chain": (5, 10, 20, 50, 100), "tube": (5, 10, 20, 50, 100, 200, 500, 1000)}
BACK = (
    "heat 50 70 1 12",
    "heat 120 30 4 25",
    "heat 200 200 2 20",
    "heat 250 300 6 40",
    "heat 500 150 3 15",
    "heat 80 100 10 50",
    "network 100",
    "network 300",
    "chain 50",
    "heat 300 250 4 30",
    "heat 60 90 3 60",
    "heat 150 120 1 40",
    "network 200",
    "heat 220 80 1 10",
    "heat 90 130 5 15",
    "network 150",
)
"""Cases of `back`. The prediction was made with the first 13 known, the last three came after."""
TWICE, REGRET = (
    2.0,
    1.25,
)  # a prediction may be off by this factor; the choice may cost so much more
BEGINS = {
    "Step 3": "step 3",
    "Step 5": "step 5",
    "Other": "other optima",
}
"""First words of what `igpe.estimate` reports when a step begins."""
LIMITS = {
    ("estimate", "chain", 100): 20.0,
    ("estimate", "chain", 300): 150.0,
    ("estimate", "tube", 200): 8.0,
    ("estimate", "tube", 400): 15.0,
    ("derivatives", "network", 1000): 5.0,
    ("gradient", "network", 1000): 1.0,
}
FIGURES = ("first call", "simulation", "derivatives", "gradient", "check", *BEGINS.values())
FIGURES += ("estimate",)
WITHOUT_TARGET = (
    "largest error",
    "AMICI's compiling",
    "AMICI apart from SciPy",
    "Pyomo and IPOPT apart from igpe",
)
"""Standard errors, seconds, units of states, standard errors: whether a time counts."""
TITLES = {"chain": "chain, n - 1 unknowns, all measured", "tube": "tube, 3 unknowns, 3 measured"}
DRAWN = {
    "estimate": "C3-s",
    "step 3": "C1--^",
    "step 5": "C3--v",
    "other optima": "C4--x",
    "check": "C2-o",
    "derivatives": "C0-o",
    "gradient": "C0--o",
    "simulation": "C0:o",
}
"""Lines of the picture: what is drawn, and how."""
CHECK, FIRST, MEMORY = 10.0, 10.0, 2048.0  # s, s, MiB
PEER = ("cvodes", "idas")  # by whether there are implicit variables
LARGE, SMALL = 200, 20  # states from which, and below which, igpe is compared
PEERS = {
    "SciPy": ("derivatives", 3.0),
    "CasADi": ("derivatives", 3.0),
    "CasADi back": ("gradient", 3.0),
    "AMICI": ("derivatives", 1 / 1.5),
    "Pyomo and IPOPT": ("estimate", 3.0),
}
"""What igpe is compared in, and how many times as fast as the peer if the model is large."""
LEAST = 1 / 1.5  # times as fast as any if small
MORE, LEAST_TIME = 10.0, 60.0  # times as long may Pyomo and IPOPT take, and at least so many s


def seconds() -> float:
    """Of this process and of those that ended."""
    own, others = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    began = seconds()
    result = work()
    return seconds() - began, result


def integrate(case: Case, amici: Path | None = None) -> dict[str, float]:
    """See above."""
    found = _compiled(case)
    if amici is not None and not compiled(case.problem).initial_value_problem(0).implicit:
        found |= _amici(case, amici)
    found |= _casadi(case)
    found["SciPy"] = (1 + len(case.truth)) * timed(lambda: case.equations.course(case.truth))[0]
    return found


def _compiled(case: Case) -> dict[str, float]:
    """The integrations of igpe."""
    method = Automatic(1e-8, 1e-10)
    first, _ = timed(lambda: Residuals(case.problem, method)(case.truth))
    residuals = Residuals(case.problem, method)  # prepared before
    found = {"first call": first, "derivatives": timed(lambda: residuals(case.truth * 1.01))[0]}
    intervals = residuals.runs[0].simulation.intervals
    starts = case.equations.start[None]
    plain, shots = timed(lambda: intervals.run(starts, case.truth, derivatives=False))
    weights = np.random.default_rng(0).standard_normal(shots.measured.shape)
    none = np.zeros((starts.size + len(case.truth), 1))

    def sweep() -> Any:
        return intervals.swept(intervals.recorded(starts, case.truth, none), weights)

    sweep()
    return found | {"gradient": timed(sweep)[0], "simulation": plain}


def _casadi(case: Case) -> dict[str, float]:
    """CVODES or IDAS on igpe's equations, sparse LU; without the making of it.

    Forward sensitivities, and the gradient of a weighted sum by adjoints, which may fail: inf.
    """
    ivp = compiled(case.problem).initial_value_problem(0)
    dae = {"x": ivp.x, "p": ivp.q, "ode": ivp.f}
    if ivp.implicit:
        dae |= {"z": ivp.y, "alg": ivp.g}
    options = {"reltol": 1e-8, "abstol": 1e-10, "linear_solver": "csparse", "max_num_steps": 10**6}
    times = case.equations.times[case.equations.times > 0].tolist()
    solver = ca.integrator("solver", PEER[bool(ivp.implicit)], dae, 0.0, times, options)
    given = {"x0": case.equations.start, "z0": ivp.guess}
    plain = {f"out_{name}": value for name, value in solver(**given, p=case.truth).items()}
    directions, seeds = solver.forward(len(case.truth)), {"fwd_p": ca.DM.eye(len(case.truth))}
    p = ca.MX.sym("p", len(case.truth))
    weights = np.random.default_rng(0).standard_normal((len(case.equations.start), len(times)))
    weighted = ca.dot(ca.DM(weights), solver(**given, p=p)["xf"])
    gradient = ca.Function("gradient", [p], [ca.gradient(weighted, p)])
    found = {"CasADi": timed(lambda: directions(**given, p=case.truth, **plain, **seeds))[0]}
    try:
        return {**found, "CasADi back": timed(lambda: gradient(case.truth))[0]}
    except RuntimeError:  # of CVODES and IDAS
        return {**found, "CasADi back": np.inf}


def _amici(case: Case, python: Path) -> dict[str, float]:
    """AMICI on the SBML that igpe writes; and the largest difference from SciPy's final state."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        igpe.petab.to_petab(case.problem, place)
        names = pd.read_csv(place / "parameters.tsv", sep="\t").parameterId
        given = {
            "model": str(place / "model.xml"),
            "times": case.equations.times.tolist(),
            "parameters": dict(zip(names, case.truth.tolist(), strict=True)),
            "rtol": 1e-8,
            "atol": 1e-10,
        }
        (place / "given.json").write_text(json.dumps(given), encoding="utf-8")
        script = Path(__file__).parent / "peers" / "amici_sensitivities.py"
        words = [str(python), str(script), str(place / "given.json"), folder]
        told = answer(words, environment(python))
    last = case.equations.course(case.truth)[:, -1]
    apart = np.abs(np.array(list(told["ends"].values())) - last).max()
    return {
        "AMICI": told["seconds"],
        "AMICI's compiling": told["compiling"],
        "AMICI apart from SciPy": float(apart),
    }


def check(case: Case) -> dict[str, float]:
    """See above."""
    return {"check": timed(lambda: igpe.check(case.problem))[0]}


def estimate(case: Case) -> dict[str, float]:
    """See above."""
    spent, result = timed(lambda: igpe.estimate(case.problem, certify=False, seed=0))
    pairs = zip(result.estimates, case.truth, strict=True)
    off = max(abs(e.value - t) / e.standard_error for e, t in pairs)
    theirs, found = timed(lambda: solved(case.problem, max(LEAST_TIME, MORE * spent)))
    if found is None:
        return {"estimate": spent, "largest error": off, "Pyomo and IPOPT": np.inf}
    ends = [e.value for e in result.estimates]
    errors = [e.standard_error for e in result.estimates]
    apart = float(np.max(np.abs(found - ends) / errors))
    return {
        "estimate": spent,
        "largest error": off,
        "Pyomo and IPOPT": theirs,
        "Pyomo and IPOPT apart from igpe": apart,
    }


def curve(case: Case) -> dict[str, float]:
    """See above."""
    found, begun = _compiled(case) | check(case), [("", seconds())]

    def told(sentence: str) -> None:
        begun.append((sentence, seconds()))

    spent, _ = timed(lambda: igpe.estimate(case.problem, progress=told, certify=False, seed=0))
    ends = [*(moment for _, moment in begun[1:]), seconds()]
    for (sentence, start), end in zip(begun, ends, strict=True):
        name = next((v for k, v in BEGINS.items() if sentence.startswith(k)), "")
        found |= {name: found.get(name, 0.0) + end - start} if name else {}
    return found | {"estimate": spent}


def back(case: Case) -> dict[str, float]:
    """See above, at the tolerances of rough and of exact searches."""
    found = {}
    for name, rtol in (("rough", 1e-4), ("exact", 1e-8)):
        method = Automatic(rtol, rtol / 100, slack=100.0)
        chosen = Residuals(case.problem, method).runs[0].simulation.intervals
        run = runs_of(case.problem, method)[0]
        forwards, m = run.simulation.intervals, run.measurements
        backwards = swept_back(forwards, m.row, m.column)
        times = []
        for one in (forwards, backwards):
            one.trajectory(case.truth)
            count = max(1, int(0.3 / timed(partial(one.trajectory, case.truth))[0]))
            spent, _ = timed(partial(_repeated, one, case.truth, count))
            times.append(spent / count)
        there = times[1] / times[0]
        off = there / backwards.share
        found |= {
            f"{name}: forwards": times[0],
            f"{name}: back": times[1],
            f"{name}: share of the time, predicted": backwards.share,
            f"{name}: share of the time, off by the factor": max(off, 1 / off),
            f"{name}: chosen over best": times[isinstance(chosen, Backward)] / min(times),
        }
    return found


def _repeated(intervals: Any, q: np.ndarray, count: int) -> None:
    for _ in range(count):
        intervals.trajectory(q)


WORK = {"integrate": integrate, "check": check, "estimate": estimate, "curve": curve, "back": back}
SIZES_OF = {"integrate": SIZES, "check": SIZES, "estimate": ESTIMATED, "curve": CURVE}


def cases(what: str, given: argparse.Namespace) -> list[str]:
    """Names of the cases of a section."""
    every = [
        f"{f} {n}"
        for f, some in SIZES_OF.get(what, {}).items()
        for n in some
        if n <= 100 or not given.quick
    ]
    every += [name for name in BACK if what == "back"]
    return [case for case in every if not given.only or given.only in case]


def section(what: str) -> Callable[[argparse.Namespace], Iterator[Row]]:
    """The rows of a section."""

    def work(case: str, amici: Path | None) -> Answer:
        family, *numbers = case.split()
        made = (FAMILIES | {"heat": heat})[family](*map(int, numbers))
        figures_ = integrate(made, amici) if what == "integrate" else WORK[what](made)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {**figures_, "memory": most}

    def rows(given: argparse.Namespace) -> Iterator[Row]:
        with TemporaryDirectory() as cache:  # no model is compiled before
            os.environ["XDG_CACHE_HOME"] = cache
            for name, is_sparse in (("few states", False), ("many states", True)):
                spent, _ = timed(partial(built, driver(FORWARDS, is_sparse), FORWARDS))
                yield Row(name, "driver, once", spent, "s", "", None)
            store = given.store / f"{what}.jsonl" if given.store else None
            chosen = cases(what, given)
            answers = run_all(store, chosen, partial(work, amici=given.amici), LONGEST)
        if what == "curve" and given.plot:
            drawn(answers, given.plot)
        for case in answers:
            yield from _rows(what, case, answers[case])
        yield from _growth(answers)

    return rows


def _rows(what: str, case: str, found: Answer) -> Iterator[Row]:
    family, n = case.split()[:2]
    if "killed" in found or "crashed" in found:
        yield Row(case, f"{what}, not finished", found.get("killed", np.nan), "s", "", False)
        return
    for name in FIGURES:
        if name in found:
            usual = {"check": CHECK, "first call": FIRST}.get(name)
            limit = LIMITS.get((name, family, int(n)), usual)
            yield at_most(case, name, found[name], "s", limit)
    yield from (_of_back(case, *one) for one in found.items() if ": " in one[0])
    for peer, (ours, times) in PEERS.items():
        if peer in found:
            yield _faster(case, f"{ours}, {peer} over igpe", found[peer] / found[ours], times)
    for name in WITHOUT_TARGET:
        if name in found:
            yield Row(case, name, found[name], "-", "", None)
    yield at_most(case, f"memory, {what}", found["memory"], "MiB", MEMORY)


def _of_back(case: str, name: str, value: float) -> Row:
    limit = TWICE if "factor" in name else REGRET if "best" in name else None
    return at_most(case, name, value, "-" if limit or "share" in name else "s", limit)


def _faster(case: str, figure: str, ratio: float, large: float) -> Row:
    """A peer's time over igpe's; no target between small and large models, or if adjoints fail."""
    n = int(case.split()[1])
    if SMALL < n < LARGE or ("back" in figure and np.isinf(ratio)):
        return Row(case, figure, ratio, "-", "", None)
    return at_least(case, figure, ratio, "-", large if n >= LARGE else LEAST)


def _growth(answers: dict[str, Answer]) -> Iterator[Row]:
    """Exponents over at least three sizes of a family."""
    for family in FAMILIES:
        own = {int(c.split()[1]): a for c, a in answers.items() if c.startswith(family)}
        for name in ("derivatives", "gradient", "check", "estimate"):
            pairs = [(n, a[name]) for n, a in own.items() if name in a]
            if len(pairs) > 2:
                exponent = float(np.polyfit(*np.log(np.array(pairs)).T, 1)[0])
                yield Row(family, f"{name}, power of the states", exponent, "-", "", None)


def drawn(answers: dict[str, Answer], path: Path) -> None:
    """Seconds and memory over the number of states, a column for each family."""
    figure = Figure((8.6, 6.4), layout="constrained")
    axes = figure.subplots(2, len(CURVE), sharex=True, sharey="row", height_ratios=(3, 1))
    for k, (family, (above, below)) in enumerate(zip(CURVE, axes.T, strict=True)):
        own = {int(c.split()[1]): a for c, a in answers.items() if c.startswith(family)}
        for name, style in DRAWN.items():
            pairs = sorted((n, a[name]) for n, a in own.items() if name in a)
            if pairs:
                above.loglog(*zip(*pairs, strict=True), style, label=name, markersize=4)
        pairs = sorted((n, a["memory"]) for n, a in own.items() if "memory" in a)
        below.semilogx(*zip(*pairs, strict=True), "k-o", markersize=4)
        above.set_title(TITLES[family])
        below.set_xlabel("states")
        above.grid(alpha=0.3)
        below.grid(alpha=0.3)
        if k == 0:
            above.set_ylabel("processor time, s")
            below.set_ylabel("memory, MiB")
    axes[1, 0].set_ylim(bottom=0)  # of all, which share it
    figure.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, metadata={"Date": None})


def options(parser: argparse.ArgumentParser) -> None:
    """The benchmark's own."""
    parser.add_argument("--quick", action="store_true", help="sizes up to 100")
    parser.add_argument("--store", type=Path, help="folder that keeps answers, to resume from")
    parser.add_argument("--plot", type=Path, help="picture of the curves")
    parser.add_argument("--amici", type=amici_python, default=None, help="a Python that has AMICI")
    parser.add_argument("--only", help="run only the cases whose name contains this text")


if __name__ == "__main__":
    command(__doc__, "Size", {what: section(what) for what in WORK}, options)
