"""Details of a result: errors, origins, proofs, times, other optima."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from igpe.core.arrays import connected
from igpe.core.box import is_reached
from igpe.core.markup import (
    aligned,
    bullets,
    counted,
    filled,
    listed,
    number,
    table,
    wide,
    with_texts,
)
from igpe.numerics.optima import is_same_objective
from igpe.results.residual_table import NOT_INTEGRATED
from igpe.results.result_data import Optimum, Parameter, ResultData, has_better, rounding

HEADS = ("", "value", "± standard error", "interval", "unit", "bounds", "")


@dataclass(frozen=True)
class Chapter:
    """One part of the details: a title, a table (heads and rows, or none), and sentences."""

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Details:
    """All information about a result except its verdict and its estimates.

    chapters  sections, in the order in which they are shown
    """

    chapters: tuple[Chapter, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of all chapters."""
        return tuple(s for chapter in self.chapters for s in chapter.sentences)

    @property
    def text(self) -> str:
        """Tables and sentences for a terminal."""
        return "\n\n".join("\n".join(_lines(chapter)) for chapter in self.chapters)

    @property
    def html(self) -> str:
        """Return the details as HTML, for notebooks and pages."""
        return "".join(
            f"<h3>{escape(c.title)}</h3>"
            + (wide(table(c.rows[0], c.rows[1:], c.title), c.title) if c.rows else "")
            + bullets(c.sentences)
            for c in self.chapters
        )

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html


def _lines(chapter: Chapter) -> Iterator[str]:
    yield chapter.title
    yield from (f"  {line}" for line in (aligned(chapter.rows) if chapter.rows else ()))
    yield from (filled(s, "  ", "    ") for s in chapter.sentences)


def details(result: ResultData) -> Details:
    """Return the chapters that are not empty."""
    chapters = (
        Chapter("Estimates", _rows(result.estimates), (*_origins(result), *intervals(result))),
        *_others(result),
        Chapter("Fit", sentences=tuple(fit(result))),
        Chapter("Search", sentences=tuple(_search(result))),
        Chapter("Proofs", sentences=tuple(proofs(result))),
        Chapter("Remarks", sentences=result.notes),
        Chapter("Time", sentences=tuple(_time(result))),
    )
    return Details(tuple(c for c in chapters if len(c.rows) > 1 or c.sentences))


def word(result: ResultData) -> str:
    """Name of the objective."""
    return "objective" if result.criterion or result.other_priors else "sum of squares"


def _others(result: ResultData) -> Iterator[Chapter]:
    """Every other set of values that explains the data as well as chance allows."""
    count = len(result.other_optima) + 1
    for k, other in enumerate(result.other_optima, 2):
        title = f"Set {k} of {count} sets that explain the data equally well: {word(result)} "
        yield Chapter(f"{title}{other.objective:.6g}", _rows(other.estimates))
    own = "Each interval applies only to the set in which it is listed."
    if result.profiled:
        own = (
            "Each linearised interval applies only to the set in which it is listed. Profile "
            "likelihood intervals may extend into other sets."
        )
    if count > 1:
        advice = exchange_sentences(result) or [
            "Other measurements, or narrower bounds, can distinguish the sets."
        ]
        yield Chapter(
            "Sets of values",
            sentences=(
                f"The first of {count} sets has the {word(result)} {result.objective:.6g}. The "
                "other sets fit almost as well: a likelihood ratio test does not reject them.",
                " ".join([own, *advice]),
                "Where igpe can count them, igpe.check(problem) reports how many sets would remain "
                "with perfect measurements.",
            ),
        )


def _rows(estimated: Sequence[Parameter]) -> tuple[tuple[str, ...], ...]:
    return tuple(zip(*with_texts([HEADS, *map(_cells, estimated)]), strict=True))


