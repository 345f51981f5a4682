"""Expressions as quotients of polynomials in the unknowns; their coefficients hold the data."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.operations import OPERATION_NAMES, as_before, replayed

Exponents = tuple[int, ...]
Polynomial = Mapping[Exponents, Any]
"""Exponents of the unknowns -> coefficient, SX."""

MOST_MONOMIALS = 60  # of numerator or denominator: what is longer is not looked at
MOST_FACTORS = 6  # of a whole power


class Quotient(NamedTuple):
    """above / below."""

    above: Polynomial
    below: Polynomial


class NoQuotient(Exception):
    """The expression is no quotient of short polynomials in the unknowns."""


def quotient(expression: Any, q: Any, rest: Any) -> Quotient:
    """A scalar SX expression of the unknowns q and other symbols, by its own operations.

    raises NoQuotient
    """
    n = q.numel()
    function = ca.Function("f", [q, rest], [ca.densify(expression)])
    result = replayed(
        function,
        lambda a, i: _unknown(i, n) if a == 0 else _known(rest[i], n),
        lambda value: _known(ca.SX(value), n),
        _applied,
    )
    return result.get(0, _known(ca.SX(0), n))


def _unknown(i: int, n: int) -> Quotient:
    return Quotient({tuple(int(j == i) for j in range(n)): ca.SX(1)}, _one(n))


def _known(coefficient: Any, n: int) -> Quotient:
    return Quotient({(0,) * n: coefficient}, _one(n))


def _one(n: int) -> Polynomial:
    return {(0,) * n: ca.SX(1)}


def _applied(operation: int, operands: list[Quotient]) -> Quotient:
    known = [_coefficient(a) for a in operands]
    n = len(next(iter(operands[0].below)))
    if all(k is not None for k in known):
        return _known(as_before(operation, known), n)
    name = OPERATION_NAMES[operation]
    if name in ("CONSTPOW", "POW"):
        return _power(operands[0], known[1], n)
    if name not in _RULES:
        raise NoQuotient
    return _RULES[name](*operands)


def _coefficient(a: Quotient) -> Any | None:
    """What it is, if it contains no unknown; else None."""
    if any(any(e) for part in a for e in part):
        return None
    (above,), (below,) = a.above.values() or (ca.SX(0),), a.below.values()
    return above / below


def _power(base: Quotient, exponent: Any | None, n: int) -> Quotient:
    if exponent is None or not exponent.is_constant():
        raise NoQuotient
    c = float(exponent)
    if c != round(c) or abs(c) > MOST_FACTORS:
        raise NoQuotient
    found = Quotient(_one(n), _one(n))
    for _ in range(int(abs(c))):
        found = _product(found, base)
    return found if c >= 0 else Quotient(found.below, found.above)


def _sum(a: Quotient, b: Quotient, sign: float = 1.0) -> Quotient:
    opposite = {e: sign * c for e, c in b.above.items()}
    if _same(a.below, b.below):
        return Quotient(_plus(a.above, opposite), a.below)
    above = _plus(_times(a.above, b.below), _times(opposite, a.below))
    return Quotient(above, _times(a.below, b.below))


def _product(a: Quotient, b: Quotient) -> Quotient:
    if _same(a.above, b.below):
        return Quotient(b.above, a.below)
    if _same(b.above, a.below):
        return Quotient(a.above, b.below)
    return Quotient(_times(a.above, b.above), _times(a.below, b.below))


def _over(a: Quotient, b: Quotient) -> Quotient:
    return _product(a, Quotient(b.below, b.above))


def _same(a: Polynomial, b: Polynomial) -> bool:
    return a is b or (a.keys() == b.keys() and all(ca.is_equal(a[e], b[e], 2) for e in a))


def _plus(a: Polynomial, b: Polynomial) -> Polynomial:
    found = dict(a)
    for e, c in b.items():
        found[e] = found[e] + c if e in found else c
    return _short({e: c for e, c in found.items() if not c.is_zero()})


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    found: dict[Exponents, Any] = {}
    for e, c in a.items():
        for f, d in b.items():
            both = tuple(i + j for i, j in zip(e, f, strict=True))
            found[both] = found[both] + c * d if both in found else c * d
    return _short(found)


def _short(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > MOST_MONOMIALS:
        raise NoQuotient
    return polynomial


_RULES: Mapping[str, Callable[..., Quotient]] = {
    "ASSIGN": lambda a: a,
    "ADD": _sum,
    "SUB": lambda a, b: _sum(a, b, -1.0),
    "NEG": lambda a: Quotient({e: -c for e, c in a.above.items()}, a.below),
    "TWICE": lambda a: _sum(a, a),
    "MUL": _product,
    "SQ": lambda a: _product(a, a),
    "DIV": _over,
    "INV": lambda a: Quotient(a.below, a.above),
}
