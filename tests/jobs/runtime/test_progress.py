"""The progress thread, tested in separate jobs: collectives progress while the program computes."""

from pathlib import Path

import pytest

from tests.launch import output_of
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("ranks", quick(3, 1))
@pytest.mark.parametrize(
    "name",
    quick(
        *("overlap", "without_a_thread_of_the_program", "lock_held", "many"),
        *("persistent", "stops", "another_thread", "persistent_elsewhere"),
    ),
)
def test_progress_thread(name, ranks):
    output_of(ranks, PROGRAMS / "progress_thread.py", name)


def test_refused_without_threads():
    output_of(2, PROGRAMS / "progress_refused.py", "refused")


@pytest.mark.parametrize(
    ("comm", "turns"), [("world", 500), pytest.param("self", 3000, marks=pytest.mark.slow)], ids=["world", "self"]
)
def test_threads_with_datatypes_with_gaps(comm, turns):
    """Communicate from several threads, each with its own communicator."""
    output_of(2, PROGRAMS / "progress_thread.py", "gaps", "blocking", comm, str(turns))
