"""Every layout of the list is read right, or refused or asked about where it must be."""

import pytest
from layouts import LAYOUTS, mistakes

AT_LEAST, FROM_PAPERS, AT_MOST_REFUSED = 60, 10, 10


def test_the_list_is_long():
    assert len(LAYOUTS) >= AT_LEAST
    assert sum(name.startswith("paper: ") for name in LAYOUTS) >= FROM_PAPERS
    assert sum(bool(layout.refused) for layout in LAYOUTS.values()) <= AT_MOST_REFUSED
    for layout in LAYOUTS.values():
        assert [bool(x) for x in (layout.runs, layout.refused, layout.choices)].count(True) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_understood(name, tmp_path):
    assert mistakes(LAYOUTS[name], tmp_path, "file") == []
