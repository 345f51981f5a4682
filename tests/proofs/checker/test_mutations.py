"""The containment checks find what is broken: each of these changes makes some bound wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import containment as true
import numpy as np
import pytest

from igpe.proofs.checker import confirm, interval

INTERVALS, POLYNOMIALS, STEP, INTEGRATION = (
    true.K[n] for n in ("intervals", "polynomials", "step", "integration")
)


def same(x: Any) -> Any:
    return x


def times(factor: float, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: factor * function(*given, **named)


def smaller(tape: Any, values: Any, length: Any, m: Any, old: Any = STEP.jacobian) -> None:
    old(tape, values, length, m)
    m *= 0.9


def without_squares(tape: Any, i: int, to: Any, old: Any = INTERVALS._differentiate) -> None:
    old(tape, i, to)
    if tape.code[i, 0] == INTERVALS.SQUARE:
        to.slope[i] = 0.0


def without_denominators(tape: Any, i: int, to: Any, old: Any = INTERVALS._differentiate) -> None:
    if tape.code[i, 0] == INTERVALS.DIV:
        tape = tape._replace(
            depends=tape.depends & (np.arange(len(tape.code)) != tape.code[i, 2])[:, None]
        )
    old(tape, i, to)


def constant_inputs(
    program: Any, k: int, t: float, h: float, u: Any, *, old: Any = INTEGRATION.inputs_at
) -> None:
    """Inputs that stay what they are when a step begins."""
    old(program, k, t, 0.0, u)


def shifted_inputs(
    program: Any, i: int, k: int, time: Any, old: Any = INTEGRATION.input_range
) -> Any:
    """A table's times are read wrong."""
    return old(program._replace(begins=program.begins + 1e-6), i, k, time)


def forgotten(a: Any, e: Any, c: Any) -> bool:
    """Errors that are left over are."""
    c[:] = 0.0
    return True


def slower_rates(*given: Any, old: Any = STEP.displaced) -> None:
    """Errors of rates count a tenth."""
    old(*given)
    moved = given[6]
    moved *= 0.1


def without_old(b: Any, *given: Any, old: Any = POLYNOMIALS.carry) -> bool:
    """Errors of earlier steps are forgotten."""
    return bool(old(0.0 * b, *given))


def without_new(b: Any, r: Any, a: Any, moved: Any, *given: Any) -> bool:
    """Errors of rates are forgotten."""
    return bool(POLYNOMIALS.carry(b, r, a, 0.0 * moved, *given))


def shorter(*given: Any, old: Any = STEP._change) -> Any:
    """Faces move less than their slopes say."""
    low, high = old(*given)
    return low + 0.2 * abs(low), high - 0.2 * abs(high)


def lower_ends(*given: Any, old: Any = INTERVALS.mean) -> Any:
    """A mean's upper end is a bit too low."""
    low, high = old(*given)
    return low, high - 0.01 * (high - low) if high - low < np.inf else high


def too_narrow(program: Any, i: int, cut: float, *given: Any, old: Any = INTEGRATION.meet) -> None:
    """More is cut off of states than the level allows."""
    old(program, i, cut - 0.98 * max(cut - given[0], 0.0), *given)


