import pytest

from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.selection.choices import Choices
from pycoll.selection.rules import choose, native_up_to, registered_from, slots_up_to
from pycoll.selection.select import SHORT, CommFacts, SelectionKey, select


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_choice_exists_and_keeps_order_where_it_must(primitive):
    for size in (1, 2, 3, 4, 5, 8, 16, 100, 128):
        for nbytes in (0, 8, 300, 4096, 1 << 16, 1 << 20, 1 << 26):
            assert find(primitive, choose(primitive, nbytes, size))
            assert find(primitive, choose(primitive, nbytes, size, commutative=False)).ordered


def test_long_vectors_go_round_the_ring():
    assert choose("allreduce", 128 << 10, 2) == "recursive_doubling" and choose("allreduce", 128 << 10, 3) == "ring"
    assert choose("allreduce", 64 << 20, 4) == "ring" and choose("allreduce", 8, 4) == "recursive_doubling"


def test_limits_of_calls_for_mpi_depend_on_the_library_and_on_registered_memory():
    assert native_up_to("reduce", "MPICH 5") < native_up_to("reduce", "Open MPI 5") == 256 << 10
    assert native_up_to("allgatherv", "MPICH 5") == 16 << 10 < native_up_to("allgatherv", "Open MPI 5")
    assert native_up_to("reduce", "Open MPI 5", registered=True) == 64 << 10
    for primitive in "bcast", "scatter", "gather", "allgather", "alltoall":
        assert native_up_to(primitive, "MPICH 5", registered=True) == 128 << 10
        assert native_up_to(primitive, "Open MPI 5", registered=True, own_cores=True) == 64 << 10
    assert native_up_to("allgather", "MPICH 5", registered=True, own_cores=True) == (32 << 10) - 1


@pytest.mark.parametrize("primitive", ["bcast", "reduce", "allreduce", "scan", "scatter", "allgather", "alltoallv"])
def test_registered_memory_is_used_later_in_other_forms(primitive):
    limits = [registered_from(primitive, form) for form in ("blocking", "nonblocking", "persistent")]
    assert limits == sorted(limits) and limits[0] == registered_from(primitive) and limits[2] == 2 * limits[1]


@pytest.mark.parametrize("hosts, cores, own", [((0, 0), 2, True), ((0, 0, 0), 2, False), ((0, 1), 8, False)])
def test_each_rank_may_have_its_own_core(hosts, cores, own):
    assert CommFacts(hosts, cores=cores).own_cores == own


@pytest.mark.parametrize(
    "nbytes, native", [(128 << 10, False), ((128 << 10) + 1, True), (512 << 10, True), (1 << 20, False)]
)
def test_calls_that_mpi_runs_if_buffers_are_not_registered(nbytes, native):
    key = SelectionKey("scatter", nbytes, drop_in=True, registered=True)
    assert select(None, key, CommFacts((0, 0)), Choices(), None).otherwise == ("native" if native else "")
    assert not select(None, key._replace(drop_in=False), CommFacts((0, 0)), Choices(), None).otherwise
    assert not select(None, key, CommFacts((0, 1)), Choices(), None).otherwise
    assert select(None, key._replace(slots=True), CommFacts((0, 0)), Choices(), None).otherwise == (
        "slots" if nbytes <= slots_up_to("scatter", "") else "native" if native else ""
    )
    assert not select("ring", key, CommFacts((0, 0)), Choices(), None).otherwise


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
