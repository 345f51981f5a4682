"""The examples of docs/design_of_experiments.md run as written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import igpe

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "design_of_experiments.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path):
    for name in ("data", "models"):
        shutil.copytree(ROOT / name, tmp_path / name)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "no other allowed choice of samples tells" in done.stdout
    assert (tmp_path / "sheet.csv").exists()
    assert (tmp_path / "plan.png").exists()


def test_names_exist():
    for name in re.findall(r"\bigpe\.([A-Za-z_]\w*)", TEXT):
        assert hasattr(igpe, name), name
