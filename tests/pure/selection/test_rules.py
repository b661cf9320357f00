import pytest

from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.selection.choices import Choices
from pycoll.selection.rules import choose, native_up_to, registered_from
from pycoll.selection.select import SHORT, CommFacts, SelectionKey, select


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_choice_exists_and_keeps_order_where_it_must(primitive):
    for size in (1, 2, 3, 4, 5, 8, 16, 100, 128):
        for nbytes in (0, 8, 300, 4096, 1 << 16, 1 << 20, 1 << 26):
            assert find(primitive, choose(primitive, nbytes, size))
            assert find(primitive, choose(primitive, nbytes, size, commutative=False)).ordered


def test_long_vectors_go_round_the_ring():
    assert choose("allreduce", 64 << 20, 4) == "ring" and choose("allreduce", 8, 4) == "recursive_doubling"


def test_limits_of_calls_for_mpi_depend_on_the_library_and_on_registered_memory():
    assert native_up_to("reduce", "MPICH 5") < native_up_to("reduce", "Open MPI 5") == 256 << 10
    assert native_up_to("allgatherv", "MPICH 5") == 16 << 10 < native_up_to("allgatherv", "Open MPI 5")
    assert native_up_to("reduce", "Open MPI 5", registered=True) == 64 << 10
    assert native_up_to("allgather", "MPICH 5", registered=True) < registered_from("allgather")
    for primitive in "bcast", "scatter", "gather", "allgather", "alltoall":
        assert native_up_to(primitive, "Open MPI 5", registered=True) == 128 << 10


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("primitive", ["bcast", "scatter", "gather", "allgather", "alltoall", "allreduce"])
def test_short_calls_of_comm_are_left_to_mpi(primitive, registered):
    """Check the limit, which registered memory changes."""
    longest = native_up_to(primitive, registered=registered)
    assert longest >= registered_from(primitive) or primitive == "allreduce"
    for nbytes, native in ((longest, True), (longest + 1, False)):
        key = SelectionKey(primitive, nbytes, drop_in=True, registered=registered)
        choice = select(None, key, CommFacts((0, 0)), Choices(), None)
        assert (choice.reason == SHORT) == native
