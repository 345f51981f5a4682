"""Problems written as PEtab with SBML, simulated by another program.

    python benchmarks/petab_out.py [again] [drawn] [simulated] [--peer PYTHON] [--json FILE]

The problems of models/, and those of tests/formats/petab/problems.py: several experiments, inputs,
local parameters, events, steady-state starts.

again      the negative log-likelihood of the problem and of what is read again: their relative
           difference near nominal values; what PEtab's linter remarks
drawn      the same of 40 random problems (Drawn in tests/formats/petab/problems.py)
simulated  libRoadRunner on the very SBML files, conditions set in them: the largest difference from
           igpe on the problem itself, relative to the largest value of the quantity; without
           target where the equations are chaotic, as any two programs part there

libRoadRunner is installed apart:

    python -m venv PEER && PEER/bin/pip install libroadrunner
    python benchmarks/petab_out.py simulated --peer PEER/bin/python
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import libsbml
import numpy as np
import pandas as pd
from figures import MODELS, Row, at_most, command

import igpe
from igpe.dynamics.likelihood import negative_log_likelihood
from igpe.dynamics.shooting.residuals import runs_of
from igpe.formats.petab.formulas import inserted, library, number, parsed, quiet

HERE = Path(__file__).parent
SAME = 1e-6
INTEGRATOR = igpe.integrators.Sundials(rtol=1e-10, atol=1e-12)
DRAWN = 40
CHAOTIC = {"rikitake"}
SHIFT = 1.05, 1e-3  # of nominal values: times and plus, for some are 0
REST = 1e4  # how long before a steady-state start is simulated
PEER = """
import json, sys
import roadrunner
job = json.load(sys.stdin)
model = roadrunner.RoadRunner(job["sbml"])
model.integrator.relative_tolerance, model.integrator.absolute_tolerance = 1e-10, 1e-13
model.integrator.maximum_num_steps = 1000000
model.timeCourseSelections = ["time", *job["names"]]
print(json.dumps(model.simulate(times=job["times"]).tolist()))
"""


def made() -> Any:
    """The module of the tests' problems."""
    sys.path.append(str(HERE.parent / "tests" / "formats" / "petab"))
    return importlib.import_module("problems")


