"""Results made of numbers, for pages: an ordinary one, and those that make pages difficult."""

from dataclasses import replace

import numpy as np
import pandas as pd

from igpe.core.status import Status
from igpe.results.certificates import Certificate
from igpe.results.result import Result
from igpe.results.result_data import (
    DYNAMIC,
    OVER,
    SQUARE,
    Candidate,
    MapBlock,
    MapPart,
    MapSource,
    Parameter,
    StructureMap,
)

EVIL = "<script>alert('k')</script>\"><img src=x onerror=alert(1)>&amp;$x_{"
"""A name that would be a program, an attribute, an entity and a formula."""


MAP = StructureMap(
    experiments=("1",),
    equations=("sum", "sum too", "rate_A", "rate_B"),
    unknowns=("C", "d(A)"),
    measured=("A",),
    parameters=("k1", "k2"),
    reach=("algebraic", "dynamic"),
    entries=((0, 0), (1, 0), (2, 0), (2, 1), (3, 0)),
    known=((0, 0), (2, 0)),
    uses=((2, 0), (3, 1)),
    parts=(
        MapPart(OVER, (0, 2), (0, 1)),
        MapPart(SQUARE, (2, 3), (1, 2)),
        MapPart(DYNAMIC, (3, 4), (0, 0)),
    ),
    blocks=(MapBlock(0, 0, 1), MapBlock(2, 1, 1)),
    sources=(MapSource("slope of A", (0,)),),
)


def parameter(name, value=1.5, **changes):
    how, bounds = "step 3, linear least squares", (0.0, 10.0)
    ordinary = Parameter(name, value, 0.01, value - 0.02, value + 0.02, "1/h", bounds, how)
    return replace(ordinary, **changes)


def tables(runs, names, count=8):
    """`points` and `curves` of every name in every run."""
    times, grid = np.linspace(1.0, 5.0, count), np.linspace(0.0, 5.0, 40)
    residual, fitted, smooth = 0.01 * np.cos(7 * times), np.exp(-times), np.exp(-grid)
    points = {"time": times, "measured": fitted + residual, "fitted": fitted, "residual": residual}
    points |= {"sigma": np.nan, "unit": "mol/l"}
    curves = {"time": grid, "fitted": smooth, "smoothed": 1.01 * smooth, "smoothed_error": 0.02}
    return (
        pd.concat(
            [pd.DataFrame({"experiment": r, "name": n} | table) for r in runs for n in names],
            ignore_index=True,
        )
        for table in (points, curves)
    )


def result(unknowns=("k1", "k2"), runs=("1",), names=("A", "B"), **changes):
    points, curves = tables(runs, names)
    n = len(unknowns)
    values = {name: 1.0 + k for k, name in enumerate(unknowns)}
    certificate = Certificate(
        unknowns=tuple(unknowns),
        bounds=((0.0, 10.0),) * n,
        undetermined=(),
        origin="slopes of smoothed data",
        slopes=tuple(names),
        experiments=tuple(runs),
        method="linear least squares",
        objective=0.5,
        lower_bound=0.5,
        status=Status.GLOBAL_BY_CONVEXITY,
    )
    ordinary = Result(
        estimates=tuple(parameter(name, value) for name, value in values.items()),
        objective=0.0123,
        status=Status.CONVERGED,
        covariance=1e-4 * (0.75 * np.eye(n) + 0.25),
        measurements=len(points),
        degrees=len(points) - n,
        variance=1e-4,
        probability=np.nan,
        confidence=0.95,
        certificates=(certificate,),
        candidates=tuple(
            Candidate(f"way {k}", values, values, 0.0123 * k, Status.CONVERGED) for k in (1, 2)
        ),
        structure="\n".join([*(f"{u}  from the slope of A" for u in unknowns), "One problem."]),
        points=points,
        curves=curves,
        seconds={"1 smoothing": 0.25, "5 correction": 1.5},
        versions={"igpe": "0.1.0", "numpy": "2.4"},
        seed=7,
        notes=("A sentence worth reading.",),
        settings="Settings(confidence=0.95)",
        maps=(MAP,),
        equations=tuple(["=", ["d", n], ["-", ["*", "k1", n]]] for n in names),
        sources={run: "runs.csv, SHA-256 0a1b" for run in runs},
    )
    return replace(ordinary, **changes)


def evil():
    """Everything the user named is called like an attack."""
    hostile = result((EVIL, "k2"), (EVIL, "2"), (EVIL, "B"), notes=(EVIL,), settings=EVIL)
    points = hostile.points.assign(unit=EVIL)
    certificate = replace(hostile.certificates[0], origin=EVIL, method=EVIL)
    named = replace(MAP, experiments=(EVIL,), equations=(EVIL,) * 4, parameters=(EVIL, "k2"))
    return replace(
        hostile,
        points=points,
        certificates=(certificate,),
        versions={EVIL: EVIL},
        maps=(named,),
        conditions=((EVIL,) * 4,),
    )


def bare():
    """The model could not be integrated: no fit, no errors, nothing proved, one way."""
    plain, lost = result(("k1",), names=("A",)), {"standard_error": np.nan, "lower": np.nan}
    held = parameter("k1", upper=np.nan, remark="on its upper bound", **lost)
    nothing = dict.fromkeys(("certificates", "candidates", "maps", "notes"), ())
    return replace(
        plain,
        **nothing,
        estimates=(held,),
        objective=np.inf,
        status=Status.INTEGRATION_BROKE,
        covariance=np.full((1, 1), np.nan),
        variance=np.nan,
        structure="No unknowns are free.",
        points=plain.points.assign(fitted=np.nan, residual=np.nan),
        curves=plain.curves.assign(fitted=np.nan, smoothed=np.nan, smoothed_error=np.nan),
        seconds={},
        versions={},
        settings="",
    )


def large():
    """Many unknowns with long names, and many experiments."""
    unknowns = [f"reactor.rate_constant_of_the_reaction[number_{k}]" for k in range(20)]
    runs = [f"experiment_of_day_{k}" for k in range(8)]
    return result(unknowns, runs, ("concentration_of_A", "B"))


KINDS = {"ordinary": result, "evil": evil, "bare": bare, "large": large}
