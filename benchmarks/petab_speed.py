"""The time of PEtab problems' objective and gradient, beside AMICI's in the same run.

    python benchmarks/petab_speed.py [calls] [first] [all] [uncompiled] [--amici PYTHON]
                                     [--only NAME ...] [--store FOLDER] [--json FILE]

All at the nominal parameters, in processor seconds, each program in a process of its own. With
--store each program's times are kept, and a run that was stopped continues.

calls       milliseconds of one objective with its gradient, igpe's and AMICI's (the faster of
            forward and adjoint sensitivities, conditions prepared), at tolerances at which both
            have the same objective; igpe's over AMICI's, and the median of these
first       seconds until the first gradient, after imports: reading, deriving, compiling; with an
            empty cache and with a full one
all         the same with an empty cache, of all problems of the collection; the limit is for those
            of up to 40 states
uncompiled  `calls` where igpe finds no C compiler

AMICI is installed apart, as it needs a C++ compiler, BLAS, SWIG and CMake:

    apt-get install -y g++ libopenblas-dev swig cmake
    python -m venv AMICI && AMICI/bin/pip install 'amici[petab]' scipy swig cmake
    python benchmarks/petab_speed.py --amici AMICI/bin/python
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import Row, at_most, command
from peers.amici_python import amici_python, answer, environment
from trust.run import Answer, add, stored

HERE = Path(__file__).parent
PROBLEMS = ("Boehm", "Borghans", "Bachmann", "Fujita", "Brannmark", "Fiedler", "Elowitz")
TOLERANCES = ("1e-8", "1e-12")  # AMICI's, relative and absolute: those of its objective are 1e-5
SAME = 1e-4  # between the objectives
SLOWER, MEDIAN, UNCOMPILED = 2.0, 1.0, 5.0  # times AMICI's; times that without a compiler
FIRST, STATES = 10.0, 40  # s until the first gradient, up to so many states
COMPILERS = ("CC", "CXX")


def calls(given: argparse.Namespace) -> Iterator[Row]:
    """Igpe's and AMICI's."""
    yield from _compared(given, compilers=True, slower=SLOWER, median=MEDIAN)


def uncompiled(given: argparse.Namespace) -> Iterator[Row]:
    """The same without a compiler."""
    yield from _compared(given, compilers=False, slower=SLOWER * UNCOMPILED, median=UNCOMPILED)


def _compared(
    given: argparse.Namespace, *, compilers: bool, slower: float, median: float
) -> Iterator[Row]:
    shares = []
    for name in _chosen(given, PROBLEMS):
        case = f"{name}, igpe" if compilers else f"{name}, igpe uncompiled"
        ours = _kept(given, case, partial(_once, name, compilers=compilers))
        theirs = _kept(given, f"{name}, AMICI", partial(_amicis, name, given.amici))
        fastest = min((theirs[k] for k in ("forward", "adjoint")), key=lambda v: v["seconds"])
        share = ours["seconds"] / fastest["seconds"]
        shares.append(share)
        yield at_most(name, "igpe, objective and gradient", 1e3 * ours["seconds"], "ms")
        yield at_most(name, "AMICI, objective and gradient", 1e3 * fastest["seconds"], "ms")
        yield at_most(name, "AMICI, its integrations alone", 1e3 * fastest["integration"], "ms")
        yield at_most(name, "igpe's over AMICI's", share, "-", slower)
        difference = abs(ours["objective"] - theirs["forward"]["objective"])
        yield at_most(name, "difference of the objectives", difference, "-", SAME)
        yield at_most(name, "of the gradients", _apart(name, ours, theirs["forward"]), "-", SAME)
    yield at_most("all", "median of igpe's over AMICI's", float(np.median(shares)), "-", median)


def first(given: argparse.Namespace) -> Iterator[Row]:
    """Until the first gradient."""
    for name in _chosen(given, PROBLEMS):
        both = _kept(given, f"{name}, igpe twice", partial(_twice, name))
        for case, ours in both.items():
            seconds = ours["reading"] + ours["first"]
            yield at_most(f"{name}, {ours['states']} states", case, seconds, "s", FIRST)


def every(given: argparse.Namespace) -> Iterator[Row]:
    """Until the first gradient, of all problems."""
    folders = sorted(p.parent for p in (HERE.parent / "data" / "petab").glob("*/*.yaml"))
    for name in _chosen(given, [folder.name.partition("_")[0] for folder in folders]):
        ours = _kept(given, f"{name}, igpe", partial(_once, name, compilers=True))
        limit = FIRST if ours["states"] <= STATES else None
        case = f"{name}, {ours['states']} states"
        yield at_most(case, "empty cache", ours["reading"] + ours["first"], "s", limit)


def _chosen(given: argparse.Namespace, names: Sequence[str]) -> list[str]:
    return [name for name in names if not given.only or name in given.only]


def _kept(given: argparse.Namespace, case: str, work: Callable[[], Answer]) -> Answer:
    """The answer from the store, or of work, which goes there."""
    store = given.store / "speed.jsonl" if given.store else None
    known = dict(stored(store))
    if case not in known:
        known[case] = work()
        add(store, case, known[case])
    return known[case]


def _once(name: str, *, compilers: bool) -> Answer:
    with tempfile.TemporaryDirectory() as cache_folder:
        return _ours(name, cache_folder, compilers=compilers)


def _twice(name: str) -> Answer:
    """With one cache."""
    with tempfile.TemporaryDirectory() as cache_folder:
        cases = ("empty cache", "full cache")
        return {case: _ours(name, cache_folder, compilers=True) for case in cases}


def _apart(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The largest difference of slopes by logarithms of parameters, of the largest of these."""
    nominal = np.array([_nominal(name)[n] for n in ours["gradient"]])
    mine = np.array(list(ours["gradient"].values())) * nominal
    other = np.array([theirs["gradient"][n] for n in ours["gradient"]]) * nominal
    return float(np.abs(mine - other).max() / max(1.0, np.abs(other).max()))


