"""One method on one problem, in this process: what it told and when, as lines of JSON.

    python -m peers.run CASE PEER SEED STARTS SECONDS FILE      (in the folder `benchmarks`)

Each line has `event`: begun, prepared, found, failed, done, or broke with a sentence `why`; the
seconds of the processor that this process (`own`) and those it started (`others`) have used since
it begun; and `parameters` of what was found. The system ends it after SECONDS of search.
"""

import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from peers.cases import case
from peers.registry import method
from peers.task import NotPosedError, Task


class Notes:
    """Writes lines; the clock begins with it."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._begun = os.times()

    def seconds(self) -> tuple[float, float]:
        """Of this process, and of those it started."""
        a, b = self._begun, os.times()
        own = b.user + b.system - a.user - a.system
        others = b.children_user + b.children_system - a.children_user - a.children_system
        return own, others

    def note(self, event: str, **more: Any) -> None:
        """One line, at once."""
        own, others = self.seconds()
        self.file.write(json.dumps({"event": event, "own": own, "others": others, **more}) + "\n")
        self.file.flush()


def main() -> None:
    """Do what the command line says."""
    name, peer, seed, starts, limit, path = sys.argv[1:]
    with Path(path).open("w", encoding="utf-8") as file:
        try:
            asked = case(name)
            task = Task(asked.make(), int(seed), int(starts), asked.yaml)
            prepare = method(peer)
            notes = Notes(file)
            search = prepare(task)
            notes.note("prepared")
            before = sum(notes.seconds())
            _stop_after(float(limit))
            for found in search():
                told = {} if found is None else {"parameters": dict(found)}
                notes.note("failed" if found is None else "found", **told)
                if sum(notes.seconds()) - before > float(limit):
                    notes.note("stopped")
                    return
            notes.note("done")
        except ImportError as error:
            Notes(file).note("broke", why=f"not installed: {error}")
        except NotPosedError as error:
            Notes(file).note("broke", why=f"not posed: {error}")
        except Exception as error:
            traceback.print_exc()
            why = f"broke: {type(error).__name__}: {error}"
            Notes(file).note("broke", why=" ".join(why.split())[:200])


def _stop_after(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    last = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (last, last + 5))


if __name__ == "__main__":
    main()
