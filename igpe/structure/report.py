"""The findings of structure analysis in words, as a table, and as HTML."""

from collections.abc import Sequence
from math import ceil, log10

import pandas as pd

from igpe.core.markup import paragraph, table
from igpe.structure.identifiability.alternatives import Alternatives
from igpe.structure.identifiability.combinations import IdentifiableCombination
from igpe.structure.identifiability.identifiability import (
    Access,
    Finding,
    Identifiability,
    Identifiable,
)
from igpe.structure.subsystems import SlopeGroup, Surplus

MOST_NAMED = 8  # a longer list is cut: nobody reads it in a sentence


def text(findings: Sequence[Finding], remarks: Sequence[str]) -> str:
    """One line per unknown, then the remarks."""
    width = max((len(f.unknown) for f in findings), default=0)
    lines = [f"{f.unknown:<{width}}  {sentence(f)}" for f in findings]
    return "\n".join([*(lines or ["No unknowns are free."]), *_shared(findings), *remarks])


def sentence(finding: Finding) -> str:
    """What an engineer must know about one unknown."""
    words = _WORDS[finding.reach](finding)
    if finding.prior and finding.reach is Access.UNREACHABLE:
        words += " All that is known of it is its prior."
    return words + _identifiable(finding)


def remarks(
    groups: Sequence[SlopeGroup], surplus: Sequence[Surplus], exact: Identifiability
) -> list[str]:
    """Decoupling, superfluous equations, and how sure the verdicts on identifiability are."""
    return [
        *_decoupling(groups),
        *_superfluous(surplus),
        *_several(exact.alternatives),
        *_certificate(exact),
        *_undecided(exact),
    ]


def frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """One row per unknown, indexed by its name."""
    table = pd.DataFrame(
        {
            "reach": [f.reach.name.lower() for f in findings],
            "states": [", ".join(f.states) for f in findings],
            "equations": [", ".join(f.equations) for f in findings],
            "form": [f.form.value if f.form else "" for f in findings],
            "measure": [_sets(f.measure) for f in findings],
            "identifiable": [f.verdict.value for f in findings],
            "globally": [_globally(f) for f in findings],
            "determined": [", ".join(f.shared.functions) if f.shared else "" for f in findings],
            "freeing": [_sets(f.freeing) for f in findings],
        },
        index=pd.Index([f.unknown for f in findings], name="unknown"),
    )
    return table.astype(object)


def html(findings: Sequence[Finding], remarks: Sequence[str]) -> str:
    """A table for notebooks."""
    rows = [(f.unknown, f.reach.name.lower(), sentence(f)) for f in findings]
    below = "".join(paragraph(line) for line in [*_shared(findings), *remarks])
    return table(("unknown", "reach", "how"), rows) + below


def _sets(options: Sequence[tuple[str, ...]]) -> str:
    return " or ".join(", ".join(one) for one in options)


def _identifiable(finding: Finding) -> str:
    """What follows the sentence on how an unknown is reached."""
    if finding.verdict is Identifiable.UNDECIDED or finding.reach is Access.UNREACHABLE:
        return ""  # what nothing measured depends on is called so
    if finding.values > 1:
        return f"; locally identifiable: up to {finding.values} values"
    return f"; {'globally ' * finding.unique}{finding.verdict.value}"


def _globally(finding: Finding) -> str:
    if finding.verdict is not Identifiable.YES:
        return ""
    return {0: "undecided", 1: "yes"}.get(finding.values, f"up to {finding.values} values")


def _several(alternatives: Sequence[Alternatives]) -> list[str]:
    """One line for unknowns that change together."""
    return [
        f"{_both(one.unknowns)} have up to {one.number} {'sets of ' * (len(one.unknowns) > 1)}"
        "values that give the same measurements"
        + f"; the same for all: {', '.join(one.functions)}"
        * bool(one.functions)
        for one in alternatives
    ]


def _shared(findings: Sequence[Finding]) -> list[str]:
    """One line for unknowns that cannot be told apart: what is known of them, what frees them."""
    result: dict[IdentifiableCombination, list[Finding]] = {}
    for finding in findings:
        if finding.shared and finding.reach is not Access.UNREACHABLE:
            result.setdefault(finding.shared, []).append(finding)
    return [f"{_determined(shared)}{_freeing(own)}" for shared, own in result.items()]


def _determined(shared: IdentifiableCombination) -> str:
    names = _cut(shared.unknowns)
    if shared.nothing:
        return f"of {names} nothing can be determined"
    if shared.functions:
        known = " (c is known)" * any("c*" in f and "exp" in f for f in shared.functions)
        return f"of {names} only {_both(shared.functions)}{known} can be determined"
    number = len(shared.unknowns) - shared.directions
    word = "one combination" if number == 1 else f"{number} combinations"
    return f"of {names} only {word} can be determined"


def _freeing(own: Sequence[Finding]) -> str:
    """By measuring what all of them become identifiable, or else each."""
    sets = {f.unknown: f.freeing for f in own if f.freeing}
    if len(set(sets.values())) == 1 and len(sets) == len(own):
        return f"; measuring {_either(own[0].freeing)} as well would free them"
    return "".join(f"; measuring {_either(v)} as well would free {n}" for n, v in sets.items())


