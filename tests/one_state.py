"""One differential equation x' = law(m, x) from x = 1, measured: for proofs and their checker."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from ode import ode

import igpe


def one_state(
    law: Callable[[Any, Any], Any],
    bounds: Mapping[str, tuple[float, float]],
    data: tuple[Any, Any],
    sigma: Any,
    **given: Any,
) -> igpe.Problem:
    """The problem; data: times and measured x; given: further arguments of `igpe.Problem`."""

    build = ode({"x": lambda m, t: law(m, m.x[t])}, **bounds)
    table = pd.DataFrame(dict(zip(("time", "x"), data, strict=True)))
    run = igpe.Experiment(table, start={"x": 1.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(build, parameters=list(bounds), experiments=[run], **given)