def _origins(result: ResultData) -> Iterator[str]:
    """Describe how each value was first obtained."""
    origins: dict[str, list[str]] = {}
    for p in result.estimates:
        origins.setdefault(p.found_by, []).append(p.name)
    for origin, names in origins.items():
        how = origin if origin == "held" else f"first estimated by {origin}"
        yield f"{', '.join(names)}: {how}."


def _cells(p: Parameter) -> tuple[str, ...]:
    value, *ends = p.texts
    return (
        p.name,
        value,
        f"± {p.error:.2g}" if math.isfinite(p.standard_error) and not p.remark else "",
        f"[{', '.join(ends)}]" if ends else "",
        p.unit,
        f"[{number(p.bounds[0])}, {number(p.bounds[1])}]",
        p.remark,
    )


def fit(result: ResultData) -> Iterator[str]:
    """Describe how well the model fits, and by which measure."""
    if result.adequacy is not None:
        yield result.adequacy.sentence
    weighted = result.points["sigma"].notna().any()
    words = result.criterion or ("Weighted sum of squares" if weighted else "Sum of squares")
    is_apart = bool(result.other_priors) and not result.criterion
    size = result.squares if is_apart else result.objective
    total = f"{words} {size:.6g} over {result.measurements} measurements"
    if result.adequacy is not None and NOT_INTEGRATED in result.adequacy.reasons:
        yield f"{total}."  # no derivatives say how many unknowns count
        return
    yield f"{total}, {counted(result.degrees, 'degree')} of freedom."
    if result.other_priors:
        yield (
            f"Objective {result.objective:.6g}: it contains minus twice the logarithms of the "
            f"prior densities of {', '.join(result.other_priors)}, which are not normal. Chi "
            "squared has no known distribution then."
        )
    elif math.isfinite(result.probability):
        yield (
            f"Chi squared per degree of freedom {result.reduced_chi_squared:.3g}; if the model "
            "and the standard deviations are correct, a larger value has probability "
            f"{result.probability:.2g}."
        )
    elif result.relative_sigma:  # each quantity has its own, which a remark says
        return
    elif not result.criterion and math.isfinite(result.variance):
        spread = math.sqrt(result.variance)
        yield f"Standard deviation of a residual, estimated from the residuals: {spread:.3g}."
    elif not result.criterion:
        yield (
            "Standard errors are not available: there are at least as many unknowns as "
            "measurements."
        )


def intervals(result: ResultData) -> Iterator[str]:
    """Describe the intervals and their assumptions."""
    if not any(math.isfinite(p.lower) and not p.remark for p in result.estimates):
        return
    cut = any(
        not p.remark
        and math.isfinite(p.upper - p.lower)
        and (p.lower <= p.bounds[0] or p.upper >= p.bounds[1])
        for p in result.estimates
    )
    one_sided = any(p.remark and math.isnan(p.standard_error) for p in result.estimates)
    words = ["cut at the bounds"] * cut + ["one-sided at active constraints"] * one_sided
    more = f", {' and '.join(words)}" if words else ""
    names = {p.name for p in result.estimates if math.isfinite(p.lower)}
    how = (
        "linearised, except for those from profile likelihood" if result.profiled else "linearised"
    )
    how = "by profile likelihood" if names <= result.profiled else how
    contradicted = result.adequacy is not None and result.adequacy.lacks
    warning = " The intervals assume that the model is correct, but the residuals contradict this."
    yield f"Intervals: {100 * result.confidence:g} %, {how}{more}.{warning * contradicted}"


def _search(result: ResultData) -> Iterator[str]:
    """Describe how the search ended, and the result of every search."""
    yield result.status.value
    # An optimum that several searches reach with different integrators has one value.
    ends = [
        result.objective
        if is_same_objective(c.objective, result.objective, rounding(result))
        else c.objective
        for c in result.candidates
    ]
    if len(ends) > 1:
        written = [number(e) if math.isfinite(e) else "no fit" for e in ends]
        if len(set(written)) == 1:
            every = f"All {len(ends)}" if ends[2:] else "Both"
            yield f"{every} searches ended at the {word(result)} {written[0]}."
            return
        values = ", ".join(written)
        yield f"The {len(ends)} searches ended at these values of the {word(result)}: {values}."


