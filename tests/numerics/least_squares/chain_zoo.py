"""Chains to test with: random linear ones, and a nonlinear map with known derivatives."""

import numpy as np

from igpe.core.box import Box
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains import Chain, Chained, Point
from igpe.numerics.least_squares.proposal import Space


def random_chain(rng, count, n_x, n, rows):
    """A chain of `count` nodes with `rows` residuals on random intervals."""
    step = rng.normal(size=(count, n_x, n_x))
    step[0] = 0.0
    return Chain(
        residual=rng.normal(size=rows),
        by_node=rng.normal(size=(rows, n_x)),
        by_unknown=rng.normal(size=(rows, n)),
        owner=np.sort(rng.integers(0, count, rows)),
        gap=rng.normal(size=(count, n_x)),
        step=step,
        drift=rng.normal(size=(count, n_x, n)),
    )


def random_chained(seed, n=3, chains=((5, 2, 14), (1, 2, 4), (7, 3, 20)), gaps=True):
    """Several chains and two residuals on none; without `gaps` the first nodes meet the start."""
    rng = np.random.default_rng(seed)
    found = [random_chain(rng, count, n_x, n, rows) for count, n_x, rows in chains]
    if not gaps:
        for chain in found:
            chain.gap[0] = 0.0
    return Chained(tuple(found), Linearised(rng.normal(size=2), rng.normal(size=(2, n))))


def space_of(at, lower=-np.inf, upper=np.inf, node_lower=-np.inf):
    """A space for chains; bounds may be numbers or arrays."""
    n = at.free.jacobian.shape[1]
    sizes = [np.arange(1.0, c.gap.shape[1] + 1) for c in at.chains]
    names = tuple(f"q{i}" for i in range(n))
    box = Box(names, np.full(n, 1.0) * lower, np.full(n, 1.0) * upper)
    low, high = ([np.full(len(s), v) for s in sizes] for v in (node_lower, np.inf))
    return Space(box, tuple(low), tuple(high), Point(np.full(n, 0.5), tuple(sizes)))


def point_of(at, seed):
    """A point with random numbers."""
    rng = np.random.default_rng(seed)
    nodes = tuple(rng.normal(size=c.gap.shape) for c in at.chains)
    return Point(rng.normal(size=at.free.jacobian.shape[1]), nodes)


def dense(at):
    """Residuals, their matrix, gaps and their matrix over (q, all nodes in a row)."""
    n = at.free.jacobian.shape[1]
    width = n + sum(c.gap.size for c in at.chains)
    matrix = [np.zeros((len(at.free.residual), width))]
    matrix[0][:, :n] = at.free.jacobian
    links, first = [], n
    for c in at.chains:
        n_x = c.gap.shape[1]
        rows, link = np.zeros((len(c.residual), width)), np.zeros((c.gap.size, width))
        rows[:, :n], link[:, :n] = c.by_unknown, c.drift.reshape(-1, n)
        for i, k in enumerate(c.owner):
            rows[i, first + k * n_x : first + (k + 1) * n_x] = c.by_node[i]
        for k in range(len(c.gap)):
            mine, here = slice(k * n_x, (k + 1) * n_x), first + k * n_x
            link[mine, here : here + n_x] = -np.eye(n_x)
            if k:
                link[mine, here - n_x : here] = c.step[k]
        matrix.append(rows)
        links.append(link)
        first += c.gap.size
    residual = np.concatenate([at.free.residual, *(c.residual for c in at.chains)])
    gaps = np.concatenate([c.gap.ravel() for c in at.chains])
    return residual, np.vstack(matrix), gaps, np.vstack(links)


def flat(point):
    """All numbers of a point in a row."""
    return np.concatenate([point.unknowns, *(s.ravel() for s in point.nodes)])


def keeping(residual, matrix, gaps, links):
    """The minimiser of |r + M z| with g + L z = 0, by its Karush-Kuhn-Tucker equations."""
    n, k = matrix.shape[1], len(gaps)
    both = np.block([[matrix.T @ matrix, links.T], [links, np.zeros((k, k))]])
    return np.linalg.lstsq(both, -np.concatenate([matrix.T @ residual, gaps]), rcond=None)[0][:n]


class Ricker:
    """s' = q0 s exp(-s / q1), begun at q2 and measured at every node and at the end."""

    def __init__(self, truth=(3.0, 1.5, 0.2), count=12, noise=0.0, seed=0):
        self.count = count
        s = self.course(truth)
        self.data = s + noise * np.random.default_rng(seed).normal(size=len(s))

    def course(self, q):
        """(K + 1,) what is measured if all nodes meet."""
        s = [q[2]]
        for _ in range(self.count):
            s.append(q[0] * s[-1] * np.exp(-s[-1] / q[1]))
        return np.array(s)

    def __call__(self, point):
        """The chain at a point; None where it would overflow."""
        q, s = point.unknowns, point.nodes[0].ravel().copy()
        if q[1] <= 0 or not np.isfinite(s).all():
            return None
        s[0] = q[2]
        e = np.exp(-s / q[1])
        end, by_s = q[0] * s * e, q[0] * e * (1 - s / q[1])
        by_q = np.column_stack([s * e, q[0] * s**2 * e / q[1] ** 2, np.zeros_like(s)])
        last = np.zeros(len(s) + 1)
        last[-1] = 1.0
        owner = np.append(np.arange(len(s)), len(s) - 1)
        chain = Chain(
            residual=np.append(s, end[-1]) - self.data,
            by_node=np.append(np.ones(len(s)), by_s[-1])[:, None],
            by_unknown=last[:, None] * by_q[-1],
            owner=owner,
            gap=np.append(0.0, end[:-1] - s[1:])[:, None],
            step=np.append(0.0, by_s[:-1])[:, None, None],
            drift=np.concatenate([[[0.0, 0.0, 1.0]], by_q[:-1]])[:, None, :],
        )
        return Chained((chain,), Linearised(np.zeros(0), np.zeros((0, 3))))

    def start(self, q):
        """Unknowns q and nodes at the measurements."""
        return Point(np.array(q, dtype=float), (self.data[:-1, None].copy(),))

    def space(self, lower=(-np.inf,) * 3, upper=(np.inf,) * 3, node_lower=-np.inf):
        """Where to search."""
        box = Box(("r", "k", "s(0)"), np.array(lower, dtype=float), np.array(upper, dtype=float))
        bounds = (np.full(1, node_lower),), (np.full(1, np.inf),)
        return Space(box, *bounds, Point(np.full(3, 0.01), (np.ones(1),)))
