"""The tree of boxes of a certificate: read, and whether it covers its root without a hole.

Bounds are compared as the doubles they are, exactly. Nothing else in a certificate is believed.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from igpe.core.errors import DataError
from igpe.core.files import read_json
from igpe.proofs.checker.confirm import Claims

FORMAT = "igpe dynamic certificate 1"
Corner = tuple[float, ...]


@dataclass(frozen=True)
class Node:
    """One box of the tree.

    reason    split, contracted (one child, nothing better in the rest), bound (nothing better in
              it) or open
    children  indices of nodes that come later
    """

    low: Corner
    high: Corner
    reason: str
    children: tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """What a certificate claims.

    low, high    the box;  point, objective   sum of squares <= objective there
    lower_bound  sum of squares >= it everywhere in the box
    nodes        node 0 is the root
    """

    unknowns: tuple[str, ...]
    low: Corner
    high: Corner
    point: Corner
    objective: float
    lower_bound: float
    nodes: tuple[Node, ...]

    def faults(self) -> Iterator[tuple[int, str]]:
        """Where the leaves do not cover the box: the node, and what is wrong there."""
        root = self.nodes[0]
        if (root.low, root.high) != (self.low, self.high):
            yield 0, "the root of the tree is not the certificate's box"
        parents = Counter(i for node in self.nodes for i in node.children)
        yield from ((k, "it is the child of two boxes") for k, n in parents.items() if n > 1)
        for k, node in self._reached():
            wrong = _fault(node, [self.nodes[i] for i in node.children])
            if wrong:
                yield k, wrong

    def claims(self) -> Claims:
        """Leaves, and what contractions cut off in slabs: a cover of the root if it has no faults.

        Open nodes are claims as well: the bound that was told is one for them too.
        """
        parts = [part for k, node in self._reached() for part in self._parts(k, node)]
        table = np.array([[*a, *b, *c, *d] for _, a, b, c, d in parts])
        a, b, c, d = np.split(table.reshape(len(parts), 4 * len(self.low)), 4, axis=1)
        return Claims(a, b, c, d, np.array([k for k, *_ in parts], dtype=np.intp))

    def _reached(self) -> Iterator[tuple[int, Node]]:
        todo, seen = [0], {0}
        while todo:
            k = todo.pop()
            yield k, self.nodes[k]
            new = set(self.nodes[k].children) - seen  # boxes of two parents: 2^40 visits else
            todo += sorted(new)
            seen |= new

    def _parts(self, k: int, node: Node) -> Iterator[tuple[int, Corner, Corner, Corner, Corner]]:
        if node.reason in ("bound", "open"):
            yield k, node.low, node.high, node.low, node.high
        if node.reason == "contracted":
            inner = self.nodes[node.children[0]]
            for low, high in slabs(node, inner):
                yield k, node.low, node.high, low, high


def slabs(outer: Node, inner: Node) -> Iterator[tuple[Corner, Corner]]:
    """Boxes that together with the inner one cover the outer one; closed, they share faces."""
    low, high = list(outer.low), list(outer.high)
    for i, (a, b) in enumerate(zip(inner.low, inner.high, strict=True)):
        if low[i] < a:
            yield tuple(low), (*high[:i], a, *high[i + 1 :])
        if b < high[i]:
            yield (*low[:i], b, *low[i + 1 :]), tuple(high)
        low[i], high[i] = a, b


def _fault(node: Node, children: list[Node]) -> str:
    if any(a > b for a, b in zip(node.low, node.high, strict=True)):
        return "its bounds are crossed"
    if node.reason in ("bound", "open"):
        return "it is a leaf with children" if children else ""
    if node.reason == "contracted":
        return _fault_of_contraction(node, children)
    return _fault_of_split(node, children)


def _fault_of_contraction(node: Node, children: list[Node]) -> str:
    if len(children) != 1:
        return f"it is contracted to {len(children)} boxes"
    pairs = zip(node.low, children[0].low, children[0].high, node.high, strict=True)
    inside = all(a <= b <= c <= d for a, b, c, d in pairs)
    return "" if inside else "what it is contracted to lies outside"


def _fault_of_split(node: Node, children: list[Node]) -> str:
    parts = sorted(children, key=lambda c: (c.low, c.high))
    if len(parts) <= 1:
        return f"it is split into {len(parts)} boxes: a part of it is missing"
    ends = [(c.low, c.high) for c in parts]
    axes = [i for i in range(len(node.low)) if any(a[i] != ends[0][0][i] for a, _ in ends)]
    if len(axes) != 1:
        return "its children are not cut across one axis"
    i = axes[0]
    others = [(*a[:i], *a[i + 1 :], *b[:i], *b[i + 1 :]) for a, b in ends]
    own = (*node.low[:i], *node.low[i + 1 :], *node.high[:i], *node.high[i + 1 :])
    if any(other != own for other in others):
        return "a child has other bounds than it in an axis that is not cut"
    chain = [node.low[i], *(a[i] for a, _ in ends[1:]), node.high[i]]
    if chain[0] != ends[0][0][i] or chain[1:] != [b[i] for _, b in ends]:
        return "its children leave a gap between them, overlap, or end elsewhere"
    return ""


def read_tree(source: Any) -> Tree:
    """From JSON text, the path of a file, what JSON holds, or an object with `to_json()`.

    raises DataError if it is no certificate that this checker can read
    """
    found = _loaded(source)
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        told = found.get("format") if isinstance(found, Mapping) else type(found).__name__
        raise DataError(f"The certificate's format is {told!r}; this checker reads {FORMAT!r}.")
    try:
        tree = _tree(found)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"The certificate is damaged ({type(error).__name__}: {error}); write it anew."
        ) from None
    return tree


def _loaded(source: Any) -> Any:
    text = source.to_json() if hasattr(source, "to_json") else source
    if isinstance(text, Mapping):
        return text
    if not isinstance(text, (str, Path)):
        raise DataError(
            f"The certificate is a {type(source).__name__}; give the certificate, its JSON text, "
            "or the path of its file."
        )
    try:
        is_text = isinstance(text, str) and text.lstrip().startswith(("{", "["))
        return read_json(str(text).encode("utf-8", "surrogatepass") if is_text else text)
    except OSError as error:
        raise DataError(
            f"The certificate's file '{str(text)[:100]}' could not be read ({error.strerror}); "
            f"looked from {Path.cwd()}."
        ) from None
    except ValueError as error:
        raise DataError(f"The certificate is not JSON ({error}).") from None


def _tree(found: Mapping[str, Any]) -> Tree:
    unknowns = tuple(str(n) for n in found["unknowns"])
    n = len(unknowns)
    nodes = tuple(_node(node, k, n, len(found["tree"])) for k, node in enumerate(found["tree"]))
    if not nodes or not n:
        raise ValueError("it has no boxes")
    low, high, point = (_corner(found[key], n) for key in ("lower", "upper", "point"))
    objective, bound = (_finite(found[key]) for key in ("objective", "lower_bound"))
    return Tree(unknowns, low, high, point, objective, bound, nodes)


def _node(found: Mapping[str, Any], k: int, n: int, count: int) -> Node:
    children = tuple(int(i) for i in found["children"])
    if not all(k < i < count for i in children):
        raise ValueError(f"a child of node {k} does not come later")
    if found["reason"] not in ("split", "contracted", "bound", "open"):
        raise ValueError(f"node {k} has the reason {found['reason']!r}")
    low, high = _corner(found["lower"], n), _corner(found["upper"], n)
    return Node(low, high, found["reason"], children)


def _corner(values: Any, n: int) -> Corner:
    corner = tuple(_finite(v) for v in values)
    if len(corner) != n:
        raise ValueError(f"a box has {len(corner)} bounds, not {n}")
    return corner


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(value)
