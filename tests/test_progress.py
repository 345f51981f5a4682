"""Progress: a bar in notebooks and terminals, or a function of the caller's; else nothing."""

import sys
from types import SimpleNamespace

import consecutive
import nbformat
import pytest

import igpe
from igpe.core.progress import Share, reported, with_bar


class Handle:
    """What a notebook shows, as IPython's display handle changes it."""

    def __init__(self):
        self.shown = []

    def update(self, data, *, raw):
        assert raw
        self.shown.append(data["text/html"])


@pytest.fixture
def notebook(monkeypatch):
    handle = Handle()
    display = SimpleNamespace(display=lambda data, **_: handle)
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None), display=display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    return handle


@with_bar
def work(*, progress=None):
    """Something that takes a while, with something inside that has progress too."""
    with reported(None) as inner:
        inner("hidden")
    progress(Share("<half>", 0.5, steady=False))
    progress("more")


def test_a_notebook_shows_a_bar_that_goes_away(notebook):
    work()
    assert notebook.shown == [
        '<progress value="0.500"></progress> &lt;half&gt;',
        "<progress></progress> more",
        "",
    ]


def test_it_goes_away_after_an_error_and_can_be_turned_off(notebook):
    with pytest.raises(ZeroDivisionError), reported(None):
        raise ZeroDivisionError
    assert notebook.shown[-1] == ""
    del notebook.shown[:]
    work(progress=False)
    assert notebook.shown == []


def test_a_function_is_called_instead(notebook):
    said = []
    work(progress=said.append)
    assert said == ["<half>", "more"]
    assert notebook.shown == []


def test_elsewhere_nothing_is_shown(capfd):
    work()
    work(progress=True)  # standard error is no terminal here
    assert capfd.readouterr() == ("", "")


def test_time_left_follows_from_steady_shares(notebook):
    with reported(None) as tell:
        tell(Share("a", 0.5))
        tell(Share("b", 0.5, steady=False))
        tell(Share("c", 0.001))
    assert [" s left" in one for one in notebook.shown] == [True, False, False, False]


def test_results_are_the_same_with_a_bar(notebook):
    problem = consecutive.problem()
    shown = igpe.estimate(problem)
    assert any("Step 3" in one for one in notebook.shown)
    assert shown.parameters == igpe.estimate(problem, progress=False).parameters
    del notebook.shown[:]
    igpe.profile(problem, shown, ["p1"])
    assert "Profile of p1" in notebook.shown[0]
    igpe.bootstrap(problem, shown, replications=10)
    assert "10 of 10 replications" in notebook.shown[-2]


@pytest.mark.filterwarnings("ignore")  # of jupyter's own packages
def test_in_a_kernel_of_jupyter(monkeypatch):
    from nbclient import NotebookClient  # noqa: PLC0415 - warns when imported

    code = "from igpe.core.progress import reported\nwith reported(None) as tell: tell('words')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/html"] == ""
