"""igpe's time of a PEtab problem's objective and gradient, in a process of its own.

    python benchmarks/peers/igpe_calls.py PROBLEM.yaml

The twin of `amicis.py`. Prints one line of JSON: processor seconds of importing igpe and the
libraries that read PEtab, of reading the problem, and of the first call (with the compiler's);
seconds of each call after it, objective, gradient, and how many states there are.
"""

import json
import os
import sys
from itertools import pairwise

from amicis import repeated


def main() -> None:
    """Import, read, call."""
    spent = [sum(os.times()[:4])]
    import libsbml  # noqa: F401 - read on first use, which is no time of igpe's
    import petab.v1  # noqa: F401

    import igpe

    spent.append(sum(os.times()[:4]))
    problem = igpe.petab.read_petab(sys.argv[1])
    spent.append(sum(os.times()[:4]))
    igpe.petab.petab_gradient(problem)
    spent.append(sum(os.times()[:4]))
    seconds, at = repeated(lambda: igpe.petab.petab_gradient(problem))
    importing, reading, first = (b - a for a, b in pairwise(spent))
    printed = {
        "importing": importing,
        "reading": reading,
        "first": first,
        "seconds": seconds,
        "objective": at.value,
        "gradient": at.gradient,
        "states": len(problem.instance.states),
    }
    print(json.dumps(printed))


if __name__ == "__main__":
    main()
