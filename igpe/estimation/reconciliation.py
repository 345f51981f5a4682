"""Measurements reconciled with balances, and gross errors that violate the balances.

Balances are read from text and chemical formulas, or found in a model.

Suspects are single measurements, and constant offsets and factors of a quantity, in one experiment
or in all. Factors, and standard deviations that follow values, refer to what is reconciled without
gross errors. That is independent of what the balances lack, so tests keep their level. Once errors
are named they refer to what the fit beside these expects to be true, and factors to what it expects
to be measured: a share of the true values could not be told from an offset as well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.linalg import null_space
from scipy.special import ndtri

from igpe.core.arguments import is_finite, require, require_mapping, shown
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError, ProblemError
from igpe.core.markup import Rows, Shown, bracketed, closest, in_words, listed, number
from igpe.equations.compiled import compiled
from igpe.equations.incidence import abrupt
from igpe.numerics.lack_of_fit import exact_probability
from igpe.numerics.reconciliation import Balances, Found, Search, Sheet, independent
from igpe.problem.experiment import Experiment
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
    coefficients, place = dict[str, float](), 0
    while place < len(side):
        match = term.match(side, place)
        sign, factor, name = match.groups() if match else ("", None, None)
        if match is None or not (factor or name) or (place and not sign):
            rest = side[place:].strip()
            word = next(iter(re.findall(r"[^\W\d][\w.\[\],]*", rest)), rest)
            raise ProblemError(
                f"The balance '{text}' cannot be read at '{rest}'. A balance is a sum of "
                "quantities with numeric factors; the quantities are "
                f"{bracketed(known)}.{closest(word, known)} Name quantities that have no "
                f"measurements: unmeasured=['{word}']."
            )
        value = float(factor or 1.0) * (-1 if sign == "-" else 1)
        coefficients[name or ""] = coefficients.get(name or "", 0.0) + value
        place = match.end()
    return coefficients


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
            f"{bracketed(names)}.{closest(lost[0], names)} Name quantities that have no "
            f"measurements: unmeasured={lost}."
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
        _as_balance(ivp.states, s, np.nan if unknown[s != 0].any() else float(s @ first))
        for s in sums
        if (np.abs(tests @ s) <= ROUNDING * (np.abs(tests) @ abs(s))).all()
    ]


def _as_balance(states: tuple[str, ...], s: FloatArray, total: float) -> Balance:
    terms = {n: float(c) for n, c in zip(states, s, strict=True) if c}
    words = (f"{'-' if c < 0 else '+'} {abs(c):g}*{n}" for n, c in terms.items())
    return Balance(" ".join(words).removeprefix("+ ").replace(" 1*", " "), terms, total)


POWER = 0.9  # with which a single error of the column `detectable` is found
RARE = 1e-3  # probability of a test that is remarked on
ROUNDS = 3  # in which standard deviations follow reconciled values


@dataclass(frozen=True)
class Suspect:
    """A possible gross error and its size.

    kind        "value": one measurement is wrong; "offset": a constant is added to a quantity;
                "factor": all values of a quantity are wrong by the same factor
    name        name of the quantity
    experiment  name of the experiment with the error; None if the error affects all experiments
    time        time of the measurement; None if the values at all times are wrong
    size        measured value minus true value, in the unit of the quantity; if `kind` is "factor",
                this difference divided by the true value
    deviation   standard deviation of `size`
    """

    kind: str
    name: str
    experiment: str | None = None
    time: float | None = None
    size: float = np.nan
    deviation: float = np.nan

    def __str__(self) -> str:
        share = 100 if self.kind == "factor" else 1
        off = f"{share * self.size:+.3g} ± {share * self.deviation:.2g}{' %' * (share > 1)}"
        when = ", all values" if self.time is None else f" at time {self.time:g}"
        where = {None: " in all experiments", "": ""}.get(self.experiment, f" in {self.experiment}")
        return f"{self.name}{when}{where} ({off})"


@dataclass(frozen=True)
class GrossError:
    """A gross error that violates the balances.

    suspects  possible errors (`Suspect`), the most likely first; several if the balances cannot
              distinguish them
    p         probability that random errors alone produce a test statistic at least as large as
              that of this gross error
    """

    suspects: tuple[Suspect, ...]
    p: float

    def __str__(self) -> str:
        several = "one of " * (len(self.suspects) > 1)
        return several + in_words([str(s) for s in self.suspects])


@dataclass(frozen=True, repr=False)
class Reconciliation(Shown):
    """Measurements adjusted to satisfy balances, and the gross errors among the measurements.

    table   one row for each experiment, time and quantity. The columns include `measured` (mean of
            replicates) with its `sigma`, and `reconciled` with its `standard_deviation` (NaN where
            nothing determines the value). The column `detectable` contains the size of a gross
            error that igpe would report with a probability of 90 %, if only this measurement had
            an error (NaN where no balance checks the measurement)
    gross_errors  the gross errors (`GrossError`), the clearest first
    chi_squared, degrees, p  statistic, degrees of freedom and p-value of the test of all balances
    rest    p-value of the test of all balances without the measurements that have gross errors
    level   maximum probability that igpe reports a gross error when there is none
    experiments  the experiments without the measurements that have gross errors
    notes   remarks on quantities that are not checked, and on balances that do not close
    """

    table: pd.DataFrame
    gross_errors: tuple[GrossError, ...]
    chi_squared: float
    degrees: int
    p: float
    rest: float
    level: float
    experiments: tuple[Experiment, ...]
    notes: tuple[str, ...] = ()

    def _shown(self) -> tuple[list[Rows], tuple[str, ...]]:
        test = f"chi-squared {number(self.chi_squared, 0.1)}, {self.degrees} degrees of freedom"
        rows = [["Balances", f"{test} ({exact_probability(self.p)})"]]
        rows += [["Gross error", f"{e}, {exact_probability(e.p, 1)}"] for e in self.gross_errors]
        if self.gross_errors:
            rows.append(["Without", exact_probability(self.rest)])
        else:
            rows.append(["Gross error", f"none at the {100 * self.level:g} % significance level"])
        return [rows], self.notes


def reconcile(
    experiments: Experiment | Iterable[Experiment] | Problem,
    balances: Mapping[str, str] | Iterable[str] = (),
    *,
    formulas: Mapping[str, str] = MappingProxyType({}),
    unmeasured: Iterable[str] = (),
    soft: Mapping[str, float] = MappingProxyType({}),
    level: float = 0.01,
) -> Reconciliation:
    """Reconcile measurements with balances, and find gross errors.

    experiments  one or more experiments with standard deviations, or a problem. If a problem is
                 given without balances or formulas, igpe uses the sums of states that its model
                 conserves
    balances   equations that hold between quantities at each time; their names are optional:
               {"carbon": "6*glucose + 2*ethanol + CO2 = constant"}. "= constant" means a total that
               is unknown but constant within each experiment; "= 0" or another number means a known
               total
    formulas   a dict {quantity: chemical formula}: {"glucose": "C6H12O6"}. igpe adds a balance for
               each element. Include all species that contain the element. The values of these
               species must be amounts, or molar concentrations at constant volume
    unmeasured  quantities that are not measured but occur in balances or formulas
    soft       a dict {balance: standard deviation} for balances that hold only approximately; a
               balance is given by its name, or by its element
    level      maximum probability that igpe reports a gross error when there is none
    raises     ProblemError if balances cannot be read or contradict each other, DataError if
               standard deviations are missing
    """
    problem = experiments if isinstance(experiments, Problem) else None
    runs = _runs(problem.experiments if problem is not None else experiments)
    require(is_finite(level) and 0 < level < 1, "reconcile", "level", level, "0 < level < 1")
    require_mapping("formulas", formulas, "formulas={'glucose': 'C6H12O6'}", ProblemError)
    require_mapping("soft", soft, "soft={'carbon': 0.1}", ProblemError)
    others = [unmeasured] if isinstance(unmeasured, str) else unmeasured
    known = dict.fromkeys([*(n for e in runs for n in e.measured), *map(str, others)])
    each = [[*read_balances(balances, known), *elemental(formulas, known)]] * len(runs)
    if problem is not None and not each[0]:
        each = [conserved(problem, k) for k in range(len(runs))]
    names = sorted({b.name for own in each for b in own})
    if not names:
        raise ProblemError(
            "There is no balance. Pass balances=['A + B = constant'] or formulas={'A': 'C2H6O'}, "
            "or an igpe.Problem whose model conserves a sum of states."
        )
    if wrong := {n: v for n, v in soft.items() if n not in names or not is_finite(v) or v <= 0}:
        raise ProblemError(
            f"`soft` has {wrong}; expected positive standard deviations of the balances {names}."
        )
    return _Tables(runs, each, soft).reconciled(float(level))


def _runs(given: Any) -> list[Experiment]:
    runs = [given] if isinstance(given, Experiment) or not isinstance(given, Iterable) else [*given]
    if not runs or not all(isinstance(e, Experiment) for e in runs):
        raise ProblemError(
            f"`experiments` is {shown(given)}; expected an igpe.Experiment, a list of them, or an "
            "igpe.Problem."
        )
    names = [e.name for e in runs]
    if len(set(names)) < len(names):
        raise DataError(
            f"Experiments share names: {names}. Give each experiment its own name: name='run1'."
        )
    for e in runs:
        if not e.sigma_known or e.spectra is not None:
            raise DataError(
                f"The measurements of experiment '{e.name}' have no numeric standard deviations, "
                "so igpe cannot check them with balances. Pass igpe.Experiment(..., sigma=0.1)."
            )
        if e.measurements.correlation is not None:
            raise DataError(
                f"The errors of experiment '{e.name}' are correlated, but reconciliation needs "
                "independent errors. Leave out correlation=."
            )
    return runs


class _Tables:
    """All experiments as sheets. Each has all quantities, those of all balances too."""

    def __init__(
        self,
        runs: Sequence[Experiment],
        each: Sequence[Sequence[Balance]],
        soft: Mapping[str, float],
    ) -> None:
        self.runs, self.each, self.soft = runs, each, soft
        names = [
            *(n for e in runs for n in e.measured),
            *(n for o in each for b in o for n in b.terms),
        ]
        self.names = list(dict.fromkeys(names))
        self.times = [np.unique(e.times[e.measurements.known.row]) for e in runs]
        self.begin = np.cumsum([0, *(len(t) * len(self.names) for t in self.times)])
        pairs = [(e.name, t) for e, own in zip(runs, self.times, strict=True) for t in own]
        cells = [(e, t, n) for e, t in pairs for n in self.names]
        self.cells = pd.DataFrame(cells, columns=["experiment", "time", "name"])

    def _places(self, k: int) -> Any:
        """Cell of each measurement that is no limit, counted within its experiment."""
        m = self.runs[k].measurements.known
        column = np.array([self.names.index(n) for n in m.names])[m.column]
        return np.searchsorted(self.times[k], m.times[m.row]) * len(self.names) + column

    def _sheet(self, k: int, near: FloatArray | None = None) -> Sheet:
        """Replicates as their weighted mean.

        near  values of all cells at which standard deviations are taken; None: as measured
        """
        run, own, place = self.runs[k], self.each[k], self._places(k)
        m, shape = run.measurements, (len(self.times[k]), len(self.names))
        predicted = m.value.copy()
        if near is not None:
            predicted[~m.is_limit] = near[self.begin[k] + place]
        weight = 1 / run.sigma_at(predicted)[~m.is_limit] ** 2
        total = np.bincount(place, weight, shape[0] * shape[1])
        total[total == 0] = np.nan
        values = np.bincount(place, weight * m.known.value, len(total)) / total
        matrix = np.array([[b.terms.get(n, 0.0) for n in self.names] for b in own])
        sheet = Sheet(
            values.reshape(shape),
            (1 / np.sqrt(total)).reshape(shape),
            matrix.reshape(len(own), shape[1]),
            np.array([b.total for b in own], dtype=float),
            np.array([self.soft.get(b.name, 0.0) for b in own], dtype=float),
        )
        kept, wrong = independent(sheet)
        if wrong:
            raise ProblemError(
                f"The balances {[own[b].name for b in wrong]} contradict other balances: the same "
                "sum of quantities has two different values. Correct one of these balances, or "
                "give it a standard deviation with soft={...}."
            )
        return sheet._replace(
            matrix=sheet.matrix[kept], total=sheet.total[kept], soft=sheet.soft[kept]
        )

    def reconciled(self, level: float) -> Reconciliation:
        """See `reconcile`."""
        runs, none = range(len(self.runs)), sparse.csc_matrix((len(self.cells), 0))
        balances = Balances([self._sheet(k) for k in runs])
        near, relative = balances.reconciled(none).value, any(e.error_models for e in self.runs)
        for _ in range(ROUNDS if relative else 0):
            balances = Balances([self._sheet(k, near) for k in runs])
            near = balances.reconciled(none).value
        measured = np.concatenate([s.values.ravel() for s in balances.sheets])
        single, shape = np.isfinite(measured), near
        for turn in range(ROUNDS):
            suspects, columns = _suspects(self.cells[single], shape)
            search = Search(balances, columns)
            gross = search.found(level)
            best = [int(f.suspects[0]) for f in gross]
            factor = [suspects[i].kind == "factor" for i in best]
            if turn == ROUNDS - 1 or not (factor and (relative or any(factor))):
                break
            # what refers to values is taken again beside the errors
            fit = balances.reconciled(columns[:, best]).value
            near = np.where(np.isnan(fit), near, fit)
            shape = near + columns[:, best] @ [
                f.tested.size[0] * k for f, k in zip(gross, factor, strict=True)
            ]
            balances = Balances([self._sheet(k, near) for k in runs])
        errors = columns[:, sorted({i for f in gross for i in f.suspects.tolist()})]
        values = balances.reconciled(errors)
        least = search.tested().deviation[: single.sum()] * (search.limit(level) + ndtri(POWER))
        detectable = np.full(len(near), np.nan)
        detectable[single] = least
        table = self.cells.assign(
            measured=measured,
            sigma=np.concatenate([s.sigma.ravel() for s in balances.sheets]),
            reconciled=values.value,
            standard_deviation=values.deviation,
            detectable=detectable,
        )
        off = np.asarray(abs(errors).sum(axis=1)).ravel() > 0
        rest = balances.closing(errors)[2]
        return Reconciliation(
            table,
            tuple(_named(f, suspects) for f in gross),
            *balances.closing(none),
            *(rest, level, tuple(self._without(k, off) for k in runs)),
            tuple(self._notes(table, rest, zip(suspects, search.able, strict=True))),
        )

    def _without(self, k: int, off: BoolArray) -> Experiment:
        """The experiment without the measurements that gross errors name."""
        run, wrong = self.runs[k], off[self.begin[k] + self._places(k)]
        kept = np.ones(len(run.measurements.value), dtype=bool)
        kept[~run.measurements.is_limit] = ~wrong
        return run.where(kept) if wrong.any() else run

    def _notes(
        self, table: pd.DataFrame, rest: float, suspects: Iterable[tuple[Suspect, bool]]
    ) -> Iterator[str]:
        if rest < RARE:
            yield (
                f"The balances do not close ({exact_probability(rest, 1)}), and no single error "
                "explains this: standard deviations are too small, a balance is wrong, or several "
                "errors overlap."
            )
        inside = {n for own in self.each for b in own for n in b.terms}
        able = {kind: set[str]() for kind in ("value", "offset", "factor")}
        for one, testable in suspects:
            able[one.kind] |= {one.name} if testable else set()
        seen = table[table["measured"].notna()]
        names = [n for n in self.names if n in set(seen["name"])]
        said = {
            "igpe cannot check {}, because no balance contains these measurements.": [
                n for n in names if n not in inside
            ],
            "igpe cannot check {}, because the balances contain too many unknown values.": [
                n for n in names if n in inside - able["value"]
            ],
            "igpe cannot detect a constant offset in {}, because it would not change any "
            "balance.": [n for n in names if n in able["value"] - able["offset"]],
            "igpe cannot detect a wrong constant factor in {}, because it would not change any "
            "balance.": [n for n in names if n in able["value"] - able["factor"]],
        }
        yield from (text.format(listed(own)) for text, own in said.items() if own)
        if lost := int(seen["reconciled"].isna().sum()):
            yield (
                f"No reconciled value exists for {lost} of the measurements with gross errors, "
                "because the other measurements do not determine it."
            )


def _suspects(cells: pd.DataFrame, near: FloatArray) -> tuple[list[Suspect], sparse.csc_matrix]:
    """Single values first, then offsets and factors; and their directions (n, k).

    cells  those that are measured
    near   (n,) values of which factors are shares
    """
    suspects = [Suspect("value", n, e, t) for e, t, n in cells.itertuples(index=False)]
    places, sizes = [[i] for i in cells.index], [[1.0]] * len(cells)
    for name, every in cells.groupby("name", sort=False):
        groups: list[tuple[Any, pd.DataFrame]] = [*every.groupby("experiment", sort=False)]
        for experiment, own in groups + [(None, every)] * (len(groups) > 1):
            if len(own) > 1:
                suspects += [Suspect(kind, str(name), experiment) for kind in ("offset", "factor")]
                places += [own.index.tolist()] * 2
                sizes += [[1.0] * len(own), near[own.index].tolist()]
    ends = np.cumsum([0, *map(len, places)])
    data = np.concatenate(sizes), np.concatenate(places), ends
    return suspects, sparse.csc_matrix(data, shape=(len(near), len(suspects)))


def _named(gross: Found, suspects: Sequence[Suspect]) -> GrossError:
    named = []
    for i, size, deviation in zip(gross.suspects, *gross.tested, strict=True):
        off, error = float(size), float(deviation)
        if suspects[i].kind == "factor":  # from a share of the measured value to one of the true
            off, error = off / (1 - off), error / (1 - off) ** 2
        named.append(replace(suspects[i], size=off, deviation=error))
    return GrossError(tuple(named), gross.p)
