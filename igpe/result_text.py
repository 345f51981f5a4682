"""A result in words: for the terminal and for notebooks."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from igpe.markup import bullets, table
from igpe.status import Status

if TYPE_CHECKING:
    from igpe.result import Parameter, Result

HEADS = ("", "estimate", "± standard error", "interval", "unit", "first found by")


def text(result: "Result") -> str:
    """The answer first, then how sure it is, then how it came about."""
    rows = estimates(result)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_sentences(result)])


def html(result: "Result") -> str:
    """The same as a table and a list."""
    heads, *rows = estimates(result)
    return table(heads, rows) + bullets(_sentences(result))


def number(value: float, error: float = math.nan) -> str:
    """A value with as many digits as its error allows (six significant ones without an error)."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0 or not math.isfinite(error) or error <= 0:
        return f"{value:.6g}"
    digits = math.ceil(math.log10(max(abs(value) / error, 1e-9))) + 2
    return f"{value:#.{min(max(digits, 2), 10)}g}".rstrip(".")  # "#" keeps zeros that are known


def estimates(result: "Result") -> list[list[str]]:
    """Heads and one row for each unknown, without columns that say nothing."""
    rows = [_cells(p) for p in result.estimates]
    kept = [i for i in range(len(HEADS)) if any(row[i] for row in rows)]
    return [[row[i] for i in kept] for row in (HEADS, *rows)]


def _cells(p: "Parameter") -> tuple[str, ...]:
    if p.remark:
        return p.name, number(p.value), p.remark, "", p.unit, p.found_by
    interval = f"[{number(p.lower, p.standard_error)}, {number(p.upper, p.standard_error)}]"
    error = f"± {p.standard_error:.2g}" if math.isfinite(p.standard_error) else "unknown"
    known = interval if math.isfinite(p.lower) else ""
    return p.name, number(p.value, p.standard_error), error, known, p.unit, p.found_by


def _sentences(result: "Result") -> Sequence[str]:
    return [
        *fitness(result),
        verdict(result),
        *quality(result),
        *(f"Step 3: {c.sentence}" for c in result.certificates),
        *([result.proof.sentence] if result.proof else []),
        *result.notes,
        _time(result),
    ]


def fitness(result: "Result") -> list[str]:
    """Whether the model fits the measurements."""
    return [result.adequacy.sentence] if result.adequacy else []


def quality(result: "Result") -> list[str]:
    """How good the fit is, and what the intervals are."""
    words = "Weighted sum of squares" if result.points["sigma"].notna().any() else "Sum of squares"
    percent = f"{100 * result.confidence:g} %"
    return [
        f"{words} {result.objective:.6g} over {result.measurements} measurements, "
        f"{result.degrees} degrees of freedom.",
        *_spread(result),
        *([f"Intervals: {percent}, linearised."] if _has_intervals(result) else []),
    ]


def _has_intervals(result: "Result") -> bool:
    return any(math.isfinite(p.lower) and not p.remark for p in result.estimates)


def _spread(result: "Result") -> list[str]:
    if math.isfinite(result.probability):
        return [
            f"Chi squared per degree of freedom {result.reduced_chi_squared:.3g}; if model and "
            f"standard deviations are right a larger one has probability {result.probability:.2g}."
        ]
    if not math.isfinite(result.variance):
        return ["There are not more measurements than unknowns, so errors cannot be told."]
    return [
        f"Standard deviation of a residual {math.sqrt(result.variance):.3g} (from the residuals)."
    ]


def verdict(result: "Result") -> str:
    """How it ended, and whether the candidates agree."""
    tried = len(result.candidates)
    if result.status is not Status.CONVERGED or tried <= 1:
        return result.status.value
    best = result.candidates[0].objective
    others = [c.objective for c in result.candidates if not _close(c.objective, best)]
    if not others:
        return (
            f"All {tried} candidates of step 3 led to this sum of squares; a proof that it is "
            "global is lacking."
        )
    return (
        f"The best of several optima: {tried - len(others)} of {tried} candidates of step 3 led to "
        f"it, the next best has {min(others):.6g}; a proof that it is global is lacking."
    )


def _time(result: "Result") -> str:
    longest = max(result.seconds, key=lambda k: result.seconds[k], default="")
    whole = f"Time {sum(result.seconds.values()):.1f} s"
    return f"{whole} (step {longest}: {result.seconds[longest]:.1f} s)." if longest else f"{whole}."


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-15)
