"""The page `docs/benchmarks.md` from what was measured.

    python benchmarks/peers.py --json benchmarks/measured/peers.json
    python benchmarks/sensitivities.py --json benchmarks/measured/sensitivities.json
    python benchmarks/overhead.py --json benchmarks/measured/overhead.json
    python benchmarks/growth.py --json benchmarks/measured/growth.json
    python benchmarks/smoothing.py peers --json benchmarks/measured/smoothing.json
    python benchmarks/structure.py patterns --json benchmarks/measured/structure_patterns.json
    python benchmarks/structure.py models --json benchmarks/measured/structure_models.json
    python benchmarks/page.py

Files `measured/peers*.json` are runs, each with its own igpe to be compared with. The picture of
the growth is `docs/benchmarks_growth.svg`.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from peers.registry import PEERS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
PICTURE = PAGE.with_name("benchmarks_growth.svg")
HEAD = """# igpe beside its peers

This page contains all comparisons; [the summary](numbers.md) gives the main results and the dates
of the measurements. Every method solves the same problem, in a separate process with one thread.
Times are processor times in seconds, unless stated otherwise. After every run, igpe recomputes the
objective by an accurate integration with the parameter values that the method returned. A method
reaches the optimum if this objective is at most 0.1 % above the lowest objective of all methods.

## Time to the best known objective

For methods with several starts, the first number is the average time until a start reaches the
optimum. A user could stop after this start only if the optimum were already known. The number in
brackets is the total time of all starts. In practice, a user waits for all starts. Some methods
were stopped early and might reach the optimum with more time. igpe's time includes all five steps
and comes from the latest measurement of igpe. The times of the other methods exclude translation
and compilation (about 20 s for AMICI), unless a table includes this preparation explicitly. In this
comparison, no method proves that its result is the optimum. All random starts were drawn with a
single seed. On the PEtab problems (Boehm, Bruno and Elowitz), only igpe and pyPESTO were run.

"""
MIDDLE = """
## One simulation with forward sensitivities

The table gives the processor time, in milliseconds, of one simulation with derivatives of all
outputs with respect to all unknowns at all measurement times. There are two limits for the errors
of the derivatives: 0.001 times and 1e-06 times the largest derivative of the same output with
respect to the same unknown. Each method was run with several tolerances; for each limit, the table
gives the fastest run whose errors are below the limit. In the list below the table, "igpe" refers
to `igpe Automatic`.

"""

GROWTH = f"""
## How time grows

![Time against the size of a problem]({PICTURE.name})

The picture shows the processor times of `igpe.estimate` and of 20 starts of SciPy's `least_squares`
with LSODA, for a chain of reactions (`benchmarks/growth.py`). The table gives the exponent with
which the time grows from the smallest to the largest size; the times at these two sizes are in
brackets. SciPy does not have to translate the model. The problems are easy, so SciPy reaches the
optimum from nearly every start. A single SciPy start takes a twentieth of the time of 20 starts,
and is always faster than `igpe.estimate`.

"""
OVERHEAD = """
## Overhead

The table gives the processor time of `igpe.estimate` in seconds, in a new process with an empty
cache of compiled models, and the percentage of this time for each step (`benchmarks/overhead.py`).

"""
SMOOTHING = """
## Smoothing

The tables give the processor time, in seconds, to fit a smooth curve to 100 to 1,000,000 evenly
spaced points and to compute its values and slopes at these points. The two numbers in brackets are
the root mean square errors of the values (in per cent of the range) and of the slopes (in per cent
of the root mean square slope), for three data sets with noise of 2 % (`benchmarks/smoothing.py
peers`). In the first table the true curve is a wave. In the second table, this wave also has a step
that lasts 1/40 of a time unit.

igpe and SciPy's `make_smoothing_spline` choose the penalty by generalised cross-validation. csaps
computes the penalty by a fixed rule that ignores the noise. For more than a few hundred points, the
curve of csaps follows the noise, and its slopes are inaccurate. csaps does not search for the
penalty and solves only one linear system. **For up to 10,000 points, csaps is therefore 3 to 20
times as fast as igpe.** If csaps uses the penalty of igpe's natural spline, csaps and igpe compute
the same curve. In this case, the time of csaps excludes the search for the penalty. For 100,000
points, igpe and csaps take about the same time. For more points igpe is faster, because its spline
has only 3,000 knots. Only igpe reports standard errors. SciPy searches for a penalty between 0 and
the number of points, so its result depends on the unit of time. With the original unit of time,
SciPy fails for 100,000 points or more ("Seems like the problem is ill-posed"). If the unit of time
is the spacing of the points, the penalties that SciPy finds are too small.

