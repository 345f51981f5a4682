"""Smoothing: slopes at the ends against SciPy, coverage of the intervals, time, and peers.

    python benchmarks/smoothing.py [slopes coverage time] [--json FILE]
    python benchmarks/smoothing.py peers --json benchmarks/measured/smoothing.json

Ten known functions, noise of 2 % of their range at 50 times and 1 % at 100 times, 80 sets of
independent noise for each function and sampling.
The ends are the first and the last 5 % of the range. Coverage is that of nominal 95 % intervals,
averaged over the times, the functions and 200 data sets for each number of times. Peers are SciPy
and csaps (the extra `peers`) on 100 to 1,000,000 points (`smoothing_peers.py`).
"""

import importlib
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from figures import Row, Section, command
from scipy.interpolate import make_smoothing_spline
from scipy.special import lambertw

from igpe.core.arrays import FloatArray
from igpe.smoothing.gcv_spline import GcvSpline, Interpolation

SETS = 80
SAMPLINGS = ((50, 0.02), (100, 0.01))  # number of times, noise as a share of the range
END = 0.05
COVERAGE_SIZES = (50, 100, 200)
COVERAGE_SETS = 20  # for each of the ten functions: 200
NORMAL_95 = 1.959964
MILLION = 1_000_000
SCIPY_SIZE = 3_000

Curve = Callable[[FloatArray], FloatArray]


class Known(NamedTuple):
    """A function on [0, end] with its derivative."""

    value: Curve
    slope: Curve
    end: float


def substrate(t: FloatArray) -> FloatArray:
    """Michaelis-Menten progress s' = -s / (1 + s), s(0) = 2."""
    argument: FloatArray = 2.0 * np.exp(2.0 - t)
    found: FloatArray = np.real(lambertw(argument.astype(complex)))
    return found


KNOWN = {
    "exponential decay": Known(lambda t: np.exp(-3 * t), lambda t: -3 * np.exp(-3 * t), 1.0),
    "intermediate": Known(
        lambda t: 2 * (np.exp(-t) - np.exp(-2 * t)),
        lambda t: 2 * (2 * np.exp(-2 * t) - np.exp(-t)),
        5.0,
    ),
    "logistic growth": Known(
        lambda t: 1 / (1 + 9 * np.exp(-t)),
        lambda t: 9 * np.exp(-t) / (1 + 9 * np.exp(-t)) ** 2,
        6.0,
    ),
    "damped oscillation": Known(
        lambda t: np.exp(-0.3 * t) * np.cos(2 * t),
        lambda t: -np.exp(-0.3 * t) * (0.3 * np.cos(2 * t) + 2 * np.sin(2 * t)),
        6.0,
    ),
    "cubic polynomial": Known(
        lambda t: 1 + 2 * t - 6 * t**2 + 4 * t**3, lambda t: 2 - 12 * t + 12 * t**2, 1.0
    ),
    "Michaelis-Menten": Known(substrate, lambda t: -substrate(t) / (1 + substrate(t)), 4.0),
    "second order decay": Known(lambda t: 1 / (1 + 3 * t), lambda t: -3 / (1 + 3 * t) ** 2, 2.0),
    "overdamped step": Known(lambda t: 1 - (1 + t) * np.exp(-t), lambda t: t * np.exp(-t), 6.0),
    "approach to rest": Known(lambda t: 1 - np.exp(-t), lambda t: np.exp(-t), 4.0),
    "sine (f''=0 at ends)": Known(np.sin, np.cos, 2 * np.pi),
}


def noisy(known: Known, n: int, noise: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """n evenly spaced times and values with normal errors of `noise` times the range."""
    t = np.linspace(0.0, known.end, n)
    exact = known.value(t)
    errors = np.random.default_rng(seed).standard_normal(n)
    return t, exact + noise * np.ptp(exact) * errors


def rms(x: FloatArray) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(x**2)))


