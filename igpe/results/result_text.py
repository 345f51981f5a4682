"""A result in words: for the terminal and for notebooks."""

import math
from collections.abc import Sequence

from igpe.core.estimates import relative_gap
from igpe.core.markup import bullets, table
from igpe.core.status import Status
from igpe.numerics.optima import is_same_objective
from igpe.results.dynamic_certificate import DynamicCertificate
from igpe.results.result_data import Parameter, ResultData

SEARCHED = (Status.CONVERGED, Status.BEST_OF_SEVERAL)
ROUNDING = 1e-12  # of the data's own sum of squares: below it objectives are rounding
HEADS = ("", "estimate", "± standard error", "interval", "unit", "first found by")


def text(result: ResultData) -> str:
    """The answer first, then how sure it is, then how it came about."""
    lines = _aligned(estimates(result))
    for title, rows in other_tables(result):
        lines += ["", title, *_aligned(rows)]
    return "\n".join([*lines, "", *_sentences(result)])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def html(result: ResultData) -> str:
    """The same as a table and a list."""
    heads, *rows = estimates(result)
    others = [table(*_split(rows), title) for title, rows in other_tables(result)]
    return table(heads, rows) + "".join(others) + bullets(_sentences(result))


def other_tables(result: ResultData) -> list[tuple[str, list[list[str]]]]:
    """A title, and heads and rows, of every other set of values that explains the data alike."""
    return [
        (
            f"Set {k} of {len(result.other_optima) + 1} that explain the data alike, "
            f"sum of squares {other.objective:.6g}:",
            _rows(other.estimates),
        )
        for k, other in enumerate(result.other_optima, 2)
    ]


