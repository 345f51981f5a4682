"""The answer: the estimates, how sure they are, what is proved, what to heed."""

from html import escape

from igpe.core.markup import bullets, table
from igpe.results.report.section import Section, wide
from igpe.results.result_data import ResultData
from igpe.results.result_text import estimates, fitness, other_tables, quality, verdict

UNPROVED = "Step 3 proved nothing: no unknown was estimated algebraically."


def answer(result: ResultData) -> Section:
    """All that a reader in a hurry needs."""
    heads, *rows = estimates(result)
    caption = f"Estimated unknowns, with {100 * result.confidence:g} % intervals"
    parts = (
        *(f'<p class="verdict">{escape(sentence)}</p>' for sentence in fitness(result)),
        f'<p class="verdict">{escape(verdict(result))}</p>',
        wide(table(heads, rows, caption), caption),
        *(wide(table(other[0], other[1:], title), title) for title, other in other_tables(result)),
        bullets(quality(result)),
        "<h3>What is proved</h3>",
        bullets(_proved(result)),
        "<h3>Worth knowing</h3>" if result.notes else "",
        bullets(result.notes),
    )
    return Section("The answer", "".join(parts))


def _proved(result: ResultData) -> list[str]:
    whole = [] if result.proof is None else [result.proof.sentence]
    return [*(c.sentence for c in result.certificates), *whole] or [UNPROVED]
