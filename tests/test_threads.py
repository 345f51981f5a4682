"""Linear algebra has one thread inside igpe's calls, and as many as before after them."""

import pytest
import scipy.linalg  # noqa: F401 - loads SciPy's own library
from threadpoolctl import ThreadpoolController

from igpe.core.deadline import one_thread, session

MORE = 2


@pytest.fixture
def threads():
    libraries = ThreadpoolController().select(user_api="blas")
    if not libraries.info():
        pytest.skip("no BLAS library is known here")
    with libraries.limit(limits=MORE):
        yield lambda: {one["num_threads"] for one in libraries.info()}


def test_a_public_call_has_one_thread(threads):
    assert threads() == {MORE}
    with session(), session(time_limit=60.0):
        assert threads() == {1}
    assert threads() == {MORE}


def test_an_exception_gives_the_threads_back(threads):
    with pytest.raises(ZeroDivisionError), session():
        raise ZeroDivisionError
    assert threads() == {MORE}


def test_the_last_of_calls_that_overlap_gives_them_back(threads):
    one, other = one_thread(), one_thread()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert threads() == {1}
    other.__exit__(None, None, None)
    assert threads() == {MORE}
