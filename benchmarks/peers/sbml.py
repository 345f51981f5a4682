"""The problem in the words of systems biology: Antimony, from that SBML, and a PEtab problem.

States are parameters with rate rules; what differs between experiments (constant inputs, knots of
tables, known start values) are parameters that PEtab's condition table sets.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from igpe.dynamics.shooting.base import spread_of
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table
from peers.task import NotPosedError, Task
from peers.told import SBML, Course, Told, safe, told

MODEL = "asked"


def antimony(problem: Told) -> str:
    """The model with the first experiment's conditions; `observed_x` is what is measured as x."""
    text, first = problem.text(SBML), problem.courses[0]
    box = problem.problem.box
    middle = np.where(box.lower > 0, np.sqrt(np.abs(box.lower * box.upper)), box.upper / 2)
    numbers = conditions(first) | dict(zip(problem.unknowns, middle.tolist(), strict=True))
    lines = [f"{n} = {v!r}" for n, v in numbers.items()]
    lines += [f"{n} := {_broken_line(n, v)}" for n, v in tables(first).items()]
    lines += [f"{x} = {v if isinstance(v, str) else _begin(x)}" for x, v in first.start.items()]
    lines += [f"{n} := {e}" for n, e in text.shared.items()]
    lines += [f"{x}' = {e}" for x, e in text.slopes.items()]
    lines += [f"observed_{n} := {e}" for n, e in text.measured.items()]
    return f"model {MODEL}()\n  " + ";\n  ".join(lines) + ";\nend\n"


def sbml(problem: Told) -> str:
    """The same as SBML."""
    import antimony as translator

    translator.clearPreviousLoads()
    if translator.loadAntimonyString(antimony(problem)) < 0:
        raise NotPosedError(translator.getLastError())
    return str(translator.getSBMLString(MODEL))


def conditions(course: Course) -> dict[str, float]:
    """What an experiment sets: name -> number."""
    if course.experiment.start_time != 0:
        raise NotPosedError("an experiment that does not begin at time 0")
    found = {_begin(x): v for x, v in course.start.items() if not isinstance(v, str)}
    found |= {n: v for n, v in course.inputs.items() if not isinstance(v, Table)}
    for name, table in tables(course).items():
        found |= {f"{name}_{k}": float(v) for k, v in enumerate(table.values)}
    return found


def tables(course: Course) -> Mapping[str, Table]:
    """Inputs that change with time."""
    return {n: v for n, v in course.inputs.items() if isinstance(v, Table)}


def _begin(state: str) -> str:
    return f"begin_{state}"


def _broken_line(name: str, table: Table) -> str:
    if table.hold:
        raise NotPosedError("inputs that jump")
    t = [float(v) for v in table.times]
    parts = [
        f"{name}_{k} + ({name}_{k + 1} - {name}_{k}) * (time - {t[k]!r}) / {t[k + 1] - t[k]!r}, "
        f"time < {t[k + 1]!r}"
        for k in range(len(t) - 1)
    ]
    return f"piecewise({', '.join(parts)}, {name}_{len(t) - 1})"


def petab_problem(task: Task, folder: Path) -> Path:
    """Write the problem as PEtab 1 and return its YAML file.

    Where standard deviations are not known a hundredth of the measurements' size stands for them:
    thresholds of optimisers are made for likelihoods.
    """
    problem = told(task.problem)
    (folder / "model.xml").write_text(sbml(problem), encoding="utf-8")
    runs = [(f"run_{safe(c.experiment.name) or 'only'}", c) for c in problem.courses]
    frames = {
        "conditions": pd.DataFrame([{"conditionId": n, **conditions(c)} for n, c in runs]),
        "observables": _observables(problem),
        "measurements": pd.concat([_measurements(task, n, c.experiment) for n, c in runs]),
        "parameters": _parameters(task, problem),
    }
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.tsv", sep="\t", index=False)
    (folder / "problem.yaml").write_text(
        "format_version: 1\n"
        "parameter_file: parameters.tsv\n"
        "problems:\n"
        "- condition_files: [conditions.tsv]\n"
        "  measurement_files: [measurements.tsv]\n"
        "  observable_files: [observables.tsv]\n"
        "  sbml_files: [model.xml]\n",
        encoding="utf-8",
    )
    return folder / "problem.yaml"


def _observables(problem: Told) -> pd.DataFrame:
    names = [safe(n) for n in problem.problem.experiments[0].measured]
    return pd.DataFrame({
        "observableId": [f"of_{n}" for n in names],
        "observableFormula": [f"observed_{n}" for n in names],
        "noiseFormula": [f"noiseParameter1_of_{n}" for n in names],
    })


def _measurements(task: Task, condition: str, run: Experiment) -> pd.DataFrame:
    m = run.measurements
    spread = spread_of(task.problem)
    return pd.DataFrame({
        "observableId": [f"of_{safe(m.names[c])}" for c in m.column],
        "simulationConditionId": condition,
        "time": m.times[m.row],
        "measurement": m.value,
        "noiseParameters": m.sigma * spread,
    })


def _parameters(task: Task, problem: Told) -> pd.DataFrame:
    return pd.DataFrame({
        "parameterId": list(problem.unknowns),
        "parameterScale": ["log10" if log else "lin" for log in task.logarithmic],
        "lowerBound": task.logarithmic_lower,
        "upperBound": task.problem.box.upper,
        "nominalValue": (task.logarithmic_lower + task.problem.box.upper) / 2,
        "estimate": 1,
    })
