"""Residuals that can be computed together: at the same places, or by the same formula elsewhere.

The same reactions in several experiments give the same formula with other numbers in it, such as
start values. These become something known at each place, and the experiments one: enclosures, whose
cost is in the number of formulas far more than in that of places, are computed for all at once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.equations.operations import Graph, apply_to_sx


class Source(Protocol):
    """Residuals weight * (target - combine @ predict(known, p)), as `algebraic` poses them."""

    @property
    def predict(self) -> Any: ...
    @property
    def known(self) -> FloatArray: ...
    @property
    def combine(self) -> FloatArray | None: ...
    @property
    def target(self) -> FloatArray: ...
    @property
    def weight(self) -> FloatArray: ...


@dataclass(frozen=True)
class Together:
    """A source made of several; its fields are those of `Source`."""

    predict: Any
    known: FloatArray
    combine: FloatArray | None
    target: FloatArray
    weight: FloatArray


class Group(NamedTuple):
    """Sources at the same places, and which of all residuals theirs are, one after the other."""

    sources: list[Source]
    order: IntArray


def grouped(sources: Sequence[Source]) -> list[Group]:
    """All residuals in as few groups as there are formulas and sets of places."""
    ends = np.cumsum([len(s.target) for s in sources])
    rows = [np.arange(end - len(s.target), end) for s, end in zip(sources, ends, strict=True)]
    families: dict[Hashable, list[list[int]]] = {}
    for own in _at_the_same_places(sources):
        shape = tuple(_shape(sources[i]) for i in own)
        families.setdefault(shape, []).append(own)
    return [_joined(sources, rows, family) for family in families.values()]


def _at_the_same_places(sources: Sequence[Source]) -> list[list[int]]:
    """Indices of sources that know the same numbers at the same places."""
    groups: list[list[int]] = []
    for i, s in enumerate(sources):
        for group in groups:
            first = sources[group[0]]
            alike = len(first.target) == len(s.target)
            if alike and _same(first.known, s.known) and _same(first.combine, s.combine):
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _same(a: FloatArray | None, b: FloatArray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _shape(source: Source) -> Hashable:
    """Equal for formulas that differ in their numbers alone."""
    graph = Graph.of_function(source.predict, merged=False)
    steps = tuple(node._replace(value=0.0) for node in graph.nodes)
    width = None if source.combine is None else source.combine.shape[1]
    return source.known.shape[0], width, steps, tuple(graph.results)


class _Formula(NamedTuple):
    """Sources of one shape.

    numbers    (n_sources, n_constants) in each, in the order of the instructions
    different  (n_constants,) which are not the same in all
    """

    sources: list[Source]
    numbers: FloatArray
    different: BoolArray

    def together(self, known: FloatArray, at: int) -> Together:
        """All of them as one; numbers that are different are rows of `known` from `at` on."""
        first = self.sources[0]
        new, p = ca.SX.sym("known", len(known)), first.predict.sx_in(1)
        rows = iter(np.where(self.different, at + np.cumsum(self.different) - 1, -1).tolist())

        def constant(number: float) -> Any:  # called in the order of the nodes
            row = next(rows)
            return ca.SX(number) if row < 0 else new[row]

        def given(argument: int, i: int) -> Any:
            return new[i] if argument == 0 else p[i]

        graph = Graph.of_function(first.predict, merged=False)
        (result,) = graph.evaluate(given, constant, apply_to_sx)
        combine = [s.combine for s in self.sources if s.combine is not None]
        return Together(
            ca.Function("predict", [new, p], [result]),
            known,
            np.vstack(combine) if combine else None,
            np.concatenate([s.target for s in self.sources]),
            np.concatenate([s.weight for s in self.sources]),
        )


def _joined(
    sources: Sequence[Source], rows: Sequence[IntArray], family: Sequence[Sequence[int]]
) -> Group:
    """One group of several, whose formulas are the same one by one."""
    order = np.concatenate([rows[i] for same in zip(*family, strict=True) for i in same])
    if len(family) == 1:
        return Group([sources[i] for i in family[0]], order)
    formulas = [_formula([sources[i] for i in same]) for same in zip(*family, strict=True)]
    old = [sources[own[0]].known for own in family]
    numbers = np.hstack([f.numbers[:, f.different] for f in formulas])
    more = np.repeat(numbers.T, [k.shape[1] for k in old], axis=1)
    known, at = np.vstack([np.hstack(old), more]), len(old[0])
    found: list[Source] = []
    for formula in formulas:
        found.append(formula.together(known, at))
        at += int(formula.different.sum())
    return Group(found, order)


def _formula(sources: list[Source]) -> _Formula:
    numbers = np.array([_constants(s.predict) for s in sources])
    return _Formula(sources, numbers, (numbers != numbers[0]).any(axis=0))


def _constants(function: Any) -> list[float]:
    nodes = Graph.of_function(function, merged=False).nodes
    return [node.value for node in nodes if node.name == "CONST"]
