"""The public names are documented, each on one page of the reference; the site builds cleanly."""

import dataclasses
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from front_door import PUBLIC

import igpe
from igpe import kinetics

ROOT = Path(__file__).parents[1]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
CLASSES = {n: o for n, o in PUBLIC.items() if inspect.isclass(o)}
CALLED = [n for n, o in PUBLIC.items() if n not in CLASSES or dataclasses.is_dataclass(o)]
CALLED += ["igpe.Problem", "igpe.Experiment"]


def own_docstring(thing):
    """A dataclass without one gets its signature as docstring, which does not count."""
    text = thing.__doc__ or ""
    return "" if inspect.isclass(thing) and text.startswith(f"{thing.__name__}(") else text


def said_of(thing):
    """What the docstring says; of a class also what the classes say from which it inherits."""
    if not inspect.isclass(thing):
        return own_docstring(thing)
    return "\n".join(own_docstring(c) for c in thing.__mro__ if c.__module__.startswith("igpe"))


def parameters_of(thing):
    if inspect.isclass(thing) and not dataclasses.is_dataclass(thing):
        thing = thing.__init__
    return [p for p in inspect.signature(thing).parameters if p != "self"]


def members(thing):
    """Public methods and properties that are defined in igpe: name -> function."""
    found = {}
    for name in (n for n in dir(thing) if not n.startswith("_")):
        raw = inspect.getattr_static(thing, name)
        for inner in ("fget", "func", "__func__"):  # property; cached property; class method
            raw = getattr(raw, inner, raw)
        if inspect.isfunction(raw) and raw.__module__.startswith("igpe"):
            found[name] = raw
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring(name):
    assert own_docstring(PUBLIC[name]).strip()


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_have_docstrings(name):
    """Their own, or that of the method they override."""
    kind = CLASSES[name]
    assert [m for m in members(kind) if not inspect.getdoc(getattr(kind, m))] == []


@pytest.mark.parametrize("name", CALLED)
def test_parameters_are_named(name):
    said = set(re.findall(r"\w+", said_of(PUBLIC[name])))
    assert [p for p in parameters_of(PUBLIC[name]) if p not in said] == []


def test_members_are_found():
    assert {"estimate", "prepare", "as_published"} <= members(igpe.SingleShooting).keys()
    assert {"box", "fixing", "from_parmest"} <= members(igpe.Problem).keys()
    assert {"species", "parameters"} <= members(kinetics.Batch).keys()


def test_every_public_name_is_in_the_reference_once():
    pages = "\n".join(p.read_text(encoding="utf-8") for p in REFERENCE)
    assert sorted(re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)) == sorted(PUBLIC)


DOCS = "mkdocstrings", "latex2mathml"


@pytest.mark.skipif(not all(map(importlib.util.find_spec, DOCS)), reason="needs '.[docs]'")
def test_the_site_builds_without_a_warning(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path}  # an advertisement
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=ROOT, env=quiet, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in sorted((ROOT / "notebooks").glob("*.ipynb")):
        assert (tmp_path / "notebooks" / f"{page.stem}.html").exists()
    html = "\n".join(p.read_text(encoding="utf-8") for p in tmp_path.rglob("*.html"))
    fetched = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="https?://[^"]*"', html)
    assert fetched == []
    assert "fonts.googleapis" not in html
