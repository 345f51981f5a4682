"""Spectra: systems as in KIPET's tutorials, a large case, coverage, SciPy with an inner NNLS.

    python benchmarks/toolbox/spectra.py [SECTION ...] [--draws N] [--signs free] [--json FILE]

systems   every system of `spectra_cases.py` by `igpe.estimate` with defaults and no start: how far
          its sum of squares is above that of a search from the truth, with free and with
          non-negative spectra, and that at the truth above the result's (chi squared: the truth is
          in the 99.9 % region); how many sets of values explain the data, which is two where two
          first-order steps can be exchanged; with non-negative spectra the least value of one
big       1,000 times x 500 wavelengths x 5 species: processor time and peak memory, of a process
          of its own
          The errors in `big` are relative to the standard errors of `igpe.estimate`: with
          non-negative spectra these are those without the sign, which biases estimates.
scipy     the local fit from one start by `igpe.SingleShooting`, beside `scipy.least_squares` whose
          residuals solve `scipy.nnls` at each wavelength: processor times (means of several
          fits, as a clock may tick in hundredths of a second) and sums of squares
coverage  of 95 % intervals over many draws: rate constants and pure spectra where they are not on
          their bound (consecutive reactions, free and non-negative, standard deviation unknown)

Times are of the processor, with one thread.

KIPET is not beside: `pip install kipet` (1.0.7, the last release) fails on Python 3.11, as it pins
PyYAML 5, which current Cython does not build. With `--no-deps` it can be imported beside NumPy 2.4
and Pyomo 6.10 and creates a `ReactionModel`; no fit was tried, since no IPOPT is installed.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent))

import numpy as np
from figures import Row, at_least, at_most, command
from scipy.optimize import least_squares, nnls
from scipy.special import chdtri
from scipy.stats import binom
from spectra_cases import BIG, CASES, Case, amounts, pure

import igpe

SECONDS, MEMORY, FASTER = 10.0, 1024.0, 5.0
LEVEL, BAND = 0.95, 0.999
FITS, FEWER = 20, 3  # of which a time is the mean, by igpe and by SciPy
ALIKE = 1e-6  # relative difference of sums of squares that are the same


def systems(arguments: argparse.Namespace) -> Iterator[Row]:
    """Each system with defaults."""
    for case in CASES:
        problem, began = case.problem(), time.process_time()
        result = igpe.estimate(problem, progress=False)
        seconds = time.process_time() - began
        truth = igpe.SingleShooting().estimate(problem, case.truth)
        above = result.objective / truth.objective - 1
        yield at_most(case.name, "sum of squares above that from the truth", above, "-", ALIKE)
        there = igpe.SingleShooting().estimate(problem.fixing(case.truth), {}).objective
        limit = round(float(chdtri(len(case.truth), 1 - BAND)), 2)
        over, sets = there - result.objective, 1 + len(result.other_optima)
        yield Row(
            case.name, "truth above the result", over, "-", f"0 to {limit}", 0 <= over <= limit
        )
        yield at_most(case.name, "estimate", seconds, "s")
        yield Row(case.name, "sets of values", sets, "-", f"{case.sets}", sets == case.sets)
        if case.options.get("unwanted") != 1:
            problem = case.problem(nonnegative=True)
            signed = igpe.estimate(problem, progress=False)
            truth = igpe.SingleShooting().estimate(problem, case.truth)
            above = signed.objective / truth.objective - 1
            yield at_most(case.name, "non-negative: above that from the truth", above, "-", ALIKE)
            low = min(float(one.values.min()) for one in signed.spectral)
            yield at_least(case.name, "non-negative: least value", low, "-", 0.0)


def big(arguments: argparse.Namespace) -> Iterator[Row]:
    """The large case, with free and non-negative spectra, each in a process of its own."""
    for sign in ("free", "nonnegative"):
        words = [sys.executable, __file__, "--one", sign]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        seconds, memory, off = map(float, said[-3:])
        yield at_most(f"{BIG.name}, {sign}", "igpe.estimate", seconds, "s", SECONDS)
        yield at_most(f"{BIG.name}, {sign}", "peak memory", memory, "MiB", MEMORY)
        yield at_most(f"{BIG.name}, {sign}", "errors from the truth", off, "standard errors", 4.0)


def one_big(sign: str) -> None:
    """Print seconds, MiB and standard errors from the truth."""
    problem, began = BIG.problem(nonnegative=sign != "free"), time.process_time()
    result = igpe.estimate(problem, progress=False)
    seconds = time.process_time() - began
    sets = [result.estimates, *(one.estimates for one in result.other_optima)]
    off = min(max(abs(p.value - BIG.truth[p.name]) / p.standard_error for p in s) for s in sets)
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, off)


def scipy(arguments: argparse.Namespace) -> Iterator[Row]:
    """Local fits from the same start."""
    for case in (CASES[0], CASES[1], CASES[2], BIG):
        problem = case.problem(nonnegative=True)
        first = {k: 1.5 * v for k, v in case.truth.items()}
        igpe.SingleShooting().estimate(problem, first)  # compiled code is kept
        began = time.process_time()
        for _ in range(FITS):
            ours = igpe.SingleShooting().estimate(problem, first)
        own = (time.process_time() - began) / FITS
        began = time.process_time()
        for _ in range(FEWER):
            theirs = _by_scipy(case, problem, first)
        other = (time.process_time() - began) / FEWER
        yield at_least(case.name, "SciPy's time over igpe's", other / own, "-", FASTER)
        above = ours.objective / theirs - 1
        yield at_most(case.name, "sum of squares above SciPy's", above, "-", ALIKE)
        yield at_most(case.name, "igpe", own, "s")
        yield at_most(case.name, "SciPy", other, "s")


def _by_scipy(case: Case, problem: igpe.Problem, first: dict[str, float]) -> float:
    """Sum of squares, in igpe's standard deviations, where SciPy ends."""
    spectra = problem.experiments[0].spectra
    assert spectra is not None
    d, t, sigma = spectra.values, spectra.times, spectra.noise
    place = [list(case.species).index(n) for n in case.absorbing]
    names = list(case.truth)

    def residual(k: np.ndarray) -> np.ndarray:
        values = dict(zip(names, k, strict=True))
        c = amounts(case.species, case.reactions, values, case.starts[0], t)[:, place]
        scale = np.abs(c).max(axis=0)
        s = np.column_stack([nnls(c / scale, column)[0] for column in d.T])
        return np.asarray(((c / scale) @ s - d) / sigma).ravel()

    start = np.array([first[n] for n in names])
    fit = least_squares(residual, start, bounds=case.bounds, x_scale=start, xtol=1e-10, ftol=1e-10)
    return float(2 * fit.cost)


