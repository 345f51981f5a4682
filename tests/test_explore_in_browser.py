"""The sliders as a browser shows them: Voila runs a notebook, a key moves a slider."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import consecutive
import igpe

igpe.plots.explore(consecutive.problem(), {"p1": 3.0, "p2": 0.5})
"""
PATIENCE = 120  # seconds until the server answers, or the page has its sliders


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def is_listening(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def address(tmp_path):
    """Of a page with `CODE`, served by Voila."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    path = tmp_path / "sliders.ipynb"
    nbformat.write(notebook, path)
    port, log = free_port(), tmp_path / "voila.log"
    rooms = os.pathsep.join([str(ROOT), str(ROOT / "models"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "voila", path.name, "--no-browser", f"--port={port}"]
    with log.open("w") as said:
        voila = subprocess.Popen(
            words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": rooms}, stdout=said, stderr=said
        )
        try:
            end = time.monotonic() + PATIENCE
            while not is_listening(port):
                assert voila.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            voila.terminate()
            voila.wait()


@pytest.mark.slow
def test_a_slider_moves_the_model_and_the_button_estimates(address, browser):
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(address)
    page.locator("polyline").first.wait_for(state="attached")
    before = page.locator("polyline").first.get_attribute("points")
    changed = f"() => document.querySelector('polyline').getAttribute('points') !== '{before}'"
    assert not page.evaluate(changed)
    page.locator(".noUi-handle").first.press("ArrowRight")
    page.wait_for_function(changed)
    page.get_by_role("button", name="Estimate from here").click()
    page.get_by_text("A local optimum").wait_for()
    assert page.locator("pre", has_text="igpe.simulate(problem, {'p1': 5.0").count() == 1
    page.close()
