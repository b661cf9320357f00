"""These tests are of the compiled core; they are skipped where it was not built."""

import pytest

from pycoll.runtime import host


@pytest.fixture(autouse=True)
def with_core():
    if why := host.why_not_shared():
        pytest.skip(why)
