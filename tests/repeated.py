"""Repetitions of a test: few by default, many in the part marked `statistical`."""

from collections.abc import Iterable
from typing import Any

import pytest


def repeated(few: int, many: int) -> pytest.MarkDecorator:
    """Give a test `repetitions`: few in the default run, many in the statistical part."""
    return pytest.mark.parametrize("repetitions", [few, statistical(many)])


def statistical(*values: Any) -> Any:
    """Values of one case of a parametrised test that only the statistical part runs."""
    return pytest.param(*values, marks=pytest.mark.statistical)


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases of a parametrised test, of which the default run takes one of `every`."""
    return [statistical(case) if i % every else case for i, case in enumerate(cases)]
