"""The findings of structure analysis in words, as a table, and as HTML."""

from collections.abc import Sequence

import pandas as pd

from igpe.core.markup import in_words, listed, paragraph, table
from igpe.structure.combinations import IdentifiableCombination
from igpe.structure.identifiability import Access, Finding, Identifiability, Identifiable
from igpe.structure.subsystems import SlopeGroup, Surplus

PAIR = 2
MOST_NAMED = 8  # a longer list is cut: nobody reads it in a sentence


MOST_LINES = 24  # a page of a terminal: more unknowns are counted by kind
DETAILS = "For one row per unknown, with what else to measure: igpe.check(problem).to_frame()."


def text(findings: Sequence[Finding], remarks: Sequence[str]) -> str:
    """One line per unknown, or per kind of very many, then the remarks."""
    if len(findings) > MOST_LINES:
        kinds = [f"  {len(own)} {kind}: {in_words(own)}" for kind, own in _kinds(findings).items()]
        lines = [f"{len(findings)} unknowns:", *kinds, DETAILS]
        return "\n".join([*lines, *_shared(findings), *remarks])
    width = max((len(f.unknown) for f in findings), default=0)
    lines = [f"{f.unknown:<{width}}  {sentence(f)}" for f in findings]
    return "\n".join([*(lines or ["No unknowns are free."]), *_shared(findings), *remarks])


