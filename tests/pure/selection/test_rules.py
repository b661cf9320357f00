import pytest

from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.selection.choices import Choices
from pycoll.selection.rules import REGISTERED_FROM, choose, native_is_faster
from pycoll.selection.select import FASTER_IN_MPI, CommFacts, SelectionKey, select

HOSTS = CommFacts((0, 1, 2, 3), library="MPICH 5", core=True)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_choice_exists_and_keeps_order_where_it_must(primitive):
    for size in (1, 2, 3, 4, 5, 8, 16, 100, 128):
        for nbytes in (0, 8, 300, 4096, 1 << 16, 1 << 20, 1 << 26):
            assert find(primitive, choose(primitive, nbytes, size))
            assert find(primitive, choose(primitive, nbytes, size, commutative=False)).ordered


def test_long_vectors_go_round_the_ring():
    assert choose("allreduce", 128 << 10, 2) == "recursive_doubling" and choose("allreduce", 128 << 10, 3) == "ring"
    assert choose("allreduce", 64 << 20, 4) == "ring" and choose("allreduce", 8, 4) == "recursive_doubling"


def test_limits_of_calls_for_mpi_depend_on_the_library():
    for primitive, nbytes, library in (("reduce", 256 << 10, "Open MPI 5"), ("allgatherv", 16 << 10, "MPICH 5")):
        assert native_is_faster(primitive, nbytes, library) and not native_is_faster(primitive, nbytes + 1, library)
    assert not native_is_faster("reduce", 256 << 10, "MPICH 5")
    assert native_is_faster("allgatherv", 1 << 30, "Open MPI 5")


def test_algorithms_between_hosts():
    for nbytes, name in ((8, "recursive_doubling"), (16 << 10, "two_level_log"), (1 << 20, "two_level")):
        assert choose("allreduce", nbytes, 8, hosts=4) == name
    assert choose("scan", 4 << 10, 8, hosts=4) == "ring" and choose("scan", 4 << 10, 64, hosts=4) == "tree"
    assert [choose("bcast", 8 << 10, size, hosts=size) for size in (4, 8)] == ["two_level", "tree"]


def test_pycoll_and_mpi_take_turns_between_hosts():
    turns = [native_is_faster("allreduce", nbytes, "MPICH 5", 8, 4) for nbytes in (8, 1 << 10, 16 << 10, 64 << 10)]
    assert turns == [True, False, True, False]
    assert not any(native_is_faster("allreduce", nbytes, "Open MPI 5", 8, 4) for nbytes in (8, 16 << 10))
    one_and_two_ranks_a_host = [native_is_faster("bcast", 8, "MPICH 5", size, 4) for size in (4, 8)]
    assert one_and_two_ranks_a_host == [False, True]
    assert [native_is_faster("scan", 8, "MPICH 5", size, 4) for size in (8, 64)] == [False, True]


def test_calls_without_the_core_are_left_to_mpi_as_inside_a_host():
    key = SelectionKey("exscan", 1 << 10, from_comm=True)
    assert select(None, key, HOSTS, Choices(), None).algorithm == "ring"
    assert select(None, key, CommFacts(HOSTS.hosts, library="MPICH 5"), Choices(), None).reason == FASTER_IN_MPI


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize(
    ("primitive", "kib"),
    [("bcast", 1024), ("scatter", 64), ("gather", 512), ("allgather", 512), ("alltoall", 512), ("allreduce", 8)],
)
def test_short_calls_between_hosts_are_left_to_mpi(primitive, kib, registered):
    """Check the limit: from REGISTERED_FROM on, registered memory is used."""
    longest = min(kib << 10, REGISTERED_FROM - 1) if registered else kib << 10
    for nbytes, native in ((longest, True), (longest + 1, False)):
        key = SelectionKey(primitive, nbytes, from_comm=True, registered=registered)
        choice = select(None, key, CommFacts((0, 1)), Choices(), None)
        assert (choice.reason == FASTER_IN_MPI) == native


@pytest.mark.parametrize("primitive", ["bcast", "allreduce", "gatherv", "alltoallw"])
def test_only_blocks_with_datatypes_are_left_to_mpi_inside_a_host(primitive):
    for nbytes in (0, 8, 1 << 20, 1 << 26):
        key = SelectionKey(primitive, nbytes, from_comm=True, near=True)
        expected = "native" if primitive == "alltoallw" else choose(primitive, nbytes, 2)
        assert select(None, key, CommFacts((0, 0)), Choices(), None).algorithm == expected


@pytest.mark.parametrize("registered", [False, True])
def test_slots_serve_calls_that_cannot_use_registered_buffers(registered):
    for nbytes in (8, REGISTERED_FROM - 1, REGISTERED_FROM, 1 << 20):
        key = SelectionKey("allreduce", nbytes, registered=registered, slots=True, near=True)
        choice = select(None, key, CommFacts((0, 0)), Choices(), None)
        assert choice.slots == (not registered or nbytes < REGISTERED_FROM)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("primitive", "limit"), [("bcast", None), ("reduce", None), ("gather", 1 << 22), ("allgather", 1 << 20)]
)
def test_slots_serve_blocks_up_to_a_limit(primitive, limit, size):
    for nbytes in (8, 1 << 16, 1 << 20, 1 << 22, 1 << 24):
        key = SelectionKey(primitive, nbytes, slots=True, near=True)
        assert select(None, key, CommFacts((0,) * size), Choices(), None).slots == (limit is None or nbytes <= limit)
