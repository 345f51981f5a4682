"""What the data determine at the optimum beside what perfect measurements would determine."""

from collections.abc import Sequence

import numpy as np

from igpe.arrays import BoolArray, FloatArray
from igpe.equations.system import System
from igpe.problem import Problem
from igpe.structure.findings import Verdict
from igpe.structure.identifiability import Algebra, Identifiability, identifiability
from igpe.structure.structure import Structure

NOTHING = 1e-8  # of the largest singular value: what is below is error of integration
CLEAR = 1e-5  # of the largest: what is above is not
TOUCHED = 1e-3  # share of an unknown in a direction that the data leave open


def rank_notes(
    problem: Problem,
    systems: Sequence[System],
    structure: Structure,
    jacobian: FloatArray,
    held: BoolArray,
) -> list[str]:
    """Compare the rank of the Jacobian at the optimum with the verdicts of `igpe.check`.

    jacobian  (n_residuals, n) of the weighted residuals, priors included
    held      (n,) unknowns at a bound, of which the Jacobian says nothing
    """
    if not np.isfinite(jacobian).all() or held.all() or problem.time_varying:
        return []
    names = problem.box.names
    singular, open_ = _open(jacobian[:, ~held])
    moved = np.zeros(len(names), dtype=bool)
    moved[~held] = open_
    algebra = Algebra([reduced.posed for reduced in structure.reduced], structure.slopes)
    exact = identifiability(problem, systems, algebra, count=False)
    lost = set(exact.names(Verdict.NO))
    lines = _deficient([n for n, m in zip(names, moved, strict=True) if m], exact)
    is_plain = not problem.priors and not exact.left_out and not held.any()
    if lost and is_plain and singular > CLEAR:
        lines.append(
            f"{_listed(sorted(lost, key=names.index))}: igpe.check finds no way to identify them, "
            "but the Jacobian at the optimum has full rank (smallest singular value "
            f"{singular:.1g} of the largest). The two disagree: do not rely on either."
        )
    return lines


def _deficient(moved: Sequence[str], exact: Identifiability) -> list[str]:
    """What is to be said of unknowns that the data leave open."""
    by_data = [n for n in moved if exact.verdicts[n] is Verdict.YES]
    by_model = [n for n in moved if exact.verdicts[n] is Verdict.NO]
    lines = []
    if by_data:
        lines.append(
            f"{_listed(by_data)}: identifiable by structure (igpe.check), but the Jacobian at the "
            "optimum has no full rank: these measurements do not determine them. More or other "
            "measurements of the same quantities may."
        )
    if by_model:
        lines.append(
            f"{_listed(by_model)}: not identifiable by structure (igpe.check), and the Jacobian at "
            "the optimum has no full rank: more measurements of the same kind do not help."
        )
    return lines


def _open(jacobian: FloatArray) -> tuple[float, BoolArray]:
    """Smallest singular value relative to the largest, and columns that no data determine."""
    size = np.linalg.norm(jacobian, axis=0)
    scaled = jacobian / np.where(size > 0, size, 1.0)
    _, singular, rows = np.linalg.svd(scaled, full_matrices=True)
    values = np.zeros(jacobian.shape[1])
    values[: len(singular)] = singular
    largest = max(values[0], np.finfo(float).tiny)
    open_ = np.abs(rows[values < NOTHING * largest]).max(axis=0, initial=0.0) > TOUCHED
    return float(values[-1] / largest), np.asarray(open_ | (size == 0))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
