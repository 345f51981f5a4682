"""Wrong numbers, tables and files of a result."""

from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from house.planting import answering, around, fault, given, method

NORMAL = 1.6449 / 1.96  # half width of a 90 % interval relative to that of a 95 % one


def _narrowed(result: Any, errors: float, intervals: float) -> Any:
    """The result with smaller standard errors and intervals."""
    estimates = tuple(
        replace(
            p,
            standard_error=p.standard_error * errors,
            lower=p.value - (p.value - p.lower) * intervals,
            upper=p.value + (p.upper - p.value) * intervals,
        )
        for p in result.estimates
    )
    return replace(result, estimates=estimates, covariance=result.covariance * errors**2)


@fault("test_result test_parmest test_uncertainty")
def errors_without_residual_variance() -> None:
    """Standard errors count each residual as if its standard deviation were 1."""

    def change(result: Any) -> Any:
        spread = np.sqrt(result.variance)
        return _narrowed(result, 1 / spread, 1 / spread)

    around("estimate", answering(change))


@fault("test_result test_parmest test_uncertainty")
def intervals_of_90_percent() -> None:
    """Intervals that are called 95 % are those of 90 %."""
    around("estimate", answering(lambda result: _narrowed(result, 1.0, NORMAL)))


@fault("test_result test_region")
def correlation_with_the_other_sign() -> None:
    """Correlations of different unknowns have the wrong sign."""

    def change(table: Any) -> Any:
        return table.where(np.eye(len(table), dtype=bool), -table)

    method("Result", "correlation", answering(change))


@fault("test_result")
def reduced_chi_squared_without_unknowns() -> None:
    """The reduced chi squared divides by the measurements, without subtracting the unknowns."""
    method("Result", "reduced_chi_squared", lambda right, r: r.objective / r.measurements)


@fault("test_result test_findings test_adequate")
def lack_of_fit_inverted() -> None:
    """The probability of the lack-of-fit test is that of the other tail."""
    around("estimate", answering(lambda r: replace(r, probability=1 - r.probability)))


@fault("test_result")
def fit_without_weights() -> None:
    """The table of the fit sums squares without standard deviations."""

    def wrong(right: Any, result: Any) -> Any:
        return right(replace(result, points=result.points.assign(sigma=np.nan)))

    method("Result", "fit", wrong)


@fault("test_findings test_result test_adequate")
def residual_tests_inverted() -> None:
    """The tests of residuals give the probability of the other tail."""
    method("Result", "residual_tests", answering(lambda table: table.assign(p=1 - table["p"])))


@fault("test_result test_plots test_pipeline")
def residuals_with_the_other_sign() -> None:
    """Residuals of a result have the wrong sign."""

    def change(result: Any) -> Any:
        points = result.points
        return replace(result, points=points.assign(residual=-points["residual"]))

    around("estimate", answering(change))


@fault("test_findings test_result")
def ellipse_of_the_default_confidence() -> None:
    """The ellipse of two unknowns ignores the confidence that is given."""
    method("Result", "ellipse", given(confidence=lambda _: None))


@fault("test_result test_other_optima")
def json_loses_infinity() -> None:
    """A stored result has no number where one is infinite."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return None if set(value) == {"number"} else {k: without(v) for k, v in value.items()}
        return [without(v) for v in value] if isinstance(value, list) else value

    method("Result", "to_dict", answering(without))


@fault("test_result test_hostile_files")
def any_format_is_read() -> None:
    """A result stored in a format of another version is read as if it were of this one."""

    def wrong(right: Any, kind: Any, source: Any) -> Any:
        if isinstance(source, str) and source.lstrip().startswith("{"):
            source = _with_this_format(source)
        return right(kind, source)

    method("Result", "from_json", wrong)


def _with_this_format(text: str) -> str:
    import json  # noqa: PLC0415 - only where the fault is planted
    import re  # noqa: PLC0415

    if '"format"' not in text:
        return text
    stored = json.loads(text)
    return re.sub(r'"format": [^,\n]*', '"format": 1', text) if "estimates" in stored else text


@fault("test_page test_hostile_files test_execution")
def title_not_escaped() -> None:
    """The title of a report stands in the page as it is given, with its HTML."""

    def wrong(right: Any, result: Any, path: Any = None, **named: Any) -> str:
        page: str = right(result, path, **named)
        title = named.get("title", "")
        page = page.replace(escape(title), title) if title else page
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    method("Result", "report", wrong)


@fault("test_result test_writing")
def any_file_overwritten() -> None:
    """A stored result replaces whatever file is there."""

    def wrong(right: Any, result: Any, path: Any = None) -> Any:
        if path is not None:
            Path(path).unlink(missing_ok=True)
        return right(result, path)

    method("Result", "to_json", wrong)
