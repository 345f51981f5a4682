"""Every Python example in docs/ runs; the blocks of one page build on each other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def examples(page: Path) -> str:
    found = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return "\n".join(found)


@pytest.mark.parametrize("page", [p for p in PAGES if examples(p)], ids=lambda p: p.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    for name in ("data", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    words = [sys.executable, "-W", "error", "-c", examples(page)]
    ran = subprocess.run(
        words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
