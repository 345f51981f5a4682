"""From the structure of each experiment to its map; experiments that look alike share one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from igpe.equations.incidence import blocks, incidence, parts
from igpe.results.structure_map import (
    DYNAMIC,
    OVER,
    SQUARE,
    UNDER,
    Block,
    Part,
    Source,
    StructureMap,
)
from igpe.structure.selection import select
from igpe.structure.subsystems import Reduced, used_rows

Pairs = tuple[tuple[int, int], ...]


def maps(
    reduced: Sequence[Reduced],
    slopes: Sequence[Mapping[str, Any]],
    reach: Mapping[str, str],
    names: Sequence[str],
) -> tuple[StructureMap, ...]:
    """One for each structure that differs from those before.

    slopes  of each experiment: state -> predicted slope
    reach   of each free unknown of the problem
    names   of the experiments
    """
    alike: dict[StructureMap, list[str]] = {}
    for one, predicted, name in zip(reduced, slopes, names, strict=True):
        alike.setdefault(_map(one, predicted, reach, name), []).append(name)
    return tuple(replace(m, experiments=tuple(own)) for m, own in alike.items())


def _map(
    reduced: Reduced, slopes: Mapping[str, Any], reach: Mapping[str, str], name: str
) -> StructureMap:
    """The map of one experiment, not yet with its name."""
    posed, order = reduced.posed, _Order(reduced)
    rows, _ = select(posed, posed.data_names)
    hidden = _hidden(reduced)
    every = [*(int(rows[i]) for i in order.rows), *hidden]
    known = [j for j, n in enumerate(posed.variable_names) if n in set(posed.data_names)]
    place = {n: j for j, n in enumerate(posed.variable_names)}
    columns = [place[reduced.unknown_names[j]] for j in order.columns]
    end = len(order.rows)
    left = [Part(DYNAMIC, (end, len(every)), (0, 0))] if hidden else []
    return StructureMap(
        experiments=(),
        equations=tuple(posed.row_names[i] for i in every),
        unknowns=tuple(posed.variable_names[j] for j in columns),
        measured=tuple(posed.variable_names[j] for j in known),
        parameters=tuple(n.removesuffix(f"@{name}") for n in posed.q_names),
        reach=tuple(reach[n] for n in posed.q_names),
        entries=_pairs(posed.pattern, every, columns),
        known=_pairs(posed.pattern, every, known),
        uses=_pairs(posed.q_pattern, every, range(len(posed.q_names))),
        parts=(*order.parts, *left),
        blocks=order.blocks,
        sources=_sources(reduced, slopes, reach),
    )


class _Order:
    """Rows and columns of a reduced system as they are drawn.

    rows, columns  indices of the system's
    """

    def __init__(self, reduced: Reduced) -> None:
        found = parts(reduced.pattern)
        self._reduced = reduced
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.parts: tuple[Part, ...] = ()
        self.blocks: tuple[Block, ...] = ()
        used = used_rows(reduced, found)
        spare = [i for i in sorted(found.over_rows) if i not in set(used)]
        self._triangular(OVER, used, found.over_columns, spare)
        self._triangular(SQUARE, found.well_rows, found.well_columns, [])
        self._part(UNDER, found.under_rows, sorted(found.under_columns))

    def _triangular(self, kind: str, rows: list[int], columns: list[int], more: list[int]) -> None:
        """A square part along its block triangular form, and rows beyond it."""
        at_row, at_column, found = len(self.rows), len(self.columns), []
        order = blocks(self._reduced.pattern, rows, columns)
        for block in order:
            found.append(Block(at_row, at_column, len(block.rows)))
            at_row, at_column = at_row + len(block.rows), at_column + len(block.columns)
        self.blocks = (*self.blocks, *found)
        in_order = [i for b in order for i in b.rows]
        self._part(kind, [*in_order, *more], [j for b in order for j in b.columns])

    def _part(self, kind: str, rows: Sequence[int], columns: Sequence[int]) -> None:
        i, j = len(self.rows), len(self.columns)
        self.rows += rows
        self.columns += columns
        if rows or columns:
            part = Part(kind, (i, len(self.rows)), (j, len(self.columns)))
            self.parts = (*self.parts, part)


def _hidden(reduced: Reduced) -> list[int]:
    """Rows of the model that hold the slope of an unmeasured state: left to the dynamics."""
    posed = reduced.posed
    rows, _ = select(posed, posed.data_names)
    there = set(rows.tolist())
    return [i for i in range(posed.n_equations) if i not in there]


def _pairs(pattern: Any, rows: Sequence[int], columns: Iterable[int]) -> Pairs:
    found = pattern[list(rows)][:, list(columns)].tocoo()
    return tuple(sorted(zip(found.row.tolist(), found.col.tolist(), strict=True)))


def _sources(
    reduced: Reduced, slopes: Mapping[str, Any], reach: Mapping[str, str]
) -> tuple[Source, ...]:
    """Slopes predicted by algebra with what they help to estimate, then start values."""
    posed = reduced.posed
    algebraic = {i for i, n in enumerate(posed.q_names) if reach[n] == "algebraic"}
    found = []
    for state, slope in slopes.items():
        depends = np.unique(incidence(slope, posed.q).col).tolist()
        found.append(Source(f"slope of {state}", tuple(i for i in depends if i in algebraic)))
    for row, state in enumerate(posed.states):
        depends = tuple(posed.start_pattern[[row]].indices.tolist())
        found.append(Source(f"start of {state}", tuple(sorted(depends))))
    return tuple(s for s in found if s.parameters)
