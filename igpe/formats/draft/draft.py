"""From tables to a problem file: what `igpe new` writes, and what it says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from igpe.formats.draft.equations import by_equations
from igpe.formats.draft.reactions import by_reactions, species_of
from igpe.formats.draft.sheet import Asked, Sheet, read_sheet
from igpe.formats.draft.text import Start, problem_file


@dataclass(frozen=True)
class Draft:
    """A problem file.

    text   of the file, as it stands at the path it was drafted for
    sheet  what the tables hold
    starts experiment -> state -> start value
    model  a sentence about it
    """

    text: str
    sheet: Sheet
    starts: dict[str, dict[str, Start]]
    model: str

    @property
    def remarks(self) -> list[str]:
        """What was found, and what was assumed, in sentences."""
        sheet = self.sheet
        runs = f"{len(sheet.runs)} experiment{'s' * (len(sheet.runs) > 1)}"
        names = ", ".join(c.name for c in sheet.measured)
        said = [
            f"{sheet.size} measurements of {names} in {runs}; times from '{sheet.time.header}'."
        ]
        said += [f"Not used: '{h}' ({why})." for h, why in sheet.choice.left_out.items()]
        said += [f"Not used: '{h}' (a condition)." for h in sheet.choice.conditions]
        first = next(iter(self.starts.values()))
        said += [f"{n} starts at {s.value}: {s.why}." for n, s in first.items()]
        return [*said, self.model]


def draft(files: Sequence[Path], reactions: Sequence[str], asked: Asked, path: Path) -> Draft:
    """A problem file for the tables.

    files      of the measurements
    reactions  by which the model goes; none: equations that stand in for the user's
    asked      what the user says of the columns; the species are added
    path       where the file is going to be
    raises     DataError for tables that do not serve, ModelError for what is no reaction
    """
    species = species_of(reactions)
    sheet = read_sheet(files, Asked(asked.time, asked.experiment, asked.named, species))
    part = by_reactions(sheet, reactions) if reactions else by_equations(sheet)
    starts = {run: dict(values) for run, values in part.starts.items()}
    told = (
        f"The model: {', '.join(reactions)}, by mass action."
        if reactions
        else "The equations only stand in for yours: write these into the function model()."
    )
    return Draft(problem_file(sheet, part, path), sheet, starts, told)
