"""Puts the zoo of problems, the published models and the benchmarks where tests can import them.

And opens every kind of executor, a real cluster among them, and a browser. Small matrices need no
threads.
"""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

BRIEF = {"TRIALS": 8, "STARTS": 2, "LINE": 8, "EXCHANGES": 3}
BROWSERS = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
PROVING = {"test_answers.py", "test_proof.py"}  # of the command line
KERNELS = """
import igpe
from igpe.proofs.prover import unasked
unasked.compile_kernels()
problem = unasked._decay(1)
igpe.verify(igpe.certify(problem, {"k0": 1.0}, gap=0.5), problem)
"""
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / room) for room in ("models", "benchmarks"))]

for library in ("OPENBLAS", "OMP", "MKL"):  # several workers share the cores: threads would wait
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

os.environ.setdefault("IGPE_PROOFS", "asked")  # else each estimate would try one, for seconds

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background; and for children
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Begin to compile the kernels of proofs, once for all workers: that takes minutes."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen([sys.executable, "-c", KERNELS], cwd=HERE.parent, **nothing)
        config.add_cleanup(process.wait)
        config.add_cleanup(process.terminate)  # cleanups run last in, first out


def pytest_collection_modifyitems(items):
    """What needs the kernels of proofs comes last, when they are compiled."""
    items.sort(key=lambda item: "proofs" in item.path.parts or item.path.name in PROVING)


@pytest.fixture(scope="module", autouse=True)
def _brief_search(request):
    """From fewer points than users have: half of an estimate's time is the search for other optima.

    Modules whose tests look at what it meets have the mark `thorough`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("thorough"):
            for name, fewer in BRIEF.items():
                patch.setattr(f"igpe.dynamics.search.other_optima.{name}", fewer)
        yield


@pytest.fixture(autouse=True)
def _figures_closed():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def cluster():
    """dask.distributed with two worker processes; a task that killed its worker fails at once."""
    distributed = pytest.importorskip("distributed")
    import dask  # noqa: PLC0415 - comes with distributed

    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture(scope="module")  # its event loop would stay in the way of others
def browser():
    """Headless Chromium: Debian's or Google's, else the one that playwright installs."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - few tests need it

    with sync_playwright() as driver:
        installed = [p for p in map(shutil.which, BROWSERS) if p]
        program = Path(installed[0] if installed else driver.chromium.executable_path)
        if not program.exists():
            give_up = pytest.fail if os.environ.get("IGPE_BROWSER") else pytest.skip
            give_up("Chromium is not installed; `playwright install chromium` brings it.")
        with driver.chromium.launch(executable_path=program) as running:
            yield running


@contextmanager
def executor_of(name, request):
    """By its name: here, own, pool, threads, dask."""
    if name == "here":
        yield None
    elif name == "own":
        yield 2
    elif name == "dask":
        yield request.getfixturevalue("cluster").get_executor()
    else:
        with {"pool": ProcessPoolExecutor, "threads": ThreadPoolExecutor}[name](2) as executor:
            yield executor


@pytest.fixture
def opened(request):
    """Opens an executor by its name."""
    return lambda name: executor_of(name, request)
