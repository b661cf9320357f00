"""The selection of tests that `python -m tests` runs without --all."""

import re
from typing import Any

import pytest

from pycoll.schedule.registry import Algorithm


def quick(*values: Any) -> list[Any]:
    """Return the values, all but the first marked `slow`, for tests that take long with each value."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.slow) for value in values[1:])]


_ALIKE = re.compile(r"knomial|recursive_multiplying|swing|bine|pat:|bruck_whole|grid|two_level_log")
_CHOSEN = {
    *("bcast.knomial:4", "scatter.bine", "allgather.swing", "reduce_scatter.pat:2", "alltoall.two_level"),
    "allreduce.recursive_multiplying:4",
}


def repeats(primitive: object, algorithm: object) -> bool:
    """Return whether an algorithm consists of the same kinds of rounds as others that the selection tests."""
    name = str(algorithm) if isinstance(algorithm, Algorithm) else f"{primitive}.{algorithm}"
    rest = name in ("scatter.two_level", "gather.two_level", "reduce.two_level", "barrier.two_level")
    return name not in _CHOSEN and (rest or bool(_ALIKE.search(name)))
