"""Sentences beside a result."""

from igpe.estimation.summary import passed


def test_what_was_not_followed_is_counted():
    assert passed(0) == []
    assert "3 other local optima from step 3" in passed(3)[0]
    assert "1 other local optimum from step 3" in passed(1)[0]