def problems() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name -> what makes the problem."""
    for file in sorted(MODELS.glob("*.py")):
        yield file.stem, importlib.import_module(file.stem).problem
    yield from made().PROBLEMS.items()


def again(_: argparse.Namespace) -> Iterator[Row]:
    """Written and read again."""
    yield from read_again(problems())


def drawn(_: argparse.Namespace) -> Iterator[Row]:
    """Random problems, written and read again."""
    yield from read_again((f"drawn {k}", made().Drawn(k).problem) for k in range(DRAWN))


def read_again(given: Iterable[tuple[str, Callable[[], Any]]]) -> Iterator[Row]:
    """Two figures of each problem."""
    for name, make in given:
        problem = make()
        with tempfile.TemporaryDirectory() as folder:
            yaml, table = _write(problem, folder)
            with quiet():
                remarks = library("petab.v2").Problem.from_yaml(str(yaml)).validate()
            read = igpe.petab.read_petab(yaml)
        values = dict(zip(table["parameterName"], table["nominalValue"], strict=True))
        before = negative_log_likelihood(_weighted(problem, values), _of(problem, values))
        difference = abs(igpe.petab.petab_objective(read) - before) / max(1.0, abs(before))
        limit = None if name in CHAOTIC else SAME
        yield at_most(name, "difference of the objectives", difference, "-", limit)
        yield at_most(name, "remarks of PEtab's linter", len(remarks), "-", 0)


def simulated(given: argparse.Namespace) -> Iterator[Row]:
    """Beside libRoadRunner."""
    for name, make in problems():
        problem = make()
        with tempfile.TemporaryDirectory() as folder:
            _, table = _write(problem, folder)
            theirs = _theirs(Path(folder), given.peer)
        values = dict(zip(table["parameterName"], table["nominalValue"], strict=True))
        x, worst = problem.box.vector(_of(problem, values)), 0.0
        runs = runs_of(problem, INTEGRATOR)
        for e, run, (quantities, times, found) in zip(
            problem.experiments, runs, theirs, strict=True
        ):
            mine = replace(run.simulation, sensitivities=False).run(x[run.index])
            seen = e.times[np.unique(e.measurements.row)]
            predicted = pd.DataFrame(mine.measured[:, : len(e.measured)], seen, e.measured)
            at = predicted.loc[times, quantities].to_numpy()
            size = np.maximum(np.abs(at).max(axis=0), 1e-300)
            worst = max(worst, float((np.abs(found - at) / size).max()))
        limit = None if name in CHAOTIC else SAME
        yield at_most(name, "largest difference from libRoadRunner", worst, "-", limit)


def _parameters(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "parameters.tsv", sep="\t", dtype={"parameterName": str})


def _write(problem: Any, folder: str) -> tuple[Path, pd.DataFrame]:
    """Write a problem, with other nominal values; returns its YAML and its parameters."""
    yaml = igpe.petab.to_petab(problem, folder)
    table = _parameters(Path(folder))
    free = ~table["parameterName"].isin(list(problem.fixed))
    table.loc[free, "nominalValue"] = SHIFT[0] * table["nominalValue"] + SHIFT[1]
    table.to_csv(Path(folder) / "parameters.tsv", sep="\t", index=False)
    return yaml, table


def _of(problem: Any, values: Mapping[str, float]) -> dict[str, float]:
    return {n: values[n] for n in problem.box.names}


def _weighted(problem: Any, values: Mapping[str, float]) -> Any:
    """The problem with the standard deviations that were unknown."""
    unknown = {n: v for n, v in values.items() if n.startswith("sd ")}
    if not unknown or problem.sigma_known:
        return problem
    return problem.weighted([
        np.array([unknown.get(f"sd {e.measured[k]}", unknown.get("sd all")) for k in m.column])
        for e in problem.experiments
        for m in [e.measurements]
    ])


def _theirs(folder: Path, peer: str) -> list[tuple[list[str], list[float], Any]]:
    """Of each experiment its quantities, measured times, and (n_times, n_quantities) values."""
    tables = {
        n: pd.read_csv(folder / f"{n}.tsv", sep="\t", dtype={"observableName": str})
        for n in ("experiments", "observables", "measurements")
    }
    conditions: dict[str, dict[str, str]] = {}
    if (folder / "conditions.tsv").exists():
        for row in pd.read_csv(folder / "conditions.tsv", sep="\t", dtype=str).itertuples():
            conditions.setdefault(row.conditionId, {})[row.targetId] = row.targetValue
    nominal = _parameters(folder).set_index("parameterId")["nominalValue"].to_dict()
    found = []
    for experiment, periods in tables["experiments"].groupby("experimentId", sort=False):
        rows = tables["measurements"]
        measured = rows[rows["experimentId"] == experiment]
        shown = (
            tables["observables"].set_index("observableId").loc[measured["observableId"].unique()]
        )
        values: dict[str, float] = dict(nominal)
        states: dict[str, float] = {}
        for period in periods.itertuples():
            for target, text in conditions.get(period.conditionId, {}).items():
                values[target] = _number(text, nominal)
            sbml, names = _set(folder / "model.xml", values, states, shown["observableFormula"])
            if np.isinf(period.time):
                last = _run(peer, sbml, names, [0.0, REST])[-1]
                states = dict(zip(names, last, strict=True))
                continue
            times = sorted({period.time, *measured["time"]})
            made = _run(peer, sbml, list(shown.index), times)
            own = sorted(set(measured["time"]))
            found.append((list(shown["observableName"]), own, made[np.searchsorted(times, own)]))
    return found


def _number(text: str, values: Mapping[str, float]) -> float:
    return float(inserted(parsed(text), {n: number(v) for n, v in values.items()}))


def _set(
    file: Path, values: Mapping[str, float], states: Mapping[str, float], shown: Any
) -> tuple[str, list[str]]:
    """The SBML with values set and rules for what is measured; and names of its states."""
    document = libsbml.readSBMLFromFile(str(file))
    model = document.getModel()
    for name, value in {**values, **states}.items():
        if model.getParameter(name) is not None:
            model.getParameter(name).setValue(value)
            model.removeInitialAssignment(name)
    names = [r.getVariable() for r in model.getListOfRules() if r.isRate()]
    for name, formula in shown.items():
        made = model.createParameter()
        made.setId(name)
        made.setConstant(False)
        rule = model.createAssignmentRule()
        rule.setVariable(name)
        rule.setMath(libsbml.parseL3Formula(str(formula)))
    return libsbml.writeSBMLToString(document), names


def _run(peer: str, sbml: str, names: list[str], times: list[float]) -> Any:
    job = json.dumps({"sbml": sbml, "names": names, "times": times})
    done = subprocess.run([peer, "-c", PEER], input=job, capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout.splitlines()[-1]))[:, 1:]


def options(parser: argparse.ArgumentParser) -> None:
    """The interpreter that has libRoadRunner."""
    parser.add_argument("--peer", default=sys.executable, help="Python with libRoadRunner")


if __name__ == "__main__":
    command(__doc__ or "", "Out", {"again": again, "drawn": drawn, "simulated": simulated}, options)