@cache
def _nominal(name: str) -> dict[str, float]:
    import igpe  # noqa: PLC0415 - after the command line was read

    return dict(igpe.petab.read_petab(_file(name)).model.nominal)


def _file(name: str) -> Path:
    return next((HERE.parent / "data" / "petab").glob(f"{name}_*/*.yaml"))


def _ours(name: str, cache_folder: str, *, compilers: bool) -> dict[str, Any]:
    ours = {**os.environ, "XDG_CACHE_HOME": cache_folder}
    ours["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE / "peers")])
    if not compilers:
        for variable in COMPILERS:
            ours.pop(variable, None)
        ours["PATH"] = cache_folder
    return answer([sys.executable, str(HERE / "peers" / "igpe_calls.py"), str(_file(name))], ours)


@cache
def _amicis(name: str, python: Path) -> dict[str, Any]:
    """AMICI's times; compiled anew, as its folder ends with this call."""
    with tempfile.TemporaryDirectory() as folder:
        script = HERE / "peers" / "amicis.py"
        return answer(
            [str(python), str(script), str(_file(name)), folder, *TOLERANCES], environment(python)
        )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--amici", type=amici_python, default=None, help="a Python that has AMICI")
    parser.add_argument("--only", nargs="*", default=[], help="problems, by their first names")
    parser.add_argument("--store", type=Path, help="folder that keeps answers, to resume from")


def _needing_amici(section: Any) -> Any:
    def run(given: argparse.Namespace) -> Iterator[Row]:
        if given.amici is None:
            raise SystemExit(
                "This section compares with AMICI: give --amici PYTHON, the Python of an "
                "environment that has it. `python benchmarks/petab_speed.py --help` says how to "
                "make one."
            )
        yield from section(given)

    return run


if __name__ == "__main__":
    sections = {
        "first": first,
        "all": every,
        "calls": _needing_amici(calls),
        "uncompiled": _needing_amici(uncompiled),
    }
    command(__doc__, "PEtab speed", sections, _options)