EXACT = (
    (interval, "above", same), (interval, "below", same),
    (INTERVALS, "outward", lambda low, high: (low, high)), (INTERVALS, "MOVED", 0.0),
)  # fmt: skip
SLOWLY = (confirm, "integrate", INTEGRATION.integrate)  # not compiled: what is changed counts
coarsely = partial(true.of_integration, order=3)
Change = tuple[Any, str, Any]
MUTATIONS: dict[str, tuple[Callable[[int], int], range, tuple[Change, ...]]] = {
    "intervals are not rounded outward": (true.of_intervals, range(3), EXACT[:2]),
    "single intervals are not rounded outward": (true.of_intervals, range(3), EXACT[2:3]),
    "functions of the library are exact": (
        true.of_functions, range(3), ((INTERVALS, "LIBRARY", 0), *EXACT)
    ),
    "what a product leaves out": (
        true.of_polynomials, range(10),
        ((POLYNOMIALS, "left_out", times(0.2, POLYNOMIALS.left_out)),),
    ),
    "rounding of polynomials": (true.of_polynomials, range(10), ((POLYNOMIALS, "UNIT", 0.0),)),
    "remainders of factors": (
        true.of_polynomials, range(10),
        ((POLYNOMIALS, "product_error",
          lambda t, a, _, b, __, n, old=POLYNOMIALS.product_error: old(t, a, 0.0, b, 0.0, n)),),
    ),
    "what a quotient leaves out": (
        true.of_quotients, range(10),
        ((POLYNOMIALS, "left_out", times(0.2, POLYNOMIALS.left_out)),),
    ),
    "size of a denominator": (
        true.of_quotients, range(10), ((POLYNOMIALS, "span", lambda norms, c, e: (1e3, 1e3)),)
    ),
    "Lagrange's remainder": (
        true.of_functions_of_polynomials, range(5),
        ((POLYNOMIALS, "up", lambda x: np.minimum(x, 1e-17)),),
    ),
    "errors of a step are forgotten": (
        true.of_transport, range(10), ((POLYNOMIALS, "up", times(0.5, POLYNOMIALS.up)),)
    ),
    "rounding of directions": (
        true.of_transport, range(40), ((POLYNOMIALS, "UNIT", 0.0), (POLYNOMIALS, "up", same))
    ),
    "terms of degree 3 and 4": (
        true.of_bounds, range(60), ((confirm, "_higher", times(0.0, confirm._higher)),)
    ),
    "products of linear and quadratic terms": (
        true.of_polynomials, range(10), ((POLYNOMIALS, "add_cubic", lambda *given: None),)
    ),
    "ranges without curvature": (
        true.of_bounds, range(60), ((confirm, "_peak", lambda g, t: np.abs(g).sum(axis=0)),)
    ),
    "parts of boxes are too small": (
        true.of_bounds, range(60),
        ((confirm, "_shifted", lambda r, m, w, old=confirm._shifted: old(r, m, 0.7 * w)),),
    ),
    "defect": (true.of_defect, range(10), ((STEP, "defect", times(0.9, STEP.defect)),)),
    "growth of an error": (true.of_growth, range(20), ((STEP, "jacobian", smaller),)),
    "derivatives of products": (
        true.of_growth, range(20), ((INTERVALS, "_differentiate", without_squares),)
    ),
    "derivatives of quotients": (
        true.of_growth, range(20), ((INTERVALS, "_differentiate", without_denominators),)
    ),
    "inequality of the supersolution": (
        true.of_growth, range(20), ((STEP, "solves", lambda m, d, v, w: True),)
    ),
    "rounding of inputs": (
        true.of_inputs, range(3), ((INTEGRATION, "up", times(0.0, INTEGRATION.up)),)
    ),
    "slopes of inputs": (
        true.of_inputs, range(3), ((INTEGRATION, "lengths", lambda h: (h, h)), *EXACT)
    ),
    "inputs during a step": (
        partial(coarsely, inputs=1), range(8, 10),
        (SLOWLY, (INTEGRATION, "inputs_at", constant_inputs)),
    ),
    "times of a table": (
        partial(coarsely, inputs=1), range(8, 10),
        (SLOWLY, (INTEGRATION, "input_range", shifted_inputs)),
    ),
    "error of the start of a step": (
        true.of_directions, range(10), ((POLYNOMIALS, "reset", forgotten),)
    ),
    "errors of earlier steps": (
        coarsely, range(5, 10), (SLOWLY, (INTEGRATION, "carry", without_old))
    ),
    "errors of rates": (coarsely, range(5, 10), (SLOWLY, (INTEGRATION, "carry", without_new))),
    "means": (true.of_means, range(5), ((INTERVALS, "mean", lower_ends),)),
    "faces of tubes": (true.of_faces, range(6), ((STEP, "_change", shorter),)),
    "what a level cuts off": (true.of_faces, range(6), ((INTEGRATION, "meet", too_narrow),)),
    "size of errors of rates": (
        coarsely, range(5, 10), (SLOWLY, (STEP, "displaced", slower_rates))
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", MUTATIONS)
def test_what_is_broken_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, seeds, changes = MUTATIONS[what]
    for place, name, broken in changes:
        monkeypatch.setattr(place, name, broken)
    with np.errstate(all="ignore"):  # as in compiled kernels
        assert any(check(seed) > 0 for seed in seeds)
