"""Send and receive buffers that share memory: all of it, which means in place, or a part, which is an error."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi

LENGTHS = [1, 1000, 100_000]  # for each rank
TOTAL = sum(range(SIZE))


class Interface:
    """Another object with the same memory."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


VIEWS = {
    "itself": lambda array: array,
    "flat": lambda array: array.ravel(),
    "view": lambda array: array[:],
    "interface": Interface,
    "memoryview": memoryview,
    "from the buffer": np.frombuffer,
}


def run(caller, form, name, *arguments, **options):
    """Call a function of pycoll or a method of a communicator; the first call of a kind is checked more carefully."""
    if caller is pycoll:
        name = name.lower().replace("_block", "")
    prefix = "i" if caller is pycoll else "I"
    name = {"blocking": name, "nonblocking": prefix + name.lower(), "persistent": name + "_init"}[form]
    request = getattr(caller, name)(*arguments, **options)
    if form == "persistent":
        request.Start()
    if form != "blocking":
        request.Wait()
    if form == "persistent":
        request.Free()


@pytest.fixture(params=["functions", "methods"])
def caller(request):
    if request.param == "functions":
        pycoll.attach(MPI.COMM_WORLD)
        return pycoll
    return pycoll.Comm(MPI.COMM_WORLD)


FORMS = ["blocking", "nonblocking", "persistent"]
PREFIXES = {"Allreduce": range(SIZE), "Reduce": range(SIZE), "Scan": range(RANK + 1), "Exscan": range(RANK)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", VIEWS)
def test_reductions_in_the_same_memory(caller, kind, form):
    for length in LENGTHS:
        for name, ranks in PREFIXES.items():
            for op, factor in ((MPI.SUM, 1), (MPI.MAX, 0)):
                one, other = np.full(length, RANK + 1.0), np.empty(length)
                run(caller, form, name, np.ones(length), other, op)  # other buffers, so that later calls are short ones
                for given, got in ((one, VIEWS[kind](one)), (VIEWS[kind](one), one)):
                    one[...] = RANK + 1
                    run(caller, form, name, given, got, op)
                    expected = (sum(ranks) + len(ranks)) * factor + (1 - factor) * len(ranks)
                    gets = (RANK == 0) if name == "Reduce" else (RANK > 0) if name == "Exscan" else True
                    assert (one == (expected if gets else RANK + 1)).all(), (name, op, length)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", VIEWS)
def test_other_collectives_in_the_same_memory(caller, kind, form):
    for length in LENGTHS:
        values = np.arange(SIZE * length, dtype=float)
        for name in ("Alltoall", "Alltoallv", "Reduce_scatter_block"):
            for _ in range(2):
                one, other, counts = values + 1000 * RANK, np.empty(SIZE * length), [[length] * SIZE]
                if name == "Reduce_scatter_block":
                    run(caller, form, name, one.copy(), other[:length])
                    run(caller, form, name, one, VIEWS[kind](one[:length]))
                    block = values[RANK * length : (RANK + 1) * length] * SIZE + 1000 * TOTAL
                    np.testing.assert_array_equal(one[:length], block)
                    continue
                for given, got in ((one.copy(), other), (one, VIEWS[kind](one))):
                    both = ([given, *counts], [got, *counts]) if name == "Alltoallv" else (given, got)
                    run(caller, form, name, *both)
                block = values[RANK * length : (RANK + 1) * length]
                np.testing.assert_array_equal(one, np.concatenate([block + 1000 * rank for rank in range(SIZE)]))


@pytest.mark.parametrize("form", FORMS)
def test_memory_shared_in_part_is_refused(caller, form):
    for length in LENGTHS:
        whole = np.zeros((SIZE + 1) * (length + 1))
        half, later = whole[: SIZE * length], whole[1 : SIZE * length + 1]
        if half.size == 1:  # they are apart
            continue
        forms = [lambda array: array]
        if caller is not pycoll:
            forms += [lambda array: [array, MPI.DOUBLE], lambda array: [array, array.size, MPI.DOUBLE]]
        for name in ("Allreduce", "Scan", "Exscan", "Reduce", "Alltoall"):
            for _ in range(3):
                for spec in forms[:2] if name == "Alltoall" else forms:
                    if form == "blocking":
                        run(caller, form, name, spec(half), spec(np.empty(half.size)))
                    if (name == "Reduce" and RANK) or (name == "Exscan" and not RANK):  # recvbuf is not used
                        continue
                    with pytest.raises(ValueError, match="sendbuf and recvbuf overlap"):
                        run(caller, form, name, spec(half), spec(later))
        for name, given, got in (
            ("Allgather", whole[length : 2 * length], whole[: SIZE * length]),
            ("Reduce_scatter_block", half, whole[1 : length + 1]),
            ("Allgatherv", whole[length : 2 * length], [whole[: SIZE * length], [length] * SIZE]),
            ("Alltoallv", [half, [length] * SIZE], [later, [length] * SIZE]),
        ):
            for _ in range(3 if SIZE > 1 or name == "Alltoallv" else 0):  # others are apart on one rank
                with pytest.raises(ValueError, match="sendbuf and recvbuf overlap"):
                    run(caller, form, name, given, got)
    assert not whole.any()


def test_counts_of_one_array_that_do_not_overlap():
    """Blocks of one array may be sent and received, if they are apart."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    for _ in range(3):
        both = np.full(8, RANK + 1.0)
        comm.Allreduce(both[:4], both[4:])
        comm.Allreduce([both, (4, 0), MPI.DOUBLE], [both, (4, 4), MPI.DOUBLE])
        assert both.tolist() == [RANK + 1] * 4 + [TOTAL + SIZE] * 4
