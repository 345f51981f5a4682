"""Dulmage and Mendelsohn's decomposition of 100 to 100,000 equations beside Pyomo's and SciPy's.

    python benchmarks/structure.py [patterns] [models] [--json benchmarks/measured/structure.json]

patterns  the same matrix for all: parts, and the block triangular form of the square one. SciPy
          has only the largest matching, which the decomposition begins with
models    a chain of n reactions: the user's builder, translation, and the whole of step 2; beside
          it Pyomo's IncidenceGraphInterface of the model at two times, which are more equations

Patterns, rows and columns shuffled:

flowsheet  each unit needs the one before it, each twentieth feeds back to the first of its section
network    each equation has its own unknown and two more by chance: one large block
missing    three unknowns by chance in each equation: parts of all kinds
pairs      two units beside each other both need both of the two before them

Each method has a process of its own. Seconds of the processor; stopped after 30.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
from figures import Row, at_most, command
from kinetic_chain import builder, chain
from limited import answer, ask, timed
from pyomo.contrib.incidence_analysis import IncidenceGraphInterface
from pyomo.contrib.incidence_analysis.dulmage_mendelsohn import dulmage_mendelsohn
from pyomo.contrib.incidence_analysis.triangularize import block_triangularize
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from igpe.core.arrays import IntArray
from igpe.equations.compiled import compiled
from igpe.equations.incidence import blocks, parts
from igpe.structure.structure import analyse

SIZES = (100, 1_000, 10_000, 100_000)
MODELS = (100, 1_000, 10_000)
SECTION = 20  # units of a flowsheet between which streams go back
LIMIT, MODEL_LIMIT = 30, 200  # s


def flowsheet(n: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries."""
    i = np.arange(n)
    first = i[::SECTION]
    back = np.minimum(first + SECTION - 1, n - 1)
    return np.concatenate([i, i[1:], first]), np.concatenate([i, i[:-1], back])


def network(n: int) -> tuple[IntArray, IntArray]:
    """As `flowsheet`."""
    i = np.arange(n)
    return np.tile(i, 3), np.concatenate([i, np.random.default_rng(0).integers(0, n, 2 * n)])


def missing(n: int) -> tuple[IntArray, IntArray]:
    """As `flowsheet`."""
    return np.repeat(np.arange(n), 3), np.random.default_rng(0).integers(0, n, 3 * n)


def pairs(n: int) -> tuple[IntArray, IntArray]:
    """As `flowsheet`."""
    i, later = np.arange(n), np.arange(2, n)
    before = 2 * (later // 2) - 2
    return np.concatenate([i, later, later]), np.concatenate([i, before, before + 1])


PATTERNS = {"flowsheet": flowsheet, "network": network, "missing": missing, "pairs": pairs}


def pattern(name: str, n: int) -> coo_matrix:
    """n by n, shuffled."""
    rows, columns = PATTERNS[name](n)
    random = np.random.default_rng(1)
    entries = (random.permutation(n)[rows], random.permutation(n)[columns])
    found = coo_matrix((np.ones(len(rows)), entries), shape=(n, n))
    found.sum_duplicates()
    return found


def _igpe(matrix: coo_matrix) -> dict[str, float]:
    dm, found = timed(lambda: parts(matrix))
    form, order = timed(lambda: blocks(matrix, found.well_rows, found.well_columns))
    return {"decomposition": dm, "block triangular form": form, "blocks": len(order)}


def _pyomo(matrix: coo_matrix) -> dict[str, float]:
    dm, (rows, columns) = timed(lambda: dulmage_mendelsohn(matrix))
    square = matrix.tocsr()[list(rows.square)][:, list(columns.square)].tocoo()
    form, (order, _) = (
        timed(lambda: block_triangularize(square)) if rows.square else (0.0, ((), ()))
    )
    return {"decomposition": dm, "block triangular form": form, "blocks": len(order)}


def _scipy(matrix: coo_matrix) -> dict[str, float]:
    compressed = matrix.tocsr()
    return {"matching": timed(lambda: maximum_bipartite_matching(compressed))[0]}


METHODS = {"igpe": _igpe, "Pyomo": _pyomo, "SciPy": _scipy}


def patterns(given: argparse.Namespace) -> Iterator[Row]:
    """All methods on all patterns."""
    for name in PATTERNS:
        for n in SIZES:
            for method in METHODS:
                yield from _rows(
                    f"{name} {n}", method, ask(__file__, LIMIT, method, name, n), LIMIT
                )


def models(given: argparse.Namespace) -> Iterator[Row]:
    """From the user's model to its structure."""
    for n in MODELS:
        for method in MODEL_METHODS:
            found = ask(__file__, MODEL_LIMIT, method, "chain", n)
            yield from _rows(f"chain {n}", method.removesuffix(" model"), found, MODEL_LIMIT)


def _rows(case: str, method: str, found: dict[str, float] | None, limit: int) -> Iterator[Row]:
    if found is None:
        yield at_most(case, f"{method}: stopped after", limit, "s")
        return
    for figure, value in found.items():
        yield at_most(case, f"{method}: {figure}", value, "-" if figure == "blocks" else "s")


def _igpe_model(n: int) -> dict[str, float]:
    at = [time.process_time()]
    problem = chain(n, 5)
    at.append(time.process_time())
    compiled(problem)
    at.append(time.process_time())
    analyse(problem, most_work=0.0)
    at.append(time.process_time())
    built, read, whole = (b - a for a, b in itertools.pairwise(at))
    return {"builder (called twice) and checks": built, "translation": read, "step 2": whole}


def _pyomo_model(n: int) -> dict[str, float]:
    at = [time.process_time()]
    model = builder(n)([0.0, 1.0])
    at.append(time.process_time())
    graph = IncidenceGraphInterface(model)
    at.append(time.process_time())
    graph.dulmage_mendelsohn()
    at.append(time.process_time())
    built, read, whole = (b - a for a, b in itertools.pairwise(at))
    return {"builder": built, "graph of the model": read, "decomposition": whole}


MODEL_METHODS: dict[str, Callable[[int], dict[str, float]]] = {
    "igpe model": _igpe_model,
    "Pyomo model": _pyomo_model,
}


def _asked(method: str, name: str, size: str) -> dict[str, float]:
    if method in MODEL_METHODS:
        MODEL_METHODS[method](50)  # whatever is made once
        return MODEL_METHODS[method](int(size))
    matrix = pattern(name, int(size))
    try:
        return METHODS[method](matrix)
    except RecursionError:  # NetworkX follows paths by calling itself
        return {"recursion too deep after": time.process_time()}


if __name__ == "__main__" and not answer(_asked):
    command(__doc__, "Structure", {"patterns": patterns, "models": models})
