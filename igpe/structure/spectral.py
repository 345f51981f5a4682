"""Structure of problems with spectra: identifiability where the species' spectra are unknown.

At each wavelength the absorbance is a linear combination of the species with unknown factors. Few
wavelengths with factors of their own pose the problem as it is: a set of values of the other
unknowns explains any spectra that another set does, if it explains one in general position for each
species. So the user's model gets these absorbances as quantities that are measured, with their
factors as further unknowns, and is analysed like any other.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo

from igpe.problem.building import call
from igpe.problem.experiment import Experiment
from igpe.problem.model import read
from igpe.problem.plausibility import warnings_about
from igpe.problem.problem import Problem
from igpe.problem.spectra import Spectra
from igpe.structure.identifiability import Access, Identifiability, Identifiable, undecided
from igpe.structure.structure import Structure, analyse

MOST = 8  # wavelengths: of more species only these are looked at
FEW = 50  # times that stand for all: the analysis is of equations, whatever the times
LARGEST = 1e3  # of a factor
FACTOR, OUTPUT = "igpe_absorptivity", "igpe_absorbance"
BACKGROUND = "igpe background"
VARYING = "igpe cannot analyse contributions with unknown time courses."
EXCHANGE = (
    "{names}: their values can be interchanged. If the spectra of the species change accordingly, "
    "the measured spectra remain the same (slow-fast ambiguity). They do not show which step is "
    "slow. To identify the slow step, pass a known spectrum (pure={{...}}), measure a "
    "concentration, or require non-negative spectra."
)
SEVERAL = (
    "{names}: other values, with other spectra of the species, give the same measured "
    "spectra. To identify them, pass a known spectrum (pure={{...}}) or measure a "
    "concentration."
)


def analyse_any(problem: Problem, *, most_work: float = 0.0) -> Structure:
    """`analyse`, also of problems with spectra; what it says of these is about their unknowns."""
    if not problem.has_spectra:
        return analyse(problem, most_work=most_work)
    names = problem.box.names
    if any(e.spectra is not None and e.spectra.varying for e in problem.experiments):
        base = analyse(_posed(problem))
        return _of_unknowns(base, problem, undecided(names, VARYING))
    posed = _posed(problem)
    factors = [n for n in posed.box.names if n not in names]
    structure = analyse(posed, most_work=most_work, nuisance=factors)
    return _of_unknowns(structure, problem, _restricted(structure.exact, names))


class _WithAbsorbances:
    """The user's builder, with absorbances at few wavelengths as variables of the model.

    Every model has all factors, as experiments may share spectra. Known spectra are numbers.

    spectra  experiment -> its spectra
    """

    def __init__(self, builder: Any, spectra: Mapping[str, Spectra]) -> None:
        self.builder, self.spectra = builder, spectra
        known = {_row(e, own, n) for e, own in spectra.items() for n in own.pure}
        every = dict.fromkeys(
            _row(e, own, n)
            for e, own in spectra.items()
            for n in [*own.absorbing, *[BACKGROUND] * own.constant]
        )
        self.free = [row for row in every if row not in known]
        unknown = [{_row(e, s, n) for n in s.absorbing} - known for e, s in spectra.items()]
        self.wavelengths = min(max(map(len, unknown)) or 1, MOST)
        shown = np.random.default_rng(0).integers(100, 1000, (len(every), self.wavelengths)) / 100
        self._shown = dict(zip(every, shown.tolist(), strict=True))

    def __call__(self, times: list[float], experiment: Experiment) -> Any:
        model = call(self.builder, times, experiment)
        instance, count = read(model), self.wavelengths
        factors = pyo.Var(
            range(len(self.free)), range(count), bounds=(-LARGEST, LARGEST), initialize=1.0
        )
        model.add_component(FACTOR, factors)
        place, own = {row: i for i, row in enumerate(self.free)}, self.spectra.get(experiment.name)
        if own is None:
            return model

        def factor(name: str, j: int) -> Any:
            row = _row(experiment.name, own, name)
            return factors[place[row], j] if row in place else self._shown[row][j]

        time, series = instance.time, {n: instance.over_time(n) for n in own.absorbing}
        model.add_component(OUTPUT, pyo.Var(time, range(count)))

        def rule(m: Any, t: float, j: int) -> Any:
            parts = [factor(n, j) * s[t] for n, s in series.items() if s is not None]
            parts += [factor(BACKGROUND, j) for _ in range(own.constant)]
            return m.component(OUTPUT)[t, j] == sum(parts)

        model.add_component(f"{OUTPUT}_rule", pyo.Constraint(time, range(count), rule=rule))
        return model


def _row(experiment: str, spectra: Spectra, name: str) -> tuple[str, str]:
    """Key of a species' factors: experiments with shared spectra have the same."""
    return "" if spectra.shared and name != BACKGROUND else experiment, name


