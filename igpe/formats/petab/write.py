"""Any problem with ordinary differential equations as PEtab of version 2 with an SBML model.

An experiment is one phase, or two: at rest, where it starts steady, and its own. Where an equation
is not the same in all phases, a parameter of the model, which the conditions set, says which one
counts. All states are parameters with rate rules: igpe knows no compartments.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pandas as pd

from igpe.core.errors import DataError, ModelError, Unsupported
from igpe.core.files import write
from igpe.dynamics.shooting.base import constraints, refuse
from igpe.dynamics.simulation import values_of
from igpe.equations.compiled import compiled
from igpe.equations.reading.pieces import of_time
from igpe.equations.symbols import without_logarithm
from igpe.equations.system import System
from igpe.formats.petab.printing import Ids, ModelEvent, SbmlModel, number_text, texts
from igpe.formats.petab.read import LOGARITHMS
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.losses import NormalPrior, Prior
from igpe.problem.noise.sigma import Noise
from igpe.problem.problem import Problem, takes_problem

UNBOUNDED = 1e14  # larger bounds count as infinite
AFTER = 1e-12  # of an experiment's length: delay of an event after a measurement
DEVIATION = (1e-8, 10.0)  # bounds of an unknown standard deviation, of the largest measurement
FIRST_GUESS = 0.05  # its nominal value
EQUAL = "sd all"  # the name of one that all quantities share
NOISE = {"noiseParameters", "noisePlaceholders", "noiseDistribution"}
OPTIONAL = {"priorDistribution", "priorParameters", *NOISE}


@takes_problem
def to_petab(
    problem: Problem, folder: str | Path, result: Any = None, *, force: bool = False
) -> Path:
    """Write a problem in PEtab version 2: a YAML file, its tables, and the model in SBML.

    From these files, `read_petab` and other programs compute the negative log-likelihood of the
    problem as the objective. Unknown standard deviations become parameters, one for each quantity
    (`sd_A` for `A`). `igpe.estimate` maximises the same likelihood. In names, underscores replace
    the characters that SBML does not allow (`k1@run2` becomes `k1_run2`); the original names are
    kept as display names.

    folder   folder for the files; igpe creates it if necessary
    result   result whose estimates become the nominal values, or a dict {unknown: value}; None: the
             nominal values are those in the model
    force    whether to replace existing files
    returns  the path of the YAML file
    raises   Unsupported for features that PEtab or SBML cannot express, ModelError if the model
             cannot be read, DataError if files exist and `force` is False, SolverMissing if the
             extra igpe[petab] is not installed
    """
    _refuse(problem)
    values = {} if result is None else values_of(problem, result)
    files = _Writer(problem).files(result, values)
    place = Path(folder)
    existing = [n for n in files if (place / n).is_file()]
    if existing and not force:
        raise DataError(
            f"'{place / existing[0]}' already exists. To replace the files of a problem, write "
            "force=True (igpe convert --force). Or give another folder."
        )
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write(place / name, content, force=force)
    return place / "problem.yaml"


def _refuse(problem: Problem) -> None:
    """Raise Unsupported for features that PEtab cannot express."""
    refuse(problem, "igpe.petab", "spectra")
    laws = [n for n, p in problem.priors.items() if isinstance(p, Prior) and p.scale != "lin"]
    box = problem.unknowns
    bounds = {n: (lo, up) for n, lo, up in zip(box.names, box.lower, box.upper, strict=True)}
    own = {n: (p.lower, p.upper) for n, p in problem.priors.items()}
    cut = [n for n, limits in own.items() if limits not in ((-np.inf, np.inf), bounds[n])]
    noise = {type(m).__name__ for e in problem.experiments for m in e.error_models.values()}
    penalised = [n for n, one in problem.time_varying.items() if one.penalty]
    kept = constraints(problem)
    refusals = (
        (not problem.loss.is_squares, f"the loss {type(problem.loss).__name__}"),
        (kept, f"the constraints {kept}"),
        (laws, f"priors for the logarithms of the parameters {laws}"),
        (cut, f"priors that are truncated at limits other than the bounds, such as those of {cut}"),
        (penalised, f"the penalty on jumps of {penalised}"),
        (noise - {"Noise"}, f"the error models {sorted(noise - {'Noise'})}"),
        (problem.is_censored, "values below a limit of detection (igpe.losses.Censored)"),
        (problem.is_correlated, "correlated errors"),
        (
            any(e.has_relative_sigma for e in problem.experiments),
            "standard deviations whose ratios are known but whose values are not",
        ),
    )
    for is_there, what in refusals:
        if is_there:
            raise Unsupported(
                f"PEtab does not support {what}. Remove this from the problem before you write it."
            )


class _Phase(NamedTuple):
    """A part of an experiment; `experiment` has the inputs that count in it."""

    experiment: Experiment
    system: System
    is_rest: bool


class _Writer:
    """Writes one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.ids = problem, Ids()
        self.phases: list[_Phase] = []
        for e, system in zip(problem.experiments, compiled(problem).systems, strict=True):
            if system.solved.implicit:
                names = [system.unknown_names[i] for i in system.solved.implicit]
                raise Unsupported(
                    f"The equations determine {names} only implicitly, and few programs that "
                    "read SBML can solve implicit equations. To write PEtab, replace them with "
                    "explicit formulas."
                )
            if e.steady is not None:
                self.phases.append(_Phase(e.at_rest(), system, is_rest=True))
            self.phases.append(_Phase(e, system, is_rest=False))
        first = self.phases[0].system.symbols
        self.states, self.algebraics = first.states, first.algebraics
        for e, system, _ in self.phases:
            if (system.symbols.states, system.symbols.algebraics) != (self.states, self.algebraics):
                raise Unsupported(
                    f"Experiments '{e.name}' and '{self.phases[0].experiment.name}' have different "
                    "states or algebraic variables, but a PEtab problem has only one model. Write "
                    "a separate problem for each experiment."
                )
        inputs = [n for phase in self.phases for n in phase.system.symbols.inputs]
        for name in (*first.parameters, *self.states, *self.algebraics, *inputs):
            self.ids(name)
        self.number, self.is_numbered = self.ids("phase"), False
        self._known_rates: dict[int, list[str]] = {}
        self.changes: list[dict[str, str]] = [{} for _ in self.phases]
        self.deviations: dict[str, tuple[str, float]] = {}

    def files(self, result: Any, values: Mapping[str, float]) -> dict[str, str]:
        """Name -> content of all files."""
        model = SbmlModel()
        self._constants(model)
        self._rules(model)
        self._events(model)
        observables, measurements = self._measured()
        parameters = self._parameters(result, values)
        if self.is_numbered:
            self._set(model, self.number, [str(i + 1) for i in range(len(self.phases))], "phase")
        used = model.names_used() | {self.ids(n) for n in self.problem.parameters}
        for row in parameters:
            if row["parameterId"] in used:
                model.constant(row["parameterId"], row["nominalValue"], name=row["parameterName"])
        conditions, experiments = self._conditions()
        tables = {
            "parameters": parameters,
            "observables": observables,
            "measurements": measurements,
            "conditions": conditions,
            "experiments": experiments,
        }
        written = {f"{n}.tsv": _tsv(rows) for n, rows in tables.items() if rows}
        listed = "".join(f"{n[:-1]}_files: [{n}.tsv]\n" for n, rows in tables.items() if rows)
        head = "format_version: 2.0.0\nmodel_files:\n  model:\n    location: model.xml\n"
        return {
            "problem.yaml": f"{head}    language: sbml\n{listed}",
            "model.xml": model.document(),
            **written,
        }

    # Names and formulas

    def _texts(self, phase: _Phase, expressions: Any, *, of_unknowns: bool = False) -> list[str]:
        """Formulas of an SX column.

        of_unknowns  whether parameters are called as the unknowns that they are in the experiment
        """
        s = phase.system.symbols
        p = [self._unknown(n, phase) if of_unknowns else self.ids(n) for n in s.parameters]
        rest = (s.states, s.algebraics, s.inputs)
        x, z, u = ([self.ids(n) for n in names] for names in rest)
        starts = [self.ids(f"{n}(start)") for n in s.states]
        symbols = [s.t, s.x, s.z, s.u, s.p, s.s]
        return texts(expressions, symbols, [["time"], x, z, u, p, starts])

    def _unknown(self, parameter: str, phase: _Phase) -> str:
        return self.ids(self.problem.unknown_of(parameter, phase.experiment))

    def _counting(self, each: Sequence[str], phases: Iterable[int] | None = None) -> str:
        """One formula from those of all phases; the number of the phase selects the branch."""
        cases: dict[str, list[int]] = {}
        for phase, text in zip(range(len(each)) if phases is None else phases, each, strict=True):
            cases.setdefault(text, []).append(phase + 1)
        if len(cases) == 1:
            return each[0]
        self.is_numbered = True
        parts = [f"{text}, {self._during(where)}" for text, where in cases.items()]
        *others, last = parts
        return f"piecewise({', '.join(others)}, {last.rsplit(', ', 1)[0]})"

    def _during(self, numbers: Iterable[int]) -> str:
        return " || ".join(f"({self.number} == {n})" for n in numbers)

    def _set(
        self,
        model: SbmlModel,
        target: str,
        each: Sequence[str],
        name: str,
        phases: Iterable[int] | None = None,
    ) -> None:
        """A constant of the model, in each phase or in some."""
        if len(set(each)) == 1:
            model.initial(target, each[0], name=name)
            return
        model.constant(target, 0.0, name=name)
        for k, text in zip(range(len(each)) if phases is None else phases, each, strict=True):
            self.changes[k][target] = text

    # The model

    def _constants(self, model: SbmlModel) -> None:
        """Add values that are constant within a phase: local parameters, start values."""
        for name in self.problem.parameters:
            own = [self._unknown(name, phase) for phase in self.phases]
            if own != [self.ids(name)] * len(own):
                self._set(model, self.ids(name), own, name)
        for i, name in enumerate(self.states):
            each = [self._start(phase, name) for phase in self.phases]
            start = self.ids(f"{name}(start)")
            self._set(model, start, each, f"{name} at the start")
            rates = [self._rates(phase)[i] for phase in self.phases]
            model.state(self.ids(name), start, self._counting(rates), name=name)

    def _rates(self, phase: _Phase) -> list[str]:
        key = id(phase.system)  # which `compiled` keeps
        if key not in self._known_rates:
            solved = ca.vertcat(*phase.system.solved.expressions[: len(self.states)])
            self._known_rates[key] = self._texts(phase, solved)
        return self._known_rates[key]

    def _start(self, phase: _Phase, state: str) -> str:
        given: Any = phase.experiment.start.get(state, phase.system.starts.get(state))
        if isinstance(given, Unknown):
            return self.ids(self.problem.start_unknown(state, phase.experiment))
        if isinstance(given, str):
            return self._unknown(given, phase)
        return self._texts(phase, ca.SX(given), of_unknowns=True)[0]

    def _rules(self, model: SbmlModel) -> None:
        """Inputs, unknowns that vary with time, algebraic variables."""
        own = [p.system.symbols.inputs for p in self.phases]
        for name in dict.fromkeys(n for names in own for n in names):
            where = [k for k, names in enumerate(own) if name in names]
            formula = self._pieces if name in self.problem.time_varying else self._input
            each = [formula(name, self.phases[k]) for k in where]
            given = [text for text, _ in each]
            if all(is_constant for _, is_constant in each):
                self._set(model, self.ids(name), given, name, where)
            else:
                model.rule(self.ids(name), self._counting(given, where), name=name)
        for i, name in enumerate(self.algebraics):
            of = len(self.states) + i
            each_text = [self._texts(p, p.system.solved.expressions[of])[0] for p in self.phases]
            model.rule(self.ids(name), self._counting(each_text), name=name)

    def _input(self, name: str, phase: _Phase) -> tuple[str, bool]:
        """An input's formula, and whether it is a constant."""
        e, t = phase.experiment, phase.system.symbols.t
        given: Any = e.inputs[name]
        if isinstance(given, Table):
            return _of_table(given, e.start_time, float(e.times[-1]))
        if callable(given):
            return self._texts(phase, of_time(name, given, t, e))[0], False
        return number_text(float(given)), True

    def _pieces(self, name: str, phase: _Phase) -> tuple[str, bool]:
        pieces = self.problem.pieces(name, phase.experiment)
        values = [self.ids(unknown) for unknown in pieces]
        return _stepped(values, list(pieces.values())[1:]), len(values) == 1

    def _events(self, model: SbmlModel) -> None:
        """Events, each in the phases that have it."""
        phases_with: dict[ModelEvent, list[int]] = {}
        for number, phase in enumerate(self.phases, start=1):
            jumps = phase.system.events
            for place, jump in enumerate(jumps):
                if phase.is_rest and not jump.before:
                    continue
                event = self._event(phase, jump, len(jumps) - place)
                phases_with.setdefault(event, []).append(number)
                self._require_one(
                    phase, jump, number in phases_with[event] and number - 1 in phases_with[event]
                )
        for number, (event, where) in enumerate(phases_with.items(), start=1):
            trigger = event.trigger
            if len(where) < len(self.phases):
                self.is_numbered = True
                trigger = f"({self._during(where)}) && ({trigger})"
            model.event(self.ids(f"event {number}"), event._replace(trigger=trigger))

    @staticmethod
    def _require_one(phase: _Phase, jump: Any, is_one: bool) -> None:
        """Raise Unsupported for an event that PEtab would let happen at the start after rest."""
        if phase.is_rest or phase.experiment.steady is None or jump.gap is None:
            return
        if not (is_one if jump.before else jump.at_start):
            raise Unsupported(
                f"Experiment '{phase.experiment.name}' starts at steady state and has an event "
                "with `when`, which PEtab cannot express. If `when` is true in the steady state, "
                "the event would happen at the start in PEtab, but not in igpe. Set at_start=True. "
                "Alternatively, set before=True and use the same condition before and after the "
                "start."
            )

    def _event(self, phase: _Phase, jump: Any, priority: int) -> ModelEvent:
        z = ca.vertcat(*phase.system.solved.expressions[len(self.states) :])
        known = phase.system.symbols.z, z

        def text(expression: Any) -> str:
            return self._texts(phase, ca.substitute(ca.SX(expression), *known))[0]

        e, delay, at = phase.experiment, ca.SX(jump.delay), jump.at
        is_known, seen = delay.is_constant(), jump.is_measured_after
        if at is not None and is_known and ca.SX(at).is_constant():
            at, delay = ca.SX(_seen(float(at + delay), e, after=seen)), ca.SX(0)
        elif jump.at_start and is_known:
            delay = ca.SX(_seen(e.start_time + float(delay), e, after=seen) - e.start_time)
        sign = ">=" if jump.closed else ">"
        trigger = f"{text(jump.gap)} {sign} 0" if at is None else f"time >= {text(at)}"
        sets = tuple((self.ids(self.states[i]), text(e)) for i, e in jump.after.items())
        return ModelEvent(trigger, sets, text(delay), priority, jump.at_start or at is not None)

    # The tables

    def _measured(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of the observables, and of the measurements."""
        kinds: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        own: dict[tuple[int, str], str] = {}
        for place, phase in enumerate(self.phases):
            e = phase.experiment
            for column in dict.fromkeys(e.measurements.column) if not phase.is_rest else ():
                name = e.measured[column]
                expression = phase.system.measured[name]
                if base := self._base(name):
                    inner = without_logarithm(expression)
                    is_taken = inner.element_hash() != expression.element_hash()
                    expression = inner if is_taken else ca.exp(base * expression)
                formula = self._texts(phase, expression)[0]
                kind, noise = self._noise(phase, name, formula)
                kinds.setdefault((name, kind), []).append((place, formula, noise))
                own[place, name] = self.ids(f"observable {self._plain(name)} {kind}".strip())
        rows = []
        for (name, kind), each in kinds.items():
            places, formulas, noises = zip(*each, strict=True)
            observable = self.ids(f"observable {self._plain(name)} {kind}".strip())
            noise = f"noiseParameter1_{observable}" if not kind else self._counting(noises, places)
            rows.append({
                "observableId": observable,
                "observableName": self._plain(name),
                "observableFormula": self._counting(formulas, places),
                "noiseFormula": noise,
                "noisePlaceholders": noise if not kind else "",
                "noiseDistribution": "log-normal" if self._base(name) else "",
            })
        return rows, list(self._measurements(own))

    def _measurements(self, own: Mapping[tuple[int, str], str]) -> Iterable[dict[str, Any]]:
        for place, phase in enumerate(self.phases):
            e, m = phase.experiment, phase.experiment.measurements
            if phase.is_rest:
                continue
            for k, row, value, sigma in zip(m.column, m.row, m.value, m.sigma, strict=True):
                base = self._base(m.names[k])
                yield {
                    "observableId": own[place, m.names[k]],
                    "experimentId": self.ids(f"experiment {e.name}"),
                    "time": float(m.times[row]),
                    "measurement": float(np.exp(base * value) if base else value),
                    "noiseParameters": (
                        "" if self._kind(e, m.names[k]) else float(sigma * (base or 1.0))
                    ),
                }

    def _base(self, name: str) -> float:
        """Natural logarithm of the base, if PEtab compares logarithms of a quantity; else 0."""
        return LOGARITHMS.get(self._scale(name), 0.0)

    def _scale(self, name: str) -> str:
        given: Mapping[str, str] = getattr(self.problem.model, "transformations", {})
        return given.get(name, "lin")

    def _plain(self, name: str) -> str:
        """The name of a quantity in PEtab, of which the problem may measure the logarithm."""
        return name.removeprefix(f"{self._scale(name)}_")

    @staticmethod
    def _kind(e: Experiment, name: str) -> str:
        """Kind of a quantity's standard deviations; empty for given numbers."""
        if name in e.error_models:
            return "of predictions"
        if name in e.estimated_sigma:
            return "estimated"
        return "unknown" if not e.sigma_known and not e.estimated_sigma else ""

    def _noise(self, phase: _Phase, name: str, formula: str) -> tuple[str, str]:
        """Kind of a quantity's standard deviations, and their formula."""
        e, kind = phase.experiment, self._kind(phase.experiment, name)
        if kind == "of predictions":
            model: Any = e.error_models[name]
            return kind, _of_noise(model, formula, model.least(e.measurements.of(name)[1]))
        if kind == "estimated":
            sd = phase.system.measured[e.estimated_sigma[name]] * (self._base(name) or 1.0)
            return kind, self._texts(phase, sd)[0]
        if not kind:
            return "", ""
        of = f"sd {name}" if e.weights_unknown else EQUAL
        largest = float(np.max(np.abs(e.measurements.of(name)[1]), initial=0.0)) or 1.0
        before = self.deviations.get(of, (name, 0.0))[1]
        self.deviations[of] = (name if e.weights_unknown else ""), max(largest, before)
        return kind, self.ids(of)

    def _parameters(self, result: Any, values: Mapping[str, float]) -> list[dict[str, Any]]:
        problem, box = self.problem, self.problem.unknowns
        rows = []
        for name, lower, upper in zip(box.names, box.lower, box.upper, strict=True):
            value = values.get(name, problem.fixed.get(name, self._value(name, lower, upper)))
            rows.append(self._row(name, lower, upper, value))
            rows[-1]["estimate"] = "false" if name in problem.fixed else "true"
            if name in problem.priors and name not in problem.fixed:
                prior = problem.priors[name]
                if isinstance(prior, NormalPrior):
                    prior = Prior("normal", (prior.mean, prior.deviation))
                numbers = ";".join(repr(float(v)) for v in prior.parameters)
                rows[-1] |= {"priorDistribution": prior.law, "priorParameters": numbers}
        points = getattr(result, "points", None)
        for of, (quantity, largest) in self.deviations.items():
            value = FIRST_GUESS * largest
            if points is not None:
                chosen = points if not quantity else points[points["name"] == quantity]
                value = float(np.sqrt(np.mean(chosen["residual"] ** 2))) or value
            lower, upper = (share * largest for share in DEVIATION)
            rows.append({**self._row(of, lower, upper, value), "estimate": "true"})
        return rows

    def _row(self, name: str, lower: float, upper: float, value: float) -> dict[str, Any]:
        return {
            "parameterId": self.ids(name),
            "parameterName": name,
            "lowerBound": float(lower) if lower > -UNBOUNDED else "-inf",
            "upperBound": float(upper) if upper < UNBOUNDED else "inf",
            "nominalValue": float(value),
            "estimate": "true",
            "priorDistribution": "",
            "priorParameters": "",
        }

    def _value(self, name: str, lower: float, upper: float) -> float:
        """The model's value, else the middle of the bounds."""
        component = self.problem.instance.scalars.get(name.split("@", maxsplit=1)[0])
        value = getattr(component, "value", None)
        if value is None or not np.isfinite(value):
            is_open = lower <= -UNBOUNDED or upper >= UNBOUNDED
            value = 1.0 if is_open else (lower + upper) / 2
        return float(np.clip(value, lower, upper))

    def _conditions(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of the conditions, and of the experiments."""
        conditions, experiments = [], []
        before: dict[str, str] = {}
        for (e, _, is_rest), changes in zip(self.phases, self.changes, strict=True):
            name = self.ids(f"condition {e.name}{' at rest' if is_rest else ''}")
            new = {n: text for n, text in changes.items() if before.get(n) != text}
            before = changes if is_rest else {}
            conditions += [
                {"conditionId": name, "targetId": n, "targetValue": text} for n, text in new.items()
            ]
            experiments.append({
                "experimentId": self.ids(f"experiment {e.name}"),
                "time": "-inf" if is_rest else float(e.start_time),
                "conditionId": name if new else "",
            })
        return conditions, experiments


def _of_table(table: Table, first: float, last: float) -> tuple[str, bool]:
    """A table's formula from an experiment's start to its end, and whether it is a constant."""
    inside = [float(t) for t in table.times if first < t < last]
    pieces = []
    for begin in (first, *inside):
        a, b = table.segment(begin)
        slope = f" + {number_text(b)} * time" if b >= 0 else f" - {number_text(-b)} * time"
        pieces.append(number_text(a) + slope * (b != 0))
    kept = [k for k in range(len(pieces)) if k == 0 or pieces[k] != pieces[k - 1]]
    text = _stepped([pieces[k] for k in kept], [inside[k - 1] for k in kept[1:]])
    return text, len(kept) == 1 and "time" not in text


def _stepped(values: Sequence[str], breaks: Sequence[float]) -> str:
    """Step function: at a break, the value before it still holds."""
    if len(values) == 1:
        return values[0]
    cases = [f"{v}, time <= {number_text(b)}" for v, b in zip(values[:-1], breaks, strict=True)]
    return f"piecewise({', '.join(cases)}, {values[-1]})"


def _seen(at: float, e: Experiment, *, after: bool) -> float:
    """Time of an event; slightly later if a measurement at this time precedes it."""
    return at if after or at not in e.times else at + AFTER * float(e.times[-1] - e.start_time)


def _of_noise(model: Noise, formula: str, least: float) -> str:
    """The standard deviation at a prediction."""
    absolute, relative = number_text(model.absolute**2), number_text(model.relative)
    if model.absolute > 0:
        return f"sqrt({absolute} + ({relative} * ({formula}))^2)"
    if not np.isfinite(least):
        raise ModelError(
            "All measurements of a quantity with a purely relative error are 0. Add an absolute "
            "error: igpe.Noise(absolute=..., relative=...)."
        )
    size, smallest = f"abs({formula})", number_text(least)
    return f"{relative} * piecewise({size}, {size} >= {smallest}, {smallest})"


def _tsv(rows: Sequence[Mapping[str, Any]]) -> str:
    frame = pd.DataFrame(list(rows))
    kept = [n for n in frame if n not in OPTIONAL or (frame[n] != "").any()]
    return str(frame[kept].to_csv(sep="\t", index=False, lineterminator="\n"))
