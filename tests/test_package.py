"""What is built from the checkout: the wheel holds the package, the sdist all that tests need."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
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


def test_a_release_has_the_addresses_of_its_repository(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    words = [sys.executable, str(ROOT / ".github" / "addresses.py"), "https://host.org/me/it", "v1"]
    subprocess.run(words, check=True, cwd=tmp_path)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "](docs/" not in readme
    assert "![Measured and fitted" in readme
    assert "](https://host.org/me/it/raw/v1/docs/pictures/alpha_pinene.png)" in readme
    assert "](https://host.org/me/it/blob/v1/CHANGELOG.md)" in readme
    assert "/v1/http" not in readme  # what was absolute stays
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Issues"] == "https://host.org/me/it/issues"
    assert "Source" in project["urls"]


def test_the_changelog_and_the_citation_have_the_version():
    version = (
        (ROOT / "igpe" / "__init__.py").read_text(encoding="utf-8").split('__version__ = "')[1]
    )
    number = version.partition('"')[0]
    assert f"\n## {number} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {number}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
