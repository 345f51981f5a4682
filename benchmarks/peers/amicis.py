"""AMICI's time of a PEtab problem's objective and gradient; run by AMICI's own Python.

    python benchmarks/peers/amicis.py PROBLEM.yaml FOLDER RELATIVE ABSOLUTE

FOLDER is where the compiled model goes; RELATIVE and ABSOLUTE are its tolerances. Derivatives are
taken forward and by adjoints. Prints one line of JSON: version; processor seconds of import and
compiling, children's too; of each method the objective, its gradient, and the seconds of a call,
conditions and the map of parameters being prepared, and of the integrations in it.
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
    from amici.importers.petab.v1 import import_petab_problem
    from amici.sim.sundials import SensitivityMethod

    path, folder, relative, absolute = sys.argv[1:]
    problem = read(Path(path))
    began = sum(os.times()[:4])
    model = import_petab_problem(problem, output_dir=Path(folder) / "model", verbose=False)
    printed = {"version": amici.__version__, "compiling": sum(os.times()[:4]) - began}
    solver = model.create_solver()
    solver.set_relative_tolerance(float(relative))
    solver.set_absolute_tolerance(float(absolute))
    solver.set_max_steps(100_000)
    for name in ("forward", "adjoint"):
        solver.set_sensitivity_method(getattr(SensitivityMethod, name))
        printed[name] = timed(problem, model, solver)
    print(json.dumps(printed))


def read(path):
    """The problem, as AMICI can read it."""
    import petab.v1
    import yaml

    settings = yaml.safe_load(path.read_text())
    for part in settings["problems"]:  # these tables are not kept in data/petab
        part.pop("visualization_files", None)
    problem = petab.v1.Problem.from_yaml(settings, base_path=str(path.parent))
    petab.v1.flatten_timepoint_specific_output_overrides(problem)  # AMICI knows no others
    return problem


def timed(problem, model, solver):
    """Objective, gradient and seconds at the nominal parameters."""
    from amici.sim.sundials import SensitivityOrder, run_simulations
    from amici.sim.sundials.petab.v1 import LLH, SLLH, simulate_petab
    from amici.sim.sundials.petab.v1._conditions import create_edatas, fill_in_parameters
    from amici.sim.sundials.petab.v1._parameter_mapping import create_parameter_mapping

    solver.set_sensitivity_order(SensitivityOrder.first)
    conditions = problem.get_simulation_conditions_from_measurement_df()
    mapping = create_parameter_mapping(
        petab_problem=problem,
        simulation_conditions=conditions,
        scaled_parameters=True,
        amici_model=model,
    )
    given = create_edatas(model, problem, conditions)
    values = dict(zip(problem.x_ids, problem.x_nominal_scaled, strict=True))
    fill_in_parameters(given, values, True, mapping, model)
    settings = {
        "amici_model": model,
        "solver": solver,
        "simulation_conditions": conditions,
        "edatas": given,
        "parameter_mapping": mapping,
        "problem_parameters": values,
        "scaled_parameters": True,
    }
    seconds, result = repeated(lambda: simulate_petab(problem, **settings))
    integration, _ = repeated(lambda: run_simulations(model, solver, given))
    return {
        "seconds": seconds,
        "integration": integration,
        "objective": -result[LLH],
        "gradient": {n: -float(v) for n, v in (result[SLLH] or {}).items()},
    }


def repeated(call):
    """The median of processor seconds, and the last result; the first call is not counted."""
    call()
    spent = []
    while len(spent) < CALLS or sum(spent) < LEAST:
        began = time.process_time()
        result = call()
        spent.append(time.process_time() - began)
    return sorted(spent)[len(spent) // 2], result


if __name__ == "__main__":
    main()
