"""Ranks in one process: `pycoll.local`."""

import json
import operator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py.MPI")

from mpi4py import MPI

import pycoll
from pycoll.schedule.registry import PRIMITIVES, algorithms_of

ROOT = Path(__file__).parents[2]
RANKS = [1, 2, 3, 4, 5, 8]


@pytest.mark.parametrize("ranks", RANKS)
def test_traffic_around_it_counts_the_messages_of_all_ranks(ranks):
    with pycoll.traffic() as sent:
        pycoll.local(lambda comm: pycoll.allreduce(np.ones(8 * ranks), algorithm="ring", comm=comm), ranks)
    assert sent.nbytes == 2 * (ranks - 1) * 64 * ranks and sent.messages == 2 * (ranks - 1) * ranks


def data(rank, count):
    return np.random.default_rng(rank).integers(-100, 100, count).astype(float)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", [None, *algorithms_of("allreduce")])
def test_allreduce_by_all_algorithms(ranks, algorithm):
    def program(comm):
        return pycoll.allreduce(data(comm.rank, 17), comm=comm, algorithm=algorithm)

    wanted = sum(data(rank, 17) for rank in range(ranks))
    for result in pycoll.local(program, ranks):
        np.testing.assert_array_equal(result, wanted)


def blocks(comm, count):
    return np.concatenate([data(comm.rank + 10 * to, count) for to in range(comm.size)])


def scattered(comm, root):
    return pycoll.scatter(blocks(comm, 3) if comm.rank == root else None, np.empty(3), root, comm=comm)


FUNCTIONS = {
    "bcast": lambda comm, root: pycoll.bcast(data(comm.rank, 5), root, comm=comm),
    "scatter": lambda comm, root: scattered(comm, root),
    "gather": lambda comm, root: pycoll.gather(data(comm.rank, 3), None, root, comm=comm),
    "allgather": lambda comm, root: pycoll.allgather(data(comm.rank, 3), comm=comm),
    "reduce": lambda comm, root: pycoll.reduce(data(comm.rank, 3), None, "sum", root, comm=comm),
    "alltoall": lambda comm, root: pycoll.alltoall(blocks(comm, 2), comm=comm),
    "reduce_scatter": lambda comm, root: pycoll.reduce_scatter(blocks(comm, 2), comm=comm),
    "scan": lambda comm, root: pycoll.scan(data(comm.rank, 3), comm=comm),
    "barrier": lambda comm, root: pycoll.barrier(comm=comm),
}


def expected(name, ranks, root):
    class Fake:
        size = ranks

        def __init__(self, rank):
            self.rank = rank

    comms = [Fake(rank) for rank in range(ranks)]
    three = [data(rank, 3) for rank in range(ranks)]
    two = [blocks(comm, 2).reshape(ranks, 2) for comm in comms]
    return {
        "bcast": [data(root, 5)] * ranks,
        "scatter": list(blocks(comms[root], 3).reshape(ranks, 3)),
        "gather": [np.concatenate(three) if rank == root else None for rank in range(ranks)],
        "allgather": [np.concatenate(three)] * ranks,
        "reduce": [sum(three) if rank == root else None for rank in range(ranks)],
        "alltoall": [np.concatenate([one[rank] for one in two]) for rank in range(ranks)],
        "reduce_scatter": [sum(one[rank] for one in two) for rank in range(ranks)],
        "scan": [sum(three[: rank + 1]) for rank in range(ranks)],
        "barrier": [None] * ranks,
    }[name]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(ranks, name):
    root = ranks - 1
    found = pycoll.local(lambda comm: FUNCTIONS[name](comm, root), ranks)
    for result, wanted in zip(found, expected(name, ranks, root), strict=True):
        if wanted is None:
            assert result is None
        else:
            np.testing.assert_array_equal(np.ravel(result), wanted)