def _split(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    return rows[0], rows[1:]


def number(value: float, error: float = math.nan) -> str:
    """A value with as many digits as its error allows (six significant ones without an error)."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0 or not math.isfinite(error) or error <= 0:
        return f"{value:.6g}"
    digits = math.ceil(math.log10(max(abs(value) / error, 1e-9))) + 2
    return f"{value:#.{min(max(digits, 2), 10)}g}".rstrip(".")  # "#" keeps zeros that are known


def estimates(result: ResultData) -> list[list[str]]:
    """Heads and one row for each unknown, without columns that say nothing."""
    return _rows(result.estimates)


def _rows(estimated: Sequence[Parameter]) -> list[list[str]]:
    rows = [_cells(p) for p in estimated]
    kept = [i for i in range(len(HEADS)) if any(row[i] for row in rows)]
    return [[row[i] for i in kept] for row in (HEADS, *rows)]


def _cells(p: Parameter) -> tuple[str, ...]:
    if p.remark:
        on_bound = math.isnan(p.standard_error)
        shown = on_bound and math.isfinite(p.lower) and math.isfinite(p.upper)
        one_sided = f"[{number(p.lower)}, {number(p.upper)}]" if shown else ""
        return p.name, number(p.value), p.remark, one_sided, p.unit, p.found_by
    interval = f"[{number(p.lower, p.standard_error)}, {number(p.upper, p.standard_error)}]"
    error = f"± {p.standard_error:.2g}" if math.isfinite(p.standard_error) else "unknown"
    known = interval if math.isfinite(p.lower) else ""
    return p.name, number(p.value, p.standard_error), error, known, p.unit, p.found_by


def _sentences(result: ResultData) -> Sequence[str]:
    return [
        *fitness(result),
        verdict(result),
        *quality(result),
        *(f"Step 3: {c.sentence}" for c in result.certificates),
        *([result.proof.sentence] if result.proof else []),
        *result.notes,
        _time(result),
    ]


def fitness(result: ResultData) -> list[str]:
    """Whether the model fits the measurements."""
    return [result.adequacy.sentence] if result.adequacy else []


def quality(result: ResultData) -> list[str]:
    """How good the fit is, and what the intervals are."""
    words = "Weighted sum of squares" if result.points["sigma"].notna().any() else "Sum of squares"
    return [
        f"{words} {result.objective:.6g} over {result.measurements} measurements, "
        f"{result.degrees} degrees of freedom.",
        *_spread(result),
        *_intervals(result),
    ]


def _intervals(result: ResultData) -> list[str]:
    """What the intervals are, and what they assume."""
    if not _has_intervals(result):
        return []
    told = f"Intervals: {100 * result.confidence:g} %, linearised{_cut(result)}."
    if result.adequacy is not None and result.adequacy.lacks:
        told += " They assume that the model is right, which the residuals contradict."
    return [told]


def _cut(result: ResultData) -> str:
    """Whether bounds cut intervals short."""
    cut = any(
        math.isfinite(p.standard_error) and (p.lower <= p.bounds[0] or p.upper >= p.bounds[1])
        for p in result.estimates
    )
    one_sided = any(p.remark and math.isnan(p.standard_error) for p in result.estimates)
    words = ["cut at the bounds"] * cut + ["one-sided on a bound"] * one_sided
    return f", {' and '.join(words)}" if words else ""


def _has_intervals(result: ResultData) -> bool:
    return any(math.isfinite(p.lower) and not p.remark for p in result.estimates)


def _spread(result: ResultData) -> list[str]:
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


def verdict(result: ResultData) -> str:
    """How good the optimum is, from all that is known: the proof, the candidates, the status."""
    if not result.status.usable or result.status not in SEARCHED:
        return result.status.value
    if result.proof is not None and has_better(result, result.proof):
        return _by_proof(result.proof)
    if result.proof is not None and result.proof.closed:
        least = result.proof.lower_bound
        gap = relative_gap(result.objective, least) if least > 0 else 0.0
        exact = (
            f"gap {100 * max(gap, 0.0):.2g} %"
            if least > 0
            else "the sum of squares is 0 but for rounding"
        )
        return f"Proved best within the bounds ({exact}).{_shared(result)}"
    return f"{_agreement(result)}Not proved: a better optimum may exist.{_advice(result)}"


def has_better(result: ResultData, proof: DynamicCertificate) -> bool:
    """Return True if the proof met parameters with a smaller sum of squares than the estimate's."""
    least, mine = proof.objective, result.objective
    return least < mine and not is_same_objective(least, mine, _rounding(result))


def _by_proof(proof: DynamicCertificate) -> str:
    """What to say where the proof met better parameters."""
    values = ", ".join(
        f"{n} = {number(v)}" for n, v in zip(proof.unknowns, proof.parameters, strict=True)
    )
    return (
        f"Not the best: igpe.certify met a smaller sum of squares, {proof.objective:.6g}, at "
        f"{values}. Fit again from there: igpe.SingleShooting().estimate(problem, {{...}})."
    )


def _agreement(result: ResultData) -> str:
    """How many candidates of step 3 led to the estimate; empty where there was only one."""
    ends = [c.objective for c in result.candidates]
    if len(ends) <= 1:
        return ""
    none = _rounding(result)
    others = [e for e in ends if not is_same_objective(e, result.objective, none)]
    if not others:
        return f"All {len(ends)} candidates of step 3 led to this sum of squares. "
    worse = [e for e in others if math.isfinite(e)]
    rest = f"the next best has {min(worse):.6g}" if worse else "the others could not be fitted"
    led = len(ends) - len(others)
    return f"{led} of {len(ends)} candidates led to this sum of squares, {rest}. "


def _advice(result: ResultData) -> str:
    return " Run igpe.certify(problem, result) to find out." if result.proof is None else ""


def _shared(result: ResultData) -> str:
    return " Other values are as good, see below." if result.other_optima else ""


def _rounding(result: ResultData) -> float:
    """Differences of the sum of squares that mean nothing."""
    weights = result.points["sigma"].fillna(1.0)
    return ROUNDING * float(((result.points["measured"] / weights) ** 2).sum())


def _time(result: ResultData) -> str:
    longest = max(result.seconds, key=lambda k: result.seconds[k], default="")
    whole = f"Time {sum(result.seconds.values()):.1f} s"
    return f"{whole} (step {longest}: {result.seconds[longest]:.1f} s)." if longest else f"{whole}."