"""
STRUCTURE = """
## Structure of large models

The table gives processor times in seconds for the Dulmage-Mendelsohn decomposition of a matrix and
for the block triangular form of its square part (`benchmarks/structure.py`). All packages get the
same matrix. igpe uses CasADi's `btf`, and Pyomo uses `pyomo.contrib.incidence_analysis` with
NetworkX. SciPy offers only the matching, which is the first part of the decomposition. The case
"network" is the hardest one for igpe, because its augmenting paths are long and `btf` searches for
them one after the other.

"""
MODELS = """
The next table gives the processor time (in seconds) of this analysis and of its preparation, for a
chain of reactions. igpe reads each equation at seven points in time and translates it into a CasADi
expression. This translation takes most of igpe's time. Pyomo builds one graph, of the
model's equations at two points in time. This graph has three times as many equations as igpe's
matrix, and contains no derivatives.

"""
WORDS = {  # figures of overhead.json
    "wall time within ": "wall time spent in the package ",
    "the user's builder, called twice, and checks": (
        "two calls to the user's function that builds the model, and checks"
    ),
    "translated": "translation",
    "structure": "structural analysis",
    "power of n that translation grows with": "growth exponent of the translation time",
    "estimate, first": "first estimate",
    "estimate, again": "second estimate",
    "bootstrap of 20, each": "one of 20 bootstrap replications",
    "single shooting, made ready": "single shooting: preparation",
    "single shooting, each of 8 starts": "single shooting: one of 8 starts",
}


def loaded(pattern: str) -> list[dict[tuple[str, str], float | None]]:
    """(case, figure) -> value, of each file."""
    found = []
    for path in sorted((HERE / "measured").glob(pattern)):
        rows: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        found.append({(r["case"], r["figure"]): r["value"] for r in rows})
    return found


def peers() -> Iterator[str]:
    """A table of times, one of shares, and where igpe is slower."""
    runs = loaded("peers*.json")
    cases = list(dict.fromkeys(c for run in runs for c, f in run if f == "igpe: time to it"))
    measured = [p for p in PEERS if any(f"{p}: time to it" in f for run in runs for _, f in run)]
    yield from _table("", measured)
    for case in cases:
        yield f"| {case} | {' | '.join(_time(runs, case, p) for p in measured)} |"
    yield ""
    yield from (f"- `{n}`: {p.told}" for n, p in PEERS.items() if n in measured)
    yield "\nPercentage of starts that reach the optimum:\n"
    several = [p for p in measured if PEERS[p].several]
    yield f"| | {' | '.join(several)} |"
    yield "|---" * (len(several) + 1) + "|"
    for case in cases:
        yield f"| {case} | {' | '.join(_share(runs, case, p) for p in several)} |"
    yield "\nFor each method, the ratio of its total time to igpe's time, as the median over the"
    yield "problems (infinite where the method does not reach the optimum):\n"
    yield "| | all starts | all starts and preparation |"
    yield "|---|---|---|"
    yield from (_together(runs, cases, p) for p in several)
    yield "\nMethods that reach the optimum in less time than igpe (first number in the table):\n"
    for case in cases:
        faster = [p for p in PEERS if p != "igpe" and _loses(runs, case, p)]
        yield f"- {case}: {', '.join(faster) or 'none'}"


def _of(runs: Sequence[Any], case: str, peer: str) -> dict[str, float | None]:
    """Figures of one method on one problem in the last run that has it, and igpe's last time."""
    mine = (case, "igpe: time to it")
    times = (run[mine] for run in reversed(runs) if mine in run)
    for run in reversed(runs):
        own = {
            f.removeprefix(f"{peer}: "): v
            for (c, f), v in run.items()
            if c == case and f.startswith(f"{peer}: ")
        }
        if own:
            return own | {"igpe": next(times, None)}
    return {}


def _time(runs: Sequence[Any], case: str, peer: str) -> str:
    own = _of(runs, case, peer)
    if "time to it" not in own:
        return next((f.split(":")[0] for f in own if f != "igpe"), "")
    stopped = "stopped, of all seeds" in own
    whole = f"{'stopped at ' * stopped}{_number(own['time of all'])}"
    if own["time to it"] is None:
        return f"none ({whole})" if stopped else f"missed ({whole})"
    told = _number(own["time to it"])
    return f"{told} ({whole})" if PEERS[peer].several or stopped else told


