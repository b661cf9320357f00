"""`pycoll.Comm` as a communicator: children, inherited algorithms, use beside others, and methods of mpi4py."""

import pickle
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.runtime.attach import is_new
from tests.mpi.native import RANK, SIZE, WORLD

from .specifications import FORMS, METHODS, OURS, THEIRS, call_of, check, run

pytestmark = pytest.mark.mpi


def idup(comm):
    child, request = comm.Idup()
    request.Wait()
    return child


CHILDREN = {
    "Split": lambda comm: comm.Split(RANK % 2, -RANK),
    "Split_type": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Create": lambda comm: comm.Create(comm.Get_group()),
    "Create_group": lambda comm: comm.Create_group(comm.Get_group().Excl([])),
    "Dup": lambda comm: comm.Dup(),
    "Dup with info": lambda comm: comm.Dup(MPI.INFO_ENV),
    "Dup_with_info": lambda comm: comm.Dup_with_info(MPI.INFO_ENV),
    "Clone": lambda comm: comm.Clone(),
    "Idup": idup,
    "Shrink": lambda comm: comm.Shrink(),
}


@pytest.mark.parametrize("make", CHILDREN.values(), ids=CHILDREN)
def test_children_are_of_the_class_and_inherit_the_choice(make):
    parent = OURS.Dup()
    parent.algorithm["Allreduce"] = "ring"
    child = make(parent)
    values, result, expected = np.arange(5) + RANK, np.zeros(5, int), np.zeros(5, int)
    child.Allreduce(values, result)
    MPI.Intracomm.Allreduce(child, values, expected)
    np.testing.assert_array_equal(result, expected)
    assert type(child) is pycoll.Comm and child.algorithm == {"allreduce": "ring"}
    child.algorithm["Allreduce"] = "tree"
    assert parent.algorithm == {"allreduce": "ring"} and OURS.algorithm == {}
    parent.Free()
    assert parent == MPI.COMM_NULL
    for form in FORMS:
        result[:] = 0
        run(child, "Allreduce", form, [values, result])
        np.testing.assert_array_equal(result, expected)
    child.Free()
    assert child == MPI.COMM_NULL and not child


WITH_TOPOLOGY = {
    "cart": lambda: OURS.Create_cart(MPI.Compute_dims(SIZE, 2)),
    "graph": lambda: OURS.Create_graph([*range(1, SIZE + 1)], [(rank + 1) % SIZE for rank in range(SIZE)]),
    "dist_graph": lambda: OURS.Create_dist_graph_adjacent([(RANK - 1) % SIZE], [(RANK + 1) % SIZE]),
}


@pytest.mark.parametrize("make", WITH_TOPOLOGY.values(), ids=WITH_TOPOLOGY)
def test_groups_have_no_topology(make):
    """Open MPI leaves the topology of the parent to them, which they do not fit."""
    parent = make()
    for left_out in ([], [SIZE - 1]) if SIZE > 1 else ([],):
        if RANK in left_out:
            continue
        child = parent.Create_group(parent.Get_group().Excl(left_out))
        assert type(child) is pycoll.Comm
        assert child.allreduce(1) == child.size == SIZE - len(left_out)
        again = child.Dup()
        assert type(again) is pycoll.Comm and again.allreduce(1) == again.size
        again.Free()
        child.Free()
    for _ in range(2):  # the second time, pycoll is attached to the parent
        survivors = parent.Shrink()
        assert type(survivors) is pycoll.Comm and survivors.allreduce(1) == SIZE
        survivors.Free()
        assert parent.allreduce(1) == SIZE
    parent.Free()


def test_communicators_of_some_ranks():
    first = OURS.Get_group().Incl([0])
    for child in (
        OURS.Split(MPI.UNDEFINED if RANK else 3),
        OURS.Create(first),
        OURS.Create_group(first) if RANK == 0 else pycoll.Comm(),
        OURS.Split_type(MPI.UNDEFINED if RANK else MPI.COMM_TYPE_SHARED),
    ):
        assert (child == MPI.COMM_NULL) == (RANK > 0)
        if RANK == 0:
            assert type(child) is pycoll.Comm and child.size == 1
            result = np.zeros(2)
            child.Allreduce(np.ones(2), result)
            assert result.tolist() == [1, 1]
            child.Free()


