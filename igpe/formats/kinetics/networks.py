"""Rival networks: the subsets of a set of possible reactions that hang together."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from igpe.core.arguments import is_count, shown
from igpe.core.arrays import connected
from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import Reaction, numbered
from igpe.formats.kinetics.reactor import Batch, Reactor

MOST = 1000  # networks


def networks(
    reactions: Sequence[Reaction | str],
    *,
    at_most: int,
    at_least: int = 1,
    present: Sequence[str] = (),
    always: Sequence[str] = (),
    reactor: type[Reactor] = Batch,
    **settings: Any,
) -> dict[str, Reactor]:
    """Return a dict {name: reactor} with a reactor for each connected subset of the reactions.

    A subset is connected if its reactions cannot be divided into two groups that share no species.
    Rate constants keep their names from the full list. Each network is therefore nested in every
    network that contains its reactions and others. Every network contains all species, and species
    that do not react are constants. The same experiments can therefore be used for all networks.
    The name of a network lists its reactions, separated by semicolons.

    reactions  list of strings ("A -> B"), or `Reaction`s with rate laws
    at_most, at_least  largest and smallest number of reactions in a network
    present    species that are present from the start or are fed. igpe omits networks in which
               a reactant is neither present nor made by another reaction
    always     reactions, written as in `reactions`, that every network contains
    reactor    `Batch`, `Cstr` or `Semibatch`
    settings   other arguments of `reactor` (bounds, temperature, units, ...); `bounds` may
               contain parameters of all reactions
    raises     ModelError for invalid reactions or counts, for unknown names in `present` or
               `always`, and if the reactions form no network or more than 1000 networks
    """
    every = numbered(reactions)
    texts = [r.text for r in every]
    twice = sorted({t for t in texts if texts.count(t) > 1})
    if twice:
        raise ModelError(f"The reactions {twice} are listed twice; list each reaction once.")
    _check(every, at_least, at_most, present, always)
    bounds = settings.pop("bounds", {})
    reactor(every, bounds=bounds, **settings)  # refuses what suits none of them
    species = tuple(dict.fromkeys(s for r in every for s in r.species))
    chosen = {}
    for some in _subsets(every, at_least, at_most, present, always):
        own = {p for r in some for p in r.parameters}
        part = {p: b for p, b in bounds.items() if p in own}
        name = "; ".join(r.text for r in some)
        chosen[name] = reactor(some, bounds=part, bystanders=species, **settings)
        if len(chosen) > MOST:
            raise ModelError(
                f"These {len(every)} reactions form more than {MOST} networks with {at_least} to "
                f"{at_most} reactions each. Decrease `at_most`, or use `always` to list the "
                "reactions that every network must contain."
            )
    if not chosen:
        raise ModelError(
            f"No connected network with {at_least} to {at_most} of these reactions can start from "
            f"{list(present)}. Allow more reactions, or list more species in `present`."
        )
    return chosen


def _check(
    every: Sequence[Reaction],
    at_least: int,
    at_most: int,
    present: Sequence[str],
    always: Sequence[str],
) -> None:
    """Raise ModelError for counts that are none, and names of nothing."""
    counts = is_count(at_least) and is_count(at_most) and 1 <= at_least <= at_most
    if not counts:
        raise ModelError(
            f"`networks` got at_least={shown(at_least)} and at_most={shown(at_most)}; give whole "
            "numbers with 1 <= at_least <= at_most."
        )
    species = sorted({s for r in every for s in r.species})
    texts = [r.text for r in every]
    for role, given, known in (("present", present, species), ("always", always, texts)):
        if isinstance(given, str) or not set(given) <= set(known):
            raise ModelError(f"`{role}` is {shown(given)}; give a list of names from {known}.")


def _subsets(
    every: Sequence[Reaction],
    at_least: int,
    at_most: int,
    present: Sequence[str],
    always: Sequence[str],
) -> Iterator[tuple[Reaction, ...]]:
    """The subsets that are networks, small ones first, each in the given order."""
    for count in range(at_least, min(at_most, len(every)) + 1):
        for some in combinations(every, count):
            has_all = set(always) <= {r.text for r in some}
            is_connected = len(connected(r.species for r in some)) == 1
            if has_all and is_connected and (not present or _can_run(some, present)):
                yield some


def _can_run(some: Sequence[Reaction], present: Sequence[str]) -> bool:
    """Whether every reaction finds its reactants, one after the other."""
    available, left = set(present), list(some)
    while ready := [r for r in left if _starts(r, available)]:
        available |= {s for r in ready for s in r.equation.species}
        left = [r for r in left if r not in ready]
    return not left


def _starts(reaction: Reaction, there: set[str]) -> bool:
    """Whether a reaction runs with these species, forwards or, if it goes back, backwards."""
    equation = reaction.equation
    forwards = set(equation.left) <= there
    return forwards or (equation.reversible and set(equation.right) <= there)
