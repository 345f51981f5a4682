"""Reference values of the generated models: run apart, in a venv with libroadrunner.

python benchmarks/sbml/roadrunner_values.py benchmarks/sbml/values.json
"""

import hashlib
import json
import sys
from pathlib import Path

import libsbml
import roadrunner
from generator import COUNT, TIMES, model


def values(text: str, shown: list[str]) -> dict[str, list[float]]:
    """Name -> its values at all times."""
    species = {s.getId(): s for s in libsbml.readSBMLFromString(text).getModel().getListOfSpecies()}
    is_amount = {n: n not in species or species[n].getHasOnlySubstanceUnits() for n in shown}
    runner = roadrunner.RoadRunner(text)
    runner.integrator.setValue("relative_tolerance", 1e-10)
    runner.integrator.setValue("absolute_tolerance", 1e-12)
    runner.integrator.setValue("maximum_time_step", 0.01)
    runner.timeCourseSelections = [n if is_amount[n] else f"[{n}]" for n in shown]
    found = runner.simulate(times=list(TIMES))
    return {n: [float(v) for v in found[:, k]] for k, n in enumerate(shown)}


def main() -> None:
    """All models, in a JSON file."""
    rows = {}
    for seed in range(COUNT):
        text, shown, _ = model(seed)
        row = {"sha": hashlib.sha256(text.encode()).hexdigest()[:16]}
        try:
            row["values"] = values(text, shown)
        except Exception as error:  # whatever the peer says
            row["error"] = str(error)[:300]
        rows[seed] = row
    Path(sys.argv[1]).write_text(json.dumps(rows) + "\n")


main()