def proofs(result: ResultData) -> Iterator[str]:
    """Describe the proofs of the algebraic problems and of the dynamic one."""
    yield from (f"Step 3: {c.sentence}" for c in result.certificates)
    if result.proof is None:
        run = "Run igpe.certify(problem, result) to try to prove it."
        why = result.unprovable or (
            "Let igpe.estimate finish first." if result.status.is_early else run
        )
        yield f"The fit to the measurements is not proved to be the best. {why}"
        return
    yield result.proof.sentence
    if has_better(result, result.proof):
        pairs = zip(result.proof.unknowns, result.proof.parameters, strict=True)
        values = ", ".join(f"'{n}': {number(v)}" for n, v in pairs)
        least = f"{word(result)} {result.proof.objective:.6g}"
        yield f"igpe.certify reached the {least} at {{{values}}}."


def _time(result: ResultData) -> Iterator[str]:
    whole = sum(result.seconds.values())
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in result.seconds.items())
    yield f"{whole:.1f} s" + (f": {steps}." if steps else ".")


EQUAL = 1e-4  # relative difference of a value that two unknowns exchange, found by two searches


def exchange_sentences(result: ResultData) -> list[str]:
    """Sentences on unknowns that exchange their values; none where no set does this.

    Spectra are none: with other rate constants, the pure spectra of the species change as well.
    """
    moves = [] if result.spectral else [_moves(result, k) for k in range(len(result.other_optima))]
    names = [name for name in result.parameters if any(name in move for move in moves)]
    if not names:
        return []
    links = [{n} for n in names] + [{a, b} for move in moves for a, b in move.items()]
    first, *others = [sorted(part, key=names.index) for part in connected(links)]
    so_do = "".join(f", and so do {listed(other)}" for other in others)
    pairs = zip(result.other_optima, moves, strict=True)
    changed = {n for other, move in pairs if move for n in _moved(result, other)} - {*names}
    beside = listed([n for n in result.parameters if n in changed])
    beside = f", with other values of {beside}" if changed else ""
    one, other, *_ = first
    is_plain = one.isidentifier() and other.isidentifier()
    order = f"a constraint (m.{one} >= m.{other}) or by bounds" if is_plain else "bounds"
    rest = "Measure more, or narrow the bounds, to tell the other sets apart."
    return [
        f"Between sets, {listed(first)} exchange their values{so_do}{beside}.",
        "More measurements of the same quantities cannot tell these sets apart.",
        f"Measure another quantity, or give the order by {order}.",
        *[rest] * (not all(moves)),
    ]


def _moves(result: ResultData, number: int) -> Mapping[str, str]:
    """Unknown -> the one whose value it has in another set; empty if that is no exchange.

    Others may have any value there, but values on bounds may be the same by chance.
    """
    other = result.other_optima[number]
    most = EQUAL * abs(result.objective)
    if not is_same_objective(result.objective, other.objective, rounding(result), most):
        return {}
    here, moved = result.parameters, _moved(result, other)
    left, moves = list(moved), {}
    for name, value in moved.items():
        source = next((n for n in left if _is_equal(here[n], value)), None)
        if source is not None:
            left.remove(source)
            moves[name] = source
    while moves.keys() != (closed := moves.keys() & moves.values()):
        moves = {n: source for n, source in moves.items() if n in closed and source in closed}
    bounds = [(here[p.name], end) for p in other.estimates if p.name in moves for end in p.bounds]
    by_chance = moves.keys() != moved.keys() and any(is_reached(*one) for one in bounds)
    return {} if by_chance else moves


def _moved(result: ResultData, other: Optimum) -> dict[str, float]:
    """The values in another set that are not those of the result."""
    here = result.parameters
    return {n: v for n, v in other.parameters.items() if not _is_equal(v, here[n])}


def _is_equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))
