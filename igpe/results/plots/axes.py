"""What all pictures share: axes given or made, labels with units."""

from typing import Any

import numpy as np

from igpe.core.markup import label

COLUMNS = 3  # panels side by side
PANEL = (4.2, 3.2)  # inches
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Told apart by the colour-blind too (Okabe & Ito, Color Universal Design, 2008)."""


def axes_for(count: int, axes: Any, size: tuple[float, float] = PANEL) -> Any:
    """So many axes: those given, or of a new figure, at most three side by side.

    size  of one panel of a new figure, in inches
    """
    if axes is not None:
        return np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    columns = min(COLUMNS, max(count, 1))
    rows = max(-(-count // columns), 1)
    _, grid = plt.subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for spare in grid.ravel()[count:]:
        spare.set_visible(False)
    return np.asarray(grid.ravel()[:count])


def labelled(name: str, unit: str) -> str:
    """What an axis is labelled with: the unit in brackets, if there is one; $ is no formula."""
    return label(f"{name} [{unit}]" if unit else name)


def colour(number: int) -> str:
    """That of a line of that number, from 0 on; they come again."""
    return COLOURS[number % len(COLOURS)]
