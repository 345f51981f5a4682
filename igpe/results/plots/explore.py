"""Sliders for the unknowns beside measurements and model, in a notebook.

The measurements are drawn once. What a slider changes is a few lines of SVG above them, so that the
model follows the hand: its integration is prepared once, for all values.
"""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed, IgpeError, SolverMissing
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import Estimator
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import fine_grid, values_of
from igpe.equations.compiled import compiled
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import looks, panels
from igpe.results.plots.fit import draw_fit

DECADES = 1e3  # ratio of positive bounds beyond which a slider is logarithmic
WIDE = 10.0  # range of a slider without a bound, relative to its value
STEPS = 500  # of a slider
ROUNDED = 0.51  # steps by which a browser may round
POINTS = 72.0  # per inch: units of SVG


@takes_problem
def explore(
    problem: Problem, start: Any = None, method: Estimator = SingleShooting()
) -> "Explorer":
    """In a notebook, show sliders for the unknowns and a plot of measurements and model.

    problem  the problem, with its measurements
    start    a dict {unknown: initial value of its slider}, a Result or an Estimate; by default, a
             slider starts at the middle of the bounds
    method   estimator for the button "Estimate from here"
    raises   SolverMissing if ipywidgets is not installed (pip install 'igpe[notebook]'),
             ProblemError if a value of `start` belongs to no unknown, EstimationFailed if the
             model cannot be integrated at the start values
    """
    try:
        import ipywidgets  # noqa: PLC0415 - for notebooks alone
    except ImportError:
        raise SolverMissing(
            "Sliders need the package ipywidgets: pip install 'igpe[notebook]'"
        ) from None
    middle = problem.box.mapping(problem.box.middle)
    given = getattr(start, "parameters", start) or {}
    return Explorer(problem, values_of(problem, middle | dict(given)), method, ipywidgets)


