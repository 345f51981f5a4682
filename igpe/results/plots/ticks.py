"""Numbers beside axes. Imports matplotlib, which is slow: only functions import this module."""

from typing import Any

from matplotlib.ticker import ScalarFormatter


class PlainNumbers(ScalarFormatter):
    """Numbers as plain text; only the power of ten above the axis is mathematical text.

    Mathematical text takes a hundred times longer to lay out: more than half of a report's time.
    """

    def __init__(self) -> None:
        super().__init__(useMathText=False)

    def get_offset(self) -> str:
        """Return the power of ten above the axis."""
        self.set_useMathText(True)
        try:
            return str(super().get_offset())
        finally:
            self.set_useMathText(False)


def number_ticks(ax: Any, most: int) -> None:
    """Format the numbers of both axes; at most so many intervals on the horizontal axis."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PlainNumbers())
    ax.locator_params(axis="x", nbins=most)
