"""The map of a model's structure: only names and places, so results and reports can store it.

Rows are equations, columns what is unknown in them once the measured states are known (Michalik et
al. 2009, IGPE, eq. 4), in the order of Dulmage and Mendelsohn: read from the top, each block's
unknowns follow from the blocks above it, until there are more unknowns than equations.
"""

from dataclasses import dataclass
from typing import NamedTuple

from igpe.core.markup import counted
from igpe.core.names import in_words

OVER, SQUARE, UNDER = "overdetermined", "square", "underdetermined"
DYNAMIC = "left to the dynamics"
ALGEBRAIC = ("algebraic", "smoothing")  # reached without the dynamics
LAST = {"dynamic": "Only from the dynamics", "unreachable": "Cannot be estimated"}
MOST_NAMED = 12  # names in a sentence, and sentences of one kind


class MapPart(NamedTuple):
    """Neighbouring rows and columns of one kind, each from the first to behind the last."""

    kind: str
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def sentence(self) -> str:
        """What it is, with its size."""
        equations = counted(self.rows[1] - self.rows[0], "equation")
        if self.kind == DYNAMIC:
            return f"{self.kind}: {equations}"
        return f"{self.kind}: {equations}, {counted(self.columns[1] - self.columns[0], 'unknown')}"


class MapBlock(NamedTuple):
    """Equations that must be solved together: first row, first column, how many of each."""

    row: int
    column: int
    size: int


class MapSource(NamedTuple):
    """Parameters on which a slope or start value depends.

    name        "slope of A", predicted by algebra, or "start of A"
    parameters  places among those of the map
    """

    name: str
    parameters: tuple[int, ...]


@dataclass(frozen=True)
class StructureMap:
    """Equations, and the quantities that remain to be computed from the measurements.

    experiments  names of the experiments with these equations
    equations    names of the rows; unknowns: names of the columns, in the order of the picture
    measured     states and variables that are known
    parameters   free unknowns of the problem in these experiments, without "@experiment"
    reach        how each parameter can be estimated: "algebraic", "smoothing", "dynamic" or
                 "unreachable"
    entries      (row, column) pairs: this equation contains this unknown
    known        (row, place among `measured`);  uses: (row, place among `parameters`)
    parts        from the top
    blocks       blocks of the block triangular form; equations that can be solved one by one form
                 blocks of size 1
    sources      slopes that are predicted, with the parameters estimated from them; start values,
                 with the parameters in them, however these are reached
    """

    experiments: tuple[str, ...]
    equations: tuple[str, ...]
    unknowns: tuple[str, ...]
    measured: tuple[str, ...]
    parameters: tuple[str, ...]
    reach: tuple[str, ...]
    entries: tuple[tuple[int, int], ...]
    known: tuple[tuple[int, int], ...]
    uses: tuple[tuple[int, int], ...]
    parts: tuple[MapPart, ...]
    blocks: tuple[MapBlock, ...]
    sources: tuple[MapSource, ...]

    @property
    def title(self) -> str:
        """Title: the experiments to which the equations belong."""
        several = "s" if len(self.experiments) > 1 else ""
        return f"experiment{several} {in_words(self.experiments, MOST_NAMED)}"

    @property
    def words(self) -> str:
        """Describe the map in words, for readers who cannot see it."""
        largest = max((b.size for b in self.blocks), default=0)
        solved = (
            f" They are solved in {counted(len(self.blocks), 'block')}. The largest block has "
            f"{counted(largest, 'equation')}."
        )
        sentences = []
        for source in self.sources:
            names = [self.parameters[i] for i in source.parameters if self.reach[i] in ALGEBRAIC]
            sentences += (
                [f"From the {source.name}: {in_words(names, MOST_NAMED)}."] if names else []
            )
        if len(sentences) > MOST_NAMED:
            more = f"{len(sentences) - MOST_NAMED} more slopes and start values are not listed."
            sentences = [*sentences[:MOST_NAMED], more]
        for kind, head in LAST.items():
            names = [n for n, r in zip(self.parameters, self.reach, strict=True) if r == kind]
            sentences += [f"{head}: {in_words(names, MOST_NAMED)}."] if names else []
        parts = "; ".join(part.sentence for part in self.parts)
        return " ".join([
            f"Equations of {self.title}, grouped by whether the measurements determine their "
            f"unknowns: {parts or 'none'}.{solved * bool(self.blocks)}",
            *sentences,
        ])
