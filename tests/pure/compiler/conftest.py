"""Programs of short messages: as few segments in flight as possible, which shows whether steps wait for one another."""

import pytest

from pycoll.compiler import lower
from pycoll.compiler.programs import compiled


@pytest.fixture(autouse=True)
def two_segments_in_flight(monkeypatch):
    monkeypatch.setattr(lower, "IN_FLIGHT", 0)
    compiled.cache_clear()
    yield
    compiled.cache_clear()
