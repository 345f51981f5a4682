"""Work as bytes that travel to another process, and made ready there once."""

import hashlib
from collections import OrderedDict
from typing import NamedTuple

import cloudpickle

from igpe.core.errors import IgpeError, ProblemError
from igpe.tasks.work import Function, Work

MOST = 4  # functions that a process keeps ready; compiled models are large


class NotReady(Exception):
    """The work could not be made ready in one worker; `args[0]` is the IgpeError that says why.

    Another worker may be able to: it may have the memory, the file or the package that this one
    lacks.
    """


class Packed(NamedTuple):
    """Work on its way: `name` is the hash of its `content`."""

    name: str
    content: bytes


def pack(work: Work) -> Packed:
    """The work as bytes; functions that no module holds (notebooks, lambdas) travel as code.

    raises ProblemError, naming what cannot be pickled
    """
    try:
        content = cloudpickle.dumps((work.make, work.asked))
    except Exception as error:
        raise ProblemError(
            f"The problem cannot be sent to another process ({type(error).__name__}: {error}). Its "
            "model, the functions in it and the method must be such as can be pickled: make what "
            "cannot (open files, locks, solvers at work) inside of the function model(times), or "
            "leave out executor= and timeout=."
        ) from error
    return Packed(hashlib.sha256(content).hexdigest(), content)


_ready: OrderedDict[str, Function] = OrderedDict()


def function_of(packed: Packed) -> Function:
    """The function, made ready in this process the first time it is asked for.

    raises NotReady if it cannot be
    """
    if packed.name not in _ready:
        while len(_ready) >= MOST:
            _ready.popitem(last=False)
        try:
            _ready[packed.name] = _made(packed)
        except IgpeError as error:
            raise NotReady(error) from error
    _ready.move_to_end(packed.name)
    return _ready[packed.name]


def _made(packed: Packed) -> Function:
    try:
        make, asked = cloudpickle.loads(packed.content)
        function: Function = make(asked)
    except IgpeError:
        raise
    except Exception as error:
        raise ProblemError(
            f"The problem could not be made ready in a worker ({type(error).__name__}: {error}). "
            "Workers must be able to import what the model imports: install it there, or send the "
            "file (dask: client.upload_file('model.py'))."
        ) from error
    return function
