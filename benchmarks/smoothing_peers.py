"""igpe's smoother beside SciPy's and csaps' on data of any number; see benchmarks/smoothing.py.

Each method has a process of its own, in which it smooths a few sets of noise (the same for all):
median seconds of the processor for the curve with its value and slope at the data, memory beyond
what the process had before, and root mean square errors against the function without noise.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import resource
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
from csaps import CubicSmoothingSpline
from figures import Row, at_most
from limited import answer, ask, timed
from scipy.interpolate import make_smoothing_spline

from igpe.core.arrays import FloatArray
from igpe.smoothing.gcv_spline import GcvSpline

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
SETS = 3
NOISE = 0.02  # of the range
END = 6.0
LIMIT = 150  # s of the processor for all sets of one method, after which it is stopped


class Known(NamedTuple):
    """A function with its derivative."""

    value: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]


def _wave(t: FloatArray) -> FloatArray:
    return np.exp(-0.3 * t) * np.cos(2 * t)


def _wave_slope(t: FloatArray) -> FloatArray:
    return -np.exp(-0.3 * t) * (0.3 * np.cos(2 * t) + 2 * np.sin(2 * t))


CASES = {
    "wave": Known(_wave, _wave_slope),
    "step": Known(  # in a fortieth of a unit of time
        lambda t: _wave(t) + 0.5 * np.tanh(40 * (t - 3)),
        lambda t: _wave_slope(t) + 20 / np.cosh(np.clip(40 * (t - 3), -300, 300)) ** 2,
    ),
}

Told = tuple[FloatArray, ...]  # value and slope at the data, and what else is asked for


def _igpe(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = GcvSpline().smooth(t, y)
    return curve.value(t), curve.slope(t)


def _igpe_with_errors(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = GcvSpline().smooth(t, y)
    return curve.value(t), curve.slope(t), curve.value_error(t), curve.slope_error(t)


def _natural(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = GcvSpline(boundary_correction=False).smooth(t, y)
    return curve.value(t), curve.slope(t)


def _scipy(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = make_smoothing_spline(t, y)
    return curve(t), curve.derivative()(t)


def _scipy_spaced(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    """SciPy seeks the penalty between 0 and n in the units of t, so that these matter."""
    places = np.arange(t.size, dtype=float)
    curve = make_smoothing_spline(places, y)
    return curve(places), curve.derivative()(places) / (t[1] - t[0])


def _csaps(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = CubicSmoothingSpline(t, y)
    return curve(t), curve(t, nu=1)


def _csaps_given(t: FloatArray, y: FloatArray, penalty: float) -> Told:
    curve = CubicSmoothingSpline(t, y, smooth=1 / (1 + penalty))
    return curve(t), curve(t, nu=1)


METHODS = {
    "igpe": _igpe,
    "igpe, with standard errors": _igpe_with_errors,
    "igpe, natural spline": _natural,
    "SciPy": _scipy,
    "SciPy, with the point spacing as the unit of time": _scipy_spaced,
    "csaps": _csaps,
    "csaps, igpe's penalty": _csaps_given,
}


def rows() -> Iterator[Row]:
    """All methods on all functions and sizes."""
    for case in CASES:
        for n in SIZES:
            for name in METHODS:
                yield from _figures(f"{case} {n}", name, ask(__file__, LIMIT, name, case, n))


def _figures(case: str, name: str, found: dict[str, float] | None) -> Iterator[Row]:
    if found is None:
        yield at_most(case, f"{name}: stopped after", LIMIT, "s")
        return
    if "broke" in found:
        yield at_most(case, f"{name}: broke after", found["broke"], "s")
        return
    yield at_most(case, f"{name}: time", found["seconds"], "s")
    yield at_most(case, f"{name}: memory", found["memory"], "MB")
    yield at_most(case, f"{name}: value error of the range", 100 * found["value"], "%")
    yield at_most(case, f"{name}: slope error of its own size", 100 * found["slope"], "%")


def _measure(name: str, case: str, n: int) -> dict[str, float]:
    method, known = METHODS[name], CASES[case]
    t = np.linspace(0, END, n)
    value, slope = known.value(t), known.slope(t)
    few = t[:: max(1, n // 100)]
    method(few, np.sin(few), 1e-3)  # whatever is made once
    sets = []
    for seed in range(SETS):
        noise = np.random.default_rng(seed).standard_normal(n)
        y = value + NOISE * np.ptp(value) * noise
        given = name.startswith("csaps,")
        penalty = GcvSpline(boundary_correction=False).smooth(t, y).penalty if given else 0.0
        held = _peak()
        seconds, told = timed(lambda y=y, penalty=penalty: method(t, y, penalty))
        sets.append((seconds, _peak() - held, _rms(told[0] - value), _rms(told[1] - slope)))
    seconds, memory, value_error, slope_error = zip(*sets, strict=True)
    return {
        "seconds": median(seconds),
        "memory": max(memory),
        "value": float(np.sqrt(np.mean(np.square(value_error)))) / float(np.ptp(value)),
        "slope": float(np.sqrt(np.mean(np.square(slope_error)))) / _rms(slope),
    }


def _peak() -> float:
    """Largest memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _rms(x: FloatArray) -> float:
    return float(np.sqrt(np.mean(x**2)))


def _asked(name: str, case: str, n: str) -> dict[str, float]:
    try:
        return _measure(name, case, int(n))
    except ValueError as problem:  # SciPy's "Seems like the problem is ill-posed"
        print(problem, file=sys.stderr)
        return {"broke": time.process_time()}


if __name__ == "__main__":
    answer(_asked)
