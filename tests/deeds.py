"""Work for the tests, in a module that every worker can import."""

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from igpe.core.errors import Unsupported
from igpe.tasks.workers import Item, Work


def noted(folder, key):
    """A line for each time that an item is begun: who does it."""
    with (Path(folder) / "begun").open("a") as file:
        file.write(f"{key} {os.getpid()}\n")


def begun(folder):
    """The keys of all that was begun, as often as it was."""
    file = Path(folder) / "begun"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def pids(folder, key):
    """The processes that began an item."""
    lines = (line.split() for line in (Path(folder) / "begun").read_text().splitlines())
    return [int(pid) for name, pid in lines if name == str(key)]


def make(asked):
    """Numbers are doubled; a text says what else happens to item 3."""
    folder, deed, factor = asked
    with (Path(folder) / "made").open("a") as file:
        file.write(f"{os.getpid()}\n")

    def one(number):
        noted(folder, number)
        time.sleep(0.05 * (deed == "work on"))
        if number == 3:
            DEEDS[deed](folder)
        return {"number": factor * number}

    return one


def make_at_last(folder):
    """Ready only in the sixth process: five die before."""
    with (Path(folder) / "tried").open("a") as file:
        file.write("x")
    if (Path(folder) / "tried").stat().st_size <= 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return lambda number: {"number": 2 * number}


def make_but_not_first(folder):
    """Ready in every process but the first one that tries."""
    first = Path(folder) / "first"
    if not first.exists():
        first.write_text(str(os.getpid()))
    if first.read_text() == str(os.getpid()):
        raise ValueError("this worker lacks a package")

    def one(number):
        time.sleep(0.1)
        return {"number": 2 * number}

    return one


def die_once(folder):
    marker = Path(folder) / "died"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def talk(folder):
    sys.stdout.write("a model that prints")
    os.write(1, b"and one that is compiled")
    assert sys.stdin.read() == ""


def refuse(folder):
    raise Unsupported("Nobody can do this.")


DEEDS = {
    "nothing": lambda folder: None,
    "die": lambda folder: os.kill(os.getpid(), signal.SIGKILL),
    "die once": die_once,
    "hang": lambda folder: time.sleep(1000),
    "hang briefly": lambda folder: time.sleep(0.7),
    "work on": lambda folder: None,
    "raise": lambda folder: 1 / 0,
    "refuse": refuse,
    "talk": talk,
    "interrupt": lambda folder: (_ for _ in ()).throw(KeyboardInterrupt),
}


def work(folder, deed="nothing", factor=2):
    return Work(make, (str(folder), deed, factor), f"series {factor}")


def items(count):
    return (Item(str(k), k) for k in range(count))


def alive(pid):
    """Whether a process runs (not: is dead but not yet buried)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def kept(store):
    """The keys in a store, while another process writes."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as file:
            return {key for (key,) in file.execute("SELECT key FROM outcomes")}
    except sqlite3.OperationalError:
        return set()  # there is no file or no table yet


def soon(told, seconds=10.0):
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if told():
            return True
        time.sleep(0.02)
    return False


def make_unless_lacking(_nothing):
    """Fail in workers that have LACKS in their environment."""
    if "LACKS" in os.environ:
        raise ValueError("this worker lacks a package")
    return lambda number: {"number": 2 * number}


def lack():
    """What a worker without a package does at its start."""
    os.environ["LACKS"] = "1"
