"""Inputs that are numbers, and that stay symbols so that one formula serves all experiments.

CasADi simplifies by 0 and 1 as numbers are put in: terms vanish, and each set of experiments that
leaves out another drug has a formula of its own. Where such numbers differ between experiments of
the same equations they can be kept apart. The values are the same then, as 0 x = 0 and 1 x = x hold
for all finite x; who evaluates must look for x that is not.
"""

from collections.abc import Sequence

import casadi as ca

from igpe.equations.operations import OPERATION_NAMES
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.problem.experiment import Experiment

SIMPLIFIED = {-1.0, 0.0, 1.0}
"""Numbers by which CasADi simplifies sums, products and quotients."""
ARITHMETIC = {"ASSIGN", "ADD", "SUB", "MUL", "DIV", "NEG", "INV", "TWICE", "SQ"}


def constants(experiments: Sequence[Experiment], systems: Sequence[System]) -> list[frozenset[str]]:
    """Of each experiment the inputs that are numbers here and others in another experiment.

    Those in exponents, conditions and the like are left out: derivatives depend on their numbers.
    """
    families: dict[int, list[int]] = {}
    for k, system in enumerate(systems):
        families.setdefault(id(system.residual), []).append(k)
    found = [frozenset[str]()] * len(systems)
    for family in families.values():
        values: dict[str, set[float]] = {}
        for e in (experiments[k] for k in family):
            for name, given in [*e.inputs.items(), *(e.steady or {}).items()]:
                if isinstance(given, float):
                    values.setdefault(name, set()).add(given)
        several = {n for n, v in values.items() if len(v) > 1 and v & SIMPLIFIED}
        if several:
            several -= _elsewhere([systems[k] for k in family])
        for k in family:
            own = experiments[k].inputs
            found[k] = frozenset(n for n in several if isinstance(own.get(n), float))
    return found


def _elsewhere(systems: Sequence[System]) -> set[str]:
    """Names of inputs that enter operations other than arithmetic before a state joins them."""
    first = systems[0]
    measured = [e for s in systems for e in s.measured.values()]
    u = first.symbols.u
    column = ca.densify(ca.vertcat(first.residual, stack(measured)))
    others = [s for s in ca.symvar(column) if not ca.depends_on(u, s)]
    function = ca.Function("equations", [u, stack(others)], [column])
    held: dict[int, frozenset[int]] = {}
    found: set[int] = set()
    for k in range(function.n_instructions()):
        name = OPERATION_NAMES[function.instruction_id(k)]
        inputs, outputs = function.instruction_input(k), function.instruction_output(k)
        if name == "INPUT":
            held[outputs[0]] = frozenset(inputs[1:] if inputs[0] == 0 else ())
        elif name == "CONST":
            held[outputs[0]] = frozenset()
        elif name != "OUTPUT":
            within = frozenset[int]().union(*(held[i] for i in inputs))
            if name not in ARITHMETIC:
                found |= within
            held[outputs[0]] = within
    return {first.symbols.inputs[i] for i in found}
