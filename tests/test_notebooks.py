"""Every notebook runs from top to bottom, and is stored without its outputs."""

import os
import warnings
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")  # of jupyter's own packages; the kernel has its own filter
def test_it_runs(path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nbclient import NotebookClient  # noqa: PLC0415 - warns when imported

    found = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # else pictures would not be inline
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where).execute()
    said = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert [o.text for o in said if o.get("name") == "stderr"] == []
    assert any("image/png" in o.get("data", {}) for o in said)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [c.source for c in code if c.outputs or c.execution_count is not None] == []
    assert notebook.metadata.kernelspec.name == "python3"
