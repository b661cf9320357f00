"""These tests are of the Python executor and its plans: calls that name no algorithm do not run in slots."""

import pytest

from pycoll.runtime import slots


@pytest.fixture(autouse=True)
def without_slots(monkeypatch):
    monkeypatch.setattr(slots, "serves", lambda *_: False)
