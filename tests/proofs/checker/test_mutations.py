"""The containment checks find what is broken: each of these changes makes some bound wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import containment as true
import numpy as np
import pytest

from igpe.proofs.checker import confirm, experiments, interval, polynomial, rows, step


def same(x: Any) -> Any:
    return x


def times(factor: float, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: factor * function(*given, **named)


def constant_input(line: Any, space: Any, t: Any, h: Any) -> Any:
    """An input that stays what it is when a step begins."""
    return polynomial_of(line, space, t, 0.0 * h)


def shifted_inputs(*given: Any, u: Any, old: Any = rows.validated_step) -> Any:
    """A step with inputs of which the table's times were read wrong."""
    return old(*given, u=[line._replace(start=line.start + 1e-6) for line in u])


polynomial_of = experiments.InputLine.polynomial


EXACT = (interval, "above", same), (interval, "below", same)
Change = tuple[Any, str, Any]
MUTATIONS: dict[str, tuple[Callable[[int], int], range, tuple[Change, ...]]] = {
    "intervals are not rounded outward": (true.of_intervals, range(3), EXACT),
    "functions of the library are exact": (
        true.of_functions, range(3), ((interval, "LIBRARY", 0), *EXACT)
    ),
    "what a product leaves out": (
        true.of_polynomials, range(10),
        ((polynomial, "_left_out", times(0.2, polynomial._left_out)),),
    ),
    "rounding of polynomials": (true.of_polynomials, range(10), ((polynomial, "UNIT", 0.0),)),
    "Lagrange's remainder": (
        true.of_functions_of_polynomials, range(5),
        ((polynomial, "up", lambda x: np.minimum(x, 1e-17)),),
    ),
    "errors of a step are forgotten": (
        true.of_transport, range(10), ((rows, "up", times(0.5, interval.up)),)
    ),
    "rounding of directions": (
        true.of_transport, range(40), ((rows, "UNIT", 0.0), (rows, "up", same))
    ),
    "cubic terms": (true.of_bounds, range(60), ((confirm, "_cubic", times(0.0, confirm._cubic)),)),
    "ranges without curvature": (
        true.of_bounds, range(60), ((confirm, "_peak", lambda g, t: np.abs(g).sum(axis=0)),)
    ),
    "parts of boxes are too small": (
        true.of_bounds, range(60),
        ((confirm, "_shifted", lambda r, m, w, old=confirm._shifted: old(r, m, 0.7 * w)),),
    ),
    "defect": (true.of_integration, range(6, 7), ((step, "_defect", times(0.1, step._defect)),)),
    "growth of an error": (
        true.of_growth, range(20), ((step, "growth_matrix", times(0.9, step.growth_matrix)),)
    ),
    "derivatives of products": (
        true.of_growth, range(20),
        ((step.Dual, "square", lambda x: step.Dual(x.value.square(), {})),),
    ),
    "inequality of the supersolution": (
        true.of_growth, range(20), ((step, "_supremum", lambda m, v: np.zeros_like(v)),)
    ),
    "rounding of inputs": (
        true.of_inputs, range(3), ((experiments, "up", times(0.0, interval.up)),)
    ),
    "slopes of inputs": (true.of_inputs, range(3), ((experiments, "UNIT", 0.0), *EXACT)),
    "inputs during a step": (
        partial(true.of_integration, inputs=1), range(8, 9),
        ((experiments.InputLine, "polynomial", constant_input),),
    ),
    "times of a table": (
        partial(true.of_integration, inputs=1), range(8, 9),
        ((rows, "validated_step", shifted_inputs),),
    ),
    "error of the start of a step": (
        true.of_integration, range(5, 10), ((rows, "reset", times(0.0, rows.reset)),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_is_broken_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, seeds, changes = MUTATIONS[what]
    for place, name, broken in changes:
        monkeypatch.setattr(place, name, broken)
    assert any(check(seed) > 0 for seed in seeds)
