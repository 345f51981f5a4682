"""Balances of quantities: read from text and chemical formulas, or found in a model."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import casadi as ca
import numpy as np
from scipy.linalg import null_space

from igpe.core.arguments import shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.names import closest, listed
from igpe.equations.compiled import compiled
from igpe.equations.incidence import abrupt
from igpe.problem.problem import Problem

NUMBER = r"\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
CONSTANT = {"constant", "const"}
COUNT = r"((?:\d+\.?\d*|\.\d+)?)"
PIECE = re.compile(rf"([A-Z][a-z]?){COUNT}|(\()|\){COUNT}")
HYDRATE = re.compile(r"\.\d*H2O")
SYMBOLS = frozenset(
    re.findall(
        r"[A-Z][a-z]?",
        "HDHeLiBeBCNOFNeNaMgAlSiPSClArKCaScTiVCrMnFeCoNiCuZnGaGeAsSeBrKrRbSrYZrNbMoTcRuRhPdAg"
        "CdInSnSbTeIXeCsBaLaCePrNdPmSmEuGdTbDyHoErTmYbLuHfTaWReOsIrPtAuHgTlPbBiPoAtRnFrRaAcTh"
        "PaUNpPuAmCmBkCfEsFmMdNoLrRfDbSgBhHsMtDsRgCnNhFlMcLvTsOg",
    )
)  # of the elements, and of deuterium
POINTS = 4  # for each state, at which slopes are evaluated
ROUNDING, DIGITS = 1e-9, 9  # of the terms, up to which their sum is 0; of coefficients


class Balance(NamedTuple):
    """A sum of quantities times coefficients.

    total  what it is; NaN: unknown, but the same at all times of an experiment
    """

    name: str
    terms: Mapping[str, float]
    total: float = np.nan


def read_balances(given: Mapping[str, str] | Iterable[str], known: Iterable[str]) -> list[Balance]:
    """Balances such as "6*glucose + 2*ethanol + CO2 = constant".

    known   names of quantities
    raises  ProblemError for what is no balance, and for other names
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ProblemError(
            f"`balances` is {shown(given)}; expected a list or a mapping of equations, for example "
            "balances={'carbon': '6*glucose + 2*ethanol + CO2 = constant'}."
        )
    named = dict(given) if isinstance(given, Mapping) else {str(one): one for one in given}
    names = sorted(known)
    return [_read(name, text, names) for name, text in named.items()]


def _read(name: str, text: str, known: list[str]) -> Balance:
    sides = text.split("=") if isinstance(text, str) else []
    if len(sides) != 2:  # noqa: PLR2004
        raise ProblemError(
            f"The balance {shown(text)} is not an equation. Write an equation with a single '=', "
            "for example '6*glucose + 2*ethanol + CO2 = constant' or 'feed - product - purge = 0'."
        )
    if not all(map(str.strip, sides)):
        raise ProblemError(f"The balance '{text}' has an empty side. Write a total, such as '= 0'.")
    is_constant = sides[1].strip() in CONSTANT
    left = _terms(text, sides[0], known)
    right = {} if is_constant else _terms(text, sides[1], known)
    terms = {n: left.get(n, 0.0) - right.get(n, 0.0) for n in [*left, *right] if n}
    terms = {n: v for n, v in terms.items() if v}
    if not terms:
        raise ProblemError(f"The balance '{text}' contains no quantity.")
    total = right.get("", 0.0) - left.get("", 0.0)
    return Balance(name, terms, np.nan if is_constant else total)


def _terms(text: str, side: str, known: list[str]) -> dict[str, float]:
    """Coefficients by name; that of "" is a number that stands alone."""
    names = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    term = re.compile(rf"\s*([-+]?)\s*(?:({NUMBER})\s*\*?\s*)?(?:({names})(?!\w))?\s*")
    found, place = dict[str, float](), 0
    while place < len(side):
        match = term.match(side, place)
        sign, factor, name = match.groups() if match else ("", None, None)
        if match is None or not (factor or name) or (place and not sign):
            rest = side[place:].strip()
            word = next(iter(re.findall(r"[^\W\d][\w.\[\],]*", rest)), rest)
            raise ProblemError(
                f"The balance '{text}' cannot be read at '{rest}'. A balance is a sum of "
                "quantities with numeric factors; the quantities are "
                f"{listed(known)}.{closest(word, known)} Name quantities that have no "
                f"measurements: unmeasured=['{word}']."
            )
        value = float(factor or 1.0) * (-1 if sign == "-" else 1)
        found[name or ""] = found.get(name or "", 0.0) + value
        place = match.end()
    return found