def slope_ratios(name: str) -> tuple[FloatArray, FloatArray]:
    """RMS slope error of ours / SciPy's at the ends and inside, one for each data set.

    Every set has noise of its own: noise shared by the functions would make of the ten only one.
    """
    known, number = KNOWN[name], list(KNOWN).index(name)
    ends, inside = [], []
    for k, (n, noise) in enumerate(SAMPLINGS):
        for seed in range(SETS):
            t, y = noisy(known, n, noise, 10_000 * number + 1_000 * k + seed)
            at_end = np.abs(t / known.end - 0.5) >= 0.5 - END
            ours = GcvSpline().smooth(t, y).slope(t) - known.slope(t)
            theirs = make_smoothing_spline(t, y).derivative()(t) - known.slope(t)
            ends.append(rms(ours[at_end]) / rms(theirs[at_end]))
            inside.append(rms(ours[~at_end]) / rms(theirs[~at_end]))
    return np.array(ends), np.array(inside)


def slope_rows() -> list[Row]:
    """Figure (a)."""
    rows, ends, inside = [], [], []
    for name in KNOWN:
        e, i = slope_ratios(name)
        rows.append(Row(name, "slope error at ends / SciPy", float(np.median(e)), "-", "", None))
        rows.append(Row(name, "slope error inside / SciPy", float(np.median(i)), "-", "", None))
        ends.append(e)
        inside.append(i)
    end, middle = float(np.median(ends)), float(np.median(inside))
    return [
        *rows,
        Row("all", "slope error at ends / SciPy", end, "-", "<= 0.5", end <= 0.5),
        Row("all", "slope error inside / SciPy", middle, "-", "<= 1.0", middle <= 1.0),
    ]


def coverage_rows() -> list[Row]:
    """Figure (b)."""
    rows = []
    for n in COVERAGE_SIZES:
        hits = []
        for known in KNOWN.values():
            for seed in range(COVERAGE_SETS):
                t, y = noisy(known, n, 0.02, 1000 + seed)
                smooth = GcvSpline().smooth(t, y)
                value = np.abs(smooth.value(t) - known.value(t)) / smooth.value_error(t)
                slope = np.abs(smooth.slope(t) - known.slope(t)) / smooth.slope_error(t)
                hits.append([np.mean(value <= NORMAL_95), np.mean(slope <= NORMAL_95)])
        for figure, share in zip(("value", "slope"), 100 * np.mean(hits, axis=0), strict=True):
            reached = bool(90.0 <= share <= 98.0)
            rows.append(Row(f"n = {n}", f"coverage, {figure}", share, "%", "90 ... 98", reached))
    return rows


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_rows() -> list[Row]:
    """Figure (c): the fit with its choice of the penalty, then value, slope and both errors."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 2 * np.pi, MILLION))
    y = np.sin(t) + 0.02 * rng.standard_normal(MILLION)

    def all_of(smoother: GcvSpline | Interpolation) -> None:
        smooth = smoother.smooth(t, y)
        for ask in (smooth.value, smooth.slope, smooth.value_error, smooth.slope_error):
            ask(t)

    few, fewer = np.linspace(0.0, 2 * np.pi, SCIPY_SIZE), y[:: MILLION // SCIPY_SIZE][:SCIPY_SIZE]
    gcv, through = seconds(lambda: all_of(GcvSpline())), seconds(lambda: all_of(Interpolation()))
    small = seconds(lambda: GcvSpline().smooth(few, fewer))
    theirs = seconds(lambda: make_smoothing_spline(few, fewer))
    return [
        Row("n = 1e6", "GcvSpline and all at the data", gcv, "s", "< 3", gcv < 3.0),
        Row("n = 1e6", "Interpolation and all at the data", through, "s", "< 3", through < 3.0),
        Row(f"n = {SCIPY_SIZE}", "GcvSpline, fit and band", small, "s", "", None),
        Row(f"n = {SCIPY_SIZE}", "SciPy make_smoothing_spline, fit", theirs, "s", "", None),
    ]


def peer_rows() -> Iterable[Row]:
    """Figure (d); its packages are needed only here."""
    return importlib.import_module("smoothing_peers").rows()  # type: ignore[no-any-return]


SECTIONS = {
    "slopes": slope_rows,
    "coverage": coverage_rows,
    "time": time_rows,
    "peers": peer_rows,
}


def alone(section: Callable[[], Iterable[Row]]) -> Section:
    """A section that asks nothing of the command line."""
    return lambda _: iter(section())


if __name__ == "__main__":
    command(__doc__, "Step 1", {name: alone(section) for name, section in SECTIONS.items()})
