"""200 SBML models of a seeded generator, read through a PEtab problem: igpe beside libRoadRunner.

    python benchmarks/sbml_models.py [models] [--only SEED] [--json FILE]

benchmarks/sbml/generator.py writes the models; benchmarks/sbml/values.json holds what libRoadRunner
2.10 simulates (benchmarks/sbml/roadrunner_values.py, in a venv of its own). A model is right where
every value is within 1e-5 (relative, or absolute below 1), refused where igpe says why, else wrong.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figures import Row, at_least, at_most, command

import igpe

FOLDER = Path(__file__).parent / "sbml"
sys.path.insert(0, str(FOLDER))
from generator import COUNT, TIMES, model  # noqa: E402

NEAR = 1e-5
YAML = """format_version: 1
parameter_file: parameters.tsv
problems:
- condition_files: [conditions.tsv]
  measurement_files: [measurements.tsv]
  observable_files: [observables.tsv]
  sbml_files: [model.xml]
"""


def simulated(text: str, shown: list[str]) -> np.ndarray:
    """Values (names, times) by igpe; raises IgpeError."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = {
            "model.xml": text,
            "problem.yaml": YAML,
            "conditions.tsv": "conditionId\nc1\n",
            "parameters.tsv": "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\t"
            "estimate\nsd_\tlin\t0.1\t10\t1\t1\n",
            "observables.tsv": "observableId\tobservableFormula\tnoiseFormula\n"
            + "".join(f"o_{n}\t{n}\tsd_\n" for n in shown),
            "measurements.tsv": "observableId\tsimulationConditionId\ttime\tmeasurement\n"
            + "".join(f"o_{n}\tc1\t{t}\t0\n" for n in shown for t in TIMES),
        }
        for name, content in files.items():
            (folder / name).write_text(content)
        problem = igpe.petab.read_petab(folder / "problem.yaml")
        found = igpe.petab.petab_simulations(problem)
    return np.array([found.loc[found["observableId"] == f"o_{n}", "simulation"] for n in shown])


def verdict(seed: int, reference: dict) -> tuple[str, str]:
    """right, refused or wrong, and what was seen."""
    text, shown, features = model(seed)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == reference["sha"], "another generator"
    label = f"{seed} ({', '.join(features)})"
    if "values" not in reference:
        return "without reference", f"{label}: {reference['error']}"
    try:
        mine = simulated(text, shown)
    except igpe.errors.IgpeError as error:
        return "refused", f"{label}: {error}"
    wanted = np.array([reference["values"][n] for n in shown])
    off = np.abs(mine - wanted) / np.maximum(np.abs(wanted), 1.0)
    if np.isfinite(wanted).all() and not np.isfinite(mine).all():
        return "not integrated", label
    if (off <= NEAR).all():
        return "right", label
    worst = int(np.argmax(np.nan_to_num(off, nan=np.inf).max(axis=1)))
    return "wrong", f"{label}: {shown[worst]} {mine[worst].tolist()} {wanted[worst].tolist()}"


def models(args: argparse.Namespace) -> Iterator[Row]:
    """How many of each verdict."""
    references = json.loads((FOLDER / "values.json").read_text())
    counts: dict[str, int] = {}
    for seed in range(COUNT) if args.only is None else [args.only]:
        kind, seen = verdict(seed, references[str(seed)])
        counts[kind] = counts.get(kind, 0) + 1
        if kind != "right":
            print(f"{kind}: {seen}", flush=True)
    total = sum(counts.values())
    known = total - counts.get("without reference", 0)
    yield at_least("models", "right", counts.get("right", 0), f"of {known}", 0.95 * known)
    for kind in ("refused", "not integrated", "without reference"):
        yield at_most("models", kind, counts.get(kind, 0))
    yield at_most("models", "wrong", counts.get("wrong", 0), "-", 0)


def options(parser: argparse.ArgumentParser) -> None:
    """Arguments beside those of all benchmarks."""
    parser.add_argument("--only", type=int, default=None, help="one seed")


if __name__ == "__main__":
    command(__doc__, "SBML models", {"models": models}, options)