def elements(formula: str) -> dict[str, float]:
    """How many atoms of each element a formula has, such as C6H12O6 or CH1.8O0.5N0.2.

    raises ProblemError for what is no formula
    """
    stack, place = [dict[str, float]()], 0
    text = formula if isinstance(formula, str) else ""
    if water := HYDRATE.search(text):  # CuSO4.5H2O, which is no O4.5
        raise ProblemError(
            f"The formula '{text}' contains '{water[0]}', but igpe reads a dot as a decimal "
            "point. Write water of crystallisation in parentheses, for example 'CuSO4(H2O)5'."
        )
    for match in PIECE.finditer(text):
        element, count, opens, times = match.groups()
        if match.start() != place or not (element or opens or len(stack) > 1):
            break
        place = match.end()
        if opens:
            stack.append({})
            continue
        inner = {element: 1.0} if element else stack.pop()
        factor = float(count or times or 1.0)
        for key, value in inner.items():
            stack[-1][key] = stack[-1].get(key, 0.0) + factor * value
    if place != len(text) or len(stack) != 1 or not stack[0]:
        raise ProblemError(
            f"The formula {shown(formula)} cannot be read. Write each element with its number of "
            "atoms, for example 'C6H12O6', 'Ca(OH)2' or 'CH1.8O0.5N0.2'."
        )
    if unknown := [e for e in stack[0] if e not in SYMBOLS]:
        raise ProblemError(
            f"The formula '{text}' contains {unknown}, which are not chemical elements. Write "
            "groups as atoms, for example 'CH3OH' instead of 'MeOH'."
        )
    return stack[0]


def elemental(formulas: Mapping[str, str], known: Iterable[str]) -> list[Balance]:
    """One balance for each element: its atoms stay. Raises ProblemError for other names."""
    names = list(known)
    if lost := [n for n in formulas if n not in names]:
        raise ProblemError(
            f"`formulas` contains {lost}, which are not measured; the measured quantities are "
            f"{listed(names)}.{closest(lost[0], names)} Name quantities that have no measurements: "
            f"unmeasured={lost}."
        )
    read = {name: elements(formula) for name, formula in formulas.items()}
    every = dict.fromkeys(e for counts in read.values() for e in counts)
    return [Balance(e, {n: c[e] for n, c in read.items() if c.get(e)}) for e in every]


def conserved(problem: Problem, index: int) -> list[Balance]:
    """Sums of states that the model of one experiment conserves, with totals that are known.

    Slopes are evaluated at random points: a sum that vanishes at these and at others vanishes
    everywhere. None where events may change sums, or where slopes have conditions.
    """
    ivp = compiled(problem).initial_value_problem(index, switching=True)
    if ivp.implicit or ivp.switching is not None or abrupt(ivp.f):
        return []
    slopes = ca.Function("slopes", [ivp.x, ivp.q, ivp.u, ivp.t], [ivp.f])
    place = [problem.box.names.index(n) for n in ivp.unknowns]
    low, high = problem.box.lower[place], problem.box.upper[place]
    rng, n, rows = np.random.default_rng(0), len(ivp.states), list[FloatArray]()
    for _ in range(2 * POINTS * n):
        x, q = rng.uniform(0.1, 1.0, n) * ivp.scale, rng.uniform(low, high)
        inputs = [rng.uniform(np.min(t.values), np.max(t.values)) for t in ivp.tables]
        time = rng.uniform(ivp.t0, problem.experiments[index].times[-1])
        f = np.asarray(slopes(x, q, inputs, time)).ravel()
        if np.isfinite(f).all() and f.any():
            rows.append(f / np.abs(f).max())
    if len(rows) <= 2 * n:
        return []
    tests, sums = np.array(rows[1::2]), null_space(np.array(rows[::2]), rcond=ROUNDING).T
    for k, pivot in enumerate(np.argmax(np.abs(s)) for s in sums):  # each has one of its own
        sums[k] /= sums[k, pivot]
        others = np.arange(len(sums)) != k
        sums[others] -= np.outer(sums[others, pivot], sums[k])
    sums = np.round(sums, DIGITS)
    start = ca.Function("start", [ivp.q], [ivp.start])
    first, other = (np.asarray(start(q)).ravel() for q in (low, high))
    unknown = (first != other) | (ivp.rest is not None)
    return [
        _named(ivp.states, s, np.nan if unknown[s != 0].any() else float(s @ first))
        for s in sums
        if (np.abs(tests @ s) <= ROUNDING * (np.abs(tests) @ abs(s))).all()
    ]


def _named(states: tuple[str, ...], s: FloatArray, total: float) -> Balance:
    terms = {n: float(c) for n, c in zip(states, s, strict=True) if c}
    words = (f"{'-' if c < 0 else '+'} {abs(c):g}*{n}" for n, c in terms.items())
    return Balance(" ".join(words).removeprefix("+ ").replace(" 1*", " "), terms, total)
