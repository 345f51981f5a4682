"""How well the model meets the measurements: pictures, sums, residuals, all points."""

import pandas as pd

from igpe.core.markup import paragraph
from igpe.results.report.pictures import fits, panels, residuals
from igpe.results.report.section import Section, frame_table, legend
from igpe.results.residual_table import standard_residuals
from igpe.results.result_data import ResultData


def fit(result: ResultData) -> Section:
    """Each measured quantity of each experiment beside the fitted model."""
    told = frame_table(_without_single_experiment(result.fit().reset_index()), "Fit by quantity")
    drawn = fits(panels(result.points, result.curves))
    return Section("Fit", legend("measured", "fitted model") + drawn + told)


def residual(result: ResultData) -> Section:
    """What the model leaves unexplained, over time, and every measurement."""
    words = "Residuals of a right model scatter around zero without a pattern"
    values, standard = standard_residuals(result.points, result.variance)
    band = "; 95 % of them lie in the band" if standard else ""
    points = result.points.assign(residual=values)
    drawn = residuals(panels(points, result.curves), standard=standard)
    tests = frame_table(_without_single_experiment(result.residual_tests()), "Tests of residuals")
    every = frame_table(_without_single_experiment(result.points), "All measurements")
    return Section("Residuals", paragraph(f"{words}{band}.") + drawn + tests + every)


def _without_single_experiment(table: pd.DataFrame) -> pd.DataFrame:
    one = table["experiment"].nunique() == 1
    return table.drop(columns="experiment") if one else table
