"""Plots of certified regions."""

from typing import Any

from igpe.results.plots.axes import Plot


def plot_certified_intervals(region: Any, axes: Any = None) -> Plot:
    """x."""
    raise NotImplementedError


def plot_paving(region: Any, axes: Any = None) -> Plot:
    """x."""
    raise NotImplementedError
