"""What the measurements can tell: the report of step 2, and the correlation of the estimates."""

from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from igpe.core.markup import paragraph
from igpe.results.plots.structure_map import draw, size
from igpe.results.report.pictures import figure, gallery
from igpe.results.report.section import Section, frame_table, wide, wide_table
from igpe.results.result_data import ResultData

MAP = "Which equations give what"


def identifiability(result: ResultData) -> Section:
    """How each unknown is reached, and which estimates move together."""
    told = _structure(result) + _maps(result)
    told += _correlation(result.correlation) + _combinations(result)
    return Section("Identifiability", told)


def _structure(result: ResultData) -> str:
    """Lines that begin with an unknown are rows; the others are remarks on all of them."""
    lines = [line.partition("  ") for line in result.structure.splitlines()]
    rows = [(name, said.strip()) for name, _, said in lines if name in result.parameters and said]
    told = ["".join(line) for line in lines if line[0] not in result.parameters or not line[2]]
    caption = "How the measurements reach each unknown"
    return wide_table(("unknown", "how"), rows, caption) + "".join(map(paragraph, told))


def _maps(result: ResultData) -> str:
    """One picture for each structure, as large as its names need."""
    if not result.maps:
        return ""
    words = (
        "Rows are equations, columns what is unknown in them, what is measured, and the "
        "parameters. Framed blocks are solved one after the other, from the top; the last rows "
        "say which slopes and starts tell of which parameters."
    )
    drawn = [
        wide(figure(f"Equations of {one.title}", one.words, partial(draw, one), size(one)), MAP)
        for one in result.maps
    ]
    return f"<h3>{MAP}</h3>{paragraph(words)}{gallery(drawn, in_grid=False)}"


def _correlation(table: pd.DataFrame) -> str:
    known = [str(n) for n in table.index[np.isfinite(np.diag(table))]]
    values = table.loc[known, known].to_numpy(dtype=float)
    pairs = [(known[i], known[j], values[i, j]) for i, j in combinations(range(len(known)), 2)]
    if not pairs:
        return ""
    one, other, value = max(pairs, key=lambda pair: abs(pair[2]))
    words = f"The strongest correlation of two estimates is that of {one} and {other}: {value:.3f}."
    texts = table.loc[known, known].map(lambda r: f"{r:z.2f}").rename_axis("").reset_index()
    return paragraph(words) + frame_table(texts, "Correlation of the estimates")


def _combinations(result: ResultData) -> str:
    table = result.combinations()
    if len(table) < 2:  # noqa: PLR2004 - one unknown combines with nothing
        return ""
    texts = table.map(lambda v: f"{v:.3g}").drop(columns="standard_error")
    texts.insert(0, "relative standard error", [f"{v:.3g}" for v in table["standard_error"]])
    caption = "Relative changes of the unknowns, the poorest determined together first"
    return frame_table(texts, caption)
