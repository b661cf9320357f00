"""These tests are of the compiled core; they are skipped where it was not built."""

import pytest

from pycoll.runtime import slots


@pytest.fixture(autouse=True)
def with_core():
    if why := slots.why_unusable():
        pytest.skip(why)