def _posed(problem: Problem) -> Problem:
    """The problem whose measurements are absorbances, with their factors as unknowns."""
    given = problem.given
    spectra = {e.name: e.spectra for e in problem.experiments if e.spectra is not None}
    builder = _WithAbsorbances(problem.model, spectra)
    runs = [_measured(e, spectra.get(e.name), builder.wavelengths) for e in problem.experiments]
    parameters: Any = given["parameters"]
    if builder.free and isinstance(parameters, Mapping):
        parameters = {**parameters, FACTOR: (-LARGEST, LARGEST)}
    elif builder.free:
        parameters = [*parameters, FACTOR]
    arguments = {**given, "model": builder, "parameters": parameters, "experiments": runs}
    arguments["space"] = {}  # the builder's models are discretised already
    return Problem(**arguments).fixing(problem.fixed)


def _measured(experiment: Experiment, spectra: Spectra | None, count: int) -> Experiment:
    """The experiment with `count` wavelengths as columns of its table, and few times."""
    if spectra is None:
        return experiment
    rows = np.unique(np.linspace(0, len(spectra.times) - 1, FEW).astype(int))
    places = np.linspace(0, len(spectra.wavelengths) - 1, count).astype(int)
    names = [f"{OUTPUT}[{j}]" for j in range(len(places))]
    values = spectra.values[np.ix_(rows, places)]
    table = pd.DataFrame(values, index=spectra.times[rows], columns=names)
    if len(experiment.measurements.value):
        table = table.join(experiment.table().dropna(axis="columns", how="all"), how="outer")
    return experiment.with_columns(table.rename_axis("time").reset_index())


def _restricted(exact: Identifiability, names: tuple[str, ...]) -> Identifiability:
    """The verdicts on the problem's own unknowns."""

    def own(unknowns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(n for n in unknowns if n in names)

    def plain(functions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f for f in functions if FACTOR not in f)

    return replace(
        exact,
        verdicts={n: exact.verdicts.get(n, Identifiable.UNDECIDED) for n in names},
        unique=frozenset(own(tuple(exact.unique))),
        values={n: v for n, v in exact.values.items() if n in names},
        alternatives=tuple(
            replace(a, unknowns=own(a.unknowns), functions=plain(a.functions))
            for a in exact.alternatives
            if own(a.unknowns)
        ),
        measure={},
        integrated=own(exact.integrated),
    )


def _of_unknowns(structure: Structure, problem: Problem, exact: Identifiability) -> Structure:
    """What structure says of the problem's own unknowns."""
    findings = []
    for name in problem.box.names:
        finding = structure[name]
        lost = finding.reach is Access.UNREACHABLE
        shared = next((c for c in exact.combinations if name in c.unknowns), None)
        findings.append(
            replace(
                finding,
                reach=Access.UNREACHABLE if lost else Access.DYNAMIC,
                states=(),
                equations=(),
                implicit=(),
                form=None,
                measure=(),
                freeing=(),
                verdict=exact.verdicts.get(name, finding.verdict),
                values=exact.values.get(name, 0),
                shared=shared,
            )
        )
    return replace(
        structure,
        findings=tuple(findings),
        groups=(),
        subsystems=(),
        surplus=(),
        reduced=(),
        slopes=(),
        states=(),
        experiments=(),
        exact=exact,
        warnings=(*warnings_about(problem), *_sentences(exact)),
    )


def _sentences(exact: Identifiability) -> list[str]:
    """Which unknowns have other values, and what would decide."""
    sentences = []
    for one in exact.alternatives:
        *others, last = one.unknowns
        names = f"{', '.join(others)} and {last}" if others else last
        first = others[0] if others else ""
        same = {f"{first} + {last}", f"{first}*{last}"}
        is_pair = len(others) == 1 and one.number == len(one.unknowns)
        is_exchange = is_pair and same <= {*one.functions}
        sentences.append((EXCHANGE if is_exchange else SEVERAL).format(names=names))
    return sentences
