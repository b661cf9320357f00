"""The selection of tests that `python -m tests` runs without --all."""

import re
from typing import Any

import pytest

from pycoll.schedule.registry import Algorithm

ULFM = ("--with-ft", "ulfm")  # options of mpiexec for jobs that go on after a rank has died (Open MPI)


def quick(*values: Any) -> list[Any]:
    """Return the values, all but the first marked `slow`, for tests that take long with each value.

    A tuple holds the values of several parameters.
    """
    sets = [value if isinstance(value, tuple) else (value,) for value in values]
    return [values[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in sets[1:])]


def once(*values: Any) -> Any:
    """Return values of parameters, for a test that takes long and is the same with both MPI libraries."""
    return pytest.param(*values, marks=pytest.mark.once)


_ALIKE = re.compile(
    r"knomial|recursive_multiplying|swing|bine|pat:|trivance|bruck_whole|grid|two_level_log|"
    r"^(scatter|gather|reduce|barrier)\.two_level$"
)
_TWICE = re.compile(r":8$|^allgatherv")  # another number, or another primitive, with the same schedules
_CHOSEN = {
    *(
        "bcast.knomial:4",
        "scatter.bine",
        "allgather.swing",
        "allgather.trivance",
        "reduce_scatter.pat:2",
        "alltoall.two_level",
    ),
    "allreduce.recursive_multiplying:4",
}


def repeats(primitive: object, algorithm: object, proved: bool = False) -> bool:
    """Return whether an algorithm has the same kinds of rounds as others; with `proved`, the same rounds."""
    name = str(algorithm) if isinstance(algorithm, Algorithm) else f"{primitive}.{algorithm}"
    alike = _ALIKE.search(name) is not None and name not in _CHOSEN
    return alike and (not proved or _TWICE.search(name) is not None)
