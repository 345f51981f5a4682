"""What is built from the checkout: the wheel holds the package, the sdist all that tests need."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACKED = "igpe", "tests", "models", "data", "benchmarks", "notebooks", "docs"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def checked_out(*folders):
    """Files that git knows, as paths inside the checkout."""
    words = ["git", "ls-files", "--", *folders]
    listed = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert "igpe/py.typed" in names
    assert checked_out("igpe") <= names
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"igpe"}


def test_the_sdist_holds_what_the_tests_need(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert checked_out(*TRACKED, "README.md", "LICENSE", "pyproject.toml", "mkdocs.yml") <= names
    assert not [n for n in names if n.startswith((".venv", "dist"))]