def _share(runs: Sequence[Any], case: str, peer: str) -> str:
    share = _of(runs, case, peer).get("one start finds it, share")
    return "" if share is None else f"{100 * share:.0f}"


def _together(runs: Sequence[Any], cases: Sequence[str], peer: str) -> str:
    """Medians of the times of all starts beside igpe's, of the problems that were posed to it."""
    posed = [own for c in cases if "time to it" in (own := _of(runs, c, peer))]
    cells = []
    for more in (0.0, 1.0):
        ratios = [
            math.inf
            if own["time to it"] is None
            else (own["time of all"] + more * own["prepared in"]) / (own["igpe"] or math.inf)
            for own in posed
        ]
        found = median(ratios)
        cells.append(_number(found if math.isfinite(found) else None))
    return f"| {peer}, {len(posed)} of {len(cases)} problems | {' | '.join(cells)} |"


def _loses(runs: Sequence[Any], case: str, peer: str) -> bool:
    own = _of(runs, case, peer)
    theirs, ours = own.get("time to it"), own.get("igpe")
    return theirs is not None and (ours is None or theirs < ours)


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def sensitivities() -> Iterator[str]:
    """Milliseconds by method and model."""
    merged: dict[tuple[str, str], float | None] = {}
    for run in loaded("sensitivities*.json"):
        merged |= run
    right = [(c, f.partition(": right to ")) for c, f in merged if ": right to " in f]
    plain = [(c, m, level) for c, (m, _, level) in right if ":" not in level]
    columns = list(dict.fromkeys((c, level) for c, _, level in plain))
    yield f"| | {' | '.join(f'{c}, {level}' for c, level in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for method in dict.fromkeys(m for _, m, _ in plain):
        cells = [merged.get((c, f"{method}: right to {level}")) for c, level in columns]
        yield f"| {method} | {' | '.join('' if v is None else _number(v) for v in cells)} |"
    yield ""
    for (case, figure), value in merged.items():
        where = case.replace("right to", "errors of at most")
        if "beside AMICI" in figure:
            yield f"- {where}: igpe's time divided by AMICI's time is {_number(value)}"
        if figure.startswith("faster than"):
            other = figure.partition(" than ")[2].replace("SciPy's best", "the faster SciPy method")
            yield f"- {where}: igpe is {_number(value)} times as fast as {other}"


def growth() -> Iterator[str]:
    """The picture, and of every curve the power it grows with."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (case, figure), value in loaded("growth.json")[0].items():
        if value is not None and not figure.endswith("find it"):
            what, n = case.split()
            curves.setdefault(what, {}).setdefault(figure, []).append((float(n), value))
    _picture(curves)
    who = list(dict.fromkeys(w for each in curves.values() for w in each))
    yield f"| | {' | '.join(who)} |"
    yield "|---" * (len(who) + 1) + "|"
    for what, each in curves.items():
        yield f"| {what} | {' | '.join(_power(each.get(w, [])) for w in who)} |"


def _power(curve: Sequence[tuple[float, float]]) -> str:
    """From the first to the last size."""
    if len(curve) < len("ab"):
        return ""
    (n, a), (m, b) = curve[0], curve[-1]
    power = math.log(b / a) / math.log(m / n)
    return f"{power:.2f} ({_number(a)} s at {n:g}, {_number(b)} s at {m:g})"


def _picture(curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> None:
    mpl.rcParams["svg.hashsalt"] = "igpe"  # the same file from the same numbers
    figure, axes = plt.subplots(1, len(curves), figsize=(13, 3.2), sharey=True, squeeze=False)
    for ax, (what, each) in zip(axes[0], curves.items(), strict=True):
        for who, curve in each.items():
            style = {"color": "C0"} if who == "igpe" else {"color": "C1", "linestyle": "--"}
            ax.loglog(*zip(*curve, strict=True), marker="o", label=who, **style)
        sizes = [n for n, _ in each["igpe"]]
        ax.set_xticks(sizes, [f"{n:g}" for n in sizes])
        ax.minorticks_off()
        ax.set_xlabel(what)
        ax.grid(visible=True, alpha=0.3)
    axes[0][0].set_ylabel("processor time, s")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def overhead() -> Iterator[str]:
    """Steps of the pipeline, translation, import, and what repeating saves."""
    run = loaded("overhead.json")[0]
    shares = list(dict.fromkeys(f for _, f in run if f.startswith("share of ")))
    heads = [f.removeprefix("share of ").removesuffix(" of the fit") for f in shares]
    yield f"| | estimate, s | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 2) + "|"
    for case in [c for c, f in run if f == "estimate"]:
        cells = [_number(run[case, "estimate"]), *(_number(run[case, f]) for f in shares)]
        yield f"| {case} | {' | '.join(cells)} |"
    yield "\nTimes to import the package, and to translate and analyse a chain of reactions:\n"
    for (case, figure), value in run.items():
        if "equations" in case or case.startswith("import"):
            unit = "" if "power" in figure else " s"
            where = f"`{case.replace(', ', '; ')}`" if case.startswith("import") else case
            yield f"- {where}, {_worded(figure)}: {_number(value)}{unit}"
    yield "\nProcessor times (ms) for two estimates of the same problem, a bootstrap, and single"
    yield "shooting:\n"
    again = [
        f for c, f in run if c == "consecutive" and f.startswith(("estimate,", "boot", "sing"))
    ]
    yield f"| | {' | '.join(map(_worded, again))} |"
    yield "|---" * (len(again) + 1) + "|"
    for case in [c for c, f in run if f == "estimate, first"]:
        cells = [_number(1000 * (run[case, f] or 0.0)) for f in again]
        yield f"| {case} | {' | '.join(cells)} |"


def _worded(figure: str) -> str:
    """Return a figure's name as a reader without the script needs it."""
    for short, clear in WORDS.items():
        figure = figure.replace(short, clear)
    return figure


