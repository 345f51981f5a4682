"""What is compiled for these tests stays in pytest's own cache, not in the user's."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(request.config.cache.mkdir("compiled")))
        yield


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine without a C compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
