"""Every notebook runs from top to bottom and puts out what is stored."""

import os
import warnings

import nbformat
import outputs
import pytest


def test_there_are_notebooks():
    assert outputs.NOTEBOOKS


@pytest.mark.parametrize("path", outputs.NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")  # of jupyter's own packages; the kernel has its own filter
def test_it_puts_out_what_is_stored(path, monkeypatch):
    found = [str(outputs.ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # else pictures would not be inline
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = outputs.execute(path)
    said = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert [o.text for o in said if o.get("name") == "stderr"] == []
    assert any("image/png" in o.get("data", {}) for o in said)
    stored = nbformat.read(path, as_version=4)
    assert stored.metadata.kernelspec.name == "python3"
    pairs = zip(outputs.texts(stored), outputs.texts(notebook), strict=True)
    assert [d for pair in pairs if (d := outputs.difference(*pair))] == []
