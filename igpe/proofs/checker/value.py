"""The sum of squares at one point, between two numbers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.course import Course
from igpe.proofs.checker.interval import outward
from igpe.proofs.checker.interval import point as exactly
from igpe.proofs.checker.rows import Boxes, Effort, residuals

PRECISE = Effort(order=12, absolute=1e-16, most=20000)


def value_at(
    courses: Sequence[Course], point: FloatArray, end: float = np.inf
) -> tuple[float, float]:
    """Lower and upper bound of the sum of squares at `point` (n_parameters,); (0, inf) if none.

    end  `time.monotonic()` at which integration stops
    """
    effort = replace(PRECISE, end=end)
    box = Boxes.around(point[:, None], point[:, None])
    total = exactly(np.zeros(1))
    with np.errstate(all="ignore"):
        for course in courses:
            rows = residuals(course, box, effort, np.inf, np.zeros(1))
            for c, e in zip(rows.c[0], rows.e, strict=True):
                total = total + outward(c - e, c + e).square()
    high = float(total.high[0])
    return max(float(total.low[0]), 0.0), high if np.isfinite(high) else np.inf
