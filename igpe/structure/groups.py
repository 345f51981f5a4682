"""The estimation problems of step 3: as large as can be solved, as small as they fall apart.

All smallest suitable subsystems that matter are taken together ("choose the largest estimation
problem that can be solved", Michalik et al. 2009, IGPE, section 3.6). Those that share an unknown
belong together, in whichever experiments they are; others are independent of each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.connected import connected
from igpe.equations.linearity import linear_parameters
from igpe.equations.stack import stack
from igpe.structure.subsystems import Reduced, Subsystem


class Member(NamedTuple):
    """A slope to be fitted: that of a state in the experiment of that index."""

    experiment: int
    state: str


@dataclass(frozen=True)
class Group:
    """Slopes whose predictions share unknowns: one problem for step 3.

    parameters    free unknowns of the problem, in its order
    members       the slopes that depend on them
    subsystems    what predicts them; the smallest first
    individually  parameters in which every slope is linear while the others are held
    jointly       parameters in which the slopes are linear together
    """

    parameters: tuple[str, ...]
    members: tuple[Member, ...]
    subsystems: tuple[Subsystem, ...]
    individually: tuple[str, ...]
    jointly: tuple[str, ...]

    @property
    def equations(self) -> tuple[str, ...]:
        """Names of all equations, each once."""
        return tuple(dict.fromkeys(e for s in self.subsystems for e in s.equations))


def groups(
    subsystems: Iterable[Subsystem],
    reduced: Sequence[Reduced],
    slopes: Sequence[Mapping[str, Any]],
    order: Sequence[str],
) -> tuple[Group, ...]:
    """The explicit subsystems, gathered by the unknowns they share.

    reduced, slopes  of each experiment: its reduced system and predicted slopes
    order            the problem's free unknowns
    """
    explicit = [s for s in subsystems if s.explicit]
    shared = connected(s.parameters for s in explicit)
    number = {name: k for k, names in enumerate(shared) for name in names}
    place = {name: i for i, name in enumerate(order)}
    gathered: dict[int, list[Subsystem]] = {}
    for one in sorted(explicit, key=lambda s: (min(place[n] for n in s.parameters), len(s.rows))):
        gathered.setdefault(number[one.parameters[0]], []).append(one)
    return tuple(_group(own, reduced, slopes, place) for own in gathered.values())


def _group(
    own: list[Subsystem],
    reduced: Sequence[Reduced],
    slopes: Sequence[Mapping[str, Any]],
    place: Mapping[str, int],
) -> Group:
    names = sorted({n for s in own for n in s.parameters}, key=place.__getitem__)
    members = sorted({Member(s.experiment, x) for s in own for x in s.slopes})
    p = stack(ca.SX.sym(n) for n in names)
    symbol = dict(zip(names, ca.vertsplit(p), strict=True))
    predictions = stack(
        _in_common([slopes[k][m.state] for m in members if m.experiment == k], reduced[k], symbol)
        for k in sorted({m.experiment for m in members})
    )
    linear = linear_parameters(predictions, p)
    return Group(
        parameters=tuple(names),
        members=tuple(members),
        subsystems=tuple(sorted(own, key=lambda s: (len(s.rows), s.experiment, s.rows))),
        individually=tuple(names[i] for i in linear.individually),
        jointly=tuple(names[i] for i in linear.jointly),
    )


def _in_common(slopes: list[Any], reduced: Reduced, symbol: Mapping[str, Any]) -> Any:
    """The slopes in symbols that all experiments of the group have in common."""
    posed = reduced.posed
    old = [(posed.q[i], n) for i, n in enumerate(posed.q_names) if n in symbol]
    new = stack(symbol[n] for _, n in old)
    return ca.substitute(stack(slopes), stack(s for s, _ in old), new)
