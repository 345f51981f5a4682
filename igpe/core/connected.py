"""Connected components of what sets link."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def connected(links: Iterable[Iterable[T]]) -> list[set[T]]:
    """Connected components, where the members of each set are linked, in order of first appearance.

    NetworkX has this as well, but takes a quarter of a second to import.
    """
    component: dict[T, set[T]] = {}
    for link in links:
        joined: set[T] = set()
        for member in link:
            joined |= component.get(member, {member})
        component.update(dict.fromkeys(joined, joined))
    return list({id(c): c for c in component.values()}.values())
