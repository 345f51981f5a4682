"""The list of layouts is what it promises to be, and its files can be written."""

from layouts import LAYOUTS

AT_LEAST, FROM_PAPERS, AT_MOST_REFUSED = 60, 10, 10


def test_the_list_is_long_and_every_file_can_be_written(tmp_path):
    written = [layout.write(tmp_path, str(k)) for k, layout in enumerate(LAYOUTS.values())]
    assert all(path.stat().st_size for path in written)
    assert len(written) >= AT_LEAST
    assert sum(name.startswith("paper: ") for name in LAYOUTS) >= FROM_PAPERS
    assert sum(bool(layout.refused) for layout in LAYOUTS.values()) <= AT_MOST_REFUSED
    expected = [
        x for x in LAYOUTS.values() if bool(x.runs) + bool(x.refused) + bool(x.choices) != 1
    ]
    assert expected == []
