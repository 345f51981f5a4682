"""What the data determine at the optimum beside what perfect measurements would determine."""

from collections.abc import Sequence

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.equations.system import System
from igpe.numerics.optima import has_same_values
from igpe.numerics.statistics.covariance import Uncertainty
from igpe.problem.problem import Problem
from igpe.structure.findings import Verdict
from igpe.structure.identifiability.alternatives import Alternatives
from igpe.structure.identifiability.identifiability import Algebra, Identifiability, identifiability
from igpe.structure.identifiability.of_errors import of_errors_alone
from igpe.structure.identifiability.posed import pose

MOST_WORK = 5e7  # products of residues: a few hundredths of a second, little beside an estimation
CLEAR = 1e-5  # of the largest singular value: what is above is no error of integration


def rank_notes(
    problem: Problem,
    systems: Sequence[System],
    jacobian: FloatArray,
    errors: Uncertainty,
    whole: Uncertainty,
    *,
    sets: Sequence[FloatArray] = (),
) -> list[str]:
    """Compare what the errors call undetermined with the verdicts of `igpe.check`.

    jacobian  (n_residuals, n) of the weighted residuals, priors included
    errors    of the unknowns at the optimum
    whole     the same as if no unknown were on a bound
    sets      values (n,) of the estimate and of every other optimum of the result; none: they are
              not compared with the number of sets that `igpe.check` counts
    """
    if not np.isfinite(jacobian).all() or problem.time_varying:
        return []
    names = problem.box.names
    exact = _verdicts(problem, systems)
    open_ = errors.undetermined | (whole.undetermined & errors.held)
    lines = _deficient([n for n, moved in zip(names, open_, strict=True) if moved], exact)
    apart = whole.undetermined & ~open_
    lines += _held_apart(names, apart, errors.held)
    lost = exact.names(Verdict.NO)
    is_plain = not problem.priors and not exact.left_out and not errors.held.any()
    if lost and is_plain and (singular := _smallest(jacobian)) > CLEAR:
        lines.append(
            f"{_listed(lost)}: igpe.check finds no way to identify them, "
            "but the Jacobian at the optimum has full rank (smallest singular value "
            f"{singular:.1g} of the largest). The two disagree: do not rely on either."
        )
    if sets and exact.names(Verdict.YES) and not exact.doubtful:
        counted = _verdicts(problem, systems, count=True)
        lines += [_fewer(one, problem.box, sets) for one in counted.alternatives]
    return [line for line in lines if line]


def _fewer(one: Alternatives, box: Box, sets: Sequence[FloatArray]) -> str:
    """What to say where the result has fewer sets of values than the structure allows."""
    own = box.select(one.unknowns)
    kept: list[FloatArray] = []
    for values in (own.vector(box.mapping(x)) for x in sets):
        if not any(has_same_values(values, other, own) for other in kept):
            kept.append(values)
    if len(kept) >= one.number:
        return ""
    several = "sets of " * (len(one.unknowns) > 1)
    alike = f" The same for all: {', '.join(one.functions)}." * bool(one.functions)
    return (
        f"{_listed(one.unknowns)}: perfect measurements leave up to {one.number} {several}values "
        f"(igpe.check), complex ones and those out of bounds included. This result has "
        f"{len(kept)} of them; no other was met within the bounds.{alike}"
    )


def _verdicts(
    problem: Problem, systems: Sequence[System], *, count: bool = False
) -> Identifiability:
    """Of the unknowns that were estimated: others are held now."""
    problem = problem.fixing(dict.fromkeys(of_errors_alone(problem, systems), 1.0))
    algebra = Algebra([pose(problem, i, s) for i, s in enumerate(systems)], [{} for _ in systems])
    return identifiability(problem, systems, algebra, most_work=MOST_WORK, count=count)


def _held_apart(names: Sequence[str], apart: BoolArray, held: BoolArray) -> list[str]:
    """Of unknowns that have errors only because others are on their bounds."""
    if not apart.any() or not held.any():
        return []
    own, others = ([n for n, k in zip(names, kept, strict=True) if k] for kept in (apart, held))
    return [
        f"{_listed(own)}: the errors hold with {_listed(others)} on the bound. Off it, the "
        "measurements do not determine them."
    ]


def _deficient(moved: Sequence[str], exact: Identifiability) -> list[str]:
    """What is to be said of unknowns that the data leave open."""
    by_data = [n for n in moved if exact.verdicts.get(n) is Verdict.YES]
    by_model = [n for n in moved if exact.verdicts.get(n) is Verdict.NO]
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


def _smallest(jacobian: FloatArray) -> float:
    """Smallest singular value relative to the largest, of columns of one size."""
    size = np.linalg.norm(jacobian, axis=0)
    if len(jacobian) < len(size) or not (size > 0).all():
        return 0.0
    singular = np.linalg.svd(jacobian / size, compute_uv=False)
    return float(singular[-1] / singular[0])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
