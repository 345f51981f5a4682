"""Models distributed in space: are published parameters estimated from noisy measurements?

    python benchmarks/space.py [CASE ...] [--json FILE]

Six published models (benchmarks/space) are measured at a few positions, with normal errors of seed
1; data come from an exact solution or from a grid three times as fine. Figures of each parameter:
its distance from the published one as a share of what is allowed, the larger of three standard
errors and 2 %; the error of the grid in standard errors. Of each case: processor seconds.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module

from figures import Row, at_most, command

import igpe

CASES = ("dispersion", "adsorption", "fixed_bed", "slab", "chromatography", "heat")
ERRORS, SHARE = 3.0, 0.02
LEGIBLE = str.maketrans("[]", "()")  # brackets are markup of the table


def measure(name: str, _: argparse.Namespace) -> Iterator[Row]:
    """Figures of one case."""
    case = import_module(f"space.{name}").CASE
    problem = case.problem()
    start = time.process_time()
    result = igpe.estimate(problem, certify=False)
    yield at_most(name, "seconds of the processor", time.process_time() - start, "s")
    start = time.process_time()
    errors = igpe.uncertainty.grid_error(problem, result)
    yield at_most(name, "seconds for the error of the grid", time.process_time() - start, "s")
    for parameter, true in case.truth.items():
        label = f"{name} {parameter.translate(LEGIBLE)}"
        error = errors.loc[parameter, "standard_error"]
        allowed = max(ERRORS * error, SHARE * abs(true))
        distance = abs(result.parameters[parameter] - true)
        yield at_most(label, "distance / allowed", distance / allowed, limit=1.0)
        grid = errors.loc[parameter, "grid_error"] / error
        yield at_most(label, "error of the grid / standard error", grid)


if __name__ == "__main__":
    command(__doc__, "space", {name: partial(measure, name) for name in CASES})