def coverage(arguments: argparse.Namespace) -> Iterator[Row]:
    """95 % intervals over many draws."""
    base = CASES[0]._replace(times=25, wavelengths=30)
    for sign in arguments.signs.split(","):
        inside: dict[str, list[bool]] = {n: [] for n in (*base.truth, "pure spectra")}
        for draw in range(arguments.draws):
            problem = base.problem(draw, nonnegative=sign != "free")
            result = igpe.estimate(problem, progress=False)
            sets = [result.estimates, *(one.estimates for one in result.other_optima)]
            near = min(sets, key=lambda s: sum((p.value / base.truth[p.name] - 1) ** 2 for p in s))
            for p in near:
                inside[p.name].append(p.lower <= base.truth[p.name] <= p.upper)
            if near is result.estimates:
                one = result.spectral[0]
                true = pure(3, one.wavelengths, base.seed).T
                j = draw % len(one.wavelengths)  # one of each draw: those of one draw hang together
                i = draw % 3
                if np.isfinite(one.errors[i, j]):
                    z = abs(one.values[i, j] - true[i, j]) / one.errors[i, j]
                    inside["pure spectra"].append(bool(z <= 1.959964))
        for name, hits in inside.items():
            n = len(hits)
            if not n:
                continue
            low, high = binom.interval(BAND, n, LEVEL) / np.array(n)
            share = float(np.mean(hits))
            where = f"[{low:.3f}, {high:.3f}]"
            yield Row(
                f"{sign}, {n} draws", f"coverage of {name}", share, "-", where, low <= share <= high
            )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--signs", default="free,nonnegative", help="of the coverage")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)


SECTIONS = {"systems": systems, "big": big, "scipy": scipy, "coverage": coverage}

if __name__ == "__main__":
    if "--one" in sys.argv:
        one_big(sys.argv[-1])
    else:
        command(__doc__, "Spectra", SECTIONS, _options)
