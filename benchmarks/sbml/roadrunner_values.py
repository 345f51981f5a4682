"""Reference values of the generated models: run apart, in a venv with libroadrunner.

    python benchmarks/sbml/generator.py models.json
    VENV/bin/python benchmarks/sbml/roadrunner_values.py models.json benchmarks/sbml/values.json

Apart from the generator too: libRoadRunner and python-libsbml in one process crash.
libRoadRunner reads no algebraic rules. The generator writes one kind, 0 = 2 * p_alg - S - 1; the
peer gets it solved by hand, p_alg = (S + 1) / 2.
"""

import hashlib
import json
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ALGEBRAIC = re.compile(r"<algebraicRule>.*?<ci> (S\d) </ci>.*?</algebraicRule>", re.DOTALL)
SOLVED = (
    '<assignmentRule variable="p_alg"><math xmlns="http://www.w3.org/1998/Math/MathML"><apply>'
    r"<divide/><apply><plus/><ci> \1 </ci><cn> 1 </cn></apply><cn> 2 </cn></apply></math>"
    "</assignmentRule>"
)
TIMES = (0.0, 0.7, 1.6, 2.9, 4.3, 6.1, 8.2, 10.0)


def values(model: dict[str, Any]) -> dict[str, Any]:
    """Name -> its values at all times, or what the peer says."""
    import roadrunner  # noqa: PLC0415 - absent where a benchmark imports this

    text, shown = model["text"], model["shown"]
    row: dict[str, Any] = {"sha": hashlib.sha256(text.encode()).hexdigest()[:16]}
    try:
        runner = roadrunner.RoadRunner(ALGEBRAIC.sub(SOLVED, text))
        runner.integrator.setValue("relative_tolerance", 1e-10)
        runner.integrator.setValue("absolute_tolerance", 1e-12)
        runner.integrator.setValue("maximum_time_step", 0.01)
        runner.timeCourseSelections = list(shown.values())
        found = runner.simulate(times=list(TIMES))
        row["values"] = {n: [float(v) for v in found[:, k]] for k, n in enumerate(shown)}
    except Exception as error:  # whatever the peer says
        row["error"] = str(error)[:300]
    return row


def main() -> None:
    """All models, in a JSON file; each in a process of its own, as some crash it."""
    models, rows = json.loads(Path(sys.argv[1]).read_text()), {}
    for seed, model in models.items():
        with ProcessPoolExecutor(1) as pool:
            try:
                rows[seed] = pool.submit(values, model).result()
            except Exception as error:
                sha = hashlib.sha256(model["text"].encode()).hexdigest()[:16]
                rows[seed] = {"sha": sha, "error": f"crashed: {type(error).__name__}"}
    Path(sys.argv[2]).write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
