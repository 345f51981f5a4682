"""Bounds of the degrees of rational expressions, for the probability that a random point misleads.

With f = P/Q and numerator and denominator of degree at most d in all variables, coefficient k of
the series is P[k] / Q**(2k), and each further order adds at most 2 d to the degree of P[k]. A
derivative by an unknown and the output on top add d each; start values of degree s multiply all by
s. By the lemma of Schwartz and Zippel a polynomial of degree D vanishes at a random point of a
field of p numbers with probability D/p at most.
"""

from igpe.structure.series.tape import Kind, Node, Tape


def degree(tape: Tape) -> int:
    """d, for all outputs over their common denominator; integrals count as variables."""
    found: list[tuple[int, int]] = []
    for node in tape.nodes:
        found.append(_of_node(node, found))
    integrals = [_of_derivative(node, found) for node in tape.nodes if node.kind is Kind.INTEGRAL]
    outputs = [*(found[i] for i in set(tape.results)), *integrals]
    below = sum(down for _, down in outputs)
    return max((up for up, _ in outputs), default=0) + below


def degree_of_minor(d: int, start: int, orders: int, rank: int) -> int:
    """Bound of the degree of a minor of the sensitivity matrix, mixed rows included.

    d, start  degrees of the equations, and of the start values in what was drawn
    """
    return rank * (start * (2 * d * (orders + 1) + 1) + 1)


def _of_node(node: Node, found: list[tuple[int, int]]) -> tuple[int, int]:
    """Degrees of numerator and denominator."""
    if node.kind is Kind.CONST:
        return 0, 0
    if node.kind in (Kind.INPUT, Kind.INTEGRAL):
        return 1, 0
    (a, b), (c, d) = (found[i] for i in node.arguments)
    if node.kind is Kind.MUL:
        return a + c, b + d
    if node.kind is Kind.DIV:
        return a + d, b + c
    return max(a + d, b + c), b + d


def _of_derivative(node: Node, found: list[tuple[int, int]]) -> tuple[int, int]:
    """Of w times the derivative of g by its variables."""
    (a, b), (c, d) = (found[i] for i in node.arguments)
    return a + d + c, 2 * b + d
