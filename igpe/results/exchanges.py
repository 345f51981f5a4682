"""Sets of values that are one set with exchanged names, as of like terms in a sum."""

from collections.abc import Mapping

from igpe.core.arrays import connected
from igpe.core.markup import listed
from igpe.numerics.optima import is_same_objective
from igpe.results.result_data import ResultData, rounding

EQUAL = 1e-4  # relative difference of a value that two unknowns exchange, found by two searches


def exchange_sentences(result: ResultData) -> list[str]:
    """Sentences on unknowns that exchange their values; none where no set does only this.

    Spectra are none: with other rate constants, the pure spectra of the species change as well.
    """
    moves = [] if result.spectral else [_moves(result, k) for k in range(len(result.other_optima))]
    names = [name for name in result.parameters if any(name in move for move in moves)]
    if not names:
        return []
    links = [{n} for n in names] + [{a, b} for move in moves for a, b in move.items()]
    first, *others = [sorted(part, key=names.index) for part in connected(links)]
    so_do = "".join(f", and so do {listed(other)}" for other in others)
    one, other, *_ = first
    is_plain = one.isidentifier() and other.isidentifier()
    order = f"a constraint (m.{one} >= m.{other}) or by bounds" if is_plain else "bounds"
    rest = "Measure more, or narrow the bounds, to tell the other sets apart."
    return [
        f"Between sets, {listed(first)} exchange their values{so_do}.",
        "More measurements of the same quantities cannot tell these sets apart.",
        f"Measure another quantity, or give the order by {order}.",
        *[rest] * (not all(moves)),
    ]


def _moves(result: ResultData, number: int) -> Mapping[str, str]:
    """Unknown -> the one whose value it has in another set; empty if that is no exchange."""
    other = result.other_optima[number]
    most = EQUAL * abs(result.objective)
    if not is_same_objective(result.objective, other.objective, rounding(result), most):
        return {}
    here = {n: result.parameters[n] for n in other.parameters}
    moved = {n: v for n, v in other.parameters.items() if not _is_equal(v, here[n])}
    left, moves = list(moved), {}
    for name, value in moved.items():
        source = next((n for n in left if _is_equal(here[n], value)), None)
        if source is None:
            return {}
        left.remove(source)
        moves[name] = source
    return moves


def _is_equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))
