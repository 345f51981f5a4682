"""The answer of an estimation: a verdict of three lines, the estimates, and what needs action.

All else that is known of a result stands in `igpe.results.details`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from igpe.core.box import is_reached
from igpe.core.estimates import agreeing, relative_gap
from igpe.core.markup import (
    WIDTH,
    aligned,
    bullets,
    counted,
    filled,
    folded,
    in_words,
    listed,
    table,
    wide,
    with_texts,
)
from igpe.core.status import Status
from igpe.numerics.covariance import strongly_correlated
from igpe.numerics.lack_of_fit import CLEAR
from igpe.numerics.optima import SOUGHT, is_same_objective
from igpe.results.details import details, exchange_sentences, word
from igpe.results.residual_table import (
    CORRELATED,
    DOUBTFUL,
    LACK,
    OUTLIER,
    TOO_LARGE_SIGMA,
    UNJUDGED,
    has_assumed_sigma,
    probability,
    within_noise,
)
from igpe.results.result_data import (
    ASSUMED,
    PRIOR,
    START,
    TOO_COARSE,
    Parameter,
    ResultData,
    has_better,
    rounding,
)

Grade = Literal["good", "fair", "bad"]

SEARCHED = (Status.CONVERGED, Status.BEST_OF_SEVERAL)
UNFINISHED = (Status.ITERATION_LIMIT, Status.TIME_LIMIT, Status.INTERRUPTED, Status.STALLED)
LABEL = 12  # characters of the column of labels
SHOWN = 2  # active constraints in the verdict
MOST_NAMED = 6  # unknowns; of more the number is given
EXPLAINED = 0.9  # R² above which a fit without lack of fit is called good
WIDER = 8.0  # standard errors that are more than an interval of 95 % has, of some 6 measurements
IF_RIGHT = ", if the assumed standard deviations are right"
SURE = 0.1  # relative standard error up to which an unknown, ratio or product is called determined
LONG = 0.3  # of a value, from which on one side of its interval it is not determined
KEPT = 1.25  # factor within which a ratio or product stays along intervals by profile
UNKNOWN = 0.5  # the same, above which an unknown is not known by itself
MOST_PERCENT = 1000.0  # a larger relative error is not printed
NINES = 6  # digits of R²
NOT_DETERMINED, AT_BOUND, HELD, FIXED = "not determined", "at bound", "at constraint", "fixed"
MARKS = {
    "": "",
    "on its lower bound": AT_BOUND,
    "on its upper bound": AT_BOUND,
    "held by active constraints": HELD,
    "not determined by the data": NOT_DETERMINED,
    "no measured quantity depends on it": NOT_DETERMINED,
    "nothing measured depends on it": NOT_DETERMINED,  # in results that were stored earlier
    "given": FIXED,
}
"""Remark of a `Parameter` -> its mark in the table."""
LABELLED = '<b style="display:inline-block;min-width:7em">'
COMBINED = "in combination"
COLOURS = {"good": "#009e73", "fair": "#e69f00", "bad": "#d55e00"}  # Okabe and Ito


class Line(NamedTuple):
    """One line of the verdict."""

    label: str
    words: str
    grade: Grade

    @property
    def text(self) -> str:
        """In lines of at most 80 characters."""
        return filled(self.words, f"{self.label:<{LABEL}}", " " * LABEL)

    @property
    def head(self) -> str:
        """How the text begins, up to the first pause."""
        return f"{self.label:<{LABEL}}" + re.split(r"[:;(]", self.words)[0].rstrip()


class Headline(NamedTuple):
    """Three lines: whether the model fits, what the data determine, and how good the optimum is."""

    fit: Line
    parameters: Line
    optimum: Line

    def words(self) -> dict[str, str]:
        """fit, parameters and optimum in words."""
        return {name: line.words for name, line in self._asdict().items()}


def verdict(result: ResultData) -> Headline:
    """The three lines."""
    fit, optimum = _fit(result), _optimum(result)
    return Headline(Line("Fit", *fit), Line("Parameters", *_parameters(result)), optimum)


def text(result: ResultData) -> str:
    """Verdict, estimates and what needs action, on 80 columns."""
    lines = [line.text for line in verdict(result)]
    lines += ["", *aligned(estimates(result))] if result.estimates else []
    needed = actions(result)
    lines += ["", *map(filled, needed)] if needed else []
    return "\n".join(lines)


def html(result: ResultData) -> str:
    """The same for notebooks and pages, with the details to be opened."""
    heads, *rows = estimates(result, width=None)
    lines = "".join(
        f'<p class="verdict" style="border-left:4px solid {COLOURS[line.grade]};'
        f'padding-left:.6em;margin:.2em 0">{LABELLED}{line.label}</b> {escape(line.words)}</p>'
        for line in verdict(result)
    )
    caption = "Estimates"
    return (
        lines
        + (wide(table(heads, rows, caption), caption) if rows else "")
        + bullets(actions(result))
        + folded("Details", details(result).html)
    )


def estimates(result: ResultData, width: int | None = WIDTH) -> list[list[str]]:
    """Heads, and one row for each unknown: name, value, interval, unit, mark.

    Columns that say nothing are left out. Names and units are shortened until the table fits.

    width  characters; None: as wide as it is
    """
    heads = ("", "value", f"{100 * result.confidence:g} % interval", "unit", "")
    columns = with_texts([heads, *map(_cells, result.estimates)])
    if width is not None:
        _narrow(columns, width)
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(p: Parameter) -> tuple[str, ...]:
    value, *ends = p.texts
    return p.name, value, " … ".join(ends), p.unit, MARKS[p.remark]


def _narrow(columns: list[list[str]], width: int) -> None:
    """Shorten the texts of the widest of names and units until all columns fit."""
    sizes = [max(map(len, column)) for column in columns]
    over = sum(sizes) + 2 * (len(sizes) - 1) - width
    texts = [i for i, column in enumerate(columns) if i == 0 or column[0] == "unit"]
    while over > 0 and max(sizes[i] for i in texts) > len("unit"):
        widest = max(texts, key=sizes.__getitem__)
        sizes[widest] -= 1
        over -= 1
    for i in texts:
        columns[i] = _shortened(columns[i], sizes[i])


def _shortened(names: list[str], size: int) -> list[str]:
    """Names of at most so many characters; different ones stay different as far as possible."""

    def cut(begin: int) -> list[str]:
        return [
            n if len(n) <= size else f"{n[:begin]}…{n[len(n) - size + begin + 1 :]}" for n in names
        ]

    versions = [cut(begin) for begin in (size // 2, 0, size - 1)]
    return max(versions, key=lambda version: len(set(version)))


def _fit(result: ResultData) -> tuple[str, Grade]:
    judged, share = result.adequacy, result.r_squared().dropna()
    if judged is not None and judged.p >= DOUBTFUL:  # NaN is not
        share = share.drop(within_noise(result.points), errors="ignore")
    explained = "" if share.empty else f", {_r_squared(dict(share))}"
    if judged is None:
        return f"not judged{explained}", "fair"
    if judged.verdict == UNJUDGED:
        why = judged.reasons[0].rstrip(".") if judged.reasons else "too few measurements"
        return f"not judged: {why[0].lower()}{why[1:]}{explained}", "fair"
    p = probability(judged.p)
    if judged.lacks:
        tested = f"residuals are not just noise ({p})"
        why = judged.reasons[0].rstrip(".") if math.isnan(judged.p) else tested
        return f"{LACK}: {why}{explained}", "bad"
    if math.isnan(judged.p):
        return f"good: the residuals are rounding errors{explained}", "good"
    off = _outliers(result)
    if judged.p < DOUBTFUL:
        return f"fair: residuals barely consistent with noise{off} ({p}){explained}", "fair"
    is_good = (share.empty or share.min() >= EXPLAINED) and not off
    grade: Grade = "good" if is_good else "fair"
    return f"{grade}: residuals consistent with noise{off} ({p}){explained}", grade


def _outliers(result: ResultData) -> str:
    """How many clear outliers there are, which the tests of all residuals together may miss."""
    if result.status.is_early:  # no residuals of an optimum
        return ""
    level = CLEAR / max(len(result.residual_tests()), 1)  # as in `clear_failures`
    growing = () if result.adequacy is None else result.adequacy.growing
    off = result.outliers()
    count = int((off["p"] < level)[~off["name"].isin(growing)].sum())
    return f", but for {counted(count, 'outlier')}" * bool(count)


def _r_squared(share: Mapping[str, float]) -> str:
    """The lowest R² and its quantity, with digits up to the first that is no nine."""
    lowest = min(share, key=share.__getitem__)
    missing = max(1 - share[lowest], 10.0**-NINES)
    digits = min(max(math.ceil(-math.log10(missing)), 2), NINES)
    sign = ">" if 1 - share[lowest] < missing else "=" if len(share) == 1 else "≥"
    which = f" ({lowest})" if len(share) > 1 else ""
    return f"R² {sign} {1 - missing:.{digits}f}{which}"


def _parameters(result: ResultData) -> tuple[str, Grade]:
    """What the measurements determine, around this set of values."""
    free = [p for p in result.estimates if p.remark != "given"]
    sets = f"{_several(result)}; in this one: " if result.other_optima else ""
    if not free:
        return "all fixed", "good"
    marks = {p.name: MARKS[p.remark] for p in free}
    plain = [p for p in free if not marks[p.name]]
    if plain and not any(math.isfinite(e) for p in plain for e in (p.standard_error, p.upper)):
        why = "at least as many unknowns as measurements"
        if result.measurements > len(free):
            why = "the model could not be integrated at the estimate"
        return f"{sets}errors unknown: {why}", "bad"
    if _is_discretised(result):
        return f"{sets}not judged: the intervals apply to the discretised model only", "bad"
    shared, combined = _shared(result, [n for n, mark in marks.items() if mark == NOT_DETERMINED])
    rough = result.unprofiled  # how long these intervals are nobody knows
    uncertain = {p.name: _relative(p) for p in plain if _is_uncertain(p) or p.name in rough}
    known = [p.name for p in plain if p.name not in uncertain]
    lost = [n for n, mark in marks.items() if mark == NOT_DETERMINED and n not in combined]
    held, tied = ([n for n, mark in marks.items() if mark == one] for one in (AT_BOUND, HELD))
    only, besides, paired = _ratios(result, plain, uncertain)
    poor = [p for p in plain if p.name in uncertain and p.name not in paired]

    def named(names: Sequence[str], what: str) -> list[str]:
        return [_named(names, len(free), what)] if names else []

    gone = named(lost, "not determined")
    if result.status in UNFINISHED:  # errors and intervals describe an optimum
        return "; ".join(["not judged: the values may not be an optimum", *shared, *gone]), "bad"
    is_assumed = any(a.startswith(ASSUMED) for a in result.actions)
    parts = [
        *named(known, f"determined{IF_RIGHT * is_assumed}"), *only, *shared,
        *([_poor(poor)] if poor else []), *besides, *gone, *named(held, "at a bound"),
        *named(tied, "held by active constraints"), *_correlated(result, known),
    ]  # fmt: skip
    is_sure = len(known) == len(free) and not (sets or is_assumed)
    grade: Grade = "good" if is_sure else "fair"
    return sets + "; ".join(parts), grade if known or held or tied else "bad"


def _several(result: ResultData) -> str:
    """How many sets of values there are, and what they do; a search counts if it was finished."""
    count, is_cut = len(result.other_optima) + 1, any(n.startswith(SOUGHT) for n in result.notes)
    lacks = result.adequacy is not None and result.adequacy.lacks
    equally = "fit the data equally badly" if lacks else "explain the data equally well"
    return f"{'at least ' * is_cut}{count} sets of values {equally}"


def _is_discretised(result: ResultData) -> bool:
    """Whether collocation alone stands behind the estimate: its integration failed."""
    return bool(result.points["fitted"].isna().any())


def named_or_counted(names: Sequence[str]) -> str:
    """The unknowns as in a sentence: their names, or of many their number."""
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} unknowns"


def _named(names: Sequence[str], count: int, what: str) -> str:
    if len(names) == count > 1:
        return f"{({2: 'both'}).get(count, f'all {count}')} {what}"
    return f"{', '.join(names) if len(names) <= MOST_NAMED else len(names)} {what}"


def _relative(p: Parameter) -> float:
    return p.error / abs(p.value) if p.value else math.inf


def _is_uncertain(p: Parameter) -> bool:
    """Whether the error is large beside the value, or beside the range where both signs may be.

    Also if the interval, of an estimate inside its bounds, ends at one.
    """
    low, high = p.bounds
    if _reaches_a_bound(p):
        return True
    if low < 0 < high and math.isfinite(high - low):
        return not math.isfinite(p.lower) or p.upper - p.lower > SURE * (high - low)
    # By profile, or with few degrees of freedom, intervals may be long beside standard errors.
    is_long = max(p.upper - p.value, p.value - p.lower) > LONG * abs(p.value)
    return is_long or not _relative(p) <= SURE


def _reaches_a_bound(p: Parameter) -> bool:
    low, high = p.bounds
    return (
        p.lower <= low or p.upper >= high or is_reached(p.lower, low) or is_reached(p.upper, high)
    )


def _poor(unknowns: Sequence[Parameter]) -> str:
    """That unknowns are uncertain, with their largest error if errors describe their intervals."""
    worst, most = 100 * max(map(_relative, unknowns)), "s up to" * (len(unknowns) > 1)
    is_described = not any(map(_is_wider, unknowns)) and worst < MOST_PERCENT
    size = f" (standard error{most} {float(f'{worst:.2g}'):g} %)" if is_described else ""
    return f"{_named([p.name for p in unknowns], 0, 'uncertain')}{size}"


def _is_wider(p: Parameter) -> bool:
    """Whether an interval ends at a bound or, by profile, is much longer than the error says."""
    is_wider = _reaches_a_bound(p) or p.upper - p.lower > WIDER * p.standard_error
    return is_wider or math.isnan(p.standard_error) or _relative(p) <= SURE


def _shared(result: ResultData, lost: Sequence[str]) -> tuple[list[str], set[str]]:
    """Functions of unknowns that are not determined by themselves, as `igpe.check` shows them."""
    parts, combined = [], set()
    for one in result.combined:
        if set(one.unknowns) <= set(lost) and not one.nothing:
            names = named_or_counted(one.unknowns)
            parts.append(f"{names} only {f'as {one.sentence}' if one.functions else COMBINED}")
            combined |= set(one.unknowns)
    return parts, combined


def _ratios(
    result: ResultData, plain: Sequence[Parameter], uncertain: Mapping[str, float]
) -> tuple[list[str], list[str], set[str]]:
    """Pairs of uncertain unknowns whose ratio or product is determined, by the covariance.

    uncertain  their relative errors
    returns    what is said of pairs that are known no other way, and of those whose members are
               roughly known by themselves; the unknowns of the former
    """
    only, besides, paired, used = [], [], set[str](), set[str]()
    free = [p.name for p in result.estimates[: len(result.covariance)]]
    known = {*free} - result.unprofiled
    unsure = [p for p in plain if p.name in uncertain and p.value and p.name in known]
    for one, other in combinations(unsure, 2):
        pair = {one.name, other.name}
        at = [free.index(one.name), free.index(other.name)]
        values = np.array([one.value, other.value])
        relative = result.covariance[np.ix_(at, at)] / np.outer(values, values)
        for sign, what in ((-1, "ratio"), (1, "product")):
            error = relative[0, 0] + relative[1, 1] + 2 * sign * relative[0, 1]
            if not error <= SURE**2 or used & pair:
                continue
            if pair & result.profiled and not _is_kept(one, other, sign):
                continue
            used |= pair
            if max(uncertain[n] for n in pair) <= UNKNOWN:
                besides.append(f"{what} of {one.name} and {other.name} determined")
            else:
                only.append(f"{one.name} and {other.name} only as a {what}")
                paired |= pair
    return only, besides, paired


def _is_kept(one: Parameter, other: Parameter, sign: int) -> bool:
    """Whether intervals by profile allow that a ratio (sign -1) or product (1) is determined.

    The covariance is that of the estimate alone. Where two unknowns keep their product, one is at
    its lower end where the other is at its upper end.
    """
    size = one.value * other.value**sign
    ends = (other.upper, other.lower)[::sign]
    pairs = list(zip((one.lower, one.upper), ends, strict=True))
    if not all(math.isfinite(e) and e for pair in pairs for e in pair):
        return False
    return all(1 / KEPT <= a * b**sign / size <= KEPT for a, b in pairs)


def _correlated(result: ResultData, known: Sequence[str]) -> list[str]:
    """Of the unknowns that are determined those that are linked, or else most correlated."""
    names = [p.name for p in result.estimates[: len(result.covariance)]]
    groups = [(list(members), "linked by active constraints") for members in result.linked]
    for members, value in strongly_correlated(result.covariance, result.linked):
        groups.append((members, f"strongly correlated ({value})"))
    for members, how in groups:
        own = [names[i] for i in members if names[i] in known]
        if len(own) > 1:
            own = own if len(own) <= MOST_NAMED else [f"{len(own)} of them"]
            return [f"{listed(own)} {how}"]
    return []


def _optimum(result: ResultData) -> Line:
    """How good the optimum is, from all that is known: the proof, the searches, the status."""
    proof, status = result.proof, result.status
    words, grade = f"{status.value[0].lower()}{status.value[1:].rstrip('.')}", "bad"
    if status in SEARCHED:
        if proof is not None and has_better(result, proof):
            words = f"not the best: igpe.certify reached a smaller {word(result)}"
        elif proof is not None and proof.closed:
            gap = max(relative_gap(result.objective, proof.lower_bound), 0.0)
            exact = f"gap {100 * gap:.2g} %" if proof.lower_bound > 0 else "the fit is exact"
            premise = " for these weights" * proof.holds_weights
            words, grade = f"proved best within the bounds{premise} ({exact})", "good"
        else:
            held = f"active: {in_words(result.active, SHOWN)}; " * bool(result.active)
            words, grade = f"{_agreement(result)}{held}{_unproved(result)}", "fair"
            if _is_discretised(result):
                words, grade = f"for the discretised model only: {words}", "bad"
    elif status is Status.NOTHING_TO_DO:
        grade = "good"
    elif status is Status.ITERATION_LIMIT and _is_discretised(result):
        words = "not reached: the model could not be integrated at the estimate"
    return Line("Optimum", words, grade)  # type: ignore[arg-type]


def agreement(result: ResultData) -> tuple[int, int, str]:
    """Return how many searches led to the estimate, of how many, and what they are called."""
    ends = [c.objective for c in result.candidates]
    same = [e for e in ends if is_same_objective(e, result.objective, rounding(result))]
    if len(ends) == 1 and len(starts := result.candidates[0].reached) > 1 and same:
        return agreeing(starts), len(starts), "starts"
    return len(same), len(ends), "searches"


def _agreement(result: ResultData) -> str:
    """How many searches led to the estimate, in words: a single one agrees with no other."""
    same, many, searches = agreement(result)
    if many <= 1:
        return "one search only; "
    if same == 1:
        return f"only 1 of {many} {searches} reached it; "
    only = "only " if 2 * same < many else ""
    return f"{only}{same} of {many} {searches} agree; "


def _unproved(result: ResultData) -> str:
    """That nothing is proved, and how to prove it where that can be tried."""
    if result.proof is not None:
        return "not proved: the proof was not finished"
    if result.criterion or result.unprovable:
        return "not proved"
    if result.spectral:
        return "not proved: igpe.certify does not support spectra"
    return "not proved: run igpe.certify(problem, result)"


def actions(result: ResultData) -> list[str]:
    """One sentence for each thing that the user should do."""
    lines = []
    if result.other_optima:
        advice = exchange_sentences(result) or ["Measure more, or narrow the bounds."]
        sets = f"{_several(result)} (see result.details)."
        lines.append(" ".join([f"{sets[0].upper()}{sets[1:]}", *advice]))
    if result.proof is not None and has_better(result, result.proof):
        lines.append(
            "igpe.certify reached better values. See result.details, and start a new fit from "
            "the better values."
        )
    lines += [a for a in result.actions if a.startswith(TOO_LARGE_SIGMA)]
    causes = [a for a in result.actions if a.startswith((PRIOR, START))]
    off = [a for a in result.actions if OUTLIER in a and not result.is_robust]
    if result.adequacy is not None and result.adequacy.lacks:
        first = result.adequacy.reasons[:1]
        then = "The intervals assume a correct model."
        lines += [*causes, *off, " ".join(filter(None, [*first, then, _improve(result, off)]))]
    lines += _measure(result)
    held = [p.name for p in result.estimates if MARKS[p.remark] == AT_BOUND]
    if held:
        what = named_or_counted(held)
        lines.append(f"At a bound: {what}. Widen bounds that are only guesses.")
    return [*lines, *(a for a in result.actions if a not in lines)]


def _improve(result: ResultData, off: Sequence[str]) -> str:
    """What to do about a lack of fit: outliers, a grid or an active constraint may be its cause.

    off  sentences on outliers
    """
    is_apart = not {"limit", "whitened", "sigma_estimated"} & {*result.points}
    if off:
        it = "it" if len(off) == 1 else "them"
        advice = f"correct {it} or leave {it} out."
        if is_apart:  # a robust loss is possible
            advice = f"correct {it}, leave {it} out, or write loss=igpe.losses.Huber()."
        outliers = "outlier" if len(off) == 1 else "outliers"
        return f"Check the {outliers} before you change the model: {advice}"
    is_known = any(a.startswith((TOO_COARSE, PRIOR, START)) for a in result.actions)
    if is_known or result.active:
        return ""
    if assumed := sorted({*result.points["name"][has_assumed_sigma(result.points)]}):
        return (
            f"Give the standard deviation of {in_words(assumed)}, which igpe assumed: a wrong one "
            "may be the cause. If it is not, improve the model."
        )
    reasons = "" if result.adequacy is None else " ".join(result.adequacy.reasons)
    is_repeated = result.points.duplicated(["experiment", "name", "time"]).any()
    if (
        CORRELATED in reasons
        and is_apart
        and not (result.is_robust or result.spectral or is_repeated)
    ):
        return (
            "Plot the residuals and improve the model, or write "
            "igpe.Experiment(..., correlation=igpe.losses.AR1())."
        )
    return "Plot the residuals and improve the model."


def _measure(result: ResultData) -> Iterator[str]:
    """What to measure for the unknowns that the measurements do not determine."""
    lost = [p.name for p in result.estimates if p.remark == "not determined by the data"]
    for one in result.combined:
        if one.measure and set(one.unknowns) & set(lost):
            which = " or ".join(listed(group) for group in one.measure[:3])
            what = listed(one.unknowns) if len(one.unknowns) <= MOST_NAMED else "them"
            besides = "" if " at more times" in which else " as well"
            yield f"Measure {which}{besides} to determine {what}."
            lost = [n for n in lost if n not in one.unknowns]
    if lost:
        separately = f"The measurements do not determine {listed(lost)} separately"
        yield from (note for note in result.notes if note.startswith(separately))
        what = named_or_counted(lost)
        fix = "Fix some of them" if len(lost) > 1 else "Fix it"
        yield f"Not determined: {what}. {fix}, or measure more (see igpe.check and igpe.design)."