def test_what_idup_gives_is_ready_for_nonblocking_calls():
    child, request = OURS.Idup()
    request.Wait()
    child.Ibarrier().Wait()
    child.Barrier()
    child.Free()


def test_the_same_communicator_is_not_duplicated():
    again = pycoll.Comm(OURS)
    assert again == OURS == WORLD and again.handle == WORLD.handle and again.algorithm is OURS.algorithm
    assert isinstance(again, MPI.Intracomm) and again.size == SIZE and again.Get_name() == WORLD.Get_name()


def test_copies_of_a_communicator():
    handle = pycoll.Comm.fromhandle(OURS.handle)
    assert type(handle) is pycoll.Comm and handle == OURS
    cart = MPI.COMM_WORLD.Create_cart([SIZE])
    assert type(pycoll.Comm.fromhandle(cart.handle)) is pycoll.Cartcomm
    cart.Free()
    pickled = pickle.loads(pickle.dumps(pycoll.Comm(MPI.COMM_WORLD)))
    assert type(pickled) is pycoll.Comm and pickled == MPI.COMM_WORLD
    assert type(OURS.bcast({"comm": OURS})["comm"]) is pycoll.Comm
    pickled.Barrier()
    child = OURS.Dup()
    with pytest.raises(ValueError, match=r"cannot serialize 'pycoll.api.comm.Comm' instance"):
        pickle.dumps(child)
    child.free()
    assert child == MPI.COMM_NULL


def test_topologies():
    """Their methods are those of MPI, and their collectives those of pycoll."""
    parent, left, right = OURS.Dup(), (RANK - 1) % SIZE, (RANK + 1) % SIZE
    parent.algorithm["Allreduce"] = "ring"
    made = [
        parent.Create_cart([SIZE], [True]),
        parent.Create_graph([r + 1 for r in range(SIZE)], [(r + 1) % SIZE for r in range(SIZE)]),
        parent.Create_dist_graph([RANK], [1], [right]),
        parent.Create_dist_graph_adjacent([left], [right]),
        pycoll.Comm(WORLD.Create_cart([SIZE])),
    ]
    kinds = (pycoll.Cartcomm, pycoll.Graphcomm, *[pycoll.Distgraphcomm] * 2, pycoll.Cartcomm)
    for comm, kind in zip(made, kinds):
        assert type(comm) is type(comm.Dup()) is kind and isinstance(comm, pycoll.Comm)
        assert isinstance(comm, kind.__mro__[[*kind.__mro__].index(MPI.Topocomm) - 1])
        assert comm.algorithm == ({} if comm is made[-1] else {"allreduce": "ring"})
        result = np.zeros(2, int)
        with pycoll.traffic() as sent:
            comm.Allreduce(np.ones(2, int), result, algorithm="ring")
        assert result.tolist() == [SIZE, SIZE] and (SIZE == 1 or sent.messages)
    source, to = made[0].Shift(0, 1)
    assert (source, to) == (left, right) and made[0].dims == [SIZE]
    assert made[0].sendrecv(RANK, to, source=source) == left
    received = np.zeros(1, int)
    made[3].Neighbor_allgather(np.array([RANK]), received)
    assert received[0] == left
    for comm in (*made, parent):
        comm.Free()


