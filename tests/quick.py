"""Parameters of which only the first is in the selection that `python -m tests` runs without --all."""

from typing import Any

import pytest


def quick(*values: Any) -> list[Any]:
    """Return the values, all but the first marked `slow`, for tests that take long with each value."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.slow) for value in values[1:])]
