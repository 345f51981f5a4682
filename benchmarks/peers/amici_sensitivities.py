"""AMICI's time of one course with its derivatives; run by AMICI's own Python.

    python benchmarks/peers/amici_sensitivities.py GIVEN.json FOLDER

GIVEN holds the path of an SBML model, the times, values of the parameters by their identifiers, and
tolerances; FOLDER is where the compiled model goes. Derivatives by these parameters are taken
forward. Prints one line of JSON: version, processor seconds of import and compiling (children's
too), seconds of a course, and the final values of the states by their identifiers.
"""

import json
import os
import sys
import time
from pathlib import Path

CALLS, LEAST = 3, 0.5  # calls at least, and seconds that they take together at least


def main() -> None:
    """Import, compile, call."""
    import amici
    from amici.importers.sbml import SbmlImporter
    from amici.sim.sundials import SensitivityMethod, SensitivityOrder, run_simulation

    given, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    began = sum(os.times()[:4])
    SbmlImporter(given["model"]).sbml2amici(
        "sized", folder / "model", verbose=False, observation_model=[]
    )
    model = amici.import_model_module("sized", folder / "model").get_model()
    compiling = sum(os.times()[:4]) - began
    free = list(model.get_free_parameter_ids())
    names = [n if n in free else f"amici_{n}" for n in given["parameters"]]  # if it is reserved
    for name, value in zip(names, given["parameters"].values(), strict=True):
        model.set_free_parameter_by_id(name, value)
    model.set_parameter_list([free.index(name) for name in names])
    model.set_timepoints(given["times"])
    solver = model.create_solver()
    solver.set_relative_tolerance(given["rtol"])
    solver.set_absolute_tolerance(given["atol"])
    solver.set_max_steps(1_000_000)
    solver.set_sensitivity_order(SensitivityOrder.first)
    solver.set_sensitivity_method(SensitivityMethod.forward)
    run_simulation(model, solver)
    began, calls = time.process_time(), 0
    while calls < CALLS or time.process_time() - began < LEAST:
        result, calls = run_simulation(model, solver), calls + 1
    seconds = (time.process_time() - began) / calls
    assert result.status == 0, f"AMICI failed with status {result.status}"
    ends = dict(zip(model.get_state_ids(), map(float, result.x[-1]), strict=True))
    printed = {"version": amici.__version__, "compiling": compiling}
    print(json.dumps(printed | {"seconds": seconds, "ends": ends}))


if __name__ == "__main__":
    main()