def test_parts_of_a_grid():
    grid = OURS.Create_cart([1, SIZE] if SIZE % 2 else [2, SIZE // 2])
    row = grid.Sub([False, True])
    assert type(row) is pycoll.Cartcomm and row.dims == [grid.dims[1]] and row.rank == grid.coords[1]
    result = np.zeros(1, int)
    row.Allreduce(np.array([RANK]), result)
    assert result[0] == sum(range(row.size)) + row.size * row.size * grid.coords[0]
    assert grid.Split(RANK).size == 1
    row.Free()
    grid.Free()
    alone = OURS.Create_cart([1])
    assert (alone == MPI.COMM_NULL) == (RANK > 0)


def test_nothing_is_exchanged_before_the_first_collective():
    """Rank 0 alone names an algorithm."""
    comm = OURS.Dup()
    if RANK == 0:
        comm.algorithm["Bcast"] = "ring"
        assert pycoll.Comm.fromhandle(comm.handle).algorithm == {"bcast": "ring"}
        del comm.algorithm["Bcast"]
    makers = [OURS.Dup, lambda: OURS.Split(0), lambda: OURS.Create(OURS.Get_group()), *WITH_TOPOLOGY.values()]
    children = [comm, *(make() for make in makers)]
    assert all(map(is_new, children))  # without a duplicate, memory or facts about other ranks
    for child in children:
        child.Barrier()
        assert not is_new(child)
        child.Free()


def test_the_first_collective_may_be_nonblocking(monkeypatch):
    """Then MPI runs it, so that it does not wait for other ranks, unless only pycoll can."""
    monkeypatch.setattr(settings, "NATIVE", True)
    comm = OURS.Dup()
    values, results = np.full(5, RANK + 1.0), [np.zeros(5) for _ in range(4)]
    if RANK > 0:
        WORLD.Recv(np.zeros(1), 0)
    requests = [comm.Iallreduce(values, results[0])]
    if RANK == 0:  # the others wait for this message first
        for rank in range(1, SIZE):
            WORLD.Send(np.zeros(1), rank)
    requests += [comm.Iallreduce(values, results[1]), comm.Iallreduce(values, results[2], algorithm="ring")]
    comm.Allreduce(values, results[3])
    requests.append(comm.Ibarrier())
    assert [isinstance(request, MPI.Request) for request in requests] == [True, True, False, False]
    for request in requests if RANK % 2 else requests[::-1]:
        request.Wait()
    for result in results:
        np.testing.assert_array_equal(result, np.full(5, SIZE * (SIZE + 1) / 2))
    comm.Free()


def test_wrong_arguments_of_the_first_collective():
    comm = OURS.Dup()
    for given, problem in (
        ((np.ones(3), np.ones(4)), ValueError),
        ((np.ones(3), np.ones(3, "i")), (TypeError, ValueError)),
    ):
        with pytest.raises(problem):
            comm.Iallreduce(*given)
    with pytest.raises(ValueError, match="not one of the algorithms"):
        comm.Iallreduce(np.ones(3), np.ones(3), algorithm="rings")
    comm.Ibarrier().Wait()
    comm.Free()


def test_a_communicator_freed_while_its_first_collective_is_in_flight():
    comm = OURS.Dup()
    result = np.zeros(3)
    request = comm.Iallreduce(np.ones(3), result)
    comm.Free()
    request.Wait()
    assert (result == SIZE).all()


@pytest.mark.parametrize("method", ["Scatter", "Iscatter", "Scatterv"])
def test_the_root_of_a_scatter_gives_the_wrong_buffer_in_place(method):
    comm = OURS.Dup()
    comm.Barrier()
    if RANK == 0:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"sendbuf=MPI\.IN_PLACE is not allowed in scatterv?: .*recvbuf"):
                getattr(comm, method)(MPI.IN_PLACE, np.ones(4 * SIZE))
    comm.Free()


def test_displacements_without_a_datatype_are_refused_in_each_call():
    blocks, counts, displs = np.zeros(SIZE), [1] * SIZE, list(range(SIZE))
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            OURS.Allgatherv(np.ones(1), [blocks, counts, displs])
        OURS.Allgatherv(np.ones(1), [blocks, counts, displs, MPI.DOUBLE])


def test_intercommunicators_stay_native():
    if SIZE == 1:
        return
    half = OURS.Split(RANK % 2)
    inter = half.Create_intercomm(0, OURS, 1 - RANK % 2)
    assert type(inter) is MPI.Intercomm
    result = np.zeros(1, int)
    inter.Allreduce(np.ones(1, int), result)
    assert result[0] == inter.remote_size
    with pytest.raises(TypeError, match="must be an intracommunicator"):
        pycoll.Comm(inter)
    inter.Free()
    half.Free()


def test_what_is_no_communicator_is_refused():
    for wrong in (3, "world", MPI.GROUP_EMPTY):
        with pytest.raises(TypeError, match="must be an intracommunicator"):
            pycoll.Comm(wrong)
    nothing = pycoll.Comm(MPI.COMM_NULL if RANK else None)
    assert nothing == MPI.COMM_NULL
    for use in (lambda: nothing.Barrier(), lambda: nothing.Ibarrier(), lambda: nothing.algorithm):
        with pytest.raises(TypeError, match=r"comm is MPI\.COMM_NULL: it has been freed, or"):
            use()


def test_small_letters_and_point_to_point_are_mpi4pys():
    assert OURS.allreduce(RANK) == sum(range(SIZE)) and OURS.bcast({"a": RANK}) == {"a": 0}
    assert OURS.gather(str(RANK), SIZE - 1) == ([str(r) for r in range(SIZE)] if RANK == SIZE - 1 else None)
    assert OURS.alltoall([RANK] * SIZE) == OURS.allgather(RANK) == list(range(SIZE))
    assert OURS.scatter(range(SIZE)) == RANK and OURS.scan(1) == RANK + 1
    OURS.barrier()
    got = np.zeros(2)
    OURS.Sendrecv(np.full(2, RANK), (RANK + 1) % SIZE, 0, got, (RANK - 1) % SIZE, 0)


@pytest.mark.parametrize("method", METHODS)
def test_permuted_ranks(method):
    comms = OURS.Split(0, -RANK), THEIRS.Split(0, -RANK)
    rank = comms[0].rank
    assert rank == SIZE - 1 - RANK
    style = "[buf, count]" if method.endswith("v") else "buf"
    check(method, partial(call_of, method, rank, style, root=min(1, SIZE - 1)), FORMS, [None], comms)
    for comm in comms:
        comm.Free()


def test_a_communicator_freed_while_others_live():
    kept, values = OURS.Dup(), np.arange(3) + RANK
    expected = np.zeros(3, int)
    THEIRS.Allreduce(values, expected)
    for _ in range(20):
        freed = kept.Dup()
        freed.algorithm["Allreduce"] = "ring"
        for comm in (freed, kept):
            result = np.zeros(3, int)
            comm.Allreduce(values, result)
            np.testing.assert_array_equal(result, expected)
        freed.Free()
        with pytest.raises(TypeError, match=r"comm is MPI\.COMM_NULL: it has been freed, or"):
            freed.Allreduce(values, result)
        assert kept.algorithm == {}
    kept.Free()


def test_no_cross_talk():
    comms = [OURS, OURS.Dup(), OURS.Split(0, -RANK), pycoll.Comm(MPI.COMM_SELF)]
    results = [np.zeros(2, int) for _ in comms]
    requests = [
        comm.Iallreduce(np.arange(2) + RANK * i, result) for i, (comm, result) in enumerate(zip(comms, results))
    ]
    result = np.zeros(2, int)
    comms[1].Allreduce(np.ones(2, int), result)
    assert result.tolist() == [SIZE, SIZE]
    for request in reversed(requests):
        request.Wait()
    for i, (comm, result) in enumerate(zip(comms, results)):
        total = i * (sum(range(SIZE)) if comm.size == SIZE and i < 3 else RANK)
        assert result.tolist() == [total, total + comm.size]
    for comm in comms[1:3]:
        comm.Free()


def test_no_communicator():
    """Check that ranks that a communicator does not include get the error of MPI, with an explanation."""
    for comm in (pycoll.Comm(MPI.COMM_NULL), pycoll.Comm(WORLD).Split(MPI.UNDEFINED)):
        assert comm == MPI.COMM_NULL
        with pytest.raises(MPI.Exception, match="or this rank is not in it") as caught:
            comm.Allreduce(np.ones(3), np.empty(3))
        assert caught.value.Get_error_class() == MPI.ERR_COMM and isinstance(caught.value, TypeError)
