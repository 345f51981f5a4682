"""One step of multiple shooting: condensing beside the sparse KKT system of the same problem.

    python benchmarks/condensing.py [--json FILE]

A chain of random intervals with four states and four unknowns, a residual at each node. The peer
solves the whole problem, nodes and multipliers included, by SciPy's SuperLU, whose rows of the
unknowns are dense and fill it in, whatever the ordering; its matrix is put together from triplets
that are there. Both steps are compared. Processor time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from figures import Row, Section, at_least, at_most, command
from limited import timed
from scipy import sparse
from scipy.sparse.linalg import splu

from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import Chain, Chained, condensed

STATES = UNKNOWNS = 4
COUNTS = (10, 100, 1_000, 10_000)
MOST = 1_000  # intervals for the peer, whose time grows with their square


def chained(count: int) -> Chained:
    """Intervals that contract a little, as those of a stable model do."""
    rng = np.random.default_rng(count)
    step = 0.3 * rng.normal(size=(count, STATES, STATES))
    step[0] = 0.0
    chain = Chain(
        residual=rng.normal(size=count),
        by_node=rng.normal(size=(count, STATES)),
        by_unknown=np.zeros((count, UNKNOWNS)),
        owner=np.arange(count),
        gap=0.1 * rng.normal(size=(count, STATES)),
        step=step,
        drift=rng.normal(size=(count, STATES, UNKNOWNS)),
        limits=None,
    )
    return Chained((chain,), Linearised(np.zeros(0), np.zeros((0, UNKNOWNS))))


def ours(at: Chained) -> np.ndarray:
    """The step in the unknowns, and in all nodes after them."""
    whole = condensed(at)
    step = -np.linalg.lstsq(whole.at.jacobian, whole.at.residual)[0]
    moved = whole.move(step)
    return np.concatenate([moved.unknowns, *(s.ravel() for s in moved.nodes)])


def kkt(at: Chained) -> Callable[[], np.ndarray]:
    """The same by the whole system; what is put together before is not timed."""
    (chain,) = at.chains
    assert isinstance(chain, Chain)
    count = len(chain.gap)
    size = UNKNOWNS + count * STATES
    node = UNKNOWNS + np.arange(count * STATES).reshape(count, STATES)
    jacobian = _triplets(np.arange(count)[:, None], node, chain.by_node)
    row = np.arange(count * STATES).reshape(count, STATES)
    links = [
        (row.ravel(), node.ravel(), np.ones(row.size)),
        _triplets(row[:, :, None], np.arange(UNKNOWNS), -chain.drift),
        _triplets(row[1:, :, None], node[:-1, None, :], -chain.step[1:]),
    ]

    def solved() -> np.ndarray:
        i, j, values = jacobian
        j_matrix = sparse.csc_matrix((values, (i, j)), (count, size))
        i, j, values = (np.concatenate(part) for part in zip(*links, strict=True))
        c_matrix = sparse.csc_matrix((values, (i, j)), (row.size, size))
        whole = sparse.block_array([[j_matrix.T @ j_matrix, c_matrix.T], [c_matrix, None]])
        known = np.concatenate([-j_matrix.T @ chain.residual, chain.gap.ravel()])
        return np.asarray(splu(whole.tocsc()).solve(known)[:size])

    return solved


def _triplets(rows: Any, columns: Any, values: Any) -> tuple[Any, Any, Any]:
    rows, columns = (np.broadcast_to(part, values.shape) for part in (rows, columns))
    return rows.ravel(), columns.ravel(), values.ravel()


def condensing(_: Any) -> Iterator[Row]:
    """Both at growing numbers of intervals."""
    for count in COUNTS:
        at, case = chained(count), f"{count} intervals"
        mine, one = timed(partial(ours, at))
        yield at_most(case, "condensing", 1e3 * mine, "ms")
        if count > MOST:
            continue
        theirs, other = timed(kkt(at))
        apart = float(np.max(np.abs(one - other)) / np.max(np.abs(other)))
        yield at_most(case, "sparse KKT", 1e3 * theirs, "ms")
        yield at_least(case, "sparse KKT : condensing", theirs / mine, "times", 1.0)
        yield at_most(case, "difference of the steps, relative", apart, "-", 1e-8)


SECTIONS: dict[str, Section] = {"condensing": condensing}


if __name__ == "__main__":
    command(__doc__, "One step of multiple shooting", SECTIONS)
