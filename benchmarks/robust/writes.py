"""Kills while a file is written: what is in the file afterwards.

Compared with the two texts that may be there, the old one and the new one. A process writes files
of each kind again and again and is killed (SIGKILL) at a seeded moment.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figures import Row, at_least, at_most
from trust.run import Answer, run

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "answer": '{\n  "command": "estimate",\n "x": "%s"}',
    "result": '{\n  "stored": "result",\n "x": "%s"}',
    "certificate": '{\n  "format": "igpe dynamic certificate 1",\n "x": "%s"}',
    "page": '<!DOCTYPE html>\n<meta name="generator" content="igpe">\n<p>%s</p>',
}
SIZE = 5_000_000  # letters: a kill hits the writing, not the time between
CASES = [f"{kind} {seed}" for kind in KINDS for seed in range(5)]
CODE = """
import sys
from igpe.core.files import write
form, size = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
number = 0
while True:
    number = (number + 1) % 10
    write(sys.argv[1], form % (str(number) * size))
    print(number, flush=True)
"""


def _killed(case: str) -> Answer:
    kind, _, seed = case.partition(" ")
    chance = random.Random(case)
    form = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="igpe-writes-") as folder:
        place = Path(folder) / "out"
        words = [sys.executable, "-c", CODE, str(place), form, str(SIZE)]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(2 + int(seed)):
                child.stdout.readline()
            try:
                child.wait(chance.uniform(0.0, 0.05))
            except subprocess.TimeoutExpired:
                child.kill()
            child.stdout.read()
        text = place.read_text(encoding="utf-8") if place.exists() else ""
        whole = any(text == form % (str(n) * SIZE) for n in range(10))
        return {"whole": whole, "cut": len(list(Path(folder).iterdir())) > 1}


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Counts over all kills."""
    answers = list(run("writes", CASES, _killed, given, limit=60.0).values())
    yield at_least("all", "kills", len(answers), "-", 2 if given.quick else 20)
    lost = sum(not a.get("whole") for a in answers)
    yield at_most("all", "files neither old nor new", lost, limit=0)
    cut = sum(bool(a.get("cut")) for a in answers)
    yield at_most("all", "kills in the midst of writing", cut)