def _certificate(exact: Identifiability) -> list[str]:
    if exact.why:
        return [f"Identifiability is undecided: {exact.why}."]
    if not exact.verdicts or not (exact.orders or exact.numerical):
        return []  # it was not tested
    lines = [f"Identifiability is structural and local ({_how(exact)})."]
    if exact.integrated and not exact.numerical:
        lines.append(
            f"Verdicts on {_cut(exact.integrated)}: numerical rank of integrated sensitivities, "
            "not proved."
        )
    if exact.open:
        lines.append(
            f"Undecided at these start values and inputs: {_cut(exact.open)}. Series of "
            f"{exact.orders} orders do not show it, and integrations give no clear answer."
        )
    return lines


def _how(exact: Identifiability) -> str:
    """By which means, and under which premises."""
    if exact.numerical:
        return "numerical rank, not proved"
    sure = ["exact rank"]
    if exact.chance:
        sure.append(f"wrong with probability < 1e{ceil(log10(exact.chance)):+03d}")
    elif not exact.doubtful:
        sure.append("proved")
    parts = [", ".join(sure)]
    if exact.beyond:
        parts.append(f"{', '.join(exact.beyond)} by differential equation")
    if exact.breaks:
        parts.append("for nearly all durations of the experiments")
    if exact.left_out:
        parts.append(f"{_cut(exact.left_out)} left out")
    if exact.generic:
        parts.append("start values that were given are taken as any")
    return "; ".join(parts)


def _undecided(exact: Identifiability) -> list[str]:
    """What is known of other values of what is identifiable."""
    yes = exact.names(Identifiable.YES)
    open_ = [n for n in yes if n not in exact.values]
    lines = []
    if set(exact.values) - exact.unique:
        lines = [
            "Numbers of values: by Groebner bases, alike at four random points, not proved; "
            "complex ones count."
        ]
    if open_ and not exact.numerical:
        why = f": {exact.why_not}" * bool(exact.why_not)
        lines.append(f"Globally undecided are {_cut(open_)}{why}.")
    return lines


def _algebraic(finding: Finding) -> str:
    form = f" ({finding.form.value})" if finding.form else ""
    slopes = _count("the slope", finding.states)
    return f"from {slopes} of {_cut(finding.states)}: {_named('equation', finding.equations)}{form}"


def _smoothing(finding: Finding) -> str:
    return f"from the smoothed measurements of {_cut(finding.states)}, as a start value"


def _dynamic(finding: Finding) -> str:
    if finding.implicit:
        return (
            f"only on the dynamics: {_named('equation', finding.equations)} would give it, but "
            f"{_cut(finding.implicit)} cannot be written in closed form"
        )
    why = "only on the dynamics: no equations that stand alone contain it"
    if not finding.measure:
        return why
    return f"{why}; measuring {_either(finding.measure)} as well would make it algebraic"


def _unreachable(finding: Finding) -> str:
    if not finding.measure:
        return "not identifiable: no equation contains it."
    return (
        "not identifiable: no measured quantity depends on it. "
        f"Measuring {_either(finding.measure)} would free it."
    )


_WORDS = {
    Access.ALGEBRAIC: _algebraic,
    Access.SMOOTHING: _smoothing,
    Access.DYNAMIC: _dynamic,
    Access.UNREACHABLE: _unreachable,
}


def _decoupling(groups: Sequence[SlopeGroup]) -> list[str]:
    if len(groups) < 2:  # noqa: PLR2004 - one alone is not decoupled
        return []
    parts = [", ".join(g.parameters[:MOST_NAMED]) for g in groups[:MOST_NAMED]]
    more = ["..."] if len(groups) > MOST_NAMED else []
    return [f"{len(groups)} independent problems: {' | '.join([*parts, *more])}"]


def _superfluous(surplus: Sequence[Surplus]) -> list[str]:
    """The same in several experiments is said once."""
    lines = [
        f"{_named('equation', one.equations)} not needed: all in it is known"
        if len(one.equations) == 1
        else f"{one.needless} of the equations {_cut(one.equations)} not needed: they overlap"
        for one in surplus
    ]
    return list(dict.fromkeys(lines))


def _named(noun: str, names: Sequence[str]) -> str:
    return f"{_count(noun, names)} {_cut(names)}"


def _count(noun: str, names: Sequence[str]) -> str:
    return noun if len(names) == 1 else f"{noun}s"


def _cut(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _either(options: Sequence[tuple[str, ...]]) -> str:
    """x1, x2 or x3; with pairs: x1 and x2, or x3 and x4."""
    words = [_both(option) for option in options[:MOST_NAMED]]
    if len(options) > MOST_NAMED:
        words.append(f"one of {len(options) - MOST_NAMED} more")
    if len(words) == 1:
        return words[0]
    last = ", or " if any(len(option) > 1 for option in options) else " or "
    return ", ".join(words[:-1]) + last + words[-1]


def _both(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{_cut(names[:-1])} and {names[-1]}"