class Explorer:
    """Sliders and plot of `igpe.plots.explore`, shown in a notebook.

    parameters  a dict {unknown: value of its slider}; `line` contains these values as Python code
    widget      ipywidgets object that contains the sliders and the plot
    """

    def __init__(
        self, problem: Problem, start: Mapping[str, float], method: Estimator, widgets: Any
    ) -> None:
        self.problem, self.method = problem, method
        self.points = _points(problem)
        self._drawing, self._lines, self._words = (widgets.HTML() for _ in range(3))
        self.sliders = {n: _slider(widgets, problem, n, start[n]) for n in problem.box.names}
        self.button = widgets.Button(description="Estimate from here")
        self._simulations = [
            (ivp.unknowns, Automatic().simulation(ivp, fine_grid(problem, k), sensitivities=False))
            for k in range(len(problem.experiments))
            for ivp in [compiled(problem).initial_value_problem(k, switching=True)]
        ]
        self._exact, self._drawn = dict(start), dict[str, float]()
        self._draw_measurements(self._simulated())
        self.redraw()
        for slider in self.sliders.values():
            slider.observe(self.redraw, names="value")
        self.button.on_click(self.estimate)
        for one in (self._drawing, self._lines):
            one.layout.grid_area = "1 / 1"
        picture = widgets.GridBox([self._drawing, self._lines])
        controls = widgets.VBox([*self.sliders.values(), self.button])
        wrapped = widgets.Layout(display="flex", flex_flow="row wrap")
        self.widget = widgets.VBox([widgets.Box([controls, picture], layout=wrapped), self._words])

    @property
    def parameters(self) -> dict[str, float]:
        """Map each unknown to the value of its slider, without the rounding by the browser."""
        values = {name: float(slider.value) for name, slider in self.sliders.items()}
        for name, exact in self._exact.items():
            slider = self.sliders[name]
            pair = np.array([values[name], exact])
            apart = np.ptp(np.log10(pair) if hasattr(slider, "base") else pair)
            values[name] = exact if apart <= ROUNDED * slider.step else values[name]
        return values

    @property
    def line(self) -> str:
        """Python code that simulates the model at the sliders' values."""
        values = ", ".join(f"{n!r}: {v:.6g}" for n, v in self.parameters.items())
        return f"igpe.simulate(problem, {{{values}}})"

    def redraw(self, change: Any = None) -> None:
        """Simulate the model at the sliders' values, and redraw it."""
        if self._drawn == (values := self.parameters):
            return
        self._drawn = values
        try:
            self._draw_model(self._simulated())
            self._say("")
        except EstimationFailed as error:
            self._lines.value = ""
            self._say(str(error))

    def estimate(self, button: Any = None) -> None:
        """Run the method from the sliders' values, and set the sliders to the estimates."""
        self.button.disabled = True
        try:
            reached = self.method.estimate(self.problem, self.parameters)
        except IgpeError as error:
            self._say(str(error))
            return
        finally:
            self.button.disabled = False
        if reached.status.usable:
            self._exact = dict(reached.parameters)
            for name, value in reached.parameters.items():
                slider = self.sliders[name]
                slider.unobserve(self.redraw, names="value")
                slider.value = value
                slider.observe(self.redraw, names="value")
            self._draw_measurements(self._simulated())
            self.redraw()
        self._say(f"{reached.status.value} Objective {reached.objective:.6g}.")

    def _simulated(self) -> pd.DataFrame:
        """Columns experiment, time, and what is measured, at the sliders' values."""
        values, tables = self.parameters, []
        for e, (unknowns, simulation) in zip(
            self.problem.experiments, self._simulations, strict=True
        ):
            run = simulation.run(np.array([values[n] for n in unknowns]))
            if not run.status.usable:
                raise EstimationFailed(
                    f"Experiment {e.name} could be integrated only to time {run.reached:g}. "
                    f"{run.reason}",
                    run.status,
                )
            columns = {n: run.measured[:, k] for k, n in enumerate(e.measured)}
            tables.append(pd.DataFrame({"experiment": e.name, "time": run.times, **columns}))
        return pd.concat(tables, ignore_index=True)

    def _say(self, sentence: str) -> None:
        self._words.value = f"<pre>{escape(self.line)}</pre><p>{escape(sentence)}</p>"

    def _draw_measurements(self, model: pd.DataFrame) -> None:
        """All panels with axes wide enough for the model too, in units of SVG."""
        import matplotlib as mpl  # noqa: PLC0415 - slow to import
        import matplotlib.pyplot as plt  # noqa: PLC0415

        drawn, shown = panels(self.points, None, time_unit=self.problem.unit("time"))
        figure = drawn[0].figure
        figure.set_dpi(POINTS)
        for panel in shown:
            draw_fit(panel.axes, panel.rows, model.iloc[:0], fitted=False)
            ends = [*panel.axes.get_ylim(), model[panel.name].min(), model[panel.name].max()]
            panel.axes.set_ylim(np.nanmin(ends), np.nanmax(ends))
            first, last = model["time"].min(), model["time"].max()
            panel.axes.set_xlim(first, last + 0.02 * (last - first))
        figure.canvas.draw()
        figure.set_layout_engine("none")  # so that the axes stay where they are
        self._size = figure.bbox.width, figure.bbox.height
        self._frames = {p.name: (p.axes.bbox.bounds, p.axes.viewLim.extents) for p in shown}
        content = BytesIO()
        with mpl.rc_context({"text.usetex": False}):
            figure.savefig(content, format="svg", metadata={"Date": None})
        plt.close(figure)
        source = f"data:image/svg+xml;base64,{b64encode(content.getvalue()).decode()}"
        self._drawing.value = f'<img alt="measurements" style="max-width:none" src="{source}">'

    def _draw_model(self, model: pd.DataFrame) -> None:
        width, height = self._size
        every, lines = looks(self.points["experiment"]), list[str]()
        for name, ((x, y, w, h), (left, low, right, high)) in self._frames.items():
            frame = f'x="{x:.1f}" y="{height - y - h:.1f}" width="{w:.1f}" height="{h:.1f}"'
            lines.append(f"<svg {frame}>")
            for experiment, run in model.groupby("experiment", sort=False):
                across = w * (run["time"].to_numpy() - left) / (right - left)
                up = h * (high - run[name].to_numpy()) / (high - low)
                color = every[str(experiment)].color if str(experiment) in every else "none"
                lines.append(_polyline(across, np.clip(up, -h, 2 * h), color))
            lines.append("</svg>")
        size = f'width="{width:g}pt" height="{height:g}pt" viewBox="0 0 {width:g} {height:g}"'
        self._lines.value = f"<svg {size}>{''.join(lines)}</svg>"

    def _ipython_display_(self) -> None:
        from IPython import display  # noqa: PLC0415 - in notebooks alone

        show: Any = display.display
        show(self.widget)


def _polyline(x: FloatArray, y: FloatArray, color: str) -> str:
    known = np.isfinite(y)
    ends = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[known], y[known], strict=True))
    return f'<polyline points="{ends}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _points(problem: Problem) -> pd.DataFrame:
    """All measurements, as `Result.points` has them."""
    tables = []
    for e in problem.experiments:
        known = e.sigma_known and not e.error_models
        sigma = e.measurements.known.sigma if known else np.nan
        tables.append(e.measurements.table(e.name).assign(sigma=sigma))
    frame = pd.concat(tables, ignore_index=True)
    units = {n: problem.unit(n) for n in frame["name"].unique()}
    return frame.assign(unit=frame["name"].map(units))


def _slider(widgets: Any, problem: Problem, name: str, value: float) -> Any:
    one = problem.box.select([name])
    low, high = float(one.lower[0]), float(one.upper[0])
    low = low if np.isfinite(low) else min(-WIDE * abs(value), -1.0)
    high = high if np.isfinite(high) else max(WIDE * abs(value), 1.0)
    unit = problem.unit(name)
    common = {
        "description": f"{name} [{unit}]" if unit else name,
        "value": min(max(value, low), high),
        "readout_format": ".4g",
        "continuous_update": True,
        "style": {"description_width": "7em"},
        "layout": {"width": "26em"},
    }
    if low > 0 and (name in one.logarithmic or high / low > DECADES):
        ends = np.log10([low, high])
        common |= {"min": ends[0], "max": ends[1], "step": float(np.ptp(ends)) / STEPS}
        return widgets.FloatLogSlider(**common)
    return widgets.FloatSlider(min=low, max=high, step=(high - low) / STEPS, **common)