def smoothing() -> Iterator[str]:
    """For each function a table by method and number of points, then memory."""
    run = loaded("smoothing.json")[0]
    cases = list(dict.fromkeys(c for c, _ in run))
    methods = list(dict.fromkeys(f.partition(": ")[0] for _, f in run))
    for name in dict.fromkeys(c.split()[0] for c in cases):
        sizes = [c for c in cases if c.startswith(f"{name} ")]
        yield from _table(name, [f"{int(c.split()[1]):,}" for c in sizes])
        for method in methods:
            cells = [_smoothed(run, c, method) for c in sizes]
            yield f"| {method} | {' | '.join(cells)} |"
        yield ""
    last = cases[-1]
    told = [f"{v:.0f} ({m})" for m in methods if (v := run.get((last, f"{m}: memory"))) is not None]
    yield f"Memory in MB for {int(last.split()[1]):,} points: {'; '.join(told)}."


def _smoothed(run: Mapping[tuple[str, str], float | None], case: str, method: str) -> str:
    time = run.get((case, f"{method}: time"))
    if time is None:
        why = next(
            f.partition(": ")[2] for c, f in run if c == case and f.startswith(f"{method}: ")
        )
        return f"{why} {_number(run[case, f'{method}: {why}'])}"
    errors = ("value error of the range", "slope error of its own size")
    told = [_number(run[case, f"{method}: {e}"]) for e in errors]
    return f"{_number(time)} ({', '.join(told)})"


def structure(what: str) -> Iterator[str]:
    """A table of patterns or of models: cases by figures."""
    run = loaded(f"structure_{what}.json")[0]
    figures = [f for f in dict.fromkeys(f for _, f in run) if not _is_end(f)]
    shown = [f for f in figures if not f.endswith("blocks")]
    yield from _table("equations", shown)
    for case in dict.fromkeys(c for c, _ in run):
        ends = {
            f.partition(": ")[0]: f"{f.partition(': ')[2]} {_number(v)} s"
            for (c, f), v in run.items()
            if c == case and _is_end(f)
        }
        cells = [
            _number(run[case, f]) if (case, f) in run else ends.get(f.partition(": ")[0], "")
            for f in shown
        ]
        name, n = case.split()
        yield f"| {name}, {int(n):,} | {' | '.join(cells)} |"


def _is_end(figure: str) -> bool:
    """Whether it tells when a method was stopped or broke."""
    return figure.endswith(" after")


def _table(corner: str, heads: Sequence[str]) -> Iterator[str]:
    yield f"| {corner} | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"


if __name__ == "__main__":
    PAGE.write_text(
        "\n".join([
            HEAD + "\n".join(peers()),
            MIDDLE + "\n".join(sensitivities()),
            OVERHEAD + "\n".join(overhead()),
            GROWTH + "\n".join(growth()),
            SMOOTHING + "\n".join(smoothing()),
            STRUCTURE + "\n".join(structure("patterns")),
            MODELS + "\n".join(structure("models")),
        ])
        + "\n",
        encoding="utf-8",
    )
