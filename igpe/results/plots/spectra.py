"""Pure spectra of a fit, and what it leaves of the measured ones."""

from typing import Any

import numpy as np

from igpe.core.errors import ProblemError
from igpe.core.markup import listed
from igpe.results.plots.axes import COLOURS, Plot, axes_for
from igpe.results.spectral import SpectralFit

BAND = 1.96  # standard errors on either side: 95 %


def plot_spectra(fits: tuple[SpectralFit, ...], axes: Any = None, time_unit: str = "") -> Plot:
    """Of each block of spectra two panels: pure spectra with 95 % bands, and the residuals.

    axes    matplotlib axes, two for each block; None makes a figure
    raises  ProblemError for a result without spectra
    """
    if not fits:
        raise ProblemError(
            "The result has no spectra. Give the experiment spectra: "
            "igpe.Experiment(..., spectra=igpe.Spectra(frame))."
        )
    drawn = axes_for(2 * len(fits), axes)
    for k, one in enumerate(fits):
        _pure(drawn[2 * k], one)
        _residuals(drawn[2 * k + 1], one, time_unit)
    return Plot(drawn)


def _pure(ax: Any, one: SpectralFit) -> None:
    for i, name in enumerate(one.species):
        colour = COLOURS[i % len(COLOURS)]
        is_lost = name in one.lost
        label, line = f"{name} (not determined)" if is_lost else name, ":" if is_lost else "-"
        ax.plot(one.wavelengths, one.values[i], line, color=colour, label=label)
        half = BAND * np.where(np.isfinite(one.errors[i]), one.errors[i], 0.0)
        low, high = one.values[i] - half, one.values[i] + half
        ax.fill_between(one.wavelengths, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.set_xlabel("wavelength")
    where = f" ({listed(one.experiments)})" if len(one.experiments) > 1 else ""
    ax.set_ylabel(f"pure spectrum{where}")
    columns = 2 if one.lost else 4
    ax.legend(frameon=False, ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _residuals(ax: Any, one: SpectralFit, time_unit: str) -> None:
    frame = one.residual_frame()
    most = float(np.abs(frame.to_numpy()).max()) or 1.0
    mesh = ax.pcolormesh(
        frame.columns, frame.index, frame.to_numpy(),
        cmap="RdBu_r", vmin=-most, vmax=most, shading="nearest", rasterized=True,
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="measured - fitted")
    ax.set_xlabel("wavelength")
    ax.set_ylabel(f"time [{time_unit}]" if time_unit else "time")
