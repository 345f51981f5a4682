"""Sentences beside a result."""

from igpe.estimation.summary import passed


def test_what_was_not_followed_is_counted():
    assert passed(0) == []
    assert passed(3)[0].startswith("3 more local optima of step 3")
