"""What README.md promises is so: its commands, its example, its links and its names."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import outputs
import pandas as pd
import pytest

import igpe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
OWN_RUN = "my_run.xlsx"  # the user's file


def blocks(language, word):
    return [text for kind, text in BLOCKS if kind == language and word in text]


def commands(text):
    """Lines of a shell block without remarks."""
    lines = (line.partition("  #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def run(words, folder):
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=folder, env=ENVIRONMENT, timeout=300
    )


@pytest.fixture
def folder(tmp_path):
    """A copy of what the README's commands read, and the user's own file."""
    for name in ("data", "models"):
        shutil.copytree(ROOT / name, tmp_path / name)
    pd.read_csv(ROOT / "data" / "bellman.csv").to_excel(tmp_path / OWN_RUN, index=False)
    return tmp_path


def test_the_quick_start_is_two_commands():
    section = README.split("\n## Quick start\n")[1].split("\n## ")[0]
    shell = re.findall(r"^```sh\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    found = [line for text in shell for line in commands(text)]
    assert len(found) == 2
    assert "igpe estimate models/" in found[0]
    assert "pytest" in found[1]
    assert all(line.startswith("python3 -m venv .venv && .venv/bin/pip install") for line in found)


PAGES = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.pages] if page.stem != "README" else [])
    for page in outputs.PAGES
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages; the examples' own are errors
def test_the_examples_of_a_page_put_out_what_is_stored(page):
    """All Python blocks of a page that use igpe, and all cells of a notebook, in their order."""
    pairs = list(outputs.compared(page))
    if not pairs:
        pytest.skip(f"{page.name} has no examples")
    wrong = (outputs.difference(old, new) for old, new in pairs if old is not None)
    assert list(filter(None, wrong)) == []


def test_outputs_that_differ_are_seen():
    stored = "k1  5.93e-05  5.70e-05 … 6.15e-05\nTime 1.2 s, 9 boxes"
    assert outputs.difference(stored, stored.replace("1.2", "7.9").replace("9 b", "11 b")) == ""
    assert outputs.difference(stored, stored.replace("5.93", "5.934")) == ""
    for wrong in ("5.93e-04", "6.93e-05", "59300000", "-5.93e-05"):
        assert outputs.difference(stored, stored.replace("5.93e-05", wrong)) != ""
    assert outputs.difference(stored, stored.replace("boxes", "trees")) != ""
    assert outputs.difference(stored, stored + "\nmore") != ""


COMMAND_LINE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
COMMANDS = commands(COMMAND_LINE.split("\n## Examples\n")[1].split("```")[1].removeprefix("sh\n"))
MADE = {shlex.split(line)[2] for line in COMMANDS if line.startswith("igpe new ")}


def test_the_commands_are_found():
    used = {line.split()[1] for line in COMMANDS}
    assert used == {"check", "compare", "design", "estimate", "new", "profile", "simulate"}
    assert any(OWN_RUN in line for line in COMMANDS)


OUTPUT = ("--plot", "--json", "--report")


@pytest.mark.pages
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_works(line, folder):
    before = {p.name for p in folder.iterdir()}
    name, *words = shlex.split(line)
    done = run([sys.executable, "-m", name, *words], folder)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("Written: ") for line in done.stderr.splitlines())
    assert done.stdout
    promised = {w for option, w in pairwise(words) if option in OUTPUT} | (MADE & set(words))
    assert {p.name for p in folder.iterdir()} - before == promised


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_links_lead_somewhere(target):
    assert target.startswith("https://") or (ROOT / target).exists()


def test_files_named_in_code_exist():
    named = set(re.findall(r"[\w/-]+\.(?:py|yml|ipynb|md)\b", README))
    assert [n for n in named - MADE if not (ROOT / n).exists()] == []


def test_optional_extras_exist():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = {e for group in re.findall(r"'\.\[([\w,]+)\]'", README) for e in group.split(",")}
    assert "test" in named
    assert named <= set(extras)


def test_public_names_exist():
    named = set(re.findall(r"\bigpe\.([A-Za-z_]\w*)", README))
    assert named
    for name in named:
        assert hasattr(igpe, name), name


def test_the_number_of_models_is_right():
    words = {12: "twelve", 13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen"}
    words |= {17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}
    published = {p.stem for p in (ROOT / "models").glob("*.py")} - {"kinetic_examples"}
    count = len(published)
    assert f"{words[count]} published [models](models)" in README
