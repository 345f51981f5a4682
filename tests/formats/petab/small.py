"""A PEtab problem written for a test: an SBML model made by libSBML, and its tables."""

from pathlib import Path

import libsbml
import numpy as np
import pandas as pd
import pytest

import igpe

ROOT = Path(__file__).parents[3] / "data" / "petab"
MODEL = Path(__file__).parents[2] / "files" / "sound" / "petab1" / "model.xml"


def decay() -> libsbml.SBMLDocument:
    """A -> B in a vessel of 2 litres: A counts as concentration, B as amount."""
    return libsbml.readSBMLFromFile(str(MODEL))


def parameter(model, name, value, *, constant=True):
    p = model.createParameter()
    p.setId(name)
    p.setValue(value)
    p.setConstant(constant)
    return p


def law(model, formula):
    """Give the only reaction another rate."""
    model.getReaction(0).getKineticLaw().setMath(libsbml.parseL3Formula(formula))


def truth(times, k=0.5, start=3.0):
    """A as concentration, B as amount."""
    a = start * np.exp(-k * np.asarray(times))
    return a, 2.0 * (start - a)


PARAMETERS = pd.DataFrame({
    "parameterId": ["k", "A0", "sd"],
    "parameterScale": ["log10", "lin", "log10"],
    "lowerBound": [1e-3, 0.1, 1e-3],
    "upperBound": [1e3, 10.0, 1e2],
    "nominalValue": [0.5, 3.0, 0.1],
    "estimate": [1, 1, 1],
})
OBSERVABLES = pd.DataFrame({
    "observableId": ["oA", "oB"],
    "observableFormula": ["A", "B"],
    "noiseFormula": ["sd", "noiseParameter1_oB"],
})
CONDITIONS = pd.DataFrame({"conditionId": ["c1"]})


def measurements(times=(0.0, 0.5, 1.0, 2.0, 4.0), seed=1):
    a, b = truth(times)
    noise = 0.1 * np.random.default_rng(seed).standard_normal((2, len(times)))
    rows = [("oA", t, v, "") for t, v in zip(times, a + noise[0], strict=True)]
    rows += [("oB", t, v, "0.1") for t, v in zip(times, b + noise[1], strict=True)]
    table = pd.DataFrame(rows, columns=["observableId", "time", "measurement", "noiseParameters"])
    return table.assign(simulationConditionId="c1")


def write(folder, document=None, **tables):
    """The problem's files; returns its YAML."""
    given = {
        "parameters": PARAMETERS,
        "observables": OBSERVABLES,
        "conditions": CONDITIONS,
        "measurements": measurements(),
        **tables,
    }
    for name, table in given.items():
        table.to_csv(folder / f"{name}.tsv", sep="\t", index=False)
    libsbml.writeSBMLToFile(document or decay(), str(folder / "model.xml"))
    yaml = folder / "problem.yaml"
    yaml.write_text(
        "format_version: 1\nparameter_file: parameters.tsv\nproblems:\n"
        "- condition_files: [conditions.tsv]\n  measurement_files: [measurements.tsv]\n"
        "  observable_files: [observables.tsv]\n  sbml_files: [model.xml]\n"
    )
    return yaml


def refused(folder, says, document=None, *, error=igpe.errors.DataError, files=write, **tables):
    """Reading the problem raises the error with this message, which is returned."""
    given = {} if document is None else {"document": document}
    with pytest.raises(error, match=says) as caught:
        igpe.petab.read_petab(files(folder, **given, **tables))
    return str(caught.value)