def _kinds(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Unknowns by how they are reached and what the test says of them."""
    result: dict[str, list[str]] = {}
    for one in findings:
        form = f" ({one.form.value})" if one.form else ""
        sure = _judged(one).replace(" Only", "; only").rstrip(".")
        result.setdefault(f"{one.reach.value}{form}{sure}", []).append(one.unknown)
    return result


def html(findings: Sequence[Finding], remarks: Sequence[str]) -> str:
    """A table for notebooks."""
    rows = [(f.unknown, f.reach.name.lower(), sentence(f)) for f in findings]
    below = "".join(paragraph(line) for line in [*_shared(findings), *remarks])
    return table(("unknown", "reach", "how"), rows) + below


def frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """One row per unknown, indexed by its name."""
    several = {0: "undecided", 1: "yes"}
    rows = {
        f.unknown: {
            "reach": f.reach.name.lower(),
            "states": ", ".join(f.states),
            "equations": ", ".join(f.equations),
            "form": f.form.value if f.form else "",
            "measure": _sets(f.measure),
            "identifiable": f.verdict.value,
            "globally": several.get(f.values, f"up to {f.values} values")
            * (f.verdict is Identifiable.YES),
            "determined": ", ".join(f.shared.functions) if f.shared else "",
            "freeing": _sets(f.freeing),
        }
        for f in findings
    }
    columns = list(next(iter(rows.values()), []))
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns, dtype=object).rename_axis(
        index="unknown"
    )


def _sets(options: Sequence[tuple[str, ...]]) -> str:
    return " or ".join(", ".join(one) for one in options)


def sentence(finding: Finding) -> str:
    """What an engineer must know about one unknown."""
    return f"{_reached(finding)}{_judged(finding)}"


def _judged(finding: Finding) -> str:
    """How sure the unknown is, as the end of a sentence."""
    if finding.reach is Access.UNREACHABLE:
        return " Only the prior constrains this unknown." * finding.prior
    if finding.verdict is Identifiable.UNDECIDED:
        return ""
    if finding.values > 1:
        return f"; locally identifiable, with up to {finding.values} values"
    scope = (
        "" if finding.verdict is Identifiable.NO else "globally " if finding.values else "locally "
    )
    return f"; {scope}{finding.verdict.value}"


def _reached(finding: Finding) -> str:
    """How the measurements reach the unknown, and what else to measure."""
    equations = _named("equation", finding.equations)
    more = besides(finding.measure) if finding.measure else ""
    if finding.reach is Access.ALGEBRAIC:
        form = f" ({finding.form.value})" if finding.form else ""
        return f"from the {_named('slope', finding.states, ' of')}: {equations}{form}"
    if finding.reach is Access.SMOOTHING:
        return f"start value, from the smoothed measurements of {in_words(finding.states)}"
    if finding.reach is Access.UNREACHABLE:
        more = more.removesuffix(" as well")
        visible = f"measured quantity depends on it. Measuring {more} would make it identifiable."
        return f"not identifiable: no {visible if more else 'equation contains it.'}"
    if finding.implicit:
        return (
            f"estimated from the dynamics (step 4): {equations} would determine the unknown, but "
            f"{in_words(finding.implicit)} cannot be written in closed form"
        )
    if finding.switches:
        return "estimated from the dynamics (step 4)"  # `Structure.switching` says why, once
    wish = f"; measuring {more} would allow a direct estimate (step 3)" * bool(more)
    return f"estimated from the dynamics (step 4){wish}"


def remarks(
    groups: Sequence[SlopeGroup], surplus: Sequence[Surplus], exact: Identifiability
) -> list[str]:
    """Decoupling, superfluous equations, and how sure the verdicts on identifiability are."""
    lines = []
    if len(groups) > 1:
        parts = [", ".join(g.parameters[:MOST_NAMED]) for g in groups[:MOST_NAMED]]
        more = ["..."] * (len(groups) > MOST_NAMED)
        lines = [f"{len(groups)} independent problems: {' | '.join([*parts, *more])}"]
    # The same in several experiments is said once.
    lines += dict.fromkeys(_superfluous(one) for one in surplus)
    for one in exact.alternatives:
        several = "sets of " * (len(one.unknowns) > 1)
        same = f"; the following are the same for all these {several}values: "
        same = f"{same}{', '.join(one.functions)}" * bool(one.functions)
        number = f"{one.number} {several}"
        names = _both(one.unknowns)
        has = "have" if len(one.unknowns) > 1 else "has"
        lines.append(f"{names} {has} up to {number}values that give the same measurements{same}")
    return [*lines, *_certainty(exact)]


def _superfluous(one: Surplus) -> str:
    """What equations say beyond what is needed to compute variables."""
    names = _named("equation", one.equations)
    if one.parameters:
        unused = in_words(one.parameters[:MOST_NAMED]) + ", ..." * (
            len(one.parameters) > MOST_NAMED
        )
        why, their = "outnumber their unmeasured variables", "their"
        if len(one.equations) == 1:
            why, their = "relates only known variables", "its"
        return (
            f"{names} {why}, so the measurements constrain {their} unknowns without any slope, "
            f"which step 3 does not use: {unused}"
        )
    if len(one.equations) == 1:
        return f"{names} relates only known variables; step 3 does not need it"
    return f"step 3 does not need {one.needless} of the equations {in_words(one.equations)}"


def _shared(findings: Sequence[Finding]) -> list[str]:
    """One line for unknowns that cannot be told apart: what is known of them, what frees them."""
    result: dict[IdentifiableCombination, list[Finding]] = {}
    for finding in findings:
        if finding.shared and finding.reach is not Access.UNREACHABLE:
            result.setdefault(finding.shared, []).append(finding)
    return [f"{_determined(shared)}{_freeing(own)}" for shared, own in result.items()]


def _determined(shared: IdentifiableCombination) -> str:
    names = in_words(shared.unknowns)
    if shared.nothing:
        return f"{names}: the data contain no information about them"
    number = len(shared.unknowns) - shared.directions
    known = "one combination" if number == 1 else f"{number} combinations"
    if shared.functions:
        is_mixed = any("c*" in f and "exp" in f for f in shared.functions)
        known = _both(shared.functions) + " (c is known)" * is_mixed
    return f"{names}: the data can determine only {known}"


def _freeing(own: Sequence[Finding]) -> str:
    """By measuring what all of them become identifiable, or else each."""
    sets = {f.unknown: f.freeing for f in own if f.freeing}
    if len(set(sets.values())) == 1 and len(sets) == len(own):
        return f"; measuring {besides(own[0].freeing)} would make them identifiable"
    return "".join(f"; measuring {besides(v)} would make {n} identifiable" for n, v in sets.items())


def _certainty(exact: Identifiability) -> list[str]:
    """How sure the verdicts are, and what is known of other values of what is identifiable."""
    if exact.why:
        return [f"Identifiability is undecided: {exact.why}."]
    if not exact.verdicts or not (exact.orders or exact.numerical):
        return []  # it was not tested
    lines = [f"Scope of the identifiability test: structural and local ({_how(exact)})."]
    if exact.integrated:
        lines.append(
            f"The verdicts on {in_words(exact.integrated)} follow from the numerical rank of "
            "integrated sensitivities; they are not proved."
        )
    if undecided := exact.names(Identifiable.UNDECIDED):
        why = "They are not identifiable at the points tried, but may be identifiable at others."
        if not exact.numerical:
            why = (
                f"Taylor series with {exact.orders} terms are too short for a verdict, and "
                "integration gives no clear answer either."
            )
        lines.append(f"Undecided at these start values and inputs: {in_words(undecided)}. {why}")
    if set(exact.values) - exact.unique:
        lines.append(
            "igpe counted the possible values with Gröbner bases at four random points; all four "
            "points gave the same counts. These counts are not proved, and they include complex "
            "values."
        )
    several = [n for n in exact.names(Identifiable.YES) if n not in exact.values]
    if several and not exact.numerical:
        why = f": {exact.why_not}" * bool(exact.why_not)
        lines.append(f"Global identifiability of {in_words(several)} is undecided{why}.")
    return lines


def _how(exact: Identifiability) -> str:
    """By which means, and under which premises."""
    if exact.numerical:
        return "numerical rank, not proved"
    # A full rank cannot come about by chance.
    is_proved = not exact.doubtful and not exact.names(Identifiable.NO)
    premises = {
        f"exact rank{', proved' if is_proved else ' at random points'}": True,
        f"{', '.join(exact.beyond)} by differential equation": exact.beyond,
        "for nearly all durations of the experiments": exact.breaks,
        f"{in_words(exact.left_out)} left out": exact.left_out,
        "given start values are treated as arbitrary": exact.generic,
    }
    return "; ".join(words for words, holds in premises.items() if holds)


def _named(noun: str, names: Sequence[str], link: str = "") -> str:
    return f"{noun}{'s' * (len(names) != 1)}{link} {in_words(names)}"


def besides(options: Sequence[tuple[str, ...]]) -> str:
    """Sets of what to measure besides what is measured: x1 as well; x1 at more times."""
    words = either(options)
    return words if " at more times" in words else f"{words} as well"


def either(options: Sequence[tuple[str, ...]]) -> str:
    """Sets as text: x1, x2 or x3; with pairs: x1 and x2, or x3 and x4. Larger: semicolons."""
    words = [_both(option) for option in options[:MOST_NAMED]]
    if len(options) > MOST_NAMED:
        words.append(f"one of {len(options) - MOST_NAMED} more")
    if len(words) == 1:
        return words[0]
    largest = max(map(len, options[:MOST_NAMED]))
    mark, last = ("; ", "; or ") if largest > PAIR else (", ", ", or " if largest > 1 else " or ")
    return mark.join(words[:-1]) + last + words[-1]


def _both(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMED else in_words(names)
