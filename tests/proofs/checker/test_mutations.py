"""The containment checks find what is broken: each of these changes makes some bound wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import containment
import numpy as np
import pytest

from igpe.proofs.checker import confirm, experiments, interval, polynomial, rows, step


def same(x: Any) -> Any:
    return x


def times(factor: float, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: factor * function(*given, **named)


def nothing(like: Callable[..., Any]) -> Callable[..., Any]:
    return times(0.0, like)


def constant_input(line: Any, space: Any, t: Any, h: Any) -> Any:
    """An input that stays what it is when a step begins."""
    return polynomial_of(line, space, t, 0.0 * h)


def shifted_inputs(*given: Any, u: Any, old: Any = rows.validated_step) -> Any:
    """A step with inputs of which the table's times were read wrong."""
    return old(*given, u=[line._replace(start=line.start + 1e-6) for line in u])


polynomial_of = experiments.InputLine.polynomial


MUTATIONS: dict[str, tuple[Callable[[int], int], list[tuple[Any, str, Any]], range]] = {
    "intervals are not rounded outward": (
        containment.of_intervals,
        [(interval, "above", same), (interval, "below", same)],
        range(3),
    ),
    "functions of the library are exact": (
        containment.of_functions,
        [(interval, "LIBRARY", 0), (interval, "above", same), (interval, "below", same)],
        range(3),
    ),
    "what a product leaves out": (
        containment.of_polynomials,
        [(polynomial, "_left_out", nothing(polynomial._left_out))],
        range(10),
    ),
    "half of what a product leaves out": (
        containment.of_polynomials,
        [(polynomial, "_left_out", times(0.2, polynomial._left_out))],
        range(10),
    ),
    "rounding of polynomials": (
        containment.of_polynomials,
        [(polynomial, "UNIT", 0.0)],
        range(10),
    ),
    "Lagrange's remainder": (
        containment.of_functions_of_polynomials,
        [(polynomial, "up", lambda x: np.minimum(x, 1e-17))],
        range(5),
    ),
    "errors of a step are forgotten": (
        containment.of_transport,
        [(rows, "up", times(0.5, interval.up))],
        range(10),
    ),
    "rounding of directions": (
        containment.of_transport,
        [(rows, "UNIT", 0.0), (rows, "up", same)],
        range(40),
    ),
    "cubic terms": (
        containment.of_bounds,
        [(confirm, "_cubic", nothing(confirm._cubic))],
        range(60),
    ),
    "ranges without curvature": (
        containment.of_bounds,
        [(confirm, "_peak", lambda g, t: np.abs(g).sum(axis=0))],
        range(60),
    ),
    "parts of boxes are too small": (
        containment.of_bounds,
        [(confirm, "_shifted", lambda r, m, w, old=confirm._shifted: old(r, m, 0.7 * w))],
        range(60),
    ),
    "defect": (
        containment.of_integration,
        [(step, "_defect", times(0.1, step._defect))],
        range(6, 7),
    ),
    "growth of an error": (
        containment.of_growth,
        [(step, "growth_matrix", times(0.9, step.growth_matrix))],
        range(20),
    ),
    "derivatives of products": (
        containment.of_growth,
        [(step.Dual, "square", lambda x: step.Dual(x.value.square(), {}))],
        range(20),
    ),
    "inequality of the supersolution": (
        containment.of_growth,
        [(step, "_supremum", lambda m, v: np.zeros_like(v))],
        range(20),
    ),
    "rounding of inputs": (
        containment.of_inputs,
        [(experiments, "up", nothing(interval.up))],
        range(3),
    ),
    "slopes of inputs": (
        containment.of_inputs,
        [(experiments, "UNIT", 0.0), (interval, "above", same), (interval, "below", same)],
        range(3),
    ),
    "inputs during a step": (
        partial(containment.of_integration, inputs=1),
        [(experiments.InputLine, "polynomial", constant_input)],
        range(8, 9),
    ),
    "times of a table": (
        partial(containment.of_integration, inputs=1),
        [(rows, "validated_step", shifted_inputs)],
        range(8, 9),
    ),
    "error of the start of a step": (
        containment.of_integration,
        [(rows, "reset", nothing(rows.reset))],
        range(5, 10),
    ),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_is_broken_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, changes, seeds = MUTATIONS[what]
    for place, name, broken in changes:
        monkeypatch.setattr(place, name, broken)
    assert any(check(seed) > 0 for seed in seeds)