@pytest.mark.parametrize("ranks", RANKS)
def test_methods(ranks):
    def program(comm):
        size, rank = comm.Get_size(), comm.Get_rank()
        total = np.empty(3)
        comm.Allreduce([data(rank, 3), MPI.DOUBLE], [total, MPI.DOUBLE], algorithm="ring")
        counts = [other + 1 for other in range(size)]
        gathered = np.zeros(sum(counts), int) if rank == 0 else None
        comm.Gatherv(np.full(rank + 1, rank), [gathered, counts] if rank == 0 else None)
        mine = np.zeros(1)
        comm.Reduce_scatter(np.arange(size, dtype=float), mine)
        comm.Barrier()
        return total.tolist(), None if gathered is None else gathered.tolist(), float(mine[0])

    total = sum(data(rank, 3) for rank in range(ranks)).tolist()
    results = pycoll.local(program, ranks)
    assert [one[0] for one in results] == [total] * ranks
    assert results[0][1] == [rank for rank in range(ranks) for _ in range(rank + 1)]
    assert [one[2] for one in results] == [float(rank * ranks) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
def test_objects(ranks):
    long = {"a": np.ones(100_000), "b": [1, "x"]}

    def program(comm):
        rank = comm.rank
        everything = comm.alltoall([(rank, to) for to in range(comm.size)])
        assert everything == [(source, rank) for source in range(comm.size)]
        sent = comm.bcast(long if rank == comm.size - 1 else None, root=comm.size - 1)
        np.testing.assert_array_equal(sent["a"], long["a"])
        assert comm.scatter(list(range(comm.size)) if rank == 0 else None) == rank
        return comm.gather(rank), comm.allreduce(rank, operator.add), comm.scan(1), comm.exscan(1), comm.allgather("x")

    results = pycoll.local(program, ranks)
    assert results[0][0] == list(range(ranks)) and all(one[0] is None for one in results[1:])
    assert all(one[1] == sum(range(ranks)) and one[4] == ["x"] * ranks for one in results)
    assert [one[2] for one in results] == list(range(1, ranks + 1)) and [one[3] for one in results][1:] == list(
        range(1, ranks)
    )


def test_messages():
    def program(comm):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.send({"rank": comm.rank}, right, tag=7)
        comm.Send(np.full(3, comm.rank), right, tag=8)
        numbers = np.empty(3, int)
        comm.Recv(numbers, source=left, tag=8)  # the other message is first in the queue
        request = comm.Irecv(got := np.empty(1), left, tag=9)
        name = comm.recv(source=left, tag=7)
        comm.Isend(np.ones(1), right, tag=9).Wait()
        request.Wait()
        return numbers.tolist(), name["rank"], got[0], comm.sendrecv(comm.rank, left, source=right)

    assert pycoll.local(program, 3) == [([2] * 3, 2, 1.0, 1), ([0] * 3, 0, 1.0, 2), ([1] * 3, 1, 1.0, 0)]


def test_messages_and_collectives_do_not_match():
    def program(comm):
        x, y = np.full(1, 5.0), np.full(1, 6.0)
        if comm.rank == 0:
            for tag in (0, 1):
                comm.Send(x, 1, tag)
            comm.Bcast(y)
        else:
            comm.Bcast(y)
            comm.Recv(x, 0, tag=1)
            assert comm.Irecv(x).Test()
        return x[0], y[0]

    assert pycoll.local(program, 2) == [(5.0, 6.0)] * 2


def test_receives_match_in_the_order_in_which_they_begin():
    def program(comm):
        a, b = np.zeros(1), np.zeros(1)
        if comm.rank == 0:
            comm.Send(np.full(1, 1.0), 1)
            comm.Send(np.full(1, 2.0), 1)
        else:
            request = comm.Irecv(a, 0)
            comm.Recv(b, 0)
            request.Wait()
        return a[0], b[0]

    assert pycoll.local(program, 2)[1] == (1.0, 2.0)


def test_a_rank_that_polls_ends_with_the_others():
    def program(comm):
        if comm.rank:
            raise KeyError("lost")
        request = comm.Irecv(np.zeros(1), 1)
        while not request.Test():
            pass

    with pytest.raises(KeyError, match="lost"):
        pycoll.local(program, 2)


@pytest.mark.parametrize("buffer", [[np.ones(4), 2], [np.ones(4), MPI.INT], [1, 2], np.array([None]), 3])
def test_buffers_that_messages_cannot_have(buffer):
    with pytest.raises(TypeError, match="buf"):
        pycoll.local(lambda comm: comm.Send(buffer, 0), 1)


def test_a_hang_is_an_error_that_says_who_waits():
    with pytest.raises(
        RuntimeError, match="all ranks wait; rank 1 waits for a message of rank 0; rank 2 waits for a mess"
    ):
        pycoll.local(lambda comm: comm.recv(source=0) if comm.rank else None, 3)
    with pytest.raises(RuntimeError, match="rank 0 waits for a message of any rank"):
        pycoll.local(lambda comm: comm.recv(), 1)


def test_the_first_error_ends_all_ranks():
    with pytest.raises(ZeroDivisionError):
        pycoll.local(lambda comm: comm.recv(source=1) if comm.rank == 0 else 1 // 0, 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda comm: comm.bcast(1, root=2), ValueError, "root=2 is not a rank of the communicator of size 2"),
        (lambda comm: pycoll.allreduce(np.ones(3), comm=comm, algorithm="rnig"), ValueError, "rnig"),
        (lambda comm: pycoll.allreduce(np.ones(3), comm=comm, algorithm="native"), ValueError, "do not use MPI"),
        (lambda comm: pycoll.allreduce(np.ones(3), np.ones(2), comm=comm), ValueError, "recvbuf"),
        (lambda comm: comm.Send(np.ones(3), 2), ValueError, "2"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        pycoll.local(call, 2)


@pytest.mark.parametrize("ranks", [0, -1, "2"])
def test_bad_numbers_of_ranks(ranks):
    with pytest.raises((ValueError, TypeError), match="ranks="):
        pycoll.local(lambda comm: None, ranks)


def test_all_primitives_are_methods():
    assert set(PRIMITIVES) <= {name.lower() for name in vars(pycoll.LocalComm)}


def test_blocks_of_datatypes():
    def program(comm):
        every_second = MPI.INT64_T.Create_resized(0, 16)
        sent, received = np.arange(2 * comm.size) + 10 * comm.rank, np.zeros(comm.size, np.int64)
        ones, places = [1] * comm.size, np.arange(comm.size)
        source = [sent, ones, 16 * places, [every_second] * comm.size]
        comm.Alltoallw(source, [received, ones, 8 * places, [MPI.INT64_T] * comm.size])
        every_second.Free()
        return received.tolist()

    assert pycoll.local(program, 3) == [[0, 10, 20], [2, 12, 22], [4, 14, 24]]


def test_the_notebook():
    """Its cells run in order."""
    cells = json.loads((ROOT / "examples" / "ranks.ipynb").read_text())["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["results"]
