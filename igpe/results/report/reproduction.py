"""What is needed to get these numbers again."""

from igpe.core.markup import folded, paragraph, preformatted
from igpe.results.report.section import Section, wide_table
from igpe.results.result_data import ResultData
from igpe.results.result_text import number


def reproduction(result: ResultData) -> Section:
    """Bounds, seed, settings and versions."""
    words = (
        "The model, the measurements and what stands here give these numbers again, but for what a "
        f"time limit cut short. Seed of the search: {result.seed}."
    )
    bounds = [(p.name, *map(number, p.bounds), p.unit) for p in result.estimates]
    settings = folded("Settings", preformatted(result.settings)) if result.settings else ""
    return Section(
        "To reproduce this",
        paragraph(words)
        + wide_table(("unknown", "from", "to", "unit"), bounds, "Sought within")
        + settings
        + wide_table(("package", "version"), list(result.versions.items()), "Versions"),
    )
