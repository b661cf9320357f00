"""These tests are of the compiled core; they are skipped where it was not built."""

import pytest

from pycoll.runtime import open_core


@pytest.fixture(scope="module", autouse=True)
def with_core():
    if why := open_core.why_not_shared():
        pytest.skip(why)
